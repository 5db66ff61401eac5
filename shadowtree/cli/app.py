"""The command line as click sees it: every command, every spelling, the help.

Only this module knows click. It builds click's objects from the values in `command`, and a command's
module is imported only when that command runs or the help lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches

import click

import shadowtree
from shadowtree.cli.command import (
    COMMANDS,
    SHARED_OPTIONS,
    Argument,
    Command,
    Option,
    load_command,
    run_command,
)

HELP = """\
Undo what coding agents do to your files, in any directory

\b
Examples:
  shadowtree wrap              start protecting the current directory
  shadowtree status            see what is protected and what is not
  shadowtree begin msg_01      record where an agent's message begins
  shadowtree end msg_01        record what it changed
  shadowtree run -- make fix   run a command and record what it changed
  shadowtree log               list the messages
  shadowtree undo              take back what the last turn did to your files
  shadowtree redo              and bring it back again
  shadowtree branches          list what was undone before something else was done

The options below go before the command or after it.
"""

EPILOG = """\
\b
Environment:
  SHADOWTREE_HOME      the directory of all stores
  SHADOWTREE_STORE     the store to use, as with --store
  SHADOWTREE_SESSION   the session to act in, as with --session
  SHADOWTREE_CONFIG    your file of settings
  SHADOWTREE_MAX_FILE_SIZE and so on: a setting, as with --set
  NO_COLOR             no colours on a terminal

Settings for --set and 'shadowtree config': {settings}
"""


class LazyGroup(click.Group):
    """The commands of `COMMANDS`, each built when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Build the command `cmd_name`."""
        return _to_click(cmd_name, load_command(cmd_name)) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words begin with, or propose the one that may be meant."""
        if args[0] not in COMMANDS:
            ctx.fail(f"no such command {args[0]!r}{_propose(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)


class ActionGroup(click.Group):
    """A command with actions: `branches` does something itself, and `branches drop` something else."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the action that the words begin with, or propose the one that may be meant."""
        if args[0] not in self.commands:
            ctx.fail(f"{ctx.info_name} knows no action {args[0]!r}{_propose(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def run(words: list[str]) -> int:
    """Run one command line and return its exit code; wrong usage raises `InvalidInput`."""
    group = _build_group()
    try:
        with group.make_context("shadowtree", list(words)) as context:
            exit_code = group.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        raise shadowtree.InvalidInput(_describe(error)) from error
    assert isinstance(exit_code, int)
    return exit_code


def _build_group() -> click.Command:
    group = LazyGroup(
        "shadowtree",
        params=[_to_click_option(option) for option in SHARED_OPTIONS],
        help=HELP,
        epilog=EPILOG.format(settings=", ".join(field.name for field in fields(shadowtree.Settings))),
        callback=_refuse_no_command,
        invoke_without_command=True,
        subcommand_metavar="COMMAND [ARGUMENTS]",
        add_help_option=False,
    )
    version = click.version_option(
        shadowtree.__version__, message="%(prog)s %(version)s", help="Show the version"
    )
    return _add_help(version(group))


def _refuse_no_command(**_: object) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        if not context.params["as_json"]:
            click.echo(context.get_help())
        raise click.UsageError("no command given", context)


def _to_click(name: str, command: Command) -> click.Command:
    def run_with(**values: object) -> int:
        context = click.get_current_context()
        # A command is also called when one of its actions is about to run.
        return 0 if context.invoked_subcommand else run_command(command, _add_shared(context, values))

    parameters: list[click.Parameter] = [_to_click_argument(argument) for argument in command.arguments]
    parameters += [_to_click_option(option) for option in (*command.options, *SHARED_OPTIONS)]
    if not command.actions:
        return _add_help(
            click.Command(
                name,
                callback=run_with,
                params=parameters,
                help=command.help,
                add_help_option=False,
                # What comes after the first word of the rest is not ours, options least of all.
                context_settings={
                    "allow_interspersed_args": not any(each.is_rest for each in command.arguments)
                },
            )
        )
    return _add_help(
        ActionGroup(
            name,
            commands={action: _to_click(action, each) for action, each in command.actions.items()},
            callback=run_with,
            params=parameters,
            help=command.help,
            invoke_without_command=True,
            subcommand_metavar="[ACTION ARGUMENTS]",
            add_help_option=False,
        )
    )


def _add_help(command: click.Command) -> click.Command:
    return click.help_option("-h", "--help", help="Show this help")(command)


def _to_click_argument(argument: Argument) -> click.Argument:
    if not argument.is_rest:
        return click.Argument([argument.name], required=argument.is_required)
    return click.Argument([argument.name], required=argument.is_required, nargs=-1, type=click.UNPROCESSED)


def _to_click_option(option: Option) -> click.Option:
    return click.Option(
        [option.flag, option.name],
        help=option.help,
        metavar=option.metavar,
        type=click.Choice(option.choices) if option.choices else None,
        is_flag=True if option.metavar is None else None,
        multiple=option.is_repeatable,
    )


def _add_shared(context: click.Context, values: Mapping[str, object]) -> dict[str, object]:
    """Add the shared options that were given before the name of the command, or of its action."""
    merged = dict(values)
    while context.parent is not None:
        context = context.parent
        merged = _merge_shared(context.params, merged)
    return merged


def _merge_shared(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Add to the values `after` a name the shared ones from `before` it; the later one wins."""
    merged = dict(after)
    for option in SHARED_OPTIONS:
        earlier, later = before[option.name], after[option.name]
        if option.is_repeatable:
            assert isinstance(earlier, tuple)
            assert isinstance(later, tuple)
            merged[option.name] = earlier + later
        elif later is None or later is False:
            merged[option.name] = earlier
    return merged


def _propose(word: str, known: Iterable[str]) -> str:
    """Name what may have been meant by an unknown word."""
    return "".join(f", perhaps {name!r}" for name in get_close_matches(word, list(known), n=1))


def _describe(error: click.UsageError) -> str:
    """Make one line of click's sentence, in our manner."""
    path = error.ctx.command_path if error.ctx else "shadowtree"
    if isinstance(error, click.NoSuchOption):
        close = _propose(error.option_name, error.possibilities or ())
        return f"no such option {error.option_name!r}{close}; try '{path} --help'"
    sentence = error.format_message().rstrip(".").replace(". ", " ")
    return f"{sentence[:1].lower()}{sentence[1:]}; try '{path} --help'"
