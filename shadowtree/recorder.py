"""Record messages: their begin, their end, their steps, and the holes that failed snapshots leave.

Each function is called by the holder of the lock and adds to the journal, in one go, the tree that was taken
and what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from shadowtree.branches import Branches
from shadowtree.capture import Capture
from shadowtree.errors import DuplicateMessage, InvalidInput, ShadowError, UnknownMessage
from shadowtree.events import ACTS, BEGIN, END, SNAPSHOT, STEP, STEP_END, WRAP, Event, MessageRow, Position
from shadowtree.frozen import frozen, replace
from shadowtree.journal import TreeRecord
from shadowtree.model import Message, Step
from shadowtree.opened import OpenStore
from shadowtree.patch import list_changes
from shadowtree.paths import RelPath, ancestors, is_among
from shadowtree.recorded import open_recorded
from shadowtree.sessions import NOBODY, MessageEvents, Session
from shadowtree.settings import Settings
from shadowtree.state import Change, is_file
from shadowtree.timeline import fold, part_ways

Take = Callable[[], AbstractContextManager[Capture]]
"""Takes the present state."""


@frozen
class Said:
    """What the caller says of a message."""

    id: str
    text: str = ""
    role: str | None = None
    meta: str | None = None
    """A JSON object, as text."""


class Recorder:
    """Records what happens in one session. Only for the holder of the lock."""

    def __init__(
        self,
        opened: OpenStore,
        session: str,
        take: Take,
        *,
        settings: Settings,
        time_ms: int,
        git_head: Callable[[], str | None],
    ) -> None:
        self._opened = opened
        self.journal = opened.journal
        self.take = take
        self._time_ms = time_ms
        self._find_git_head = git_head
        self.branches = Branches(opened.journal, settings)
        self.session = Session(opened.journal, session)

    # Messages

    def begin(self, said: Said) -> Message:
        """Begin a message, and end the one that is open; the same one again only fills a hole."""
        row = self._find_open(said.id)
        if row is not None and self._begin_of(row).hole is None:
            return self.session.read_message(row)
        try:
            with self.take() as taken:
                ending = None if row is not None else self.prepare_ending(self._compare_with(taken))
                with taken.record(self.time_s) as record:
                    if ending is not None:
                        self.add_ending(ending, record, taken, is_inferred=True)
                    row = row or self._add_message(said)
                    self._add(
                        BEGIN,
                        message=row.number,
                        before=record.number,
                        git_head=self._find_git_head(),
                        skips=self._add_skips(taken),
                    )
                    self.branches.limit(self.session)
        except ShadowError as error:
            self._leave_hole(self._add_hole, said, str(error))
            raise
        return self._with_warnings(self.session.read_message(row), taken)

    def end(self, message_id: str | None, paths: Collection[RelPath] | None) -> Message:
        """End the open message; one that is ended already stays as it is."""
        row = self._message_to_end(message_id)
        if row.number != self.session.position.open:
            return self.session.read_message(row)
        with self.take() as taken:
            ending = self.prepare_ending(self._compare_with(taken), paths)
            assert ending is not None
            with taken.record(self.time_s) as record:
                self.add_ending(ending, record, taken, is_inferred=False)
        return self._with_warnings(self.session.read_message(row), taken)

    def snapshot(self, said: Said) -> Message:
        """Record a message that is over, from the state last known to the session."""
        since = self.session.last_event or self.journal.last_wrap()
        known = self.session.find_id(said.id)
        if known is not None and (since is None or not _is_hole_of(since, known)):
            raise DuplicateMessage(said.id, self.session.name)
        try:
            with self.take() as taken:
                ending = self.prepare_ending(self._compare_with(taken))
                before, hole = _last_known(since)
                if known is not None and since is not None:
                    before = since.before
                changes = []
                if ending is None and before is not None:
                    changes = self._compare_with(taken)(before)
                    changes = self._without_acts(changes, 0 if since is None else since.number)
                with taken.record(self.time_s) as record:
                    if ending is not None:
                        since = self.add_ending(ending, record, taken, is_inferred=True)
                    if ending is not None or since is None:
                        before = record.number
                    row = known or self._add_message(said)
                    event = self._add(
                        SNAPSHOT,
                        message=row.number,
                        before=before,
                        after=record.number,
                        since=since.number if since is not None else None,
                        hole=hole if before is None else None,
                        git_head=self._find_git_head(),
                        skips=self._add_skips(taken),
                    )
                    self.journal.add_changes(event.number, changes)
                    self.branches.limit(self.session)
        except ShadowError as error:
            self._leave_hole(self._add_hole_snapshot, said, str(error))
            raise
        return self._with_warnings(self.session.read_message(row), taken)

    def record_burst(self, said: Said) -> Message | None:
        """Record what nobody announced as a message: what is different from the last tree of all sessions.

        So nothing is told twice. None if there is nothing to tell, or while a message is open anywhere: what
        changes then is that one's.
        """
        if self.session.find_id(said.id) is not None:
            raise DuplicateMessage(said.id, self.session.name)
        last, latest = self.journal.last_tree(), self.journal.latest_event()
        if last is None or self._is_any_open():
            return None
        with self.take() as taken:
            changes = self._compare_with(taken)(last.number)
            if not any(change.is_known for change in changes):
                taken.abandon()
                return None
            with taken.record(self.time_s) as record:
                row = self._add_message(said)
                event = self._add(
                    SNAPSHOT,
                    message=row.number,
                    before=last.number,
                    after=record.number,
                    since=None if latest is None else latest.number,
                    is_inferred=True,
                    git_head=self._find_git_head(),
                    skips=self._add_skips(taken),
                )
                self.journal.add_changes(event.number, changes)
                self.branches.limit(self.session)
        return self._with_warnings(self.session.read_message(row), taken)

    def _is_any_open(self) -> bool:
        last = (self.journal.last_event(session) for session in self.journal.session_names())
        return any(event is not None and event.position.open is not None for event in last)

    def add_wrap(self, record: TreeRecord) -> None:
        """Note that a record is the one that `wrap` took."""
        self.journal.add_event(
            session=NOBODY, kind=WRAP, time_ms=self._time_ms, position=Position(), after=record.number
        )

    # Steps

    def begin_step(self, name: str) -> Step:
        """Begin a step of the open message, and end the one that is open; the same one again does nothing."""
        row = self._require_open()
        events = MessageEvents(self.journal.events_of([row.number]))
        if self.session.position.step != name:
            if (row.number, name) in events.steps:
                raise InvalidInput(f"step {name!r} is already recorded in message {row.id!r}")
            with self.take() as taken:
                step = self._prepare_step_ending(self._compare_with(taken))
                with taken.record(self.time_s) as record:
                    if step is not None:
                        self._add_step_ending(step, record, taken)
                    skips = self._add_skips(taken)
                    begin = self._add(STEP, message=row.number, step=name, before=record.number, skips=skips)
        else:
            begin = events.steps[row.number, name]
        return self.session.read_step(row, begin, None)

    def end_step(self, name: str) -> Step:
        """End the open step; one that is ended already stays as it is."""
        row = self._require_open()
        events = MessageEvents(self.journal.events_of([row.number]))
        begin = events.steps.get((row.number, name))
        if begin is None:
            raise InvalidInput(f"step {name!r} has not begun in message {row.id!r}")
        end = events.step_ends.get((row.number, name))
        if end is None:
            with self.take() as taken:
                step = self._prepare_step_ending(self._compare_with(taken))
                assert step is not None
                with taken.record(self.time_s) as record:
                    end = self._add_step_ending(step, record, taken)
        return self.session.read_step(row, begin, end)

    # Acts

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
        event = self.journal.add_event(
            session=self._session_number(),
            kind=kind,
            time_ms=self._time_ms,
            position=position,
            before=before.number,
            after=after.number,
            git_head=self._find_git_head(),
            takes_back=takes_back,
            intent=intent,
        )
        self.journal.add_changes(event.number, changes)
        self.session.position, self.session.last_event = position, event
        if left:
            self.branches.archive(self.session, left, event.number)
            self.branches.limit(self.session)

    # Endings

    def prepare_ending(
        self, changes_since: Callable[[int], list[Change]], paths: Collection[RelPath] | None = None
    ) -> Ending | None:
        """Work out what the open message changed, and its open step; None if no message is open."""
        row = self.session.open
        if row is None:
            return None
        begin = self._begin_of(row)
        changes = [] if begin.before is None else changes_since(begin.before)
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

    def add_ending(
        self, ending: Ending, record: TreeRecord, taken: Capture | None, *, is_inferred: bool
    ) -> Event:
        """Add the end of the open message to the journal."""
        if ending.step is not None:
            self._add_step_ending(ending.step, record, taken)
        event = self._add(
            END,
            message=ending.row.number,
            before=ending.begin.before,
            after=record.number,
            since=ending.begin.number,
            hole=ending.begin.hole,
            is_inferred=is_inferred,
            skips=self._add_skips(taken),
        )
        self.journal.add_changes(event.number, ending.changes)
        return event

    def _prepare_step_ending(self, changes_since: Callable[[int], list[Change]]) -> StepEnding | None:
        row, name = self.session.open, self.session.position.step
        if row is None or name is None:
            return None
        begin = MessageEvents(self.journal.events_of([row.number])).steps[row.number, name]
        assert begin.before is not None
        return StepEnding(begin, changes_since(begin.before))

    def _add_step_ending(self, step: StepEnding, record: TreeRecord, taken: Capture | None) -> Event:
        event = self._add(
            STEP_END,
            message=step.begin.message,
            step=step.begin.step,
            before=step.begin.before,
            after=record.number,
            since=step.begin.number,
            skips=self._add_skips(taken),
        )
        self.journal.add_changes(event.number, step.changes)
        return event

    # Holes

    def _leave_hole(self, add: Callable[[Said, str], None], said: Said, why: str) -> None:
        """Mark that a snapshot failed. If not even that is possible, the caller still has the error."""
        try:
            with self.journal.transaction():
                self.session = Session(self.journal, self.session.name)
                add(said, why)
        except ShadowError:
            return

    def _add_hole(self, said: Said, why: str) -> None:
        if self._find_open(said.id) is None:
            self._end_with_hole(why)
            self._add(BEGIN, message=self._add_message(said).number, hole=why)

    def _add_hole_snapshot(self, said: Said, why: str) -> None:
        if self.session.find_id(said.id) is not None:
            return
        self._end_with_hole(why)
        before, _ = _last_known(self.session.last_event or self.journal.last_wrap())
        self._add(SNAPSHOT, message=self._add_message(said).number, before=before, hole=why)

    def _end_with_hole(self, why: str) -> None:
        """End the open message without a tree after it."""
        row = self.session.open
        if row is not None:
            begin = self._begin_of(row)
            self._add(
                END,
                message=row.number,
                before=begin.before,
                since=begin.number,
                hole=why,
                is_inferred=True,
            )

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

    def _add(
        self,
        kind: str,
        *,
        message: int | None = None,
        step: str | None = None,
        before: int | None = None,
        after: int | None = None,
        since: int | None = None,
        hole: str | None = None,
        is_inferred: bool = False,
        git_head: str | None = None,
        skips: int | None = None,
    ) -> Event:
        happened = Event(0, 0, kind, self._time_ms, self.session.position, message=message, step=step)
        event = self.journal.add_event(
            session=self._session_number(),
            kind=kind,
            time_ms=self._time_ms,
            position=fold(self.session.position, happened),
            message=message,
            step=step,
            before=before,
            after=after,
            since=since,
            hole=hole,
            is_inferred=is_inferred,
            git_head=git_head,
            skips=skips,
        )
        self.session.position, self.session.last_event = event.position, event
        return event

    def _add_skips(self, taken: Capture | None) -> int | None:
        return None if taken is None else self.journal.add_skips(taken.scan.skipped())

    # Reading

    @property
    def time_s(self) -> int:
        """The time of what is recorded, in seconds since 1970."""
        return self._time_ms // 1000

    def git_head_of(self, row: MessageRow) -> str | None:
        """Tell where the user's repository stood when a message began."""
        return self._begin_of(row).git_head

    def _find_open(self, message_id: str) -> MessageRow | None:
        """Give the open message if it has this id; raise if another one has it."""
        row = self.session.find_id(message_id)
        if row is not None and row.number != self.session.position.open:
            raise DuplicateMessage(message_id, self.session.name)
        return row

    def _message_to_end(self, message_id: str | None) -> MessageRow:
        row = self.session.open if message_id is None else self.session.find_id(message_id)
        if row is None:
            raise self._no_message(message_id)
        return row

    def _require_open(self) -> MessageRow:
        row = self.session.open
        if row is None:
            raise self._no_message(None)
        return row

    def _no_message(self, message_id: str | None) -> UnknownMessage:
        if message_id is not None:
            return UnknownMessage(message_id)
        return UnknownMessage("", f"no message is open in session {self.session.name!r}")

    def _begin_of(self, row: MessageRow) -> Event:
        return MessageEvents(self.journal.events_of([row.number])).begins[row.number]

    def _compare_with(self, taken: Capture) -> Callable[[int], list[Change]]:
        """Give a function that tells what changed since a record."""

        def changes_since(before: int) -> list[Change]:
            record = self.journal.tree(before)
            if (record.tree, record.facts) == (taken.tree, taken.facts):
                return []
            root = taken.publish(self.time_s)
            return list_changes(open_recorded(self._opened.objects, record.tree, record.facts), root)

        return changes_since

    def _with_warnings(self, message: Message, taken: Capture) -> Message:
        warnings = [*taken.warnings, *self.branches.warnings]
        return replace(message, warnings=warnings) if warnings else message


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


def _is_hole_of(event: Event, row: MessageRow) -> bool:
    """Tell whether an event is the failed snapshot of a message, which may be tried again."""
    return event.kind == SNAPSHOT and event.message == row.number and event.after is None


def _last_known(event: Event | None) -> tuple[int | None, str | None]:
    """Give the record that an event left, or why there is none."""
    if event is None:
        return None, None
    number = event.after if event.after is not None else event.before
    if event.hole is not None and event.after is None:
        return None, f"the snapshot before it failed: {event.hole}"
    return number, None
