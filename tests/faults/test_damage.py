"""Every file of a store in turn flipped by one bit, cut short, emptied, removed.

It is found by a check or by the command that needs it; nobody gets wrong bytes, other messages still revert,
and what the worktree still has is healed.
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
"""Files of which only git makes use, and only if it serves others; and who last held the lock."""
MAY_BE_MISSING = ("cache.db", "packed-refs", "objects/info/commit-graph")
"""Files that may be removed at any time."""
ANSWERS: dict[str, tuple[type[ShadowError], ...]] = {
    # A row is looked for in an index of SQLite, which only a check compares with the rows; and the number of
    # the format may be what is damaged, which a repair mends.
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
    """Check all that must be true after one damage."""
    if not damage(sample, name, what, flips):
        return
    with sample.open() as shadow:
        found = shadow.check(read_data=True)
    allowed = ANSWERS.get(name, (StoreDamaged,))
    hurt = {message.id for message in found.hurt}
    for number in numbers:
        is_right = assert_right_or_refused(sample, number, allowed)
        assert is_right or IDS[number] in hurt or is_of_all(found) or name in ANSWERS
    assert is_found(found, name, what) or is_padding(sample, name, what) or keeps_nothing(sample, name)

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
    """Tell whether a problem is one of the whole store."""
    return any(problem.kind in ("identity", "timeline") for problem in report.problems)


def is_found(report: CheckReport, name: str, what: str) -> bool:
    """Tell whether a check found a damage, or nobody could notice any difference."""
    if report.problems or report.harmless:
        return True
    if name in NOBODY_READS or (what in ("remove", "empty") and name in MAY_BE_MISSING):
        return True
    # The ref has a file of its own, before which git does not look here.
    if name == "packed-refs" and what.startswith("flip"):
        return True
    # The line break at its end; and what SQLite does not use of a page, or a letter of a text.
    is_line_break = what == "cut end" and name in ("config", "refs/heads/shadowtree", "shadowtree.json")
    return is_line_break or (what.startswith("flip") and name.endswith((".db", ".json")))


def keeps_nothing(sample: Sample, name: str) -> bool:
    """Tell whether it is the `.keep` of a pack whose objects are loose by now."""
    return name.endswith(".keep") and not (sample.store / name).with_suffix(".pack").exists()


def is_padding(sample: Sample, name: str, what: str) -> bool:
    """Tell whether a bit flipped that fills the last byte of a deflated loose object, and means nothing."""
    is_loose = name.startswith("objects/") and len(Path(name).parts[1]) == 2
    if not is_loose or not what.startswith("flip"):
        return False
    with suppress(zlib.error):
        damaged = zlib.decompress((sample.damaged / name).read_bytes())
        return damaged == zlib.decompress((sample.store / name).read_bytes())
    return False


def kinds_of_files(sample: Sample) -> dict[str, str]:
    """Give one file of each kind: the oldest pack, the newest one, one loose object and so on."""
    found: dict[str, str] = {}
    for name in sample.files():
        path = Path(name)
        is_loose = path.parts[0] == "objects" and len(path.parts[1]) == 2
        kind = "loose" if is_loose else path.suffix if path.parts[:2] == ("objects", "pack") else name
        found.setdefault(kind, name)
    return found


@pytest.mark.parametrize("what", ["truncate", "remove", "flip 0.333", "flip 0.667"])
def test_one_file_of_each_kind(sample: Sample, what: str) -> None:
    """In each run every third of them."""
    names = list(kinds_of_files(sample).values())
    for number, name in list(enumerate(names))[this_turn() % 3 :: 3]:
        assert_survived(sample, name, what, 4, [number % MESSAGES])


def choose_used(chance: random.Random, content: bytes) -> int:
    """Choose a byte that is not among many zeros: most of those are room that SQLite does not use yet.

    By chance alone, not from a list: packs in the timeline are not deflated to the very same bytes each time.
    """
    at = chance.randrange(len(content))
    while not content[max(0, at - 3) : at + 4].strip(b"\0"):
        at = chance.randrange(len(content))
    return at


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))])
def test_a_bit_that_flips_in_the_timeline_is_found_or_means_nothing(sample: Sample, seed: int) -> None:
    """SQLite reads most of them without complaint, and finds no fault."""
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
