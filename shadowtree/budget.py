"""Keep stores within their budgets: forget the oldest messages first, then free what only they needed.

A budget is looked at after every record, by what is known already: the sizes of packs, of the timeline and of
the cache; and when somebody asks for it. Who is over it forgets until what is left fits into four fifths of
it, so that this is seldom. The newest turns are never forgotten: if they alone do not fit, the next snapshot
is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from shadowtree.errors import OverBudget, describe_size
from shadowtree.events import TreeRecord
from shadowtree.forgetting import Forgetting, find_needed, forget, plan_forgetting, read_remaining
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.retention import Choice, Remaining, choose_up_to, join_choices, rank_trees
from shadowtree.rows import BEYOND
from shadowtree.settings import Settings
from shadowtree.sweeping import Sweep, sweep
from shadowtree.usage import PathSizes

SHARE = 0.8
"""How much of a budget is left in use by forgetting; from there on `status` warns."""
_PACKED = 1.2
"""Packs that take less than so much more than what is live in them are as good as swept."""
_TOLD = 3
"""How many of the largest paths are told."""


class Relief:
    """What was forgotten and freed for budgets, and what is told of that. It grows on the way."""

    def __init__(self) -> None:
        self.forgotten: list[Forgetting] = []
        self.lines: list[str] = []
        """What was forgotten in the own store, a line each."""
        self.told: list[str] = []
        """What else is to be told."""
        self.removed = 0
        """How many objects are gone."""
        self.freed = 0
        """How many bytes."""

    def add(self, forgotten: Forgetting, why: str) -> None:
        """Note what was forgotten, if anything was, and why."""
        if not forgotten.is_nothing:
            self.forgotten.append(forgotten)
            self.lines.append(f"{count_forgotten(forgotten)} forgotten{why}")


def is_over(opened: OpenStore, settings: Settings) -> bool:
    """Tell whether a store takes more than its budget; 0: it may take anything."""
    return settings.store_budget > 0 and opened.exceeds(settings.store_budget)


def refuse_over(opened: OpenStore, settings: Settings, now_ms: int) -> list[str]:
    """Refuse to record more in a store whose newest turns alone are over its budget, and say what they are.

    All that can be freed is before that, and only then the oldest is forgotten, which is told in a line.
    """
    sizes = PathSizes(opened.objects)
    sizes.add(reversed(list(opened.journal.live_trees())))
    # Who is refused again and again does not wait for a sweep that finds nothing.
    if opened.journal.fresh_packs() or opened.measure_packs() > sizes.packed * _PACKED:
        sweep(opened)
    relief = Relief()
    forget_over(opened, settings, now_ms, relief)
    if relief.forgotten:
        sweep(opened)
    if is_over(opened, settings):
        largest = [(figure.path, figure.bytes) for figure in sizes.list_largest(_TOLD)]
        raise OverBudget(opened.layout.store, opened.measure(), settings.store_budget, largest)
    return relief.lines


def can_forget(opened: OpenStore, settings: Settings) -> bool:
    """Tell whether there is anything that a budget may take away."""
    journal = opened.journal
    turns = max(1, settings.keep_turns)
    return not choose_up_to(read_remaining(journal), turns, journal.named_trees(), BEYOND).is_nothing


def forget_over(opened: OpenStore, settings: Settings, now_ms: int, relief: Relief) -> None:
    """Forget what the budget of a store has no room for."""
    if is_over(opened, settings):
        used = opened.measure()
        done = forget_to_fit(opened, int(settings.store_budget * SHARE), settings, now_ms)
        relief.add(done, f": the store took {compare(used, settings.store_budget)}")


def forget_to_fit(opened: OpenStore, limit: int, settings: Settings, now_ms: int) -> Forgetting:
    """Forget the oldest until what is left fits into `limit` bytes, as far as that may be.

    Only where it can be freed afterwards; else raise, and all is as it was.
    """
    journal = opened.journal
    beside = opened.measure() - opened.measure_packs()
    choice = choose_to_fit(opened, read_remaining(journal), max(1, settings.keep_turns), limit - beside)
    planned = plan_forgetting(journal, opened.objects, choice)
    if not planned.is_nothing:
        Sweep().prove(opened, planned.trees)
        forget(journal, planned, now_ms)
    return planned


def plan_over(opened: OpenStore, settings: Settings, planned: Forgetting) -> Forgetting:
    """Add to what is planned what the budget would have no room for, once that is forgotten and freed."""
    if not is_over(opened, settings):
        return planned
    journal = opened.journal
    # What waits in the timeline goes into packs.
    waiting = sum(len(content.pack) + len(content.index) for content in journal.read_packs())
    beside = opened.measure() - opened.measure_packs() - waiting
    sizes = PathSizes(opened.objects)
    sizes.add(record for record in journal.live_trees() if record.number not in planned.trees)
    if beside + sizes.packed <= settings.store_budget:
        return planned
    turns, limit = max(1, settings.keep_turns), int(settings.store_budget * SHARE)
    choice = choose_to_fit(opened, read_remaining(journal), turns, limit - beside, going=planned.trees)
    if choice.is_nothing:
        return planned
    return plan_forgetting(journal, opened.objects, join_choices(planned.choice, choice))


def choose_to_fit(
    opened: OpenStore, remaining: Remaining, turns: int, limit: int, *, going: Collection[int] = ()
) -> Choice:
    """Choose so much that what is left fits into packs of `limit` bytes, indexes included, oldest first.

    Trees that are `going`, by their numbers, are not counted.
    """
    journal, objects = opened.journal, opened.objects
    named = journal.named_trees()
    most = choose_up_to(remaining, turns, named, BEYOND)
    if most.is_nothing:
        return most
    needed = find_needed(journal, objects, most)
    newest_first = [record for record in journal.live_trees() if record.number not in going][::-1]
    fixed = [record for record in newest_first if record.number in needed]
    rest = [record for record in newest_first if record.number not in needed]
    ranks = rank_trees(named)
    rest.sort(key=lambda record: -ranks.get(record.number, record.number))
    total = 0
    for record, weight in zip([*fixed, *rest], weigh(objects, [*fixed, *rest]), strict=True):
        total += weight
        if total > limit and record.number not in needed:
            return choose_up_to(remaining, turns, named, ranks.get(record.number, record.number))
    return Choice([], [], [])


def weigh(objects: Objects, records: Iterable[TreeRecord]) -> Iterator[int]:
    """For each record in turn, tell how many bytes of packs and indexes it needs that none before it did."""
    sizes = PathSizes(objects)
    for record in records:
        before = sizes.packed
        sizes.add([record])
        yield sizes.packed - before


# What is told


def count_forgotten(done: Forgetting) -> str:
    """Say how many messages were forgotten."""
    return f"{_count_oldest(len(done.messages))} {'was' if len(done.messages) == 1 else 'were'}"


def tell_foreseen(count: int, opened: OpenStore, settings: Settings) -> str:
    """Say how many messages a budget would take away."""
    compared = compare(opened.measure(), settings.store_budget)
    return f"{_count_oldest(count)} would be forgotten: the store takes {compared}"


def tell_still_over(opened: OpenStore, settings: Settings) -> list[str]:
    """Say so if a store is over its budget, though all was forgotten that may be."""
    if not is_over(opened, settings):
        return []
    compared = compare(opened.measure(), settings.store_budget)
    return [f"nothing else may be forgotten, and the store takes {compared}"]


def _count_oldest(count: int) -> str:
    return f"the oldest {count:,} messages" if count != 1 else "the oldest message"


def compare(used: int, budget: int) -> str:
    """Say how much is used, and how much may be."""
    return f"{describe_size(used)}, and the budget is {describe_size(budget)}"


def warn_near(what: str, used: int, budget: int) -> list[str]:
    """Warn of a budget of which four fifths are used up."""
    if not budget or used <= budget * SHARE:
        return []
    share = f"{100 * used // budget} %"
    return [f"{what} {describe_size(used)}, {share} of the budget of {describe_size(budget)}"]
