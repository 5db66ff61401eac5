"""The timeline of a store: what was recorded, in SQLite, durable when a call returns.

Rows are only ever added. A row names objects, so it is written last: whatever it names is complete and
durable by then (invariant 2).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shadowtree import disk
from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed, StoreTooNew

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


@dataclass(frozen=True, slots=True)
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
        is_new = not os.path.exists(path)
        if is_new:
            os.close(disk.create_file(path))
        with self._errors():
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=10
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._prepare()

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
        with self._errors():
            rows = self._connection.execute(
                f"{_SELECT} WHERE number > ? ORDER BY number", (number,)
            ).fetchall()
        return (TreeRecord(*row) for row in rows)

    def add_tree(self, *, tree: bytes, facts: bytes, keeper: bytes, files: int, time_s: int) -> None:
        """Record a tree; this is the moment at which it counts."""
        disk.before_write("record", self._path)
        with self._errors():
            self._connection.execute(
                "INSERT INTO trees (tree, facts, keeper, files, time) VALUES (?, ?, ?, ?, ?)",
                (tree, facts, keeper, files, time_s),
            )

    def _one(self, condition: str, *values: bytes) -> TreeRecord | None:
        with self._errors():
            row = self._connection.execute(f"{_SELECT} {condition}", values).fetchone()
        return TreeRecord(*row) if row else None

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise StoreTooNew(os.path.dirname(self._path), version, _VERSION)
        if version == 0:
            self._create_tables()

    def _create_tables(self) -> None:
        disk.before_write("create tables", self._path)
        self._connection.execute("BEGIN IMMEDIATE")
        # Another process may have been faster while this one waited.
        if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        self._connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _as_store_error(self._path, error) from error


_SELECT = "SELECT number, tree, facts, keeper, files, time FROM trees"


def _as_store_error(path: str, error: sqlite3.Error) -> ShadowError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return OutOfSpace(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(f"{path}: {error}")
    return StoreFailed(path, str(error))
