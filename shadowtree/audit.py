"""The timeline of a store, looked at row by row by somebody who does not trust it.

It opens the file by itself and changes nothing, because the journal refuses a file that is damaged, and
upgrades an old one. What can be read is given as values, and what cannot is told as faults.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed
from shadowtree.events import Event, MessageRow
from shadowtree.frozen import frozen
from shadowtree.gitformat import PackBytes
from shadowtree.schemas import find_version
from shadowtree.seals import WITHOUT_GAPS, select, unseal
from shadowtree.state import Change
from shadowtree.system import has_no_room
from shadowtree.tables import (
    BRANCHES,
    CHANGE_COUNTS,
    CHANGES,
    EVENTS,
    INTENTS,
    MESSAGES,
    SESSIONS,
    SKIPS,
    TOMBSTONES,
    TREES,
    VERSION,
    adapt,
    check_pack_name,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_session,
    decode_skips,
    decode_tombstone,
    decode_tree,
    decode_versions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_FIRST_WITH = {"sessions": 2, "packs": 4, "pins": 5}
"""Which version of the timeline brought the tables of sessions, that of packs, and those of forgetting."""
_LISTED = 20
"""How many faults SQLite is asked for: the first ones tell what there is to know."""
_REFERENCES = (
    ("messages", "session", "sessions"),
    ("messages", "parent", "messages"),
    ("events", "session", "sessions"),
    ("events", "message", "messages"),
    ("events", "head", "messages"),
    ("events", "tip", "messages"),
    ("events", "open", "messages"),
    ("events", "before_tree", "trees"),
    ("events", "after_tree", "trees"),
    ("events", "since", "events"),
    ("events", "takes_back", "events"),
    ("events", "skips", "skips"),
    ("changes", "event", "events"),
    ("branches", "session", "sessions"),
    ("branches", "fork", "messages"),
    ("branches", "tip", "messages"),
    ("branches", "event", "events"),
)
"""Which column names a row of which table by its number."""


@frozen
class Fault:
    """Something that is wrong with a timeline."""

    what: str
    """Which row or table."""
    why: str
    event: int | None = None
    """The event that it is about, if it is about one."""
    message: int | None = None


@frozen
class RecordedTree:
    """A row of the recorded trees."""

    number: int
    tree: bytes
    facts: bytes
    keeper: bytes
    time_s: int
    is_live: bool
    """It was not forgotten."""


class Audit:
    """What a timeline holds, as far as it can be read. Raises StoreDamaged if it is none at all."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.faults: list[Fault] = []
        self.is_file_damaged = False
        """SQLite finds fault with the file, whatever the rows say."""
        self.has_damaged_rows = False
        """Rows are not what was written."""
        with _errors(path):
            # Not by `mode=ro`, which leaves two files of SQLite's behind.
            self._connection = sqlite3.connect(f"file:{_quote(path)}?mode=rw", uri=True)
            self._connection.execute("PRAGMA query_only = ON")
        try:
            with _errors(path):
                self.version: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if not 0 < self.version <= VERSION:
                raise StoreDamaged(f"{path} holds no timeline that this version of shadowtree knows")
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @property
    def last_keeper(self) -> bytes | None:
        """The keeper of the tree that was recorded last; None: nothing was."""
        return self.trees[max(self.trees)].keeper if self.trees else None

    def _read(self) -> None:
        self._columns = {
            table: {str(row[1]) for row in self._select(f"PRAGMA table_info({table})")}
            for table in ("trees", "messages", "events")
        }
        self._check_integrity()
        self._check_schema()
        trees = self._select(adapt(TREES, self.version))
        self.trees = {tree.number: tree for tree in self._values("trees", trees, _decode_tree)}
        self.sessions: dict[int, str] = {}
        self.messages: dict[int, MessageRow] = {}
        self.events: dict[int, Event] = {}
        if self._has("sessions"):
            self._read_sessions()
        self.forgotten_messages = self._forgotten("messages")
        self.forgotten_events = self._forgotten("events")

    def _read_sessions(self) -> None:
        sessions = self._select(adapt(SESSIONS, self.version))
        self.sessions = dict(self._values("sessions", sessions, decode_session))
        messages = self._select(adapt(MESSAGES, self.version))
        self.messages = {row.number: row for row in self._values("messages", messages, decode_message)}
        events = self._select(adapt(EVENTS, self.version))
        self.events = {row.number: row for row in self._values("events", events, decode_event)}
        self._check_values("branches", adapt(BRANCHES, self.version), decode_branch)
        self._check_values("intents", adapt(INTENTS, self.version), unseal)
        self._check_values("skips", SKIPS, decode_skips)
        if self._has("pins"):
            self._check_values("pins", select("pins"), unseal)
            self._check_values("purged", TOMBSTONES, decode_tombstone)
            self._check_values("fresh", "SELECT versions FROM fresh", decode_versions)
            self._check_values("fresh", "SELECT name FROM fresh", _decode_name)
            self._check_change_counts()
        self._check_references()
        self._check_gaps()
        self._blame_trees()

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Give every change with the event that it belongs to."""
        if self._has("sessions"):
            yield from self._values("changes", self._select(adapt(CHANGES, self.version)), decode_change)

    def packs(self) -> Iterator[PackBytes]:
        """Give every journaled pack, whole or not."""
        if self._has("packs"):
            select = "SELECT name, CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs ORDER BY number"
            yield from self._values("packs", self._select(select), _decode_pack)

    def count_intents(self) -> int:
        """Count the acts that were interrupted, or are going on."""
        rows = list(self._select("SELECT count(*) FROM intents")) if self._has("sessions") else []
        return int(rows[0][0]) if rows else 0

    def _forgotten(self, table: str) -> set[int]:
        if "forgotten" not in self._columns[table]:
            return set()
        return {number for (number,) in self._select(f"SELECT number FROM {table} WHERE forgotten NOTNULL")}

    def _check_integrity(self) -> None:
        for (found,) in self._select(f"PRAGMA integrity_check({_LISTED})"):
            if found != "ok":
                self.is_file_damaged = True
                self.faults.append(Fault("timeline", str(found).replace("\n", " ")))

    def _check_schema(self) -> None:
        with _errors(self._path):
            version = find_version(self._connection)
        if version != self.version:
            self.is_file_damaged = True
            self.faults.append(Fault("timeline", f"has not the tables of version {self.version}"))

    def _check_values(self, table: str, statement: str, decode: Callable[[Any], object]) -> None:
        for _ in self._values(table, self._select(statement), decode):
            pass

    def _check_change_counts(self) -> None:
        """Find events of which changes are missing: what is left of those would be undone in part."""
        counted = "(SELECT count(*) FROM changes WHERE event = number)"
        for event, count, found in self._select(CHANGE_COUNTS.replace(" FROM", f", {counted} FROM", 1)):
            if count != found:
                why = f"has {count} changes, of which {found} are there"
                self.faults.append(Fault(f"events {event}", why, event))

    def _check_gaps(self) -> None:
        for table in WITHOUT_GAPS:
            numbers = {number for (number,) in self._select(f"SELECT +number FROM {table}")}
            if numbers != set(range(1, len(numbers) + 1)):
                self.faults.append(Fault(table, "has lost rows"))

    def _blame_trees(self) -> None:
        """Tell of trees that cannot be read with the events that need them."""
        rows = {number for (number,) in self._select("SELECT number FROM trees")}
        for event in self.events.values():
            for number in {event.before, event.after} & (rows - self.trees.keys()):
                self.faults.append(Fault(f"trees {number}", "cannot be read", event.number))

    def _check_references(self) -> None:
        for table, column, other in _REFERENCES:
            number = "event" if table == "changes" else f"{table}.number"
            # A plus keeps SQLite from answering out of an index, which may be damaged.
            rows = self._select(
                f"SELECT DISTINCT {number}, {column} FROM {table} WHERE {column} {_zero_is_none(column)}"
                f" AND {column} NOT IN (SELECT +number FROM {other})"
            )
            for row, missing in rows:
                event = row if table in ("events", "changes") else None
                message = row if table == "messages" else None
                why = f"names {other} {missing}, which is not there"
                self.faults.append(Fault(f"{table} {row}", why, event, message))

    def _has(self, tables: str) -> bool:
        return self.version >= _FIRST_WITH[tables]

    def _select(self, statement: str) -> Iterator[Any]:  # Any: rows of SQLite
        """Read rows as far as it goes; what stops it is a fault."""
        try:
            with _errors(self._path):
                yield from self._connection.execute(statement)
        except OutOfSpace:
            # SQLite needs some room to read.
            raise
        except ShadowError as error:
            self.is_file_damaged = True
            self.faults.append(Fault("timeline", _why(error)))

    def _values(
        self,
        table: str,
        rows: Iterator[Any],  # Any: rows of SQLite
        decode: Callable[[Any], Value],
    ) -> Iterator[Value]:
        for row in rows:
            try:
                yield decode(row)
            except (AttributeError, TypeError, ValueError) as error:
                name = f"{table} {row[0]}" if isinstance(row[0], int) else table
                event = row[0] if table in ("events", "changes") and isinstance(row[0], int) else None
                self.has_damaged_rows = True
                self.faults.append(Fault(name, f"cannot be read: {error}", event))


def _decode_tree(row: Any) -> RecordedTree:  # Any: a row of SQLite
    record = decode_tree(row)
    ids = (record.tree, record.facts, record.keeper)
    if not all(isinstance(id, bytes) and len(id) == 20 for id in ids) or not isinstance(record.time_s, int):
        raise ValueError("it names no objects")
    is_live = record.forgotten_ms is None
    return RecordedTree(record.number, record.tree, record.facts, record.keeper, record.time_s, is_live)


def _zero_is_none(column: str) -> str:
    # The worktree was wrapped in no session.
    return "<> 0" if column == "session" else "IS NOT NULL"


def _decode_name(row: Any) -> str:  # Any: a row of SQLite
    return check_pack_name(row[0])


def _decode_pack(row: Any) -> PackBytes:  # Any: a row of SQLite
    name, pack, index = row
    return PackBytes(check_pack_name(name), pack, index)


def _quote(path: str) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path))


def _why(error: ShadowError) -> str:
    return error.what if isinstance(error, StoreDamaged) else str(error)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and has_no_room(os.path.dirname(path)):
            raise OutOfSpace(path) from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM):
            raise StoreFailed(path, str(error)) from error
        raise StoreDamaged(f"{path}: {error}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{path}: {error}") from error
