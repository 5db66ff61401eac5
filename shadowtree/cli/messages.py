"""The commands that hosts of agents call around every message and every tool call."""

from __future__ import annotations

from shadowtree.cli.command import Argument, Command, Option, Shared
from shadowtree.cli.output import write_json, write_lines
from shadowtree.cli.progress import ProgressBar
from shadowtree.cli.said import (
    DESCRIPTION,
    describe_message,
    describe_patch,
    tell_finished,
    tell_shortcomings,
    to_json,
)
from shadowtree.cli.shadows import open_to_read, open_to_record, open_with_root, paths_in_worktree
from shadowtree.cli.text import escape


def begin(
    shared: Shared, id: str, text: str | None = None, role: str | None = None, meta: str | None = None
) -> int:
    words = describe_message(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.begin(id, progress=bar, **words)
    if shared.as_json:
        write_json(to_json(message, "before"))
        return 0
    write_lines([f"Message {escape(message.id)} has begun"])
    tell_shortcomings(message)
    return 0


def end(shared: Shared, id: str | None = None, paths: tuple[str, ...] = ()) -> int:
    with open_with_root(shared) as (root, shadow), ProgressBar("Reading files") as bar:
        message = shadow.end(id, paths=paths_in_worktree(root, paths), progress=bar)
    tell_finished(shared, message)
    return 0


def snapshot(
    shared: Shared, id: str, text: str | None = None, role: str | None = None, meta: str | None = None
) -> int:
    words = describe_message(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.snapshot(id, progress=bar, **words)
    tell_finished(shared, message)
    return 0


def step(shared: Shared, name: str, is_end: bool = False) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.end_step(name) if is_end else shadow.begin_step(name)
    if shared.as_json:
        write_json(found.to_dict())
        return 0
    what = f"Step {escape(found.name)} of message {escape(found.message)}"
    write_lines([f"{what} has begun" if found.after is None else f"{what} {describe_patch(found.patch)}"])
    tell_shortcomings(found)
    return 0


BEGIN = Command(
    begin,
    arguments=(Argument("id"),),
    options=DESCRIPTION,
    help="""\
Record where the message ID begins

To be called before the agent works on it. A message that is still open is ended first. Done again for the
open message, it changes nothing. The first time it wraps the current directory.

\b
Examples:
  shadowtree begin msg_01
  shadowtree begin msg_01 -m "add a login page" --role user
  shadowtree begin -- -an-id-with-a-dash
""",
)

END = Command(
    end,
    arguments=(Argument("id", is_required=False),),
    options=(
        Option(
            "--path",
            "paths",
            "Only PATH was changed by the message; may be repeated",
            metavar="PATH",
            is_repeatable=True,
        ),
    ),
    help="""\
Record what the message ID changed

Without ID it is the open message. With --path it changed these files or directories alone, and what else is
different is nobody's.

\b
Examples:
  shadowtree end
  shadowtree end msg_01
  shadowtree end msg_01 --path src/login.py --path tests
""",
)

SNAPSHOT = Command(
    snapshot,
    arguments=(Argument("id"),),
    options=DESCRIPTION,
    help="""\
Record the message ID when it is over

For agents that can call only after their work: all that changed since the session's last record is counted
as the message's. The first time it wraps the current directory.

\b
Examples:
  shadowtree snapshot msg_01
  shadowtree snapshot msg_01 -m "add a login page"
""",
)

STEP = Command(
    step,
    arguments=(Argument("name"),),
    options=(Option("--end", "is_end", "The step is over"),),
    help="""\
Record where a step of the open message begins

A step is one tool call. With --end it is over; a new one ends the one before it, too.

\b
Examples:
  shadowtree step edit-1
  shadowtree step edit-1 --end
""",
)
