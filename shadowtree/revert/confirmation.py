"""Which acts a person has to confirm first. Python callers are asked through `confirm=`."""

from __future__ import annotations

from shadowtree.base.paths import is_file
from shadowtree.revert.outcome import Prepared
from shadowtree.timeline.schema import RESTORE

_MANY_FILES = 20
"""An act that deletes more because of messages with an inferred end has to be confirmed."""


def needs_confirmation(prepared: Prepared) -> bool:
    """Return whether an act is a restore, or deletes many files because of messages with an inferred end.

    Nobody said that all that these hold is the agent's. Files that a message with a recorded end made (on
    the way forward: deleted) never count.
    """
    changes, target = prepared.plan.changes, prepared.target
    if target.kind == RESTORE:
        return bool(changes)
    going = [change for change in changes if is_file(change.old) and not is_file(change.new)]
    return sum(change.path in target.inferred for change in going) > _MANY_FILES
