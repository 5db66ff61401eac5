"""The commands that decide how long messages are kept."""

from __future__ import annotations

from collections.abc import Iterator

import shadowtree
from shadowtree.cli.command import Argument, Command, Option, Shared, read_count
from shadowtree.cli.output import warn, write_json, write_lines
from shadowtree.cli.shadows import open_to_read
from shadowtree.cli.text import count, describe_bytes, escape

_NAMED = 10
"""How many messages are named to people."""


def forget(
    shared: Shared,
    keep_last: str | None = None,
    keep_within: str | None = None,
    keep_sessions: tuple[str, ...] = (),
    dry_run: bool = False,
    no_gc: bool = False,
) -> int:
    last = None if keep_last is None else read_count(keep_last, "the value of --keep-last")
    with open_to_read(shared) as shadow:
        found = shadow.forget(
            keep_last=last,
            keep_within=keep_within,
            keep_sessions=list(keep_sessions),
            dry_run=dry_run,
            gc=not no_gc,
        )
    if shared.as_json:
        write_json(found.to_dict())
    else:
        write_lines(_render_forgotten(found))
        for warning in found.warnings:
            warn(warning)
    return 0


def pin(shared: Shared, id: str) -> int:
    with open_to_read(shared) as shadow:
        message = shadow.pin(id)
    if shared.as_json:
        write_json(message.to_dict())
    else:
        write_lines([f"Never forgotten from now on: {escape(message.id)}"])
    return 0


def unpin(shared: Shared, id: str) -> int:
    with open_to_read(shared) as shadow:
        message = shadow.unpin(id)
    if shared.as_json:
        write_json(message.to_dict())
    else:
        write_lines([f"Forgotten when its time comes: {escape(message.id)}"])
    return 0


def _render_forgotten(found: shadowtree.Forgotten) -> Iterator[str]:
    """Tell what is forgotten, or would be."""
    would_be = "would be forgotten" if found.dry_run else "forgotten"
    if not found.messages and not found.trees:
        yield "Nothing is old enough to be forgotten"
    else:
        yield f"{count(len(found.messages), 'message')} and {count(found.trees, 'tree')} {would_be}"
    for session, id in found.messages[:_NAMED]:
        yield f"  {escape(id)}  of session {escape(session)}"
    if len(found.messages) > _NAMED:
        yield f"  and {len(found.messages) - _NAMED:,} more"
    if found.freed:
        yield f"{describe_bytes(found.freed)} freed"


FORGET = Command(
    forget,
    options=(
        Option("--keep-last", "keep_last", "Keep the newest N messages of each session", metavar="N"),
        Option("--keep-within", "keep_within", "Keep what is not older, such as 12h or 30d", metavar="TIME"),
        Option(
            "--keep-session",
            "keep_sessions",
            "Keep all of this session; may be repeated",
            metavar="ID",
            is_repeatable=True,
        ),
        Option("--no-gc", "no_gc", "Leave freeing the room to a later gc"),
        Option("--dry-run", "dry_run", "Tell what would be forgotten, and forget nothing"),
    ),
    help="""\
Forget old messages, and free what only they needed

Without options the settings decide: kept is what is within keep_within (30 days) or among the newest
keep_last (1,000) of its session, as far as store_budget has room for it, and in any case the newest
keep_turns (20) turns. If --keep-last or --keep-within is given, what they say alone decides, and only the
newest turn is kept in any case. Pinned and open messages are never forgotten. Whoever says what to keep, or
--no-gc, leaves the budget alone.

Files stay as they are. A forgotten message cannot be reverted, undone or shown any more.

\b
Examples:
  shadowtree forget --dry-run
  shadowtree forget --keep-last 100
  shadowtree forget --keep-within 7d --keep-session release
""",
)

PIN = Command(
    pin,
    arguments=(Argument("id"),),
    help="""\
Never forget the message ID

Whatever its age, and however much room the store takes.

\b
Examples:
  shadowtree pin msg_01
  shadowtree pin @
""",
)

UNPIN = Command(
    unpin,
    arguments=(Argument("id"),),
    help="""\
Let the message ID be forgotten when its time comes

\b
Examples:
  shadowtree unpin msg_01
""",
)
