"""Every file of a store in turn: a bit flipped, cut short, emptied, removed.

A check or the command that needs the file finds the damage; no command returns wrong bytes, other messages
can still be reverted, and contents that the worktree still has are repaired.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shadowtree import CheckReport, InvalidInput, ShadowError, StoreDamaged, UnknownMessage
from shadowtree.base.errors import StoreTooNew, StoreTooOld
from tests.support.damage import (
    IDS,
    MESSAGES,
    SETTINGS,
    Sample,
    assert_right_or_refused,
    damages,
    make_sample,
)
from tests.support.turns import this_turn

NOBODY_READS = ("lock", "info/refs", "objects/info/packs")
"""Files that only git uses, to serve others; and the one with the last lock holder."""
MAY_BE_MISSING = ("cache.db", "packed-refs", "objects/info/commit-graph")
"""Files that may be removed at any time."""
ANSWERS: dict[str, tuple[type[ShadowError], ...]] = {
    # SQLite finds rows by an index, which only a check compares with the rows; and the number of the format
    # may be damaged, which a repair fixes.
    "timeline.db": (StoreDamaged, StoreTooNew, StoreTooOld, UnknownMessage, InvalidInput),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """One store for all cases, which damage copies of it."""
    root = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(root))
        patch.setenv("SHADOWTREE_HOME", str(root / "stores"))
        yield make_sample(root)
    shutil.rmtree(root, ignore_errors=True)


def damage(sample: Sample, name: str, what: str, flips: int) -> bool:
    """Damage one file of a fresh copy; False if that cannot be done to it."""
    sample.reset()
    path = sample.damaged / name
    if not path.stat().st_size and what != "remove":
        return False
    dict(damages(flips))[what](path)
    return True


def assert_survived(sample: Sample, name: str, what: str, flips: int, numbers: list[int]) -> None:
    """Check everything that must hold after one damage."""
    if not damage(sample, name, what, flips):
        return
    with sample.open() as shadow:
        found = shadow.check(read_data=True)
    allowed = ANSWERS.get(name, (StoreDamaged,))
    hurt = {message.id for message in found.hurt}
    for number in numbers:
        is_right = assert_right_or_refused(sample, number, allowed)
        assert is_right or IDS[number] in hurt or is_of_all(found) or name in ANSWERS
    means_nothing = is_padding(sample, name, what) or keeps_nothing(sample, name) or is_copy(sample, name)
    assert is_found(found, name, what) or means_nothing

    damage(sample, name, what, flips)
    with sample.open() as shadow:
        after = shadow.repair()
        with suppress(*allowed):
            shadow.track()
        again = shadow.check(read_data=True)
    still_hurt = {message.id for message in again.hurt}
    assert {message.id for message in after.hurt} >= still_hurt
    assert still_hurt <= hurt
    for number in numbers:
        is_right = assert_right_or_refused(sample, number, allowed)
        assert is_right or IDS[number] in still_hurt or is_of_all(again) or name in ANSWERS
    if again.ok:
        fsck = ["git", "--git-dir", str(sample.damaged), "fsck", "--full", "--strict", "--no-dangling"]
        assert subprocess.run(fsck, capture_output=True, check=False).returncode == 0


def is_of_all(report: CheckReport) -> bool:
    """Return whether a problem concerns the whole store."""
    return any(problem.kind in ("identity", "timeline") for problem in report.problems)


def is_found(report: CheckReport, name: str, what: str) -> bool:
    """Return whether a check found the damage, or the damage makes no difference."""
    if report.problems or report.harmless:
        return True
    if name in NOBODY_READS or (what in ("remove", "empty") and name in MAY_BE_MISSING):
        return True
    # The ref has a file of its own, which git reads first.
    if name == "packed-refs" and what.startswith("flip"):
        return True
    # The line break at the end; and unused bytes of an SQLite page, or a letter of a text.
    is_line_break = what == "cut end" and name in ("config", "refs/heads/shadowtree", "shadowtree.json")
    return is_line_break or (what.startswith("flip") and name.endswith((".db", ".json")))


def keeps_nothing(sample: Sample, name: str) -> bool:
    """Return whether a file is the `.keep` of a pack whose objects are loose by now."""
    return name.endswith(".keep") and not (sample.store / name).with_suffix(".pack").exists()


def is_copy(sample: Sample, name: str) -> bool:
    """Return whether a file was a loose object that is in a pack too, and is gone."""
    path = Path(name)
    if path.parts[0] != "objects" or len(path.parts[1]) != 2 or (sample.damaged / name).exists():
        return False
    command = ["git", "--git-dir", str(sample.damaged), "cat-file", "-e", path.parts[1] + path.parts[2]]
    return subprocess.run(command, check=False).returncode == 0


def is_padding(sample: Sample, name: str, what: str) -> bool:
    """Return whether only a padding bit in a deflated loose object flipped, which makes no difference."""
    is_loose = name.startswith("objects/") and len(Path(name).parts[1]) == 2
    if not is_loose or not what.startswith("flip"):
        return False
    with suppress(zlib.error):
        damaged = zlib.decompress((sample.damaged / name).read_bytes())
        return damaged == zlib.decompress((sample.store / name).read_bytes())
    return False


def kinds_of_files(sample: Sample) -> dict[str, str]:
    """Return one file of each kind: a pack, an index, one loose object and so on."""
    found: dict[str, str] = {}
    for name in sample.files():
        path = Path(name)
        is_loose = path.parts[0] == "objects" and len(path.parts[1]) == 2
        kind = "loose" if is_loose else path.suffix if path.parts[:2] == ("objects", "pack") else name
        found.setdefault(kind, name)
    return found


@pytest.mark.parametrize("what", ["truncate", "remove", "flip 0.333", "flip 0.667"])
def test_one_file_of_each_kind(sample: Sample, what: str) -> None:
    """Each run takes one in three."""
    names = list(kinds_of_files(sample).values())
    for number, name in list(enumerate(names))[this_turn() % 3 :: 3]:
        assert_survived(sample, name, what, 4, [number % MESSAGES])


def choose_used(chance: random.Random, content: bytes) -> int:
    """Choose a byte that is not among many zeros, which are mostly room that SQLite does not use yet.

    It is drawn at random, not from a list, because packs in the timeline are not deflated to the same bytes
    each time.
    """
    at = chance.randrange(len(content))
    while not content[max(0, at - 3) : at + 4].strip(b"\0"):
        at = chance.randrange(len(content))
    return at


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))])
def test_a_bit_that_flips_in_the_timeline_is_found_or_means_nothing(sample: Sample, seed: int) -> None:
    """SQLite reads most flipped bits without complaint, and finds no fault."""
    chance = random.Random(seed)
    sample.reset()
    with sample.open() as shadow:
        told = [message.to_dict() for message in shadow.messages()]
    content = (sample.store / "timeline.db").read_bytes()
    for _ in range(20 if seed else 8):
        sample.reset()
        damaged = bytearray(content)
        at, bit, number = choose_used(chance, content), chance.randrange(8), chance.randrange(MESSAGES)
        print(f"seed {seed}: bit {bit} of byte {at}, then message {number} is reverted")  # noqa: T201 - to repeat it
        damaged[at] ^= 1 << bit
        (sample.damaged / "timeline.db").write_bytes(damaged)
        with sample.open() as shadow:
            is_found = not shadow.check().ok
        is_right = assert_right_or_refused(sample, number, ANSWERS["timeline.db"])
        if not is_found:
            assert is_right
            with sample.open() as shadow:
                assert [message.to_dict() for message in shadow.messages()] == told


@pytest.mark.slow
@pytest.mark.parametrize("what", [name for name, _ in damages(24)])
def test_every_file(sample: Sample, what: str) -> None:
    for name in sample.files():
        assert_survived(sample, name, what, 24, list(range(MESSAGES)))


def test_the_sample_is_sound(sample: Sample) -> None:
    sample.reset()

    with sample.open() as shadow:
        report = shadow.check(read_data=True)

    assert report.problems == report.harmless == []
    assert [message.id for message in shadow.messages()] == IDS
    assert SETTINGS["min_free"] == 0
