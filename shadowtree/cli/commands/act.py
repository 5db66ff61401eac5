"""The commands that write into the worktree: undo, redo, revert, switch, unrevert, restore.

The library does it, all or nothing. Here stand the question before it and the report after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import wraps
from itertools import chain
from typing import Any

import click

from shadowtree.base.errors import Conflict, InvalidInput
from shadowtree.cli.app import COUNT, PATH, Function, command, complete_message, complete_ref, flag
from shadowtree.cli.errors import MERGE_WAS_TRIED
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_read
from shadowtree.cli.output import ask, emit, say
from shadowtree.cli.views.outcome import describe_plan, describe_shortfall, find_way_back, render_outcome
from shadowtree.results.outcomes import Outcome

Manner = dict[str, Any]  # Any: of several types
"""How an act is to be done, as the library takes it."""

_MANNER_OPTIONS = (
    flag("--dry-run", help="Tell what would be done, and change nothing"),
    click.option(
        "--on-conflict",
        metavar="HOW",
        type=click.Choice(["abort", "keep", "overwrite", "merge"]),
        default="abort",
        help="What to do with files that somebody else changed: stop (abort), leave them (keep), replace"
        " them too (overwrite), or keep the changes of both where they do not collide (merge); stop by"
        " default",
    ),
    flag(
        "--markers",
        help="Merge, and where texts collide write both versions into the file, between conflict markers",
    ),
    flag("--yes", help="Do not ask, even if much is deleted"),
)


def takes_manner(function: Function) -> Function:
    """Add the options that all acts have, and call the command with them as arguments of the library."""

    @wraps(function)
    def call(shared: Shared, *, yes: bool, **values: Any) -> int | None:  # Any: of the command's parameters
        manner = {name: values.pop(name) for name in ("dry_run", "on_conflict", "markers")}
        manner["confirm"] = lambda plan: yes or ask(f"{describe_plan(plan.outcome)}. Go on?")
        try:
            return function(shared, manner, **values)
        except Conflict as conflict:
            if manner["on_conflict"] == "merge" or manner["markers"]:
                # So that nobody proposes it.
                conflict.add_note(MERGE_WAS_TRIED)
            raise

    for option in reversed(_MANNER_OPTIONS):
        option(call)
    return call


@command()
@click.argument("turns", required=False, type=COUNT, default=1)
@takes_manner
def undo(shared: Shared, manner: Manner, turns: int) -> int:
    """Undo what the last turn did

    Or the last TURNS turns. A turn is a message of the user with all that the agent did about it. Only files
    that the messages changed are touched. If somebody else changed one of them since, nothing happens and
    the files are listed.

    \b
    Examples:
      shadowtree undo
      shadowtree undo 3
      shadowtree undo --dry-run
    """
    with open_to_read(shared) as shadow:
        outcome = shadow.undo(turns, **manner)
    return _report(shared, manner, outcome, render_outcome(outcome), turns=turns)


@command()
@click.argument("turns", required=False, type=COUNT)
@flag("--all", "is_all", help="Bring back everything that is undone")
@takes_manner
def redo(shared: Shared, manner: Manner, turns: int | None, is_all: bool) -> int:
    """Bring back the next turn that is undone

    Or the next TURNS turns.

    \b
    Examples:
      shadowtree redo
      shadowtree redo 3
      shadowtree redo --all
    """
    if is_all and turns is not None:
        raise InvalidInput("TURNS and --all cannot be given together")
    wanted = None if is_all else turns or 1
    with open_to_read(shared) as shadow:
        outcome = shadow.redo(wanted, **manner)
    return _report(shared, manner, outcome, render_outcome(outcome), turns=wanted)


@command()
@click.argument("id", shell_complete=complete_message)
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    type=PATH,
    multiple=True,
    help="Only this file or directory; may be repeated",
)
@click.option("--step", metavar="NAME", help="Go back to before this step of the message")
@flag("--only", "is_only", help="Take out this one message, or step, and keep what came after it")
@flag("--no-files", help="Go back in the timeline alone, and leave all files as they are")
@takes_manner
def revert(
    shared: Shared,
    manner: Manner,
    id: str,
    paths: tuple[str, ...],
    step: str | None,
    is_only: bool,
    no_files: bool,
) -> int:
    """Go back to before the message ID

    The files that this message and the later ones changed are as they were before it. ID is a message's id,
    the beginning of one, its number as in '#7' (with the quotes), '@' for the last one, or '@~2' for the
    second before that.

    With --only the later messages stay, and only what this one changed is taken out from under them. Where
    that cannot be told apart nothing happens, and each place is shown. 'shadowtree redo' passes by what was
    taken out, 'shadowtree unrevert' brings it back.

    \b
    Examples:
      shadowtree revert msg_01
      shadowtree revert '#7' --dry-run
      shadowtree revert msg_01 --path src --on-conflict merge
      shadowtree revert msg_01 --only
    """
    chosen = [absolute_path(path) for path in paths] or None
    with open_to_read(shared) as shadow:
        outcome = shadow.revert(id, step=step, paths=chosen, only=is_only, files=not no_files, **manner)
    is_part = chosen is not None or step is not None
    lines = render_outcome(outcome, target=id, is_part=is_part, has_files=not no_files)
    return _report(shared, manner, outcome, lines)


@command()
@click.argument("ref", shell_complete=complete_ref)
@takes_manner
def switch(shared: Shared, manner: Manner, ref: str) -> int:
    """Move to the branch or message REF

    The files that messages changed are as they were after REF: what is in force here and not there is undone,
    and what is there is done again, at once. What is left is archived as a branch. REF is the name of a
    branch, or a message as in 'shadowtree revert'; 'shadowtree log --graph' shows both.

    \b
    Examples:
      shadowtree switch fix-login
      shadowtree switch msg_07 --dry-run
      shadowtree switch fix-login --on-conflict merge
    """
    with open_to_read(shared) as shadow:
        outcome = shadow.switch(ref, **manner)
    return _report(shared, manner, outcome, render_outcome(outcome, target=ref))


@command()
@takes_manner
def unrevert(shared: Shared, manner: Manner) -> int:
    """Undo the last undo, redo, revert, switch or restore

    Brings back exactly what was there, your own edits too. Done again, it takes back the one before that.

    \b
    Examples:
      shadowtree unrevert
      shadowtree unrevert --dry-run
    """
    with open_to_read(shared) as shadow:
        outcome = shadow.unrevert(**manner)
    return _report(shared, manner, outcome, render_outcome(outcome))


@command()
@click.argument("ref", shell_complete=complete_ref)
@takes_manner
def restore(shared: Shared, manner: Manner, ref: str) -> int:
    """Make everything as it was recorded at REF

    REF is a message (the state after it), a message and '^' (the state before it), or the id of a tree. Files
    that came later are deleted, so it asks first. The timeline stays as it is.

    \b
    Examples:
      shadowtree restore msg_01
      shadowtree restore msg_01^ --yes
      shadowtree restore "$tree" --dry-run
    """
    with open_to_read(shared) as shadow:
        outcome = shadow.restore(ref, **manner)
    return _report(shared, manner, outcome, render_outcome(outcome, target=ref))


def _report(
    shared: Shared, manner: Manner, outcome: Outcome, lines: Iterator[str], *, turns: int | None = None
) -> int:
    """Report what was done and how to get back; the exit code says whether it was all that was asked for."""
    way_back = find_way_back(outcome, is_overwriting=manner["on_conflict"] == "overwrite")
    back = [] if way_back is None else [f"To get back: shadowtree {way_back}{_name_session(shared)}"]
    emit(outcome, chain(lines, back))
    if outcome.complete or outcome.dry_run:
        return 0
    say(describe_shortfall(outcome, turns))
    return 1


def _name_session(shared: Shared) -> str:
    """Give the option that leads the next command to the same session, if it takes one."""
    if shared.session == (os.environ.get("SHADOWTREE_SESSION") or "default"):
        return ""
    from shlex import quote

    return f" --session {quote(shared.session)}"
