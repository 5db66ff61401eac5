"""Our slash commands, as agents run them: undo, redo or log in the agent's session, in plain text."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr

import shadowtree
from shadowtree.agents.known_agents import Agent
from shadowtree.agents.payloads import name_session
from shadowtree.base.errors import Conflict, NotConfirmed, ShadowError
from shadowtree.cli import app
from shadowtree.cli.errors import report
from shadowtree.cli.find_shadow import current_directory

_LISTED = 10


def run_slash(agent: Agent, action: str, words: Sequence[str]) -> int:
    """Run it; print errors on standard output too and return 0, as some agents drop a command that fails."""
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
    line = [action, *words, "--session", session]
    with redirect_stderr(sys.stdout):
        try:
            app.run([*line, "--color", "never", "--no-pager"])
        except Conflict as error:
            report(error, as_json=False, has_advice=False)
            sys.stdout.write(f"In a terminal, run: shadowtree {shlex.join(line)}{_choose(error)}\n")
        except Exception as error:  # noqa: BLE001  # the last stop before the agent
            report(error, as_json=False)
    return 0


def _choose(error: Conflict) -> str:
    """Return the option to continue despite conflicts; empty if only a confirmation is missing."""
    if isinstance(error, NotConfirmed):
        return ""
    can_merge = any("merge" in conflict.choices for conflict in error.conflicts)
    return f" --on-conflict {'merge' if can_merge else 'keep'}"


def _find_session(agent: Agent) -> str | None:
    """Return the agent's current session, else the one in which it last recorded; None: there is none."""
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
