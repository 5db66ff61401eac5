"""Real payloads of agents, replayed: each was sent by the program itself to a hook (`payloads/AGENT`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shadowtree import Message, Shadow
from shadowtree.agents.known_agents import NOTHING, SESSION_START
from shadowtree.agents.payloads import Reported, interpret
from shadowtree.cli.hooks.hook import make_event
from shadowtree.results.turns import TurnRecord

PAYLOADS = Path(__file__).parent / "payloads"
HOME_THEN = "/home/u/project"
"""Where the agents worked."""
EVENT_KEYS = ("hook_event_name", "hook", "hookName")

_WRITES = re.compile(r"echo (\w+) > (\w+\.txt)$")


def load(name: str) -> Any:  # Any: JSON
    """Give a payload, or a whole run, by the name of its file."""
    return json.loads((PAYLOADS / f"{name}.json").read_text("utf-8"))


def read(agent: str, payload: object, *, event: str = "", **environ: str) -> Reported:
    """Normalise a payload of an agent that is known."""
    return interpret(agent, payload, environ, event=event, now_ms=1_000_000)


def plugin(name: str, **more: object) -> dict[str, Any]:  # Any: JSON
    """Give what OpenCode's plugin sends for one of its hooks or events."""
    return {
        "hook": name.removeprefix("event."),
        "directory": HOME_THEN,
        "payload": load(f"opencode/{name}"),
        **more,
    }


class Replay:
    """Records what hooks report, one after the other, as the command does."""

    def __init__(self, agent: str, worktree: Path, **settings: object) -> None:
        self.agent = agent
        self.worktree = worktree
        self.sessions: list[str] = []
        self._settings = {"min_free": 0, **settings}

    def send(self, payload: Mapping[str, Any], **changes: object) -> TurnRecord | None:  # Any: JSON
        """Record a payload, in which some keys are different; None if it means nothing."""
        text = json.dumps({**payload, **changes}).replace(HOME_THEN, str(self.worktree))
        reported = read(self.agent, json.loads(text))
        if reported.kind in (NOTHING, SESSION_START, "interrupt"):
            return None
        if reported.session not in self.sessions:
            self.sessions.append(reported.session)
        with self.open() as shadow:
            return shadow.record_turn(make_event(reported, str(self.worktree)))

    def send_all(self, payloads: list[dict[str, Any]]) -> None:  # Any: JSON
        """Record a whole run, in which shell commands that were finished write their files."""
        for payload in payloads:
            if payload.get("hook_event_name") in ("PostToolUse", "AfterTool"):
                self.do_what_the_tool_did(payload)
            self.send(payload)

    def do_what_the_tool_did(self, payload: Mapping[str, Any]) -> None:  # Any: JSON
        """Write the file that the command of a tool wrote."""
        found = _WRITES.search(payload["tool_input"].get("command", ""))
        if found is not None:
            (self.worktree / found[2]).write_text(f"{found[1]}\n")

    def open(self) -> Shadow:
        """Open the shadow for the session that was last heard of."""
        return Shadow(self.worktree, session=self.sessions[-1], settings=self._settings)

    def messages(self) -> list[Message]:
        """List the messages of that session."""
        with self.open() as shadow:
            return shadow.messages()


def files_of(message: Message) -> list[str]:
    """Name what a message changed."""
    return [file.path for file in message.patch.files]
