"""What an act is after: where the head shall go, over which messages, and what each path shall be then.

An aim is worked out from the journal and the present state, and changes nothing. Messages that are still open
count as ended now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shadowtree.errors import AmbiguousMessage, InvalidInput, NotRecorded, UnknownMessage, UnknownTree
from shadowtree.events import (
    ACTS,
    END,
    REDO,
    RESTORE,
    REVERT,
    SNAPSHOT,
    UNDO,
    UNREVERT,
    Event,
    MessageRow,
    Position,
)
from shadowtree.frozen import field, frozen, replace
from shadowtree.journal import Journal, TreeRecord
from shadowtree.objects import Objects
from shadowtree.patch import list_changes
from shadowtree.paths import RelPath, to_text
from shadowtree.plan import Wish
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.recorder import Ending
from shadowtree.sessions import MessageEvents, Session
from shadowtree.state import PathState
from shadowtree.timeline import Travel, choose_redo, choose_revert, choose_undo, part_ways, walk_back
from shadowtree.trace import Happening, narrow, wish_back, wish_forward, wish_tree

_NOW = 1 << 62
"""The number of an event that is not recorded yet: the end of the open message."""


@frozen
class Aim:
    """What an act is after."""

    kind: str
    wishes: list[Wish]
    position: Position
    """Where the session shall stand."""
    messages: list[MessageRow] = field(default_factory=list)
    """Those undone or redone, oldest first."""
    first: MessageRow | None = None
    """The oldest message that something is taken back of."""
    turns: int | None = None
    is_short: bool = False
    """Less than was asked for can be done."""
    takes_back: int | None = None
    notes: list[str] = field(default_factory=list)
    is_nothing: bool = False
    """There is nothing to do."""


class Aims:
    """Works out aims for one session, given what is in the worktree now."""

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
        position = session.position
        self._position = Position(head=position.head, tip=position.tip)
        """Where the session stands once the open message is ended."""

    # The acts

    def undo(self, turns: int) -> Aim:
        """Go back by turns."""
        travel = choose_undo(self._position, turns, self._session.find)
        return self._count_turns(UNDO, travel, turns, "undo")

    def redo(self, turns: int | None) -> Aim:
        """Go forward by turns, or to the end."""
        travel = choose_redo(self._position, turns, self._session.find)
        return self._count_turns(REDO, travel, turns, "redo")

    def revert(self, row: MessageRow) -> Aim:
        """Go to just before a message."""
        travel = choose_revert(self._position, row, self._session.find)
        if not travel.messages:
            return self._nothing(REVERT, f"nothing to revert: {row.id!r} is not in force")
        return self._follow(REVERT, travel)

    def revert_part(self, row: MessageRow, step: str | None, paths: Collection[RelPath] | None) -> Aim:
        """Take some paths to before a message or to before a step of it; the head stays where it is."""
        travel = choose_revert(self._position, row, self._session.find)
        if step is not None and travel.is_forward:
            raise InvalidInput(f"message {row.id!r} is not in force, so no step of it can be reverted")
        aim = self._follow(REVERT, travel, step=step)
        missed = [path for path in sorted(paths or ()) if not narrow(aim.wishes, {path})]
        unknown = [path for path in missed if path and not isinstance(self._root.find(path), PathState)]
        return replace(
            aim,
            wishes=aim.wishes if paths is None else narrow(aim.wishes, paths),
            position=self._position,
            messages=[],
            notes=[*aim.notes, *(f"no message changed {to_text(path) or '.'}" for path in missed)],
            is_short=aim.is_short or bool(unknown),
            is_nothing=len(missed) == len(paths or (b"",)),
        )

    def unrevert(self) -> Aim:
        """Go back to before the last act that was not taken back."""
        act, cancelled = self._find_act()
        if act is None:
            return self._nothing(UNREVERT, "nothing to take back")
        before = self._journal.last_event(act.session, before=act.number)
        position = Position() if before is None else before.position
        story = self._story(act.number)
        over = [h.number for h in story if not any(first <= h.number <= last for first, last in cancelled)]
        wishes = wish_back(over, story, self._find_others(story, dict.fromkeys(over, act.number)))
        undone, redone = part_ways(self._position.head, position.head, self._session.find)
        left, _ = part_ways(self._position.tip, position.tip, self._session.find)
        return Aim(
            UNREVERT,
            wishes,
            Position(head=position.head, tip=position.tip),
            messages=[*undone, *redone],
            takes_back=act.number,
            notes=[f"message {row.id!r} came after it and is archived" for row in left],
        )

    def restore(self, ref: str) -> Aim:
        """Make all that is covered equal to a tree."""
        record = find_tree(self._journal, self._session, ref)
        target = open_recorded(self._objects, record.tree, record.facts)
        return Aim(RESTORE, wish_tree(list_changes(self._root, target)), self._position)

    def resolve(self, name: str) -> MessageRow:
        """Tell which message a name means."""
        return self._session.resolve(name)

    # Travelling over messages

    def _count_turns(self, kind: str, travel: Travel, turns: int | None, verb: str) -> Aim:
        if not travel.messages:
            return self._nothing(kind, f"nothing to {verb}", turns=0)
        aim = replace(self._follow(kind, travel), turns=travel.turns)
        if turns is None or travel.turns >= turns:
            return aim
        are = "was 1 turn" if travel.turns == 1 else f"were {travel.turns} turns"
        return replace(aim, is_short=True, notes=[*aim.notes, f"there {are} to {verb}, not {turns}"])

    def _nothing(self, kind: str, note: str, turns: int | None = None) -> Aim:
        return Aim(kind, [], self._position, turns=turns, notes=[note], is_nothing=True)

    def _follow(self, kind: str, travel: Travel, step: str | None = None) -> Aim:
        """Work out what each path is to become on the way."""
        spans = [self._span(row) for row in travel.messages]
        if spans and not travel.is_forward and spans[0].before is None:
            raise NotRecorded(spans[0].row.id, spans[0].hole or "it has no tree before it")
        story = self._story(min((span.number for span in spans), default=_NOW))
        if step is not None:
            story = self._shorten(story, spans[0], step)
        over = {span.number for span in spans}
        others = self._find_others(story, {span.number: span.since for span in spans})
        wish = wish_forward if travel.is_forward else wish_back
        holes = [span for span in spans if span.hole is not None]
        notes = [f"what message {span.row.id!r} changed is not known: {span.hole}" for span in holes]
        return Aim(
            kind,
            wish(over, story, others),
            Position(head=travel.head, tip=travel.tip),
            messages=travel.messages,
            first=travel.messages[0] if travel.messages else None,
            is_short=bool(holes),
            notes=notes,
        )

    def _span(self, row: MessageRow) -> _Span:
        events = MessageEvents(self._journal.events_of([row.number]))
        begin, end = events.begins[row.number], events.ends.get(row.number)
        if end is None:
            return _Span(row, _NOW, begin.before, None, begin.number, begin.hole)
        since = end.since if end.since is not None else end.number
        return _Span(row, end.number, begin.before, end.after, since, end.hole or begin.hole)

    def _shorten(self, story: Sequence[Happening], span: _Span, step: str) -> list[Happening]:
        """Count of a message only what it did from a step on."""
        begin = MessageEvents(self._journal.events_of([span.row.number])).steps.get((span.row.number, step))
        if begin is None or begin.before is None:
            raise UnknownMessage(step, f"message {span.row.id!r} has no step {step!r}")
        assert span.before is not None
        after = self._root if span.after is None else self._open(span.after)
        whole = list_changes(self._open(span.before), after)
        rest = list_changes(self._open(begin.before), after)
        shortened = []
        for happening in story:
            if happening.number == span.number:
                own = {change.path for change in happening.changes}
                nobodys = {change.path for change in whole} - own
                # What the message was said not to have written is nobody's in a step too.
                changes = [change for change in rest if change.path not in nobodys]
                shortened.append(Happening(happening.number, happening.label, changes))
            else:
                shortened.append(happening)
        return shortened

    def _story(self, first: int) -> list[Happening]:
        """Tell all that this session did to paths from an event on."""
        story: list[Happening] = []
        if self._session.number is not None and first != _NOW:
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
            story.append(Happening(_NOW, label, self._ending.changes))
        return story

    def _label(self, event: Event) -> str:
        if event.message is not None:
            return f"message {self._session.find(event.message).id!r}"
        return f"the last {event.kind}"

    def _find_act(self) -> tuple[Event | None, list[tuple[int, int]]]:
        """Find the last act that changed anything and was not taken back.

        Beside it the spans that cancel out, each from an act to the unrevert that took it back.
        """
        cancelled: list[tuple[int, int]] = []
        if self._session.number is None:
            return None, cancelled
        for event in self._journal.acts_of(self._session.number):
            if any(first <= event.number <= last for first, last in cancelled):
                continue
            if event.kind == UNREVERT and event.takes_back is not None:
                cancelled.append((event.takes_back, event.number))
            elif self._did_anything(event):
                return event, cancelled
        return None, cancelled

    def _did_anything(self, event: Event) -> bool:
        before = self._journal.last_event(event.session, before=event.number)
        position = Position() if before is None else before.position
        has_moved = (position.head, position.tip) != (event.position.head, event.position.tip)
        changes = self._journal.changes_of([event.number])[event.number]
        return has_moved or any(change.old != change.new for change in changes)

    # Other sessions

    def _find_others(self, story: Sequence[Happening], since: dict[int, int]) -> dict[RelPath, str]:
        """Find what messages of other sessions did to the same paths, at the same time or later."""
        first: dict[RelPath, int] = {}
        for happening in story:
            if happening.number in since:
                for change in happening.changes:
                    first.setdefault(change.path, since[happening.number])
        if not first or self._session.number is None:
            return {}
        found: dict[RelPath, str] = {}
        in_force = _InForce(self._journal)
        for number, change in self._journal.changes_at(
            first.keys(), min(first.values()), self._session.number
        ):
            label = in_force.describe(number) if number > first[change.path] else None
            if label is not None:
                found[change.path] = f"it was changed by {label}"
        return found

    def _open(self, number: int) -> RecordedDirectory:
        record = self._journal.tree(number)
        return open_recorded(self._objects, record.tree, record.facts)


@frozen
class _Span:
    """One message on the way: the event that ended it, and from which event on it counts."""

    row: MessageRow
    number: int
    before: int | None
    after: int | None
    since: int
    hole: str | None


class _InForce:
    """Tells of messages of other sessions whether they are in force."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._names = journal.session_names()
        self._events: dict[int, Event] = {}
        self._heads: dict[int, int | None] = {}

    def describe(self, number: int) -> str | None:
        """Say which message an event ended; None for acts, and for messages that are undone."""
        if number not in self._events:
            self._events[number] = self._journal.event(number)
        event = self._events[number]
        if event.message is None or not self._is_in_force(event.message, event.session):
            return None
        row = self._journal.message(event.message)
        return f"message {row.id!r} of session {self._names[event.session]!r}"

    def _is_in_force(self, message: int, session: int) -> bool:
        if session not in self._heads:
            last = self._journal.last_event(session)
            self._heads[session] = None if last is None else last.position.head
        for row in walk_back(self._heads[session], self._journal.message):
            # A message is always younger than the one above it.
            if row.number <= message:
                return row.number == message
        return False


def find_tree(journal: Journal, session: Session, name: str) -> TreeRecord:
    """Find the tree that a name means: a message's after, with `^` its before, or a tree's id."""
    try:
        row, is_before = _find_side(session, name)
    except AmbiguousMessage:
        raise
    except UnknownMessage:
        return _find_tree_by_id(journal, name)
    events = MessageEvents(journal.events_of([row.number]))
    begin, end = events.begins[row.number], events.ends.get(row.number)
    number = begin.before if is_before else end.after if end is not None else None
    if number is not None:
        return journal.tree(number)
    if not is_before and end is None:
        raise InvalidInput(f"message {row.id!r} is still open")
    raise NotRecorded(row.id, (end.hole if end else None) or begin.hole or "it has no tree")


def _find_side(session: Session, name: str) -> tuple[MessageRow, bool]:
    if name.endswith("^") and session.find_id(name) is None:
        return session.resolve(name[:-1]), True
    return session.resolve(name), False


def _find_tree_by_id(journal: Journal, tree: str) -> TreeRecord:
    is_id = len(tree) == 40 and not set(tree) - set("0123456789abcdef")
    record = journal.find_tree(bytes.fromhex(tree)) if is_id else None
    if record is None:
        raise UnknownTree(tree)
    return record
