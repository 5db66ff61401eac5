"""What random histories found, each as small as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shadowtree import Conflict, Shadow
from tests.trees import assert_tree, make_tree

if TYPE_CHECKING:
    from shadowtree.outcome import OnConflict

BIG = "x" * 100


@pytest.fixture
def small(worktree: Path) -> Iterator[Shadow]:
    """A shadow that takes only small files."""
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 64}) as shadow:
        yield shadow


@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_restore_leaves_a_file_alone_that_is_too_big_to_be_covered(
    small: Shadow, worktree: Path, on_conflict: OnConflict
) -> None:
    make_tree(worktree, {"a": "1"})
    tree = small.track()
    make_tree(worktree, {"a": "2", "data": BIG})

    small.restore(tree, on_conflict=on_conflict)

    assert_tree(worktree, {"a": "1", "data": BIG})


def test_an_ignored_directory_that_was_there_before_stays(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "build/\n", "build": {}})
    with shadow.message("m1"):
        (worktree / ".gitignore").unlink()

    shadow.undo()

    assert_tree(worktree, {".gitignore": "build/\n", "build": {}})


def test_what_is_in_no_patch_is_not_undone(small: Shadow, worktree: Path) -> None:
    with small.message("m1"):
        make_tree(worktree, {"a": BIG})
    make_tree(worktree, {"a": "the user's"})
    small.snapshot("m2")
    assert [message.patch.files for message in small.messages()] == [[], []]

    outcome = small.undo(2)

    assert_tree(worktree, {"a": "the user's"})
    assert [skipped.path for skipped in outcome.skipped] == ["a"]


def test_an_edit_made_while_no_rule_covered_it_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    with shadow.message("m2"):
        make_tree(worktree, {".gitignore": "a\n"})
    make_tree(worktree, {"a": "the user's"})
    with shadow.message("m3"):
        (worktree / ".gitignore").unlink()

    with pytest.raises(Conflict):
        shadow.undo(3)
    assert_tree(worktree, {"a": "the user's"})


def test_unrevert_twice_with_a_message_in_between(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "b": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"b": "1"})
    shadow.undo()
    with shadow.message("m2"):
        make_tree(worktree, {"a": "2"})
    shadow.undo()
    with shadow.message("m3"):
        make_tree(worktree, {"a": "3"})

    shadow.unrevert()
    assert_tree(worktree, {"a": "2", "b": "0"})
    shadow.unrevert()
    assert_tree(worktree, {"a": "0", "b": "1"})


def test_redo_leaves_alone_what_is_in_no_patch(small: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": BIG, "b": "0"})
    with small.message("m1"):
        (worktree / "a").unlink()
        make_tree(worktree, {"b": "1"})
    small.undo()
    make_tree(worktree, {"a": "the user's"})

    small.redo(on_conflict="overwrite")

    assert_tree(worktree, {"a": "the user's", "b": "1"})


def test_redo_after_an_undo_that_found_a_path_as_it_was_wished(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "1"})
    (worktree / "a").unlink()
    shadow.undo()

    shadow.redo()

    assert_tree(worktree, {"a": "1", "b": "1"})


def test_an_edit_that_an_act_replaced_is_not_in_the_way_for_ever(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "the user's"})
    shadow.undo(on_conflict="overwrite")
    shadow.redo()

    shadow.undo()

    assert_tree(worktree, {"a": "0"})


def test_an_edit_that_unrevert_brought_back_is_in_the_way_again(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "the user's"})
    shadow.undo(on_conflict="overwrite")
    shadow.unrevert()

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"a": "the user's"})


def test_permission_bits_of_a_file_with_two_names_come_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    (worktree / "b").hardlink_to(worktree / "a")
    with shadow.message("m1"):
        (worktree / "a").chmod(0o600)

    shadow.undo()

    assert_tree(worktree, {"a": "1", "b": "1"})


def test_what_another_session_undid_meanwhile_is_not_this_message_s(worktree: Path) -> None:
    make_tree(worktree, {"p": "0"})
    settings = {"min_free": 0}
    with (
        Shadow(worktree, session="a", settings=settings) as a,
        Shadow(worktree, session="b", settings=settings) as b,
    ):
        with b.message("n1"):
            make_tree(worktree, {"p": "1"})
        a.begin("m1")
        make_tree(worktree, {"z": "1"})
        b.undo()
        message = a.end()

        assert [changed.path for changed in message.patch.files] == ["z"]
        a.undo()
    assert_tree(worktree, {"p": "0"})
