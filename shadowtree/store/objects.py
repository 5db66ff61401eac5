"""The objects of one store: git blobs, trees and commits, whose hash is checked when they are read.

shadowtree writes only packs; it also reads loose objects, because `git gc` run by hand may leave some. An
object counts as stored only if this process wrote it, or read it back with the right hash from a place that
real git does not prune.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha1

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
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
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_set import PackSet
from shadowtree.store.packs.pack_writer import PackFile, PackWriter
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs.pack_writer import ObjectSink

_PACK_FRAME = 32
"""The bytes of a pack that belong to no object."""
_REMEMBERED_ENTRIES = 20_000
"""How many entries of trees are cached."""
_CHUNK = 1 << 16
_HEX = set("0123456789abcdef")


@frozen
class Place:
    """Where a copy of an object is."""

    read: Callable[[], Iterator[Source]]
    """Yields the copy, if it can be read at all; may be called again."""
    is_kept: bool
    """Whether the copy stays: real git may prune loose objects, and packs without `.keep`."""


class TooLarge(Exception):
    """An object that is larger than its reader accepts."""


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
        """Called when an object that is needed has no intact copy."""
        self._pack_directory = os.path.join(directory, "pack")
        self.pack_set = PackSet(self._pack_directory, journaled, self._doubt)
        self.loose = Loose(directory)
        self._trees: dict[bytes, list[TreeEntry]] = {}
        self._room = _REMEMBERED_ENTRIES
        self._sound: set[bytes] = set()
        """Ids of objects that this process wrote, or read back intact from a place that is kept."""

    def close(self) -> None:
        """Close every file."""
        self.pack_set.close()

    def refresh(self) -> bool:
        """Find packs and loose objects that were added or removed; return whether any packs were added."""
        if self.loose.refresh():
            self._doubt()
        return self.pack_set.refresh()

    def _doubt(self) -> None:
        """Forget what was read and proved, because the place that it was read from is gone."""
        self._sound.clear()
        self._trees.clear()
        self.loose.forget()

    def packs(self) -> list[Pack]:
        """Return every pack that has files, the oldest first, as `refresh` found them."""
        return self.pack_set.packs()

    # Reading

    def read(self, kind: bytes, wanted: bytes) -> bytes:
        """Read a whole object; raise StoreDamaged unless it exists, with this kind and the right hash."""
        problem = f"{kind.decode()} {wanted.hex()} is missing"
        for place in self._places(wanted):
            for found_kind, _, pieces in place.read():
                try:
                    content = b"".join(pieces)
                except (StoreDamaged, StoreFailed) as error:
                    problem = error.what if isinstance(error, StoreDamaged) else str(error)
                    continue
                if found_kind == kind and object_id(kind, content) == wanted:
                    self._note_sound(wanted, place)
                    return content
                problem = f"{kind.decode()} {wanted.hex()} does not match its id"
        raise self._as_lost(wanted, problem)

    def _note_sound(self, wanted: bytes, place: Place) -> None:
        if place.is_kept:
            self._sound.add(wanted)

    def _as_lost(self, wanted: bytes, problem: str) -> StoreDamaged:
        """Call `on_damage`, and return the error for an object that has no intact copy."""
        self._sound.discard(wanted)
        self._on_damage()
        return StoreDamaged(problem)

    def _copies(self, wanted: bytes) -> Iterator[Source]:
        """Yield every stored copy of an object, unchecked: a damaged copy does not hide an intact one."""
        for place in self._places(wanted):
            yield from place.read()

    def _places(self, wanted: bytes) -> Iterator[Place]:
        """Yield every place that has a copy of an object."""
        yield from self._known_places(wanted)
        # Another process may have stored or moved it since.
        if self.refresh():
            yield from self._known_places(wanted)
        # A pack may have no files, or damaged ones, right after it was recorded or after a power cut.
        if self.pack_set.recall(wanted):
            yield from self._known_places(wanted)
        # A pack that was removed from the journal meanwhile was merged into another one.
        if self.refresh():
            yield from self._known_places(wanted)

    def _known_places(self, wanted: bytes) -> Iterator[Place]:
        """Yield every place that has a copy of an object, as of the last refresh."""
        if self._scratch is not None and wanted in self._scratch:
            yield Place(partial(self._scratch.find, wanted), is_kept=True)
        for pack in self.pack_set.find(wanted):
            yield Place(partial(_read_from, pack, wanted), self.pack_set.is_kept(pack))
        if self.loose.may_have(wanted):
            yield Place(partial(self.loose.find, wanted), is_kept=False)

    def read_any(self, wanted: bytes) -> tuple[bytes, bytes]:
        """Return kind and content of an object; raise StoreDamaged if it has no intact copy."""
        for kind, _, pieces in self._copies(wanted):
            try:
                content = b"".join(pieces)
            except (StoreDamaged, StoreFailed):
                continue
            if object_id(kind, content) == wanted:
                return kind, content
        raise StoreDamaged(f"object {wanted.hex()} is missing or damaged")

    def read_small(self, wanted: bytes, limit: int) -> bytes:
        """Read a blob of up to `limit` bytes; raise TooLarge, without reading it, if it has more."""
        if self._scratch is not None and self._scratch.has_dropped(wanted) and not self.has(wanted):
            raise TooLarge
        for _, size, _ in self._copies(wanted):
            if size > limit:
                raise TooLarge
            break
        return self.read(b"blob", wanted)

    def read_tree(self, wanted: bytes) -> list[TreeEntry]:
        """Read and check a tree, and cache it, because the next message compares with the same trees."""
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
        """Yield a blob in pieces; raise StoreDamaged at the end if its hash is wrong.

        The pieces must not be used before the last one has come.
        """
        known = list(self._known_places(wanted))
        # If there are several places, the first may be damaged: find an intact one before yielding anything.
        is_proved = len(known) == 1 and wanted in self._sound
        place = known[0] if is_proved else self._find_whole(wanted, self._places(wanted))
        for kind, size, pieces in () if place is None else place.read():
            digest = sha1(object_header(kind, size), usedforsecurity=False)
            try:
                for piece in pieces:
                    digest.update(piece)
                    yield piece
            except (StoreDamaged, StoreFailed) as error:
                raise self._as_lost(wanted, getattr(error, "what", str(error))) from error
            if digest.digest() != wanted or kind != b"blob":
                raise self._as_lost(wanted, f"blob {wanted.hex()} does not match its id")
            return
        raise self._as_lost(wanted, f"blob {wanted.hex()} is missing or damaged")

    # Proving

    def has(self, wanted: bytes) -> bool:
        """Return whether an object is kept, by reading it back unless this process has proved it before.

        Checks the packs that `refresh` found. The lock holder calls that only once, since nobody else writes.
        """
        if wanted in self._sound:
            return True
        may_have = self.pack_set.lists(wanted) or (self._scratch is not None and wanted in self._scratch)
        return may_have and self._find_whole(wanted, _only_kept(self._known_places(wanted))) is not None

    def prove(self, wanted: bytes) -> bool:
        """Return whether an object is kept, by reading it back now, even if it was proved before."""
        self._sound.discard(wanted)
        return self._find_whole(wanted, _only_kept(self._places(wanted))) is not None

    def can_read(self, wanted: bytes) -> bool:
        """Return whether an object has an intact copy anywhere, even where real git may prune it."""
        return self._find_whole(wanted, self._places(wanted)) is not None

    def require_blob(self, wanted: bytes) -> None:
        """Raise StoreDamaged unless a blob can be read, which is proved by reading it."""
        if not self.has(wanted) and not self.can_read(wanted):
            raise self._as_lost(wanted, f"blob {wanted.hex()} is missing or damaged")

    def _find_whole(self, wanted: bytes, places: Iterable[Place]) -> Place | None:
        """Find a place that has an intact copy of an object."""
        for place in places:
            try:
                is_whole = any(hash_source(copy) == wanted for copy in place.read())
            except (StoreDamaged, StoreFailed):
                continue
            if is_whole:
                self._note_sound(wanted, place)
                return place
        return None

    def is_listed(self, wanted: bytes) -> bool:
        """Return whether an object is in the index of a pack, or has a file; it may still be damaged."""
        return self.pack_set.lists(wanted) or self.loose.has_file(wanted)

    # Measuring

    def head_of(self, wanted: bytes) -> tuple[bytes, int]:
        """Return the kind of an object and its size."""
        for kind, size, _ in self._copies(wanted):
            return kind, size
        raise self._as_lost(wanted, f"object {wanted.hex()} is missing")

    def size_of(self, wanted: bytes) -> int:
        """Return the size of an object."""
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
            # Reading finds objects that another process stored or moved since, or that only the journal has.
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
        """Begin a pack of new objects, which is split into parts of about `part_size` bytes."""
        return PackWriter(self._pack_directory, part_size)

    def put(self, pack: ObjectSink, kind: bytes, content: bytes, before: bytes | None = None) -> bytes:
        """Put a small object into a pack, unless it is stored already; return its id.

        `before` is the id of the older version that it replaces.
        """
        wanted = object_id(kind, content)
        if wanted not in pack and not self.has(wanted):
            pack.add(kind, wanted, len(content), deflate(content))
            if before is not None:
                pack.note_version(wanted, before)
        return wanted

    def put_file(self, pack: ObjectSink, content: bytes, known: bytes) -> bytes:
        """Put a file's content into a pack, unless it is stored already; return its id.

        `known` is the id of what the file held before, which is stored.
        """
        wanted = object_id(b"blob", content)
        if wanted == known or wanted in pack or not pack.takes_file(wanted, len(content)):
            return wanted
        if not self.has(wanted):
            pack.add(b"blob", wanted, len(content), deflate(content))
            pack.note_version(wanted, known)
        return wanted

    def hold(self, pack: PackWriter, limit: int) -> PackBytes | list[PackFile]:
        """Finish a pack, and let this process read it before it is recorded.

        Return its bytes if it has at most `limit`, or else its files: durable, with temporary names.
        """
        content = pack.seal(limit)
        if content is not None:
            self.pack_set.hold(content)
        files = [] if content is not None else pack.complete()
        for file in files:
            self.pack_set.hold_file(file)
        self._sound.update(pack.ids - pack.copied)
        return files if content is None else content


def _only_kept(places: Iterable[Place]) -> Iterator[Place]:
    return (place for place in places if place.is_kept)


def _read_from(pack: Pack, wanted: bytes) -> Iterator[Source]:
    """Yield the copy of an object that a pack has, unless the pack is damaged there."""
    try:
        source = pack.read(wanted)
    except (StoreDamaged, StoreFailed):
        return
    yield source


class Loose:
    """The loose objects of a store, each a file of its own."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fans: set[str] = set()
        """The directories that contain some, as of the last refresh."""
        self._seen: set[bytes] = set()
        """Ids of objects that were read; `refresh` checks whether their files still exist."""

    def refresh(self) -> bool:
        """List the directories again; return whether any object that was read is gone."""
        with disk.store_errors(self._directory):
            self._fans = {name for name in os.listdir(self._directory) if _is_hex(name, 2)}
        return any(not os.path.exists(self._path_of(id)) for id in self._seen)

    def forget(self) -> None:
        """Forget which objects were read."""
        self._seen.clear()

    def may_have(self, wanted: bytes) -> bool:
        """Return whether an object could be here; False is certain."""
        return wanted[:1].hex() in self._fans

    def has_file(self, wanted: bytes) -> bool:
        """Return whether an object has a file; it may still be damaged."""
        return self.may_have(wanted) and os.path.isfile(self._path_of(wanted))

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Yield the loose copy of an object, if there is one."""
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
        """Return whether the loose copy of an object has the right hash."""
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
        """Return how many bytes all loose objects have."""
        return sum(map(self.size_of, self.ids()))

    def remove(self, ids: Iterable[bytes]) -> None:
        """Remove loose objects. Only for the lock holder."""
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
    """A sink that stores nothing: it keeps trees in memory, and files as long as there is room."""

    def __init__(self, file_bytes: int = 0) -> None:
        self._room = file_bytes
        self._hashed: set[bytes] = set()
        """The ids of all files that were seen, kept or not."""
        self._kept: dict[bytes, tuple[bytes, bytes]] = {}

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._kept

    def has_dropped(self, object_id: bytes) -> bool:
        """Return whether a file was seen and not kept."""
        return object_id in self._hashed and object_id not in self._kept

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Keep an object in memory."""
        del size
        self._kept[object_id] = (kind, deflated)

    def note_version(self, object_id: bytes, before: bytes) -> None:
        """Do nothing: a scratch needs no versions."""

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Return whether there is room for a file."""
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
