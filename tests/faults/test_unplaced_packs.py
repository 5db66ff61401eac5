"""Packs that are recorded and still have to be placed, or removed: nothing takes them for leftovers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreFailed
from tests.support.packs import noise
from tests.support.processes import in_child
from tests.support.stores import open_shadow
from tests.support.sweeps import armed
from tests.support.trees import make_tree

LARGE = noise(400_000, 1)
"""A content that makes a pack too large for a row."""


def is_placing(act: str, path: str) -> bool:
    return act == "rename" and path.endswith(".pack")


def is_removing(act: str, path: str) -> bool:
    return act == "unlink" and path.endswith((".idx", ".pack"))


def is_after_purging(act: str, path: str) -> bool:
    """Return whether a purge is recorded, and its bytes are still there."""
    return path.endswith("refs/heads/shadowtree")


@contextmanager
def failing(is_hit: Callable[[str, str], bool], times: int = 1 << 30) -> Iterator[list[str]]:
    """Have the disk refuse some writes."""
    hits: list[str] = []

    def refuse(act: str, path: str) -> None:
        if is_hit(act, path) and len(hits) < times:
            hits.append(path)
            raise StoreFailed(path, "Input/output error")

    with armed(refuse):
        yield hits


def kill(worktree: Path, do: Callable[[Shadow], object], is_hit: Callable[[str, str], bool]) -> None:
    """Do something in a process that is killed at a write."""

    def die(act: str, path: str) -> None:
        if is_hit(act, path):
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        with armed(die), open_shadow(worktree) as shadow:
            do(shadow)

    assert in_child(work).signal == signal.SIGKILL


def record_and_die(worktree: Path) -> None:
    """Record a large file, and be killed before its pack has its name."""
    (worktree / "big").write_bytes(LARGE)
    kill(worktree, lambda shadow: shadow.snapshot("m1"), is_placing)


@pytest.fixture
def recorded(worktree: Path) -> Path:
    make_tree(worktree, {"a.txt": "a\n"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
    return worktree


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_a_repair_finishes_a_record_that_was_killed(recorded: Path, is_dry_run: bool) -> None:
    record_and_die(recorded)
    (recorded / "big").unlink()

    with open_shadow(recorded) as shadow:
        assert shadow.repair(dry_run=is_dry_run).repaired == []
        assert shadow.check(read_data=True).ok
        shadow.restore("m1")

    assert (recorded / "big").read_bytes() == LARGE


def test_a_repair_keeps_a_recorded_pack_while_the_disk_refuses_to_place_it(recorded: Path) -> None:
    record_and_die(recorded)
    (recorded / "big").unlink()

    with open_shadow(recorded) as shadow:
        with failing(is_placing):
            report = shadow.repair()
            assert report.ok
            assert report.hurt == []
        shadow.restore("m1")

    assert (recorded / "big").read_bytes() == LARGE


def test_a_repair_without_a_timeline_puts_packs_without_a_name_into_quarantine(recorded: Path) -> None:
    record_and_die(recorded)
    with Shadow(recorded) as shadow:
        store = shadow.store
    (store / "timeline.db").write_bytes(b"torn")

    with Shadow(recorded) as shadow:
        report = shadow.repair()

    assert report.quarantine is not None
    kept = Path(report.quarantine, "objects", "pack").iterdir()
    assert max(path.stat().st_size for path in kept) > len(LARGE)


def test_an_act_is_rolled_back_if_the_pack_with_what_it_replaces_cannot_be_placed(recorded: Path) -> None:
    with open_shadow(recorded) as shadow:
        with shadow.message("m1"):
            (recorded / "a.txt").write_text("agent's\n")
        (recorded / "a.txt").write_bytes(LARGE)
        with failing(is_placing), pytest.raises(StoreFailed):
            shadow.revert("m1", on_conflict="overwrite")
    with open_shadow(recorded) as shadow:
        shadow.repair()
        assert (recorded / "a.txt").read_bytes() == LARGE
        shadow.revert("m1", on_conflict="overwrite")
        shadow.unrevert()

    assert (recorded / "a.txt").read_bytes() == LARGE


def test_a_recorded_pack_that_somebody_removed_is_stored_again_from_the_worktree(recorded: Path) -> None:
    record_and_die(recorded)
    with Shadow(recorded) as shadow:
        for path in (shadow.store / "objects" / "pack").glob("shadowtree-tmp-*"):
            path.unlink()

    with open_shadow(recorded) as shadow:
        shadow.snapshot("m2")
        assert shadow.check(read_data=True).ok


@pytest.mark.usefixtures("large_packs")
def test_a_purge_keeps_the_trees_that_it_rewrote_if_their_pack_cannot_be_placed_at_once(
    worktree: Path,
) -> None:
    make_tree(worktree, {"a.txt": "a\n", "secret": "secret 0123456789\n" * 5})
    with open_shadow(worktree) as shadow:
        for number in range(4):
            with shadow.message(f"m{number}"):
                (worktree / "a.txt").write_text(f"{number}\n")
        with failing(is_placing, times=1) as hits:
            shadow.purge("secret")
        assert hits

    with open_shadow(worktree) as shadow:
        assert shadow.check(read_data=True).ok
        shadow.restore("m1")
    assert (worktree / "a.txt").read_text() == "1\n"


@pytest.mark.usefixtures("large_packs")
def test_what_is_in_a_pack_that_is_to_be_removed_is_stored_again(worktree: Path) -> None:
    """An interrupted purge that cannot be finished yet leaves such packs behind, and other work goes on."""
    again = noise(5000, 3)
    make_tree(worktree, {"a.txt": "a\n", "secret": "secret 0123456789\n" * 9})
    (worktree / "y").write_bytes(again)
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            (worktree / "b").write_text("b\n")
        (worktree / "y").unlink()
        for number in range(3):
            with shadow.message(f"n{number}"):
                (worktree / "b").write_text(f"b{number}\n")
        shadow.forget(keep_last=1, gc=False)
    kill(worktree, lambda shadow: shadow.purge("secret"), is_after_purging)

    (worktree / "y").write_bytes(again)
    with failing(is_removing) as hits, open_shadow(worktree) as shadow, suppress(StoreFailed):
        shadow.snapshot("with y")
    assert hits
    (worktree / "y").write_bytes(b"the agent's\n")

    with open_shadow(worktree) as shadow:
        shadow.snapshot("next")
        assert shadow.check(read_data=True).ok
