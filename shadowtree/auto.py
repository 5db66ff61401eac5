"""Record each burst of changes as a message, by itself: for agents that tell nobody what they do.

A waker says that something happened, which may be wrong in both ways; when it has been quiet for long enough
the shadow is asked what changed.

    waker ──▶ burst goes on ──▶ quiet ──▶ record_burst ──▶ a message, or nothing
      ▲                                        │
      └──────── directories that came ◀────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic, time

from shadowtree.bursts import Burst, longest_burst, name_burst, note_change
from shadowtree.errors import DuplicateMessage, ShadowError
from shadowtree.model import Message
from shadowtree.notices import Waker
from shadowtree.shadow import Shadow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Wakes(Protocol):
        """What can be waited for."""

        @property
        def is_blind(self) -> bool:
            """Whether it cannot say anything."""

        def wait(self, timeout_s: float) -> bool:
            """Wait for something to happen, or for the time to pass."""

        def close(self) -> None:
            """Let go of everything."""

    OpenWaker = Callable[[Sequence[str], Event], Wakes]

_IDLE_S = 60.0
"""How long to wait when nothing happens, before looking whether anything was told all the same."""


class Auto:
    """Records bursts of one shadow, which should be one that watches. For one thread."""

    def __init__(
        self,
        shadow: Shadow,
        quiet_s: float,
        *,
        on_message: Callable[[Message], None] | None = None,
        on_failure: Callable[[ShadowError], None] | None = None,
        open_waker: OpenWaker = Waker,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        """`clock` measures the quiet; `now` is the time of day, which the ids of messages are made of."""
        self._shadow = shadow
        self._quiet_s = quiet_s
        self._on_message = on_message
        self._on_failure = on_failure
        self._open_waker = open_waker
        self._clock = clock
        self._now = now
        self._burst: Burst | None = None
        self._is_ready = False
        """The state that the first burst begins at is recorded."""
        self._is_told = False
        """The shadow is told where something happens."""
        self._directories: frozenset[str] = frozenset()
        self._waker: Wakes | None = None
        self._opened_for = self._directories
        self._opened_s = 0.0
        self._looked_s = 0.0
        """When the shadow was last asked what changed."""

    def begin(self) -> None:
        """Record where the first burst begins: what changes from now on is in one. Else `run` does it."""
        if not self._is_ready:
            self._try(self._begin)

    def run(self, stop: Event) -> None:
        """Record bursts until told to stop; the one that goes on then is recorded as it is."""
        try:
            while not stop.is_set():
                self.turn(stop)
            if self._burst is not None:
                self._record()
        finally:
            if self._waker is not None:
                self._waker.close()
                self._waker = None

    def turn(self, stop: Event) -> None:
        """Wait once, and do what there is to do then."""
        self.begin()
        waker = self._prepare_waker(stop)
        has_happened = waker.wait(self._find_timeout(waker))
        if stop.is_set():
            return
        if self._has_changed(waker, has_happened):
            self._note()
        if self._burst is not None and self._burst.ends_at(self._quiet_s) <= self._clock():
            self._record()

    # Waiting

    def _prepare_waker(self, stop: Event) -> Wakes:
        """Give a waker for the directories that are there now."""
        if self._waker is not None and self._is_waker_old(self._waker):
            self._waker.close()
            self._waker = None
        if self._waker is None:
            self._opened_s = self._clock()
            self._opened_for = self._directories
            self._waker = self._open_waker(sorted(self._directories), stop)
            # What happened before there was a waker wakes nobody.
            if self._shadow.drain() and self._is_told:
                self._note()
        return self._waker

    def _is_waker_old(self, waker: Wakes) -> bool:
        is_worth_a_try = waker.is_blind and self._clock() >= self._opened_s + _IDLE_S
        return is_worth_a_try or self._opened_for != self._directories

    def _find_timeout(self, waker: Wakes) -> float:
        wait_s = min(self._quiet_s, _IDLE_S) if waker.is_blind else _IDLE_S
        if self._burst is not None:
            wait_s = min(wait_s, self._burst.ends_at(self._quiet_s) - self._clock())
        return max(wait_s, 0.001)

    def _has_changed(self, waker: Wakes, has_happened: bool) -> bool:
        """Tell whether something may have changed; where nobody can say, it may have now and then."""
        has_told = self._shadow.drain()
        if self._is_told:
            return has_happened or has_told
        is_time = self._clock() >= self._looked_s + longest_burst(self._quiet_s)
        return has_happened or (waker.is_blind and self._burst is None and is_time)

    def _note(self) -> None:
        self._burst = note_change(self._burst, self._clock())

    # Recording

    def _begin(self) -> None:
        # What changed before is nobody's. From here on the shadow is told what happens.
        self._shadow.take_snapshot()
        self._is_ready = True
        self._look_around()

    def _record(self) -> None:
        self._burst = None
        if self._is_ready:
            self._try(self._record_burst)

    def _record_burst(self) -> None:
        message = self._record_by_free_id(self._now())
        self._look_around()
        if message is not None and self._on_message is not None:
            self._on_message(message)

    def _record_by_free_id(self, now_s: float) -> Message | None:
        number = 1
        while True:
            try:
                return self._shadow.record_burst(name_burst(now_s, number))
            except DuplicateMessage:
                number += 1

    def _look_around(self) -> None:
        """Find out which directories there are now."""
        watching = self._shadow.watching
        self._is_told = watching is not None and watching.is_active
        self._directories = frozenset(self._shadow.watched_directories())
        self._looked_s = self._clock()

    def _try(self, act: Callable[[], None]) -> None:
        """Do something that may fail for now: that is told, and it is tried again after as much quiet."""
        try:
            act()
        except ShadowError as error:
            self._note()
            if self._on_failure is not None:
                self._on_failure(error)
