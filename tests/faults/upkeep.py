"""Scenes of a store with a story in it, to be added to, forgotten, swept, purged, repaired or destroyed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.api.test_purge import CONTENTS, SECRETS, assert_nowhere, tell
from tests.faults.aftermath import assert_ours, assert_sound, check_damaged
from tests.faults.engine import Hit, Scene
from tests.support.limits import UNTIDIED, change_limits
from tests.support.searching import find_objects
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    leftovers,
    put_back,
    store_of,
)
from tests.support.stories import Told, forget, sweep
from tests.support.sweeps import kill_at
from tests.support.trees import copy_of, make_tree, refill


class Story(Scene):
    """Messages in packs of all sorts, about to be forgotten, swept or tidied."""

    least = 2

    def __init__(
        self,
        worktree: Path,
        place: Path,
        before: Callable[[Told], object],
        act: Callable[[Shadow], object],
    ) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved")
        self._act = act
        before(self.told)
        self.told.save()
        self._lists = [self._list_messages()]
        self.act()
        self._lists.append(self._list_messages())
        self.prepare()

    def _list_messages(self) -> list[str]:
        with self.told.open() as shadow:
            return [message.id for message in shadow.messages()]

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()
        self._left = set(leftovers(self.store))

    def act(self) -> object:
        """Do something to the store, as a new process would."""
        with self.told.open() as shadow:
            return self._act(shadow)

    def check(self, hit: Hit) -> None:
        """Check that everything live comes back exactly, nothing is left over, and a sweep does the rest."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_ours(hit)
        if hit.is_full:
            # Leftovers would take the room that is missing; older ones can be removed only under the lock.
            assert [name for name in leftovers(self.store) if "tmp" in name and name not in self._left] == []
        assert self._list_messages() in self._lists
        with self.told.open() as shadow:
            last = next((message for message in shadow.messages() if message.id == "last"), None)
            if last is None:
                # Edits that are not recorded would be in conflict with a revert.
                record_last(shadow)
            is_part = last is not None and bool(last.skipped)
            assert hit.is_reading or not is_part
        # So would edits that the last message could not read.
        self.told.check(most=0 if is_part else 1, is_ours=hit.fault != "git gc")
        with self.told.open() as shadow:
            sweep(shadow)
        self.told.check_store(is_ours=hit.fault != "git gc")
        with self.told.open() as shadow:
            assert shadow.forget(keep_last=4).removed == 0


def record_last(shadow: Shadow) -> object:
    """Record a message whose snapshot merges packs, and then repacks them."""
    return shadow.snapshot("last")


def leave_it(told: Told) -> None:
    """Leave a story as it was told."""


def forget_first(told: Told) -> None:
    """Forget messages, and free nothing yet."""
    with told.open() as shadow:
        forget(shadow)


def kill_twice(told: Told) -> None:
    """Kill a sweep, and the next one as well."""

    def act() -> None:
        with told.open() as shadow:
            sweep(shadow)

    assert kill_at(act, 40).signal
    assert kill_at(act, 20).signal


def leave_fresh(told: Told) -> None:
    """Make so many fresh packs, not tidied yet, that the next snapshot merges them."""
    with pytest.MonkeyPatch.context() as patch:
        change_limits(patch, packs=UNTIDIED)
        with told.open() as shadow:
            for number in range(12, 16):
                told.tell(shadow, number)


def leave_little_fresh(told: Told) -> None:
    """Leave one fresh pack, whose objects belong to existing parts."""
    with told.open() as shadow:
        shadow.tidy(1000)
        told.tell(shadow, 12)


def be_about_to_merge(told: Told) -> None:
    """Leave fresh packs, and work for the next snapshot to record."""
    leave_fresh(told)
    told.edit(100)


class WholeMessage(Scene):
    """A message that is begun, worked on and ended."""

    least = 15

    def __init__(self, worktree: Path, place: Path, *, size: int) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved", messages=5)
        self._size = size

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()
        self._left = set(leftovers(self.store))

    def act(self) -> object:
        """Record the message, as a new process would."""
        with self.told.open() as shadow, shadow.message("m6"):
            make_tree(self.worktree, {"new6": "6", "noise": os.urandom(self._size)})
        return None

    def check(self, hit: Hit) -> None:
        """Check that the message is open, ended or missing, and that everything recorded can be undone."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_ours(hit)
        now = copy_of(self.worktree)
        with self.told.open() as shadow:
            if shadow.status().open:
                shadow.end()
            else:
                shadow.snapshot("m7")
            assert_records_whole(self.store)
            assert_no_leftovers(self.store)
            skipped = {skip.path for skip in shadow.revert("m1").skipped}
            # What could not be read when the message began or ended is unknown, and stays (invariant 7).
            assert not skipped or hit.is_reading
            found, wanted = copy_of(self.worktree), self.told.copies["m0"]
            assert {path: found[path] for path in found.keys() - skipped} == {
                path: wanted[path] for path in wanted.keys() - skipped
            }
            shadow.redo(None)
            assert copy_of(self.worktree) == now
        assert_sound(self.store, hit)


class Purge(Scene):
    """A story with secrets in it, about to be purged."""

    least = 35

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._saved = place / "saved"
        with Shadow(worktree, settings=SETTINGS) as shadow:
            self._states = tell(shadow, worktree, 6)
            shadow.undo()
            with shadow.message("m6"):
                (worktree / "conf" / "key.env").write_bytes(CONTENTS[3])
            shadow.pin("m1")
            shadow.forget(keep_last=3, gc=False)
        shutil.copytree(self.store, self._saved / "store")
        shutil.copytree(worktree, self._saved / "worktree")

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        refill(self.worktree, self._saved / "worktree")
        put_back(self._saved / "store", self.store)

    def act(self) -> object:
        """Purge, as a new process would."""
        with Shadow(self.worktree, settings=SETTINGS) as shadow:
            return shadow.purge("conf/key.env")

    def check(self, hit: Hit) -> None:
        """Check that nothing is purged yet, or that the next command finishes it; nothing else is lost."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_records_whole(self.store)
        with Shadow(self.worktree, settings=SETTINGS) as shadow:
            is_purged = not shadow.messages()[-1].patch.files
            assert is_purged or hit.is_kill or hit.error is not None
            assert [branch.name == "the-key-is-purged" for branch in shadow.branches()] == [is_purged]
            if is_purged:
                self._assert_nowhere(hit)
            else:
                assert_sound(self.store, hit)
                assert find_objects(self.store, SECRETS)
            again = shadow.purge("conf/key.env")
            assert again.paths == ([] if is_purged else ["conf/key.env"])
            self._assert_nowhere(hit)
            for name in ("m1", "m5"):
                shadow.restore(name)
                assert (self.worktree / "a.txt").read_text() == self._states[name]
        assert_no_leftovers(self.store)

    def _assert_nowhere(self, hit: Hit) -> None:
        make_ours(self.store)
        assert_nowhere(self.store)


def make_ours(store: Path) -> None:
    """Give the files that real git made the modes of ours."""
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


class Destruction(Scene):
    """A store that is about to be destroyed."""

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._place = place
        make_tree(worktree, {"a": "1"})
        with Shadow(worktree, settings=SETTINGS) as shadow:
            shadow.snapshot("m1")
        shutil.copytree(self.store, place / "saved")

    def prepare(self) -> None:
        """Restore the store, and nothing else."""
        shutil.rmtree(self.store.parent)
        shutil.copytree(self._place / "saved", self.store)

    def act(self) -> object:
        """Destroy it, as a new process would."""
        return Shadow(self.worktree, settings=SETTINGS).destroy()

    def check(self, hit: Hit) -> None:
        """Check that all of the store is left or nothing; leftovers are removed with the next store."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        if self.store.exists():
            with Shadow(self.worktree, settings=SETTINGS) as shadow:
                if hit.fault != "second process":
                    assert [message.id for message in shadow.messages()] == ["m1"]
            assert_sound(self.store, hit)
        make_tree(self._place / "next", {"a": "1"})
        with Shadow(self._place / "next", settings=SETTINGS) as other:
            other.track()
            other.destroy()
        if hit.is_kill:
            # Leftovers of a process that is alive are left to it.
            assert os.listdir(self.store.parent) == [self.store.name] * self.store.exists()


class Repair(Scene):
    """A store with a damaged pack, whose contents the worktree still has."""

    least = 5
    spared = frozenset({"bit flip", "git gc"})  # real git stops at damage

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved", messages=3)
        with self.told.open() as shadow, shadow.message("m3"):
            make_tree(worktree, {"one": {"new3": os.urandom(400_000)}})
        newest = max((self.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        self.told.save()

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()
        self._left = set(leftovers(self.store))

    def act(self) -> object:
        """Repair it, as a new process would."""
        with self.told.open() as shadow:
            return shadow.repair()

    def check(self, hit: Hit) -> None:
        """Check that the next repair does the rest."""
        with self.told.open() as shadow:
            assert shadow.repair().ok
        self.told.check(most=1, is_ours=hit.fault != "git gc")
