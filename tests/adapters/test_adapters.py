"""Every adapter records turns and steps of its SDK, and never disturbs the agent."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shadowtree import AsyncShadow, Shadow
from shadowtree.adapters import (
    claude_agent_sdk,
    google_adk,
    langchain,
    openai_agents,
    pydantic_ai,
    smolagents,
)
from shadowtree.adapters.turn_recorder import TurnRecorder, read_text
from tests.adapters.fakes import (
    SDKS,
    Claude,
    ClaudeAgentOptions,
    GoogleADK,
    HookMatcher,
    LangChain,
    OpenAI,
    PydanticAI,
    Smolagents,
)
from tests.support.processes import surroundings
from tests.support.trees import assert_tree, make_tree

every_sdk = pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)


def write(path: Path, text: str) -> Callable[[], object]:
    """Make a tool that writes a file."""
    return lambda: path.write_text(text)


def fail() -> None:
    raise OSError("the tool failed")


@pytest.fixture
def recorder(shadow: Shadow) -> TurnRecorder:
    return TurnRecorder(shadow)


# What all of them do


@every_sdk
def test_a_run_is_a_turn_with_its_prompt_and_a_step_for_each_tool(
    sdk: Any, shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "0"})
    recorder = TurnRecorder(shadow)
    sdk(monkeypatch, recorder).run("write a and b", write(worktree / "a", "1"), write(worktree / "b", "1"))

    (message,) = shadow.messages()
    assert recorder.failures == []
    assert (message.text, message.role, message.state) == ("write a and b", "user", "active")
    assert not message.inferred
    assert message.meta is not None
    assert message.meta["agent"] == sdk.agent
    assert [each.path for each in message.patch.files] == ["a", "b"]
    changed = [[each.path for each in step.patch.files] for step in message.steps]
    assert changed[:2] == [["a"], ["b"]]
    assert not any(step.inferred for step in message.steps)


@every_sdk
def test_each_run_can_be_undone_and_what_you_did_in_between_stays(
    sdk: Any, shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sdk(monkeypatch, shadow)
    agent.run("one", write(worktree / "a", "1"))
    make_tree(worktree, {"mine": "mine"})
    agent.run("two", write(worktree / "a", "2"), (worktree / "mine").read_text)

    assert [each.text for each in shadow.messages()] == ["one", "two"]
    assert shadow.undo().complete
    assert_tree(worktree, {"a": "1", "mine": "mine"})
    shadow.undo()
    assert_tree(worktree, {"mine": "mine"})
    shadow.redo(None)
    assert_tree(worktree, {"a": "2", "mine": "mine"})


@every_sdk
def test_the_model_is_told_once_what_was_undone(
    sdk: Any, shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sdk(monkeypatch, shadow)
    agent.run("one", write(worktree / "a", "1"))
    shadow.undo()
    agent.run("two", write(worktree / "b", "2"))
    agent.run("three")

    (one,), told, (three,) = agent.asked
    assert (one, three) == ("one", "three")
    assert sorted(told)[-1] == "two"
    (note,) = (text for text in told if text != "two")
    assert note.splitlines()[1:] == [
        'Undone turns: #1 "one".',
        'Changed files: "a".',
        "These files no longer have your earlier edits; read them again before you rely on them.",
    ]
    assert [each.text for each in shadow.messages()][-2:] == ["two", "three"]


@every_sdk
def test_the_model_is_not_told_if_you_say_so(
    sdk: Any, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shadow(worktree, settings={"min_free": 0, "tell_model": False}) as shadow:
        agent = sdk(monkeypatch, shadow)
        agent.run("one", write(worktree / "a", "1"))
        shadow.undo()
        agent.run("two")

    assert agent.asked == [["one"], ["two"]]


@every_sdk
def test_a_directory_is_enough(sdk: Any, worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk(monkeypatch, worktree).run("one", write(worktree / "a", "1"))

    with Shadow(worktree) as shadow:
        assert [each.text for each in shadow.messages()] == ["one"]


@every_sdk
def test_an_agent_goes_on_if_nothing_can_be_recorded(
    sdk: Any, tmp_path: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is a file, so that every call fails."""
    (tmp_path / "store").write_text("no store")
    recorder = TurnRecorder(Shadow(worktree, store=tmp_path / "store"))
    sdk(monkeypatch, recorder).run("one", write(worktree / "a", "1"))

    (failure,) = recorder.failures
    (note,) = failure.__notes__
    assert note.startswith("begin of turn ")
    assert_tree(worktree, {"a": "1"})


@pytest.mark.parametrize("sdk", SDKS[:-1], ids=lambda sdk: sdk.__name__)
def test_an_sdk_that_has_changed_does_not_disturb_its_agents(
    sdk: Any, recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an adapter reads of the SDK's values may not be there; smolagents has nothing that is read."""
    agent = sdk(monkeypatch, recorder)
    monkeypatch.setattr(TurnRecorder, "for_conversation", lambda *_: fail())
    monkeypatch.setattr(TurnRecorder, "name_step", lambda *_: fail())
    agent.run("one", write(worktree / "a", "1"))

    assert recorder.failures
    assert_tree(worktree, {"a": "1"})


@every_sdk
def test_the_error_of_a_tool_is_the_agents_own(
    sdk: Any, recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sdk(monkeypatch, recorder)
    if sdk is Claude:
        agent.run("one", write(worktree / "a", "1"), fail)
    else:
        with pytest.raises(OSError, match="the tool failed"):
            agent.run("one", write(worktree / "a", "1"), fail)
    agent.run("two", write(worktree / "b", "2"))

    one, two = recorder.shadow.messages()
    assert recorder.failures == []
    assert [each.path for each in one.patch.files] == ["a"]
    assert [each.path for each in two.patch.files] == ["b"]
    assert one.inferred == (not sdk.tells_failure and sdk is not Claude), "the SDK does not say that it ended"


@every_sdk
def test_prompts_and_steps_can_be_left_out(
    sdk: Any, shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = TurnRecorder(shadow, steps=False, store_prompts=False)
    sdk(monkeypatch, recorder).run("my secret", write(worktree / "a", "1"))

    (message,) = shadow.messages()
    assert recorder.failures == []
    assert (message.text, message.steps) == ("", [])
    assert [each.path for each in message.patch.files] == ["a"]


@pytest.mark.parametrize(
    "sdk",
    [
        (Claude, "claude-agent-sdk-c1af0fcb"),
        (lambda *args: LangChain(*args, thread="t\n1"), "langchain-t1"),
        (GoogleADK, "google-adk-7b7bdaf9"),
    ],
    ids=["Claude", "LangChain", "GoogleADK"],
)
def test_each_conversation_can_have_a_session_of_its_own(
    sdk: tuple[Any, str], shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, session = sdk
    recorder = TurnRecorder(shadow, per_conversation=True)
    make(monkeypatch, recorder).run("one", write(worktree / "a", "1"))

    (message,) = shadow.messages(all_sessions=True)
    assert recorder.failures == []
    assert (message.session, message.state, len(message.steps)) == (session, "active", 1)


# Claude Agent SDK


def test_claude_keeps_your_own_hooks_and_options(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    Claude(monkeypatch, shadow)
    yours = HookMatcher(matcher="Bash")
    options = ClaudeAgentOptions(hooks={"PreToolUse": [yours]}, cwd="/there")
    added = claude_agent_sdk.add_hooks(options, shadow)

    assert options.hooks == {"PreToolUse": [yours]}, "they are not changed"
    assert added.cwd == "/there"
    assert added.hooks["PreToolUse"][0] is yours
    assert len(added.hooks["PreToolUse"]) == 2


def test_claude_a_message_typed_while_it_works_is_part_of_the_turn(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = Claude(monkeypatch, recorder)
    claude.call("UserPromptSubmit", "p1", prompt="one")
    make_tree(worktree, {"a": "1"})
    claude.call("UserPromptSubmit", "p1", prompt="and b")
    make_tree(worktree, {"b": "1"})
    claude.call("Stop", "p1", background_tasks=[])
    claude.call("Stop", "p1", background_tasks=[])

    (message,) = recorder.shadow.messages()
    assert (message.id, message.text, message.inferred) == ("p1", "one", False)
    assert [each.path for each in message.patch.files] == ["a", "b"]


def test_claude_what_a_sub_agent_does_later_belongs_to_the_turn_that_started_it(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Stop` comes while it works, and a prompt of its own when it has ended."""
    claude = Claude(monkeypatch, recorder)
    agent = {"tool_name": "Agent", "tool_use_id": "toolu_1", "tool_input": {}}
    bash = {"tool_name": "Bash", "tool_use_id": "toolu_2", "tool_input": {}, "agent_id": "a1"}
    claude.call("UserPromptSubmit", "p1", prompt="start it")
    claude.call("PreToolUse", "p1", **agent)
    claude.call("PostToolUse", "p1", **agent, tool_response={"status": "async_launched"})
    claude.call("Stop", "p1", background_tasks=[{"id": "1", "status": "running"}])
    claude.call("PreToolUse", "p1", **bash)
    make_tree(worktree, {"late": "1"})
    claude.call("PostToolUse", "p1", **bash, tool_response={})
    claude.call("UserPromptSubmit", "p2", prompt="<task-notification>\nit has ended")
    make_tree(worktree, {"later": "1"})
    claude.call("Stop", "p2", background_tasks=[])
    claude.run("next")

    started, after = recorder.shadow.messages()
    assert recorder.failures == []
    assert (started.id, started.text, started.inferred) == ("p1", "start it", False)
    assert [each.path for each in started.patch.files] == ["late", "later"]
    assert after.text == "next"


def test_claude_the_end_of_an_unknown_turn_records_nothing(
    recorder: TurnRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    Claude(monkeypatch, recorder).call("Stop", "never seen", background_tasks=[])

    assert not recorder.shadow.is_wrapped
    assert recorder.failures == []


def test_claude_goes_on_after_its_end_in_a_message_of_the_same_turn(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another hook may send it back to work, without a new prompt."""
    claude = Claude(monkeypatch, recorder)
    bash = {"tool_name": "Bash", "tool_use_id": "toolu_2", "tool_input": {}}
    claude.call("UserPromptSubmit", "p1", prompt="one")
    claude.call("Stop", "p1")
    claude.call("PreToolUse", "p1", **bash)
    make_tree(worktree, {"more": "1"})
    claude.call("PostToolUse", "p1", **bash, tool_response={})
    claude.call("Stop", "p1")

    first, second = recorder.shadow.messages()
    assert recorder.failures == []
    assert (first.id, second.id, second.role) == ("p1", "p1+2", "assistant")
    assert first.turn == second.turn
    assert [each.path for each in second.patch.files] == ["more"]


# OpenAI Agents


def test_openai_another_agent_that_takes_over_goes_on_with_the_turn(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = OpenAI(monkeypatch, recorder)

    async def story() -> None:
        usage = SimpleNamespace()
        context = SimpleNamespace(usage=usage, turn_input=[{"role": "user", "content": "one"}])
        await openai.hooks.on_agent_start(context, "first")
        await openai.run_with(usage, "handed over", write(worktree / "a", "1"))

    asyncio.run(story())

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert (message.text, message.state) == ("one", "active")


def test_openai_an_agent_that_is_a_tool_belongs_to_the_turn_of_its_caller(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = OpenAI(monkeypatch, recorder)
    usage = SimpleNamespace()
    asyncio.run(
        openai.run_with(
            usage,
            "outer",
            lambda: openai.run_with(usage, "inner", write(worktree / "a", "1")),
            write(worktree / "b", "1"),
        )
    )

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert (message.text, message.inferred, len(message.steps)) == ("outer", False, 3)


def test_openai_a_run_that_is_resumed_is_recorded_from_its_first_tool_on(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, tool = OpenAI(monkeypatch, recorder).hooks, SimpleNamespace(name="shell")

    async def story() -> None:
        context = SimpleNamespace(usage=SimpleNamespace(), turn_input=[])
        await hooks.on_tool_start(context, None, tool)
        (worktree / "a").write_text("1")
        await hooks.on_tool_end(context, None, tool, "ok")
        await hooks.on_agent_end(context, None, "done")
        await hooks.on_agent_end(context, None, "done")

    asyncio.run(story())

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert [each.path for each in message.patch.files] == ["a"]
    assert message.state == "active"


def test_openai_runs_that_never_end_are_not_remembered_for_ever(
    shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = OpenAI(monkeypatch, shadow)
    monkeypatch.setattr(TurnRecorder, "_begin", lambda *_: None)

    async def story() -> None:
        for _ in range(150):
            await openai.hooks.on_agent_start(SimpleNamespace(usage=SimpleNamespace(), turn_input=[]), None)

    asyncio.run(story())

    assert len(openai.hooks._runs) == 100


# LangChain


def test_langchain_a_sub_agent_belongs_to_the_turn_of_its_caller(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them has middleware of its own, made from the same shadow."""
    outer, inner = LangChain(monkeypatch, shadow), LangChain(monkeypatch, shadow)
    outer.run("outer", lambda: inner.run("inner", write(worktree / "a", "1")), write(worktree / "b", "1"))

    (message,) = shadow.messages()
    assert (message.text, message.inferred, len(message.steps)) == ("outer", False, 3)
    assert [each.path for each in message.patch.files] == ["a", "b"]


def test_langchain_a_run_that_another_process_resumes_ends_its_turn(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = LangChain(monkeypatch, shadow).begin("one")
    make_tree(worktree, {"a": "1"})
    monkeypatch.setattr("shadowtree.adapters.turn_recorder._sessions", {})
    monkeypatch.setattr("shadowtree.adapters.turn_recorder._busy", set())
    resumed = LangChain(monkeypatch, shadow)
    resumed.middleware.after_agent(state, resumed.runtime)

    (message,) = shadow.messages()
    assert (message.state, message.inferred) == ("active", False)
    assert [each.path for each in message.patch.files] == ["a"]


def test_langchain_a_turn_knows_the_checkpoint_that_it_began_at(
    shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    LangChain(monkeypatch, shadow, thread="t1").run("one")

    (message,) = shadow.messages()
    assert message.meta == {"agent": "langchain", "thread_id": "t1", "checkpoint_id": "1f1e2bab"}


# Pydantic AI


def test_pydantic_ai_an_agent_that_works_for_another_belongs_to_its_turn(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner = PydanticAI(monkeypatch, shadow), PydanticAI(monkeypatch, AsyncShadow(worktree))
    outer.run("outer", lambda: inner.run_in_loop("inner", write(worktree / "a", "1")))

    (message,) = shadow.messages()
    assert (message.text, message.inferred, len(message.steps)) == ("outer", False, 2)


def test_pydantic_ai_a_run_that_is_cancelled_is_recorded_whole(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = PydanticAI(monkeypatch, recorder)

    async def story() -> None:
        is_written = asyncio.Event()

        async def work_for_ever() -> None:
            (worktree / "a").write_text("1")
            is_written.set()
            await asyncio.sleep(3600)

        run = asyncio.create_task(agent.run_in_loop("one", work_for_ever))
        await is_written.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(story())

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert (message.state, message.inferred) == ("active", False)
    assert [each.path for each in message.patch.files] == ["a"]


# smolagents


def test_smolagents_a_run_that_gives_its_steps_is_recorded_until_the_last(
    recorder: TurnRecorder, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Smolagents(monkeypatch, recorder)
    agent.smol.tools = (write(worktree / "a", "1"), write(worktree / "b", "1"))
    steps = agent.smol.run("one", stream=True)
    next(steps)
    during = [each.state for each in recorder.shadow.messages()]
    assert list(steps) == ["step", "done"]

    (message,) = recorder.shadow.messages()
    assert during == ["open"]
    assert (message.state, message.inferred) == ("active", False)
    assert [step.name for step in message.steps] == ["step-1", "step-2", "step-3"]


# What they share


def test_runs_that_overlap_without_tools_at_work_end_each_other(
    recorder: TurnRecorder, worktree: Path
) -> None:
    """Nobody can tell a run that works at the same time from one that failed: the newer one goes on."""
    recorder.begin("one", nests=True)
    make_tree(worktree, {"a": "1"})
    recorder.begin("two", nests=True)
    make_tree(worktree, {"b": "1"})
    recorder.end("one")
    recorder.end("two")

    one, two = recorder.shadow.messages()
    assert recorder.failures == []
    assert (one.inferred, two.inferred) == (True, False)
    assert [each.path for each in two.patch.files] == ["b"]


def test_a_step_that_is_told_twice_is_one(recorder: TurnRecorder, worktree: Path) -> None:
    recorder.begin("one")
    name = recorder.begin_step("one", "bash\n", "call_1")
    assert recorder.begin_step("one", "bash\n", "call_1") == name == "bash-call1"
    recorder.end_step(name)
    recorder.end_step(name)
    recorder.end_step("never begun")
    recorder.end("one")

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert [(step.name, step.meta) for step in message.steps] == [("bash-call1", {"tool": "bash\n"})]


def test_a_turn_goes_on_in_another_message_after_an_undo(recorder: TurnRecorder, worktree: Path) -> None:
    """The agent itself may call for one, over MCP."""
    recorder.begin("one")
    name = recorder.begin_step("one", "undo", "call_1")
    make_tree(worktree, {"a": "1"})
    recorder.shadow.undo()
    recorder.end_step(name)
    name = recorder.begin_step("one", "bash", "call_2")
    make_tree(worktree, {"b": "1"})
    recorder.end_step(name)
    recorder.end("one")

    assert recorder.failures == []
    undone, after = recorder.shadow.messages()
    assert (undone.id, undone.state, after.id) == ("one", "archived", "one+2")
    assert [each.path for each in after.patch.files] == ["b"]
    assert_tree(worktree, {"b": "1"})


def test_a_tool_that_is_tried_again_is_one_step_and_its_changes_are_the_messages(
    recorder: TurnRecorder, worktree: Path
) -> None:
    recorder.begin("one")
    recorder.end_step(recorder.begin_step("one", "bash", "call_1"))
    name = recorder.begin_step("one", "bash", "call_1")
    make_tree(worktree, {"a": "1"})
    recorder.end_step(name)
    recorder.end("one")

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert [step.name for step in message.steps] == ["bash-call1"]
    assert [each.path for each in message.patch.files] == ["a"]


def test_another_kind_of_event_loop_is_served_too(recorder: TurnRecorder) -> None:
    """As under trio: the call is done at once."""
    doing = recorder.aside(recorder.begin, "one")
    with pytest.raises(StopIteration):
        doing.send(None)

    assert [each.id for each in recorder.shadow.messages()] == ["one"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (["a", {"text": "b"}, SimpleNamespace(text="c"), {"image": "x"}, object()], "a\nb\nc"),
        (None, ""),
        ({"text": "no list"}, ""),
        (b"bytes", ""),
    ],
    ids=["text", "parts", "none", "mapping", "bytes"],
)
def test_the_text_of_a_prompt_is_read_from_whatever_it_is(content: object, text: str) -> None:
    assert read_text(content) == text


def test_a_long_prompt_is_cut_and_half_characters_are_replaced(recorder: TurnRecorder) -> None:
    recorder.begin("one", text="\ud800" + "x" * 10_000)

    (message,) = recorder.shadow.messages()
    assert recorder.failures == []
    assert message.text == "?" + "x" * 7999


def test_the_page_shows_every_adapter() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text("utf-8")
    offered = {
        name
        for module in (claude_agent_sdk, google_adk, langchain, openai_agents, pydantic_ai, smolagents)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }

    assert offered == set(re.findall(r"\b((?:add|make)_\w+)\(", page))


def test_no_sdk_is_imported_by_importing_the_adapters(tmp_path: Path) -> None:
    modules = sorted(
        path.stem for path in Path(TurnRecorder.__init__.__code__.co_filename).parent.glob("*.py")
    )
    lines = [f"import shadowtree.adapters.{name}" for name in modules if name != "__init__"]
    sdks = {"agents", "claude_agent_sdk", "google", "langchain", "pydantic_ai", "smolagents"}
    check = f"import sys; assert not {sdks} & set(sys.modules), sys.modules.keys()"
    subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, check])], check=True, env=surroundings(), cwd=tmp_path
    )
