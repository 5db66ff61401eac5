"""What an act reads: what is at each path now, and the contents that it writes or merges.

A path that the rules leave out may still be one that a message made before they did. It is read from the disk
then, and what it holds has to be stored before it may be replaced (`uncovered`).
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
from shadowtree.revert.moves import Move
from shadowtree.revert.writer import Writer
from shadowtree.store.git_format import blob_id
from shadowtree.store.objects import Objects
from shadowtree.text.linediff import MAX_TEXT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer

_MEMORY_BYTES = 64 << 20
"""How much of what was verified is kept in memory until it is written; the rest is read again."""


class DiskState:
    """The present state of a worktree, recorded a moment ago."""

    def __init__(self, root: RecordedDirectory, scan: Scan, writer: Writer) -> None:
        self._root = root
        self._scan = scan
        self._tombstones = scan.rule_files.tombstones
        self._writer = writer
        self._states: dict[tuple[RelPath, bool], Answer] = {}
        self._names: dict[RelPath, Collection[bytes] | None] = {}
        """What each directory holds that was asked for a name which no tree has."""
        self.uncovered: dict[RelPath, PathState] = {}
        """Files and links that were found though no rule covers them."""

    def state_of(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        """Return what is at a path; Unknown: something that cannot be put into the store."""
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
            # The file system folds names: this is another one, which has a state of its own.
            return None
        found = self._writer.state_of(path)
        if isinstance(found, PathState) and is_file(found):
            if found.blob in self._tombstones.blobs:
                return Unknown(PURGED)
            self.uncovered[path] = found
        return found

    def below(self, path: RelPath) -> Iterator[RelPath]:
        """List all that is below a directory, covered or not, empty directories too."""
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
    """The contents that an act merges and writes; what it writes is verified before it begins."""

    def __init__(self, objects: Objects, writer: Writer) -> None:
        self._objects = objects
        self._writer = writer
        self._merged: dict[bytes, bytes] = {}
        """Contents that merging made, and that the store may not have yet."""
        self._held: dict[bytes, bytes] = {}
        """What was verified, as far as there is room for it."""
        self._room = _MEMORY_BYTES
        self.bytes_to_write = 0

    # Merging

    @property
    def made(self) -> list[bytes]:
        """The contents that merging made."""
        return list(self._merged.values())

    def read_to_merge(self, path: RelPath, blob: bytes) -> bytes | None:
        """Read a blob that is stored, or else at a path and nowhere else; None: it is too large to merge."""
        if blob in self._merged:
            return self._merged[blob]
        if not self._objects.has(blob):
            size, pieces = self._writer.open_content(path)
            if size > MAX_TEXT_BYTES:
                return None
            content = b"".join(pieces)
            if blob_id(content) == blob:
                return content
            # The worktree has another content: a second copy in the store is whole, or the store is damaged.
            self._objects.require_blob(blob)
        is_small = self._objects.size_of(blob) <= MAX_TEXT_BYTES
        return self._objects.read(b"blob", blob) if is_small else None

    def add_merged(self, content: bytes) -> bytes:
        """Keep what merging made, and return its id."""
        blob = blob_id(content)
        self._merged[blob] = content
        return blob

    # Writing

    def verify(self, moves: Iterable[Move], taken: Capture) -> list[bytes]:
        """Read all that will be written, and all that would bring back what will be replaced (invariant 5).

        What the store does not have of it is put into it. Of that, return the ids of what merging made: the
        record has to keep it.
        """
        made: list[bytes] = []
        for move in moves:
            if move.new is not None and is_file(move.new) and not move.is_mode_only:
                if move.new.blob in self._merged and move.new.blob not in self._held:
                    content = self._merged[move.new.blob]
                    made.append(taken.put_stream(len(content), iter([content])))
                self._verify_new(move.new.blob)
            # No rule covers it, or what the store had of it is damaged.
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
