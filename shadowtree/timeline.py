"""Where a session stands, and where an undo, redo or revert would take it. Pure.

A session's messages form a tree: each knows the one that was in force when it began. The present line runs
from the first message to the tip; the head is somewhere on it, and what comes after the head is undone:

    m1 ── m2 ── m3 ── m4          head m2, tip m4: m3 and m4 are undone
           └─── m5                a message that begins now has m2 above it, and m3, m4 become a branch
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shadowtree.errors import InvalidInput
from shadowtree.events import (
    ACTS,
    BEGIN,
    END,
    SNAPSHOT,
    STEP,
    STEP_END,
    BranchRow,
    Event,
    MessageRow,
    Position,
)
from shadowtree.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.model import MessageState

FindMessage = Callable[[int], MessageRow]
"""Gives a message by its number."""


def fold(position: Position, event: Event) -> Position:
    """Tell where a session stands after one more event."""
    message = event.message
    if event.kind == BEGIN:
        return Position(head=message, tip=message, open=message)
    if event.kind == SNAPSHOT:
        return Position(head=message, tip=message)
    if event.kind == END:
        return Position(head=position.head, tip=position.tip)
    if event.kind in (STEP, STEP_END):
        step = event.step if event.kind == STEP else None
        return Position(head=position.head, tip=position.tip, open=position.open, step=step)
    if event.kind in ACTS:
        # An act says itself where it went.
        return Position(head=event.position.head, tip=event.position.tip)
    return position


@frozen
class Travel:
    """Where the head goes, and over which messages."""

    messages: list[MessageRow]
    """Those undone or redone, oldest first."""
    head: int | None
    tip: int | None
    is_forward: bool = False
    turns: int = 0


def walk_back(number: int | None, find: FindMessage, until: int | None = None) -> Iterator[MessageRow]:
    """Give messages from one back towards the first, up to but without `until`."""
    while number is not None and number != until:
        row = find(number)
        yield row
        number = row.parent


def part_ways(
    one: int | None, other: int | None, find: FindMessage
) -> tuple[list[MessageRow], list[MessageRow]]:
    """List what only the way to `one` has, and what only the way to `other` has, each oldest first."""
    only_one: list[MessageRow] = []
    only_other: list[MessageRow] = []
    while one != other:
        # A message is always younger than the one above it, so the younger of two is on one way alone.
        if other is None or (one is not None and one > other):
            assert one is not None
            only_one.append(find(one))
            one = only_one[-1].parent
        else:
            only_other.append(find(other))
            other = only_other[-1].parent
    return only_one[::-1], only_other[::-1]


def undone_messages(position: Position, find: FindMessage) -> list[MessageRow]:
    """List the messages after the head, oldest first."""
    return list(walk_back(position.tip, find, position.head))[::-1]


def starts_turn(row: MessageRow) -> bool:
    """Tell whether a turn starts here: with a message of the user, or of nobody in particular."""
    return row.role is None or row.role == "user"


def choose_undo(position: Position, turns: int, find: FindMessage) -> Travel:
    """Go back by turns, as many as there are."""
    _require_count(turns)
    messages: list[MessageRow] = []
    done = 0
    for row in walk_back(position.head, find):
        messages.append(row)
        done += starts_turn(row)
        if done == turns:
            break
    else:
        # The first message starts a turn whatever its role.
        done += bool(messages) and not starts_turn(messages[-1])
    head = messages[-1].parent if messages else position.head
    return Travel(messages[::-1], head, position.tip, turns=done)


def choose_redo(position: Position, turns: int | None, find: FindMessage) -> Travel:
    """Go forward by turns, or to the end."""
    _require_count(1 if turns is None else turns)
    messages: list[MessageRow] = []
    done = 0
    for row in undone_messages(position, find):
        if starts_turn(row) or not messages:
            if done == turns:
                break
            done += 1
        messages.append(row)
    head = messages[-1].number if messages else position.head
    return Travel(messages, head, position.tip, is_forward=True, turns=done)


def choose_revert(position: Position, target: MessageRow, find: FindMessage) -> Travel:
    """Go to just before a message: back over it and all later ones, or forward up to it."""
    messages: list[MessageRow] = []
    for row in walk_back(position.head, find):
        messages.append(row)
        if row.number == target.number:
            return Travel(messages[::-1], target.parent, position.tip)
    messages = []
    for row in undone_messages(position, find):
        if row.number == target.number:
            return Travel(messages, target.parent, position.tip, is_forward=True)
        messages.append(row)
    raise InvalidInput(f"message {target.id!r} is archived; what it did is not in the worktree")


def state_of(row: MessageRow, position: Position, active: set[int], undone: set[int]) -> MessageState:
    """Tell the state of a message, given the numbers of those before and after the head."""
    if row.number == position.open:
        return "open"
    if row.number in active:
        return "active"
    return "undone" if row.number in undone else "archived"


def name_branch(text: str, used: set[str]) -> str:
    """Make up the name of a branch from the text of its first message: `fix-login`, `fix-login-2`."""
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    base = "-".join(words)[:40].strip("-") or "branch"
    name, number = base, 1
    while name in used:
        number += 1
        name = f"{base}-{number}"
    return name


def find_branches(rows: list[MessageRow], branches: list[BranchRow], find: FindMessage) -> dict[int, str]:
    """Tell on which branch each of some archived messages is; the branch that was archived last counts."""
    wanted = {row.number for row in rows}
    names: dict[int, str] = {}
    for branch in branches:
        for row in walk_back(branch.tip, find, branch.fork):
            if row.number in wanted:
                names[row.number] = branch.name
    return names


def _require_count(turns: int) -> None:
    if turns < 1:
        raise InvalidInput(f"a count of turns is 1 or more, not {turns}")
