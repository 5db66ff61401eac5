"""The two ways out: results on standard output, talk on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from shadowtree.cli.text import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def write_lines(lines: Iterable[str]) -> None:
    """Write result lines, which are safe to show already."""
    _make_encodable(sys.stdout)
    for line in lines:
        sys.stdout.write(line + "\n")


def write_utf8(lines: Iterable[str]) -> None:
    """Write result lines in UTF-8, whatever the encoding of the stream."""
    for line in lines:
        sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")


def write_json(document: object) -> None:
    """Write the one JSON document; names that are no UTF-8 come out as surrogate escapes."""
    import json

    sys.stdout.write(json.dumps(document, ensure_ascii=True) + "\n")


def say(sentence: str) -> None:
    """Tell the user something in one line on standard error."""
    _make_encodable(sys.stderr)
    sys.stderr.write(f"shadowtree: {escape(sentence)}\n")


def warn(sentence: str) -> None:
    """Tell the user of something that is not as it should be, but stops nothing."""
    say(f"warning: {sentence}")


def talk(lines: Iterable[str]) -> None:
    """Write lines that are safe to show already on standard error, before the one that says what failed."""
    _make_encodable(sys.stderr)
    for line in lines:
        sys.stderr.write(line + "\n")


def ask(question: str) -> bool:
    """Ask the user on standard error; without a terminal nobody can say yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _make_encodable(sys.stderr)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask_for(question: str, word: str) -> bool:
    """Have the user type a word; without a terminal nobody can."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _make_encodable(sys.stderr)
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\r\n") == word


def drop_output() -> None:
    """Lead both streams to nowhere, or Python would complain of them once more when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())


def can_steer(stream: TextIO) -> bool:
    """Tell whether the stream is a terminal that understands colours and cursor movements."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def find_width() -> int | None:
    """Tell how many columns a line of the result may take; None: it goes to no terminal."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def paint(colour: str, text: str) -> str:
    """Colour a text of the result, if that is wanted."""
    if os.environ.get("NO_COLOR") or not can_steer(sys.stdout):
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def _make_encodable(stream: TextIO) -> None:
    """Let a character that the stream's encoding lacks come out escaped rather than fail."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
