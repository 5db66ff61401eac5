"""Run `shadowtree hook` as agents do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from shadowtree import Shadow
from shadowtree.cli.hooks.log import log_file
from tests.agents.replay import HOME_THEN
from tests.support.processes import COMMAND, surroundings

BEGIN = "claude-code/UserPromptSubmit"
SESSION = "claude-code-b4913fbf"
TURN = "turn-8e9f4c3ec578"
"""What that payload means."""


def run_hook(
    payload: object, worktree: Path, *words: str, code: str = "", **variables: str
) -> dict[str, Any] | None:  # Any: JSON
    """Run the command as agents do; give the JSON that it printed, if any."""
    text = payload if isinstance(payload, str) else json.dumps(payload).replace(HOME_THEN, str(worktree))
    done = subprocess.run(
        [*([sys.executable, "-c", code] if code else [*COMMAND, "hook"]), *(words or ("claude-code",))],
        input=text.encode("utf-8", "surrogatepass"),
        env=surroundings(**variables),
        cwd=worktree,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    return json.loads(done.stdout) if done.stdout else None


def read_log() -> list[str]:
    """Give the lines of the log of hooks."""
    path = Path(log_file(os.environ["SHADOWTREE_HOME"]))
    return path.read_text().splitlines() if path.exists() else []


def messages_of(worktree: Path, session: str = SESSION) -> list[str]:
    with Shadow(worktree, session=session) as shadow:
        return [f"{message.id} {message.state}" for message in shadow.messages()]
