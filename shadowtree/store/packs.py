"""Packs of git objects on disk: finding and reading what is in one."""

from __future__ import annotations

import os
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from hashlib import sha1
from operator import itemgetter
from stat import S_ISREG

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.store.deltas import BadDelta, apply_delta
from shadowtree.store.git_format import (
    INDEX_MAGIC,
    INDEX_SUFFIX,
    KIND_NAMES,
    OFS_DELTA,
    PACK_HEADER_SIZE,
    PACK_INDEX_IDS,
    PACK_INDEX_SIZE,
    PACK_SUFFIX,
    REF_DELTA,
    EntryHead,
    PackBytes,
    PackEntry,
    Source,
    crcs_in_index,
    ids_in_index,
    offset_in_index,
    offsets_in_index,
    parse_entry_head,
    prefixes_in_index,
)
from shadowtree.system import disk

_FEW_OBJECTS = 4096
_BUFFER_SIZE = 1 << 20
_CHUNK_SIZE = 1 << 18
_HEAD_SIZE = 64
"""More than what stands before the deflated content of an entry."""
_MAX_DELTA_CHAIN = 5000
_REMEMBERED_BASES = 8 << 20
"""How many bytes are kept of what deltas are made of: who reads one version mostly reads the next."""

PackStamp = tuple[int, int, int]
"""What tells that an index has not changed: mtime in ns, size, inode."""


def stamp_of(status: os.stat_result) -> PackStamp:
    """Give the stamp of a file."""
    return status.st_mtime_ns, status.st_size, status.st_ino


class DeltaBases(dict[tuple[str, int], tuple[int, bytes]]):
    """What was made of deltas a moment ago, by pack and place: its kind and its content."""

    _room = _REMEMBERED_BASES

    def remember(self, place: tuple[str, int], kind_number: int, content: bytes) -> None:
        """Keep an object as long as there is room."""
        self._room -= len(content)
        if self._room < 0:
            self.clear()
            self._room = _REMEMBERED_BASES - len(content)
        if self._room >= 0:
            self[place] = kind_number, content


class Pack:
    """A finished pack, for reading: from its files, or from memory as long as it has none."""

    def __init__(
        self, index_path: str, content: PackBytes | None = None, bases: DeltaBases | None = None
    ) -> None:
        self.path = index_path.removesuffix(INDEX_SUFFIX) + PACK_SUFFIX
        self.name = os.path.basename(self.path).removesuffix(PACK_SUFFIX)
        self._fd = -1
        self._bases = DeltaBases() if bases is None else bases
        self._held = None if content is None else content.pack
        self.stamp: PackStamp | None = None
        self.is_ours = True
        """Git makes its packs read-only, and they hold deltas."""
        if content is None:
            self._open(index_path)
        else:
            self._index, self.size = content.index, len(content.pack)
        self.count = int.from_bytes(self._index[PACK_INDEX_IDS - 4 : PACK_INDEX_IDS], "big")
        if self._index[:8] != INDEX_MAGIC or len(self._index) < PACK_INDEX_SIZE + 28 * self.count:
            raise StoreDamaged(f"{index_path} is no pack index, or not a whole one")

    @classmethod
    def with_index(cls, index_path: str, index: bytes) -> Pack:
        """Read a pack by an index that was made anew and has no file yet."""
        with disk.store_errors(index_path):
            size = os.stat(index_path.removesuffix(INDEX_SUFFIX) + PACK_SUFFIX).st_size
        pack = cls(index_path, PackBytes("", b"", index))
        pack._held, pack.size = None, size
        return pack

    def _open(self, index_path: str) -> None:
        with disk.store_errors(index_path), disk.open_to_read(index_path) as file:
            # Not mapped: somebody who cuts a mapped file short kills the process that looks at it.
            self._index = file.readall() or b""
            self.stamp = stamp_of(os.fstat(file.fileno()))
        with disk.store_errors(self.path):
            status = os.stat(self.path)
        if not S_ISREG(status.st_mode):
            raise StoreDamaged(f"{self.path} is no file")
        self.size = status.st_size
        self.is_ours = bool(status.st_mode & 0o200)

    def load(self) -> Pack:
        """Read all of it into memory, where it is read from then on; this one is as it was."""
        content = PackBytes(self.name, self._pread(0, self.size), self._index)
        return Pack(self.path.removesuffix(PACK_SUFFIX) + INDEX_SUFFIX, content)

    def let_go(self, stamp: PackStamp) -> None:
        """Read from the files from now on; `stamp` is that of the index."""
        self._held, self.stamp = None, stamp

    def close(self) -> None:
        """Let go of the files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def find(self, object_id: bytes) -> int | None:
        """Give where an object is in the pack."""
        row = self._row(object_id)
        return None if row is None else offset_in_index(row, self.count, self._index)

    @property
    def is_small(self) -> bool:
        """Whether it is worth while to have all ids in memory."""
        return self.count <= _FEW_OBJECTS

    def find_entry(self, object_id: bytes) -> RawEntry | None:
        """Give an entry as it stands in the pack.

        None if it is not here, or not what was written, by its CRC, or if its base is not here.
        """
        row = self._row(object_id)
        if row is None:
            return None
        offset = offset_in_index(row, self.count, self._index)
        raw = self.read_raw(offset, self._end_of(offset))
        if not raw or zlib.crc32(raw) != self._crc(row):
            return None
        head = parse_entry_head(raw[:_HEAD_SIZE], offset, self.path)
        base = self._ids_by_offset.get(head.base) if isinstance(head.base, int) else head.base
        if head.base is not None and base is None:
            return None
        return RawEntry(object_id, head.kind_number, head.size, raw[head.start - offset :], base)

    @cached_property
    def _ids_by_offset(self) -> dict[int, bytes]:
        return {offset: id for id, offset, _ in self.entries()}

    def stored_size(self, object_id: bytes) -> int | None:
        """Tell how many bytes an entry has in the pack."""
        offset = self.find(object_id)
        return None if offset is None else self._end_of(offset) - offset

    def weigh(self, ids: Set[bytes]) -> int:
        """Tell how many bytes the entries of some objects have together, of those that are here."""
        ends = dict(zip(self.offsets, [*self.offsets[1:], self.size - 20], strict=True))
        places = zip(self.ids(), self.offsets_by_id(), strict=True)
        return sum(ends[offset] - offset for id, offset in places if id in ids)

    def _end_of(self, offset: int) -> int:
        after = bisect_right(self.offsets, offset)
        return self.offsets[after] if after < self.count else self.size - 20

    def read_raw(self, start: int, end: int) -> bytes:
        """Give the bytes between two places, none if there are not that many."""
        raw = self._pread(start, end - start) if start < end <= self.size - 20 else b""
        return raw if len(raw) == end - start else b""

    def read_pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Do the same piece by piece; StoreDamaged if there are not that many."""
        for at in range(start, end, _BUFFER_SIZE):
            piece = self.read_raw(at, min(end, at + _BUFFER_SIZE))
            if not piece:
                raise StoreDamaged(f"{self.path} ends too early")
            yield piece

    def copy_large(self, object_id: bytes) -> tuple[Iterator[bytes], int] | None:
        """Give the bytes of an entry in pieces, and its CRC, by which they are checked at their end.

        None if it is not here, or is a delta.
        """
        row, offset = self._row(object_id), self.find(object_id)
        if row is None or offset is None or self.read_entry(offset).base is not None:
            return None
        crc = self._crc(row)

        def pieces() -> Iterator[bytes]:
            seen = 0
            for piece in self.read_pieces(offset, self._end_of(offset)):
                seen = zlib.crc32(piece, seen)
                yield piece
            if seen != crc:
                raise StoreDamaged(f"{self.path} is not what was written at {offset}")

        return pieces(), crc

    def entries(self) -> list[PackEntry]:
        """Give id, offset and CRC of every entry, in the order in which they stand in the pack."""
        index, count = self._index, self.count
        offsets, crcs = offsets_in_index(count, index), crcs_in_index(count, index)
        return sorted(zip(self.ids(), offsets, crcs, strict=True), key=itemgetter(1))

    def find_heads(self) -> list[int] | None:
        """Give the numbers of entries that are no deltas; None if one is a delta of another than that before.

        A shelf has thousands, so that headers are read here in place.
        """
        heads: list[int] = []
        start, window, last = 0, b"", 0
        try:
            for number, offset in enumerate(self.offsets):
                at = offset - start
                if at + _HEAD_SIZE > len(window):
                    start, window, at = offset, self._pread(offset, _BUFFER_SIZE), 0
                byte = window[at]
                kind_number = (byte >> 4) & 7
                if kind_number == OFS_DELTA:
                    while byte & 0x80:
                        at += 1
                        byte = window[at]
                    # As in `parse_entry_head`: to call it takes as long as all else together.
                    at += 1
                    byte = window[at]
                    distance = byte & 0x7F
                    while byte & 0x80:
                        at += 1
                        byte = window[at]
                        distance = ((distance + 1) << 7) | (byte & 0x7F)
                    if not heads or distance != offset - last:
                        return None
                elif kind_number == REF_DELTA:
                    return None
                else:
                    heads.append(number)
                last = offset
        except IndexError as error:
            raise StoreDamaged(f"{self.path} ends too early") from error
        return heads

    def read_delta(self, entry: PackEntry, end: int) -> tuple[int, bytes]:
        """Read the delta that ends there; give its size, and what it is deflated, checked by its CRC."""
        _, offset, crc = entry
        raw = self.read_raw(offset, end)
        if zlib.crc32(raw) != crc:
            raise StoreDamaged(f"{self.path} is not what was written at {offset}")
        head = parse_entry_head(raw[:_HEAD_SIZE], offset, self.path)
        return head.size, raw[head.start - offset :]

    def having(self, ids: Iterable[bytes]) -> list[bytes]:
        """Give those of some ids that are here."""
        if self.is_small:
            rows = self.rows
            return [id for id in ids if id in rows]
        return [id for id in ids if self._row(id) is not None]

    def has_sound(self, entries: Sequence[PackEntry]) -> bool:
        """Tell whether all its entries, as `entries` gave them, are what was written, by their CRCs."""
        ends = [*self.offsets[1:], self.size - 20]
        first = 0
        while first < len(entries):
            start = entries[first][1]
            # As many at once as have room, but one at least, and a large one piece by piece.
            after = max(first + 1, bisect_right(ends, start + _BUFFER_SIZE))
            window = memoryview(self._pread(start, min(ends[after - 1] - start, _BUFFER_SIZE)))
            places = zip(entries[first:after], ends[first:after], strict=True)
            found = [zlib.crc32(window[offset - start : end - start]) for (_, offset, _), end in places]
            for at in range(start + len(window), ends[after - 1], _BUFFER_SIZE):
                found[-1] = zlib.crc32(self._pread(at, min(_BUFFER_SIZE, ends[after - 1] - at)), found[-1])
            if found != [crc for _, _, crc in entries[first:after]]:
                return False
            first = after
        return True

    def ids(self) -> list[bytes]:
        """Give the id of every object."""
        return ids_in_index(self.count, self._index)

    def offsets_by_id(self) -> list[int]:
        """Give where each of them is, in the same order."""
        return offsets_in_index(self.count, self._index)

    def is_whole(self) -> bool:
        """Tell whether the pack has the checksum that it bears, and its name too."""
        digest = sha1(usedforsecurity=False)
        for start in range(0, self.size - 20, _BUFFER_SIZE):
            digest.update(self._pread(start, min(_BUFFER_SIZE, self.size - 20 - start)))
        checksum = digest.digest()
        return self._pread(self.size - 20, 21) == checksum and self.name == f"pack-{checksum.hex()}"

    def _row(self, object_id: bytes) -> int | None:
        if self.is_small:
            return self.rows.get(object_id)
        prefixes = self._prefixes
        prefix = int.from_bytes(object_id[:4], "big")
        row = bisect_left(prefixes, prefix)
        # Few ids begin alike, and are looked at one by one.
        while row < self.count and prefixes[row] == prefix:
            place = PACK_INDEX_IDS + 20 * row
            if self._index[place : place + 20] == object_id:
                return row
            row += 1
        return None

    @cached_property
    def _prefixes(self) -> array[int]:
        """The beginnings of all ids of a large pack, as numbers: much quicker to search than the index."""
        return prefixes_in_index(self.count, self._index)

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """Where each object of a small pack is; there are many such packs, and most are asked in vain."""
        ids = self._index[PACK_INDEX_IDS : PACK_INDEX_IDS + 20 * self.count]
        return {ids[20 * row : 20 * row + 20]: row for row in range(self.count)}

    @cached_property
    def offsets(self) -> list[int]:
        """Where entries begin, in order."""
        return sorted(offsets_in_index(self.count, self._index))

    def _crc(self, row: int) -> int:
        place = PACK_INDEX_IDS + 20 * self.count + 4 * row
        return int.from_bytes(self._index[place : place + 4], "big")

    def raw_entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Give the id and the bytes of every entry as they stand in the pack, each checked by its CRC."""
        entries = self.entries()
        ends = [offset for _, offset, _ in entries[1:]] + [self.size - 20]
        start, window = 0, b""
        for (id, offset, crc), end in zip(entries, ends, strict=True):
            if end > start + len(window):
                start, window = offset, self._pread(offset, max(_BUFFER_SIZE, end - offset))
            raw = window[offset - start : end - start]
            if zlib.crc32(raw) != crc:
                raise StoreDamaged(f"{self.path} is not what was written at {offset}")
            if not raw or (raw[0] >> 4) & 7 in (OFS_DELTA, REF_DELTA):
                raise StoreDamaged(f"{self.path} holds deltas")
            yield id, raw

    def read(self, offset: int) -> Source:
        """Read the object at a place, or what a chain of deltas there comes to; its hash is not checked."""
        entry = parse_entry_head(self._pread(offset, _HEAD_SIZE), offset, self.path)
        chain: list[EntryHead] = []
        known = None
        while entry.base is not None and known is None:
            chain.append(entry)
            base = self.find(entry.base) if isinstance(entry.base, bytes) else entry.base
            if base is None or len(chain) > _MAX_DELTA_CHAIN:
                raise StoreDamaged(f"{self.path} has a delta without its base")
            entry = parse_entry_head(self._pread(base, _HEAD_SIZE), base, self.path)
            known = self._bases.get((self.path, entry.start))
        kind_number = entry.kind_number if known is None else known[0]
        if kind_number not in KIND_NAMES:
            raise StoreDamaged(f"{self.path} has no object at {offset}")
        if not chain:
            return KIND_NAMES[kind_number], entry.size, self.inflate(entry)
        content = b"".join(self.inflate(entry)) if known is None else known[1]
        for delta in reversed(chain):
            try:
                content = apply_delta(content, b"".join(self.inflate(delta)))
            except BadDelta as error:
                raise StoreDamaged(f"{self.path} has a delta that does not fit its base") from error
        self._bases.remember((self.path, chain[0].start), kind_number, content)
        return KIND_NAMES[kind_number], len(content), iter([content])

    def read_entry(self, offset: int) -> EntryHead:
        """Read the head of the entry at `offset`."""
        return parse_entry_head(self._pread(offset, _HEAD_SIZE), offset, self.path)

    def read_small_entry(self, offset: int) -> tuple[int, int | bytes | None, bytes]:
        """Read an entry at once; give its kind number, its base if it is a delta, and what is inflated."""
        return self.read_between(offset, self._end_of(offset))

    def read_between(self, offset: int, end: int) -> tuple[int, int | bytes | None, bytes]:
        """Do the same with an entry of which it is known where it ends."""
        raw = self.read_raw(offset, end) if self._held is None else self._held[offset:end]
        entry = parse_entry_head(raw, offset, self.path)
        try:
            return entry.kind_number, entry.base, zlib.decompress(raw[entry.start - offset :])
        except zlib.error as error:
            raise StoreDamaged(f"{self.path} cannot be inflated at {entry.start}") from error

    def inflate(self, entry: EntryHead) -> Iterator[bytes]:
        """Give the content of an entry in pieces; it never gives more than the entry's size."""
        inflater = zlib.decompressobj()
        position, left = entry.start, entry.size
        while not inflater.eof:
            piece = inflater.unconsumed_tail
            if not piece:
                piece = self._pread(position, min(left + 128, _CHUNK_SIZE))
                position += len(piece)
            if not piece:
                raise StoreDamaged(f"{self.path} ends too early")
            try:
                content = inflater.decompress(piece, min(left + 1, _BUFFER_SIZE))
            except zlib.error as error:
                raise StoreDamaged(f"{self.path} cannot be inflated at {entry.start}") from error
            left -= len(content)
            if left < 0:
                raise StoreDamaged(f"{self.path} has too much at {entry.start}")
            if content:
                yield content

    def measure(self, offset: int) -> tuple[int, int]:
        """Tell where the entry at `offset` ends, and its CRC, by inflating it."""
        entry = self.read_entry(offset)
        if entry.kind_number not in (*KIND_NAMES, OFS_DELTA, REF_DELTA):
            raise StoreDamaged(f"{self.path} has no entry at {offset}")
        crc = zlib.crc32(self._pread(offset, entry.start - offset))
        inflater, end, left = zlib.decompressobj(), entry.start, entry.size
        while not inflater.eof:
            piece = self._pread(end, _CHUNK_SIZE)
            if not piece or left < 0:
                raise StoreDamaged(f"{self.path} has no whole entry at {offset}")
            try:
                left -= len(inflater.decompress(piece))
            except zlib.error as error:
                raise StoreDamaged(f"{self.path} cannot be inflated at {offset}") from error
            used = piece[: len(piece) - len(inflater.unused_data)]
            end += len(used)
            crc = zlib.crc32(used, crc)
        return end, crc

    def read_ends(self) -> tuple[int, bytes]:
        """Read how many objects there should be, and the checksum at the end."""
        head = self._pread(0, PACK_HEADER_SIZE)
        return int.from_bytes(head[8:], "big"), self._pread(max(0, self.size - 20), 20)

    def _pread(self, offset: int, size: int) -> bytes:
        if self._held is not None:
            return self._held[offset : offset + size]
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise disk.as_store_error(self.path, error) from error


@frozen
class RawEntry:
    """An entry as it stands in a pack."""

    id: bytes
    kind_number: int
    size: int
    """How many bytes come of inflating it."""
    deflated: bytes
    base: bytes | None
    """Of a delta: the id of what it changes."""


def scan_entries(pack: Pack) -> Iterator[tuple[int, int]]:
    """Give where each entry begins, and its CRC, without an index: up to the first damaged one."""
    offset = PACK_HEADER_SIZE
    while offset < pack.size - 20:
        try:
            end, crc = pack.measure(offset)
        except StoreDamaged:
            return
        yield offset, crc
        offset = end
