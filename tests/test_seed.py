"""Taking over clean files from the user's repository: less is read, and nothing untrue is believed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Shadow, seed, snapshot
from shadowtree.worktree import read_file
from tests.referee import git, git_tree
from tests.trees import Tree, executable, link, make_tree

FILES: Tree = {
    "a.txt": "first\n",
    "run": executable("#!/bin/sh\n"),
    "ln": link("a.txt"),
    "sub": {"b": "b" * 5000},
}


@pytest.fixture
def read_names(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The names of the files that a snapshot reads, as they are read."""
    names: list[bytes] = []

    def note(directory_fd: int, name: bytes, limit: int) -> tuple[tuple[int, int, int, int, int], bytes]:
        names.append(name)
        return read_file(directory_fd, name, limit)

    monkeypatch.setattr(snapshot, "read_file", note)
    return names


@pytest.fixture(autouse=True)
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scan happen an hour later, so that no file counts as too young."""
    monkeypatch.setattr("shadowtree.scan.time_ns", lambda: time.time_ns() + 3_600_000_000_000)


def commit(worktree: Path, *, packed: bool = True) -> None:
    """Commit everything, with an index that is younger than every file."""
    git("init", "--quiet", cwd=worktree)
    git("add", "--all", cwd=worktree)
    git("commit", "--quiet", "--message", "all", cwd=worktree)
    if packed:
        git("gc", "--quiet", cwd=worktree)
    index = worktree / ".git" / "index"
    later = time.time() + 60
    os.utime(index, (later, later))


def test_clean_files_are_taken_over_without_being_read(
    shadow: Shadow, worktree: Path, tmp_path: Path, read_names: list[bytes]
) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    make_tree(worktree, {"untracked": "new\n"})

    tree = shadow.track()

    assert read_names == [b"untracked"]
    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_what_was_taken_over_outlives_the_repository(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    tree = shadow.track()

    shutil.rmtree(worktree / ".git")

    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:a.txt") == "first"
    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:sub/b") == "b" * 5000


def test_a_file_that_changed_since_the_commit_is_read(
    shadow: Shadow, worktree: Path, tmp_path: Path, read_names: list[bytes]
) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    stamp = (worktree / "a.txt").stat()
    (worktree / "a.txt").write_text("fIrst\n")
    os.utime(worktree / "a.txt", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    tree = shadow.track()

    assert read_names == [b"a.txt"]
    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_a_file_as_young_as_the_index_is_read(
    shadow: Shadow, worktree: Path, read_names: list[bytes]
) -> None:
    """Git could not tell a change in the same tick either, and looks again."""
    make_tree(worktree, FILES)
    commit(worktree)
    os.utime(worktree / ".git" / "index", (0, 0))

    shadow.track()

    assert sorted(read_names) == [b"a.txt", b"b", b"run"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda git_dir: (git_dir / "index").write_bytes(b"garbage"), id="damaged index"),
        pytest.param(lambda git_dir: shutil.rmtree(git_dir / "objects" / "pack"), id="no packs"),
        pytest.param(lambda git_dir: flip(next(git_dir.glob("objects/pack/*.pack"))), id="flipped pack"),
        pytest.param(lambda git_dir: cut(next(git_dir.glob("objects/pack/*.pack"))), id="short pack"),
        pytest.param(lambda git_dir: cut(next(git_dir.glob("objects/pack/*.idx"))), id="short idx"),
    ],
)
def test_damage_in_the_repository_costs_time_only(
    shadow: Shadow, worktree: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    expected = git_tree(worktree, tmp_path / "scratch")
    change(worktree / ".git")

    assert shadow.track() == expected


def test_loose_and_split_repositories_are_read_as_usual(
    shadow: Shadow, worktree: Path, tmp_path: Path, read_names: list[bytes]
) -> None:
    make_tree(worktree, FILES)
    commit(worktree, packed=False)
    git("update-index", "--split-index", cwd=worktree)

    tree = shadow.track()

    assert sorted(read_names) == [b"a.txt", b"b", b"run"]
    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_a_folder_of_a_repository_takes_over_its_own_files(
    worktree: Path, tmp_path: Path, read_names: list[bytes]
) -> None:
    make_tree(worktree, {"top": "1", "inner": FILES})
    commit(worktree)

    with Shadow(worktree / "inner", settings={"min_free": 0}) as shadow:
        tree = shadow.track()

    assert read_names == []
    assert tree == git_tree(worktree / "inner", tmp_path / "scratch")


@pytest.mark.parametrize(
    "attributes",
    ["* filter=swap\n", "* ident\n", "a working-tree-encoding=UTF-16LE\n"],
    ids=["filter", "ident", "encoding"],
)
@pytest.mark.parametrize(
    "place", [".gitattributes", ".git/info/attributes"], ids=["in the tree", "beside it"]
)
def test_where_git_converts_files_the_bytes_of_the_worktree_count(
    shadow: Shadow, worktree: Path, tmp_path: Path, attributes: str, place: str, read_names: list[bytes]
) -> None:
    git("init", "--quiet", cwd=worktree)
    git("config", "filter.swap.clean", "tr ab ba", cwd=worktree)
    git("config", "filter.swap.smudge", "tr ab ba", cwd=worktree)
    (worktree / place).write_text(attributes)
    (worktree / "a").write_text("aaaabbbb")
    commit(worktree)

    tree = shadow.track()

    assert b"a" in read_names
    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:a") == "aaaabbbb"


def test_line_endings_that_git_converts_are_kept(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    (worktree / "a").write_bytes(b"one\r\ntwo\r\n")
    git("init", "--quiet", cwd=worktree)
    git("config", "core.autocrlf", "true", cwd=worktree)
    commit(worktree)

    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


def test_a_large_file_is_streamed_instead_of_copied_whole(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    content = b"0123456789abcdef" * (seed._MOST_BYTES // 16 + 1)
    (worktree / "large").write_bytes(content)
    commit(worktree)

    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


def test_nobody_runs_git(shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(worktree, FILES)
    commit(worktree)

    def refuse(*words: object, **named: object) -> None:
        raise AssertionError(f"a process was started: {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    tree = shadow.track()
    monkeypatch.undo()

    assert len(tree) == 40


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.chmod(0o600)
    path.write_bytes(content)


def cut(path: Path) -> None:
    """Leave the first half."""
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[: len(content) // 2])
