"""What the daemon did, in a small file: nobody sees it work, so somebody may want to know later."""

from __future__ import annotations

import os
import threading
import time

_MOST_BYTES = 64 * 1024
"""A log that is longer becomes the old one, in place of the one before."""


class Log:
    """Lines with the time before them. A log that cannot be written is no reason to fail."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()

    def write(self, line: str) -> None:
        """Add a line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = f"{stamp} {line.encode('ascii', 'backslashreplace').decode()}\n"
        try:
            with self._mutex:
                self._add(text.encode())
        except OSError:
            return

    def write_failure(self, error: BaseException) -> None:
        """Add a bug, with the way to it."""
        import traceback

        self.write("internal error:\n" + "".join(traceback.format_exception(error)).rstrip())

    def _add(self, content: bytes) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, content)
            size = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if size > _MOST_BYTES:
            os.replace(self._path, f"{self._path}.old")
