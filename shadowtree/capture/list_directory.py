"""List a directory on disk and judge its names by the rules, or check a cached listing again.

Only names, stamps and rules are read here. A cached directory is copied before it is changed.
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
from shadowtree.system.files import (
    INODE_MASK,
    Cursor,
    Unreadable,
    Vanished,
    clamp,
    stamp_of,
    why_unreadable,
)

DOT_GIT = b".git"
"""The entry of a repository's own files, never covered. Other spellings are skipped as `FORBIDDEN_NAME`."""
FORBIDDEN_NAME = "git does not allow this name"
NO_FILE = "not a regular file or link"
_TOO_MANY = "too many files"
_LIMIT = " limit"


class Lister:
    """Lists directories for one scan. A path above a limit is still covered if it `was_covered` before."""

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
        listing = _Listing(directory, policy)
        purged = self._purged.get(path, ())
        for name, entry in listed:
            if name == DOT_GIT or is_own_temporary(name):
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            if name in purged:
                listing.leave_purged(name, is_directory=is_directory)
            elif is_directory:
                listing.judge_directory(name)
            elif (verdict := policy.judge_file(name)) == LEFT_OUT:
                listing.exclude(name, is_directory=False)
            else:
                self._look_at_file(listing, name, fd, verdict)
        directory.missing = tuple(policy.find_missing(names))
        listing.finish()
        depends = directory.excluded or directory.skipped or directory.missing
        if depends or mode in (EXCLUDED, HEAVY):
            directory.tracked_key = policy.tracked_key
        _note_files(directory, listing.files, cached, self._rule_files.tombstones.blobs)
        directory.linked += _find_linked_rules(directory, fd)
        return directory, policy

    def why_left_out(self, path: RelPath, mode: int, above: Policy | None, cursor: Cursor) -> str | None:
        """Return why a directory is left out as a whole: git tracks nothing in it, and it has many files.

        Outside a repository, the user's own directories cannot be told from others, so the limit does not
        apply. Directories below an untracked directory were counted with it.
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
        """Count the files that the rules cover in a directory and below; 0 if it must not be left out.

        It must not if it contains a repository, which may track files, or a name that a `!` rule brings back.
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

    def _look_at_file(self, listing: _Listing, name: bytes, fd: int, verdict: int) -> None:
        """Stat a file that the rules cover, and note it as covered, or as skipped for another reason."""
        directory, policy = listing.directory, listing.policy
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            listing.skipped.append((name, why_unreadable(error)))
            return
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
                listing.uncovered_files.append(name)
        if problem is not None:
            listing.skipped.append((name, problem))
            return
        if verdict == TRACKED:
            directory.tracked_key = policy.tracked_key
        listing.files.append((name, status))


def is_limit(reason: str) -> bool:
    """Return whether a path was skipped because of a limit, so that a `!` rule can bring it back."""
    return reason.startswith(_TOO_MANY) or reason.endswith(_LIMIT)


def _describe_excess(size: int, limit: int) -> str:
    found, most = describe_size(size), describe_size(limit)
    if found == most:
        found, most = f"{size:,} bytes", f"{limit:,} byte"
    return f"{found} is over the {most}{_LIMIT}"


class _Listing:
    """The names in a directory as they are judged."""

    def __init__(self, directory: Directory, policy: Policy) -> None:
        self.directory = directory
        self.policy = policy
        self.files: list[tuple[bytes, os.stat_result]] = []
        """The covered files and links."""
        self.subdirectories: list[tuple[bytes, int]] = []
        self.excluded: list[bytes] = []
        self.uncovered_files: list[bytes] = []
        self.skipped: list[tuple[bytes, str]] = []

    def exclude(self, name: bytes, *, is_directory: bool) -> None:
        """Note a name that the rules leave out, unless they leave out the whole directory."""
        if not leaves_out(self.directory.mode):
            self.excluded.append(name)
            if not is_directory:
                self.uncovered_files.append(name)

    def leave_purged(self, name: bytes, *, is_directory: bool) -> None:
        """Leave out a purged name; list it as skipped if the rules would have covered it."""
        if is_directory:
            is_left_out = leaves_out(self.policy.judge_directory(name)[0])
        else:
            is_left_out = self.policy.judge_file(name) == LEFT_OUT
        if is_left_out:
            self.exclude(name, is_directory=is_directory)
        else:
            self.skipped.append((name, PURGED))

    def judge_directory(self, name: bytes) -> None:
        """Note whether a directory is entered, and under which rules."""
        mode, is_entered = self.policy.judge_directory(name)
        if is_entered and is_forbidden(name, is_directory=True):
            if not leaves_out(mode):
                self.skipped.append((name, FORBIDDEN_NAME))
            return
        if leaves_out(mode):
            self.exclude(name, is_directory=True)
        if is_entered:
            self.subdirectories.append((name, mode))

    def finish(self) -> None:
        """Put everything but the files into the directory."""
        self.directory.subdirectories = tuple(sorted(self.subdirectories))
        self.directory.excluded = tuple(sorted(self.excluded))
        self.directory.uncovered_files = tuple(sorted(self.uncovered_files))
        self.directory.skipped = tuple(self.skipped)


def _note_files(
    directory: Directory,
    files: list[tuple[bytes, os.stat_result]],
    cached: Directory | None,
    purged: Collection[bytes],
) -> None:
    """Sort the covered files, and note which of them must be read.

    All files that are still there keep their ids, except purged ones, and the directory keeps its tree: new
    objects are stored as versions of these.
    """
    files.sort(key=itemgetter(0))
    directory.names = tuple([name for name, _ in files])
    directory.linked = tuple([name for name, status in files if status.st_nlink > 1])
    for _, status in files:
        directory.stats.extend(stamp_of(status))
    directory.ids = bytearray(ID_SIZE * len(files))
    known = cached or Directory(directory.path, directory.mode)
    directory.tree, directory.facts = known.tree, known.facts
    pending = []
    for row, name in enumerate(directory.names):
        old = known.find_file(name)
        is_same = old is not None and known.file_stamp(old) == directory.file_stamp(row)
        is_purged = old is not None and known.file_id(old) in purged
        if old is not None and not is_purged:
            directory.set_id(row, known.file_id(old))
        if not is_same or is_purged:
            pending.append(row)
    directory.pending = tuple(pending)


def is_listing_good(cached: Directory, stamp: DirectoryStamp, mode: int, fd: int) -> bool:
    """Return whether the names in a directory and its own rules are unchanged, and nothing was skipped."""
    if cached.stamp != stamp or cached.mode != mode or cached.skipped:
        return False
    return cached.ignore_stamp is None or stamp_gitignore(fd) == cached.ignore_stamp


def are_rules_same(cached: Directory, policy: Policy) -> bool:
    """Return whether no verdict in a directory can have changed."""
    if cached.rules_key != policy.rules_key:
        return False
    if cached.tracked_key is not None or not policy.has_new_index:
        return cached.tracked_key in (None, policy.tracked_key)
    # No index decided anything here so far, but one that changed may track a path that is missing.
    return not policy.find_missing({*cached.names, *(name for name, _ in cached.subdirectories)})


def doubt(cached: Directory, told: Collection[bytes]) -> Directory:
    """Return the directory with the reported files marked to be read again, whatever their stamps."""
    rows = [row for name in told if (row := cached.find_file(name)) is not None]
    if not rows:
        return cached
    doubtful = cached.with_stats(cached.stats[:])
    for row in rows:
        doubtful.smudge(row)
    return doubtful


def look_again(cached: Directory, fd: int) -> Directory | None:
    """Stat the files of a directory whose names are unchanged; return None if one is gone or not a file.

    This is the hot loop: in an unchanged worktree, all time is spent here.
    """
    look, mask = os.stat, INODE_MASK
    # Adding five numbers at once to a list is three times faster than to an array.
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
    # `linked` is neither recorded nor remembered, so it is set on the cached directory too.
    cached.linked = (*linked, *_find_linked_rules(cached, fd))
    try:
        stats = array("q", numbers)
    except OverflowError:
        stats = array("q", map(clamp, numbers))
    if stats == cached.stats:
        return cached
    return _note_changes(cached, stats)


def _find_linked_rules(directory: Directory, fd: int) -> tuple[bytes, ...]:
    """Return the `.gitignore` if it has other hard links and is not a covered file."""
    if directory.ignore_stamp is None or directory.find_file(GIT_IGNORE) is not None:
        return ()
    return (GIT_IGNORE,) if _find_shared_inodes([GIT_IGNORE], fd) else ()


def find_aliases(directory: Directory, names: Collection[bytes], fd: int) -> set[int]:
    """Return the inodes of the files with several hard links among these names that are not covered.

    A covered file may have such an inode, and change through the uncovered name.
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
    rows = enumerate(range(0, len(new), size))
    directory.pending = tuple([row for row, at in rows if new[at : at + size] != old[at : at + size]])
    kinds = {stat.S_IFMT(directory.file_mode(row)) for row in directory.pending}
    return directory if kinds <= {stat.S_IFREG, stat.S_IFLNK} else None


def look_at_names(
    cached: Directory, policy: Policy, told: Collection[bytes], suspects: Collection[bytes], fd: int
) -> Directory | None:
    """Check only some names; return None if the directory must be listed.

    The files in `told` were reported by the watcher and are read again, whatever their stamps. `suspects`
    were not reported, and are read only if their stamps changed.
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
            # Rules apply whether or not their file is covered.
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
    directory.pending = tuple(sorted(found))
    directory.linked = tuple(sorted(linked))
    return directory


def _is_no_matter(cached: Directory, policy: Policy, name: bytes, status: os.stat_result | None) -> bool:
    """Return whether a report about an uncovered name leaves the listing as it is."""
    if status is not None:
        is_left_out = cached.is_excluded(name) and not _is_looked_into(cached, name)
        return is_left_out and not stat.S_ISDIR(status.st_mode) and policy.judge_file(name) == LEFT_OUT
    if leaves_out(cached.mode):
        # Names left out there are not listed: this one may have existed, and an index may track it.
        return False
    # It came and went; a tracked path that was missing is still missing.
    is_skipped = any(skipped == name for skipped, _ in cached.skipped)
    return not (is_skipped or cached.is_excluded(name) or _is_looked_into(cached, name))


def _is_looked_into(cached: Directory, name: bytes) -> bool:
    return any(sub == name for sub, _ in cached.subdirectories)
