"""The packs of a store as one process sees them: others' packs too, and packs that are not recorded yet."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.git_format import PackBytes
from shadowtree.store.objects import Objects
from shadowtree.store.packs import pack as pack_module
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_set import PackSet
from shadowtree.store.packs.pack_writer import PackWriter, name_pack, remove_pack
from shadowtree.store.packs.pack_writer import write_pack as write_files
from tests.support.packs import PackStore, add, blob, content_of, flip, noise, text, write_pack

FRESH = 60
PARTS = 10
VERSIONS = 30


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "objects" / "pack"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def objects(place: Path) -> Iterator[Objects]:
    with closing(Objects(str(place.parent))) as opened:
        opened.refresh()
        yield opened


def seal(place: Path, *contents: bytes) -> PackBytes:
    writer = PackWriter(str(place))
    for content in contents:
        add(writer, content)
    sealed = writer.seal(1 << 30)
    assert sealed is not None
    return sealed


# Packs of other processes


@pytest.mark.parametrize("few", [4096, 2], ids=["small", "large"])
def test_what_another_process_stores_moves_and_removes_is_known_after_a_refresh(
    few: int, objects: Objects, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_module, "_FEW_OBJECTS", few)
    assert not objects.has(blob(b"a"))
    old = [write_pack(place, b"a", b"b", b"c"), write_pack(place, b"d", b"e", b"f")]
    ids = [blob(content) for content in (b"a", b"b", b"c", b"d", b"e", b"f")]
    objects.refresh()

    assert all(objects.has(id) for id in ids)
    write_pack(place, b"a", b"b", b"c", b"d", b"e", b"f").close()
    for pack in old:
        remove_pack(str(place), pack.name)
    objects.refresh()
    assert all(objects.has(id) for id in ids)
    for path in place.iterdir():
        path.unlink()
    objects.refresh()
    assert not any(objects.has(id) for id in ids)


def test_who_reads_needs_no_refresh_to_find_what_moved(objects: Objects, place: Path) -> None:
    old = write_pack(place, b"a")
    objects.refresh()
    write_pack(place, b"a", b"b").close()
    remove_pack(str(place), old.name)

    assert objects.read(b"blob", blob(b"b")) == b"b"
    assert objects.read(b"blob", blob(b"a")) == b"a"


def test_packs_that_vanish_while_they_are_listed_are_passed_over(
    objects: Objects, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock holder repacks, or `git gc` does, while another process reads."""
    kept, going = (write_pack(place, content).path for content in (b"kept", b"going"))
    scandir = os.scandir

    @contextmanager
    def list_too_early(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            listed = list(entries)
        for entry in listed:
            if Path(going).stem in entry.name:
                Path(entry.path).unlink(missing_ok=True)
        yield listed

    monkeypatch.setattr(os, "scandir", list_too_early)
    objects.refresh()
    stamps = objects.pack_set.stamps()

    assert {name.partition(".")[0] for name in stamps} == {Path(kept).stem}
    assert objects.has(blob(b"kept"))
    assert not objects.has(blob(b"going"))


def test_what_was_proved_is_proved_anew_when_a_pack_is_gone(objects: Objects, place: Path) -> None:
    pack = write_pack(place, b"a")
    objects.refresh()
    was_there = objects.has(blob(b"a"))
    remove_pack(str(place), pack.name)
    objects.refresh()

    assert was_there
    assert not objects.has(blob(b"a"))


def test_a_damaged_copy_is_not_taken_for_the_proved_one_that_gc_removed(
    objects: Objects, place: Path
) -> None:
    content = noise(500)
    damaged, healed = write_pack(place, content, b"other"), write_pack(place, content)
    flip(Path(damaged.path), 300)
    objects.refresh()
    was_there = objects.has(blob(content))
    remove_pack(str(place), healed.name)
    objects.pack_set.drop([healed.name])

    assert was_there
    assert not objects.has(blob(content))


def test_an_index_that_is_replaced_is_read_anew(objects: Objects, place: Path) -> None:
    """A repair made it from the pack."""
    pack = write_pack(place, b"a")
    index = Path(pack.path).with_suffix(".idx")
    sound = index.read_bytes()
    index.write_bytes(sound[:100])
    objects.refresh()
    assert not objects.has(blob(b"a"))
    index.write_bytes(sound)
    objects.refresh()

    assert objects.has(blob(b"a"))


# Packs that are not recorded yet, and packs without files


def test_a_held_pack_is_read_by_its_process_alone(objects: Objects, place: Path) -> None:
    content = seal(place, b"a")
    objects.pack_set.hold(content)
    with closing(Objects(str(place.parent))) as other:
        other.refresh()

        assert objects.read(b"blob", blob(b"a")) == b"a"
        assert objects.has(blob(b"a"))
        assert not other.has(blob(b"a"))
        assert objects.packs() == []
        assert objects.pack_set.stamps() == {}


def test_a_held_pack_goes_on_with_its_files(objects: Objects, place: Path) -> None:
    content = seal(place, b"a")
    objects.pack_set.hold(content)
    write_files(str(place), content)
    objects.pack_set.take_up(content.name)
    stamps = objects.pack_set.stamps()

    assert not objects.refresh(), "nothing came that is not known"
    assert objects.pack_set.stamps() == stamps
    assert [pack.name for pack in objects.packs()] == [content.name]
    assert objects.read(b"blob", blob(b"a")) == b"a"


def test_a_held_file_goes_on_under_its_name(objects: Objects, place: Path) -> None:
    writer = objects.start_pack()
    add(writer, noise(1000))
    held = objects.hold(writer, 0)
    assert isinstance(held, list)
    before = objects.read(b"blob", blob(noise(1000)))
    name_pack(str(place), held[0])
    objects.pack_set.take_up(held[0].name)

    assert before == objects.read(b"blob", blob(noise(1000))) == noise(1000)
    assert not objects.refresh()


def test_what_was_held_and_dropped_is_not_stored(objects: Objects, place: Path) -> None:
    objects.pack_set.hold(seal(place, b"a"))
    was_there = objects.has(blob(b"a"))
    objects.pack_set.drop_held()

    assert was_there
    assert not objects.has(blob(b"a"))
    with pytest.raises(StoreDamaged):
        objects.read(b"blob", blob(b"a"))


def test_what_has_no_whole_files_is_recalled_from_the_timeline(place: Path) -> None:
    contents = [seal(place, b"a"), seal(place, b"b")]
    with closing(Objects(str(place.parent), journaled=lambda: contents)) as objects:
        objects.refresh()

        assert objects.read(b"blob", blob(b"b")) == b"b"
        write_files(str(place), contents[0])
        os.truncate(place / f"{contents[0].name}.pack", 20)
        assert objects.read(b"blob", blob(b"a")) == b"a"
        with pytest.raises(StoreDamaged):
            objects.read(b"blob", blob(b"c"))


def test_files_of_other_sizes_are_not_those_of_a_row(place: Path) -> None:
    content = seal(place, b"a")
    write_files(str(place), content)
    known = PackSet(str(place), tuple, lambda: None)
    sizes = {"pack_size": len(content.pack), "index_size": len(content.index)}
    known.refresh()
    whole = known.has_files(content.name, **sizes)
    os.truncate(place / f"{content.name}.idx", 20)
    known.refresh()

    assert whole
    assert not known.has_files(content.name, **sizes)
    assert not known.has_files("pack-other", **sizes)


# Many packs


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, bytes]]:
    """A store with many fresh packs, and parts with chains of deltas; returns its blobs."""
    store = PackStore(tmp_path_factory.mktemp("many"))
    blobs: dict[bytes, bytes] = {}
    for number in range(PARTS):
        versions = [text(f"part {number}", version) for version in range(VERSIONS)]
        store.record(*versions, before=dict(zip(versions[1:], versions, strict=False)))
        repacker = store.look()
        writers = repacker.write(next(job for job in [repacker.choose()] if job is not None))
        for writer in writers:
            store.opened.publisher.publish(writer, is_settled=True)
        written = {id for writer in writers for id in writer.ids}
        with store.opened.publisher.recording(gone=repacker.find_empty(written)):
            pass
        blobs.update({blob(version): version for version in versions})
    for number in range(FRESH):
        contents = [b"fresh %d %d" % (number, each) for each in range(3)]
        store.record(*contents)
        blobs.update({blob(content): content for content in contents})
    store.close()
    return store.path / "objects", blobs


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often an index is searched and a pack read."""
    counted: Counter[str] = Counter()
    for name in ("find", "pread"):
        monkeypatch.setattr(Pack, name, _counting(counted, name))
    return counted


def _counting(counted: Counter[str], name: str) -> Callable[..., object]:
    original = getattr(Pack, name)

    def call(self: Pack, *arguments: object) -> object:
        counted[name] += 1
        return original(self, *arguments)

    return call


@pytest.fixture
def stored(many: tuple[Path, dict[bytes, bytes]]) -> Iterator[tuple[Objects, dict[bytes, bytes]]]:
    with closing(Objects(str(many[0]))) as objects:
        objects.refresh()
        yield objects, many[1]


def test_an_object_is_read_by_few_looks_among_many_packs(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    objects, blobs = stored
    assert len(objects.packs()) >= FRESH
    ids = list(blobs)
    random.Random(1).shuffle(ids)

    for id in ids:
        looks.clear()
        assert objects.read(b"blob", id) == blobs[id]
        assert looks["find"] <= len(objects.packs()) + 2 * VERSIONS
        assert looks["pread"] <= 2 * VERSIONS + 2


def test_versions_that_are_read_one_after_the_other_are_put_together_once(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    """If each were resolved from the first whole one, the cost would be quadratic."""
    objects, blobs = stored
    versions = [blob(text("part 3", version)) for version in range(VERSIONS)]
    for id in reversed(versions):
        assert objects.read(b"blob", id) == blobs[id]

    assert looks["pread"] <= 5 * VERSIONS


def test_what_is_new_is_told_without_asking_any_pack(
    stored: tuple[Objects, dict[bytes, bytes]], looks: Counter[str]
) -> None:
    """Tables in memory show that an object is in no pack."""
    objects, _ = stored
    objects.has(bytes(20))
    looks.clear()

    assert not any(objects.has(random.Random(number).randbytes(20)) for number in range(100))
    assert looks == Counter()


def test_packs_are_listed_oldest_first(objects: Objects, place: Path) -> None:
    """A newer copy is tried before an older one, which may be damaged."""
    names = []
    for number in range(4):
        pack = write_pack(place, b"%d" % number)
        os.utime(Path(pack.path).with_suffix(".idx"), (1000 - number, 1000 - number))
        names.append(pack.name)
    objects.refresh()

    assert [pack.name for pack in objects.packs()] == names[::-1]
    assert content_of(objects.packs()[0], blob(b"3")) == b"3"
