"""This process, its machine and its user: limits, names, who is at the other end of a socket."""

from __future__ import annotations

import os
import sys

from shadowtree.system.syscalls import IS_LINUX, IS_MAC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Socket(Protocol):
        """What can be asked about a socket."""

        def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
            """Give an option as bytes."""


_SOL_SOCKET, _SO_PEERCRED = 1, 17
"""Linux: ask a socket who is at its other end."""
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1
"""macOS: the same."""


def open_file_limit() -> int:
    """Tell how many files this process may have open."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 65536 if soft == resource.RLIM_INFINITY else soft


def is_process_alive(pid: int) -> bool:
    """Tell whether a process of this number runs on this machine; another one may have got its number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    """Name the time since this machine was started; empty where nobody can say, and then nothing is equal."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def host_name() -> str:
    """Give the name of this machine."""
    return os.uname().nodename


def user_id() -> int:
    """Give the effective user."""
    return os.geteuid()


def short_path(directory_fd: int, directory: str, name: str) -> str:
    """Name something in an open directory in few characters: the address of a socket has about a hundred.

    Where there is no such way it is the whole path, which is refused if it is too long.
    """
    if IS_LINUX and os.path.isdir("/proc/self/fd"):
        return f"/proc/self/fd/{directory_fd}/{name}"
    return os.path.join(directory, name)


def peer_user(connection: Socket) -> int | None:
    """Tell which user is at the other end of a Unix socket; None where nobody can say."""
    if IS_LINUX:
        # pid, uid and gid of whoever connected, or listened.
        credentials = connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, 12)
        return int.from_bytes(credentials[4:8], sys.byteorder)
    if IS_MAC:
        # A version, the uid, and the groups.
        credentials = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
        return int.from_bytes(credentials[4:8], sys.byteorder)
    return None


def file_system_view() -> str:
    """Give a text that differs for processes that see other files under the same names, as in a container."""
    root = os.stat("/")
    try:
        mounts = os.stat("/proc/self/ns/mnt").st_ino
    except OSError:
        mounts = 0
    return f"{mounts}:{root.st_dev}:{root.st_ino}"
