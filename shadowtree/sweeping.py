"""Freeing a store of what no live tree needs, in steps: mark, keep what is live together, remove the rest.

    prove     who is about to forget something makes sure first that there will be no damage in the way of
              what follows, and room for it: else messages would be gone, and nothing won
    mark      every live record is walked; anything that is missing, or a row of the timeline that is not
              what was written, ends it, and nothing is removed;
              what memories hold beside that no longer counts: the cache's, and those of who watches
    chain     the commits that keep live trees are made anew, without those of forgotten ones
    shelve    shelf by shelf, what is live is written anew and read back; only then the old one goes;
              a shelf of which nearly all is live stays as it is

The lock may be let go between two steps, so that others are not kept waiting. What they recorded meanwhile is
marked before anything else goes: a snapshot may have found in the store what nothing needed before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from shadowtree.deflate import deflate
from shadowtree.errors import OutOfSpace
from shadowtree.events import TreeRecord
from shadowtree.frozen import frozen
from shadowtree.gitformat import encode_commit, object_id
from shadowtree.marking import Marking
from shadowtree.opened import OpenStore
from shadowtree.rows import RowsStamp
from shadowtree.system import free_bytes


@frozen
class Extent:
    """What is in a store: how many objects, and how many bytes of packs and loose objects."""

    objects: frozenset[bytes]
    size_bytes: int


class Sweep:
    """One sweep of a store. Each step is for the holder of the lock."""

    def __init__(self, *, is_thorough: bool = False, is_brief: bool = False) -> None:
        self._is_thorough = is_thorough
        """Whether nothing may be left that is not needed, though it is next to nothing."""
        self._is_brief = is_brief
        """Whether what is too little for a shelf may stay fresh."""
        self._marking: Marking | None = None
        self._marked: dict[int, bytes] = {}
        """By its number the commit that keeps each record that is marked."""
        self._seen: RowsStamp | None = None
        """The stamp of the timeline after the last step."""
        self._before: Extent | None = None
        self._after: Extent | None = None

    @property
    def removed(self) -> int:
        """How many objects are gone."""
        if self._before is None or self._after is None:
            return 0
        return len(self._before.objects - self._after.objects)

    @property
    def freed(self) -> int:
        """How many bytes of objects there are less."""
        if self._before is None or self._after is None:
            return 0
        return max(0, self._before.size_bytes - self._after.size_bytes)

    def prove(self, opened: OpenStore, going: Collection[int]) -> None:
        """Make sure that a sweep can be done once some trees, by their numbers, are forgotten.

        Changes nothing. Raise StoreDamaged if anything is in the way, and OutOfSpace if there is no room for
        what is written before something goes.
        """
        opened.journal.require_sound()
        self._marking, self._marked = Marking(opened.objects), {}
        self._add(record for record in opened.journal.live_trees() if record.number not in going)
        needed = opened.require_shelvable(self._marking, is_brief=self._is_brief)
        free = free_bytes(opened.layout.objects)
        if free < needed:
            raise OutOfSpace(opened.layout.store, free=free, needed=needed, min_free=0)

    def step(self, opened: OpenStore, is_over: Callable[[], bool] = lambda: True) -> bool:
        """Do one step, and more of the same until it `is_over`; True if there is more to do."""
        if self._before is None:
            self._before = measure(opened)
        has_more = opened.shelve(
            self._mark(opened), is_thorough=self._is_thorough, is_brief=self._is_brief, is_over=is_over
        )
        if not has_more:
            opened.journal.compact()
            self._after = measure(opened)
        opened.remember_packs()
        self._seen = opened.journal.stamp()
        return has_more

    def _mark(self, opened: OpenStore) -> Marking:
        """Mark what was recorded since the last step, the newest first, and all of it the first time.

        Another one may have swept as well meanwhile, and made the commits anew: then all is marked again.
        What was recorded and forgotten since is not marked, so that it must not be left in the chain.
        """
        if self._seen is None or self._finds_news(opened):
            opened.journal.require_sound()
            reading = self._marking or Marking(opened.objects)
            reading.refresh()
            self._replace_keepers(_rewrite_chain(opened, reading))
            live = list(opened.journal.live_trees())
            known = [record for record in live if record.number in self._marked]
            if self._marking is None:
                self._marking = reading
            elif any(map(self._is_news, known)):
                self._marking, self._marked = Marking(opened.objects), {}
            self._add(record for record in live if record.number not in self._marked)
            opened.doubt_memory(self._marking.live)
        assert self._marking is not None
        return self._marking

    def _add(self, records: Iterable[TreeRecord]) -> None:
        assert self._marking is not None
        newest_first = list(records)[::-1]
        self._marking.add(newest_first)
        self._marked.update((record.number, record.keeper) for record in newest_first)

    def _replace_keepers(self, replaced: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Note which commits were made anew: all that they keep is marked already."""
        known = {number: pair for number, pair in replaced.items() if self._marked.get(number) == pair[0]}
        if self._marking is not None:
            self._marking.replace_keepers(known.values())
        self._marked.update((number, keeper) for number, (_, keeper) in known.items())

    def _finds_news(self, opened: OpenStore) -> bool:
        """Tell whether something was recorded since the last step, or another one has swept."""
        journal = opened.journal
        return journal.stamp() != self._seen and any(map(self._is_news, journal.live_trees()))

    def _is_news(self, record: TreeRecord) -> bool:
        """Tell whether a record is not marked, or is kept by another commit since."""
        return self._marked.get(record.number) != record.keeper


def sweep(opened: OpenStore, *, is_thorough: bool = False) -> Sweep:
    """Do a whole sweep at once."""
    done = Sweep(is_thorough=is_thorough)
    while done.step(opened, lambda: False):
        pass
    return done


def measure(opened: OpenStore) -> Extent:
    """Tell what is in a store."""
    packs = opened.objects.packs()
    ids = frozenset().union(opened.objects.loose.ids(), *(pack.ids() for pack in packs))
    return Extent(ids, opened.object_bytes())


def _rewrite_chain(opened: OpenStore, marking: Marking) -> dict[int, tuple[bytes, bytes]]:
    """Let each commit that keeps a live tree have that of the live one before it as its parent.

    Give by their numbers the trees that other commits keep now: which one did, and which one does.
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
        opened.replace_keepers(pack, {number: keeper for number, (_, keeper) in replaced.items()}, last)
        marking.note_rewritten(replaced.values())
    return replaced
