"""The command that explains the others."""

from __future__ import annotations

import click

from shadowtree.cli.app import cli, command, complete_command
from shadowtree.cli.find_shadow import Shared
from shadowtree.cli.output import emit


@command("help")
@click.argument("words", metavar="[COMMAND [ACTION]]", nargs=-1, shell_complete=complete_command)
def help(shared: Shared, words: tuple[str, ...]) -> None:
    """Show general help, or help for a command

    \b
    Examples:
      shadowtree help
      shadowtree help log
      shadowtree help branches drop
    """
    found: click.Command = cli
    context = click.get_current_context().find_root()
    for word in words:
        if not isinstance(found, click.Group):
            context.fail(f"{found.name} has no action {word!r}")
        _, inner, _ = found.resolve_command(context, [word])
        assert inner is not None, "it fails if there is none"
        found, context = inner, click.Context(inner, parent=context, info_name=word)
    text = found.get_help(context)
    emit({"help": text}, text.splitlines())
