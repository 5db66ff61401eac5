"""kill -9 at every write: the next snapshot works by itself, and no record names a missing object."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow, faultpoint
from tests.faults import (
    SETTINGS,
    Rounds,
    assert_no_leftovers,
    assert_records_whole,
    count_packs,
    in_child,
    leftovers,
    put_back,
    recorded_trees,
    store_of,
    sweep_kills,
    track,
)
from tests.processes import PACKAGE_PLACE, surroundings
from tests.referee import assert_sound_store, git_tree
from tests.trees import Tree, executable, link, make_tree


def make_files(worktree: Path, text: str) -> None:
    """Write 30 files in three directories, each with other content for another text."""
    files: Tree = {f"file{number}.txt": f"{text} {number}\n" for number in range(10)}
    make_tree(worktree, {"a": files, "b": {"c": files}})
    make_tree(worktree, {f"top{number}.txt": f"top {text} {number}\n" for number in range(10)})


def check_next(worktree: Path, expected: str) -> None:
    """The next snapshot works by itself and cleans up; no record names a missing object, before or after."""
    store = store_of(worktree)
    assert_records_whole(store)

    assert track(worktree) == expected
    assert_records_whole(store)
    assert recorded_trees(store)[-1].tree.hex() == expected
    assert_no_leftovers(store)
    assert_sound_store(store)


def test_the_removal_of_a_store_that_was_made_for_nothing_can_be_killed_at_every_name(
    worktree: Path, tmp_path: Path
) -> None:
    make_tree(worktree, {"a": "1"})
    expected = git_tree(worktree, tmp_path / "scratch")
    stores = store_of(worktree).parent

    for number in count(1):
        shutil.rmtree(stores, ignore_errors=True)
        ended = in_child(partial(fail_and_die_cleaning_up, worktree, number))
        if ended.signal is None:
            break
        check_next(worktree, expected)
    assert number > 10


def fail_and_die_cleaning_up(worktree: Path, number: int) -> None:
    """Run out of room in the first snapshot, and die when the n-th name of the new store is removed."""
    removals = count(1)

    def dying(remove: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **named: Any) -> None:  # Any: whatever the call takes
            if next(removals) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            remove(*arguments, **named)

        return call

    def fail(act: str, path: str) -> None:
        if act == "commit":
            raise OSError(errno.ENOSPC, "No space left on device")
        if act == "remove tree":
            os.unlink, os.rmdir = dying(os.unlink), dying(os.rmdir)

    faultpoint.before_write = fail
    track(worktree)


def test_the_first_snapshot_can_be_killed_at_every_write(worktree: Path, tmp_path: Path) -> None:
    make_files(worktree, "first")
    make_tree(worktree, {"run.sh": executable("#!"), "ln": link("top0.txt"), "empty": {}})
    expected = git_tree(worktree, tmp_path / "scratch")

    kills = sweep_kills(
        lambda: shutil.rmtree(tmp_path / "stores", ignore_errors=True),
        lambda: track(worktree),
        lambda: check_next(worktree, expected),
    )

    assert kills >= 30


@pytest.mark.usefixtures("no_tidying")
@pytest.mark.parametrize("is_large", [False, True], ids=["small pack", "large pack"])
def test_a_later_snapshot_can_be_killed_at_every_write(
    worktree: Path, tmp_path: Path, is_large: bool
) -> None:
    """The store goes on from kill to kill: what one of them spoils, a later check finds.

    Packs are put together elsewhere: here, where that never comes to its end, there would be more each time.
    """

    def write(number: int) -> None:
        make_files(worktree, f"round {number}")
        if is_large:
            (worktree / "large.bin").write_bytes(os.urandom(400_000))

    rounds = Rounds(worktree, tmp_path, write)
    track(worktree)

    kills = sweep_kills(rounds.begin, lambda: track(worktree), lambda: check_next(worktree, rounds.expected))

    assert kills >= (20 if is_large else 10)


def test_a_snapshot_that_merges_packs_can_be_killed_at_every_write(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six packs are many here: each of them is removed in the same way."""
    monkeypatch.setattr("shadowtree.intake._MANY_PACKS", 6)
    make_tree(worktree, {"kept.txt": "kept", "sub": {"kept.txt": "kept too"}})
    store, saved = store_of(worktree), tmp_path / "saved"
    packs = go_to_the_brink_of_a_merge(worktree, saved)
    expected = git_tree(worktree, tmp_path / "scratch")

    kills = sweep_kills(
        lambda: put_back(saved, store), lambda: track(worktree), lambda: check_next(worktree, expected)
    )

    assert packs < 10
    assert kills >= packs + 10


@pytest.mark.parametrize("first", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 2))])
def test_snapshots_that_shelve_can_be_killed_at_every_write(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """From kill to kill packs are merged, shelves written anew, and fresh packs removed."""
    monkeypatch.setattr("shadowtree.intake._MANY_PACKS", 3)
    monkeypatch.setattr("shadowtree.shelving._SMALLEST_SHELF", 1_000)
    monkeypatch.setattr("shadowtree.shelving._LEAST_WAITING", 300)
    monkeypatch.setattr("shadowtree.intake._LARGE", 300)
    lines = "".join(f"a line with the number {number}\n" for number in range(60))

    def write(number: int) -> None:
        for name in range(first, first + 3):
            (worktree / f"{name}.txt").write_text(f"{lines}{number}\n{lines}{number * name}\n")

    rounds = Rounds(worktree, tmp_path, write)
    for number in range(first):
        write(number)
        track(worktree)
    trees = set()

    def check() -> None:
        check_next(worktree, rounds.expected)
        trees.add(rounds.expected)

    kills = sweep_kills(rounds.begin, lambda: track(worktree), check)

    assert kills >= 15
    with Shadow(worktree, settings=SETTINGS) as shadow:
        for tree in trees:
            shadow.restore(tree)
            assert git_tree(worktree, tmp_path / "scratch") == tree


def go_to_the_brink_of_a_merge(worktree: Path, saved: Path) -> int:
    """Take snapshots until one merges packs, and save the store as it was before that; give its packs."""
    store = store_of(worktree)
    track(worktree)
    for number in range(50):
        packs = count_packs(store)
        shutil.rmtree(saved, ignore_errors=True)
        shutil.copytree(store, saved)
        (worktree / "changing.txt").write_text(f"{number}\n")
        track(worktree)
        if count_packs(store) <= packs:
            return packs
    raise AssertionError("the snapshots never merged packs")


def adopt(worktree: Path, store: Path) -> str:
    """Adopt a store and take a snapshot, as `wrap --adopt` does."""
    with Shadow.adopt(worktree, store, settings=SETTINGS) as shadow:
        return shadow.track()


def test_the_adoption_of_a_store_can_be_killed_at_every_write(worktree: Path, tmp_path: Path) -> None:
    """Whatever is left is one store, which can be adopted, with all that it recorded."""
    make_tree(worktree, {"a": "1"})
    first = track(worktree)
    stores, saved, store = tmp_path / "stores", tmp_path / "saved", store_of(worktree)
    moved = worktree.rename(tmp_path / "moved")
    make_tree(moved, {"b": "2"})
    expected = git_tree(moved, tmp_path / "scratch")
    shutil.copytree(stores, saved)

    def check_adopted() -> None:
        (found,) = stores.iterdir()

        assert adopt(moved, found) == expected
        assert [record.tree.hex() for record in recorded_trees(store_of(moved))] == [first, expected]
        check_next(moved, expected)

    assert sweep_kills(lambda: put_back(saved, stores), lambda: adopt(moved, store), check_adopted) >= 10


def test_an_adoption_that_was_killed_is_finished_by_the_same_command(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1"})
    track(worktree)
    stores, saved, store = tmp_path / "stores", tmp_path / "saved", store_of(worktree)
    moved = worktree.rename(tmp_path / "moved")
    expected = git_tree(moved, tmp_path / "scratch")
    shutil.copytree(stores, saved)

    def check() -> None:
        assert adopt(moved, store) == expected

    sweep_kills(lambda: put_back(saved, stores), lambda: adopt(moved, store), check)


def test_an_unfinished_store_beside_a_finished_one_goes_with_the_next_snapshot(
    worktree: Path, tmp_path: Path
) -> None:
    """Two processes wrap at once; one dies while it builds, the other one comes through."""
    writes = count(1)

    def die_while_another_wraps(act: str, path: str) -> None:
        if next(writes) == 6:
            faultpoint.before_write = lambda act, path: None
            in_child(lambda: track(worktree)).value()
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap() -> None:
        faultpoint.before_write = die_while_another_wraps
        track(worktree)

    assert in_child(wrap).signal == signal.SIGKILL
    store = store_of(worktree)
    assert leftovers(store) != []

    track(worktree)

    assert leftovers(store) == []


# The command itself, by the kernel

WRITING_CALLS = (
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "unlink",
    "mkdir",
    "ftruncate",
)
ALWAYS_CALLED = ("write", "pwrite64", "fdatasync", "rename")


def run_killed(worktree: Path, call: str, number: int) -> int:
    """Run `shadowtree track` and kill it at the n-th system call of a kind; give the exit code."""
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = surroundings(
        PYTHONPATH=os.pathsep.join([PACKAGE_PLACE, *packages]), PYTHONDONTWRITEBYTECODE="1"
    )
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:signal=KILL:when={number}"]
    command += [python, "-m", "shadowtree", "track", "--set", "min_free=0"]
    done = subprocess.run(command, cwd=worktree, env=environment, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
    return done.returncode


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", WRITING_CALLS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_the_command_can_be_killed_at_every_system_call(
    worktree: Path, tmp_path: Path, call: str, is_first: bool
) -> None:
    if not is_first:
        track(worktree)
    for number in count(1):
        make_files(worktree, f"round {number}")
        expected = git_tree(worktree, tmp_path / f"scratch{number}")
        if is_first:
            shutil.rmtree(tmp_path / "stores", ignore_errors=True)
        if run_killed(worktree, call, number) == 0:
            break

        check_next(worktree, expected)

    assert number > 1 or call not in ALWAYS_CALLED
