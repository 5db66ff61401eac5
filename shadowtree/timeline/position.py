"""Where a session stands, and where an undo, redo or revert would take it. Pure.

A session's messages form a tree: the parent of each is the one that was in force when it began. The present
line runs from the first message to the tip; the head is somewhere on it, and messages after it are undone:

    m1 ── m2 ── m3 ── m4          head m2, tip m4: m3 and m4 are undone
           └─── m5                a message that begins now has the parent m2, and m3, m4 become a branch
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from shadowtree.base.arguments import check_count
from shadowtree.base.errors import ArchivedMessage
from shadowtree.base.frozen import field, frozen
from shadowtree.timeline.sqlite.schema import (
    ACTS,
    BEGIN,
    END,
    HEAD_ONLY,
    JOIN,
    SNAPSHOT,
    UNREVERT,
    Event,
    MessageRow,
    Position,
    TakenOut,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.results.messages import MessageState

FindMessage = Callable[[int], MessageRow]
"""Returns a message by its number."""
Span = tuple[int, int]
"""The numbers of the first and the last of some events."""


def fold(position: Position, event: Event) -> Position:
    """Return where a session stands after one more event."""
    message = event.message
    if event.kind in (BEGIN, SNAPSHOT):
        # Undone messages are archived, and with them those taken out of that part of the line.
        head = position.head
        out = tuple(taken for taken in position.out if head is not None and taken.message <= head)
        return Position(head=message, tip=message, open=message if event.kind == BEGIN else None, out=out)
    if event.kind == END:
        return Position(head=position.head, tip=position.tip, out=position.out)
    if event.kind == JOIN:
        return event.position
    if event.kind in ACTS:
        # An act carries its own position.
        return Position(head=event.position.head, tip=event.position.tip, out=event.position.out)
    return position


@frozen
class Travel:
    """Where the head goes, and over which messages: first back, then forward."""

    position: Position
    """Where the session stands afterwards."""
    back: list[MessageRow] = field(default_factory=list)
    """Those undone, oldest first."""
    forward: list[MessageRow] = field(default_factory=list)
    """Those redone, oldest first."""
    passed: list[MessageRow] = field(default_factory=list)
    """Those on the way back that were already taken out of the line."""
    rejoined: list[MessageRow] = field(default_factory=list)
    """Those that were taken out of the line and come back into it, oldest first."""
    removed: list[MessageRow] = field(default_factory=list)
    """Those that are taken out of the line again, because they are out of it at the destination."""
    turns: int = 0
    stopped_at: MessageRow | None = None
    """The forgotten message before which the travel stops, because its changes are no longer known."""

    @property
    def messages(self) -> list[MessageRow]:
        """All messages: those undone, then those redone."""
        return [*_in_order([*self.back, *self.removed]), *self.redone]

    @property
    def redone(self) -> list[MessageRow]:
        """The messages that are in force afterwards and were not before."""
        return _in_order([*self.rejoined, *self.forward])


def walk_back(
    number: int | None, find: FindMessage, until: int | None = None, *, first: int = 0
) -> Iterator[MessageRow]:
    """Yield messages from one back towards the first, down to `until` (exclusive) or the number `first`."""
    # The number of a message is always higher than that of its parent.
    while number is not None and number != until and number >= first:
        row = find(number)
        yield row
        number = row.parent


def part_ways(
    one: int | None, other: int | None, find: FindMessage
) -> tuple[list[MessageRow], list[MessageRow]]:
    """List the messages only on the way to `one`, and those only on the way to `other`, oldest first."""
    only_one: list[MessageRow] = []
    only_other: list[MessageRow] = []
    while one != other:
        # The number of a message is higher than its parent's, so the newer of two is only on its own way.
        if other is None or (one is not None and one > other):
            assert one is not None
            only_one.append(find(one))
            one = only_one[-1].parent
        else:
            only_other.append(find(other))
            other = only_other[-1].parent
    return only_one[::-1], only_other[::-1]


def compare_positions(
    now: Position, then: Position, find: FindMessage
) -> tuple[list[MessageRow], list[MessageRow]]:
    """List the messages in force now but not then, and those in force then but not now."""
    way_back, way_forward = part_ways(now.head, then.head, find)
    on_way = {row.number for row in (*way_back, *way_forward)}
    shared = {taken.message for taken in (*now.out, *then.out)} - on_way
    undone = [row for row in way_back if not now.is_out(row.number)]
    redone = [row for row in way_forward if not then.is_out(row.number)]
    undone += [find(number) for number in sorted(shared) if not now.is_out(number)]
    redone += [find(number) for number in sorted(shared) if not then.is_out(number)]
    return undone, redone


def undone_messages(position: Position, find: FindMessage) -> list[MessageRow]:
    """List the messages after the head, oldest first, including those out of the line."""
    return list(walk_back(position.tip, find, position.head))[::-1]


def redoable_messages(position: Position, find: FindMessage) -> list[MessageRow]:
    """List the messages after the head that redo brings back, oldest first."""
    undone = undone_messages(position, find)
    return [row for row in undone if row.forgotten_ms is None and not position.is_out(row.number)]


def in_force(position: Position, find: FindMessage) -> Iterator[MessageRow]:
    """Return the messages in force, newest first, including an open one."""
    return (row for row in walk_back(position.head, find) if not position.is_out(row.number))


def last_finished(position: Position, find: FindMessage) -> MessageRow | None:
    """Return the last message in force that has ended."""
    for row in walk_back(position.head, find):
        if row.number != position.open and not position.is_out(row.number):
            return row
    return None


def starts_turn(role: str | None) -> bool:
    """Return whether a message with this role starts a turn: the role `user`, or none."""
    return role is None or role == "user"


def choose_undo(position: Position, turns: int, find: FindMessage) -> Travel:
    """Go back by `turns` turns, or fewer if there are no more or a forgotten message comes first."""
    check_count(turns, "the number of turns")
    way: list[MessageRow] = []
    done = 0
    has_begun = False
    stopped_at = None
    for row in walk_back(position.head, find):
        if row.forgotten_ms is not None:
            stopped_at = row
            break
        way.append(row)
        if not position.is_out(row.number):
            done += not has_begun
            has_begun = True
        if has_begun and starts_turn(row.role):
            has_begun = False
            if done == turns:
                break
    messages, passed = _divide(way[::-1], position)
    if not messages:
        return Travel(position, stopped_at=stopped_at)
    moved, first = _move(position, messages[0].parent), messages[0].number
    passed = [row for row in passed if row.number > first]
    return Travel(moved, messages, passed=passed, turns=done, stopped_at=stopped_at)


def choose_redo(position: Position, turns: int | None, find: FindMessage) -> Travel:
    """Go forward by `turns` turns (None: to the end), but not past a forgotten message."""
    check_count(turns, "the number of turns")
    messages: list[MessageRow] = []
    done = 0
    has_begun = False
    stopped_at = None
    for row in undone_messages(position, find):
        has_begun = has_begun and not starts_turn(row.role)
        if position.is_out(row.number):
            continue
        if not has_begun and done == turns:
            break
        if row.forgotten_ms is not None:
            stopped_at = row
            break
        done += not has_begun
        has_begun = True
        messages.append(row)
    head = messages[-1].number if messages else position.head
    return Travel(_move(position, head), forward=messages, turns=done, stopped_at=stopped_at)


def find_gone(position: Position, travel: Travel, find: FindMessage) -> MessageRow | None:
    """Return the oldest forgotten message on the way, or between it and the head: its changes are unknown."""
    on_way = [*travel.passed, *travel.forward, *travel.rejoined, *travel.removed]
    if travel.back:
        on_way += walk_back(position.head, find, travel.back[0].parent)
    # Messages that stay out of the line count too, if a message on the way was made while they were in it.
    numbers = [row.number for row in (*travel.back, *travel.forward)]
    for taken in travel.position.out:
        if any(taken.message < number <= taken.newest for number in numbers):
            on_way.append(find(taken.message))
    return next((row for row in _in_order(on_way) if row.forgotten_ms is not None), None)


def choose_revert(position: Position, target: MessageRow, find: FindMessage) -> Travel:
    """Go to just before a message: back over it and all later ones, or forward up to it."""
    _require_on_line(target, position, find)
    moved = _move(position, target.parent)
    if target.number > (position.head or 0):
        messages, _ = _divide(list(walk_back(target.parent, find, position.head))[::-1], position)
        return Travel(moved, forward=messages)
    messages, passed = _divide(list(walk_back(position.head, find, target.parent))[::-1], position)
    return Travel(moved, messages, passed=passed)


def choose_only(position: Position, target: MessageRow, newest: int, find: FindMessage) -> Travel:
    """Take one message out of the line and leave the head where it is; do nothing if it is not in force."""
    _require_on_line(target, position, find)
    if target.number > (position.head or 0) or position.is_out(target.number):
        return Travel(position)
    taken = TakenOut(target.number, newest)
    out = tuple(sorted((*position.out, taken), key=lambda each: each.message))
    return Travel(Position(position.head, position.tip, out=out), back=[target])


def choose_switch(
    position: Position, target: MessageRow, tip: int, out: tuple[TakenOut, ...], find: FindMessage
) -> Travel:
    """Go to just after a message: back to the fork, then forward; `tip` is the end of the message's line.

    `out` lists the messages that were out of the line when the message was recorded. They alone are out of it
    afterwards.
    """
    way_back, way_forward = part_ways(position.head, target.number, find)
    fork = (way_forward[0].parent if way_forward else target.number) or 0
    back, passed = _divide(way_back, position)
    forward, _ = _divide(way_forward, Position(out=out))
    before = {taken.message for taken in position.out if taken.message <= fork}
    after = {taken.message for taken in out if taken.message <= fork}
    return Travel(
        Position(head=target.number, tip=tip, out=out),
        back,
        forward,
        passed,
        rejoined=[find(number) for number in sorted(before - after)],
        removed=[find(number) for number in sorted(after - before)],
    )


def choose_line(
    target: int, tip: int, out: tuple[TakenOut, ...], out_at_tip: tuple[TakenOut, ...]
) -> tuple[int, tuple[TakenOut, ...]]:
    """Return where the line of a message ends after a switch to it, and which messages are out of that line.

    `out` were out of it when the message was recorded, `out_at_tip` at its end. Later messages belong to the
    line only if they were made with the same messages out of it; otherwise redo could not bring them back.
    """
    later = tuple(taken for taken in out_at_tip if taken.message > target)
    if {taken.message for taken in (*out, *later)} == {taken.message for taken in out_at_tip}:
        return tip, (*out, *later)
    return target, out


def _divide(rows: list[MessageRow], position: Position) -> tuple[list[MessageRow], list[MessageRow]]:
    """Divide messages into those in the line and those taken out of it."""
    out = [row for row in rows if position.is_out(row.number)]
    return [row for row in rows if not position.is_out(row.number)], out


def _in_order(rows: list[MessageRow]) -> list[MessageRow]:
    return sorted(rows, key=lambda row: row.number)


def _move(position: Position, head: int | None) -> Position:
    return Position(head=head, tip=position.tip, out=position.out)


def _require_on_line(target: MessageRow, position: Position, find: FindMessage) -> None:
    line = walk_back(position.tip, find, first=target.number)
    if all(row.number != target.number for row in line):
        raise ArchivedMessage(target.id, target.ordinal)


def standing_acts(acts: Iterable[Event]) -> Iterator[tuple[Event, list[Span]]]:
    """Yield the acts that were not reversed, newest first, without unreverts.

    With each come the later spans that cancel out, from an act to the unrevert that reversed it:

        undo 5    revert 6    unrevert 7 (of 6)    redo 8        redo 8, then undo 5 with the span 6 to 7
    """
    cancelled: list[Span] = []
    for act in acts:
        if any(first <= act.number <= last for first, last in cancelled):
            continue
        if act.kind == UNREVERT and act.takes_back is not None:
            cancelled.append((act.takes_back, act.number))
        else:
            yield act, list(cancelled)


def state_of(row: MessageRow, position: Position, active: set[int], undone: set[int]) -> MessageState:
    """Return the state of a message, given the numbers of those before and after the head."""
    if row.number == position.open:
        return "open"
    if position.is_out(row.number):
        return "undone"
    if row.number in active:
        return "active"
    return "undone" if row.number in undone else "archived"


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def is_head_only(act: Event, find: Callable[[int], Event]) -> bool:
    """Return whether an act touched no file, or reversed such an act; `find` returns an event by number."""
    while act.kind == UNREVERT and act.takes_back is not None:
        act = find(act.takes_back)
    return act.kind in (HEAD_ONLY, JOIN)
