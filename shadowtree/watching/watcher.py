"""What a watcher of a worktree answers: which paths may have changed since last time, or that all may have.

A watcher never guesses: whatever it cannot be sure of is a `Rescan`. It says where to look, never what is
there. There are two (docs/decisions/0038-watcher.md). The one on Linux is here: it reads the kernel's own
queue, which misses nothing and says so when it overflows. Each directory has a watch of its own, added by its
open descriptor before the directory is listed. The other one is `watchfiles_watcher`.
"""

from __future__ import annotations

import os
from _thread import RLock

from shadowtree.base.frozen import frozen
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import ROOT, RelPath, is_own_temporary, join
from shadowtree.system import inotify
from shadowtree.system.inotify import Inotify
from shadowtree.system.mounts import Mounts
from shadowtree.system.syscalls import folds_names


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


def refuse_foreign(mounts: Mounts) -> None:
    """Raise `Doubt` on a file system that does not report all changes, such as one of a network."""
    foreign = mounts.find_foreign()
    if foreign is not None:
        raise Doubt(f"this type of file system does not report all changes: {foreign}")


def identify(path: str) -> tuple[int, int] | None:
    """Return device and inode of what a path leads to."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class InotifyWatcher:
    """Watches every directory that it is told to arm, and nothing else."""

    def __init__(self, root: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Raise OSError if the system does not let us watch, `Doubt` if it does not report all changes."""
        self._root = root
        self._identity = identify(root)
        self._process = os.getpid()
        self._mounts = Mounts(os.fsencode(root))
        refuse_foreign(self._mounts)
        self._holders = self._mounts.find_holders()
        """Directories with a file mounted in them: its changes are reported where it really is."""
        self._queue = Inotify()
        self._limit = _read_limit(limits)
        self._most_paths = limits.most_dirty_paths
        self._lock = RLock()
        """Taken again by a finalizer that closes the shadow, if it is run while somebody holds it."""
        self._watches: dict[RelPath, int] = {}
        self._paths: dict[int, RelPath] = {}
        self._unarmable: set[RelPath] = set()
        """Directories that have several names in the worktree."""
        self._dirty: set[RelPath] = set()
        self._trees: set[RelPath] = set()
        self._writing: set[RelPath] = set()
        self._doubt: str | None = None
        self._is_reading = False
        """What was read from the queue is not noted yet. Stays so if Ctrl-C comes in between."""

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._watches)

    def fileno(self) -> int | None:
        """Return the descriptor of the kernel's queue."""
        return self._queue.fileno()

    def close(self) -> None:
        """Let go of the queue, which ends every watch."""
        # In a child that was forked the lock may be held for ever, by a thread that is not there.
        with self._lock if os.getpid() == self._process else RLock():
            self._queue.close()
            self._mounts.close()

    def dirty(self) -> Dirty | Rescan:
        """Return where something may have happened since the last call."""
        doubt = self._find_doubt()
        if doubt is not None:
            return Rescan(doubt)
        is_new = self.drain()
        with self._lock:
            found = Dirty(self._dirty, self._trees, frozenset(self._writing), is_new)
            doubt, self._doubt = self._doubt, None
            self._dirty, self._trees = set(), set()
        return found if doubt is None else Rescan(doubt)

    def drain(self) -> bool:
        """Read the kernel's queue, lest it run over; return whether there was anything in it."""
        if os.getpid() != self._process:
            return True
        has_news = False
        with self._lock:
            if self._queue.fileno() < 0:
                return True
            if self._is_reading:
                self._doubt, has_news = INTERRUPTED, True
            self._is_reading = True
            for watch, mask, name in self._queue.read():
                has_news = self._note(watch, mask, name) or has_news
            self._is_reading = False
        return has_news

    def is_armed(self, path: RelPath) -> bool:
        """Return whether a directory is watched."""
        return path in self._watches

    def arm(self, path: RelPath, fd: int) -> bool:
        """Watch the directory that is open as `fd`; False if the system does not allow another watch."""
        with self._lock:
            if path in self._unarmable or (len(self._watches) >= self._limit and path not in self._watches):
                return False
            if folds_names(fd) or self._holds_mounted_file(fd):
                self._disarm(path)
                return False
            try:
                watch = self._queue.add(fd)
            except OSError:
                self._disarm(path)
                return False
            other = self._paths.get(watch)
            if other is not None and other != path:
                self._watches.pop(other, None)
                if self._leads_to(other, fd):
                    # Mounted twice: the kernel tells of both by one name.
                    self._unarmable |= {path, other}
                    self._trees.add(other)
                    self._disarm(path)
                    self._paths.pop(watch, None)
                    return False
            if self._watches.get(path) != watch:
                self._disarm(path)
            self._watches[path] = watch
            self._paths[watch] = path
            return True

    def disarm(self, path: RelPath) -> None:
        """Watch a directory no longer."""
        with self._lock:
            self._disarm(path)
            self._unarmable.discard(path)

    def _disarm(self, path: RelPath) -> None:
        watch = self._watches.pop(path, None)
        # By another name it may be watched still.
        if watch is not None and self._paths.get(watch) == path:
            del self._paths[watch]
            self._queue.remove(watch)

    def _holds_mounted_file(self, fd: int) -> bool:
        if not self._holders:
            return False
        status = os.fstat(fd)
        return (status.st_dev, status.st_ino) in self._holders

    def _leads_to(self, path: RelPath, fd: int) -> bool:
        try:
            there = os.stat(os.path.join(os.fsencode(self._root), path), follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(fd))

    def _find_doubt(self) -> str | None:
        """Say why nothing that was told can be relied on."""
        if os.getpid() != self._process:
            return "another process is watching"
        if identify(self._root) != self._identity:
            return "the directory was replaced"
        return "something was mounted or unmounted" if self._mounts.have_changed() else None

    def _note(self, watch: int, mask: int, name: bytes) -> bool:
        """Note what an event makes doubtful; return whether it does."""
        if mask & inotify.OVERFLOW:
            self._doubt = "too many changes at once for the system to report"
            return True
        path = self._paths.get(watch)
        if path is None or is_own_temporary(name):
            return False
        if mask & inotify.UNMOUNT:
            self._doubt = "something was unmounted"
        elif not name:
            self._note_itself(path, watch, mask)
        else:
            self._note_name(join(path, name), mask)
        return True

    def _note_name(self, path: RelPath, mask: int) -> None:
        if len(self._dirty) >= self._most_paths and path not in self._dirty:
            # Whoever is asked next would have to say so anyway; and nobody may ask for long.
            self._doubt = "too much changed at once"
            self._dirty, self._trees, self._writing = set(), set(), set()
        self._dirty.add(path)
        if mask & inotify.IS_DIRECTORY:
            self._trees.add(path)
        elif mask & (inotify.CREATE | inotify.MODIFY):
            # Of a file that came by a link nothing more is told if it was opened by a name that is gone.
            self._writing.add(path)
        elif mask & (inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.DELETE):
            self._writing.discard(path)

    def _note_itself(self, path: RelPath, watch: int, mask: int) -> None:
        if mask & inotify.IGNORED:
            # The kernel let go of it. If it is still there it has to be armed again.
            del self._paths[watch]
            if self._watches.get(path) == watch:
                del self._watches[path]
        if path == ROOT and mask & (inotify.MOVE_SELF | inotify.DELETE_SELF | inotify.IGNORED):
            self._doubt = "the worktree itself was moved or deleted"
        else:
            self._trees.add(path)


def _read_limit(limits: Limits) -> int:
    """Read how many directories a user may watch, and take our share of it."""
    try:
        with open(limits.watch_limit_file, "rb") as file:
            return max(0, int(int(file.read()) * limits.watch_share) - limits.watches_taken)
    except (OSError, ValueError):
        return 1 << 30
