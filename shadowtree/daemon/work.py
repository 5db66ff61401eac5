"""What is done for a command: a method of a shadow called, or a worktree taken in.

It is done in a thread of its own. Another one may cancel it, or bring the answer to a question.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from time import monotonic

import shadowtree
from shadowtree.daemon.protocol import METHODS, READING, may_repeat
from shadowtree.daemon.served import Gone, Served
from shadowtree.daemon.values import decode, encode
from shadowtree.frozen import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Tell = Callable[..., None]

_READING_WAITS_S = 0.5
"""How long a request that only reads waits for others; by itself a command need not wait at all."""
_FIRST_PROGRESS_S = 0.5
_PROGRESS_S = 0.1
"""When the first progress is told, and how often after that."""


class Work:
    """Something that can be told of, asked about, and cancelled."""

    def __init__(self, tell: Tell) -> None:
        self._send = tell
        self._answers: SimpleQueue[bool | None] = SimpleQueue()
        self._is_cancelled = False
        self._next_progress_s = monotonic() + _FIRST_PROGRESS_S
        self.is_asking = False
        """It waits for a person."""

    def run(self) -> object:
        """Do it, and give what came of it, as JSON."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Let it stop where that does no harm; it raises KeyboardInterrupt."""
        self._is_cancelled = True
        self._answers.put(None)

    def answer(self, is_agreed: bool) -> None:
        """Bring the answer of the person that was asked."""
        self._answers.put(is_agreed)

    def check(self) -> None:
        """Raise if it is cancelled."""
        if self._is_cancelled:
            raise KeyboardInterrupt

    def tell(self, *frame: object) -> None:
        """Tell the command something; if it has gone, nobody wants the work any more."""
        try:
            self._send(*frame)
        except OSError as error:
            raise KeyboardInterrupt from error

    def tell_progress(self, done: int, total: int) -> None:
        """Tell how far it is, now and then."""
        self.check()
        if monotonic() >= self._next_progress_s:
            self._next_progress_s = monotonic() + _PROGRESS_S
            self.tell("progress", done, total)

    def ask(self, plan: shadowtree.Plan) -> bool:
        """Let a person agree to a plan, or not."""
        self.is_asking = True
        try:
            self.tell("confirm", encode(plan))
            is_agreed = self._answers.get()
        finally:
            self.is_asking = False
        if is_agreed is None:
            raise KeyboardInterrupt
        return is_agreed


class Call(Work):
    """A method of a shadow."""

    def __init__(
        self,
        tell: Tell,
        served: Served | None,
        method: str,
        session: str,
        arguments: list[Any],  # Any: plain values
        named: Mapping[str, Any],  # Any: plain values
        wishes: list[bool],
    ) -> None:
        super().__init__(tell)
        if method not in METHODS:
            raise ConnectionError(f"no method is called {method!r}")
        self._served = served
        self._method = method
        self._session = session
        self._arguments = decode(arguments)
        self._named = {name: decode(value) for name, value in named.items()}
        self._can_repeat = may_repeat(method, self._arguments, self._named)
        has_progress, has_confirm = wishes
        if has_progress:
            self._named["progress"] = self.tell_progress
        if has_confirm:
            self._named["confirm"] = self.ask
        self._shadow: shadowtree.Shadow | None = None

    def cancel(self) -> None:
        """Let it stop where that does no harm; it raises KeyboardInterrupt."""
        super().cancel()
        shadow = self._shadow
        if shadow is not None:
            shadow.cancel()

    def run(self) -> object:
        """Call the method when the shadow is free; raise Gone if the command should do it by itself."""
        served = self._served
        if served is None:
            raise Gone("no worktree was asked for")
        is_reading = self._method in READING
        wait_s = _READING_WAITS_S if is_reading else served.shadow.settings.lock_timeout
        try:
            with served.in_use(wait_s, self.check):
                served.note_request(self._session)
                return encode(self._call(served.shadow.for_session(self._session)))
        except Gone:
            if is_reading or served.is_dropped:
                raise
            raise shadowtree.Locked(served.store, os.getpid(), os.uname().nodename, wait_s) from None

    def _call(self, shadow: shadowtree.Shadow) -> object:
        self._shadow = shadow
        # From here on `cancel` reaches the shadow; what came before that is seen now.
        self.check()
        known = len(shadow.recovered)
        try:
            number = None if self._can_repeat else shadow.last_number()
            recovered = shadow.recovered[known:]
            # A command that has gone hears it no more, and then nothing is begun: it may be doing it itself.
            self.tell("number", number)
            result = getattr(shadow, self._method)(*self._arguments, **self._named)
        finally:
            told = shadow.recovered[known:]
            if told:
                self.tell("recovered", told)
        return _with_notes(result, recovered)


def _with_notes(result: object, recovered: list[str]) -> object:
    """Add to an outcome what was made good right before the act; what comes later is in it already."""
    if isinstance(result, shadowtree.Outcome) and recovered:
        return replace(result, notes=[*result.notes, *recovered])
    return result
