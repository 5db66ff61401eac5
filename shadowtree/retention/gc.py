"""Freeing a store of what no live tree needs, in steps: mark, keep what is live together, remove the rest.

    prove     before anything is forgotten: make sure that no damage is in the way of the steps below, and
              that there is room for them; else messages would be gone, and nothing won
    mark      walk every live record; if an object is missing, or a row of the timeline is not what was
              written, stop, and remove nothing; what is remembered elsewhere of other objects no longer
              counts: in the cache, and by processes that watch
    chain     make the commits that keep live trees anew, without those of forgotten trees
    shelve    shelf by shelf, write what is live anew and read it back; only then remove the old shelf;
              a shelf of which nearly all is live stays as it is

The lock may be let go between two steps, so that others need not wait. What they recorded meanwhile is marked
before anything else goes: a snapshot may have found in the store what nothing needed before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from time import monotonic

from shadowtree.base.errors import OutOfSpace
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.git_format import deflate, encode_commit, object_id
from shadowtree.system.syscalls import free_bytes
from shadowtree.timeline.database import RowsStamp
from shadowtree.timeline.live_objects import Marking
from shadowtree.timeline.schema import TreeRecord

Locked = Callable[[], AbstractContextManager[OpenStore]]
"""Takes the lock of the store."""


class Sweep:
    """One sweep of a store. Each step is for the holder of the lock."""

    def __init__(self, *, is_thorough: bool = False, is_brief: bool = False) -> None:
        self._is_thorough = is_thorough
        """Remove everything that is not needed, however little it is."""
        self._is_brief = is_brief
        """Leave what is too little for a shelf fresh."""
        self._marking: Marking | None = None
        self._marked: dict[int, bytes] = {}
        """For each record that is marked, by its number, the commit that keeps it."""
        self._seen: RowsStamp | None = None
        """The stamp of the timeline after the last step."""
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
        self._marking, self._marked = Marking(opened.objects, opened.limits.mark), {}
        self._add(self._marking, (tree for tree in opened.journal.live_trees() if tree.number not in going))
        needed = opened.intake.require_shelvable(self._marking, is_brief=self._is_brief)
        free = free_bytes(opened.layout.objects)
        if free < needed:
            raise OutOfSpace(opened.layout.store, free=free, needed=needed, min_free=0)

    def run(self, locked: Locked) -> None:
        """Do all steps, and let others have the lock between two of them."""
        has_more = True
        while has_more:
            with locked() as opened:
                limits = opened.limits
                deadline = monotonic() + limits.sweep_hold_s
                is_over = False
                while has_more and not is_over:
                    has_more = self.step(opened, lambda: monotonic() >= deadline)  # noqa: B023 - called at once
                    is_over = monotonic() >= deadline
            if has_more:
                limits.sleep(limits.sweep_pause_s)

    def step(self, opened: OpenStore, is_over: Callable[[], bool] = lambda: True) -> bool:
        """Do one step, and more of the same until it `is_over`; True if there is more to do."""
        if self._before is None:
            self._before = _measure(opened)
        has_more = opened.intake.shelve(
            self._mark(opened), is_thorough=self._is_thorough, is_brief=self._is_brief, is_over=is_over
        )
        if not has_more:
            opened.journal.compact()
            (ids_before, bytes_before), (ids, bytes_) = self._before, _measure(opened)
            self.removed, self.freed = len(ids_before - ids), max(0, bytes_before - bytes_)
        opened.remember_packs()
        self._seen = opened.journal.stamp()
        return has_more

    def _mark(self, opened: OpenStore) -> Marking:
        """Mark what was recorded since the last step, the newest first; the first time, mark everything.

        If another process has swept meanwhile, and made the commits anew, mark everything again. What was
        recorded and forgotten since is not marked, so it must not be left in the chain.
        """
        journal, marking = opened.journal, self._marking
        is_unchanged = self._seen is not None and (
            journal.stamp() == self._seen or not any(map(self._is_news, journal.live_trees()))
        )
        if marking is not None and is_unchanged:
            return marking
        journal.require_sound()
        marking = self._marking = marking or Marking(opened.objects, opened.limits.mark)
        marking.refresh()
        self._rewrite_chain(opened, marking)
        live = list(journal.live_trees())
        if any(self._is_news(record) for record in live if record.number in self._marked):
            marking, self._marked = Marking(opened.objects, opened.limits.mark), {}
            self._marking = marking
        self._add(marking, (record for record in live if record.number not in self._marked))
        opened.doubt_memory(marking.live)
        return marking

    def _is_news(self, record: TreeRecord) -> bool:
        """Whether a record is not marked, or another commit keeps it since."""
        return self._marked.get(record.number) != record.keeper

    def _add(self, marking: Marking, records: Iterable[TreeRecord]) -> None:
        newest_first = list(records)[::-1]
        marking.add(newest_first)
        self._marked.update((record.number, record.keeper) for record in newest_first)

    def _rewrite_chain(self, opened: OpenStore, marking: Marking) -> None:
        """Make each commit that keeps a live tree the child of the commit that keeps the live tree before it.

        What the commits keep is marked already if the commits that they replace were.
        """
        pack = opened.objects.start_pack()
        replaced: dict[int, tuple[bytes, bytes]] = {}
        last: bytes | None = None
        for record in opened.journal.live_trees():
            keeper, read = record.keeper, marking.read_keeper(record)
            if read.parent != last:
                commit = encode_commit(read.tree, last, record.time_s, "tree " + record.tree.hex())
                keeper = object_id(b"commit", commit)
                # Hardly ever there is one like it, and then it is there twice until the shelves are written.
                pack.add(b"commit", keeper, len(commit), deflate(commit))
                replaced[record.number] = record.keeper, keeper
            last = keeper
        if replaced:
            assert last is not None
            opened.intake.publish(pack)
            with opened.intake.recording(last):
                opened.journal.set_keepers({number: keeper for number, (_, keeper) in replaced.items()})
            marking.note_rewritten(replaced.values())
        known = {number: pair for number, pair in replaced.items() if self._marked.get(number) == pair[0]}
        marking.replace_keepers(known.values())
        self._marked.update((number, keeper) for number, (_, keeper) in known.items())


def sweep_all(opened: OpenStore) -> tuple[int, int]:
    """Remove everything that is not needed, at once; give how many objects and bytes are gone."""
    sweep = Sweep(is_thorough=True)
    while sweep.step(opened, lambda: False):
        pass
    return sweep.removed, sweep.freed


def _measure(opened: OpenStore) -> tuple[frozenset[bytes], int]:
    """Give the objects of a store, and how many bytes of packs and loose objects there are."""
    ids = frozenset().union(opened.objects.loose.ids(), *(pack.ids() for pack in opened.objects.packs()))
    return ids, opened.objects.total_bytes()
