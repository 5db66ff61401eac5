"""Write into the worktree: stage files under temporary names, swap them with what is there, put them back.

The only module that changes a user's files (invariant 1), except that `agents/` writes agents' settings on
request. Everything is done from directory descriptors, one name at a time and never through a link. Decisions
are made in `moves`, which never removes a file that it has not verified after moving it aside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha1

from shadowtree.base.errors import OutOfSpace, WorktreeFailed, describe, is_full
from shadowtree.base.paths import (
    DIRECTORY,
    MODE_LINK,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    find_twins,
    is_own_temporary,
    parent_of,
    to_text,
)
from shadowtree.store.git_format import object_header, object_id
from shadowtree.system import disk
from shadowtree.system.files import (
    Cursor,
    Unreadable,
    Vanished,
    open_file,
    stamp_of,
    stream_file,
    why_unreadable,
)
from shadowtree.system.syscalls import (
    exchange,
    is_being_written,
    move,
    start_writeback,
    sync,
    sync_file_system,
    unwritten_bytes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MANY = 8
"""For at least this many files, syncing the whole file system costs less than syncing one by one."""
_UNWRITTEN_EACH = 512 << 10
"""The file system is not synced as a whole if more bytes than this, per file, wait to be written."""

THIRD_SUFFIX = b"-x"
"""Appended to a temporary's name when a swap needs a third name."""

Owner = tuple[int, int]
"""User and group."""
FileId = tuple[int, int, int, int]
"""Identifies a file, and changes when it is written to: inode, mtime in ns, size, mode."""

_ABSENT = (FileNotFoundError, NotADirectoryError, Vanished)
"""Raised by system calls on a path if nothing is there."""
NO_FILE = "not a regular file or link"
BEING_WRITTEN = "a program is writing to it"


class Writer:
    """The worktree, open for writing."""

    def __init__(
        self, root: str, unwritten: int | None = None, twins: Collection[RelPath] = frozenset()
    ) -> None:
        self._root = root
        self._twins = twins
        """Paths that count as present only if they are spelled exactly so on disk; see `tell_apart`."""
        self._unwritten = unwritten
        """How many bytes wait to be written to the disks; None to ask the system."""
        self._here = Cursor(root)
        self._there = Cursor(root)
        """A second cursor, for moves from one directory to another."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._here.__exit__()
        self._there.__exit__()

    def reopen(self) -> Writer:
        """Open the worktree again, without any directory that is already open."""
        return Writer(self._root, self._unwritten, self._twins)

    def tell_apart(self, paths: Iterable[RelPath]) -> None:
        """From now on, do not take one of these paths for another where the file system folds names.

        Searching a directory for a name is slow, so only paths that could be confused are checked.
        """
        self._twins = find_twins(paths)

    # Reading

    def state_of(self, path: RelPath, *, is_settled: bool = False) -> Answer:
        """Return what is at a path by reading it; if `is_settled`, Unknown if a program can write to it."""
        try:
            return self._state_of(path, is_settled=is_settled)
        except _ABSENT:
            return None
        except Unreadable as error:
            return Unknown(error.reason)
        except OSError as error:
            return Unknown(why_unreadable(error))

    def _state_of(self, path: RelPath, *, is_settled: bool) -> Answer:
        if path in self._twins and not self.is_spelled_so(path, {}):
            return None
        fd, name = self._open_parent(path)
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return DIRECTORY
        if stat.S_ISLNK(status.st_mode):
            return PathState(MODE_LINK, object_id(b"blob", os.readlink(name, dir_fd=fd)))
        if not stat.S_ISREG(status.st_mode):
            return Unknown(NO_FILE)
        with self._open(path) as (file_fd, before):
            if is_settled and is_being_written(file_fd):
                return Unknown(BEING_WRITTEN)
            digest = sha1(object_header(b"blob", before.st_size), usedforsecurity=False)
            for piece in stream_file(file_fd, before.st_size):
                digest.update(piece)
            if stamp_of(os.fstat(file_fd)) != stamp_of(before):
                return Unknown(BEING_WRITTEN)
        return PathState(stat.S_IFREG | before.st_mode & 0o777, digest.digest())

    def identify(self, path: RelPath) -> FileId | None:
        """Return the identity of what is at a path; None if nothing is there."""
        with _errors(path), suppress(*_ABSENT):
            if path not in self._twins or self.is_spelled_so(path, {}):
                fd, name = self._open_parent(path)
                return _identify(os.stat(name, dir_fd=fd, follow_symlinks=False))
        return None

    def is_spelled_so(self, path: RelPath, listed: dict[RelPath, Collection[bytes] | None]) -> bool:
        """Return whether a path and the directories above it have exactly these names on disk.

        `listed` caches the names in directories. In one that cannot be listed, every name counts as right.
        """
        for each in (path, *ancestors(path)):
            parent, _, name = each.rpartition(b"/")
            if parent not in listed:
                listed[RelPath(parent)] = self._list_set(RelPath(parent))
            names = listed[RelPath(parent)]
            if names is not None and name not in names:
                return False
        return True

    def _list_set(self, path: RelPath) -> Collection[bytes] | None:
        try:
            return frozenset(self.list_names(path) or ())
        except WorktreeFailed:
            return None

    def is_directory(self, path: RelPath) -> bool:
        """Return whether a directory is at a path."""
        found = self.identify(path)
        return found is not None and stat.S_ISDIR(found[3])

    def open_content(self, path: RelPath) -> tuple[int, Iterator[bytes]]:
        """Return the size of a file, or of a link's target, and its content in pieces."""
        with _errors(path):
            parent_fd, name = self._open_parent(path)
            if stat.S_ISLNK(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
                target = os.readlink(name, dir_fd=parent_fd)
                return len(target), iter([target])
            fd, status = open_file(parent_fd, name)
        return status.st_size, _read_and_close(fd, status.st_size, path)

    def is_beginning(self, path: RelPath, pieces: Iterable[bytes]) -> bool:
        """Return whether a file is the beginning of a content, such as one that was only partly staged."""
        try:
            with self._open(path) as (fd, status):
                left = status.st_size
                for piece in pieces:
                    wanted = bytes(piece[:left])
                    if b"".join(stream_file(fd, len(wanted))) != wanted:
                        return False
                    left -= len(wanted)
                return not left
        except (OSError, Unreadable, Vanished):
            return False

    def list_names(self, path: RelPath) -> list[bytes] | None:
        """List the names in a directory; None if there is no such directory."""
        with _errors(path), suppress(*_ABSENT):
            return [os.fsencode(name) for name in os.listdir(self._here.enter(path))]
        return None

    def is_empty(self, path: RelPath) -> bool:
        """Return whether an empty directory is at a path."""
        with _errors(path), suppress(*_ABSENT), os.scandir(self._here.enter(path)) as entries:
            return next(entries, None) is None
        return False

    # Staging

    def stage(
        self, path: RelPath, state: PathState, pieces: Iterable[bytes], *, instead_of: RelPath
    ) -> FileId:
        """Create a file, link or directory at a temporary path, complete and with its permission bits.

        Owners are not recorded: it gets the owner of what is at `instead_of`, as far as this user may set it.
        """
        disk.before_write("stage", to_text(path))
        with _errors(path):
            owner = self._owner_of(instead_of)
            parent_fd, name = self._open_parent(path)
            if state.is_directory:
                os.mkdir(name, dir_fd=parent_fd)
            elif state.is_link:
                os.symlink(b"".join(pieces), name, dir_fd=parent_fd)
            else:
                return _make_file(parent_fd, name, stat.S_IMODE(state.mode), pieces, owner)
            _give_away(name, owner, os.stat(name, dir_fd=parent_fd, follow_symlinks=False), parent_fd)
            return _identify(os.stat(name, dir_fd=parent_fd, follow_symlinks=False))

    def _owner_of(self, path: RelPath) -> Owner | None:
        """Return the owner of what is at a path, or, for root, of its directory if nothing is there."""
        while True:
            try:
                fd, name = self._open_parent(path)
                status = os.stat(name, dir_fd=fd, follow_symlinks=False) if name else os.fstat(fd)
            except _ABSENT:
                if os.geteuid() != 0:
                    return None
                path = parent_of(path)
            else:
                return status.st_uid, status.st_gid

    def append(self, path: RelPath, content: bytes) -> None:
        """Append to a file, durably, or create it; nothing in it is overwritten.

        If the disk is full, only a part may be written, which then stays.
        """
        disk.before_write("append", to_text(path))
        with _errors(path):
            owner = self._owner_of(path)
            parent_fd, name = self._open_parent(path)
            fd = os.open(name, _APPEND, 0o666, dir_fd=parent_fd)
            try:
                _give_away(fd, owner, os.fstat(fd))
                _write_all(fd, content)
                os.fsync(fd)
            finally:
                os.close(fd)
        self.sync_directories([parent_of(path)])

    # Moving

    def exchange(self, temporary: RelPath, path: RelPath) -> None:
        """Swap two entries in one step."""
        disk.before_write("exchange", to_text(path))
        with _errors(path):
            here, name = self._open_parent(path)
            there, other = self._open_parent(temporary, self._there)
            # In this order, a third name, if the swap needs one, is a temporary of ours too.
            exchange(here, name, there, other)
        self._forget(path)
        self._forget(temporary)

    def move(self, source: RelPath, target: RelPath) -> None:
        """Rename an entry; the new name must be free."""
        disk.before_write("move", to_text(target))
        with _errors(target):
            here, name = self._open_parent(source)
            there, other = self._open_parent(target, self._there)
            move(here, name, there, other)
        self._forget(source)
        self._forget(target)

    def remove(self, path: RelPath) -> None:
        """Unlink a file or a link."""
        disk.before_write("unlink", to_text(path))
        with _errors(path):
            fd, name = self._open_parent(path)
            os.unlink(name, dir_fd=fd)

    def remove_directory(self, path: RelPath) -> None:
        """Remove an empty directory."""
        disk.before_write("rmdir", to_text(path))
        with _errors(path):
            self._forget(path)
            fd, name = self._open_parent(path)
            os.rmdir(name, dir_fd=fd)

    def change_mode(self, path: RelPath, mode: int, file: tuple[int, int] | None) -> bool:
        """Change the permission bits of a file, and nothing else; False if another file is there by now.

        `file` is the inode and the mtime that are expected: an editor may save at this very moment.
        """
        disk.before_write("chmod", to_text(path))
        with _errors(path), self._open(path) as (fd, status):
            if _identify(status)[:2] != file:
                return False
            # Bits above these are not recorded, so they stay as they are.
            os.fchmod(fd, mode & 0o777 | status.st_mode & 0o7000)
            sync(fd)
            return True

    # Durability

    def sync_files(self, paths: Collection[RelPath]) -> None:
        """Make the contents of staged files durable; their names are synced later."""
        if self._sync_file_systems({parent_of(path) for path in paths}, len(paths)):
            return
        if len(paths) >= _MANY:
            for path in paths:
                self._with_file(path, start_writeback)
        for path in paths:
            disk.before_write("fsync", to_text(path))
            self._with_file(path, sync)

    def sync_directories(self, paths: Collection[RelPath]) -> None:
        """Make the names in directories durable."""
        if self._sync_file_systems(paths, len(paths)):
            return
        for path in sorted(paths):
            disk.before_write("fsync directory", to_text(path))
            with _errors(path):
                sync(self._here.enter(path))

    def _with_file(self, path: RelPath, do: Callable[[int], object]) -> None:
        with _errors(path):
            parent_fd, name = self._open_parent(path)
            try:
                fd, _ = open_file(parent_fd, name)
            except Vanished:
                # A link or a directory has nothing to sync but its name.
                return
            try:
                do(fd)
            finally:
                os.close(fd)

    def _sync_file_systems(self, paths: Collection[RelPath], count: int) -> bool:
        """Sync the file systems of some directories if that is faster and reliable; return whether it did."""
        if count < _MANY:
            return False
        unwritten = unwritten_bytes() if self._unwritten is None else self._unwritten
        if unwritten > count * _UNWRITTEN_EACH:
            return False
        disk.before_write("syncfs", self._root)
        seen: set[int] = set()
        for path in sorted(paths):
            with _errors(path):
                fd = self._here.enter(path)
                device = os.fstat(fd).st_dev
                if device not in seen and not sync_file_system(fd):
                    return False
                seen.add(device)
        return True

    # Places

    def _open_parent(self, path: RelPath, cursor: Cursor | None = None) -> tuple[int, bytes]:
        parent, _, name = path.rpartition(b"/")
        return (cursor or self._here).enter(RelPath(parent)), name

    @contextmanager
    def _open(self, path: RelPath) -> Iterator[tuple[int, os.stat_result]]:
        """Open a regular file to read it."""
        fd, status = open_file(*self._open_parent(path))
        try:
            yield fd, status
        finally:
            os.close(fd)

    def _forget(self, path: RelPath) -> None:
        """Make the cursors leave a directory that was renamed or removed."""
        for cursor in (self._here, self._there):
            cursor.leave(path)


def _make_file(
    parent_fd: int, name: bytes, mode: int, pieces: Iterable[bytes], owner: Owner | None
) -> FileId:
    fd = os.open(name, _CREATE, 0o600, dir_fd=parent_fd)
    try:
        for piece in pieces:
            _write_all(fd, piece)
        _give_away(fd, owner, os.fstat(fd))
        os.fchmod(fd, mode)
        return _identify(os.fstat(fd))
    finally:
        os.close(fd)


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _give_away(
    file: int | bytes, owner: Owner | None, status: os.stat_result, parent_fd: int | None = None
) -> None:
    """Set the owner of a file, or at least its group, as far as this user may."""
    if owner is None or owner == (status.st_uid, status.st_gid):
        return
    for uid, gid in (owner, (-1, owner[1])):
        try:
            if isinstance(file, int):
                os.fchown(file, uid, gid)
            else:
                os.chown(file, uid, gid, dir_fd=parent_fd, follow_symlinks=False)
        except OSError:
            # Not permitted: then the file belongs to this user.
            continue
        return


def _read_and_close(fd: int, size: int, path: RelPath) -> Iterator[bytes]:
    """Yield the content of an open file; raise WorktreeFailed if it has fewer bytes than `size` by now."""
    try:
        with _errors(path):
            for piece in stream_file(fd, size):
                size -= len(piece)
                yield piece
        if size:
            raise WorktreeFailed(to_text(path), BEING_WRITTEN)
    finally:
        os.close(fd)


def _identify(status: os.stat_result) -> FileId:
    if stat.S_ISDIR(status.st_mode):
        return status.st_ino, 0, 0, stat.S_IFDIR
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


@contextmanager
def _errors(path: RelPath) -> Iterator[None]:
    """Turn system errors about a path into our own."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise OutOfSpace(_name(path)) from error
        raise WorktreeFailed(_name(path), describe(error)) from error
    except Vanished as error:
        raise WorktreeFailed(_name(path), "its directory no longer exists") from error
    except Unreadable as error:
        raise WorktreeFailed(_name(path), error.reason) from error


def _name(path: RelPath) -> str:
    """Name a path in an error: a temporary, which users do not know, by its directory."""
    is_temporary = is_own_temporary(path.rpartition(b"/")[2])
    return to_text(parent_of(path) if is_temporary else path) or "."
