"""Read and write the rows of a timeline: SQLite, its transactions, its errors.

`change` never changes a damaged row of a sealed table, because that would seal the damage.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext

from shadowtree.base.errors import (
    OutOfSpace,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    StoreTooNew,
    StoreTooOld,
)
from shadowtree.base.limits import DEFAULT_LIMITS
from shadowtree.system import disk
from shadowtree.system.syscalls import IS_MAC, has_no_room
from shadowtree.timeline.sqlite.schema import (
    APPLICATION,
    CHANGES,
    FORMAT,
    SCHEMA,
    SEALED,
    UNRELEASED_APPLICATIONS,
    WITHOUT_GAPS,
    Table,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_UNRELEASED_FORMATS = range(1, 6)
"""The formats of timelines before the first release."""
RowsStamp = tuple[object, int, int]
"""The opened database, how many rows its connection changed, and a number that changes when another one
commits. While all three are the same, so is every row."""
BEYOND = 1 << 62
"""Larger than the number of any row."""
_WAL_PAGES = 256
"""How many pages may wait in the log before they are copied into the file, which takes two flushes: 1 MiB."""
_WAL_BYTES = 1280 << 10
"""The size that the log keeps when it is empty: enough for the pages that may wait and the largest record."""
_FEW = 4
"""After this many transactions in one process, more are to be expected."""
_LISTED_FAULTS = 20
"""At most this many faults are read from SQLite; the first ones are enough."""
_CHUNK = 500
"""How many keys one statement gets; SQLite has a limit."""
_OF_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
)
"""The error codes of a damaged file. SQLITE_ERROR means that a table is missing, SQLITE_CONSTRAINT that rows
contradict each other."""

_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions of SQLite; UnicodeDecodeError is raised for a name in the file that is not text."""


class Database:
    """The rows of one timeline. Writing needs the store's lock."""

    def __init__(
        self,
        path: str,
        *,
        for_check: bool = False,
        free_bytes: int = DEFAULT_LIMITS.timeline_free_bytes,
    ) -> None:
        """Open a timeline; with `for_check` also one that has its tables but not the mark of its format.

        `compact` shrinks it when more than `free_bytes` are free in it.
        """
        self._free_bytes = free_bytes
        self.path = path
        self._transactions = 0
        self._opening = object()
        self._sound: RowsStamp | None = None
        """The stamp of the rows when they were found sound."""
        if not os.path.exists(path):
            raise StoreDamaged(f"{path} is missing")
        migrate(path)
        try:
            self._connection = _connect(path, for_check=for_check)
        except OutOfSpace:
            # The disk has no room for the shared index of the log: in exclusive mode it is kept in memory.
            self._connection = _connect(path, for_check=for_check, is_full=True)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def require_sound(self) -> None:
        """Raise StoreDamaged if a row that decides which objects are needed is damaged or missing.

        For callers that are about to remove something; a single row is checked whenever it is read. Rows that
        were found sound are not checked again until something is written.
        """
        stamp = self.stamp()
        if stamp is not None and stamp == self._sound:
            return
        for table in SEALED:
            if table is not CHANGES:
                self.decode(table.unseal, self.rows(table.select))
        for table in WITHOUT_GAPS:
            # Not by an index, which may be whole when the table is not.
            ((count, last),) = self.rows(f"SELECT count(*), max(number) FROM {table.name} NOT INDEXED")
            if count != (last or 0):
                raise StoreDamaged(f"{self.path} has lost rows of {table.name}")
        self._sound = stamp

    def stamp(self) -> RowsStamp | None:
        """Return a value that changes whenever any process writes; None within a transaction.

        A transaction may be rolled back, but SQLite's count of changes is not.
        """
        if self._connection.in_transaction:
            return None
        ((version,),) = self.rows("PRAGMA data_version")
        return self._opening, self._connection.total_changes, version

    def measure(self) -> int:
        """Return how many bytes the rows take, without the free pages of the file."""
        pages = "pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
        ((size,),) = self.rows(f"SELECT (page_count - freelist_count) * page_size FROM {pages}")
        return int(size)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that the body writes, durably and at once, or nothing if it raises."""
        assert not self._connection.in_transaction
        try:
            self.rows("BEGIN IMMEDIATE")
            yield
            self._transactions += 1
            if self._transactions == _FEW:
                self._lengthen_log()
            disk.before_write("commit", self.path)
            self.rows("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def void_failed_commits(self) -> None:
        """Make sure that no commit whose sync failed comes back after a crash.

        SQLite rolls it back, but leaves it in the log. Anything durable that is written over its beginning
        breaks the chain of checksums.
        """
        with self.transaction():
            self.rows(f"PRAGMA user_version = {FORMAT}")

    def _lengthen_log(self) -> None:
        """Extend the log to its full size at once, in a transaction, so that no other process writes to it.

        A flush that extends a file also waits for the file system's journal, and so for what others wrote: it
        takes two to five times as long. SQLite takes zeros for the end of the log.
        """
        path = f"{self.path}-wal"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            length = os.fstat(fd).st_size
            disk.overwrite_at(fd, bytes(max(0, _WAL_BYTES - length)), length, path)
        except ShadowError:
            # A longer log only saves time.
            return
        finally:
            os.close(fd)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one consistent state in the body, whatever other processes write meanwhile."""
        self.rows("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        # After some errors SQLite has already rolled back by itself.
        if self._connection.in_transaction:
            self.rows("ROLLBACK")

    def compact(self) -> None:
        """Shrink the file if much of it is free."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self.rows(f"PRAGMA {name}")[0][0] for name in names)
        if free * size > self._free_bytes and free * 4 > pages:
            disk.before_write("compact", self.path)
            self.rows("VACUUM")
            # The file shrinks only when the log is copied into it.
            self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def scrub(self) -> None:
        """Rewrite the file, so that nothing of removed rows is left in it or in its log."""
        disk.before_write("scrub", self.path)
        self.rows("PRAGMA secure_delete = ON")
        self.rows("VACUUM")
        disk.before_write("checkpoint", self.path)
        ((is_busy, _, _),) = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            raise StoreFailed(self.path, "another process is still reading an older version")

    # Reading and writing rows

    def rows(self, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        """Run a statement and return its rows."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except _ERRORS as error:
            raise _as_store_error(self.path, error) from error

    def rows_of(
        self, statement: str, keys: Collection[object], *, values: Sequence[object] = ()
    ) -> list[Any]:  # Any: rows of SQLite
        """Read the rows of many keys; their list is appended to `statement`, which ends with `IN`."""
        found = []
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), _CHUNK):
            chunk = distinct[start : start + _CHUNK]
            marks = ", ".join("?" * len(chunk))
            found += self.rows(f"{statement} ({marks})", *values, *chunk)
        return found

    def decode(
        self,
        decode: Callable[[Any], Value],  # Any: a row of SQLite
        rows: Iterable[Any],
        order: Callable[[Value], Any] | None = None,  # Any: what can be compared
    ) -> list[Value]:
        """Decode rows into values; raise StoreDamaged if one is damaged."""
        try:
            values = list(map(decode, rows))
            return values if order is None else sorted(values, key=order)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamaged(f"{self.path} has a row that cannot be read: {error}") from error

    def read(self, decode: Callable[[Any], Value], statement: str, *values: object) -> list[Value]:
        """Run a statement and decode its rows."""
        return self.decode(decode, self.rows(statement, *values))

    def find(self, decode: Callable[[Any], Value], statement: str, *values: object) -> Value | None:
        """Run a statement and decode its first row, if there is one."""
        found = self.decode(decode, self.rows(statement, *values))
        return found[0] if found else None

    def stream(self, statement: str) -> Iterator[Any]:  # Any: rows of SQLite
        """Yield rows one by one, not decoded, for a check: as many as SQLite can read."""
        with _errors(self.path):
            yield from self._connection.execute(statement)

    def find_file_faults(self) -> Iterator[str]:
        """Yield the faults of the file's structure, its tables and indexes, and the mark of its format."""
        for (found,) in self.rows(f"PRAGMA integrity_check({_LISTED_FAULTS})"):
            if found != "ok":
                yield str(found).replace("\n", " ")
        with _errors(self.path):
            if not has_schema(self._connection):
                yield "does not have the tables of a timeline"
            try:
                require_format(self._connection, self.path)
            except ShadowError:
                yield "is not marked as a timeline of this format"

    def require(self, kind: str, number: int, found: Value | None) -> Value:
        """Return `found`, which another row names; raise StoreDamaged if it is None."""
        if found is None:
            raise StoreDamaged(f"{self.path} has no {kind} {number}")
        return found

    def add(self, table: Table, *values: object, act: str = "record") -> int:
        """Add a row with the next number and these values; return the number."""
        self._announce(act)
        ((number,),) = self.rows(table.next_number)
        self.rows(table.insert, *table.encode((number, *values)))
        return int(number)

    def change(self, table: Table, key: int, **columns: object) -> None:
        """Change stored columns of a row, if it exists; raise StoreDamaged if the row is damaged."""
        self._announce("record")
        for values in self.decode(table.unseal, self.rows(f"{table.select} WHERE {table.key} = ?", key)):
            row = table.seal([*{**dict(zip(table.columns, values, strict=True)), **columns}.values()])
            names = ", ".join(f"{column} = ?" for column in columns)
            update = f"UPDATE {table.name} SET {names}, seal = ? WHERE {table.key} = ?"
            self.rows(update, *columns.values(), row[-1], key)

    def execute_all(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement for many rows, all in one transaction."""
        with self.together(), _errors(self.path):
            self._connection.executemany(statement, rows)

    def together(self) -> AbstractContextManager[None]:
        """Return a context whose body runs in the open transaction, or else in a new one."""
        return nullcontext() if self._connection.in_transaction else self.transaction()

    def execute(self, statement: str, *values: object) -> None:
        """Run a statement that takes effect at once, or with the open transaction."""
        self._announce("record")
        self.rows(statement, *values)

    def forget(self, *changes: tuple[str, Sequence[object]]) -> None:
        """Run statements in one transaction that need not be durable: a power cut may undo it."""
        self._announce("forget")
        self.rows("PRAGMA synchronous = NORMAL")
        try:
            self.rows("BEGIN IMMEDIATE")
            for statement, values in changes:
                self.rows(statement, *values)
            self.rows("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self.rows("PRAGMA synchronous = FULL")

    def _announce(self, act: str) -> None:
        """Report a write outside a transaction to the fault point; `transaction` reports its own commit."""
        if not self._connection.in_transaction:
            disk.before_write(act, self.path)


def require_format(connection: sqlite3.Connection, path: str) -> None:
    """Raise if a file is not a timeline, or has a format that this version cannot read."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    store = os.path.dirname(path)
    if application in UNRELEASED_APPLICATIONS and version in _UNRELEASED_FORMATS:
        raise StoreTooOld(store)
    if application != APPLICATION or version < 1:
        raise StoreDamaged(f"{path} is not a timeline")
    if version > FORMAT:
        raise StoreTooNew(store, version, FORMAT)


def migrate(path: str) -> None:
    """Convert the timeline of an earlier release to the present format, in a copy that replaces it.

    There is no earlier release yet, so there is nothing to do.
    """


def create_journal(path: str) -> None:
    """Create an empty, durable timeline in a store that no other process can see yet."""
    fd = disk.create_file(path)
    try:
        with _errors(path):
            # There is no need to wait for the disk before the file is complete.
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.executescript(
                    f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; BEGIN; {SCHEMA} COMMIT;"
                )
            finally:
                connection.close()
        disk.sync(fd, path)
    finally:
        os.close(fd)


def _connect(path: str, *, for_check: bool, is_full: bool = False) -> sqlite3.Connection:
    """Open the file and check that it is a timeline of a known format."""
    with _errors(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            if is_full:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            if IS_MAC:
                # As `system.syscalls.sync` does; SQLite has one switch for commits and one for checkpoints.
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute("PRAGMA checkpoint_fullfsync = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
            if not (for_check and has_schema(connection)):
                require_format(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def has_schema(connection: sqlite3.Connection) -> bool:
    """Return whether a file has exactly the tables and indexes of a timeline.

    The file defines them in a few lines of text; a flipped bit there leaves a valid file with other tables,
    in which SQLite finds no fault.
    """
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(SCHEMA)
        return _describe_schema(connection) == _describe_schema(scratch)


def _describe_schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema")
    return sorted((str(name), " ".join(str(sql).split())) for name, sql in rows)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn the errors of SQLite about `path` into ours."""
    try:
        yield
    except _ERRORS as error:
        raise _as_store_error(path, error) from error


def _as_store_error(path: str, error: Exception) -> ShadowError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and has_no_room(os.path.dirname(path))
    if code == sqlite3.SQLITE_FULL or is_full:
        return OutOfSpace(path)
    is_short = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
    # For a name in the file that is not text, the error has no code.
    is_no_text = isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")
    )
    if code in _OF_DAMAGE or is_short or is_no_text:
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
