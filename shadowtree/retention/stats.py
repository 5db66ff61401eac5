"""The figures of `stats`: what a store holds, how much space that takes, and what `gc` would free."""

from __future__ import annotations

from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.config.settings import Settings
from shadowtree.results.reports import Stats
from shadowtree.retention.budget import plan_over
from shadowtree.retention.forget import plan_old, read_keep
from shadowtree.retention.usage import PathSizes
from shadowtree.store.walk import Walker
from shadowtree.system import disk

_LARGEST = 10
"""How many paths are listed."""


def make_no_stats(worktree: str, store: str, settings: Settings) -> Stats:
    """Return the figures of a worktree without records."""
    return Stats(worktree, store, 0, settings.store_budget or None, 0, 0, 0, 0, None, None, 0, 0, 0, 0, 0)


def read_stats(opened: OpenStore, site: Site) -> Stats:
    """Return what the store holds and how much space that takes. Looks up every object that is needed."""
    opened.refresh()
    journal, layout = opened.journal, opened.layout
    old = plan_old(opened, read_keep(site.settings), most_sessions=site.settings.max_sessions)
    going = set(plan_over(opened, site.settings, old).trees)
    records = list(journal.live_trees())
    sizes = PathSizes(opened.objects)
    sizes.add(record for record in reversed(records) if record.number not in going)
    walker = Walker(opened.objects)
    walker.walk_refs(layout.store)
    sizes.add_others(walker.reached)
    needed = sizes.total
    sizes.add(record for record in reversed(records) if record.number in going)
    packs, object_bytes = opened.objects.stored_bytes()
    times = journal.retention.find_times()
    return Stats(
        worktree=site.worktree,
        store=layout.store,
        store_bytes=opened.measure(),
        budget_bytes=site.settings.store_budget or None,
        messages=sum(journal.retention.count_messages().values()),
        sessions=len(journal.live_sessions()),
        trees=len(records),
        pins=len(journal.pins()),
        oldest_ms=None if times is None else times[0],
        newest_ms=None if times is None else times[1],
        packs=packs,
        object_bytes=object_bytes,
        timeline_bytes=journal.measure(),
        cache_bytes=disk.size_if_there(layout.cache),
        free_bytes=max(0, object_bytes - needed),
        largest=sizes.list_largest(_LARGEST),
    )
