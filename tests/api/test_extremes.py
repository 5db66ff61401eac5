"""Worktrees at the limits of what a file system can hold, and directories that must not be wrapped."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shadowtree import Shadow, UnsafePath
from tests.support.referee import git
from tests.support.stores import SETTINGS
from tests.support.trees import make_tree

DEEP = 1100


def go_deep(top: Path, name: str = "d") -> None:
    """Make directories inside each other and a file in the last one; no path can name it in one go."""
    before = os.getcwd()
    os.chdir(top)
    try:
        for _ in range(DEEP):
            os.makedirs(name, exist_ok=True)
            os.chdir(name)
        Path("f").write_text("deep")
    finally:
        os.chdir(before)


def test_an_undo_reaches_any_depth(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.wrap()
        with shadow.message("m1"):
            go_deep(worktree)

        assert shadow.undo().complete
        assert os.listdir(worktree) == ["a"]
        assert shadow.redo().complete
        assert shadow.status().open is None
    subprocess.run(["rm", "-rf", worktree / "d"], check=True)  # Python's own way recurses.


@pytest.mark.parametrize("seconds", [13_569_465_600, -9_300_000_000])
def test_a_file_may_have_any_time(worktree: Path, tmp_path: Path, seconds: int) -> None:
    make_tree(worktree, {"a": "1", "sub": {"f": "1"}})
    times = (seconds * 10**9, seconds * 10**9)
    os.utime(worktree / "sub" / "f", ns=times)
    os.utime(worktree / "sub", ns=times)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.wrap()
        with shadow.message("m1"):
            (worktree / "sub" / "f").write_text("2")
            os.utime(worktree / "sub" / "f", ns=times)
        assert [changed.path for changed in shadow.show("m1")[0].patch.files] == ["sub/f"]
        shadow.undo()

    assert (worktree / "sub" / "f").read_text() == "1"


@pytest.mark.parametrize("place", [".git", ".git/hooks", "bare.git", "bare.git/refs"])
def test_a_git_directory_is_never_wrapped(worktree: Path, place: str) -> None:
    git("init", "--quiet", cwd=worktree)
    git("init", "--quiet", "--bare", "bare.git", cwd=worktree)
    inside = worktree / place
    inside.mkdir(exist_ok=True)

    with Shadow(inside, settings=SETTINGS, allow_broad=True) as shadow, pytest.raises(UnsafePath):
        shadow.begin("m1")

    assert not shadow.store.exists()


def test_a_worktree_inside_a_git_directory_is_one(worktree: Path) -> None:
    git("init", "--quiet", cwd=worktree)
    git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=worktree)
    git("worktree", "add", "--quiet", worktree / ".git" / "linked", cwd=worktree)

    with Shadow(worktree / ".git" / "linked", settings=SETTINGS) as shadow:
        shadow.snapshot("m1")
