"""Free a store of what no live tree and no ref needs, in steps: mark, rewrite what is live, remove the rest.

    prove     before anything is forgotten: make sure that no damage is in the way of the steps below, and
              that there is room for them; else messages would be gone, and nothing won
    mark      walk every live record and every ref; if an object is missing, or a row of the timeline is not
              what was written, stop, and remove nothing; what is remembered elsewhere of other objects no
              longer counts: in the cache, and by processes that watch
    rewrite   part by part, write what is live anew and read it back; only then remove the old part; one of
              which nearly all is live stays as it is

The lock may be let go between two steps, so that others need not wait. What they recorded meanwhile is marked
before anything else goes: a snapshot may have found in the store what nothing needed before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from math import inf
from time import monotonic

from shadowtree.base.errors import OutOfSpace
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.directory import list_refs
from shadowtree.store.git_format import deflate
from shadowtree.store.pack_writer import keep_again, list_unkept
from shadowtree.store.packs import Pack
from shadowtree.store.repack import Repacker
from shadowtree.store.walk import Walker
from shadowtree.system import disk
from shadowtree.system.syscalls import free_bytes
from shadowtree.timeline.publish import remove_lists
from shadowtree.timeline.tidy import run_job

_INCOMING_S = 24 * 3600
"""How long what comes in is waited for."""

Locked = Callable[[], AbstractContextManager[OpenStore]]
"""Takes the lock of the store."""


class Sweep:
    """One sweep of a store. Each step is for the holder of the lock."""

    def __init__(self, *, is_thorough: bool = False) -> None:
        self._is_thorough = is_thorough
        """Remove everything that is not needed, however little it is, and however young."""
        self._walker: Walker | None = None
        self._trusted = 0
        """How many objects were marked when nobody was to rely on others any more."""
        self._before: tuple[frozenset[bytes], int] | None = None
        self.removed = 0
        """How many objects are gone, once the sweep is over."""
        self.freed = 0
        """How many bytes of objects are gone."""

    def prove(self, opened: OpenStore, going: Collection[int]) -> None:
        """Make sure that the sweep can be done once some trees, by their numbers, are forgotten.

        Changes nothing. Raise StoreDamaged if damage is in the way, and OutOfSpace if there is no room for
        what is written before something goes.
        """
        opened.journal.require_sound()
        walker = Walker(opened.objects)
        self._mark(opened, walker, going=going)
        needed = self._look(opened, walker.reached).require_whole(is_thorough=self._is_thorough)
        free = free_bytes(opened.layout.objects)
        if free < needed:
            raise OutOfSpace(opened.layout.store, free=free, needed=needed, min_free=0)

    def run(self, locked: Locked) -> None:
        """Do all steps, and let others have the lock between two of them."""
        has_more, longest_s = True, 0.0
        while has_more:
            with locked() as opened:
                limits, now = opened.limits, monotonic()
                began, deadline = now, now + limits.sweep_hold_s
                # No step is begun that would probably be too long.
                while has_more and (now == began or now + longest_s < deadline):
                    # What is left of the time is for what may follow at once.
                    has_more, last = self.step(opened, began + limits.sweep_hold_s / 2), now
                    now = monotonic()
                    longest_s = max(longest_s, now - last)
            if has_more:
                limits.sleep(limits.sweep_pause_s)

    def step(self, opened: OpenStore, deadline: float = inf) -> bool:
        """Do one step, marking no longer than until a deadline; True if there is more to do."""
        opened.publisher.make_good()
        if self._before is None:
            keep_again(opened.layout.packs, list_unkept(opened.layout.packs))
            self._before = _measure(opened)
        if self._walker is None:
            self._walker = Walker(opened.objects)
        opened.journal.require_sound()
        live = self._walker.reached
        if not self._mark(opened, self._walker, deadline):
            return True
        if len(live) != self._trusted:
            opened.doubt_memory(live)
            self._trusted = len(live)
        has_more = self._take_loose(opened, live) or self._rewrite(opened, live)
        if not has_more:
            _remove_incoming(opened)
            opened.journal.compact()
            (ids_before, bytes_before), (ids, bytes_) = self._before, _measure(opened)
            self.removed, self.freed = len(ids_before - ids), max(0, bytes_before - bytes_)
        opened.remember_packs()
        return has_more

    def _mark(
        self, opened: OpenStore, walker: Walker, deadline: float = inf, going: Collection[int] = ()
    ) -> bool:
        """Mark what is needed, and was not marked before; False if the deadline came first."""
        for record in opened.journal.live_trees():
            # What was marked before is passed in a moment; a purge may have given a record other trees since.
            if record.number not in going and not walker.walk_trees(
                (record.tree, record.facts), record.blobs_beside, deadline
            ):
                return False
        walker.walk_any(list_refs(opened.layout.store).values())
        for pack in self._list_young(opened):
            walker.walk_any(pack.ids())
        return True

    def _list_young(self, opened: OpenStore) -> list[Pack]:
        """List the packs that others added a short time ago: what is in them stays without a ref to it."""
        if self._is_thorough:
            return []
        since_s = opened.limits.clock_ns() / 1e9 - opened.limits.packs.grace_s
        packs = opened.objects.packs()
        return [pack for pack in packs if not pack.is_ours and (pack.stamp or (0,))[0] / 1e9 > since_s]

    def _look(self, opened: OpenStore, live: set[bytes]) -> Repacker:
        young = self._list_young(opened)
        return Repacker(
            opened.objects, opened.journal.packs.versions(), opened.limits.packs, live, left_alone=young
        )

    def _rewrite(self, opened: OpenStore, live: set[bytes]) -> bool:
        """Rewrite one part, or remove packs of which nothing is needed; True if there was something to do."""
        repacker = self._look(opened, live)
        job = repacker.choose_stale(is_thorough=self._is_thorough)
        if job is not None:
            run_job(repacker, job, opened.publisher)
            return True
        empty = repacker.find_empty()
        if empty:
            with opened.publisher.recording(gone=empty):
                pass
        return bool(empty)

    def _take_loose(self, opened: OpenStore, live: set[bytes]) -> bool:
        """Put live loose objects into a pack, and remove all that are old; True if some were live."""
        loose, objects = opened.objects.loose, opened.objects
        since_s = opened.limits.clock_ns() / 1e9 - opened.limits.packs.grace_s
        ids = loose.ids()
        kept = [id for id in ids if id in live]
        if kept:
            pack = objects.start_pack()
            for id in kept:
                kind, content = objects.read_any(id)
                pack.add(kind, id, len(content), deflate(content))
            opened.publisher.publish(pack)
            with opened.publisher.recording():
                pass
        old = [id for id in ids if id not in live and (self._is_thorough or loose.written_s(id) < since_s)]
        if kept or old:
            remove_lists(opened.layout)
            objects.remove_loose([*kept, *old])
        return bool(kept)


def _remove_incoming(opened: OpenStore) -> None:
    """Remove packs on their way in, of git or through `Shadow.repo`, that nobody wrote to for a day."""
    since_s = opened.limits.clock_ns() / 1e9 - _INCOMING_S
    for directory in (opened.layout.objects, opened.layout.packs):
        with disk.store_errors(directory):
            files = [entry for entry in os.scandir(directory) if entry.name.startswith("tmp_")]
            old = [entry.path for entry in files if entry.stat().st_mtime < since_s]
        for path in old:
            disk.remove_file(path)


def sweep_all(opened: OpenStore) -> tuple[int, int]:
    """Remove everything that is not needed, at once; return how many objects and bytes are gone."""
    sweep = Sweep(is_thorough=True)
    while sweep.step(opened):
        pass
    return sweep.removed, sweep.freed


def _measure(opened: OpenStore) -> tuple[frozenset[bytes], int]:
    """Return the objects of a store, and how many bytes of packs and loose objects there are."""
    ids = frozenset().union(opened.objects.loose.ids(), *(pack.ids() for pack in opened.objects.packs()))
    return ids, opened.objects.total_bytes()
