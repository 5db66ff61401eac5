"""Receive packs from outside, which are treated as hostile until proved otherwise.

A pack is written to a temporary file in the store. Its entries are scanned with limits on every size and
count, deltas are resolved, and every object is parsed: the names and modes in trees, the parents and tree of
commits. Then every object that can be reached from the wanted ones must be in the pack or in the store. Only
then does the pack get its name, by the store's own protocol. Nothing of it is visible before that, and a
failure leaves nothing behind.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha1

from dulwich.errors import ApplyDeltaError
from dulwich.objects import RawObjectID
from dulwich.pack import PackIndexEntry, apply_delta
from dulwich.refs import Ref, check_ref_format

from shadowtree.base.errors import RemoteDamaged, StoreDamaged, describe_size
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import is_forbidden
from shadowtree.remote.thin_pack import parse_commit
from shadowtree.store.git_format import (
    EMPTY_TREE,
    KIND_NAMES,
    MODE_LINK,
    MODE_TREE,
    OFS_DELTA,
    PACK_HEADER_SIZE,
    REF_DELTA,
    EntryHead,
    decode_tree,
    object_header,
    object_id,
    parse_entry_head,
)
from shadowtree.store.packs.pack_writer import IncomingPack
from shadowtree.store.repo import ShadowObjectStore

_CHUNK = 1 << 16
_FIRST_READ = 2048
"""Most entries have fewer bytes than this."""
_LONGEST_HEAD = 64
_DELTA_SIZES = 20
"""The most bytes that the two sizes at the beginning of a delta take."""


@frozen
class ReceiveLimits:
    """The limits on what is accepted from outside."""

    pack_bytes: int = 8 << 30
    """The size of a pack."""
    objects: int = 5_000_000
    """The number of objects in a pack."""
    object_bytes: int = 256 << 20
    """The size of one object."""
    total_bytes: int = 32 << 30
    """The size of all objects together."""
    chain: int = 4096
    """The length of a chain of deltas; git makes 50 by default, and 4,095 at most."""
    files: int = 10_000_000
    """The number of files in a tree, counting a subtree as often as it occurs."""
    depth: int = 512
    """The depth of nested directories."""


def is_ref(name: bytes) -> bool:
    """Return whether this is a valid name for a ref."""
    return name.startswith(b"refs/") and check_ref_format(Ref(name)) and b"//" not in name


class Receiver:
    """Receives a pack piece by piece, and publishes it once all of it has been checked.

    A context manager: a pack that was not published is removed at its end.
    """

    def __init__(self, store: ShadowObjectStore, url: str, limits: ReceiveLimits) -> None:
        self._store = store
        self._url = url
        self._limits = limits
        self._file: IncomingPack | None = None
        self.bytes = 0
        """How many bytes were received."""
        self.objects = 0
        """How many objects were published."""

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.abandon()

    def write(self, piece: bytes) -> int:
        """Receive the next bytes; raise RemoteDamaged if the pack is too large."""
        if self._file is None:
            self._file = IncomingPack(os.fspath(self._store.pack_dir))
        self.bytes += len(piece)
        if self.bytes > self._limits.pack_bytes:
            raise self._refuse(f"the pack has more than {describe_size(self._limits.pack_bytes)}")
        return self._file.write(piece)

    def publish(
        self,
        wants: Iterable[bytes],
        *,
        complete: Iterable[bytes] = (),
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Check the pack and add it to the store, durably; raise RemoteDamaged if it cannot be accepted.

        Everything that can be reached from the commits in `complete` is known to be in the store.
        """
        contents = _Contents(self._store, self._limits, self._refuse)
        if self._file is not None:
            self._file.flush()
            contents.scan(self._file, self.bytes, progress)
        contents.check_connected(wants, set(complete))
        if self._file is None or not contents.count:
            return
        self._store.complete(self._file, contents)
        self.objects, self._file = contents.count, None

    def _refuse(self, why: str) -> RemoteDamaged:
        return RemoteDamaged(self._url, why)


@frozen
class _Entry:
    """One scanned entry of a pack."""

    head: EntryHead
    crc: int
    size: int
    """The size of the whole object, even if the entry is a delta."""


class _Contents:
    """The contents of a received pack, as far as they are known yet."""

    def __init__(
        self, store: ShadowObjectStore, limits: ReceiveLimits, refuse: Callable[[str], Exception]
    ) -> None:
        self._store = store
        self._limits = limits
        self._refuse = refuse
        self._entries: dict[int, _Entry] = {}
        self._waiting: dict[int | bytes, list[int]] = {}
        """The offsets of unresolved deltas, by their base: an offset or an id."""
        self._offsets: dict[bytes, int] = {}
        self._links: dict[bytes, _Links] = {}
        """The links of the commits and trees in the pack."""
        self._blobs: set[bytes] = set()
        self._bases: set[bytes] = set()
        self._total = 0

    @property
    def count(self) -> int:
        """How many objects there are."""
        return len(self._entries)

    def __iter__(self) -> Iterator[PackIndexEntry]:
        """Iterate over the index entries of the pack."""
        return ((RawObjectID(id), offset, self._entries[offset].crc) for id, offset in self._offsets.items())

    def ext_refs(self) -> set[RawObjectID]:
        """Return the ids of the delta bases that are not in the pack."""
        return {RawObjectID(id) for id in self._bases}

    # Scanning

    def scan(self, file: IncomingPack, size: int, progress: Callable[[int, int], None]) -> None:
        """Read every entry, resolve the deltas and check each object."""
        count = self._check_frame(file, size)
        offset = PACK_HEADER_SIZE
        for number in range(count):
            progress(number, count)
            offset = self._scan_entry(file, offset, size - 20)
        if offset != size - 20:
            raise self._refuse("the pack has more bytes than its entries")
        for offset, entry in list(self._entries.items()):
            if entry.head.base is None:
                self._resolve_from(file, offset, None, 0)
        self._resolve_outside(file)
        if len(self._offsets) != len(self._entries):
            raise self._refuse("the pack has deltas whose base is missing")

    def _check_frame(self, file: IncomingPack, size: int) -> int:
        """Check the header and checksum of a pack; return the number of entries it claims to have."""
        file.seek(0)
        header = file.read(PACK_HEADER_SIZE)
        if size < PACK_HEADER_SIZE + 20 or header[:8] not in (b"PACK\0\0\0\2", b"PACK\0\0\0\3"):
            raise self._refuse("it sent no pack")
        count = int.from_bytes(header[8:], "big")
        if count > min(self._limits.objects, size):
            raise self._refuse(f"the pack has {count:,} objects")
        digest, left = sha1(header, usedforsecurity=False), size - PACK_HEADER_SIZE - 20
        while left:
            piece = file.read(min(_CHUNK, left))
            if not piece:
                raise self._refuse("the pack is cut short")
            digest.update(piece)
            left -= len(piece)
        if file.read(20) != digest.digest():
            raise self._refuse("it is cut off or damaged: the checksum of the pack is wrong")
        return count

    def _scan_entry(self, file: IncomingPack, offset: int, end: int) -> int:
        """Scan an entry without keeping its content; return the offset of the next one."""
        if offset >= end:
            raise self._refuse("the pack has fewer objects than it says")
        try:
            raw = os.pread(file.fileno(), min(_LONGEST_HEAD, end - offset), offset)
            head = parse_entry_head(raw, offset, "the pack")
        except StoreDamaged as error:
            raise self._refuse(error.what) from error
        is_delta = head.kind_number in (OFS_DELTA, REF_DELTA)
        if head.kind_number not in (1, 2, 3) and not is_delta:
            what = "a tag" if head.kind_number == 4 else "an unknown kind of object"
            raise self._refuse(f"the pack has {what}")
        self._check_size(head.size)
        inflated = _Inflated(file, offset, head, end)
        start = b""
        for piece in inflated:
            if is_delta and len(start) < _DELTA_SIZES:
                start += piece[:_DELTA_SIZES]
        if inflated.problem:
            raise self._refuse(inflated.problem)
        size = self._read_sizes(start)[1] if is_delta else head.size
        self._check_size(size)
        self._total += size
        if self._total > self._limits.total_bytes:
            raise self._refuse(f"the objects have more than {describe_size(self._limits.total_bytes)}")
        self._entries[offset] = _Entry(head, inflated.crc, size)
        if head.base is not None:
            if isinstance(head.base, int) and (head.base not in self._entries or head.base == offset):
                raise self._refuse("a delta has no base")
            self._waiting.setdefault(head.base, []).append(offset)
        return inflated.end

    def _check_size(self, size: int) -> None:
        if size > self._limits.object_bytes:
            most = describe_size(self._limits.object_bytes)
            raise self._refuse(f"an object has {describe_size(size)}, and at most {most} are accepted")

    def _read_sizes(self, delta: bytes) -> tuple[int, int]:
        """Read the two sizes that a delta begins with: of its base and of its result."""
        sizes, position = [], 0
        for _ in range(2):
            size = shift = 0
            while True:
                if position >= len(delta):
                    raise self._refuse("a delta is cut short")
                byte = delta[position]
                size |= (byte & 0x7F) << shift
                shift, position = shift + 7, position + 1
                if byte < 0x80:
                    break
            sizes.append(size)
        return sizes[0], sizes[1]

    # Resolving

    def _resolve_outside(self, file: IncomingPack) -> None:
        """Resolve the deltas whose bases are in the store."""
        for id in [each for each in self._waiting if isinstance(each, bytes)]:
            # A base that is not in the store may be the result of another delta.
            base = self._read_base(id) if id in self._waiting else None
            if base is not None:
                self._bases.add(id)
                for offset in self._waiting.pop(id):
                    self._resolve_from(file, offset, base, 1)

    def _read_base(self, id: bytes) -> tuple[bytes, bytes] | None:
        try:
            kind_number, content = self._store.get_raw(RawObjectID(id))
        except (KeyError, StoreDamaged):
            return None
        self._check_size(len(content))
        return KIND_NAMES[kind_number], content

    def _resolve_from(
        self, file: IncomingPack, offset: int, base: tuple[bytes, bytes] | None, depth: int
    ) -> None:
        """Make the object at an offset, then every object that is directly or indirectly a delta of it."""
        waiting = [(offset, base, depth)]
        while waiting:
            offset, base, depth = waiting.pop()
            if depth > self._limits.chain:
                raise self._refuse(f"more than {self._limits.chain:,} deltas make one object")
            entry = self._entries[offset]
            is_whole_blob = base is None and entry.head.kind_number == 3
            if is_whole_blob and offset not in self._waiting:
                # No delta names its offset as a base, so it need not be in memory as a whole.
                id = self._hash_blob(file, offset, entry)
                kind, content = b"blob", b""
            else:
                kind, content = self._make(file, offset, entry, base)
                id = object_id(kind, content)
            self._note(id, kind, content, offset)
            deltas = self._waiting.pop(offset, []) + self._waiting.pop(id, [])
            if deltas and is_whole_blob and not content:
                kind, content = self._make(file, offset, entry, None)
            waiting += [(each, (kind, content), depth + 1) for each in deltas]

    def _hash_blob(self, file: IncomingPack, offset: int, entry: _Entry) -> bytes:
        digest = sha1(object_header(b"blob", entry.size), usedforsecurity=False)
        for piece in _Inflated(file, offset, entry.head, None):
            digest.update(piece)
        return digest.digest()

    def _make(
        self, file: IncomingPack, offset: int, entry: _Entry, base: tuple[bytes, bytes] | None
    ) -> tuple[bytes, bytes]:
        content = b"".join(_Inflated(file, offset, entry.head, None))
        if base is None:
            return KIND_NAMES[entry.head.kind_number], content
        kind, base_content = base
        if self._read_sizes(content[:_DELTA_SIZES]) != (len(base_content), entry.size):
            raise self._refuse("a delta does not fit its base")
        try:
            made = b"".join(apply_delta(base_content, content))
        except (ApplyDeltaError, AssertionError, IndexError, ValueError) as error:
            raise self._refuse("a delta cannot be applied") from error
        if len(made) != entry.size:
            raise self._refuse("a delta cannot be applied")
        return kind, made

    # Checking

    def _note(self, id: bytes, kind: bytes, content: bytes, offset: int) -> None:
        """Check a single object, and note its links."""
        if id in self._offsets:
            raise self._refuse(f"the pack has object {id.hex()} twice")
        self._offsets[id] = offset
        if kind == b"blob":
            self._blobs.add(id)
        else:
            self._links[id] = self._parse(kind, id, content)

    def _parse(self, kind: bytes, id: bytes, content: bytes) -> _Links:
        if kind == b"commit":
            commit = parse_commit(content)
            if commit is None or b"\0" in content:
                raise self._refuse(f"commit {id.hex()} is malformed")
            return _Links(kind, (*commit.parents, commit.tree), ())
        try:
            entries = decode_tree(content, id.hex())
        except StoreDamaged as error:
            raise self._refuse(error.what) from error
        for entry in entries:
            is_link, is_directory = entry.mode == MODE_LINK, entry.mode == MODE_TREE
            if is_forbidden(entry.name, is_link=is_link, is_directory=is_directory):
                raise self._refuse(f"tree {id.hex()} has a forbidden name: {entry.name!r}")
        return _Links(
            kind,
            tuple(entry.id for entry in entries if entry.mode == MODE_TREE),
            tuple(entry.id for entry in entries if entry.mode != MODE_TREE),
        )

    def check_connected(self, wants: Iterable[bytes], complete: set[bytes]) -> None:
        """Refuse the pack unless every object reachable from `wants` is in it or in the store.

        Each must also be of the right kind. The files of each tree are counted, deepest first: a directory
        that holds another one ten times, nine levels deep, would have a billion files.
        """
        sizes: dict[bytes, tuple[int, int]] = {EMPTY_TREE: (0, 0)}
        commits: set[bytes] = set(complete)
        for want in wants:
            waiting = [want]
            while waiting:
                id = waiting.pop()
                if id in commits:
                    continue
                commits.add(id)
                links = self._links_of(id, b"commit")
                self._measure(links.below[-1], sizes)
                waiting += links.below[:-1]

    def _measure(self, root: bytes, sizes: dict[bytes, tuple[int, int]]) -> None:
        """Count the files and levels of a tree and of its subtrees."""
        waiting = [root]
        while waiting:
            tree = waiting[-1]
            if tree in sizes:
                waiting.pop()
                continue
            links = self._links_of(tree, b"tree")
            missing = [each for each in links.below if each not in sizes]
            if missing:
                waiting += missing
                if len(waiting) > 1_000_000:
                    raise self._refuse(f"tree {root.hex()} has too many directories")
                continue
            for blob in links.blobs:
                if blob not in self._blobs and not self._is_listed(blob):
                    raise self._refuse(f"object {blob.hex()} is missing")
            below = [sizes[each] for each in links.below]
            files = len(links.blobs) + sum(count for count, _ in below)
            depth = 1 + max((depth for _, depth in below), default=0)
            if files > self._limits.files or depth > self._limits.depth:
                raise self._refuse(f"tree {tree.hex()} has too many files or directories")
            sizes[tree] = files, depth
            waiting.pop()

    def _links_of(self, id: bytes, kind: bytes) -> _Links:
        links = _Links(b"blob", (), ()) if id in self._blobs else self._links.get(id)
        if links is None:
            try:
                found, content = self._store.objects.read_any(id)
            except StoreDamaged as error:
                raise self._refuse(f"object {id.hex()} is missing") from error
            links = _Links(found, (), ()) if found == b"blob" else self._parse(found, id, content)
        if links.kind != kind:
            raise self._refuse(f"object {id.hex()} is no {kind.decode()}")
        return links

    def _is_listed(self, id: bytes) -> bool:
        return self._store.contains_packed(RawObjectID(id)) or self._store.objects.is_listed(id)


@frozen
class _Links:
    """The objects that a commit or a tree refers to."""

    kind: bytes
    below: tuple[bytes, ...]
    """For a commit, its parents and then its tree; for a tree, its subdirectories."""
    blobs: tuple[bytes, ...]


class _Inflated:
    """The inflated content of one entry, piece by piece; never more than its header says."""

    def __init__(self, file: IncomingPack, offset: int, head: EntryHead, end: int | None) -> None:
        self._file = file
        self._offset = offset
        self._head = head
        self._end = end
        self.crc = 0
        self.end = 0
        """The offset of the next entry, once all of this one was read."""
        self.problem = ""

    def __iter__(self) -> Iterator[bytes]:
        fd, head = self._file.fileno(), self._head
        self.crc = zlib.crc32(os.pread(fd, head.start - self._offset, self._offset))
        position, left = head.start, head.size
        inflater, chunk = zlib.decompressobj(), _FIRST_READ
        while not inflater.eof:
            limit = chunk if self._end is None else min(chunk, self._end - position)
            raw, chunk = os.pread(fd, limit, position) if limit > 0 else b"", _CHUNK
            if not raw:
                self.problem = "an object is cut short"
                return
            try:
                # Read one byte more than is left, to notice an object that is too large.
                piece = inflater.decompress(raw, min(left + 1, 1 << 20))
            except zlib.error:
                self.problem = "an object cannot be inflated"
                return
            # At the end of the stream, both attributes may hold the same bytes.
            used = len(raw) - len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
            self.crc = zlib.crc32(raw[:used], self.crc)
            position += used
            left -= len(piece)
            if left < 0:
                self.problem = "an object is larger than it says"
                return
            if piece:
                yield piece
        if left:
            self.problem = "an object is smaller than it says"
        self.end = position
