"""What watchers of a worktree report: which paths may have changed since last time, or that all may have.

A watcher never guesses: if it cannot be sure, it returns a `Rescan`. It reports where to scan, never what is
there. There are two, in `inotify_watcher` and `watchfiles_watcher` (docs/decisions/0038-watcher.md).
"""

from __future__ import annotations

import os

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath
from shadowtree.system.mounts import Mounts


@frozen
class Dirty:
    """The paths that may have changed."""

    paths: set[RelPath]
    """Files or directories that may have changed."""
    trees: set[RelPath]
    """Directories to scan with everything below them, such as new ones."""
    writing: frozenset[RelPath] = frozenset()
    """Files that may still be open for writing, even if nothing more was reported about them.

    A file that is opened under one name is never reported as closed under another.
    """
    is_new: bool = True
    """Whether some of it was read just now, and not by an earlier `drain`."""


@frozen
class Rescan:
    """Everything has to be scanned."""

    reason: str


class Doubt(Exception):
    """Raised if nothing that was reported can be relied on."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


INTERRUPTED = "a read of the watcher's events was interrupted"


def refuse_foreign(mounts: Mounts) -> None:
    """Raise `Doubt` on a file system that does not report all changes, such as a network file system."""
    foreign = mounts.find_foreign()
    if foreign is not None:
        raise Doubt(f"this type of file system does not report all changes: {foreign}")


def identify(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a path, following links, or None."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
