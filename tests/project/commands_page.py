"""Write docs/commands.md from the help of the program: `python -m tests.project.commands_page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from shadowtree.cli.app import GROUPS, cli

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
WIDTH = 100

_OPENING = """\
# Commands

The help of every command, as `shadowtree help COMMAND` prints it.
After you change a help text, run `python -m tests.project.commands_page` to write this page anew.
"""


def list_commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Give the program, every command and every action, each with the words that call it."""
    waiting = [
        (
            "shadowtree",
            cli,
            click.Context(cli, info_name="shadowtree", terminal_width=WIDTH, **cli.context_settings),
        )
    ]
    found: list[tuple[str, click.Command, click.Context]] = []
    while waiting:
        words, command, context = waiting.pop(0)
        found.append((words, command, context))
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, parent=context, info_name=name, terminal_width=WIDTH)
            waiting.append((f"{words} {name}", inner, below))  # type: ignore[arg-type]  # any command
    yield from found


def make_page() -> str:
    """Write the page: the program itself first, then its commands by group, each before its actions."""
    helps = {words: command.get_help(context) for words, command, context in list_commands()}
    parts = [_OPENING, _block(helps["shadowtree"])]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            own = [words for words in helps if f"{words} ".startswith(f"shadowtree {name} ")]
            parts += [f"### {words}\n\n{_block(helps[words])}" for words in own]
    return "\n".join(parts)


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"```text\n{lines}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(), "utf-8")
