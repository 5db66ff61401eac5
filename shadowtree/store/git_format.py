"""Git's own formats as pure functions: object ids, tree objects, commits, pack entries, pack indexes.

Bytes in, bytes out; nothing here accesses the disk. `decode_tree` checks every tree, because a name in a tree
becomes a name in somebody's worktree.

Objects are compressed fast rather than small, which git accepts. isal does that seven times faster than zlib,
and slightly better (docs/decisions/0002-isal.md); where it cannot be installed, zlib is used. Objects are
inflated by zlib, which is strict and always available.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from struct import Struct, iter_unpack, pack, unpack_from
from sys import byteorder

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import is_forbidden

try:
    from isal import isal_zlib as _library
except ImportError:
    import zlib as _library  # type: ignore[no-redef]  # the same functions under the same names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Deflater(Protocol):
        """Compresses a content that comes in pieces."""

        def compress(self, data: bytes, /) -> bytes:
            """Compress a piece; return the output that is ready."""

        def flush(self) -> bytes:
            """Return the rest of the output."""


_LEVEL = 1

PACK_SUFFIX = ".pack"
INDEX_SUFFIX = ".idx"
KEEP_SUFFIX = ".keep"
"""The suffixes of a pack's files: the pack, its index, and the file that protects it from `git gc`."""

MODE_FILE = 0o100644
MODE_EXEC = 0o100755
MODE_LINK = 0o120000
MODE_TREE = 0o040000
_MODE_TEXTS = {mode: b"%o " % mode for mode in (MODE_FILE, MODE_EXEC, MODE_LINK, MODE_TREE)}
_MODES = {b"100644": MODE_FILE, b"100755": MODE_EXEC, b"120000": MODE_LINK, b"40000": MODE_TREE}

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

KIND_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}
KIND_NAMES = {number: name for name, number in KIND_NUMBERS.items()}
OFS_DELTA = 6
REF_DELTA = 7

PACK_HEADER_SIZE = 12
INDEX_MAGIC = b"\xfftOc\x00\x00\x00\x02"
PACK_INDEX_IDS = 8 + 4 * 256
"""Where the ids begin in an index: after the magic number and the fan-out table."""
PACK_INDEX_SIZE = PACK_INDEX_IDS + 40
"""The size of an index without objects. Each object adds 28 bytes, or more in a pack of over 2 GiB."""
_MANY_IDS = Struct("20s" * 256)
_LARGE_OFFSET = 0x8000_0000

TreeRow = tuple[bytes, bytes, bytes]
"""One entry of a tree object, not decoded: mode, name, id."""
TREE_MODE = b"40000"
"""The mode of a directory in such a row."""
_ROW = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
_ROW_FRAME = 22
"""How many bytes a row has in addition to mode and name."""


PackEntry = tuple[bytes, int, int]
"""Where one object is in a pack: id, offset, CRC. Sorts by id, as an index does."""

Source = tuple[bytes, int, Iterator[bytes]]
"""The kind, the size and the content of one stored copy of an object, not yet checked."""


class TreeEntry:
    """One entry of a tree object."""

    __slots__ = ("id", "mode", "name")

    def __init__(self, name: bytes, mode: int, id: bytes) -> None:
        self.name = name
        self.mode = mode
        self.id = id


class EntryHead:
    """The header of one entry in a pack, which comes before its deflated content."""

    __slots__ = ("base", "kind_number", "size", "start")

    def __init__(self, kind_number: int, size: int, start: int, base: int | bytes | None) -> None:
        self.kind_number = kind_number
        self.size = size
        """The size of the inflated content."""
        self.start = start
        """Where the content begins in the pack."""
        self.base = base
        """The offset or the id of a delta's base; None for a whole object."""


@frozen
class PackBytes:
    """A whole pack in memory."""

    name: str
    """`pack-ID`, the name of its files without their suffixes."""
    pack: bytes
    index: bytes

    def is_whole(self) -> bool:
        """Return whether its checksums are correct, and its name agrees with them."""
        checksum = sha1(self.pack[:-20], usedforsecurity=False).digest()
        return (
            self.name == f"pack-{checksum.hex()}"
            and self.pack[-20:] == checksum == self.index[-40:-20]
            and self.index[-20:] == sha1(self.index[:-20], usedforsecurity=False).digest()
        )


def deflate(content: bytes) -> bytes:
    """Compress a content as a whole."""
    return _library.compress(content, _LEVEL)


def start_deflate() -> Deflater:
    """Begin to compress a content that comes in pieces."""
    return _library.compressobj(_LEVEL)


def blob_id(content: bytes) -> bytes:
    """Return the id of a blob with this content."""
    return sha1(object_header(b"blob", len(content)) + content, usedforsecurity=False).digest()


def object_header(kind: bytes, size: int) -> bytes:
    """Return what git hashes before an object's content."""
    return b"%b %d\0" % (kind, size)


def object_id(kind: bytes, content: bytes) -> bytes:
    """Return the 20-byte id of an object."""
    digest = sha1(object_header(kind, len(content)), usedforsecurity=False)
    digest.update(content)
    return digest.digest()


def hash_source(source: Source) -> bytes:
    """Read a copy of an object to its end; return the id that its content really has."""
    kind, size, pieces = source
    digest = sha1(object_header(kind, size), usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """Encode a tree object; the entries may be in any order."""
    ordered = sorted(entries, key=_tree_order)
    return b"".join([b"%o %b\0%b" % (entry.mode, entry.name, entry.id) for entry in ordered])


def encode_rows(
    names: Sequence[bytes], modes: Iterable[int], ids: bytes, subtrees: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """Encode the tree of a directory: sorted names of files with their modes and joined ids, and subtrees.

    Like `encode_tree`, but faster, for the many files of a snapshot.
    """
    texts = map(_MODE_TEXTS.__getitem__, modes)
    rows = [
        text + name + b"\0" + id
        for text, name, (id,) in zip(texts, names, iter_unpack("20s", ids), strict=True)
    ]
    below = list(subtrees)
    if below:
        keys = [*names, *[name + b"/" for name, _ in below]]
        rows += [b"40000 " + name + b"\0" + id for name, id in below]
        rows = [row for _, row in sorted(zip(keys, rows, strict=True))]
    return b"".join(rows)


def _tree_order(entry: TreeEntry) -> bytes:
    """Return the key by which git sorts: a directory sorts as if its name ended with a slash."""
    return entry.name + b"/" if entry.mode == MODE_TREE else entry.name


def decode_tree(content: bytes, of: str) -> list[TreeEntry]:
    """Decode a tree object and check it: known modes, possible names, git's order, no duplicates."""
    return decode_rows(list_tree(content, of), of)


def decode_rows(rows: list[TreeRow], of: str) -> list[TreeEntry]:
    """Decode the rows of a tree, and check them as `decode_tree` does."""
    entries: list[TreeEntry] = []
    last_key = b""
    for text, name, id in rows:
        mode = _MODES.get(text)
        if mode is None or b"/" in name or name in (b".", b"..") or is_forbidden(name):
            raise StoreDamaged(f"tree {of} has an invalid entry: {name!r}")
        entry = TreeEntry(name, mode, id)
        key = _tree_order(entry)
        if key <= last_key:
            raise StoreDamaged(f"tree {of} is not sorted at {name!r}")
        entries.append(entry)
        last_key = key
    if len({entry.name for entry in entries}) != len(entries):
        raise StoreDamaged(f"tree {of} has a duplicate name")
    return entries


def list_tree(content: bytes, of: str) -> list[TreeRow]:
    """List the rows of a tree, checking only that it is a tree.

    For walks through a whole store, which make no files from what they find.
    """
    rows: list[TreeRow] = _ROW.findall(content)
    if sum([len(mode) + len(name) for mode, name, _ in rows]) + _ROW_FRAME * len(rows) != len(content):
        raise StoreDamaged(f"{of} is not a tree")
    return rows


def encode_commit(tree: bytes, parents: Sequence[bytes], time_s: int, text: bytes) -> bytes:
    """Make a commit; shadowtree itself is its author."""
    who = b"shadowtree <shadowtree@localhost> %d +0000" % time_s
    lines = [b"tree " + tree.hex().encode(), *(b"parent " + parent.hex().encode() for parent in parents)]
    return b"\n".join([*lines, b"author " + who, b"committer " + who, b"", text])


def pack_header(count: int) -> bytes:
    """Return the first bytes of a pack of `count` objects."""
    return b"PACK" + (2).to_bytes(4, "big") + count.to_bytes(4, "big")


def entry_header(kind_number: int, size: int) -> bytes:
    """Return the header of an object's entry in a pack."""
    byte = (kind_number << 4) | (size & 0x0F)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header)


def parse_entry_head(head: bytes, offset: int, of: str) -> EntryHead:
    """Parse the header of the entry at `offset` in the pack `of`."""
    try:
        byte = head[0]
        kind_number = (byte >> 4) & 0x07
        size = byte & 0x0F
        shift, position = 4, 1
        while byte & 0x80:
            byte = head[position]
            size |= (byte & 0x7F) << shift
            shift += 7
            position += 1
        base: int | bytes | None = None
        if kind_number == OFS_DELTA:
            byte = head[position]
            distance = byte & 0x7F
            position += 1
            while byte & 0x80:
                byte = head[position]
                distance = ((distance + 1) << 7) | (byte & 0x7F)
                position += 1
            base = offset - distance
        elif kind_number == REF_DELTA:
            base = head[position : position + 20]
            position += 20
    except IndexError as error:
        raise StoreDamaged(f"{of} is truncated") from error
    return EntryHead(kind_number, size, offset + position, base)


def encode_pack_index(entries: Sequence[PackEntry], pack_checksum: bytes) -> bytes:
    """Make the index of a pack, version 2, from entries sorted by id."""
    # For each first byte, how many ids begin with it or a smaller one.
    first_bytes = Counter(id[0] for id, _, _ in entries)
    fanout = itertools.accumulate(first_bytes[byte] for byte in range(256))
    large = [offset for _, offset, _ in entries if offset >= _LARGE_OFFSET]
    numbers = itertools.count(_LARGE_OFFSET)
    offsets = [offset if offset < _LARGE_OFFSET else next(numbers) for _, offset, _ in entries]
    parts = [
        INDEX_MAGIC,
        pack(">256I", *fanout),
        b"".join([id for id, _, _ in entries]),
        pack(f">{len(entries)}I", *[crc for _, _, crc in entries]),
        pack(f">{len(entries)}I", *offsets),
        pack(f">{len(large)}Q", *large),
        pack_checksum,
    ]
    body = b"".join(parts)
    return body + sha1(body, usedforsecurity=False).digest()


def prefixes_in_index(count: int, index: bytes) -> array[int]:
    """Return the first four bytes of each id in a pack's index as a number, in the order of the index."""
    ids = memoryview(index)[PACK_INDEX_IDS : PACK_INDEX_IDS + 20 * count]
    # Every fifth word is the beginning of an id.
    prefixes = array("I", ids.cast("I")[::5].tobytes())
    assert prefixes.itemsize == 4
    if byteorder == "little":
        prefixes.byteswap()
    return prefixes


def ids_in_index(count: int, index: bytes) -> list[bytes]:
    """Return the id in each row of the index."""
    ids = memoryview(index)[PACK_INDEX_IDS : PACK_INDEX_IDS + 20 * count]
    # Many at once, which takes a fifth of the time.
    whole = len(ids) - len(ids) % _MANY_IDS.size
    found = [id for many in _MANY_IDS.iter_unpack(ids[:whole]) for id in many]
    return [*found, *(id for (id,) in iter_unpack("20s", ids[whole:]))]


def offset_in_index(row: int, count: int, index: bytes) -> int:
    """Return the offset, in the pack, of the object in a row of the index."""
    offsets = PACK_INDEX_IDS + 24 * count
    offset = int.from_bytes(index[offsets + 4 * row : offsets + 4 * row + 4], "big")
    if offset < _LARGE_OFFSET:
        return offset
    large = offsets + 4 * count + 8 * (offset - _LARGE_OFFSET)
    return int.from_bytes(index[large : large + 8], "big")


def offsets_in_index(count: int, index: bytes) -> list[int]:
    """Return the offset, in the pack, of the object in each row of the index."""
    start = PACK_INDEX_IDS + 24 * count
    found = list(unpack_from(f">{count}I", index, start))
    if found and max(found) >= _LARGE_OFFSET:
        return [offset_in_index(row, count, index) for row in range(count)]
    return found


def crcs_in_index(count: int, index: bytes) -> tuple[int, ...]:
    """Return the CRC in each row of the index."""
    return unpack_from(f">{count}I", index, PACK_INDEX_IDS + 20 * count)
