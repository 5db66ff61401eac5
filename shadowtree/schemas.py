"""Which version the tables of a timeline are of, told by the tables themselves.

A file says its version in one number, and what its tables are in a few lines of text; a flipped bit in either
makes another timeline of it, in which SQLite finds no fault.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from shadowtree.tables import SCHEMAS, VERSION


def find_version(connection: sqlite3.Connection) -> int | None:
    """Tell which version has just the tables and indexes that a timeline has; None if none does."""
    found = _describe(connection)
    return next((version for version in range(VERSION, 0, -1) if _expect(version) == found), None)


def schema_of(version: int) -> str:
    """Give all statements that lead to a version."""
    return "".join(SCHEMAS[number] for number in range(1, version + 1))


def _expect(version: int) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(schema_of(version))
        return _describe(scratch)


def _describe(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema")
    return sorted((str(name), " ".join(str(sql).split())) for name, sql in rows)
