"""Plan acts, and carry them out under the lock, once the user has confirmed them if that is needed."""

from __future__ import annotations

from shadowtree.access.access import Access
from shadowtree.base.arguments import is_agreed
from shadowtree.base.errors import NotConfirmed
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.results.outcomes import Outcome, Plan
from shadowtree.revert.act import plan_nothing, preview, run
from shadowtree.revert.requests import Options, Request


def plan(access: Access, session: str, request: Request, options: Options) -> Plan:
    """Return what an act would do, without changing anything and without the lock."""
    return access.read_or(plan_nothing(request), preview, session, request, options, access.now_ms)


def act(
    access: Access, session: str, request: Request, options: Options, cancellation: Cancellation
) -> Outcome:
    """Carry out an act; with `dry_run`, or where nothing is recorded, only plan it."""
    if options.dry_run or access.lacks_store:
        return replace(plan(access, session, request, options).outcome, dry_run=options.dry_run)
    known = len(access.recovered)
    try:
        return _carry_out(access, session, request, options, cancellation, known)
    except NotConfirmed as error:
        # Nothing is locked while the user thinks, so the plan may be outdated after that.
        if options.confirm is None or not is_agreed(options.confirm, error.plan):
            raise
        confirmed = replace(options, confirm=None, expect=error.plan.id)
        return _carry_out(access, session, request, confirmed, cancellation, known)


def _carry_out(
    access: Access, session: str, request: Request, options: Options, cancellation: Cancellation, known: int
) -> Outcome:
    """Lock the store and act; add notes about the budget, and about what was recovered after the `known`."""
    now_ms = access.now_ms
    with access.writing() as (opened, site, _):
        done = run(opened, site, session, request, options, now_ms, cancellation)
    notes = [*done.notes, *access.recovered[known:], *access.keep_budget()]
    return replace(done, back=access.add_store_option(done.back), notes=notes)
