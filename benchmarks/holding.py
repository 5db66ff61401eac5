"""A process that keeps a watched shadow open: what it needs meanwhile, and what is left when it closes it.

Run as a module with a worktree, a new store and how long to rest, it prints its `Holding` as JSON: a separate
process has only its own memory, threads and descriptors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.contestants import OURS, enter
from benchmarks.measure import PROJECT, Effort, peak_memory, resident_memory
from benchmarks.report import BySize, Row, Unit

MEMORY_LIMITS: BySize = {100_000: 150e6}
IDLE_LIMIT_S = 0.01
"""Processor time in a minute: none, except for the measurement itself."""
LEFT_LIMIT = 0

SNAPSHOTS = 5
CHANGES = 10

_THREAD_END_S = 0.3


@dataclass(frozen=True, slots=True)
class Holding:
    """What one process needed and left."""

    resident_bytes: int
    """After some snapshots."""
    peak_bytes: int
    idle_cpu_s: float
    """Processor time that an idle minute would use."""
    left: int
    """The number of threads and descriptors that were not there before."""


def measure_holding(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure once a process that wraps the folder, watches it and takes some snapshots."""
    held = _hold_elsewhere(area.folder, area.new_store(), effort.idle_s)
    memory_limit = MEMORY_LIMITS.get(files)
    return [
        _row("resident memory", files, Unit.BYTES, held.resident_bytes, memory_limit),
        _row("peak memory", files, Unit.BYTES, held.peak_bytes, memory_limit),
        _row("processor time in an idle minute", files, Unit.SECONDS, held.idle_cpu_s, IDLE_LIMIT_S),
        _row("threads and descriptors left by close", files, Unit.COUNT, held.left, LEFT_LIMIT),
    ]


def count_held() -> int:
    """Count open descriptors and threads, if the kernel lists them also those unknown to Python."""
    tasks = "/proc/self/task"
    threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else threading.active_count()
    return threads + len(os.listdir("/dev/fd"))


def _row(what: str, files: int, unit: Unit, figure: float, limit: float | None) -> Row:
    return Row(f"watching: {what}", files, unit, {OURS: [figure]}, limit=limit)


def _hold_elsewhere(worktree: Path, store: Path, idle_s: float) -> Holding:
    command = [sys.executable, "-m", "benchmarks.holding", str(worktree), str(store), str(idle_s)]
    result = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    return Holding(**json.loads(result.stdout))


def _hold(worktree: Path, store: Path, idle_s: float) -> Holding:
    before = count_held()
    contestant = enter(OURS, worktree, store, watch=True)
    contestant.prime()
    # A list of all files would be counted as memory that watching needs.
    paths = list(islice(trees.walk_files(worktree), CHANGES))
    for number in range(SNAPSHOTS):
        trees.change_files(worktree, paths, changes=CHANGES, seed=number)
        contestant.track()
    resident_bytes, peak_bytes = resident_memory(), peak_memory()
    idle_cpu_s = _rest(idle_s)
    contestant.close()
    # A joined thread ends for Python shortly before it ends for the kernel.
    time.sleep(_THREAD_END_S)
    return Holding(resident_bytes, peak_bytes, idle_cpu_s, count_held() - before)


def _rest(seconds: float) -> float:
    """Do nothing for a while, and return the processor time of all threads, scaled to a minute."""
    start = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - start) / seconds * 60


if __name__ == "__main__":
    print(json.dumps(asdict(_hold(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))))
