"""`shadowtree run`: the changes of a command are one message, and the command notices nothing of us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Message, Shadow
from shadowtree.cli import fast
from shadowtree.cli.child_process import Relay
from shadowtree.store.directory import StoreLayout
from shadowtree.store.lock import Lock
from tests.support.processes import COMMAND, in_child
from tests.support.terminal import Shell, Terminal
from tests.support.trees import assert_tree

LISTENER = """
import os, select, signal, sys
def note(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
open("started", "w").close()
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), note)
os.write(1, b"ready\\n")
while True:
    # Not for ever: what Python is told right before the call, it tells us only after it.
    if select.select([0], [], [], 0.05)[0] and os.read(0, 1000) in (b"", b"quit\\n"):
        sys.exit(7)
"""
"""A program that prints the signals that it gets, until it is told to quit."""


@pytest.fixture
def shell(project: Path) -> Iterator[Shell]:
    shell = Shell(project)
    yield shell
    shell.close()


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:  # Any: options of subprocess
    """Run a command under `shadowtree run`, in another process."""
    return subprocess.run([*COMMAND, "run", *words], capture_output=True, text=True, check=False, **options)


def start(
    *words: str, command: Sequence[str] = (*COMMAND, "run"), **options: Any
) -> subprocess.Popen[str]:  # Any: options of subprocess
    return subprocess.Popen(
        [*command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def messages(project: Path, **options: Any) -> list[Message]:
    with Shadow(project, **options) as shadow:
        return shadow.messages()


def changes(message: Message) -> list[tuple[str, str]]:
    return [(changed.path, changed.status) for changed in message.patch.files]


# Records


def test_the_whole_run_is_one_message(project: Path) -> None:
    done = run("--", "sh", "-c", "echo new > c.txt; rm a.txt; echo said")

    (message,) = messages(project)
    assert (done.returncode, done.stdout) == (0, "said\n")
    assert done.stderr == f"shadowtree: message {message.id} changed 2 files\n"
    assert changes(message) == [("a.txt", "deleted"), ("c.txt", "added")]
    assert (message.state, message.inferred) == ("active", False)


def test_its_text_is_the_command_line_unless_another_is_given(project: Path) -> None:
    run("sh", "-c", "touch 1; true")
    run("-m", "nothing at all", "--role", "user", "--meta", '{"n": 1}', "--id", "mine", "--", "touch", "2")

    first, second = messages(project)
    assert (first.text, first.role, first.meta) == ("sh -c 'touch 1; true'", None, None)
    assert first.id.startswith("run-2")
    assert (second.id, second.text, second.role, second.meta) == (
        "mine",
        "nothing at all",
        "user",
        {"n": 1},
    )


def test_it_can_be_undone_like_any_other(terminal: Terminal, project: Path) -> None:
    run("--", "sh", "-c", "echo new > a.txt; mkdir d; touch d/x")

    terminal.run("undo")

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_a_command_that_changed_nothing_is_not_recorded(terminal: Terminal, project: Path) -> None:
    """So undone messages can still be redone, and no undo is used up for nothing."""
    run("touch", "c")
    terminal.run("undo")
    done = run("true")
    document = json.loads(run("--json", "true").stdout)

    assert done.stderr == "shadowtree: the command changed nothing, so nothing was recorded\n"
    assert document == {"message": None, "session": "default", "files": [], "exit_code": 0, "undo": None}
    assert [message.state for message in messages(project)] == ["undone"]
    assert terminal.run_json("branches") == []
    terminal.run("redo")
    assert (project / "c").exists()


def test_the_session_is_the_one_that_is_given_and_the_commands_own_default(project: Path) -> None:
    """Messages that the command records itself go to the same session as the run."""
    done = run("--session", "s1", "--", "sh", "-c", "touch c; echo $SHADOWTREE_SESSION")

    assert done.stdout == "s1\n"
    assert messages(project) == []
    assert len(messages(project, session="s1")) == 1


# The command line


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "exit 9", "--json"],
        ["--", "sh", "-c", "exit 9", "--json"],
        ["-m", "-a text with a dash", "--", "sh", "-c", "exit 9", "--json"],
        ["--role=user", "sh", "-c", "exit 9", "--json"],
    ],
    ids=["plain", "dashes", "click", "joined"],
)
def test_all_after_the_first_word_belongs_to_the_command(project: Path, words: list[str]) -> None:
    """Both parsers treat the line the same way."""
    done = run(*words)

    assert (done.returncode, done.stdout) == (9, "")
    assert (fast.parse(["run", *words]) is None) == ("-a text with a dash" in words)


def test_two_dashes_of_the_command_stay(project: Path) -> None:
    for words in (["echo", "--", "x"], ["--", "echo", "--", "x"], ["--role", "-", "--", "echo", "--", "x"]):
        assert run(*words).stdout == "-- x\n"


@pytest.mark.parametrize("words", [["run"], ["run", "--"], ["run", "--", ""]], ids=" ".join)
def test_without_a_command_it_is_wrong_usage(terminal: Terminal, project: Path, words: list[str]) -> None:
    terminal.run(*words, exit_code=2)

    assert terminal.err.startswith("shadowtree: ")
    assert not Shadow(project).is_wrapped


def test_an_option_of_the_command_does_not_make_json_of_our_errors(terminal: Terminal) -> None:
    out = terminal.run("run", "no-such-program", "--json", exit_code=127)
    assert out == ""

    out = terminal.run("-C", "no-such-directory", "run", "true", "--json", exit_code=2)
    assert out == ""


# Exit codes


@pytest.mark.parametrize("code", [0, 1, 2, 13, 255])
def test_the_exit_code_is_the_commands(project: Path, code: int) -> None:
    assert run("--", "sh", "-c", f"echo {code} > a.txt; exit {code}").returncode == code
    assert len(messages(project)) == 1


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV", "SIGUSR2"])
def test_a_signal_that_ended_the_command_ends_us(project: Path, name: str) -> None:
    done = run("--", "sh", "-c", f"echo x > a.txt; kill -{name[3:]} $$")

    (message,) = messages(project)
    assert done.returncode == -getattr(signal, name)
    assert changes(message) == [("a.txt", "modified")]
    assert message.id in done.stderr


def test_a_command_that_is_not_there_leaves_no_trace(project: Path) -> None:
    done = run("--", "no-such-program")

    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "shadowtree: no-such-program: command not found\n"
    assert not Shadow(project).is_wrapped


@pytest.mark.parametrize("name", ["./a.txt", "./"], ids=["no exec bit", "directory"])
def test_what_cannot_be_executed_leaves_no_trace(project: Path, name: str) -> None:
    done = run("--", name)

    assert done.returncode == 126
    assert done.stderr == f"shadowtree: {name}: Permission denied\n"
    assert not Shadow(project).is_wrapped


def test_what_turns_out_to_be_no_program_is_not_recorded(project: Path) -> None:
    """Only the system can tell, and it does so after the message has begun."""
    (project / "broken").write_text("\0nothing that runs")
    (project / "broken").chmod(0o755)

    done = run("--", "./broken")

    assert done.returncode == 126
    assert done.stderr.startswith("shadowtree: ./broken: Exec format error\n")
    assert messages(project) == []


def test_if_the_message_cannot_begin_the_command_is_not_run(project: Path) -> None:
    run("true")
    with Lock(StoreLayout(str(Shadow(project).store)).lock, 0):
        done = run("--set", "lock_timeout=0", "--", "touch", "touched")

    assert done.returncode == 11
    assert "is locked by" in done.stderr
    assert not (project / "touched").exists()


@pytest.mark.parametrize("what", ["$SHADOWTREE_HOME", '"$PWD"'], ids=["store", "worktree"])
@pytest.mark.parametrize(("code", "ours"), [(0, 1), (5, 5)], ids=["success", "failure"])
def test_what_is_not_recorded_is_no_success(project: Path, what: str, code: int, ours: int) -> None:
    """Exit code 1, whatever the reason: the usage was right, and the worktree was wrapped."""
    done = run("--", "sh", "-c", f"rm -rf {what}; exit {code}")

    assert done.returncode == ours
    assert "the changes of the command could not be recorded" in done.stderr


def test_the_exit_code_is_passed_on_when_nobody_reads_what_we_say(project: Path) -> None:
    """As in `shadowtree run COMMAND 2>&1 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "run", "--", "sh", "-c", "exit 6"], stderr=writer, check=False)
    os.close(writer)

    assert done.returncode == 6


# The command's surroundings


def test_streams_are_the_commands(project: Path) -> None:
    done = run("--", "sh", "-c", "cat; echo talk >&2", input="typed\n")

    assert done.stdout == "typed\n"
    assert done.stderr.startswith("talk\nshadowtree: ")


@pytest.mark.parametrize(
    "question",
    ["grep -E 'Sig(Blk|Ign)' /proc/self/status", "ls /proc/self/fd"],
    ids=["signals", "descriptors"],
)
@pytest.mark.parametrize("ignored", [[], [signal.SIGHUP, signal.SIGINT, signal.SIGCHLD]], ids=["", "nohup"])
def test_the_command_starts_as_it_would_without_us(
    project: Path, question: str, ignored: list[signal.Signals]
) -> None:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    reader, writer = os.pipe()
    options: Any = {"preexec_fn": ignore, "pass_fds": [writer]}
    alone = subprocess.run(["sh", "-c", question], capture_output=True, text=True, check=True, **options)
    done = run("--", "sh", "-c", question, **options)
    os.close(reader)
    os.close(writer)

    if question.startswith("grep"):
        assert _read_sets(done.stdout) == _read_sets(alone.stdout)
    else:
        assert done.stdout == alone.stdout


def _read_sets(status: str) -> list[int]:
    """Read sets of signals, except those that may differ.

    These are SIGCHLD, because a process that ignores it does not learn how the command ended, and two that
    the C library reserves and always ignores in processes that it starts.
    """
    left_out = 1 << (signal.SIGCHLD - 1) | 0b11 << 31
    return [int(line.split()[1], 16) & ~left_out for line in status.splitlines()]


def test_a_descriptor_that_was_handed_to_us_is_handed_on(project: Path) -> None:
    """As make passes its jobserver to the processes that it starts."""
    reader, writer = os.pipe()
    run("--", "sh", "-c", f"echo through > /proc/self/fd/{writer}", pass_fds=[writer])
    os.close(writer)

    assert os.read(reader, 100) == b"through\n"
    os.close(reader)


def test_the_command_runs_where_we_are_told_to_start(project: Path, tmp_path: Path) -> None:
    (project / "sub").mkdir()
    done = subprocess.run(
        [*COMMAND, "-C", str(project / "sub"), "run", "sh", "-c", "pwd; touch here"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"{project / 'sub'}\n"
    assert (project / "sub" / "here").exists()


# Signals


ENDING = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF"]
ENDING += ["SIGXCPU", "SIGXFSZ", "SIGPIPE", "SIGABRT", "SIGSYS", "SIGTRAP", "SIGIO"]
ENDING += ["SIGPWR", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX"] if sys.platform == "linux" else []


@pytest.mark.parametrize("name", ENDING)
def test_a_signal_to_us_alone_reaches_the_command_once(project: Path, name: str) -> None:
    with start("--", sys.executable, "-c", LISTENER, name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        first = process.stdout.readline()
        out, _ = process.communicate("quit\n")

    assert first == f"{name}\n"
    assert out == ""
    assert process.returncode == 7
    assert [message.state for message in messages(project)] == ["active"]


def test_a_timer_that_was_set_before_we_began_ends_the_command() -> None:
    """It survives the exec of another program, and some limit the time of a command this way."""

    def run_for_a_moment() -> int:
        with Relay() as relay:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return relay.run("/bin/sh", ("sh", "-c", "exec sleep 600"), os.environ)

    assert in_child(run_for_a_moment).value() == -signal.SIGALRM


def test_told_to_stop_we_end_the_message(project: Path) -> None:
    with start("--", "sh", "-c", "echo new > a.txt; echo ready; exec sleep 600") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, err = process.communicate()

    (message,) = messages(project)
    assert process.returncode == -signal.SIGTERM
    assert (message.state, changes(message)) == ("active", [("a.txt", "modified")])
    assert message.id in err


def test_a_command_that_does_not_care_is_waited_for(project: Path) -> None:
    with start("--", "sh", "-c", "trap '' TERM; echo ready; read line; touch late") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate("go\n")

    (message,) = messages(project)
    assert process.returncode == 0
    assert changes(message) == [("late", "added")]


# As on macOS, where nothing shows who sent a signal

ON_MACOS = """
import sys
import shadowtree.cli.main, shadowtree.cli.run, shadowtree.cli.child_process
sys.platform = "darwin"
sys.exit(shadowtree.cli.main.main(["run", "--", *sys.argv[1:]]))
"""


def start_as_on_macos(*words: str) -> subprocess.Popen[str]:
    # In a session without a terminal, no signal comes from a keyboard.
    return start(*words, command=[sys.executable, "-c", ON_MACOS], start_new_session=True)


def test_where_nobody_tells_who_sent_a_signal_the_exit_code_is_the_commands(project: Path) -> None:
    with start_as_on_macos("sh", "-c", "echo new > a.txt; exit 3") as process:
        process.communicate()

    assert process.returncode == 3
    assert [changes(message) for message in messages(project)] == [[("a.txt", "modified")]]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_where_nobody_tells_who_sent_it_a_signal_reaches_the_command_once(project: Path, name: str) -> None:
    with start_as_on_macos(sys.executable, "-c", LISTENER, name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        first = process.stdout.readline()
        out, _ = process.communicate("quit\n")

    assert (first, out, process.returncode) == (f"{name}\n", "", 7)


# On a terminal

RUN = " ".join([*COMMAND, "run", "--"])


def test_ctrl_c_reaches_the_command_once(shell: Shell, project: Path) -> None:
    (project / "listener").write_text(LISTENER)
    shell.type(f"{RUN} {sys.executable} listener SIGINT SIGQUIT\n")
    shell.wait_for("ready")
    shell.type("\x03")
    shell.wait_for("SIGINT")
    shell.type("\x1c")
    shown = shell.wait_for("SIGQUIT")
    shell.type("quit\necho the end: $?\n")
    shown += shell.wait_for("the end: 7")

    assert "SIGINT" not in shown
    assert shown.count("SIGQUIT") == 1
    assert [message.state for message in messages(project)] == ["active"]


def test_ctrl_c_ends_a_loop_of_the_shell(shell: Shell, project: Path) -> None:
    """A shell continues its loop if a command merely exits, even with code 130."""
    shell.type(f"for n in 1 2 3; do {RUN} sh -c 'echo rea\"\"dy $0; exec sleep 600' $n; done; echo never\n")
    shell.wait_for("ready 1")
    shell.type("\x03")
    shell.wait_for("changed nothing")
    shell.type("echo the end: $?\n")
    shown = shell.wait_for("the end: 130")

    assert "ready 2" not in shown


def test_ctrl_z_stops_and_fg_goes_on(shell: Shell, project: Path) -> None:
    shell.type(f"{RUN} sh -c 'echo rea\"\"dy; read line; echo got $line; echo new > a.txt'\n")
    shell.wait_for("ready")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("echo meanwhile $((1 + 1))\n")
    shell.wait_for("meanwhile 2")
    assert [message.state for message in messages(project)] == ["open"]
    shell.type("fg\nword\n")
    shell.wait_for("got word")
    shell.wait_for("changed 1 file")


def test_a_command_that_does_not_stop_keeps_the_terminal(shell: Shell, project: Path) -> None:
    (project / "listener").write_text(LISTENER)
    shell.type(f"{RUN} {sys.executable} listener SIGTSTP\n")
    shell.wait_for("ready")
    shell.type("\x1a")
    shell.wait_for("SIGTSTP")
    shell.type("quit\n")
    shown = shell.wait_for("changed 1 file")

    assert "Stopped" not in shown


def test_stopped_by_a_signal_to_us_alone_both_stop_and_go_on(shell: Shell, project: Path) -> None:
    shell.type(f"{RUN} sh -c 'echo rea\"\"dy; read line; echo got $line'\n")
    shell.wait_for("ready")
    _stop_runner(project)
    shell.wait_for("Stopped")
    shell.type("fg\nword\n")
    shell.wait_for("got word")


def test_in_the_background_it_stops_when_it_asks_the_terminal(shell: Shell, project: Path) -> None:
    shell.type("set -b\n")
    shell.type(f"{RUN} sh -c 'echo rea\"\"dy; read line; echo got $line' &\n")
    shell.wait_for("Stopped")
    shell.type("fg\nword\n")
    shell.wait_for("got word")
    shell.wait_for("changed nothing")


def _stop_runner(project: Path) -> None:
    """Send SIGTSTP only to the process that runs `shadowtree run` in the project, not to its group."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            place = os.readlink(entry / "cwd")
        except OSError:
            continue
        if place == str(project) and b"shadowtree" in words and b"run" in words:
            os.kill(int(entry.name), signal.SIGTSTP)
            return
    raise AssertionError("nothing runs")


def test_an_interactive_shell_works(shell: Shell, project: Path) -> None:
    """The shell makes its own process group and takes the terminal."""
    shell.type(f"{RUN} bash --norc --noprofile -i\n")
    shell.type("echo inner $((2 + 3))\n")
    shell.wait_for("inner 5")
    shell.type("sh -c 'echo sleep\"\"ing; exec sleep 600'\n")
    shell.wait_for("sleeping")
    shell.type("\x1a")
    shell.wait_for("Stopped")
    shell.type("kill -KILL %1; disown %1; echo new > a.txt; exit 4\n")
    shell.wait_for("changed 1 file")
    shell.type("echo the end: $?\n")
    shell.wait_for("the end: 4")


def test_a_pipeline_keeps_the_terminal(shell: Shell, project: Path) -> None:
    """A program after us in a pipe may use the terminal, so the command must not take it away."""
    shell.type(f"{RUN} echo produced | sh -c 'cat; read line < /dev/tty; echo read $line'\n")
    shell.wait_for("produced")
    shell.type("typed\n")
    shell.wait_for("read typed")


# Undoing a failed command


def test_a_failed_command_is_undone(project: Path) -> None:
    done = run("--undo-on-fail", "--", "sh", "-c", "echo x > a.txt; rm b.txt; touch c; exit 3")

    (message,) = messages(project)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"shadowtree: message {message.id} changed 3 files",
        f"shadowtree: undid message {message.id}: 1 file restored, 1 created, 1 deleted",
    ]
    assert message.state == "undone"
    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_a_command_that_a_signal_ended_has_failed(project: Path) -> None:
    done = run("--undo-on-fail", "--", "sh", "-c", "echo x > a.txt; kill -TERM $$")

    assert done.returncode == -signal.SIGTERM
    assert (project / "a.txt").read_text() == "one\n"


def test_a_command_that_succeeded_is_not_undone(project: Path) -> None:
    run("--undo-on-fail", "--", "sh", "-c", "echo x > a.txt")

    assert (project / "a.txt").read_text() == "x\n"
    assert [message.state for message in messages(project)] == ["active"]


def test_all_that_a_failed_command_made_goes_without_a_question(project: Path) -> None:
    """These are more than half of the files, so `undo` would ask."""
    run("--undo-on-fail", "--", "sh", "-c", "for n in 1 2 3 4 5; do touch f$n; done; exit 1")

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_only_the_message_is_undone_and_not_what_was_there_before(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    (project / "a.txt").write_text("by m1\n")
    terminal.run("end", "m1")
    (project / "mine").write_text("by nobody\n")
    run("--undo-on-fail", "--", "sh", "-c", "echo x > a.txt; echo x > mine; exit 1")

    assert_tree(project, {"a.txt": "by m1\n", "b.txt": "two\n", "mine": "by nobody\n"})
    assert [message.state for message in messages(project)] == ["active", "undone"]


def test_if_it_cannot_be_undone_the_paths_are_listed_and_the_last_line_says_so(project: Path) -> None:
    """Another session changed the same file while the command ran."""
    other = f"{' '.join(COMMAND)} --session other"
    script = f"{other} begin o1; echo x > a.txt; {other} end o1; echo y > a.txt; exit 3"

    done = run("--undo-on-fail", "--", "sh", "-c", script)

    (message,) = messages(project)
    assert done.returncode == 3
    *_, path, advice, last = done.stderr.splitlines()
    assert path.startswith("  a.txt: ")
    assert advice.startswith("    ")
    assert last == f"shadowtree: message {message.id} was not undone: 1 path in conflict; nothing was changed"
    assert message.state == "active"
    assert (project / "a.txt").read_text() == "y\n"


# Undoing a failed command that recorded in the same session

SHADOWTREE = " ".join(COMMAND)


def test_messages_that_the_command_began_are_undone_with_its_own(project: Path) -> None:
    agent = f"echo x > a.txt; {SHADOWTREE} begin m1; echo x > b.txt; {SHADOWTREE} end m1; exit 3"
    done = run("--id", "outer", "--undo-on-fail", "--", "sh", "-c", agent)

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})
    assert [(message.id, message.state) for message in messages(project)] == [
        ("outer", "undone"),
        ("m1", "undone"),
    ]
    assert done.stderr.endswith(
        "shadowtree: undid message outer and the message after it: 2 files restored\n"
    )


def test_what_came_after_the_last_message_is_recorded_and_undone_too(project: Path) -> None:
    agent = f"touch pre; {SHADOWTREE} begin m1; touch q; {SHADOWTREE} end; touch post; exit 3"
    document = json.loads(run("--json", "--id", "outer", "--undo-on-fail", "--", "sh", "-c", agent).stdout)

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})
    *_, rest = messages(project)
    assert (changes(rest), rest.inferred, rest.text) == (
        [("post", "added")],
        True,
        "what outer did after its last message",
    )
    assert document["undo"]["messages"] == ["outer", "m1", rest.id]
    assert (document["undo"]["deleted"], document["undo"]["complete"]) == (["post", "pre", "q"], True)


def test_what_came_after_the_command_ended_the_message_itself_is_undone(project: Path) -> None:
    run("--undo-on-fail", "--", "sh", "-c", f"{SHADOWTREE} end; echo later > a.txt; exit 9")

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_a_message_that_the_command_left_open_is_undone(project: Path) -> None:
    run("--undo-on-fail", "--", "sh", "-c", f"touch pre; {SHADOWTREE} begin m1; touch q; exit 3")

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})
    assert [message.state for message in messages(project)] == ["undone", "undone"]


def test_what_the_command_undid_itself_is_brought_back(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    (project / "a.txt").write_text("by m1\n")
    terminal.run("end", "m1")
    run("--undo-on-fail", "--", "sh", "-c", f"touch q; {SHADOWTREE} undo 2; exit 3")

    assert_tree(project, {"a.txt": "by m1\n", "b.txt": "two\n"})


def test_what_is_not_undone_is_named(terminal: Terminal, project: Path) -> None:
    """They were made between two messages, and belong to neither."""
    agent = (
        f"{SHADOWTREE} end; touch between; {SHADOWTREE} begin m1; touch q; {SHADOWTREE} end; "
        f"{SHADOWTREE} begin m2; exit 3"
    )
    done = run("--id", "outer", "--undo-on-fail", "--", "sh", "-c", agent)

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n", "between": ""})
    assert done.stderr.endswith(
        "shadowtree: undid message outer and the 2 messages after it: "
        "left alone: between (it changed during the run, outside any message of this session)\n"
    )


def test_with_json_what_is_not_undone_is_no_complete_undo(project: Path) -> None:
    """The command undid an earlier message, and its next message archived that one."""
    run("--", "sh", "-c", "echo first > a.txt")
    agent = f"{SHADOWTREE} undo 2; touch q; exit 3"
    undo = json.loads(run("--json", "--undo-on-fail", "--", "sh", "-c", agent).stdout)["undo"]

    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})
    assert undo["complete"] is False
    assert [skipped["path"] for skipped in undo["skipped"]] == ["a.txt"]


def test_what_is_not_recorded_is_not_undone_either(project: Path) -> None:
    done = run("--json", "--undo-on-fail", "--", "sh", "-c", "touch q; rm -rf $SHADOWTREE_HOME; exit 4")

    assert json.loads(done.stdout)["undo"]["error"] == "NotWrapped"
    assert "the changes of the command could not be recorded or undone: " in done.stderr


# As JSON


def test_with_json_the_document_is_alone_on_standard_output(project: Path) -> None:
    done = run("--json", "--", "sh", "-c", "echo said; echo x > a.txt; exit 3")

    (message,) = messages(project)
    assert json.loads(done.stdout) == {
        "message": message.id,
        "session": "default",
        "before": message.before,
        "after": message.after,
        "files": [{"path": "a.txt", "status": "modified"}],
        "skipped": [],
        "unprotected": [],
        "exit_code": 3,
        "undo": None,
    }
    assert done.stderr == "said\n"


def test_with_json_the_undo_is_part_of_the_document(project: Path) -> None:
    document = json.loads(run("--json", "--undo-on-fail", "--", "sh", "-c", "rm a.txt; kill -9 $$").stdout)

    assert document["exit_code"] == 137
    assert document["undo"]["restored"] == ["a.txt"]


def test_with_json_a_command_that_is_not_there_is_a_document_too(project: Path) -> None:
    done = run("--json", "no-such-program")

    assert done.returncode == 127
    assert json.loads(done.stdout) == {
        "error": "CannotRun",
        "message": "no-such-program: command not found",
    }


# Messages inside messages


def test_a_run_inside_a_run_is_a_step_of_it(terminal: Terminal, project: Path) -> None:
    inner = f"{SHADOWTREE} run --id inner -- sh -c 'echo x > b.txt'"
    done = run("--id", "outer", "--", "sh", "-c", f"echo x > a.txt; {inner}; touch late")

    (message,) = messages(project)
    assert message.id == "outer"
    assert changes(message) == [("a.txt", "modified"), ("b.txt", "modified"), ("late", "added")]
    assert "step inner of message outer changed 1 file\n" in done.stderr
    terminal.run("revert", "outer", "--step", "inner", "--only")
    assert_tree(project, {"a.txt": "x\n", "b.txt": "two\n", "late": ""})


def test_a_run_inside_a_step_overlaps_with_it(project: Path) -> None:
    inner = f'{SHADOWTREE} run --id inner -- sh -c "echo x > b.txt"'
    middle = f"{SHADOWTREE} run --id middle -- sh -c '{inner}'"
    done = run("--id", "outer", "--", "sh", "-c", middle)

    assert "step inner of message outer changed 1 file\n" in done.stderr
    assert "step middle of message outer changed 1 file\n" in done.stderr
    assert [changes(message) for message in messages(project)] == [[("b.txt", "modified")]]


def test_a_run_inside_a_run_that_could_not_be_undone_is_not_begun(project: Path) -> None:
    """Undoing it would end the open message, which is not over."""
    inner = f"{SHADOWTREE} run --undo-on-fail -- sh -c 'echo x > b.txt; exit 5'"
    done = run("--id", "outer", "--", "sh", "-c", inner)

    assert done.returncode == 2
    assert "--undo-on-fail cannot be used while message 'outer' is open" in done.stderr
    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_a_run_of_another_session_inside_a_run_is_undone(project: Path) -> None:
    inner = f"{SHADOWTREE} run --session other --undo-on-fail -- sh -c 'echo x > b.txt; exit 5'"
    done = run("--id", "outer", "--", "sh", "-c", inner)

    assert done.returncode == 5
    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_a_run_inside_a_run_of_another_session_is_a_message(project: Path) -> None:
    run("--", "sh", "-c", f"{SHADOWTREE} run --session other touch c")

    assert [changes(message) for message in messages(project)] == [[("c", "added")]]
    assert [changes(message) for message in messages(project, session="other")] == [[("c", "added")]]


def test_a_message_that_the_command_begins_ends_that_of_the_run(project: Path) -> None:
    """Each change belongs to one message, and the agent's own description is better than ours."""
    agent = f"echo x > a.txt; {SHADOWTREE} begin m1; echo x > b.txt; {SHADOWTREE} end m1; exit 3"
    done = run("--id", "outer", "--", "sh", "-c", agent)

    outer, inner = messages(project)
    assert (changes(outer), outer.inferred) == ([("a.txt", "modified")], True)
    assert changes(inner) == [("b.txt", "modified")]
    assert done.stderr.endswith("message outer (ended before the command did) changed 1 file\n")


def test_the_id_of_the_open_message_is_taken(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")

    terminal.run("run", "--id", "m1", "touch", "c", exit_code=2)

    assert not (project / "c").exists()
    assert [message.state for message in messages(project)] == ["open"]


def test_a_run_inside_an_open_message_is_a_step_of_it(terminal: Terminal, project: Path) -> None:
    """The step is named after its command, and numbered if the name is taken."""
    terminal.run("begin", "m1")
    (project / "a.txt").write_text("by m1\n")
    run("--meta", '{"tool": "bash"}', "--", "sh", "-c", "echo x >> c")
    done = run("--", "sh", "-c", "echo x >> c")
    run("-m", "a text", "--", "touch", "d")
    document = json.loads(run("--json", "--id", "mine", "--", "touch", "e").stdout)
    terminal.run("end")

    (message,) = messages(project)
    assert not message.inferred
    assert changes(message) == [("a.txt", "modified"), ("c", "added"), ("d", "added"), ("e", "added")]
    first, *others = message.steps
    assert (first.name, first.meta) == ("sh -c 'echo x >> c'", {"tool": "bash"})
    assert [step.name for step in others] == ["sh -c 'echo x >> c' (2)", "a text", "mine"]
    assert done.stderr == "shadowtree: step sh -c 'echo x >> c' (2) of message m1 changed 1 file\n"
    assert (document["message"], document["step"], document["exit_code"]) == ("m1", "mine", 0)


def test_a_step_ends_with_its_message_if_the_command_ends_that(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    done = run("--id", "s1", "--", "sh", "-c", f"touch c; {SHADOWTREE} end; exit 3")

    assert done.returncode == 3
    assert "step s1 of message m1 (ended before the command did) changed 1 file\n" in done.stderr


# Best effort


def test_with_best_effort_a_command_runs_though_nothing_can_be_recorded(project: Path) -> None:
    run("touch", "first")
    with Lock(StoreLayout(str(Shadow(project).store)).lock, 0):
        options = ["--best-effort", "--set", "lock_timeout=0"]
        done = run(*options, "--", "sh", "-c", "touch c; exit 4")
        fine = run(*options, "--", "touch", "d")
        document = json.loads(run("--json", *options, "--undo-on-fail", "--", "false").stdout)

    assert (done.returncode, fine.returncode) == (4, 0)
    assert (project / "c").exists()
    assert "shadowtree: warning: the changes of the command could not be recorded: " in fine.stderr
    assert (document["error"], document["exit_code"], document["undo"]["error"]) == ("Locked", 1, "Locked")


def test_with_best_effort_an_end_that_fails_is_a_warning(project: Path) -> None:
    done = run("--best-effort", "--", "sh", "-c", "touch c; rm -rf $SHADOWTREE_HOME")

    assert done.returncode == 0
    assert "shadowtree: warning: the changes of the command could not be recorded: " in done.stderr


def test_with_best_effort_a_damaged_store_stops_nobody(project: Path) -> None:
    run("touch", "first")
    (Shadow(project).store / "timeline.db").write_bytes(b"no database at all" * 500)

    assert run("--", "touch", "c").returncode == 15
    assert run("--best-effort", "--", "touch", "d").returncode == 0
    assert not (project / "c").exists()
    assert (project / "d").exists()


def test_wrong_usage_is_wrong_with_best_effort_too(project: Path) -> None:
    assert run("--best-effort", "--id", "@", "--", "touch", "c").returncode == 2
    assert not (project / "c").exists()
