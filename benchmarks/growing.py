"""How a store grows turn by turn, and whether messages take longer as it does."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rivals
from benchmarks.area import Area
from benchmarks.contestants import GIT_AGGRESSIVE, OPENCODE, OURS
from benchmarks.measure import Effort, disk_usage
from benchmarks.ours import Ours
from benchmarks.report import Row, Samples, Targets, Unit, at_size
from shadowtree import Shadow

EDITS = 5
"""How many files a message edits."""
TURNS_PART = 5
"""The store grows by one in so many of the messages of a long history."""
LOOK_S = 0.005
"""How often the store is looked at for its largest moment."""
GROWTH_TARGETS: Targets = {OPENCODE: {10_000: 5}, GIT_AGGRESSIVE: {10_000: 1 / 1.5}}
MOST_GROWTH = 1.2
"""The last message against an early one, and the largest moment of the store against the last."""
ALLOWED = "1.2 x later + new"
MOMENT_TARGETS: Targets = {ALLOWED: {10_000: 1}}
EARLY = "early message"
MESSAGE_TARGETS: Targets = {EARLY: {10_000: 1 / MOST_GROWTH}}

_EARLY_MESSAGE, _AROUND, _MANY = 10, 5, 100
"""Which message is early, and how many are measured before and after it, or in all for the mean."""
_TIDY_S = 600

Sizes = tuple[int, int]
"""Of a store: the bytes of its files, and those of their blocks."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What some turns added to the stores."""

    ours: dict[str, Sizes]
    """By what was done since."""
    opencode: Sizes
    aggressive: int
    allowed: float
    """How large our store may have been at any moment."""
    largest: int
    same_trees: bool


def measure_growth(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure what edits, turn by turn, add to the store, and how large it is at its largest moment."""
    turns = max(1, effort.messages // TURNS_PART)
    grown = [_grow(area, turns) for _ in range(effort.runs)]
    title = f"growth by {turns:,} turns of {EDITS} edits"
    same_trees = all(one.same_trees for one in grown)
    targets = at_size(GROWTH_TARGETS, files)
    on_disk = {rival: ratio for rival, ratio in targets.items() if rival == OPENCODE}
    rows = []
    for moment in grown[0].ours:
        sizes: Samples = {
            OURS: [one.ours[moment][0] for one in grown],
            OPENCODE: [one.opencode[0] for one in grown],
            GIT_AGGRESSIVE: [one.aggressive for one in grown],
        }
        blocks: Samples = {
            OURS: [one.ours[moment][1] for one in grown],
            OPENCODE: [one.opencode[1] for one in grown],
        }
        rows += [
            Row(f"{title}, {moment}", files, Unit.BYTES, sizes, targets, same_trees=same_trees),
            Row(f"{title}, {moment}: on disk", files, Unit.BYTES, blocks, on_disk, same_trees=same_trees),
        ]
    moments: Samples = {OURS: [one.largest for one in grown], ALLOWED: [one.allowed for one in grown]}
    return [
        *rows,
        Row(
            "largest moment of the store", files, Unit.BYTES, moments, at_size({ALLOWED: {10_000: 1}}, files)
        ),
    ]


def measure_thousandth(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure messages at the beginning and at the end of a long history."""
    samples: dict[str, list[float]] = defaultdict(list)
    means: dict[str, list[float]] = defaultdict(list)
    for _ in range(effort.runs):
        seconds = record_messages(area, area.new_store(), effort.messages + _MANY // 2)
        for name, number in ((OURS, effort.messages), (EARLY, _EARLY_MESSAGE)):
            samples[name] += seconds[max(0, number - _AROUND) : number + _AROUND]
            means[name].append(statistics.mean(seconds[max(0, number - _MANY // 2) :][:_MANY]))
    title = f"message {effort.messages:,} of {EDITS} edits, watched"
    targets = at_size(MESSAGE_TARGETS, files)
    return [
        Row(title, files, Unit.SECONDS, samples, targets),
        Row(f"{title}: mean of {_MANY}", files, Unit.SECONDS, means, targets),
    ]


def _grow(area: Area, turns: int) -> Grown:
    """Let both record the same turns of one worktree, and look at their stores before and after."""
    store, opencode_store = area.new_store(), area.new_store()
    ours, opencode = Ours(area.folder, store, watch=True), rivals.OpenCode(area.folder, opencode_store)
    ours.prime()
    opencode.prime()
    ours.close()
    before, opencode_before = disk_usage(store), disk_usage(opencode_store)
    aggressive_before = _pack_aggressively(store, area.new_store())
    new_bytes, same_trees = 0, True
    with _watch_size(store) as largest:
        ours = Ours(area.folder, store, watch=True)
        ours.prime()
        for _ in range(turns):
            ours.begin_message()
            new_bytes += area.edit_folder(EDITS)
            same_trees &= ours.end_message().after == opencode.track()
        ours.close()
        after = {"as left": disk_usage(store)}
        aggressive_after = _pack_aggressively(store, area.new_store())
        with Shadow(area.folder, store=store) as shadow:
            shadow.tidy(_TIDY_S)
        after["after idle time"] = disk_usage(store)
        with Shadow(area.folder, store=store) as shadow:
            shadow.gc()
        after["after gc"] = disk_usage(store)
    return Grown(
        {moment: _subtract(sizes, before) for moment, sizes in after.items()},
        _subtract(disk_usage(opencode_store), opencode_before),
        aggressive_after - aggressive_before,
        MOST_GROWTH * after["after gc"][0] + new_bytes,
        largest[0],
        same_trees,
    )


def _subtract(after: Sizes, before: Sizes) -> Sizes:
    return after[0] - before[0], after[1] - before[1]


def _pack_aggressively(store: Path, copy: Path) -> int:
    """Tell how many bytes the objects of a store have when git took all its time for them."""
    shutil.copytree(store, copy)
    rivals.collect_garbage(copy, aggressive=True)
    return disk_usage(copy / "objects")[0]


@contextmanager
def _watch_size(store: Path) -> Iterator[list[int]]:
    """Look at a store again and again; in the list is the largest size that it had."""
    largest = [0]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            largest[0] = max(largest[0], disk_usage(store)[0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield largest
    finally:
        is_over.set()
        thread.join()


def record_messages(area: Area, store: Path, messages: int) -> list[float]:
    """Record a history in a new store, and give the seconds that begin and end of each message took."""
    ours = Ours(area.folder, store, watch=True)
    ours.prime()
    seconds = []
    for _ in range(messages):
        start = time.perf_counter()
        ours.begin_message()
        begun = time.perf_counter()
        area.edit_folder(EDITS)
        edited = time.perf_counter()
        ours.end_message()
        seconds.append(time.perf_counter() - edited + begun - start)
    ours.close()
    return seconds
