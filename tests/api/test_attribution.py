"""Which changes belong to whom: messages that nobody ended, messages without changes, a HEAD that moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Conflict, DuplicateMessage, OutOfSpace, Shadow
from shadowtree.results.messages import Message
from tests.support.referee import git, init
from tests.support.trees import assert_tree, make_tree


def paths(message: Message) -> list[str]:
    return [changed.path for changed in message.patch.files]


def commit(repository: Path) -> str:
    git("add", "--all", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "-m", "commit", cwd=repository)
    return git("rev-parse", "HEAD", cwd=repository)


# A message that nobody ended

CLOSING = {
    "begin": lambda shadow: shadow.begin("m2"),
    "snapshot": lambda shadow: shadow.snapshot("m2"),
}


@pytest.mark.parametrize("close", CLOSING.values(), ids=CLOSING)
def test_whoever_closes_a_message_warns(
    shadow: Shadow, worktree: Path, close: Callable[[Shadow], Message]
) -> None:
    """The agent died after its edit of `a`; then the user edited `b` (B1)."""
    shadow.begin("m1")
    make_tree(worktree, {"a": "agent"})
    make_tree(worktree, {"b": "mine"})
    second = close(shadow)

    assert second.warnings == [
        "message 'm1' was never ended: it ends here, and undoing it may undo your edits too"
    ]
    first = shadow.messages()[0]
    assert (first.inferred, first.to_dict()["inferred"], paths(first)) == (True, True, ["a", "b"])
    assert paths(shadow.end("m2")) == []


def test_without_steps_an_undo_says_what_it_may_undo_too(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    make_tree(worktree, {"a": "agent"})
    make_tree(worktree, {"b": "mine"})
    with shadow.message("m2"):
        make_tree(worktree, {"0": "m2"})

    planned = shadow.undo(2, dry_run=True)
    outcome = shadow.undo(2)

    note = "message 'm1' was never ended: edits you made before it was closed may be undone too"
    assert note in planned.notes
    assert note in outcome.notes
    assert (planned.uncertain, outcome.uncertain, outcome.to_dict()["uncertain"]) == (["a", "b"],) * 3
    assert_tree(worktree, {})
    shadow.unrevert()
    assert_tree(worktree, {"a": "agent", "b": "mine", "0": "m2"})


def test_with_steps_what_changed_after_the_last_one_is_nobodys(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "agent"})
    make_tree(worktree, {"b": "mine"})
    warnings = shadow.begin("m2").warnings
    shadow.end("m2")
    outcome = shadow.undo(2)

    assert warnings == ["message 'm1' was never ended: it ends with its last step, without later changes"]
    assert paths(shadow.messages()[0]) == ["a"]
    assert outcome.notes == ["message 'm1' was never ended: it ends with its last step"]
    assert (outcome.uncertain, outcome.deleted, outcome.complete) == ([], ["a"], True)
    assert_tree(worktree, {"b": "mine"})


def test_what_came_before_the_last_step_ended_is_the_messages(shadow: Shadow, worktree: Path) -> None:
    """Everything between its begin and that end is, in a step or not. The last step is the last to end."""
    shadow.begin("m1")
    make_tree(worktree, {"a": "1"})
    shadow.begin_step("s1")
    shadow.begin_step("s2")
    shadow.end_step("s2")
    make_tree(worktree, {"b": "1"})
    shadow.end_step("s1")
    make_tree(worktree, {"c": "mine"})
    shadow.begin("m2")

    first = shadow.messages()[0]
    assert (paths(first), first.after) == (["a", "b"], first.steps[0].after)


def test_an_edit_after_the_last_step_is_a_conflict_and_never_lost(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "agent"})
    make_tree(worktree, {"a": "mine"})
    shadow.begin("m2")
    shadow.end("m2")

    with pytest.raises(Conflict):
        shadow.undo(2)

    assert_tree(worktree, {"a": "mine"})


def test_while_a_step_is_open_the_paths_that_changed_after_the_finished_ones_are_uncertain(
    shadow: Shadow, worktree: Path
) -> None:
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "agent", "c": "agent"})
    shadow.begin_step("s2")
    make_tree(worktree, {"b": "who knows", "c": "who knows"})
    shadow.begin("m2")
    shadow.end("m2")
    outcome = shadow.undo(2, dry_run=True)

    assert (outcome.deleted, outcome.uncertain) == (["a", "b", "c"], ["b", "c"])


def test_a_snapshot_takes_what_came_after_the_last_step(shadow: Shadow, worktree: Path) -> None:
    """The snapshot gets everything that changed since the session last recorded."""
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"b": "1"})
    shadow.snapshot("m2")

    assert [paths(message) for message in shadow.messages()] == [["a"], ["b"]]
    shadow.undo()
    assert_tree(worktree, {"a": "1"})
    shadow.undo()
    assert_tree(worktree, {})


def test_an_act_ends_the_open_message_and_says_so(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    make_tree(worktree, {"a": "1"})
    outcome = shadow.undo()

    assert outcome.notes == [
        "message 'm1' was still open, so this undo ends it; edits that you made meanwhile may be undone too"
    ]
    assert outcome.uncertain == ["a"]
    assert_tree(worktree, {})
    shadow.redo()
    assert_tree(worktree, {"a": "1"})


def test_edits_of_yours_are_not_spoken_of_where_no_file_changed(shadow: Shadow) -> None:
    shadow.begin("m1")

    assert shadow.undo().notes == ["message 'm1' was still open, so this undo ends it"]


@pytest.mark.parametrize("step", [None, "s1"], ids=["message", "step"])
def test_an_act_ends_the_open_message_with_its_last_step(
    shadow: Shadow, worktree: Path, step: str | None
) -> None:
    make_tree(worktree, {"b": "0"})
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"b": "mine"})
    outcome = shadow.revert("m1", step=step)

    assert outcome.deleted == ["a"]
    assert outcome.notes == ["message 'm1' was still open, so this revert ends it with its last step"]
    assert_tree(worktree, {"b": "mine"})
    assert paths(shadow.messages()[0]) == ["a"]
    assert shadow.status().outside[0].path == "b"
    shadow.unrevert()
    assert_tree(worktree, {"a": "1", "b": "mine"})


def test_what_an_act_of_another_session_did_after_the_last_step_is_not_counted(
    shadow: Shadow, worktree: Path
) -> None:
    other = shadow.for_session("other")
    with other.message("o1"):
        make_tree(worktree, {"x": "1"})
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "1"})
    other.undo()
    shadow.begin("m2")

    assert paths(shadow.messages()[0]) == ["a"]


def test_a_message_that_was_ended_needs_no_note(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1") as message:
        make_tree(worktree, {"a": "1"})

    assert message.value.warnings == []
    assert shadow.begin("m2").warnings == []
    shadow.end()
    outcome = shadow.undo(2)
    assert (outcome.notes, outcome.uncertain) == ([], [])


# A begin that fails


def test_a_begin_that_fails_records_nothing(shadow: Shadow, worktree: Path) -> None:
    shadow.snapshot("m0")
    shadow.begin("m1")
    make_tree(worktree, {"a": "1"})
    before = shadow.messages()
    with Shadow(worktree, settings={"min_free": 10**17}) as full, pytest.raises(OutOfSpace):
        full.begin("m2")

    assert shadow.messages() == before
    with pytest.raises(DuplicateMessage):
        shadow.begin("m0")
    assert shadow.messages() == before


# A message that changed nothing


def test_a_message_that_changed_nothing_is_dropped(shadow: Shadow, worktree: Path) -> None:
    """Nothing shows that it began: redo works as before, and no number is used up (B15)."""
    for number in range(3):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {f"f{number}": "1"})
    shadow.undo(2)
    before = shadow.messages(), shadow.branches(), shadow.last_number(), shadow.status()
    shadow.begin("empty")
    with shadow.step("s1"):
        make_tree(worktree, {"x": "1"})
        (worktree / "x").unlink()
    assert len(shadow.branches()) == 1

    assert shadow.end_or_drop("empty") is None

    assert (shadow.messages(), shadow.branches(), shadow.last_number(), shadow.status()) == before
    assert shadow.check(read_data=True).ok
    assert shadow.redo(None).messages == ["m1", "m2"]
    assert shadow.snapshot("empty").number == 4


def test_a_branch_that_was_there_before_stays_when_a_message_is_dropped(
    shadow: Shadow, worktree: Path
) -> None:
    for number in range(2):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {f"f{number}": "1"})
    shadow.undo()
    with shadow.message("n1"):
        make_tree(worktree, {"n": "1"})
    (branch,) = shadow.branches()
    shadow.switch(branch.name)
    shadow.undo()
    before = [(each.name, each.messages, each.state) for each in shadow.branches()]
    shadow.begin("empty")

    assert shadow.end_or_drop("empty") is None

    assert sorted((each.name, each.messages, each.state) for each in shadow.branches()) == sorted(before)
    assert shadow.redo().messages == ["m1"]


def test_a_message_that_changed_something_is_ended(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    make_tree(worktree, {"a": "1"})
    message = shadow.end_or_drop("m1")

    assert message is not None
    assert (paths(message), message.state, message.inferred) == (["a"], "active", False)


def test_an_empty_message_stays_if_somebody_else_recorded_meanwhile(shadow: Shadow, worktree: Path) -> None:
    """The numbers of later records must not change."""
    shadow.begin("m1")
    shadow.for_session("other").snapshot("o1")
    message = shadow.end_or_drop("m1")

    assert message is not None
    assert paths(message) == []
    assert shadow.check().ok


# The user's repository


def test_a_head_that_moved_during_a_message_is_told(shadow: Shadow, worktree: Path) -> None:
    old = commit(init(make_tree(worktree, {"a": "0"})))
    with shadow.message("m1") as message:
        make_tree(worktree, {"a": "1"})
        new = commit(worktree)

    assert (message.value.git_head, message.value.git_head_after) == (old, new)
    assert shadow.undo().notes == ["git HEAD moved during message 'm1'"]
    shadow.redo()
    newer = commit(worktree)
    assert shadow.undo().notes == [
        "git HEAD moved during message 'm1'",
        f"git HEAD has moved since then, from {new[:12]} to {newer[:12]}",
    ]


def test_a_head_that_moved_since_is_told(shadow: Shadow, worktree: Path) -> None:
    old = commit(init(make_tree(worktree, {"a": "0"})))
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    new = commit(worktree)

    assert shadow.undo().notes == [f"git HEAD has moved since then, from {old[:12]} to {new[:12]}"]


def test_the_end_of_a_message_that_an_undo_ended_warns(shadow: Shadow, worktree: Path) -> None:
    """Changes that the agent makes after the undo do not belong to the message, and the warning says so."""
    make_tree(worktree, {"a": "1"})
    shadow.begin("m1")
    (worktree / "a").write_text("2")
    shadow.undo()
    shadow.unrevert()
    (worktree / "a").write_text("3")

    assert "later changes are not part of it" in shadow.end("m1").warnings[-1]
