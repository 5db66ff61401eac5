"""A program on a terminal of its own, whose screen can be read: texts, positions and styles."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import pyte

from tests.support.processes import COMMAND, surroundings

_SOON_S = 0.03
KEYS = {
    "up": "\x1bOA",
    "down": "\x1bOB",
    "right": "\x1bOC",
    "left": "\x1bOD",
    "page_up": "\x1b[5~",
    "page_down": "\x1b[6~",
    "home": "\x1bOH",
    "end": "\x1bOF",
    "enter": "\r",
    "escape": "\x1b",
    "backspace": "\x7f",
    "ctrl_c": "\x03",
}
"""What a terminal sends, in the mode that curses puts it into."""


class Screen:
    """Run a command line on a terminal, press keys, and wait for what appears."""

    def __init__(
        self,
        *words: str,
        directory: Path,
        lines: int = 24,
        columns: int = 80,
        variables: Mapping[str, str] = {},
    ) -> None:
        self._screen: Any = pyte.Screen(columns, lines)  # Any: pyte has no types
        self._stream: Any = pyte.ByteStream(self._screen)  # Any: likewise
        self.raw = b""
        """All bytes that the program wrote."""
        environment = surroundings(**{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **variables})
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execvpe(COMMAND[0], [*COMMAND, *words], environment)

    @property
    def lines(self) -> list[str]:
        """The text of each line."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The text of the screen."""
        return "\n".join(self.lines)

    @property
    def flat(self) -> str:
        """The text of the screen as one line, with single blanks."""
        return " ".join(self.text.split())

    @property
    def chosen(self) -> str:
        """The line under the cursor."""
        found = [line for line in self.lines[1:-1] if line.startswith("> ")]
        assert len(found) == 1, self.text
        return found[0]

    def styles(self, sign: str) -> Any:  # Any: a cell of pyte, with `fg`, `bold` and `reverse`
        """Return the style at the first place where a text begins."""
        for number, line in enumerate(self._screen.display):
            if sign in line:
                return self._screen.buffer[number][line.index(sign)]
        raise AssertionError(f"{sign!r} is not there:\n{self.text}")

    def press(self, *keys: str) -> None:
        """Press keys: their names, or texts."""
        for key in keys:
            self.type(KEYS.get(key, key).encode())

    def type(self, content: bytes) -> None:
        """Send bytes as they are."""
        os.write(self._terminal, content)

    def wait(self, wanted: str | Callable[[Screen], bool], timeout_s: float = 30) -> None:
        """Read until a text is on the screen, apart from blanks and line breaks, or something holds."""
        is_there = (lambda screen: wanted in screen.flat) if isinstance(wanted, str) else wanted
        deadline = monotonic() + timeout_s
        while not is_there(self):
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - monotonic()))
            assert ready, f"{wanted!r} does not appear:\n{self.text}"
            assert self._read(), f"it ended without {wanted!r}:\n{self.text}"
        # Read the rest of the same screen.
        while select.select([self._terminal], [], [], _SOON_S)[0] and self._read():
            pass

    def wait_for_line(self, sign: str) -> None:
        """Wait until the line under the cursor has a text."""
        self.wait(lambda screen: any(line.startswith("> ") and sign in line for line in screen.lines))

    def resize(self, lines: int, columns: int) -> None:
        """Change the size of the terminal."""
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def end(self, timeout_s: float = 30) -> int:
        """Wait for the end, and return the exit code."""
        deadline = monotonic() + timeout_s
        while True:
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - monotonic()))
            assert ready, f"it does not end:\n{self.text}"
            if not self._read():
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self._terminal)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def hang_up(self) -> None:
        """Take the terminal away, and wait for the end."""
        os.close(self._terminal)
        pid, self.pid = self.pid, 0
        os.waitpid(pid, 0)

    def close(self) -> None:
        """Kill it, if it is still there."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.end()

    def _read(self) -> bool:
        try:
            part = os.read(self._terminal, 65536)
        except OSError:  # EIO: the other side has closed the terminal
            return False
        self.raw += part
        self._stream.feed(part)
        return bool(part)
