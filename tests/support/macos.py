"""A Linux that behaves like macOS: names are folded, writers are unknown, syncing is another call.

The fake replaces the calls that shadowtree makes with a directory descriptor. A name finds an entry that
differs only in case or in Unicode normalisation, as on APFS; the entry keeps the spelling it was made with.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any
from unicodedata import normalize

import pytest

from shadowtree.system import syscalls

FULL_SYNC = 51
"""F_FULLFSYNC in <sys/fcntl.h>."""


def fold_names(patch: pytest.MonkeyPatch) -> None:
    """Treat names that differ only in case or normalisation as one, below any open directory."""
    for name in ("open", "stat", "readlink", "unlink", "rmdir", "mkdir", "chown"):
        patch.setattr(os, name, _folding(getattr(os, name), 0, "dir_fd"))
    patch.setattr(os, "symlink", _folding(os.symlink, 1, "dir_fd"))
    patch.setattr(os, "link", _folding(_folding(os.link, 0, "src_dir_fd"), 1, "dst_dir_fd"))
    patch.setattr(syscalls, "_rename", _folding_rename(syscalls._rename))


def be_macos(patch: pytest.MonkeyPatch) -> None:
    """Behave like macOS: no leases, no syncfs, no generations, no writing ahead, and folded names."""
    patch.setattr(syscalls, "IS_LINUX", False)
    patch.setattr(syscalls, "IS_MAC", True)
    fold_names(patch)


def _folding(call: Callable[..., Any], place: int, directory: str) -> Callable[..., Any]:
    """Wrap a call so that one of its names finds the entry that it folds to."""

    def call_folded(*arguments: Any, **named: Any) -> Any:
        if isinstance(named.get(directory), int):
            found = find(named[directory], arguments[place])
            arguments = (*arguments[:place], found, *arguments[place + 1 :])
        return call(*arguments, **named)

    return call_folded


def _folding_rename(rename: Callable[..., None]) -> Callable[..., None]:
    def rename_folded(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        found = find(b_fd, b)
        if way == syscalls._EXCHANGE:
            rename(a_fd, find(a_fd, a), b_fd, found, way)
        elif found in os.listdir(_place(b_fd).encode()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), a, None, b)
        else:
            rename(a_fd, find(a_fd, a), b_fd, b, syscalls._NO_REPLACE)

    return rename_folded


def find(directory_fd: int, name: bytes | str) -> bytes:
    """Return the name of the entry that a name finds in a directory, or the name itself."""
    wanted = os.fsencode(name)
    names = os.listdir(_place(directory_fd).encode())
    if wanted in names:
        return wanted
    return next((each for each in names if _fold(each) == _fold(wanted)), wanted)


def _fold(name: bytes) -> str:
    return normalize("NFD", normalize("NFD", os.fsdecode(name)).casefold())


def _place(fd: int) -> str:
    # Through another descriptor, because this one may be in use for reading.
    return f"/proc/self/fd/{fd}"
