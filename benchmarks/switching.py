"""How long a switch takes when the tree is large, and when the history is long.

There is no rival: shadowtree is compared with itself. The history is made while the worktree is small,
because each of its messages scans everything.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.measure import Effort, take_turns, timed
from benchmarks.report import Row, Unit
from shadowtree import Shadow

LONG, SHORT = 1_000, 10
"""How many messages came before the branches."""
SHORT_HISTORY = f"{SHORT} messages"
TRACK = "track, unchanged"
BRANCHES = ("one", "other")
CHANGES = (1, 10, 100)
"""How many paths differ between the branches."""
SHORT_TARGET = 0.8
"""A long history may cost a quarter more than a short one, to allow for noise."""

_HISTORY_FILES = 50


class Branched:
    """A worktree with a history and, for each number of changes, two branches to switch between."""

    def __init__(self, worktree: Path, source: Path, store: Path, *, messages: int) -> None:
        self._worktree = worktree
        self.shadow = Shadow(worktree, store=store)
        self._make_history(messages)
        trees.copy_tree(source, worktree / "tree")
        self._paths = trees.list_files(worktree / "tree")
        self.shadow.track()

    def fork(self, changes: int) -> None:
        """Record two messages that each change `changes` paths, each on a branch of its own."""
        for number, name in enumerate(BRANCHES):
            with self.shadow.message(f"{name}-{changes}"):
                root = self._worktree / "tree"
                trees.change_files(root, self._paths, changes=changes, seed=1000 * changes + number)
            if name != BRANCHES[-1]:
                self.shadow.undo()

    def switch(self, changes: int, name: str) -> None:
        """Go to one of the two branches."""
        self.shadow.switch(f"{name}-{changes}")

    def _make_history(self, messages: int) -> None:
        for number in range(messages):
            with self.shadow.message(f"history-{number}"):
                place = self._worktree / f"{number % _HISTORY_FILES}.txt"
                place.write_text(f"{number}\n")


def measure_switch(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure a switch after a long and after a short history, and the scan that both need."""
    contestants = {
        OURS: Branched(area.new_worktree(), area.folder, area.new_store(), messages=LONG),
        SHORT_HISTORY: Branched(area.new_worktree(), area.folder, area.new_store(), messages=SHORT),
    }
    rows = [_measure(contestants, files, effort.runs, changes) for changes in CHANGES if changes <= files]
    for contestant in contestants.values():
        contestant.shadow.close()
    return rows


def _measure(contestants: dict[str, Branched], files: int, runs: int, changes: int) -> Row:
    for contestant in contestants.values():
        contestant.fork(changes)
    samples: dict[str, list[float]] = defaultdict(list)
    for run, order in enumerate(take_turns(list(contestants), 2 * (runs + 1))):
        for name in order:
            contestant = contestants[name]
            os.sync()
            # Both are on the last branch, so the first switch goes to the other one.
            seconds, _ = timed(lambda: contestant.switch(changes, BRANCHES[run % 2]))  # noqa: B023  # called at once
            if run > 1:  # the first run warms up
                samples[name].append(seconds)
        os.sync()
        seconds, _ = timed(contestants[OURS].shadow.track)
        if run > 1:
            samples[TRACK].append(seconds)
    title = f"switch, {changes:,} paths"
    return Row(title, files, Unit.SECONDS, samples, {SHORT_HISTORY: SHORT_TARGET})
