"""The stamps of files that no snapshot covers, and which of the files changed between two looks. Pure.

They are kept as one text, so that two looks that saw the same compare equal at once. A record ends with NUL:

    MTIME CTIME SIZE INODE PATH

Records are ordered by directory and then by name, and there are at most `MOST_FILES`. If there are so many,
files beyond the last one were not looked at, and nothing is said of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from shadowtree.base.paths import RelPath

MOST_FILES = 1000
"""How many files are looked at. A directory full of logs must not cost a message its time."""


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
    """Tell whether a look went as far as a file, be it there or not."""
    return len(stamps) < MOST_FILES or _order(path) <= _order(next(reversed(stamps)))


def _order(path: RelPath) -> tuple[bytes, bytes]:
    directory, _, name = path.rpartition(b"/")
    return directory, name
