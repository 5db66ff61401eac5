"""Texts for people: numbers, ages and sizes in words, lines and columns that are safe to show.

Names of files, and whatever else the user did not type, come out escaped: they must not be able to steer the
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

_LONG_ID, _SHORT_ID = 20, 8
"""Ids of more characters than the first are shortened, to no less than the second."""
GAP = "  "
"""What stands between two columns."""
LISTED = 10
"""How many paths or messages are listed; JSON has all."""

_MIN_TEXT, _MAX_TEXT = 20, 100
"""How many columns of a text are shown: on a narrow terminal lines break rather than leave less."""
_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400))


def escape(text: str) -> str:
    r"""Write what is not printable as `\x1b`, `\u202e` or `\udcff`.

    That is control and bidirectional characters, line breaks, invisible ones, and the surrogates that
    stand for bytes of a name that is no UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def escape_line(line: str) -> str:
    """Do the same with a line of a file, where tabs are welcome."""
    return "\t".join(escape(part) for part in line.split("\t"))


def first_line(text: str) -> str:
    """Give the first line of a text that has anything in it, safe to show; none: nothing."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return escape(next((line for line in lines if line), ""))


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 file`, `1,204 files`."""
    plural = noun if number == 1 else f"{noun}s"
    return f"{number:,} {plural}"


def describe_age(age_ms: int) -> str:
    """Say how long ago something was, in its largest unit; a clock that was put back gives 0 s."""
    age_s = max(0, age_ms) // 1000
    for unit, size_s in _UNITS:
        if age_s >= size_s:
            return count(age_s // size_s, unit)
    if age_s >= 3600:
        return f"{age_s // 3600} h"
    return f"{age_s // 60} min" if age_s >= 60 else f"{age_s} s"


def list_first(
    items: Sequence[T], show: Callable[[T], str], more: str = "  and {:,} more (use --json to list all)"
) -> Iterator[str]:
    """Give a line for each of the first items, and say how many more there are."""
    yield from map(show, items[:LISTED])
    if len(items) > LISTED:
        yield more.format(len(items) - LISTED)


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """Give each long id by as much of its beginning as tells it from the others, so that it can be typed."""
    ordered = sorted(set(ids))
    shared = [0, *(_count_shared(*pair) for pair in pairwise(ordered)), 0]
    short = {}
    for place, name in enumerate(ordered):
        length = max(_SHORT_ID, shared[place] + 1, shared[place + 1] + 1)
        is_short = len(name) <= _LONG_ID or name[:length].isdigit()
        short[name] = name if is_short else name[:length]
    return short


def _count_shared(one: str, other: str) -> int:
    """Count the characters that two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# Columns


def align_rows(rows: Sequence[Sequence[str]], sides: str, *, width: int | None = None) -> list[list[str]]:
    """Fill cells up to the widest one of their column, and leave out columns in which there is nothing.

    `sides` has a character for each column: `<` if its cells begin on the left, `>` if they end on the right,
    and `~` for texts, which are cut so that a row fits into `width`, if there is one.
    """
    every = zip(sides, zip(*rows, strict=True), strict=False)  # of no rows there are no columns
    columns = [(side, cells) for side, cells in every if any(cells)]
    room = _MAX_TEXT
    if width is not None:
        taken = sum(len(GAP) + max(map(measure, cells)) for side, cells in columns if side != "~")
        room = max(_MIN_TEXT, min(_MAX_TEXT, width - taken))
    aligned = [_align_cells(side, cells, room) for side, cells in columns]
    return [list(row) for row in zip(*aligned, strict=True)]


def _align_cells(side: str, cells: Sequence[str], room: int) -> list[str]:
    shown = [cut(cell, room) for cell in cells] if side == "~" else cells
    width = max(map(measure, shown))
    blanks = [" " * (width - measure(cell)) for cell in shown]
    if side == ">":
        return [blank + cell for blank, cell in zip(blanks, shown, strict=True)]
    return [cell + blank for blank, cell in zip(blanks, shown, strict=True)]


def join_rows(rows: Sequence[Sequence[str]], sides: str, *, width: int | None = None) -> list[str]:
    """Make lines of rows with the same number of cells."""
    return [GAP.join(row).rstrip() for row in align_rows(rows, sides, width=width)]


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
    import unicodedata

    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
