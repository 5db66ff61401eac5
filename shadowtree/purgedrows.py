"""What the timeline says of purging: tombstones, and the rows that told of what is purged.

Messages, events and changes keep their rows. Where a change led to or from something that is purged, nobody
can say any more what that was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shadowtree.events import BranchRow, Tombstone
from shadowtree.paths import RelPath
from shadowtree.rows import WITH_FORGETTING, Rows
from shadowtree.state import Change, PathState, Unknown
from shadowtree.tables import (
    BRANCHES,
    CHANGES,
    REPLACE_CHANGE,
    TOMBSTONES,
    decode_branch,
    decode_change,
    decode_text,
    decode_tombstone,
    encode_change,
    encode_text,
)
from shadowtree.tombstones import PURGED, Tombstones

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.state import Answer

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


class PurgedRows(Rows):
    """The tombstones of a timeline, and what purging changes in its rows."""

    # Tombstones

    def purged(self) -> list[Tombstone]:
        """Give what was purged, oldest first."""
        select = f"{TOMBSTONES} ORDER BY number"
        return self._decode(decode_tombstone, self._rows_since(WITH_FORGETTING, select))

    def tombstones(self) -> Tombstones:
        """Give what is never to be covered again; a content may have been purged for a path."""
        rows = self.purged()
        return Tombstones(
            frozenset(RelPath(row.path) for row in rows if row.path is not None and row.blob is None),
            frozenset(row.blob for row in rows if row.blob is not None),
        )

    def add_purged(self, path: bytes | None, blob: bytes | None, time_ms: int) -> None:
        """Note that a path, or a content, was removed from every tree; it is not swept yet."""
        self._add("purged", path=path, blob=blob, time=time_ms)

    def remove_purged(self, path: bytes | None, blob: bytes | None) -> list[Tombstone]:
        """Let a content be covered again, or a path with all that was purged for it; give what that is."""
        is_meant = "path IS ?" if blob is None else "blob IS ?"
        values = [path if blob is None else blob]
        found = self._decode(
            decode_tombstone, self._rows_since(WITH_FORGETTING, f"{TOMBSTONES} WHERE {is_meant}", *values)
        )
        if found:
            self._update(f"DELETE FROM purged WHERE {is_meant}", *values)
        return found

    def has_unfinished_purge(self) -> bool:
        """Tell whether something was purged that may still be somewhere in the store."""
        return bool(self._rows_since(WITH_FORGETTING, "SELECT 1 FROM purged WHERE done IS NULL LIMIT 1"))

    def finish_purges(self) -> None:
        """Note that nothing is left of what was purged."""
        self._update("UPDATE purged SET done = 1 WHERE done IS NULL")

    # What is said of it elsewhere

    def changes_to(self, tombstones: Tombstones) -> list[tuple[int, Change]]:
        """Give each change, with its event, that leads to or from something that is purged."""
        rows = [
            row
            for path in tombstones.paths
            for row in self._session_rows(
                f"{CHANGES} WHERE path = ? OR (path >= ? AND path < ?)", path, path + b"/", path + b"0"
            )
        ]
        for column in ("old_blob", "new_blob"):
            rows += self._rows_of(f"{CHANGES} WHERE {column} IN", tombstones.blobs)
        found = {(event, change.path): change for event, change in self._decode(decode_change, rows)}
        return [(event, change) for (event, _), change in sorted(found.items(), key=lambda item: item[0])]

    def veil_changes(self, changes: Iterable[tuple[int, Change]], tombstones: Tombstones) -> None:
        """Let nobody know what was at purged paths, or where purged contents were."""
        veiled = [encode_change(event, _veil_change(change, tombstones)) for event, change in changes]
        self._do_all(REPLACE_CHANGE, veiled)

    def messages_of_events(self, events: Collection[int]) -> set[int]:
        """Give the numbers of the messages that some events belong to."""
        rows = self._rows_of("SELECT message FROM events WHERE number IN", events)
        return {number for (number,) in rows if number is not None}

    def texts(self) -> list[tuple[Place, str]]:
        """Give all that callers said, and where it stands."""
        return [
            ((table, column, number), text)
            for table, column in _TEXTS
            for number, text in self._decode(
                lambda row: (int(row[0]), str(decode_text(row[1]))),
                self._session_rows(
                    f"SELECT number, {column} FROM {table} WHERE {column} IS NOT NULL AND {column} <> x''"
                ),
            )
        ]

    def message_ids(self) -> list[str]:
        """Give the ids of all messages, those too that were forgotten."""
        rows = self._session_rows("SELECT DISTINCT id FROM messages ORDER BY number")
        return self._decode(lambda row: str(decode_text(row[0])), rows)

    def all_branches(self) -> list[BranchRow]:
        """Give the branches of all sessions, those too that were dropped."""
        return self._decode(decode_branch, self._session_rows(f"{BRANCHES} ORDER BY number"))

    def replace_texts(self, texts: Sequence[tuple[Place, str]]) -> None:
        """Let other texts stand in some places."""
        for (table, column, number), text in texts:
            self._update(f"UPDATE {table} SET {column} = ? WHERE number = ?", encode_text(text), number)

    def rewrite_trees(self, rows: Iterable[tuple[int, bytes, bytes, bytes, int]]) -> None:
        """Let records, by their numbers, be of other trees, facts, keepers and numbers of files."""
        self._do_all(
            "UPDATE trees SET tree = ?, facts = ?, keeper = ?, files = ? WHERE number = ?",
            [(tree, facts, keeper, files, number) for number, tree, facts, keeper, files in rows],
        )


def _veil_change(change: Change, tombstones: Tombstones) -> Change:
    is_purged = tombstones.covers(change.path)

    def veil(state: Answer) -> Answer:
        is_told = isinstance(state, PathState) and (is_purged or state.blob in tombstones.blobs)
        return Unknown(PURGED) if is_told else state

    return Change(change.path, veil(change.old), veil(change.new), change.is_merged)
