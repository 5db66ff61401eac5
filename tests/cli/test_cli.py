"""The command line: what people and agents type, and the output. The rules are tested elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import shadowtree
from shadowtree.base import errors
from shadowtree.cli import app, fast
from shadowtree.cli.app import COMMANDS, cli
from shadowtree.cli.errors import ANSWERS, explain
from shadowtree.cli.format import escape
from shadowtree.cli.main import main
from shadowtree.cli.output import ProgressBar
from tests.support.processes import COMMAND
from tests.support.terminal import Terminal, run_on_terminal

HOSTILE_NAME = "a\x1b[31mb\u202ec"
SHOWN_NAME = "a\\x1b[31mb\\u202ec"


@pytest.fixture
def worktree(project: Path) -> Path:
    return project


# Commands


def test_track_prints_the_tree_id_alone(terminal: Terminal) -> None:
    out = terminal.run("track")

    assert len(out) == 41
    assert int(out, 16) > 0
    assert terminal.err == ""


def test_track_again_prints_the_same_tree_id(terminal: Terminal) -> None:
    assert terminal.run("track") == terminal.run("track")


def test_track_gives_the_documented_json(terminal: Terminal) -> None:
    found = terminal.run_json("track")

    assert found == {"tree": terminal.run("track").strip(), "files": 2, "skipped": []}


def test_track_tells_of_what_it_skipped(terminal: Terminal, worktree: Path) -> None:
    os.mkfifo(worktree / "pipe")

    out = terminal.run("track")

    assert len(out) == 41
    assert terminal.err.startswith("shadowtree: warning: not protected: pipe (")
    assert terminal.err.count("\n") == 1


def test_wrap_gives_the_documented_json(terminal: Terminal, worktree: Path) -> None:
    found = terminal.run_json("wrap")

    assert list(found) == ["worktree", "store", "tree", "files", "skipped"]
    assert found["worktree"] == str(worktree)
    assert found["files"] == 2
    assert found["tree"] == terminal.run("track").strip()


def test_wrap_says_what_is_protected_and_where(terminal: Terminal, worktree: Path, stores: Path) -> None:
    lines = terminal.run("wrap").splitlines()

    assert lines[0] == f"2 files in {worktree} are protected now"
    assert lines[1].startswith(f"The store is {stores}/project-")


def test_wrap_wraps_exactly_the_directory_given(terminal: Terminal, worktree: Path) -> None:
    (worktree / "inner").mkdir()
    terminal.run("wrap")

    assert terminal.run_json("wrap", "inner")["worktree"] == str(worktree / "inner")


def test_wrap_writes_nothing_into_the_directory(terminal: Terminal, worktree: Path) -> None:
    terminal.run("wrap")

    assert sorted(os.listdir(worktree)) == ["a.txt", "b.txt"]


def test_wrap_adopts_the_store_of_a_moved_worktree(terminal: Terminal, worktree: Path) -> None:
    before = terminal.run_json("wrap")
    moved = worktree.rename(worktree.parent / "moved")

    after = terminal.run_json("wrap", str(moved), "--adopt", before["store"])

    assert (after["worktree"], after["tree"]) == (str(moved), before["tree"])
    assert terminal.run_json("-C", str(moved), "status")["store"] == after["store"]
    assert terminal.run("-C", str(moved), "patch", before["tree"]) == ""


def test_patch_lists_changed_paths_by_letter(terminal: Terminal, worktree: Path) -> None:
    tree = terminal.run("track").strip()
    (worktree / "a.txt").write_text("changed\n")
    (worktree / "b.txt").unlink()
    (worktree / "c.txt").write_text("new\n")

    assert terminal.run("patch", tree) == "M a.txt\nD b.txt\nA c.txt\n"
    assert terminal.run_json("patch", tree) == {
        "tree": tree,
        "files": [
            {"path": "a.txt", "status": "modified"},
            {"path": "b.txt", "status": "deleted"},
            {"path": "c.txt", "status": "added"},
        ],
    }


def test_diff_shows_lines_and_names_binary_files(terminal: Terminal, worktree: Path) -> None:
    terminal.run("track")
    (worktree / "a.txt").write_text("changed\n")
    (worktree / "b.txt").write_bytes(b"\0\1\2")

    lines = terminal.run("diff").splitlines()

    assert "-one" in lines
    assert "+changed" in lines
    assert "Binary files a/b.txt and b/b.txt differ" in lines


def test_diff_into_a_pipe_keeps_the_lines_as_they_are(terminal: Terminal, worktree: Path) -> None:
    """So that the output can be applied; only names are escaped in it."""
    terminal.run("track")
    (worktree / "a.txt").write_bytes(b"caf\xc3\xa9 \x1b\r\n")

    assert b"+caf\xc3\xa9 \x1b\r\n" in subprocess.check_output([*COMMAND, "diff"])


def test_diff_gives_the_documented_json(terminal: Terminal, worktree: Path) -> None:
    tree = terminal.run("track").strip()
    (worktree / "a.txt").write_text("changed\n")
    later = terminal.run("track").strip()

    found = terminal.run_json("diff", tree, later)

    assert [list(entry) for entry in found] == [
        ["path", "status", "additions", "deletions", "binary", "patch"]
    ]
    assert terminal.run_json("diff", later) == []


def test_status_lists_ten_skipped_paths_and_json_all(terminal: Terminal, worktree: Path) -> None:
    for number in range(12):
        os.mkfifo(worktree / f"pipe{number:02}")
    (worktree / ".gitignore").write_text("*.log\n")
    (worktree / "x.log").write_text("log\n")
    terminal.run("track")

    lines = terminal.run("status").splitlines()

    assert lines[0] == f"{worktree} is protected"
    assert "1 ignored entry is not protected" in lines
    assert "12 paths not protected:" in lines
    assert sum(line.startswith("  pipe") for line in lines) == 10
    assert lines[-1] == "  and 2 more (use --json to list all)"
    assert len(terminal.run_json("status")["skipped"]) == 12


def test_status_does_not_promise_everything_if_it_warns(terminal: Terminal, worktree: Path) -> None:
    (worktree / ".shadowtreeignore").symlink_to("elsewhere")
    terminal.run("track")

    lines = terminal.run("status").splitlines()

    assert lines[-1] == "the ignore rules in .shadowtreeignore were not applied: it is not a regular file"
    assert "Everything in it is protected" not in lines


def test_status_gives_the_documented_json(terminal: Terminal, worktree: Path) -> None:
    terminal.run("track")
    (worktree / "a.txt").write_text("changed\n")

    found = terminal.run_json("status")

    assert found["worktree"] == str(worktree)
    assert list(found) == [
        "worktree", "store", "session", "head", "open", "undone", "changed", "ignored", "watching", "skipped",
        "outside", "unprotected", "warnings",
    ]  # fmt: skip
    assert found["changed"] == 1
    assert found["session"] == "default"


# The directory of a command


def test_a_command_in_a_subdirectory_finds_the_worktree(
    terminal: Terminal, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (worktree / "deep" / "er").mkdir(parents=True)
    tree = terminal.run("track")
    monkeypatch.chdir(worktree / "deep" / "er")

    assert terminal.run("track") == tree
    assert terminal.run_json("status")["worktree"] == str(worktree)


@pytest.mark.parametrize("words", [["-C", "..", "status"], ["status", "-C", ".."]], ids=["before", "after"])
def test_c_acts_as_if_started_there(
    terminal: Terminal, worktree: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (worktree / "deep").mkdir()
    terminal.run("wrap")
    monkeypatch.chdir(worktree / "deep")

    assert terminal.run_json(*words)["worktree"] == str(worktree)


def test_store_is_taken_before_and_after_the_command(terminal: Terminal, worktree: Path) -> None:
    store = worktree.parent / "elsewhere"

    found = terminal.run_json("--store", str(store), "wrap")

    assert found["store"] == str(store)
    assert terminal.run_json("status", "--store", str(store))["store"] == str(store)
    assert terminal.run_json("status", exit_code=10)["error"] == "NotWrapped"


def test_the_session_is_the_option_else_the_variable(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("wrap")
    monkeypatch.setenv("SHADOWTREE_SESSION", "from-variable")

    assert terminal.run_json("status")["session"] == "from-variable"
    assert terminal.run_json("status", "--session", "given")["session"] == "given"


def test_a_setting_holds_for_one_command(terminal: Terminal) -> None:
    assert terminal.run_json("track", "--set", "max_file_size=3")["files"] == 0
    assert terminal.run_json("--set", "max_file_size=1M", "track")["files"] == 2


# Errors


@pytest.mark.parametrize("words", [["status"], ["diff"], ["patch", "a" * 40]], ids=lambda words: words[0])
def test_reading_what_is_not_wrapped_exits_10(
    terminal: Terminal, worktree: Path, stores: Path, words: list[str]
) -> None:
    found = terminal.run_json(*words, exit_code=10)

    assert found == {"error": "NotWrapped", "message": f"{worktree} is not wrapped"}
    assert terminal.err == f"shadowtree: {found['message']}; run 'shadowtree wrap' first\n"
    assert not stores.exists()


def test_an_unknown_tree_exits_12(terminal: Terminal) -> None:
    terminal.run("track")

    assert terminal.run_json("patch", "f" * 40, exit_code=12)["error"] == "UnknownTree"


WRONG_LINES = [
    ["trak"],
    ["track", "extra"],
    ["track", "--unknown"],
    ["track", "--session"],
    ["track", "--set", "max_files"],
    ["track", "--set", "unknown=1"],
    ["track", "--set", "max_files=many"],
    ["track", "--session", ""],
    ["wrap", ""],
    ["wrap", "missing"],
    ["wrap", "a.txt"],
    ["wrap", "--adopt", "x", "--store", "y"],
    ["patch"],
    ["-C", "missing", "track"],
    [],
]


@pytest.mark.parametrize("words", WRONG_LINES, ids=" ".join)
def test_wrong_usage_exits_2_and_leaves_nothing_behind(
    terminal: Terminal, stores: Path, words: list[str]
) -> None:
    found = json.loads(terminal.run("--json", *words, exit_code=2))

    assert list(found) == ["error", "message"]
    assert found["error"] == "InvalidInput"
    assert terminal.err.startswith(f"shadowtree: {found['message']}")
    assert terminal.err.count("\n") == 1
    assert not stores.exists()


@pytest.mark.parametrize(
    "words", [["wrap", "a.txt"], ["-C", "a.txt", "status"], ["wrap", "--adopt", "a.txt"]], ids=" ".join
)
def test_a_file_is_told_to_be_no_directory_as_what_is_missing_is(
    terminal: Terminal, words: list[str]
) -> None:
    terminal.run("wrap", "nope", exit_code=2)
    told = terminal.err
    terminal.run(*words, exit_code=2)

    assert told == "shadowtree: nope is not a directory\n"
    assert terminal.err == "shadowtree: a.txt is not a directory\n"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["end", "--path"], "shadowtree end"),
        (["begin", "m1", "--role"], "shadowtree begin"),
        (["diff", "--set"], "shadowtree diff"),
        (["sessions", "drop", "--session"], "shadowtree sessions drop"),
        (["--session"], "shadowtree"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_missing_value_names_the_command_whose_help_explains_it(
    terminal: Terminal, words: list[str], path: str
) -> None:
    terminal.run(*words, exit_code=2)

    assert terminal.err == f"shadowtree: option '{words[-1]}' requires an argument; see '{path} --help'\n"


def test_no_command_shows_the_help_and_exits_2(terminal: Terminal) -> None:
    assert terminal.run(exit_code=2).startswith("Usage: shadowtree")
    assert terminal.err == "shadowtree: no command given; see 'shadowtree --help'\n"


def test_a_broad_directory_needs_the_users_word(
    terminal: Terminal, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(worktree))

    assert terminal.run_json("wrap", exit_code=1)["error"] == "BroadWorktree"
    assert terminal.run_json("wrap", "--allow-broad")["files"] == 2


def test_every_error_of_the_library_has_its_answer() -> None:
    raised = {each for each in vars(errors).values() if isinstance(each, type)}

    told = {each for each in raised if issubclass(each, errors.ShadowError) and each.__name__[0] != "_"}
    assert told == set(ANSWERS)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (shadowtree.OutOfSpace("/store"), 1),
        (shadowtree.InvalidInput("no"), 2),
        (shadowtree.DuplicateMessage("m", "s"), 2),
        (errors.WorktreeReplaced("/worktree", "/store"), 10),
        (shadowtree.Locked("/store", 7, "host", 10), 11),
        (shadowtree.UnknownMessage("m"), 12),
        (shadowtree.UnknownTree("t"), 12),
        (errors.AmbiguousMessage("m", ["m1", "m2"]), 2),
        (shadowtree.Conflict([shadowtree.ConflictingPath("a", "changed", "look at it")], None), 13),
        (shadowtree.StoreDamaged("a hole"), 15),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/x"), 1),
        (AssertionError("bug"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_exit_codes_are_those_of_the_contract(error: BaseException, exit_code: int) -> None:
    assert explain(error).exit_code == exit_code


def test_advice_is_filled_in_from_the_error() -> None:
    error = errors.WorktreeTooBig("/worktree", setting="max_files", found=12, limit=10)

    assert "--set max_files=12" in explain(error).advice


def test_a_bug_is_told_in_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(start: str, *, store: str | None) -> str:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(shadowtree, "find_worktree", fail)
    found = terminal.run_json("status", exit_code=1)

    assert found["message"] == "internal error: ZeroDivisionError: oh"
    assert terminal.err == "shadowtree: internal error: ZeroDivisionError: oh\n"


def test_a_deleted_current_directory_is_told(terminal: Terminal, worktree: Path) -> None:
    gone = worktree / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()

    assert terminal.run("track", exit_code=1) == ""
    assert terminal.err == "shadowtree: .: the current directory no longer exists\n"


# Output for people


def test_names_cannot_steer_the_terminal(terminal: Terminal, worktree: Path) -> None:
    tree = terminal.run("track").strip()
    (worktree / HOSTILE_NAME).write_text("x\n")
    os.mkfifo(worktree / f"{HOSTILE_NAME}.pipe")

    assert terminal.run("patch", tree) == f"A {SHOWN_NAME}\n"
    assert f"  {SHOWN_NAME}.pipe (" in terminal.run("status")
    assert "\x1b" not in terminal.run("diff")
    terminal.run("track")
    assert f"{SHOWN_NAME}.pipe" in terminal.err
    terminal.run("patch", HOSTILE_NAME, exit_code=12)
    assert "\x1b" not in terminal.err


def test_json_holds_names_that_are_no_utf8(terminal: Terminal, worktree: Path) -> None:
    tree = terminal.run("track").strip()
    name = os.fsdecode(b"caf\xe9")
    (worktree / name).write_text("x\n")

    assert terminal.run_json("patch", tree)["files"] == [{"path": name, "status": "added"}]
    assert terminal.run("patch", tree) == "A caf\\udce9\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ümlaut", "plain ümlaut"),
        ("a\tb\nc", "a\\tb\\nc"),
        ("\x1b[2J\x7f\x9b", "\\x1b[2J\\x7f\\x9b"),
        ("\u202egnp.exe\u2069", "\\u202egnp.exe\\u2069"),
        ("\udcff", "\\udcff"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_escape_shows_what_is_not_printable(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("term", "no_color", "is_coloured"),
    [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)],
    ids=["terminal", "no colour", "dumb"],
)
def test_colours_are_for_terminals(
    terminal: Terminal,
    worktree: Path,
    monkeypatch: pytest.MonkeyPatch,
    term: str,
    no_color: str,
    is_coloured: bool,
) -> None:
    tree = terminal.run("track").strip()
    (worktree / "c.txt").write_text("new\n")
    monkeypatch.setenv("NO_COLOR", no_color)

    out = run_on_terminal("patch", tree, term=term)

    assert out == (b"\x1b[32mA\x1b[0m c.txt\r\n" if is_coloured else b"A c.txt\r\n")


def test_on_a_terminal_the_lines_of_a_diff_are_escaped(terminal: Terminal, worktree: Path) -> None:
    terminal.run("track")
    (worktree / "a.txt").write_text("\t\x1b[2J\u202e\n")

    assert b"+\t\\x1b[2J\\u202e\r\n" in run_on_terminal("diff")


def test_a_progress_bar_comes_after_a_second_and_goes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 0.5, 1.5, 1.5, 1.55])

    with ProgressBar("Reading", clock_s=lambda: next(clock), is_shown=True) as bar:
        bar(1, 4)
        assert capsys.readouterr().err == ""
        bar(2, 4)
        assert capsys.readouterr().err == f"\rReading [{'#' * 15}{'-' * 15}] 2 of 4\x1b[K"
        bar(3, 4)
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == "\r\x1b[K"


def test_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 100, 10))

    with ProgressBar("Reading", clock_s=lambda: next(clock)) as bar:
        bar(1, 2)

    assert capsys.readouterr().err == ""


# The process


def test_a_reader_that_goes_away_is_no_drama(worktree: Path) -> None:
    main(["track"])
    (worktree / "long.txt").write_text("line\n" * 100_000)

    with subprocess.Popen([*COMMAND, "diff"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_failure_is_told_though_nobody_reads_the_result(worktree: Path) -> None:
    """A conflict is no success, even in `shadowtree undo | head`."""
    main(["begin", "m1"])
    (worktree / "new.txt").write_text("by m1\n")
    main(["end"])
    (worktree / "new.txt").write_text("mine\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "undo", "--json"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    assert done.returncode == 13
    assert done.stderr.startswith(b"shadowtree: 1 path in conflict")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
def test_a_full_disk_under_the_output_is_told(worktree: Path, unbuffered: str) -> None:
    """It must not look as if the undo had failed."""
    main(["begin", "m1"])
    (worktree / "new.txt").write_text("by m1\n")
    main(["end"])

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "undo"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    told = b"the command is done, but its output could not be written: no space left on device"
    assert (done.returncode, done.stderr) == (1, b"shadowtree: " + told + b"\n")
    assert not (worktree / "new.txt").exists()


def test_a_full_disk_under_the_output_does_not_hide_a_failure(worktree: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "undo", "--json"], stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 10
    assert done.stderr.count(b"\n") == 1
    assert b"not wrapped" in done.stderr


def test_closed_standard_streams_harm_nothing(worktree: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *COMMAND, "track"], check=False, capture_output=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_interrupt_exits_130(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(start: str, *, store: str | None) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(shadowtree, "find_worktree", interrupt)

    assert terminal.run_json("track", exit_code=130) == {"error": "Interrupted", "message": "interrupted"}
    assert terminal.err == "shadowtree: interrupted\n"


def test_an_interrupt_while_a_class_is_made_exits_130(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def interrupt(start: str, *, store: str | None) -> None:
        type("Made", (), {"name": Interrupted()})

    monkeypatch.setattr(shadowtree, "find_worktree", interrupt)

    assert terminal.run_json("track", exit_code=130)["error"] == "Interrupted"


# The parsers


@pytest.mark.parametrize(
    "words",
    [
        ["track"],
        ["--json", "track"],
        ["track", "--json", "--session", "s1"],
        ["-C", "deep", "--store", "../s", "track", "--session=s=1", "--allow-broad"],
        ["--set", "a=1", "track", "--set=b=2", "--set", "c=3"],
        ["--session", "before", "track", "--session", "after"],
        ["begin", "msg_1"],
        ["begin", "msg_1", "-m", "a text", "--role=user", "--meta", "{}"],
        ["begin", "-m", "first", "msg_1", "-m", "second"],
        ["begin", "track"],
        ["end"],
        ["end", "msg_1", "--path", "a", "--path=b"],
        ["--json", "snapshot", "msg_1", "--session", "s"],
        ["step", "edit", "--end"],
        ["run", "--id", "msg_1", "--undo-on-fail", "make", "--json", "all"],
        ["run", "-m", "a text", "--", "make", "-n"],
    ],
    ids=" ".join,
)
def test_the_fast_parser_means_what_click_means(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[fast.Call] = []

    def note(**values: object) -> None:
        context = click.get_current_context()
        assert context.info_name is not None
        given = {name: value for name, value in values.items() if value}
        calls.append(fast.Call(context.info_name, context.obj or {}, given))

    for name in fast.HOT:
        monkeypatch.setattr(
            cli.get_command(click.Context(cli, **cli.context_settings), name), "callback", note
        )

    app.run(words)

    assert calls == [fast.parse(words)]


@pytest.mark.parametrize("name", fast.HOT)
def test_the_fast_parser_knows_the_parameters_that_click_knows(name: str) -> None:
    command = cli.get_command(click.Context(cli, **cli.context_settings), name)
    assert command is not None
    options = [each for each in command.params if isinstance(each, click.Option)]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]

    assert {flag: (each.name, _takes(each)) for each in options for flag in each.opts} == {
        **fast.HOT[name].options,
        **fast.SHARED,
    }
    assert {each.name: _place(each) for each in arguments} == fast.HOT[name].arguments


def _takes(option: click.Option) -> str:
    return fast.FLAG if option.is_flag else fast.VALUES if option.multiple else fast.VALUE


def _place(argument: click.Argument) -> str:
    return fast.REST if argument.nargs == -1 else fast.REQUIRED if argument.required else fast.OPTIONAL


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["track", "--help"],
        ["track", "-h"],
        ["track", "extra"],
        ["track", "track"],
        ["track", "--"],
        ["track", "--json=yes"],
        ["track", "--session"],
        ["track", "--session", "--json"],
        ["-C.", "track"],
        ["-C=.", "track"],
        ["status"],
        ["begin", "msg_1", "msg_2"],
        ["begin", "--", "-x"],
        ["begin", "-x"],
        ["begin", "msg_1", "-mtext"],
        ["begin", "msg_1", "-m", "- a point"],
        ["begin", "msg_1", "--path", "a"],
        ["begin", "msg_1", "-m", ""],
        ["end", "msg_1", "--path", ""],
        ["run", "--"],
        ["step"],
        ["undo"],
    ],
    ids=" ".join,
)
def test_the_fast_parser_leaves_the_rest_to_click(words: list[str]) -> None:
    assert fast.parse(words) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(terminal: Terminal, name: str) -> None:
    command = cli.get_command(click.Context(cli, **cli.context_settings), name)
    assert command is not None
    assert command.help is not None
    first_line = command.help.splitlines()[0]

    out = terminal.run(name, "--help")

    assert first_line in out
    assert not first_line.endswith(".")
    assert f"Examples:\n    shadowtree {name}" in out


@pytest.mark.parametrize("words", [["--version", "--json"], ["--json", "--version"]], ids=" ".join)
def test_the_version_as_json(terminal: Terminal, words: list[str]) -> None:
    assert json.loads(terminal.run(*words)) == {"version": shadowtree.__version__}


def test_help_and_version_name_the_program(terminal: Terminal) -> None:
    assert all(f"\n  {name} " in terminal.run("--help") for name in COMMANDS)
    assert terminal.run("--version") == f"shadowtree {shadowtree.__version__}\n"


INTERRUPTED = """
from shadowtree.cli import main

calls = []

def flush():
    calls.append(None)
    if len(calls) == 2:
        raise KeyboardInterrupt

main._flush = flush
raise SystemExit(main.main(["--version"]))
"""


def test_an_interrupt_while_the_last_output_is_written_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], check=False, capture_output=True)

    assert (done.returncode, done.stderr) == (130, b"shadowtree: interrupted\n")
