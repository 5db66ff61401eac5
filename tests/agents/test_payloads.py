"""What each agent's payloads mean. The real programs sent all of them, unless a test says otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shadowtree.agents.known_agents import (
    INTERRUPT,
    NOTHING,
    SESSION_END,
    SESSION_START,
    STEP_BEGIN,
    STEP_END,
    TURN_BEGIN,
    TURN_END,
)
from shadowtree.agents.payloads import name_session, name_turn
from tests.agents.replay import PAYLOADS, load, plugin, read

KINDS = [
    ("claude-code", "SessionStart", SESSION_START),
    ("claude-code", "SessionStart.resume", SESSION_START),
    ("claude-code", "UserPromptSubmit", TURN_BEGIN),
    ("claude-code", "UserPromptExpansion", NOTHING),
    ("claude-code", "PreToolUse", STEP_BEGIN),
    ("claude-code", "PostToolUse", STEP_END),
    ("claude-code", "PostToolUse.agent-launched", NOTHING),
    ("claude-code", "Stop", TURN_END),
    ("claude-code", "Stop.subagent-still-running", NOTHING),
    ("claude-code", "StopFailure", TURN_END),
    ("claude-code", "SubagentStart", NOTHING),
    ("claude-code", "SubagentStop", NOTHING),
    ("claude-code", "SessionEnd", SESSION_END),
    ("codex", "SessionStart", SESSION_START),
    ("codex", "UserPromptSubmit", TURN_BEGIN),
    ("codex", "UserPromptSubmit.subagent", NOTHING),
    ("codex", "PreModelRequest", NOTHING),
    ("codex", "PreToolUse", STEP_BEGIN),
    ("codex", "PostToolUse", STEP_END),
    ("codex", "Interrupt", INTERRUPT),
    ("codex", "Stop", TURN_END),
    ("codex", "SubagentStop", NOTHING),
    ("codex", "SessionEnd", SESSION_END),
    ("gemini", "SessionStart", SESSION_START),
    ("gemini", "BeforeAgent", TURN_BEGIN),
    ("gemini", "BeforeTool", STEP_BEGIN),
    ("gemini", "AfterTool", STEP_END),
    ("gemini", "AfterAgent", TURN_END),
    ("gemini", "PreCompress", NOTHING),
    ("gemini", "SessionEnd", SESSION_END),
    ("copilot", "PascalCase.SessionStart", SESSION_START),
    ("copilot", "PascalCase.UserPromptSubmit", TURN_BEGIN),
    ("copilot", "PascalCase.PreToolUse", STEP_BEGIN),
    ("copilot", "PascalCase.PostToolUse", STEP_END),
    ("copilot", "PascalCase.Stop", TURN_END),
    ("copilot", "PascalCase.SessionEnd", SESSION_END),
    ("qwen", "SessionStart", SESSION_START),
    ("qwen", "UserPromptSubmit", TURN_BEGIN),
    ("qwen", "PreToolUse", STEP_BEGIN),
    ("qwen", "PostToolUse", STEP_END),
    ("qwen", "Stop", TURN_END),
    ("cline", "TaskStart", TURN_BEGIN),
    ("cline", "PreToolUse", STEP_BEGIN),
    ("cline", "PostToolUse", STEP_END),
    ("cline", "TaskComplete", TURN_END),
]
PLUGIN_KINDS = [
    ("event.session.created", SESSION_START),
    ("chat.message", TURN_BEGIN),
    ("tool.execute.before", STEP_BEGIN),
    ("tool.execute.after", STEP_END),
    ("event.session.status.idle", NOTHING),
    ("event.session.idle", TURN_END),
    ("dispose", NOTHING),
]


@pytest.mark.parametrize(("agent", "name", "kind"), KINDS, ids=lambda value: str(value))
def test_a_payload_means_one_thing(agent: str, name: str, kind: str) -> None:
    assert read(agent, load(f"{agent}/{name}")).kind == kind


@pytest.mark.parametrize(("name", "kind"), PLUGIN_KINDS)
@pytest.mark.parametrize("agent", ["opencode", "kilo"])
def test_what_the_plugin_sends_means_one_thing(agent: str, name: str, kind: str) -> None:
    assert read(agent, plugin(name)).kind == kind


def test_a_begin_has_session_turn_and_text() -> None:
    begun = read("claude-code", load("claude-code/UserPromptSubmit"))

    assert begun.session == "claude-code-b4913fbf"
    assert begun.turn == "turn-8e9f4c3ec578"
    assert begun.text.startswith("please\nwrite a.txt: hello\n")
    assert begun.directory == "/home/u/project"
    assert not begun.is_dated


def test_the_events_of_a_turn_have_its_id() -> None:
    names = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]

    assert {read("claude-code", load(f"claude-code/{name}")).turn for name in names} == {"turn-8e9f4c3ec578"}


def test_opencode_keeps_its_own_ids_of_messages() -> None:
    """So that its own undo, which names them, can be followed."""
    begun = read("opencode", plugin("chat.message"))

    assert begun.turn == "msg_1eadea99b001F8fvg8E5W56OH3"
    assert begun.text == "write a.txt: hello\nrun: echo hi > b.txt\nsay: all done"


def test_a_session_of_a_sub_agent_in_opencode_begins_no_turn() -> None:
    """Written by hand: its plugin says whose sub-agent a session is."""
    assert read("opencode", plugin("chat.message", parent="ses_1")).kind == NOTHING


def test_an_agent_without_turn_ids_gets_them_from_the_time() -> None:
    begun = read("gemini", load("gemini/BeforeAgent"))

    assert begun.turn == "turn-261117183104618"
    assert begun.is_dated
    assert read("gemini", load("gemini/AfterAgent")).turn is None


def test_a_turn_of_qwen_is_counted() -> None:
    names = ["UserPromptSubmit", "UserPromptSubmit.after-tool", "PreToolUse", "Stop"]

    assert {read("qwen", load(f"qwen/{name}")).turn for name in names} == {"turn-0"}


def test_camel_case_payloads_of_copilot_need_the_name_of_the_event() -> None:
    begun = read("copilot", load("copilot/userPromptSubmitted"), event="userPromptSubmitted")

    assert (begun.kind, begun.session) == (TURN_BEGIN, "copilot-36655a81")
    assert read("copilot", load("copilot/userPromptSubmitted")).kind == NOTHING


def test_copilot_that_runs_a_hook_of_claude_code_is_copilot() -> None:
    begun = read("claude-code", load("copilot/PascalCase.UserPromptSubmit"), COPILOT_CLI="1")

    assert begun.agent.name == "copilot"
    assert read("claude-code", load("claude-code/Stop"), COPILOT_CLI="1").agent.name == "claude-code"


def test_the_project_is_where_the_variable_says_and_not_where_the_shell_went() -> None:
    moved = load("claude-code/PreToolUse.after-cd")

    assert read("claude-code", moved, CLAUDE_PROJECT_DIR="/home/u/project").directory == "/home/u/project"
    assert read("claude-code", moved).directory == "/home/u/project/sub/sub"
    assert read("claude-code", moved, CLAUDE_PROJECT_DIR="../project").directory == "/home/u/project/sub/sub"


@pytest.mark.parametrize(
    ("agent", "name", "paths"),
    [
        ("claude-code", "PostToolUse", ["/home/u/project/a.txt"]),
        ("codex", "PostToolUse.apply_patch", ["p.txt"]),
        ("codex", "PostToolUse", []),
        ("gemini", "AfterTool", ["/home/u/project/a.txt"]),
        ("copilot", "PascalCase.PostToolUse", ["/home/u/project/a.txt"]),
        ("qwen", "PostToolUse", ["/home/u/project/a.txt"]),
        ("cline", "PostToolUse", ["/home/u/project/a.txt"]),
    ],
)
def test_a_step_names_what_its_tool_writes(agent: str, name: str, paths: list[str]) -> None:
    assert list(read(agent, load(f"{agent}/{name}")).paths) == paths


@pytest.mark.parametrize("name", ["tool.execute.before", "tool.execute.after"])
def test_a_step_of_opencode_names_what_its_tool_writes(name: str) -> None:
    step = read("opencode", plugin(name))

    assert (step.tool, step.paths) == ("write", ("/home/u/project/a.txt",))


def test_a_tool_that_only_reads_is_no_step() -> None:
    assert read("claude-code", load("claude-code/PreToolUse") | {"tool_name": "Read"}).kind == NOTHING


def test_a_command_that_goes_on_in_the_background_leaves_its_step_open() -> None:
    """Written by hand, as its documentation says."""
    payload = load("claude-code/PostToolUse") | {
        "tool_name": "Bash",
        "tool_input": {"run_in_background": True},
    }

    assert read("claude-code", payload).kind == NOTHING


def test_a_report_of_a_finished_task_keeps_nothing_of_its_result() -> None:
    begun = read("claude-code", load("claude-code/UserPromptSubmit.task-notification"))

    assert begun.is_report
    assert begun.text == "A background task finished"


def test_our_own_commands_are_no_turns() -> None:
    """As the payloads of a command of another name, with ours in its place."""
    claude = json.loads(
        json.dumps(load("claude-code/UserPromptSubmit.slash-command")).replace("/st-", "/shadowtree-")
    )
    gemini = json.loads(json.dumps(load("gemini/BeforeAgent.custom-command")).replace("/st-", "/shadowtree-"))
    opencode = plugin("chat.message.command", command="shadowtree-undo")
    opencode["hook"] = "chat.message"

    assert read("claude-code", claude).kind == NOTHING
    assert read("gemini", gemini).kind == NOTHING
    assert read("gemini", gemini | {"hook_event_name": "AfterAgent"}).kind == NOTHING
    assert read("opencode", opencode).kind == NOTHING
    assert read("claude-code", load("claude-code/UserPromptSubmit.slash-command")).kind == TURN_BEGIN


def test_cursor_as_its_documentation_has_it() -> None:
    """Untried: there is no program to try it with."""
    begun = read(
        "cursor",
        {
            "hook_event_name": "beforeSubmitPrompt",
            "conversation_id": "668320d2-2fd8-4888-b33c-2a466fec86e7",
            "generation_id": "490b90b7-a2ce-4c2c-bb76-cb77b125df2f",
            "workspace_roots": ["/home/u/project"],
            "prompt": "hello",
        },
    )

    assert (begun.kind, begun.session, begun.turn) == (TURN_BEGIN, "cursor-6fec86e7", "turn-cb77b125df2f")
    assert begun.directory == "/home/u/project"


# Hostile input

VALUES: list[object] = [None, 7, 1.5, True, [], {}, [[]], "", "\0", "\ud800", "x" * 100_000, {"a": {"b": []}}]


@pytest.mark.parametrize(
    "path", sorted(PAYLOADS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_any_value_may_be_of_another_type(path: Any) -> None:  # Any: parametrize has no types
    payload, agent = json.loads(path.read_text("utf-8")), path.parent.name
    if agent == "opencode":
        payload = {"hook": path.stem.removeprefix("event."), "directory": "/x", "payload": payload}
    if not isinstance(payload, dict):
        return
    for key in payload:
        for value in VALUES:
            reported = read(agent, {**payload, key: value}, event="userPromptSubmitted")

            assert len(reported.text) <= 8001
            assert len(f"{reported.turn}{reported.session}{reported.tool}{reported.call}") < 700
            assert f"{reported.turn}{reported.session}{reported.tool}{reported.call}".isprintable()
            reported.text.encode()


@pytest.mark.parametrize(
    "payload", VALUES, ids=lambda value: str(value)[:10].encode("ascii", "replace").decode()
)
def test_a_payload_that_is_no_object_means_nothing(payload: object) -> None:
    assert read("codex", payload).kind == NOTHING


def test_control_characters_do_not_come_through() -> None:
    names = {"tool_name": "Write\x1b[2J\r", "tool_use_id": "a\nb; rm -rf /"}
    begun = read("claude-code", load("claude-code/UserPromptSubmit") | {"prompt": "a\x1b[31mb\r\n\tc\x9b"})
    step = read("claude-code", load("claude-code/PreToolUse") | names)

    assert begun.text == "a[31mb\n\tc"
    assert (step.tool, step.call) == ("Write[2J", "abrmrf")


def test_a_path_that_can_be_none_is_left_out() -> None:
    paths = ["ok.txt", "nul\0", "new\nline", "x" * 5000, ""]
    patch = "*** Begin Patch\n" + "\n".join(
        f"*** Add File: {path}" for path in [*paths, *map(str, range(500))]
    )
    payload = load("codex/PreToolUse.apply_patch") | {"tool_input": {"command": patch}}

    found = read("codex", payload).paths

    assert found[0] == "ok.txt"
    assert len(found) <= 100
    assert all(path.isprintable() for path in found)


def test_names_are_short_and_say_what_differs() -> None:
    """Ids that hold a time begin alike."""
    assert name_session("codex", "01a1eac6-83b7-7703-8d89-2461d1535549") == "codex-d1535549"
    assert name_session("codex", "") == "codex-session"
    assert name_turn("s", "01a1eac6-83f1-7983-b78e-e0da94c51c88") == "turn-e0da94c51c88"
    assert name_turn("abc", "abc########12") == "turn-12"
    assert name_turn("s", "12") == "turn-12"
    assert name_turn("s", "\0") == ""
