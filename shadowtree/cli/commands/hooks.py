"""The commands that connect agents: install hooks, remove them, and find out why something does not work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from shadowtree.agents import targets
from shadowtree.agents.executable import find_executable, require_lasting
from shadowtree.agents.install import (
    ADDED,
    CHANGED,
    EDITED,
    KEPT,
    REMOVED,
    AgentStatus,
    FileChange,
    Installer,
    list_installed,
)
from shadowtree.agents.known_agents import AGENTS
from shadowtree.base.errors import DaemonFailed, InvalidInput, ShadowError
from shadowtree.cli.app import Function, command, flag, group
from shadowtree.cli.commands.watch import stop_hook_serving
from shadowtree.cli.exit_codes import FAILED
from shadowtree.cli.find_shadow import Shared, current_directory
from shadowtree.cli.format import escape, join_rows
from shadowtree.cli.output import emit, is_quiet, say, warn, writes_json
from shadowtree.system.locations import Places

_AT_ONCE = ("claude-code", "gemini", "copilot", "qwen", "cline")
_NOTES = {
    "codex": (
        "Codex runs new hooks only after you trust them: start 'codex' and choose 'Trust all and continue'. "
        "Until then 'codex exec' skips them silently"
    ),
    "opencode": "Restart OpenCode. With a plugin, it downloads its own plugin library once (63 MB)",
    "kilo": "Restart Kilo CLI",
    "cursor": "The hooks for Cursor follow its documentation; they were not tried with the program",
    **{name: f"{AGENTS[name].title} uses the hooks in new sessions" for name in _AT_ONCE},
}
_PROJECT_NOTES = {
    "codex": "Codex also has to trust the project: answer yes when it asks",
    "opencode": "OpenCode puts its plugin library into .opencode of the project; --user avoids that",
    "claude-code": "Copilot CLI runs these hooks too; what it does is recorded as Copilot's",
}
_PLANS = {ADDED: "would add", CHANGED: "would change", REMOVED: "would remove"}
_SHARED_NOTE = "The file names a program of this machine, so do not commit it"


def _complete_agent(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in AGENTS if name.startswith(incomplete)]


_AGENT = click.Choice(list(AGENTS))
_NAMES = ", ".join(AGENTS)
_agents = click.argument(
    "agents", metavar="[AGENT...]", nargs=-1, type=_AGENT, shell_complete=_complete_agent
)
_agent = click.argument("agent", metavar="AGENT", type=_AGENT, shell_complete=_complete_agent)
_SCOPE_OPTIONS = (
    flag("--user", help="For all your projects; the default"),
    flag("--project", help="For this project, in its own settings"),
    flag("--local", help="For this project and you alone"),
)


def _scoped(function: Function) -> Function:
    """Add the options that choose the settings, and call the command with the chosen scope."""

    @wraps(function)
    def call(shared: Shared, **values: Any) -> int | None:  # Any: of the command's parameters
        given = [scope for scope in targets.SCOPES if values.pop(scope)]
        if len(given) > 1:
            raise InvalidInput(f"--{given[0]} cannot be combined with --{given[1]}")
        return function(shared, scope=given[0] if given else None, **values)

    for option in reversed(_SCOPE_OPTIONS):
        option(call)
    return call


@group
def hooks(shared: Shared) -> None:
    """Connect coding agents, so that each of their turns can be undone

    Without an action it shows which agents are connected. Agents are claude-code, codex, gemini, opencode,
    copilot, qwen, cline, kilo and cursor.

    \b
    Examples:
      shadowtree hooks
      shadowtree hooks install --all-detected
      shadowtree hooks uninstall codex
    """
    _show_status(())


@command(of=hooks)
@_agents
@_scoped
@flag("--all-detected", help="Install for every agent that is found on this machine")
@click.option("--executable", metavar="PATH", help="Have the hooks run this shadowtree, not the one running")
@flag("--dry-run", help="List what would be written, and write nothing")
def install(
    shared: Shared,
    agents: tuple[str, ...],
    scope: str | None,
    all_detected: bool,
    executable: str | None,
    dry_run: bool,
) -> int:
    """Install hooks and slash commands for agents

    The hooks are merged into the agent's own settings; whatever else is in there stays as it is, and the
    first time a copy is kept. A file that is not strict JSON is refused. From then on every turn is recorded
    in the directory that the agent works in, and 'shadowtree undo', or /shadowtree-undo inside the agent,
    undoes the last one.

    \b
    Examples:
      shadowtree hooks install claude-code
      shadowtree hooks install --all-detected --dry-run
      shadowtree hooks install claude-code --local
    """
    program = find_executable(executable)
    if executable is None:
        _require_lasting(program, dry_run=dry_run)
    names = _choose(agents, all_detected=all_detected)
    where = scope or targets.USER
    if where != targets.USER and not dry_run:
        say(f"writing into the project {_find_project()}")
    changes, failures = _for_each(names, lambda name: _install(name, where, program, dry_run=dry_run))
    notes = [note for name in names if _is_changed(changes, name) for note in _list_notes(name, where)]
    document = {"changes": changes, "notes": notes, "failures": failures, "dry_run": dry_run}
    emit(document, [*_render_changes(changes, dry_run=dry_run), *notes])
    return FAILED if failures else 0


@command(of=hooks)
@_agents
@_scoped
@flag("--all", "is_all", help="Remove all hooks that were ever installed, in projects too")
@flag("--dry-run", help="List what would be removed, and remove nothing")
def uninstall(shared: Shared, agents: tuple[str, ...], scope: str | None, is_all: bool, dry_run: bool) -> int:
    """Remove the hooks and slash commands of agents

    A settings file that nobody else has changed gets back the bytes that it had. What was recorded stays.
    The daemon stops watching what it watched for hooks.

    \b
    Examples:
      shadowtree hooks uninstall claude-code
      shadowtree hooks uninstall --all
    """
    if is_all and agents:
        raise InvalidInput("name agents or give --all, not both")
    if not is_all and not agents:
        raise InvalidInput(f"name agents or give --all; agents are {_NAMES}")
    changes, failures = remove_all(dry_run=dry_run) if is_all else _uninstall(agents, scope, dry_run=dry_run)
    if not dry_run:
        _stop_daemon()
    document = {"changes": changes, "failures": failures, "dry_run": dry_run}
    lines = list(_render_changes(changes, dry_run=dry_run))
    emit(document, lines if lines or failures else ["Nothing was installed"])
    if not changes and not failures and not is_all:
        for each in list_statuses(agents):
            if each.state != "no" and each.scope != (scope or targets.USER):
                say(f"{AGENTS[each.agent].title} is connected in {each.path}; try --{each.scope}")
    edited = [change.path for change in changes if change.action == EDITED]
    for path in edited:
        warn(f"{path} is left, because it was edited; remove it yourself")
    return FAILED if failures or edited else 0


@command(of=hooks)
@_agents
def status(shared: Shared, agents: tuple[str, ...]) -> None:
    """Show which agents have hooks, and where

    Run 'shadowtree doctor' to learn whether they work.

    \b
    Examples:
      shadowtree hooks status
      shadowtree hooks status codex --json
    """
    _show_status(agents)


@command("print", of=hooks)
@_agent
@click.option("--executable", metavar="PATH", help="Print it for this shadowtree, not the one running")
def print_(shared: Shared, agent: str, executable: str | None) -> None:
    """Print what makes up the hooks of an agent

    For settings that you manage by hand, such as those that 'shadowtree hooks install' refuses to change.
    Standard error says where it belongs. With --json, slash commands are listed too.

    \b
    Examples:
      shadowtree hooks print claude-code
    """
    program = find_executable(executable)
    text = targets.render_alone(agent, program)
    listed = targets.list_targets(agent, targets.USER, os.environ, project="", executable=program)
    commands = [{"path": each.path, "content": each.content} for each in listed if each.is_command]
    document = {"agent": agent, "path": listed[0].path, "content": text, "commands": commands}
    emit(document, text.splitlines())
    if is_quiet() or writes_json():
        return
    say(f"this belongs in {', '.join(each.path for each in listed if not each.is_command)}")
    if commands:
        say(f"'shadowtree hooks print {agent} --json' also lists its slash commands")


@command(of=hooks, hidden=True)
@_agent
@click.argument("action", type=click.Choice(["undo", "redo", "log"]))
@click.argument("words", metavar="[N]", nargs=-1)
def slash(shared: Shared, agent: str, action: str, words: tuple[str, ...]) -> int:
    """Do what a slash command of an agent asks for

    Agents run this for /shadowtree-undo, /shadowtree-redo and /shadowtree-log. It acts on the session of that
    agent, prints everything on standard output, and exits 0.

    \b
    Examples:
      shadowtree hooks slash claude-code undo 2
    """
    from shadowtree.cli.hooks.slash import run_slash

    return run_slash(AGENTS[agent], action, " ".join(words).split())


@command(of=hooks, hidden=True)
@_agent
def follow(shared: Shared, agent: str) -> int:
    """Follow the undo of an agent that has one

    The plugin of OpenCode runs this, with JSON on standard input, when OpenCode itself has undone or redone
    messages: the timeline follows, and no file is written.

    \b
    Examples:
      shadowtree hooks follow opencode
    """
    from shadowtree.cli.hooks.follow import follow_undo

    return follow_undo(AGENTS[agent], sys.stdin.buffer)


def remove_all(*, dry_run: bool) -> tuple[list[FileChange], list[str]]:
    """Remove all recorded hooks, and those in the user's own settings even if they are not recorded."""
    changes, failures = _uninstall(tuple(AGENTS), targets.USER, dry_run=dry_run)
    for name, scope, project in list_installed(_find_stores()):
        if scope != targets.USER:
            more, failed = _uninstall([name], scope, project, dry_run=dry_run)
            changes, failures = [*changes, *more], [*failures, *failed]
    return changes, failures


def _uninstall(
    names: Sequence[str], scope: str | None, project: str | None = None, *, dry_run: bool
) -> tuple[list[FileChange], list[str]]:
    def remove(name: str) -> list[FileChange]:
        installer, where = _open_installer(project), scope or targets.USER
        with _advising_repair(installer, name, where):
            return installer.uninstall(name, where, dry_run=dry_run)

    return _for_each(names, remove)


def _install(name: str, scope: str, program: str, *, dry_run: bool) -> list[FileChange]:
    installer = _open_installer()
    with _advising_repair(installer, name, scope, f", or {_describe_by_hand(name)}"):
        return installer.install(name, scope, program, dry_run=dry_run)


@contextmanager
def _advising_repair(installer: Installer, name: str, scope: str, otherwise: str = "") -> Iterator[None]:
    """Add advice to the error if settings cannot be read."""
    try:
        yield
    except InvalidInput as error:
        if installer.find_status(name, scope).problem is None:
            raise
        raise InvalidInput(f"{error}; repair the file and run this again{otherwise}") from error


def _describe_by_hand(name: str) -> str:
    return f"add what 'shadowtree hooks print {name}' shows"


def _require_lasting(program: str, *, dry_run: bool) -> None:
    """Refuse a program that may not stay where it is; in a dry run, only warn."""
    try:
        require_lasting(program, os.environ)
    except InvalidInput as error:
        if not dry_run:
            raise
        say(f"an install would be refused: {error}")


def _choose(agents: tuple[str, ...], *, all_detected: bool) -> list[str]:
    if all_detected and agents:
        raise InvalidInput("name agents or give --all-detected, not both")
    if not all_detected:
        if not agents:
            raise InvalidInput(f"name agents or give --all-detected; agents are {_NAMES}")
        return list(dict.fromkeys(agents))
    found = [name for name in AGENTS if targets.is_detected(name, os.environ)]
    if not found:
        raise InvalidInput(f"no agent was found on this machine; name those that you use: {_NAMES}")
    return found


def _for_each(
    names: Sequence[str], work: Callable[[str], list[FileChange]]
) -> tuple[list[FileChange], list[str]]:
    """Call `work` for each agent, even if it fails for others; return the changes and the failures."""
    changes: list[FileChange] = []
    failures: list[str] = []
    for name in names:
        try:
            changes += work(name)
        except ShadowError as error:
            failures.append(f"{AGENTS[name].title}: {error}")
            say(failures[-1])
    return changes, failures


def _open_installer(project: str | None = None) -> Installer:
    return Installer(os.environ, _find_stores(), project=project or _find_project())


def _find_stores() -> str:
    stores = Places(os.environ).stores
    if stores is None:
        raise InvalidInput("there is no home directory")
    return stores


def _find_project() -> str:
    """Return the current project: the repository around the current directory, else that directory."""
    from shadowtree.agents.places import list_candidates

    return next(iter(list_candidates(os.path.realpath(current_directory()))))


def _is_changed(changes: Sequence[FileChange], name: str) -> bool:
    return any(change.agent == name and change.action != KEPT for change in changes)


def _list_notes(name: str, scope: str) -> Iterator[str]:
    """List what the user still has to do, or should know."""
    if name in _NOTES:
        yield _NOTES[name]
    if scope != targets.USER and name in _PROJECT_NOTES:
        yield _PROJECT_NOTES[name]
    if scope == targets.PROJECT:
        yield _SHARED_NOTE


def _render_changes(changes: Sequence[FileChange], *, dry_run: bool) -> Iterator[str]:
    for change in changes:
        verb = _PLANS.get(change.action, change.action) if dry_run else change.action
        more = f" (backup: {escape(change.backup)})" if change.backup else ""
        if change.action == EDITED:
            verb, more = "left", ", which you have edited"
        yield f"{AGENTS[change.agent].title}: {verb} {escape(change.path)}{more}"


def list_statuses(agents: Sequence[str] = ()) -> list[AgentStatus]:
    """Return the status of every agent, or of some, in each of its scopes."""
    installer = _open_installer()
    return [
        installer.find_status(name, scope) for name in agents or AGENTS for scope in targets.list_scopes(name)
    ]


def _show_status(agents: Sequence[str]) -> None:
    statuses = list_statuses(agents)
    shown = [
        each
        for each in statuses
        if each.state != "no" or (each.scope == targets.USER and (agents or each.is_detected))
    ]
    rows = [(each.agent, each.scope, _describe_status(each)) for each in shown]
    emit(statuses, join_rows(rows, "<<<") or ["No agent was found on this machine"])


def _describe_status(each: AgentStatus) -> str:
    install = f"run 'shadowtree hooks install {each.agent}'"
    if each.state == "unreadable":
        return f"connected, but unreadable: {escape(each.problem or '')}; repair the file"
    if each.problem is not None:
        problem, by_hand = escape(each.problem), _describe_by_hand(each.agent)
        return f"found, not connected; {problem}; repair the file and {install}, or {by_hand}"
    if each.state == "no":
        if each.is_detected:
            return f"found, not connected; {install}"
        return f"not found on this machine; to connect it anyway, {install}"
    line = f"connected, in {escape(each.path)}"
    if not each.is_executable_there:
        return f"{line}, but {escape(each.executable or '')} is gone; install again"
    return f"{line}, but some hooks or commands are missing; install again" if each.missing else line


def _stop_daemon() -> None:
    """Have the daemon drop what it watches for hooks, unless hooks are still installed."""
    if list_installed(_find_stores()) or any(each.state != "no" for each in list_statuses()):
        return
    try:
        stop_hook_serving()
    except (DaemonFailed, OSError) as error:
        warn(str(error))


@command()
def doctor(shared: Shared) -> int:
    """Find out why something does not work, and what to do about it

    It checks hooks of agents, the daemon, this directory, its store and the disk, and prints one line for
    each. The exit code is 1 if something is wrong.

    \b
    Examples:
      shadowtree doctor
      shadowtree doctor --json
    """
    from shadowtree.cli.hooks.doctor import examine

    findings = examine(shared, list_statuses())
    rows = [(each.level, escape(each.about), escape(each.todo or "")) for each in findings]
    emit(findings, [f"{level:7}  {about}{f'; {todo}' if todo else ''}" for level, about, todo in rows])
    return FAILED if any(each.level == "problem" for each in findings) else 0
