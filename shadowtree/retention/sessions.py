"""Dropping sessions: all messages and acts of one are forgotten together, and its name is free again.

One with an open or a pinned message stays, unless somebody insists on it.
"""

from __future__ import annotations

from collections.abc import Callable

from shadowtree.base.arguments import refuse_unknown
from shadowtree.base.errors import InvalidInput, NotConfirmed, UnknownName
from shadowtree.base.frozen import replace
from shadowtree.results.reports import Forgotten
from shadowtree.retention.forget import Forgetting, forget, plan_forgetting, read_remaining
from shadowtree.retention.gc import Locked, Sweep
from shadowtree.retention.policy import choose_sessions, list_kept
from shadowtree.timeline.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class DropOptions(TypedDict, total=False):
        """How a session is dropped."""

        force: bool
        """Even if a message of it is open or pinned."""
        dry_run: bool
        """Change nothing, and return what would be forgotten."""
        confirm: Callable[[Forgotten], bool] | None
        """Asked before anything is forgotten."""


def drop_session(locked: Locked, name: str, how: DropOptions) -> Forgotten:
    """Forget a whole session, and free what only it needed."""
    refuse_unknown(how, "force", "dry_run", "confirm")
    sweep, confirm = Sweep(), how.get("confirm")
    with locked() as opened:
        planned = _plan_drop(opened.journal, name, is_forced=bool(how.get("force")))
        done = Forgotten(planned.messages, len(planned.trees), 0, 0, dry_run=True)
        if how.get("dry_run"):
            return done
        if confirm is not None and not confirm(done):
            raise NotConfirmed(done, f"forget session {name!r}")
        forget(opened, planned, sweep)
    sweep.run(locked)
    return replace(done, removed=sweep.removed, freed=sweep.freed, dry_run=False)


def _plan_drop(journal: Journal, name: str, *, is_forced: bool) -> Forgetting:
    number = journal.session_number(name)
    if number is None:
        raise UnknownName(name, f"no session named {name!r}")
    remaining = read_remaining(journal)
    kept = list_kept(remaining, number)
    if kept and not is_forced:
        id = journal.message(kept[0]).id
        raise InvalidInput(f"message {id!r} of session {name!r} is open or pinned; use force to drop it")
    choice = choose_sessions(remaining, {number})
    return replace(plan_forgetting(journal, choice), sessions=[number])
