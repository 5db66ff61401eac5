"""Scenes of snapshots: the first one, later ones, one that merges packs, and an adoption."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from shadowtree import Shadow
from tests.faults.aftermath import assert_ours, assert_sound, check_damaged
from tests.faults.engine import Hit, Scene
from tests.support.referee import git_tree
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    count_packs,
    drop_unfinished_of_this_process,
    leftovers,
    put_back,
    recorded_trees,
    store_of,
    track,
)
from tests.support.trees import Tree, executable, link, make_tree


class Snapshot(Scene):
    """A worktree that is about to be recorded, in a store that was saved."""

    least = 10

    def __init__(self, worktree: Path, place: Path, *, size: int = 0) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._saved = place / "saved"
        self.go_before(size)
        if self.store.exists():
            shutil.copytree(self.store, self._saved)
        self._records = [tree.tree.hex() for tree in recorded_trees(self._saved)]
        self.expected = git_tree(self.worktree, place / "scratch")

    def go_before(self, size: int) -> None:
        """Make a store, and unrecorded work; `size` is the size of a file that does not deflate."""
        write_files(self.worktree, "old")
        track(self.worktree)
        write_files(self.worktree, "new")
        (self.worktree / "large.bin").write_bytes(os.urandom(size))

    def prepare(self) -> None:
        """Restore the store as it was."""
        shutil.rmtree(self.store, ignore_errors=True)
        if self._saved.exists():
            shutil.copytree(self._saved, self.store)

    def act(self) -> object:
        """Take the snapshot, as a new process would."""
        return track(self.worktree)

    def check(self, hit: Hit) -> None:
        """Check that the next snapshot is right and cleans up, and that no record ever misses an object."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            assert hit.error is not None or hit.outcome == self.expected
            return
        assert_ours(hit)
        # A file that cannot be read is left out, and the snapshot says so.
        may_differ = hit.error is not None or hit.is_kill or hit.is_reading
        assert may_differ or hit.outcome == self.expected
        assert_records_whole(self.store)
        if hit.is_full and hit.stays:
            # Leftovers would take the room that is missing.
            assert leftovers(self.store) == []

        assert track(self.worktree) == self.expected
        assert_records_whole(self.store)
        recorded = [tree.tree.hex() for tree in recorded_trees(self.store)]
        if hit.is_reading and hit.error is None:
            del recorded[len(self._records) : -1]
        assert recorded == [*self._records, self.expected]
        if hit.stays:
            drop_unfinished_of_this_process(self.store)
        assert_no_leftovers(self.store)
        assert_sound(self.store, hit)


class FirstSnapshot(Snapshot):
    """A worktree without a store."""

    least = 30
    spared = frozenset({"bit flip"})

    def go_before(self, size: int) -> None:
        """Write files, without a store."""
        write_files(self.worktree, "first")
        make_tree(self.worktree, {"run.sh": executable("#!"), "ln": link("top0.txt"), "empty": {}})


class MergingSnapshot(Snapshot):
    """A store with so many packs that the next snapshot merges them."""

    least = 15

    def go_before(self, size: int) -> None:
        """Take snapshots until one merges packs, and go back to before that."""
        make_tree(self.worktree, {"kept.txt": "kept", "sub": {"kept.txt": "kept too"}})
        track(self.worktree)
        aside = self._saved.with_name("aside")
        for number in range(50):
            packs = count_packs(self.store)
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(self.store, aside)
            (self.worktree / "changing.txt").write_text(f"{number}\n")
            track(self.worktree)
            if count_packs(self.store) <= packs:
                put_back(aside, self.store)
                return
        raise AssertionError("the snapshots never merged packs")


class OpenShadow(Snapshot):
    """A shadow that is open and has already recorded; its memory must not be ahead of the disk."""

    spared = frozenset({"kill", "git gc", "bit flip", "second process", "kill inside a write"})
    _shadow: Shadow | None = None

    def prepare(self) -> None:
        """Open a shadow that knows the store as it is."""
        if self._shadow is not None:
            self._shadow.close()
        super().prepare()
        self._shadow = Shadow(self.worktree, settings=SETTINGS)
        self._shadow.status()
        self._shadow.patch(self._records[-1])

    def act(self) -> object:
        """Take a snapshot with it."""
        assert self._shadow is not None
        return self._shadow.track()

    def check(self, hit: Hit) -> None:
        """Check that this shadow still works, and any other too."""
        assert hit.error is None or self.act() == self.expected
        super().check(hit)


def write_files(worktree: Path, text: str) -> None:
    """Write 30 files in three directories; their contents depend on `text`."""
    files: Tree = {f"file{number}.txt": f"{text} {number}\n" for number in range(10)}
    make_tree(worktree, {"a": files, "b": {"c": files}})
    make_tree(worktree, {f"top{number}.txt": f"top {text} {number}\n" for number in range(10)})


class Adoption(Snapshot):
    """A worktree that was moved, and is about to adopt its store."""

    spared = frozenset({"bit flip", "second process"})

    def go_before(self, size: int) -> None:
        """Move a worktree away from its store."""
        make_tree(self.worktree, {"a": "1"})
        track(self.worktree)
        self._left = self.store
        self.worktree = self.worktree.rename(self.worktree.with_name("moved"))
        self.store = store_of(self.worktree)
        make_tree(self.worktree, {"b": "2"})
        shutil.copytree(self._left, self._saved)

    def prepare(self) -> None:
        """Restore the store, only in its old place."""
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.rmtree(self._left, ignore_errors=True)
        shutil.copytree(self._saved, self._left)

    def act(self) -> object:
        """Adopt the store and take a snapshot, as `wrap --adopt` does."""
        with Shadow.adopt(self.worktree, self._left, settings=SETTINGS) as shadow:
            return shadow.track()

    def check(self, hit: Hit) -> None:
        """Check that one store is left, that the same command finishes the act, and no record is lost."""
        assert_ours(hit)
        (found,) = self.store.parent.iterdir()
        assert found in (self.store, self._left)
        assert self.act() == self.expected
        super().check(Hit(hit.fault if hit.fault == "git gc" or hit.is_reading else "kill", hit.at))
