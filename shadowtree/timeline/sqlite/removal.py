"""Remove things from the timeline: forget old messages and acts, purge secrets.

A forgotten message or act keeps its row and its events, so that the remaining ones keep their positions. Its
text is removed at once; its changes stay as long as anything older in its session is left, so that they are
not blamed on other messages.

A purge keeps the rows of messages, events and changes too. Where a change leads to or from something purged,
that side of it becomes unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import PURGED as PURGED_REASON
from shadowtree.base.paths import Change, PathState, Tombstones, Unknown
from shadowtree.timeline.sqlite.database import BEYOND, Database
from shadowtree.timeline.sqlite.schema import (
    BEGIN,
    BRANCHES,
    CHANGES,
    EVENTS,
    IS_ACT,
    IS_LIVE,
    IS_WRAP,
    MESSAGES,
    OF_MESSAGE,
    PURGED,
    SESSIONS,
    SNAPSHOT,
    STEP_END,
    TREES,
    BranchRow,
    Table,
    decode_branch,
    decode_change,
    decode_text,
    encode_change,
    encode_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.base.paths import Answer

_LAST_TREE = "SELECT number FROM trees WHERE number = (SELECT max(number) FROM trees)"
_OLDER_THAN_ALL_LIVE = f"""SELECT number FROM events WHERE session = ? AND forgotten IS NOT NULL
    AND number < coalesce((SELECT min(number) FROM events WHERE session = ? AND {IS_LIVE}), {BEYOND})"""
_AGES = f"""SELECT messages.number, messages.session, role, min(events.number), events.time, pins.message
    FROM messages JOIN events ON events.message = messages.number AND kind IN ('{BEGIN}', '{SNAPSHOT}')
    LEFT JOIN pins ON pins.message = messages.number
    WHERE messages.forgotten IS NULL GROUP BY messages.number ORDER BY messages.number"""
_NAMED = f"""SELECT number, message, before_tree, after_tree FROM events
    WHERE NOT ({IS_WRAP}) AND {IS_LIVE} ORDER BY number"""
_BARE_TREES = f"""SELECT number, time FROM trees WHERE {IS_LIVE} AND number NOT IN (
    SELECT before_tree FROM events WHERE before_tree IS NOT NULL
    UNION SELECT after_tree FROM events WHERE after_tree IS NOT NULL AND NOT ({IS_WRAP})) ORDER BY number"""
_REPLACE_CHANGE = CHANGES.insert.replace("INSERT", "INSERT OR REPLACE", 1)
_TEXTS = {"messages": ("text", "meta", "role"), "events": ("step", "meta")}
"""The columns with texts from callers, from which the names of branches are made."""

Place = tuple[str, str, int]
"""Where a text is stored: its table, its column, and the number of its row."""


@frozen
class Age:
    """A message that is not forgotten, as retention sees it."""

    number: int
    session: int
    role: str | None
    event: int
    """The event that it began with; it orders messages and acts."""
    time_ms: int
    is_pinned: bool


@frozen
class Act:
    """An act that is not forgotten, as retention sees it."""

    number: int
    """The number of its event."""
    session: int
    time_ms: int


@frozen
class Named:
    """The trees that one event of a message, or one act, names."""

    event: int
    message: int | None
    """None for an act."""
    trees: tuple[int, ...]


class RetentionRows:
    """What retention reads from a timeline, and what it marks there."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # What retention reads

    def ages(self) -> list[Age]:
        """Return the age of each message that was not forgotten, oldest first."""
        return self._db.read(_decode_age, _AGES)

    def live_acts(self) -> list[Act]:
        """Return each act that was not forgotten, oldest first."""
        select = f"SELECT number, session, time FROM events WHERE {IS_ACT} AND {IS_LIVE} ORDER BY number"
        return [Act(*row) for row in self._db.rows(select)]

    def bare_trees(self) -> list[tuple[int, int]]:
        """Return the number and the time, in seconds, of each tree that no message or act ever named."""
        return self._db.rows(_BARE_TREES)

    def named_trees(self) -> list[Named]:
        """Return which trees are named by messages and acts that were not forgotten, oldest first."""
        return self._db.read(_decode_named, _NAMED)

    def first_live(self, session: int) -> int:
        """Return the number of the oldest live message of a session; `BEYOND` if there is none."""
        rows = self._db.rows(f"SELECT min(number) FROM messages WHERE session = ? AND {IS_LIVE}", session)
        found = rows[0][0] if rows else 0
        return BEYOND if found is None else int(found)

    def sessions_of_trees(self) -> dict[int, set[int | None]]:
        """Return the sessions whose live messages and acts name a tree, by the number of the tree."""
        select = f"SELECT session, before_tree, after_tree FROM events WHERE NOT {IS_WRAP} AND {IS_LIVE}"
        found: dict[int, set[int | None]] = {}
        for session, *numbers in self._db.rows(select):
            for number in numbers:
                if number is not None:
                    found.setdefault(number, set()).add(session)
        return found

    def count_messages(self) -> dict[int, int]:
        """Count the messages of each session, by its number, that were not forgotten."""
        select = f"SELECT session, count(*) FROM messages WHERE {IS_LIVE} GROUP BY session"
        return dict(self._db.rows(select))

    def find_times(self) -> tuple[int, int] | None:
        """Return when the first and the last event of live messages were recorded, in ms."""
        select = f"SELECT min(time), max(time) FROM events WHERE {OF_MESSAGE} AND {IS_LIVE}"
        return next((times for times in self._db.rows(select) if None not in times), None)

    # What retention marks

    def forget_messages(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark messages as forgotten, and remove their texts, pins and the changes of their steps."""
        self._mark(MESSAGES, "number", numbers, forgotten=time_ms, text=b"", meta=None)
        self._mark(EVENTS, "message", numbers, forgotten=time_ms, meta=None)
        steps = f"SELECT number FROM events WHERE kind = '{STEP_END}' AND message = ?"
        self._db.execute_all(f"DELETE FROM changes WHERE event IN ({steps})", [(n,) for n in numbers])
        self._db.execute_all("DELETE FROM pins WHERE message = ?", [(number,) for number in numbers])

    def forget_sessions(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark sessions as dropped; all their messages and acts must be forgotten."""
        self._mark(SESSIONS, "number", numbers, forgotten=time_ms)

    def forget_acts(self, events: Collection[int], time_ms: int) -> None:
        """Mark acts as forgotten: they can no longer be reversed."""
        self._mark(EVENTS, "number", events, forgotten=time_ms)

    def forget_trees(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark trees as forgotten, never the last one: from now on nothing needs their objects."""
        assert not self._db.rows_of(f"{_LAST_TREE} AND number IN", numbers)
        self._mark(TREES, "number", numbers, forgotten=time_ms)

    def forget_changes(self, sessions: Collection[int]) -> None:
        """Remove the changes of forgotten messages and acts, if nothing older in their session is left."""
        self._db.execute_all(
            f"DELETE FROM changes WHERE event IN ({_OLDER_THAN_ALL_LIVE})",
            [(session, session) for session in sessions],
        )

    def _mark(self, table: Table, column: str, numbers: Collection[int], **columns: object) -> None:
        """Change the live rows whose `column` holds one of these numbers, in one transaction."""
        select = f"SELECT number FROM {table.name} WHERE {IS_LIVE} AND {column} IN"
        with self._db.together():
            for (number,) in self._db.rows_of(select, numbers):
                self._db.change(table, number, **columns)


def _decode_age(row: Any) -> Age:  # Any: a row of SQLite
    """Decode a row of `_AGES`."""
    number, session, role, event, time_ms, pin = row
    return Age(number, session, decode_text(role), event, time_ms, pin is not None)


def _decode_named(row: Any) -> Named:  # Any: a row of SQLite
    """Decode a row of `_NAMED`."""
    event, message, *trees = row
    return Named(event, message, tuple(int(tree) for tree in trees if tree is not None))


class PurgeRows:
    """The tombstones of a timeline, and the changes that a purge makes to its rows."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # Tombstones

    def add(self, path: bytes | None, blob: bytes | None, time_ms: int) -> None:
        """Note that a path, a content, or (with neither) a text was purged; it is not swept yet."""
        self._db.add(PURGED, path, blob, time_ms)

    def note_left(self, path: bytes, blob: bytes, time_ms: int) -> None:
        """Note that the content of a purged path remains at other paths."""
        self._db.add(PURGED, path, blob, time_ms, 1, 1)

    def left_of(self, path: bytes) -> frozenset[bytes]:
        """Return the contents that remained when a path, or one above or below it, was purged."""
        rows = self._db.read(PURGED.decode, f"{PURGED.select} WHERE stays = 1")
        found = ((known + b"/", blob) for _, known, blob, *_ in rows)
        whole = path + b"/"
        return frozenset(blob for known, blob in found if known.startswith(whole) or whole.startswith(known))

    def remove(self, path: bytes | None, blob: bytes | None) -> list[tuple[bytes | None, bytes | None]]:
        """Remove and return the tombstone of a content, or those of a path and the contents purged for it."""
        is_meant = "path IS ?" if blob is None else "blob IS ?"
        value = path if blob is None else blob
        found = self._db.read(PURGED.decode, f"{PURGED.select} WHERE {is_meant}", value)
        if found:
            self._db.execute(f"DELETE FROM purged WHERE {is_meant}", value)
        return [(path, blob) for _, path, blob, _, _, stays in found if not stays]

    def finish(self) -> None:
        """Note that nothing purged is left in the store."""
        self._db.execute("DELETE FROM purged WHERE path IS NULL AND blob IS NULL")
        for (number,) in self._db.rows("SELECT number FROM purged WHERE done IS NULL"):
            self._db.change(PURGED, number, done=1)

    # Traces in other tables

    def changes_to(self, tombstones: Tombstones) -> list[tuple[int, Change]]:
        """Return each change, with its event, that leads to or from something purged."""
        rows = []
        for path in tombstones.paths:
            select = f"{CHANGES.select} WHERE path = ? OR (path >= ? AND path < ?)"
            rows += self._db.rows(select, path, path + b"/", path + b"0")
        for column in ("old_blob", "new_blob"):
            rows += self._db.rows_of(f"{CHANGES.select} WHERE {column} IN", tombstones.blobs)
        found = {(event, change.path): change for event, change in self._db.decode(decode_change, rows)}
        return [(event, found[event, path]) for event, path in sorted(found)]

    def veil_changes(self, changes: Collection[tuple[int, Change]], tombstones: Tombstones) -> None:
        """Make the sides of changes unknown where they show purged paths or contents."""
        veiled = [encode_change(event, _veil_change(change, tombstones)) for event, change in changes]
        self._db.execute_all(_REPLACE_CHANGE, veiled)
        for number in {event for event, _ in changes}:
            self._db.change(EVENTS, number, whole=None)

    def messages_of_events(self, events: Collection[int]) -> set[int]:
        """Return the numbers of the messages to which some events belong."""
        rows = self._db.rows_of("SELECT message FROM events WHERE number IN", events)
        return {number for (number,) in rows if number is not None}

    def texts(self) -> list[tuple[Place, str]]:
        """Return all texts from callers, and where each is stored."""
        found: list[tuple[Place, str]] = []
        for table, columns in _TEXTS.items():
            for column in columns:
                select = f"SELECT number, {column} FROM {table} WHERE {column} <> x''"
                texts = self._db.read(lambda row: (int(row[0]), str(decode_text(row[1]))), select)
                found += [((table, column, number), text) for number, text in texts]
        return found

    def message_ids(self) -> list[str]:
        """Return the ids of all messages, including forgotten ones."""
        select = "SELECT DISTINCT id FROM messages ORDER BY number"
        return self._db.read(lambda row: str(decode_text(row[0])), select)

    def all_branches(self) -> list[BranchRow]:
        """Return the branches of all sessions, including dropped ones."""
        return self._db.read(decode_branch, f"{BRANCHES.select} ORDER BY number")

    def replace_texts(self, texts: Sequence[tuple[Place, str]]) -> None:
        """Replace the texts at some places."""
        for (table, column, number), text in texts:
            columns = {column: encode_text(text)}
            self._db.change(MESSAGES if table == MESSAGES.name else EVENTS, number, **columns)

    def rewrite_trees(self, rows: Iterable[tuple[int, bytes, bytes, bytes, int]]) -> None:
        """Replace the tree, facts, further blobs and number of files of records, by their numbers."""
        with self._db.together():
            for number, tree, facts, also, files in rows:
                self._db.change(TREES, number, tree=tree, facts=facts, also=also, files=files)


def _veil_change(change: Change, tombstones: Tombstones) -> Change:
    is_purged = tombstones.covers(change.path)

    def veil(state: Answer) -> Answer:
        is_told = isinstance(state, PathState) and (is_purged or state.blob in tombstones.blobs)
        return Unknown(PURGED_REASON) if is_told else state

    return Change(change.path, veil(change.old), veil(change.new), change.is_merged)
