"""The pager for long results on a terminal, as in git."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

USUAL = "less -FRX"
"""Quits if everything fits, shows colours, and leaves the text on the screen."""
_LESS = {"LESS": "FRX", "LV": "-c"}
"""Makes a pager of the user's choice behave the same, unless the user's environment says otherwise."""


def write_paged(lines: Iterable[bytes]) -> None:
    """Write lines through the pager if they fill the screen; otherwise, or without a pager, directly."""
    from shutil import get_terminal_size

    every = iter(lines)
    first = list(islice(every, get_terminal_size().lines))
    pager = _start(find_command(os.environ)) if len(first) == get_terminal_size().lines else None
    if pager is None:
        sys.stdout.flush()
        for line in chain(first, every):
            sys.stdout.buffer.write(line)
        return
    _feed(pager, chain(first, every))


def find_command(environ: dict[str, str] | os._Environ[str]) -> list[str]:
    """Return the words of the user's pager command; none if it is empty, invalid, or `cat`."""
    import shlex

    chosen = next((environ[name] for name in ("SHADOWTREE_PAGER", "PAGER") if name in environ), USUAL)
    try:
        words = shlex.split(chosen)
    except ValueError:
        return []
    return [] if words == ["cat"] else words


def _start(command: list[str]) -> Popen[bytes] | None:
    if not command:
        return None
    import subprocess

    sys.stdout.flush()
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, env={**_LESS, **os.environ})
    except OSError:
        return None


def _feed(pager: Popen[bytes], lines: Iterator[bytes]) -> None:
    """Write lines to the pager until it is closed, and wait for its end; Ctrl-C is left to the pager."""
    import signal

    assert pager.stdin is not None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):  # the user has quit the pager
            pager.stdin.writelines(lines)
    finally:
        with suppress(BrokenPipeError):
            pager.stdin.close()
        pager.wait()
        signal.signal(signal.SIGINT, before)
