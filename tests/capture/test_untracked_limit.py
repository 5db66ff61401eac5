"""The setting `max_untracked_dir_files` leaves out large directories that git does not track."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.results.messages import Snapshot
from tests.support.referee import git
from tests.support.trees import Tree, make_tree

Take = Callable[[], Snapshot]
SETTINGS = {"min_free": 0, "max_untracked_dir_files": 5}
MANY: Tree = {f"{number}": "x" for number in range(6)}


@pytest.fixture(params=[False, True], ids=["scanned", "watched"])
def shadow(worktree: Path, request: pytest.FixtureRequest) -> Iterator[Shadow]:
    """A repository in which `src` is tracked, with a limit of 5 files."""
    make_tree(worktree, {"src": {"a": "1", **MANY}})
    git("init", "-q", cwd=worktree)
    git("add", "src/a", cwd=worktree)
    with Shadow(worktree, settings=SETTINGS, watch=request.param) as shadow:
        yield shadow


@pytest.fixture
def take(shadow: Shadow) -> Take:
    return shadow.take_snapshot


def skipped(snapshot: Snapshot) -> list[str]:
    return [skip.path for skip in snapshot.skipped]


def test_a_large_untracked_directory_is_left_out_and_told(take: Take, worktree: Path) -> None:
    first = take()
    make_tree(worktree, {"data": {"in": MANY}, "few": {"a": "1"}})

    assert skipped(first) == []
    assert [skip.to_dict() for skip in take().skipped] == [
        {"path": "data", "reason": "too many files: more than 5, none of them tracked by git"}
    ]
    assert take().files == first.files + 1
    assert skipped(take()) == ["data"], "and again, when nothing changed"


def test_files_below_count_and_ignored_ones_do_not(take: Take, worktree: Path) -> None:
    make_tree(worktree, {"a": {"b": {"1": "", "2": ""}, "c": {"3": "", "4": ""}, "5": "", "6": ""}})
    make_tree(worktree, {"d": {".gitignore": "*.log\n", **{f"{number}.log": "" for number in range(9)}}})

    assert skipped(take()) == ["a"]


def test_a_directory_that_gets_smaller_is_covered(take: Take, worktree: Path) -> None:
    make_tree(worktree, {"data": MANY})
    assert skipped(take()) == ["data"]
    (worktree / "data" / "0").unlink()

    assert skipped(take()) == []


def test_what_was_covered_stays_so(take: Take, worktree: Path) -> None:
    """As with a file that becomes too big: protected files must not become unprotected."""
    make_tree(worktree, {"data": {"a": "1"}})
    take()
    make_tree(worktree, {"data": MANY})

    assert skipped(take()) == []


@pytest.mark.parametrize("also", [{"data": {"in": {".git": {}}}}, {".shadowtreeignore": "!/data/in/0\n"}])
def test_what_a_repository_or_a_rule_wants_covered_is(take: Take, worktree: Path, also: Tree) -> None:
    make_tree(worktree, {"data": {"in": MANY}, **also})
    make_tree(worktree, also)

    assert skipped(take()) == []


def test_a_rule_brings_it_back(shadow: Shadow, take: Take, worktree: Path) -> None:
    make_tree(worktree, {"data": MANY})
    take()
    assert [each.rule for each in shadow.protect("data")] == ["!/data/"]

    assert skipped(take()) == []


def test_without_a_repository_everything_is_covered(worktree: Path) -> None:
    make_tree(worktree, {"data": MANY})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert skipped(shadow.take_snapshot()) == []
