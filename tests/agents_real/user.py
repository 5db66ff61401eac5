"""A person with a home of their own, who has agents work in a directory with a few files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents_real import programs
from tests.agents_real.model import Call, Model, serve
from tests.agents_real.programs import PROGRAMS
from tests.support.processes import PACKAGE_PLACE
from tests.support.trees import Tree, make_tree

BEFORE: Tree = {"edited": "0\n", "gone": "0\n", "kept": "0\n"}
"""What is in the directory."""
NOT_WRAPPED = 10
"""How a command exits where nothing was ever recorded."""


def require(agent: str) -> None:
    """Install an agent; without one that most people use the test fails, without another it is skipped."""
    try:
        programs.install(agent)
    except programs.CannotInstall as error:
        if PROGRAMS[agent].is_required:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@dataclass(frozen=True)
class User:
    """A person with a home of their own, in a directory with a few files."""

    home: Path
    worktree: Path
    model: Model
    executable: Path

    def shadowtree(self, *words: str, exit_code: int = 0) -> str:
        """Run a command line in the directory, and give its standard output."""
        done = subprocess.run(
            [self.executable, *words],
            cwd=self.worktree,
            env=programs.surroundings(self.home),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    def connect(self, agent: str) -> None:
        """Give an agent the settings that it needs, and our hooks."""
        programs.prepare(agent, self.home, self.model.address)
        self.install(agent)

    def install(self, agent: str, *options: str) -> None:
        """Install our hooks."""
        self.shadowtree("hooks", "install", agent, *options, "--executable", str(self.executable))

    def ask(self, agent: str, prompt: str, *calls: Call, goes_on: bool = False) -> None:
        """Have a turn, in a new conversation unless it goes on."""
        self.model.play(prompt, *calls)
        shown = self._run(agent, prompt, goes_on=goes_on)
        assert self.model.was_told(prompt), shown

    def type(self, agent: str, command: str) -> None:
        """Type a slash command in the last conversation."""
        self.model.play(command)
        self._run(agent, command, goes_on=True)

    def _run(self, agent: str, prompt: str, *, goes_on: bool) -> str:
        return programs.run(agent, self.home, self.worktree, self.model.address, prompt, goes_on=goes_on)

    def log(self) -> list[tuple[str, str, str]]:
        """List session, text and state of every message."""
        rows: Any = json.loads(self.shadowtree("--json", "log", "--all"))  # Any: JSON
        return [(row["session"], row["text"], row["state"]) for row in rows]

    def daemon(self) -> int | None:
        """Give the process of the daemon, if there is one."""
        pid: int | None = json.loads(self.shadowtree("--json", "watch", "status"))["pid"]
        return pid

    def settings(self) -> dict[Path, bytes]:
        """Read every file of the home but those that shadowtree keeps for itself."""
        ours = self.home / ".local" / "share" / "shadowtree"
        return {
            path: path.read_bytes()
            for path in self.home.rglob("*")
            if path.is_file() and ours not in path.parents and "node_modules" not in path.parts
        }

    def files(self) -> dict[Path, bytes]:
        """Read every file of the directory."""
        return {path: path.read_bytes() for path in self.worktree.rglob("*") if path.is_file()}

    def path(self, name: str) -> str:
        return str(self.worktree / name)


@contextmanager
def make_user(directory: Path) -> Iterator[User]:
    """Have somebody while the body runs; what agents leave running for them is killed then."""
    home, worktree = make_tree(directory / "person", {}), make_tree(directory / "worktree", BEFORE)
    executable = directory / "bin" / "shadowtree"
    executable.parent.mkdir()
    start = shlex.join(["env", f"PYTHONPATH={PACKAGE_PLACE}", sys.executable, "-m", "shadowtree"])
    executable.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    executable.chmod(0o755)
    with serve() as model:
        user = User(home, worktree, model, executable)
        yield user
        user.shadowtree("watch", "stop", "--all")
        programs.end_all(home)
