"""The way into a store: wrapping, opening, adopting, the lock, and making good what was interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shadowtree import disk
from shadowtree import store as stores
from shadowtree.capture import Site, refuse_full, refuse_too_big, scan_unwrapped
from shadowtree.errors import (
    BroadWorktree,
    InvalidInput,
    Locked,
    NotWrapped,
    OutOfSpace,
    ShadowError,
    StoreFailed,
    UnsafePath,
    WorktreeFailed,
)
from shadowtree.journal import create_journal
from shadowtree.layout import StoreLayout, find_broadness, is_inside
from shadowtree.lock import Lock
from shadowtree.opened import OpenStore
from shadowtree.places import Places
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan
from shadowtree.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.watch import Watch


class Gate:
    """The way from one worktree into its store."""

    def __init__(
        self,
        worktree: str | os.PathLike[str],
        store: str | os.PathLike[str] | None,
        settings: Settings,
        places: Places,
        *,
        allow_broad: bool,
    ) -> None:
        self._settings = settings
        self._places = places
        self._allow_broad = allow_broad
        self.worktree = real_directory(worktree)
        self.store = places.store_of(self.worktree, store)
        around = stores.find_around(self.worktree)
        if around is None and is_inside(self.worktree, self.store):
            around = self.store
        if around is not None:
            raise UnsafePath(self.worktree, f"it lies in the store {around}")
        self.watch: Watch | None = None
        """What keeps the worktree in sight, if anything does."""
        self._opened: OpenStore | None = None
        self.recovered: list[str] = []
        """What was interrupted and has been finished or taken back, a sentence each."""

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return stores.exists(self.store)

    @property
    def site(self) -> Site:
        """What is captured, and under which settings."""
        private = frozenset(_devices_and_inodes(self.store, self._places.stores or self.store))
        around = Surroundings(self._places.home, self._places.config_home, private)
        return Site(self.worktree, self._settings, around, self.watch)

    def wrap(self) -> Scan:
        """Look at the worktree, refuse what is too much, and only then make the store."""
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

    @contextmanager
    def locked(self, timeout_s: float | None = None) -> Iterator[OpenStore]:
        """Hold the lock. What was interrupted is finished or taken back before anything else is done."""
        if not self.is_wrapped:
            raise NotWrapped(self.worktree)
        # Before the lock, which writes: nothing in another user's store may be touched.
        disk.require_private(self.store)
        wait_s = self._settings.lock_timeout if timeout_s is None else timeout_s
        with Lock(StoreLayout(self.store).lock, wait_s):
            stores.remove_unfinished(self.store)
            opened = self._open_store()
            stores.remove_temporaries(opened.layout)
            opened.prepare_to_write()
            if opened.journal.open_intents():
                from shadowtree.reverting import recover

                self.recovered += recover(opened, self.site)
            yield opened

    def adopt(self) -> None:
        """Bind the store to the worktree, then move it; when interrupted, the same again finishes it."""
        found, usual = self.store, self._places.usual_store(self.worktree)
        is_usual_place = os.path.dirname(found) == os.path.dirname(usual)
        if not stores.exists(found):
            if not is_usual_place or not stores.belongs_to(usual, self.worktree):
                raise InvalidInput(f"{found} is no store")
            self.store = usual
            return
        self._refuse_broad()
        disk.require_private(found)
        stores.read_identity(found)
        with Lock(StoreLayout(found).lock, self._settings.lock_timeout):
            if is_usual_place and found != usual and stores.exists(usual):
                raise InvalidInput(f"{self.worktree} has a store already: {usual}")
            stores.bind(found, self.worktree)
            if is_usual_place and found != usual:
                stores.move(found, usual)
                self.store = usual

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
