"""Ignore files that cannot be read: no act replaces or deletes what they may leave out.

Until then snapshots cover more than they should, and warn. Acts that depend on that are refused.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowtree import Shadow, WorktreeFailed
from shadowtree.base.limits import Limits
from tests.support.referee import files_in, init
from tests.support.sweeps import fail_calls
from tests.support.trees import Tree, assert_tree, make_tree

RULES = {"own": ".shadowtreeignore", "git": ".gitignore"}
LATER = lambda: time.time_ns() + 3_600_000_000_000  # noqa: E731  # files count as old at once
rules = pytest.mark.parametrize("name", RULES.values(), ids=RULES)


@contextmanager
def unreadable(name: str, code: int = errno.EIO) -> Iterator[None]:
    """Simulate a disk that cannot read the files of one name."""
    with pytest.MonkeyPatch.context() as patch:
        fail_calls(patch, "open", name.encode(), code)
        yield


def ignore_later(shadow: Shadow, worktree: Path, name: str) -> Tree:
    """Record a message; then somebody writes a rule and a file that it leaves out."""
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    later: Tree = {"a": "1", name: "*.log\n", "build.log": "ignored"}
    make_tree(worktree, later)
    return later


@rules
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_restore_refuses_while_rules_cannot_be_read(
    shadow: Shadow, worktree: Path, name: str, code: int
) -> None:
    later = ignore_later(shadow, worktree, name)
    with unreadable(name, code), pytest.raises(WorktreeFailed) as caught:
        shadow.restore("m1^")

    assert name in str(caught.value)
    assert_tree(worktree, later)
    outcome = shadow.restore("m1^")
    assert "build.log" not in outcome.deleted
    assert_tree(worktree, {"a": "0", "build.log": "ignored"})


@pytest.mark.limits(Limits(file_clock_ns=LATER))
def test_rules_of_one_directory_stop_only_what_changes_below_it(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "s": {".gitignore": "*.log\n", "x": "0"}})
    tree = shadow.track()
    make_tree(worktree, {"a": "1", "s": {"new.log": "ignored"}})
    with unreadable(".gitignore"):
        outcome = shadow.restore(tree)

    assert outcome.restored == ["a"]
    assert_tree(worktree, {"a": "0", "s": {".gitignore": "*.log\n", "x": "0", "new.log": "ignored"}})


@rules
def test_an_open_message_is_not_undone_while_rules_cannot_be_read(
    shadow: Shadow, worktree: Path, name: str
) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.begin("m1")
    later: Tree = {"a": "1", name: "*.log\n", "build.log": "ignored"}
    make_tree(worktree, later)
    with unreadable(name), pytest.raises(WorktreeFailed):
        shadow.undo()

    assert_tree(worktree, later)
    shadow.undo()
    assert_tree(worktree, {"a": "0", "build.log": "ignored"})


ACTS: dict[str, Callable[[Shadow], object]] = {
    "undo": lambda shadow: shadow.undo(),
    "revert": lambda shadow: shadow.revert("m2"),
    "only": lambda shadow: shadow.revert("m2", only=True),
    "switch": lambda shadow: shadow.switch("m1"),
}


@rules
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_recorded_messages_did_is_undone_whatever_the_rules_are(
    shadow: Shadow, worktree: Path, name: str, act: Callable[[Shadow], object]
) -> None:
    later = ignore_later(shadow, worktree, name)
    with shadow.message("m2"):
        make_tree(worktree, {"a": "2"})
    with unreadable(name):
        act(shadow)
        assert_tree(worktree, later)
        shadow.unrevert()
        assert_tree(worktree, {**later, "a": "2"})
        shadow.undo()
        shadow.redo()

    assert_tree(worktree, {**later, "a": "2"})


@rules
@pytest.mark.parametrize("watch", [False, True], ids=["scanned", "watched"])
@pytest.mark.limits(Limits(file_clock_ns=LATER))
def test_rules_count_again_as_soon_as_they_can_be_read(worktree: Path, name: str, watch: bool) -> None:
    make_tree(worktree, {"a": "0", "s": {"b": "0"}, name: "*.log\n", "build.log": "ignored"})
    covered = {"a", name, "s/b"}
    with Shadow(worktree, settings={"min_free": 0}, watch=watch) as shadow:
        shadow.track()
        make_tree(worktree, {"s": {"new": "1"}, "more": "1"})
        with unreadable(name):
            without = shadow.take_snapshot()
        again = shadow.take_snapshot()

    assert any(name in warning for warning in without.warnings)
    assert "build.log" in files_in(shadow.store, without.tree)
    assert again.warnings == []
    assert set(files_in(shadow.store, again.tree)) == covered | {"s/new", "more"}


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE], ids=errno.errorcode.get)
def test_restore_does_not_pass_over_a_link_that_cannot_be_read(
    shadow: Shadow, worktree: Path, code: int
) -> None:
    """It is not in the tree and should be removed; its content is unknown, so the outcome is incomplete."""
    make_tree(worktree, {"a": "0"})
    tree = shadow.track()
    (worktree / "new").symlink_to("a")
    with pytest.MonkeyPatch.context() as patch:
        fail_calls(patch, "readlink", b"new", code)
        if code == errno.EMFILE:
            with pytest.raises(WorktreeFailed):
                shadow.restore(tree)
        else:
            outcome = shadow.restore(tree)
            assert [each.path for each in outcome.skipped] == ["new"]
            assert not outcome.complete

    assert (worktree / "new").is_symlink()


def test_the_excludes_of_a_repository_are_rules_too(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {"a": "0"})
    tree = shadow.track()
    exclude = worktree / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.log\n")
    make_tree(worktree, {"a": "1", "build.log": "ignored"})
    with unreadable(str(exclude)):
        snapshot = shadow.take_snapshot()
        with pytest.raises(WorktreeFailed):
            shadow.restore(tree)

    assert any("exclude" in warning for warning in snapshot.warnings)
    assert (worktree / "build.log").read_text() == "ignored"


@rules
def test_the_status_warns_of_rules_that_cannot_be_read(shadow: Shadow, worktree: Path, name: str) -> None:
    make_tree(worktree, {"a": "0", name: "*.log\n"})
    shadow.track()
    with unreadable(name):
        (warning,) = shadow.status().warnings

    assert warning == f"the ignore rules in {name} were not applied: cannot be read: input/output error"


def test_the_status_warns_of_an_index_that_cannot_be_read(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {"a": "0"})
    shadow.track()
    (worktree / ".git" / "index").write_text("garbage")

    assert shadow.status().warnings == [
        f"{worktree}/.git: the git index cannot be read: its checksum is wrong"
    ]
