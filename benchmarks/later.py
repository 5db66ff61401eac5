"""Snapshots, messages and reverts in a folder that the contestants already know: watched, or by full scans.

Every contestant has a worktree of its own. It records changed files at once, because an agent's hook does not
wait either.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.area import Area
from benchmarks.contestants import (
    GIT_ADD,
    OPENCODE,
    OURS,
    Contestant,
    MessageContestant,
    enter,
    enter_for_messages,
)
from benchmarks.measure import Effort, take_turns, timed
from benchmarks.report import Row, Targets, Unit, at_size

MESSAGE_CHANGES = 10

C = TypeVar("C", bound=Contestant)


@dataclass(frozen=True, slots=True)
class Approach:
    """How shadowtree finds out what changed, its rivals, and the figures that it should reach."""

    name: str
    watch: bool
    rivals: tuple[str, ...]
    """For snapshots; messages and reverts are compared only with OpenCode."""
    snapshots: Mapping[int, Targets]
    """The targets, by the number of changed files."""
    messages: Targets
    reverts: Mapping[int, Targets]


WATCHED = Approach(
    name="watched",
    watch=True,
    rivals=(OPENCODE,),
    snapshots={
        0: {},
        1: {OPENCODE: {1_000: 6, 10_000: 15, 100_000: 80}},
        10: {OPENCODE: {1_000: 4, 10_000: 8, 100_000: 60}},
        100: {},
    },
    messages={OPENCODE: {1_000: 6, 10_000: 10, 100_000: 60}},
    reverts={10: {OPENCODE: {1_000: 1.5, 10_000: 2.5, 100_000: 25}}, 1_000: {}},
)
FULL_SCAN = Approach(
    name="full scan",
    watch=False,
    rivals=(OPENCODE, GIT_ADD),
    snapshots={0: {}, 1: {OPENCODE: {1_000: 2, 10_000: 1, 100_000: 1}}, 10: {}, 100: {}},
    messages={OPENCODE: {1_000: 1.5, 10_000: 1, 100_000: 1.2}},
    reverts={10: {OPENCODE: {1_000: 1, 10_000: 0.75, 100_000: 1}}, 1_000: {}},
)


def measure_snapshots(approach: Approach, area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure further snapshots, with more and more files changed before each."""
    rivals = (OPENCODE,) if effort.only_targets else approach.rivals
    with _enter_all(enter, (OURS, *rivals), area, watch=approach.watch) as contestants:
        return [
            _measure_snapshots(approach, area, files, contestants, effort.runs, changes)
            for changes in _pick_changes(approach.snapshots, files, effort)
        ]


def measure_messages(approach: Approach, area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure everything that recording a message takes, before and after files are changed."""
    samples: dict[str, list[float]] = defaultdict(list)
    same_trees = True
    with _enter_all(enter_for_messages, (OURS, OPENCODE), area, watch=approach.watch) as contestants:
        for run, order in enumerate(take_turns(list(contestants), effort.runs + 1)):
            seed, said = area.next_seed(), []
            for name in order:
                contestant = contestants[name]
                os.sync()
                begin_s, _ = timed(contestant.begin_message)
                area.change(contestant.worktree, MESSAGE_CHANGES, seed)
                end_s, ended = timed(contestant.end_message)
                said.append(ended)
                if run > 0:  # the first run warms up
                    samples[name].append(begin_s + end_s)
            same_trees = same_trees and all(ended == said[0] for ended in said)
    title = f"{approach.name}: message, {MESSAGE_CHANGES} changed"
    targets = at_size(approach.messages, files)
    return [Row(title, files, Unit.SECONDS, samples, targets, same_trees=same_trees)]


def measure_reverts(approach: Approach, area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure how a message is reverted right after it was recorded."""
    with _enter_all(enter_for_messages, (OURS, OPENCODE), area, watch=approach.watch) as contestants:
        return [
            _measure_reverts(approach, area, files, contestants, effort.runs, changes)
            for changes in _pick_changes(approach.reverts, files, effort)
        ]


def _pick_changes(targets: Mapping[int, Targets], files: int, effort: Effort) -> Sequence[int]:
    return [
        changes for changes in targets if changes <= files and (targets[changes] or not effort.only_targets)
    ]


@contextmanager
def _enter_all(
    enter_one: Callable[..., C], names: Sequence[str], area: Area, *, watch: bool
) -> Iterator[dict[str, C]]:
    """Enter contestants, each with a worktree equal to the folder, and prime all of them."""
    contestants = {
        name: enter_one(name, area.worktree_of(name), area.store_of(name), watch=watch) for name in names
    }
    try:
        for contestant in contestants.values():
            contestant.prime()
        yield contestants
    finally:
        for contestant in contestants.values():
            contestant.close()


def _measure_snapshots(
    approach: Approach, area: Area, files: int, contestants: Mapping[str, Contestant], runs: int, changes: int
) -> Row:
    samples: dict[str, list[float]] = defaultdict(list)
    same_trees = True
    for run, order in enumerate(take_turns(list(contestants), runs + 1)):
        seed, trees = area.next_seed(), set()
        for name in order:
            area.change(contestants[name].worktree, changes, seed)
            seconds, tree = timed(contestants[name].track)
            trees.add(tree)
            if run > 0:  # the first run warms up
                samples[name].append(seconds)
        same_trees = same_trees and len(trees) == 1
    title = f"{approach.name}: snapshot, {changes:,} changed"
    targets = at_size(approach.snapshots[changes], files)
    return Row(title, files, Unit.SECONDS, samples, targets, same_trees=same_trees)


def _measure_reverts(
    approach: Approach,
    area: Area,
    files: int,
    contestants: Mapping[str, MessageContestant],
    runs: int,
    changes: int,
) -> Row:
    """Record a message and revert it, again and again; the worktree must end as it began."""
    samples: dict[str, list[float]] = defaultdict(list)
    before = area.digest(contestants[OURS].worktree)
    for run, order in enumerate(take_turns(list(contestants), runs + 1)):
        seed = area.next_seed()
        for name in order:
            contestant = contestants[name]
            contestant.begin_message()
            area.change(contestant.worktree, changes, seed)
            contestant.end_message()
            seconds, _ = timed(contestant.revert_message)
            if run > 0:  # the first run warms up
                samples[name].append(seconds)
    title = f"{approach.name}: revert of {changes:,} files"
    same_trees = all(area.digest(contestant.worktree) == before for contestant in contestants.values())
    targets = at_size(approach.reverts[changes], files)
    return Row(title, files, Unit.SECONDS, samples, targets, same_trees=same_trees)
