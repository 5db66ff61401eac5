"""The works that are measured, each with the figures it should reach; `WORKS` at the end lists them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.area import PAUSE_S, Area
from benchmarks.collecting import measure_gc
from benchmarks.commands import measure_command, measure_daemon_commands
from benchmarks.contestants import GIT_ADD, OPENCODE, OURS, MessageContestant, enter_for_messages
from benchmarks.growing import measure_growth, measure_thousandth
from benchmarks.holding import measure_holding
from benchmarks.later import FULL_SCAN, WATCHED, measure_messages, measure_snapshots
from benchmarks.measure import Effort, FirstSnapshot, measure_first, take_turns, timed
from benchmarks.report import BySize, Row, Targets, Unit, at_size

FIRST_TARGETS: Targets = {
    OPENCODE: {1_000: 2, 10_000: 3.5, 100_000: 30},
    GIT_ADD: {1_000: 1.5, 10_000: 3, 100_000: 3},
}
REPOSITORY_TARGETS: Targets = {OPENCODE: {1_000: 1, 10_000: 0.7, 100_000: 0.6}}
"""For packed and for loose objects alike: a pack can be taken over whole, loose objects one by one."""
REVERT_TARGETS: Mapping[int, Targets] = {
    10: {OPENCODE: {10_000: 1}},
    1_000: {OPENCODE: {10_000: 3}},
}
"""How many files are taken back, to the targets."""
PEAK_LIMITS: BySize = {10_000: 80e6, 100_000: 150e6}

SLOW_FROM_FILES = 50_000
"""From here on OpenCode's first snapshot of a folder takes minutes: it is quadratic."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something that is measured, given an area, its number of files and the effort."""

    name: str
    summary: str
    measure: Callable[[Area, int, Effort], list[Row]]


def measure_first_in_folder(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a first snapshot where there is no repository."""
    rival_runs = {OPENCODE: effort.rival_runs, GIT_ADD: effort.rival_runs}
    if files >= SLOW_FROM_FILES:
        rival_runs[OPENCODE] = 0 if effort.skip_slow else 1
    taken = _take_first_snapshots(area, area.folder, effort.runs, rival_runs)
    return _first_rows("first snapshot, no repository", files, taken, FIRST_TARGETS)


def measure_first_in_packed_repository(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a first snapshot in a git repository that is as after a clone."""
    taken = _take_first_snapshots(area, area.packed_repository, effort.runs, {OPENCODE: effort.rival_runs})
    return _first_rows("first snapshot, packed repository", files, taken, REPOSITORY_TARGETS)


def measure_first_in_loose_repository(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a first snapshot in a git repository that is as after its first commit."""
    taken = _take_first_snapshots(area, area.loose_repository, effort.runs, {OPENCODE: effort.rival_runs})
    return _first_rows("first snapshot, loose repository", files, taken, REPOSITORY_TARGETS)


def measure_revert(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure how a message is taken back; each contestant has a worktree of its own."""
    worktrees = {OURS: area.folder, OPENCODE: area.copy_folder()}
    contestants = {
        name: enter_for_messages(name, worktree, area.new_store()) for name, worktree in worktrees.items()
    }
    for contestant in contestants.values():
        contestant.prime()
    rows = [
        _measure_reverts(area, files, worktrees, contestants, effort.runs, changes)
        for changes in REVERT_TARGETS
        if changes <= files
    ]
    for contestant in contestants.values():
        contestant.close()
    return rows


def measure_switches(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure how a session is switched between branches."""
    from benchmarks.switching import measure_switch

    return measure_switch(area, files, effort.runs)


def _take_first_snapshots(
    area: Area, worktree: Path, runs: int, rival_runs: Mapping[str, int]
) -> dict[str, list[FirstSnapshot]]:
    taken: dict[str, list[FirstSnapshot]] = defaultdict(list)
    for run, order in enumerate(take_turns([OURS, *rival_runs], runs)):
        for name in order:
            if run < rival_runs.get(name, runs):
                taken[name].append(measure_first(name, worktree, area.new_store()))
    return taken


def _first_rows(
    title: str, files: int, taken: Mapping[str, Sequence[FirstSnapshot]], targets: Targets
) -> list[Row]:
    """Make the rows of time, memory and store out of the same snapshots."""
    trees = {snapshot.tree for snapshots in taken.values() for snapshot in snapshots}

    def collect(figure: Callable[[FirstSnapshot], float]) -> dict[str, list[float]]:
        return {name: [figure(snapshot) for snapshot in snapshots] for name, snapshots in taken.items()}

    seconds = collect(lambda snapshot: snapshot.seconds)
    peak = collect(lambda snapshot: snapshot.peak_bytes)
    on_disk = collect(lambda snapshot: snapshot.store_disk_bytes)
    sizes = collect(lambda snapshot: snapshot.store_bytes)
    return [
        Row(title, files, Unit.SECONDS, seconds, at_size(targets, files), same_trees=len(trees) == 1),
        Row(f"{title}: peak memory", files, Unit.BYTES, peak, limit=PEAK_LIMITS.get(files)),
        Row(f"{title}: store on disk", files, Unit.BYTES, on_disk),
        Row(f"{title}: store file sizes", files, Unit.BYTES, sizes),
    ]


def _measure_reverts(
    area: Area,
    files: int,
    worktrees: Mapping[str, Path],
    contestants: Mapping[str, MessageContestant],
    runs: int,
    changes: int,
) -> Row:
    """Record a message and take it back, again and again; where that leads must be where it began."""
    samples: dict[str, list[float]] = defaultdict(list)
    before = area.digest(worktrees[OURS])
    same_trees = True
    for run, order in enumerate(take_turns(list(contestants), runs + 1)):
        for contestant in contestants.values():
            contestant.begin_message()
        area.change_alike(list(worktrees.values()), changes)
        for contestant in contestants.values():
            contestant.end_message()
        for name in order:
            seconds, _ = timed(contestants[name].revert_message)
            if run > 0:  # the first run warms up
                samples[name].append(seconds)
        same_trees = same_trees and all(area.digest(place) == before for place in worktrees.values())
        time.sleep(PAUSE_S)
    title = f"revert, {changes:,} changed"
    targets = at_size(REVERT_TARGETS[changes], files)
    return Row(title, files, Unit.SECONDS, samples, targets, same_trees=same_trees)


WORKS = (
    Work(
        "first", "first snapshot where there is no repository: time, memory, store", measure_first_in_folder
    ),
    Work("packed", "the same in a git repository, all in one pack", measure_first_in_packed_repository),
    Work("loose", "the same in a git repository, nothing packed", measure_first_in_loose_repository),
    Work(
        "later",
        "later snapshot in process, full scan, 0, 1, 10, 100 changed files: time",
        partial(measure_snapshots, FULL_SCAN),
    ),
    Work(
        "message",
        "a whole message in process, full scans, 10 changed files, patch: time",
        partial(measure_messages, FULL_SCAN),
    ),
    Work(
        "watched",
        "later snapshot in process, watcher on, 0, 1, 10, 100 changed files: time, growth",
        partial(measure_snapshots, WATCHED),
    ),
    Work(
        "watched-message",
        "a whole message in process, watcher on, 10 changed files, patch: time",
        partial(measure_messages, WATCHED),
    ),
    Work(
        "watched-memory",
        "a process that watches: memory, idle processor time, what close leaves",
        measure_holding,
    ),
    Work("revert", "revert of 10 and of 1,000 files in process, durable: time", measure_revert),
    Work("switch", "switch between branches after 1,000 and after 10 messages: time", measure_switches),
    Work("growth", "what edits turn by turn add to the store, and its largest moment", measure_growth),
    Work(
        "thousandth", "a message at the end of a long history and at its beginning: time", measure_thousandth
    ),
    Work("gc", "gc of a long history of which half is forgotten: time, memory", measure_gc),
    Work("command", "`shadowtree track` as a one-shot command, nothing changed: time", measure_command),
    Work("daemon", "`shadowtree begin` and `end` while a daemon watches: time", measure_daemon_commands),
)
