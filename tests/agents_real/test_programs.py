"""The real agents with our hooks, offline: what a user gets who installs them.

`tox -e agents` runs these. The programs come from npm; the model is a stand-in (`model.py`).
"""

from __future__ import annotations

import pytest

from tests.agents_real import programs
from tests.agents_real.programs import PROGRAMS, RESUMING
from tests.agents_real.user import BEFORE, User, require
from tests.support.daemons import wait_until
from tests.support.trees import Tree, assert_tree

pytestmark = pytest.mark.agents

TOLD = "the user changed files back with shadowtree"

resuming = pytest.mark.parametrize("agent", RESUMING, indirect=True)


@resuming
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


@pytest.mark.parametrize("agent", ["claude-code", "gemini", "opencode", "qwen", "kilo"], indirect=True)
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


@resuming
def test_a_second_agent_in_the_same_directory_keeps_its_own_timeline(agent: str, user: User) -> None:
    other = "codex" if agent == "claude-code" else "claude-code"
    require(other)
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


@pytest.mark.parametrize("agent", ["cline"], indirect=True)
def test_conversations_that_nobody_goes_on_with_are_undone_one_by_one(agent: str, user: User) -> None:
    """Cline goes on only full-screen, and passes on no prompts."""
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
    user.ask(agent, "make others", program.shell("echo 2 > kept; rm by-shell"))
    assert_tree(user.worktree, {"edited": "tool\n", "kept": "2\n", "made": "tool\n"})

    (first, *_), (second, *_) = log = user.log()
    assert log == [(first, "", "active"), (second, "", "active")]
    user.shadowtree("undo", "--session", second)
    assert_tree(user.worktree, one)
    user.shadowtree("undo", "--session", first)
    assert_tree(user.worktree, BEFORE)
    user.shadowtree("redo", "--session", first)
    assert_tree(user.worktree, one)


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
    assert len(user.log()) == 1
