"""What is known of the directories of a worktree: each as a snapshot sees it, and all of them together.

A `Directory` is what one covers, what it leaves out, and the git tree that it makes. The `Census` has every
directory as it was last recorded, in memory: a watcher's news are measured against it.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from stat import S_IFREG, S_ISLNK

from shadowtree.base.paths import MODE_LINK, PathState, RelPath, join, parent_of

GIT_IGNORE = b".gitignore"
STAMP_SIZE = 5
"""How many numbers make a file's stamp: mtime, ctime, size, inode, mode."""
ID_SIZE = 20
NO_ID = bytes(ID_SIZE)

DirectoryStamp = tuple[int, int, int]
"""What tells that no name came or went: mtime and ctime in ns, inode."""

# Which rules a directory is under. A smaller number is a directory that is covered as usual.
NORMAL = 0
FORCED = 1
"""A `!` rule of `.shadowtreeignore` brought it back: git's rules and the heavy ones do not count."""
EXCLUDED = 2
"""Git ignores it: only what an index tracks or a `!` rule brings back is covered."""
HEAVY = 3
"""The same for a dependency or cache directory, in which no repositories are looked for."""
OWN_EXCLUDED = 4
"""`.shadowtreeignore` excludes it: only what a `!` rule brings back is covered."""


def leaves_out(mode: int) -> bool:
    """Return whether what is in a directory is left out, unless a rule or an index names it."""
    return mode not in (NORMAL, FORCED)


class Directory:
    """What a scan found in one directory; `tree` and `facts` are filled in by the snapshot."""

    def __init__(self, path: RelPath, mode: int) -> None:
        self.path = path
        self.mode = mode
        self.stamp: DirectoryStamp | None = None
        """None: the listing has to be read again next time."""
        self.rules_key = b""
        self.tracked_key: bytes | None = None
        """Which names the indexes tracked, if that decided anything here."""
        self.names: list[bytes] = []
        """The covered files and links, sorted."""
        self.stats: array[int] = array("q")
        self.ids = bytearray()
        self.pending: list[int] = []
        """Which of the names have no id yet."""
        self.subdirectories: list[tuple[bytes, int]] = []
        """The directories to look into, sorted, each with the rules it is under."""
        self.excluded: list[bytes] = []
        """What the rules leave out, sorted."""
        self.uncovered_files: list[bytes] = []
        """The files that the rules or their size leave out, sorted, unless all that is here is left out."""
        self.skipped: list[tuple[bytes, str]] = []
        self.missing: list[bytes] = []
        """Paths below it that an index tracks and the rules leave out, and that are not there."""
        self.linked: list[bytes] = []
        """Covered files and rules that have other names too, if looked at since the process began."""
        self.ignore_stamp: tuple[int, ...] | None = None
        self.ignore_text: bytes | None = None
        """Its own `.gitignore`."""
        self.has_repository = False
        """It is the top of a repository."""
        self.exclude_text: bytes | None = None
        """The `info/exclude` of the repository whose top it is."""
        self.tree: bytes | None = None
        self.facts: bytes | None = None
        self.below_ids = b""
        """The trees and then the facts of its subdirectories, the last one first, that its own came from."""
        self.is_stale = True
        """Something in it is not as it was when its tree and facts were built."""

    def copy(self) -> Directory:
        """Return the same directory once more; of what is set in either of the two, the other sees nothing.

        What is changed in place, stamps and ids of files, is still shared.
        """
        other = Directory.__new__(Directory)
        vars(other).update(vars(self))
        return other

    def with_stats(self, stats: array[int]) -> Directory:
        """Return the same directory with other stamps; nothing is shared that would be changed."""
        other = self.copy()
        other.stats = stats
        other.is_stale = stats[4::STAMP_SIZE] != self.stats[4::STAMP_SIZE]
        other.ids = self.ids[:]
        other.pending = []
        other.skipped = self.skipped[:]
        return other

    @property
    def name(self) -> bytes:
        """Its own name, without those above it."""
        return self.path.rpartition(b"/")[2]

    def file_mode(self, row: int) -> int:
        """Return the `st_mode` of a covered file."""
        return self.stats[row * STAMP_SIZE + 4]

    def file_inode(self, row: int) -> int:
        """Return the inode of a covered file; 0 if it has to be read again."""
        return self.stats[row * STAMP_SIZE + 3]

    def file_stamp(self, row: int) -> tuple[int, ...]:
        """Return the stamp of a covered file."""
        return tuple(self.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE])

    def file_id(self, row: int) -> bytes:
        """Return the id of what a covered file holds."""
        return bytes(self.ids[row * ID_SIZE : (row + 1) * ID_SIZE])

    def file_state(self, row: int) -> PathState:
        """Return kind, exact permission bits and content of a covered file."""
        mode = self.file_mode(row)
        exact = MODE_LINK if S_ISLNK(mode) else S_IFREG | mode & 0o777
        return PathState(exact, self.file_id(row))

    def find_file(self, name: bytes) -> int | None:
        """Return where a covered file is among the names."""
        row = bisect_left(self.names, name)
        return row if row < len(self.names) and self.names[row] == name else None

    def is_excluded(self, name: bytes) -> bool:
        """Return whether the rules leave out a name."""
        row = bisect_left(self.excluded, name)
        return row < len(self.excluded) and self.excluded[row] == name

    def uncovered(self) -> list[bytes]:
        """Name what is left out here, directories among them."""
        return [*self.excluded, *(name for name, _ in self.skipped if name)]

    def set_stamp(self, row: int, stamp: tuple[int, ...]) -> None:
        """Note with which stamp a covered file was seen."""
        if stamp[4] != self.file_mode(row):
            self.is_stale = True
        self.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE] = array("q", stamp)

    def set_id(self, row: int, object_id: bytes) -> None:
        """Note what a covered file holds."""
        if object_id != self.file_id(row):
            self.is_stale = True
        self.ids[row * ID_SIZE : (row + 1) * ID_SIZE] = object_id

    def drop_files(self, rows: set[int]) -> None:
        """Forget covered files that went away while they were read."""
        keep = [row for row in range(len(self.names)) if row not in rows]
        self.names = [self.names[row] for row in keep]
        self.stats = array("q", [number for row in keep for number in self.file_stamp(row)])
        self.ids = bytearray(b"".join([self.file_id(row) for row in keep]))
        places = {row: place for place, row in enumerate(keep)}
        self.pending = [places[row] for row in self.pending if row in places]
        self.stamp = None
        self.is_stale = True

    def smudge(self, row: int) -> None:
        """Have a covered file read again next time: no file has this stamp. Its mode stays known."""
        self.set_stamp(row, (0, 0, 0, 0, self.file_mode(row)))


def join_ids(directories: Iterable[Directory]) -> bytes:
    """Put the trees of directories and then their facts together, as `below_ids` holds them."""
    found = list(directories)
    trees = [directory.tree or NO_ID for directory in found]
    return b"".join(trees + [directory.facts or NO_ID for directory in found])


@cache
def git_mode(mode: int) -> int:
    """Return the mode that a tree has for a file with this `st_mode`; there are few, and files are many."""
    if S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & 0o100 else 0o100644


# All directories

RulesKey = tuple[bytes, bytes]
"""The rules inside a directory, and which names the indexes track there."""


class Census:
    """All directories by path, and what a snapshot has to know of all of them together."""

    def __init__(self) -> None:
        self._directories: dict[RelPath, Directory] = {}
        self.files = 0
        """How many files and links are covered."""
        self.ignored = 0
        """How many files and directories the rules leave out."""
        self.restless: set[RelPath] = set()
        """Directories that have to be looked at each time."""
        self._bare: dict[RelPath, DirectoryStamp] = {}
        """Ignored directories in which nothing is covered: their stamps tell all that there is to know."""
        self.unwatched: set[RelPath] = set()
        """Those in which nobody watches: the directories in them may have changed places unseen."""
        self._linked: dict[RelPath, set[bytes]] = {}
        """By directory the files that have other names too, through which nobody sees them change.

        Also those that had: who opened them by a name that is gone may write still.
        """
        self.rules: dict[RelPath, RulesKey] = {}
        """What was in force at the root and at the top of each repository."""
        self.with_uncovered: set[RelPath] = set()
        """The directories in which files are left out."""

    @classmethod
    def of(cls, directories: Iterable[Directory], rules: dict[RelPath, RulesKey]) -> Census:
        """Take in all directories as somebody just saw them."""
        census = cls()
        census._directories = {directory.path: directory for directory in directories}
        census.files = sum(len(directory.names) for directory in census._directories.values())
        census.ignored = sum(len(directory.excluded) for directory in census._directories.values())
        census.with_uncovered = {d.path for d in census._directories.values() if d.uncovered_files}
        census.rules = rules
        return census

    def get(self, path: RelPath) -> Directory | None:
        """Return a directory as it was last recorded."""
        return self._directories.get(path)

    def has(self, path: RelPath, mode: int) -> bool:
        """Return whether a directory was recorded under the same rules."""
        known = self._directories.get(path)
        return known is not None and known.mode == mode

    def paths(self) -> Collection[RelPath]:
        """Name every directory."""
        return self._directories.keys()

    def put(self, directory: Directory, *, is_watched: bool) -> None:
        """Take in a directory in place of what is known of it."""
        path = directory.path
        linked = {*directory.linked, *self._linked.get(path, set()).intersection(directory.names)}
        self.drop(path)
        self._directories[path] = directory
        self.files += len(directory.names)
        self.ignored += len(directory.excluded)
        # What could not be read may be readable by now; the files of a repository lie where nobody watches;
        # rules that changed a moment ago may have changed once more behind the same stamp.
        is_doubtful = bool(directory.skipped) or directory.has_repository or directory.ignore_stamp == ()
        is_bare = leaves_out(directory.mode) and not directory.names and directory.ignore_stamp is None
        if not is_watched:
            self.unwatched.add(path)
        if is_bare and not is_watched and not is_doubtful and directory.stamp is not None:
            self._bare[path] = directory.stamp
        elif is_doubtful or not is_watched:
            self.restless.add(path)
        if linked:
            self._linked[path] = linked
        if directory.uncovered_files:
            self.with_uncovered.add(path)

    def drop(self, path: RelPath) -> None:
        """Forget a directory, but not those below it."""
        old = self._directories.pop(path, None)
        if old is not None:
            self.files -= len(old.names)
            self.ignored -= len(old.excluded)
            self.restless.discard(path)
            self._bare.pop(path, None)
            self.unwatched.discard(path)
            self._linked.pop(path, None)
            self.with_uncovered.discard(path)

    def find_stirred(self, root: str) -> Iterator[RelPath]:
        """Name the ignored directories in which names came or went since, by a glance at each."""
        top = os.fsencode(root) + b"/"
        return (path for path, stamp in self._bare.items() if _stamp_directory(top + path) != stamp)

    def linked_files(self) -> list[RelPath]:
        """Name the files that have other names too, or had."""
        return [join(path, name) for path, names in self._linked.items() for name in names]

    def is_linked(self, path: RelPath) -> bool:
        """Return whether a file has other names too, or had."""
        return path.rpartition(b"/")[2] in self._linked.get(parent_of(path), ())

    def find_inodes(self, inodes: set[int]) -> Iterator[RelPath]:
        """Name the covered files, and the rules, with one of these inodes."""
        for directory in self._directories.values():
            if directory.ignore_stamp and directory.ignore_stamp[3] in inodes:
                yield join(directory.path, GIT_IGNORE)
            if not inodes.isdisjoint(directory.stats[3::STAMP_SIZE]):
                for row, name in enumerate(directory.names):
                    if directory.file_inode(row) in inodes:
                        yield join(directory.path, name)

    def below(self, path: RelPath) -> Iterator[RelPath]:
        """Name a directory and all below it."""
        waiting = [path]
        while waiting:
            known = self._directories.get(waiting.pop())
            if known is not None:
                yield known.path
                waiting += [join(known.path, name) for name, _ in known.subdirectories]


def _stamp_directory(path: bytes) -> DirectoryStamp | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino
