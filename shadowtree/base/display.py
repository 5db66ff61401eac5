"""Text for people: counts, ages, and lines that are safe to show and fit into a terminal.

File names, and other text that the user did not type, are escaped so that they cannot control the terminal.
"""

from __future__ import annotations

_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400))


def escape(text: str) -> str:
    r"""Escape characters that are not printable, as `\x1b`, `\u202e` or `\udcff`.

    These are control characters, line breaks, bidirectional and invisible characters, and the surrogates
    that stand for bytes of a name that is not UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def escape_line(line: str) -> str:
    """Escape a line of a file, except for its tabs."""
    return "\t".join(escape(part) for part in line.split("\t"))


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank, safe to show; an empty string if there is none."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return escape(next((line for line in lines if line), ""))


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 file`, `1,204 files`."""
    plural = noun if number == 1 else f"{noun}s"
    return f"{number:,} {plural}"


def describe_age(age_ms: int) -> str:
    """Write an age in its largest unit; a negative age, after a clock was put back, is `0 s`."""
    age_s = max(0, age_ms) // 1000
    for unit, size_s in _UNITS:
        if age_s >= size_s:
            return count(age_s // size_s, unit)
    if age_s >= 3600:
        return f"{age_s // 3600} h"
    return f"{age_s // 60} min" if age_s >= 60 else f"{age_s} s"


def cut(text: str, width: int) -> str:
    """Shorten a text so that it fits into `width` columns of a terminal."""
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
