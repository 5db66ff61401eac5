"""Events tell what any process records or undoes, at once; whoever leaves costs nothing."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from shadowtree import Outcome, Shadow
from shadowtree.web.server import Server
from tests.support.processes import COMMAND, surroundings
from tests.web.client import Client

WITHIN_S = 1.0


def test_events_begin_with_where_they_stand(client: Client) -> None:
    number = client.get("/api/state")["number"]

    with client.events() as events:
        assert next(events) == ("hello", {"number": number})


def test_what_this_process_does_is_told(client: Client, worktree: Path) -> None:
    with client.events() as events:
        _, hello = next(events)
        client.act("/api/undo")
        kind, update = next(events)

    assert (kind, update["kind"], update["session"], update["message"]) == ("update", "undo", "default", None)
    assert update["number"] > hello["number"]


def test_what_another_process_records_is_told_within_a_second(client: Client, worktree: Path) -> None:
    """The time counts from when the command is over, as the user sees it."""
    with client.events() as events:
        next(events)
        (worktree / "n").write_text("new\n")
        subprocess.run(
            [*COMMAND, "snapshot", "five"], cwd=worktree, env=surroundings(), check=True, capture_output=True
        )
        recorded_s = time.monotonic()
        kind, update = next(events)
        told_s = time.monotonic()

    assert (kind, update["kind"], update["message"]) == ("update", "snapshot", "five")
    assert told_s - recorded_s < WITHIN_S
    assert client.get("/api/timeline")["rows"][-1]["id"] == "five"


def test_two_pages_and_a_terminal_see_what_the_others_do(client: Client, worktree: Path) -> None:
    with client.events() as one, client.events() as two:
        next(one)
        next(two)
        client.act("/api/undo")
        assert [next(one)[1]["kind"], next(two)[1]["kind"]] == ["undo", "undo"]
        subprocess.run([*COMMAND, "redo"], cwd=worktree, env=surroundings(), check=True, capture_output=True)
        done_s = time.monotonic()
        assert [next(one)[1]["kind"], next(two)[1]["kind"]] == ["redo", "redo"]
        assert time.monotonic() - done_s < WITHIN_S


def test_a_client_that_comes_back_gets_what_it_missed(client: Client, history: Shadow) -> None:
    number = client.get("/api/state")["number"]
    history.begin("five")
    history.end("five")

    with client.events(f"/api/events?after={number}") as events:
        told = [next(events) for _ in range(3)]
    assert [document.get("kind") for _, document in told] == [None, "begin", "end"]
    assert [document.get("message") for _, document in told] == [None, "five", "five"]


def test_a_client_that_leaves_costs_nothing(client: Client, server: Server) -> None:
    before = threading.active_count()
    for _ in range(5):
        with client.events() as events:
            next(events)

    deadline_s = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_server_that_stops_hangs_up_at_once(history: Shadow) -> None:
    server = Server(history)
    with Client.of(server).events() as events:
        next(events)
        start_s = time.monotonic()
        server.close()
        assert time.monotonic() - start_s < 0.5
        assert list(events) == []


def test_a_server_that_stops_finishes_the_act_under_way(
    history: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would end with the process, in the midst of it."""
    started, order = threading.Event(), list[str]()

    def undo(self: Shadow, *turns: int, **how: object) -> Outcome:
        started.set()
        time.sleep(0.3)
        order.append("done")
        return Shadow.redo(self, dry_run=True)

    monkeypatch.setattr(Shadow, "undo", undo)
    server = Server(history)
    request = threading.Thread(target=Client.of(server).post, args=("/api/undo",), kwargs={"expect": "x"})
    request.start()
    started.wait(10)
    server.close()
    order.append("closed")
    request.join()

    assert order == ["done", "closed"]


def test_a_server_that_stops_waits_for_whoever_still_looks(
    history: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, order = threading.Event(), list[str]()

    def check(self: Shadow) -> dict[str, bool]:
        started.set()
        time.sleep(0.3)
        order.append("looked")
        return {"ok": True}

    monkeypatch.setattr(Shadow, "check", check)
    server = Server(history)
    head = f"GET /api/verify HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode())
        started.wait(10)
        server.close()
        order.append("closed")

    assert order == ["looked", "closed"]
