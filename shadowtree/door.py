"""The frame of the front door: one worktree, one session, the lock, and the watcher.

What can be done with a shadow is in the classes built on it: `Acts`, `Upkeep`, `Seeing`, `Shadow`.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep, time_ns

from shadowtree import store as stores
from shadowtree.arguments import check_name
from shadowtree.capture import Capture, capture
from shadowtree.errors import InvalidInput, OutOfSpace, ShadowError, StoreDamaged, StoreFailed
from shadowtree.gate import Gate
from shadowtree.interrupts import Cancellation
from shadowtree.layout import OVER_NOTE, StoreLayout
from shadowtree.model import Message, Snapshot, Watching
from shadowtree.opened import OpenStore, measure_files
from shadowtree.places import Places
from shadowtree.recorder import Recorder
from shadowtree.repositories import find_around, read_head
from shadowtree.scan import Scan
from shadowtree.settings import Settings
from shadowtree.snapshot import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self, TypeVar

    from shadowtree.attendant import Attendant
    from shadowtree.budget import Relief
    from shadowtree.sweeping import Sweep
    from shadowtree.totalbudget import Look

    Result = TypeVar("Result")

_SWEEP_S = 0.5
_PAUSE_S = 0.06
"""How long a sweep holds the lock before it lets others have it, and for how long: until they look for it."""
_LOOK_S = 0.5
"""For how long a command lets other stores shrink."""
_LOOKS_AROUND = 50
"""After so many recorded trees a look is taken at what all stores take together."""
_NOT_KEPT = "the store could not be kept within its budget"

StrPath = str | os.PathLike[str]


class Door:
    """A worktree with its store, for one session."""

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
        self._session = check_name(session, "session")
        self._gate = Gate(worktree, store, settings, Places(os.environ), allow_broad=allow_broad)
        self._mutex = RLock()
        self._cancellation = Cancellation()
        self._news: object = None
        self._attendant: Attendant | None = None
        if watch:
            from shadowtree.attendant import Attendant
            from shadowtree.watch import Watch

            self._gate.watch = Watch(self._gate.worktree, self._gate.store)
            self._news = self._gate.watch.news
            self._attendant = Attendant(self._gate, self._mutex)

    @classmethod
    def adopt(
        cls,
        worktree: StrPath,
        store: StrPath,
        *,
        session: str = "default",
        settings: Mapping[str, object] | Settings | None = None,
        allow_broad: bool = False,
    ) -> Self:
        """Let the store of a worktree that was moved belong to where it is now, with all it recorded.

        A store in the directory of stores is moved to the place where the worktree looks for it.
        """
        if os.path.lexists(store) and not stores.exists(os.path.realpath(store)):
            raise InvalidInput(f"{os.fspath(store)} is no store")
        shadow = cls(worktree, store=store, session=session, settings=settings, allow_broad=allow_broad)
        shadow._gate.adopt()
        return shadow

    @property
    def worktree(self) -> Path:
        """The directory that is wrapped, by its real path."""
        return _path(self._gate.worktree)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return _path(self._gate.store)

    @property
    def session(self) -> str:
        """The session whose timeline this is."""
        return self._session

    @property
    def settings(self) -> Settings:
        """The settings in force now: given ones, those of the environment, the project's and the user's."""
        return self._gate.config.read()

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or taken back on the way, a sentence each."""
        return list(self._gate.recovered)

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return self._gate.is_wrapped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every file and every watch. The shadow can be used again and opens what it needs."""
        with self._mutex:
            self._gate.close()
            self._dismiss()

    def _dismiss(self) -> None:
        """End the thread that reads ahead."""
        if self._attendant is not None:
            self._attendant.dismiss()

    def for_session(self, session: str) -> Self:
        """Give the same shadow for another session: both share the store, the watcher and the memory."""
        other = type(self).__new__(type(self))
        other._session = check_name(session, "session")
        other._gate = self._gate
        other._mutex = self._mutex
        other._attendant = self._attendant
        other._cancellation = Cancellation()
        other._news = None if self._gate.watch is None else self._gate.watch.news
        return other

    # Watching

    @property
    def watching(self) -> Watching | None:
        """How well the worktree is in sight; None for a shadow that does not watch."""
        return None if self._gate.watch is None else self._gate.watch.report

    def look_over(self, seconds: float) -> bool:
        """Spend up to so long on looking at all that nobody told of; True when a round is complete.

        For idle time: what was written through a mapping, or by another name from outside, is found this way.
        """
        with self._mutex:
            watch, site = self._gate.watch, self._gate.site
            if watch is None:
                return True
            opened = self._gate.open()
            opened.refresh()
            return watch.look_over(
                site.settings,
                opened.surround(site.surroundings),
                opened.cache,
                opened.was_covered,
                seconds=seconds,
            )

    def read_ahead(self) -> bool:
        """Read what changed, so that the next record finds it done; True if it will, if nothing happens.

        For idle time, and when it is quiet; nothing is stored. A thread of a shadow that watches does it by
        itself, unless somebody asks for `fileno`.
        """
        with self._mutex:
            return self._attendant is not None and self._attendant.read_ahead()

    def drain(self) -> bool:
        """Read what the watcher was told, lest its queue run over.

        True if something that is covered may have changed since the last call of this very shadow, whoever
        read it. May be called by any thread.
        """
        watch = self._gate.watch
        if watch is None:
            return True
        watch.drain()
        known, self._news = self._news, watch.news
        return known is not self._news

    def fileno(self) -> int | None:
        """Give a descriptor that becomes readable when there is something to drain, if there is one.

        Who asks for it has a loop of his own, so from now on there is no thread that reads ahead.
        """
        if self._attendant is not None:
            self._attendant.retire()
        return None if self._gate.watch is None else self._gate.watch.fileno()

    def watched_directories(self) -> list[str]:
        """Name the directories that are watched, by their full paths."""
        with self._mutex:
            paths = [] if self._gate.watch is None else self._gate.watch.directories()
        root = os.fsencode(self._gate.worktree)
        return [os.fsdecode(os.path.join(root, path)) for path in paths]

    def cancel(self) -> None:
        """Stop what this shadow does or is about to do in other threads, as Ctrl-C stops the main one.

        It raises KeyboardInterrupt where that does no harm: nothing is recorded, and no path is changed. What
        is recorded by then is done. Shadows of other sessions that were made of this one go on.
        """
        self._cancellation.is_wanted = True

    def last_number(self) -> int:
        """Give a number that grows with everything that is recorded of messages and acts; 0: nothing is.

        Whoever is at work is waited for, and what was interrupted is made good: if the number is the same as
        before something was begun, that was not done, and will not be.
        """
        with self._mutex:
            if not self.is_wrapped:
                return 0
            with self._gate.locked() as opened:
                return opened.journal.last_number()

    # Reading

    def _look(self, look: Callable[[OpenStore], Result]) -> Result:
        """Read without the lock, the timeline as of one moment; if an object is missing, once more with it.

        Somebody may have forgotten and freed what was just being read. Whoever holds the lock is alone: he is
        told that it is forgotten, or that the store is really damaged.
        """
        with self._mutex:
            opened = self._gate.open()
            try:
                with opened.journal.reading():
                    return look(opened)
            except StoreDamaged as damage:
                try:
                    with self._gate.locked() as alone:
                        return look(alone)
                except (OutOfSpace, StoreFailed) as error:
                    raise damage from error

    # Recording

    def _record(
        self,
        act: Callable[[Recorder], Result],
        progress: Progress | None = None,
        *,
        wraps: bool = True,
        takes: bool = True,
    ) -> Result:
        """Let a recorder do something under the lock; the first time, that wraps the worktree.

        If it takes a snapshot, the store must have room for that, and is kept within its budget afterwards.
        """
        with self._mutex:
            first_scan = self._gate.wrap() if wraps and not self.is_wrapped else None
            warnings = self._make_room() if takes else []
            with self._gate.locked() as opened:
                try:
                    if takes:
                        self._refuse_over_total()
                    warnings += self._refuse_over(opened) if takes else []
                    warnings += self._gate.idle.take_told() if takes else []
                    known = last_tree(opened)
                    result = act(self._make_recorder(opened, first_scan, progress))
                except BaseException:
                    self._gate.forget(opened, is_new=first_scan is not None)
                    raise
                has_to_shrink = takes and self._has_to_shrink(opened, known)
                opened.rest()
            if self._attendant is not None:
                self._attendant.attend()
            if has_to_shrink:
                warnings += self._keep_budgets(known)
            return add_warnings(result, warnings)

    # Budgets

    def _make_room(self) -> list[str]:
        """Keep a store within its budget that is over it before anything is recorded; say what was forgotten.

        The budget is a smaller one now, or somebody was killed. Freeing may take long, and whoever records
        holds the lock: so it is done before, as it is done after a record, where others come in between.
        """
        limit = self._gate.settings.store_budget
        if limit <= 0 or limit == self._gate.kept_budget or not self.is_wrapped:
            return []
        # From now on it is kept after each record.
        self._gate.kept_budget = limit
        if measure_files(StoreLayout(self._gate.store)) <= limit:
            return []
        return self._keep_budgets(last_tree(self._gate.open()))

    def _refuse_over(self, opened: OpenStore) -> list[str]:
        """Refuse to record if what is never forgotten is over the store's budget.

        Where nobody can tell, because something is damaged, the snapshot is taken: it heals what it can.
        """
        settings = self._gate.settings
        if settings.store_budget <= 0 or not opened.exceeded(settings.store_budget):
            return []
        from shadowtree.budget import refuse_over

        try:
            return refuse_over(opened, settings, _now_ms())
        except StoreDamaged as error:
            return [f"{_NOT_KEPT}: {error}"]

    def _refuse_over_total(self) -> None:
        """Refuse to record if a look at all stores found that what they never forget is over their budget."""
        stores = self._gate.stores
        if stores is None or not os.path.lexists(os.path.join(stores, OVER_NOTE)):
            return
        from shadowtree.totalbudget import refuse_over_total

        refuse_over_total(stores, self._gate.settings, _now_ms())

    def _has_to_shrink(self, opened: OpenStore, known: int) -> bool:
        """Tell whether a budget is to be looked at more closely, when the lock is free again.

        `known` is the number of the last tree before something was recorded.
        """
        limit = self._gate.settings.store_budget
        return _is_look_due(opened, known) or (limit > 0 and opened.exceeds(limit))

    def _keep_budgets(self, known: int) -> list[str]:
        """Free, and if that will not do forget, what the budgets have no room for; say so.

        What was recorded by now stays so, whatever fails.
        """
        from shadowtree.budget import Relief

        def look_around() -> Look | None:
            return self._look_around() if _is_look_due(self._gate.open(), known) else None

        relief = Relief()
        try:
            self._relieve(relief, look_around)
        except ShadowError as error:
            what = "what was forgotten is not freed yet" if relief.forgotten else _NOT_KEPT
            relief.told.append(f"{what}: {error}")
        return [*relief.lines, *relief.told]

    def _relieve(self, relief: Relief, look_around: Callable[[], Look | None]) -> None:
        """Free, and if that will not do forget, what the budgets have no room for."""
        from shadowtree.budget import can_forget, is_over

        with self._mutex:
            opened, settings = self._gate.open(), self._gate.settings
            has_to_forget = is_over(opened, settings) and can_forget(opened, settings)
        if has_to_forget:
            self._sweep_for(relief)
        look = look_around()
        relief.told += look.told if look is not None else []
        self._forget_over(look, relief)
        if relief.forgotten:
            self._sweep_for(relief)
        if look is not None:
            self._note_if_over(look)

    def _sweep_for(self, relief: Relief) -> None:
        from shadowtree.sweeping import Sweep

        sweep = Sweep()
        self._sweep(sweep)
        relief.removed += sweep.removed
        relief.freed += sweep.freed

    def _look_around(self) -> Look | None:
        """Let other stores shrink for a moment if all together take too much; or leave it to idle time."""
        if self._gate.stores is not None and self._gate.idle.is_used:
            self._gate.idle.has_to_look = True
            return None
        return self._look_for(_LOOK_S)

    def _look_through(self) -> Look | None:
        """Let other stores shrink until there is nothing more to do; nobody there waits long at a time.

        Each look is given more time than the one before: a store that has nothing to give may take all of it.
        """
        from shadowtree.frozen import replace

        told: list[str] = []
        seconds = _LOOK_S
        look = self._look_for(seconds)
        while look is not None and not look.is_through:
            told += look.told
            seconds *= 2
            sleep(_PAUSE_S)
            look = self._look_for(seconds)
        return None if look is None else replace(look, told=list(dict.fromkeys([*told, *look.told])))

    def _look_for(self, seconds: float) -> Look | None:
        from shadowtree.totalbudget import shrink_stores

        if self._gate.stores is None:
            return None
        is_over = _end_after(seconds)
        return shrink_stores(self._gate.stores, self._gate.settings, _now_ms(), is_over, but=self._gate.store)

    def _note_if_over(self, look: Look) -> None:
        from shadowtree.totalbudget import note_if_over

        if self._gate.stores is not None:
            note_if_over(self._gate.stores, look, self._gate.settings, _now_ms())

    def _forget_over(self, look: Look | None, relief: Relief) -> None:
        from shadowtree.budget import forget_over
        from shadowtree.totalbudget import shrink_own

        with self._mutex, self._gate.locked() as opened:
            settings = self._gate.settings
            forget_over(opened, settings, _now_ms(), relief)
            if look is not None:
                shrink_own(opened, look, settings, _now_ms(), relief)

    def _sweep(self, sweep: Sweep) -> None:
        """Free what nothing needs, and let others come between two steps."""
        has_more = True
        while has_more:
            with self._mutex, self._gate.locked() as opened:
                is_over = _end_after(_SWEEP_S)
                while has_more and not is_over():
                    has_more = sweep.step(opened, is_over)
            if has_more:
                sleep(_PAUSE_S)

    def _make_recorder(
        self, opened: OpenStore, first_scan: Scan | None, progress: Progress | None = None
    ) -> Recorder:
        site = self._gate.site
        heeding = self._cancellation.heed(progress)

        @contextmanager
        def take() -> Iterator[Capture]:
            self._cancellation.check()
            with capture(site, opened, first_scan=first_scan, progress=heeding) as taken:
                yield taken

        return Recorder(
            opened,
            self._session,
            take,
            settings=site.settings,
            time_ms=_now_ms(),
            git_head=self._git_head,
        )

    def _git_head(self) -> str | None:
        repository = find_around(os.fsencode(self._gate.worktree))
        return None if repository is None else read_head(repository)


def add_warnings(result: Result, warnings: list[str]) -> Result:
    """Tell of warnings in a result that has a place for them."""
    if not warnings or not isinstance(result, Message | Snapshot):
        return result
    from shadowtree.frozen import replace

    return replace(result, warnings=[*result.warnings, *warnings])


def last_tree(opened: OpenStore) -> int:
    """Give the number of the tree recorded last; 0: none is."""
    last = opened.journal.last_tree()
    return 0 if last is None else last.number


def _is_look_due(opened: OpenStore, known: int) -> bool:
    return last_tree(opened) // _LOOKS_AROUND > known // _LOOKS_AROUND


def _now_ms() -> int:
    return time_ns() // 1_000_000


def _path(path: str) -> Path:
    from pathlib import Path

    return Path(path)


def _end_after(seconds: float) -> Callable[[], bool]:
    deadline = monotonic() + seconds
    return lambda: monotonic() >= deadline
