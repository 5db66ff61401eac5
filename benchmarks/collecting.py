"""What collecting takes when half of a long history is forgotten: `gc`, and `git gc` on the same objects.

Run as a module with a contestant, the worktree and a store, it collects once and prints its `Collected` as
JSON: a process of its own has only its own memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import rivals
from benchmarks.area import Area
from benchmarks.contestants import GIT_GC, OURS
from benchmarks.measure import PROJECT, Effort, disk_usage, peak_memory, take_turns, timed
from benchmarks.report import BySize, Row, Targets, Unit, at_size

PEAK_LIMITS: BySize = {10_000: 300e6}
TIME_TARGETS: Targets = {GIT_GC: {10_000: 1}}


@dataclass(frozen=True, slots=True)
class Collected:
    """What collecting took, and left."""

    seconds: float
    peak_bytes: int
    objects_bytes: int


def measure_gc(area: Area, files: int, effort: Effort) -> list[Row]:
    """Record a long history, forget half of it, and let each contestant collect copies of that store."""
    from benchmarks.growing import record_messages
    from shadowtree import Shadow

    store = area.new_store()
    record_messages(area, store, effort.messages)
    with Shadow(area.folder, store=store) as shadow:
        shadow.forget(keep_last=max(1, effort.messages // 2), gc=False)
    starts = {OURS: store, GIT_GC: _make_chain_anew(area, store)}
    taken: dict[str, list[Collected]] = {name: [] for name in starts}
    for order in take_turns(list(starts), effort.runs):
        for name in order:
            copy = area.new_store()
            shutil.copytree(starts[name], copy)
            taken[name].append(_collect_elsewhere(name, area.folder, copy))
    title = f"gc, {effort.messages:,} messages, half of them forgotten"
    seconds, peaks, sizes = (
        {name: [getattr(one, figure) for one in collected] for name, collected in taken.items()}
        for figure in ("seconds", "peak_bytes", "objects_bytes")
    )
    return [
        Row(title, files, Unit.SECONDS, seconds, at_size(TIME_TARGETS, files)),
        Row(f"{title}: peak memory", files, Unit.BYTES, peaks, limit=PEAK_LIMITS.get(files)),
        Row(f"{title}: objects left", files, Unit.BYTES, sizes),
    ]


def _make_chain_anew(area: Area, store: Path) -> Path:
    """Copy a store and take over the branch of another copy that was collected: git decides by it alone."""
    from shadowtree import Shadow
    from shadowtree.store.directory import KEEPER_REF

    collected, copy = area.new_store(), area.new_store()
    for place in (collected, copy):
        shutil.copytree(store, place)
    with Shadow(area.folder, store=collected) as shadow:
        shadow.gc()
    rivals.take_over_branch(copy, collected, KEEPER_REF)
    return copy


def _collect_elsewhere(name: str, worktree: Path, store: Path) -> Collected:
    command = [sys.executable, "-m", "benchmarks.collecting", name, str(worktree), str(store)]
    result = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    return Collected(**json.loads(result.stdout))


def _collect(name: str, worktree: Path, store: Path) -> Collected:
    if name == OURS:
        from shadowtree import Shadow

        with Shadow(worktree, store=store) as shadow:
            seconds, _ = timed(shadow.gc)
    else:
        seconds, _ = timed(lambda: rivals.collect_garbage(store, aggressive=False))
    return Collected(seconds, peak_memory(), disk_usage(store / "objects")[0])


if __name__ == "__main__":
    print(json.dumps(asdict(_collect(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))))
