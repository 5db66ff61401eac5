"""The way into a store: wrapping, opening, adopting, the lock, and making good what was interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from shadowtree import disk
from shadowtree import store as stores
from shadowtree.capture import Site, refuse_full, refuse_too_big, scan_unwrapped
from shadowtree.config import Config, Given
from shadowtree.errors import (
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
)
from shadowtree.identity import read_identity
from shadowtree.layout import StoreLayout, find_broadness, is_inside
from shadowtree.lock import Lock
from shadowtree.opened import OpenStore
from shadowtree.places import Places
from shadowtree.rows import create_journal
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.settings import Settings
    from shadowtree.watch import Watch


class Gate:
    """The way from one worktree into its store."""

    def __init__(
        self,
        worktree: str | os.PathLike[str],
        store: str | os.PathLike[str] | None,
        given: Given,
        places: Places,
        *,
        allow_broad: bool,
    ) -> None:
        self._places = places
        self._allow_broad = allow_broad
        self.worktree = real_directory(worktree)
        self.store = places.store_of(self.worktree, store)
        around = stores.find_around(self.worktree)
        if around is None and is_inside(self.worktree, self.store):
            around = self.store
        if around is not None:
            raise UnsafePath(self.worktree, f"it lies in the store {around}")
        self.config = Config(places, self.worktree, given)
        self._settings = self.config.read()
        self.watch: Watch | None = None
        """What keeps the worktree in sight, if anything does."""
        self._opened: OpenStore | None = None
        self._signature = os.urandom(8).hex()
        self.recovered: list[str] = []
        """What was interrupted and has been finished or taken back, a sentence each."""
        self.idle = IdleTime()
        self.kept_budget = 0
        """The budget that the store is kept within after each record; 0: nobody looked yet."""

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return stores.exists(self.store)

    @property
    def settings(self) -> Settings:
        """The settings that count for what is going on under the lock."""
        return self._settings

    @property
    def stores(self) -> str | None:
        """The directory of stores, if this store is in it."""
        directory = self._places.stores
        return directory if directory is not None and os.path.dirname(self.store) == directory else None

    @property
    def site(self) -> Site:
        """What is captured, and under which settings."""
        private = frozenset(_devices_and_inodes(self.store, self._places.stores or self.store))
        around = Surroundings(self._places.home, self._places.config_home, private)
        return Site(
            self.worktree, self._settings, around, self.watch, self.config.warnings, self.idle.is_used
        )

    def _refresh_settings(self) -> None:
        """See what somebody has set since: it counts for the act that begins now, from its first step on."""
        self._settings = self.config.read()

    def wrap(self) -> Scan:
        """Look at the worktree, refuse what is too much, and only then make the store."""
        self._refresh_settings()
        self._refuse_broad()
        scan = scan_unwrapped(self.site)
        refuse_too_big(self.site, scan)
        existing = self.store
        while not os.path.isdir(existing):
            existing = os.path.dirname(existing)
        refuse_full(existing, scan.pending_bytes, self._settings)
        stores.create(self.store, self.worktree, lambda layout: create_journal(layout.timeline))
        return scan

    def open(self) -> OpenStore:
        """Open the store to read; what was interrupted is made good first, unless it is still going on."""
        self._refresh_settings()
        opened = self._open_store()
        if opened.has_to_recover():
            try:
                with self.locked(timeout_s=0):
                    pass
            except Locked:
                # Somebody is at work: nothing is interrupted yet.
                return opened
            except (OutOfSpace, StoreFailed, WorktreeFailed) as error:
                # Who only looks may go on; who writes is told.
                if opened.journal.open_intents():
                    self.recovered.append(f"an interrupted act is not made good yet: {error}")
        return self._open_store()

    def at_rest(self) -> OpenStore | None:
        """Give the store without a look at it, if it is open and this process left nothing undone in it."""
        opened = self._opened
        return opened if opened is not None and opened.is_at_rest and opened.is_current() else None

    @contextmanager
    def locked(self, timeout_s: float | None = None) -> Iterator[OpenStore]:
        """Hold the lock. What was interrupted is finished or taken back before anything else is done."""
        if not self.is_wrapped:
            raise NotWrapped(self.worktree)
        self._refresh_settings()
        # Before the lock, which writes: nothing in another user's store may be touched.
        disk.require_private(self.store)
        wait_s = self._settings.lock_timeout if timeout_s is None else timeout_s
        with self._hold_lock(wait_s) as was_mine:
            opened = self._open_store()
            if not opened.resume(is_alone=was_mine):
                self._forget_ahead()
                self._make_good(opened)
            try:
                yield opened
            finally:
                self._forget_ahead()

    def _forget_ahead(self) -> None:
        """Throw away what was read ahead: it counts for one holder of the lock alone."""
        if self.watch is not None:
            self.watch.forget_ahead()

    @contextmanager
    def _hold_lock(self, timeout_s: float) -> Iterator[bool]:
        """Hold the lock itself, and tell whether nobody else has since; a store that is gone has none."""
        with ExitStack() as stack:
            lock = Lock(StoreLayout(self.store).lock, timeout_s, self._signature)
            try:
                stack.enter_context(lock)
            except StoreFailed as error:
                if not self.is_wrapped:
                    raise NotWrapped(self.worktree) from error
                raise
            yield lock.was_mine

    def _make_good(self, opened: OpenStore) -> None:
        """Finish or take back what was interrupted, and remove what dead processes left."""
        stores.remove_unfinished(self.store)
        stores.remove_temporaries(opened.layout)
        stores.upgrade(opened.layout)
        opened.prepare_to_write()
        if opened.journal.open_intents():
            from shadowtree.reverting import recover

            self.recovered += recover(opened, self.site)
        if opened.journal.has_unfinished_purge():
            self._finish_purge(opened)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of a store that may be too damaged to be opened; nothing else is done."""
        disk.require_own(self.store)
        with self._hold_lock(self._settings.lock_timeout):
            yield

    def _finish_purge(self, opened: OpenStore) -> None:
        from shadowtree.purging import finish

        try:
            finish(opened)
            self.recovered.append("a purge that was interrupted is finished")
        except ShadowError as error:
            # What is purged is in no tree any more; who does something else may go on.
            self.recovered.append(f"a purge is not finished yet: {error}")

    def adopt(self) -> None:
        """Bind the store to the worktree, then move it; when interrupted, the same again finishes it."""
        found, usual = self.store, self._places.usual_store(self.worktree)
        is_usual_place = os.path.dirname(found) == os.path.dirname(usual)
        if not stores.exists(found):
            if not is_usual_place or not stores.belongs_to(usual, self.worktree):
                raise InvalidInput(f"{found} is no store")
            self.store = usual
            return
        self._refresh_settings()
        self._refuse_broad()
        disk.require_private(found)
        # One that cannot be read says nothing, and the user says whose the store is; a newer one is refused.
        with suppress(StoreDamaged):
            read_identity(found)
        with Lock(StoreLayout(found).lock, self._settings.lock_timeout):
            if is_usual_place and found != usual and stores.exists(usual):
                raise InvalidInput(f"{self.worktree} has a store already: {usual}")
            stores.bind(found, self.worktree)
            if is_usual_place and found != usual:
                stores.move(found, usual)
                self.store = usual

    def destroy(self) -> int:
        """Remove the store whole, and tell how much that frees; what was interrupted is made good first."""
        with self.locked():
            stores.require_own(self.store)
            size = disk.measure_tree(self.store)
            self.close()
            stores.remove(self.store)
        if self._places.stores is not None:
            stores.remove_all_unfinished(self._places.stores)
        return size

    def close(self) -> None:
        """Let go of every file, and of every watch."""
        if self.watch is not None:
            self.watch.close()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def forget(self, opened: OpenStore, *, is_new: bool) -> None:
        """After a failure: drop what memory holds, and a store that was made for nothing."""
        is_empty = is_new and self._has_no_records(opened)
        opened.close()
        self._opened = None
        if is_empty:
            stores.remove(self.store)

    def _has_no_records(self, opened: OpenStore) -> bool:
        try:
            return opened.journal.last_tree() is None
        except ShadowError:
            return False

    def _open_store(self) -> OpenStore:
        """Open the store, or make sure that the one that is open still belongs to this worktree."""
        layout = stores.open_store(self.store, self.worktree)
        if self._opened is not None and not self._opened.is_current():
            self._opened.close()
            self._opened = None
        if self._opened is None:
            self._opened = OpenStore(layout)
        return self._opened

    def _refuse_broad(self) -> None:
        if self._allow_broad:
            return
        why = find_broadness(
            self.worktree, home=self._places.home, stores=self._places.stores, store=self.store
        )
        if why is not None:
            raise BroadWorktree(self.worktree, why)


class IdleTime:
    """What is left to idle time, by those who have some."""

    def __init__(self) -> None:
        self.is_used = False
        """Whether somebody tidies when nobody wants anything."""
        self.has_to_look = False
        """Whether a look at what all stores take is due."""
        self.told: list[str] = []
        """What was forgotten then, to be told when something is recorded next."""

    def take_told(self) -> list[str]:
        """Give what is to be told, once."""
        told, self.told = self.told, []
        return told


def real_directory(path: str | os.PathLike[str]) -> str:
    """Give the real path of a directory, and refuse what is none."""
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
