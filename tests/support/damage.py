"""A store with something of everything, to be damaged file by file, and what must hold afterwards.

Each message changes paths of its own, so each can be taken out by itself with a known result: `m3` adds
`added/3`, changes `changed/3` and deletes `deleted/3`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from shadowtree import Shadow, ShadowError
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits
from tests.support.limits import LARGE_PACKS
from tests.support.referee import git

MESSAGES = 8
IDS = [f"m{number}" for number in range(MESSAGES)]
LARGE = 300_000
"""More than a journaled pack holds."""
SETTINGS = {"min_free": 0, "lock_timeout": 5}


def before(number: int) -> dict[str, bytes]:
    """Return what a message found at its paths."""
    return {f"changed/{number}": b"old %d\n" % number * 30, f"deleted/{number}": b"gone %d\n" % number}


def after(number: int) -> dict[str, bytes]:
    """Return what a message left at its paths."""
    content = random.Random(number).randbytes(LARGE) if number == 5 else b"new %d\n" % number * 30
    return {f"changed/{number}": content, f"added/{number}": b"added %d\n" % number}


@dataclass
class Sample:
    """A store with eight messages in packs of all sorts, and its worktree."""

    worktree: Path
    store: Path
    damaged: Path
    """Where a copy of the store is damaged."""

    def files(self) -> list[str]:
        """List every file of the store."""
        found = (path for path in sorted(self.store.rglob("*")) if path.is_file())
        return [path.relative_to(self.store).as_posix() for path in found]

    def reset(self) -> None:
        """Make the worktree as the last message left it, and the damaged copy equal to the store again."""
        expected = self.expect()
        if read_paths(self.worktree) != expected:
            for path in self.worktree.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_paths(self.worktree, expected)
        shutil.rmtree(self.damaged, ignore_errors=True)
        shutil.copytree(self.store, self.damaged)

    def open(self) -> Shadow:
        """Open the damaged copy."""
        return Shadow(self.worktree, store=self.damaged, settings=SETTINGS)

    def expect(self, *taken_out: int) -> dict[str, bytes]:
        """Return what the worktree holds with some messages taken out."""
        paths: dict[str, bytes] = {"same": b"nobody changes it\n"}
        for number in range(MESSAGES):
            paths |= before(number) if number in taken_out else after(number)
        return paths


def make_sample(root: Path) -> Sample:
    """Record eight messages, the last three in journaled packs.

    The clock is a counter, so that the timeline has the same bytes each time and a flip can be repeated.
    """
    ticks = count(1_800_000_000_000_000_000, 1_000_000_000)
    worktree, store = root / "sample", root / "sample-store"
    sample = Sample(worktree, store, root / "damaged-store")
    worktree.mkdir()
    write_paths(worktree, sample.expect(*range(MESSAGES)))
    limits = Limits(clock_ns=lambda: next(ticks))
    unjournaled = replace(limits, packs=LARGE_PACKS)
    with Shadow(worktree, store=store, settings=SETTINGS, limits=unjournaled) as shadow:
        shadow.wrap()
        _record(shadow, 0)
        _record(shadow, 1)
        git("--git-dir", store, "gc", "--quiet", "--prune=now", "--aggressive")
        known = set(packs_of(store))
        _record(shadow, 2)
        _unpack(store, set(packs_of(store)) - known, root / "unpacked")
        _record(shadow, 3)
        # This moves fresh packs into parts, where older versions are deltas.
        assert shadow.tidy(60)
        _record(shadow, 4)
    with Shadow(worktree, store=store, settings=SETTINGS, limits=limits) as shadow:
        for number in (5, 6, 7):
            _record(shadow, number)
    os.chmod(store / "objects", 0o700)
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return sample


def _record(shadow: Shadow, number: int) -> None:
    with shadow.message(IDS[number], text=f"message {number}"):
        for name in before(number):
            (shadow.worktree / name).unlink()
        write_paths(shadow.worktree, after(number))


def packs_of(store: Path) -> list[Path]:
    """List the packs of a store."""
    return sorted((store / "objects" / "pack").glob("pack-*.pack"))


def _unpack(store: Path, packs: set[Path], aside: Path) -> None:
    aside.mkdir()
    for pack in packs:
        moved = pack.rename(aside / pack.name)
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            subprocess.run(["git", "--git-dir", store, "unpack-objects", "-q"], stdin=file, check=True)


def write_paths(root: Path, paths: dict[str, bytes]) -> None:
    """Write files below a directory."""
    for name, content in paths.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_bytes(content)


def read_paths(root: Path) -> dict[str, bytes]:
    """Read all files below a directory."""
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


# What can happen to a file


def flip(place: float) -> Callable[[Path], None]:
    """Flip one bit, at a place between the first byte (0) and the last (1)."""

    def act(path: Path) -> None:
        content = bytearray(path.read_bytes())
        at = min(int(place * len(content)), len(content) - 1)
        content[at] ^= 1 << int(place * 1009) % 8
        path.write_bytes(content)

    return act


def truncate(path: Path) -> None:
    """Cut off the second half of a file."""
    os.truncate(path, path.stat().st_size // 2)


def cut_end(path: Path) -> None:
    """Cut the last byte off."""
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    """Make a file empty."""
    os.truncate(path, 0)


def remove(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def damages(flips: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield the damages that a file can take, with `flips` bit flips spread over it."""
    yield from {"truncate": truncate, "cut end": cut_end, "empty": empty, "remove": remove}.items()
    for number in range(flips):
        place = number / max(1, flips - 1)
        yield f"flip {place:.3f}", flip(place)


# What must be true


def assert_right_or_refused(sample: Sample, number: int, allowed: tuple[type[ShadowError], ...]) -> bool:
    """Take a message out and bring it back; return False if that was refused, and nothing was changed."""
    start, wanted = sample.expect(), sample.expect(number)
    with sample.open() as shadow:
        try:
            shadow.revert(IDS[number], only=True)
        except allowed:
            assert read_paths(sample.worktree) == start
            return False
        assert read_paths(sample.worktree) == wanted
        try:
            shadow.unrevert()
        except allowed:
            assert read_paths(sample.worktree) == wanted
            for name in wanted.keys() - start.keys():
                (sample.worktree / name).unlink()
            write_paths(sample.worktree, start)
            return False
        assert read_paths(sample.worktree) == start
    return True
