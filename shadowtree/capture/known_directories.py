"""Every directory of a worktree as it was last recorded, in memory, and what a scan that trusts it looks at.

A watcher tells of which paths something may have happened. All others are as they are in the census, so a
scan looks at what the watcher names, at what no watcher can vouch for, and at the ways that lead there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from shadowtree.base.paths import ROOT, RelPath, ancestors, join, parent_of
from shadowtree.capture.entries import FORCED, NORMAL, STAMP_SIZE, Directory, DirectoryStamp
from shadowtree.capture.facts import GIT_IGNORE

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

    def __len__(self) -> int:
        return len(self._directories)

    def get(self, path: RelPath) -> Directory | None:
        """Give a directory as it was last recorded."""
        return self._directories.get(path)

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
        if not is_watched and not is_doubtful and _is_bare(directory) and directory.stamp is not None:
            self._bare[path] = directory.stamp
        elif is_doubtful or not is_watched:
            self.restless.add(path)
        if not is_watched:
            self.unwatched.add(path)
        if linked:
            self._linked[path] = linked

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

    def find_stirred(self, root: str) -> Iterator[RelPath]:
        """Name the ignored directories in which names came or went since, by a glance at each."""
        top = os.fsencode(root) + b"/"
        for path, stamp in self._bare.items():
            try:
                status = os.stat(top + path, follow_symlinks=False)
            except OSError:
                yield path
                continue
            if (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) != stamp:
                yield path

    def linked_files(self) -> Iterator[RelPath]:
        """Name the files that have other names too, or had."""
        for path, names in self._linked.items():
            for name in names:
                yield join(path, name)

    def is_checked(self, path: RelPath) -> bool:
        """Tell whether each scan finds out by itself what changed in a directory."""
        return path in self.restless or path in self.unwatched

    def is_linked(self, path: RelPath) -> bool:
        """Tell whether a file has other names too, or had."""
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


def _is_bare(directory: Directory) -> bool:
    """Tell whether the listing of a directory is all that matters of it."""
    is_ignored = directory.mode not in (NORMAL, FORCED)
    return is_ignored and not directory.names and directory.ignore_stamp is None


class Outlook:
    """What a scan has to look at; everything else is as it is known."""

    def __init__(
        self,
        paths: Iterable[RelPath] = (),
        directories: Iterable[RelPath] = (),
        trees: Iterable[RelPath] = (),
        suspects: Iterable[RelPath] = (),
    ) -> None:
        self.names = _by_directory(paths)
        """In which directories something may have happened, at which names."""
        self.suspects = _by_directory(suspects)
        """In which directories something may have happened of which nobody tells, at which names."""
        self.directories = frozenset(directories)
        """Which to look at with all files in them."""
        self.trees = frozenset(trees)
        """Which to look at with all that is below them."""
        ends = {*self.names, *self.suspects, *self.directories, *self.trees}
        self.ways = {ROOT, *ends, *(above for path in ends for above in ancestors(path))}
        """These, and every directory that leads to one of them."""


def _by_directory(paths: Iterable[RelPath]) -> dict[RelPath, set[bytes]]:
    names: dict[RelPath, set[bytes]] = {}
    for path in paths:
        names.setdefault(parent_of(path), set()).add(path.rpartition(b"/")[2])
    return names
