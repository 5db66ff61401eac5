"""A worktree in a user's repository: the files on disk count, whatever git would make of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.referee import files_in, git, git_tree, init
from tests.support.trees import Tree, executable, link, make_tree

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
FILES: Tree = {
    "a.txt": "first\n",
    "run": executable("#!/bin/sh\n"),
    "ln": link("a.txt"),
    "sub": {"b": "b" * 5000},
}


def commit(worktree: Path, *, packed: bool = True) -> None:
    """Commit everything, with an index that is newer than every file."""
    git("init", "--quiet", cwd=worktree)
    git("add", "--all", cwd=worktree)
    git("commit", "--quiet", "--message", "all", cwd=worktree)
    if packed:
        git("gc", "--quiet", cwd=worktree)
    index = worktree / ".git" / "index"
    later = time.time() + 60
    os.utime(index, (later, later))


def test_a_snapshot_outlives_the_repository(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    tree = shadow.track()

    shutil.rmtree(worktree / ".git")

    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:a.txt") == "first"
    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:sub/b") == "b" * 5000


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
def test_damage_in_the_repository_changes_nothing(
    shadow: Shadow, worktree: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    make_tree(worktree, FILES)
    commit(worktree)
    expected = git_tree(worktree, tmp_path / "scratch")
    change(worktree / ".git")

    assert shadow.track() == expected


def test_a_repository_with_a_split_index_is_read_as_any_other(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    make_tree(worktree, FILES)
    commit(worktree, packed=False)
    git("update-index", "--split-index", cwd=worktree)

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_a_folder_of_a_repository_is_a_worktree(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"top": "1", "inner": FILES})
    commit(worktree)

    with Shadow(worktree / "inner", settings={"min_free": 0}) as shadow:
        tree = shadow.track()

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
    shadow: Shadow, worktree: Path, tmp_path: Path, attributes: str, place: str
) -> None:
    git("init", "--quiet", cwd=worktree)
    git("config", "filter.swap.clean", "tr ab ba", cwd=worktree)
    git("config", "filter.swap.smudge", "tr ab ba", cwd=worktree)
    (worktree / place).write_text(attributes)
    (worktree / "a").write_text("aaaabbbb")
    commit(worktree)

    tree = shadow.track()

    assert git("--git-dir", shadow.store, "cat-file", "blob", f"{tree}:a") == "aaaabbbb"


def test_line_endings_that_git_converts_are_kept(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    (worktree / "a").write_bytes(b"one\r\ntwo\r\n")
    git("init", "--quiet", cwd=worktree)
    git("config", "core.autocrlf", "true", cwd=worktree)
    commit(worktree)

    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


def use_filter(top: Path) -> str:
    """Configure a filter that keeps the size of a file; return the attributes that request it."""
    init(top)
    git("config", "filter.swap.clean", "tr ab ba", cwd=top)
    git("config", "filter.swap.smudge", "tr ab ba", cwd=top)
    return "* filter=swap\n"


def test_attributes_above_the_worktree_count(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {".gitattributes": use_filter(worktree), "inner": {"a": "aaaabbbb"}})
    commit(worktree)

    with Shadow(worktree / "inner", settings={"min_free": 0}) as shadow:
        tree = shadow.track()

    assert tree == git_tree(worktree / "inner", tmp_path / "scratch")


def _in_the_index(worktree: Path, attributes: str) -> Callable[[], None]:
    (worktree / ".gitattributes").write_text(attributes)
    return (worktree / ".gitattributes").unlink


def _in_a_folder_of_the_index(worktree: Path, attributes: str) -> Callable[[], None]:
    make_tree(worktree, {"sub": {".gitattributes": attributes, "b": "aabb"}})
    return (worktree / "sub" / ".gitattributes").unlink


def _in_a_file_too_long_to_read(worktree: Path, attributes: str) -> None:
    (worktree / ".git" / "info" / "attributes").write_text(attributes + "#" * 1_100_000)


def _in_a_file_of_the_settings(worktree: Path, attributes: str) -> None:
    (worktree.parent / "attributes").write_text(attributes)
    git("config", "core.attributesFile", worktree.parent / "attributes", cwd=worktree)


def _in_settings_that_hold_here(worktree: Path, attributes: str) -> None:
    (worktree.parent / "attributes").write_text(attributes)
    settings = worktree.parent / "settings"
    settings.write_text(f"[core]\n\tattributesFile = {worktree.parent}/attributes\n")
    git("config", f"includeIf.gitdir:{worktree.parent}/.path", settings, cwd=worktree)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(_in_the_index, id="in the index"),
        pytest.param(_in_a_folder_of_the_index, id="in a folder of the index"),
        pytest.param(_in_a_file_too_long_to_read, id="too long"),
        pytest.param(_in_a_file_of_the_settings, id="settings"),
        pytest.param(_in_settings_that_hold_here, id="settings by place"),
    ],
)
def test_attributes_that_do_not_lie_in_the_worktree_count(
    shadow: Shadow, worktree: Path, tmp_path: Path, place: Callable[[Path, str], Callable[[], None] | None]
) -> None:
    """Git takes attributes from the index if the worktree has none."""
    (worktree / "a").write_text("aaaabbbb")
    hide = place(worktree, use_filter(worktree))
    commit(worktree)
    if hide is not None:
        hide()

    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


def test_a_twin_whose_line_endings_git_converted_keeps_them(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """Git stores both as one blob, but only one of them has its bytes."""
    init(worktree)
    git("config", "core.autocrlf", "input", cwd=worktree)
    make_tree(worktree, {"a": "one\ntwo\n", "b": "one\r\ntwo\r\n", "c": "one\ntwo\n"})
    commit(worktree)

    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


@needs_root
@pytest.mark.parametrize("folder", [".", "inner"], ids=["at the top", "above"])
def test_nothing_is_believed_of_a_repository_of_another_user(
    worktree: Path, tmp_path: Path, folder: str
) -> None:
    """Somebody who can write above a worktree could plant contents, and rules that leave files out."""
    make_tree(worktree / folder, {"a": "1", "b": "2"})
    commit(worktree)
    (worktree / ".git" / "info").mkdir(exist_ok=True)
    (worktree / ".git" / "info" / "exclude").write_text("new\n")
    make_tree(worktree / folder, {"new": "3"})
    for path in [worktree / ".git", *(worktree / ".git").rglob("*")]:
        os.chown(path, STRANGER, STRANGER)

    with Shadow(worktree / folder, settings={"min_free": 0}) as shadow:
        snapshot = shadow.take_snapshot()

    assert files_in(shadow.store, snapshot.tree) == ["a", "b", "new"]
    where = f"the git repository in {worktree}"
    assert snapshot.warnings == [
        f"{where} was ignored, with its index and excludes: it belongs to another user"
    ]


@needs_root
@pytest.mark.parametrize("folder", [".", "inner"], ids=["at the top", "above"])
def test_the_repository_of_the_worktrees_owner_counts(worktree: Path, folder: str) -> None:
    """As for root in a container, where the project belongs to the user outside of it."""
    make_tree(worktree / folder, {".gitignore": "dist/\n", "a": "1", "dist": {"b": "2"}})
    git("init", "--quiet", cwd=worktree)
    git("add", "--all", "--force", cwd=worktree)
    git("commit", "--quiet", "--message", "all", cwd=worktree)
    head = git("rev-parse", "HEAD", cwd=worktree)
    (worktree / ".git" / "info").mkdir(exist_ok=True)
    (worktree / ".git" / "info" / "exclude").write_text("private\n")
    make_tree(worktree / folder, {"private": "3"})
    for path in [worktree, *worktree.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)

    with Shadow(worktree / folder, settings={"min_free": 0}) as shadow:
        snapshot = shadow.take_snapshot()
        with shadow.message("m1") as message:
            make_tree(worktree / folder, {"dist": {"b": "agent"}})

    assert files_in(shadow.store, snapshot.tree) == [".gitignore", "a", "dist/b"]
    assert snapshot.warnings == []
    assert message.value is not None
    assert [change.path for change in message.patch.files] == ["dist/b"]
    assert message.value.git_head == head


@needs_root
def test_a_repository_inside_that_neither_user_owns_is_ignored_with_a_warning(
    shadow: Shadow, worktree: Path
) -> None:
    inner = worktree / "inner"
    make_tree(inner, {".gitignore": "dist\n", "a": "1", "dist": "2"})
    git("init", "--quiet", cwd=inner)
    git("add", "--all", "--force", cwd=inner)
    for path in [inner, *inner.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)

    snapshot = shadow.take_snapshot()

    assert files_in(shadow.store, snapshot.tree) == ["inner/.gitignore", "inner/a"]
    assert len(snapshot.warnings) == 1
    assert f"the git repository in {inner} was ignored" in snapshot.warnings[0]


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
    """Keep the first half."""
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[: len(content) // 2])
