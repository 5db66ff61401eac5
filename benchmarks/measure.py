"""How things are measured: wall-clock time, peak memory, bytes of a store, and contestants taking turns.

Run as a module with a contestant, a worktree and a store, it takes one first snapshot and prints its
`FirstSnapshot` as JSON. Each has its own process, so that none profits from the one before, and the peak
memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.contestants import enter

T = TypeVar("T")

PROJECT = Path(__file__).resolve().parent.parent
"""Where `python -m` finds this package."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How often things are done."""

    runs: int
    long_runs: int
    """The runs of works that take long: first snapshots, growth, gc."""
    only_targets: bool
    """Leave out works without a figure to reach."""
    skip_slow: bool
    """Leave out works that take minutes."""
    idle_s: float
    """How long a process rests while its processor time is taken."""
    messages: int
    """How many messages a long history has."""


@dataclass(frozen=True, slots=True)
class FirstSnapshot:
    """What one first snapshot took."""

    tree: str
    seconds: float
    peak_bytes: int
    """Resident memory of the largest process that took part."""
    store_bytes: int
    """The sizes of the store's files."""
    store_disk_bytes: int
    """The blocks that they occupy, directories included."""


def measure_first(name: str, worktree: Path, store: Path) -> FirstSnapshot:
    """Take one first snapshot into a new store, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.measure", name, str(worktree), str(store)]
    result = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    return FirstSnapshot(**json.loads(result.stdout))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Do the work at once and return its seconds with its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def take_turns(names: Sequence[str], runs: int) -> Iterator[list[str]]:
    """Yield the order of each run, each beginning with another name, so that noise affects all alike."""
    for run in range(runs):
        first = run % len(names)
        yield [*names[first:], *names[:first]]


def disk_usage(root: Path) -> tuple[int, int]:
    """Add up, in bytes, the sizes of the files below `root`, and the blocks of files and directories.

    Files that disappear meanwhile are skipped.
    """
    sizes = blocks = 0
    for directory, _, names in os.walk(root):
        blocks += os.lstat(directory).st_blocks
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(os.path.join(directory, name))
                sizes += found.st_size
                blocks += found.st_blocks
    return sizes, blocks * 512


def peak_memory() -> int:
    """Return the largest resident memory, in bytes, of this process and of each of its finished children.

    For this process the kernel's own figure is preferred, because on Linux `ru_maxrss` survives exec and may
    be a parent's.
    """
    own = _read_status("VmHWM")
    return max(_peak_of(resource.RUSAGE_SELF) if own is None else own, _peak_of(resource.RUSAGE_CHILDREN))


def resident_memory() -> int:
    """Return the current resident memory of this process, in bytes; its peak if that is unknown."""
    now = _read_status("VmRSS")
    return peak_memory() if now is None else now


def _peak_of(whom: int) -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(whom).ru_maxrss * unit


def _read_status(field: str) -> int | None:
    """Return a figure of the kernel for this process, in bytes; None: there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except FileNotFoundError:
        return None
    found = next(line for line in lines if line.startswith(f"{field}:"))
    return int(found.split()[1]) * 1024


def _take_first(name: str, worktree: Path, store: Path) -> FirstSnapshot:
    _warm_up(name, store.with_name(f"{store.name}-warm-up"))
    contestant = enter(name, worktree, store)
    os.sync()  # else a contestant that calls fsync would pay for unwritten data of others
    seconds, tree = timed(contestant.track)
    contestant.close()
    peak_bytes = peak_memory()
    store_bytes, store_disk_bytes = disk_usage(store)
    return FirstSnapshot(tree, seconds, peak_bytes, store_bytes, store_disk_bytes)


def _warm_up(name: str, place: Path) -> None:
    """Take a snapshot of one small file, so that the time of imports is not counted."""
    worktree = place / "worktree"
    worktree.mkdir(parents=True)
    (worktree / "file.txt").write_text("warm\n")
    contestant = enter(name, worktree, place / "store")
    contestant.track()
    contestant.close()


if __name__ == "__main__":
    print(json.dumps(asdict(_take_first(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))))
