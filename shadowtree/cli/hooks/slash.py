"""What agents run for our slash commands: undo, redo or log in their own session, in plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr

import shadowtree
from shadowtree.agents.normalise import name_session
from shadowtree.agents.table import Agent
from shadowtree.base.errors import ShadowError
from shadowtree.cli.find_shadow import current_directory

_LISTED = 10


def run_slash(agent: Agent, action: str, words: Sequence[str]) -> int:
    """Do it and tell on standard output, also what went wrong: some agents drop a command that fails."""
    from shadowtree.cli.main import main

    if action == "log":
        words = ["-n", str(_LISTED)]
    elif len(words) > 1 or not all(word.isdecimal() for word in words):
        sys.stdout.write(
            f"Nothing was changed: /shadowtree-{action} takes the number of turns, or nothing.\n"
        )
        return 0
    session = _find_session(agent)
    if session is None:
        sys.stdout.write(f"Nothing is recorded yet for {agent.title} in this directory.\n")
        return 0
    with redirect_stderr(sys.stdout):
        main([action, *words, "--session", session, "--color", "never", "--no-pager"])
    return 0


def _find_session(agent: Agent) -> str | None:
    """Name the session that the agent is in, or the one in which it recorded last; None: there is none."""
    named = os.environ.get(agent.session_variable or "")
    if named:
        return name_session(agent.name, named)
    try:
        worktree = shadowtree.find_worktree(current_directory())
        if worktree is None:
            return None
        with shadowtree.Shadow(worktree) as shadow:
            sessions = [message.session for message in shadow.messages(all_sessions=True)]
    except ShadowError:
        return None
    return next((each for each in reversed(sessions) if each.startswith(f"{agent.name}-")), None)
