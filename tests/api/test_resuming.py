"""The last holder of the lock continues without recovery, and notices if another process was in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.lock import Lock, read_owner
from shadowtree.system import disk
from tests.support.processes import in_child
from tests.support.referee import assert_sound_store, git
from tests.support.stores import SETTINGS, assert_no_leftovers, assert_records_whole, recorded_trees, track
from tests.support.sweeps import sweep_kills
from tests.support.trees import make_tree


@pytest.fixture
def shadow(worktree: Path) -> Iterator[Shadow]:
    """A shadow that has recorded something, so that its open store is clean."""
    make_tree(worktree, {"a": "1"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.track()
        shadow.track()
        yield shadow


@contextmanager
def preparations() -> Iterator[list[str]]:
    """Collect the store of each recovery, to count them."""
    found: list[str] = []
    real = OpenStore.recover

    def prepare(opened: OpenStore) -> None:
        found.append(opened.layout.store)
        real(opened)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenStore, "recover", prepare)
        yield found


def change(worktree: Path, content: str) -> None:
    (worktree / "a").write_text(content)


# The lock


def test_who_held_the_lock_last_can_tell(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")

    def take(signature: str) -> bool:
        with Lock(path, 0, signature) as lock:
            return lock.was_mine

    assert [take("a"), take("a"), take("b"), take("a"), take("a")] == [False, True, False, False, True]
    assert [take(""), take("")] == [False, False]
    assert read_owner(path)[0] == os.getpid()


def test_a_forked_process_is_another_one(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")

    def take() -> bool:
        with Lock(path, 0, "a") as lock:
            return lock.was_mine

    take()

    assert in_child(take).value() is False
    assert take() is False


# Continuing


def test_nothing_is_made_good_if_nobody_came(shadow: Shadow, worktree: Path) -> None:
    with preparations() as found:
        for number in range(3):
            shadow.begin(f"m{number}")
            change(worktree, f"{number}")
            shadow.end(f"m{number}")

    assert found == []
    assert len(recorded_trees(shadow.store)) == 4
    assert_sound_store(shadow.store)


COMERS: dict[str, Callable[[Shadow, Path], object]] = {
    "another shadow": lambda shadow, worktree: track(worktree),
    "another process": lambda shadow, worktree: in_child(lambda: track(worktree)).value(),
    "an act": lambda shadow, worktree: shadow.revert("m"),
    "a sweep": lambda shadow, worktree: shadow.gc(),
    "somebody who removed the lock": lambda shadow, worktree: (shadow.store / "lock").unlink(),
    "a damaged pack": lambda shadow, worktree: _cut(next((shadow.store / "objects/pack").glob("*.pack"))),
    "a snapshot that failed": lambda shadow, worktree: _fail(shadow, worktree, "commit"),
    "a pack without its files": lambda shadow, worktree: _record_without_files(shadow, worktree),
}


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _fail(shadow: Shadow, worktree: Path, wanted: str) -> None:
    with pytest.raises(OutOfSpace):
        _record_without_room(shadow, worktree, wanted)


def _record_without_files(shadow: Shadow, worktree: Path) -> None:
    _record_without_room(shadow, worktree, "rename")


def _record_without_room(shadow: Shadow, worktree: Path, wanted: str) -> None:
    def fail(act: str, path: str) -> None:
        if act == wanted:
            raise OutOfSpace(path)

    change(worktree, f"for {wanted}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "before_write", fail)
        shadow.track()


@pytest.mark.parametrize("name", COMERS)
def test_whatever_happened_in_between_is_noticed(name: str, shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m"):
        change(worktree, "2")
    COMERS[name](shadow, worktree)

    with preparations() as found:
        change(worktree, "3")
        tree = shadow.track()

    assert found[:1] == [str(shadow.store)]
    assert tree == track(worktree)
    assert_records_whole(shadow.store)
    git("fsck", "--full", "--strict", "--no-dangling", cwd=shadow.store)


def test_what_a_killed_process_left_is_made_good_by_one_that_goes_on(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1"})
    shadows: list[Shadow] = []

    def prepare() -> None:
        change(worktree, f"{len(shadows)}")
        shadows.append(Shadow(worktree, store=tmp_path / f"store {len(shadows)}", settings=SETTINGS))
        shadows[-1].track()
        shadows[-1].track()

    def record() -> None:
        change(worktree, "by another process")
        track(worktree, shadows[-1].store)

    def check() -> None:
        with closing(shadows[-1]) as shadow:
            shadow.begin("m")
            change(worktree, "afterwards")
            shadow.end("m")
            assert_no_leftovers(shadow.store)
            assert_records_whole(shadow.store)

    assert sweep_kills(prepare, record, check) > 8
