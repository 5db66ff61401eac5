"""One engine for sweeps: every scene is hit by every fault, at one of its points after another.

`tox -e sweep` kills at every write and makes every call fail with EIO. Of the other faults it hits one point
in two, three or nine (`Fault.every`), and with only one of the errors other than EIO and a full disk. The
ordinary run takes a fifth of the writes of each scene, ten at most, and hits each with one fault, every
second time a kill. Which points and which faults depends on the commit. The turn is printed at the end of a
run and with each failure; `SHADOWTREE_SWEEP_TURN` repeats it.
"""

from __future__ import annotations

import errno
import os
import signal
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from shadowtree import Locked, Shadow, ShadowError, StoreFailed
from tests.support.processes import in_child
from tests.support.referee import git
from tests.support.sweeps import Faults, armed, at_write, kill_at, noting
from tests.support.turns import this_turn

EVERY = 5
MOST = 10
"""The ordinary run takes one write in `EVERY`, and at most `MOST` of a scene."""


class Scene(ABC):
    """An act that is about to be done to a worktree, and can be repeated."""

    worktree: Path
    store: Path
    least = 4
    """The least number of writes, without which a sweep proves nothing."""
    spared: frozenset[str] = frozenset()
    """Faults that make no sense here."""
    is_half_recovered = False
    """A kill may leave a ref to an object that is only in a row of the timeline, and in no pack yet."""

    @abstractmethod
    def prepare(self) -> None:
        """Restore everything as it was before the act."""

    @abstractmethod
    def act(self) -> object:
        """Do the act, as a new process would."""

    @abstractmethod
    def check(self, hit: Hit) -> None:
        """Check the state after a fault: the act is done or not, and the next command works without help."""

    def be_brief(self) -> None:  # noqa: B027  # most scenes have nothing to leave out
        """Leave out checks that cost too much if few points are hit; which ones depends on the commit."""

    def measure(self, fault: Fault) -> int:
        """Count the points of a scene for a fault; each kind of point is counted once."""
        if fault.count not in self._measured:
            self.prepare()
            self._measured[fault.count] = fault.count(self)
        return self._measured[fault.count]

    def __init__(self) -> None:
        self._measured: dict[Callable[[Scene], int], int] = {}


@dataclass(frozen=True)
class Hit:
    """A fault that struck, and the result of the act."""

    fault: str
    at: str
    """The write, the call or the bit."""
    outcome: object = None
    """What the act returned or raised; None if it was killed."""

    @property
    def is_kill(self) -> bool:
        """Whether the process was killed."""
        return self.fault.startswith("kill") or self.fault == "git gc"

    @property
    def error(self) -> BaseException | None:
        """What the act raised."""
        return self.outcome if isinstance(self.outcome, BaseException) else None

    @property
    def stays(self) -> bool:
        """Whether the disk failed until the end of the act."""
        return self.fault.endswith("from then on")

    @property
    def is_reading(self) -> bool:
        """Whether reading the worktree failed."""
        return "while it reads" in self.fault

    @property
    def is_full(self) -> bool:
        """Whether the disk was full."""
        return self.fault.startswith(("ENOSPC", "EDQUOT"))


@dataclass(frozen=True)
class Fault:
    """What can happen at a point of a scene."""

    name: str
    count: Callable[[Scene], int]
    """Counts the points of a scene, mostly by doing the act once without a fault."""
    strike: Callable[[Scene, int], Hit]
    every: int = 1
    """A sweep hits one point in `every`, others with another turn."""


# Points


def count_writes(scene: Scene) -> int:
    """Count the writes that are announced to the fault point."""
    writes = count()
    with armed(lambda act, path: (next(writes), None)[1]):
        scene.act()
    return next(writes)


def count_calls(scene: Scene) -> int:
    """Count the mutating calls to the operating system."""
    with Faults(0, 0) as faults:
        scene.act()
    return faults.calls


def count_reads(scene: Scene) -> int:
    """Count the calls that read the worktree."""
    with Faults(0, 0, reading=True) as faults:
        scene.act()
    return faults.calls


def count_rows(scene: Scene) -> int:
    """Count the writes to the timeline."""
    rows = count()
    with armed(lambda act, path: (path.endswith("timeline.db") and next(rows), None)[1]):
        scene.act()
    return next(rows)


FLIPS_A_FILE = 8


def _files(scene: Scene) -> list[Path]:
    found = [path for path in scene.store.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(found) if scene.store.exists() else []


def count_flips(scene: Scene) -> int:
    """Count the bits to flip: a few in every file of the store."""
    return FLIPS_A_FILE * len(_files(scene))


# Faults


def kill(name: str, scene: Scene, number: int, *, at_calls: bool = False) -> Hit:
    """Kill -9."""
    ended = kill_at(scene.act, number, at_calls=at_calls)
    if ended.signal is None:
        return Hit("none", "its end", ended.value())
    assert ended.signal == signal.SIGKILL
    return Hit(name, ended.last_words)


def kill_and_collect(name: str, scene: Scene, number: int) -> Hit:
    """Kill -9, and have real git remove what looks like garbage before anything can recover."""
    hit = kill(name, scene, number)
    if scene.store.exists():
        try:
            git("--git-dir", scene.store, "gc", "--quiet", "--prune=now")
        except AssertionError as error:
            # git refuses to begin, and so removes nothing.
            if not scene.is_half_recovered or "does not point to a valid object" not in str(error):
                raise
    # Files that git made have other modes than ours, even if the act was done before.
    return Hit(name, hit.at, hit.outcome)


def fail(
    name: str, scene: Scene, number: int, *, code: int, forever: bool = False, reading: bool = False
) -> Hit:
    """Make a call to the operating system fail."""
    with Faults(number, code, forever=forever, reading=reading) as faults:
        outcome = _outcome_of(scene.act)
    if not faults.hits:
        assert not isinstance(outcome, BaseException), repr(outcome)
        return Hit("none", "its end", outcome)
    return Hit(name, faults.hits[0], outcome)


def fail_timeline(name: str, scene: Scene, number: int, *, forever: bool = False) -> Hit:
    """Make SQLite report a bad disk: its own calls cannot be made to fail one by one."""
    rows, hits = count(1), list[str]()

    def before_write(act: str, path: str) -> None:
        if path.endswith("timeline.db"):
            row = next(rows)
            if row == number or (forever and row > number):
                hits.append(act)
                raise StoreFailed(path, "disk I/O error")

    with armed(before_write):
        outcome = _outcome_of(scene.act)
    return Hit(name, hits[0], outcome) if hits else Hit("none", "its end", outcome)


def interrupt(name: str, scene: Scene, number: int) -> Hit:
    """Press Ctrl-C."""
    hits: list[str] = []

    def press(act: str, path: str) -> None:
        hits.append(f"{act} {path}")
        os.kill(os.getpid(), signal.SIGINT)

    with armed(at_write(number, press)):
        outcome = _outcome_of(scene.act)
    return Hit(name, hits[0], outcome) if hits else Hit("none", "its end", outcome)


def visit(name: str, scene: Scene, number: int) -> Hit:
    """Have another process read and take a snapshot: it succeeds, or finds the store locked."""
    visits: list[str] = []

    def come() -> None:
        settings = {"min_free": 0, "lock_timeout": 0}
        with Shadow(scene.worktree, store=scene.store, settings=settings) as other:
            for look in (other.messages, other.track) if other.is_wrapped else (other.track,):
                try:
                    look()
                except Locked:
                    continue

    def let_come(act: str, path: str) -> None:
        visits.append(f"{act} {path}")
        with armed(lambda act, path: None):
            in_child(come).value()

    with armed(at_write(number, let_come)):
        outcome = _outcome_of(scene.act)
    assert not isinstance(outcome, BaseException), repr(outcome)
    return Hit(name, visits[0] if visits else "its end", outcome)


def flip(name: str, scene: Scene, number: int) -> Hit:
    """Flip one bit of the store before the act."""
    file, place = divmod(number - 1, FLIPS_A_FILE)
    path = _files(scene)[file]
    content = bytearray(path.read_bytes())
    # Steps by a large prime number: different places in each file, spread all over it.
    at = (place * len(content) // FLIPS_A_FILE + 7919 * file) % len(content)
    content[at] ^= 1 << (place + file) % 8
    mode = path.stat().st_mode
    path.write_bytes(content)
    path.chmod(mode)
    where = f"bit {(place + file) % 8} of byte {at} of {path.relative_to(scene.store)}"
    return Hit(name, where, _outcome_of(scene.act))


def _outcome_of(act: Callable[[], object]) -> object:
    try:
        return act()
    except (ShadowError, KeyboardInterrupt) as error:
        return error


def _fault(
    name: str, counts: Callable[[Scene], int], strike: Callable[..., Hit], every: int = 1, **more: object
) -> Fault:
    return Fault(name, counts, partial(strike, name, **more), every)


def _one_of(name: str, faults: Sequence[Fault], every: int = 1) -> Fault:
    """Hit a point with one of several faults, another one with each turn."""

    def strike(scene: Scene, number: int) -> Hit:
        return faults[(number // every + this_turn() // every) % len(faults)].strike(scene, number)

    return Fault(name, faults[0].count, strike, every)


KILL = _fault("kill", count_writes, kill)
OFTEN = [
    _fault("EIO", count_calls, fail, code=errno.EIO),
    _fault("ENOSPC, from then on", count_calls, fail, every=2, code=errno.ENOSPC, forever=True),
    _fault("a bad timeline", count_rows, fail_timeline),
    _fault("Ctrl-C", count_writes, interrupt, every=3),
    _fault("second process", count_writes, visit, every=3),
    _fault("git gc", count_writes, kill_and_collect, every=3),
    _fault("bit flip", count_flips, flip, every=2),
]
"""The faults of the ordinary run, in addition to kills."""
HOW_LONG = {"": False, ", from then on": True}
RARELY = [
    _fault("kill inside a write", count_calls, kill, every=3, at_calls=True),
    _fault("a bad timeline, from then on", count_rows, fail_timeline, forever=True),
    _one_of(
        "another error",
        [
            _fault("ENOSPC", count_calls, fail, code=errno.ENOSPC),
            _fault("EIO, from then on", count_calls, fail, code=errno.EIO, forever=True),
        ]
        + [
            _fault(f"{errno.errorcode[code]}{how}", count_calls, fail, code=code, forever=forever)
            for code in (errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EMFILE)
            for how, forever in HOW_LONG.items()
        ],
        every=3,
    ),
    _one_of(
        "an error while it reads",
        [
            _fault(
                f"{errno.errorcode[code]} while it reads{how}",
                count_reads,
                fail,
                code=code,
                forever=forever,
                reading=True,
            )
            for code in (errno.EIO, errno.EACCES, errno.EMFILE)
            for how, forever in HOW_LONG.items()
        ],
        every=9,
    ),
]
"""The faults that only `tox -e sweep` tries."""
FAULTS = {fault.name: fault for fault in (KILL, *OFTEN, *RARELY)}


# Sweeps


def choose_points(scene: Scene, name: str) -> Iterator[tuple[Fault, int]]:
    """Choose some of the writes of a scene, and a fault for each."""
    turn = this_turn() + zlib.crc32(name.encode())
    writes = scene.measure(KILL)
    every = max(EVERY, -(-writes // MOST))
    others = turn // every
    faults = [fault for other in OFTEN for fault in (KILL, other) if fault.name not in scene.spared]
    for place, number in enumerate(range(1 + turn % every, writes + 1, every)):
        fault = faults[(place + others) % len(faults)]
        points = scene.measure(fault)
        if points:
            yield fault, 1 + ((number - 1) * points // writes + turn * (points != writes)) % points


def sweep_some(scene: Scene, name: str) -> None:
    """Hit some of the points of a scene."""
    scene.be_brief()
    for fault, number in choose_points(scene, name):
        with noting(f"SHADOWTREE_SWEEP_TURN={this_turn()}"):
            strike(scene, fault, number)
    _finish(scene)


def sweep_all(scene: Scene, fault: Fault) -> None:
    """Hit every point of a scene with one fault, or one in `fault.every`."""
    for number in range(1 + this_turn() % fault.every, scene.measure(fault) + 1, fault.every):
        strike(scene, fault, number)
    _finish(scene)


def strike(scene: Scene, fault: Fault, number: int) -> None:
    """Do the act of a scene with a fault at one point, and check the state that it left."""
    with noting(f"{fault.name}, point {number}"):
        scene.prepare()
        hit = fault.strike(scene, number)
        with noting(f"it struck at: {hit.at}; the act came to {hit.outcome!r}"):
            scene.check(hit)


def _finish(scene: Scene) -> None:
    assert scene.measure(KILL) >= scene.least
    scene.prepare()
    scene.check(Hit("none", "its end", scene.act()))
