"""What must survive a power cut: contents reach the disk before their names do, and names before the record.

The tests see the calls that really reach the operating system (`fsync`, `syncfs`, renames), and between them
the writes that are announced to the fault point, such as the commits of the timeline.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.base.limits import Limits
from shadowtree.system import disk, syscalls
from tests.support.trees import Tree, assert_tree, file, make_tree

SYNC, RENAME, UNLINK = "sync", "rename", "unlink"


class Calls:
    """The calls in their order, each with its subject."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.list: list[tuple[str, object]] = []
        """Syncs have an inode, or "all"; announced writes have their path."""
        self.fail_at = ""
        """A kind of write that fails the second time that it is announced."""
        call_c = syscalls._call_c

        def note_c(name: str, *arguments: int | bytes) -> int:
            code = call_c(name, *arguments)
            if not code and (name == "syncfs" or name.startswith(RENAME)):
                self.list.append((SYNC, "all") if name == "syncfs" else (RENAME, None))
            return code

        patch.setattr(syscalls, "_call_c", note_c)
        patch.setattr(os, "fsync", self._note(SYNC, os.fsync))
        patch.setattr(os, "replace", self._note(RENAME, os.replace))
        patch.setattr(os, "unlink", self._note(UNLINK, os.unlink))
        patch.setattr(disk, "before_write", self._announce)

    def _note(self, kind: str, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **named: Any) -> None:  # Any: what `os` takes
            function(*arguments, **named)
            self.list.append((kind, os.fstat(arguments[0]).st_ino if kind == SYNC else None))

        return call

    def _announce(self, act: str, path: str) -> None:
        if act == self.fail_at and self._places(f"before {act}"):
            self.fail_at = ""
            raise OSError(path)
        self.list.append((f"before {act}", path))

    def _places(self, kind: str) -> list[int]:
        return [place for place, call in enumerate(self.list) if call[0] == kind]

    def first(self, kind: str) -> int:
        return self._places(kind)[0]

    def last(self, kind: str) -> int:
        return self._places(kind)[-1]

    def are_synced(self, paths: list[Path], start: int, end: int) -> bool:
        """Return whether everything at these paths was synced between two places of the list."""
        synced = {what for kind, what in self.list[start:end] if kind == SYNC}
        return "all" in synced or synced >= {path.stat().st_ino for path in paths}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


# Acts

BEFORE: Tree = {"a": "old", "sub": {"b": "old"}, "private": file("same", 0o600)}
AFTER: Tree = {"a": "new", "sub": {"b": "new", "c": "new"}, "private": file("same", 0o644)}


def record(shadow: Shadow, before: Tree = BEFORE, after: Tree = AFTER) -> None:
    make_tree(shadow.worktree, before)
    with shadow.message("m1"):
        make_tree(shadow.worktree, after)


def test_what_comes_back_is_on_the_disk_before_it_has_its_name(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    record(shadow)
    calls.list.clear()

    shadow.undo()

    assert calls.are_synced([worktree / "a", worktree / "sub" / "b"], 0, calls.first(RENAME))


@pytest.mark.parametrize("unwritten", [0, 1 << 60], ids=["all at once", "one by one"])
def test_many_files_that_come_back_are_on_the_disk_before_they_have_their_names(
    worktree: Path, calls: Calls, unwritten: int
) -> None:
    """If other programs have much unwritten data, no file system is synced as a whole."""
    names = [f"f{number}" for number in range(10)]
    limits = Limits(unwritten_bytes=unwritten)
    with Shadow(worktree, settings={"min_free": 0}, limits=limits) as shadow:
        record(shadow, dict.fromkeys(names, "old"), dict.fromkeys(names, "new"))
        calls.list.clear()

        shadow.undo()

    assert calls.are_synced([worktree / name for name in names], 0, calls.first(RENAME))
    assert calls.are_synced([worktree], calls.last(RENAME), len(calls.list))


def test_the_names_are_on_the_disk_before_the_act_is_recorded(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    record(shadow)
    calls.list.clear()

    shadow.undo()

    moved = calls.last("before exchange")
    assert calls.are_synced([worktree, worktree / "sub"], moved, calls.last("before commit"))


def test_permission_bits_are_on_the_disk_before_the_act_is_recorded(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    record(shadow)
    calls.list.clear()

    shadow.undo()

    changed = calls.last("before chmod")
    assert calls.are_synced([worktree / "private"], changed, calls.last("before commit"))


def test_what_was_moved_aside_is_gone_for_good_before_the_intent_is(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    """Only the intent tells the next command about temporary files that a power cut brings back."""
    record(shadow)
    calls.list.clear()

    shadow.undo()

    gone = calls.last("before forget")
    assert calls.are_synced([worktree, worktree / "sub"], calls.last(UNLINK), gone)


def test_what_is_rolled_back_is_on_the_disk_before_the_intent_is_gone(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    record(shadow)
    calls.list.clear()
    calls.fail_at = "exchange"

    with pytest.raises(OSError, match="b"):
        shadow.undo()

    assert_tree(worktree, AFTER)
    back = max(calls.last(RENAME), calls.last(UNLINK))
    assert calls.are_synced([worktree, worktree / "sub"], back, calls.last("before forget"))


# The store


def test_every_sync_of_the_store_that_is_announced_is_made(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.wrap()
    (worktree / "large").write_bytes(os.urandom(300_000))
    shadow.track()

    announced = [place for place, (kind, _) in enumerate(calls.list) if kind.startswith("before fsync")]
    assert {calls.list[place][0] for place in announced} == {"before fsync", "before fsync directory"}
    assert all(calls.list[place + 1][0] == SYNC for place in announced)


def test_a_large_pack_is_on_the_disk_before_a_row_names_it(
    shadow: Shadow, worktree: Path, calls: Calls
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.wrap()
    (worktree / "large").write_bytes(os.urandom(300_000))
    calls.list.clear()

    shadow.track()

    (pack,) = (path for path in shadow.store.rglob("*.pack") if path.stat().st_size > 300_000)
    named = calls.list.index(("before rename", str(pack)))
    recorded = calls.last("before commit")
    assert recorded < named
    assert calls.are_synced([pack, pack.parent], 0, recorded)
    assert calls.are_synced([pack.parent], named, len(calls.list))


# The timeline

FULL = 2


class Connection(sqlite3.Connection):
    """Notes how durably events are committed."""

    levels: list[int]
    adds = False

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:  # Any: what SQLite takes
        """Note the level of a commit that adds an event."""
        if statement.startswith("BEGIN"):
            self.adds = False
        elif statement.startswith("INSERT INTO events"):
            self.adds = True
        elif statement == "COMMIT" and self.adds:
            self.levels += super().execute("PRAGMA synchronous").fetchone()
        return super().execute(statement, *values)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The level of durability of each event that is added to a timeline from now on."""
    connect, levels = sqlite3.connect, list[int]()
    kind = type("Noted", (Connection,), {"levels": levels})

    def connect_noted(database: str, **named: Any) -> sqlite3.Connection:  # Any: what SQLite takes
        factory = kind if os.path.basename(database) == "timeline.db" else sqlite3.Connection
        return connect(database, factory=factory, **named)

    monkeypatch.setattr(sqlite3, "connect", connect_noted)
    return levels


def test_what_is_recorded_in_the_timeline_is_on_the_disk(shadow: Shadow, levels: list[int]) -> None:
    record(shadow)
    assert levels == [FULL, FULL]

    # An act ends by removing rows, which need not be durable at once.
    shadow.undo()
    levels.clear()
    with shadow.message("m2"):
        make_tree(shadow.worktree, {"a": "newer"})

    assert levels == [FULL, FULL]
