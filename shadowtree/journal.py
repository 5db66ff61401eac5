"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added, apart from intents and packs, which are removed when they are done with, and the
names of branches. A row names objects, so it is written last: whatever it names is complete and durable by
then, or becomes so in the same transaction (invariant 2).

A timeline of an older version is read as it is, and holds no sessions then. Whoever writes upgrades it first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from shadowtree import disk, faultpoint
from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed, StoreTooNew
from shadowtree.events import BranchRow, Event, Intent, MessageRow, PackRow, Position
from shadowtree.frozen import frozen
from shadowtree.gitformat import PackBytes
from shadowtree.state import Change
from shadowtree.system import has_no_room
from shadowtree.tables import (
    BRANCHES,
    CHANGES,
    EVENTS,
    IS_ACT,
    IS_COUNTED,
    IS_WRAP,
    MESSAGES,
    OF_MESSAGE,
    PACKS,
    SCHEMAS,
    TREES,
    VERSION,
    WITH_CHANGES,
    adapt,
    check_pack_name,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_pack,
    decode_skips,
    decode_text,
    encode_change,
    encode_event,
    encode_skips,
    encode_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_WITH_SESSIONS = 2
"""The version that brought sessions, and all tables but those of trees and packs."""
_WITH_PACKS = 4
_CHUNK = 500
"""How many values one statement asks for; SQLite has a limit."""
_PAGE = 20
_BEYOND = 1 << 62
"""A number that no row has."""


@frozen
class TreeRecord:
    """One recorded tree."""

    number: int
    """Counts up; order is by number, because clocks go back."""
    tree: bytes
    facts: bytes
    keeper: bytes
    """The commit that keeps tree and facts from `git gc`."""
    files: int
    time_s: int


class Journal:
    """The timeline of one store. Writing needs the store's lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.exists(path):
            raise StoreDamaged(f"{path} is missing")
        with _errors(path):
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                self._version = self._read_version()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def upgrade(self) -> bool:
        """Bring an older timeline to the present version, in one step; tell whether it was older."""
        if self._version == VERSION:
            return False
        with self.transaction(), _errors(self._path):
            # Another process may have done it since.
            for version in range(self._read_version() + 1, VERSION + 1):
                for statement in SCHEMAS[version].split(";"):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._version = VERSION
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let all that is added inside count together, durably, or not at all if anything is raised."""
        assert not self._connection.in_transaction
        try:
            with _errors(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
            yield
            faultpoint.before_write("commit", self._path)
            with _errors(self._path):
                self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        # After some errors SQLite has done so by itself.
        if self._connection.in_transaction:
            with _errors(self._path):
                self._connection.execute("ROLLBACK")

    # Trees

    def last_tree(self) -> TreeRecord | None:
        """Give the tree recorded last."""
        return next(self._trees("ORDER BY number DESC LIMIT 1"), None)

    def first_tree(self) -> TreeRecord | None:
        """Give the tree recorded first."""
        return next(self._trees("ORDER BY number LIMIT 1"), None)

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree."""
        return next(self._trees("WHERE tree = ? ORDER BY number DESC LIMIT 1", tree), None)

    def tree(self, number: int) -> TreeRecord:
        """Give the record with a number that another row names."""
        return self._existing("tree", number, next(self._trees("WHERE number = ?", number), None))

    def trees_after(self, number: int) -> Iterator[TreeRecord]:
        """Give every recorded tree from the one after `number` on, oldest first."""
        return self._trees("WHERE number > ? ORDER BY number", number)

    def add_tree(self, *, tree: bytes, facts: bytes, keeper: bytes, files: int, time_s: int) -> TreeRecord:
        """Record a tree; this is the moment at which it counts."""
        number = self._add("trees", tree=tree, facts=facts, keeper=keeper, files=files, time=time_s)
        return TreeRecord(number, tree, facts, keeper, files, time_s)

    def _trees(self, condition: str, *values: object) -> Iterator[TreeRecord]:
        return (TreeRecord(*row) for row in self._rows(f"{TREES} {condition}", values))

    # Sessions

    def session_number(self, name: str) -> int | None:
        """Give the number of a session, or None if nothing was recorded in it."""
        rows = self._session_rows("SELECT number FROM sessions WHERE name = ?", encode_text(name))
        return rows[0][0] if rows else None

    def session_names(self) -> dict[int, str]:
        """Name every session by its number."""
        rows = self._session_rows("SELECT number, name FROM sessions ORDER BY number")
        return dict(self._decode(lambda row: (row[0], decode_text(row[1])), rows))

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
        """Give the first messages of a session whose ids begin with `prefix`, in their order."""
        start = encode_text(prefix) or b""
        # No UTF-8 holds this byte, so whatever begins with the prefix sorts before.
        end = start + b"\xff"
        condition = "session = ? AND id >= ? AND id < ? ORDER BY ordinal LIMIT ?"
        rows = self._session_rows(f"{MESSAGES} WHERE {condition}", session, start, end, limit)
        return self._decode(decode_message, rows)

    def last_messages(
        self, session: int | None, count: int | None, before: int | None = None
    ) -> list[MessageRow]:
        """Give the newest messages of a session or of all, oldest first; or of those before one."""
        conditions = {"session = ?": session, "number < ?": before}
        asked = {words: value for words, value in conditions.items() if value is not None}
        where = f"WHERE {' AND '.join(asked)}" if asked else ""
        limit = -1 if count is None else count
        rows = self._session_rows(f"{MESSAGES} {where} ORDER BY number DESC LIMIT ?", *asked.values(), limit)
        return self._decode(decode_message, reversed(rows))

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
        limit = _BEYOND if before is None else before
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
        before = 1 << 62
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
        """Give the changes of each event, sorted by path."""
        found: dict[int, list[Change]] = {event: [] for event in events}
        rows = self._rows_of(f"{CHANGES} WHERE event IN", events)
        for event, change in self._decode(decode_change, rows, order=_event_and_path):
            self._existing("event", event, found.get(event)).append(change)
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
        with nullcontext() if self._connection.in_transaction else self.transaction(), _errors(self._path):
            self._connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    # Skips

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Give a list of what was left out, with reasons."""
        rows = self._session_rows("SELECT content FROM skips WHERE number = ?", number)
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

    # Intents

    def open_intents(self) -> list[Intent]:
        """Give every intent that was not removed, oldest first."""
        committed = "EXISTS (SELECT 1 FROM events WHERE intent = intents.number)"
        rows = self._session_rows(f"SELECT number, content, {committed} FROM intents ORDER BY number")
        return [Intent(number, content, bool(is_committed)) for number, content, is_committed in rows]

    def add_intent(self, content: bytes) -> int:
        """Say what is about to be done, so that it can be taken back; durable before that begins."""
        return self._add("intents", act="intent", content=content)

    def remove_intent(self, number: int) -> None:
        """Forget an intent of which nothing is left to do."""
        # If it comes back after a power cut, there is nothing left to do for it.
        self._forget("DELETE FROM intents WHERE number = ?", number)

    # Packs

    def pack_rows(self) -> list[PackRow]:
        """Give every journaled pack, oldest first."""
        return self._decode(decode_pack, self._pack_rows(f"{PACKS} ORDER BY number"))

    def read_pack(self, row: PackRow) -> PackBytes | None:
        """Read a journaled pack; None if another process has just merged it, or if its row is damaged."""
        select = "SELECT CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs WHERE number = ?"
        for pack, index in self._pack_rows(select, row.number):
            content = PackBytes(row.name, pack, index)
            return content if content.is_whole() else None
        return None

    def read_packs(self) -> Iterator[PackBytes]:
        """Read the journaled packs one by one, newest first."""
        found = (self.read_pack(row) for row in reversed(self.pack_rows()))
        return (content for content in found if content is not None)

    def add_pack(self, content: PackBytes, boot: str) -> int:
        """Journal a pack: its objects are durable with this transaction, whatever becomes of its files."""
        return self._add("packs", name=content.name, boot=boot, pack=content.pack, pack_index=content.index)

    def forget_packs(self, names: Collection[str]) -> None:
        """Forget journaled packs whose objects are durable elsewhere."""
        # Those that come back after a power cut get their files back, and are merged once more.
        marks = ", ".join("?" * len(names))
        self._forget(f"DELETE FROM packs WHERE name IN ({marks})", *names)

    def note_boot(self, boot: str) -> None:
        """Note that the files of every journaled pack are whole now."""
        self._forget("UPDATE packs SET boot = ?", boot)

    def announced_packs(self) -> list[str]:
        """Name the packs that have files, and no record."""
        rows = self._pack_rows("SELECT name FROM announced")
        return self._decode(lambda row: check_pack_name(row[0]), rows)

    def announce_pack(self, name: str) -> None:
        """Say that a pack is about to have files, to be removed again if its record never comes."""
        self._add("announced", name=name)

    def forget_announced(self) -> None:
        """Forget the announced packs: they are recorded, in the same transaction, or gone."""
        self._update("DELETE FROM announced")

    def _pack_rows(self, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        return self._rows(statement, values) if self._has_tables_of(_WITH_PACKS) else []

    # How rows are read and written

    def _read_version(self) -> int:
        version: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreTooNew(os.path.dirname(self._path), version, VERSION)
        if version not in SCHEMAS:
            raise StoreDamaged(f"{self._path} holds no timeline")
        return version

    def _rows(self, statement: str, values: Sequence[object]) -> list[Any]:  # Any: rows of SQLite
        with _errors(self._path):
            return self._connection.execute(statement, values).fetchall()

    def _session_rows(self, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        """Read rows of the tables that came with sessions; before that there are none."""
        if not self._has_tables_of(_WITH_SESSIONS):
            return []
        return self._rows(adapt(statement, self._version), values)

    def _has_tables_of(self, version: int) -> bool:
        if self._version < VERSION:
            # Another process may have upgraded it since.
            with _errors(self._path):
                self._version = self._read_version()
        return self._version >= version

    def _rows_of(
        self, statement: str, keys: Collection[object], end: str = "", *, values: Sequence[object] = ()
    ) -> list[Any]:  # Any: rows of SQLite
        """Read the rows of many keys: `statement` ends where their list is to come."""
        found = []
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), _CHUNK):
            chunk = distinct[start : start + _CHUNK]
            marks = ", ".join("?" * len(chunk))
            found += self._session_rows(f"{statement} ({marks}) {end}", *values, *chunk)
        return found

    def _decode(
        self,
        decode: Callable[[Any], Value],  # Any: a row of SQLite
        rows: Iterable[Any],
        order: Callable[[Value], Any] | None = None,  # Any: what can be compared
    ) -> list[Value]:
        try:
            values = [decode(row) for row in rows]
            return values if order is None else sorted(values, key=order)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamaged(f"{self._path} holds a row that cannot be read: {error}") from error

    def _existing(self, kind: str, number: int, found: Value | None) -> Value:
        if found is None:
            raise StoreDamaged(f"{self._path} has no {kind} {number}")
        return found

    def _add(self, table: str, act: str = "record", **columns: object) -> int:
        self._announce(act)
        marks = ", ".join("?" * len(columns))
        with _errors(self._path):
            row = self._connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
            )
        assert row.lastrowid is not None
        return row.lastrowid

    def _update(self, statement: str, *values: object) -> None:
        self._announce("record")
        with _errors(self._path):
            self._connection.execute(statement, values)

    def _forget(self, statement: str, *values: object) -> None:
        """Change what need not be durable: a power cut may bring back what was there before."""
        self._announce("forget")
        with _errors(self._path):
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute(statement, values)
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def _announce(self, act: str) -> None:
        """Let the fault point know of a write that counts at once; one in a transaction counts with it."""
        if not self._connection.in_transaction:
            faultpoint.before_write(act, self._path)


def create_journal(path: str) -> None:
    """Make an empty timeline, durable, in a store that nobody can see yet."""
    fd = disk.create_file(path)
    try:
        with _errors(path):
            # Nothing in it is worth waiting for the disk before all of it is there.
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.executescript(
                    f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; BEGIN; {''.join(SCHEMAS.values())}"
                    f"PRAGMA user_version = {VERSION}; COMMIT;"
                )
            finally:
                connection.close()
        disk.sync(fd, path)
    finally:
        os.close(fd)


def _event_and_path(pair: tuple[int, Change]) -> tuple[int, bytes]:
    event, change = pair
    return event, change.path


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _as_store_error(path, error) from error
    except UnicodeDecodeError as error:
        # SQLite complains of a name in the file that is no text.
        raise StoreDamaged(f"{path}: {error}") from error


def _as_store_error(path: str, error: sqlite3.Error) -> ShadowError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and has_no_room(os.path.dirname(path))
    if code == sqlite3.SQLITE_FULL or is_full:
        return OutOfSpace(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
