"""The objects of one store: git blobs, trees and commits, read with their hash checked, written as packs.

shadowtree writes packs only; loose objects are read too, because `git gc` run by hand may leave some. An
object counts as stored when it was read back and had the right hash, or when this process wrote it: that a
file exists proves nothing.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha1

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.git_format import (
    EMPTY_TREE,
    PackBytes,
    Source,
    TreeEntry,
    decode_tree,
    deflate,
    hash_source,
    object_header,
    object_id,
)
from shadowtree.store.pack_set import PackSet
from shadowtree.store.pack_writer import PackFile, PackWriter
from shadowtree.store.packs import Pack
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class ObjectSink(Protocol):
        """Where new objects go: into a pack, or nowhere at all."""

        def __contains__(self, object_id: bytes) -> bool: ...

        def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
            """Take an object that is deflated already."""

        def note_version(self, object_id: bytes, before: bytes) -> None:
            """Note that an object came in place of another one."""

        def takes_file(self, object_id: bytes, size: int) -> bool:
            """Return whether the content of a file is wanted; its id is noted in any case."""

        def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
            """Take a blob of `size` bytes piece by piece, and give its id."""


Place = Callable[[], Iterator[Source]]
"""Reads the copy of an object at one place, if there is one; it can be read again."""

_PACK_FRAME = 32
"""The bytes of a pack that belong to no object."""
_REMEMBERED_ENTRIES = 20_000
"""How many entries of trees are kept in memory."""
_CHUNK = 1 << 16
_HEX = set("0123456789abcdef")


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
        self.pack_set = PackSet(self._pack_directory, journaled, self._doubt)
        self.loose = Loose(directory)
        self._trees: dict[bytes, list[TreeEntry]] = {}
        self._room = _REMEMBERED_ENTRIES
        self._sound: set[bytes] = set()
        """Ids that this process wrote, or read back whole."""

    def close(self) -> None:
        """Let go of every file."""
        self.pack_set.close()

    def refresh(self) -> bool:
        """Look for packs that came or went; return whether any came."""
        if self.loose.refresh():
            self._doubt()
        return self.pack_set.refresh()

    def _doubt(self) -> None:
        """Have everything proved anew: where it was read from is gone."""
        self._sound.clear()
        self._trees.clear()
        self.loose.forget()

    def packs(self) -> list[Pack]:
        """Return every pack that has files, the oldest first, as `refresh` found them."""
        return self.pack_set.packs()

    # Reading

    def read(self, kind: bytes, wanted: bytes) -> bytes:
        """Read an object whole; raise StoreDamaged unless it is there, of this kind, with the right hash."""
        problem = f"{kind.decode()} {wanted.hex()} is missing"
        for found_kind, _, pieces in self._copies(wanted):
            try:
                content = b"".join(pieces)
            except (StoreDamaged, StoreFailed) as error:
                problem = error.what if isinstance(error, StoreDamaged) else str(error)
                continue
            if found_kind == kind and object_id(kind, content) == wanted:
                self._sound.add(wanted)
                return content
            problem = f"{kind.decode()} {wanted.hex()} does not match its id"
        raise self._as_lost(problem)

    def _as_lost(self, problem: str) -> StoreDamaged:
        """Make the error of an object that is needed and nowhere whole, and let it be known."""
        self._on_damage()
        return StoreDamaged(problem)

    def _copies(self, wanted: bytes) -> Iterator[Source]:
        """Yield every stored copy of an object, not yet checked: a damaged one does not hide a sound one."""
        for place in self._places(wanted):
            yield from place()

    def _places(self, wanted: bytes) -> Iterator[Place]:
        """Yield every place that has a copy of an object."""
        yield from self._known_places(wanted)
        # Another process may have stored or moved it since.
        if self.refresh():
            yield from self._known_places(wanted)
        # Between a record and the files of its pack, and after a power cut.
        if self.pack_set.recall(wanted):
            yield from self._known_places(wanted)
        # A pack that went from the journal meanwhile was merged.
        if self.refresh():
            yield from self._known_places(wanted)

    def _known_places(self, wanted: bytes) -> Iterator[Place]:
        """Yield the places that the last look found."""
        if self._scratch is not None and wanted in self._scratch:
            yield partial(self._scratch.find, wanted)
        for pack in self.pack_set.find(wanted):
            yield partial(_read_from, pack, wanted)
        if self.loose.may_have(wanted):
            yield partial(self.loose.find, wanted)

    def read_any(self, wanted: bytes) -> tuple[bytes, bytes]:
        """Read an object of whatever kind; return its kind and its content."""
        for kind, _, pieces in self._copies(wanted):
            try:
                content = b"".join(pieces)
            except (StoreDamaged, StoreFailed):
                continue
            if object_id(kind, content) == wanted:
                return kind, content
        raise StoreDamaged(f"object {wanted.hex()} is missing or damaged")

    def read_small(self, wanted: bytes, limit: int) -> bytes:
        """Read a blob of up to `limit` bytes; raise TooLarge if it has more, before it is read."""
        if self._scratch is not None and self._scratch.has_dropped(wanted) and not self.has(wanted):
            raise TooLarge
        for _, size, _ in self._copies(wanted):
            if size > limit:
                raise TooLarge
            break
        return self.read(b"blob", wanted)

    def read_tree(self, wanted: bytes) -> list[TreeEntry]:
        """Read and check a tree; it is kept in memory, as the next message compares with the same ones."""
        if wanted == EMPTY_TREE:
            return []
        known = self._trees.get(wanted)
        if known is None:
            known = decode_tree(self.read(b"tree", wanted), wanted.hex())
            self._room -= len(known)
            if self._room < 0:
                self._trees.clear()
                self._room = _REMEMBERED_ENTRIES - len(known)
            self._trees[wanted] = known
        return known

    def stream_blob(self, wanted: bytes) -> Iterator[bytes]:
        """Read a blob piece by piece; StoreDamaged at its end unless all of it had the right hash.

        What was read must not be used before the last piece came.
        """
        known = list(self._known_places(wanted))
        # Of several places the first may be damaged: then they are read before anybody gets a piece.
        is_proved = len(known) == 1 and wanted in self._sound
        place = known[0] if is_proved else self._find_whole(wanted, self._places(wanted))
        for kind, size, pieces in () if place is None else place():
            digest = sha1(object_header(kind, size), usedforsecurity=False)
            for piece in pieces:
                digest.update(piece)
                yield piece
            if digest.digest() != wanted or kind != b"blob":
                raise self._as_lost(f"blob {wanted.hex()} does not match its id")
            return
        raise self._as_lost(f"blob {wanted.hex()} is missing or damaged")

    # Proving

    def has(self, wanted: bytes) -> bool:
        """Return whether an object is stored, by reading it back unless this process has seen it whole.

        Knows what `refresh` found: the holder of the lock calls that once, since nobody else writes then.
        """
        if wanted in self._sound:
            return True
        may_have = (
            self.pack_set.lists(wanted)
            or self.loose.may_have(wanted)
            or (self._scratch is not None and wanted in self._scratch)
        )
        return may_have and self._find_whole(wanted, self._known_places(wanted)) is not None

    def prove(self, wanted: bytes) -> bool:
        """Return whether an object is stored by reading it back now, whatever was seen of it before."""
        self._sound.discard(wanted)
        return self._find_whole(wanted, self._places(wanted)) is not None

    def require_blob(self, wanted: bytes) -> None:
        """Raise StoreDamaged unless a blob is stored, which is proved by reading it back."""
        if not self.has(wanted) and self._find_whole(wanted, self._places(wanted)) is None:
            raise self._as_lost(f"blob {wanted.hex()} is missing or damaged")

    def _find_whole(self, wanted: bytes, places: Iterator[Place]) -> Place | None:
        """Find a place that has a whole copy of an object."""
        for place in places:
            try:
                is_whole = any(hash_source(copy) == wanted for copy in place())
            except (StoreDamaged, StoreFailed):
                continue
            if is_whole:
                self._sound.add(wanted)
                return place
        return None

    def is_listed(self, wanted: bytes) -> bool:
        """Return whether an object is in the index of a pack, or has a file: no proof that it is whole."""
        return self.pack_set.lists(wanted) or self.loose.has_file(wanted)

    # Measuring, and copying as it stands

    def head_of(self, wanted: bytes) -> tuple[bytes, int]:
        """Return the kind of an object and its size."""
        for kind, size, _ in self._copies(wanted):
            return kind, size
        raise self._as_lost(f"object {wanted.hex()} is missing")

    def size_of(self, wanted: bytes) -> int:
        """Return how large an object is."""
        return self.head_of(wanted)[1]

    def stored_size(self, wanted: bytes) -> int:
        """Return how many bytes an object takes where it is stored, deflated or as a delta."""
        for _ in range(2):
            for pack in self.pack_set.all_packs():
                size = pack.stored_size(wanted)
                if size is not None:
                    return size
            if self.loose.has_file(wanted):
                return self.loose.size_of(wanted)
            # Reading finds what another process stored or moved since, or has in the journal alone.
            self.size_of(wanted)
        raise StoreDamaged(f"object {wanted.hex()} is missing")

    def total_bytes(self) -> int:
        """Return how many bytes packs, their indexes and loose objects have."""
        return self.pack_set.total_bytes() + self.loose.total_bytes()

    def stored_bytes(self) -> tuple[int, int]:
        """Return how many packs there are, and how many bytes all objects take, copies included."""
        self.refresh()
        packs = self.packs()
        total = sum(max(0, pack.size - _PACK_FRAME) for pack in packs)
        return len(packs), total + self.loose.total_bytes()

    # Writing

    def start_pack(self, part_size: int | None = None) -> PackWriter:
        """Begin a pack of new objects, of several parts if they are many."""
        return PackWriter(self._pack_directory, part_size)

    def put(self, pack: ObjectSink, kind: bytes, content: bytes, before: bytes | None = None) -> bytes:
        """Put a small object into a pack unless it is stored already, and give its id.

        `before` is what it comes in place of.
        """
        wanted = object_id(kind, content)
        if wanted not in pack and not self.has(wanted):
            pack.add(kind, wanted, len(content), deflate(content))
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

    def hold(self, pack: PackWriter, limit: int) -> PackBytes | list[PackFile]:
        """Let this process read a pack that is not recorded: as bytes if it has up to `limit`, or as files.

        Files are complete and durable by then, and have temporary names.
        """
        content = pack.seal(limit)
        if content is not None:
            self.pack_set.hold(content)
        files = [] if content is not None else pack.complete()
        for file in files:
            self.pack_set.hold_file(file)
        self._sound.update(pack.ids - pack.copied)
        return files if content is None else content

    def remove_loose(self, ids: Iterable[bytes]) -> None:
        """Remove loose objects. Only for the holder of the lock."""
        self.loose.remove(ids)
        self.refresh()


def _read_from(pack: Pack, wanted: bytes) -> Iterator[Source]:
    """Yield the copy of an object that a pack has, unless the pack is damaged there."""
    try:
        source = pack.read(wanted)
    except (StoreDamaged, StoreFailed):
        return
    yield source


class Loose:
    """The loose objects of a store, files of their own, in the directories that the last look found."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fans: set[str] = set()
        """The directories that hold some."""
        self._seen: set[bytes] = set()
        """Ids that were read, which nothing else tells to be gone."""

    def refresh(self) -> bool:
        """Look for directories that came or went; return whether anything is gone that was read."""
        with disk.store_errors(self._directory):
            self._fans = {name for name in os.listdir(self._directory) if _is_hex(name, 2)}
        return any(not os.path.exists(self._path_of(id)) for id in self._seen)

    def forget(self) -> None:
        """Forget what was read."""
        self._seen.clear()

    def may_have(self, wanted: bytes) -> bool:
        """Return whether an object could be here; False is certain."""
        return wanted[:1].hex() in self._fans

    def has_file(self, wanted: bytes) -> bool:
        """Return whether an object has a file: no proof that it is whole."""
        return self.may_have(wanted) and os.path.isfile(self._path_of(wanted))

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Yield the copy of an object, if it has one here."""
        path = self._path_of(wanted)
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed below, after the pieces were used
        except OSError:
            return
        with file:
            pieces = _inflate_file(file.fileno(), path)
            try:
                first = next(pieces, b"")
            except StoreDamaged:
                return
            header, _, content = first.partition(b"\0")
            kind, _, size = header.partition(b" ")
            if size.isdigit():
                self._seen.add(wanted)
                yield kind, int(size), itertools.chain([content], pieces)

    def is_whole(self, wanted: bytes) -> bool:
        """Return whether the copy of an object has the right hash, whatever else holds it."""
        try:
            return any(hash_source(source) == wanted for source in self.find(wanted))
        except (StoreDamaged, StoreFailed):
            return False

    def ids(self) -> list[bytes]:
        """Return the id of every loose object."""
        found = []
        for fan in sorted(self._fans):
            with disk.store_errors(self._directory):
                names = os.listdir(os.path.join(self._directory, fan))
            found += [bytes.fromhex(fan + name) for name in names if _is_hex(fan + name, 40)]
        return found

    def size_of(self, wanted: bytes) -> int:
        """Return how many bytes the file of an object has."""
        return os.path.getsize(self._path_of(wanted))

    def written_s(self, wanted: bytes) -> float:
        """Return when the file of an object was written, in seconds since the epoch."""
        return os.path.getmtime(self._path_of(wanted))

    def total_bytes(self) -> int:
        """Return how many bytes all of them have."""
        return sum(map(self.size_of, self.ids()))

    def remove(self, ids: Iterable[bytes]) -> None:
        """Remove loose objects. Only for the holder of the lock."""
        for id in ids:
            disk.remove_file(self._path_of(id))

    def _path_of(self, wanted: bytes) -> str:
        name = wanted.hex()
        return os.path.join(self._directory, name[:2], name[2:])


def _is_hex(name: str, length: int) -> bool:
    return len(name) == length and not set(name) - _HEX


def _inflate_file(fd: int, path: str) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        piece = inflater.unconsumed_tail
        if not piece:
            with disk.store_errors(path):
                piece = os.read(fd, _CHUNK)
        if not piece:
            raise StoreDamaged(f"{path} is truncated")
        try:
            content = inflater.decompress(piece, 1 << 20)
        except zlib.error as error:
            raise StoreDamaged(f"{path} cannot be decompressed") from error
        if content:
            yield content


class Scratch:
    """A sink that stores nothing: it keeps trees in memory, and of files as much as there is room for."""

    def __init__(self, file_bytes: int = 0) -> None:
        self._room = file_bytes
        self._hashed: set[bytes] = set()
        """What was seen and not kept."""
        self._kept: dict[bytes, tuple[bytes, bytes]] = {}

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._kept

    def has_dropped(self, object_id: bytes) -> bool:
        """Return whether an object was seen and not kept."""
        return object_id in self._hashed and object_id not in self._kept

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Keep an object in memory."""
        del size
        self._kept[object_id] = (kind, deflated)

    def note_version(self, object_id: bytes, before: bytes) -> None:
        """Need no such thing."""

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Take files as long as there is room."""
        self._hashed.add(object_id)
        self._room -= size
        return self._room >= 0

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Hash a file that is too large to keep."""
        del is_known
        found = hash_source((b"blob", size, pieces))
        self._hashed.add(found)
        return found

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Yield a kept object as if it came from the store."""
        if wanted in self._kept:
            kind, deflated = self._kept[wanted]
            content = zlib.decompress(deflated)
            yield kind, len(content), iter([content])
