"""Writing packs of git objects, crash-safely.

A pack is written under a temporary name and synced, then its index; only then do both get their names. A
small one can be had as bytes instead, for the journal, which makes it durable before it has files at all.
Whatever is found under a temporary name by the holder of the lock belongs to a process that died, and so
does an index without its pack (invariant 10).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha1

from shadowtree.store.git_format import (
    INDEX_SUFFIX,
    KEEP_SUFFIX,
    KIND_NUMBERS,
    OFS_DELTA,
    PACK_HEADER_SIZE,
    PACK_INDEX_SIZE,
    PACK_SUFFIX,
    PackBytes,
    PackEntry,
    encode_delta_offset,
    encode_pack_index,
    entry_header,
    object_header,
    pack_header,
    start_deflate,
)
from shadowtree.system import disk

_BUFFER_SIZE = 1 << 20
_GIT_SUFFIXES = (".rev", ".bitmap", ".mtimes")
"""What real git puts beside the packs that it makes."""


class PackWriter:
    """New objects on their way into a pack, or into several parts of about so many bytes, or objects.

    Nothing of it can be seen by a reader before `finish`.
    """

    def __init__(self, directory: str, part_size: int | None = None, part_count: int | None = None) -> None:
        self._directory = directory
        self._part_size = part_size
        self._part_count = part_count
        self._full: list[_Part] = []
        self._part = _Part(directory)
        self.ids: set[bytes] = set()
        """The id of every object so far."""
        self.copied: set[bytes] = set()
        """Those that stand as they stood in another pack, and were not hashed here."""
        self.versions: list[tuple[bytes, bytes]] = []
        """Of the objects that came in place of others: the id, and that of the one before."""

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self.ids

    def proven_ids(self) -> set[bytes]:
        """Give the id of every object whose content was hashed here, and not copied from another pack."""
        return self.ids - self.copied

    @property
    def size(self) -> int:
        """How many bytes all parts have so far."""
        return sum(part.size for part in (*self._full, self._part))

    def note_version(self, object_id: bytes, before: bytes) -> None:
        """Note that an object came in place of another one: of the same file, or the same directory."""
        if object_id in self.ids and any(before):
            self.versions.append((object_id, before))

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Append an object that is deflated already; one that is there already is passed over."""
        if object_id not in self.ids:
            self._next_part().add(object_id, entry_header(KIND_NUMBERS[kind], size), deflated)
            self.ids.add(object_id)

    def add_delta(self, object_id: bytes, size: int, deflated: bytes) -> None:
        """Append a delta of `size` bytes, deflated already, whose base is what was appended last."""
        assert object_id not in self.ids
        self._part.add_delta(object_id, size, deflated)
        self.ids.add(object_id)

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Take every file."""
        del object_id, size
        return True

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Append a blob of `size` bytes piece by piece and give its id; a blob that `is_known` is not kept.

        Should `pieces` raise, or give more or less than `size`, the pack is as it was before.
        """
        part = self._next_part()
        offset = part.start()
        try:
            object_id, crc = part.stream(size, pieces)
        except BaseException:
            part.cut_back(offset)
            raise
        if object_id in self.ids or is_known(object_id):
            part.cut_back(offset)
        else:
            part.entries.append((object_id, offset, crc))
            self.ids.add(object_id)
        return object_id

    def copy_entry(self, object_id: bytes, raw: bytes) -> None:
        """Append an entry exactly as it stands in another pack; it must not be a delta."""
        if object_id not in self.ids:
            self.copy_entries([raw], [(object_id, 0, zlib.crc32(raw))])

    def copy_entries(self, pieces: Iterable[bytes], entries: Sequence[PackEntry]) -> None:
        """Append entries that follow each other in another pack just as they stand there.

        The first byte of the pieces is that of the first entry. A delta among them must have its base there
        too. Should `pieces` raise, the pack is as it was before.
        """
        self._copy(self._next_part(), pieces, entries)

    def copy_deltas(self, pieces: Iterable[bytes], entries: Sequence[PackEntry]) -> None:
        """Do the same with deltas, each of which has the entry before it as its base, as far back as there.

        The base of the first is what was appended last.
        """
        self._copy(self._part, pieces, entries)

    def last_length(self) -> int:
        """Tell how many bytes the entry has that was appended last."""
        return self._part.size - self._part.entries[-1][1]

    def _copy(self, part: _Part, pieces: Iterable[bytes], entries: Sequence[PackEntry]) -> None:
        offset = part.start()
        try:
            for piece in pieces:
                part.put(piece)
        except BaseException:
            part.cut_back(offset)
            raise
        moved = offset - entries[0][1]
        ids = [object_id for object_id, _, _ in entries]
        assert self.ids.isdisjoint(ids)
        part.entries += [(object_id, at + moved, crc) for object_id, at, crc in entries]
        self.ids.update(ids)
        self.copied.update(ids)

    def seal(self, limit: int) -> PackBytes | None:
        """Give the whole pack as bytes, and have no files; None if it is empty, or has more than `limit`.

        What is left to do with any other pack is `finish`.
        """
        return None if self._full else self._part.seal(limit)

    def finish(self, announce: Callable[[str], None] | None = None) -> list[str]:
        """Make the pack durable and give each part its name, with its path; none if it is empty.

        Afterwards every object in it is complete and durable (invariant 2). Right before anybody can see a
        part, `announce` is called with its name.
        """
        parts = [part for part in (*self._full, self._part) if part.entries]
        for part in parts:
            part.complete()
        named = []
        for part in parts:
            if announce is not None:
                announce(part.name)
            part.publish()
            named.append(os.path.join(self._directory, part.name))
        if named:
            disk.sync_names(self._directory)
        self.abandon()
        return named

    def abandon(self) -> None:
        """Throw away what was written and has no name."""
        for part in (*self._full, self._part):
            part.abandon()

    def _next_part(self) -> _Part:
        """Give the part that the next entry goes to."""
        is_large = self._part_size is not None and self._part.size >= self._part_size
        if is_large or (self._part_count is not None and len(self._part.entries) >= self._part_count):
            self._part.flush()
            self._full.append(self._part)
            self._part = _Part(self._directory)
        return self._part


class _Part:
    """One pack that is being written."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = ""
        self._fd = -1
        self._buffer = bytearray()
        self._flushed = 0
        self.entries: list[PackEntry] = []
        self.name = ""
        """`pack-ID`, once it is complete."""

    @property
    def size(self) -> int:
        """How many bytes it has so far."""
        return self._flushed + len(self._buffer)

    def start(self) -> int:
        """Leave room for the header when the first object comes, and give where the next entry begins."""
        if not self.size:
            self._buffer += bytes(PACK_HEADER_SIZE)
        return self.size

    def add(self, object_id: bytes, header: bytes, deflated: bytes) -> None:
        """Append an entry."""
        offset = self.start()
        self._buffer += header
        self.entries.append((object_id, offset, zlib.crc32(deflated, zlib.crc32(header))))
        self.put(deflated)

    def add_delta(self, object_id: bytes, size: int, deflated: bytes) -> None:
        """Append a delta whose base is the entry before it."""
        _, base, _ = self.entries[-1]
        header = entry_header(OFS_DELTA, size) + encode_delta_offset(self.size - base)
        self.add(object_id, header, deflated)

    def put(self, raw: bytes) -> None:
        """Append bytes."""
        self._buffer += raw
        if len(self._buffer) >= _BUFFER_SIZE:
            self.flush()

    def stream(self, size: int, pieces: Iterator[bytes]) -> tuple[bytes, int]:
        """Append a blob that comes in pieces; give its id and its CRC."""
        header = entry_header(KIND_NUMBERS[b"blob"], size)
        crc = zlib.crc32(header)
        self._buffer += header
        digest = sha1(object_header(b"blob", size), usedforsecurity=False)
        deflater = start_deflate()
        seen = 0
        for piece in pieces:
            digest.update(piece)
            seen += len(piece)
            crc = self._put_deflated(deflater.compress(piece), crc)
        crc = self._put_deflated(deflater.flush(), crc)
        if seen != size:
            raise ValueError(f"{seen} bytes came, {size} were announced")
        return digest.digest(), crc

    def _put_deflated(self, deflated: bytes, crc: int) -> int:
        self.put(deflated)
        return zlib.crc32(deflated, crc)

    def cut_back(self, offset: int) -> None:
        """Be as before the entry that begins there."""
        if offset >= self._flushed:
            # Not cut in place: who failed to write it may still look at it.
            self._buffer = self._buffer[: offset - self._flushed]
        else:
            self._buffer = bytearray()
            disk.truncate(self._fd, offset, self._path)
            self._flushed = offset

    def flush(self) -> None:
        """Write to the file what is in memory."""
        if self._fd < 0:
            self._path = disk.name_temporary(self._directory)
            self._fd = disk.create_file(self._path)
        disk.write_all(self._fd, self._buffer, self._path)
        self._flushed += len(self._buffer)
        self._buffer = bytearray()

    def seal(self, limit: int) -> PackBytes | None:
        """Give the whole pack as bytes; None if it is empty, has files already, or more than `limit`."""
        index_size = PACK_INDEX_SIZE + 28 * len(self.entries)
        if not self.entries or self._flushed or len(self._buffer) + 20 + index_size > limit:
            return None
        self._buffer[:PACK_HEADER_SIZE] = pack_header(len(self.entries))
        checksum = sha1(self._buffer, usedforsecurity=False).digest()
        pack, self._buffer = bytes(self._buffer) + checksum, bytearray()
        return PackBytes(f"pack-{checksum.hex()}", pack, self._encode_index(checksum))

    def complete(self) -> None:
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
        self._write_index(checksum)
        self.name = f"pack-{checksum.hex()}"

    def publish(self) -> None:
        """Give pack and index their names."""
        # The index first: without its pack nobody looks at it, and it can be made again. A pack without an
        # index could be all that is left of somebody's work, so none may ever be taken for rubbish.
        path = os.path.join(self._directory, self.name)
        disk.rename(self._path + INDEX_SUFFIX, path + INDEX_SUFFIX)
        try:
            disk.rename(self._path, path + PACK_SUFFIX)
        except BaseException:
            _remove_lone_index(path)
            raise
        self._path = ""

    def abandon(self) -> None:
        """Remove what has no name yet."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._path:
            disk.remove_file(self._path)
            disk.remove_file(self._path + INDEX_SUFFIX)
            self._path = ""

    def _checksum(self) -> bytes:
        """Hash the whole file: the count in its header was not known while it was written."""
        digest = sha1(usedforsecurity=False)
        with disk.store_errors(self._path):
            os.lseek(self._fd, 0, os.SEEK_SET)
            while piece := os.read(self._fd, _BUFFER_SIZE):
                digest.update(piece)
        return digest.digest()

    def _write_index(self, checksum: bytes) -> None:
        path = self._path + INDEX_SUFFIX
        fd = disk.create_file(path)
        try:
            disk.write_all(fd, self._encode_index(checksum), path)
            disk.sync(fd, path)
        finally:
            os.close(fd)

    def _encode_index(self, checksum: bytes) -> bytes:
        return encode_pack_index(sorted(self.entries), checksum)


def write_pack(directory: str, content: PackBytes) -> None:
    """Give a pack its files, and do not wait until they are durable; for one that is in the journal."""
    name = os.path.join(directory, content.name)
    disk.place_file(name + INDEX_SUFFIX, content.index)
    try:
        disk.place_file(name + PACK_SUFFIX, content.pack)
    except BaseException:
        _remove_lone_index(name)
        raise


def _remove_lone_index(name: str) -> None:
    # A pack of this name may be there already, with the same objects: then the index is its own.
    if not os.path.lexists(name + PACK_SUFFIX):
        disk.remove_file(name + INDEX_SUFFIX)


def is_written(directory: str, content: PackBytes) -> bool:
    """Tell whether a pack has its files, and just these bytes in them."""
    name = os.path.join(directory, content.name)
    return (
        disk.read_if_there(name + INDEX_SUFFIX) == content.index
        and disk.read_if_there(name + PACK_SUFFIX) == content.pack
    )


def has_pack(directory: str, name: str) -> bool:
    """Tell whether there is a pack of this name, whatever is in it."""
    return os.path.lexists(os.path.join(directory, name + PACK_SUFFIX))


def guard_pack(directory: str, name: str) -> None:
    """Keep a pack that is about to come from `git gc`, which may run before the ref leads to it."""
    disk.place_file(os.path.join(directory, name + KEEP_SUFFIX), b"")


def release_pack(directory: str, name: str) -> None:
    """Let the ref alone decide whether `git gc` may remove a pack."""
    disk.remove_file(os.path.join(directory, name + KEEP_SUFFIX))


def remove_pack(directory: str, name: str) -> None:
    """Remove the files of a pack, those that are there."""
    path = os.path.join(directory, name)
    for suffix in (PACK_SUFFIX, INDEX_SUFFIX, KEEP_SUFFIX, *_GIT_SUFFIXES):
        disk.remove_file(path + suffix)
