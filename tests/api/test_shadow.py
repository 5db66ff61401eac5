"""Stories through `Shadow`."""

from __future__ import annotations

from pathlib import Path

from shadowtree import Shadow
from tests.support.referee import git_tree
from tests.support.trees import executable, link, make_tree


def test_the_tree_id_is_the_one_that_git_gives(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b.sh": executable("2")}, "ln": link("a"), "empty": {}})

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")
