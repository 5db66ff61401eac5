"""The way into a store: lock it, open it, recover what was interrupted; wrap, adopt and destroy it.

Everything that reads or records goes through here, so that no caller sees an act half done.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from shadowtree.base.errors import (
    BroadWorktree,
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
from shadowtree.capture.capture import Site, refuse_full, refuse_too_big, scan_site
from shadowtree.capture.moved_worktree import StorePlace
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.rules.sources import Surroundings, find_inodes
from shadowtree.capture.scan import Scan
from shadowtree.config.settings import Config, Given
from shadowtree.store import directory as stores
from shadowtree.store.directory import StoreLayout, find_broadness, is_inside
from shadowtree.store.lock import Lock
from shadowtree.system import disk
from shadowtree.system.locations import Places
from shadowtree.timeline.database import create_journal

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
        """What a caller gives beside a worktree and the store that it adopts."""

        session: str
        settings: Given
        allow_broad: bool

    P = ParamSpec("P")
    Result = TypeVar("Result")
    Recorded = TypeVar("Recorded", Message, Snapshot, Step, Message | None, TurnRecord)


class Access:
    """The way from one worktree into its store. It lets in one thread at a time."""

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
        """What was recovered or noticed on the way, a sentence each."""
        self.place = StorePlace(self.worktree, store, places, self.recovered)
        self.needs_store = False
        """Reading where nothing is recorded is an error, instead of an empty answer."""
        around = stores.find_around(self.worktree)
        if around is None and is_inside(self.worktree, self.store):
            around = self.store
        if around is not None:
            raise UnsafePath(self.worktree, f"it is inside the store {around}")
        self.config = Config(places, self.worktree, given, clock_ns=limits.file_clock_ns)
        self.settings = self.config.read()
        """The settings that count for what is going on now."""
        self.watch: Watch | None = None
        """What watches the worktree, if anything does."""
        self._opened: OpenStore | None = None
        self._signature = os.urandom(8).hex()
        self.recovers = True
        """Reading recovers first what was interrupted."""
        self.has_idle_time = False
        """Whether the store is tidied in idle time."""
        self._in_message: set[str] = set()
        """The sessions of which a `with` block records a message."""

    @property
    def store(self) -> str:
        """Where the store is, or would be."""
        return self.place.store

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store of this directory already."""
        try:
            self.find_store()
        except NotWrapped:
            return False
        except ShadowError:
            # It is there, whatever is wrong with it.
            pass
        return stores.exists(self.store)

    @property
    def lacks_store(self) -> bool:
        """Whether nothing is recorded, and reading that gives an empty answer."""
        return not self.needs_store and not self.is_wrapped

    @property
    def stores(self) -> str | None:
        """The directory of stores, if this store is in it."""
        directory = self.places.stores
        return directory if directory is not None and os.path.dirname(self.store) == directory else None

    @property
    def site(self) -> Site:
        """What is captured, and under which settings."""
        private = find_inodes(self.store, self.places.stores or self.store)
        around = Surroundings(self.places.home, self.places.config_home, private)
        return Site(
            self.worktree,
            self.settings,
            around,
            self.watch,
            self.config.warnings,
            self.has_idle_time,
            limits=self.limits,
        )

    def complete(self, command: str | None) -> str | None:
        """Add to a command the path of this store, if it is not where commands look for it."""
        places = self.places
        has_place = places.given_store(None) is not None or places.stores is not None
        if command is None or (has_place and self.store == places.store_of(self.worktree, None)):
            return command
        from shlex import quote

        return f"{command} --store {quote(self.store)}"

    def start_watch(self) -> None:
        """Watch the worktree from now on."""
        from shadowtree.store.repack import load_dulwich
        from shadowtree.watching.watch import Watch

        load_dulwich()
        self.watch = Watch(self.worktree, self.store, self.settings.watcher, self.limits)

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return self.limits.clock_ns() // 1_000_000

    # Opening

    def find_store(self) -> None:
        """Find the store of this very directory; raise NotWrapped if there is none.

        One that is open was found, unless it is that of a moved directory: another process may have bound it.
        """
        if self._opened is not None:
            if stores.exists(self.store):
                return
            self.close_store()
        self.place.find()

    def claim(self) -> None:
        """Bind the store of a directory that was moved to where it is now."""
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
        """Do the same as `read`, but return `empty`, unless that is None, where nothing is recorded."""
        try:
            return self.read(look, *args, **named)
        except NotWrapped:
            if self.needs_store or empty is None:
                raise
            return empty

    def glance(self, empty: Result, look: Callable[[OpenStore, Site], Result]) -> Result:
        """Do the same, and recover nothing: what is done next recovers, and reports it."""
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
        """Call a function that reads, without the lock, on the timeline as of one moment.

        If an object is missing, call it once more with the lock: another process may have forgotten and freed
        what was being read. Under the lock it turns out to be forgotten, or the store to be damaged.
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
        """Hold the lock to record something; if it `wraps`, make the store first where there is none.

        Beside the open store and the site comes the scan of a worktree that was wrapped just now. If the body
        raises, what memory holds is dropped, and so is a store that was made for nothing.
        """
        with self.mutex, ExitStack() as stack:
            first_scan = None
            try:
                self.claim()
            except NotWrapped as error:
                if not wraps:
                    raise
                first_scan = self._wrap(error)
            try:
                opened = stack.enter_context(self.locked())
            except WorktreeReplaced as error:
                # Another directory was put here while the store of the old one was open.
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
        """Look at the worktree, refuse what is too much, and only then make the store; `why` it has none."""
        self.place.require_free(why)
        if self._opened is not None:
            self.close_store()
        self.settings = self.config.read()
        self.refuse_broad()
        site = self.site
        scan = scan_site(site, None)
        refuse_too_big(site, scan)
        existing = self.store
        while not os.path.isdir(existing):
            existing = os.path.dirname(existing)
        refuse_full(existing, scan.pending_bytes, self.settings)
        self.place.make_way(self.settings.lock_timeout)
        stores.create(self.store, self.worktree, lambda layout: create_journal(layout.timeline))
        return scan

    def open(self) -> OpenStore:
        """Open the store to read; recover first what was interrupted, unless it is still going on."""
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
                # Another process is at work: nothing is interrupted yet.
                return opened
            except (OutOfSpace, StoreFailed, WorktreeFailed) as error:
                # A reader may go on; a writer fails.
                if opened.journal.open_intents():
                    self.recovered.append(f"an interrupted operation has not been recovered yet: {error}")
        return self._open_store()

    @contextmanager
    def locked(self, timeout_s: float | None = None) -> Iterator[OpenStore]:
        """Hold the lock. What was interrupted is finished or rolled back before anything else is done."""
        with self.mutex:
            self.find_store()
            if not stores.exists(self.store):
                raise NotWrapped(self.worktree)
            self.settings = self.config.read()
            # Before the lock, which writes: nothing in another user's store may be touched.
            disk.require_private(self.store)
            wait_s = self.settings.lock_timeout if timeout_s is None else timeout_s
            with self._hold_lock(wait_s) as was_mine:
                opened = self._open_store()
                if not opened.resume(is_alone=was_mine):
                    self._recover(opened)
                yield opened

    @contextmanager
    def in_message(self, session: str) -> Iterator[None]:
        """Be the one `with` block that records a message of a session; InvalidInput inside another."""
        with self.mutex:
            if session in self._in_message:
                raise InvalidInput(f"messages cannot be nested: session {session!r} already has one open")
            self._in_message.add(session)
        try:
            yield
        finally:
            self._in_message.discard(session)

    @contextmanager
    def _hold_lock(self, timeout_s: float) -> Iterator[bool]:
        """Hold the lock itself; yield whether no other process held it since. A removed store has none."""
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
        """Finish or roll back what was interrupted, and remove what dead processes left."""
        stores.remove_unfinished(self.store)
        stores.remove_temporaries(opened.layout)
        opened.prepare_to_write()
        if opened.journal.open_intents():
            from shadowtree.revert.recover import recover

            self.recovered += recover(opened, self.site)
        if opened.journal.has_unfinished_purge():
            from shadowtree.purge.purge import finish_interrupted
            from shadowtree.retention.gc import sweep_all

            self.recovered.append(finish_interrupted(opened, sweep_all))

    def tidy_before_close(self) -> None:
        """Repack for a moment, if this process leaves much of it to do and no other is at work."""
        if self._opened is None or self.has_idle_time or not self._opened.leaves_much:
            return
        with suppress(ShadowError), self.locked(timeout_s=0) as opened:
            opened.tidy_before_close()

    def keep_budget(self) -> list[str]:
        """Free or forget what the budget has no room for. It comes after a record, so it can only warn."""
        budget = self.settings.store_budget
        try:
            if not budget or self._opened is None or not self._opened.exceeds(budget):
                return []
            from shadowtree.retention.budget import keep_budget

            return keep_budget(self.locked, self.settings)
        except ShadowError as error:
            return [f"the store could not be kept within its budget: {error}"]

    def warn_of_budget(self, recorded: Recorded) -> Recorded:
        """Keep the store within its budget after a record, and add the warnings to it."""
        lines: list[str] = self.keep_budget()
        return replace(recorded, warnings=[*recorded.warnings, *lines]) if recorded and lines else recorded

    # As a repository

    def open_repo(self) -> ShadowRepo:
        """Open the store as a dulwich repository, with the conversation as it is now."""
        from shadowtree.conversation.export import bring_up_to_date, is_up_to_date

        with self.mutex:
            if not is_up_to_date(self.open()):
                with self.locked() as opened:
                    bring_up_to_date(opened)
            return self.open_objects()

    def open_objects(self) -> ShadowRepo:
        """Do the same, with the refs as they are."""
        from shadowtree.store.repo import ShadowRepo

        return ShadowRepo(self.store, self.locked, self._read_journaled)

    def _read_journaled(self) -> list[PackBytes]:
        with self.mutex:
            return list(self._open_store().journal.packs.read_all())

    # A store that may be damaged

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of a store that may be too damaged to be opened; nothing else is done."""
        disk.require_own(self.store)
        with self.mutex, self._hold_lock(self.settings.lock_timeout):
            yield

    def require_store(self) -> None:
        """Refuse where there is no store, or another directory's; one of a moved directory is bound."""
        # What is wrong with a store that cannot be opened is for a check to find.
        with suppress(StoreDamaged, StoreFailed, UnsafePath):
            self.claim()
        stores.refuse_another(self.store, self.worktree)

    # The store as a whole

    def adopt(self) -> None:
        """Bind the store to the worktree, then move it; when interrupted, the same again finishes it."""
        self.settings = self.config.read()
        if stores.exists(self.store):
            self.refuse_broad()
        self.place.adopt(self.settings.lock_timeout)

    def close(self) -> None:
        """Close every file, and every watch."""
        with self.mutex:
            self.close_store()
            if self.watch is not None:
                self.watch.close()

    def close_store(self) -> None:
        """Close every file of the store, and begin to watch anew: by the same descriptor."""
        with self.mutex:
            if self.watch is not None:
                self.watch.reset()
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _drop(self, opened: OpenStore, *, is_new: bool) -> None:
        """After a failure: drop what memory holds, and a store that was made for nothing."""
        is_empty = False
        with suppress(ShadowError):
            is_empty = is_new and opened.journal.last_tree() is None
        opened.close()
        self._opened = None
        if is_empty:
            stores.remove(self.store)

    def _open_store(self) -> OpenStore:
        """Open the store, or make sure that the one that is open still belongs to this worktree."""
        layout = self.place.check()
        if self._opened is not None and not self._opened.is_current():
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = OpenStore(layout, self.limits)
        return self._opened

    def refuse_broad(self) -> None:
        """Raise BroadWorktree if the worktree is too broad to be wrapped unasked."""
        if self._allow_broad:
            return
        why = find_broadness(
            self.worktree, home=self.places.home, stores=self.places.stores, store=self.store
        )
        if why is not None:
            raise BroadWorktree(self.worktree, why)


def real_directory(path: str | os.PathLike[str]) -> str:
    """Return the real path of a directory, and refuse what is none."""
    real = os.path.realpath(os.fspath(path))
    if not os.path.isdir(real):
        raise InvalidInput(f"{os.fspath(path)} is not a directory")
    return real


def as_path(path: str) -> Path:
    """Return a path as a `Path`; only callers that want one load `pathlib`."""
    from pathlib import Path

    return Path(path)
