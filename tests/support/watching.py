"""The law of watching: a snapshot with the watcher equals a cold one, always."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import TypeAlias

import pytest

from shadowtree import Shadow, Skipped, Snapshot, Watching
from shadowtree.base.limits import Limits
from tests.support.limits import change_limits, usual_limits
from tests.support.memory import new_place
from tests.support.processes import in_child
from tests.support.referee import git
from tests.support.trees import Tree, executable, link

SETTINGS = {"min_free": 0}

BASE: Tree = {
    ".gitignore": "*.log\nbuild/\n",
    "a.txt": "one\n",
    "run.sh": executable("#!"),
    "b.log": "ignored",
    "ln": link("a.txt"),
    "src": {"m.py": "m", "n.py": "n", "deep": {"er": {"f": "f"}}},
    "c": {"x": "x", "d": {"y": "y", "e": {"z": "z"}}},
    "build": {"out": "o", "sub": {"p": "p"}},
    "node_modules": {"pkg": {"index.js": "i"}},
    "empty": {},
}
"""Something of everything."""

View: TypeAlias = tuple[str, str, int, list[Skipped]]
"""What has to be equal: tree, facts, number of files, skipped paths."""


def view(snapshot: Snapshot) -> View:
    """Return what has to be equal."""
    return snapshot.tree, snapshot.facts, snapshot.files, snapshot.skipped


def take_cold(top: Path, store: Path, **settings: object) -> Snapshot:
    """Take a snapshot without a watcher."""
    with Shadow(top, store=store, settings={**SETTINGS, **settings}) as shadow:
        return shadow.take_snapshot()


OLD_NS = 10_000_000_000
"""With a clock that is this far ahead, no file is young."""
MOUNTED = "something was mounted or unmounted"
"""A reason of the watcher for a full scan."""


class Watched:
    """A worktree with a shadow that watches it."""

    def __init__(self, top: Path, place: Path, *, limits: Limits | None = None, **settings: object) -> None:
        self.top = top
        self.shadow = Shadow(
            top,
            store=place / "warm",
            watch=True,
            settings={**SETTINGS, **settings},
            limits=limits or usual_limits(),
        )
        self._place = place
        self._settings = settings
        self.is_checked = False
        """Whether it was compared with a cold store, and not yet with another process."""

    def watching(self) -> Watching:
        """Return how well the worktree is watched."""
        watching = self.shadow.watching
        assert watching is not None
        return watching

    def rescans(self) -> int:
        """Return how often everything was scanned."""
        return self.watching().rescans

    def check(self, *, has_history: bool = False) -> Snapshot:
        """Take a snapshot, and compare it with a cold one, which scans everything.

        The cold one has a store of its own; if the history of the store matters (`has_history`), it is taken
        by another process with the same store. Otherwise that comparison is made when the test is over.
        """
        if has_history:
            return self.check_in_another_process()
        warm = self.shadow.take_snapshot()
        self.is_checked = True
        store = new_place(self._place / "cold")
        cold = take_cold(self.top, store, **self._settings)
        assert view(warm) == view(cold), _list_differing(self.shadow.store, warm, store, cold)
        shutil.rmtree(store)
        return warm

    def check_in_another_process(self) -> Snapshot:
        """Take a snapshot, and compare it with that of another process with the same store."""
        warm = self.shadow.take_snapshot()
        other = in_child(lambda: take_cold(self.top, self.shadow.store, **self._settings)).value()
        assert view(warm) == view(other), _list_differing(self.shadow.store, warm, self.shadow.store, other)
        return warm

    def check_without_rescan(self) -> Snapshot:
        """Check a snapshot as `check` does, and that the watcher needed no full scan for it.

        If another test changed the table of mounts meanwhile, try again.
        """
        for _ in range(5):
            before = self.rescans()
            warm = self.check()
            if self.rescans() == before or self.watching().reason != MOUNTED:
                break
        assert self.rescans() == before, self.watching().reason
        return warm

    def settle(self) -> None:
        """Take snapshots until nothing is new any more: young files are read again."""
        for _ in range(3):
            self.shadow.take_snapshot()


def _list_differing(store_a: Path, a: Snapshot, store_b: Path, b: Snapshot) -> object:
    """List for people what differs."""
    left, right = (
        {*git("--git-dir", store, "ls-tree", "-r", "-z", snapshot.tree).split("\0")}
        for store, snapshot in ((store_a, a), (store_b, b))
    )
    return {"warm only": sorted(left - right), "cold only": sorted(right - left), "warm": a, "cold": b}


def forget_youth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files count as old at once, so that none is read again only because it is young."""
    change_limits(monkeypatch, file_clock_ns=lambda: time_ns() + OLD_NS)


def open_descriptors() -> dict[int, str]:
    """Return the open descriptors of this process, and what they are."""

    def look() -> Iterator[tuple[int, str]]:
        for entry in os.listdir("/proc/self/fd"):
            try:
                yield int(entry), os.readlink(f"/proc/self/fd/{entry}")
            except OSError:
                continue

    return dict(look())


def watched_directories(shadow: Shadow) -> list[str]:
    """List the watched directories by full paths; no front end needs this, so `Shadow` does not offer it."""
    with shadow._access.mutex:
        watch = shadow._access.watch
        if watch is None or watch._census is None or watch._watcher is None:
            return []
        watched = [path for path in watch._census.paths() if watch._watcher.is_watched(path)]
    return [os.fsdecode(os.path.join(os.fsencode(shadow.worktree), path)) for path in watched]
