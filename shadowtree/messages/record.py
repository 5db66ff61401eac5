"""Record messages: their begin, their end and their steps.

Everything here needs the lock. The tree that was taken and the events that refer to it are recorded in one
transaction. The result is read inside it, so a record that cannot be reported is not made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

from shadowtree.base.arguments import check_message_id, check_name, encode_meta, refuse_unknown
from shadowtree.base.errors import DuplicateMessage, InvalidInput, UnknownMessage
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.base.paths import Change, RelPath
from shadowtree.capture.capture import Capture, Site, capture, list_skipped
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.read_files import Progress
from shadowtree.capture.recorded_tree import list_changes, list_rewritten, open_recorded
from shadowtree.capture.rules.git_repository import find_head
from shadowtree.capture.scan import Scan, stamp_uncovered
from shadowtree.results.messages import Message, Snapshot, Step
from shadowtree.timeline.append import NO_ID, Ending, NewMessage, SessionWriter
from shadowtree.timeline.session import MessageEvents, require_live
from shadowtree.timeline.sqlite.schema import BEGIN, SNAPSHOT, STEP, Event, MessageRow, TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


Ended = TypeVar("Ended", Message, Step)

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""The digits of generated ids, in order, without characters that look alike."""
_ID_DIGITS = 9


def read_new_message(
    id: str | None,
    options: Mapping[str, Any],  # Any: of the options' own types
) -> NewMessage:
    """Check what the caller gives for a message; without an id, one is generated when it is recorded."""
    refuse_unknown(options, "text", "role", "meta")
    id = NO_ID if id is None else check_message_id(id)
    text, role = options.get("text", ""), options.get("role")
    if not isinstance(text, str):
        raise InvalidInput(f"the text of a message must be a string, not {text!r}")
    if role is not None:
        check_name(role, "role")
    return NewMessage(id, text, role, encode_meta(options.get("meta")))


class Recorder:
    """Records the present state as messages and steps of one session. The caller holds the lock."""

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
        self._opened = opened
        self._site = site
        self._cancellation = cancellation
        self._first_scan = first_scan
        self._progress = progress
        self.settings = site.settings
        self.writer = SessionWriter(opened.journal, session, site.settings, time_ms)
        self._session = self.writer.session
        self._journal = opened.journal

    @contextmanager
    def _take(self) -> Iterator[Capture]:
        """Capture the present state, for the body to record."""
        self._cancellation.check()
        progress = self._cancellation.heed(self._progress)
        # Another process may have recorded since the first scan.
        scan = self._first_scan if self._journal.last_tree() is None else None
        with capture(self._site, self._opened, scan=scan, progress=progress) as taken:
            self.writer.stamp_uncovered = cache(partial(stamp_uncovered, taken.scan, self._site.worktree))
            yield taken

    def track(self, *, is_wrap: bool = False) -> Snapshot:
        """Record the present state; if `is_wrap`, as the one that sessions start from."""
        with self._take() as taken:
            with taken.record(self.writer.time_s) as record:
                if is_wrap:
                    self.writer.add_wrap(record)
            return Snapshot(
                record.tree.hex(), record.facts.hex(), record.files, list_skipped(taken.scan), taken.warnings
            )

    # Messages

    def begin(self, new: NewMessage) -> Message:
        """Begin a message, and end the open one; beginning the open message again changes nothing."""
        self._leave_fetched()
        new = self._name(new)
        known = self._session.find_id(new.id)
        if known is not None:
            if known.number != self._session.position.open:
                raise DuplicateMessage(new.id, self._session.name)
            return self._session.read_message(known)
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            skipped = taken.scan.skipped()
            with taken.record(self.writer.time_s) as record:
                git_head = find_head(self._site.worktree)
                if ending is not None:
                    self.writer.add_ending(ending, record, skipped, git_head, is_inferred=True)
                    self.writer.warn_of_inferred(ending)
                row = self.writer.add_message(new)
                begin = Event(0, 0, BEGIN, message=row.number, before=record.number, git_head=git_head)
                self.writer.add(begin, skipped)
                message = self._session.read_message(row)
        return self._with_warnings(message, taken)

    def end(self, message_id: str | None, paths: Collection[RelPath] | None) -> Message:
        """End the open message; a message that has ended already stays as it is."""
        message = self._end(message_id, paths, drops_empty=False)
        assert message is not None
        return message

    def end_or_drop(self, message_id: str) -> Message | None:
        """End the open message; if it changed nothing and is the last record of all, remove it instead."""
        return self._end(message_id, None, drops_empty=True)

    def _end(
        self, message_id: str | None, paths: Collection[RelPath] | None, *, drops_empty: bool
    ) -> Message | None:
        row = self._require_row(message_id)
        if row.number != self._session.position.open:
            ended = self._session.read_message(row)
            return ended if drops_empty else _warn_of_earlier_end(ended, "message", row.id)
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), paths, is_inferred=False)
            assert ending is not None
            if drops_empty and _is_empty(ending) and self.writer.drop_message(ending):
                taken.abandon()
                return None
            git_head = find_head(self._site.worktree)
            with taken.record(self.writer.time_s) as record:
                self.writer.add_ending(ending, record, taken.scan.skipped(), git_head, is_inferred=False)
                message = self._session.read_message(row)
        return self._with_warnings(message, taken)

    def close(self) -> None:
        """End the open message with an inferred end: with its last step, or now."""
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            assert ending is not None
            git_head = find_head(self._site.worktree)
            with taken.record(self.writer.time_s) as record:
                self.writer.add_ending(ending, record, taken.scan.skipped(), git_head, is_inferred=True)

    def snapshot(self, new: NewMessage, *, is_inferred: bool = False) -> Message:
        """Record a finished message, which starts from the state that the session last recorded."""
        self._leave_fetched()
        new = self._name(new)
        self._require_new(new)
        since = self._session.last_event or self._journal.last_wrap()
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            before, changes, is_whole = None, [], False
            if ending is not None:
                # If the open message ends with its last step, later changes belong to this message.
                since = ending.last_step
            if since is not None:
                assert since.after is not None, "a session in which no message is open knows its last tree"
                if self._journal.is_forgotten_tree(since.after):
                    forgotten = "the state before this message was forgotten, so it records no changes"
                    self.writer.warnings.append(forgotten)
                else:
                    before = self._journal.tree(since.after)
                    every = self._changes_since(taken, before)
                    changes = self.writer.without_acts(every, since.number)
                    is_whole = len(changes) == len(every)
            return self._record_snapshot(
                new, taken, before, since, changes, ending, is_inferred=is_inferred, is_whole=is_whole
            )

    def record_burst(self, new: NewMessage) -> Message | None:
        """Record changes that nobody announced as a message: the difference from the last tree of all.

        So no change is recorded twice. Return None if nothing changed, or while any session has an open
        message, to which the changes belong.
        """
        self._leave_fetched()
        self._require_new(new)
        last, latest = self._journal.last_tree(), self._journal.latest_event()
        if last is None or self._journal.open_messages():
            return None
        with self._take() as taken:
            changes = self._changes_since(taken, last)
            if not any(change.is_known for change in changes):
                taken.abandon()
                return None
            return self._record_snapshot(
                new, taken, last, latest, changes, None, is_inferred=True, is_whole=True
            )

    def _leave_fetched(self) -> None:
        self.writer.leave_fetched()
        self._session = self.writer.session

    def _name(self, new: NewMessage) -> NewMessage:
        """Generate an id for a message that has none: short, and ordered by time."""
        time_ms, id = self.writer.time_ms, new.id
        while id == NO_ID or (new.id == NO_ID and self._session.find_id(id) is not None):
            id = "m" + "".join(_DIGITS[time_ms >> 5 * place & 31] for place in reversed(range(_ID_DIGITS)))
            time_ms += 1
        return replace(new, id=id)

    def _require_new(self, new: NewMessage) -> None:
        if self._session.find_id(new.id) is not None:
            raise DuplicateMessage(new.id, self._session.name)

    def _record_snapshot(
        self,
        new: NewMessage,
        taken: Capture,
        before: TreeRecord | None,
        since: Event | None,
        changes: list[Change],
        ending: Ending | None,
        *,
        is_inferred: bool,
        is_whole: bool,
    ) -> Message:
        """Record a finished message, after the `ending` of an open one; no `before` means no changes."""
        skipped, git_head = taken.scan.skipped(), find_head(self._site.worktree)
        with taken.record(self.writer.time_s) as record:
            if ending is not None:
                end = self.writer.add_ending(ending, record, skipped, git_head, is_inferred=True)
                self.writer.warn_of_inferred(ending)
                since = since or end
            row = self.writer.add_message(new)
            event = Event(
                0,
                0,
                SNAPSHOT,
                message=row.number,
                before=(before or record).number,
                after=record.number,
                since=None if since is None else since.number,
                is_inferred=is_inferred,
                git_head=git_head,
            )
            unprotected = self.writer.list_unprotected(changes)
            self.writer.add(event, skipped, changes, unprotected=unprotected, is_whole=is_whole)
            message = self._session.read_message(row)
        return self._with_warnings(message, taken)

    # Steps

    def begin_step(self, name: str, meta: str | None) -> Step:
        """Begin a step of the open message, besides open ones; beginning an open step again does nothing."""
        row = self._require_open()
        events = MessageEvents(self._journal.events_of([row.number]))
        known = events.steps.get((row.number, name))
        if known is not None and (row.number, name) not in events.step_ends:
            return self._session.read_step(row, known, None)
        if known is not None:
            raise InvalidInput(f"step {name!r} already exists in message {row.id!r}")
        with self._take() as taken, taken.record(self.writer.time_s) as record:
            begun = Event(0, 0, STEP, message=row.number, step=name, before=record.number, meta=meta)
            return self._session.read_step(row, self.writer.add(begun, taken.scan.skipped()), None)

    def end_step(self, name: str, message_id: str | None = None) -> Step:
        """End a step of a message, by default the open one; a step that has ended already stays as it is."""
        row = self._require_row(message_id)
        events = MessageEvents(self._journal.events_of([row.number]))
        begin = events.steps.get((row.number, name))
        if begin is None:
            raise InvalidInput(f"step {name!r} has not begun in message {row.id!r}")
        end = events.step_ends.get((row.number, name))
        if end is not None:
            return _warn_of_earlier_end(self._session.read_step(row, begin, end), "step", name)
        with self._take() as taken:
            ending = self.writer.prepare_step_ending(row, begin, partial(self._changes_since, taken))
            with taken.record(self.writer.time_s) as record:
                end = self.writer.add_ending(ending, record, taken.scan.skipped(), is_inferred=False)
                return self._session.read_step(row, begin, end)

    # Helpers

    def _require_row(self, message_id: str | None) -> MessageRow:
        """Return a message by its id, or the open one."""
        row = self._require_open() if message_id is None else self._session.find_id(message_id)
        if row is None:
            raise UnknownMessage(message_id or "")
        return require_live(row)

    def _require_open(self) -> MessageRow:
        row = self._session.open
        if row is None:
            raise UnknownMessage("", f"no message is open in session {self._session.name!r}")
        return row

    def _changes_since(
        self, taken: Capture, record: TreeRecord, until: TreeRecord | None = None
    ) -> list[Change]:
        """List the changes from a record to another one, or to the present state."""
        if until is not None:
            then = open_recorded(self._opened.objects, until.tree, until.facts)
            return list_changes(open_recorded(self._opened.objects, record.tree, record.facts), then)
        if (record.tree, record.facts) == (taken.tree, taken.facts):
            return []
        rewritten = list_rewritten(taken.scan, record.tree, record.facts)
        if rewritten is not None:
            return rewritten
        root = taken.publish()
        return list_changes(open_recorded(self._opened.objects, record.tree, record.facts), root)

    def _with_warnings(self, message: Message, taken: Capture) -> Message:
        return replace(message, warnings=[*message.warnings, *taken.warnings, *self.writer.warnings])


def _is_empty(ending: Ending) -> bool:
    """Return whether a message changed nothing, protected or not."""
    return not ending.changes and not ending.unprotected


def _warn_of_earlier_end(ended: Ended, kind: str, name: str) -> Ended:
    """Add a warning if a message or step had an inferred end before the caller ended it."""
    if not ended.inferred:
        return ended
    warning = f"{kind} {name!r} was ended before this: later changes are not part of it"
    return replace(ended, warnings=[*ended.warnings, warning])
