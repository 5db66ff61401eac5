"""`destroy`: removes a store completely after the folder's name was typed, and never foreign files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import InvalidInput, NotWrapped, Shadow, StoreFailed, list_stores
from shadowtree.all_stores import destroy_store
from shadowtree.base.errors import WorktreeReplaced
from tests.support.daemons import daemon, list_served, serve_kept
from tests.support.referee import assert_sound_store
from tests.support.stores import open_shadow, store_of
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.trees import assert_tree, make_tree


@pytest.fixture
def store(worktree: Path) -> Path:
    """A store with one message."""
    make_tree(worktree, {"a": "1"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m1")
        return shadow.store


def test_a_store_goes_whole_and_the_worktree_stays(worktree: Path, store: Path, stores: Path) -> None:
    size = sum(path.lstat().st_size for path in store.rglob("*") if not path.is_dir())

    with open_shadow(worktree) as shadow:
        assert shadow.destroy() >= size
        assert not shadow.is_wrapped
        assert_tree(worktree, {"a": "1"})
        assert os.listdir(stores) == []

        shadow.track()
        assert shadow.messages() == []
    assert_sound_store(store)


def test_what_is_not_wrapped_cannot_be_destroyed(worktree: Path, tmp_path: Path) -> None:
    with pytest.raises(NotWrapped):
        Shadow(worktree).destroy()
    make_tree(tmp_path / "precious", {"mine": "1"})
    with pytest.raises(InvalidInput, match="is not a store"):
        destroy_store(tmp_path / "precious", timeout_s=0)

    assert_tree(tmp_path / "precious", {"mine": "1"})


@pytest.mark.parametrize("name", ["notes.txt", "objects/notes.txt", "objects/pack/notes", "mine/deep/file"])
def test_something_foreign_in_a_store_keeps_it_whole(worktree: Path, store: Path, name: str) -> None:
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).write_text("mine")

    with pytest.raises(StoreFailed, match=name):
        Shadow(worktree).destroy()
    with pytest.raises(StoreFailed, match=name):
        destroy_store(store, timeout_s=0)

    assert (store / name).read_text() == "mine"
    assert [message.id for message in Shadow(worktree).messages()] == ["m1"]


def test_a_link_in_a_store_keeps_it_whole(worktree: Path, store: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "precious", {"mine": "1"})
    (store / "objects" / "ab").symlink_to(tmp_path / "precious")

    with pytest.raises(StoreFailed, match="objects/ab"):
        Shadow(worktree).destroy()


def test_what_git_made_in_a_store_goes_with_it(worktree: Path, store: Path) -> None:
    for words in (["gc", "-q"], ["pack-refs", "--all"], ["update-server-info"]):
        subprocess.run(["git", "--git-dir", store, *words], check=True)

    Shadow(worktree).destroy()

    assert not store.exists()


def test_what_is_left_of_a_store_is_not_listed(store: Path) -> None:
    store.rename(f"{store}.{os.uname().nodename}-1-01234567.new")

    assert list_stores(os.environ) == []


def test_a_host_that_waits_for_the_lock_is_told_that_the_store_is_gone(worktree: Path, store: Path) -> None:
    waiting = open_shadow(worktree)
    assert waiting.is_wrapped
    with open_shadow(worktree) as shadow:
        shadow.destroy()

    with pytest.raises(NotWrapped):
        waiting.revert("m1")
    assert waiting.undo().notes == ["nothing to undo"]


# The command


def test_destroy_asks_for_the_folders_name(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "m1")
    store = store_of(project)

    refused = terminal.run_json("destroy", exit_code=13)
    assert (refused["error"], refused["freed"]) == ("NotConfirmed", 0)
    assert refused["plan"] == terminal.run_json("destroy", "--dry-run")
    for answer in ("yes\n", "projec\n"):
        shown = run_on_terminal("destroy", answer=answer, exit_code=13)
        assert b"type the folder name, project:" in shown
    assert store.exists()

    shown = run_on_terminal("destroy", answer="project\n")
    assert f"Removed the store of {project} (".encode() in shown
    assert not store.exists()
    terminal.run("destroy", exit_code=10)


def test_destroy_with_yes_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    terminal.run("track")
    store = store_of(project)

    planned = terminal.run_json("destroy", "--dry-run")
    assert store.exists()
    found = terminal.run_json("destroy", "--yes")
    assert (found["store"], found["worktree"]) == (str(store), str(project))
    assert found["freed"] > 0
    assert (planned["dry_run"], found["dry_run"]) == (True, False)
    assert not store.exists()
    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]


def test_destroy_takes_the_store_of_a_worktree_that_is_gone(terminal: Terminal, tmp_path: Path) -> None:
    make_tree(tmp_path / "gone", {"a": "1"})
    with open_shadow(tmp_path / "gone") as shadow:
        shadow.track()
        store = shadow.store
    shutil.rmtree(tmp_path / "gone")

    terminal.run("destroy", "--store", str(store), "--yes")

    assert not store.exists()


@pytest.mark.parametrize("file", ["timeline.db", "shadowtree.json"])
def test_destroy_takes_a_damaged_store(terminal: Terminal, project: Path, file: str) -> None:
    """It says only what it knows: whose store it is may be lost too."""
    terminal.run("track")
    store = store_of(project)
    (store / file).write_bytes(b"nonsense" * 1000)
    known = f"for {project}" if file == "timeline.db" else f"in {store}"
    named = f"the store of {project}" if file == "timeline.db" else f"the store {store}"

    terminal.run("destroy", exit_code=13)
    assert f"everything recorded {known} (an unknown number of messages, " in terminal.err
    assert terminal.run("destroy", "--yes").startswith(f"Removed {named} (")

    assert not store.exists()


def make_identity_newer(store: Path) -> None:
    path = store / "shadowtree.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


def make_identity_newer_with_another_checksum(store: Path) -> None:
    path = store / "shadowtree.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))


def make_timeline_newer(store: Path) -> None:
    with closing(sqlite3.connect(store / "timeline.db")) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "make_newer", [make_identity_newer, make_identity_newer_with_another_checksum, make_timeline_newer]
)
@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"], ["--all", "--yes"]], ids=" ".join)
def test_destroy_refuses_a_store_of_a_newer_version(
    terminal: Terminal, project: Path, make_newer: Callable[[Path], None], more: list[str]
) -> None:
    terminal.run("snapshot", "m1")
    store = store_of(project)
    make_newer(store)

    shown = terminal.run("destroy", *more, exit_code=1)

    assert "has format 99, but this version reads formats up to " in shown + terminal.err
    assert store.exists()


@pytest.fixture
def replaced(terminal: Terminal, project: Path) -> Path:
    """The store of a project that was moved; another project is at its old path."""
    terminal.run("snapshot", "m1")
    project.rename(project.parent / "moved")
    make_tree(project, {"other": "1"})
    os.chdir(project)
    return store_of(project)


@pytest.mark.parametrize(("words", "exit_code"), [(["--yes"], 0), (["--dry-run"], 0), ([], 13)])
def test_the_store_of_a_project_that_was_here_before_can_be_destroyed(
    terminal: Terminal, project: Path, replaced: Path, words: list[str], exit_code: int
) -> None:
    """B11: while nothing is recorded for the new project."""
    terminal.run_json("destroy", *words, exit_code=exit_code)

    assert replaced.exists() == (words != ["--yes"])
    assert_tree(project, {"other": "1"})


def test_python_destroys_no_store_of_another_directory(project: Path, replaced: Path) -> None:
    with pytest.raises(WorktreeReplaced):
        Shadow(project).destroy()

    assert replaced.exists()


def test_a_store_that_is_named_goes_and_the_question_says_whose_it_was(project: Path, replaced: Path) -> None:
    shown = run_on_terminal("destroy", "--store", str(replaced), answer="project\n")

    assert b"Another directory is there now" in shown
    assert not replaced.exists()
    assert_tree(project, {"other": "1"})


def test_the_environment_does_not_make_the_store_of_another_project_go(
    terminal: Terminal, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("track")
    store = store_of(project)
    monkeypatch.setenv("SHADOWTREE_STORE", str(store))
    make_tree(tmp_path / "other", {"a": "1"})

    terminal.run("-C", str(tmp_path / "other"), "destroy", "--yes", exit_code=10)
    assert store.exists()
    terminal.run("-C", str(project), "destroy", "--yes")

    assert not store.exists()


def test_destroy_refuses_what_is_no_store(terminal: Terminal, project: Path) -> None:
    terminal.run("destroy", "--store", str(project), "--yes", exit_code=2)

    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]


def test_the_daemon_lets_go_of_a_store_that_is_destroyed(terminal: Terminal, project: Path) -> None:
    with daemon():
        serve_kept(project)
        assert list_served() == [str(project)]

        terminal.run("destroy", "--yes")

        assert list_served() == []
        assert not store_of(project).exists()
