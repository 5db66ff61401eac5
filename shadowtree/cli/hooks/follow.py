"""Follow an agent's own undo: OpenCode writes the files itself, and only our head moves.

{"directory": ..., "session": ..., "revert": ID}      went back to before this message
{"directory": ..., "session": ..., "revert": null}    came forward again
"""

from __future__ import annotations

import os
from typing import BinaryIO

import shadowtree
from shadowtree.agents.known_agents import Agent
from shadowtree.agents.payloads import name_session, name_turn
from shadowtree.base.errors import ShadowError, UnknownMessage
from shadowtree.cli.hooks.log import write_line
from shadowtree.system.locations import Places

_MOST_BYTES = 1 << 16
_MOST_STEPS = 100


def follow_undo(agent: Agent, given: BinaryIO) -> int:
    """Move our head as the agent did; errors go to the hooks' log and never disturb the agent."""
    import json

    try:
        payload = json.loads(given.read(_MOST_BYTES))
        directory, session, revert = payload["directory"], payload["session"], payload["revert"]
        is_usable = isinstance(directory, str) and isinstance(session, str) and isinstance(revert, str | None)
        worktree = shadowtree.find_worktree(directory) if is_usable else None
        if worktree is None:
            return 0
        with shadowtree.Shadow(worktree, session=name_session(agent.name, session)) as shadow:
            if revert is None:
                _come_forward(shadow)
            else:
                _go_back(shadow, name_turn(session, revert))
    except (ShadowError, ValueError, KeyError, TypeError) as error:
        write_line(Places(os.environ).stores, agent.name, "undo", str(error))
    return 0


def _go_back(shadow: shadowtree.Shadow, id: str) -> None:
    """Move the head to before a message; do nothing if no such message was recorded."""
    try:
        shadow.revert(id, files=False)
    except UnknownMessage:
        return


def _come_forward(shadow: shadowtree.Shadow) -> None:
    """Reverse acts that only moved the head; stop at one that wrote files: it was not the agent's."""
    for _ in range(_MOST_STEPS):
        if not shadow.status().undone:
            return
        plan = shadow.unrevert(dry_run=True)
        if not plan.messages or plan.restored or plan.deleted:
            return
        shadow.unrevert(expect=plan.id)
