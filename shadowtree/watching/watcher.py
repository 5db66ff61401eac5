"""What a watcher of a worktree answers: which paths may have changed since last time, or that all may have.

A watcher never guesses: whatever it cannot be sure of is a `Rescan`. It says where to look, never what is
there. Two backends implement it, `inotify_watcher` and `watchfiles_watcher` (docs/decisions/0038-watcher.md).
"""

from __future__ import annotations

import os

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from shadowtree.system.mounts import Mounts

    class Watcher(Protocol):
        """Watches one worktree. `drain` may be called by any thread."""

        def dirty(self) -> Dirty | Rescan:
            """Give the paths at which something may have happened since the last call."""

        def drain(self) -> bool:
            """Read the events so far, for the next `dirty`; True if there were any."""

        def arm(self, path: RelPath, fd: int) -> bool:
            """Watch a directory, before it is listed; False: it has to be listed each time."""

        def disarm(self, path: RelPath) -> None:
            """Stop watching a directory that is gone."""

        def is_armed(self, path: RelPath) -> bool:
            """Whether a directory is watched."""

        def fileno(self) -> int | None:
            """Give a descriptor that becomes readable when there is something to drain; None: it has none."""

        def close(self) -> None:
            """Release everything."""

        @property
        def count(self) -> int:
            """How many directories are watched."""


@frozen
class Dirty:
    """Where something may have happened."""

    paths: set[RelPath]
    """Files or directories at which something may have happened."""
    trees: set[RelPath]
    """Directories of which all that is below has to be looked at, such as those that came."""
    writing: frozenset[RelPath] = frozenset()
    """Files that may still be open for writing, also if nothing more was reported of them.

    A link to a file is never closed by its own name.
    """
    is_new: bool = True
    """Whether any of it was read just now, and not drained before."""


@frozen
class Rescan:
    """Everything has to be looked at."""

    reason: str


class Doubt(Exception):
    """Nothing that was reported can be relied on."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


INTERRUPTED = "a read of the watcher's events was interrupted"


class BlindWatcher:
    """Stands in where nothing can be watched: everything is looked at each time."""

    count = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def dirty(self) -> Dirty | Rescan:
        """Say why."""
        return Rescan(self.reason)

    def drain(self) -> bool:
        """Anything may have happened."""
        return True

    def arm(self, path: RelPath, fd: int) -> bool:
        """Watch nothing."""
        del path, fd
        return False

    def disarm(self, path: RelPath) -> None:
        """Do nothing."""

    def is_armed(self, path: RelPath) -> bool:
        """Watch nothing."""
        del path
        return False

    def fileno(self) -> int | None:
        """There is none."""
        return None

    def close(self) -> None:
        """There is nothing to release."""


def refuse_foreign(mounts: Mounts) -> None:
    """Raise `Doubt` on a file system that does not report all changes, such as one of a network."""
    foreign = mounts.find_foreign()
    if foreign is not None:
        raise Doubt(f"not all changes are told on this type of file system: {foreign}")


def identify(path: str) -> tuple[int, int] | None:
    """Give device and inode of what a path leads to."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
