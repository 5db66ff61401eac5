"""The objects of one store: git blobs, trees and commits, read with their hash checked, written as packs.

shadowtree writes packs only; loose objects are read too, because `git gc` run by hand may leave some. An
object counts as stored when it was read back and had the right hash, or when this process wrote it: that a
file exists proves nothing. dulwich is called where a pack holds deltas, which only real git makes today.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1

from shadowtree import disk
from shadowtree.deflate import deflate
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.gitformat import (
    EMPTY_TREE,
    KIND_NAMES,
    PackBytes,
    TreeEntry,
    decode_tree,
    object_header,
    object_id,
)
from shadowtree.layout import TEMPORARY_PREFIX
from shadowtree.packs import Entry, Pack, PackStamp, PackWriter, merge_packs, stamp_of, write_pack

_LOOSE_CHUNK = 1 << 16
_MAX_DELTA_CHAIN = 5000
_REMEMBERED_ENTRIES = 20_000
"""How many entries of trees are kept in memory."""
_MANY_PACKS = 24
"""From this many packs on, the small ones are put together."""
_LARGEST_MERGED = 32 << 20
"""A larger pack stays as it is: what is copied is held in memory, pack by pack."""

Source = tuple[bytes, int, Iterator[bytes]]
"""The kind, the size and the content of one stored copy of an object, not yet checked."""


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class ObjectSink(Protocol):
        """Where new objects go: into a pack, or nowhere at all."""

        def __contains__(self, object_id: bytes) -> bool: ...

        def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
            """Take an object that is deflated already."""

        def takes_file(self, object_id: bytes, size: int) -> bool:
            """Tell whether the content of a file is wanted; its id is noted in any case."""

        def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
            """Take a blob of `size` bytes piece by piece, and give its id."""


class TooLarge(Exception):
    """An object that is larger than its reader wants."""


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
        """Tell whether an object was seen and not kept."""
        return object_id in self._hashed and object_id not in self._kept

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Keep an object in memory."""
        del size
        self._kept[object_id] = (kind, deflated)

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Take files as long as there is room."""
        self._hashed.add(object_id)
        self._room -= size
        return self._room >= 0

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Hash a file that is too large to keep."""
        del is_known
        digest = sha1(object_header(b"blob", size), usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        self._hashed.add(digest.digest())
        return digest.digest()

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Give a kept object as if it came from the store."""
        if wanted in self._kept:
            kind, deflated = self._kept[wanted]
            content = zlib.decompress(deflated)
            yield kind, len(content), iter([content])


class Objects:
    """The object database of a store. Reading needs no lock; writing needs the store's."""

    def __init__(
        self,
        directory: str,
        scratch: Scratch | None = None,
        journaled: Callable[[], Iterable[PackBytes]] = tuple,
    ) -> None:
        self._directory = directory
        self._scratch = scratch
        self._journaled = journaled
        """Reads the packs that the journal holds, for when their files are not there or not whole."""
        self._pack_directory = os.path.join(directory, "pack")
        self._packs: dict[str, Pack] = {}
        self._stamps: dict[str, PackStamp] = {}
        """Of packs and indexes, by name, as they were when somebody last looked."""
        self._held: dict[str, tuple[Pack, PackBytes]] = {}
        """Packs that have no files yet."""
        self._recalled: dict[str, Pack] = {}
        """Packs that were read from the journal, because an object was not whole anywhere else."""
        self._fans: set[str] = set()
        """The directories of loose objects."""
        self._trees: dict[bytes, list[TreeEntry]] = {}
        self._room = _REMEMBERED_ENTRIES
        self._sound: set[bytes] = set()
        """Ids that this process wrote, or read back whole."""

    def close(self) -> None:
        """Let go of every file."""
        for pack in self._packs.values():
            pack.close()
        self._packs = {}
        self._held = {}
        self._recalled = {}

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
        raise StoreDamaged(problem)

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
                raise StoreDamaged(f"blob {wanted.hex()} has other content than its name says")
            return
        raise StoreDamaged(f"blob {wanted.hex()} is missing")

    def prove(self, wanted: bytes) -> bool:
        """Tell whether an object is stored by reading it back now, whatever was seen of it before."""
        self._sound.discard(wanted)
        return self._has_anywhere(wanted)

    def require_blob(self, wanted: bytes) -> None:
        """Raise StoreDamaged unless a blob is stored, which is proved by reading it back."""
        if not self._has_anywhere(wanted):
            raise StoreDamaged(f"blob {wanted.hex()} is missing or damaged")

    def size_of(self, wanted: bytes) -> int:
        """Tell how large an object is."""
        for _, size, _ in self._all_sources(wanted):
            return size
        raise StoreDamaged(f"object {wanted.hex()} is missing")

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
        if not self._packs and not self._fans and not self._held and self._scratch is None:
            return False
        return self._proves(wanted, self._sources(wanted))

    def _has_anywhere(self, wanted: bytes) -> bool:
        """Do the same, and look too for what another process stored since, or has in the journal alone."""
        return (
            self.has(wanted)
            or (self.refresh() and self.has(wanted))
            or self._proves(wanted, self._from_journal(wanted))
        )

    def _proves(self, wanted: bytes, sources: Iterator[Source]) -> bool:
        """Tell whether one of the copies of an object is whole."""
        for kind, size, pieces in sources:
            digest = sha1(object_header(kind, size), usedforsecurity=False)
            try:
                for piece in pieces:
                    digest.update(piece)
            except (StoreDamaged, StoreFailed):
                continue
            if digest.digest() == wanted:
                self._sound.add(wanted)
                return True
        return False

    def refresh(self) -> bool:
        """Look for packs that came or went; tell whether any came."""
        with disk.store_errors(self._directory):
            self._fans = {name for name in os.listdir(self._directory) if len(name) == 2}
            self._stamps = stamps = dict(_stamp_files(self._pack_directory))
        for name, pack in list(self._packs.items()):
            if stamps.get(name) != pack.stamp:
                self._packs.pop(name).close()
                self._doubt()
        fresh = [name for name in stamps if name not in self._packs and _is_index(name)]
        opened = [self._open_pack(name) for name in sorted(fresh, key=stamps.__getitem__)]
        return any(opened)

    def _doubt(self) -> None:
        """Have everything proved anew: where it was read from is gone."""
        self._sound.clear()
        self._trees.clear()

    def _sources(self, wanted: bytes) -> Iterator[Source]:
        """Give every stored copy of an object, newest first; a damaged one does not hide a sound one."""
        if self._scratch is not None:
            yield from self._scratch.find(wanted)
        for pack in (*self._recalled.values(), *(pack for pack, _ in self._held.values())):
            yield from self._in_pack(pack, wanted)
        for pack in reversed(list(self._packs.values())):
            yield from self._in_pack(pack, wanted)
        if wanted[:1].hex() in self._fans:
            yield from self._from_loose(wanted)

    def _all_sources(self, wanted: bytes) -> Iterator[Source]:
        """Give every stored copy, those too that another process stored or moved since."""
        yield from self._sources(wanted)
        if self.refresh():
            yield from self._sources(wanted)
        # Between a record and the files of its pack, and after a power cut.
        yield from self._from_journal(wanted)
        # A pack that went from the journal meanwhile was merged.
        if self.refresh():
            yield from self._sources(wanted)

    def _from_journal(self, wanted: bytes) -> Iterator[Source]:
        """Give the copies that are in the journal; whoever asks again has them first."""
        for content in self._journaled():
            pack = Pack(self._path_of(content.name), content)
            if content.name not in self._recalled and pack.find(wanted) is not None:
                self._recalled[content.name] = pack
                yield from self._in_pack(pack, wanted)

    def _path_of(self, pack: str) -> str:
        return os.path.join(self._pack_directory, pack + ".idx")

    def _in_pack(self, pack: Pack, wanted: bytes) -> Iterator[Source]:
        offset = pack.find(wanted)
        if offset is None:
            return
        try:
            entry = pack.read_entry(offset)
            if entry.base is not None:
                kind, content = self._resolve_delta(pack, entry)
                yield kind, len(content), iter([content])
            elif entry.kind_number in KIND_NAMES:
                yield KIND_NAMES[entry.kind_number], entry.size, pack.inflate(entry)
        except (StoreDamaged, StoreFailed):
            return

    def _resolve_delta(self, pack: Pack, entry: Entry) -> tuple[bytes, bytes]:
        """Put a chain of deltas together, as `git gc` makes them."""
        from dulwich.pack import apply_delta

        deltas = []
        while entry.base is not None:
            deltas.append(b"".join(pack.inflate(entry)))
            offset = pack.find(entry.base) if isinstance(entry.base, bytes) else entry.base
            if offset is None or len(deltas) > _MAX_DELTA_CHAIN:
                raise StoreDamaged(f"{pack.path} has a delta without its base")
            entry = pack.read_entry(offset)
        content = b"".join(pack.inflate(entry))
        for delta in reversed(deltas):
            try:
                content = b"".join(apply_delta(content, delta))
            except Exception as error:  # whatever dulwich finds wrong in a delta, the object is not there
                raise StoreDamaged(f"{pack.path} has a delta that does not fit its base") from error
        return KIND_NAMES[entry.kind_number], content

    def _from_loose(self, wanted: bytes) -> Iterator[Source]:
        name = wanted.hex()
        path = os.path.join(self._directory, name[:2], name[2:])
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
                yield kind, int(size), _chain(content, pieces)

    def _open_pack(self, name: str) -> bool:
        try:
            self._packs[name] = Pack(os.path.join(self._pack_directory, name))
        except (StoreDamaged, StoreFailed):
            # A damaged index hides its objects: whoever needs one of them is told that it is missing.
            return False
        return True

    # Writing

    def start_pack(self) -> PackWriter:
        """Begin a pack of new objects."""
        return PackWriter(self._pack_directory)

    def put(self, pack: ObjectSink, kind: bytes, content: bytes) -> bytes:
        """Put a small object into a pack unless it is stored already, and give its id."""
        wanted = object_id(kind, content)
        if wanted not in pack and not self.has(wanted):
            pack.add(kind, wanted, len(content), deflate(content))
        return wanted

    def put_file(self, pack: ObjectSink, content: bytes, known: bytes) -> bytes:
        """Put the content of a file into a pack unless it is stored already, as what is `known` is."""
        wanted = object_id(b"blob", content)
        if wanted == known or wanted in pack or not pack.takes_file(wanted, len(content)):
            return wanted
        if not self.has(wanted):
            pack.add(b"blob", wanted, len(content), deflate(content))
        return wanted

    def publish(self, pack: PackWriter, announce: Callable[[str], None] | None = None) -> bool:
        """Make a pack durable and visible, so that its objects may be named; False if it is empty.

        `announce` is called with its name right before it can be seen.
        """
        name = pack.finish(announce)
        if name is None:
            return False
        self._open_pack(os.path.basename(name) + ".idx")
        self._stamp_pack(os.path.basename(name))
        self._sound.update(pack.proven_ids())
        return True

    def hold(self, content: PackBytes, proven: Iterable[bytes]) -> None:
        """Let this process read a pack that has no files; the objects that are `proven` are sound."""
        self._held[content.name] = Pack(self._path_of(content.name), content), content
        self._sound.update(proven)

    def write_held(self) -> None:
        """Give every held pack its files, for others to see; it must be in the journal by now."""
        for name, (pack, content) in list(self._held.items()):
            write_pack(self._pack_directory, content)
            self._stamp_pack(name)
            pack.let_go(self._stamps[name + ".idx"])
            self._packs[name + ".idx"] = pack
            del self._held[name]

    def drop_held(self) -> None:
        """Forget the packs that have no files, and those that were recalled."""
        if self._held or self._recalled:
            self._held, self._recalled = {}, {}
            self._doubt()

    def _stamp_pack(self, name: str) -> None:
        for file in (name + ".idx", name + ".pack"):
            path = os.path.join(self._pack_directory, file)
            with disk.store_errors(path):
                self._stamps[file] = stamp_of(os.stat(path))

    def remove_temporaries(self) -> None:
        """Remove what dead processes left behind. Only for the holder of the lock.

        An index without its pack is theirs too: they were about to add the pack, or had removed it. And so is
        what kept a pack from `git gc` until it was recorded.
        """
        with disk.store_errors(self._pack_directory):
            names = set(os.listdir(self._pack_directory))
        for name in names:
            is_alone = _is_index(name) and name.removesuffix(".idx") + ".pack" not in names
            if is_alone or name.endswith(".keep") or name.startswith(TEMPORARY_PREFIX):
                disk.remove_file(os.path.join(self._pack_directory, name))

    def stamp(self) -> dict[str, PackStamp]:
        """Give the stamps of packs and indexes by name, as `refresh` found them or this process made them."""
        return dict(self._stamps)

    def has_files(self, name: str, *, pack_size: int, index_size: int) -> bool:
        """Tell whether a pack has files of just these sizes, as far as the last look tells."""
        sizes = {suffix: self._stamps.get(name + suffix, (0, -1, 0))[1] for suffix in (".pack", ".idx")}
        return sizes == {".pack": pack_size, ".idx": index_size}

    def merge_small_packs(self, before_removal: Callable[[list[str]], None] | None = None) -> None:
        """Put small packs together once there are many, so that finding an object stays fast.

        Only packs smaller than all the smaller ones together are taken: an object is copied a number of
        times that grows with the logarithm of the store, not with the number of snapshots. `before_removal`
        is called with the names of those that were put together, when the new one is durable.
        """
        candidates = [p for p in self._packs.values() if p.is_ours and p.size <= _LARGEST_MERGED]
        if len(candidates) < _MANY_PACKS:
            return
        by_size = sorted(candidates, key=lambda pack: pack.size)
        taken, total = by_size[:2], by_size[0].size + by_size[1].size
        for pack in by_size[2:]:
            if pack.size > total:
                break
            taken.append(pack)
            total += pack.size
        merge_packs(taken, self.start_pack(), before_removal)
        self.refresh()


def _stamp_files(directory: str) -> Iterator[tuple[str, PackStamp]]:
    """Give the stamps of packs and indexes; one that another process removes meanwhile is passed over."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("pack-") and entry.name.endswith((".pack", ".idx")):
                try:
                    yield entry.name, stamp_of(entry.stat())
                except FileNotFoundError:
                    continue


def _is_index(name: str) -> bool:
    return name.startswith("pack-") and name.endswith(".idx")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _inflate_file(fd: int, path: str) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        piece = inflater.unconsumed_tail
        if not piece:
            with disk.store_errors(path):
                piece = os.read(fd, _LOOSE_CHUNK)
        if not piece:
            raise StoreDamaged(f"{path} ends too early")
        try:
            content = inflater.decompress(piece, 1 << 20)
        except zlib.error as error:
            raise StoreDamaged(f"{path} cannot be inflated") from error
        if content:
            yield content
