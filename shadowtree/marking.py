"""What recorded trees need: every object that is reached from them, and which versions are of the same thing.

Records are walked from the newest to the oldest, each beside the one that is newer. What both have in common
is walked once, so that the cost is that of one tree and of what changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat

from shadowtree.deltas import BadDelta, apply_delta
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.events import TreeRecord
from shadowtree.gitformat import PACK_HEADER_SIZE, Keeper, object_id, parse_keeper
from shadowtree.objects import Objects
from shadowtree.packs import Pack
from shadowtree.treelisting import TreeListing

_REMEMBERED_TREES = 20_000
_REMEMBERED_BYTES = 32 << 20


class _Source:
    """Reads trees and commits of a store, in any order but mostly from newer to older versions.

    Who walks a store reads tens of thousands: so it is known beforehand where each is, and what an
    older version is a delta of was read a moment ago.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._places: dict[bytes, tuple[Pack, int]] = {}
        """By its id, in which pack an object is, and where."""
        for pack in objects.packs():
            self._places.update(zip(pack.ids(), zip(repeat(pack), pack.offsets_by_id()), strict=False))
        self._contents: dict[tuple[Pack, int], bytes] = {}
        self._room = _REMEMBERED_BYTES

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

    def _read_at(self, pack: Pack, offset: int) -> bytes | None:
        """Read what is at a place; None if it is made of something that is not before it in the same pack."""
        deltas: list[tuple[int, bytes]] = []
        content = self._contents.get((pack, offset))
        while content is None:
            _, base, inflated = pack.read_small_entry(offset)
            if base is None:
                content = inflated
                self._remember(pack, offset, content)
            elif isinstance(base, bytes) or not PACK_HEADER_SIZE <= base < offset:
                return None
            else:
                deltas.append((offset, inflated))
                offset = base
                content = self._contents.get((pack, offset))
        for place, delta in reversed(deltas):
            content = apply_delta(content, delta)
            self._remember(pack, place, content)
        return content

    def _remember(self, pack: Pack, offset: int, content: bytes) -> None:
        self._room -= len(content)
        if self._room < 0:
            self._contents.clear()
            self._room = _REMEMBERED_BYTES
        self._contents[pack, offset] = content


class Marking:
    """The objects that some records need. Raises StoreDamaged if any of them is missing."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.live: set[bytes] = set()
        self.before: dict[bytes, bytes] = {}
        """By the newer one of two versions the older one."""
        self._listings: dict[bytes, TreeListing] = {}
        """Trees that were read a moment ago: who walks the next record needs them beside it."""
        self._known_source: _Source | None = None
        self._kept: dict[bytes, bytes] = {}
        """By the commits that keep records the trees in them, of those that were read."""
        self._newer: bytes | None = None
        """What the record that was marked last is kept by."""

    @property
    def _source(self) -> _Source:
        if self._known_source is None:
            self._known_source = _Source(self._objects)
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
        for record in records:
            kept = self._kept.get(record.keeper) or self.read_keeper(record).tree
            self._walk(kept, self._newer)
            self.live.add(record.keeper)
            self._newer = kept
        self._source.require_listed(self.live)

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
            for place, version in self._list_news(tree, newer):
                listing = self._listings[tree]
                id = listing.id(place)
                if id in live:
                    continue
                if listing.is_tree(place):
                    waiting.append((id, version))
                else:
                    self._mark(id, version)

    def _mark(self, id: bytes, newer: bytes | None) -> None:
        self.live.add(id)
        if newer is not None:
            self.before.setdefault(newer, id)

    def _list_news(self, tree: bytes, newer: bytes | None) -> Iterable[tuple[int, bytes | None]]:
        """List a tree; give the places that may lead to what is not in the `newer` one, which is marked.

        With each is given which version of the same thing is in there, if any is. Such a version is of the
        same kind: a tree and a tree, or a file and a file.
        """
        content = self._source.read(b"tree", tree)
        beside = None if newer is None else self._listings.get(newer) or self._list(newer)
        places = None if beside is None else beside.find_changes(content)
        if beside is not None and places is not None:
            self._remember(tree, TreeListing(content, beside))
            return [(place, beside.id(place)) for place in places]
        listing = self._remember(tree, TreeListing(content))
        if beside is None:
            return zip(range(len(listing)), repeat(None))
        known = {(beside.name(place), beside.is_tree(place)): place for place in range(len(beside))}
        found = [known.get((listing.name(place), listing.is_tree(place))) for place in range(len(listing))]
        return enumerate(None if place is None else beside.id(place) for place in found)

    def _list(self, tree: bytes) -> TreeListing:
        return self._remember(tree, TreeListing(self._source.read(b"tree", tree)))

    def _remember(self, tree: bytes, listing: TreeListing) -> TreeListing:
        if len(self._listings) > _REMEMBERED_TREES:
            self._listings.clear()
        self._listings[tree] = listing
        return listing
