"""System calls that differ between Linux and macOS, or that Python does not offer, each with a fallback.

Also what the system knows of this process, its machine, and who is at the other end of a socket.
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
"""Linux: ask a file system for the generation number of an inode."""
_FS_IOC_GETFLAGS = 0x80086601
"""Linux: ask it for the attributes of one, of which this is one."""
_FS_CASEFOLD = 0x40000000
_MAX_HANDLE_BYTES = 128
_AT_EMPTY_PATH = 0x1000
"""Linux: the largest handle of a file, and that the open file itself is meant."""

_RENAME = "renameatx_np" if IS_MAC else "renameat2"
_EXCHANGE = 2
_NO_REPLACE = 4 if IS_MAC else 1
_RENAMEAT2_NUMBERS = {"x86_64": 316, "aarch64": 276}
"""Linux: the system call by machine, for C libraries that have no function for it."""
_NOT_OFFERED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What is answered by a system or a file system that cannot rename in these ways."""
_NO_HARD_LINK = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_FULL_SYNC = 51
"""macOS: F_FULLFSYNC. F_BARRIERFSYNC (85) only keeps writes in order, and is not enough for us."""
_NO_FULL_SYNC = {errno.EINVAL, errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What is answered by a file system without it, such as SMB."""
_START_WRITING = 2
"""Linux: the flag of `sync_file_range` by which it does not wait."""
_FIRST_HONEST_SYNCFS = (5, 17)
"""Linux: before 5.8 `syncfs` told of no error, before 5.17 of none in what the file system itself keeps."""
_TMPFS = 0x01021994
_SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0x794C7630, _TMPFS}
"""Linux: ext4, XFS, btrfs, overlayfs, tmpfs. Others may do less in `syncfs` than in `fsync`, as FUSE does."""


_SOL_SOCKET, _SO_PEERCRED = 1, 17
"""Linux: ask a socket who is at its other end."""
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
"""macOS: the same."""


def exchange(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
    """Swap what two names stand for, in one instant; files, links and directories may be mixed.

    Where the file system cannot do so, it takes three renames and a third name, `b` followed by `-x`: each
    name is missing for a moment, and whoever dies in between leaves the third one. None of the three
    replaces anything, and if one fails the others are taken back. That cannot be done if somebody takes the
    name `a` in that moment: FileExistsError is raised, `b` is what was `a`, the third name what was `b`.
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
    """Rename in one instant, and never in place of something: FileExistsError if there is a `b`.

    Where the file system cannot do so, a file or a link gets its second name before it loses its first one;
    whoever dies in between leaves both. For directories, and where there are no hard links, a look whether
    there is a `b` must do: something of that name that somebody makes right after the look is replaced,
    unless it is a directory and not empty.
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
        # Somebody may have saved another file there meanwhile; that one is not moved, and not ours to unlink.
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
        # To C it would be the end of the name, and something else would be renamed.
        raise ValueError("embedded null byte")
    code = _call_c(_RENAME, a_fd, a, b_fd, b, way)
    if code:
        raise OSError(code, os.strerror(code), a, None, b)


def is_being_written(fd: int) -> bool:
    """Return whether some process has a file open for writing, or mapped so; False where nobody can say.

    `fd` must be open for reading only, or it counts itself. Linux grants a lease on reading while there is no
    writer; it is given back at once, and whoever opens the file for writing in between waits for that. There
    are no leases on other platforms, on some file systems such as NFS and FUSE, and, unless one is root, on
    files of other users.
    """
    if not IS_LINUX:
        return False
    import fcntl
    import signal

    try:
        # Who breaks a lease has its holder signalled. SIGIO would end this process, SIGURG is ignored.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def start_writeback(fd: int) -> None:
    """Let the disk begin to write a file, and do not wait.

    Done to many files, it makes it cheaper to sync them one by one. That must follow: nothing is durable yet,
    and what goes wrong is told only then.
    """
    if IS_LINUX:
        _call_c("sync_file_range", fd, 0, 0, _START_WRITING)


def sync(fd: int) -> None:
    """Make the content of an open file, or the names in an open directory, durable.

    On macOS `fsync` hands the data to the drive, which may keep it in a cache that a power cut empties;
    another call waits for the drive. Where the file system does not offer that one, `fsync` has to do.
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
    """Make everything durable on the file system of an open file or directory: contents and names.

    False: that cannot be relied on here, nothing is promised, and the caller has to sync file by file. What
    other programs have not written yet is written too, which may take long, and an error may be about theirs.
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
    """Return how much is waiting to be written to the disks of this machine; 0 where nobody tells."""
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
    """Return the number that Linux has for a kind of file system, or 0."""
    from array import array

    figures = array("Q", bytes(512))
    code = _call_c("fstatfs", fd, figures.buffer_info()[0])
    return 0 if code else figures[0] & 0xFFFFFFFF


def try_lock(fd: int) -> bool:
    """Take the exclusive lock on an open file if nobody holds it; the kernel frees it with its owner."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_lock(fd: int) -> None:
    """Free the lock, also for a child that was forked meanwhile and has the same open file."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        # A file system that does not lock directories; closing will do.
        return


def directory_generation(path: str) -> int | None:
    """Return a number that differs when a file system uses an inode number again; None where it has none."""
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
    """Return a number for the handle of an open directory; None where there are no handles.

    A handle is what an NFS server names a file by. That of a tmpfs holds the generation, of which nobody is
    told otherwise; inodes are counted from the same number whenever one is mounted.
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
    """Return whether a directory on Linux takes `a` and `A` for one name; only of those that are set to."""
    return bool((_ask_file_system(fd, _FS_IOC_GETFLAGS) or 0) & _FS_CASEFOLD)


def _ask_file_system(fd: int, request: int) -> int | None:
    """Ask Linux for a number about an open file; None where the file system has none."""
    import fcntl

    answer = bytearray(8)
    try:
        fcntl.ioctl(fd, request, answer)
    except OSError:
        return None
    return int.from_bytes(answer[:4], sys.byteorder)


def free_bytes(path: str) -> int:
    """Return how much an ordinary user may still write on the disk of `path`."""
    figures = os.statvfs(path)
    return figures.f_bavail * figures.f_frsize


def file_system_id(path: str) -> int | None:
    """Return a number that the file system of a path keeps, on most for ever; None where it has none."""
    try:
        return os.statvfs(path).f_fsid or None
    except OSError:
        return None


def has_no_room(directory: str) -> bool:
    """Return whether a disk is so full, in bytes or in files, that a small file does not fit any more."""
    figures = os.statvfs(directory)
    return figures.f_bavail * figures.f_frsize < 1 << 16 or (figures.f_files > 0 and figures.f_favail < 4)


def open_file_limit() -> int:
    """Return how many files this process may have open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 65536 if soft == resource.RLIM_INFINITY else soft


def is_process_alive(pid: int) -> bool:
    """Return whether a process of this number runs on this machine; another one may have got its number."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def boot_id() -> str:
    """Name the time since this machine was started; empty where nobody can say, and then nothing is equal."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def host_name() -> str:
    """Return the name of this machine."""
    return os.uname().nodename


def short_path(directory_fd: int, directory: str, name: str) -> str:
    """Name something in an open directory in few characters: the address of a socket has about a hundred.

    Where there is no such way it is the whole path, which is refused if it is too long.
    """
    if IS_LINUX and os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{directory_fd}/{name}"
    return os.path.join(directory, name)


def peer_user(connection: socket) -> int:
    """Return which user is at the other end of a Unix socket."""
    if IS_MAC:
        # A version, the uid, and the groups.
        credentials = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    else:
        # pid, uid and gid of whoever connected, or listened.
        credentials = connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def file_system_view() -> str:
    """Return a text that differs for processes that see other files under these names, as in a container."""
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
"""What Python does not offer of the C library. All of these give 0, or -1 and an errno."""

_c_functions: dict[str, Callable[..., int]] = {}
"""Those that were called so far, made to give the errno."""


def _call_c(name: str, *arguments: int | bytes) -> int:
    """Call a function of the C library; return 0 or its errno, ENOSYS if there is no such function."""
    if name not in _c_functions:
        _c_functions[name] = _find_c(name)
    return _c_functions[name](*arguments)


def _find_c(name: str) -> Callable[..., int]:
    try:
        # Some milliseconds, which only those commands pay that need it.
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
