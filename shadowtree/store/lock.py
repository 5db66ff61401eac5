"""The lock of a store: one process at a time writes, and the kernel frees the lock when its holder dies.

The lock file is never removed, so that all processes lock the same file. Each holder signs it: this shows
people which process holds the lock, and shows the next holder whether it was also the previous one. In case
the file is removed anyway, the store's directory is locked too, if the file system allows that.
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

    A process that has a unique `signature` learns from `was_mine` whether it was also the previous holder.
    """

    def __init__(self, path: str, timeout_s: float, signature: str = "") -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._signature = signature
        self.was_mine = False
        """Whether nobody else has held the lock since this process did, with the same signature."""
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
        # In case an interrupt came just when the lock was taken or freed.
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
        # The holder's line stays in the file until the next holder overwrites it.
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
            # Not every file system locks directories; then the lock file alone has to do.
            return True

    def _is_named(self, fd: int) -> bool:
        """Return whether the locked file still has its name: the store may have been moved meanwhile."""
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
    """Return pid and host of the process that holds, or last held, a lock; None if they are not known."""
    try:
        pid, host, *_ = disk.read_file(path).decode().split()
        return int(pid), host
    except (ValueError, ShadowError):
        return None, None
