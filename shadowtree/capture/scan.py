"""Scan a worktree: which directories changed, which files must be read, and which paths are left out.

A scan reads no file contents except ignore rules, and writes nothing; known directories are copied before
they are changed. A directory whose cached listing is still good costs one stat per covered file; rules are
matched only where names were added or removed, or where the rules themselves changed.

    root ──▶ visit directory ──▶ cached listing good? ─▶ stamps equal? ─▶ the cached one, as it is
                                        │ no                   │ no
                                        ▼                      ▼
                                  list and judge          note what must be read

With a scope, directories that it does not name are taken as known, unless their rules changed. On top of a
census, such a scan does not even visit them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.limits import DEFAULT_LIMITS, MOST_STAMPED
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    PathState,
    RelPath,
    ancestors,
    by_directory,
    join,
    parent_of,
    to_text,
)
from shadowtree.capture.directories import NORMAL, STAMP_SIZE, Census, Directory, RulesKey, leaves_out
from shadowtree.capture.facts import HOLDS_STORES
from shadowtree.capture.list_directory import (
    Lister,
    are_rules_same,
    doubt,
    find_aliases,
    is_listing_good,
    look_again,
    look_at_names,
)
from shadowtree.capture.rules.coverage import Policy
from shadowtree.capture.rules.sources import RuleFiles, Surroundings
from shadowtree.capture.stat_cache import StatCache
from shadowtree.config.settings import Settings
from shadowtree.system.files import (
    CHANGED_TYPE,
    Cursor,
    Unreadable,
    Vanished,
    stamp_of_directory,
    why_unreadable,
)
from shadowtree.timeline.sqlite.unprotected import encode_stamps

AddWatch = Callable[[RelPath, int], bool]
"""Adds a watch on a directory, given by its path and an open descriptor, before the directory is read."""


@frozen
class ScanInput:
    """The input of a scan, in addition to the disk."""

    worktree: str
    settings: Settings
    surroundings: Surroundings
    cache: StatCache | None
    """The cache of the last scan; None if there is no store yet."""
    was_covered: Callable[[RelPath], bool]
    """Returns whether any recorded tree covers a path that is above a limit."""
    clock_ns: Callable[[], int] = DEFAULT_LIMITS.file_clock_ns


class ScanScope:
    """What a scan must check; everything else is taken as known."""

    def __init__(
        self,
        paths: Iterable[RelPath] = (),
        directories: Iterable[RelPath] = (),
        trees: Iterable[RelPath] = (),
        suspects: Iterable[RelPath] = (),
    ) -> None:
        self.names = by_directory(paths)
        """By directory, the names at which a change was reported."""
        self.suspects = by_directory(suspects)
        """By directory, the names that may have changed without a report."""
        self.directories = frozenset(directories)
        """The directories to check with all files in them."""
        self.trees = frozenset(trees)
        """The directories to check with everything below them."""
        ends = {*self.names, *self.suspects, *self.directories, *self.trees}
        self.to_visit = {ROOT, *ends, *(above for path in ends for above in ancestors(path))}
        """All of these, and every directory above one of them."""


class Scan:
    """The result of a scan."""

    def __init__(self, started_ns: int, rule_files: RuleFiles, rest: Census | None) -> None:
        self.started_ns = started_ns
        self.rule_files = rule_files
        self.directories: dict[RelPath, Directory] = {}
        """The directories that were visited, each after its parent."""
        self.changed: set[RelPath] = set()
        """Those of them that differ from the known ones."""
        self.gone: frozenset[RelPath] = frozenset()
        """Known directories that no longer exist."""
        self.rules: dict[RelPath, RulesKey] = {}
        """The rules in force at the root and at the top of each repository."""
        self.aliases: set[int] = set()
        """The inodes of files that may have changed through an uncovered hard link."""
        self.has_lost = False
        """Something that was listed was gone before it was read: it may be where the scan had been before."""
        self.is_whole = rest is None
        """Whether every directory was visited."""
        self._rest = Census() if rest is None else rest
        """The known directories: those not visited are taken from here."""

    def find(self, path: RelPath) -> Directory | None:
        """Return a directory as it is now; None if it does not exist or is not entered."""
        visited = self.directories.get(path)
        if visited is not None or path in self.gone:
            return visited
        return self._rest.get(path)

    def changed_directories(self) -> list[Directory]:
        """List the directories that differ from the known ones, each after its parent."""
        return [directory for path, directory in self.directories.items() if path in self.changed]

    def state_of(self, path: RelPath) -> PathState | None:
        """Return the state of a covered file, or of a directory with covered files; None if it is neither."""
        directory = self.find(path)
        if directory is not None and directory.tree is not None:
            return DIRECTORY
        above = self.find(parent_of(path))
        row = None if above is None else above.find_file(path.rpartition(b"/")[2])
        return None if above is None or row is None else above.file_state(row)

    def has_other_links(self, path: RelPath) -> bool:
        """Return whether a covered file had other hard links when the scan checked it, or may have any."""
        directory, name = self.directories.get(parent_of(path)), path.rpartition(b"/")[2]
        return directory is None or directory.find_file(name) is None or name in directory.linked

    def known(self, path: RelPath) -> Directory | None:
        """Return a directory as it was last recorded, if the scan was made on top of a census."""
        return self._rest.get(path)

    def take(self, path: RelPath) -> Directory:
        """Return a visited directory to be changed, as a copy of the known one."""
        if path not in self.changed:
            self.directories[path] = self.directories[path].copy()
            self.changed.add(path)
        return self.directories[path]

    def children(self, directory: Directory) -> Iterator[Directory]:
        """Yield the directories in a directory, the last one first."""
        for name, _ in reversed(directory.subdirectories):
            path = join(directory.path, name)
            child = self.find(path)
            assert child is not None, "what is looked into is found"
            yield child

    @property
    def files(self) -> int:
        """How many files and links are covered."""
        replaced = sum(len(d.names) for d in self._replaced())
        return self._rest.files + sum(len(d.names) for d in self.directories.values()) - replaced

    @property
    def bytes(self) -> int:
        """How many bytes are covered in the visited directories."""
        return sum(sum(directory.stats[2::STAMP_SIZE]) for directory in self.directories.values())

    @property
    def pending_bytes(self) -> int:
        """How many bytes must be read."""
        return sum(d.file_stamp(row)[2] for d in self.directories.values() for row in d.pending)

    @property
    def ignored(self) -> int:
        """How many files and directories the rules leave out."""
        replaced = sum(len(d.excluded) for d in self._replaced())
        return self._rest.ignored + sum(len(d.excluded) for d in self.directories.values()) - replaced

    def uncovered_files(self) -> Iterator[RelPath]:
        """Yield the files that the rules or their size leave out, by directory, but none in ignored ones."""
        visited = {path for path, directory in self.directories.items() if directory.uncovered_files}
        for path in sorted(visited | self._rest.with_uncovered):
            directory = self.find(path)
            if directory is not None:
                yield from (join(path, name) for name in directory.uncovered_files)

    def skipped(self) -> list[tuple[str, str]]:
        """List the paths that the rules would have covered, with the reason why they are not, sorted.

        Every scan visits the directories with skipped paths, so the list is complete. Stores are not listed.
        """
        return sorted(
            (to_text(join(directory.path, name) if name else directory.path), reason)
            for directory in self.directories.values()
            for name, reason in directory.skipped
            if reason != HOLDS_STORES
        )

    def _replaced(self) -> Iterator[Directory]:
        """Yield the known versions of the directories that were visited or are gone."""
        for path in (*self.directories, *self.gone):
            known = self._rest.get(path)
            if known is not None:
                yield known


def scan_worktree(
    given: ScanInput,
    *,
    census: Census | None = None,
    scope: ScanScope | None = None,
    add_watch: AddWatch | None = None,
) -> Scan:
    """Scan a worktree, or only what the scope names; a census requires a scope."""
    indexes = {} if given.cache is None else given.cache.info("indexes") or {}
    rule_files = RuleFiles(given.worktree, given.settings, given.surroundings, indexes)
    scan = Scan(given.clock_ns(), rule_files, census)
    trees = frozenset({ROOT}) if scope is None else scope.trees
    has_limit = given.settings.max_untracked_dir_files > 0
    with Cursor(given.worktree) as cursor:
        scanner = _Scanner(given, census, scope, add_watch, cursor, scan)
        waiting: list[tuple[RelPath, int, Policy | None, bool, bool]] = [(ROOT, NORMAL, None, False, False)]
        # Each directory is visited after its parent, in a loop instead of a recursion, for any depth.
        while waiting:
            path, mode, above, is_whole, has_new_rules = waiting.pop()
            is_whole = is_whole or path in trees
            found, why = None, scanner.why_left_out(path, mode, above) if has_limit else None
            if why is None:
                try:
                    found = scanner.visit(path, mode, above, is_whole=is_whole)
                except (Vanished, Unreadable, OSError) as error:
                    why = scanner.why_lost(path, error)
            if found is None:
                scanner.lose(path, why)
                continue
            directory, policy, is_changed = found
            scan.directories[path] = directory
            if is_changed:
                scan.changed.add(path)
            is_whole = is_whole or scanner.is_unsure_below(directory)
            has_new_rules = scanner.update_rules(directory, policy) or has_new_rules
            for name, sub_mode in reversed(directory.subdirectories):
                below = join(path, name)
                if is_whole or has_new_rules or scanner.leads_to(below, sub_mode):
                    waiting.append((below, sub_mode, policy, is_whole, has_new_rules))
        scan.gone = frozenset(scanner.find_gone())
    return scan


def stamp_uncovered(scan: Scan, worktree: str) -> bytes:
    """Stamp the first files that a scan left out, to find out later which changed. No content is read."""
    top = os.fsencode(worktree) + b"/"

    def look() -> Iterator[tuple[RelPath, os.stat_result]]:
        for path in scan.uncovered_files():
            try:
                status = os.stat(top + path, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield path, status

    return encode_stamps(islice(look(), MOST_STAMPED))


def may_exist(cursor: Cursor, directory: RelPath, name: bytes) -> bool:
    """Return whether something may be at a name: False only if it is certain that nothing is."""
    try:
        os.stat(name, dir_fd=cursor.enter(directory), follow_symlinks=False)
    except (Vanished, FileNotFoundError, NotADirectoryError):
        return False
    except (Unreadable, OSError):
        return True
    return True


class _Scanner:
    """Visits the directories of one scan."""

    def __init__(
        self,
        given: ScanInput,
        census: Census | None,
        scope: ScanScope | None,
        add_watch: AddWatch | None,
        cursor: Cursor,
        scan: Scan,
    ) -> None:
        self._root = given.worktree
        self._private = given.surroundings.private
        self._own_store = given.surroundings.own_store
        self._census = census
        self._known = given.cache if census is None else census
        self._rule_files = scan.rule_files
        self._lister = Lister(given.settings, scan.rule_files, given.was_covered)
        self._cursor = cursor
        self._scope = scope
        self._add_watch = add_watch
        self._scan = scan

    def visit(
        self, path: RelPath, mode: int, above: Policy | None, *, is_whole: bool
    ) -> tuple[Directory, Policy, bool] | None:
        """Return a directory, the rules inside it and whether it changed; None: it is the store itself."""
        cached = None if self._known is None else self._known.get(path)
        if path == ROOT:
            self._rule_files.read_root(self._cursor.enter(ROOT))
        if cached is not None and cached.mode == mode and not is_whole and self._is_trusted(path):
            trusted = self._trust(cached, above)
            if trusted is not None:
                return trusted
        fd = self._cursor.enter(path)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) in self._own_store:
            return None
        if (status.st_dev, status.st_ino) in self._private:
            raise Unreadable(HOLDS_STORES)
        if self._add_watch is not None and (not leaves_out(mode) or (cached is not None and cached.names)):
            # Before anything is read, so that every later change is reported.
            self._add_watch(path, fd)
            status = os.fstat(fd)
        stamp = stamp_of_directory(status)
        told = () if self._scope is None else self._scope.names.get(path, ())
        if cached is not None and told:
            cached = doubt(cached, told)
        if cached is not None and is_listing_good(cached, stamp, mode, fd):
            policy = self._rule_files.make_policy(above, cached)
            if are_rules_same(cached, policy):
                again = look_again(cached, fd)
                if again is not None:
                    self._note_aliases(again, told, fd)
                    return again, policy, again is not cached
        directory, policy = self._lister.list_directory(path, mode, above, fd, cached)
        directory.stamp = stamp
        is_told_all = not is_whole and self._was_watched(path, mode)
        self._note_aliases(directory, told if is_told_all else directory.uncovered(), fd)
        return directory, policy, True

    def _is_trusted(self, path: RelPath) -> bool:
        """Return whether a directory may be taken as known, apart from the names in the scope."""
        if self._scope is None or path in self._scope.directories:
            return False
        return self._census is not None or path not in self._scope.to_visit

    def _trust(self, cached: Directory, above: Policy | None) -> tuple[Directory, Policy, bool] | None:
        """Return a known directory, checking only the scope's names; None if all of it must be checked."""
        assert self._scope is not None
        path = cached.path
        policy = self._rule_files.make_policy(above, cached)
        if not are_rules_same(cached, policy):
            return None
        told, suspects = self._scope.names.get(path, ()), self._scope.suspects.get(path, ())
        if not told and not suspects:
            return cached, policy, False
        fd = self._cursor.enter(path)
        again = look_at_names(cached, policy, told, suspects, fd)
        if again is None:
            return None
        self._note_aliases(again, told, fd)
        return again, policy, again is not cached

    def _was_watched(self, path: RelPath, mode: int) -> bool:
        """Return whether a directory was watched since it was recorded, so that every change was reported."""
        census = self._census
        return census is not None and path not in census.unwatched and census.has(path, mode)

    def _note_aliases(self, directory: Directory, names: Collection[bytes], fd: int) -> None:
        """Note files that may have changed through uncovered names; a whole scan checks all files anyway."""
        if names and self._census is not None:
            self._scan.aliases |= find_aliases(directory, names, fd)

    def why_left_out(self, path: RelPath, mode: int, above: Policy | None) -> str | None:
        """Return why a directory is left out as a whole; None if it is not."""
        return self._lister.why_left_out(path, mode, above, self._cursor)

    def why_lost(self, path: RelPath, error: Exception) -> str | None:
        """Return why a directory cannot be read; None if it does not exist, which the scan notes."""
        if isinstance(error, Unreadable):
            return error.reason
        if isinstance(error, OSError):
            return why_unreadable(error)
        name = path.rpartition(b"/")[2]
        if name and may_exist(self._cursor, parent_of(path), name):
            return CHANGED_TYPE
        self._scan.has_lost = True
        return None

    def lose(self, path: RelPath, reason: str | None) -> None:
        """Remove a directory from its parent, which must be listed again next time."""
        if path == ROOT:
            raise WorktreeFailed(self._root, reason or "it no longer exists")
        above, name = self._scan.take(parent_of(path)), path.rpartition(b"/")[2]
        above.subdirectories = tuple([sub for sub in above.subdirectories if sub[0] != name])
        above.skipped = tuple([skip for skip in above.skipped if skip[0] != name])
        if reason is not None and not leaves_out(above.mode) and name not in above.excluded:
            above.skip(name, reason)
        above.stamp = None
        above.is_stale = True

    # Which directories come next

    def leads_to(self, path: RelPath, mode: int) -> bool:
        """Return whether a directory must be visited: it is in the scope, new, or under other rules."""
        if self._census is None or self._scope is None or path in self._scope.to_visit:
            return True
        return not self._census.has(path, mode)

    def is_unsure_below(self, directory: Directory) -> bool:
        """Return whether the directories in a directory may have been replaced by others without a report."""
        if self._census is None or directory.path not in self._census.unwatched:
            return False
        known = self._census.get(directory.path)
        return known is None or known.stamp is None or known.stamp != directory.stamp

    def update_rules(self, directory: Directory, policy: Policy) -> bool:
        """Note the rules of a repository; return whether the rules changed from this directory on."""
        path, census = directory.path, self._census
        if path == ROOT or directory.has_repository:
            self._scan.rules[path] = policy.rules_key, policy.tracked_key
        if census is None or census.rules.get(path) != self._scan.rules.get(path):
            return True
        known = census.get(path)
        return (
            known is None
            or known.ignore_text != directory.ignore_text
            or known.has_repository != directory.has_repository
        )

    def find_gone(self) -> Iterator[RelPath]:
        """Yield the known directories that no longer exist."""
        if self._census is None:
            known = () if self._known is None else self._known.paths()
            yield from (path for path in known if self._scan.find(path) is None)
            return
        for directory in self._scan.directories.values():
            old = self._census.get(directory.path)
            if old is not None and old.subdirectories != directory.subdirectories:
                now = {name for name, _ in directory.subdirectories}
                for name, _ in old.subdirectories:
                    if name not in now:
                        yield from self._census.below(join(directory.path, name))
