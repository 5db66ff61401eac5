"""What an act reads: the present state of each path, and the contents that it writes or merges.

A message may have created a path that the rules leave out today. Such a path is read from the disk, and its
content must be stored before it may be replaced (`uncovered`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.paths import (
    PURGED,
    PathState,
    RelPath,
    Unknown,
    is_file,
    is_own_temporary,
    join,
    to_text,
)
from shadowtree.capture.capture import Capture
from shadowtree.capture.recorded_tree import RecordedDirectory
from shadowtree.capture.scan import Scan
from shadowtree.revert.intents import Move
from shadowtree.revert.writer import Writer
from shadowtree.store.git_format import blob_id
from shadowtree.store.objects import Objects
from shadowtree.text.linediff import MAX_TEXT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer

_MEMORY_BYTES = 64 << 20
"""How many bytes of verified contents are kept in memory until written; the rest is read again."""


class DiskState:
    """The present state of a worktree: a fresh scan, and the disk itself for paths that no rule covers."""

    def __init__(self, root: RecordedDirectory, scan: Scan, writer: Writer) -> None:
        self._root = root
        self._scan = scan
        self._tombstones = scan.rule_files.tombstones
        self._writer = writer
        self._states: dict[tuple[RelPath, bool], Answer] = {}
        self._names: dict[RelPath, Collection[bytes] | None] = {}
        """The names in directories that were listed to check the spelling of a path."""
        self.uncovered: dict[RelPath, PathState] = {}
        """Files and links that were found although no rule covers them."""

    def state_of(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        """Return what is at a path; Unknown if it cannot be stored."""
        key = path, as_directory
        if key not in self._states:
            self._states[key] = self._state_of(path, as_directory=as_directory)
        return self._states[key]

    def _state_of(self, path: RelPath, *, as_directory: bool) -> Answer:
        if self._tombstones.covers(path):
            return Unknown(PURGED)
        answer = self._scan.state_of(path) or self._root.find(path, as_directory=as_directory)
        if isinstance(answer, PathState):
            return answer
        if answer is None and self._writer.identify(path) is None:
            return None
        if answer is None and not self._writer.is_spelled_so(path, self._names):
            # The file system folds names: it found another name, which has a state of its own.
            return None
        found = self._writer.state_of(path)
        if isinstance(found, PathState) and is_file(found):
            if found.blob in self._tombstones.blobs:
                return Unknown(PURGED)
            self.uncovered[path] = found
        return found

    def below(self, path: RelPath) -> Iterator[RelPath]:
        """List everything below a directory, covered or not, including empty directories."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            for name in self._writer.list_names(directory) or ():
                if is_own_temporary(name):
                    continue
                entry = join(directory, name)
                if self._writer.is_directory(entry):
                    waiting.append(entry)
                yield entry


class Contents:
    """The contents that an act merges and writes; all are verified before anything is written."""

    def __init__(self, objects: Objects, writer: Writer) -> None:
        self._objects = objects
        self._writer = writer
        self._merged: dict[bytes, bytes] = {}
        """Results of merges, which the store may not have yet."""
        self._held: dict[bytes, bytes] = {}
        """Verified contents, as far as there is room in memory."""
        self._room = _MEMORY_BYTES
        self.bytes_to_write = 0

    # Merging

    @property
    def made(self) -> list[bytes]:
        """The results of merges."""
        return list(self._merged.values())

    def read_to_merge(self, path: RelPath, blob: bytes) -> bytes | None:
        """Read a blob from the store, or else from a path on disk; None if it is too large to merge."""
        if blob in self._merged:
            return self._merged[blob]
        if not self._objects.has(blob):
            size, pieces = self._writer.open_content(path)
            if size > MAX_TEXT_BYTES:
                return None
            content = b"".join(pieces)
            if blob_id(content) == blob:
                return content
            # The file has different content by now, so the store must have a whole copy of the blob.
            self._objects.require_blob(blob)
        is_small = self._objects.size_of(blob) <= MAX_TEXT_BYTES
        return self._objects.read(b"blob", blob) if is_small else None

    def add_merged(self, content: bytes) -> bytes:
        """Keep the result of a merge, and return its id."""
        blob = blob_id(content)
        self._merged[blob] = content
        return blob

    # Writing

    def verify(self, moves: Iterable[Move], taken: Capture) -> list[bytes]:
        """Read every blob that will be written, and every blob that would undo a replacement (invariant 5).

        Store those that the store lacks. Return the ids of merge results among these: the record must keep
        them.
        """
        made: list[bytes] = []
        for move in moves:
            if move.new is not None and is_file(move.new) and not move.is_mode_only:
                if move.new.blob in self._merged and move.new.blob not in self._held:
                    content = self._merged[move.new.blob]
                    made.append(taken.put_stream(len(content), iter([content])))
                self._verify_new(move.new.blob)
            # No rule covers it, or the copy in the store is damaged.
            if move.old is not None and is_file(move.old) and not self._objects.prove(move.old.blob):
                size, pieces = self._writer.open_content(move.path)
                if taken.put_stream(size, pieces) != move.old.blob:
                    raise WorktreeFailed(to_text(move.path), "another program is changing it")
        return made

    def _verify_new(self, blob: bytes) -> None:
        merged = self._merged.get(blob)
        size = self._objects.size_of(blob) if merged is None else len(merged)
        self.bytes_to_write += size
        if merged is not None:
            self._held[blob] = merged
        elif size > self._room:
            self._objects.require_blob(blob)
        elif blob not in self._held:
            self._held[blob] = self._objects.read(b"blob", blob)
            self._room -= size

    def read(self, blob: bytes) -> Iterator[bytes]:
        """Return the content of a blob in pieces."""
        held = self._held.get(blob)
        return self._objects.stream_blob(blob) if held is None else iter([held])
