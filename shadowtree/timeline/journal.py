"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added, apart from intents and packs, which are removed when they are done with, the names
of branches, the marks of what was forgotten, and the last message, which goes if it turns out that it changed
nothing. A row names objects, so it is written last: whatever it names is complete and durable by then, or
becomes so in the same transaction (invariant 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from shadowtree.base.errors import ForgottenTree, StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import Change
from shadowtree.timeline.database import BEYOND, Database, RowsStamp
from shadowtree.timeline.pack_rows import PackRows
from shadowtree.timeline.removal import PurgeRows, RetentionRows
from shadowtree.timeline.schema import (
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
from shadowtree.timeline.unprotected import LeftOutRows

_PAGE = 20
_CANDIDATES = 11
"""How many messages are given of those that a prefix may mean: more than anybody lists."""


class Journal:
    """The timeline of one store. Writing needs the store's lock.

    Trees that were forgotten keep their rows, so that it can be told; their objects may be gone.
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
        """The tree recorded last, and the stamp of the rows then."""

    # Trees

    def last_tree(self) -> TreeRecord | None:
        """Return the tree recorded last, which is never forgotten.

        Whoever records asks for it half a dozen times: it is read again only if something was written since.
        """
        stamp = self.stamp()
        if stamp is None or self._last is None or self._last[0] != stamp:
            last = self._db.find(decode_tree, f"{TREES.select} ORDER BY number DESC LIMIT 1")
            if stamp is None:
                return last
            self._last = stamp, last
        return self._last[1]

    def first_tree(self) -> TreeRecord | None:
        """Return the first one that is recorded."""
        return self._db.find(decode_tree, f"{TREES.select} WHERE {IS_LIVE} ORDER BY number LIMIT 1")

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Return the latest record of a tree; one that was forgotten only if there is no other."""
        condition = "WHERE tree = ? ORDER BY forgotten IS NOT NULL, number DESC LIMIT 1"
        return self._db.find(decode_tree, f"{TREES.select} {condition}", tree)

    def find_tree_ids(self, prefix: str) -> list[bytes]:
        """Return the first ids of trees that begin with hex digits; forgotten ones if there is no other."""
        ends = bytes.fromhex(prefix.ljust(40, "0")), bytes.fromhex(prefix.ljust(40, "f"))
        select = "SELECT DISTINCT tree FROM trees WHERE tree BETWEEN ? AND ?"
        live = self._db.rows(f"{select} AND {IS_LIVE} LIMIT ?", *ends, _CANDIDATES)
        return [tree for (tree,) in live or self._db.rows(f"{select} LIMIT ?", *ends, _CANDIDATES)]

    def tree(self, number: int | None) -> TreeRecord:
        """Return the record that another row names; ForgottenTree if it was forgotten."""
        record = self._require_tree(number)
        if record.forgotten_ms is not None:
            raise ForgottenTree(record.tree.hex(), record.forgotten_ms)
        return record

    def trees(self, numbers: Collection[int]) -> dict[int, TreeRecord]:
        """Return many records at once that other rows name; ForgottenTree if one was forgotten."""
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
        """Return every recorded tree, oldest first; the objects of those that were forgotten may be gone."""
        return self._db.read(decode_tree, f"{TREES.select} ORDER BY number")

    def live_trees(self, after: int = 0) -> list[TreeRecord]:
        """Return every tree that was not forgotten, oldest first, from the one after a number on."""
        select = f"{TREES.select} WHERE number > ? AND {IS_LIVE} ORDER BY number"
        return self._db.read(decode_tree, select, after)

    def add_tree(
        self, *, tree: bytes, facts: bytes, also: Iterable[bytes], files: int, time_s: int
    ) -> TreeRecord:
        """Record a tree, and which blobs are needed `also`; this is the moment at which it counts."""
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
        """Name every session by its number, those too that were dropped."""
        rows = self._db.read(SESSIONS.decode, f"{SESSIONS.select} ORDER BY number")
        return {number: name for number, name, *_ in rows}

    def live_sessions(self) -> dict[int, str]:
        """Name every session that was not dropped by its number."""
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
        """Add a session and give its number."""
        return self._db.add(SESSIONS, name)

    # Messages

    def message(self, number: int) -> MessageRow:
        """Return the message with a number that another row names."""
        found = self._db.find(decode_message, f"{MESSAGES.select} WHERE number = ?", number)
        return self._db.require("message", number, found)

    def messages_by_number(self, numbers: Sequence[int]) -> dict[int, MessageRow]:
        """Return many messages at once; each must be there."""
        rows = self._db.rows_of(f"{MESSAGES.select} WHERE number IN", numbers)
        found = {message.number: message for message in self._db.decode(decode_message, rows)}
        return {number: self._db.require("message", number, found.get(number)) for number in numbers}

    def line(self, number: int, first: int) -> list[MessageRow]:
        """Return a message and those above it, newest first, down to one with the number `first`."""
        return self._db.read(
            decode_message,
            "WITH RECURSIVE line (place, above) AS (SELECT number, parent FROM messages WHERE number = ?"
            " UNION ALL SELECT number, parent FROM messages JOIN line ON number = above AND number >= ?)"
            f" {MESSAGES.select} JOIN line ON number = place ORDER BY number DESC",
            number,
            first,
        )

    def find_message(self, session: int, id: str) -> MessageRow | None:
        """Return the message of a session that has an id."""
        condition = "WHERE session = ? AND id = ?"
        return self._db.find(decode_message, f"{MESSAGES.select} {condition}", session, encode_text(id))

    def find_ordinal(self, session: int, ordinal: int) -> MessageRow | None:
        """Return the message at a place in its session, from 1 on."""
        condition = "WHERE session = ? AND ordinal = ?"
        return self._db.find(decode_message, f"{MESSAGES.select} {condition}", session, ordinal)

    def find_prefix(self, session: int, prefix: str) -> list[MessageRow]:
        """Return the first messages of a session whose ids begin with `prefix`; forgotten ones come last."""
        start = encode_text(prefix) or b""
        # No UTF-8 holds this byte, so whatever begins with the prefix sorts before.
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
        """Return the newest messages of a session or of all, oldest first, but for forgotten ones.

        With `since_ms`, those that began then or later; with `paths`, those that changed one of these, or
        something below it.
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
            # A slash comes right before a zero: in between is what is below the path.
            values += [end for path in paths for end in (bytes(path), path + b"/", path + b"0")]
        select = f"{MESSAGES.select} WHERE {' AND '.join(conditions)} ORDER BY number DESC LIMIT ?"
        return self._db.read(decode_message, select, *values, -1 if count is None else count)[::-1]

    def newest_number(self, session: int) -> int:
        """Return the number of the last message of a session, forgotten or not; 0: there is none."""
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
        """Remove a message, unless something else was recorded since it began; False: it was.

        Its events go too, and the branches that its begin made.
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
        """Return the ends of messages during which a file changed that no snapshot covered, oldest first."""
        lists = self.left_out.lists_unprotected(path)
        rows = self._db.rows_of(f"{EVENTS.select} WHERE unprotected IN", lists)
        return self._db.decode(decode_event, rows, order=lambda event: event.number)

    def event(self, number: int) -> Event:
        """Return the event with a number that another row names."""
        return self._db.require("event", number, self._find_event("number = ?", number))

    def events(self, numbers: Sequence[int]) -> dict[int, Event]:
        """Return many events at once; each must be there."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE number IN", numbers)
        found = {event.number: event for event in self._db.decode(decode_event, rows)}
        return {number: self._db.require("event", number, found.get(number)) for number in numbers}

    def last_event(self, session: int, *, before: int | None = None) -> Event | None:
        """Return what happened last in a session, or last before another event."""
        limit = BEYOND if before is None else before
        return self._find_event("session = ? AND number < ? ORDER BY number DESC LIMIT 1", session, limit)

    def latest_event(self) -> Event | None:
        """Return what happened last, in whatever session."""
        return self._find_event("number > 0 ORDER BY number DESC LIMIT 1")

    def last_recorded(self) -> Event | None:
        """Return the last record of any message that is not forgotten, on this machine if there is one."""
        last = f"{OF_MESSAGE} AND {IS_LIVE} ORDER BY number DESC LIMIT 1"
        return self._find_event(f"{IS_HERE} AND {last}") or self._find_event(last)

    def last_of_messages(self, session: int) -> Event | None:
        """Return what happened last in a session that is no act."""
        return self._find_event(f"session = ? AND NOT ({IS_ACT}) ORDER BY number DESC LIMIT 1", session)

    def last_number(self) -> int:
        """Return the number of what happened last, in whatever session; 0: nothing did."""
        ((number,),) = self._db.rows("SELECT coalesce(max(number), 0) FROM events")
        return int(number)

    def last_wrap(self) -> Event | None:
        """Return the latest event at which the store was wrapped, in whatever session."""
        return self._find_event(f"{IS_WRAP} ORDER BY number DESC LIMIT 1")

    def events_after(self, number: int, session: int) -> list[Event]:
        """Return what happened in a session after an event, oldest first."""
        condition = "WHERE session = ? AND number > ? ORDER BY number"
        return self._db.read(decode_event, f"{EVENTS.select} {condition}", session, number)

    def updates_after(self, number: int) -> list[Event]:
        """List begins, ends and acts after an event, in all sessions, oldest first."""
        condition = f"WHERE number > ? AND {IS_HERE} AND (kind = '{BEGIN}' OR {WITH_CHANGES}) ORDER BY number"
        return self._db.read(decode_event, f"{EVENTS.select} {condition}", number)

    def events_of(self, messages: Sequence[int]) -> list[Event]:
        """Return how messages and their steps began and ended, oldest first."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE {OF_MESSAGE} AND message IN", messages)
        return self._db.decode(decode_event, rows, order=lambda event: event.number)

    def acts_of(self, session: int) -> Iterator[Event]:
        """Yield the acts of a session, newest first; they are read as they are asked for."""
        condition = f"{IS_ACT} AND session = ? AND number < ? ORDER BY number DESC LIMIT {_PAGE}"
        before = BEYOND
        # By pages: a statement left open would keep a transaction of ours from beginning.
        while rows := self._db.rows(f"{EVENTS.select} WHERE {condition}", session, before):
            yield from self._db.decode(decode_event, rows)
            before = rows[-1][0]

    def add_event(self, event: Event, *, intent: int | None = None) -> Event:
        """Add what happened, and return it with its number; this is when an `intent` is committed."""
        number = self._db.add(EVENTS, *event_values(event, intent))
        return replace(event, number=number)

    def _find_event(self, condition: str, *values: object) -> Event | None:
        return self._db.find(decode_event, f"{EVENTS.select} WHERE {condition}", *values)

    # Changes

    def changes_of(self, events: Sequence[int]) -> dict[int, list[Change]]:
        """Return the changes of each event, sorted by path; StoreDamaged if some of them are missing."""
        found: dict[int, list[Change]] = {event: [] for event in events}
        rows = self._db.rows_of(f"{CHANGES.select} WHERE event IN", events)
        for event, change in self._db.decode(decode_change, rows, order=_event_and_path):
            self._db.require("event", event, found.get(event)).append(change)
        for event, count in self._db.rows_of(f"{CHANGE_COUNTS} AND number IN", events):
            if len(found[event]) != count:
                raise StoreDamaged(f"{self._db.path} has lost changes of event {event}")
        return found

    def paths_of(self, events: Sequence[int]) -> set[bytes]:
        """Name the files and links that some events changed, where both sides are known."""
        select = f"SELECT DISTINCT path FROM changes WHERE {IS_COUNTED} AND event IN"
        return {path for (path,) in self._db.rows_of(select, events)}

    def changes_since(self, paths: Collection[bytes], after: int, session: int) -> list[tuple[int, Change]]:
        """Return what one session changed at these paths after an event, oldest first, with their events."""
        return self._changes_at(paths, after, f"number > ? AND session = ? AND {WITH_CHANGES}", session)

    def story_of(self, path: bytes) -> list[tuple[int, Change]]:
        """List all that was ever recorded of one path, in any session, oldest first, with the events."""
        return self._changes_at([path], 0, f"number > ? AND {WITH_CHANGES}")

    def changes_at(self, paths: Collection[bytes], after: int, not_session: int) -> list[tuple[int, Change]]:
        """List what other sessions changed at these paths after an event, oldest first, with the events."""
        others = f"number > ? AND session <> ? AND {IS_HERE} AND {WITH_CHANGES}"
        # Mostly there is no other session, and nothing to look for.
        if not self._db.rows(f"SELECT 1 FROM events WHERE {others} LIMIT 1", after, not_session):
            return []
        return self._changes_at(paths, after, others, not_session)

    def _changes_at(
        self, paths: Collection[bytes], after: int, condition: str, *values: object
    ) -> list[tuple[int, Change]]:
        # CROSS keeps the order: a look at each path, and then at its few events.
        joined = f"{CHANGES.select} CROSS JOIN events ON number = event"
        select = f"{joined} WHERE {condition} AND event > ? AND path IN"
        rows = self._db.rows_of(select, paths, values=(after, *values, after))
        return self._db.decode(decode_change, rows, order=_event_and_path)

    def add_changes(self, event: int, changes: Iterable[Change], *, is_whole: bool = False) -> None:
        """Add what an event changed, each path once; if it `is_whole`, just what its trees differ in."""
        rows = [encode_change(event, change) for change in changes]
        if not rows:
            return
        with self._db.together():
            self._db.execute_all(CHANGES.insert, rows)
            self._db.change(EVENTS, event, change_count=len(rows), whole=1 if is_whole else None)

    # Branches

    def branches(self, session: int) -> list[BranchRow]:
        """Return the branches of a session that were not dropped; the one that was left last comes last."""
        condition = "session = ? AND dropped IS NULL ORDER BY event, number"
        return self._db.read(decode_branch, f"{BRANCHES.select} WHERE {condition}", session)

    def move_branch(self, number: int, *, fork: int | None, tip: int, event: int) -> None:
        """Let a branch that is archived again hold other messages."""
        self._db.change(BRANCHES, number, fork=fork, tip=tip, event=event)

    def rename_branch(self, number: int, name: str) -> None:
        """Rename a branch."""
        self._db.change(BRANCHES, number, name=encode_text(name))

    def drop_branch(self, number: int) -> None:
        """Take a branch from the list; its messages stay."""
        self._db.change(BRANCHES, number, dropped=1)

    def list_branch(self, number: int) -> None:
        """List a branch again that was dropped."""
        self._db.change(BRANCHES, number, dropped=None)

    def note_branches(self, event: int, changes: Sequence[BranchChange]) -> None:
        """Note with an act what it did to the branches, in the transaction that adds it."""
        self._db.change(EVENTS, event, branches=encode_branch_changes(changes))

    def add_branch(self, session: int, name: str, fork: int | None, tip: int, event: int) -> BranchRow:
        """Archive undone messages."""
        number = self._db.add(BRANCHES, session, name, fork, tip, event)
        return BranchRow(number, session, name, fork, tip, event)

    # What is pinned

    def pins(self) -> set[int]:
        """Return the numbers of the messages that are pinned."""
        return {number for (number,) in self._db.rows("SELECT message FROM pins")}

    def pin(self, message: int, time_ms: int) -> None:
        """Keep a message from being forgotten; one that is pinned stays so."""
        insert = PINS.insert.replace("INSERT", "INSERT OR IGNORE", 1)
        self._db.execute(insert, *PINS.encode((message, time_ms)))

    def unpin(self, message: int) -> None:
        """Let a message be forgotten again when its time comes."""
        self._db.execute("DELETE FROM pins WHERE message = ?", message)

    # Intents

    def open_intents(self) -> list[Intent]:
        """Return every intent that was not removed, oldest first."""
        rows = self._db.read(INTENTS.decode, f"{INTENTS.select} ORDER BY number")
        committed = "SELECT 1 FROM events WHERE intent = ?"
        return [Intent(number, content, bool(self._db.rows(committed, number))) for number, content in rows]

    def has_unfinished_purge(self) -> bool:
        """Return whether something was purged that may still be somewhere in the store."""
        return bool(self._db.rows("SELECT 1 FROM purged WHERE done IS NULL LIMIT 1"))

    def add_intent(self, content: bytes) -> int:
        """Say what is about to be done, so that it can be taken back; durable before that begins."""
        return self._db.add(INTENTS, content, act="intent")

    def remove_intent(self, number: int) -> None:
        """Forget an intent of which nothing is left to do."""
        # If it comes back after a power cut, there is nothing left to do for it.
        self._db.forget(("DELETE FROM intents WHERE number = ?", (number,)))


def _event_and_path(pair: tuple[int, Change]) -> tuple[int, bytes]:
    event, change = pair
    return event, change.path
