"""The journal: what it returns, which rows it reads for that, and what kills and older versions leave."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice, product
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, ShadowError, StoreDamaged
from shadowtree.base.errors import ForgottenTree, StoreTooNew, StoreTooOld
from shadowtree.base.paths import (
    DIRECTORY,
    MODE_LINK,
    Change,
    PathState,
    RelPath,
    Tombstones,
    Unknown,
    is_file,
)
from shadowtree.store.git_format import PackBytes
from shadowtree.system import disk
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.database import create_journal
from shadowtree.timeline.sqlite.schema import (
    ACTS,
    APPLICATION,
    BEGIN,
    END,
    FORMAT,
    HEAD_ONLY,
    REDO,
    RESTORE,
    REVERT,
    SNAPSHOT,
    STEP,
    STEP_END,
    SWITCH,
    UNDO,
    UNREVERT,
    WRAP,
    BranchRow,
    Event,
    Intent,
    MessageRow,
    Position,
    TakenOut,
    TreeRecord,
)
from tests.support.processes import in_child
from tests.support.sweeps import sweep_kills

FILE = PathState(0o100644, b"a" * 20)
PRIVATE_FILE = PathState(0o100600, b"b" * 20)
LINK = PathState(MODE_LINK, b"c" * 20)
STATES = {
    "absent": None,
    "file": FILE,
    "private file": PRIVATE_FILE,
    "link": LINK,
    "directory": DIRECTORY,
    "unknown": Unknown("the rules leave it out"),
    "unknown for another reason": Unknown("é \udcff"),
}
PAIRS = [pytest.param(STATES[a], STATES[b], id=f"{a} to {b}") for a, b in product(STATES, STATES)]
State = PathState | Unknown | None


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """The journal of an empty timeline."""
    with closing(Journal(str(path))) as journal:
        yield journal


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version


def schema_of(path: Path) -> set[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name, sql FROM sqlite_master"))


def reopened(path: Path, ask: Callable[[Journal], object]) -> object:
    """A separate journal, which sees only what is in the file."""
    with closing(Journal(str(path))) as other:
        return ask(other)


def change_at(path: bytes, old: State, new: State) -> Change:
    return Change(RelPath(path), old, new)


def add_message(journal: Journal, session: int, id: str = "m") -> MessageRow:
    return journal.add_message(session, id, None, "", None, None)


def add_event(journal: Journal, session: int = 1, kind: str = END, message: int | None = None) -> int:
    return journal.add_event(Event(0, session, kind, 0, Position(), message=message)).number


def ids(messages: Iterable[MessageRow]) -> list[str]:
    return [message.id for message in messages]


def numbers(events: Iterable[Event]) -> list[int]:
    return [event.number for event in events]


def read_all(journal: Journal) -> list[object]:
    """Make every query that does not name a row."""
    return [
        journal.session_number("default"),
        journal.session_names(),
        journal.find_message(1, "m"),
        journal.find_ordinal(1, 1),
        journal.find_prefix(1, ""),
        journal.last_messages(1, 20),
        journal.last_messages(None, None),
        journal.last_event(1),
        journal.last_wrap(),
        journal.events_after(0, 1),
        journal.events_of([1]),
        list(journal.acts_of(1)),
        journal.changes_at([b"a"], 0, 2),
        journal.branches(1),
        journal.changes_since([b"a"], 0, 1),
        journal.story_of(b"a"),
        journal.paths_of([1]),
        journal.open_intents(),
        journal.packs.rows(),
        list(journal.packs.read_all()),
        journal.packs.versions(),
    ]


# Trees


def test_a_tree_is_given_back_by_its_number(journal: Journal) -> None:
    first = journal.add_tree(tree=b"t", facts=b"f", also=(), files=3, time_s=9)
    again = journal.add_tree(tree=b"t", facts=b"g", also=(), files=3, time_s=8)

    assert journal.tree(first.number) == first == TreeRecord(1, b"t", b"f", b"", 3, 9)
    assert journal.find_tree(b"t") == journal.last_tree() == again
    assert journal.live_trees(first.number) == [again]


def test_the_blobs_beside_a_tree_are_given_back(journal: Journal) -> None:
    beside = [bytes([number]) * 20 for number in range(3)]
    record = journal.add_tree(tree=b"t", facts=b"f", also=beside, files=3, time_s=9)

    assert record.blobs_beside == journal.live_trees()[0].blobs_beside == beside


def test_the_last_tree_is_what_somebody_recorded_last(journal: Journal, path: Path) -> None:
    """It is cached in memory; a record that was rolled back must not be, and other processes record too."""
    first = journal.add_tree(tree=b"1", facts=b"f", also=(), files=1, time_s=1)
    with suppress(InterruptedError), journal.transaction():
        journal.add_tree(tree=b"2", facts=b"f", also=(), files=1, time_s=2)
        within = journal.last_tree()
        raise InterruptedError
    after = journal.last_tree()
    with closing(Journal(str(path))) as other:
        last = other.add_tree(tree=b"3", facts=b"f", also=(), files=1, time_s=3)

    assert within is not None
    assert (within.tree, after, journal.last_tree()) == (b"2", first, last)


def test_the_stamp_of_a_timeline_is_another_one_after_each_write(journal: Journal, path: Path) -> None:
    stamps = [journal.stamp()]
    journal.add_tree(tree=b"1", facts=b"f", also=(), files=1, time_s=1)
    stamps.append(journal.stamp())
    with closing(Journal(str(path))) as other:
        stamps.append(other.stamp())
        other.add_tree(tree=b"2", facts=b"f", also=(), files=1, time_s=2)
    stamps.append(journal.stamp())
    with journal.transaction():
        stamps.append(journal.stamp())

    assert journal.stamp() == stamps[3]
    assert len(set(stamps)) == 5
    assert stamps[-1] is None


# Sessions


def test_sessions_are_told_apart_by_their_exact_names(journal: Journal) -> None:
    names = ["default", "Default", "", "ü", "u\u0308", "not utf-8 \udcff", "nul \0 in it"]
    added = {journal.add_session(name): name for name in names}

    assert journal.session_names() == added
    assert [journal.session_number(name) for name in names] == list(added)
    assert journal.session_number("none") is None


def test_a_session_is_added_once(journal: Journal) -> None:
    journal.add_session("default")

    with pytest.raises(StoreDamaged):
        journal.add_session("default")


# Messages


def test_a_message_is_given_back_as_it_was_added(journal: Journal, path: Path) -> None:
    first = journal.add_message(1, "msg_01", None, "", None, None)
    odd = journal.add_message(1, "🙂 \udc80", "us\udcffer", "two\nlines\0 \udcfe", '{"a": 1}', first.number)

    assert first == MessageRow(1, 1, 1, "msg_01", None, "", None, None)
    assert odd == MessageRow(2, 1, 2, "🙂 \udc80", "us\udcffer", "two\nlines\0 \udcfe", '{"a": 1}', 1)
    assert reopened(path, lambda other: other.last_messages(1, None)) == [first, odd]
    assert journal.message(2) == journal.find_message(1, "🙂 \udc80") == journal.find_ordinal(1, 2) == odd


def test_each_session_counts_its_own_messages(journal: Journal) -> None:
    added = [add_message(journal, session, id) for id, session in [("a", 1), ("a", 2), ("b", 1), ("b", 2)]]

    assert [(message.session, message.ordinal) for message in added] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    assert journal.find_message(2, "b") == added[3]
    assert journal.find_message(3, "b") is None
    assert journal.find_ordinal(1, 3) is None


def test_a_message_id_is_used_once_in_a_session(journal: Journal) -> None:
    add_message(journal, 1)

    with pytest.raises(StoreDamaged):
        add_message(journal, 1)
    assert len(journal.last_messages(None, None)) == 1


def test_messages_are_found_by_numbers_also_by_very_many(journal: Journal) -> None:
    with journal.transaction():
        added = [add_message(journal, 1, f"m{number}") for number in range(1201)]
    asked = [message.number for message in reversed(added)]

    found = journal.messages_by_number(asked)

    assert list(found) == asked
    assert list(found.values()) == added[::-1]
    assert journal.messages_by_number([]) == {}


def test_the_last_messages_are_given_oldest_first(journal: Journal) -> None:
    for number in range(6):
        add_message(journal, 1 + number % 2, f"m{number}")

    assert ids(journal.last_messages(1, 2)) == ["m2", "m4"]
    assert ids(journal.last_messages(1, None)) == ["m0", "m2", "m4"]
    assert ids(journal.last_messages(None, 4)) == ["m2", "m3", "m4", "m5"]
    assert ids(journal.last_messages(None, None)) == ["m0", "m1", "m2", "m3", "m4", "m5"]
    assert ids(journal.last_messages(1, 0)) == []
    assert ids(journal.last_messages(3, 9)) == []


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("a", ["a_b", "a%b", "ab", "a"]),
        ("a_", ["a_b"]),
        ("a%", ["a%b"]),
        ("A", ["Ab"]),
        ("🙂", ["🙂", "🙂🙃"]),
        ("🙂🙃", ["🙂🙃"]),
        ("x\U0010ffff", ["x\U0010ffff", "x\U0010ffffz"]),
        ("\udc80", ["\udc80b"]),
        ("ab", ["ab"]),
        ("abc", []),
        ("ü", ["ü"]),
        ("[", []),
    ],
)
def test_a_prefix_is_taken_as_it_is(journal: Journal, prefix: str, found: list[str]) -> None:
    names = [
        "🙂",
        "a_b",
        "a%b",
        "Ab",
        "ab",
        "a",
        "🙂🙃",
        "x\U0010ffff",
        "x\U0010ffffz",
        "y",
        "\udc80b",
        "ü",
        "u\u0308",
    ]
    for id in names:
        add_message(journal, 1, id)
    add_message(journal, 2, prefix + " of another session")

    assert ids(journal.find_prefix(1, prefix)) == found


def test_of_many_messages_with_a_prefix_the_first_are_given(journal: Journal) -> None:
    for number in range(20, 0, -1):
        add_message(journal, 1, f"m{number:02}")

    assert ids(journal.find_prefix(1, "m")) == [f"m{number:02}" for number in range(20, 9, -1)]


# Events


def test_an_event_is_given_back_as_it_was_added(journal: Journal, path: Path) -> None:
    plain = journal.add_event(Event(0, 1, WRAP, 5, Position()))
    full = journal.add_event(
        Event(
            0,
            2,
            STEP_END,
            1_700_000_000_123,
            Position(head=1, tip=2, open=3, out=(TakenOut(1, 2), TakenOut(11, 120))),
            message=4,
            step="st\udcffep",
            before=5,
            after=6,
            since=7,
            is_inferred=True,
            git_head="0" * 40,
            takes_back=8,
            skips=9,
            meta='{"é": 1}',
        ),
        intent=10,
    )

    assert plain == Event(1, 1, WRAP, 5, Position())
    assert full.position == Position(1, 2, 3, (TakenOut(1, 2), TakenOut(11, 120)))
    assert reopened(path, lambda other: list(other.events([1, 2]).values())) == [plain, full]
    assert journal.event(2) == full
    assert journal.event(2).is_inferred is True


def test_events_are_ordered_by_number_because_clocks_go_back(journal: Journal) -> None:
    for time_ms in (30, 20, 10):
        journal.add_event(Event(0, 1, BEGIN, time_ms, Position()))

    assert [event.time_ms for event in journal.events_after(0, 1)] == [30, 20, 10]
    last = journal.last_event(1)
    assert last is not None
    assert last.time_ms == 10


def test_events_after_one_are_of_a_session(journal: Journal) -> None:
    for session in (1, 2, 1, 2):
        add_event(journal, session)

    assert numbers(journal.events_after(1, 1)) == [3]
    assert numbers(journal.events_after(3, 1)) == []
    last = journal.last_event(1)
    assert last is not None
    assert last.number == 3
    assert journal.last_event(3) is None


def test_events_of_messages_leave_acts_and_other_messages_out(journal: Journal) -> None:
    kinds = [WRAP, BEGIN, STEP, STEP_END, END, SNAPSHOT, *ACTS]
    for kind in kinds:
        add_event(journal, kind=kind, message=1)
        add_event(journal, kind=kind, message=2)
        add_event(journal, kind=kind)

    found = journal.events_of([1, 1])

    assert [event.kind for event in found] == [BEGIN, STEP, STEP_END, END, SNAPSHOT]
    assert {event.message for event in found} == {1}
    assert journal.events_of([]) == []


def test_events_of_very_many_messages_are_given_oldest_first(journal: Journal) -> None:
    with journal.transaction():
        added = [add_event(journal, message=message) for message in range(1201, 0, -1)]

    assert numbers(journal.events_of(range(1, 1202))) == added


def test_acts_are_given_newest_first_over_many_pages(journal: Journal) -> None:
    kinds = [BEGIN, REVERT, END, UNDO, WRAP, REDO, SNAPSHOT, UNREVERT, STEP, RESTORE, SWITCH, HEAD_ONLY]
    with journal.transaction():
        for number in range(372):
            add_event(journal, session=1 + number // 12 % 3, kind=kinds[number % 12])

    acts = list(journal.acts_of(1))

    of_session = [event for event in journal.events_after(0, 1) if event.kind in ACTS]
    assert acts == of_session[::-1]
    assert len(acts) > 40
    assert {act.kind for act in acts} == set(ACTS) & set(kinds)


def test_acts_can_be_added_while_acts_are_read(journal: Journal) -> None:
    with journal.transaction():
        first = [add_event(journal, kind=UNDO) for _ in range(50)]
    acts = journal.acts_of(1)
    seen = [next(acts).number]

    with journal.transaction():
        add_event(journal, kind=REDO)

    assert seen + numbers(acts) == first[::-1]


def test_the_last_event_before_another_leaves_that_one_out(journal: Journal) -> None:
    for session in (1, 2, 1, 2):
        add_event(journal, session)

    found = [journal.last_event(1, before=number) for number in (1, 2, 3, 4, 99)]

    assert [None if event is None else event.number for event in found] == [None, 1, 1, 3, 3]


def test_events_are_found_by_numbers_also_by_very_many(journal: Journal) -> None:
    with journal.transaction():
        added = [add_event(journal, kind=SWITCH) for _ in range(1201)]
    asked = added[::-1]

    found = journal.events(asked)

    assert list(found) == asked
    assert numbers(found.values()) == asked
    assert found[7] == journal.event(7)
    assert journal.events([]) == {}


def test_the_last_wrap_is_that_of_any_session(journal: Journal) -> None:
    assert journal.last_wrap() is None
    for session, kind in [(1, WRAP), (2, WRAP), (1, BEGIN)]:
        add_event(journal, session, kind)

    last = journal.last_wrap()

    assert last is not None
    assert (last.number, last.session) == (2, 2)


# Changes


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_change_is_given_back_as_it_was_added(journal: Journal, old: State, new: State) -> None:
    change = change_at(b"a", old, new)

    journal.add_changes(1, [change])

    assert journal.changes_of([1]) == {1: [change]}


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_merged_change_is_given_back_as_one(journal: Journal, path: Path, old: State, new: State) -> None:
    merged = Change(RelPath(b"a"), old, new, is_merged=True)

    journal.add_changes(add_event(journal, 1, UNDO), [merged, change_at(b"b", old, new)])

    assert reopened(path, lambda other: other.changes_of([1])) == {1: [merged, change_at(b"b", old, new)]}
    assert [change.is_merged for change in journal.changes_of([1])[1]] == [True, False]
    assert journal.story_of(b"a") == [(1, merged)]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_paths_of_an_event_are_those_of_known_changes_of_files_and_links(
    journal: Journal, old: State, new: State
) -> None:
    change = change_at(b"a", old, new)

    journal.add_changes(1, [change])

    is_counted = change.is_known and (is_file(old) or is_file(new))
    assert journal.paths_of([1]) == ({b"a"} if is_counted else set())


def test_changes_are_sorted_by_the_bytes_of_their_paths(journal: Journal) -> None:
    paths = [b"z", b"\xff\xfe", b"a/b", b"a", b"a b", b"new\nline", "é".encode(), b"Z"]

    journal.add_changes(1, [change_at(path, None, FILE) for path in paths])

    assert [change.path for change in journal.changes_of([1])[1]] == sorted(paths)


def test_changes_of_very_many_events_are_told_apart(journal: Journal) -> None:
    with journal.transaction():
        for event in range(1, 1202):
            journal.add_changes(
                event, [change_at(b"%d" % event, None, FILE), change_at(b"dir", None, DIRECTORY)]
            )

    found = journal.changes_of(range(1202))

    assert found[0] == []
    assert all(
        [change.path for change in found[event]] == [b"%d" % event, b"dir"] for event in range(1, 1202)
    )
    assert journal.paths_of(range(1202)) == {b"%d" % event for event in range(1, 1202)}
    assert journal.changes_of([]) == {}
    assert journal.paths_of([]) == set()


def test_changes_without_a_transaction_count_all_or_none(journal: Journal) -> None:
    with pytest.raises(StoreDamaged):
        journal.add_changes(
            1, [change_at(b"a", None, FILE), change_at(b"b", None, FILE), change_at(b"a", FILE, None)]
        )

    assert journal.changes_of([1]) == {1: []}


def test_changes_of_others_are_found_by_path(journal: Journal) -> None:
    for session, kind in [(2, END), (1, END), (2, SNAPSHOT), (2, STEP_END), (3, REVERT), (2, END)]:
        event = add_event(journal, session, kind)
        path = b"a" if event < 6 else b"other"
        journal.add_changes(event, [change_at(path, None, FILE), change_at(b"dir", None, DIRECTORY)])

    assert journal.changes_at([b"a", b"none"], 0, 1) == [
        (number, change_at(b"a", None, FILE)) for number in (1, 3, 5)
    ]
    assert [number for number, _ in journal.changes_at([b"a", b"dir", b"a"], 3, 1)] == [5, 5, 6]
    assert [number for number, _ in journal.changes_at([b"a"], 0, 2)] == [2, 5]
    assert journal.changes_at([b"a"], 6, 1) == []
    assert journal.changes_at([], 0, 1) == []


def test_changes_at_very_many_paths_are_given_oldest_first(journal: Journal) -> None:
    paths = [b"%04d" % number for number in range(1201)]
    with journal.transaction():
        for path in reversed(paths):
            journal.add_changes(add_event(journal, 2), [change_at(path, FILE, LINK)])

    found = journal.changes_at(set(paths), 0, 1)

    assert [number for number, _ in found] == list(range(1, 1202))
    assert [change.path for _, change in found] == paths[::-1]


def test_paths_that_several_events_changed_are_named_once(journal: Journal) -> None:
    for path in (b"a", b"b", b"a", b"c"):
        journal.add_changes(
            add_event(journal), [change_at(path, None, FILE), change_at(b"d", None, DIRECTORY)]
        )

    assert journal.paths_of([1, 2, 3, 3]) == {b"a", b"b"}
    assert journal.paths_of([4]) == {b"c"}
    assert journal.paths_of([99]) == set()


def add_story(journal: Journal) -> None:
    """Events of two sessions and of every kind; each changed `a` and a file of its own."""
    kinds = [END, SNAPSHOT, STEP_END, BEGIN, REVERT, SWITCH, END]
    for number, kind in enumerate(kinds * 2, start=1):
        event = add_event(journal, 1 if number <= len(kinds) else 2, kind)
        journal.add_changes(event, [change_at(b"%d" % event, None, FILE), change_at(b"a", FILE, LINK)])


@pytest.mark.parametrize(
    ("paths", "after", "session", "found"),
    [
        ([b"a"], 0, 1, [1, 2, 5, 6, 7]),
        ([b"a"], 0, 2, [8, 9, 12, 13, 14]),
        ([b"a"], 2, 1, [5, 6, 7]),
        ([b"a"], 7, 1, []),
        ([b"a", b"5", b"13", b"none"], 1, 1, [2, 5, 5, 6, 7]),
        ([b"3", b"4"], 0, 1, []),
        ([], 0, 1, []),
        ([b"a"], 0, 3, []),
    ],
    ids=[
        "all of a session",
        "all of the other",
        "after an event",
        "after the last",
        "several paths",
        "what steps did their messages did",
        "no path",
        "no such session",
    ],
)
def test_changes_since_an_event_are_those_of_one_session(
    journal: Journal, paths: list[bytes], after: int, session: int, found: list[int]
) -> None:
    add_story(journal)

    changes = journal.changes_since(paths, after, session)

    assert [number for number, _ in changes] == found
    assert all(change.path in paths for _, change in changes)


def test_the_story_of_a_path_is_that_of_all_sessions(journal: Journal) -> None:
    add_story(journal)

    assert journal.story_of(b"a") == [
        (number, change_at(b"a", FILE, LINK)) for number in (1, 2, 5, 6, 7, 8, 9, 12, 13, 14)
    ]
    assert journal.story_of(b"13") == [(13, change_at(b"13", None, FILE))]
    assert journal.story_of(b"3") == []
    assert journal.story_of(b"none") == []


# Skips


@pytest.mark.parametrize("count", [1, 3, 2000])
def test_what_was_left_out_is_given_back_in_its_order(journal: Journal, count: int) -> None:
    pairs = [(f"z\udcff {count - number} é", "a socket") for number in range(count)]

    number = journal.left_out.add_skips(pairs)

    assert number is not None
    assert journal.left_out.skips(number) == pairs


def test_the_same_list_is_kept_once(journal: Journal) -> None:
    one = [("a", "a socket"), ("b", "a pipe")]
    other = [*one, ("c", "a pipe")]

    kept = [journal.left_out.add_skips(pairs) for pairs in (one, other, list(one), other)]

    assert kept == [1, 2, 1, 2]


def test_an_empty_list_is_not_kept(journal: Journal) -> None:
    assert journal.left_out.add_skips([]) is None


def test_a_long_list_is_kept_small(journal: Journal, path: Path) -> None:
    journal.left_out.add_skips([(f"some/folder/{number}", "it kept changing") for number in range(10_000)])

    with closing(sqlite3.connect(path)) as connection:
        size_bytes = connection.execute("SELECT sum(length(content)) FROM skips").fetchone()[0]
    assert size_bytes < 100_000


# Branches


def test_branches_are_those_of_a_session(journal: Journal) -> None:
    first = journal.add_branch(1, "b1", None, 2, 3)
    journal.add_branch(2, "b1", 1, 2, 3)
    second = journal.add_branch(1, "br\udcffanch", 4, 5, 6)

    assert (first, second) == (BranchRow(1, 1, "b1", None, 2, 3), BranchRow(3, 1, "br\udcffanch", 4, 5, 6))
    assert journal.branches(1) == [first, second]
    assert journal.branches(9) == []


@pytest.fixture
def three_branches(journal: Journal) -> Journal:
    """Branches 1 and 3 of the first session, and 2 of the second one."""
    for session, name in [(1, "a"), (2, "b"), (1, "c")]:
        journal.add_branch(session, name, None, 2, 3)
    return journal


def test_a_branch_that_was_left_last_comes_last(three_branches: Journal, path: Path) -> None:
    three_branches.move_branch(1, fork=4, tip=5, event=6)

    assert reopened(path, lambda other: other.branches(1)) == [
        BranchRow(3, 1, "c", None, 2, 3),
        BranchRow(1, 1, "a", 4, 5, 6),
    ]
    three_branches.move_branch(1, fork=None, tip=7, event=8)
    assert three_branches.branches(1)[-1] == BranchRow(1, 1, "a", None, 7, 8)
    assert three_branches.branches(2) == [BranchRow(2, 2, "b", None, 2, 3)]


def test_a_branch_is_renamed(three_branches: Journal, path: Path) -> None:
    three_branches.rename_branch(3, "né\udcff")

    assert reopened(path, lambda other: [row.name for row in other.branches(1)]) == ["a", "né\udcff"]
    assert [row.name for row in three_branches.branches(2)] == ["b"]


def test_a_branch_that_is_dropped_is_no_longer_listed_and_its_number_never_given_again(
    three_branches: Journal, path: Path
) -> None:
    three_branches.drop_branch(3)
    again = three_branches.add_branch(1, "c", None, 2, 9)

    assert again.number == 4
    assert reopened(path, lambda other: [row.number for row in other.branches(1)]) == [1, 4]
    assert [row.number for row in three_branches.branches(2)] == [2]


@pytest.mark.parametrize(
    "change",
    [
        lambda journal: journal.move_branch(1, fork=4, tip=5, event=6),
        lambda journal: journal.rename_branch(1, "new"),
        lambda journal: journal.drop_branch(1),
    ],
    ids=["moved", "renamed", "dropped"],
)
def test_what_was_done_to_a_branch_counts_with_its_transaction(
    three_branches: Journal, change: Callable[[Journal], None]
) -> None:
    before = three_branches.branches(1)

    with suppress(ValueError), three_branches.transaction():
        change(three_branches)
        assert three_branches.branches(1) != before
        raise ValueError

    assert three_branches.branches(1) == before


# Intents


def test_an_intent_is_open_until_it_is_removed_and_committed_by_an_event(
    journal: Journal, path: Path
) -> None:
    first, second = journal.add_intent(b"\0one"), journal.add_intent(b"two")
    journal.add_event(Event(0, 1, UNDO, 0, Position()), intent=second)

    assert reopened(path, lambda other: other.open_intents()) == [
        Intent(first, b"\0one", is_committed=False),
        Intent(second, b"two", is_committed=True),
    ]
    journal.remove_intent(first)
    journal.remove_intent(second)
    assert journal.open_intents() == []


def test_the_number_of_a_removed_intent_is_never_given_again(journal: Journal, path: Path) -> None:
    """Otherwise the old event would make the new intent seem committed, and it would not be rolled back."""
    old = journal.add_intent(b"old")
    journal.add_event(Event(0, 1, UNDO, 0, Position()), intent=old)
    journal.remove_intent(old)
    journal.close()

    with closing(Journal(str(path))) as later:
        new = later.add_intent(b"new")

        assert new > old
        assert later.open_intents() == [Intent(new, b"new", is_committed=False)]


def test_an_intent_may_count_together_with_what_else_is_added(journal: Journal) -> None:
    with suppress(StoreDamaged), journal.transaction():
        journal.add_intent(b"x")
        journal.tree(99)

    assert journal.open_intents() == []


# Transactions


def test_what_is_added_in_a_transaction_is_seen_by_others_when_it_is_over(
    journal: Journal, path: Path
) -> None:
    with journal.transaction():
        add_message(journal, 1)
        journal.add_changes(add_event(journal), [change_at(b"a", None, FILE)])
        assert reopened(path, lambda other: (other.last_event(1), other.last_messages(1, 1))) == (None, [])
        assert journal.last_event(1) is not None

    assert reopened(path, lambda other: other.changes_of([1])) == {1: [change_at(b"a", None, FILE)]}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, StoreDamaged])
def test_a_transaction_that_raises_leaves_nothing(journal: Journal, error: type[BaseException]) -> None:
    def act() -> None:
        with journal.transaction():
            add_message(journal, 1)
            add_event(journal)
            raise error("x")

    with pytest.raises(error):
        act()

    assert (journal.last_event(1), journal.last_messages(1, 1)) == (None, [])
    with journal.transaction():
        assert add_message(journal, 1).ordinal == 1


def test_a_failed_row_takes_its_transaction_with_it(journal: Journal) -> None:
    def act() -> None:
        with journal.transaction():
            add_event(journal)
            add_message(journal, 1)

    add_message(journal, 1)

    with pytest.raises(StoreDamaged):
        act()
    assert journal.last_event(1) is None


def test_transactions_do_not_nest(journal: Journal) -> None:
    def act() -> None:
        with journal.transaction():
            add_event(journal)
            with journal.transaction():
                pass

    with pytest.raises(AssertionError):
        act()
    assert journal.last_event(1) is None


def test_a_full_disk_in_a_transaction_leaves_nothing_and_the_journal_goes_on(journal: Journal) -> None:
    def act() -> None:
        with journal.transaction():
            add_event(journal)
            journal.add_message(1, "m", None, "x" * 100_000, None, None)

    pages = journal._db._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._db._connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    with pytest.raises(OutOfSpace):
        act()
    assert journal.last_event(1) is None
    assert add_event(journal) == 1


def test_every_write_passes_the_fault_point_once(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, where: acts.append((act, where)))

    journal.add_tree(tree=b"t", facts=b"f", also=(), files=3, time_s=9)
    journal.add_session("default")
    intent = journal.add_intent(b"x")
    journal.add_changes(1, [change_at(b"a", None, FILE)])
    with journal.transaction():
        add_message(journal, 1)
        add_event(journal)
        journal.add_changes(2, [change_at(b"a", None, FILE)])
    journal.remove_intent(intent)
    journal.add_branch(1, "b", None, 1, 1)
    journal.move_branch(1, fork=1, tip=2, event=2)
    journal.rename_branch(1, "c")
    journal.drop_branch(1)

    assert [act for act, _ in acts] == [
        *("record", "record", "intent", "commit", "commit", "forget"),
        *("record", "record", "record", "record"),
    ]
    assert {where for _, where in acts} == {str(path)}


def test_a_kill_leaves_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store" / "timeline.db"

    def prepare() -> None:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        create_journal(str(path))

    def act() -> None:
        with closing(Journal(str(path))) as journal:
            intent = journal.add_intent(b"plan")
            with journal.transaction():
                message = add_message(journal, 1)
                event = journal.add_event(Event(0, 1, UNDO, 0, Position(message.number)), intent=intent)
                journal.add_changes(event.number, [change_at(b"a", None, FILE)])
            journal.remove_intent(intent)

    def check() -> None:
        with closing(Journal(str(path))) as journal:
            event = journal.last_event(1)
            if event is None:
                assert journal.last_messages(1, None) == []
                assert [intent.is_committed for intent in journal.open_intents()] in ([], [False])
                assert journal.changes_of([1]) == {1: []}
            else:
                assert journal.open_intents() == [Intent(1, b"plan", is_committed=True)]
                assert len(journal.changes_of([event.number])[event.number]) == 1

    assert sweep_kills(prepare, act, check) == 3


def test_what_was_added_survives_a_kill_right_after(path: Path) -> None:
    def act() -> None:
        journal = Journal(str(path))
        journal.add_intent(b"x")
        with journal.transaction():
            add_event(journal)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(act).signal == signal.SIGKILL

    with closing(Journal(str(path))) as journal:
        assert len(journal.open_intents()) == journal.last_number() == 1


# Reading


def pass_packs(journal: Journal, rounds: int) -> None:
    """Journal packs and drop them again, as when they are repacked."""
    for number in range(rounds):
        name = f"pack-{number:040x}"
        journal.packs.add_journaled(PackBytes(name, bytes(100 << 10), b""), "boot", ())
        journal.packs.drop([name])


def test_the_log_stays_small_while_the_timeline_is_open(journal: Journal, path: Path) -> None:
    pass_packs(journal, 60)

    assert os.stat(f"{path}-wal").st_size < 2 << 20


def test_the_log_gives_back_the_room_of_one_large_transaction(journal: Journal, path: Path) -> None:
    with journal.transaction():
        for number in range(60):
            journal.packs.add_journaled(PackBytes(f"pack-{number:040x}", bytes(100 << 10), b""), "boot", ())
    pass_packs(journal, 15)

    assert os.stat(f"{path}-wal").st_size < 2 << 20


def test_the_log_is_as_long_as_it_gets_after_a_few_records(journal: Journal, path: Path) -> None:
    """A flush that extends a file takes several times as long as one that does not."""
    lengths = []
    for number in range(30):
        with journal.transaction():
            journal.add_session(f"session {number}")
        lengths.append(os.stat(f"{path}-wal").st_size)

    assert lengths[0] < 64 << 10
    assert lengths[-1] < 2 << 20
    assert len(set(lengths[5:])) == 1


def test_what_is_in_a_long_log_is_read_after_a_kill(journal: Journal, path: Path, tmp_path: Path) -> None:
    """The space after the last record does not count."""
    for number in range(10):
        with journal.transaction():
            journal.add_session(f"session {number}")
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")

    with closing(Journal(str(copy))) as copied:
        names = copied.session_names()

    assert list(names.values()) == [f"session {number}" for number in range(10)]


def test_a_log_that_cannot_be_made_longer_does_no_harm(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(act: str, path: str) -> None:
        if act == "overwrite":
            raise OutOfSpace(path)

    monkeypatch.setattr(disk, "before_write", fail)
    for number in range(10):
        with journal.transaction():
            journal.add_session(f"session {number}")

    assert len(journal.session_names()) == 10
    assert os.stat(f"{path}-wal").st_size < 256 << 10


def test_what_packs_took_in_the_timeline_is_given_back(journal: Journal, path: Path) -> None:
    journal.add_session("kept")
    with journal.transaction():
        for number in range(4):
            journal.packs.add_journaled(PackBytes(f"pack-{number:040x}", bytes(100 << 10), b""), "boot", ())
    journal.packs.drop([f"pack-{number:040x}" for number in range(4)])
    before = journal.measure()
    journal.compact()
    journal.close()

    assert path.stat().st_size == before < 200 << 10
    assert reopened(path, Journal.session_names) == {1: "kept"}


@pytest.fixture(scope="module")
def long_timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 messages in two sessions, with their events and changes, and an act at the very beginning."""
    path = tmp_path_factory.mktemp("long") / "timeline.db"
    create_journal(str(path))
    with closing(Journal(str(path))) as journal, journal.transaction():
        add_event(journal, 1, WRAP)
        add_event(journal, 1, UNDO)
        for number in range(10_000):
            session = 1 + number % 2
            message = add_message(journal, session, f"msg_{number:05}")
            add_event(journal, session, BEGIN, message.number)
            event = add_event(journal, session, END, message.number)
            journal.add_changes(
                event, [change_at(b"common", FILE, FILE), change_at(b"%d" % number, None, FILE)]
            )
    return path


QUESTIONS: dict[str, Callable[[Journal], object]] = {
    "last messages of a session": lambda journal: journal.last_messages(1, 20),
    "last messages of all": lambda journal: journal.last_messages(None, 20),
    "message by id": lambda journal: journal.find_message(1, "msg_05000"),
    "message by ordinal": lambda journal: journal.find_ordinal(1, 2500),
    "message by number": lambda journal: journal.message(5000),
    "messages by prefix": lambda journal: journal.find_prefix(1, "msg_0500"),
    "last event": lambda journal: journal.last_event(1),
    "events of messages": lambda journal: journal.events_of([10, 5000]),
    "newest events of a session": lambda journal: journal.events_after(19_990, 1),
    "newest act": lambda journal: list(islice(journal.acts_of(1), 1)),
    "acts of a session without any": lambda journal: list(journal.acts_of(2)),
    "last wrap": lambda journal: journal.last_wrap(),
    "changes of an event": lambda journal: journal.changes_of([10_000]),
    "paths of an event": lambda journal: journal.paths_of([10_000]),
    "events by number": lambda journal: journal.events([10, 5000]),
    "last event before one": lambda journal: journal.last_event(1, before=10_000),
    "newest changes of a session at a path": lambda journal: journal.changes_since(
        [b"common", b"7"], 19_950, 1
    ),
    "story of a path": lambda journal: journal.story_of(b"7"),
    "branches": lambda journal: journal.branches(1),
    "newest changes at a path": lambda journal: journal.changes_at([b"common", b"7"], 19_950, 1),
    "no changes by others": lambda journal: journal.changes_at([b"common"], 20_001, 1),
    "session": lambda journal: journal.session_number("none"),
    "intents": lambda journal: journal.open_intents(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_few_rows_reads_few_rows(long_timeline: Path, question: str) -> None:
    """Counted in steps of SQLite's virtual machine; scanning a table would take at least 10,000."""
    with closing(Journal(str(long_timeline))) as journal:
        steps = count_steps(journal, lambda: QUESTIONS[question](journal))

    assert steps < 2_000


def test_the_steps_of_a_scan_are_counted(long_timeline: Path) -> None:
    with closing(Journal(str(long_timeline))) as journal:
        assert count_steps(journal, lambda: journal.last_messages(1, None)) > 10_000


def test_no_path_is_looked_up_where_no_other_session_did_anything(long_timeline: Path) -> None:
    with closing(Journal(str(long_timeline))) as journal:
        last = journal.last_number()
        steps = count_steps(
            journal, lambda: journal.changes_at([b"%d" % n for n in range(5000)], last - 1, 2)
        )

    assert steps < 200


def test_adding_a_message_does_not_read_the_others(long_timeline: Path, tmp_path: Path) -> None:
    path = tmp_path / "timeline.db"
    shutil.copy(long_timeline, path)
    with closing(Journal(str(path))) as journal:
        add_message(journal, 1, "first")
        steps = count_steps(journal, lambda: add_message(journal, 1, "new"))

    assert steps < 500


def count_steps(journal: Journal, ask: Callable[[], object]) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    journal._db._connection.set_progress_handler(count, 1)
    try:
        ask()
    finally:
        journal._db._connection.set_progress_handler(None, 0)
    return steps


# Forgetting


@pytest.fixture
def four(worktree: Path, tmp_path: Path) -> Iterator[Journal]:
    """A timeline with m1; m2, archived when m3 began; m3 with a step; and m4, which is undone."""
    with Shadow(worktree, store=tmp_path / "store", settings={"min_free": 0}) as shadow:
        (worktree / "a").write_text("0")
        shadow.track()
        for id in ("m1", "m2"):
            with shadow.message(id, text="change it"):
                (worktree / "a").write_text(id)
        shadow.undo()
        with shadow.message("m3", text="in a step"), shadow.step("one"):
            (worktree / "a").write_text("m3")
        with shadow.message("m4", text="change it again"):
            (worktree / "a").write_text("m4")
        shadow.undo()
    with closing(Journal(str(tmp_path / "store" / "timeline.db"))) as journal:
        yield journal


def test_a_forgotten_message_keeps_its_place_and_loses_what_was_said(four: Journal) -> None:
    parents = [row.parent for row in four.last_messages(1, None)]
    four.retention.forget_messages([4], 99)

    row = four.find_message(1, "m4")
    assert row is not None
    assert (row.number, row.ordinal, row.parent) == (4, 4, parents[3])
    assert (row.text, row.meta, row.forgotten_ms) == ("", None, 99)
    assert ids(four.last_messages(1, None)) == ["m1", "m2", "m3"]
    assert ids(four.find_prefix(1, "m")) == ["m1", "m2", "m3", "m4"]
    four.retention.forget_messages([1], 100)
    assert ids(four.find_prefix(1, "m")) == ["m2", "m3", "m1", "m4"]
    assert [age.number for age in four.retention.ages()] == [2, 3]
    assert four.newest_number(1) == 4


def test_a_message_that_is_forgotten_again_was_forgotten_the_first_time(four: Journal) -> None:
    four.retention.forget_messages([1], 99)
    four.retention.forget_messages([1, 2], 100)

    assert [four.message(number).forgotten_ms for number in (1, 2, 3)] == [99, 100, None]


def test_what_a_forgotten_message_changed_stays_while_something_older_is_left(four: Journal) -> None:
    ends = {event.message: event.number for event in four.events_of([1, 2, 3, 4]) if event.kind == END}
    four.retention.forget_messages([2, 3], 99)
    four.retention.forget_changes([1])
    assert all(four.changes_of([ends[2], ends[3]]).values())

    four.retention.forget_messages([1], 99)
    four.retention.forget_changes([1])

    assert not any(four.changes_of([ends[1], ends[2]]).values())
    undo = four.retention.live_acts()[0].number
    assert four.changes_of([ends[3], undo, ends[4]]).keys() == {ends[3], undo, ends[4]}
    assert all(four.changes_of([ends[3], undo, ends[4]]).values())
    four.retention.forget_acts([undo], 99)
    four.retention.forget_changes([1])
    assert not any(four.changes_of([ends[3], undo]).values())
    assert all(four.changes_of([ends[4]]).values())


def test_what_a_step_of_a_forgotten_message_changed_goes_at_once(four: Journal) -> None:
    (step,) = [event.number for event in four.events_of([3]) if event.kind == STEP_END]
    assert all(four.changes_of([step]).values())
    four.retention.forget_messages([3], 99)

    assert not any(four.changes_of([step]).values())


def test_a_forgotten_tree_is_not_found_and_says_so(four: Journal) -> None:
    first, second, *_, last = four.live_trees()
    four.retention.forget_trees([first.number], 5_000_000)

    assert four.first_tree() == second
    assert four.last_tree() == last
    assert first.number not in [record.number for record in four.live_trees()]
    gone = four.find_tree(first.tree)
    assert gone is not None
    assert gone.forgotten_ms == 5_000_000
    with pytest.raises(ForgottenTree, match="was forgotten on 1970-01-01"):
        four.tree(first.number)


def test_a_tree_that_was_recorded_again_is_not_forgotten(four: Journal) -> None:
    first = four.live_trees()[0]
    four.retention.forget_trees([first.number], 99)
    again = four.add_tree(tree=first.tree, facts=first.facts, also=(), files=1, time_s=1)

    assert four.find_tree(first.tree) == again


def test_trees_are_bare_that_no_message_and_no_act_names(four: Journal) -> None:
    # `wrap` recorded the first tree, and the first message began with it.
    assert four.retention.bare_trees() == []
    bare = four.add_tree(tree=b"t" * 20, facts=b"f" * 20, also=(), files=1, time_s=7)

    assert four.retention.bare_trees() == [(bare.number, 7)]
    assert bare.number not in {tree for named in four.retention.named_trees() for tree in named.trees}


def test_a_pin_goes_with_unpin_and_with_the_message(four: Journal) -> None:
    for number in (1, 1, 2, 3):
        four.pin(number, 7)
    four.unpin(1)
    four.retention.forget_messages([2], 99)

    assert four.pins() == {3}


def test_what_was_purged_is_listed(four: Journal) -> None:
    four.purges.add(b"key.pem", None, 7)
    four.purges.add(None, b"b" * 20, 8)

    assert four.left_out.tombstones() == Tombstones(frozenset({RelPath(b"key.pem")}), frozenset({b"b" * 20}))


# Formats


def test_a_new_timeline_has_the_present_format(path: Path) -> None:
    before = path.read_bytes()

    with closing(Journal(str(path))) as journal:
        assert not any(read_all(journal))

    assert version_of(path) == FORMAT == 1
    assert path.read_bytes() == before


def test_a_newer_timeline_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")

    with pytest.raises(StoreTooNew) as caught:
        Journal(str(path))
    assert (caught.value.found, caught.value.known) == (FORMAT + 1, FORMAT)


@pytest.mark.parametrize("version", [0, -1])
def test_a_timeline_of_no_version_is_damage(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    with pytest.raises(StoreDamaged):
        Journal(str(path))


@pytest.mark.parametrize("application", [0, APPLICATION ^ 1])
def test_a_file_that_does_not_say_that_it_is_a_timeline_is_none(path: Path, application: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {application}")

    with pytest.raises(StoreDamaged if application else StoreTooOld):
        Journal(str(path))


# Damage


def test_a_row_that_another_one_names_and_is_not_there_is_damage(journal: Journal) -> None:
    asks: list[Callable[[int], object]] = [
        journal.tree,
        journal.message,
        journal.event,
        journal.left_out.skips,
    ]
    for ask in asks:
        with pytest.raises(StoreDamaged):
            ask(1)
    with pytest.raises(StoreDamaged):
        journal.messages_by_number([1])
    with pytest.raises(StoreDamaged):
        journal.events([1])


def fill(journal: Journal) -> None:
    """Add rows of every kind."""
    journal.add_tree(tree=b"t" * 20, facts=b"f" * 20, also=(), files=3, time_s=9)
    journal.add_session("default")
    with journal.transaction():
        for number, kind in enumerate([WRAP, BEGIN, END, UNDO] * 10):
            message = add_message(journal, 1, f"m{number}")
            event = add_event(journal, 1, kind, message.number)
            unknown = change_at(b"a", None, Unknown("why"))
            journal.add_changes(event, [unknown, change_at(b"b%d" % number, FILE, DIRECTORY)])
    journal.add_branch(1, "b", None, 1, 1)
    journal.left_out.add_skips([("a", "b")])
    journal.add_intent(b"x")


@pytest.mark.parametrize(
    ("damage", "ask"),
    [
        ("UPDATE messages SET text = x'ff'", lambda journal: journal.message(1)),
        ("UPDATE messages SET id = 7 WHERE number = 40", lambda journal: journal.last_messages(1, 20)),
        ("UPDATE events SET meta = 'text'", lambda journal: journal.event(1)),
        ("UPDATE events SET out = x''", lambda journal: journal.event(1)),
        ("UPDATE events SET out = x'37'", lambda journal: journal.last_event(1)),
        ("UPDATE events SET out = x'373a'", lambda journal: journal.events([1])),
        ("UPDATE events SET out = x'373a382c'", lambda journal: journal.event(1)),
        ("UPDATE events SET out = 7", lambda journal: journal.event(1)),
        ("UPDATE sessions SET name = x'ff'", lambda journal: journal.session_names()),
        ("UPDATE branches SET name = x'ff'", lambda journal: journal.branches(1)),
        ("UPDATE changes SET reason = x'ff'", lambda journal: journal.changes_of([1])),
        ("UPDATE skips SET content = x'ff'", lambda journal: journal.left_out.skips(1)),
        ("UPDATE skips SET content = x'5b5b'", lambda journal: journal.left_out.skips(1)),
        ("UPDATE skips SET content = x'5b225d'", lambda journal: journal.left_out.skips(1)),
    ],
)
def test_a_row_that_cannot_be_read_is_damage(
    journal: Journal, path: Path, damage: str, ask: Callable[[Journal], object]
) -> None:
    fill(journal)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(damage)

    with pytest.raises(StoreDamaged):
        ask(journal)


def test_a_flipped_byte_raises_an_error_of_ours_or_none(path: Path) -> None:
    with closing(Journal(str(path))) as journal:
        fill(journal)
    content = path.read_bytes()
    raised = []
    for position in [position for position, byte in enumerate(content) if byte][::29]:
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x81]) + content[position + 1 :])
        try:
            with closing(Journal(str(path))) as journal:
                read_all(journal)
                journal.events_of(range(1, 41))
                journal.changes_of(range(1, 41))
                journal.messages_by_number(range(1, 41))
                journal.left_out.skips(1)
        except ShadowError as error:
            raised.append(error)

    assert raised
