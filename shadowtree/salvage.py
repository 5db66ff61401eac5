"""A timeline written anew from its rows, for when SQLite finds its file damaged.

All rows or none: a message whose changes were lost would be reverted in part, and nobody could tell. If a
table cannot be read to its end, the file is left as it is: what is readable in it still serves.

A row of which one bit was flipped becomes what it was; its seal proves it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from shadowtree import disk
from shadowtree.errors import StoreDamaged
from shadowtree.schemas import find_version, schema_of
from shadowtree.seals import SEALED, mend, seal_of
from shadowtree.tables import SCHEMAS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SEQUENCE = "sqlite_sequence"


def rewrite_timeline(path: str) -> None:
    """Put a sound timeline with the same rows in place of a damaged one; raise StoreDamaged if rows are lost.

    Only for the holder of the lock, with no other connection open.
    """
    temporary = disk.name_temporary(os.path.dirname(path))
    try:
        fd = disk.create_file(temporary)
        try:
            _copy_rows(path, temporary)
            disk.sync(fd, temporary)
        finally:
            os.close(fd)
        # A log of the old file would be taken for one of the new; all that is in it was copied.
        for suffix in ("-wal", "-shm"):
            disk.remove_file(path + suffix)
        disk.rename(temporary, path)
        disk.sync_names(os.path.dirname(path))
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            disk.remove_file(temporary + suffix)


def _copy_rows(source: str, target: str) -> None:
    try:
        with closing(sqlite3.connect(source, isolation_level=None)) as old:
            old.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
            # The number of the version may be what is damaged.
            version = find_version(old) or old.execute("PRAGMA user_version").fetchone()[0]
            if version not in SCHEMAS:
                raise StoreDamaged(f"{source} holds no timeline that this version of shadowtree knows")
            with closing(sqlite3.connect(target, isolation_level=None)) as new:
                _fill(old, new, version)
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, UnicodeError) as error:
        raise StoreDamaged(f"{source}: {error}") from error


def _fill(old: sqlite3.Connection, new: sqlite3.Connection, version: int) -> None:
    create = f"BEGIN; {schema_of(version)}; PRAGMA user_version = {version}; COMMIT;"
    new.executescript(f"PRAGMA journal_mode = WAL; {create}")
    tables = [name for (name,) in new.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    new.execute("BEGIN")
    for table in sorted(tables, key=lambda name: name == _SEQUENCE):
        columns = [str(row[1]) for row in new.execute(f"PRAGMA table_info({table})")]
        if table == _SEQUENCE:
            new.execute(f"DELETE FROM {_SEQUENCE}")
        marks = ", ".join("?" * len(columns))
        # NOT INDEXED: an index may be what is damaged.
        rows = old.execute(f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED")
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        new.executemany(insert, _mend_rows(table, columns, rows))
        _require_all(table, old, new)
    new.execute("COMMIT")
    if new.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise StoreDamaged("its rows do not fit together")


def _mend_rows(table: str, columns: Sequence[str], rows: Iterable[Any]) -> Iterator[Any]:
    """Give rows as they are, or as they were."""
    if "seal" not in columns:
        yield from rows
        return
    sealed = SEALED[table].split(", ")
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        content = [values[column] for column in sealed]
        if seal_of(*content) != values["seal"]:
            values.update(zip([*sealed, "seal"], mend(content, values["seal"]) or (), strict=False))
        yield [values[column] for column in columns]


def _require_all(table: str, old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Raise StoreDamaged if an index knows of more rows than were found: a page may end too early.

    An index that knows of fewer is damaged itself, and has been made anew.
    """
    ((copied,),) = new.execute(f"SELECT count(*) FROM {table} NOT INDEXED")
    for _, index, _, _, is_partial in new.execute(f"PRAGMA index_list({table})").fetchall():
        if is_partial:
            continue
        columns = ", ".join(str(row[2]) for row in new.execute(f"PRAGMA index_info({index})"))
        known = old.execute(f"SELECT {columns} FROM {table} INDEXED BY {index}").fetchall()
        if len(known) > copied:
            raise StoreDamaged(f"rows of {table} are lost")
