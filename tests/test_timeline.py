"""Where a session stands and where it can go: the rules of the timeline, and what a name means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowtree.errors import AmbiguousMessage, InvalidInput, UnknownMessage
from shadowtree.events import (
    ACTS,
    BEGIN,
    END,
    REVERT,
    SNAPSHOT,
    STEP,
    STEP_END,
    WRAP,
    BranchRow,
    Event,
    MessageRow,
    Position,
)
from shadowtree.journal import Journal, create_journal
from shadowtree.sessions import Session
from shadowtree.timeline import (
    FindMessage,
    Travel,
    choose_redo,
    choose_revert,
    choose_undo,
    find_branches,
    fold,
    name_branch,
    starts_turn,
    state_of,
    undone_messages,
    walk_back,
)

ROLES = {"u": "user", "a": "assistant", "t": "tool", "-": None}


def row(number: int, parent: int | None = None, role: str | None = None) -> MessageRow:
    return MessageRow(number, 1, number, f"m{number}", role, "", None, parent)


def line(roles: str) -> FindMessage:
    """Messages 1, 2, 3 … one after the other, with a role for each letter."""
    rows = {n: row(n, n - 1 or None, ROLES[letter]) for n, letter in enumerate(roles, start=1)}
    return rows.__getitem__


def find_in(parents: dict[int, int | None]) -> FindMessage:
    rows = {number: row(number, parent) for number, parent in parents.items()}
    return rows.__getitem__


def numbers(rows: Sequence[MessageRow]) -> list[int]:
    return [each.number for each in rows]


def event(
    kind: str, message: int | None = None, *, to: Position | None = None, step: str | None = None
) -> Event:
    return Event(9, 1, kind, 0, to or Position(), message=message, step=step)


def result(travel: Travel) -> tuple[list[int], int | None, int]:
    return numbers(travel.messages), travel.position.head, travel.turns


# fold

OPEN = Position(head=4, tip=4, open=4, step="s")
BACK = Position(head=2, tip=4)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_a_begin_makes_its_message_head_tip_and_open(start: Position) -> None:
    assert fold(start, event(BEGIN, 5)) == Position(head=5, tip=5, open=5)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_a_snapshot_makes_its_message_head_and_tip(start: Position) -> None:
    assert fold(start, event(SNAPSHOT, 5)) == Position(head=5, tip=5)


def test_an_end_closes_the_message_and_its_step_and_moves_nothing() -> None:
    assert fold(OPEN, event(END, 4)) == Position(head=4, tip=4)


def test_a_step_opens_and_closes_in_the_open_message() -> None:
    begun = fold(Position(head=4, tip=4, open=4), event(STEP, 4, step="build"))

    assert begun == Position(head=4, tip=4, open=4, step="build")
    assert fold(begun, event(STEP, 4, step="test")) == Position(head=4, tip=4, open=4, step="test")
    assert fold(begun, event(STEP_END, 4, step="build")) == Position(head=4, tip=4, open=4)


@pytest.mark.parametrize("kind", ACTS)
@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
def test_an_act_says_itself_where_it_went_and_leaves_nothing_open(kind: str, start: Position) -> None:
    said = Position(head=1, tip=3, open=8, step="x")

    assert fold(start, event(kind, to=said)) == Position(head=1, tip=3)


@pytest.mark.parametrize("start", [Position(), OPEN, BACK], ids=["nothing", "open", "undone"])
@pytest.mark.parametrize("kind", [WRAP, "something newer"])
def test_what_is_about_no_message_moves_nothing(kind: str, start: Position) -> None:
    assert fold(start, event(kind, to=Position(head=1, tip=1))) == start


# walk_back, undone_messages, starts_turn


@pytest.mark.parametrize(
    ("number", "until", "found"),
    [
        (3, None, [3, 2, 1]),
        (1, None, [1]),
        (None, None, []),
        (3, 1, [3, 2]),
        (3, 3, []),
        (2, 3, [2, 1]),
        (5, 1, [5, 4]),
    ],
    ids=[
        "all",
        "the first",
        "none",
        "until one",
        "until itself",
        "until one that is not above",
        "a side line",
    ],
)
def test_walking_back_goes_from_parent_to_parent(
    number: int | None, until: int | None, found: list[int]
) -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 1, 5: 4})

    assert numbers(list(walk_back(number, find, until))) == found


@pytest.mark.parametrize(
    ("head", "tip", "found"),
    [(3, 3, []), (1, 3, [2, 3]), (None, 3, [1, 2, 3]), (None, None, []), (2, 2, [])],
)
def test_undone_is_what_comes_after_the_head(head: int | None, tip: int | None, found: list[int]) -> None:
    assert numbers(undone_messages(Position(head=head, tip=tip), line("uuu"))) == found


@pytest.mark.parametrize(
    ("role", "is_start"),
    [(None, True), ("user", True), ("assistant", False), ("tool", False), ("User", False), ("", False)],
)
def test_a_turn_starts_with_the_user_or_with_nobody(role: str | None, is_start: bool) -> None:
    assert starts_turn(row(1, None, role)) is is_start


# undo


@pytest.mark.parametrize(
    ("roles", "head", "turns", "found"),
    [
        ("---", 3, 1, ([3], 2, 1)),
        ("---", 3, 2, ([2, 3], 1, 2)),
        ("---", 3, 3, ([1, 2, 3], None, 3)),
        ("---", 3, 9, ([1, 2, 3], None, 3)),
        ("uau", 3, 1, ([3], 2, 1)),
        ("uaata", 5, 1, ([1, 2, 3, 4, 5], None, 1)),
        ("uauaa", 5, 1, ([3, 4, 5], 2, 1)),
        ("uauaa", 5, 2, ([1, 2, 3, 4, 5], None, 2)),
        ("uauaa", 5, 3, ([1, 2, 3, 4, 5], None, 2)),
        ("aaua", 4, 1, ([3, 4], 2, 1)),
        ("aaua", 4, 2, ([1, 2, 3, 4], None, 2)),
        ("aaua", 4, 5, ([1, 2, 3, 4], None, 2)),
        ("aa", 2, 1, ([1, 2], None, 1)),
        ("a", 1, 2, ([1], None, 1)),
        ("uaua", 3, 1, ([3], 2, 1)),
        ("uaaa", 2, 1, ([1, 2], None, 1)),
        ("ua", None, 1, ([], None, 0)),
    ],
    ids=[
        "one of nobody",
        "two of nobody",
        "all",
        "more than there are",
        "a user alone",
        "one turn of many messages",
        "the last turn",
        "both turns",
        "more turns than there are",
        "not those that no turn began",
        "those that no turn began count as one",
        "they count once",
        "no user at all",
        "no user at all, too many",
        "a turn that is half undone",
        "the front half of a turn",
        "nothing in force",
    ],
)
def test_undo_goes_back_by_turns(
    roles: str, head: int | None, turns: int, found: tuple[list[int], int | None, int]
) -> None:
    travel = choose_undo(Position(head=head, tip=len(roles)), turns, line(roles))

    assert result(travel) == found
    assert travel.position == Position(head=found[1], tip=len(roles))
    assert travel == Travel(travel.position, back=travel.messages, turns=found[2])


def test_undo_with_nothing_recorded_stays_where_it_is() -> None:
    assert choose_undo(Position(), 1, find_in({})) == Travel(Position())


# redo


@pytest.mark.parametrize(
    ("roles", "head", "turns", "found"),
    [
        ("---", 1, 1, ([2], 2, 1)),
        ("---", None, 2, ([1, 2], 2, 2)),
        ("---", None, 9, ([1, 2, 3], 3, 3)),
        ("---", None, None, ([1, 2, 3], 3, 3)),
        ("---", 3, 1, ([], 3, 0)),
        ("---", 3, None, ([], 3, 0)),
        ("uauaa", None, 1, ([1, 2], 2, 1)),
        ("uauaa", 2, 1, ([3, 4, 5], 5, 1)),
        ("uauaa", None, 2, ([1, 2, 3, 4, 5], 5, 2)),
        ("uauaa", 3, 1, ([4, 5], 5, 1)),
        ("uauaua", 3, 1, ([4], 4, 1)),
        ("uauaua", 3, 2, ([4, 5, 6], 6, 2)),
        ("aaua", None, 1, ([1, 2], 2, 1)),
        ("aaua", None, None, ([1, 2, 3, 4], 4, 2)),
    ],
    ids=[
        "one of nobody",
        "two of nobody",
        "more than there are",
        "all",
        "nothing undone",
        "nothing undone, all",
        "a whole turn",
        "the last turn",
        "both turns",
        "the rest of a turn",
        "the rest of a turn alone",
        "the rest counts as one",
        "those that no turn began",
        "all, with those that no turn began",
    ],
)
def test_redo_goes_forward_by_turns(
    roles: str, head: int | None, turns: int | None, found: tuple[list[int], int | None, int]
) -> None:
    travel = choose_redo(Position(head=head, tip=len(roles)), turns, line(roles))

    assert result(travel) == found
    assert travel.position == Position(head=found[1], tip=len(roles))
    assert travel == Travel(travel.position, forward=travel.messages, turns=found[2])


@pytest.mark.parametrize("turns", [0, -1])
def test_a_count_below_one_is_refused(turns: int) -> None:
    with pytest.raises(InvalidInput, match=str(turns)):
        choose_undo(Position(head=1, tip=1), turns, line("u"))
    with pytest.raises(InvalidInput, match=str(turns)):
        choose_redo(Position(head=None, tip=1), turns, line("u"))


@given(st.text("ua-t", min_size=1, max_size=12), st.integers(1, 6))
def test_redo_brings_back_the_turns_that_undo_took(roles: str, turns: int) -> None:
    find = line(roles)
    whole = Position(head=len(roles), tip=len(roles))
    back = choose_undo(whole, turns, find)
    forth = choose_redo(back.position, turns, find)

    assert back.turns == forth.turns <= turns
    assert back.back == forth.forward
    assert forth.position == whole


# revert

TWO_LINES: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 2}
"""The present line is 1, 2, 3, 4; message 5 is on a branch."""


@pytest.mark.parametrize(
    ("head", "target", "messages", "to", "is_forward"),
    [
        (4, 4, [4], 3, False),
        (4, 2, [2, 3, 4], 1, False),
        (4, 1, [1, 2, 3, 4], None, False),
        (2, 2, [2], 1, False),
        (1, 4, [2, 3], 3, True),
        (None, 4, [1, 2, 3], 3, True),
        (3, 4, [], 3, True),
        (None, 1, [], None, True),
    ],
    ids=[
        "the last one",
        "one before",
        "the first",
        "the head of an undone line",
        "forward",
        "forward from nothing",
        "just before it already",
        "before the first already",
    ],
)
def test_revert_goes_to_just_before_a_message(
    head: int | None, target: int, messages: list[int], to: int | None, is_forward: bool
) -> None:
    find = find_in(TWO_LINES)
    travel = choose_revert(Position(head=head, tip=4), find(target), find)

    assert travel.position == Position(head=to, tip=4)
    assert (numbers(travel.forward), numbers(travel.back)) == (
        (messages, []) if is_forward else ([], messages)
    )
    assert (travel.passed, travel.rejoined) == ([], [])


def test_a_message_that_is_archived_cannot_be_reverted() -> None:
    find = find_in(TWO_LINES)

    with pytest.raises(InvalidInput, match="'m5' is archived"):
        choose_revert(Position(head=4, tip=4), find(5), find)


# state_of


@pytest.mark.parametrize(("number", "state"), [(1, "active"), (2, "open"), (3, "undone"), (4, "archived")])
def test_a_message_has_one_of_four_states(number: int, state: str) -> None:
    position = Position(head=2, tip=3, open=2)

    assert state_of(row(number), position, {1, 2}, {3}) == state


# Branches


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fix login", "fix-login"),
        ("Fix: the LOGIN (again)!", "fix-the-login-again"),
        ("", "branch"),
        ("  \n\t", "branch"),
        ("!?…🚀", "branch"),
        ("Größe ändern", "größe-ändern"),
        ("重构 登录", "重构-登录"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\0b\x1b[31mc\u202ed", "a-b-31mc-d"),
        ("--force", "force"),
        ("x" * 50, "x" * 40),
        ("a" * 39 + " b", "a" * 39),
        ("a" * 38 + " b", "a" * 38 + "-b"),
    ],
    ids=[
        "words",
        "signs",
        "empty",
        "blank",
        "no letters",
        "umlauts",
        "chinese",
        "a path",
        "control characters",
        "an option",
        "long",
        "cut at a word",
        "just fits",
    ],
)
def test_a_branch_is_named_after_its_first_message(text: str, name: str) -> None:
    assert name_branch(text, set()) == name


def test_a_name_that_is_used_gets_a_number() -> None:
    used: set[str] = set()
    for _ in range(4):
        used.add(name_branch("fix login", used))

    assert used == {"fix-login", "fix-login-2", "fix-login-3", "fix-login-4"}
    assert name_branch("fix login 2", used) == "fix-login-2-2"


@given(st.lists(st.text(max_size=60), max_size=8))
def test_names_of_branches_differ_and_are_plain(texts: list[str]) -> None:
    used: set[str] = set()
    for text in texts:
        name = name_branch(text, used)

        assert name not in used
        assert name
        assert all(character.isalnum() or character == "-" for character in name)
        assert not name.startswith("-")
        assert len(name) <= 43
        used.add(name)


def test_archived_messages_are_found_on_their_branches() -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 1, 5: 4, 6: 1})
    branches = [BranchRow(1, 1, "first", 1, 3, 7), BranchRow(2, 1, "second", 1, 5, 8)]

    found = find_branches([find(n) for n in (2, 3, 4, 6)], branches, find)

    assert [found.get(number) for number in (2, 3, 4, 6)] == ["first", "first", "second", None]


def test_of_two_branches_the_one_archived_last_counts() -> None:
    find = find_in({1: None, 2: 1, 3: 2, 4: 2})
    branches = [BranchRow(1, 1, "old", None, 3, 7), BranchRow(2, 1, "new", 1, 4, 8)]

    found = find_branches([find(n) for n in (1, 2, 3, 4)], branches, find)

    assert found == {1: "old", 2: "new", 3: "old", 4: "new"}


def test_a_message_on_no_branch_has_no_name() -> None:
    find = find_in({1: None, 2: 1})

    assert 1 not in find_branches([find(1)], [BranchRow(1, 1, "b", 1, 2, 3)], find)


# All of it, beside a model that knows nothing of parents and tips

_happenings = st.lists(
    st.one_of(
        st.sampled_from(["begin", "end", "step", "step end", "wrap", "restore"]),
        st.sampled_from(["-", "u", "a"]),
        st.tuples(st.sampled_from(["undo", "redo"]), st.integers(1, 3)),
        st.tuples(st.just("revert"), st.integers(0, 9)),
    ),
    max_size=25,
)


class Story:
    """A session as two plain lists, and beside it the position that the events fold to."""

    def __init__(self) -> None:
        self.rows: dict[int, MessageRow] = {}
        self.position = Position()
        self.active: list[int] = []
        self.undone: list[int] = []
        self.is_open = False
        self.step: str | None = None

    def happen(self, what: str | tuple[str, int]) -> None:
        if isinstance(what, tuple):
            self._travel(*what)
        elif what in ROLES:
            self._add(SNAPSHOT, ROLES[what])
        elif what == "begin":
            self._add(BEGIN, None)
        elif what == "restore":
            self._act(self.position.head)
        elif what == "wrap":
            self._fold(event(WRAP))
        elif self.is_open:
            self._go_on(what)

    def _add(self, kind: str, role: str | None) -> None:
        number = len(self.rows) + 1
        self.rows[number] = row(number, self.position.head, role)
        self._fold(event(kind, number))
        self.active.append(number)
        self.undone = []
        self.is_open, self.step = kind == BEGIN, None

    def _go_on(self, what: str) -> None:
        kind = {"end": END, "step": STEP, "step end": STEP_END}[what]
        self._fold(event(kind, self.active[-1], step="build"))
        self.is_open = what != "end"
        self.step = "build" if what == "step" else None

    def _travel(self, way: str, count: int) -> None:
        line = self.active + self.undone
        at = len(self.active)
        find = self.rows.__getitem__
        if way == "revert":
            if line:
                target = line[count % len(line)]
                self._act(choose_revert(self.position, find(target), find).position.head)
                self._split(line, line.index(target))
            return
        # Where turns start, counted on the plain list; the first message starts one whatever its role.
        starts = [i for i, n in enumerate(line) if i == 0 or self.rows[n].role in (None, "user")]
        if way == "undo":
            behind = [i for i in starts if i < at]
            self._act(choose_undo(self.position, count, find).position.head)
            self._split(line, behind[-min(count, len(behind))] if behind else at)
        else:
            ahead = [i for i in starts if i > at] + [len(line)]
            self._act(choose_redo(self.position, count, find).position.head)
            self._split(line, ahead[min(count, len(ahead)) - 1])

    def _split(self, line: list[int], at: int) -> None:
        self.active, self.undone = line[:at], line[at:]

    def _act(self, head: int | None) -> None:
        self._fold(event(REVERT, to=Position(head=head, tip=self.position.tip)))
        self.is_open, self.step = False, None

    def _fold(self, happened: Event) -> None:
        self.position = fold(self.position, happened)


@settings(max_examples=200)
@given(_happenings)
def test_the_fold_comes_to_where_a_plain_list_of_messages_does(
    happenings: list[str | tuple[str, int]],
) -> None:
    story = Story()
    for what in happenings:
        story.happen(what)
        find = story.rows.__getitem__

        assert numbers(list(walk_back(story.position.head, find)))[::-1] == story.active
        assert numbers(undone_messages(story.position, find)) == story.undone
        assert story.position.open == (story.active[-1] if story.is_open else None)
        assert story.position.step == story.step


# Names of messages


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The timeline of a store without a store."""
    path = str(tmp_path / "timeline")
    create_journal(path)
    journal = Journal(path)
    yield journal
    journal.close()


def record(journal: Journal, *ids: str, head: int | None = None, session: str = "s") -> Session:
    """Record messages one after the other; `head` tells how many are in force, all if it is None."""
    number = journal.add_session(session)
    rows: list[MessageRow] = []
    for id in ids:
        rows.append(journal.add_message(number, id, None, "", None, rows[-1].number if rows else None))
    in_force = rows if head is None else rows[:head]
    position = Position(head=in_force[-1].number if in_force else None, tip=rows[-1].number if rows else None)
    journal.add_event(session=number, kind=SNAPSHOT, time_ms=0, position=position)
    return Session(journal, session)


IDS = ["alpha", "beta", "bet", "gamma-1", "gamma-2", "last"]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("alpha", "alpha"),
        ("al", "alpha"),
        ("bet", "bet"),
        ("beta", "beta"),
        ("gamma-2", "gamma-2"),
        ("#1", "alpha"),
        ("#6", "last"),
        ("#06", "last"),
        ("@", "last"),
        ("@~0", "last"),
        ("@~5", "alpha"),
    ],
)
def test_a_name_means_one_message(journal: Journal, name: str, id: str) -> None:
    assert record(journal, *IDS).resolve(name).id == id


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nobody",
        "#0",
        "#7",
        "#",
        "#x",
        "#-1",
        "#1234567890",
        "#٣",
        "@~6",
        "@~",
        "@~x",
        "@~-1",
        "@x",
        "Alpha",
    ],
)
def test_a_name_that_means_nothing_is_unknown(journal: Journal, name: str) -> None:
    session = record(journal, *IDS)

    with pytest.raises(UnknownMessage) as caught:
        session.resolve(name)

    assert not isinstance(caught.value, AmbiguousMessage)


def test_the_beginning_of_several_ids_is_ambiguous(journal: Journal) -> None:
    session = record(journal, *IDS)

    with pytest.raises(AmbiguousMessage) as caught:
        session.resolve("gamma")

    assert caught.value.candidates == ["gamma-1", "gamma-2"]


@pytest.mark.parametrize("name", ["#1", "@", "@~2", "al", "#2"])
def test_an_exact_id_wins_over_all_that_it_could_mean(journal: Journal, name: str) -> None:
    session = record(journal, "alpha", "also", name, "al-last")

    assert session.resolve(name).number == 3


def test_a_number_without_a_message_may_be_the_beginning_of_an_id(journal: Journal) -> None:
    session = record(journal, "#70-fix", "b")

    assert session.resolve("#7").id == "#70-fix"
    assert session.resolve("#2").id == "b"


def test_places_count_from_the_head_and_numbers_from_the_first(journal: Journal) -> None:
    session = record(journal, *IDS, head=3)

    assert [session.resolve(name).id for name in ("@", "@~2", "#6", "last")] == [
        "bet",
        "alpha",
        "last",
        "last",
    ]
    with pytest.raises(UnknownMessage):
        session.resolve("@~3")


def test_with_everything_undone_there_is_no_place(journal: Journal) -> None:
    session = record(journal, *IDS, head=0)

    with pytest.raises(UnknownMessage):
        session.resolve("@")
    assert session.resolve("#1").id == "alpha"


def test_a_session_sees_its_own_messages_alone(journal: Journal) -> None:
    record(journal, "theirs", session="other")
    session = record(journal, "mine")

    assert session.resolve("#1").id == "mine"
    for name in ("theirs", "th", "#2"):
        with pytest.raises(UnknownMessage):
            session.resolve(name)


@pytest.mark.parametrize("name", ["", "@", "#1", "a"])
def test_a_session_that_recorded_nothing_knows_no_name(journal: Journal, name: str) -> None:
    with pytest.raises(UnknownMessage):
        Session(journal, "nobody").resolve(name)
