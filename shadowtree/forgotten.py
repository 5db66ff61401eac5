"""What the timeline says of forgetting: how old messages are, what is pinned, what was forgotten.

A message or act that was forgotten keeps its row and its events, so that those that are left know where they
stand. Its text goes at once; what it changed stays only as long as something older of its session is left:
who goes back to there passes over it.
"""

from __future__ import annotations

from collections.abc import Collection

from shadowtree.events import Act, Age, Named
from shadowtree.rows import BEYOND, WITH_FORGETTING, Rows
from shadowtree.tables import (
    AGES,
    BARE_TREES,
    IS_ACT,
    IS_LIVE,
    NAMED,
    decode_age,
    decode_named,
)

_NOBODY_PASSES = f"""SELECT number FROM events WHERE session = ? AND forgotten IS NOT NULL
    AND number < coalesce((SELECT min(number) FROM events WHERE session = ? AND {IS_LIVE}), {BEYOND})"""


class ForgottenRows(Rows):
    """Pins, what retention asks, and what it marks."""

    # Pins

    def pins(self) -> set[int]:
        """Give the numbers of the messages that are pinned."""
        return {number for (number,) in self._rows_since(WITH_FORGETTING, "SELECT message FROM pins")}

    def pin(self, message: int, time_ms: int) -> None:
        """Keep a message from being forgotten; one that is pinned stays so."""
        self._update("INSERT OR IGNORE INTO pins (message, time) VALUES (?, ?)", message, time_ms)

    def unpin(self, message: int) -> None:
        """Let a message be forgotten again when its time comes."""
        self._update("DELETE FROM pins WHERE message = ?", message)

    # What retention asks

    def ages(self) -> list[Age]:
        """Tell how old each message is that was not forgotten, oldest first."""
        return self._decode(decode_age, self._rows_since(WITH_FORGETTING, AGES))

    def live_acts(self) -> list[Act]:
        """Give each act that was not forgotten, oldest first."""
        select = f"SELECT number, session, time FROM events WHERE {IS_ACT} AND {IS_LIVE} ORDER BY number"
        return [Act(*row) for row in self._rows_since(WITH_FORGETTING, select)]

    def bare_trees(self) -> list[tuple[int, int]]:
        """Give the number and the time, in seconds, of each tree that no message or act ever named."""
        return self._rows_since(WITH_FORGETTING, BARE_TREES)

    def named_trees(self) -> list[Named]:
        """Tell which trees are named by messages and acts that were not forgotten, oldest first."""
        select = f"{NAMED} AND {IS_LIVE} ORDER BY number"
        return self._decode(decode_named, self._rows_since(WITH_FORGETTING, select))

    def first_live(self, session: int) -> int:
        """Give the number of the oldest message of a session that is left, or one that none has."""
        rows = self._rows_since(
            WITH_FORGETTING, f"SELECT min(number) FROM messages WHERE session = ? AND {IS_LIVE}", session
        )
        found = rows[0][0] if rows else 0
        return BEYOND if found is None else int(found)

    # What it marks

    def forget_messages(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark messages as forgotten, and forget what was said in them."""
        rows = [(time_ms, number) for number in numbers]
        self._do_all(
            f"UPDATE messages SET forgotten = ?, text = x'', meta = NULL WHERE number = ? AND {IS_LIVE}", rows
        )
        self._do_all(f"UPDATE events SET forgotten = ? WHERE message = ? AND {IS_LIVE}", rows)
        self._do_all(
            "DELETE FROM changes WHERE event IN"
            " (SELECT number FROM events WHERE kind = 'step-end' AND message = ?)",
            [(number,) for number in numbers],
        )
        self._do_all("DELETE FROM pins WHERE message = ?", [(number,) for number in numbers])

    def forget_acts(self, events: Collection[int], time_ms: int) -> None:
        """Mark acts as forgotten: they cannot be taken back any more."""
        self._do_all(
            f"UPDATE events SET forgotten = ? WHERE number = ? AND {IS_LIVE}",
            [(time_ms, number) for number in events],
        )

    def forget_changes(self, sessions: Collection[int]) -> None:
        """Remove what forgotten messages and acts changed, where nothing older of their session is left."""
        self._do_all(
            f"DELETE FROM changes WHERE event IN ({_NOBODY_PASSES})",
            [(session, session) for session in sessions],
        )
