"""System calls that differ between Linux and macOS, or that Python does not offer, each with a fallback.

Also what the system knows about this process, the machine, and the process at the other end of a socket.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

IS_LINUX = sys.platform.startswith("linux")
IS_MAC = sys.platform == "darwin"

_FS_IOC_GETVERSION = 0x80087601
"""Linux: the ioctl that reads the generation number of an inode."""
_FS_IOC_GETFLAGS = 0x80086601
"""Linux: the ioctl that reads the attributes of an inode, such as `_FS_CASEFOLD`."""
_FS_CASEFOLD = 0x40000000
_MAX_HANDLE_BYTES = 128
_AT_EMPTY_PATH = 0x1000
"""Linux: the size of the largest file handle, and the flag for the handle of an open file itself."""

_RENAME = "renameatx_np" if IS_MAC else "renameat2"
_EXCHANGE = 2  # RENAME_EXCHANGE, on macOS RENAME_SWAP
_NO_REPLACE = 4 if IS_MAC else 1
_RENAMEAT2_NUMBERS = {"x86_64": 316, "aarch64": 276}
"""Linux: the number of the system call by machine, for C libraries that have no function for it."""
_NOT_OFFERED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""The errors of a system or a file system that cannot rename in these ways."""
_NO_HARD_LINK = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_FULL_SYNC = 51
"""macOS: F_FULLFSYNC. F_BARRIERFSYNC (85) only keeps writes in order, and is not enough for us."""
_NO_FULL_SYNC = {errno.EINVAL, errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP}
"""The errors of a file system without it, such as SMB."""
_START_WRITING = 2
"""Linux: the flag of `sync_file_range` that starts writing without waiting."""
_FIRST_HONEST_SYNCFS = (5, 17)
"""Linux: before 5.8, `syncfs` reported no errors; before 5.17, none about the file system's metadata."""
_TMPFS = 0x01021994
_SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0x794C7630, _TMPFS}
"""Linux: ext4, XFS, btrfs, overlayfs, tmpfs. Others may do less in `syncfs` than in `fsync`, as FUSE does."""


_SOL_SOCKET, _SO_PEERCRED = 1, 17
"""Linux: the option that identifies the process at the other end of a socket."""
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
"""macOS: the same option."""


def exchange(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
    """Swap two names atomically; each can be a file, a link or a directory.

    If the file system cannot do that, this takes three renames and a third name, `b` followed by `-x`. Then
    each name is missing for a short time, and a process that dies in between leaves the third name. None of
    the renames replaces anything, and if one fails, the earlier ones are reversed. That is impossible if
    another process creates `a` in between: then FileExistsError is raised, `b` is the former `a`, and the
    third name is the former `b`.
    """
    try:
        _rename(a_fd, a, b_fd, b, _EXCHANGE)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
        _exchange_by_moves(a_fd, a, b_fd, b)


def _exchange_by_moves(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
    third = b + b"-x"
    move(b_fd, b, b_fd, third)
    try:
        move(a_fd, a, b_fd, b)
        try:
            move(b_fd, third, a_fd, a)
        except OSError:
            move(b_fd, b, a_fd, a)
            raise
    except OSError:
        move(b_fd, third, b_fd, b)
        raise


def move(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
    """Rename atomically and without replacing anything; raise FileExistsError if `b` exists.

    If the file system cannot do that, a file or link gets its second name before it loses its first one; a
    process that dies in between leaves both names. For directories, and without hard links, this can only
    check first that there is no `b`: if another process creates `b` right after the check, it is replaced,
    unless it is a directory that is not empty.
    """
    try:
        _rename(a_fd, a, b_fd, b, _NO_REPLACE)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
        if not _move_by_link(a_fd, a, b_fd, b):
            _move_after_a_look(a_fd, a, b_fd, b)


def _move_by_link(a_fd: int, a: bytes, b_fd: int, b: bytes) -> bool:
    if stat.S_ISDIR(_look(a_fd, a).st_mode):
        return False
    try:
        os.link(a, b, src_dir_fd=a_fd, dst_dir_fd=b_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINK:
            return False
        raise
    try:
        # Another process may have replaced `a` meanwhile: the new file was not moved, so it is not unlinked.
        if os.path.samestat(_look(a_fd, a), _look(b_fd, b)):
            os.unlink(a, dir_fd=a_fd)
    except FileNotFoundError:
        return True
    return True


def _move_after_a_look(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
    try:
        _look(b_fd, b)
    except FileNotFoundError:
        os.rename(a, b, src_dir_fd=a_fd, dst_dir_fd=b_fd)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), a, None, b)


def _look(directory_fd: int, name: bytes) -> os.stat_result:
    return os.stat(name, dir_fd=directory_fd, follow_symlinks=False)


def _rename(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
    if b"\0" in a or b"\0" in b:
        # In C it would end the name, and another file would be renamed.
        raise ValueError("embedded null byte")
    code = _call_c(_RENAME, a_fd, a, b_fd, b, way)
    if code:
        raise OSError(code, os.strerror(code), a, None, b)


def is_being_written(fd: int) -> bool:
    """Return whether a process has a file open or mapped for writing; False if the system cannot tell.

    `fd` must be open for reading only, or it counts itself. Linux grants a read lease only while the file has
    no writer. The lease is returned at once; a process that opens the file for writing in between waits for
    that. There are no leases on other platforms, on some file systems such as NFS and FUSE, and, except for
    root, on files of other users.
    """
    if not IS_LINUX:
        return False
    import fcntl
    import signal

    try:
        # The holder of a lease that is broken gets a signal. SIGIO would end this process, SIGURG is ignored.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def start_writeback(fd: int) -> None:
    """Start writing a file to the disk, without waiting.

    Doing this for many files first makes it cheaper to sync them one by one. The sync must follow: only it
    makes the file durable and reports errors.
    """
    if IS_LINUX:
        _call_c("sync_file_range", fd, 0, 0, _START_WRITING)


def sync(fd: int) -> None:
    """Make the content of an open file, or the names in an open directory, durable.

    On macOS `fsync` hands the data to the drive, which may keep it in a cache that a power cut empties;
    F_FULLFSYNC waits for the drive. If the file system does not offer that, `fsync` has to do.
    """
    if IS_MAC:
        import fcntl

        try:
            fcntl.fcntl(fd, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(fd)


def sync_file_system(fd: int) -> bool:
    """Make all contents and names durable on the file system of an open file or directory.

    Return False if that is not reliable here: then nothing is promised, and the caller has to sync each file.
    Unwritten data of other programs is written too, which may take long, and errors may be about that data.
    """
    if not IS_LINUX or _linux_version() < _FIRST_HONEST_SYNCFS:
        return False
    if _file_system_kind(fd) not in _SYNCED_AS_A_WHOLE:
        return False
    code = _call_c("syncfs", fd)
    if code and code != errno.ENOSYS:
        raise OSError(code, os.strerror(code))
    return not code


def unwritten_bytes() -> int:
    """Return how many bytes wait to be written to the disks of this machine; 0 if unknown."""
    try:
        with open("/proc/meminfo", "rb") as file:
            found = file.read().partition(b"\nDirty:")[2].split(None, 1)
    except OSError:
        return 0
    return int(found[0]) * 1024 if found and found[0].isdigit() else 0


def _linux_version() -> tuple[int, int]:
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _file_system_kind(fd: int) -> int:
    """Return Linux's number for the type of a file system; 0 if unknown."""
    from array import array

    figures = array("Q", bytes(512))
    code = _call_c("fstatfs", fd, figures.buffer_info()[0])
    return 0 if code else figures[0] & 0xFFFFFFFF


def try_lock(fd: int) -> bool:
    """Take the exclusive lock on an open file if it is free; the kernel frees it when its holder dies."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_lock(fd: int) -> None:
    """Free the lock, even if a child process that was forked meanwhile shares the open file."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        # A file system that does not lock directories; closing will do.
        return


def directory_generation(path: str) -> int | None:
    """Return a number that differs when an inode number is reused; None if the file system has none."""
    if not IS_LINUX:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        generation = _ask_file_system(fd, _FS_IOC_GETVERSION)
        if generation is None and _file_system_kind(fd) == _TMPFS:
            return _digest_handle(fd)
        return generation
    finally:
        os.close(fd)


def _digest_handle(fd: int) -> int | None:
    """Return a checksum of the handle of an open directory; None if there are no handles.

    An NFS server identifies a file by its handle. On tmpfs, the handle contains the generation, which is not
    available otherwise; every tmpfs counts its inodes from the same number.
    """
    from array import array
    from binascii import crc32

    # Its size, its type, and room for the largest one.
    handle, mount = array("I", [_MAX_HANDLE_BYTES, 0, *[0] * (_MAX_HANDLE_BYTES // 4)]), array("i", [0])
    places = handle.buffer_info()[0], mount.buffer_info()[0]
    if _call_c("name_to_handle_at", fd, b"", *places, _AT_EMPTY_PATH):
        return None
    return crc32(handle.tobytes())


def folds_names(fd: int) -> bool:
    """Return whether a directory on Linux has the attribute by which `a` and `A` are the same name."""
    return bool((_ask_file_system(fd, _FS_IOC_GETFLAGS) or 0) & _FS_CASEFOLD)


def _ask_file_system(fd: int, request: int) -> int | None:
    """Read a number about an open file by ioctl; None if the file system has none."""
    import fcntl

    answer = bytearray(8)
    try:
        fcntl.ioctl(fd, request, answer)
    except OSError:
        return None
    return int.from_bytes(answer[:4], sys.byteorder)


def free_bytes(path: str) -> int:
    """Return how many bytes an ordinary user can still write on the disk of `path`."""
    figures = os.statvfs(path)
    return figures.f_bavail * figures.f_frsize


def file_system_id(path: str) -> int | None:
    """Return the id of a path's file system, which most file systems keep forever; None if it has none."""
    try:
        return os.statvfs(path).f_fsid or None
    except OSError:
        return None


def has_no_room(directory: str) -> bool:
    """Return whether a disk has no room, in bytes or in inodes, for a few small files."""
    figures = os.statvfs(directory)
    return figures.f_bavail * figures.f_frsize < 1 << 16 or (figures.f_files > 0 and figures.f_favail < 4)


def open_file_limit() -> int:
    """Return how many files this process may have open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 65536 if soft == resource.RLIM_INFINITY else soft


def is_process_alive(pid: int) -> bool:
    """Return whether a process with this id runs on this machine; its id may have been reused."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def boot_id() -> str:
    """Return an id of the machine's present boot; empty if unknown, which never means the same boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def short_path(directory_fd: int, directory: str, name: str) -> str:
    """Return a short path of a name in an open directory: the address of a socket has about 100 characters.

    Without `/proc` this is the whole path, which the system refuses if it is too long.
    """
    if IS_LINUX and os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{directory_fd}/{name}"
    return os.path.join(directory, name)


def peer_user(connection: socket) -> int:
    """Return the user id of the process at the other end of a Unix socket."""
    if IS_MAC:
        # A version, the uid, and the groups.
        credentials = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    else:
        # pid, uid and gid of the process that connected, or that listened.
        credentials = connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def file_system_view() -> str:
    """Return a text that differs between processes for which paths lead to other files, as in a container."""
    root = os.stat("/")
    try:
        mounts = os.stat("/proc/self/ns/mnt").st_ino
    except OSError:
        mounts = 0
    return f"{mounts}:{root.st_dev}:{root.st_ino}"


_C_ARGUMENTS = {
    "fstatfs": ["c_int", "c_void_p"],
    "name_to_handle_at": ["c_int", "c_char_p", "c_void_p", "c_void_p", "c_int"],
    "renameat2": ["c_int", "c_char_p", "c_int", "c_char_p", "c_uint"],
    "renameatx_np": ["c_int", "c_char_p", "c_int", "c_char_p", "c_uint"],
    "sync_file_range": ["c_int", "c_int64", "c_int64", "c_uint"],
    "syncfs": ["c_int"],
}
"""Functions of the C library that Python does not offer. All of them return 0, or -1 and an errno."""

_c_functions: dict[str, Callable[..., int]] = {}
"""The functions that were called so far, wrapped so that they return the errno."""


def _call_c(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library; return 0 or its errno, ENOSYS if there is no such function."""
    if name not in _c_functions:
        _c_functions[name] = _find_c(name)
    return _c_functions[name](*arguments)


def _find_c(name: str) -> Callable[..., int]:
    try:
        # Imported here: it takes some milliseconds, and most commands do not need it.
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError, TypeError):
        # A Python without ctypes, or one that is linked statically.
        return _not_offered
    first: tuple[int, ...] = ()
    number = _RENAMEAT2_NUMBERS.get(os.uname().machine) if name == "renameat2" else None
    if hasattr(library, name):
        function = library[name]
    elif number is not None and sys.maxsize > 1 << 32:
        function, first = library["syscall"], (number,)
    else:
        return _not_offered
    kinds = ["c_long"] * len(first) + _C_ARGUMENTS[name]
    function.argtypes = [getattr(ctypes, kind) for kind in kinds]

    def call(*arguments: int | bytes) -> int:
        return ctypes.get_errno() if function(*first, *arguments) else 0

    return call


def _not_offered(*arguments: int | bytes) -> int:
    return errno.ENOSYS
