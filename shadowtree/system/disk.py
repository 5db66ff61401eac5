"""The store's files on disk: how shadowtree reads and writes them, except for SQLite's databases.

This is the one place for modes (0600 and 0700 under any umask), for turning the system's errors into ours,
and for the fault point, by which tests count the writes, make them fail, or kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep, time

from shadowtree.base.errors import OutOfSpace, ShadowError, StoreFailed, UnsafePath, describe, is_full
from shadowtree.system import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO
    from types import TracebackType

TEMPORARY_PREFIX = "shadowtree-tmp-"
"""The prefix of unfinished files. One that the lock holder finds belongs to a process that died."""
LOCK_SUFFIX = ".lock"
"""The suffix of the files by which git and dulwich lock others."""
_OWN_LOCK = b"shadowtree"
"""What a lock file of ours contains. Only the lock holder makes them, so it found one of a dead process."""
_STALE_LOCK_S = 5.0
"""The age from which another program's lock file counts as left behind: git holds them for milliseconds."""


def _no_fault(act: str, path: str) -> None:
    """Do nothing; tests replace this by their fault layer."""


before_write: Callable[[str, str], None] = _no_fault
"""The fault point, called before each write to a store, in any module, with the kind of write and the path.

Other modules call it as `disk.before_write`, so that one assignment in a test reaches all of them.
"""


def as_store_error(path: str, error: OSError) -> ShadowError:
    """Turn an error of the operating system into ours."""
    if is_full(error):
        return OutOfSpace(path)
    return StoreFailed(path, describe(error))


class store_errors:  # in lower case, as it is used like a function
    """Turn the operating system's errors about `path` into ours.

    A class, because a generator takes five times as long, and a snapshot enters dozens of them.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise as_store_error(self._path, error) from error


def make_directory(path: str) -> None:
    """Make one directory that only its owner can enter."""
    before_write("mkdir", path)
    with store_errors(path):
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)


def make_directories(path: str) -> None:
    """Make a directory and its missing parents; other processes may make them at the same time."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            make_directory(each)
        except StoreFailed:
            if not os.path.isdir(each):
                raise


def create_file(path: str) -> int:
    """Make a file that only its owner can read, and open it for reading and writing."""
    before_write("create", path)
    with store_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            make_private(fd)
        except OSError:
            os.close(fd)
            raise
        return fd


def make_private(fd: int) -> None:
    """Set the mode of an open file to 0600, whatever the umask is."""
    if os.fstat(fd).st_mode & 0o777 != 0o600:
        os.fchmod(fd, 0o600)


def write_all(fd: int, content: bytes | bytearray | memoryview, path: str) -> None:
    """Write everything at the file's present position."""
    before_write("write", path)
    with store_errors(path):
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]


def overwrite_at(fd: int, content: bytes, offset: int, path: str) -> None:
    """Write a few bytes over those at `offset`."""
    before_write("overwrite", path)
    with store_errors(path):
        os.pwrite(fd, content, offset)


def truncate(fd: int, size: int, path: str) -> None:
    """Truncate a file to `size` bytes, and seek to its end."""
    before_write("truncate", path)
    with store_errors(path):
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)


def sync(fd: int, path: str) -> None:
    """Make a file's content durable. After a failure its data may be lost: the file must be discarded."""
    before_write("fsync", path)
    with store_errors(path):
        syscalls.sync(fd)


def sync_names(directory: str) -> None:
    """Make the names in a directory durable."""
    before_write("fsync directory", directory)
    with store_errors(directory):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syscalls.sync(fd)
        finally:
            os.close(fd)


def rename(source: str, target: str) -> None:
    """Rename a file, and replace any file that has the target's name."""
    before_write("rename", target)
    with store_errors(target):
        os.replace(source, target)


def remove_file(path: str) -> None:
    """Remove a file; one that is gone already is fine."""
    before_write("unlink", path)
    with store_errors(path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return


@contextmanager
def hold_lock_file(path: str) -> Iterator[None]:
    """Hold the lock file by which git and dulwich keep others from changing a file; wait if they hold it."""
    lock = path + LOCK_SUFFIX
    before_write("create", lock)
    with store_errors(lock):
        while True:
            try:
                fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
            except FileExistsError:
                if not remove_stale_lock(lock):
                    sleep(0.02)
        with os.fdopen(fd, "wb") as file:
            file.write(_OWN_LOCK)
    try:
        yield
    finally:
        remove_file(lock)


def remove_stale_lock(lock: str) -> bool:
    """Remove a lock file if it is ours, or old, so that its process is dead. Only for the lock holder."""
    with store_errors(lock):
        try:
            age_s = time() - os.stat(lock).st_mtime
        except FileNotFoundError:
            return True
    is_stale = abs(age_s) > _STALE_LOCK_S or read_if_there(lock) == _OWN_LOCK
    if is_stale:
        remove_file(lock)
    return is_stale


def write_file(path: str, content: bytes, *, beside: str | None = None) -> None:
    """Replace a small file atomically and durably: at any time it has all of its old or of its new content.

    The temporary file is in the same directory, or in that of the file `beside`.
    """
    _replace(path, content, os.path.dirname(beside or path), is_durable=True)
    sync_names(os.path.dirname(path))


def place_file(path: str, content: bytes) -> None:
    """Replace a small file atomically, but not durably: after a power cut it may be torn or missing."""
    _replace(path, content, os.path.dirname(path), is_durable=False)


def _replace(path: str, content: bytes, directory: str, *, is_durable: bool) -> None:
    temporary = name_temporary(directory)
    fd = create_file(temporary)
    try:
        try:
            write_all(fd, content, temporary)
            if is_durable:
                sync(fd, temporary)
        finally:
            os.close(fd)
        rename(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def copy_file(source: str, target: str) -> None:
    """Copy a file of the store durably; the target must not exist."""
    import shutil

    fd = create_file(target)
    try:
        before_write("write", target)
        with store_errors(target), open_to_read(source) as file, os.fdopen(os.dup(fd), "wb") as copy:
            shutil.copyfileobj(file, copy)
        sync(fd, target)
    finally:
        os.close(fd)
    sync_names(os.path.dirname(target))


def set_mode(path: str, mode: int) -> None:
    """Set the permission bits of a file or directory of the store."""
    before_write("chmod", path)
    with store_errors(path):
        os.chmod(path, mode)


def sync_file(path: str) -> None:
    """Make the content of a file durable that other code wrote."""
    with store_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sync(fd, path)
    finally:
        os.close(fd)


def name_temporary(directory: str) -> str:
    """Return a unique path for an unfinished file."""
    return os.path.join(directory, f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}")


def remove_temporaries(directory: str) -> None:
    """Remove the unfinished files of processes that died; only for the holder of the store's lock."""
    with store_errors(directory):
        names = os.listdir(directory)
    for name in names:
        if name.startswith(TEMPORARY_PREFIX):
            remove_file(os.path.join(directory, name))


def read_file(path: str) -> bytes:
    """Read a small file of the store."""
    with store_errors(path), open_to_read(path) as file:
        return file.readall()


def open_to_read(path: str) -> FileIO:
    """Open a file of the store for reading, without blocking if a pipe was put in its place."""
    return open(path, "rb", buffering=0, opener=_open_at_once)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_if_there(path: str) -> bytes | None:
    """Read a small file of the store; None if there is none."""
    with store_errors(path):
        try:
            with open_to_read(path) as file:
                return file.readall()
        except (FileNotFoundError, NotADirectoryError):
            return None


def size_if_there(path: str) -> int:
    """Return how large a file of the store is; 0 if there is none."""
    with store_errors(path):
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0


def remove_tree(directory: str) -> None:
    """Remove a directory that shadowtree made, with everything in it."""
    before_write("remove tree", directory)
    import shutil

    with store_errors(directory):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            # Another process is removing the same one.
            shutil.rmtree(directory, ignore_errors=True)


def measure_tree(path: str) -> int:
    """Return the size of a file, or of all files below a directory; 0 if it does not exist."""
    try:
        with os.scandir(path) as entries:
            return sum(
                measure_tree(entry.path) if entry.is_dir(follow_symlinks=False) else _measure(entry.path)
                for entry in entries
            )
    except NotADirectoryError:
        return _measure(path)
    except OSError:
        return 0


def _measure(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        # Another process may have removed it.
        return 0


def require_own(path: str) -> os.stat_result:
    """Return the status of a store or a file in it; raise UnsafePath if another user owns it."""
    with store_errors(path):
        status = os.lstat(path)
    if os.geteuid() != status.st_uid:
        raise UnsafePath(path, f"user {status.st_uid} owns it")
    return status


def require_private(path: str) -> None:
    """Raise UnsafePath if another user owns a store or a file in it, or can write to it."""
    status = require_own(path)
    if status.st_mode & 0o022:
        raise UnsafePath(path, "other users can write to it")


def require_trusted_parent(path: str) -> None:
    """Raise UnsafePath if another user could replace a store in this directory by one of their own."""
    with store_errors(path):
        status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafePath(path, f"user {status.st_uid} owns it")
    if status.st_mode & 0o002 and not status.st_mode & 0o1000:
        raise UnsafePath(path, "every user can write to it")
