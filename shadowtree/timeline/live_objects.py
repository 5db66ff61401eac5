"""What recorded trees need: every object that is reached from them, and which versions are of the same thing.

Records are walked from the newest to the oldest, each beside the one that is newer. What both have in common
is walked once, so that the cost is that of one tree and of what changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.limits import DEFAULT_LIMITS, MarkLimits
from shadowtree.store.deltas import BadDelta, apply_delta
from shadowtree.store.git_format import PACK_HEADER_SIZE, Keeper, TreeListing, object_id, parse_keeper
from shadowtree.store.objects import Objects
from shadowtree.timeline.schema import TreeRecord

_Place = tuple[int, int]
"""Which pack something is in, and where in there."""
_News = tuple[bytes, bool, bytes | None]
"""An object, whether it is a tree, and which version of the same thing, of the same kind, is newer."""


class _Source:
    """Reads trees and commits of a store, in any order but mostly from newer to older versions.

    Who walks a store reads tens of thousands: so it is known beforehand where each is, and what an
    older version is a delta of was read a moment ago.
    """

    def __init__(self, objects: Objects, limits: MarkLimits) -> None:
        self._objects = objects
        self._packs = objects.packs()
        self._to_load: set[int] = set()
        """Packs that are read as a whole when they are first needed."""
        self._places: dict[bytes, _Place] = {}
        self._contents: dict[_Place, bytes] = {}
        """What is remembered: all of it goes when it becomes too much."""
        self._most_bytes = self._room = limits.remembered_bytes
        room = limits.loaded_bytes
        for number, pack in enumerate(self._packs):
            if pack.size <= min(limits.largest_loaded, room):
                self._to_load.add(number)
                room -= pack.size
            self._places.update(zip(pack.ids(), zip(repeat(number), pack.offsets_by_id()), strict=True))

    def require_listed(self, ids: set[bytes]) -> None:
        """Raise StoreDamaged unless all objects are in some pack, or have a file."""
        for id in ids.difference(self._places):
            if not self._objects.is_listed(id):
                raise StoreDamaged(f"object {id.hex()} is missing")

    def read(self, kind: bytes, id: bytes) -> bytes:
        """Read an object; StoreDamaged unless it has the right hash."""
        place = self._places.get(id)
        if place is not None:
            try:
                content = self._read_at(*place)
                if content is not None and object_id(kind, content) == id:
                    return content
            except (BadDelta, StoreDamaged, StoreFailed):
                pass
        # It may have been moved meanwhile, or another copy of it is whole.
        return self._objects.read(kind, id)

    def _read_at(self, number: int, offset: int) -> bytes | None:
        """Read what is at a place; None if it is made of something that is not before it in the same pack."""
        if number in self._to_load:
            self._to_load.remove(number)
            self._packs[number] = self._packs[number].load()
        deltas: list[tuple[int, bytes]] = []
        content = self._contents.get((number, offset))
        while content is None:
            _, base, inflated = self._packs[number].read_small_entry(offset)
            if base is None:
                content = inflated
                self._remember((number, offset), content)
            elif isinstance(base, bytes) or not PACK_HEADER_SIZE <= base < offset:
                return None
            else:
                deltas.append((offset, inflated))
                offset = base
                content = self._contents.get((number, offset))
        for at, delta in reversed(deltas):
            content = apply_delta(content, delta)
            self._remember((number, at), content)
        return content

    def _remember(self, place: _Place, content: bytes) -> None:
        self._room -= len(content)
        if self._room < 0:
            self._room = self._most_bytes
            self._contents.clear()
        self._contents[place] = content


class Marking:
    """The objects that some records need. Raises StoreDamaged if any of them is missing."""

    def __init__(self, objects: Objects, limits: MarkLimits = DEFAULT_LIMITS.mark) -> None:
        self._objects = objects
        self._limits = limits
        self.live: set[bytes] = set()
        self.before: dict[bytes, bytes] = {}
        """By the newer one of two versions the older one."""
        self._listings: dict[bytes, TreeListing] = {}
        """Trees that were read a moment ago: who walks the next record needs them beside it."""
        self._room = self._limits.remembered_bytes
        self._known_source: _Source | None = None
        self._kept: dict[bytes, bytes] = {}
        """By the commits that keep records the trees in them, of those that were read."""
        self._newer: bytes | None = None
        """What the record that was marked last is kept by."""

    @property
    def _source(self) -> _Source:
        if self._known_source is None:
            self._known_source = _Source(self._objects, self._limits)
        return self._known_source

    def refresh(self) -> None:
        """See which packs there are now."""
        self._known_source = None

    def read_keeper(self, record: TreeRecord) -> Keeper:
        """Read the commit that keeps a record."""
        keeper = parse_keeper(self._source.read(b"commit", record.keeper))
        self._kept[record.keeper] = keeper.tree
        return keeper

    def add(self, records: Iterable[TreeRecord]) -> None:
        """Mark what records need, the newest first, and the commits that keep them."""
        known = self.live.copy()
        for record in records:
            kept = self._kept.get(record.keeper) or self.read_keeper(record).tree
            self._walk(kept, self._newer)
            self.live.add(record.keeper)
            self._newer = kept
        self._source.require_listed(self.live - known)

    def note_rewritten(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Note commits that were made anew, each with what the one before it, which was read, keeps."""
        self._kept.update((after, self._kept[before]) for before, after in pairs)

    def replace_keepers(self, pairs: Collection[tuple[bytes, bytes]]) -> None:
        """Mark for commits that keep a record the ones that do so now."""
        self.live.difference_update(before for before, _ in pairs)
        self.live.update(after for _, after in pairs)

    def _walk(self, tree: bytes, newer: bytes | None) -> None:
        waiting = [(tree, newer)]
        live = self.live
        while waiting:
            tree, newer = waiting.pop()
            if tree in live:
                continue
            self._mark(tree, newer)
            for id, is_tree, version in self._list_news(tree, newer):
                if id in live:
                    continue
                if is_tree:
                    waiting.append((id, version))
                else:
                    self._mark(id, version)

    def _mark(self, id: bytes, newer: bytes | None) -> None:
        self.live.add(id)
        if newer is not None:
            self.before.setdefault(newer, id)

    def _list_news(self, tree: bytes, newer: bytes | None) -> list[_News]:
        """List a tree; give what may not be in the `newer` one, of which all is marked."""
        content = self._source.read(b"tree", tree)
        if newer is None:
            listing = self._remember(tree, TreeListing(content))
            return [(listing.id(place), listing.is_tree(place), None) for place in range(len(listing))]
        beside = self._listings.get(newer) or self._list(newer)
        places = beside.find_changes(content)
        if places is None:
            return _compare(self._remember(tree, TreeListing(content)), beside)
        listing = self._remember(tree, TreeListing(content, beside))
        return [(listing.id(place), listing.is_tree(place), beside.id(place)) for place in places]

    def _list(self, tree: bytes) -> TreeListing:
        return self._remember(tree, TreeListing(self._source.read(b"tree", tree)))

    def _remember(self, tree: bytes, listing: TreeListing) -> TreeListing:
        self._room -= listing.size
        if self._room < 0:
            self._room = self._limits.remembered_bytes
            self._listings.clear()
        self._listings[tree] = listing
        return listing


def _compare(listing: TreeListing, beside: TreeListing) -> list[_News]:
    """Give all that is in a tree, with the version of the same thing in the other."""
    versions = {(beside.name(place), beside.is_tree(place)): beside.id(place) for place in range(len(beside))}
    return [
        (listing.id(place), is_tree, versions.get((listing.name(place), is_tree)))
        for place, is_tree in enumerate(map(listing.is_tree, range(len(listing))))
    ]
