"""Loose objects: git objects in files of their own.

shadowtree writes none, but `git gc` run by hand may leave some.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.objects.git_format import Source, hash_source
from shadowtree.system import disk

_CHUNK = 1 << 16
_HEX = set("0123456789abcdef")


class Loose:
    """The loose objects of a store, in the directories that the last look found."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fans: set[str] = set()
        """The directories that hold some."""
        self._seen: set[bytes] = set()
        """Ids that were read, which nothing else tells to be gone."""

    def refresh(self) -> bool:
        """Look for directories that came or went; tell whether anything is gone that was read."""
        with disk.store_errors(self._directory):
            self._fans = {name for name in os.listdir(self._directory) if _is_hex(name, 2)}
        return any(not os.path.exists(self._path_of(id)) for id in self._seen)

    def forget(self) -> None:
        """Forget what was read."""
        self._seen.clear()

    def may_have(self, wanted: bytes) -> bool:
        """Tell whether an object could be here; False is certain."""
        return wanted[:1].hex() in self._fans

    def has_file(self, wanted: bytes) -> bool:
        """Tell whether an object has a file: no proof that it is whole."""
        return self.may_have(wanted) and os.path.isfile(self._path_of(wanted))

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Give the copy of an object, if it has one here."""
        path = self._path_of(wanted)
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed below, after the pieces were used
        except OSError:
            return
        with file:
            pieces = _inflate_file(file.fileno(), path)
            try:
                first = next(pieces, b"")
            except StoreDamaged:
                return
            header, _, content = first.partition(b"\0")
            kind, _, size = header.partition(b" ")
            if size.isdigit():
                self._seen.add(wanted)
                yield kind, int(size), _chain(content, pieces)

    def is_whole(self, wanted: bytes) -> bool:
        """Tell whether the copy of an object has the right hash, whatever else holds it."""
        try:
            return any(hash_source(source) == wanted for source in self.find(wanted))
        except (StoreDamaged, StoreFailed):
            return False

    def ids(self) -> list[bytes]:
        """Give the id of every loose object."""
        found = []
        for fan in sorted(self._fans):
            with disk.store_errors(self._directory):
                names = os.listdir(os.path.join(self._directory, fan))
            found += [bytes.fromhex(fan + name) for name in names if _is_hex(fan + name, 40)]
        return found

    def size_of(self, wanted: bytes) -> int:
        """Tell how many bytes the file of an object has."""
        return os.path.getsize(self._path_of(wanted))

    def total_bytes(self) -> int:
        """Tell how many bytes all files have."""
        total = 0
        for fan in self._fans:
            with os.scandir(os.path.join(self._directory, fan)) as entries:
                total += sum(entry.stat().st_size for entry in entries)
        return total

    def remove(self, ids: Iterable[bytes]) -> None:
        """Remove loose objects. Only for the holder of the lock."""
        for id in ids:
            disk.remove_file(self._path_of(id))

    def _path_of(self, wanted: bytes) -> str:
        name = wanted.hex()
        return os.path.join(self._directory, name[:2], name[2:])


def _is_hex(name: str, length: int) -> bool:
    return len(name) == length and not set(name) - _HEX


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _inflate_file(fd: int, path: str) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        piece = inflater.unconsumed_tail
        if not piece:
            with disk.store_errors(path):
                piece = os.read(fd, _CHUNK)
        if not piece:
            raise StoreDamaged(f"{path} ends too early")
        try:
            content = inflater.decompress(piece, 1 << 20)
        except zlib.error as error:
            raise StoreDamaged(f"{path} cannot be inflated") from error
        if content:
            yield content
