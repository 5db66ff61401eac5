"""Reading what was recorded: files as of a message, the author of each line, messages by time and path."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shadowtree import Shadow, ShadowError, UnknownTree
from shadowtree.base.errors import InvalidInput, UnknownName
from tests.support.trees import make_tree


def record(shadow: Shadow, worktree: Path, id: str, **files: str) -> None:
    with shadow.message(id):
        for name, content in files.items():
            (worktree / name).write_text(content)


# Files


def test_a_file_is_read_as_of_a_message_or_a_tree(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, "m1", a="1")
    record(shadow, worktree, "m2", a="2")
    tree = shadow.messages()[0].after
    assert tree is not None

    assert shadow.read_file("m1", "a") == b"1"
    assert shadow.read_file("m2^", "a") == b"1"
    assert shadow.read_file("@", worktree / "a") == b"2"
    assert shadow.read_file(tree[:7], "a") == b"1"


def test_bytes_come_as_they_are_and_a_link_is_its_target(shadow: Shadow, worktree: Path) -> None:
    content = os.urandom(300_000) + b"\r\n\0"
    (worktree / "binary").write_bytes(content)
    (worktree / "link").symlink_to("binary")
    shadow.snapshot("m1")
    shadow.snapshot("m2")

    assert shadow.read_file("m1", "binary") == content
    assert shadow.read_file("m1", "link") == b"binary"


def test_the_longest_name_that_means_something_is_the_one_before_the_path(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "plain", "b:a": "colon"})
    shadow.snapshot("m")
    shadow.snapshot("m:b")
    (worktree / "a").write_text("later")
    shadow.snapshot("later")
    pieces: list[bytes] = []

    shadow.cat("m:b:a", pieces.append)
    shadow.cat("later:b:a", pieces.append)
    shadow.cat("m:b:b:a", pieces.append)

    assert pieces == [b"plain", b"colon", b"colon"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("m1:nothing", UnknownName),
        ("m1:skipped", UnknownName),
        ("nobody:a", UnknownTree),
        ("m1:dir", InvalidInput),
        ("m1:", InvalidInput),
        ("m1", InvalidInput),
        ("m1:../a", InvalidInput),
    ],
)
def test_what_is_no_file_there_is_an_error(
    shadow: Shadow, worktree: Path, name: str, error: type[ShadowError]
) -> None:
    make_tree(worktree, {"a": "", "dir": {"b": ""}, ".gitignore": "skipped\n", "skipped": "x"})
    shadow.wrap()
    shadow.snapshot("m1")

    with pytest.raises(error):
        shadow.cat(name, lambda piece: None)


# Messages


def test_messages_are_chosen_by_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"dir": {"x": "0"}, "dirt": "0", "a": "0"})
    shadow.wrap()
    for id, path in (("m1", "dir/x"), ("m2", "dirt"), ("m3", "a"), ("m4", "dir/x")):
        with shadow.message(id):
            (worktree / path).write_text(id)

    def found(*paths: str, last: int | None = None) -> list[str]:
        return [message.id for message in shadow.messages(paths=paths, last=last)]

    assert found("dir") == found("dir/x") == ["m1", "m4"]
    assert found("dir", last=1) == ["m4"]
    assert found("dirt", "a") == ["m2", "m3"]
    assert found(".") == ["m1", "m2", "m3", "m4"]
    assert found("nothing") == []


def test_messages_are_chosen_by_time(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, "m1", a="1")
    record(shadow, worktree, "m2", a="2")
    first, second = (message.time for message in shadow.messages())

    assert [message.id for message in shadow.messages(since=second)][-1] == "m2"
    assert len(shadow.messages(since=first.timestamp())) == 2
    assert shadow.messages(since=second + timedelta(seconds=1)) == []


@pytest.mark.parametrize("since", [1e30, -1e30, float("inf"), float("nan"), 10**40, "2h"])
def test_messages_since_no_time_at_all_are_refused(shadow: Shadow, worktree: Path, since: Any) -> None:
    record(shadow, worktree, "m1", a="1")

    with pytest.raises(InvalidInput, match="since must be a datetime, or seconds since 1970"):
        shadow.messages(since=since)


# Lines


def authors(shadow: Shadow, path: str = "a") -> list[tuple[str, str]]:
    return [
        (line.text, line.message.id if line.message is not None else line.origin)
        for line in shadow.blame_lines(path)
    ]


def test_each_line_has_its_author(shadow: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("old\nold too\n")
    shadow.wrap()
    record(shadow, worktree, "m1", a="old\none\nold too\n")
    record(shadow.for_session("other"), worktree, "m2", a="two\nold\none\nold too\n")
    (worktree / "a").write_text("two\nmine\nold\none\nold too\n")
    record(shadow, worktree, "m3", a="two\nmine\nold\none\nold too\nthree\n")
    (worktree / "a").write_text("two\nmine\nold\none\nold too\nthree\nnow")

    assert authors(shadow) == [
        ("two", "m2"),
        ("mine", "outside"),
        ("old", "first"),
        ("one", "m1"),
        ("old too", "first"),
        ("three", "m3"),
        ("now", "unrecorded"),
    ]
    assert [line.number for line in shadow.blame_lines("a")] == [*range(1, 8)]


def test_an_undo_and_a_redo_leave_the_authors_as_they_were(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, "m1", a="one\n")
    record(shadow, worktree, "m2", a="one\ntwo\n")
    record(shadow, worktree, "m3", a="one\ntwo\nthree\n")
    before = authors(shadow)
    shadow.undo(2)
    shadow.redo(None)

    assert authors(shadow) == before == [("one", "m1"), ("two", "m2"), ("three", "m3")]


def test_what_a_merge_put_together_keeps_its_authors(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, "m1", a="1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    record(shadow, worktree, "m2", a="1\n2\nm2\n4\n5\n6\n7\n8\n9\n")
    (worktree / "a").write_text("1\n2\nm2\n4\n5\n6\n7\n8\nmine\n")
    shadow.undo(on_conflict="merge")

    found = dict(authors(shadow))
    assert found["3"] == "m1"
    assert found["mine"] == "outside"
    assert found["1"] == "m1"


def test_a_line_of_the_open_message_is_its_own_and_not_recorded_yet(shadow: Shadow, worktree: Path) -> None:
    record(shadow, worktree, "m1", a="1\n")
    shadow.begin("m2")
    (worktree / "a").write_text("1\n2\n")

    last = shadow.blame_lines("a")[-1]
    assert (last.origin, last.message and last.message.id, last.time_ms) == ("unrecorded", "m2", None)
    assert last.to_dict() == {
        "number": 2,
        "text": "2",
        "origin": "unrecorded",
        "time": None,
        "id": "m2",
        "session": "default",
    }


def test_a_file_that_no_message_changed_was_there_first(shadow: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("1\n")
    shadow.wrap()

    assert authors(shadow) == [("1", "first")]


@pytest.mark.parametrize(
    ("content", "error"), [(b"\0", InvalidInput), (b"x" * 3_000_000, InvalidInput), (None, UnknownName)]
)
def test_what_has_no_lines_is_an_error(
    shadow: Shadow, worktree: Path, content: bytes | None, error: type[ShadowError]
) -> None:
    shadow.wrap()
    if content is not None:
        (worktree / "a").write_bytes(content)

    with pytest.raises(error):
        shadow.blame_lines("a")


# Patches

NAMES = ["a", "b b", 'q"uote', "caf\u00e9", "\u202egnp.exe", "new\nline", "dir/c", "dir/d", "t\tab"]
contents = st.sampled_from(
    [b"", b"1\n2\n3\n", b"1\n2\n3\n4", b"caf\xe9\n1\n2\n", b"\0\1\2", b"\0" * 500 + b"x", b"x\r\ny\r\n"]
)
trees = st.dictionaries(st.sampled_from(NAMES), contents)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
@given(old=trees, new=trees)
def test_git_applies_a_diff_and_gets_the_other_tree(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    top = tmp_path_factory.mktemp("patched")
    worktree, copy = top / "worktree", top / "copy"
    write_files(worktree, old)
    write_files(copy, old)
    with Shadow(worktree, store=top / "store") as shadow:
        before = shadow.track()
        write_files(worktree, new)
        diffs = shadow.diff(before, binary=True)
    gone = {each.renamed_from for each in diffs}
    patch = "".join(
        (each.rename or each).exact or (each.rename or each).patch for each in diffs if each.path not in gone
    )

    if patch:
        subprocess.run(
            ["git", "apply", "--whitespace=nowarn"],
            cwd=copy,
            input=patch.encode("utf-8", "surrogateescape"),
            check=True,
        )

    assert read_files(copy) == new


def write_files(top: Path, files: dict[str, bytes]) -> None:
    for path in sorted(top.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    top.mkdir(exist_ok=True)
    for name, content in files.items():
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_bytes(content)


def read_files(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_a_directory_without_a_store_has_an_empty_timeline(shadow: Shadow) -> None:
    timeline, state = shadow.timeline(), shadow.state()

    assert (timeline.rows, timeline.total, timeline.number) == ([], 0, 0)
    assert (state.turn, state.turns, state.undone, state.branches) == (0, 0, [], [])
    assert shadow.unprotected() == []


def test_a_burst_is_marked_in_the_timeline(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    (worktree / "a").write_text("1")
    shadow.record_burst("burst")

    (row,) = shadow.timeline().rows
    assert (row.marks, row.files) == (["inferred", "burst"], 1)


def test_edits_while_another_session_works_are_not_called_yours(shadow: Shadow, worktree: Path) -> None:
    shadow.wrap()
    other = shadow.for_session("other")
    other.begin("o1")
    (worktree / "a").write_text("1")
    with shadow.message("m1"):
        pass
    other.end("o1")
    (worktree / "a").write_text("2")
    with shadow.message("m2"):
        pass

    assert [row.marks for row in shadow.timeline().rows] == [[], ["edited"]]
