"""Which messages the picker lists, in which order, and what it says about them."""

from __future__ import annotations

from shadowtree import Message, Patch
from shadowtree.picker.rows import Row, filter_rows, make_rows
from tests.support.values import make_change, make_message


def make_line(*messages: Message) -> list[str]:
    return ["now" if row.message is None else row.message.id for row in make_rows(messages)]


def test_now_is_on_top_and_the_newest_message_below_it() -> None:
    assert make_line(make_message(1), make_message(2)) == ["now", "msg_2", "msg_1"]


def test_without_messages_there_is_now_alone() -> None:
    assert make_line() == ["now"]


def test_undone_messages_are_above_now() -> None:
    done, undone = make_message(1), [make_message(number, state="undone") for number in (2, 3)]

    assert make_line(done, *undone) == ["msg_3", "msg_2", "now", "msg_1"]


def test_a_message_that_was_undone_on_its_own_stays_in_its_place() -> None:
    alone = make_message(1, state="undone", is_out=True)

    assert make_line(alone, make_message(2)) == ["now", "msg_2", "msg_1"]


def test_archived_messages_are_not_listed_but_counted_where_their_branch_forks() -> None:
    first = make_message(1)
    archived = make_message(2, state="archived", branch="b", parent="msg_1")
    rows = make_rows([first, archived, make_message(3, parent="msg_1")])

    assert [(row.id, row.lines_on) for row in rows] == [(None, 1), ("msg_3", 1), ("msg_1", 2)]


def test_edits_between_two_messages_are_noticed() -> None:
    first = make_message(1, after="1" * 40)
    same = make_message(2, parent="msg_1", before="1" * 40, after="2" * 40)
    edited = make_message(3, parent="msg_2", before="9" * 40)

    assert [row.is_edited for row in make_rows([first, same, edited])] == [False, True, False, False]


def find(query: str, *rows: Row) -> list[str | None]:
    return [row.id for row in filter_rows(rows, query)]


def test_a_filter_finds_all_words_in_text_number_agent_and_file_names() -> None:
    named = Patch("", [make_change("src/Login.py")])
    rows = make_rows(
        [make_message(1, text="Add login", meta={"agent": "codex"}), make_message(2, patch=named)]
    )

    assert find("LOGIN", *rows) == [None, "msg_2", "msg_1"]
    assert find("login codex", *rows) == [None, "msg_1"]
    assert find("#2", *rows) == [None, "msg_2"]
    assert find("nothing like it", *rows) == [None]
