"""Whatever fault hits a scene at whatever point: no byte is lost, and the next command works without help."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree.system import disk
from tests.faults.engine import (
    FAULTS,
    KILL,
    OFTEN,
    Fault,
    Hit,
    Scene,
    choose_points,
    strike,
    sweep_all,
    sweep_some,
)
from tests.faults.scenes import SCENES, make_scene
from tests.support.limits import TINY, use_limits
from tests.support.stories import Told, sweep
from tests.support.sweeps import armed
from tests.support.trees import make_tree

scenes = pytest.mark.parametrize("name", SCENES)


@pytest.fixture
def worktree(fast_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worktree in memory, like its store: faults are injected, so a real disk would prove nothing."""
    monkeypatch.setenv("SHADOWTREE_HOME", str(fast_place / "stores"))
    path = fast_place / "worktree"
    path.mkdir()
    return path


@scenes
def test_some_points(name: str, worktree: Path, fast_place: Path) -> None:
    with make_scene(name, worktree, fast_place) as scene:
        sweep_some(scene, name)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@scenes
def test_every_point(name: str, fault: str, worktree: Path, fast_place: Path) -> None:
    with make_scene(name, worktree, fast_place) as scene:
        if fault in scene.spared:
            pytest.skip("it means nothing here")
        sweep_all(scene, FAULTS[fault])


# The acts that are swept


@pytest.fixture
def told(worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    use_limits(monkeypatch, TINY)
    return Told(worktree, tmp_path / "store", tmp_path / "saved")


def test_a_gc_does_all_that_it_is_about(told: Told) -> None:
    """Otherwise the sweeps would prove nothing."""
    acts: set[str] = set()

    def note(act: str, path: str) -> None:
        acts.add(f"{act} {Path(path).suffix}" if act in ("unlink", "rename") else act)

    with armed(note), told.open() as shadow:
        sweep(shadow)

    assert acts >= {"commit", "compact", "rename .pack", "unlink .pack", "unlink .idx"}
    assert len(list((told.store / "objects" / "pack").glob("*.pack"))) >= 2


# The engine itself


class Careless(Scene):
    """A scene that replaces a file by overwriting it, in two writes."""

    least = 1

    def __init__(self, worktree: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = worktree / "store"

    def prepare(self) -> None:
        make_tree(self.worktree, {"a.txt": "old", "store": {"file": "stored"}})

    def act(self) -> object:
        for text in ("", "new"):
            disk.before_write("write", "a.txt")
            (self.worktree / "a.txt").write_text(text)
        return None

    def check(self, hit: Hit) -> None:
        assert (self.worktree / "a.txt").read_text() in ("old", "new")


def test_a_sweep_finds_the_one_write_at_which_a_kill_loses_something(worktree: Path) -> None:
    scene = Careless(worktree)
    strike(scene, KILL, 1)

    with pytest.raises(AssertionError) as caught:
        strike(scene, KILL, 2)

    assert "kill, point 2" in caught.value.__notes__
    with pytest.raises(AssertionError):
        sweep_all(scene, KILL)


def test_after_enough_turns_every_point_was_hit_by_every_fault(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Careless(worktree)

    def act() -> None:
        for _ in range(60):
            disk.before_write("write", "")

    monkeypatch.setattr(scene, "act", act)
    hits: dict[str, set[int]] = {}
    for turn in range(6 * 2 * len(OFTEN)):
        monkeypatch.setattr("tests.faults.engine.this_turn", lambda turn=turn: turn)
        for fault, number in choose_points(scene, "some scene"):
            hits.setdefault(fault.name, set()).add(number)

    assert hits["kill"] == hits["Ctrl-C"] == hits["second process"] == set(range(1, 61))
    assert hits["bit flip"] == set(range(1, scene.measure(FAULTS["bit flip"]) + 1))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_turns_of_the_sweep_hit_each_point_once(
    fault: Fault, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Careless(worktree)
    hits: list[int] = []
    monkeypatch.setattr(scene, "measure", lambda fault: 20)
    monkeypatch.setattr("tests.faults.engine.strike", lambda scene, fault, number: hits.append(number))
    for turn in range(fault.every):
        monkeypatch.setattr("tests.faults.engine.this_turn", lambda turn=turn: turn)
        sweep_all(scene, fault)

    assert sorted(hits) == list(range(1, 21))
