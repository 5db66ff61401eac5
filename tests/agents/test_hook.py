"""`shadowtree hook AGENT` as a process: what agents see of it, and what it starts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow, find_worktree
from shadowtree.agents.known_agents import AGENTS
from shadowtree.cli.hooks.log import call_file
from shadowtree.cli.hooks.payload import parse_json
from shadowtree.daemon.client import connect
from shadowtree.daemon.endpoint import Endpoint
from tests.agents.calling import BEGIN, SESSION, TURN, messages_of, read_log, run_hook
from tests.agents.replay import HOME_THEN, load
from tests.support.daemons import end_daemon, find_pid, greet, wait_until
from tests.support.processes import COMMAND, surroundings

IN_A_HURRY = """
import sys, time
from shadowtree.cli.hooks import hook
from shadowtree.system import disk
hook.FIRST_SNAPSHOT_S = 0.1
disk.before_write = lambda act, path: time.sleep(0.5)
sys.exit(hook.run(sys.argv[1:]))
"""
"""A hook on a slow disk, to which every first snapshot takes too long."""


@pytest.fixture(autouse=True)
def _no_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start none, unless the test is about that."""
    monkeypatch.setenv("CI", "true")
    yield
    end_daemon()


def is_served(worktree: Path) -> bool:
    place = Endpoint(os.environ)
    client = connect(place)
    if client is None:
        return False
    with client:
        assert client.greet() is None
        return [each["worktree"] for each in client.ask("status")["worktrees"]] == [str(worktree)]


def test_the_first_turn_of_a_directory_wraps_it_and_says_so_once(worktree: Path) -> None:
    first = run_hook(load(BEGIN), worktree)
    again = run_hook(load(BEGIN), worktree)

    assert first is not None
    assert first.keys() == {"systemMessage"}
    assert str(worktree) in first["systemMessage"]
    assert again is None
    assert messages_of(worktree) == [f"{TURN} open"]
    assert read_log() == []


@pytest.mark.parametrize(
    ("agent", "name", "shows"),
    [
        ("claude-code", "UserPromptSubmit", True),
        ("codex", "UserPromptSubmit", True),
        ("gemini", "BeforeAgent", True),
        ("qwen", "UserPromptSubmit", True),
        ("copilot", "PascalCase.UserPromptSubmit", False),
        ("cline", "TaskStart", False),
    ],
)
def test_each_agent_is_answered_in_its_own_form(worktree: Path, agent: str, name: str, shows: bool) -> None:
    begin = load(f"{agent}/{name}")
    (worktree / "a.txt").write_text("before\n")
    first = run_hook(begin, worktree, agent)
    (worktree / "a.txt").write_text("after\n")
    with Shadow(worktree) as shadow:
        (message,) = shadow.messages(all_sessions=True)
    with Shadow(worktree, session=message.session) as shadow:
        shadow.undo()
    later = {key: "11112222333344445555" for key in ("prompt_id", "turn_id", "timestamp") if key in begin}

    answer = run_hook(begin | later, worktree, agent)

    assert (first is not None) == shows
    assert answer is not None
    told = json.dumps(answer)
    assert "a.txt" in told
    if agent in ("claude-code", "codex", "gemini", "qwen"):
        assert answer["hookSpecificOutput"]["hookEventName"] == begin["hook_event_name"]
        assert "a.txt" in answer["hookSpecificOutput"]["additionalContext"]
    elif agent == "copilot":
        assert "a.txt" in answer["additionalContext"]
    else:
        assert answer["cancel"] is False
        assert "a.txt" in answer["contextModification"]


def test_ends_and_steps_print_nothing(worktree: Path) -> None:
    run_hook(load(BEGIN), worktree)

    for name in ("SessionStart", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"):
        assert run_hook(load(f"claude-code/{name}"), worktree) is None
    assert messages_of(worktree) == [f"{TURN} active"]


def test_it_notes_when_an_agent_last_called(worktree: Path) -> None:
    run_hook(load("claude-code/SubagentStop"), worktree)

    path = Path(call_file(os.environ["SHADOWTREE_HOME"], "claude-code"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert find_worktree(worktree) is None


def test_hooks_that_run_at_once_agree_on_who_begins_and_who_tells(worktree: Path) -> None:
    """Some agents start all hooks of an event at the same time, and one may be installed twice."""
    (worktree / "a.txt").write_text("before\n")
    run_hook(load(BEGIN), worktree)
    (worktree / "a.txt").write_text("after\n")
    with Shadow(worktree, session=SESSION) as shadow:
        shadow.undo()
    payload = json.dumps(load(BEGIN) | {"prompt_id": "next_turn"}).replace(HOME_THEN, str(worktree)).encode()
    command = [*COMMAND, "hook", "claude-code"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings())
        for _ in range(4)
    ]

    printed = [process.communicate(payload, 60)[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert sum(bool(each) for each in printed) == 1
    assert messages_of(worktree) == [f"{TURN} archived", "next_turn open"]


# Where it records


def test_it_records_in_the_nearest_wrapped_directory(worktree: Path) -> None:
    sub = worktree / "sub"
    (sub / "deep" / ".git").mkdir(parents=True)
    with Shadow(sub) as shadow:
        shadow.wrap()

    assert run_hook(load(BEGIN), sub / "deep") is None
    assert messages_of(sub) == [f"{TURN} open"]


def test_else_at_the_top_of_the_repository(worktree: Path) -> None:
    (worktree / ".git").mkdir()
    sub = worktree / "sub"
    sub.mkdir()

    run_hook(load(BEGIN), sub)

    assert find_worktree(sub) == str(worktree)


def test_else_in_the_project_wherever_the_shell_went(worktree: Path) -> None:
    sub = worktree / "sub" / "sub"
    sub.mkdir(parents=True)
    payload = load("claude-code/PreToolUse.after-cd")

    run_hook(load(BEGIN) | {"cwd": str(sub)}, worktree, CLAUDE_PROJECT_DIR=str(worktree))
    run_hook(payload, worktree, CLAUDE_PROJECT_DIR=str(worktree))

    assert find_worktree(sub) == str(worktree)


def test_a_home_that_is_a_repository_is_not_wrapped_but_the_project_is(tmp_path: Path) -> None:
    home = Path(os.environ["HOME"])
    (home / ".git").mkdir()
    project = home / "project"
    project.mkdir()

    run_hook(load(BEGIN), project)

    assert find_worktree(project) == str(project)
    assert find_worktree(home) is None


@pytest.mark.parametrize("place", ["home", "root"])
def test_a_broad_directory_is_not_wrapped(place: str) -> None:
    directory = Path(os.environ["HOME"] if place == "home" else "/")

    assert run_hook(load(BEGIN), directory) is None
    assert find_worktree(directory) is None
    assert "is too broad" in read_log()[-1]


@pytest.mark.parametrize(
    "text",
    [
        ' {"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00", {"b": {}}]}\n',
        "[]",
        '"x"',
        "1",
        "NaN",
        "Infinity",
        '{"a": 1, "a": 2}',
        "",
        " ",
        "{",
        '{"a" 1}',
        "[1,]",
        "[1] 2",
        "'x'",
        '"\n"',
        "tru",
        "\ufeff{}",
        "1" * 5000,
    ],
)
def test_json_is_read_as_the_library_does(text: str) -> None:
    try:
        wanted = repr(json.loads(text))
    except ValueError:
        wanted = "refused"

    try:
        found = repr(parse_json(text))
    except ValueError:
        found = "refused"

    assert found == wanted


# The daemon


def test_it_starts_the_daemon_and_leaves_the_agents_keys_out_of_it(worktree: Path) -> None:
    (worktree / "a.txt").write_text("a\n")

    run_hook(load(BEGIN), worktree, CI="", ANTHROPIC_API_KEY="hunter2", XDG_SESSION_ID="7")

    wait_until(lambda: is_served(worktree))
    pid = find_pid()
    assert pid is not None
    variables = Path(f"/proc/{pid}/environ").read_text()
    assert "hunter2" not in variables
    assert "XDG_SESSION_ID=7" in variables
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) != os.getsid(0)
    (worktree / "a.txt").write_text("b\n")
    assert run_hook(load("claude-code/Stop"), worktree, CI="") is None
    assert messages_of(worktree) == [f"{TURN} active"]
    with greet() as client:
        (served,) = client.ask("status")["worktrees"]
    assert served["requests"] >= 1


@pytest.mark.parametrize(
    "variables", [{"CI": "1"}, {"CI": "", "SHADOWTREE_HOOK_DAEMON": "false"}], ids=["CI", "setting"]
)
def test_it_starts_no_daemon_in_ci_or_if_you_say_so(worktree: Path, variables: dict[str, str]) -> None:
    run_hook(load(BEGIN), worktree, **variables)
    run_hook(load("claude-code/SessionStart"), worktree, **variables)

    assert find_pid() is None


def test_a_first_snapshot_that_takes_too_long_is_left_to_the_daemon(worktree: Path) -> None:
    """That turn is recorded as not protected, and what its tools do afterwards is recorded again."""
    (worktree / "a.txt").write_text("a\n")

    told = run_hook(load(BEGIN), worktree, code=IN_A_HURRY, CI="")

    assert told is not None
    assert "cannot be undone" in told["systemMessage"]
    assert "gave up" in read_log()[-1]
    wait_until(lambda: is_served(worktree))
    wait_until(lambda: messages_of(worktree) == [f"{TURN} active"])
    with Shadow(worktree, session=SESSION) as shadow:
        (message,) = shadow.messages()
    assert message.meta is not None
    assert "first snapshot" in message.meta["not_protected"]
    assert message.text.startswith("please")
    shown = subprocess.run(
        [*COMMAND, "-C", worktree, "log"], env=surroundings(), capture_output=True, text=True, check=True
    )
    assert "not protected" in shown.stdout
    run_hook(load("claude-code/PreToolUse"), worktree)
    (worktree / "b.txt").write_text("b\n")
    run_hook(load("claude-code/PostToolUse"), worktree)
    run_hook(load("claude-code/Stop"), worktree)
    assert messages_of(worktree) == [f"{TURN} active", f"{TURN}+2 active"]


def test_limits_are_below_what_agents_allow() -> None:
    """Codex cuts the last events to 3 s, and kills at once."""
    assert AGENTS["codex"].limit_s("session end") == 3.0
    assert all(agent.limit_s(kind) <= 60 for agent in AGENTS.values() for kind in agent.events.values())
