"""Keep a store within its budget: forget the oldest messages, and free what only they needed.

After every record, the budget is compared with sizes that are known already: those of packs, timeline and
cache. A store over its budget forgets until the rest fits into four fifths of it, so that this happens
rarely. The newest turns are never forgotten: if they alone do not fit, each record warns.
"""

from __future__ import annotations

from collections.abc import Collection

from shadowtree.base.arguments import refuse_unknown
from shadowtree.base.errors import InvalidInput, ShadowError, StoreFailed, describe_size
from shadowtree.base.frozen import replace
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore, measure_files
from shadowtree.config.settings import Settings
from shadowtree.results.reports import Forgotten
from shadowtree.retention.forget import (
    Forgetting,
    find_needed,
    forget,
    plan_forgetting,
    plan_old,
    read_keep,
    read_remaining,
)
from shadowtree.retention.gc import Locked, Sweep
from shadowtree.retention.policy import Choice, choose_up_to, join_choices, rank_trees
from shadowtree.retention.usage import PathSizes
from shadowtree.store import directory as stores
from shadowtree.store.directory import StoreLayout
from shadowtree.timeline.sqlite.database import BEYOND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.retention.forget import ForgetOptions

SHARE = 0.8
"""The share of a budget that may be in use after forgetting; above it, `status` warns."""


def keep_budget(locked: Locked, settings: Settings) -> list[str]:
    """Bring a store within its budget: free, and if that is not enough, forget; return warnings.

    It runs after a record, which stays recorded whatever fails here (invariant 11).
    """
    warnings: list[str] = []
    try:
        _fit_budget(locked, settings, Forgotten([], 0, 0, 0, False), warnings)
    except ShadowError as error:
        what = "what was forgotten has not been freed yet"
        if not warnings:
            what = "the store could not be kept within its budget"
        warnings.append(f"{what}: {error}")
    return warnings


def apply_retention(
    locked: Locked,
    settings: Settings,
    session: str | None,
    how: ForgetOptions,
    *,
    is_empty: bool = False,
) -> Forgotten:
    """Forget what is not kept, of one session or of all.

    If no session and no option says what to keep, the limits on sessions and the budget apply too.
    """
    refuse_unknown(how, "keep_last", "keep_within", "keep_sessions", "dry_run", "gc")
    keep_last, keep_within = how.get("keep_last"), how.get("keep_within")
    keep_sessions, keep = how.get("keep_sessions", ()), read_keep(settings, keep_last, keep_within)
    frees, dry_run, sweep = how.get("gc", True), how.get("dry_run"), Sweep()
    if keep_sessions and session is not None:
        raise InvalidInput("keep_sessions requires all_sessions")
    if is_empty:
        return Forgotten([], 0, 0, 0, bool(dry_run))
    is_plain = session is None and not keep_sessions and keep_last is None and keep_within is None
    budget = settings if frees and is_plain else None
    most = settings.max_sessions if is_plain else 0
    with locked() as opened:
        planned = plan_old(opened, keep, session, keep_sessions, most_sessions=most)
        if dry_run:
            return _foresee(opened, planned, budget)
        if not planned.is_nothing:
            forget(opened, planned, sweep if frees else None)
    if frees:
        sweep.run(locked)
    done = Forgotten(planned.messages, len(planned.trees), sweep.removed, sweep.freed, False)
    return done if budget is None else _fit_budget(locked, budget, done, [], is_asked=True)


def _foresee(opened: OpenStore, old: Forgetting, budget: Settings | None) -> Forgotten:
    """Return what would be forgotten: what is old, and then what would still exceed the budget."""
    planned = old if budget is None else plan_over(opened, budget, old)
    warnings = []
    if budget is not None and planned is not old:
        oldest = _count_oldest(len(planned.messages) - len(old.messages))
        compared = _compare(opened.measure(), budget.store_budget)
        warnings = [f"{oldest} would be forgotten: the store uses {compared}"]
    return Forgotten(planned.messages, len(planned.trees), 0, 0, True, warnings)


def _fit_budget(
    locked: Locked, settings: Settings, done: Forgotten, warnings: list[str], *, is_asked: bool = False
) -> Forgotten:
    """If the store is over its budget: free, then forget and free again. Adds to `warnings` as it goes.

    If nothing may be forgotten, it frees only if `is_asked`: an earlier, brief sweep may have left something.
    """
    sweep, last_sweep, planned = Sweep(), Sweep(), None
    with locked() as opened:
        may_help = is_over(opened, settings) and (
            is_asked or not _choose_up_to(opened, settings, BEYOND).is_nothing
        )
    if may_help:
        sweep.run(locked)
        with locked() as opened:
            if is_over(opened, settings):
                planned = _forget_oldest(opened, settings, last_sweep, warnings)
        if planned is not None:
            last_sweep.run(locked)
    with locked() as opened:
        if is_over(opened, settings):
            compared = _compare(opened.measure(), settings.store_budget)
            warnings.append(f"the store uses {compared}, and nothing else can be forgotten")
    if planned is not None:
        messages, trees = [*done.messages, *planned.messages], done.trees + len(planned.trees)
        done = replace(done, messages=messages, trees=trees)
    removed, freed = sweep.removed + last_sweep.removed, sweep.freed + last_sweep.freed
    return replace(done, removed=done.removed + removed, freed=done.freed + freed, warnings=warnings)


def _forget_oldest(
    opened: OpenStore, settings: Settings, sweep: Sweep, warnings: list[str]
) -> Forgetting | None:
    """Forget what exceeds the budget, if a sweep can free it; otherwise raise and change nothing."""
    used = opened.measure()
    choice = _choose_to_fit(opened, settings, used - opened.measure_packs())
    planned = plan_forgetting(opened.journal, choice)
    if planned.is_nothing:
        return None
    forget(opened, planned, sweep)
    count = len(planned.messages)
    oldest = f"{_count_oldest(count)} {'was' if count == 1 else 'were'} forgotten"
    warnings.append(f"{oldest}: the store used {_compare(used, settings.store_budget)}")
    return planned


# What exceeds a budget


def is_over(opened: OpenStore, settings: Settings) -> bool:
    """Return whether a store takes more than its budget; a budget of 0 sets no limit."""
    return settings.store_budget > 0 and opened.exceeds(settings.store_budget)


def plan_over(opened: OpenStore, settings: Settings, planned: Forgetting) -> Forgetting:
    """Add to a plan what would still exceed the budget once the plan is carried out."""
    if not is_over(opened, settings):
        return planned
    journal = opened.journal
    # Journaled packs are part of the timeline, but their objects are counted in `sizes`.
    waiting = sum(len(content.pack) + len(content.index) for content in journal.packs.read_all())
    beside = opened.measure() - opened.measure_packs() - waiting
    sizes = PathSizes(opened.objects)
    sizes.add(record for record in journal.live_trees() if record.number not in planned.trees)
    if beside + sizes.packed <= settings.store_budget:
        return planned
    choice = _choose_to_fit(opened, settings, beside, going=planned.trees)
    if choice.is_nothing:
        return planned
    return plan_forgetting(journal, join_choices(planned.choice, choice), planned.sessions)


def _choose_up_to(opened: OpenStore, settings: Settings, last: int) -> Choice:
    """Choose whatever may be forgotten and began while no tree newer than `last` was recorded."""
    journal = opened.journal
    named = journal.retention.named_trees()
    return choose_up_to(read_remaining(journal), max(1, settings.keep_turns), named, last)


def _choose_to_fit(
    opened: OpenStore, settings: Settings, beside: int, *, going: Collection[int] = ()
) -> Choice:
    """Choose the oldest, until packs of the rest, and `beside` more bytes, fit into a share of the budget.

    Trees in `going`, by number, are not counted.
    """
    most = _choose_up_to(opened, settings, BEYOND)
    if most.is_nothing:
        return most
    journal = opened.journal
    needed = find_needed(journal, most)
    ranks = rank_trees(journal.retention.named_trees())
    newest_first = [record for record in journal.live_trees() if record.number not in going][::-1]
    fixed = [record for record in newest_first if record.number in needed]
    rest = [record for record in newest_first if record.number not in needed]
    rest.sort(key=lambda record: -ranks.get(record.number, record.number))
    sizes, room = PathSizes(opened.objects), int(settings.store_budget * SHARE) - beside
    sizes.add(fixed)
    for record in rest:
        sizes.add([record])
        if sizes.packed > room:
            return _choose_up_to(opened, settings, ranks.get(record.number, record.number))
    return Choice([], [], [])


# Warnings


def warn_budgets(opened: OpenStore, site: Site, directory: str | None) -> list[str]:
    """Warn if four fifths of the store's budget are used, or if all stores together are over theirs."""
    settings, warnings = site.settings, []
    used, budget = opened.measure(), settings.store_budget
    if budget and used > budget * SHARE:
        share = f"{100 * used // budget}% of its {describe_size(budget)} budget"
        warnings.append(f"the store uses {describe_size(used)}, {share}")
    if directory is not None and settings.total_budget:
        try:
            used = sum(measure_files(StoreLayout(store)) for store in stores.list_all(directory))
            if used > settings.total_budget:
                warnings.append(f"all stores together use {_compare(used, settings.total_budget)}")
        except StoreFailed as error:
            warnings.append(f"the size of all stores together is unknown: {error}")
    return warnings


def _count_oldest(count: int) -> str:
    return f"the oldest {count:,} messages" if count != 1 else "the oldest message"


def _compare(used: int, budget: int) -> str:
    return f"{describe_size(used)}, over the {describe_size(budget)} budget"
