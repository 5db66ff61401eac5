"""Undo and redo by turns, moving both ways, and reversing acts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Conflict, InvalidInput, Shadow, UnknownMessage
from tests.api.test_revert import count_rows, manifest, replace_tree
from tests.support.stores import SETTINGS
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, read_tree


def states(shadow: Shadow) -> dict[str, str]:
    """Return the state of each message of the session, oldest first."""
    return {message.id: message.state for message in shadow.messages()}


@pytest.fixture
def line(shadow: Shadow, worktree: Path) -> Shadow:
    """Four messages; each writes its number into `a` and creates a file."""
    make_tree(worktree, {"a": "0"})
    for number in (1, 2, 3, 4):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})
    return shadow


def after(number: int) -> Tree:
    """Return the worktree after this many messages of the line."""
    return {"a": f"{number}", **{f"f{n}": "x" for n in range(1, number + 1)}}


# Back and forward


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_undo_goes_back_so_many_turns(line: Shadow, worktree: Path, turns: int) -> None:
    outcome = line.undo(turns)

    assert_tree(worktree, after(4 - turns))
    assert (outcome.turns, outcome.complete) == (turns, True)
    assert outcome.messages == [f"m{number}" for number in range(5 - turns, 5)]
    assert line.status().undone == outcome.messages


def test_undo_again_goes_on_from_where_it_was(line: Shadow, worktree: Path) -> None:
    for number in (3, 2, 1, 0):
        line.undo()
        assert_tree(worktree, after(number))

    assert line.status().head is None


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_redo_goes_forward_so_many_turns(line: Shadow, worktree: Path, turns: int) -> None:
    line.undo(4)

    outcome = line.redo(turns)

    assert_tree(worktree, after(turns))
    assert (outcome.turns, outcome.complete) == (turns, True)
    assert outcome.messages == [f"m{number}" for number in range(1, turns + 1)]
    assert line.status().head == f"m{turns}"


@pytest.mark.parametrize("undone", [1, 3, 4])
def test_redo_of_none_goes_forward_to_the_end(line: Shadow, worktree: Path, undone: int) -> None:
    line.undo(undone)

    outcome = line.redo(None)

    assert_tree(worktree, after(4))
    assert outcome.turns == undone
    assert (line.status().head, line.status().undone) == ("m4", [])


def test_redo_one_by_one_leaves_nothing_behind(line: Shadow, worktree: Path) -> None:
    """Issue 20781 of OpenCode: stepwise redo left files behind."""
    line.undo(4)
    for number in (1, 2, 3, 4):
        line.redo()
        assert_tree(worktree, after(number))


def test_undo_and_redo_may_go_on_for_ever(line: Shadow, worktree: Path) -> None:
    for _ in range(5):
        line.undo(2)
        assert_tree(worktree, after(2))
        line.redo(2)
        assert_tree(worktree, after(4))


def test_more_turns_than_there_are_undoes_them_all_and_says_so(line: Shadow, worktree: Path) -> None:
    outcome = line.undo(9)

    assert_tree(worktree, after(0))
    assert (outcome.turns, outcome.complete) == (4, False)
    assert outcome.notes


def test_more_turns_than_are_undone_redoes_them_all_and_says_so(line: Shadow, worktree: Path) -> None:
    line.undo(2)

    outcome = line.redo(9)

    assert_tree(worktree, after(4))
    assert (outcome.turns, outcome.complete) == (2, False)
    assert outcome.notes


@pytest.mark.parametrize("count", [0, -1, -100])
@pytest.mark.parametrize("act", ["undo", "redo"])
def test_a_count_below_one_is_refused(line: Shadow, worktree: Path, act: str, count: int) -> None:
    line.undo()

    with pytest.raises(InvalidInput):
        getattr(line, act)(count)
    assert_tree(worktree, after(3))


# Nothing to do

NOTHING: dict[str, Callable[[Shadow], object]] = {
    "nothing recorded": lambda shadow: shadow.track(),
    "all undone": lambda shadow: (shadow.snapshot("m1"), shadow.undo()),
}


@pytest.mark.parametrize("prepare", NOTHING.values(), ids=NOTHING)
def test_nothing_to_undo_is_no_error_and_says_so(
    shadow: Shadow, worktree: Path, prepare: Callable[[Shadow], object]
) -> None:
    make_tree(worktree, {"a": "1"})
    prepare(shadow)
    before = manifest(worktree)

    outcome = shadow.undo()

    assert (outcome.turns, outcome.messages, outcome.complete) == (0, [], True)
    assert outcome.notes
    assert manifest(worktree) == before


def test_nothing_to_redo_is_no_error_and_says_so(line: Shadow, worktree: Path) -> None:
    before = manifest(worktree)

    for outcome in (line.redo(), line.redo(None)):
        assert (outcome.turns, outcome.messages, outcome.complete) == (0, [], True)
        assert outcome.notes
    assert manifest(worktree) == before


def test_nothing_to_unrevert_is_no_error_and_says_so(line: Shadow, worktree: Path) -> None:
    """2d.75."""
    before = manifest(worktree)

    outcome = line.unrevert()

    assert (outcome.messages, outcome.restored, outcome.deleted, outcome.complete) == ([], [], [], True)
    assert outcome.notes
    assert manifest(worktree) == before


def test_an_undo_of_a_message_that_changed_nothing_writes_nothing_in_the_worktree(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "0", "d": {"x": "0", "empty": {}}})
    with shadow.message("m1"):
        pass
    before = manifest(worktree)

    outcome = shadow.undo()

    assert manifest(worktree) == before
    assert (outcome.messages, outcome.turns, outcome.complete) == (["m1"], 1, True)
    assert (outcome.restored, outcome.deleted) == ([], [])
    assert states(shadow) == {"m1": "undone"}


def test_an_undo_of_a_message_that_changed_nothing_leaves_the_users_edits(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        pass
    make_tree(worktree, {"a": "user"})

    shadow.undo()

    assert_tree(worktree, {"a": "user"})


# Turns


@pytest.fixture
def talk(shadow: Shadow, worktree: Path) -> Shadow:
    """Three turns: two with a user's message and two answers, one with a message without a role."""
    make_tree(worktree, {"a": "0"})
    for number, role in enumerate(["user", "assistant", "tool", "user", "assistant", "assistant", None], 1):
        with shadow.message(f"m{number}", role=role):
            make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})
    return shadow


@pytest.mark.parametrize(
    ("turns", "left", "undone"),
    [
        (1, 6, ["m7"]),
        (2, 3, ["m4", "m5", "m6", "m7"]),
        (3, 0, ["m1", "m2", "m3", "m4", "m5", "m6", "m7"]),
    ],
)
def test_a_turn_is_a_message_of_the_user_with_its_answers(
    talk: Shadow, worktree: Path, turns: int, left: int, undone: list[str]
) -> None:
    outcome = talk.undo(turns)

    assert_tree(worktree, after(left))
    assert (outcome.turns, outcome.messages) == (turns, undone)


@pytest.mark.parametrize(("turns", "left"), [(1, 3), (2, 6), (3, 7), (None, 7)])
def test_redo_brings_back_whole_turns(talk: Shadow, worktree: Path, turns: int | None, left: int) -> None:
    talk.undo(3)

    outcome = talk.redo(turns)

    assert_tree(worktree, after(left))
    assert outcome.turns == (3 if turns is None else turns)


def test_answers_without_a_question_are_a_turn_too(shadow: Shadow, worktree: Path) -> None:
    """The host of this session records only the agent's messages."""
    for number in (1, 2):
        with shadow.message(f"m{number}", role="assistant"):
            make_tree(worktree, {f"f{number}": "x"})

    outcome = shadow.undo()

    assert_tree(worktree, {})
    assert (outcome.turns, outcome.messages) == (1, ["m1", "m2"])


def test_a_revert_inside_a_turn_leaves_its_first_messages_in_force(talk: Shadow, worktree: Path) -> None:
    talk.revert("m5")

    assert_tree(worktree, after(4))
    assert talk.status().head == "m4"


def test_an_undo_after_a_revert_inside_a_turn_undoes_the_rest_of_that_turn(
    talk: Shadow, worktree: Path
) -> None:
    talk.revert("m5")

    outcome = talk.undo()

    assert_tree(worktree, after(3))
    assert (outcome.turns, outcome.messages) == (1, ["m4"])


def test_a_redo_after_a_revert_inside_a_turn_ends_where_that_turn_ends(talk: Shadow, worktree: Path) -> None:
    talk.revert("m5")

    talk.redo()

    assert_tree(worktree, after(6))
    assert talk.status().undone == ["m7"]


# Moving both ways by revert


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 4, 1, 3), (1, 4), (4, 1)], ids=str)
def test_the_boundary_moves_both_ways(line: Shadow, worktree: Path, order: tuple[int, ...]) -> None:
    """2c.71, 2c.72."""
    for number in order:
        line.revert(f"m{number}")

        assert_tree(worktree, after(number - 1))
        assert line.status().undone == [f"m{n}" for n in range(number, 5)]


def test_a_revert_of_an_undone_message_moves_forward_to_just_before_it(line: Shadow, worktree: Path) -> None:
    line.revert("m1")

    outcome = line.revert("m4")

    assert_tree(worktree, after(3))
    assert outcome.messages == ["m1", "m2", "m3"]
    assert states(line) == {"m1": "active", "m2": "active", "m3": "active", "m4": "undone"}


def test_a_revert_of_the_first_undone_message_changes_nothing(line: Shadow, worktree: Path) -> None:
    line.revert("m3")
    before = manifest(worktree)

    outcome = line.revert("m3")

    assert manifest(worktree) == before
    assert (outcome.messages, outcome.restored, outcome.deleted) == ([], [], [])
    assert line.status().undone == ["m3", "m4"]


def test_a_revert_that_moves_forward_is_taken_back_by_unrevert(line: Shadow, worktree: Path) -> None:
    line.revert("m1")
    line.revert("m4")

    line.unrevert()

    assert_tree(worktree, after(0))
    assert line.status().undone == ["m1", "m2", "m3", "m4"]


def test_ids_that_sort_otherwise_do_not_matter(shadow: Shadow, worktree: Path) -> None:
    """2c.69: order is by time, never by id."""
    make_tree(worktree, {"a": "0"})
    for number, message_id in enumerate(("z", "a", "m"), 1):
        with shadow.message(message_id):
            make_tree(worktree, {"a": f"{number}"})

    outcome = shadow.revert("a")

    assert outcome.messages == ["a", "m"]
    assert_tree(worktree, {"a": "1"})
    assert states(shadow) == {"z": "active", "a": "undone", "m": "undone"}


# Unrevert


def test_unrevert_brings_back_exactly_what_was_there(shadow: Shadow, worktree: Path) -> None:
    """Including deletions and the user's own edits."""
    make_tree(worktree, {"changed": "0", "gone": "0", "run": executable("0"), "ln": link("run"), "d": {}})
    with shadow.message("m1"):
        replace_tree(
            worktree, {"changed": file("1", 0o600), "run": "1", "ln": {"x": "1"}, "new": {"deep": {"f": ""}}}
        )
    make_tree(worktree, {"mine": "user", "d": {"mine": "user"}})
    before = read_tree(worktree)
    shadow.revert("m1")
    assert not (worktree / "new").exists()

    outcome = shadow.unrevert()

    assert read_tree(worktree) == before
    assert outcome.messages == ["m1"]
    assert (shadow.status().head, shadow.status().undone) == ("m1", [])


def test_unrevert_leaves_alone_what_the_act_found_as_it_wanted_it(shadow: Shadow, worktree: Path) -> None:
    """The undo did not change it, so it does not conflict with a later edit of the user."""
    make_tree(worktree, {"f": "0", "g": "0", "d": {}})
    with shadow.message("m1"):
        replace_tree(worktree, {"f": "1", "g": "1"})
    make_tree(worktree, {"f": "0", "d": {}})
    shadow.undo()
    replace_tree(worktree, {"f": "user", "g": "0"})

    outcome = shadow.unrevert()

    assert outcome.restored == ["g"]
    assert_tree(worktree, {"f": "user", "g": "1"})


def test_unrevert_repeated_takes_back_the_acts_before(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.undo()
    line.revert("m1")

    seen = []
    for _ in range(4):
        line.unrevert()
        seen.append(read_tree(worktree)["a"])

    assert [getattr(entry, "content", entry) for entry in seen] == [b"2", b"3", b"4", b"4"]
    assert (line.status().head, line.status().undone) == ("m4", [])


def test_unrevert_after_redo_takes_back_the_redo_and_then_the_undo(line: Shadow, worktree: Path) -> None:
    line.undo(2)
    line.redo()

    line.unrevert()
    assert_tree(worktree, after(2))
    assert line.status().undone == ["m3", "m4"]

    line.unrevert()
    assert_tree(worktree, after(4))
    assert line.status().undone == []


def test_unrevert_takes_back_a_restore(line: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "user", "mine": "user"})
    line.restore("m1^")
    assert_tree(worktree, after(0))

    line.unrevert()

    assert_tree(worktree, {**after(4), "a": "user", "mine": "user"})
    assert line.status().head == "m4"


def test_unrevert_passes_by_acts_that_changed_nothing(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.undo(dry_run=True)
    line.revert("m4")
    line.restore("m3")

    line.unrevert()

    assert_tree(worktree, after(4))


def test_an_undo_that_moved_the_head_alone_is_taken_back_too(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    with shadow.message("m2"):
        pass
    shadow.undo()

    shadow.unrevert()

    assert shadow.status().head == "m2"
    assert_tree(worktree, {"a": "1"})


def test_a_new_undo_after_unrevert_can_be_taken_back_again(line: Shadow, worktree: Path) -> None:
    for _ in range(3):
        line.undo(2)
        assert_tree(worktree, after(2))
        line.unrevert()
        assert_tree(worktree, after(4))


def test_unrevert_in_another_process_is_the_same(line: Shadow, worktree: Path) -> None:
    line.undo(3)
    line.close()

    with Shadow(worktree, settings=SETTINGS) as again:
        again.unrevert()

    assert_tree(worktree, after(4))


def test_unrevert_takes_back_acts_of_its_own_session_alone(line: Shadow, worktree: Path) -> None:
    line.undo()
    with Shadow(worktree, session="other", settings=SETTINGS) as other:
        outcome = other.unrevert()

    assert outcome.messages == []
    assert_tree(worktree, after(3))


def test_an_undo_while_unreverts_are_left_to_do_is_taken_back_first(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.undo()
    line.unrevert()
    line.undo(2)
    assert_tree(worktree, after(1))

    line.unrevert()
    assert_tree(worktree, after(3))
    line.unrevert()
    assert_tree(worktree, after(4))


@pytest.mark.parametrize("style", ["both", "snapshot", "open"])
def test_unrevert_never_passes_over_a_message_recorded_later(
    line: Shadow, worktree: Path, style: str
) -> None:
    """First-hour row B3."""
    before = line.undo().before
    if style != "snapshot":
        line.begin("new")
    make_tree(worktree, {"a": "new", "n": "x"})
    if style != "open":
        line.end("new") if style == "both" else line.snapshot("new")
    known = line.messages()

    outcome = line.unrevert()
    assert_tree(worktree, {**after(3), "a": "new", "n": "x"})
    assert line.messages() == known
    assert (outcome.messages, outcome.complete, outcome.back) == ([], True, None)
    assert outcome.notes[0] == "nothing to unrevert: message 'new' was recorded after the last undo"
    assert outcome.notes[1:] == [
        "to undo that message: shadowtree undo",
        f"to restore all files to before the undo: shadowtree restore {before}",
    ]
    line.restore(before)
    assert_tree(worktree, after(4))


def test_unrevert_stops_at_the_newest_message_after_reversing_what_came_later(
    line: Shadow, worktree: Path
) -> None:
    """First-hour row B3."""
    line.undo()
    line.redo()
    with line.message("m5"):
        make_tree(worktree, {"a": "5"})
    line.undo()

    assert line.unrevert().reverses == "undo"
    assert line.unrevert().messages == []
    assert_tree(worktree, {**after(4), "a": "5"})


def test_a_message_of_another_session_does_not_bar_the_way_back(line: Shadow, worktree: Path) -> None:
    """Each session has its own timeline; if both changed a path, that is a conflict."""
    line.undo()
    with line.for_session("other").message("theirs"):
        make_tree(worktree, {"t": "x"})

    line.unrevert()
    assert_tree(worktree, {**after(4), "t": "x"})


@pytest.mark.parametrize("act", ["undo", "redo", "unrevert", "restore"])
def test_nothing_differs_from_the_last_record_after_an_act(line: Shadow, worktree: Path, act: str) -> None:
    line.undo(2)
    acts: dict[str, Callable[[], object]] = {
        "undo": line.undo,
        "redo": line.redo,
        "unrevert": line.unrevert,
        "restore": lambda: line.restore("m1^"),
    }

    acts[act]()

    assert line.status().changed == 0


# After a part of a message was reverted


def test_undo_and_redo_after_some_paths_were_reverted(line: Shadow, worktree: Path) -> None:
    line.revert("m4", paths=["f4"])
    assert_tree(worktree, {**after(3), "a": "4"})

    line.undo()
    assert_tree(worktree, after(3))
    line.redo()

    assert_tree(worktree, after(4))


def test_a_message_on_top_of_a_reverted_path_is_undone_to_what_was_there(
    line: Shadow, worktree: Path
) -> None:
    line.revert("m4", paths=["a"])
    with line.message("m5"):
        make_tree(worktree, {"a": "5"})

    line.undo()
    assert_tree(worktree, {**after(4), "a": "3"})
    line.undo()

    assert_tree(worktree, after(3))


def test_undo_over_a_reverted_path_in_one_go(line: Shadow, worktree: Path) -> None:
    """The revert between the two messages is an act of this session, not somebody else's edit."""
    line.revert("m4", paths=["a"])
    with line.message("m5"):
        make_tree(worktree, {"a": "5"})

    line.undo(2)

    assert_tree(worktree, after(3))


def test_undo_after_a_step_was_reverted_undoes_the_rest_of_the_message(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        for number in (1, 2):
            with shadow.step(f"s{number}"):
                make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})
    shadow.revert("m1", step="s2")

    shadow.undo()
    assert_tree(worktree, {"a": "0"})
    shadow.redo()

    assert_tree(worktree, {"a": "2", "f1": "x", "f2": "x"})


def test_undo_after_a_restore_leaves_what_is_already_back(line: Shadow, worktree: Path) -> None:
    line.restore("m3")

    line.undo()

    assert_tree(worktree, after(3))
    assert line.status().head == "m3"


def test_undo_leaves_what_a_restore_did_to_other_paths(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "mine": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"mine": "user"})
    shadow.restore("m1")

    shadow.undo()

    assert_tree(worktree, {"a": "0", "mine": "0"})


# Threads


def test_a_shadow_is_usable_from_several_threads(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})

    def work(name: str) -> None:
        for number in range(5):
            shadow.snapshot(f"{name} {number}")
            shadow.undo()
            shadow.redo()
            shadow.status()

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, f"thread {number}") for number in range(6)]:
            done.result()

    assert len(shadow.messages()) == 30
    assert_tree(worktree, {"a": "0"})


# Deletions


def test_redo_deletes_again_what_the_message_deleted(shadow: Shadow, worktree: Path) -> None:
    """E2: OpenCode's redo leaves them there."""
    make_tree(worktree, {"gone": "0", "d": {"gone": "0"}, "stays": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"stays": "0"})
    shadow.undo()
    assert_tree(worktree, {"gone": "0", "d": {"gone": "0"}, "stays": "0"})

    outcome = shadow.redo()

    assert_tree(worktree, {"stays": "0"})
    assert outcome.deleted == ["d/gone", "gone"]


def test_a_rename_is_undone_and_redone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"src": {"old.py": "x", "util": {"u.py": "y"}}})
    with shadow.message("m1"):
        (worktree / "src" / "old.py").rename(worktree / "src" / "new.py")
        (worktree / "src" / "util").rename(worktree / "util")

    shadow.undo()
    assert_tree(worktree, {"src": {"old.py": "x", "util": {"u.py": "y"}}})
    shadow.redo()

    assert_tree(worktree, {"src": {"new.py": "x"}, "util": {"u.py": "y"}})


def test_redo_makes_and_removes_empty_directories_again(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"old": {"er": {}}})
    with shadow.message("m1"):
        replace_tree(worktree, {"new": {"er": {}}})

    shadow.undo()
    assert_tree(worktree, {"old": {"er": {}}})
    shadow.redo()

    assert_tree(worktree, {"new": {"er": {}}})


def test_redo_brings_back_what_several_messages_did_to_one_path(shadow: Shadow, worktree: Path) -> None:
    phases: list[Tree] = [{"x": "0"}, {}, {"x": {"y": "1"}}, {"x": link("z")}, {"x": executable("2")}]
    make_tree(worktree, phases[0])
    for number, tree in enumerate(phases[1:], 1):
        with shadow.message(f"m{number}"):
            replace_tree(worktree, tree)
    shadow.undo(4)

    for tree in phases[1:]:
        shadow.redo()
        assert_tree(worktree, tree)


# New messages after an undo


def test_a_new_message_after_an_undo_archives_the_undone_ones(line: Shadow, worktree: Path) -> None:
    line.undo(2)
    with line.message("new"):
        make_tree(worktree, {"a": "new"})

    assert states(line) == {
        "m1": "active",
        "m2": "active",
        "m3": "archived",
        "m4": "archived",
        "new": "active",
    }
    branches = {message.branch for message in line.messages() if message.state == "archived"}
    assert len(branches) == 1
    assert line.status().undone == []


def test_archived_messages_are_not_redone(line: Shadow, worktree: Path) -> None:
    line.undo()
    with line.message("new"):
        make_tree(worktree, {"a": "new"})

    outcome = line.redo(None)

    assert outcome.turns == 0
    assert_tree(worktree, {**after(3), "a": "new"})


def test_undo_after_a_new_message_passes_the_archived_ones_by(line: Shadow, worktree: Path) -> None:
    line.undo(2)
    with line.message("new"):
        make_tree(worktree, {"a": "new", "n": "x"})

    assert line.undo().messages == ["new"]
    assert_tree(worktree, after(2))
    assert line.undo().messages == ["m2"]
    assert_tree(worktree, after(1))
    line.redo(None)
    assert_tree(worktree, {**after(2), "a": "new", "n": "x"})


@pytest.mark.parametrize("call", ["begin", "snapshot"])
def test_begin_and_snapshot_archive_alike(line: Shadow, worktree: Path, call: str) -> None:
    line.undo()

    getattr(line, call)("new")

    assert states(line)["m4"] == "archived"


def test_a_second_branch_has_another_name(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.snapshot("n1")
    line.undo()
    line.snapshot("n2")

    branches = {message.id: message.branch for message in line.messages() if message.state == "archived"}

    assert set(branches) == {"m4", "n1"}
    assert branches["m4"] != branches["n1"]


def test_a_message_in_another_session_archives_nothing(line: Shadow, worktree: Path) -> None:
    line.undo()
    with Shadow(worktree, session="other", settings=SETTINGS) as other:
        other.snapshot("theirs")

    assert line.status().undone == ["m4"]
    line.redo()
    assert_tree(worktree, after(4))


def test_a_plain_snapshot_of_the_tree_archives_nothing(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.track()

    assert line.status().undone == ["m4"]


# Open messages


@pytest.mark.parametrize("act", ["undo", "revert"])
def test_an_open_message_is_ended_first_and_marked_as_inferred(
    line: Shadow, worktree: Path, act: str
) -> None:
    line.begin("m5")
    make_tree(worktree, {"a": "5", "f5": "x"})

    outcome = line.undo() if act == "undo" else line.revert("m5")

    assert outcome.messages == ["m5"]
    assert_tree(worktree, after(4))
    message = line.messages()[-1]
    assert (message.id, message.state, message.inferred) == ("m5", "undone", True)
    assert line.status().open is None


def test_the_work_of_an_open_message_can_be_redone(line: Shadow, worktree: Path) -> None:
    line.begin("m5")
    make_tree(worktree, {"a": "5", "f5": "x"})
    line.undo()

    line.redo()

    assert_tree(worktree, after(5))


def test_the_end_of_a_message_that_an_undo_ended_changes_nothing(line: Shadow, worktree: Path) -> None:
    line.begin("m5")
    line.undo()

    message = line.end("m5")

    assert (message.id, message.state) == ("m5", "undone")
    assert line.status().undone == ["m5"]


def test_a_redo_while_a_message_is_open_has_nothing_to_do(line: Shadow, worktree: Path) -> None:
    line.undo()
    line.begin("m5")
    make_tree(worktree, {"a": "5"})

    outcome = line.redo()

    assert outcome.turns == 0
    assert_tree(worktree, {**after(3), "a": "5"})


def test_an_open_message_of_another_session_stays_open(line: Shadow, worktree: Path) -> None:
    with Shadow(worktree, session="other", settings=SETTINGS) as other:
        other.begin("theirs")
        line.undo()

        assert other.status().open == "theirs"


# The record of undo and redo


@pytest.mark.usefixtures("no_tidying")
def test_history_only_grows(line: Shadow, worktree: Path) -> None:
    for act in (line.undo, line.redo, line.undo, line.unrevert):
        before = count_rows(line)
        act()

        after_act = count_rows(line)
        assert all(after_act[table] >= rows for table, rows in before.items())
        assert sum(after_act.values()) > sum(before.values())


def test_what_an_act_undoes_keeps_its_patch_and_trees(line: Shadow, worktree: Path) -> None:
    before = [(m.id, m.before, m.after, m.patch) for m in line.messages()]

    line.undo(3)
    line.redo(1)

    assert [(m.id, m.before, m.after, m.patch) for m in line.messages()] == before


def test_an_undo_that_stops_at_a_conflict_can_be_tried_again(line: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "user"})
    with pytest.raises(Conflict):
        line.undo()
    make_tree(worktree, {"a": "4"})

    line.undo()

    assert_tree(worktree, after(3))


def test_an_archived_message_cannot_be_reverted_by_surprise(line: Shadow, worktree: Path) -> None:
    """It is on another branch, and its changes are not in the files."""
    line.undo()
    with line.message("new"):
        make_tree(worktree, {"a": "new"})
    before = manifest(worktree)

    with pytest.raises((UnknownMessage, InvalidInput)):
        line.revert("m4")
    assert manifest(worktree) == before


def test_an_ignored_directory_that_was_there_before_stays(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "build/\n", "build": {}})
    with shadow.message("m1"):
        (worktree / ".gitignore").unlink()

    shadow.undo()

    assert_tree(worktree, {".gitignore": "build/\n", "build": {}})


def test_what_is_in_no_patch_is_not_undone(small: Shadow, worktree: Path) -> None:
    with small.message("m1"):
        make_tree(worktree, {"a": "x" * 100})
    make_tree(worktree, {"a": "the user's"})
    small.snapshot("m2")
    assert [message.patch.files for message in small.messages()] == [[], []]

    outcome = small.undo(2)

    assert_tree(worktree, {"a": "the user's"})
    assert [skipped.path for skipped in outcome.skipped] == ["a"]


def test_redo_leaves_alone_what_is_in_no_patch(small: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "x" * 100, "b": "0"})
    with small.message("m1"):
        (worktree / "a").unlink()
        make_tree(worktree, {"b": "1"})
    small.undo()
    make_tree(worktree, {"a": "the user's"})

    small.redo(on_conflict="overwrite")

    assert_tree(worktree, {"a": "the user's", "b": "1"})


def test_redo_after_an_undo_that_found_a_path_as_it_was_wished(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "1"})
    (worktree / "a").unlink()
    shadow.undo()

    shadow.redo()

    assert_tree(worktree, {"a": "1", "b": "1"})


def test_permission_bits_of_a_file_with_two_names_come_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    (worktree / "b").hardlink_to(worktree / "a")
    with shadow.message("m1"):
        (worktree / "a").chmod(0o600)

    shadow.undo()

    assert_tree(worktree, {"a": "1", "b": "1"})


@pytest.mark.parametrize("turns", [0, -1, 1.5, True, "m1"])
def test_turns_are_whole_numbers(shadow: Shadow, worktree: Path, turns: Any) -> None:  # Any: from a caller
    make_tree(worktree, {"a": "1"})
    shadow.snapshot("m1")

    with pytest.raises(InvalidInput):
        shadow.undo(turns)
    with pytest.raises(InvalidInput):
        shadow.redo(turns)


# What is asked for


@pytest.mark.parametrize("turns", [0, -1, "1", True, None])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_count_of_turns_is_1_or_more(shadow: Shadow, turns: Any, is_wrapped: bool) -> None:
    """Nor is an unset variable a wish to undo the whole session."""
    if is_wrapped:
        shadow.snapshot("m1")

    with pytest.raises(InvalidInput):
        shadow.undo(turns)
    if turns is not None:
        with pytest.raises(InvalidInput):
            shadow.redo(turns)


@pytest.mark.parametrize("name", [2, None, b"m1"])
@pytest.mark.parametrize("act", [Shadow.revert, Shadow.switch, Shadow.restore, Shadow.show, Shadow.patch])
def test_a_name_is_a_text(shadow: Shadow, act: Callable[[Shadow, Any], object], name: Any) -> None:
    shadow.snapshot("m1")

    with pytest.raises(InvalidInput):
        act(shadow, name)


async def agree_later(plan: object) -> bool:
    return True


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("confirm", [agree_later, lambda plan: "no", lambda plan: None])
def test_only_true_agrees(shadow: Shadow, worktree: Path, confirm: Callable[[object], Any]) -> None:
    """A coroutine that nobody awaits is true, and so is any text."""
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})

    with pytest.raises(InvalidInput):
        shadow.restore("m1^", confirm=confirm)
    with pytest.raises(InvalidInput):
        shadow.purge("a", confirm=confirm)

    assert_tree(worktree, {"a": "1"})


def test_a_cancellation_stops_one_piece_of_work(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.cancel()
    with pytest.raises(KeyboardInterrupt):
        shadow.track()

    assert shadow.track()
