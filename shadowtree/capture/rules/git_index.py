"""Git's index file, as bytes: which files and links it names.

Pure: the bytes come from `git_repository`. An index may be damaged or hostile, so every count is bounded by
the size of the file, and an invalid index raises `IndexDamaged`.

    header     "DIRC", version, number of entries
    entries    in the order of their names
    extensions a signature and a size each; `link` marks a split index
    checksum

An entry has 40 bytes of stat data (the mode is the 7th number), the id of the blob, flags, and the name.
Versions 2 and 3 write the whole name and pad the entry to a multiple of 8; version 4 writes how many bytes to
drop from the end of the previous name, and which to add:

    src/paths.py            0  "src/paths.py"
    src/patience.py         5  "ience.py"
"""

from __future__ import annotations

import stat
import struct
from hashlib import sha1, sha256
from itertools import islice

MAX_INDEX_BYTES = 1024 * 1024 * 1024
"""A larger index counts as unreadable; one of three million files is much smaller."""

_HEADER = struct.Struct(">4sII")
_EXTENSION = struct.Struct(">4sI")
_STAT_BYTES = 40
_EXTENDED = 0x4000
_LENGTH_MASK = 0xFFF
_FILE_BITS = stat.S_IFREG & stat.S_IFLNK
_FILE_MASK = 0o170000 ^ stat.S_IFREG ^ stat.S_IFLNK
"""A mode with these bits equal to `_FILE_BITS` is that of a file or a link."""
_MAX_EXPANSION = 16
"""How many times its own size the names of an index of version 4 may take: a kilobyte each."""


class IndexDamaged(Exception):
    """An index that git did not write, or that was changed since; the message is the reason."""


class Index:
    """The parts of an index file that matter here."""

    def __init__(self, names: list[bytes], not_files: set[int]) -> None:
        self.names = names
        """One for each entry, in order: repeated for the stages of a conflict."""
        self.not_files = not_files
        """The positions of submodules, of sparse directories and of what a split index deletes."""
        self.link = b""
        """The content of the extension of a split index."""
        self.checksum = b""

    def files(self) -> list[bytes]:
        """List the names of files and links."""
        if not self.not_files:
            return self.names
        return [name for at, name in enumerate(self.names) if at not in self.not_files]


def parse_index(content: bytes, id_bytes: int) -> Index:
    """Read an index file whole; ids have 20 or 32 bytes."""
    checksum = content[-id_bytes:]
    body = memoryview(content)[:-id_bytes]
    # Git writes zeros instead of a checksum where `index.skipHash` is set.
    if any(checksum) and (sha1 if id_bytes == 20 else sha256)(body).digest() != checksum:
        raise IndexDamaged("its checksum is wrong")
    try:
        index = _parse_index(content, len(body), id_bytes)
    except (struct.error, IndexError, ValueError):
        raise IndexDamaged("it is truncated") from None
    index.checksum = checksum
    return index


def _parse_index(content: bytes, size: int, id_bytes: int) -> Index:
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise IndexDamaged("its format is unknown")
    if count * (_STAT_BYTES + id_bytes + 2) > size:
        raise IndexDamaged("it is truncated")
    index = Index([], set())
    parse = _parse_packed_entries if version == 4 else _parse_padded_entries
    at = parse(content, count, id_bytes, index)
    while at < size:
        signature, length = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size + length
        if signature == b"link":
            index.link = content[at - length : at]
        elif signature[:1].islower() and signature != b"sdir":
            raise IndexDamaged(f"it needs the extension {signature!r}")
    if at != size:
        raise IndexDamaged("it is truncated")
    return index


def _parse_padded_entries(content: bytes, count: int, id_bytes: int, index: Index) -> int:
    """Read the entries of versions 2 and 3; return where they end.

    A large repository spends most of its time in this loop, so it omits checks that can be made afterwards:
    an entry beyond the end fails to unpack, or ends too late.
    """
    unpack = struct.Struct(f">24xI{_STAT_BYTES - 28 + id_bytes}xH").unpack_from
    head_bytes = _STAT_BYTES + id_bytes + 2
    append = index.names.append
    at = _HEADER.size
    for position in range(count):
        mode, flags = unpack(content, at)
        start = at + head_bytes + (2 if flags & _EXTENDED else 0)
        length = flags & _LENGTH_MASK
        end = start + length if length < _LENGTH_MASK else content.index(b"\0", start)
        append(content[start:end])
        if mode & _FILE_MASK != _FILE_BITS:
            index.not_files.add(position)
        at += (end - at + 8) & ~7
    return at


def _parse_packed_entries(content: bytes, count: int, id_bytes: int, index: Index) -> int:
    """Read the entries of version 4; return where they end."""
    unpack = struct.Struct(f">24xI{_STAT_BYTES - 28 + id_bytes}xH").unpack_from
    head_bytes = _STAT_BYTES + id_bytes + 2
    append = index.names.append
    budget = _MAX_EXPANSION * len(content)
    at = _HEADER.size
    name = b""
    length = 0
    for position in range(count):
        mode, flags = unpack(content, at)
        at += head_bytes + (2 if flags & _EXTENDED else 0)
        dropped = content[at]
        if dropped < 0x80:
            at += 1
        else:
            dropped, at = _read_varint(content, at)
        kept = length - dropped
        length = flags & _LENGTH_MASK
        if length == _LENGTH_MASK:
            length = kept + content.index(b"\0", at) - at
        budget -= length
        if not 0 <= kept <= length or budget < 0:
            raise IndexDamaged("its names are invalid")
        end = at + length - kept
        name = name[:kept] + content[at:end]
        append(name)
        if mode & _FILE_MASK != _FILE_BITS:
            index.not_files.add(position)
        at = end + 1
    return at


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a number with 7 bits per byte, the highest first; return it and where it ends.

    Each further byte adds one to the value so far, so that no number can be written in two ways: `7f` is 127,
    `80 00` is 128.
    """
    value = content[at] & 0x7F
    while content[at] & 0x80 and value < MAX_INDEX_BYTES:
        at += 1
        value = (value + 1) << 7 | (content[at] & 0x7F)
    return value, at + 1


def check_names(names: list[bytes]) -> None:
    """Raise IndexDamaged for names that git would not track, so that each is known to lead below the top.

    All names are searched at once: a loop over them would double the time.
    """
    joined = b"/".join((b"", *names, b""))
    if names and any(part in joined for part in (b"\0", b"//", b"/./", b"/../", b"/.git/")):
        raise IndexDamaged("its names are invalid")


def merge_shared(shared: Index, index: Index, id_bytes: int) -> Index:
    """Apply a split index to the shared one that it links to.

    Its two bitmaps mark which entries of the shared index are deleted, and which are replaced. The first
    entries of the split index, which have no name, are the replacements in order; the rest are new.

        shared    a  b  c  d
        delete    0  1
        replace   0  0  1          split index    ""  e
        result    a     c  d  e    where c has the mode of ""
    """
    bitmaps = index.link[id_bytes:]
    count = len(shared.names)
    try:
        deleted, at = _read_bitmap(bitmaps, 0, count) if bitmaps else ([], 0)
        replaced, _ = _read_bitmap(bitmaps, at, count) if bitmaps else ([], 0)
    except struct.error:
        raise IndexDamaged("its bitmaps are truncated") from None
    if len(replaced) > len(index.names):
        raise IndexDamaged("its bitmaps are invalid")
    not_files = shared.not_files.difference(replaced).union(deleted)
    not_files.update(at for new, at in enumerate(replaced) if new in index.not_files)
    added = range(len(replaced), len(index.names))
    not_files.update(count + at - len(replaced) for at in added if at in index.not_files)
    return Index(shared.names + index.names[len(replaced) :], not_files)


def _read_bitmap(content: bytes, at: int, limit: int) -> tuple[list[int], int]:
    """Read a compressed bitmap (EWAH); return its set bits, all below `limit`, and where it ends.

    Its words have 64 bits. A marker describes a run of equal words (bit 0: the value of their bits, bits 1 to
    32: their number), and how many literal words follow (bits 33 to 63).
    """
    _, count = struct.unpack_from(">II", content, at)
    words = iter(struct.unpack_from(f">{count}Q", content, at + 8))
    bits: list[int] = []
    first = 0
    for marker in words:
        run_end = first + 64 * (marker >> 1 & 0xFFFFFFFF)
        if marker & 1:
            bits.extend(range(first, min(run_end, limit)))
        first = run_end
        for literal in islice(words, marker >> 33):
            bits.extend(first + bit for bit in range(64) if literal >> bit & 1)
            first += 64
    if bits and bits[-1] >= limit:
        raise IndexDamaged("its bitmaps are invalid")
    return bits, at + 8 + 8 * count + 4
