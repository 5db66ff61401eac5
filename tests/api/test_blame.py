"""`blame`: which messages changed a file, and which changes belong to no message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import InvalidInput, Outcome, Shadow, UnknownName
from tests.support.trees import Tree, assert_tree, executable, link, make_tree

SETTINGS = {"min_free": 0}


@pytest.fixture
def other(worktree: Path) -> Iterator[Shadow]:
    """Another session on the same worktree."""
    with Shadow(worktree, settings=SETTINGS, session="other") as shadow:
        yield shadow


def record(shadow: Shadow, id: str, tree: Tree) -> None:
    with shadow.message(id):
        make_tree(shadow.worktree, tree)


def blame(shadow: Shadow, path: str = "a") -> list[tuple[str | None, str]]:
    """List the ids of the messages, newest first, each with the kind of change; None for no message."""
    return [
        (None if entry.message is None else entry.message.id, entry.status) for entry in shadow.blame(path)
    ]


def outside(shadow: Shadow) -> list[tuple[str, str]]:
    return [(changed.path, changed.status) for changed in shadow.status().outside]


# Messages


def test_messages_that_changed_a_file_are_listed_newest_first(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1", "b": "1"})
    record(shadow, "m2", {"b": "2"})
    record(shadow, "m3", {"a": "3"})
    with shadow.message("m4"):
        (worktree / "a").unlink()
    record(shadow, "m5", {"a": "5"})

    assert blame(shadow) == [("m5", "added"), ("m4", "deleted"), ("m3", "modified"), ("m1", "added")]
    assert blame(shadow, "b") == [("m2", "modified"), ("m1", "added")]


def test_an_entry_tells_the_blobs_and_the_time(shadow: Shadow) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": "2"})
    newest, oldest = shadow.blame("a")

    assert (oldest.old_blob, oldest.new_blob) == (None, newest.old_blob)
    assert newest.new_blob not in (None, oldest.new_blob)
    assert newest.time_ms is not None
    assert oldest.time_ms is not None
    assert newest.time_ms >= oldest.time_ms
    assert newest.message == shadow.messages()[1]


def test_the_json_of_an_entry(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    with shadow.message("m1", text="add it"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "mine"})
    mine, theirs = (entry.to_dict() for entry in shadow.blame("a"))

    told = {key: theirs[key] for key in ("id", "session", "state", "branch", "text", "status")}
    assert told == {
        "id": "m1",
        "session": "default",
        "state": "active",
        "branch": None,
        "text": "add it",
        "status": "added",
    }
    assert theirs["time"].endswith("+00:00")
    nobodys = dict.fromkeys(["id", "session", "state", "branch", "text", "time"])
    assert mine == {
        **nobodys,
        "status": "modified",
        "old_blob": theirs["new_blob"],
        "new_blob": mine["new_blob"],
        "forgotten": False,
        "unprotected": False,
    }


def test_a_file_that_was_there_before_has_no_first_entry(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "same": "0"})
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})

    assert blame(shadow) == [("m1", "modified")]
    assert blame(shadow, "same") == []


def test_bits_and_kinds_are_changes_too(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": executable("1")})
    with shadow.message("m3"):
        (worktree / "a").unlink()
        make_tree(worktree, {"a": link("b")})

    assert blame(shadow) == [("m3", "type"), ("m2", "modified"), ("m1", "added")]


def test_a_file_below_directories_is_found_by_any_of_its_paths(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"d": {"e": {"a": "1"}}})

    for path in ("d/e/a", "./d//e/../e/a", str(worktree / "d" / "e" / "a")):
        assert blame(shadow, path) == [("m1", "added")]


def test_what_became_of_messages_is_told(shadow: Shadow) -> None:
    shadow.wrap()
    for number in (1, 2, 3):
        record(shadow, f"m{number}", {"a": str(number)})
    shadow.undo(2)
    record(shadow, "m4", {"a": "4"})
    shadow.undo()
    found = {entry.message.id: entry.message for entry in shadow.blame("a") if entry.message is not None}

    assert {id: message.state for id, message in found.items()} == {
        "m1": "active",
        "m2": "archived",
        "m3": "archived",
        "m4": "undone",
    }
    assert [found[id].branch is not None for id in ("m1", "m2", "m3", "m4")] == [False, True, True, False]


# Changes of nobody


def test_an_edit_between_two_messages_is_nobodys(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    make_tree(worktree, {"a": "mine"})
    record(shadow, "m2", {"a": "2"})

    assert blame(shadow) == [("m2", "modified"), (None, "modified"), ("m1", "added")]
    assert all(entry.time_ms is not None for entry in shadow.blame("a"))


def test_a_file_that_somebody_deleted_and_a_message_made_again(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    (worktree / "a").unlink()
    record(shadow, "m2", {"a": "2"})

    assert blame(shadow) == [("m2", "added"), (None, "deleted"), ("m1", "added")]


@pytest.mark.parametrize(
    ("tree", "status"), [({"a": "mine"}, "modified"), ({}, "deleted")], ids=["edited", "deleted"]
)
def test_what_was_changed_since_the_last_message_is_nobodys(
    shadow: Shadow, worktree: Path, tree: Tree, status: str
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    (worktree / "a").unlink()
    make_tree(worktree, tree)

    assert blame(shadow) == [(None, status), ("m1", "added")]
    assert shadow.blame("a")[0].time_ms is None


def test_a_file_that_no_message_changed_may_be_somebodys(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.wrap()
    record(shadow, "m1", {"b": "1"})
    make_tree(worktree, {"a": "mine", "new": "mine"})

    assert blame(shadow) == [(None, "modified")]
    assert blame(shadow, "new") == [(None, "added")]


def test_what_a_message_was_said_not_to_have_written_is_nobodys(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1", "b": "1"})
    shadow.begin("m2")
    make_tree(worktree, {"a": "2", "b": "2"})
    shadow.end(paths=["b"])
    record(shadow, "m3", {"a": "3"})

    assert blame(shadow) == [("m3", "modified"), (None, "modified"), ("m1", "added")]
    assert blame(shadow, "b") == [("m2", "modified"), ("m1", "added")]


# The open message


def test_what_was_changed_since_the_open_message_began_is_its_own(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    shadow.begin("m2")
    make_tree(worktree, {"a": "2"})

    assert blame(shadow) == [("m2", "modified"), ("m1", "added")]
    entry = shadow.blame("a")[0]
    assert entry.message is not None
    assert (entry.time_ms, entry.message.state) == (None, "open")


def test_an_open_message_that_has_changed_nothing_is_not_listed(shadow: Shadow) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    shadow.begin("m2")

    assert blame(shadow) == [("m1", "added")]


# Acts


def test_acts_are_nobodys_change(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": "2"})
    acts: list[Callable[[], Outcome]] = [
        shadow.undo,
        shadow.redo,
        lambda: shadow.restore("m1"),
        shadow.unrevert,
    ]
    for act in acts:
        act()

        assert blame(shadow) == [("m2", "modified"), ("m1", "added")]
    shadow.switch("m1")
    record(shadow, "m3", {"a": "3"})
    shadow.switch("m2")
    assert blame(shadow) == [("m3", "modified"), ("m2", "modified"), ("m1", "added")]


def test_an_edit_that_an_act_replaced_is_listed(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(shadow, "m2", {"a": "2"})
    make_tree(worktree, {"a": "mine"})
    shadow.undo(on_conflict="overwrite")

    assert blame(shadow) == [(None, "modified"), ("m2", "modified"), ("m1", "added")]
    record(shadow, "m3", {"a": "3"})
    assert blame(shadow)[0] == ("m3", "modified")
    assert len(blame(shadow)) == 4


def test_an_edit_that_an_act_merged_is_listed_once(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1\n\n\n\n2\n"})
    record(shadow, "m2", {"a": "one\n\n\n\n2\n"})
    make_tree(worktree, {"a": "one\n\n\n\nmine\n"})
    shadow.undo(on_conflict="merge")

    assert_tree(worktree, {"a": "1\n\n\n\nmine\n"})
    assert blame(shadow) == [(None, "modified"), ("m2", "modified"), ("m1", "added")]


# Several sessions


def test_messages_of_all_sessions_are_listed_newest_first(shadow: Shadow, other: Shadow) -> None:
    shadow.wrap()
    for number, session in enumerate([shadow, other, other, shadow], start=1):
        record(session, f"m{number}", {"a": str(number)})

    found = [("m4", "modified"), ("m3", "modified"), ("m2", "modified"), ("m1", "added")]
    assert blame(shadow) == blame(other) == found
    sessions = [entry.message.session for entry in shadow.blame("a") if entry.message is not None]
    assert sessions == ["default", "other", "other", "default"]


def test_the_same_id_in_two_sessions_is_told_apart(shadow: Shadow, other: Shadow) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(other, "m1", {"a": "2"})

    sessions = [entry.message.session for entry in other.blame("a") if entry.message is not None]
    assert sessions == ["other", "default"]


def test_an_edit_between_messages_of_two_sessions_is_nobodys(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    make_tree(worktree, {"a": "mine"})
    record(other, "o1", {"a": "2"})

    assert blame(shadow) == [("o1", "modified"), (None, "modified"), ("m1", "added")]


def test_messages_that_ran_side_by_side_are_listed_and_nobody_else(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    """Each of them saw the other's changes while it was open."""
    make_tree(worktree, {"a": "0"})
    shadow.wrap()
    shadow.begin("m1")
    other.begin("o1")
    make_tree(worktree, {"a": "1"})
    other.end()
    make_tree(worktree, {"a": "2"})
    shadow.end()

    assert [id for id, _ in blame(shadow)] == ["m1", "o1"]


def test_what_is_changed_while_another_session_is_open_is_nobodys_here(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    other.begin("o1")
    make_tree(worktree, {"a": "2"})

    assert blame(other) == [("o1", "modified"), ("m1", "added")]
    assert blame(shadow) == [(None, "modified"), ("m1", "added")]


# Paths without blame


def test_a_path_that_nobody_knows_is_unknown(shadow: Shadow) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})

    for path in ("nobody", "a/b"):
        with pytest.raises(UnknownName, match=path):
            shadow.blame(path)


@pytest.mark.parametrize("path", ["d", ".", "d/e"])
def test_a_directory_has_no_blame(shadow: Shadow, path: str) -> None:
    shadow.wrap()
    record(shadow, "m1", {"d": {"a": "1", "e": {}}})

    with pytest.raises(InvalidInput, match="directory"):
        shadow.blame(path)


def test_a_path_elsewhere_is_refused(shadow: Shadow) -> None:
    shadow.wrap()
    with pytest.raises(InvalidInput):
        shadow.blame("../a")


def test_without_a_store_nobody_is_to_blame(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})

    assert shadow.blame("a") == []


def test_blame_records_nothing(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    make_tree(worktree, {"a": "mine"})
    before = [path.read_bytes() for path in sorted(shadow.store.rglob("*")) if path.suffix == ".pack"]
    shadow.blame("a")

    assert [path.read_bytes() for path in sorted(shadow.store.rglob("*")) if path.suffix == ".pack"] == before
    assert shadow.status().changed == 1


# Changes outside messages


def test_the_status_lists_what_changed_outside_messages(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "gone": "0", "d": {"b": "0"}})
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    assert outside(shadow) == []
    make_tree(worktree, {"a": "mine", "new": "mine", "d": {"b": executable("0")}})
    (worktree / "gone").unlink()

    found = [("a", "modified"), ("d/b", "modified"), ("gone", "deleted"), ("new", "added")]
    assert outside(shadow) == found
    assert shadow.status().changed == len(found)
    assert shadow.status().to_dict()["outside"][0] == {"path": "a", "status": "modified"}
    record(shadow, "m2", {"b": "2"})
    assert outside(shadow) == []


def test_what_changed_since_the_worktree_was_wrapped_is_outside(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    make_tree(worktree, {"a": "mine"})

    assert outside(shadow) == [("a", "added")]


def test_what_changed_since_an_act_is_outside(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    shadow.undo()
    assert outside(shadow) == []
    make_tree(worktree, {"a": "mine"})

    assert outside(shadow) == [("a", "modified")]


def test_what_changes_while_a_message_is_open_is_not_outside(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    shadow.begin("m1")
    make_tree(worktree, {"a": "1"})

    assert outside(shadow) == []
    assert shadow.status().changed == 1


def test_what_another_session_did_is_not_outside(shadow: Shadow, other: Shadow, worktree: Path) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(other, "o1", {"a": "2", "b": "2"})
    assert (outside(shadow), shadow.status().changed) == ([], 2)
    other.undo()
    assert outside(shadow) == []
    other.redo()
    (worktree / "b").unlink()

    assert outside(other) == [("b", "deleted")]
    assert outside(shadow) == []


def test_what_was_edited_on_top_of_another_session_is_outside(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    record(other, "o1", {"a": "2", "b": "2"})
    make_tree(worktree, {"a": "mine"})

    assert outside(shadow) == outside(other) == [("a", "modified")]


def test_a_file_that_another_session_deleted_is_not_outside(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1", "b": "1"})
    with other.message("o1"):
        (worktree / "a").unlink()

    assert outside(shadow) == []


def test_an_earlier_state_of_another_session_brought_back_by_hand_is_outside(
    shadow: Shadow, worktree: Path
) -> None:
    shadow.wrap()
    record(shadow, "m1", {"a": "1"})
    with Shadow(worktree, settings=SETTINGS, session="other") as other:
        record(other, "o1", {"a": "2"})
        record(other, "o2", {"a": "3"})
        make_tree(worktree, {"a": "2"})

        assert [each.path for each in other.status().outside] == ["a"]

    assert [each.path for each in shadow.status().outside] == ["a"]


def test_what_the_head_left_behind_is_outside(shadow: Shadow, worktree: Path) -> None:
    """The files are as the message left them, but the message is undone."""
    make_tree(worktree, {"a": "0"})
    shadow.wrap()
    record(shadow, "m1", {"a": "1", "b": "1"})
    shadow.revert("m1", files=False)

    assert [(each.path, each.status) for each in shadow.status().outside] == [
        ("a", "modified"),
        ("b", "added"),
    ]

    shadow.unrevert()
    assert shadow.status().outside == []


def test_what_an_act_did_is_not_outside_and_what_was_edited_since_is(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "b": "0", "c": "0"})
    shadow.wrap()
    record(shadow, "m1", {"a": "1", "b": "1"})
    make_tree(worktree, {"c": "mine"})
    shadow.undo()
    assert [each.path for each in shadow.status().outside] == ["c"]

    make_tree(worktree, {"a": "1"})

    assert [each.path for each in shadow.status().outside] == ["a", "c"]
