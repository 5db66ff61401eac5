"""Forgetting, through `Shadow`: what is forgotten, what stays unchanged, and what is reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from shadowtree import DuplicateMessage, Forgotten, InvalidInput, Shadow, UnknownMessage, UnknownName
from shadowtree.base.errors import ForgottenMessage, ForgottenTree
from tests.support.referee import git
from tests.support.trees import Tree, assert_tree, file, make_tree

MINUTE_MS = 60_000


def record(shadow: Shadow, *ids: str, role: str | None = None) -> None:
    """Record messages, each of which writes a file of its own name and one that all share."""
    for id in ids:
        with shadow.message(id, text=f"work on {id}", role=role):
            make_tree(shadow.worktree, {f"{id}.txt": id, "common.txt": f"{id} was here\n"})


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def forget(shadow: Shadow, keep_last: int) -> list[str]:
    """Forget messages, and free what only they needed."""
    found = shadow.forget(keep_last=keep_last)
    return [id for _, id in found.messages]


def text_in(shadow: Shadow) -> bytes:
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        return b"".join(row[0] for row in connection.execute("SELECT text FROM messages"))


# What is forgotten


def test_what_is_kept_is_asked_for_by_number(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3", "m4")

    assert forget(shadow, 2) == ["m1", "m2"]

    assert ids(shadow) == ["m3", "m4"]
    assert b"m1" not in text_in(shadow)
    assert forget(shadow, 2) == []


def test_what_only_forgotten_messages_needed_is_gone(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")
    (first, *_) = shadow.messages()
    blob = next(changed.new_blob for changed in first.patch.files if changed.path == "common.txt")
    assert blob is not None
    git("--git-dir", shadow.store, "cat-file", "-e", blob)

    found = shadow.forget(keep_last=1)

    assert found.removed > 0
    with pytest.raises(AssertionError):
        git("--git-dir", shadow.store, "cat-file", "-e", blob)


def test_without_gc_nothing_is_removed_yet(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")

    assert shadow.forget(keep_last=1, gc=False).removed == 0
    assert ids(shadow) == ["m3"]
    assert shadow.forget().removed > 0


def test_a_dry_run_tells_and_forgets_nothing(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")

    found = shadow.forget(keep_last=1, dry_run=True)

    assert found.to_dict() == {
        "forgotten": [{"id": "m1", "session": "default"}, {"id": "m2", "session": "default"}],
        "trees": found.trees,
        "removed": 0,
        "freed": 0,
        "dry_run": True,
    }
    assert found.trees > 0
    assert ids(shadow) == ["m1", "m2", "m3"]


def test_by_the_settings_the_newest_turns_stay(worktree: Path) -> None:
    settings = {"min_free": 0, "keep_last": 1, "keep_within": 0, "keep_turns": 3}
    with Shadow(worktree, settings=settings) as shadow:
        record(shadow, "m1", "m2")
        record(shadow.for_session("other"), "o1", "o2")

        shadow.forget(all_sessions=True)

        assert ids(shadow) == ["m2"]
        assert ids(shadow.for_session("other")) == ["o1", "o2"]


def test_nothing_goes_by_the_settings_that_is_young(shadow: Shadow) -> None:
    record(shadow, "m1", "m2")

    assert shadow.forget().messages == []
    assert shadow.forget(keep_within="1h").messages == []
    assert shadow.forget(keep_within=3600.0, keep_last=1).messages == []


def test_a_session_can_be_kept_whole(shadow: Shadow) -> None:
    other = shadow.for_session("other")
    record(shadow, "m1", "m2")
    record(other, "o1", "o2")

    shadow.forget(keep_last=1, all_sessions=True, keep_sessions=["other"])

    assert (ids(shadow), ids(other)) == (["m2"], ["o1", "o2"])


def test_a_session_that_nobody_knows_cannot_be_kept(shadow: Shadow) -> None:
    record(shadow, "m1", "m2")

    with pytest.raises(UnknownName, match="no session named 'none'"):
        shadow.forget(keep_last=1, all_sessions=True, keep_sessions=["none"])
    with pytest.raises(InvalidInput):
        shadow.forget(keep_last=0)
    with pytest.raises(InvalidInput):
        shadow.forget(keep_within="soon")
    assert ids(shadow) == ["m1", "m2"]


def test_pinned_and_open_messages_stay(shadow: Shadow) -> None:
    record(shadow, "m1", "m2")
    shadow.pin("m1")
    shadow.for_session("other").begin("open")
    record(shadow, "m3", "m4")

    forget(shadow, 1)

    assert ids(shadow) == ["m1", "m4"]
    assert [message.is_pinned for message in shadow.messages()] == [True, False]
    assert ids(shadow.for_session("other")) == ["open"]
    shadow.unpin("m1")
    assert forget(shadow, 1) == ["m1"]


def test_trees_of_a_bare_track_go_by_the_same_rule(shadow: Shadow, worktree: Path) -> None:
    trees = []
    for content in "123456":
        make_tree(worktree, {"a": content})
        trees.append(shadow.track())

    assert shadow.forget(all_sessions=True, keep_last=2).trees == 4

    for gone in trees[:4]:
        with pytest.raises(ForgottenTree, match=gone):
            shadow.patch(gone)
    assert [changed.path for changed in shadow.patch(trees[4]).files] == ["a"]


# Reports about forgotten messages

ASK: dict[str, Callable[[Shadow], object]] = {
    "show": lambda shadow: shadow.show("m1"),
    "show by number": lambda shadow: shadow.show("#1"),
    "show by place": lambda shadow: shadow.show("@~3"),
    "revert": lambda shadow: shadow.revert("m1"),
    "revert only": lambda shadow: shadow.revert("m1", only=True),
    "plan of a revert": lambda shadow: shadow.plan_revert("m1"),
    "revert of a path": lambda shadow: shadow.revert("m1", paths=["m1.txt"]),
    "revert of a step": lambda shadow: shadow.revert("m1", step="s"),
    "switch": lambda shadow: shadow.switch("m1"),
    "restore": lambda shadow: shadow.restore("m1"),
    "restore before": lambda shadow: shadow.restore("m1^"),
    "diff": lambda shadow: shadow.diff("m1"),
    "diff before": lambda shadow: shadow.diff("m1^", "m4"),
    "diff to": lambda shadow: shadow.diff("m4", "m1"),
    "end": lambda shadow: shadow.end("m1"),
    "pin": lambda shadow: shadow.pin("m1"),
    "unpin": lambda shadow: shadow.unpin("m1"),
}


@pytest.mark.parametrize("ask", ASK)
def test_a_forgotten_message_says_so_when_it_is_asked_for(shadow: Shadow, worktree: Path, ask: str) -> None:
    record(shadow, "m1", "m2", "m3", "m4")
    forget(shadow, 2)
    tree = {name: (worktree / name).read_text() for name in ("common.txt", "m1.txt")}

    with pytest.raises(ForgottenMessage, match="message 'm1' was forgotten on 20") as raised:
        ASK[ask](shadow)

    assert isinstance(raised.value, UnknownMessage)
    assert raised.value.name == "m1"
    assert {name: (worktree / name).read_text() for name in tree} == tree


def test_a_forgotten_tree_says_so_when_it_is_asked_for(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")
    tree = shadow.messages()[0].after
    assert tree is not None
    forget(shadow, 1)

    for ask in (shadow.patch, shadow.diff, shadow.restore):
        with pytest.raises(ForgottenTree, match=f"tree '{tree}' was forgotten on 20"):
            ask(tree)


def test_the_beginning_of_an_id_means_one_that_is_left(shadow: Shadow) -> None:
    record(shadow, "fix-a", "fix-b", "go")
    forget(shadow, 2)

    assert shadow.show("fix-")[0].id == "fix-b"
    forget(shadow, 1)
    with pytest.raises(UnknownMessage):
        shadow.show("fix-")
    with pytest.raises(ForgottenMessage):
        shadow.show("fix-a")


def test_the_id_of_a_forgotten_message_stays_used(shadow: Shadow) -> None:
    record(shadow, "m1", "m2")
    forget(shadow, 1)

    for begin in (shadow.begin, shadow.snapshot):
        with pytest.raises(DuplicateMessage):
            begin("m1")


# What stays exactly the same


def test_what_is_left_is_reverted_exactly(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", "m2", "m3", "m4")
    forget(shadow, 2)

    shadow.revert("m3")

    assert_tree(worktree, {"m1.txt": "m1", "m2.txt": "m2", "common.txt": "m2 was here\n"})
    shadow.unrevert()
    assert (worktree / "m4.txt").read_text() == "m4"


def test_an_undo_ends_before_a_forgotten_message_and_says_so(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", "m2", "m3", "m4")
    forget(shadow, 2)

    outcome = shadow.undo(3)

    assert (outcome.messages, outcome.turns, outcome.complete) == (["m3", "m4"], 2, False)
    assert "undo stops at message 'm2', which was forgotten" in outcome.notes
    assert (worktree / "common.txt").read_text() == "m2 was here\n"
    again = shadow.undo()
    assert (again.messages, again.turns) == ([], 0)
    assert "undo stops at message 'm2', which was forgotten" in again.notes
    assert shadow.redo(None).messages == ["m3", "m4"]


def test_a_turn_whose_beginning_is_forgotten_is_undone_as_far_as_it_is_known(shadow: Shadow) -> None:
    record(shadow, "u1", role="user")
    record(shadow, "a1", "a2", role="assistant")
    record(shadow, "u2", role="user")
    forget(shadow, 2)

    outcome = shadow.undo(2)

    assert (outcome.messages, outcome.turns, outcome.complete) == (["a2", "u2"], 2, False)
    assert "undo stops at message 'a1', which was forgotten" in outcome.notes


def test_acts_before_a_forgotten_message_cannot_be_taken_back(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", "m2")
    shadow.undo()
    shadow.redo()
    record(shadow, "m3", "m4")
    forget(shadow, 1)
    shadow.undo()

    assert shadow.unrevert().restored == ["common.txt", "m4.txt"]
    outcome = shadow.unrevert()
    assert outcome.notes == ["nothing to unrevert"]
    assert (worktree / "m4.txt").exists()


def test_a_session_goes_on_when_all_of_it_is_forgotten_but_one(shadow: Shadow, worktree: Path) -> None:
    other = shadow.for_session("other")
    record(other, "o1")
    record(shadow, "m1", "m2")
    shadow.forget(all_sessions=True, keep_within=0)

    assert ids(other) == []
    assert ids(shadow) == ["m2"]
    status = other.status()
    assert (status.changed, status.undone) == (0, [])
    assert other.diff() == []
    assert other.undo().messages == []
    assert other.redo().messages == []
    make_tree(worktree, {"new": "1"})
    message = other.snapshot("o2")
    assert message.patch.files == []
    assert message.warnings == ["the state before this message was forgotten, so it records no changes"]
    record(other, "o3")
    assert other.revert("o3").complete


def test_what_is_undone_and_forgotten_is_not_said_to_be_brought_back(shadow: Shadow) -> None:
    other = shadow.for_session("other")
    record(other, "o1")
    other.undo()
    record(shadow, "m1")
    shadow.forget(all_sessions=True, keep_within=0)

    assert other.status().undone == []
    assert other.redo().messages == []


def test_an_outcome_names_what_is_undone_as_the_status_does(shadow: Shadow) -> None:
    """m2 and m3 are forgotten; they are between the head and newer messages."""
    record(shadow, "m0", "m1", "m2", "m3", "m4", "m5")
    shadow.undo(4)
    forget(shadow, 2)

    for outcome in (shadow.redo(), shadow.redo(None), shadow.undo(9)):
        assert not {"m2", "m3"} & {*outcome.undone}
    status = shadow.status()
    assert (outcome.head, outcome.undone) == (status.head, status.undone)
    assert status.undone == ["m1", "m4", "m5"]


def test_the_turns_that_an_undo_would_go_over_stay_when_others_are_newer(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")
    shadow.undo(2)

    forget(shadow, 1)

    assert ids(shadow) == ["m1", "m3"]
    assert shadow.undo().messages == ["m1"]


def test_what_was_taken_out_stays_out_when_those_above_it_are_undone(shadow: Shadow, worktree: Path) -> None:
    lines = [f"{number}\n" for number in range(20)]
    make_tree(worktree, {"a": "".join(lines)})
    shadow.wrap()
    for number, place in enumerate((0, 8, 16), 1):
        with shadow.message(f"m{number}"):
            lines[place] = f"of m{number}\n"
            make_tree(worktree, {"a": "".join(lines)})
    shadow.revert("m1", only=True)
    record(shadow, "m4")

    forget(shadow, 2)

    assert ids(shadow) == ["m1", "m3", "m4"]
    assert shadow.undo(2).complete
    lines[0], lines[16] = "0\n", "16\n"
    assert_tree(worktree, {"a": "".join(lines)})


# Branches


def test_a_branch_leaves_the_list_with_its_last_message(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")
    shadow.undo(2)
    record(shadow, "m4", "m5")
    (branch,) = shadow.branches()
    assert branch.messages == ["m2", "m3"]

    forget(shadow, 3)
    (branch,) = shadow.branches()
    assert branch.messages == ["m3"]
    forget(shadow, 2)
    assert shadow.branches() == []
    with pytest.raises(UnknownMessage):
        shadow.switch(branch.name)


def test_a_switch_over_a_forgotten_message_names_it(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1", "m2", "m3")
    shadow.undo(2)
    record(shadow, "m4", "m5")
    forget(shadow, 3)
    before = (worktree / "common.txt").read_text()

    with pytest.raises(
        ForgottenMessage, match="cannot get there: on the way, message 'm2' was forgotten on 20"
    ):
        shadow.switch("m3")

    assert (worktree / "common.txt").read_text() == before
    shadow.restore("m3", confirm=lambda plan: True)
    assert (worktree / "common.txt").read_text() == "m3 was here\n"


def test_a_redo_over_a_forgotten_message_is_nothing_to_do(shadow: Shadow) -> None:
    record(shadow, "m1", "m2", "m3")
    shadow.undo(3)
    forget(shadow, 1)

    outcome = shadow.redo(None)

    assert outcome.messages == []
    assert "redo stops at message 'm1', which was forgotten" in outcome.notes
    assert not outcome.complete


# A pinned message behind forgotten ones

START: Tree = {"a": "0\n", "b": "0\n", "dir": {"c": file("0\n", 0o600)}}
PRESENT: Tree = {"a": "3\n", "b": "2\n", "d": "4\n", "dir": {}, "new": "3\n"}


@pytest.fixture
def pinned(shadow: Shadow, worktree: Path) -> Shadow:
    """m1 is pinned, m2 and m3 are forgotten, m4 is left."""
    make_tree(worktree, START)
    shadow.wrap()
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1\n"})
    with shadow.message("m2"):
        make_tree(worktree, {"b": "2\n", "new": "2\n"})
        (worktree / "dir" / "c").unlink()
    with shadow.message("m3"):
        make_tree(worktree, {"a": "3\n", "new": "3\n"})
    with shadow.message("m4"):
        make_tree(worktree, {"d": "4\n"})
    shadow.pin("m1")
    assert forget(shadow, 1) == ["m2", "m3"]
    return shadow


def test_a_pinned_message_keeps_its_trees(pinned: Shadow, worktree: Path) -> None:
    pinned.gc()

    message, _ = pinned.show("m1")
    assert [changed.path for changed in message.patch.files] == ["a"]
    assert [diff.path for diff in pinned.diff("m1^", "m1")] == ["a"]
    pinned.restore("m1")
    assert_tree(worktree, {**START, "a": "1\n"})
    pinned.unrevert()
    assert_tree(worktree, PRESENT)


ACROSS: dict[str, Callable[[Shadow], object]] = {
    "revert": lambda shadow: shadow.revert("m1"),
    "revert of a path": lambda shadow: shadow.revert("m1", paths=["a"]),
    "only": lambda shadow: shadow.revert("m1", only=True, on_conflict="keep"),
    "switch": lambda shadow: shadow.switch("m1"),
    "dry run": lambda shadow: shadow.revert("m1", dry_run=True),
}


@pytest.mark.parametrize("act", ACROSS.values(), ids=ACROSS)
def test_no_act_crosses_a_forgotten_message(
    act: Callable[[Shadow], object], pinned: Shadow, worktree: Path
) -> None:
    with pytest.raises(
        ForgottenMessage, match=r"cannot get there: on the way, message 'm[23]' was forgotten on 20"
    ):
        act(pinned)

    assert_tree(worktree, PRESENT)


def test_an_undo_ends_before_what_is_forgotten(pinned: Shadow, worktree: Path) -> None:
    outcome = pinned.undo(2)

    assert (outcome.messages, outcome.complete) == (["m4"], False)
    assert "undo stops at message 'm3', which was forgotten" in outcome.notes
    assert pinned.undo().messages == []
    assert pinned.redo().messages == ["m4"]
    assert_tree(worktree, PRESENT)


def test_blame_says_that_a_message_was_forgotten(pinned: Shadow) -> None:
    told = [(entry.message and entry.message.id, entry.is_forgotten) for entry in pinned.blame("a")]

    assert told == [(None, True), ("m1", False)]


def test_blame_does_not_blame_nobody_for_what_is_forgotten(shadow: Shadow) -> None:
    """A forgotten change is left out, and not listed as a change outside messages."""
    record(shadow, "m1", "m2", "m3")
    forget(shadow, 1)

    assert [entry.message and entry.message.id for entry in shadow.blame("common.txt")] == ["m3"]
    assert shadow.blame("m1.txt") == []


def test_what_was_freed_is_stored_again_when_it_comes_back(shadow: Shadow, worktree: Path) -> None:
    """The process that freed it had proved that it was stored, and must not rely on that any more."""
    content = Random(1).randbytes(200_000).hex()
    for name, written in (("m1", content), ("m2", "other"), ("m3", "last")):
        with shadow.message(name):
            make_tree(worktree, {"a": written})
    assert shadow.forget(keep_last=1).freed > 100_000

    with shadow.message("m4"):
        make_tree(worktree, {"a": content})
    with shadow.message("m5"):
        (worktree / "a").unlink()
    shadow.undo()

    assert_tree(worktree, {"a": content})


def test_others_record_while_a_drop_asks(shadow: Shadow, worktree: Path) -> None:
    record(shadow.for_session("old"), "m1")
    record(shadow, "m1")

    def work(planned: Forgotten) -> bool:
        assert planned.messages == [("old", "m1")]
        with Shadow(worktree, session="other", settings={"lock_timeout": 0}) as other:
            record(other, "m2")
        return True

    assert shadow.drop_session("old", confirm=work).messages == [("old", "m1")]
    assert [each.id for each in shadow.sessions()] == ["default", "other"]
