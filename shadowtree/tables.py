"""The tables of the timeline, version by version, and how a row becomes a value and a value a row.

Pure: it holds the words of SQL and never runs them; `journal` does.

Text is stored as UTF-8 bytes in which lone surrogates pass: they stand in names and in what was typed, and
SQLite's own text cannot hold them. Bytes also sort and compare as they are, which a prefix needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shadowtree.events import (
    ACTS,
    BEGIN,
    END,
    SNAPSHOT,
    STEP,
    STEP_END,
    WRAP,
    Age,
    BranchRow,
    Event,
    MessageRow,
    Named,
    PackRow,
    Position,
    TakenOut,
    Tombstone,
    TreeRecord,
)
from shadowtree.paths import RelPath
from shadowtree.seals import SEALED, UNSEALED, seal_of, select, unseal
from shadowtree.state import Change, PathState, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _list(kinds: Sequence[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)


# An index for some rows only serves who asks for them in the same words, so these are part of a version.
_IS_ACT_2 = "kind IN ('revert', 'undo', 'redo', 'unrevert', 'restore')"
IS_ACT = f"kind IN ({_list(ACTS)})"
IS_WRAP = f"kind = '{WRAP}'"

OF_MESSAGE = f"kind IN ({_list((BEGIN, END, SNAPSHOT, STEP, STEP_END))})"
WITH_CHANGES = f"kind IN ({_list((END, SNAPSHOT, *ACTS))})"
"""What a step changed its message changed too, so the end of a step is not among them."""

VERSION = 5
SCHEMAS = {
    1: """
CREATE TABLE trees (
    number INTEGER PRIMARY KEY,
    tree BLOB NOT NULL,
    facts BLOB NOT NULL,
    keeper BLOB NOT NULL,
    files INTEGER NOT NULL,
    time INTEGER NOT NULL
);
CREATE INDEX trees_by_id ON trees (tree);
""",
    2: f"""
CREATE TABLE sessions (number INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    id BLOB NOT NULL,
    role BLOB,
    text BLOB NOT NULL,
    meta BLOB,
    parent INTEGER,
    UNIQUE (session, id),
    UNIQUE (session, ordinal)
);
CREATE INDEX messages_by_session ON messages (session);
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    head INTEGER,
    tip INTEGER,
    open INTEGER,
    open_step BLOB,
    message INTEGER,
    step BLOB,
    before_tree INTEGER,
    after_tree INTEGER,
    since INTEGER,
    hole BLOB,
    inferred INTEGER NOT NULL,
    git_head BLOB,
    takes_back INTEGER,
    skips INTEGER,
    intent INTEGER
);
CREATE INDEX events_by_session ON events (session);
CREATE INDEX events_by_message ON events (message);
CREATE INDEX events_by_intent ON events (intent) WHERE intent IS NOT NULL;
CREATE INDEX acts_by_session ON events (session) WHERE {_IS_ACT_2};
CREATE INDEX wraps ON events (number) WHERE {IS_WRAP};
CREATE TABLE changes (
    event INTEGER NOT NULL,
    path BLOB NOT NULL,
    old_mode INTEGER,
    old_blob BLOB,
    new_mode INTEGER,
    new_blob BLOB,
    reason BLOB,
    PRIMARY KEY (event, path)
) WITHOUT ROWID;
CREATE INDEX changes_by_path ON changes (path, event);
CREATE TABLE skips (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE TABLE branches (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name BLOB NOT NULL,
    fork INTEGER,
    tip INTEGER NOT NULL,
    event INTEGER NOT NULL
);
CREATE INDEX branches_by_session ON branches (session);
CREATE TABLE intents (number INTEGER PRIMARY KEY AUTOINCREMENT, content BLOB NOT NULL);
""",
    3: f"""
ALTER TABLE events ADD COLUMN out BLOB;
ALTER TABLE changes ADD COLUMN merged INTEGER;
ALTER TABLE branches ADD COLUMN dropped INTEGER;
DROP INDEX acts_by_session;
CREATE INDEX acts_by_session ON events (session) WHERE {IS_ACT};
""",
    4: """
CREATE TABLE packs (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    boot TEXT NOT NULL,
    pack BLOB NOT NULL,
    pack_index BLOB NOT NULL
);
CREATE TABLE announced (number INTEGER PRIMARY KEY, name TEXT NOT NULL);
""",
    5: f"""
ALTER TABLE trees ADD COLUMN forgotten INTEGER;
ALTER TABLE messages ADD COLUMN forgotten INTEGER;
ALTER TABLE events ADD COLUMN forgotten INTEGER;
ALTER TABLE events ADD COLUMN change_count INTEGER;
CREATE TABLE pins (message INTEGER PRIMARY KEY, time INTEGER NOT NULL);
CREATE TABLE purged (number INTEGER PRIMARY KEY, path BLOB, blob BLOB, time INTEGER NOT NULL, done INTEGER);
CREATE TABLE fresh (number INTEGER PRIMARY KEY, name TEXT NOT NULL, versions BLOB NOT NULL);
{"".join(f"ALTER TABLE {table} ADD COLUMN seal INTEGER;" for table in SEALED)}
""",
}
"""What each version adds. Each index ends with the number of its rows, which SQLite adds by itself.

Intents are removed when they are done with, and AUTOINCREMENT never gives a number again: an old event must
not make a new intent look committed.
"""

TREES = select("trees")
SESSIONS = select("sessions")
EVENTS = select("events")
MESSAGES = select("messages")
CHANGES = select("changes")
BRANCHES = select("branches")
INTENTS = select("intents")
TOMBSTONES = select("purged")
PACKS = "SELECT number, name, CAST(boot AS BLOB), length(pack), length(pack_index) FROM packs"
SKIPS = "SELECT digest, content FROM skips"
INSERT_CHANGE = f"INSERT INTO changes ({SEALED['changes']}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
REPLACE_CHANGE = INSERT_CHANGE.replace("INSERT", "INSERT OR REPLACE", 1)
CHANGE_COUNTS = "SELECT number, coalesce(change_count, 0) FROM events WHERE forgotten IS NULL"
"""How many changes each event has; those of a forgotten one may have been removed."""

IS_LIVE = "forgotten IS NULL"
LIVE_FIRST = "forgotten IS NOT NULL"
"""Sorts what was forgotten behind all else."""
AGES = f"""SELECT messages.number, messages.session, role, min(events.number), events.time, pins.message
    FROM messages JOIN events ON events.message = messages.number AND kind IN ('{BEGIN}', '{SNAPSHOT}')
    LEFT JOIN pins ON pins.message = messages.number
    WHERE messages.forgotten IS NULL GROUP BY messages.number ORDER BY messages.number"""
NAMED = f"SELECT number, message, before_tree, after_tree FROM events WHERE NOT ({IS_WRAP})"
BARE_TREES = f"""SELECT number, time FROM trees WHERE {IS_LIVE} AND number NOT IN (
    SELECT before_tree FROM events WHERE before_tree IS NOT NULL
    UNION SELECT after_tree FROM events WHERE after_tree IS NOT NULL AND NOT ({IS_WRAP})) ORDER BY number"""

_NO_SEAL = f"'{UNSEALED}' FROM"
_NEW = {
    5: {
        CHANGE_COUNTS: "SELECT 0, 0 FROM events WHERE 0",
        **{f"{table}.seal FROM": _NO_SEAL for table in SEALED},
        f", change_count, forgotten, {_NO_SEAL}": f", NULL, NULL, {_NO_SEAL}",
        f", forgotten, {_NO_SEAL}": f", NULL, {_NO_SEAL}",
        f" AND {IS_LIVE}": "",
        f" WHERE {IS_LIVE}": "",
        f" {LIVE_FIRST},": "",
    },
    3: {
        f", out, NULL, NULL, {_NO_SEAL} events": f", NULL, NULL, NULL, {_NO_SEAL} events",
        f", merged, {_NO_SEAL} changes": f", NULL, {_NO_SEAL} changes",
        f", dropped, {_NO_SEAL} branches": f", NULL, {_NO_SEAL} branches",
        " AND dropped IS NULL": "",
    },
}
"""By version, what statements say of columns that it added, and what they say where those are not there yet.

The newest version comes first, so that each finds the words that the ones after it left.
"""

_NUMBERS = {int, type(None)}
_LARGE_BYTES = 512
_HEX = set("0123456789abcdef")
_BLOB_SIZES = {0o100000: 20, 0o120000: 20, 0o040000: 0}
"""The kinds of what can be at a path, and how long the id of its content is."""
_UNKNOWN = -1
"""Stands for a mode that nobody can say."""

IS_COUNTED = f"""old_mode IS NOT {_UNKNOWN} AND new_mode IS NOT {_UNKNOWN}
    AND ((old_mode & {0o170000}) <> {0o040000} OR (new_mode & {0o170000}) <> {0o040000})"""
"""Both sides are known, and one of them at least is a file or a link."""


def adapt(statement: str, version: int) -> str:
    """Make a statement that reads from tables of an older version too."""
    for added in _NEW:
        if version < added:
            for words, older in _NEW[added].items():
                statement = statement.replace(words, older)
    return statement


def encode_text(text: str | None) -> bytes | None:
    """Give text as it is stored; None stays None."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def decode_text(content: Any) -> Any:  # Any: text, or None where a column may be empty
    """Give stored text; None stays None."""
    return None if content is None else content.decode("utf-8", "surrogatepass")


def decode_tree(row: Any) -> TreeRecord:  # Any: a row of SQLite
    """Make a record of a row of `TREES`."""
    return TreeRecord(*unseal(row))


def decode_session(row: Any) -> tuple[int, str]:  # Any: a row of SQLite
    """Give number and name of a row of `SESSIONS`."""
    number, name = unseal(row)
    return number, decode_text(name)


def decode_message(row: Any) -> MessageRow:  # Any: a row of SQLite
    """Make a message of a row of `MESSAGES`."""
    number, session, ordinal, id_, role, text, meta, parent, forgotten = unseal(row)
    if not {type(value) for value in (session, ordinal, parent, forgotten)} <= _NUMBERS:
        raise ValueError("something else than a number")
    return MessageRow(
        number,
        session,
        ordinal,
        decode_text(id_),
        decode_text(role),
        decode_text(text),
        decode_text(meta),
        parent,
        forgotten,
    )


def encode_event(event: Event) -> dict[str, Any]:  # Any: whatever SQLite stores
    """Give the columns of an event, all but its number and its intent."""
    return {
        "session": event.session,
        "kind": event.kind,
        "time": event.time_ms,
        "head": event.position.head,
        "tip": event.position.tip,
        "open": event.position.open,
        "open_step": encode_text(event.position.step),
        "message": event.message,
        "step": encode_text(event.step),
        "before_tree": event.before,
        "after_tree": event.after,
        "since": event.since,
        "hole": encode_text(event.hole),
        "inferred": int(event.is_inferred),
        "git_head": encode_text(event.git_head),
        "takes_back": event.takes_back,
        "skips": event.skips,
        "out": encode_out(event.position.out),
    }


def encode_out(out: Sequence[TakenOut]) -> bytes | None:
    """Give the messages that were taken out as they are stored: `7:12,9:12`."""
    return ",".join(f"{taken.message}:{taken.newest}" for taken in out).encode("ascii") or None


def _decode_out(content: bytes | None) -> tuple[TakenOut, ...]:
    if content is None:
        return ()
    pairs = (pair.split(b":") for pair in content.split(b","))
    return tuple(TakenOut(int(message), int(newest)) for message, newest in pairs)


def decode_event(row: Any) -> Event:  # Any: a row of SQLite
    """Make an event of a row of `EVENTS`."""
    columns = unseal(row)
    number, session, kind, time_ms, head, tip, open_, open_step, message, step, before, after, *rest = columns
    since, hole, inferred, git_head, takes_back, skips, out, _, forgotten = rest
    numbers = (
        session,
        time_ms,
        head,
        tip,
        open_,
        message,
        before,
        after,
        since,
        takes_back,
        skips,
        forgotten,
    )
    if not {type(value) for value in numbers} <= _NUMBERS:
        raise ValueError("something else than a number")
    return Event(
        number,
        session,
        kind,
        time_ms,
        Position(head, tip, open_, decode_text(open_step), _decode_out(out)),
        message,
        decode_text(step),
        before,
        after,
        since,
        decode_text(hole),
        bool(inferred),
        decode_text(git_head),
        takes_back,
        skips,
        forgotten,
    )


def encode_change(event: int, change: Change) -> tuple[object, ...]:
    """Give the columns of a change, in the order of `CHANGES`, and its seal."""
    reasons = [side.reason for side in (change.old, change.new) if isinstance(side, Unknown)]
    # No reason holds a NUL, so two of them can be told apart.
    reason = encode_text("\0".join(reasons)) if reasons else None
    merged = int(change.is_merged) or None
    states = *_encode_state(change.old), *_encode_state(change.new)
    columns = event, bytes(change.path), *states, reason, merged
    return *columns, seal_of(*columns)


def decode_change(row: Any) -> tuple[int, Change]:  # Any: a row of SQLite
    """Make a change of a row of `CHANGES`, with the event that it belongs to."""
    event, path, old_mode, old_blob, new_mode, new_blob, reason, merged = unseal(row)
    if not isinstance(path, bytes):
        raise ValueError("a path that is no path")  # noqa: TRY004 - what cannot be decoded is a ValueError
    text = decode_text(reason or b"")
    old_reason, _, new_reason = text.partition("\0") if old_mode == new_mode else (text, "", text)
    old = _decode_state(old_mode, old_blob, old_reason)
    new = _decode_state(new_mode, new_blob, new_reason)
    return event, Change(RelPath(path), old, new, bool(merged))


def _encode_state(state: PathState | Unknown | None) -> tuple[int | None, bytes | None]:
    if state is None:
        return None, None
    if isinstance(state, Unknown):
        return _UNKNOWN, None
    return state.mode, state.blob or None


def _decode_state(mode: int | None, blob: bytes | None, reason: str) -> PathState | Unknown | None:
    if mode is None:
        return None
    if mode == _UNKNOWN:
        return Unknown(reason)
    # What a flipped bit makes of a row would come into somebody's worktree.
    if mode & ~0o777 not in _BLOB_SIZES or len(blob or b"") != _BLOB_SIZES[mode & ~0o777]:
        raise ValueError(f"mode {mode:o}")
    return PathState(mode, blob or b"")


def decode_branch(row: Any) -> BranchRow:  # Any: a row of SQLite
    """Make a branch of a row of `BRANCHES`."""
    number, session, name, fork, tip, event, _ = unseal(row)
    return BranchRow(number, session, decode_text(name), fork, tip, event)


def decode_age(row: Any) -> Age:  # Any: a row of SQLite
    """Make a value of a row of `AGES`."""
    number, session, role, event, time_ms, pin = row
    return Age(number, session, decode_text(role), event, time_ms, pin is not None)


def decode_named(row: Any) -> Named:  # Any: a row of SQLite
    """Make a value of a row of `NAMED`."""
    event, message, *trees = row
    return Named(event, message, tuple(int(tree) for tree in trees if tree is not None))


def decode_tombstone(row: Any) -> Tombstone:  # Any: a row of SQLite
    """Make a value of a row of `TOMBSTONES`."""
    _, path, blob, time_ms, _ = unseal(row)
    return Tombstone(path, blob, int(time_ms))


def decode_pack(row: Any) -> PackRow:  # Any: a row of SQLite
    """Make a pack of a row of `PACKS`."""
    number, name, boot, pack_size, index_size = row
    # If it is not the one that was written, the files are compared, and it is written anew.
    return PackRow(
        number, check_pack_name(name), boot.decode(errors="replace"), int(pack_size), int(index_size)
    )


def check_pack_name(name: Any) -> str:  # Any: whatever SQLite stores
    """Give a name by which files may be written or removed; ValueError if it is none that a pack has."""
    if not isinstance(name, str) or len(name) != 45 or set(name[5:]) - _HEX or not name.startswith("pack-"):
        raise ValueError(name)
    return name


def encode_versions(versions: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write which objects came in place of which: ids of 20 bytes, in pairs."""
    return b"".join([new + old for new, old in versions])


def decode_versions(row: Any) -> list[tuple[bytes, bytes]]:  # Any: a row of SQLite
    """Read which objects came in place of which."""
    (content,) = row
    if len(content) % 40:
        raise ValueError("versions are pairs of ids")
    return [(content[at : at + 20], content[at + 20 : at + 40]) for at in range(0, len(content), 40)]


def encode_skips(pairs: list[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Give the digest of a list of paths and reasons, and its content: JSON, deflated if that is worth it."""
    import json
    import zlib
    from hashlib import sha256

    content = json.dumps(pairs, separators=(",", ":")).encode("ascii")
    is_large = len(content) >= _LARGE_BYTES
    return sha256(content).digest(), zlib.compress(content) if is_large else content


def decode_skips(row: Any) -> list[tuple[str, str]]:  # Any: a row of SQLite
    """Make a list of paths and reasons of a row of `SKIPS`."""
    import json
    import zlib
    from hashlib import sha256

    digest, content = row
    # A list begins with a bracket, and what zlib made never does.
    if not content.startswith(b"["):
        try:
            content = zlib.decompress(content)
        except zlib.error as error:
            raise ValueError(error) from error
    if sha256(content).digest() != digest:
        raise ValueError("it is not what was written")
    return [(path, reason) for path, reason in json.loads(content)]
