"""Add to the journal what happens in one session: its events, what each changed, where it leads.

The worktree is not looked at here. What is added counts with the transaction that the caller is in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import Change, RelPath, ancestors, is_among, is_file
from shadowtree.config.settings import Settings
from shadowtree.timeline.branches import Branches
from shadowtree.timeline.events import ACTS, END, STEP_END, WRAP, Event, MessageRow, Position, TreeRecord
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import fold, part_ways
from shadowtree.timeline.session import NOBODY, MessageEvents, Session

Skipped = Sequence[tuple[str, str]]
"""What a snapshot left out: paths, and why."""


@frozen
class Said:
    """What the caller says of a message."""

    id: str
    text: str = ""
    role: str | None = None
    meta: str | None = None
    """A JSON object, as text."""


@frozen
class StepEnding:
    """What the open step changed."""

    begin: Event
    changes: list[Change]


@frozen
class Ending:
    """What the open message changed, worked out before anything is added to the journal."""

    row: MessageRow
    begin: Event
    changes: list[Change]
    step: StepEnding | None


class SessionWriter:
    """Adds to one session. Only for the holder of the lock."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        *,
        settings: Settings,
        time_ms: int,
        git_head: Callable[[], str | None],
    ) -> None:
        self.journal = journal
        self._time_ms = time_ms
        self._find_git_head = git_head
        self.branches = Branches(journal, settings)
        self.session = Session(journal, session)

    @property
    def time_s(self) -> int:
        """The time of what is recorded, in seconds since 1970."""
        return self._time_ms // 1000

    def git_head_of(self, row: MessageRow) -> str | None:
        """Tell where the user's repository stood when a message began."""
        return self._begin_of(row).git_head

    def _begin_of(self, row: MessageRow) -> Event:
        return MessageEvents(self.journal.events_of([row.number])).begins[row.number]

    # Acts, and the first record

    def add_act(
        self,
        kind: str,
        position: Position,
        *,
        before: TreeRecord,
        after: TreeRecord,
        takes_back: int | None,
        intent: int | None,
        changes: list[Change],
    ) -> None:
        """Add an act to the journal, with where it leads."""
        left, _ = part_ways(self.session.position.tip, position.tip, self.session.find)
        act = Event(
            0,
            self._session_number(),
            kind,
            self._time_ms,
            position,
            before=before.number,
            after=after.number,
            git_head=self._find_git_head(),
            takes_back=takes_back,
        )
        event = self.journal.add_event(act, intent=intent)
        self.journal.add_changes(event.number, changes)
        self.session.position, self.session.last_event = position, event
        if left:
            self.branches.archive(self.session, left, event.number)
            self.branches.limit(self.session)

    def add_wrap(self, record: TreeRecord) -> None:
        """Note that a record is the one that `wrap` took."""
        self.journal.add_event(Event(0, NOBODY, WRAP, self._time_ms, after=record.number))

    # Endings

    def prepare_ending(
        self, changes_since: Callable[[int], list[Change]], paths: Collection[RelPath] | None = None
    ) -> Ending | None:
        """Work out what the open message changed, and its open step; None if no message is open."""
        row = self.session.open
        if row is None:
            return None
        begin = self._begin_of(row)
        changes = changes_since(_tree_before(begin))
        if paths is not None:
            changes = _attribute(changes, paths)
        changes = self._without_acts(changes, begin.number)
        return Ending(row, begin, changes, self._prepare_step_ending(changes_since))

    def _without_acts(self, changes: list[Change], since: int) -> list[Change]:
        """Leave out what acts of other sessions did meanwhile: it is theirs, and they can take it back."""
        acts: dict[RelPath, list[Change]] = {}
        paths = {change.path for change in changes}
        for number, change in self.journal.changes_at(paths, since, self._session_number()):
            if self.journal.event(number).kind in ACTS:
                acts.setdefault(change.path, []).append(change)
        return [change for change in changes if not _is_explained(change, acts.get(change.path, []))]

    def add_ending(self, ending: Ending, record: TreeRecord, skipped: Skipped, *, is_inferred: bool) -> Event:
        """Add the end of the open message to the journal."""
        if ending.step is not None:
            self._add_step_ending(ending.step, record, skipped, is_inferred=True)
        event = self._add(
            Event(
                0,
                0,
                END,
                message=ending.row.number,
                before=ending.begin.before,
                after=record.number,
                since=ending.begin.number,
                is_inferred=is_inferred,
            ),
            skipped,
        )
        self.journal.add_changes(event.number, ending.changes)
        return event

    def _prepare_step_ending(self, changes_since: Callable[[int], list[Change]]) -> StepEnding | None:
        row, name = self.session.open, self.session.position.step
        if row is None or name is None:
            return None
        begin = MessageEvents(self.journal.events_of([row.number])).steps.get((row.number, name))
        if begin is None:
            raise StoreDamaged(f"the timeline does not say how step {name!r} of message {row.id!r} began")
        return StepEnding(begin, changes_since(_tree_before(begin)))

    def _add_step_ending(
        self, step: StepEnding, record: TreeRecord, skipped: Skipped, *, is_inferred: bool
    ) -> Event:
        event = self._add(
            Event(
                0,
                0,
                STEP_END,
                message=step.begin.message,
                step=step.begin.step,
                before=step.begin.before,
                after=record.number,
                since=step.begin.number,
                is_inferred=is_inferred,
            ),
            skipped,
        )
        self.journal.add_changes(event.number, step.changes)
        return event

    # Rows

    def _add_message(self, said: Said) -> MessageRow:
        """Add a message after the head, and archive what was undone."""
        undone = self.session.undone()
        position = self.session.position
        self.branches.warn_of(self.session, said.id)
        number = self._session_number()
        row = self.journal.add_message(number, said.id, said.role, said.text, said.meta, position.head)
        if undone:
            event = self.session.last_event
            assert event is not None, "only an act can have undone something"
            self.session.position = replace(self.session.position, tip=position.head)
            self.branches.archive(self.session, undone, event.number)
        return row

    def _session_number(self) -> int:
        if self.session.number is None:
            self.session.number = self.journal.add_session(self.session.name)
        return self.session.number

    def _add(self, event: Event, skipped: Skipped = ()) -> Event:
        """Add what happened, with what the snapshot left out; the session stands elsewhere afterwards."""
        happened = replace(
            event,
            session=self._session_number(),
            time_ms=self._time_ms,
            position=fold(self.session.position, event),
            skips=self.journal.add_skips(skipped),
        )
        added = self.journal.add_event(happened)
        self.session.position, self.session.last_event = added.position, added
        return added


def _tree_before(begin: Event) -> int:
    if begin.before is None:
        raise StoreDamaged(f"the timeline has no tree before event {begin.number}")
    return begin.before


def _is_explained(change: Change, acts: list[Change]) -> bool:
    """Tell whether acts, one after the other, made all of a change."""
    state = change.old
    for act in acts:
        if act.old != act.new:
            if act.old != state:
                return False
            state = act.new
    return state == change.new


def _attribute(changes: list[Change], paths: Collection[RelPath]) -> list[Change]:
    """Leave to a message the changes at these paths and below, and of the directories that lead there."""
    own = [change for change in changes if is_among(change.path, paths)]
    leading = {above for change in own for above in ancestors(change.path)}
    return [
        change
        for change in changes
        if is_among(change.path, paths)
        or (change.path in leading and not is_file(change.old) and not is_file(change.new))
    ]
