"""Slash commands: `/shadowtree-undo [N]`, `/shadowtree-redo [N]` and `/shadowtree-log` inside an agent.

Each is a file in the agent's own format. The agent runs our program, and hands its output to the model, which
only has to repeat it. If the agent supports it, only the user can call them, not the model.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

from shadowtree.base.frozen import frozen

PREFIX = "shadowtree-"
"""The prefix of their names, by which hooks recognise that a prompt is not a turn."""

_ASKED = (
    "The user asked shadowtree for this. The output says what it did to the files, or why it did nothing."
)
_REPEAT = "Repeat the output to the user as it is. Do not run any command, and do not change any file."


@frozen
class SlashCommand:
    """One of the commands."""

    action: str
    about: str
    hint: str
    prompt: str
    """What the model reads after the output."""


SLASH_COMMANDS = (
    SlashCommand("undo", "Undo the file changes of the last turn or N turns", "[N]", f"{_ASKED} {_REPEAT}"),
    SlashCommand("redo", "Redo what was undone: one turn, or N turns", "[N]", f"{_ASKED} {_REPEAT}"),
    SlashCommand("log", "List the last turns of this session, with what they changed", "", _REPEAT),
)


def list_files(agent: str, executable: str) -> dict[str, str]:
    """Return the files of an agent's slash commands, by name; empty: it has no slash commands."""
    form = _FORMS.get(agent)
    if form is None:
        return {}
    suffix, render = form
    line = f"{shlex.quote(executable)} hooks slash {agent}"
    return {f"{PREFIX}{each.action}.{suffix}": render(each, line) for each in SLASH_COMMANDS}


def _name(command: SlashCommand) -> str:
    """Return the first line of a command's text, by which a hook recognises it after it is expanded."""
    return f"/{PREFIX}{command.action}"


def _render_claude(command: SlashCommand, line: str) -> str:
    hint = f"argument-hint: {json.dumps(command.hint)}\n" if command.hint else ""
    return (
        f"---\ndescription: {command.about} (shadowtree)\n{hint}"
        f"allowed-tools: Bash({line} {command.action}:*)\n"
        f"disable-model-invocation: true\n---\n\n!`{line} {command.action} $ARGUMENTS`\n\n{command.prompt}\n"
    )


def _render_opencode(command: SlashCommand, line: str) -> str:
    return (
        f"---\ndescription: {command.about} (shadowtree)\n---\n\n{_name(command)}\n\n"
        f"!`{line} {command.action} $ARGUMENTS`\n\n{command.prompt}\n"
    )


def _render_qwen(command: SlashCommand, line: str) -> str:
    return (
        f"---\ndescription: {command.about} (shadowtree)\ndisable-model-invocation: true\n---\n\n"
        f"{_name(command)}\n\n!{{{line} {command.action} {{{{args}}}}}}\n\n{command.prompt}\n"
    )


def _render_gemini(command: SlashCommand, line: str) -> str:
    prompt = f"{_name(command)}\n\n!{{{line} {command.action} {{{{args}}}}}}\n\n{command.prompt}\n"
    quoted = prompt.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'description = "{command.about} (shadowtree)"\nprompt = """\n{quoted}"""\n'


_FORMS: dict[str, tuple[str, Callable[[SlashCommand, str], str]]] = {
    "claude-code": ("md", _render_claude),
    "gemini": ("toml", _render_gemini),
    "opencode": ("md", _render_opencode),
    "kilo": ("md", _render_opencode),
    "qwen": ("md", _render_qwen),
}
