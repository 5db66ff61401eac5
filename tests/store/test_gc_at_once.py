"""gc runs while other processes record, revert and read: messages can still be checked and restored.

Two sessions work in the same worktree, each in its own directory, so that each knows its files. Other
processes forget and sweep, tidy, and read without the lock, all the time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from shadowtree import Conflict, Locked, Outcome, Shadow
from shadowtree.base.errors import ForgottenMessage, ForgottenTree, InvalidInput
from shadowtree.store.objects import Objects
from tests.support.limits import TINY, use_limits
from tests.support.processes import Child, in_child
from tests.support.referee import assert_sound_store
from tests.support.stores import assert_records_whole
from tests.support.stories import Told, lines
from tests.support.trees import Copy, copy_of

SESSIONS = ("one", "two")
IN_LINE = ("active", "undone")
EXPECTED = (Conflict, ForgottenMessage, ForgottenTree, Locked)
"""The errors that a reader or an act may get while others forget."""
WANTED = ("swept", "removed", "recorded", "show", "came back")
"""What has to happen at least once."""
MOST = 20
"""By how many times the number of rounds may grow until then: the lock is not fair, and some wait long."""


def open_session(worktree: Path, store: Path, session: str) -> Shadow:
    """Open a store, as a new process would."""
    settings = {"min_free": 0, "lock_timeout": 120}
    return Shadow(worktree, store=store, session=session, settings=settings)


@dataclass(frozen=True)
class Signs:
    """Tells all processes what has happened: each event is a file."""

    place: Path

    def give(self, name: str) -> None:
        """Note an event."""
        (self.place / name).touch()

    def note(self, done: Counter[str]) -> None:
        """Note which of the wanted events happened."""
        for name in WANTED:
            if done[name]:
                self.give(name)

    def tell_of(self, *names: str) -> bool:
        """Return whether all of these events have happened."""
        return all((self.place / name).exists() for name in names)


@dataclass
class Worker:
    """Records messages in one directory, goes back and forth, and knows what was there."""

    worktree: Path
    store: Path
    signs: Signs
    session: str
    copies: list[Copy] = field(default_factory=list)
    """The content of the directory after each message."""
    first: int = 0
    """The first message from which on all are in force, or were when nothing is undone."""
    done: Counter[str] = field(default_factory=Counter)

    @property
    def directory(self) -> Path:
        """The directory of this worker."""
        return self.worktree / self.session

    @property
    def now(self) -> Copy:
        """Its present content."""
        return copy_of(self.directory)

    def work(self, rounds: int, seed: int) -> Worker:
        """Work for some rounds, and continue until every wanted event has happened."""
        chance = random.Random(f"{seed} {self.session}")
        self.directory.mkdir()
        with open_session(self.worktree, self.store, self.session) as shadow:
            self._record(shadow, chance)
            for number in range(MOST * rounds):
                if number >= rounds and self.signs.tell_of(*WANTED):
                    break
                chance.choice([self._record, self._record, self._revert, self._undo])(shadow, chance)
                self.signs.note(self.done)
        return self

    def _record(self, shadow: Shadow, chance: random.Random) -> None:
        number = len(self.copies)
        shadow.begin(f"{self.session}-{number}", text=f"about {number}")
        for name in chance.sample("abcd", 2):
            (self.directory / name).write_bytes(lines(f"{self.session} {name}", chance.randrange(30)))
        (self.directory / f"new{number}").write_text(f"only in {number} of {self.session}")
        (self.directory / f"new{number - 4}").unlink(missing_ok=True)
        shadow.end(paths=[self.session])
        self.copies.append(self.now)
        self.done["recorded"] += 1

    def _revert(self, shadow: Shadow, chance: random.Random) -> None:
        """Go back to before one of the last messages, and come back in one of two ways."""
        number = chance.randrange(max(self.first, len(self.copies) - 9), len(self.copies))
        if number > self.first:
            act = partial(shadow.revert, f"{self.session}-{number}")
            self._go_and_come_back(shadow, act, self.copies[number - 1], takes_back=chance.random() < 0.5)

    def _undo(self, shadow: Shadow, chance: random.Random) -> None:
        if len(self.copies) - 1 > self.first:
            self._go_and_come_back(shadow, shadow.undo, self.copies[-2], takes_back=False)

    def _go_and_come_back(
        self, shadow: Shadow, act: Callable[[], Outcome], expected: Copy, *, takes_back: bool
    ) -> None:
        now = self.now
        try:
            act()
        except (ForgottenMessage, ForgottenTree):
            assert self.now == now
            self.done["was told that it is forgotten"] += 1
            return
        assert self.now == expected
        if takes_back and shadow.unrevert().messages:
            assert self.now == now
        # The act to reverse, or what it undid, may have been forgotten meanwhile.
        outcome = shadow.redo(None)
        if not any("is forgotten" in note for note in outcome.notes):
            assert self.now == now, outcome
            self.done["came back"] += 1
        else:
            self.done["was told that what was undone is forgotten"] += 1
            self.first = len(self.copies)
            self._record(shadow, random.Random(1))

    def check(self) -> None:
        """Go back to before every message that is left, one after the other, and then forward again."""
        with open_session(self.worktree, self.store, self.session) as shadow:
            now = self.now
            numbers = [int(message.id.partition("-")[2]) for message in shadow.messages()]
            assert numbers[-1] == len(self.copies) - 1
            for number in reversed(numbers):
                if number > self.first:
                    shadow.revert(f"{self.session}-{number}")
                    assert self.now == self.copies[number - 1]
            assert shadow.redo(None).complete
            assert self.now == now


def clean_up(worktree: Path, store: Path, signs: Signs) -> Counter[str]:
    """Forget and sweep repeatedly."""
    done: Counter[str] = Counter()
    with open_session(worktree, store, "cleaner") as shadow:
        while not signs.tell_of("over"):
            done["swept"] += 1
            done["removed"] += shadow.forget(keep_last=2 + done["swept"] % 6, all_sessions=True).removed
            signs.note(done)
    return done


def tidy_up(worktree: Path, store: Path, signs: Signs) -> Counter[str]:
    """Tidy repeatedly, as the daemon does in idle time."""
    done: Counter[str] = Counter()
    with open_session(worktree, store, "tidier") as shadow:
        while not signs.tell_of("over"):
            done["tidied"] += shadow.tidy(0.01)
            shadow.gc()
    return done


def read(worktree: Path, store: Path, signs: Signs) -> Counter[str]:
    """Read repeatedly, without the lock."""
    done: Counter[str] = Counter()
    chance = random.Random(1)
    with ExitStack() as stack:
        shadows = [stack.enter_context(open_session(worktree, store, session)) for session in SESSIONS]
        while not signs.tell_of("over"):
            shadow = chance.choice(shadows)
            ids = [message.id for message in shadow.messages() if message.state in IN_LINE]
            if len(ids) < 2:
                continue
            old, new = sorted(chance.sample(ids, 2), key=ids.index)
            for name, look in list_looks(shadow, old, new).items():
                try:
                    look()
                    done[name] += 1
                except EXPECTED as error:
                    done[type(error).__name__] += 1
            signs.note(done)
    return done


def plan(shadow: Shadow, id: str) -> None:
    """Plan a revert; another process may have archived the message since it was listed."""
    try:
        shadow.plan_revert(id)
    except InvalidInput:
        assert shadow.show(id)[0].state not in IN_LINE


def list_looks(shadow: Shadow, old: str, new: str) -> dict[str, Callable[[], object]]:
    """Return the calls of a reader, by name."""
    return {
        "show": lambda: shadow.show(old),
        "diff": lambda: shadow.diff(f"{old}^", new),
        "diff to now": lambda: shadow.diff(old),
        "plan": lambda: plan(shadow, new),
        "status": shadow.status,
        "stats": shadow.stats,
        "du": shadow.du,
    }


def work_at_once(worktree: Path, place: Path, rounds: int, seed: int) -> Counter[str]:
    """Run all processes at the same time, check the result, and return how often each event happened."""
    store, signs = place / "store", Signs(place / "signs")
    signs.place.mkdir()
    with open_session(worktree, store, "first") as shadow:
        (worktree / "shared").write_text("shared")
        shadow.wrap()
    others = [Child(partial(other, worktree, store, signs)) for other in (clean_up, tidy_up, read)]
    workers = [
        Child(partial(Worker(worktree, store, signs, session).work, rounds, seed)) for session in SESSIONS
    ]
    ended = [worker.wait() for worker in workers]
    signs.give("over")
    counts = [other.wait().value() for other in others]
    for worker in ended:
        worker.value().check()
    assert_records_whole(store)
    assert_sound_store(store)
    return sum((*counts, *(worker.value().done for worker in ended)), Counter())


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [pytest.param(16, 1, id="few rounds"), pytest.param(600, 2, id="many rounds", marks=pytest.mark.slow)],
)
def test_messages_come_back_while_others_sweep_and_read(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, seed: int
) -> None:
    use_limits(monkeypatch, TINY)

    done = work_at_once(worktree, tmp_path, rounds, seed)

    assert min(done[name] for name in WANTED) > 0


# A sweep during a read


LOOKS: dict[str, Callable[[Shadow], object]] = {
    "show": lambda shadow: shadow.show("m1"),
    "diff": lambda shadow: shadow.diff("m1^", "m3"),
    "diff to now": lambda shadow: shadow.diff("m1"),
    "diff of a message": lambda shadow: shadow.diff_message(shadow.messages()[1]),
    "plan": lambda shadow: shadow.plan_revert("m2"),
    "status": lambda shadow: shadow.status(),
    "stats": lambda shadow: shadow.stats(),
}


@pytest.mark.parametrize("name", LOOKS)
def test_who_is_overtaken_by_a_sweep_is_told_that_it_is_forgotten(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The store is not damaged, although the object to read is gone."""
    told = Told(worktree, tmp_path / "store", tmp_path / "saved", messages=6)
    for number in (1, 2, 4):
        told.put_back()
        with told.open() as shadow, monkeypatch.context() as patch:
            patch.setattr(Objects, "read", sweep_at(told, number))
            with suppress(*EXPECTED):
                LOOKS[name](shadow)


def sweep_at(told: Told, number: int) -> Callable[..., bytes]:
    """Make another process forget all but the last message right before one object is read."""
    read, reads = Objects.read, count(1)

    def sweep() -> None:
        with told.open() as shadow:
            shadow.forget(keep_last=1)

    def call(self: Objects, kind: bytes, wanted: bytes) -> bytes:
        if next(reads) == number:
            in_child(sweep).value()
        return read(self, kind, wanted)

    return call
