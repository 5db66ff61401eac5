"""Agents of real SDKs with a tool `bash`, as short as can be.

    python -m tests.adapters.real_agents SDK ADDRESS WORKTREE SESSION PROMPT...

Each line that names the adapter is the one that docs/adapters.md shows. Prints the answers, and fails if the
adapter kept a failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import warnings
from typing import Any
from urllib.request import urlopen

from shadowtree import Shadow
from shadowtree.adapters.turn_recorder import TurnRecorder
from tests.adapters.scripted_model import DONE, next_command

Foreign = Any  # values of SDKs, which need not be installed where types are checked


def bash(command: str) -> str:
    """Run a shell command.

    Args:
        command: the command
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout or "ok"


def answer(text: object) -> None:
    """Print the answer of an agent."""
    sys.stdout.write(f"{text}\n")


async def claude_agent_sdk(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    """Run Claude Code as the SDK brings it, in one session."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

    from shadowtree.adapters.claude_agent_sdk import add_hooks

    settings = {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    options = ClaudeAgentOptions(env=settings, allowed_tools=["Bash"], cwd=os.getcwd())
    async with ClaudeSDKClient(add_hooks(options, recorder)) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    answer(message.result)


async def openai_agents(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    from shadowtree.adapters.openai_agents import make_hooks

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="none")
    model = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
    agent = Agent(name="agent", model=model, tools=[function_tool(bash)])
    hooks = make_hooks(recorder)
    for prompt in prompts:
        answer((await Runner.run(agent, prompt, hooks=hooks)).final_output)


def _chat_model(address: str) -> Foreign:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="scripted", base_url=f"{address}/v1", api_key="none")


def _ask(prompt: str) -> dict[str, list[dict[str, str]]]:
    return {"messages": [{"role": "user", "content": prompt}]}


async def langchain(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    from langchain.agents import create_agent

    from shadowtree.adapters.langchain import make_middleware

    agent = create_agent(_chat_model(address), [bash], middleware=[make_middleware(recorder)])
    for prompt in prompts:
        answer(agent.invoke(_ask(prompt))["messages"][-1].content)


async def langchain_async(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    """Go on in one thread, as with a checkpointer."""
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    from shadowtree.adapters.langchain import make_middleware

    model, saver, middleware = _chat_model(address), InMemorySaver(), make_middleware(recorder)
    agent = create_agent(model, [bash], middleware=[middleware], checkpointer=saver)
    for prompt in prompts:
        done = await agent.ainvoke(_ask(prompt), {"configurable": {"thread_id": "t1"}})
        assert "shadowtree_turn" not in done
        answer(done["messages"][-1].content)


async def deepagents(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    from deepagents import create_deep_agent

    from shadowtree.adapters.langchain import make_middleware

    agent = create_deep_agent(_chat_model(address), [bash], middleware=[make_middleware(recorder)])
    for prompt in prompts:
        answer(agent.invoke(_ask(prompt))["messages"][-1].content)


async def deepagents_sub_agent(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    """Let a tool run an agent with middleware of its own."""
    from deepagents import create_deep_agent
    from langchain.agents import create_agent

    from shadowtree.adapters.langchain import make_middleware

    model = _chat_model(address)
    inner = create_agent(model, [bash], middleware=[make_middleware(recorder.shadow)])

    def outer_bash(command: str) -> str:
        """Run a shell command, or a sub-agent."""
        if command != "SUB-AGENT":
            return bash(command)
        said: str = inner.invoke(_ask("run: echo 1 > by-sub-agent"))["messages"][-1].content
        return said

    outer_bash.__name__ = "bash"
    agent = create_deep_agent(model, [outer_bash], middleware=[make_middleware(recorder)])
    for prompt in prompts:
        answer(agent.invoke(_ask(prompt))["messages"][-1].content)


async def pydantic_ai(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from shadowtree.adapters.pydantic_ai import make_capability

    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=f"{address}/v1", api_key="none"))
    agent = Agent(model, tools=[bash], capabilities=[make_capability(recorder)])
    for prompt in prompts:
        answer((await agent.run(prompt)).output)


def _report(address: str, texts: list[str]) -> None:
    with urlopen(f"{address}/asked", json.dumps(texts).encode()) as answer:
        answer.read()


async def google_adk(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    """Run with a model in this process, in one session; what it is asked is reported to the server."""
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from shadowtree.adapters.google_adk import make_plugin

    class Scripted(BaseLlm):  # type: ignore[misc]  # its type is not known here
        async def generate_content_async(self, llm_request: Foreign, stream: bool = False) -> Foreign:
            parts = [(each.role, part) for each in llm_request.contents for part in each.parts]
            history = [
                ("result" if part.function_response else role, part.text or "") for role, part in parts
            ]
            _report(address, [text for _, text in history])
            command = next_command(history)
            part = types.Part(text=DONE)
            if command is not None:
                call = types.FunctionCall(name="bash", args={"command": command})
                part = types.Part(function_call=call)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    agent = LlmAgent(name="agent", model=Scripted(model="scripted"), tools=[bash])
    runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[make_plugin(recorder)]))
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    for prompt in prompts:
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        texts = [
            part.text
            async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message)
            for part in event.content.parts
            if part.text
        ]
        answer(texts[-1])
    await runner.close()


async def smolagents(address: str, recorder: TurnRecorder, prompts: list[str]) -> None:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    from shadowtree.adapters.smolagents import add_callbacks

    model = OpenAIModel(model_id="scripted", api_base=f"{address}/v1", api_key="none")
    agent = add_callbacks(ToolCallingAgent([tool(bash)], model, verbosity_level=0), recorder)
    for prompt in prompts:
        answer(agent.run(prompt))


def main() -> None:
    """Run what the command line names."""
    warnings.simplefilter("ignore")
    name, address, worktree, session, *prompts = sys.argv[1:]
    recorder = TurnRecorder(Shadow(worktree, session=session))
    asyncio.run(globals()[name.replace("-", "_")](address, recorder, prompts))
    for failure in recorder.failures:
        raise failure


if __name__ == "__main__":
    main()
