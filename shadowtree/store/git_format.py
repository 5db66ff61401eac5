"""Git's own formats as pure functions: object ids, tree objects, commits, pack entries, pack indexes.

Bytes in, bytes out; nothing here touches the disk. Every tree that is read is checked, because a name in
a tree becomes a name in somebody's worktree.

Objects are compressed quickly rather than tightly: any level of zlib is a valid git object. isal does it
seven times faster than zlib and slightly better (docs/decisions/0002-isal.md); where it cannot be installed,
zlib serves. Inflating is left to zlib, which is strict and always there.
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
            """Take a piece and give what is ready."""

        def flush(self) -> bytes:
            """Give the rest."""


_LEVEL = 1
_QUICK = 0 if _library.__name__.startswith("isal") else 1
"""isal's lowest level compresses, unlike zlib's: a quarter less, in a fifth of the time."""

PACK_SUFFIX = ".pack"
INDEX_SUFFIX = ".idx"
KEEP_SUFFIX = ".keep"
"""What the names of a pack's files end with: itself, its index, and what keeps it from `git gc`."""

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
"""How large an index is, but for 28 bytes an object, and some more in a pack of over 2 GiB."""
_MANY_IDS = Struct("20s" * 256)
_LARGE_OFFSET = 0x8000_0000

_ENTRY = re.compile(rb"[0-7]+ [^\0]+\0.{20}", re.DOTALL)
"""One entry of a tree."""
_ID_SIZE = 20


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
    """What stands before the deflated content of one entry in a pack."""

    __slots__ = ("base", "kind_number", "size", "start")

    def __init__(self, kind_number: int, size: int, start: int, base: int | bytes | None) -> None:
        self.kind_number = kind_number
        self.size = size
        """How many bytes come of inflating the content."""
        self.start = start
        """Where the content begins in the pack."""
        self.base = base
        """Of a delta: the offset or the id of what it changes."""


@frozen
class PackBytes:
    """A whole pack in memory."""

    name: str
    """`pack-ID`, as its files are called but for their suffixes."""
    pack: bytes
    index: bytes

    def is_whole(self) -> bool:
        """Tell whether the checksums in it are right, by which it also has its name."""
        checksum = sha1(self.pack[:-20], usedforsecurity=False).digest()
        return (
            self.name == f"pack-{checksum.hex()}"
            and self.pack[-20:] == checksum == self.index[-40:-20]
            and self.index[-20:] == sha1(self.index[:-20], usedforsecurity=False).digest()
        )


def deflate_quickly(content: bytes) -> bytes:
    """Compress what will soon be compressed once more, or become a delta."""
    return _library.compress(content, _QUICK)


def deflate(content: bytes) -> bytes:
    """Compress a content as a whole."""
    return _library.compress(content, _LEVEL)


def start_deflate() -> Deflater:
    """Begin to compress a content that comes in pieces."""
    return _library.compressobj(_LEVEL)


def blob_id(content: bytes) -> bytes:
    """Give the id of a blob with this content."""
    return sha1(object_header(b"blob", len(content)) + content, usedforsecurity=False).digest()


def object_header(kind: bytes, size: int) -> bytes:
    """Give what git hashes before an object's content."""
    return b"%b %d\0" % (kind, size)


def object_id(kind: bytes, content: bytes) -> bytes:
    """Give the 20-byte id of an object."""
    digest = sha1(object_header(kind, len(content)), usedforsecurity=False)
    digest.update(content)
    return digest.digest()


def hash_source(source: Source) -> bytes:
    """Read a copy of an object to its end; give the id that it has, whatever it is called."""
    kind, size, pieces = source
    digest = sha1(object_header(kind, size), usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """Make a tree object of entries in any order."""
    ordered = sorted(entries, key=_tree_order)
    return b"".join([b"%o %b\0%b" % (entry.mode, entry.name, entry.id) for entry in ordered])


def encode_rows(
    names: Sequence[bytes], modes: Iterable[int], ids: bytes, subtrees: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """Make the tree of a directory: sorted names of files with their modes and joined ids, and subtrees.

    The same as `encode_tree`, for the many files of a snapshot.
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
    """Order as git does: a directory sorts as if its name ended with a slash."""
    return entry.name + b"/" if entry.mode == MODE_TREE else entry.name


def decode_tree(content: bytes, of: str) -> list[TreeEntry]:
    """Read a tree object and check it: known modes, possible names, git's order, nothing twice."""
    entries: list[TreeEntry] = []
    position, end = 0, len(content)
    last_key = b""
    while position < end:
        space = content.find(b" ", position)
        zero = content.find(b"\0", space)
        mode = _MODES.get(content[position:space])
        name = content[space + 1 : zero]
        entry = TreeEntry(name, mode or 0, content[zero + 1 : zero + 21])
        if space < 0 or zero < 0 or mode is None or len(entry.id) != 20 or not _is_possible_name(name):
            raise StoreDamaged(f"tree {of} has an entry that cannot be: {name!r}")
        key = _tree_order(entry)
        if key <= last_key:
            raise StoreDamaged(f"tree {of} is not in order at {name!r}")
        entries.append(entry)
        last_key = key
        position = zero + 21
    if len({entry.name for entry in entries}) != len(entries):
        raise StoreDamaged(f"tree {of} has a name twice")
    return entries


def _is_possible_name(name: bytes) -> bool:
    return bool(name) and b"/" not in name and name not in (b".", b"..") and not is_forbidden(name)


class TreeListing:
    """The entries of a tree by their places, for who walks a whole store and makes no file of what it finds.

    Nothing is checked but that it is a tree. Two versions of a directory mostly have the same names, and
    differ in an id or two. So the bytes of both are compared, and where they differ in ids alone, the places
    of these are all that is looked at:

        known    40000 doc␀ 1f…   100644 a.py␀ 77…   100644 b.py␀ 30…
        next     40000 doc␀ 1f…   100644 a.py␀ e2…   100644 b.py␀ 30…      another id at place 1
    """

    __slots__ = ("_content", "_ends")

    def __init__(self, content: bytes, alike: TreeListing | None = None) -> None:
        """List a tree; one that is `alike` has the same names."""
        self._content = content
        self._ends: list[int] = _find_ends(content) if alike is None else alike._ends
        """Where each entry ends, and its id."""

    @property
    def size(self) -> int:
        """How many bytes the tree has."""
        return len(self._content)

    def __len__(self) -> int:
        return len(self._ends)

    def id(self, place: int) -> bytes:
        """Give the id in an entry."""
        end = self._ends[place]
        return self._content[end - _ID_SIZE : end]

    def is_tree(self, place: int) -> bool:
        """Tell whether an entry is a subtree."""
        return self._content.startswith(b"40000 ", self._ends[place - 1] if place else 0)

    def name(self, place: int) -> bytes:
        """Give the name in an entry."""
        return self._head(place).partition(b" ")[2].removesuffix(b"\0")

    def _head(self, place: int) -> bytes:
        """Give what stands before an id."""
        return self._content[self._ends[place - 1] if place else 0 : self._ends[place] - _ID_SIZE]

    def find_changes(self, content: bytes) -> Sequence[int] | None:
        """Give the places at which a tree of the same names has other ids; None if names or modes differ."""
        known, ends = self._content, self._ends
        if len(content) != len(known):
            return None
        first = self._count_alike(content)
        if first == len(ends):
            return ()
        start, end = ends[first - 1] if first else 0, ends[first]
        id_start = end - _ID_SIZE
        if known[start:id_start] != content[start:id_start]:
            return None
        # Nearly always it is one.
        if known[end:] == content[end:]:
            return (first,)
        other = TreeListing(content, self)
        places = range(first, len(ends))
        if any(self._head(place) != other._head(place) for place in places):
            return None
        return [place for place in places if self.id(place) != other.id(place)]

    def _count_alike(self, content: bytes) -> int:
        """Tell how many entries are the same from the first on, by comparing ever fewer of them."""
        known, ends = self._content, self._ends
        low, high, start = 0, len(ends), 0
        while low < high:
            middle = (low + high) // 2
            end = ends[middle]
            if known[start:end] == content[start:end]:
                low, start = middle + 1, end
            else:
                high = middle
        return low


def _find_ends(content: bytes) -> list[int]:
    ends = list(itertools.accumulate(map(len, _ENTRY.findall(content))))
    if (ends[-1] if ends else 0) != len(content):
        raise StoreDamaged("what should be a tree is none")
    return ends


def encode_commit(tree: bytes, parent: bytes | None, time_s: int, text: str) -> bytes:
    """Make the commit that keeps a recorded tree from `git gc`."""
    who = b"shadowtree <shadowtree@localhost> %d +0000" % time_s
    lines = [b"tree " + tree.hex().encode()]
    if parent is not None:
        lines.append(b"parent " + parent.hex().encode())
    lines += [b"author " + who, b"committer " + who, b"", text.encode("utf-8", "replace"), b""]
    return b"\n".join(lines)


@frozen
class Keeper:
    """What a commit that keeps a recorded tree says."""

    tree: bytes
    parent: bytes | None


def parse_keeper(content: bytes) -> Keeper:
    """Read a commit that keeps a recorded tree; StoreDamaged if it is none."""
    lines = content.split(b"\n", 2)
    try:
        kind, tree = lines[0].split(b" ")
        parent = lines[1].removeprefix(b"parent ") if lines[1].startswith(b"parent ") else None
        if kind != b"tree":
            raise ValueError(kind)
        return Keeper(
            bytes.fromhex(tree.decode()), None if parent is None else bytes.fromhex(parent.decode())
        )
    except (IndexError, ValueError) as error:
        raise StoreDamaged("a commit that should keep a tree is none") from error


def pack_header(count: int) -> bytes:
    """Give the first bytes of a pack of `count` objects."""
    return b"PACK" + (2).to_bytes(4, "big") + count.to_bytes(4, "big")


def entry_header(kind_number: int, size: int) -> bytes:
    """Give what stands before an object's deflated content in a pack."""
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
    """Read what stands before the deflated content of the entry at `offset` in the pack `of`."""
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
        raise StoreDamaged(f"{of} ends too early") from error
    return EntryHead(kind_number, size, offset + position, base)


def encode_delta_offset(distance: int) -> bytes:
    """Say how far back the base of a delta is."""
    encoded = bytearray([distance & 0x7F])
    distance >>= 7
    while distance:
        distance -= 1
        encoded.append(0x80 | (distance & 0x7F))
        distance >>= 7
    return bytes(reversed(encoded))


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
    """Give the first four bytes of each id in a pack's index as a number, in their order."""
    ids = memoryview(index)[PACK_INDEX_IDS : PACK_INDEX_IDS + 20 * count]
    # Every fifth word is the beginning of an id.
    prefixes = array("I", ids.cast("I")[::5].tobytes())
    assert prefixes.itemsize == 4
    if byteorder == "little":
        prefixes.byteswap()
    return prefixes


def ids_in_index(count: int, index: bytes) -> list[bytes]:
    """Give the id in each row of the index."""
    ids = memoryview(index)[PACK_INDEX_IDS : PACK_INDEX_IDS + 20 * count]
    # Many at once, which takes a fifth of the time.
    whole = len(ids) - len(ids) % _MANY_IDS.size
    found = [id for many in _MANY_IDS.iter_unpack(ids[:whole]) for id in many]
    return [*found, *(id for (id,) in iter_unpack("20s", ids[whole:]))]


def offset_in_index(row: int, count: int, index: bytes) -> int:
    """Give where the object in a row of the index is in its pack."""
    offsets = PACK_INDEX_IDS + 24 * count
    offset = int.from_bytes(index[offsets + 4 * row : offsets + 4 * row + 4], "big")
    if offset < _LARGE_OFFSET:
        return offset
    large = offsets + 4 * count + 8 * (offset - _LARGE_OFFSET)
    return int.from_bytes(index[large : large + 8], "big")


def offsets_in_index(count: int, index: bytes) -> list[int]:
    """Give where the object in each row of the index is in its pack."""
    start = PACK_INDEX_IDS + 24 * count
    found = list(unpack_from(f">{count}I", index, start))
    if found and max(found) >= _LARGE_OFFSET:
        return [offset_in_index(row, count, index) for row in range(count)]
    return found


def crcs_in_index(count: int, index: bytes) -> tuple[int, ...]:
    """Give the CRC in each row of the index."""
    return unpack_from(f">{count}I", index, PACK_INDEX_IDS + 20 * count)
