"""`shadowtree doctor`: one line for each thing that is wrong, with what to do about it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shadowtree
from shadowtree import Shadow
from shadowtree.cli.main import main
from tests.support.trees import make_tree

Doctor = Callable[[], tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A shadowtree of this version."""
    path = tmp_path / "bin" / "shadowtree"
    path.parent.mkdir()
    write_version(path, shadowtree.__version__)
    return path


def write_version(path: Path, version: str) -> None:
    path.write_text(f"#!/bin/sh\necho shadowtree, version {version}\n")
    path.chmod(0o755)


@pytest.fixture
def doctor(
    program: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Doctor:
    monkeypatch.chdir(worktree)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def call() -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        exit_code = main(["doctor", "--json", "--set", "min_free=0"])
        return exit_code, json.loads(capsys.readouterr().out)

    return call


def install(agent: str, program: Path) -> None:
    assert main(["hooks", "install", agent, "--executable", str(program)]) == 0


def find(findings: list[dict[str, Any]], check: str) -> list[tuple[str, str, str | None]]:
    return [(each["level"], each["about"], each["todo"]) for each in findings if each["check"] == check]


def call_hook(stores: Path, agent: str) -> None:
    (stores / "hooks" / f"last-{agent}").touch()


def test_without_anything_it_says_how_to_begin(doctor: Doctor) -> None:
    exit_code, findings = doctor()

    assert exit_code == 0
    [(level, about, todo)] = find(findings, "program")[1:]
    assert (level, about) == ("note", "no agent is connected")
    assert todo is not None
    assert todo.startswith("run 'shadowtree hooks install AGENT' with one of claude-code, codex, gemini")
    assert find(findings, "directory")[0][0] == "note"


def test_with_an_agent_that_is_here_it_says_how_to_connect_all(doctor: Doctor) -> None:
    (Path(os.environ["HOME"]) / ".gemini").mkdir()
    _, findings = doctor()

    assert find(findings, "program")[1][2] == "run 'shadowtree hooks install --all-detected'"


@pytest.mark.parametrize("place", ["/", "HOME"])
def test_a_broad_directory_is_not_said_to_be_recorded_by_and_by(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(os.environ.get(place, place))
    _, findings = doctor()

    [(level, about, todo)] = find(findings, "directory")
    assert level == "note"
    assert "is too broad to wrap: it is" in about
    assert todo == "start agents in a project's directory"


def test_an_agent_that_is_here_but_not_connected(doctor: Doctor) -> None:
    (Path(os.environ["HOME"]) / ".gemini").mkdir()
    _, findings = doctor()

    assert find(findings, "gemini") == [
        ("note", "Gemini CLI is here, but not connected", "run 'shadowtree hooks install gemini'")
    ]


def test_hooks_that_never_ran_and_hooks_that_did(doctor: Doctor, program: Path, stores: Path) -> None:
    install("claude-code", program)
    exit_code, never = doctor()
    call_hook(stores, "claude-code")
    _, once = doctor()

    [(level, about, todo)] = find(never, "claude-code")
    assert (exit_code, level) == (0, "note")
    assert "never run" in about
    assert todo == "start a new session of Claude Code and send a message"
    assert find(once, "claude-code") == [("ok", "Claude Code: connected, its hooks ran 0 s ago", None)]


def test_a_program_that_is_gone(doctor: Doctor, program: Path) -> None:
    install("opencode", program)
    program.unlink()
    exit_code, findings = doctor()

    [(level, about, todo)] = find(findings, "opencode")
    assert (exit_code, level) == (1, "problem")
    assert str(program) in about
    assert todo == "run 'shadowtree hooks install opencode'"


def test_a_program_of_another_version(doctor: Doctor, program: Path) -> None:
    install("copilot", program)
    write_version(program, "9.9.9")
    _, findings = doctor()

    [(_, about, _)] = find(findings, "copilot")
    assert "version 9.9.9" in about


def test_hooks_of_which_some_are_missing(doctor: Doctor, program: Path) -> None:
    install("qwen", program)
    path = Path(os.environ["HOME"]) / ".qwen" / "settings.json"
    settings = json.loads(path.read_text())
    del settings["hooks"]["Stop"]
    path.write_text(json.dumps(settings))
    exit_code, findings = doctor()

    assert exit_code == 1
    assert find(findings, "qwen")[0][:2] == ("problem", "Qwen Code: not all is installed, missing Stop")


def test_settings_that_cannot_be_read(doctor: Doctor, program: Path) -> None:
    install("claude-code", program)
    path = Path(os.environ["HOME"]) / ".claude" / "settings.json"
    path.write_text(path.read_text() + "// mine\n")
    exit_code, findings = doctor()

    assert exit_code == 1
    assert "comments are not strict JSON" in find(findings, "claude-code")[0][1]


def test_hooks_that_are_turned_off_in_claude_code(doctor: Doctor, program: Path) -> None:
    install("claude-code", program)
    path = Path(os.environ["HOME"]) / ".claude" / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "disableAllHooks": True}))
    exit_code, findings = doctor()

    assert exit_code == 1
    assert "disableAllHooks" in find(findings, "claude-code")[0][1]


def test_hooks_that_codex_does_not_trust(doctor: Doctor, program: Path) -> None:
    install("codex", program)
    path = Path(os.environ["HOME"]) / ".codex" / "hooks.json"
    events = list(json.loads(path.read_text())["hooks"])
    untrusted, before = doctor()
    snake = {"SessionStart": "session_start", "UserPromptSubmit": "user_prompt_submit"}
    snake |= {"PreToolUse": "pre_tool_use", "PostToolUse": "post_tool_use", "SessionEnd": "session_end"}
    keys = [f"{path}:{snake.get(event, event.lower())}:0:0" for event in events]
    trust = "".join(f'[hooks.state."{key}"]\ntrusted_hash = "sha256:00"\n' for key in keys)
    (path.parent / "config.toml").write_text(trust)
    trusted, after = doctor()

    assert (untrusted, trusted) == (1, 0)
    assert "7 of 7 hooks are not trusted" in find(before, "codex")[0][1]
    assert "Trust all" in (find(before, "codex")[0][2] or "")
    assert "not trusted" not in find(after, "codex")[0][1]


def test_what_hooks_logged_today_is_a_problem(doctor: Doctor, stores: Path) -> None:
    log = stores / "hooks" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("2020-01-01T00:00:00Z codex Stop: long ago\n")
    old, _ = doctor()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with log.open("a") as file:
        file.write(f"{stamp} codex Stop: the store is damaged\n")
    exit_code, findings = doctor()

    assert (old, exit_code) == (0, 1)
    [(_, about, todo)] = find(findings, "errors")
    assert "1 time" in about
    assert about.endswith("codex Stop: the store is damaged")
    assert todo == f"all errors are in {log}; delete that file once the cause is gone"


def test_a_lock_that_is_held_and_what_is_not_protected(doctor: Doctor, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "a.log": "x", "b": "y"})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.track()
        store = Path(shadow.store)
    with (store / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, held = doctor()
    exit_code, free = doctor()

    assert find(held, "lock")[0][0] == "note"
    assert f"process {os.getpid()}" in find(held, "lock")[0][1]
    assert exit_code == 0
    assert find(free, "lock")[0][0] == "ok"
    todo = "run 'shadowtree protect PATH' to protect one"
    assert ("note", "1 ignored entry is not protected", todo) in find(free, "directory")


def test_a_disk_that_is_nearly_full(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    doctor()
    exit_code = main(["doctor", "--set", "min_free=900000000000000"])

    assert exit_code == 1
    assert "problem  only" in capsys.readouterr().out


def test_a_store_that_is_damaged_is_told_and_the_rest_is_checked(doctor: Doctor, worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.track()
        (Path(shadow.store) / "timeline.db").write_bytes(b"garbage" * 1000)
    exit_code, findings = doctor()

    assert exit_code == 1
    assert find(findings, "disk")[0][0] == "ok"
