"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added. A row names objects, so it is written last: whatever it names is complete and
durable by then (invariant 2).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from shadowtree import disk
from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed, StoreTooNew
from shadowtree.frozen import frozen
from shadowtree.system import has_no_room

_VERSION = 1
_SCHEMA = """
CREATE TABLE trees (
    number INTEGER PRIMARY KEY,
    tree BLOB NOT NULL,
    facts BLOB NOT NULL,
    keeper BLOB NOT NULL,
    files INTEGER NOT NULL,
    time INTEGER NOT NULL
);
CREATE INDEX trees_by_id ON trees (tree);
"""


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
                version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            except sqlite3.Error:
                self._connection.close()
                raise
        if version != _VERSION:
            self._connection.close()
            if version > _VERSION:
                raise StoreTooNew(os.path.dirname(path), version, _VERSION)
            raise StoreDamaged(f"{path} holds no timeline")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def last_tree(self) -> TreeRecord | None:
        """Give the tree recorded last."""
        return self._one("ORDER BY number DESC LIMIT 1")

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree."""
        return self._one("WHERE tree = ? ORDER BY number DESC LIMIT 1", tree)

    def trees_after(self, number: int) -> Iterator[TreeRecord]:
        """Give every recorded tree from the one after `number` on, oldest first."""
        with _errors(self._path):
            rows = self._connection.execute(
                f"{_SELECT} WHERE number > ? ORDER BY number", (number,)
            ).fetchall()
        return (TreeRecord(*row) for row in rows)

    def add_tree(self, *, tree: bytes, facts: bytes, keeper: bytes, files: int, time_s: int) -> TreeRecord:
        """Record a tree; this is the moment at which it counts."""
        disk.before_write("record", self._path)
        with _errors(self._path):
            row = self._connection.execute(
                "INSERT INTO trees (tree, facts, keeper, files, time) VALUES (?, ?, ?, ?, ?)",
                (tree, facts, keeper, files, time_s),
            )
        assert row.lastrowid is not None
        return TreeRecord(row.lastrowid, tree, facts, keeper, files, time_s)

    def _one(self, condition: str, *values: bytes) -> TreeRecord | None:
        with _errors(self._path):
            row = self._connection.execute(f"{_SELECT} {condition}", values).fetchone()
        return TreeRecord(*row) if row else None


def create_journal(path: str) -> None:
    """Make an empty timeline, durable, in a store that nobody can see yet."""
    fd = disk.create_file(path)
    try:
        with _errors(path):
            # Nothing in it is worth waiting for the disk before all of it is there.
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; {_SCHEMA}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            finally:
                connection.close()
        disk.sync(fd, path)
    finally:
        os.close(fd)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _as_store_error(path, error) from error


_SELECT = "SELECT number, tree, facts, keeper, files, time FROM trees"


def _as_store_error(path: str, error: sqlite3.Error) -> ShadowError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_full = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and has_no_room(os.path.dirname(path))
    if code == sqlite3.SQLITE_FULL or is_full:
        return OutOfSpace(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
