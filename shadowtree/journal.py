"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added, apart from intents and packs, which are removed when they are done with, the names
of branches, and the marks of what was forgotten. A row names objects, so it is written last: whatever it
names is complete and durable by then, or becomes so in the same transaction (invariant 2).

A timeline of an older version is read as it is, and holds no sessions then. Whoever writes upgrades it first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from shadowtree.errors import StoreDamaged
from shadowtree.events import BranchRow, Event, MessageRow, Position
from shadowtree.forgotten import ForgottenRows
from shadowtree.passing import PassingRows
from shadowtree.purgedrows import PurgedRows
from shadowtree.rows import BEYOND
from shadowtree.state import Change
from shadowtree.tables import (
    BRANCHES,
    CHANGE_COUNTS,
    CHANGES,
    EVENTS,
    INSERT_CHANGE,
    IS_ACT,
    IS_COUNTED,
    IS_LIVE,
    IS_WRAP,
    LIVE_FIRST,
    MESSAGES,
    OF_MESSAGE,
    SESSIONS,
    SKIPS,
    WITH_CHANGES,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_session,
    decode_skips,
    encode_change,
    encode_event,
    encode_skips,
    encode_text,
)
from shadowtree.treerows import TreeRows

_PAGE = 20


class Journal(TreeRows, ForgottenRows, PassingRows, PurgedRows):
    """The timeline of one store. Writing needs the store's lock."""

    # Sessions

    def session_number(self, name: str) -> int | None:
        """Give the number of a session, or None if nothing was recorded in it."""
        rows = self._session_rows("SELECT number FROM sessions WHERE name = ?", encode_text(name))
        return rows[0][0] if rows else None

    def session_names(self) -> dict[int, str]:
        """Name every session by its number."""
        return dict(self._decode(decode_session, self._session_rows(f"{SESSIONS} ORDER BY number")))

    def add_session(self, name: str) -> int:
        """Add a session and give its number."""
        return self._add("sessions", name=encode_text(name))

    # Messages

    def message(self, number: int) -> MessageRow:
        """Give the message with a number that another row names."""
        return self._existing("message", number, self._message("number = ?", number))

    def messages_by_number(self, numbers: Sequence[int]) -> dict[int, MessageRow]:
        """Give many messages at once; each must be there."""
        rows = self._rows_of(f"{MESSAGES} WHERE number IN", numbers)
        found = {message.number: message for message in self._decode(decode_message, rows)}
        return {number: self._existing("message", number, found.get(number)) for number in numbers}

    def line(self, number: int, first: int) -> list[MessageRow]:
        """Give a message and those above it, newest first, down to one with the number `first`."""
        rows = self._session_rows(
            "WITH RECURSIVE line (place, above) AS (SELECT number, parent FROM messages WHERE number = ?"
            " UNION ALL SELECT number, parent FROM messages JOIN line ON number = above AND number >= ?)"
            f" {MESSAGES} JOIN line ON number = place ORDER BY number DESC",
            number,
            first,
        )
        return self._decode(decode_message, rows)

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
        condition = f"session = ? AND id >= ? AND id < ? ORDER BY {LIVE_FIRST}, ordinal LIMIT ?"
        rows = self._session_rows(f"{MESSAGES} WHERE {condition}", session, start, end, limit)
        return self._decode(decode_message, rows)

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
        rows = self._session_rows(f"{MESSAGES} {where} ORDER BY number DESC LIMIT ?", *asked.values(), limit)
        return self._decode(decode_message, reversed(rows))

    def messages_from(self, session: int, first: int) -> list[MessageRow]:
        """Give all messages of a session from one on, forgotten ones too, oldest first."""
        condition = "session = ? AND number >= ? ORDER BY number"
        return self._decode(
            decode_message, self._session_rows(f"{MESSAGES} WHERE {condition}", session, first)
        )

    def count_messages(self) -> dict[int, int]:
        """Count the messages of each session, by its number, that were not forgotten."""
        select = f"SELECT session, count(*) FROM messages WHERE {IS_LIVE} GROUP BY session"
        return dict(self._session_rows(select))

    def find_times(self) -> tuple[int, int] | None:
        """Tell when the first message that was not forgotten was recorded, and the last one; in ms."""
        select = f"SELECT min(time), max(time) FROM events WHERE {OF_MESSAGE} AND {IS_LIVE}"
        return next((times for times in self._session_rows(select) if None not in times), None)

    def newest_number(self, session: int) -> int:
        """Give the number of the last message of a session, forgotten or not; 0: there is none."""
        rows = self._session_rows("SELECT coalesce(max(number), 0) FROM messages WHERE session = ?", session)
        return int(rows[0][0]) if rows else 0

    def add_message(
        self, session: int, id: str, role: str | None, text: str, meta: str | None, parent: int | None
    ) -> MessageRow:
        """Add a message at the end of its session, which must not have its id yet."""
        last = self._session_rows("SELECT max(ordinal) FROM messages WHERE session = ?", session)
        ordinal = (last[0][0] or 0) + 1
        number = self._add(
            "messages",
            session=session,
            ordinal=ordinal,
            id=encode_text(id),
            role=encode_text(role),
            text=encode_text(text),
            meta=encode_text(meta),
            parent=parent,
        )
        return MessageRow(number, session, ordinal, id, role, text, meta, parent)

    def _message(self, condition: str, *values: object) -> MessageRow | None:
        rows = self._session_rows(f"{MESSAGES} WHERE {condition}", *values)
        return next(iter(self._decode(decode_message, rows)), None)

    # Events

    def event(self, number: int) -> Event:
        """Give the event with a number that another row names."""
        return self._existing("event", number, self._event("number = ?", number))

    def events(self, numbers: Sequence[int]) -> dict[int, Event]:
        """Give many events at once; each must be there."""
        rows = self._rows_of(f"{EVENTS} WHERE number IN", numbers)
        found = {event.number: event for event in self._decode(decode_event, rows)}
        return {number: self._existing("event", number, found.get(number)) for number in numbers}

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
        rows = self._session_rows("SELECT coalesce(max(number), 0) FROM events")
        return int(rows[0][0]) if rows else 0

    def last_wrap(self) -> Event | None:
        """Give the latest event at which the store was wrapped, in whatever session."""
        return self._event(f"{IS_WRAP} ORDER BY number DESC LIMIT 1")

    def events_after(self, number: int, session: int | None = None) -> list[Event]:
        """Give what happened after an event, in one session or in all, oldest first."""
        if session is None:
            rows = self._session_rows(f"{EVENTS} WHERE number > ? ORDER BY number", number)
        else:
            condition = "session = ? AND number > ? ORDER BY number"
            rows = self._session_rows(f"{EVENTS} WHERE {condition}", session, number)
        return self._decode(decode_event, rows)

    def events_of(self, messages: Sequence[int]) -> list[Event]:
        """Give how messages and their steps began and ended, oldest first."""
        rows = self._rows_of(f"{EVENTS} WHERE {OF_MESSAGE} AND message IN", messages)
        return self._decode(decode_event, rows, order=lambda event: event.number)

    def acts_of(self, session: int) -> Iterator[Event]:
        """Give the acts of a session, newest first; they are read as they are asked for."""
        condition = f"{IS_ACT} AND session = ? AND number < ? ORDER BY number DESC LIMIT {_PAGE}"
        before = BEYOND
        # By pages: a statement left open would keep a transaction of ours from beginning.
        while rows := self._session_rows(f"{EVENTS} WHERE {condition}", session, before):
            yield from self._decode(decode_event, rows)
            before = rows[-1][0]

    def add_event(
        self,
        *,
        session: int,
        kind: str,
        time_ms: int,
        position: Position,
        message: int | None = None,
        step: str | None = None,
        before: int | None = None,
        after: int | None = None,
        since: int | None = None,
        hole: str | None = None,
        is_inferred: bool = False,
        git_head: str | None = None,
        takes_back: int | None = None,
        skips: int | None = None,
        intent: int | None = None,
    ) -> Event:
        """Add what happened; with `intent` this is the moment at which that intent is committed."""
        rest = (message, step, before, after, since, hole, is_inferred, git_head, takes_back, skips)
        columns = encode_event(Event(0, session, kind, time_ms, position, *rest))
        number = self._add("events", **columns, intent=intent)
        return Event(number, session, kind, time_ms, position, *rest)

    def _event(self, condition: str, *values: object) -> Event | None:
        rows = self._session_rows(f"{EVENTS} WHERE {condition}", *values)
        return next(iter(self._decode(decode_event, rows)), None)

    # Changes

    def changes_of(self, events: Sequence[int]) -> dict[int, list[Change]]:
        """Give the changes of each event, sorted by path; StoreDamaged if some of them are missing."""
        found: dict[int, list[Change]] = {event: [] for event in events}
        rows = self._rows_of(f"{CHANGES} WHERE event IN", events)
        for event, change in self._decode(decode_change, rows, order=_event_and_path):
            self._existing("event", event, found.get(event)).append(change)
        for event, count in self._rows_of(f"{CHANGE_COUNTS} AND number IN", events):
            if len(found[event]) != count:
                raise StoreDamaged(f"{self._path} has lost changes of event {event}")
        return found

    def paths_of(self, events: Sequence[int]) -> set[bytes]:
        """Name the files and links that some events changed, where both sides are known."""
        select = f"SELECT DISTINCT path FROM changes WHERE {IS_COUNTED} AND event IN"
        return {path for (path,) in self._rows_of(select, events)}

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
        if not self._session_rows(f"SELECT 1 FROM events WHERE {others} LIMIT 1", after, not_session):
            return []
        return self._changes_at(paths, after, others, not_session)

    def _changes_at(
        self, paths: Collection[bytes], after: int, condition: str, *values: object
    ) -> list[tuple[int, Change]]:
        # CROSS keeps the order: a look at each path, and then at its few events.
        select = CHANGES + f" CROSS JOIN events ON number = event WHERE {condition} AND event > ? AND path IN"
        rows = self._rows_of(select, paths, values=(after, *values, after))
        return self._decode(decode_change, rows, order=_event_and_path)

    def add_changes(self, event: int, changes: Iterable[Change]) -> None:
        """Add what an event changed, each path once."""
        rows = [encode_change(event, change) for change in changes]
        if not rows:
            return
        with self._together():
            self._do_all(INSERT_CHANGE, rows)
            self._update("UPDATE events SET change_count = ? WHERE number = ?", len(rows), event)

    # Skips

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Give a list of what was left out, with reasons."""
        rows = self._session_rows(f"{SKIPS} WHERE number = ?", number)
        return self._existing("list of skips", number, next(iter(self._decode(decode_skips, rows)), None))

    def add_skips(self, pairs: list[tuple[str, str]]) -> int | None:
        """Keep a list of what was left out; the same list is kept once, and an empty one not at all."""
        if not pairs:
            return None
        digest, content = encode_skips(pairs)
        known = self._session_rows("SELECT number FROM skips WHERE digest = ?", digest)
        return known[0][0] if known else self._add("skips", digest=digest, content=content)

    # Branches

    def branches(self, session: int) -> list[BranchRow]:
        """Give the branches of a session that were not dropped; the one that was left last comes last."""
        condition = "session = ? AND dropped IS NULL ORDER BY event, number"
        rows = self._session_rows(f"{BRANCHES} WHERE {condition}", session)
        return self._decode(decode_branch, rows)

    def move_branch(self, number: int, *, fork: int | None, tip: int, event: int) -> None:
        """Let a branch that is archived again hold other messages."""
        self._update(
            "UPDATE branches SET fork = ?, tip = ?, event = ? WHERE number = ?", fork, tip, event, number
        )

    def rename_branch(self, number: int, name: str) -> None:
        """Give a branch another name."""
        self._update("UPDATE branches SET name = ? WHERE number = ?", encode_text(name), number)

    def drop_branch(self, number: int) -> None:
        """Take a branch from the list; its messages stay."""
        self._update("UPDATE branches SET dropped = 1 WHERE number = ?", number)

    def add_branch(self, session: int, name: str, fork: int | None, tip: int, event: int) -> BranchRow:
        """Archive undone messages."""
        number = self._add(
            "branches", session=session, name=encode_text(name), fork=fork, tip=tip, event=event
        )
        return BranchRow(number, session, name, fork, tip, event)


def _event_and_path(pair: tuple[int, Change]) -> tuple[int, bytes]:
    event, change = pair
    return event, change.path
