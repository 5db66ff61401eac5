"""Read from the journal what messages and acts did to paths, in this session and in others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.base.errors import StoreDamaged, UnknownStep
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import Change, RelPath
from shadowtree.capture.recorded_tree import RecordedDirectory, list_changes, open_recorded
from shadowtree.revert.wanted import EventChanges, OtherChange, Past
from shadowtree.store.objects import Objects
from shadowtree.timeline.append import Ending
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import Travel, walk_back
from shadowtree.timeline.session import MessageEvents, Session
from shadowtree.timeline.sqlite.schema import (
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

NOW = 1 << 62
"""The number of an event that is not recorded yet: the end of the open message."""


@frozen
class MessageChanges:
    """The changes of one message or act."""

    message: int
    """The number of the message; 0 for an act."""
    number: int
    """The number of the event that recorded it."""
    since: int
    """The number of the event at which it started: later changes of other sessions may be among its own."""
    changes: list[Change]
    is_inferred: bool = False
    """The end of the message was inferred."""
    rest: list[Change] = field(default_factory=list)
    """Its other changes, which are only part of the history: at other paths, or after the step."""
    without: dict[RelPath, tuple[Change, ...]] = field(default_factory=dict)
    """By path, what removes from its states the changes of messages that are out of the line."""

    def limit(self, paths: Collection[RelPath]) -> MessageChanges:
        """Return a copy in which only the changes to `paths` count."""
        others = [change for change in self.changes if change.path not in paths]
        return replace(self, changes=[c for c in self.changes if c.path in paths], rest=others)


@frozen
class Route:
    """The messages that an act passes."""

    messages: list[MessageChanges]
    """Oldest first."""
    back: set[int]
    """The event numbers of those on the way back."""
    forward: set[int]
    """The event numbers of those on the way forward."""
    passed: set[int]
    """The part of `back` that was already out of the line."""


def paths_of(messages: Iterable[MessageChanges]) -> set[RelPath]:
    """Return the paths that some messages changed."""
    return {change.path for message in messages for change in message.changes}


class History:
    """The history of one session; an open message counts as ended now."""

    def __init__(
        self, objects: Objects, session: Session, root: RecordedDirectory, ending: Ending | None
    ) -> None:
        self.journal = session.journal
        self._objects = objects
        self.session = session
        self.root = root
        """The worktree as it is now."""
        self.ending = ending
        """How the open message would end now; None if no message is open."""
        now = session.position
        self.position = Position(head=now.head, tip=now.tip, out=now.out)
        """Where the session stands once the open message is ended."""

    def open(self, number: int) -> RecordedDirectory:
        """Open a recorded tree by its number."""
        record = self.journal.tree(number)
        return open_recorded(self._objects, record.tree, record.facts)

    # What messages did

    def route(self, travel: Travel) -> Route:
        """Read the changes of each message on the way.

        A passed message that is already out of the line counts only at paths that others on the way back
        changed too: there, the state before it may be the one to go back to.
        """
        back, forward = self.changes_of(travel.back), self.changes_of(travel.forward)
        passed = [message.limit(paths_of(back)) for message in self.changes_of(travel.passed)]
        messages = sorted((*back, *passed, *forward), key=lambda message: message.number)
        return Route(
            self._find_contained(messages) if self.position.out else messages,
            {message.number for message in (*back, *passed)},
            {message.number for message in forward},
            {message.number for message in passed},
        )

    def _find_contained(self, messages: Sequence[MessageChanges]) -> list[MessageChanges]:
        """Note with each message what its states contain of earlier messages that are out of the line."""
        out = self.changes_of([self.session.find(taken.message) for taken in self.position.out])
        found = []
        for message in messages:
            line = {row.number for row in walk_back(message.message, self.session.find, first=out[0].message)}
            without: dict[RelPath, tuple[Change, ...]] = {}
            for taken, changes in zip(self.position.out, out, strict=True):
                if taken.message in line and taken.message < message.message <= taken.newest:
                    for change in changes.limit(paths_of([message])).changes:
                        # The newest is removed first.
                        undone = Change(change.path, change.new, change.old)
                        without[change.path] = (undone, *without.get(change.path, ()))
            found.append(replace(message, without=without))
        return found

    def changes_of(self, rows: Sequence[MessageRow]) -> list[MessageChanges]:
        """Read the changes of some messages."""
        events = MessageEvents(self.journal.events_of([row.number for row in rows]))
        changes = self.journal.changes_of([event.number for event in events.ends.values()])
        found = []
        for row in rows:
            end = self._require_end(row.number, events, repr(row.id))
            if end is not None:
                since = end.number if end.since is None else end.since
                found.append(
                    MessageChanges(row.number, end.number, since, changes[end.number], end.is_inferred)
                )
            else:
                assert self.ending is not None
                since = events.begins[row.number].number
                found.append(MessageChanges(row.number, NOW, since, self.ending.changes, is_inferred=True))
        return found

    def end_of(self, number: int) -> Event | None:
        """Return the event that ended a message; None if it is open and ends now."""
        return self._require_end(number, MessageEvents(self.journal.events_of([number])), str(number))

    def _require_end(self, number: int, events: MessageEvents, name: str) -> Event | None:
        end = events.ends.get(number)
        if end is None and (self.ending is None or self.ending.row.number != number):
            raise StoreDamaged(f"the timeline does not say how message {name} ended")
        return end

    def tree_after(self, end: Event | None) -> RecordedDirectory:
        """Open the tree with which a message ended; None stands for the open message, which ends now."""
        if end is None and self.ending is not None:
            end = self.ending.last_step
        return self.root if end is None or end.after is None else self.open(end.after)

    def limit_to_step(self, message: MessageChanges, step: str, *, is_only: bool) -> MessageChanges:
        """Count only what a message did from a step on, or, if `is_only`, what that step alone did."""
        number = message.message
        events = MessageEvents(self.journal.events_of([number]))
        begin, end = events.steps.get((number, step)), events.step_ends.get((number, step))
        if begin is None or begin.before is None:
            id = self.session.find(number).id
            raise UnknownStep(step, id)
        before, ended = events.begins[number].before, events.ends.get(number)
        if before is None:
            raise StoreDamaged(f"the timeline has a step of message {number}, but no tree before it")
        last = self.tree_after(ended)
        after = self.open(end.after) if is_only and end is not None and end.after is not None else last
        # A path that is not attributed to the message is not attributed to its step either.
        nobodys = {change.path for change in list_changes(self.open(before), last)} - paths_of([message])
        changes = [c for c in list_changes(self.open(begin.before), after) if c.path not in nobodys]
        rest = [] if after is last else list_changes(after, last)
        return replace(message, changes=changes, rest=[c for c in rest if c.path not in nobodys])

    # Changes to paths since then

    def trace(self, messages: Sequence[MessageChanges]) -> Past:
        """Read everything done to the paths of some messages, from the first message on."""
        counted = {message.number: message.changes for message in messages}
        paths = {change.path for message in messages for change in (*message.changes, *message.rest)}
        first = min(counted, default=NOW)
        changes = self._changes_since(paths, first - 1) | counted
        events = self._list(self.journal.events(sorted(changes.keys() - {NOW})), changes, messages)
        since = {message.number: message.since for message in messages}
        return Past(events, self.find_others(events, since))

    def trace_since(self, paths: Collection[RelPath], after: int) -> Past:
        """Read everything done to some paths after an event."""
        changes = self._changes_since(paths, after)
        events = self.journal.events(sorted(changes))
        since = {number: number if event.since is None else event.since for number, event in events.items()}
        if self.ending is not None:
            changes[NOW] = [change for change in self.ending.changes if change.path in paths]
            since[NOW] = self.ending.begin.number
        listed = self._list(events, changes)
        return Past(listed, self.find_others(listed, since))

    def _changes_since(self, paths: Collection[RelPath], after: int) -> dict[int, list[Change]]:
        """Read this session's changes to some paths after an event, keyed by the number of their event."""
        found: dict[int, list[Change]] = {}
        if self.session.number is not None:
            for number, change in self.journal.changes_since(paths, after, self.session.number):
                found.setdefault(number, []).append(change)
        return found

    def events_since(self, first: int) -> list[EventChanges]:
        """List everything that this session did from an event on."""
        events = {
            event.number: event
            for event in self.journal.events_after(first - 1, self.session.require_number())
            if event.kind in (END, SNAPSHOT, *ACTS)
        }
        if first not in events:
            raise StoreDamaged(f"the timeline does not list event {first} of session {self.session.name!r}")
        return self._list(events, self.journal.changes_of(list(events)))

    def _list(
        self,
        events: Mapping[int, Event],
        changes: Mapping[int, list[Change]],
        messages: Iterable[MessageChanges] = (),
    ) -> list[EventChanges]:
        """List the changes of some events, in order; those of the open message come last."""
        if self.ending is not None:
            changes = {NOW: self.ending.changes, **changes}
        self.session.load([event.message for event in events.values() if event.message is not None])
        counted = {message.number: message for message in messages}
        listed = []
        for number in sorted(changes):
            label, message = self._label(events.get(number)), counted.get(number)
            is_act = number in events and events[number].kind in ACTS
            without = {} if message is None else message.without
            # Others need to know of a merge that changed nothing. Here, somebody's edit may still be there.
            own = [each for each in changes[number] if not each.is_merged or each.old != each.new]
            listed.append(EventChanges(number, label, own, is_act, without))
            if message is not None and message.rest:
                listed.append(EventChanges(0, label, message.rest))
        return listed

    def _label(self, event: Event | None) -> str:
        if event is None:
            assert self.ending is not None
            return f"message {self.ending.row.id!r}"
        if event.message is not None:
            return f"message {self.session.find(event.message).id!r}"
        return f"the last {self.name_act(event)}"

    # Acts

    def acts_since_fork(self, travel: Travel) -> list[MessageChanges]:
        """List the acts since the fork that left the head where it was."""
        fork = travel.forward[0].parent if travel.forward else travel.position.head
        end = None if fork is None else self.end_of(fork)
        found: list[MessageChanges] = []
        for act in self.journal.acts_of(self.session.require_number()):
            if end is not None and act.number < end.number:
                break
            if act.kind in (REVERT, RESTORE) and is_same_place(self.position_before(act), act.position):
                changes = self.journal.changes_of([act.number])[act.number]
                found.append(MessageChanges(0, act.number, act.number, changes))
        return found[::-1]

    def name_act(self, act: Event) -> str:
        """Return what the user calls an act."""
        return REVERT if act.kind == HEAD_ONLY else act.kind

    def position_before(self, act: Event) -> Position:
        """Return where the session stood before an act."""
        before = self.journal.last_event(act.session, before=act.number)
        return Position() if before is None else before.position

    # Other sessions

    def find_others(
        self, events: Sequence[EventChanges], since: Mapping[int, int]
    ) -> dict[RelPath, OtherChange]:
        """Return what other sessions did to each path at the same time or later.

        `since` maps the number of each event that counts to the number of the event at which it started. A
        message of another session counts if it is in force and ended after that start. An act of another
        session counts if it was done in between: its changes are then among those recorded for the event.
        """
        spans: dict[RelPath, list[tuple[int, int]]] = {}
        for event in events:
            if event.number in since:
                for change in event.changes:
                    spans.setdefault(change.path, []).append((since[event.number], event.number))
        if not spans or self.session.number is None:
            return {}
        names = self.journal.session_names()
        first = min(start for path in spans for start, _ in spans[path])
        changes = self.journal.changes_at(spans.keys(), first, self.session.number)
        agreed = {change.path for _, change in changes if change.old == change.new}
        found = self._find_undone(events, spans, names, agreed)
        changes = [(number, change) for number, change in changes if change.old != change.new]
        theirs = self.journal.events(sorted({number for number, _ in changes}))
        in_force = _find_in_force(self.journal, theirs.values())
        for number, change in changes:
            their = theirs[number]
            if their.kind in ACTS or their.message in in_force:
                other = self._describe(their, names, spans[change.path])
                if other is not None and (change.path not in found or other.is_inseparable):
                    found[change.path] = other
        return found

    def _find_undone(
        self,
        events: Sequence[EventChanges],
        spans: Mapping[RelPath, Sequence[tuple[int, int]]],
        names: Mapping[int, str],
        agreed: Collection[RelPath],
    ) -> dict[RelPath, OtherChange]:
        """Find changes that other sessions made before or during some spans of events, and undid since.

            m1: v0→v1      other's n1: v1→v1n      m2: v1n→v2n      an act: v2n→v0      n1 is undone

        The state before m2 contains n1's change. If no act of this session has removed that change, the path
        itself shows that n1 was undone: it is not what was last recorded. If the act is to be reversed, n1's
        change cannot be separated from the rest.

            other's n1: v0→v1      m1: v1→v0      n1 is undone: v0→v0      undo m1

        Nor does the path show it if undoing n1 left it alone, because it was as wanted (`agreed`). Unless an
        act of this session came in between, what m1 wrote over n1's change cannot be separated from it.
        """
        acts = [event for event in events if event.is_act]
        acted = {change.path for act in acts for change in act.changes} & spans.keys()
        if not (acted or agreed) or len(names) < 2:
            return {}
        reversed_at = {
            change.path
            for act in acts
            for change in act.changes
            if any(act.number == end for _, end in spans.get(change.path, ()))
        }
        changes = self.journal.changes_at({*acted, *agreed}, 0, self.session.require_number())
        theirs = self.journal.events(
            sorted({number for number, change in changes if change.old != change.new})
        )
        now = _find_in_force(self.journal, theirs.values())
        then: dict[int, set[int]] = {}
        found: dict[RelPath, OtherChange] = {}
        for number, change in changes:
            their = theirs.get(number)
            if their is None or their.message is None or their.message in now:
                continue
            for end in {end for span in spans[change.path] for end in span}:
                if end not in then:
                    then[end] = _find_in_force(self.journal, theirs.values(), before=end)
                if their.message in then[end]:
                    message, session = self.session.find(their.message).id, _name(their, names)
                    reason = f"message {message!r} of session {session!r} changed it and was undone since"
                    is_inseparable = change.path in reversed_at or change.path not in acted
                    found[change.path] = OtherChange(reason, is_inseparable)
        return found

    def _describe(
        self, event: Event, names: Mapping[int, str], spans: Sequence[tuple[int, int]]
    ) -> OtherChange | None:
        """Describe what an event did during or after some spans of events; None if it does not count."""
        if event.number <= min(start for start, _ in spans):
            return None
        session = _name(event, names)
        if event.message is None:
            if not any(start < event.number < end for start, end in spans):
                return None
            kind = self.name_act(event)
            article = "an" if kind.startswith("u") else "a"
            reason = f"{article} {kind} in session {session!r} changed it at the same time"
            return OtherChange(reason, is_inseparable=True)
        message = self.session.find(event.message).id
        since = event.number if event.since is None else event.since
        # If two messages ran at the same time, each one's changes include the other's.
        is_inseparable = any(since < end for _, end in spans)
        return OtherChange(f"message {message!r} of session {session!r} changed it", is_inseparable)


def is_same_place(one: Position, other: Position) -> bool:
    """Return whether two positions have the same head, tip and messages taken out."""
    return (one.head, one.tip, one.out) == (other.head, other.tip, other.out)


def with_session(command: str, session: Session) -> str:
    """Add `--session` to a command for people, unless the only session is `default`."""
    # An act may be the first record of its session.
    if {*session.journal.session_names().values(), session.name} == {"default"}:
        return command
    from shlex import quote

    return f"{command} --session {quote(session.name)}"


def _name(event: Event, names: Mapping[int, str]) -> str:
    """Return the name of an event's session."""
    if event.session not in names:
        raise StoreDamaged(f"the timeline does not name the session of event {event.number}")
    return names[event.session]


def _find_in_force(journal: Journal, events: Iterable[Event], before: int | None = None) -> set[int]:
    """Return the messages in force in the sessions of some events, back to the oldest message in these.

    With `before`, return those that were in force before that event.
    """
    oldest: dict[int, int] = {}
    for event in events:
        if event.message is not None:
            oldest[event.session] = min(event.message, oldest.get(event.session, event.message))
    found: set[int] = set()
    for session, first in oldest.items():
        last = journal.last_event(session, before=before)
        if last is not None and last.position.head is not None:
            line = journal.line(last.position.head, first)
            found |= {row.number for row in line if not last.position.is_out(row.number)}
    return found
