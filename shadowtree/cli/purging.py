"""The command that removes a secret from a store for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import shadowtree
from shadowtree.cli.command import Argument, Command, Option, Shared
from shadowtree.cli.output import ask, say, write_json, write_lines
from shadowtree.cli.shadows import open_with_root, path_in_worktree
from shadowtree.cli.text import count, describe_bytes, escape

_NAMED = 10
"""How many paths are named to people."""


def purge(
    shared: Shared,
    what: str,
    everywhere: bool = False,
    allow: bool = False,
    dry_run: bool = False,
    is_agreed: bool = False,
) -> int:
    if allow and (everywhere or dry_run):
        raise shadowtree.InvalidInput("--allow cannot be given together with --everywhere or --dry-run")
    with open_with_root(shared) as (root, shadow):
        target = what if _is_id(what) else path_in_worktree(root, what)
        # A file may be called like an id.
        target = f"./{target}" if target != what and _is_id(target) else target
        if allow:
            return _tell_allowed(shared, shadow.allow(target))
        purged = shadow.purge(
            target,
            everywhere=everywhere,
            dry_run=dry_run,
            confirm=lambda planned: is_agreed or ask(f"{_describe(planned)}. Go on?"),
        )
    if shared.as_json:
        write_json(purged.to_dict())
    else:
        write_lines(_render(purged))
    if purged.complete or dry_run:
        return 0
    say("; ".join(_list_lacks(purged)))
    return 1


def _list_lacks(purged: shadowtree.Purged) -> Iterator[str]:
    """Tell why the bytes are, or may be, still in the store."""
    if purged.also_at:
        yield f"the same bytes are still in the store: {count(len(purged.also_at), 'other path')} have them"
    if purged.unread:
        yield f"messages may still say what was in {count(len(purged.unread), 'content')} that cannot be read"
    if purged.names:
        yield f"{len(purged.names):,} of the ids of messages and names of sessions still hold something of it"


def _is_id(word: str) -> bool:
    return len(word) == 40 and not word.strip("0123456789abcdef")


def _tell_allowed(shared: Shared, allowed: Sequence[str]) -> int:
    if shared.as_json:
        write_json({"allowed": list(allowed)})
    else:
        write_lines(f"Covered again from the next snapshot on: {escape(name)}" for name in allowed)
    return 0


def _describe(planned: shadowtree.Purged) -> str:
    """Say what is about to be done, in one line."""
    named = ", ".join(escape(path) for path in planned.paths[:_NAMED])
    more = f" and {len(planned.paths) - _NAMED:,} more" if len(planned.paths) > _NAMED else ""
    told = (
        f"This removes {named or 'it'}{more} from {count(planned.trees, 'tree')} and"
        f" {count(len(planned.messages), 'message')} for good; no undo brings it back"
    )
    if planned.also_at:
        told += f". The same bytes stay at {count(len(planned.also_at), 'other path')}"
    return told


def _render(purged: shadowtree.Purged) -> Iterator[str]:
    """Tell what was removed, and what was not."""
    for path in purged.paths[:_NAMED]:
        yield f"{'Would be purged' if purged.dry_run else 'Purged'}: {escape(path)}"
    if len(purged.paths) > _NAMED:
        yield f"  and {len(purged.paths) - _NAMED:,} more"
    if purged.trees or purged.blobs:
        yield (
            f"{count(len(purged.blobs), 'content')} in {count(purged.trees, 'tree')} and"
            f" {count(len(purged.messages), 'message')}"
        )
    if purged.freed:
        yield f"{describe_bytes(purged.freed)} freed"
    for path in purged.also_at[:_NAMED]:
        yield f"The same bytes are at {escape(path)}"
    if len(purged.also_at) > _NAMED:
        yield f"  and at {len(purged.also_at) - _NAMED:,} more"
    for blob in purged.left[:_NAMED] if not purged.dry_run else ():
        yield f"To remove them too: shadowtree purge {blob}"
    yield from map(escape, purged.notes)


PURGE = Command(
    purge,
    arguments=(Argument("what"),),
    options=(
        Option("--everywhere", "everywhere", "Purge what PATH held wherever it is, under any other name too"),
        Option("--allow", "allow", "Cover WHAT again, which was purged, from the next snapshot on"),
        Option("--dry-run", "dry_run", "Tell what would be purged, and purge nothing"),
        Option("--yes", "is_agreed", "Answer yes to the question"),
    ),
    help="""\
Remove a secret from everything that is recorded, for good

WHAT is a path, of a directory all that is below it, or the id of a content: 40 digits as 'shadowtree show
--json' and git name it. It goes from every tree, and its bytes from the store; texts of messages lose what it
said. No undo brings it back: from then on nothing is known of that path, so that reverts leave it alone, and
no snapshot covers it until you --allow it. The file itself stays as it is.

If other paths hold the same bytes they keep them, and the exit code is 1, unless you say --everywhere. Ids of
messages and names of sessions that hold something of it stay as well: they are told, and the exit code is 1.

\b
Examples:
  shadowtree purge .env --dry-run
  shadowtree purge .env --everywhere
  shadowtree purge 83baae61804e65cc73a7201a7252750c76066a30
  shadowtree purge .env --allow
""",
)
