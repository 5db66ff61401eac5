"""Access to a store: lock it, open it, recover interrupted operations; wrap and adopt it.

Everything that reads or records goes through here, so that no caller sees a half-finished act.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from shadowtree.base.arguments import check_path
from shadowtree.base.errors import (
    InvalidInput,
    Locked,
    NotWrapped,
    OutOfSpace,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    UnsafePath,
    WorktreeFailed,
    WorktreeReplaced,
)
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.capture.capture import Site, scan_site
from shadowtree.capture.moved_worktree import StorePlace
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.rules.sources import Surroundings, find_inodes
from shadowtree.capture.scan import Scan
from shadowtree.capture.size_limits import require_free_space, require_size_within_limits
from shadowtree.config.settings import Config, Given
from shadowtree.store import directory as stores
from shadowtree.store.directory import StoreLayout, is_inside
from shadowtree.store.lock import Lock
from shadowtree.system import disk
from shadowtree.system.locations import Places
from shadowtree.timeline.sqlite.database import create_journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Concatenate, ParamSpec, TypedDict, TypeVar

    from shadowtree.results.messages import Message, Snapshot, Step
    from shadowtree.results.turns import TurnRecord
    from shadowtree.store.git_format import PackBytes
    from shadowtree.store.repo import ShadowRepo
    from shadowtree.watching.watch import Watch

    class AdoptOptions(TypedDict, total=False):
        """The options of adopting a store, in addition to the worktree and the store."""

        session: str
        settings: Given
        allow_broad: bool

    P = ParamSpec("P")
    Result = TypeVar("Result")
    Recorded = TypeVar("Recorded", Message, Snapshot, Step, Message | None, TurnRecord)


class Access:
    """Access from one worktree to its store, for one thread at a time."""

    def __init__(
        self,
        worktree: str | os.PathLike[str],
        store: str | os.PathLike[str] | None,
        given: Given,
        places: Places,
        *,
        allow_broad: bool,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self.mutex = RLock()
        self.places = places
        self._allow_broad = allow_broad
        self.worktree = real_directory(worktree)
        self.recovered: list[str] = []
        """Recovered operations and other notices, one sentence each."""
        self.place = StorePlace(self.worktree, store, places, self.recovered)
        self.needs_store = False
        """Raise NotWrapped if nothing is recorded, instead of returning an empty result."""
        around = stores.find_around(self.worktree)
        if around is None and is_inside(self.worktree, self.store):
            around = self.store
        if around is not None:
            raise UnsafePath(self.worktree, f"it is inside the store {around}")
        self.config = Config(places, self.worktree, given, clock_ns=limits.file_clock_ns)
        self.settings = self.config.read()
        """The settings in force for the current operation."""
        self.watch: Watch | None = None
        """The watch on the worktree, if it is watched."""
        self._opened: OpenStore | None = None
        self._signature = os.urandom(8).hex()
        self.recovers = True
        """Before reading, recover what was interrupted."""
        self.has_idle_time = False
        """Whether the store is tidied in idle time."""

    @property
    def store(self) -> str:
        """The path of the store, whether or not it exists yet."""
        return self.place.store

    @property
    def is_wrapped(self) -> bool:
        """Whether this directory has a store."""
        try:
            self.find_store()
        except NotWrapped:
            return False
        except ShadowError:
            # The store exists, whatever is wrong with it.
            pass
        return stores.exists(self.store)

    @property
    def lacks_store(self) -> bool:
        """Whether there is no store, and reading then returns an empty result."""
        return not self.needs_store and not self.is_wrapped

    @property
    def stores(self) -> str | None:
        """The directory of stores, if this store is in it."""
        directory = self.places.stores
        return directory if directory is not None and os.path.dirname(self.store) == directory else None

    @property
    def site(self) -> Site:
        """What to capture, and with which settings."""
        private = find_inodes(self.store, self.places.stores or self.store)
        around = Surroundings(
            self.places.home, self.places.config_home, private, own_store=find_inodes(self.store)
        )
        return Site(
            self.worktree,
            self.settings,
            around,
            self.watch,
            self.config.warnings,
            self.has_idle_time,
            limits=self.limits,
        )

    def add_store_option(self, command: str | None) -> str | None:
        """Add `--store` to a command, unless the store is in its usual place."""
        if command is None or (self.places.stores and self.store == self.places.usual_store(self.worktree)):
            return command
        from shlex import quote

        return f"{command} --store {quote(self.store)}"

    def start_watch(self) -> None:
        """Watch the worktree from now on."""
        from shadowtree.store.packs.delta import load_dulwich
        from shadowtree.watching.watch import Watch

        load_dulwich()
        self.watch = Watch(self.worktree, self.store, self.settings.watcher, self.limits)

    @property
    def news(self) -> object:
        """An object that the watch replaces when something is reported; None if nothing is watched."""
        return None if self.watch is None else self.watch.news

    @property
    def now_ms(self) -> int:
        """The current time, in milliseconds since 1970."""
        return self.limits.clock_ns() // 1_000_000

    # Opening

    def find_store(self) -> None:
        """Find the store of this directory; raise NotWrapped if there is none.

        An open store that still exists is not searched for again. `bind_if_moved` and `open` first close the
        store of a moved directory, because another process may have bound it.
        """
        if self._opened is not None:
            if stores.exists(self.store):
                return
            self.close_store()
        self.place.find()

    def bind_if_moved(self) -> None:
        """Find the store; if the directory was moved, bind the store to the new path."""
        if not self.place.is_settled:
            self.close_store()
        self.find_store()
        if not self.place.is_settled:
            self.place.settle(self.settings.lock_timeout)

    def read_or(
        self,
        empty: Result | None,
        look: Callable[Concatenate[OpenStore, Site, P], Result],
        *args: P.args,
        **named: P.kwargs,
    ) -> Result:
        """Call `read`; if there is no store, return `empty` unless it is None or `needs_store` is set."""
        try:
            return self.read(look, *args, **named)
        except NotWrapped:
            if self.needs_store or empty is None:
                raise
            return empty

    def read_without_recovery(self, empty: Result, look: Callable[[OpenStore, Site], Result]) -> Result:
        """Call `read_or` without recovery: the next operation recovers, and reports it."""
        with self.mutex:
            recovers, self.recovers = self.recovers, False
            try:
                return self.read_or(empty, look)
            finally:
                self.recovers = recovers

    def read(
        self,
        look: Callable[Concatenate[OpenStore, Site, P], Result],
        *args: P.args,
        **named: P.kwargs,
    ) -> Result:
        """Call a function that reads, without the lock, on one consistent state of the timeline.

        If an object is missing, call the function again with the lock: another process may have forgotten and
        freed it. The second call either reports that it was forgotten, or raises StoreDamaged.
        """
        with self.mutex:
            opened = self.open()
            try:
                with opened.journal.reading():
                    return look(opened, self.site, *args, **named)
            except StoreDamaged as damage:
                if not self.recovers:
                    raise
                try:
                    with self.locked() as alone:
                        return look(alone, self.site, *args, **named)
                except (OutOfSpace, StoreFailed) as error:
                    raise damage from error

    @contextmanager
    def writing(self, *, wraps: bool = False) -> Iterator[tuple[OpenStore, Site, Scan | None]]:
        """Hold the lock to record something; with `wraps`, create the store first if there is none.

        Yields the open store, the site, and the first scan if the store was just created. If the body raises,
        close the store, and remove it if it was just created and is still empty.
        """
        with self.mutex, ExitStack() as stack:
            first_scan = None
            try:
                self.bind_if_moved()
            except NotWrapped as error:
                if not wraps:
                    raise
                first_scan = self._wrap(error)
            try:
                opened = stack.enter_context(self.locked())
            except WorktreeReplaced as error:
                # Another directory has taken this path while the store of the old one was open.
                if not wraps:
                    raise
                first_scan = self._wrap(error)
                opened = stack.enter_context(self.locked())
            try:
                yield opened, self.site, first_scan
            except BaseException:
                self._drop(opened, is_new=first_scan is not None)
                raise

    def _wrap(self, why: NotWrapped) -> Scan:
        """Scan the worktree, refuse it if it is too big, then create the store; `why` there was none."""
        self.place.require_free(why)
        if self._opened is not None:
            self.close_store()
        self.settings = self.config.read()
        self.refuse_broad()
        site = self.site
        scan = scan_site(site, None)
        require_size_within_limits(self.worktree, scan, self.settings)
        existing = self.store
        while not os.path.isdir(existing):
            existing = os.path.dirname(existing)
        require_free_space(existing, scan.pending_bytes, min_free=self.settings.min_free, is_first=True)
        self.place.make_way(self.settings.lock_timeout)
        stores.create(self.store, self.worktree, lambda layout: create_journal(layout.timeline))
        return scan

    def open(self) -> OpenStore:
        """Open the store for reading; first recover what was interrupted, unless the lock is held."""
        if not self.place.is_settled:
            self.close_store()
        self.find_store()
        self.settings = self.config.read()
        opened = self._open_store()
        if self.recovers and opened.has_to_recover():
            try:
                with self.locked(timeout_s=0):
                    pass
            except Locked:
                # Another process holds the lock, so the operation may still be running.
                return opened
            except (OutOfSpace, StoreFailed, WorktreeFailed) as error:
                # Reading is still possible; writing would fail.
                if opened.journal.open_intents():
                    self.recovered.append(f"an interrupted operation has not been recovered yet: {error}")
        return self._open_store()

    @contextmanager
    def locked(self, timeout_s: float | None = None) -> Iterator[OpenStore]:
        """Take the lock, and finish or roll back what was interrupted before the body runs."""
        with self.mutex:
            self.find_store()
            if not stores.exists(self.store):
                raise NotWrapped(self.worktree)
            self.settings = self.config.read()
            # Check before locking, which writes: nothing in another user's store may be touched.
            disk.require_private(self.store)
            wait_s = self.settings.lock_timeout if timeout_s is None else timeout_s
            with self._hold_lock(wait_s) as was_mine:
                opened = self._open_store()
                if not opened.skip_recovery_if_clean(is_alone=was_mine):
                    self._recover(opened)
                yield opened

    @contextmanager
    def _hold_lock(self, timeout_s: float) -> Iterator[bool]:
        """Hold the lock only; yield whether this access also held it last. A removed store is NotWrapped."""
        with ExitStack() as stack:
            lock = Lock(StoreLayout(self.store).lock, timeout_s, self._signature)
            try:
                stack.enter_context(lock)
            except StoreFailed as error:
                if not stores.exists(self.store):
                    raise NotWrapped(self.worktree) from error
                raise
            yield lock.was_mine

    def _recover(self, opened: OpenStore) -> None:
        """Finish or roll back what was interrupted, and remove files left by dead processes."""
        stores.remove_unfinished(self.store)
        stores.remove_temporaries(opened.layout)
        opened.recover()
        if opened.journal.open_intents():
            from shadowtree.revert.recover import recover

            self.recovered += recover(opened, self.site)
        if opened.journal.has_unfinished_purge():
            from shadowtree.purge.purge import finish_interrupted
            from shadowtree.retention.gc import sweep_all

            self.recovered.append(finish_interrupted(opened, sweep_all))

    def tidy_before_close(self) -> None:
        """Repack briefly, if this process leaves much to repack and the lock is free."""
        if self._opened is None or self.has_idle_time or not self._opened.leaves_much:
            return
        with suppress(ShadowError), self.locked(timeout_s=0) as opened:
            opened.tidy_before_close()

    def keep_budget(self) -> list[str]:
        """Free or forget what exceeds the budget. This runs after a record, so it only returns warnings."""
        budget = self.settings.store_budget
        try:
            if not budget or self._opened is None or not self._opened.exceeds(budget):
                return []
            from shadowtree.retention.budget import keep_budget

            return keep_budget(self.locked, self.settings)
        except ShadowError as error:
            return [f"the store could not be kept within its budget: {error}"]

    def warn_of_budget(self, recorded: Recorded) -> Recorded:
        """Keep the store within its budget after a record, and add the warnings to the record."""
        lines: list[str] = self.keep_budget()
        return replace(recorded, warnings=[*recorded.warnings, *lines]) if recorded and lines else recorded

    # As a repository

    def open_repo(self) -> ShadowRepo:
        """Open the store as a dulwich repository, with refs that match the timeline."""
        from shadowtree.conversation.write_refs import bring_up_to_date, is_up_to_date

        with self.mutex:
            if not is_up_to_date(self.open()):
                with self.locked() as opened:
                    bring_up_to_date(opened)
            return self.open_objects()

    def open_objects(self) -> ShadowRepo:
        """Open the store as a dulwich repository without updating its refs."""
        from shadowtree.store.repo import ShadowRepo

        return ShadowRepo(self.store, self.locked, self._read_journaled)

    def _read_journaled(self) -> list[PackBytes]:
        with self.mutex:
            return list(self._open_store().journal.packs.read_all())

    # A store that may be damaged

    @contextmanager
    def locked_unopened(self) -> Iterator[None]:
        """Hold the lock of a store that may be too damaged to open; neither open nor recover it."""
        disk.require_own(self.store)
        with self.mutex, self._hold_lock(self.settings.lock_timeout):
            yield

    def require_store(self) -> None:
        """Raise if there is no store or it is another directory's; bind the store of a moved directory."""
        # If the store is damaged, that is for a check to report.
        with suppress(StoreDamaged, StoreFailed, UnsafePath):
            self.bind_if_moved()
        stores.refuse_another(self.store, self.worktree)

    # The store as a whole

    def adopt(self) -> None:
        """Bind the store to the worktree, then move it; if interrupted, another `adopt` finishes it."""
        self.settings = self.config.read()
        if stores.exists(self.store):
            self.refuse_broad()
        self.place.adopt(self.settings.lock_timeout)

    def close(self) -> None:
        """Close every file and every watch."""
        with self.mutex:
            self.close_store()
            if self.watch is not None:
                self.watch.close()

    def close_store(self) -> None:
        """Close every file of the store, and reset the watch; its descriptor stays the same."""
        with self.mutex:
            if self.watch is not None:
                self.watch.reset()
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _drop(self, opened: OpenStore, *, is_new: bool) -> None:
        """After a failure, close the store, and remove it if it is new and nothing was recorded."""
        is_empty = False
        with suppress(ShadowError):
            is_empty = is_new and opened.journal.last_tree() is None
        opened.close()
        self._opened = None
        if is_empty:
            stores.remove(self.store)

    def _open_store(self) -> OpenStore:
        """Open the store, or check that the open one still belongs to this worktree."""
        layout = self.place.check()
        if self._opened is not None and not self._opened.is_current():
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = OpenStore(layout, self.limits)
        return self._opened

    def refuse_broad(self) -> None:
        """Raise UnsafePath in a git directory, and BroadWorktree unless `allow_broad` is set."""
        from shadowtree.access.broad_worktree import refuse_broad

        refuse_broad(self.worktree, self.store, self.places, allow_broad=self._allow_broad)


def real_directory(path: str | os.PathLike[str]) -> str:
    """Return the real path of a directory; raise InvalidInput if it is not a directory."""
    given = check_path(path)
    real = os.path.realpath(given)
    if not os.path.isdir(real):
        raise InvalidInput(f"{given} is not a directory")
    return real


def as_path(path: str) -> Path:
    """Return a path as a `Path`; `pathlib` is loaded only when this is called."""
    from pathlib import Path

    return Path(path)
