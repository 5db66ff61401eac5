"""Text that is safe to show: a file's name must not be able to steer the terminal or to mislead."""

from __future__ import annotations


def escape(text: str) -> str:
    r"""Write what is not printable as `\x1b`, `\u202e` or `\udcff`.

    That is control and bidirectional characters, line breaks, invisible ones, and the surrogates that
    stand for bytes of a name that is no UTF-8.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape_char(char) for char in text)


def escape_line(line: str) -> str:
    """Do the same with a line of a file, where tabs are welcome."""
    return "\t".join(escape(part) for part in line.split("\t"))


def count(number: int, noun: str) -> str:
    """Write a number with its noun: `1 file`, `1,204 files`."""
    plural = noun if number == 1 else f"{noun}s"
    return f"{number:,} {plural}"


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
