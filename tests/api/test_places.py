"""Which store belongs to a directory: after a move, and for directories without records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shadowtree import NotWrapped, Shadow
from shadowtree.base.errors import WorktreeMoved
from shadowtree.store.identity import read_identity
from shadowtree.system.syscalls import directory_generation
from tests.support.mounts import mounted_overlay, mounted_tmpfs
from tests.support.stores import SETTINGS, store_of
from tests.support.terminal import Terminal
from tests.support.trees import assert_tree, make_tree


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A project with one message, at its first path."""
    if directory_generation(str(tmp_path)) is None:
        pytest.skip("this file system has no generation numbers")
    old = make_tree(tmp_path / "work" / "old", {"a": "0", "src": {}})
    with Shadow(old, settings=SETTINGS) as shadow, shadow.message("m1"):
        make_tree(old, {"a": "1"})
    return old


def ids(worktree: Path) -> list[str]:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        return [message.id for message in shadow.messages()]


# B5: moved


def test_a_moved_directory_goes_on_by_itself(old: Path, tmp_path: Path) -> None:
    store = store_of(old)
    new = old.rename(tmp_path / "new")

    with Shadow(new, settings=SETTINGS) as shadow:
        shadow.undo()
        assert shadow.recovered == [f"this directory was moved here from {old}; its history is kept"]

    assert_tree(new, {"a": "0", "src": {}})
    assert shadow.store == store_of(new)
    assert not store.exists()
    assert read_identity(str(shadow.store)).worktree == str(new)
    with Shadow(new, settings=SETTINGS) as shadow:
        assert shadow.check().ok
        assert shadow.recovered == []


def test_who_only_reads_does_not_bind_it(old: Path, tmp_path: Path) -> None:
    store = store_of(old)
    new = old.rename(tmp_path / "new")

    with Shadow(new, settings=SETTINGS) as shadow:
        assert [message.id for message in shadow.messages()] == ["m1"]
        assert shadow.status().worktree == str(new)
        assert shadow.undo(dry_run=True).messages == ["m1"]

    assert read_identity(str(store)).worktree == str(old)
    assert not store_of(new).exists()
    new.rename(old)
    assert ids(old) == ["m1"]


def test_a_reader_notices_that_another_process_bound_it(old: Path, tmp_path: Path) -> None:
    new = old.rename(tmp_path / "new")
    with Shadow(new, settings=SETTINGS) as shadow:
        shadow.messages()
        with Shadow(new, settings=SETTINGS) as other:
            other.snapshot("m2")

        assert [message.id for message in shadow.messages()] == ["m1", "m2"]
        shadow.snapshot("m3")

    assert ids(new) == ["m1", "m2", "m3"]


@pytest.mark.parametrize("words", [["wrap"], ["snapshot", "m2"], ["status"], ["-C", "src", "log"]])
def test_a_moved_directory_is_told_in_one_line(
    old: Path, tmp_path: Path, terminal: Terminal, words: list[str]
) -> None:
    new = old.rename(tmp_path / "new")
    os.chdir(new)

    terminal.run(*words)

    assert terminal.err.count("\n") == 1
    assert f"this directory was moved here from {old}" in terminal.err
    assert terminal.run_json("log")[0]["id"] == "m1"


def put_something_there(old: Path) -> None:
    old.mkdir()


def remove_the_parent(old: Path) -> None:
    old.parent.rmdir()


def replace_the_parent(old: Path) -> None:
    old.parent.rename(old.parent.parent / "elsewhere")
    old.parent.mkdir()


@pytest.mark.parametrize("change", [put_something_there, remove_the_parent, replace_the_parent])
def test_a_move_that_cannot_be_proved_is_left_to_the_user(
    old: Path, tmp_path: Path, terminal: Terminal, change: Callable[[Path], None]
) -> None:
    store = store_of(old)
    new = old.rename(tmp_path / "the new one")
    change(old)
    os.chdir(new)

    for words in (["log"], ["begin", "m2"], ["undo"]):
        terminal.run(*words, exit_code=10)
        assert terminal.err.endswith(f"; if it was, run: shadowtree wrap '{new}' --adopt {store}\n")
    with Shadow(new) as shadow, pytest.raises(WorktreeMoved):
        shadow.snapshot("m2")
    terminal.run("wrap", str(new), "--adopt", str(store))

    assert ids(new) == ["m1"]


def test_a_moved_directory_whose_path_cannot_be_shown_is_adopted_from_inside(
    old: Path, tmp_path: Path, terminal: Terminal
) -> None:
    store = store_of(old)
    new = old.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    put_something_there(old)
    os.chdir(new)

    terminal.run("log", exit_code=10)
    command = f"shadowtree wrap . --adopt {store}"
    assert terminal.err.endswith(f"; if it was, change to that directory and run: {command}\n")
    terminal.run(*command.split()[1:])

    assert ids(new) == ["m1"]


def test_two_stores_of_one_directory_are_left_to_the_user(old: Path, tmp_path: Path) -> None:
    shutil.copytree(store_of(old), f"{store_of(old)}-copy")
    new = old.rename(tmp_path / "new")

    with Shadow(new) as shadow, pytest.raises(WorktreeMoved):
        shadow.snapshot("m2")


def test_a_copy_is_another_directory(old: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(old, tmp_path / "copy")
    shutil.rmtree(old)

    assert ids(copy) == []


def test_where_inodes_are_not_stable_the_path_alone_counts(tmp_path: Path) -> None:
    with mounted_overlay(tmp_path / "merged", tmp_path / "layers") as place:
        worktree = make_tree(place / "project", {"a": "1"})
        with Shadow(worktree, settings=SETTINGS) as shadow:
            shadow.snapshot("m1")
        shutil.copytree(worktree, place / "copy")
        shutil.rmtree(worktree)
        (place / "copy").rename(worktree)
        assert ids(worktree) == ["m1"]

        assert ids(worktree.rename(place / "moved")) == []


def test_a_new_directory_with_the_inode_of_the_old_one_is_another(tmp_path: Path) -> None:
    """A tmpfs starts its inode numbers again at each mount, and has no generations."""
    inodes = []
    for text in ("old", "new"):
        with mounted_tmpfs(tmp_path / "memory", "size=1M") as place:
            worktree = make_tree(place / "project", {"a": text})
            inodes.append(worktree.stat().st_ino)
            known = ids(worktree)
            with Shadow(worktree, settings=SETTINGS) as shadow:
                shadow.snapshot(text)
                told = shadow.recovered

    if inodes[0] != inodes[1]:
        pytest.skip("this system counts the inodes of all such file systems together")
    assert known == []
    (sentence,) = told
    assert sentence.startswith("another directory used to be at this path; its history is kept in ")


# B13: inside of a wrapped directory


def test_wrap_inside_a_wrapped_directory_names_the_store_around_it(old: Path, terminal: Terminal) -> None:
    terminal.run("wrap", str(old / "src"))

    assert f"{old}, which contains it, is wrapped too; its store is {store_of(old)}" in terminal.err


# B17: nothing is recorded


def test_a_directory_that_is_not_wrapped_has_an_empty_timeline(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})

    assert [shadow.messages(), shadow.branches(), shadow.sessions(), shadow.diff()] == [[], [], [], []]
    for act in (shadow.undo, shadow.redo, shadow.unrevert):
        outcome = act()
        assert (outcome.messages, outcome.complete, outcome.dry_run) == ([], True, False)
        assert outcome.notes == [f"nothing to {outcome.act}"]
        assert act(dry_run=True).dry_run
    status = shadow.status()
    assert (status.head, status.open, status.undone, status.changed) == (None, None, [], 0)
    assert (shadow.stats().store_bytes, shadow.stats().messages, shadow.du().bytes) == (0, 0, 0)
    assert (shadow.gc().freed, shadow.gc(dry_run=True).freed, shadow.forget().messages) == (0, 0, [])
    assert (shadow.blame("a"), shadow.du_by_session(), shadow.tidy(0)) == ([], [], True)
    assert not shadow.store.parent.exists() or not any(shadow.store.parent.iterdir())


@pytest.mark.parametrize(
    "act",
    [
        lambda shadow: shadow.revert("x"),
        lambda shadow: shadow.plan_revert("x"),
        lambda shadow: shadow.switch("x"),
        lambda shadow: shadow.restore("x"),
        lambda shadow: shadow.show("x"),
        lambda shadow: shadow.diff("x"),
        lambda shadow: shadow.patch("0" * 40),
        lambda shadow: shadow.pin("x"),
        lambda shadow: shadow.drop_session("x"),
    ],
)
def test_a_name_cannot_exist_where_nothing_is_recorded(
    shadow: Shadow, act: Callable[[Shadow], object]
) -> None:
    with pytest.raises(NotWrapped):
        act(shadow)


# B19: the store's disk is full


def test_status_works_while_the_disk_of_the_store_is_full(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with mounted_tmpfs(tmp_path / "small", "size=2m") as place:
        with Shadow(worktree, store=place / "store", settings=SETTINGS) as shadow:
            shadow.snapshot("m1")
        make_tree(worktree, {"a": "2"})
        with suppress(OSError), open(place / "filling", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

        with Shadow(worktree, store=place / "store", settings=SETTINGS) as shadow:
            status = shadow.status()
            assert [message.id for message in shadow.messages()] == ["m1"]

    assert (status.head, status.changed) == ("m1", 1)
    assert status.warnings == [f"nothing can be recorded: no space left on the disk of {place / 'store'}"]


def test_a_shadow_says_which_one_it_is(shadow: Shadow, worktree: Path) -> None:
    assert repr(shadow.for_session("s")) == f"Shadow({str(worktree)!r}, session='s')"
