"""The MCP server with the official client, in this process and as the command; skipped without the SDK."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from tests.support.processes import surroundings
from tests.support.trees import assert_tree, make_tree

READING = ["diff", "history", "read_file", "save_point"]
ALL = sorted([*READING, "undo", "revert", "confirm"])

Story = Callable[[Any], Coroutine[None, None, None]]  # Any: a client


@pytest.fixture
def mcp() -> Any:  # Any: the module
    if importlib.util.find_spec("mcp") is None and not os.environ.get("SHADOWTREE_ALL_SDKS"):
        pytest.skip("the extra `mcp` is not installed; `tox -e adapters` installs it")
    return importlib.import_module("mcp")


def converse(mcp: Any, server: Any, story: Story) -> None:  # Any: the module, and what a client takes
    """Let a client talk to a server; a story that hangs fails."""

    async def talk() -> None:
        async with mcp.Client(server) as client:
            await asyncio.wait_for(story(client), 60)

    asyncio.run(talk())


async def ask(client: Any, tool: str, **arguments: object) -> Any:  # Any: a client, and JSON
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


def make_server(shadow: Shadow, *, allows_undo: bool) -> Any:  # Any: a server
    from shadowtree.mcp import server

    return server.make_server(lambda: nullcontext(shadow), allows_undo=allows_undo)


def test_tools_that_change_files_are_offered_only_if_allowed(mcp: Any, shadow: Shadow) -> None:
    async def story(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert sorted(tool.name for tool in tools) == READING
        assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["save_point"]
        assert all(tool.description and "." in tool.description for tool in tools)

    async def story_with_undo(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert sorted(tool.name for tool in tools) == ALL
        assert [tool.name for tool in tools if tool.annotations.destructive_hint] == ["confirm"]

    converse(mcp, make_server(shadow, allows_undo=False), story)
    converse(mcp, make_server(shadow, allows_undo=True), story_with_undo)


def test_an_error_is_one_line(mcp: Any, shadow: Shadow, worktree: Path) -> None:
    with shadow.message("one"):
        (worktree / "a").write_text("1")
    (worktree / "a").write_text("mine")

    async def story(client: Any) -> None:
        failed = await client.call_tool("read_file", {"message": "never", "path": "a"})
        assert failed.is_error
        sentence = "no message, branch or tree named 'never'"
        assert failed.content[0].text == f"Error executing tool read_file: {sentence}"
        plan = await ask(client, "undo")
        failed = await client.call_tool("confirm", {"plan": plan["plan"]})
        assert failed.is_error
        (line,) = failed.content[0].text.splitlines()
        assert "1 path in conflict; nothing was changed; a: " in line

    converse(mcp, make_server(shadow, allows_undo=True), story)
    assert (worktree / "a").read_text() == "mine"


def test_a_name_that_is_no_utf8_can_be_sent(mcp: Any, shadow: Shadow, worktree: Path) -> None:
    with shadow.message("one"):
        make_tree(worktree, {"caf\udce9": "1"})

    async def story(client: Any) -> None:
        (message,) = (await ask(client, "history"))["messages"]
        assert message["paths"] == ["caf\ufffd"]

    converse(mcp, make_server(shadow, allows_undo=False), story)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_command_serves_a_whole_story(mcp: Any, project: Path, mode: str) -> None:
    words = ["-m", "shadowtree", "mcp", "--allow-undo"]
    server = mcp.StdioServerParameters(
        command=sys.executable, args=words, env=surroundings(), cwd=str(project)
    )

    async def story() -> None:
        async with mcp.Client(server, mode=mode) as client:
            saved = await ask(client, "save_point", label="start")
            (project / "a.txt").write_text("changed\n")
            await ask(client, "save_point", label="changed")
            assert [each["text"] for each in (await ask(client, "history"))["messages"]] == [
                "start",
                "changed",
            ]
            (file,) = (await ask(client, "diff", a=saved["message"]))["files"]
            assert "-one\n+changed\n" in file["patch"]
            assert await ask(client, "read_file", message=saved["message"], path="a.txt") == {"text": "one\n"}
            plan = await ask(client, "undo")
            assert plan["restored"] == ["a.txt"]
            assert (project / "a.txt").read_text() == "changed\n"
            done = await ask(client, "confirm", plan=plan["plan"])
            assert done["complete"]

    asyncio.run(asyncio.wait_for(story(), 60))
    assert_tree(project, {"a.txt": "one\n", "b.txt": "two\n"})


def test_the_command_ends_quietly_when_its_input_does(mcp: Any, project: Path) -> None:
    command = [sys.executable, "-m", "shadowtree", "mcp"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=surroundings(), timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_the_extra_the_command_says_so_in_one_line(project: Path) -> None:
    """The SDK is hidden, if it is there."""
    code = (
        "import sys; sys.modules['mcp'] = None; from shadowtree.cli.main import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=surroundings(),
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "shadowtree: this needs the extra 'mcp', which is not installed; run pip install 'shadowtree[mcp]'\n"
    )
