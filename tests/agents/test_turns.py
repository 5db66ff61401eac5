"""How turns and tool calls are recorded: the rules, each with payloads of the real programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.agents.replay import Replay, files_of, load, plugin
from tests.support.referee import assert_sound_store

CLAUDE = "claude-code/"


@pytest.fixture(autouse=True)
def _sound_store(worktree: Path, asks_git: bool) -> Iterator[None]:
    yield
    with Shadow(worktree) as shadow:
        assert_sound_store(shadow.store, asks_git=asks_git)


@pytest.fixture
def claude(worktree: Path) -> Replay:
    (worktree / "kept.txt").write_text("kept\n")
    return Replay("claude-code", worktree)


def test_a_turn_is_a_message_and_its_tool_calls_are_steps(claude: Replay) -> None:
    claude.send(load(CLAUDE + "UserPromptSubmit"))
    claude.send(load(CLAUDE + "PreToolUse"))
    (claude.worktree / "a.txt").write_text("hello\n")
    claude.send(load(CLAUDE + "PostToolUse"))
    claude.send(load(CLAUDE + "Stop"))

    (message,) = claude.messages()
    assert (message.id, message.session, message.role) == (
        "turn-8e9f4c3ec578",
        "claude-code-b4913fbf",
        "user",
    )
    assert message.text.startswith("please\n")
    assert message.meta == {"agent": "claude-code"}
    assert (message.state, message.inferred) == ("active", False)
    assert files_of(message) == ["a.txt"]
    (step,) = message.steps
    assert step.name == "Write-u0000010"
    assert step.meta == {"agent": "claude-code", "tool": "Write", "paths": ["a.txt"]}
    assert [file.path for file in step.patch.files] == ["a.txt"]


@pytest.mark.parametrize(
    ("agent", "run"),
    [
        ("claude-code", "sequence.message-while-working-then-shell-then-clear"),
        ("codex", "sequence.message-while-working"),
    ],
)
def test_a_message_typed_while_the_agent_works_goes_on_with_the_turn(
    worktree: Path, agent: str, run: str
) -> None:
    replay = Replay(agent, worktree)
    payloads = load(f"{agent}/{run}")
    own = [each for each in payloads if each["session_id"] == payloads[0]["session_id"]]

    replay.send_all(own)

    (message,) = replay.messages()
    assert message.text == payloads[1]["prompt"]
    assert files_of(message) == ["one.txt", "two.txt"]
    assert len(message.steps) == 2


def test_an_end_of_a_turn_that_never_began_records_nothing(claude: Replay) -> None:
    """Claude Code sends one after `!command` in its prompt."""
    run = load(CLAUDE + "sequence.message-while-working-then-shell-then-clear")
    stops = [payload for payload in run if payload["hook_event_name"] == "Stop"]
    claude.send_all(run[:3])

    claude.send(stops[1])

    assert claude.messages()[0].state == "open"
    claude.send(stops[0])
    assert claude.messages()[0].state == "active"
    claude.send(stops[1])
    assert len(claude.messages()) == 1


def test_a_turn_that_left_a_sub_agent_running_stays_open(claude: Replay) -> None:
    """And what the sub-agent does is part of it, and of what the agent does when it hears of it."""
    launched = load(CLAUDE + "PostToolUse.agent-launched")
    same = {key: launched[key] for key in ("session_id", "prompt_id")}
    claude.send(load(CLAUDE + "UserPromptSubmit"), **same)
    claude.send(launched, hook_event_name="PreToolUse")
    claude.send(launched)

    claude.send(load(CLAUDE + "Stop.subagent-still-running"))

    assert claude.messages()[0].state == "open"
    claude.send(load(CLAUDE + "PreToolUse.subagent"))
    (claude.worktree / "sub.txt").write_text("sub\n")
    claude.send(load(CLAUDE + "PreToolUse.subagent"), hook_event_name="PostToolUse")
    report = load(CLAUDE + "UserPromptSubmit.task-notification")
    claude.send(report)
    (claude.worktree / "after.txt").write_text("after\n")
    claude.send(load(CLAUDE + "Stop"), **{key: report[key] for key in same})
    asked, reported = claude.messages()
    assert (files_of(asked), files_of(reported)) == (["sub.txt"], ["after.txt"])
    assert (asked.turn, reported.turn) == (1, 1)
    assert (asked.inferred, reported.inferred) == (False, False)
    with claude.open() as shadow:
        assert shadow.undo().messages == [asked.id, reported.id]
    assert not (claude.worktree / "sub.txt").exists()
    assert not (claude.worktree / "after.txt").exists()


def test_an_interrupt_does_not_end_a_turn(worktree: Path) -> None:
    """Codex goes on with the command in the background."""
    codex = Replay("codex", worktree)
    run = load("codex/sequence.esc")
    codex.send_all(run[:-1])

    (worktree / "two.txt").write_text("two\n")

    assert codex.messages()[0].state == "open"
    codex.send(run[-1])
    (message,) = codex.messages()
    assert (message.state, message.inferred) == ("active", True)
    assert files_of(message) == ["two.txt"]


def test_an_interrupted_turn_of_which_nothing_is_sent_is_ended_by_the_next(claude: Replay) -> None:
    run = load(CLAUDE + "sequence.esc-and-api-error")
    claude.send_all(run)

    first, second, third = claude.messages()
    assert [first.inferred, second.inferred, third.inferred] == [False, True, False]
    assert [files_of(each) for each in (first, second, third)] == [["one.txt"], [], ["three.txt"]]


def test_a_session_that_ends_closes_the_turn_with_its_last_step(worktree: Path) -> None:
    """Gemini sends no end after Esc, and its session end three times; meanwhile the user may have edited."""
    gemini = Replay("gemini", worktree)
    run = load("gemini/sequence.esc-then-quit")
    gemini.send_all(run[:-3])
    (worktree / "mine.txt").write_text("by hand\n")

    gemini.send_all(run[-3:])

    first, second = gemini.messages()
    assert files_of(first) == ["one.txt"]
    assert (second.state, second.inferred) == ("active", True)
    assert "mine.txt" not in files_of(second)


def test_a_sub_agent_works_in_the_turn_of_its_parent(worktree: Path) -> None:
    """In Codex it has a turn id of its own, and an own begin."""
    codex = Replay("codex", worktree)

    codex.send_all(load("codex/sequence.subagent"))

    (message,) = codex.messages()
    assert files_of(message) == ["sub.txt"]
    assert [step.name.partition("-")[0] for step in message.steps] == ["spawn_agent", "Bash", "Bash"]
    assert not message.inferred


def test_a_begin_after_every_tool_result_is_the_same_turn(worktree: Path) -> None:
    qwen = Replay("qwen", worktree)
    for name in ("UserPromptSubmit", "PreToolUse", "PostToolUse", "UserPromptSubmit.after-tool", "Stop"):
        qwen.send(load(f"qwen/{name}"))

    (message,) = qwen.messages()
    assert message.text.startswith("write a.txt")
    assert len(message.steps) == 1


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "qwen"])
def test_a_hook_that_runs_twice_records_once(worktree: Path, agent: str) -> None:
    replay = Replay(agent, worktree)
    names = {"gemini": ("BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")}
    usual = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
    for name in names.get(agent, usual):
        for _ in range(2):
            replay.send(load(f"{agent}/{name}"))

    (message,) = replay.messages()
    assert (message.state, message.inferred) == ("active", False)


def test_a_hook_in_two_files_of_copilot_records_once(worktree: Path) -> None:
    """It has no turn ids, and each run has a time of its own."""
    copilot = Replay("copilot", worktree)
    begin = load("copilot/PascalCase.UserPromptSubmit")
    copilot.send(begin)
    copilot.send(begin, timestamp="2026-11-17T19:03:17.611Z")

    copilot.send(load("copilot/PascalCase.Stop"))
    copilot.send(load("copilot/PascalCase.Stop"))

    assert len(copilot.messages()) == 1


def test_the_next_prompt_is_another_turn_also_without_turn_ids(worktree: Path) -> None:
    gemini = Replay("gemini", worktree)
    gemini.send(load("gemini/BeforeAgent"))
    gemini.send(load("gemini/BeforeAgent"), timestamp="2026-11-17T18:31:09.000Z", prompt="another")

    assert [message.state for message in gemini.messages()] == ["active", "open"]


def test_calls_without_ids_are_numbered(worktree: Path) -> None:
    gemini = Replay("gemini", worktree)
    gemini.send(load("gemini/BeforeAgent"))
    for name in ("BeforeTool", "AfterTool", "BeforeTool", "BeforeTool", "AfterTool", "AfterTool"):
        gemini.send(load(f"gemini/{name}"))

    (message,) = gemini.messages()
    assert [step.name for step in message.steps] == ["write_file-1", "write_file-2", "write_file-3"]
    assert all(step.after is not None for step in message.steps)


def test_a_turn_goes_on_after_its_end(claude: Replay) -> None:
    """Another hook may send the agent back to work: the same turn goes on in a second message."""
    claude.send(load(CLAUDE + "UserPromptSubmit"))
    claude.send(load(CLAUDE + "Stop"))

    claude.send(load(CLAUDE + "PreToolUse"))
    (claude.worktree / "a.txt").write_text("hello\n")
    claude.send(load(CLAUDE + "PostToolUse"))
    claude.send(load(CLAUDE + "Stop"), stop_hook_active=True)

    first, second = claude.messages()
    assert second.id == f"{first.id}+2"
    assert (first.turn, second.turn) == (1, 1)
    assert files_of(second) == ["a.txt"]
    assert not second.inferred
    with claude.open() as shadow:
        assert shadow.undo().messages == [first.id, second.id]


def test_an_id_that_comes_again_with_another_prompt_is_another_turn(worktree: Path) -> None:
    """An agent that counts its turns may begin anew when a session is resumed."""
    qwen = Replay("qwen", worktree)
    qwen.send(load("qwen/UserPromptSubmit"))
    qwen.send(load("qwen/Stop"))

    qwen.send(load("qwen/UserPromptSubmit"), prompt="another")

    assert [(message.id, message.turn) for message in qwen.messages()] == [("turn-0", 1), ("turn-0+2", 2)]


def test_a_turn_whose_begin_was_missed_begins_with_its_first_step(claude: Replay) -> None:
    claude.send(load(CLAUDE + "UserPromptSubmit"), prompt_id="11111111-2222-3333-4444-555555555555")
    claude.send(load(CLAUDE + "PreToolUse"))
    (claude.worktree / "a.txt").write_text("hello\n")
    claude.send(load(CLAUDE + "PostToolUse"))
    claude.send(load(CLAUDE + "Stop"))

    assert [(message.turn, files_of(message)) for message in claude.messages()] == [(1, []), (2, ["a.txt"])]


def test_opencode_turns_end_when_it_is_idle(worktree: Path) -> None:
    opencode = Replay("opencode", worktree)
    for name in ("event.session.created", "chat.message", "tool.execute.before"):
        opencode.send(plugin(name))
    (worktree / "a.txt").write_text("hello\n")
    for name in ("tool.execute.after", "event.session.idle", "event.session.idle"):
        opencode.send(plugin(name))

    (message,) = opencode.messages()
    assert message.id == "msg_1eadea99b001F8fvg8E5W56OH3"
    assert files_of(message) == ["a.txt"]
    assert not message.inferred


def test_cline_turns_have_steps_and_no_text(worktree: Path) -> None:
    cline = Replay("cline", worktree)
    for name in ("TaskStart", "PreToolUse", "PostToolUse", "TaskComplete"):
        cline.send(load(f"cline/{name}"))

    (message,) = cline.messages()
    assert (message.text, message.state) == ("", "active")
    assert [step.after is None for step in message.steps] == [False]


def test_a_path_outside_is_noted_as_not_protected(claude: Replay) -> None:
    claude.send(load(CLAUDE + "UserPromptSubmit"))
    claude.send(load(CLAUDE + "PreToolUse"), tool_input={"file_path": "/etc/hosts", "content": "x"})

    (step,) = claude.messages()[0].steps
    assert step.meta == {"agent": "claude-code", "tool": "Write", "outside": ["/etc/hosts"]}
    claude.send(load(CLAUDE + "Stop"))
    assert claude.messages()[0].unprotected == ["/etc/hosts"]


def test_nothing_of_what_tools_were_given_or_gave_is_stored(claude: Replay) -> None:
    secret = {"command": "export KEY=hunter2", "description": "hunter2"}
    claude.send(load(CLAUDE + "UserPromptSubmit"))
    for event in ("PreToolUse", "PostToolUse"):
        payload = load(f"{CLAUDE}{event}") | {
            "tool_name": "Bash",
            "tool_input": secret,
            "tool_response": secret,
        }
        claude.send(payload)
    claude.send(load(CLAUDE + "Stop"), last_assistant_message="hunter2")
    report = load(CLAUDE + "UserPromptSubmit.task-notification")
    claude.send(report, prompt=report["prompt"].replace("sub done", "hunter2"))

    with claude.open() as shadow:
        stored = [path for path in shadow.store.rglob("*") if path.is_file()]
    assert not [path for path in stored if b"hunter2" in path.read_bytes()]


def test_prompts_are_not_stored_if_you_say_so(worktree: Path) -> None:
    claude = Replay("claude-code", worktree, store_prompts=False)

    claude.send(load(CLAUDE + "UserPromptSubmit"))

    assert claude.messages()[0].text == ""


# What the model is told


def _begin_next(claude: Replay, number: int = 1) -> tuple[list[tuple[int, str]], list[str]]:
    record = claude.send(
        load(CLAUDE + "UserPromptSubmit"), prompt_id=f"0000-{number:012}", prompt=f"turn {number}"
    )
    assert record is not None
    return record.undone, record.paths


def _write_turn(claude: Replay, number: int, name: str) -> None:
    _begin_next(claude, number)
    (claude.worktree / name).write_text("written\n")
    claude.send(load(CLAUDE + "Stop"), prompt_id=f"0000-{number:012}")


def test_the_turn_after_an_undo_is_told_what_was_undone(claude: Replay) -> None:
    _write_turn(claude, 1, "one.txt")
    _write_turn(claude, 2, "two.txt")
    with claude.open() as shadow:
        shadow.undo(2)

    assert _begin_next(claude, 3) == ([(1, "turn 1"), (2, "turn 2")], ["one.txt", "two.txt"])
    assert _begin_next(claude, 3) == ([], []), "the same begin again: it was told"
    assert _begin_next(claude, 4) == ([], [])


def test_an_undo_that_touched_no_file_is_not_told(claude: Replay) -> None:
    _write_turn(claude, 1, "one.txt")
    _begin_next(claude, 2)
    claude.send(load(CLAUDE + "Stop"), prompt_id="0000-000000000002")
    with claude.open() as shadow:
        shadow.undo()

    assert _begin_next(claude, 3) == ([], [])


def test_undone_turns_are_told_by_the_numbers_of_the_log(claude: Replay) -> None:
    """Turns are counted on their line, and messages, as the log numbers them, in the session."""
    _write_turn(claude, 1, "one.txt")
    with claude.open() as shadow:
        shadow.undo()
    _write_turn(claude, 2, "two.txt")
    with claude.open() as shadow:
        shadow.undo()

    assert _begin_next(claude, 3) == ([(2, "turn 2")], ["two.txt"])


def test_an_undo_that_was_redone_is_not_told(claude: Replay) -> None:
    _write_turn(claude, 1, "one.txt")
    with claude.open() as shadow:
        shadow.undo()
        shadow.redo()

    assert _begin_next(claude, 2) == ([], [])


def test_a_revert_of_one_path_is_told(claude: Replay) -> None:
    _write_turn(claude, 1, "one.txt")
    with claude.open() as shadow:
        shadow.revert("turn-000000000001", paths=["one.txt"])

    assert _begin_next(claude, 2) == ([], ["one.txt"])


def test_the_model_is_not_told_if_you_say_so(worktree: Path) -> None:
    claude = Replay("claude-code", worktree, tell_model=False)
    _write_turn(claude, 1, "one.txt")
    with claude.open() as shadow:
        shadow.undo()

    assert _begin_next(claude, 2) == ([], [])


def test_an_undo_that_the_agent_did_itself_is_not_told(claude: Replay) -> None:
    _write_turn(claude, 1, "one.txt")
    with claude.open() as shadow:
        shadow.revert("turn-000000000001", files=False)
        shadow.unrevert()
        shadow.revert("turn-000000000001", files=False)

    assert _begin_next(claude, 2) == ([], [])


def test_two_agents_in_one_directory_have_their_own_timelines(worktree: Path) -> None:
    claude, codex = Replay("claude-code", worktree), Replay("codex", worktree)
    claude.send(load(CLAUDE + "UserPromptSubmit"))
    codex.send(load("codex/UserPromptSubmit"))
    codex.send(load("codex/Stop"))

    assert claude.messages()[0].state == "open"
    assert codex.messages()[0].state == "active"
    with Shadow(worktree) as shadow:
        assert len(shadow.messages(all_sessions=True)) == 2
