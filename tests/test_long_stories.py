"""Long stories with forgetting, pins, sweeps and tidying in between: what is left comes back exactly.

Every story has a seed. A copy of the directory is kept before and after each message; what was forgotten is
asked of the store, and has to be what was allowed to go. Real git may pack the store in between.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shadowtree import ForgottenMessage, Shadow, UnknownTree
from tests.faults import assert_records_whole
from tests.referee import assert_sound_store, git
from tests.stories import Copy, Story, copy_of, make_tiny

STEPS = ["record"] * 6 + ["undo", "redo", "revert", "forget"] * 2
STEPS += ["restore", "pin", "sweep", "tidy", "pack"]


class LongStory(Story):
    """A session in which messages are recorded, undone, redone, pinned and forgotten."""

    def __init__(self, worktree: Path, store: Path, seed: int) -> None:
        super().__init__(worktree, store, seed)
        self.chance = random.Random(seed)
        self.befores: dict[str, Copy] = {}
        self.line: list[str] = []
        """The messages in force, oldest first."""
        self.undone: list[str] = []
        """Those that redo brings back, oldest first."""
        self.pinned: set[str] = set()
        self.forgotten: set[str] = set()
        self.told: list[str] = []

    def run(self, steps: int) -> None:
        """Tell a story, and check all that is left at its end."""
        with self.open() as shadow:
            self.begin(shadow)
            self.record(shadow)
            for _ in range(steps):
                name = self.chance.choice(STEPS)
                self.told.append(name)
                getattr(self, name)(shadow)
            self.sweep(shadow)
        assert_records_whole(self.store)
        self.check_all()
        assert_sound_store(self.store)

    def live(self, ids: list[str]) -> list[str]:
        """Give those that were not forgotten."""
        return [id for id in ids if id not in self.forgotten]

    # Steps

    def record(self, shadow: Shadow) -> None:
        """Record a message; what is undone is archived by it."""
        number = len(self.trees)
        before = copy_of(self.worktree)
        id = self.tell(shadow, number)
        self.befores[id] = before
        self.line.append(id)
        self.undone = []

    def undo(self, shadow: Shadow) -> None:
        """Undo the last message, if it is left."""
        now = copy_of(self.worktree)
        outcome = shadow.undo()
        if not self.line or self.line[-1] in self.forgotten:
            assert outcome.notes
            assert copy_of(self.worktree) == now
            return
        self.undone.insert(0, self.line.pop())
        assert copy_of(self.worktree) == self.befores[self.undone[0]]

    def redo(self, shadow: Shadow) -> None:
        """Redo all that is left, up to what was forgotten."""
        now = copy_of(self.worktree)
        outcome = shadow.redo(None)
        while self.undone and self.undone[0] not in self.forgotten:
            self.line.append(self.undone.pop(0))
            now = self.copies[self.line[-1]]
        assert copy_of(self.worktree) == now
        assert outcome.notes or not self.undone

    def revert(self, shadow: Shadow) -> None:
        """Go back to before any message that is left, over forgotten ones if need be; sometimes come back."""
        live = self.live(self.line)
        if not live:
            return
        id = self.chance.choice(live)
        now = copy_of(self.worktree)
        shadow.revert(id)
        assert copy_of(self.worktree) == self.befores[id], id
        if self.chance.random() < 0.6:
            shadow.unrevert()
            assert copy_of(self.worktree) == now
            return
        place = self.line.index(id)
        self.undone = self.line[place:] + self.undone
        self.line = self.line[:place]

    def restore(self, shadow: Shadow) -> None:
        """Have the state after any message that is left, archived ones too, and take that back."""
        id = self.chance.choice(self.live(list(self.trees)))
        now = copy_of(self.worktree)
        shadow.restore(id)
        assert copy_of(self.worktree) == self.copies[id]
        if now != self.copies[id]:
            shadow.unrevert()
            assert copy_of(self.worktree) == now

    def pin(self, shadow: Shadow) -> None:
        """Pin a message, or let go of one."""
        if self.pinned and self.chance.random() < 0.4:
            shadow.unpin(self.pinned.pop())
            return
        id = self.chance.choice(self.live(list(self.trees)))
        shadow.pin(id)
        self.pinned.add(id)

    def forget(self, shadow: Shadow) -> None:
        """Forget old messages: never pinned ones, nor the newest."""
        last = self.chance.randint(2, 12)
        shadow.forget(keep_last=last, gc=self.chance.random() < 0.6)
        left = {message.id for message in shadow.messages()}
        newest = list(self.trees)[-last:]
        assert left >= {*newest, *self.pinned} - self.forgotten
        gone = set(self.trees) - left
        assert gone >= self.forgotten
        self.forgotten = gone
        for id in sorted(gone)[:2]:
            with pytest.raises(ForgottenMessage):
                shadow.show(id)

    def sweep(self, shadow: Shadow) -> None:
        """Sweep."""
        shadow.gc()

    def tidy(self, shadow: Shadow) -> None:
        """Do what is done in idle time."""
        shadow.tidy(self.chance.choice([0, 100]))

    def pack(self, shadow: Shadow) -> None:
        """Let real git pack the store."""
        git("--git-dir", self.store, "gc", "--quiet", "--prune=now")
        for path in self.store.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)

    # At the end

    def check_all(self) -> None:
        """Every message that is left comes back, and those that are not say so."""
        with self.open() as shadow:
            assert {message.id for message in shadow.messages()} == set(self.trees) - self.forgotten
            for id in self.live(list(self.trees)):
                shadow.restore(id)
                assert copy_of(self.worktree) == self.copies[id], id
            for id in sorted(self.forgotten):
                with pytest.raises((ForgottenMessage, UnknownTree)):
                    shadow.restore(id)


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        *(pytest.param(seed, 30, id=f"{seed}") for seed in range(3)),
        *(pytest.param(seed, 150, id=f"{seed}, long", marks=pytest.mark.slow) for seed in range(100, 140)),
    ],
)
def test_what_is_not_forgotten_comes_back_exactly(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    make_tiny(monkeypatch)
    story = LongStory(worktree, tmp_path / "store", seed)
    try:
        story.run(steps)
    except BaseException as error:
        error.add_note(f"story {seed}: " + ", ".join(story.told))
        raise
