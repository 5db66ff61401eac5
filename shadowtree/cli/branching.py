"""The command that lists, renames and drops branches. Files stay as they are; `switch` moves them."""

from __future__ import annotations

import time

from shadowtree.cli.command import Argument, Command, Shared
from shadowtree.cli.history import render_branches, render_dropped, render_renamed
from shadowtree.cli.output import find_width, write_json, write_lines
from shadowtree.cli.shadows import open_to_read


def branches(shared: Shared) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.branches()
    if shared.as_json:
        write_json([branch.to_dict() for branch in found])
        return 0
    write_lines(render_branches(found, now_ms=time.time_ns() // 1_000_000, width=find_width()))
    return 0


def rename(shared: Shared, old: str, new: str) -> int:
    with open_to_read(shared) as shadow:
        branch = shadow.rename_branch(old, new)
    if shared.as_json:
        write_json(branch.to_dict())
    else:
        write_lines(render_renamed(branch, old))
    return 0


def drop(shared: Shared, name: str) -> int:
    with open_to_read(shared) as shadow:
        branch = shadow.drop_branch(name)
    if shared.as_json:
        write_json(branch.to_dict())
    else:
        write_lines(render_dropped(branch))
    return 0


RENAME = Command(
    rename,
    arguments=(Argument("old"), Argument("new")),
    help="""\
Give the branch OLD the name NEW

\b
Examples:
  shadowtree branches rename fix-login-2 tokens
""",
)

DROP = Command(
    drop,
    arguments=(Argument("name"),),
    help="""\
Take the branch NAME from the list

Files stay as they are, and its messages can still be switched to by their ids.

\b
Examples:
  shadowtree branches drop fix-login-2
""",
)

BRANCHES = Command(
    branches,
    actions={"rename": RENAME, "drop": DROP},
    help="""\
List the branches, the newest one last

A message that begins after an undo archives what is undone as a branch, and 'shadowtree switch' archives what
it leaves. Each branch has a name, the message that it branches off after, how many messages it has and how
many files they changed, how long ago it was archived, and the text of its first message. '@' marks those that
the session is on now.

\b
Examples:
  shadowtree branches
  shadowtree branches rename fix-login-2 tokens
  shadowtree branches drop tokens
""",
)
