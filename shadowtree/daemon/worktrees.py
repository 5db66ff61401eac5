"""The worktrees that the daemon serves: each with its warm shadow, and who wants it to be served.

All of this belongs to the event loop's thread. What blocks is done by `in_thread`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.base.frozen import frozen
from shadowtree.daemon.client import identify
from shadowtree.results.messages import Message, Snapshot
from shadowtree.shadow import Shadow, find_worktree
from shadowtree.watching.auto import Auto

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")
    Progress = Callable[[int, int], None]

_LAST_BURST_S = 5.0
"""How long the last burst may take to be recorded."""
_AGAIN_S = 60.0
"""After how long recording is tried again that a bug has ended."""
_GLANCE_S = 0.1
"""How often a request that waits for others looks whether it is still wanted."""


async def in_thread(
    call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call what may block, in another thread."""
    return await asyncio.to_thread(call, *arguments, **named)


@frozen
class Wish:
    """A worktree that somebody wants to be served."""

    worktree: str
    store: str | None
    allow_broad: bool = False
    auto_s: float | None = None
    """Record what happens by itself, once it was quiet for so long; None: do not."""
    session: str = "default"
    """The session of what is recorded by itself."""

    def open(self) -> Shadow:
        """Open a shadow of it that watches."""
        return Shadow(self.worktree, store=self.store, watch=True, allow_broad=self.allow_broad)

    def find_place(self) -> tuple[str, str]:
        """Name the worktree and the store that are meant."""
        with Shadow(self.worktree, store=self.store, allow_broad=self.allow_broad) as shadow:
            return str(shadow.worktree), str(shadow.store)


class Gone(Exception):
    """The worktree is no longer served, or in use for too long."""


class Cancelled(Exception):
    """The command does not want it any more."""


class Served:
    """One worktree. Its shadow is used by one request at a time."""

    def __init__(self, shadow: Shadow, *, is_usual: bool) -> None:
        self.shadow = shadow
        self.worktree = str(shadow.worktree)
        self.store = str(shadow.store)
        self.is_usual = is_usual
        """Its store is the one that a command means which names none."""
        self.auto: Recording | None = None
        """Records what happens by itself, if somebody wants that."""
        self.auto_wishes: dict[object | None, Wish] = {}
        """Who wants that, and how: the last one counts, and when it goes the one before it.

        All of one session: a burst is one message, and who asked first would lose what it waits for.
        """
        self.holders: set[object] = set()
        """The conversations that it is served for, as long as they last."""
        self.is_kept = False
        """It is served for nobody in particular, until it is not used for long."""
        self.is_warm = False
        self.is_dropped = False
        self.seen: list[int] | None = None
        """Device and inode of worktree and store."""
        self.sessions: set[str] = set()
        self.requests = 0
        self.is_tidy = True
        """Whether its store was tidied since it was last used."""
        self.used_s = self.since_s = time.time()
        self.idle_since_s = time.monotonic()
        self.looked_s = time.monotonic()
        """When all of it was looked at last."""
        self.draining: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    def warm_up(self, progress: Progress | None) -> Snapshot:
        """Record the present state, which is what makes the next record cheap. Blocks."""
        snapshot = self.shadow.take_snapshot(progress=progress)
        with suppress(ShadowError):
            # Who tidies once goes on to: no command pays for it from now on. If it fails, idle time tells.
            self.shadow.tidy(0)
        self.seen = identify(self.worktree, self.store)
        self.is_warm = True
        return snapshot

    def is_there(self) -> bool:
        """Tell whether worktree and store are still the same directories, and the store is one. Blocks."""
        return identify(self.worktree, self.store) == self.seen and self.shadow.is_wrapped

    @asynccontextmanager
    async def in_use(
        self, timeout_s: float, is_unwanted: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[None]:
        """Use the shadow alone; Gone if others use it for so long, or if it is dropped meanwhile.

        Cancelled if nobody wants it any more while others are waited for.
        """
        deadline = time.monotonic() + timeout_s
        while not await self._try_lock(min(_GLANCE_S, deadline - time.monotonic())):
            if is_unwanted():
                raise Cancelled
            if time.monotonic() >= deadline:
                raise Gone(f"{self.worktree} is in use")
        try:
            if self.is_dropped:
                raise Gone(f"{self.worktree} is no longer served")
            self.is_tidy = False
            yield
        finally:
            self.idle_since_s = time.monotonic()
            self._unlock()

    @asynccontextmanager
    async def in_idle_use(self) -> AsyncIterator[bool]:
        """Use the shadow for what nobody asked for; gives False if others use it."""
        is_free = not self._lock.locked() and await self._try_lock(0)
        try:
            yield is_free and not self.is_dropped
        finally:
            if is_free:
                self._unlock()

    async def drop(self) -> None:
        """Close it; if it is in use, whoever uses it does that."""
        self.is_dropped = True
        self.auto_wishes.clear()
        await self.record_as_wished(None, None)
        if not self._lock.locked():
            self.shadow.close()

    async def _try_lock(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._lock.acquire()
        except TimeoutError:
            return False
        return True

    def _unlock(self) -> None:
        if self.is_dropped:
            self.shadow.close()
        self._lock.release()

    # What is recorded by itself

    def require_session(self, wish: Wish) -> None:
        """Raise DaemonFailed if what somebody wants to be recorded is recorded in another session."""
        others = {other.session for other in self.auto_wishes.values()} - {wish.session}
        if wish.auto_s is not None and others:
            raise DaemonFailed(
                f"records the bursts of {self.worktree} in session {others.pop()!r} already, "
                f"not in {wish.session!r}; try 'shadowtree watch stop' first"
            )

    async def record_as_wished(
        self,
        on_message: Callable[[Message], None] | None,
        on_failure: Callable[[BaseException], None] | None,
    ) -> None:
        """Record what happens by itself as the last wish says; both callbacks come from another thread."""
        auto, self.auto = self.auto, None
        if auto is not None:
            await in_thread(auto.stop)
        is_wanted = bool(self.auto_wishes) and self.auto is None and not self.is_dropped
        if is_wanted and on_message is not None and on_failure is not None:
            wish = list(self.auto_wishes.values())[-1]
            assert wish.auto_s is not None
            self.auto = Recording(self.shadow.for_session(wish.session), wish.auto_s, on_message, on_failure)
            await in_thread(self.auto.start)

    # What is told of it

    def note_request(self, session: str) -> None:
        """Count a request."""
        self.requests += 1
        self.used_s = time.time()
        self.sessions.add(session)

    async def describe_watching(self) -> dict[str, Any] | None:  # Any: plain values
        """Tell how well it is watched; None while it is in use."""
        if not await self._try_lock(_GLANCE_S):
            return None
        try:
            watching = None if self.is_dropped else self.shadow.watching
        finally:
            self._unlock()
        return None if watching is None else watching.to_dict()

    async def describe(self) -> dict[str, Any]:  # Any: plain values
        """Give what `watch status` tells of it."""
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
            "holders": len(self.holders),
            "auto_s": None if auto is None else auto.quiet_s,
            "auto_session": None if auto is None else auto.session,
            "failure": None if auto is None else auto.failure,
        }


class Recording:
    """Records the bursts of one worktree, in a thread of its own."""

    def __init__(
        self,
        shadow: Shadow,
        quiet_s: float,
        on_message: Callable[[Message], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.session = shadow.session
        self.quiet_s = quiet_s
        self.failure: str | None = None
        """Why the last burst could not be recorded; it is tried again."""
        self._on_message = on_message
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._auto = Auto(shadow, quiet_s, on_message=self._note, on_failure=self._note_failure)
        self._thread = threading.Thread(target=self._run, name="auto", daemon=True)

    def start(self) -> None:
        """Begin: what changes from now on is recorded."""
        self._auto.begin()
        self._thread.start()

    def stop(self) -> None:
        """End, when a burst that goes on is recorded."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_BURST_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._auto.run(self._stop)
            except Exception as error:  # noqa: BLE001  # who is told that it is recorded must not be wrong
                self.failure = f"{type(error).__name__}: {error}"
                self._on_failure(error)
                self._stop.wait(_AGAIN_S)

    def _note(self, message: Message) -> None:
        self.failure = None
        self._on_message(message)

    def _note_failure(self, error: ShadowError) -> None:
        self.failure = str(error)


class Worktrees:
    """All worktrees that are served, by worktree and store."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str], Served] = {}

    def __len__(self) -> int:
        return len(self._served)

    def all(self) -> list[Served]:
        """List them, in the order in which they came."""
        return list(self._served.values())

    async def find(self, start: str, store: str | None) -> Served | None:
        """Find the one that a directory is in; None: it is in none that is served, and warm."""
        try:
            worktree = await in_thread(find_worktree, start, store=store)
        except ShadowError:
            return None
        for served in self.all():
            is_meant = served.is_usual if store is None else served.store == os.path.realpath(store)
            if served.worktree == worktree and served.is_warm and is_meant:
                return served
        return None

    async def add(self, wish: Wish, holder: object | None) -> Served:
        """Take a worktree in, cold, or find it; for a holder, or for as long as it is used.

        Raise DaemonFailed, and do nothing, if its bursts are recorded in another session than is wished.
        """
        found = await in_thread(find_worktree, wish.worktree, store=wish.store)
        wish = Wish(found or wish.worktree, wish.store, wish.allow_broad, wish.auto_s, wish.session)
        place = await in_thread(wish.find_place)
        is_usual = wish.store is None or place == await in_thread(Wish(wish.worktree, None).find_place)
        if place not in self._served:
            self._served[place] = Served(wish.open(), is_usual=is_usual)
        served = self._served[place]
        served.require_session(wish)
        if holder is None:
            served.is_kept = True
        else:
            served.holders.add(holder)
        return served

    def release(self, holder: object) -> list[Served]:
        """Forget a holder; give what nobody else wants, which is to be dropped."""
        for served in self._served.values():
            served.holders.discard(holder)
        return [each for each in self._served.values() if not each.holders and not each.is_kept]

    async def drop(self, served: Served) -> bool:
        """Serve a worktree no longer; False: it is dropped already."""
        key = served.worktree, served.store
        if self._served.get(key) is not served:
            return False
        del self._served[key]
        await served.drop()
        return True
