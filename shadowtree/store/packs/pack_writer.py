"""Crash-safe writing of packs of git objects.

A small pack is returned as bytes, for a row of the timeline, which makes it durable before it has files. A
large pack is written and synced under a temporary name, with its index, before a row names it; then its files
get their final names (`timeline/publish_packs`). A temporary file that no row names belongs to a process that
died (invariant 10). A pack that comes through `Shadow.repo` is complete and durable before its files get
their final names, and no row names it.

Each pack has a `.keep` file, which is written first: `git gc` and `git repack` leave such packs alone.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha1
from io import BufferedRandom, FileIO

from shadowtree.base.errors import StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.limits import PackLimits
from shadowtree.store.git_format import (
    INDEX_SUFFIX,
    KEEP_SUFFIX,
    KIND_NUMBERS,
    PACK_HEADER_SIZE,
    PACK_INDEX_SIZE,
    PACK_SUFFIX,
    REF_DELTA,
    PackBytes,
    PackEntry,
    encode_pack_index,
    entry_header,
    object_header,
    pack_header,
    start_deflate,
)
from shadowtree.store.packs.pack import Pack
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class ObjectSink(Protocol):
        """Where new objects go: into a pack, or into a scratch that stores nothing."""

        def __contains__(self, object_id: bytes) -> bool: ...

        def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
            """Take an object that is already deflated."""

        def note_version(self, object_id: bytes, before: bytes) -> None:
            """Note that an object replaced an older version."""

        def takes_file(self, object_id: bytes, size: int) -> bool:
            """Return whether the content of a file is wanted; its id is noted in any case."""

        def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
            """Take a blob of `size` bytes piece by piece; return its id."""


_BUFFER_SIZE = 1 << 20
_PARTS = 8
"""About how many parts a store has..."""
_LARGEST_PART = 8 << 20
"""...unless that makes them larger than this, which takes a quarter of a second to rewrite."""
INCOMING_PREFIX = "tmp_pack_"
"""The prefix of a pack while it is received. No row has such a name, and a lock holder does not take the file
for one of a dead process until it is old."""
FROM_OUTSIDE = b"written through Shadow.repo\n"
"""The `.keep` of a pack with the user's own objects; that of our packs is empty."""
_KEPT_AGAIN = b"it was missing\n"
"""A `.keep` that had to be written again, for a pack of unknown origin."""
_GIT_SUFFIXES = (".rev", ".bitmap", ".mtimes", ".promisor")
"""The suffixes of further files that real git writes for its packs."""


@frozen
class PackFile:
    """A pack that is complete and durable under a temporary name, with its index beside it."""

    name: str
    """`pack-ID`, the final name of its files without their suffixes."""
    temporary: str
    """The name of its file in the directory of packs."""

    @property
    def index(self) -> str:
        """The temporary name of its index, without `.idx`: `git gc` removes an `.idx` without a pack."""
        return f"{self.temporary}-index"


def part_size(total: int, limits: PackLimits) -> int:
    """Return how many bytes each part should have if all parts together have `total`."""
    return max(limits.part_bytes, min(total // _PARTS, _LARGEST_PART))


class PackWriter:
    """Writes objects into a new pack, or into several parts of about `part_size` bytes.

    Readers do not see any of it before it is published.
    """

    def __init__(self, directory: str, part_size: int | None = None) -> None:
        self._directory = directory
        self._part_size = part_size
        self._full: list[_Part] = []
        self._part = _Part(directory)
        self.ids: set[bytes] = set()
        """The id of every object so far."""
        self.copied: set[bytes] = set()
        """The ids of entries that were copied from another pack, and not hashed here."""
        self.versions: list[tuple[bytes, bytes]] = []
        """The ids of objects that replaced an older version, each with the id of that version."""

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self.ids

    @property
    def size(self) -> int:
        """How many bytes all parts have so far."""
        return sum(part.size for part in (*self._full, self._part))

    def note_version(self, object_id: bytes, before: bytes) -> None:
        """Note that an object replaced an older version: of the same file, or the same directory."""
        if object_id in self.ids and any(before):
            self.versions.append((object_id, before))

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Return True: a pack takes every file."""
        del object_id, size
        return True

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Append an object, already deflated, unless the pack has it."""
        if object_id not in self.ids:
            part = self._next_part()
            self._append(part, object_id, entry_header(KIND_NUMBERS[kind], size), deflated)

    def add_delta(self, object_id: bytes, base: bytes, size: int, deflated: bytes) -> None:
        """Append a delta of `size` bytes, already deflated; its base must be in the same part."""
        self._append(self._part, object_id, entry_header(REF_DELTA, size) + base, deflated)

    def _append(self, part: _Part, object_id: bytes, header: bytes, deflated: bytes) -> None:
        offset = part.start()
        crc = part.put(deflated, part.put(header, 0))
        self._note(part, object_id, offset, crc)

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Append a blob of `size` bytes piece by piece, unless it `is_known`; return its id.

        If `pieces` raises, or does not have exactly `size` bytes, the pack is left as it was before.
        """
        part = self._next_part()
        with part.appending() as offset:
            object_id, crc = part.stream(size, pieces)
        if object_id in self.ids or is_known(object_id):
            part.cut_back(offset)
        else:
            self._note(part, object_id, offset, crc)
        return object_id

    def copy(self, object_id: bytes, pieces: Iterable[bytes], crc: int) -> None:
        """Append the raw bytes of an entry in another pack; the base of a delta must be in this pack.

        If `pieces` raises, the pack is left as it was before.
        """
        with self._part.appending() as offset:
            for piece in pieces:
                self._part.put(piece, 0)
        self._note(self._part, object_id, offset, crc)
        self.copied.add(object_id)

    def copy_whole(self, object_id: bytes, raw: bytes, crc: int) -> None:
        """Append an entry as `copy` does, but from memory."""
        offset = self._part.start()
        self._part.put(raw, 0)
        self._note(self._part, object_id, offset, crc)
        self.copied.add(object_id)

    def _note(self, part: _Part, object_id: bytes, offset: int, crc: int) -> None:
        part.entries.append((object_id, offset, crc))
        self.ids.add(object_id)

    def _next_part(self) -> _Part:
        """Return the part that the next whole object goes into."""
        if self._part_size is not None and self._part.size >= self._part_size:
            self._part.flush()
            self._full.append(self._part)
            self._part = _Part(self._directory)
        return self._part

    def seal(self, limit: int) -> PackBytes | None:
        """Return the pack as bytes, without files; None if it is empty, or exceeds `limit` bytes.

        In that case call `complete`.
        """
        return None if self._full else self._part.seal(limit)

    def complete(self) -> list[PackFile]:
        """Make every part that has objects complete and durable under its temporary name."""
        parts = [part for part in (*self._full, self._part) if part.entries]
        finished: list[PackFile] = []
        try:
            for part in parts:
                finished.append(part.complete())
            if finished:
                disk.sync_names(self._directory)
        except BaseException:
            for file in finished:
                remove_temporary(self._directory, file)
            self.abandon()
            raise
        # A part that was begun may have no objects left.
        self.abandon()
        return finished

    def abandon(self) -> None:
        """Discard every part that is not complete."""
        for part in (*self._full, self._part):
            part.abandon()


class _Part:
    """One pack that is being written."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = ""
        self._fd = -1
        self._buffer = bytearray()
        self._flushed = 0
        self.entries: list[PackEntry] = []

    @property
    def size(self) -> int:
        """How many bytes it has so far."""
        return self._flushed + len(self._buffer)

    def start(self) -> int:
        """Return the offset of the next entry; before the first one, leave room for the header."""
        if not self.size:
            self._buffer += bytes(PACK_HEADER_SIZE)
        return self.size

    @contextmanager
    def appending(self) -> Iterator[int]:
        """Yield the offset of the next entry; if the body raises, leave the part as it was before."""
        offset = self.start()
        try:
            yield offset
        except BaseException:
            self.cut_back(offset)
            raise

    def put(self, raw: bytes, crc: int) -> int:
        """Append bytes; return `crc` continued over them."""
        self._buffer += raw
        if len(self._buffer) >= _BUFFER_SIZE:
            self.flush()
        return zlib.crc32(raw, crc)

    def stream(self, size: int, pieces: Iterator[bytes]) -> tuple[bytes, int]:
        """Append a blob that comes in pieces; return its id and its CRC."""
        crc = self.put(entry_header(KIND_NUMBERS[b"blob"], size), 0)
        digest = sha1(object_header(b"blob", size), usedforsecurity=False)
        deflater = start_deflate()
        seen = 0
        for piece in pieces:
            digest.update(piece)
            seen += len(piece)
            crc = self.put(deflater.compress(piece), crc)
        crc = self.put(deflater.flush(), crc)
        if seen != size:
            raise ValueError(f"got {seen} bytes, expected {size}")
        return digest.digest(), crc

    def cut_back(self, offset: int) -> None:
        """Remove everything from an offset on."""
        if offset >= self._flushed:
            # Not truncated in place: a write that failed may still have a view of the buffer.
            self._buffer = self._buffer[: offset - self._flushed]
        else:
            self._buffer = bytearray()
            disk.truncate(self._fd, offset, self._path)
            self._flushed = offset

    def flush(self) -> None:
        """Write the buffer to the file."""
        if self._fd < 0:
            self._path = disk.name_temporary(self._directory)
            self._fd = disk.create_file(self._path)
        disk.write_all(self._fd, self._buffer, self._path)
        self._flushed += len(self._buffer)
        self._buffer = bytearray()

    def seal(self, limit: int) -> PackBytes | None:
        """Return the pack as bytes; None if it is empty, has a file already, or exceeds `limit` bytes."""
        index_size = PACK_INDEX_SIZE + 28 * len(self.entries)
        if not self.entries or self._flushed or len(self._buffer) + 20 + index_size > limit:
            return None
        self._buffer[:PACK_HEADER_SIZE] = pack_header(len(self.entries))
        checksum = sha1(self._buffer, usedforsecurity=False).digest()
        pack, self._buffer = bytes(self._buffer) + checksum, bytearray()
        index = encode_pack_index(sorted(self.entries), checksum)
        self.entries = []
        return PackBytes(f"pack-{checksum.hex()}", pack, index)

    def complete(self) -> PackFile:
        """Write the rest, and make pack and index durable under their temporary names."""
        if self._flushed:
            self.flush()
            disk.overwrite_at(self._fd, pack_header(len(self.entries)), 0, self._path)
            checksum = self._checksum()
        else:
            self._buffer[:PACK_HEADER_SIZE] = pack_header(len(self.entries))
            checksum = sha1(self._buffer, usedforsecurity=False).digest()
            self.flush()
        disk.write_all(self._fd, checksum, self._path)
        disk.sync(self._fd, self._path)
        os.close(self._fd)
        self._fd = -1
        file = PackFile(f"pack-{checksum.hex()}", os.path.basename(self._path))
        index_path = os.path.join(self._directory, file.index)
        _write_synced(index_path, encode_pack_index(sorted(self.entries), checksum))
        # Before a row names the pack, so that renaming it needs no more space on the disk.
        _keep(os.path.join(self._directory, file.name))
        # From now on the files belong to the caller.
        self._path = ""
        return file

    def _checksum(self) -> bytes:
        """Hash the whole file: the count in its header was not known while it was written."""
        digest = sha1(usedforsecurity=False)
        with disk.store_errors(self._path):
            os.lseek(self._fd, 0, os.SEEK_SET)
            while piece := os.read(self._fd, _BUFFER_SIZE):
                digest.update(piece)
        return digest.digest()

    def abandon(self) -> None:
        """Remove its files, unless they are complete."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._path:
            remove_temporary(self._directory, PackFile("", os.path.basename(self._path)))
            self._path = ""


# Packs that come from outside


class IncomingPack(BufferedRandom):
    """The file of a pack while it is received. That may take long, so the lock is not held meanwhile."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, f"{INCOMING_PREFIX}{os.getpid()}-{os.urandom(6).hex()}")
        super().__init__(_StoreFile(self._path, "x+b", opener=lambda path, _: disk.create_file(path)))

    @contextmanager
    def abandoned_if_it_fails(self) -> Iterator[None]:
        """Remove the file and its index if the body raises."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Remove the file and its index."""
        with suppress(StoreFailed):
            self.close()
        remove_temporary(self._directory, PackFile("", os.path.basename(self._path)))

    def complete(self, entries: Sequence[tuple[bytes, int, int]], checksum: bytes) -> PackFile:
        """Make the pack durable, with an index of these entries, and read all of it back."""
        self.flush()
        disk.sync(self.fileno(), self._path)
        self.close()
        index = encode_pack_index(entries, checksum)
        file = PackFile(f"pack-{checksum.hex()}", os.path.basename(self._path))
        _write_synced(os.path.join(self._directory, file.index), index)
        with closing(Pack.with_index(self._path, index)) as pack:
            pack.require_sound_entries()
        return file


class _StoreFile(FileIO):
    """A file of the store, written through the fault point, whose errors are ours."""

    def write(self, content: Any) -> int:  # Any: a buffer
        disk.before_write("write", str(self.name))
        with disk.store_errors(str(self.name)):
            return super().write(content)


# The files of packs


def _write_synced(path: str, content: bytes) -> None:
    """Write a new file under the name that it has for now, and sync it."""
    fd = disk.create_file(path)
    try:
        disk.write_all(fd, content, path)
        disk.sync(fd, path)
    finally:
        os.close(fd)


def write_pack(directory: str, content: PackBytes) -> None:
    """Write the files of a pack that is in a row, without syncing them."""
    path = os.path.join(directory, content.name)
    _keep(path)
    disk.place_file(path + PACK_SUFFIX, content.pack)
    try:
        disk.place_file(path + INDEX_SUFFIX, content.index)
    except BaseException:
        if not os.path.lexists(path + INDEX_SUFFIX):
            disk.remove_file(path + PACK_SUFFIX)
        raise


def _keep(path: str) -> None:
    """Create an empty `.keep`, unless there is one: that of the same pack may say whose it is."""
    if not os.path.lexists(path + KEEP_SUFFIX):
        os.close(disk.create_file(path + KEEP_SUFFIX))


def name_pack(directory: str, pack: PackFile, keep: bytes = b"", *, has_row: bool = True) -> None:
    """Move a complete pack to its final name, or finish a move that was interrupted.

    The index is renamed last: a pack without one is never read, and `git gc` removes an index without its
    pack. For a pack that no row names, the index is renamed first: the next lock holder removes it if no pack
    follows. The text in the `.keep` is durable before both.
    """
    path = os.path.join(directory, pack.name)
    if keep:
        disk.write_file(path + KEEP_SUFFIX, keep)
    else:
        _keep(path)
    files = [(pack.temporary, PACK_SUFFIX), (pack.index, INDEX_SUFFIX)]
    for file, suffix in files if has_row else reversed(files):
        temporary = os.path.join(directory, file)
        if os.path.lexists(temporary):
            disk.rename(temporary, path + suffix)


def remove_temporary(directory: str, pack: PackFile) -> None:
    """Remove the files of a pack that never got its name."""
    for file in (pack.temporary, pack.index):
        disk.remove_file(os.path.join(directory, file))


def remove_pack(directory: str, name: str) -> None:
    """Remove the files of a pack that exist: first the index, by which it is found, and last the `.keep`."""
    path = os.path.join(directory, name)
    for suffix in (INDEX_SUFFIX, PACK_SUFFIX, *_GIT_SUFFIXES, KEEP_SUFFIX):
        disk.remove_file(path + suffix)


def list_unkept(directory: str) -> list[str]:
    """List the packs that have no `.keep`: git wrote them, or somebody removed the `.keep`."""
    with disk.store_errors(directory):
        files = set(os.listdir(directory))
    names = (file.removesuffix(PACK_SUFFIX) for file in files if file.endswith(PACK_SUFFIX))
    return sorted(name for name in names if name.startswith("pack-") and name + KEEP_SUFFIX not in files)


def keep_again(directory: str, names: Iterable[str]) -> None:
    """Write the `.keep` of packs without one, so that `git gc` keeps objects in them that have no ref."""
    for name in names:
        disk.write_file(os.path.join(directory, name + KEEP_SUFFIX), _KEPT_AGAIN)


def is_written(directory: str, content: PackBytes) -> bool:
    """Return whether a pack has its files, with exactly these bytes, and its `.keep`."""
    path = os.path.join(directory, content.name)
    return os.path.lexists(path + KEEP_SUFFIX) and has_same_bytes(directory, content)


def has_same_bytes(directory: str, content: PackBytes) -> bool:
    """Return whether the files of a pack have exactly these bytes."""
    path = os.path.join(directory, content.name)
    is_index_same = disk.read_if_there(path + INDEX_SUFFIX) == content.index
    return is_index_same and disk.read_if_there(path + PACK_SUFFIX) == content.pack
