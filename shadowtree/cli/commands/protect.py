"""The command that protects files which no snapshot covers."""

from __future__ import annotations

import click

from shadowtree.cli.app import PATH, command, flag
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_read
from shadowtree.cli.format import escape
from shadowtree.cli.output import emit, say
from shadowtree.results.reports import Protected


@command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH)
@flag("--dry-run", help="Show the rules, without writing them")
def protect(shared: Shared, paths: tuple[str, ...], dry_run: bool) -> None:
    """Protect files that are ignored or too big

    Adds a line such as '!/.env' to '.shadowtreeignore' at the top of the worktree. From the next snapshot on,
    PATH is recorded like any other file. Earlier versions cannot be restored.

    \b
    Examples:
      shadowtree protect .env
      shadowtree protect --dry-run data/large.bin
    """
    wanted = [absolute_path(path) for path in paths]
    with open_to_read(shared) as shadow:
        found = shadow.protect(*wanted, dry_run=True)
        if not dry_run:
            for rule in dict.fromkeys(each.rule for each in found if each.rule is not None):
                say(f"adding {rule} to {shadow.worktree / '.shadowtreeignore'}")
            found = shadow.protect(*wanted)
    emit(found, [_describe_protected(each) for each in found])


def _describe_protected(found: Protected) -> str:
    name = escape(found.path)
    if found.rule is None:
        return f"{name} is already protected" if found.exists else f"{name} does not exist and is not ignored"
    if found.dry_run:
        return f"Would add to .shadowtreeignore: {escape(found.rule)}"
    return f"{name} will be protected from the next snapshot on"
