"""The MCP server on standard input and output, with the official SDK; it comes with `shadowtree[mcp]`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

import shadowtree
from shadowtree.base.errors import Conflict, ShadowError
from shadowtree.mcp.tools import Json, Opener, Tools

_INSTRUCTIONS = """\
shadowtree records every state of the files in this directory, so that the user can go back. \
Use history and diff to see what changed and when, read_file for an earlier version, and save_point before \
something risky."""
_ASK_FIRST = " undo and revert only plan: show the plan to the user, and call confirm after they agreed."


def make_server(open_shadow: Opener, *, allows_undo: bool) -> Any:  # Any: MCPServer
    """Make the server; without `allows_undo` it has no tool that changes a file."""
    tools = Tools(open_shadow)
    server = MCPServer(
        "shadowtree",
        instructions=_INSTRUCTIONS + _ASK_FIRST * allows_undo,
        version=shadowtree.__version__,
        log_level="WARNING",
    )
    looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    adds = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
    changes = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
    offered: dict[Callable[..., Json], Any] = {  # Any: ToolAnnotations
        tools.history: looks,
        tools.diff: looks,
        tools.read_file: looks,
        tools.save_point: adds,
    }
    if allows_undo:
        offered |= {tools.undo: looks, tools.revert: looks, tools.confirm: changes}
    for function, hints in offered.items():
        server.add_tool(_answering(function), annotations=hints)
    return server


def run_server(open_shadow: Opener, *, allows_undo: bool) -> None:
    """Serve until standard input ends."""
    make_server(open_shadow, allows_undo=allows_undo).run("stdio")


def _answering(function: Callable[..., Json]) -> Callable[..., Json]:
    """Wrap a tool so that its errors are one line for the model, and its texts are valid UTF-8."""

    @wraps(function)
    def call(*args: Any, **named: Any) -> Json:  # Any: of the tool's own types
        try:
            result: Json = _make_sendable(function(*args, **named))
        except Conflict as error:
            paths = [f"{each.path}: {each.reason}" for each in error.conflicts]
            raise ToolError(_make_sendable("; ".join([str(error), *paths]))) from error
        except ShadowError as error:
            raise ToolError(_make_sendable(str(error))) from error
        return result

    return call


def _make_sendable(value: Any) -> Any:  # Any: JSON
    """Replace bytes that are not UTF-8, as in names of files."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {key: _make_sendable(each) for key, each in value.items()}
    return [_make_sendable(each) for each in value] if isinstance(value, list) else value
