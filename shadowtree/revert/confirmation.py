"""Decide which acts must be confirmed first. Python callers pass `confirm=` to be asked."""

from __future__ import annotations

from shadowtree.base.paths import is_file
from shadowtree.revert.outcome import Prepared
from shadowtree.timeline.sqlite.schema import RESTORE

_MANY_FILES = 20
"""An act that deletes more files than this because of inferred ends must be confirmed."""


def needs_confirmation(prepared: Prepared) -> bool:
    """Return whether an act must be confirmed: a restore, or many deletions because of inferred ends.

    A message with an inferred end may include changes that are not the agent's. Files that a message with a
    recorded end created (or, on the way forward, deleted) never count.
    """
    changes, target = prepared.plan.changes, prepared.target
    if target.kind == RESTORE:
        return bool(changes)
    going = [change for change in changes if is_file(change.old) and not is_file(change.new)]
    return sum(change.path in target.inferred for change in going) > _MANY_FILES
