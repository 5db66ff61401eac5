"""How a store grows turn by turn, compared with OpenCode's: as left, after idle time, and after gc."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import rivals
from benchmarks.area import Area
from benchmarks.contestants import OPENCODE, OURS
from benchmarks.history import EDITS
from benchmarks.measure import Effort, disk_usage
from benchmarks.ours import Ours, idle
from benchmarks.report import BySize, Row, Samples, Targets, Unit, at_size
from shadowtree import Shadow

TURNS_PART = 0.2
"""The store grows by this share of the messages of a long history."""
LEFT_TARGETS: Targets = {OPENCODE: {10_000: 4}}
"""As left, on disk."""
IDLE_LIMITS: BySize = {10_000: 0.6e6}
"""After idle time, in bytes of its files."""

Sizes = tuple[int, int]
"""Of a store: the bytes of its files, and those of their blocks."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What some turns added to the stores."""

    as_left: Sizes
    after_idle: Sizes
    after_gc: Sizes
    opencode: Sizes
    same_trees: bool


def measure_growth(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure how much edits, turn by turn, add to the store."""
    turns = max(1, round(TURNS_PART * effort.messages))
    grown = [_grow(area, turns) for _ in range(effort.long_runs)]
    title = f"growth by {turns:,} turns of {EDITS} edits"
    same_trees = all(one.same_trees for one in grown)
    left: Samples = {
        OURS: [one.as_left[1] for one in grown],
        OPENCODE: [one.opencode[1] for one in grown],
    }
    after_idle: Samples = {OURS: [one.after_idle[0] for one in grown]}
    after_gc: Samples = {OURS: [one.after_gc[0] for one in grown]}
    targets, limit = at_size(LEFT_TARGETS, files), IDLE_LIMITS.get(files)
    return [
        Row(f"{title}, as left: on disk", files, Unit.BYTES, left, targets, same_trees=same_trees),
        Row(f"{title}, after idle time", files, Unit.BYTES, after_idle, limit=limit),
        Row(f"{title}, after gc", files, Unit.BYTES, after_gc),
    ]


def _grow(area: Area, turns: int) -> Grown:
    """Have both record the same turns of one worktree, and measure their stores before and after.

    Our store has its idle time before the turns, so that the room this saves for the first snapshot does not
    hide what the turns add.
    """
    store, opencode_store = area.new_store(), area.new_store()
    opencode = rivals.OpenCode(area.folder, opencode_store)
    opencode.prime()
    with Shadow(area.folder, store=store) as shadow:
        shadow.track()
        idle(shadow)
    before, opencode_before = disk_usage(store), disk_usage(opencode_store)
    ours = Ours(area.folder, store, watch=True)
    ours.prime()
    same_trees = True
    for _ in range(turns):
        ours.begin_message()
        area.edit_on(EDITS)
        same_trees &= ours.end_message().after == opencode.track()
    ours.close()
    as_left = disk_usage(store)
    with Shadow(area.folder, store=store) as shadow:
        idle(shadow)
    after_idle = disk_usage(store)
    with Shadow(area.folder, store=store) as shadow:
        shadow.gc()
    return Grown(
        _subtract(as_left, before),
        _subtract(after_idle, before),
        _subtract(disk_usage(store), before),
        _subtract(disk_usage(opencode_store), opencode_before),
        same_trees,
    )


def _subtract(after: Sizes, before: Sizes) -> Sizes:
    return after[0] - before[0], after[1] - before[1]
