"""The objects of a store as a check reads them: each stored copy by itself, and what live trees need.

Whoever needs an object asks `Objects`, which passes over a damaged copy as long as there is another one. Here
nothing is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1

from shadowtree.base.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath
from shadowtree.store.git_format import (
    INDEX_MAGIC,
    MODE_TREE,
    PACK_HEADER_SIZE,
    PACK_INDEX_IDS,
    PACK_INDEX_SIZE,
    Keeper,
    PackEntry,
    TreeEntry,
    encode_pack_index,
    hash_source,
    pack_header,
    parse_keeper,
)
from shadowtree.store.objects import Objects
from shadowtree.store.packs import Pack, scan_entries
from shadowtree.system import disk

_CHUNK = 1 << 20
_NOTHING: frozenset[bytes] = frozenset()


# What is stored


@frozen
class PackFault:
    """What is wrong with one pack."""

    name: str
    """`pack-ID`, without a suffix."""
    index: str | None
    """What is wrong with its index; None: nothing."""
    pack: str | None
    """What is wrong with the pack itself, as far as was looked."""


def list_packs(directory: str) -> list[str]:
    """Name every pack that has a file, without its suffix; an index alone is none."""
    with disk.store_errors(directory), os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file()]
    return sorted(
        name.removesuffix(".pack") for name in names if name.startswith("pack-") and name.endswith(".pack")
    )


def count_objects(directory: str, names: Iterable[str]) -> int:
    """Count the objects in packs, as far as their indexes tell."""
    counts = (len(_places_in(os.path.join(directory, name + ".idx"))) for name in names)
    return sum(counts)


def find_pack_fault(directory: str, name: str, *, read_data: bool = False) -> PackFault | None:
    """Look at both ends of a pack and at all of its index; with `read_data`, at all of the pack too."""
    path = os.path.join(directory, name)
    try:
        index = disk.read_if_there(path + ".idx")
        why_index = "is missing" if index is None else _find_index_fault(index)
        expected = None if index is None or why_index else (_count(index), index[-40:-20])
        why_pack = _find_end_fault(path + ".pack", expected)
        if why_pack is None and read_data and _hash_file(path + ".pack") != _read_end(path + ".pack"):
            why_pack = "is not what was written: its checksum differs"
    except ShadowError as error:
        return PackFault(name, None, str(error))
    return PackFault(name, why_index, why_pack) if why_index or why_pack else None


def _find_index_fault(index: bytes) -> str | None:
    if index[:8] != INDEX_MAGIC or len(index) < PACK_INDEX_SIZE + 28 * _count(index):
        return "is no index, or not a whole one"
    if sha1(index[:-20], usedforsecurity=False).digest() != index[-20:]:
        return "is not what was written: its checksum differs"
    return None


def _count(index: bytes) -> int:
    return int.from_bytes(index[PACK_INDEX_IDS - 4 : PACK_INDEX_IDS], "big")


def _find_end_fault(path: str, expected: tuple[int, bytes] | None) -> str | None:
    with disk.store_errors(path), open(path, "rb") as file:
        head = file.read(PACK_HEADER_SIZE)
        size = file.seek(0, os.SEEK_END)
    if size < PACK_HEADER_SIZE + 20:
        return "ends too early"
    if head[:8] != pack_header(0)[:8]:
        return "is no pack"
    if expected is not None and expected != (int.from_bytes(head[8:], "big"), _read_end(path)):
        return "is not the one that its index is of"
    return None


def _read_end(path: str) -> bytes:
    with disk.store_errors(path), open(path, "rb") as file:
        file.seek(-20, os.SEEK_END)
        return file.read()


def _hash_file(path: str) -> bytes:
    """Hash a file but for its last 20 bytes, which say what that should come to."""
    digest = sha1(usedforsecurity=False)
    with disk.store_errors(path), open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size - 20
        while left > 0 and (piece := file.read(min(left, _CHUNK))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


def find_derived_fault(path: str) -> str | None:
    """Look at a file that git derives from packs and ends with its checksum."""
    with disk.store_errors(path):
        size = os.stat(path).st_size
    if size < 20 or _hash_file(path) != _read_end(path):
        return "is not what was written: its checksum differs"
    return None


def find_bad_copies(directory: str, name: str, tell: Callable[[], None] | None = None) -> Iterator[bytes]:
    """Read every object that the index of a pack names, and give those that are not whole in it."""
    try:
        pack = Pack(os.path.join(directory, name + ".idx"))
    except (StoreDamaged, StoreFailed):
        return
    try:
        for offset, id in pack.places():
            if not is_whole(pack, offset, id):
                yield id
            if tell is not None:
                tell()
    finally:
        pack.close()


def is_whole(pack: Pack, offset: int, id: bytes) -> bool:
    """Tell whether what is at a place in a pack has the right hash."""
    return _hash_at(pack, offset) == id


def _hash_at(pack: Pack, offset: int) -> bytes | None:
    try:
        return hash_source(pack.read(offset))
    except (StoreDamaged, StoreFailed):
        return None


def rebuild_index(directory: str, name: str) -> tuple[bytes, bool]:
    """Make the index of a pack from the pack itself; tell whether it names all that should be in it.

    What can be found stands in it: entry by entry from the beginning, as far as they can be inflated, and
    what an old index names that is still whole.
    """
    path = os.path.join(directory, name + ".idx")
    bare = Pack.with_index(path, encode_pack_index([], bytes(20)))
    try:
        known = _name_entries(path, list(scan_entries(bare)))
        for offset, id in _places_in(path):
            if id not in known and is_whole(bare, offset, id):
                known[id] = (id, offset, bare.measure(offset)[1])
        count, end = bare.read_ends()
    finally:
        bare.close()
    return encode_pack_index(sorted(known.values()), end), len(known) == count


def _name_entries(path: str, found: list[tuple[int, int]]) -> dict[bytes, PackEntry]:
    """Work out the ids of entries; the base of a delta may be another one, named by its id."""
    known: dict[bytes, PackEntry] = {}
    left = found
    while left:
        pack = Pack.with_index(path, encode_pack_index(sorted(known.values()), bytes(20)))
        try:
            named = [(offset, crc, _hash_at(pack, offset)) for offset, crc in left]
        finally:
            pack.close()
        known.update({id: (id, offset, crc) for offset, crc, id in named if id is not None})
        if all(id is None for _, _, id in named):
            break
        left = [(offset, crc) for offset, crc, id in named if id is None]
    return known


def _places_in(index_path: str) -> list[tuple[int, bytes]]:
    """Give what an index names, be it damaged; nothing if it cannot be read."""
    try:
        return Pack(index_path).places()
    except (StoreDamaged, StoreFailed):
        return []


# What is needed


class Reach:
    """Walks recorded trees and remembers what is lost: missing, or not what its name says.

    Trees are read and hashed, since they have to be walked. Of a blob it is asked whether an index names it,
    and whether it is one of those that are known to be damaged.
    """

    def __init__(self, objects: Objects, damaged: Iterable[bytes] = ()) -> None:
        self._objects = objects
        self._damaged = frozenset(damaged)
        self._whole: set[bytes] = set()
        """Trees and blobs of which nothing is lost."""
        self._hurt: dict[bytes, frozenset[bytes]] = {}
        """What is lost of a tree, for those of which something is."""
        self.lost: dict[bytes, str] = {}
        """Every object that is needed and not stored, and why it is not."""

    def lost_of_tree(self, tree: bytes) -> frozenset[bytes]:
        """Give what is lost of a tree: itself, or what is below it."""
        # Depth first without recursion: a tree may be as deep as a path is long.
        pending = [(tree, False)]
        while pending:
            current, is_done = pending.pop()
            if current in self._whole or current in self._hurt:
                continue
            entries = self._read(current)
            if entries is None:
                self._hurt[current] = frozenset([current])
                continue
            below = [entry.id for entry in entries if entry.mode == MODE_TREE]
            unknown = [id for id in below if id not in self._whole and id not in self._hurt]
            if unknown and not is_done:
                pending.append((current, True))
                pending += [(id, False) for id in unknown]
                continue
            self._settle(current, entries)
        return self._hurt.get(tree, _NOTHING)

    def _settle(self, tree: bytes, entries: list[TreeEntry]) -> None:
        lost: set[bytes] = set()
        for entry in entries:
            if entry.mode == MODE_TREE:
                lost |= self._hurt.get(entry.id, _NOTHING)
            elif self.is_lost(entry.id):
                lost.add(entry.id)
        if lost:
            self._hurt[tree] = frozenset(lost)
        else:
            self._whole.add(tree)

    def is_lost(self, blob: bytes) -> bool:
        """Tell whether a blob is not stored, as far as indexes tell."""
        if blob in self._whole:
            return False
        if blob in self.lost:
            return True
        if blob in self._damaged:
            # There may be another copy that is whole.
            if not self._objects.prove(blob):
                self.lost[blob] = f"blob {blob.hex()} is damaged"
                return True
        elif not self._objects.is_listed(blob) and not self._objects.prove(blob):
            self.lost[blob] = f"blob {blob.hex()} is missing"
            return True
        self._whole.add(blob)
        return False

    def _read(self, tree: bytes) -> list[TreeEntry] | None:
        try:
            return self._objects.read_tree(tree)
        except StoreDamaged as error:
            self.lost[tree] = error.what
            return None

    def lost_of_keeper(self, keeper: bytes, tree: bytes, facts: bytes) -> frozenset[bytes]:
        """Give what is lost of a keeper: the commit, its tree, and what it keeps beside tree and facts."""
        read = self.read_keeper(keeper)
        if read is None:
            return frozenset([keeper])
        entries = self._read(read.tree)
        if entries is None:
            return frozenset([read.tree])
        named = {entry.name: entry.id for entry in entries}
        if (named.get(b"files"), named.get(b"facts")) != (tree, facts):
            self.lost[keeper] = f"commit {keeper.hex()} keeps another tree"
            return frozenset([keeper])
        return self.lost_of_tree(named[b"also"]) if b"also" in named else _NOTHING

    def read_keeper(self, keeper: bytes) -> Keeper | None:
        """Read a keeper; None: it is lost."""
        try:
            content = self._objects.read(b"commit", keeper)
        except StoreDamaged as error:
            self.lost[keeper] = error.what
            return None
        try:
            return parse_keeper(content)
        except StoreDamaged:
            self.lost[keeper] = f"commit {keeper.hex()} keeps no tree"
            return None

    def paths_of(self, tree: bytes, wanted: Iterable[bytes]) -> Iterator[tuple[RelPath, bytes]]:
        """Give the paths at which a tree holds lost blobs, with their ids."""
        looked_for = frozenset(wanted)
        pending = [(b"", tree)]
        while pending:
            path, current = pending.pop()
            # Where nothing is lost, there is nothing to look for; a tree that is lost itself says nothing.
            if current not in self._hurt or current in self.lost:
                continue
            for entry in self._objects.read_tree(current):
                name = path + b"/" + entry.name if path else entry.name
                if entry.mode == MODE_TREE:
                    pending.append((name, entry.id))
                elif entry.id in looked_for:
                    yield RelPath(name), entry.id
