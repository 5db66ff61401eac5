"""The worktrees that are served: each with its warm shadow, who wants it to be, and what was done with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import shadowtree
from shadowtree.daemon.client import identify
from shadowtree.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Progress = Callable[[int, int], None]
    Tell = Callable[[shadowtree.Message], None]
    Fail = Callable[[BaseException], None]

_LAST_BURST_S = 5.0
"""How long the last burst may take to be recorded."""
_AGAIN_S = 60.0
"""After how long recording is tried again that a bug has ended."""
_GLANCE_S = 0.1
"""How often somebody who waits looks whether he is still to wait."""


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


class Gone(Exception):
    """The worktree is no longer served, or in use for too long."""


class Served:
    """One worktree. Its shadow is used by one request at a time."""

    def __init__(self, wish: Wish) -> None:
        self.shadow = shadowtree.Shadow(
            wish.worktree, store=wish.store, watch=True, allow_broad=wish.allow_broad
        )
        self.worktree = str(self.shadow.worktree)
        self.store = str(self.shadow.store)
        self.is_usual = wish.store is None or _find_place(Wish(wish.worktree, None)) == (
            self.worktree,
            self.store,
        )
        """Its store is the one that a command means which names none."""
        self.auto: Recording | None = None
        """Records what happens by itself, if somebody wants that."""
        self._auto_wishes: dict[object | None, Wish] = {}
        """Who wants that, and how: the last one has his way, and when he goes the one before him.

        All of one session: a burst is one message, and who asked first would lose what he waits for.
        """
        self._auto_mutex = threading.Lock()
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
        self.uses = 0
        """Grows with each use, which may have changed the watcher's descriptor."""
        self.tidied = 0
        """How many uses there were when its store was last tidied."""
        self.used_s = self.since_s = time.time()
        self.idle_since_s = time.monotonic()
        self.looked_s = time.monotonic()
        """When all of it was looked at last."""
        self._mutex = threading.Lock()

    @property
    def is_tidy(self) -> bool:
        """Whether its store was tidied since it was last used."""
        return self.tidied == self.uses

    @property
    def turn(self) -> tuple[int, int]:
        """What changes whenever the watcher may have another descriptor."""
        watching = self.shadow.watching
        return self.uses, 0 if watching is None else watching.rescans

    def warm_up(self, progress: Progress | None) -> shadowtree.Snapshot:
        """Record the present state, which is what makes the next record cheap."""
        snapshot = self.shadow.take_snapshot(progress=progress)
        with suppress(shadowtree.ShadowError):
            # Who tidies once goes on to: no command pays for it from now on. If it fails, idle time tells.
            self.shadow.tidy(0)
        self.seen = identify(self.worktree, self.store)
        self.is_warm = True
        return snapshot

    def is_there(self) -> bool:
        """Tell whether worktree and store are still the same directories, and the store is one."""
        return identify(self.worktree, self.store) == self.seen and self.shadow.is_wrapped

    @contextmanager
    def in_use(self, timeout_s: float, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Use the shadow alone; raise Gone if it is used by others for so long, or dropped meanwhile.

        `check` is called while others are waited for, and may raise.
        """
        deadline = time.monotonic() + timeout_s
        while not self._mutex.acquire(timeout=min(_GLANCE_S, max(0.0, deadline - time.monotonic()))):
            check()
            if time.monotonic() >= deadline:
                raise Gone(f"{self.worktree} is in use")
        try:
            if self.is_dropped:
                raise Gone(f"{self.worktree} is no longer served")
            yield
        finally:
            self.idle_since_s = time.monotonic()
            self.uses += 1
            self._release()

    def try_using(self) -> bool:
        """Begin to use the shadow if nobody does; `stop_using` must follow."""
        if not self._mutex.acquire(blocking=False):
            return False
        if self.is_dropped:
            self._release()
            return False
        return True

    def stop_using(self) -> None:
        """Let others use it."""
        self._release()

    def drop(self) -> None:
        """Let go of it; if it is in use, that is done by whoever uses it."""
        self.is_dropped = True
        self.stop_recording()
        if self._mutex.acquire(blocking=False):
            self._release()

    def _release(self) -> None:
        # Whoever drops it sees the mutex taken or lets go himself; so nobody is left out.
        if self.is_dropped:
            self.shadow.close()
        self._mutex.release()
        if self.is_dropped and self._mutex.acquire(blocking=False):
            self.shadow.close()
            self._mutex.release()

    def record_bursts(self, wish: Wish, holder: object | None, tell: Tell, fail: Fail) -> None:
        """Record what happens by itself from now on, for as long as its holder wants that.

        Raise DaemonFailed if that is done in another session.
        """
        with self._auto_mutex:
            self.require_session(wish)
            self._auto_wishes.pop(holder, None)
            self._auto_wishes[holder] = wish
            self._record_as_wished(tell, fail)

    def require_session(self, wish: Wish) -> None:
        """Raise DaemonFailed if what somebody wants to be recorded is recorded in another session."""
        # A list, because somebody may come or go meanwhile.
        others = {other.session for other in list(self._auto_wishes.values())} - {wish.session}
        if wish.auto_s is not None and others:
            raise shadowtree.DaemonFailed(
                f"records the bursts of {self.worktree} in session {others.pop()!r} already, "
                f"not in {wish.session!r}; try 'shadowtree watch stop' first"
            )

    def forget_wish(self, holder: object, tell: Tell, fail: Fail) -> None:
        """Record nothing by itself for a holder any more; if somebody else wants that too, for him."""
        with self._auto_mutex:
            if self._auto_wishes.pop(holder, None) is not None:
                self._record_as_wished(tell, fail)

    def stop_recording(self) -> None:
        """Record nothing by itself any more; a burst that goes on is recorded as it is."""
        with self._auto_mutex:
            self._auto_wishes.clear()
            self._end_recording()

    def _record_as_wished(self, tell: Tell, fail: Fail) -> None:
        self._end_recording()
        if not self._auto_wishes or self.is_dropped:
            return
        wish = list(self._auto_wishes.values())[-1]
        assert wish.auto_s is not None
        auto = Recording(self.shadow.for_session(wish.session), wish.auto_s, tell, fail)
        auto.start()
        self.auto = auto

    def _end_recording(self) -> None:
        auto, self.auto = self.auto, None
        if auto is not None:
            auto.stop()

    def note_request(self, session: str) -> None:
        """Count a request."""
        self.requests += 1
        self.used_s = time.time()
        self.sessions.add(session)

    def describe_watching(self) -> dict[str, Any] | None:  # Any: plain values
        """Tell how well it is in sight; None while it is in use. To ask that is no use of it."""
        if not self._mutex.acquire(timeout=_GLANCE_S):
            return None
        try:
            watching = None if self.is_dropped else self.shadow.watching
        finally:
            self._release()
        return None if watching is None else watching.to_dict()

    def to_dict(self) -> dict[str, Any]:  # Any: plain values
        """Give what `watch status` tells of it."""
        auto = self.auto
        return {
            "worktree": self.worktree,
            "store": self.store,
            "sessions": sorted(self.sessions),
            "watching": self.describe_watching(),
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

    def __init__(self, shadow: shadowtree.Shadow, quiet_s: float, tell: Tell, fail: Fail) -> None:
        self.session = shadow.session
        self.quiet_s = quiet_s
        self.failure: str | None = None
        """Why the last burst could not be recorded; it is tried again."""
        self._tell = tell
        self._fail = fail
        self._stop = threading.Event()
        self._auto = shadowtree.Auto(shadow, quiet_s, on_message=self._note, on_failure=self._note_failure)
        self._thread = threading.Thread(target=self._run, name="auto", daemon=True)

    def start(self) -> None:
        """Begin: what changes from now on is recorded."""
        self._auto.begin()
        self._thread.start()

    def stop(self) -> None:
        """End, when a burst that goes on is recorded."""
        self._stop.set()
        self._thread.join(_LAST_BURST_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._auto.run(self._stop)
            except Exception as error:  # noqa: BLE001  # who is told that it is recorded must not be wrong
                self.failure = f"{type(error).__name__}: {error}"
                self._fail(error)
                self._stop.wait(_AGAIN_S)

    def _note(self, message: shadowtree.Message) -> None:
        self.failure = None
        self._tell(message)

    def _note_failure(self, error: shadowtree.ShadowError) -> None:
        self.failure = str(error)


class Worktrees:
    """All worktrees that are served, by worktree and store."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._served: dict[tuple[str, str], Served] = {}

    def __len__(self) -> int:
        return len(self._served)

    def all(self) -> list[Served]:
        """List them, in the order in which they came."""
        with self._mutex:
            return list(self._served.values())

    def find(self, start: str, store: str | None) -> Served | None:
        """Find the one that a directory is in; None: it is in none that is served, and warm."""
        worktree = shadowtree.find_worktree(start, store=store)
        if worktree is None:
            return None
        for served in self.all():
            is_meant = served.is_usual if store is None else served.store == os.path.realpath(store)
            if served.worktree == worktree and served.is_warm and is_meant:
                return served
        return None

    def add(self, wish: Wish, holder: object | None) -> Served:
        """Take a worktree in, cold, or find it; for a holder, or for as long as it is used.

        Raise DaemonFailed, and do nothing, if its bursts are recorded in another session than is wished.
        """
        place = _find_place(wish)
        with self._mutex:
            if place not in self._served:
                self._served[place] = Served(wish)
            served = self._served[place]
            served.require_session(wish)
            if holder is None:
                served.is_kept = True
            else:
                served.holders.add(holder)
            return served

    def release(self, holder: object) -> list[Served]:
        """Forget a holder; give what nobody else wants, which is to be dropped."""
        with self._mutex:
            for served in self._served.values():
                served.holders.discard(holder)
            return [each for each in self._served.values() if not each.holders and not each.is_kept]

    def drop(self, served: Served) -> bool:
        """Serve a worktree no longer; False: somebody else has dropped it."""
        with self._mutex:
            key = served.worktree, served.store
            if self._served.get(key) is not served:
                return False
            del self._served[key]
        served.drop()
        return True


def _find_place(wish: Wish) -> tuple[str, str]:
    """Name the worktree and the store that are meant."""
    shadow = shadowtree.Shadow(wish.worktree, store=wish.store, allow_broad=wish.allow_broad)
    return str(shadow.worktree), str(shadow.store)
