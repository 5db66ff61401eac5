"""Record each burst of changes as a message automatically, for agents that do not announce their work.

    watcher's descriptor ──▶ burst goes on ──▶ quiet ──▶ record_burst ──▶ a message, or nothing

A burst ends after some quiet, or when it has lasted too long:

    changes   x xx   x  xx             x
              |          |<-- quiet -->|
              began      last          would end here, but a change came in time
"""

from __future__ import annotations

import select
from collections.abc import Callable
from threading import Event
from time import gmtime, monotonic, strftime, time

from shadowtree.base.errors import DuplicateMessage, ShadowError
from shadowtree.base.frozen import frozen, replace
from shadowtree.results.messages import Message, Snapshot, Watching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class RecordsBursts(Protocol):
        """The part of a shadow that is needed; it should be one that watches."""

        @property
        def watching(self) -> Watching | None:
            """How well the worktree is watched."""

        def fileno(self) -> int | None:
            """Return a descriptor that becomes readable when something happens."""

        def drain(self) -> bool:
            """Read the events so far; return True if something may have changed since the last call."""

        def take_snapshot(self) -> Snapshot:
            """Record the present state."""

        def record_burst(self, id: str) -> Message | None:
            """Record what changed as a message."""

    Wait = Callable[[RecordsBursts | None, float, Event], bool]

_LONGEST = 12
"""A burst lasts at most this many times the quiet, so that a program that never pauses is recorded too."""
_LONGEST_AT_LEAST_S = 60.0
_IDLE_S = 60.0
"""The longest single wait when nothing happens."""
_STEP_S = 0.25
"""How often to check whether to stop, or whether another thread has read the events."""
_POLL_S = 1.0
"""How often to poll a watcher that has no descriptor."""
_TOGETHER_S = 0.05
"""Events that follow another within this time are read together with it."""


@frozen
class Burst:
    """A series of changes, timed by any clock that does not go back."""

    began_s: float
    last_s: float

    def ends_at(self, quiet_s: float) -> float:
        """Return the time at which the burst ends if nothing more happens."""
        return min(self.last_s + quiet_s, self.began_s + longest_burst(quiet_s))


def longest_burst(quiet_s: float) -> float:
    """Return the time after which a burst ends even if changes continue."""
    return max(_LONGEST * quiet_s, _LONGEST_AT_LEAST_S)


def note_change(burst: Burst | None, now_s: float) -> Burst:
    """Add a change to a burst, or begin a new burst with it."""
    return Burst(now_s, now_s) if burst is None else replace(burst, last_s=now_s)


def name_burst(time_s: float, number: int) -> str:
    """Make up an id for the message that a burst becomes: `auto-20261116T101500Z-1`."""
    return f"auto-{strftime('%Y%m%dT%H%M%SZ', gmtime(time_s))}-{number}"


def wait_for_change(shadow: RecordsBursts | None, timeout_s: float, stop: Event) -> bool:
    """Wait for a change, the timeout or a stop; return True if something may have changed.

    The shadow must be one that watches; if it is None, wait only for the timeout or a stop.
    """
    if shadow is None:
        stop.wait(timeout_s)
        return False
    deadline = monotonic() + timeout_s
    poll, fd = select.poll(), shadow.fileno()
    if fd is not None:
        poll.register(fd, select.POLLIN)
    while not shadow.drain():
        left_s = deadline - monotonic()
        if left_s <= 0 or stop.is_set():
            return False
        if fd is None:
            stop.wait(min(left_s, _POLL_S))
        elif poll.poll(min(left_s, _STEP_S) * 1000):
            stop.wait(_TOGETHER_S)
    return True


class Auto:
    """Records the bursts of one shadow, which should be one that watches. For one thread at a time."""

    def __init__(
        self,
        shadow: RecordsBursts,
        quiet_s: float,
        *,
        on_message: Callable[[Message], None] | None = None,
        on_failure: Callable[[ShadowError], None] | None = None,
        wait: Wait = wait_for_change,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        """`clock` measures the quiet; `now` is the time of day, from which message ids are made."""
        self._shadow = shadow
        self._quiet_s = quiet_s
        self._on_message = on_message
        self._on_failure = on_failure
        self._wait = wait
        self._clock = clock
        self._now = now
        self._burst: Burst | None = None
        self._is_ready = False
        """The state before the first burst is recorded."""
        self._looked_s = 0.0
        """When a snapshot last checked for changes."""

    def begin(self) -> None:
        """Record the state before the first burst: later changes are in bursts. `run` does this too."""
        if not self._is_ready:
            self._try(self._begin)

    def run(self, stop: Event) -> None:
        """Record bursts until stopped; a burst that has not ended then is recorded as it is."""
        while not stop.is_set():
            self.turn(stop)
        if self._burst is not None:
            self._record()

    def turn(self, stop: Event) -> None:
        """Wait once, then note a change, or record the burst if it has ended."""
        self.begin()
        has_changed = self._wait_once(stop)
        if stop.is_set():
            return
        if has_changed:
            self._note()
        if self._burst is not None and self._burst.ends_at(self._quiet_s) <= self._clock():
            self._record()

    def _wait_once(self, stop: Event) -> bool:
        """Wait for a change, or for the burst to end; return True if something may have changed.

        If nothing can be watched, this also returns True from time to time, so that a snapshot checks.
        """
        watching = self._shadow.watching
        is_watched = watching is not None and watching.is_active
        wait_s = _IDLE_S if is_watched else min(self._quiet_s, _IDLE_S)
        if self._burst is not None:
            wait_s = min(wait_s, self._burst.ends_at(self._quiet_s) - self._clock())
        wait_s = max(wait_s, 0.001)
        if is_watched:
            return self._wait(self._shadow, wait_s, stop)
        self._wait(None, wait_s, stop)
        return self._burst is None and self._clock() >= self._looked_s + longest_burst(self._quiet_s)

    def _note(self) -> None:
        self._burst = note_change(self._burst, self._clock())

    def _begin(self) -> None:
        # Earlier changes are in no burst.
        self._shadow.take_snapshot()
        watching = self._shadow.watching
        if watching is not None and not watching.is_active:
            # The first one creates the store, which watchfiles needs for its cookies: the second one watches.
            self._shadow.take_snapshot()
        self._is_ready = True
        self._looked_s = self._clock()

    def _record(self) -> None:
        self._burst = None
        if self._is_ready:
            self._try(self._record_burst)

    def _record_burst(self) -> None:
        now_s, number = self._now(), 1
        while True:
            try:
                message = self._shadow.record_burst(name_burst(now_s, number))
                break
            except DuplicateMessage:
                number += 1
        self._looked_s = self._clock()
        if message is not None and self._on_message is not None:
            self._on_message(message)

    def _try(self, act: Callable[[], None]) -> None:
        """Do something that may fail temporarily: report a failure, and retry after the same quiet."""
        try:
            act()
        except ShadowError as error:
            self._note()
            if self._on_failure is not None:
                self._on_failure(error)
