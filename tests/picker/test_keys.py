"""What each key does to the state of the picker, without a terminal."""

from __future__ import annotations

import pytest

from shadowtree.picker import keys, model
from shadowtree.picker.model import State
from shadowtree.picker.pages import PlanPage, TextPage, list_branches, show_plan
from shadowtree.picker.requests import (
    Act,
    Carry,
    Preview,
    PreviewDiff,
    Quit,
    Request,
    ShowBranches,
    ShowDiff,
    ShowFiles,
)
from shadowtree.results.messages import Branch, Step
from shadowtree.results.outcomes import ConflictingPath
from tests.support.values import AFTER, BEFORE, make_message, make_outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict

BACK = Act("back", "msg_1")
NUMBERS = {"msg_1": 1, "msg_2": 2}


def make_state(messages: int = 5, *, lines: int = 24, **fields: object) -> State:
    made = [make_message(number, **fields) for number in range(1, messages + 1)]
    return model.resize(model.load(model.start("default", "/w"), made, has_all=True), lines, 80)


def press(state: State, *names: str) -> tuple[State, Request | None]:
    request = None
    for name in names:
        state, request = keys.press(state, name)
    return state, request


def after(state: State, *keys: str) -> str | None:
    """Give the message that the cursor is on after some keys."""
    return press(state, *keys)[0].row.id


# The list


def test_the_cursor_begins_on_now_and_a_stray_enter_does_nothing() -> None:
    state, request = press(make_state(), "enter")

    assert state.row.message is None
    assert request is None
    assert "This is now" in state.note


def test_keys_move_the_cursor() -> None:
    state = make_state(100, lines=13)

    assert after(state, "down") == after(state, "j") == "msg_100"
    assert after(state, "down", "down", "up") == after(state, "j", "j", "k") == "msg_100"
    assert after(state, "page_down") == "msg_92"
    assert after(state, "page_down", "page_up") is None
    assert after(state, "end") == after(state, "G") == "msg_1"
    assert after(state, "end", "home") is None
    assert after(state, "up") is None
    assert after(state, "end", "down") == "msg_1"


def test_the_row_under_the_cursor_is_always_in_sight() -> None:
    state = make_state(100, lines=13)
    for key in ("page_down", "down", "end", "up", "page_up", "home"):
        state, _ = press(state, key)

        assert state.top <= state.at < state.top + state.height


def test_a_smaller_window_keeps_the_row_under_the_cursor_in_sight() -> None:
    state, _ = press(make_state(100, lines=40), *["down"] * 30)
    state = model.resize(state, 10, 80)

    assert state.top <= state.at < state.top + state.height


def test_enter_previews_going_back_to_before_a_message() -> None:
    assert press(make_state(), "down", "down", "enter")[1] == Preview(Act("back", "msg_4"))


def test_enter_on_an_undone_message_redoes_up_to_it() -> None:
    state = model.load(make_state(), [make_message(1), make_message(2, state="undone")], has_all=True)

    assert press(state, "up", "enter")[1] == Preview(Act("redo_to", "msg_2"))


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("u", Preview(Act("undo"))),
        ("r", Preview(Act("redo"))),
        ("z", Preview(Act("unrevert"))),
        ("o", Preview(Act("only", "msg_5"))),
        ("q", Quit()),
        ("escape", Quit()),
        ("hangup", Quit()),
        ("b", ShowBranches(None)),
        ("unknown", None),
        ("x", None),
    ],
)
def test_a_key_asks_for_something(key: str, wanted: Request | None) -> None:
    assert press(make_state(), "down", key)[1] == wanted


def test_diff_and_files_are_of_the_message_under_the_cursor_or_of_now() -> None:
    state = make_state()

    assert press(state, "d")[1] == ShowDiff(None)
    assert press(state, "down", "d")[1] == ShowDiff(state.messages[-1])
    assert press(state, "down", "f")[1] == ShowFiles(state.messages[-1])


def test_branches_are_those_that_fork_after_the_message() -> None:
    fork, archived = make_message(1), make_message(2, state="archived", parent="msg_1")
    state = model.load(make_state(), [fork, archived, make_message(3, parent="msg_1")], has_all=True)

    assert press(state, "end", "b")[1] == ShowBranches(fork)


def test_undoing_only_what_is_undone_already_is_refused() -> None:
    state = make_state(2, state="undone", is_out=True)
    state, request = press(state, "down", "o")

    assert request is None
    assert state.note == "#2 is undone already."


def test_steps_open_a_page_and_a_message_without_them_says_so() -> None:
    step = Step("Edit-1", "msg_1", "default", BEFORE, AFTER, make_message(1).patch)
    page = press(make_state(1, steps=[step]), "down", "s")[0].page

    assert isinstance(page, TextPage)
    assert page.lines[0][0] == ("Edit-1", "bold")
    assert "No steps" in press(make_state(1), "down", "s")[0].note


def test_the_end_is_that_of_all_messages_also_if_some_are_still_being_read() -> None:
    messages = [make_message(number) for number in range(1, 50)]
    state, _ = press(model.load(make_state(lines=10), messages[20:], has_all=False), "end")
    assert state.row.id == "msg_21"

    assert model.load(state, messages, has_all=True).row.id == "msg_1"
    assert model.load(press(state, "up")[0], messages, has_all=True).row.id == "msg_22"


# Filter


def test_typing_filters_and_escape_shows_all_again() -> None:
    state, _ = press(make_state(), "/", *"number 3")

    assert [row.id for row in state.rows] == [None, "msg_3"]
    assert len(press(state, "backspace")[0].rows) == 6
    assert len(press(state, "escape")[0].rows) == 6
    assert not press(state, "escape")[0].is_typing


def test_keys_work_again_after_enter_in_the_filter_and_escape_clears_it_before_it_leaves() -> None:
    state, _ = press(make_state(), "/", *"3", "enter")

    assert after(state, "j") == "msg_3"
    cleared, request = press(state, "escape")
    assert request is None
    assert len(cleared.rows) == 6
    assert press(cleared, "escape")[1] == Quit()


def test_the_cursor_stays_on_its_message_while_the_filter_changes() -> None:
    state, _ = press(make_state(), "down", "down", "/", *"number")

    assert state.row.id == "msg_4"
    assert press(state, *" 2")[0].row.id == "msg_2"


def test_a_filter_leads_from_now_to_the_first_match() -> None:
    state, _ = press(make_state(), "/", *"number")
    assert state.row.id == "msg_5"

    state, _ = press(make_state(), "/", *"3", "enter")
    assert press(state, "enter")[1] == Preview(Act("back", "msg_3"))


def test_letters_of_any_script_go_to_the_filter() -> None:
    assert press(make_state(text="名前を変える"), "/", "名")[0].query == "名"


# News


def test_a_new_message_does_not_move_the_cursor() -> None:
    state, _ = press(make_state(5), "down", "down")
    new = [*state.messages, make_message(6)]
    state = model.load(state, new, has_all=True)

    assert state.row.id == "msg_4"
    assert len(state.rows) == 7


def test_a_cursor_on_now_stays_on_now() -> None:
    state = make_state(5)
    state = model.load(state, [*state.messages, make_message(6)], has_all=True)

    assert state.row.message is None


def test_the_row_stays_on_its_line_of_the_screen_when_others_come_above_it() -> None:
    state, _ = press(make_state(100, lines=13), *["page_down"] * 4)
    line = state.at - state.top
    new = [*state.messages, *(make_message(number) for number in range(101, 104))]
    state = model.load(state, new, has_all=True)

    assert state.at - state.top == line


def test_a_message_that_is_gone_leaves_the_cursor_on_the_next_one() -> None:
    state, _ = press(make_state(5), "down", "down")
    left = [message for message in state.messages if message.id != "msg_4"]

    assert model.load(state, left, has_all=True).row.id == "msg_3"


# Previews


def preview(**fields: object) -> State:
    outcome = make_outcome("revert", dry_run=True, id="plan", **fields)
    return model.open_page(make_state(), show_plan(BACK, outcome, NUMBERS, {}))


def conflict(path: str) -> ConflictingPath:
    return ConflictingPath(path, "it was edited", "use merge", choices=["merge", "keep", "overwrite"])


@pytest.mark.parametrize("key", ["enter", "y"])
def test_a_yes_carries_the_id_of_the_plan_that_was_shown(key: str) -> None:
    assert press(preview(restored=["a"]), key)[1] == Carry(BACK, {}, "plan")


@pytest.mark.parametrize("key", ["escape", "q", "n"])
def test_a_no_goes_back_to_the_list(key: str) -> None:
    state, request = press(preview(restored=["a"]), key)

    assert state.page is None
    assert request is None


def test_nothing_is_done_while_a_conflict_is_open() -> None:
    state, request = press(preview(conflicts=[conflict("a")]), "enter")

    assert request is None
    assert isinstance(state.page, PlanPage)
    assert "Choose for every conflict first" in state.page.warning


@pytest.mark.parametrize(("key", "how"), [("m", "merge"), ("k", "keep"), ("o", "overwrite")])
def test_a_choice_is_for_the_file_under_the_cursor(key: str, how: OnConflict) -> None:
    state = preview(conflicts=[conflict("a"), conflict("b")])

    assert press(state, "down", key)[1] == Preview(BACK, {"b": how})
    assert press(state, key.upper())[1] == Preview(BACK, {"a": how, "b": how})


def test_without_conflicts_there_is_nothing_to_choose_and_letters_move() -> None:
    state, request = press(preview(restored=["a", "b"]), "o", "j")

    assert request is None
    assert isinstance(state.page, PlanPage)
    assert state.page.at == 1


def test_letters_move_among_conflicts_too_except_that_k_keeps() -> None:
    state, request = press(preview(conflicts=[conflict("a"), conflict("b")]), "j")
    assert isinstance(state.page, PlanPage)
    assert (state.page.at, request) == (1, None)

    assert press(state, "k")[1] == Preview(BACK, {"b": "keep"})
    assert press(state, "up", "k")[1] == Preview(BACK, {"a": "keep"})


def test_what_cannot_be_chosen_is_told_and_not_asked_for() -> None:
    fixed = ConflictingPath("a", "it was edited", "", choices=["keep", "overwrite"])
    state, request = press(preview(conflicts=[fixed, conflict("b")], restored=["c"]), "m")
    assert isinstance(state.page, PlanPage)
    assert request is None
    assert "merge cannot combine" in state.page.warning.lower()

    assert press(state, "M")[1] == Preview(BACK, {"b": "merge"})
    state, request = press(state, "end", "o")
    assert isinstance(state.page, PlanPage)
    assert (request, "not in conflict" in state.page.warning) == (None, True)


def test_enter_goes_to_the_first_conflict_that_is_open() -> None:
    state, _ = press(preview(conflicts=[conflict("a")], restored=["b", "c"]), "end", "enter")

    assert isinstance(state.page, PlanPage)
    assert state.page.at == 0


def test_a_choice_is_kept_when_another_is_made_and_the_cursor_stays_on_its_file() -> None:
    state, _ = press(preview(conflicts=[conflict("a"), conflict("b")], restored=["c"]), "down")
    last = state.page
    assert isinstance(last, PlanPage)
    outcome = make_outcome("revert", dry_run=True, conflicts=[conflict("a")], kept=["b"])
    state = model.open_page(state, show_plan(BACK, outcome, NUMBERS, {"b": "keep"}, last))

    assert len(state.pages) == 1
    assert isinstance(state.page, PlanPage)
    assert state.page.entries[state.page.at].path == "b"
    assert press(state, "up", "m")[1] == Preview(BACK, {"b": "keep", "a": "merge"})


def test_the_diff_of_a_plan_is_asked_for_with_its_choices() -> None:
    assert press(preview(restored=["a"]), "d")[1] == PreviewDiff(BACK, {})
    state = preview(conflicts=[conflict("a")], restored=["b"])
    assert press(state, "d")[1] == PreviewDiff(BACK, {}, "a")
    assert press(state, "down", "d")[1] == PreviewDiff(BACK, {})


# Text and branches


def test_a_text_scrolls_to_its_last_line_and_no_further() -> None:
    lines = tuple(((str(number), ""),) for number in range(100))
    state, _ = press(model.open_page(make_state(lines=13), TextPage("", lines)), "end", "down")

    assert isinstance(state.page, TextPage)
    assert state.page.top == 90


def test_help_lies_over_any_page_and_escape_goes_back_to_it() -> None:
    state, _ = press(preview(restored=["a"]), "?")

    assert isinstance(state.page, TextPage)
    assert isinstance(press(state, "?", "escape")[0].page, PlanPage)


def test_a_branch_or_one_of_its_messages_can_be_switched_to() -> None:
    branches = [
        Branch(name, "msg_1", ids, 0, "", "archived") for name, ids in (("a", ["msg_2"]), ("b", ["msg_3"]))
    ]
    page = list_branches(branches, [make_message(2, state="archived")], make_message(1))
    assert page is not None
    state = model.open_page(make_state(), page)

    assert page.title == "Other branches after #1"
    assert press(state, "enter")[1] == Preview(Act("switch", "msg_3", "b"))
    assert press(state, "right", "enter")[1] == Preview(Act("switch", "msg_2", "a"))
    assert press(state, "right", "down", "enter")[1] == Preview(Act("switch", "msg_2"))
    assert press(state, "right", "left", "enter")[1] == Preview(Act("switch", "msg_3", "b"))


def test_branches_of_another_fork_are_not_listed() -> None:
    branches = [Branch("a", "msg_1", ["msg_2"], 0, "", "archived")]

    assert list_branches(branches, [], make_message(2)) is None
    assert list_branches(branches, [], None) is not None
