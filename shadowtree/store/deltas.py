"""Deltas, as packs hold them: how to make an older version of a file or a tree from a newer one.

A delta is made by pieces: lines of a text, names and ids of a tree. What two texts have in common at both
ends is left aside first; then each piece of the wanted version is looked up in the base; what is not there
is inserted. That takes time that grows with the sizes alone, while a search for the best delta is quadratic
where the two are unlike.

    base    a b c d e          copy a b, insert x, copy d e
    wanted  a b x d e

Of two trees of the same length, nearly always some ids are others, each where it was: there it is enough to
see which bytes differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

_LONGEST_COPY = 0xFFFF
"""What one instruction copies; some readers allow no more."""
_LONGEST_INSERT = 0x7F
_SHORTEST_COPY = 8
"""To copy less takes as many bytes as to insert it."""
_ID_SIZE = 20
_DIFFERENT = re.compile(rb"[^\0](?:\0{0,7}[^\0])*")
"""A run of bytes that are not zero, or few of them."""

_Part = tuple[int, int]
"""A part of the base to copy: from where to where."""


class BadDelta(ValueError):
    """A delta that cannot be, or that does not fit its base."""


def make_delta(base: bytes, wanted: bytes, *, is_tree: bool) -> bytes:
    """Make the delta by which `wanted` comes of `base`; it may be longer than `wanted` itself."""
    if is_tree and len(base) == len(wanted):
        parts = _find_in_place(base, wanted)
    elif is_tree:
        parts = _find(base, _split_tree(base), _split_tree(wanted), 0)
    else:
        start = _common_start(base, wanted)
        end = _common_start(base[start:][::-1], wanted[start:][::-1])
        old, new = base[start : len(base) - end], wanted[start : len(wanted) - end]
        between = _find(base, old.splitlines(keepends=True), new.splitlines(keepends=True), start)
        parts = [(0, start), *between, (len(base) - end, len(base))]
    return _encode_size(len(base)) + _encode_size(len(wanted)) + _encode_parts(base, parts)


def _find_in_place(base: bytes, wanted: bytes) -> list[_Part | bytes]:
    """Give what is the same in both, and what differs, where both are equally long."""
    number = int.from_bytes(base, "big") ^ int.from_bytes(wanted, "big")
    found: list[_Part | bytes] = []
    last = 0
    for different in _DIFFERENT.finditer(number.to_bytes(len(base), "big")):
        found += [(last, different.start()), wanted[different.start() : different.end()]]
        last = different.end()
    return [*found, (last, len(base))]


def _find(base: bytes, pieces: Iterable[bytes], wanted: Iterable[bytes], at: int) -> list[_Part | bytes]:
    """Say for each wanted piece where it is in the base, of which `pieces` begin `at`, or give it itself."""
    places: dict[bytes, int] = {}
    expected = at
    for piece in pieces:
        places.setdefault(piece, at)
        at += len(piece)
    found: list[_Part | bytes] = []
    for piece in wanted:
        # Mostly one follows the other, and what was replaced is as long as before: an id, a number.
        place = expected if base.startswith(piece, expected) else places.get(piece)
        found.append(piece if place is None else (place, place + len(piece)))
        expected = (expected if place is None else place) + len(piece)
    return found


def _split_tree(content: bytes) -> Iterator[bytes]:
    """Split a tree into what stands before each id, and the ids."""
    position = 0
    while position < len(content):
        zero = content.index(b"\0", position) + 1
        yield content[position:zero]
        position = zero + _ID_SIZE
        yield content[zero:position]


def _common_start(one: bytes, other: bytes) -> int:
    """Tell how many bytes are the same from the start on, by comparing ever smaller slices."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# Encoding


def _encode_size(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(0x80 | (size & 0x7F))
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _encode_parts(base: bytes, parts: Iterable[_Part | bytes]) -> bytes:
    """Write instructions: parts that follow each other are copied at once, and short ones inserted."""
    encoded, waiting = bytearray(), bytearray()
    for start, end, inserted in _join(parts):
        if end - start < _SHORTEST_COPY:
            waiting += base[start:end]
        else:
            _write_insert(encoded, waiting)
            waiting.clear()
            _write_copy(encoded, start, end)
        waiting += inserted
    _write_insert(encoded, waiting)
    return bytes(encoded)


def _join(parts: Iterable[_Part | bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Give what is to be copied, from where to where, and what is to be inserted after that."""
    start = end = 0
    inserted = bytearray()
    for part in parts:
        if isinstance(part, bytes):
            inserted += part
        elif part[0] == end and not inserted:
            end = part[1]
        else:
            yield start, end, bytes(inserted)
            inserted.clear()
            start, end = part
    yield start, end, bytes(inserted)


def _write_insert(encoded: bytearray, content: bytearray) -> None:
    for at in range(0, len(content), _LONGEST_INSERT):
        piece = content[at : at + _LONGEST_INSERT]
        encoded.append(len(piece))
        encoded += piece


def _write_copy(encoded: bytearray, start: int, end: int) -> None:
    for at in range(start, end, _LONGEST_COPY):
        numbers = at.to_bytes(4, "little") + min(end - at, _LONGEST_COPY).to_bytes(2, "little")
        # The bits of the first byte say which of the bytes that follow are there: those that are not zero.
        encoded.append(0x80 | sum(1 << place for place, byte in enumerate(numbers) if byte))
        encoded += bytes(byte for byte in numbers if byte)


# Applying


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """Make what a delta says of its base; BadDelta if that cannot be."""
    apply, errors = _load_dulwich()
    try:
        return b"".join(apply(base, delta))
    except errors as error:
        raise BadDelta(str(error)) from error


@cache
def _load_dulwich() -> tuple[Callable[[bytes, bytes], list[bytes]], tuple[type[Exception], ...]]:
    """Import what applies deltas, and what it raises, when the first one is read: it takes a while."""
    from dulwich.errors import ApplyDeltaError

    try:
        # The same function, without the rest of dulwich, which takes ten times as long to import.
        from dulwich._pack import apply_delta as apply  # type: ignore[import-not-found]  # no stubs
    except ImportError:
        from dulwich.pack import apply_delta as apply
    return apply, (ApplyDeltaError, ValueError, IndexError, AssertionError)
