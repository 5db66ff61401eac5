"""Plan and do acts by the way into a store: lock it, act, then say what was recovered before and freed after.

What acts need is imported only here and now: recording does without it.
"""

from __future__ import annotations

from shadowtree.access.access import Access
from shadowtree.base.frozen import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.interrupts import Cancellation
    from shadowtree.results.outcomes import Outcome, Plan
    from shadowtree.revert.requests import Options, Request


def plan_act(access: Access, session: str, request: Request, options: Options) -> Plan:
    """Work out what an act would do, and change nothing."""
    from shadowtree.revert.act import preview
    from shadowtree.revert.outcome import plan_nothing

    return access.read_or(plan_nothing(request), preview, session, request, options, access.now_ms)


def do_act(
    access: Access, session: str, request: Request, options: Options, cancellation: Cancellation
) -> Outcome:
    """Do an act, or plan it; add what was recovered before it and freed after it."""
    if options.dry_run or access.lacks_store:
        planned = plan_act(access, session, request, options)
        return replace(planned.outcome, dry_run=options.dry_run)
    from shadowtree.revert.act import run, start_act

    known, now_ms = len(access.recovered), access.now_ms
    with access.writing() as (opened, site, _):
        done = run(start_act(opened, site, session, request, options, now_ms, cancellation))
    notes = [*done.notes, *access.recovered[known:], *access.keep_budget()]
    return replace(done, back=access.complete(done.back), notes=notes)
