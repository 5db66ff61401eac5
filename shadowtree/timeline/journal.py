"""The timeline of a store: everything recorded, in SQLite, durable when a call returns.

Recorded rows stay, except that the last message is removed if it changed nothing, and that retention and
purges mark and redact rows (`removal`). Branches, pins and sessions can change; intents and packs are removed
when they are done with. A row names objects, so it is written last: the objects are complete and durable by
then, or become so in the same transaction (invariant 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from shadowtree.base.errors import ForgottenTree, StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import Change
from shadowtree.timeline.sqlite.database import BEYOND, Database, RowsStamp
from shadowtree.timeline.sqlite.pack_rows import PackRows
from shadowtree.timeline.sqlite.removal import PurgeRows, RetentionRows
from shadowtree.timeline.sqlite.schema import (
    BEGIN,
    BRANCHES,
    CHANGE_COUNTS,
    CHANGES,
    EVENTS,
    INTENTS,
    IS_ACT,
    IS_BEGIN,
    IS_COUNTED,
    IS_END,
    IS_HERE,
    IS_LIVE,
    IS_WRAP,
    MESSAGES,
    OF_MESSAGE,
    PINS,
    SESSIONS,
    TREES,
    WITH_CHANGES,
    BranchChange,
    BranchRow,
    Event,
    Intent,
    MessageRow,
    TreeRecord,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_tree,
    encode_branch_changes,
    encode_change,
    encode_text,
    event_values,
)
from shadowtree.timeline.sqlite.unprotected import LeftOutRows

_PAGE = 20
_CANDIDATES = 11
"""At most this many matches of a prefix are returned: more than is ever listed."""


class Journal:
    """The timeline of one store. Writing needs the store's lock.

    Forgotten trees keep their rows, so that they can be reported as forgotten; their objects may be gone.
    """

    def __init__(self, path: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.database = self._db = Database(path, free_bytes=limits.timeline_free_bytes)
        self.packs = PackRows(self._db)
        self.retention = RetentionRows(self._db)
        self.purges = PurgeRows(self._db)
        self.left_out = LeftOutRows(self._db)
        self.close = self._db.close
        self.compact = self._db.compact
        self.measure = self._db.measure
        self.reading = self._db.reading
        self.require_sound = self._db.require_sound
        self.scrub = self._db.scrub
        self.stamp = self._db.stamp
        self.transaction = self._db.transaction
        self._last: tuple[RowsStamp, TreeRecord | None] | None = None
        """The stamp of the rows when the last tree was read, and that tree."""

    # Trees

    def last_tree(self) -> TreeRecord | None:
        """Return the tree recorded last, which is never forgotten.

        Recording needs it half a dozen times, so it is read again only if something was written since.
        """
        stamp = self.stamp()
        if stamp is None or self._last is None or self._last[0] != stamp:
            last = self._db.find(decode_tree, f"{TREES.select} ORDER BY number DESC LIMIT 1")
            if stamp is None:
                return last
            self._last = stamp, last
        return self._last[1]

    def first_tree(self) -> TreeRecord | None:
        """Return the oldest tree that was not forgotten."""
        return self._db.find(decode_tree, f"{TREES.select} WHERE {IS_LIVE} ORDER BY number LIMIT 1")

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Return the latest record of a tree; a forgotten one only if there is no other."""
        condition = "WHERE tree = ? ORDER BY forgotten IS NOT NULL, number DESC LIMIT 1"
        return self._db.find(decode_tree, f"{TREES.select} {condition}", tree)

    def find_tree_ids(self, prefix: str) -> list[bytes]:
        """Return the first tree ids that begin with hex digits; forgotten ones only if there is no other."""
        ends = bytes.fromhex(prefix.ljust(40, "0")), bytes.fromhex(prefix.ljust(40, "f"))
        select = "SELECT DISTINCT tree FROM trees WHERE tree BETWEEN ? AND ?"
        live = self._db.rows(f"{select} AND {IS_LIVE} LIMIT ?", *ends, _CANDIDATES)
        return [tree for (tree,) in live or self._db.rows(f"{select} LIMIT ?", *ends, _CANDIDATES)]

    def tree(self, number: int | None) -> TreeRecord:
        """Return the record that another row names; raise ForgottenTree if it was forgotten."""
        record = self._require_tree(number)
        if record.forgotten_ms is not None:
            raise ForgottenTree(record.tree.hex(), record.forgotten_ms)
        return record

    def trees(self, numbers: Collection[int]) -> dict[int, TreeRecord]:
        """Return many records that other rows name; raise ForgottenTree if one was forgotten."""
        rows = self._db.rows_of(f"{TREES.select} WHERE number IN", numbers)
        found = {record.number: record for record in self._db.decode(decode_tree, rows)}
        for number in numbers:
            record = self._db.require("tree", number, found.get(number))
            if record.forgotten_ms is not None:
                raise ForgottenTree(record.tree.hex(), record.forgotten_ms)
        return found

    def is_forgotten_tree(self, number: int) -> bool:
        """Return whether a record that another row names was forgotten."""
        return self._require_tree(number).forgotten_ms is not None

    def _require_tree(self, number: int | None) -> TreeRecord:
        if number is None:
            raise StoreDamaged("an event of the timeline does not name its tree")
        found = self._db.find(decode_tree, f"{TREES.select} WHERE number = ?", number)
        return self._db.require("tree", number, found)

    def all_trees(self) -> list[TreeRecord]:
        """Return every recorded tree, oldest first; the objects of forgotten ones may be gone."""
        return self._db.read(decode_tree, f"{TREES.select} ORDER BY number")

    def live_trees(self, after: int = 0) -> list[TreeRecord]:
        """Return every tree after a number that was not forgotten, oldest first."""
        select = f"{TREES.select} WHERE number > ? AND {IS_LIVE} ORDER BY number"
        return self._db.read(decode_tree, select, after)

    def add_tree(
        self, *, tree: bytes, facts: bytes, also: Iterable[bytes], files: int, time_s: int
    ) -> TreeRecord:
        """Record a tree, and the blobs that must `also` be kept as long as it is."""
        beside = b"".join(sorted(set(also)))
        number = self._db.add(TREES, tree, facts, beside, files, time_s)
        return TreeRecord(number, tree, facts, beside, files, time_s)

    # Sessions

    def session_number(self, name: str) -> int | None:
        """Return the number of a session, or None if nothing was recorded in it."""
        select = f"SELECT number FROM sessions WHERE name = ? AND {IS_LIVE}"
        rows = self._db.rows(select, encode_text(name))
        return rows[0][0] if rows else None

    def session_names(self) -> dict[int, str]:
        """Return the name of every session by its number, dropped ones included."""
        rows = self._db.read(SESSIONS.decode, f"{SESSIONS.select} ORDER BY number")
        return {number: name for number, name, *_ in rows}

    def live_sessions(self) -> dict[int, str]:
        """Return the name of every session that was not dropped, by its number."""
        rows = self._db.read(SESSIONS.decode, f"{SESSIONS.select} WHERE {IS_LIVE} ORDER BY number")
        return {number: name for number, name, *_ in rows}

    def open_messages(self) -> dict[int, int]:
        """Return the open message, by its number, of each session that has one on this machine."""
        last = ((session, self.last_event(session)) for session in self.live_sessions())
        return {
            session: event.position.open
            for session, event in last
            if event is not None and event.position.open is not None and not event.is_elsewhere
        }

    def add_session(self, name: str) -> int:
        """Add a session and return its number."""
        return self._db.add(SESSIONS, name)

    # Messages

    def message(self, number: int) -> MessageRow:
        """Return the message whose number another row names."""
        found = self._db.find(decode_message, f"{MESSAGES.select} WHERE number = ?", number)
        return self._db.require("message", number, found)

    def messages_by_number(self, numbers: Sequence[int]) -> dict[int, MessageRow]:
        """Return many messages at once; each must be there."""
        rows = self._db.rows_of(f"{MESSAGES.select} WHERE number IN", numbers)
        found = {message.number: message for message in self._db.decode(decode_message, rows)}
        return {number: self._db.require("message", number, found.get(number)) for number in numbers}

    def line(self, number: int, first: int) -> list[MessageRow]:
        """Return a message and its ancestors, newest first, none of them older than `first`."""
        return self._db.read(
            decode_message,
            "WITH RECURSIVE line (place, above) AS (SELECT number, parent FROM messages WHERE number = ?"
            " UNION ALL SELECT number, parent FROM messages JOIN line ON number = above AND number >= ?)"
            f" {MESSAGES.select} JOIN line ON number = place ORDER BY number DESC",
            number,
            first,
        )

    def find_message(self, session: int, id: str) -> MessageRow | None:
        """Return the message of a session with this id."""
        condition = "WHERE session = ? AND id = ?"
        return self._db.find(decode_message, f"{MESSAGES.select} {condition}", session, encode_text(id))

    def find_ordinal(self, session: int, ordinal: int) -> MessageRow | None:
        """Return the message at this place in a session, counted from 1."""
        condition = "WHERE session = ? AND ordinal = ?"
        return self._db.find(decode_message, f"{MESSAGES.select} {condition}", session, ordinal)

    def find_prefix(self, session: int, prefix: str) -> list[MessageRow]:
        """Return the first messages of a session whose ids begin with `prefix`; forgotten ones come last."""
        start = encode_text(prefix) or b""
        # UTF-8 never holds this byte, so every text with the prefix sorts before it.
        end = start + b"\xff"
        condition = "session = ? AND id >= ? AND id < ? ORDER BY forgotten IS NOT NULL, ordinal LIMIT ?"
        select = f"{MESSAGES.select} WHERE {condition}"
        return self._db.read(decode_message, select, session, start, end, _CANDIDATES)

    def last_messages(
        self,
        session: int | None,
        count: int | None,
        *,
        since_ms: int | None = None,
        paths: Collection[bytes] | None = None,
    ) -> list[MessageRow]:
        """Return the newest messages of one session or of all, oldest first, without forgotten ones.

        With `since_ms`, only those that began then or later; with `paths`, only those that changed one of
        these paths, or something below one.
        """
        conditions, values = [IS_LIVE], list[object]()
        if session is not None:
            conditions.append("session = ?")
            values.append(session)
        if since_ms is not None:
            conditions.append(f"number IN (SELECT message FROM events WHERE {IS_BEGIN} AND time >= ?)")
            values.append(since_ms)
        if paths is not None and b"" not in paths:
            ranges = " OR ".join("path = ? OR path >= ? AND path < ?" for _ in paths) or "FALSE"
            joined = f"events JOIN changes ON event = events.number WHERE {IS_END} AND {IS_COUNTED}"
            conditions.append(f"number IN (SELECT message FROM {joined} AND ({ranges}))")
            # `0` is the byte after `/`: all paths below this one sort in between.
            values += [end for path in paths for end in (bytes(path), path + b"/", path + b"0")]
        select = f"{MESSAGES.select} WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?"
        return self._db.read(decode_message, select, *values, -1 if count is None else count)[::-1]

    def newest_number(self, session: int) -> int:
        """Return the number of the last message of a session, forgotten or not; 0 if there is none."""
        select = "SELECT coalesce(max(number), 0) FROM messages WHERE session = ?"
        return int(self._db.rows(select, session)[0][0])

    def add_message(
        self,
        session: int,
        id: str,
        role: str | None,
        text: str,
        meta: str | None,
        parent: int | None,
        turn: int = 1,
    ) -> MessageRow:
        """Add a message at the end of its session, which must not have its id yet."""
        last = self._db.rows("SELECT max(ordinal) FROM messages WHERE session = ?", session)
        ordinal = (last[0][0] or 0) + 1
        number = self._db.add(MESSAGES, session, ordinal, id, role, text, meta, parent, turn)
        return MessageRow(number, session, ordinal, id, role, text, meta, parent, turn)

    def remove_message(self, message: int, begin: int) -> bool:
        """Remove the last message; return False, and keep it, if something else was recorded since it began.

        Its events, changes and pin are removed too, and so are the branches that were added when it began.
        """
        others = "SELECT 1 FROM events WHERE number > ? AND message IS NOT ? LIMIT 1"
        if self._db.rows(others, begin, message):
            return False
        self._db.execute("DELETE FROM changes WHERE event >= ?", begin)
        self._db.execute("DELETE FROM branches WHERE event = ?", begin)
        self._db.execute("DELETE FROM pins WHERE message = ?", message)
        self._db.execute("DELETE FROM events WHERE number >= ?", begin)
        self._db.execute("DELETE FROM messages WHERE number = ?", message)
        return True

    # Events

    def events_unprotected_at(self, path: str) -> list[Event]:
        """Return the ends of the messages during which an unprotected file changed, oldest first."""
        lists = self.left_out.lists_unprotected(path)
        rows = self._db.rows_of(f"{EVENTS.select} WHERE unprotected IN", lists)
        return self._db.decode(decode_event, rows, order=lambda event: event.number)

    def event(self, number: int) -> Event:
        """Return the event whose number another row names."""
        return self._db.require("event", number, self._find_event("number = ?", number))

    def events(self, numbers: Sequence[int]) -> dict[int, Event]:
        """Return many events at once; each must be there."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE number IN", numbers)
        found = {event.number: event for event in self._db.decode(decode_event, rows)}
        return {number: self._db.require("event", number, found.get(number)) for number in numbers}

    def last_event(self, session: int, *, before: int | None = None) -> Event | None:
        """Return the last event of a session, or its last one before another event."""
        limit = BEYOND if before is None else before
        return self._find_event("session = ? AND number < ? ORDER BY number DESC LIMIT 1", session, limit)

    def latest_event(self) -> Event | None:
        """Return the last event of any session."""
        return self._find_event("number > 0 ORDER BY number DESC LIMIT 1")

    def last_recorded(self) -> Event | None:
        """Return the last live event of any message, recorded on this machine if there is one."""
        last = f"{OF_MESSAGE} AND {IS_LIVE} ORDER BY number DESC LIMIT 1"
        return self._find_event(f"{IS_HERE} AND {last}") or self._find_event(last)

    def last_of_messages(self, session: int) -> Event | None:
        """Return the last event of a session that is not an act."""
        return self._find_event(f"session = ? AND NOT ({IS_ACT}) ORDER BY number DESC LIMIT 1", session)

    def last_number(self) -> int:
        """Return the number of the last event of any session; 0 if there is none."""
        ((number,),) = self._db.rows("SELECT coalesce(max(number), 0) FROM events")
        return int(number)

    def last_wrap(self) -> Event | None:
        """Return the last wrap event."""
        return self._find_event(f"{IS_WRAP} ORDER BY number DESC LIMIT 1")

    def events_after(self, number: int, session: int) -> list[Event]:
        """Return the events of a session after an event, oldest first."""
        condition = "WHERE session = ? AND number > ? ORDER BY number"
        return self._db.read(decode_event, f"{EVENTS.select} {condition}", session, number)

    def updates_after(self, number: int) -> list[Event]:
        """Return the begins, ends and acts on this machine after an event, in all sessions, oldest first."""
        condition = f"WHERE number > ? AND {IS_HERE} AND (kind = '{BEGIN}' OR {WITH_CHANGES}) ORDER BY number"
        return self._db.read(decode_event, f"{EVENTS.select} {condition}", number)

    def events_of(self, messages: Sequence[int]) -> list[Event]:
        """Return the events of messages and their steps, oldest first."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE {OF_MESSAGE} AND message IN", messages)
        return self._db.decode(decode_event, rows, order=lambda event: event.number)

    def acts_of(self, session: int) -> Iterator[Event]:
        """Yield the acts of a session, newest first, reading a page at a time."""
        condition = f"{IS_ACT} AND session = ? AND number < ? ORDER BY number DESC LIMIT {_PAGE}"
        before = BEYOND
        # By pages: a statement left open would keep us from beginning a transaction.
        while rows := self._db.rows(f"{EVENTS.select} WHERE {condition}", session, before):
            yield from self._db.decode(decode_event, rows)
            before = rows[-1][0]

    def add_event(self, event: Event, *, intent: int | None = None) -> Event:
        """Add an event, which commits an `intent`; return it with its number."""
        number = self._db.add(EVENTS, *event_values(event, intent))
        return replace(event, number=number)

    def _find_event(self, condition: str, *values: object) -> Event | None:
        return self._db.find(decode_event, f"{EVENTS.select} WHERE {condition}", *values)

    # Changes

    def changes_of(self, events: Sequence[int]) -> dict[int, list[Change]]:
        """Return the changes of each event, sorted by path; raise StoreDamaged if some are missing."""
        found: dict[int, list[Change]] = {event: [] for event in events}
        rows = self._db.rows_of(f"{CHANGES.select} WHERE event IN", events)
        for event, change in self._db.decode(decode_change, rows, order=lambda pair: (pair[0], pair[1].path)):
            self._db.require("event", event, found.get(event)).append(change)
        for event, count in self._db.rows_of(f"{CHANGE_COUNTS} AND number IN", events):
            if len(found[event]) != count:
                raise StoreDamaged(f"{self._db.path} has lost changes of event {event}")
        return found

    def paths_of(self, events: Sequence[int]) -> set[bytes]:
        """Return the files and links that some events changed, where both sides are known."""
        select = f"SELECT DISTINCT path FROM changes WHERE {IS_COUNTED} AND event IN"
        return {path for (path,) in self._db.rows_of(select, events)}

    def changes_since(self, paths: Collection[bytes], after: int, session: int) -> list[tuple[int, Change]]:
        """Return the changes of one session at these paths after an event, oldest first, with the events."""
        return self._changes_at(paths, after, f"number > ? AND session = ? AND {WITH_CHANGES}", session)

    def story_of(self, path: bytes) -> list[tuple[int, Change]]:
        """Return every recorded change of one path, in any session, oldest first, with the events."""
        return self._changes_at([path], 0, f"number > ? AND {WITH_CHANGES}")

    def changes_at(self, paths: Collection[bytes], after: int, not_session: int) -> list[tuple[int, Change]]:
        """Return other sessions' changes at these paths after an event, oldest first, with the events."""
        others = f"number > ? AND session <> ? AND {IS_HERE} AND {WITH_CHANGES}"
        # Usually there is no other session, so nothing to search for.
        if not self._db.rows(f"SELECT 1 FROM events WHERE {others} LIMIT 1", after, not_session):
            return []
        return self._changes_at(paths, after, others, not_session)

    def _changes_at(
        self, paths: Collection[bytes], after: int, condition: str, *values: object
    ) -> list[tuple[int, Change]]:
        # CROSS keeps the order: each path is searched first, and then its few events.
        joined = f"{CHANGES.select} CROSS JOIN events ON number = event"
        select = f"{joined} WHERE {condition} AND event > ? AND path IN"
        rows = self._db.rows_of(select, paths, values=(after, *values, after))
        return self._db.decode(decode_change, rows, order=lambda pair: (pair[0], pair[1].path))

    def add_changes(self, event: int, changes: Iterable[Change], *, is_whole: bool = False) -> None:
        """Add the changes of an event, each path once; `is_whole`: they are all that its trees differ in."""
        rows = [encode_change(event, change) for change in changes]
        if not rows:
            return
        with self._db.together():
            self._db.execute_all(CHANGES.insert, rows)
            self._db.change(EVENTS, event, change_count=len(rows), whole=1 if is_whole else None)

    # Branches

    def branches(self, session: int) -> list[BranchRow]:
        """Return the branches of a session that were not dropped, in the order of their archiving."""
        condition = "session = ? AND dropped IS NULL ORDER BY event, number"
        return self._db.read(decode_branch, f"{BRANCHES.select} WHERE {condition}", session)

    def move_branch(self, number: int, *, fork: int | None, tip: int, event: int) -> None:
        """Set the messages of a branch that is archived again."""
        self._db.change(BRANCHES, number, fork=fork, tip=tip, event=event)

    def rename_branch(self, number: int, name: str) -> None:
        """Rename a branch."""
        self._db.change(BRANCHES, number, name=encode_text(name))

    def drop_branch(self, number: int) -> None:
        """Remove a branch from the list; its messages stay."""
        self._db.change(BRANCHES, number, dropped=1)

    def list_branch(self, number: int) -> None:
        """Put a dropped branch back on the list."""
        self._db.change(BRANCHES, number, dropped=None)

    def note_branches(self, event: int, changes: Sequence[BranchChange]) -> None:
        """Store with an act its changes to branches, in the transaction that adds the act."""
        self._db.change(EVENTS, event, branches=encode_branch_changes(changes))

    def add_branch(self, session: int, name: str, fork: int | None, tip: int, event: int) -> BranchRow:
        """Archive undone messages."""
        number = self._db.add(BRANCHES, session, name, fork, tip, event)
        return BranchRow(number, session, name, fork, tip, event)

    # Pins

    def pins(self) -> set[int]:
        """Return the numbers of the pinned messages."""
        return {number for (number,) in self._db.rows("SELECT message FROM pins")}

    def pin(self, message: int, time_ms: int) -> None:
        """Keep a message from being forgotten; a pinned one keeps its pin."""
        insert = PINS.insert.replace("INSERT", "INSERT OR IGNORE", 1)
        self._db.execute(insert, *PINS.encode((message, time_ms)))

    def unpin(self, message: int) -> None:
        """Allow retention to forget a message again."""
        self._db.execute("DELETE FROM pins WHERE message = ?", message)

    # Intents

    def open_intents(self) -> list[Intent]:
        """Return every intent that was not removed, oldest first."""
        rows = self._db.read(INTENTS.decode, f"{INTENTS.select} ORDER BY number")
        committed = "SELECT 1 FROM events WHERE intent = ?"
        return [Intent(number, content, bool(self._db.rows(committed, number))) for number, content in rows]

    def has_unfinished_purge(self) -> bool:
        """Return whether something purged may still be in the store."""
        return bool(self._db.rows("SELECT 1 FROM purged WHERE done IS NULL LIMIT 1"))

    def add_intent(self, content: bytes) -> int:
        """Record what an act is about to do, so that it can be rolled back; durable when this returns."""
        return self._db.add(INTENTS, content, act="intent")

    def change_intent(self, number: int, content: bytes) -> None:
        """Replace the content of an intent, within a transaction."""
        self._db.change(INTENTS, number, content=content)

    def remove_intent(self, number: int) -> None:
        """Remove an intent that is finished."""
        # If a power cut brings it back, there is nothing left to do for it.
        self._db.forget(("DELETE FROM intents WHERE number = ?", (number,)))
