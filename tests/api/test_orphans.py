"""Stores whose worktrees are gone: when that is certain, and what is kept in any doubt."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Shadow, list_stores
from shadowtree.all_stores import describe_store, find_volume_doubt, remove_orphans
from shadowtree.base.frozen import replace
from shadowtree.results.reports import KnownStore
from shadowtree.store.identity import Anchor, find_anchor, read_anchor
from shadowtree.store.lock import Lock
from shadowtree.timeline.journal import Journal
from tests.support.mounts import mounted_ext4, mounted_tmpfs
from tests.support.stores import open_shadow
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.trees import make_tree

STRANGER = 65534
HERE = Anchor(inode=7, generation=1, file_system=9, is_mount=False)


def _wrap(worktree: Path) -> Path:
    make_tree(worktree, {"a": "1"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m1")
        return shadow.store


def _only_store() -> KnownStore:
    (known,) = list_stores(os.environ)
    return known


# The rule


def test_a_worktree_that_was_taken_from_the_same_directory_is_gone() -> None:
    assert find_volume_doubt(HERE, HERE) is None


@pytest.mark.parametrize(
    ("anchor", "above", "doubt"),
    [
        (HERE, None, "its parent directory is missing"),
        (None, HERE, "earlier version"),
        (replace(HERE, is_mount=True), HERE, "mount point"),
        (HERE, replace(HERE, inode=8), "volume may not be mounted"),
        (HERE, replace(HERE, generation=2), "volume may not be mounted"),
        (HERE, replace(HERE, generation=None), "volume may not be mounted"),
        (HERE, replace(HERE, file_system=8), "volume may not be mounted"),
        (replace(HERE, file_system=None), replace(HERE, file_system=None), "volume may not be mounted"),
    ],
)
def test_any_doubt_keeps_a_store(anchor: Anchor | None, above: Anchor | None, doubt: str) -> None:
    found = find_volume_doubt(anchor, above)

    assert found is not None
    assert doubt in found


# Real directories


def test_stores_are_listed_with_their_worktrees(worktree: Path, tmp_path: Path) -> None:
    store = _wrap(worktree)
    known = _only_store()

    assert (known.store, known.worktree, known.state) == (str(store), str(worktree), "there")
    assert known.messages == 1
    assert known.bytes == sum(path.lstat().st_size for path in store.rglob("*") if not path.is_dir())
    assert known.used_ms is not None
    assert not known.is_orphan


def test_without_stores_nothing_is_listed_or_made(stores: Path) -> None:
    assert list_stores(os.environ) == []
    assert remove_orphans(os.environ).removed == []
    assert not stores.exists()


def test_what_is_above_a_worktree_is_written_down(worktree: Path) -> None:
    anchor = read_anchor(str(_wrap(worktree)))

    assert anchor is not None
    assert anchor == find_anchor(str(worktree))
    assert anchor.inode == worktree.parent.stat().st_ino
    assert not anchor.is_mount


def test_the_store_of_a_deleted_worktree_is_removed(worktree: Path, tmp_path: Path, stores: Path) -> None:
    store = _wrap(worktree)
    kept = _wrap(tmp_path / "other")
    shutil.rmtree(worktree)
    size = describe_store(store).bytes

    planned = remove_orphans(os.environ, dry_run=True)
    assert (planned.removed, planned.freed) == ([str(store)], size)
    assert store.exists()

    done = remove_orphans(os.environ)
    assert (done.removed, done.freed, done.kept) == ([str(store)], size, [])
    assert os.listdir(stores) == [kept.name]


def test_nobody_is_asked_about_nothing_and_a_no_keeps_all(worktree: Path) -> None:
    store = _wrap(worktree)
    remove_orphans(os.environ, confirm=lambda orphans: pytest.fail("nothing is to go"))
    shutil.rmtree(worktree)

    def refuse(orphans: list[KnownStore]) -> bool:
        assert [known.store for known in orphans] == [str(store)]
        return False

    removal = remove_orphans(os.environ, confirm=refuse)

    assert removal.removed == []
    assert store.exists()


def test_a_worktree_that_was_renamed_keeps_its_store(worktree: Path) -> None:
    store = _wrap(worktree)
    worktree.rename(worktree.parent / "renamed")

    (kept,) = remove_orphans(os.environ).kept
    assert "renamed to" in (kept.doubt or "")
    assert str(worktree.parent / "renamed") in (kept.doubt or "")
    assert store.exists()


def test_a_store_in_which_an_act_was_interrupted_is_kept(worktree: Path) -> None:
    store = _wrap(worktree)
    with closing(Journal(str(store / "timeline.db"))) as journal:
        journal.add_intent(b"an act")
    shutil.rmtree(worktree)

    assert "interrupted" in (_only_store().doubt or "")
    assert remove_orphans(os.environ).removed == []


def test_another_directory_at_the_path_keeps_the_store(worktree: Path) -> None:
    _wrap(worktree)
    worktree.rename(worktree.parent / "renamed")
    worktree.mkdir()

    assert _only_store().state == "replaced"
    assert remove_orphans(os.environ).removed == []


def test_a_directory_above_that_is_gone_or_another_one_keeps_the_store(tmp_path: Path) -> None:
    above = tmp_path / "above"
    store = _wrap(above / "worktree")
    above.rename(tmp_path / "elsewhere")
    assert remove_orphans(os.environ).removed == []

    above.mkdir()
    assert "its parent directory was replaced" in (_only_store().doubt or "")
    assert remove_orphans(os.environ).removed == []
    assert store.exists()


def test_a_store_without_an_anchor_is_kept(worktree: Path) -> None:
    store = _wrap(worktree)
    config = store / "config"
    config.write_text(config.read_text().partition("[shadowtree]")[0])
    shutil.rmtree(worktree)

    assert "earlier version" in (_only_store().doubt or "")


def test_a_store_that_cannot_be_read_is_listed_and_kept(worktree: Path) -> None:
    store = _wrap(worktree)
    (store / "shadowtree.json").write_text("nonsense")
    shutil.rmtree(worktree)

    known = _only_store()
    assert (known.worktree, known.state) == (None, "unknown")
    assert "cannot be read" in (known.doubt or "")
    assert remove_orphans(os.environ).removed == []


def test_a_store_in_use_is_kept(worktree: Path) -> None:
    store = _wrap(worktree)
    shutil.rmtree(worktree)

    with Lock(str(store / "lock"), 0):
        (kept,) = remove_orphans(os.environ).kept
    assert kept.doubt == "it is in use"
    assert remove_orphans(os.environ).removed == [str(store)]


def test_a_store_with_something_foreign_in_it_is_kept(worktree: Path) -> None:
    store = _wrap(worktree)
    (store / "notes.txt").write_text("mine")
    shutil.rmtree(worktree)

    (kept,) = remove_orphans(os.environ).kept
    assert "notes.txt" in (kept.doubt or "")
    assert (store / "notes.txt").read_text() == "mine"


def test_an_adopted_store_has_the_anchor_of_its_new_place(worktree: Path, tmp_path: Path) -> None:
    store = _wrap(worktree)
    (tmp_path / "new").mkdir()
    moved = worktree.rename(tmp_path / "new" / "place")
    with Shadow.adopt(moved, store) as shadow:
        adopted = shadow.store
    shutil.rmtree(moved)

    assert remove_orphans(os.environ).removed == [str(adopted)]


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A store in our directory of stores that another user owns."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    store = _wrap(tmp_path / "strange")
    os.chown(store, STRANGER, STRANGER)
    return store


def test_a_store_of_another_user_is_listed_as_that_and_nothing_in_it_is_read(
    worktree: Path, strange: Path
) -> None:
    _wrap(worktree)

    ours, theirs = list_stores(os.environ)
    assert (ours.worktree, ours.is_trusted) == (str(worktree), True)
    assert (theirs.store, theirs.worktree, theirs.state) == (str(strange), None, "unknown")
    assert (theirs.is_trusted, theirs.is_orphan, theirs.bytes) == (False, False, 0)
    assert f"user {STRANGER} owns it" in (theirs.doubt or "")


def test_a_store_that_others_can_write_to_is_listed_as_that(worktree: Path) -> None:
    _wrap(worktree).chmod(0o770)

    known = _only_store()
    assert not known.is_trusted
    assert "other users can write to it" in (known.doubt or "")


def test_a_store_that_goes_meanwhile_is_not_listed(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _wrap(worktree)
    monkeypatch.setattr(
        "shadowtree.store.directory.list_all", lambda directory: [str(store), str(store.parent / "gone")]
    )

    assert _only_store().store == str(store)


# Volumes


def test_a_volume_that_is_not_mounted_is_no_evidence(tmp_path: Path) -> None:
    """Files below an empty mount point are not gone."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    with mounted_ext4(mount, image):
        store = _wrap(mount / "worktree")

    (kept,) = remove_orphans(os.environ).kept
    assert "volume may not be mounted" in (kept.doubt or "")
    with mounted_tmpfs(mount, "size=1M"):
        assert remove_orphans(os.environ).removed == [], "another volume is mounted there"
    with mounted_ext4(mount, tmp_path / "image 2"):
        assert remove_orphans(os.environ).removed == [], "another one, with the same inode numbers"
    with mounted_ext4(mount, image):
        assert _only_store().state == "there"
        shutil.rmtree(mount / "worktree")
        assert remove_orphans(os.environ).removed == [str(store)]


def test_a_worktree_that_was_a_mount_point_keeps_its_store(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    with mounted_tmpfs(mount, "size=4M"):
        _wrap(mount)
    mount.rmdir()

    assert "mount point" in (_only_store().doubt or "")
    assert remove_orphans(os.environ).removed == []


# The commands


def test_stats_lists_all_stores(terminal: Terminal, project: Path, tmp_path: Path) -> None:
    terminal.run("track")
    gone = _wrap(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")

    found = {each["worktree"]: each for each in terminal.run_json("stats", "--all")}
    assert found[str(project)]["state"] == "there"
    assert found[str(project)]["orphan"] is False
    assert found[str(tmp_path / "gone")]["orphan"] is True
    assert found[str(tmp_path / "gone")]["used"].endswith("+00:00")
    lines = terminal.run("-C", str(tmp_path), "stats", "--all").splitlines()
    assert len(lines) == 3
    assert f"({gone}): gone; to remove it, run 'shadowtree gc --orphans'" in "\n".join(lines)


def test_gc_removes_orphans_after_a_yes(terminal: Terminal, project: Path, tmp_path: Path) -> None:
    assert terminal.run("gc", "--orphans") == "No stores removed\n"
    store = _wrap(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")

    planned = terminal.run_json("gc", "--orphans", "--dry-run")
    assert planned["removed"] == [str(store)]
    refused = terminal.run_json("gc", "--orphans", exit_code=13)
    assert (refused["error"], refused["removed"], refused["plan"]) == ("NotConfirmed", [], planned)
    assert store.exists()
    asked = run_on_terminal("gc", "--orphans", answer="n\n", exit_code=13)
    assert b"Continue?" in asked
    assert b"If one was only moved, run 'shadowtree wrap' there first." in asked
    assert "only moved" in terminal.run("gc", "--orphans", "--dry-run")
    assert store.exists()
    assert terminal.run_json("gc", "--orphans", "--yes")["removed"] == [str(store)]
    assert not store.exists()


def test_a_store_of_another_user_keeps_no_other_one_from_being_told_of(
    terminal: Terminal, project: Path, strange: Path
) -> None:
    terminal.run("track")

    found = {each["store"]: each for each in terminal.run_json("stats", "--all")}
    assert found.pop(str(strange))["trusted"] is False
    assert [each["trusted"] for each in found.values()] == [True]
    told = terminal.run("stats", "--all")
    assert str(project) in told
    assert f"{strange} is not safe to use: user {STRANGER} owns it" in told
    assert told.endswith("; 1 could not be read\n")


def test_a_store_of_another_user_keeps_no_orphan_from_being_removed(
    terminal: Terminal, strange: Path, tmp_path: Path
) -> None:
    orphan = _wrap(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")

    assert terminal.run_json("gc", "--orphans", "--dry-run", exit_code=1)["removed"] == [str(orphan)]
    found = terminal.run_json("gc", "--orphans", "--yes", exit_code=1)
    assert found["removed"] == [str(orphan)]
    assert [each["store"] for each in found["kept"]] == [str(strange)]
    assert terminal.err == "shadowtree: 1 store could not be read\n"
    assert strange.exists()
    assert not orphan.exists()


def test_gc_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    terminal.run("track")

    assert set(terminal.run_json("gc")) == {"removed", "freed"}
    assert terminal.run("gc", "--dry-run").startswith("Would free ")
    planned = terminal.run_json("gc", "--dry-run")
    assert planned["removed"] is None
    assert planned["freed"] >= 0
