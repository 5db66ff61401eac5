"""Revert and restore are exact and complete, and touch nothing else."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest

from shadowtree import (
    Conflict,
    InvalidInput,
    NotConfirmed,
    Shadow,
    ShadowError,
    StoreDamaged,
    UnknownMessage,
    UnknownName,
    UnsafePath,
)
from shadowtree.results.outcomes import Plan
from tests.support.processes import in_child
from tests.support.referee import git
from tests.support.stores import SETTINGS
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, read_tree

Manifest = dict[str, tuple[object, ...]]


def manifest(top: Path) -> Manifest:
    """List everything in a directory, itself and `.git` included, with content, inode and times."""
    found: Manifest = {}
    for path in [top, *sorted(top.rglob("*"))]:
        status = path.lstat()
        content: bytes | None = None
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(os.fsencode(path))
        stamp = (status.st_mode, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink)
        found[str(path.relative_to(top))] = (content, *stamp)
    return found


def count_rows(shadow: Shadow) -> dict[str, int]:
    """Count the rows of the timeline, in a copy of it."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in shadow.store.glob("timeline.db*"):
            shutil.copy(path, scratch)
        with closing(sqlite3.connect(Path(scratch, "timeline.db"))) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for (table,) in tables
            }


def replace_tree(root: Path, tree: Tree) -> None:
    """Make a directory contain exactly this."""
    for entry in list(os.scandir(root)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    make_tree(root, tree)


# Every kind of file is restored

KINDS: dict[str, Tree] = {
    "nothing": {},
    "file": {"x": "content"},
    "other file": {"x": b"\0other\r\n"},
    "empty file": {"x": ""},
    "private file": {"x": file("content", 0o600)},
    "read-only file": {"x": file("content", 0o444)},
    "program": {"x": executable("content")},
    "link": {"x": link("content")},
    "link to a directory": {"x": link("stays")},
    "link to nothing": {"x": link("/nowhere/at all")},
    "empty directory": {"x": {}},
    "directory": {"x": {"a": "1", "b": executable("2")}},
    "deep directory": {"x": {"a": {"b": {"c": "1"}}, "e": {"f": {}}}},
}


@pytest.mark.parametrize("before", KINDS)
def test_whatever_a_path_was_comes_back_and_goes_again(shadow: Shadow, worktree: Path, before: str) -> None:
    """F64: from every kind to every other kind, and back."""
    rest: Tree = {"stays": {"f": "1"}}
    old: Tree = {after: {**rest, **KINDS[before]} for after in KINDS}
    new: Tree = {after: {**rest, **KINDS[after]} for after in KINDS}
    replace_tree(worktree, old)
    with shadow.message("m1"):
        replace_tree(worktree, new)

    outcome = shadow.revert("m1")
    assert_tree(worktree, old)
    assert outcome.complete
    assert not outcome.conflicts

    shadow.unrevert()
    assert_tree(worktree, new)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o664, 0o666, 0o700, 0o711, 0o755, 0o777, 0o000])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_permission_bits_come_back_whatever_the_umask(
    shadow: Shadow, worktree: Path, mode: int, umask: int
) -> None:
    """E14, F33."""
    make_tree(worktree, {"x": file("old", mode)})
    with shadow.message("m1"):
        (worktree / "x").unlink()

    with under_umask(umask):
        shadow.revert("m1")

    assert_tree(worktree, {"x": file("old", mode)})


@contextmanager
def under_umask(umask: int) -> Iterator[None]:
    """Run something under another umask."""
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def test_a_change_of_bits_alone_is_taken_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"key": file("secret", 0o600), "run": executable("x")})
    with shadow.message("m1"):
        make_tree(worktree, {"key": file("secret", 0o644), "run": file("x", 0o644)})

    outcome = shadow.revert("m1")

    assert_tree(worktree, {"key": file("secret", 0o600), "run": executable("x")})
    assert outcome.restored == ["key", "run"]


def test_no_bit_above_the_permissions_is_ever_set(shadow: Shadow, worktree: Path) -> None:
    """F33."""
    make_tree(worktree, {"tool": executable("old")})
    (worktree / "tool").chmod(0o6755)
    with shadow.message("m1"):
        (worktree / "tool").unlink()
        make_tree(worktree, {"tool": executable("new")})

    shadow.revert("m1")

    assert_tree(worktree, {"tool": executable("old")})


NAMES = [
    b'qu"ote',
    b"back\\slash",
    b"ta\tb",
    b"new\nline",
    b" leading",
    b"trailing ",
    b"trailing.",
    b"\x1b[31m",
    b"\xff\xfe",
    b"-rf",
    b":colon",
    b"con",
    "\u202etxt".encode(),
    "e\u0301".encode(),
    "\u00e9".encode(),
    b"n" * 255,
    b"*",
    b"[a]",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_any_name_comes_back_exactly(shadow: Shadow, worktree: Path, name: bytes) -> None:
    """F26, E5: for a file that was changed, created or deleted, and for a directory."""
    text = os.fsdecode(name)
    before: Tree = {
        "changed": {text: "old"},
        "made": {"other": "1"},
        "gone": {text: "old", "o": ""},
        text: {"x": ""},
    }
    after: Tree = {"changed": {text: "new"}, "made": {"other": "1", text: "new"}, "gone": {"o": ""}}
    make_tree(worktree, before)
    with shadow.message("m1"):
        replace_tree(worktree, after)

    outcome = shadow.revert("m1")
    assert_tree(worktree, before)
    assert sorted(outcome.restored) == sorted([f"changed/{text}", f"gone/{text}", f"{text}/x"])
    assert outcome.deleted == [f"made/{text}"]

    shadow.unrevert()
    assert_tree(worktree, after)


@pytest.mark.parametrize("name", [".gitmodules", ".gitattributes", ".gitignore", ".shadowtreeignore"])
def test_a_file_that_means_something_to_git_comes_back_like_any_other(
    shadow: Shadow, worktree: Path, name: str
) -> None:
    make_tree(worktree, {name: "# old\n", "d": {name: "# old\n"}})
    with shadow.message("m1"):
        replace_tree(worktree, {name: "# new\n", "e": {name: "# new\n"}})

    shadow.revert("m1")

    assert_tree(worktree, {name: "# old\n", "d": {name: "# old\n"}})


def test_a_name_that_changes_in_case_alone_comes_back(shadow: Shadow, worktree: Path) -> None:
    """F31."""
    make_tree(worktree, {"readme": "1", "Dir": {"x": "1"}})
    with shadow.message("m1"):
        (worktree / "readme").rename(worktree / "README")
        (worktree / "Dir").rename(worktree / "dir")

    shadow.revert("m1")

    assert_tree(worktree, {"readme": "1", "Dir": {"x": "1"}})


def test_files_that_swapped_names_swap_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "b": {"c": "2"}})
    with shadow.message("m1"):
        (worktree / "a").rename(worktree / "t")
        (worktree / "b").rename(worktree / "a")
        (worktree / "t").rename(worktree / "b")

    shadow.revert("m1")

    assert_tree(worktree, {"a": "1", "b": {"c": "2"}})


def test_a_large_file_comes_back(shadow: Shadow, worktree: Path) -> None:
    content = bytes(range(256)) * 4 * 3000
    make_tree(worktree, {"large": content})
    with shadow.message("m1"):
        make_tree(worktree, {"large": content[:-1] + b"?"})

    shadow.revert("m1")

    assert_tree(worktree, {"large": content})


def test_a_link_is_put_back_and_never_written_through(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    """F41."""
    outside = make_tree(tmp_path / "outside", {"target": "outside"})
    make_tree(worktree, {"x": "old"})
    with shadow.message("m1"):
        (worktree / "x").unlink()
        make_tree(worktree, {"x": link(str(outside / "target"))})

    shadow.revert("m1")
    assert_tree(worktree, {"x": "old"})
    shadow.unrevert()

    assert_tree(worktree, {"x": link(str(outside / "target"))})
    assert_tree(outside, {"target": "outside"})


def test_a_directory_that_the_message_replaced_by_a_link_outside_comes_back(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """E16, F41."""
    outside = make_tree(tmp_path / "outside", {"x": "outside", "y": "outside"})
    make_tree(worktree, {"d": {"x": "1", "e": {"y": "2"}}})
    with shadow.message("m1"):
        replace_tree(worktree, {"d": link(str(outside))})

    shadow.revert("m1")
    assert_tree(worktree, {"d": {"x": "1", "e": {"y": "2"}}})
    shadow.unrevert()

    assert_tree(worktree, {"d": link(str(outside))})
    assert_tree(outside, {"x": "outside", "y": "outside"})


def test_a_directory_of_many_files_comes_back(shadow: Shadow, worktree: Path) -> None:
    before: Tree = {f"d{n}": {f"f{m}": f"{n} {m}" for m in range(30)} for n in range(20)}
    make_tree(worktree, before)
    with shadow.message("m1"):
        replace_tree(worktree, {f"d{n}": "now a file" for n in range(0, 20, 2)})

    outcome = shadow.revert("m1")

    assert_tree(worktree, before)
    assert len(outcome.restored) == 600


# Several messages


def test_the_earliest_before_state_wins(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    for number in (1, 2, 3):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})

    outcome = shadow.revert("m2")

    assert_tree(worktree, {"a": "1", "f1": "x"})
    assert outcome.messages == ["m2", "m3"]
    assert (outcome.restored, outcome.deleted) == (["a"], ["f2", "f3"])


PHASES: list[Tree] = [
    {"x": "file", "y": {"z": "1"}},
    {"x": {"in": "dir"}, "y": "file"},
    {"y": link("x")},
    {"x": link("y"), "y": {"z": {"deeper": "2"}}},
    {"x": executable("file")},
    {},
    {"x": {}, "y": file("private", 0o600)},
]


@pytest.mark.parametrize("target", range(1, len(PHASES)))
def test_every_message_of_a_line_can_be_gone_back_to(shadow: Shadow, worktree: Path, target: int) -> None:
    make_tree(worktree, PHASES[0])
    for number, tree in enumerate(PHASES[1:], 1):
        with shadow.message(f"m{number}"):
            replace_tree(worktree, tree)

    outcome = shadow.revert(f"m{target}")
    assert_tree(worktree, PHASES[target - 1])
    assert outcome.messages == [f"m{number}" for number in range(target, len(PHASES))]

    shadow.unrevert()
    assert_tree(worktree, PHASES[-1])


def test_a_file_that_one_message_made_and_the_next_one_deleted_stays_away(
    shadow: Shadow, worktree: Path
) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    with shadow.message("m2"):
        (worktree / "a").unlink()

    outcome = shadow.revert("m1")

    assert_tree(worktree, {})
    assert (outcome.messages, outcome.restored, outcome.deleted) == (["m1", "m2"], [], [])


def test_the_outcome_tells_what_was_done(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"changed": "0", "gone": "0", "same": "0"})
    with shadow.message("m1") as message:
        make_tree(worktree, {"changed": "1", "new": "1"})
        (worktree / "gone").unlink()

    outcome = shadow.revert("m1")

    assert (outcome.messages, outcome.restored, outcome.deleted) == (["m1"], ["changed", "gone"], ["new"])
    assert (outcome.before, outcome.after) == (message.after, message.before)
    assert (outcome.kept, outcome.conflicts, outcome.skipped) == ([], [], [])
    assert (outcome.complete, outcome.dry_run, outcome.mode) == (True, False, "back")
    assert set(outcome.to_dict()) == {
        "messages",
        "restored",
        "deleted",
        "kept",
        "conflicts",
        "skipped",
        "before",
        "after",
        "complete",
        "dry_run",
        "mode",
        "notes",
        "redone",
        "head",
        "undone",
        "merged",
        "marked",
        "created",
        "unprotected",
        "uncertain",
        "edited",
        "id",
        "back",
    }
    assert (outcome.created, outcome.unprotected, outcome.back) == (["gone"], [], "shadowtree unrevert")
    assert (outcome.head, outcome.undone) == (None, ["m1"])
    assert (outcome.merged, outcome.marked) == ([], [])


def test_a_revert_in_another_process_is_the_same(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    shadow.close()

    with Shadow(worktree, settings=SETTINGS) as again:
        again.revert("m1")

    assert_tree(worktree, {"a": "0"})
    shadow.unrevert()
    assert_tree(worktree, {"a": "1"})


def test_a_message_that_is_not_there_is_an_error_and_touches_nothing(shadow: Shadow, worktree: Path) -> None:
    """2d.75 is less strict: there an unknown id is no error."""
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    before = manifest(worktree)

    with pytest.raises(UnknownMessage):
        shadow.revert("nobody")
    assert manifest(worktree) == before


# Directories


def test_directories_that_the_message_made_go_with_its_files(shadow: Shadow, worktree: Path) -> None:
    """E12."""
    make_tree(worktree, {"old": {}})
    with shadow.message("m1"):
        make_tree(worktree, {"new": {"deep": {"er": {"f": "1"}}}, "old": {"sub": {"f": "1"}}, "empty": {}})

    shadow.revert("m1")

    assert_tree(worktree, {"old": {}})


def test_empty_directories_that_the_message_removed_come_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"empty": {"inner": {}}, "full": {"f": "1", "hollow": {}}})
    with shadow.message("m1"):
        replace_tree(worktree, {})

    shadow.revert("m1")

    assert_tree(worktree, {"empty": {"inner": {}}, "full": {"f": "1", "hollow": {}}})


def test_empty_directories_that_the_message_made_or_removed_change_again(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"old": {}})
    with shadow.message("m1"):
        replace_tree(worktree, {"new": {}})

    outcome = shadow.revert("m1")
    assert_tree(worktree, {"old": {}})
    assert (outcome.restored, outcome.deleted) == ([], [])
    assert outcome.notes

    shadow.unrevert()
    assert_tree(worktree, {"new": {}})


def test_a_directory_that_was_empty_before_is_empty_again(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"d": {}})
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"f": "1"}})

    shadow.revert("m1")

    assert_tree(worktree, {"d": {}})


@pytest.mark.parametrize("mine", ["mine", "x.ignored"])
def test_a_directory_that_the_message_made_stays_when_something_else_is_in_it(
    shadow: Shadow, worktree: Path, mine: str
) -> None:
    make_tree(worktree, {".gitignore": "*.ignored\n"})
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"e": {"f": "1"}}})
    make_tree(worktree, {"d": {"e": {mine: "user"}}})

    outcome = shadow.revert("m1")

    assert_tree(worktree, {".gitignore": "*.ignored\n", "d": {"e": {mine: "user"}}})
    assert outcome.deleted == ["d/e/f"]


def test_a_directory_that_the_message_did_not_make_stays_though_it_is_empty_now(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"d": {"mine": "user"}})
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"f": "1"}})
    (worktree / "d" / "mine").unlink()

    shadow.revert("m1")

    assert_tree(worktree, {"d": {}})


def test_an_empty_directory_of_the_users_stays(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"f": "1"})
    make_tree(worktree, {"mine": {}})

    shadow.revert("m1")

    assert_tree(worktree, {"mine": {}})


# Nothing else is touched


def test_nothing_but_the_changed_paths_is_touched_not_even_a_time(shadow: Shadow, worktree: Path) -> None:
    """Issues 25400 and 15391 of OpenCode: undo and redo gave every file a new mtime."""
    make_tree(worktree, {"a": "0", "same": "1", "d": {"x": "1", "sub": {"y": "1"}}, "e": {"z": "0"}})
    make_tree(worktree, {".gitignore": "*.log\n", "build.log": "1", "ln": link("a")})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "e": {"z": "1"}})
    before = manifest(worktree)

    shadow.revert("m1")
    shadow.unrevert()

    after = manifest(worktree)
    untouched = set(before) - {".", "a", "e", "e/z"}
    assert {path: after[path] for path in untouched} == {path: before[path] for path in untouched}
    assert set(after) == set(before)


def test_no_temporary_is_left(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"d": {"a": "0"}})
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"a": "1", "b": "1"}})

    shadow.revert("m1")

    assert sorted(path.name for path in worktree.rglob("*")) == ["a", "d"]


def test_a_hard_link_outside_keeps_what_it_had(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    """E31, F32: files are replaced, never written in place."""
    make_tree(worktree, {"a": "old", "b": "old"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "new", "c": "new"})
    for name in ("a", "c"):
        os.link(worktree / name, tmp_path / name)

    shadow.revert("m1")

    assert_tree(worktree, {"a": "old", "b": "old"})
    assert [(tmp_path / name).read_text() for name in ("a", "c")] == ["new", "new"]


def test_two_hard_links_inside_both_come_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "old"})
    os.link(worktree / "a", worktree / "b")
    with shadow.message("m1"):
        (worktree / "a").write_text("new")

    outcome = shadow.revert("m1")

    assert_tree(worktree, {"a": "old", "b": "old"})
    assert outcome.restored == ["a", "b"]


@pytest.mark.parametrize("other", ["d/b", "b", "e/b"])
def test_bits_that_change_under_another_name_too_are_recorded_with_the_act(
    shadow: Shadow, worktree: Path, other: str
) -> None:
    make_tree(worktree, {"d": {"a": "same"}, "e": {"c": "c"}})
    os.link(worktree / "d" / "a", worktree / other)
    with shadow.message("m1"):
        (worktree / "d" / "a").chmod(0o755)

    outcome = shadow.revert("m1", paths=["d/a"])

    assert outcome.restored == ["d/a"]
    assert shadow.track() == outcome.after


def test_a_program_that_holds_the_file_open_does_not_see_it_torn(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "old old old"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "new"})

    with open(worktree / "a") as reader:
        shadow.revert("m1")
        assert reader.read() == "new"


def test_what_the_worktree_has_beside_the_message_stays(shadow: Shadow, worktree: Path) -> None:
    """I9, I10: whole-tree resets and cleans."""
    make_tree(worktree, {".gitignore": "out/\n", "a": "0", "mine": "0", "node_modules": {"m": "1"}})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"mine": "edited", "new": "mine", "out": {"result": "1"}, "node_modules": {"n": "2"}})

    shadow.revert("m1")

    assert_tree(
        worktree,
        {
            ".gitignore": "out/\n",
            "a": "0",
            "mine": "edited",
            "new": "mine",
            "out": {"result": "1"},
            "node_modules": {"m": "1", "n": "2"},
        },
    )


def test_what_was_never_covered_makes_no_revert_incomplete(worktree: Path) -> None:
    make_tree(worktree, {"big": "x" * 200, "a": "0"})
    os.mkfifo(worktree / "pipe")
    with Shadow(worktree, settings={**SETTINGS, "max_file_size": 100}) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": "1"})

        outcome = shadow.revert("m1")

    assert (outcome.restored, outcome.skipped, outcome.complete) == (["a"], [], True)


def test_a_path_longer_than_the_system_takes_is_reverted(shadow: Shadow, worktree: Path) -> None:
    """F27: 600 directories deep, 6,000 bytes long."""
    with deep_directory(worktree, 600) as place:

        def content() -> bytes:
            with open("f", "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=place)) as reader:
                return reader.read()

        def write(text: str) -> None:
            with open("f", "w", opener=lambda name, flags: os.open(name, flags, dir_fd=place)) as writer:
                writer.write(text)

        write("0")
        with shadow.message("m1"):
            write("1")

        shadow.revert("m1")
        assert content() == b"0"
        shadow.unrevert()
        assert content() == b"1"


@contextmanager
def deep_directory(top: Path, depth: int) -> Iterator[int]:
    """Make nested directories, and return a descriptor of the innermost."""
    place = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("directory", dir_fd=place)
        inner = os.open("directory", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    try:
        yield place
    finally:
        os.close(place)
        shutil.rmtree(top / "directory")


# Parts by path


@pytest.fixture
def wide(shadow: Shadow, worktree: Path) -> Shadow:
    """Two messages that changed files in several directories."""
    make_tree(worktree, {"a": "0", "d": {"x": "0", "e": {"y": "0"}}, "dd": {"z": "0"}})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "d": {"x": "1", "e": {"y": "1"}, "new": "1"}, "dd": {"z": "1"}})
    with shadow.message("m2"):
        make_tree(worktree, {"a": "2", "d": {"x": "2"}})
    return shadow


@pytest.mark.parametrize(
    ("paths", "back"),
    [
        (["a"], ["a"]),
        (["d"], ["d/x", "d/e/y", "d/new"]),
        (["d/e"], ["d/e/y"]),
        (["d/e/"], ["d/e/y"]),
        (["./a"], ["a"]),
        (["a", "dd"], ["a", "dd/z"]),
        (["d/new"], ["d/new"]),
        (["never there"], []),
        (["."], ["a", "d/x", "d/e/y", "d/new", "dd/z"]),
    ],
    ids=str,
)
def test_a_revert_of_some_paths_touches_those_alone(
    wide: Shadow, worktree: Path, paths: list[str], back: list[str]
) -> None:
    outcome = wide.revert("m1", paths=paths)

    assert sorted([*outcome.restored, *outcome.deleted]) == sorted(back)
    expected: dict[str, str | None] = {"a": "2", "d/x": "2", "d/e/y": "1", "d/new": "1", "dd/z": "1"}
    expected |= {path: None if path == "d/new" else "0" for path in back}
    found = {path: (worktree / path).read_text() if (worktree / path).exists() else None for path in expected}
    assert found == expected


def test_a_revert_of_some_paths_does_not_move_the_head(wide: Shadow) -> None:
    wide.revert("m1", paths=["a"])

    assert (wide.status().head, wide.status().undone) == ("m2", [])
    assert {message.state for message in wide.messages()} == {"active"}


def test_a_revert_of_some_paths_is_taken_back_by_unrevert(wide: Shadow, worktree: Path) -> None:
    before = read_tree(worktree)
    wide.revert("m1", paths=["d"])

    wide.unrevert()

    assert read_tree(worktree) == before


def test_the_whole_message_can_be_reverted_after_some_of_its_paths(wide: Shadow, worktree: Path) -> None:
    wide.revert("m1", paths=["a", "d/new"])

    outcome = wide.revert("m1")

    assert_tree(worktree, {"a": "0", "d": {"x": "0", "e": {"y": "0"}}, "dd": {"z": "0"}})
    assert outcome.messages == ["m1", "m2"]


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "d/../../x", ".."])
def test_a_path_outside_is_an_error_and_nothing_is_touched(wide: Shadow, worktree: Path, path: str) -> None:
    before = manifest(worktree)

    with pytest.raises((InvalidInput, UnsafePath)):
        wide.revert("m1", paths=["a", path])
    assert manifest(worktree) == before


def test_a_conflict_outside_the_paths_does_not_matter(wide: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "user"})

    wide.revert("m1", paths=["dd"])

    assert (worktree / "dd" / "z").read_text() == "0"
    assert (worktree / "a").read_text() == "user"


# Parts by step


@pytest.fixture
def stepped(shadow: Shadow, worktree: Path) -> Shadow:
    """A message with three steps, and one after it."""
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        for number in (1, 2, 3):
            with shadow.step(f"s{number}"):
                make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})
        make_tree(worktree, {"tail": "x"})
    with shadow.message("m2"):
        make_tree(worktree, {"a": "m2", "later": "x"})
    return shadow


@pytest.mark.parametrize(
    ("step", "left"),
    [
        ("s1", {"a": "0"}),
        ("s2", {"a": "1", "f1": "x"}),
        ("s3", {"a": "2", "f1": "x", "f2": "x"}),
    ],
)
def test_a_revert_to_a_step_goes_back_to_before_it(
    stepped: Shadow, worktree: Path, step: str, left: Tree
) -> None:
    stepped.revert("m1", step=step)

    assert_tree(worktree, left)


def test_a_revert_to_a_step_does_not_move_the_head(stepped: Shadow, worktree: Path) -> None:
    before = read_tree(worktree)
    stepped.revert("m1", step="s2")

    assert (stepped.status().head, stepped.status().undone) == ("m2", [])
    stepped.unrevert()
    assert read_tree(worktree) == before


def test_a_revert_to_a_step_may_be_narrowed_by_paths(stepped: Shadow, worktree: Path) -> None:
    stepped.revert("m1", step="s3", paths=["f3", "later"])

    assert_tree(worktree, {"a": "m2", "f1": "x", "f2": "x", "tail": "x"})


def test_a_revert_to_a_step_leaves_what_the_message_did_not_write(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "mine": "0"})
    shadow.begin("m1")
    with shadow.step("s1"):
        make_tree(worktree, {"a": "1", "mine": "user"})
    shadow.end(paths=["a"])

    shadow.revert("m1", step="s1")

    assert_tree(worktree, {"a": "0", "mine": "user"})


def test_a_step_that_is_not_there_is_an_error_and_touches_nothing(stepped: Shadow, worktree: Path) -> None:
    before = manifest(worktree)

    with pytest.raises(ShadowError):
        stepped.revert("m1", step="nobody")
    with pytest.raises(ShadowError):
        stepped.revert("m2", step="s1")
    assert manifest(worktree) == before


def test_no_step_of_a_message_that_is_not_in_force_is_reverted(stepped: Shadow, worktree: Path) -> None:
    """Not even of the first one that redo would bring back, although nothing is between here and it."""
    stepped.undo(2)
    before = manifest(worktree)

    for message, step in (("m1", "s1"), ("m2", "s1")):
        with pytest.raises(InvalidInput, match="is not active, so its steps cannot be reverted"):
            stepped.revert(message, step=step)
    assert manifest(worktree) == before


def test_a_path_of_a_message_that_is_not_active_is_not_called_unchanged(
    shadow: Shadow, worktree: Path
) -> None:
    for number in ("1", "2"):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"a": number})
    shadow.undo()

    outcome = shadow.revert("m2", paths=["a"])

    assert outcome.notes == ["nothing to revert: 'm2' is not active"]


def test_a_step_of_the_open_message_can_be_reverted(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    with shadow.step("good"):
        make_tree(worktree, {"a": "1"})
    with shadow.step("bad"):
        make_tree(worktree, {"a": "2", "b": "2"})

    shadow.revert("m1", step="bad")

    assert_tree(worktree, {"a": "1"})


# Dry runs

ACTS: dict[str, Callable[[Shadow], object]] = {
    "plan_revert": lambda shadow: shadow.plan_revert("m1"),
    "revert": lambda shadow: shadow.revert("m1", dry_run=True),
    "revert of a path": lambda shadow: shadow.revert("m1", paths=["a"], dry_run=True),
    "undo": lambda shadow: shadow.undo(dry_run=True),
    "redo": lambda shadow: shadow.redo(dry_run=True),
    "unrevert": lambda shadow: shadow.unrevert(dry_run=True),
    "restore": lambda shadow: shadow.restore("m1^", dry_run=True),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("is_open", [False, True], ids=["ended", "open"])
def test_a_dry_run_changes_nothing(shadow: Shadow, worktree: Path, act: str, is_open: bool) -> None:
    make_tree(worktree, {"a": "0", "d": {"gone": "0"}})
    for number in (1, 2):
        with shadow.message(f"m{number}"):
            replace_tree(worktree, {"a": f"{number}", "new": {"f": f"{number}"}})
    with shadow.message("m3"):
        make_tree(worktree, {"a": "3"})
    shadow.undo()
    if is_open:
        shadow.begin("m4")
    make_tree(worktree, {"edited": "since"})
    before = (manifest(worktree), count_rows(shadow), shadow.messages(), shadow.status())

    ACTS[act](shadow)

    assert (manifest(worktree), count_rows(shadow), shadow.messages(), shadow.status()) == before


def test_a_dry_run_tells_what_the_act_then_does(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "gone": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"a": "1", "new": "1"})

    dry = shadow.revert("m1", dry_run=True)
    plan = shadow.plan_revert("m1")
    outcome = shadow.revert("m1")

    assert (dry.dry_run, outcome.dry_run) == (True, False)
    keys = ("messages", "restored", "deleted", "kept", "conflicts", "skipped", "complete", "mode")
    assert [dry.to_dict()[key] for key in keys] == [outcome.to_dict()[key] for key in keys]
    assert plan.to_dict() == dry.to_dict()


def test_a_dry_run_lists_conflicts_and_does_not_raise(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "user"})

    outcome = shadow.revert("m1", dry_run=True)

    assert [conflict.path for conflict in outcome.conflicts] == ["a"]
    assert [conflict.path for conflict in shadow.plan_revert("m1").conflicts] == ["a"]
    assert_tree(worktree, {"a": "user"})


def test_a_plan_says_what_happens_to_each_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "gone": file("0", 0o600)})
    with shadow.message("m1"):
        replace_tree(worktree, {"a": "1", "new": "1"})

    plan = shadow.plan_revert("m1")

    assert (plan.messages, plan.restored, plan.deleted) == (["m1"], ["a", "gone"], ["new"])
    found = {change.path: (change.old_mode, change.new_mode) for change in plan.changes}
    assert found == {
        "a": (0o100644, 0o100644),
        "gone": (None, 0o100600),
        "new": (0o100644, None),
    }


def test_a_plan_for_an_open_message_takes_in_what_it_did_so_far(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.begin("m1")
    make_tree(worktree, {"a": "1", "b": "1"})

    plan = shadow.plan_revert("m1")

    assert (plan.messages, plan.restored, plan.deleted) == (["m1"], ["a"], ["b"])
    assert shadow.status().open == "m1"


# Restore


@pytest.fixture
def lived(shadow: Shadow, worktree: Path) -> Shadow:
    """Two messages, and the user's edits between and after them."""
    make_tree(worktree, {"a": "0", "gone": {"g": "0"}})
    with shadow.message("m1"):
        replace_tree(worktree, {"a": "1", "new": "1"})
    make_tree(worktree, {"between": "user"})
    with shadow.message("m2"):
        make_tree(worktree, {"a": "2"})
    make_tree(worktree, {"a": "user", "after": "user"})
    return shadow


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ("m1^", {"a": "0", "gone": {"g": "0"}}),
        ("m1", {"a": "1", "new": "1"}),
        ("m2^", {"a": "1", "new": "1", "between": "user"}),
        ("m2", {"a": "2", "new": "1", "between": "user"}),
        ("@", {"a": "2", "new": "1", "between": "user"}),
        ("#1^", {"a": "0", "gone": {"g": "0"}}),
        ("@~1", {"a": "1", "new": "1"}),
    ],
)
def test_restore_makes_all_that_is_covered_equal_to_a_tree(
    lived: Shadow, worktree: Path, ref: str, expected: Tree
) -> None:
    """2a.39 is less strict: there restore never deletes. 2b.62 too."""
    before = read_tree(worktree)

    outcome = lived.restore(ref, confirm=lambda plan: True)
    assert_tree(worktree, expected)
    assert outcome.complete

    lived.unrevert()
    assert read_tree(worktree) == before


def test_restore_takes_a_tree_id(lived: Shadow, worktree: Path) -> None:
    tree = str(lived.messages()[0].after)

    outcome = lived.restore(tree)

    assert_tree(worktree, {"a": "1", "new": "1"})
    assert outcome.after == tree


def test_restore_does_not_move_the_head(lived: Shadow) -> None:
    lived.restore("m1^")

    assert (lived.status().head, lived.status().undone) == ("m2", [])


@pytest.mark.parametrize("ref", ["nobody", "0" * 40, "nobody^", "m1^^", "", "^", "HEAD"])
def test_restore_of_what_is_not_there_is_an_error_and_touches_nothing(
    lived: Shadow, worktree: Path, ref: str
) -> None:
    before = manifest(worktree)

    with pytest.raises(UnknownName):
        lived.restore(ref)
    assert manifest(worktree) == before


def test_restore_leaves_what_is_not_covered_alone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "x.log": "0"})
    shadow.snapshot("m1")
    make_tree(worktree, {"x.log": "1", "y.log": "1", "new": "1", "node_modules": {"m": "1"}})

    shadow.restore("m1")

    assert_tree(worktree, {".gitignore": "*.log\n", "x.log": "1", "y.log": "1", "node_modules": {"m": "1"}})


def test_restore_leaves_a_path_alone_that_is_unknown_in_the_target(shadow: Shadow, worktree: Path) -> None:
    """I11: the rules of the target decide, not those of now."""
    make_tree(worktree, {".gitignore": "*.log\n", "x.log": "0"})
    shadow.snapshot("m1")
    make_tree(worktree, {".gitignore": "", "x.log": "1"})

    outcome = shadow.restore("m1")

    assert_tree(worktree, {".gitignore": "*.log\n", "x.log": "1"})
    assert ([skip.path for skip in outcome.skipped], outcome.complete) == (["x.log"], False)


def test_something_uncovered_in_the_way_of_a_restore_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "x": "file", "a": "0"})
    shadow.snapshot("m1")
    replace_tree(worktree, {".gitignore": "*.log\n", "x": {"keep.log": "only copy"}, "a": "1"})
    before = manifest(worktree)

    for on_conflict in ("abort", "overwrite"):
        with pytest.raises(Conflict) as error:
            shadow.restore("m1", on_conflict=on_conflict)
        assert error.value.conflicts[0].path in ("x", "x/keep.log")

    assert manifest(worktree) == before


def test_restore_with_keep_leaves_alone_what_is_in_the_way_and_does_the_rest(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "x": "file", "a": "0"})
    shadow.snapshot("m1")
    replace_tree(worktree, {".gitignore": "*.log\n", "x": {"keep.log": "only copy"}, "a": "1"})

    outcome = shadow.restore("m1", on_conflict="keep")

    assert_tree(worktree, {".gitignore": "*.log\n", "x": {"keep.log": "only copy"}, "a": "0"})
    assert outcome.restored == ["a"]


def test_restore_brings_back_bits_links_and_empty_directories(shadow: Shadow, worktree: Path) -> None:
    tree: Tree = {"key": file("k", 0o600), "run": executable("r"), "ln": link("run"), "empty": {"e": {}}}
    make_tree(worktree, tree)
    shadow.snapshot("m1")
    replace_tree(worktree, {"empty": "file", "other": {}})

    shadow.restore("m1")

    assert_tree(worktree, tree)


def test_restore_of_the_present_state_does_nothing(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    shadow.snapshot("m1")
    before = manifest(worktree)

    outcome = shadow.restore("m1", confirm=lambda plan: pytest.fail("nothing to ask"))

    assert manifest(worktree) == before
    assert (outcome.restored, outcome.deleted, outcome.complete) == ([], [], True)


def test_restore_does_not_overwrite_what_is_ignored_now(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    shadow.snapshot("m1")
    make_tree(worktree, {".gitignore": "x\n", "x": "only copy"})

    with pytest.raises(Conflict):
        shadow.restore("m1")
    assert_tree(worktree, {".gitignore": "x\n", "x": "only copy"})


def test_a_ref_with_a_caret_is_the_state_before_a_message(shadow: Shadow, worktree: Path) -> None:
    for number, message_id in enumerate(("x", "y"), 1):
        with shadow.message(message_id):
            make_tree(worktree, {"a": f"{number}"})
    make_tree(worktree, {"a": "now"})

    shadow.restore("y")
    assert_tree(worktree, {"a": "2"})
    shadow.restore("y^")
    assert_tree(worktree, {"a": "1"})


# Confirmation


@pytest.mark.parametrize(
    ("made", "is_ended", "asks"),
    [(20, False, False), (21, False, True), (21, True, False), (99, True, False)],
)
def test_a_revert_asks_when_it_would_unlink_much_because_of_an_inferred_end(
    shadow: Shadow, worktree: Path, made: int, is_ended: bool, asks: bool
) -> None:
    """F62, I10, first-hour row B10."""
    shadow.begin("m1")
    make_tree(worktree, {f"made{number}": "1" for number in range(made)})
    if is_ended:
        shadow.end("m1")
    asked: list[Plan] = []

    def agree(plan: Plan) -> bool:
        asked.append(plan)
        return True

    shadow.revert("m1", confirm=agree)

    assert bool(asked) == asks
    assert read_tree(worktree) == {}
    assert all(len(plan.deleted) == made for plan in asked)


@pytest.mark.parametrize("act", ["revert", "undo", "switch", "redo"])
def test_an_act_that_is_not_confirmed_touches_nothing(shadow: Shadow, worktree: Path, act: str) -> None:
    many = {f"n{n}": "1" for n in range(21)}
    make_tree(worktree, {"a": "1", **(many if act == "redo" else {})})
    with shadow.message("m0"):
        make_tree(worktree, {"a": "2"})
    shadow.begin("m1")
    replace_tree(worktree, {"a": "3"} if act == "redo" else {"a": "3", **many})
    shadow.begin("m2")
    shadow.end("m2")
    if act == "redo":
        shadow.undo(2)
    before = (manifest(worktree), shadow.messages(), shadow.status())
    acts: dict[str, Callable[..., object]] = {
        "revert": lambda **more: shadow.revert("m1", **more),
        "undo": lambda **more: shadow.undo(2, **more),
        "switch": lambda **more: shadow.switch("m0", **more),
        "redo": shadow.redo,
    }

    with pytest.raises(NotConfirmed) as error:
        acts[act](confirm=lambda plan: False)
    assert (error.value.outcome.deleted, len(error.value.plan.deleted)) == ([], 21)
    assert (manifest(worktree), shadow.messages(), shadow.status()) == before


@pytest.mark.parametrize("ref", ["m1^", "m1"])
def test_a_restore_that_changes_anything_asks(shadow: Shadow, worktree: Path, ref: str) -> None:
    make_tree(worktree, {f"f{number}": "1" for number in range(10)})
    with shadow.message("m1"):
        make_tree(worktree, {"f0": "2"})
    make_tree(worktree, {"f0": "3"})
    before = manifest(worktree)

    with pytest.raises(NotConfirmed):
        shadow.restore(ref, confirm=lambda plan: False)
    assert manifest(worktree) == before


def test_conflicts_come_before_the_question(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "1"})
    make_tree(worktree, {"a": "user"})

    with pytest.raises(Conflict) as error:
        shadow.revert("m1", confirm=lambda plan: pytest.fail("there is nothing to ask yet"))
    assert not isinstance(error.value, NotConfirmed)


# Damage


def remove_packs(pack: Path) -> None:
    pack.unlink()
    pack.with_suffix(".idx").unlink()


def truncate(pack: Path) -> None:
    os.truncate(pack, pack.stat().st_size // 2)


def empty(pack: Path) -> None:
    os.truncate(pack, 0)


def flip(pack: Path) -> None:
    content = bytearray(pack.read_bytes())
    for place in range(12, len(content) - 20, 7):
        content[place] ^= 0xFF
    pack.write_bytes(content)


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize("harm", [remove_packs, truncate, empty, flip], ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("is_same_process", [True, False], ids=["same process", "new process"])
def test_a_damaged_store_is_an_error_before_the_first_write(
    worktree: Path, harm: Callable[[Path], None], is_same_process: bool
) -> None:
    """I1, E7: OpenCode takes a tree that cannot be read for one without files."""
    contents: Tree = {f"f{number}": os.urandom(3000) for number in range(20)}
    make_tree(worktree, {**contents, "gone": "0"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            (worktree / "gone").unlink()
            make_tree(worktree, {**dict.fromkeys(contents, "changed"), "new": "1"})
        if not is_same_process:
            shadow.close()
        for pack in list((shadow.store / "objects" / "pack").glob("*.pack")):
            harm(pack)
        before = manifest(worktree)

        with pytest.raises(StoreDamaged):
            shadow.revert("m1")

    assert manifest(worktree) == before


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize("is_same_process", [True, False], ids=["same process", "new process"])
def test_what_is_about_to_be_replaced_is_read_back_from_the_store_first(
    worktree: Path, is_same_process: bool
) -> None:
    """P0: a store that only seems to have the bytes does not justify replacing the file."""
    make_tree(worktree, {"a": "old"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": os.urandom(5000)})
        if not is_same_process:
            shadow.close()
        packs = (shadow.store / "objects" / "pack").glob("*.pack")
        rot(max(packs, key=lambda pack: pack.stat().st_size), 2500)
        before = read_tree(worktree)

        with suppress(StoreDamaged):
            shadow.undo()
            shadow.unrevert()

    assert read_tree(worktree) == before


def rot(pack: Path, place: int) -> None:
    """Change one byte so that only the file's ctime shows it."""
    status = pack.stat()
    with open(pack, "r+b") as writer:
        writer.seek(place)
        byte = writer.read(1)[0]
        writer.seek(place)
        writer.write(bytes([byte ^ 0xFF]))
    os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.usefixtures("large_packs")
def test_one_lost_blob_is_an_error_before_the_first_write(worktree: Path) -> None:
    """The trees are whole and every other file could be restored: still nothing is touched."""
    make_tree(worktree, {"a": "old a", "b": "old b", "z": "old z"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": "1", "b": "1", "z": "1"})
        lose_blob(shadow.store, blob_id(worktree, "old b"))
        before = manifest(worktree)

        with pytest.raises(StoreDamaged):
            shadow.revert("m1")

    assert manifest(worktree) == before


def lose_blob(store: Path, blob: str) -> None:
    """Unpack a store into loose objects, and remove one of them."""
    packs = store / "objects" / "pack"
    moved = store.parent / "moved"
    packs.rename(moved)
    packs.mkdir(mode=0o700)
    for pack in moved.glob("*.pack"):
        with open(pack, "rb") as reader:
            subprocess.run(
                ["git", "--git-dir", store, "unpack-objects", "-q"],
                stdin=reader,
                check=True,
                capture_output=True,
            )
    shutil.rmtree(moved)
    (store / "objects" / blob[:2] / blob[2:]).unlink()


@pytest.mark.usefixtures("large_packs")
def test_a_revert_that_needs_nothing_lost_still_works(worktree: Path) -> None:
    make_tree(worktree, {"a": "old a", "b": "old b"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": "new a"})
        with shadow.message("m2"):
            make_tree(worktree, {"b": "new b"})
        lose_blob(shadow.store, blob_id(worktree, "old a"))

        shadow.revert("m2")
        assert_tree(worktree, {"a": "new a", "b": "old b"})
        with pytest.raises(StoreDamaged):
            shadow.revert("m1")

    assert_tree(worktree, {"a": "new a", "b": "old b"})


def blob_id(worktree: Path, content: str) -> str:
    """Get the id of a blob from git."""
    probe = worktree.parent / "probe"
    probe.write_text(content)
    return git("hash-object", "--no-filters", probe)


# A file system that refuses


@pytest.fixture
def immutable(worktree: Path) -> Iterator[Callable[[Path], None]]:
    """Make files that nobody can change until the test is over."""
    made: list[Path] = []

    def make(path: Path) -> None:
        done = subprocess.run(["chattr", "+i", path], check=False, capture_output=True)
        if done.returncode:
            pytest.skip("files cannot be made immutable here")
        made.append(path)

    yield make
    for path in made:
        subprocess.run(["chattr", "-i", path], check=True)


@pytest.mark.parametrize("path", ["a", "m", "z", "d", "gone", "new"])
def test_a_path_that_cannot_be_replaced_takes_everything_back(
    shadow: Shadow, worktree: Path, immutable: Callable[[Path], None], path: str
) -> None:
    """F65: an immutable file or directory in the middle."""
    make_tree(worktree, {"a": "0", "m": "0", "z": "0", "d": {"x": "0"}, "gone": {"g": "0"}})
    with shadow.message("m1"):
        replace_tree(worktree, {"a": "1", "m": "1", "z": "1", "d": {"x": "1", "y": "1"}, "new": {"n": "1"}})
        make_tree(worktree, {"gone": {}})
    before = read_tree(worktree)
    immutable(worktree / path)

    with pytest.raises(ShadowError):
        shadow.revert("m1")

    assert read_tree(worktree) == before
    assert shadow.status().head == "m1"


def test_a_revert_that_failed_works_when_the_reason_is_gone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "z": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "z": "1"})
    done = subprocess.run(["chattr", "+i", worktree / "z"], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("files cannot be made immutable here")
    try:
        with pytest.raises(ShadowError):
            shadow.revert("m1")
    finally:
        subprocess.run(["chattr", "-i", worktree / "z"], check=True)

    shadow.revert("m1")

    assert_tree(worktree, {"a": "0", "z": "0"})


# As another user than root


def as_nobody(place: Path, act: Callable[[Shadow, Path], object]) -> None:
    """Run a scenario as a user whom permissions bind; first as root, so that everything is imported."""

    def run(name: str) -> None:
        worktree = make_tree(place / name / "worktree", {})
        with Shadow(worktree, store=place / name / "store", settings=SETTINGS) as shadow:
            act(shadow, worktree)

    def scenario() -> None:
        if os.geteuid() == 0:
            with suppress(AssertionError, pytest.fail.Exception):
                run("warm-up")
            (place / "theirs").mkdir()
            os.chown(place / "theirs", 65534, 65534)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        run("theirs")

    in_child(scenario).value()


def test_a_file_that_cannot_be_read_any_more_is_left_alone_and_listed(open_place: Path) -> None:
    """F20."""

    def act(shadow: Shadow, worktree: Path) -> None:
        make_tree(worktree, {"file": "0", "a": "0"})
        with shadow.message("m1"):
            make_tree(worktree, {"file": file("1", 0o000), "a": "1"})

        outcome = shadow.revert("m1")

        assert stat.S_IMODE((worktree / "file").stat().st_mode) == 0
        (worktree / "file").chmod(0o644)
        assert_tree(worktree, {"file": "1", "a": "0"})
        assert ([skip.path for skip in outcome.skipped], outcome.complete) == (["file"], False)

    as_nobody(open_place, act)


@pytest.mark.parametrize("path", ["d", "d/x"])
@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_what_the_user_closed_since_is_a_conflict_and_stays(
    open_place: Path, path: str, on_conflict: Literal["abort", "overwrite"]
) -> None:
    """F20: nothing shows whether it is still as the message left it, and it cannot be stored."""

    def act(shadow: Shadow, worktree: Path) -> None:
        make_tree(worktree, {"d": {"x": "0"}, "a": "0"})
        with shadow.message("m1"):
            make_tree(worktree, {"d": {"x": "1", "new": "1"}, "a": "1"})
        (worktree / path).chmod(0o000)

        with pytest.raises(ShadowError):
            shadow.revert("m1", on_conflict=on_conflict)

        (worktree / path).chmod(0o755 if path == "d" else 0o644)
        assert_tree(worktree, {"d": {"x": "1", "new": "1"}, "a": "1"})

    as_nobody(open_place, act)


def test_a_directory_without_the_right_to_write_takes_everything_back(open_place: Path) -> None:
    """F65."""

    def act(shadow: Shadow, worktree: Path) -> None:
        make_tree(worktree, {"a": "0", "d": {"x": "0"}, "z": "0"})
        with shadow.message("m1"):
            make_tree(worktree, {"a": "1", "d": {"x": "1"}, "z": "1"})
        before = read_tree(worktree)
        (worktree / "d").chmod(0o555)

        with pytest.raises(ShadowError):
            shadow.revert("m1")
        assert read_tree(worktree) == before
        (worktree / "d").chmod(0o755)
        shadow.revert("m1")

        assert_tree(worktree, {"a": "0", "d": {"x": "0"}, "z": "0"})

    as_nobody(open_place, act)


@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_restore_leaves_a_file_alone_that_is_too_big_to_be_covered(
    small: Shadow, worktree: Path, on_conflict: Literal["abort", "overwrite"]
) -> None:
    make_tree(worktree, {"a": "1"})
    tree = small.track()
    make_tree(worktree, {"a": "2", "data": "x" * 100})

    small.restore(tree, on_conflict=on_conflict)

    assert_tree(worktree, {"a": "1", "data": "x" * 100})


def test_what_wrap_recorded_can_be_restored_before_the_first_message(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.wrap()
    (worktree / "a").unlink()
    shadow.restore("@", paths=["a"])

    assert (worktree / "a").read_text() == "1"
    assert shadow.read_file("@", "a") == b"1"
