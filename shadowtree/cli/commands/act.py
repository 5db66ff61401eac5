"""The commands that write into the worktree: undo, redo, revert, switch, unrevert, restore.

The library does the work, all or nothing. This module asks for confirmation before it, and reports after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import chain
from typing import Any

import click

from shadowtree.base.arguments import CHOICES, REST, is_reference
from shadowtree.base.errors import InvalidInput, NotConfirmed
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import ignore_once_done
from shadowtree.cli.app import COUNT, PATH, Function, command, flag
from shadowtree.cli.completion import complete_message, complete_ref
from shadowtree.cli.exit_codes import FAILED
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_read
from shadowtree.cli.output import ask, can_ask, emit, say, write_lines, writes_json
from shadowtree.cli.views.outcome import describe_plan, describe_shortfall, render_outcome, render_preview
from shadowtree.results.outcomes import Outcome, Plan

Manner = dict[str, Any]  # Any: of several types
"""The arguments of the library that say how to do an act."""

_MANNER_OPTIONS = (
    flag("--dry-run", help="Show what would be done, without doing it"),
    click.option(
        "--on-conflict",
        metavar="[PATH=]HOW",
        multiple=True,
        shell_complete=lambda context, option, typed: [how for how in CHOICES if how.startswith(typed)],
        help="How to handle files that changed since: abort (default), merge to combine both versions, keep"
        " to leave yours, or overwrite to discard it; PATH=HOW applies to one file or directory and may be"
        " repeated",
    ),
    flag(
        "--markers",
        help="Merge, and write conflict markers into the file where changes overlap",
    ),
    click.option(
        "--expect", metavar="PLAN", help="Do nothing unless the plan has this 'id' (from --dry-run --json)"
    ),
    flag("--yes", help="Do not ask for confirmation"),
)
_PATHS = click.option(
    "--path",
    "paths",
    metavar="PATH",
    type=PATH,
    multiple=True,
    help="Limit this to a file or directory; may be repeated",
)
_PREVIEW = flag("-i", "--interactive", help="Show the files and the diff first, then ask")


def takes_manner(function: Function) -> Function:
    """Add the options that all acts share, and pass them to the command as arguments of the library."""

    @wraps(function)
    def call(shared: Shared, *, yes: bool, **values: Any) -> int | None:  # Any: of the command's parameters
        manner = {name: values.pop(name) for name in ("dry_run", "markers", "expect")}
        manner["on_conflict"] = _read_choices(values.pop("on_conflict"))
        manner["confirm"] = lambda plan: yes or ask(f"{describe_plan(plan.outcome)}. Continue?")
        if values.pop("interactive", False):
            if writes_json():
                raise InvalidInput("-i cannot be combined with --json")
            if not can_ask():
                raise InvalidInput("-i needs a terminal")
            manner["interactive"] = True
        return function(shared, manner, **values)

    for option in reversed(_MANNER_OPTIONS):
        option(call)
    return call


def _read_choices(values: tuple[str, ...]) -> dict[str, str]:
    """Read how to handle conflicts: in general, and at single paths."""
    choices = {}
    for value in values:
        path, equals, how = value.rpartition("=")
        if how not in CHOICES or (equals and not path):
            raise InvalidInput(
                f"--on-conflict must be abort, merge, keep, overwrite or PATH=HOW, not {value!r}"
            )
        choices[absolute_path(path) if equals else REST] = how
    return choices


def _do(shared: Shared, manner: Manner, act: Callable[..., Outcome]) -> Outcome:
    """Carry out an act; if it is interactive, only after the user has seen the plan and agreed."""
    manner = dict(manner)
    is_interactive = manner.pop("interactive", False)
    with open_to_read(shared) as shadow:
        if is_interactive:
            planned = act(shadow, **{**manner, "dry_run": True, "diff": True})
            if planned.diff or planned.conflicts:
                write_lines(render_preview(planned))
            if manner["dry_run"]:
                return planned
            if planned.diff and not planned.conflicts:
                if not ask("Continue?"):
                    raise NotConfirmed(planned, plan=Plan(planned, []))
                manner = {**manner, "expect": planned.id, "confirm": None}
        if not manner["dry_run"]:
            ignore_once_done()
        return act(shadow, **manner)


@command()
@click.argument("turns", required=False, type=COUNT, default=1)
@_PREVIEW
@takes_manner
def undo(shared: Shared, manner: Manner, turns: int) -> int:
    """Undo the last turn, or the last TURNS turns

    A turn is a message from the user and everything the agent did in response. Only files that these messages
    changed are touched. If one of them has changed since, nothing happens, and the conflicts are listed.

    \b
    Examples:
      shadowtree undo
      shadowtree undo 3
      shadowtree undo -i
    """
    outcome = _do(shared, manner, lambda shadow, **how: shadow.undo(turns, **how))
    return _report(shared, outcome, render_outcome(outcome), turns=turns)


@command()
@click.argument("turns", required=False, type=COUNT)
@flag("--all", "is_all", help="Redo everything that was undone")
@_PREVIEW
@takes_manner
def redo(shared: Shared, manner: Manner, turns: int | None, is_all: bool) -> int:
    """Redo the next undone turn, or the next TURNS turns

    When you record a new message after an undo, the undone messages become a branch instead, which
    'shadowtree switch' brings back.

    \b
    Examples:
      shadowtree redo
      shadowtree redo 3
      shadowtree redo --all
    """
    if is_all and turns is not None:
        raise InvalidInput("TURNS cannot be combined with --all")
    wanted = None if is_all else turns or 1
    outcome = _do(shared, manner, lambda shadow, **how: shadow.redo(wanted, **how))
    return _report(shared, outcome, render_outcome(outcome), turns=wanted)


@command()
@click.argument("id", shell_complete=complete_message)
@_PATHS
@click.option("--step", metavar="NAME", help="Go back to before this step of the message")
@flag("--only", "is_only", help="Revert only this message or step, and keep what came later")
@flag("--no-files", help="Go back in the timeline only, without changing files")
@_PREVIEW
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

    Restores the files that this message and later ones changed. ID is a message id or the start of one, its
    number (7 or '#7', quoted), '@' for the last message, or '@~2' for the second before that.

    With --only, later messages are kept, and only what this one changed is reverted. If their changes
    overlap, nothing happens, and the conflicts are listed. 'shadowtree redo' skips a message that was
    reverted this way; 'shadowtree unrevert' brings it back.

    \b
    Examples:
      shadowtree revert msg_01
      shadowtree revert '#7' --dry-run
      shadowtree revert msg_01 --path src --on-conflict merge
      shadowtree revert msg_01 --only
    """
    chosen = [absolute_path(path) for path in paths] or None
    if no_files and (paths or step is not None or is_only):
        raise InvalidInput("--no-files cannot be combined with --path, --step or --only")
    which = {"step": step, "paths": chosen, "only": is_only, "files": not no_files}
    outcome = _do(shared, manner, lambda shadow, **how: shadow.revert(id, **which, **how))
    target = id if step is None else f"step {step} of {id}"
    is_part = chosen is not None or step is not None
    lines = render_outcome(outcome, target=target, is_part=is_part, has_files=not no_files)
    return _report(shared, outcome, lines)


@command()
@click.argument("ref", shell_complete=complete_ref)
@takes_manner
def switch(shared: Shared, manner: Manner, ref: str) -> int:
    """Switch to the branch or message REF

    Restores the files that messages changed to their state after REF. What you leave is kept as a branch.
    REF is a branch, a message as in 'shadowtree revert', or '-' for where you were before the last switch.
    'shadowtree log --graph' shows them.

    \b
    Examples:
      shadowtree switch fix-login
      shadowtree switch -
      shadowtree switch fix-login --on-conflict merge
    """
    outcome = _do(shared, manner, lambda shadow, **how: shadow.switch(ref, **how))
    # Such a name depends on where the session stands, and so means something else by now.
    target = outcome.head if ref == "-" or is_reference(ref) else ref
    return _report(shared, outcome, render_outcome(outcome, target=target))


@command()
@flag("--undo", "is_undo", help="Reverse the last command, even if that was an unrevert")
@takes_manner
def unrevert(shared: Shared, manner: Manner, is_undo: bool) -> int:
    """Reverse the last undo, redo, revert, switch or restore

    Restores exactly what was there, including your own edits. Run it again to reverse the one before. It
    never goes back past the newest message; use 'shadowtree undo' for that.

    \b
    Examples:
      shadowtree unrevert
      shadowtree unrevert --undo
      shadowtree unrevert --dry-run
    """
    outcome = _do(shared, manner, lambda shadow, **how: shadow.unrevert(undo=is_undo, **how))
    return _report(shared, outcome, render_outcome(outcome))


@command()
@click.argument("ref", shell_complete=complete_ref)
@_PATHS
@takes_manner
def restore(shared: Shared, manner: Manner, ref: str, paths: tuple[str, ...]) -> int:
    """Restore all files to their state at REF

    REF is a message (the state after it), a message followed by '^' (the state before it), or a tree id.
    Files created later are deleted, so you are asked first. The timeline does not change.

    \b
    Examples:
      shadowtree restore msg_01
      shadowtree restore msg_01^ --yes
      shadowtree restore msg_01 --path src/login.py
    """
    chosen = [absolute_path(path) for path in paths] or None
    outcome = _do(shared, manner, lambda shadow, **how: shadow.restore(ref, paths=chosen, **how))
    return _report(shared, outcome, render_outcome(outcome, target=ref, is_part=chosen is not None))


def _report(shared: Shared, outcome: Outcome, lines: Iterator[str], *, turns: int | None = None) -> int:
    """Report what was done and how to get back; return FAILED if less was done than requested."""
    outcome = replace(outcome, back=complete_back(shared, outcome.back))
    back = [] if outcome.back is None else [f"To get back: {outcome.back}"]
    if outcome.complete or outcome.dry_run:
        emit(outcome, chain(lines, back))
        return 0
    shortfall = describe_shortfall(outcome, turns)
    # The shortfall goes to standard error, and is not repeated.
    emit(outcome, chain((line for line in lines if line.lower() != shortfall.lower()), back))
    say(shortfall)
    return FAILED


def complete_back(shared: Shared, back: str | None) -> str | None:
    """Add the options that the command `back` needs where the current one was typed."""
    from shlex import quote

    if back is None:
        return None
    default = os.environ.get("SHADOWTREE_SESSION") or shared.session
    if shared.session is not None and shared.session != default and " --session " not in back:
        back += f" --session {quote(shared.session)}"
    return back if shared.start is None else f"{back} -C {quote(shared.start)}"
