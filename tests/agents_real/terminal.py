"""A full-screen program in a terminal of its own: wait for words on its screen, and press keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

DOWN, ENTER, CONTROL_C = "\x1b[B", "\r", "\x03"
PATIENCE_S = 60.0
_PAUSE_S = 0.5
_REST_S = 5.0
"""Something that moves all the time is not waited for longer."""
_SIZE = struct.pack("HHHH", 50, 150, 0, 0)
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[P_^][^\x1b]*\x1b\\|\x1b\[[0-?]*[ -/]*[@-~]|\x1b."
)
_ANSWERS = {
    "\x1b[6n": b"\x1b[1;1R",
    "\x1b[c": b"\x1b[?62;c",
    "\x1b[?u": b"\x1b[?0u",
    "\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What a terminal says of itself when it is asked: where the cursor is, what it can do, its colours."""


class Terminal:
    """Runs a program until the block ends, which kills it."""

    def __init__(self, command: list[str], directory: Path, environ: dict[str, str]) -> None:
        self._shown = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.execve(command[0], command, {**environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, _SIZE)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._fd)

    def expect(self, words: str) -> None:
        """Wait until these words are shown; how many blanks are between them does not matter."""
        wanted = "".join(words.split())
        deadline_s = time.monotonic() + PATIENCE_S
        while wanted not in "".join(_ESCAPES.sub("", self._shown).split()):
            assert time.monotonic() < deadline_s, f"never saw {words!r}:\n{_ESCAPES.sub(' ', self._shown)}"
            self._read()

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, each when the screen has come to rest; forget what was shown."""
        for key in keys:
            deadline_s = time.monotonic() + _REST_S
            while self._read() and time.monotonic() < deadline_s:
                pass
            self._shown = ""
            os.write(self._fd, key.encode())

    def _read(self) -> bool:
        """Read what is shown next; False: for a while it was nothing."""
        if not select.select([self._fd], [], [], _PAUSE_S)[0]:
            return False
        try:
            text = os.read(self._fd, 1 << 16).decode("utf-8", "replace")
        except OSError as error:
            raise AssertionError(f"it has ended:\n{_ESCAPES.sub(' ', self._shown)}") from error
        for question, answer in _ANSWERS.items():
            if question in text:
                os.write(self._fd, answer)
        self._shown += text
        return True
