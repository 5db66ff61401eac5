"""A timeline that lost records is never taken for one that never had them: the ref leads to them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreDamaged
from shadowtree.retention.gc import Sweep
from shadowtree.store.directory import KEEPER_REF
from shadowtree.store.git_format import EMPTY_TREE, encode_commit
from shadowtree.store.keeper_ref import find_beyond
from shadowtree.store.objects import Objects
from shadowtree.timeline.database import create_journal
from tests.support.referee import git
from tests.support.stores import recorded_trees

SETTINGS = {"min_free": 0}


def record(shadow: Shadow, *ids: str) -> None:
    for id in ids:
        with shadow.message(id):
            (shadow.worktree / "f").write_text(f"of {id}\n")


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def flip(path: Path) -> None:
    """Flip a bit in the first of the commits that are in SQLite's log."""
    content = bytearray(path.read_bytes())
    content[200] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:3000])


DAMAGE: dict[str, Callable[[Path], None]] = {"flipped": flip, "cut": cut, "removed": Path.unlink}


@pytest.fixture
def logged(worktree: Path, tmp_path: Path) -> Path:
    """A copy of a store in which two of three messages are in SQLite's log alone."""
    store = tmp_path / "store"
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        record(shadow, "m1")
    # As long as somebody has the timeline open, the log stays.
    with closing(sqlite3.connect(store / "timeline.db")) as reader:
        reader.execute("SELECT count(*) FROM events").fetchone()
        with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
            record(shadow, "w1", "w2")
        copy = tmp_path / "copy"
        shutil.copytree(store, copy)
    (copy / "timeline.db-shm").unlink()
    return copy


@pytest.fixture
def stale(worktree: Path, tmp_path: Path) -> Iterator[Shadow]:
    """A store whose timeline is one of two messages ago."""
    store, aside = tmp_path / "store", tmp_path / "timeline.db"
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        record(shadow, "m1")
        shadow.close()
        shutil.copy(store / "timeline.db", aside)
        record(shadow, "w1", "w2")
        shadow.close()
        shutil.copy(aside, store / "timeline.db")
        yield shadow


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_command_that_writes_tells_that_records_are_lost(
    worktree: Path, logged: Path, damage: Callable[[Path], None]
) -> None:
    damage(logged / "timeline.db-wal")
    ref = (logged / KEEPER_REF).read_bytes()

    with Shadow(worktree, store=logged, settings=SETTINGS) as shadow:
        for _ in range(2):
            with pytest.raises(StoreDamaged, match=r"leads to 2 trees, recorded from .* that the timeline"):
                shadow.begin("x1")
        report = shadow.check()

    assert (logged / KEEPER_REF).read_bytes() == ref
    assert {problem.kind for problem in report.problems} >= {"ref"}
    assert any("leads to 2 trees" in problem.message for problem in report.problems)


def test_a_log_that_is_whole_loses_nothing(worktree: Path, logged: Path) -> None:
    with Shadow(worktree, store=logged, settings=SETTINGS) as shadow:
        record(shadow, "x1")

        assert ids(shadow) == ["m1", "w1", "w2", "x1"]


def test_a_repair_gives_up_what_is_lost_and_keeps_where_the_ref_ended(stale: Shadow) -> None:
    ref = (stale.store / KEEPER_REF).read_bytes()

    would = stale.repair(dry_run=True)
    report = stale.repair()

    assert report.ok, report.problems
    assert would.repaired[-1] == report.repaired[-1]
    assert "ends at the last keeper again; given up are 2 trees, recorded from " in report.repaired[-1]
    assert report.quarantine is not None
    assert (Path(report.quarantine) / KEEPER_REF).read_bytes() == ref
    record(stale, "x1")
    assert ids(stale) == ["m1", "x1"]
    assert stale.check(read_data=True).ok
    git("--git-dir", stale.store, "fsck", "--full", "--strict")


def test_git_may_have_put_the_ref_among_others(stale: Shadow) -> None:
    git("--git-dir", stale.store, "pack-refs", "--all")
    packed = (stale.store / "packed-refs").read_bytes()
    assert not (stale.store / KEEPER_REF).exists()

    with pytest.raises(StoreDamaged):
        stale.track()
    report = stale.repair()

    assert report.ok, report.problems
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "packed-refs").read_bytes() == packed
    record(stale, "x1")


def test_a_timeline_without_any_record_is_no_new_one(stale: Shadow) -> None:
    (stale.store / "timeline.db").unlink()
    create_journal(str(stale.store / "timeline.db"))

    with pytest.raises(StoreDamaged):
        stale.track()
    assert not stale.check().ok
    report = stale.repair()

    assert report.ok, report.problems
    record(stale, "x1")
    assert ids(stale) == ["x1"]


def test_a_commit_that_somebody_else_made_is_left(stale: Shadow) -> None:
    stale.repair()
    end = (stale.store / KEEPER_REF).read_text().strip()
    theirs = git("--git-dir", stale.store, "commit-tree", "-p", end, "-m", "mine", end + "^{tree}")
    git("--git-dir", stale.store, "update-ref", KEEPER_REF, theirs)

    record(stale, "x1")

    assert ids(stale) == ["m1", "x1"]


@pytest.mark.parametrize("records_more", [False, True])
def test_a_ref_at_a_keeper_that_was_made_anew_since_is_only_behind(
    worktree: Path, records_more: bool
) -> None:
    """A process was killed, or the power went, right after a sweep had made the chain anew."""
    with Shadow(worktree, settings=SETTINGS) as shadow:
        record(shadow, "m1", "m2", "m3", "m4")
        shadow.forget(keep_last=2, gc=False)
        before = (shadow.store / KEEPER_REF).read_text()
        with shadow._access.locked() as opened:
            Sweep()._mark(opened)
        if records_more:
            record(shadow, "m5")
        shadow.close()
        (shadow.store / KEEPER_REF).write_text(before)
        keepers = [record.keeper.hex() for record in recorded_trees(shadow.store)]
        assert before.strip() not in keepers
        git("--git-dir", shadow.store, "cat-file", "-e", before.strip())

        shadow.track()

        assert (shadow.store / KEEPER_REF).read_text().strip() == keepers[-1]


# What is beyond


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    (tmp_path / "objects" / "pack").mkdir(parents=True)
    return Objects(str(tmp_path / "objects"))


def add(objects: Objects, parent: bytes | None, time_s: int) -> bytes:
    """Add a keeper."""
    pack = objects.start_pack()
    id = objects.put(pack, b"commit", encode_commit(EMPTY_TREE, parent, time_s, "tree " + EMPTY_TREE.hex()))
    objects.publish(pack)
    return id


def test_what_comes_after_the_last_keeper_is_beyond(objects: Objects) -> None:
    first = add(objects, None, 10)
    second = add(objects, first, 20)
    third = add(objects, second, 20)

    assert find_beyond(objects, third.hex(), {first: 10}, first) == [20, 20]
    assert find_beyond(objects, third.hex(), {first: 10, second: 20}, second) == [20]
    assert find_beyond(objects, third.hex(), {}, None) == [20, 20, 10]


def test_what_was_recorded_before_is_not_beyond(objects: Objects) -> None:
    first = add(objects, None, 10)
    second = add(objects, first, 20)
    anew = add(objects, None, 20)

    assert find_beyond(objects, first.hex(), {first: 10, second: 20}, second) == []
    assert find_beyond(objects, second.hex(), {first: 10, anew: 20}, anew) == []
    assert find_beyond(objects, second.hex(), {anew: 20, b"forgotten": 10}, anew) == []


def test_what_a_lost_sweep_made_anew_does_not_hide_what_is_beyond(objects: Objects) -> None:
    first = add(objects, None, 10)
    second = add(objects, first, 20)
    anew = add(objects, None, 20)
    third = add(objects, anew, 30)

    assert find_beyond(objects, third.hex(), {first: 10, second: 20}, second) == [30]


@pytest.mark.parametrize("ref", [None, "", "no id", "12" * 20])
def test_a_ref_that_leads_nowhere_shows_nothing(objects: Objects, ref: str | None) -> None:
    assert find_beyond(objects, ref, {}, None) == []
