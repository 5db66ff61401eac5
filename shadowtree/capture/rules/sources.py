"""Read the files that hold rules, in a worktree and around it, and make policies of them.

`.shadowtreeignore` at the root, `.gitignore` at every level and above the root up to the top of the
repository, `info/exclude` and the index of every repository, the global excludes file.
"""

from __future__ import annotations

import os
import stat
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
from shadowtree.system.files import Cursor, Unreadable, is_racy, read_small_file, stamp_of, why_unreadable

OWN_IGNORE = b".shadowtreeignore"
_MAX_RULES_SIZE = 1 << 20

IndexState = tuple[tuple[int, ...] | None, bytes, str | None]
"""The stamp of an index, the digest of the names it tracks, and why it could not be read."""


@frozen
class Surroundings:
    """The input of a scan from outside the worktree."""

    home: str | None
    config_home: str | None
    private: frozenset[tuple[int, int]]
    """Device and inode of directories that are never covered: the store, and the directory of stores."""
    tombstones: Tombstones = NO_TOMBSTONES
    """The purged paths and contents."""
    own_store: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of the store: no record of this worktree can ever cover it, so it leaves no trace."""


def find_inodes(*paths: str) -> frozenset[tuple[int, int]]:
    """Return device and inode of each directory that exists."""
    found = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


class RuleFiles:
    """The rules of one worktree during one scan, and the problems found while reading them."""

    def __init__(
        self, worktree: str, settings: Settings, surroundings: Surroundings, known: dict[bytes, IndexState]
    ) -> None:
        self._worktree = os.fsencode(worktree)
        self._settings = settings
        self._surroundings = surroundings
        self._known_indexes = known
        self._owner: int | None = None
        """Who owns the worktree."""
        self._root_rules: RootRules | None = None
        self._root_indexes: list[TrackedNames] = []
        limit = settings.max_untracked_dir_files
        self._limit_key = b"%d " % limit if limit else b""
        self.tombstones = surroundings.tombstones
        self.indexes: dict[bytes, IndexState] = {}
        """The state of each repository's index, by its git directory."""
        self.unread: dict[RelPath, str] = {}
        """By directory whose rules are not fully known, the first file of rules that could not be read."""
        self.warnings: list[str] = []

    def read_root(self, fd: int) -> None:
        """Read the rules at the root and from outside the worktree, before any policy is made."""
        worktree, home, config_home = self._worktree, self._surroundings.home, self._surroundings.config_home
        self._owner = os.fstat(fd).st_uid
        repositories = list(find_around(worktree, self._note_foreign))
        nearest = repositories[0] if repositories else None
        heavy_dirs = sorted({*HEAVY_DIRS, *self._settings.heavy_dirs})
        self._root_rules = RootRules(
            own_text=self._read_own(fd),
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
        """Return the policy inside a directory whose own `.gitignore` is known."""
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
            top = os.path.join(self._worktree, directory.path)
            repository = find_at(top, self._owner, self._note_foreign)
            if repository is not None:
                index = self._note_index(TrackedNames(repository, outer=b"", base=directory.path))
                exclude_text = self._read_outside(lambda: read_exclude(repository), directory.path) or None
        name, mode, ignore_text = directory.name, directory.mode, directory.ignore_text
        return Policy(above, name, mode, ignore_text=ignore_text, exclude_text=exclude_text, index=index)

    def root_rules(self) -> RootRules:
        """Return the rules to be recorded with the tree, without purged texts."""
        assert self._root_rules is not None
        return self._root_rules.veil(self.tombstones.blobs)

    def lasting_indexes(self, started_ns: int) -> dict[bytes, IndexState]:
        """Return the states of indexes, without stamps that may stay the same if an index changes again."""
        lasting: dict[bytes, IndexState] = {}
        for key, (stamp, digest, problem) in self.indexes.items():
            if stamp is not None and is_racy(max(stamp[0::5]), max(stamp[1::5]), started_ns):
                stamp = None
            lasting[key] = (stamp, digest, problem)
        return lasting

    def tells_purged(self, directory: Directory) -> bool:
        """Return whether the rules of a directory contain a purged text."""
        texts = (directory.ignore_text, directory.exclude_text)
        return any(text is not None and veil(text, self.tombstones.blobs) != text for text in texts)

    def _note_index(self, index: TrackedNames) -> TrackedNames:
        """Set the digest of an index, which is only read if it changed; return the index."""
        key = index.repository.git_dir
        stamp, known, problem = self._known_indexes.get(key, (None, b"", None))
        # The stamp is taken before the index is read, so the next scan notices a change in between.
        now, index.digest = index_stamp(index.repository), known
        if stamp is None or stamp != now:
            index.digest, problem = index.tracked.digest, index.tracked.problem
        index.is_new = index.digest != known
        if problem is not None:
            self.warnings.append(f"{os.fsdecode(key)}: {problem}")
        self.indexes[key] = (now, index.digest, problem)
        return index

    def _read_own(self, fd: int) -> bytes:
        """Read `.shadowtreeignore`; warn of anything else in its place, which is known to hold no rules."""
        with suppress(OSError):
            if not stat.S_ISREG(os.stat(OWN_IGNORE, dir_fd=fd, follow_symlinks=False).st_mode):
                self._warn_of_unapplied(to_text(OWN_IGNORE), "it is not a regular file")
        return self._read_rules(fd, OWN_IGNORE, ROOT)

    def _read_rules(self, fd: int, name: bytes, directory: RelPath) -> bytes:
        """Read a file of rules in a directory of the worktree; warn if any of its lines cannot be used."""
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
        """Read the rules of a repository or of the user for a directory and everything below it."""
        try:
            return read()
        except OSError as error:
            self._note_unread(to_text(os.fsencode(error.filename)), why_unreadable(error), directory)
            return b""

    def _read_around(self, repository: Repository) -> list[tuple[bytes, bytes]]:
        """Read the `.gitignore` of each directory from a repository's top down to the worktree's parent.

        Return these texts, each after the name of the next directory below.
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
        self._warn_of_unapplied(file, reason)

    def _warn_of_unapplied(self, file: str, reason: str) -> None:
        self.warnings.append(f"the ignore rules in {file} were not applied: {reason}")

    def _note_foreign(self, top: bytes) -> None:
        """Warn of a repository that somebody else owns: its patterns could hide files from snapshots."""
        self.warnings.append(
            f"the git repository in {to_text(top)} was ignored, with its index and excludes: "
            "it belongs to another user"
        )


def stamp_gitignore(fd: int) -> tuple[int, ...] | None:
    """Return the stamp of a directory's `.gitignore`; None if there is none."""
    try:
        return stamp_of(os.stat(GIT_IGNORE, dir_fd=fd, follow_symlinks=False))
    except OSError:
        return None


def _place_in(repository: Repository, root: bytes) -> bytes:
    """Return where a worktree is in a repository around it, with a slash at the end; empty at its top."""
    return root[len(repository.top.rstrip(b"/")) + 1 :] + b"/" if repository.top != root else b""
