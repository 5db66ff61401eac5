"""What is on the disk now, for a plan: what was just recorded, and the disk itself where no rule covers.

A path that the rules leave out may still be one that a message made before they did. It is read from the disk
then, and what it holds has to be stored before it may be replaced (`uncovered`).
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator

from shadowtree.directory import Directory
from shadowtree.paths import RelPath, is_own_temporary, join, parent_of
from shadowtree.recorded import RecordedDirectory
from shadowtree.staging import Bench
from shadowtree.state import DIRECTORY, MODE_LINK, PathState, Unknown
from shadowtree.tombstones import NO_TOMBSTONES, PURGED, Tombstones

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.state import Answer


class DiskSight:
    """The present state of a worktree, recorded a moment ago."""

    def __init__(
        self,
        root: RecordedDirectory,
        bench: Bench,
        find: Callable[[RelPath], Directory | None],
        tombstones: Tombstones = NO_TOMBSTONES,
    ) -> None:
        self._root = root
        self._tombstones = tombstones
        self._find = find
        """Gives a directory as it was scanned for the recorded state: it answers at once."""
        self._bench = bench
        self._seen: dict[tuple[RelPath, bool], Answer] = {}
        self.uncovered: dict[RelPath, PathState] = {}
        """Files and links that were seen though no rule covers them."""

    def see(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        """Tell what is at a path; Unknown: something that cannot be put into the store."""
        key = path, as_directory
        if key not in self._seen:
            self._seen[key] = self._see(path, as_directory=as_directory)
        return self._seen[key]

    def _see(self, path: RelPath, *, as_directory: bool) -> Answer:
        if self._tombstones.covers(path):
            return Unknown(PURGED)
        here = self._find(path)
        if here is not None and here.tree is not None:
            return DIRECTORY
        directory = self._find(parent_of(path))
        row = None if directory is None else directory.find_file(path.rpartition(b"/")[2])
        if directory is not None and row is not None:
            mode = directory.file_mode(row)
            exact = MODE_LINK if stat.S_ISLNK(mode) else stat.S_IFREG | mode & 0o777
            return PathState(exact, directory.file_id(row))
        answer = self._root.find(path, as_directory=as_directory)
        if isinstance(answer, PathState):
            return answer
        if answer is None and self._bench.identify(path) is None:
            return None
        found = self._bench.see(path)
        if isinstance(found, PathState) and found.blob in self._tombstones.blobs:
            return Unknown(PURGED)
        if isinstance(found, PathState) and found != DIRECTORY:
            self.uncovered[path] = found
        return found

    def below(self, path: RelPath) -> Iterator[RelPath]:
        """List all that is below a directory, covered or not, empty directories too."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            for name in self._bench.list_names(directory) or ():
                if is_own_temporary(name):
                    continue
                entry = join(directory, name)
                if self._bench.is_directory(entry):
                    waiting.append(entry)
                yield entry
