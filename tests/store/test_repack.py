"""Repacking: older versions become deltas of newer ones, and every object keeps its content."""

from __future__ import annotations

import random
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import PackLimits
from shadowtree.store.git_format import MODE_FILE, TreeEntry, deflate, encode_tree, object_id
from shadowtree.store.packs import repack
from shadowtree.store.packs.delta import make_delta
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import part_size
from shadowtree.system import disk
from shadowtree.timeline.tidy import run_job
from tests.support.memory import make_place
from tests.support.packs import (
    PackStore,
    add,
    assert_git_is_silent,
    blob,
    content_of,
    depths_in,
    flip,
    noise,
    read_all,
    stream,
    text,
)
from tests.support.referee import git

WORTH_ALL = PackLimits(worth_part=1 << 40)
"""A part is rewritten however little waits for it."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PackStore]:
    """A store that git checks at the end of the test."""
    with closing(PackStore(tmp_path, WORTH_ALL)) as store:
        yield store
        assert_git_is_silent(store.path)


def names(store: PackStore) -> set[str]:
    return {pack.name for pack in store.objects.packs()}


def pack_of(store: PackStore, content: bytes) -> Pack:
    [pack] = [pack for pack in store.objects.packs() if pack.find(blob(content)) is not None]
    return pack


def depths(store: PackStore, *, may_repeat: bool = False) -> dict[str, int]:
    """Get the base of each object from git; an object in two packs is an error."""
    found: dict[str, int] = {}
    for pack in store.objects.packs():
        listed = depths_in(Path(pack.path))
        assert may_repeat or not found.keys() & listed.keys()
        found |= listed
    return found


def assert_read(store: PackStore, *contents: bytes) -> None:
    for content in contents:
        assert store.objects.read(b"blob", blob(content)) == content
    with_git = read_all(store.path)
    assert {content: with_git.get(blob(content).hex()) for content in contents} == {
        content: content for content in contents
    }


# Deltas


def test_older_versions_become_deltas_of_newer_ones(store: PackStore) -> None:
    """This is the drawing at the top of the module."""
    a1, b1, c1, a2, c2 = (text(each[0], int(each[1])) for each in ("a1", "b1", "c1", "a2", "c2"))
    part = store.settle(a1, b1, c1)
    store.record(a2, c2, before={a2: a1, c2: c1})

    assert store.repack() == 1
    new = pack_of(store, a1)
    found = depths(store)
    assert part.name not in names(store)
    assert {content: found[blob(content).hex()] for content in (a1, b1, c1, a2, c2)} == {
        a1: 1,
        b1: 0,
        c1: 1,
        a2: 0,
        c2: 0,
    }
    assert new.read_head(new.find(blob(a1)) or 0).base == blob(a2), "by id, so that it can be copied anywhere"
    assert_read(store, a1, b1, c1, a2, c2)


def test_a_pack_of_versions_takes_little_more_than_one_of_them(store: PackStore) -> None:
    versions = [text("a", version) for version in range(30)]
    alone = store.settle(versions[0]).size
    for older, newer in pairwise(versions):
        store.record(newer, before={newer: older})
    store.repack()

    assert pack_of(store, versions[0]).size < alone + 30 * 70
    assert_read(store, *versions)


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_no_chain_is_longer_than_fifty(store: PackStore, at_once: bool) -> None:
    versions = [text("a", version % 40) + b"%d\n" % version for version in range(130)]
    before = dict(zip(versions[1:], versions, strict=False))
    store.settle(versions[0])
    if at_once:
        store.record(*versions[1:], before=before)
        store.repack()
    else:
        for version in versions[1:]:
            store.record(version, before=before)
            store.repack()
    found = depths(store)

    assert 40 <= max(found.values()) <= 50
    assert sum(depth == 0 for depth in found.values()) <= 8
    assert_read(store, *versions)


def test_what_is_unlike_stays_whole(store: PackStore) -> None:
    one, two = noise(1000, 1), noise(1000, 2)
    store.settle(one)
    store.record(two, before={two: one})
    store.repack()

    assert set(depths(store).values()) == {0}
    assert_read(store, one, two)


def test_versions_that_lead_in_a_circle_are_all_kept(store: PackStore) -> None:
    """A file changed from one version to another and back."""
    one, two, other = text("a", 1), text("a", 2), text("b", 0)
    store.settle(other)
    store.record(one, two, before={one: two, two: one})
    store.repack()

    assert_read(store, one, two, other)
    assert sorted(depths(store)[blob(content).hex()] for content in (one, two)) == [0, 1]


def test_versions_may_lead_to_several_newer_ones(store: PackStore) -> None:
    """Two branches start from one file."""
    root, one, two = text("a", 0), text("a", 1), text("a", 2)
    store.settle(root)
    store.record(one, two, before={one: root, two: root})
    store.repack()

    assert_read(store, root, one, two)


def test_a_version_that_is_newest_again_is_no_delta_of_an_older_one(store: PackStore) -> None:
    one, two, three = (text("a", version) for version in (1, 2, 3))
    store.settle(one)
    store.record(two, before={two: one})
    store.repack()
    store.record(three, before={three: two})
    store.repack()

    found = depths(store)
    assert [found[blob(content).hex()] for content in (one, two, three)] == [2, 1, 0]
    assert_read(store, one, two, three)


def test_large_objects_are_no_deltas_and_are_copied_in_little_memory(store: PackStore) -> None:
    large = [noise(6 << 20, 1), noise(6 << 20, 1)[:-1] + b"x"]
    store.settle(large[0])
    store.record(large[1], before={large[1]: large[0]})
    sizes = [blob(content) for content in large]
    repacker = store.look()
    job = repacker.choose()
    assert job is not None
    tracemalloc.start()
    run_job(repacker, job, store.opened.publisher)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 5 << 20
    assert [depths(store)[id.hex()] for id in sizes] == [0, 0]


# When deltas are made


def lines(count: int, *, changed: int = 0) -> bytes:
    return b"".join(b"line %d %d\n" % (at, at < changed) for at in range(count))


@pytest.mark.parametrize(
    ("base", "wanted", "is_made"),
    [
        (lines(100), lines(100, changed=3), True),
        (lines(100), lines(100, changed=49), True),
        (lines(100), lines(100, changed=60), False),
        (lines(100), lines(190), True),
        (lines(100), lines(400), False),
        (lines(400), lines(100), True),
        (noise(1000, 1), noise(1000, 2), False),
        (b"", lines(100), False),
        (lines(100), b"", False),
        (lines(40_000), lines(40_000, changed=1), False),
        (lines(10_000), lines(10_000, changed=1), True),
        (lines(10_000), lines(10_000, changed=3_000), False),
        (lines(100), b"".join(sorted(lines(100).splitlines(keepends=True), reverse=True)), False),
    ],
    ids=[
        "few lines differ",
        "half of the lines differ",
        "most lines differ",
        "twice as long",
        "much longer",
        "much shorter",
        "noise",
        "of nothing",
        "nothing",
        "too large",
        "large",
        "much work",
        "another order",
    ],
)
def test_a_delta_is_made_where_two_are_much_alike(base: bytes, wanted: bytes, is_made: bool) -> None:
    """Making one takes a time that grows with the sizes times the differences."""
    made = make_delta(b"blob", base, wanted, len(deflate(wanted)))

    assert (made is not None) is is_made


def test_a_delta_has_to_be_smaller_than_what_it_stands_for() -> None:
    base, wanted = lines(100), lines(100, changed=3)
    size, deflated = make_delta(b"blob", base, wanted, 10_000) or (0, b"")

    assert size > 0
    assert make_delta(b"blob", base, wanted, len(deflated) + 5) is None


def test_a_delta_that_would_take_too_long_is_not_made() -> None:
    base, wanted = lines(1_000), lines(1_000, changed=300)

    assert make_delta(b"blob", base, wanted, 100_000, seconds=1.0) is not None
    assert make_delta(b"blob", base, wanted, 100_000, seconds=0.001) is None


def test_trees_are_alike_by_their_entries() -> None:
    """Trees have no lines, except by chance in the bytes of an id."""

    def tree(changed: int) -> bytes:
        ids = [noise(20, at + 1000 * (at < changed)) for at in range(100)]
        return encode_tree([TreeEntry(b"name%03d" % at, MODE_FILE, id) for at, id in enumerate(ids)])

    assert make_delta(b"tree", tree(0), tree(3), 10_000) is not None
    assert make_delta(b"tree", tree(0), tree(90), 10_000) is None


def test_empty_files_and_trees_are_no_deltas(store: PackStore) -> None:
    """Real git takes a delta of less than four bytes for damage; the fixture runs it."""
    store.settle(text("a", 0))
    store.record(b"", text("a", 1), before={b"": text("a", 0), text("a", 1): b""})
    store.repack()

    assert_read(store, b"", text("a", 0), text("a", 1))


# Copying and reading back


def test_what_does_not_change_is_copied_as_it_stands(
    store: PackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewriting a part takes only as long as its bytes, however many versions are in it."""
    a, b = ([text(name, version) for version in range(4)] for name in ("a", "b"))
    store.settle(a[0], b[0])
    store.record(*a[1:], *b[1:3], before=dict(zip((*a[1:], *b[1:3]), (*a, *b[:2]), strict=False)))
    store.record(a[1], a[2], a[3], b[1], b[2], before={a[1]: a[0], a[2]: a[1], a[3]: a[2], b[1]: b[0]})
    store.repack()
    store.record(b[3], before={b[3]: b[2]})
    made: list[bytes] = []
    real = make_delta

    def note(kind: bytes, base: bytes, wanted: bytes, size: int) -> Any:
        made.append(wanted)
        return real(kind, base, wanted, size)

    monkeypatch.setattr(repack, "make_delta", note)
    store.repack()

    assert made == [b[2]]
    assert_read(store, *a, *b)


def test_a_new_pack_that_is_not_what_it_should_be_takes_nothings_place(
    store: PackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = text("a", 0), text("a", 1)
    store.settle(one)
    store.record(two, before={two: one})
    before = names(store)
    monkeypatch.setattr(repack, "make_delta", lambda *_: (4, deflate(b"\x05\x05\x01x")))

    with pytest.raises(StoreDamaged):
        store.repack()

    store.reopen()
    assert names(store) == before
    assert_read(store, one, two)


def test_what_is_written_otherwise_than_it_stood_is_found(
    store: PackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory or a disk may fail while a part is rewritten."""
    one, two = text("a", 0), text("b", 1)
    store.settle(one)
    store.record(two, before={two: one})
    before = names(store)
    real = disk.write_all

    def write_wrong(fd: int, content: bytes, path: str) -> None:
        wrong = bytearray(content)
        if len(wrong) > 20 and not path.endswith("-index"):
            wrong[len(wrong) // 2] ^= 1
        real(fd, wrong, path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", write_wrong)
        with pytest.raises(StoreDamaged):
            store.repack()

    store.reopen()
    assert names(store) == before
    assert_read(store, one, two)


# Damage


@pytest.mark.parametrize("at", [14, 100, -30])
def test_nothing_goes_that_is_elsewhere_in_a_damaged_part_alone(at: int, store: PackStore) -> None:
    """It was damaged there, and stored again since: only the fresh pack has a sound copy."""
    contents = [text("a", 0), text("b", 0)]
    part = store.settle(*contents)
    fresh = store.record(*reversed(contents))
    whole = Path(part.path).read_bytes()
    flip(Path(part.path), at)
    store.reopen()
    store.repack()

    assert fresh.name in names(store)
    assert store.look(set(map(blob, contents))).find_empty() == []
    for content in contents:
        assert store.objects.read(b"blob", blob(content)) == content
    Path(part.path).write_bytes(whole)


def test_what_is_damaged_where_it_stands_is_taken_from_another_copy(store: PackStore) -> None:
    one, two = text("a", 0), text("b", 0)
    part = store.settle(one)
    store.record(one, two, before={two: one})
    flip(Path(part.path), 40)
    store.reopen()
    store.repack()

    assert part.name not in names(store)
    assert_read(store, one, two)


def test_what_is_nowhere_whole_ends_a_job(store: PackStore) -> None:
    one, two = text("a", 0), text("a", 1)
    part = store.settle(one)
    store.record(two, before={two: one})
    whole = Path(part.path).read_bytes()
    flip(Path(part.path), 40)
    store.reopen()
    before = names(store)

    with pytest.raises(StoreDamaged):
        store.repack()

    assert names(store) == before
    Path(part.path).write_bytes(whole)
    store.reopen()
    assert_read(store, one, two)


# Dropping objects


def test_what_is_not_live_goes_and_what_was_made_of_it_stays(store: PackStore) -> None:
    """In the middle of a chain, at its head, and alone. An object without its base gets another, or none."""
    versions = [text("a", version) for version in range(6)]
    store.settle(text("b", 0), versions[0])
    store.record(*versions[1:], before=dict(zip(versions[1:], versions, strict=False)))
    store.repack()
    live = [versions[version] for version in (0, 1, 3)]
    store.sweep(live)

    ids = {id for pack in store.objects.packs() for id in pack.ids()}
    assert ids == {blob(content) for content in live}
    assert_read_without_ref(store, *live)


def assert_read_without_ref(store: PackStore, *contents: bytes) -> None:
    """Read contents of a store whose ref was swept, and restore the ref."""
    assert_read(store, *contents)
    from shadowtree.store.directory import begin_ref

    begin_ref(store.opened.layout)


def test_a_part_that_was_damaged_after_it_was_read_back_proves_nothing(store: PackStore) -> None:
    """It was damaged between two jobs of one process: only the fresh pack has a sound copy."""
    store.limits = replace(WORTH_ALL, part_bytes=10_000)
    older = noise(1000, 1)
    newer = older + b"1"
    store.settle(older)
    store.record(newer, before={newer: older})
    store.repack()
    (part,) = [pack for pack in store.objects.packs() if pack.is_verified]
    fresh = store.record(newer, older)
    assert store.look().find_empty() == [fresh]
    whole = Path(part.path).read_bytes()
    flip(Path(part.path), 40)

    assert store.look().find_empty() == []
    Path(part.path).write_bytes(whole)


@pytest.mark.parametrize("is_thorough", [False, True], ids=["gc", "purge"])
def test_a_part_of_which_nearly_all_is_live_is_spared_unless_all_else_has_to_go(
    store: PackStore, is_thorough: bool
) -> None:
    contents = [noise(1000, seed) for seed in range(40)]
    part = store.settle(*contents)
    store.sweep(contents[1:], is_thorough=is_thorough)

    assert (part.name in names(store)) is not is_thorough
    assert store.objects.is_listed(blob(contents[0])) is not is_thorough
    store.sweep(contents[20:], is_thorough=is_thorough)
    assert part.name not in names(store)
    assert not store.objects.is_listed(blob(contents[1]))
    assert_read_without_ref(store, *contents[20:])


def test_a_fresh_pack_of_which_nothing_is_live_goes_by_itself(store: PackStore) -> None:
    kept = store.settle(*[text(f"{number}", 0) for number in range(30)])
    going = store.record(b"forgotten")
    live = {id for pack in store.objects.packs() if pack is not going for id in pack.ids()}
    repacker = store.look(live)

    assert repacker.choose_stale(is_thorough=True) is None
    assert repacker.find_empty() == [going]
    assert kept.name in names(store)


def test_a_fresh_pack_goes_as_soon_as_all_in_it_is_in_parts(store: PackStore) -> None:
    """It does not wait until all jobs are done."""
    store.limits = replace(WORTH_ALL, part_bytes=100)
    one, two = noise(1000, 1), noise(1000, 2)
    store.settle(one)
    store.settle(two)
    newer = [one + b"1", two + b"2"]
    first = store.record(newer[0], before={newer[0]: one})
    second = store.record(newer[1], before={newer[1]: two})
    repacker = store.look()
    job = repacker.choose()
    assert job is not None
    run_job(repacker, job, store.opened.publisher)

    assert len(names(store) & {first.name, second.name}) == 1
    store.repack()
    assert not names(store) & {first.name, second.name}
    assert_read(store, one, two, *newer)


# Parts


@pytest.mark.parametrize(
    ("total", "size"), [(0, 1000), (8000, 1000), (80_000, 10_000)], ids=["nothing", "little", "much"]
)
def test_there_are_about_eight_parts(total: int, size: int) -> None:
    assert part_size(total, PackLimits(part_bytes=1000)) == size


def test_a_part_that_grows_too_large_becomes_several(store: PackStore) -> None:
    store.limits = replace(WORTH_ALL, part_bytes=3_000)
    contents = [noise(500, seed) for seed in range(40)]
    for content in contents:
        store.record(content)
        store.repack()
    parts = store.objects.packs()

    assert 5 <= len(parts) <= 12
    assert max(part.size for part in parts) < 2 * max(3_000, sum(part.size for part in parts) // 8)
    assert_read(store, *contents)


def test_versions_of_one_file_stay_in_one_part(store: PackStore) -> None:
    """A delta and its base are in the same pack, even if parts are split."""
    store.limits = replace(WORTH_ALL, part_bytes=2_000)
    versions = {name: [text(name, version) for version in range(6)] for name in "abcdefgh"}
    store.record(*[contents[0] for contents in versions.values()])
    for version in range(1, 6):
        changed = {contents[version]: contents[version - 1] for contents in versions.values()}
        store.record(*changed, before=changed)
        store.repack()
    everything = [content for contents in versions.values() for content in contents]

    assert len(store.objects.packs()) > 2
    assert_read(store, *everything)
    for contents in versions.values():
        assert len({pack_of(store, content).name for content in contents}) == 1


def test_tiny_parts_are_joined(store: PackStore) -> None:
    store.limits = replace(WORTH_ALL, part_bytes=100_000)
    contents = [noise(500, seed) for seed in range(6)]
    live = {id for pack in store.objects.packs() for id in pack.ids()} | {
        blob(content) for content in contents
    }
    for content in contents:
        store.settle(content)
    many = len(store.objects.packs())
    repacker = store.look(live)
    job = repacker.choose_stale(is_thorough=False)
    assert job is not None
    run_job(repacker, job, store.opened.publisher)

    assert (many, len(store.objects.packs())) == (7, 1)
    assert store.look(live).choose_stale(is_thorough=False) is None
    assert_read(store, *contents)


def test_a_part_is_rewritten_only_when_enough_waits_for_it(store: PackStore) -> None:
    store.limits = PackLimits(worth_part=10)
    contents = [noise(1000, seed) for seed in range(100)]
    part = store.settle(*contents)
    newer = [content[:-1] + b"x" for content in contents]
    repacked = []
    for at in range(20):
        store.record(newer[at], before={newer[at]: contents[at]})
        repacked.append(store.repack())

    assert repacked.index(1) in range(8, 17), "about a tenth of the part"
    assert part.name not in names(store)
    assert_read(store, *contents, *newer[:20])


def test_what_has_no_older_version_goes_to_the_smallest_part(store: PackStore) -> None:
    large = store.settle(*[noise(1000, seed) for seed in range(20)])
    store.record(b"new")
    job = store.look().choose()

    assert job is not None
    assert large not in job.parts
    assert job.incoming == (blob(b"new"),)


def test_no_job_is_chosen_that_weighs_too_much(store: PackStore) -> None:
    one = noise(100_000, 1)
    store.settle(one)
    store.record(one + b"x", before={one + b"x": one})

    assert store.look().choose(50_000) is None
    assert store.look().choose(500_000) is not None


def test_where_there_is_damage_a_sweep_is_refused_beforehand(store: PackStore) -> None:
    one, two = text("a", 0), text("b", 0)
    part = store.settle(one, two)
    live = {id for pack in store.objects.packs() for id in pack.ids()} - {blob(two)}
    needed = store.look(live).require_whole(is_thorough=True)
    whole = Path(part.path).read_bytes()
    flip(Path(part.path), 20)

    assert needed >= part.size
    with pytest.raises(StoreDamaged):
        store.look(live).require_whole(is_thorough=True)
    assert store.look({*live, blob(two)}).require_whole(is_thorough=True) == 0
    Path(part.path).write_bytes(whole)


# Packs of git and of users


def test_packs_of_git_are_taken_apart(store: PackStore) -> None:
    """Its deltas name their bases by offset."""
    versions = [text("a", version) for version in range(8)]
    for version in versions:
        subprocess.run(
            ["git", "--git-dir", store.path, "hash-object", "-w", "--stdin"],
            input=version,
            check=True,
            capture_output=True,
        )
    listed = "".join(f"{blob(version).hex()}\n" for version in versions)
    subprocess.run(
        ["git", "--git-dir", store.path, "pack-objects", "-q", "--delta-base-offset", store.packs / "pack"],
        input=listed.encode(),
        check=True,
        capture_output=True,
    )
    git("--git-dir", store.path, "prune-packed", "--quiet")
    store.reopen()
    [foreign] = [pack for pack in store.objects.packs() if not pack.is_ours]
    root = [id for pack in store.objects.packs() if pack is not foreign for id in pack.ids()]
    was = depths_in(Path(foreign.path))
    while job := (repacker := store.look({*map(blob, versions), *root})).choose_stale(is_thorough=False):
        run_job(repacker, job, store.opened.publisher)

    assert max(was.values()) > 1
    assert all(pack.is_ours for pack in store.objects.packs())
    assert foreign.name not in names(store)
    assert_read(store, *versions)


def test_a_pack_that_somebody_else_keeps_is_not_ours(store: PackStore) -> None:
    """Somebody wrote a `.keep` with text in it."""
    pack = store.settle(b"a")
    ours = pack.is_ours
    Path(pack.path).with_suffix(".keep").write_text("mine")
    theirs = pack.is_ours
    Path(pack.path).with_suffix(".keep").unlink()

    assert (ours, theirs, pack.is_ours) == (True, False, False)


# Random orders of recording and repacking


edits = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 30), st.booleans(), st.sampled_from(["", "repack", "join"])),
    min_size=1,
    max_size=25,
)


@given(edits, st.sampled_from([500, 3_000, 1 << 20]), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_git_reads_every_version_whatever_was_recorded_and_repacked(
    history: list[tuple[int, int, bool, str]], size: int, chance: random.Random
) -> None:
    place = make_place()
    with closing(PackStore(place, replace(WORTH_ALL, part_bytes=size, journaled_bytes=2_000))) as store:
        present: dict[int, bytes] = {}
        everything = set()
        for file, version, is_noise, then in history:
            content = noise(700, version) if is_noise else text(f"{file}", version)
            before = {content: present[file]} if present.get(file, content) != content else {}
            store.record(content, before=before)
            present[file] = content
            everything.add(content)
            if then == "repack":
                store.repack()
            elif then == "join":
                store.opened.publisher.join(
                    [
                        pack
                        for pack in store.objects.packs()
                        if pack.name in store.opened.journal.packs.versions()
                    ]
                )
        assert_read(store, *everything)
        root = set(read_all(store.path)) - {blob(content).hex() for content in everything}
        live = set(chance.sample(sorted(everything), len(everything) // 2))
        wanted = {*map(blob, live), *map(bytes.fromhex, root)}
        while (job := (repacker := store.look(wanted)).choose_stale(is_thorough=True)) is not None:
            run_job(repacker, job, store.opened.publisher)
        with store.opened.publisher.recording(gone=store.look(wanted).find_empty()):
            pass
        assert set(read_all(store.path)) == {id.hex() for id in wanted}
        assert_read(store, *live)
        # An object that was recorded again, although it was stored, may be in two packs.
        assert max(depths(store, may_repeat=True).values()) <= 50
        assert_git_is_silent(store.path)


def test_streamed_blobs_are_repacked_too(store: PackStore) -> None:
    writer = store.objects.start_pack()
    id = stream(writer, noise(300_000), noise(300_000, 1))
    add(writer, b"x")
    store.opened.publisher.publish(writer)
    with store.opened.publisher.recording():
        pass
    store.repack()

    content = content_of(pack_of(store, b"x"), id)
    assert content is not None
    assert object_id(b"blob", content) == id
