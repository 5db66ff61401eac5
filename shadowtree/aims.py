"""What an act is after: where the head shall go, over which messages, and what each path shall be then.

An aim is worked out from the journal and the present state, and changes nothing. Messages that are still open
count as ended now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shadowtree.errors import ForgottenMessage, InvalidInput, NotRecorded
from shadowtree.events import (
    HEAD_ONLY,
    REDO,
    RESTORE,
    REVERT,
    SWITCH,
    UNDO,
    UNREVERT,
    Event,
    MessageRow,
    Position,
)
from shadowtree.frozen import field, frozen, replace
from shadowtree.journal import Journal
from shadowtree.objects import Objects
from shadowtree.others import Others
from shadowtree.patch import list_changes
from shadowtree.paths import RelPath, ancestors, to_text
from shadowtree.plan import Wish
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.refs import find_tree
from shadowtree.scribe import Ending
from shadowtree.sessions import Session
from shadowtree.state import DIRECTORY, Change, PathState
from shadowtree.timeline import (
    Travel,
    choose_line,
    choose_only,
    choose_redo,
    choose_revert,
    choose_switch,
    choose_undo,
    find_gone,
    in_force,
    part_ways,
)
from shadowtree.trace import (
    join_wishes,
    narrow,
    wish_across,
    wish_back,
    wish_forward,
    wish_states,
    wish_tree,
)
from shadowtree.ways import Span, Way, Ways, paths_of


@frozen
class Aim:
    """What an act is after."""

    kind: str
    wishes: list[Wish]
    position: Position
    """Where the session shall stand."""
    messages: list[MessageRow] = field(default_factory=list)
    """Those undone, then those redone, each oldest first."""
    redone: list[MessageRow] = field(default_factory=list)
    """Those redone."""
    first: MessageRow | None = None
    """The oldest message that something is taken back of."""
    turns: int | None = None
    is_short: bool = False
    """Less than was asked for can be done."""
    takes_back: int | None = None
    noted: list[Change] = field(default_factory=list)
    """What is recorded of paths though nothing is done to them."""
    notes: list[str] = field(default_factory=list)
    is_nothing: bool = False
    """There is nothing to do."""
    is_only: bool = False
    """One message is taken out from under the later ones."""
    forgotten: dict[bytes, MessageRow] = field(default_factory=dict)
    """The contents that forgotten messages on the way left or found, which may be gone."""


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
        self._ways = Ways(journal, objects, session, root, ending)
        self._others = Others(journal, session.number)
        position = session.position
        self._position = Position(head=position.head, tip=position.tip, out=position.out)
        """Where the session stands once the open message is ended."""

    # The acts

    def undo(self, turns: int) -> Aim:
        """Go back by turns."""
        travel = choose_undo(self._position, turns, self._session.find, self._session.first_live())
        return self._count_turns(UNDO, travel, turns, "undo")

    def redo(self, turns: int | None) -> Aim:
        """Go forward by turns, or to the end."""
        travel = choose_redo(self._position, turns, self._session.find, self._session.first_live())
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
        if step is not None and travel.forward:
            raise InvalidInput(f"message {row.id!r} is not in force, so no step of it can be reverted")
        return self._narrow(self._follow(REVERT, travel, step=step), paths)

    def revert_only(self, row: MessageRow, step: str | None, paths: Collection[RelPath] | None) -> Aim:
        """Take one message out from under the later ones, or a step of it, or what it did to some paths.

        Only a message that is taken out whole leaves the line.
        """
        newest = self._journal.newest_number(row.session)
        travel = choose_only(self._position, row, newest, self._session.find)
        if not travel.back:
            return self._nothing(REVERT, f"nothing to revert: {row.id!r} is not in force", is_only=True)
        aim = replace(self._follow(REVERT, travel, step=step, is_only=True), is_only=True)
        return aim if step is None and paths is None else self._narrow(aim, paths)

    def _narrow(self, aim: Aim, paths: Collection[RelPath] | None) -> Aim:
        """Leave out other paths than these, and leave the head where it is."""
        missed = [path for path in sorted(paths or ()) if not narrow(aim.wishes, {path})]
        unknown = [path for path in missed if path and not isinstance(self._root.find(path), PathState)]
        return replace(
            aim,
            wishes=aim.wishes if paths is None else narrow(aim.wishes, paths),
            position=self._position,
            messages=[],
            redone=[],
            notes=[*aim.notes, *(f"no message changed {to_text(path) or '.'}" for path in missed)],
            is_short=aim.is_short or bool(unknown),
            is_nothing=paths is not None and len(missed) == len(paths),
        )

    def switch(self, name: str) -> Aim:
        """Go to just after a message, or to the end of a branch."""
        row, branch = self._session.resolve_ref(name)
        end = self._ways.end_of(row.number)
        travel = self._choose_switch(row, self._session.find_tip(row, branch), end)
        aim = self._follow(SWITCH, travel)
        if end is not None and end.after is not None:
            aim = self._mend(aim, travel, self._ways.open(end.after))
        if not aim.messages and not aim.wishes:
            return self._nothing(SWITCH, f"{row.id!r} is the last message in force already")
        return aim

    def _choose_switch(self, row: MessageRow, tip: int, end: Event | None) -> Travel:
        # A message that is open ends now, as the session stands; and so does the present line.
        out = self._position.out if end is None else end.position.out
        end_of_line = None if tip == self._position.tip else self._ways.end_of(tip)
        out_at_tip = self._position.out if end_of_line is None else end_of_line.position.out
        tip, out = choose_line(row.number, tip, out, out_at_tip)
        return choose_switch(self._position, row, tip, out, self._session.find)

    def _mend(self, aim: Aim, travel: Travel, tree: RecordedDirectory) -> Aim:
        """Wish paths to be as in the tree after the message, where what was recorded of others does not tell.

        That is what messages on the way forward changed, and on the way back where their states hold what is
        out of the line; what messages changed that leave the line or come back into it; and what acts did
        that left the head where it was.
        """
        moved = self._ways.spans([*travel.rejoined, *travel.removed]) + self._ways.list_acts(travel)
        paths = paths_of(self._ways.spans(travel.forward)) | paths_of(moved)
        paths |= self._find_merged(self._ways.walk(travel), travel.position)
        story = self._ways.story(moved)
        others = self._others.find(story, {span.number: span.since for span in moved})
        removed = {row.number for row in travel.removed}
        back = wish_back({span.number for span in moved if span.row.number in removed}, story, others)
        there = wish_forward({span.number for span in moved if span.row.number not in removed}, story, others)
        wishes = join_wishes(join_wishes(aim.wishes, back), there)
        wishes = wish_states({path: tree.find(path) for path in paths}, wishes)
        return replace(aim, wishes=[*wishes, *self._wish_directories_away(wishes, travel)])

    def unrevert(self) -> Aim:
        """Go back to before the last act that was not taken back."""
        act, cancelled = self._find_act()
        if act is None:
            return self._nothing(UNREVERT, "nothing to take back")
        before = self._journal.last_event(act.session, before=act.number)
        position = Position() if before is None else before.position
        story = self._ways.story_since(act.number)
        over = [h.number for h in story if not any(first <= h.number <= last for first, last in cancelled)]
        noted: list[Change] = []
        if act.kind == HEAD_ONLY:
            # It touched no file, and so does taking it back.
            over.remove(act.number)
            moved = next(h.changes for h in story if h.number == act.number)
            later = {change.path for h in story if h.number > act.number for change in h.changes}
            noted = [Change(c.path, c.new, c.old) for c in moved if c.path not in later]
        wishes = wish_back(over, story, self._others.find(story, dict.fromkeys(over, act.number)))
        undone, redone = self._compare_places(position)
        left, _ = part_ways(self._position.tip, position.tip, self._session.find)
        return Aim(
            UNREVERT,
            wishes,
            Position(head=position.head, tip=position.tip, out=position.out),
            messages=[*undone, *redone],
            redone=redone,
            takes_back=act.number,
            noted=noted,
            notes=[f"message {row.id!r} came after it and is archived" for row in left],
        )

    def _compare_places(self, then: Position) -> tuple[list[MessageRow], list[MessageRow]]:
        """List the messages that are in force now and were not then, and those that were."""
        find, now = self._session.find, self._position
        way_back, way_forward = part_ways(now.head, then.head, find)
        on_way = {row.number for row in (*way_back, *way_forward)}
        shared = {taken.message for taken in (*now.out, *then.out)} - on_way
        undone = [row for row in way_back if not now.is_out(row.number)]
        redone = [row for row in way_forward if not then.is_out(row.number)]
        undone += [find(number) for number in sorted(shared) if not now.is_out(number)]
        redone += [find(number) for number in sorted(shared) if not then.is_out(number)]
        return undone, redone

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
        end = travel.stopped_at
        gone = [] if end is None else [f"message {end.id!r} is forgotten, so that {verb} ends before it"]
        if not travel.messages:
            aim = self._nothing(kind, f"nothing to {verb}", turns=0)
            # Beyond what was forgotten there is something to redo; below it there is nothing to undo.
            return replace(aim, notes=[*aim.notes, *gone], is_short=bool(gone) and kind == REDO)
        aim = replace(self._follow(kind, travel), turns=travel.turns)
        aim = replace(aim, notes=[*aim.notes, *gone], is_short=aim.is_short or bool(gone))
        if turns is None or travel.turns >= turns:
            return aim
        are = "was 1 turn" if travel.turns == 1 else f"were {travel.turns} turns"
        return replace(aim, is_short=True, notes=[*aim.notes, f"there {are} to {verb}, not {turns}"])

    def _nothing(self, kind: str, note: str, turns: int | None = None, *, is_only: bool = False) -> Aim:
        return Aim(kind, [], self._position, turns=turns, notes=[note], is_nothing=True, is_only=is_only)

    def _follow(self, kind: str, travel: Travel, step: str | None = None, *, is_only: bool = False) -> Aim:
        """Work out what each path is to become on the way."""
        self._refuse_gone(travel)
        way = self._ways.walk(travel)
        if step is not None:
            way.spans[0] = self._ways.shorten(way.spans[0], step, is_only=is_only)
        spans = way.spans
        first = next((span for span in spans if span.number in way.back), None)
        if first is not None and first.before is None and kind != SWITCH:
            raise NotRecorded(first.row.id, first.hole or "it has no tree before it")
        story = self._ways.story(spans)
        others = self._others.find(story, {span.number: span.since for span in spans})
        merged = set() if kind == SWITCH else self._find_merged(way, travel.position)
        if is_only:
            merged = paths_of(spans)
        wishes = wish_back(way.back, story, others, merged, way.passed)
        if way.forward:
            wishes = wish_across(wishes, wish_forward(way.forward, story, others, merged))
        wishes += self._wish_directories_away(wishes, travel)
        holes = [span for span in spans if span.hole is not None]
        return Aim(
            kind,
            wishes,
            travel.position,
            messages=travel.messages,
            redone=travel.redone,
            first=travel.messages[0] if travel.messages else None,
            is_short=bool(holes),
            notes=[f"what message {span.row.id!r} changed is not known: {span.hole}" for span in holes],
            forgotten=_list_forgotten(spans),
        )

    def _refuse_gone(self, travel: Travel) -> None:
        gone = find_gone(travel, self._session.first_live(), self._session.find)
        if gone is not None and gone.forgotten_ms is not None:
            raise ForgottenMessage(gone.id, gone.forgotten_ms, is_on_way=True)

    def _wish_directories_away(self, wishes: Sequence[Wish], travel: Travel) -> list[Wish]:
        """Wish that directories go, if nothing is left in them, that messages out of the line made."""
        out = [self._session.find(taken.message) for taken in travel.position.out]
        wished = {wish.path for wish in wishes}
        going = [wish.path for wish in wishes if wish.target is None]
        above = {above for path in going for above in ancestors(path)} - wished
        made = {
            change.path
            for span in self._ways.spans([*out, *travel.passed])
            for change in span.changes
            if change.old is None and change.new == DIRECTORY
        }
        going_too = (above & made) - self._find_made(above & made, travel.position)
        return [Wish(path, None, DIRECTORY) for path in sorted(going_too)]

    def _find_made(self, paths: set[RelPath], position: Position) -> set[RelPath]:
        """Name the directories among some paths that messages made which are in force."""
        if not paths:
            return set()
        changes = self._journal.changes_since(paths, 0, self._session.require_number())
        events = self._journal.events([number for number, change in changes if change.new == DIRECTORY])
        messages = {row.number for row in in_force(position, self._session.find)}
        return {
            change.path
            for number, change in changes
            if number in events and events[number].message in messages
        }

    def _find_merged(self, way: Way, position: Position) -> set[RelPath]:
        """Name the paths at which the states on the way hold what a message did that stays out of the line.

        That is where the message at which the way ends for a path came after it, and was recorded before
        it was taken out. Their changes have to be merged.
        """
        merged: set[RelPath] = set()
        for taken in position.out:
            (out,) = self._ways.spans([self._session.find(taken.message)])
            own = paths_of([out])
            ends: dict[RelPath, int] = {}
            for span in way.spans:
                for change in span.changes:
                    if change.path in own and (span.number in way.forward or change.path not in ends):
                        ends[change.path] = span.row.number
            merged |= {path for path, end in ends.items() if taken.message < end <= taken.newest}
        return merged

    def _find_act(self) -> tuple[Event | None, list[tuple[int, int]]]:
        """Find the last act that changed anything and was not taken back.

        Beside it the spans that cancel out, each from an act to the unrevert that took it back.
        """
        cancelled: list[tuple[int, int]] = []
        if self._session.number is None:
            return None, cancelled
        for event in self._journal.acts_of(self._session.number):
            if event.forgotten_ms is not None:
                break
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
        after = event.position
        has_moved = (position.head, position.tip, position.out) != (after.head, after.tip, after.out)
        changes = self._journal.changes_of([event.number])[event.number]
        return has_moved or any(change.old != change.new for change in changes)


def _list_forgotten(spans: Sequence[Span]) -> dict[bytes, MessageRow]:
    return {
        side.blob: span.row
        for span in spans
        if span.row.forgotten_ms is not None
        for change in span.changes
        for side in (change.old, change.new)
        if isinstance(side, PathState) and side.blob
    }
