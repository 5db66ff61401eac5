"""The cost of recording and of acts, counted and not timed: scans, writes, statements, rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.capture.scan import ScanScope, scan_worktree
from shadowtree.system import disk
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import SEALED, seal_of
from tests.support.trees import make_tree

MANY = 2000
"""How many messages a long session has in these tests."""


@contextmanager
def counted_scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """List the names and directories to which each scan was limited; None for a full scan."""
    seen: list[object] = []
    scan = scan_worktree

    def count(*arguments: object, scope: ScanScope | None = None, **others: object) -> object:
        seen.append(None if scope is None else (scope.names, set(scope.directories)))
        return scan(*arguments, scope=scope, **others)  # type: ignore[arg-type]  # handed on as they came

    with monkeypatch.context() as patch:
        patch.setattr("shadowtree.capture.capture.scan_worktree", count)
        yield seen


@contextmanager
def counted_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """List every call that writes, with its path."""
    seen: list[tuple[str, str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(disk, "before_write", lambda act, path: seen.append((act, path)))
        yield seen


@contextmanager
def counted_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """List how many rows each query to the journal returned."""
    seen: list[int] = []
    read = Database.rows

    def count(self: Database, statement: str, *values: object) -> list[object]:
        rows = read(self, statement, *values)
        seen.append(len(rows))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Database, "rows", count)
        yield seen


class Counted(sqlite3.Connection):
    """A connection that counts the statements on the timeline."""

    statements = 0
    steps = 0
    """Hundreds of SQLite's own instructions, so that rows that a query skips count too."""

    def __init__(self, path: str, **options: Any) -> None:  # Any: as `connect` takes them
        super().__init__(path, **options)
        if path.endswith("timeline.db"):
            self.set_trace_callback(self._count_statement)
            self.set_progress_handler(self._count_step, 100)

    @staticmethod
    def _count_statement(statement: str) -> None:
        Counted.statements += 1

    @staticmethod
    def _count_step() -> int:
        Counted.steps += 1
        return 0


UNREPACKED = Limits(packs=PackLimits(many=10_000, slice_records=10_000, idle_bytes=0, idle_part=1_000_000))
"""No packs are merged or repacked: that costs the same in any history, but happens only at some acts."""


@pytest.fixture
def counting(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every connection of the shadow count."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Counted))
    yield
    shadow.close()


def count(work: Callable[[], object]) -> tuple[int, int]:
    """Count the statements and steps of some work."""
    statements, steps = Counted.statements, Counted.steps
    work()
    return Counted.statements - statements, Counted.steps - steps


def copy_messages(shadow: Shadow, up_to: int) -> None:
    """Make a session long without taking snapshots, by copying its last message with its events and changes.

    The rows are what `begin` and `end` would have written for messages that each change the same files.
    """
    shadow.close()
    with sqlite3.connect(str(shadow.store / "timeline.db")) as connection:
        _copy_last(connection, up_to)
        connection.create_function("seal_of", -1, lambda *columns: seal_of(columns))
        for table in SEALED:
            connection.execute(f"UPDATE {table.name} SET seal = seal_of({', '.join(table.columns)})")
    connection.close()


def _copy_last(connection: sqlite3.Connection, up_to: int) -> None:
    columns = {
        table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for table in ("messages", "events", "changes")
    }

    def last(table: str, condition: str) -> dict[str, object]:
        row = connection.execute(f"SELECT * FROM {table} WHERE {condition}").fetchone()
        return dict(zip(columns[table], row, strict=True))

    def add(table: str, row: dict[str, object]) -> None:
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", tuple(row.values()))

    message = last("messages", "number = (SELECT max(number) FROM messages)")
    number = message["number"]
    begin = last("events", f"message = {number} AND kind = 'begin'")
    end = last("events", f"message = {number} AND kind = 'end'")
    change = last("changes", f"event = {end['number']}")
    assert isinstance(number, int)
    event = int(connection.execute("SELECT max(number) FROM events").fetchone()[0])
    for new in range(number + 1, up_to + 1):
        add("messages", {**message, "number": new, "ordinal": new, "id": b"m%d" % new, "parent": new - 1})
        at = {"message": new, "head": new, "tip": new}
        add("events", {**begin, **at, "number": event + 1, "open": new})
        add("events", {**end, **at, "number": event + 2, "since": event + 1})
        add("changes", {**change, "event": event + 2})
        event += 2


def record(shadow: Shadow, worktree: Path, number: int) -> None:
    """Record a message that changes a file."""
    shadow.begin(f"m{number}")
    (worktree / "a.txt").write_text(f"{number}\n")
    shadow.end(f"m{number}")


def test_undo_of_a_message_that_changed_nothing_writes_nothing_and_scans_once(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"src": {"a.py": "x\n"}, "b.txt": "y\n"})
    record(shadow, worktree, 1)
    shadow.begin("nothing")
    shadow.end("nothing")

    with counted_scans(monkeypatch) as scans, counted_writes(monkeypatch) as writes:
        outcome = shadow.undo()

    assert outcome.messages == ["nothing"]
    assert scans == [None]
    inside = str(shadow.store)
    assert [write for write in writes if not write[1].startswith(inside)] == []


def test_an_act_looks_at_the_whole_worktree_once(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that it scans only the paths that it changed."""
    make_tree(worktree, {"src": {"deep": {"c.py": "x\n"}}, "a.txt": "y\n"})
    record(shadow, worktree, 1)

    with counted_scans(monkeypatch) as scans:
        shadow.undo()

    assert scans == [None, ({b"": {b"a.txt"}}, set())]


def test_a_store_inside_the_worktree_is_no_reason_to_scan_twice(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a.txt": "y\n"})
    settings = {"min_free": 0}
    with Shadow(worktree, store=worktree / ".store", settings=settings, allow_broad=True) as shadow:
        shadow.track()
        with counted_scans(monkeypatch) as scans:
            shadow.track()

    assert scans == [None]


def test_begin_and_end_scan_once_each_and_write_nothing_in_the_worktree(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"src": {"a.py": "x\n"}})
    shadow.track()

    with counted_scans(monkeypatch) as scans, counted_writes(monkeypatch) as writes:
        record(shadow, worktree, 1)

    assert scans == [None, None]
    assert [path for _, path in writes if not path.startswith(str(shadow.store))] == []


@pytest.mark.limits(UNREPACKED)
@pytest.mark.usefixtures("counting")
def test_the_last_twenty_of_many_messages_are_listed_without_reading_the_others(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(shadow, worktree, 1)
    record(shadow, worktree, 2)
    copy_messages(shadow, MANY)
    shadow.status()  # opens the store again

    with counted_rows(monkeypatch) as rows:
        _, steps = count(lambda: shadow.messages(last=20))

    assert [message.number for message in shadow.messages(last=20)] == list(range(MANY - 19, MANY + 1))
    assert sum(rows) <= 20 * 10
    assert steps <= 200


@pytest.mark.limits(UNREPACKED)
@pytest.mark.usefixtures("counting")
def test_recording_and_undoing_cost_the_same_in_a_long_session(shadow: Shadow, worktree: Path) -> None:
    for number in range(1, 10):
        record(shadow, worktree, number)
    early = _count_acts(shadow, worktree, 10)
    record(shadow, worktree, 11)
    copy_messages(shadow, 500)
    shadow.track()  # opens the store again, and leaves it clean
    late = _count_acts(shadow, worktree, 501)

    assert [act for act in early if late[act][0] > early[act][0]] == []
    assert [act for act in early if late[act][1] > early[act][1] + 10] == []


def _count_acts(shadow: Shadow, worktree: Path, number: int) -> dict[str, tuple[int, int]]:
    """Count the cost of recording one message and of each act on it."""
    counts = {"begin": count(lambda: shadow.begin(f"m{number}"))}
    (worktree / "a.txt").write_text(f"{number}\n")
    counts["end"] = count(lambda: shadow.end(f"m{number}"))
    counts["undo"] = count(shadow.undo)
    counts["redo"] = count(shadow.redo)
    counts["revert"] = count(lambda: shadow.revert(f"m{number}"))
    counts["unrevert"] = count(shadow.unrevert)
    return counts


# Branches


def fork(shadow: Shadow, worktree: Path) -> None:
    """Record two messages, one of them on a branch."""
    for name in ("x", "y"):
        with shadow.message(name):
            (worktree / "a.txt").write_text(f"{name}\n")
        if name == "x":
            shadow.undo()


def lengthen(shadow: Shadow, worktree: Path, count: int) -> None:
    """Record messages that each change one of a few files, and undo and redo each."""
    for number in range(count):
        with shadow.message(f"m{number}"):
            (worktree / f"{number % 7}.txt").write_text(f"{number}\n")
        shadow.undo()
        shadow.redo()


def lengthen_before(shadow: Shadow, worktree: Path, count: int) -> None:
    """Record a long history before the messages that the acts pass."""
    lengthen(shadow, worktree, count)
    fork(shadow, worktree)


def lengthen_elsewhere(shadow: Shadow, worktree: Path, count: int) -> None:
    """Record a long history of other files in another session."""
    fork(shadow, worktree)
    with Shadow(worktree, session="other", settings={"min_free": 0}) as other:
        lengthen(other, worktree, count)


SHORT_ACTS: dict[str, Callable[[Shadow], object]] = {
    "switch": lambda shadow: shadow.switch("x"),
    "switch back": lambda shadow: shadow.switch("y"),
    "unrevert": lambda shadow: shadow.unrevert(),
    "only": lambda shadow: shadow.revert("x", only=True),
    "switch to what was taken out": lambda shadow: shadow.switch("x"),
    "without files": lambda shadow: shadow.revert("x", files=False),
    "begin": lambda shadow: shadow.begin("z"),
}


@pytest.mark.limits(UNREPACKED)
@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("length", [50, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("history", [lengthen_before, lengthen_elsewhere])
def test_acts_on_branches_cost_the_same_in_a_long_history(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    history: Callable[[Shadow, Path, int], None],
    length: int,
) -> None:
    """The hundreds of messages and acts that an act does not pass are not read."""
    counts: list[dict[str, tuple[int, int, int]]] = []
    for messages in (10, length):
        place = make_tree(tmp_path / f"{messages}", {})
        with Shadow(place, settings={"min_free": 0}) as shadow:
            history(shadow, place, messages)
            # Packs that wait to be repacked are listed each time, and there are never many for long.
            shadow.tidy(60)
            shadow.track()
            counts.append(
                {name: _count_with_rows(shadow, act, monkeypatch) for name, act in SHORT_ACTS.items()}
            )

    few, many = ({name: counted[::2] for name, counted in each.items()} for each in counts)
    assert many == few
    assert [act for act in SHORT_ACTS if counts[1][act][1] > counts[0][act][1] + 10] == []


def _count_with_rows(
    shadow: Shadow, act: Callable[[Shadow], object], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int, int]:
    with counted_rows(monkeypatch) as rows:
        statements, steps = count(lambda: act(shadow))
    return statements, steps, sum(rows)


def test_a_switch_that_changes_no_file_writes_nothing_into_the_worktree(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message changed nothing, or is the current one, or ended with the same files."""
    record(shadow, worktree, 1)
    shadow.begin("nothing")
    shadow.end("nothing")
    shadow.undo(2)
    record_same(shadow, worktree)
    for ref in ("m1", "same", "nothing", "nothing", "same"):
        before = shadow.status().head

        with counted_scans(monkeypatch) as scans, counted_writes(monkeypatch) as writes:
            outcome = shadow.switch(ref)

        assert shadow.status().head == ref
        assert scans == [None]
        outside = [write for write in writes if not write[1].startswith(str(shadow.store))]
        assert (outcome.restored, outcome.deleted, outside) == ([], [], [])
        if before == ref:
            assert outcome.messages == []


def record_same(shadow: Shadow, worktree: Path) -> None:
    """Record a message that makes the same change as the first one."""
    shadow.begin("same")
    (worktree / "a.txt").write_text("1\n")
    shadow.end("same")


def test_a_switch_looks_at_the_whole_worktree_once(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that it scans only the paths that it changed."""
    make_tree(worktree, {"src": {"deep": {"c.py": "x\n"}}})
    fork(shadow, worktree)

    with counted_scans(monkeypatch) as scans:
        shadow.switch("x")

    assert scans == [None, ({b"": {b"a.txt"}}, set())]
