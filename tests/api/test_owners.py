"""Owners are not recorded; files that an act writes keep their owner, if this user may set it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.trees import link, make_tree

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def owner_of(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


@pytest.fixture
def theirs(worktree: Path) -> Path:
    """A worktree that belongs to another user."""
    make_tree(worktree, {"edited": "0", "deleted": "0", "link": link("edited"), "d": {"x": "0"}})
    for path in [worktree, *worktree.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return worktree


def test_a_file_that_comes_back_belongs_to_whom_it_belonged(shadow: Shadow, theirs: Path) -> None:
    with shadow.message("m1"):
        (theirs / "edited").write_text("1")

    shadow.undo()

    assert owner_of(theirs / "edited") == (NOBODY, NOBODY)


def test_what_root_makes_again_belongs_to_the_owner_of_the_directory(shadow: Shadow, theirs: Path) -> None:
    with shadow.message("m1"):
        (theirs / "deleted").unlink()
        (theirs / "link").unlink()
        (theirs / "d" / "x").unlink()
        (theirs / "d").rmdir()

    shadow.undo()

    made = [theirs / "deleted", theirs / "link", theirs / "d", theirs / "d" / "x"]
    assert {owner_of(path) for path in made} == {(NOBODY, NOBODY)}
