"""What a store takes: in all, by path, and by session. Read without the lock."""

from __future__ import annotations

from shadowtree.base.errors import UnknownName
from shadowtree.base.paths import RelPath, to_text
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.results.reports import SessionFigure, Stats, Usage
from shadowtree.retention.budget import plan_over
from shadowtree.retention.forget import plan_old, read_keep
from shadowtree.retention.usage import Claimant, PathSizes, measure_claims
from shadowtree.system import disk

_LARGEST = 10
"""How many paths the figures of a store name."""


def read_stats(opened: OpenStore, site: Site) -> Stats:
    """Say what the store holds and what that takes. Every object that is needed is looked up."""
    opened.refresh()
    journal, layout = opened.journal, opened.layout
    old = plan_old(opened, read_keep(site.settings), ())
    going = set(plan_over(opened, site.settings, old).trees)
    records = list(journal.live_trees())
    sizes = PathSizes(opened.objects)
    sizes.add(record for record in reversed(records) if record.number not in going)
    needed = sizes.total
    sizes.add(record for record in reversed(records) if record.number in going)
    packs, object_bytes = opened.objects.stored_bytes()
    times = journal.find_times()
    return Stats(
        worktree=site.worktree,
        store=layout.store,
        store_bytes=opened.measure(),
        budget_bytes=site.settings.store_budget or None,
        messages=sum(journal.count_messages().values()),
        sessions=len(journal.session_names()),
        trees=len(records),
        pins=len(journal.retention.pins()),
        oldest_ms=None if times is None else times[0],
        newest_ms=None if times is None else times[1],
        packs=packs,
        object_bytes=object_bytes,
        timeline_bytes=journal.measure(),
        cache_bytes=disk.size_if_there(layout.cache),
        free_bytes=max(0, object_bytes - needed),
        largest=sizes.list_largest(_LARGEST),
    )


def read_usage(opened: OpenStore, site: Site, top: RelPath, depth: int) -> Usage:
    """Say what all versions of a path take, and of the paths below it."""
    opened.refresh()
    sizes = PathSizes(opened.objects)
    sizes.add(reversed(list(opened.journal.live_trees())))
    usage = sizes.summarise(top, depth)
    if usage is None:
        raise UnknownName(to_text(top), f"nothing is stored of {to_text(top)!r}")
    return usage


def read_session_sizes(opened: OpenStore, site: Site) -> list[SessionFigure]:
    """Say what each session alone needs, the most first; what several need is in none of them."""
    opened.refresh()
    journal = opened.journal
    sessions, records = journal.sessions_of_trees(), list(journal.live_trees())
    claimants = [frozenset[Claimant](sessions.get(record.number, {None})) for record in records]
    if claimants:
        # The last tree stays whatever is forgotten.
        claimants[-1] = frozenset()
    sums = measure_claims(opened.objects, zip(records, claimants, strict=True))
    messages, names = journal.count_messages(), journal.session_names()
    figures = [
        SessionFigure(name, sums.get(number, 0), messages.get(number, 0)) for number, name in names.items()
    ]
    if None in sums:
        figures.append(SessionFigure(None, sums[None], 0))
    return sorted(figures, key=lambda figure: (-figure.bytes, figure.session or ""))
