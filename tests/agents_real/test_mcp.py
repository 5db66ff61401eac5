"""A real agent that uses our MCP server."""

from __future__ import annotations

import json

import pytest

from tests.agents_real import programs
from tests.agents_real.model import Call
from tests.agents_real.programs import PROGRAMS
from tests.agents_real.user import User, require

pytestmark = pytest.mark.agents


def test_claude_code_reads_the_history_of_its_directory(user: User) -> None:
    pytest.importorskip("mcp", reason="the extra shadowtree[mcp] is not installed; `tox -e agents` has it")
    require("claude-code")
    user.connect("claude-code")
    user.ask("claude-code", "make a change", PROGRAMS["claude-code"].shell("echo 1 > kept"))
    server = {"command": str(user.executable), "args": ["mcp"]}
    settings = user.home / "mcp.json"
    settings.write_text(json.dumps({"mcpServers": {"shadowtree": server}}))
    prompt = "what did you do before"
    user.model.play(
        prompt,
        Call("mcp__shadowtree__history", {}),
        Call("mcp__shadowtree__read_file", {"message": "#1^", "path": "kept"}),
    )
    arguments = ["-c", "-p", prompt, "--mcp-config", str(settings), "--allowedTools", "mcp__shadowtree"]
    address = user.model.address
    shown = programs.execute("claude-code", user.home, user.worktree, address, arguments)

    assert user.model.was_told('"text":"make a change"'), shown + user.model.last_request()
    assert user.model.was_told('{"text":"0\\n"}'), shown + user.model.last_request()
