"""Record messages: their begin, their end, their steps.

Each function is called by the holder of the lock and adds to the journal, in one go, the tree that was taken
and what it means. What it returns is read before that counts: a record that cannot be reported is not made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial

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
from shadowtree.timeline.append import NO_ID, Ending, Said, SessionWriter
from shadowtree.timeline.schema import BEGIN, SNAPSHOT, STEP, Event, MessageRow, TreeRecord
from shadowtree.timeline.session import MessageEvents, require_live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Of made ids, in order; without those that look alike."""
_ID_DIGITS = 9


def read_said(id: str | None, said: Mapping[str, Any]) -> Said:  # Any: options of their own types
    """Read what the caller says of a message; without an id, one is made when it is recorded."""
    refuse_unknown(said, "text", "role", "meta")
    id = NO_ID if id is None else check_message_id(id)
    text, role = said.get("text", ""), said.get("role")
    if not isinstance(text, str):
        raise InvalidInput(f"the text of a message must be a string, not {text!r}")
    if role is not None:
        check_name(role, "role")
    return Said(id, text, role, encode_meta(said.get("meta")))


class Recorder:
    """Records the present state, and what it means in one session. Only for the holder of the lock."""

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
        """Take the present state, for the body to record."""
        self._cancellation.check()
        progress = self._cancellation.heed(self._progress)
        # Somebody may have recorded since.
        scan = self._first_scan if self._journal.last_tree() is None else None
        with capture(self._site, self._opened, scan=scan, progress=progress) as taken:
            self.writer.stamp_uncovered = cache(partial(stamp_uncovered, taken.scan, self._site.worktree))
            yield taken

    def track(self, *, is_wrap: bool = False) -> Snapshot:
        """Record the present state; if it `is_wrap`, as the one that sessions start from."""
        with self._take() as taken:
            with taken.record(self.writer.time_s) as record:
                if is_wrap:
                    self.writer.add_wrap(record)
            return Snapshot(
                record.tree.hex(), record.facts.hex(), record.files, list_skipped(taken.scan), taken.warnings
            )

    # Messages

    def begin(self, said: Said) -> Message:
        """Begin a message, and end the one that is open; the same one again changes nothing."""
        self._leave_fetched()
        said = self._name(said)
        known = self._session.find_id(said.id)
        if known is not None:
            if known.number != self._session.position.open:
                raise DuplicateMessage(said.id, self._session.name)
            return self._session.read_message(known)
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            skipped = taken.scan.skipped()
            with taken.record(self.writer.time_s) as record:
                git_head = find_head(self._site.worktree)
                if ending is not None:
                    self.writer.add_ending(ending, record, skipped, git_head, is_inferred=True)
                    self.writer.warn_of_inferred(ending)
                row = self.writer.add_message(said)
                begin = Event(0, 0, BEGIN, message=row.number, before=record.number, git_head=git_head)
                self.writer.add(begin, skipped)
                message = self._session.read_message(row)
        return self._with_warnings(message, taken)

    def end(self, message_id: str | None, paths: Collection[RelPath] | None) -> Message:
        """End the open message; one that is ended already stays as it is."""
        message = self._end(message_id, paths, drops_empty=False)
        assert message is not None
        return message

    def end_or_drop(self, message_id: str) -> Message | None:
        """End the open message; if it changed nothing, and is the last of all, it was never recorded."""
        return self._end(message_id, None, drops_empty=True)

    def _end(
        self, message_id: str | None, paths: Collection[RelPath] | None, *, drops_empty: bool
    ) -> Message | None:
        row = self._require_open() if message_id is None else self._session.find_id(message_id)
        if row is None:
            raise UnknownMessage(message_id or "")
        if require_live(row).number != self._session.position.open:
            ended = self._session.read_message(row)
            return ended if drops_empty else _warn_of_earlier_end(ended)
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
        """End the open message as when nobody says that it is over: with its last step, or now."""
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            assert ending is not None
            git_head = find_head(self._site.worktree)
            with taken.record(self.writer.time_s) as record:
                self.writer.add_ending(ending, record, taken.scan.skipped(), git_head, is_inferred=True)

    def snapshot(self, said: Said, *, is_inferred: bool = False) -> Message:
        """Record a message that is over, from the state last known to the session."""
        self._leave_fetched()
        said = self._name(said)
        self._require_new(said)
        since = self._session.last_event or self._journal.last_wrap()
        with self._take() as taken:
            ending = self.writer.prepare_ending(partial(self._changes_since, taken), is_inferred=True)
            before, changes, is_whole = None, [], False
            if ending is not None:
                # What came after the last step of the open message is in this one, as after its end.
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
                said, taken, before, since, changes, ending, is_inferred=is_inferred, is_whole=is_whole
            )

    def record_burst(self, said: Said) -> Message | None:
        """Record what nobody announced as a message: what is different from the last tree of all sessions.

        So nothing is told twice. None if there is nothing to tell, or while a message is open anywhere: what
        changes then is that one's.
        """
        self._leave_fetched()
        self._require_new(said)
        last, latest = self._journal.last_tree(), self._journal.latest_event()
        if last is None or self._journal.open_messages():
            return None
        with self._take() as taken:
            changes = self._changes_since(taken, last)
            if not any(change.is_known for change in changes):
                taken.abandon()
                return None
            return self._record_snapshot(
                said, taken, last, latest, changes, None, is_inferred=True, is_whole=True
            )

    def _leave_fetched(self) -> None:
        self.writer.leave_fetched()
        self._session = self.writer.session

    def _name(self, said: Said) -> Said:
        """Make an id for a message that has none: short, and in the order of time."""
        time_ms, id = self.writer.time_ms, said.id
        while id == NO_ID or (said.id == NO_ID and self._session.find_id(id) is not None):
            id = "m" + "".join(_DIGITS[time_ms >> 5 * place & 31] for place in reversed(range(_ID_DIGITS)))
            time_ms += 1
        return replace(said, id=id)

    def _require_new(self, said: Said) -> None:
        if self._session.find_id(said.id) is not None:
            raise DuplicateMessage(said.id, self._session.name)

    def _record_snapshot(
        self,
        said: Said,
        taken: Capture,
        before: TreeRecord | None,
        since: Event | None,
        changes: list[Change],
        ending: Ending | None,
        *,
        is_inferred: bool,
        is_whole: bool,
    ) -> Message:
        """Record a message that is over, after the `ending` of an open one; None before it: as now."""
        skipped, git_head = taken.scan.skipped(), find_head(self._site.worktree)
        with taken.record(self.writer.time_s) as record:
            if ending is not None:
                end = self.writer.add_ending(ending, record, skipped, git_head, is_inferred=True)
                self.writer.warn_of_inferred(ending)
                since = since or end
            row = self.writer.add_message(said)
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
        """Begin a step of the open message, beside those that are open; the same one again does nothing."""
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

    def end_step(self, name: str) -> Step:
        """End an open step; one that is ended already stays as it is."""
        row = self._require_open()
        events = MessageEvents(self._journal.events_of([row.number]))
        begin = events.steps.get((row.number, name))
        if begin is None:
            raise InvalidInput(f"step {name!r} has not begun in message {row.id!r}")
        end = events.step_ends.get((row.number, name))
        if end is not None:
            return self._session.read_step(row, begin, end)
        with self._take() as taken:
            ending = self.writer.prepare_step_ending(row, begin, partial(self._changes_since, taken))
            with taken.record(self.writer.time_s) as record:
                end = self.writer.add_ending(ending, record, taken.scan.skipped(), is_inferred=False)
                return self._session.read_step(row, begin, end)

    # What several of them need

    def _require_open(self) -> MessageRow:
        row = self._session.open
        if row is None:
            raise UnknownMessage("", f"no message is open in session {self._session.name!r}")
        return row

    def _changes_since(
        self, taken: Capture, record: TreeRecord, until: TreeRecord | None = None
    ) -> list[Change]:
        """List what changed since a record, until another one or until now."""
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


def _warn_of_earlier_end(message: Message) -> Message:
    """Warn whoever ends a message that something else ended before."""
    if not message.inferred:
        return message
    warning = f"message {message.id!r} was ended before this: later changes are not part of it"
    return replace(message, warnings=[*message.warnings, warning])
