"""The command line for click: the group of all commands, their shared options, and the help.

`MODULES` names the module of each command; it is imported when the command runs or the help lists it.
`GROUPS` names the group under which the help lists it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial, wraps
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

import shadowtree
from shadowtree.base.errors import InvalidInput
from shadowtree.cli.completion import complete_session
from shadowtree.cli.exit_codes import FAILED
from shadowtree.cli.find_shadow import COLOUR_CHOICES, read_shared
from shadowtree.cli.output import choose_format, emit

Function = Callable[..., int | None]
"""The function behind a command: it takes the values of the shared options, then its own parameters."""

MODULES = {
    "record": ("wrap", "protect", "begin", "end", "snapshot", "step", "run", "track", "hook"),
    "act": ("undo", "redo", "revert", "unrevert", "switch", "restore"),
    "show": ("status", "log", "show", "diff", "cat", "blame", "patch", "branches"),
    "sessions": ("sessions",),
    "store": ("stats", "du", "pin", "unpin", "forget", "gc", "purge", "check", "destroy"),
    "uninstall": ("uninstall",),
    "config": ("config", "help"),
    "watch": ("watch",),
    "mcp": ("mcp",),
    "rewind": ("rewind",),
    "ui": ("ui",),
    "hooks": ("hooks", "doctor"),
    "remote": ("remote", "push", "fetch", "clone", "resume", "export", "import"),
}
"""The modules of `commands/`, with the commands in each."""
COMMANDS = {name: module for module, names in MODULES.items() for name in names}

EVERYDAY = ("wrap", "begin", "end", "run", "status", "log", "show", "diff", "undo", "redo")
"""The commands that the help lists first."""
GROUPS = {
    "Record": ("wrap", "begin", "end", "run", "snapshot", "step", "track", "watch", "protect", "hook"),
    "Look": ("status", "log", "show", "diff", "cat", "blame", "branches", "sessions", "patch", "ui"),
    "Go back": ("undo", "redo", "rewind", "revert", "unrevert", "switch", "restore"),
    "Keep": ("stats", "du", "pin", "unpin", "forget", "gc", "purge", "check", "destroy"),
    "Share": ("remote", "push", "fetch", "clone", "resume", "export", "import"),
    "Connect": ("hooks", "doctor", "mcp"),
    "Settings": ("config", "help", "uninstall"),
}
"""The headings of the help, with the commands under each, in order."""
_ANSWERS = {*GROUPS["Look"], "track", "stats", "du", "check", "config", "help"}
_ANSWERS |= {"config list", "config get", "watch status", "doctor", "hooks", "hooks status", "hooks print"}
_ANSWERS |= {"hooks slash", "remote", "remote list", "rewind"}
"""The commands that are run for their output: --quiet still prints it, and it may go through a pager."""

EPILOG = """\
\b
Environment:
  SHADOWTREE_HOME      the directory of all stores
  SHADOWTREE_STORE     the store to use, as with --store
  SHADOWTREE_SESSION   the session to use, as with --session
  SHADOWTREE_CONFIG    your settings file
  SHADOWTREE_PAGER     the pager for long output; overrides PAGER
  SHADOWTREE_MAX_FILE_SIZE and so on: any setting, as with --set
  NO_COLOR             turns colors off

Run 'shadowtree help COMMAND' for help on a command, and 'shadowtree config' for the settings.
"""


class _Directory(click.Path):
    """A directory, which may be missing: the library refuses that, in the same words as here."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path; refuse one that is not a directory."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise InvalidInput(f"{os.fspath(value)} is not a directory") from error


PATH = click.Path(readable=False)
DIRECTORY = _Directory(file_okay=False, readable=False)
flag = partial(click.option, is_flag=True)
COUNT = click.IntRange(1, 999_999_999)
COUNT_FROM_0 = click.IntRange(0, 999_999_999)


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:  # Any: of any option
    """Store a shared option for all contexts of the command line; a later value replaces or extends it."""
    if value in ("", ("",)):
        raise InvalidInput(f"{option.opts[0]} needs a value, not an empty one")
    if value:
        given = context.ensure_object(dict)
        given[option.name] = (*given.get(option.name, ()), *value) if option.multiple else value


_share = partial(click.Option, callback=_remember, expose_value=False)
SHARED_OPTIONS = (
    _share(["-C", "start"], metavar="DIR", type=DIRECTORY, help="Run as if started in DIR"),
    _share(["--store"], metavar="DIR", type=DIRECTORY, help="Use the store in DIR"),
    _share(
        ["--session"],
        metavar="ID",
        shell_complete=complete_session,
        help="Use this session; by default the one that recorded last, and 'default' to record",
    ),
    _share(
        ["--set", "settings"],
        metavar="KEY=VALUE",
        multiple=True,
        help="Set a setting for this command, such as max_file_size=20M; may be repeated",
    ),
    _share(["--allow-broad"], is_flag=True, help="Allow wrapping a home directory or a parent of one"),
    _share(["--json", "as_json"], is_flag=True, help="Print one JSON document"),
    _share(["-q", "--quiet", "is_quiet"], is_flag=True, help="Print only results and errors"),
    _share(
        ["--color", "colour"],
        metavar="WHEN",
        type=click.Choice(COLOUR_CHOICES),
        help="Use colors: auto (on a terminal), always or never",
    ),
    _share(["--no-pager"], is_flag=True, help="Do not send long output through a pager"),
)
"""The options that every command takes, before or after its name."""


class Command(click.Command):
    """A command with the shared options; it refuses empty values, usually unset variables of a script."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:  # Any: as click takes them
        super().__init__(*arguments, **attributes)
        self.params += SHARED_OPTIONS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; some errors of click's parser do not name the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options; the shared ones are in the help of the program."""
        every = (each for each in self.get_params(ctx) if isinstance(each, click.Option))
        own = [each for each in every if each not in SHARED_OPTIONS]
        rows = [row for row in (each.get_help_record(ctx) for each in own) if row is not None]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("For global options such as --json, run 'shadowtree --help'.")

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Describe `--help` in the style of the other options."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.help = "Show this help"
        return option

    def invoke(self, ctx: click.Context) -> Any:  # Any: what the command returns
        """Run the command; refuse an empty value, except as a text."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(parameter, click.Argument) and value == "":
                raise InvalidInput(f"{parameter.human_readable_name} must not be empty")
            if parameter.name != "text" and (value == "" or (parameter.multiple and value and "" in value)):
                raise InvalidInput(f"{parameter.opts[0]} needs a value, not an empty one")
        return super().invoke(ctx)


class PathsCommand(Command):
    """A command that takes paths after `--`, as git's commands do."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Add the paths to the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside what comes after `--`, and parse the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.params["paths"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


class Group(Command, click.Group):
    """A command with actions: `branches` does something itself, and `branches drop` something else."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the actions first, and then the options."""
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the words begin with; if it is unknown, fail and suggest a similar one."""
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:
            what = "no such command" if ctx.parent is None else f"{ctx.info_name} has no action"
            ctx.fail(f"{what} {args[0]!r}{_propose(args[0], known)}")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """The commands of `COMMANDS`, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands, in the order of the help."""
        grouped = [name for names in GROUPS.values() for name in names]
        return list(dict.fromkeys([*EVERYDAY, *grouped, *COMMANDS]))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands first, and then the options that all of them take."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the everyday commands first, then the others by group."""
        width = max(map(len, COMMANDS))
        rest = {title: [name for name in names if name not in EVERYDAY] for title, names in GROUPS.items()}
        for title, names in {"Every day": list(EVERYDAY), **rest}.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name.ljust(width), each.get_short_help_str(70)) for name, each in found if each]
            with formatter.section(title):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command `cmd_name`."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"shadowtree.cli.commands.{COMMANDS[cmd_name]}")
        # A Python keyword cannot be the name of a function.
        found: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:  # Any: what the command returns
        """Run the command; turn Ctrl-C into `Abort` before click does, which would print an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise click.Abort from interrupt


def command(
    name: str | None = None,
    *,
    of: Group | None = None,
    **attributes: Any,  # Any: as click takes them
) -> Callable[[Function], click.Command]:
    """Make a command from a function, or an action of the group `of`; its docstring is the help."""
    make = click.command if of is None else of.command
    return lambda function: make(name, **{"cls": Command, **attributes})(_pass_shared(function))


def group(function: Function) -> Group:
    """Make a command with actions from a function, which is called if no action is given."""
    make = click.group(cls=Group, invoke_without_command=True, subcommand_metavar="[ACTION ARGUMENTS]")
    return make(_pass_shared(function))


def _pass_shared(function: Function) -> Function:
    """Wrap a function so that it is called with the values of the shared options first."""

    @wraps(function)
    def call(**values: Any) -> int | None:  # Any: of the command's parameters
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            # click calls the function of a group before the action, but only the action was requested.
            return None
        path = context.command_path.removeprefix("shadowtree ")
        # A dry run is made for its output, the plan.
        is_answer = path in _ANSWERS or bool(values.get("dry_run"))
        if path in ("begin", "snapshot"):
            is_answer = values.get("id") is None  # then the output is the new id
        return function(read_shared(context.ensure_object(dict), is_answer=is_answer), **values)

    return call


@click.group(
    "shadowtree",
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGUMENTS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@flag("--version", help="Show the version")
@click.pass_context
def cli(context: click.Context, version: bool) -> None:
    """Undo what coding agents do to your files, in any directory

    \b
    Examples:
      shadowtree run -- ./agent    run an agent and record what it changes
      shadowtree log               list what was recorded
      shadowtree undo              undo the last turn

    Options can come before or after the command.
    """
    if version:
        choose_format(as_json="as_json" in context.ensure_object(dict))
        emit({"version": shadowtree.__version__}, [f"{context.info_name} {shadowtree.__version__}"])
        context.exit()
    if context.invoked_subcommand is None:
        if "as_json" not in context.ensure_object(dict):
            click.echo(context.get_help())
        raise click.UsageError("no command given", context)


def run(words: list[str]) -> int:
    """Run one command line and return its exit code; wrong usage raises `InvalidInput`."""
    try:
        return cli.main(words, "shadowtree", standalone_mode=False) or 0
    except SystemExit as done:
        # Shell completion is done, or the reader of our output has closed the pipe.
        return done.code if isinstance(done.code, int) else FAILED
    except click.Abort as interrupt:
        raise KeyboardInterrupt from interrupt
    except click.UsageError as error:
        raise InvalidInput(_describe(error)) from error


def _propose(word: str, known: Iterable[str]) -> str:
    """Suggest a known name that is similar to an unknown word."""
    return "".join(f" (did you mean {name!r}?)" for name in get_close_matches(word, list(known), n=1))


def _describe(error: click.UsageError) -> str:
    """Rewrite click's error as one line in our style."""
    path = error.ctx.command_path if error.ctx else "shadowtree"
    if isinstance(error, click.NoSuchOption):
        close = _propose(error.option_name, error.possibilities or ())
        return f"no such option {error.option_name!r}{close}; see '{path} --help'"
    sentence = error.format_message().rstrip(".").replace(". ", " ")
    plain = f"{sentence[:1].lower()}{sentence[1:]}"
    return f"{_describe_value(error) or plain}; see '{path} --help'"


def _describe_value(error: click.UsageError) -> str | None:
    """Describe the values that a parameter takes; None: the error is not about a wrong value."""
    if not isinstance(error, click.BadParameter) or error.param is None:
        return None
    parameter = error.param
    is_argument = isinstance(parameter, click.Argument)
    name = parameter.human_readable_name.strip("[].") if is_argument else parameter.opts[-1]
    if isinstance(error, click.MissingParameter):
        if not isinstance(parameter.type, click.Choice):
            return None
        return f"{name} is missing; it is one of {', '.join(parameter.type.choices)}"
    if isinstance(parameter.type, click.IntRange):
        least, most = parameter.type.min, parameter.type.max
        return f"{name} must be {least} to " + (f"{most:,}" if most == COUNT.max else f"{most}")
    if isinstance(parameter.type, click.Choice):
        return f"{name} must be one of {', '.join(parameter.type.choices)}"
    return None
