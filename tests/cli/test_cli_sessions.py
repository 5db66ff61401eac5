"""The session that a command uses; `sessions`, `uninstall`, and commands on all stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from shadowtree import InvalidInput, Shadow, list_stores
from tests.support.daemons import daemon, serve_kept
from tests.support.searching import find_bytes
from tests.support.stores import store_of
from tests.support.terminal import Terminal


def record(terminal: Terminal, project: Path, session: str, id: str, *words: str) -> None:
    terminal.run("begin", id, "--session", session, *words)
    (project / f"{id}.txt").write_text(id)
    terminal.run("end", id, "--session", session)


def log_ids(terminal: Terminal, *words: str) -> list[str]:
    return [entry["id"] for entry in terminal.run_json("log", *words)]


@contextmanager
def answered_by_daemon(project: Path) -> Iterator[None]:
    with daemon():
        serve_kept(project)
        yield


# The session of a command


@pytest.mark.parametrize("is_served", [False, True])
def test_commands_mean_the_session_that_recorded_last_and_name_it(
    terminal: Terminal, project: Path, is_served: bool
) -> None:
    record(terminal, project, "default", "m1")
    record(terminal, project, "B", "b1")

    with answered_by_daemon(project) if is_served else nullcontext():
        assert log_ids(terminal) == ["b1"]
        assert terminal.err == "shadowtree: using session B, which recorded last\n"
        assert terminal.run_json("undo")["messages"] == ["b1"]
        assert terminal.run_json("redo")["messages"] == ["b1"]
        assert log_ids(terminal, "--session", "default") == ["m1"]
        assert terminal.err == ""
        for words in (["sessions"], ["log", "--all"], ["sessions", "drop", "B", "--dry-run"]):
            terminal.run(*words)
            assert terminal.err == "", "all sessions are meant, or another one"
        assert terminal.run_json("snapshot", "m2")["session"] == "default"
        assert log_ids(terminal) == ["m1", "m2"]
        assert terminal.err == ""


@pytest.mark.parametrize("is_served", [False, True])
def test_an_act_is_refused_while_a_message_of_another_session_is_open(
    terminal: Terminal, project: Path, is_served: bool
) -> None:
    terminal.run("begin", "a1", "--session", "A")
    record(terminal, project, "default", "m1")

    with answered_by_daemon(project) if is_served else nullcontext():
        for words in (["undo"], ["undo", "--dry-run"], ["revert", "m1"]):
            found = terminal.run_json(*words, exit_code=2)
            assert found["error"] == "AmbiguousSession"
            assert "'default' recorded last, but 'A' has an open message, 'a1'" in terminal.err
        assert terminal.run_json("status")["session"] == "default"
    assert terminal.run_json("undo", "--session", "default")["messages"] == ["m1"]


def test_the_environment_names_a_session_too(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(terminal, project, "A", "a1")
    record(terminal, project, "B", "b1")
    monkeypatch.setenv("SHADOWTREE_SESSION", "A")

    assert log_ids(terminal) == ["a1"]
    assert terminal.err == ""


# B2, and sessions


def test_forget_acts_on_one_session_unless_told(terminal: Terminal, project: Path) -> None:
    for session in ("default", "A", "B"):
        for number in (1, 2):
            record(terminal, project, session, f"{session}{number}")

    terminal.run("forget", "--session", "B", "--keep-last", "1")
    assert [len(log_ids(terminal, "--session", each)) for each in ("default", "A", "B")] == [2, 2, 1]
    terminal.run("forget", "--keep-last", "1", "--keep-session", "A", exit_code=2)
    terminal.run("forget", "--all-sessions", "--keep-last", "1", "--keep-session", "A")
    assert [len(log_ids(terminal, "--session", each)) for each in ("default", "A", "B")] == [1, 2, 1]


def test_sessions_are_listed(terminal: Terminal, project: Path) -> None:
    record(terminal, project, "default", "m1")
    record(terminal, project, "B", "b1", "--meta", '{"agent": "helper"}')
    terminal.run("begin", "b2", "--session", "B", "--meta", '{"agent": "helper"}')

    found: list[dict[str, Any]] = terminal.run_json("sessions")

    assert [{key: each[key] for key in ("id", "messages", "head", "agent")} for each in found] == [
        {"id": "default", "messages": 1, "head": "m1", "agent": None},
        {"id": "B", "messages": 2, "head": "b1", "agent": "helper"},
    ]
    assert all(each["time"].endswith("+00:00") for each in found)
    assert "open message b2" in terminal.run("sessions")


def test_a_session_is_dropped_whole(terminal: Terminal, project: Path) -> None:
    record(terminal, project, "default", "m1")
    record(terminal, project, "B", "b1")

    assert terminal.run_json("sessions", "drop", "B", "--dry-run")["forgotten"]
    terminal.run("sessions", "drop", "B", exit_code=13)
    terminal.run("sessions", "drop", "none", "--yes", exit_code=12)
    terminal.run("sessions", "drop", "B", "--yes")

    assert [each["id"] for each in terminal.run_json("sessions")] == ["default"]
    assert log_ids(terminal) == ["m1"]
    assert (project / "b1.txt").exists()
    record(terminal, project, "B", "b1")
    assert log_ids(terminal) == ["b1"]
    assert terminal.run_json("undo")["messages"] == ["b1"]
    assert terminal.run_json("check")["ok"]


def test_a_session_with_an_open_or_pinned_message_is_not_dropped_unless_forced(
    shadow: Shadow, worktree: Path
) -> None:
    b, c = shadow.for_session("B"), shadow.for_session("C")
    shadow.snapshot("m1")
    b.begin("b1")
    c.snapshot("c1")
    c.pin("c1")

    for session in ("B", "C"):
        with pytest.raises(InvalidInput):
            shadow.drop_session(session)
        assert len(shadow.drop_session(session, force=True).messages) == 1
    assert [entry.id for entry in shadow.sessions()] == ["default"]
    assert b.begin("b1").id == "b1"


def test_gc_keeps_so_many_sessions(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0, "max_sessions": 2}) as shadow:
        for number in range(4):
            shadow.for_session(f"s{number}").snapshot("m")
        shadow.for_session("s0").pin("m")

        shadow.forget()
        assert len(shadow.sessions()) == 4
        shadow.gc()

        assert [entry.id for entry in shadow.sessions()] == ["s0", "s2", "s3"]
        assert shadow.check().ok


# B4


@pytest.mark.parametrize("deletes", [False, True])
def test_a_second_purge_removes_what_the_first_one_left(
    terminal: Terminal, project: Path, deletes: bool
) -> None:
    secret = "sk_live_8d1f03c2a7"
    for name in ("key.txt", "copy.txt"):
        (project / name).write_text(f"{secret}\n")
    terminal.run("snapshot", "m1")
    if deletes:
        for name in ("key.txt", "copy.txt"):
            (project / name).unlink()
        terminal.run("snapshot", "m2")

    terminal.run("purge", "key.txt", "--yes", exit_code=1)
    terminal.run("purge", "key.txt", "--yes", exit_code=1)
    assert "copy.txt" in terminal.run_json("purge", "key.txt", "--yes", exit_code=1)["also_at"]
    terminal.run("purge", "key.txt", "--everywhere", "--yes")

    assert find_bytes(store_of(project), [secret.encode()]) == []
    assert "already been purged" in terminal.run("purge", "key.txt", "--everywhere", "--yes")
    terminal.run("snapshot", "m3")
    assert find_bytes(store_of(project), [secret.encode()]) == []


# Uninstalling


def test_destroy_all_removes_every_store_after_asking(
    terminal: Terminal, project: Path, tmp_path: Path
) -> None:
    terminal.run("track")
    (tmp_path / "other").mkdir()
    terminal.run("wrap", str(tmp_path / "other"))

    terminal.run("destroy", "--all", exit_code=13)
    assert len(terminal.run_json("destroy", "--all", "--dry-run")["removed"]) == 2
    assert len(list_stores(os.environ)) == 2
    terminal.run("destroy", "--all", "--yes")

    assert list_stores(os.environ) == []
    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]


def test_uninstall_ends_the_daemon_and_lists_the_stores(terminal: Terminal, project: Path) -> None:
    terminal.run("track")
    place = store_of(project).parent / "daemon"
    with daemon():
        serve_kept(project)
        assert str(place) in terminal.run("uninstall", "--dry-run")
        assert place.exists()
        found = terminal.run_json("uninstall")

    assert str(place) in found["removed"]
    assert not place.exists()
    (store,) = found["stores"]
    assert store["command"] == f"shadowtree destroy --store {store_of(project)}"
    assert store_of(project).exists()
    assert "Nothing to remove" in terminal.run("uninstall")
