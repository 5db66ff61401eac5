"""An open store: its objects, its timeline and its cache, and the order in which they are written.

    objects published ──▶ rows in the timeline ──▶ files ──▶ cache

A tree is recorded, with all its objects, when its rows are committed (invariant 2). Earlier steps are
invisible until then, and later ones can be repeated. `timeline/publish_packs` publishes objects.
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
from shadowtree.store.packs.pack_writer import PackWriter, keep_again, list_unkept
from shadowtree.system import disk
from shadowtree.system.syscalls import boot_id
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.publish_packs import Publisher
from shadowtree.timeline.sqlite.schema import TreeRecord


class OpenStore:
    """The open files of a store. Writing needs its lock."""

    def __init__(self, layout: StoreLayout, limits: Limits = DEFAULT_LIMITS) -> None:
        self.layout = layout
        self.limits = limits
        self._timeline = _identify(layout.timeline)
        self._is_damaged = False
        """A needed object has no whole copy."""
        self._boot = boot_id() if limits.boot_id is None else limits.boot_id
        self.journal = Journal(layout.timeline, limits)
        self.objects = self.open_objects()
        self.publisher = Publisher(layout, self.objects, self.journal, self._boot, limits.packs)
        self.cache = StatCache(layout.cache)
        self._records = 0
        """How many new trees were recorded through this object."""
        self._is_clean = False
        """If this process is the next to hold the lock, it has nothing to recover."""
        self._has_skipped_recovery = False
        """There was nothing to recover when the lock was taken."""
        self.exported: tuple[object, dict[bytes, bytes | None]] | None = None
        """The stamp of the rows from which the refs of the conversation were made, and these refs."""
        self._searched: dict[bytes, int] = {}
        """By path above a limit, the number of the last tree that was searched for it."""

    def open_objects(self, scratch: Scratch | None = None) -> Objects:
        """Open the objects again, to read them together with those of a scratch."""
        return Objects(self.layout.objects, scratch, self.journal.packs.read_all, self._notice_damage)

    def _notice_damage(self) -> None:
        """Make the next snapshot read everything: a lost object may still be in the worktree."""
        self._is_damaged = True

    def is_current(self) -> bool:
        """Return whether the open timeline is still the file in the store, opened by this process."""
        return self._timeline == _identify(self.layout.timeline)

    def close(self) -> None:
        """Close every file."""
        self._forget_if_damaged()
        self.cache.close()
        self.journal.close()
        self.objects.close()

    def __del__(self) -> None:
        # For callers that never close: a host that drops a shadow should not keep its files open.
        if hasattr(self, "cache"):
            self.close()

    def refresh(self) -> None:
        """Load what other processes wrote; ignore the cache if the packs that it relies on have changed."""
        self.objects.refresh()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.forget()

    def mark_clean(self) -> None:
        """Mark the store as clean if everything begun is recorded, so that nothing has to be recovered."""
        self._is_clean = self.publisher.is_settled and (
            self._has_skipped_recovery or not self.has_to_recover()
        )

    def skip_recovery_if_clean(self, *, is_alone: bool) -> bool:
        """Return True, ready to write, if the holder of the lock has nothing to recover.

        There is nothing if the store was clean, no other process held the lock since (`is_alone`), and the
        packs are unchanged: a process that needs no lock, such as `git gc`, may have replaced them.
        """
        is_clean, self._is_clean = self._is_clean, False
        self._has_skipped_recovery = False
        if is_clean and is_alone and not self._is_damaged:
            known = self.objects.pack_set.stamps()
            self.objects.refresh()
            self.cache.load()
            self._has_skipped_recovery = self.objects.pack_set.stamps() == known and self._is_cache_sound()
        return self._has_skipped_recovery

    def recover(self) -> None:
        """Recover as the holder of the lock what dead processes left behind, and load the cache."""
        self.abandon()
        self.publisher.recover()
        self._forget_if_damaged()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.discard()

    def _forget_if_damaged(self) -> None:
        """Discard the cache after damage: it would make a snapshot take lost objects for stored."""
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
        # A power cut may have brought back rows from before a sweep that name removed objects.
        return all(self.objects.is_listed(id) for id in self.cache.named_ids())

    def has_to_recover(self) -> bool:
        """Return whether the next holder of the lock has to recover interrupted work."""
        return (
            bool(self.journal.open_intents())
            or self.publisher.has_to_recover()
            or self.journal.has_unfinished_purge()
        )

    @contextmanager
    def adding_objects(self) -> Iterator[PackWriter]:
        """Yield a pack to write objects into; after the body all are durable, or none if it raises."""
        self.publisher.make_good()
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
        """Discard what was published but not recorded, and the cache in memory if there was any."""
        if self.publisher.abandon():
            self.cache.forget()

    def doubt_memory(self, live: set[bytes]) -> None:
        """Keep processes from relying on objects that are about to be removed: all except the `live` ones.

        Watching processes remember the worktree as they last recorded it. The cache may be as old, if
        processes that recorded since were killed. The next snapshot stores again what only they remembered.
        """
        if live.issuperset(self.cache.named_ids()):
            self.cache.renew_token()
        else:
            self.cache.discard()

    def tidy_a_little(self, last: TreeRecord, *, has_idle_time: bool) -> None:
        """After a record, merge journaled packs if there are many; or move some out of the timeline.

        The second takes longer. It is done after some records, if the timeline holds much, for hosts that
        never tidy.
        """
        self._records += 1
        limits, waiting = self.limits.packs, 0 if has_idle_time else self.journal.packs.journaled_bytes()
        is_due = last.number % limits.slice_records == 0 or waiting > limits.most_bytes
        if is_due and waiting > limits.much_bytes:
            from shadowtree.timeline.tidy import drain_rows

            drain_rows(self.objects, self.journal, self.publisher, limits)
        else:
            self.publisher.merge()

    @property
    def leaves_much(self) -> bool:
        """Whether this process recorded more than a few times, and much waits to be repacked."""
        return self._records >= self.limits.packs.slice_records and self.publisher.has_much_waiting()

    def tidy(self, seconds: float, hold_s: float = inf) -> bool:
        """Repack for about `seconds`, starting no job after `hold_s`; return True when all is done."""
        from shadowtree.timeline.tidy import tidy

        keep_again(self.layout.packs, list_unkept(self.layout.packs))
        is_done = tidy(self.objects, self.journal, self.publisher, self.limits.packs, seconds, hold_s)
        if is_done:
            self.journal.compact()
        self.remember_packs()
        return is_done

    def tidy_before_close(self) -> None:
        """Repack briefly; if more is left to do, move the packs that are stored twice out of the timeline."""
        from shadowtree.timeline.tidy import drain_rows

        end = monotonic() + 2 * self.limits.packs.close_s
        if not self.tidy(self.limits.packs.close_s):
            while drain_rows(self.objects, self.journal, self.publisher, self.limits.packs):
                if monotonic() > end:
                    break
            self.journal.compact()
            self.remember_packs()

    def remember_packs(self) -> None:
        """Keep the cache valid although packs were replaced: they still hold all that the last tree needs."""
        if self.cache.info("packs") is not None:
            self.cache.save((), (), {"packs": self.objects.pack_set.stamps()})

    def measure(self) -> int:
        """Return how many bytes the store takes, by what is already known, without reading directories."""
        return self.measure_packs() + self.journal.measure() + disk.size_if_there(self.layout.cache)

    def exceeds(self, limit: int) -> bool:
        """Return whether the store takes more than `limit` bytes. Rows are counted only if they decide it."""
        beside = self.measure_packs() + disk.size_if_there(self.layout.cache)
        timeline = self.layout.timeline
        most = disk.size_if_there(timeline) + disk.size_if_there(f"{timeline}-wal")
        return beside + most > limit and beside + self.journal.measure() > limit

    def measure_packs(self) -> int:
        """Return how many bytes the packs take."""
        return sum(size for _, size, _ in self.objects.pack_set.stamps().values())

    def remember(self, scan: Scan) -> None:
        """Save what the scan found for the next one."""
        changed = scan.changed_directories()
        # The text of purged rules is still in the worktree, but must not get into any file of the store.
        secret = {directory.path for directory in changed if scan.rule_files.tells_purged(directory)}
        self.cache.save(
            [directory for directory in changed if directory.path not in secret],
            [*scan.gone, *secret],
            {
                "boot": self._boot,
                "packs": self.objects.pack_set.stamps(),
                "indexes": scan.rule_files.lasting_indexes(scan.started_ns),
                "searched": {**(self.cache.info("searched") or {}), **self._searched},
            },
        )

    def was_covered(self, path: RelPath) -> bool:
        """Return whether any recorded tree covers a path; trees that were searched are not searched again."""
        known: dict[bytes, int] = self.cache.info("searched") or {}
        number = self._searched.get(path, known.get(path, 0))
        search = PathSearch(self.objects, path)
        for record in self.journal.live_trees(number):
            try:
                is_held = search.is_in(record.tree)
            except StoreDamaged:
                # It may have been covered, and covering too much loses nothing.
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
    """Repack for about `seconds`, releasing the lock between turns; return True when all is done."""
    deadline, is_done = monotonic() + seconds, False
    with suppress(Locked):
        while True:
            with locked() as opened:
                is_done = opened.tidy(seconds, limits.sweep_hold_s)
            seconds = deadline - monotonic() - limits.sweep_pause_s
            if is_done or seconds <= 0:
                break
            limits.sleep(limits.sweep_pause_s)
    return is_done


def measure_files(layout: StoreLayout) -> int:
    """Return how many bytes a store takes at most, by the sizes of its files, without opening any.

    Return 0 if another process is changing the packs.
    """
    try:
        with os.scandir(layout.packs) as entries:
            packs = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        # A caller that needs to know measures again under the lock.
        return 0
    beside = (layout.timeline, f"{layout.timeline}-wal", layout.cache)
    return packs + sum(map(disk.size_if_there, beside))


def _identify(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, os.getpid()
