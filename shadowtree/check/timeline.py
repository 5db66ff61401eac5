"""Read the timeline for a check: every row that can be read, and a fault for each that cannot.

A seal proves that a row is what was written (docs/decisions/0024-seals.md). Lost rows leave gaps in the
numbers, or too few changes. SQLite's own check finds damaged indexes and pages; a repair then rewrites the
file from its rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import Change
from shadowtree.results.reports import HurtMessage
from shadowtree.store.git_format import PackBytes
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.system import disk
from shadowtree.timeline.sqlite import schema
from shadowtree.timeline.sqlite.database import Database, has_schema, require_format
from shadowtree.timeline.sqlite.pack_rows import (
    JOURNALED,
    PLACING,
    ROWS,
    decode_row,
    decode_versions,
    require_name,
)
from shadowtree.timeline.sqlite.schema import Event, MessageRow, Table, TreeRecord
from shadowtree.timeline.sqlite.unprotected import decode_skips

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_WAIT_S = 1.0
"""How long a rewrite waits for other processes that read."""
OF_SQLITE = ("", "-wal", "-shm", "-journal")
_SEQUENCE = "sqlite_sequence"
_COUNTED = schema.CHANGE_COUNTS.replace(
    " FROM", ", (SELECT count(*) FROM changes WHERE event = number) FROM", 1
)
_PACKS = f"""SELECT name, CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs
    WHERE state = '{JOURNALED}' ORDER BY number"""
_MESSAGE_OF_EVENT = schema.EVENTS.columns.index("message")


@frozen
class Fault:
    """Something wrong in a timeline."""

    what: str
    """Which row or table."""
    why: str
    message: int | None = None
    """The number of the message that it hurts."""


class TimelineRows:
    """The rows of a timeline, as far as they can be read. Raises StoreDamaged if the file is not one."""

    def __init__(self, path: str) -> None:
        self.faults: list[Fault] = []
        self.is_file_damaged = False
        """SQLite finds the file damaged, apart from any faults in rows."""
        self.trees: dict[int, TreeRecord] = {}
        self.sessions: dict[int, str] = {}
        self.messages: dict[int, MessageRow] = {}
        self.events: dict[int, Event] = {}
        self.intents = 0
        """How many acts are in progress, or were interrupted."""
        self.placing: list[PackFile] = []
        """The packs that still have to be renamed: their temporary files hold recorded objects."""
        self._damaged_trees: set[int] = set()
        self._named: dict[int | None, tuple[int, str]] = {}
        """Session and id of each live message, and of damaged rows as far as they can be read."""
        self._database = Database(path, for_check=True)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def live_trees(self) -> list[TreeRecord]:
        """The trees that are not forgotten, oldest first."""
        return [tree for tree in self.trees.values() if tree.forgotten_ms is None]

    def is_forgotten(self, event: int) -> bool:
        """Return whether an event, or its message, was forgotten, so that nothing needs its objects."""
        row = self.events.get(event)
        message = None if row is None or row.message is None else self.messages.get(row.message)
        return any(each is not None and each.forgotten_ms is not None for each in (row, message))

    def name_messages(self, numbers: Iterable[int | None]) -> list[HurtMessage]:
        """Return messages by session and id, except forgotten ones."""
        known = [self._named[number] for number in dict.fromkeys(numbers) if number in self._named]
        return [HurtMessage(self.sessions.get(session, "?"), id) for session, id in known]

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Return every change with the number of its event."""
        return self._rows(schema.CHANGES, schema.decode_change)

    def packs(self) -> Iterator[PackBytes]:
        """Return every journaled pack, whole or not."""
        return self._rows(schema.PACKS, lambda row: PackBytes(require_name(row[0]), *row[1:]), _PACKS)

    def _read(self) -> None:
        try:
            for why in self._database.find_file_faults():
                self._add_file_fault(why)
        except StoreDamaged as error:
            self._add_file_fault(error.what)
        self.trees = {row.number: row for row in self._rows(schema.TREES, schema.decode_tree)}
        rows = self._rows(schema.SESSIONS, schema.SESSIONS.decode)
        self.sessions = {number: name for number, name, *_ in rows}
        self.messages = {row.number: row for row in self._rows(schema.MESSAGES, schema.decode_message)}
        live = [row for row in self.messages.values() if row.forgotten_ms is None]
        self._named.update({row.number: (row.session, row.id) for row in live})
        self.events = {row.number: row for row in self._rows(schema.EVENTS, schema.decode_event)}
        self.intents = len(list(self._rows(schema.INTENTS, schema.INTENTS.decode)))
        self._check(schema.BRANCHES, schema.decode_branch)
        self._check(schema.SKIPS, decode_skips)
        self._check(schema.STAMPS, schema.STAMPS.decode)
        self._check(schema.PINS, schema.PINS.decode)
        self._check(schema.PURGED, schema.PURGED.decode)
        self._check(schema.WRITER, schema.WRITER.decode)
        self._check(schema.REMOTES, schema.REMOTES.decode)
        packs = self._rows(schema.PACKS, decode_row, ROWS)
        self.placing = [row.file for row in packs if row.state == PLACING]
        self._check(schema.PACKS, decode_versions, "SELECT name, versions FROM packs")
        self._find_lost_rows()
        for event in self.events.values():
            for number in {event.before, event.after} & self._damaged_trees:
                self.faults.append(Fault(f"trees {number}", "cannot be read", event.message))

    def _check(self, table: Table, decode: Callable[[Any], object], statement: str | None = None) -> None:
        for _ in self._rows(table, decode, statement):
            pass

    def _rows(
        self,
        table: Table,
        decode: Callable[[Any], Value],  # Any: a row of SQLite
        statement: str | None = None,
    ) -> Iterator[Value]:
        """Yield every row that can be read, and note a fault for each that cannot."""
        try:
            for row in self._database.stream(statement or table.select):
                try:
                    yield decode(row)
                except (AttributeError, TypeError, ValueError) as error:
                    self._add_row_fault(table.name, row, error)
        except StoreDamaged as error:  # Other errors, such as a full disk, prove nothing about the timeline.
            self._add_file_fault(error.what)

    def _add_file_fault(self, why: str) -> None:
        self.is_file_damaged = True
        self.faults.append(Fault("timeline", why))

    def _add_row_fault(self, table: str, row: Any, error: Exception) -> None:
        """Note a damaged row and the message that it hurts: its columns are good enough to identify it."""
        number = row[0] if isinstance(row[0], int) else None
        message: object = None
        if table == "trees" and number is not None:
            self._damaged_trees.add(number)
        elif table == "messages" and number is not None and isinstance(row[3], bytes):
            self._named[number] = row[1], row[3].decode(errors="replace")
            message = number
        elif table == "events":
            message = row[_MESSAGE_OF_EVENT]
        elif table == "changes" and number in self.events:
            message = self.events[number].message
        what = table if number is None else f"{table} {number}"
        why = f"cannot be read: {error}"
        self.faults.append(Fault(what, why, message if isinstance(message, int) else None))

    def _find_lost_rows(self) -> None:
        for table in schema.WITHOUT_GAPS:
            # A plus keeps SQLite from answering from an index, which may be damaged.
            numbers = {number for (number,) in self._rows(table, tuple, f"SELECT +number FROM {table.name}")}
            if numbers != set(range(1, len(numbers) + 1)):
                self.faults.append(Fault(table.name, "has lost rows"))
        for event, count, found in self._rows(schema.EVENTS, tuple, _COUNTED):
            if count != found:
                message = self.events[event].message if event in self.events else None
                why = f"has {count} changes, but {found} are there"
                self.faults.append(Fault(f"events {event}", why, message))


# Rewriting


def rewrite_timeline(path: str) -> None:
    """Replace a damaged timeline with a sound one that has the same rows; StoreDamaged if rows are lost.

    All rows are copied or none: a message that lost some of its changes would be reverted in part, and nobody
    would notice. A row with a wrong seal is copied unchanged, and stays wrong. The caller holds the lock,
    with no other connection open.
    """
    temporary = disk.name_temporary(os.path.dirname(path))
    try:
        fd = disk.create_file(temporary)
        try:
            _copy_rows(path, temporary)
            disk.sync(fd, temporary)
        finally:
            os.close(fd)
        # A log of the old file would be applied to the new one; everything in it is in both files.
        for suffix in ("-wal", "-shm"):
            disk.remove_file(path + suffix)
        disk.rename(temporary, path)
        disk.sync_names(os.path.dirname(path))
    finally:
        for suffix in OF_SQLITE:
            disk.remove_file(temporary + suffix)


def _copy_rows(source: str, target: str) -> None:
    try:
        with closing(sqlite3.connect(source, isolation_level=None, timeout=_WAIT_S)) as old:
            # The format number in the file may be what is damaged.
            if not has_schema(old):
                require_format(old, source)
            with closing(sqlite3.connect(target, isolation_level=None)) as new:
                new.executescript(f"PRAGMA journal_mode = WAL; BEGIN; {schema.SCHEMA} COMMIT;")
                _copy_tables(old, new)
            ((is_busy, _, _),) = old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if is_busy:
                # The log still has rows that the file lacks.
                raise StoreFailed(source, "another process is reading it")
    except (sqlite3.Error, UnicodeError) as error:
        raise StoreDamaged(f"{source}: {error}") from error


def _copy_tables(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    tables = [name for (name,) in new.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    new.execute("BEGIN")
    for table in sorted(tables, key=lambda name: name == _SEQUENCE):
        columns = [str(row[1]) for row in new.execute(f"PRAGMA table_info({table})")]
        if table == _SEQUENCE:
            new.execute(f"DELETE FROM {_SEQUENCE}")
        # NOT INDEXED: an index may be what is damaged.
        rows = old.execute(f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED")
        marks = ", ".join("?" * len(columns))
        new.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
        _require_all(table, old, new)
    new.execute("COMMIT")
    if new.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise StoreDamaged("its rows are inconsistent")


def _require_all(table: str, old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Raise StoreDamaged if an index lists more rows than were found: a page may end too early.

    An index that lists fewer is damaged itself, and was rebuilt in the new file.
    """
    ((copied,),) = new.execute(f"SELECT count(*) FROM {table} NOT INDEXED")
    for _, index, _, _, is_partial in new.execute(f"PRAGMA index_list({table})").fetchall():
        if is_partial:
            continue
        columns = ", ".join(str(row[2]) for row in new.execute(f"PRAGMA index_info({index})"))
        known = old.execute(f"SELECT {columns} FROM {table} INDEXED BY {index}").fetchall()
        if len(known) > copied:
            raise StoreDamaged(f"rows of {table} are lost")
