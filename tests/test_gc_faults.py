"""Forgetting, sweeping and tidying, hit at each write: by kill -9, by a full or failing disk, by Ctrl-C.

Whatever it was: the next command works by itself, all that is live comes back exactly, real git finds no
fault, nothing is left lying about, and another sweep does the rest.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, ShadowError, StoreFailed, faultpoint
from tests.faults import Faults, Raised, in_child, leftovers, mounted_tmpfs, sweep_errors, sweep_kills
from tests.stories import (
    Told,
    do_nothing,
    forget,
    forget_first,
    let_git_pack,
    make_tiny,
    sweep,
    sweep_briefly,
    tidy,
)

Act = Callable[[Shadow], object]
Prepare = Callable[[Told], None]


def snapshot(shadow: Shadow) -> object:
    """Record a message with many versions, by which packs are merged, and then shelved."""
    return shadow.snapshot("last")


def leave_fresh(told: Told) -> None:
    """Have so many fresh packs, not tidied yet, that the next snapshot puts them together."""
    with pytest.MonkeyPatch.context() as patch, told.open() as shadow:
        patch.setattr("shadowtree.intake.Intake.tidy", lambda intake, **_: None)
        for number in range(12, 16):
            told.tell(shadow, number)


def leave_little_fresh(told: Told) -> None:
    """Have one fresh pack, whose objects belong to shelves that are there."""
    with told.open() as shadow:
        shadow.tidy(1000)
        told.tell(shadow, 12)


def be_about_to_shelve(told: Told) -> None:
    """Have fresh packs, and work for the next snapshot to record."""
    leave_fresh(told)
    told.edit(100)


def list_packs(told: Told) -> list[str]:
    """Name the packs of the store."""
    return [path.name for path in (told.store / "objects" / "pack").glob("*.pack")]


ACTS: dict[str, tuple[Prepare, Act]] = {
    "forget": (do_nothing, forget),
    "sweep": (do_nothing, sweep),
    "sweep what was forgotten": (forget_first, sweep),
    "sweep what git packed": (let_git_pack, sweep),
    "sweep briefly": (leave_little_fresh, sweep_briefly),
    "tidy": (leave_fresh, tidy),
    "snapshot": (be_about_to_shelve, snapshot),
}
STEPS = {
    "forget": 2,
    "sweep": 19,
    "sweep what was forgotten": 89,
    "sweep what git packed": 61,
    "sweep briefly": 17,
    "tidy": 97,
    "snapshot": 19,
}
"""How many writes the ordinary run passes over; the long one none."""


def sample(**steps: int) -> pytest.MarkDecorator:
    """Let a test have some of the acts in the ordinary run, and all of them in the long one."""
    return pytest.mark.parametrize(
        ("act", "step"),
        [
            *(pytest.param(act, step, id=f"{act}, some") for act, step in steps.items()),
            *(pytest.param(act, 1, id=act, marks=pytest.mark.slow) for act in ACTS),
        ],
    )


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)


@pytest.fixture
def told(worktree: Path, tmp_path: Path) -> Told:
    """A story that was told and saved."""
    return Told(worktree, tmp_path / "store", tmp_path / "saved")


def do(told: Told, act: Act) -> object:
    """Do something to a store, as a new process would."""
    with told.open() as shadow:
        return act(shadow)


def temporaries(told: Told) -> list[str]:
    """Name the files that nobody finished."""
    return [name for name in leftovers(told.store) if "tmp" in name]


def prepare(told: Told, act: str) -> Act:
    """Have the store as it is to be before the act, for ever."""
    first, then = ACTS[act]
    first(told)
    told.save()
    return then


def check(told: Told) -> None:
    """Check what is left, and that another sweep does the rest."""
    with told.open() as shadow:
        if all(message.id != "last" for message in shadow.messages()):
            # What was edited and not recorded would be in the way of a revert.
            snapshot(shadow)
    told.check(most=1)
    do(told, sweep)
    told.check_store()
    with told.open() as shadow:
        assert shadow.forget(keep_last=4).removed == 0


def test_each_act_does_all_that_it_is_about(told: Told) -> None:
    """What is swept over here has these writes; or else the sweeps would prove nothing."""
    acts: set[str] = set()

    def note(act: str, path: str) -> None:
        acts.add(f"{act} {Path(path).suffix}" if act in ("unlink", "rename") else act)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faultpoint, "before_write", note)
        do(told, sweep)

    assert acts >= {"commit", "compact", "forget", "rename .pack", "unlink .pack", "unlink .idx"}
    assert len(list_packs(told)) >= 2


def test_a_brief_sweep_leaves_fresh_what_it_is_about(told: Told) -> None:
    """Or else the kills would not hit what puts it together."""
    leave_little_fresh(told)
    with told.open() as shadow:
        before = fresh_packs(shadow)
        sweep_briefly(shadow)
        after = fresh_packs(shadow)

    # Beside what was fresh there are the commits that keep what is left.
    assert len(before) == len(after) == 1
    assert after.isdisjoint(before)


def fresh_packs(shadow: Shadow) -> set[str]:
    with shadow._gate.locked() as opened:
        return set(opened.journal.fresh_packs())


@sample(**STEPS)
def test_it_can_be_killed_at_every_write(told: Told, act: str, step: int) -> None:
    then = prepare(told, act)

    kills = sweep_kills(
        told.put_back, lambda: do(told, then), lambda: check(told), first=step // 2 + 1, step=step
    )

    assert kills * step >= (2 if act == "forget" else 20)
    told.put_back()
    do(told, then)
    told.check_restores()


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_it_can_be_killed_at_every_call(told: Told, act: str) -> None:
    """Inside a write too."""
    then = prepare(told, act)

    sweep_kills(told.put_back, lambda: do(told, then), told.check, at_calls=True)


@pytest.mark.parametrize(
    "first", [90, *(pytest.param(first, marks=pytest.mark.slow) for first in (20, 40, 70, 110, 130))]
)
def test_a_sweep_that_was_killed_can_be_killed_again_while_it_is_finished(told: Told, first: int) -> None:
    def begin() -> None:
        told.put_back()
        for number in (first, first // 2):
            in_child(lambda number=number: do(told, partial(die_at, number)))  # type: ignore[misc]

    sweep_kills(begin, lambda: do(told, sweep), told.check, first=first // 3, step=60)


def die_at(number: int, shadow: Shadow) -> None:
    """Sweep, and be killed at a write."""
    writes = count(1)

    def die(act: str, path: str) -> None:
        if next(writes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoint.before_write = die
    sweep(shadow)


# Disks that are full or fail


@pytest.mark.parametrize(
    ("code", "forever"),
    [
        pytest.param(errno.ENOSPC, False, id="full once", marks=pytest.mark.slow),
        pytest.param(errno.EIO, False, id="broken once"),
        pytest.param(errno.ENOSPC, True, id="full from then on"),
        pytest.param(errno.EROFS, True, id="read-only from then on", marks=pytest.mark.slow),
    ],
)
@sample(**{"sweep": 47, "sweep briefly": 29, "tidy": 131})
def test_it_can_fail_at_every_write(told: Told, act: str, step: int, code: int, forever: bool) -> None:
    then = prepare(told, act)
    expected = OutOfSpace if code == errno.ENOSPC else StoreFailed

    def check_told(outcome: object) -> None:
        if isinstance(outcome, Exception):
            assert type(outcome) is expected, repr(outcome)
        if code == errno.ENOSPC:
            assert temporaries(told) == [], "they would take the room that is missing"
        check(told)

    failures = sweep_errors(
        told.put_back,
        lambda: do(told, then),
        check_told,
        partial(Faults, code=code, forever=forever),
        step=step,
    )

    assert failures >= 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_an_open_shadow_works_on_after_a_failure_at_any_write(told: Told, code: int) -> None:
    """What it keeps in memory must not be ahead of the disk."""
    numbers = count(len(told.trees))
    with told.open() as shadow:

        def check_open(outcome: object) -> None:
            assert not isinstance(outcome, Exception) or isinstance(outcome, OutOfSpace | StoreFailed)
            id = told.tell(shadow, next(numbers))
            told.check_revert(shadow, id)
            told.check_store()

        for number in range(1, 240, 47):
            sweep_once(shadow, number, code, check_open)
            sweep(shadow)
            told.check_store()
    told.check_restores()


def sweep_once(shadow: Shadow, number: int, code: int, check: Callable[[object], None]) -> None:
    """Fail a sweep at one of its writes."""
    with Faults(number, code):
        try:
            outcome: object = sweep(shadow)
        except ShadowError as error:
            outcome = error
    check(outcome)


@pytest.mark.parametrize("act", ["sweep", pytest.param("tidy", marks=pytest.mark.slow)])
def test_a_disk_that_is_really_full_loses_nothing(worktree: Path, tmp_path: Path, act: str) -> None:
    """Ballast leaves a little more room each time, from none to enough; also for SQLite."""
    with mounted_tmpfs(tmp_path / "small", "size=4M") as small:
        told = Told(worktree, small / "store", tmp_path / "saved")
        then = prepare(told, act)
        ballast = small / "ballast"
        failures = 0
        for free in range(0, 1 << 20, 49_152):
            told.put_back()
            ballast.write_bytes(bytes(free_on(small) - free))
            ended = in_child(lambda: do(told, then))
            assert ended.signal is None
            ballast.unlink()
            is_done = not isinstance(ended.result, Raised)
            if not is_done:
                failures += 1
                assert ended.result.names[0] in ("OutOfSpace", "StoreFailed"), ended.last_words
            check(told)
            if is_done and free > 200_000:
                break

    assert failures >= 1


def free_on(place: Path) -> int:
    figures = os.statvfs(place)
    return figures.f_bavail * figures.f_frsize


# Ctrl-C


@sample(sweep=37, tidy=131)
def test_it_can_be_interrupted_at_every_write(told: Told, act: str, step: int) -> None:
    """In the same process, by the signal itself; the shadow is then used on."""
    then = prepare(told, act)
    for number in count(step // 3 + 1, step):
        told.put_back()
        with told.open() as shadow:
            is_hit = interrupt(shadow, then, number)
            shadow.status()
            assert temporaries(told) == []
        check(told)
        if not is_hit:
            break

    assert number > step


def interrupt(shadow: Shadow, act: Act, number: int) -> bool:
    """Press Ctrl-C at one of the writes of an act; tell whether there were so many."""
    writes = count(1)
    hits: list[str] = []

    def press(act: str, path: str) -> None:
        if next(writes) == number:
            hits.append(f"{act} {path}")
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faultpoint, "before_write", press)
        try:
            act(shadow)
        except KeyboardInterrupt:
            assert hits
    return bool(hits)
