"""Files that no snapshot covers: which of them changed, as stamps tell, and the lists of those left out.

The stamps of one look are one text, so that two looks that saw the same compare equal at once. A record
ends with NUL:

    MTIME CTIME SIZE INODE PATH

Records are ordered by directory and then by name, and there are at most `MOST_FILES`. If there are so many,
files beyond the last one were not looked at, and nothing is said of them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence

from shadowtree.base.paths import RelPath, Tombstones
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import PURGED, SKIPS, STAMPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LARGE_BYTES = 512
"""From this size on a list of skips is deflated."""
MOST_FILES = 1000
"""How many files are looked at. A directory full of logs must not cost a message its time."""


class LeftOutRows:
    """What the snapshots of one timeline left out, and what they are never to cover again."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Return a list of what was left out, with reasons."""
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
        """Return the numbers of the lists of unprotected changes that have a path."""
        lists = self._db.rows("SELECT DISTINCT unprotected FROM events WHERE unprotected IS NOT NULL")
        return [number for (number,) in lists if any(path == each for each, _ in self.skips(number))]

    def lists_of(self, session: int) -> list[int]:
        """Return the numbers of the lists of unprotected changes that a session has."""
        select = "SELECT DISTINCT unprotected FROM events WHERE session = ? AND unprotected IS NOT NULL"
        return [number for (number,) in self._db.rows(select, session)]

    def tombstones(self) -> Tombstones:
        """Return what is never to be covered again; a content may have been purged for a path."""
        rows = self._db.read(PURGED.decode, f"{PURGED.select} WHERE stays IS NULL")
        return Tombstones(
            frozenset(RelPath(path) for _, path, blob, *_ in rows if path is not None and blob is None),
            frozenset(blob for _, _, blob, *_ in rows if blob is not None),
        )

    def list_changed(self, session: int | None, stamp: Callable[[], bytes] | None) -> list[RelPath]:
        """List the files that changed since a session last looked; none, if it never did or nobody can."""
        before = None if session is None else self.stamps(session)
        return [] if before is None or stamp is None else list_stamped(before, stamp())

    def stamps(self, session: int) -> bytes | None:
        """Return the stamps of files that no snapshot covers, as a session last saw them."""
        row = self._db.find(STAMPS.decode, f"{STAMPS.select} WHERE session = ?", session)
        return None if row is None else bytes(row[1])

    def keep_stamps(self, session: int, stamps: bytes) -> None:
        """Keep such stamps in place of those that a session saw before, if they are others."""
        if stamps != self.stamps(session):
            insert = STAMPS.insert.replace("INSERT", "INSERT OR REPLACE", 1)
            self._db.execute(insert, *STAMPS.encode((session, stamps)))


def encode_skips(pairs: Sequence[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Return the digest of a list of paths and reasons, and its content: JSON, deflated if long."""
    import json
    from hashlib import sha256

    content = json.dumps(pairs, separators=(",", ":")).encode("ascii")
    is_large = len(content) >= _LARGE_BYTES
    return sha256(content).digest(), zlib.compress(content) if is_large else content


def decode_skips(row: Any) -> list[tuple[str, str]]:  # Any: a row of SQLite
    """Make a list of paths and reasons of a row of `SKIPS`."""
    import json
    from hashlib import sha256

    _, digest, content = row
    # A list begins with a bracket, and what zlib made never does.
    if not content.startswith(b"["):
        try:
            content = zlib.decompress(content)
        except zlib.error as error:
            raise ValueError(error) from error
    if sha256(content).digest() != digest:
        raise ValueError("it does not match its checksum")
    return [(path, reason) for path, reason in json.loads(content)]


def encode_stamps(files: Iterable[tuple[RelPath, os.stat_result]]) -> bytes:
    """Write down the stamps of files, which are in order."""
    return b"".join(
        [
            b"%d %d %d %d %b\0" % (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_ino, path)
            for path, each in files
        ]
    )


def list_stamped(before: bytes, now: bytes) -> list[RelPath]:
    """List the files that came, went or changed from one look to the next, sorted."""
    if before == now:
        return []
    old, new = _decode(before), _decode(now)
    changed = (path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return sorted(path for path in changed if _was_seen(path, old) and _was_seen(path, new))


def _decode(stamps: bytes) -> dict[RelPath, list[bytes]]:
    records = (record.split(b" ", 4) for record in stamps.split(b"\0")[:-1])
    return {RelPath(path): stamp for *stamp, path in records}


def _was_seen(path: RelPath, stamps: dict[RelPath, list[bytes]]) -> bool:
    """Return whether a look went as far as a file, be it there or not."""
    return len(stamps) < MOST_FILES or _order(path) <= _order(next(reversed(stamps)))


def _order(path: RelPath) -> tuple[bytes, bytes]:
    directory, _, name = path.rpartition(b"/")
    return directory, name
