"""An open store: its objects, its timeline and its cache, and the order in which they are written.

    objects published ──▶ rows in the timeline ──▶ files ──▶ cache

The rows are the moment at which a tree counts, with all its objects (invariant 2). What comes before it is
not seen without it, and what comes after it can be made again. `timeline/publish` publishes objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from time import monotonic

from shadowtree.base.errors import Locked, StoreDamaged
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import RelPath
from shadowtree.capture.recorded_tree import PathSearch
from shadowtree.capture.scan import Scan
from shadowtree.capture.stat_cache import StatCache
from shadowtree.store.directory import StoreLayout
from shadowtree.store.objects import Objects, Scratch
from shadowtree.store.pack_writer import PackWriter, keep_again, list_unkept
from shadowtree.system import disk
from shadowtree.system.syscalls import boot_id
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.publish import Publisher
from shadowtree.timeline.schema import TreeRecord


class OpenStore:
    """The open files of a store. Writing needs its lock."""

    def __init__(self, layout: StoreLayout, limits: Limits = DEFAULT_LIMITS) -> None:
        self.layout = layout
        self.limits = limits
        self._timeline = _identify(layout.timeline)
        self._is_damaged = False
        """An object that was needed is nowhere whole."""
        self._boot = boot_id() if limits.boot_id is None else limits.boot_id
        self.journal = Journal(layout.timeline, limits)
        self.objects = self.open_objects()
        self.publisher = Publisher(layout, self.objects, self.journal, self._boot, limits.packs)
        self.cache = StatCache(layout.cache)
        self._records = 0
        """How often something was recorded by those who have no idle time."""
        self._is_at_rest = False
        """Whoever holds the lock next has nothing to make good, if it is this process."""
        self._has_resumed = False
        """Nothing had to be made good when the lock was taken."""
        self.exported: tuple[object, dict[bytes, bytes]] | None = None
        """The stamp of the rows that the refs of the conversation were made of, and what these name."""
        self._searched: dict[bytes, int] = {}
        """For paths above the size limit the last recorded tree in which they were looked for."""

    def open_objects(self, scratch: Scratch | None = None) -> Objects:
        """Open the objects once more, to read them together with those of a scratch."""
        return Objects(self.layout.objects, scratch, self.journal.packs.read_all, self._notice_damage)

    def _notice_damage(self) -> None:
        """Let the next snapshot read everything: what was lost may still be in the worktree."""
        self._is_damaged = True

    def is_current(self) -> bool:
        """Return whether the open timeline is still the one in the store, which may have been made anew."""
        return self._timeline == _identify(self.layout.timeline)

    def close(self) -> None:
        """Let go of every file."""
        self._forget_if_damaged()
        self.cache.close()
        self.journal.close()
        self.objects.close()

    def __del__(self) -> None:
        # For those who never close: a host that drops a shadow should not keep its files open.
        if hasattr(self, "cache"):
            self.close()

    def refresh(self) -> None:
        """See what other processes did. The cache counts only if the packs it relies on are as they were."""
        self.objects.refresh()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.forget()

    def rest(self) -> None:
        """Note that something was recorded, and nothing else was begun that may have been interrupted."""
        self._is_at_rest = self.publisher.is_settled and (self._has_resumed or not self.has_to_recover())

    def resume(self, *, is_alone: bool) -> bool:
        """Go on as the holder of the lock; False if there may be something to make good before.

        There is nothing if all was at rest, no other process has held the lock since (`is_alone`), and nobody
        touched the packs: who needs no lock, such as `git gc`, leaves other ones.
        """
        is_at_rest, self._is_at_rest = self._is_at_rest, False
        self._has_resumed = False
        if is_at_rest and is_alone and not self._is_damaged:
            known = self.objects.pack_set.stamps()
            self.objects.refresh()
            self.cache.load()
            self._has_resumed = self.objects.pack_set.stamps() == known and self._is_cache_sound()
        return self._has_resumed

    def prepare_to_write(self) -> None:
        """Do the same as the holder of the lock, who also makes good what dead processes left behind."""
        self.abandon()
        self.publisher.recover()
        self._forget_if_damaged()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.discard()

    def _forget_if_damaged(self) -> None:
        """Throw the cache away, by which a snapshot would take for stored what is lost."""
        if self._is_damaged:
            self._is_damaged = False
            self.cache.discard()

    def _is_cache_sound(self) -> bool:
        known = self.cache.info("packs") or {}
        now = self.objects.pack_set.stamps()
        if any(now.get(name) != stamp for name, stamp in known.items()):
            return False
        if known and self.cache.info("boot") == self._boot != "":
            return True
        # A power cut may have brought back rows from before a sweep, and what they name may be gone.
        return all(self.objects.is_listed(id) for id in self.cache.named_ids())

    def has_to_recover(self) -> bool:
        """Return whether something was interrupted that the next holder of the lock makes good."""
        return (
            bool(self.journal.open_intents())
            or self.publisher.has_to_recover()
            or self.journal.has_unfinished_purge()
        )

    @contextmanager
    def adding_objects(self) -> Iterator[PackWriter]:
        """Yield a pack to write objects into; they are durable when the body is over, or none of them is."""
        pack = self.objects.start_pack()
        try:
            yield pack
            if pack.ids:
                self.publisher.publish(pack)
                with self.publisher.recording():
                    pass
        except BaseException:
            pack.abandon()
            self.abandon()
            raise

    def abandon(self) -> None:
        """Throw away what was published and not recorded, and what memory holds of it."""
        if self.publisher.abandon():
            self.cache.forget()

    def doubt_memory(self, live: set[bytes]) -> None:
        """Let nobody rely on what is about to go: all but what is `live`.

        Processes that watch know the worktree as they last recorded it, and the cache may be as old, if those
        that recorded since were killed. What only they remember is stored again by the next snapshot.
        """
        if live.issuperset(self.cache.named_ids()):
            self.cache.renew_token()
        else:
            self.cache.discard()

    def tidy_a_little(self, last: TreeRecord, *, has_idle_time: bool) -> None:
        """After some records, if the timeline holds many bytes, move some out: for hosts that never tidy."""
        self._records += 1
        is_due = not has_idle_time and last.number % self.limits.packs.slice_records == 0
        if is_due and self.publisher.has_much_journaled():
            from shadowtree.timeline.tidy import drain_rows

            drain_rows(self.objects, self.journal, self.publisher, self.limits.packs)

    @property
    def leaves_much(self) -> bool:
        """Whether this process recorded more than a few times, and much waits to be repacked."""
        return self._records >= self.limits.packs.slice_records and self.publisher.has_much_waiting()

    def tidy(self, seconds: float, hold_s: float = inf) -> bool:
        """Repack for about so many seconds, beginning no job after `hold_s`; True: there is more to do."""
        from shadowtree.timeline.tidy import tidy

        keep_again(self.layout.packs, list_unkept(self.layout.packs))
        has_more = tidy(self.objects, self.journal, self.publisher, self.limits.packs, seconds, hold_s)
        if not has_more:
            self.journal.compact()
        self.remember_packs()
        return has_more

    def tidy_before_close(self) -> None:
        """Repack for a moment, and leave no pack in the timeline, where it is there twice."""
        from shadowtree.timeline.tidy import drain_rows

        if self.tidy(self.limits.packs.close_s):
            while drain_rows(self.objects, self.journal, self.publisher, self.limits.packs):
                pass
            self.journal.compact()
            self.remember_packs()

    def remember_packs(self) -> None:
        """Let the cache count on, though its packs are others: all that the last tree needs is in them."""
        if self.cache.info("packs") is not None:
            self.cache.save((), (), {"packs": self.objects.pack_set.stamps()})

    def measure(self) -> int:
        """Return how many bytes the store takes, by what is known already: nothing is walked."""
        return self.measure_packs() + self.journal.measure() + disk.size_if_there(self.layout.cache)

    def exceeds(self, limit: int) -> bool:
        """Return whether the store takes more than `limit` bytes. Rows are counted if it comes to them."""
        beside = self.measure_packs() + disk.size_if_there(self.layout.cache)
        timeline = self.layout.timeline
        most = disk.size_if_there(timeline) + disk.size_if_there(f"{timeline}-wal")
        return beside + most > limit and beside + self.journal.measure() > limit

    def measure_packs(self) -> int:
        """Return how many bytes of that its packs take."""
        return sum(size for _, size, _ in self.objects.pack_set.stamps().values())

    def remember(self, scan: Scan) -> None:
        """Save what the scan found for the next one."""
        changed = scan.changed_directories()
        # The text of rules that were purged is in the worktree still, and goes into no file of the store.
        secret = {directory.path for directory in changed if scan.rule_files.tells_purged(directory)}
        self.cache.save(
            [directory for directory in changed if directory.path not in secret],
            [*scan.gone, *secret],
            {
                "boot": self._boot,
                "packs": self.objects.pack_set.stamps(),
                "indexes": scan.rule_files.indexes,
                "searched": {**(self.cache.info("searched") or {}), **self._searched},
            },
        )

    def was_covered(self, path: RelPath) -> bool:
        """Return whether any recorded tree covers a path; what was searched once is not searched again."""
        known: dict[bytes, int] = self.cache.info("searched") or {}
        number = self._searched.get(path, known.get(path, 0))
        search = PathSearch(self.objects, path)
        for record in self.journal.live_trees(number):
            try:
                is_held = search.is_in(record.tree)
            except StoreDamaged:
                # Nobody can say that it was not: covering too much loses nothing.
                is_held = True
            if is_held:
                self._searched[path] = record.number - 1
                return True
            number = record.number
        self._searched[path] = number
        return False


def tidy_in_turns(
    locked: Callable[[], AbstractContextManager[OpenStore]], limits: Limits, seconds: float
) -> bool:
    """Repack for about so many seconds, and let others have the lock between two jobs; True: all is done."""
    deadline, has_more = monotonic() + seconds, True
    with suppress(Locked):
        while True:
            with locked() as opened:
                has_more = opened.tidy(seconds, limits.sweep_hold_s)
            seconds = deadline - monotonic() - limits.sweep_pause_s
            if not has_more or seconds <= 0:
                break
            limits.sleep(limits.sweep_pause_s)
    return not has_more


def measure_files(layout: StoreLayout) -> int:
    """Return how many bytes a store takes at most, by the sizes of its files, without opening any."""
    try:
        with os.scandir(layout.packs) as entries:
            packs = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        # Somebody is at work there: who needs to know looks again under the lock.
        return 0
    beside = (layout.timeline, f"{layout.timeline}-wal", layout.cache)
    return packs + sum(map(disk.size_if_there, beside))


def _identify(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, os.getpid()
