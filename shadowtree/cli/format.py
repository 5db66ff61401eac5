"""Texts for people: lists, short ids and columns; `base.display` has what other front ends also need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from shadowtree.base.display import count, cut, describe_age, escape, escape_line, first_line, measure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = [
    "GAP",
    "LISTED",
    "align_rows",
    "count",
    "cut",
    "describe_age",
    "escape",
    "escape_line",
    "first_line",
    "join_rows",
    "list_first",
    "measure",
    "shorten_ids",
]

_LONG_ID, _SHORT_ID = 20, 8
"""Ids longer than the first are shortened, but never below the second."""
GAP = "  "
"""The gap between two columns."""
LISTED = 10
"""How many paths or messages are listed; JSON has all."""

_MIN_TEXT, _MAX_TEXT = 20, 100
"""The least and the most columns of a text: on a narrow terminal lines wrap rather than show less."""


def list_first(
    items: Sequence[T], show: Callable[[T], str], more: str = "  and {:,} more (use --json to list all)"
) -> Iterator[str]:
    """Yield a line for each of the first items, and say how many more there are."""
    yield from map(show, items[:LISTED])
    if len(items) > LISTED:
        yield more.format(len(items) - LISTED)


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """Shorten each long id to a prefix that no other id has, so that it can be typed."""
    ordered = sorted(set(ids))
    shared = [0, *(_count_shared(*pair) for pair in pairwise(ordered)), 0]
    short = {}
    for place, name in enumerate(ordered):
        length = max(_SHORT_ID, shared[place] + 1, shared[place + 1] + 1)
        is_short = len(name) <= _LONG_ID or name[:length].isdigit()
        short[name] = name if is_short else name[:length]
    return short


def _count_shared(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# Columns


def align_rows(rows: Sequence[Sequence[str]], sides: str, *, width: int | None = None) -> list[list[str]]:
    """Pad cells to the width of their column, and leave out empty columns.

    `sides` has a character for each column: `<` aligns it on the left, `>` on the right, and `~` marks texts,
    which are cut so that a row fits into `width`, if it is given.
    """
    every = zip(sides, zip(*rows, strict=True), strict=False)  # without rows there are no columns
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
    """Turn rows, which all have the same number of cells, into lines."""
    return [GAP.join(row).rstrip() for row in align_rows(rows, sides, width=width)]
