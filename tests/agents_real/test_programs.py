"""The real agents with our hooks, offline: what a user gets who installs them.

`tox -e agents` runs these. The programs come from npm; the model is a stand-in (`model.py`).
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents_real import programs
from tests.agents_real.model import Call, Model, serve
from tests.agents_real.programs import PROGRAMS
from tests.support.daemons import wait_until
from tests.support.processes import PACKAGE_PLACE
from tests.support.trees import Tree, assert_tree, make_tree

pytestmark = pytest.mark.agents

TOLD = "the user changed files back with shadowtree"
BEFORE: Tree = {"edited": "0\n", "gone": "0\n", "kept": "0\n"}


@pytest.fixture(params=PROGRAMS)
def agent(request: pytest.FixtureRequest) -> str:
    """The name of an agent that is installed."""
    name: str = request.param
    _install(name)
    return name


def _install(name: str) -> None:
    try:
        programs.install(name)
    except programs.CannotInstall as error:
        if PROGRAMS[name].is_required:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@dataclass(frozen=True)
class User:
    """A person with a home of their own, in a directory with a few files."""

    home: Path
    worktree: Path
    model: Model
    executable: Path

    def shadowtree(self, *words: str) -> str:
        """Run a command line in the directory."""
        done = subprocess.run(
            [self.executable, *words],
            cwd=self.worktree,
            env=programs.surroundings(self.home),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def connect(self, agent: str) -> None:
        """Give an agent the settings that it needs, and our hooks."""
        programs.prepare(agent, self.home, self.model.address)
        self.install(agent)

    def install(self, agent: str) -> None:
        """Install our hooks."""
        self.shadowtree("hooks", "install", agent, "--executable", str(self.executable))

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

    def path(self, name: str) -> str:
        return str(self.worktree / name)


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


def test_turns_are_recorded_undone_and_redone_and_the_model_is_told(agent: str, user: User) -> None:
    program = PROGRAMS[agent]
    user.connect(agent)
    user.ask(
        agent,
        "make the first changes",
        *program.create(user.path("made"), "tool\n"),
        *program.edit(user.path("edited"), "0", "tool"),
        program.shell("echo shell > by-shell; rm gone"),
    )
    one: Tree = {"by-shell": "shell\n", "edited": "tool\n", "kept": "0\n", "made": "tool\n"}
    assert_tree(user.worktree, one)
    user.ask(agent, "go on from there", program.shell("echo 2 > kept; rm made"), goes_on=True)
    two: Tree = {"by-shell": "shell\n", "edited": "tool\n", "kept": "2\n"}
    assert_tree(user.worktree, two)

    (session, *_), _ = log = user.log()
    assert log == [(session, "make the first changes", "active"), (session, "go on from there", "active")]
    user.shadowtree("undo")
    assert_tree(user.worktree, one)
    user.shadowtree("undo")
    assert_tree(user.worktree, BEFORE)
    user.shadowtree("redo")
    user.shadowtree("redo")
    assert_tree(user.worktree, two)

    user.shadowtree("undo")
    user.ask(agent, "what has changed", goes_on=True)
    assert user.model.was_told(TOLD), user.model.last_request()
    assert user.model.was_told('"kept"'), user.model.last_request()
    assert_tree(user.worktree, one)


@pytest.mark.parametrize("agent", ["claude-code", "gemini", "opencode", "qwen"], indirect=True)
def test_slash_commands_act_on_the_session_that_they_are_typed_in(agent: str, user: User) -> None:
    user.connect(agent)
    user.ask(agent, "make a change", PROGRAMS[agent].shell("echo 1 > kept; rm gone"))
    user.type(agent, "/shadowtree-undo 1")
    assert user.model.was_told("Undid 1 turn"), user.model.last_request()
    assert_tree(user.worktree, BEFORE)
    user.type(agent, "/shadowtree-redo 1")
    assert user.model.was_told("Redid 1 turn"), user.model.last_request()
    assert_tree(user.worktree, {"edited": "0\n", "kept": "1\n"})

    assert [(text, state) for _, text, state in user.log()] == [("make a change", "active")]


def test_a_second_agent_in_the_same_directory_keeps_its_own_timeline(agent: str, user: User) -> None:
    other = "codex" if agent == "claude-code" else "claude-code"
    _install(other)
    for name in (agent, other):
        user.connect(name)
    user.ask(agent, "one of ours", PROGRAMS[agent].shell("echo ours > ours"))
    user.ask(other, "one of theirs", PROGRAMS[other].shell("echo theirs > theirs"))
    user.ask(agent, "another of ours", PROGRAMS[agent].shell("echo ours > kept"), goes_on=True)

    sessions = {text: session for session, text, _ in user.log()}
    ours, theirs = sessions["one of ours"], sessions["one of theirs"]
    assert sessions == {"one of ours": ours, "one of theirs": theirs, "another of ours": ours}
    assert (ours.startswith(agent), theirs.startswith(other)) == (True, True)
    user.shadowtree("undo", "2", "--session", ours)
    assert_tree(user.worktree, {**BEFORE, "theirs": "theirs\n"})
    user.shadowtree("redo", "--all", "--session", ours)
    user.shadowtree("undo", "--session", theirs)
    assert_tree(user.worktree, {**BEFORE, "ours": "ours\n", "kept": "ours\n"})


def test_an_uninstall_gives_back_the_same_bytes(agent: str, user: User) -> None:
    program = PROGRAMS[agent]
    programs.prepare(agent, user.home, user.model.address)
    before = user.settings()
    user.install(agent)
    installed = user.settings()
    user.ask(agent, "with hooks", program.shell("echo 1 > kept"))
    assert (user.home / programs.OTHERS_TRACE).exists() == program.has_others_hook
    wait_until(lambda: user.daemon() is not None)
    user.shadowtree("hooks", "uninstall", agent)
    wait_until(lambda: user.daemon() is None)

    after = user.settings()
    written = [path for path, content in installed.items() if before.get(path) != content]
    assert written
    assert {path: after.get(path) for path in written} == {path: before.get(path) for path in written}
    user.ask(agent, "without hooks", program.shell("echo 2 > kept"))
    assert [text for _, text, _ in user.log()] == ["with hooks"]
