"""What the command line writes: results on standard output, everything else on standard error.

A result is one JSON document or lines for people; `emit` writes whichever the user wants.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, time_ns

from shadowtree.base.display import escape
from shadowtree.base.errors import describe
from shadowtree.cli.exit_codes import FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_BAR_AFTER_S = 1.0
"""Shorter work shows no progress bar."""
_REDRAW_S = 0.1
_BAR_WIDTH = 30

_is_json = False
_is_quiet = False
"""Show only requested output and errors."""
_is_answer = True
"""The command is run for its output, which is not just a report of what it did."""
_colour = "auto"
_has_pager = False
_lost: OSError | None = None
"""Why results could not be written."""


# Results


def choose_format(
    *,
    as_json: bool,
    is_quiet: bool = False,
    is_answer: bool = True,
    colour: str = "auto",
    has_pager: bool = False,
) -> None:
    """Decide how `emit` writes the result of the command that is about to run."""
    # The process has one standard output, and so one format.
    global _is_json, _is_quiet, _is_answer, _colour, _has_pager
    _is_json, _is_quiet, _is_answer, _colour = as_json, is_quiet, is_answer, colour
    _has_pager = has_pager and is_answer


def writes_json() -> bool:
    """Return whether `emit` writes a JSON document rather than lines."""
    return _is_json


def is_quiet() -> bool:
    """Return whether only requested output and errors are shown."""
    return _is_quiet


def emit(document: object, lines: Iterable[str], *, warnings: Iterable[str] = (), utf8: bool = False) -> None:
    """Write the result of a command: as one JSON document, or as lines that are safe to show.

    Warnings are for people; a document has its own. With `utf8` the encoding of the stream is ignored,
    because a patch must stay applicable.
    """
    if _is_json:
        write_json(document)
        return
    if _is_quiet and not _is_answer:
        return
    if _has_pager and can_steer(sys.stdout):
        from shadowtree.cli.pager import write_paged

        encoding = "utf-8" if utf8 else sys.stdout.encoding
        write_paged(line.encode(encoding, "backslashreplace") + b"\n" for line in lines)
    elif utf8:
        with while_read():
            for line in lines:
                sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
    else:
        write_lines(lines)
    for warning in warnings:
        warn(warning)


def write_lines(lines: Iterable[str]) -> None:
    """Write result lines, which must already be safe to show."""
    _make_encodable(sys.stdout)
    with while_read():
        for line in lines:
            sys.stdout.write(line + "\n")


def write_json(document: object) -> None:
    """Write one JSON document of plain values, and of results, which have `to_dict`.

    Names that are not UTF-8 come out as surrogate escapes.
    """
    import json

    text = json.dumps(document, ensure_ascii=True, default=lambda result: result.to_dict())
    with while_read():
        sys.stdout.write(text + "\n")


# Talk


def say(sentence: str) -> None:
    """Write one line for the user on standard error."""
    talk([f"shadowtree: {escape(sentence)}"])


def warn(sentence: str) -> None:
    """Warn the user in one line on standard error, unless only errors are shown."""
    if not _is_quiet:
        say(f"warning: {sentence}")


def talk(lines: Iterable[str]) -> None:
    """Write lines, which must already be safe to show, on standard error."""
    _make_encodable(sys.stderr)
    for line in lines:
        sys.stderr.write(line + "\n")


def can_ask() -> bool:
    """Return whether there is a terminal on which the user can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask the user on standard error; without a terminal the answer is no."""
    return _read_answer(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def ask_for(question: str, word: str) -> bool:
    """Ask the user to type `word`, and return whether they did; without a terminal the answer is no."""
    return _read_answer(f"{question} ").rstrip("\r\n") == word


def _read_answer(prompt: str) -> str:
    if not can_ask():
        return ""
    _make_encodable(sys.stderr)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline()


class ProgressBar:
    """A progress bar for work that takes over a second, shown only if standard error is a terminal.

    Call it to report progress; as a context manager it clears its line at the end.
    """

    def __init__(
        self, label: str, *, clock_s: Callable[[], float] = monotonic, is_shown: bool | None = None
    ) -> None:
        self._label = label
        self._clock_s = clock_s
        self._is_shown = can_steer(sys.stderr) and not _is_quiet if is_shown is None else is_shown
        self._next_draw_s = clock_s() + _BAR_AFTER_S
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_drawn:
            self._draw("\r\x1b[K")

    def __call__(self, done: int, total: int | None) -> None:
        """Show that `done` of `total` is done, unless it was drawn just now; None: the total is unknown."""
        if not self._is_shown or total == 0 or self._clock_s() < self._next_draw_s:
            return
        self._next_draw_s = self._clock_s() + _REDRAW_S
        if total is None:
            self._draw(f"\r{self._label} {done:,}\x1b[K")
            return
        filled = _BAR_WIDTH * min(done, total) // total
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        self._draw(f"\r{self._label} [{bar}] {done:,} of {total:,}\x1b[K")

    def _draw(self, text: str) -> None:
        self._is_drawn = True
        sys.stderr.write(text)
        sys.stderr.flush()


# Streams


@contextmanager
def while_read() -> Iterator[None]:
    """Stop writing results, without an error, when the reader closes the pipe, as `head` does.

    Another error must not look as if the command had failed: `report_lost_output` reports it at the end.
    """
    global _lost
    try:
        yield
    except BrokenPipeError:
        _lead_nowhere(sys.stdout)
    except OSError as error:
        _lost = error
        _lead_nowhere(sys.stdout)


def report_lost_output(exit_code: int) -> int:
    """Report if results could not be written, unless the command failed; return the exit code."""
    global _lost
    error, _lost = _lost, None
    if error is None or exit_code:
        return exit_code
    say(f"the command is done, but its output could not be written: {describe(error)}")
    return FAILED


def drop_output() -> None:
    """Redirect both streams to /dev/null, or Python would report their errors again when it exits."""
    _lead_nowhere(sys.stdout)
    _lead_nowhere(sys.stderr)


def _lead_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def can_steer(stream: TextIO) -> bool:
    """Check that the stream is a terminal that understands colours and cursor movements."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def can_show(text: str) -> bool:
    """Check that standard output can encode a text."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def find_width() -> int | None:
    """Return the width of the terminal; None: standard output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def _make_encodable(stream: TextIO) -> None:
    """Escape characters that the stream cannot encode, instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def uses_colours() -> bool:
    """Check whether colours are wanted."""
    if _colour == "auto":
        return not os.environ.get("NO_COLOR") and can_steer(sys.stdout)
    return _colour == "always"


def paint(colour: str, text: str) -> str:
    """Colour a text for standard output, if colours are wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if uses_colours() else text


def now_ms() -> int:
    """Return the current time, from which ages are computed."""
    return time_ns() // 1_000_000
