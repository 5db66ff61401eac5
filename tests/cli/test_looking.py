"""Commands that show things: log, show, diff, cat, blame; colours, the pager, quiet, help."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from shadowtree.base.errors import InvalidInput
from shadowtree.cli.commands.show import parse_since
from shadowtree.cli.pager import find_command
from tests.support.processes import COMMAND
from tests.support.terminal import Terminal, run_on_terminal


@pytest.fixture
def project(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(worktree)
    return worktree


@pytest.fixture
def recorded(terminal: Terminal, project: Path) -> Terminal:
    """Two messages; the second one has a step."""
    (project / "sub").mkdir()
    (project / "a").write_text("1\n")
    (project / "sub" / "b").write_text("1\n")
    terminal.run("wrap")
    terminal.run("begin", "msg_1", "-m", "one", "--role", "user")
    (project / "a").write_text("1\n2\n")
    terminal.run("end")
    terminal.run("begin", "msg_2", "-m", "two", "--role", "assistant")
    terminal.run("step", "edit")
    (project / "sub" / "b").write_text("2\n")
    (project / "sub" / "bin").write_bytes(b"\0\1\2")
    terminal.run("step", "edit", "--end")
    terminal.run("end")
    return terminal


# log


def test_the_log_of_a_path_has_only_what_changed_it(recorded: Terminal, project: Path) -> None:
    assert [each["id"] for each in recorded.run_json("log", "a")] == ["msg_1"]
    assert [each["id"] for each in recorded.run_json("-C", str(project / "sub"), "log", "--", "b")] == [
        "msg_2"
    ]
    assert recorded.run("log", "nothing") == "No matching messages\n"


def test_the_log_since_a_time(recorded: Terminal) -> None:
    assert len(recorded.run_json("log", "--since", "1h")) == 2
    assert recorded.run_json("log", "--since", "2099-01-01") == []
    recorded.run("log", "--since", "whenever", exit_code=2)


def test_the_log_shows_files_lines_and_steps_below_each_message(recorded: Terminal) -> None:
    out = recorded.run("log", "--stat", "--steps", "-p").splitlines()

    assert "    M a  +1 -0" in out
    assert "    1 file changed, 1 line added, 0 removed" in out
    assert "+2" in out
    assert "      edit  2 files  sub/b, sub/bin" in out
    assert "turn 1" in out[0]


def test_the_log_as_json_has_what_was_asked_for_beside_each_message(recorded: Terminal) -> None:
    first, second = recorded.run_json("log", "--stat", "--steps")

    assert first["diff"] == [
        {"path": "a", "status": "modified", "additions": 1, "deletions": 0, "binary": False}
    ]
    assert [step["step"] for step in second["steps"]] == ["edit"]
    assert recorded.run_json("log", "-p")[0]["diff"][0]["patch"].endswith("+2\n")
    assert "diff" not in recorded.run_json("log")[0]


NOON = datetime(2026, 3, 10, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("90s", NOON - timedelta(seconds=90)),
        ("5min", NOON - timedelta(minutes=5)),
        ("2h", NOON - timedelta(hours=2)),
        ("3d", NOON - timedelta(days=3)),
        ("1.5w", NOON - timedelta(days=10.5)),
        ("today", NOON.replace(hour=0)),
        ("yesterday", NOON.replace(day=9, hour=0)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=NOON.tzinfo)),
        ("2026-03-01T08:00", datetime(2026, 3, 1, 8, tzinfo=NOON.tzinfo)),
        ("2026-03-01T08:00Z", datetime(2026, 3, 1, 8, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, since: datetime) -> None:
    assert parse_since(text, NOON) == since


@pytest.mark.parametrize("text", ["", "3", "h", "-2h", "soon", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_since(text, NOON)


# diff, show, cat, blame


def test_a_diff_of_some_paths_and_its_figures(recorded: Terminal) -> None:
    assert [each["path"] for each in recorded.run_json("diff", "msg_1^", "@", "--", "sub")] == [
        "sub/b",
        "sub/bin",
    ]
    assert recorded.run("diff", "--stat", "msg_1^", "@").splitlines() == [
        "M a        +1 -0",
        "M sub/b    +1 -1",
        "A sub/bin  binary",
        "3 files changed, 2 lines added, 1 removed",
    ]
    assert recorded.run("diff", "--stat") == ""


@pytest.mark.parametrize("words", [["diff", "msg_1^", "@"], ["show", "@"]], ids=" ".join)
def test_git_applies_what_is_printed_or_refuses_all_of_it(
    recorded: Terminal, tmp_path: Path, words: list[str]
) -> None:
    copy = tmp_path / "copy"
    (copy / "sub").mkdir(parents=True)
    (copy / "a").write_text("1\n")
    (copy / "sub" / "b").write_text("1\n")

    def apply(patch: str) -> int:
        given = patch.encode("utf-8", "surrogateescape")
        return subprocess.run(["git", "apply"], cwd=copy, input=given, capture_output=True).returncode

    assert apply(recorded.run(*words)) != 0
    assert (copy / "sub" / "b").read_text() == "1\n"
    assert apply(recorded.run(*words, "--binary")) == 0
    assert (copy / "sub" / "b").read_text() == "2\n"
    assert (copy / "sub" / "bin").read_bytes() == b"\0\1\2"


def test_a_patch_of_a_name_that_looks_like_another_is_quoted(
    terminal: Terminal, project: Path, tmp_path: Path
) -> None:
    """B12: quoted as git does, not as for people."""
    terminal.run("track")
    (project / "a\u202eb").write_text("1\n")
    copy = tmp_path / "copy"
    copy.mkdir()

    patch = terminal.run("diff")
    subprocess.run(["git", "apply"], cwd=copy, input=patch.encode(), check=True)

    assert "\u202e" not in patch
    assert (copy / "a\u202eb").read_text() == "1\n"


def test_show_of_some_paths_and_without_lines(recorded: Terminal) -> None:
    assert [each["path"] for each in recorded.run_json("show", "2", "sub/b")["diff"]] == ["sub/b"]
    out = recorded.run("show", "2", "--stat")
    assert "M sub/b  +1 -1" in out
    assert "@@" not in out


def test_cat_prints_a_file_as_it_was(recorded: Terminal, project: Path) -> None:
    (project / "a").write_text("now\n")

    assert recorded.run("cat", "@:a") == "1\n2\n"
    assert recorded.run("cat", "msg_1^:a") == "1\n"
    assert recorded.run("-C", str(project / "sub"), "cat", "1:./b") == "1\n"
    assert recorded.run("-C", str(project / "sub"), "cat", "1:../a") == "1\n2\n"
    assert recorded.run("cat", "@:sub/bin").encode() == b"\0\1\2"
    assert recorded.run_json("cat", "@:none", exit_code=12)["error"] == "UnknownName"
    assert recorded.run_json("cat", "none:a", exit_code=12)["error"] == "UnknownTree"
    recorded.run("cat", "a", exit_code=2)


def test_blame_by_line(recorded: Terminal, project: Path) -> None:
    with (project / "a").open("a") as file:
        file.write("mine")

    rows = recorded.run("blame", "--lines", "a").splitlines()

    assert [row.split()[-1] for row in rows] == ["1", "2", "mine"]
    assert ["before the first message" in rows[0], "msg_1" in rows[1], "not recorded yet" in rows[2]] == [
        True
    ] * 3
    assert [line["id"] for line in recorded.run_json("blame", "--lines", "a")] == [None, "msg_1", None]


# Colours, quiet, the pager


def test_colours_can_be_forced_and_forbidden(recorded: Terminal) -> None:
    assert "\x1b[" in recorded.run("--color", "always", "log")
    assert "\x1b[" in recorded.run("--color=always", "log", "--stat", variables={"NO_COLOR": "1"})
    assert "\x1b[" not in recorded.run("log", "--color", "auto")
    assert b"\x1b[" not in run_on_terminal("log", "--color", "never", term="xterm")
    recorded.run("--color", "sometimes", "log", exit_code=2)
    recorded.run("--color", "sometimes", "track", exit_code=2)


@pytest.mark.parametrize(
    "words",
    [["begin", "m3"], ["snapshot", "m3"], ["undo"], ["wrap"], ["pin", "@"], ["gc"]],
    ids=" ".join,
)
def test_quiet_reports_nothing(recorded: Terminal, words: list[str]) -> None:
    assert recorded.run("-q", *words) == ""
    assert recorded.err == ""


def test_a_quiet_run_leaves_the_output_to_the_command(recorded: Terminal) -> None:
    line = [*COMMAND, "-q", "run", "--", "sh", "-c", "echo out; echo more >> a"]
    done = subprocess.run(line, capture_output=True, check=True)

    assert (done.stdout, done.stderr) == (b"out\n", b"")
    assert recorded.run_json("log")[-1]["files"] == 1


@pytest.mark.parametrize(
    "words", [["log"], ["track"], ["undo", "--dry-run"], ["branches"], ["stats"]], ids=" ".join
)
def test_quiet_leaves_what_was_asked_for(recorded: Terminal, words: list[str]) -> None:
    assert recorded.run(*words, "--quiet") != ""
    assert recorded.run_json("-q", *words) is not None


def test_quiet_tells_errors(recorded: Terminal) -> None:
    recorded.run("-q", "show", "nobody", exit_code=12)

    assert recorded.err.startswith("shadowtree: ")


def test_long_output_goes_through_the_pager_on_a_terminal(
    recorded: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tmp_path / "pages"
    monkeypatch.setenv("SHADOWTREE_PAGER", f"tee {pages}")
    monkeypatch.setenv("LINES", "5")

    shown = run_on_terminal("show", "@", term="xterm")

    assert pages.read_bytes().replace(b"\n", b"\r\n") == shown
    pages.unlink()
    for words in (["show", "@", "--no-pager"], ["show", "@", "--json"], ["begin", "m3"]):
        run_on_terminal(*words, term="xterm")
    monkeypatch.setenv("LINES", "500")
    run_on_terminal("show", "@", term="xterm")
    recorded.run("show", "@")
    assert not pages.exists()


def test_a_pager_that_is_left_or_missing_is_no_failure(
    recorded: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "5")
    monkeypatch.setenv("PAGER", "head -n 1")
    assert len(run_on_terminal("show", "@", term="xterm").splitlines()) == 1
    monkeypatch.setenv("PAGER", "/no/such/pager")
    assert len(run_on_terminal("show", "@", term="xterm").splitlines()) > 5


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({}, ["less", "-FRX"]),
        ({"PAGER": "more"}, ["more"]),
        ({"PAGER": "more", "SHADOWTREE_PAGER": "less -S"}, ["less", "-S"]),
        ({"PAGER": "more", "SHADOWTREE_PAGER": ""}, []),
        ({"PAGER": "cat"}, []),
        ({"PAGER": "'"}, []),
    ],
)
def test_the_pager_is_the_users(variables: dict[str, str], command: list[str]) -> None:
    assert find_command(variables) == command


def test_a_pipe_gets_no_colours_and_no_pager(recorded: Terminal, project: Path) -> None:
    variables = {**os.environ, "SHADOWTREE_PAGER": "false", "LINES": "2", "TERM": "xterm"}
    done = subprocess.run([*COMMAND, "log"], capture_output=True, env=variables, check=True)

    assert len(done.stdout.splitlines()) == 2
    assert b"\x1b" not in done.stdout


# help


def test_help_is_the_help_of_a_command(terminal: Terminal) -> None:
    assert terminal.run("help") == terminal.run("--help")
    assert terminal.run("help", "log") == terminal.run("log", "--help")
    assert terminal.run("help", "branches", "drop") == terminal.run("branches", "drop", "--help")
    terminal.run("help", "lgo", exit_code=2)
    assert "did you mean 'log'?" in terminal.err
    terminal.run("help", "log", "drop", exit_code=2)


def test_log_of_a_path_marks_no_message_that_is_not_the_last(terminal: Terminal, project: Path) -> None:
    for name in ("one", "two"):
        (project / name).write_text("1")
        terminal.run("snapshot", name)

    assert "@" not in terminal.run("log", "one")
    assert terminal.run("log", "two").startswith("@")
