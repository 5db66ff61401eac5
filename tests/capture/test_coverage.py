"""The files that a snapshot covers, by the rules in their order, with real directories and real git."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.base.limits import Limits
from shadowtree.capture.rules import coverage
from shadowtree.capture.rules.git_repository import Repository, Tracked, read_tracked
from shadowtree.config.settings import HEAVY_DIRS
from tests.support.referee import assert_sound_store, files_in, git, init
from tests.support.trees import Tree, link, make_tree


def covered(shadow: Shadow) -> set[str]:
    """Take a snapshot and list the files in its tree."""
    return set(files_in(shadow.store, shadow.track()))


def covered_with(worktree: Path, settings: Mapping[str, object]) -> set[str]:
    with Shadow(worktree, settings={"min_free": 0, **settings}) as shadow:
        found = covered(shadow)
    assert_sound_store(shadow.store)
    return found


def skipped(shadow: Shadow) -> dict[str, str]:
    """Take a snapshot and list what it skipped, with the reasons."""
    return {skip.path: skip.reason for skip in shadow.take_snapshot().skipped}


# 1. The worktree's own rules


def test_own_rules_exclude(shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree,
        {
            ".shadowtreeignore": "*.secret\n/data/\n",
            "a.secret": "1",
            "a.py": "1",
            "data": {"x": "1"},
            "sub": {"b.secret": "1", "data": {"y": "1"}},
        },
    )

    assert covered(shadow) == {".shadowtreeignore", "a.py", "sub/data/y"}


@pytest.mark.parametrize(
    ("own", "tree", "brought_back"),
    [
        ("!.env\n", {".gitignore": ".env\n", ".env": "1"}, {".env"}),
        ("!.env\n", {".gitignore": ".env\n", "a": {"b": {".env": "1"}}}, {"a/b/.env"}),
        (
            "!node_modules/keep.js\n",
            {"node_modules": {"keep.js": "1", "x.js": "1"}},
            {"node_modules/keep.js"},
        ),
        (
            "!build/out/keep\n",
            {".gitignore": "build/\n", "build": {"out": {"keep": "1", "x": "1"}}},
            {"build/out/keep"},
        ),
        ("private/\n!private/keep\n", {"private": {"keep": "1", "x": "1"}}, {"private/keep"}),
        (
            "private/\n!private/a/b/keep\n",
            {"private": {"x": "1", "a": {"x": "1", "b": {"keep": "1", "x": "1"}}}},
            {"private/a/b/keep"},
        ),
        (
            "!build/\n",
            {
                ".gitignore": "build/\n*.o\n",
                "build": {"a.o": "1", "b": {"c.o": "1", "node_modules": {"d": "1"}}},
            },
            {"build/a.o", "build/b/c.o", "build/b/node_modules/d"},
        ),
        ("!venv/\n", {"venv": {"bin": {"python": "1"}}, ".venv": {"x": "1"}}, {"venv/bin/python"}),
        (
            "!*.log\n",
            {".gitignore": "*.log\n", "venv": {"v.log": "1", "x": "1"}, "a.log": "1"},
            {"venv/v.log", "a.log"},
        ),
        ("!build/**\n", {".gitignore": "build/\n", "build": {"a": {"b": "1"}}}, {"build/a/b"}),
        (
            "!build/\nbuild/tmp/\n",
            {".gitignore": "build/\n", "build": {"a": "1", "tmp": {"b": "1"}}},
            {"build/a"},
        ),
        ("*\n!*.py\n", {"a.py": "1", "x": "1", "sub": {"b.py": "1", "y": "1"}}, {"a.py", "sub/b.py"}),
        ("!big\n", {"big": "1" * 2000}, {"big"}),
    ],
    ids=[
        "what .gitignore ignores",
        "at any depth",
        "below a heavy directory",
        "below a directory that .gitignore ignores",
        "below a directory excluded by itself",
        "deep below a directory excluded by itself",
        "a directory with all below it",
        "a heavy directory with all below it",
        "a pattern below a heavy directory",
        "with two stars",
        "but not what a later rule excludes again",
        "everything but a pattern",
        "over the size limit",
    ],
)
def test_own_rules_bring_back(own: str, tree: Tree, brought_back: set[str], worktree: Path) -> None:
    make_tree(worktree, tree)
    (worktree / ".shadowtreeignore").write_text(own)

    found = covered_with(worktree, {"max_file_size": 1000})

    assert found - {".gitignore", ".shadowtreeignore"} == brought_back


def test_own_rules_bring_back_nothing_of_a_git_directory(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    init(worktree / "nested")
    make_tree(worktree, {".shadowtreeignore": "!.git/\n!.git\n!*\n", "nested": {"a": "1"}})

    assert covered(shadow) == {".shadowtreeignore", "nested/a"}


def test_own_rules_count_at_the_root_alone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"sub": {".shadowtreeignore": "*\n", "a": "1"}})

    assert covered(shadow) == {"sub/.shadowtreeignore", "sub/a"}


def test_own_rules_that_are_a_link_do_not_count(shadow: Shadow, worktree: Path) -> None:
    """A link could lead to any of the user's files."""
    make_tree(worktree, {"rules": "*\n", ".shadowtreeignore": link("rules"), "a": "1"})

    assert covered(shadow) == {"rules", ".shadowtreeignore", "a"}


@pytest.mark.parametrize(
    "instead", [link("rules"), link("nowhere"), {}], ids=["link", "loose link", "directory"]
)
def test_own_rules_that_are_no_regular_file_are_warned_of(
    shadow: Shadow, worktree: Path, instead: Tree
) -> None:
    """They count as empty, as anybody can see, so no act waits for them."""
    make_tree(worktree, {"rules": "secret\n", "a": "1"})
    tree = shadow.track()
    make_tree(worktree, {".shadowtreeignore": instead, "a": "2"})

    warnings = shadow.take_snapshot().warnings

    assert warnings == ["the ignore rules in .shadowtreeignore were not applied: it is not a regular file"]
    assert shadow.restore(tree).restored == ["a"]


def test_own_rules_win_over_an_index(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(
        worktree, {".shadowtreeignore": "*.key\nprivate/\n", "a.key": "1", "private": {"b": "1"}, "c": "1"}
    )
    git("add", "--all", "--force", cwd=worktree)

    assert covered(shadow) == {".shadowtreeignore", "c"}


def test_the_store_is_never_covered(worktree: Path) -> None:
    make_tree(worktree, {".shadowtreeignore": "!*\n", "a": "1"})
    with Shadow(worktree, store=worktree / "st", allow_broad=True, settings={"min_free": 0}) as shadow:
        first = covered(shadow)
        again = covered(shadow)

    assert first == again == {".shadowtreeignore", "a"}


def test_a_file_beside_the_stores_is_unknown_and_stays(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been there before it was covered, but nobody wants to hear of the stores themselves."""
    make_tree(worktree, {"a": "1", "stores": {"kept": {"note": "1"}}})

    def open_shadow(stores: Path) -> Shadow:
        monkeypatch.setenv("SHADOWTREE_HOME", str(stores))
        return Shadow(worktree, store=tmp_path / "st", allow_broad=True, settings={"min_free": 0})

    with open_shadow(worktree / "stores") as shadow:
        begun = shadow.begin("m1")
        make_tree(worktree, {"a": "2"})
    with open_shadow(tmp_path / "elsewhere") as shadow:
        message = shadow.end()
        undone = shadow.undo()

    assert begun.skipped == []
    assert [skip.path for skip in message.skipped] == ["stores/kept/note"]
    assert undone.deleted == []


# 2. Files that an index tracks


def test_a_tracked_file_is_covered_whatever_git_ignores(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(
        worktree,
        {".gitignore": "*.o\nbuild/\n", "a.o": "1", "b.o": "1", "build": {"deep": {"c": "1", "d": "1"}}},
    )
    git("add", "--force", "a.o", "build/deep/c", cwd=worktree)

    assert covered(shadow) == {".gitignore", "a.o", "build/deep/c"}


def test_a_tracked_file_is_covered_in_a_heavy_directory(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(
        worktree, {"node_modules": {"a": {"b.js": "1", "c.js": "1"}, "d": {"e.js": "1"}}, "venv": {"f": "1"}}
    )
    git("add", "--force", "node_modules/a/b.js", cwd=worktree)

    assert covered(shadow) == {"node_modules/a/b.js"}


def test_a_tracked_file_is_covered_over_the_size_limit(worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "big": "1" * 2000, "large": "2" * 2000, "big.o": "3" * 2000})
    git("add", "--force", "big", "big.o", cwd=worktree)

    found = covered_with(worktree, {"max_file_size": 1000})

    assert found == {".gitignore", "big", "big.o"}


def test_a_file_added_with_intent_only_is_covered(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1"})
    git("add", "--force", "--intent-to-add", "a.o", cwd=worktree)

    assert covered(shadow) == {".gitignore", "a.o"}


# The files are old enough for the cache to trust their stamps.
@pytest.mark.limits(Limits(file_clock_ns=lambda: time.time_ns() + 3_600_000_000_000))
def test_an_index_that_is_replaced_while_it_is_read_is_read_again_next_time(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.log\n", "a.log": "1"})
    git("add", ".gitignore", cwd=worktree)

    def read_too_early(repository: Repository) -> Tracked:
        tracked = read_tracked(repository)
        git("add", "--force", "a.log", cwd=worktree)
        return tracked

    with monkeypatch.context() as patch:
        patch.setattr(coverage, "read_tracked", read_too_early)
        assert covered(shadow) == {".gitignore"}

    assert covered(shadow) == {".gitignore", "a.log"}


def test_the_index_around_the_worktree_counts_with_the_rules_above(worktree: Path, tmp_path: Path) -> None:
    top = init(tmp_path / "top")
    make_tree(
        top,
        {
            ".gitignore": "*.o\n/mid/work/top-only\n/work\n",
            "mid": {
                ".gitignore": "*.log\n!keep.o\n/work/mid-only\n",
                "work": {
                    ".gitignore": "!b.log\n",
                    "a.o": "1",
                    "keep.o": "1",
                    "tracked.o": "1",
                    "a.log": "1",
                    "b.log": "1",
                    "top-only": "1",
                    "mid-only": "1",
                    "sub": {"work": "1", "mid-only": "1", "c.o": "1", "c.log": "1", "tracked.log": "1"},
                },
            },
        },
    )
    git("add", "--force", "mid/work/tracked.o", "mid/work/sub/tracked.log", cwd=top)
    git("add", "--force", "mid/.gitignore", cwd=top)

    found = covered_with(top / "mid" / "work", {})

    assert found == {
        ".gitignore",
        "keep.o",
        "tracked.o",
        "b.log",
        "sub/work",
        "sub/mid-only",
        "sub/tracked.log",
    }


def test_the_excludes_of_the_repository_around_the_worktree_count_from_its_top(tmp_path: Path) -> None:
    top = init(tmp_path / "top")
    (top / ".git" / "info" / "exclude").write_text("/sub/a\n/b\nc\n")
    make_tree(top, {"sub": {"a": "1", "b": "1", "c": "1", "deep": {"a": "1", "c": "1"}}})

    assert covered_with(top / "sub", {}) == {"b", "deep/a"}


def test_the_index_of_every_repository_around_the_worktree_counts(tmp_path: Path) -> None:
    """The outer one tracked the file before the inner one was made; for git it still does."""
    outer = init(tmp_path / "outer")
    make_tree(outer, {"sub": {".gitignore": "*.o\n", "a.o": "1", "b.o": "1"}})
    git("add", "--force", "sub/a.o", cwd=outer)
    init(outer / "sub")

    assert covered_with(outer / "sub", {}) == {".gitignore", "a.o"}


def test_the_index_of_a_nested_repository_counts_for_its_own_files(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1", "nested": {"a.o": "1", "b.o": "1", "c.py": "1"}})
    nested = init(worktree / "nested")
    git("add", "--force", "a.o", cwd=nested)

    assert covered(shadow) == {".gitignore", "nested/a.o", "nested/c.py"}


def test_the_outer_index_still_counts_inside_a_nested_repository(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "nested": {"a.o": "1", "b.o": "1", "c.o": "1"}})
    git("add", "--force", "nested/a.o", cwd=worktree)
    nested = init(worktree / "nested")
    git("add", "--force", "b.o", cwd=nested)

    assert covered(shadow) == {".gitignore", "nested/a.o", "nested/b.o"}


@pytest.mark.parametrize("is_repository", [True, False], ids=["in a repository", "in a plain folder"])
def test_a_repository_in_an_ignored_directory_keeps_its_tracked_files(
    is_repository: bool, shadow: Shadow, worktree: Path
) -> None:
    if is_repository:
        init(worktree)
    make_tree(
        worktree,
        {
            ".gitignore": "vendor/\n",
            "vendor": {
                "loose": "1",
                "deep": {"loose": "1", "lib": {"a": "1", "b": "1", "s": {"c": "1", "d": "1"}}},
            },
        },
    )
    nested = init(worktree / "vendor" / "deep" / "lib")
    git("add", "a", "s/c", cwd=nested)

    assert covered(shadow) == {".gitignore", "vendor/deep/lib/a", "vendor/deep/lib/s/c"}


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ("", set()),
        ("!/node_modules/pkg/\n", {"node_modules/pkg/a.js", "node_modules/pkg/b.js"}),
    ],
    ids=["left out", "brought back by a rule of the worktree's own"],
)
def test_no_repository_is_looked_for_in_a_heavy_directory(
    own: str, found: set[str], shadow: Shadow, worktree: Path
) -> None:
    """Searching for a package under development would mean walking through everything else."""
    make_tree(worktree, {".shadowtreeignore": own})
    make_tree(worktree, {"node_modules": {"x.js": "1", "pkg": {"a.js": "1", "b.js": "1"}}})
    nested = init(worktree / "node_modules" / "pkg")
    git("add", "a.js", cwd=nested)

    assert covered(shadow) == {".shadowtreeignore", *found}


def test_a_repository_in_a_heavy_directory_keeps_what_an_index_around_it_tracks(
    shadow: Shadow, worktree: Path
) -> None:
    init(worktree)
    make_tree(worktree, {"node_modules": {"x.js": "1", "pkg": {"a.js": "1", "b.js": "1"}}})
    git("add", "--force", "node_modules/pkg/a.js", cwd=worktree)
    nested = init(worktree / "node_modules" / "pkg")
    git("add", "b.js", cwd=nested)

    assert "node_modules/pkg/a.js" in covered(shadow)
    assert "node_modules/x.js" not in covered(shadow)


def test_the_index_of_a_submodule_counts(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    origin = init(tmp_path / "origin")
    make_tree(origin, {"a": "1"})
    git("add", "--all", cwd=origin)
    git("commit", "--quiet", "-m", "x", cwd=origin)
    init(worktree)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", origin, "libs/sub", cwd=worktree)
    make_tree(worktree, {".gitignore": "*.o\nlibs/\n", "libs": {"sub": {"a.o": "1", "b.o": "1", "c": "1"}}})
    git("add", "--force", "a.o", cwd=worktree / "libs" / "sub")

    assert (worktree / "libs" / "sub" / ".git").is_file()
    assert covered(shadow) == {".gitignore", ".gitmodules", "libs/sub/a", "libs/sub/a.o"}


def test_the_index_of_a_linked_worktree_counts(tmp_path: Path) -> None:
    main = init(tmp_path / "main")
    make_tree(main, {".gitignore": "*.o\n", "a": "1"})
    git("add", "--all", cwd=main)
    git("commit", "--quiet", "-m", "x", cwd=main)
    linked = tmp_path / "linked"
    git("worktree", "add", "--quiet", linked, cwd=main)
    (main / ".git" / "info" / "exclude").write_text("excluded\n")
    make_tree(linked, {"a.o": "1", "b.o": "1", "excluded": "1"})
    git("add", "--force", "a.o", cwd=linked)
    make_tree(main, {"a.o": "1", "b.o": "1", "excluded": "1"})
    git("add", "--force", "b.o", cwd=main)

    assert covered_with(linked, {}) == {".gitignore", "a", "a.o"}
    assert covered_with(main, {}) == {".gitignore", "a", "b.o"}


def test_a_damaged_index_tracks_nothing_and_is_told_of(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1", "b": "1", ".git": {"index": "garbage"}})

    snapshot = shadow.take_snapshot()

    assert files_in(shadow.store, snapshot.tree) == [".gitignore", "b"]
    assert any("index" in warning for warning in snapshot.warnings)


def test_a_damaged_index_is_told_of_every_time(shadow: Shadow, worktree: Path) -> None:
    """A user who missed the first warning would believe that tracked files are covered."""
    init(worktree)
    make_tree(worktree, {"b": "1", ".git": {"index": "garbage"}})
    shadow.track()

    assert shadow.take_snapshot().warnings


# 3. Files that git ignores


def test_gitignore_counts_at_every_level(shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree,
        {
            ".gitignore": "*.log\n/only-here\nsub/exact\n",
            "a.log": "1",
            "only-here": "1",
            "sub": {
                ".gitignore": "!keep.log\n*.tmp\n",
                "a.log": "1",
                "keep.log": "1",
                "a.tmp": "1",
                "exact": "1",
                "only-here": "1",
                "deep": {".gitignore": "keep.log\n!a.tmp\n", "keep.log": "1", "a.tmp": "1", "exact": "1"},
            },
            "other": {"a.tmp": "1", "sub": {"exact": "1"}},
        },
    )

    assert covered(shadow) == {
        ".gitignore",
        "sub/.gitignore",
        "sub/keep.log",
        "sub/only-here",
        "sub/deep/.gitignore",
        "sub/deep/a.tmp",
        "sub/deep/exact",
        "other/a.tmp",
        "other/sub/exact",
    }


def test_a_rule_cannot_bring_back_what_is_in_an_ignored_directory(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "build/\n!build/keep\n", "build": {".gitignore": "!*\n", "keep": "1"}})

    assert covered(shadow) == {".gitignore"}


def test_a_linked_directory_is_no_directory_to_a_rule(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "build/\n", "real": {"a": "1"}, "build": link("real")})

    assert covered(shadow) == {".gitignore", "real/a", "build"}


def test_info_exclude_counts(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    (worktree / ".git" / "info" / "exclude").write_text("*.log\n/here\n")
    make_tree(
        worktree,
        {".gitignore": "!keep.log\n", "a.log": "1", "keep.log": "1", "here": "1", "s": {"here": "1"}},
    )

    assert covered(shadow) == {".gitignore", "keep.log", "s/here"}


def test_info_exclude_of_a_nested_repository_counts_inside_it(shadow: Shadow, worktree: Path) -> None:
    init(worktree / "nested")
    (worktree / "nested" / ".git" / "info" / "exclude").write_text("/here\n")
    make_tree(worktree, {"here": "1", "nested": {"here": "1", "s": {"here": "1"}}})

    assert covered(shadow) == {"here", "nested/s/here"}


@pytest.mark.parametrize("is_repository", [True, False], ids=["in a repository", "in a plain folder"])
@pytest.mark.parametrize("kind", ["default", "xdg", "gitconfig", "included"])
def test_the_global_excludes_count(
    kind: str, is_repository: bool, worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    rules = {
        "default": home / ".config" / "git" / "ignore",
        "xdg": tmp_path / "xdg" / "git" / "ignore",
        "gitconfig": home / "my ignores",
        "included": home / "my ignores",
    }[kind]
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("*.swp\n")
    config = '[core]\n\texcludesFile = "~/my ignores"\n'
    if kind == "xdg":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    elif kind == "gitconfig":
        (home / ".gitconfig").write_text(config)
    elif kind == "included":
        (home / "more").write_text(config)
        (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
    if is_repository:
        init(worktree)
    make_tree(worktree, {"a.swp": "1", "b": "1", "s": {".gitignore": "!c.swp\n", "c.swp": "1", "d.swp": "1"}})

    assert covered_with(worktree, {}) == {"b", "s/.gitignore", "s/c.swp"}


def test_rules_that_are_no_text_are_harmless(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": b"\xff\xfe\n[\n\\\n!\n**/**/**\\\n\0*\n", "a": "1"})

    assert covered(shadow) == {".gitignore", "a"}


# 4. Dependency and cache directories


@pytest.mark.parametrize("name", HEAVY_DIRS)
def test_a_heavy_directory_is_left_out_at_any_depth(name: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {name: {"a": "1"}, "s": {name: {"b": {"c": "1"}}, "d": "1"}})

    assert covered(shadow) == {"s/d"}


def test_a_file_with_the_name_of_a_heavy_directory_is_covered(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"venv": "1", "s": {"node_modules": link("..")}})

    assert covered(shadow) == {"venv", "s/node_modules"}


@pytest.mark.parametrize("heavy", [["target", "out"], "target,out", ("target", "out")])
def test_the_setting_adds_heavy_directories(heavy: object, worktree: Path) -> None:
    make_tree(
        worktree, {"target": {"a": "1"}, "s": {"out": {"a": "1"}}, "venv": {"a": "1"}, "targets": {"a": "1"}}
    )

    assert covered_with(worktree, {"heavy_dirs": heavy}) == {"targets/a"}


def test_git_cannot_bring_back_a_heavy_directory(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "!node_modules/\n", "node_modules": {"a": "1"}})

    assert covered(shadow) == {".gitignore"}


# 5. Sizes, types and names


def test_a_file_at_the_size_limit_is_covered_and_one_above_is_skipped(worktree: Path) -> None:
    make_tree(worktree, {"at": "1" * 1000, "s": {"above": "1" * 1001}})
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 1000}) as shadow:
        found, left = covered(shadow), skipped(shadow)

    assert found == {"at"}
    assert list(left) == ["s/above"]
    assert "1001" in left["s/above"]


def test_a_covered_file_that_grows_over_the_limit_stays_covered(worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "b": "1" * 2000})
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 1000}) as shadow:
        shadow.track()
        (worktree / "a").unlink()
        shadow.track()
        make_tree(worktree, {"a": "2" * 2000})

        found, left = covered(shadow), skipped(shadow)

    assert found == {"a"}
    assert list(left) == ["b"]


def test_a_size_limit_says_nothing_of_links(worktree: Path) -> None:
    make_tree(worktree, {"ln": link("x" * 50)})

    assert covered_with(worktree, {"max_file_size": 10}) == {"ln"}


def test_what_is_neither_file_nor_link_is_skipped(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {".gitignore": "*.ignored\n", "a": "1", "venv": {}})
    os.mkfifo(worktree / "pipe")
    os.mkfifo(worktree / "pipe.ignored")
    os.mkfifo(worktree / "venv" / "pipe")
    monkeypatch.chdir(worktree)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")

        assert covered(shadow) == {".gitignore", "a"}
        assert skipped(shadow).keys() == {"pipe", "sock"}


def test_git_directories_are_never_covered(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    init(tmp_path / "elsewhere")
    init(worktree)
    init(worktree / "a" / "b")
    make_tree(
        worktree,
        {
            "c": {".git": "no repository at all\n", "d": "1"},
            "e": {".git": link(str(tmp_path / "elsewhere" / ".git")), "f": "1"},
            "g": {".git": {"h": "1"}, "i": "1"},
        },
    )

    assert covered(shadow) == {"c/d", "e/f", "g/i"}
    assert skipped(shadow) == {}


@pytest.mark.parametrize(
    "name",
    [".GIT", ".Git", "git~1", "GIT~1", ".git ", ".git.", ".git...", ".git::$DATA", ".g\u200cit", "a\\.git"],
)
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_name_that_git_forbids_is_skipped(kind: str, name: str, shadow: Shadow, worktree: Path) -> None:
    contents: dict[str, Tree] = {
        "file": {name: "1"},
        "directory": {name: {"a": "1"}},
        "link": {name: link("x")},
    }
    make_tree(worktree, {"a": "1", "s": contents[kind]})

    assert covered(shadow) == {"a"}
    assert skipped(shadow).keys() == {f"s/{name}"}


@pytest.mark.parametrize("name", [".gitmodules", ".GITMODULES", "gitmod~1", "GI7EBA~1", ".gitmodules "])
def test_a_link_that_could_be_gitmodules_is_skipped(name: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree, {"a": "1", name: link("a"), "s": {name: "[submodule]\n" if name == ".gitmodules" else "1"}}
    )

    assert covered(shadow) == {"a", f"s/{name}"}
    assert skipped(shadow).keys() == {name}


@pytest.mark.parametrize(
    "name", [".git2", ".gitx", "git", ".gi", "git~2", ".github", ".git-x", "x.git", ".git\u00e9"]
)
def test_a_name_that_only_looks_forbidden_is_covered(name: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {name: "1", "s": {name: {"a": "1"}}})

    assert covered(shadow) == {name, f"s/{name}/a"}


def test_a_forbidden_name_that_the_rules_leave_out_is_not_skipped(shadow: Shadow, worktree: Path) -> None:
    """Only paths that the rules would have covered are skipped."""
    make_tree(
        worktree,
        {".gitignore": "vendor/\n*~1/\n", "vendor": {".GIT": {"a": "1"}, ".Git": "1"}, "git~1": {"a": "1"}},
    )

    assert skipped(shadow) == {}


def test_names_of_any_bytes_are_covered(shadow: Shadow, worktree: Path) -> None:
    names = {
        "new\nline",
        "tab\t",
        "caf\u00e9",
        "\udcff\udcfe",
        "%directory",
        "=s",
        " ",
        "-x",
        "*",
        "[a]",
        "\\",
    }
    make_tree(worktree, {"d": dict.fromkeys(names, "1"), **{name: {"f": "1"} for name in names}})

    assert covered(shadow) == {f"d/{name}" for name in names} | {f"{name}/f" for name in names}


# All rules together, compared with git


def _random_pattern(dice: random.Random) -> str:
    name = dice.choice(["a", "b", "c", "*.o", "a*", "?", "[ab]", "*", "d", "*.py"])
    if dice.random() < 0.4:
        name = dice.choice(["a/", "b/", "**/", "/", "c/**/", "*/", "d/"]) + name
    if dice.random() < 0.25:
        name += dice.choice(["/", "/**"])
    return dice.choice(["", "", "!"]) + name


def _random_tree(dice: random.Random, depth: int) -> Tree:
    tree: Tree = {}
    for name in dice.sample(["a", "b", "c", "d", "x.o", "a.py", "b.o", "venv"], dice.randint(2, 6)):
        is_directory = depth and dice.random() < (0.7 if "." not in name else 0.1)
        if is_directory or name == "venv":
            tree[name] = _random_tree(dice, depth - 1) if depth else {"x": "1"}
        else:
            tree[name] = link("a") if dice.random() < 0.1 else "1"
    if dice.random() < 0.5:
        rules = [_random_pattern(dice) for _ in range(dice.randint(1, 4))]
        tree[".gitignore"] = "".join(rule + "\n" for rule in rules)
    return tree


@pytest.mark.parametrize("seed", range(30))
def test_covered_is_what_git_lists_without_heavy_directories(
    seed: int, shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    init(worktree)
    make_tree(worktree, _random_tree(dice, 3))
    files = [path for path in worktree.rglob("*") if not path.is_dir() or path.is_symlink()]
    forced = {
        path.relative_to(worktree).as_posix()
        for path in files
        if path.relative_to(worktree).parts[0] != ".git"
    }
    for path in sorted(forced):
        if dice.random() < 0.15:
            git("add", "--force", path, cwd=worktree)
    (worktree / ".git" / "info" / "exclude").write_text(_random_pattern(dice) + "\n")
    tracked = set(git("ls-files", "-z", cwd=worktree).split("\0")) - {""}
    others = git("ls-files", "-z", "--others", "--exclude-standard", cwd=worktree).split("\0")
    light = {path for path in others if path and "venv" not in path.split("/")[:-1]}

    assert covered(shadow) == tracked | light
