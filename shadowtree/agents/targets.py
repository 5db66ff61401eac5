"""Where each agent looks for hooks and commands, and what we put there.

A target is a file of an agent's settings into which hooks are merged, or a file that is entirely ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from shadowtree.agents import slash_commands
from shadowtree.agents.executable import make_line
from shadowtree.agents.hook_settings import make_settings
from shadowtree.agents.known_agents import AGENTS
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

USER, PROJECT, LOCAL = "user", "project", "local"
SCOPES = (USER, PROJECT, LOCAL)
"""For all of the user's projects; for one, shared with others; for one, and this user alone."""

CLINE_EVENTS = ("TaskStart", "PreToolUse", "PostToolUse", "TaskComplete")
"""Cline runs the program that is named like the event."""
_PLUGIN = os.path.join(os.path.dirname(__file__), "plugin.js")


@frozen
class _Home:
    """Where an agent keeps its settings, hooks and commands."""

    user: str
    """Below the home directory, unless `variable` is set."""
    project: str | None
    """Below a project; None: no such place is known."""
    variable: str | None = None
    below: str = ""
    """Below the directory that the variable names."""
    programs: tuple[str, ...] = ()
    """Programs that show that the agent is installed."""


_HOMES = {
    "claude-code": _Home(".claude", ".claude", "CLAUDE_CONFIG_DIR", programs=("claude",)),
    "codex": _Home(".codex", ".codex", "CODEX_HOME", programs=("codex",)),
    "gemini": _Home(".gemini", ".gemini", programs=("gemini",)),
    "opencode": _Home(".config/opencode", ".opencode", "XDG_CONFIG_HOME", "opencode", ("opencode",)),
    "copilot": _Home(".copilot", ".github", "COPILOT_HOME", programs=("copilot",)),
    "qwen": _Home(".qwen", ".qwen", programs=("qwen",)),
    "cline": _Home(".cline", None, programs=("cline",)),
    "kilo": _Home(".config/kilo", None, "XDG_CONFIG_HOME", "kilo", ("kilo", "kilocode")),
    "cursor": _Home(".cursor", ".cursor", programs=("cursor-agent", "cursor")),
}
_SETTINGS = {
    "claude-code": "settings.json",
    "codex": "hooks.json",
    "gemini": "settings.json",
    "qwen": "settings.json",
    "cursor": "hooks.json",
}
"""The file that hooks are merged into; the other agents take files that are entirely ours."""


@frozen
class Target:
    """A file to write, or to merge hooks into."""

    path: str
    content: str | None = None
    """The whole content; None: hooks are merged into the agent's settings."""
    is_program: bool = False
    is_command: bool = False
    """It is a slash command."""


def list_targets(
    name: str, scope: str, environ: Mapping[str, str], *, project: str, executable: str
) -> list[Target]:
    """List the files for an agent, hooks first. Raise InvalidInput if it has no such scope."""
    root = find_root(name, scope, environ, project=project)
    targets = list(_list_hooks(name, scope, root, executable))
    if scope != LOCAL:
        # There is no place for commands that only this user sees in only this project.
        files = slash_commands.list_files(name, executable)
        targets += [
            Target(os.path.join(root, "commands", file), text, is_command=True)
            for file, text in files.items()
        ]
    return targets


def find_root(name: str, scope: str, environ: Mapping[str, str], *, project: str) -> str:
    """Return the directory of an agent's files. Raise InvalidInput if it has none for this scope."""
    home = _HOMES[name]
    if scope == USER:
        given = environ.get(home.variable or "") or ""
        if os.path.isabs(given):
            return os.path.join(given, home.below).rstrip("/")
        if not environ.get("HOME"):
            raise InvalidInput("there is no home directory to find an agent's settings in")
        return os.path.join(environ["HOME"], home.user)
    if home.project is None:
        raise InvalidInput("it has no settings for one project; try --user")
    if scope == LOCAL and name != "claude-code":
        raise InvalidInput("it has no settings for you alone in one project; try --user or --project")
    return os.path.join(project, home.project)


def is_detected(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether an agent seems to be installed: its directory is there, or its program."""
    import shutil

    try:
        has_home = os.path.isdir(find_root(name, USER, environ, project=""))
    except InvalidInput:
        has_home = False
    path = environ.get("PATH", "")
    return has_home or any(shutil.which(program, path=path) for program in _HOMES[name].programs)


def list_scopes(name: str) -> list[str]:
    """List the scopes that an agent has."""
    if name == "claude-code":
        return list(SCOPES)
    return [USER] if _HOMES[name].project is None else [USER, PROJECT]


def render_alone(name: str, executable: str) -> str:
    """Return the settings or the file with an agent's hooks, for users who install it by hand."""
    agent = AGENTS[name]
    if name in _SETTINGS:
        return json.dumps(make_settings(agent, make_line(executable, name)), indent=2) + "\n"
    first = next(_list_hooks(name, USER, "", executable))
    assert first.content is not None
    return first.content


def _list_hooks(name: str, scope: str, root: str, executable: str) -> Iterator[Target]:
    line = make_line(executable, name)
    if name in _SETTINGS:
        file = "settings.local.json" if scope == LOCAL else _SETTINGS[name]
        yield Target(os.path.join(root, file))
    elif name == "copilot":
        content = json.dumps(make_settings(AGENTS[name], line), indent=2) + "\n"
        yield Target(os.path.join(root, "hooks", "shadowtree.json"), content)
    elif name == "cline":
        for event in CLINE_EVENTS:
            content = f"#!/bin/sh\n# Written by 'shadowtree hooks install cline'.\nexec {line}\n"
            yield Target(os.path.join(root, "hooks", event), content, is_program=True)
    else:
        yield Target(os.path.join(root, "plugins", "shadowtree.js"), _render_plugin(name, executable))


def _render_plugin(name: str, executable: str) -> str:
    with open(_PLUGIN, encoding="utf-8") as file:
        text = file.read()
    reading = ", ".join(json.dumps(tool) for tool in sorted(AGENTS[name].reading_tools))
    text = text.replace('"@PROGRAM@"', json.dumps(executable)).replace('["@READING@"]', f"[{reading}]")
    return text.replace("@AGENT@", name)
