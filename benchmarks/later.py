"""Snapshots and messages of a folder that the contestants know already: by full scans, or watched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.area import Area
from benchmarks.contestants import GIT_ADD, OPENCODE, OURS, Contestant, enter, enter_for_messages
from benchmarks.measure import Effort, take_turns, timed
from benchmarks.report import Row, Targets, Unit, at_size

MESSAGE_CHANGES = 10
GROWTH_FROM_FILES = 10_000
"""In smaller trees the changed files share their directories, so that less has to be rewritten."""


@dataclass(frozen=True, slots=True)
class Approach:
    """How shadowtree finds out what changed, against whom, and the figures that it should reach."""

    snapshot_title: str
    message_title: str
    watch: bool
    rivals: tuple[str, ...]
    """In snapshots; messages are recorded beside OpenCode alone."""
    snapshots: Mapping[int, Targets]
    """How many files are changed, to the targets."""
    messages: Targets
    most_growth: float | None = None
    """How many times as long a snapshot may take in the largest tree as in the smallest."""


FULL_SCAN = Approach(
    snapshot_title="later snapshot",
    message_title="message",
    watch=False,
    rivals=(OPENCODE, GIT_ADD),
    snapshots={
        0: {},
        1: {OPENCODE: {1_000: 2, 10_000: 1, 100_000: 1}},
        10: {},
        100: {OPENCODE: {1_000: 2, 10_000: 1.4, 100_000: 1.2}},
    },
    messages={OPENCODE: {1_000: 3, 10_000: 1.3, 100_000: 1.3}},
)
WATCHED = Approach(
    snapshot_title="watched snapshot",
    message_title="watched message",
    watch=True,
    rivals=(OPENCODE,),
    snapshots={
        0: {},
        1: {OPENCODE: {10_000: 20, 100_000: 100, 500_000: 400}},
        10: {OPENCODE: {10_000: 10, 100_000: 60, 500_000: 200}},
        100: {},
    },
    messages={OPENCODE: {10_000: 15, 100_000: 80, 500_000: 300}},
    most_growth=1.5,
)


def measure_snapshots(approach: Approach, area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure further snapshots, with more and more files changed before each."""
    contestants = {
        name: enter(name, area.folder, _store_of(name, area), watch=approach.watch)
        for name in (OURS, *approach.rivals)
    }
    for contestant in contestants.values():
        contestant.prime()
    rows = [
        _measure_changes(approach, area, files, contestants, effort.runs, changes)
        for changes in approach.snapshots
        if changes <= files
    ]
    for contestant in contestants.values():
        contestant.close()
    return rows


def measure_messages(approach: Approach, area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure all that recording a message takes, before and after files are changed."""
    contestants = {
        name: enter_for_messages(name, area.folder, _store_of(name, area), watch=approach.watch)
        for name in (OURS, OPENCODE)
    }
    for contestant in contestants.values():
        contestant.prime()
    samples: dict[str, list[float]] = defaultdict(list)
    same_trees = True
    for run, order in enumerate(take_turns(list(contestants), effort.runs + 1)):
        seconds = {name: timed(contestants[name].begin_message)[0] for name in order}
        area.change_folder(MESSAGE_CHANGES)
        said = []
        for name in order:
            more, ended = timed(contestants[name].end_message)
            seconds[name] += more
            said.append(ended)
        same_trees = same_trees and all(ended == said[0] for ended in said)
        if run > 0:  # the first run warms up
            for name in contestants:
                samples[name].append(seconds[name])
    for contestant in contestants.values():
        contestant.close()
    title = f"{approach.message_title}, {MESSAGE_CHANGES} changed"
    return [
        Row(title, files, Unit.SECONDS, samples, at_size(approach.messages, files), same_trees=same_trees)
    ]


def _store_of(name: str, area: Area) -> Path:
    return area.new_store() if name == OURS else area.store_of(name)


def _measure_changes(
    approach: Approach, area: Area, files: int, contestants: Mapping[str, Contestant], runs: int, changes: int
) -> Row:
    """Change files and let every contestant take its snapshot of them, again and again."""
    samples: dict[str, list[float]] = defaultdict(list)
    same_trees = True
    for run, order in enumerate(take_turns(list(contestants), runs + 1)):
        area.change_folder(changes)
        trees = set()
        for name in order:
            seconds, tree = timed(contestants[name].track)
            trees.add(tree)
            if run > 0:  # the first run warms up
                samples[name].append(seconds)
        same_trees = same_trees and len(trees) == 1
    return Row(
        f"{approach.snapshot_title}, {changes} changed",
        files,
        Unit.SECONDS,
        samples,
        at_size(approach.snapshots[changes], files),
        same_trees=same_trees,
        most_growth=approach.most_growth if files >= GROWTH_FROM_FILES else None,
    )
