"""Seals: a row of the timeline that is not what was written is told wherever it is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, StoreDamaged
from shadowtree.journal import Journal
from shadowtree.seals import SEALED, UNSEALED, mend, seal_of, unseal
from tests.trees import make_tree

NUMBERED = ("trees", "sessions", "messages", "events")
"""The tables of which no row is ever removed."""


def test_a_row_is_given_without_its_seal() -> None:
    assert unseal((1, b"a", None, seal_of(1, b"a", None))) == [1, b"a", None]
    assert unseal((1, b"a", None, UNSEALED)) == [1, b"a", None]


@pytest.mark.parametrize("other", [(2, b"a", None), (1, "a", None), (1, b"b", None), (1, b"a", 0), (1, b"a")])
def test_another_row_has_another_seal(other: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="not what was written"):
        unseal((*other, seal_of(1, b"a", None)))


ROW = (7, b"src/a.py", None, "end", 33188, -1, bytes(range(20)))


@pytest.mark.parametrize(
    "other",
    [
        (6, *ROW[1:]),
        (7 - 128, *ROW[1:]),
        (7, b"src/q.py", *ROW[2:]),
        (7, "src/a.py", *ROW[2:]),
        (*ROW[:2], 0, *ROW[3:]),
        (*ROW[:3], "%nd", *ROW[4:]),
        (*ROW[:3], "\udce5nd", *ROW[4:]),
        (*ROW[:4], 33189, *ROW[5:]),
        (*ROW[:5], -2, ROW[6]),
        (*ROW[:6], bytes([1, *range(1, 20)])),
    ],
)
def test_a_row_of_which_one_bit_was_flipped_is_found_again(other: tuple[object, ...]) -> None:
    assert mend(other, seal_of(*ROW)) == [*ROW, seal_of(*ROW)]


def test_a_seal_of_which_one_bit_was_flipped_is_found_again() -> None:
    assert mend(ROW, seal_of(*ROW) ^ 64) == [*ROW, seal_of(*ROW)]


@pytest.mark.parametrize("other", [(4, *ROW[1:]), (7, b"src/ab.py", *ROW[2:]), (*ROW[:4], 33261, *ROW[5:])])
def test_a_row_of_which_more_was_changed_is_not_guessed(other: tuple[object, ...]) -> None:
    assert mend(other, seal_of(*ROW)) is None


def test_a_long_row_is_not_searched() -> None:
    assert mend((bytes(9000), 1), seal_of(bytes(9000), 0)) is None


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """Three messages, one of them pinned. What is left of the store is nobody's business."""
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
    """Change rows as a flipped bit would, without their seals."""
    shadow.close()
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        with connection:
            assert connection.execute(statement).rowcount > 0


def rows_of(shadow: Shadow) -> dict[str, list[tuple[object, ...]]]:
    """Read every sealed row."""
    with closing(sqlite3.connect(shadow.store / "timeline.db")) as connection:
        return {
            table: connection.execute(f"SELECT {columns}, seal FROM {table}").fetchall()
            for table, columns in SEALED.items()
        }


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
    for row in (row for table in SEALED for row in rows[table]):
        unseal(row)
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
    change_behind(recorded, "UPDATE fresh SET name = 'none'")

    recorded.revert("m4")

    assert (worktree / "a").read_text() == "a of m3\n"
    assert not recorded.check().ok


def test_a_disk_that_is_full_is_no_damage(recorded: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite needs some room to read."""
    monkeypatch.setattr("shadowtree.audit.has_no_room", lambda directory: True)
    monkeypatch.setattr("shadowtree.audit.find_version", fail_to_read)

    with pytest.raises(OutOfSpace):
        recorded.check()


def fail_to_read(connection: sqlite3.Connection) -> int:
    """Fail as SQLite does where it cannot make a file of its own."""
    del connection
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    raise error


def test_a_damaged_row_is_never_sealed_anew(recorded: Shadow) -> None:
    """Whoever changes another column would make the damage look sound."""
    change_behind(recorded, "UPDATE trees SET facts = x'00' WHERE number = 1")
    with closing(Journal(str(recorded.store / "timeline.db"))) as journal:
        with pytest.raises(StoreDamaged, match="not what was written"):
            journal.set_keepers({1: bytes(20)})

    assert not recorded.check().ok


MENDED = {
    "another path": "UPDATE changes SET path = x'63' WHERE path = x'61' AND event = 3",
    "a tree that seems forgotten": "UPDATE trees SET forgotten = 0 WHERE number = 2",
    "another position": "UPDATE events SET head = 3 WHERE number = 3",
    "another seal": "UPDATE messages SET seal = seal + CASE seal & 1 WHEN 0 THEN 1 ELSE -1 END",
    "a text that is none": "UPDATE events SET kind = CAST(x'e56e64' AS TEXT) WHERE number = 3",
}


@pytest.mark.parametrize("statement", MENDED.values(), ids=MENDED)
def test_a_repair_finds_the_bit_that_was_flipped(statement: str, recorded: Shadow) -> None:
    before = rows_of(recorded)
    change_behind(recorded, statement)

    report = recorded.repair()

    assert report.ok, report.problems
    assert report.repaired == ["the timeline was written anew, with all its rows"]
    assert report.quarantine is not None
    assert rows_of(recorded) == before


OTHER_SCHEMAS = {
    "another version": "PRAGMA user_version = 4",
    "an older one": "PRAGMA user_version = 1",
    "an index less": "DROP INDEX events_by_message",
    "a column more": "ALTER TABLE pins ADD COLUMN other",
}


@pytest.mark.parametrize("statement", OTHER_SCHEMAS.values(), ids=OTHER_SCHEMAS)
def test_check_finds_other_tables_than_the_version_has(statement: str, recorded: Shadow) -> None:
    recorded.close()
    with closing(sqlite3.connect(recorded.store / "timeline.db")) as connection:
        connection.execute(statement)

    assert not recorded.check().ok


def test_a_version_that_is_not_that_of_the_tables_is_mended(recorded: Shadow) -> None:
    before = rows_of(recorded)
    recorded.close()
    with closing(sqlite3.connect(recorded.store / "timeline.db")) as connection:
        connection.execute("PRAGMA user_version = 4")

    assert recorded.repair().ok
    assert rows_of(recorded) == before


@pytest.mark.parametrize("table", ["changes", *NUMBERED])
def test_no_timeline_is_written_anew_with_less_rows(table: str, recorded: Shadow) -> None:
    """A page that says that it ends earlier is read without complaint; an index still knows of the rest."""
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
