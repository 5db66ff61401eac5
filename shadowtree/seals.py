"""Seals: by its seal a row of the timeline proves that it still is what was written.

A flipped bit leaves a row that SQLite reads without complaint: another path, another mode, another tree, a
message that was never forgotten. What a row says decides what is written into a worktree and what is swept,
so every row that does carries a checksum of its columns, which is compared whenever the row is read.

Triggers that live only as long as a connection seal what it adds or changes, so that no statement can forget
to; and they refuse to change a row that is damaged, which would seal the damage.

Pure: it holds the words of SQL and never runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SEALED = {
    "trees": "number, tree, facts, keeper, files, time, forgotten",
    "sessions": "number, name",
    "messages": "number, session, ordinal, id, role, text, meta, parent, forgotten",
    "events": "number, session, kind, time, head, tip, open, open_step, message, step, before_tree,"
    " after_tree, since, hole, inferred, git_head, takes_back, skips, out, change_count, forgotten",
    "changes": "event, path, old_mode, old_blob, new_mode, new_blob, reason, merged",
    "branches": "number, session, name, fork, tip, event, dropped",
    "intents": "number, content",
    "pins": "message, time",
    "purged": "number, path, blob, time, done",
}
"""The columns of each table that its seal is made of; the first one tells its rows apart."""
CHANGES = "changes"
"""The table whose rows come by the thousand: they are sealed before they are added, and never changed."""
WITHOUT_GAPS = ("trees", "sessions", "messages", "events", "skips")
"""The tables of which no row is ever removed: their numbers count up from 1."""
SEAL_FUNCTION = "seal_of"
_LONGEST_MENDED = 8192
"""How many bytes a row has at most in which a flipped bit is looked for: each bit of it is tried."""
_NUMBER_SIZES = (1, 2, 3, 4, 6, 8)
"""In how many bytes SQLite stores a number."""
UNSEALED = "unsealed"
"""What stands in place of the seal where a table has none yet."""


def seal_of(*columns: object) -> int:
    """Give the seal of a row's columns."""
    return crc32(ascii(columns).encode())


def unseal(row: Any) -> Any:  # Any: a row of SQLite, and its columns
    """Give the columns of a row whose last one is its seal; ValueError if they are not what was sealed."""
    *columns, seal = row
    if seal not in (seal_of(*columns), UNSEALED):
        raise ValueError("it is not what was written")
    return columns


def mend(columns: Sequence[Any], seal: object) -> list[Any] | None:  # Any: columns of SQLite
    """Give the row of which one bit was flipped, in a column or in the seal, with its seal; None: not found.

    A checksum of 32 bits tells one row from the thousand that differ from it in one bit.
    """
    found = seal_of(*columns)
    if isinstance(seal, int) and (found ^ seal).bit_count() == 1:
        return [*columns, found]
    if sum(len(column) for column in columns if isinstance(column, bytes | str)) > _LONGEST_MENDED:
        return None
    for place, column in enumerate(columns):
        for other in _list_neighbours(column):
            candidate = [*columns[:place], other, *columns[place + 1 :]]
            if seal_of(*candidate) == seal:
                return [*candidate, seal]
    return None


def _list_neighbours(column: object) -> Iterator[object]:
    """Give what a column may have been before one bit of it was flipped, or one that tells its type."""
    if column is None:
        yield from (0, 1)
    elif isinstance(column, int):
        yield from (None, 0, 1)
        for size in _NUMBER_SIZES:
            if -(1 << 8 * size - 1) <= column < 1 << 8 * size - 1:
                for content in _flip_each(column.to_bytes(size, "big", signed=True)):
                    yield int.from_bytes(content, "big", signed=True)
    elif isinstance(column, str):
        content = column.encode("utf-8", "surrogateescape")
        yield content
        yield from (other.decode("utf-8", "surrogateescape") for other in _flip_each(content))
    elif isinstance(column, bytes):
        yield column.decode("utf-8", "surrogateescape")
        yield from _flip_each(column)


def _flip_each(content: bytes) -> Iterator[bytes]:
    number = int.from_bytes(content, "big")
    for bit in range(8 * len(content)):
        yield (number ^ 1 << bit).to_bytes(len(content), "big")


def select(table: str) -> str:
    """Say how the rows of a table are read, with their seals."""
    return f"SELECT {SEALED[table]}, {table}.seal FROM {table}"


def compute(table: str, row: str = "") -> str:
    """Say what the seal of a row should be; in a trigger `row` names which one."""
    columns = ", ".join(f"{row}{column.strip()}" for column in SEALED[table].split(","))
    return f"{SEAL_FUNCTION}({columns})"


def key_of(table: str) -> str:
    """Name the column that tells the rows of a table apart."""
    return SEALED[table].partition(",")[0]


def triggers() -> Iterator[str]:
    """Give the statements by which a connection seals all that it writes."""
    for table, columns in SEALED.items():
        if table == CHANGES:
            continue
        key = key_of(table)
        seal = f"BEGIN UPDATE {table} SET seal = {compute(table, 'NEW.')} WHERE {key} = NEW.{key}; END"
        yield f"CREATE TEMP TRIGGER add_{table} AFTER INSERT ON main.{table} {seal}"
        yield f"CREATE TEMP TRIGGER change_{table} AFTER UPDATE OF {columns} ON main.{table} {seal}"
        yield (
            f"CREATE TEMP TRIGGER require_{table} BEFORE UPDATE OF {columns} ON main.{table}"
            f" WHEN OLD.seal IS NOT {compute(table, 'OLD.')}"
            f" BEGIN SELECT RAISE(ABORT, 'a row of {table} is not what was written'); END"
        )
