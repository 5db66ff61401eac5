"""Sweeping: what no live tree needs goes, all else stays, whatever happens in between."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreDamaged
from shadowtree.base.limits import Limits, MarkLimits
from shadowtree.retention.gc import Sweep, sweep_all
from shadowtree.store import git_format
from shadowtree.store.git_format import object_id
from shadowtree.timeline.database import Database
from shadowtree.timeline.live_objects import Marking
from shadowtree.timeline.schema import EVENTS
from tests.support.referee import assert_sound_store, git
from tests.support.watching import forget_youth


def lines(name: str, version: int) -> bytes:
    return b"".join(b"%s %d %d\n" % (name.encode(), line, line % 30 == version % 30) for line in range(60))


def state(worktree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(worktree)): p.read_bytes() for p in sorted(worktree.rglob("*")) if p.is_file()}


def tell(shadow: Shadow, worktree: Path, count: int) -> dict[str, dict[str, bytes]]:
    """Record messages that write, add and remove files; give the state after each."""
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


def test_what_comes_of_it_is_all_that_git_would_keep(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 20)
    shadow.forget(keep_last=3, gc=False)
    run(shadow)

    reachable = git("--git-dir", shadow.store, "rev-list", "--objects", "--all").splitlines()
    stored = git("--git-dir", shadow.store, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    assert {line.split()[0] for line in reachable} == {line.split()[0] for line in stored}


def test_nothing_to_free_frees_nothing_and_leaves_the_shelves(shadow: Shadow, worktree: Path) -> None:
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
    """The cut brought back rows from before the sweep."""
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
    """Record without a directory that others have recorded, until only that is left."""
    with Shadow(worktree, store=store, settings={"min_free": 0, "heavy_dirs": ["hidden"]}) as other:
        for number in range(3):
            (worktree / "a").write_text(f"{number}")
            other.snapshot(f"other{number}")
        other.forget(keep_last=1)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_who_watches_does_not_rely_on_what_another_process_swept(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one has in memory of a directory may be in no tree that is left: the others leave it out."""
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
    """Those that recorded since were killed before they remembered anything."""
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
    """It relied on an object that nothing needed any more when the sweep began."""
    tell(shadow, worktree, 30)
    shadow.forget(keep_last=2, gc=False)
    sweeping = Sweep()
    with shadow._access.locked() as opened:
        sweeping.step(opened)
    with Shadow(worktree, store=shadow.store, settings={"min_free": 0}) as other:
        (worktree / "again").write_text("only in 4")
        tree = other.track()
    has_more = True
    while has_more:
        with shadow._access.locked() as opened:
            has_more = sweeping.step(opened)
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
    has_more = True
    while has_more:
        with shadow._access.locked() as opened:
            has_more = sweeping.step(opened)

    for name in ("m25", "m29"):
        shadow.restore(name)
        assert state(worktree) == states[name]


@pytest.mark.parametrize("swept", [12, None])
def test_what_is_forgotten_between_two_steps_leaves_the_chain_before_it_goes(
    shadow: Shadow, worktree: Path, swept: int | None
) -> None:
    """Be it known to the sweep, and kept by other commits since, or recorded since."""
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
    has_more = True
    while has_more:
        with shadow._access.locked() as opened:
            has_more = sweeping.step(opened)

    assert shadow.check().ok
    assert_sound_store(shadow.store)


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
        opened.journal.packs.remove([victim])
    for suffix in (".pack", ".idx"):
        (packs / f"{victim}{suffix}").rename(tmp_path / f"{victim}{suffix}")
    before = sorted(os.listdir(packs))
    with pytest.raises(StoreDamaged):
        run(shadow)

    assert sorted(os.listdir(packs)) == before
    for suffix in (".pack", ".idx"):
        (tmp_path / f"{victim}{suffix}").rename(packs / f"{victim}{suffix}")


def test_what_real_git_made_of_the_store_is_swept_too(shadow: Shadow, worktree: Path) -> None:
    """Its packs, with its own deltas, its lists, and loose objects."""
    states = tell(shadow, worktree, 20)
    git("--git-dir", shadow.store, "gc", "--quiet", "--prune=now")
    loose = git("--git-dir", shadow.store, "hash-object", "-w", "--stdin", cwd=worktree)
    git("--git-dir", shadow.store, "pack-refs", "--all")
    git("--git-dir", shadow.store, "multi-pack-index", "write")
    shadow.forget(keep_last=4, gc=False)
    run(shadow)

    assert_sound_store(shadow.store)
    assert not (shadow.store / "objects" / loose[:2] / loose[2:]).exists()
    assert all(path.stat().st_mode & 0o200 for path in (shadow.store / "objects" / "pack").glob("*.pack"))
    for name in ("m16", "m19"):
        shadow.restore(name)
        assert state(worktree) == states[name]


def test_packs_of_git_that_are_not_read_only_any_more_are_swept_too(shadow: Shadow, worktree: Path) -> None:
    """A copy of the store, or a backup, does not always keep modes."""
    states = tell(shadow, worktree, 20)
    git("--git-dir", shadow.store, "gc", "--quiet", "--prune=now")
    for path in shadow.store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    shadow.forget(keep_last=4)

    assert shadow.forget(keep_last=4).removed == 0
    for name in ("m16", "m19"):
        shadow.restore(name)
        assert state(worktree) == states[name]


def test_a_version_with_the_same_names_is_not_taken_apart(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marking takes time by what changed in a directory, and not by what is in it."""
    (worktree / "one" / "two").mkdir(parents=True)
    for name in ("a", "one/b", "one/two/c"):
        (worktree / name).write_text("0")
    for number in range(20):
        (worktree / "one/two/c").write_text(f"{number}")
        shadow.snapshot(f"m{number}")
    taken_apart: list[bytes] = []
    real = git_format._find_ends

    def find_ends(content: bytes) -> list[int]:
        taken_apart.append(content)
        return real(content)

    monkeypatch.setattr(git_format, "_find_ends", find_ends)
    shadow.gc()

    # What is kept, the root of files, and of facts, and the two directories.
    assert len(taken_apart) <= 5


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
    shadow.gc()

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


@pytest.mark.parametrize("setting", MarkLimits.__match_args__)
def test_what_is_marked_does_not_depend_on_what_there_is_room_for(
    shadow: Shadow, worktree: Path, setting: str
) -> None:
    tell(shadow, worktree, 30)
    run(shadow)
    with shadow._access.locked() as opened:
        newest_first = list(opened.journal.live_trees())[::-1]
        usual, other = Marking(opened.objects), Marking(opened.objects, MarkLimits(**{setting: 100}))
        usual.add(newest_first)
        other.add(newest_first)

    assert len(usual.live) > 100
    assert (other.live, other.before) == (usual.live, usual.before)
