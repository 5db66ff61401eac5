"""`shadowtree watch --auto`: the changes of any program become a message, and can be undone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shadowtree.daemon.endpoint import Endpoint
from tests.support.daemons import PATIENCE_S, end_daemon, list_served, wait_until
from tests.support.processes import COMMAND, surroundings
from tests.support.terminal import Terminal
from tests.support.trees import assert_tree, make_tree


@pytest.fixture(autouse=True)
def _no_daemon_is_left() -> Iterator[None]:
    yield
    end_daemon()


@pytest.fixture
def project(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_tree(worktree, {"a.txt": "one\n", ".gitignore": "*.log\n"})
    monkeypatch.chdir(worktree)
    return worktree


def log(terminal: Terminal) -> list[dict[str, Any]]:  # Any: JSON
    messages: list[dict[str, Any]] = json.loads(terminal.run("log", "--json"))  # Any: JSON
    return messages


def wait_for_messages(terminal: Terminal, number: int) -> list[dict[str, Any]]:  # Any: JSON
    wait_until(lambda: len(log(terminal)) >= number)
    return log(terminal)


def test_a_burst_becomes_a_message_that_can_be_undone(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--auto", "200ms", "--detach")
    make_tree(project, {"a.txt": "two\n", "d": {"b.txt": "new\n"}})

    (message,) = wait_for_messages(terminal, 1)
    terminal.run("undo")

    assert message["inferred"]
    assert message["files"] == 2
    assert_tree(project, {"a.txt": "one\n", ".gitignore": "*.log\n"})


def test_a_burst_in_a_directory_that_came_with_the_one_before_is_recorded(
    project: Path, terminal: Terminal
) -> None:
    terminal.run("watch", "--auto", "200ms", "--detach")
    make_tree(project, {"d": {"e": {"b.txt": "new\n"}}})
    wait_for_messages(terminal, 1)

    make_tree(project, {"d": {"e": {"b.txt": "newer\n"}}})

    assert [message["files"] for message in wait_for_messages(terminal, 2)] == [1, 1]


def test_what_changes_while_a_message_is_open_belongs_to_it(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--auto", "100ms", "--detach")
    terminal.run("begin", "m1")
    make_tree(project, {"a.txt": "by m1\n"})
    # Long enough for a burst to end: the daemon has seen the changes and left them alone.
    wait_until(lambda: _count_requests(terminal) > 0)
    terminal.run("end", "m1")
    make_tree(project, {"a.txt": "by nobody\n"})

    first, second = wait_for_messages(terminal, 2)

    assert (first["id"], first["files"], first["inferred"]) == ("m1", 1, False)
    assert (second["files"], second["inferred"]) == (1, True)


def _count_requests(terminal: Terminal) -> int:
    requests: int = json.loads(terminal.run("watch", "status", "--json"))["worktrees"][0]["requests"]
    return requests


def test_in_the_foreground_each_message_is_told_and_ctrl_c_records_the_last_one(
    project: Path, terminal: Terminal
) -> None:
    with subprocess.Popen(
        [*COMMAND, "watch", "--auto", "100ms"], env=surroundings(), stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        command.stdout.readline()
        (project / "a.txt").write_text("two\n")
        told = command.stdout.readline()
        command.send_signal(signal.SIGINT)

        assert command.wait(PATIENCE_S) == 0
    assert told.startswith("Message auto-")
    assert told.endswith("changed 1 file\n")


def test_recording_ends_with_who_wanted_it_while_watching_goes_on(project: Path, terminal: Terminal) -> None:
    """Recording stops with `watch --auto`, but `watch --detach` keeps the worktree watched."""
    terminal.run("watch", "--detach")
    with subprocess.Popen(
        [*COMMAND, "watch", "--auto", "1h"], env=surroundings(), stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        command.stdout.readline()
        assert "  changes are recorded in session default after 3600 s" in terminal.run("watch", "status")
        (project / "a.txt").write_text("two\n")
        command.send_signal(signal.SIGINT)
        command.wait(PATIENCE_S)

    wait_until(lambda: "are recorded" not in terminal.run("watch", "status"))

    assert list_served() == [os.fspath(project)]


def test_a_daemon_that_nobody_finds_any_more_records_the_last_burst_and_ends(
    project: Path, terminal: Terminal
) -> None:
    pid = terminal.run_json("watch", "--auto", "1h", "--detach")["pid"]
    make_tree(project, {"a.txt": "two\n"})
    shutil.rmtree(Endpoint(os.environ).directory)

    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert [message["files"] for message in log(terminal)] == [1]


def test_the_status_tells_the_session_of_what_is_recorded(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--auto", "1h", "--session", "s1", "--detach")

    (served,) = terminal.run_json("watch", "status")["worktrees"]
    assert (served["auto"], served["auto_session"]) == (3600, "s1")
    assert "  changes are recorded in session s1 after 3600 s without new ones\n" in terminal.run(
        "watch", "status"
    )


def test_another_session_does_not_take_the_place_of_the_one_that_records(
    project: Path, terminal: Terminal
) -> None:
    terminal.run("watch", "--auto", "1h", "--session", "s1", "--detach")

    terminal.run("watch", "--auto", "1m", "--session", "s2", "--detach", exit_code=1)
    assert terminal.err == (
        f"shadowtree: the daemon already records changes of {project} in session 's1', not in 's2'; "
        "run 'shadowtree watch stop' first\n"
    )
    (served,) = terminal.run_json("watch", "status")["worktrees"]
    assert (served["auto"], served["auto_session"]) == (3600, "s1")


def test_the_same_session_may_ask_for_another_quiet_time(project: Path, terminal: Terminal) -> None:
    terminal.run("watch", "--auto", "1h", "--detach")
    terminal.run("watch", "--auto", "1m", "--detach")

    (served,) = terminal.run_json("watch", "status")["worktrees"]
    assert (served["auto"], served["auto_session"]) == (60, "default")
