"""File systems that lack features."""

from __future__ import annotations

import errno

import pytest

from shadowtree.system import syscalls
from tests.support.macos import be_macos


def without_exchange(patch: pytest.MonkeyPatch) -> None:
    """Make names impossible to exchange in one step."""
    rename = syscalls._rename

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        if way == syscalls._EXCHANGE:
            raise OSError(errno.EINVAL, "Invalid argument")
        rename(a_fd, a, b_fd, b, way)

    patch.setattr(syscalls, "_rename", refuse)


def without_renameat2(patch: pytest.MonkeyPatch) -> None:
    """Leave only the old rename, which replaces."""

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    patch.setattr(syscalls, "_rename", refuse)


def without_hard_links(patch: pytest.MonkeyPatch) -> None:
    """Make hard links impossible too."""
    without_renameat2(patch)
    patch.setattr(syscalls, "_move_by_link", lambda *arguments: False)


def without_syncfs(patch: pytest.MonkeyPatch) -> None:
    """Make every file be synced by itself."""
    patch.setattr("shadowtree.revert.writer.sync_file_system", lambda fd: False)


def as_on_macos(patch: pytest.MonkeyPatch) -> None:
    """Fold names, hide writers, and sync only single files."""
    be_macos(patch)


LESS = {
    f"undo {lessen.__name__.replace('_', ' ')}": lessen
    for lessen in (without_exchange, without_renameat2, without_hard_links, without_syncfs, as_on_macos)
}
