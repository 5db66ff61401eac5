"""An MCP server: it lets agents read the history, save points and, if allowed, undo."""

from __future__ import annotations
