"""Record messages: their begin, their end, their steps.

Each function is called by the holder of the lock and adds to the journal, in one go, the tree that was taken
and what it means. What it returns is read before that counts: a record that cannot be reported is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial

from shadowtree.base.arguments import check_name, encode_meta, refuse_unknown
from shadowtree.base.errors import DuplicateMessage, InvalidInput, UnknownMessage
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.base.paths import Change, RelPath
from shadowtree.capture.capture import Capture, Site, capture
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.read_files import Progress
from shadowtree.capture.recorded_tree import list_changes, list_rewritten, open_recorded
from shadowtree.capture.rules.git_repository import find_head
from shadowtree.capture.scan import Scan
from shadowtree.results.messages import Message, Snapshot, Step
from shadowtree.timeline.append import Said, SessionWriter
from shadowtree.timeline.schema import BEGIN, SNAPSHOT, STEP, Event, MessageRow
from shadowtree.timeline.session import MessageEvents, require_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read_said(id: str, said: Mapping[str, Any]) -> Said:  # Any: options of their own types
    """Read what the caller says of a message."""
    refuse_unknown(said, "text", "role", "meta")
    check_name(id, "message id")
    text, role = said.get("text", ""), said.get("role")
    if not isinstance(text, str):
        raise InvalidInput(f"the text of a message is text, not {text!r}")
    if role is not None:
        check_name(role, "role")
    return Said(id, text, role, encode_meta(said.get("meta")))


class Recorder(SessionWriter):
    """Records what happens in one session. Only for the holder of the lock."""

    def __init__(
        self,
        opened: OpenStore,
        site: Site,
        session: str,
        time_ms: int,
        cancellation: Cancellation,
        first_scan: Scan | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            opened.journal,
            session,
            settings=site.settings,
            time_ms=time_ms,
            git_head=partial(find_head, site.worktree),
        )
        self._opened = opened
        self._objects = opened.objects
        self._site = site
        self._cancellation = cancellation
        self._first_scan = first_scan
        self._progress = progress
        self._warnings: list[str] = []

    def take(self) -> AbstractContextManager[Capture]:
        """Take the present state, for the body to record."""
        self._cancellation.check()
        progress = self._cancellation.heed(self._progress)
        return capture(self._site, self._opened, first_scan=self._first_scan, progress=progress)

    def track(self, *, is_wrap: bool = False) -> Snapshot:
        """Record the present state; if it `is_wrap`, as the one that sessions start from."""
        with self.take() as taken:
            with taken.record(self.time_s) as record:
                if is_wrap:
                    self.add_wrap(record)
            return Snapshot(
                record.tree.hex(), record.facts.hex(), record.files, taken.skipped, taken.warnings
            )

    # Messages

    def begin(self, said: Said) -> Message:
        """Begin a message, and end the one that is open; the same one again changes nothing."""
        known = self.session.find_id(said.id)
        if known is not None:
            if known.number != self.session.position.open:
                raise DuplicateMessage(said.id, self.session.name)
            return self.session.read_message(known)
        with self.take() as taken:
            ending = self.prepare_ending(self._compare_with(taken))
            with taken.record(self.time_s) as record:
                if ending is not None:
                    self.add_ending(ending, record, taken.scan.skipped(), is_inferred=True)
                row = self._add_message(said)
                self._add(
                    Event(
                        0, 0, BEGIN, message=row.number, before=record.number, git_head=self._find_git_head()
                    ),
                    taken.scan.skipped(),
                )
                self.branches.limit(self.session)
                message = self.session.read_message(row)
        return self._with_warnings(message, taken)

    def end(self, message_id: str | None, paths: Collection[RelPath] | None) -> Message:
        """End the open message; one that is ended already stays as it is."""
        row = self._message_to_end(message_id)
        if row.number != self.session.position.open:
            return self.session.read_message(row)
        with self.take() as taken:
            ending = self.prepare_ending(self._compare_with(taken), paths)
            assert ending is not None
            with taken.record(self.time_s) as record:
                self.add_ending(ending, record, taken.scan.skipped(), is_inferred=False)
                message = self.session.read_message(row)
        return self._with_warnings(message, taken)

    def snapshot(self, said: Said, *, is_inferred: bool = False) -> Message:
        """Record a message that is over, from the state last known to the session."""
        if self.session.find_id(said.id) is not None:
            raise DuplicateMessage(said.id, self.session.name)
        since = self.session.last_event or self.journal.last_wrap()
        with self.take() as taken:
            ending = self.prepare_ending(self._compare_with(taken))
            before, changes = None, []
            if ending is None and since is not None:
                before = since.after
                assert before is not None, "a session in which no message is open knows its last tree"
                if self.journal.is_forgotten_tree(before):
                    before = None
                    self._warnings.append("the state before it is forgotten: what changed since is nobody's")
                else:
                    changes = self._without_acts(self._compare_with(taken)(before), since.number)
            with taken.record(self.time_s) as record:
                if ending is not None:
                    since = self.add_ending(ending, record, taken.scan.skipped(), is_inferred=True)
                row = self._add_message(said)
                event = self._add(
                    Event(
                        0,
                        0,
                        SNAPSHOT,
                        message=row.number,
                        before=record.number if before is None else before,
                        after=record.number,
                        since=since.number if since is not None else None,
                        is_inferred=is_inferred,
                        git_head=self._find_git_head(),
                    ),
                    taken.scan.skipped(),
                )
                self.journal.add_changes(event.number, changes)
                self.branches.limit(self.session)
                message = self.session.read_message(row)
        return self._with_warnings(message, taken)

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
                    Event(
                        0,
                        0,
                        SNAPSHOT,
                        message=row.number,
                        before=last.number,
                        after=record.number,
                        since=None if latest is None else latest.number,
                        is_inferred=True,
                        git_head=self._find_git_head(),
                    ),
                    taken.scan.skipped(),
                )
                self.journal.add_changes(event.number, changes)
                self.branches.limit(self.session)
                message = self.session.read_message(row)
        return self._with_warnings(message, taken)

    def _is_any_open(self) -> bool:
        last = (self.journal.last_event(session) for session in self.journal.session_names())
        return any(event is not None and event.position.open is not None for event in last)

    # Steps

    def begin_step(self, name: str) -> Step:
        """Begin a step of the open message, and end the one that is open; the same one again does nothing."""
        row = self._require_open()
        events = MessageEvents(self.journal.events_of([row.number]))
        if self.session.position.step == name:
            return self.session.read_step(row, events.steps[row.number, name], None)
        if (row.number, name) in events.steps:
            raise InvalidInput(f"step {name!r} is already recorded in message {row.id!r}")
        with self.take() as taken:
            step = self._prepare_step_ending(self._compare_with(taken))
            with taken.record(self.time_s) as record:
                if step is not None:
                    self._add_step_ending(step, record, taken.scan.skipped(), is_inferred=True)
                begun = Event(0, 0, STEP, message=row.number, step=name, before=record.number)
                begin = self._add(begun, taken.scan.skipped())
                return self.session.read_step(row, begin, None)

    def end_step(self, name: str) -> Step:
        """End the open step; one that is ended already stays as it is."""
        row = self._require_open()
        events = MessageEvents(self.journal.events_of([row.number]))
        begin = events.steps.get((row.number, name))
        if begin is None:
            raise InvalidInput(f"step {name!r} has not begun in message {row.id!r}")
        end = events.step_ends.get((row.number, name))
        if end is not None:
            return self.session.read_step(row, begin, end)
        with self.take() as taken:
            step = self._prepare_step_ending(self._compare_with(taken))
            assert step is not None
            with taken.record(self.time_s) as record:
                end = self._add_step_ending(step, record, taken.scan.skipped(), is_inferred=False)
                return self.session.read_step(row, begin, end)

    # Pins

    def pin(self, name: str) -> Message:
        """Keep a message from being forgotten."""
        row = self.session.resolve(name)
        with self.journal.transaction():
            self.journal.retention.pin(row.number, self._time_ms)
            return self.session.read_message(row)

    def unpin(self, name: str) -> Message:
        """Let a message be forgotten when its time comes."""
        row = self.session.resolve(name)
        with self.journal.transaction():
            self.journal.retention.unpin(row.number)
            return self.session.read_message(row)

    # Reading

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
