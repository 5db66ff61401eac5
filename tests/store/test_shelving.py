"""Shelves: fresh packs go there step by step, what is read stays the same, and the store stays small."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits, PackLimits
from shadowtree.store.delta_packs import LONGEST_FAMILY, Family, Shelf, verify_shelves, write_family
from shadowtree.store.git_format import object_id
from shadowtree.store.objects import Objects
from shadowtree.store.packs import Pack
from shadowtree.store.repack import Shelving
from shadowtree.system import disk
from tests.support.referee import assert_sound_store, git


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    """The objects of an empty repository, in which git itself can look."""
    git("init", "--quiet", "--bare", tmp_path / "repository")
    objects = Objects(str(tmp_path / "repository" / "objects"))
    yield objects
    objects.close()
    git("--git-dir", tmp_path / "repository", "fsck", "--full", "--strict")


TINY = PackLimits(
    many=4,
    large_bytes=2_000,
    most_objects_at_once=20,
    idle_bytes=0,
    idle_part=1_000_000,
    shelf_bytes=4_000,
    waiting_bytes=2_000,
)
"""Few packs are many, and shelves small, so that a story of some dozen messages sees all of it."""


def text(name: str, version: int) -> bytes:
    """Make a text of which each version differs from the one before in two lines."""
    return b"".join(
        b"%s: line %d\n" % (name.encode(), line + 100 * (line % 40 == version)) for line in range(99)
    )


def store(objects: Objects, *contents: bytes) -> Pack:
    """Store blobs in a pack of their own."""
    writer = objects.start_pack()
    for content in contents:
        objects.put(writer, b"blob", content)
    objects.publish(writer)
    return objects.packs()[-1]


def blob(content: bytes) -> bytes:
    return object_id(b"blob", content)


def shelve(
    objects: Objects, fresh: list[Pack], before: dict[bytes, bytes], limits: PackLimits = DEFAULT_LIMITS.packs
) -> int:
    """Put all that is in fresh packs on shelves; give how many steps that took."""
    steps = 0
    names = [pack.name for pack in fresh]
    while Shelving(objects, names, before, lambda gone: None, limits=limits).step():
        steps += 1
    return steps


def test_versions_stand_behind_the_newest_one(objects: Objects) -> None:
    base = store(objects, text("a", 0), text("b", 0))
    fresh = [store(objects, text("a", version)) for version in (1, 2, 3)]
    before = {blob(text("a", version)): blob(text("a", version - 1)) for version in (1, 2, 3)}
    size = base.size

    steps = shelve(objects, fresh, before)

    [shelf] = objects.packs()
    families = sorted(Shelf(shelf).families(), key=len)
    assert steps == 1
    assert families == [[blob(text("b", 0))], [blob(text("a", version)) for version in (3, 2, 1, 0)]]
    assert shelf.size < size + 600
    assert [objects.read(b"blob", blob(text("a", version))) for version in range(4)] == [
        text("a", version) for version in range(4)
    ]


def test_a_family_that_grows_too_long_begins_anew(objects: Objects) -> None:
    versions = [text("a", version % 40) + b"%d" % version for version in range(130)]
    writer = objects.start_pack()
    store(objects, *versions)
    write_family([blob(version) for version in versions], writer, objects)
    [path] = writer.finish()

    pack = Pack(f"{path}.idx")
    assert [len(family) for family in Shelf(pack).families()] == [LONGEST_FAMILY, LONGEST_FAMILY, 30]
    verify_shelves([pack], {blob(version) for version in versions})


def test_the_empty_tree_is_no_delta(shadow: Shadow, worktree: Path) -> None:
    """Real git takes a delta of less than four bytes for damage; the fixture lets it look at the store."""
    shadow.wrap()
    for number in range(10):
        (worktree / "file").write_text(f"{number}\n")
        shadow.snapshot(f"m{number}")

    shadow.gc()

    assert len(shadow.messages()) == 10


def test_what_is_unlike_stays_whole(objects: Objects) -> None:
    noise = random.Random(1)
    contents = [noise.randbytes(1000), noise.randbytes(1000)]
    base, fresh = store(objects, contents[0]), store(objects, contents[1])

    shelve(objects, [fresh], {blob(contents[1]): blob(contents[0])})

    [shelf] = objects.packs()
    assert [len(family) for family in Shelf(shelf).families()] == [1, 1]
    assert shelf.name != base.name


def test_versions_that_lead_in_a_circle_are_all_kept(objects: Objects) -> None:
    base = store(objects, text("b", 0))
    fresh = store(objects, text("a", 1), text("a", 2))
    one, two = blob(text("a", 1)), blob(text("a", 2))

    shelve(objects, [fresh], {one: two, two: one})

    objects.refresh()
    assert all(objects.has(id) for id in (one, two, blob(text("b", 0))))
    assert base.name not in {pack.name for pack in objects.packs()}


def test_what_is_not_live_goes_and_what_was_made_of_it_stays(objects: Objects) -> None:
    """In the middle of a family, at its head, and alone."""
    contents = [text("a", version) for version in range(6)] + [text("b", 0)]
    fresh = store(objects, *contents)
    before = {blob(text("a", version)): blob(text("a", version - 1)) for version in range(1, 6)}
    shelve(objects, [fresh], before)
    live = {blob(text("a", version)) for version in (0, 1, 3)}

    while Shelving(objects, [], {}, lambda gone: None, live=live).step():
        pass

    [shelf] = objects.packs()
    assert set(shelf.ids()) == live
    assert [objects.read(b"blob", blob(text("a", version))) for version in (0, 1, 3)] == [
        text("a", version) for version in (0, 1, 3)
    ]


def test_a_fresh_pack_that_becomes_a_shelf_as_it_is_is_fresh_no_more(
    objects: Objects,
) -> None:
    """The other shelf is full, and a new one has the very same bytes: or else this would never end."""
    store(objects, random.Random(1).randbytes(1000))
    fresh = store(objects, b"alone")
    released: list[str] = []

    assert Shelving(objects, [fresh.name], {}, released.extend, limits=PackLimits(shelf_bytes=100)).step()

    assert released == [fresh.name]
    assert os.path.exists(fresh.path)


@pytest.mark.parametrize("at", [14, 100, -10])
def test_nothing_goes_that_is_elsewhere_on_a_damaged_shelf_alone(at: int, objects: Objects) -> None:
    """Its object was damaged there, and stored again since: the fresh pack has the only sound copy."""
    shelf = store(objects, text("a", 0), text("b", 0))
    again = objects.start_pack()
    content = text("a", 0)
    again.add_stream(len(content), iter([content]), lambda id: False)
    objects.publish(again)
    fresh = objects.packs()[-1]
    path = Path(shelf.path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 1
    path.write_bytes(damaged)
    objects.refresh()

    shelve(objects, [fresh], {})

    assert os.path.exists(fresh.path)
    with pytest.raises(StoreDamaged):
        Shelving(objects, [fresh.name], {}, lambda gone: None, live={blob(content)}).step()
    path.write_bytes(whole)


def test_nothing_goes_from_a_shelf_that_is_on_a_damaged_one_too(objects: Objects) -> None:
    """A process was killed when it had written a shelf anew, and the new one was damaged since."""
    contents = [text("a", 0), text("b", 0)]
    store(objects, *contents)
    again = objects.start_pack()
    again.add_stream(len(contents[0]), iter([contents[0]]), lambda id: False)
    objects.publish(again)
    live = {blob(content) for content in contents}
    names = {pack.name for pack in objects.packs()}
    path = Path(objects.packs()[-1].path)
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    objects.refresh()

    with pytest.raises(StoreDamaged):
        Shelving(objects, [], {}, lambda gone: None, live=live).step()

    objects.refresh()
    assert {pack.name for pack in objects.packs()} == names
    path.write_bytes(whole)


def test_a_new_shelf_that_is_not_what_it_should_be_takes_nothings_place(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = store(objects, text("a", 0))
    fresh = store(objects, text("a", 1))
    before = {blob(text("a", 1)): blob(text("a", 0))}
    monkeypatch.setattr(
        "shadowtree.store.delta_packs.make_delta", lambda base, wanted, is_tree: b"\x05\x05\x01x"
    )

    with pytest.raises(StoreDamaged):
        shelve(objects, [fresh], before)

    objects.refresh()
    assert {pack.name for pack in objects.packs()} == {base.name, fresh.name}


def test_families_that_are_copied_are_not_put_together_again(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write a shelf anew takes longer by its bytes alone, however many versions are on it."""
    store(objects, text("a", 0), text("b", 0))
    for name in "aab":
        version = 1 + (blob(text(name, 1)) in objects.packs()[0].ids())
        fresh = store(objects, text(name, version))
        shelve(objects, [fresh], {blob(text(name, version)): blob(text(name, version - 1))})
    fresh = store(objects, text("b", 2))
    verified: list[Family] = []
    monkeypatch.setattr(
        "shadowtree.store.delta_packs._verify_family",
        lambda pack, entries, end: verified.append([id for id, _, _ in entries]),
    )

    shelve(objects, [fresh], {blob(text("b", 2)): blob(text("b", 1))})

    families = sorted(list(family) for family in Shelf(objects.packs()[0]).families())
    assert families == sorted(
        [[blob(text("a", at)) for at in (2, 1, 0)], [blob(text("b", at)) for at in (2, 1, 0)]]
    )
    assert verified == [[blob(text("b", 2)), blob(text("b", 1))]]


def test_what_is_copied_otherwise_than_it_stood_is_found(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was whole when it was looked at, and is read once more to be copied."""
    base = store(objects, *(text("a", version) for version in range(3)))
    fresh = store(objects, text("b", 0))
    real = Pack.read_pieces

    def read_wrong(pack: Pack, start: int, end: int) -> Iterator[bytes]:
        content = bytearray(b"".join(real(pack, start, end)))
        content[len(content) // 2] ^= 1
        yield bytes(content)

    monkeypatch.setattr(Pack, "read_pieces", read_wrong)

    with pytest.raises(StoreDamaged, match="was not copied as it stood"):
        shelve(objects, [fresh], {})

    objects.refresh()
    assert {pack.name for pack in objects.packs()} == {base.name, fresh.name}


@pytest.mark.limits(Limits(packs=TINY))
def test_a_long_story_is_all_there_and_small(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    """Messages, reverts and redos, while packs are merged and shelved behind them."""
    names = [f"{folder}/{name}.txt" for folder in ("one", "two", "two/three") for name in "abcdef"]
    for name in names:
        (worktree / name).parent.mkdir(parents=True, exist_ok=True)
        (worktree / name).write_bytes(text(name, 0))
    chance = random.Random(7)
    states: dict[str, bytes] = {}
    shadow.wrap()
    for number in range(60):
        with shadow.message(f"m{number}"):
            name = chance.choice(names)
            (worktree / name).write_bytes(text(name, number + 1))
        states[f"m{number}"] = git_state(worktree)
        if number % 20 == 19:
            shadow.revert(f"m{number - 5}")
            assert git_state(worktree) == states[f"m{number - 6}"]
            shadow.redo(None)
            assert git_state(worktree) == states[f"m{number}"]
    many = list((shadow.store / "objects" / "pack").glob("*.pack"))
    assert shadow.tidy(60)
    few = list((shadow.store / "objects" / "pack").glob("*.pack"))

    assert len(few) < len(many) < 25
    assert sum(pack.stat().st_size for pack in few) < 45_000, "with whole versions it would be 70,000"
    for number in (0, 13, 37, 59):
        shadow.restore(f"m{number}")
        assert git_state(worktree) == states[f"m{number}"]
    assert_sound_store(shadow.store)
    copy = tmp_path / "copy"
    shutil.copytree(shadow.store, copy)
    git("--git-dir", copy, "gc", "--quiet", "--prune=now")
    git("--git-dir", copy, "fsck", "--full", "--strict")


@pytest.mark.limits(Limits(packs=replace(TINY, most_bytes_at_once=-1, very_many=5)))
def test_a_command_does_not_ask_what_is_where_in_a_large_store(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes a time that grows with the tree; its packs are only kept from becoming too many."""
    monkeypatch.delattr("shadowtree.timeline.publish.Shelving")
    shadow.wrap()
    packs = []
    for number in range(12):
        (worktree / "file").write_text(f"{number}\n" * 100)
        shadow.snapshot(f"m{number}")
        packs.append(len(list((shadow.store / "objects" / "pack").glob("*.pack"))))

    assert max(packs) <= 6
    assert packs[-1] < max(packs)
    shadow.revert("m3")
    assert (worktree / "file").read_text() == "2\n" * 100


@pytest.mark.limits(Limits(packs=replace(TINY, very_many=9, large_bytes=20_000)))
def test_who_tidies_in_idle_time_shelves_nothing_before_unless_it_is_much(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelved: list[int] = []
    shelve_due = Shelving.shelve_due

    def note(self: Shelving, **limits: int) -> None:
        shelved.append(number)
        shelve_due(self, **limits)

    monkeypatch.setattr(Shelving, "shelve_due", note)
    shadow.wrap()
    assert shadow.tidy(60)
    packs = []
    for number in range(60):
        (worktree / "file").write_text(f"{number}\n" * 100)
        shadow.snapshot(f"m{number}")
        packs.append(len(list((shadow.store / "objects" / "pack").glob("*.pack"))))

    assert max(packs) <= 11
    assert min(shelved) > 30, "until then there are less than 20,000 bytes"
    assert shadow.tidy(60)
    shadow.revert("m3")
    assert (worktree / "file").read_text() == "2\n" * 100


def test_a_list_that_git_made_of_packs_goes_with_them(shadow: Shadow, worktree: Path) -> None:
    for number in range(3):
        (worktree / "a.txt").write_bytes(text("a", number))
        shadow.track()
    listed = {path.name for path in (shadow.store / "objects" / "pack").glob("*.pack")}
    git("--git-dir", shadow.store, "multi-pack-index", "write")
    for number in range(3, 9):
        (worktree / "a.txt").write_bytes(text("a", number))
        shadow.track()

    assert not listed <= {path.name for path in (shadow.store / "objects" / "pack").glob("*.pack")}
    git("--git-dir", shadow.store, "fsck", "--full", "--strict")


def git_state(worktree: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(worktree.rglob("*.txt")))


def test_a_shelf_of_which_nearly_all_is_live_is_spared_unless_all_else_has_to_go(objects: Objects) -> None:
    noise = random.Random(2)
    contents = [noise.randbytes(1000) for _ in range(40)]
    shelf = store(objects, *contents)
    live = {blob(content) for content in contents[1:]}

    assert not Shelving(objects, [], {}, lambda gone: None, live=live, spares=True).step()
    assert [pack.name for pack in objects.packs()] == [shelf.name]
    assert Shelving(objects, [], {}, lambda gone: None, live=live).step()
    assert not objects.is_listed(blob(contents[0]))
    half = {blob(content) for content in contents[20:]}
    assert Shelving(objects, [], {}, lambda gone: None, live=half, spares=True).step()
    assert {id for pack in objects.packs() for id in pack.ids()} == half


def test_a_shelf_of_too_many_objects_becomes_two(objects: Objects) -> None:
    """However small they are: each step looks through all of them."""
    many = [b"%d" % number for number in range(40)]
    store(objects, *many)
    fresh = store(objects, b"fresh")

    shelve(objects, [fresh], {blob(b"fresh"): blob(many[0])}, PackLimits(shelf_objects=10, run_objects=5))

    assert len(objects.packs()) >= 2
    assert max(pack.count for pack in objects.packs()) < 40
    assert all(objects.has(blob(content)) for content in (*many, b"fresh"))


def sweep_briefly(
    objects: Objects, fresh: list[Pack], live: list[bytes], *, foreign: list[Pack] | None = None
) -> list[str | None]:
    """Keep what is live, and leave what is too little for a shelf; give the names of what was merged."""
    merged: list[str | None] = []
    fresh_names = [pack.name for pack in fresh]
    foreign_names = [pack.name for pack in foreign or []]
    while True:
        shelving = Shelving(
            objects,
            fresh_names,
            {},
            lambda gone: None,
            live={blob(content) for content in live},
            spares=True,
            leaves=True,
            foreign=foreign_names,
        )
        has_more = shelving.step(is_over=lambda: True)
        if shelving.merged is not None:
            merged.append(shelving.merged)
            fresh_names.append(shelving.merged)
        if not has_more:
            return merged


def names(objects: Objects) -> set[str]:
    return {pack.name for pack in objects.packs()}


MANY = [text(f"name{number}", 0) for number in range(60)]
NEW = b"new"


def test_what_is_too_little_for_a_shelf_stays_fresh(objects: Objects) -> None:
    shelf, fresh = store(objects, *MANY), store(objects, NEW)

    merged = sweep_briefly(objects, [fresh], [*MANY, NEW])

    assert merged == []
    assert names(objects) == {shelf.name, fresh.name}


def test_what_is_enough_for_a_shelf_goes_there(objects: Objects) -> None:
    news = [text(f"new{number}", 0) for number in range(9)]
    store(objects, *MANY)
    fresh = store(objects, *news)

    merged = sweep_briefly(objects, [fresh], [*MANY, *news])

    assert merged == []
    [shelf] = objects.packs()
    assert shelf.count == len(MANY) + len(news)


def test_fresh_packs_that_stay_lose_what_nothing_needs_and_what_is_on_a_shelf(objects: Objects) -> None:
    shelf = store(objects, *MANY)
    writer = objects.start_pack()
    for content in (NEW, b"forgotten", MANY[0]):
        writer.add(b"blob", blob(content), len(content), zlib.compress(content))
    objects.publish(writer)
    fresh = objects.packs()[-1]

    merged = sweep_briefly(objects, [fresh], [*MANY, NEW])

    assert len(merged) == 1
    assert names(objects) == {shelf.name, merged[0]}
    [left] = [pack for pack in objects.packs() if pack.name == merged[0]]
    assert left.ids() == [blob(NEW)]


def test_what_is_on_a_damaged_shelf_stays_in_the_fresh_pack_too(objects: Objects) -> None:
    """An index that names it proves nothing."""
    shelf = store(objects, *MANY)
    writer = objects.start_pack()
    for content in (NEW, MANY[0]):
        writer.add(b"blob", blob(content), len(content), zlib.compress(content))
    objects.publish(writer)
    fresh = objects.packs()[-1]
    sound = Path(shelf.path).read_bytes()
    Path(shelf.path).write_bytes(sound[:-25] + bytes([sound[-25] ^ 1]) + sound[-24:])

    merged = sweep_briefly(objects, [fresh], [*MANY, NEW])

    assert merged == []
    assert names(objects) == {shelf.name, fresh.name}
    Path(shelf.path).write_bytes(sound)


def test_what_real_git_packed_never_stays_as_it_is(objects: Objects) -> None:
    shelf, foreign = store(objects, *MANY), store(objects, NEW)

    sweep_briefly(objects, [], [*MANY, NEW], foreign=[foreign])

    assert names(objects).isdisjoint({shelf.name, foreign.name})
    assert objects.read(b"blob", blob(NEW)) == NEW


def test_fresh_packs_that_were_put_together_wrongly_are_still_there(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes in their place is read before they go."""
    shelf = store(objects, *MANY)
    fresh = [store(objects, NEW), store(objects, b"newer")]
    real = disk.write_all

    def write_wrong(fd: int, content: bytes, path: str) -> None:
        wrong = bytearray(content)
        wrong[len(wrong) // 2] ^= 1
        real(fd, wrong if len(wrong) > 20 and not path.endswith(".idx") else content, path)

    monkeypatch.setattr(disk, "write_all", write_wrong)
    with pytest.raises(StoreDamaged):
        sweep_briefly(objects, fresh, [*MANY, NEW, b"newer"])

    objects.refresh()
    assert names(objects) == {shelf.name, *(pack.name for pack in fresh)}


def test_a_fresh_pack_that_is_damaged_ends_a_sweep_that_would_put_it_together(objects: Objects) -> None:
    shelf = store(objects, *MANY)
    fresh = [store(objects, NEW), store(objects, b"newer")]
    sound = Path(fresh[0].path).read_bytes()
    Path(fresh[0].path).write_bytes(sound[:-25] + bytes([sound[-25] ^ 1]) + sound[-24:])

    with pytest.raises(StoreDamaged):
        sweep_briefly(objects, fresh, [*MANY, NEW, b"newer"])

    objects.refresh()
    assert names(objects) == {shelf.name, *(pack.name for pack in fresh)}
    Path(fresh[0].path).write_bytes(sound)
