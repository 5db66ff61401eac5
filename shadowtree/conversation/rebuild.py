"""The timeline rebuilt from its ref: every row is checked before the first one is written.

What comes from elsewhere is not trusted, because a row decides what is written into a worktree. Each row must
be one that this version could have written, what it names must be there, down to the last blob, and no path
may lead out of the worktree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter

from shadowtree.base.errors import InvalidInput, StoreDamaged, StoreTooNew
from shadowtree.base.paths import Change, PathState, is_forbidden
from shadowtree.capture.recorded_tree import list_changes, open_recorded
from shadowtree.conversation.encode import key_of, list_derivable, list_needed
from shadowtree.conversation.ref_names import TIMELINE_REF
from shadowtree.conversation.rows import FORMAT, ROWS_PREFIX, TABLES, decode_row, decode_short
from shadowtree.conversation.session_check import check_session, check_skips, require
from shadowtree.conversation.session_rows import REFERENCES
from shadowtree.store.git_format import MODE_FILE, MODE_TREE
from shadowtree.store.objects import Objects
from shadowtree.timeline import schema
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import CHANGES, EVENTS, Table
from shadowtree.timeline.unprotected import decode_skips

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row
    from shadowtree.conversation.session_rows import Rows

_DECODERS: dict[str, Callable[[list[object]], object]] = {
    "trees": schema.decode_tree,
    "events": schema.decode_event,
    "changes": schema.decode_change,
    "skips": decode_skips,
}
_KINDS = {schema.WRAP, schema.BEGIN, schema.END, schema.SNAPSHOT, schema.STEP, schema.STEP_END, *schema.ACTS}


def rebuild_timeline(refs: Mapping[str, bytes], objects: Objects, database: Database) -> None:
    """Fill an empty timeline from the refs of another one, with all of it or nothing.

    Raises StoreDamaged if anything is malformed or missing, and StoreTooNew if a newer version wrote it.
    """
    if any(database.rows(f"SELECT 1 FROM {table.name} LIMIT 1") for table in TABLES):
        raise InvalidInput("only an empty timeline can be rebuilt")
    with refusing(TIMELINE_REF):
        rows = _read_rows(refs[TIMELINE_REF], objects)
        _check_rows(rows)
        require(all(row["forgotten"] is None for row in rows["trees"][-1:]), "the last tree is forgotten")
    check_objects(rows, objects)
    with database.transaction():
        for table in TABLES:
            database.execute_all(table.insert, [_seal(table, row) for row in rows[table.name]])


def read_session(commit: bytes, objects: Objects) -> Rows:
    """Read the rows of one session from the commit that holds them, and check each by itself and together.

    Raises StoreDamaged and StoreTooNew as above. What recorded trees need is for `check_objects`.
    """
    with refusing(f"session {commit.hex()}"):
        head, _, _ = objects.read(b"commit", commit).partition(b"\n")
        require(head.startswith(b"tree ") and len(head) == 45, "it is no commit")
        rows = _read_session_rows(bytes.fromhex(head[5:].decode()), objects)
        for row in rows["skips"]:
            check_skips(row["content"])
        _check_rows(rows, list_derivable(rows))
        check_session(rows)
    return rows


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn whatever malformed rows raise into StoreDamaged."""
    try:
        yield
    except (AttributeError, InvalidInput, KeyError, RecursionError, TypeError, ValueError) as error:
        raise StoreDamaged(f"{what} cannot be read: {error}") from error


def _seal(table: Table, row: Row) -> list[object]:
    return table.seal([row[column] for column in table.columns])


# Reading


def _read_root(tree: bytes, objects: Objects) -> dict[bytes, bytes]:
    root = {entry.name: entry.id for entry in objects.read_tree(tree)}
    version = int(objects.read(b"blob", root[b"format"]))
    if version > FORMAT:
        raise StoreTooNew(TIMELINE_REF, version, FORMAT)
    if version < 1:
        raise ValueError(f"format {version}")
    return root


def _read_session_rows(tree: bytes, objects: Objects) -> Rows:
    rows: Rows = {table.name: [] for table in TABLES}
    for name, blob in _read_root(tree, objects).items():
        for line in objects.read(b"blob", blob).splitlines() if name.startswith(ROWS_PREFIX) else ():
            table, row = decode_short(line)
            rows[table.name].append(row)
    return {table.name: sorted(rows[table.name], key=itemgetter(*table.columns[:2])) for table in TABLES}


def list_kept(tree: bytes, objects: Objects) -> set[tuple[bytes, ...]]:
    """List what the recorded trees of a session need that was pushed before, by the tree of its rows."""
    with refusing("what was pushed before"):
        return {key_of(row) for row in _read_session_rows(tree, objects)["trees"]}


def derive_changes(event: Row, trees: Mapping[int, Row], objects: Objects) -> list[Row]:
    """Work out what an event changed that is whole, from its trees."""
    before, after = (
        open_recorded(objects, trees[event[column]]["tree"], trees[event[column]]["facts"])
        for column in ("before_tree", "after_tree")
    )
    changes = list_changes(before, after)
    require(len(changes) == event["change_count"], f"changes of event {event['number']} are others")
    rows = [schema.encode_change(event["number"], change) for change in changes]
    return [dict(zip(CHANGES.columns, row[:-1], strict=True)) for row in rows]


def _read_rows(tree: bytes, objects: Objects) -> Rows:
    root = _read_root(tree, objects)
    folders = {entry.name: entry.id for entry in objects.read_tree(root[b"rows"])} if b"rows" in root else {}
    rows: Rows = {}
    for table in TABLES:
        folder = folders.pop(table.name.encode(), None)
        blobs = () if folder is None else _list_blobs(objects, folder, set())
        lines = [line for blob in blobs for line in objects.read(b"blob", blob).splitlines()]
        by_number = itemgetter(*table.columns[:2])
        rows[table.name] = sorted([decode_row(table, line) for line in lines], key=by_number)
    if folders:
        raise ValueError(f"nothing is known of {sorted(folders)}")
    return rows


def _list_blobs(objects: Objects, tree: bytes, seen: set[bytes]) -> Iterator[bytes]:
    """Give the blobs below a tree, without those in trees that were seen."""
    waiting = [tree]
    while waiting:
        tree = waiting.pop()
        if tree in seen:
            continue
        seen.add(tree)
        for entry in objects.read_tree(tree):
            if entry.mode == MODE_TREE:
                waiting.append(entry.id)
            else:
                yield entry.id


# Checking


def _check_rows(rows: Rows, derivable: Collection[int] = ()) -> None:
    """Raise ValueError, or whatever reading them raises, if rows are no timeline.

    The changes of events that are `derivable` may have been left out.
    """
    numbers = {table.name: {row[table.key] for row in rows[table.name]} for table in TABLES}
    for table in TABLES:
        _check_table(table, rows[table.name], numbers)
    for row in rows["messages"]:
        # So every walk from a message to those above it ends.
        require(row["parent"] is None or row["parent"] < row["number"], "a message is above itself")
        require(row["meta"] is None or isinstance(json.loads(row["meta"]), dict), "meta is not an object")
    for row in rows["events"]:
        require(row["meta"] is None or isinstance(json.loads(row["meta"]), dict), "meta is not an object")
    begun = {row["message"] for row in rows["events"] if row["kind"] in (schema.BEGIN, schema.SNAPSHOT)}
    require(begun == numbers["messages"], "not every message has begun")
    counts = Counter(row["event"] for row in rows["changes"])
    for row in rows["events"]:
        require(row["kind"] in _KINDS, f"{row['kind']!r} is not a kind of event")
        is_whole = row["forgotten"] is not None or counts[row["number"]] == (row["change_count"] or 0)
        is_whole |= row["number"] in derivable and not counts[row["number"]]
        require(is_whole, f"changes of event {row['number']} are missing")


def _check_table(table: Table, rows: list[Row], numbers: dict[str, set[int]]) -> None:
    decode: Callable[[list[object]], object] = _DECODERS.get(table.name, table.decode)
    for row in rows:
        value = decode(_seal(table, row))
        if table is CHANGES:
            _check_path(*value)  # type: ignore[misc]  # a change with its event
        for column, named in REFERENCES.get(table.name, {}).items():
            is_nobody = table is EVENTS and column == "session" and row[column] == 0
            is_there = row[column] is None or is_nobody or row[column] in numbers[named.name]
            require(is_there, f"{column} {row[column]} of {table.name} is missing")
    known = numbers[table.name]
    require(table is CHANGES or len(known) == len(rows), f"a row of {table.name} comes twice")
    if table in schema.WITHOUT_GAPS and known:
        require((min(known), max(known)) == (1, len(known)), f"rows of {table.name} are missing")


def _check_path(_: int, change: Change) -> None:
    """Refuse a path that no snapshot could have; what is unknown may have a name that git forbids."""
    is_file = any(isinstance(state, PathState) for state in (change.old, change.new))
    for name in change.path.split(b"/"):
        is_possible = name not in (b"", b".", b"..") and b"\0" not in name
        require(is_possible and not (is_file and is_forbidden(name)), f"{change.path!r} is not a path")


def check_objects(rows: Rows, objects: Objects, is_known: Callable[[Row], bool] = lambda row: False) -> None:
    """Read back all that recorded trees need, but for those that are known to be whole.

    Raises StoreDamaged if something is missing or damaged.
    """
    seen: set[bytes] = set()
    blobs: set[bytes] = set()
    for row in rows["trees"]:
        for _, mode, id in () if is_known(row) else list_needed(row):
            blobs.update([id] if mode == MODE_FILE else _list_blobs(objects, id, seen))
    for blob in blobs:
        objects.require_blob(blob)
