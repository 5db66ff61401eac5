"""The user's files, read by directory descriptor and never through a symbolic link.

Directories are opened one name at a time, from a descriptor of the root on, so a path of any length and depth
works, and a directory that is swapped for a link is noticed instead of followed. Nothing here writes; that is
done by `revert/writer`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator

from shadowtree.base.errors import WorktreeFailed, describe
from shadowtree.base.paths import ROOT, RelPath
from shadowtree.system.syscalls import open_file_limit

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_VANISHED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK, errno.ENXIO}
"""The errors of opening a missing file, a link without following it, or a socket."""
_OWN_TROUBLE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that are about the process or the machine, not about the file."""
_READ_SIZE = 1 << 20
_TRIES = 10
_FINE_WINDOW_NS = 100_000_000
_COARSE_WINDOW_NS = 2_500_000_000
_LARGE_SIZE = 1 << 20

KEPT_CHANGING = "kept changing while it was read"
CHANGED_TYPE = "changed its type while it was read"
_UNREADABLE = "cannot be read"

INODE_MASK = (1 << 63) - 1
"""Makes an inode number, which is unsigned, fit into a signed integer like the other numbers of a stamp."""

FileStamp = tuple[int, int, int, int, int]
"""Shows that a file has not changed: mtime and ctime in ns, size, inode, mode."""


class Unreadable(Exception):
    """A file that cannot be covered now, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class TooLong(Exception):
    """A file that is longer than its reader can hold."""


class Vanished(Exception):
    """A file or directory that is gone, or is something else by now."""


_LATEST_NS = (1 << 63) - 1


def stamp_of(status: os.stat_result) -> FileStamp:
    """Return the stamp of a file, from its status."""
    return (
        clamp(status.st_mtime_ns),
        clamp(status.st_ctime_ns),
        status.st_size,
        status.st_ino & INODE_MASK,
        status.st_mode,
    )


def stamp_of_directory(status: os.stat_result) -> tuple[int, int, int]:
    """Return the stamp of a directory, from its status."""
    return clamp(status.st_mtime_ns), clamp(status.st_ctime_ns), status.st_ino


def clamp(time_ns: int) -> int:
    """Return a time that fits into 64 bits: files may bear any, such as one in the year 2400."""
    if -_LATEST_NS <= time_ns <= _LATEST_NS:
        return time_ns
    return _LATEST_NS if time_ns > 0 else -_LATEST_NS


def is_young(stamp: tuple[int, ...], now_ns: int) -> bool:
    """Return whether a stamp is so young that a write that began before `now_ns` may still be going on.

    A call that writes stamps the file when it begins, and may then be delayed; a mapping stamps it once for
    many writes.
    """
    return max(stamp[:2]) >= now_ns - _COARSE_WINDOW_NS


def is_racy(mtime_ns: int, ctime_ns: int, now_ns: int, size: int = 0) -> bool:
    """Return whether a change at or after `now_ns` could leave both times as they are.

    Kernels stamp files in ticks of up to 10 ms. Some file systems keep only whole seconds, which shows in a
    ctime without a fraction (programs cannot set a ctime). A call that writes a lot stamps the file when it
    begins and may go on for a while, so large files have to be older too.
    """
    is_fine = ctime_ns % 1_000_000 and size <= _LARGE_SIZE
    window_ns = _FINE_WINDOW_NS if is_fine else _COARSE_WINDOW_NS
    return max(mtime_ns, ctime_ns) >= now_ns - window_ns


class Cursor:
    """A place in the worktree: open descriptors of a directory and of some directories above it.

    Moving to another directory opens only those that differ, and the number of open descriptors stays within
    the system's limit, however deep the tree is.
    """

    def __init__(self, root: str) -> None:
        self._limit = max(3, min(64, (open_file_limit() - 24) // 6))
        self._names: list[bytes] = []
        self._path: RelPath | None = ROOT
        try:
            self._fds: list[int] = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        except OSError as error:
            raise WorktreeFailed(root, describe(error)) from error

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close_from(0)

    def enter(self, path: RelPath) -> int:
        """Open a directory; raise Vanished if it no longer is one, Unreadable if it cannot be opened.

        The descriptor belongs to the cursor, and is valid until the next call.
        """
        if path != self._path:
            parent, _, name = path.rpartition(b"/")
            # In a deep tree, splitting and comparing whole paths at each step down would be quadratic.
            is_child = bool(path) and parent == self._path
            for each in [name] if is_child else self._climb(path):
                self._descend(each)
            self._path = path
        return self._fds[-1]

    def _climb(self, path: RelPath) -> list[bytes]:
        """Go up to the nearest open directory at or above `path`; return the names from there on."""
        self._path = None
        names = path.split(b"/") if path else []
        keep = 0
        for mine, wanted in zip(self._names, names, strict=False):
            if mine != wanted:
                break
            keep += 1
        while keep >= len(self._fds) or self._fds[keep] < 0:
            keep -= 1
        self._close_from(keep + 1)
        del self._names[keep:]
        return names[keep:]

    def leave(self, path: RelPath) -> None:
        """Close a directory that was renamed, and all directories below it."""
        names = path.split(b"/")
        if self._names[: len(names)] == names:
            self._close_from(len(names))
            del self._names[len(names) - 1 :]
            self._path = None

    def _descend(self, name: bytes) -> None:
        # In this order: a name without its descriptor does no harm, a descriptor without its name would.
        self._path = None
        self._names.append(name)
        self._fds.append(_open(name, _OPEN_DIRECTORY, self._fds[-1]))
        # Once too many are open, one between the root and the deepest ones is closed.
        depth = len(self._fds) - self._limit
        if depth > 0 and self._fds[depth] >= 0:
            os.close(self._fds[depth])
            self._fds[depth] = -1

    def _close_from(self, depth: int) -> None:
        while len(self._fds) > depth:
            fd = self._fds.pop()
            if fd >= 0:
                os.close(fd)


def _open(name: bytes, flags: int, directory_fd: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory_fd)
    except OSError as error:
        if error.errno in _VANISHED:
            raise Vanished from error
        raise Unreadable(why_unreadable(error)) from error


def why_unreadable(error: OSError) -> str:
    """Return why a file is left out; raise WorktreeFailed if the process or the machine is the problem."""
    if error.errno in _OWN_TROUBLE:
        raise WorktreeFailed("the worktree", describe(error)) from error
    return f"{_UNREADABLE}: {describe(error)}"


def is_failure(reason: str) -> bool:
    """Return whether a file was left out because reading it failed, not because of what it is."""
    return reason in (KEPT_CHANGING, CHANGED_TYPE) or reason.startswith(_UNREADABLE)


def read_file(directory_fd: int, name: bytes, limit: int) -> tuple[FileStamp, bytes]:
    """Return the stamp of a regular file and its content at one moment; raise TooLong if it exceeds `limit`.

    If the file keeps changing, try a few times, then raise Unreadable.
    """
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(0.001 * attempt)
        fd, status = open_file(directory_fd, name)
        try:
            if status.st_size > limit:
                raise TooLong
            content = _read_once(fd, status)
        except OSError as error:
            raise Unreadable(why_unreadable(error)) from error
        finally:
            os.close(fd)
        if content is not None:
            return content
    raise Unreadable(KEPT_CHANGING)


def _read_once(fd: int, before: os.stat_result) -> tuple[FileStamp, bytes] | None:
    started_ns = time.time_ns()
    content = _read_all(fd, before.st_size)
    after = os.fstat(fd)
    stamp = stamp_of(before)
    if len(content) != before.st_size or stamp_of(after) != stamp:
        return None
    if is_racy(before.st_mtime_ns, before.st_ctime_ns, started_ns, before.st_size):
        # The clock of the file system may be too coarse to show a write while we read: read twice.
        os.lseek(fd, 0, os.SEEK_SET)
        if _read_all(fd, before.st_size) != content or stamp_of(os.fstat(fd)) != stamp:
            return None
    return stamp, content


def _read_all(fd: int, size: int) -> bytes:
    content = os.read(fd, size + 1)
    if len(content) == size or not content:
        return content
    parts = [content]
    left = size + 1 - len(content)
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def open_file(directory_fd: int, name: bytes) -> tuple[int, os.stat_result]:
    """Open a regular file without following a link or waiting for a FIFO; raise Vanished if it is none."""
    fd = _open(name, _OPEN_FILE, directory_fd)
    try:
        status = os.fstat(fd)
    except OSError as error:
        os.close(fd)
        raise Unreadable(why_unreadable(error)) from error
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise Vanished
    return fd, status


def stream_file(fd: int, size: int) -> Iterator[bytes]:
    """Yield the content of an open file in pieces, at most `size` bytes in total."""
    left = size
    while left > 0 and (piece := os.read(fd, min(left, _READ_SIZE))):
        left -= len(piece)
        yield piece


def read_link(directory_fd: int, name: bytes) -> tuple[FileStamp, bytes]:
    """Return the stamp and the target of a symbolic link, which is never followed."""
    try:
        target = os.readlink(name, dir_fd=directory_fd)
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in (*_VANISHED, errno.EINVAL):  # EINVAL: it is not a link
            raise Vanished from error
        raise Unreadable(why_unreadable(error)) from error
    # On some file systems links have the size 0.
    if not stat.S_ISLNK(status.st_mode) or status.st_size not in (0, len(target)):
        raise Vanished
    return stamp_of(status), target


def read_small_file(directory_fd: int, name: bytes, limit: int) -> tuple[FileStamp, bytes] | None:
    """Read a small regular file; None if there is none. Raise Unreadable if it exceeds `limit` bytes."""
    try:
        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return None
        return read_file(directory_fd, name, limit)
    except (FileNotFoundError, Vanished):
        return None
    except TooLong as error:
        raise Unreadable(f"larger than {limit} bytes") from error
    except OSError as error:
        raise Unreadable(why_unreadable(error)) from error
