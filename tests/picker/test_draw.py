"""What the screen shows, as lines: nothing wider than the terminal, nothing that steers it."""

from __future__ import annotations

import pytest

from shadowtree import Patch
from shadowtree.base.display import measure
from shadowtree.base.frozen import replace
from shadowtree.picker import model
from shadowtree.picker.draw import draw, to_text
from shadowtree.picker.model import State
from shadowtree.picker.pages import TextPage, list_branches, show_plan
from shadowtree.picker.requests import Act
from shadowtree.picker.texts import HELP, describe_diffs, describe_files
from shadowtree.results.messages import Branch, FileDiff, Skipped
from shadowtree.results.outcomes import ConflictingPath
from tests.support.values import NOW_MS, make_change, make_message, make_outcome

HOSTILE = "red \x1b[31m\u202egnp.\nline"


def make_state(*messages: object, lines: int = 24, columns: int = 80) -> State:
    state = model.load(model.start("default", "/home/me/project"), messages, has_all=True)  # type: ignore[arg-type]  # messages
    return model.resize(replace(state, outside=0), lines, columns)


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
    state, _ = model.press(make_state(make_message(1), message), "down")

    assert show(state)[2].split()[:4] == [">", "#2", "2", "min"]
    assert "~?!" in show(state)[2]
    assert show(state)[-3:-1] == [
        " #2, 2 min ago; files changed before it, outside any message; its end was",
        " inferred; 2 unprotected files changed",
    ]


def test_a_long_note_never_covers_the_row_under_the_cursor() -> None:
    state = make_state(*(make_message(number) for number in range(1, 30)), lines=10)
    for key in ("home", *["down"] * 8, "end", "up"):
        state, _ = model.press(state, key)
        lines = show(model.tell(state, "word " * 30))

        assert len(lines) == 10
        assert sum(line.startswith("> ") for line in lines) == 1


def test_a_narrow_terminal_counts_files_and_leaves_out_the_agent() -> None:
    state = make_state(
        make_message(1, text="set up the project", files=3, meta={"agent": "claude"}), columns=46
    )

    assert "claude" in show(make_state(*state.messages, columns=80))[2]
    assert show(state)[2] == "   #1  1 min  set up the project       3 files"


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
        conflicts=[ConflictingPath("m", "it was edited after msg_3", "use merge")],
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
        " m: it was edited after msg_3",
        " m merge  k keep  o overwrite  M/K/O all  d diff  Enter confirm  Esc cancel",
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
        state, _ = model.press(state, "down")

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


def _conflict(path: str) -> ConflictingPath:
    return ConflictingPath(path, "it was edited", "use merge")
