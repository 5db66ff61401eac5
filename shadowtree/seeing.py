"""What a store takes: in all, by path, and by session."""

from __future__ import annotations

import os
from time import time_ns

from shadowtree import disk
from shadowtree.arguments import parse_path
from shadowtree.errors import InvalidInput, UnknownName
from shadowtree.upkeep import Upkeep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from shadowtree.figures import SessionFigure, Stats, Usage
    from shadowtree.opened import OpenStore

    Result = TypeVar("Result")

_LARGEST = 10
"""How many paths the figures of a store name."""


class Seeing(Upkeep):
    """The figures of a shadow's store."""

    def stats(self) -> Stats:
        """Tell what the store holds, and what that takes. Every object that is needed is looked up."""
        return self._measure(self._make_stats)

    def du(self, path: str | os.PathLike[str] = ".", *, depth: int = 1) -> Usage:
        """Tell what all versions of a path take in the store, and of the paths below it down to `depth`.

        An object counts once, where the newest tree has it. A directory counts with its own listings.
        """
        if depth < 0:
            raise InvalidInput(f"a depth is a number from 0 on, not {depth}")
        top = parse_path(path, self._gate.worktree)

        def measure(opened: OpenStore) -> Usage | None:
            from shadowtree.usage import PathSizes

            sizes = PathSizes(opened.objects)
            sizes.add(reversed(list(opened.journal.live_trees())))
            return sizes.summarise(top, depth)

        usage = self._measure(measure)
        if usage is None:
            raise UnknownName(os.fspath(path), f"nothing is stored of {os.fspath(path)!r}")
        return usage

    def du_by_session(self) -> list[SessionFigure]:
        """Tell what each session alone needs, the most first; what several need is in none of them."""
        return self._measure(_measure_sessions)

    def _measure(self, measure: Callable[[OpenStore], Result]) -> Result:
        def refresh_and_measure(opened: OpenStore) -> Result:
            opened.refresh()
            return measure(opened)

        return self._look(refresh_and_measure)

    def _make_stats(self, opened: OpenStore) -> Stats:
        from shadowtree.figures import Stats
        from shadowtree.usage import PathSizes

        journal, layout = opened.journal, opened.layout
        records, going = list(journal.live_trees()), self._find_going(opened)
        sizes = PathSizes(opened.objects)
        sizes.add(record for record in reversed(records) if record.number not in going)
        needed = sizes.total
        sizes.add(record for record in reversed(records) if record.number in going)
        packs, object_bytes = opened.objects.stored_bytes()
        messages, times = journal.count_messages(), journal.find_times()
        return Stats(
            worktree=self._gate.worktree,
            store=layout.store,
            store_bytes=opened.measure(),
            budget_bytes=self.settings.store_budget or None,
            messages=sum(messages.values()),
            sessions=len(journal.session_names()),
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

    def _find_going(self, opened: OpenStore) -> set[int]:
        """Name the trees that the settings and the store's budget do not keep."""
        from shadowtree.budget import plan_over
        from shadowtree.forgetting import plan_forgetting, read_remaining
        from shadowtree.retention import choose

        choice = choose(read_remaining(opened.journal), self._read_keep(None, None), time_ns() // 1_000_000)
        planned = plan_forgetting(opened.journal, opened.objects, choice)
        return set(plan_over(opened, self.settings, planned).trees)


def _measure_sessions(opened: OpenStore) -> list[SessionFigure]:
    from shadowtree.figures import SessionFigure
    from shadowtree.usage import Claimant, measure_claims

    journal = opened.journal
    sessions, records = journal.sessions_of_trees(), list(journal.live_trees())
    claimants = [frozenset[Claimant](sessions.get(record.number, {None})) for record in records]
    if claimants:
        # The last tree stays whoever is forgotten.
        claimants[-1] = frozenset()
    sums = measure_claims(opened.objects, zip(records, claimants, strict=True))
    messages, names = journal.count_messages(), journal.session_names()
    figures = [
        SessionFigure(name, sums.get(number, 0), messages.get(number, 0)) for number, name in names.items()
    ]
    if None in sums:
        figures.append(SessionFigure(None, sums[None], 0))
    return sorted(figures, key=lambda figure: (-figure.bytes, figure.session or ""))
