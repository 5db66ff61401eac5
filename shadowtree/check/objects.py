"""Read the objects of a store for a check: each stored copy by itself, and what live trees need.

All other code reads from `Objects`, which skips a damaged copy if there is another. This module skips none.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing
from hashlib import sha1

from shadowtree.base.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath, join
from shadowtree.store.git_format import (
    INDEX_MAGIC,
    KIND_NAMES,
    OFS_DELTA,
    PACK_HEADER_SIZE,
    PACK_INDEX_IDS,
    PACK_INDEX_SIZE,
    REF_DELTA,
    TREE_MODE,
    PackEntry,
    TreeRow,
    decode_rows,
    encode_pack_index,
    pack_header,
)
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack import Pack
from shadowtree.store.walk import Walker
from shadowtree.system import disk
from shadowtree.timeline.sqlite.schema import TreeRecord

ALTERED = "is damaged: its checksum does not match"
_CHUNK = 1 << 20


# What is stored


@frozen
class PackFault:
    """What is wrong with one pack."""

    index: str | None
    """What is wrong with its index; None if nothing is."""
    pack: str | None
    """What is wrong with the pack itself, as far as it was checked; None if nothing is."""


def list_packs(directory: str) -> list[str]:
    """Return the name of every pack that has a file, without its suffix; an index alone does not count."""
    with disk.store_errors(directory), os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file()]
    return sorted(
        name.removesuffix(".pack") for name in names if name.startswith("pack-") and name.endswith(".pack")
    )


def open_pack(directory: str, name: str) -> Pack | None:
    """Open a pack by its index; None if it cannot be opened."""
    try:
        return Pack.open(os.path.join(directory, name + ".pack"))
    except (StoreDamaged, StoreFailed):
        return None


def list_entries(directory: str, name: str) -> list[PackEntry]:
    """List the entries that the index of a pack names, even a damaged one; none if it cannot be read."""
    pack = open_pack(directory, name)
    return [] if pack is None else pack.entries()


def find_pack_fault(directory: str, name: str, *, read_data: bool) -> PackFault | None:
    """Check both ends of a pack and all of its index; with `read_data`, all of the pack too."""
    path = os.path.join(directory, name)
    try:
        index = disk.read_if_there(path + ".idx")
        why_index = "is missing" if index is None else _find_index_fault(index)
        why_pack = _find_end_fault(path + ".pack", None if why_index else index)
        if why_pack is None and read_data and not ends_with_checksum(path + ".pack"):
            why_pack = ALTERED
    except ShadowError as error:
        return PackFault(None, str(error))
    return PackFault(why_index, why_pack) if why_index or why_pack else None


def _find_index_fault(index: bytes) -> str | None:
    count = int.from_bytes(index[PACK_INDEX_IDS - 4 : PACK_INDEX_IDS], "big")
    if index[:8] != INDEX_MAGIC or len(index) < PACK_INDEX_SIZE + 28 * count:
        return "is not an index, or is incomplete"
    return None if sha1(index[:-20], usedforsecurity=False).digest() == index[-20:] else ALTERED


def _find_end_fault(path: str, index: bytes | None) -> str | None:
    """Check both ends of a pack, and compare them with its index if that is sound."""
    with disk.store_errors(path), disk.open_to_read(path) as file:
        head = file.read(PACK_HEADER_SIZE)
        if file.seek(0, os.SEEK_END) < PACK_HEADER_SIZE + 20:
            return "is truncated"
        file.seek(-20, os.SEEK_END)
        ends = head[8:], file.read()
    if head[:8] != pack_header(0)[:8]:
        return "is not a pack"
    if index is not None and ends != (index[PACK_INDEX_IDS - 4 : PACK_INDEX_IDS], index[-40:-20]):
        return "does not match its index"
    return None


def ends_with_checksum(path: str) -> bool:
    """Return whether the last 20 bytes of a file are the hash of everything before them."""
    digest = sha1(usedforsecurity=False)
    with disk.store_errors(path), disk.open_to_read(path) as file:
        left = os.fstat(file.fileno()).st_size - 20
        while left > 0 and (piece := file.read(min(left, _CHUNK))):
            digest.update(piece)
            left -= len(piece)
        return file.read() == digest.digest()


def rebuild_index(directory: str, name: str) -> tuple[bytes, bool]:
    """Make the index of a pack from the pack itself; also return whether it names every object.

    It names what can be found: entry by entry from the beginning, as far as they can be inflated, and
    whatever the old index names that is still whole.
    """
    path = os.path.join(directory, name + ".pack")
    with closing(Pack.with_index(path, encode_pack_index([], bytes(20)))) as bare:
        known = _name_entries(path, list(_scan_entries(bare)))
        for id, offset, _ in list_entries(directory, name):
            if id not in known and bare.hash_at(offset) == id:
                known[id] = (id, offset, _measure(bare, offset)[1])
        count = int.from_bytes(bare.pread(8, 4), "big")
        end = bare.pread(max(0, bare.size - 20), 20)
    return encode_pack_index(sorted(known.values()), end), len(known) == count


def _name_entries(path: str, found: list[tuple[int, int]]) -> dict[bytes, PackEntry]:
    """Work out the ids of entries; the base of a delta may be another of them, referred to by id."""
    known: dict[bytes, PackEntry] = {}
    left, count = found, len(found) + 1
    while 0 < len(left) < count:
        count = len(left)
        with closing(Pack.with_index(path, encode_pack_index(sorted(known.values()), bytes(20)))) as pack:
            named = [(pack.hash_at(offset), offset, crc) for offset, crc in left]
        known.update({id: (id, offset, crc) for id, offset, crc in named if id is not None})
        left = [(offset, crc) for id, offset, crc in named if id is None]
    return known


def _scan_entries(pack: Pack) -> Iterator[tuple[int, int]]:
    """Yield where each entry begins, and its CRC, up to the first damaged one. Needs no index."""
    offset = PACK_HEADER_SIZE
    while offset < pack.size - 20:
        try:
            end, crc = _measure(pack, offset)
        except StoreDamaged:
            return
        yield offset, crc
        offset = end


def _measure(pack: Pack, offset: int) -> tuple[int, int]:
    """Return where the entry at `offset` ends, and its CRC, by inflating it."""
    entry = pack.read_head(offset)
    if entry.kind_number not in (*KIND_NAMES, OFS_DELTA, REF_DELTA):
        raise StoreDamaged(f"{pack.path} has no entry at {offset}")
    crc = zlib.crc32(pack.pread(offset, entry.start - offset))
    inflater, end, left = zlib.decompressobj(), entry.start, entry.size
    while not inflater.eof:
        piece = pack.pread(end, _CHUNK)
        if not piece or left < 0:
            raise StoreDamaged(f"{pack.path} has no complete entry at {offset}")
        try:
            left -= len(inflater.decompress(piece))
        except zlib.error as error:
            raise StoreDamaged(f"{pack.path} cannot be decompressed at {offset}") from error
        used = piece[: len(piece) - len(inflater.unused_data)]
        end += len(used)
        crc = zlib.crc32(used, crc)
    return end, crc


# What is needed


class Reach(Walker):
    """Walks recorded trees, past lost objects: those that are missing or do not match their ids.

    Trees have to be walked, so they are read and hashed, each once, however many others share it. A blob only
    has to be in an index; it is read if it is not, or if a copy of it is known to be damaged.
    """

    def __init__(self, objects: Objects, damaged: Collection[bytes] = ()) -> None:
        super().__init__(objects)
        self._damaged = damaged
        self._above: dict[bytes, list[bytes]] = {}
        """The trees that hold a tree."""
        self._hurt: dict[bytes, set[bytes]] = {}
        """The lost objects in each tree that has any; at any depth after `_spread`."""
        self.lost: dict[bytes, str] = {}
        """Every needed object that is lost, with a description of what is wrong."""

    def read(self, tree: bytes) -> list[TreeRow]:
        """Read and check a tree; a lost tree has no rows to walk."""
        try:
            rows = super().read(tree)
            decode_rows(rows, tree.hex())
        except StoreDamaged as error:
            self.lost[tree] = error.what
            self._hurt[tree] = {tree}
            return []
        return rows

    def find_lost(self, records: Collection[TreeRecord]) -> dict[int, set[bytes]]:
        """Walk recorded trees; return the lost objects of each, by its number."""
        for record in records:
            for root in (record.tree, record.facts):
                for _, tree, rows in self.walk(root):
                    self._look_at(tree, rows)
        self._spread()
        return {record.number: self._lost_of(record) for record in records}

    def _look_at(self, tree: bytes, rows: list[TreeRow]) -> None:
        blobs = {id for mode, _, id in rows if mode != TREE_MODE}
        for id in blobs - self.reached:
            self.is_lost(id)
        lost = blobs & self.lost.keys()
        if lost:
            self._hurt[tree] = lost
        for mode, _, id in rows:
            if mode == TREE_MODE:
                self._above.setdefault(id, []).append(tree)

    def _spread(self) -> None:
        """Add the lost objects of each tree to the trees above it."""
        waiting = list(self._hurt)
        while waiting:
            tree = waiting.pop()
            for above in self._above.get(tree, ()):
                known = self._hurt.setdefault(above, set())
                if not known >= self._hurt[tree]:
                    known |= self._hurt[tree]
                    waiting.append(above)

    def _lost_of(self, record: TreeRecord) -> set[bytes]:
        beside = set(filter(self.is_lost, record.blobs_beside))
        return beside.union(*(self._hurt.get(root, ()) for root in (record.tree, record.facts)))

    def is_lost(self, blob: bytes) -> bool:
        """Return whether a blob is lost, as far as indexes and known damage show."""
        if self.is_new(blob):
            is_damaged = blob in self._damaged
            # Another copy may be whole.
            if (is_damaged or not self._objects.is_listed(blob)) and not self._objects.prove(blob):
                self.lost[blob] = f"blob {blob.hex()} is {'damaged' if is_damaged else 'missing'}"
        return blob in self.lost

    def list_paths(self, root: bytes) -> Iterator[tuple[RelPath, bytes]]:
        """Yield the paths at which a tree holds lost blobs, with their ids."""
        # Skip trees without lost objects, and trees that are lost themselves and cannot be read.
        walker = Walker(self._objects, lambda id: id in self._hurt and id not in self.lost)
        for path, _, rows in walker.walk(root):
            for mode, name, id in rows:
                if mode != TREE_MODE and id in self.lost:
                    yield join(path, name), id
