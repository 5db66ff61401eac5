"""The commands that record the worktree: around messages, tool calls and other programs, or just as it is.

What the hot ones do stands in `recording` and `running`, which know no click.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import click

import shadowtree
from shadowtree.base.errors import InvalidInput
from shadowtree.cli import recording, running
from shadowtree.cli.app import DIRECTORY, PATH, Command, pass_shared
from shadowtree.cli.complete import complete_message
from shadowtree.cli.find_shadow import Shared, open_shadow, warning_of_recovery
from shadowtree.cli.output import ProgressBar, emit
from shadowtree.cli.views.status import render_wrap

F = TypeVar("F", bound=Callable[..., object])


def describes_message(function: F) -> F:
    """Add the options by which a message is described."""
    text = click.option("-m", "text", metavar="TEXT", help="What was asked for, or said")
    role = click.option(
        "--role", metavar="ROLE", help="Who speaks; a turn starts at the role 'user' or at none"
    )
    meta = click.option("--meta", metavar="JSON", help="A JSON object of your own, kept with the message")
    return text(role(meta(function)))


@click.command(cls=Command)
@click.argument("directory", required=False, type=DIRECTORY)
@click.option(
    "--adopt", metavar="STORE", type=DIRECTORY, help="Go on with STORE, whose worktree was moved here"
)
@pass_shared
def wrap(shared: Shared, directory: str | None, adopt: str | None) -> None:
    """Start protecting DIRECTORY, by default the current one

    Makes the store, outside of the directory, and takes the first snapshot. Nothing is written into the
    directory itself. Done again, it takes one more snapshot.

    \b
    Examples:
      shadowtree wrap
      shadowtree wrap ~/notes
      shadowtree wrap ~/new/place --adopt ~/.local/share/shadowtree/place-0123456789ab
    """
    with _open_to_wrap(shared, directory or ".", adopt) as shadow, ProgressBar("Reading files") as bar:
        snapshot = shadow.wrap(progress=bar)
        worktree, store = str(shadow.worktree), str(shadow.store)
    document = {"worktree": worktree, "store": store, **snapshot.to_dict()}
    emit(document, render_wrap(worktree, store, snapshot), warnings=snapshot.warnings)


def _open_to_wrap(
    shared: Shared, directory: str, adopt: str | None
) -> AbstractContextManager[shadowtree.Shadow]:
    if adopt is None:
        return open_shadow(shared, directory)
    if shared.store is not None:
        raise InvalidInput("--adopt names the store already, --store cannot be given too")
    return warning_of_recovery(
        shadowtree.Shadow.adopt(
            directory,
            adopt,
            session=shared.session,
            settings=shared.settings,
            allow_broad=shared.allow_broad,
        )
    )


@click.command(cls=Command)
@click.argument("id")
@describes_message
@pass_shared
def begin(shared: Shared, id: str, text: str | None, role: str | None, meta: str | None) -> None:
    """Record where the message ID begins

    To be called before the agent works on it. A message that is still open is ended first. Done again for
    the open message, it changes nothing. The first time it wraps the current directory.

    \b
    Examples:
      shadowtree begin msg_01
      shadowtree begin msg_01 -m "add a login page" --role user
      shadowtree begin -- -an-id-with-a-dash
    """
    recording.begin(shared, id, text, role, meta)


@click.command(cls=Command)
@click.argument("id", required=False, shell_complete=complete_message)
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    type=PATH,
    multiple=True,
    help="Only PATH was changed by the message; may be repeated",
)
@pass_shared
def end(shared: Shared, id: str | None, paths: tuple[str, ...]) -> None:
    """Record what the message ID changed

    Without ID it is the open message. With --path it changed these files or directories alone, and what
    else is different is nobody's.

    \b
    Examples:
      shadowtree end
      shadowtree end msg_01
      shadowtree end msg_01 --path src/login.py --path tests
    """
    recording.end(shared, id, paths)


@click.command(cls=Command)
@click.argument("id")
@describes_message
@pass_shared
def snapshot(shared: Shared, id: str, text: str | None, role: str | None, meta: str | None) -> None:
    """Record the message ID when it is over

    For agents that can call only after their work: all that changed since the session's last record is
    counted as the message's. The first time it wraps the current directory.

    \b
    Examples:
      shadowtree snapshot msg_01
      shadowtree snapshot msg_01 -m "add a login page"
    """
    recording.snapshot(shared, id, text, role, meta)


@click.command(cls=Command)
@click.argument("name")
@click.option("--end", "is_end", is_flag=True, help="The step is over")
@pass_shared
def step(shared: Shared, name: str, is_end: bool) -> None:
    """Record where a step of the open message begins

    A step is one tool call. With --end it is over; a new one ends the one before it, too.

    \b
    Examples:
      shadowtree step edit-1
      shadowtree step edit-1 --end
    """
    recording.step(shared, name, is_end)


@click.command(cls=Command)
@pass_shared
def track(shared: Shared) -> None:
    """Record the worktree as one tree and print its id

    The first time it wraps the current directory. Nothing changed since: the same id.

    \b
    Examples:
      shadowtree track
      before=$(shadowtree track); ./agent; shadowtree patch "$before"
    """
    recording.track(shared)


@click.command(
    cls=Command,
    # What comes after the first word of the command is not ours, options least of all.
    context_settings={"allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@describes_message
@click.option("--id", metavar="ID", help="The id of the message; a new one is made up by default")
@click.option("--undo-on-fail", is_flag=True, help="Undo what the command changed if it fails")
@pass_shared
def run(
    shared: Shared,
    command: tuple[str, ...],
    text: str | None,
    role: str | None,
    meta: str | None,
    id: str | None,
    undo_on_fail: bool,
) -> int:
    """Run COMMAND and record all that it changes as one message

    The command has the terminal, its input and its output as if it were started without shadowtree, and
    signals reach it. Its exit code is ours; if a signal ended it, the same one ends us. The message ends when
    the command does, not when what it left running in the background does. Its text is the command line,
    unless -m gives one.

    With --json the command's standard output goes to standard error, so that the document is alone on
    standard output. A 'shadowtree run' inside it is a step of the message, for which --undo-on-fail is
    refused. A message that it begins itself ends this one, and --undo-on-fail undoes both, and what came
    after them.

    Exit code 127: there is no such command; 126: it cannot be run; 1 in place of a 0: what it changed could
    not be recorded.

    \b
    Examples:
      shadowtree run -- make format
      shadowtree run -m "upgrade everything" -- npm update
      shadowtree run --undo-on-fail -- ./migrate.sh --all
    """
    return running.run(shared, command, text, role, meta, id, undo_on_fail)
