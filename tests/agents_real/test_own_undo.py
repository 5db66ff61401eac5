"""OpenCode and Kilo have an undo of their own: they change the files, and our timeline follows."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.agents_real import programs
from tests.agents_real.programs import PROGRAMS
from tests.agents_real.user import User
from tests.support.daemons import wait_until
from tests.support.referee import git, init

pytestmark = pytest.mark.agents

PATIENCE_S = 30.0


class Server:
    """The program, as its own clients talk to it, with one session."""

    def __init__(self, agent: str, user: User, address: str) -> None:
        self._agent = agent
        self._user = user
        self._address = address
        self._session = ""

    def ask(self, path: str, body: object = None) -> Any:  # Any: JSON
        """Ask for something; a body is posted."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._address}{path}", content, {"content-type": "application/json"})
        with urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        try:
            self.ask("/session")
        except OSError:
            return False
        return True

    def prompt(self, text: str, command: str) -> str:
        """Have a turn in which the model runs a command; give the id of the prompt."""
        self._session = self._session or self.ask("/session", {})["id"]
        self._user.model.play(text, PROGRAMS[self._agent].shell(command))
        parts = [{"type": "text", "text": text}]
        answer = self.ask(f"/session/{self._session}/message", {"parts": parts})
        id: str = answer["info"]["parentID"]
        return id

    def revert(self, prompt: str) -> None:
        self.ask(f"/session/{self._session}/revert", {"messageID": prompt})

    def unrevert(self) -> None:
        self.ask(f"/session/{self._session}/unrevert", {})


@pytest.fixture
def server(agent: str, user: User) -> Iterator[Server]:
    """The server of a program with our hooks, in a repository: its undo needs one."""
    init(user.worktree)
    git("commit", "--allow-empty", "-qm", "begin", cwd=user.worktree)
    user.connect(agent)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = programs.make_command(agent, ["serve", "--port", str(port)])
    environ = programs.make_environment(agent, user.home, user.model.address)
    with subprocess.Popen(
        command,
        cwd=user.worktree,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        server = Server(agent, user, f"http://127.0.0.1:{port}")
        wait_until(server.is_up)
        yield server
        process.kill()


@pytest.mark.parametrize("agent", ["opencode", "kilo"], indirect=True)
def test_the_timeline_follows_and_no_file_is_written_by_us(agent: str, user: User, server: Server) -> None:
    kept = Path(user.path("kept"))

    def is_now(content: str, *states: str) -> bool:
        return kept.read_text() == f"{content}\n" and [state for _, _, state in user.log()] == [*states]

    server.prompt("the first", "echo 1 > kept")
    second = server.prompt("the second", "echo 2 > kept")
    third = server.prompt("the third", "echo 3 > kept")
    wait_until(lambda: is_now("3", "active", "active", "active"))
    server.revert(second)
    wait_until(lambda: is_now("1", "active", "undone", "undone"))
    server.revert(third)
    wait_until(lambda: is_now("2", "active", "active", "undone"))
    server.unrevert()
    wait_until(lambda: is_now("3", "active", "active", "active"))
    server.revert(second)
    wait_until(lambda: is_now("1", "active", "undone", "undone"))
    server.prompt("another second", "echo 4 > kept")

    wait_until(lambda: sorted(state for *_, state in user.log()) == ["active"] * 2 + ["archived"] * 2)
    assert not user.model.was_told("the user changed files back with shadowtree")
    user.shadowtree("undo")
    assert kept.read_text() == "1\n"
