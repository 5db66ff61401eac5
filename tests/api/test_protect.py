"""`protect`: adds a rule for an ignored or too big file, so that the next snapshot covers it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowtree import InvalidInput, NotWrapped, Shadow, ShadowError
from tests.support.trees import link, make_tree, read_tree

RULES = ".shadowtreeignore"


def record(shadow: Shadow, id: str, path: Path, content: str) -> list[str]:
    with shadow.message(id) as message:
        path.write_text(content)
    return [file.path for file in message.patch.files]


def test_a_protected_file_is_undone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1"})
    shadow.wrap()
    assert shadow.why_unprotected(".env") is not None
    (found,) = shadow.protect(".env")
    record(shadow, "m1", worktree / ".env", "S=2")
    record(shadow, "m2", worktree / ".env", "S=3")
    shadow.undo()

    assert found.to_dict() == {"path": ".env", "rule": "!/.env", "exists": True, "dry_run": False}
    assert shadow.why_unprotected(".env") is None
    assert (worktree / ".env").read_text() == "S=2"
    assert (worktree / RULES).read_text() == "!/.env\n"


def test_a_file_that_is_too_big_is_covered(small: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"big.bin": "x" * 100})
    small.wrap()
    small.protect("big.bin")

    assert small.take_snapshot().skipped == []


def test_it_is_done_once(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1", "a.txt": "1"})
    shadow.wrap()
    shadow.protect(".env", ".env")

    assert [each.rule for each in shadow.protect(".env", "a.txt")] == [None, None]
    assert (worktree / RULES).read_text() == "!/.env\n"


def test_a_dry_run_writes_nothing(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1"})
    shadow.wrap()
    (found,) = shadow.protect(".env", dry_run=True)

    assert (found.rule, found.dry_run) == ("!/.env", True)
    assert not (worktree / RULES).exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "!/.env\n"),
        ("*.tmp\n", "*.tmp\n!/.env\n"),
        ("*.tmp", "*.tmp\n!/.env\n"),
        ("*.tmp\r\n.env\r\n", "*.tmp\r\n.env\r\n!/.env\r\n"),
        ("*.tmp\r\nx", "*.tmp\r\nx\r\n!/.env\r\n"),
    ],
    ids=["empty", "lines", "without a line break", "CRLF", "CRLF without the last"],
)
def test_rules_are_added_to(shadow: Shadow, worktree: Path, before: str, after: str) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1"})
    (worktree / RULES).write_bytes(before.encode())
    (worktree / RULES).chmod(0o640)
    os.link(worktree / RULES, worktree / "same")
    shadow.wrap()
    shadow.protect(".env")

    assert (worktree / RULES).read_bytes() == after.encode()
    assert (worktree / "same").samefile(worktree / RULES), "it is the same file with the same mode"


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "a*b",
        "[ab]",
        "a?",
        "back\\slash",
        "!x",
        "#x",
        " x ",
        "x  ",
        "\\",
        "x\r",
        "tab\t",
        "ü",
        "**",
        "x\udcff",
    ],
)
@pytest.mark.parametrize("directory", ["", "sub/", "build/deep/"])
def test_just_the_named_file_is_covered(shadow: Shadow, worktree: Path, name: str, directory: str) -> None:
    """The other names would match if the name were treated as a pattern."""
    make_tree(worktree, {".gitignore": "*\n!.gitignore\n", "build": {"deep": {}}, "sub": {}})
    for place in ("", "sub/", "build/deep/"):
        for each in (name, "a", "axb", "ab", "xx", "x"):
            (worktree / f"{place}{each}").write_text("1")
    shadow.wrap()
    shadow.protect(f"{directory}{name}")
    before = shadow.track()
    for path in list(read_files(worktree)):
        (worktree / path).write_text("2")

    assert [file.path for file in shadow.patch(before).files if file.path != RULES] == [f"{directory}{name}"]


def read_files(root: Path) -> list[str]:
    paths = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return [str(path) for path in paths if not path.name.startswith(".")]


def test_a_directory_is_covered_with_all_in_it(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "build/\n", "build": {"a": "1", "b": {"c": "1"}}})
    shadow.wrap()
    (found,) = shadow.protect("build")

    assert found.rule == "!/build/"
    assert shadow.take_snapshot().files == 4


def test_a_file_that_is_yet_to_come_can_be_protected(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n"})
    shadow.wrap()
    (found,) = shadow.protect(".env")
    assert not found.exists

    assert record(shadow, "m1", worktree / ".env", "S=1") == [".env"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../x", "not in the worktree"),
        (".", "the whole worktree cannot be protected at once"),
        (".git/config", "git's own files"),
        ("sub/.git/config", "git's own files"),
        ("a\nb", "line break"),
        ("out/x", "out is a link"),
        ("in/x", "in is a link"),
        ("leaves", "points outside the worktree"),
        ("pipe", "not a regular file or link"),
    ],
    ids=lambda value: str(value).replace("\n", " "),
)
def test_what_cannot_be_protected_is_refused(
    shadow: Shadow, worktree: Path, tmp_path: Path, path: str, why: str
) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1", "sub": {"x": "1"}})
    make_tree(worktree, {"out": link(str(tmp_path)), "in": link("sub"), "leaves": link("../secret")})
    os.mkfifo(worktree / "pipe")
    shadow.wrap()

    with pytest.raises(InvalidInput, match=why):
        shadow.protect(".env", path)
    assert not (worktree / RULES).exists()


def test_rules_are_never_written_through_a_link(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1", RULES: link(str(tmp_path / "elsewhere"))})
    shadow.wrap()

    with pytest.raises(ShadowError, match="it is not a regular file"):
        shadow.protect(".env")
    assert (tmp_path / "elsewhere").read_text() == "mine\n"


def test_a_file_of_too_many_rules_is_left_as_it_is(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1", RULES: "?[a-z]*[0-9]x\n" * 2000})
    shadow.wrap()

    with pytest.raises(InvalidInput, match="too many rules"):
        shadow.protect(".env")
    assert (worktree / RULES).read_text().endswith("0-9]x\n")


def test_a_directory_that_is_not_wrapped_is_left_alone(worktree: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n", ".env": "S=1"})
    with Shadow(worktree) as shadow, pytest.raises(NotWrapped):
        shadow.protect(".env")

    assert set(read_tree(worktree)) == {".gitignore", ".env"}
