"""Stores of many tiny objects: a sweep ends, needs little room, and leaves nothing for the next one to do."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from shadowtree import Shadow
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.retention.gc import Sweep
from shadowtree.store.delta_packs import Shelf
from tests.support.referee import assert_sound_store

MANY_STEPS = 300
"""More than any of these stories needs."""


FEW = PackLimits(shelf_objects=60, run_objects=15)
"""Shelves are full by the number of their objects, long before they are by their bytes."""
pytestmark = pytest.mark.limits(Limits(packs=FEW))


def tell_deep(shadow: Shadow) -> None:
    """Change one tiny file at the end of a long way, again and again."""
    path = shadow.worktree.joinpath(*"abcdefghijklmno", "file")
    path.parent.mkdir(parents=True)
    shadow.track()
    for number in range(60):
        path.write_text(f"{number}\n")
        shadow.snapshot(f"m{number}")


def tell_wide(shadow: Shadow) -> None:
    """Have many tiny files, and change some."""
    for number in range(600):
        path = shadow.worktree / f"{number % 7}" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    shadow.track()
    for number in range(0, 600, 9):
        (shadow.worktree / f"{number % 7}" / f"{number}").write_text(f"another {number}\n")
    shadow.snapshot("m0")


def tell_by_many(shadow: Shadow) -> None:
    """Let many sessions work, each in a directory of its own."""
    for number in range(40):
        path = shadow.worktree / "sessions" / f"{number % 10}" / "file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
        shadow.for_session(f"{number % 10}").snapshot(f"m{number}")


@pytest.fixture(params=[tell_deep, tell_wide, tell_by_many], ids=["deep", "wide", "by many"])
def told(shadow: Shadow, request: pytest.FixtureRequest) -> Shadow:
    """A shadow with a story of tiny objects."""
    tell: Callable[[Shadow], None] = request.param
    tell(shadow)
    return shadow


def list_packs(shadow: Shadow) -> dict[str, int]:
    """Give the inode of each file among the packs, by its name."""
    return {entry.name: entry.inode() for entry in os.scandir(shadow.store / "objects" / "pack")}


def measure_packs(shadow: Shadow) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(shadow.store / "objects" / "pack"))


def measure_largest(shadow: Shadow) -> int:
    """Tell how many bytes the largest shelf has, with its index."""
    with shadow._access.locked() as opened:
        return max(pack.size + 28 * pack.count for pack in opened.objects.packs())


def sweep(shadow: Shadow, *, is_thorough: bool = False) -> list[int]:
    """Sweep in as small steps as can be; give what the packs took after each, and after each shelf."""
    sweeping = Sweep(is_thorough=is_thorough)
    sizes: list[int] = []

    def is_over() -> bool:
        sizes.append(measure_packs(shadow))
        return len(sizes) % 2 == 0

    with shadow._access.locked() as opened:
        while sweeping.step(opened, is_over) and len(sizes) < MANY_STEPS:
            sizes.append(measure_packs(shadow))
    assert len(sizes) < MANY_STEPS, "it does not end"
    return sizes


@pytest.mark.parametrize("is_thorough", [False, True], ids=["gc", "purge"])
def test_a_sweep_ends_and_the_next_one_has_nothing_to_do(told: Shadow, *, is_thorough: bool) -> None:
    sweep(told, is_thorough=is_thorough)
    packs = list_packs(told)

    assert sweep(told, is_thorough=is_thorough) == []
    assert list_packs(told) == packs
    assert told.check(read_data=True).ok


def test_a_sweep_needs_no_more_room_than_a_shelf(told: Shadow) -> None:
    """The old shelf goes when the new one is there, and not when all are."""
    sweep(told)
    told.forget(keep_last=1, gc=False)
    before = measure_packs(told)
    largest = measure_largest(told)

    assert max(sweep(told, is_thorough=True), default=0) <= before + 2 * largest
    assert measure_packs(told) <= before


def test_a_fresh_pack_goes_as_soon_as_all_in_it_is_on_shelves(told: Shadow) -> None:
    """And not when the sweep is over, which may be long."""
    unmerged = Limits(packs=replace(FEW, many=1 << 30))
    with Shadow(told.worktree, settings={"min_free": 0}, limits=unmerged) as other:
        for number in range(12):
            (told.worktree / f"more{number}").write_text(f"{number}")
            other.snapshot(f"more{number}")
    with told._access.locked() as opened:
        fresh = {f"{name}.pack" for name in opened.journal.packs.fresh()}
    left: list[int] = []

    def is_over() -> bool:
        left.append(len(fresh.intersection(list_packs(told))))
        return False

    with told._access.locked() as opened:
        Sweep().step(opened, is_over)

    assert len(fresh) > left[-1]


def test_a_sweep_after_much_was_forgotten_ends_as_well(told: Shadow) -> None:
    told.forget(keep_last=1, gc=False)
    sweep(told)
    packs = list_packs(told)

    assert sweep(told) == []
    assert list_packs(told) == packs


@pytest.mark.limits(Limits(packs=replace(FEW, idle_bytes=0, idle_part=1 << 30, most_objects_at_once=20)))
def test_tidying_ends_and_leaves_nothing_to_do(told: Shadow) -> None:
    with told._access.locked() as opened:
        steps = 0
        while opened.shelve_idly():
            steps += 1
            assert steps < MANY_STEPS, "it does not end"
        fresh = opened.journal.packs.fresh()
    packs = list_packs(told)

    assert fresh == []
    assert told.tidy(60)
    assert list_packs(told) == packs


def test_a_purge_ends(told: Shadow) -> None:
    (told.worktree / "secret").write_text("secret")
    told.snapshot("secret")
    told.purge("secret")
    packs = list_packs(told)

    assert sweep(told, is_thorough=True) == []
    assert list_packs(told) == packs


def test_a_store_that_grew_because_a_sweep_did_not_end_shrinks_again(shadow: Shadow) -> None:
    """Earlier versions wrote the same objects to ever more shelves, and removed none."""
    tell_deep(shadow)
    sweep(shadow)
    small = measure_packs(shadow)
    with shadow._access.locked() as opened:
        for count in (21, 32, 43):
            again = opened.objects.start_pack(None, count)
            for shelf in opened.objects.packs():
                Shelf(shelf, FEW.run_objects).write(again, opened.objects, {})
            again.finish()
    grown = measure_packs(shadow)
    sizes = sweep(shadow)

    assert grown > 2 * small
    assert max(sizes) <= grown + 2 * measure_largest(shadow)
    assert measure_packs(shadow) < 1.2 * small
    assert shadow.check(read_data=True).ok
    assert_sound_store(shadow.store)
