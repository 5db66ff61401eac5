"""The command that has worktrees watched: it starts the daemon, reports what it does, and stops it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import click

from shadowtree.base.errors import DaemonFailed, InvalidInput
from shadowtree.cli.app import command, flag, group
from shadowtree.cli.exit_codes import FAILED
from shadowtree.cli.find_shadow import Shared, current_directory
from shadowtree.cli.format import count, describe_age, escape
from shadowtree.cli.output import ProgressBar, emit, now_ms, say, write_lines, writes_json
from shadowtree.config.settings import parse_duration
from shadowtree.daemon.client import Client, connect
from shadowtree.daemon.endpoint import Endpoint
from shadowtree.daemon.launch import end_daemon, find_daemon, find_to_oversee, reach_daemon
from shadowtree.results.messages import Message


@group
@flag("--detach", "is_detached", help="Watch in the background")
@click.option(
    "--auto",
    metavar="TIME",
    help="Record changes as a message after TIME without new ones, such as 5s",
)
def watch(shared: Shared, is_detached: bool, auto: str | None) -> int:
    """Watch this directory, so other commands only look at what changed

    A daemon watches it, and other commands use the daemon automatically. It runs until you press Ctrl-C; with
    --detach, until 'shadowtree watch stop' or until no command has used it for an hour. One daemon serves all
    directories. The first time, this wraps the current directory.

    With --auto, changes become a message once nothing has changed for TIME, marked as inferred. So you can
    undo what any program did, even agents without hooks. While a message is open, changes belong to that
    message. Only one session per directory can record this way; 'shadowtree watch status' shows which.

    \b
    Examples:
      shadowtree watch
      shadowtree watch --auto 5s
      shadowtree watch --detach
      shadowtree watch status
      shadowtree watch stop
    """
    auto_s = None if auto is None else parse_duration(auto)
    if shared.settings:
        raise InvalidInput("--set cannot be combined with watch; use 'shadowtree config set'")
    with reach_daemon(Endpoint(os.environ)) as client:
        with ProgressBar("Reading files") as bar:
            worktree, store = _find_place(shared)
            wish = {
                "worktree": worktree,
                "store": store,
                "allow_broad": shared.allow_broad,
                "auto_s": auto_s,
                "session": shared.recording_session,
            }
            served = client.ask("serve", wish, is_detached, progress=bar)
        if not is_detached:
            return _hold(client, served)
        _report_served(served, f"in the background (process {served['pid']})")
    return 0


@command(of=watch)
@flag("--all", "is_all", help="Stop watching everything, and stop the daemon")
def stop(shared: Shared, is_all: bool) -> None:
    """Stop watching this directory

    Work in progress is finished first. With --all, this waits until the daemon has stopped; the exit code is
    1 if it keeps running.

    \b
    Examples:
      shadowtree watch stop
      shadowtree watch stop --all
    """
    if is_all:
        ended = end_daemon_if_any()
        stopped, nothing = ended or [], "Nothing is watched" if ended is None else "Stopped the daemon"
        document = {"stopped": stopped, "ended": ended is not None}
    else:
        stopped, nothing = _stop_one(shared), "This directory is not watched"
        document = {"stopped": stopped}
    lines = [f"Stopped watching {escape(worktree)}" for worktree in stopped]
    emit(document, lines or [nothing])


@command(of=watch)
def status(shared: Shared) -> None:
    """Show which directories are watched

    \b
    Examples:
      shadowtree watch status
      shadowtree watch status --json
    """
    client = find_to_oversee(Endpoint(os.environ))
    if client is None:
        nothing: dict[str, Any] = dict.fromkeys(("pid", "version", "since", "socket"))  # Any: JSON
        emit({**nothing, "worktrees": []}, ["No daemon is running"])
        return
    with client:
        found = client.ask("status")
    document = {**_to_json(found), "worktrees": [_to_json(served) for served in found["worktrees"]]}
    emit(document, _render_status(found))


def stop_serving(worktree: str, store: str) -> None:
    """Have the daemon drop this worktree, if it serves it."""
    client = find_daemon(Endpoint(os.environ)) if Endpoint.is_used(os.environ) else None
    if client is not None:
        with client:
            client.ask("stop", worktree, store)


def stop_hook_serving() -> None:
    """Have the daemon drop the worktrees that it watches only for hooks of agents."""
    client = find_to_oversee(Endpoint(os.environ)) if Endpoint.is_used(os.environ) else None
    if client is None:
        return
    with client:
        for each in client.ask("status")["worktrees"]:
            if each["idle_s"] is not None and not each["holders"] and each["auto_s"] is None:
                client.ask("stop", each["worktree"], each["store"])


def _find_place(shared: Shared) -> tuple[str, str | None]:
    """Return this directory, and the store if one is given, for the daemon to find the worktree."""
    store = shared.store or os.environ.get("SHADOWTREE_STORE")
    return os.path.realpath(current_directory()), os.path.realpath(store) if store else None


def _report_served(served: dict[str, Any], how: str) -> None:  # Any: JSON
    files = count(served["files"], "file")
    lines = [f"Watching {escape(served['worktree'])} ({files}) {how}"]
    emit(served, lines, warnings=served.get("warnings", ()))
    sys.stdout.flush()


def _hold(client: Client, served: dict[str, Any]) -> int:  # Any: JSON
    """Keep the worktree watched until the user presses Ctrl-C, which is not a failure."""

    def report_burst(message: Message) -> None:
        if not writes_json():
            write_lines([f"Message {escape(message.id)} changed {count(len(message.patch.files), 'file')}"])
            sys.stdout.flush()

    try:
        _report_served(served, "until you press Ctrl-C")
        why = client.wait(report_burst)
    except KeyboardInterrupt:
        return 0
    say(f"{served['worktree']} is no longer watched: {why}")
    return FAILED


def _stop_one(shared: Shared) -> list[str]:
    client = find_to_oversee(Endpoint(os.environ))
    if client is None:
        return []
    with client:
        stopped: list[str] = client.ask("stop", *_find_place(shared))
        return stopped


def end_daemon_if_any() -> list[str] | None:
    """End the daemon, whatever its version, and return the worktrees it served; None: there is no daemon."""
    place = Endpoint(os.environ)
    try:
        client = find_to_oversee(place)
    except DaemonFailed:
        with connect(place) or nullcontext() as client:
            end_daemon(place, client)
        return []
    if client is None:
        return None
    with client:
        worktrees = [served["worktree"] for served in client.ask("status")["worktrees"]]
        end_daemon(place, client)
    return worktrees


def _to_json(found: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Return the documented JSON of the daemon's answer: times as text, names without units and prefixes."""
    document = {}
    for key, value in found.items():
        name = key.removesuffix("_ms").removesuffix("_s").removeprefix("is_")
        if key.endswith("_ms"):
            value = datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
        document[name] = value
    return document


def _render_status(found: dict[str, Any]) -> Iterator[str]:  # Any: JSON
    now = now_ms()
    since = describe_age(now - found["since_ms"])
    yield f"The daemon (process {found['pid']}, version {found['version']}) started {since} ago"
    for served in found["worktrees"]:
        used = describe_age(now - served["used_ms"])
        yield f"{escape(served['worktree'])}: {count(served['requests'], 'request')}, used {used} ago"
        if served["watching"] is not None:
            yield from _render_watching(served["watching"])
        if served["auto_s"] is not None:
            session, quiet = escape(served["auto_session"]), f"{served['auto_s']:g} s without new ones"
            yield f"  changes are recorded in session {session} after {quiet}"
        if served["failure"] is not None:
            yield f"  the last attempt failed and will be repeated: {escape(served['failure'])}"
    if not found["worktrees"]:
        yield "Nothing is watched"


def _render_watching(watching: dict[str, Any]) -> Iterator[str]:  # Any: JSON
    if not watching["active"]:
        yield f"  not watched: {escape(watching['reason'] or 'unknown reason')}"
        return
    number = watching["directories"]
    directories = "1 directory" if number == 1 else f"{number:,} directories"
    yield f"  {directories} watched, {watching['unwatched']:,} scanned each time"
    scans = count(watching["rescans"], "full scan")
    why = f" (last reason: {escape(watching['reason'])})" if watching["reason"] else ""
    yield f"  {scans}{why}; {count(watching['missed'], 'unreported change')} found"
