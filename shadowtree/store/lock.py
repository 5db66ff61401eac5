"""The lock of a store: one process at a time writes, and the kernel frees it when its owner dies.

The lock file is never removed, so that everybody locks the same one; what is written in it tells a person
who holds it, and the next holder whether anybody else did since it was the last one. Should somebody remove
it all the same, the store's directory is locked too, where the file system allows that.
"""

from __future__ import annotations

import os
import time

from shadowtree.base.errors import Locked, ShadowError
from shadowtree.system import disk
from shadowtree.system.syscalls import free_lock, host_name, try_lock

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
_SIGNED_BYTES = 200


class Lock:
    """The exclusive lock on one file, as a context manager.

    Who signs with a `signature` of its own can tell afterwards whether it was the last one to hold it.
    """

    def __init__(self, path: str, timeout_s: float, signature: str = "") -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._signature = signature
        self.was_mine = False
        """Nobody else has held it since this process did with the same signature."""
        self._fd = -1
        self._directory_fd = -1

    def __enter__(self) -> Lock:
        try:
            self._wait()
        except BaseException:
            self._free()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._free()

    def __del__(self) -> None:
        # For an interrupt that came in the very moment in which somebody took or freed it.
        self._free()

    def _wait(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while not self._try():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                owner = read_owner(self._path)
                raise Locked(os.path.dirname(self._path), *owner, self._timeout_s)
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _free(self) -> None:
        # Closing frees the lock; the owner's line stays and is overwritten by the next one.
        fds = self._directory_fd, self._fd
        self._fd = self._directory_fd = -1
        for fd in fds:
            if fd >= 0:
                free_lock(fd)
                os.close(fd)

    def _try(self) -> bool:
        disk.before_write("create", self._path)
        with disk.store_errors(self._path):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with disk.store_errors(self._path):
                disk.make_private(self._fd)
                if try_lock(self._fd) and self._is_named(self._fd) and self._try_directory():
                    self._sign()
                    return True
        except BaseException:
            self._free()
            raise
        self._free()
        return False

    def _try_directory(self) -> bool:
        try:
            self._directory_fd = os.open(
                os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
            return try_lock(self._directory_fd)
        except OSError:
            # Not every file system locks directories; the lock file alone serves then.
            return True

    def _is_named(self, fd: int) -> bool:
        """Make sure that the locked file still has its name: a store may have been moved meanwhile."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def _sign(self) -> None:
        owner = f"{os.getpid()} {host_name()} {self._signature}".encode().ljust(_SIGNED_BYTES)
        with disk.store_errors(self._path):
            self.was_mine = bool(self._signature) and os.pread(self._fd, len(owner) + 1, 0) == owner
            if not self.was_mine:
                disk.before_write("sign", self._path)
                os.pwrite(self._fd, owner, 0)


def read_owner(path: str) -> tuple[int | None, str | None]:
    """Read who holds, or last held, a lock."""
    try:
        pid, host, *_ = disk.read_file(path).decode().split()
        return int(pid), host
    except (ValueError, ShadowError):
        return None, None
