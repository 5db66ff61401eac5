"""The contents that an act writes or merges, read and verified before the first file is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from shadowtree.apply import Move
from shadowtree.capture import Capture
from shadowtree.errors import WorktreeFailed
from shadowtree.gitformat import blob_id
from shadowtree.objects import Objects
from shadowtree.paths import RelPath, to_text
from shadowtree.staging import Bench
from shadowtree.state import PathState, is_file
from shadowtree.textmerge import MAX_MERGE_BYTES

_MEMORY_BYTES = 64 << 20
"""How much of what was verified is kept in memory until it is written; the rest is read again."""


class Blobs:
    """The contents that an act writes, verified before it begins."""

    def __init__(self, objects: Objects, made: Mapping[bytes, bytes] | None = None) -> None:
        self._objects = objects
        self._made = made or {}
        """Contents that came of merging, and that the store may not have yet."""
        self._needed: set[bytes] = set()
        """Which of them are needed."""
        self._held: dict[bytes, bytes] = {}
        self._room = _MEMORY_BYTES
        self.bytes_to_write = 0

    def verify(self, moves: Iterable[Move], bench: Bench, taken: Capture) -> None:
        """Read all that will be written, and all that would bring back what will be replaced.

        What the store does not have of the latter is put into it.
        """
        for move in moves:
            if is_file(move.new) and not move.is_mode_only:
                assert move.new is not None
                self._verify_new(move.new.blob)
            if is_file(move.old):
                assert move.old is not None
                if not self._objects.prove(move.old.blob):
                    # No rule covers it, or what the store had of it is damaged.
                    self._store(move.path, move.old, bench, taken)

    def put_made(self, taken: Capture) -> list[bytes]:
        """Store what came of merging and is to be written; give the ids, which `record` has to be told."""
        return [taken.put_stream(len(self._made[blob]), iter([self._made[blob]])) for blob in self._needed]

    def read(self, blob: bytes) -> Iterator[bytes]:
        """Give the content of a blob in pieces."""
        held = self._held.get(blob)
        return self._objects.stream_blob(blob) if held is None else iter([held])

    def _verify_new(self, blob: bytes) -> None:
        if blob in self._made:
            self._held[blob] = self._made[blob]
            self._needed.add(blob)
            self.bytes_to_write += len(self._made[blob])
            return
        size = self._objects.size_of(blob)
        self.bytes_to_write += size
        if blob in self._held:
            return
        if size <= self._room:
            self._held[blob] = self._objects.read(b"blob", blob)
            self._room -= size
        else:
            self._objects.require_blob(blob)

    def _store(self, path: RelPath, state: PathState, bench: Bench, taken: Capture) -> None:
        size, pieces = bench.open_content(path)
        if taken.put_stream(size, pieces) != state.blob:
            raise WorktreeFailed(to_text(path), "it is being changed")


def read_content(objects: Objects, bench: Bench) -> Callable[[RelPath, bytes], bytes | None]:
    """Give a function that reads what is to be merged; what is not stored is read from the worktree."""

    def read(path: RelPath, blob: bytes) -> bytes | None:
        if objects.has(blob):
            return objects.read(b"blob", blob) if objects.size_of(blob) <= MAX_MERGE_BYTES else None
        size, pieces = bench.open_content(path)
        if size > MAX_MERGE_BYTES:
            return None
        content = b"".join(pieces)
        if blob_id(content) != blob:
            # It is neither in the worktree nor, as it should be, in the store.
            objects.require_blob(blob)
        return content

    return read
