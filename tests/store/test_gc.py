"""`gc` removes what no live tree and no ref needs, and keeps the rest, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, StoreDamaged
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.retention.gc import Sweep, sweep_all
from shadowtree.store.git_format import object_id
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import EVENTS
from tests.support.limits import LARGE_PACKS, TINY
from tests.support.packs import assert_git_is_silent, depths_in, flip, read_all
from tests.support.referee import assert_sound_store, git
from tests.support.stores import SETTINGS, read_timeline
from tests.support.stories import Story, tell_deep, tell_wide
from tests.support.watching import forget_youth


def lines(name: str, version: int) -> bytes:
    return b"".join(b"%s %d %d\n" % (name.encode(), line, line % 30 == version % 30) for line in range(60))


def state(worktree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(worktree)): p.read_bytes() for p in sorted(worktree.rglob("*")) if p.is_file()}


def tell(shadow: Shadow, worktree: Path, count: int) -> dict[str, dict[str, bytes]]:
    """Record messages that write, add and remove files; return the state after each."""
    chance = random.Random(3)
    states = {}
    for folder in ("", "one/", "one/two/"):
        (worktree / folder).mkdir(exist_ok=True)
        for name in "abc":
            (worktree / f"{folder}{name}").write_bytes(lines(folder + name, 0))
    shadow.wrap()
    for number in range(count):
        with shadow.message(f"m{number}"):
            path = worktree / f"{chance.choice(['', 'one/', 'one/two/'])}{chance.choice('abc')}"
            path.write_bytes(lines(path.name, number + 1))
            (worktree / "one" / f"new{number}").write_text(f"only in {number}")
            (worktree / "one" / f"new{number - 3}").unlink(missing_ok=True)
        states[f"m{number}"] = state(worktree)
    return states


def run(shadow: Shadow) -> tuple[int, int]:
    with shadow._access.locked() as opened:
        return sweep_all(opened)


def finish(shadow: Shadow, sweeping: Sweep) -> None:
    """Do the remaining steps of a sweep, and release the lock after each."""
    has_more = True
    while has_more:
        with shadow._access.locked() as opened:
            has_more = sweeping.step(opened)


def is_stored(shadow: Shadow, content: bytes) -> bool:
    with shadow._access.locked() as opened:
        return opened.objects.is_listed(object_id(b"blob", content))


def test_what_was_forgotten_goes_and_the_rest_stays(shadow: Shadow, worktree: Path) -> None:
    states = tell(shadow, worktree, 40)
    shadow.pin("m5")
    shadow.forget(keep_last=10, gc=False)
    removed, freed = run(shadow)

    assert removed > 100
    assert freed > 0
    assert not is_stored(shadow, b"only in 12")
    assert is_stored(shadow, b"only in 5")
    assert_sound_store(shadow.store)
    for name in ("m5", "m30", "m39"):
        shadow.restore(name)
        assert state(worktree) == states[name]


def test_what_comes_of_it_is_all_that_live_trees_and_refs_lead_to(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 20)
    shadow.forget(keep_last=3, gc=False)
    run(shadow)
    records = read_timeline(shadow.store, lambda journal: journal.live_trees())
    trees = [tree.hex() for record in records for tree in (record.tree, record.facts)]
    beside = [blob.hex() for record in records for blob in record.blobs_beside]

    listed = git(
        "--git-dir", shadow.store, "rev-list", "--objects", "--no-object-names", "--all", *trees, *beside
    )
    assert set(read_all(shadow.store)) == set(listed.split())


def test_what_is_kept_beside_a_tree_stays_as_long_as_the_tree(shadow: Shadow, worktree: Path) -> None:
    """An act replaced or wrote a file that no rule covers: it is in no tree, and can be restored."""
    tell(shadow, worktree, 3)
    with shadow._access.locked() as opened:
        last = opened.journal.live_trees()[-1]
        pack = opened.objects.start_pack()
        beside = opened.objects.put(pack, b"blob", b"beside")
        opened.publisher.publish(pack)
        with opened.publisher.recording():
            record = opened.journal.add_tree(
                tree=last.tree, facts=last.facts, also=[beside], files=last.files, time_s=1
            )
    run(shadow)
    kept = is_stored(shadow, b"beside")
    (worktree / "a").write_text("the last tree stays")
    shadow.track()
    with shadow._access.locked() as opened:
        opened.journal.retention.forget_trees([record.number], 1)
    run(shadow)

    assert kept
    assert not is_stored(shadow, b"beside")


def test_nothing_to_free_frees_nothing_and_leaves_the_packs(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 10)
    run(shadow)
    packs = sorted(os.listdir(shadow.store / "objects" / "pack"))
    again = run(shadow)

    assert again == (0, 0)
    assert sorted(os.listdir(shadow.store / "objects" / "pack")) == packs


def test_the_cache_counts_on_though_it_relied_on_packs_that_are_gone(shadow: Shadow, worktree: Path) -> None:
    (worktree / "none" / "in").mkdir(parents=True)
    tell(shadow, worktree, 10)
    shadow.forget(keep_last=2, gc=False)
    run(shadow)

    with shadow._access.locked() as opened:
        assert sorted(opened.cache.paths()) == [b"", b"none", b"none/in", b"one", b"one/two"]


@pytest.mark.parametrize("boot", ["this one", "another one"])
@pytest.mark.limits(Limits(boot_id="this one"))
def test_after_a_power_cut_no_cache_counts_that_names_what_is_gone(
    shadow: Shadow, worktree: Path, boot: str
) -> None:
    """The power cut brought back rows from before the sweep."""
    (worktree / "a").write_text("first")
    with shadow.message("first"):
        (worktree / "a").write_text("second")
    shadow.close()
    with closing(sqlite3.connect(shadow.store / "cache.db")) as cache:
        rows = cache.execute("SELECT path, row FROM directories").fetchall()
    for number in range(25):
        with shadow.message(f"m{number}"):
            (worktree / "a").write_text(f"{number}")
    shadow.forget(keep_last=2)
    assert not is_stored(shadow, b"second")
    shadow.close()
    with closing(sqlite3.connect(shadow.store / "cache.db", isolation_level=None)) as cache:
        cache.execute("DELETE FROM directories")
        cache.executemany("INSERT INTO directories VALUES (?, ?)", rows)

    again = Shadow(worktree, settings={"min_free": 0}, limits=Limits(boot_id=boot))
    with again, again._access.locked() as opened:
        assert opened.cache.paths() == ([b""] if boot == "this one" else [])


def hide_and_forget(worktree: Path, store: Path) -> None:
    """Record without a directory that others have recorded, until only such records are left."""
    with Shadow(worktree, store=store, settings={"min_free": 0, "heavy_dirs": ["hidden"]}) as other:
        for number in range(3):
            (worktree / "a").write_text(f"{number}")
            other.snapshot(f"other{number}")
        other.forget(keep_last=1)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_who_watches_does_not_rely_on_what_another_process_swept(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory in its memory may be in no tree that is left, because the other processes leave it out."""
    forget_youth(monkeypatch)
    (worktree / "hidden" / "deep").mkdir(parents=True)
    (worktree / "hidden" / "deep" / "f").write_text("only here")
    with Shadow(worktree, store=tmp_path / "s", watch=True, settings={"min_free": 0}) as watching:
        watching.snapshot("first")
        watching.snapshot("second")
        hide_and_forget(worktree, watching.store)

        before = watching.begin("third").before

        assert watching.check().ok
        (worktree / "hidden" / "deep" / "f").unlink()
        watching.end()
        watching.revert("third")
        assert watching.track() == before
    assert_sound_store(tmp_path / "s")


def test_a_cache_of_older_trees_does_not_count_after_a_sweep(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that recorded since were killed before they saved the cache."""
    forget_youth(monkeypatch)
    (worktree / "hidden").mkdir()
    (worktree / "hidden" / "f").write_text("only here")
    shadow.snapshot("first")
    shadow.snapshot("second")
    shadow.close()
    with monkeypatch.context() as patched:
        patched.setattr("shadowtree.capture.open_store.OpenStore.remember", lambda self, scan: None)
        hide_and_forget(worktree, shadow.store)

    shadow.begin("third")

    assert shadow.check().ok


def test_a_snapshot_between_two_steps_keeps_what_it_found_in_the_store(
    shadow: Shadow, worktree: Path
) -> None:
    """The snapshot relied on an object that nothing needed when the sweep began."""
    tell(shadow, worktree, 30)
    shadow.forget(keep_last=2, gc=False)
    sweeping = Sweep()
    with shadow._access.locked() as opened:
        sweeping.step(opened)
    with Shadow(worktree, store=shadow.store, settings={"min_free": 0}) as other:
        (worktree / "again").write_text("only in 4")
        tree = other.track()
    finish(shadow, sweeping)
    (worktree / "again").unlink()

    shadow.restore(tree)
    assert (worktree / "again").read_text() == "only in 4"


def test_another_sweep_between_two_steps_does_no_harm(shadow: Shadow, worktree: Path) -> None:
    states = tell(shadow, worktree, 30)
    shadow.forget(keep_last=12, gc=False)
    sweeping = Sweep()
    with shadow._access.locked() as opened:
        sweeping.step(opened)
    shadow.forget(keep_last=5, gc=False)
    run(shadow)
    finish(shadow, sweeping)

    for name in ("m25", "m29"):
        shadow.restore(name)
        assert state(worktree) == states[name]


@pytest.mark.parametrize("swept", [12, None])
def test_what_is_forgotten_between_two_steps_may_go_then_or_later(
    shadow: Shadow, worktree: Path, swept: int | None
) -> None:
    """The sweep may have marked it already, or it was recorded since."""
    tell(shadow, worktree, 30)
    shadow.forget(keep_last=20, gc=False)
    sweeping = Sweep()
    with shadow._access.locked() as opened:
        sweeping.step(opened)
    if swept is not None:
        shadow.forget(keep_last=swept)
    else:
        for number in range(8):
            (worktree / "a").write_text(f"since {number}")
            shadow.snapshot(f"since{number}")
    shadow.forget(keep_last=3, gc=False)
    finish(shadow, sweeping)

    assert shadow.check().ok
    assert_sound_store(shadow.store)


def test_trees_that_a_purge_made_anew_between_two_steps_stay(shadow: Shadow, worktree: Path) -> None:
    """A purge gives the same records other trees, after the sweep has marked the old ones."""
    tell(shadow, worktree, 30)
    shadow.forget(keep_last=12, gc=False)
    sweeping = Sweep(is_thorough=True)
    with shadow._access.locked() as opened:
        sweeping.step(opened)
    shadow.purge("one/two/a")
    finish(shadow, sweeping)

    assert shadow.check(read_data=True).ok
    assert_sound_store(shadow.store)


@pytest.mark.parametrize("swept", [False, True])
def test_marking_goes_on_after_the_lock_was_given_away(
    shadow: Shadow, worktree: Path, *, swept: bool
) -> None:
    """Even if few trees are marked at a time, and half marked ones are forgotten meanwhile."""
    states = tell(shadow, worktree, 30)
    shadow.forget(keep_last=12, gc=False)
    sweeping = Sweep()
    for _ in range(10):
        with shadow._access.locked() as opened:
            assert sweeping.step(opened, deadline=0)
    if swept:
        shadow.forget(keep_last=5)
    finish(shadow, sweeping)

    assert not is_stored(shadow, b"only in 10")
    assert shadow.check(read_data=True).ok
    for name in ("m25", "m29"):
        shadow.restore(name)
        assert state(worktree) == states[name]


def test_it_stops_before_anything_goes_if_something_is_missing(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    tell(shadow, worktree, 12)
    shadow.forget(keep_last=3, gc=False)
    shadow.close()
    packs = shadow.store / "objects" / "pack"
    with shadow._access.locked() as opened:
        victim = next(
            pack.name for pack in opened.objects.packs() if pack.find(object_id(b"blob", b"only in 11"))
        )
        opened.journal.packs.drop([victim])
    for suffix in (".pack", ".idx", ".keep"):
        (packs / f"{victim}{suffix}").rename(tmp_path / f"{victim}{suffix}")
    before = sorted(os.listdir(packs))
    with pytest.raises(StoreDamaged):
        run(shadow)

    assert sorted(os.listdir(packs)) == before
    for suffix in (".pack", ".idx", ".keep"):
        (tmp_path / f"{victim}{suffix}").rename(packs / f"{victim}{suffix}")


# Objects of git and of others


DAY_NS = 24 * 3600 * 10**9


def write_loose(store: Path, content: bytes) -> str:
    """Make git write a loose object."""
    done = subprocess.run(
        ["git", "--git-dir", store, "hash-object", "-w", "--stdin"],
        input=content,
        check=True,
        capture_output=True,
    )
    return done.stdout.decode().strip()


def pack_with_git(store: Path, *contents: bytes) -> str:
    """Make git pack some blobs, and return the name of the pack."""
    ids = [write_loose(store, content) for content in contents]
    done = subprocess.run(
        ["git", "--git-dir", store, "pack-objects", "-q", str(store / "objects" / "pack" / "pack")],
        input="".join(f"{id}\n" for id in ids).encode(),
        check=True,
        capture_output=True,
    )
    git("--git-dir", store, "prune-packed", "--quiet")
    return f"pack-{done.stdout.decode().strip()}"


def make_private(store: Path) -> None:
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def later(days: int) -> Limits:
    """Set the clock some days ahead."""
    return Limits(clock_ns=lambda: time.time_ns() + days * DAY_NS)


def gc_later(shadow: Shadow, days: int) -> None:
    with Shadow(shadow.worktree, store=shadow.store, settings=SETTINGS, limits=later(days)) as other:
        other.gc()


@pytest.mark.parametrize("command", ["gc --prune=now", "repack -a -d", "gc --aggressive --prune=now"])
def test_git_takes_nothing_at_any_moment(shadow: Shadow, worktree: Path, command: str) -> None:
    """No ref leads to what was recorded, but `.keep` files protect the packs from git."""
    states = tell(shadow, worktree, 10)
    before = read_all(shadow.store)
    for number in range(10, 13):
        git("--git-dir", shadow.store, *command.split(), "--quiet")
        (worktree / "a").write_bytes(lines("a", number))
        states[f"m{number}"] = state(worktree)
        shadow.snapshot(f"m{number}")
        shadow.tidy(60)
        git("--git-dir", shadow.store, *command.split(), "--quiet")
        shadow.gc()
    git("--git-dir", shadow.store, *command.split(), "--quiet")

    assert before.items() <= read_all(shadow.store).items()
    make_private(shadow.store)
    for name, expected in states.items():
        shadow.restore(name)
        assert state(worktree) == expected
    make_private(shadow.store)
    assert_git_is_silent(shadow.store)


def test_what_a_ref_leads_to_stays(shadow: Shadow, worktree: Path) -> None:
    """A user of the repository, or git, made the ref."""
    tell(shadow, worktree, 5)
    tree = git("--git-dir", shadow.store, "write-tree", GIT_INDEX_FILE=str(worktree.parent / "index"))
    kept = write_loose(shadow.store, b"kept by a tag")
    commit = git("--git-dir", shadow.store, "commit-tree", tree, "-m", "mine")
    git("--git-dir", shadow.store, "update-ref", "refs/heads/mine", commit)
    git("--git-dir", shadow.store, "tag", "-a", "-m", "of a blob", "v1", kept)
    gc_later(shadow, 30)
    git("--git-dir", shadow.store, "pack-refs", "--all")
    shadow.forget(keep_last=1)
    run(shadow)

    assert git("--git-dir", shadow.store, "cat-file", "-p", "v1^{}") == "kept by a tag"
    assert git("--git-dir", shadow.store, "log", "--format=%s", "mine") == "mine"
    assert_git_is_silent(shadow.store)
    make_private(shadow.store)


@pytest.mark.parametrize("days", [0, 13, 15])
def test_what_others_wrote_stays_for_two_weeks_without_a_ref(
    shadow: Shadow, worktree: Path, days: int
) -> None:
    """Somebody may be about to make a ref to it; git waits as long."""
    tell(shadow, worktree, 5)
    loose = write_loose(shadow.store, b"loose")
    name = pack_with_git(shadow.store, *(lines("packed", version) for version in range(5)))
    gc_later(shadow, days)
    found = read_all(shadow.store)

    packed = {object_id(b"blob", lines("packed", version)).hex() for version in range(5)}
    assert (loose in found) is (days < 14)
    assert packed <= found.keys() if days < 14 else not packed & found.keys()
    assert (shadow.store / "objects" / "pack" / f"{name}.pack").exists() is (days < 14)
    make_private(shadow.store)


def test_a_purge_waits_for_nothing(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 5)
    write_loose(shadow.store, b"loose")
    name = pack_with_git(shadow.store, b"packed")
    run(shadow)

    assert not (shadow.store / "objects" / "pack" / f"{name}.pack").exists()
    assert not {object_id(b"blob", content).hex() for content in (b"loose", b"packed")} & set(
        read_all(shadow.store)
    )


def test_a_live_object_in_a_young_pack_of_git_is_not_lost_when_that_goes(
    shadow: Shadow, worktree: Path
) -> None:
    """A snapshot found it there, and did not store it again."""
    shadow.wrap()
    pack_with_git(shadow.store, b"found in the store", b"not needed")
    (worktree / "a").write_text("found in the store")
    tree = shadow.track()
    shadow.gc()
    gc_later(shadow, 30)

    assert git("--git-dir", shadow.store, "show", f"{tree}:a") == "found in the store"
    assert object_id(b"blob", b"not needed").hex() not in read_all(shadow.store)


def test_live_loose_objects_are_put_into_packs(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    loose = write_loose(shadow.store, b"loose")
    (worktree / "a").write_text("loose")
    tree = shadow.track()
    shadow.gc()

    assert not (shadow.store / "objects" / loose[:2] / loose[2:]).exists()
    assert git("--git-dir", shadow.store, "show", f"{tree}:a") == "loose"


def test_what_real_git_made_of_the_store_is_swept_too(shadow: Shadow, worktree: Path) -> None:
    """Packs with git's own deltas, its lists, and loose objects; somebody removed the `.keep` files."""
    states = tell(shadow, worktree, 20)
    records = read_timeline(shadow.store, lambda journal: journal.live_trees())
    for number, record in enumerate(records):
        for name, tree in (("files", record.tree), ("facts", record.facts)):
            git("--git-dir", shadow.store, "update-ref", f"refs/{name}/{number}", tree.hex())
        for blob in record.blobs_beside:
            git("--git-dir", shadow.store, "update-ref", f"refs/beside/{blob.hex()}", blob.hex())
    for path in shadow.store.rglob("*.keep"):
        path.unlink()
    git("--git-dir", shadow.store, "gc", "--quiet", "--prune=now")
    for ref in git("--git-dir", shadow.store, "for-each-ref", "--format=%(refname)").split():
        if not ref.startswith("refs/heads/"):
            git("--git-dir", shadow.store, "update-ref", "-d", ref)
    [pack] = (shadow.store / "objects" / "pack").glob("*.pack")
    was = depths_in(pack)
    loose = write_loose(shadow.store, b"loose")
    git("--git-dir", shadow.store, "pack-refs", "--all")
    git("--git-dir", shadow.store, "multi-pack-index", "write")
    shadow.forget(keep_last=4, gc=False)
    run(shadow)

    assert max(was.values()) > 1
    assert not pack.exists()
    assert_sound_store(shadow.store)
    assert not (shadow.store / "objects" / loose[:2] / loose[2:]).exists()
    for name in ("m16", "m19"):
        shadow.restore(name)
        assert state(worktree) == states[name]


# Rows of the timeline


def test_a_timeline_that_was_not_touched_is_looked_at_once(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(shadow, worktree, 3)
    looks: list[str] = []
    real = Database.rows

    def note(database: Database, statement: str, *values: object) -> object:
        looks.append(statement)
        return real(database, statement, *values)

    monkeypatch.setattr(Database, "rows", note)
    with shadow._access.locked() as opened:
        for _ in range(3):
            opened.journal.require_sound()

    assert len([look for look in looks if look == EVENTS.select]) == 1


def test_a_row_that_another_one_damaged_since_is_found(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    with shadow._access.locked() as opened:
        opened.journal.require_sound()
        with closing(sqlite3.connect(shadow.store / "timeline.db")) as other, other:
            other.execute("UPDATE trees SET files = files + 1 WHERE number = 2")

        with pytest.raises(StoreDamaged):
            opened.journal.require_sound()
        with closing(sqlite3.connect(shadow.store / "timeline.db")) as other, other:
            other.execute("UPDATE trees SET files = files - 1 WHERE number = 2")


def test_a_row_that_this_process_damaged_since_is_found(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    with shadow._access.locked() as opened:
        opened.journal.require_sound()
        unsealed = opened.journal._db._connection
        unsealed.execute("UPDATE trees SET files = files + 1 WHERE number = 2")

        with pytest.raises(StoreDamaged):
            opened.journal.require_sound()
        unsealed.execute("UPDATE trees SET files = files - 1 WHERE number = 2")


# Damage and a full disk


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied"])
@pytest.mark.limits(Limits(packs=replace(TINY.packs, journaled_bytes=0)))
def test_a_damaged_part_is_left_alone_by_tidying_and_an_error_for_gc(
    shadow: Shadow, worktree: Path, damage: str
) -> None:
    """Nothing in it is removed before somebody decides what is lost."""
    tell(shadow, worktree, 12)
    shadow.tidy(60)
    shadow.close()
    path = max((shadow.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    if damage == "flipped":
        flip(path, len(whole) // 2)
    else:
        os.truncate(path, len(whole) // 2 if damage == "cut" else 0)
    (worktree / "a").write_bytes(lines("a", 77))
    shadow.track()
    with pytest.raises(StoreDamaged):
        shadow.forget(keep_last=1)
    shadow.tidy(60)

    assert path.exists()
    assert len(shadow.messages()) == 12, "nothing was forgotten for nothing"
    shadow.close()
    path.write_bytes(whole)
    shadow.gc()
    assert shadow.check(read_data=True).ok


@pytest.mark.limits(Limits(packs=LARGE_PACKS))
def test_a_sweep_without_room_is_refused_before_anything_is_forgotten(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(shadow, worktree, 8)
    monkeypatch.setattr("shadowtree.capture.size_limits.free_bytes", lambda path: 10)
    with pytest.raises(OutOfSpace):
        shadow.forget(keep_last=1)

    assert len(shadow.messages()) == 8


# Sweeps end


def tell_by_many(shadow: Shadow) -> None:
    """Record in many sessions, each in its own directory."""
    for number in range(40):
        path = shadow.worktree / "sessions" / f"{number % 10}" / "file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
        shadow.for_session(f"{number % 10}").snapshot(f"m{number}")


SMALL_PARTS = Limits(packs=replace(TINY.packs, part_bytes=600))


@pytest.fixture(params=[tell_deep, tell_wide, tell_by_many], ids=["deep", "wide", "by many"])
def told(shadow: Shadow, request: pytest.FixtureRequest) -> Shadow:
    """A shadow with a history of tiny objects."""
    tell_story: Callable[[Shadow], None] = request.param
    tell_story(shadow)
    return shadow


def list_packs(shadow: Shadow) -> dict[str, int]:
    """Return the inode of each file in the directory of packs, by its name."""
    return {entry.name: entry.inode() for entry in os.scandir(shadow.store / "objects" / "pack")}


def measure_packs(shadow: Shadow) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(shadow.store / "objects" / "pack"))


def sweep(shadow: Shadow, *, is_thorough: bool = False) -> list[int]:
    """Sweep in the smallest steps; return the size of the packs after each step but the last."""
    sweeping = Sweep(is_thorough=is_thorough)
    sizes: list[int] = []
    with shadow._access.locked() as opened:
        while sweeping.step(opened):
            sizes.append(measure_packs(shadow))
            assert len(sizes) < 300, "it does not end"
    return sizes


@pytest.mark.parametrize("is_thorough", [False, True], ids=["gc", "purge"])
@pytest.mark.limits(SMALL_PARTS)
def test_a_sweep_ends_and_the_next_one_has_nothing_to_do(told: Shadow, *, is_thorough: bool) -> None:
    sweep(told, is_thorough=is_thorough)
    packs = list_packs(told)

    assert sweep(told, is_thorough=is_thorough) == []
    assert list_packs(told) == packs
    assert told.check(read_data=True).ok


@pytest.mark.parametrize("is_thorough", [False, True], ids=["gc", "purge"])
@pytest.mark.limits(SMALL_PARTS)
def test_a_sweep_after_much_was_forgotten_ends_as_well(told: Shadow, *, is_thorough: bool) -> None:
    told.forget(keep_last=1, gc=False)
    sweep(told, is_thorough=is_thorough)
    packs = list_packs(told)

    assert sweep(told, is_thorough=is_thorough) == []
    assert list_packs(told) == packs
    assert told.check(read_data=True).ok


@pytest.mark.limits(SMALL_PARTS)
def test_a_sweep_needs_no_more_room_than_a_part(told: Shadow) -> None:
    """Each old part is removed when its new part exists, not when all of them do."""
    sweep(told)
    told.forget(keep_last=1, gc=False)
    before = measure_packs(told)
    with told._access.locked() as opened:
        largest = max(len(pack.index) + pack.size for pack in opened.objects.packs())

    assert max(sweep(told, is_thorough=True), default=0) <= before + 2 * largest
    assert measure_packs(told) <= before


@pytest.mark.limits(SMALL_PARTS)
def test_a_purge_ends(told: Shadow) -> None:
    (told.worktree / "secret").write_text("secret")
    told.snapshot("secret")
    told.purge("secret")
    packs = list_packs(told)

    assert sweep(told, is_thorough=True) == []
    assert list_packs(told) == packs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.limits(TINY)
def test_git_reads_the_same_after_many_rounds_as_before(shadow: Shadow, worktree: Path, seed: int) -> None:
    """A random history, with tidying, sweeping, merging and git in turns."""
    chance = random.Random(seed)
    story = Story(worktree, shadow.store, seed)
    story.begin(shadow)
    rounds: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "tidy": lambda: shadow.tidy(60),
        "gc": shadow.gc,
        "forget": lambda: shadow.forget(keep_last=12),
        "git gc": lambda: git("--git-dir", shadow.store, "gc", "--quiet", "--prune=now"),
        "git repack": lambda: git("--git-dir", shadow.store, "repack", "-a", "-d", "--quiet"),
        "close": shadow.close,
    }
    for number in range(40):
        story.tell(shadow, number, size=4_000 if number % 11 == 5 else 0)
        before = read_all(shadow.store)
        done = chance.choice(list(rounds))
        rounds[done]()
        after = read_all(shadow.store)
        assert after.items() <= before.items()
        if done not in ("gc", "forget"):
            assert after == before, done
    make_private(shadow.store)
    story.check(most=6)
    story.check_restores()
    assert_git_is_silent(shadow.store)


@pytest.mark.limits(Limits(packs=PackLimits(grace_s=0)))
def test_without_grace_what_git_wrote_goes_at_once(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    loose = write_loose(shadow.store, b"loose")
    time.sleep(0.01)
    shadow.gc()

    assert loose not in read_all(shadow.store)
