"""Packs of git objects on disk: writing one crash-safely, finding and reading what is in one.

A pack is written under a temporary name and synced, then its index; only then do both get their names. A
small one can be had as bytes instead, for the journal, which makes it durable before it has files at all.
Whatever is found under a temporary name by the holder of the lock belongs to a process that died, and so
does an index without its pack (invariant 10).
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, KeysView, Sequence
from functools import cached_property
from hashlib import sha1

from shadowtree import disk
from shadowtree.deflate import start_deflate
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.gitformat import (
    INDEX_MAGIC,
    KIND_NUMBERS,
    OFS_DELTA,
    PACK_HEADER_SIZE,
    REF_DELTA,
    PackBytes,
    PackEntry,
    encode_pack_index,
    entry_header,
    object_header,
    offset_in_index,
    pack_header,
    parse_delta_offset,
    parse_entry_header,
    row_in_index,
)
from shadowtree.system import O_CLOEXEC

_INDEX_SUFFIX = ".idx"
_PACK_SUFFIX = ".pack"
_KEEP_SUFFIX = ".keep"
_IDS = 8 + 4 * 256
"""Where the ids begin in an index."""
_INDEX_SIZE = _IDS + 40
"""How large an index is, but for 28 bytes an object, and some more in a pack of over 2 GiB."""
_FEW_OBJECTS = 4096
_BUFFER_SIZE = 1 << 20
_CHUNK_SIZE = 1 << 18


PackStamp = tuple[int, int, int]
"""What tells that an index has not changed: mtime in ns, size, inode."""


def stamp_of(status: os.stat_result) -> PackStamp:
    """Give the stamp of a file."""
    return status.st_mtime_ns, status.st_size, status.st_ino


class PackWriter:
    """One new pack. Nothing of it can be seen by a reader before `finish`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = ""
        self._fd = -1
        self._buffer = bytearray()
        self._flushed = 0
        self._entries: dict[bytes, PackEntry] = {}
        self._copied: set[bytes] = set()

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._entries

    def ids(self) -> KeysView[bytes]:
        """Give the id of every object so far."""
        return self._entries.keys()

    def proven_ids(self) -> set[bytes]:
        """Give the id of every object whose content was hashed here, and not copied from another pack."""
        return self._entries.keys() - self._copied

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Append an object that is deflated already; one that is there already is passed over."""
        if object_id in self._entries:
            return
        offset = self._start()
        header = entry_header(KIND_NUMBERS[kind], size)
        self._buffer += header
        self._buffer += deflated
        self._entries[object_id] = (object_id, offset, zlib.crc32(deflated, zlib.crc32(header)))
        self._flush_if_large()

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Take every file."""
        del object_id, size
        return True

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Append a blob of `size` bytes piece by piece and give its id; a blob that `is_known` is not kept.

        Should `pieces` raise, or give more or less than `size`, the pack is as it was before.
        """
        offset = self._start()
        try:
            object_id, crc = self._stream(size, pieces)
        except BaseException:
            self._cut_back(offset)
            raise
        if object_id in self._entries or is_known(object_id):
            self._cut_back(offset)
        else:
            self._entries[object_id] = (object_id, offset, crc)
        return object_id

    def _stream(self, size: int, pieces: Iterator[bytes]) -> tuple[bytes, int]:
        header = entry_header(KIND_NUMBERS[b"blob"], size)
        crc = zlib.crc32(header)
        self._buffer += header
        digest = sha1(object_header(b"blob", size), usedforsecurity=False)
        deflater = start_deflate()
        seen = 0
        for piece in pieces:
            digest.update(piece)
            seen += len(piece)
            crc = self._put(deflater.compress(piece), crc)
        crc = self._put(deflater.flush(), crc)
        if seen != size:
            raise ValueError(f"{seen} bytes came, {size} were announced")
        return digest.digest(), crc

    def copy_entry(self, object_id: bytes, raw: bytes) -> None:
        """Append an entry exactly as it stands in another pack; it must not be a delta."""
        if object_id not in self._entries:
            offset = self._start()
            self._buffer += raw
            self._entries[object_id] = (object_id, offset, zlib.crc32(raw))
            self._copied.add(object_id)
            self._flush_if_large()

    def _put(self, deflated: bytes, crc: int) -> int:
        self._buffer += deflated
        self._flush_if_large()
        return zlib.crc32(deflated, crc)

    def seal(self, limit: int) -> PackBytes | None:
        """Give the whole pack as bytes, and have no files; None if it is empty, or has more than `limit`.

        What is left to do with any other pack is `finish`.
        """
        index_size = _INDEX_SIZE + 28 * len(self._entries)
        if not self._entries or self._flushed or len(self._buffer) + 20 + index_size > limit:
            return None
        self._buffer[:PACK_HEADER_SIZE] = pack_header(len(self._entries))
        checksum = sha1(self._buffer, usedforsecurity=False).digest()
        pack, self._buffer = bytes(self._buffer) + checksum, bytearray()
        return PackBytes(f"pack-{checksum.hex()}", pack, self._encode_index(checksum))

    def finish(self, announce: Callable[[str], None] | None = None) -> str | None:
        """Make the pack durable and give it its name; None if it is empty.

        Afterwards every object in it is complete and durable (invariant 2). Right before anybody can see it,
        `announce` is called with its name.
        """
        if not self._entries:
            self.abandon()
            return None
        self._flush()
        disk.overwrite_at(self._fd, pack_header(len(self._entries)), 0, self._path)
        checksum = self._checksum()
        disk.write_all(self._fd, checksum, self._path)
        disk.sync(self._fd, self._path)
        os.close(self._fd)
        self._fd = -1
        index_path = self._write_index(checksum)
        name = os.path.join(self._directory, f"pack-{checksum.hex()}")
        if announce is not None:
            announce(os.path.basename(name))
        # The index first: without its pack nobody looks at it, and it can be made again. A pack without an
        # index could be all that is left of somebody's work, so none may ever be taken for rubbish.
        disk.rename(index_path, name + _INDEX_SUFFIX)
        try:
            disk.rename(self._path, name + _PACK_SUFFIX)
        except BaseException:
            _remove_lone_index(name)
            raise
        disk.sync_names(self._directory)
        self._path = ""
        return name

    def abandon(self) -> None:
        """Throw away what was written."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._path:
            disk.remove_file(self._path)
            disk.remove_file(self._path + _INDEX_SUFFIX)
            self._path = ""

    def _start(self) -> int:
        """Leave room for the header when the first object comes, and give where the next entry begins."""
        if not self._flushed and not self._buffer:
            self._buffer += bytes(PACK_HEADER_SIZE)
        return self._flushed + len(self._buffer)

    def _flush_if_large(self) -> None:
        if len(self._buffer) >= _BUFFER_SIZE:
            self._flush()

    def _flush(self) -> None:
        if self._fd < 0:
            self._path = disk.name_temporary(self._directory)
            self._fd = disk.create_file(self._path)
        disk.write_all(self._fd, self._buffer, self._path)
        self._flushed += len(self._buffer)
        self._buffer = bytearray()

    def _cut_back(self, offset: int) -> None:
        if offset >= self._flushed:
            del self._buffer[offset - self._flushed :]
        else:
            self._buffer = bytearray()
            disk.truncate(self._fd, offset, self._path)
            self._flushed = offset

    def _checksum(self) -> bytes:
        """Hash the whole file: the count in its header was not known while it was written."""
        digest = sha1(usedforsecurity=False)
        with disk.store_errors(self._path):
            os.lseek(self._fd, 0, os.SEEK_SET)
            while piece := os.read(self._fd, _BUFFER_SIZE):
                digest.update(piece)
        return digest.digest()

    def _write_index(self, checksum: bytes) -> str:
        path = self._path + _INDEX_SUFFIX
        fd = disk.create_file(path)
        try:
            disk.write_all(fd, self._encode_index(checksum), path)
            disk.sync(fd, path)
        finally:
            os.close(fd)
        return path

    def _encode_index(self, checksum: bytes) -> bytes:
        return encode_pack_index(sorted(self._entries.values()), checksum)


def write_pack(directory: str, content: PackBytes) -> None:
    """Give a pack its files, and do not wait until they are durable; for one that is in the journal."""
    name = os.path.join(directory, content.name)
    disk.place_file(name + _INDEX_SUFFIX, content.index)
    try:
        disk.place_file(name + _PACK_SUFFIX, content.pack)
    except BaseException:
        _remove_lone_index(name)
        raise


def _remove_lone_index(name: str) -> None:
    # A pack of this name may be there already, with the same objects: then the index is its own.
    if not os.path.lexists(name + _PACK_SUFFIX):
        disk.remove_file(name + _INDEX_SUFFIX)


def is_written(directory: str, content: PackBytes) -> bool:
    """Tell whether a pack has its files, and just these bytes in them."""
    name = os.path.join(directory, content.name)
    return (
        disk.read_if_there(name + _INDEX_SUFFIX) == content.index
        and disk.read_if_there(name + _PACK_SUFFIX) == content.pack
    )


def has_pack(directory: str, name: str) -> bool:
    """Tell whether there is a pack of this name, whatever is in it."""
    return os.path.lexists(os.path.join(directory, name + _PACK_SUFFIX))


def guard_pack(directory: str, name: str) -> None:
    """Keep a pack that is about to come from `git gc`, which may run before the ref leads to it."""
    disk.place_file(os.path.join(directory, name + _KEEP_SUFFIX), b"")


def release_pack(directory: str, name: str) -> None:
    """Let the ref alone decide whether `git gc` may remove a pack."""
    disk.remove_file(os.path.join(directory, name + _KEEP_SUFFIX))


def remove_pack(directory: str, name: str) -> None:
    """Remove the files of a pack, those that are there."""
    path = os.path.join(directory, name)
    disk.remove_file(path + _PACK_SUFFIX)
    disk.remove_file(path + _INDEX_SUFFIX)
    disk.remove_file(path + _KEEP_SUFFIX)


class Pack:
    """A finished pack, for reading: from its files, or from memory as long as it has none."""

    def __init__(self, index_path: str, content: PackBytes | None = None) -> None:
        self.path = index_path.removesuffix(_INDEX_SUFFIX) + _PACK_SUFFIX
        self._fd = -1
        self._held = None if content is None else content.pack
        self.stamp: PackStamp | None = None
        self.is_ours = True
        """Git makes its packs read-only, and they hold deltas."""
        if content is None:
            self._open(index_path)
        else:
            self._index, self.size = content.index, len(content.pack)
        self.count = int.from_bytes(self._index[_IDS - 4 : _IDS], "big")
        if self._index[:8] != INDEX_MAGIC or len(self._index) < _INDEX_SIZE + 28 * self.count:
            raise StoreDamaged(f"{index_path} is no pack index, or not a whole one")

    def _open(self, index_path: str) -> None:
        with disk.store_errors(index_path), open(index_path, "rb") as file:
            # Not mapped: somebody who cuts a mapped file short kills the process that looks at it.
            self._index = file.read()
            self.stamp = stamp_of(os.fstat(file.fileno()))
        with disk.store_errors(self.path):
            status = os.stat(self.path)
        self.size = status.st_size
        self.is_ours = bool(status.st_mode & 0o200)

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

    def raw_blob(self, object_id: bytes, size: int) -> bytes | None:
        """Give the bytes of a blob's entry as they stand in the pack, checked by its CRC.

        None if it is not here, has another size, is a delta, or is not what was written.
        """
        row = self._row(object_id)
        if row is None:
            return None
        offset = offset_in_index(row, self.count, self._index)
        after = bisect_right(self._offsets, offset)
        end = self._offsets[after] if after < self.count else self.size - 20
        raw = self._pread(offset, end - offset) if offset < end <= self.size - 20 else b""
        if not raw or zlib.crc32(raw) != self._crc(row):
            return None
        try:
            return raw if parse_entry_header(raw)[:2] == (KIND_NUMBERS[b"blob"], size) else None
        except IndexError:
            return None

    def _row(self, object_id: bytes) -> int | None:
        if self.count > _FEW_OBJECTS:
            return row_in_index(object_id, self._index)
        return self._rows.get(object_id)

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        """Where each object of a small pack is; there are many such packs, and most are asked in vain."""
        ids = self._index[_IDS : _IDS + 20 * self.count]
        return {ids[20 * row : 20 * row + 20]: row for row in range(self.count)}

    @cached_property
    def _offsets(self) -> list[int]:
        """Where entries begin, in order."""
        return sorted(offset_in_index(row, self.count, self._index) for row in range(self.count))

    def _crc(self, row: int) -> int:
        place = _IDS + 20 * self.count + 4 * row
        return int.from_bytes(self._index[place : place + 4], "big")

    def raw_entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Give the id and the bytes of every entry as they stand in the pack, each checked by its CRC."""
        places = sorted((offset_in_index(row, self.count, self._index), row) for row in range(self.count))
        ends = [offset for offset, _ in places[1:]] + [self.size - 20]
        for (offset, row), end in zip(places, ends, strict=True):
            raw = self._pread(offset, end - offset)
            if zlib.crc32(raw) != self._crc(row):
                raise StoreDamaged(f"{self.path} is not what was written at {offset}")
            if not raw or (raw[0] >> 4) & 7 in (OFS_DELTA, REF_DELTA):
                raise StoreDamaged(f"{self.path} holds deltas")
            yield self._index[_IDS + 20 * row : _IDS + 20 * row + 20], raw

    def read_entry(self, offset: int) -> Entry:
        """Read the head of the entry at `offset`."""
        head = self._pread(offset, 64)
        try:
            kind_number, size, position = parse_entry_header(head)
            base: int | bytes | None = None
            if kind_number == OFS_DELTA:
                distance, position = parse_delta_offset(head, position)
                base = offset - distance
            elif kind_number == REF_DELTA:
                base = head[position : position + 20]
                position += 20
        except IndexError as error:
            raise StoreDamaged(f"{self.path} ends too early") from error
        return Entry(kind_number, size, offset + position, base)

    def inflate(self, entry: Entry) -> Iterator[bytes]:
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

    def _pread(self, offset: int, size: int) -> bytes:
        if self._held is not None:
            return self._held[offset : offset + size]
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_RDONLY | O_CLOEXEC)
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise disk.as_store_error(self.path, error) from error


class Entry:
    """The head of one entry in a pack."""

    __slots__ = ("base", "kind_number", "size", "start")

    def __init__(self, kind_number: int, size: int, start: int, base: int | bytes | None) -> None:
        self.kind_number = kind_number
        self.size = size
        self.start = start
        """Where the deflated content begins."""
        self.base = base
        """Of a delta: the offset or the id of what it changes."""


def merge_packs(
    packs: Sequence[Pack], into: PackWriter, before_removal: Callable[[list[str]], None] | None = None
) -> str | None:
    """Copy packs into one and remove them once it is durable; None if there was nothing to copy.

    Entries are copied as they are: nothing is inflated. A pack with damage or deltas is left alone.
    `before_removal` is called with the names of what was copied, when the new one is durable.
    """
    merged: list[str] = []
    try:
        for pack in packs:
            try:
                entries = list(pack.raw_entries())
            except (StoreDamaged, StoreFailed):
                continue
            for object_id, raw in entries:
                into.copy_entry(object_id, raw)
            merged.append(os.path.basename(pack.path).removesuffix(_PACK_SUFFIX))
        path = into.finish()
    except BaseException:
        into.abandon()
        raise
    if path is None:
        return None
    if before_removal is not None:
        before_removal(merged)
    directory, made = os.path.split(path)
    for name in merged:
        # A merge that was killed may have left all these objects in one pack already: the same one again.
        if name != made:
            remove_pack(directory, name)
    return path
