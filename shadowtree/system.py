"""What differs between operating systems, in one place, each with a fallback.

Nothing else in shadowtree asks which platform it runs on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

IS_WINDOWS = sys.platform == "win32"

O_BINARY = getattr(os, "O_BINARY", 0)
O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
O_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
O_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
O_NOCTTY = getattr(os, "O_NOCTTY", 0)

_FS_IOC_GETVERSION = 0x80087601
"""Linux: ask a file system for the generation number of an inode."""


def sync_directory(path: str) -> None:
    """Make the names in a directory durable; a platform that cannot open directories does it by itself."""
    if IS_WINDOWS:
        return
    fd = os.open(path, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the exclusive lock on an open file if nobody holds it; the kernel frees it with its owner."""
    if IS_WINDOWS:
        import msvcrt

        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # Windows only
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_lock(fd: int) -> None:
    """Free the lock, also for a child that was forked meanwhile and has the same open file."""
    if not IS_WINDOWS:
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError:
            # A file system that does not lock directories; closing will do.
            return


def directory_generation(path: str) -> int | None:
    """Give a number that differs when a file system uses an inode number again; None where it has none."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    answer = bytearray(8)
    try:
        fd = os.open(path, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.ioctl(fd, _FS_IOC_GETVERSION, answer)
    except OSError:
        return None
    finally:
        os.close(fd)
    return int.from_bytes(answer[:4], sys.byteorder)


def free_bytes(path: str) -> int:
    """Tell how much an ordinary user may still write on the disk of `path`."""
    if hasattr(os, "statvfs"):
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize
    import shutil

    return shutil.disk_usage(path).free


def has_no_room(directory: str) -> bool:
    """Tell whether a disk is so full, in bytes or in files, that a small file does not fit any more."""
    if not hasattr(os, "statvfs"):
        return False
    figures = os.statvfs(directory)
    return figures.f_bavail * figures.f_frsize < 1 << 16 or (figures.f_files > 0 and figures.f_favail < 4)


def open_file_limit() -> int:
    """Tell how many files this process may have open."""
    if IS_WINDOWS:
        return 512
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 65536 if soft == resource.RLIM_INFINITY else soft


def is_process_alive(pid: int) -> bool:
    """Tell whether a process of this number runs on this machine; another one may have got its number."""
    if IS_WINDOWS:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def host_name() -> str:
    """Give the name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def user_id() -> int | None:
    """Give the effective user, or None where files have no such owner."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def user_data_home(environ: Mapping[str, str]) -> str | None:
    """Name the directory in which this platform keeps a user's data; None without a home."""
    home = environ.get("USERPROFILE" if IS_WINDOWS else "HOME") or None
    if IS_WINDOWS:
        return environ.get("LOCALAPPDATA") or (home and os.path.join(home, "AppData", "Local"))
    if sys.platform == "darwin":
        return home and os.path.join(home, "Library", "Application Support")
    given = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(given):
        return given
    return home and os.path.join(home, ".local", "share")
