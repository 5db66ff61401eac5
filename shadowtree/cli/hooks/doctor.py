"""Find out why something does not work: agents and their hooks, the daemon, this directory, the disk.

Each check yields its own findings; a check that fails does not stop the others.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache

import shadowtree
from shadowtree.access.access import Access
from shadowtree.agents import targets
from shadowtree.agents.hook_settings import find_hooks
from shadowtree.agents.install import AgentStatus
from shadowtree.agents.json_text import BadJson
from shadowtree.agents.known_agents import AGENTS
from shadowtree.base.errors import BroadWorktree, DaemonFailed, ShadowError, describe_size
from shadowtree.base.frozen import frozen
from shadowtree.base.limits import DEFAULT_LIMITS
from shadowtree.cli.find_shadow import Shared, current_directory
from shadowtree.cli.format import count, describe_age
from shadowtree.cli.hooks.log import RUNNING, call_file, log_file
from shadowtree.cli.views.status import describe_ignored
from shadowtree.config.settings import read_config
from shadowtree.daemon.endpoint import Endpoint
from shadowtree.daemon.launch import find_to_oversee
from shadowtree.results.remotes import Remote
from shadowtree.results.result import Result
from shadowtree.system import disk
from shadowtree.system.locations import Places
from shadowtree.system.syscalls import IS_LINUX, free_lock, is_process_alive, try_lock

OK, NOTE, PROBLEM = "ok", "note", "problem"
_RECENT_S = 24 * 3600
"""Older errors are not reported."""
_ANSWER_S = 10.0
"""How long another program of ours may take to print its version."""
_FEW_WATCHES = 65536


@frozen
class Finding(Result):
    """One result of a check."""

    check: str
    """An agent, or `errors`, `daemon`, `directory`, `remote`, `lock`, `disk`, `watches` or `program`."""
    level: str
    """`ok`, `note` or `problem`."""
    about: str
    todo: str | None = None
    """What to do about it."""


def examine(shared: Shared, statuses: Sequence[AgentStatus]) -> list[Finding]:
    """Run all checks."""
    findings = [Finding("program", OK, f"shadowtree {shadowtree.__version__}")]
    checks: tuple[Callable[[], Iterable[Finding]], ...] = (
        lambda: _examine_agents(statuses),
        _examine_log,
        _examine_killed,
        _examine_daemon,
        lambda: _examine_directory(shared),
        lambda: _examine_disk(shared),
        _examine_watches,
    )
    for check in checks:
        try:
            findings += check()
        except ShadowError as error:
            findings.append(Finding("program", PROBLEM, str(error)))
    return findings


# Agents


def _examine_agents(statuses: Sequence[AgentStatus]) -> Iterator[Finding]:
    connected = {each.agent for each in statuses if each.state != "no"}
    for each in statuses:
        title = AGENTS[each.agent].title
        if each.state != "no":
            yield from _examine_hooks(each, title)
        elif each.scope == targets.USER and each.is_detected and each.agent not in connected:
            todo = f"run 'shadowtree hooks {'print' if each.problem else 'install'} {each.agent}'"
            why = f": {each.problem}" if each.problem else ""
            yield Finding(each.agent, NOTE, f"{title} is here, but not connected{why}", todo)
    if not connected:
        todo = "run 'shadowtree hooks install --all-detected'"
        if not any(each.is_detected for each in statuses):
            todo = f"run 'shadowtree hooks install AGENT' with one of {', '.join(AGENTS)}"
        yield Finding("program", NOTE, "no agent is connected", todo)


def _examine_hooks(status: AgentStatus, title: str) -> Iterator[Finding]:
    """Check the hooks of one agent in one scope: report the first problem, else when they last ran."""
    name = status.agent
    scope = "" if status.scope == targets.USER else f" --{status.scope}"
    again = f"run 'shadowtree hooks install {name}{scope}'"
    if status.problem is not None:
        yield Finding(name, PROBLEM, f"{title}: {status.problem}", "repair the file")
    elif not status.is_executable_there:
        yield Finding(name, PROBLEM, f"{title}: the hooks run {status.executable}, which is gone", again)
    elif status.missing:
        listed = ", ".join(status.missing)
        yield Finding(name, PROBLEM, f"{title}: not all is installed, missing {listed}", again)
    elif (other := _ask_version(status.executable)) != shadowtree.__version__:
        yield Finding(name, NOTE, f"{title}: the hooks run version {other} in {status.executable}", again)
    elif (why := _find_distrust(status)) is not None:
        yield Finding(name, PROBLEM, f"{title}: {why[0]}", why[1])
    else:
        yield _examine_calls(name, title)


def _examine_calls(name: str, title: str) -> Finding:
    stores = Places(os.environ).stores
    try:
        called_s = os.stat(call_file(stores or "", name)).st_mtime
    except OSError:
        todo = f"start a new session of {title} and send a message"
        return Finding(name, NOTE, f"{title}: connected, but its hooks have never run", todo)
    age = describe_age(int((time.time() - called_s) * 1000))
    return Finding(name, OK, f"{title}: connected, its hooks ran {age} ago")


@cache
def _ask_version(executable: str | None) -> str:
    """Return the version of a program; run it only if it is not this one."""
    import subprocess
    import sys

    assert executable is not None
    if os.path.realpath(executable) == os.path.realpath(sys.argv[0]):
        return shadowtree.__version__
    try:
        asked = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return asked.stdout.strip().rpartition(" ")[2] or "unknown"


def _find_distrust(status: AgentStatus) -> tuple[str, str] | None:
    """Return why an agent does not run installed hooks, and what to do; None: no reason is known."""
    if status.agent == "claude-code" and _read_settings(status.path).get("disableAllHooks") is True:
        return f"'disableAllHooks' is set in {status.path}", "remove it"
    if status.agent != "codex":
        return None
    root = targets.find_root("codex", targets.USER, os.environ, project="")
    trusted = _read_trust(os.path.join(root, "config.toml"))
    try:
        with open(status.path, encoding="utf-8-sig") as file:
            hooks = find_hooks(file.read(), AGENTS["codex"])
    except (OSError, BadJson, ShadowError):
        return None
    keys = [f"{status.path}:{_to_snake(each.event)}:{each.group}:{each.place}" for each in hooks]
    untrusted = [key for key in keys if key not in trusted]
    if not untrusted:
        return None
    todo = "start 'codex' and choose 'Trust all and continue'"
    return f"{len(untrusted)} of {count(len(keys), 'hook')} are not trusted, so Codex skips them", todo


def _read_trust(path: str) -> set[str]:
    """List the hooks that Codex trusts; only Codex knows whether their hashes are still right."""
    import tomllib

    try:
        with open(path, "rb") as file:
            state = tomllib.load(file).get("hooks", {}).get("state", {})
        return {key for key, entry in state.items() if entry.get("trusted_hash")}
    except (OSError, ValueError, AttributeError):
        return set()


def _read_settings(path: str) -> dict[str, object]:
    import json

    try:
        with open(path, encoding="utf-8-sig") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _to_snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


# What hooks logged, and the daemon


def _examine_log() -> Iterator[Finding]:
    path = log_file(Places(os.environ).stores or "")
    lines = (disk.read_if_there(path) or b"").decode("ascii", "replace").splitlines()
    recent = [line for line in lines if _is_recent(line)]
    if recent:
        about = f"hooks failed {count(len(recent), 'time')} within a day; the last error: {recent[-1]}"
        todo = f"all errors are in {path}; delete that file once the cause is gone"
        yield Finding("errors", PROBLEM, about, todo)
    else:
        yield Finding("errors", OK, "hooks have reported no errors within a day")


def _examine_killed() -> Iterator[Finding]:
    """Find hooks that noted their start but not their end; remove notes that are old."""
    directory = os.path.dirname(log_file(Places(os.environ).stores or ""))
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        agent, _, pid = name.removeprefix(RUNNING).rpartition("-")
        if not name.startswith(RUNNING) or agent not in AGENTS or not pid.isdecimal():
            continue
        path = os.path.join(directory, name)
        with suppress(FileNotFoundError):
            age_s = time.time() - os.stat(path).st_mtime
            if age_s > _RECENT_S:
                os.unlink(path)
            elif not is_process_alive(int(pid)):
                title, age = AGENTS[agent].title, describe_age(int(age_s * 1000))
                about = f"a hook of {title} was killed {age} ago, so its turn may not be recorded"
                yield Finding("errors", PROBLEM, about, "run 'shadowtree log' to see what is")


def _is_recent(line: str) -> bool:
    try:
        when = datetime.strptime(line.partition(" ")[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return time.time() - when.timestamp() < _RECENT_S


def _examine_daemon() -> Iterator[Finding]:
    try:
        client = find_to_oversee(Endpoint(os.environ)) if Endpoint.is_used(os.environ) else None
        if client is None:
            yield Finding("daemon", OK, "no daemon is running; hooks start one when they need it")
            return
        with client:
            found = client.ask("status")
    except (DaemonFailed, OSError) as error:
        yield Finding("daemon", PROBLEM, f"the daemon: {error}", "run 'shadowtree watch stop --all'")
        return
    watched = count(len(found["worktrees"]), "worktree")
    yield Finding("daemon", OK, f"the daemon is process {found['pid']} and watches {watched}")
    for served in found["worktrees"]:
        watching = served["watching"]
        if watching is not None and not watching["active"]:
            about = f"{served['worktree']} is not watched: {watching['reason'] or 'unknown reason'}"
            yield Finding("daemon", NOTE, about, "recording works, only slower")
        elif watching is not None and watching["unwatched"]:
            about = f"{served['worktree']}: {watching['unwatched']:,} directories are beyond the watch limit"
            yield Finding("watches", NOTE, about, "raise fs.inotify.max_user_watches")


# This directory


def _examine_directory(shared: Shared) -> Iterator[Finding]:
    here = current_directory()
    worktree = shadowtree.find_worktree(here, store=shared.store)
    if worktree is None:
        about = f"nothing is recorded yet in {here}"
        todo = "an agent's next turn or 'shadowtree wrap' starts it"
        try:
            Access(here, shared.store, shared.settings, Places(os.environ), allow_broad=False).refuse_broad()
        except BroadWorktree as error:
            about = f"agents' turns are not recorded here: {error}"
            todo = "start agents in a project's directory"
        yield Finding("directory", NOTE, about, todo)
        return
    with shadowtree.Shadow(worktree, store=shared.store, settings=shared.settings) as shadow:
        yield from _examine_lock(str(shadow.store))
        status, remotes = shadow.status(), shadow.remotes.all()
        wanted = shadow.settings.auto_push
    yield from _examine_remotes(remotes, wanted)
    yield Finding("directory", OK, f"{worktree} is protected, by the store {status.store}")
    if status.ignored:
        todo = "run 'shadowtree protect PATH' to protect one"
        yield Finding("directory", NOTE, describe_ignored(status.ignored), todo)
    if status.skipped:
        first = status.skipped[0]
        number = count(len(status.skipped), "path")
        about = f"{number} could not be recorded, such as {first.path}: {first.reason}"
        yield Finding("directory", NOTE, about, "see 'shadowtree status'")


def _examine_remotes(remotes: Sequence[Remote], wanted: str) -> Iterator[Finding]:
    """Check the remotes of this directory, and whether automatic pushes can work."""
    for remote in remotes:
        if remote.failures:
            about = f"pushing to {remote.name} failed {count(remote.failures, 'time')} in a row: {remote.why}"
            yield Finding("remote", PROBLEM, about, f"try 'shadowtree push {remote.name}'")
    found = next((remote for remote in remotes if remote.name == wanted), None)
    if wanted and found is None:
        about = f"auto_push is {wanted}, but this directory has no remote of that name"
        yield Finding("remote", NOTE, about, f"run 'shadowtree remote add {wanted} URL'")
    elif found is not None and found.pushed_ms is None:
        about = f"auto_push is {wanted}, but nothing was pushed there yet, so nobody agreed to it"
        yield Finding("remote", NOTE, about, f"run 'shadowtree push {wanted}' once")


def _examine_lock(store: str) -> Iterator[Finding]:
    try:
        fd = os.open(os.path.join(store, "lock"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if try_lock(fd):
            free_lock(fd)
            yield Finding("lock", OK, "nobody holds the lock of the store")
            return
        owner = os.pread(fd, 200, 0).decode("ascii", "replace").split()
        who = f"process {owner[0]} on {owner[1]}" if len(owner) > 1 else "another process"
        todo = "if that does not end, look at this process"
        yield Finding("lock", NOTE, f"{who} holds the lock of the store right now", todo)
    finally:
        os.close(fd)


def _examine_disk(shared: Shared) -> Iterator[Finding]:
    stores = Places(os.environ).stores
    place = stores or "/"
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    needed = read_config(os.environ, given=shared.settings).read().min_free
    if free < needed:
        about = (
            f"only {describe_size(free)} are free in {place}; recording stops below {describe_size(needed)}"
        )
        yield Finding("disk", PROBLEM, about, "free some space, or lower min_free")
    elif not os.access(place, os.W_OK):
        yield Finding("disk", PROBLEM, f"{place} cannot be written to", "make it yours")
    else:
        yield Finding("disk", OK, f"{describe_size(free)} are free in {place}")


def _examine_watches() -> Iterator[Finding]:
    if not IS_LINUX:
        return
    try:
        with open(DEFAULT_LIMITS.watch_limit_file, encoding="ascii") as file:
            most = int(file.read())
    except (OSError, ValueError):
        return
    if most < _FEW_WATCHES:
        todo = "raise fs.inotify.max_user_watches, or large directories are recorded more slowly"
        yield Finding("watches", NOTE, f"you may watch {most:,} directories only", todo)
    else:
        yield Finding("watches", OK, f"you may watch {most:,} directories")
