"""The command `shadowtree ui`: it prints the address, serves until Ctrl-C, and ends cleanly."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.support.processes import COMMAND, surroundings
from tests.support.terminal import Terminal
from tests.support.trees import assert_tree
from tests.web.client import Client


@contextmanager
def serving(
    worktree: Path, *options: str, **variables: str
) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    command = [*COMMAND, "ui", "--json", *options]
    process = subprocess.Popen(
        command,
        cwd=worktree,
        env=surroundings(**variables),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        told = json.loads(line)
        assert told["url"] == f"http://127.0.0.1:{told['port']}/#{told['token']}"
        yield Client(told["port"], told["token"]), process
    finally:
        process.kill()
        process.communicate()


def test_the_address_is_printed_and_the_token_lets_in(history: Shadow, worktree: Path) -> None:
    with serving(worktree, "--no-open") as (client, _):
        assert client.get("/api/state")["head"] == "four"
        client.act("/api/undo")
        assert_tree(worktree, {"a": "2\n", "b": "1\n", "same": "same\n"})
        assert len(client.token) >= 32


def test_a_person_gets_the_address_and_how_to_stop(history: Shadow, worktree: Path) -> None:
    command = [*COMMAND, "ui", "--no-open"]
    env = surroundings(PAGER="false")
    with subprocess.Popen(
        command, cwd=worktree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=10)
        assert process.returncode == 0

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[\w-]{32}\n", address)
    assert rest == ""
    assert said in ("", f"shadowtree: serving {worktree} until you press Ctrl-C\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_and_cleanly(history: Shadow, worktree: Path, number: int) -> None:
    with serving(worktree, "--no-open") as (client, process), client.events() as events:
        next(events)
        start_s = time.monotonic()
        process.send_signal(number)
        _, said = process.communicate(timeout=10)

    assert (process.returncode, said) == (0, "")
    assert time.monotonic() - start_s < 2


def test_a_session_and_read_only_can_be_given(history: Shadow, worktree: Path) -> None:
    with history.for_session("other").message("x"):
        pass
    with serving(worktree, "--no-open", "--session", "default", "--read-only") as (client, _):
        state = client.get("/api/state")
        assert (state["session"], state["read_only"]) == ("default", True)
        assert client.post("/api/undo", expect=client.plan("/api/undo")["id"]).status == 403


def test_a_port_that_is_taken_is_told_in_one_line(history: Shadow, worktree: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*COMMAND, "ui", "--no-open", "--port", str(port)]
        ended = subprocess.run(
            command, cwd=worktree, env=surroundings(), text=True, capture_output=True, check=False
        )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"shadowtree: cannot listen on port {port}: address already in use\n"


def test_the_same_port_can_be_used_again_at_once(history: Shadow) -> None:
    with Server(history) as first:
        Client.of(first).get("/api/state")
        with Client.of(first).events() as events:
            next(events)
            first.close()
    with Server(history, port=first.port) as second:
        assert Client.of(second).get("/api/state")["head"] == "four"


def test_a_directory_that_is_not_wrapped_is_told(worktree: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "ui"], cwd=worktree, env=surroundings(), text=True, capture_output=True, check=False
    )

    assert ended.returncode == 10
    assert "is not wrapped" in ended.stderr


@pytest.mark.parametrize(
    ("options", "variables", "is_opened"),
    [
        ([], {"DISPLAY": ":9", "CI": "", "SSH_CONNECTION": ""}, True),
        (["--no-open"], {"DISPLAY": ":9", "CI": "", "SSH_CONNECTION": ""}, False),
        ([], {"DISPLAY": ":9", "CI": "1", "SSH_CONNECTION": ""}, False),
        ([], {"DISPLAY": "", "WAYLAND_DISPLAY": "", "CI": "", "SSH_CONNECTION": ""}, False),
        ([], {"DISPLAY": ":9", "CI": "", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, False),
    ],
    ids=["display", "no-open", "ci", "no-display", "ssh"],
)
@pytest.mark.skipif(sys.platform == "darwin", reason="a display is always there")
def test_a_browser_is_opened_where_there_is_a_display(
    history: Shadow,
    worktree: Path,
    tmp_path: Path,
    options: list[str],
    variables: dict[str, str],
    is_opened: bool,
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    with serving(worktree, *options, BROWSER=f"{browser} %s", **variables) as (client, _):
        deadline_s = time.monotonic() + (10 if is_opened else 0.5)
        while not opened.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert opened.exists() == is_opened
        assert not is_opened or client.token not in opened.read_text()


@contextmanager
def showing(worktree: Path, tmp_path: Path) -> Iterator[tuple[Client, subprocess.Popen[str], Path]]:
    """Serve, and wait for the file that the browser is started with."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    variables = {"BROWSER": f"{browser} %s", "DISPLAY": ":9", "CI": "", "SSH_CONNECTION": ""}
    with serving(worktree, **variables) as (client, process):
        deadline_s = time.monotonic() + 10
        while not opened.exists() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        yield client, process, Path(unquote(urlsplit(opened.read_text()).path))


def test_the_token_is_in_a_private_file_and_not_in_the_command_line(
    history: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """Every user of a machine can read the command lines of all processes."""
    with showing(worktree, tmp_path) as (client, process, file):
        assert f'"0; url=http://127.0.0.1:{client.port}/#{client.token}"' in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)

    assert process.returncode == 0
    assert not file.parent.exists()


@pytest.mark.parametrize("port", ["abc", "-1", "65536"])
def test_a_port_that_is_none_is_refused(terminal: Terminal, port: str) -> None:
    terminal.run("ui", "--port", port, exit_code=2)

    assert "--port must be 0 to 65535" in terminal.err


def test_without_a_private_place_it_serves_and_opens_nothing(
    history: Shadow, worktree: Path, tmp_path: Path
) -> None:
    (Path(history.store).parent / "ui").write_text("in the way\n")
    variables = {"BROWSER": "false %s", "DISPLAY": ":9", "CI": "", "SSH_CONNECTION": ""}
    with serving(worktree, **variables) as (client, process):
        assert client.get("/api/state")["head"] == "four"
        assert process.stderr is not None
        assert process.stderr.readline().startswith("shadowtree: no browser is opened: ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)

    assert process.returncode == 0


def test_uninstall_removes_what_a_killed_server_left(history: Shadow, worktree: Path, tmp_path: Path) -> None:
    with showing(worktree, tmp_path) as (_, process, file):
        process.kill()
        process.wait()
    assert file.exists()
    command = [*COMMAND, "uninstall", "--json"]
    ended = subprocess.run(command, env=surroundings(), text=True, capture_output=True, check=True)

    assert json.loads(ended.stdout)["removed"][-2:] == [str(file), str(file.parent)]
    assert not file.parent.exists()
