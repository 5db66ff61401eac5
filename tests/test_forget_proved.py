"""Nothing is forgotten to win room unless the room can be won: that is proved before anything goes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, ShadowError, StoreDamaged, StoreFailed
from shadowtree.sweeping import Sweep

KIB = 1024
SETTINGS = {"min_free": 0, "keep_turns": 3, "store_budget": 1000 * KIB}

pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline: what is damaged stays so."""


def record(shadow: Shadow, *ids: str) -> list[list[str]]:
    """Record messages that no packing makes smaller; give the warnings of each."""
    told = []
    for id in ids:
        shadow.begin(id)
        (shadow.worktree / "data").write_bytes(random.Random(id).randbytes(100 * KIB))
        told.append(shadow.end(id).warnings)
    return told


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def flip_packs(shadow: Shadow) -> None:
    """Damage each pack in the middle, which is in the content of a file."""
    for path in (shadow.store / "objects" / "pack").glob("*.pack"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)
    shadow.close()


def remove_newest(shadow: Shadow) -> None:
    """Remove the pack that was written last."""
    packs = (shadow.store / "objects" / "pack").glob("*.pack")
    newest = max(packs, key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()
    newest.with_suffix(".idx").unlink()
    shadow.close()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadowtree.sweeping.free_bytes", lambda path: 10 * KIB)


DAMAGE = [
    pytest.param(flip_packs, StoreDamaged, id="packs flipped"),
    pytest.param(remove_newest, StoreDamaged, id="a pack gone"),
]


@pytest.mark.parametrize("is_swept", [True, False], ids=["on shelves", "fresh"])
@pytest.mark.parametrize(("damage", "error"), DAMAGE)
def test_nothing_is_forgotten_in_a_store_that_cannot_be_swept(
    worktree: Path, damage: Callable[[Shadow], None], error: type[ShadowError], is_swept: bool
) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, "m1", "m2", "m3", "m4")
        if is_swept:
            shadow.gc()
        damage(shadow)

        with pytest.raises(error):
            shadow.forget(keep_last=2)

        assert ids(shadow) == ["m1", "m2", "m3", "m4"]


@pytest.mark.usefixtures("full")
def test_nothing_is_forgotten_where_there_is_no_room_to_write_anew(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, "m1", "m2", "m3", "m4")

        with pytest.raises(OutOfSpace, match=r"10240 bytes free"):
            shadow.forget(keep_last=2)

        assert ids(shadow) == ["m1", "m2", "m3", "m4"]


@pytest.mark.usefixtures("full")
def test_who_only_marks_needs_no_room(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, "m1", "m2", "m3", "m4")
        shadow.forget(keep_last=2, gc=False)

        assert ids(shadow) == ["m3", "m4"]


@pytest.mark.usefixtures("full")
def test_a_budget_takes_no_message_where_no_room_would_be_won(worktree: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        numbers = count()
        told: list[str] = []
        while not told:
            (told,) = record(shadow, f"m{next(numbers)}")
        with pytest.raises(OutOfSpace):
            shadow.snapshot("one more")

        assert ids(shadow) == [f"m{number}" for number in range(next(numbers))]
        assert told[0].startswith("the store could not be kept within its budget: too little space")


def test_what_a_budget_took_is_told_and_freed_later_if_the_sweep_fails(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error cannot be foreseen. What is forgotten by then is freed before more is forgotten."""
    step = Sweep.step
    broken = [False]

    def fail(sweep: Sweep, *rest: object) -> bool:
        if broken[0]:
            raise StoreFailed("disk", "input/output error")
        return step(sweep, *rest)  # type: ignore[arg-type]  # passed on as they came

    def prove(sweep: Sweep, *rest: object) -> None:
        broken[0] = True

    monkeypatch.setattr(Sweep, "step", fail)
    monkeypatch.setattr(Sweep, "prove", prove)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        names = [f"m{number}" for number in range(20)]
        while not broken[0]:
            (told,) = record(shadow, names.pop(0))
        left = ids(shadow)
        forgotten, failed = told
        monkeypatch.undo()

        assert "messages were forgotten: the store took " in forgotten
        assert failed == "what was forgotten is not freed yet: disk: input/output error"
        assert record(shadow, "next") == [[]]
        assert ids(shadow) == [*left, "next"]
