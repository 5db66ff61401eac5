"""Uncovered files: which of them changed, by their stamps, and the lists of paths that snapshots left out.

The stamps that one scan takes are one byte string, so that two equal sets compare equal at once. A record
ends with NUL:

    MTIME CTIME SIZE INODE PATH

Records are ordered by directory and then by name, and there are at most `MOST_STAMPED`. If there are that
many, files after the last one were not stamped, and are never reported as changed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence

from shadowtree.base.limits import MOST_STAMPED
from shadowtree.base.paths import RelPath, Tombstones
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import PURGED, SKIPS, STAMPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LARGE_BYTES = 512
"""A list of skips is deflated from this size on."""


class LeftOutRows:
    """What the snapshots of one timeline left out, and what they must never cover again."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def skips(self, number: int) -> list[tuple[str, str]]:
        """Return a stored list of paths that were left out, with reasons."""
        found = self._db.find(decode_skips, f"{SKIPS.select} WHERE number = ?", number)
        return self._db.require("list of skips", number, found)

    def add_skips(self, pairs: Sequence[tuple[str, str]]) -> int | None:
        """Store a list of paths that were left out, if it is not empty; equal lists are stored once."""
        if not pairs:
            return None
        digest, content = encode_skips(pairs)
        known = self._db.rows("SELECT number FROM skips WHERE digest = ?", digest)
        return known[0][0] if known else self._db.add(SKIPS, digest, content)

    def lists_unprotected(self, path: str) -> list[int]:
        """Return the numbers of the lists of unprotected changes that contain a path."""
        lists = self._db.rows("SELECT DISTINCT unprotected FROM events WHERE unprotected IS NOT NULL")
        return [number for (number,) in lists if any(path == each for each, _ in self.skips(number))]

    def lists_of(self, session: int) -> list[int]:
        """Return the numbers of a session's lists of unprotected changes."""
        select = "SELECT DISTINCT unprotected FROM events WHERE session = ? AND unprotected IS NOT NULL"
        return [number for (number,) in self._db.rows(select, session)]

    def tombstones(self) -> Tombstones:
        """Return what must never be covered again; a row with a path and a content is about the content."""
        rows = self._db.read(PURGED.decode, f"{PURGED.select} WHERE stays IS NULL")
        return Tombstones(
            frozenset(RelPath(path) for _, path, blob, *_ in rows if path is not None and blob is None),
            frozenset(blob for _, _, blob, *_ in rows if blob is not None),
        )

    def list_changed(self, session: int | None, stamp: Callable[[], bytes] | None) -> list[RelPath]:
        """List the uncovered files that changed since a session's last stamps; none without both stamps."""
        before = None if session is None else self.stamps(session)
        return [] if before is None or stamp is None else list_stamped(before, stamp())

    def stamps(self, session: int) -> bytes | None:
        """Return the stamps of uncovered files that a session stored last."""
        row = self._db.find(STAMPS.decode, f"{STAMPS.select} WHERE session = ?", session)
        return None if row is None else bytes(row[1])

    def keep_stamps(self, session: int, stamps: bytes) -> None:
        """Store new stamps for a session, if they differ from its last ones."""
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
    """Decode a row of `SKIPS` into a list of paths and reasons."""
    import json
    from hashlib import sha256

    _, digest, content = row
    # A list begins with a bracket, and the output of zlib never does.
    if not content.startswith(b"["):
        try:
            content = zlib.decompress(content)
        except zlib.error as error:
            raise ValueError(error) from error
    if sha256(content).digest() != digest:
        raise ValueError("it does not match its checksum")
    return [(path, reason) for path, reason in json.loads(content)]


def encode_stamps(files: Iterable[tuple[RelPath, os.stat_result]]) -> bytes:
    """Encode the stamps of files, which must be in order."""
    return b"".join(
        [
            b"%d %d %d %d %b\0" % (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_ino, path)
            for path, each in files
        ]
    )


def is_cut_short(stamps: bytes) -> bool:
    """Return whether stamps are as many as are taken, so that there may be more files."""
    return stamps.count(b"\0") >= MOST_STAMPED


def list_stamped(before: bytes, now: bytes) -> list[RelPath]:
    """List the files that were added, removed or changed between two sets of stamps, sorted."""
    if before == now:
        return []
    old, new = _decode(before), _decode(now)
    changed = (path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return sorted(path for path in changed if _was_seen(path, old) and _was_seen(path, new))


def _decode(stamps: bytes) -> dict[RelPath, list[bytes]]:
    records = (record.split(b" ", 4) for record in stamps.split(b"\0")[:-1])
    return {RelPath(path): stamp for *stamp, path in records}


def _was_seen(path: RelPath, stamps: dict[RelPath, list[bytes]]) -> bool:
    """Return whether stamps reach as far as a path, whether or not a file exists there."""
    return len(stamps) < MOST_STAMPED or _order(path) <= _order(next(reversed(stamps)))


def _order(path: RelPath) -> tuple[bytes, bytes]:
    directory, _, name = path.rpartition(b"/")
    return directory, name
