"""What other sessions did to the paths that an act is about, at the same time or later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shadowtree.events import ACTS, Event, Position
from shadowtree.journal import Journal
from shadowtree.paths import RelPath
from shadowtree.trace import Foreign, Happening

TYPE_CHECKING = False
if TYPE_CHECKING:
    Span = tuple[int, int]
    """The numbers of two events: what happened between them."""


class Others:
    """Tells what other sessions did. Their messages count while they are in force."""

    def __init__(self, journal: Journal, session: int | None) -> None:
        self._journal = journal
        self._session = session
        self._names = journal.session_names()
        self._events: dict[int, Event] = {}
        self._positions: dict[int, Position] = {}
        self._lines: dict[int, set[int]] = {}
        """The messages on the line of each session, down to the oldest one that was asked for."""
        self._loaded: dict[int, int] = {}
        """That one."""

    def find(self, story: Sequence[Happening], since: Mapping[int, int]) -> dict[RelPath, Foreign]:
        """Say for each path what somebody did to it.

        `since` tells for each happening that counts from which event on it does. A message of another session
        counts if it ended after that. So does an act that was done meanwhile: what it did is in what the
        happening is said to have done.
        """
        spans: dict[RelPath, list[Span]] = {}
        for happening in story:
            if happening.number in since:
                for change in happening.changes:
                    spans.setdefault(change.path, []).append((since[happening.number], happening.number))
        if not spans or self._session is None:
            return {}
        found: dict[RelPath, Foreign] = {}
        first = min(start for path in spans for start, _ in spans[path])
        for number, change in self._journal.changes_at(spans.keys(), first, self._session):
            foreign = self._describe(number, spans[change.path]) if change.old != change.new else None
            if foreign is not None and (change.path not in found or foreign.is_entangled):
                found[change.path] = foreign
        return found

    def _describe(self, number: int, spans: Sequence[Span]) -> Foreign | None:
        """Say what an event did that counts; None: it does not."""
        if number <= min(start for start, _ in spans):
            return None
        if number not in self._events:
            self._events[number] = self._journal.event(number)
        event = self._events[number]
        session = self._names[event.session]
        if event.kind in ACTS:
            if not any(start < number < end for start, end in spans):
                return None
            reason = f"{event.kind} of session {session!r} changed it at the same time"
            return Foreign(reason, is_entangled=True)
        if event.message is None or not self._is_in_force(event.message, event.session):
            return None
        message = self._journal.message(event.message).id
        since = event.number if event.since is None else event.since
        # Of messages that ran side by side, each holds what the other did.
        is_entangled = any(since < end for _, end in spans)
        return Foreign(f"it was changed by message {message!r} of session {session!r}", is_entangled)

    def _is_in_force(self, message: int, session: int) -> bool:
        if session not in self._positions:
            last = self._journal.last_event(session)
            self._positions[session] = Position() if last is None else last.position
        position = self._positions[session]
        if position.head is None or position.is_out(message):
            return False
        if self._loaded.get(session, message + 1) > message:
            self._loaded[session] = message
            self._lines[session] = {row.number for row in self._journal.line(position.head, message)}
        return message in self._lines[session]
