"""Stores of every format that was ever written can be read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.journal import Journal
from tests.referee import assert_sound_store
from tests.trees import Tree, assert_tree, executable, file, link, make_tree

FIRST = "9331da3a3ff456c8d8159f162813782188d3b9fe"
SECOND = "201cbcfbfdb2c84a3121e5dc7893655fe6d24611"


def test_a_store_of_the_first_format_is_read_and_goes_on(worktree: Path, tmp_path: Path) -> None:
    store = _put_in_place("format-1", tmp_path / "store")
    _make_shop(worktree)

    assert_read_and_going_on(worktree, store)


def test_a_store_of_the_first_format_goes_on_when_its_timeline_is_upgraded(
    worktree: Path, tmp_path: Path
) -> None:
    store = _put_in_place("format-1", tmp_path / "store")
    _make_shop(worktree)
    with closing(Journal(str(store / "timeline.db"))) as journal:
        journal.upgrade()
        session = journal.add_session("default")
        message = journal.add_message(session, "msg_01", "user", "raise the price", None, None)

        assert journal.last_messages(session, 20) == [message]
        assert [tree.tree.hex() for tree in journal.trees_after(0)] == [FIRST, SECOND]
    assert_read_and_going_on(worktree, store)


# A timeline of version 2: m1, then m2 and m3 on a branch, and m4, which is undone

AFTER_M1: Tree = {"notes.txt": file("first draft\n", 0o600), "src": {"price.py": "TAX = 0.21\n"}}
AFTER_M2: Tree = {**AFTER_M1, "window.html": "<h1>Shop</h1>\n"}
AFTER_M3: Tree = {**AFTER_M2, "notes.txt": file("second draft\n", 0o600)}
AFTER_M4: Tree = {**AFTER_M1, "price": link("src/price.py")}


@pytest.fixture
def shop(worktree: Path, tmp_path: Path) -> Iterator[Shadow]:
    """The shop whose timeline has version 2, as its last undo left it."""
    store = _put_in_place("timeline-2", tmp_path / "store")
    make_tree(worktree, AFTER_M1)
    with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def _version_of(shadow: Shadow) -> int:
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version


def test_a_timeline_of_version_2_is_read(shop: Shadow) -> None:
    assert [(message.id, message.state, message.branch) for message in shop.messages()] == [
        ("m1", "active", None),
        ("m2", "archived", "add-a-shop-window"),
        ("m3", "archived", "add-a-shop-window"),
        ("m4", "undone", None),
    ]
    (branch,) = shop.branches()
    assert (branch.name, branch.fork, branch.messages) == ("add-a-shop-window", "m1", ["m2", "m3"])
    assert (branch.state, branch.files, branch.label) == ("archived", 2, "add a shop window")
    status = shop.status()
    assert (status.head, status.undone, status.changed, status.outside) == ("m1", ["m4"], 0, [])
    assert [(entry.message and entry.message.id) for entry in shop.blame("notes.txt")] == ["m3"]
    assert shop.switch("m3", dry_run=True).messages == ["m2", "m3"]
    assert _version_of(shop) == 2


def test_a_timeline_of_version_2_is_redone(shop: Shadow, worktree: Path) -> None:
    outcome = shop.redo()

    assert outcome.messages == ["m4"]
    assert_tree(worktree, AFTER_M4)
    shop.undo(2)
    assert shop.status().undone == ["m1", "m4"]
    assert _version_of(shop) > 2


def test_a_timeline_of_version_2_is_switched(shop: Shadow, worktree: Path) -> None:
    assert shop.switch("add-a-shop-window").messages == ["m2", "m3"]
    assert_tree(worktree, AFTER_M3)
    assert shop.switch("m4").messages == ["m2", "m3", "m4"]
    assert_tree(worktree, AFTER_M4)
    assert shop.switch("m2").undone == ["m3"]
    assert_tree(worktree, AFTER_M2)
    assert {branch.name: branch.messages for branch in shop.branches()} == {
        "add-a-shop-window": ["m2", "m3"],
        "make-it-a-script": ["m4"],
    }
    for _ in range(3):
        shop.unrevert()
    assert_tree(worktree, AFTER_M1)


def test_a_timeline_of_version_2_goes_on(shop: Shadow, worktree: Path) -> None:
    with shop.message("m5", text="one more"):
        make_tree(worktree, {"new": "5"})
    shop.revert("m1", only=True)

    assert_tree(worktree, {**AFTER_M1, "src": {"price.py": "TAX = 0.19\n"}, "new": "5"})
    assert {branch.name: branch.messages for branch in shop.branches()} == {
        "add-a-shop-window": ["m2", "m3"],
        "make-it-a-script": ["m4"],
    }
    assert {message.id: message.state for message in shop.messages()} == {
        "m1": "undone",
        "m2": "archived",
        "m3": "archived",
        "m4": "archived",
        "m5": "active",
    }
    shop.drop_branch("add-a-shop-window")
    shop.switch("m3")
    assert_tree(worktree, AFTER_M3)


# A timeline of version 3: m1, m2 on a branch, m3 and m4; m1 was taken out from under them

NOW: Tree = {
    "notes.txt": file("first draft\nmore notes\n", 0o600),
    "price": link("src/price.py"),
    "src": {"price.py": "TAX = 0.19\n"},
}
WITH_M1: Tree = {**NOW, "src": {"price.py": "TAX = 0.21\n"}}


@pytest.fixture
def later_shop(worktree: Path, tmp_path: Path) -> Iterator[Shadow]:
    """The shop whose timeline has version 3, as its last act left it."""
    store = _put_in_place("timeline-3", tmp_path / "store")
    make_tree(worktree, NOW)
    with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def test_a_timeline_of_version_3_is_read(later_shop: Shadow) -> None:
    assert [(message.id, message.state, message.branch) for message in later_shop.messages()] == [
        ("m1", "undone", None),
        ("m2", "archived", "add-a-shop-window"),
        ("m3", "active", None),
        ("m4", "active", None),
    ]
    status = later_shop.status()
    assert (status.head, status.undone, status.changed, status.outside) == ("m4", [], 0, [])
    assert later_shop.switch("m2", dry_run=True).messages == ["m3", "m4", "m1", "m2"]
    assert _version_of(later_shop) == 3


def test_a_timeline_of_version_3_goes_on(later_shop: Shadow, worktree: Path) -> None:
    later_shop.unrevert()
    assert_tree(worktree, WITH_M1)
    with later_shop.message("m5", text="one more"):
        make_tree(worktree, {"new": "5"})
    later_shop.revert("m1")

    assert_tree(worktree, {"notes.txt": file("first draft\n", 0o600), "src": {"price.py": "TAX = 0.19\n"}})
    later_shop.switch("m2")
    assert_tree(worktree, AFTER_M2)
    later_shop.switch("m5")
    assert_tree(worktree, {**WITH_M1, "new": "5"})


# A timeline of version 4, with its packs: m1, m2 on a branch, m3, and m4, which is undone

AFTER_STEP: Tree = {**AFTER_M1, "price": link("src/price.py")}


@pytest.fixture
def journaled_shop(worktree: Path, tmp_path: Path) -> Iterator[Shadow]:
    """The shop whose timeline has version 4, as its last undo left it."""
    store = _put_in_place("timeline-4", tmp_path / "store")
    make_tree(worktree, AFTER_STEP)
    with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def test_a_timeline_of_version_4_is_read(journaled_shop: Shadow) -> None:
    assert [(message.id, message.state, message.branch) for message in journaled_shop.messages()] == [
        ("m1", "active", None),
        ("m2", "archived", "add-a-shop-window"),
        ("m3", "active", None),
        ("m4", "undone", None),
    ]
    status = journaled_shop.status()
    assert (status.head, status.undone, status.changed, status.outside) == ("m3", ["m4"], 0, [])
    assert journaled_shop.switch("m2", dry_run=True).messages == ["m3", "m2"]
    assert journaled_shop.revert("m3", step="link", dry_run=True).deleted == ["price"]


def test_a_timeline_of_version_4_goes_on(journaled_shop: Shadow, worktree: Path) -> None:
    journaled_shop.redo()
    assert_tree(worktree, {**AFTER_STEP, "notes.txt": file("first draft\nmore notes\n", 0o600)})
    with journaled_shop.message("m5", text="one more"):
        make_tree(worktree, {"new": "5"})
    journaled_shop.revert("m1")

    assert_tree(worktree, {"notes.txt": file("first draft\n", 0o600), "src": {"price.py": "TAX = 0.19\n"}})
    journaled_shop.switch("m2")
    assert_tree(worktree, AFTER_M2)


def assert_read_and_going_on(worktree: Path, store: Path) -> None:
    with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
        assert shadow.patch(FIRST).files == []
        changes = [(changed.path, changed.status) for changed in shadow.patch(SECOND).files]
        assert changes == [("notes.txt", "added"), ("src/price.py", "modified")]
        assert shadow.track() == FIRST


def _make_shop(worktree: Path) -> None:
    make_tree(
        worktree,
        {
            ".gitignore": "*.log\n",
            "empty": {},
            "notes.txt": file("first draft\n", 0o600),
            "price": link("src/price.py"),
            "run": executable("#!/bin/sh\n"),
            "src": {"price.py": "TAX = 0.19\n"},
        },
    )


def _put_in_place(name: str, store: Path) -> Path:
    shutil.copytree(Path(__file__).parent.parent / "fixtures" / "stores" / name, store)
    for path in [store, *store.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return store
