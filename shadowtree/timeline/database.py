"""How the rows of a timeline are read and written: SQLite, its transactions, its errors.

Rows of sealed tables are written by `add` and `change` alone, which seal them; a row that is not what was
written is never changed, because that would seal the damage.
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
from shadowtree.timeline.schema import (
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
"""What timelines called themselves before there was a first release."""
RowsStamp = tuple[object, int, int]
"""Who has the timeline open, how much he has written, and what tells that others have: as long as all three
are the same, so is every row."""
BEYOND = 1 << 62
"""A number that no row has."""
_WAL_PAGES = 256
"""How many pages may wait in the log before they are put into the file, which takes two flushes: 1 MiB."""
_WAL_BYTES = 1280 << 10
"""What the log keeps of its room when nothing waits in it: what may wait, and the largest record."""
_FEW = 4
"""After so many transactions of one process more are to be expected."""
_LISTED_FAULTS = 20
"""How many faults SQLite is asked for: the first ones say what there is to know."""
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

_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises: the last one of a name in the file that is no text."""


class Database:
    """The rows of one timeline. Writing needs the store's lock."""

    def __init__(
        self,
        path: str,
        *,
        for_check: bool = False,
        free_bytes: int = DEFAULT_LIMITS.timeline_free_bytes,
    ) -> None:
        """Open a timeline; `for_check` also one that has its tables but does not say its format.

        It is compacted when more than `free_bytes` are free in it.
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
            # The disk has no room for the index that processes share: whoever only reads keeps it in memory.
            self._connection = _connect(path, for_check=for_check, is_full=True)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def require_sound(self) -> None:
        """Raise StoreDamaged if a row that tells what is needed is not what was written, or is missing.

        For who is about to remove something: a single row is looked at whenever it is read. What was found
        sound, and was not touched since, is not looked at again.
        """
        stamp = self.stamp()
        if stamp is not None and stamp == self._sound:
            return
        for table in SEALED:
            if table is not CHANGES:
                self.decode(table.unseal, self.rows(table.select))
        for table in WITHOUT_GAPS:
            # Not by an index, which may be whole where the table is not.
            ((count, last),) = self.rows(f"SELECT count(*), max(number) FROM {table.name} NOT INDEXED")
            if count != (last or 0):
                raise StoreDamaged(f"{self.path} has lost rows of {table.name}")
        self._sound = stamp

    def stamp(self) -> RowsStamp | None:
        """Return what is another one as soon as anybody wrote anything; None within a transaction.

        What is written there may be taken back, and the count does not go back with it.
        """
        if self._connection.in_transaction:
            return None
        ((version,),) = self.rows("PRAGMA data_version")
        return self._opening, self._connection.total_changes, version

    def measure(self) -> int:
        """Return how many bytes the rows take; what was freed in the file is not counted."""
        pages = "pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
        ((size,),) = self.rows(f"SELECT (page_count - freelist_count) * page_size FROM {pages}")
        return int(size)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let all that is added inside count together, durably, or not at all if anything is raised."""
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

    def _lengthen_log(self) -> None:
        """Allocate the room of the log at once, in a transaction, so that nobody else writes there.

        A flush that makes a file longer waits for the log of the file system too, and with it for what others
        wrote: it takes two to five times as long. To SQLite zeros are the end of its log.
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
            # It only saves time.
            return
        finally:
            os.close(fd)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all that is read inside be of one moment, whatever others write meanwhile."""
        self.rows("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        # After some errors SQLite has done so by itself.
        if self._connection.in_transaction:
            self.rows("ROLLBACK")

    def compact(self) -> None:
        """Free the room of rows that are gone, if it is much."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self.rows(f"PRAGMA {name}")[0][0] for name in names)
        if free * size > self._free_bytes and free * 4 > pages:
            disk.before_write("compact", self.path)
            self.rows("VACUUM")
            # The file itself gets shorter only when its log is put into it.
            self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def scrub(self) -> None:
        """Write the file anew, so that nothing is left in it, or in its log, of rows that are gone."""
        disk.before_write("scrub", self.path)
        self.rows("PRAGMA secure_delete = ON")
        self.rows("VACUUM")
        disk.before_write("checkpoint", self.path)
        ((is_busy, _, _),) = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            raise StoreFailed(self.path, "another process is still reading an older version")

    # How rows are read and written

    def rows(self, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        """Run a statement, and give its rows."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except _ERRORS as error:
            raise _as_store_error(self.path, error) from error

    def rows_of(
        self, statement: str, keys: Collection[object], *, values: Sequence[object] = ()
    ) -> list[Any]:  # Any: rows of SQLite
        """Read the rows of many keys: `statement` ends where their list is to come."""
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
        """Make values of rows; StoreDamaged if one is not what was written."""
        try:
            values = list(map(decode, rows))
            return values if order is None else sorted(values, key=order)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamaged(f"{self.path} has a row that cannot be read: {error}") from error

    def read(self, decode: Callable[[Any], Value], statement: str, *values: object) -> list[Value]:
        """Make values of the rows that a statement gives."""
        return self.decode(decode, self.rows(statement, *values))

    def find(self, decode: Callable[[Any], Value], statement: str, *values: object) -> Value | None:
        """Make a value of the first row that a statement gives, if there is one."""
        found = self.decode(decode, self.rows(statement, *values))
        return found[0] if found else None

    def stream(self, statement: str) -> Iterator[Any]:  # Any: rows of SQLite
        """Yield rows one by one, as they are stored, for a check: as many as SQLite can read."""
        with _errors(self.path):
            yield from self._connection.execute(statement)

    def find_file_faults(self) -> Iterator[str]:
        """Check the structure of the file, its tables and indexes, and that it says its format."""
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
        """Return what another row names; StoreDamaged if it was not found."""
        if found is None:
            raise StoreDamaged(f"{self.path} has no {kind} {number}")
        return found

    def add(self, table: Table, *values: object, act: str = "record") -> int:
        """Add a row with these values after its number; return the number."""
        self._announce(act)
        ((number,),) = self.rows(table.next_number)
        self.rows(table.insert, *table.encode((number, *values)))
        return int(number)

    def change(self, table: Table, key: int, **columns: object) -> None:
        """Change stored columns of a row, if it is there; StoreDamaged if it is not what was written."""
        self._announce("record")
        for values in self.decode(table.unseal, self.rows(f"{table.select} WHERE {table.key} = ?", key)):
            row = table.seal([*{**dict(zip(table.columns, values, strict=True)), **columns}.values()])
            names = ", ".join(f"{column} = ?" for column in columns)
            update = f"UPDATE {table.name} SET {names}, seal = ? WHERE {table.key} = ?"
            self.rows(update, *columns.values(), row[-1], key)

    def execute_all(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Do the same for many rows, which count together."""
        with self.together(), _errors(self.path):
            self._connection.executemany(statement, rows)

    def together(self) -> AbstractContextManager[None]:
        """Let what is done inside count together: in the transaction that is open, or in one of its own."""
        return nullcontext() if self._connection.in_transaction else self.transaction()

    def execute(self, statement: str, *values: object) -> None:
        """Do something that counts at once, or with the transaction that is open."""
        self._announce("record")
        self.rows(statement, *values)

    def forget(self, *changes: tuple[str, Sequence[object]]) -> None:
        """Do what need not be durable, all together: a power cut may bring back what was there before."""
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
        """Let the fault point know of a write that counts at once; one in a transaction counts with it."""
        if not self._connection.in_transaction:
            disk.before_write(act, self.path)


def require_format(connection: sqlite3.Connection, path: str) -> None:
    """Raise if a file is no timeline, or one of a format that this version does not read."""
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
    """Bring the timeline of an earlier release to the present format, in a copy that takes its place.

    There is no earlier release yet, so there is nothing to do.
    """


def create_journal(path: str) -> None:
    """Make an empty timeline, durable, in a store that nobody can see yet."""
    fd = disk.create_file(path)
    try:
        with _errors(path):
            # Nothing in it is worth waiting for the disk before all of it is there.
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
    """Open the file, and make sure that it is a timeline of a known format."""
    with _errors(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            if is_full:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            if IS_MAC:
                # As `system.syscalls.sync` does; SQLite has a switch for it, and one for checkpoints.
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
    """Whether a file has just the tables and indexes of a timeline.

    They stand in the file as a few lines of text; a flipped bit there makes another timeline of it, in which
    SQLite finds no fault.
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
    # A name in the file that is no text has no code.
    is_no_text = isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")
    )
    if code in _OF_DAMAGE or is_short or is_no_text:
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
