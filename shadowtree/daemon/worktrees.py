"""The worktrees that the daemon serves: each with its warm shadow, and the requests to serve it.

All of this belongs to the event loop's thread. Calls that block go through `in_thread`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.limits import DEFAULT_LIMITS
from shadowtree.daemon import wire
from shadowtree.daemon.auto_push import AutoPush
from shadowtree.daemon.client import identify
from shadowtree.daemon.endpoint import Timing
from shadowtree.results.messages import Message, Snapshot
from shadowtree.shadow import Shadow, find_worktree
from shadowtree.watching.auto import Auto

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")
    Progress = Callable[[int, int], None]
    Holder = Callable[[str, object], None]
    """A conversation that a worktree is served for, as the function that sends it a frame."""

LOG = logging.getLogger("shadowtree.daemon")

_LAST_BURST_S = 5.0
"""How long the last burst may take to be recorded."""
_AGAIN_S = 60.0
"""How long to wait before recording again after a bug has stopped it."""
_TIDY_S = 0.5
"""The time for one step of tidying: as long as rewriting the largest part takes."""
_GLANCE_S = 0.1
"""How long `watch status` waits for a worktree that is in use."""


class Gone(Exception):
    """Raised if the worktree is no longer served, or is in use for too long."""


class Cancelled(Exception):
    """Raised if the command has cancelled its work."""


async def in_thread(
    call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function that may block in another thread; turn its KeyboardInterrupt into Cancelled."""

    def call_it() -> Result:
        try:
            return call(*arguments, **named)
        except KeyboardInterrupt as error:
            # It must not reach the event loop, which it would end.
            raise Cancelled from error

    return await asyncio.to_thread(call_it)


@frozen
class Wish:
    """A command's wish that a worktree is served."""

    worktree: str
    store: str | None
    allow_broad: bool = False
    auto_s: float | None = None
    """Record bursts automatically, each after this much quiet; None: do not."""
    session: str = "default"
    """The session in which bursts are recorded."""
    idle_s: float | None = None
    """How long it may be unused before it is dropped; None: the usual time."""
    watch_share: float | None = None
    """The share of the user's watches that all worktrees with a share take together; None: as usual."""

    def open(self, taken: int) -> Shadow:
        """Open a shadow that watches the worktree; others use `taken` watches of the share already."""
        make = partial(Shadow, self.worktree, store=self.store, watch=True, allow_broad=self.allow_broad)
        if self.watch_share is None:
            return make()
        limits = replace(DEFAULT_LIMITS, watch_share=self.watch_share, watches_taken=taken)
        return make(limits=limits)

    def find_place(self) -> tuple[str, str]:
        """Return the paths of the worktree and its store."""
        with Shadow(self.worktree, store=self.store, allow_broad=self.allow_broad) as shadow:
            return str(shadow.worktree), str(shadow.store)


class Served:
    """One worktree. Its shadow is used by one request at a time."""

    def __init__(self, shadow: Shadow, *, is_usual: bool) -> None:
        self.shadow = shadow
        self.worktree = str(shadow.worktree)
        self.store = str(shadow.store)
        self.is_usual = is_usual
        """Its store is the one that commands use if they name none."""
        self.auto: Recording | None = None
        """Records bursts automatically, if a command wants that."""
        self.auto_wishes: dict[Holder | None, Wish] = {}
        """The wishes to record bursts, by holder: the last one applies; when it goes, the one before it.

        All are for one session: a burst is one message, so an earlier wish would miss bursts of its session.
        """
        self.holders: set[Holder] = set()
        """The conversations that it is served for, as long as they last."""
        self.is_kept = False
        """It is served even without holders, until it has not been used for a long time."""
        self.idle_s: float | None = None
        """How long that is; None: the usual time."""
        self.has_share = False
        """Its watches count towards a share that several worktrees have together."""
        self.is_warm = False
        self.is_dropped = False
        self.seen: list[int] | None = None
        """The devices and inodes of the worktree and the store."""
        self.sessions: set[str] = set()
        self.requests = 0
        self.is_tidy = True
        """Whether its store was tidied since it was last used."""
        self.used_s = self.since_s = time.time()
        self.idle_since_s = time.monotonic()
        self.looked_s = time.monotonic()
        """When all of it was last checked for unreported changes."""
        self.draining: asyncio.Task[None] | None = None
        self.auto_push: AutoPush | None = None
        self._lock = asyncio.Lock()

    def warm_up(self, progress: Progress | None) -> Snapshot:
        """Record the present state, which makes the next record cheap. Blocks."""
        snapshot = self.shadow.take_snapshot(progress=progress)
        with suppress(ShadowError):
            # From now on, the shadow tidies only in idle time, so no command pays for it; errors show then.
            self.shadow.tidy(0)
        self.seen = identify(self.worktree, self.store)
        self.is_warm = True
        return snapshot

    def is_there(self) -> bool:
        """Return whether worktree and store are the same directories as before, and still a store. Blocks."""
        return identify(self.worktree, self.store) == self.seen and self.shadow.is_wrapped

    @property
    def is_in_use(self) -> bool:
        """Whether the shadow is being used now."""
        return self._lock.locked()

    @asynccontextmanager
    async def alone(self, timeout_s: float) -> AsyncIterator[None]:
        """Use the shadow alone; raise Gone if it stays in use for `timeout_s`, or is dropped meanwhile."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._lock.acquire()
        except TimeoutError as error:
            raise Gone(f"{self.worktree} is in use") from error
        try:
            if self.is_dropped:
                raise Gone(f"{self.worktree} is no longer served")
            yield
        finally:
            if self.is_dropped:
                self.shadow.close()
            self._lock.release()

    @asynccontextmanager
    async def in_use(self, timeout_s: float) -> AsyncIterator[None]:
        """Use the shadow alone for a request, after which idle time begins anew."""
        async with self.alone(timeout_s):
            self.is_tidy = False
            if self.auto_push is not None:
                self.auto_push.note_use()
            try:
                yield
            finally:
                self.idle_since_s = time.monotonic()

    async def close(self) -> None:
        """Close the shadow; if it is in use, the request that uses it closes it."""
        self.is_dropped = True
        if self.auto_push is not None:
            self.auto_push.stop()
        self.auto_wishes.clear()
        await self.record_as_wished()
        if not self.is_in_use:
            self.shadow.close()

    def require_session(self, wish: Wish) -> None:
        """Raise DaemonFailed if bursts are recorded in another session than the wish names."""
        others = {other.session for other in self.auto_wishes.values()} - {wish.session}
        if wish.auto_s is not None and others:
            raise DaemonFailed(
                f"already records changes of {self.worktree} in session {others.pop()!r}, "
                f"not in {wish.session!r}; run 'shadowtree watch stop' first"
            )

    async def record_as_wished(self) -> None:
        """Record bursts as the last wish says, or stop if there is none."""
        auto, self.auto = self.auto, None
        if auto is not None:
            await in_thread(auto.stop)
        if self.auto_wishes and self.auto is None and not self.is_dropped:
            *_, wish = self.auto_wishes.values()
            self.auto = Recording(self, wish)
            await in_thread(self.auto.start)

    def tell_burst(self, message: Message) -> None:
        """Report a burst that was recorded to the connections that hold this worktree."""
        for tell in self.holders:
            tell("burst", wire.encode(message))

    def note_request(self, session: str) -> None:
        """Count a request."""
        self.requests += 1
        self.used_s = time.time()
        self.sessions.add(session)

    async def describe_watching(self) -> dict[str, Any] | None:  # Any: plain values
        """Return how well it is watched; None while it is in use."""
        try:
            async with self.alone(_GLANCE_S):
                watching = self.shadow.watching
        except Gone:
            return None
        return None if watching is None else watching.to_dict()

    async def describe(self) -> dict[str, Any]:  # Any: plain values
        """Return what `watch status` shows of it."""
        auto = self.auto
        return {
            "worktree": self.worktree,
            "store": self.store,
            "sessions": sorted(self.sessions),
            "watching": await self.describe_watching(),
            "requests": self.requests,
            "since_ms": int(self.since_s * 1000),
            "used_ms": int(self.used_s * 1000),
            "is_kept": self.is_kept,
            "idle_s": self.idle_s,
            "holders": len(self.holders),
            "auto_s": None if auto is None else auto.wish.auto_s,
            "auto_session": None if auto is None else auto.wish.session,
            "failure": None if auto is None else auto.failure,
        }


class Recording:
    """Records the bursts of one worktree, in a thread of its own."""

    def __init__(self, served: Served, wish: Wish) -> None:
        assert wish.auto_s is not None
        self.wish = wish
        self.failure: str | None = None
        """Why the last burst could not be recorded; it is tried again."""
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        shadow = served.shadow.for_session(wish.session)
        self._auto = Auto(shadow, wish.auto_s, on_message=self._note, on_failure=self._note_failure)
        self._thread = threading.Thread(target=self._run, name="auto", daemon=True)

    def start(self) -> None:
        """Start: everything that changes from now on is recorded."""
        self._auto.begin()
        self._thread.start()

    def stop(self) -> None:
        """Stop, after a burst that has not ended is recorded."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_BURST_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._auto.run(self._stop)
            except Exception as error:  # a caller relies on the recording, so it must go on
                self.failure = f"{type(error).__name__}: {error}"
                LOG.exception("internal error")
                self._stop.wait(_AGAIN_S)

    def _note(self, message: Message) -> None:
        self.failure = None
        self._loop.call_soon_threadsafe(self._served.tell_burst, message)

    def _note_failure(self, error: ShadowError) -> None:
        self.failure = str(error)


class Worktrees:
    """All worktrees that are served, by worktree and store."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._served: dict[tuple[str, str], Served] = {}
        self._next_round_s = time.monotonic() + timing.round_s

    def all(self) -> list[Served]:
        """List the served worktrees, in the order in which they were added."""
        return list(self._served.values())

    async def find(self, start: str, store: str | None) -> Served | None:
        """Find the served worktree that a directory is in; None unless it is warm and still exists."""
        try:
            worktree = await in_thread(find_worktree, start, store=store)
        except ShadowError:
            return None
        for served in self.all():
            is_meant = served.is_usual if store is None else served.store == os.path.realpath(store)
            if served.worktree == worktree and served.is_warm and is_meant:
                if await in_thread(served.is_there):
                    return served
                await self.drop(served, "it no longer exists")
                return None
        return None

    async def serve(
        self, wish: Wish, holder: Holder | None, progress: Progress
    ) -> dict[str, Any]:  # Any: plain values
        """Serve a worktree, for a holder or for as long as it is used, and warm it up."""
        served = await self._add(wish, holder)
        try:
            async with served.in_use(served.shadow.settings.lock_timeout):
                snapshot = await in_thread(served.warm_up, progress)
        except Gone as error:
            raise DaemonFailed(f"cannot watch this directory: {error}") from error
        finally:
            if not served.is_warm:
                await self._remove(served)
        self._hear(served)
        if wish.auto_s is not None:
            served.require_session(wish)
            served.auto_wishes.pop(holder, None)
            served.auto_wishes[holder] = wish
            await served.record_as_wished()
        LOG.info("serving %s", served.worktree)
        return {
            "worktree": served.worktree,
            "store": served.store,
            **snapshot.to_dict(),
            "pid": os.getpid(),
            "watching": await served.describe_watching(),
        }

    async def release(self, holder: Holder) -> None:
        """Remove a holder, and drop the worktrees that nothing else holds or keeps."""
        for served in self.all():
            served.holders.discard(holder)
            if not served.holders and not served.is_kept:
                await self.drop(served, "nothing uses it")
            elif served.auto_wishes.pop(holder, None) is not None:
                await served.record_as_wished()

    async def drop(self, served: Served, why: str) -> bool:
        """Stop serving a worktree, and inform its holders; return False if it was dropped already."""
        holders = list(served.holders)
        if not await self._remove(served):
            return False
        LOG.info("no longer serving %s: %s", served.worktree, why)
        for tell in holders:
            tell("gone", why)
        return True

    async def close(self) -> None:
        """Stop serving all worktrees."""
        for served in self.all():
            await self._remove(served)

    async def make_round(self) -> None:
        """If a round is due, drop the worktrees that no longer exist or are no longer used."""
        now = time.monotonic()
        if now < self._next_round_s:
            return
        self._next_round_s = now + self._timing.round_s
        for served in self.all():
            unused_s = self._timing.unused_s if served.idle_s is None else served.idle_s
            is_unused = now - served.idle_since_s >= unused_s
            if served.is_warm and not await in_thread(served.is_there):
                await self.drop(served, "it no longer exists")
            elif is_unused and not served.holders and served.auto is None:
                await self.drop(served, "it has not been used for a while")

    async def use_idle_time(self) -> bool:
        """If no worktree is in use, start pushes that are due, and tidy a store or check a worktree briefly.

        Returns True if there may be more to do, after a pause.
        """
        if any(served.is_in_use for served in self.all()):
            return False
        for served in self.all():
            now, idle_since_s = time.monotonic(), served.idle_since_s
            if served.auto_push is None:
                served.auto_push = AutoPush(served.worktree, served.store, self._timing.push_after_s)
            served.auto_push.consider(idle_since_s)
            is_to_tidy = not served.is_tidy and now >= idle_since_s + self._timing.tidy_after_s
            is_to_look = now >= max(
                served.looked_s + self._timing.look_every_s, idle_since_s + self._timing.quiet_s
            )
            if is_to_tidy or is_to_look:
                with suppress(Gone):
                    async with served.alone(0):
                        await (self._tidy if is_to_tidy else self._look_over)(served)
                        return True
        return False

    async def _add(self, wish: Wish, holder: Holder | None) -> Served:
        """Add a worktree without warming it up, or find it.

        Raises DaemonFailed if its bursts are recorded in another session than the wish names.
        """
        found = await in_thread(find_worktree, wish.worktree, store=wish.store)
        wish = replace(wish, worktree=found or wish.worktree)
        place = await in_thread(wish.find_place)
        is_usual = wish.store is None or place == await in_thread(Wish(wish.worktree, None).find_place)
        if place not in self._served:
            self._served[place] = Served(wish.open(self._count_shared()), is_usual=is_usual)
            self._served[place].has_share = wish.watch_share is not None
        served = self._served[place]
        served.require_session(wish)
        # A kept worktree with the usual time keeps it; otherwise the latest wish applies.
        served.idle_s = wish.idle_s if not served.is_kept or served.idle_s is not None else None
        if holder is None:
            served.is_kept = True
        else:
            served.holders.add(holder)
        return served

    def _count_shared(self) -> int:
        """Count the watches that worktrees with a share have taken together."""
        reports = [served.shadow.watching for served in self.all() if served.has_share]
        return sum(report.directories for report in reports if report is not None)

    async def _remove(self, served: Served) -> bool:
        place = served.worktree, served.store
        if self._served.get(place) is not served:
            return False
        del self._served[place]
        fd = served.shadow.fileno()
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
        await served.close()
        return True

    def _hear(self, served: Served) -> None:
        """Drain the watcher whenever it has events, so that its queue does not overflow."""
        fd = served.shadow.fileno()
        if fd is not None:
            asyncio.get_running_loop().add_reader(fd, self._start_draining, served, fd)

    def _start_draining(self, served: Served, fd: int) -> None:
        # Stop listening until it is drained: unread events would wake the loop again and again.
        asyncio.get_running_loop().remove_reader(fd)
        served.draining = asyncio.create_task(self._drain(served))

    async def _drain(self, served: Served) -> None:
        try:
            await in_thread(served.shadow.drain)
        except ShadowError as error:
            await self.drop(served, str(error))
        if not served.is_dropped:
            self._hear(served)

    async def _tidy(self, served: Served) -> None:
        try:
            served.is_tidy = await in_thread(served.shadow.tidy, _TIDY_S)
        except ShadowError as error:
            LOG.info("tidying %s failed: %s", served.store, error)
            served.is_tidy = True

    async def _look_over(self, served: Served) -> None:
        begun_s = time.monotonic()
        try:
            is_done = await in_thread(served.shadow.look_over, self._timing.look_s)
        except ShadowError as error:
            LOG.info("looking over %s failed: %s", served.worktree, error)
            is_done = True
        # If nothing is watched, there is nothing to check: the next request scans everything.
        if is_done or time.monotonic() - begun_s < self._timing.look_s:
            served.looked_s = time.monotonic()
