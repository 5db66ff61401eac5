"""Small fakes of the SDKs: what the adapters import, and the calls of one run in the order that was observed.

Observed with claude-agent-sdk 0.2.183, openai-agents 0.24.0, langchain 1.4.7, pydantic-ai 2.66.0,
google-adk 2.13.0 and smolagents 1.26.0, which `tox -e adapters` runs themselves.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shadowtree.adapters import (
    claude_agent_sdk,
    google_adk,
    langchain,
    openai_agents,
    pydantic_ai,
    smolagents,
)
from shadowtree.adapters.turn_recorder import ShadowLike, read_text

Tool = Callable[[], object]
"""What a tool does when the agent calls it."""
_numbers = count(1)


def install(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> None:
    """Make a module importable, with the packages that it is in."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(sys.modules[name]).update(names)


# Claude Agent SDK


@dataclass
class HookMatcher:
    hooks: list[Any] = field(default_factory=list)
    matcher: str | None = None


@dataclass
class ClaudeAgentOptions:
    hooks: dict[str, list[HookMatcher]] | None = None
    cwd: str | None = None


class Claude:
    """Calls hooks with payloads as Claude Code's: `UserPromptSubmit, PreToolUse, PostToolUse, ..., Stop`."""

    agent = "claude-agent-sdk"
    tells_failure = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike) -> None:
        install(
            monkeypatch, "claude_agent_sdk", ClaudeAgentOptions=ClaudeAgentOptions, HookMatcher=HookMatcher
        )
        self.options = claude_agent_sdk.add_hooks(None, shadow)
        self.session = "c1af0fcb"
        self.asked: list[list[str]] = []

    def call(self, event: str, turn: str, **more: object) -> None:
        payload = {"session_id": self.session, "prompt_id": turn, "hook_event_name": event, **more}
        texts = [str(more.get("prompt"))]
        for matcher in self.options.hooks[event]:
            for hook in matcher.hooks:
                answer = asyncio.run(hook(payload, more.get("tool_use_id"), {"signal": None}))
                if answer:
                    texts.append(answer["hookSpecificOutput"].pop("additionalContext"))
                    assert answer == {"hookSpecificOutput": {"hookEventName": event}}
        if event == "UserPromptSubmit":
            self.asked.append(texts)

    def run(self, prompt: str, *tools: Tool) -> None:
        number = next(_numbers)
        turn = f"bc4a9ca0-{number}"
        self.call("UserPromptSubmit", turn, prompt=prompt)
        for at, tool in enumerate(tools):
            call = {
                "tool_name": "Bash",
                "tool_input": {"command": "x"},
                "tool_use_id": f"toolu_{number}_{at}",
            }
            self.call("PreToolUse", turn, **call)
            try:
                tool()
            except OSError as error:
                self.call("PostToolUseFailure", turn, error=str(error), **call)
                continue
            self.call("PostToolUse", turn, tool_response={"stdout": ""}, **call)
        self.call("Stop", turn, stop_hook_active=False, background_tasks=[])


# OpenAI Agents


class OpenAI:
    """Awaits hooks: `on_agent_start, on_llm_start, on_tool_start, on_tool_end, ..., on_agent_end`."""

    agent = "openai-agents"
    tells_failure = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike) -> None:
        install(monkeypatch, "agents", RunHooks=type("RunHooks", (), {}))
        self.hooks = openai_agents.make_hooks(shadow)
        self.asked: list[list[str]] = []

    def run(self, prompt: str, *tools: Tool) -> None:
        asyncio.run(self.run_with(SimpleNamespace(), prompt, *tools))

    async def run_with(self, usage: object, prompt: str, *tools: Tool) -> None:
        """Run with a usage, which a run shares with those that its tools start."""
        # Each hook gets a context of its own.
        said = [{"role": "user", "content": prompt}]
        await self.hooks.on_agent_start(SimpleNamespace(usage=usage, turn_input=said), None)
        await self.hooks.on_llm_start(SimpleNamespace(usage=usage), None, "", items := list(said))
        self.asked.append([item["content"] for item in items])
        for tool in tools:
            call = f"call_{next(_numbers):06}_0"
            named = SimpleNamespace(name="bash")
            await self.hooks.on_tool_start(SimpleNamespace(usage=usage, tool_call_id=call), None, named)
            result = tool()
            if asyncio.iscoroutine(result):
                await result
            await self.hooks.on_tool_end(SimpleNamespace(usage=usage, tool_call_id=call), None, named, "ok")
        await self.hooks.on_agent_end(SimpleNamespace(usage=usage, turn_input=said), None, "done")


# LangChain and deepagents


class AgentMiddleware:
    pass


class ModelRequest:
    def __init__(self, state: dict[str, Any], messages: list[Any] | None = None) -> None:
        self.state = state
        self.messages = state["messages"] if messages is None else messages

    def override(self, *, messages: list[Any]) -> ModelRequest:
        return ModelRequest(self.state, messages)


class LangChain:
    """Calls middleware: `before_agent, wrap_tool_call, ..., after_agent`, with a state that it keeps."""

    agent = "langchain"
    tells_failure = False

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike, *, thread: str | None = None
    ) -> None:
        install(monkeypatch, "langchain.agents.middleware.types", PrivateStateAttr="private")
        names = {"AgentMiddleware": AgentMiddleware, "AgentState": dict}
        vars(sys.modules["langchain.agents.middleware"]).update(names)
        monkeypatch.setitem(sys.modules, "langchain.messages", messages := ModuleType("langchain.messages"))
        vars(messages)["HumanMessage"] = lambda content: SimpleNamespace(type="human", content=content)
        self.asked: list[list[str]] = []
        self.middleware = langchain.make_middleware(shadow)
        self.runtime = SimpleNamespace(
            execution_info=SimpleNamespace(thread_id=thread, run_id=None, checkpoint_id="1f1e2bab")
        )

    def run(self, prompt: str, *tools: Tool) -> None:
        state = self.begin(prompt)
        self.middleware.wrap_model_call(ModelRequest(state), self._ask)
        for tool in tools:
            self.call(state, tool)
        self.middleware.after_agent(state, self.runtime)

    def _ask(self, request: ModelRequest) -> None:
        self.asked.append([read_text(each.content) for each in request.messages])

    def begin(self, prompt: str) -> dict[str, Any]:
        state = {"messages": [SimpleNamespace(type="human", content=[{"type": "text", "text": prompt}])]}
        return {**state, **self.middleware.before_agent(state, self.runtime)}

    def call(self, state: dict[str, Any], tool: Tool) -> None:
        call = {"name": "bash", "args": {}, "id": f"call_{next(_numbers):06}_0"}
        request = SimpleNamespace(tool_call=call, state=state, runtime=self.runtime)
        assert self.middleware.wrap_tool_call(request, lambda _: (tool(), "result")[1]) == "result"


class AsyncLangChain(LangChain):
    """The same by `ainvoke`."""

    def run(self, prompt: str, *tools: Tool) -> None:
        asyncio.run(self._run(prompt, tools))

    async def _run(self, prompt: str, tools: tuple[Tool, ...]) -> None:
        state: dict[str, Any] = {"messages": [SimpleNamespace(type="human", content=prompt)]}
        state |= await self.middleware.abefore_agent(state, self.runtime)

        async def ask(request: ModelRequest) -> None:
            self._ask(request)

        await self.middleware.awrap_model_call(ModelRequest(state), ask)
        for tool in tools:
            call = {"name": "bash", "args": {}, "id": f"call_{next(_numbers):06}_0"}
            request = SimpleNamespace(tool_call=call, state=state, runtime=self.runtime)

            async def work(_: object, tool: Tool = tool) -> str:
                tool()
                return "result"

            assert await self.middleware.awrap_tool_call(request, work) == "result"
        await self.middleware.aafter_agent(state, self.runtime)


# Pydantic AI


class PydanticAI:
    """Wraps: `wrap_run` around `wrap_tool_execute`."""

    agent = "pydantic-ai"
    tells_failure = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike) -> None:
        install(
            monkeypatch, "pydantic_ai.capabilities", AbstractCapability=type("AbstractCapability", (), {})
        )
        install(
            monkeypatch,
            "pydantic_ai.messages",
            ModelRequest=lambda parts: SimpleNamespace(parts=parts),
            UserPromptPart=lambda content: SimpleNamespace(part_kind="user-prompt", content=content),
        )
        self.capability = pydantic_ai.make_capability(shadow)
        self.asked: list[list[str]] = []

    def run(self, prompt: str, *tools: Tool) -> None:
        asyncio.run(self.run_in_loop(prompt, *tools))

    async def run_in_loop(self, prompt: str, *tools: Tool) -> None:
        number = next(_numbers)
        context = SimpleNamespace(
            run_id=f"01a1eaec-{number}", conversation_id=f"01a1eaed-{number}", prompt=prompt
        )

        async def work() -> str:
            said = SimpleNamespace(parts=[SimpleNamespace(part_kind="user-prompt", content=prompt)])
            asking = SimpleNamespace(messages=[said])
            asking = await self.capability.before_model_request(context, asking)
            self.asked.append([part.content for message in asking.messages for part in message.parts])
            for at, tool in enumerate(tools):
                call = SimpleNamespace(tool_name="bash", tool_call_id=f"call_{number}_{at}")

                async def execute(_: object, tool: Tool = tool) -> str:
                    result = tool()
                    if asyncio.iscoroutine(result):
                        await result
                    return "ok"

                done = await self.capability.wrap_tool_execute(
                    context, call=call, tool_def=None, args={}, handler=execute
                )
                assert done == "ok"
            return "done"

        assert await self.capability.wrap_run(context, handler=work) == "done"


# Google ADK


class BasePlugin:
    def __init__(self, name: str) -> None:
        self.name = name


class GoogleADK:
    """Awaits a plugin: `before_run, before_tool, after_tool, ..., after_run`, or the callbacks for errors."""

    agent = "google-adk"
    tells_failure = True

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike, *, session: str = "7b7bdaf9"
    ) -> None:
        install(monkeypatch, "google.adk.plugins.base_plugin", BasePlugin=BasePlugin)
        self.plugin = google_adk.make_plugin(shadow)
        self.session = session
        self.asked: list[list[str]] = []
        genai = ModuleType("google.genai")
        vars(genai)["types"] = SimpleNamespace(Content=SimpleNamespace, Part=SimpleNamespace)
        monkeypatch.setitem(sys.modules, "google.genai", genai)

    def run(self, prompt: str, *tools: Tool) -> None:
        asyncio.run(self.run_in_loop(prompt, *tools))

    async def run_in_loop(self, prompt: str, *tools: Tool) -> None:
        parts = [SimpleNamespace(text=prompt), SimpleNamespace(text=None)]
        content = SimpleNamespace(role="user", parts=parts)
        context = SimpleNamespace(
            invocation_id=f"e-526530f1-{next(_numbers)}",
            session=SimpleNamespace(id=self.session),
            user_content=content,
        )
        assert await self.plugin.before_run_callback(invocation_context=context) is None
        asking = SimpleNamespace(contents=[content])
        await self.plugin.before_model_callback(callback_context=context, llm_request=asking)
        self.asked.append([part.text for each in asking.contents for part in each.parts if part.text])
        try:
            for tool in tools:
                await self._call(context, tool)
        except Exception as error:
            await self.plugin.on_run_error_callback(invocation_context=context, error=error)
            raise
        await self.plugin.after_run_callback(invocation_context=context)

    async def _call(self, context: Any, tool: Tool) -> None:
        named = SimpleNamespace(name="bash")
        called = SimpleNamespace(
            invocation_id=context.invocation_id,
            session=context.session,
            function_call_id=f"adk-35b89f29-{next(_numbers)}",
        )
        of_call = {"tool": named, "tool_args": {}, "tool_context": called}
        assert await self.plugin.before_tool_callback(**of_call) is None
        try:
            result = tool()
            if asyncio.iscoroutine(result):
                await result
        except Exception as error:
            await self.plugin.on_tool_error_callback(**of_call, error=error)
            raise
        assert await self.plugin.after_tool_callback(**of_call, result={}) is None


# smolagents


class ActionStep:
    def __init__(self, *, is_final_answer: bool) -> None:
        self.is_final_answer = is_final_answer


class SmolAgent:
    """Runs tools as steps, and calls back after each; the final answer is a step too."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[ActionStep], None]] = []
        self.step_callbacks = SimpleNamespace(register=lambda _, callback: self.callbacks.append(callback))
        self.tools: tuple[Tool, ...] = ()
        self.asked: list[list[str]] = []

    def run(self, task: str, stream: bool = False) -> Any:
        self.asked.append(task.split("\n\n"))
        steps = self._steps()
        return steps if stream else list(steps)[-1]

    def _steps(self) -> Iterator[str]:
        for tool in self.tools:
            try:
                tool()
            finally:
                self._call_back(is_final_answer=False)
            yield "step"
        self._call_back(is_final_answer=True)
        yield "done"

    def _call_back(self, *, is_final_answer: bool) -> None:
        for callback in self.callbacks:
            callback(ActionStep(is_final_answer=is_final_answer))


class Smolagents:
    """Runs an agent."""

    agent = "smolagents"
    tells_failure = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shadow: ShadowLike) -> None:
        install(monkeypatch, "smolagents", ActionStep=ActionStep)
        self.smol = SmolAgent()
        assert smolagents.add_callbacks(self.smol, shadow) is self.smol
        self.asked = self.smol.asked

    def run(self, prompt: str, *tools: Tool) -> None:
        self.smol.tools = tools
        assert self.smol.run(prompt) == "done"


SDKS = (Claude, OpenAI, LangChain, AsyncLangChain, PydanticAI, GoogleADK, Smolagents)
