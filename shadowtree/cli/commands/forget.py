"""The commands that decide how long messages are kept, and what must not be kept at all."""

from __future__ import annotations

import click

from shadowtree.base.errors import InvalidInput
from shadowtree.cli.app import COUNT, PATH, Command, pass_shared
from shadowtree.cli.complete import complete_message, complete_session
from shadowtree.cli.find_shadow import Shared, open_to_read, open_with_root, path_in_worktree
from shadowtree.cli.output import ask, emit, escape, say
from shadowtree.cli.views.store import (
    describe_purge,
    list_left_of_purge,
    render_forgotten,
    render_purged,
)


@click.command(cls=Command)
@click.argument("id", shell_complete=complete_message)
@pass_shared
def pin(shared: Shared, id: str) -> None:
    """Never forget the message ID

    Whatever its age, and however much room the store takes.

    \b
    Examples:
      shadowtree pin msg_01
      shadowtree pin @
    """
    with open_to_read(shared) as shadow:
        message = shadow.pin(id)
    emit(message, [f"Never forgotten from now on: {escape(message.id)}"])


@click.command(cls=Command)
@click.argument("id", shell_complete=complete_message)
@pass_shared
def unpin(shared: Shared, id: str) -> None:
    """Allow the message ID to be forgotten again

    \b
    Examples:
      shadowtree unpin msg_01
    """
    with open_to_read(shared) as shadow:
        message = shadow.unpin(id)
    emit(message, [f"Forgotten when its time comes: {escape(message.id)}"])


@click.command(cls=Command)
@click.option("--keep-last", metavar="N", type=COUNT, help="Keep the newest N messages of each session")
@click.option("--keep-within", metavar="TIME", help="Keep what is not older, such as 12h or 30d")
@click.option(
    "--keep-session",
    "keep_sessions",
    metavar="ID",
    multiple=True,
    shell_complete=complete_session,
    help="Keep all of this session; may be repeated",
)
@click.option("--no-gc", is_flag=True, help="Leave freeing the room to a later gc")
@click.option("--dry-run", is_flag=True, help="Tell what would be forgotten, and forget nothing")
@pass_shared
def forget(
    shared: Shared,
    keep_last: int | None,
    keep_within: str | None,
    keep_sessions: tuple[str, ...],
    no_gc: bool,
    dry_run: bool,
) -> None:
    """Forget old messages, and free what only they needed

    Without options the settings decide: kept is what is within keep_within (30 days) or among the newest
    keep_last (1,000) of its session, as far as store_budget has room for it, and in any case the newest
    keep_turns (20) turns. If --keep-last or --keep-within is given, what they say alone decides, and only the
    newest turn is kept in any case. Pinned and open messages are never forgotten. Whoever says what to keep,
    or --no-gc, leaves the budget alone.

    Files stay as they are. A forgotten message cannot be reverted, undone or shown any more.

    \b
    Examples:
      shadowtree forget --dry-run
      shadowtree forget --keep-last 100
      shadowtree forget --keep-within 7d --keep-session release
    """
    with open_to_read(shared) as shadow:
        found = shadow.forget(
            keep_last=keep_last,
            keep_within=keep_within,
            keep_sessions=list(keep_sessions),
            dry_run=dry_run,
            gc=not no_gc,
        )
    emit(found, render_forgotten(found), warnings=found.warnings)


@click.command(cls=Command)
@click.argument("what", required=False, type=PATH)
@click.option("--text", "secret", metavar="SECRET", help="Purge SECRET from what messages say")
@click.option(
    "--everywhere", is_flag=True, help="Purge what PATH held wherever it is, under any other name too"
)
@click.option("--allow", is_flag=True, help="Cover WHAT again, which was purged, from the next snapshot on")
@click.option("--dry-run", is_flag=True, help="Tell what would be purged, and purge nothing")
@click.option("--yes", is_flag=True, help="Answer yes to the question")
@pass_shared
def purge(
    shared: Shared,
    what: str | None,
    secret: str | None,
    everywhere: bool,
    allow: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove a secret from everything that is recorded, for good

    WHAT is a path, of a directory all that is below it, or the id of a content: 40 digits as 'shadowtree show
    --json' and git name it. It goes from every tree, and its bytes from the store; messages lose each line
    and value of it that they repeat. With --text, messages lose SECRET wherever they hold it. No undo brings
    it back: from then on nothing is known of that path, so that reverts leave it alone, and no snapshot
    covers it until you --allow it. The file itself stays as it is.

    If other paths hold the same bytes, or files hold SECRET, they keep them, and the exit code is 1, unless
    you say --everywhere. Ids of messages and names of sessions that hold something of it stay as well: they
    are named, and the exit code is 1.

    \b
    Examples:
      shadowtree purge .env --dry-run
      shadowtree purge .env --everywhere
      shadowtree purge 83baae61804e65cc73a7201a7252750c76066a30
      shadowtree purge --text sk_live_51HxYz
      shadowtree purge .env --allow
    """
    if allow and (everywhere or dry_run or secret is not None):
        raise InvalidInput("--allow cannot be given together with --text, --everywhere or --dry-run")
    if (what is None) == (secret is None):
        raise InvalidInput("say what to purge: a path, the id of a content, or --text SECRET")
    with open_with_root(shared) as (root, shadow):
        target = what if what is None or _is_id(what) else path_in_worktree(root, what)
        # A file may be called like an id.
        target = f"./{target}" if target is not None and target != what and _is_id(target) else target
        if allow and target is not None:
            allowed = list(shadow.allow(target))
            lines = (f"Covered again from the next snapshot on: {escape(name)}" for name in allowed)
            emit({"allowed": allowed}, lines)
            return 0
        purged = shadow.purge(
            target,
            text=secret,
            everywhere=everywhere,
            dry_run=dry_run,
            confirm=lambda planned: yes or ask(f"{describe_purge(planned)}. Go on?"),
        )
    emit(purged, render_purged(purged))
    if purged.complete or dry_run:
        return 0
    say("; ".join(list_left_of_purge(purged)))
    return 1


def _is_id(word: str) -> bool:
    return len(word) == 40 and not word.strip("0123456789abcdef")
