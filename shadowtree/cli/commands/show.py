"""The commands that show the worktree, its messages, branches and trees; files stay as they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

import shadowtree
from shadowtree.cli.app import COUNT_FROM_0, PATH, command, complete_branch, complete_message, flag, group
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_read
from shadowtree.cli.format import escape
from shadowtree.cli.output import emit, find_width, now_ms, writes_json
from shadowtree.cli.views.log import (
    LineCount,
    render_blame,
    render_branches,
    render_dropped,
    render_log,
    render_message,
)
from shadowtree.cli.views.status import (
    join_renames,
    render_diff,
    render_patch,
    render_status,
    summarise_skipped,
)
from shadowtree.results.messages import Message

LOGGED = 20
"""How many messages the log shows to people who do not say how many they want."""
COUNTED_FILES = 200
"""Of messages that changed more files the log does not count lines."""
COUNTING_S = 1.0
"""For how long the log counts lines; the older messages are left without."""


@command()
def status(shared: Shared) -> None:
    """Show what is protected, what is not, and what changed

    \b
    Examples:
      shadowtree status
      shadowtree status --json
    """
    with open_to_read(shared) as shadow:
        found = shadow.status()
    emit(found, render_status(found))


@command()
@flag("--graph", "has_graph", help="Draw which message came after which, in lanes")
@flag("--all", "all_sessions", help="Those of all sessions")
@click.option(
    "-n",
    "last",
    metavar="N",
    type=COUNT_FROM_0,
    help="Only the last N, 0 for all; 20 by default, with --json all",
)
def log(shared: Shared, has_graph: bool, all_sessions: bool, last: int | None) -> None:
    """List the messages, the newest one last

    Each with its number, its age, the first line of its text, how many files it changed, and how many lines
    came and went. '@' marks the last message in force; undone ones can be brought back with 'shadowtree
    redo', and archived ones, which are on a branch, with 'shadowtree switch'.

    With --graph each message stands in the lane of the message that it came after, with the name of its
    branch:

    \b
      @  the last message in force       o  undone, redo brings it back
      *  another one in force            x  reverted alone ('revert --only')
      .  archived on a branch            ~  what it came after is not shown

    \b
    Examples:
      shadowtree log
      shadowtree log -n 5
      shadowtree log --graph
      shadowtree log --all --json
    """
    wanted = LOGGED if last is None and not writes_json() else last
    with open_to_read(shared) as shadow:
        # One more than wanted, to know whether there are more.
        found = shadow.messages(all_sessions=all_sessions, last=wanted + 1 if wanted else None)
        shown = found[-wanted:] if wanted else found
        counts = [] if writes_json() else _count_lines(shadow, shown)
    lines = []
    if len(shown) < len(found):
        lines.append("Earlier messages are not shown; 'shadowtree log -n 0' lists all")
    if not writes_json():
        options = {"has_sessions": all_sessions, "has_graph": has_graph}
        lines += render_log(shown, counts, now_ms=now_ms(), width=find_width(), **options)
    emit(shown, lines or ["No message is recorded yet"])


@command()
@click.argument("id", shell_complete=complete_message)
def show(shared: Shared, id: str) -> None:
    """Show one message and what it changed, line by line

    ID is a message's id, the beginning of one, its number as in '#7' (with the quotes), '@' for the last one,
    or '@~2' for the second before that. A file that was probably renamed is shown once, as 'OLD -> NEW'.

    \b
    Examples:
      shadowtree show msg_01
      shadowtree show @
      shadowtree show '#7' --json
    """
    with open_to_read(shared) as shadow:
        message, diffs = shadow.show(id)
    document = message.to_dict() | {
        "files": message.patch.files,
        "diff": diffs,
        "skipped": message.skipped,
    }
    lines = render_message(message, diffs, now_ms=now_ms(), escape_content=sys.stdout.isatty())
    emit(document, lines, utf8=True)


@command()
@click.argument("a", required=False, shell_complete=complete_message)
@click.argument("b", required=False, shell_complete=complete_message)
def diff(shared: Shared, a: str | None, b: str | None) -> None:
    """Show line by line how B differs from A

    A and B are messages (the state after it; with '^' the one before it) or ids of trees. Without B it is the
    worktree as it is now, without A the tree that was recorded last.

    \b
    Examples:
      shadowtree diff
      shadowtree diff msg_01^ msg_03
      shadowtree diff "$before" "$after" > changes.patch
    """
    with open_to_read(shared) as shadow:
        diffs = shadow.diff(a, b)
    # Into a file or a pipe the lines go as they are, so that `git apply` can take them.
    emit(diffs, render_diff(diffs, escape_content=sys.stdout.isatty()), utf8=True)


@command()
@click.argument("path", type=PATH)
def blame(shared: Shared, path: str) -> None:
    """Show which messages changed the file PATH, newest first

    Each with a letter (A added, M modified, D deleted, T another type), its age, its id, and its text.
    Changes that no message made are listed too. PATH is relative to the current directory.

    \b
    Examples:
      shadowtree blame src/login.py
      shadowtree blame src/login.py --json
    """
    with open_to_read(shared) as shadow:
        found, session = shadow.blame(absolute_path(path)), shadow.session
    emit(found, render_blame(path, found, session=session, now_ms=now_ms(), width=find_width()))


@command()
@click.argument("tree")
def patch(shared: Shared, tree: str) -> None:
    """List the paths that changed since TREE

    Each line has a letter (A added, M modified, D deleted, T another type) and the path.

    \b
    Examples:
      shadowtree patch "$before"
      shadowtree patch --json "$before"
    """
    with open_to_read(shared) as shadow:
        found = shadow.patch(tree)
    skipped = [f"not compared: {summarise_skipped(found.skipped)}"] if found.skipped else []
    emit(found, render_patch(found), warnings=skipped)


@group
def branches(shared: Shared) -> None:
    """List the branches, the newest one last

    A message that begins after an undo archives what is undone as a branch, and 'shadowtree switch' archives
    what it leaves. Each branch has a name, the message that it branches off after, how many messages it has
    and how many files they changed, how long ago it was archived, and the text of its first message. '@'
    marks those that the session is on now.

    \b
    Examples:
      shadowtree branches
      shadowtree branches rename fix-login-2 tokens
      shadowtree branches drop tokens
    """
    with open_to_read(shared) as shadow:
        found = shadow.branches()
    emit(found, render_branches(found, now_ms=now_ms(), width=find_width()))


@command(of=branches)
@click.argument("old", shell_complete=complete_branch)
@click.argument("new")
def rename(shared: Shared, old: str, new: str) -> None:
    """Rename the branch OLD to NEW

    \b
    Examples:
      shadowtree branches rename fix-login-2 tokens
    """
    with open_to_read(shared) as shadow:
        branch = shadow.rename_branch(old, new)
    emit(branch, [f"The branch {escape(old)} is called {escape(branch.name)} now"])


@command(of=branches)
@click.argument("name", shell_complete=complete_branch)
def drop(shared: Shared, name: str) -> None:
    """Remove the branch NAME from the list

    Files stay as they are, and its messages can still be switched to by their ids.

    \b
    Examples:
      shadowtree branches drop fix-login-2
    """
    with open_to_read(shared) as shadow:
        branch = shadow.drop_branch(name)
    emit(branch, render_dropped(branch))


def _count_lines(shadow: shadowtree.Shadow, messages: Sequence[Message]) -> list[LineCount]:
    """Count added and removed lines, from the newest message on, as long as it is quick."""
    counts: list[LineCount] = [None] * len(messages)
    stop = time.monotonic() + COUNTING_S
    for place in reversed(range(len(messages))):
        message = messages[place]
        if time.monotonic() > stop:
            break
        if 0 < len(message.patch.files) <= COUNTED_FILES:
            diffs = join_renames(shadow.diff_message(message))
            counts[place] = (sum(each.additions for each in diffs), sum(each.deletions for each in diffs))
    return counts
