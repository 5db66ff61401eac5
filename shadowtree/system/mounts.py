"""The file systems that a directory is on, as listed by Linux, and whether that changed.

The kernel reports changes that are made through it. On a network or FUSE file system there are other changes,
which nobody reports. So only types of file systems that are known to be local are relied on.
"""

from __future__ import annotations

import errno
import os
import select

_LOCAL_TYPES = frozenset(
    b"bcachefs btrfs erofs ext2 ext3 ext4 f2fs nilfs2 overlay ramfs reiserfs squashfs tmpfs xfs zfs".split()
)
"""Types that report all changes. Those that ignore case, such as vfat, are not among them: if `A` is deleted
there, the kernel reports `A` even if the file is called `a`."""
_UNSTABLE_TYPES = frozenset(
    b"9p afs aufs cifs exfat fuse fuseblk msdos nfs nfs4 overlay smb3 smbfs vboxsf vfat virtiofs".split()
)
"""Types that may give a directory another inode number when they are mounted again."""
_UNKNOWN = b"unknown"

Mount = tuple[bytes, bytes, bytes]
"""The mount point, the type, and the device number."""


class Mounts:
    """The mount that a directory is on, and the mounts inside the directory."""

    def __init__(self, root: bytes) -> None:
        """Raise OSError if the system does not list its mounts."""
        self._root = root
        self._fd = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLERR | select.POLLPRI)
        self._known = self._read()

    def close(self) -> None:
        """Close the list of mounts."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self.close()

    def have_changed(self) -> bool:
        """Return whether the mounts of the directory changed since the last call.

        If something is mounted inside, every change in the system counts: one mount may have replaced another
        that had the same place, type and device.
        """
        if not self._poll.poll(0):
            return False
        try:
            before, self._known = self._known, self._read()
        except OSError:
            return True
        return self._known != before or len(before) > 1

    def find_holders(self) -> set[tuple[int, int]]:
        """Return device and inode of the directories in which a single file is mounted.

        Changes of such a file are reported where it really is.
        """
        holders = set()
        for place, _, _ in self._known[1:]:
            if not os.path.isdir(place):
                status = os.stat(os.path.dirname(place))
                holders.add((status.st_dev, status.st_ino))
        return holders

    @property
    def has_inside(self) -> bool:
        """Whether something is mounted below the directory."""
        return len(self._known) > 1

    @property
    def kind(self) -> bytes:
        """The type of the file system that the directory itself is on."""
        return self._known[0][1]

    def find_foreign(self) -> str | None:
        """Return the type of a file system here that does not report all changes; None if all do."""
        foreign = (kind for _, kind, _ in self._known if kind not in _LOCAL_TYPES)
        return next((os.fsdecode(kind) for kind in foreign), None)

    def _read(self) -> list[Mount]:
        mounts = _parse(self._read_table())
        around = [mount for mount in mounts if _is_below(self._root, mount[0])]
        inside = [mount for mount in mounts if mount[0] != self._root and _is_below(mount[0], self._root)]
        # Of the mounts above, the nearest one counts, and of several at the same place, the last one.
        nearest = max(reversed(around), key=lambda mount: len(mount[0]), default=None)
        # After a chroot, the mount of the root may not be in the list.
        return [nearest or (self._root, _UNKNOWN, b""), *inside]

    def _read_table(self) -> bytes:
        os.lseek(self._fd, 0, os.SEEK_SET)
        table = b""
        while piece := os.read(self._fd, 1 << 16):
            table += piece
        return table


def is_mount_point(path: str) -> bool:
    """Return whether a path is a mount point, even of a directory of the same file system."""
    if os.path.ismount(path):
        return True
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return any(place == os.fsencode(path) for place, _, _ in _parse(file.read()))
    except OSError:
        return False


def has_stable_inodes(path: str) -> bool:
    """Return whether a directory keeps its inode number forever; True if the system does not say."""
    try:
        mounts = Mounts(os.fsencode(path))
    except OSError:
        return True
    kind = mounts.kind
    mounts.close()
    return kind not in _UNSTABLE_TYPES and not kind.startswith(b"fuse.")


def _parse(table: bytes) -> list[Mount]:
    """Read lines like `36 35 98:0 /root /where rw,noatime master:1 - ext3 /dev/root rw`."""
    mounts = []
    for line in filter(None, table.split(b"\n")):
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 6 or not after:
            # The table changed while it was read; `have_changed` takes this error for a change.
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        mounts.append((_unescape(fields[4]), after.split(b" ", 1)[0], fields[2]))
    return mounts


def _unescape(text: bytes) -> bytes:
    """Replace the octal escapes for spaces and backslashes."""
    first, *rest = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def _is_below(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")
