"""Fixtures of the real agents."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents_real import programs
from tests.agents_real.model import serve
from tests.agents_real.programs import PROGRAMS
from tests.agents_real.user import BEFORE, User, require
from tests.support.processes import PACKAGE_PLACE
from tests.support.trees import make_tree


@pytest.fixture(params=PROGRAMS)
def agent(request: pytest.FixtureRequest) -> str:
    """The name of an agent that is installed."""
    name: str = request.param
    require(name)
    return name


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    home, worktree = make_tree(tmp_path / "person", {}), make_tree(tmp_path / "worktree", BEFORE)
    executable = tmp_path / "bin" / "shadowtree"
    executable.parent.mkdir()
    start = shlex.join(["env", f"PYTHONPATH={PACKAGE_PLACE}", sys.executable, "-m", "shadowtree"])
    executable.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    executable.chmod(0o755)
    with serve() as model:
        user = User(home, worktree, model, executable)
        yield user
        user.shadowtree("watch", "stop", "--all")
        programs.end_all(home)
