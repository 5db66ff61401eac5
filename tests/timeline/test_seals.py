"""Seals: a damaged row of the timeline is reported wherever it is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shadowtree import OutOfSpace, Shadow, StoreDamaged
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.schema import PINS, SEALED, seal_of
from tests.support.trees import make_tree

NUMBERED = ("trees", "sessions", "messages", "events")
"""The tables from which no row is ever removed."""


def test_a_row_is_given_without_its_seal() -> None:
    assert PINS.unseal((1, b"a", None, seal_of((1, b"a", None)))) == [1, b"a", None]


@pytest.mark.parametrize("other", [(2, b"a", None), (1, "a", None), (1, b"b", None), (1, b"a", 0), (1, b"a")])
def test_another_row_has_another_seal(other: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="it does not match its checksum"):
        PINS.unseal((*other, seal_of((1, b"a", None))))


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """Three messages, one of them pinned. The state of the store after the test is not checked."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        make_tree(worktree, {"a": "one\n", "b": "two\n"})
        shadow.wrap()
        for name in ("m1", "m2", "m3"):
            with shadow.message(name, text=f"text of {name}"):
                (worktree / "a").write_text(f"a of {name}\n")
                (worktree / name).write_text("new\n")
        shadow.pin("m1")
        yield shadow


def change_behind(shadow: Shadow, statement: str) -> None:
    """Change rows as a flipped bit would, without updating their seals."""
    shadow.close()
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        with connection:
            assert connection.execute(statement).rowcount > 0


def rows_of(shadow: Shadow) -> dict[str, list[tuple[object, ...]]]:
    """Read every sealed row."""
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        return {table.name: connection.execute(table.select).fetchall() for table in SEALED}


def test_whatever_is_recorded_changed_or_forgotten_is_sealed(recorded: Shadow, worktree: Path) -> None:
    recorded.undo()
    recorded.snapshot("m4")
    recorded.undo(2)
    with recorded.message("m5"):
        (worktree / "secret").write_text("s3cret-t0ken\n")
    recorded.purge("secret")
    for branch in recorded.branches()[:1]:
        recorded.rename_branch(branch.name, "other")
    recorded.forget(keep_last=1)

    rows = rows_of(recorded)

    assert all(rows[table] for table in ("trees", "sessions", "messages", "events", "changes", "purged"))
    for table in SEALED:
        for row in rows[table.name]:
            table.unseal(row)
    assert recorded.check(read_data=True).ok


WRONG = {
    "another path": "UPDATE changes SET path = x'62' WHERE path = x'61' AND event = 3",
    "another content": "UPDATE changes SET old_blob = new_blob WHERE path = x'61'",
    "other permissions": "UPDATE changes SET old_mode = 33156 WHERE path = x'61'",
    "a change less": "DELETE FROM changes WHERE path = x'6d33'",
    "another tree": "UPDATE events SET before_tree = 1 WHERE kind = 'end'",
    "another position": "UPDATE events SET head = 1, tip = 1",
    "another id of a tree": "UPDATE trees SET tree = (SELECT tree FROM trees WHERE number = 1)",
}


@pytest.mark.parametrize("statement", WRONG.values(), ids=WRONG)
def test_no_act_goes_by_a_row_that_is_not_what_was_written(
    statement: str, recorded: Shadow, worktree: Path
) -> None:
    change_behind(recorded, statement)
    before = {path.name: path.read_bytes() for path in worktree.iterdir()}

    with pytest.raises(StoreDamaged):
        recorded.revert("m1")

    assert {path.name: path.read_bytes() for path in worktree.iterdir()} == before


HIDDEN = {
    "a tree that seems forgotten": "UPDATE trees SET forgotten = 0 WHERE number = 2",
    "a message that seems forgotten": "UPDATE messages SET forgotten = 0 WHERE number = 2",
    "an event that seems forgotten": "UPDATE events SET forgotten = 0 WHERE number = 3",
    "a pin of another message": "UPDATE pins SET message = 3",
    "a message less": "DELETE FROM messages WHERE number = 2",
    "a tree less": "DELETE FROM trees WHERE number = 2",
}


@pytest.mark.parametrize("statement", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("upkeep", ["gc", "forget"])
def test_nothing_is_freed_or_forgotten_by_a_row_that_is_not_what_was_written(
    statement: str, upkeep: str, recorded: Shadow
) -> None:
    change_behind(recorded, statement)
    packs = sorted(path.name for path in (recorded.store / "objects" / "pack").iterdir())

    with pytest.raises(StoreDamaged):
        recorded.gc() if upkeep == "gc" else recorded.forget(keep_last=1)

    assert sorted(path.name for path in (recorded.store / "objects" / "pack").iterdir()) == packs


@pytest.mark.parametrize("statement", [*WRONG.values(), *HIDDEN.values()], ids=[*WRONG, *HIDDEN])
def test_check_finds_a_row_that_is_not_what_was_written(statement: str, recorded: Shadow) -> None:
    change_behind(recorded, statement)

    assert not recorded.check().ok


def test_an_act_that_is_recorded_does_not_fail_because_tidying_does(recorded: Shadow, worktree: Path) -> None:
    with recorded.message("m4"):
        (worktree / "a").write_text("a of m4\n")
    change_behind(recorded, "UPDATE packs SET versions = x'00'")

    recorded.revert("m4")

    assert (worktree / "a").read_text() == "a of m3\n"
    assert not recorded.check().ok


HURT = {
    "its row": ("UPDATE messages SET text = x'00' WHERE number = 2", "messages 2"),
    "an event of it": ("UPDATE events SET time = 1 WHERE number = 5", "events 5"),
    "a change of it": ("UPDATE changes SET new_mode = 33261 WHERE event = 5 AND path = x'61'", "changes 5"),
    "a tree of it": ("UPDATE trees SET files = 99 WHERE number = 3", "trees 3"),
}


@pytest.mark.parametrize(("statement", "what"), HURT.values(), ids=HURT)
def test_check_names_the_message_that_a_damaged_row_hurts(
    statement: str, what: str, recorded: Shadow
) -> None:
    change_behind(recorded, statement)

    problems = [problem for problem in recorded.check().problems if problem.what == what]

    assert "m2" in {hurt.id for problem in problems for hurt in problem.messages}


def test_a_repair_does_not_guess_what_a_damaged_row_was(recorded: Shadow) -> None:
    change_behind(recorded, "UPDATE messages SET text = x'00' WHERE number = 2")
    before = rows_of(recorded)

    report = recorded.repair()

    assert [hurt.id for hurt in report.hurt] == ["m2"]
    assert rows_of(recorded) == before


class FullDisk(sqlite3.Connection):
    """Fails as SQLite does when it cannot create a temporary file for sorting rows."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:  # Any: as SQLite takes them
        if "FROM trees" in statement:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(statement, *values)


def test_a_disk_that_is_full_is_no_damage(recorded: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite needs some space to read."""
    recorded.close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=FullDisk))

    with pytest.raises(OutOfSpace):
        recorded.check()


def test_a_damaged_row_is_never_sealed_anew(recorded: Shadow) -> None:
    """Changing another column would make the damage seem sound."""
    change_behind(recorded, "UPDATE trees SET facts = x'00' WHERE number = 1")
    with closing(Journal(str(recorded.store / "timeline.db"))) as journal:
        with pytest.raises(StoreDamaged, match="it does not match its checksum"):
            journal.retention.forget_trees([1], 99)

    assert not recorded.check().ok


OTHER_SCHEMAS = {
    "another format": "PRAGMA user_version = 3",
    "no format": "PRAGMA user_version = 0",
    "another application": "PRAGMA application_id = 7",
    "an index less": "DROP INDEX events_by_message",
    "a column more": "ALTER TABLE pins ADD COLUMN other",
}


@pytest.mark.parametrize("statement", OTHER_SCHEMAS.values(), ids=OTHER_SCHEMAS)
def test_check_finds_other_tables_than_a_timeline_has(statement: str, recorded: Shadow) -> None:
    recorded.close()
    with closing(sqlite3.connect(recorded.store / "timeline.db")) as connection:
        connection.execute(statement)

    assert not recorded.check().ok


def test_a_format_that_is_not_that_of_the_tables_is_mended(recorded: Shadow) -> None:
    before = rows_of(recorded)
    recorded.close()
    with closing(sqlite3.connect(recorded.store / "timeline.db")) as connection:
        connection.execute("PRAGMA user_version = 3")

    assert recorded.repair().ok
    assert rows_of(recorded) == before


@pytest.mark.parametrize("table", ["changes", *NUMBERED])
def test_no_timeline_is_written_anew_with_less_rows(table: str, recorded: Shadow) -> None:
    """A page that claims to end early is read without complaint, but an index still lists the rest."""
    recorded.close()
    timeline = recorded.store / "timeline.db"
    with closing(sqlite3.connect(timeline)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
        page_size = connection.execute("PRAGMA page_size").fetchone()[0]
        (count,) = connection.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()
    content = bytearray(timeline.read_bytes())
    cells = slice((root - 1) * page_size + 3, (root - 1) * page_size + 5)
    assert int.from_bytes(content[cells], "big") == count
    content[cells] = (count - 1).to_bytes(2, "big")
    timeline.write_bytes(content)

    report = recorded.repair()

    assert not report.ok
    assert timeline.read_bytes() == content
