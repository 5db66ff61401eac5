"""The commands that look at the worktree and its trees, and change nothing."""

from __future__ import annotations

import sys

from shadowtree.cli.command import Argument, Command, Shared
from shadowtree.cli.output import warn, write_json, write_lines, write_utf8
from shadowtree.cli.render import render_diff, render_patch, render_status, summarise_skipped
from shadowtree.cli.shadows import open_to_read


def status(shared: Shared) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.status()
    if shared.as_json:
        write_json(found.to_dict())
    else:
        write_lines(render_status(found))
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

DIFF = Command(
    diff,
    arguments=(Argument("a", is_required=False), Argument("b", is_required=False)),
    help="""\
Show line by line how B differs from A

A and B are ids of trees. Without B it is the worktree as it is now, without A the tree that was recorded
last.

\b
Examples:
  shadowtree diff
  shadowtree diff "$before"
  shadowtree diff "$before" "$after" > changes.patch
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
