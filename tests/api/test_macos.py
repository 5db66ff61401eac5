"""Differences on macOS, simulated on Linux: folded names, no leases, no syncfs, F_FULLFSYNC."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from shadowtree import Conflict, Shadow, WorktreeFailed
from shadowtree.timeline.sqlite.database import Database
from tests.support.macos import FULL_SYNC, be_macos
from tests.support.sweeps import sweep_kills
from tests.support.trees import Tree, assert_tree, file, make_tree

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the fake lists by descriptor")

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.fixture(autouse=True)
def _macos(monkeypatch: pytest.MonkeyPatch) -> None:
    be_macos(monkeypatch)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"Readme": "one\n"}, {"README": "one\n"}),
        ({"Readme": "one\n"}, {"README": "two\n"}),
        ({"Readme": file("one\n", 0o600)}, {"README": file("one\n", 0o755)}),
        ({COMPOSED: "one\n"}, {DECOMPOSED: "one\n"}),
        ({"Dir": {"a": "1"}}, {"dir": {"a": "1"}}),
        ({"Dir": {"a": "1", "B": "2"}}, {"dir": {"A": "3", "b": "2"}}),
        ({"Dir": {}}, {"dir": {}}),
        ({"name": "file"}, {"NAME": {"a": "1"}}),
    ],
    ids=["same", "edited", "mode", "normalised", "directory", "both", "empty", "to a directory"],
)
def test_a_name_that_changed_only_its_case_comes_back(
    worktree: Path, shadow: Shadow, before: Tree, after: Tree
) -> None:
    make_tree(worktree, before)
    with shadow.message("m"):
        _replace(worktree, after)

    shadow.undo()
    assert_tree(worktree, before)
    shadow.redo()
    assert_tree(worktree, after)
    shadow.unrevert()
    assert_tree(worktree, before)


def test_a_kill_while_a_name_changes_its_case_loses_nothing(worktree: Path, tmp_path: Path) -> None:
    """Recovery must not take the file under its new name for the one under its old name, and remove it."""
    before: Tree = {"Readme": "one\n", "Dir": {"a": "1"}}
    after: Tree = {"README": "one\n", "dir": {"a": "1"}}
    settings = {"min_free": 0}
    make_tree(worktree, before)
    with Shadow(worktree, settings=settings) as shadow, shadow.message("m"):
        _replace(worktree, after)

    def go_back() -> None:
        with Shadow(worktree, settings=settings) as shadow:
            shadow.status()
            shadow.redo()

    def undo() -> None:
        with Shadow(worktree, settings=settings) as shadow:
            shadow.undo()

    def look() -> None:
        with Shadow(worktree, settings=settings) as shadow:
            shadow.status()
            is_undone = bool(shadow.status().undone)
        assert_tree(worktree, before if is_undone else after)

    assert sweep_kills(go_back, undo, look) > 15


def test_what_you_renamed_is_a_conflict_and_stays(worktree: Path, shadow: Shadow) -> None:
    make_tree(worktree, {"Readme": "one\n"})
    with shadow.message("m"):
        make_tree(worktree, {"Readme": "two\n"})
    (worktree / "Readme").rename(worktree / "README")

    with pytest.raises(Conflict):
        shadow.undo()

    assert_tree(worktree, {"README": "two\n"})


def test_a_name_by_another_spelling_in_an_ignored_directory_is_not_taken_for_it(
    worktree: Path, shadow: Shadow
) -> None:
    make_tree(worktree, {".gitignore": "build/\n"})
    with shadow.message("m"):
        make_tree(worktree, {"Build": {"a": "made\n"}})
    shadow.undo()
    make_tree(worktree, {"build": {"a": "yours\n"}})

    with pytest.raises(Conflict):
        shadow.redo()

    assert_tree(worktree, {".gitignore": "build/\n", "build": {"a": "yours\n"}})


def test_an_open_file_is_replaced_where_nobody_tells_who_writes(worktree: Path, shadow: Shadow) -> None:
    make_tree(worktree, {"log": "one\n"})
    with shadow.message("m"):
        make_tree(worktree, {"log": "two\n"})

    with (worktree / "log").open("a"):
        shadow.undo()

    assert_tree(worktree, {"log": "one\n"})


# Syncing


class Syncs:
    """Records how files are synced; `code` is the result of F_FULLFSYNC."""

    def __init__(self, patch: pytest.MonkeyPatch, code: int = 0) -> None:
        self.full = self.plain = 0
        self._code = code
        self._fcntl, self._fsync = fcntl.fcntl, os.fsync
        patch.setattr(fcntl, "fcntl", self._control)
        patch.setattr(os, "fsync", self._sync)

    def _control(self, fd: int, command: int, *rest: int) -> object:
        if command != FULL_SYNC:
            return self._fcntl(fd, command, *rest)
        if self._code:
            raise OSError(self._code, os.strerror(self._code))
        self.full += 1
        return 0

    def _sync(self, fd: int) -> None:
        self.plain += 1
        self._fsync(fd)


def test_every_sync_waits_for_the_drive(
    worktree: Path, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    make_tree(worktree, {"a": "1"})
    with shadow.message("m"):
        make_tree(worktree, {"a": "2"})
    recorded = syncs.full
    shadow.undo()

    assert recorded
    assert syncs.full > recorded
    assert not syncs.plain


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_full_syncs_is_synced_as_elsewhere(
    worktree: Path, shadow: Shadow, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    syncs = Syncs(monkeypatch, code)
    make_tree(worktree, {"a": "1"})
    shadow.snapshot("m")

    assert syncs.plain


def test_a_full_sync_that_fails_is_an_error(
    worktree: Path, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "1"})
    with shadow.message("m"):
        make_tree(worktree, {"a": "2"})
    with monkeypatch.context() as patch:
        syncs = Syncs(patch, errno.EIO)
        with pytest.raises(WorktreeFailed):
            shadow.undo()

    assert not syncs.plain
    shadow.status()
    assert_tree(worktree, {"a": "2"})


def test_the_timeline_is_synced_so_too(
    worktree: Path, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite makes system calls itself, so it must be configured."""
    monkeypatch.setattr("shadowtree.timeline.sqlite.database.IS_MAC", True)
    shadow.snapshot("m")
    database = Database(str(shadow.store / "timeline.db"))
    said = [database.rows(f"PRAGMA {name}") for name in ("fullfsync", "checkpoint_fullfsync")]
    database.close()

    assert said == [[(1,)], [(1,)]]


def _replace(worktree: Path, tree: Tree) -> None:
    """Remove everything, and write another tree."""
    for path in list(worktree.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    make_tree(worktree, tree)
