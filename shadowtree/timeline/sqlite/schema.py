"""The tables of the timeline, each described once, and the values in their rows.

A flipped bit leaves a row that SQLite reads without complaint: another path, another mode, another tree, a
message that was never forgotten. Rows decide what is written into a worktree and what is swept. So each such
row has a seal, a checksum of its columns, which is compared whenever the row is read.

Text is stored as UTF-8 bytes that may hold lone surrogates: names and typed text contain them, and SQLite's
own text cannot hold them. Bytes also sort and compare as they are, which searching for a prefix needs.

Numbers count up over all sessions of a store; order is by number, because clocks go back. The position of a
session is a fold over its events (`position`), and each event carries the result so far, so that no reader
has to start at the first event.

Pure: this module holds SQL and never runs it; `database` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import Change, PathState, RelPath, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
"""The format of the timeline that this version writes; it is stored as SQLite's user_version."""
APPLICATION = 0x5368_6478
"""SQLite's application_id of a timeline."""
UNRELEASED_APPLICATIONS = (0, 0x5368_6477)
"""The application_ids before the first release."""

# The kinds of events.
WRAP = "wrap"
BEGIN = "begin"
END = "end"
SNAPSHOT = "snapshot"
"""Begin and end in one: the message was recorded after it was over."""
STEP = "step"
STEP_END = "step-end"
REVERT = "revert"
UNDO = "undo"
REDO = "redo"
UNREVERT = "unrevert"
RESTORE = "restore"
SWITCH = "switch"
HEAD_ONLY = "head-only"
"""A revert that moved the head and left the files alone: its changes record the state expected of them."""
JOIN = "join"
"""Moves to messages that another machine recorded, or back from them, and touches no file: its changes record
the state expected of each path afterwards."""

ACTS = (REVERT, UNDO, REDO, UNREVERT, RESTORE, SWITCH, HEAD_ONLY, JOIN)
"""The events that write into the worktree, or could have."""


@frozen
class TakenOut:
    """A message that was taken out of the line while later ones stayed."""

    message: int
    newest: int
    """The session's last message at that time: later ones were made without this one."""


@frozen
class Position:
    """Where a session stands. Messages are named by their numbers."""

    head: int | None = None
    """The last message in force; the open one, if there is one."""
    tip: int | None = None
    """The last message of the present line; those after the head are undone."""
    open: int | None = None
    """The message that has begun and not ended."""
    out: tuple[TakenOut, ...] = ()
    """Messages on the present line that are not in force, though later ones are."""

    def is_out(self, message: int) -> bool:
        """Return whether a message was taken out of the line."""
        return any(taken.message == message for taken in self.out)


@frozen
class TreeRecord:
    """One recorded tree."""

    number: int
    """Counts up; order is by number, because clocks go back."""
    tree: bytes
    facts: bytes
    also: bytes
    """The joined ids of blobs outside the tree that are needed as long as it is."""
    files: int
    time_s: int
    forgotten_ms: int | None = None
    """When retention forgot it; its objects may be gone."""

    @property
    def blobs_beside(self) -> list[bytes]:
        """The ids of blobs outside the tree that are needed as long as it is."""
        return [self.also[at : at + 20] for at in range(0, len(self.also), 20)]


@frozen
class MessageRow:
    """A message, as it was described when it began."""

    number: int
    session: int
    ordinal: int
    """Its place among all messages of its session, from 1 on."""
    id: str
    role: str | None
    text: str
    meta: str | None
    """The caller's JSON object, as text."""
    parent: int | None
    """The message that was in force when it began."""
    turn: int = 1
    """The number of its turn on its line, from 1 on."""
    forgotten_ms: int | None = None
    """When retention forgot it; its text and its JSON are removed, and its trees may be too."""


@frozen
class BranchChange:
    """An act's change to a branch."""

    number: int
    was_listed: bool
    """False if the act added it, or listed it again."""
    was: tuple[int, int, int] | None = None
    """Fork (0: none), tip and event before the act moved it; None if it only left or joined the list."""


@frozen
class Event:
    """Something that happened in a session."""

    number: int
    session: int
    kind: str
    time_ms: int = 0
    position: Position = Position()
    """Where the session stood afterwards."""
    message: int | None = None
    """The message that began or ended, or whose step did."""
    step: str | None = None
    before: int | None = None
    """The number of the tree before the event; for an end, the tree before the message or step."""
    after: int | None = None
    """The number of the tree after the event."""
    since: int | None = None
    """The event at which `before` was recorded: its changes may include what others did after that."""
    is_inferred: bool = False
    """The caller did not end the message; for a snapshot, no caller announced the message."""
    git_head: str | None = None
    """The commit at HEAD of the user's repository."""
    takes_back: int | None = None
    """The act that an unrevert reverses."""
    skips: int | None = None
    """The number of the list of paths that the snapshot left out."""
    meta: str | None = None
    """For the begin of a step: the caller's JSON object, as text."""
    forgotten_ms: int | None = None
    """When its trees were forgotten."""
    part_of: int | None = None
    """The message of which an act reverted only some paths, or one step."""
    branches: tuple[BranchChange, ...] = ()
    """The changes to branches, so that reversing the event can restore them."""
    unprotected: int | None = None
    """For an end: the number of the list of unprotected files that changed."""
    is_elsewhere: bool = False
    """Another machine recorded it."""


@frozen
class BranchRow:
    """Archived messages: those after the fork, up to the tip. No message is on two branches."""

    number: int
    session: int
    name: str
    fork: int | None
    """The message after which it branches off."""
    tip: int
    """Its last message."""
    event: int
    """The event that archived it, or the last one before that."""


@frozen
class Intent:
    """An act that is about to change the worktree, or was interrupted."""

    number: int
    content: bytes
    is_committed: bool
    """The act is in the timeline, and only cleaning up is left. Otherwise it has to be rolled back."""


_TYPES = {
    "key": "INTEGER PRIMARY KEY",
    "counted": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "number": "INTEGER",
    "flag": "INTEGER",
    "text": "BLOB",
    "bytes": "BLOB",
    "word": "TEXT",
}
_TYPES.update({f"{kind}!": f"{type} NOT NULL" for kind, type in _TYPES.items()})
"""The types of columns; `!` means NOT NULL. A `text` may be any Python string, a `word` is one of our own."""


def seal_of(columns: Sequence[object]) -> int:
    """Return the seal of a row's columns."""
    return zlib.crc32(ascii(tuple(columns)).encode())


class Table:
    """One table. Its first column is the key; its last is the seal, unless the table has no seals."""

    def __init__(self, name: str, columns: str, *constraints: str, seals: bool = True, end: str = "") -> None:
        """Describe a table by the name and the type (of `_TYPES`) of each column."""
        pairs = [column.split() for column in columns.split(", ")]
        self.name = name
        self.columns = [column for column, _ in pairs]
        self.key = self.columns[0]
        self.is_sealed = seals
        self._texts = [place for place, (_, kind) in enumerate(pairs) if kind.startswith("text")]
        self._flags = [place for place, (_, kind) in enumerate(pairs) if kind.startswith("flag")]
        listed = ", ".join(self.columns)
        types = [f"{column} {_TYPES[kind]}" for column, kind in pairs]
        types += ["seal INTEGER NOT NULL"] if seals else []
        self.create = f"CREATE TABLE {name} ({', '.join([*types, *constraints])}){end};"
        self.select = f"SELECT {listed}{f', {name}.seal' if seals else ''} FROM {name}"
        marks = ", ".join("?" * (len(pairs) + seals))
        self.insert = f"INSERT INTO {name} ({listed}{', seal' if seals else ''}) VALUES ({marks})"
        counted = "max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'intents'"
        numbered = f"max({self.key}), 0) + 1 FROM {name}"
        self.next_number = f"SELECT coalesce({counted if 'counted' in columns else numbered}"

    def encode(self, values: Sequence[object]) -> list[object]:
        """Return a row as it is stored, with its seal; missing columns at the end are NULL."""
        row = [*values, *[None] * (len(self.columns) - len(values))]
        for place in self._texts:
            row[place] = encode_text(row[place])
        for place in self._flags:
            row[place] = int(bool(row[place]))
        return self.seal(row)

    def seal(self, columns: Sequence[object]) -> list[object]:
        """Return stored columns with their seal."""
        return [*columns, seal_of(columns)] if self.is_sealed else [*columns]

    def unseal(self, row: Any) -> list[Any]:  # Any: a row of SQLite, and its columns
        """Return the stored columns of a row; raise ValueError if they do not match the seal."""
        columns = [*row]
        seal = columns.pop()
        if seal != seal_of(columns):
            raise ValueError("it does not match its checksum")
        return columns

    def decode(self, row: Any) -> list[Any]:  # Any: a row of SQLite, and its values
        """Return the values of a row; raise ValueError if it does not match its seal."""
        columns = self.unseal(row)
        for place in self._texts:
            columns[place] = decode_text(columns[place])
        for place in self._flags:
            columns[place] = bool(columns[place])
        return columns


TREES = Table(
    "trees",
    "number key, tree bytes!, facts bytes!, also bytes!, files number!, time number!, forgotten number",
)
SESSIONS = Table("sessions", "number key, name text!, forgotten number, origin word, wire_name text")
"""A session with an `origin` began in another store, where its name is `wire_name`."""
MESSAGES = Table(
    "messages",
    "number key, session number!, ordinal number!, id text!, role text, text text!, meta text, "
    "parent number, turn number!, forgotten number",
    "UNIQUE (session, id)",
    "UNIQUE (session, ordinal)",
)
EVENTS = Table(
    "events",
    "number key, session number!, kind word!, time number!, head number, tip number, open number, "
    "out bytes, message number, step text, before_tree number, after_tree number, "
    "since number, inferred flag!, git_head text, takes_back number, skips number, meta text, "
    "forgotten number, part_of number, branches bytes, unprotected number, intent number, "
    "change_count number, elsewhere number, whole number",
)
"""An event marked `elsewhere` was recorded by another machine and never happened in this worktree. If it is
`whole`, its changes are exactly the differences between its trees."""
CHANGES = Table(
    "changes",
    "event number!, path bytes!, old_mode number, old_blob bytes, new_mode number, new_blob bytes, "
    "reason text, merged number",
    "PRIMARY KEY (event, path)",
    end=" WITHOUT ROWID",
)
SKIPS = Table("skips", "number key, digest bytes!, content bytes!", "UNIQUE (digest)", seals=False)
BRANCHES = Table(
    "branches",
    "number key, session number!, name text!, fork number, tip number!, event number!, dropped number",
)
INTENTS = Table("intents", "number counted, content bytes!")
"""Rows are removed when they are done with, and no number is used again: an old event must not make a new
intent look committed."""
STAMPS = Table("stamps", "session key, content bytes!")
"""By session, the stamps of uncovered files at the last event that is not a step."""
PINS = Table("pins", "message key, time number!")
PURGED = Table("purged", "number key, path bytes, blob bytes, time number!, done number, stays number")
"""A row with `stays` is not a tombstone: the content of the purged path remains at other paths."""
WRITER = Table("writer", "number key, id word!")
"""At most one row: the id of this store on other machines."""
REMOTES = Table("remotes", "number key, name text!, url text!, state bytes!", "UNIQUE (name)")
PACKS = Table(
    "packs",
    "number key, name word!, state word!, boot word!, temporary word, versions bytes!, pack bytes, "
    "pack_index bytes",
    seals=False,
)
"""Packs that still need work on their files, or that are not repacked yet (`pack_rows`)."""

SEALED = (
    *(TREES, SESSIONS, MESSAGES, EVENTS, CHANGES, BRANCHES, INTENTS, STAMPS, PINS, PURGED),
    *(WRITER, REMOTES),
)
TABLES = (*SEALED, SKIPS, PACKS)
WITHOUT_GAPS = (TREES, SESSIONS, MESSAGES, EVENTS, SKIPS)
"""The tables whose numbers count up from 1: only their newest rows are ever removed."""


def _list(kinds: Sequence[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)


# SQLite uses a partial index only for a statement with the same condition.
IS_ACT = f"kind IN ({_list(ACTS)})"
IS_WRAP = f"kind = '{WRAP}'"
IS_BEGIN = f"kind IN ({_list((BEGIN, SNAPSHOT))})"
IS_END = f"kind IN ({_list((END, SNAPSHOT))})"
OF_MESSAGE = f"kind IN ({_list((BEGIN, END, SNAPSHOT, STEP, STEP_END))})"
WITH_CHANGES = f"kind IN ({_list((END, SNAPSHOT, *ACTS))})"
"""Without the ends of steps, because the changes of a step are also changes of its message."""
IS_LIVE = "forgotten IS NULL"
IS_HERE = "elsewhere IS NULL"

SCHEMA = f"""
{"".join(table.create for table in TABLES)}
CREATE INDEX trees_by_id ON trees (tree);
CREATE INDEX sessions_by_name ON sessions (name);
CREATE UNIQUE INDEX live_sessions ON sessions (name) WHERE {IS_LIVE};
CREATE INDEX messages_by_session ON messages (session);
CREATE INDEX events_by_session ON events (session);
CREATE INDEX events_by_message ON events (message);
CREATE INDEX events_by_intent ON events (intent) WHERE intent IS NOT NULL;
CREATE INDEX acts_by_session ON events (session) WHERE {IS_ACT};
CREATE INDEX wraps ON events (number) WHERE {IS_WRAP};
CREATE INDEX changes_by_path ON changes (path, event);
CREATE INDEX branches_by_session ON branches (session);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""
"""Turns an empty file into a timeline. SQLite appends the number of the row to each entry of an index."""

CHANGE_COUNTS = f"SELECT number, coalesce(change_count, 0) FROM events WHERE {IS_LIVE}"
"""How many changes each event has; those of a forgotten one may have been removed."""

_BLOB_SIZES = {0o100000: 20, 0o120000: 20, 0o040000: 0}
"""The kinds of entries at a path, and the length of the id of their content."""
_UNKNOWN = -1
"""Stored as the mode of an unknown state."""

IS_COUNTED = f"""old_mode IS NOT {_UNKNOWN} AND new_mode IS NOT {_UNKNOWN}
    AND ((old_mode & {0o170000}) <> {0o040000} OR (new_mode & {0o170000}) <> {0o040000})"""
"""Both sides are known, and at least one of them is a file or a link."""


def encode_text(text: Any) -> bytes | None:  # Any: text, or None where a column may be empty
    """Return text as it is stored; None stays None."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def decode_text(content: Any) -> Any:  # Any: text, or None where a column may be empty
    """Return stored text; None stays None."""
    return None if content is None else content.decode("utf-8", "surrogatepass")


def decode_tree(row: Any) -> TreeRecord:  # Any: a row of SQLite
    """Decode a row of `TREES`."""
    return TreeRecord(*TREES.decode(row))


def decode_message(row: Any) -> MessageRow:  # Any: a row of SQLite
    """Decode a row of `MESSAGES`."""
    return MessageRow(*MESSAGES.decode(row))


def event_values(event: Event, intent: int | None) -> list[object]:
    """Return the columns of an event, in the order of `EVENTS`, without its number."""
    stands = event.position
    out = ",".join(f"{taken.message}:{taken.newest}" for taken in stands.out).encode("ascii")
    position = stands.head, stands.tip, stands.open, out or None
    what = event.message, event.step, event.before, event.after, event.since
    rest = event.is_inferred, event.git_head, event.takes_back, event.skips, event.meta, event.forgotten_ms
    acted = event.part_of, encode_branch_changes(event.branches), event.unprotected
    return [event.session, event.kind, event.time_ms, *position, *what, *rest, *acted, intent]


def decode_event(row: Any) -> Event:  # Any: a row of SQLite
    """Decode a row of `EVENTS`."""
    *columns, branches, unprotected, _, _, elsewhere, _ = EVENTS.decode(row)
    number, session, kind, time_ms, head, tip, open_, out, *rest = columns
    pairs = () if out is None else (pair.split(b":") for pair in out.split(b","))
    taken = tuple(TakenOut(int(message), int(newest)) for message, newest in pairs)
    rest += [() if branches is None else decode_branch_changes(branches), unprotected, elsewhere is not None]
    return Event(number, session, kind, time_ms, Position(head, tip, open_, taken), *rest)


def encode_change(event: int, change: Change) -> list[object]:
    """Return the row of a change."""
    reasons = [side.reason for side in (change.old, change.new) if isinstance(side, Unknown)]
    # No reason holds a NUL, so it can separate two of them.
    reason = encode_text("\0".join(reasons)) if reasons else None
    states = *_encode_state(change.old), *_encode_state(change.new)
    return CHANGES.seal((event, bytes(change.path), *states, reason, int(change.is_merged) or None))


def decode_change(row: Any) -> tuple[int, Change]:  # Any: a row of SQLite
    """Decode a row of `CHANGES` into the number of its event and the change."""
    event, path, old_mode, old_blob, new_mode, new_blob, reason, merged = CHANGES.unseal(row)
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
    # An impossible state must never be written into a worktree.
    if mode & ~0o777 not in _BLOB_SIZES or len(blob or b"") != _BLOB_SIZES[mode & ~0o777]:
        raise ValueError(f"mode {mode:o}")
    return PathState(mode, blob or b"")


def decode_branch(row: Any) -> BranchRow:  # Any: a row of SQLite
    """Decode a row of `BRANCHES`."""
    *columns, _ = BRANCHES.decode(row)
    return BranchRow(*columns)


def encode_branch_changes(changes: Sequence[BranchChange]) -> bytes | None:
    """Encode changes to branches: `+7` was listed, `-7` dropped, `7:5:6:12` had fork 5, tip 6, event 12."""
    signs = {True: "-", False: "+"}
    each = [
        f"{signs[change.was_listed]}{change.number}"
        if change.was is None
        else ":".join(map(str, (change.number, *change.was)))
        for change in changes
    ]
    return ",".join(each).encode("ascii") or None


def decode_branch_changes(content: bytes) -> tuple[BranchChange, ...]:
    """Decode changes to branches."""
    found = []
    for each in content.split(b","):
        if each[:1] in (b"+", b"-"):
            found.append(BranchChange(int(each[1:]), was_listed=each[:1] == b"-"))
        else:
            number, fork, tip, event = map(int, each.split(b":"))
            found.append(BranchChange(number, was_listed=True, was=(fork, tip, event)))
    return tuple(found)
