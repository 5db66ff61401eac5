"""Random histories with forgetting in between: whatever is left is reverted to exact bytes."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shadowtree import ForgottenMessage, Shadow
from tests.faults import assert_records_whole, put_back, sweep_kills
from tests.modelled import Disk, read_disk
from tests.referee import assert_sound_store

NAMES = [f"{directory}{name}" for directory in ("", "a/", "b/c/") for name in ("x", "y", "z")]
STEPS = 30
SEEDS = range(3)
MANY_SEEDS = range(100, 220)


@dataclass
class Known:
    """What the model knows of one message."""

    before: Disk
    after: Disk
    is_pinned: bool = False


@dataclass
class History:
    """A worktree in which messages, undo and forgetting follow each other, and plain copies of it."""

    shadow: Shadow
    random: random.Random
    known: dict[str, Known] = field(default_factory=dict)
    line: list[str] = field(default_factory=list)
    """The messages in force, oldest first."""
    undone: list[str] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)

    @property
    def root(self) -> Path:
        return self.shadow.worktree

    def change(self) -> None:
        """Write, delete or rename some files."""
        for name in self.random.sample(NAMES, self.random.randint(1, 4)):
            path = self.root / name
            if path.exists() and self.random.random() < 0.3:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.random.randbytes(self.random.choice([0, 20, 3000])))
            path.chmod(self.random.choice([0o644, 0o600, 0o755]))

    def record(self) -> None:
        id = f"m{len(self.known)}"
        with self.shadow.message(id):
            before, _ = read_disk(self.root)
            self.change()
            after, _ = read_disk(self.root)
        self.known[id] = Known(before, after)
        self.line.append(id)
        self.undone = []

    def undo(self) -> None:
        outcome = self.shadow.undo()
        if outcome.messages:
            first = self.line.index(outcome.messages[0])
            assert outcome.messages == self.line[first:]
            self.undone = [*self.line[first:], *self.undone]
            del self.line[first:]
            assert read_disk(self.root)[0] == self.known[outcome.messages[0]].before

    def redo(self) -> None:
        outcome = self.shadow.redo()
        if outcome.messages:
            self.line += outcome.messages
            del self.undone[: len(outcome.messages)]
            assert read_disk(self.root)[0] == self.known[outcome.messages[-1]].after

    def pin(self) -> None:
        live = [id for id in self.known if id not in self.forgotten]
        if live:
            id = self.random.choice(live)
            self.known[id].is_pinned = not self.known[id].is_pinned
            (self.shadow.pin if self.known[id].is_pinned else self.shadow.unpin)(id)

    def forget(self) -> None:
        found = self.shadow.forget(keep_last=self.random.randint(1, 6))
        for _, id in found.messages:
            assert not self.known[id].is_pinned
            self.forgotten.add(id)
        assert_sound_store(self.shadow.store)

    def check(self) -> None:
        """Every message that is left is reverted to the bytes that the copy has, and back again."""
        assert {message.id for message in self.shadow.messages()} == self.known.keys() - self.forgotten
        for id in self.forgotten:
            with pytest.raises(ForgottenMessage):
                self.shadow.revert(id)
        now, _ = read_disk(self.root)
        for id in [id for id in self.line if id not in self.forgotten]:
            outcome = self.shadow.revert(id)
            assert outcome.complete, (id, outcome)
            assert read_disk(self.root)[0] == self.known[id].before, id
            self.shadow.unrevert()
            assert read_disk(self.root)[0] == now, id
        for id in self.known.keys() - self.forgotten:
            outcome = self.shadow.restore(id, confirm=lambda plan: True)
            assert read_disk(self.root)[0] == self.known[id].after, id
            if outcome.restored or outcome.deleted:
                self.shadow.unrevert()
        assert read_disk(self.root)[0] == now


def play(worktree: Path, seed: int) -> None:
    chooser = random.Random(seed)
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        history = History(shadow, chooser)
        shadow.wrap()
        history.record()
        acts = [history.record] * 6 + [history.undo] * 2 + [history.redo, history.pin, history.forget]
        for _ in range(STEPS):
            chooser.choice(acts)()
        history.forget()
        history.check()
        assert shadow.check().ok
    assert_records_whole(shadow.store)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_forgotten_is_reverted_exactly(worktree: Path, seed: int) -> None:
    play(worktree, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_what_is_not_forgotten_is_reverted_exactly_in_many_histories(worktree: Path, seed: int) -> None:
    play(worktree, seed)


@pytest.mark.parametrize("gc", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_kill_at_any_write_forgets_all_of_it_or_nothing(worktree: Path, tmp_path: Path, gc: bool) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        history = History(shadow, random.Random(7))
        shadow.wrap()
        for _ in range(5):
            history.record()
        history.undo()
        history.record()
        shadow.pin("m0")
    shutil.copytree(shadow.store, tmp_path / "saved")
    everything = [f"m{number}" for number in range(6)]

    def forget() -> None:
        with Shadow(worktree, settings={"min_free": 0}) as killed:
            killed.forget(keep_last=2, gc=gc)

    def check() -> None:
        with Shadow(worktree, settings={"min_free": 0}) as left:
            ids = [message.id for message in left.messages()]
            assert ids in (everything, ["m0", "m4", "m5"])
            left.revert("m0")
            assert read_disk(worktree)[0] == history.known["m0"].before
            left.unrevert()
            left.forget(keep_last=2)
            assert [message.id for message in left.messages()] == ["m0", "m4", "m5"]
        assert_records_whole(left.store)
        assert_sound_store(left.store)

    assert sweep_kills(lambda: put_back(tmp_path / "saved", shadow.store), forget, check) > 0
    check()
