"""Renames as people and programs see them; real git applies the printed patches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.processes import COMMAND, surroundings
from tests.support.referee import git, init
from tests.support.terminal import Terminal
from tests.support.trees import (
    File,
    Tree,
    assert_tree,
    executable,
    file,
    link,
    make_tree,
    read_tree,
    refill,
)

LINES = "".join(f"line {n}\n" for n in range(30))
EDITED = LINES.replace("line 7\n", "line seven\n")


def record(shadow: Shadow, root: Path, old: Tree, new: Tree) -> None:
    """Record a message `m1` that turns one tree into another."""
    make_tree(root, old)
    with shadow.message("m1"):
        refill(root, make_tree(root.parent / "new", new))


# Python


def test_an_added_path_names_the_deleted_one_that_it_was(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, {"old": LINES, "x": "1\n"}, {"new": EDITED, "x": "2\n"})

    new, old, x = shadow.diff("m1^", "m1")

    assert (new.path, new.status, new.additions, new.deletions) == ("new", "added", 30, 0)
    assert (old.path, old.status, old.additions, old.deletions) == ("old", "deleted", 0, 30)
    assert (new.renamed_from, old.renamed_from, x.renamed_from) == ("old", None, None)
    assert new.rename is not None
    assert (new.rename.additions, new.rename.deletions) == (1, 1)
    assert (old.rename, x.rename) == (None, None)


def test_renames_are_found_up_to_now_and_in_messages(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"old": LINES})
    shadow.begin("m1")
    (worktree / "old").rename(worktree / "new")

    up_to_now = shadow.diff()
    message = shadow.end("m1")

    assert [each.renamed_from for each in up_to_now] == ["old", None]
    assert shadow.show("m1") == (message, up_to_now)
    assert shadow.diff_message(message) == up_to_now
    assert shadow.show("m1")[0] == shadow.messages()[0]


def test_a_patch_and_an_act_know_of_no_rename(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, {"old": LINES}, {"new": EDITED})

    outcome = shadow.undo()

    assert (outcome.restored, outcome.deleted) == (["old"], ["new"])
    assert [each.to_dict() for each in shadow.messages()[0].patch.files] == [
        {"path": "new", "status": "added"},
        {"path": "old", "status": "deleted"},
    ]
    assert_tree(worktree, {"old": LINES})


def test_what_was_modified_or_became_a_link_is_no_rename(shadow: Shadow, worktree: Path) -> None:
    record(
        shadow,
        worktree,
        {"a": LINES, "b": "target", "c": LINES.upper()},
        {"a": LINES.upper(), "b": link("target"), "d": link("target"), "e": LINES},
    )

    found = {each.path: (each.status, each.renamed_from) for each in shadow.diff("m1^", "m1")}

    assert found == {
        "a": ("modified", None),
        "b": ("type", None),
        "c": ("deleted", None),
        "d": ("added", None),
        "e": ("added", None),
    }


def test_a_file_too_large_to_compare_is_renamed_with_its_content(shadow: Shadow, worktree: Path) -> None:
    large = LINES * 20_000
    record(shadow, worktree, {"old": large, "small": LINES}, {"new": large, "small": LINES})

    (new, _) = shadow.diff("m1^", "m1")

    assert new.rename is not None
    assert new.rename.patch == "diff --git a/old b/new\nrename from old\nrename to new\n"


# JSON


def test_json_has_two_entries_of_which_the_added_one_names_the_other(
    terminal: Terminal, project: Path
) -> None:
    terminal.run("begin", "m1")
    (project / "a.txt").rename(project / "c.txt")
    terminal.run("end")

    shown = terminal.run_json("show", "m1")
    deleted, added = terminal.run_json("diff", "m1^", "m1")

    assert shown["diff"] == [deleted, added]
    assert shown["files"] == [
        {"path": "a.txt", "status": "deleted"},
        {"path": "c.txt", "status": "added"},
    ]
    assert list(deleted) == ["path", "status", "additions", "deletions", "binary", "patch"]
    assert list(added) == [*deleted, "renamed_from"]
    assert (added["status"], added["renamed_from"]) == ("added", "a.txt")
    assert added["patch"] == (
        "diff --git a/c.txt b/c.txt\nnew file mode 100644\n--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+one\n"
    )


# Lines for people


@pytest.fixture
def renamed(terminal: Terminal, project: Path) -> Terminal:
    """A project in which a message renamed a file with some edits, and an image."""
    make_tree(project, {"old.py": LINES, "old.png": b"\0" + os.urandom(999), "same": "s\n"})
    picture = (project / "old.png").read_bytes()
    terminal.run("begin", "m1", "-m", "move it")
    for name in ("old.py", "old.png"):
        (project / name).unlink()
    make_tree(project, {"src": {"new.py": EDITED, "new.png": picture + b"more"}})
    (project / "same").rename(project / "same\x1b")
    terminal.run("end")
    return terminal


def test_show_lists_a_rename_once(renamed: Terminal) -> None:
    lines = renamed.run("show", "m1").splitlines()

    start = lines.index("6 files changed")
    assert lines[start + 1 : start + 5] == [
        "R same -> same\\x1b  +0 -0",
        "R old.png -> src/new.png",
        "R old.py -> src/new.py  +1 -1",
        "",
    ]


def test_diff_shows_what_differs_from_the_old_name(renamed: Terminal) -> None:
    lines = renamed.run("diff", "m1^", "m1").splitlines()

    assert [line for line in lines if not line.startswith("index ")] == [
        'diff --git a/same "b/same\\033"',
        "rename from same",
        'rename to "same\\033"',
        "diff --git a/old.png b/src/new.png",
        "rename from old.png",
        "rename to src/new.png",
        "Binary files a/old.png and b/src/new.png differ",
        "diff --git a/old.py b/src/new.py",
        "rename from old.py",
        "rename to src/new.py",
        "--- a/old.py",
        "+++ b/src/new.py",
        "@@ -5,7 +5,7 @@",
        " line 4",
        " line 5",
        " line 6",
        "-line 7",
        "+line seven",
        " line 8",
        " line 9",
        " line 10",
    ]


def test_the_log_counts_the_lines_that_differ(renamed: Terminal) -> None:
    assert renamed.run("log").splitlines()[0].endswith("move it  old.png +5 more  +1  -1")


# Real git

MOVES: dict[str, tuple[Tree, Tree]] = {
    "renamed": ({"old": LINES}, {"new": LINES}),
    "edited": ({"old": LINES}, {"a": {"new": EDITED}}),
    "binary": ({"old": b"\0\1\2"}, {"new": b"\0\1\2"}),
    "empty": ({"a": {"__init__.py": ""}}, {"b": {"__init__.py": ""}}),
    "mode": ({"old": LINES}, {"new": executable(LINES)}),
    "mode and edited": ({"old": executable(LINES)}, {"new": EDITED}),
    "private": ({"old": file(LINES, 0o600)}, {"new": file(EDITED, 0o600)}),
    "link": ({"old": link("x")}, {"new": link("x")}),
    "blanks": ({"an old one": LINES}, {"a new\tone": EDITED}),
    "no newline": ({"old": LINES + "x"}, {"new": LINES + "y"}),
    "quotes": ({'"old"\n': LINES}, {"\\new\udcff": EDITED}),
    "into its own place": ({"a": LINES}, {"a": {"b": EDITED}}),
    "out of a directory": ({"a": {"b": LINES}}, {"a": EDITED}),
    "in a ring": ({"a": LINES, "b": {"x": LINES.upper()}}, {"a": {"x": LINES.upper()}, "b": EDITED}),
    "into the place of another": ({"a": LINES, "d": LINES.upper()}, {"d": {"x": EDITED}, "e": LINES.upper()}),
    "one and a copy": ({"a": LINES}, {"b": LINES, "c": LINES, "d": EDITED}),
    "beside others": ({"a": LINES, "b": "1\n", "c": "2\n"}, {"b": "2\n", "d": EDITED, "e": "new\n"}),
}


@pytest.mark.parametrize(("old", "new"), MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_git_applies_what_is_printed(
    shadow: Shadow, worktree: Path, tmp_path: Path, old: Tree, new: Tree, back: bool
) -> None:
    record(shadow, worktree, old, new)
    printed = subprocess.check_output(
        [*COMMAND, "-C", str(worktree), "diff", "m1^", "m1"], env=surroundings()
    )
    (tmp_path / "patch").write_bytes(printed)
    place = make_tree(init(tmp_path / "applied"), new if back else old)
    wanted = make_tree(tmp_path / "wanted", old if back else new)

    git("apply", *(["--reverse"] if back else []), tmp_path / "patch", cwd=place)

    assert b"rename from" in printed
    assert _as_git_sees(read_tree(place)) == _as_git_sees(read_tree(wanted))


@pytest.mark.parametrize(("old", "new"), MOVES.values(), ids=MOVES)
def test_git_finds_the_same_renames(
    shadow: Shadow, worktree: Path, tmp_path: Path, old: Tree, new: Tree
) -> None:
    record(shadow, worktree, old, new)
    found = {each.path: each.renamed_from for each in shadow.diff("m1^", "m1") if each.renamed_from}

    message = shadow.messages()[0]
    assert message.after is not None
    words = git(
        "--git-dir", shadow.store, "diff", "-M", "-z", "--name-status", message.before, message.after
    ).split("\0")
    expected = {words[at + 2]: words[at + 1] for at, word in enumerate(words) if word.startswith("R")}
    assert found == expected


def _as_git_sees(tree: Tree) -> Tree:
    """Leave out what git does not record: all permission bits but one."""
    return {
        name: _as_git_sees(value)
        if isinstance(value, dict)
        else File(value.content, value.mode & 0o100)
        if isinstance(value, File)
        else value
        for name, value in tree.items()
    }
