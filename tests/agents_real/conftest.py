"""Fixtures of the real agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents_real.programs import PROGRAMS
from tests.agents_real.user import User, make_user, require


@pytest.fixture(params=PROGRAMS)
def agent(request: pytest.FixtureRequest) -> str:
    """The name of an agent that is installed."""
    name: str = request.param
    require(name)
    return name


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    with make_user(tmp_path) as user:
        yield user
