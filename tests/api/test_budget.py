"""Budgets: what is forgotten when a store is too large, what never is, and which warnings there are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import Message, Outcome, Shadow, StoreDamaged
from shadowtree.base.limits import Limits
from shadowtree.retention.usage import PathSizes
from tests.support.terminal import Terminal
from tests.support.trees import make_tree

KIB = 1024
SETTINGS = {"min_free": 0, "keep_turns": 3, "store_budget": 1000 * KIB}
"""Enough for SQLite, and for some messages of 100 KiB."""


pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline, so that sizes are easy to compare."""


@pytest.fixture
def small(worktree: Path) -> Iterator[Shadow]:
    """A shadow with a small budget."""
    with Shadow(worktree, settings=SETTINGS) as shadow:
        yield shadow


def noise(seed: str, size: int = 100 * KIB) -> bytes:
    """Return content that cannot be compressed."""
    return random.Random(seed).randbytes(size)


def record(shadow: Shadow, *ids: str, size: int = 100 * KIB) -> list[Message]:
    """Record messages that each replace the content of one file."""
    found = []
    for id in ids:
        shadow.begin(id)
        (shadow.worktree / "data").write_bytes(noise(id, size))
        found.append(shadow.end(id))
    return found


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def measure(shadow: Shadow) -> int:
    return sum(path.stat().st_size for path in (shadow.store / "objects").rglob("*") if path.is_file())


def test_the_oldest_messages_go_when_a_store_is_over_its_budget(small: Shadow) -> None:
    names = [f"m{number}" for number in range(20)]
    told = [message for message in record(small, *names) if message.warnings]

    assert 3 <= len(ids(small)) < 10
    assert ids(small) == names[-len(ids(small)) :]
    assert 1 <= len(told) <= 10
    (warning,) = told[0].warnings
    assert "forgotten: the store used " in warning
    assert warning.endswith(", over the 1000 KiB budget")
    assert measure(small) < 1000 * KIB


def test_nothing_is_forgotten_where_freeing_will_do(small: Shadow) -> None:
    record(small, *(f"m{number}" for number in range(6)))
    small.forget(keep_last=1, gc=False)
    told = record(small, *(f"n{number}" for number in range(5)))

    assert [message.warnings for message in told] == [[]] * 5
    assert ids(small) == ["m5", "n0", "n1", "n2", "n3", "n4"]
    assert measure(small) < 800 * KIB


def test_a_session_that_rested_for_long_does_not_take_along_what_came_meanwhile(
    small: Shadow, worktree: Path
) -> None:
    """Its message starts from the session's previous state, which is one of the oldest trees."""
    rested = small.for_session("rested")
    (worktree / "data").write_text("")
    rested.snapshot("early")
    record(small, "m0", "m1", "m2", "m3")
    rested.snapshot("late")
    names = ["m4", "m5", "m6", "m7", "m8", "m9"]

    told = [message for message in record(small, *names) if message.warnings]

    assert told
    assert ids(rested) == ["late"]
    assert len(ids(small)) > 3


def test_what_is_left_is_undone_exactly(small: Shadow, worktree: Path) -> None:
    record(small, *(f"m{number}" for number in range(14)))
    first, *_ = ids(small)

    small.revert(first)

    assert (worktree / "data").read_bytes() == noise(f"m{int(first[1:]) - 1}")


def test_what_others_added_counts_also_after_an_act_that_records_nothing(
    small: Shadow, worktree: Path
) -> None:
    record(small, "m1", "m2")
    with Shadow(worktree, settings={**SETTINGS, "store_budget": 0}, session="other") as other:
        other.begin("open")
        (worktree / "much").write_bytes(noise("much", 2000 * KIB))
        other.begin("open too")
    small.pin("m1")

    assert "and nothing else can be forgotten" in small.snapshot("m3").warnings[0]


def test_pinned_messages_stay_whatever_the_budget_is(small: Shadow, worktree: Path) -> None:
    record(small, "first")
    small.pin("first")
    record(small, *(f"m{number}" for number in range(14)))

    assert ids(small)[0] == "first"
    small.restore("first")
    assert (worktree / "data").read_bytes() == noise("first")


def test_a_store_whose_newest_turns_do_not_fit_records_on_and_warns(small: Shadow, worktree: Path) -> None:
    record(small, "m1", "m2", "m3", size=400 * KIB)
    make_tree(worktree, {"mine": "1"})

    told = [small.take_snapshot().warnings, small.begin("m4").warnings, small.end("m4").warnings]

    for *_, warning in told:
        assert warning.startswith("the store uses 1.")
        assert warning.endswith(" MiB, over the 1000 KiB budget, and nothing else can be forgotten")
    assert ids(small)[-1] == "m4"
    assert small.undo(2).complete


@pytest.fixture
def damaged_budget(small: Shadow, monkeypatch: pytest.MonkeyPatch) -> Shadow:
    """A shadow whose store turns out to be damaged when its size is measured."""
    record(small, "m1", "m2")

    def measure(*rest: object) -> int:
        raise StoreDamaged("a row does not match its checksum")

    monkeypatch.setattr("shadowtree.capture.open_store.OpenStore.measure_packs", measure)
    return small


def test_damage_met_after_an_act_was_recorded_makes_it_no_failure(
    damaged_budget: Shadow, worktree: Path
) -> None:
    """It used to exit with 15, although files had changed (invariant 11)."""
    outcome = damaged_budget.undo()

    assert outcome.complete
    assert "the store could not be kept within its budget: " in outcome.notes[-1]
    assert (worktree / "data").read_bytes() == noise("m1")


def test_damage_met_after_a_message_was_recorded_makes_it_no_failure(damaged_budget: Shadow) -> None:
    message = damaged_budget.snapshot("m3")

    assert "the store could not be kept within its budget: " in message.warnings[-1]
    assert ids(damaged_budget)[-1] == "m3"


def test_a_store_over_its_budget_is_read_and_acts_are_done(small: Shadow, worktree: Path) -> None:
    record(small, "m1", "m2", "m3", size=400 * KIB)
    make_tree(worktree, {"mine": "1"})

    assert small.status().warnings
    assert small.pin("m1").is_pinned
    assert small.revert("m2").complete
    assert (worktree / "data").read_bytes() == noise("m1", 400 * KIB)
    assert small.unrevert().complete
    assert (worktree / "mine").read_text() == "1"


def test_damage_in_a_store_over_its_budget_keeps_no_snapshot_from_being_taken(
    small: Shadow, worktree: Path
) -> None:
    """Nothing shows what may be forgotten. The snapshot and the repair store damaged content again."""
    (worktree / "precious").write_bytes(noise("precious"))
    record(small, "m0", "m1", "m2")
    small.gc()
    small.close()
    for path in (small.store / "objects" / "pack").glob("*.pack"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    settings = {**SETTINGS, "store_budget": 300 * KIB, "keep_turns": 1}

    with Shadow(worktree, settings=settings) as shadow:
        told = shadow.snapshot("m3").warnings
        shadow.repair()

        assert "the store could not be kept within its budget" in told[0]
        assert ids(shadow)[-1] == "m3"
        assert not {"m3"} & {message.id for message in shadow.check().hurt}


def test_a_larger_budget_lets_the_store_go_on(small: Shadow, worktree: Path) -> None:
    record(small, "m1", "m2", "m3", size=400 * KIB)

    with Shadow(worktree, settings={**SETTINGS, "store_budget": 0}) as shadow:
        record(shadow, "m4", size=400 * KIB)
    with Shadow(worktree, settings={**SETTINGS, "keep_turns": 1, "store_budget": 1200 * KIB}) as shadow:
        record(shadow, "m5")
        assert ids(shadow)[-1] == "m5"
        assert len(ids(shadow)) < 4


def test_bare_trees_go_too(small: Shadow, worktree: Path) -> None:
    for number in range(14):
        (worktree / "data").write_bytes(noise(str(number)))
        snapshot = small.take_snapshot()

    assert measure(small) < 1000 * KIB
    assert small.patch(snapshot.tree).files == []


def record_tiny(shadow: Shadow) -> None:
    """Record many objects, each smaller than its entry in the index of its pack.

    All of them are new each time. So they take the same space whether or not a pack has them as deltas, which
    depends on when it was packed.
    """
    for number in range(30):
        make_tree(shadow.worktree, {f"{name}": f"{number} {name}" for name in range(200)})
        shadow.track()
    shadow.gc()


def test_what_is_weighed_is_what_packs_and_their_indexes_take(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record_tiny(shadow)
        with shadow._access.locked() as opened:
            sizes = PathSizes(opened.objects)
            sizes.add(opened.journal.live_trees())
            packs = opened.measure_packs()

    assert 0.95 * packs < sizes.packed <= packs


def test_what_can_be_forgotten_is_where_indexes_alone_are_over_the_budget(worktree: Path) -> None:
    """The objects fit into four fifths of it. So nothing was forgotten, and each snapshot was refused."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record_tiny(shadow)
        with shadow._access.locked() as opened:
            sizes = PathSizes(opened.objects)
            sizes.add(opened.journal.live_trees())
            used = opened.measure()
            budget = (used - opened.measure_packs() + sizes.total) * 5 // 4 + 1
    with Shadow(worktree, settings={**SETTINGS, "store_budget": budget}) as shadow:
        told = shadow.snapshot("next").warnings
        again = shadow.snapshot("again").warnings

        assert used > budget
        assert "forgotten: the store used " in told[0]
        assert again == []


def test_others_may_come_while_a_store_is_freed(worktree: Path) -> None:
    """The budget was lowered: the next record does not hold the lock until everything is freed."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, *(f"m{number}" for number in range(12)))
    pauses: list[float] = []
    limits = Limits(sleep=pauses.append, sweep_hold_s=0.001)
    with Shadow(worktree, settings=SETTINGS, limits=limits) as small:
        told = small.snapshot("next").warnings

        assert "forgotten: the store used " in told[0]
        assert ids(small)[-1] == "next"
        assert pauses
        assert measure(small) < 1000 * KIB


# `gc` and `forget` apply the budget


@pytest.fixture
def grown(worktree: Path) -> Iterator[Shadow]:
    """A shadow with ten messages that were recorded under a larger budget; the first one is pinned."""
    with Shadow(worktree, settings={"min_free": 0}) as roomy:
        record(roomy, *(f"m{number}" for number in range(10)))
        roomy.pin("m0")
    with Shadow(worktree, settings=SETTINGS) as shadow:
        yield shadow


def test_gc_keeps_the_budget_at_once(grown: Shadow) -> None:
    swept = grown.gc()

    left = ids(grown)
    assert left[0] == "m0"
    assert left[1:] == [f"m{number}" for number in range(11 - len(left), 10)]
    assert 4 <= len(left) < 10
    (warning,) = swept.warnings
    assert "forgotten: the store used " in warning
    assert swept.freed > (8 - len(left)) * 100 * KIB
    assert swept.to_dict()["warnings"] == [warning]
    assert not any("of the budget" in each for each in grown.status().warnings)
    assert grown.gc().warnings == []


def test_forgetting_by_the_settings_keeps_the_budget_too(grown: Shadow) -> None:
    planned = grown.forget(all_sessions=True, dry_run=True)
    assert len(ids(grown)) == 10
    done = grown.forget(all_sessions=True)

    gone = len(done.messages)
    assert done.messages == planned.messages == [("default", f"m{number}") for number in range(1, 1 + gone)]
    assert done.trees == planned.trees
    assert "would be forgotten: the store uses " in planned.warnings[0]
    assert "were forgotten: the store used " in done.warnings[0]
    assert done.freed > (gone - 2) * 100 * KIB
    assert len(ids(grown)) == 10 - gone < 10


def test_who_says_what_to_keep_keeps_it(grown: Shadow) -> None:
    for done in (
        grown.forget(all_sessions=True, keep_last=9),
        grown.forget(all_sessions=True, keep_within="1d"),
        grown.forget(all_sessions=True, keep_sessions=["default"]),
        grown.forget(all_sessions=True, gc=False),
    ):
        assert done.warnings == []

    assert len(ids(grown)) == 10


def test_gc_says_so_if_what_is_never_forgotten_is_over_the_budget(worktree: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        record(shadow, "m1", "m2", "m3", size=400 * KIB)

        (warning,) = shadow.gc().warnings
        assert warning.startswith("the store uses 1.")
        assert warning.endswith(" MiB, over the 1000 KiB budget, and nothing else can be forgotten")
        planned = shadow.forget(all_sessions=True, dry_run=True)
        assert (planned.messages, planned.warnings) == ([], [])
        assert ids(shadow) == ["m1", "m2", "m3"]


def test_what_gc_would_free_for_the_budget_is_foreseen(terminal: Terminal, project: Path) -> None:
    for number in range(10):
        (project / "data").write_bytes(noise(str(number)))
        terminal.run("snapshot", f"m{number}")
    words = ["--set", "store_budget=1000K", "--set", "keep_turns=3"]

    planned = terminal.run_json("gc", "--dry-run", *words)
    assert "would be forgotten: the store uses " in planned["warnings"][0]
    assert planned["freed"] > 300 * KIB
    terminal.run("gc", "--dry-run", *words)
    assert "would be forgotten" in terminal.err
    terminal.run("forget", "--all-sessions", "--dry-run", *words)
    assert "would be forgotten" in terminal.err
    assert len(terminal.run_json("log")) == 10
    found = terminal.run_json("gc", *words)
    assert found["freed"] > 300 * KIB
    assert "forgotten: the store used " in found["warnings"][0]
    terminal.run("gc", *words)
    assert terminal.err == ""


def test_status_warns_at_four_fifths(small: Shadow) -> None:
    record(small, "m1")
    assert small.status().warnings == []
    record(small, "m2", size=800 * KIB)

    (warning,) = small.status().warnings
    assert warning.startswith("the store uses ")
    assert warning.endswith("% of its 1000 KiB budget")


def test_the_warnings_are_told_on_the_command_line(terminal: Terminal) -> None:
    terminal.run("track")

    assert terminal.run_json("status")["warnings"] == []
    (warning,) = terminal.run_json("status", "--set", "store_budget=100K")["warnings"]
    assert warning in terminal.run("status", "--set", "store_budget=100K")


@pytest.mark.parametrize(
    ("act", "passed"),
    [
        (lambda shadow: shadow.undo(5), "34567"),
        (lambda shadow: shadow.switch("m3"), "4567"),
        (lambda shadow: shadow.revert("m4", only=True, on_conflict="overwrite"), "4"),
        (lambda shadow: (shadow.undo(5), shadow.redo(4))[1], "3456"),
        (lambda shadow: (shadow.undo(5), shadow.unrevert())[1], "34567"),
        (lambda shadow: (shadow.undo(5), shadow.restore(shadow.track()))[0], "34567"),
    ],
    ids=["undo", "switch", "only", "redo", "unrevert", "one that another act followed that changed nothing"],
)
def test_what_the_last_act_of_a_session_passed_stays_for_its_way_back(
    worktree: Path, act: Callable[[Shadow], Outcome], passed: str
) -> None:
    no_budget = {**SETTINGS, "keep_turns": 1, "store_budget": 0}
    with Shadow(worktree, settings=no_budget) as large:
        record(large, *(f"m{number}" for number in range(8)))
        outcome = act(large)
    with Shadow(worktree, settings={**no_budget, "store_budget": 400 * KIB}) as small:
        record(small.for_session("other"), "n0", "n1")
        left = ids(small)
        back = small.unrevert(undo="--undo" in str(outcome.back), on_conflict="overwrite")

    assert outcome.messages == [f"m{number}" for number in passed]
    assert "m0" not in left
    assert set(outcome.messages) <= set(left)
    assert back.messages == outcome.messages
