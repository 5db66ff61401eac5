"""What recorded trees need: every object that is reached from them, and which versions are of the same thing.

Records are walked from the newest to the oldest, each beside the one that is newer. What both have in common
is walked once, so that the cost is that of one tree and of what changed since.
"""

from __future__ import annotations

from collections.abc import Collection

from shadowtree.deltas import BadDelta, apply_delta
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.events import TreeRecord
from shadowtree.gitformat import object_id, parse_keeper, split_tree
from shadowtree.objects import Objects
from shadowtree.packs import Pack

_TREE = len(b"40000") + 20
"""How long mode and id of a subtree are: the mode of anything else has one digit more."""
_REMEMBERED_TREES = 20_000
_REMEMBERED_BYTES = 32 << 20


class _Trees:
    """Reads the trees of a store, in any order but mostly from newer to older versions.

    Who walks a store reads tens of thousands: so it is known beforehand which pack each is in, and what an
    older version is a delta of was read a moment ago.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._packs = {id: pack for pack in objects.packs() if pack.is_ours for id in pack.ids()}
        self._contents: dict[tuple[Pack, int], bytes] = {}
        self._room = _REMEMBERED_BYTES

    def is_listed(self, id: bytes) -> bool:
        """Tell whether an object is in some pack, or has a file."""
        return id in self._packs or self._objects.is_listed(id)

    def read(self, id: bytes) -> bytes:
        """Read a tree; StoreDamaged unless it has the right hash."""
        pack = self._packs.get(id)
        if pack is not None:
            try:
                content = self._read_at(pack, pack.find(id))
                if content is not None and object_id(b"tree", content) == id:
                    return content
            except (BadDelta, RecursionError, StoreDamaged, StoreFailed):
                pass
        # It may have been moved meanwhile, or another copy of it is whole.
        return self._objects.read(b"tree", id)

    def _read_at(self, pack: Pack, offset: int | None) -> bytes | None:
        if offset is None:
            return None
        known = self._contents.get((pack, offset))
        if known is not None:
            return known
        _, base, content = pack.read_small_entry(offset)
        if isinstance(base, bytes):
            return None
        if base is not None:
            # On a shelf no chain is longer than a family.
            below = self._read_at(pack, base)
            if below is None:
                return None
            content = apply_delta(below, content)
        self._room -= len(content)
        if self._room < 0:
            self._contents.clear()
            self._room = _REMEMBERED_BYTES
        self._contents[pack, offset] = content
        return content


class Marking:
    """The objects that some records need. Raises StoreDamaged if any of them is missing."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.live: set[bytes] = set()
        self.before: dict[bytes, bytes] = {}
        """By the newer one of two versions the older one."""
        self._trees: dict[bytes, dict[bytes, bytes]] = {}
        """Trees that were read a moment ago: who walks the next record needs them beside it."""
        self._source = _Trees(objects)
        self._newer: bytes | None = None
        """What the record that was marked last is kept by."""

    def refresh(self) -> None:
        """See which packs there are now."""
        self._source = _Trees(self._objects)

    def add(self, record: TreeRecord) -> None:
        """Mark what a record needs, and the commit that keeps it."""
        kept = parse_keeper(self._objects.read(b"commit", record.keeper)).tree
        self._walk(kept, self._newer)
        self._mark(record.keeper, None)
        self._newer = kept

    def replace_keepers(self, pairs: Collection[tuple[bytes, bytes]]) -> None:
        """Mark for commits that keep a record the ones that do so now."""
        self.live.difference_update(before for before, _ in pairs)
        self.live.update(after for _, after in pairs)

    def _walk(self, tree: bytes, newer: bytes | None) -> None:
        waiting = [(tree, newer)]
        live = self.live
        while waiting:
            tree, newer = waiting.pop()
            if not self._mark(tree, newer):
                continue
            beside = {} if newer is None else self._read(newer)
            for name, entry in self._read(tree).items():
                id, other = entry[-20:], beside.get(name)
                if id in live:
                    continue
                version = None
                # A version of the same thing is of the same kind: a tree and a tree, or a file and a file.
                if other is not None and (len(other) == _TREE) == (len(entry) == _TREE):
                    version = other[-20:]
                if len(entry) == _TREE:
                    waiting.append((id, version))
                else:
                    self._mark(id, version)

    def _mark(self, id: bytes, newer: bytes | None) -> bool:
        """Mark an object as needed; tell whether it was not before."""
        if id in self.live:
            return False
        if not self._source.is_listed(id):
            raise StoreDamaged(f"object {id.hex()} is missing")
        self.live.add(id)
        if newer is not None:
            self.before.setdefault(newer, id)
        return True

    def _read(self, tree: bytes) -> dict[bytes, bytes]:
        known = self._trees.get(tree)
        if known is None:
            if len(self._trees) > _REMEMBERED_TREES:
                self._trees.clear()
            known = self._trees[tree] = split_tree(self._source.read(tree))
        return known
