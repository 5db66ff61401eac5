"""What the timeline says of forgetting: how old messages are, what is pinned, what was forgotten.

A message or act that was forgotten keeps its row and its events, so that those that are left know where they
stand. Its text goes at once; what it changed stays only as long as something older of its session is left, so
that nobody is blamed for it.
"""

from __future__ import annotations

from collections.abc import Collection

from shadowtree.timeline.database import BEYOND, Database
from shadowtree.timeline.events import STEP_END, Act, Age, Named
from shadowtree.timeline.schema import (
    AGES,
    BARE_TREES,
    EVENTS,
    IS_ACT,
    IS_LIVE,
    MESSAGES,
    NAMED,
    PINS,
    TREES,
    decode_age,
    decode_named,
)

_PIN = PINS.insert.replace("INSERT", "INSERT OR IGNORE", 1)
_LAST_TREE = "SELECT number FROM trees WHERE number = (SELECT max(number) FROM trees)"
_OLDER_THAN_ALL_LIVE = f"""SELECT number FROM events WHERE session = ? AND forgotten IS NOT NULL
    AND number < coalesce((SELECT min(number) FROM events WHERE session = ? AND {IS_LIVE}), {BEYOND})"""


class RetentionRows:
    """Pins, what retention asks, and what it marks."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # Pins

    def pins(self) -> set[int]:
        """Give the numbers of the messages that are pinned."""
        return {number for (number,) in self._db.rows("SELECT message FROM pins")}

    def pin(self, message: int, time_ms: int) -> None:
        """Keep a message from being forgotten; one that is pinned stays so."""
        self._db.execute(_PIN, *PINS.encode((message, time_ms)))

    def unpin(self, message: int) -> None:
        """Let a message be forgotten again when its time comes."""
        self._db.execute("DELETE FROM pins WHERE message = ?", message)

    # What retention asks

    def ages(self) -> list[Age]:
        """Tell how old each message is that was not forgotten, oldest first."""
        return self._db.decode(decode_age, self._db.rows(AGES))

    def live_acts(self) -> list[Act]:
        """Give each act that was not forgotten, oldest first."""
        select = f"SELECT number, session, time FROM events WHERE {IS_ACT} AND {IS_LIVE} ORDER BY number"
        return [Act(*row) for row in self._db.rows(select)]

    def bare_trees(self) -> list[tuple[int, int]]:
        """Give the number and the time, in seconds, of each tree that no message or act ever named."""
        return self._db.rows(BARE_TREES)

    def named_trees(self) -> list[Named]:
        """Tell which trees are named by messages and acts that were not forgotten, oldest first."""
        select = f"{NAMED} AND {IS_LIVE} ORDER BY number"
        return self._db.decode(decode_named, self._db.rows(select))

    def first_live(self, session: int) -> int:
        """Give the number of the oldest message of a session that is left, or one that none has."""
        rows = self._db.rows(f"SELECT min(number) FROM messages WHERE session = ? AND {IS_LIVE}", session)
        found = rows[0][0] if rows else 0
        return BEYOND if found is None else int(found)

    # What it marks

    def forget_messages(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark messages as forgotten, and forget what was said in them."""
        gone = {"forgotten": time_ms, "text": b"", "meta": None}
        self._db.change_all(MESSAGES, self._find_live("messages", "number", numbers), **gone)
        self._db.change_all(EVENTS, self._find_live("events", "message", numbers), forgotten=time_ms)
        steps = (
            "DELETE FROM changes WHERE event IN (SELECT number FROM events WHERE kind = ? AND message = ?)"
        )
        self._db.execute_all(steps, [(STEP_END, number) for number in numbers])
        self._db.execute_all("DELETE FROM pins WHERE message = ?", [(number,) for number in numbers])

    def forget_acts(self, events: Collection[int], time_ms: int) -> None:
        """Mark acts as forgotten: they cannot be taken back any more."""
        self._db.change_all(EVENTS, self._find_live("events", "number", events), forgotten=time_ms)

    def forget_trees(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark trees as forgotten: from now on nothing needs their objects. Never the last one."""
        assert not self._db.rows_of(f"{_LAST_TREE} AND number IN", numbers)
        self._db.change_all(TREES, self._find_live("trees", "number", numbers), forgotten=time_ms)

    def forget_changes(self, sessions: Collection[int]) -> None:
        """Remove what forgotten messages and acts changed, where nothing older of their session is left."""
        self._db.execute_all(
            f"DELETE FROM changes WHERE event IN ({_OLDER_THAN_ALL_LIVE})",
            [(session, session) for session in sessions],
        )

    def _find_live(self, table: str, column: str, numbers: Collection[int]) -> list[int]:
        select = f"SELECT number FROM {table} WHERE {IS_LIVE} AND {column} IN"
        return [number for (number,) in self._db.rows_of(select, numbers)]
