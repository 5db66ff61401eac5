"""The law of watching: a snapshot with the watcher equals a cold one, always."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from shadowtree import Shadow, Skipped, Snapshot, Watching, worktree
from shadowtree.ahead import Ahead
from shadowtree.watch import Watch
from tests.daemons import wait_until
from tests.faults import in_child
from tests.referee import git
from tests.trees import Tree, executable, link

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
"""What has to be equal: tree, facts, how many files, what was skipped."""


def view(snapshot: Snapshot) -> View:
    """Give what has to be equal."""
    return snapshot.tree, snapshot.facts, snapshot.files, snapshot.skipped


def take_cold(top: Path, store: Path, **settings: object) -> Snapshot:
    """Take a snapshot as somebody does who knows nothing of a watcher."""
    with Shadow(top, store=store, settings={**SETTINGS, **settings}) as shadow:
        return shadow.take_snapshot()


MOUNTED = "something was mounted or unmounted"
"""Why everything is looked at again, in the words of the watcher."""


class Watched:
    """A worktree with a shadow that watches it."""

    def __init__(self, top: Path, place: Path, **settings: object) -> None:
        self.top = top
        self.shadow = Shadow(top, store=place / "warm", watch=True, settings={**SETTINGS, **settings})
        self._place = place
        self._settings = settings
        self._numbers = count()

    def watching(self) -> Watching:
        """Tell how well it is in sight."""
        watching = self.shadow.watching
        assert watching is not None
        return watching

    def rescans(self) -> int:
        """Tell how often everything was looked at."""
        return self.watching().rescans

    def check(self, *, has_history: bool = False) -> Snapshot:
        """Take a snapshot, and compare it with those of others who look at everything.

        One of these has a store of its own, unless what the store holds `has_history` on its side; the other
        one is another process with the same store.
        """
        warm = self.shadow.take_snapshot()
        if not has_history:
            store = self._place / f"cold {next(self._numbers)}"
            cold = take_cold(self.top, store, **self._settings)
            assert view(warm) == view(cold), _list_differing(self.shadow.store, warm, store, cold)
            shutil.rmtree(store)
        other = in_child(lambda: take_cold(self.top, self.shadow.store, **self._settings)).value()
        assert view(warm) == view(other), _list_differing(self.shadow.store, warm, self.shadow.store, other)
        return warm

    def check_without_rescan(self) -> Snapshot:
        """Do the same, and make sure that it was the watcher who knew.

        The table of mounts may have been read while another test changed it: then once more.
        """
        for _ in range(5):
            before = self.rescans()
            warm = self.check()
            if self.rescans() == before or self.watching().reason != MOUNTED:
                break
        assert self.rescans() == before, self.watching().reason
        return warm

    def read_nothing_ahead(self) -> None:
        """Have no thread that empties the queue; a test may read ahead itself."""
        self.shadow.fileno()
        wait_until(lambda: attendants() == [])

    def settle(self) -> None:
        """Take snapshots until nothing is new any more: what is young is looked at once more."""
        for _ in range(3):
            self.shadow.take_snapshot()


def _list_differing(store_a: Path, a: Snapshot, store_b: Path, b: Snapshot) -> object:
    """Tell people what differs."""
    left, right = (
        {*git("--git-dir", store, "ls-tree", "-r", "-z", snapshot.tree).split("\0")}
        for store, snapshot in ((store_a, a), (store_b, b))
    )
    return {"warm only": sorted(left - right), "cold only": sorted(right - left), "warm": a, "cold": b}


def forget_youth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files count as old at once, so that none is read again only because it is young."""
    monkeypatch.setattr(worktree, "_COARSE_WINDOW_NS", 0)
    monkeypatch.setattr(worktree, "_FINE_WINDOW_NS", 0)


def attendants() -> list[threading.Thread]:
    """Give the threads that read ahead."""
    return [thread for thread in threading.enumerate() if thread.name == "shadowtree attendant"]


def open_descriptors() -> dict[int, str]:
    """Give the open descriptors of this process, and what they are."""

    def look() -> Iterator[tuple[int, str]]:
        for entry in os.listdir("/proc/self/fd"):
            try:
                yield int(entry), os.readlink(f"/proc/self/fd/{entry}")
            except OSError:
                continue

    return dict(look())


class Taken:
    """Counts how often what was read ahead was recorded, and how often it was thrown away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = 0
        self.dropped = 0
        real = Watch.take_ahead

        def take_ahead(watch: Watch, *arguments: object) -> Ahead | None:
            ahead = real(watch, *arguments)  # type: ignore[arg-type]  # as they came
            self.used += ahead is not None
            self.dropped += ahead is None
            return ahead

        monkeypatch.setattr(Watch, "take_ahead", take_ahead)
