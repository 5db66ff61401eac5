"""`shadowtree rewind` on a terminal of its own: what the screen shows, and what is on the disk afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.processes import PACKAGE_PLACE
from tests.support.screens import Screen
from tests.support.trees import Tree, assert_tree

Open = Callable[..., Screen]


@pytest.fixture
def opened(project: Path) -> Iterator[Shadow]:
    """The project with three messages: each makes a file, and all of them write `shared.txt`."""
    with Shadow(project, settings={"min_free": 0}) as shadow:
        for number in (1, 2, 3):
            record(shadow, number)
        yield shadow


@pytest.fixture
def rewind(project: Path) -> Iterator[Open]:
    """Start the picker in the project; the first screen is there."""
    screens: list[Screen] = []

    def start(*words: str, **how: object) -> Screen:
        screens.append(Screen("rewind", *words, directory=project, **how))  # type: ignore[arg-type]  # of Screen
        screens[-1].wait(">")
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()


def record(shadow: Shadow, number: int, text: str = "") -> None:
    with shadow.message(f"m{number}", text=text or f"prompt {number}"):
        Path(shadow.worktree, f"{number}.txt").write_text(f"{number}\n")
        Path(shadow.worktree, "shared.txt").write_text("".join(f"{each}\n" for each in range(1, number + 1)))


def tree(*numbers: int) -> Tree:
    """Give the files of the project after some messages."""
    shared = {"shared.txt": "".join(f"{each}\n" for each in numbers)} if numbers else {}
    own = {f"{number}.txt": f"{number}\n" for number in numbers}
    return {"a.txt": "one\n", "b.txt": "two\n", **shared, **own}


def drop_ages(line: str) -> str:
    return " ".join(word for word in line.split() if word != "s" and not word.isdecimal())


def test_the_first_screen_lists_messages_and_enter_on_now_does_nothing(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    screen = rewind()
    screen.wait(lambda screen: screen.text.count("+2") == 3 and "no files changed" in screen.text)

    assert screen.lines[0].startswith(" shadowtree rewind  ")
    assert str(project)[-20:] in screen.lines[0]
    assert screen.lines[0].endswith("session default")
    assert screen.lines[1] == "> now       no files changed since the last message"
    assert [drop_ages(line) for line in screen.lines[2:5]] == [
        "#3 prompt 3.txt +1 more +2 -0",
        "#2 prompt 2.txt +1 more +2 -0",
        "#1 prompt 1.txt +1 more +2 -0",
    ]
    screen.press("enter")
    screen.wait("This is now.")
    screen.press("q")
    assert screen.end() == 0
    assert_tree(project, tree(1, 2, 3))


def test_going_back_shows_every_file_first_and_then_does_it(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    screen = rewind()
    screen.press("down", "down")
    screen.wait_for_line("#2")
    screen.press("enter")
    screen.wait("Enter confirm")

    assert screen.lines[1:7] == [
        " Undo 2 messages: #2, #3",
        " Files go back to before #2. 1 file to restore, 2 to delete.",
        "",
        "> delete     2.txt",
        "  delete     3.txt",
        "  restore    shared.txt",
    ]
    assert_tree(project, tree(1, 2, 3))
    screen.press("enter")
    screen.wait("Undid 2 messages (#2, #3): 1 file restored, 2 deleted.")
    assert "To get back: press z, or run shadowtree unrevert" in screen.flat
    assert_tree(project, tree(1))
    assert [line.split()[0] for line in screen.lines[1:5]] == ["#3", "#2", ">", "#1"]

    screen.press("q")
    assert screen.end() == 0
    assert "To get back: shadowtree unrevert" in screen.text


def test_escape_in_the_preview_changes_nothing(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("end")
    screen.wait_for_line("#1")
    screen.press("enter")
    screen.wait("Undo 3 messages: #1, #2, #3")
    screen.press("escape")
    screen.wait("shadowtree rewind")
    screen.press("q")

    assert screen.end() == 0
    assert_tree(project, tree(1, 2, 3))


def test_what_is_typed_ahead_of_a_preview_confirms_nothing(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    screen = rewind()
    screen.press("u\r\ry")
    screen.wait("Enter confirm")
    screen.press("n")
    screen.wait("shadowtree rewind")

    assert_tree(project, tree(1, 2, 3))


def test_undo_redo_and_reverse(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    for key, headline, after in (
        ("u", "Undo #3", tree(1, 2)),
        ("u", "Undo #2", tree(1)),
        ("r", "Redo #2", tree(1, 2)),
        ("z", "Reverse the last redo: undo #2", tree(1)),
    ):
        screen.press(key)
        screen.wait(headline)
        screen.press("y")
        screen.wait("To get back")

        assert_tree(project, after)


def test_nothing_to_redo_is_told_in_a_line(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("r")
    screen.wait("Nothing to redo")


def test_enter_on_an_undone_message_redoes_up_to_it(project: Path, opened: Shadow, rewind: Open) -> None:
    opened.undo(3)
    screen = rewind()
    screen.wait_for_line("now")
    screen.press("up", "up")
    screen.wait_for_line("#2")
    screen.press("enter")
    screen.wait("Redo 2 messages: #1, #2")
    screen.press("enter")
    screen.wait("Redid 2 messages (#1, #2)")

    assert_tree(project, tree(1, 2))


def test_only_one_message_is_undone(project: Path, opened: Shadow, rewind: Open) -> None:
    with opened.message("m4", text="apart"):
        (project / "apart").write_text("x")
    record(opened, 5)
    (project / "5.txt").unlink()
    screen = rewind()
    screen.press("down", "down")
    screen.wait_for_line("apart")
    screen.press("o")
    screen.wait("Undo only #4; later messages stay")
    screen.press("enter")
    screen.wait("Undid only #4")

    assert not (project / "apart").exists()
    assert (project / "shared.txt").read_text() == "1\n2\n3\n4\n5\n"


def test_conflicts_are_first_and_each_is_chosen_for(project: Path, opened: Shadow, rewind: Open) -> None:
    (project / "3.txt").write_text("mine\n")
    (project / "shared.txt").write_text("mine\n1\n2\n3\n")
    screen = rewind()
    screen.press("u")
    screen.wait("2 files in conflict")
    assert screen.lines[4] == "> conflict   3.txt  (changed since)"
    screen.press("enter")
    screen.wait("Choose for every conflict first")
    screen.press("k")
    screen.wait("> keep 3.txt (changed since)")
    screen.press("down")
    screen.wait_for_line("shared.txt")
    screen.press("m")
    screen.wait("> merge shared.txt (changed since)")
    screen.press("d")
    screen.wait("What would change")
    screen.wait("-3")
    screen.press("escape")
    screen.wait("Enter confirm")
    assert_tree(project, tree(1, 2) | {"3.txt": "mine\n", "shared.txt": "mine\n1\n2\n3\n"})
    screen.press("enter")
    screen.wait("Undid #3")

    assert_tree(project, tree(1, 2) | {"3.txt": "mine\n", "shared.txt": "mine\n1\n2\n"})


def test_an_edit_that_overlaps_is_not_offered_to_be_merged(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    (project / "shared.txt").write_text("1\n2\nmine\n")
    screen = rewind()
    screen.press("u")
    screen.wait(
        "shared.txt: it was edited after #3. They overlap, so merge cannot combine them: choose k or o"
    )
    assert "m merge" not in screen.text
    screen.press("d")
    screen.wait("Your edit of shared.txt")
    assert "+mine" in screen.text
    assert "3.txt" not in screen.text
    screen.press("escape")
    screen.wait("Enter confirm")
    screen.press("m")
    screen.wait(lambda screen: screen.lines[-2].startswith(" They overlap"))
    screen.press("k")
    screen.wait("> keep shared.txt")
    screen.press("j")
    screen.wait_for_line("3.txt")
    screen.press("enter")
    screen.wait("Undid #3")

    assert_tree(project, tree(1, 2) | {"shared.txt": "1\n2\nmine\n"})


def test_an_edit_before_the_last_message_shows_what_overwriting_it_would_change(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    (project / "shared.txt").write_text("mine\n1\n2\n3\n")
    with opened.message("m4"):
        (project / "apart").write_text("x")
    screen = rewind()
    screen.press("down", "down")
    screen.wait_for_line("#3")
    screen.press("enter")
    screen.wait("> conflict shared.txt")
    screen.press("d")
    screen.wait("-mine")

    assert "What overwriting shared.txt would change" in screen.text


def test_a_choice_for_all_overwrites_and_can_be_reversed(project: Path, opened: Shadow, rewind: Open) -> None:
    (project / "3.txt").write_text("mine\n")
    (project / "shared.txt").write_text("mine\n")
    screen = rewind()
    screen.press("u")
    screen.wait("2 files in conflict")
    screen.press("O")
    screen.wait("1 file to restore, 1 to delete")
    screen.press("enter")
    screen.wait("Undid #3")
    assert_tree(project, tree(1, 2))
    screen.press("z")
    screen.wait("Reverse the last undo")
    screen.press("enter")
    screen.wait("Reversed the last undo")

    assert_tree(project, tree(1, 2) | {"3.txt": "mine\n", "shared.txt": "mine\n"})


def test_a_plan_that_is_out_of_date_is_shown_anew_and_not_carried_out(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    screen = rewind()
    screen.press("u")
    screen.wait("Enter confirm")
    (project / "3.txt").write_text("mine\n")
    screen.press("enter")
    screen.wait("Something changed meanwhile")

    assert "> conflict   3.txt  (changed since)" in screen.lines
    assert_tree(project, tree(1, 2, 3) | {"3.txt": "mine\n"})


def test_diff_files_and_steps_of_a_message(project: Path, opened: Shadow, rewind: Open) -> None:
    with opened.message("m4", text="by steps"), opened.step("Edit-1"):
        (project / "a.txt").write_text("changed\n")
    (project / "b.txt").write_text("by me\n")
    screen = rewind()
    screen.press("f")
    screen.wait("M b.txt")
    screen.press("escape")
    screen.wait_for_line("now")
    screen.press("d")
    screen.wait("+by me")
    screen.press("escape")
    screen.wait_for_line("now")
    screen.press("down")
    screen.wait_for_line("#4")
    for key, wanted in (("d", "+changed"), ("f", "M a.txt +1 -1"), ("s", "Edit-1 1 file")):
        screen.press(key)
        screen.wait(wanted)
        screen.press("escape")
        screen.wait_for_line("#4")


def test_branches_can_be_seen_and_switched_to(project: Path, opened: Shadow, rewind: Open) -> None:
    opened.undo(2)
    with opened.message("m4", text="another way"):
        (project / "4.txt").write_text("4\n")
    screen = rewind()
    screen.press("end")
    screen.wait_for_line("⑂ 2")
    screen.press("b")
    screen.wait("Other branches after #1")
    assert screen.lines[1].startswith("> prompt-2  2 messages, 3 files")
    assert [line.split()[0] for line in screen.lines[2:4]] == ["#2", "#3"]
    screen.press("down")
    screen.wait_for_line("#2")
    screen.press("enter")
    screen.wait("Switch to #2: undo #4, redo #2")
    screen.press("enter")
    screen.wait("Switched to #2")

    assert_tree(project, tree(1, 2))
    assert not any("another way" in line for line in screen.lines)


def test_without_branches_a_line_says_so(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("b")
    screen.wait("There are no branches")


def test_filtering(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("/", "prompt 2")
    screen.wait("1 message with 'prompt 2'")
    assert not any("#3" in line for line in screen.lines)
    screen.press("enter", "down")
    screen.wait_for_line("#2")
    screen.press("escape")
    screen.wait("#3")
    assert "#2" in screen.chosen


def test_what_another_process_records_appears_and_the_cursor_stays(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    screen = rewind()
    screen.press("down", "down")
    screen.wait_for_line("#2")
    record(opened, 4)
    screen.wait("prompt 4", timeout_s=10)
    assert "#2" in screen.chosen

    opened.undo()
    screen.wait("undone", timeout_s=10)
    assert "#2" in screen.chosen


def test_the_way_back_names_the_session_that_was_chosen(project: Path, opened: Shadow, rewind: Open) -> None:
    record(opened.for_session("other"), 9)
    with opened.message("m4"):
        pass
    screen = rewind("--session", "other")
    screen.press("u")
    screen.wait("Enter confirm")
    screen.press("enter")
    screen.wait("Undid #1")
    screen.press("q")

    assert screen.end() == 0
    assert "To get back: shadowtree unrevert --session other" in screen.text


def test_a_session_can_be_chosen_and_the_last_one_is_the_default(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    record(opened.for_session("other"), 9)
    screen = rewind()
    screen.wait("session other")
    assert "prompt 9" in screen.text
    assert "prompt 3" not in screen.text

    assert "prompt 3" in rewind("--session", "default").text


def test_an_act_that_does_not_know_which_session_is_meant_is_told_in_a_line(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    opened.begin("m4")
    record(opened.for_session("other"), 9)
    screen = rewind()
    screen.press("u")
    screen.wait("'default' has an open message, 'm4'; leave, and choose one with --session")


def test_help(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("?")
    screen.wait("undo only this message, and keep later ones")
    screen.press("escape")
    screen.wait_for_line("now")


# Terminals


def test_bytes_that_are_no_keys_do_nothing(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.type(bytes(range(0x80, 0x100)) + b"\xff" * 100 + b"\x1b[200~\x1b[1;5A\x1b[<0;1;1M\x00\x01")
    screen.press("down")
    screen.wait_for_line("#3")
    screen.press("q")

    assert screen.end() == 0
    assert_tree(project, tree(1, 2, 3))


def test_it_ends_when_the_terminal_is_gone(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.hang_up()


@pytest.mark.parametrize(("lines", "columns"), [(50, 200), (10, 60), (8, 40)])
def test_many_sizes_of_terminals_will_do(
    project: Path, opened: Shadow, rewind: Open, lines: int, columns: int
) -> None:
    screen = rewind(lines=lines, columns=columns)
    screen.press("down", "?", "down", "q", "/", "x", "enter", "u")
    screen.wait("Undo #3")
    screen.press("n")
    screen.press("q")

    assert screen.end() == 0
    assert_tree(project, tree(1, 2, 3))


@pytest.mark.parametrize(("lines", "columns"), [(7, 80), (24, 39), (3, 10), (2, 2), (1, 5)])
def test_a_window_that_is_too_small_confirms_nothing(
    project: Path, opened: Shadow, rewind: Open, lines: int, columns: int
) -> None:
    screen = rewind()
    screen.press("u")
    screen.wait("Enter confirm")
    screen.resize(lines, columns)
    screen.wait("The window is"[: min(columns, 10)].strip())
    screen.press("enter", "y", "q")

    assert screen.end() == 0
    assert_tree(project, tree(1, 2, 3))


def test_the_screen_follows_the_size_of_the_window(project: Path, opened: Shadow, rewind: Open) -> None:
    """A size that the environment tells is not that of the window."""
    screen = rewind(variables={"LINES": "24", "COLUMNS": "80"})
    screen.wait("q quit")
    screen.resize(12, 50)
    screen.wait(lambda screen: "q quit" in screen.lines[11])
    screen.resize(30, 120)
    screen.wait(lambda screen: "b branches" in screen.lines[29])


def test_colours(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.wait("+2")

    assert screen.styles("+2").fg == "green"
    assert screen.styles("now").reverse


@pytest.mark.parametrize(
    "variables",
    [{"NO_COLOR": "1"}, {"TERM": "vt100"}, {"TERM": "xterm-mono"}],
    ids=["NO_COLOR", "vt100", "mono"],
)
def test_without_colours_letters_tell(
    project: Path, opened: Shadow, rewind: Open, variables: dict[str, str]
) -> None:
    opened.undo()
    screen = rewind(variables=variables)
    screen.wait("+2")

    assert screen.styles("+2").fg == "default"
    assert "undone" in screen.text


def test_a_terminal_without_unicode_shows_no_wrong_characters(
    project: Path, opened: Shadow, rewind: Open
) -> None:
    opened.undo(2)
    record(opened, 4, text="名前")
    record(opened, 5, text="a text that is much longer than the columns that there are for it on a terminal")
    # The terminal that the tests have does not know the way in which xterm repeats a blank.
    plain = {
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "",
        "TERM": "linux",
    }
    screen = rewind(variables=plain)
    screen.wait("fork 2")
    screen.wait(lambda screen: screen.text.count("+2") > 1)

    assert "\\u540d\\u524d" in screen.text
    assert "a text that is much longer than t...   5.txt +1 more  +2" in screen.text
    assert len({line.index(".txt") for line in screen.lines if ".txt" in line}) == 1
    assert "\\u20" not in screen.text
    screen.press("?")
    screen.wait("fork 2 2 branches continue from here")


def test_hostile_prompts_and_names_are_shown_as_text(project: Path, opened: Shadow, rewind: Open) -> None:
    with opened.message("m4", text="\x1b]0;title\x07\x1b[2J\u202eevil"):
        (project / "\x1b[31mred\n").write_text("x")
    screen = rewind(columns=120)
    screen.wait("\\u202eevil")
    screen.press("down", "enter")
    screen.wait("delete \\x1b[31mred\\n")

    assert b"\x1b]0;title" not in screen.raw


def test_wide_characters_keep_the_columns_in_place(project: Path, opened: Shadow, rewind: Open) -> None:
    record(opened, 4, text="名前を変える 🙂")
    screen = rewind()
    screen.wait("+2")
    screen.wait(lambda screen: screen.text.count("+2") == 4)

    assert "名前を変える" in screen.text.replace(" ", "")


def test_an_interrupt_leaves_the_terminal_clean(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.wait("q quit")
    screen.press("ctrl_c")

    assert screen.end() == 130
    assert b"\x1b[?1049l" in screen.raw
    assert "Traceback" not in screen.text


def test_sigterm_leaves_the_terminal_clean(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.wait("q quit")
    os.kill(screen.pid, signal.SIGTERM)

    assert screen.end() == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in screen.raw


def test_a_crash_leaves_the_terminal_clean(
    project: Path, opened: Shadow, rewind: Open, tmp_path: Path
) -> None:
    fault = "from shadowtree.picker.actions import Actions\nActions.count_lines = lambda *_: 1 / 0\n"
    (tmp_path / "sitecustomize.py").write_text(fault)
    screen = rewind(variables={"PYTHONPATH": f"{tmp_path}:{PACKAGE_PLACE}"})

    assert screen.end() == 1
    assert b"\x1b[?1049l" in screen.raw
    assert "internal error: ZeroDivisionError" in screen.flat
    assert "Traceback" not in screen.text


def test_an_error_of_the_library_is_a_line(project: Path, opened: Shadow, rewind: Open) -> None:
    screen = rewind()
    screen.press("u")
    screen.wait("Enter confirm")
    opened.destroy()
    screen.press("enter")
    screen.wait("is not wrapped")
    assert "Traceback" not in screen.text


def test_a_folder_without_messages(project: Path, rewind: Open) -> None:
    with Shadow(project, settings={"min_free": 0}) as shadow:
        shadow.wrap()
    screen = rewind()
    screen.wait("No messages yet")
    screen.press("down", "enter", "d", "q", "u")
    screen.wait("Nothing to undo")
