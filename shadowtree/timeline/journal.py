"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added, apart from intents and packs, which are removed when they are done with, the names
of branches, and the marks of what was forgotten. A row names objects, so it is written last: whatever it
names is complete and durable by then, or becomes so in the same transaction (invariant 2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from shadowtree.base.errors import ForgottenTree, StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import Change
from shadowtree.timeline.database import BEYOND, Database, RowsStamp
from shadowtree.timeline.pack_rows import PackRows
from shadowtree.timeline.removal import PurgeRows, RetentionRows
from shadowtree.timeline.schema import (
    BRANCHES,
    CHANGE_COUNTS,
    CHANGES,
    EVENTS,
    INTENTS,
    IS_ACT,
    IS_COUNTED,
    IS_LIVE,
    IS_WRAP,
    MESSAGES,
    OF_MESSAGE,
    SESSIONS,
    SKIPS,
    TREES,
    WITH_CHANGES,
    BranchRow,
    Event,
    Intent,
    MessageRow,
    TreeRecord,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_skips,
    decode_tree,
    encode_change,
    encode_skips,
    encode_text,
    event_values,
)

_PAGE = 20


class Journal:
    """The timeline of one store. Writing needs the store's lock.

    Trees that were forgotten keep their rows, so that it can be told; their objects may be gone.
    """

    def __init__(self, path: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._db = Database(path, free_bytes=limits.timeline_free_bytes)
        self.packs = PackRows(self._db)
        self.retention = RetentionRows(self._db)
        self.purges = PurgeRows(self._db)
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
        """Give the tree recorded last, which is never forgotten.

        Whoever records asks for it half a dozen times: it is read again only if something was written since.
        """
        stamp = self.stamp()
        if stamp is None or self._last is None or self._last[0] != stamp:
            last = next(self._read_trees("ORDER BY number DESC LIMIT 1"), None)
            if stamp is None:
                return last
            self._last = stamp, last
        return self._last[1]

    def first_tree(self) -> TreeRecord | None:
        """Give the first one that is recorded."""
        return next(self._read_trees(f"WHERE {IS_LIVE} ORDER BY number LIMIT 1"), None)

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree."""
        return next(
            self._read_trees(f"WHERE tree = ? AND {IS_LIVE} ORDER BY number DESC LIMIT 1", tree), None
        )

    def find_forgotten_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree that was forgotten, if there was one."""
        found = next(self._read_trees("WHERE tree = ? ORDER BY number DESC LIMIT 1", tree), None)
        return None if found is None or found.forgotten_ms is None else found

    def tree(self, number: int | None) -> TreeRecord:
        """Give the record with a number that another row names; ForgottenTree if it was forgotten."""
        if number is None:
            raise StoreDamaged(f"{self._db.path} has an event that does not name its tree")
        record = self._require_tree(number)
        if record.forgotten_ms is not None:
            raise ForgottenTree(record.tree.hex(), record.forgotten_ms)
        return record

    def is_forgotten_tree(self, number: int) -> bool:
        """Tell whether a record that another row names was forgotten."""
        record = self._require_tree(number)
        return record.forgotten_ms is not None

    def _require_tree(self, number: int) -> TreeRecord:
        return self._db.require("tree", number, next(self._read_trees("WHERE number = ?", number), None))

    def trees_after(self, number: int) -> Iterator[TreeRecord]:
        """Give every recorded tree from the one after `number` on, oldest first."""
        return self._read_trees(f"WHERE number > ? AND {IS_LIVE} ORDER BY number", number)

    def live_trees(self) -> Iterator[TreeRecord]:
        """Give every tree that was not forgotten, oldest first."""
        return self.trees_after(0)

    def forgotten_trees(self) -> Iterator[TreeRecord]:
        """Give every tree that was forgotten; its objects may be gone."""
        return (record for record in self._read_trees("ORDER BY number") if record.forgotten_ms is not None)

    def sessions_of_trees(self) -> dict[int, set[int]]:
        """Tell, by their numbers, which trees messages and acts name, and in which sessions."""
        select = f"SELECT session, before_tree, after_tree FROM events WHERE NOT {IS_WRAP} AND {IS_LIVE}"
        found: dict[int, set[int]] = {}
        for session, *numbers in self._db.rows(select):
            for number in numbers:
                if number is not None:
                    found.setdefault(number, set()).add(session)
        return found

    def add_tree(self, *, tree: bytes, facts: bytes, keeper: bytes, files: int, time_s: int) -> TreeRecord:
        """Record a tree; this is the moment at which it counts."""
        number = self._db.add(TREES, tree, facts, keeper, files, time_s)
        return TreeRecord(number, tree, facts, keeper, files, time_s)

    def set_keepers(self, keepers: Mapping[int, bytes]) -> None:
        """Let trees, by their numbers, be kept by other commits."""
        with self._db.together():
            for number, keeper in keepers.items():
                self._db.change(TREES, number, keeper=keeper)

    def _read_trees(self, condition: str, *values: object) -> Iterator[TreeRecord]:
        rows = self._db.rows(f"{TREES.select} {condition}", *values)
        return iter(self._db.decode(decode_tree, rows))

    # Sessions

    def session_number(self, name: str) -> int | None:
        """Give the number of a session, or None if nothing was recorded in it."""
        rows = self._db.rows("SELECT number FROM sessions WHERE name = ?", encode_text(name))
        return rows[0][0] if rows else None

    def session_names(self) -> dict[int, str]:
        """Name every session by its number."""
        return dict(self._db.decode(SESSIONS.decode, self._db.rows(f"{SESSIONS.select} ORDER BY number")))

    def add_session(self, name: str) -> int:
        """Add a session and give its number."""
        return self._db.add(SESSIONS, name)

    # Messages

    def message(self, number: int) -> MessageRow:
        """Give the message with a number that another row names."""
        return self._db.require("message", number, self._message("number = ?", number))

    def messages_by_number(self, numbers: Sequence[int]) -> dict[int, MessageRow]:
        """Give many messages at once; each must be there."""
        rows = self._db.rows_of(f"{MESSAGES.select} WHERE number IN", numbers)
        found = {message.number: message for message in self._db.decode(decode_message, rows)}
        return {number: self._db.require("message", number, found.get(number)) for number in numbers}

    def line(self, number: int, first: int) -> list[MessageRow]:
        """Give a message and those above it, newest first, down to one with the number `first`."""
        rows = self._db.rows(
            "WITH RECURSIVE line (place, above) AS (SELECT number, parent FROM messages WHERE number = ?"
            " UNION ALL SELECT number, parent FROM messages JOIN line ON number = above AND number >= ?)"
            f" {MESSAGES.select} JOIN line ON number = place ORDER BY number DESC",
            number,
            first,
        )
        return self._db.decode(decode_message, rows)

    def find_message(self, session: int, id: str) -> MessageRow | None:
        """Give the message of a session that has an id."""
        return self._message("session = ? AND id = ?", session, encode_text(id))

    def find_ordinal(self, session: int, ordinal: int) -> MessageRow | None:
        """Give the message at a place in its session, from 1 on."""
        return self._message("session = ? AND ordinal = ?", session, ordinal)

    def find_prefix(self, session: int, prefix: str, limit: int = 11) -> list[MessageRow]:
        """Give the first messages of a session whose ids begin with `prefix`; forgotten ones come last."""
        start = encode_text(prefix) or b""
        # No UTF-8 holds this byte, so whatever begins with the prefix sorts before.
        end = start + b"\xff"
        condition = "session = ? AND id >= ? AND id < ? ORDER BY forgotten IS NOT NULL, ordinal LIMIT ?"
        rows = self._db.rows(f"{MESSAGES.select} WHERE {condition}", session, start, end, limit)
        return self._db.decode(decode_message, rows)

    def last_messages(
        self, session: int | None, count: int | None, before: int | None = None
    ) -> list[MessageRow]:
        """Give the newest messages of a session or of all, oldest first; or of those before one.

        Forgotten ones are not among them.
        """
        conditions = {"session = ?": session, "number < ?": before}
        asked = {words: value for words, value in conditions.items() if value is not None}
        where = "WHERE " + " AND ".join([*asked, IS_LIVE])
        limit = -1 if count is None else count
        rows = self._db.rows(
            f"{MESSAGES.select} {where} ORDER BY number DESC LIMIT ?", *asked.values(), limit
        )
        return self._db.decode(decode_message, reversed(rows))

    def count_messages(self) -> dict[int, int]:
        """Count the messages of each session, by its number, that were not forgotten."""
        select = f"SELECT session, count(*) FROM messages WHERE {IS_LIVE} GROUP BY session"
        return dict(self._db.rows(select))

    def find_times(self) -> tuple[int, int] | None:
        """Tell when the first message that was not forgotten was recorded, and the last one; in ms."""
        select = f"SELECT min(time), max(time) FROM events WHERE {OF_MESSAGE} AND {IS_LIVE}"
        return next((times for times in self._db.rows(select) if None not in times), None)

    def newest_number(self, session: int) -> int:
        """Give the number of the last message of a session, forgotten or not; 0: there is none."""
        rows = self._db.rows("SELECT coalesce(max(number), 0) FROM messages WHERE session = ?", session)
        return int(rows[0][0]) if rows else 0

    def add_message(
        self, session: int, id: str, role: str | None, text: str, meta: str | None, parent: int | None
    ) -> MessageRow:
        """Add a message at the end of its session, which must not have its id yet."""
        last = self._db.rows("SELECT max(ordinal) FROM messages WHERE session = ?", session)
        ordinal = (last[0][0] or 0) + 1
        number = self._db.add(MESSAGES, session, ordinal, id, role, text, meta, parent)
        return MessageRow(number, session, ordinal, id, role, text, meta, parent)

    def _message(self, condition: str, *values: object) -> MessageRow | None:
        rows = self._db.rows(f"{MESSAGES.select} WHERE {condition}", *values)
        return next(iter(self._db.decode(decode_message, rows)), None)

    # Events

    def event(self, number: int) -> Event:
        """Give the event with a number that another row names."""
        return self._db.require("event", number, self._event("number = ?", number))

    def events(self, numbers: Sequence[int]) -> dict[int, Event]:
        """Give many events at once; each must be there."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE number IN", numbers)
        found = {event.number: event for event in self._db.decode(decode_event, rows)}
        return {number: self._db.require("event", number, found.get(number)) for number in numbers}

    def last_event(self, session: int, *, before: int | None = None) -> Event | None:
        """Give what happened last in a session, or last before another event."""
        limit = BEYOND if before is None else before
        return self._event("session = ? AND number < ? ORDER BY number DESC LIMIT 1", session, limit)

    def latest_event(self) -> Event | None:
        """Give what happened last, in whatever session."""
        return self._event("number > 0 ORDER BY number DESC LIMIT 1")

    def last_of_messages(self, session: int) -> Event | None:
        """Give what happened last in a session that is no act."""
        return self._event(f"session = ? AND NOT ({IS_ACT}) ORDER BY number DESC LIMIT 1", session)

    def last_number(self) -> int:
        """Give the number of what happened last, in whatever session; 0: nothing did."""
        rows = self._db.rows("SELECT coalesce(max(number), 0) FROM events")
        return int(rows[0][0]) if rows else 0

    def last_wrap(self) -> Event | None:
        """Give the latest event at which the store was wrapped, in whatever session."""
        return self._event(f"{IS_WRAP} ORDER BY number DESC LIMIT 1")

    def events_after(self, number: int, session: int | None = None) -> list[Event]:
        """Give what happened after an event, in one session or in all, oldest first."""
        if session is None:
            rows = self._db.rows(f"{EVENTS.select} WHERE number > ? ORDER BY number", number)
        else:
            condition = "session = ? AND number > ? ORDER BY number"
            rows = self._db.rows(f"{EVENTS.select} WHERE {condition}", session, number)
        return self._db.decode(decode_event, rows)

    def events_of(self, messages: Sequence[int]) -> list[Event]:
        """Give how messages and their steps began and ended, oldest first."""
        rows = self._db.rows_of(f"{EVENTS.select} WHERE {OF_MESSAGE} AND message IN", messages)
        return self._db.decode(decode_event, rows, order=lambda event: event.number)

    def acts_of(self, session: int) -> Iterator[Event]:
        """Give the acts of a session, newest first; they are read as they are asked for."""
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

    def _event(self, condition: str, *values: object) -> Event | None:
        rows = self._db.rows(f"{EVENTS.select} WHERE {condition}", *values)
        return next(iter(self._db.decode(decode_event, rows)), None)

    # Changes

    def changes_of(self, events: Sequence[int]) -> dict[int, list[Change]]:
        """Give the changes of each event, sorted by path; StoreDamaged if some of them are missing."""
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
        """Give what one session changed at these paths after an event, oldest first, with their events."""
        return self._changes_at(paths, after, f"number > ? AND session = ? AND {WITH_CHANGES}", session)

    def story_of(self, path: bytes) -> list[tuple[int, Change]]:
        """Give all that was ever recorded of one path, in whatever session, oldest first, with the events."""
        return self._changes_at([path], 0, f"number > ? AND {WITH_CHANGES}")

    def changes_at(self, paths: Collection[bytes], after: int, not_session: int) -> list[tuple[int, Change]]:
        """Give what other sessions changed at these paths after an event, oldest first, with their events."""
        others = f"number > ? AND session <> ? AND {WITH_CHANGES}"
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

    def add_changes(self, event: int, changes: Iterable[Change]) -> None:
        """Add what an event changed, each path once."""
        rows = [encode_change(event, change) for change in changes]
        if not rows:
            return
        with self._db.together():
            self._db.execute_all(CHANGES.insert, rows)
            self._db.change(EVENTS, event, change_count=len(rows))

    # Skips

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Give a list of what was left out, with reasons."""
        rows = self._db.rows(f"{SKIPS.select} WHERE number = ?", number)
        return self._db.require(
            "list of skips", number, next(iter(self._db.decode(decode_skips, rows)), None)
        )

    def add_skips(self, pairs: Sequence[tuple[str, str]]) -> int | None:
        """Keep a list of what was left out; the same list is kept once, and an empty one not at all."""
        if not pairs:
            return None
        digest, content = encode_skips(pairs)
        known = self._db.rows("SELECT number FROM skips WHERE digest = ?", digest)
        return known[0][0] if known else self._db.add(SKIPS, digest, content)

    # Branches

    def branches(self, session: int) -> list[BranchRow]:
        """Give the branches of a session that were not dropped; the one that was left last comes last."""
        condition = "session = ? AND dropped IS NULL ORDER BY event, number"
        rows = self._db.rows(f"{BRANCHES.select} WHERE {condition}", session)
        return self._db.decode(decode_branch, rows)

    def move_branch(self, number: int, *, fork: int | None, tip: int, event: int) -> None:
        """Let a branch that is archived again hold other messages."""
        self._db.change(BRANCHES, number, fork=fork, tip=tip, event=event)

    def rename_branch(self, number: int, name: str) -> None:
        """Give a branch another name."""
        self._db.change(BRANCHES, number, name=encode_text(name))

    def drop_branch(self, number: int) -> None:
        """Take a branch from the list; its messages stay."""
        self._db.change(BRANCHES, number, dropped=1)

    def add_branch(self, session: int, name: str, fork: int | None, tip: int, event: int) -> BranchRow:
        """Archive undone messages."""
        number = self._db.add(BRANCHES, session, name, fork, tip, event)
        return BranchRow(number, session, name, fork, tip, event)

    # Intents

    def open_intents(self) -> list[Intent]:
        """Give every intent that was not removed, oldest first."""
        rows = self._db.decode(INTENTS.decode, self._db.rows(f"{INTENTS.select} ORDER BY number"))
        committed = "SELECT 1 FROM events WHERE intent = ?"
        return [Intent(number, content, bool(self._db.rows(committed, number))) for number, content in rows]

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
