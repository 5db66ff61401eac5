"""A place in memory, where there is one: for what is written a thousand times and is not about the disk."""

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
    """Give the directory of this process there; None: there is no such place, or it is small."""
    if not os.access(MEMORY, os.W_OK):
        return None
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize < ENOUGH_BYTES:
        return None
    return MEMORY / f"shadowtree-tests-{os.getpid()}"


FAST_PLACE = find_memory()


def new_place(otherwise: Path) -> Path:
    """Name a directory in memory that nobody else uses, or `otherwise`; it is not made yet."""
    # Whoever took another user's rights may not write in what this process made there.
    if FAST_PLACE is None or (FAST_PLACE.exists() and not os.access(FAST_PLACE, os.W_OK)):
        return otherwise
    return FAST_PLACE / str(next(_numbers))


def make_place() -> Path:
    """Make an empty directory in memory, or else where temporary files are."""
    if FAST_PLACE is not None:
        FAST_PLACE.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="shadowtree-", dir=FAST_PLACE))


def clear_memory() -> None:
    """Remove what this process put there, and what is left of processes that were killed."""
    if FAST_PLACE is None:
        return
    for path in MEMORY.glob("shadowtree-tests-*"):
        pid = path.name.rpartition("-")[2]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
