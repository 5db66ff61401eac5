"""Where a session stands and where it can go: the rules of the timeline, and the names of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowtree.base.errors import AmbiguousMessage, InvalidInput, UnknownMessage
from shadowtree.timeline.branches import Archive, archive, find_branches, name_text, number_name
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import (
    FindMessage,
    Travel,
    choose_only,
    choose_redo,
    choose_revert,
    choose_switch,
    choose_undo,
    fold,
    in_force,
    part_ways,
    redoable_messages,
    starts_turn,
    state_of,
    undone_messages,
    walk_back,
)
from shadowtree.timeline.resolve import resolve_message
from shadowtree.timeline.session import Session
from shadowtree.timeline.sqlite.database import create_journal
from shadowtree.timeline.sqlite.schema import (
    ACTS,
    BEGIN,
    END,
    JOIN,
    REVERT,
    SNAPSHOT,
    STEP,
    STEP_END,
    WRAP,
    BranchRow,
    Event,
    MessageRow,
    Position,
    TakenOut,
)

ROLES = {"u": "user", "a": "assistant", "t": "tool", "-": None}


def row(number: int, parent: int | None = None, role: str | None = None) -> MessageRow:
    return MessageRow(number, 1, number, f"m{number}", role, "", None, parent)


def line(roles: str) -> FindMessage:
    """Make messages 1, 2, 3 … one after the other, with a role for each letter."""
    rows = {n: row(n, n - 1 or None, ROLES[letter]) for n, letter in enumerate(roles, start=1)}
    return rows.__getitem__


def find_in(parents: dict[int, int | None]) -> FindMessage:
    rows = {number: row(number, parent) for number, parent in parents.items()}
    return rows.__getitem__


def numbers(rows: Sequence[MessageRow]) -> list[int]:
    return [each.number for each in rows]


def event(
    kind: str, message: int | None = None, *, to: Position | None = None, step: str | None = None
) -> Event:
    return Event(9, 1, kind, 0, to or Position(), message=message, step=step)


def at(head: int | None, tip: int | None, *out: int) -> Position:
    """Make a position with some messages taken out of the line."""
    return Position(head=head, tip=tip, out=tuple(TakenOut(number, 99) for number in out))


def result(travel: Travel) -> tuple[list[int], int | None, int]:
    return numbers(travel.messages), travel.position.head, travel.turns


# fold

OPEN = Position(head=4, tip=4, open=4)
BACK = Position(head=2, tip=4)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_a_begin_makes_its_message_head_tip_and_open(start: Position) -> None:
    assert fold(start, event(BEGIN, 5)) == Position(head=5, tip=5, open=5)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_a_snapshot_makes_its_message_head_and_tip(start: Position) -> None:
    assert fold(start, event(SNAPSHOT, 5)) == Position(head=5, tip=5)


def test_an_end_closes_the_message_and_moves_nothing() -> None:
    assert fold(OPEN, event(END, 4)) == Position(head=4, tip=4)


def test_steps_begin_and_end_in_the_open_message_and_move_nothing() -> None:
    assert fold(OPEN, event(STEP, 4, step="build")) == OPEN
    assert fold(OPEN, event(STEP_END, 4, step="build")) == OPEN


@pytest.mark.parametrize("kind", [kind for kind in ACTS if kind != JOIN])
@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_an_act_says_itself_where_it_went_and_leaves_nothing_open(kind: str, start: Position) -> None:
    said = Position(head=1, tip=3, open=8)

    assert fold(start, event(kind, to=said)) == Position(head=1, tip=3)


def test_a_join_leads_back_to_what_was_open() -> None:
    said = Position(head=1, tip=3, open=8)

    assert fold(BACK, event(JOIN, to=said)) == said


@pytest.mark.parametrize("kind", [BEGIN, SNAPSHOT])
@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (at(4, 4, 2), at(5, 5, 2)),
        (at(4, 4, 4), at(5, 5, 4)),
        (at(4, 8, 2, 4, 6, 8), at(5, 5, 2, 4)),
        (at(1, 4, 2, 3), at(5, 5)),
        (at(None, 4, 1), at(5, 5)),
    ],
    ids=["below the head", "the head itself", "on both sides", "after the head", "nothing in force"],
)
def test_a_new_message_keeps_out_what_is_below_it_and_archives_what_is_not(
    kind: str, start: Position, kept: Position
) -> None:
    found = fold(start, event(kind, 5))

    assert found == Position(kept.head, kept.tip, 5 if kind == BEGIN else None, out=kept.out)


@pytest.mark.parametrize(
    "happened",
    [event(END, 4), event(STEP, 4, step="s"), event(STEP_END, 4, step="s"), event(WRAP)],
    ids=["end", "step", "end of a step", "wrap"],
)
def test_what_stays_in_its_message_leaves_out_what_is_out(happened: Event) -> None:
    out = (TakenOut(2, 3), TakenOut(3, 3))

    assert fold(Position(head=4, tip=4, open=4, out=out), happened).out == out


@pytest.mark.parametrize("kind", ACTS)
def test_an_act_says_itself_what_is_out(kind: str) -> None:
    assert fold(at(4, 4, 2), event(kind, to=at(4, 4, 3))) == at(4, 4, 3)
    assert fold(at(4, 4, 2), event(kind, to=at(4, 4))) == at(4, 4)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
@pytest.mark.parametrize("kind", [WRAP, "something newer"])
def test_what_is_about_no_message_moves_nothing(kind: str, start: Position) -> None:
    assert fold(start, event(kind, to=Position(head=1, tip=1))) == start


# walk_back, undone_messages, starts_turn


@pytest.mark.parametrize(
    ("number", "until", "found"),
    [
        (3, None, [3, 2, 1]),
        (1, None, [1]),
        (None, None, []),
        (3, 1, [3, 2]),
        (3, 3, []),
        (2, 3, [2, 1]),
        (5, 1, [5, 4]),
    ],
    ids=[
        "all",
        "the first",
        "none",
        "until one",
        "until itself",
        "until one that is not above",
        "a side line",
    ],
)
def test_walking_back_goes_from_parent_to_parent(
    number: int | None, until: int | None, found: list[int]
) -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 1, 5: 4})

    assert numbers(list(walk_back(number, find, until))) == found


@pytest.mark.parametrize(
    ("head", "tip", "found"),
    [(3, 3, []), (1, 3, [2, 3]), (None, 3, [1, 2, 3]), (None, None, []), (2, 2, [])],
)
def test_undone_is_what_comes_after_the_head(head: int | None, tip: int | None, found: list[int]) -> None:
    assert numbers(undone_messages(Position(head=head, tip=tip), line("uuu"))) == found


@pytest.mark.parametrize(
    ("position", "active", "redoable"),
    [
        (at(4, 4, 2), [4, 3, 1], []),
        (at(4, 4, 4), [3, 2, 1], []),
        (at(4, 4, 1, 2, 3, 4), [], []),
        (at(2, 4, 1), [2], [3, 4]),
        (at(2, 4, 3), [2, 1], [4]),
        (at(2, 4, 4), [2, 1], [3]),
        (at(2, 4, 3, 4), [2, 1], []),
        (at(None, 4, 1), [], [2, 3, 4]),
    ],
)
def test_what_is_out_is_neither_in_force_nor_redone(
    position: Position, active: list[int], redoable: list[int]
) -> None:
    assert numbers(list(in_force(position, line("uuuu")))) == active
    assert numbers(redoable_messages(position, line("uuuu"))) == redoable


FAMILY: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 1, 5: 4, 6: 4, 7: None, 8: 7}
"""Three lines from the first message, to 3, 5 and 6, and another first message."""


@pytest.mark.parametrize(
    ("one", "other", "only_one", "only_other"),
    [
        (3, 3, [], []),
        (3, 1, [2, 3], []),
        (1, 3, [], [2, 3]),
        (3, 5, [2, 3], [4, 5]),
        (5, 6, [5], [6]),
        (6, 3, [4, 6], [2, 3]),
        (3, 8, [1, 2, 3], [7, 8]),
        (None, 2, [], [1, 2]),
        (5, None, [1, 4, 5], []),
        (None, None, [], []),
    ],
)
def test_ways_part_at_the_last_message_that_both_have(
    one: int | None, other: int | None, only_one: list[int], only_other: list[int]
) -> None:
    ways = part_ways(one, other, find_in(FAMILY))

    assert (numbers(ways[0]), numbers(ways[1])) == (only_one, only_other)


@pytest.mark.parametrize(
    ("role", "is_start"),
    [(None, True), ("user", True), ("assistant", False), ("tool", False), ("User", False), ("", False)],
)
def test_a_turn_starts_with_the_user_or_with_nobody(role: str | None, is_start: bool) -> None:
    assert starts_turn(role) is is_start


# undo


@pytest.mark.parametrize(
    ("roles", "head", "turns", "found"),
    [
        ("---", 3, 1, ([3], 2, 1)),
        ("---", 3, 2, ([2, 3], 1, 2)),
        ("---", 3, 3, ([1, 2, 3], None, 3)),
        ("---", 3, 9, ([1, 2, 3], None, 3)),
        ("uau", 3, 1, ([3], 2, 1)),
        ("uaata", 5, 1, ([1, 2, 3, 4, 5], None, 1)),
        ("uauaa", 5, 1, ([3, 4, 5], 2, 1)),
        ("uauaa", 5, 2, ([1, 2, 3, 4, 5], None, 2)),
        ("uauaa", 5, 3, ([1, 2, 3, 4, 5], None, 2)),
        ("aaua", 4, 1, ([3, 4], 2, 1)),
        ("aaua", 4, 2, ([1, 2, 3, 4], None, 2)),
        ("aaua", 4, 5, ([1, 2, 3, 4], None, 2)),
        ("aa", 2, 1, ([1, 2], None, 1)),
        ("a", 1, 2, ([1], None, 1)),
        ("uaua", 3, 1, ([3], 2, 1)),
        ("uaaa", 2, 1, ([1, 2], None, 1)),
        ("ua", None, 1, ([], None, 0)),
    ],
    ids=[
        "one of nobody",
        "two of nobody",
        "all",
        "more than there are",
        "a user alone",
        "one turn of many messages",
        "the last turn",
        "both turns",
        "more turns than there are",
        "not those that no turn began",
        "those that no turn began count as one",
        "they count once",
        "no user at all",
        "no user at all, too many",
        "a turn that is half undone",
        "the front half of a turn",
        "nothing in force",
    ],
)
def test_undo_goes_back_by_turns(
    roles: str, head: int | None, turns: int, found: tuple[list[int], int | None, int]
) -> None:
    travel = choose_undo(Position(head=head, tip=len(roles)), turns, line(roles))

    assert result(travel) == found
    assert travel.position == Position(head=found[1], tip=len(roles))
    assert travel == Travel(travel.position, back=travel.messages, turns=found[2])


def test_undo_with_nothing_recorded_stays_where_it_is() -> None:
    assert choose_undo(Position(), 1, find_in({})) == Travel(Position())


@pytest.mark.parametrize(
    ("roles", "out", "turns", "back", "passed", "head", "done"),
    [
        ("---", [3], 1, [2], [3], 1, 1),
        ("---", [2], 1, [3], [], 2, 1),
        ("---", [2], 2, [1, 3], [2], None, 2),
        ("---", [1, 2], 1, [3], [], 2, 1),
        ("---", [1, 2], 9, [3], [], 2, 1),
        ("---", [1, 2, 3], 1, [], [], 3, 0),
        ("uaua", [4], 1, [3], [4], 2, 1),
        ("uaua", [3], 1, [4], [], 3, 1),
        ("uaua", [3], 2, [1, 2, 4], [3], None, 2),
        ("uaua", [3, 4], 1, [1, 2], [3, 4], None, 1),
        ("uaua", [1], 2, [2, 3, 4], [], 1, 2),
        ("uaua", [1, 2], 2, [3, 4], [], 2, 1),
        ("uaua", [2], 2, [1, 3, 4], [2], None, 2),
        ("uaaua", [3], 2, [1, 2, 4, 5], [3], None, 2),
        ("aau", [1], 2, [2, 3], [], 1, 2),
    ],
    ids=[
        "the last one is out",
        "the one before is out",
        "over one that is out",
        "all before it are out",
        "no more than are in force",
        "nothing in force",
        "the end of a turn",
        "a turn without its user",
        "a turn without its user, and one more",
        "a whole turn",
        "the first user",
        "the first turn",
        "the end of the first turn",
        "the middle of a turn",
        "the first of those that no turn began",
    ],
)
def test_undo_passes_by_what_is_out(
    roles: str, out: list[int], turns: int, back: list[int], passed: list[int], head: int | None, done: int
) -> None:
    start = at(len(roles), len(roles), *out)
    travel = choose_undo(start, turns, line(roles))

    assert travel.position == at(head, len(roles), *out)
    assert (numbers(travel.back), numbers(travel.passed), travel.turns) == (back, passed, done)
    assert (travel.forward, travel.rejoined) == ([], [])


# redo


@pytest.mark.parametrize(
    ("roles", "head", "turns", "found"),
    [
        ("---", 1, 1, ([2], 2, 1)),
        ("---", None, 2, ([1, 2], 2, 2)),
        ("---", None, 9, ([1, 2, 3], 3, 3)),
        ("---", None, None, ([1, 2, 3], 3, 3)),
        ("---", 3, 1, ([], 3, 0)),
        ("---", 3, None, ([], 3, 0)),
        ("uauaa", None, 1, ([1, 2], 2, 1)),
        ("uauaa", 2, 1, ([3, 4, 5], 5, 1)),
        ("uauaa", None, 2, ([1, 2, 3, 4, 5], 5, 2)),
        ("uauaa", 3, 1, ([4, 5], 5, 1)),
        ("uauaua", 3, 1, ([4], 4, 1)),
        ("uauaua", 3, 2, ([4, 5, 6], 6, 2)),
        ("aaua", None, 1, ([1, 2], 2, 1)),
        ("aaua", None, None, ([1, 2, 3, 4], 4, 2)),
    ],
    ids=[
        "one of nobody",
        "two of nobody",
        "more than there are",
        "all",
        "nothing undone",
        "nothing undone, all",
        "a whole turn",
        "the last turn",
        "both turns",
        "the rest of a turn",
        "the rest of a turn alone",
        "the rest counts as one",
        "those that no turn began",
        "all, with those that no turn began",
    ],
)
def test_redo_goes_forward_by_turns(
    roles: str, head: int | None, turns: int | None, found: tuple[list[int], int | None, int]
) -> None:
    travel = choose_redo(Position(head=head, tip=len(roles)), turns, line(roles))

    assert result(travel) == found
    assert travel.position == Position(head=found[1], tip=len(roles))
    assert travel == Travel(travel.position, forward=travel.messages, turns=found[2])


@pytest.mark.parametrize(
    ("roles", "start", "out", "turns", "forward", "head", "done"),
    [
        ("---", None, [1], 1, [2], 2, 1),
        ("---", None, [2], 1, [1], 1, 1),
        ("---", 1, [2], 1, [3], 3, 1),
        ("---", 1, [3], None, [2], 2, 1),
        ("---", 1, [2, 3], None, [], 1, 0),
        ("uaua", None, [3], 1, [1, 2], 2, 1),
        ("uaua", None, [3], 2, [1, 2, 4], 4, 2),
        ("uaua", None, [2], 1, [1], 1, 1),
        ("uaua", 1, [2], 1, [3, 4], 4, 1),
        ("uaua", None, [1], 1, [2], 2, 1),
        ("uaua", None, [1, 2], 1, [3, 4], 4, 1),
        ("uaua", None, [1, 2, 3, 4], None, [], None, 0),
        ("uaua", None, [4], None, [1, 2, 3], 3, 2),
        ("uaua", 2, [1, 2], 1, [3, 4], 4, 1),
    ],
    ids=[
        "the next one is out",
        "the one after it is out",
        "over one that is out",
        "all but the last",
        "nothing left to redo",
        "not the rest of a turn without its user",
        "a turn without its user counts",
        "a turn without its end",
        "past the end of a turn",
        "a turn without its user first",
        "past a whole turn",
        "all are out",
        "the tip stays behind",
        "what is out below",
    ],
)
def test_redo_passes_by_what_is_out(
    roles: str,
    start: int | None,
    out: list[int],
    turns: int | None,
    forward: list[int],
    head: int | None,
    done: int,
) -> None:
    travel = choose_redo(at(start, len(roles), *out), turns, line(roles))

    assert travel.position == at(head, len(roles), *out)
    assert (numbers(travel.forward), travel.turns) == (forward, done)
    assert (travel.back, travel.passed, travel.rejoined) == ([], [], [])


@pytest.mark.parametrize("turns", [0, -1])
def test_a_count_below_one_is_refused(turns: int) -> None:
    with pytest.raises(InvalidInput, match=str(turns)):
        choose_undo(Position(head=1, tip=1), turns, line("u"))
    with pytest.raises(InvalidInput, match=str(turns)):
        choose_redo(Position(head=None, tip=1), turns, line("u"))


@given(st.text("ua-t", min_size=1, max_size=12), st.integers(1, 6))
def test_redo_brings_back_the_turns_that_undo_took(roles: str, turns: int) -> None:
    find = line(roles)
    whole = Position(head=len(roles), tip=len(roles))
    back = choose_undo(whole, turns, find)
    forth = choose_redo(back.position, turns, find)

    assert back.turns == forth.turns <= turns
    assert back.back == forth.forward
    assert forth.position == whole


# revert

TWO_LINES: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 2}
"""The present line is 1, 2, 3, 4; message 5 is on a branch."""


@pytest.mark.parametrize(
    ("head", "target", "messages", "to", "is_forward"),
    [
        (4, 4, [4], 3, False),
        (4, 2, [2, 3, 4], 1, False),
        (4, 1, [1, 2, 3, 4], None, False),
        (2, 2, [2], 1, False),
        (1, 4, [2, 3], 3, True),
        (None, 4, [1, 2, 3], 3, True),
        (3, 4, [], 3, True),
        (None, 1, [], None, True),
    ],
    ids=[
        "the last one",
        "one before",
        "the first",
        "the head of an undone line",
        "forward",
        "forward from nothing",
        "just before it already",
        "before the first already",
    ],
)
def test_revert_goes_to_just_before_a_message(
    head: int | None, target: int, messages: list[int], to: int | None, is_forward: bool
) -> None:
    find = find_in(TWO_LINES)
    travel = choose_revert(Position(head=head, tip=4), find(target), find)

    assert travel.position == Position(head=to, tip=4)
    assert (numbers(travel.forward), numbers(travel.back)) == (
        (messages, []) if is_forward else ([], messages)
    )
    assert (travel.passed, travel.rejoined) == ([], [])


def test_a_message_that_is_archived_cannot_be_reverted() -> None:
    find = find_in(TWO_LINES)

    with pytest.raises(InvalidInput, match="'m5' is archived"):
        choose_revert(Position(head=4, tip=4), find(5), find)


@pytest.mark.parametrize(
    ("start", "target", "back", "passed", "forward", "head"),
    [
        (at(4, 4, 3), 2, [2, 4], [3], [], 1),
        (at(4, 4, 3), 4, [4], [], [], 3),
        (at(4, 4, 3), 3, [4], [3], [], 2),
        (at(4, 4, 4), 4, [], [4], [], 3),
        (at(4, 4, 1), 1, [2, 3, 4], [1], [], None),
        (at(1, 4, 3), 4, [], [], [2], 3),
        (at(1, 4, 3), 3, [], [], [2], 2),
        (at(1, 4, 2), 4, [], [], [3], 3),
    ],
    ids=[
        "over one that is out",
        "not as far as one that is out",
        "one that is out itself",
        "the last, which is out",
        "the first, which is out",
        "forward over one that is out",
        "forward to one that is out",
        "forward from one that is out",
    ],
)
def test_revert_passes_by_what_is_out(
    start: Position, target: int, back: list[int], passed: list[int], forward: list[int], head: int | None
) -> None:
    find = find_in(TWO_LINES)
    travel = choose_revert(start, find(target), find)

    assert travel.position == Position(head=head, tip=4, out=start.out)
    assert (numbers(travel.back), numbers(travel.passed), numbers(travel.forward)) == (back, passed, forward)


# only


@pytest.mark.parametrize(
    ("start", "target", "out"),
    [
        (at(4, 4), 1, [(1, 5)]),
        (at(4, 4), 2, [(2, 5)]),
        (at(4, 4), 4, [(4, 5)]),
        (at(2, 4), 1, [(1, 5)]),
        (at(4, 4, 3), 1, [(1, 5), (3, 99)]),
        (at(4, 4, 1), 3, [(1, 99), (3, 5)]),
        (at(4, 4, 4), 3, [(3, 5), (4, 99)]),
    ],
    ids=[
        "the first",
        "in the middle",
        "the last",
        "below what is undone",
        "before one that is out",
        "after one that is out",
        "the head is out",
    ],
)
def test_one_message_is_taken_out_and_the_head_stays(
    start: Position, target: int, out: list[tuple[int, int]]
) -> None:
    find = find_in(TWO_LINES)
    travel = choose_only(start, find(target), 5, find)

    taken = tuple(TakenOut(message, newest) for message, newest in out)
    assert travel == Travel(Position(start.head, start.tip, out=taken), back=[find(target)])


@pytest.mark.parametrize(
    ("start", "target"),
    [(at(4, 4, 2), 2), (at(4, 4, 4), 4), (at(2, 4), 3), (at(2, 4), 4), (at(None, 4), 1), (at(2, 4, 3), 3)],
    ids=["out already", "the head is out already", "undone", "the tip", "all undone", "out and undone"],
)
def test_nothing_is_taken_out_that_is_not_in_force(start: Position, target: int) -> None:
    find = find_in(TWO_LINES)

    assert choose_only(start, find(target), 5, find) == Travel(start)


def test_nothing_is_taken_out_of_a_line_that_it_is_not_on() -> None:
    find = find_in(TWO_LINES)

    with pytest.raises(InvalidInput, match="'m5' is archived"):
        choose_only(at(4, 4), find(5), 5, find)


# switch


@pytest.mark.parametrize(
    ("start", "target", "tip", "back", "forward"),
    [
        (at(3, 3), 1, 3, [2, 3], []),
        (at(3, 3), 3, 3, [], []),
        (at(1, 3), 3, 3, [], [2, 3]),
        (at(None, 3), 2, 3, [], [1, 2]),
        (at(3, 3), 5, 5, [2, 3], [4, 5]),
        (at(3, 3), 4, 5, [2, 3], [4]),
        (at(1, 3), 5, 5, [], [4, 5]),
        (at(2, 3), 5, 5, [2], [4, 5]),
        (at(5, 5), 6, 6, [5], [6]),
        (at(4, 5), 6, 6, [], [6]),
        (at(6, 6), 3, 3, [4, 6], [2, 3]),
        (at(3, 3), 8, 8, [1, 2, 3], [7, 8]),
        (at(8, 8), 1, 3, [7, 8], [1]),
        (at(None, 3), 8, 8, [], [7, 8]),
    ],
    ids=[
        "back on the same line",
        "where it is",
        "forward on the same line",
        "forward from nothing",
        "another branch",
        "the middle of another branch",
        "another branch from the fork",
        "another branch with some undone",
        "a branch of a branch",
        "a branch of a branch from its fork",
        "back from a branch of a branch",
        "another beginning",
        "back from another beginning",
        "another beginning with all undone",
    ],
)
def test_switch_goes_back_to_where_the_ways_part_and_then_forward(
    start: Position, target: int, tip: int, back: list[int], forward: list[int]
) -> None:
    find = find_in(FAMILY)
    travel = choose_switch(start, find(target), tip, (), find)

    assert travel.position == Position(head=target, tip=tip)
    assert (numbers(travel.back), numbers(travel.forward)) == (back, forward)
    assert (travel.passed, travel.rejoined, travel.removed) == ([], [], [])
    assert numbers(travel.messages) == [*back, *forward]


@pytest.mark.parametrize(
    ("start", "target", "out", "gone", "come", "passed"),
    [
        (at(3, 3, 1), 5, [], [2, 3], [1, 4, 5], []),
        (at(3, 3, 1), 5, [1], [2, 3], [4, 5], []),
        (at(3, 3), 5, [1], [1, 2, 3], [4, 5], []),
        (at(3, 3), 5, [4], [2, 3], [5], []),
        (at(3, 3), 5, [1, 4], [1, 2, 3], [5], []),
        (at(3, 3, 1), 5, [4], [2, 3], [1, 5], []),
        (at(3, 3, 2), 5, [], [3], [4, 5], [2]),
        (at(3, 3, 3), 5, [], [2], [4, 5], [3]),
        (at(3, 3, 1, 2), 5, [1, 4], [3], [5], [2]),
        (at(1, 3, 3), 5, [], [], [4, 5], []),
        (at(1, 3, 1), 5, [], [], [1, 4, 5], []),
        (at(1, 3, 2), 3, [], [], [2, 3], []),
        (at(1, 3, 2), 3, [2], [], [3], []),
        (at(3, 3, 2), 3, [], [], [2], []),
        (at(3, 3), 3, [2], [2], [], []),
        (at(3, 3, 1), 3, [2], [2], [1], []),
        (at(3, 3, 1, 2, 3), 3, [], [], [1, 2, 3], []),
        (at(3, 3, 2), 2, [], [3], [2], []),
        (at(3, 3, 2), 1, [], [3], [], [2]),
        (at(3, 3, 1), 8, [], [2, 3], [7, 8], [1]),
    ],
    ids=[
        "below the fork",
        "below the fork, then too",
        "below the fork, only then",
        "above the fork, only then",
        "on both sides, only then",
        "below the fork, then above it",
        "above the fork",
        "the head",
        "on both sides, then too",
        "among the undone, which are left",
        "the fork itself",
        "among those that are redone",
        "among those that are redone, then too",
        "on the line, to where it is",
        "on the line, only then",
        "on the line, then another one",
        "the whole line",
        "the target itself",
        "above the target",
        "with another beginning there is no fork",
    ],
)
def test_switch_leaves_out_of_the_line_what_was_out_when_the_message_was_recorded(
    start: Position, target: int, out: list[int], gone: list[int], come: list[int], passed: list[int]
) -> None:
    find = find_in(FAMILY)
    then = at(target, target, *out)
    travel = choose_switch(start, find(target), target, then.out, find)

    assert travel.position == then
    assert numbers(travel.messages) == [*gone, *come]
    assert sorted(numbers([*travel.back, *travel.removed])) == gone
    assert sorted(numbers([*travel.rejoined, *travel.forward])) == come
    assert numbers(travel.passed) == passed
    before, after = set(in_force(start, find)), set(in_force(then, find))
    assert {row.number for row in before - after} == set(gone) - set(come)
    assert {row.number for row in after - before} == set(come) - set(gone)


def test_what_a_switch_takes_out_or_in_is_below_the_fork() -> None:
    find = find_in(FAMILY)
    out = at(5, 5, 1, 4).out

    travel = choose_switch(at(3, 3, 2), find(5), 5, out, find)
    assert (numbers(travel.removed), numbers(travel.rejoined)) == ([1], [])
    travel = choose_switch(Position(5, 5, out=out), find(3), 3, (), find)
    assert (numbers(travel.removed), numbers(travel.rejoined)) == ([], [1])


# state_of


@pytest.mark.parametrize(("number", "state"), [(1, "active"), (2, "open"), (3, "undone"), (4, "archived")])
def test_a_message_has_one_of_four_states(number: int, state: str) -> None:
    position = Position(head=2, tip=3, open=2)

    assert state_of(row(number), position, {1, 2}, {3}) == state


@pytest.mark.parametrize(("number", "state"), [(1, "undone"), (2, "active"), (3, "undone"), (4, "undone")])
def test_a_message_that_is_out_is_undone_wherever_it_is(number: int, state: str) -> None:
    assert state_of(row(number), at(2, 4, 1, 4), {1, 2}, {3, 4}) == state


# Branches


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fix login", "fix-login"),
        ("Fix: the LOGIN (again)!", "fix-the-login-again"),
        ("", "branch"),
        ("  \n\t", "branch"),
        ("!?…🚀", "branch"),
        ("Größe ändern", "größe-ändern"),
        ("重构 登录", "重构-登录"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\0b\x1b[31mc\u202ed", "a-b-31mc-d"),
        ("--force", "force"),
        ("x" * 50, "x" * 40),
        ("a" * 39 + " b", "a" * 39),
        ("a" * 38 + " b", "a" * 38 + "-b"),
    ],
    ids=[
        "words",
        "signs",
        "empty",
        "blank",
        "no letters",
        "umlauts",
        "chinese",
        "a path",
        "control characters",
        "an option",
        "long",
        "cut at a word",
        "just fits",
    ],
)
def test_a_branch_is_named_after_its_first_message(text: str, name: str) -> None:
    assert name_text(text) == name


def test_a_name_that_is_used_gets_a_number() -> None:
    used: set[str] = set()
    for _ in range(4):
        used.add(number_name(name_text("fix login"), used.__contains__))

    assert used == {"fix-login", "fix-login-2", "fix-login-3", "fix-login-4"}
    assert number_name(name_text("fix login 2"), used.__contains__) == "fix-login-2-2"


@given(st.lists(st.text(max_size=60), max_size=8))
def test_names_of_branches_differ_and_are_plain(texts: list[str]) -> None:
    used: set[str] = set()
    for text in texts:
        name = number_name(name_text(text), used.__contains__)

        assert name not in used
        assert name
        assert all(character.isalnum() or character == "-" for character in name)
        assert not name.startswith("-")
        assert len(name) <= 43
        used.add(name)


def test_archived_messages_are_found_on_their_branches() -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 1, 5: 4, 6: 1})
    branches = [BranchRow(1, 1, "first", 1, 3, 7), BranchRow(2, 1, "second", 1, 5, 8)]

    found = find_branches([find(n) for n in (2, 3, 4, 6)], branches, find)

    assert found == {2: "first", 3: "first", 4: "second"}


def test_of_two_branches_the_one_archived_last_counts() -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 2})
    branches = [BranchRow(1, 1, "old", None, 3, 7), BranchRow(2, 1, "new", 1, 4, 8)]

    found = find_branches([find(n) for n in (1, 2, 3, 4)], branches, find)

    assert found == {1: "old", 2: "new", 3: "old", 4: "new"}


def test_a_message_on_no_branch_has_no_name() -> None:
    find = find_in({1: None, 2: 1})

    assert find_branches([find(1)], [BranchRow(1, 1, "b", 1, 2, 3)], find) == {}


# Archiving


def branch(number: int, fork: int | None, tip: int) -> BranchRow:
    return BranchRow(number, 1, f"b{number}", fork, tip, number)


#     1 ── 2 ── 3 ── 4
#     │    ├─── 5 ── 9
#     │    │    └─── 10
#     │    └─── 6
#     └─── 7 ── 8
OFFSPRING: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 2, 7: 1, 8: 7, 9: 5, 10: 5}

Kept = tuple[int | None, int | None, int]
"""The number of a branch (None for a new one), its fork and its tip."""
ARCHIVED: dict[str, tuple[list[int], list[BranchRow], list[Kept]]] = {
    "the first branch": ([3, 4], [], [(None, 2, 4)]),
    "one message": ([4], [], [(None, 3, 4)]),
    "from the very first message on": ([1, 2, 3, 4], [], [(None, None, 4)]),
    "beside another branch": ([5, 9], [branch(1, 2, 4)], [(None, 2, 9)]),
    "beside two other branches": ([6], [branch(1, 2, 4), branch(2, 2, 9)], [(None, 2, 6)]),
    "of what another branch has in part": ([2, 5, 9], [branch(1, 1, 4)], [(None, 2, 9)]),
    "of what two branches have in part": ([2, 5, 9], [branch(1, 1, 4), branch(2, 2, 6)], [(None, 2, 9)]),
    "of which another branch has the first alone": (
        [2, 3, 4],
        [branch(1, 1, 2), branch(2, 2, 6)],
        [(1, 1, 4)],
    ),
    "a branch that was switched to": ([3, 4], [branch(1, 2, 4)], [(1, 2, 4)]),
    "a branch that was gone on with": ([3, 4], [branch(1, 2, 3)], [(1, 2, 4)]),
    "a branch that was gone on with, and its fork": ([2, 3, 4], [branch(1, 2, 3)], [(1, 1, 4)]),
    "a branch whose first messages stay on the line": ([4], [branch(1, 1, 4)], [(1, 1, 4)]),
    "such a branch that was gone on with": ([4], [branch(1, 1, 3)], [(None, 3, 4)]),
    "of two branches on the way the later one": (
        [2, 3, 4],
        [branch(1, 1, 2), branch(2, 2, 3)],
        [(2, 2, 4)],
    ),
    "a branch of a branch": ([2, 5, 9], [branch(1, 1, 4), branch(2, 2, 5)], [(2, 2, 9)]),
    "a branch of a branch, out of order": ([2, 5, 9], [branch(2, 2, 5), branch(7, 1, 4)], [(2, 2, 9)]),
    "all are on another branch": ([2, 3], [branch(1, 1, 4)], []),
    "the last is on another branch": ([3], [branch(1, 2, 4)], []),
    "the last is on another branch, the first on none": ([2, 3], [branch(1, 2, 4)], [(1, 1, 4)]),
    "a branch elsewhere": ([3, 4], [branch(1, 1, 8)], [(None, 2, 4)]),
    "after the other branch was dropped": ([2, 5, 9], [], [(None, 1, 9)]),
    "after the branch in between was dropped": ([2, 3, 4], [branch(3, 3, 4)], [(3, 1, 4)]),
    "not what comes after another branch": (
        [2, 5, 9],
        [branch(1, 1, 2), BranchRow(2, 1, "b2", 2, 10, 2)],
        [(None, 5, 9)],
    ),
    "after the branch below another one was dropped": ([1, 2, 5], [branch(3, 2, 4)], [(None, None, 5)]),
}


@pytest.mark.parametrize(("left", "branches", "found"), ARCHIVED.values(), ids=ARCHIVED)
def test_what_leaves_the_line_is_kept_on_branches(
    left: list[int], branches: list[BranchRow], found: list[Kept]
) -> None:
    find = find_in(OFFSPRING)
    kept = archive([find(number) for number in left], branches, find)

    by_number: dict[int | None, BranchRow | None] = {None: None, **{each.number: each for each in branches}}
    assert kept == [Archive(by_number[own], fork, tip) for own, fork, tip in found]


_moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.just(0)),
        st.tuples(st.sampled_from(["head", "switch", "branch", "unrevert", "drop"]), st.integers(0, 20)),
    ),
    min_size=5,
    max_size=40,
)


class Wood:
    """A session that goes back and forth, and the branches that keep what it leaves."""

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self.position = Position()
        self.earlier: list[Position] = []
        self.branches: list[BranchRow] = []
        self.lost: set[int] = set()
        """Messages whose branch was dropped, until they are on the line again."""
        self.count = 0

    def happen(self, what: str, count: int) -> None:
        find, position = self.rows.__getitem__, self.position
        line = numbers(list(walk_back(position.tip, find)))[::-1]
        if what == "add":
            number = len(self.rows) + 1
            self.rows[number] = row(number, position.head)
            self._leave(undone_messages(position, find), fold(position, event(SNAPSHOT, number)))
        elif what == "head" and line:
            self.position = Position(head=line[count % len(line)], tip=position.tip)
        elif what == "switch" and self.rows:
            self._switch(1 + count % len(self.rows))
        elif what == "branch" and self.branches:
            self._switch(self.branches[count % len(self.branches)].tip)
        elif what == "unrevert" and self.earlier:
            to = self.earlier[count % len(self.earlier)]
            self._leave(part_ways(position.tip, to.tip, find)[0], to)
        elif what == "drop" and self.branches:
            self._drop(self.branches[count % len(self.branches)])
        self.earlier.append(position)

    def _switch(self, target: int) -> None:
        find, position = self.rows.__getitem__, self.position
        tip = position.tip if target in self.line else None
        if tip is None:
            tip = next((each.tip for each in self.branches if target in self.on(each)), target)
        travel = choose_switch(position, find(target), tip, (), find)
        self._leave(part_ways(position.tip, tip, find)[0], travel.position)

    def _leave(self, left: list[MessageRow], to: Position) -> None:
        self.position = to
        for kept in archive(left, self.branches, self.rows.__getitem__) if left else []:
            self.count += 1
            number = self.count if kept.branch is None else kept.branch.number
            self.branches = [each for each in self.branches if each.number != number]
            self.branches.append(branch(number, kept.fork, kept.tip))
        self.lost -= self.line

    def _drop(self, dropped: BranchRow) -> None:
        if dropped.tip not in self.line:
            self.branches.remove(dropped)
            self.lost |= self.on(dropped) - self.line

    def on(self, each: BranchRow) -> set[int]:
        """Return the messages of a branch."""
        return set(numbers(list(walk_back(each.tip, self.rows.__getitem__, each.fork))))

    @property
    def line(self) -> set[int]:
        return set(numbers(list(walk_back(self.position.tip, self.rows.__getitem__))))


@settings(max_examples=400, deadline=None)
@given(_moves)
def test_no_message_is_on_two_branches_and_every_one_that_left_the_line_is_on_one(
    moves: list[tuple[str, int]],
) -> None:
    wood = Wood()
    for what, count in moves:
        wood.happen(what, count)

        held = [number for each in wood.branches for number in wood.on(each)]
        assert len(held) == len(set(held))
        assert wood.rows.keys() - wood.line <= set(held) | wood.lost


# All of it, compared with a model without parents and tips

_happenings = st.lists(
    st.one_of(
        st.sampled_from(["begin", "end", "step", "step end", "wrap", "restore"]),
        st.sampled_from(["-", "u", "a"]),
        st.tuples(st.sampled_from(["undo", "redo"]), st.integers(1, 3)),
        st.tuples(st.just("revert"), st.integers(0, 9)),
    ),
    max_size=25,
)


class Story:
    """A session as two plain lists, and the position that the events fold to."""

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self.position = Position()
        self.active: list[int] = []
        self.undone: list[int] = []
        self.is_open = False

    def happen(self, what: str | tuple[str, int]) -> None:
        if isinstance(what, tuple):
            self._travel(*what)
        elif what in ROLES:
            self._add(SNAPSHOT, ROLES[what])
        elif what == "begin":
            self._add(BEGIN, None)
        elif what == "restore":
            self._act(self.position.head)
        elif what == "wrap":
            self._fold(event(WRAP))
        elif self.is_open:
            self._go_on(what)

    def _add(self, kind: str, role: str | None) -> None:
        number = len(self.rows) + 1
        self.rows[number] = row(number, self.position.head, role)
        self._fold(event(kind, number))
        self.active.append(number)
        self.undone = []
        self.is_open = kind == BEGIN

    def _go_on(self, what: str) -> None:
        kind = {"end": END, "step": STEP, "step end": STEP_END}[what]
        self._fold(event(kind, self.active[-1], step="build"))
        self.is_open = what != "end"

    def _travel(self, way: str, count: int) -> None:
        line = self.active + self.undone
        at = len(self.active)
        find = self.rows.__getitem__
        if way == "revert":
            if line:
                target = line[count % len(line)]
                self._act(choose_revert(self.position, find(target), find).position.head)
                self._split(line, line.index(target))
            return
        # Where turns start in the plain list; the first message starts one whatever its role.
        starts = [i for i, n in enumerate(line) if i == 0 or self.rows[n].role in (None, "user")]
        if way == "undo":
            behind = [i for i in starts if i < at]
            self._act(choose_undo(self.position, count, find).position.head)
            self._split(line, behind[-min(count, len(behind))] if behind else at)
        else:
            ahead = [i for i in starts if i > at] + [len(line)]
            self._act(choose_redo(self.position, count, find).position.head)
            self._split(line, ahead[min(count, len(ahead)) - 1])

    def _split(self, line: list[int], at: int) -> None:
        self.active, self.undone = line[:at], line[at:]

    def _act(self, head: int | None) -> None:
        self._fold(event(REVERT, to=Position(head=head, tip=self.position.tip)))
        self.is_open = False

    def _fold(self, happened: Event) -> None:
        self.position = fold(self.position, happened)


@settings(max_examples=200)
@given(_happenings)
def test_the_fold_comes_to_where_a_plain_list_of_messages_does(
    happenings: list[str | tuple[str, int]],
) -> None:
    story = Story()
    for what in happenings:
        story.happen(what)
        find = story.rows.__getitem__

        assert numbers(list(walk_back(story.position.head, find)))[::-1] == story.active
        assert numbers(undone_messages(story.position, find)) == story.undone
        assert story.position.open == (story.active[-1] if story.is_open else None)


class Turns:
    """A session as one plain list: the first `at` are before the head, and some are out of the line."""

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self.position = Position()
        self.line: list[int] = []
        self.at = 0
        self.out: set[int] = set()

    def happen(self, what: str, count: int) -> None:
        find, position = self.rows.__getitem__, self.position
        if what in ROLES:
            number = len(self.rows) + 1
            self.rows[number] = row(number, position.head, ROLES[what])
            self.position = fold(position, event(SNAPSHOT, number))
            self.line = [*self.line[: self.at], number]
            self.out &= set(self.line)
            self.at = len(self.line)
        elif what == "undo":
            self._act(choose_undo(position, 1 + count % 3, find))
            turns = [turn for turn in self._turns(0, self.at) if turn]
            self.at = min([self.at, *(turn[0] for turn in turns[-1 - count % 3 :])])
        elif what == "redo":
            self._act(choose_redo(position, 1 + count % 3, find))
            turns = [turn for turn in self._turns(self.at, len(self.line)) if turn]
            self.at = max([self.at, *(turn[-1] + 1 for turn in turns[: 1 + count % 3])])
        elif self.line:
            place = count % len(self.line)
            target = find(self.line[place])
            if what == "revert":
                self._act(choose_revert(position, target, find))
                self.at = place
            elif what == "only":
                self._act(choose_only(position, target, len(self.rows), find))
                self.out |= {target.number} if place < self.at else set()
            else:
                self._switch(1 + count % len(self.rows))

    def _switch(self, target: int) -> None:
        find = self.rows.__getitem__
        out = tuple(TakenOut(number, number) for number in range(1, target) if number % 3 == 0)
        out = tuple(taken for taken in out if find(taken.message) in walk_back(target, find))
        self._act(choose_switch(self.position, find(target), target, out, find))
        self.line = numbers(list(walk_back(target, find)))[::-1]
        self.at, self.out = len(self.line), {taken.message for taken in out}

    def _act(self, travel: Travel) -> None:
        find = self.rows.__getitem__
        before = set(numbers(list(in_force(self.position, find))))
        self.position = fold(self.position, event(REVERT, to=travel.position))
        after = set(numbers(list(in_force(self.position, find))))
        assert set(numbers([*travel.back, *travel.removed])) == before - after
        assert set(numbers([*travel.forward, *travel.rejoined])) == after - before

    def _turns(self, start: int, stop: int) -> list[list[int]]:
        """Return the places of each turn's messages that are not out, if any."""
        turns: list[list[int]] = [[]]
        for place in range(start, stop):
            number = self.line[place]
            if starts_turn(self.rows[number].role):
                turns.append([])
            if number not in self.out:
                turns[-1].append(place)
        return turns


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["-", "u", "a", "u", "a", "undo", "redo", "revert", "only", "switch"]),
            st.integers(0, 30),
        ),
        max_size=30,
    )
)
def test_with_messages_out_of_the_line_a_session_stands_where_a_plain_list_does(
    happenings: list[tuple[str, int]],
) -> None:
    turns = Turns()
    for what, count in happenings:
        turns.happen(what, count)
        find = turns.rows.__getitem__
        active = [number for number in turns.line[: turns.at] if number not in turns.out]
        undone = [number for number in turns.line[turns.at :] if number not in turns.out]

        assert numbers(list(in_force(turns.position, find)))[::-1] == active
        assert numbers(redoable_messages(turns.position, find)) == undone
        assert {taken.message for taken in turns.position.out} == turns.out


# Names of messages


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A timeline without the rest of a store."""
    path = str(tmp_path / "timeline")
    create_journal(path)
    journal = Journal(path)
    yield journal
    journal.close()


def record(journal: Journal, *ids: str, head: int | None = None, session: str = "s") -> Session:
    """Record messages one after the other; `head` of them are in force, or all if it is None."""
    number = journal.add_session(session)
    rows: list[MessageRow] = []
    for id in ids:
        rows.append(journal.add_message(number, id, None, "", None, rows[-1].number if rows else None))
    in_force = rows if head is None else rows[:head]
    position = Position(head=in_force[-1].number if in_force else None, tip=rows[-1].number if rows else None)
    journal.add_event(Event(0, number, SNAPSHOT, 0, position))
    return Session(journal, session)


IDS = ["alpha", "beta", "bet", "gamma-1", "gamma-2", "last"]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("alpha", "alpha"),
        ("alph", "alpha"),
        ("bet", "bet"),
        ("beta", "beta"),
        ("gamma-2", "gamma-2"),
        ("#1", "alpha"),
        ("#6", "last"),
        ("#06", "last"),
        ("6", "last"),
        ("06", "last"),
        ("@", "last"),
        ("@~0", "last"),
        ("@~", "gamma-2"),
        ("@^", "gamma-2"),
        ("@~2^", "bet"),
        ("@^^", "gamma-1"),
        ("@~5", "alpha"),
        ("beta^", "alpha"),
        ("#3^", "beta"),
        ("alph^^", None),
        ("alpha^", None),
    ],
)
def test_a_name_means_one_message(journal: Journal, name: str, id: str | None) -> None:
    session = record(journal, *IDS)

    if id is None:
        with pytest.raises(UnknownMessage, match="the first message"):
            resolve_message(session, name)
    else:
        assert resolve_message(session, name).id == id


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nobody",
        "#0",
        "#7",
        "#",
        "#x",
        "#-1",
        "#1234567890",
        "#٣",
        "7",
        "0",
        "٣",
        "al",
        "gam",
        "nobody^",
        "^",
        "@~6",
        "@~x",
        "@~-1",
        "@x",
        "Alpha",
    ],
)
def test_a_name_that_means_nothing_is_unknown(journal: Journal, name: str) -> None:
    session = record(journal, *IDS)

    with pytest.raises(UnknownMessage) as caught:
        resolve_message(session, name)

    assert not isinstance(caught.value, AmbiguousMessage)


def test_the_beginning_of_several_ids_is_ambiguous(journal: Journal) -> None:
    session = record(journal, *IDS)

    with pytest.raises(AmbiguousMessage) as caught:
        resolve_message(session, "gamma")

    assert caught.value.candidates == ["gamma-1", "gamma-2"]


def test_digits_that_begin_another_id_are_ambiguous(journal: Journal) -> None:
    session = record(journal, "alpha", "1-of-2", "2-of-2", "4444-fix", "3")

    with pytest.raises(AmbiguousMessage) as caught:
        resolve_message(session, "1")

    assert str(caught.value) == "'1' could mean #1 ('alpha') or '1-of-2'"
    assert caught.value.candidates == ["alpha", "1-of-2"]
    assert resolve_message(session, "#1").id == "alpha"
    assert resolve_message(session, "3").id == "3", "an exact id comes first"


def test_digits_that_begin_the_id_of_that_very_number_are_not_ambiguous(journal: Journal) -> None:
    session = record(journal, "1-of-2", "b")

    assert resolve_message(session, "1").id == "1-of-2"


def test_digits_alone_are_the_beginning_of_no_id(journal: Journal) -> None:
    session = record(journal, "4444-fix")

    assert resolve_message(session, "4444-").id == "4444-fix"
    with pytest.raises(UnknownMessage):
        resolve_message(session, "4444")


@pytest.mark.parametrize("name", ["#1", "@", "@~2", "al", "#2", "1", "@^"])
def test_an_exact_id_wins_over_all_that_it_could_mean(journal: Journal, name: str) -> None:
    session = record(journal, "alpha", "also", name, "al-last")

    assert resolve_message(session, name).number == 3


def test_places_count_from_the_head_and_numbers_from_the_first(journal: Journal) -> None:
    session = record(journal, *IDS, head=3)

    assert [resolve_message(session, name).id for name in ("@", "@~2", "#6", "last")] == [
        "bet",
        "alpha",
        "last",
        "last",
    ]
    with pytest.raises(UnknownMessage):
        resolve_message(session, "@~3")


def test_with_everything_undone_there_is_no_place(journal: Journal) -> None:
    session = record(journal, *IDS, head=0)

    with pytest.raises(UnknownMessage):
        resolve_message(session, "@")
    assert resolve_message(session, "#1").id == "alpha"


def test_a_session_sees_its_own_messages_alone(journal: Journal) -> None:
    record(journal, "theirs", session="other")
    session = record(journal, "mine")

    assert resolve_message(session, "#1").id == "mine"
    for name in ("theirs", "thei", "#2"):
        with pytest.raises(UnknownMessage):
            resolve_message(session, name)


@pytest.mark.parametrize("name", ["", "@", "#1", "a"])
def test_a_session_that_recorded_nothing_knows_no_name(journal: Journal, name: str) -> None:
    with pytest.raises(UnknownMessage):
        resolve_message(Session(journal, "nobody"), name)
