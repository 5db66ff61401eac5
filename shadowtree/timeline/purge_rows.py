"""What the timeline says of purging: tombstones, and the rows that told of what is purged.

Messages, events and changes keep their rows. Where a change led to or from something that is purged, nobody
can say any more what that was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shadowtree.base.paths import Change, PathState, RelPath, Unknown
from shadowtree.base.tombstones import PURGED as PURGED_REASON
from shadowtree.base.tombstones import Tombstones
from shadowtree.timeline.database import Database
from shadowtree.timeline.events import BranchRow, Tombstone
from shadowtree.timeline.schema import (
    BRANCHES,
    CHANGES,
    EVENTS,
    MESSAGES,
    PURGED,
    TREES,
    decode_branch,
    decode_change,
    decode_text,
    decode_tombstone,
    encode_change,
    encode_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer

_REPLACE_CHANGE = CHANGES.insert.replace("INSERT", "INSERT OR REPLACE", 1)
_TEXTS = (
    ("messages", "text"),
    ("messages", "meta"),
    ("messages", "role"),
    ("events", "step"),
    ("events", "open_step"),
)
"""The columns that hold what callers said. Names of branches are made of it."""

Place = tuple[str, str, int]
"""Where a text stands: its table, its column, and the number of its row."""


class PurgeRows:
    """The tombstones of a timeline, and what purging changes in its rows."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # Tombstones

    def rows(self) -> list[Tombstone]:
        """Give what was purged, oldest first."""
        select = f"{PURGED.select} ORDER BY number"
        return self._db.decode(decode_tombstone, self._db.rows(select))

    def tombstones(self) -> Tombstones:
        """Give what is never to be covered again; a content may have been purged for a path."""
        rows = self.rows()
        return Tombstones(
            frozenset(RelPath(row.path) for row in rows if row.path is not None and row.blob is None),
            frozenset(row.blob for row in rows if row.blob is not None),
        )

    def add(self, path: bytes | None, blob: bytes | None, time_ms: int) -> None:
        """Note that a path, a content, or with neither a text, was removed; it is not swept yet."""
        self._db.add(PURGED, path, blob, time_ms)

    def remove(self, path: bytes | None, blob: bytes | None) -> list[Tombstone]:
        """Let a content be covered again, or a path with all that was purged for it; give what that is."""
        is_meant = "path IS ?" if blob is None else "blob IS ?"
        values = [path if blob is None else blob]
        found = self._db.decode(decode_tombstone, self._db.rows(f"{PURGED.select} WHERE {is_meant}", *values))
        if found:
            self._db.execute(f"DELETE FROM purged WHERE {is_meant}", *values)
        return found

    def has_unfinished(self) -> bool:
        """Tell whether something was purged that may still be somewhere in the store."""
        return bool(self._db.rows("SELECT 1 FROM purged WHERE done IS NULL LIMIT 1"))

    def finish(self) -> None:
        """Note that nothing is left of what was purged."""
        self._db.execute("DELETE FROM purged WHERE path IS NULL AND blob IS NULL")
        for (number,) in self._db.rows("SELECT number FROM purged WHERE done IS NULL"):
            self._db.change(PURGED, number, done=1)

    # What is said of it elsewhere

    def changes_to(self, tombstones: Tombstones) -> list[tuple[int, Change]]:
        """Give each change, with its event, that leads to or from something that is purged."""
        rows = [
            row
            for path in tombstones.paths
            for row in self._db.rows(
                f"{CHANGES.select} WHERE path = ? OR (path >= ? AND path < ?)", path, path + b"/", path + b"0"
            )
        ]
        for column in ("old_blob", "new_blob"):
            rows += self._db.rows_of(f"{CHANGES.select} WHERE {column} IN", tombstones.blobs)
        found = {(event, change.path): change for event, change in self._db.decode(decode_change, rows)}
        return [(event, change) for (event, _), change in sorted(found.items(), key=lambda item: item[0])]

    def veil_changes(self, changes: Iterable[tuple[int, Change]], tombstones: Tombstones) -> None:
        """Let nobody know what was at purged paths, or where purged contents were."""
        veiled = [encode_change(event, _veil_change(change, tombstones)) for event, change in changes]
        self._db.execute_all(_REPLACE_CHANGE, veiled)

    def messages_of_events(self, events: Collection[int]) -> set[int]:
        """Give the numbers of the messages that some events belong to."""
        rows = self._db.rows_of("SELECT message FROM events WHERE number IN", events)
        return {number for (number,) in rows if number is not None}

    def texts(self) -> list[tuple[Place, str]]:
        """Give all that callers said, and where it stands."""
        return [
            ((table, column, number), text)
            for table, column in _TEXTS
            for number, text in self._db.decode(
                lambda row: (int(row[0]), str(decode_text(row[1]))),
                self._db.rows(
                    f"SELECT number, {column} FROM {table} WHERE {column} IS NOT NULL AND {column} <> x''"
                ),
            )
        ]

    def message_ids(self) -> list[str]:
        """Give the ids of all messages, those too that were forgotten."""
        rows = self._db.rows("SELECT DISTINCT id FROM messages ORDER BY number")
        return self._db.decode(lambda row: str(decode_text(row[0])), rows)

    def all_branches(self) -> list[BranchRow]:
        """Give the branches of all sessions, those too that were dropped."""
        return self._db.decode(decode_branch, self._db.rows(f"{BRANCHES.select} ORDER BY number"))

    def replace_texts(self, texts: Sequence[tuple[Place, str]]) -> None:
        """Let other texts stand in some places."""
        for (table, column, number), text in texts:
            columns = {column: encode_text(text)}
            self._db.change(MESSAGES if table == MESSAGES.name else EVENTS, number, **columns)

    def rewrite_trees(self, rows: Iterable[tuple[int, bytes, bytes, bytes, int]]) -> None:
        """Let records, by their numbers, be of other trees, facts, keepers and numbers of files."""
        with self._db.together():
            for number, tree, facts, keeper, files in rows:
                self._db.change(TREES, number, tree=tree, facts=facts, keeper=keeper, files=files)


def _veil_change(change: Change, tombstones: Tombstones) -> Change:
    is_purged = tombstones.covers(change.path)

    def veil(state: Answer) -> Answer:
        is_told = isinstance(state, PathState) and (is_purged or state.blob in tombstones.blobs)
        return Unknown(PURGED_REASON) if is_told else state

    return Change(change.path, veil(change.old), veil(change.new), change.is_merged)
