"""The stored copies of objects, looked at one by one: whether each pack is whole, and what is whole in it.

Whoever needs an object asks `Objects`, which passes over a damaged copy as long as there is another one. Here
nothing is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1

from shadowtree.base.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.store.objects.git_format import (
    INDEX_MAGIC,
    PACK_HEADER_SIZE,
    PACK_INDEX_IDS,
    PACK_INDEX_SIZE,
    PackEntry,
    encode_pack_index,
    hash_source,
    pack_header,
)
from shadowtree.store.objects.packs import Pack, scan_entries
from shadowtree.store.objects.read import Objects
from shadowtree.system import disk

_CHUNK = 1 << 20


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


def find_bad_copies(
    objects: Objects, directory: str, name: str, tell: Callable[[], None] | None = None
) -> Iterator[bytes]:
    """Read every object that the index of a pack names, and give those that are not whole in it."""
    try:
        pack = Pack(os.path.join(directory, name + ".idx"))
    except (StoreDamaged, StoreFailed):
        return
    try:
        for offset, id in pack.places():
            if not is_whole(objects, pack, offset, id):
                yield id
            if tell is not None:
                tell()
    finally:
        pack.close()


def is_whole(objects: Objects, pack: Pack, offset: int, id: bytes) -> bool:
    """Tell whether what is at a place in a pack has the right hash."""
    return _hash_at(objects, pack, offset) == id


def _hash_at(objects: Objects, pack: Pack, offset: int) -> bytes | None:
    try:
        return hash_source(objects.read_at(pack, offset))
    except (StoreDamaged, StoreFailed):
        return None


def rebuild_index(objects: Objects, directory: str, name: str) -> tuple[bytes, bool]:
    """Make the index of a pack from the pack itself; tell whether it names all that should be in it.

    What can be found stands in it: entry by entry from the beginning, as far as they can be inflated, and
    what an old index names that is still whole.
    """
    path = os.path.join(directory, name + ".idx")
    bare = Pack.with_index(path, encode_pack_index([], bytes(20)))
    try:
        known = _name_entries(objects, path, list(scan_entries(bare)))
        for offset, id in _places_in(path):
            if id not in known and is_whole(objects, bare, offset, id):
                known[id] = (id, offset, bare.measure(offset)[1])
        count, end = bare.read_ends()
    finally:
        bare.close()
    return encode_pack_index(sorted(known.values()), end), len(known) == count


def _name_entries(objects: Objects, path: str, found: list[tuple[int, int]]) -> dict[bytes, PackEntry]:
    """Work out the ids of entries; the base of a delta may be another one, named by its id."""
    known: dict[bytes, PackEntry] = {}
    left = found
    while left:
        pack = Pack.with_index(path, encode_pack_index(sorted(known.values()), bytes(20)))
        try:
            named = [(offset, crc, _hash_at(objects, pack, offset)) for offset, crc in left]
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
