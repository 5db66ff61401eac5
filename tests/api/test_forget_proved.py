"""Nothing is forgotten to free space unless it is proved first that the space can be freed."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from shadowtree import OutOfSpace, Shadow, ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.limits import Limits

KIB = 1024
SETTINGS = {"min_free": 0, "keep_turns": 3, "store_budget": 1000 * KIB}

pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline, so damage in a pack stays."""


def record(shadow: Shadow, *ids: str) -> list[list[str]]:
    """Record messages that cannot be compressed; return the warnings of each."""
    told = []
    for id in ids:
        shadow.begin(id)
        (shadow.worktree / "data").write_bytes(random.Random(id).randbytes(100 * KIB))
        told.append(shadow.end(id).warnings)
    return told


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def flip_packs(shadow: Shadow) -> None:
    """Damage each pack in the middle, where the content of a file is."""
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
    """Leave room on the disk for one message, but not for rewriting several."""
    figures = SimpleNamespace(f_bavail=110, f_frsize=KIB, f_fsid=1)
    monkeypatch.setattr("os.statvfs", lambda path: figures)


DAMAGE = [
    pytest.param(flip_packs, StoreDamaged, id="packs flipped"),
    pytest.param(remove_newest, StoreDamaged, id="a pack gone"),
]


@pytest.mark.parametrize("is_swept", [True, False], ids=["in parts", "fresh"])
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

        with pytest.raises(OutOfSpace, match=r"110 KiB free"):
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
        again = shadow.snapshot("one more").warnings

        assert ids(shadow) == [*(f"m{number}" for number in range(next(numbers))), "one more"]
        assert again == told
        assert told[0].startswith("the store could not be kept within its budget: not enough space")


def test_what_a_budget_took_is_told_and_freed_later_if_the_sweep_fails(worktree: Path) -> None:
    """Nothing can predict an I/O error. What was already forgotten is freed before more is forgotten."""
    recorded: list[str] = []

    def fail_once_forgotten(seconds: float) -> None:
        if len(ids(shadow)) < len(recorded):
            raise StoreFailed("disk", "input/output error")

    with Shadow(
        worktree, settings=SETTINGS, limits=Limits(sleep=fail_once_forgotten, sweep_hold_s=0)
    ) as shadow:
        told: list[str] = []
        while not told:
            recorded.append(f"m{len(recorded)}")
            (told,) = record(shadow, recorded[-1])
        left = ids(shadow)
    forgotten, failed = told

    assert "messages were forgotten: the store used " in forgotten
    assert failed == "what was forgotten has not been freed yet: disk: input/output error"
    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert record(shadow, "next") == [[]]
        assert ids(shadow) == [*left, "next"]
