"""shadowtree as a contestant: the library in process, the one-shot command, and commands with the daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.contestants import Ended
from shadowtree import Shadow

PROJECT = Path(__file__).resolve().parent.parent
"""Where `python -m` finds the packages."""

_IDLE_S = 600
"""More than all work in idle time needs."""


class NotWatched(Exception):
    """The worktree cannot be watched, so a figure would mean something else."""


class Ours:
    """The library in process, as a long-running agent uses it.

    Every snapshot scans the whole worktree, unless it is watched.
    """

    def __init__(self, worktree: Path, store: Path, *, watch: bool) -> None:
        self.worktree = worktree
        self._store = store
        self._watch = watch
        self._shadow: Shadow | None = None
        self._messages = 0

    def prime(self) -> None:
        """Take a snapshot; raise `NotWatched` if the next ones would scan the whole worktree after all."""
        self.track()
        watching = self._open().watching
        if watching is not None and not watching.is_active:
            raise NotWatched(watching.reason)

    def track(self) -> str:
        return self._open().track()

    def begin_message(self) -> None:
        self._messages += 1
        self._open().begin(self._last_id, text="Change some files")

    def end_message(self) -> Ended:
        message = self._open().end(self._last_id)
        assert message.before is not None
        assert message.after is not None
        return Ended(message.before, message.after, [changed.path for changed in message.patch.files])

    def revert_message(self) -> None:
        self._open().revert(self._last_id)

    def close(self) -> None:
        if self._shadow is not None:
            self._shadow.close()

    @property
    def _last_id(self) -> str:
        return f"message-{self._messages}"

    def _open(self) -> Shadow:
        if self._shadow is None:
            self._shadow = Shadow(self.worktree, store=self._store, watch=self._watch)
        return self._shadow


def idle(shadow: Shadow) -> None:
    """Give the store all the idle time that it has work for, as a daemon would."""
    shadow.tidy(_IDLE_S)


class NotServed(Exception):
    """The commands did not use the daemon, so a figure would mean something else."""


class Daemon:
    """A daemon with a directory of stores of its own that serves one worktree, and commands that find it."""

    def __init__(self, worktree: Path, home: Path) -> None:
        self._worktree = worktree
        self._home = home
        self._variables = {"SHADOWTREE_HOME": str(home / "stores")}
        home.mkdir()

    def __enter__(self) -> Daemon:
        self.command("watch", "--detach")
        return self

    def __exit__(self, *raised: object) -> None:
        self.command("watch", "stop", "--all")

    def command(self, *arguments: str) -> str:
        """Run a command on the worktree, by the daemon while it runs; return what it prints."""
        command = ["-m", "shadowtree", "-C", str(self._worktree), *arguments]
        return _run_python(command, home=self._home, variables=self._variables)

    def require_served(self, commands: int) -> None:
        """Raise `NotServed` if the daemon had fewer than `commands` requests, or cannot watch."""
        status = json.loads(self.command("watch", "status", "--json"))
        watched = [served for served in status["worktrees"] if (served["watching"] or {}).get("active")]
        requests = sum(served["requests"] for served in watched)
        if requests < commands:
            raise NotServed(f"{requests} requests after {commands} commands: {status}")


def track_by_command(worktree: Path, store: Path) -> str:
    """Run `shadowtree track` once and return the tree id."""
    command = ["-m", "shadowtree", "-C", str(worktree), "--store", str(store), "track"]
    return _run_python(command, home=store.parent)


class Hooks:
    """An agent that calls its hooks around every tool call, with a directory of stores of its own."""

    def __init__(self, worktree: Path, home: Path) -> None:
        self._worktree = worktree
        self._home = home
        home.mkdir(exist_ok=True)
        self._call("UserPromptSubmit", prompt="go on")

    def run_tool(self, number: int) -> Callable[[str], None]:
        """Return a function that calls the hook for the begin or the end of a tool call."""
        return lambda event: self._call(
            event, tool_name="Bash", tool_input={"command": "make"}, tool_use_id=f"toolu_{number:08}"
        )

    def _call(self, event: str, **more: object) -> None:
        same = {"session_id": "benchmark", "prompt_id": "prompt_1", "cwd": str(self._worktree)}
        payload = json.dumps({**same, "hook_event_name": event, **more})
        # CI: the hook does not start a daemon, because the caller decides whether there is one.
        variables = {"SHADOWTREE_HOME": str(self._home / "stores"), "CI": "1"}
        _run_python(
            ["-m", "shadowtree", "hook", "claude-code"], home=self._home, variables=variables, given=payload
        )


def start_bare_python(home: Path) -> None:
    """Start Python and do nothing: the floor of every one-shot command."""
    _run_python(["-c", "pass"], home=home)


def _run_python(
    arguments: list[str], *, home: Path, variables: Mapping[str, str] | None = None, given: str = ""
) -> str:
    """Run Python without the user's settings and return what it prints."""
    users = {name: value for name, value in os.environ.items() if not name.startswith("SHADOWTREE_")}
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env={**users, "HOME": str(home), **(variables or {})},
        input=given,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return result.stdout.strip()
