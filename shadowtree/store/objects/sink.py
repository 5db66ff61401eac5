"""Where new objects go: into a pack, or into a scratch, which keeps them in memory and stores nothing."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from shadowtree.store.objects.git_format import Source, hash_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class ObjectSink(Protocol):
        """Where new objects go: into a pack, or nowhere at all."""

        def __contains__(self, object_id: bytes) -> bool: ...

        def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
            """Take an object that is deflated already."""

        def note_version(self, object_id: bytes, before: bytes) -> None:
            """Note that an object came in place of another one."""

        def takes_file(self, object_id: bytes, size: int) -> bool:
            """Tell whether the content of a file is wanted; its id is noted in any case."""

        def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
            """Take a blob of `size` bytes piece by piece, and give its id."""


class Scratch:
    """A sink that stores nothing: it keeps trees in memory, and of files as much as there is room for."""

    def __init__(self, file_bytes: int = 0) -> None:
        self._room = file_bytes
        self._hashed: set[bytes] = set()
        """What was seen and not kept."""
        self._kept: dict[bytes, tuple[bytes, bytes]] = {}

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self._kept

    def has_dropped(self, object_id: bytes) -> bool:
        """Tell whether an object was seen and not kept."""
        return object_id in self._hashed and object_id not in self._kept

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        """Keep an object in memory."""
        del size
        self._kept[object_id] = (kind, deflated)

    def note_version(self, object_id: bytes, before: bytes) -> None:
        """Need no such thing."""

    def takes_file(self, object_id: bytes, size: int) -> bool:
        """Take files as long as there is room."""
        self._hashed.add(object_id)
        self._room -= size
        return self._room >= 0

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        """Hash a file that is too large to keep."""
        del is_known
        found = hash_source((b"blob", size, pieces))
        self._hashed.add(found)
        return found

    def find(self, wanted: bytes) -> Iterator[Source]:
        """Give a kept object as if it came from the store."""
        if wanted in self._kept:
            kind, deflated = self._kept[wanted]
            content = zlib.decompress(deflated)
            yield kind, len(content), iter([content])
