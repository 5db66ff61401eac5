"""What the screen shows, as lines: nothing wider than the terminal, nothing that steers it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shadowtree import Patch
from shadowtree.base.display import measure
from shadowtree.base.frozen import replace
from shadowtree.picker import keys, model
from shadowtree.picker.draw import draw, to_text
from shadowtree.picker.model import State
from shadowtree.picker.pages import TextPage, list_branches, show_plan
from shadowtree.picker.requests import Act, Quit
from shadowtree.picker.texts import HELP, describe_diffs, describe_files
from shadowtree.results.messages import Branch, FileDiff, Skipped
from shadowtree.results.outcomes import ConflictingPath, Hunk
from tests.support.values import NOW_MS, make_change, make_message, make_outcome

HOSTILE = "red \x1b[31m\u202egnp.\nline"


def make_state(*messages: object, lines: int = 24, columns: int = 80) -> State:
    state = model.load(model.start("default", "/home/me/project"), messages, has_all=True)  # type: ignore[arg-type]  # messages
    return model.resize(replace(state, outside=0), lines, columns)


def make_many(undone: int, in_force: int = 30, **fields: object) -> list[object]:
    total = undone + in_force
    states = ["active"] * in_force + ["undone"] * undone
    return [make_message(number, state=states[number - 1], **fields) for number in range(1, total + 1)]


def show(state: State, **counts: tuple[int, int]) -> list[str]:
    return to_text(draw(state, counts, NOW_MS))


def test_the_first_screen() -> None:
    files = Patch("", [make_change("src/login.py"), make_change("src/token.py")])
    messages = [
        make_message(1, text="set up the project", meta={"agent": "codex"}),
        make_message(2, text="add login\nwith tokens", meta={"agent": "claude"}, patch=files, inferred=True),
        make_message(3, state="undone", files=0, unprotected=[".env"]),
    ]

    assert show(make_state(*messages, lines=9), msg_1=(3, 0), msg_2=(120, 17)) == [
        " shadowtree rewind  /home/me/project                            session default",
        "   #3  3 min  ! undone  do number 3              no changes",
        "> now                   no files changed since the last message",
        "   #2  2 min  ?         add login                src/login.py +1 more  +120  -17",
        "   #1  1 min            set up the project       f0                      +3   -0",
        "",
        "",
        " Choose a message with the arrow keys to go back to before it.",
        " Enter go back  d diff  f files  u undo  r redo  / filter  ? help  q quit",
    ]


def test_undone_rows_stay_in_sight_and_what_is_hidden_is_counted() -> None:
    lines = show(make_state(*make_many(2), lines=24))

    assert [line.split()[0] for line in lines[1:4]] == ["#32", "#31", ">"]
    assert lines[21] == "  ↓ 13 more"

    lines = show(make_state(*make_many(20), lines=24))

    assert lines[1] == "  ↑ 18 more"
    assert [line.split()[0] for line in lines[2:6]] == ["#32", "#31", ">", "#30"]
    assert lines[21] == "  ↓ 14 more"


def test_the_cursor_is_never_on_a_line_that_counts_what_is_hidden() -> None:
    state = make_state(*make_many(20), lines=8, columns=40)
    for key in ("home", *["down"] * 60, *["up"] * 60):
        state, _ = keys.press(state, key)

        assert sum(line.startswith("> ") for line in show(state)) == 1


def test_files_of_a_plan_that_are_out_of_sight_are_counted() -> None:
    outcome = make_outcome(dry_run=True, deleted=[f"{number:02}" for number in range(40)])
    state = model.open_page(make_state(), show_plan(Act("undo"), outcome, {}, {}))

    assert show(state)[21] == "  ↓ 23 more"


def test_an_agent_is_named_in_the_rows_only_if_there_are_several() -> None:
    one, other = (make_message(n, meta={"agent": agent}) for n, agent in ((1, "claude"), (2, "codex")))

    assert "claude" not in "".join(show(make_state(one)))
    assert "claude" in show(keys.press(make_state(one), "down")[0])[-2]
    assert "claude" in "".join(show(make_state(one, other, columns=100)))


def test_an_empty_list_does_not_ask_you_to_choose() -> None:
    empty = make_state()
    assert "Choose" not in "".join(show(empty))
    assert "Choose" not in "".join(show(keys.press(empty, "enter")[0]))

    filtered = make_state(make_message(1))
    for key in ("/", "x", "y", "enter"):
        filtered, _ = keys.press(filtered, key)
    assert show(filtered)[-2] == " 0 messages with 'xy'."


@pytest.mark.parametrize("columns", [80, 40])
def test_a_command_to_copy_stands_on_lines_of_its_own_and_is_whole(columns: int) -> None:
    command = "shadowtree unrevert --session claude-code-0f3b7c1e-5d57-4f6e-9a51-2f3c6a1b9d7e"
    told = "Undid 12 messages (#1, #2, #3 … #11, #12): 4 files restored. To get back: press z, or run"
    lines = show(model.tell(make_state(make_message(1), columns=columns), told, command=command))

    first = next(place for place, line in enumerate(lines) if "shadowtree unrevert" in line)
    assert "".join(lines[first:-1]).strip() == command
    assert lines[first - 1].endswith("run")


@pytest.mark.parametrize(("lines", "columns"), [(7, 80), (24, 39), (1, 5)])
def test_a_window_that_is_too_small_says_so_and_confirms_nothing(lines: int, columns: int) -> None:
    page = show_plan(Act("undo"), make_outcome(dry_run=True, restored=["a"]), {}, {})
    state = model.resize(model.open_page(make_state(), page), lines, columns)

    assert " ".join(show(state)).startswith("The window is too small"[:columns])
    for key in ("enter", "y", "down", "escape"):
        assert keys.press(state, key) == (state, None)
    assert keys.press(state, "q")[1] == Quit()


@pytest.mark.parametrize(("lines", "columns"), [(10, 60), (8, 40)])
def test_a_small_window_shows_the_whole_headline_of_a_preview(lines: int, columns: int) -> None:
    ids = [f"msg_{number}" for number in range(1, 21)]
    outcome = make_outcome(
        dry_run=True,
        messages=ids,
        restored=["a"],
        deleted=["b"],
        conflicts=[_conflict("c")],
        notes=["remark " * 30],
    )
    page = show_plan(Act("back", "msg_1"), outcome, {id: place for place, id in enumerate(ids, 1)}, {})
    shown = " ".join(" ".join(show(model.open_page(make_state(lines=lines, columns=columns), page))).split())

    assert "Undo 20 messages: #1, #2, #3 … #19, #20" in shown
    assert "> conflict c" in shown
    if columns == 60:
        assert "1 file to restore, 1 to delete, 1 in conflict." in shown


def test_a_preview_names_messages_by_number() -> None:
    outcome = make_outcome(
        dry_run=True,
        conflicts=[_conflict("a", "it was edited after message 'msg_3'")],
        notes=["message 'x' stays"],
    )
    text = "\n".join(show(model.open_page(make_state(), show_plan(Act("undo"), outcome, {"msg_3": 3}, {}))))

    assert "a: it was edited after #3" in text
    assert "Message 'x' stays" in text


@pytest.mark.parametrize(
    ("choices", "hunks", "said"),
    [
        (["merge", "keep", "overwrite"], [], "a: it was edited"),
        (
            ["keep", "overwrite"],
            [Hunk(1, "a", "b", "c")],
            "They overlap, so merge cannot combine them: choose k or o",
        ),
        (["keep", "overwrite"], [], "Merge cannot combine the versions: choose k or o"),
        (["keep"], [], "Move what is in the way, or choose k"),
    ],
    ids=["merge", "overlap", "binary", "in the way"],
)
def test_only_what_a_file_in_conflict_can_be_is_offered(
    choices: list[str], hunks: list[Hunk], said: str
) -> None:
    conflict = ConflictingPath("a", "it was edited", "", hunks, choices)
    page = show_plan(Act("undo"), make_outcome(dry_run=True, conflicts=[conflict]), {}, {})
    lines = show(model.open_page(make_state(columns=120), page))

    assert lines[-2].endswith(said)
    keys = {"merge": "m merge", "keep": "k keep", "overwrite": "o overwrite"}
    assert [keys[choice] in lines[-1] for choice in keys] == [choice in choices for choice in keys]


def test_choices_for_all_are_those_that_any_file_has() -> None:
    conflicts = [_conflict("a", choices=["keep"]), _conflict("b", choices=["keep", "overwrite"])]
    page = show_plan(Act("undo"), make_outcome(dry_run=True, conflicts=conflicts, restored=["c"]), {}, {})
    state = model.open_page(make_state(), page)

    assert show(state)[-1] == " k keep  K/O all  d your edit  Enter confirm  Esc cancel"
    assert show(keys.press(state, "end")[0])[-1] == " K/O all  d diff  Enter confirm  Esc cancel"


@pytest.mark.parametrize("columns", [1, 10, 39, 40, 79, 80, 81, 120, 300])
@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5, 24, 80])
def test_nothing_is_wider_or_longer_than_the_terminal(lines: int, columns: int) -> None:
    state = make_state(
        make_message(1, text="名前を変える" * 20, meta={"agent": "claude"}),
        make_message(2),
        lines=lines,
        columns=columns,
    )
    outcome = make_outcome(dry_run=True, restored=["a" * 200, "名" * 100], notes=["long " * 60])
    branch = Branch("b" * 200, None, ["msg_1"], 0, "", "archived")
    branches = list_branches([branch], state.messages, None)
    assert branches is not None
    pages = (HELP, show_plan(Act("undo"), outcome, {}, {}), branches)
    for shown in (state, *(model.open_page(state, page) for page in pages), model.tell(state, "word " * 99)):
        screen = show(shown)

        assert len(screen) == lines
        assert max(map(measure, screen)) <= columns


def test_control_and_bidi_characters_are_escaped_everywhere() -> None:
    message = make_message(
        1, id=HOSTILE, text="", patch=Patch("", [make_change(HOSTILE)]), meta={"agent": HOSTILE}
    )
    state = make_state(message, columns=200)
    outcome = make_outcome(
        dry_run=True,
        messages=[HOSTILE],
        restored=[HOSTILE],
        conflicts=[ConflictingPath(HOSTILE + "2", HOSTILE, "")],
        skipped=[Skipped(HOSTILE + "3", HOSTILE)],
        notes=[HOSTILE],
    )
    diff = FileDiff(HOSTILE, "modified", 1, 0, False, f"diff --git\n@@ -1 +1 @@\n+{HOSTILE}\n")
    branches = list_branches([Branch(HOSTILE, None, [HOSTILE], 0, "", "archived")], [message], None)
    assert branches is not None
    pages = (
        show_plan(Act("undo"), outcome, {}, {}),
        show_plan(Act("switch", HOSTILE, HOSTILE), outcome, {}, {}),
        branches,
        TextPage("", tuple(describe_diffs([diff]))),
        TextPage("", tuple(describe_files(replace(message, unprotected=[HOSTILE]), [diff]))),
    )
    shown = [replace(state, session=HOSTILE, worktree=HOSTILE, query=HOSTILE), model.tell(state, HOSTILE)]
    for each in (*shown, *(model.open_page(state, page) for page in pages)):
        text = "".join(show(each))

        assert text.isprintable()
        assert "\\x1b" in text


def test_a_wide_text_is_cut_between_characters() -> None:
    lines = show(make_state(make_message(1, text="名前を変える" * 20)))

    assert "…" in lines[2]
    assert measure(lines[2]) <= 80


def test_undone_messages_are_dim_and_say_so() -> None:
    line = draw(make_state(make_message(1), make_message(2, state="undone")), {}, NOW_MS)[1]

    assert {style for _, style in line[1:]} == {"dim"}
    assert any("undone" in text for text, _ in line)


def test_a_fork_shows_how_many_branches_go_on_also_where_the_sign_cannot_be_shown() -> None:
    messages = [make_message(1), *(make_message(n, parent="msg_1", state="archived") for n in (2, 3))]
    state = make_state(*messages, make_message(4, parent="msg_1"))

    assert "⑂ 3" in show(state)[3]
    assert "fork 3" in to_text(draw(state, {}, NOW_MS, fork_sign="fork"))[3]


def test_the_marks_of_the_row_under_the_cursor_are_told_in_words() -> None:
    message = make_message(2, inferred=True, unprotected=[".env", "a.db"], parent="msg_1", before="9" * 40)
    state, _ = keys.press(make_state(make_message(1), message), "down")

    assert show(state)[2].split()[:4] == [">", "#2", "2", "min"]
    assert "~?!" in show(state)[2]
    assert show(state)[-3:-1] == [
        " #2, 2 min ago; files changed before it, outside any message; its end was",
        " inferred; 2 unprotected files changed",
    ]


def test_a_long_note_never_covers_the_row_under_the_cursor() -> None:
    state = make_state(*(make_message(number) for number in range(1, 30)), lines=10)
    for key in ("home", *["down"] * 8, "end", "up"):
        state, _ = keys.press(state, key)
        lines = show(model.tell(state, "word " * 30))

        assert len(lines) == 10
        assert sum(line.startswith("> ") for line in lines) == 1


def test_a_narrow_terminal_counts_files_and_leaves_out_the_agent() -> None:
    messages = [
        make_message(n, text="set up the project", files=3, meta={"agent": agent})
        for n, agent in ((1, "claude"), (2, "codex"))
    ]

    assert "claude" in show(make_state(*messages, columns=80))[3]
    assert show(make_state(*messages, columns=46))[3] == "   #1  1 min  set up the project       3 files"


def test_a_preview_lists_your_own_edits_first_and_says_what_happens() -> None:
    outcome = make_outcome(
        "revert",
        dry_run=True,
        messages=["msg_1", "msg_2", "msg_3"],
        restored=["a", "new", "own", "z"],
        created=["new"],
        merged=["own"],
        deleted=["b"],
        uncertain=["z"],
        conflicts=[_conflict("m", "it was edited after message 'msg_3'")],
        skipped=[Skipped("big.bin", "too big")],
        unprotected=[".env"],
    )
    numbers = {f"msg_{number}": number for number in (1, 2, 3)}
    page = show_plan(Act("back", "msg_1"), outcome, numbers, {})

    assert show(model.open_page(make_state(lines=16), page)) == [
        " Preview: nothing has changed yet                               session default",
        " Undo 3 messages: #1, #2, #3",
        " Files go back to before #1. 2 files to restore, 1 to create, 1 to merge, 1 to",
        " delete, 1 in conflict.",
        "",
        "> conflict   m  (changed since)",
        "  restore    z  (may be your own edit)",
        "  restore    a",
        "  delete     b",
        "  create     new",
        "  merge      own",
        "  leave      big.bin  (too big)",
        "  leave      .env  (not protected)",
        "",
        " m: it was edited after #3",
        " m merge  k keep  o overwrite  d your edit  Enter confirm  Esc cancel",
    ]


@pytest.mark.parametrize(
    ("act", "fields", "wanted"),
    [
        (Act("only", "msg_1"), {"messages": ["msg_1"], "mode": "only"}, "Undo only #1; later messages stay"),
        (Act("undo"), {"messages": ["msg_2"]}, "Undo #2"),
        (Act("redo"), {"messages": ["msg_2"], "redone": ["msg_2"]}, "Redo #2"),
        (
            Act("switch", "msg_2", "b"),
            {"messages": ["msg_1", "msg_2"], "redone": ["msg_2"]},
            "Switch to branch b: undo #1, redo #2",
        ),
        (
            Act("unrevert"),
            {"messages": ["msg_1", "msg_2"], "redone": ["msg_1", "msg_2"], "reverses": "revert"},
            "Reverse the last revert: redo 2 messages: #1, #2",
        ),
        (
            Act("undo"),
            {"messages": [f"msg_{number}" for number in range(1, 21)]},
            "Undo 20 messages: #1, #2, #3 … #19, #20",
        ),
    ],
    ids=["only", "undo", "redo", "switch", "unrevert", "many"],
)
def test_the_headline_says_what_is_undone_and_redone(
    act: Act, fields: dict[str, object], wanted: str
) -> None:
    numbers = {f"msg_{number}": number for number in range(1, 21)}
    outcome = make_outcome("revert", dry_run=True, restored=["a"], **fields)

    assert show(model.open_page(make_state(), show_plan(act, outcome, numbers, {})))[1] == f" {wanted}"


def test_the_file_under_the_cursor_is_in_sight_after_the_window_became_smaller() -> None:
    page = show_plan(Act("undo"), make_outcome(dry_run=True, deleted=[f"{n:02}" for n in range(40)]), {}, {})
    state = model.open_page(make_state(lines=40), page)
    for _ in range(30):
        state, _ = keys.press(state, "down")

    assert "> delete     30" in show(state)
    assert "> delete     30" in show(model.resize(state, 12, 80))


def test_what_was_chosen_for_a_conflict_is_shown_with_the_file() -> None:
    first = show_plan(
        Act("undo"), make_outcome(dry_run=True, conflicts=[_conflict("a"), _conflict("b")]), {}, {}
    )
    outcome = make_outcome(dry_run=True, restored=["a"], deleted=["b"])
    page = show_plan(Act("undo"), outcome, {}, {"a": "overwrite", "b": "overwrite"}, first)
    lines = show(model.open_page(make_state(), page))

    assert "> overwrite  a  (changed since)" in lines
    assert "  delete     b  (changed since)" in lines


def _conflict(
    path: str, reason: str = "it was edited", choices: Sequence[str] = ("merge", "keep", "overwrite")
) -> ConflictingPath:
    return ConflictingPath(path, reason, "use merge", choices=list(choices))
