"""The works that are measured; `WORKS` at the end lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.area import Area
from benchmarks.collecting import measure_gc
from benchmarks.commands import measure_command, measure_daemon_commands, measure_hooks
from benchmarks.contestants import GIT_ADD, OPENCODE, OURS
from benchmarks.growing import measure_growth
from benchmarks.history import measure_series, measure_thousandth
from benchmarks.holding import measure_holding
from benchmarks.later import FULL_SCAN, WATCHED, measure_messages, measure_reverts, measure_snapshots
from benchmarks.measure import Effort, FirstSnapshot, measure_first, take_turns
from benchmarks.picking import measure_picker
from benchmarks.pushing import measure_fleet, measure_push, measure_refs
from benchmarks.report import BySize, Row, Targets, Unit, at_size
from benchmarks.serving import measure_serving
from benchmarks.switching import measure_switch

FIRST_TARGETS: Targets = {OPENCODE: {1_000: 2, 10_000: 3.5, 100_000: 30}}
PEAK_LIMITS: BySize = {10_000: 80e6, 100_000: 150e6}

SLOW_FROM_FILES = 50_000
"""From this size on, OpenCode's first snapshot of a folder takes minutes, because it is quadratic."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something to measure, given an area, its number of files and the effort."""

    name: str
    summary: str
    measure: Callable[[Area, int, Effort], list[Row]]
    is_in_table: bool = False
    """Whether it has some of the figures to reach."""


def measure_first_in_folder(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a first snapshot without a repository."""
    rivals = (OPENCODE,) if effort.only_targets else (OPENCODE, GIT_ADD)
    rival_runs = dict.fromkeys(rivals, effort.long_runs)
    if files >= SLOW_FROM_FILES:
        rival_runs[OPENCODE] = 0 if effort.skip_slow else 1
    taken = _take_first_snapshots(area, area.folder, effort.long_runs, rival_runs)
    rows = _first_rows("first snapshot, no repository", files, taken, FIRST_TARGETS)
    return rows[:1] if effort.only_targets else rows


def measure_first_in_repository(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a first snapshot in a git repository, whose objects OpenCode borrows."""
    runs = effort.long_runs
    taken = _take_first_snapshots(area, area.repository, runs, {OPENCODE: runs})
    return _first_rows("first snapshot, repository", files, taken, {})


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


WORKS = (
    Work(
        "watched",
        "later snapshot in process, watcher on, 0, 1, 10, 100 changed files: time",
        partial(measure_snapshots, WATCHED),
        is_in_table=True,
    ),
    Work(
        "watched-message",
        "a whole message in process, watcher on, 10 changed files, patch: time",
        partial(measure_messages, WATCHED),
        is_in_table=True,
    ),
    Work(
        "watched-revert",
        "revert of 10 and of 1,000 files in process, watcher on, durable: time",
        partial(measure_reverts, WATCHED),
        is_in_table=True,
    ),
    Work(
        "later",
        "later snapshot in process, full scan, 0, 1, 10, 100 changed files: time",
        partial(measure_snapshots, FULL_SCAN),
        is_in_table=True,
    ),
    Work(
        "message",
        "a whole message in process, full scans, 10 changed files, patch: time",
        partial(measure_messages, FULL_SCAN),
        is_in_table=True,
    ),
    Work(
        "revert",
        "revert of 10 and of 1,000 files in process, full scans, durable: time",
        partial(measure_reverts, FULL_SCAN),
        is_in_table=True,
    ),
    Work(
        "first",
        "first snapshot where there is no repository: time, memory, store",
        measure_first_in_folder,
        is_in_table=True,
    ),
    Work(
        "series",
        "400 messages of 10 files, then of 100, watched, no pause: the worst",
        measure_series,
        is_in_table=True,
    ),
    Work("growth", "what edits turn by turn add to the store", measure_growth, is_in_table=True),
    Work(
        "gc",
        "gc after half of a long history was forgotten: time, memory, lock",
        measure_gc,
        is_in_table=True,
    ),
    Work(
        "repository",
        "first snapshot in a git repository as after a clone: time, memory, store",
        measure_first_in_repository,
    ),
    Work(
        "thousandth", "a message at the end of a long history and at its beginning: time", measure_thousandth
    ),
    Work("switch", "switch between branches after 1,000 and after 10 messages: time", measure_switch),
    Work(
        "watched-memory",
        "a process that watches: memory, idle processor time, what close leaves",
        measure_holding,
    ),
    Work("push", "push of a message with 10 changed files: bytes, round trips, time", measure_push),
    Work("refs", "the same to a repository with 10, 1,000 and 10,000 refs: bytes, time", measure_refs),
    Work("fleet", "20 workers that push to one repository at once: time, room on the server", measure_fleet),
    Work("command", "`shadowtree track` as a one-shot command, nothing changed: time", measure_command),
    Work("daemon", "`shadowtree begin` and `end` while a daemon watches: time", measure_daemon_commands),
    Work("picker", "first screen of `shadowtree rewind` after a long history: time", measure_picker),
    Work("serving", "the timeline of a long history over HTTP: time", measure_serving),
    Work("hook", "`shadowtree hook` around tool calls, alone and with the daemon: time", measure_hooks),
)
