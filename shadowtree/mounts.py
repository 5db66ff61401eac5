"""Which file systems a directory lies on, as Linux tells it, and whether that changed since.

The kernel tells of changes that are made through it. On a network or FUSE file system others make changes
too, and of those nobody is told: only of types that are known to be local is anything expected.
"""

from __future__ import annotations

import errno
import os
import select

from shadowtree.system import O_CLOEXEC

_LOCAL_TYPES = frozenset(
    b"bcachefs btrfs erofs exfat ext2 ext3 ext4 f2fs hfsplus iso9660 jfs nilfs2 ntfs3 overlay ramfs reiserfs"
    b" squashfs tmpfs udf vfat xfs zfs".split()
)

Mount = tuple[bytes, bytes, bytes]
"""Where it is, its type, and the number of its device."""


class Mounts:
    """The mounts that a directory lies on or that lie in it."""

    def __init__(self, root: bytes) -> None:
        """Raise OSError where the system does not tell."""
        self._root = root
        self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLERR | select.POLLPRI)
        self._known = self._read()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def have_changed(self) -> bool:
        """Tell whether something was mounted or unmounted since; of changes elsewhere it is silent."""
        if not self._poll.poll(0):
            return False
        try:
            before, self._known = self._known, self._read()
        except OSError:
            return True
        return self._known != before

    def find_foreign(self) -> str | None:
        """Name the type of a file system here on which others may make changes."""
        foreign = (kind for _, kind, _ in self._known if kind not in _LOCAL_TYPES)
        return next((os.fsdecode(kind) for kind in foreign), None)

    def _read(self) -> list[Mount]:
        mounts = _parse(self._read_table())
        around = [mount for mount in mounts if _is_below(self._root, mount[0])]
        inside = [mount for mount in mounts if mount[0] != self._root and _is_below(mount[0], self._root)]
        # Of those around it the nearest one counts, and of several at one place the last.
        nearest = max(around, key=lambda mount: len(mount[0]), default=None)
        nearest = next((mount for mount in reversed(around) if nearest and mount[0] == nearest[0]), None)
        return [nearest, *inside] if nearest is not None else inside

    def _read_table(self) -> bytes:
        os.lseek(self._fd, 0, os.SEEK_SET)
        table = b""
        while piece := os.read(self._fd, 1 << 16):
            table += piece
        return table


def _parse(table: bytes) -> list[Mount]:
    """Read lines like `36 35 98:0 /root /where rw,noatime master:1 - ext3 /dev/root rw`."""
    mounts = []
    for line in table.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 6 or not after:
            # Somebody mounts something in this very moment; whoever asks again is told that it changed.
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        mounts.append((_unescape(fields[4]), after.split(b" ", 1)[0], fields[2]))
    return mounts


def _unescape(text: bytes) -> bytes:
    """Turn the octal numbers that stand for blanks and backslashes back."""
    first, *rest = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _is_below(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")
