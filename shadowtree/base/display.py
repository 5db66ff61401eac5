"""Texts for people: numbers and ages in words, and lines that are safe to show and fit into a terminal.

Names of files, and whatever else the user did not type, come out escaped: they must not be able to steer the
terminal.
"""

from __future__ import annotations

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
    """Return the first line of a text that has anything in it, safe to show; none: nothing."""
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
