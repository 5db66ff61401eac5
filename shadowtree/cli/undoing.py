"""Take back all that a run changed, also if its command recorded messages of its own in the same session.

The first message since the run began that is in force is reverted, and so all later ones. What came after the
last of them is recorded before; what is different all the same is named in the outcome.
"""

from __future__ import annotations

import shadowtree
from shadowtree.frozen import replace

_REASON = "it changed during the run, and no message of this session says so"


def undo_message(shadow: shadowtree.Shadow, name: str) -> shadowtree.Outcome:
    """Take back a message and the later ones; nobody is asked whether much may be deleted."""
    return shadow.revert(name, confirm=lambda plan: True)


def undo_all(shadow: shadowtree.Shadow, run: shadowtree.Message, rest_id: str) -> shadowtree.Outcome:
    """Take back all that changed since the message of a run began, which the command itself ended.

    `rest_id` is for the message that what came last is recorded as, if there is any.
    """
    _record_rest(shadow, run, rest_id)
    outcome = undo_message(shadow, _find_first(shadow, run))
    return _name_left(outcome, shadow, run)


def _record_rest(shadow: shadowtree.Shadow, run: shadowtree.Message, rest_id: str) -> None:
    """Record what no message holds because it came last; an open one holds it."""
    status = shadow.status()
    if status.open is None and status.changed:
        shadow.snapshot(rest_id, text=f"what the run of {run.id} did after its last message", inferred=True)


def _find_first(shadow: shadowtree.Shadow, run: shadowtree.Message) -> str:
    """Name the first message since the run began that is in force; the run's own if none is."""
    (last,) = shadow.messages(last=1)
    since = shadow.messages(last=last.number - run.number + 1)
    in_force = (
        message.id
        for message in since
        if message.number >= run.number and message.state in ("open", "active") and not message.is_out
    )
    return next(in_force, run.id)


def _name_left(
    outcome: shadowtree.Outcome, shadow: shadowtree.Shadow, run: shadowtree.Message
) -> shadowtree.Outcome:
    """List as skipped what is still not as it was before the run."""
    if run.before is None:
        return replace(outcome, complete=False)
    known = {skipped.path for skipped in outcome.skipped}
    paths = (changed.path for changed in shadow.patch(run.before).files)
    left = [shadowtree.Skipped(path, _REASON) for path in paths if path not in known]
    if not left:
        return outcome
    return replace(outcome, complete=False, skipped=[*outcome.skipped, *left])
