"""`shadowtree rewind` where there is no screen: a list, and how to act."""

from __future__ import annotations

from pathlib import Path
from subprocess import run

import pytest

from shadowtree import Shadow
from tests.support.processes import COMMAND, surroundings
from tests.support.terminal import Terminal, run_on_terminal

SECONDS = " s  "


@pytest.fixture
def opened(project: Path) -> Shadow:
    with Shadow(project, settings={"min_free": 0}) as shadow:
        for number in (1, 2, 3):
            with shadow.message(f"m{number}", text=f"prompt {number}", meta={"agent": "claude"}):
                (project / "a.txt").write_text(f"{number}\n")
        shadow.undo()
    return shadow


def test_the_list_has_numbers_and_ends_with_what_to_type(opened: Shadow, terminal: Terminal) -> None:
    lines = terminal.run("rewind").splitlines()

    assert [line.partition(SECONDS)[2].split() for line in (lines[0], *lines[2:4])] == [
        ["undone", "prompt", "3", "claude", "a.txt", "+1", "-1"],
        ["prompt", "2", "claude", "a.txt", "+1", "-1"],
        ["prompt", "1", "claude", "a.txt", "+1", "-1"],
    ]
    assert lines[1].split()[:2] == [">", "now"]
    assert lines[4:] == [
        "",
        "To go back to before a message: shadowtree revert NUMBER, such as 'shadowtree revert 2'",
        "To undo the last N turns: shadowtree undo N",
    ]
    terminal.run("revert", "2")


def test_a_dumb_or_unknown_terminal_gets_the_list(opened: Shadow, project: Path) -> None:
    for term in ("dumb", "no-such-terminal"):
        shown = run_on_terminal("rewind", "--no-pager", term=term).decode()

        assert "prompt 2" in shown
        assert "shadowtree undo N" in shown
        assert "\x1b[?1049h" not in shown


def test_json_is_the_list_newest_first(opened: Shadow, terminal: Terminal) -> None:
    document = terminal.run_json("rewind")

    assert [(each["number"], each["state"]) for each in document] == [
        (3, "undone"),
        (2, "active"),
        (1, "active"),
    ]
    assert document[1]["agent"] == "claude"
    assert document[1]["edited_before"] is False
    assert document[1]["branches"] == 1


def test_json_on_a_terminal_shows_no_screen(opened: Shadow, project: Path) -> None:
    assert run_on_terminal("rewind", "--json", term="xterm").startswith(b"[{")


def test_only_the_last_messages_are_listed(opened: Shadow, project: Path, terminal: Terminal) -> None:
    with opened:
        for number in range(4, 30):
            opened.snapshot(f"m{number}", text=f"prompt {number}")

    shown = terminal.run("rewind")

    assert "prompt 29" in shown
    assert "prompt 2 " not in shown
    assert "Earlier messages are not shown (run 'shadowtree log -n 0')" in shown


def test_archived_messages_take_no_place_in_the_list_and_are_not_proposed(
    project: Path, terminal: Terminal
) -> None:
    with Shadow(project, settings={"min_free": 0}) as shadow:
        for number in range(1, 60):
            shadow.snapshot(f"m{number}", text=f"prompt {number}")
        shadow.undo(30)
        shadow.snapshot("m60", text="another way")
        for number in range(61, 100):
            shadow.snapshot(f"m{number}", text=f"prompt {number}")
        shadow.undo(39)
        shadow.switch("m59")

    lines = terminal.run("rewind").splitlines()

    assert [line.split()[0] for line in lines[1:21]] == [f"#{number}" for number in range(59, 39, -1)]
    assert "Earlier messages are not shown" in lines[21]
    assert lines[23].endswith("'shadowtree revert 59'")
    terminal.run("revert", "59", "--dry-run")
    terminal.run("revert", "60", exit_code=2)
    assert (
        "message 'm60' is archived, so there is nothing to undo; run 'shadowtree switch 60'" in terminal.err
    )


def test_a_list_without_unicode_has_dots_where_texts_are_cut(opened: Shadow, project: Path) -> None:
    with opened:
        opened.snapshot("m4", text="a long text " * 20)
    plain = surroundings(LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", PYTHONIOENCODING="")
    shown = run([*COMMAND, "rewind"], cwd=project, env=plain, capture_output=True, check=True).stdout

    assert b"a long text" in shown
    assert b"...  " in shown
    assert b"\\u2026" not in shown


def test_a_session_without_messages_is_named(opened: Shadow, project: Path, terminal: Terminal) -> None:
    told = "Session nosuch has no messages (run 'shadowtree sessions')\n"

    assert terminal.run("rewind", "--session", "nosuch") == told
    assert terminal.run_json("rewind", "--session", "nosuch") == []
    assert told.strip().encode() in run_on_terminal("rewind", "--session", "nosuch", term="xterm")


def test_sessions_are_chosen_as_elsewhere(opened: Shadow, project: Path, terminal: Terminal) -> None:
    with opened:
        opened.for_session("other").snapshot("x", text="elsewhere")

    assert "elsewhere" in terminal.run("rewind")
    assert "prompt 2" in terminal.run("rewind", "--session", "default")


def test_a_folder_that_is_not_wrapped_is_refused(terminal: Terminal) -> None:
    terminal.run("rewind", exit_code=10)

    assert "shadowtree wrap" in terminal.err


def test_without_messages_the_list_says_so(project: Path, terminal: Terminal) -> None:
    terminal.run("wrap")

    assert terminal.run("rewind").splitlines() == ["> now", "  No messages yet"]
