"""Columns of texts, as wide as they are on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = "  "
"""What stands between two columns."""


def align_left(cells: Sequence[str]) -> list[str]:
    """Fill cells up to the widest one, on their right."""
    width = max(map(measure, cells), default=0)
    return [cell + " " * (width - measure(cell)) for cell in cells]


def align_right(cells: Sequence[str]) -> list[str]:
    """Fill cells up to the widest one, on their left."""
    width = max(map(measure, cells), default=0)
    return [" " * (width - measure(cell)) + cell for cell in cells]


def join_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Make lines of rows that have the same number of cells, aligned on their left."""
    columns = [align_left(column) for column in zip(*rows, strict=True)]
    return [GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]


def find_room(columns: Sequence[Sequence[str]], width: int | None, *, at_least: int, at_most: int) -> int:
    """Tell how wide one more column can be, beside aligned ones, if a row is to fit into `width`."""
    if width is None:
        return at_most
    taken = sum(len(GAP) + measure(column[0]) for column in columns if column)
    return max(at_least, min(at_most, width - taken))


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
