"""The commands about sessions: list them, and drop one."""

from __future__ import annotations

import click

from shadowtree.base.errors import describe_size
from shadowtree.cli.app import command, flag, group
from shadowtree.cli.completion import complete_session
from shadowtree.cli.find_shadow import Shared, open_to_read
from shadowtree.cli.format import count, describe_age, escape, join_rows
from shadowtree.cli.output import ask, emit, now_ms
from shadowtree.results.messages import SessionEntry
from shadowtree.results.reports import Forgotten


@group
def sessions(shared: Shared) -> None:
    """List sessions, most recent last

    Each row shows how many messages it has, when it last recorded, its current message, and the agent, if its
    messages name one with --meta '{"agent": "NAME"}'.

    \b
    Examples:
      shadowtree sessions
      shadowtree sessions --json
      shadowtree sessions drop review-2
    """
    with open_to_read(shared, names_session=False) as shadow:
        found = shadow.sessions()
    rows = [_describe(entry) for entry in found]
    emit(found, join_rows(rows, "<><<<") or ["No messages yet"])


@command(of=sessions)
@click.argument("id", shell_complete=complete_session)
@flag("--force", help="Drop it even if one of its messages is open or pinned")
@flag("--yes", help="Do not ask for confirmation")
@flag("--dry-run", help="Show what would be forgotten, without forgetting it")
def drop(shared: Shared, id: str, force: bool, yes: bool, dry_run: bool) -> None:
    """Forget all messages of the session ID

    Your files do not change. What was recorded in this session can no longer be shown or undone, and its name
    can be used again.

    \b
    Examples:
      shadowtree sessions drop review-2
      shadowtree sessions drop review-2 --dry-run
    """

    def confirm(planned: Forgotten) -> bool:
        return yes or ask(
            f"This will permanently forget {count(len(planned.messages), 'message')}. Continue?"
        )

    with open_to_read(shared, names_session=False) as shadow:
        done = shadow.drop_session(id, force=force, dry_run=dry_run, confirm=confirm)
    verb = "Would forget" if dry_run else "Forgot"
    freed = f"; freed {describe_size(done.freed)}" if done.freed else ""
    emit(done, [f"{verb} {count(len(done.messages), 'message')} of session {escape(id)}{freed}"])


def _describe(entry: SessionEntry) -> tuple[str, ...]:
    age = f"{describe_age(now_ms() - entry.time_ms)} ago"
    last = entry.open or entry.head
    state = f"{'open' if entry.open else 'last'} message {escape(last)}" if last else "no current message"
    return escape(entry.id), count(entry.messages, "message"), age, state, escape(entry.agent or "")
