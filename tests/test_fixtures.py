"""Stores of every format that was ever written can be read."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from shadowtree import Shadow
from shadowtree.journal import Journal
from tests.trees import executable, file, link, make_tree

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
