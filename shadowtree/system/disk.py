"""The store's files on disk: every write that shadowtree makes into a store, apart from SQLite's own.

One place for modes (0600 and 0700 under any umask), for turning the system's errors into ours, and for
the tests, which count, fail or kill at each call through the fault point.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from shadowtree.base.errors import OutOfSpace, ShadowError, StoreFailed, UnsafePath, describe, is_full
from shadowtree.system import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO
    from types import TracebackType

TEMPORARY_PREFIX = "shadowtree-tmp-"
"""Whatever bears it and is found by the holder of the lock belongs to a process that died."""


def _no_fault(act: str, path: str) -> None:
    """Stand in for the fault layer of the tests."""


before_write: Callable[[str, str], None] = _no_fault
"""The fault point, called with the act and the path before each write, whoever makes it.

Other modules call it as `disk.before_write`, so that the tests reach all of them with one assignment.
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
        """Do nothing before."""

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
    """Make a directory and those above it that are missing; others may make them at the same time."""
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
    """Set the mode of an open file, whatever the umask took away."""
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
    """Cut a file to `size` bytes and go to its end."""
    before_write("truncate", path)
    with store_errors(path):
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)


def sync(fd: int, path: str) -> None:
    """Make a file's content durable. After a failure its pages may be gone: the file must be thrown away."""
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
    """Move a file to its final name, in place of what had it."""
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


def write_file(path: str, content: bytes, *, beside: str | None = None) -> None:
    """Replace a small file as a whole and durably: at any moment it has its old content or all of the new.

    The temporary is in the same directory, or in that of the file `beside`.
    """
    _replace(path, content, os.path.dirname(beside or path), is_durable=True)
    sync_names(os.path.dirname(path))


def place_file(path: str, content: bytes) -> None:
    """Replace a small file as a whole, and do not wait: after a power cut it may be torn, or not there."""
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
    """Copy a file of the store, durably, to where nothing is."""
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
    """Make the content of a file durable that somebody else wrote."""
    with store_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sync(fd, path)
    finally:
        os.close(fd)


def name_temporary(directory: str) -> str:
    """Make up a name that nobody has, for a file that is not finished."""
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
    """Open a file of the store; if somebody put a pipe in its place, nobody waits for its other end."""
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
    """Remove a directory that shadowtree made, with all that is in it."""
    before_write("remove tree", directory)
    import shutil

    with store_errors(directory):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            # Another process is removing the same one.
            shutil.rmtree(directory, ignore_errors=True)


def measure_tree(path: str) -> int:
    """Return how many bytes a file has, or all files below a directory; what is not there has none."""
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
        # Others may remove what is not needed any more.
        return 0


def require_own(path: str) -> os.stat_result:
    """Refuse a store that another user owns, and give its status."""
    with store_errors(path):
        status = os.lstat(path)
    if os.geteuid() != status.st_uid:
        raise UnsafePath(path, f"user {status.st_uid} owns it")
    return status


def require_private(path: str) -> None:
    """Refuse a store that another user owns or can write to."""
    status = require_own(path)
    if status.st_mode & 0o022:
        raise UnsafePath(path, "other users can write to it")


def require_trusted_parent(path: str) -> None:
    """Refuse a directory in which another user could put a store of theirs in place of ours."""
    with store_errors(path):
        status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafePath(path, f"user {status.st_uid} owns it")
    if status.st_mode & 0o002 and not status.st_mode & 0o1000:
        raise UnsafePath(path, "every user can write to it")
