"""The budget of all stores together: who shrinks, how long that may take, and who is not kept waiting."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shadowtree import OverTotalBudget, Shadow, door, totalbudget
from shadowtree.lock import Lock
from shadowtree.totalbudget import Look, measure_stores
from tests.processes import surroundings
from tests.test_budget import ids, record

pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline, so that sizes are plain."""


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shadow]:
    """Three shadows with 10 messages each, the first one used least recently; together they have no room."""
    # However busy the machine is, a look comes through.
    monkeypatch.setattr(door, "_LOOK_S", 60)
    places = [tmp_path / name for name in ("one", "two", "three")]
    for place in places:
        place.mkdir()
        with Shadow(place, settings={"min_free": 0}) as shadow:
            record(shadow, *(f"m{number}" for number in range(10)))
    total = sum(size.bytes for size in measure_stores(str(tmp_path / "stores")))
    settings = {"min_free": 0, "keep_turns": 2, "total_budget": total}
    found = [Shadow(place, settings=settings) for place in places]
    for time, shadow in enumerate(found, 1000):
        os.utime(shadow.store / "timeline.db", (time, time))
    return found


def test_the_store_that_was_used_least_recently_shrinks_first(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    (message,) = record(others[2], "new")

    first, second, third = (len(ids(shadow)) for shadow in others)
    assert 2 <= first < 5 < second
    assert third == 11
    assert f"messages were forgotten in {others[0].store}: all stores took " in message.warnings[0]
    assert others[0].undo(first).complete


def test_a_store_in_which_somebody_is_at_work_is_left_as_it_is(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    with Lock(str(others[0].store / "lock"), 0):
        record(others[2], "new")

    first, second, third = (len(ids(shadow)) for shadow in others)
    assert first == 10
    assert 2 <= second < 5 < third


def test_others_are_looked_at_now_and_then_only(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1 << 40)
    record(others[2], "new")

    assert [len(ids(shadow)) for shadow in others] == [10, 10, 11]
    assert "all stores together take" in others[0].status().warnings[-1]


def test_they_are_looked_at_once_not_until_something_else_is_recorded(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def look(directory: str, *rest: object, but: str) -> Look:
        looks.append(directory)
        return Look(0, 0, [], is_through=True)

    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    monkeypatch.setattr(totalbudget, "shrink_stores", look)
    shadow = others[2]
    record(shadow, "new")
    count = len(looks)

    for _ in range(3):
        shadow.track()

    assert count == len(looks) > 0


def test_gc_looks_at_all_stores_at_once(others: list[Shadow], monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a look is, it looks until there is nothing more to do."""
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1 << 40)
    monkeypatch.setattr(door, "_LOOK_S", 0.001)
    settings = {"min_free": 0, "keep_turns": 2, "total_budget": others[2].settings.total_budget // 2}
    with Shadow(others[2].worktree, settings=settings) as shadow:
        swept = shadow.gc()

    assert [len(ids(each)) for each in others][:2] == [2, 2]
    assert sum(size.bytes for size in measure_stores(str(shadow.store.parent))) <= settings["total_budget"]
    told = "\n".join(swept.warnings)
    assert f"forgotten in {others[0].store}: all stores took " in told
    assert f"forgotten in {others[1].store}: all stores took " in told


def over(shadows: list[Shadow], budget: int = 1000) -> list[Shadow]:
    """Open the same worktrees with a budget that not even the newest turns fit into."""
    settings = {"min_free": 0, "keep_turns": 2, "total_budget": budget}
    return [Shadow(shadow.worktree, settings=settings) for shadow in shadows]


def test_who_records_next_is_refused_if_no_store_has_anything_left_to_give(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    first, second, third = over(others)
    record(third, "new")

    for shadow in (first, second, third):
        with pytest.raises(OverTotalBudget, match=r"nothing left to forget; the largest are ") as raised:
            shadow.snapshot("refused")
        assert raised.value.used > raised.value.budget == 1000
        assert {store for store, _ in raised.value.largest} == {str(each.store) for each in others}
        assert ids(shadow)[-1] != "refused"
        assert len(ids(shadow)) == 2
    assert first.undo().complete


def test_who_is_refused_leaves_no_store_behind(
    others: list[Shadow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    record(over(others)[2], "new")
    (tmp_path / "four").mkdir()
    four = Shadow(tmp_path / "four", settings=over(others)[0].settings)

    with pytest.raises(OverTotalBudget):
        four.track()

    assert not four.is_wrapped


@pytest.mark.parametrize("way", ["a larger budget", "room", "fewer turns", "time"])
def test_there_is_a_way_out_of_being_refused(
    way: str, others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    budget = 1000
    if way == "room":
        sizes = {size.store: size.bytes for size in measure_stores(str(others[0].store.parent))}
        budget = sizes[str(others[1].store)]
    record(over(others, budget)[2], "new")
    settings: dict[str, object] = {"min_free": 0, "keep_turns": 2, "total_budget": budget}
    if way == "room":
        others[0].destroy()
        others[1].destroy()
    elif way == "a larger budget":
        settings["total_budget"] = 0
    elif way == "fewer turns":
        settings["keep_turns"] = 1
    else:
        monkeypatch.setattr(totalbudget, "_NOTE_MS", 0)

    with Shadow(others[2].worktree, settings=settings) as shadow:
        assert shadow.snapshot("again").id == "again"


def test_nobody_is_refused_because_of_a_store_that_was_only_locked(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have something to give."""
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    third = over(others)[2]
    with Lock(str(others[0].store / "lock"), 0):
        record(third, "new")

    assert third.snapshot("more").id == "more"


def test_a_look_in_idle_time_leaves_its_note_too(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    third = over(others)[2]
    third.tidy(60)
    record(third, "new")
    while not third.tidy(60):
        pass

    with pytest.raises(OverTotalBudget):
        third.snapshot("refused")


def damage(shadow: Shadow) -> None:
    """Flip a bit in the middle of each pack of a store."""
    for path in (shadow.store / "objects" / "pack").glob("*.pack"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def test_a_damaged_store_is_left_as_it_is_and_told_of(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    damage(others[0])
    (message,) = record(others[2], "new")

    assert len(ids(others[0])) == 10
    assert 2 <= len(ids(others[1])) < 5
    assert ids(others[2])[-1] == "new"
    (damaged,) = [line for line in message.warnings if str(others[0].store) in line]
    assert damaged.startswith("nothing could be freed in ")


def test_time_is_up_after_a_step_and_the_next_look_goes_on_where_it_ended(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forgotten in a store is freed before anything is forgotten in the next one."""
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    monkeypatch.setattr(door, "_LOOK_S", 0)
    looks = 0
    while len(ids(others[0])) == 10:
        looks += 1
        record(others[2], f"new{looks}")
    freed = [measure_stores(str(others[0].store.parent))[0].store == str(others[0].store)]
    left = len(ids(others[0]))
    record(others[2], "last")

    assert looks > 1
    assert freed == [True]
    assert (len(ids(others[0])), len(ids(others[1]))) == (left, 10)


def test_only_one_process_looks_at_a_time(others: list[Shadow], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that look at once would both forget for the same excess, each in another store."""
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    with Lock(str(others[0].store.parent / "budget.lock"), 0):
        record(others[2], "new")

    assert [len(ids(shadow)) for shadow in others] == [10, 10, 11]


_RECORD = """
import sys
from pathlib import Path
from shadowtree import Shadow, door, intake
door._LOOKS_AROUND, intake._SMALL = 1, 0
settings = {"min_free": 0, "keep_turns": 2, "total_budget": int(sys.argv[2])}
with Shadow(sys.argv[1], settings=settings) as shadow:
    print(flush=True)
    sys.stdin.readline()
    for number in range(3):
        with shadow.message(f"new{number}"):
            Path(sys.argv[1], "data").write_text(f"new {number}")
"""


def test_two_processes_over_the_budget_at_once_forget_for_it_once(others: list[Shadow]) -> None:
    budget = others[0].settings.total_budget - 1
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _RECORD, str(shadow.worktree), str(budget)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings(),
        )
        for shadow in others[1:]
    ]
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()
    for each in running:
        each.communicate(b"\n")

    first, second, third = (len(ids(shadow)) for shadow in others)
    assert [each.returncode for each in running] == [0, 0]
    assert 2 <= first < 10
    assert (second, third) == (13, 13)
    assert sum(size.bytes for size in measure_stores(str(others[0].store.parent))) <= budget
    assert all(shadow.check().ok for shadow in others)


def test_who_has_idle_time_uses_that_and_tells_with_the_next_message(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    shadow = others[2]
    shadow.tidy(60)
    (message,) = record(shadow, "new")
    before = [len(ids(each)) for each in others]
    while not shadow.tidy(60):
        pass
    told = shadow.snapshot("newer")

    assert (before, message.warnings) == ([10, 10, 11], [])
    assert 2 <= len(ids(others[0])) < 5
    assert f"messages were forgotten in {others[0].store}: all stores took " in told.warnings[0]


def test_what_an_earlier_look_forgot_does_not_make_a_store_one_that_was_just_used(
    others: list[Shadow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_LOOKS_AROUND", 1)
    record(others[2], "new")

    assert measure_stores(str(others[0].store.parent))[0].store == str(others[0].store)
