"""Watch a worktree between snapshots, so that each one scans only what may have changed.

    watcher ──dirty──▶ pending ──▶ scope ──▶ scan on top of the census ──▶ recorded? into the census

What the watcher reported stays pending until a scan that included it has been recorded: a scan that failed,
or was made only to read, removes nothing. Without a census, or in any doubt, a scan visits everything; the
directories that it visits are watched from then on.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import monotonic

from shadowtree.base.errors import describe
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import ROOT, RelPath, is_among, join, parent_of
from shadowtree.capture.capture import Site, make_scan_input
from shadowtree.capture.directories import Census, Directory, join_ids
from shadowtree.capture.scan import Scan, ScanInput, ScanScope, scan_worktree
from shadowtree.capture.stat_cache import StatCache
from shadowtree.results.messages import Watching
from shadowtree.system.syscalls import IS_LINUX
from shadowtree.watching.inotify_watcher import InotifyWatcher
from shadowtree.watching.watcher import INTERRUPTED, Doubt, Rescan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.capture.open_store import OpenStore
    from shadowtree.watching.watchfiles_watcher import WatchfilesWatcher

_SLICE = 64
"""How many directories are checked at once."""


class Pending:
    """The paths that may have changed and are not recorded yet."""

    def __init__(self) -> None:
        self.paths: set[RelPath] = set()
        self.directories: set[RelPath] = set()
        self.trees: set[RelPath] = set()
        self.writing: frozenset[RelPath] = frozenset()

    def explains(self, path: RelPath) -> bool:
        """Return whether a change of this path is pending already."""
        is_told = path in self.paths or path in self.writing or parent_of(path) in self.directories
        return is_told or is_among(path, self.trees)


class Watch:
    """The watcher of one worktree, what it reported, and the census that its reports build on."""

    def __init__(
        self, worktree: str, store: str, backend: str = "auto", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """`backend` is the setting `watcher`: auto, inotify or watchfiles."""
        self._worktree = worktree
        self._store = store
        self._is_by_watchfiles = backend == "watchfiles" or (backend == "auto" and not IS_LINUX)
        self._limits = limits
        self._epoll: select.epoll | None = None
        """Hosts wait on its descriptor, which stays the same when the watcher is replaced."""
        self._epoll_process = 0
        self._is_closed = False
        self._watcher: InotifyWatcher | WatchfilesWatcher | None = None
        """None: nothing is watched yet, or nothing can be, so each scan visits everything."""
        self._blindness: str | None = None
        """Why nothing can be watched."""
        self._census: Census | None = None
        """None: everything has to be scanned."""
        self._token: bytes | None = None
        """The token of the cache that the census belongs to."""
        self._pending = Pending()
        self._is_listening = False
        """The watcher's reports are being processed. Stays True if Ctrl-C interrupts that."""
        self._reason: str | None = None
        self.rescans = 0
        """How often everything had to be scanned, even if the watcher was replaced since."""
        self._missed = 0
        self._round: Iterator[RelPath] | None = None
        self.news = object()
        """Replaced when something is reported, so that a caller can see whether anything was since."""

    def close(self) -> None:
        """Release every watch and the descriptor. The next scan opens both again."""
        self.reset()
        self._is_closed = True
        epoll, self._epoll = self._epoll, None
        if epoll is not None:
            epoll.close()

    def reset(self) -> None:
        """Release every watch, but keep the descriptor."""
        self._close_watcher()
        self._blindness = self._census = self._round = None

    @property
    def report(self) -> Watching:
        """Return how well the worktree is watched."""
        census, watcher = self._census, self._watcher  # another thread may replace them
        watched = 0 if watcher is None else watcher.count
        return Watching(
            is_active=census is not None and watched > 0,
            directories=watched,
            unwatched=0 if census is None else len(census.unwatched),
            rescans=self.rescans,
            reason=self._reason,
            missed=self._missed,
        )

    def scan(self, given: ScanInput) -> Scan:
        """Scan what may have changed since the last recorded scan, or everything."""
        self._listen(None if given.cache is None else given.cache.token)
        census = self._census
        add_watch = None if self._watcher is None else self._watcher.add_watch
        while True:
            scope = None if census is None else self._make_scope(census)
            scan = scan_worktree(given, census=census, scope=scope, add_watch=add_watch)
            if census is None:
                self.rescans += 1
                self._note_whole(scan, given.cache)
                return scan
            others = _find_other_names(scan, census) - self._pending.paths
            if not others:
                return scan
            self._pending.paths |= others

    # What was recorded

    def commit(self, scan: Scan, cache: StatCache) -> None:
        """Update the census from a scan that has been recorded and saved in the cache."""
        census = Census() if scan.is_whole else self._census
        assert census is not None
        # If Ctrl-C interrupts this, there must be no census: it is neither the old nor the new one.
        self._census = None
        for path, directory in scan.directories.items():
            is_watched = self._is_watched(path)
            if path in scan.changed or scan.is_whole or is_watched == (path in census.unwatched):
                census.put(directory, is_watched=is_watched)
        for path in scan.gone:
            census.drop(path)
            if self._watcher is not None:
                self._watcher.remove_watch(path)
        census.rules = dict(scan.rules)
        self._token = cache.token
        self._pending = Pending()
        self._census = census

    # Events

    def drain(self) -> bool:
        """Read the watcher's events for the next scan; return True if something may have changed."""
        watcher = self._watcher  # another thread may close it
        has_news = watcher is None or watcher.drain()
        if has_news:
            self.news = object()
        return has_news

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when there is something to drain.

        It stays the same until `close`. Returns None after `close`, or if the watcher is watchfiles.
        """
        if self._is_closed or self._is_by_watchfiles:
            return None
        if self._epoll is None or self._epoll_process != os.getpid():
            # An inherited descriptor is still the parent's, so a forked child gets its own.
            self._epoll, self._epoll_process = select.epoll(), os.getpid()
            self._attach()
        return self._epoll.fileno()

    def _attach(self) -> None:
        """Make the descriptor become readable when the watcher's does."""
        fd = None if self._watcher is None else self._watcher.fileno()
        if self._epoll is not None and fd is not None and fd >= 0:
            with suppress(FileExistsError):
                self._epoll.register(fd, select.EPOLLIN)

    def _close_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        if self._epoll is not None and self._epoll_process != os.getpid():
            self._epoll = None
        fd = watcher.fileno()
        if self._epoll is not None and fd is not None and fd >= 0:
            # A forked child may keep the queue open, and it would stay in the epoll set.
            with suppress(OSError):
                self._epoll.unregister(fd)
        watcher.close()

    def _listen(self, token: bytes | None) -> None:
        """Process what the watcher reports, or start anew if it cannot be relied on."""
        if self._watcher is None:
            self._start_anew(self._blindness or "watching had just started")
            return
        if self._is_listening:
            self._start_anew(INTERRUPTED)
            return
        self._is_listening = True
        told = self._watcher.dirty()
        if isinstance(told, Rescan):
            self.news = object()
            self._start_anew(told.reason)
            return
        if told.is_new:
            self.news = object()
        self._pending.paths |= told.paths
        self._pending.trees |= told.trees
        self._pending.writing = told.writing
        self._is_listening = False
        if self._census is not None and (token is None or token != self._token):
            self._start_anew("the cache was replaced")

    def _start_anew(self, reason: str) -> None:
        self._census = self._round = self._blindness = None
        self._renew_watcher()
        self._is_closed = False
        self._reason = self._blindness or reason
        self._pending = Pending()
        self._is_listening = False

    def _renew_watcher(self) -> None:
        """Start a watcher, or replace it; watchfiles restarts by itself."""
        if self._is_by_watchfiles and self._watcher is not None:
            return
        self._close_watcher()
        try:
            self._watcher = self._open_watcher()
            self._attach()
        except Doubt as doubt:
            self._blindness = doubt.reason
        except OSError as error:
            self._close_watcher()
            self._blindness = f"the system does not allow watching: {describe(error)}"

    def _open_watcher(self) -> InotifyWatcher | WatchfilesWatcher:
        if not self._is_by_watchfiles:
            return InotifyWatcher(self._worktree, self._limits)
        # The cookies are in the store, which does not exist until the worktree is wrapped.
        if not os.path.isdir(self._store):
            raise Doubt("it is not wrapped yet")
        from shadowtree.watching.watchfiles_watcher import WatchfilesWatcher

        return WatchfilesWatcher(self._worktree, os.path.join(self._store, "cookies"), self._limits)

    def _is_watched(self, path: RelPath) -> bool:
        return self._watcher is not None and self._watcher.is_watched(path)

    def _make_scope(self, census: Census) -> ScanScope:
        pending = self._pending
        # A file that is open for writing may be written through a mapping, which is reported only at its end.
        suspects = [*pending.writing, *census.linked_files()]
        directories = pending.directories.union(census.restless, census.find_stirred(self._worktree))
        return ScanScope(pending.paths, directories, pending.trees, suspects)

    def _note_whole(self, scan: Scan, cache: StatCache | None) -> None:
        """Make a census from a full scan and the cache, so that the scan need not be repeated.

        Directories that it found changed are not stored yet, so they must be scanned again. So must each
        directory whose tree was not built from the present trees below it: its row in the cache is outdated.
        """
        if cache is None or cache.token is None or cache.get(ROOT) is None:
            return
        census, changed = Census(), set()
        for path, directory in scan.directories.items():
            known = cache.get(path) if path in scan.changed else directory
            if path in scan.changed or directory.below_ids != join_ids(scan.children(directory)):
                changed.add(path)
            if known is not None:
                census.put(known, is_watched=self._is_watched(path))
        census.rules = dict(scan.rules)
        self._pending.directories |= changed
        self._census, self._token = census, cache.token

    # Checking in idle time

    def look_over(self, opened: OpenStore, site: Site, seconds: float) -> bool:
        """Scan for unreported changes for about `seconds`, and count them; return True after a full round.

        A write through a memory mapping, or through another name of the file outside the worktree, is
        reported late or never.
        """
        deadline = monotonic() + seconds
        opened.refresh()
        given = make_scan_input(site, opened)
        self._listen(opened.cache.token)
        while self._census is not None:
            if self._round is None:
                self._round = iter(list(self._census.paths()))
            paths = [path for path in islice(self._round, _SLICE) if self._census.get(path) is not None]
            if not paths:
                self._round = None
                return True
            scan = scan_worktree(given, census=self._census, scope=ScanScope(directories=paths))
            self._listen(opened.cache.token)
            self._count_missed(scan)
            if monotonic() >= deadline:
                break
        return False

    def _count_missed(self, scan: Scan) -> None:
        census, missed = self._census, set()
        if census is None:
            return
        for directory in scan.changed_directories():
            known = census.get(directory.path)
            if known is None:
                continue
            rules, rules_now = ((each.rules_key, each.tracked_key) for each in (known, directory))
            if known.path in census.restless or known.path in census.unwatched or rules != rules_now:
                # Every scan finds these changes by itself, including changed rules.
                continue
            for name in _list_differing(known, directory):
                path = join(known.path, name)
                if not census.is_linked(path) and not self._pending.explains(path):
                    self._missed += _has_changed(known, directory, name)
                    missed.add(known.path)
        self._pending.directories |= missed


def _find_other_names(scan: Scan, census: Census) -> set[RelPath]:
    """Return the covered files and rules that were reported under another name, and so changed too.

        src/a.txt ── inode 7 ── logs/x.log     a.txt is covered, not reported; x.log is reported, ignored

    A file that has to be read again has no inode in the census, so it may be one of them. Files that are
    known to have other names are scanned each time anyway.
    """
    inodes = scan.aliases.copy()
    for directory in scan.changed_directories():
        known = census.get(directory.path)
        for name in set(directory.linked) - set(() if known is None else known.linked):
            row = directory.find_file(name)
            if row is not None:
                inodes.add(directory.file_inode(row))
    if not inodes:
        return set()
    return {path for path in census.find_inodes({*inodes, 0}) if not census.is_linked(path)}


def _list_differing(known: Directory, seen: Directory) -> set[bytes]:
    """Return the names in which two states of a directory differ."""
    before = {name: known.file_stamp(row) for row, name in enumerate(known.names)}
    after = {name: seen.file_stamp(row) for row, name in enumerate(seen.names)}
    files = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    others = {name for name, _ in known.subdirectories} ^ {name for name, _ in seen.subdirectories}
    return files | others | (set(known.excluded) ^ set(seen.excluded))


def _has_changed(known: Directory, seen: Directory, name: bytes) -> bool:
    """Return whether a name changed; a new link to its file, or a file due to be read, does not count."""
    before, after = known.find_file(name), seen.find_file(name)
    if before is None or after is None:
        return True
    old, new = known.file_stamp(before), seen.file_stamp(after)
    is_smudged = not any(old[:4])
    return not is_smudged and (old[0], *old[2:]) != (new[0], *new[2:])
