"""The objects of one store: git blobs, trees and commits, read with their hash checked, written as packs.

shadowtree writes packs only; loose objects are read too, because `git gc` run by hand may leave some. An
object counts as stored when it was read back and had the right hash, or when this process wrote it: that a
file exists proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.objects.deflate import deflate, deflate_quickly
from shadowtree.store.objects.git_format import (
    EMPTY_TREE,
    PackBytes,
    Source,
    TreeEntry,
    decode_tree,
    hash_source,
    object_header,
    object_id,
)
from shadowtree.store.objects.loose import Loose
from shadowtree.store.objects.pack_set import Stock
from shadowtree.store.objects.pack_writer import PackWriter
from shadowtree.store.objects.packs import Pack, RawEntry
from shadowtree.store.objects.sink import Scratch
from shadowtree.store.objects.unpack import Unpacking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.objects.sink import ObjectSink

_PACK_FRAME = 32
"""The bytes of a pack that belong to no object."""
_REMEMBERED_ENTRIES = 20_000
"""How many entries of trees are kept in memory."""


class TooLarge(Exception):
    """An object that is larger than its reader wants."""


class Objects:
    """The object database of a store. Reading needs no lock; writing needs the store's."""

    def __init__(
        self,
        directory: str,
        scratch: Scratch | None = None,
        journaled: Callable[[], Iterable[PackBytes]] = tuple,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        self._scratch = scratch
        self._on_damage = on_damage
        """Called when an object that is needed is nowhere whole."""
        self._pack_directory = os.path.join(directory, "pack")
        self.stock = Stock(self._pack_directory, journaled, self._doubt)
        self.loose = Loose(directory)
        self._unpacking = Unpacking()
        self._trees: dict[bytes, list[TreeEntry]] = {}
        self._room = _REMEMBERED_ENTRIES
        self._sound: set[bytes] = set()
        """Ids that this process wrote, or read back whole."""

    def close(self) -> None:
        """Let go of every file."""
        self.stock.close()

    def refresh(self) -> bool:
        """Look for packs that came or went; tell whether any came."""
        if self.loose.refresh():
            self._doubt()
        return self.stock.refresh()

    def _doubt(self) -> None:
        """Have everything proved anew: where it was read from is gone."""
        self._sound.clear()
        self._trees.clear()
        self._unpacking.forget()
        self.loose.forget()

    def packs(self) -> list[Pack]:
        """Give every pack that has files, the oldest first, as `refresh` found them."""
        return self.stock.packs()

    # Reading

    def read(self, kind: bytes, wanted: bytes) -> bytes:
        """Read an object whole; raise StoreDamaged unless it is there, of this kind, with the right hash."""
        problem = f"{kind.decode()} {wanted.hex()} is missing"
        for found_kind, _, pieces in self._all_sources(wanted):
            try:
                content = b"".join(pieces)
            except (StoreDamaged, StoreFailed) as error:
                problem = error.what if isinstance(error, StoreDamaged) else str(error)
                continue
            if found_kind == kind and object_id(kind, content) == wanted:
                self._sound.add(wanted)
                return content
            problem = f"{kind.decode()} {wanted.hex()} has other content than its name says"
        raise self._as_lost(problem)

    def _as_lost(self, problem: str) -> StoreDamaged:
        """Make the error of an object that is needed and nowhere whole, and let it be known."""
        self._on_damage()
        return StoreDamaged(problem)

    def read_small(self, wanted: bytes, limit: int) -> bytes:
        """Read a blob of up to `limit` bytes; raise TooLarge if it has more, before it is read."""
        if self._scratch is not None and self._scratch.has_dropped(wanted) and not self.has(wanted):
            raise TooLarge
        for _, size, _ in self._all_sources(wanted):
            if size > limit:
                raise TooLarge
            break
        return self.read(b"blob", wanted)

    def stream_blob(self, wanted: bytes) -> Iterator[bytes]:
        """Read a blob piece by piece; StoreDamaged at its end unless all of it had the right hash.

        What was read must not be used before the last piece came.
        """
        self.require_blob(wanted)
        for kind, size, pieces in self._all_sources(wanted):
            digest = sha1(object_header(kind, size), usedforsecurity=False)
            for piece in pieces:
                digest.update(piece)
                yield piece
            if digest.digest() != wanted or kind != b"blob":
                raise self._as_lost(f"blob {wanted.hex()} has other content than its name says")
            return
        raise self._as_lost(f"blob {wanted.hex()} is missing")

    def prove(self, wanted: bytes) -> bool:
        """Tell whether an object is stored by reading it back now, whatever was seen of it before."""
        self._sound.discard(wanted)
        return self._has_anywhere(wanted)

    def require_blob(self, wanted: bytes) -> None:
        """Raise StoreDamaged unless a blob is stored, which is proved by reading it back."""
        if not self._has_anywhere(wanted):
            raise self._as_lost(f"blob {wanted.hex()} is missing or damaged")

    def total_bytes(self) -> int:
        """Tell how many bytes packs, their indexes and loose objects have."""
        return self.stock.total_bytes() + sum(map(self.loose.size_of, self.loose.ids()))

    def size_of(self, wanted: bytes) -> int:
        """Tell how large an object is."""
        for _, size, _ in self._all_sources(wanted):
            return size
        raise self._as_lost(f"object {wanted.hex()} is missing")

    def read_any(self, wanted: bytes) -> tuple[bytes, bytes]:
        """Read an object of whatever kind; give its kind and its content."""
        for kind, _, pieces in self._all_sources(wanted):
            try:
                content = b"".join(pieces)
            except (StoreDamaged, StoreFailed):
                continue
            if object_id(kind, content) == wanted:
                return kind, content
        raise StoreDamaged(f"object {wanted.hex()} is missing or damaged")

    def copy_large(self, wanted: bytes, into: PackWriter, limit: int) -> bool:
        """Copy an object that takes more than `limit` bytes piece by piece; False if it takes less."""
        for pack in self.stock.all_packs():
            size = pack.stored_size(wanted)
            found = None if size is None or size <= limit else pack.copy_large(wanted)
            if found is not None:
                pieces, crc = found
                into.copy_entries(pieces, [(wanted, 0, crc)])
                return True
        return False

    def find_raw(self, wanted: bytes) -> RawEntry | None:
        """Give an entry as it stands in some pack, checked by its CRC; None if it is in none."""
        for pack in self.stock.all_packs():
            entry = pack.find_entry(wanted)
            if entry is not None:
                return entry
        return None

    def stored_size(self, wanted: bytes) -> int:
        """Tell how many bytes an object takes where it is stored, deflated or as a delta."""
        for _ in range(2):
            for pack in self.stock.all_packs():
                size = pack.stored_size(wanted)
                if size is not None:
                    return size
            if self.loose.has_file(wanted):
                return self.loose.size_of(wanted)
            # Reading finds what another process stored or moved since, or has in the journal alone.
            self.size_of(wanted)
        raise StoreDamaged(f"object {wanted.hex()} is missing")

    def stored_bytes(self) -> tuple[int, int]:
        """Tell how many packs there are, and how many bytes all objects take, copies included."""
        self.refresh()
        packs = self.stock.packs()
        total = sum(max(0, pack.size - _PACK_FRAME) for pack in packs)
        return len(packs), total + self.loose.total_bytes()

    def read_tree(self, wanted: bytes) -> list[TreeEntry]:
        """Read and check a tree."""
        if wanted == EMPTY_TREE:
            return []
        known = self._trees.get(wanted)
        if known is None:
            known = decode_tree(self.read(b"tree", wanted), wanted.hex())
            self._remember_tree(wanted, known)
        return known

    def _remember_tree(self, wanted: bytes, entries: list[TreeEntry]) -> None:
        """Keep a tree that was read and checked: the next message compares with the same ones."""
        self._room -= len(entries)
        if self._room < 0:
            self._trees.clear()
            self._room = _REMEMBERED_ENTRIES - len(entries)
        self._trees[wanted] = entries

    def has(self, wanted: bytes) -> bool:
        """Tell whether an object is stored, by reading it back unless this process has seen it whole.

        Knows what `refresh` found: the holder of the lock calls that once, since nobody else writes then.
        """
        if wanted in self._sound:
            return True
        may_have = (
            self.stock.lists(wanted)
            or self.loose.may_have(wanted)
            or (self._scratch is not None and wanted in self._scratch)
        )
        return may_have and self._proves(wanted, self._sources(wanted))

    def _has_anywhere(self, wanted: bytes) -> bool:
        """Do the same, and look too for what another process stored since, or has in the journal alone."""
        return (
            self.has(wanted)
            or (self.refresh() and self.has(wanted))
            or self._proves(wanted, self._unpack(self.stock.recall(wanted)))
        )

    def _proves(self, wanted: bytes, sources: Iterator[Source]) -> bool:
        """Tell whether one of the copies of an object is whole."""
        for source in sources:
            try:
                is_whole = hash_source(source) == wanted
            except (StoreDamaged, StoreFailed):
                continue
            if is_whole:
                self._sound.add(wanted)
                return True
        return False

    def _sources(self, wanted: bytes) -> Iterator[Source]:
        """Give every stored copy of an object; a damaged one does not hide a sound one."""
        if self._scratch is not None:
            yield from self._scratch.find(wanted)
        yield from self._unpack(self.stock.find(wanted))
        if self.loose.may_have(wanted):
            yield from self.loose.find(wanted)

    def _all_sources(self, wanted: bytes) -> Iterator[Source]:
        """Give every stored copy, those too that another process stored or moved since."""
        yield from self._sources(wanted)
        if self.refresh():
            yield from self._sources(wanted)
        # Between a record and the files of its pack, and after a power cut.
        yield from self._unpack(self.stock.recall(wanted))
        # A pack that went from the journal meanwhile was merged.
        if self.refresh():
            yield from self._sources(wanted)

    def _unpack(self, places: Iterable[tuple[Pack, int]]) -> Iterator[Source]:
        """Read what is at places in packs; what cannot be read is passed over."""
        for pack, offset in places:
            try:
                source = self.read_at(pack, offset)
            except (StoreDamaged, StoreFailed):
                continue
            yield source

    def read_at(self, pack: Pack, offset: int) -> Source:
        """Read what is at a place in a pack, whatever else holds the same object; its hash is not checked."""
        return self._unpacking.read_at(pack, offset)

    def is_listed(self, wanted: bytes) -> bool:
        """Tell whether an object is in the index of a pack, or has a file: no proof that it is whole."""
        return self.stock.lists(wanted) or self.loose.has_file(wanted)

    def remove_loose(self, ids: Iterable[bytes]) -> None:
        """Remove loose objects. Only for the holder of the lock."""
        self.loose.remove(ids)
        self.refresh()

    # Writing

    def start_pack(self, part_size: int | None = None, part_count: int | None = None) -> PackWriter:
        """Begin a pack of new objects, of several parts if they are many."""
        return PackWriter(self._pack_directory, part_size, part_count)

    def put(self, pack: ObjectSink, kind: bytes, content: bytes, before: bytes | None = None) -> bytes:
        """Put a small object into a pack unless it is stored already, and give its id.

        `before` is what it comes in place of.
        """
        wanted = object_id(kind, content)
        if wanted not in pack and not self.has(wanted):
            # Of trees there are most, and nearly all become deltas.
            quickly = deflate_quickly if kind == b"tree" else deflate
            pack.add(kind, wanted, len(content), quickly(content))
            if before is not None:
                pack.note_version(wanted, before)
        return wanted

    def put_file(self, pack: ObjectSink, content: bytes, known: bytes) -> bytes:
        """Put the content of a file into a pack unless it is stored already, as what is `known` is."""
        wanted = object_id(b"blob", content)
        if wanted == known or wanted in pack or not pack.takes_file(wanted, len(content)):
            return wanted
        if not self.has(wanted):
            pack.add(b"blob", wanted, len(content), deflate(content))
            pack.note_version(wanted, known)
        return wanted

    def publish(self, pack: PackWriter, announce: Callable[[str], None] | None = None) -> bool:
        """Make a pack durable and visible, so that its objects may be named; False if it is empty.

        `announce` is called with its name right before it can be seen.
        """
        names = [os.path.basename(path) for path in pack.finish(announce)]
        for name in names:
            self.stock.add(name)
        self._sound.update(pack.proven_ids())
        return bool(names)

    def hold(self, content: PackBytes, proven: Iterable[bytes]) -> None:
        """Let this process read a pack that has no files; the objects that are `proven` are sound."""
        self.stock.hold(content)
        self._sound.update(proven)
