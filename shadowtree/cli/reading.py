"""The commands that look at the worktree and its trees, and change nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import shadowtree
from shadowtree.cli.command import Argument, Command, Option, Shared, read_count
from shadowtree.cli.history import render_blame
from shadowtree.cli.log import LineCount, render_graph, render_log, render_message
from shadowtree.cli.output import find_width, warn, write_json, write_lines, write_utf8
from shadowtree.cli.render import render_diff, render_patch, render_status, summarise_skipped
from shadowtree.cli.shadows import open_to_read, open_with_root, path_in_worktree

LOGGED = 20
"""How many messages the log shows to people who do not say how many they want."""
COUNTED_FILES = 200
"""Of messages that changed more files the log does not count lines."""
COUNTING_S = 1.0
"""For how long the log counts lines; the older messages are left without."""


def status(shared: Shared) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.status()
    if shared.as_json:
        write_json(found.to_dict())
    else:
        write_lines(render_status(found))
    return 0


def log(shared: Shared, all_sessions: bool = False, last: str | None = None, has_graph: bool = False) -> int:
    wanted = None if last is None else read_count(last, "the value of -n", at_least=0)
    if wanted is None and not shared.as_json:
        wanted = LOGGED
    with open_to_read(shared) as shadow:
        # One more than wanted, to know whether there are more.
        found = shadow.messages(all_sessions=all_sessions, last=wanted + 1 if wanted else None)
        shown = found[-wanted:] if wanted else found
        counts = [] if shared.as_json else _count_lines(shadow, shown)
    if shared.as_json:
        write_json([message.to_dict() for message in shown])
        return 0
    if len(shown) < len(found):
        write_lines(["Earlier messages are not shown; 'shadowtree log -n 0' lists all"])
    render = render_graph if has_graph else render_log
    write_lines(render(shown, counts, now_ms=_now_ms(), width=find_width(), has_sessions=all_sessions))
    if not shown:
        write_lines(["No message is recorded yet"])
    return 0


def show(shared: Shared, id: str) -> int:
    with open_to_read(shared) as shadow:
        message, diffs = shadow.show(id)
    if shared.as_json:
        files = [changed.to_dict() for changed in message.patch.files]
        skipped = [each.to_dict() for each in message.skipped]
        differences = [file_diff.to_dict() for file_diff in diffs]
        write_json(message.to_dict() | {"files": files, "diff": differences, "skipped": skipped})
        return 0
    write_utf8(render_message(message, diffs, now_ms=_now_ms(), escape_content=sys.stdout.isatty()))
    return 0


def diff(shared: Shared, a: str | None = None, b: str | None = None) -> int:
    with open_to_read(shared) as shadow:
        diffs = shadow.diff(a, b)
    if shared.as_json:
        write_json([file_diff.to_dict() for file_diff in diffs])
    else:
        # Into a file or a pipe the lines go as they are, so that `git apply` can take them.
        write_utf8(render_diff(diffs, escape_content=sys.stdout.isatty()))
    return 0


def blame(shared: Shared, path: str) -> int:
    with open_with_root(shared) as (root, shadow):
        entries = shadow.blame(path_in_worktree(root, path))
    if shared.as_json:
        write_json([entry.to_dict() for entry in entries])
        return 0
    write_lines(render_blame(path, entries, session=shared.session, now_ms=_now_ms(), width=find_width()))
    return 0


def patch(shared: Shared, tree: str) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.patch(tree)
    if shared.as_json:
        write_json(found.to_dict())
        return 0
    write_lines(render_patch(found))
    if found.skipped:
        warn(f"not compared: {summarise_skipped(found.skipped)}")
    return 0


def _count_lines(shadow: shadowtree.Shadow, messages: Sequence[shadowtree.Message]) -> list[LineCount]:
    """Count added and removed lines, from the newest message on, as long as it is quick."""
    counts: list[LineCount] = [None] * len(messages)
    stop = time.monotonic() + COUNTING_S
    for place in reversed(range(len(messages))):
        message = messages[place]
        if time.monotonic() > stop:
            break
        if 0 < len(message.patch.files) <= COUNTED_FILES:
            diffs = shadow.diff_message(message)
            counts[place] = (sum(each.additions for each in diffs), sum(each.deletions for each in diffs))
    return counts


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


STATUS = Command(
    status,
    help="""\
Tell what is protected, what is not, and what changed

\b
Examples:
  shadowtree status
  shadowtree status --json
""",
)

LOG = Command(
    log,
    options=(
        Option("--graph", "has_graph", "Draw which message came after which, in lanes"),
        Option("--all", "all_sessions", "Those of all sessions"),
        Option("-n", "last", "Only the last N, 0 for all; 20 by default, with --json all", metavar="N"),
    ),
    help="""\
List the messages, the newest one last

Each with its number, its age, the first line of its text, how many files it changed, and how many lines came
and went. '@' marks the last message in force; undone ones can be brought back with 'shadowtree redo', and
archived ones, which are on a branch, with 'shadowtree switch'.

With --graph each message stands in the lane of the message that it came after, with the name of its branch:

\b
  @  the last message in force       o  undone, redo brings it back
  *  another one in force            x  taken out alone with 'revert --only'
  .  archived on a branch            ~  what it came after is not shown

\b
Examples:
  shadowtree log
  shadowtree log -n 5
  shadowtree log --graph
  shadowtree log --all --json
""",
)

SHOW = Command(
    show,
    arguments=(Argument("id"),),
    help="""\
Show one message and what it changed, line by line

ID is a message's id, the beginning of one, its number as in '#7' (with the quotes), '@' for the last one, or
'@~2' for the second before that.

\b
Examples:
  shadowtree show msg_01
  shadowtree show @
  shadowtree show '#7' --json
""",
)

DIFF = Command(
    diff,
    arguments=(Argument("a", is_required=False), Argument("b", is_required=False)),
    help="""\
Show line by line how B differs from A

A and B are messages (the state after it; with '^' the one before it) or ids of trees. Without B it is the
worktree as it is now, without A the tree that was recorded last.

\b
Examples:
  shadowtree diff
  shadowtree diff msg_01^ msg_03
  shadowtree diff "$before" "$after" > changes.patch
""",
)

BLAME = Command(
    blame,
    arguments=(Argument("path"),),
    help="""\
Tell which messages changed the file PATH, the newest one first

Each with a letter (A added, M modified, D deleted, T another type), its age, its id, and its text. Changes
that no message made are listed too. PATH is relative to the current directory.

\b
Examples:
  shadowtree blame src/login.py
  shadowtree blame src/login.py --json
""",
)

PATCH = Command(
    patch,
    arguments=(Argument("tree"),),
    help="""\
List the paths that changed since TREE

Each line has a letter (A added, M modified, D deleted, T another type) and the path.

\b
Examples:
  shadowtree patch "$before"
  shadowtree patch --json "$before"
""",
)
