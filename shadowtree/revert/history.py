"""What messages and acts did to paths, read from the journal: this session's, and other sessions'."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.base.errors import StoreDamaged, UnknownMessage
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import Change, RelPath
from shadowtree.capture.recorded_tree import RecordedDirectory, list_changes, open_recorded
from shadowtree.revert.wanted import EventChanges, OtherChange
from shadowtree.store.objects import Objects
from shadowtree.timeline.append import Ending
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import Travel
from shadowtree.timeline.schema import (
    ACTS,
    END,
    HEAD_ONLY,
    RESTORE,
    REVERT,
    SNAPSHOT,
    Event,
    MessageRow,
    Position,
)
from shadowtree.timeline.session import MessageEvents, Session

NOW = 1 << 62
"""The number of an event that is not recorded yet: the end of the open message."""
_NO_MESSAGE = MessageRow(0, 0, 0, "", None, "", None, None)
"""Stands for the message of an act, which has none."""


@frozen
class MessageChanges:
    """What one message did, and between which events."""

    row: MessageRow
    number: int
    """Of the event that ended it."""
    before: int | None
    after: int | None
    since: int
    """Of the event from which on it counts."""
    changes: list[Change]
    rest: list[Change] = field(default_factory=list)
    """What it did that does not count, but is part of the history: to other paths, or after the step."""

    @property
    def paths(self) -> set[RelPath]:
        """The paths that it changed."""
        return {change.path for change in self.changes}

    def limit(self, paths: Collection[RelPath]) -> MessageChanges:
        """Count only what it did to these paths."""
        others = [change for change in self.changes if change.path not in paths]
        return replace(self, changes=[c for c in self.changes if c.path in paths], rest=others)


@frozen
class Route:
    """The messages that an act passes."""

    messages: list[MessageChanges]
    """Oldest first."""
    back: set[int]
    """The numbers of those that it undoes."""
    forward: set[int]
    passed: set[int]
    """Of those on the way back, the ones that had been taken out already."""


def paths_of(messages: Iterable[MessageChanges]) -> set[RelPath]:
    """Return the paths that some messages changed."""
    return {change.path for message in messages for change in message.changes}


class History:
    """The history of one session; a message that is open counts as ended now."""

    def __init__(
        self,
        journal: Journal,
        objects: Objects,
        session: Session,
        root: RecordedDirectory,
        ending: Ending | None,
    ) -> None:
        self.journal = journal
        self._objects = objects
        self.session = session
        self.root = root
        """The worktree as it is now."""
        self._ending = ending
        now = session.position
        self.position = Position(head=now.head, tip=now.tip, out=now.out)
        """Where the session stands once the open message is ended."""
        self.others = OtherSessions(journal, session.number)

    def route(self, travel: Travel) -> Route:
        """Read what each message on the way changed.

        One that had been taken out and is passed counts where others on the way changed the same path: what
        was before it is what was before them.
        """
        back, forward = self.changes_of(travel.back), self.changes_of(travel.forward)
        passed = [message.limit(paths_of(back)) for message in self.changes_of(travel.passed)]
        return Route(
            sorted((*back, *passed, *forward), key=lambda message: message.number),
            {message.number for message in (*back, *passed)},
            {message.number for message in forward},
            {message.number for message in passed},
        )

    def changes_of(self, rows: Sequence[MessageRow]) -> list[MessageChanges]:
        """Read what each of some messages changed."""
        events = MessageEvents(self.journal.events_of([row.number for row in rows]))
        changes = self.journal.changes_of([event.number for event in events.ends.values()])
        found = []
        for row in rows:
            begin, end = events.begins[row.number], events.ends.get(row.number)
            if end is not None:
                since = end.since if end.since is not None else end.number
                parts = (end.number, begin.before, end.after, since, changes[end.number])
                found.append(MessageChanges(row, *parts))
            elif self._ending is not None and self._ending.row.number == row.number:
                parts = (NOW, begin.before, None, begin.number, self._ending.changes)
                found.append(MessageChanges(row, *parts))
            else:
                raise StoreDamaged(f"the timeline does not say how message {row.id!r} ended")
        return found

    def limit_to_step(self, message: MessageChanges, step: str, *, is_only: bool) -> MessageChanges:
        """Count of a message only what it did from a step on, or what that step alone did."""
        events = MessageEvents(self.journal.events_of([message.row.number]))
        key = message.row.number, step
        begin, end = events.steps.get(key), events.step_ends.get(key)
        if begin is None or begin.before is None:
            raise UnknownMessage(step, f"message {message.row.id!r} has no step {step!r}")
        if message.before is None:
            raise StoreDamaged(
                f"the timeline has a step of message {message.row.number}, but no tree before it"
            )
        last = self.root if message.after is None else self.open(message.after)
        after = self.open(end.after) if is_only and end is not None and end.after is not None else last
        nobodys = {change.path for change in list_changes(self.open(message.before), last)} - message.paths
        # A path that is not attributed to the message is not attributed to its step either.
        changes = [c for c in list_changes(self.open(begin.before), after) if c.path not in nobodys]
        rest = [] if after is last else list_changes(after, last)
        return replace(message, changes=changes, rest=[c for c in rest if c.path not in nobodys])

    def events_at(self, messages: Sequence[MessageChanges]) -> list[EventChanges]:
        """List all that this session did to the paths of some messages, from the first of them on."""
        known = {message.number: message for message in messages}
        paths = {change.path for message in messages for change in (*message.changes, *message.rest)}
        first = min(known, default=NOW)
        found: dict[int, list[Change]] = {}
        if self.session.number is not None and first != NOW:
            for number, change in self.journal.changes_since(paths, first - 1, self.session.number):
                found.setdefault(number, []).append(change)
        events = self.journal.events(sorted(found.keys() | known.keys() - {NOW}))
        self.session.load([event.message for event in events.values() if event.message is not None])
        listed: list[EventChanges] = []
        for number, event in events.items():
            changes = known[number].changes if number in known else found[number]
            listed.append(EventChanges(number, self._label(event), changes, event.kind in ACTS))
            if number in known and known[number].rest:
                listed.append(EventChanges(0, self._label(event), known[number].rest))
        if self._ending is not None:
            label, own = f"message {self._ending.row.id!r}", known.get(NOW)
            listed.append(EventChanges(NOW, label, self._ending.changes if own is None else own.changes))
            if own is not None and own.rest:
                listed.append(EventChanges(0, label, own.rest))
        return listed

    def events_since(self, first: int) -> list[EventChanges]:
        """List all that this session did from an event on."""
        events = [
            event
            for event in self.journal.events_after(first - 1, self.session.require_number())
            if event.kind in (END, SNAPSHOT, *ACTS)
        ]
        if not events or events[0].number != first:
            raise StoreDamaged(f"the timeline does not list event {first} of session {self.session.name!r}")
        changes = self.journal.changes_of([event.number for event in events])
        listed = [EventChanges(e.number, self._label(e), changes[e.number], e.kind in ACTS) for e in events]
        if self._ending is not None:
            listed.append(EventChanges(NOW, f"message {self._ending.row.id!r}", self._ending.changes))
        return listed

    def _label(self, event: Event) -> str:
        if event.message is not None:
            return f"message {self.session.find(event.message).id!r}"
        return f"the last {REVERT if event.kind == HEAD_ONLY else event.kind}"

    def acts_since_fork(self, travel: Travel) -> list[MessageChanges]:
        """List the acts since the fork that left the head where it was."""
        fork = travel.forward[0].parent if travel.forward else travel.position.head
        end = None if fork is None else self.end_of(fork)
        found: list[MessageChanges] = []
        for act in self.journal.acts_of(self.session.require_number()):
            if end is not None and act.number < end.number:
                break
            before = self.journal.last_event(act.session, before=act.number)
            is_move = before is None or not is_same_place(before.position, act.position)
            if act.kind in (REVERT, RESTORE) and not is_move:
                changes = self.journal.changes_of([act.number])[act.number]
                found.append(MessageChanges(_NO_MESSAGE, act.number, None, None, act.number, changes))
        return found[::-1]

    def position_before(self, act: Event) -> Position:
        """Return where the session stood before an act."""
        before = self.journal.last_event(act.session, before=act.number)
        return Position() if before is None else before.position

    def end_of(self, number: int) -> Event | None:
        """Return the event that ended a message; None: it is open, and ends now."""
        end = MessageEvents(self.journal.events_of([number])).ends.get(number)
        if end is None and (self._ending is None or self._ending.row.number != number):
            raise StoreDamaged(f"the timeline does not say how message {number} ended")
        return end

    def open(self, number: int) -> RecordedDirectory:
        """Open a recorded tree by its number."""
        record = self.journal.tree(number)
        return open_recorded(self._objects, record.tree, record.facts)


def is_same_place(one: Position, other: Position) -> bool:
    """Return whether two positions have the same head, tip and messages taken out."""
    return (one.head, one.tip, one.out) == (other.head, other.tip, other.out)


class OtherSessions:
    """What other sessions did. Their messages count while they are in force."""

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

    def find(self, events: Sequence[EventChanges], since: Mapping[int, int]) -> dict[RelPath, OtherChange]:
        """Return what other sessions did to each path at the same time or later.

        `since` gives, for each event that counts, the event from which on it does. A message of another
        session counts if it ended after that. So does an act that was done meanwhile: what it did is in what
        the event is recorded to have done.
        """
        spans: dict[RelPath, list[tuple[int, int]]] = {}
        for event in events:
            if event.number in since:
                for change in event.changes:
                    spans.setdefault(change.path, []).append((since[event.number], event.number))
        if not spans or self._session is None:
            return {}
        found: dict[RelPath, OtherChange] = {}
        first = min(start for path in spans for start, _ in spans[path])
        for number, change in self._journal.changes_at(spans.keys(), first, self._session):
            other = self._describe(number, spans[change.path]) if change.old != change.new else None
            if other is not None and (change.path not in found or other.is_inseparable):
                found[change.path] = other
        return found

    def _describe(self, number: int, spans: Sequence[tuple[int, int]]) -> OtherChange | None:
        """Describe what an event did during or after some spans of events; None: it does not count."""
        if number <= min(start for start, _ in spans):
            return None
        if number not in self._events:
            self._events[number] = self._journal.event(number)
        event = self._events[number]
        if event.session not in self._names:
            raise StoreDamaged(f"the timeline does not name the session of event {number}")
        session = self._names[event.session]
        if event.kind in ACTS:
            if not any(start < number < end for start, end in spans):
                return None
            reason = f"{event.kind} of session {session!r} changed it at the same time"
            return OtherChange(reason, is_inseparable=True)
        if event.message is None or not self._is_in_force(event.message, event.session):
            return None
        message = self._journal.message(event.message).id
        since = event.number if event.since is None else event.since
        # Of messages that ran side by side, each holds what the other did.
        is_inseparable = any(since < end for _, end in spans)
        return OtherChange(f"it was changed by message {message!r} of session {session!r}", is_inseparable)

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
