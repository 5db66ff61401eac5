"""Uncovered files: a message lists the ignored and too big files that changed while it was open."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import AsyncShadow, Shadow
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.session import Session
from tests.conversation.exports import export, rebuild
from tests.support.trees import make_tree

SETTINGS = {"min_free": 0, "max_file_size": 1000}


@pytest.fixture(params=[False, True], ids=["scanned", "watched"])
def shadow(worktree: Path, request: pytest.FixtureRequest) -> Iterator[Shadow]:
    make_tree(worktree, {".gitignore": ".env\n*.log\nbuild/\n", "a.txt": "1", "src": {"b.txt": "1"}})
    with Shadow(worktree, settings=SETTINGS, watch=request.param) as shadow:
        yield shadow


def write(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)


def read_stamps(shadow: Shadow) -> list[object]:
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as timeline:
        return timeline.execute("SELECT rowid, * FROM stamps").fetchall()


# Messages


def test_an_ignored_file_that_changed_is_listed(shadow: Shadow, worktree: Path) -> None:
    """First hour, B6."""
    write(worktree / ".env", "S=1")
    with shadow.message("m1") as message:
        write(worktree / ".env", "S=22")
        write(worktree / "a.txt", "2")

    assert (message.unprotected, message.value.warnings) == ([".env"], [])
    assert [file.path for file in message.patch.files] == ["a.txt"]
    assert shadow.messages()[0].unprotected == [".env"]
    assert shadow.show("m1")[0].unprotected == [".env"]


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        (lambda root: write(root / "new.log", "1"), ["new.log"]),
        (lambda root: (root / ".env").unlink(), [".env"]),
        (lambda root: os.utime(root / ".env", (1, 1)), [".env"]),
        (lambda root: os.replace(root / "src/c.log", root / ".env"), [".env", "src/c.log"]),
        (lambda root: write(root / "big.bin", "x" * 2000), ["big.bin"]),
        (lambda root: write(root / "build/out", "2"), []),
        (lambda root: write(root / "other.txt", "2"), []),
        (lambda root: None, []),
    ],
    ids=[
        "made",
        "deleted",
        "touched",
        "replaced",
        "too big",
        "in an ignored directory",
        "covered",
        "nothing",
    ],
)
def test_what_happens_to_files_that_are_left_out(
    shadow: Shadow, worktree: Path, change: Callable[[Path], object], listed: list[str]
) -> None:
    make_tree(worktree, {".env": "S=1", "src": {"c.log": "1"}, "build": {"out": "1"}})
    shadow.snapshot("m0")
    with shadow.message("m1") as message:
        change(worktree)

    assert message.unprotected == listed


def test_a_message_lists_what_changed_since_its_own_begin(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    with shadow.message("m1"):
        write(worktree / ".env", "S=22")
    write(worktree / ".env", "S=333")
    with shadow.message("m2") as second, shadow.step("s"):
        pass
    with shadow.message("m3") as third:
        with shadow.step("s"):
            write(worktree / ".env", "S=1")
        with shadow.step("t"):
            pass

    assert second.unprotected == []
    assert third.unprotected == [".env"]


def test_a_snapshot_compares_with_the_last_record_of_its_session(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")

    assert shadow.snapshot("m1").unprotected == [], "nobody looked before"
    write(worktree / ".env", "S=22")
    assert shadow.snapshot("m2").unprotected == [".env"]
    assert shadow.snapshot("m3").unprotected == []
    assert shadow.for_session("other").snapshot("m4").unprotected == []


def test_the_end_of_an_open_message_is_told_by_what_ends_it(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    shadow.begin("m1")
    write(worktree / ".env", "S=22")
    shadow.begin("m2")
    write(worktree / "x.log", "1")
    outcome = shadow.undo()

    assert [message.unprotected for message in shadow.messages()] == [[".env"], ["x.log"]]
    assert outcome.unprotected == ["x.log"]


def test_what_others_changed_is_not_listed_with_the_paths_of_a_message(
    shadow: Shadow, worktree: Path
) -> None:
    shadow.begin("m1")
    make_tree(worktree, {".env": "S=1", "src": {"c.log": "1"}})

    assert shadow.end("m1", paths=["src"]).unprotected == ["src/c.log"]


def test_a_file_that_other_rules_leave_out_now_did_not_change(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    with shadow.message("m1") as message:
        write(worktree / ".gitignore", "*.txt\n")

    assert message.unprotected == []
    assert {skip.path for skip in message.skipped} == {".env", "a.txt", "src/b.txt"}


def test_an_unchanged_set_of_files_is_kept_once(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    with shadow.message("m1"):
        write(worktree / ".env", "S=22")
    known = read_stamps(shadow)
    with shadow.message("m2"):
        pass
    shadow.undo()

    assert read_stamps(shadow) == known
    assert len(known) == 1


def test_of_very_many_files_the_first_are_compared(shadow: Shadow, worktree: Path) -> None:
    for number in range(1500):
        (worktree / f"{number:04}.log").write_text("1")
    with shadow.message("m1") as message:
        (worktree / "0000.log").unlink()
        (worktree / "0500.log").write_text("22")
        (worktree / "0600x.log").write_text("1")
        (worktree / "1400.log").write_text("22")

    assert message.unprotected == ["0000.log", "0500.log", "0600x.log"]
    assert message.value.warnings == ["only the first 1,000 ignored or too big files are checked for changes"]
    assert shadow.snapshot("m2").warnings == message.value.warnings


def test_a_rebuilt_timeline_has_the_lists_but_no_stamps(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {".gitignore": ".env\n"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            write(worktree / ".env", "S=22")
        shadow.gc()
    export(shadow.store)
    again = rebuild(shadow.store, tmp_path / "again")

    with closing(Journal(str(again.store / "timeline.db"))) as journal:
        session = Session(journal, "default")
        assert session.unprotected_of([1]) == {".env"}
        assert journal.left_out.stamps(session.require_number()) is None


# Acts and status


def test_an_act_over_a_message_names_what_it_left_alone(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    with shadow.message("m1"):
        write(worktree / ".env", "S=22")
        write(worktree / "a.txt", "2")
    with shadow.message("m2"):
        write(worktree / "a.txt", "3")

    assert shadow.undo(dry_run=True).unprotected == []
    assert shadow.plan_revert("m1").to_dict()["unprotected"] == [".env"]
    outcome = shadow.revert("m1")
    assert outcome.unprotected == [".env"]
    assert outcome.complete
    assert (worktree / ".env").read_text() == "S=22"
    assert shadow.redo(None).unprotected == [".env"]
    assert shadow.revert("m1", paths=["a.txt"]).unprotected == []
    assert shadow.restore("m1^").unprotected == []


def test_an_act_does_not_take_ignored_files_elsewhere_for_changed(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "a": {"x.log": "1", "f": "1"}, "b": {"x.log": "1"}})
    with shadow.message("m1"):
        (worktree / "a" / "f").write_text("2")
    shadow.undo()

    assert shadow.status().unprotected == []
    shadow.redo()
    (worktree / "a" / "f").write_text("3")
    assert shadow.snapshot("m2").unprotected == []


def test_the_status_tells_what_changed_since_the_last_record(shadow: Shadow, worktree: Path) -> None:
    write(worktree / ".env", "S=1")
    shadow.begin("m1")
    assert shadow.status().unprotected == []
    write(worktree / ".env", "S=22")

    assert shadow.status().unprotected == [".env"]
    shadow.end("m1")
    assert shadow.status().unprotected == []
    shadow.protect(".env")
    assert shadow.status().unprotected == [], "it is covered now"


@pytest.mark.parametrize("name", ["big.bin", "new.log"], ids=["too big", "ignored from now on"])
def test_an_unprotected_file_makes_no_act_incomplete_and_is_named_once(
    shadow: Shadow, worktree: Path, name: str
) -> None:
    (worktree / ".gitignore").unlink()
    with shadow.message("m1"):
        make_tree(worktree, {"a.txt": "2", name: "x" * 2000, ".gitignore": "*.log\n"})
    with shadow.message("m2"):
        (worktree / name).unlink()

    outcomes = [shadow.undo(), shadow.undo(), shadow.redo(), shadow.redo()]

    assert [(each.unprotected, each.skipped, each.complete) for each in outcomes] == [([name], [], True)] * 4
    assert (worktree / "a.txt").read_text() == "2"


def test_an_act_is_incomplete_if_the_file_was_recorded_later(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        write(worktree / "big.bin", "x" * 2000)
    shadow.protect("big.bin")
    with shadow.message("m2"):
        write(worktree / "big.bin", "y" * 2000)
    outcome = shadow.undo(2)

    assert [each.path for each in outcome.skipped] == outcome.unprotected == ["big.bin"]
    assert not outcome.complete


async def _record(root: Path) -> list[str]:
    async with AsyncShadow(root, settings=SETTINGS) as shadow, shadow.message("m1") as message:
        write(root / ".env", "S=22")
    return message.unprotected


def test_the_same_with_asyncio(worktree: Path) -> None:
    import asyncio

    make_tree(worktree, {".gitignore": ".env\n"})

    assert asyncio.run(_record(worktree)) == [".env"]
