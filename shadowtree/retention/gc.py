"""Remove what no live tree and no ref needs, in steps: mark, rewrite what is live, remove the rest.

    prove     before anything is forgotten, prove that the steps below can be done: no damage is in the way,
              and there is enough space; otherwise messages would be lost and nothing freed
    mark      walk every live record and every ref; if an object is missing, or a row of the timeline is
              damaged, stop and remove nothing; the cache and processes that watch no longer rely on any
              other object
    rewrite   part by part, write what is live into a new part and read it back; only then remove the old one;
              a part that is nearly all live stays as it is

The lock may be released between two steps, so that others need not wait. What they record meanwhile is marked
before anything else is removed: a snapshot may have reused objects that nothing needed before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from math import inf
from time import monotonic

from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.size_limits import require_free_space
from shadowtree.store.files import INCOMING_S
from shadowtree.store.git_format import deflate
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import keep_again, list_unkept
from shadowtree.store.packs.repack import Repacker
from shadowtree.store.walk import Walker
from shadowtree.system import disk
from shadowtree.timeline.publish_packs import remove_lists
from shadowtree.timeline.tidy import run_job

Locked = Callable[[], AbstractContextManager[OpenStore]]
"""Takes the lock of the store."""


class Sweep:
    """One sweep of a store. Each step needs the lock."""

    def __init__(self, *, is_thorough: bool = False) -> None:
        self._is_thorough = is_thorough
        """Remove everything that is not needed, however little it is, and however young."""
        self._walker: Walker | None = None
        self._trusted = 0
        """How many objects were marked when `doubt_memory` was last called."""
        self._before: tuple[frozenset[bytes], int] | None = None
        self.removed = 0
        """How many objects were removed, once the sweep is over."""
        self.freed = 0
        """How many bytes that freed."""

    def prove(self, opened: OpenStore, going: Collection[int]) -> None:
        """Prove that the sweep can be done once the trees in `going`, by number, are forgotten.

        Changes nothing. Raises StoreDamaged if damage is in the way, and OutOfSpace if there is no space for
        what is written before anything is removed.
        """
        opened.journal.require_sound()
        walker = Walker(opened.objects)
        self._mark(opened, walker, going=going)
        needed = self._look(opened, walker.reached).require_whole(is_thorough=self._is_thorough)
        require_free_space(opened.layout.store, needed, min_free=0)

    def run(self, locked: Locked) -> None:
        """Do all steps, releasing the lock from time to time between two of them."""
        has_more, longest_s = True, 0.0
        while has_more:
            with locked() as opened:
                limits, now = opened.limits, monotonic()
                began, deadline = now, now + limits.sweep_hold_s
                # Begin no step that would probably take too long.
                while has_more and (now == began or now + longest_s < deadline):
                    # Marking takes at most half of the time; the rest is for a rewrite right after it.
                    has_more, last = self.step(opened, began + limits.sweep_hold_s / 2), now
                    now = monotonic()
                    longest_s = max(longest_s, now - last)
            if has_more:
                limits.sleep(limits.sweep_pause_s)

    def step(self, opened: OpenStore, deadline: float = inf) -> bool:
        """Do one step, with marking until `deadline` at most; return True if there is more to do."""
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
        """Mark whatever is needed and not marked yet; False if the deadline came first."""
        for record in opened.journal.live_trees():
            # Marked trees are skipped quickly. A purge may have given a record other trees since.
            if record.number not in going and not walker.walk_trees(
                (record.tree, record.facts), record.blobs_beside, deadline
            ):
                return False
        walker.walk_refs(opened.layout.store)
        for pack in self._list_young(opened):
            walker.walk_any(pack.ids())
        return True

    def _list_young(self, opened: OpenStore) -> list[Pack]:
        """List the packs that others added recently: their objects stay even if no ref leads to them."""
        if self._is_thorough:
            return []
        since_s = opened.limits.clock_ns() / 1e9 - opened.limits.packs.grace_s
        packs = opened.objects.packs()
        return [pack for pack in packs if not pack.is_ours and pack.written_s > since_s]

    def _look(self, opened: OpenStore, live: set[bytes]) -> Repacker:
        young = self._list_young(opened)
        return Repacker(
            opened.objects, opened.journal.packs.versions(), opened.limits.packs, live, left_alone=young
        )

    def _rewrite(self, opened: OpenStore, live: set[bytes]) -> bool:
        """Rewrite one part, or remove packs that nothing needs; True if there was something to do."""
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
        """Move live loose objects into a pack, and remove old ones that are not; True if any were live."""
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
            loose.remove([*kept, *old])
            objects.refresh()
        return bool(kept)


def _remove_incoming(opened: OpenStore) -> None:
    """Remove incoming packs of git or `Shadow.repo` that nobody wrote to for a day."""
    since_s = opened.limits.clock_ns() / 1e9 - INCOMING_S
    for directory in (opened.layout.objects, opened.layout.packs):
        with disk.store_errors(directory):
            found = [entry for entry in os.scandir(directory) if entry.name.startswith("tmp_")]
            old = [entry for entry in found if entry.stat(follow_symlinks=False).st_mtime < since_s]
        for entry in old:
            # A directory holds what git was receiving when it was killed.
            remove = disk.remove_tree if entry.is_dir(follow_symlinks=False) else disk.remove_file
            remove(entry.path)


def sweep_all(opened: OpenStore) -> tuple[int, int]:
    """Remove everything that is not needed, at once; return how many objects and bytes were removed."""
    sweep = Sweep(is_thorough=True)
    while sweep.step(opened):
        pass
    return sweep.removed, sweep.freed


def _measure(opened: OpenStore) -> tuple[frozenset[bytes], int]:
    """Return the ids of all objects, and how many bytes packs and loose objects take."""
    ids = frozenset().union(opened.objects.loose.ids(), *(pack.ids() for pack in opened.objects.packs()))
    return ids, opened.objects.total_bytes()
