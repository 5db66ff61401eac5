"""The files that hold rules, in a worktree and around it, read and turned into policies.

`.shadowtreeignore` at the root, `.gitignore` at every level and above the root up to the top of the
repository, `info/exclude` and the index of every repository, the global excludes file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import NO_TOMBSTONES, ROOT, RelPath, Tombstones, from_text, join, to_text
from shadowtree.capture.directories import GIT_IGNORE, Directory
from shadowtree.capture.facts import RootRules, veil
from shadowtree.capture.rules.coverage import Policy, TrackedNames, count_left_out
from shadowtree.capture.rules.git_repository import (
    Repository,
    find_around,
    find_at,
    index_stamp,
    read_exclude,
    read_global_excludes,
)
from shadowtree.config.settings import HEAVY_DIRS, Settings
from shadowtree.system.files import Cursor, Unreadable, read_small_file, stamp_of, why_unreadable

OWN_IGNORE = b".shadowtreeignore"
_MAX_RULES_SIZE = 1 << 20

IndexState = tuple[tuple[int, ...] | None, bytes, str | None]
"""The stamp of an index, the digest of the names it tracks, and why it could not be read."""


@frozen
class Surroundings:
    """What a scan has to know from outside the worktree."""

    home: str | None
    config_home: str | None
    private: frozenset[tuple[int, int]]
    """Device and inode of directories that are never covered: the store, and the directory of stores."""
    tombstones: Tombstones = NO_TOMBSTONES
    """What was purged."""


def find_inodes(*paths: str) -> frozenset[tuple[int, int]]:
    """Return the inodes of directories, by whatever names; one that is not there is left out."""
    found = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


class RuleFiles:
    """The rules of one worktree during one scan, and what was noticed while they were read."""

    def __init__(
        self, worktree: str, settings: Settings, surroundings: Surroundings, known: dict[bytes, IndexState]
    ) -> None:
        self._worktree = os.fsencode(worktree)
        self._settings = settings
        self._surroundings = surroundings
        self._known_indexes = known
        self._root_rules: RootRules | None = None
        self._root_indexes: list[TrackedNames] = []
        limit = settings.max_untracked_dir_files
        self._limit_key = b"%d " % limit if limit else b""
        self.tombstones = surroundings.tombstones
        self.indexes: dict[bytes, IndexState] = {}
        """For each repository what is known of its index."""
        self.unread: dict[RelPath, str] = {}
        """For each directory below which rules are not known: the file of them that cannot be read."""
        self.warnings: list[str] = []

    def read_root(self, fd: int) -> None:
        """Read the rules that no directory below the root has; before any policy is made."""
        worktree, home, config_home = self._worktree, self._surroundings.home, self._surroundings.config_home
        repositories = list(find_around(worktree))
        nearest = repositories[0] if repositories else None
        heavy_dirs = sorted({*HEAVY_DIRS, *self._settings.heavy_dirs})
        self._root_rules = RootRules(
            own_text=self._read_rules(fd, OWN_IGNORE, ROOT),
            global_text=self._read_outside(
                lambda: read_global_excludes(
                    nearest,
                    home=os.fsencode(home) if home else None,
                    config_home=os.fsencode(config_home) if config_home else None,
                ),
                ROOT,
            ),
            exclude_text=None if nearest is None else self._read_outside(lambda: read_exclude(nearest), ROOT),
            around=[] if nearest is None else self._read_around(nearest),
            heavy_dirs=[from_text(name) for name in heavy_dirs],
            max_file_size=self._settings.max_file_size,
        )
        for repository in repositories:
            index = TrackedNames(repository, outer=_place_in(repository, worktree), base=ROOT)
            self._root_indexes.append(self._note_index(index))

    def read_gitignore(self, directory: Directory, fd: int) -> None:
        """Read the `.gitignore` of a directory that has one."""
        directory.ignore_stamp = stamp_gitignore(fd)
        directory.ignore_text = self._read_rules(fd, GIT_IGNORE, directory.path) or None
        if directory.path in self.unread:
            # The next scan reads it again, whatever its stamp says.
            directory.ignore_stamp = ()

    def make_policy(self, above: Policy | None, directory: Directory) -> Policy:
        """Make the rules inside a directory whose own rule files are known."""
        if above is None:
            assert self._root_rules is not None
            return Policy.root(
                self._root_rules,
                directory.ignore_text,
                indexes=self._root_indexes,
                purged_key=self._limit_key + self.tombstones.key(),
            )
        index = exclude_text = None
        if directory.has_repository:
            repository = find_at(os.path.join(self._worktree, directory.path))
            if repository is not None:
                index = self._note_index(TrackedNames(repository, outer=b"", base=directory.path))
                exclude_text = self._read_outside(lambda: read_exclude(repository), directory.path) or None
        name, mode, ignore_text = directory.name, directory.mode, directory.ignore_text
        return Policy(above, name, mode, ignore_text=ignore_text, exclude_text=exclude_text, index=index)

    def root_rules(self) -> RootRules:
        """Return what has to be recorded beside the tree."""
        assert self._root_rules is not None
        return self._root_rules.veil(self.tombstones.blobs)

    def tells_purged(self, directory: Directory) -> bool:
        """Return whether the rules of a directory have a text that was purged."""
        texts = (directory.ignore_text, directory.exclude_text)
        return any(text is not None and veil(text, self.tombstones.blobs) != text for text in texts)

    def _note_index(self, index: TrackedNames) -> TrackedNames:
        """Return the digest of an index, without reading it again if it has not changed."""
        key = index.repository.git_dir
        stamp, digest, problem = self._known_indexes.get(key, (None, b"", None))
        # The stamp is taken before the index is read: what comes between shows next time.
        now = index_stamp(index.repository)
        if stamp is None or stamp != now:
            digest, problem = index.tracked.digest, index.tracked.problem
        if problem is not None:
            self.warnings.append(f"{os.fsdecode(key)}: {problem}")
        self.indexes[key] = (now, digest, problem)
        index.digest = digest
        return index

    def _read_rules(self, fd: int, name: bytes, directory: RelPath) -> bytes:
        """Read a file with rules in a directory of the worktree."""
        try:
            found = read_small_file(fd, name, _MAX_RULES_SIZE)
        except Unreadable as error:
            self._note_unread(to_text(join(directory, name)), error.reason, directory)
            return b""
        text = found[1] if found is not None else b""
        left_out = count_left_out(text)
        if left_out:
            self.warnings.append(f"{left_out} rules in {to_text(name)} were not applied: there are too many")
        return text

    def _read_outside(self, read: Callable[[], bytes], directory: RelPath) -> bytes:
        """Read rules that a repository or the user has for a directory and all below it."""
        try:
            return read()
        except OSError as error:
            self._note_unread(to_text(os.fsencode(error.filename)), why_unreadable(error), directory)
            return b""

    def _read_around(self, repository: Repository) -> list[tuple[bytes, bytes]]:
        """Read the `.gitignore` of each directory between a repository's top and a worktree inside it.

        Gives these texts, each with the name of the next directory below.
        """
        around: list[tuple[bytes, bytes]] = []
        directory = repository.top
        for name in _place_in(repository, self._worktree).split(b"/")[:-1]:
            found = None
            try:
                with Cursor(os.fsdecode(directory)) as cursor:
                    found = read_small_file(cursor.enter(ROOT), GIT_IGNORE, _MAX_RULES_SIZE)
            except WorktreeFailed as error:
                if not isinstance(error.__cause__, FileNotFoundError | PermissionError):
                    raise
            except Unreadable as error:
                self._note_unread(to_text(os.path.join(directory, GIT_IGNORE)), error.reason, ROOT)
            around.append((name, b"" if found is None else found[1]))
            directory = os.path.join(directory, name)
        return around

    def _note_unread(self, file: str, reason: str, directory: RelPath) -> None:
        self.unread.setdefault(directory, file)
        self.warnings.append(f"the ignore rules in {file} were not applied: {reason}")


def stamp_gitignore(fd: int) -> tuple[int, ...] | None:
    """Return a cheap mark that changes with the `.gitignore` of a directory; None if there is none."""
    try:
        return stamp_of(os.stat(GIT_IGNORE, dir_fd=fd, follow_symlinks=False))
    except OSError:
        return None


def _place_in(repository: Repository, root: bytes) -> bytes:
    """Return where a worktree is in a repository around it, with a slash at the end; empty at its top."""
    return root[len(repository.top.rstrip(b"/")) + 1 :] + b"/" if repository.top != root else b""
