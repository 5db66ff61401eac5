"""The watcher for Linux: it reads the kernel's own queue, which misses nothing and reports when it overflows.

Each directory has a watch of its own, added through its open descriptor before the directory is listed.
"""

from __future__ import annotations

import os
from _thread import RLock

from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import ROOT, RelPath, is_own_temporary, join
from shadowtree.system import inotify
from shadowtree.system.inotify import Inotify
from shadowtree.system.mounts import Mounts
from shadowtree.system.syscalls import folds_names
from shadowtree.watching.watcher import INTERRUPTED, Dirty, Rescan, identify, refuse_foreign


class InotifyWatcher:
    """Watches every directory that is added, and nothing else."""

    def __init__(self, root: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Raise OSError if the system does not allow watching, `Doubt` if it does not report all changes."""
        self._root = root
        self._identity = identify(root)
        self._process = os.getpid()
        self._mounts = Mounts(os.fsencode(root))
        refuse_foreign(self._mounts)
        self._holders = self._mounts.find_holders()
        """Directories with a file mounted in them: its changes are reported only at its real path."""
        self._queue = Inotify()
        self._limit = _read_limit(limits)
        self._most_paths = limits.most_dirty_paths
        self._lock = RLock()
        """Reentrant: a finalizer that closes the shadow may run in the thread that holds it."""
        self._watches: dict[RelPath, int] = {}
        self._paths: dict[int, RelPath] = {}
        self._unwatchable: set[RelPath] = set()
        """Directories that have several names in the worktree."""
        self._dirty: set[RelPath] = set()
        self._trees: set[RelPath] = set()
        self._writing: set[RelPath] = set()
        self._doubt: str | None = None
        self._is_reading = False
        """Events are being read from the queue and noted. Stays True if Ctrl-C interrupts that."""

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._watches)

    def fileno(self) -> int | None:
        """Return the descriptor of the kernel's queue."""
        return self._queue.fileno()

    def close(self) -> None:
        """Close the queue, which ends every watch."""
        # In a forked child, the lock may be held forever by a thread that does not exist there.
        with self._lock if os.getpid() == self._process else RLock():
            self._queue.close()
            self._mounts.close()

    def dirty(self) -> Dirty | Rescan:
        """Return what may have changed since the last call."""
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
        """Read the kernel's queue before it overflows; return whether something may have changed."""
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

    def is_watched(self, path: RelPath) -> bool:
        """Return whether a directory is watched."""
        return path in self._watches

    def add_watch(self, path: RelPath, fd: int) -> bool:
        """Watch the directory that is open as `fd`; return False if it cannot be watched reliably."""
        with self._lock:
            if path in self._unwatchable or (len(self._watches) >= self._limit and path not in self._watches):
                return False
            if folds_names(fd) or self._holds_mounted_file(fd):
                self._remove_watch(path)
                return False
            try:
                watch = self._queue.add(fd)
            except OSError:
                self._remove_watch(path)
                return False
            other = self._paths.get(watch)
            if other is not None and other != path:
                self._watches.pop(other, None)
                if self._leads_to(other, fd):
                    # It is mounted twice: the kernel reports both by one watch.
                    self._unwatchable |= {path, other}
                    self._trees.add(other)
                    self._remove_watch(path)
                    self._paths.pop(watch, None)
                    return False
            if self._watches.get(path) != watch:
                self._remove_watch(path)
            self._watches[path] = watch
            self._paths[watch] = path
            return True

    def remove_watch(self, path: RelPath) -> None:
        """Stop watching a directory."""
        with self._lock:
            self._remove_watch(path)
            self._unwatchable.discard(path)

    def _remove_watch(self, path: RelPath) -> None:
        watch = self._watches.pop(path, None)
        # The directory may still be watched under another name.
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
        """Return why nothing that was reported can be relied on, or None."""
        if os.getpid() != self._process:
            return "another process is watching"
        if identify(self._root) != self._identity:
            return "the directory was replaced"
        return "something was mounted or unmounted" if self._mounts.have_changed() else None

    def _note(self, watch: int, mask: int, name: bytes) -> bool:
        """Note what may have changed according to an event; return whether anything may have."""
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
            # Scanning everything is no slower now, and the sets must not grow until somebody calls `dirty`.
            self._doubt = "too much changed at once"
            self._dirty, self._trees, self._writing = set(), set(), set()
        self._dirty.add(path)
        if mask & inotify.IS_DIRECTORY:
            self._trees.add(path)
        elif mask & (inotify.CREATE | inotify.MODIFY):
            # A new link to a file that was opened under a removed name gets no further events.
            self._writing.add(path)
        elif mask & (inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.DELETE):
            self._writing.discard(path)

    def _note_itself(self, path: RelPath, watch: int, mask: int) -> None:
        if mask & inotify.IGNORED:
            # The kernel removed the watch. If the directory still exists, it has to be added again.
            del self._paths[watch]
            if self._watches.get(path) == watch:
                del self._watches[path]
        if path == ROOT and mask & (inotify.MOVE_SELF | inotify.DELETE_SELF | inotify.IGNORED):
            self._doubt = "the worktree itself was moved or deleted"
        else:
            self._trees.add(path)


def _read_limit(limits: Limits) -> int:
    """Return how many directories this watcher may watch: its share of the user's limit."""
    try:
        with open(limits.watch_limit_file, "rb") as file:
            return max(0, int(int(file.read()) * limits.watch_share) - limits.watches_taken)
    except (OSError, ValueError):
        return 1 << 30
