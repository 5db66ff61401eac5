"""`shadowtree watch`, and every other command with and without it: the same output, the same exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.cli.main import main
from shadowtree.cli.output import write_lines
from shadowtree.daemon.endpoint import Endpoint, Timing
from tests.support.daemons import (
    PATIENCE_S,
    daemon,
    end_daemon,
    find_pid,
    list_served,
    serve_kept,
    use_timing,
    wait_until,
)
from tests.support.processes import COMMAND, surroundings
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.trees import assert_tree, make_tree


@pytest.fixture(autouse=True)
def _no_daemon_is_left() -> Iterator[None]:
    yield
    end_daemon()


# With and without

Edit = Callable[[Path], object]
Line = tuple[str, ...]


def write(**files: str) -> Edit:
    """Write files; an underscore in a name stands for a dot."""
    return lambda root: make_tree(root, {name.replace("_", "."): text for name, text in files.items()})


def remove(name: str) -> Edit:
    return lambda root: (root / name).unlink()


STORY: list[Edit | Line] = [
    ("track",),
    ("status",),
    ("begin", "m1", "-m", "the first", "--role", "user", "--meta", '{"k": [1, null]}'),
    ("begin", "m1"),
    write(a_txt="two\n"),
    ("step", "edit"),
    write(c_txt="new\n"),
    ("step", "edit", "--end"),
    ("step", "edit"),
    ("end",),
    ("end", "m1"),
    ("end",),
    ("end", "--path", "../outside", "m1"),
    ("snapshot", "m1"),
    ("begin", "m2", "-m", "the second"),
    write(a_txt="three\n", b_txt="changed\n", d_txt="d\n"),
    ("end", "m2", "--path", "a.txt", "--path", "d.txt"),
    ("snapshot", "m3", "-m", "the third"),
    ("log",),
    ("log", "--graph"),
    ("log", "-n", "1"),
    ("log", "--all"),
    ("show", "m1"),
    ("show", "@"),
    ("show", "nobody"),
    ("diff",),
    ("diff", "m1^", "m2"),
    ("diff", "nobody"),
    ("blame", "a.txt"),
    ("blame", "nothing"),
    ("patch", "nobody"),
    ("branches",),
    ("undo", "--dry-run"),
    ("undo",),
    ("status",),
    ("redo",),
    ("redo",),
    ("undo", "2"),
    ("begin", "m4", "-m", "another way"),
    write(e_txt="e\n"),
    ("end", "m4"),
    ("branches",),
    ("branches", "rename", "the-second", "old-way"),
    ("branches", "drop", "nobody"),
    ("switch", "old-way"),
    ("switch", "m4"),
    ("unrevert",),
    ("unrevert", "--dry-run"),
    write(a_txt="edited by hand\n"),
    ("revert", "m1"),
    ("revert", "m1", "--on-conflict", "merge"),
    ("revert", "m1", "--dry-run", "--on-conflict", "keep"),
    ("revert", "m1", "--on-conflict", "overwrite"),
    ("revert", "m1", "--no-files", "--path", "a.txt"),
    ("unrevert",),
    ("restore", "m1"),
    ("restore", "m1", "--yes"),
    ("restore", "nobody"),
    remove("a.txt"),
    ("status",),
    ("track",),
    ("--session", "other", "log"),
    ("--session", "other", "snapshot", "n1"),
    ("--session", "\x01", "begin", "n2"),
    ("undo", "--session", "nobody"),
]
"""Commands of a working day, and failures; the output of each is compared."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d\.\d+\+00:00)?")
_AGE = re.compile(r"\b\d+ s\b")


def tell(project: Path, capfd: pytest.CaptureFixture[str], more: Line) -> list[tuple[str, int, str, str]]:
    """Run the story, and collect the output of each line."""
    told = []
    for part in STORY:
        if not isinstance(part, tuple):
            part(project)
            continue
        exit_code = main([*part, *more])
        out, err = (_AGE.sub("AGE", _TIME.sub("TIME", text)) for text in capfd.readouterr())
        # This difference is intended.
        out = out.replace('"watching": true', '"watching": false').replace("Changes are being watched\n", "")
        told.append((" ".join(part), exit_code, out, err))
    return told


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["plain", "json"])
def test_every_command_is_the_same_with_the_daemon(
    project: Path, tmp_path: Path, stores: Path, capfd: pytest.CaptureFixture[str], more: Line
) -> None:
    contents = {"a.txt": "one\n", "b.txt": "two\n"}
    without = tell(project, capfd, more)
    after = (tmp_path / "project").stat().st_ino, sorted(path.name for path in project.iterdir())
    for path in (*project.iterdir(), stores):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    make_tree(project, dict(contents))

    with daemon():
        serve_kept(project)
        together = tell(project, capfd, more)
        served = list_served()

    assert together == without
    assert ((tmp_path / "project").stat().st_ino, sorted(path.name for path in project.iterdir())) == after
    assert served == [str(project)]


def test_the_daemon_is_what_did_it(project: Path, terminal: Terminal) -> None:
    with daemon():
        serve_kept(project)
        for words in (["track"], ["begin", "m1"], ["end"], ["log"], ["status"], ["undo"]):
            terminal.run(*words)

        (served,) = terminal.run_json("watch", "status")["worktrees"]
    # The log also counts the changed lines of the message that it shows.
    assert served["requests"] >= 6
    assert served["sessions"] == ["default"]


@pytest.mark.parametrize(
    "more",
    [("--set", "max_files=100"), ("--allow-broad",), ("--store", "../elsewhere")],
    ids=lambda more: more[0],
)
def test_a_command_with_wishes_of_its_own_does_without(project: Path, terminal: Terminal, more: Line) -> None:
    with daemon():
        serve_kept(project)
        terminal.run(*more, "track")

        (served,) = terminal.run_json("watch", "status")["worktrees"]
    assert served["requests"] == 0


@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 13)])
def test_a_person_is_asked_on_the_terminal(project: Path, answer: str, exit_code: int) -> None:
    tree = Shadow(project).track()
    make_tree(project, {"c": "1", "d": "2"})
    with daemon():
        serve_kept(project)
        shown = run_on_terminal("restore", tree, answer=answer, exit_code=exit_code)

    assert b"This deletes 2 of 4 files. Continue? [y/N]" in shown
    assert (project / "c").exists() == (exit_code != 0)


# Watching


def test_watching_in_the_background_begins_and_ends(project: Path, terminal: Terminal) -> None:
    out = terminal.run("watch", "--detach")
    pid = find_pid()

    assert out == f"Watching {project} (2 files) in the background (process {pid})\n"
    assert terminal.run("status").count("Changes are being watched") == 1
    assert terminal.run("watch", "stop") == f"Stopped watching {project}\n"
    wait_until(lambda: find_pid() is None)
    assert terminal.run("watch", "status") == "No daemon is running\n"
    assert terminal.run("watch", "stop") == "This directory is not watched\n"


def test_the_daemon_belongs_to_nobody(project: Path, terminal: Terminal) -> None:
    """It has its own session, no terminal and no open file of the command that started it."""
    pid = terminal.run_json("watch", "--detach")["pid"]

    assert os.getsid(pid) not in (pid, os.getsid(0))
    for number in (0, 1, 2):
        assert os.readlink(f"/proc/{pid}/fd/{number}") == "/dev/null"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_one_daemon_serves_all_and_is_stopped_at_once(
    project: Path, tmp_path: Path, terminal: Terminal
) -> None:
    other = make_tree(tmp_path / "other", {"a": "1"})
    first = terminal.run_json("watch", "--detach")
    second = terminal.run_json("-C", str(other), "watch", "--detach")

    assert first["pid"] == second["pid"]
    assert (first["files"], second["files"]) == (2, 1)
    told = terminal.run_json("watch", "stop", "--all")
    assert told == {"stopped": [str(project), str(other)], "ended": True}
    wait_until(lambda: find_pid() is None)
    assert terminal.run("watch", "stop", "--all") == "Nothing is watched\n"
    assert terminal.run_json("watch", "stop", "--all") == {"stopped": [], "ended": False}


def test_many_who_watch_at_once_start_one_daemon(project: Path, tmp_path: Path) -> None:
    worktrees = [make_tree(tmp_path / f"w{number}", {"a": "1"}) for number in range(4)]
    commands = [
        subprocess.Popen(
            [*COMMAND, "watch", "--detach", "--json"],
            cwd=worktree,
            env=surroundings(),
            stdout=subprocess.PIPE,
        )
        for worktree in worktrees
    ]
    told = [json.loads(command.communicate()[0]) for command in commands]

    assert len({each["pid"] for each in told}) == 1
    assert sorted(list_served()) == sorted(str(worktree) for worktree in worktrees)


def test_the_status_tells_all(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--detach")
    terminal.run("begin", "m1", "--session", "s1")

    status = terminal.run_json("watch", "status")
    (served,) = status["worktrees"]
    plain = terminal.run("watch", "status")

    assert list(status) == ["pid", "version", "since", "socket", "worktrees"]
    assert status["pid"] == find_pid()
    assert status["socket"] == Endpoint(os.environ).socket
    assert (served["worktree"], served["store"]) == (str(project), str(Shadow(project).store))
    assert (served["sessions"], served["requests"], served["kept"], served["holders"]) == (["s1"], 1, True, 0)
    assert served["watching"]["active"]
    assert f"{project}: 1 request, used " in plain
    assert "1 directory watched, 0 scanned each time" in plain


def test_what_cannot_be_watched_is_said_in_one_line(
    project: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("-C", os.environ["HOME"], "watch", "--detach", exit_code=1)

    assert terminal.err.startswith(f"shadowtree: {os.environ['HOME']} is too broad to wrap")
    assert terminal.err.count("\n") == 1
    assert list_served() == []


@pytest.mark.parametrize("words", [["--auto", "soon"], ["--set", "max_files=1"]], ids=" ".join)
def test_wrong_usage_starts_nothing(project: Path, terminal: Terminal, words: list[str]) -> None:
    terminal.run("watch", *words, exit_code=2)

    assert find_pid() is None


def test_a_daemon_of_another_version_is_named_and_can_be_stopped(project: Path, terminal: Terminal) -> None:
    with daemon("import shadowtree; shadowtree.__version__ = '0.0.1'") as process:
        terminal.run("track")
        terminal.run("watch", "--detach", exit_code=1)
        assert f"(process {process.pid}) is version 0.0.1" in terminal.err
        terminal.run("watch", "status", exit_code=1)
        assert terminal.err.endswith("; run 'shadowtree watch stop --all'\n")

        assert terminal.run("watch", "stop", "--all") == "Stopped the daemon\n"
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("ways", [["stop"], ["stop", "--all"]], ids=" ".join)
def test_a_daemon_with_other_settings_tells_its_status_and_can_be_stopped(
    project: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, ways: list[str]
) -> None:
    terminal.run("watch", "--detach")
    monkeypatch.setenv("SHADOWTREE_MAX_FILES", "1000")

    terminal.run("watch", "--detach", exit_code=1)

    assert terminal.err.endswith(
        "was started in a different environment (settings); run 'shadowtree watch stop --all'\n"
    )
    assert [each["worktree"] for each in terminal.run_json("watch", "status")["worktrees"]] == [str(project)]
    assert terminal.run("watch", *ways) == f"Stopped watching {project}\n"
    wait_until(lambda: find_pid() is None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_watching_in_the_foreground_ends_with_the_command(project: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "watch"], env=surroundings(), stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == f"Watching {project} (2 files) until you press Ctrl-C\n"
        assert list_served() == [str(project)]
        command.send_signal(number)

        assert command.wait(PATIENCE_S) == (0 if number == signal.SIGINT else -number)
    wait_until(lambda: find_pid() is None)


def test_who_presses_ctrl_c_as_soon_as_that_is_told_ends_the_watching(
    project: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C right after the first line of output is handled already."""

    def write_and_interrupt(lines: list[str]) -> None:
        write_lines(lines)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("shadowtree.cli.output.write_lines", write_and_interrupt)

    told = terminal.run("watch")

    assert told == f"Watching {project} (2 files) until you press Ctrl-C\n"
    assert terminal.err == ""


def test_whoever_watches_in_the_foreground_is_told_when_it_is_over(project: Path, terminal: Terminal) -> None:
    with subprocess.Popen(
        [*COMMAND, "watch"], env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        command.stdout.readline()
        terminal.run("watch", "stop")
        _, err = command.communicate()

        assert (command.returncode, err) == (
            1,
            f"shadowtree: {project} is no longer watched: another command stopped it\n",
        )


def test_a_worktree_that_is_kept_outlives_the_foreground(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--detach")
    with subprocess.Popen([*COMMAND, "watch"], env=surroundings(), stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)

    assert list_served() == [str(project)]


def test_a_command_works_while_the_daemon_hangs(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--detach")
    pid = find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    assert terminal.run("begin", "m1") == "Began message m1\n"


def test_a_command_works_when_the_daemon_was_killed(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--detach")
    terminal.run("begin", "m1")
    make_tree(project, {"a.txt": "changed"})
    pid = find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    assert terminal.run("end") == "Message m1 changed 1 file\n"
    assert terminal.run("undo").startswith("Undid 1 turn (m1): 1 file restored\n")
    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})
    terminal.run("watch", "--detach")
    assert list_served() == [str(project)]


@pytest.mark.parametrize("words", [["status"], ["stop"], ["--detach"]], ids=" ".join)
def test_a_daemon_that_hangs_is_named(project: Path, terminal: Terminal, words: list[str]) -> None:
    terminal.run("watch", "--detach")
    pid = find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    terminal.run("watch", *words, exit_code=1)
    assert terminal.err == f"shadowtree: the daemon (process {pid}) is not responding\n"


@pytest.mark.parametrize("words", [["status"], ["stop"]], ids=" ".join)
def test_a_daemon_whose_socket_is_gone_is_named(project: Path, terminal: Terminal, words: list[str]) -> None:
    terminal.run("watch", "--detach")
    pid = find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    os.unlink(Endpoint(os.environ).socket)

    terminal.run("watch", *words, exit_code=1)
    assert terminal.err == (
        f"shadowtree: the daemon (process {pid}) cannot be reached: its socket is gone; "
        "run 'shadowtree watch stop --all'\n"
    )


def test_a_daemon_whose_socket_is_gone_can_be_stopped(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--detach")
    os.unlink(Endpoint(os.environ).socket)

    assert terminal.run("watch", "stop", "--all") == "Stopped the daemon\n"
    assert find_pid() is None


def test_a_daemon_that_goes_on_is_not_told_to_have_ended(
    project: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("watch", "--detach")
    use_timing(monkeypatch, Timing(silence_s=0.2))
    pid = find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    os.unlink(Endpoint(os.environ).socket)

    terminal.run("watch", "stop", "--all", exit_code=1)
    assert terminal.err == f"shadowtree: the daemon (process {pid}) has not stopped yet\n"
