"""The rows of one session, renumbered from 1 in each table.

Rows are renumbered when they leave a store, so that a session has the same rows on every machine, whatever
else its store holds; and again when they enter one, so that they fit in with its rows. Pure, except for the
functions that read.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen, replace
from shadowtree.conversation.ref_names import Wire
from shadowtree.conversation.rows import TABLES
from shadowtree.store.git_format import MODE_FILE, MODE_TREE, TreeEntry
from shadowtree.timeline.sqlite import schema
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import (
    BRANCHES,
    CHANGES,
    EVENTS,
    IS_HERE,
    IS_LIVE,
    MESSAGES,
    PINS,
    SESSIONS,
    SKIPS,
    TREES,
    WRITER,
    Table,
    decode_branch_changes,
    encode_branch_changes,
    encode_text,
)
from shadowtree.timeline.sqlite.unprotected import decode_skips, encode_skips

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row

    Rows = dict[str, list[Row]]
    """The rows of each table, in order."""
    Numbers = dict[str, dict[int, int]]
    """For each table, the new number of each row."""

REFERENCES: dict[str, dict[str, Table]] = {
    "messages": {"session": SESSIONS, "parent": MESSAGES},
    "events": {
        "session": SESSIONS,
        **dict.fromkeys(("message", "head", "tip", "open", "part_of"), MESSAGES),
        **dict.fromkeys(("before_tree", "after_tree"), TREES),
        **dict.fromkeys(("since", "takes_back"), EVENTS),
        **dict.fromkeys(("skips", "unprotected"), SKIPS),
    },
    "changes": {"event": EVENTS},
    "branches": {"session": SESSIONS, "fork": MESSAGES, "tip": MESSAGES, "event": EVENTS},
    "pins": {"message": MESSAGES},
}
"""For each table and column, the table whose rows its numbers refer to."""
_MAY_BE_GONE = ("since", "takes_back")
"""These columns may refer to events of no session, or of a session that is not here."""
_TOLD = ("agent", "tool")
"""Keys of a caller's JSON that hold no private text, and are always pushed."""
_ID_DIGITS = 12


@frozen
class LocalSession:
    """A session of this store, and how other machines know it."""

    number: int
    name: str
    """Its name here."""
    wire: Wire
    is_own: bool
    """Some of its events were recorded here."""


def list_sessions(database: Database) -> list[LocalSession]:
    """List the sessions that were not dropped; the first call gives the store an id."""
    writer = _name_writer(database)
    recorded = f"SELECT DISTINCT session FROM events WHERE {IS_HERE}"
    own = {number for (number,) in database.rows(recorded)}
    rows = database.read(SESSIONS.decode, f"{SESSIONS.select} WHERE {IS_LIVE} ORDER BY number")
    found = []
    for number, name, _, origin, wire_name in rows:
        if origin is None:
            began = sha256(f"{writer} {number}".encode()).hexdigest()[:_ID_DIGITS]
            wire = Wire(name, began, began)
        else:
            wire = Wire(wire_name, origin, writer)
        found.append(LocalSession(number, name, wire, number in own))
    return found


def _name_writer(database: Database) -> str:
    for _, id in database.read(WRITER.decode, WRITER.select):
        return str(id)
    id = os.urandom(_ID_DIGITS // 2).hex()
    database.add(WRITER, id)
    return id


def read_session_rows(database: Database, session: int) -> Rows:
    """Read all rows of a session and renumber them from 1; raise StoreDamaged if one is damaged."""
    rows: Rows = {
        "sessions": _read(database, SESSIONS, "WHERE number = ?", session),
        "messages": _read(database, MESSAGES, "WHERE session = ? ORDER BY number", session),
        "events": _read(database, EVENTS, "WHERE session = ? ORDER BY number", session),
        "branches": _read(database, BRANCHES, "WHERE session = ? ORDER BY number", session),
    }
    trees = {row[column] for row in rows["events"] for column in ("before_tree", "after_tree")} - {None}
    rows["trees"] = _read_of(database, TREES, trees)
    skips = [row[column] for row in rows["events"] for column in ("skips", "unprotected") if row[column]]
    # In order of first use: in the store, the order of lists also depends on other sessions.
    lists = {row["number"]: row for row in _read_of(database, SKIPS, {*skips})}
    rows["skips"] = [lists[number] for number in dict.fromkeys(skips)]
    rows["changes"] = _read_of(database, CHANGES, {row["number"] for row in rows["events"]})
    counts = Counter(row["event"] for row in rows["changes"])
    for row in rows["events"]:
        if row["forgotten"] is None and counts[row["number"]] != (row["change_count"] or 0):
            raise StoreDamaged(f"{database.path} has lost changes of event {row['number']}")
    rows["pins"] = _read_of(database, PINS, {row["number"] for row in rows["messages"]})
    name = rows["sessions"][0]["wire_name"] or rows["sessions"][0]["name"]
    rows["sessions"] = [{**rows["sessions"][0], "name": name, "origin": None, "wire_name": None}]
    numbers: Numbers = {
        table.name: {row["number"]: rank for rank, row in enumerate(rows[table.name], 1)}
        for table in TABLES
        if table.key == "number"
    }
    return {table.name: [renumber(table, row, numbers) for row in rows[table.name]] for table in TABLES}


def _read(database: Database, table: Table, condition: str, *values: object) -> list[Row]:
    return _decode(database, table, database.rows(f"{table.select} {condition}", *values))


def _read_of(database: Database, table: Table, keys: Collection[int]) -> list[Row]:
    rows = database.rows_of(f"{table.select} WHERE {table.key} IN", sorted(keys))
    return sorted(_decode(database, table, rows), key=lambda row: (row[table.key], row[table.columns[1]]))


def _decode(database: Database, table: Table, rows: Iterable[object]) -> list[Row]:
    unseal: Callable[..., list[object]] = table.unseal if table.is_sealed else list
    return [dict(zip(table.columns, columns, strict=True)) for columns in database.decode(unseal, rows)]


def renumber(table: Table, row: Row, numbers: Mapping[str, Mapping[int, int]]) -> Row:
    """Return a row with new numbers, its own and those it refers to; raise ValueError if one is unknown."""
    new = dict(row)
    if table.key == "number":
        new["number"] = numbers[table.name][row["number"]]
    for column, named in REFERENCES.get(table.name, {}).items():
        new[column] = numbers[named.name].get(row[column])
        if new[column] is None and row[column] is not None and column not in _MAY_BE_GONE:
            raise ValueError(f"{column} {row[column]} of {table.name} is missing")
    if table is EVENTS:
        new |= {"intent": None, "elsewhere": None}
        new["out"] = _renumber_out(row["out"], numbers["messages"])
        new["branches"] = _renumber_branches(row["branches"], numbers)
    return new


def _renumber_out(out: bytes | None, messages: Mapping[int, int]) -> bytes | None:
    """Renumber the messages that are out of the line, each with the message that was newest then."""
    if out is None:
        return None
    pairs = [
        (int(message), int(newest)) for message, newest in (pair.split(b":") for pair in out.split(b","))
    ]
    # The message that was newest may not be here: all that matters is which messages came after it.
    return b",".join(
        b"%d:%d"
        % (messages[message], max((messages[each] for each in messages if each <= newest), default=0))
        for message, newest in pairs
    )


def _renumber_branches(content: bytes | None, numbers: Mapping[str, Mapping[int, int]]) -> bytes | None:
    """Renumber the changes that an act made to branches; leave out those that refer to missing rows."""
    if content is None:
        return None
    branches, messages, events = numbers["branches"], numbers["messages"], numbers["events"]
    found = []
    for change in decode_branch_changes(content):
        was = change.was
        if change.number not in branches:
            continue
        if was is not None:
            fork, tip, event = was
            if (fork and fork not in messages) or tip not in messages or event not in events:
                continue
            was = messages.get(fork, 0), messages[tip], events[event]
        found.append(replace(change, number=branches[change.number], was=was))
    return encode_branch_changes(found)


# What recorded trees need


def list_needed(row: Row) -> list[TreeEntry]:
    """List the objects that a recorded tree needs, as tree entries; a forgotten tree needs none."""
    if row["forgotten"] is not None:
        return []
    also: bytes = row["also"]
    blobs = [also[start : start + 20] for start in range(0, len(also), 20)]
    return [
        TreeEntry(b"tree", MODE_TREE, row["tree"]),
        TreeEntry(b"facts", MODE_TREE, row["facts"]),
        *[TreeEntry(b"also-%d" % place, MODE_FILE, blob) for place, blob in enumerate(blobs)],
    ]


def key_of(row: Row) -> tuple[bytes, ...]:
    """Return a key that is equal for recorded trees that need the same objects."""
    return row["tree"], row["facts"], row["also"]


def list_derivable(rows: Rows) -> set[int]:
    """Return the numbers of the events whose changes can be derived from their trees."""
    live = {row["number"] for row in rows["trees"] if row["forgotten"] is None}
    return {
        row["number"]
        for row in rows["events"]
        if row["whole"] and row["forgotten"] is None and {row["before_tree"], row["after_tree"]} <= live
    }


# What may be pushed


def withhold_texts(rows: Rows, after: int) -> Rows:
    """Remove texts and JSON of messages numbered above `after`, and branch names, which are made of texts."""
    silent = {row["number"] for row in rows["messages"] if row["number"] > after}
    return {
        **rows,
        "messages": [
            {**row, "text": b"", "meta": _keep_told(row["meta"])} if row["number"] in silent else row
            for row in rows["messages"]
        ],
        "events": [
            {**row, "meta": _keep_told(row["meta"])} if row["message"] in silent else row
            for row in rows["events"]
        ],
        "branches": [
            {**row, "name": b"branch-%d" % row["number"]} if row["tip"] in silent else row
            for row in rows["branches"]
        ],
    }


def _keep_told(meta: bytes | None) -> bytes | None:
    found = {} if meta is None else json.loads(meta)
    told = {key: found[key] for key in _TOLD if isinstance(found.get(key), str)}
    return json.dumps(told).encode() if told else None


def withhold_local_paths(rows: Rows) -> Rows:
    """Remove the paths of files outside the worktree that tools wrote."""
    skips = {row["number"]: row for row in rows["skips"]}
    unprotected = {row["unprotected"] for row in rows["events"]} - {None}
    for number in unprotected:
        pairs = decode_skips([*skips[number].values()])
        inside = [pair for pair in pairs if not pair[0].startswith("/")]
        if inside != pairs:
            digest, content = encode_skips(inside)
            skips[number] = {"number": number, "digest": digest, "content": content}
    events = [
        {**row, "meta": _drop_outside(row["meta"])} if row["kind"] == schema.STEP else row
        for row in rows["events"]
    ]
    return _merge_equal_skips({**rows, "skips": [*skips.values()], "events": events})


def _drop_outside(meta: bytes | None) -> bytes | None:
    if meta is None or b'"outside"' not in meta:
        return meta
    found = json.loads(meta)
    found.pop("outside", None)
    return encode_text(json.dumps(found))


def _merge_equal_skips(rows: Rows) -> Rows:
    """Merge lists that have become equal, and number the lists without gaps."""
    places: dict[bytes, int] = {}
    for row in rows["skips"]:
        places.setdefault(row["digest"], len(places) + 1)
    new = {row["number"]: places[row["digest"]] for row in rows["skips"]}
    kept = {places[row["digest"]]: {**row, "number": places[row["digest"]]} for row in rows["skips"]}
    columns = ("skips", "unprotected")
    events = [
        {**row, **{column: None if row[column] is None else new[row[column]] for column in columns}}
        for row in rows["events"]
    ]
    return {**rows, "skips": [*kept.values()], "events": events}
