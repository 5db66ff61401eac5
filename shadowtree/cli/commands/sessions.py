"""The commands about sessions: which there are, and dropping one."""

from __future__ import annotations

import click

from shadowtree.base.errors import describe_size
from shadowtree.cli.app import command, complete_session, flag, group
from shadowtree.cli.find_shadow import Shared, open_to_read
from shadowtree.cli.format import count, describe_age, escape, join_rows
from shadowtree.cli.output import ask, emit, now_ms
from shadowtree.results.messages import SessionEntry
from shadowtree.results.reports import Forgotten


@group
def sessions(shared: Shared) -> None:
    """List the sessions, the one that recorded last at the end

    Each with how many messages it has, how long ago it recorded, its last message in force, and the agent, if
    its messages name one: --meta '{"agent": "NAME"}'.

    \b
    Examples:
      shadowtree sessions
      shadowtree sessions --json
      shadowtree sessions drop review-2
    """
    with open_to_read(shared) as shadow:
        found = shadow.sessions()
    rows = [_describe(entry) for entry in found]
    emit(found, join_rows(rows, "<><<<") or ["No message is recorded yet"])


@command(of=sessions)
@click.argument("id", shell_complete=complete_session)
@flag("--force", help="Drop it even if a message of it is open or pinned")
@flag("--yes", help="Answer yes to the question")
@flag("--dry-run", help="List what would be forgotten, and forget nothing")
def drop(shared: Shared, id: str, force: bool, yes: bool, dry_run: bool) -> None:
    """Forget all messages of the session ID

    Your files stay as they are. What was recorded in this session cannot be undone or shown any more, and its
    name can be used again.

    \b
    Examples:
      shadowtree sessions drop review-2
      shadowtree sessions drop review-2 --dry-run
    """

    def confirm(planned: Forgotten) -> bool:
        return yes or ask(f"This forgets {count(len(planned.messages), 'message')} for good. Go on?")

    with open_to_read(shared) as shadow:
        done = shadow.drop_session(id, force=force, dry_run=dry_run, confirm=confirm)
    would_be = "would be forgotten" if dry_run else "forgotten"
    freed = f", {describe_size(done.freed)} freed" if done.freed else ""
    emit(done, [f"{count(len(done.messages), 'message')} of session {escape(id)} {would_be}{freed}"])


def _describe(entry: SessionEntry) -> tuple[str, ...]:
    age = f"{describe_age(now_ms() - entry.time_ms)} ago"
    last = entry.open or entry.head
    state = f"{'open' if entry.open else 'last'} message {escape(last)}" if last else "nothing in force"
    return escape(entry.id), count(entry.messages, "message"), age, state, escape(entry.agent or "")
