"""A hook that fails in any way: the agent is not disturbed, and `doctor` tells it afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from shadowtree import Shadow, find_worktree
from shadowtree.cli.hooks.log import call_file, log_file
from tests.agents.calling import BEGIN, TURN, messages_of, read_log, run_hook
from tests.agents.replay import HOME_THEN, load
from tests.support.daemons import wait_until
from tests.support.mounts import mounted_tmpfs
from tests.support.processes import COMMAND, surroundings

UNREADABLE = """
import os, sys
from shadowtree.cli.hooks import hook
plain = os.open
def refuse(path, *rest, **named):
    if path in (os.environ["UNREADABLE"], os.fsencode(os.environ["UNREADABLE"])):
        raise PermissionError(13, "Permission denied", path)
    return plain(path, *rest, **named)
os.open = refuse
sys.exit(hook.run(sys.argv[1:]))
"""
"""A hook that may not open the worktree; root could."""


@pytest.fixture(autouse=True)
def _no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")


def read_doctor(worktree: Path, **variables: str) -> str:
    """Ask the doctor, who finds something wrong; give what it says of that."""
    done = subprocess.run(
        [*COMMAND, "-C", worktree, "doctor"],
        env=surroundings(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("problem"))


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"x"',
        "\ud800",
        '{"hook_event_name": 7}',
        "[" * 100_000,
        '{"a": ' * 100_000,
    ],
    ids=["empty", "broken", "list", "null", "number", "text", "bytes", "types", "deep list", "deep object"],
)
def test_a_bad_payload_is_noted_and_nothing_else(worktree: Path, payload: str) -> None:
    assert run_hook(payload, worktree) is None
    assert find_worktree(worktree) is None
    if payload.startswith('{"hook'):
        assert read_log() == []  # an event that nobody subscribed to
    else:
        assert "claude-code -: the payload is not " in read_doctor(worktree)


def test_a_huge_payload_is_read_to_its_end_and_not_looked_at(worktree: Path) -> None:
    payload = load("claude-code/PostToolUse") | {"tool_response": "x" * (17 << 20)}

    assert run_hook(payload, worktree) is None
    assert "bytes, more than" in read_doctor(worktree)


@pytest.mark.parametrize("words", [["robot"], ["--agent"], [""], ["../../x"]], ids=repr)
def test_an_agent_that_nobody_knows_is_noted(worktree: Path, words: list[str]) -> None:
    """A wrong line in an agent's settings would otherwise stop the user's prompts."""
    assert run_hook(load(BEGIN), worktree, *words) is None
    assert "no agent is called" in read_doctor(worktree)


def test_a_damaged_store_is_noted(worktree: Path) -> None:
    run_hook(load(BEGIN), worktree)
    with Shadow(worktree) as shadow:
        store = shadow.store
    (store / "timeline.db").write_bytes(b"no database" * 1000)

    assert run_hook(load("claude-code/Stop"), worktree) is None
    assert "damaged" in read_doctor(worktree)


def test_a_store_of_a_newer_version_is_noted(worktree: Path) -> None:
    run_hook(load(BEGIN), worktree)
    with Shadow(worktree) as shadow:
        identity = shadow.store / "shadowtree.json"
    document = json.loads(identity.read_text())
    identity.write_text(json.dumps(document | {"format": 999}))

    assert run_hook(load("claude-code/Stop"), worktree) is None
    assert "format 999" in read_doctor(worktree)


def test_a_full_disk_is_noted(worktree: Path) -> None:
    (worktree / "a.txt").write_text("a\n")

    assert run_hook(load(BEGIN), worktree, SHADOWTREE_MIN_FREE="900T") is None
    assert "not enough space" in read_doctor(worktree)


def test_a_store_that_is_locked_is_noted(worktree: Path) -> None:
    run_hook(load("codex/UserPromptSubmit"), worktree, "codex")
    with Shadow(worktree) as shadow, shadow._access.locked():
        begun_s = time.monotonic()
        assert run_hook(load("codex/SessionEnd"), worktree, "codex") is None

    assert time.monotonic() - begun_s < 3.0, "Codex gives it no more"
    assert "is locked by process" in read_doctor(worktree)


def test_a_directory_that_cannot_be_read_is_noted(worktree: Path) -> None:
    assert run_hook(load(BEGIN), worktree, code=UNREADABLE, UNREADABLE=str(worktree)) is None
    assert "permission denied" in read_doctor(worktree)
    assert find_worktree(worktree) is None


@pytest.mark.parametrize("directory", ["/nowhere/at/all", "/etc/passwd"])
def test_a_directory_that_is_none_is_noted(worktree: Path, directory: str) -> None:
    assert run_hook(load(BEGIN) | {"cwd": directory}, worktree) is None
    assert "claude-code UserPromptSubmit: " in read_doctor(worktree)


def test_settings_that_cannot_be_read_are_noted(worktree: Path) -> None:
    assert run_hook(load(BEGIN), worktree, SHADOWTREE_MAX_FILES="many") is None
    assert "SHADOWTREE_MAX_FILES" in read_doctor(worktree)


def test_without_a_home_there_is_nothing_to_do(worktree: Path) -> None:
    assert run_hook(load(BEGIN), worktree, HOME="", SHADOWTREE_HOME="") is None


def test_the_log_is_private_and_of_bounded_size(worktree: Path) -> None:
    run_hook("{", worktree)
    path = Path(log_file(os.environ["SHADOWTREE_HOME"]))
    path.write_text("x" * (1 << 20))
    run_hook("{", worktree)
    run_hook("{", worktree)

    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_log()) == 1
    assert path.with_name("log.1").exists()


def test_a_line_of_the_log_is_one_line(worktree: Path) -> None:
    run_hook(load(BEGIN), worktree, "claude\n2026-01-01 forged\x1b[2J")

    (line,) = read_log()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGTERM, "claude-code Stop: the agent ended it before it was done"),
        (signal.SIGKILL, "a hook of Claude Code was killed 0 s ago"),
    ],
    ids=["SIGTERM", "SIGKILL"],
)
def test_it_can_be_ended_while_it_waits(worktree: Path, number: int, told: str) -> None:
    """Agents end a hook that takes too long; one of them waits until it is gone."""
    run_hook(load(BEGIN), worktree)
    with Shadow(worktree) as shadow, shadow._access.locked():
        process = subprocess.Popen(
            [*COMMAND, "hook", "claude-code"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        called = Path(call_file(os.environ["SHADOWTREE_HOME"], "claude-code"))
        before = called.stat().st_mtime_ns
        process.stdin.write(json.dumps(load("claude-code/Stop")).replace(HOME_THEN, str(worktree)).encode())
        process.stdin.close()
        wait_until(lambda: called.stat().st_mtime_ns != before)
        process.send_signal(number)
        assert process.wait(10) == (0 if number == signal.SIGTERM else -number)
        assert process.stdout.read() == b""
        process.stdout.close()

    assert re.sub(r"\d+ s ago", "0 s ago", told) in re.sub(r"\d+ s ago", "0 s ago", read_doctor(worktree))
    assert run_hook(load("claude-code/Stop"), worktree) is None
    assert messages_of(worktree) == [f"{TURN} active"]


def test_hooks_that_run_and_hooks_that_were_killed_long_ago_are_no_problem(worktree: Path) -> None:
    run_hook(load(BEGIN), worktree)
    directory = Path(log_file(os.environ["SHADOWTREE_HOME"])).parent
    running = directory / f"running-claude-code-{os.getpid()}"
    killed = directory / f"running-codex-{find_free_pid()}"
    for path in (running, killed):
        path.touch()
    os.utime(killed, (0, 0))
    done = subprocess.run([*COMMAND, "-C", worktree, "doctor"], env=surroundings(), check=False)

    assert done.returncode == 0
    assert running.exists()
    assert not killed.exists()


def find_free_pid() -> int:
    """Give a process that is over."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_disk_without_any_room_is_told_although_nothing_can_be_logged(
    worktree: Path, tmp_path: Path
) -> None:
    (worktree / "a.txt").write_text("a\n" * 1000)
    (tmp_path / "full").mkdir()
    with mounted_tmpfs(tmp_path / "full", "size=64k") as full:
        while True:
            try:
                (full / f"{len(os.listdir(full))}").write_bytes(bytes(4096))
            except OSError:
                break
        assert run_hook(load(BEGIN), worktree, SHADOWTREE_HOME=str(full)) is None
        assert "are free" in read_doctor(worktree, SHADOWTREE_HOME=str(full))


def test_a_payload_that_never_comes_is_given_up(worktree: Path) -> None:
    reading, writing = os.pipe()
    begun_s = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "hook", "codex"], stdin=reading, env=surroundings(), timeout=30, check=False
    )
    os.close(reading)
    os.close(writing)

    assert done.returncode == 0
    assert time.monotonic() - begun_s < 3.0
    assert "gave up after" in read_doctor(worktree)
