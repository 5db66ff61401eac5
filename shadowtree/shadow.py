"""The front door: a worktree together with its store.

`Shadow` takes the lock, calls the rules in order and records what they found. It decides nothing about
files itself.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from shadowtree import disk
from shadowtree import store as stores
from shadowtree.errors import (
    BroadWorktree,
    InvalidInput,
    NotWrapped,
    OutOfSpace,
    ShadowError,
    UnknownTree,
    UnsafePath,
    WorktreeTooBig,
)
from shadowtree.journal import TreeRecord, create_journal
from shadowtree.layout import StoreLayout, find_broadness, is_inside
from shadowtree.lock import Lock
from shadowtree.model import ChangedPath, FileDiff, Patch, Skipped, Snapshot, Status
from shadowtree.objects import Objects, Scratch, TooLarge
from shadowtree.opened import OpenStore
from shadowtree.packs import PackWriter
from shadowtree.patch import compare
from shadowtree.places import Places
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan, scan_worktree
from shadowtree.settings import Settings
from shadowtree.snapshot import Progress, build_trees, read_files, settle
from shadowtree.system import free_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

StrPath = str | os.PathLike[str]
_DIFF_BYTES = 256 << 20
"""How much of what changed a diff looks at; of files beyond that it tells only that they changed."""
_HEX = frozenset("0123456789abcdef")


class Shadow:
    """A worktree with its store. Wraps the worktree when something is first recorded.

    Usable from several threads; one act at a time is done, in this process and among all.
    """

    def __init__(
        self,
        worktree: StrPath,
        *,
        store: StrPath | None = None,
        session: str = "default",
        watch: bool = False,
        settings: Mapping[str, object] | Settings | None = None,
        allow_broad: bool = False,
    ) -> None:
        if watch:
            raise InvalidInput("watching is not there yet")
        self._settings = Settings.of(settings)
        self._session = _checked_name(session, "session")
        self._allow_broad = allow_broad
        self._worktree = _real_directory(worktree)
        self._places = Places(os.environ)
        self._store = self._places.store_of(self._worktree, store)
        around = stores.find_around(self._worktree)
        if around is None and is_inside(self._worktree, self._store):
            around = self._store
        if around is not None:
            raise UnsafePath(self._worktree, f"it lies in the store {around}")
        self._opened: OpenStore | None = None
        self._mutex = RLock()

    @classmethod
    def adopt(
        cls,
        worktree: StrPath,
        store: StrPath,
        *,
        session: str = "default",
        settings: Mapping[str, object] | Settings | None = None,
        allow_broad: bool = False,
    ) -> Shadow:
        """Let the store of a worktree that was moved belong to where it is now, with all it recorded.

        A store in the directory of stores is moved to the place where the worktree looks for it.
        """
        if os.path.lexists(store) and not stores.exists(os.path.realpath(store)):
            raise InvalidInput(f"{os.fspath(store)} is no store")
        shadow = cls(worktree, store=store, session=session, settings=settings, allow_broad=allow_broad)
        shadow._adopt()
        return shadow

    @property
    def worktree(self) -> Path:
        """The directory that is wrapped, by its real path."""
        return _path(self._worktree)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return _path(self._store)

    @property
    def session(self) -> str:
        """The session whose timeline this is."""
        return self._session

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return stores.exists(self._store)

    def __enter__(self) -> Shadow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every file. The shadow can be used again and opens what it needs."""
        with self._mutex:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def track(self) -> str:
        """Record the present state of everything covered, and give its tree id."""
        return self.take_snapshot().tree

    def take_snapshot(self, *, progress: Progress | None = None) -> Snapshot:
        """Record the present state of everything covered.

        When this returns, tree and record are durable. `progress` is called with how many files were read
        and how many have to be.
        """
        with self._mutex:
            first_scan = None if self.is_wrapped else self._wrap()
            with self._locked() as opened:
                try:
                    return self._take_snapshot(opened, first_scan, progress)
                except BaseException:
                    self._forget(opened, is_new=first_scan is not None)
                    raise

    def patch(self, tree: str) -> Patch:
        """List what changed from a recorded tree to the present state. Records nothing."""
        with self._mutex:
            before = self._record_of(self._open(), tree)
            with self._present() as (objects, after):
                return compare(_read(objects, before), after)

    def diff(self, a: str | None = None, b: str | None = None) -> list[FileDiff]:
        """Show how two recorded trees differ, path by path.

        Without `b` the present state is compared, without `a` the tree recorded last. Records nothing.
        """
        with self._mutex:
            opened = self._open()
            before = opened.journal.last_tree() if a is None else self._record_of(opened, a)
            if before is None:
                raise NotWrapped(self._worktree, "nothing is recorded of it")
            if b is not None:
                after = _read(opened.objects, self._record_of(opened, b))
                return _diff(_read(opened.objects, before), after, opened.objects)
            with self._present(file_bytes=_DIFF_BYTES) as (objects, present):
                return _diff(_read(objects, before), present, objects)

    def status(self) -> Status:
        """Tell where the shadow stands and what is not protected. Records nothing."""
        with self._mutex:
            opened = self._open()
            opened.refresh()
            last = opened.journal.last_tree()
            scan = self._scan(opened)
            changed = scan.files
            if last is not None:
                with self._present(scan) as (objects, after):
                    changed = len(compare(_read(objects, last), after).files)
            return Status(
                worktree=self._worktree,
                store=self._store,
                session=self._session,
                head=None,
                open=None,
                undone=[],
                changed=changed,
                ignored=scan.ignored,
                watching=False,
                skipped=_skipped(scan),
            )

    # Wrapping and opening

    def _adopt(self) -> None:
        """Bind the store to the worktree, then move it; when interrupted, the same again finishes it."""
        found, usual = self._store, self._places.usual_store(self._worktree)
        is_usual_place = os.path.dirname(found) == os.path.dirname(usual)
        if not stores.exists(found):
            if not is_usual_place or not stores.belongs_to(usual, self._worktree):
                raise InvalidInput(f"{found} is no store")
            self._store = usual
            return
        self._refuse_broad()
        disk.require_private(found)
        stores.read_identity(found)
        with Lock(StoreLayout(found).lock, self._settings.lock_timeout):
            if is_usual_place and found != usual and stores.exists(usual):
                raise InvalidInput(f"{self._worktree} has a store already: {usual}")
            stores.bind(found, self._worktree)
            if is_usual_place and found != usual:
                stores.move(found, usual)
                self._store = usual

    def _wrap(self) -> Scan:
        """Look at the worktree, refuse what is too much, and only then make the store."""
        self._refuse_broad()
        scan = scan_worktree(
            self._worktree, self._settings, self._surroundings(), None, was_covered=lambda path: False
        )
        _refuse_too_big(scan, self._worktree, self._settings)
        existing = self._store
        while not os.path.isdir(existing):
            existing = os.path.dirname(existing)
        self._refuse_full(existing, scan)
        stores.create(self._store, self._worktree, lambda layout: create_journal(layout.timeline))
        return scan

    def _refuse_broad(self) -> None:
        if self._allow_broad:
            return
        why = find_broadness(
            self._worktree, home=self._places.home, stores=self._places.stores, store=self._store
        )
        if why is not None:
            raise BroadWorktree(self._worktree, why)

    def _refuse_full(self, directory: str, scan: Scan) -> None:
        needed = scan.pending_bytes
        with disk.store_errors(directory):
            free = free_bytes(directory)
        if free - needed < self._settings.min_free:
            raise OutOfSpace(directory, free=free, needed=needed, min_free=self._settings.min_free)

    def _open(self) -> OpenStore:
        """Open the store, or make sure that the one that is open still belongs to this worktree."""
        layout = stores.open_store(self._store, self._worktree)
        if self._opened is not None and not self._opened.is_current():
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = OpenStore(layout)
        return self._opened

    @contextmanager
    def _locked(self) -> Iterator[OpenStore]:
        if not self.is_wrapped:
            raise NotWrapped(self._worktree)
        # Before the lock, which writes: nothing in another user's store may be touched.
        disk.require_private(self._store)
        with Lock(StoreLayout(self._store).lock, self._settings.lock_timeout):
            stores.remove_unfinished(self._store)
            opened = self._open()
            stores.remove_temporaries(opened.layout)
            opened.prepare_to_write()
            yield opened

    def _forget(self, opened: OpenStore, *, is_new: bool) -> None:
        """After a failure: drop what memory holds, and a store that was made for nothing."""
        is_empty = is_new and self._has_no_records(opened)
        opened.close()
        self._opened = None
        if is_empty:
            stores.remove(self._store)

    def _has_no_records(self, opened: OpenStore) -> bool:
        try:
            return opened.journal.last_tree() is None
        except ShadowError:
            return False

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self._places.home,
            self._places.config_home,
            frozenset(_devices_and_inodes(self._store, self._places.stores or self._store)),
        )

    # Snapshots

    def _scan(self, opened: OpenStore) -> Scan:
        return scan_worktree(
            self._worktree, self._settings, self._surroundings(), opened.cache, opened.was_covered
        )

    def _take_snapshot(
        self, opened: OpenStore, first_scan: Scan | None, progress: Progress | None
    ) -> Snapshot:
        is_first = opened.journal.last_tree() is None
        scan = first_scan if first_scan is not None and is_first else self._scan(opened)
        if is_first:
            _refuse_too_big(scan, self._worktree, self._settings)
        if any(scan.changed):
            self._refuse_full(self._store, scan)
        pack = opened.objects.start_pack()
        try:
            if is_first:
                self._seed(scan, pack)
            read_files(scan, self._worktree, opened.objects, pack, progress)
            tree, facts = build_trees(scan, opened.objects, pack)
            opened.record(pack, tree, facts, scan.files)
        except BaseException:
            pack.abandon()
            raise
        opened.tidy()
        settle(scan)
        opened.remember(scan)
        return Snapshot(tree.hex(), facts.hex(), scan.files, _skipped(scan), _warnings(scan))

    def _seed(self, scan: Scan, pack: PackWriter) -> None:
        from shadowtree.seed import seed

        home, config_home = self._places.home, self._places.config_home
        seed(scan, self._worktree, pack, home=home, config_home=config_home)

    @contextmanager
    def _present(
        self, scan: Scan | None = None, *, file_bytes: int = 0
    ) -> Iterator[tuple[Objects, RecordedDirectory]]:
        """Take a snapshot in memory: nothing is stored, so it needs no lock and no room.

        Of the contents of files up to `file_bytes` are kept.
        """
        opened = self._open()
        scratch = Scratch(file_bytes)
        objects = Objects(opened.layout.objects, scratch)
        try:
            objects.refresh()
            if scan is None:
                opened.refresh()
                scan = self._scan(opened)
            read_files(scan, self._worktree, objects, scratch, None)
            tree, facts = build_trees(scan, objects, scratch)
            yield objects, open_recorded(objects, tree, facts)
        finally:
            objects.close()
            if scan is None or any(scan.changed):
                # It holds trees by now that are nowhere stored.
                opened.cache.forget()

    def _record_of(self, opened: OpenStore, tree: str) -> TreeRecord:
        """Find a recorded tree, named by its 40 hex digits."""
        if len(tree) != 40 or not _HEX.issuperset(tree):
            raise UnknownTree(tree)
        record = opened.journal.find_tree(bytes.fromhex(tree))
        if record is None:
            raise UnknownTree(tree)
        return record


def find_worktree(start: StrPath, *, store: StrPath | None = None) -> str | None:
    """Find the nearest wrapped directory at or above `start`; with a store, the worktree of that one."""
    places = Places(os.environ)
    directory = _real_directory(start)
    given = places.given_store(store)
    if given is not None:
        worktree = stores.read_identity(given).worktree if stores.exists(given) else None
        return worktree if worktree is not None and is_inside(directory, worktree) else None
    while not stores.exists(places.usual_store(directory)):
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return directory


def _refuse_too_big(scan: Scan, worktree: str, settings: Settings) -> None:
    if scan.files > settings.max_files:
        raise WorktreeTooBig(worktree, setting="max_files", found=scan.files, limit=settings.max_files)
    if scan.bytes > settings.max_bytes:
        raise WorktreeTooBig(worktree, setting="max_bytes", found=scan.bytes, limit=settings.max_bytes)


def _skipped(scan: Scan) -> list[Skipped]:
    return [Skipped(path, reason) for path, reason in scan.skipped()]


def _warnings(scan: Scan) -> list[str]:
    warnings = list(dict.fromkeys(scan.rule_files.warnings))
    if not scan.files and scan.ignored:
        warnings.append("nothing is covered: the rules leave out everything")
    return warnings


def _read(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)


def _diff(before: RecordedDirectory, after: RecordedDirectory, objects: Objects) -> list[FileDiff]:
    changes = compare(before, after).files
    return [_diff_path(changed, objects) for changed in changes]


def _diff_path(changed: ChangedPath, objects: Objects) -> FileDiff:
    from shadowtree.diff import MAX_DIFF_BYTES, diff_text

    try:
        old, new = (
            None if blob is None else objects.read_small(bytes.fromhex(blob), MAX_DIFF_BYTES)
            for blob in (changed.old_blob, changed.new_blob)
        )
    except TooLarge:
        return FileDiff(changed.path, changed.status, 0, 0, False, "")
    text = diff_text(changed.path, old, new, old_mode=changed.old_mode, new_mode=changed.new_mode)
    return FileDiff(changed.path, changed.status, text.additions, text.deletions, text.binary, text.patch)


def _checked_name(name: str, what: str) -> str:
    """Refuse a name that is none: too short, too long, or with characters that are no text."""
    if not 1 <= len(name) <= 256 or any(_is_no_text(character) for character in name):
        raise InvalidInput(f"a {what} has 1 to 256 characters and no control characters, not {name!r}")
    return name


def _is_no_text(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"


def _real_directory(path: StrPath) -> str:
    real = os.path.realpath(os.fspath(path))
    if not os.path.isdir(real):
        raise InvalidInput(f"{os.fspath(path)} is no directory")
    return real


def _devices_and_inodes(*paths: str) -> Iterator[tuple[int, int]]:
    """Tell directories apart from others, whatever names lead to them; one that is not there is left out."""
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        yield status.st_dev, status.st_ino


def _path(path: str) -> Path:
    from pathlib import Path

    return Path(path)
