"""Read sessions back from commits, checking every row before the first one is written.

Rows from other machines are not trusted, because rows decide what is written into a worktree. Each row must
be one that this version could have written. Everything it refers to must exist, down to the last blob, and no
path may lead out of the worktree. Together, the rows must form a possible session: printable names, valid
times, and a possible order of events.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter

from shadowtree.base.arguments import check_message_id, check_name
from shadowtree.base.errors import InvalidInput, StoreDamaged, StoreTooNew
from shadowtree.base.paths import Change, PathState, is_forbidden
from shadowtree.capture.recorded_tree import list_changes, open_recorded
from shadowtree.conversation.rows import FORMAT, ROWS_PREFIX, TABLES, decode_row
from shadowtree.conversation.session_rows import REFERENCES, key_of, list_derivable, list_needed
from shadowtree.store.git_format import MODE_FILE, MODE_TREE
from shadowtree.store.objects import Objects
from shadowtree.timeline.sqlite import schema
from shadowtree.timeline.sqlite.schema import (
    ACTS,
    BEGIN,
    CHANGES,
    END,
    SNAPSHOT,
    STEP,
    STEP_END,
    Table,
    decode_text,
)
from shadowtree.timeline.sqlite.unprotected import decode_skips

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
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last that `datetime` supports."""
_COMMIT = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
_MOST_SKIPS_BYTES = 64 << 20
_NEEDED = {
    BEGIN: ("message", "before_tree"),
    END: ("message", "before_tree", "after_tree"),
    SNAPSHOT: ("message", "before_tree", "after_tree"),
    STEP: ("message", "step", "before_tree"),
    STEP_END: ("message", "step", "before_tree", "after_tree"),
    **dict.fromkeys(ACTS, ("before_tree", "after_tree")),
}
"""The columns that an event of each kind must have."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn any error that malformed rows raise into StoreDamaged."""
    try:
        yield
    except (AttributeError, InvalidInput, KeyError, RecursionError, TypeError, ValueError) as error:
        raise StoreDamaged(f"{what} cannot be read: {error}") from error


# Reading


def read_session(commit: bytes, objects: Objects) -> Rows:
    """Read the rows of one session from their commit, and check them one by one and together.

    Raises StoreDamaged if anything is malformed or missing, and StoreTooNew if a newer version wrote it. The
    objects that recorded trees need are left to `check_objects`.
    """
    with refusing(f"session {commit.hex()}"):
        head, _, _ = objects.read(b"commit", commit).partition(b"\n")
        _require(head.startswith(b"tree ") and len(head) == 45, "it is no commit")
        rows = _read_rows(bytes.fromhex(head[5:].decode()), objects)
        for row in rows["skips"]:
            _check_skips(row["content"])
        numbers = {table.name: {row[table.key] for row in rows[table.name]} for table in TABLES}
        for table in TABLES:
            _check_table(table, rows[table.name], numbers)
        _check_session(rows)
        _check_messages(rows["messages"])
        _check_events(rows["events"], numbers["messages"])
        _check_counts(rows)
    return rows


def list_kept(tree: bytes, objects: Objects) -> set[tuple[bytes, ...]]:
    """Return the keys (see `key_of`) of the recorded trees in rows that were pushed before as `tree`."""
    with refusing("what was pushed before"):
        return {key_of(row) for row in _read_rows(tree, objects)["trees"]}


def _read_rows(tree: bytes, objects: Objects) -> Rows:
    root = {entry.name: entry.id for entry in objects.read_tree(tree)}
    version = int(objects.read(b"blob", root[b"format"]))
    if version > FORMAT:
        raise StoreTooNew("a session", version, FORMAT)
    _require(version > 0, f"format {version}")
    rows: Rows = {table.name: [] for table in TABLES}
    for name, blob in root.items():
        for line in objects.read(b"blob", blob).splitlines() if name.startswith(ROWS_PREFIX) else ():
            table, row = decode_row(line)
            rows[table.name].append(row)
    return {table.name: sorted(rows[table.name], key=itemgetter(*table.columns[:2])) for table in TABLES}


def derive_changes(event: Row, trees: Mapping[int, Row], objects: Objects) -> list[Row]:
    """Derive the changes of a `whole` event from its two trees."""
    before, after = (
        open_recorded(objects, trees[event[column]]["tree"], trees[event[column]]["facts"])
        for column in ("before_tree", "after_tree")
    )
    changes = list_changes(before, after)
    _require(len(changes) == event["change_count"], f"changes of event {event['number']} are others")
    rows = [schema.encode_change(event["number"], change) for change in changes]
    return [dict(zip(CHANGES.columns, row[:-1], strict=True)) for row in rows]


# Checking


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)


def _check_skips(content: bytes) -> None:
    """Raise ValueError if this is not a list of paths and reasons, or inflates to too many bytes."""
    if not content.startswith(b"["):
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(content, _MOST_SKIPS_BYTES)
        except zlib.error as error:
            raise ValueError(error) from error
        _require(inflater.eof, "a list of paths is too long")
    for path, reason in json.loads(content):
        _require(isinstance(path, str) and isinstance(reason, str), "a list of paths has something else")


def _check_table(table: Table, rows: list[Row], numbers: dict[str, set[int]]) -> None:
    """Check each row, and that the rows it refers to exist."""
    decode: Callable[[list[object]], object] = _DECODERS.get(table.name, table.decode)
    for row in rows:
        value = decode(table.seal([row[column] for column in table.columns]))
        if table is CHANGES:
            _check_path(*value)  # type: ignore[misc]  # a change with its event
        for column, named in REFERENCES.get(table.name, {}).items():
            is_there = row[column] is None or row[column] in numbers[named.name]
            _require(is_there, f"{column} {row[column]} of {table.name} is missing")
        meta = row.get("meta")
        _require(meta is None or isinstance(json.loads(meta), dict), "meta is not an object")
    known = numbers[table.name]
    _require(table is CHANGES or len(known) == len(rows), f"a row of {table.name} comes twice")
    if table in schema.WITHOUT_GAPS and known:
        _require((min(known), max(known)) == (1, len(known)), f"rows of {table.name} are missing")


def _check_path(_: int, change: Change) -> None:
    """Refuse a path that no snapshot could have; unknown paths may have names that git forbids."""
    is_file = any(isinstance(state, PathState) for state in (change.old, change.new))
    for name in change.path.split(b"/"):
        is_possible = name not in (b"", b".", b"..") and b"\0" not in name
        _require(is_possible and not (is_file and is_forbidden(name)), f"{change.path!r} is not a path")


def _check_session(rows: Rows) -> None:
    """Raise ValueError or InvalidInput unless these are rows of one session, with possible values."""
    _require([row["number"] for row in rows["sessions"]] == [1], "it is not one session")
    _require(rows["sessions"][0]["forgotten"] is None, "it is forgotten")
    check_name(decode_text(rows["sessions"][0]["name"]), "session")
    for table, column, factor in (("events", "time", 1), ("trees", "time", 1000), ("pins", "time", 1)):
        _require(all(0 <= row[column] * factor <= _LAST_MS for row in rows[table]), f"a time of {table}")
    for table in ("trees", "messages", "events"):
        times = (row["forgotten"] for row in rows[table])
        _require(all(time is None or 0 <= time <= _LAST_MS for time in times), f"a time of {table}")
    for row in rows["branches"]:
        check_name(decode_text(row["name"]), "branch")


def _check_messages(messages: list[Row]) -> None:
    for row in messages:
        check_message_id(decode_text(row["id"]))
        if row["role"] is not None:
            check_name(decode_text(row["role"]), "role")
        _require(row["ordinal"] > 0 and row["turn"] > 0, "a message has no place")
        # This ensures that every walk up from a message ends.
        _require(row["parent"] is None or row["parent"] < row["number"], "a message is above itself")
    for column in ("id", "ordinal"):
        values = {row[column] for row in messages}
        _require(len(values) == len(messages), f"a message has the {column} of another")


def _check_events(events: list[Row], messages: set[int]) -> None:
    """Check that each message begins once, ends at most once, and has no events before or after."""
    begun: set[int] = set()
    ended: set[int] = set()
    steps: set[tuple[int, bytes]] = set()
    for row in events:
        kind, message = row["kind"], row["message"]
        _require(kind in _NEEDED, f"{kind!r} is not a kind of event")
        _require(all(row[column] is not None for column in _NEEDED[kind]), f"a {kind} does not say enough")
        _require(row["git_head"] is None or bool(_COMMIT.fullmatch(row["git_head"])), "a commit has no id")
        _require(row["since"] is None or row["since"] < row["number"], "an event follows a later one")
        if kind in ACTS:
            _require(message is None, "an act has a message")
            continue
        if kind in (BEGIN, SNAPSHOT):
            _require(message not in begun, "a message begins twice")
            begun.add(message)
        _require(message in begun and message not in ended, "something happens in no message")
        if kind in (END, SNAPSHOT):
            ended.add(message)
        if kind in (STEP, STEP_END):
            step = message, row["step"]
            check_name(decode_text(row["step"]), "step")
            _require((step in steps) == (kind == STEP_END), "a step begins twice, or ends only")
            steps.add(step)
    _require(begun == messages, "not every message has begun")


def _check_counts(rows: Rows) -> None:
    """Check that no changes are missing, except those that can be derived from trees."""
    counts, derivable = Counter(row["event"] for row in rows["changes"]), list_derivable(rows)
    for row in rows["events"]:
        count, is_forgotten = counts[row["number"]], row["forgotten"] is not None
        is_left_out = row["number"] in derivable and not count
        is_whole = is_forgotten or is_left_out or count == (row["change_count"] or 0)
        _require(is_whole, f"changes of event {row['number']} are missing")


def check_objects(rows: Rows, objects: Objects, is_known: Callable[[Row], bool] = lambda row: False) -> None:
    """Read back every object that recorded trees need, except those of trees that `is_known` accepts.

    Raises StoreDamaged if something is missing or damaged.
    """
    seen: set[bytes] = set()
    blobs: set[bytes] = set()
    for row in rows["trees"]:
        for entry in () if is_known(row) else list_needed(row):
            if entry.mode == MODE_FILE:
                blobs.add(entry.id)
            else:
                blobs.update(_list_blobs(objects, entry.id, seen))
    for blob in blobs:
        objects.require_blob(blob)


def _list_blobs(objects: Objects, tree: bytes, seen: set[bytes]) -> Iterator[bytes]:
    """Yield the blobs below a tree; skip trees in `seen`, and add the others to it."""
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
