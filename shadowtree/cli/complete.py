"""What a shell completes beyond commands, options and files: ids of messages, branches, sessions, settings.

A callback reads the timeline without the lock. It never fails, prints or repairs anything: whoever presses
Tab has not run a command yet. In doubt there is nothing to complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import fields

import click
from click.shell_completion import CompletionItem

import shadowtree
from shadowtree.cli.output import first_line

_READ = 500
"""How many messages are completed: the newest ones."""

Named = Iterable[tuple[str, str]]
"""Names, each with a line about it, which some shells show."""


def _completes(read: Callable[[shadowtree.Shadow], Named]) -> Callable[..., list[CompletionItem]]:
    """Make click's callback of a function that reads names from the shadow that the line is about."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with _open(context) as shadow:
                named = list(read(shadow))
        except Exception:  # noqa: BLE001  # nothing that goes wrong here may disturb the line being typed
            return []
        return [CompletionItem(name, help=about) for name, about in named if name.startswith(incomplete)]

    return complete


def _open(context: click.Context) -> shadowtree.Shadow:
    """Open the shadow that the options typed so far lead to."""
    given = context.ensure_object(dict)
    start = os.path.join(os.getcwd(), given.get("start", "."))
    store = given.get("store") and os.path.join(start, given["store"])
    worktree = shadowtree.find_worktree(start, store=store)
    if worktree is None:
        raise LookupError(start)
    session = given.get("session") or os.environ.get("SHADOWTREE_SESSION") or "default"
    return shadowtree.Shadow(worktree, store=store, session=session).only_look()


def _messages(shadow: shadowtree.Shadow) -> Named:
    return [(message.id, first_line(message.text)) for message in shadow.messages(last=_READ)]


def _branches(shadow: shadowtree.Shadow) -> Named:
    return [(branch.name, first_line(branch.label)) for branch in shadow.branches()]


def _sessions(shadow: shadowtree.Shadow) -> Named:
    return [(name, "") for name in sorted({each.session for each in shadow.messages(all_sessions=True)})]


complete_message = _completes(_messages)
complete_branch = _completes(_branches)
complete_ref = _completes(lambda shadow: [*_branches(shadow), *_messages(shadow)])
complete_session = _completes(_sessions)


def complete_setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Name the settings."""
    return [each.name for each in fields(shadowtree.Settings) if each.name.startswith(incomplete)]
