"""The command that lists, renames and drops branches. Files stay as they are; `switch` moves them."""

from __future__ import annotations

import click

from shadowtree.cli.app import Group, pass_shared
from shadowtree.cli.complete import complete_branch
from shadowtree.cli.find_shadow import Shared, open_to_read
from shadowtree.cli.output import emit, escape, find_width, now_ms
from shadowtree.cli.views.history import render_branches, render_dropped


@click.group(cls=Group, invoke_without_command=True, subcommand_metavar="[ACTION ARGUMENTS]")
@pass_shared
def branches(shared: Shared) -> None:
    """List the branches, the newest one last

    A message that begins after an undo archives what is undone as a branch, and 'shadowtree switch' archives
    what it leaves. Each branch has a name, the message that it branches off after, how many messages it has
    and how many files they changed, how long ago it was archived, and the text of its first message. '@'
    marks those that the session is on now.

    \b
    Examples:
      shadowtree branches
      shadowtree branches rename fix-login-2 tokens
      shadowtree branches drop tokens
    """
    with open_to_read(shared) as shadow:
        found = shadow.branches()
    emit(found, render_branches(found, now_ms=now_ms(), width=find_width()))


@branches.command()
@click.argument("old", shell_complete=complete_branch)
@click.argument("new")
@pass_shared
def rename(shared: Shared, old: str, new: str) -> None:
    """Rename the branch OLD to NEW

    \b
    Examples:
      shadowtree branches rename fix-login-2 tokens
    """
    with open_to_read(shared) as shadow:
        branch = shadow.rename_branch(old, new)
    emit(branch, [f"The branch {escape(old)} is called {escape(branch.name)} now"])


@branches.command()
@click.argument("name", shell_complete=complete_branch)
@pass_shared
def drop(shared: Shared, name: str) -> None:
    """Remove the branch NAME from the list

    Files stay as they are, and its messages can still be switched to by their ids.

    \b
    Examples:
      shadowtree branches drop fix-login-2
    """
    with open_to_read(shared) as shadow:
        branch = shadow.drop_branch(name)
    emit(branch, render_dropped(branch))
