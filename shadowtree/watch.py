"""Keep a worktree in sight between snapshots, so that each looks only at what may have changed.

    watcher ──dirty──▶ pending ──▶ outlook ──▶ scan on top of the census ──▶ recorded? into the census

What the watcher told stays pending until a scan that looked at it was recorded: one that was only a look, or
failed, takes nothing away. Without a census, or in any doubt, a scan looks at everything; what it arms on the
way is watched from then on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic

from shadowtree.census import Census, Outlook
from shadowtree.directory import Directory, join_ids
from shadowtree.model import Watching
from shadowtree.paths import ROOT, RelPath, join
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan, scan_worktree
from shadowtree.settings import Settings
from shadowtree.statcache import StatCache
from shadowtree.system import IS_LINUX
from shadowtree.watcher import INTERRUPTED, BlindWatcher, Rescan, open_watcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.ahead import Ahead
    from shadowtree.watcher import Watcher

_SLICE = 64
"""How many directories are looked over at once."""


class Pending:
    """Where something may have happened that is not recorded yet."""

    def __init__(self, writing: frozenset[RelPath] = frozenset()) -> None:
        self.paths: set[RelPath] = set()
        self.directories: set[RelPath] = set()
        self.trees: set[RelPath] = set()
        self.writing = writing

    def explains(self, directory: RelPath, name: bytes) -> bool:
        """Tell whether a change of a name in a directory is among these."""
        if directory in self.directories or join(directory, name) in self.paths:
            return True
        return any(_is_at_or_below(join(directory, name), tree) for tree in self.trees)


class Watch:
    """The watcher of one worktree, what it told, and the census that this is measured against."""

    def __init__(self, worktree: str, store: str) -> None:
        self._worktree = worktree
        self._cookies = os.path.join(store, "cookies")
        """Where a watcher that needs them puts files of its own."""
        self._watcher: Watcher | None = None
        self._census: Census | None = None
        self._token: bytes | None = None
        """Of the cache that the census belongs to."""
        self._pending = Pending()
        self._is_doubtful = True
        """Everything has to be looked at."""
        self._is_listening = False
        """What the watcher told is not taken in yet. Stays so if Ctrl-C comes in between."""
        self._reason: str | None = None
        self.rescans = 0
        """How often everything had to be looked at; the watcher may be another one since."""
        self._missed = 0
        self._round: Iterator[RelPath] | None = None
        self.news = object()
        """Another one whenever something was told: who keeps it can see whether anything was since."""
        self._heard = object()
        """Another one whenever what was told became pending."""
        self._ahead: Ahead | None = None
        """What the next capture would come to, if nothing happens until then."""

    def close(self) -> None:
        """Let go of every watch."""
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = self._census = self._round = self._ahead = None
        self._is_doubtful = True

    @property
    def report(self) -> Watching:
        """Tell how well the worktree is in sight."""
        census, watcher = self._census, self._watcher  # another thread may be at work
        watched = 0 if watcher is None else watcher.count
        return Watching(
            is_active=not self._is_doubtful and watched > 0,
            directories=watched,
            unwatched=0 if census is None else len(census.unwatched),
            rescans=self.rescans,
            reason=self._reason,
            missed=self._missed,
        )

    def scan(
        self,
        settings: Settings,
        surroundings: Surroundings,
        cache: StatCache | None,
        was_covered: Callable[[RelPath], bool],
    ) -> Scan:
        """Look at what may have changed since the last scan that was recorded, or at everything."""
        self._listen(None if cache is None else cache.token)
        heard = self._heard
        census = None if self._is_doubtful else self._census
        assert self._watcher is not None
        while True:
            scan = scan_worktree(
                self._worktree,
                settings,
                surroundings,
                census or cache,
                was_covered,
                indexes=None if cache is None else cache.info("indexes"),
                outlook=None if census is None else self._outlook(census, self._pending),
                arm=self._watcher.arm,
            )
            if census is None:
                self.rescans += 1
                self._note_whole(scan, cache)
                return scan
            others = _find_other_names(scan, census) - self._pending.paths
            if not others:
                scan.heard = heard
                return scan
            self._pending.paths |= others

    # Ahead

    @property
    def is_quiet(self) -> bool:
        """Whether all that was told is of files that are closed, in directories that are known."""
        told = self._pending
        return not told.trees and not told.directories and told.writing.isdisjoint(told.paths)

    @property
    def has_ahead(self) -> bool:
        """Whether something was made ahead that may still count."""
        return self._ahead is not None

    def is_little_told(self, cache: StatCache, most: int) -> bool:
        """Tell whether something may have changed, at most so many files, and can be read ahead.

        Nothing is begun anew for that: without a cache, or with too much already, nobody listens.
        """
        if cache.token is None or len(self._pending.paths) > most:
            return False
        self._listen(cache.token)
        is_in_sight = self._census is not None and not self._is_doubtful
        return is_in_sight and self.is_quiet and 0 < len(self._pending.paths) <= most

    def keep_ahead(self, ahead: Ahead) -> bool:
        """Keep what was made of a scan, unless more was heard or recorded meanwhile; tell whether."""
        if ahead.scan.heard is not self._heard:
            return False
        self._ahead = ahead
        return True

    def forget_ahead(self) -> None:
        """Throw away what was made ahead."""
        self._ahead = None

    def take_ahead(
        self,
        settings: Settings,
        surroundings: Surroundings,
        cache: StatCache,
        was_covered: Callable[[RelPath], bool],
    ) -> Ahead | None:
        """Give what was made ahead, once, if it is what a capture would come to now.

        Nothing was told since; of that of which nobody tells, nothing differs from what is recorded; and the
        files are what they were.
        """
        ahead, self._ahead = self._ahead, None
        self._listen(cache.token)
        census = None if self._is_doubtful else self._census
        if ahead is None or census is None or ahead.scan.heard is not self._heard:
            return None
        if (ahead.settings, ahead.surroundings) != (settings, surroundings) or ahead.cache is not cache:
            return None
        scan = scan_worktree(
            self._worktree,
            settings,
            surroundings,
            census,
            was_covered,
            indexes=cache.info("indexes"),
            outlook=self._outlook(census, Pending(self._pending.writing)),
        )
        has_changed = scan.has_news or scan.gone or scan.has_new_rules
        tells_same = scan.rule_files.warnings == ahead.scan.rule_files.warnings
        return ahead if not has_changed and tells_same and ahead.is_as_read(self._worktree) else None

    # What was recorded

    def commit(self, scan: Scan, cache: StatCache) -> None:
        """Take in a scan that was recorded, and is remembered in the cache."""
        assert self._watcher is not None
        # What was made before this was recorded counts no longer.
        self._ahead, self._heard = None, object()
        # If Ctrl-C comes in between, the census is neither the old one nor the new one.
        self._is_doubtful = True
        if scan.is_whole:
            self._census = Census()
        census = self._census
        assert census is not None
        for directory, is_changed in zip(scan.directories, scan.changed, strict=True):
            is_armed = self._watcher.is_armed(directory.path)
            if is_changed or scan.is_whole or is_armed == (directory.path in census.unwatched):
                census.put(directory, is_watched=is_armed)
        for path in scan.gone:
            census.drop(path)
            self._watcher.disarm(path)
        census.rules = dict(scan.rules)
        self._token = cache.token
        self._pending = Pending()
        self._is_doubtful = False

    # Events

    def drain(self) -> bool:
        """Read what was told, for the next scan; True if something that is covered may have changed."""
        watcher = self._watcher  # another thread may close it
        has_news = watcher is None or watcher.drain()
        if has_news:
            self.news = object()
        return has_news

    def fileno(self) -> int | None:
        """Give a descriptor that becomes readable when there is something to drain, if there is one."""
        watcher = self._watcher
        return None if watcher is None else watcher.fileno()

    def directories(self) -> list[RelPath]:
        """Name the directories that are watched."""
        census, watcher = self._census, self._watcher
        if census is None or watcher is None:
            return []
        return [path for path in census.paths() if watcher.is_armed(path)]

    def _listen(self, token: bytes | None) -> None:
        """Take in what the watcher tells, and find out whether it can be relied on."""
        if self._watcher is None:
            self._start_anew("nothing was watched yet")
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
        if told.paths or told.trees:
            self._heard = object()
        self._pending.paths |= told.paths
        self._pending.trees |= told.trees
        self._pending.writing = told.writing
        self._is_listening = False
        if self._census is not None and (token is None or token != self._token):
            self._start_anew("the cache is another one")

    def _start_anew(self, reason: str) -> None:
        self._reason = reason
        self._is_doubtful = True
        self._census = self._round = self._ahead = None
        self._watcher = self._renew_watcher()
        if isinstance(self._watcher, BlindWatcher):
            self._reason = self._watcher.reason
        self._pending = Pending()
        self._is_listening = False

    def _renew_watcher(self) -> Watcher:
        """Begin to watch, or to watch anew; where there is no queue to read, watchfiles serves."""
        if not IS_LINUX:
            from shadowtree.notices import renew_notices

            return renew_notices(self._watcher, self._worktree, self._cookies)
        if self._watcher is not None:
            self._watcher.close()
        return open_watcher(self._worktree)

    def _outlook(self, census: Census, pending: Pending) -> Outlook:
        # What is being written may be written through a mapping, of which nothing is told before its end.
        suspects = [*pending.writing, *census.linked_files()]
        directories = pending.directories.union(census.restless, census.find_stirred(self._worktree))
        return Outlook(pending.paths, directories, pending.trees, suspects)

    def _note_whole(self, scan: Scan, cache: StatCache | None) -> None:
        """Keep what a whole scan found to be as it is remembered, so that a look need not be repeated.

        What it found changed is not stored yet: that has to be looked at again. And so has a directory whose
        tree was built from others than those below it: its row in the cache is an old one.
        """
        assert self._watcher is not None
        self._census = None
        if cache is None or cache.token is None or cache.get(ROOT) is None:
            return
        census, changed = Census(), set()
        for directory, is_changed in zip(scan.directories, scan.changed, strict=True):
            known = cache.get(directory.path) if is_changed else directory
            if is_changed or directory.below_ids != join_ids(scan.children(directory)):
                changed.add(directory.path)
            if known is not None:
                census.put(known, is_watched=self._watcher.is_armed(known.path))
        census.rules = dict(scan.rules)
        self._pending.directories |= changed
        self._census, self._token = census, cache.token
        self._is_doubtful = False

    # Looking over

    def look_over(
        self,
        settings: Settings,
        surroundings: Surroundings,
        cache: StatCache,
        was_covered: Callable[[RelPath], bool],
        *,
        seconds: float,
    ) -> bool:
        """Spend some time on looking at what nobody told of, and count what had changed; True: all was seen.

        A change that is written through a mapping, or by another name of the file from outside the worktree,
        is told late or never.
        """
        deadline = monotonic() + seconds
        self._listen(cache.token)
        while self._census is not None and not self._is_doubtful:
            if self._round is None:
                self._round = iter(list(self._census.paths()))
            paths = [path for path in islice(self._round, _SLICE) if self._census.get(path) is not None]
            if not paths:
                self._round = None
                return True
            scan = scan_worktree(
                self._worktree,
                settings,
                surroundings,
                self._census,
                was_covered,
                indexes=cache.info("indexes"),
                outlook=Outlook(directories=paths),
            )
            self._listen(cache.token)
            self._count_missed(scan)
            if monotonic() >= deadline:
                break
        return False

    def _count_missed(self, scan: Scan) -> None:
        census = self._census
        if census is None:
            return
        for directory, is_changed in zip(scan.directories, scan.changed, strict=True):
            known = census.get(directory.path)
            if known is None or not is_changed or census.is_checked(known.path):
                continue
            if (known.rules_key, known.tracked_key) != (directory.rules_key, directory.tracked_key):
                # Each scan finds out by itself that the rules are others.
                continue
            missed = {
                name
                for name in _list_differing(known, directory)
                if not self._is_expected(census, known.path, name)
            }
            if missed:
                self._missed += sum(_has_changed(known, directory, name) for name in missed)
                self._pending.directories.add(known.path)
                self._ahead = None

    def _is_expected(self, census: Census, directory: RelPath, name: bytes) -> bool:
        """Tell whether the next scan would have found a change by itself."""
        path = join(directory, name)
        is_suspect = path in self._pending.writing or census.is_linked(path)
        return is_suspect or self._pending.explains(directory, name)


def _find_other_names(scan: Scan, census: Census) -> set[RelPath]:
    """Name the files and rules of which something was told by another name: what is true of one is of all.

        src/a.txt ── inode 7 ── logs/x.log     a.txt is covered, and nobody tells of it; x.log is ignored

    A file that is to be read again has no inode in the census, so it may be one of them. What is known to
    have other names is looked at each time anyway.
    """
    inodes = scan.aliases.copy()
    for directory, is_changed in zip(scan.directories, scan.changed, strict=True):
        known = census.get(directory.path) if is_changed else directory
        for name in set(directory.linked) - set(() if known is None else known.linked):
            row = directory.find_file(name)
            if row is not None:
                inodes.add(directory.file_inode(row))
    if not inodes:
        return set()
    return {path for path in census.find_inodes({*inodes, 0}) if not census.is_linked(path)}


def _list_differing(known: Directory, seen: Directory) -> set[bytes]:
    """Name what two views of a directory differ in."""
    before = {name: known.file_stamp(row) for row, name in enumerate(known.names)}
    after = {name: seen.file_stamp(row) for row, name in enumerate(seen.names)}
    files = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    others = {name for name, _ in known.subdirectories} ^ {name for name, _ in seen.subdirectories}
    return files | others | (set(known.excluded) ^ set(seen.excluded))


def _has_changed(known: Directory, seen: Directory, name: bytes) -> bool:
    """Tell whether more than a new link to a file was found, or that it was to be read again anyway."""
    before, after = known.find_file(name), seen.find_file(name)
    if before is None or after is None:
        return True
    old, new = known.file_stamp(before), seen.file_stamp(after)
    is_smudged = not any(old[:4])
    return not is_smudged and (old[0], *old[2:]) != (new[0], *new[2:])


def _is_at_or_below(path: RelPath, tree: RelPath) -> bool:
    return not tree or path == tree or path.startswith(tree + b"/")
