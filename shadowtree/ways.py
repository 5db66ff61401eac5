"""What the messages and acts that a travel goes over did to paths, read from the journal.

A span is one of them, with what it counts for. A story is all that the session did to some paths, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shadowtree.errors import UnknownMessage
from shadowtree.events import ACTS, END, HEAD_ONLY, RESTORE, REVERT, SNAPSHOT, Event, MessageRow
from shadowtree.frozen import field, frozen, replace
from shadowtree.journal import Journal
from shadowtree.objects import Objects
from shadowtree.patch import list_changes
from shadowtree.paths import RelPath
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.scribe import Ending
from shadowtree.sessions import MessageEvents, Session
from shadowtree.state import Change
from shadowtree.timeline import Travel
from shadowtree.trace import Happening

NOW = 1 << 62
"""The number of an event that is not recorded yet: the end of the open message."""
_NO_MESSAGE = MessageRow(0, 0, 0, "", None, "", None, None)
"""Stands for the message of an act, which has none."""


@frozen
class Span:
    """One message on the way: the event that ended it, and from which event on it counts."""

    row: MessageRow
    number: int
    before: int | None
    after: int | None
    since: int
    hole: str | None
    changes: list[Change]
    rest: list[Change] = field(default_factory=list)
    """What it did that does not count, but is part of the story: to other paths, or after the step."""

    def limit(self, paths: Collection[RelPath]) -> Span:
        """Count only what it did to these paths."""
        others = [change for change in self.changes if change.path not in paths]
        return replace(self, changes=[c for c in self.changes if c.path in paths], rest=others)


@frozen
class Way:
    """The messages that an act goes over."""

    spans: list[Span]
    """Oldest first."""
    back: set[int]
    """The numbers of those that it goes back over."""
    forward: set[int]
    passed: set[int]
    """Of those on the way back, the ones that had been taken out already."""


def _is_same_place(one: Event, other: Event) -> bool:
    """Tell whether a session stood at the same place after two events."""
    places = [(event.position.head, event.position.tip, event.position.out) for event in (one, other)]
    return places[0] == places[1]


def paths_of(spans: Iterable[Span]) -> set[RelPath]:
    """Name what some messages changed."""
    return {change.path for span in spans for change in span.changes}


class Ways:
    """Reads what happened on the ways of one session; a message that is open counts as ended now."""

    def __init__(
        self,
        journal: Journal,
        objects: Objects,
        session: Session,
        root: RecordedDirectory,
        ending: Ending | None,
    ) -> None:
        self._journal = journal
        self._objects = objects
        self._session = session
        self._root = root
        self._ending = ending

    def walk(self, travel: Travel) -> Way:
        """Tell what each message on the way changed.

        One that had been taken out and is passed counts where others on the way changed the same path: what
        was before it is what was before them.
        """
        back, forward = self.spans(travel.back), self.spans(travel.forward)
        passed = [span.limit(paths_of(back)) for span in self.spans(travel.passed)]
        return Way(
            sorted((*back, *passed, *forward), key=lambda span: span.number),
            {span.number for span in (*back, *passed)},
            {span.number for span in forward},
            {span.number for span in passed},
        )

    def spans(self, rows: Sequence[MessageRow]) -> list[Span]:
        """Tell what each of some messages changed."""
        events = MessageEvents(self._journal.events_of([row.number for row in rows]))
        changes = self._journal.changes_of([event.number for event in events.ends.values()])
        return [self._make_span(row, events, changes) for row in rows]

    def _make_span(self, row: MessageRow, events: MessageEvents, changes: dict[int, list[Change]]) -> Span:
        begin, end = events.begins[row.number], events.ends.get(row.number)
        if end is None:
            assert self._ending is not None
            return Span(row, NOW, begin.before, None, begin.number, begin.hole, self._ending.changes)
        since = end.since if end.since is not None else end.number
        hole = end.hole or begin.hole
        return Span(row, end.number, begin.before, end.after, since, hole, changes[end.number])

    def shorten(self, span: Span, step: str, *, is_only: bool) -> Span:
        """Count of a message only what it did from a step on, or what that step alone did."""
        events = MessageEvents(self._journal.events_of([span.row.number]))
        key = span.row.number, step
        begin, end = events.steps.get(key), events.step_ends.get(key)
        if begin is None or begin.before is None:
            raise UnknownMessage(step, f"message {span.row.id!r} has no step {step!r}")
        assert span.before is not None
        last = self._root if span.after is None else self.open(span.after)
        after = self.open(end.after) if is_only and end is not None and end.after is not None else last
        own = {change.path for change in span.changes}
        nobodys = {change.path for change in list_changes(self.open(span.before), last)} - own
        # What the message was said not to have written is nobody's in a step too.
        changes = [c for c in list_changes(self.open(begin.before), after) if c.path not in nobodys]
        rest = [] if after is last else list_changes(after, last)
        return replace(span, changes=changes, rest=[c for c in rest if c.path not in nobodys])

    def story(self, spans: Sequence[Span]) -> list[Happening]:
        """Tell all that this session did to the paths of some messages, from the first of them on."""
        known = {span.number: span for span in spans}
        paths = {change.path for span in spans for change in (*span.changes, *span.rest)}
        first = min(known, default=NOW)
        found: dict[int, list[Change]] = {}
        if self._session.number is not None and first != NOW:
            for number, change in self._journal.changes_since(paths, first - 1, self._session.number):
                found.setdefault(number, []).append(change)
        events = self._journal.events(sorted(found.keys() | known.keys() - {NOW}))
        self._session.load([event.message for event in events.values() if event.message is not None])
        story: list[Happening] = []
        for number, event in events.items():
            label = self._label(event)
            span = known.get(number)
            changes = span.changes if span is not None else found[number]
            story.append(Happening(number, label, changes, event.kind in ACTS))
            if span is not None and span.rest:
                story.append(Happening(0, label, span.rest))
        if self._ending is not None:
            ending = known.get(NOW)
            label = f"message {self._ending.row.id!r}"
            changes = self._ending.changes if ending is None else ending.changes
            story.append(Happening(NOW, label, changes))
            if ending is not None and ending.rest:
                story.append(Happening(0, label, ending.rest))
        return story

    def story_since(self, first: int) -> list[Happening]:
        """Tell all that this session did to paths from an event on."""
        assert self._session.number is not None
        events = [
            event
            for event in self._journal.events_after(first - 1, self._session.number)
            if event.kind in (END, SNAPSHOT, *ACTS)
        ]
        changes = self._journal.changes_of([event.number for event in events])
        story = [
            Happening(event.number, self._label(event), changes[event.number], event.kind in ACTS)
            for event in events
        ]
        if self._ending is not None:
            label = f"message {self._ending.row.id!r}"
            story.append(Happening(NOW, label, self._ending.changes))
        return story

    def _label(self, event: Event) -> str:
        if event.message is not None:
            return f"message {self._session.find(event.message).id!r}"
        return f"the last {REVERT if event.kind == HEAD_ONLY else event.kind}"

    def list_acts(self, travel: Travel) -> list[Span]:
        """List the acts since the ways part that left the head where it was."""
        fork = travel.forward[0].parent if travel.forward else travel.position.head
        end = None if fork is None else self.end_of(fork)
        spans: list[Span] = []
        for act in self._journal.acts_of(self._session.require_number()):
            if end is not None and act.number < end.number:
                break
            before = self._journal.last_event(act.session, before=act.number)
            if act.kind in (REVERT, RESTORE) and before is not None and _is_same_place(act, before):
                changes = self._journal.changes_of([act.number])[act.number]
                spans.append(Span(_NO_MESSAGE, act.number, None, None, act.number, None, changes))
        return spans[::-1]

    def end_of(self, number: int) -> Event | None:
        """Give the event that ended a message; None: it is open, and ends now."""
        return MessageEvents(self._journal.events_of([number])).ends.get(number)

    def open(self, number: int) -> RecordedDirectory:
        """Open a recorded tree by its number."""
        record = self._journal.tree(number)
        return open_recorded(self._objects, record.tree, record.facts)
