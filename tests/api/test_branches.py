"""Branches: what is archived, where a session can switch to, and a message that is reverted alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shadowtree import (
    Conflict,
    InvalidInput,
    Outcome,
    Shadow,
    ShadowError,
    UnknownMessage,
    UnknownName,
    UnknownTree,
    WorktreeFailed,
)
from tests.support.referee import assert_sound_store
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, read_tree

if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict

SETTINGS = {"min_free": 0}


def record(shadow: Shadow, id: str, tree: Tree, *, text: str | None = None, role: str | None = None) -> None:
    """Record a message that writes some files."""
    with shadow.message(id, text=f"work on {id}" if text is None else text, role=role):
        make_tree(shadow.worktree, tree)


def branches(shadow: Shadow) -> dict[str, list[str]]:
    return {branch.name: branch.messages for branch in shadow.branches()}


def states(shadow: Shadow) -> dict[str, str]:
    return {message.id: message.state for message in shadow.messages()}


def homes(shadow: Shadow) -> dict[str, str]:
    """Return the branch of each archived message."""
    return {message.id: message.branch for message in shadow.messages() if message.branch is not None}


def trees_after(shadow: Shadow) -> dict[str, str | None]:
    return {message.id: message.after for message in shadow.messages()}


def stand(shadow: Shadow) -> tuple[str | None, list[str]]:
    """Return the head, and the messages that redo can bring back."""
    status = shadow.status()
    return status.head, status.undone


def position(shadow: Shadow) -> tuple[object, ...]:
    """Return everything that shows where a session stands."""
    return stand(shadow), states(shadow), branches(shadow), homes(shadow)


def text_of(*changed: tuple[int, str]) -> str:
    """Return twenty lines, some of them changed."""
    lines = {number: f"line {number}" for number in range(1, 21)} | dict(changed)
    return "".join(f"{line}\n" for line in lines.values())


def record_text(shadow: Shadow, worktree: Path) -> None:
    """Record a text, and its change in the third line as m1."""
    make_tree(worktree, {"t": text_of()})
    shadow.wrap()
    record(shadow, "m1", {"t": text_of((3, "one"))})


@pytest.fixture
def forked(shadow: Shadow, worktree: Path) -> Shadow:
    """m1, then m2 and m3, which are archived, and m4 in force.

    m1 ── m4
     └─── m2 ── m3      work-on-m2
    """
    make_tree(worktree, {"base": "0"})
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": "2", "b": "2"})
    record(shadow, "m3", {"b": "3", "c": "3"})
    shadow.undo(2)
    record(shadow, "m4", {"a": "4", "d": "4"})
    return shadow


AFTER: dict[str, Tree] = {
    "m1": {"base": "0", "a": "1"},
    "m2": {"base": "0", "a": "2", "b": "2"},
    "m3": {"base": "0", "a": "2", "b": "3", "c": "3"},
    "m4": {"base": "0", "a": "4", "d": "4"},
}
"""The worktree after each message of `forked`."""


# Archiving


def test_a_new_message_after_an_undo_archives_the_undone_ones(forked: Shadow) -> None:
    (branch,) = forked.branches()

    assert (branch.name, branch.fork, branch.messages) == ("work-on-m2", "m1", ["m2", "m3"])
    assert (branch.label, branch.state, branch.files) == ("work on m2", "archived", 3)
    assert states(forked) == {"m1": "active", "m2": "archived", "m3": "archived", "m4": "active"}
    assert homes(forked) == {"m2": "work-on-m2", "m3": "work-on-m2"}
    assert stand(forked) == ("m4", [])


def test_nothing_is_archived_by_an_undo_alone(shadow: Shadow) -> None:
    record(shadow, "m1", {"a": "1"})
    shadow.undo()

    assert shadow.branches() == []
    assert stand(shadow) == (None, ["m1"])


def test_a_branch_may_go_back_to_the_start(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    shadow.undo()
    record(shadow, "m2", {"a": "2"})
    (branch,) = shadow.branches()
    outcome = shadow.switch(branch.name)

    assert (branch.fork, branch.messages) == (None, ["m1"])
    assert outcome.messages == ["m2", "m1"]
    assert_tree(worktree, {"a": "1"})


def test_several_branches_may_leave_one_message(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", {"a": "1"})
    for number in (2, 3, 4):
        record(shadow, f"m{number}", {"a": str(number)}, text="try again")
        shadow.undo()
    record(shadow, "m5", {"a": "5"})

    assert branches(shadow) == {"try-again": ["m2"], "try-again-2": ["m3"], "try-again-3": ["m4"]}
    assert [branch.fork for branch in shadow.branches()] == ["m1"] * 3
    for number, name in ((3, "try-again-2"), (2, "try-again"), (4, "try-again-3")):
        shadow.switch(name)
        assert_tree(worktree, {"a": str(number)})
    assert {name: each for name, each in branches(shadow).items() if each == ["m5"]} == {"work-on-m5": ["m5"]}


def test_branches_leave_branches(forked: Shadow, worktree: Path) -> None:
    """m2 and m3 are on one branch, and m5 is on another one that forks at m2."""
    forked.switch("m2")
    record(forked, "m5", {"e": "5"})
    forked.switch("m4")

    assert branches(forked) == {"work-on-m2": ["m2", "m3"], "work-on-m4": ["m4"], "work-on-m5": ["m5"]}
    assert {branch.name: branch.fork for branch in forked.branches()} == {
        "work-on-m2": "m1",
        "work-on-m4": "m1",
        "work-on-m5": "m2",
    }
    outcome = forked.switch("work-on-m5")
    assert outcome.messages == ["m4", "m2", "m5"]
    assert_tree(worktree, {**AFTER["m2"], "e": "5"})
    assert forked.switch("m3").messages == ["m5", "m3"]
    assert_tree(worktree, AFTER["m3"])


def test_a_branch_without_a_text_is_named_after_its_first_message(shadow: Shadow) -> None:
    record(shadow, "MSG 1", {"a": "1"}, text="")
    shadow.undo()
    record(shadow, "m2", {"a": "2"})

    assert branches(shadow) == {"branch-msg-1": ["MSG 1"]}


def test_a_branch_is_not_named_like_a_message(shadow: Shadow) -> None:
    """A message takes precedence, so nobody could switch to such a branch."""
    record(shadow, "fix", {"a": "1"})
    record(shadow, "m1", {"a": "2"}, text="fix")
    shadow.undo()
    record(shadow, "m2", {"a": "3"})

    assert branches(shadow) == {"fix-2": ["m1"]}


# Switching


@pytest.mark.parametrize("id", AFTER)
def test_the_worktree_is_exact_after_a_switch_to_any_message(forked: Shadow, worktree: Path, id: str) -> None:
    recorded = trees_after(forked)
    forked.switch("work-on-m2")
    forked.switch("m4")
    outcome = forked.switch(id)

    assert_tree(worktree, AFTER[id])
    assert (outcome.act, outcome.mode, outcome.complete, outcome.head) == ("switch", "back", True, id)
    assert outcome.after == recorded[id] == forked.track()


def test_a_branch_is_switched_to_by_name(forked: Shadow, worktree: Path) -> None:
    before = forked.track()
    outcome = forked.switch("work-on-m2")

    assert_tree(worktree, AFTER["m3"])
    assert outcome.messages == ["m4", "m2", "m3"]
    assert (outcome.restored, outcome.deleted) == (["a", "b", "c"], ["d"])
    assert (outcome.head, outcome.undone, outcome.before) == ("m3", [], before)
    assert states(forked) == {"m1": "active", "m2": "active", "m3": "active", "m4": "archived"}
    assert {branch.name: branch.state for branch in forked.branches()} == {
        "work-on-m2": "active",
        "work-on-m4": "archived",
    }
    assert homes(forked) == {"m4": "work-on-m4"}


def test_after_a_switch_into_the_middle_the_later_ones_are_undone_and_can_be_redone(
    forked: Shadow, worktree: Path
) -> None:
    outcome = forked.switch("m2")

    assert_tree(worktree, AFTER["m2"])
    assert (outcome.messages, outcome.head, outcome.undone) == (["m4", "m2"], "m2", ["m3"])
    assert stand(forked) == ("m2", ["m3"])
    assert forked.redo().messages == ["m3"]
    assert_tree(worktree, AFTER["m3"])
    assert forked.undo(2).messages == ["m2", "m3"]
    assert_tree(worktree, AFTER["m1"])


def test_a_switch_on_the_same_line_archives_nothing(forked: Shadow, worktree: Path) -> None:
    outcome = forked.switch("m1")

    assert_tree(worktree, AFTER["m1"])
    assert (outcome.messages, outcome.undone) == (["m4"], ["m4"])
    assert list(branches(forked)) == ["work-on-m2"]
    assert forked.switch("m4").messages == ["m4"]
    assert_tree(worktree, AFTER["m4"])
    assert list(branches(forked)) == ["work-on-m2"]


def test_a_switch_to_where_the_session_stands_does_nothing(forked: Shadow, worktree: Path) -> None:
    before = position(forked)
    outcome = forked.switch("m4")

    assert (outcome.messages, outcome.restored, outcome.deleted, outcome.complete) == ([], [], [], True)
    assert outcome.notes
    assert position(forked) == before
    assert outcome.back is None


def test_back_and_forth_keeps_the_names(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m2")
    names = branches(forked)
    for _ in range(3):
        forked.switch("work-on-m4")
        assert_tree(worktree, AFTER["m4"])
        assert branches(forked) == names
        forked.switch("work-on-m2")
        assert_tree(worktree, AFTER["m3"])
        assert branches(forked) == names
    assert names == {"work-on-m2": ["m2", "m3"], "work-on-m4": ["m4"]}


def test_going_on_after_a_switch_extends_the_branch(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m2")
    record(forked, "m5", {"e": "5"})

    assert branches(forked)["work-on-m2"] == ["m2", "m3", "m5"]
    forked.switch("work-on-m4")
    assert branches(forked) == {"work-on-m2": ["m2", "m3", "m5"], "work-on-m4": ["m4"]}
    assert homes(forked) == dict.fromkeys(["m2", "m3", "m5"], "work-on-m2")
    assert forked.switch("work-on-m2").messages == ["m4", "m2", "m3", "m5"]
    assert_tree(worktree, {**AFTER["m3"], "e": "5"})


def test_the_name_of_the_present_branch_means_its_end(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m2")
    record(forked, "m5", {"e": "5"})
    forked.undo(2)
    outcome = forked.switch("work-on-m2")

    assert (outcome.messages, outcome.head, outcome.undone) == (["m3", "m5"], "m5", [])
    assert_tree(worktree, {**AFTER["m3"], "e": "5"})


def test_what_is_undone_when_a_switch_leaves_is_archived_too(forked: Shadow, worktree: Path) -> None:
    record(forked, "m5", {"e": "5"})
    forked.undo()
    outcome = forked.switch("work-on-m2")

    assert outcome.messages == ["m4", "m2", "m3"]
    assert branches(forked) == {"work-on-m2": ["m2", "m3"], "work-on-m4": ["m4", "m5"]}
    assert forked.switch("m5").messages == ["m2", "m3", "m4", "m5"]
    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


def test_a_message_that_is_open_is_ended_by_a_switch(forked: Shadow, worktree: Path) -> None:
    forked.begin("m5", text="work on m5")
    make_tree(worktree, {"e": "5"})
    forked.switch("m3")

    assert_tree(worktree, AFTER["m3"])
    assert branches(forked) == {"work-on-m2": ["m2", "m3"], "work-on-m4": ["m4", "m5"]}
    assert forked.show("m5")[0].inferred
    forked.switch("m5")
    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


def test_a_switch_to_the_message_that_is_open_ends_it(forked: Shadow, worktree: Path) -> None:
    forked.begin("m5")
    make_tree(worktree, {"e": "5"})
    outcome = forked.switch("m5")

    assert outcome.complete
    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


@pytest.mark.parametrize("name", ["#3", "m3", "work-on-m2"])
def test_a_message_is_switched_to_by_any_of_its_names(forked: Shadow, worktree: Path, name: str) -> None:
    forked.switch(name)

    assert_tree(worktree, AFTER["m3"])


def test_the_beginning_of_an_id_is_enough_to_switch(forked: Shadow, worktree: Path) -> None:
    record(forked, "other", {"e": "5"})
    forked.switch("m3")
    forked.switch("othe")

    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


def test_the_beginning_of_a_branch_is_enough_to_switch(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m")

    assert_tree(worktree, AFTER["m3"])


def test_a_text_of_digits_does_not_name_a_branch_like_a_number(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", {"a": "1"})
    shadow.begin("m2", text="2024")
    shadow.end()
    shadow.undo()
    record(shadow, "m3", {"a": "3"})

    assert [branch.name for branch in shadow.branches()] == ["branch-2024"]


@pytest.mark.parametrize("name", ["nobody", "", "wor", "0" * 40])
def test_a_switch_to_nobody_is_refused_and_changes_nothing(forked: Shadow, worktree: Path, name: str) -> None:
    before = position(forked)
    with pytest.raises(UnknownMessage):
        forked.switch(name)

    assert position(forked) == before
    assert_tree(worktree, AFTER["m4"])


def test_a_switch_brings_back_what_a_restore_did_before_the_first_message(
    forked: Shadow, worktree: Path
) -> None:
    """The restore is the first thing that its session records."""
    tree = forked.track()
    make_tree(worktree, {"a": "edited"})
    with Shadow(worktree, settings=SETTINGS, session="other") as other:
        other.restore(tree)
        record(other, "o1", {"e": "5"})
        other.unrevert()
        other.switch("o1")

    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


def test_a_switch_to_a_tree_is_a_restore_and_refused(forked: Shadow) -> None:
    with pytest.raises(UnknownMessage):
        forked.switch(forked.track())


def test_a_switch_is_taken_back_by_unrevert(forked: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"mine": "x"})
    before = stand(forked), states(forked)
    forked.switch("work-on-m2")
    outcome = forked.unrevert()

    assert_tree(worktree, {**AFTER["m4"], "mine": "x"})
    assert outcome.messages == ["m2", "m3", "m4"]
    assert (stand(forked), states(forked)) == before
    assert homes(forked) == {"m2": "work-on-m2", "m3": "work-on-m2"}


def test_a_switch_into_the_middle_is_taken_back_by_unrevert(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m2")
    record(forked, "m5", {"e": "5"})
    forked.undo()
    before = stand(forked), states(forked)
    forked.switch("m1")
    assert stand(forked) == ("m1", ["m2", "m3", "m5"])
    forked.unrevert()

    assert (stand(forked), states(forked)) == before
    assert_tree(worktree, AFTER["m3"])


def test_several_switches_are_taken_back_one_after_the_other(forked: Shadow, worktree: Path) -> None:
    forked.switch("m2")
    forked.switch("m4")
    forked.switch("m3")
    for id in ("m4", "m2", "m4"):
        forked.unrevert()
        assert forked.status().head == id
        assert_tree(worktree, AFTER[id])


def test_a_switch_is_not_taken_back_over_what_was_recorded_after_it(forked: Shadow, worktree: Path) -> None:
    forked.switch("work-on-m2")
    record(forked, "m5", {"e": "5"})
    outcome = forked.unrevert()

    assert_tree(worktree, {**AFTER["m3"], "e": "5"})
    assert any("'m5'" in note for note in outcome.notes)
    forked.switch("-")
    assert_tree(worktree, AFTER["m4"])
    assert branches(forked)["work-on-m2"] == ["m2", "m3", "m5"]
    forked.switch("-")
    assert_tree(worktree, {**AFTER["m3"], "e": "5"})


def test_without_a_switch_there_is_nothing_to_switch_back_from(forked: Shadow) -> None:
    with pytest.raises(UnknownMessage, match="no switch"):
        forked.switch("-")
    forked.switch("work-on-m2")
    forked.unrevert()
    with pytest.raises(UnknownMessage, match="no switch"):
        forked.switch("-")


def test_a_dry_run_of_a_switch_tells_all_and_changes_nothing(forked: Shadow, worktree: Path) -> None:
    before, tree = position(forked), read_tree(worktree)
    dry = forked.switch("m2", dry_run=True)

    assert (position(forked), read_tree(worktree)) == (before, tree)
    done = forked.switch("m2")
    assert (dry.dry_run, done.dry_run) == (True, False)
    keys = ("messages", "restored", "deleted", "head", "undone", "complete", "mode", "merged", "marked")
    assert [dry.to_dict()[key] for key in keys] == [done.to_dict()[key] for key in keys]
    assert done.to_dict()["undone"] == ["m3"]


def test_a_switch_touches_no_path_that_is_the_same_at_both_ends(forked: Shadow, worktree: Path) -> None:
    """Somebody's edit of it stays, and is no conflict."""
    record(forked, "m5", {"b": "2"})
    (worktree / "b").write_text("mine")
    os.utime(worktree / "base", ns=(1, 1))
    outcome = forked.switch("m2")

    assert outcome.restored == ["a"]
    assert_tree(worktree, {**AFTER["m2"], "b": "mine"})
    assert (worktree / "base").stat().st_mtime_ns == 1


def test_empty_directories_and_bits_come_along(shadow: Shadow, worktree: Path) -> None:
    one: Tree = {"d": {"e": {}}, "run": executable("x"), "ln": link("run"), "secret": file("s", 0o600)}
    two: Tree = {"d": "now a file", "run": "x", "ln": "now a file", "secret": file("s", 0o640)}
    shadow.wrap()
    record(shadow, "m1", one)
    shadow.undo()
    record(shadow, "m2", two)

    shadow.switch("m1")
    assert_tree(worktree, one)
    shadow.switch("m2")
    assert_tree(worktree, two)


# Switching after somebody's edits


@pytest.fixture
def edited(shadow: Shadow, worktree: Path) -> Shadow:
    """Two lines that changed the same text differently; the user edited the present version."""
    make_tree(worktree, {"t": text_of()})
    shadow.wrap()
    record(shadow, "m1", {"t": text_of((5, "one"))})
    shadow.undo()
    record(shadow, "m2", {"t": text_of((10, "two")), "other": "2"})
    make_tree(worktree, {"t": text_of((10, "two"), (18, "mine"))})
    return shadow


def test_a_switch_stops_at_what_somebody_changed(edited: Shadow, worktree: Path) -> None:
    before, tree = position(edited), read_tree(worktree)
    with pytest.raises(Conflict) as caught:
        edited.switch("m1")

    (conflict,) = caught.value.conflicts
    assert (conflict.path, conflict.reason) == ("t", "it was edited after message 'm2'")
    assert (position(edited), read_tree(worktree)) == (before, tree)


@pytest.mark.parametrize(
    ("on_conflict", "text"),
    [
        ("keep", text_of((10, "two"), (18, "mine"))),
        ("overwrite", text_of((5, "one"))),
        ("merge", text_of((5, "one"), (18, "mine"))),
    ],
)
def test_a_switch_keeps_overwrites_or_merges_what_somebody_changed(
    edited: Shadow, worktree: Path, on_conflict: OnConflict, text: str
) -> None:
    tree = read_tree(worktree)
    outcome = edited.switch("m1", on_conflict=on_conflict)

    assert_tree(worktree, {"t": text})
    assert outcome.complete
    assert outcome.kept == (["t"] if on_conflict == "keep" else [])
    assert outcome.merged == (["t"] if on_conflict == "merge" else [])
    assert outcome.marked == []
    assert edited.status().head == "m1"
    edited.unrevert()
    assert read_tree(worktree) == tree


def test_a_switch_that_collides_shows_the_hunks_and_touches_nothing(edited: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"t": text_of((5, "mine"), (10, "two"))})
    before, tree = position(edited), read_tree(worktree)
    with pytest.raises(Conflict) as caught:
        edited.switch("m1", on_conflict="merge")

    (conflict,) = caught.value.conflicts
    assert [(hunk.line, hunk.ours, hunk.base, hunk.theirs) for hunk in conflict.hunks] == [
        (5, "mine\n", "line 5\n", "one\n")
    ]
    assert (position(edited), read_tree(worktree)) == (before, tree)


def test_a_switch_that_collides_writes_markers_when_asked_for(edited: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"t": text_of((5, "mine"), (10, "two"))})
    outcome = edited.switch("m1", markers=True)

    marked = "<<<<<<< current\nmine\n=======\none\n>>>>>>> switch"
    assert_tree(worktree, {"t": text_of((5, marked))})
    assert (outcome.merged, outcome.marked, outcome.complete) == (["t"], ["t"], False)
    edited.unrevert()
    assert_tree(worktree, {"t": text_of((5, "mine"), (10, "two")), "other": "2"})


# The list


def test_a_branch_gets_another_name_and_keeps_it(forked: Shadow, worktree: Path) -> None:
    renamed = forked.rename_branch("work-on-m2", "Größer & schöner")

    assert (renamed.name, renamed.messages) == ("Größer & schöner", ["m2", "m3"])
    assert homes(forked) == dict.fromkeys(["m2", "m3"], "Größer & schöner")
    forked.switch("Größer & schöner")
    record(forked, "m5", {"e": "5"})
    forked.switch("m4")
    assert branches(forked) == {"Größer & schöner": ["m2", "m3", "m5"], "work-on-m4": ["m4"]}


def test_a_branch_may_be_given_its_own_name(forked: Shadow) -> None:
    assert forked.rename_branch("work-on-m2", "work-on-m2").name == "work-on-m2"


def test_the_present_branch_can_be_renamed(forked: Shadow) -> None:
    forked.switch("work-on-m2")
    record(forked, "m5", {"e": "5"})

    renamed = forked.rename_branch("work-on-m2", "now")
    assert (renamed.state, renamed.messages) == ("active", ["m2", "m3", "m5"])


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("work-on-m4", "already"),
        ("m1", "message"),
        ("#1", "a branch cannot be named"),
        ("@", "a branch cannot be named"),
        ("", "branch"),
        ("  ", "a branch cannot be named"),
        ("@~99", "a branch cannot be named"),
        ("#99", "a branch cannot be named"),
        ("a\nb", "branch"),
        ("x" * 257, "branch"),
    ],
)
def test_a_name_that_nobody_could_use_is_refused(forked: Shadow, new: str, told: str) -> None:
    forked.switch("work-on-m2")
    before = branches(forked)
    with pytest.raises(InvalidInput, match=told):
        forked.rename_branch("work-on-m2", new)

    assert branches(forked) == before


@pytest.mark.parametrize("name", ["nobody", "m2", ""])
def test_what_is_no_branch_is_neither_renamed_nor_dropped(forked: Shadow, name: str) -> None:
    with pytest.raises(UnknownName):
        forked.rename_branch(name, "new")
    with pytest.raises(UnknownName):
        forked.drop_branch(name)

    assert list(branches(forked)) == ["work-on-m2"]


def test_a_branch_that_is_dropped_is_no_longer_listed_and_its_messages_can_be_switched_to(
    forked: Shadow, worktree: Path
) -> None:
    dropped = forked.drop_branch("work-on-m2")

    assert dropped.messages == ["m2", "m3"]
    assert branches(forked) == {}
    assert states(forked)["m2"] == "archived"
    assert homes(forked) == {}
    with pytest.raises(UnknownMessage):
        forked.switch("work-on-m2")
    for id in ("m3", "m2", "m4"):
        forked.switch(id)
        assert_tree(worktree, AFTER[id])


def test_messages_of_a_dropped_branch_are_listed_again_when_they_leave_the_line(forked: Shadow) -> None:
    forked.drop_branch("work-on-m2")
    forked.switch("m3")
    forked.switch("m4")

    assert branches(forked) == {"work-on-m4": ["m4"], "work-on-m2": ["m2", "m3"]}


def test_the_present_line_cannot_be_dropped(forked: Shadow) -> None:
    forked.switch("work-on-m2")
    with pytest.raises(InvalidInput, match="is the current one, so it cannot be dropped"):
        forked.drop_branch("work-on-m2")

    assert "work-on-m2" in branches(forked)


def test_a_branch_of_a_dropped_one_stays(forked: Shadow, worktree: Path) -> None:
    forked.switch("m2")
    record(forked, "m5", {"e": "5"})
    forked.switch("m4")
    forked.drop_branch("work-on-m2")

    assert branches(forked)["work-on-m5"] == ["m5"]
    forked.switch("work-on-m5")
    assert_tree(worktree, {**AFTER["m2"], "e": "5"})


@pytest.fixture
def narrow(worktree: Path) -> Iterator[Shadow]:
    """A shadow that keeps two branches, and warns at that limit."""
    settings = {**SETTINGS, "max_branches": 2, "warn_branches": 2}
    with Shadow(worktree, settings=settings) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def archive_by_begin(shadow: Shadow, number: int) -> list[str]:
    """Replace the last attempt with another one; return the warnings of its begin."""
    shadow.undo()
    began = shadow.begin(f"m{number}", text=f"try {number}")
    make_tree(shadow.worktree, {"a": str(number)})
    shadow.end()
    return began.warnings


def test_above_the_limit_the_oldest_branch_goes_and_is_named(narrow: Shadow, worktree: Path) -> None:
    record(narrow, "m0", {"a": "0"}, text="try 0")
    told = [archive_by_begin(narrow, number) for number in range(1, 4)]

    assert told[0] == []
    assert any("2 branches" in warning for warning in told[1])
    assert any("'try-0'" in warning and "'m0'" in warning for warning in told[2])
    assert branches(narrow) == {"try-1": ["m1"], "try-2": ["m2"]}
    narrow.switch("m0")
    assert_tree(worktree, {"a": "0"})


def test_the_branch_that_was_left_last_is_the_youngest(narrow: Shadow) -> None:
    """The order is that of archiving, not of creation."""
    record(narrow, "m0", {"a": "0"}, text="try 0")
    for number in (1, 2):
        archive_by_begin(narrow, number)
    narrow.switch("try-0")
    outcome = narrow.switch("try-2")

    assert branches(narrow).keys() == {"try-0", "try-1", "try-2"}
    archive_by_begin(narrow, 3)
    assert branches(narrow).keys() == {"try-0", "try-2"}
    assert outcome.complete


def test_a_switch_tells_what_went_above_the_limit(narrow: Shadow) -> None:
    record(narrow, "m0", {"a": "0"}, text="try 0")
    for number in (1, 2):
        archive_by_begin(narrow, number)
    narrow.drop_branch("try-1")
    archive_by_begin(narrow, 3)
    outcome = narrow.switch("m1")

    assert branches(narrow).keys() == {"try-2", "try-3"}
    assert any("'try-0'" in note for note in outcome.notes)


def test_from_so_many_branches_on_a_session_is_told(worktree: Path) -> None:
    settings = {**SETTINGS, "max_branches": 5, "warn_branches": 3}
    with Shadow(worktree, settings=settings) as shadow:
        record(shadow, "m0", {"a": "0"}, text="try 0")
        told = [archive_by_begin(shadow, number) for number in range(1, 6)]

    assert [len(warnings) for warnings in told] == [0, 0, 1, 1, 1]
    assert "3 branches" in told[2][0]


def test_a_single_branch_is_no_plural(worktree: Path) -> None:
    with Shadow(worktree, settings={**SETTINGS, "warn_branches": 1}) as shadow:
        record(shadow, "m0", {"a": "0"}, text="try 0")

        assert archive_by_begin(shadow, 1) == ["this session has 1 branch; it keeps at most 20"]


def test_by_default_twenty_branches_are_kept(shadow: Shadow) -> None:
    record(shadow, "m0", {"a": "0"}, text="try 0")
    told = [archive_by_begin(shadow, number) for number in range(1, 22)]

    assert [bool(warnings) for warnings in told] == [False] * 14 + [True] * 7
    assert list(branches(shadow)) == [f"try-{number}" for number in range(1, 21)]


# Names


def test_a_name_is_tried_as_a_message_then_as_a_branch_then_as_a_tree(forked: Shadow, worktree: Path) -> None:
    tree = trees_after(forked)["m1"]
    assert tree is not None
    forked.rename_branch("work-on-m2", tree)

    assert [diff.path for diff in forked.diff("m1", tree)] == ["a", "b", "c"]
    forked.restore(tree)
    assert_tree(worktree, AFTER["m3"])
    forked.unrevert()
    forked.switch(tree)
    assert_tree(worktree, AFTER["m3"])
    forked.switch("m4")
    record(forked, tree, {"e": "5"})
    assert [diff.path for diff in forked.diff("m4", tree)] == ["e"]
    forked.switch("m3")
    assert forked.switch(tree).head == tree
    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


def test_a_branch_goes_before_the_beginning_of_an_id(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "fix-login", {"a": "1"}, text="fix")
    shadow.undo()
    record(shadow, "m2", {"a": "2"})
    record(shadow, "fix-logout", {"a": "3"})

    assert branches(shadow) == {"fix": ["fix-login"]}
    shadow.switch("fix")
    assert_tree(worktree, {"a": "1"})


@pytest.mark.parametrize(
    ("name", "tree"), [("work-on-m2", AFTER["m3"]), ("work-on-m2^", AFTER["m2"])], ids=["after", "before"]
)
def test_a_branch_names_the_tree_at_its_end(forked: Shadow, worktree: Path, name: str, tree: Tree) -> None:
    before = forked.track()
    differing = sorted(path for path in {*tree, *AFTER["m4"]} if tree.get(path) != AFTER["m4"].get(path))

    assert sorted(diff.path for diff in forked.diff(name)) == differing
    forked.restore(name)
    assert_tree(worktree, tree)
    assert forked.diff(name, name) == []
    assert forked.status().head == "m4"
    forked.restore(before)
    assert_tree(worktree, AFTER["m4"])


@pytest.mark.parametrize("name", ["nobody", "nobody^", "wor"])
def test_a_tree_of_nobody_is_unknown(forked: Shadow, name: str) -> None:
    with pytest.raises(UnknownTree):
        forked.restore(name)
    with pytest.raises(UnknownTree):
        forked.diff(name)


# Two sessions


@pytest.fixture
def other(worktree: Path) -> Iterator[Shadow]:
    """Another session on the same worktree."""
    with Shadow(worktree, settings=SETTINGS, session="other") as shadow:
        yield shadow


def test_a_switch_leaves_the_other_session_alone(forked: Shadow, other: Shadow, worktree: Path) -> None:
    record(other, "o1", {"o": "1"})
    before = position(other)
    outcome = forked.switch("work-on-m2")

    assert_tree(worktree, {**AFTER["m3"], "o": "1"})
    assert outcome.complete
    assert position(other) == before == (("o1", []), {"o1": "active"}, {}, {})


def test_a_session_does_not_know_the_branches_of_another(forked: Shadow, other: Shadow) -> None:
    record(other, "o1", {"o": "1"})

    assert other.branches() == []
    with pytest.raises(UnknownMessage):
        other.switch("work-on-m2")
    with pytest.raises(UnknownName):
        other.drop_branch("work-on-m2")


def test_a_switch_stops_at_what_another_session_changed_too(
    forked: Shadow, other: Shadow, worktree: Path
) -> None:
    record(other, "o1", {"a": "theirs"})
    with pytest.raises(Conflict) as caught:
        forked.switch("work-on-m2")

    assert [(each.path, each.reason) for each in caught.value.conflicts] == [
        ("a", "message 'o1' of session 'other' changed it")
    ]
    assert_tree(worktree, {**AFTER["m4"], "a": "theirs"})
    forked.switch("work-on-m2", on_conflict="keep")
    assert_tree(worktree, {**AFTER["m3"], "a": "theirs"})


def test_two_sessions_have_branches_of_the_same_name(shadow: Shadow, other: Shadow, worktree: Path) -> None:
    shadow.wrap()
    for session, path in ((shadow, "a"), (other, "b")):
        record(session, "m1", {path: "1"}, text="fix")
        session.undo()
        record(session, "m2", {path: "2"})

    assert branches(shadow) == branches(other) == {"fix": ["m1"]}
    shadow.switch("fix")
    assert_tree(worktree, {"a": "1", "b": "2"})
    other.switch("fix")
    assert_tree(worktree, {"a": "1", "b": "1"})


# Without a store, or without any message


def test_before_anything_is_recorded_there_are_no_branches(shadow: Shadow) -> None:
    shadow.wrap()

    assert shadow.branches() == []
    with pytest.raises(UnknownMessage):
        shadow.switch("m1")


# One message alone


@pytest.fixture
def five(shadow: Shadow, worktree: Path) -> Shadow:
    """Five messages; each changed a different line of one text, and created a file."""
    make_tree(worktree, {"t": text_of()})
    shadow.wrap()
    for number in range(1, 6):
        record(shadow, f"m{number}", after_all_of(*range(1, number + 1)))
    return shadow


def after_all_of(*numbers: int) -> Tree:
    """Return the worktree with the changes of some of the five messages."""
    text = text_of(*((3 * number, f"by {number}") for number in numbers))
    return {"t": text, **{f"f{number}": str(number) for number in numbers}}


@pytest.mark.parametrize("number", range(1, 6))
def test_one_message_is_taken_out_and_the_later_ones_stay(five: Shadow, worktree: Path, number: int) -> None:
    outcome = five.revert(f"m{number}", only=True)

    rest = [each for each in range(1, 6) if each != number]
    assert_tree(worktree, after_all_of(*rest))
    assert (outcome.mode, outcome.messages, outcome.complete) == ("only", [f"m{number}"], True)
    assert (outcome.restored, outcome.deleted) == (["t"], [f"f{number}"])
    assert (outcome.head, outcome.undone) == (f"m{rest[-1]}", [])
    assert stand(five) == (f"m{rest[-1]}", [])
    assert states(five) == {f"m{each}": "undone" if each == number else "active" for each in range(1, 6)}
    assert five.branches() == []


@pytest.mark.parametrize("number", range(1, 6))
def test_unrevert_brings_a_message_back_that_was_taken_out(five: Shadow, worktree: Path, number: int) -> None:
    before = position(five)
    five.revert(f"m{number}", only=True)
    outcome = five.unrevert()

    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))
    assert outcome.messages == [f"m{number}"]
    assert position(five) == before


@pytest.mark.parametrize("number", range(1, 6))
def test_undo_and_redo_pass_by_a_message_that_was_taken_out(
    five: Shadow, worktree: Path, number: int
) -> None:
    five.revert(f"m{number}", only=True)
    rest = [each for each in range(1, 6) if each != number]
    for left in range(3, -1, -1):
        outcome = five.undo()
        assert outcome.messages == [f"m{rest[left]}"]
        assert_tree(worktree, after_all_of(*rest[:left]))
    assert five.undo().messages == []
    for done in range(1, 5):
        outcome = five.redo()
        assert outcome.messages == [f"m{rest[done - 1]}"]
        assert_tree(worktree, after_all_of(*rest[:done]))
    assert five.redo().messages == []


def test_several_messages_are_taken_out(five: Shadow, worktree: Path) -> None:
    for number, rest in ((2, [1, 3, 4, 5]), (4, [1, 3, 5]), (1, [3, 5]), (5, [3])):
        five.revert(f"m{number}", only=True)
        assert_tree(worktree, after_all_of(*rest))
    assert stand(five) == ("m3", [])
    for rest in ([3, 5], [1, 3, 5], [1, 3, 4, 5], [1, 2, 3, 4, 5]):
        five.unrevert()
        assert_tree(worktree, after_all_of(*rest))
    assert set(states(five).values()) == {"active"}


def test_a_message_that_goes_on_after_one_was_taken_out_keeps_it_out(five: Shadow, worktree: Path) -> None:
    five.revert("m2", only=True)
    record(five, "m6", {"f6": "6"})

    assert states(five)["m2"] == "undone"
    assert stand(five) == ("m6", [])
    assert five.undo(2).messages == ["m5", "m6"]
    assert_tree(worktree, after_all_of(1, 3, 4))
    assert five.redo(None).messages == ["m5", "m6"]
    assert_tree(worktree, {**after_all_of(1, 3, 4, 5), "f6": "6"})


def test_a_message_that_was_taken_out_is_brought_back_by_a_switch(five: Shadow, worktree: Path) -> None:
    five.revert("m2", only=True)
    outcome = five.switch("m5")

    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))
    assert (outcome.messages, outcome.head, outcome.undone) == (["m2"], "m5", [])
    assert set(states(five).values()) == {"active"}
    five.unrevert()
    assert_tree(worktree, after_all_of(1, 3, 4, 5))
    assert states(five)["m2"] == "undone"


@pytest.mark.parametrize("number", range(1, 6))
def test_a_switch_is_exact_whatever_was_taken_out(five: Shadow, worktree: Path, number: int) -> None:
    five.revert("m2", only=True)
    five.revert("m4", only=True)
    five.switch(f"m{number}")

    assert_tree(worktree, after_all_of(*range(1, number + 1)))


def test_a_switch_to_what_was_recorded_without_a_message_leaves_it_out(five: Shadow, worktree: Path) -> None:
    five.revert("m2", only=True)
    record(five, "m6", {"f6": "6"})
    five.switch("m5")
    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))
    outcome = five.switch("m6")

    assert_tree(worktree, {**after_all_of(1, 3, 4, 5), "f6": "6"})
    assert outcome.messages == ["m2", "m6"]
    assert states(five)["m2"] == "undone"


def test_revert_goes_back_over_a_message_that_was_taken_out(five: Shadow, worktree: Path) -> None:
    five.revert("m3", only=True)
    outcome = five.revert("m2")

    assert_tree(worktree, after_all_of(1))
    assert outcome.messages == ["m2", "m4", "m5"]
    assert (outcome.head, outcome.undone) == ("m1", ["m2", "m4", "m5"])
    five.redo(None)
    assert_tree(worktree, after_all_of(1, 2, 4, 5))


def test_what_was_taken_out_is_archived_with_its_line(five: Shadow, worktree: Path) -> None:
    five.revert("m4", only=True)
    five.undo(2)
    record(five, "m6", {"f6": "6"})

    assert branches(five) == {"work-on-m3": ["m3", "m4", "m5"]}
    assert states(five) | {"m6": ""} == {
        **dict.fromkeys(["m1", "m2"], "active"),
        **dict.fromkeys(["m3", "m4", "m5"], "archived"),
        "m6": "",
    }
    five.switch("m4")
    assert_tree(worktree, after_all_of(1, 2, 3, 4))


def test_a_message_that_is_not_in_force_is_not_taken_out_again(five: Shadow, worktree: Path) -> None:
    five.revert("m2", only=True)
    five.undo()
    tree = read_tree(worktree)
    for id in ("m2", "m5"):
        outcome = five.revert(id, only=True)
        assert (outcome.messages, outcome.mode, outcome.complete) == ([], "only", True)
        assert outcome.notes
    assert read_tree(worktree) == tree


def test_an_archived_message_is_not_taken_out(forked: Shadow) -> None:
    with pytest.raises(InvalidInput, match="archived"):
        forked.revert("m2", only=True)


def test_the_open_message_is_taken_out_like_any_other(five: Shadow, worktree: Path) -> None:
    five.begin("m6")
    make_tree(worktree, {"f6": "6"})
    outcome = five.revert("m6", only=True)

    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))
    assert (outcome.messages, outcome.head) == (["m6"], "m5")


def test_a_message_below_the_open_one_is_taken_out_and_the_open_one_ended(
    five: Shadow, worktree: Path
) -> None:
    five.begin("m6")
    make_tree(worktree, {"f6": "6"})
    outcome = five.revert("m2", only=True)

    assert_tree(worktree, {**after_all_of(1, 3, 4, 5), "f6": "6"})
    assert (outcome.messages, outcome.head) == (["m2"], "m6")
    assert states(five)["m6"] == "active"


@pytest.fixture
def colliding(shadow: Shadow, worktree: Path) -> Shadow:
    """The second message changed the line that the first one wrote."""
    make_tree(worktree, {"t": text_of()})
    shadow.wrap()
    record(shadow, "m1", {"t": text_of((5, "one"), (9, "one too")), "f": "1"})
    record(shadow, "m2", {"t": text_of((5, "one and two"), (9, "one too")), "g": "2"})
    return shadow


def test_where_a_later_message_went_on_nothing_is_touched_and_the_hunk_shown(
    colliding: Shadow, worktree: Path
) -> None:
    before, tree = position(colliding), read_tree(worktree)
    with pytest.raises(Conflict) as caught:
        colliding.revert("m1", only=True)

    (conflict,) = caught.value.conflicts
    assert conflict.path == "t"
    assert [hunk.to_dict() for hunk in conflict.hunks] == [
        {"line": 5, "ours": "one and two\n", "base": "one\n", "theirs": "line 5\n"}
    ]
    assert (position(colliding), read_tree(worktree)) == (before, tree)


def test_a_dry_run_shows_the_hunk_too(colliding: Shadow, worktree: Path) -> None:
    tree = read_tree(worktree)
    plan = colliding.plan_revert("m1", only=True)
    dry = colliding.revert("m1", only=True, dry_run=True)

    assert [conflict.path for conflict in plan.conflicts] == ["t"]
    assert plan.to_dict() == dry.to_dict()
    assert [len(conflict.hunks) for conflict in dry.conflicts] == [1]
    assert (dry.mode, dry.complete) == ("only", False)
    assert read_tree(worktree) == tree


@pytest.mark.parametrize(
    ("on_conflict", "text"),
    [("keep", text_of((5, "one and two"), (9, "one too"))), ("overwrite", text_of())],
)
def test_what_collides_is_kept_or_overwritten_when_asked_for(
    colliding: Shadow, worktree: Path, on_conflict: OnConflict, text: str
) -> None:
    outcome = colliding.revert("m1", only=True, on_conflict=on_conflict)

    assert_tree(worktree, {"t": text, "g": "2"})
    assert outcome.kept == (["t"] if on_conflict == "keep" else [])
    assert (outcome.mode, outcome.messages, outcome.complete) == ("only", ["m1"], True)


def test_what_collides_stands_between_markers_when_asked_for(colliding: Shadow, worktree: Path) -> None:
    outcome = colliding.revert("m1", only=True, markers=True)

    marked = "<<<<<<< current\none and two\n=======\nline 5\n>>>>>>> revert"
    assert_tree(worktree, {"t": text_of((5, marked)), "g": "2"})
    assert (outcome.merged, outcome.marked, outcome.complete) == (["t"], ["t"], False)
    assert states(colliding) == {"m1": "undone", "m2": "active"}
    colliding.unrevert()
    assert_tree(worktree, {"t": text_of((5, "one and two"), (9, "one too")), "f": "1", "g": "2"})


def test_what_a_message_deleted_comes_back_alone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "d": {"b": "0"}})
    shadow.wrap()
    with shadow.message("m1"):
        (worktree / "d" / "b").unlink()
        (worktree / "d").rmdir()
    record(shadow, "m2", {"a": "2"})
    outcome = shadow.revert("m1", only=True)

    assert_tree(worktree, {"a": "2", "d": {"b": "0"}})
    assert outcome.restored == ["d/b"]


def test_a_file_that_a_later_message_went_on_with_is_not_deleted(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"new": "1", "alone": "1"})
    record(shadow, "m2", {"new": "1 and 2"})
    with pytest.raises(Conflict) as caught:
        shadow.revert("m1", only=True)

    assert [(each.path, each.hunks) for each in caught.value.conflicts] == [("new", [])]
    assert_tree(worktree, {"new": "1 and 2", "alone": "1"})
    shadow.revert("m1", only=True, on_conflict="keep")
    assert_tree(worktree, {"new": "1 and 2"})


def test_a_switch_removes_what_undoing_a_later_message_brought_back_of_one_taken_out(
    shadow: Shadow, worktree: Path
) -> None:
    """The state after the target message counts, whatever was out of the line in between."""
    make_tree(worktree, {"a": "1"})
    with shadow.message("m1"):
        (worktree / "a").write_text("2")
    with shadow.message("m2"):
        (worktree / "x").write_text("x")
    with shadow.message("m3"):
        (worktree / "x").unlink()
    shadow.revert("m2", only=True)
    shadow.undo()

    shadow.switch("m1")

    assert_tree(worktree, {"a": "2"})


ON_CONFLICT: list[OnConflict] = ["abort", "merge", "keep", "overwrite"]


@pytest.mark.parametrize("on_conflict", ON_CONFLICT)
@pytest.mark.parametrize("is_brought_back", [False, True], ids=["gone", "brought back"])
def test_a_switch_keeps_an_edit_made_before_the_message_that_was_taken_out(
    shadow: Shadow, worktree: Path, is_brought_back: bool, on_conflict: OnConflict
) -> None:
    """The tree after m1 lacks the edit; the state before m2 has it."""
    record_text(shadow, worktree)
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})
    record(shadow, "m2", {"t": text_of((3, "one"), (9, "mine"), (15, "two"))})
    if is_brought_back:
        record(shadow, "m3", {"t": text_of((3, "one"), (9, "mine"))})
    shadow.revert("m2", only=True)
    if is_brought_back:
        shadow.undo()

    shadow.switch("m1", on_conflict=on_conflict)

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})


@pytest.mark.parametrize("on_conflict", ON_CONFLICT)
def test_a_switch_keeps_an_edit_made_before_a_revert_of_some_paths(
    shadow: Shadow, worktree: Path, on_conflict: OnConflict
) -> None:
    record_text(shadow, worktree)
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})
    shadow.revert("m1", paths=["t"], on_conflict="merge")
    assert_tree(worktree, {"t": text_of((9, "mine"))})

    shadow.switch("m1", on_conflict=on_conflict)

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})


def test_a_switch_to_another_branch_keeps_an_edit_made_before_a_revert_of_some_paths(
    shadow: Shadow, worktree: Path
) -> None:
    record_text(shadow, worktree)
    record(shadow, "m2", {"f2": "2"})
    shadow.undo()
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})
    shadow.revert("m1", paths=["t"], on_conflict="merge")

    shadow.switch("m2")

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine")), "f2": "2"})


def test_a_switch_merges_under_an_edit_what_leads_back_past_a_revert_of_some_paths(
    shadow: Shadow, worktree: Path
) -> None:
    record_text(shadow, worktree)
    shadow.revert("m1", paths=["t"])
    make_tree(worktree, {"t": text_of((9, "mine"))})
    with pytest.raises(Conflict):
        shadow.switch("m1")

    shadow.switch("m1", on_conflict="merge")

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})


def test_a_switch_merges_away_under_an_edit_what_was_brought_back_of_a_message_taken_out(
    shadow: Shadow, worktree: Path
) -> None:
    """The bits collide, so undoing m3 brings back all that m2 did."""
    record_text(shadow, worktree)
    record(shadow, "m2", {"t": file(text_of((3, "one"), (15, "two")), 0o755)})
    record(shadow, "m3", {"t": file(text_of((3, "one")), 0o600)})
    shadow.revert("m2", only=True, on_conflict="keep")
    shadow.undo()
    make_tree(worktree, {"t": file(text_of((3, "one"), (9, "mine"), (15, "two")), 0o755)})
    with pytest.raises(Conflict):
        shadow.switch("m1")

    shadow.switch("m1", on_conflict="merge")

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})


def test_a_switch_does_not_merge_in_again_what_was_taken_out(shadow: Shadow, worktree: Path) -> None:
    """An edit between m2 and m3 makes the switch a merge; m2 is out of the line before and after it."""
    record_text(shadow, worktree)
    record(shadow, "m2", {"t": text_of((3, "one"), (15, "two"))})
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"), (15, "two"))})
    record(shadow, "m3", {"t": text_of((3, "one"), (9, "mine"), (15, "two"), (19, "three"))})
    shadow.revert("m2", only=True, on_conflict="merge")
    with pytest.raises(Conflict):
        shadow.switch("m1")

    shadow.switch("m1", on_conflict="merge")

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})


@pytest.mark.parametrize("on_conflict", ON_CONFLICT)
def test_a_switch_leaves_alone_what_the_session_did_and_took_back(
    shadow: Shadow, worktree: Path, on_conflict: OnConflict
) -> None:
    """Edits before, between and after two messages that were taken out; one was archived long ago."""
    record_text(shadow, worktree)
    record(shadow, "m2", {"t": text_of((3, "one"), (15, "two"))})
    shadow.undo()
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})
    record(shadow, "m3", {"t": text_of((3, "one"), (9, "mine"), (15, "three"))})
    shadow.revert("m3", only=True)
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine too"))})

    shadow.switch("m1", on_conflict=on_conflict)

    assert_tree(worktree, {"t": text_of((3, "one"), (9, "mine too"))})


def test_one_message_is_taken_out_from_under_edits_of_the_user(five: Shadow, worktree: Path) -> None:
    tree = after_all_of(1, 2, 3, 4, 5)
    make_tree(worktree, {"t": str(tree["t"]) + "mine\n"})
    with pytest.raises(Conflict):
        five.revert("m2", only=True)
    outcome = five.revert("m2", only=True, on_conflict="merge")

    rest = after_all_of(1, 3, 4, 5)
    assert_tree(worktree, {**rest, "t": str(rest["t"]) + "mine\n"})
    assert outcome.merged == ["t"]


def test_some_paths_of_one_message_are_taken_out_and_the_head_stays(five: Shadow, worktree: Path) -> None:
    outcome = five.revert("m2", only=True, paths=["t"])

    assert_tree(worktree, {**after_all_of(1, 3, 4, 5), "f2": "2"})
    assert (outcome.mode, outcome.messages) == ("only", [])
    assert set(states(five).values()) == {"active"}
    assert (outcome.head, outcome.undone) == stand(five) == ("m5", [])
    five.unrevert()
    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))


def test_a_path_that_the_message_did_not_change_is_told(five: Shadow, worktree: Path) -> None:
    outcome = five.revert("m2", only=True, paths=["f3"])

    assert_tree(worktree, after_all_of(1, 2, 3, 4, 5))
    assert outcome.notes == ["no message changed f3"]


def test_one_step_of_a_message_is_taken_out(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"t": text_of()})
    shadow.wrap()
    with shadow.message("m1"):
        with shadow.step("one"):
            make_tree(worktree, {"t": text_of((3, "one")), "f1": "1"})
        with shadow.step("two"):
            make_tree(worktree, {"t": text_of((3, "one"), (9, "two")), "f2": "2"})
    record(shadow, "m2", {"t": text_of((3, "one"), (9, "two"), (15, "more"))})
    outcome = shadow.revert("m1", only=True, step="one")

    assert_tree(worktree, {"t": text_of((9, "two"), (15, "more")), "f2": "2"})
    assert (outcome.mode, outcome.messages, outcome.head) == ("only", [], "m2")
    assert set(states(shadow).values()) == {"active"}
    shadow.unrevert()
    assert_tree(worktree, {"t": text_of((3, "one"), (9, "two"), (15, "more")), "f1": "1", "f2": "2"})
    shadow.revert("m1", only=True, step="two", paths=["t"])
    assert_tree(worktree, {"t": text_of((3, "one"), (15, "more")), "f1": "1", "f2": "2"})


def test_a_step_that_there_is_not_is_refused(five: Shadow) -> None:
    with pytest.raises(UnknownMessage, match="step"):
        five.revert("m2", only=True, step="nobody")


def test_an_outside_edit_made_before_stays_when_a_message_is_taken_out(
    shadow: Shadow, worktree: Path
) -> None:
    """Somebody edited the text between two messages."""
    record_text(shadow, worktree)
    make_tree(worktree, {"t": text_of((3, "one"), (9, "mine"))})
    record(shadow, "m2", {"t": text_of((3, "one"), (9, "mine"), (15, "two"))})
    with pytest.raises(Conflict):
        shadow.revert("m1", only=True)
    shadow.revert("m1", only=True, on_conflict="merge")

    assert_tree(worktree, {"t": text_of((9, "mine"), (15, "two"))})


# Bits and links


def test_bits_and_content_are_taken_out_each_for_itself(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"run": text_of()})
    shadow.wrap()
    record(shadow, "m1", {"run": executable(text_of((3, "one")))})
    record(shadow, "m2", {"run": executable(text_of((3, "one"), (9, "two")))})
    shadow.revert("m1", only=True)

    assert_tree(worktree, {"run": text_of((9, "two"))})
    shadow.redo()
    shadow.unrevert()
    assert_tree(worktree, {"run": executable(text_of((3, "one"), (9, "two")))})


def test_later_bits_stay_on_what_is_taken_out(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"run": text_of()})
    shadow.wrap()
    record(shadow, "m1", {"run": text_of((3, "one"))})
    record(shadow, "m2", {"run": file(text_of((3, "one")), 0o700)})
    shadow.revert("m1", only=True)

    assert_tree(worktree, {"run": file(text_of(), 0o700)})


def test_bits_that_both_changed_collide(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"run": "x"})
    shadow.wrap()
    record(shadow, "m1", {"run": file("x", 0o755)})
    record(shadow, "m2", {"run": file("x", 0o700)})
    with pytest.raises(Conflict) as caught:
        shadow.revert("m1", only=True)

    assert [(each.path, each.reason) for each in caught.value.conflicts] == [
        ("run", "both sides changed its permissions")
    ]
    assert_tree(worktree, {"run": file("x", 0o700)})


def test_a_link_that_a_later_message_changed_collides(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"ln": link("a"), "other": link("a")})
    shadow.wrap()
    with shadow.message("m1"):
        for name in ("ln", "other"):
            (worktree / name).unlink()
            (worktree / name).symlink_to("b")
    with shadow.message("m2"):
        (worktree / "ln").unlink()
        (worktree / "ln").symlink_to("c")
    with pytest.raises(Conflict) as caught:
        shadow.revert("m1", only=True)

    assert [(each.path, each.hunks) for each in caught.value.conflicts] == [("ln", [])]
    shadow.revert("m1", only=True, on_conflict="keep")
    assert_tree(worktree, {"ln": link("c"), "other": link("a")})


def test_line_ends_and_the_final_newline_stay_as_they_are(shadow: Shadow, worktree: Path) -> None:
    def crlf(*changed: tuple[int, str]) -> bytes:
        return text_of(*changed).encode().replace(b"\n", b"\r\n").removesuffix(b"\r\n")

    make_tree(worktree, {"t": crlf()})
    shadow.wrap()
    record(shadow, "m1", {"t": crlf((3, "one"))})
    record(shadow, "m2", {"t": crlf((3, "one"), (9, "two"))})
    shadow.revert("m1", only=True)

    assert_tree(worktree, {"t": crlf((9, "two"))})


# Merging in the other acts


@pytest.fixture
def under_edit(shadow: Shadow, worktree: Path) -> Shadow:
    """Two messages, and a later edit of the user."""
    record_text(shadow, worktree)
    record(shadow, "m2", {"t": text_of((3, "one"), (9, "two"))})
    make_tree(worktree, {"t": text_of((3, "one"), (9, "two"), (15, "mine"))})
    return shadow


def test_undo_and_redo_merge_under_an_edit(under_edit: Shadow, worktree: Path) -> None:
    outcome = under_edit.undo(on_conflict="merge")
    assert (outcome.merged, outcome.restored, outcome.marked) == (["t"], ["t"], [])
    assert_tree(worktree, {"t": text_of((3, "one"), (15, "mine"))})
    with pytest.raises(Conflict):
        under_edit.undo()
    under_edit.undo(on_conflict="merge")
    assert_tree(worktree, {"t": text_of((15, "mine"))})
    with pytest.raises(Conflict):
        under_edit.redo(None)
    under_edit.redo(None, on_conflict="merge")
    assert_tree(worktree, {"t": text_of((3, "one"), (9, "two"), (15, "mine"))})


def test_revert_merges_under_an_edit_and_unrevert_brings_all_back(under_edit: Shadow, worktree: Path) -> None:
    outcome = under_edit.revert("m1", on_conflict="merge")

    assert_tree(worktree, {"t": text_of((15, "mine"))})
    assert (outcome.mode, outcome.messages, outcome.merged) == ("back", ["m1", "m2"], ["t"])
    under_edit.unrevert()
    assert_tree(worktree, {"t": text_of((3, "one"), (9, "two"), (15, "mine"))})


def test_a_merge_that_comes_to_what_is_there_changes_nothing(shadow: Shadow, worktree: Path) -> None:
    """The user already made the message's change by hand, and another one."""
    record_text(shadow, worktree)
    make_tree(worktree, {"t": text_of((15, "mine"))})
    outcome = shadow.undo(on_conflict="merge")

    assert_tree(worktree, {"t": text_of((15, "mine"))})
    assert (outcome.restored, outcome.merged, outcome.complete) == ([], [], True)
    assert stand(shadow) == (None, ["m1"])


def test_restore_has_nothing_to_merge(under_edit: Shadow, worktree: Path) -> None:
    """The present file is what the restore expects, and it is in the store."""
    under_edit.restore("m1", on_conflict="merge")

    assert_tree(worktree, {"t": text_of((3, "one"))})


# Moving only the head


def test_without_files_only_the_head_moves(forked: Shadow, worktree: Path) -> None:
    tree = forked.track()
    outcome = forked.revert("m4", files=False)

    assert_tree(worktree, AFTER["m4"])
    assert (outcome.messages, outcome.restored, outcome.deleted) == (["m4"], [], [])
    assert (outcome.head, outcome.undone, outcome.before, outcome.after) == ("m1", ["m4"], tree, tree)
    assert any("2 files now differ" in note for note in outcome.notes)
    assert stand(forked) == ("m1", ["m4"])


def test_what_was_moved_without_files_is_taken_back_without_files(forked: Shadow, worktree: Path) -> None:
    forked.revert("m4", files=False)
    outcome = forked.unrevert()

    assert_tree(worktree, AFTER["m4"])
    assert (outcome.messages, outcome.restored, outcome.deleted) == (["m4"], [], [])
    assert stand(forked) == ("m4", [])


def test_after_a_revert_without_files_a_redo_finds_them_as_they_are(forked: Shadow, worktree: Path) -> None:
    forked.revert("m1", files=False)
    outcome = forked.redo(None)

    assert_tree(worktree, AFTER["m4"])
    assert (outcome.messages, outcome.restored) == (["m1", "m4"], [])
    assert stand(forked) == ("m4", [])


def test_without_files_a_conflict_is_none(forked: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "mine"})
    outcome = forked.revert("m4", files=False)

    assert outcome.conflicts == []
    assert_tree(worktree, {**AFTER["m4"], "a": "mine"})


def test_without_files_there_is_nothing_to_choose_among_them(forked: Shadow) -> None:
    for more in ({"only": True}, {"paths": ["a"]}, {"step": "s"}):
        with pytest.raises(InvalidInput, match="files"):
            forked.revert("m4", files=False, **more)


def test_a_dry_run_without_files_moves_nothing(forked: Shadow) -> None:
    before = position(forked)
    outcome = forked.revert("m4", files=False, dry_run=True)

    assert (outcome.head, outcome.undone, outcome.dry_run) == ("m1", ["m4"], True)
    assert position(forked) == before


def test_a_new_message_after_a_revert_without_files_archives(forked: Shadow, worktree: Path) -> None:
    forked.revert("m4", files=False)
    record(forked, "m5", {"e": "5"})

    assert branches(forked) == {"work-on-m2": ["m2", "m3"], "work-on-m4": ["m4"]}
    assert_tree(worktree, {**AFTER["m4"], "e": "5"})


# Common parts of every outcome


def test_every_outcome_lists_what_is_beyond_the_head(forked: Shadow) -> None:
    record(forked, "m5", {"e": "5"})

    def told(outcome: Outcome) -> tuple[str | None, list[str]]:
        assert (outcome.head, outcome.undone) == stand(forked)
        return outcome.head, outcome.undone

    assert told(forked.undo()) == ("m4", ["m5"])
    assert told(forked.revert("m1")) == (None, ["m1", "m4", "m5"])
    assert told(forked.redo(2)) == ("m4", ["m5"])
    assert told(forked.restore("m1")) == ("m4", ["m5"])
    assert told(forked.unrevert()) == ("m4", ["m5"])
    assert told(forked.revert("m4", paths=["a"])) == ("m4", ["m5"])
    assert told(forked.revert("m1", only=True, on_conflict="overwrite")) == ("m4", ["m5"])
    assert told(forked.switch("m2")) == ("m2", ["m3"])
    assert told(forked.redo(None)) == ("m3", [])
    assert told(forked.redo(None)) == ("m3", [])


def test_overwriting_an_edit_keeps_the_later_messages_when_one_is_taken_out(
    five: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"t": str(after_all_of(1, 2, 3, 4, 5)["t"]) + "mine\n"})

    five.revert("m2", only=True, on_conflict="overwrite")

    assert_tree(worktree, after_all_of(1, 3, 4, 5))


def test_what_an_act_of_another_session_did_meanwhile_is_not_brought_back(
    shadow: Shadow, worktree: Path
) -> None:
    """The recorded changes of the message include it."""
    lines = [f"line {number}\n" for number in range(12)]
    make_tree(worktree, {"t": "".join(lines)})
    with Shadow(worktree, settings=SETTINGS, session="other") as other:
        with other.message("o1"):
            make_tree(worktree, {"t": "".join([*lines[:2], "theirs\n", *lines[3:]])})
        shadow.begin("m1")
        make_tree(worktree, {"t": "".join([*lines[:2], "theirs\n", *lines[3:-1], "mine\n"])})
        other.undo(on_conflict="merge")
        shadow.end("m1")

        with pytest.raises(Conflict) as refused:
            shadow.undo()

        assert [each.path for each in refused.value.conflicts] == ["t"]
        with pytest.raises(Conflict):
            shadow.undo(on_conflict="merge")
        assert_tree(worktree, {"t": "".join([*lines[:-1], "mine\n"])})


def test_a_branch_that_a_failed_begin_would_drop_is_dropped_and_named_by_the_next(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shadow(worktree, settings={"min_free": 0, "max_branches": 1}) as shadow:
        for number in (1, 2):
            record(shadow, f"m{number}", {"a": f"{number}"}, text=f"try {number}")
            shadow.undo()
        with monkeypatch.context() as patch:
            patch.setattr("shadowtree.capture.capture.read_files", _fail)
            make_tree(worktree, {"new": "1"})
            with pytest.raises(ShadowError):
                shadow.begin("m3")

        warnings = shadow.begin("m3").warnings

        assert [branch.name for branch in shadow.branches()] == ["try-2"]
        assert len(warnings) == 1
        assert "'try-1'" in warnings[0]


def _fail(*_: object) -> None:
    raise WorktreeFailed("new", "it cannot be read")


def test_a_line_that_somebody_wrote_after_a_message_stays_when_that_message_is_switched_to(
    shadow: Shadow, worktree: Path
) -> None:
    """The tree after m2 is older than the edit, so it must not be used, although m1 is out of the line."""
    lines = [f"line {number}\n" for number in range(20)]
    make_tree(worktree, {"t": "".join(lines)})
    record(shadow, "m1", {"t": "".join([*lines, "m1\n"])})
    shadow.revert("m1", only=True)
    record(shadow, "m2", {"t": "".join([*lines[:5], "m2\n", *lines[5:]])})
    edited = "".join(["mine\n", *lines[:5], "m2\n", *lines[5:]])
    make_tree(worktree, {"t": edited})
    record(shadow, "m3", {"t": edited + "m3\n"})

    shadow.switch("m2")

    assert_tree(worktree, {"t": edited})


@pytest.mark.parametrize("act", ["restore", "revert"])
def test_what_an_act_of_ours_changed_is_changed_again_by_a_switch(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    """Both branches contain it, so the way between them does not touch it."""
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": "2", "b": "2"})
    shadow.undo()
    record(shadow, "m3", {"a": "2", "c": "3"})
    shadow.switch("m2")
    if act == "restore":
        shadow.restore("m1")
    else:
        shadow.revert("m2", paths=["a"])

    outcome = shadow.switch("m3")

    assert_tree(worktree, {"a": "2", "c": "3"})
    assert outcome.complete


def test_what_came_back_when_a_message_was_taken_out_goes_with_the_line(
    shadow: Shadow, worktree: Path
) -> None:
    record(shadow, "b", {"b": "1"})
    shadow.undo()
    record(shadow, "m1", {"x": "1"})
    with shadow.message("m2"):
        (worktree / "x").unlink()
    shadow.revert("m2", only=True)

    outcome = shadow.switch("b")

    assert_tree(worktree, {"b": "1"})
    assert outcome.complete


@pytest.mark.parametrize("by_hand", ["0", "9", None], ids=["back", "edited", "gone"])
def test_taking_back_that_only_the_head_moved_touches_no_file(
    shadow: Shadow, worktree: Path, by_hand: str | None
) -> None:
    make_tree(worktree, {"p": "0"})
    shadow.wrap()
    record(shadow, "m1", {"p": "1", "n": "1"})
    (worktree / "n").unlink()
    if by_hand is None:
        (worktree / "p").unlink()
    else:
        make_tree(worktree, {"p": by_hand})
    before = read_tree(worktree)

    shadow.revert("m1", files=False)
    outcome = shadow.unrevert()

    assert read_tree(worktree) == before
    assert (outcome.restored, outcome.deleted, outcome.head) == ([], [], "m1")


def test_messages_that_ran_side_by_side_are_not_merged_out_of_each_other(
    shadow: Shadow, worktree: Path
) -> None:
    """Nothing shows which line belongs to which message."""
    lines = [f"line {number}\n" for number in range(10)]
    make_tree(worktree, {"p": "".join(lines)})
    with Shadow(worktree, settings=SETTINGS, session="other") as other:
        shadow.begin("m1")
        record(other, "o1", {"p": "".join(["theirs\n", *lines[1:]]), "new": "theirs"})
        make_tree(worktree, {"q": "mine"})
        shadow.end("m1")
        before = read_tree(worktree)

        for on_conflict in ("abort", "merge"):
            with pytest.raises(Conflict) as refused:
                shadow.undo(on_conflict=on_conflict)
            assert [each.path for each in refused.value.conflicts] == ["new", "p"]
            assert all("'merge'" not in each.advice for each in refused.value.conflicts)
            assert read_tree(worktree) == before


@pytest.mark.parametrize("part", ["restore", "path"])
def test_a_switch_is_exact_after_acts_that_left_the_head_where_it_was(
    shadow: Shadow, worktree: Path, part: str
) -> None:
    make_tree(worktree, {"p": "0"})
    record(shadow, "m1", {"p": "1"})
    record(shadow, "m2", {"q": "2"})
    if part == "restore":
        shadow.restore("m1^")
    else:
        shadow.revert("m1", paths=["p"])
    record(shadow, "m3", {"z": "3"})
    after = {message.id: message.after for message in shadow.messages()}

    for name in ("m1", "m3", "m2", "m3", "m2", "m1"):
        assert shadow.switch(name).after == after[name], name

    shadow.restore("m3")
    assert shadow.switch("m1").after == after["m1"]
    assert shadow.switch("m1").notes == ["already at 'm1'"]


def test_what_cancels_out_is_no_conflict_when_another_message_is_out_of_the_line(
    shadow: Shadow, worktree: Path
) -> None:
    lines = [f"line {number}\n" for number in range(10)]
    first = "".join(["m1\n", *lines[1:]])
    make_tree(worktree, {"p": "".join(lines)})
    record(shadow, "m1", {"p": first})
    record(shadow, "m2", {"p": first + "m2\n"})
    record(shadow, "m3", {"p": first})
    shadow.revert("m1", only=True)

    outcome = shadow.undo(2)

    assert outcome.complete
    assert_tree(worktree, {"p": "".join(lines)})


def test_a_message_that_is_called_like_a_branch_is_warned_of(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", {"a": "1"}, text="fix")
    shadow.undo()
    record(shadow, "m2", {"a": "2"})

    (warning,) = shadow.begin("fix").warnings

    assert "'fix'" in warning


def test_a_line_that_somebody_wrote_before_a_message_that_is_out_stays(
    shadow: Shadow, worktree: Path
) -> None:
    record(shadow, "m1", {"a": "1\n"})
    shadow.undo()
    make_tree(worktree, {"a": "mine\n"})
    record(shadow, "m2", {"a": "mine\n2\n"})
    shadow.revert("m2", only=True)

    with pytest.raises(Conflict):
        shadow.switch("m1")

    assert_tree(worktree, {"a": "mine\n"})


def test_a_directory_that_a_later_message_made_again_stays(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", {"f": {"a": "1"}})
    shadow.revert("m1", only=True)
    record(shadow, "m2", {"f": {"a": "2"}})
    with shadow.message("m3"):
        (worktree / "f" / "a").unlink()
    record(shadow, "m4", {"f": {"b": "4"}})

    shadow.undo()

    assert_tree(worktree, {"f": {}})
    shadow.switch("m2")
    assert_tree(worktree, {"f": {"a": "2"}})
    shadow.switch("m3")
    assert_tree(worktree, {"f": {}})


def test_what_is_out_of_the_line_does_not_come_back_on_the_way_back(shadow: Shadow, worktree: Path) -> None:
    """m3 was recorded while m1 was in the line, so the state before m3 contains the change of m1."""
    record(shadow, "m1", {"f": {"a": "1"}})
    record(shadow, "m2", {"b": "2"})
    with shadow.message("m3"):
        (worktree / "f" / "a").unlink()
        (worktree / "f").rmdir()
    shadow.switch("m2")
    shadow.revert("m1", only=True)
    shadow.redo()
    record(shadow, "m4", {"d": "4"})
    shadow.undo(2)
    record(shadow, "m5", {"e": "5"})
    after = {message.id: message.after for message in shadow.messages()}

    assert shadow.switch("m4").after == after["m4"]
    assert shadow.switch("m5").after == after["m5"]


def test_a_message_that_is_dropped_leaves_the_branches_as_they_were(worktree: Path, tmp_path: Path) -> None:
    with Shadow(worktree, store=tmp_path / "s", settings={**SETTINGS, "max_branches": 1}) as shadow:
        make_tree(worktree, {"a": "0"})
        for number in (1, 2):
            with shadow.message(f"m{number}", text=f"try {number}"):
                make_tree(worktree, {"a": f"{number}"})
            shadow.undo()
        before = shadow.branches(), shadow.status().undone
        shadow.begin("r")

        assert shadow.end_or_drop("r") is None
        assert (shadow.branches(), shadow.status().undone) == before
