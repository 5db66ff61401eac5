"""One directory as it is on the disk: listed and judged by the rules, or looked at again.

Nothing is read here but names, stamps and rules; what is cached is never changed, a copy is given instead.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Collection
from operator import itemgetter

from shadowtree.base.errors import describe_size
from shadowtree.base.paths import PURGED, ROOT, RelPath, by_directory, is_forbidden, is_own_temporary, join
from shadowtree.capture.directories import (
    EXCLUDED,
    FORCED,
    GIT_IGNORE,
    HEAVY,
    ID_SIZE,
    NORMAL,
    STAMP_SIZE,
    Directory,
    DirectoryStamp,
    leaves_out,
)
from shadowtree.capture.rules.coverage import BROUGHT_BACK, COVERED, LEFT_OUT, TRACKED, Policy
from shadowtree.capture.rules.sources import RuleFiles, stamp_gitignore
from shadowtree.config.settings import Settings
from shadowtree.system.files import INODE_MASK, Cursor, Unreadable, Vanished, stamp_of, why_unreadable

DOT_GIT = b".git"
"""The entry of a repository's own files, which are never covered. Other spellings are `FORBIDDEN_NAME`."""
FORBIDDEN_NAME = "git does not allow this name"
NO_FILE = "not a regular file or link"
_TOO_MANY = "too many files"
_LIMIT = " limit"


class Lister:
    """Lists directories for one scan. `was_covered` tells whether any tree has what is above a limit."""

    def __init__(
        self, settings: Settings, rule_files: RuleFiles, was_covered: Callable[[RelPath], bool]
    ) -> None:
        self._max_file_size = settings.max_file_size
        self._max_files = settings.max_untracked_dir_files
        self._rule_files = rule_files
        self._was_covered = was_covered
        self._purged = by_directory(rule_files.tombstones.paths)

    def list_directory(
        self, path: RelPath, mode: int, above: Policy | None, fd: int, cached: Directory | None
    ) -> tuple[Directory, Policy]:
        """List a directory and judge every name in it."""
        directory = Directory(path, mode)
        with os.scandir(fd) as entries:
            listed = [(os.fsencode(entry.name), entry) for entry in entries]
        names = {name for name, _ in listed}
        directory.has_repository = DOT_GIT in names and path != ROOT
        if GIT_IGNORE in names:
            self._rule_files.read_gitignore(directory, fd)
        policy = self._rule_files.make_policy(above, directory)
        policy.build_matchers()
        directory.rules_key = policy.rules_key
        directory.exclude_text = policy.exclude_text if path != ROOT else None
        files: list[tuple[bytes, os.stat_result]] = []
        purged = self._purged.get(path, ())
        for name, entry in listed:
            if name == DOT_GIT or is_own_temporary(name):
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            if name in purged:
                _leave_purged(directory, policy, name, is_directory=is_directory)
            elif is_directory:
                _judge_directory(directory, policy, name)
            elif (verdict := policy.judge_file(name)) == LEFT_OUT:
                _exclude(directory, name, is_directory=False)
            else:
                status = self._look_at_file(directory, policy, name, fd, verdict)
                if status is not None:
                    files.append((name, status))
        directory.missing = policy.find_missing(names)
        directory.subdirectories.sort()
        directory.excluded.sort()
        directory.uncovered_files.sort()
        depends = directory.excluded or directory.skipped or directory.missing
        if depends or mode in (EXCLUDED, HEAVY):
            directory.tracked_key = policy.tracked_key
        _note_files(directory, files, cached, self._rule_files.tombstones.blobs)
        directory.linked += _find_linked_rules(directory, fd)
        return directory, policy

    def why_left_out(self, path: RelPath, mode: int, above: Policy | None, cursor: Cursor) -> str | None:
        """Say why a directory is left out as a whole, if it is: git does not track it, and it has many files.

        Without a repository nothing tells the user's own directories from others, and the limit does not
        count. What is in a directory that does not count by itself was counted with it.
        """
        if mode != NORMAL or above is None or not above.indexes:
            return None
        is_part = above.path != ROOT and not above.tracks_below(above.path)
        if is_part or above.tracks_below(path) or self._count_files(path, above, cursor) <= self._max_files:
            return None
        if self._was_covered(RelPath(path + b"/")):
            return None
        return f"{_TOO_MANY}: more than {self._max_files:,}, none of them tracked by git"

    def _count_files(self, path: RelPath, above: Policy, cursor: Cursor) -> int:
        """Count the files that the rules cover in a directory and below; 0 if some are there for good.

        That is what a repository in it may track, and what a `!` rule brings back.
        """
        count, waiting = 0, [(path, above)]
        while waiting:
            path, above = waiting.pop()
            directory = Directory(path, NORMAL)
            try:
                fd = cursor.enter(path)
                with os.scandir(fd) as entries:
                    listed = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
            except (OSError, Unreadable, Vanished):
                continue
            if (DOT_GIT, True) in listed or (DOT_GIT, False) in listed:
                return 0
            if (GIT_IGNORE, False) in listed:
                self._rule_files.read_gitignore(directory, fd)
            policy = self._rule_files.make_policy(above, directory)
            for name, is_directory in listed:
                verdict = policy.judge_directory(name)[0] if is_directory else policy.judge_file(name)
                if verdict == (FORCED if is_directory else BROUGHT_BACK):
                    return 0
                if is_directory and not leaves_out(verdict):
                    waiting.append((join(path, name), policy))
                count += not is_directory and verdict != LEFT_OUT
        return count

    def _look_at_file(
        self, directory: Directory, policy: Policy, name: bytes, fd: int, verdict: int
    ) -> os.stat_result | None:
        """Look at a file that the rules cover; None if it is left out all the same, or is gone."""
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            directory.skipped.append((name, why_unreadable(error)))
            return None
        kind = stat.S_IFMT(status.st_mode)
        problem = None
        if is_forbidden(name, is_link=kind == stat.S_IFLNK):
            problem = FORBIDDEN_NAME
        elif kind not in (stat.S_IFREG, stat.S_IFLNK):
            problem = NO_FILE
        elif verdict == COVERED and kind == stat.S_IFREG and status.st_size > self._max_file_size:
            path = join(directory.path, name)
            if not policy.is_tracked(name) and not self._was_covered(path):
                problem = _describe_excess(status.st_size, self._max_file_size)
                directory.uncovered_files.append(name)
        if problem is not None:
            directory.skipped.append((name, problem))
            return None
        if verdict == TRACKED:
            directory.tracked_key = policy.tracked_key
        return status


def is_limit(reason: str) -> bool:
    """Return whether a setting leaves something out that a `!` rule can bring back."""
    return reason.startswith(_TOO_MANY) or reason.endswith(_LIMIT)


def _describe_excess(size: int, limit: int) -> str:
    found, most = describe_size(size), describe_size(limit)
    if found == most:
        found, most = f"{size:,} bytes", f"{limit:,} byte"
    return f"{found} is over the {most}{_LIMIT}"


def _exclude(directory: Directory, name: bytes, *, is_directory: bool) -> None:
    """Note what the rules leave out, unless they leave out all that is here."""
    if not leaves_out(directory.mode):
        directory.excluded.append(name)
        if not is_directory:
            directory.uncovered_files.append(name)


def _leave_purged(directory: Directory, policy: Policy, name: bytes, *, is_directory: bool) -> None:
    """Leave out what was purged; if the rules would have covered it, it is listed as skipped."""
    if is_directory:
        is_left_out = leaves_out(policy.judge_directory(name)[0])
    else:
        is_left_out = policy.judge_file(name) == LEFT_OUT
    if is_left_out:
        _exclude(directory, name, is_directory=is_directory)
    else:
        directory.skipped.append((name, PURGED))


def _judge_directory(directory: Directory, policy: Policy, name: bytes) -> None:
    mode, is_entered = policy.judge_directory(name)
    if is_entered and is_forbidden(name, is_directory=True):
        if not leaves_out(mode):
            directory.skipped.append((name, FORBIDDEN_NAME))
        return
    if leaves_out(mode):
        _exclude(directory, name, is_directory=True)
    if is_entered:
        directory.subdirectories.append((name, mode))


def _note_files(
    directory: Directory,
    files: list[tuple[bytes, os.stat_result]],
    cached: Directory | None,
    purged: Collection[bytes],
) -> None:
    """Put the covered files in order; those that are as they were when last read keep their id.

    The others have it too until they are read, and the directory its tree: what is new comes in their place.
    """
    files.sort(key=itemgetter(0))
    directory.names = [name for name, _ in files]
    directory.linked = [name for name, status in files if status.st_nlink > 1]
    for _, status in files:
        directory.stats.extend(stamp_of(status))
    directory.ids = bytearray(ID_SIZE * len(files))
    known = cached or Directory(directory.path, directory.mode)
    directory.tree, directory.facts = known.tree, known.facts
    for row, name in enumerate(directory.names):
        old = known.find_file(name)
        is_same = old is not None and known.file_stamp(old) == directory.file_stamp(row)
        is_purged = old is not None and known.file_id(old) in purged
        if old is not None and not is_purged:
            directory.set_id(row, known.file_id(old))
        if not is_same or is_purged:
            directory.pending.append(row)


def is_listing_good(cached: Directory, stamp: DirectoryStamp, mode: int, fd: int) -> bool:
    """Return whether the names in a directory, and its own rules, are as they were."""
    if cached.stamp != stamp or cached.mode != mode or cached.skipped:
        return False
    return cached.ignore_stamp is None or stamp_gitignore(fd) == cached.ignore_stamp


def are_rules_same(cached: Directory, policy: Policy) -> bool:
    """Return whether no verdict in a directory can be another one than it was."""
    return cached.rules_key == policy.rules_key and cached.tracked_key in (None, policy.tracked_key)


def doubt(cached: Directory, told: Collection[bytes]) -> Directory:
    """Have the files of which something was told read again, whatever their stamps say."""
    rows = [row for name in told if (row := cached.find_file(name)) is not None]
    if not rows:
        return cached
    doubtful = cached.with_stats(cached.stats[:])
    for row in rows:
        doubtful.smudge(row)
    return doubtful


def look_again(cached: Directory, fd: int) -> Directory | None:
    """Look at the files of a directory whose names are as they were; None if that was wrong.

    This is the hot loop: in a worktree in which nothing happened, all time is spent here.
    """
    look, mask = os.stat, INODE_MASK
    # A list takes five numbers at once three times faster than an array does.
    numbers: list[int] = []
    linked = []
    try:
        for name in cached.names:
            s = look(name, dir_fd=fd, follow_symlinks=False)
            numbers += (s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino & mask, s.st_mode)
            if s.st_nlink > 1:
                linked.append(name)
    except OSError:
        return None
    # Not part of what is recorded or remembered, so the cached one may know it at once.
    cached.linked = linked + _find_linked_rules(cached, fd)
    stats = array("q", numbers)
    if stats == cached.stats:
        return cached
    return _note_changes(cached, stats)


def _find_linked_rules(directory: Directory, fd: int) -> list[bytes]:
    """Name the rules of a directory that have other names too, if they are not among the covered files."""
    if directory.ignore_stamp is None or directory.find_file(GIT_IGNORE) is not None:
        return []
    return [GIT_IGNORE] if _find_shared_inodes([GIT_IGNORE], fd) else []


def find_aliases(directory: Directory, names: Collection[bytes], fd: int) -> set[int]:
    """Return the inodes of the files that have other names too, by the names here that are not covered.

    A covered file may be one of them, and change by such a name.
    """
    return _find_shared_inodes([name for name in names if directory.find_file(name) is None], fd)


def _find_shared_inodes(names: Collection[bytes], fd: int) -> set[int]:
    inodes = set()
    for name in names:
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            continue
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            inodes.add(status.st_ino & INODE_MASK)
    return inodes


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


def look_at_names(
    cached: Directory, policy: Policy, told: Collection[bytes], suspects: Collection[bytes], fd: int
) -> Directory | None:
    """Look at some names only; None: the directory has to be listed.

    Files of which something was `told` have to be read, whatever their stamps say. Of `suspects` nothing was
    told, and their stamps count.
    """
    found: dict[int, os.stat_result] = {}
    for name in {*told, *suspects}:
        if is_own_temporary(name) or (name == DOT_GIT and not cached.path):
            continue
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            status = None
        except OSError:
            return None
        row = cached.find_file(name)
        if name == GIT_IGNORE and (status is not None or cached.ignore_stamp is not None):
            # Rules count whether they are covered or not.
            return None
        if row is None:
            if not _is_no_matter(cached, policy, name, status):
                return None
        elif status is None or stat.S_IFMT(cached.file_mode(row)) != stat.S_IFMT(status.st_mode):
            return None
        elif name in told or stamp_of(status) != cached.file_stamp(row):
            found[row] = status
    return _with_found(cached, found) if found else cached


def _with_found(cached: Directory, found: dict[int, os.stat_result]) -> Directory:
    directory, linked = cached.with_stats(cached.stats[:]), set(cached.linked)
    for row, status in found.items():
        directory.set_stamp(row, stamp_of(status))
        linked.discard(cached.names[row])
        if status.st_nlink > 1:
            linked.add(cached.names[row])
    directory.pending = sorted(found)
    directory.linked = sorted(linked)
    return directory


def _is_no_matter(cached: Directory, policy: Policy, name: bytes, status: os.stat_result | None) -> bool:
    """Return whether what happened at a name that is not covered changes nothing in a listing."""
    if status is not None:
        is_left_out = cached.is_excluded(name) and not _is_looked_into(cached, name)
        return is_left_out and not stat.S_ISDIR(status.st_mode) and policy.judge_file(name) == LEFT_OUT
    if leaves_out(cached.mode):
        # What is left out there is not listed: it may have been there, and an index may track it.
        return False
    # It came and went; what an index tracks and is missing is missing still.
    is_skipped = any(skipped == name for skipped, _ in cached.skipped)
    return not (is_skipped or cached.is_excluded(name) or _is_looked_into(cached, name))


def _is_looked_into(cached: Directory, name: bytes) -> bool:
    return any(sub == name for sub, _ in cached.subdirectories)
