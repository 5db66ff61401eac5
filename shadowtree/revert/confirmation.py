"""When somebody has to confirm an act before it is done.

A restore that changes anything; any other act that would unlink many files because of messages whose end was
inferred, as nobody said that all they hold is the agent's. Files that a message with a recorded end made (on
the way forward: deleted) never cause a question.
"""

from __future__ import annotations

from shadowtree.base.errors import NotConfirmed
from shadowtree.base.paths import is_file
from shadowtree.revert.outcome import Act, Prepared, as_untouched
from shadowtree.timeline.schema import RESTORE

_MANY = 20
"""So many files may go because of messages with an inferred end before somebody has to agree."""


def require_confirmation(act: Act, prepared: Prepared) -> None:
    """Ask, if an act needs it and the caller said whom to ask; NotConfirmed if the answer is no."""
    confirm = act.options.confirm
    if confirm is not None and _needs_confirmation(prepared) and not confirm(prepared.to_plan()):
        raise NotConfirmed(as_untouched(act, prepared.outcome), plan=prepared.to_plan())


def _needs_confirmation(prepared: Prepared) -> bool:
    changes, target = prepared.plan.changes, prepared.target
    if target.kind == RESTORE:
        return bool(changes)
    going = [change for change in changes if is_file(change.old) and not is_file(change.new)]
    return sum(change.path in target.inferred for change in going) > _MANY
