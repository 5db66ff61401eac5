"""The commands that write into the worktree: undo, redo, revert, switch, unrevert, restore.

The library does it, all or nothing. Here stand the question before it and the story after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import shadowtree
from shadowtree.cli.command import MERGE_WAS_TRIED, Argument, Command, Option, Shared, read_count
from shadowtree.cli.outcome import describe_plan, describe_shortfall, find_way_back, render_outcome
from shadowtree.cli.output import ask, say, write_json, write_lines
from shadowtree.cli.shadows import open_to_read, open_with_root, paths_in_worktree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypedDict

    class Manner(TypedDict):
        """How an act is to be done, as the library takes it."""

        on_conflict: Literal["abort", "keep", "overwrite", "merge"]
        markers: bool
        dry_run: bool
        confirm: Callable[[shadowtree.Plan], bool]


def undo(shared: Shared, turns: str | None = None, **options: object) -> int:
    wanted = 1 if turns is None else read_count(turns, "TURNS")
    manner = _read_manner(options)
    with open_to_read(shared) as shadow, _noting_merge(manner):
        outcome = shadow.undo(wanted, **manner)
    return _tell(shared, manner, outcome, render_outcome(outcome), turns=wanted)


def redo(shared: Shared, turns: str | None = None, is_all: bool = False, **options: object) -> int:
    if is_all and turns is not None:
        raise shadowtree.InvalidInput("TURNS and --all cannot be given together")
    wanted = 1 if turns is None else read_count(turns, "TURNS")
    manner = _read_manner(options)
    with open_to_read(shared) as shadow, _noting_merge(manner):
        outcome = shadow.redo(None if is_all else wanted, **manner)
    return _tell(shared, manner, outcome, render_outcome(outcome), turns=None if is_all else wanted)


def revert(
    shared: Shared,
    id: str,
    paths: tuple[str, ...] = (),
    step: str | None = None,
    is_only: bool = False,
    no_files: bool = False,
    **options: object,
) -> int:
    manner = _read_manner(options)
    with open_with_root(shared) as (root, shadow), _noting_merge(manner):
        chosen = paths_in_worktree(root, paths)
        outcome = shadow.revert(id, step=step, paths=chosen, only=is_only, files=not no_files, **manner)
    is_part = chosen is not None or step is not None
    lines = render_outcome(outcome, target=id, is_part=is_part, has_files=not no_files)
    return _tell(shared, manner, outcome, lines)


def switch(shared: Shared, ref: str, **options: object) -> int:
    manner = _read_manner(options)
    with open_to_read(shared) as shadow, _noting_merge(manner):
        outcome = shadow.switch(ref, **manner)
    return _tell(shared, manner, outcome, render_outcome(outcome, target=ref))


def unrevert(shared: Shared, **options: object) -> int:
    manner = _read_manner(options)
    with open_to_read(shared) as shadow, _noting_merge(manner):
        outcome = shadow.unrevert(**manner)
    return _tell(shared, manner, outcome, render_outcome(outcome))


def restore(shared: Shared, ref: str, **options: object) -> int:
    manner = _read_manner(options)
    with open_to_read(shared) as shadow, _noting_merge(manner):
        outcome = shadow.restore(ref, **manner)
    return _tell(shared, manner, outcome, render_outcome(outcome, target=ref))


def _read_manner(options: dict[str, object]) -> Manner:
    """Turn the options that all of these commands have into arguments of the library."""
    is_yes = bool(options.get("yes"))
    on_conflict = options.get("on_conflict") or "abort"
    assert on_conflict in ("abort", "keep", "overwrite", "merge")
    return {
        "on_conflict": on_conflict,
        "markers": bool(options.get("markers")),
        "dry_run": bool(options.get("dry_run")),
        "confirm": lambda plan: is_yes or ask(f"{describe_plan(plan.outcome)}. Go on?"),
    }


@contextmanager
def _noting_merge(manner: Manner) -> Iterator[None]:
    """Note on a conflict that merging was tried already, so that nobody proposes it."""
    try:
        yield
    except shadowtree.Conflict as conflict:
        if manner["on_conflict"] == "merge" or manner["markers"]:
            conflict.add_note(MERGE_WAS_TRIED)
        raise


def _tell(
    shared: Shared,
    manner: Manner,
    outcome: shadowtree.Outcome,
    lines: Iterable[str],
    *,
    turns: int | None = None,
) -> int:
    """Tell what was done and how to get back, and whether it was all that was asked for."""
    if shared.as_json:
        write_json(outcome.to_dict())
    else:
        write_lines(lines)
        way_back = find_way_back(outcome, is_overwriting=manner["on_conflict"] == "overwrite")
        if way_back is not None:
            write_lines([f"To get back: shadowtree {way_back}{_name_session(shared)}"])
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


_OPTIONS = (
    Option("--dry-run", "dry_run", "Tell what would be done, and change nothing"),
    Option(
        "--on-conflict",
        "on_conflict",
        "What to do with files that somebody else changed: stop (abort), leave them (keep), replace them too"
        " (overwrite), or keep the changes of both where they do not collide (merge); stop by default",
        metavar="HOW",
        choices=("abort", "keep", "overwrite", "merge"),
    ),
    Option(
        "--markers",
        "markers",
        "Merge, and where texts collide write both versions into the file, between conflict markers",
    ),
    Option("--yes", "yes", "Do not ask, even if much is deleted"),
)

UNDO = Command(
    undo,
    arguments=(Argument("turns", is_required=False),),
    options=_OPTIONS,
    help="""\
Take back what the last turn did

Or the last TURNS turns. A turn is a message of the user with all that the agent did about it. Only files
that the messages changed are touched. If somebody else changed one of them since, nothing happens and the
files are listed.

\b
Examples:
  shadowtree undo
  shadowtree undo 3
  shadowtree undo --dry-run
""",
)

REDO = Command(
    redo,
    arguments=(Argument("turns", is_required=False),),
    options=(Option("--all", "is_all", "Bring back everything that is undone"), *_OPTIONS),
    help="""\
Bring back the next turn that is undone

Or the next TURNS turns.

\b
Examples:
  shadowtree redo
  shadowtree redo 3
  shadowtree redo --all
""",
)

REVERT = Command(
    revert,
    arguments=(Argument("id"),),
    options=(
        Option(
            "--path",
            "paths",
            "Only this file or directory; may be repeated",
            metavar="PATH",
            is_repeatable=True,
        ),
        Option("--step", "step", "Go back to before this step of the message", metavar="NAME"),
        Option("--only", "is_only", "Take out this one message, or step, and keep what came after it"),
        Option("--no-files", "no_files", "Go back in the timeline alone, and leave all files as they are"),
        *_OPTIONS,
    ),
    help="""\
Go back to before the message ID

The files that this message and the later ones changed are as they were before it. ID is a message's id, the
beginning of one, its number as in '#7' (with the quotes), '@' for the last one, or '@~2' for the second
before that.

With --only the later messages stay, and only what this one changed is taken out from under them. Where that
cannot be told apart nothing happens, and each place is shown. 'shadowtree redo' passes by what was taken out,
'shadowtree unrevert' brings it back.

\b
Examples:
  shadowtree revert msg_01
  shadowtree revert '#7' --dry-run
  shadowtree revert msg_01 --path src --on-conflict merge
  shadowtree revert msg_01 --only
""",
)

SWITCH = Command(
    switch,
    arguments=(Argument("ref"),),
    options=_OPTIONS,
    help="""\
Move to the branch or message REF

The files that messages changed are as they were after REF: what is in force here and not there is undone,
and what is there is done again, at once. What is left is archived as a branch. REF is the name of a branch,
or a message as in 'shadowtree revert'; 'shadowtree log --graph' shows both.

\b
Examples:
  shadowtree switch fix-login
  shadowtree switch msg_07 --dry-run
  shadowtree switch fix-login --on-conflict merge
""",
)

UNREVERT = Command(
    unrevert,
    options=_OPTIONS,
    help="""\
Take back the last undo, redo, revert, switch or restore

Brings back exactly what was there, your own edits too. Done again, it takes back the one before that.

\b
Examples:
  shadowtree unrevert
  shadowtree unrevert --dry-run
""",
)

RESTORE = Command(
    restore,
    arguments=(Argument("ref"),),
    options=_OPTIONS,
    help="""\
Make everything as it was recorded at REF

REF is a message (the state after it), a message and '^' (the state before it), or the id of a tree. Files
that came later are deleted, so it asks first. The timeline stays as it is.

\b
Examples:
  shadowtree restore msg_01
  shadowtree restore msg_01^ --yes
  shadowtree restore "$tree" --dry-run
""",
)
