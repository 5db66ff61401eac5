"""Record messages: their begin, their end, their steps, and the holes that failed snapshots leave.

Each function is called by the holder of the lock and adds to the journal, in one go, the tree that was taken
and what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from shadowtree.capture import Capture
from shadowtree.errors import DuplicateMessage, InvalidInput, ShadowError, UnknownMessage
from shadowtree.events import BEGIN, END, SNAPSHOT, STEP, Event, MessageRow
from shadowtree.frozen import replace
from shadowtree.model import Message, Step
from shadowtree.opened import OpenStore
from shadowtree.patch import list_changes
from shadowtree.paths import RelPath
from shadowtree.recorded import open_recorded
from shadowtree.rewritten import list_rewritten
from shadowtree.scribe import Said, Scribe
from shadowtree.sessions import MessageEvents, Session, require_live
from shadowtree.settings import Settings
from shadowtree.state import Change

Take = Callable[[], AbstractContextManager[Capture]]
"""Takes the present state."""


class Recorder(Scribe):
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
        super().__init__(opened.journal, session, settings=settings, time_ms=time_ms, git_head=git_head)
        self._objects = opened.objects
        self.take = take
        self._warnings: list[str] = []

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

    def snapshot(self, said: Said, *, is_inferred: bool = False) -> Message:
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
                is_forgotten = before is not None and self.journal.is_forgotten_tree(before)
                if is_forgotten:
                    before = None
                    self._warnings.append("the state before it is forgotten: what changed since is nobody's")
                changes = []
                if ending is None and before is not None:
                    changes = self._compare_with(taken)(before)
                    changes = self._without_acts(changes, 0 if since is None else since.number)
                with taken.record(self.time_s) as record:
                    if ending is not None:
                        since = self.add_ending(ending, record, taken, is_inferred=True)
                    if ending is not None or since is None or is_forgotten:
                        before = record.number
                    row = known or self._add_message(said)
                    event = self._add(
                        SNAPSHOT,
                        message=row.number,
                        before=before,
                        after=record.number,
                        since=since.number if since is not None else None,
                        hole=hole if before is None else None,
                        is_inferred=is_inferred,
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
                        self._add_step_ending(step, record, taken, is_inferred=True)
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
                    end = self._add_step_ending(step, record, taken, is_inferred=False)
        return self.session.read_step(row, begin, end)

    # Pins

    def pin(self, name: str) -> Message:
        """Keep a message from being forgotten."""
        row = self.session.resolve(name)
        self.journal.pin(row.number, self._time_ms)
        return self.session.read_message(row)

    def unpin(self, name: str) -> Message:
        """Let a message be forgotten when its time comes."""
        row = self.session.resolve(name)
        self.journal.unpin(row.number)
        return self.session.read_message(row)

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

    # Reading

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
        return require_live(row)

    def _require_open(self) -> MessageRow:
        row = self.session.open
        if row is None:
            raise self._no_message(None)
        return row

    def _no_message(self, message_id: str | None) -> UnknownMessage:
        if message_id is not None:
            return UnknownMessage(message_id)
        return UnknownMessage("", f"no message is open in session {self.session.name!r}")

    def _compare_with(self, taken: Capture) -> Callable[[int], list[Change]]:
        """Give a function that tells what changed since a record."""

        def changes_since(before: int) -> list[Change]:
            record = self.journal.tree(before)
            if (record.tree, record.facts) == (taken.tree, taken.facts):
                return []
            rewritten = list_rewritten(taken.scan, record.tree, record.facts)
            if rewritten is not None:
                return rewritten
            root = taken.publish(self.time_s)
            return list_changes(open_recorded(self._objects, record.tree, record.facts), root)

        return changes_since

    def _with_warnings(self, message: Message, taken: Capture) -> Message:
        warnings = [*taken.warnings, *self._warnings, *self.branches.warnings]
        return replace(message, warnings=warnings) if warnings else message


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
