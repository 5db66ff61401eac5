"""Tidying in idle time: it ends, leaves little to do, blocks nobody, and keeps every version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from math import inf
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreFailed
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits, PackLimits
from shadowtree.system import disk
from shadowtree.timeline.sqlite.pack_rows import FRESH, JOURNALED
from shadowtree.timeline.tidy import drain_rows, tidy
from tests.support.limits import LARGE_PACKS, TINY
from tests.support.packs import (
    PackStore,
    assert_git_is_silent,
    blob,
    depths_in,
    flip,
    noise,
    read_all,
    text,
)
from tests.support.referee import git
from tests.support.stores import read_timeline
from tests.support.stories import Story, tell_deep, tell_wide


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PackStore]:
    with closing(PackStore(tmp_path, replace(TINY.packs, worth_part=1 << 40))) as store:
        yield store


def tidy_store(store: PackStore, seconds: float = 60) -> bool:
    return tidy(store.objects, store.opened.journal, store.opened.publisher, store.limits, seconds)


def packs_of(shadow: Shadow) -> dict[str, int]:
    """Return the inode of each file in the directory of packs, by its name."""
    return {entry.name: entry.inode() for entry in os.scandir(shadow.store / "objects" / "pack")}


def sizes_of(shadow: Shadow) -> list[int]:
    return [path.stat().st_size for path in (shadow.store / "objects" / "pack").glob("*.pack")]


# A long history


@pytest.mark.limits(TINY)
def test_a_long_story_is_all_there_and_small(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    """Messages, reverts and redos, while packs are merged and repacked in between."""
    story = Story(worktree, shadow.store)
    story.begin(shadow)
    for number in range(60):
        story.tell(shadow, number)
        if number % 20 == 19:
            story.check_revert(shadow, f"m{number - 5}")
            shadow.tidy(60)
    before = sizes_of(shadow)
    assert shadow.tidy(60)
    depths = [depths_in(path) for path in (shadow.store / "objects" / "pack").glob("*.pack")]

    assert len(sizes_of(shadow)) <= len(before) < 30
    assert sum(map(len, depths)) == len(read_all(shadow.store)), "nothing is there twice"
    assert sum(depth > 0 for pack in depths for depth in pack.values()) > 50
    story.check(most=4)
    story.check_restores()
    copy = tmp_path / "copy"
    shutil.copytree(shadow.store, copy)
    git("--git-dir", copy, "gc", "--quiet", "--prune=now")
    assert_git_is_silent(copy)


def tell_noise(shadow: Shadow) -> None:
    """Write content that cannot be compressed, again and again."""
    for number in range(12):
        (shadow.worktree / "noise").write_bytes(noise(5_000, number))
        shadow.snapshot(f"m{number}")


@pytest.mark.parametrize("tell", [tell_deep, tell_wide, tell_noise], ids=["deep", "wide", "noise"])
@pytest.mark.limits(replace(TINY, packs=replace(TINY.packs, part_bytes=500)))
def test_tidying_ends_and_leaves_nothing_to_do(shadow: Shadow, tell: Callable[[Shadow], None]) -> None:
    """Even if a new part equals, byte for byte, one of the packs that it is made of."""
    tell(shadow)
    before = read_all(shadow.store)

    assert shadow.tidy(60)
    packs = packs_of(shadow)
    assert shadow.tidy(60)
    assert packs_of(shadow) == packs
    assert read_all(shadow.store) == before
    assert shadow.check(read_data=True).ok


def test_others_get_the_lock_between_two_jobs(worktree: Path) -> None:
    visits: list[str] = []

    def visit(seconds: float) -> None:
        with Shadow(worktree, settings={"min_free": 0, "lock_timeout": 0}) as other:
            visits.append(other.track())

    limits = replace(TINY, sleep=visit, sweep_hold_s=0, packs=replace(TINY.packs, part_bytes=500))
    with Shadow(worktree, settings={"min_free": 0}, limits=limits) as shadow:
        tell_deep(shadow)
        before = read_all(shadow.store)

        assert shadow.tidy(60)
        assert len(visits) > 1
        assert read_all(shadow.store) == before
        assert shadow.check(read_data=True).ok


UPKEEP: dict[str, Callable[[Shadow], object]] = {
    "tidy": lambda shadow: shadow.tidy(60),
    "gc": lambda shadow: shadow.gc(),
    "repair": lambda shadow: shadow.repair(),
}


@pytest.mark.parametrize("upkeep", UPKEEP.values(), ids=UPKEEP)
@pytest.mark.limits(TINY)
def test_what_keeps_a_part_from_git_comes_back(
    shadow: Shadow, tmp_path: Path, upkeep: Callable[[Shadow], object]
) -> None:
    """Without it `git gc` would remove objects that no ref leads to."""
    tell_deep(shadow)
    assert shadow.tidy(60)
    before = read_all(shadow.store)
    for path in shadow.store.rglob("*.keep"):
        path.unlink()
    report = shadow.check()
    upkeep(shadow)
    copy = tmp_path / "copy"
    shutil.copytree(shadow.store, copy)
    git("--git-dir", copy, "gc", "--quiet", "--prune=now")

    assert report.ok
    assert {problem.kind for problem in report.harmless} == {"keep"}
    assert shadow.check(read_data=True).harmless == []
    assert read_all(copy).keys() >= before.keys()


@pytest.mark.limits(TINY)
def test_what_waits_for_too_large_a_part_waits(shadow: Shadow, worktree: Path) -> None:
    """They are repacked when more waits, and until then there is nothing to do."""
    for name in range(40):
        (worktree / f"{name}").write_bytes(noise(1_000, name))
    shadow.track()
    assert shadow.tidy(60)
    packs = packs_of(shadow)
    (worktree / "0").write_bytes(b"x" + noise(1_000, 0)[1:])
    shadow.track()
    large = max((shadow.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)

    assert shadow.tidy(60)
    assert packs_of(shadow)[large.name] == packs.get(large.name, packs_of(shadow)[large.name])


def test_little_is_left_alone(shadow: Shadow, worktree: Path) -> None:
    """Repacking it would cost more than it saves."""
    for number in range(3):
        (worktree / "a").write_text(f"{number}")
        shadow.track()
    packs = packs_of(shadow)

    assert shadow.tidy(60)
    assert packs_of(shadow) == packs


def test_without_time_there_is_more_to_do(store: PackStore) -> None:
    for number in range(10):
        store.record(noise(3_000, number))

    assert not tidy_store(store, 0)
    assert tidy_store(store)


def test_a_job_that_would_take_too_long_is_left_to_who_has_more_time(store: PackStore) -> None:
    store.limits = replace(store.limits, bytes_a_second=1)
    store.record(noise(3_000))
    names = {pack.name for pack in store.objects.packs()}

    assert not tidy_store(store, 0.2), "there is more to do"
    assert {pack.name for pack in store.objects.packs()} == names


def test_damage_is_left_alone_and_ends_it(store: PackStore) -> None:
    """A read that needs it, or a check, finds it."""
    one, two = text("a", 0), text("a", 1)
    part = store.settle(one)
    store.record(two, before={two: one})
    flip(Path(part.path), 40)
    store.reopen()
    names = {pack.name for pack in store.objects.packs()}

    assert tidy_store(store)
    store.reopen()
    assert {pack.name for pack in store.objects.packs()} == names
    assert store.objects.read(b"blob", blob(two)) == two


def test_a_list_that_git_made_of_packs_goes_with_them(store: PackStore) -> None:
    for number in range(6):
        store.record(text("a", number))
    git("--git-dir", store.path, "multi-pack-index", "write")
    git("--git-dir", store.path, "update-server-info")
    tidy_store(store)

    assert_git_is_silent(store.path)
    assert not (store.packs / "multi-pack-index").exists()
    assert not (store.path / "objects" / "info" / "packs").exists()


@pytest.mark.parametrize("act", ["create", "write", "fsync", "fsync directory", "commit"])
def test_a_disk_that_fails_costs_nothing(store: PackStore, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pack stays open, and the next command leaves no files behind."""
    versions = [text("a", number) for number in range(6)]
    store.record(*versions, before=dict(zip(versions[1:], versions, strict=False)))
    names = {pack.name for pack in store.objects.packs()}
    for pack in store.objects.packs():
        pack.read(pack.ids()[0])
    open_files = len(os.listdir("/proc/self/fd"))

    def fail(done: str, path: str) -> None:
        if done == act:
            raise StoreFailed(path, "no more")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "before_write", fail)
        with pytest.raises(StoreFailed):
            tidy_store(store)

    assert len(os.listdir("/proc/self/fd")) <= open_files
    store.reopen()
    assert {pack.name for pack in store.objects.packs()} == names
    assert not [name for name in os.listdir(store.packs) if "tmp" in name]
    assert tidy_store(store)
    for version in versions:
        assert store.objects.read(b"blob", blob(version)) == version


@pytest.mark.parametrize("number", range(4))
def test_a_pack_that_could_not_be_removed_is_not_relied_upon(
    store: PackStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It should be removed: if another copy were removed because of it, both would be lost."""
    versions = [text("a", each) for each in range(6)]
    for each in range(0, 6, 2):
        store.record(*versions[each : each + 2], before={versions[each + 1]: versions[each]})
    left = number

    def fail_once(act: str, path: str) -> None:
        nonlocal left
        if act == "unlink" and path.endswith(".idx"):
            left -= 1
            if left == -1:
                raise StoreFailed(path, "no more")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "before_write", fail_once)
        for _ in range(4):
            with suppress(StoreFailed):
                tidy_store(store)
    store.reopen()
    for version in versions:
        assert store.objects.read(b"blob", blob(version)) == version


# Records of hosts that never tidy


def drain(store: PackStore, seconds: float = inf) -> None:
    limits = replace(DEFAULT_LIMITS.packs, drain_s=seconds)
    drain_rows(store.objects, store.opened.journal, store.opened.publisher, limits)


def test_journaled_packs_go_into_one_with_files_and_deltas(store: PackStore) -> None:
    versions = [text("a", number) for number in range(10)]
    first = store.record(*versions[:4], before=dict(zip(versions[1:], versions[:3], strict=False)))
    second = store.record(*versions[4:], before=dict(zip(versions[4:], versions[3:], strict=False)))
    size = first.size + second.size
    drain(store)
    [drained] = [pack for pack in store.objects.packs() if pack.find(blob(versions[0])) is not None]

    assert drained.size < size // 2
    assert drained.count == 10
    assert max(depths_in(Path(drained.path)).values()) > 1
    assert [(row.name, row.state) for row in store.opened.journal.packs.rows()] == [(drained.name, FRESH)]
    store.reopen("another boot")
    for version in versions:
        assert store.objects.read(b"blob", blob(version)) == version
    assert_git_is_silent(store.path)


def test_what_there_is_no_time_for_is_copied_as_it_stands(store: PackStore) -> None:
    versions = [text("a", number) for number in range(4)]
    pack = store.record(*versions, before=dict(zip(versions[1:], versions, strict=False)))
    drain(store, seconds=0)

    assert {each.size for each in store.objects.packs() if each.count == pack.count} == {pack.size}
    assert store.opened.journal.packs.rows(JOURNALED) == []
    tidy_store(store)
    [settled] = [pack for pack in store.objects.packs() if pack.find(blob(versions[0])) is not None]
    assert max(depths_in(Path(settled.path)).values()) > 1


def test_a_pack_with_deltas_becomes_a_part_as_others_do(store: PackStore) -> None:
    """Its deltas have bases that may move to other packs or be removed."""
    versions = [text("a", number) for number in range(10)]
    store.record(*versions, before=dict(zip(versions[1:], versions, strict=False)))
    drain(store)
    newer = text("a", 20)
    store.record(newer, before={newer: versions[-1]})
    tidy_store(store)

    assert store.opened.journal.packs.rows() == []
    for version in (*versions, newer):
        assert store.objects.read(b"blob", blob(version)) == version
    assert_git_is_silent(store.path)


def test_no_more_is_drained_at_once_than_takes_a_moment(store: PackStore) -> None:
    for number in range(4):
        store.record(noise(300, number))
    limits = replace(DEFAULT_LIMITS.packs, drained_weight=1_000)
    drain_rows(store.objects, store.opened.journal, store.opened.publisher, limits)

    assert len(store.opened.journal.packs.rows(JOURNALED)) == 2
    for number in range(4):
        assert store.objects.read(b"blob", blob(noise(300, number))) == noise(300, number)


@pytest.mark.limits(Limits(packs=PackLimits(many=4, much_bytes=2_000, slice_records=2)))
def test_a_store_that_nobody_tidies_stays_small(shadow: Shadow, worktree: Path) -> None:
    story = Story(worktree, shadow.store)
    story.begin(shadow)
    for number in range(40):
        story.tell(shadow, number)
    packs = list((shadow.store / "objects" / "pack").glob("*.pack"))

    assert len(packs) < 30
    assert any(max(depths_in(pack).values(), default=0) for pack in packs)
    story.check(most=4)


AT_CLOSE = replace(
    LARGE_PACKS, much_bytes=2_000, slice_records=2, idle_bytes=0, worth_part=1 << 40, close_s=30
)


@pytest.mark.limits(Limits(packs=AT_CLOSE))
def test_a_host_that_closes_a_store_leaves_less(worktree: Path, tmp_path: Path) -> None:
    with Shadow(worktree, store=tmp_path / "s", settings={"min_free": 0}) as shadow:
        for number in range(30):
            (worktree / "a").write_bytes(text("a", number))
            shadow.snapshot(f"m{number}")
        many = len(sizes_of(shadow))
    rows = read_timeline(tmp_path / "s", lambda journal: journal.packs.rows())

    assert len(sizes_of(shadow)) < many // 2
    assert len(rows) < 10
    with Shadow(worktree, store=tmp_path / "s", settings={"min_free": 0}) as shadow:
        shadow.restore("m3")
        assert (worktree / "a").read_bytes() == text("a", 3)


@pytest.mark.limits(Limits(packs=replace(AT_CLOSE, close_s=1e-9), timeline_free_bytes=0))
def test_a_host_without_time_for_repacking_leaves_nothing_twice(worktree: Path, tmp_path: Path) -> None:
    with Shadow(worktree, store=tmp_path / "s", settings={"min_free": 0}) as shadow:
        for number in range(30):
            (worktree / "a").write_bytes(text("a", number))
            shadow.snapshot(f"m{number}")

    assert read_timeline(tmp_path / "s", lambda journal: journal.packs.rows(JOURNALED)) == []
    with Shadow(worktree, store=tmp_path / "s", settings={"min_free": 0}) as shadow:
        shadow.restore("m3")
        assert (worktree / "a").read_bytes() == text("a", 3)
