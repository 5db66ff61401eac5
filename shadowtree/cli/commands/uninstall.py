"""The command that removes what shadowtree added to this account, except the recorded history."""

from __future__ import annotations

import os
from contextlib import suppress
from shlex import quote

import shadowtree
from shadowtree.agents.install import CHANGED, EDITED
from shadowtree.base.errors import describe_size
from shadowtree.cli.app import command, flag
from shadowtree.cli.commands.hooks import remove_all
from shadowtree.cli.commands.watch import end_daemon_if_any
from shadowtree.cli.find_shadow import Shared
from shadowtree.cli.format import count, escape
from shadowtree.cli.hooks.log import log_file
from shadowtree.cli.output import emit
from shadowtree.daemon.endpoint import Endpoint
from shadowtree.system import disk
from shadowtree.system.locations import Places


@command()
@flag("--dry-run", help="Show what would be removed, without removing it")
def uninstall(shared: Shared, dry_run: bool) -> None:
    """Remove hooks of agents, stop the daemon, and list your stores

    Your recorded history is kept: each store is listed with the command that removes it, and 'shadowtree
    destroy --all' removes them all. Then remove the program the way you installed it.

    \b
    Examples:
      shadowtree uninstall
      shadowtree uninstall --dry-run
    """
    from shadowtree.web.redirect import redirect_directory

    removed, changed = _remove_hooks(dry_run=dry_run)
    endpoint = Endpoint(os.environ)
    if not dry_run:
        end_daemon_if_any()
    for directory in (endpoint.directory, redirect_directory(endpoint.stores)):
        removed += _remove_directory(directory, dry_run=dry_run)
    stores = [
        {**known.to_dict(), "command": f"shadowtree destroy --store {quote(known.store)}"}
        for known in shadowtree.list_stores(os.environ)
    ]
    verb = "Would remove" if dry_run else "Removed"
    lines = [f"{verb} our hooks from {escape(file)}" for file in changed]
    lines += [f"{verb} {escape(file)}" for file in removed]
    lines = lines or ["Nothing to remove"]
    if stores:
        lines.append(f"Your recorded history is kept in {count(len(stores), 'store')}. To remove one:")
        lines += [f"  {escape(each['command'])}  ({describe_size(each['bytes'])})" for each in stores]
        lines.append("To remove all: shadowtree destroy --all")
    emit({"removed": removed, "changed": changed, "stores": stores, "dry_run": dry_run}, lines)


def _remove_hooks(*, dry_run: bool) -> tuple[list[str], list[str]]:
    """Remove the hooks and slash commands of agents, in projects too, their backups and their log.

    Return the files that are removed, and the files of others that only lose our lines.
    """
    changes, _ = remove_all(dry_run=dry_run)
    directory = os.path.dirname(log_file(Places(os.environ).stores or ""))
    logs = [
        os.path.join(directory, name)
        for name in (sorted(os.listdir(directory)) if os.path.isdir(directory) else ())
        if name.startswith(("log", "last-", "running-"))
    ]
    if not dry_run:
        for path in logs:
            disk.remove_file(path)
        with suppress(OSError):
            # It fails if the record of files that the user has edited is still there.
            os.rmdir(directory)
    removed = [change.path for change in changes if change.action not in (CHANGED, EDITED)]
    return removed + logs, [change.path for change in changes if change.action == CHANGED]


def _remove_directory(directory: str, *, dry_run: bool) -> list[str]:
    """Remove a private directory with all its files; return their paths, and that of the directory."""
    if not os.path.isdir(directory) or os.path.islink(directory):
        return []
    disk.require_private(directory)
    files = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    if not dry_run:
        disk.remove_tree(directory)
    return [*files, directory]
