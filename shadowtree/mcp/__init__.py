"""An MCP server: it lets agents look at the history, save points and, if allowed, undo."""

from __future__ import annotations
