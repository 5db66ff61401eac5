"""The directories of a worktree: each as a snapshot sees it, and all of them together.

A `Directory` holds what one directory covers, what it leaves out, and its git tree. The `Census` holds every
directory as it was last recorded, in memory; a watcher's reports are compared with it.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from stat import S_IFREG, S_ISLNK

from shadowtree.base.paths import MODE_LINK, PathState, RelPath, join, parent_of
from shadowtree.system.files import stamp_of_directory

GIT_IGNORE = b".gitignore"
STAMP_SIZE = 5
"""How many numbers are in the stamp of a file: mtime, ctime, size, inode, mode."""
ID_SIZE = 20
NO_ID = bytes(ID_SIZE)

DirectoryStamp = tuple[int, int, int]
"""Mtime and ctime in ns, and inode: if they are unchanged, no name was added or removed."""

# The rules that a directory is under. In the first two modes it is covered as usual.
NORMAL = 0
FORCED = 1
"""A `!` rule of `.shadowtreeignore` brought it back: git's rules and heavy directories do not count in it."""
EXCLUDED = 2
"""Git ignores it: it covers only what an index tracks or a `!` rule brings back."""
HEAVY = 3
"""A dependency or cache directory: like `EXCLUDED`, but not searched for repositories."""
OWN_EXCLUDED = 4
"""`.shadowtreeignore` excludes it: it covers only what a `!` rule brings back."""


def leaves_out(mode: int) -> bool:
    """Return whether the content of a directory is left out, unless a rule or an index names it."""
    return mode not in (NORMAL, FORCED)


class Directory:
    """What a scan found in one directory; the snapshot fills in `tree` and `facts`.

    A watching process keeps thousands of these. Its lists are tuples, because Python's garbage collector does
    not have to go through tuples of plain values.
    """

    def __init__(self, path: RelPath, mode: int) -> None:
        self.path = path
        self.mode = mode
        self.stamp: DirectoryStamp | None = None
        """None if the directory must be listed again next time."""
        self.rules_key = b""
        self.tracked_key: bytes | None = None
        """The key of the names that the indexes tracked, if they decided anything here."""
        self.names: tuple[bytes, ...] = ()
        """The covered files and links, sorted."""
        self.stats: array[int] = array("q")
        self.ids = bytearray()
        self.pending: tuple[int, ...] = ()
        """The rows of the names that must be read."""
        self.subdirectories: tuple[tuple[bytes, int], ...] = ()
        """The directories to enter, sorted, each with the rules that it is under."""
        self.excluded: tuple[bytes, ...] = ()
        """The names that the rules leave out, sorted; empty if they leave out the whole directory."""
        self.uncovered_files: tuple[bytes, ...] = ()
        """The files that the rules or their size leave out, sorted; empty like `excluded`."""
        self.skipped: tuple[tuple[bytes, str], ...] = ()
        self.missing: tuple[bytes, ...] = ()
        """Paths below it that an index tracks, that the rules would leave out, and that do not exist."""
        self.linked: tuple[bytes, ...] = ()
        """Covered files and rules with other hard links, if they were checked since the process began."""
        self.ignore_stamp: tuple[int, ...] | None = None
        self.ignore_text: bytes | None = None
        """Its own `.gitignore`."""
        self.has_repository = False
        """It is the top of a repository inside the worktree."""
        self.exclude_text: bytes | None = None
        """The `info/exclude` of that repository."""
        self.tree: bytes | None = None
        self.facts: bytes | None = None
        self.below_ids = b""
        """The tree ids, then the facts ids, of its subdirectories (last first) when its own were built."""
        self.is_stale = True
        """Something in it changed since its tree and facts were built."""

    def copy(self) -> Directory:
        """Return a shallow copy: setting an attribute of one does not change the other.

        Only stamps and ids of files are changed in place, so these are still shared.
        """
        other = Directory.__new__(Directory)
        vars(other).update(vars(self))
        return other

    def with_stats(self, stats: array[int]) -> Directory:
        """Return a copy with other stamps; it shares nothing that is changed in place."""
        other = self.copy()
        other.stats = stats
        other.is_stale = stats[4::STAMP_SIZE] != self.stats[4::STAMP_SIZE]
        other.ids = self.ids[:]
        other.pending = ()
        return other

    @property
    def name(self) -> bytes:
        """Its own name, without those above it."""
        return self.path.rpartition(b"/")[2]

    def file_mode(self, row: int) -> int:
        """Return the `st_mode` of a covered file."""
        return self.stats[row * STAMP_SIZE + 4]

    def file_inode(self, row: int) -> int:
        """Return the inode of a covered file; 0 if the file must be read again."""
        return self.stats[row * STAMP_SIZE + 3]

    def file_stamp(self, row: int) -> tuple[int, ...]:
        """Return the stamp of a covered file."""
        return tuple(self.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE])

    def file_id(self, row: int) -> bytes:
        """Return the id of a covered file's content."""
        return bytes(self.ids[row * ID_SIZE : (row + 1) * ID_SIZE])

    def file_state(self, row: int) -> PathState:
        """Return kind, exact permission bits and content of a covered file."""
        mode = self.file_mode(row)
        exact = MODE_LINK if S_ISLNK(mode) else S_IFREG | mode & 0o777
        return PathState(exact, self.file_id(row))

    def find_file(self, name: bytes) -> int | None:
        """Return the row of a covered file; None if there is no such file."""
        row = bisect_left(self.names, name)
        return row if row < len(self.names) and self.names[row] == name else None

    def is_excluded(self, name: bytes) -> bool:
        """Return whether the rules leave out a name."""
        row = bisect_left(self.excluded, name)
        return row < len(self.excluded) and self.excluded[row] == name

    def uncovered(self) -> list[bytes]:
        """List the names that are left out here, including directories."""
        return [*self.excluded, *(name for name, _ in self.skipped if name)]

    def set_stamp(self, row: int, stamp: tuple[int, ...]) -> None:
        """Set the stamp of a covered file."""
        if stamp[4] != self.file_mode(row):
            self.is_stale = True
        self.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE] = array("q", stamp)

    def set_id(self, row: int, object_id: bytes) -> None:
        """Set the id of a covered file's content."""
        if object_id != self.file_id(row):
            self.is_stale = True
        self.ids[row * ID_SIZE : (row + 1) * ID_SIZE] = object_id

    def drop_files(self, rows: set[int]) -> None:
        """Remove covered files that disappeared or could not be read."""
        keep = [row for row in range(len(self.names)) if row not in rows]
        self.names = tuple([self.names[row] for row in keep])
        self.stats = array("q", [number for row in keep for number in self.file_stamp(row)])
        self.ids = bytearray(b"".join([self.file_id(row) for row in keep]))
        places = {row: place for place, row in enumerate(keep)}
        self.pending = tuple([places[row] for row in self.pending if row in places])
        self.stamp = None
        self.is_stale = True

    def skip(self, name: bytes, reason: str) -> None:
        """Note that a name is not covered, and why."""
        self.skipped = (*self.skipped, (name, reason))

    def smudge(self, row: int) -> None:
        """Set a stamp that no file has, so that a covered file is read again next time; keep its mode."""
        self.set_stamp(row, (0, 0, 0, 0, self.file_mode(row)))


def join_ids(directories: Iterable[Directory]) -> bytes:
    """Join the tree ids of directories and then their facts ids, as in `below_ids`."""
    found = list(directories)
    trees = [directory.tree or NO_ID for directory in found]
    return b"".join(trees + [directory.facts or NO_ID for directory in found])


@cache
def git_mode(mode: int) -> int:
    """Return the mode in a git tree for an `st_mode`; cached, because files are many and modes are few."""
    if S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & 0o100 else 0o100644


# All directories

RulesKey = tuple[bytes, bytes]
"""The keys of the rules inside a directory, and of the names that the indexes track there."""


class Census:
    """All directories by path, and what a snapshot must know about all of them together."""

    def __init__(self) -> None:
        self._directories: dict[RelPath, Directory] = {}
        self.files = 0
        """How many files and links are covered."""
        self.ignored = 0
        """How many files and directories the rules leave out."""
        self.restless: set[RelPath] = set()
        """Directories that every scan must check."""
        self._bare: dict[RelPath, DirectoryStamp] = {}
        """Ignored directories in which nothing is covered: comparing their stamps is enough."""
        self.unwatched: set[RelPath] = set()
        """Directories without a watch: the directories in them may be replaced unnoticed."""
        self._linked: dict[RelPath, set[bytes]] = {}
        """By directory, the files with other hard links, through which they can change unnoticed.

        Files that had such links count too: a program that opened a removed link may still write to it.
        """
        self.rules: dict[RelPath, RulesKey] = {}
        """The rules that were in force at the root and at the top of each repository."""
        self.with_uncovered: set[RelPath] = set()
        """The directories in which files are left out."""

    @classmethod
    def of(cls, directories: Iterable[Directory], rules: dict[RelPath, RulesKey]) -> Census:
        """Make a census of directories that were just scanned."""
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
        """Return the path of every directory."""
        return self._directories.keys()

    def put(self, directory: Directory, *, is_watched: bool) -> None:
        """Add a directory, or replace it."""
        path = directory.path
        linked = {*directory.linked, *self._linked.get(path, set()).intersection(directory.names)}
        self.drop(path)
        self._directories[path] = directory
        self.files += len(directory.names)
        self.ignored += len(directory.excluded)
        # An unreadable file may be readable by now; a repository's own files are not watched; rules that just
        # changed may have changed again behind the same stamp.
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
        """Remove a directory, but not those below it."""
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
        """Yield the bare directories in which names were added or removed since, with one stat for each."""
        top = os.fsencode(root) + b"/"
        return (path for path, stamp in self._bare.items() if _stamp_directory(top + path) != stamp)

    def linked_files(self) -> list[RelPath]:
        """List the files that have, or had, other hard links."""
        return [join(path, name) for path, names in self._linked.items() for name in names]

    def is_linked(self, path: RelPath) -> bool:
        """Return whether a file has, or had, other hard links."""
        return path.rpartition(b"/")[2] in self._linked.get(parent_of(path), ())

    def find_inodes(self, inodes: set[int]) -> Iterator[RelPath]:
        """Yield the covered files, and the `.gitignore` files, with one of these inodes."""
        for directory in self._directories.values():
            if directory.ignore_stamp and directory.ignore_stamp[3] in inodes:
                yield join(directory.path, GIT_IGNORE)
            if not inodes.isdisjoint(directory.stats[3::STAMP_SIZE]):
                for row, name in enumerate(directory.names):
                    if directory.file_inode(row) in inodes:
                        yield join(directory.path, name)

    def below(self, path: RelPath) -> Iterator[RelPath]:
        """Yield a directory and all directories below it."""
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
    return stamp_of_directory(status)
