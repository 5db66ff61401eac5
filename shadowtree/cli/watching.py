"""The command that keeps worktrees warm: it starts the daemon, tells what it does, and stops it."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext

import shadowtree
from shadowtree.cli.command import Command, Option, Shared
from shadowtree.cli.output import say, warn, write_json, write_lines
from shadowtree.cli.progress import ProgressBar
from shadowtree.cli.shadows import current_directory
from shadowtree.cli.text import count, describe_age, escape
from shadowtree.daemon.client import Client, open_conversation
from shadowtree.daemon.start import end_daemon, find_to_oversee, reach_daemon

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def watch(shared: Shared, is_detached: bool = False, auto: str | None = None) -> int:
    auto_s = None if auto is None else shadowtree.parse_duration(auto)
    if shared.settings:
        raise shadowtree.InvalidInput("--set is for one command; what is watched has the usual settings")
    with reach_daemon(os.environ) as client:
        with ProgressBar("Reading files") as bar:
            wish = {
                **_name_place(shared),
                "allow_broad": shared.allow_broad,
                "auto_s": auto_s,
                "session": shared.session,
            }
            served = client.ask("serve", wish, is_detached, progress=bar)
        if is_detached:
            _tell_served(shared, served, f"by process {served['pid']}")
            return 0
        return _hold(client, served, shared)


def stop(shared: Shared, is_all: bool = False) -> int:
    if is_all:
        return _stop_all(shared)
    stopped = _stop_one(shared)
    if shared.as_json:
        write_json({"stopped": stopped})
    else:
        write_lines(_list_stopped(stopped) or ["This is not watched"])
    return 0


def _stop_all(shared: Shared) -> int:
    """End the daemon, and tell what it served, as far as it could be asked."""
    stopped = _end_daemon()
    if shared.as_json:
        write_json({"stopped": stopped or [], "ended": stopped is not None})
    elif stopped is None:
        write_lines(["Nothing was watched"])
    else:
        write_lines(_list_stopped(stopped) or ["The daemon has ended"])
    return 0


def _list_stopped(worktrees: list[str]) -> list[str]:
    return [f"{escape(worktree)} is no longer watched" for worktree in worktrees]


def status(shared: Shared) -> int:
    client = find_to_oversee(os.environ)
    found: dict[str, Any] | None = None  # Any: JSON
    if client is not None:
        with client:
            found = client.ask("status")
    if shared.as_json:
        write_json(_to_json(found))
    else:
        write_lines(["No daemon is running"] if found is None else _render_status(found))
    return 0


def _name_place(shared: Shared) -> dict[str, Any]:  # Any: JSON
    """Name where this is, so that the daemon finds the worktree that is meant."""
    store = shared.store or os.environ.get("SHADOWTREE_STORE") or None
    return {
        "worktree": os.path.realpath(current_directory()),
        "store": None if store is None else os.path.realpath(store),
    }


def _tell_served(shared: Shared, served: dict[str, Any], how: str) -> None:  # Any: JSON
    if shared.as_json:
        write_json(served)
    else:
        files = count(served["files"], "file")
        write_lines([f"{escape(served['worktree'])} with its {files} is watched {how}"])
        for warning in served.get("warnings", ()):
            warn(warning)
    sys.stdout.flush()


def _hold(client: Client, served: dict[str, Any], shared: Shared) -> int:  # Any: JSON
    """Say so, and hold the worktree until somebody presses Ctrl-C; that is how it ends, and no failure."""

    def tell_burst(message: shadowtree.Message) -> None:
        if not shared.as_json:
            write_lines([f"Message {escape(message.id)} changed {count(len(message.patch.files), 'file')}"])
            sys.stdout.flush()

    try:
        _tell_served(shared, served, "until you press Ctrl-C")
        why = client.wait(tell_burst)
    except KeyboardInterrupt:
        return 0
    say(f"{served['worktree']} is no longer watched: {why}")
    return 1


def _stop_one(shared: Shared) -> list[str]:
    client = find_to_oversee(os.environ)
    if client is None:
        return []
    place = _name_place(shared)
    with client:
        stopped: list[str] = client.ask("stop", place["worktree"], place["store"])
        return stopped


def _end_daemon() -> list[str] | None:
    """End the daemon, of whatever version, and name what it says that it served; None: there is none."""
    place = shadowtree.MeetingPlace(os.environ)
    try:
        client = find_to_oversee(os.environ)
    except shadowtree.DaemonFailed:
        with open_conversation(place) or nullcontext() as client:
            end_daemon(place, client)
        return []
    if client is None:
        return None
    with client:
        worktrees = [served["worktree"] for served in client.ask("status")["worktrees"]]
        end_daemon(place, client)
    return worktrees


def _to_json(found: dict[str, Any] | None) -> dict[str, Any]:  # Any: JSON
    if found is None:
        return {"pid": None, "version": None, "since": None, "socket": None, "worktrees": []}
    worktrees = [
        {
            "worktree": served["worktree"],
            "store": served["store"],
            "sessions": served["sessions"],
            "watching": served["watching"],
            "requests": served["requests"],
            "since": _to_iso(served["since_ms"]),
            "used": _to_iso(served["used_ms"]),
            "kept": served["is_kept"],
            "holders": served["holders"],
            "auto": served["auto_s"],
            "auto_session": served["auto_session"],
            "failure": served["failure"],
        }
        for served in found["worktrees"]
    ]
    return {
        "pid": found["pid"],
        "version": found["version"],
        "since": _to_iso(found["since_ms"]),
        "socket": found["socket"],
        "worktrees": worktrees,
    }


def _render_status(found: dict[str, Any]) -> Iterator[str]:  # Any: JSON
    now_ms = time.time_ns() // 1_000_000
    since = describe_age(now_ms - found["since_ms"])
    yield f"The daemon is process {found['pid']}, version {found['version']}, for {since}"
    for served in found["worktrees"]:
        used = describe_age(now_ms - served["used_ms"])
        yield f"{escape(served['worktree'])}: {count(served['requests'], 'request')}, used {used} ago"
        if served["watching"] is not None:
            yield from _render_watching(served["watching"])
        if served["auto_s"] is not None:
            session, quiet = escape(served["auto_session"]), f"{served['auto_s']:g} s of quiet"
            yield f"  bursts of changes are recorded in session {session} after {quiet}"
        if served["failure"] is not None:
            yield f"  the last one could not be, and is tried again: {escape(served['failure'])}"
    if not found["worktrees"]:
        yield "It watches nothing"


def _render_watching(watching: dict[str, Any]) -> Iterator[str]:  # Any: JSON
    if not watching["active"]:
        yield f"  not watched now: {escape(watching['reason'] or 'nobody knows why')}"
        return
    number = watching["directories"]
    directories = "1 directory" if number == 1 else f"{number:,} directories"
    yield f"  {directories} watched, {watching['unwatched']:,} looked at each time"
    scans = count(watching["rescans"], "full scan")
    why = f", the last one because {escape(watching['reason'])}" if watching["reason"] else ""
    yield f"  {scans}{why}; {count(watching['missed'], 'change')} found that nobody told of"


def _to_iso(time_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


STOP = Command(
    stop,
    options=(Option("--all", "is_all", "Stop watching everything, and end the daemon"),),
    help="""\
Stop watching this worktree

What is being done is finished first. With --all the daemon has ended when this returns; exit code 1 if it
goes on.

\b
Examples:
  shadowtree watch stop
  shadowtree watch stop --all
""",
)

STATUS = Command(
    status,
    help="""\
Tell which worktrees are watched, and how that goes

\b
Examples:
  shadowtree watch status
  shadowtree watch status --json
""",
)

WATCH = Command(
    watch,
    options=(
        Option("--detach", "is_detached", "Return when it is watched, and go on in the background"),
        Option(
            "--auto",
            "auto",
            "Record each burst of changes as a message, after so much quiet, such as 5s",
            metavar="TIME",
        ),
    ),
    actions={"stop": STOP, "status": STATUS},
    help="""\
Watch this worktree, so that commands cost what changed

A daemon keeps it warm, and the other commands use it by themselves. Without --detach it is watched until you
press Ctrl-C. With it, until 'shadowtree watch stop', or until no command has used it for an hour. One daemon
serves all worktrees, and ends when there is none. The first time it wraps the current directory.

With --auto each burst of changes that is followed by so much quiet becomes a message, marked as inferred, so
that what any program did can be undone. While a message is open, what changes belongs to that one. One
session of a worktree records so at a time; 'shadowtree watch status' tells which.

\b
Examples:
  shadowtree watch
  shadowtree watch --auto 5s
  shadowtree watch --detach
  shadowtree watch status
  shadowtree watch stop
""",
)
