"""Files that no snapshot covers: which of them changed, as stamps tell, and the lists of those left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shadowtree.base.paths import RelPath
from shadowtree.base.stamps import list_stamped
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import SKIPS, STAMPS, decode_skips, encode_skips


class LeftOutRows:
    """What the snapshots of one timeline left out."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Give a list of what was left out, with reasons."""
        found = self._db.find(decode_skips, f"{SKIPS.select} WHERE number = ?", number)
        return self._db.require("list of skips", number, found)

    def add_skips(self, pairs: Sequence[tuple[str, str]]) -> int | None:
        """Keep a list of what was left out; the same list is kept once, and an empty one not at all."""
        if not pairs:
            return None
        digest, content = encode_skips(pairs)
        known = self._db.rows("SELECT number FROM skips WHERE digest = ?", digest)
        return known[0][0] if known else self._db.add(SKIPS, digest, content)

    def lists_unprotected(self, path: str) -> list[int]:
        """Give the numbers of the lists of unprotected changes that have a path."""
        lists = self._db.rows("SELECT DISTINCT unprotected FROM events WHERE unprotected IS NOT NULL")
        return [number for (number,) in lists if any(path == each for each, _ in self.skips(number))]

    def list_changed(self, session: int | None, stamp: Callable[[], bytes] | None) -> list[RelPath]:
        """List the files that changed since a session last looked; none, if it never did or nobody can."""
        before = None if session is None else self.stamps(session)
        return [] if before is None or stamp is None else list_stamped(before, stamp())

    def stamps(self, session: int) -> bytes | None:
        """Give the stamps of files that no snapshot covers, as a session last saw them."""
        row = self._db.find(STAMPS.decode, f"{STAMPS.select} WHERE session = ?", session)
        return None if row is None else bytes(row[1])

    def keep_stamps(self, session: int, stamps: bytes) -> None:
        """Keep such stamps in place of those that a session saw before, if they are others."""
        if stamps != self.stamps(session):
            insert = STAMPS.insert.replace("INSERT", "INSERT OR REPLACE", 1)
            self._db.execute(insert, *STAMPS.encode((session, stamps)))
