"""Messages as lines for people: the log, a row for each of them, and one message in full."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import shadowtree
from shadowtree.cli.output import paint
from shadowtree.cli.render import LETTERS, list_skipped, render_diff
from shadowtree.cli.text import count, escape

LineCount = tuple[int, int] | None
"""How many lines a message added and removed; None: not counted."""

_MIN_TEXT, _MAX_TEXT = 20, 100
"""How many columns of a text are shown: on a narrow terminal lines break rather than leave less."""
_GAP = "  "
_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400))


def render_log(
    messages: Sequence[shadowtree.Message],
    counts: Sequence[LineCount],
    *,
    now_ms: int,
    width: int | None = None,
    has_sessions: bool = False,
) -> Iterator[str]:
    """Give a row for each message; texts are cut so that a row fits into `width`, if there is one.

    The last message in force is marked with `@`, unless the messages are of several sessions; those are
    named then.
    """
    head = None if has_sessions else find_head(messages)
    left = [
        _align_right([f"{'@' if message is head else ' '} #{message.number}" for message in messages]),
        _align_right([describe_age(now_ms - message.time_ms) for message in messages]),
    ]
    if has_sessions:
        left.append(_align_left([escape(message.session) for message in messages]))
    if any(message.state != "active" for message in messages):
        left.append(_align_left(["" if m.state == "active" else m.state for m in messages]))
    right = [
        _align_right([_describe_files(message) for message in messages]),
        _align_right([f"+{counted[0]}" if counted else "" for counted in counts]),
        _align_right([f"-{counted[1]}" if counted else "" for counted in counts]),
    ]
    room = _MAX_TEXT
    if width is not None:
        taken = sum(len(_GAP) + measure(column[0]) for column in (*left, *right) if column)
        room = max(_MIN_TEXT, min(_MAX_TEXT, width - taken))
    texts = [cut(describe_text(message), room) for message in messages]
    rows = zip(*left, _align_left(texts), *right, strict=True)
    for message, row in zip(messages, rows, strict=True):
        yield _paint_row(message, row)


def render_message(
    message: shadowtree.Message, diffs: Sequence[shadowtree.FileDiff], *, now_ms: int, escape_content: bool
) -> Iterator[str]:
    """Tell all of one message: what was said, what it changed, line by line."""
    yield paint("bold", f"#{message.number} {escape(message.id)}")
    yield ", ".join(_describe_circumstances(message, now_ms))
    for line in message.text.splitlines():
        yield f"    {escape(line)}".rstrip()
    yield ""
    if message.hole is not None:
        yield paint("yellow", f"What it changed is not known: {escape(message.hole)}")
    elif message.state != "open":
        yield _describe_files(message) + " changed" if diffs else "Nothing changed"
    yield from _list_files(diffs)
    yield from list_skipped(message.skipped, "not protected")
    if diffs:
        yield ""
        yield from render_diff(diffs, escape_content=escape_content)


def find_head(messages: Sequence[shadowtree.Message]) -> shadowtree.Message | None:
    """Find the message that `@` means among messages of one session, oldest first: the last one in force."""
    in_force = (message for message in reversed(messages) if message.state in ("open", "active"))
    return next(in_force, None)


def describe_age(age_ms: int) -> str:
    """Say how long ago something was, in its largest unit; a clock that was put back gives 0 s."""
    age_s = max(0, age_ms) // 1000
    for unit, size_s in _UNITS:
        if age_s >= size_s:
            return count(age_s // size_s, unit)
    if age_s >= 3600:
        return f"{age_s // 3600} h"
    return f"{age_s // 60} min" if age_s >= 60 else f"{age_s} s"


def describe_text(message: shadowtree.Message) -> str:
    """Give the first line of a message's text; of one that has none, the id."""
    lines = (" ".join(line.split()) for line in message.text.splitlines())
    return escape(next((line for line in lines if line), message.id))


def cut(text: str, width: int) -> str:
    """Shorten a text to what fits into `width` columns of a terminal."""
    if measure(text) <= width:
        return text
    kept, room = "", width - 1
    for char in text:
        room -= measure(char)
        if room < 0:
            break
        kept += char
    return kept.rstrip() + "…"


def measure(text: str) -> int:
    """Count the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_measure_char(char) for char in text)


def _measure_char(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _align_left(cells: Sequence[str]) -> list[str]:
    width = max(map(measure, cells), default=0)
    return [cell + " " * (width - measure(cell)) for cell in cells]


def _align_right(cells: Sequence[str]) -> list[str]:
    width = max(map(measure, cells), default=0)
    return [" " * (width - measure(cell)) + cell for cell in cells]


def _describe_files(message: shadowtree.Message) -> str:
    if message.hole is not None:
        return "not known"
    return "" if message.state == "open" else count(len(message.patch.files), "file")


def _paint_row(message: shadowtree.Message, row: Sequence[str]) -> str:
    *left, added, removed = row
    if message.state in ("undone", "archived"):
        return paint("dim", _GAP.join(row).rstrip())
    if not added.strip():
        return _GAP.join(left).rstrip()
    return _GAP.join([*left, paint("green", added), paint("red", removed)])


def _describe_circumstances(message: shadowtree.Message, now_ms: int) -> Iterator[str]:
    yield f"{describe_age(now_ms - message.time_ms)} ago"
    yield f"{message.time:%Y-%m-%d %H:%M} UTC"
    yield f"session {escape(message.session)}"
    if message.role is not None:
        yield f"role {escape(message.role)}"
    if message.state != "active":
        yield message.state
    if message.is_inferred:
        yield "ended by what came after it"


def _list_files(diffs: Sequence[shadowtree.FileDiff]) -> Iterator[str]:
    for file_diff in diffs:
        letter, colour = LETTERS[file_diff.status]
        lines = "" if file_diff.binary else f"  +{file_diff.additions} -{file_diff.deletions}"
        yield f"{paint(colour, letter)} {escape(file_diff.path)}{lines}"
