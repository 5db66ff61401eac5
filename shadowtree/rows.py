"""How the rows of a timeline are read and written: SQLite, its transactions, its errors.

A timeline of an older version is read as it is. Whoever writes upgrades it first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from shadowtree import disk, faultpoint
from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed, StoreTooNew
from shadowtree.seals import CHANGES, SEAL_FUNCTION, SEALED, WITHOUT_GAPS, compute, seal_of, triggers
from shadowtree.system import O_BINARY, O_CLOEXEC, O_NOFOLLOW, has_no_room
from shadowtree.tables import SCHEMAS, VERSION, adapt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

WITH_SESSIONS = 2
"""The version that brought sessions, and all tables but those of trees and packs."""
WITH_PACKS = 4
WITH_FORGETTING = 5
WITH_SEALS = 5
RowsStamp = tuple[object, int, int]
"""Who has the timeline open, how much he has written, and what tells that others have: as long as all three
are the same, so is every row."""
BEYOND = 1 << 62
"""A number that no row has."""
_MUCH_FREE = 128 << 10
"""How many bytes are given back at least."""
_WAL_PAGES = 256
"""How many pages may wait in the log before they are put into the file, which takes two flushes: 1 MiB."""
_WAL_BYTES = 1280 << 10
"""What the log keeps of its room when nothing waits in it: what may wait, and the largest record."""
_FEW = 4
"""After so many transactions of one process more are to be expected."""
_CHUNK = 500
"""How many values one statement asks for; SQLite has a limit."""
_OF_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
)
"""What SQLite answers to a file that is not what was written: the last but one, if a table is not there, and
the last one, if rows do not fit together."""


class Rows:
    """The rows of one timeline. Writing needs the store's lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._transactions = 0
        self._seals = False
        """Whether all that is written is sealed."""
        self._opening = object()
        self._sound: RowsStamp | None = None
        """The stamp of the rows when they were found sound."""
        if not os.path.exists(path):
            raise StoreDamaged(f"{path} is missing")
        with _errors(path):
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._connection.create_function(SEAL_FUNCTION, -1, seal_of, deterministic=True)
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
                self._connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
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
                if version == WITH_SEALS:
                    self._seal_all()
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._version = VERSION
        return True

    def _seal_all(self) -> None:
        """Seal what was recorded before there were seals."""
        counted = "SELECT count(*) FROM changes WHERE event = events.number"
        self._connection.execute(f"UPDATE events SET change_count = ({counted})")
        for table in SEALED:
            self._connection.execute(f"UPDATE {table} SET seal = {compute(table)}")

    def _seal_from_now_on(self) -> None:
        """Let all that this connection adds or changes be sealed."""
        if self._seals or self._version < WITH_SEALS:
            return
        with _errors(self._path):
            for trigger in triggers():
                self._connection.execute(trigger)
        self._seals = True

    def require_sound(self) -> None:
        """Raise StoreDamaged if a row that tells what is needed is not what was written, or is missing.

        For who is about to remove something: a single row is looked at whenever it is read. What was found
        sound, and was not touched since, is not looked at again.
        """
        stamp = self.stamp()
        if not self._has_tables_of(WITH_SEALS) or (stamp is not None and stamp == self._sound):
            return
        for table in SEALED:
            if table != CHANGES and self._rows(
                f"SELECT 1 FROM {table} WHERE seal IS NOT {compute(table)} LIMIT 1", ()
            ):
                raise StoreDamaged(f"{self._path} has a row of {table} that is not what was written")
        for table in WITHOUT_GAPS:
            # Not by an index, which may be whole where the table is not.
            ((count, last),) = self._rows(f"SELECT count(*), max(number) FROM {table} NOT INDEXED", ())
            if count != (last or 0):
                raise StoreDamaged(f"{self._path} has lost rows of {table}")
        self._sound = stamp

    def stamp(self) -> RowsStamp | None:
        """Give what is another one as soon as anybody wrote anything; None within a transaction.

        What is written there may be taken back, and the count does not go back with it.
        """
        if self._connection.in_transaction:
            return None
        with _errors(self._path):
            ((version,),) = self._connection.execute("PRAGMA data_version")
        return self._opening, self._connection.total_changes, version

    def measure(self) -> int:
        """Tell how many bytes the rows take; what was freed in the file is not counted."""
        pages = "pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
        ((size,),) = self._rows(f"SELECT (page_count - freelist_count) * page_size FROM {pages}", ())
        return int(size)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let all that is added inside count together, durably, or not at all if anything is raised."""
        assert not self._connection.in_transaction
        self._seal_from_now_on()
        try:
            with _errors(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._transactions += 1
            if self._transactions == _FEW:
                self._lengthen_log()
            faultpoint.before_write("commit", self._path)
            with _errors(self._path):
                self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _lengthen_log(self) -> None:
        """Give the log its room at once, in a transaction, so that nobody else writes there.

        A flush that makes a file longer waits for the log of the file system too, and with it for what others
        wrote: it takes two to five times as long. To SQLite zeros are the end of its log.
        """
        path = f"{self._path}-wal"
        try:
            fd = os.open(path, os.O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_BINARY)
        except OSError:
            return
        try:
            length = os.fstat(fd).st_size
            disk.overwrite_at(fd, bytes(max(0, _WAL_BYTES - length)), length, path)
        except ShadowError:
            # It only saves time.
            return
        finally:
            os.close(fd)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all that is read inside be of one moment, whatever others write meanwhile."""
        with _errors(self._path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        # After some errors SQLite has done so by itself.
        if self._connection.in_transaction:
            with _errors(self._path):
                self._connection.execute("ROLLBACK")

    def compact(self) -> None:
        """Give back the room of rows that are gone, if it is much."""
        with _errors(self._path):
            pages, free, size = (
                self._connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if free * size > _MUCH_FREE and free * 4 > pages:
                faultpoint.before_write("compact", self._path)
                self._connection.execute("VACUUM")

    def scrub(self) -> None:
        """Write the file anew, so that nothing is left in it, or in its log, of rows that are gone."""
        faultpoint.before_write("scrub", self._path)
        with _errors(self._path):
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.execute("VACUUM")
            faultpoint.before_write("checkpoint", self._path)
            ((is_busy, _, _),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if is_busy:
            raise StoreFailed(self._path, "another process keeps reading what was there before")

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
        return self._rows_since(WITH_SESSIONS, statement, *values)

    def _rows_since(self, version: int, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        """Read rows of tables that came with a version; before that there are none."""
        if not self._has_tables_of(version):
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

    def _do_all(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Do the same for many rows, which count together."""
        with self._together(), _errors(self._path):
            self._connection.executemany(statement, rows)

    def _together(self) -> AbstractContextManager[None]:
        """Let what is done inside count together: in the transaction that is open, or in one of its own."""
        return nullcontext() if self._connection.in_transaction else self.transaction()

    def _update(self, statement: str, *values: object) -> None:
        self._announce("record")
        with _errors(self._path):
            self._connection.execute(statement, values)

    def _forget(self, statement: str, *values: object) -> None:
        """Change what need not be durable: a power cut may bring back what was there before."""
        self._forget_all([(statement, values)])

    def _forget_all(self, changes: Iterable[tuple[str, Sequence[object]]]) -> None:
        """Do the same with several changes, which count together."""
        self._announce("forget")
        with _errors(self._path):
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for statement, values in changes:
                    self._connection.execute(statement, values)
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    def _announce(self, act: str) -> None:
        """Let the fault point know of a write that counts at once; one in a transaction counts with it."""
        if not self._connection.in_transaction:
            self._seal_from_now_on()
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


class _errors(disk.store_errors):
    """Turn the errors of SQLite about `path` into ours."""

    __slots__ = ()

    def _turn(self, error: BaseException) -> ShadowError | None:
        if isinstance(error, sqlite3.Error):
            return _as_store_error(self._path, error)
        # SQLite complains of a name in the file that is no text.
        return StoreDamaged(f"{self._path}: {error}") if isinstance(error, UnicodeDecodeError) else None


def _as_store_error(path: str, error: sqlite3.Error) -> ShadowError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and has_no_room(os.path.dirname(path))
    if code == sqlite3.SQLITE_FULL or is_full:
        return OutOfSpace(path)
    is_short = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
    is_no_text = isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")
    if code in _OF_DAMAGE or is_short or is_no_text:
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
