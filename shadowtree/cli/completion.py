"""Shell completion: callbacks that list messages, branches, sessions, commands and settings for click.

A callback reads the timeline without the lock. It never fails, prints or repairs anything, because pressing
Tab runs no command yet. If something goes wrong, it completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

import shadowtree
from shadowtree.cli.find_shadow import find_wrapped, open_shadow, read_shared
from shadowtree.cli.format import first_line

_READ = 500
"""How many messages are offered: the newest ones."""

Named = Iterable[tuple[str, str]]
"""Names, each with a one-line description, which some shells show."""


def _completes(read: Callable[[shadowtree.Shadow], Named]) -> Callable[..., list[CompletionItem]]:
    """Turn a function that reads names from a shadow into a completion callback for click."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            shared = read_shared(context.ensure_object(dict))
            with open_shadow(shared, find_wrapped(shared)) as shadow:
                seen = shadow.only_look()
                named = list(read(seen.for_last_session() if shared.session is None else seen))
        except Exception:  # noqa: BLE001  # nothing that goes wrong here may disturb the line being typed
            return []
        return [CompletionItem(name, help=about) for name, about in named if name.startswith(incomplete)]

    return complete


def _messages(shadow: shadowtree.Shadow) -> Named:
    return [(message.id, first_line(message.text)) for message in shadow.messages(last=_READ)]


def _branches(shadow: shadowtree.Shadow) -> Named:
    return [(branch.name, first_line(branch.label)) for branch in shadow.branches()]


def _sessions(shadow: shadowtree.Shadow) -> Named:
    return [(each.id, each.agent or "") for each in shadow.sessions()]


complete_message = _completes(_messages)
complete_branch = _completes(_branches)
complete_ref = _completes(lambda shadow: [*_branches(shadow), *_messages(shadow)])
complete_session = _completes(_sessions)


def complete_command(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """List the commands, or the actions of the command that is already typed."""
    found: click.Command | None = context.find_root().command
    for word in context.params.get("words") or ():
        found = found.get_command(context, word) if isinstance(found, click.Group) else None
    names = found.list_commands(context) if isinstance(found, click.Group) else []
    return [name for name in names if name.startswith(incomplete)]


def complete_setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """List the settings."""
    return [name for name in shadowtree.Settings.__match_args__ if name.startswith(incomplete)]
