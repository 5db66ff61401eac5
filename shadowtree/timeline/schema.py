"""The tables of the timeline, each described once, and the values in their rows.

A flipped bit leaves a row that SQLite reads without complaint: another path, another mode, another tree, a
message that was never forgotten. What a row says decides what is written into a worktree and what is swept,
so every row that does bears a seal, a checksum of its columns, which is compared whenever the row is read.

Text is stored as UTF-8 bytes in which lone surrogates pass: they stand in names and in what was typed, and
SQLite's own text cannot hold them. Bytes also sort and compare as they are, which a prefix needs.

Numbers count up over all sessions of a store; order is by number, because clocks go back. Rows are never
changed, but for those of branches, and to mark what was forgotten: where a session stands is a fold over its
events (`position`), and each event carries the position that the fold had come to, so that nobody has to
begin at the first one.

Pure: it holds the words of SQL and never runs them; `database` does.
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
"""What SQLite's application_id says of a timeline."""
UNRELEASED_APPLICATIONS = (0, 0x5368_6477)
"""What it said before there was a first release."""

# The kinds of events.
WRAP = "wrap"
BEGIN = "begin"
END = "end"
SNAPSHOT = "snapshot"
"""Begin and end in one: the message was recorded when it was over."""
STEP = "step"
STEP_END = "step-end"
REVERT = "revert"
UNDO = "undo"
REDO = "redo"
UNREVERT = "unrevert"
RESTORE = "restore"
SWITCH = "switch"
HEAD_ONLY = "head-only"
"""A revert that moved the head and left the files alone: its changes tell what is expected of them now."""
JOIN = "join"
"""No file was touched: it leads to messages that another machine recorded, or back from them, and its changes
tell what is expected of each path then."""

ACTS = (REVERT, UNDO, REDO, UNREVERT, RESTORE, SWITCH, HEAD_ONLY, JOIN)
"""What writes into the worktree, or could have."""


@frozen
class TakenOut:
    """A message that was taken out of the line, while later ones stayed."""

    message: int
    newest: int
    """The last message of the session when that was done: those after it were made without this one."""


@frozen
class Position:
    """Where a session stands. Messages are named by their numbers."""

    head: int | None = None
    """The last message in force; the open one, if there is one."""
    tip: int | None = None
    """The last message of the present line; after the head come the undone ones."""
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
    """The ids, joined, of blobs beside the tree that are needed as long as it is."""
    files: int
    time_s: int
    forgotten_ms: int | None = None
    """When retention took it away; its objects may be gone."""

    @property
    def blobs_beside(self) -> list[bytes]:
        """The blobs beside the tree that are needed as long as it is."""
        return [self.also[at : at + 20] for at in range(0, len(self.also), 20)]


@frozen
class MessageRow:
    """What was said of a message when it began."""

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
    """When retention took it away: of its text, its JSON and its trees nothing is left."""


@frozen
class BranchChange:
    """What an act did to a branch."""

    number: int
    was_listed: bool
    """Otherwise the act added it, or listed it again."""
    was: tuple[int, int, int] | None = None
    """Fork (0: none), tip and event before the act moved it; None: it only left the list, or joined it."""


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
    """The number of the tree recorded before it; of an end the message's own before."""
    after: int | None = None
    """The number of the tree recorded after it."""
    since: int | None = None
    """The event at which `before` was recorded: what others did from there on may be among its changes."""
    is_inferred: bool = False
    """Nobody said that the message was over; of a snapshot, nobody said that there was one."""
    git_head: str | None = None
    """The commit that the user's repository stood at."""
    takes_back: int | None = None
    """The act that an unrevert reverses."""
    skips: int | None = None
    """Where the journal keeps what the snapshot left out."""
    meta: str | None = None
    """The caller's JSON object of a step that began, as text."""
    forgotten_ms: int | None = None
    """When its trees were forgotten."""
    part_of: int | None = None
    """The message of which an act reverted only some paths, or one step."""
    branches: tuple[BranchChange, ...] = ()
    """What an act did to the branches, so that reversing it can restore them."""
    unprotected: int | None = None
    """Of an end: where the journal keeps which files changed that no snapshot covers."""
    is_elsewhere: bool = False
    """Another machine recorded it."""


@frozen
class BranchRow:
    """Messages that were archived: those from after the fork to the tip. No message is on two branches."""

    number: int
    session: int
    name: str
    fork: int | None
    """The message that it branches off after."""
    tip: int
    """Its last message."""
    event: int
    """The event that archived it, or that was the last one before."""


@frozen
class Intent:
    """An act that is about to be done in the worktree, or was not finished."""

    number: int
    content: bytes
    is_committed: bool
    """The act is in the timeline; what is left is to clean up. Otherwise it has to be taken back."""


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
"""What columns hold; with `!` never nothing. A `text` is any text of Python, a `word` one of ours."""


def seal_of(columns: Sequence[object]) -> int:
    """Return the seal of a row's columns."""
    return zlib.crc32(ascii(tuple(columns)).encode())


class Table:
    """One table. The first column is its key; the last one, unless it is a table without seals, the seal."""

    def __init__(self, name: str, columns: str, *constraints: str, seals: bool = True, end: str = "") -> None:
        """Describe a table by the name of each column and what it holds; with `!` it is never empty."""
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
        """Return a row with its seal; columns at the end that are left out are empty."""
        row = [*values, *[None] * (len(self.columns) - len(values))]
        for place in self._texts:
            row[place] = encode_text(row[place])
        for place in self._flags:
            row[place] = int(bool(row[place]))
        return self.seal(row)

    def seal(self, columns: Sequence[object]) -> list[object]:
        """Return columns as they are stored, with their seal."""
        return [*columns, seal_of(columns)] if self.is_sealed else [*columns]

    def unseal(self, row: Any) -> list[Any]:  # Any: a row of SQLite, and its columns
        """Return the stored columns of a row; ValueError if they are not what was written."""
        columns = [*row]
        seal = columns.pop()
        if seal != seal_of(columns):
            raise ValueError("it does not match its checksum")
        return columns

    def decode(self, row: Any) -> list[Any]:  # Any: a row of SQLite, and its values
        """Return the values of a row; ValueError if they are not what was written."""
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
"""With an `origin`, it began in another store, where it has the name `wire_name`."""
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
"""What is `elsewhere` was recorded by another machine: it never happened in this worktree. If it is `whole`,
its changes are all that is different between its trees, and nothing else."""
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
"""Rows are removed when they are done with, and no number is given again: an old event must not make a new
intent look committed."""
STAMPS = Table("stamps", "session key, content bytes!")
"""By session, how the files were that no snapshot covers when a message last began or ended."""
PINS = Table("pins", "message key, time number!")
PURGED = Table("purged", "number key, path bytes, blob bytes, time number!, done number, stays number")
"""With `stays` it is no tombstone: what the path held is still at others, until it is to go everywhere."""
WRITER = Table("writer", "number key, id word!")
"""One row at most: what other machines call this store."""
REMOTES = Table("remotes", "number key, name text!, url text!, state bytes!", "UNIQUE (name)")
PACKS = Table(
    "packs",
    "number key, name word!, state word!, boot word!, temporary word, versions bytes!, pack bytes, "
    "pack_index bytes",
    seals=False,
)
"""Packs on their way: what is left to do with the files of each. Rows are removed when they are done with."""

SEALED = (
    *(TREES, SESSIONS, MESSAGES, EVENTS, CHANGES, BRANCHES, INTENTS, STAMPS, PINS, PURGED),
    *(WRITER, REMOTES),
)
TABLES = (*SEALED, SKIPS, PACKS)
WITHOUT_GAPS = (TREES, SESSIONS, MESSAGES, EVENTS, SKIPS)
"""The tables of which no row is ever removed: their numbers count up from 1."""


def _list(kinds: Sequence[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)


# An index for some rows only serves a statement that asks for them in the same words.
IS_ACT = f"kind IN ({_list(ACTS)})"
IS_WRAP = f"kind = '{WRAP}'"
IS_BEGIN = f"kind IN ({_list((BEGIN, SNAPSHOT))})"
IS_END = f"kind IN ({_list((END, SNAPSHOT))})"
OF_MESSAGE = f"kind IN ({_list((BEGIN, END, SNAPSHOT, STEP, STEP_END))})"
WITH_CHANGES = f"kind IN ({_list((END, SNAPSHOT, *ACTS))})"
"""What a step changed its message changed too, so the end of a step is not among them."""
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
"""All that makes an empty file a timeline. SQLite ends each index with the number of its rows."""

CHANGE_COUNTS = f"SELECT number, coalesce(change_count, 0) FROM events WHERE {IS_LIVE}"
"""How many changes each event has; those of a forgotten one may have been removed."""

_BLOB_SIZES = {0o100000: 20, 0o120000: 20, 0o040000: 0}
"""The kinds of what can be at a path, and how long the id of its content is."""
_UNKNOWN = -1
"""Stands for a mode that nobody can say."""

IS_COUNTED = f"""old_mode IS NOT {_UNKNOWN} AND new_mode IS NOT {_UNKNOWN}
    AND ((old_mode & {0o170000}) <> {0o040000} OR (new_mode & {0o170000}) <> {0o040000})"""
"""Both sides are known, and one of them at least is a file or a link."""


def encode_text(text: Any) -> bytes | None:  # Any: text, or None where a column may be empty
    """Return text as it is stored; None stays None."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def decode_text(content: Any) -> Any:  # Any: text, or None where a column may be empty
    """Return stored text; None stays None."""
    return None if content is None else content.decode("utf-8", "surrogatepass")


def decode_tree(row: Any) -> TreeRecord:  # Any: a row of SQLite
    """Make a record of a row of `TREES`."""
    return TreeRecord(*TREES.decode(row))


def decode_message(row: Any) -> MessageRow:  # Any: a row of SQLite
    """Make a message of a row of `MESSAGES`."""
    return MessageRow(*MESSAGES.decode(row))


def event_values(event: Event, intent: int | None) -> list[object]:
    """Return the columns of an event, in the order of `EVENTS`, but for its number."""
    stands = event.position
    out = ",".join(f"{taken.message}:{taken.newest}" for taken in stands.out).encode("ascii")
    position = stands.head, stands.tip, stands.open, out or None
    what = event.message, event.step, event.before, event.after, event.since
    rest = event.is_inferred, event.git_head, event.takes_back, event.skips, event.meta, event.forgotten_ms
    acted = event.part_of, encode_branch_changes(event.branches), event.unprotected
    return [event.session, event.kind, event.time_ms, *position, *what, *rest, *acted, intent]


def decode_event(row: Any) -> Event:  # Any: a row of SQLite
    """Make an event of a row of `EVENTS`."""
    *columns, branches, unprotected, _, _, elsewhere, _ = EVENTS.decode(row)
    number, session, kind, time_ms, head, tip, open_, out, *rest = columns
    pairs = () if out is None else (pair.split(b":") for pair in out.split(b","))
    taken = tuple(TakenOut(int(message), int(newest)) for message, newest in pairs)
    rest += [() if branches is None else decode_branch_changes(branches), unprotected, elsewhere is not None]
    return Event(number, session, kind, time_ms, Position(head, tip, open_, taken), *rest)


def encode_change(event: int, change: Change) -> list[object]:
    """Return the row of a change."""
    reasons = [side.reason for side in (change.old, change.new) if isinstance(side, Unknown)]
    # No reason holds a NUL, so two of them can be told apart.
    reason = encode_text("\0".join(reasons)) if reasons else None
    states = *_encode_state(change.old), *_encode_state(change.new)
    return CHANGES.seal((event, bytes(change.path), *states, reason, int(change.is_merged) or None))


def decode_change(row: Any) -> tuple[int, Change]:  # Any: a row of SQLite
    """Make a change of a row of `CHANGES`, with the event that it belongs to."""
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
    # What a flipped bit makes of a row would come into somebody's worktree.
    if mode & ~0o777 not in _BLOB_SIZES or len(blob or b"") != _BLOB_SIZES[mode & ~0o777]:
        raise ValueError(f"mode {mode:o}")
    return PathState(mode, blob or b"")


def decode_branch(row: Any) -> BranchRow:  # Any: a row of SQLite
    """Make a branch of a row of `BRANCHES`."""
    *columns, _ = BRANCHES.decode(row)
    return BranchRow(*columns)


def encode_branch_changes(changes: Sequence[BranchChange]) -> bytes | None:
    """Return what an act did to branches as it is stored: `+7` joined the list, `-7` left it, `7:5:6:12`."""
    signs = {True: "-", False: "+"}
    each = [
        f"{signs[change.was_listed]}{change.number}"
        if change.was is None
        else ":".join(map(str, (change.number, *change.was)))
        for change in changes
    ]
    return ",".join(each).encode("ascii") or None


def decode_branch_changes(content: bytes) -> tuple[BranchChange, ...]:
    """Read what an act did to branches."""
    found = []
    for each in content.split(b","):
        if each[:1] in (b"+", b"-"):
            found.append(BranchChange(int(each[1:]), was_listed=each[:1] == b"-"))
        else:
            number, fork, tip, event = map(int, each.split(b":"))
            found.append(BranchChange(number, was_listed=True, was=(fork, tip, event)))
    return tuple(found)
