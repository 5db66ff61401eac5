"""Branches, merging and attribution on the command line: the output, and stories of users."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import BlameEntry, Branch, Conflict, ConflictingPath, Hunk, Message, Outcome, Status
from shadowtree.cli import output
from shadowtree.cli.errors import report
from shadowtree.cli.format import measure
from shadowtree.cli.views.log import (
    render_blame,
    render_branches,
    render_dropped,
    render_log,
    render_message,
)
from shadowtree.cli.views.outcome import describe_shortfall, list_conflicts, render_outcome
from shadowtree.cli.views.status import render_status
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.values import NOW_MS, make_change, make_message, make_outcome

HOSTILE = "a\x1b[31mb\u202ec"
SHOWN = "a\\x1b[31mb\\u202ec"


# The graph: values in, lines out


def _line(*parents: int | None, **fields: object) -> list[Message]:
    """Make messages from the numbers of their parents."""
    return [
        make_message(number, parent=None if parent is None else f"msg_{parent}", **fields)
        for number, parent in enumerate(parents, 1)
    ]


def _graph(messages: list[Message], *, has_sessions: bool = False) -> list[str]:
    counts = [None] * len(messages)
    return list(render_log(messages, counts, now_ms=NOW_MS, has_graph=True, has_sessions=has_sessions))


def test_the_graph_has_the_columns_of_the_log_and_the_names_of_branches() -> None:
    messages = [
        make_message(1),
        make_message(2, parent="msg_1", state="archived", branch="fix-login"),
        make_message(3, parent="msg_2", state="archived", branch="fix-login", files=12),
        make_message(4, parent="msg_1"),
        make_message(5, parent="msg_4", state="undone"),
    ]

    rows = list(render_log(messages, [(1, 0), (2, 0), None, (30, 4), (5, 0)], now_ms=NOW_MS, has_graph=True))

    assert rows == [
        "*    #1  1 min  ⑂ 2        msg_1  do number 1  f0            +1  -0",
        "|\\",
        "| .  #2  2 min  fix-login  msg_2  do number 2  f0            +2  -0",
        "| .  #3  3 min  fix-login  msg_3  do number 3  f0 +11 more",
        "@    #4  4 min             msg_4  do number 4  f0           +30  -4",
        "o    #5  5 min  undone     msg_5  do number 5  f0            +5  -0",
    ]


def test_a_message_that_was_taken_out_alone_has_its_own_mark() -> None:
    messages = [make_message(1), make_message(2, parent="msg_1", state="undone", is_out=True)]
    messages += [make_message(3, parent="msg_2"), make_message(4, parent="msg_3", state="undone")]

    assert [row[:7] for row in _graph(messages)] == ["*  #1  ", "x  #2  ", "@  #3  ", "o  #4  "]
    assert [row.split("  ")[3] for row in _graph(messages)[1::2]] == ["reverted on its own", "undone"]
    assert "reverted on its own" in list(render_log(messages, [None] * 4, now_ms=NOW_MS))[1]


def test_an_open_message_is_the_last_in_force() -> None:
    messages = _line(None, 1)
    messages[1] = make_message(2, parent="msg_1", state="open", text="")

    assert _graph(messages) == ["*  #1  1 min        msg_1  do number 1  f0", "@  #2  2 min  open  msg_2"]


def test_a_message_after_one_that_is_not_listed_says_so() -> None:
    messages = [make_message(7, parent="msg_6"), make_message(8, parent="msg_7")]

    assert [row[:5] for row in _graph(messages)] == ["~", "*  #7", "@  #8"]


def test_each_session_has_lanes_and_a_head_of_its_own() -> None:
    messages = [
        make_message(1, session="one"),
        make_message(1, session="two", text="elsewhere"),
        make_message(2, session="one", parent="msg_1"),
        make_message(2, session="two", parent="msg_1", text="elsewhere too"),
    ]

    assert _graph(messages, has_sessions=True) == [
        "*    #1  1 min  one  msg_1  do number 1    f0",
        "| *  #1  1 min  two  msg_1  elsewhere      f0",
        "@ |  #2  2 min  one  msg_2  do number 2    f0",
        " /",
        "@    #2  2 min  two  msg_2  elsewhere too  f0",
    ]


def test_a_dropped_branch_is_told_as_archived() -> None:
    messages = [make_message(1), make_message(2, parent="msg_1", state="archived")]

    assert _graph(messages)[1].split()[:5] == [".", "#2", "2", "min", "archived"]


def test_the_rows_of_a_graph_fit_into_the_terminal() -> None:
    messages = [make_message(1, text="漢" * 200)]
    messages += [
        make_message(n, parent="msg_1", text="x" * 200, state="archived", branch="b" * 200)
        for n in range(2, 8)
    ]

    rows = list(render_log(messages, [(1, 1)] * 7, now_ms=NOW_MS, width=100, has_graph=True))

    assert max(measure(row) for row in rows) == 100


def test_names_of_branches_cannot_steer_the_terminal() -> None:
    messages = [make_message(1, state="archived", branch=HOSTILE)]

    assert SHOWN in _graph(messages)[0]
    lines = list(render_message(messages[0], [], now_ms=NOW_MS, escape_content=True))
    assert lines[1].endswith(f"session default, archived on branch {SHOWN}")


def test_an_empty_graph_has_no_rows() -> None:
    assert _graph([]) == []


# Branches: values in, lines out


def _branch(name: str = "fix-login", **fields: object) -> Branch:
    values: dict[str, object] = {
        "name": name,
        "fork": "msg_1",
        "messages": ["msg_2", "msg_3"],
        "time_ms": NOW_MS - 300_000,
        "label": "fix login",
        "state": "archived",
        "files": 3,
    }
    return Branch(**(values | fields))  # type: ignore[arg-type]  # fields of several types


def test_branches_are_listed_with_all_that_is_known_of_them() -> None:
    branches = [
        _branch(),
        _branch(
            "b2", fork=None, messages=["m"], files=1, time_ms=NOW_MS, label="other\nlines", state="active"
        ),
    ]

    assert list(render_branches(branches, now_ms=NOW_MS)) == [
        "  fix-login  after msg_1     2 messages  3 files  5 min  fix login",
        "@ b2         from the start   1 message   1 file    0 s  other",
    ]


def test_no_branches_is_a_friendly_line() -> None:
    (line,) = render_branches([], now_ms=NOW_MS)

    assert line.startswith("No branches yet; ")


def test_hostile_and_long_texts_of_branches_are_tamed() -> None:
    branches = [
        _branch(HOSTILE, fork=HOSTILE, label=HOSTILE),
        _branch("n" * 200, fork="f" * 200, label="x" * 999),
    ]

    first, second = render_branches(branches, now_ms=NOW_MS, width=130)

    assert first.count(SHOWN) == 3
    assert measure(second) == 130
    assert second.count("…") == 3


def test_the_last_message_of_a_dropped_branch_is_named() -> None:
    assert list(render_dropped(_branch(HOSTILE))) == [
        f"Dropped branch {SHOWN} (2 messages)",
        "You can still switch to its last message, msg_3",
    ]


# Blame: values in, lines out


def _entry(message: Message | None, minutes: int | None = 1, **fields: object) -> BlameEntry:
    values: dict[str, object] = {
        "status": "modified",
        "message": message,
        "time_ms": None if minutes is None else NOW_MS - minutes * 60_000,
        "old_blob": "a" * 40,
        "new_blob": "b" * 40,
    }
    return BlameEntry(**(values | fields))  # type: ignore[arg-type]  # fields of several types


def _blame(*entries: BlameEntry) -> list[str]:
    return list(render_blame("f", entries, session="default", now_ms=NOW_MS))


def test_blame_has_a_row_for_each_change() -> None:
    assert _blame(
        _entry(None, None),
        _entry(make_message(2), 2),
        _entry(None, 70),
        _entry(make_message(1, text="\nadd it\nall"), 90, status="added"),
    ) == [
        "M    now  outside any message",
        "M  2 min  msg_2                do number 2",
        "M    1 h  outside any message",
        "A    1 h  msg_1                add it",
    ]


def test_blame_names_other_sessions_and_states() -> None:
    assert _blame(
        _entry(make_message(3, session="other", state="undone")),
        _entry(make_message(2, state="archived", branch="fix-login")),
        _entry(make_message(1), status="deleted"),
    ) == [
        "M  1 min  msg_3  other    undone     do number 3",
        "M  1 min  msg_2  default  fix-login  do number 2",
        "D  1 min  msg_1  default             do number 1",
    ]


def test_blame_escapes_whatever_it_shows() -> None:
    fields = {"id": HOSTILE, "session": HOSTILE, "text": HOSTILE, "branch": HOSTILE, "state": "archived"}
    (row,) = _blame(_entry(make_message(1, **fields)))

    assert row.count(SHOWN) == 4
    assert "\x1b" not in row


def test_a_file_that_nobody_changed_has_a_line() -> None:
    assert list(render_blame(HOSTILE, [], session="default", now_ms=NOW_MS)) == [
        f"{SHOWN} has not changed since it was first recorded"
    ]


def test_blame_is_coloured_by_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "can_steer", lambda stream: True)
    monkeypatch.delenv("NO_COLOR", raising=False)

    rows = _blame(_entry(make_message(2, state="undone")), _entry(make_message(1), status="added"))

    assert rows[0].startswith("\x1b[2mM  1 min")
    assert rows[1].startswith("\x1b[32mA\x1b[0m  1 min")


# Status: values in, lines out


def _status(changed: int, outside: int) -> list[str]:
    paths = [make_change(f"f{number:02}") for number in range(outside)]
    return list(render_status(Status("/w", "/s", "default", None, None, [], changed, 0, False, [], paths)))


@pytest.mark.parametrize(
    ("changed", "outside", "lines"),
    [
        (0, 0, ["0 paths changed since the last snapshot"]),
        (2, 0, ["2 paths changed since the last snapshot"]),
        (1, 1, ["1 path changed since the last snapshot, outside any message:", "  M f00"]),
        (5, 1, ["5 paths changed since the last snapshot", "1 path changed outside any message:", "  M f00"]),
    ],
)
def test_status_tells_what_changed_outside_messages(changed: int, outside: int, lines: list[str]) -> None:
    assert _status(changed, outside)[3:-1] == lines


def test_status_lists_ten_paths_and_counts_the_others() -> None:
    assert _status(12, 12)[-4:-1] == ["  M f08", "  M f09", "  and 2 more (use --json to list all)"]


# Outcomes: values in, lines out


def _told(outcome: Outcome, **options: bool) -> str:
    return next(iter(render_outcome(outcome, target="NAME", **options)))


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (
            make_outcome("switch", redone=["m2"], messages=["m2", "m3"], head="m3", restored=["a"]),
            "Switched to NAME (1 message undone, 1 reapplied): 1 file restored",
        ),
        (
            make_outcome("switch", messages=["m2"], head="m1", deleted=["a"]),
            "Switched to NAME (1 message undone): 1 file deleted",
        ),
        (
            make_outcome("switch", messages=["m2"], head="m1", dry_run=True),
            "Would switch to NAME (1 message undone): no files to change",
        ),
        (
            make_outcome("revert", mode="only", restored=["a"], merged=["a"]),
            "Reverted only msg_2; later messages are unchanged: 1 file merged",
        ),
        (
            make_outcome("revert", mode="only", restored=["a", "b"], merged=["b"], dry_run=True),
            "Would revert only msg_2; later messages are unchanged: 1 file to restore, 1 to merge",
        ),
        (make_outcome("revert", restored=["a"]), "Reverted msg_2: 1 file restored"),
        (
            make_outcome("revert", messages=["m2", "m3"]),
            "Reverted m2 and the message after it: no files changed",
        ),
        (
            make_outcome(restored=["a", "b", "c"], merged=["b", "c"], marked=["c"], deleted=["d"]),
            "Undid 1 turn (msg_2): 1 file restored, 2 merged, 1 deleted",
        ),
    ],
)
def test_each_act_has_its_sentence(outcome: Outcome, told: str) -> None:
    assert _told(outcome) == told


def test_a_part_of_one_message_is_told_as_such() -> None:
    outcome = make_outcome("revert", messages=[], mode="only", restored=["a"], merged=["a"])

    assert _told(outcome, is_part=True) == (
        "Reverted a from NAME; later messages are unchanged: 1 file merged"
    )


def test_a_revert_without_files_says_that_it_is_one() -> None:
    outcome = make_outcome("revert", notes=["no files were changed"])

    assert list(render_outcome(outcome, target="NAME", has_files=False)) == [
        "Reverted msg_2, in the timeline only: no files changed",
        "No files were changed",
    ]


def test_each_path_is_told_once_as_what_became_of_it() -> None:
    outcome = make_outcome(restored=["c", "b", "a"], merged=["b"], deleted=["d"], kept=["e"])

    assert list(render_outcome(outcome))[1:] == [
        "  restored  a",
        "  merged    b",
        "  restored  c",
        "  deleted   d",
        "  kept      e",
    ]


def test_every_file_with_markers_is_listed_with_what_to_do() -> None:
    paths = [f"f{number:02}" for number in range(11)] + [HOSTILE]
    outcome = make_outcome(restored=paths, merged=paths, marked=paths, complete=False)

    lines = list(render_outcome(outcome))

    start = lines.index("Edit the conflict markers in 12 files:")
    assert lines[start + 1 :] == [
        *(f"  f{number:02}" for number in range(11)),
        f"  {SHOWN}",
        "    Search for '<<<<<<<', keep the lines you want, and delete the markers.",
    ]
    assert describe_shortfall(outcome, 1) == ("conflict markers in 12 files")


def test_a_plan_tells_which_files_would_get_markers() -> None:
    outcome = make_outcome(restored=["a"], merged=["a"], marked=["a"], complete=False, dry_run=True)

    assert list(render_outcome(outcome))[1:] == [
        "  merge     a",
        "Would write conflict markers into 1 file:",
        "  a",
    ]


# Collisions: values in, lines out


def _collision(*hunks: Hunk, path: str = "f") -> ConflictingPath:
    return ConflictingPath(path, "the texts collide", "look at it", list(hunks), ["keep", "overwrite"])


def test_a_collision_shows_the_three_sides() -> None:
    conflict = _collision(Hunk(12, "mine\nmine too\n", "", "theirs\n"), Hunk(40, "x", "y\n", "z\n"))

    assert list(list_conflicts([conflict])) == [
        "  f: the texts collide",
        "    line 12:",
        "      current         | mine",
        "                      | mine too",
        "      recorded        nothing",
        "      after undo      | theirs",
        "    line 40:",
        "      current         | x",
        "                      (no newline at the end)",
        "      recorded        | y",
        "      after undo      | z",
        "    look at it",
    ]


def test_a_collision_cannot_steer_the_terminal_and_shows_line_endings() -> None:
    lines = list(
        list_conflicts([_collision(Hunk(1, f"{HOSTILE}\ta\r\n", "\x85\u2028\n", "b\n"), path=HOSTILE)])
    )

    assert lines[0] == f"  {SHOWN}: the texts collide"
    assert lines[2:4] == [f"      current         | {SHOWN}\ta\\r", "      recorded        | \\x85\\u2028"]


def test_a_long_collision_is_cut_and_counted() -> None:
    long = "".join(f"line {number}\n" for number in range(105))
    conflict = _collision(*[Hunk(number, long, "x" * 5000 + "\n", "y\n") for number in range(1, 13)])

    lines = list(list_conflicts([conflict]))

    assert len(lines) == 1 + 10 * (1 + 6 + 1 + 1) + 2
    assert lines[6:9] == [
        "                      | line 4",
        "                      and 100 more lines (use --json to show all)",
        f"      recorded        | {'x' * 99}…",
    ]
    assert lines[-2] == "    and 2 more places (use --json to list all)"


def test_the_advice_depends_on_whether_a_merge_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    choices = ["merge", "keep", "overwrite"]
    plain = ConflictingPath("f", "it was edited since", "use merge to combine", choices=choices)
    told = []
    for conflict in (plain, _collision(Hunk(1, "a", "b", "c"))):
        assert report(Conflict([conflict], make_outcome(conflicts=[conflict])), as_json=False) == 13
        told.append(capsys.readouterr().err.splitlines()[-1].rpartition("; ")[2])

    assert told[0] == "use --on-conflict merge, keep or overwrite"
    assert told[1] == "use --markers, --on-conflict keep or overwrite"


# The commands

Work = Callable[..., None]


@pytest.fixture
def work(terminal: Terminal, project: Path) -> Work:
    """Record a message that writes files, or deletes those whose content is None; all in one session."""

    def work(message: str, files: dict[str, str | None], *, text: str = "", session: str = "default") -> None:
        terminal.run("begin", message, "-m", text, "--session", session)
        for name, content in files.items():
            if content is None:
                (project / name).unlink()
            else:
                (project / name).write_text(content)
        terminal.run("end", message, "--session", session)

    return work


def _files(project: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(project.iterdir())}


LINES = "".join(f"{number}\n" for number in range(1, 21))


def _lines(**changed: str) -> str:
    """Return the numbers from 1 to 20, one per line, with some replaced: `_lines(_3="three")`."""
    words = {key.removeprefix("_"): word for key, word in changed.items()}
    return "".join(f"{words.get(str(number), number)}\n" for number in range(1, 21))


@pytest.fixture
def forked(work: Work, terminal: Terminal) -> None:
    """m1, then m2 and m3, which were undone, and then m4."""
    work("m1", {"a.txt": "after m1\n"}, text="add a page")
    work("m2", {"a.txt": "after m2\n", "login": "m2\n"}, text="Fix login!")
    work("m3", {"b.txt": None}, text="clean up")
    terminal.run("undo", "2")
    work("m4", {"a.txt": "after m4\n"}, text="another way")


AFTER_M3 = {"a.txt": "after m2\n", "login": "m2\n"}
AFTER_M4 = {"a.txt": "after m4\n", "b.txt": "two\n"}


@pytest.mark.usefixtures("forked")
def test_going_on_after_an_undo_makes_a_branch(terminal: Terminal) -> None:
    (branch,) = terminal.run_json("branches")

    assert list(branch) == ["name", "fork", "messages", "time", "label", "state", "files"]
    assert branch["time"].endswith("+00:00")
    del branch["time"]
    assert branch == {
        "name": "fix-login",
        "fork": "m1",
        "messages": ["m2", "m3"],
        "label": "Fix login!",
        "state": "archived",
        "files": 3,
    }
    (row,) = terminal.run("branches").splitlines()
    assert row.startswith("  fix-login  after m1  2 messages  3 files  ")
    assert row.endswith("  Fix login!")
    assert terminal.err == ""


@pytest.mark.usefixtures("forked")
def test_switching_there_and_back_again(terminal: Terminal, project: Path) -> None:
    lines = terminal.run("switch", "fix-login").splitlines()

    assert lines == [
        "Switched to fix-login (1 message undone, 2 reapplied): 1 file restored, 1 created, 1 deleted",
        "  restored  a.txt",
        "  deleted   b.txt",
        "  created   login",
        "To get back: shadowtree unrevert",
    ]
    assert _files(project) == AFTER_M3
    assert [branch["state"] for branch in terminal.run_json("branches")] == ["active", "archived"]
    assert terminal.run("branches").splitlines()[0].startswith("@ fix-login ")
    terminal.run("switch", "another-way")
    assert _files(project) == AFTER_M4
    terminal.run("unrevert")
    assert _files(project) == AFTER_M3
    terminal.run("switch", "#4")
    assert _files(project) == AFTER_M4


@pytest.mark.usefixtures("forked")
def test_switch_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    planned = terminal.run_json("switch", "fix-login", "--dry-run")
    assert _files(project) == AFTER_M4
    found = terminal.run_json("switch", "fix-login")

    assert list(found) == [
        "messages", "restored", "deleted", "kept", "conflicts", "skipped", "before", "after", "complete",
        "dry_run", "mode", "notes", "redone", "head", "undone", "merged", "marked", "created",
        "unprotected", "uncertain", "edited", "id", "back",
    ]  # fmt: skip
    assert sorted(found["messages"]) == ["m2", "m3", "m4"]
    assert (found["restored"], found["deleted"]) == (["a.txt", "login"], ["b.txt"])
    assert (found["head"], found["undone"], found["mode"]) == ("m3", [], "back")
    differing = {key for key in found if found[key] != planned[key]}
    assert differing == {"dry_run", "after", "back"}


@pytest.mark.usefixtures("forked")
def test_a_switch_tells_where_it_went(terminal: Terminal) -> None:
    """Also if the name only describes the way there."""
    told = [terminal.run("switch", name).split(" (")[0] for name in ("@~", "fix-login", "-", "m2", "#4")]

    assert told == [
        "Switched to m1",
        "Switched to fix-login",
        "Switched to m1",
        "Switched to m2",
        "Switched to m4",
    ]


@pytest.mark.usefixtures("forked")
def test_switching_into_the_middle_of_a_branch_leaves_the_rest_to_redo(
    terminal: Terminal, project: Path
) -> None:
    found = terminal.run_json("switch", "m2")

    assert (found["head"], found["undone"]) == ("m2", ["m3"])
    assert _files(project) == AFTER_M3 | {"b.txt": "two\n"}
    terminal.run("redo")
    assert _files(project) == AFTER_M3


@pytest.mark.usefixtures("forked")
def test_switching_to_where_one_is_does_nothing(terminal: Terminal) -> None:
    assert terminal.run("switch", "m4").endswith("Already at 'm4'\n")
    found = terminal.run_json("switch", "m4")
    assert (found["messages"], found["complete"]) == ([], True)
    assert terminal.err == ""


@pytest.mark.usefixtures("forked")
def test_switching_stops_at_what_the_user_changed(terminal: Terminal, project: Path) -> None:
    (project / "a.txt").write_text("my own\n")

    found = terminal.run_json("switch", "fix-login", exit_code=13)

    assert [conflict["path"] for conflict in found["conflicts"]] == ["a.txt"]
    assert _files(project) == AFTER_M4 | {"a.txt": "my own\n"}
    terminal.run("switch", "fix-login", "--on-conflict", "keep")
    assert _files(project) == AFTER_M3 | {"a.txt": "my own\n"}


@pytest.mark.usefixtures("forked")
def test_the_graph_shows_the_branch_and_where_one_is(terminal: Terminal) -> None:
    def draw() -> list[str]:
        return [row[:6].rstrip() for row in terminal.run("log", "--graph").splitlines()]

    assert draw() == ["*    #", "|\\", "| .  #", "| .  #", "@    #"]
    terminal.run("switch", "fix-login")
    assert draw() == ["*    #", "|\\", "* |  #", "@ |  #", " /", ".    #"]
    assert terminal.run("log", "--graph").splitlines()[-1].split()[4] == "another-way"


@pytest.mark.usefixtures("forked")
def test_the_graph_of_the_last_messages_and_of_all_sessions(terminal: Terminal, work: Work) -> None:
    work("o1", {"other": "x"}, session="other")

    first, *rows = terminal.run("log", "--session", "default", "--graph", "-n", "2").splitlines()
    assert first.startswith("Earlier messages are not shown")
    assert [row[:4].rstrip() for row in rows] == ["~", ".  #", "", "~", "@  #"]
    rows = terminal.run("log", "--graph", "--all").splitlines()
    assert [row[:4].rstrip() for row in rows] == ["*", "|\\", "| .", "| .", "@", "", "@"]
    assert [row.split()[4] for row in rows[4:] if row] == ["default", "other"]


@pytest.mark.usefixtures("forked")
def test_the_graph_changes_nothing_in_the_json(terminal: Terminal) -> None:
    assert terminal.run("log", "--json", "--graph") == terminal.run("log", "--json")
    assert [entry["parent"] for entry in terminal.run_json("log")] == [None, "m1", "m2", "m1"]


def test_an_empty_graph_says_so(terminal: Terminal) -> None:
    terminal.run("wrap")

    assert terminal.run("log", "--graph") == "No messages yet\n"


def test_no_branches_is_no_error(terminal: Terminal) -> None:
    terminal.run("wrap")

    assert terminal.run("branches").startswith("No branches yet; ")
    assert terminal.run_json("branches") == []


@pytest.mark.usefixtures("forked")
def test_a_branch_can_be_renamed(terminal: Terminal, project: Path) -> None:
    assert terminal.run("branches", "rename", "fix-login", "my own") == (
        "Renamed branch fix-login to my own\n"
    )
    assert terminal.run_json("branches", "rename", "my own", "tokens")["name"] == "tokens"
    assert [branch["name"] for branch in terminal.run_json("branches")] == ["tokens"]
    assert terminal.run_json("log")[1]["branch"] == "tokens"
    terminal.run("switch", "tokens")
    assert _files(project) == AFTER_M3


@pytest.mark.usefixtures("forked")
def test_a_branch_can_be_dropped_and_its_messages_still_be_reached(terminal: Terminal, project: Path) -> None:
    assert terminal.run("branches", "drop", "fix-login").splitlines() == [
        "Dropped branch fix-login (2 messages)",
        "You can still switch to its last message, m3",
    ]
    assert terminal.run_json("branches") == []
    terminal.run("switch", "fix-login", exit_code=12)
    terminal.run("switch", "m3")
    assert _files(project) == AFTER_M3
    assert terminal.run_json("branches", "drop", "another-way")["messages"] == ["m4"]


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "--session", "s", "branches", "rename", "old", "new"],
        ["branches", "--json", "--session", "s", "rename", "old", "new"],
        ["branches", "rename", "old", "new", "--json", "--session", "s"],
        ["--session", "x", "branches", "--session", "y", "rename", "--session", "s", "old", "--json", "new"],
    ],
    ids=["first", "before the action", "last", "everywhere"],
)
def test_shared_options_stand_anywhere(terminal: Terminal, work: Work, words: list[str]) -> None:
    work("m1", {"a.txt": "1"}, session="s")
    work("m2", {"a.txt": "2"}, session="s", text="old")
    terminal.run("undo", "--session", "s")
    work("m3", {"a.txt": "3"}, session="s")

    assert json.loads(terminal.run(*words))["name"] == "new"


def test_settings_are_gathered_around_an_action(terminal: Terminal) -> None:
    line = ["--set", "max_files=1x", "branches", "--set", "max_bytes=1", "drop", "--set", "min_free=1", "n"]
    terminal.run("wrap")

    assert "max_files" in terminal.run_json(*line, exit_code=2)["message"]
    line[1] = "max_files=1"
    assert terminal.run_json(*line, exit_code=12)["error"] == "UnknownBranch"


def test_a_session_keeps_so_many_branches(terminal: Terminal, project: Path, work: Work) -> None:
    terminal.run("snapshot", "start")
    for number in range(1, 5):
        terminal.run("begin", f"m{number}", "-m", f"way {number}", "--set", "max_branches=2")
        (project / "a.txt").write_text(f"{number}\n")
        terminal.run("end")
        terminal.run("undo")

    terminal.run("begin", "m5", "--set", "max_branches=2", "--set", "warn_branches=1")
    assert "warning: branch 'way-2' is no longer listed" in terminal.err
    assert [branch["name"] for branch in terminal.run_json("branches")] == ["way-3", "way-4"]
    terminal.run("undo")
    found = terminal.run_json("begin", "m6", "--set", "max_branches=2")
    assert ["way-3" in warning for warning in found["warnings"]] == [True]
    terminal.run("end")
    terminal.run("switch", "m1")
    assert (project / "a.txt").read_text() == "1\n"


# Merging


def _edit(project: Path, **changed: str) -> None:
    """Change lines of `a.txt` as a user."""
    lines = (project / "a.txt").read_text().splitlines()
    for key, word in changed.items():
        lines[int(key.removeprefix("_")) - 1] = word
    (project / "a.txt").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def edited(project: Path, work: Work) -> None:
    """Two messages changed a file of 20 lines, and then the user changed it."""
    (project / "a.txt").write_text(LINES)
    work("m1", {"a.txt": _lines(_5="five")})
    work("m2", {"a.txt": _lines(_5="five", _10="ten"), "c.txt": "new\n"})
    _edit(project, _20="mine")


@pytest.mark.usefixtures("edited")
def test_a_merge_takes_the_message_out_from_under_an_edit(terminal: Terminal, project: Path) -> None:
    terminal.run("undo", exit_code=13)
    assert terminal.err.splitlines()[-1].endswith("; use --on-conflict merge, keep or overwrite")
    lines = terminal.run("undo", "--on-conflict", "merge").splitlines()

    assert lines == [
        "Undid 1 turn (m2): 1 file merged, 1 deleted",
        "  merged    a.txt",
        "  deleted   c.txt",
        "To get back: shadowtree unrevert",
    ]
    assert _files(project) == {"a.txt": _lines(_5="five", _20="mine"), "b.txt": "two\n"}
    terminal.run("unrevert")
    assert _files(project)["a.txt"] == _lines(_5="five", _10="ten", _20="mine")


@pytest.mark.usefixtures("edited")
def test_a_merge_is_told_in_the_json(terminal: Terminal) -> None:
    found = terminal.run_json("undo", "--on-conflict", "merge")

    assert (found["restored"], found["merged"], found["marked"]) == (["a.txt"], ["a.txt"], [])
    assert found["complete"]


@pytest.mark.usefixtures("edited")
def test_texts_that_collide_are_shown_and_nothing_is_touched(terminal: Terminal, project: Path) -> None:
    _edit(project, _10="mine \x1b[2J")
    before = _files(project)

    assert terminal.run("undo", "--on-conflict", "merge", exit_code=13) == ""
    lines = terminal.err.splitlines()
    assert lines[0].startswith("  a.txt: ")
    assert lines[1:5] == [
        "    line 10:",
        "      current         | mine \\x1b[2J",
        "      recorded        | ten",
        "      after undo      | 10",
    ]
    assert lines[-1].startswith("shadowtree: 1 path in conflict; nothing was changed; use --markers")
    found = terminal.run_json("undo", "--on-conflict", "merge", exit_code=13)
    assert found["conflicts"][0]["hunks"] == [
        {"line": 10, "ours": "mine \x1b[2J\n", "base": "ten\n", "theirs": "10\n"}
    ]
    assert _files(project) == before


@pytest.mark.usefixtures("edited")
@pytest.mark.parametrize("words", [["--on-conflict", "merge"], ["--markers"]], ids=" ".join)
def test_a_merge_that_failed_is_not_proposed_again(
    terminal: Terminal, project: Path, words: list[str]
) -> None:
    (project / "a.txt").write_bytes(b"\0mine")

    terminal.run("undo", *words, exit_code=13)

    assert terminal.err.splitlines()[-1].endswith("; use --on-conflict keep or overwrite")


@pytest.mark.usefixtures("edited")
def test_a_dry_run_shows_the_collision_too(terminal: Terminal, project: Path) -> None:
    _edit(project, _10="mine")

    out = terminal.run("undo", "--on-conflict", "merge", "--dry-run")

    assert "1 path in conflict:" in out
    assert "      after undo      | 10\n" in out
    found = terminal.run_json("undo", "--markers", "--dry-run")
    assert (found["marked"], found["conflicts"]) == (["a.txt"], [])
    assert "Would write conflict markers into 1 file:" in terminal.run("undo", "--markers", "--dry-run")
    assert "<<<<<<<" not in _files(project)["a.txt"]


@pytest.mark.usefixtures("edited")
def test_markers_put_both_versions_into_the_file(terminal: Terminal, project: Path) -> None:
    _edit(project, _10="mine")

    out = terminal.run("undo", "--markers", exit_code=1)

    assert out.splitlines() == [
        "Undid 1 turn (m2): 1 file merged, 1 deleted",
        "  merged    a.txt",
        "  deleted   c.txt",
        "Edit the conflict markers in 1 file:",
        "  a.txt",
        "    Search for '<<<<<<<', keep the lines you want, and delete the markers.",
        "To get back: shadowtree unrevert",
    ]
    assert terminal.err == "shadowtree: conflict markers in 1 file\n"
    lines = _files(project)["a.txt"].splitlines()
    assert [line[:7] for line in lines[9:14]] == ["<<<<<<<", "mine", "=======", "10", ">>>>>>>"]
    terminal.run("unrevert")
    assert _files(project)["a.txt"] == _lines(_5="five", _10="mine", _20="mine")
    found = terminal.run_json("undo", "--markers", exit_code=1)
    assert (found["marked"], found["complete"]) == (["a.txt"], False)


@pytest.mark.usefixtures("edited")
def test_without_a_collision_markers_merge(terminal: Terminal, project: Path) -> None:
    found = terminal.run_json("undo", "--markers")

    assert (found["merged"], found["marked"], found["complete"]) == (["a.txt"], [], True)
    assert _files(project)["a.txt"] == _lines(_5="five", _20="mine")


@pytest.mark.usefixtures("forked")
def test_switch_merges_under_an_edit(terminal: Terminal, project: Path, work: Work) -> None:
    work("m5", {"long": LINES})
    work("m6", {"long": _lines(_1="one")}, text="one")
    terminal.run("undo")
    work("m7", {"long": _lines(_3="three")})
    (project / "long").write_text(_lines(_3="three", _20="mine"))

    lines = terminal.run("switch", "one", "--on-conflict", "merge").splitlines()

    assert "  merged    long" in lines
    assert (project / "long").read_text() == _lines(_1="one", _20="mine")


# One message alone, and the timeline alone


@pytest.fixture
def three(project: Path, work: Work) -> None:
    """Three messages that changed different lines of one file."""
    (project / "a.txt").write_text(LINES)
    work("m1", {"a.txt": _lines(_2="two")})
    work("m2", {"a.txt": _lines(_2="two", _10="ten"), "c.txt": "new\n"})
    work("m3", {"a.txt": _lines(_2="two", _10="ten", _18="eighteen")})


@pytest.mark.usefixtures("three")
def test_one_message_is_taken_out_from_under_the_later_ones(terminal: Terminal, project: Path) -> None:
    lines = terminal.run("revert", "m2", "--only").splitlines()

    assert lines == [
        "Reverted only m2; later messages are unchanged: 1 file merged, 1 deleted",
        "  merged    a.txt",
        "  deleted   c.txt",
        "To get back: shadowtree unrevert",
    ]
    assert _files(project) == {"a.txt": _lines(_2="two", _18="eighteen"), "b.txt": "two\n"}
    assert [entry["state"] for entry in terminal.run_json("log")] == ["active", "undone", "active"]
    assert [row.split()[0] for row in terminal.run("log", "--graph").splitlines()] == ["*", "x", "@"]
    assert "reverted on its own" in terminal.run("log").splitlines()[1]
    assert terminal.run("redo").startswith("Nothing to redo")
    terminal.run("unrevert")
    assert _files(project)["a.txt"] == _lines(_2="two", _10="ten", _18="eighteen")


@pytest.mark.usefixtures("three")
def test_only_and_the_plain_revert_are_told_apart_in_the_json(terminal: Terminal) -> None:
    only = terminal.run_json("revert", "m2", "--only", "--dry-run")
    back = terminal.run_json("revert", "m2", "--dry-run")

    assert (only["mode"], only["messages"], only["head"], only["undone"]) == ("only", ["m2"], "m3", [])
    assert (back["mode"], back["messages"], back["head"]) == ("back", ["m2", "m3"], "m1")
    assert back["undone"] == ["m2", "m3"]


@pytest.mark.usefixtures("three")
def test_only_some_paths_of_one_message_are_taken_out(terminal: Terminal, project: Path) -> None:
    out = terminal.run("revert", "m2", "--only", "--path", "c.txt")

    assert out.startswith("Reverted c.txt from m2; later messages are unchanged: 1 file deleted\n")
    assert _files(project) == {"a.txt": _lines(_2="two", _10="ten", _18="eighteen"), "b.txt": "two\n"}
    assert terminal.run_json("log")[1]["state"] == "active"


def test_only_stops_where_a_later_message_changed_the_same_lines(
    terminal: Terminal, project: Path, work: Work
) -> None:
    (project / "a.txt").write_text(LINES)
    work("m1", {"a.txt": _lines(_10="ten")})
    work("m2", {"a.txt": _lines(_10="TEN")})

    terminal.run("revert", "m1", "--only", exit_code=13)

    assert "    line 10:" in terminal.err.splitlines()
    assert "      current         | TEN" in terminal.err.splitlines()
    assert (project / "a.txt").read_text() == _lines(_10="TEN")
    terminal.run("revert", "m1", "--only", "--markers", exit_code=1)
    assert "<<<<<<<" in (project / "a.txt").read_text()


@pytest.mark.usefixtures("three")
def test_without_files_only_the_head_moves(terminal: Terminal, project: Path) -> None:
    before = _files(project)

    lines = terminal.run("revert", "m2", "--no-files").splitlines()

    assert lines[0] == "Reverted m2 and the message after it, in the timeline only: no files changed"
    assert "2 files now differ" in lines[1]
    assert lines[-1] == "To get back: shadowtree unrevert"
    assert _files(project) == before
    assert terminal.run_json("status")["undone"] == ["m2", "m3"]
    terminal.run("unrevert")
    assert terminal.run_json("status")["head"] == "m3"
    found = terminal.run_json("revert", "m2", "--no-files")
    assert (found["messages"], found["undone"], found["restored"]) == (["m2", "m3"], ["m2", "m3"], [])
    assert _files(project) == before


# Attribution


@pytest.mark.usefixtures("three")
def test_blame_lists_who_changed_a_file(
    terminal: Terminal, project: Path, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work("o1", {"a.txt": _lines(_1="other")}, session="other", text="from elsewhere")
    _edit(project, _20="mine")
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")

    found = terminal.run_json("blame", "../a.txt")

    assert list(found[0]) == [
        "id", "session", "state", "branch", "text", "status", "time", "old_blob", "new_blob", "forgotten",
        "unprotected",
    ]  # fmt: skip
    assert [entry["id"] for entry in found] == [None, "o1", "m3", "m2", "m1"]
    assert (found[0]["time"], found[0]["session"]) == (None, None)
    rows = terminal.run("blame", "../a.txt").splitlines()
    assert [row.split("  ")[0] for row in rows] == ["M"] * 5
    assert rows[0].split() == ["M", "now", "outside", "any", "message"]
    assert rows[1].endswith("  other    from elsewhere")


@pytest.mark.usefixtures("three")
def test_blame_of_what_nobody_changed_and_of_what_nobody_knows(terminal: Terminal) -> None:
    assert terminal.run("blame", "b.txt") == "b.txt has not changed since it was first recorded\n"
    assert terminal.run_json("blame", "b.txt") == []
    assert terminal.run_json("blame", "missing", exit_code=12)["error"] == "UnknownName"
    assert terminal.run_json("blame", "../elsewhere", exit_code=2)["error"] == "InvalidInput"


def test_blame_names_files_that_are_no_utf8(terminal: Terminal, project: Path, work: Work) -> None:
    name = os.fsdecode(b"caf\xe9\x1b")
    work("m1", {name: "x"}, text=HOSTILE)

    assert [entry["status"] for entry in terminal.run_json("blame", name)] == ["added"]
    assert SHOWN in terminal.run("blame", name)
    terminal.run("blame", HOSTILE, exit_code=12)
    assert SHOWN in terminal.err


@pytest.mark.usefixtures("three")
def test_status_lists_what_changed_outside_messages(terminal: Terminal, project: Path) -> None:
    (project / HOSTILE).write_text("x")
    (project / "b.txt").unlink()

    lines = terminal.run("status").splitlines()

    start = lines.index("2 paths changed since the session last recorded, outside any message:")
    assert lines[start + 1 : start + 3] == [f"  A {SHOWN}", "  D b.txt"]
    assert terminal.run_json("status")["outside"] == [
        {"path": HOSTILE, "status": "added"},
        {"path": "b.txt", "status": "deleted"},
    ]


def test_what_the_open_message_changes_is_not_outside(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    (project / "a.txt").write_text("by the agent\n")

    assert terminal.run_json("status")["outside"] == []
    assert "outside any message" not in terminal.run("status")


def test_an_undo_in_one_session_leaves_the_other_one_alone(
    terminal: Terminal, project: Path, work: Work
) -> None:
    work("one", {"a.txt": "by one\n"}, session="one")
    work("two", {"b.txt": "by two\n"}, session="two")

    assert terminal.run("undo", "--session", "one").splitlines()[-1] == (
        "To get back: shadowtree unrevert --session one"
    )
    assert _files(project) == {"a.txt": "one\n", "b.txt": "by two\n"}


def test_an_undo_stops_at_what_both_sessions_changed(terminal: Terminal, project: Path, work: Work) -> None:
    (project / "a.txt").write_text(LINES)
    work("one", {"a.txt": _lines(_3="three")}, session="one")
    work("two", {"a.txt": _lines(_3="three", _15="fifteen")}, session="two")

    found = terminal.run_json("undo", "--session", "one", exit_code=13)

    assert [conflict["path"] for conflict in found["conflicts"]] == ["a.txt"]
    assert "two" in found["conflicts"][0]["reason"]
    terminal.run("undo", "--session", "one", "--on-conflict", "merge")
    assert (project / "a.txt").read_text() == _lines(_15="fifteen")


def test_branches_belong_to_their_session(terminal: Terminal, work: Work) -> None:
    work("m1", {"a.txt": "1"})
    terminal.run("undo")
    work("m2", {"a.txt": "2"})

    assert len(terminal.run_json("branches")) == 1
    assert terminal.run_json("branches", "--session", "other") == []
    terminal.run("switch", "m1", "--session", "other", exit_code=12)


# Wrong usage


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["switch"], 2, "missing argument 'REF'"),
        (["switch", ""], 2, "REF must not be empty"),
        (["switch", "m1", "m2"], 2, "unexpected extra argument"),
        (["switch", "nowhere"], 12, "no message or branch named 'nowhere'"),
        (["switch", "m3", "--only"], 2, "no such option '--only'"),
        (["branches", "renam", "a", "b"], 2, "branches has no action 'renam' (did you mean 'rename'?)"),
        (["branches", "fix-login"], 2, "branches has no action 'fix-login'"),
        (["branches", "rename", "fix-login"], 2, "missing argument 'NEW'"),
        (["branches", "rename", "fix-login", ""], 2, "NEW must not be empty"),
        (["branches", "rename", "fix-login", "a\x1bb"], 2, "branch"),
        (["branches", "rename", "fix-login", "m1"], 2, "'m1' is the id of a message"),
        (["branches", "rename", "nowhere", "x"], 12, "no branch named 'nowhere'"),
        (["branches", "drop"], 2, "missing argument 'NAME'"),
        (["branches", "drop", "nowhere"], 12, "no branch named 'nowhere'"),
        (["branches", "drop", "m2"], 12, "no branch named 'm2'"),
        (["blame"], 2, "missing argument 'PATH'"),
        (["blame", ""], 2, "PATH must not be empty"),
        (["undo", "--markers", "--on-conflict", "keep"], 2, "markers"),
        (["undo", "--markers", "--on-conflict", "overwrite"], 2, "markers"),
        (["undo", "--only"], 2, "no such option '--only'"),
        (["revert", "m1", "--no-files", "--only"], 2, ""),
        (["revert", "m1", "--no-files", "--path", "a.txt"], 2, ""),
        (["revert", "m1", "--no-files", "--step", "x"], 2, ""),
        (["revert", "m2", "--only"], 2, "is archived"),
        (["revert", "m1", "--only", "--step", "unknown"], 12, "has no step 'unknown'"),
        (["log", "--graph", "-n", "x"], 2, "-n"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("forked")
def test_what_is_refused_changes_nothing(
    terminal: Terminal, project: Path, words: list[str], exit_code: int, said: str
) -> None:
    before = terminal.run_json("branches")

    found = terminal.run_json(*words, exit_code=exit_code)

    assert list(found) == ["error", "message"]
    assert said in found["message"]
    assert terminal.err.startswith("shadowtree: ")
    assert terminal.err.count("\n") == 1
    assert "\x1b" not in terminal.err
    assert terminal.run_json("branches") == before
    assert _files(project) == AFTER_M4


@pytest.mark.parametrize(
    "words",
    [
        ["switch", "x"],
        ["branches"],
        ["branches", "rename", "a", "b"],
        ["branches", "drop", "a"],
        ["blame", "a.txt"],
        ["log", "--graph"],
    ],
    ids=" ".join,
)
def test_what_is_not_wrapped_exits_10(terminal: Terminal, stores: Path, words: list[str]) -> None:
    assert terminal.run_json(*words, exit_code=10)["error"] == "NotWrapped"
    assert not stores.exists()


@pytest.mark.usefixtures("forked")
def test_the_present_line_cannot_be_dropped(terminal: Terminal) -> None:
    terminal.run("switch", "fix-login")

    assert terminal.run_json("branches", "drop", "fix-login", exit_code=2)["error"] == "InvalidInput"
    assert len(terminal.run_json("branches")) == 2


@pytest.mark.usefixtures("forked")
def test_a_name_that_another_branch_has_is_refused(terminal: Terminal) -> None:
    terminal.run("switch", "fix-login")

    found = terminal.run_json("branches", "rename", "fix-login", "another-way", exit_code=2)

    assert found["message"] == "a branch named 'another-way' already exists"


# Help, and a terminal


@pytest.mark.parametrize("action", ["rename", "drop"])
def test_each_action_explains_itself(terminal: Terminal, action: str) -> None:
    out = terminal.run("branches", action, "--help")

    assert out.startswith(f"Usage: shadowtree branches {action} ")
    assert f"Examples:\n    shadowtree branches {action} " in out
    assert f"\n  {action} " in terminal.run("branches", "--help")
    assert "Usage: shadowtree branches [OPTIONS] [ACTION ARGUMENTS]" in terminal.run("branches", "-h")


@pytest.mark.parametrize("name", ["undo", "redo", "revert", "switch", "unrevert", "restore"])
def test_every_act_can_merge(terminal: Terminal, name: str) -> None:
    out = terminal.run(name, "--help")

    assert "--markers" in out
    assert "--on-conflict [PATH=]HOW" in out
    assert "merge to combine both" in " ".join(out.split())


def test_the_marks_of_the_graph_are_explained(terminal: Terminal) -> None:
    out = terminal.run("log", "--help")

    assert all(f"    {mark}  " in out or f"  {mark}  " in out for mark in "@*.ox~")


@pytest.mark.usefixtures("forked")
def test_on_a_terminal_the_graph_is_cut_to_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    shown = run_on_terminal("log", "--graph").decode().replace("\r\n", "\n").splitlines()

    assert shown[1] == "|\\"
    assert all(measure(row) <= 60 for row in shown)


@pytest.mark.usefixtures("forked")
def test_a_switch_over_an_inferred_end_that_deletes_much_asks_first(
    terminal: Terminal, project: Path
) -> None:
    terminal.run("begin", "m5")
    for number in range(21):
        (project / f"new{number}").write_text("x")

    terminal.run("switch", "fix-login", exit_code=13)
    assert "this would delete" in terminal.err
    assert len(_files(project)) == 23
    terminal.run("switch", "fix-login", "--yes")
    assert _files(project) == AFTER_M3
