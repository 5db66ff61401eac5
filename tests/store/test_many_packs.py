"""Many packs: an object is found by few looks, however many packs and shelves there are."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree.store.delta_packs import LONGEST_FAMILY, write_family
from shadowtree.store.objects import Objects
from shadowtree.store.packs import Pack
from tests.support.referee import git
from tests.support.stories import lines

FRESH = 60
SHELVES = 10
VERSIONS = 30


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Objects, dict[bytes, bytes]]]:
    """A store with many fresh packs, and shelves on which versions stand behind each other; and its blobs."""
    git("init", "--quiet", "--bare", tmp_path / "repository")
    objects = Objects(str(tmp_path / "repository" / "objects"))
    blobs: dict[bytes, bytes] = {}
    for number in range(SHELVES):
        store(objects, blobs, [lines(f"shelf {number}", version) for version in range(VERSIONS)])
    for pack in list(objects.packs()):
        family = pack.ids()
        writer = objects.start_pack()
        write_family(family, writer, objects)
        writer.finish()
        os.unlink(pack.path)
        os.unlink(pack.path.removesuffix(".pack") + ".idx")
    for number in range(FRESH):
        store(objects, blobs, [b"fresh %d %d" % (number, each) for each in range(3)])
    objects.close()
    again = Objects(str(tmp_path / "repository" / "objects"))
    again.refresh()
    yield again, blobs
    again.close()
    git("--git-dir", tmp_path / "repository", "fsck", "--full", "--strict")


def store(objects: Objects, blobs: dict[bytes, bytes], contents: list[bytes]) -> None:
    """Store blobs in a pack of their own."""
    writer = objects.start_pack()
    for content in contents:
        blobs[objects.put(writer, b"blob", content)] = content
    objects.publish(writer)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often an index is asked, and a pack read, and its files opened."""
    counted: Counter[str] = Counter()
    for name in ("find", "_pread", "_open"):
        monkeypatch.setattr(Pack, name, _counting(counted, name))
    return counted


def _counting(counted: Counter[str], name: str) -> Callable[..., object]:
    original = getattr(Pack, name)

    def call(self: Pack, *arguments: object) -> object:
        counted[name] += 1
        return original(self, *arguments)

    return call


def test_an_object_is_read_by_few_looks_among_many_packs(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    objects, blobs = stored
    assert len(objects.packs()) == FRESH + SHELVES
    ids = list(blobs)
    random.Random(1).shuffle(ids)

    for id in ids:
        looks.clear()
        assert objects.read(b"blob", id) == blobs[id]
        assert looks["find"] <= FRESH + SHELVES
        assert looks["_pread"] <= 2 * LONGEST_FAMILY
        assert looks["_open"] == 0, "nothing is opened that was opened before"


def test_versions_that_are_read_one_after_the_other_are_put_together_once(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    """Not each from the head of its family: that would be quadratic."""
    objects, blobs = stored
    shelf = next(pack for pack in objects.packs() if pack.count == VERSIONS)
    for id, _, _ in shelf.entries():
        assert objects.read(b"blob", id) == blobs[id]

    assert looks["_pread"] <= 5 * VERSIONS


def test_what_is_new_is_told_without_asking_any_pack(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    objects, _ = stored
    objects.has(bytes(20))
    looks.clear()

    assert not any(objects.has(random.Random(number).randbytes(20)) for number in range(100))
    assert looks == Counter()
