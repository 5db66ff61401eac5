"""Look at a worktree: which directories changed, which files must be read, what is left out.

A scan reads no file contents but ignore rules, and writes nothing. A directory whose cached listing still
holds costs one look per covered file; rules are matched only where names came or went, or where the rules
themselves changed.

    root ─▶ look at directory ─▶ cached listing good? ─▶ stamps equal? ─▶ the cached one, as it is
                                        │ no                   │ no
                                        ▼                      ▼
                                  list and judge          note what must be read
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Collection
from time import time_ns

from shadowtree.coverage import COVERED, LEFT_OUT, TRACKED, Policy
from shadowtree.directory import (
    EXCLUDED,
    FORCED,
    HEAVY,
    ID_SIZE,
    NORMAL,
    STAMP_SIZE,
    Directory,
    DirectoryStamp,
)
from shadowtree.errors import WorktreeFailed
from shadowtree.facts import GIT_IGNORE
from shadowtree.paths import ROOT, RelPath, is_dot_git, is_forbidden, is_own_temporary, join, to_text
from shadowtree.rulefiles import RuleFiles, Surroundings, stamp_gitignore
from shadowtree.settings import Settings
from shadowtree.statcache import StatCache
from shadowtree.worktree import INODE_MASK, Cursor, Unreadable, Vanished, stamp_of, why_unreadable

TOO_BIG = "too big"
FORBIDDEN_NAME = "git forbids the name"
CHANGED_TYPE = "changed its type while it was read"
NO_FILE = "neither file nor link"


class Scan:
    """What a scan found."""

    def __init__(self, started_ns: int, rule_files: RuleFiles) -> None:
        self.started_ns = started_ns
        self.rule_files = rule_files
        self.directories: list[Directory] = []
        """Every one comes after the one above it."""
        self.parents: list[int] = []
        """For each directory where the one above it is in the list; the root has itself."""
        self.changed: list[bool] = []
        """Whether a directory differs from what is cached."""

    @property
    def files(self) -> int:
        """How many files and links are covered."""
        return sum(len(directory.names) for directory in self.directories)

    @property
    def bytes(self) -> int:
        """How many bytes are covered."""
        return sum(sum(directory.stats[2::STAMP_SIZE]) for directory in self.directories)

    @property
    def pending_files(self) -> int:
        """How many files have to be read."""
        return sum(len(directory.pending) for directory in self.directories)

    @property
    def pending_bytes(self) -> int:
        """How many bytes have to be read."""
        return sum(d.file_size(row) for d in self.directories for row in d.pending)

    @property
    def ignored(self) -> int:
        """How many files and directories the rules leave out."""
        return sum(len(directory.excluded) for directory in self.directories)

    def skipped(self) -> list[tuple[str, str]]:
        """List the paths that the rules would have covered, with the reason why they are not, sorted."""
        return sorted(
            (to_text(join(directory.path, name) if name else directory.path), reason)
            for directory in self.directories
            for name, reason in directory.skipped
        )


def scan_worktree(
    root: str,
    settings: Settings,
    surroundings: Surroundings,
    cache: StatCache | None,
    was_covered: Callable[[RelPath], bool],
    only: Collection[RelPath] | None = None,
) -> Scan:
    """Look at all of a worktree. `was_covered` tells whether any tree has a file above the size limit.

    With `only`, other directories than these are taken to be as they are cached, unless the rules for them
    changed.
    """
    with Cursor(root) as cursor:
        return _Scanner(root, settings, surroundings, cache, was_covered, cursor, only).run()


class _Scanner:
    """One scan."""

    def __init__(
        self,
        root: str,
        settings: Settings,
        surroundings: Surroundings,
        cache: StatCache | None,
        was_covered: Callable[[RelPath], bool],
        cursor: Cursor,
        only: Collection[RelPath] | None,
    ) -> None:
        self._only = only
        self._root = os.fsencode(root)
        self._settings = settings
        self._surroundings = surroundings
        self._cache = cache
        self._was_covered = was_covered
        self._cursor = cursor
        known = cache.info("indexes") if cache is not None else None
        self._rule_files = RuleFiles(self._root, settings, surroundings, known or {})
        self._scan = Scan(time_ns(), self._rule_files)

    def run(self) -> Scan:
        """Visit every directory, each after the one above it; a loop, for any depth."""
        waiting: list[tuple[RelPath, int, int, Policy | None]] = [(ROOT, NORMAL, 0, None)]
        while waiting:
            path, mode, parent, above = waiting.pop()
            found = self._visit(path, mode, parent, above)
            if found is None:
                continue
            directory, policy, is_changed = found
            number = len(self._scan.directories)
            self._scan.directories.append(directory)
            self._scan.parents.append(parent)
            self._scan.changed.append(is_changed)
            for name, sub_mode in reversed(directory.subdirectories):
                waiting.append((join(path, name), sub_mode, number, policy))
        return self._scan

    def _visit(
        self, path: RelPath, mode: int, parent: int, above: Policy | None
    ) -> tuple[Directory, Policy, bool] | None:
        cached = self._cache.get(path) if self._cache is not None else None
        if cached is not None and self._only is not None and path not in self._only and cached.mode == mode:
            policy = self._rule_files.make_policy(above, cached)
            if _are_rules_same(cached, policy):
                return cached, policy, False
        try:
            fd = self._cursor.enter(path)
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) in self._surroundings.private:
                self._lose(parent, path, None)
                return None
            stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            if cached is not None and _is_listing_good(cached, stamp, mode, fd):
                policy = self._rule_files.make_policy(above, cached, fd)
                if _are_rules_same(cached, policy):
                    again = _look_again(cached, fd)
                    if again is not None:
                        return again, policy, again is not cached
            directory, policy = self._list(path, mode, above, fd, cached)
        except Vanished:
            self._lose(parent, path, CHANGED_TYPE if self._is_there(parent, path) else None)
        except Unreadable as error:
            self._lose(parent, path, error.reason)
        except OSError as error:
            self._lose(parent, path, why_unreadable(error))
        else:
            directory.stamp = stamp
            return directory, policy, True
        return None

    def _is_there(self, parent: int, path: RelPath) -> bool:
        """Tell whether something is at the path of a directory that could not be opened as one."""
        if path == ROOT:
            return False
        try:
            fd = self._cursor.enter(self._scan.directories[parent].path)
            os.stat(path.rpartition(b"/")[2], dir_fd=fd, follow_symlinks=False)
        except (Vanished, FileNotFoundError, NotADirectoryError):
            return False
        except (Unreadable, OSError):
            return True
        return True

    def _lose(self, parent: int, path: RelPath, reason: str | None) -> None:
        """Take a directory out of the one above it, which has to be listed again next time."""
        if path == ROOT:
            raise WorktreeFailed(os.fsdecode(self._root), reason or "it is not there any more")
        above, name = self._scan.directories[parent], path.rpartition(b"/")[2]
        above.subdirectories = [sub for sub in above.subdirectories if sub[0] != name]
        above.skipped = [skip for skip in above.skipped if skip[0] != name]
        if reason is not None and above.mode in (NORMAL, FORCED) and name not in above.excluded:
            above.skipped.append((name, reason))
        above.stamp = None
        above.is_stale = True
        self._scan.changed[parent] = True

    # Listing

    def _list(
        self, path: RelPath, mode: int, above: Policy | None, fd: int, cached: Directory | None
    ) -> tuple[Directory, Policy]:
        """List a directory and judge every name in it."""
        directory = Directory(path, mode)
        with os.scandir(fd) as entries:
            listed = [(os.fsencode(entry.name), entry) for entry in entries]
        names = {name for name, _ in listed}
        directory.has_repository = b".git" in names and path != ROOT
        if GIT_IGNORE in names:
            self._rule_files.read_gitignore(directory, fd)
        policy = self._rule_files.make_policy(above, directory, fd)
        directory.rules_key = policy.rules_key
        directory.exclude_text = policy.exclude_text if path != ROOT else None
        files: list[tuple[bytes, os.stat_result]] = []
        for name, entry in listed:
            if is_dot_git(name) or is_own_temporary(name):
                continue
            if entry.is_dir(follow_symlinks=False):
                _judge_directory(directory, policy, name)
            else:
                self._judge_file(directory, policy, name, fd, files)
        directory.missing = policy.find_missing(names)
        directory.subdirectories.sort()
        directory.excluded.sort()
        directory.tracked.sort()
        depends = directory.excluded or directory.skipped or directory.tracked or directory.missing
        if depends or mode in (EXCLUDED, HEAVY):
            directory.tracked_key = policy.tracked_key
        _note_files(directory, files, cached)
        return directory, policy

    def _judge_file(
        self,
        directory: Directory,
        policy: Policy,
        name: bytes,
        fd: int,
        files: list[tuple[bytes, os.stat_result]],
    ) -> None:
        verdict = policy.judge_file(name)
        if verdict == LEFT_OUT:
            if directory.mode in (NORMAL, FORCED):
                directory.excluded.append(name)
            return
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            directory.skipped.append((name, why_unreadable(error)))
            return
        problem = self._find_problem(directory, policy, name, status, verdict)
        if problem is not None:
            directory.skipped.append((name, problem))
            return
        files.append((name, status))
        if verdict == TRACKED:
            directory.tracked.append(name)

    def _find_problem(
        self, directory: Directory, policy: Policy, name: bytes, status: os.stat_result, verdict: int
    ) -> str | None:
        """Say why a file that the rules cover is left out all the same."""
        kind = stat.S_IFMT(status.st_mode)
        if is_forbidden(name, is_link=kind == stat.S_IFLNK):
            return FORBIDDEN_NAME
        if kind == stat.S_IFLNK:
            return None
        if kind != stat.S_IFREG:
            return NO_FILE
        if verdict == COVERED and status.st_size > self._settings.max_file_size:
            path = join(directory.path, name)
            if not policy.is_tracked(name) and not self._was_covered(path):
                return f"{TOO_BIG}: {status.st_size} bytes"
        return None


def _judge_directory(directory: Directory, policy: Policy, name: bytes) -> None:
    mode, is_entered = policy.judge_directory(name)
    if is_entered and is_forbidden(name, is_directory=True):
        if mode in (NORMAL, FORCED):
            directory.skipped.append((name, FORBIDDEN_NAME))
        return
    if mode not in (NORMAL, FORCED) and directory.mode in (NORMAL, FORCED):
        directory.excluded.append(name)
    if is_entered:
        directory.subdirectories.append((name, mode))


def _note_files(
    directory: Directory, files: list[tuple[bytes, os.stat_result]], cached: Directory | None
) -> None:
    """Put the covered files in order; those that are as they were when last read keep their id."""
    files.sort(key=_by_name)
    directory.names = [name for name, _ in files]
    for _, status in files:
        directory.stats.extend(stamp_of(status))
    directory.ids = bytearray(ID_SIZE * len(files))
    directory.pending = list(range(len(files)))
    if cached is not None:
        _take_over_ids(directory, cached)


def _take_over_ids(directory: Directory, cached: Directory) -> None:
    known = {name: row for row, name in enumerate(cached.names)}
    pending = []
    for row, name in enumerate(directory.names):
        old = known.get(name)
        if old is not None and _stamp_at(cached, old) == _stamp_at(directory, row):
            directory.set_id(row, bytes(cached.ids[old * ID_SIZE : (old + 1) * ID_SIZE]))
        else:
            pending.append(row)
    directory.pending = pending


def _by_name(file: tuple[bytes, os.stat_result]) -> bytes:
    return file[0]


def _stamp_at(directory: Directory, row: int) -> array[int]:
    return directory.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE]


def _is_listing_good(cached: Directory, stamp: DirectoryStamp, mode: int, fd: int) -> bool:
    """Tell whether the names in a directory, and its own rules, are as they were."""
    if cached.stamp != stamp or cached.mode != mode or cached.skipped:
        return False
    return cached.ignore_stamp is None or stamp_gitignore(fd) == cached.ignore_stamp


def _are_rules_same(cached: Directory, policy: Policy) -> bool:
    return cached.rules_key == policy.rules_key and cached.tracked_key in (None, policy.tracked_key)


def _look_again(cached: Directory, fd: int) -> Directory | None:
    """Look at the files of a directory whose names are as they were; None if that was wrong.

    This is the hot loop: in a worktree in which nothing happened, all time is spent here.
    """
    look, mask = os.stat, INODE_MASK
    # A list takes five numbers at once three times faster than an array does.
    numbers: list[int] = []
    try:
        for name in cached.names:
            s = look(name, dir_fd=fd, follow_symlinks=False)
            numbers += (s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino & mask, s.st_mode)
    except OSError:
        return None
    stats = array("q", numbers)
    if stats == cached.stats:
        return cached
    return _note_changes(cached, stats)


def _note_changes(cached: Directory, stats: array[int]) -> Directory | None:
    directory = cached.with_stats(stats)
    # Compared as bytes, because slices of an array are slow.
    old, new = cached.stats.tobytes(), stats.tobytes()
    size = STAMP_SIZE * stats.itemsize
    directory.pending = [
        row for row, at in enumerate(range(0, len(new), size)) if new[at : at + size] != old[at : at + size]
    ]
    kinds = {stat.S_IFMT(directory.file_mode(row)) for row in directory.pending}
    return directory if kinds <= {stat.S_IFREG, stat.S_IFLNK} else None
