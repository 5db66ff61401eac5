"""A place in memory, if there is one: for tests that write a thousand times and do not depend on the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1 << 30

_numbers = count()


def find_memory() -> Path | None:
    """Return the directory of this process in memory; None: there is no such place, or it is too small."""
    if not os.access(MEMORY, os.W_OK):
        return None
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize < ENOUGH_BYTES:
        return None
    return MEMORY / f"shadowtree-tests-{os.getpid()}"


FAST_PLACE = find_memory()


def new_place(otherwise: Path) -> Path:
    """Return a directory in memory that nothing else uses, or `otherwise`; it is not made yet."""
    # After a change of user, this process may not be able to write in the directory that it made.
    if FAST_PLACE is None or (FAST_PLACE.exists() and not os.access(FAST_PLACE, os.W_OK)):
        return otherwise
    return FAST_PLACE / str(next(_numbers))


def make_place() -> Path:
    """Make an empty directory in memory, or else among the temporary files."""
    if FAST_PLACE is not None:
        FAST_PLACE.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="shadowtree-", dir=FAST_PLACE))


def clear_memory() -> None:
    """Remove what this process put there, and what killed processes left."""
    if FAST_PLACE is None:
        return
    for path in MEMORY.glob("shadowtree-tests-*"):
        pid = path.name.rpartition("-")[2]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
