"""The commands that record or decide what is recorded: `wrap`, `protect`, and the parameters of the others.

Hosts call the others all the time: `cli.fast_commands` and `cli.run` do their work without click.
"""

from __future__ import annotations

import click
from click import Argument, Option

from shadowtree.base.errors import InvalidInput
from shadowtree.cli import fast_commands
from shadowtree.cli import run as running
from shadowtree.cli.app import DIRECTORY, PATH, command, flag
from shadowtree.cli.completion import complete_message
from shadowtree.cli.find_shadow import Shared, absolute_path, open_shadow, open_to_read
from shadowtree.cli.format import escape
from shadowtree.cli.hooks import hook as hooks
from shadowtree.cli.output import ProgressBar, emit, say
from shadowtree.cli.views.status import render_wrap
from shadowtree.results.reports import Protected


@command()
@click.argument("directory", required=False, type=DIRECTORY)
@click.option("--adopt", metavar="STORE", type=DIRECTORY, help="Use STORE, whose directory was moved here")
def wrap(shared: Shared, directory: str | None, adopt: str | None) -> None:
    """Start protecting DIRECTORY (default: the current one)

    Creates the store outside the directory and takes the first snapshot. Nothing is written to the directory
    itself. Run it again to take another snapshot.

    \b
    Examples:
      shadowtree wrap
      shadowtree wrap ~/notes
      shadowtree wrap ~/new/place --adopt ~/.local/share/shadowtree/place-0123456789ab
    """
    if adopt is not None and shared.store is not None:
        raise InvalidInput("--adopt cannot be combined with --store")
    with open_shadow(shared, directory or ".", adopt=adopt) as shadow, ProgressBar("Reading files") as bar:
        snapshot = shadow.wrap(progress=bar)
        worktree, store = str(shadow.worktree), str(shadow.store)
    document = {"worktree": worktree, "store": store, **snapshot.to_dict()}
    emit(document, render_wrap(worktree, store, snapshot), warnings=snapshot.warnings)


@command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH)
@flag("--dry-run", help="Show the rules, without writing them")
def protect(shared: Shared, paths: tuple[str, ...], dry_run: bool) -> None:
    """Protect files that are ignored or too big

    Adds a line such as '!/.env' to '.shadowtreeignore' at the top of the worktree. From the next snapshot on,
    PATH is recorded like any other file. Earlier versions cannot be restored.

    \b
    Examples:
      shadowtree protect .env
      shadowtree protect --dry-run data/large.bin
    """
    wanted = [absolute_path(path) for path in paths]
    with open_to_read(shared) as shadow:
        found = shadow.protect(*wanted, dry_run=True)
        if not dry_run:
            for rule in dict.fromkeys(each.rule for each in found if each.rule is not None):
                say(f"adding {rule} to {shadow.worktree / '.shadowtreeignore'}")
            found = shadow.protect(*wanted)
    emit(found, [_describe_protected(each) for each in found])


def _describe_protected(found: Protected) -> str:
    name = escape(found.path)
    if found.rule is None:
        return f"{name} is already protected" if found.exists else f"{name} does not exist and is not ignored"
    if found.dry_run:
        return f"Would add to .shadowtreeignore: {escape(found.rule)}"
    return f"{name} will be protected from the next snapshot on"


_DESCRIPTION = (
    Option(["-m", "text"], metavar="TEXT", help="Text of the message, such as the prompt"),
    Option(
        ["--role"],
        metavar="ROLE",
        help="Whose message it is; 'user', or no role, starts a new turn",
    ),
    Option(["--meta"], metavar="JSON", help="A JSON object to keep with the message"),
)
"""The options that describe a message."""
_PATHS = Option(
    ["--path", "paths"],
    metavar="PATH",
    type=PATH,
    multiple=True,
    help="Record only changes to PATH; may be repeated",
)
_END = Option(["--end", "is_end"], is_flag=True, help="End the step")
_STEP_META = Option(["--meta"], metavar="JSON", help="A JSON object to keep with the step")

begin = command(params=[Argument(["id"], required=False), *_DESCRIPTION])(fast_commands.begin)
end = command(params=[Argument(["id"], required=False, shell_complete=complete_message), _PATHS])(
    fast_commands.end
)
snapshot = command(params=[Argument(["id"], required=False), *_DESCRIPTION])(fast_commands.snapshot)
step = command(params=[Argument(["name"]), _END, _STEP_META])(fast_commands.step)
track = command()(fast_commands.track)


@command()
@click.argument("agent")
@click.argument("event", required=False)
def hook(shared: Shared, agent: str, event: str | None) -> int:
    """Record what a hook of AGENT reports on standard input

    Agents call this themselves, at every turn and every tool call. It always exits 0, and prints nothing or
    one JSON object for the agent. EVENT is for agents whose payloads do not name it.

    \b
    Examples:
      shadowtree hook claude-code < payload.json
    """
    # `main` calls this without click, because a mistake in an agent's settings must not stop the agent.
    return hooks.run([agent, *([event] if event else [])])


run = command(
    params=[
        Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED),
        *_DESCRIPTION,
        Option(["--id"], metavar="ID", help="The id of the message (default: a new one)"),
        Option(["--undo-on-fail"], is_flag=True, help="Undo what the command changed if it fails"),
        Option(["--best-effort"], is_flag=True, help="Run the command even if it cannot be recorded"),
    ],
    # All words after the first word of the command belong to it, even options.
    context_settings={"allow_interspersed_args": False},
)(running.run)
