"""Branches, and who changed a file, as lines for people: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shadowtree.cli.output import (
    GAP,
    align_left,
    align_right,
    count,
    cut,
    describe_age,
    escape,
    find_room,
    first_line,
    paint,
)
from shadowtree.cli.views.status import LETTERS
from shadowtree.results.messages import BlameEntry, Branch, Message

_MIN_TEXT, _MAX_TEXT = 20, 100
_MAX_NAME = 32
"""How many columns of a name or an id are shown in a list."""


def render_branches(branches: Sequence[Branch], *, now_ms: int, width: int | None = None) -> Iterator[str]:
    """Give a row for each branch; those that the session is on are marked with `@`."""
    if not branches:
        yield "There is no branch; a message that begins after an undo makes one of what is undone"
        return
    left = [
        align_left([_mark_branch(branch) for branch in branches]),
        align_left([_describe_fork(branch) for branch in branches]),
        align_right([count(len(branch.messages), "message") for branch in branches]),
        align_right([count(branch.files, "file") for branch in branches]),
        align_right([describe_age(now_ms - branch.time_ms) for branch in branches]),
    ]
    room = find_room(left, width, at_least=_MIN_TEXT, at_most=_MAX_TEXT)
    texts = [cut(first_line(branch.label), room) for branch in branches]
    for branch, row in zip(branches, zip(*left, texts, strict=True), strict=True):
        line = GAP.join(row).rstrip()
        yield paint("bold", line) if branch.state == "active" else line


def render_dropped(branch: Branch) -> Iterator[str]:
    """Tell what is no longer listed, and how to get there nevertheless."""
    number = count(len(branch.messages), "message")
    yield f"The branch {escape(branch.name)} with its {number} is no longer listed"
    if branch.messages:
        yield f"Its last message is {escape(branch.messages[-1])}, which can still be switched to"


def render_blame(
    path: str,
    entries: Sequence[BlameEntry],
    *,
    session: str,
    now_ms: int,
    width: int | None = None,
) -> Iterator[str]:
    """Give a row for each change of a path; sessions are named if there are others than `session`."""
    if not entries:
        yield f"Nobody has changed {escape(path)} since it was recorded first"
        return
    left = [
        [LETTERS[entry.status][0] for entry in entries],
        align_right([_describe_time(entry, now_ms) for entry in entries]),
        align_left([_name_author(entry) for entry in entries]),
    ]
    messages = [entry.message for entry in entries]
    if any(message is not None and message.session != session for message in messages):
        left.append(align_left(["" if message is None else escape(message.session) for message in messages]))
    if any(message is not None and message.state != "active" for message in messages):
        left.append(align_left([_describe_state(message) for message in messages]))
    room = find_room(left, width, at_least=_MIN_TEXT, at_most=_MAX_TEXT)
    texts = ["" if message is None else cut(first_line(message.text), room) for message in messages]
    for entry, row in zip(entries, zip(*left, texts, strict=True), strict=True):
        yield _paint_change(entry, GAP.join(row).rstrip())


def _mark_branch(branch: Branch) -> str:
    mark = "@" if branch.state == "active" else " "
    return f"{mark} {cut(escape(branch.name), _MAX_NAME)}"


def _describe_fork(branch: Branch) -> str:
    return "from the start" if branch.fork is None else f"after {cut(escape(branch.fork), _MAX_NAME)}"


def _describe_time(entry: BlameEntry, now_ms: int) -> str:
    return "now" if entry.time_ms is None else describe_age(now_ms - entry.time_ms)


def _name_author(entry: BlameEntry) -> str:
    if entry.message is not None:
        return cut(escape(entry.message.id), _MAX_NAME)
    return "a forgotten message" if entry.is_forgotten else "outside any message"


def _describe_state(message: Message | None) -> str:
    if message is None or message.state == "active":
        return ""
    return message.state if message.branch is None else cut(escape(message.branch), _MAX_NAME)


def _paint_change(entry: BlameEntry, row: str) -> str:
    if entry.message is not None and entry.message.state in ("undone", "archived"):
        return paint("dim", row)
    letter, colour = LETTERS[entry.status]
    return paint(colour, letter) + row.removeprefix(letter)
