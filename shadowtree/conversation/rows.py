"""The rows of a session as lines of JSON. Pure.

A line is one row: the name of its table and the values of its columns in order, without trailing nulls. Bytes
are written as text if they are valid UTF-8, otherwise as `{"hex": "…"}`:

    events [3,1,"end",1800000000000,2,2,null,…]
"""

from __future__ import annotations

import json
import re

from shadowtree.timeline.sqlite.schema import (
    BRANCHES,
    CHANGES,
    EVENTS,
    MESSAGES,
    PINS,
    SESSIONS,
    SKIPS,
    TREES,
    Table,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]  # Any: an int, text or bytes, as the column holds, or None
    """One stored row, by column name."""

FORMAT = 1
ROWS_PREFIX = b"rows-"
ROWS_IN_BLOB = 16
"""How many messages one blob covers, with their rows of all tables; a push appends to the last blob."""
TABLES = (TREES, SESSIONS, MESSAGES, EVENTS, CHANGES, SKIPS, BRANCHES, PINS)
"""The tables that are pushed. Packs, intents and stamps belong to one machine. So do tombstones: with the id
of a secret, anybody who can read the refs could test guesses."""

_LOCAL = {EVENTS.name: ("intent", "elsewhere"), SESSIONS.name: ("origin", "wire_name")}
"""Columns that mean nothing on other machines, and are left empty."""
_COLUMN = re.compile(r"(\w+) (INTEGER|BLOB|TEXT)( NOT NULL| PRIMARY KEY)?")
_TYPES = {"INTEGER": int, "BLOB": bytes, "TEXT": str}
_COLUMNS = {
    table.name: {
        name: (_TYPES[kind], bool(needed))
        for name, kind, needed in _COLUMN.findall(table.create)
        if name in table.columns and name not in _LOCAL.get(table.name, ())
    }
    for table in TABLES
}
"""For each table and column, the type of its values and whether a value is required."""
_MOST = 1 << 63
_BY_NAME = {table.name.encode(): table for table in TABLES}


def encode_row(table: Table, row: Row) -> bytes:
    """Write a row as a line."""
    values = [_encode_value(row[name]) for name in _COLUMNS[table.name]]
    while values[-1] is None:
        values.pop()
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return b"%b %b\n" % (table.name.encode(), text.encode())


def decode_row(line: bytes) -> tuple[Table, Row]:
    """Parse a line into its table and row; raise KeyError, ValueError or RecursionError if malformed."""
    name, _, text = line.partition(b" ")
    table, values = _BY_NAME[name], json.loads(text)
    columns = _COLUMNS[table.name]
    if not isinstance(values, list) or len(values) > len(columns):
        raise ValueError(f"{line[:80]!r} has other columns")
    found = {name: value for name, value in zip(columns, values, strict=False) if value is not None}
    return table, _decode_columns(table, found)


def _decode_columns(table: Table, found: dict[str, Any]) -> Row:  # Any: what JSON holds
    columns = _COLUMNS[table.name]
    row: Row = dict.fromkeys(table.columns)
    for name, (kind, is_needed) in columns.items():
        if name in found:
            row[name] = _decode_value(found[name], kind)
        elif is_needed:
            raise ValueError(f"{name} is missing")
    return row


def _encode_value(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _decode_value(value: Any, kind: type) -> object:  # Any: what JSON holds
    if kind is bytes and isinstance(value, dict):
        return bytes.fromhex(str(value["hex"]))
    is_so = isinstance(value, str if kind is bytes else kind) and not isinstance(value, bool)
    if not is_so or (kind is int and not -_MOST <= value < _MOST):
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value.encode() if kind is bytes else value
