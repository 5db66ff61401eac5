"""The cost of gc when half of a long history is forgotten: time, memory, and how long it holds the lock.

Run as a module with the worktree and a store, it collects once and prints its `Collected` as JSON: a separate
process has only its own memory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.measure import PROJECT, Effort, disk_usage, peak_memory, timed
from benchmarks.report import Row, Unit

PEAK_LIMIT = 300e6
HOLD_LIMIT_S = 0.5


class LockNotSeen(Exception):
    """The lock was apparently never taken, so a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one gc took, and left."""

    seconds: float
    peak_bytes: int
    holds_s: list[float]
    """How long the lock was held, each time."""
    store_bytes: int


def measure_gc(area: Area, files: int, effort: Effort) -> list[Row]:
    """Record a long history, forget half of it, and run gc in copies of that store."""
    from benchmarks.history import record_edits
    from shadowtree import Shadow

    store = area.new_store()
    record_edits(area, store, effort.messages)
    with Shadow(area.folder, store=store) as shadow:
        shadow.forget(keep_last=max(1, effort.messages // 2), gc=False)
    collected = []
    for _ in range(effort.long_runs):
        copy = area.new_store()
        shutil.copytree(store, copy)
        os.sync()
        collected.append(_collect_elsewhere(area.folder, copy))
    title = f"gc, {effort.messages:,} messages, half of them forgotten"
    seconds = [one.seconds for one in collected]
    peaks = [one.peak_bytes for one in collected]
    holds = [hold_s for one in collected for hold_s in one.holds_s]
    left = [one.store_bytes for one in collected]
    return [
        Row(title, files, Unit.SECONDS, {OURS: seconds}),
        Row(f"{title}: peak memory", files, Unit.BYTES, {OURS: peaks}, limit=PEAK_LIMIT),
        Row(f"{title}: lock held", files, Unit.SECONDS, {OURS: holds}, limit=HOLD_LIMIT_S),
        Row(f"{title}: store left", files, Unit.BYTES, {OURS: left}),
    ]


@contextmanager
def time_lock(path: Path) -> Iterator[list[float]]:
    """Yield the seconds of each time that this process locks the file; without an unlock, until the end.

    Every call of `fcntl.flock` is intercepted, so that the library need not know that it is measured.
    """
    holds: list[float] = []
    since: list[float] = []
    flock = fcntl.flock

    def listen(fd: int, operation: int) -> None:
        is_ours = os.path.samestat(os.fstat(fd), os.stat(path))
        flock(fd, operation)
        if is_ours and since:
            holds.append(time.perf_counter() - since.pop())
        if is_ours and not operation & fcntl.LOCK_UN:
            since.append(time.perf_counter())

    with patch.object(fcntl, "flock", listen):
        yield holds
    holds += [time.perf_counter() - start for start in since]
    if not holds:
        raise LockNotSeen(path)


def _collect_elsewhere(worktree: Path, store: Path) -> Collected:
    command = [sys.executable, "-m", "benchmarks.collecting", str(worktree), str(store)]
    result = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    return Collected(**json.loads(result.stdout))


def _collect(worktree: Path, store: Path) -> Collected:
    from shadowtree import Shadow

    with time_lock(store / "lock") as holds_s, Shadow(worktree, store=store) as shadow:
        seconds, _ = timed(shadow.gc)
    return Collected(seconds, peak_memory(), holds_s, disk_usage(store)[0])


if __name__ == "__main__":
    print(json.dumps(asdict(_collect(Path(sys.argv[1]), Path(sys.argv[2])))))
