"""A thin wrapper of Linux's inotify, by which the kernel reports changes in directories.

The kernel fills the queue within the very system call that changes a file. So the queue contains every change
that was complete when it is read, and it says so if it overflowed.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterator

from shadowtree.system.syscalls import IS_LINUX

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
UNMOUNT = 0x2000
OVERFLOW = 0x4000
IGNORED = 0x8000
ONLY_DIRECTORY = 0x01000000
NOT_UNLINKED = 0x04000000
IS_DIRECTORY = 0x40000000

_CHANGES = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
"""The changes to watch for. Not opening and reading: a search through the worktree would fill the queue."""
_MASK = _CHANGES | DELETE_SELF | MOVE_SELF | ONLY_DIRECTORY | NOT_UNLINKED
_HEAD = struct.Struct("iIII")
_READ_SIZE = 1 << 18

Event = tuple[int, int, bytes]
"""The number of the watch, what happened, and the name in the directory; empty for the directory itself."""


class Inotify:
    """One queue of events, with its watches."""

    def __init__(self) -> None:
        if not IS_LINUX:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        import ctypes

        self._c = ctypes.CDLL(None, use_errno=True)
        self._fd = self._check(self._c.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when there is something to read."""
        return self._fd

    def add(self, fd: int) -> int:
        """Watch the directory that is open as `fd`; return the number of the watch, new or existing."""
        return self._check(self._c.inotify_add_watch(self._fd, b"/proc/self/fd/%d" % fd, _MASK))

    def remove(self, watch: int) -> None:
        """Remove a watch; its events that are already in the queue are still read."""
        self._c.inotify_rm_watch(self._fd, watch)

    def read(self) -> Iterator[Event]:
        """Yield all events until now, in order, and as few as possible of those that follow."""
        from fcntl import ioctl
        from termios import FIONREAD

        left = int.from_bytes(ioctl(self._fd, FIONREAD, bytes(4)), sys.byteorder)
        while left > 0:
            try:
                content = os.read(self._fd, _READ_SIZE)
            except BlockingIOError:
                # Another call that interrupted this one, in the same thread, has read the rest.
                return
            left -= len(content)
            at = 0
            while at < len(content):
                watch, mask, _, size = _HEAD.unpack_from(content, at)
                at += _HEAD.size
                yield watch, mask, content[at : at + size].rstrip(b"\0")
                at += size

    def close(self) -> None:
        """Close the queue, and with it every watch."""
        # Cleared first: if this is interrupted, a second call must not close a file that got the same number.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def _check(self, answer: int) -> int:
        if answer < 0:
            import ctypes

            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return answer
