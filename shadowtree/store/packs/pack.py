"""One pack of git objects: finds the objects in it, and reads them.

Whole objects are inflated here, piece by piece, however large they are. Chains of deltas are resolved by
dulwich. Recording mostly reads whole objects, and then does not import dulwich, which would take a third of a
command's time.
"""

from __future__ import annotations

import os
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha1
from operator import itemgetter
from stat import S_ISREG

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.git_format import (
    INDEX_MAGIC,
    INDEX_SUFFIX,
    KEEP_SUFFIX,
    KIND_NAMES,
    PACK_INDEX_IDS,
    PACK_INDEX_SIZE,
    PACK_SUFFIX,
    EntryHead,
    PackBytes,
    PackEntry,
    Source,
    crcs_in_index,
    hash_source,
    ids_in_index,
    offset_in_index,
    offsets_in_index,
    parse_entry_head,
    prefixes_in_index,
)
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs.dulwich_packs import DulwichPack

_FEW_OBJECTS = 4096
_BUFFER_SIZE = 1 << 20
_CHUNK_SIZE = 1 << 18
HEAD_SIZE = 64
"""More bytes than the header of any entry has."""

PackStamp = tuple[int, int, int]
"""Shows that a file has not changed: mtime in ns, size, inode."""
Span = tuple[int, int, int]
"""Where an entry begins, how many bytes it has, and their CRC."""


def stamp_of(status: os.stat_result) -> PackStamp:
    """Return the stamp of a file."""
    return status.st_mtime_ns, status.st_size, status.st_ino


class Pack:
    """A finished pack, read from its file, or from memory until it has one."""

    def __init__(self, path: str, index: bytes, size: int, held: bytes | None = None) -> None:
        self.path = path
        """The path of its file, which may have a temporary name or not exist yet."""
        self.name = os.path.basename(path).removesuffix(PACK_SUFFIX)
        self.size = size
        self.stamps: tuple[PackStamp, PackStamp] | None = None
        """The stamps of its file and of its index."""
        self.is_verified = False
        """Whether this process wrote it, and read it back."""
        self.index = index
        self.count = int.from_bytes(index[PACK_INDEX_IDS - 4 : PACK_INDEX_IDS], "big")
        self._held = held
        self._fd = -1
        if index[:8] != INDEX_MAGIC or len(index) < PACK_INDEX_SIZE + 28 * self.count:
            raise StoreDamaged(f"the index of {path} is invalid or incomplete")

    @classmethod
    def open(cls, path: str, index_path: str | None = None) -> Pack:
        """Open a pack from its file and the file of its index."""
        index_path = index_path or path.removesuffix(PACK_SUFFIX) + INDEX_SUFFIX
        with disk.store_errors(index_path), disk.open_to_read(index_path) as file:
            # Not mapped: if a mapped file is truncated, the process that reads it is killed.
            index = file.readall() or b""
            index_stamp = stamp_of(os.fstat(file.fileno()))
        status = _stat_file(path)
        pack = cls(path, index, status.st_size)
        pack.stamps = stamp_of(status), index_stamp
        return pack

    @classmethod
    def with_index(cls, path: str, index: bytes) -> Pack:
        """Open a pack from its file and an index that is in memory."""
        return cls(path, index, _stat_file(path).st_size)

    @classmethod
    def in_memory(cls, path: str, content: PackBytes) -> Pack:
        """Return a pack that has no file yet; `path` is the one that it will have."""
        return cls(path, content.index, len(content.pack), content.pack)

    def move(self, path: str, stamps: tuple[PackStamp, PackStamp]) -> None:
        """Read from the file at this path from now on; `stamps` are those of the file and its index."""
        self.path, self.stamps, self._held = path, stamps, None

    def close(self) -> None:
        """Close the file, until something is read again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Where objects are

    @property
    def is_ours(self) -> bool:
        """Whether a record or a repack wrote it: then its `.keep` exists and is empty."""
        return disk.read_if_there(self.path.removesuffix(PACK_SUFFIX) + KEEP_SUFFIX) == b""

    @property
    def written_s(self) -> float:
        """When its index was written, in seconds since the epoch."""
        return 0 if self.stamps is None else self.stamps[1][0] / 1e9

    @property
    def is_small(self) -> bool:
        """Whether it has few enough objects to keep a table of all ids in memory."""
        return self.count <= _FEW_OBJECTS

    def find(self, object_id: bytes) -> int | None:
        """Return the offset of an object; None if it is not in the pack."""
        row = self._row(object_id)
        return None if row is None else offset_in_index(row, self.count, self.index)

    def ids(self) -> list[bytes]:
        """Return the id of every object."""
        return ids_in_index(self.count, self.index)

    def entries(self) -> list[PackEntry]:
        """Return id, offset and CRC of every entry, in the order of the pack."""
        offsets, crcs = offsets_in_index(self.count, self.index), crcs_in_index(self.count, self.index)
        return sorted(zip(self.ids(), offsets, crcs, strict=True), key=itemgetter(1))

    def spans(self) -> dict[bytes, Span]:
        """Return the span of every entry, in the order of the pack."""
        entries = self.entries()
        ends = [*(offset for _, offset, _ in entries[1:]), self.size - 20]
        return {id: (start, end - start, crc) for (id, start, crc), end in zip(entries, ends, strict=False)}

    def span_of(self, object_id: bytes) -> Span:
        """Return the span of an object, which must be in the pack."""
        row = self._row(object_id)
        assert row is not None
        offset = offset_in_index(row, self.count, self.index)
        crc_at = PACK_INDEX_IDS + 20 * self.count + 4 * row
        crc = int.from_bytes(self.index[crc_at : crc_at + 4], "big")
        return offset, self.end_of(offset) - offset, crc

    def end_of(self, offset: int) -> int:
        """Return where the entry ends that begins at `offset`."""
        after = bisect_right(self._offsets, offset)
        # A truncated pack ends before its last entries do.
        return self._offsets[after] if after < self.count else max(offset, self.size - 20)

    def stored_size(self, object_id: bytes) -> int | None:
        """Return how many bytes the entry of an object has; None if it is not in the pack."""
        offset = self.find(object_id)
        return None if offset is None else self.end_of(offset) - offset

    def _row(self, object_id: bytes) -> int | None:
        if self.is_small:
            return self.rows.get(object_id)
        prefixes = self._prefixes
        prefix = int.from_bytes(object_id[:4], "big")
        row = bisect_left(prefixes, prefix)
        # Few ids have the same prefix; these are compared one by one.
        while row < self.count and prefixes[row] == prefix:
            place = PACK_INDEX_IDS + 20 * row
            if self.index[place : place + 20] == object_id:
                return row
            row += 1
        return None

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """The index row of each object of a small pack. There are many such packs, and most lookups fail."""
        return {id: row for row, id in enumerate(self.ids())}

    @cached_property
    def _prefixes(self) -> array[int]:
        """The beginnings of all ids of a large pack, as numbers: much faster to search than the index."""
        return prefixes_in_index(self.count, self.index)

    @cached_property
    def _offsets(self) -> list[int]:
        """The offsets of all entries, in order."""
        return sorted(offsets_in_index(self.count, self.index))

    # Reading

    def read(self, object_id: bytes) -> Source:
        """Read an object, which must be in the pack; its hash is not checked."""
        offset = self.find(object_id)
        assert offset is not None
        return self.read_at(offset)

    def read_at(self, offset: int) -> Source:
        """Read the object at an offset, resolving deltas; its hash is not checked."""
        head = self.read_head(offset)
        if head.base is None and head.kind_number in KIND_NAMES:
            return KIND_NAMES[head.kind_number], head.size, self._inflate(head)
        kind, content = self.reader.read_at(offset)
        return kind, len(content), iter([content])

    def hash_at(self, offset: int) -> bytes | None:
        """Return the id that the object at an offset really has; None if it cannot be read."""
        try:
            return hash_source(self.read_at(offset))
        except (StoreDamaged, StoreFailed):
            return None

    def is_sound(self, object_id: bytes) -> bool:
        """Return whether this pack has an intact copy of an object."""
        offset = self.find(object_id)
        return offset is not None and self.hash_at(offset) == object_id

    @cached_property
    def reader(self) -> DulwichPack:
        """The same pack, as a pack of dulwich."""
        from shadowtree.store.packs.dulwich_packs import DulwichPack

        return DulwichPack(self)

    def read_head(self, offset: int) -> EntryHead:
        """Read the header of the entry at `offset`."""
        return parse_entry_head(self.pread(offset, HEAD_SIZE), offset, self.path)

    def read_span(self, span: Span) -> bytes:
        """Return the raw bytes of an entry; raise StoreDamaged if the CRC differs."""
        offset, size, crc = span
        raw = self.pread(offset, size)
        if zlib.crc32(raw) != crc:
            raise StoreDamaged(f"{self.path} is damaged at {offset}")
        return raw

    def stream_span(self, span: Span) -> Iterator[bytes]:
        """Yield the raw bytes of an entry in pieces; raise StoreDamaged at the end if the CRC differs."""
        offset, size, known = span
        crc = 0
        for at in range(offset, offset + size, _BUFFER_SIZE):
            piece = self.pread(at, min(_BUFFER_SIZE, offset + size - at))
            crc = zlib.crc32(piece, crc)
            yield piece
        if crc != known:
            raise StoreDamaged(f"{self.path} is damaged at {offset}")

    def read_all(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield id, raw bytes and CRC of every entry of a small pack; raise StoreDamaged if it is damaged."""
        self.require_sound_index()
        content = self.pread(0, self.size)
        for id, (offset, size, crc) in self.spans().items():
            raw = content[offset : offset + size]
            if zlib.crc32(raw) != crc:
                raise StoreDamaged(f"{self.path} is damaged at {offset}")
            yield id, raw, crc

    def require_sound_entries(self) -> None:
        """Read every entry; raise StoreDamaged if the CRC of one differs."""
        for span in self.spans().values():
            for _ in self.stream_span(span):
                pass

    def is_whole(self) -> bool:
        """Return whether the content of the pack agrees with its checksum, and with the one in its index."""
        digest = sha1(usedforsecurity=False)
        for start in range(0, self.size - 20, _BUFFER_SIZE):
            digest.update(self.pread(start, min(_BUFFER_SIZE, self.size - 20 - start)))
        is_as_indexed = self.pread(self.size - 20, 21) == digest.digest() == self.index[-40:-20]
        return is_as_indexed and self._has_sound_index

    def require_sound_index(self) -> None:
        """Raise StoreDamaged if the index is damaged: entries copied by it would get wrong ids."""
        if not self._has_sound_index:
            raise StoreDamaged(f"the index of {self.path} is damaged")

    @cached_property
    def _has_sound_index(self) -> bool:
        return sha1(self.index[:-20], usedforsecurity=False).digest() == self.index[-20:]

    def _inflate(self, entry: EntryHead) -> Iterator[bytes]:
        """Yield the content of an entry in pieces, never more than the entry's size."""
        inflater = zlib.decompressobj()
        position, left = entry.start, entry.size
        while not inflater.eof:
            piece = inflater.unconsumed_tail
            if not piece:
                piece = self.pread(position, min(left + 128, _CHUNK_SIZE))
                position += len(piece)
            if not piece:
                raise StoreDamaged(f"{self.path} is truncated")
            try:
                content = inflater.decompress(piece, min(left + 1, _BUFFER_SIZE))
            except zlib.error as error:
                raise StoreDamaged(f"{self.path} cannot be decompressed at {entry.start}") from error
            left -= len(content)
            if left < 0:
                raise StoreDamaged(f"{self.path} has extra data at {entry.start}")
            if content:
                yield content

    def pread(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at an offset; fewer, or none, if the pack ends before."""
        if offset < 0 or size <= 0:
            return b""
        if self._held is not None:
            return self._held[offset : offset + size]
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise disk.as_store_error(self.path, error) from error


def _stat_file(path: str) -> os.stat_result:
    with disk.store_errors(path):
        status = os.stat(path)
    if not S_ISREG(status.st_mode):
        raise StoreDamaged(f"{path} is not a file")
    return status
