"""What recorded trees take in a store: by path, and by who needs them. Read without the lock.

Every object counts once, with the bytes that it has in its pack, at the path where the newest tree has it.
What several trees share is walked once: the cost is that of what is stored, not of trees times files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shadowtree.base.errors import UnknownName
from shadowtree.base.paths import ROOT, RelPath, join, to_text
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.results.reports import PathFigure, SessionFigure, Usage
from shadowtree.store.git_format import EMPTY_TREE, TREE_MODE
from shadowtree.store.objects import Objects
from shadowtree.store.walk import Walker
from shadowtree.timeline.schema import TreeRecord

Claimant = int | None
"""Who needs a tree: a session by its number; None: no session does."""
_Place = tuple[RelPath, bool]
"""A path, and whether a file or link was there; else a directory, of which the listing counts."""
_INDEX_ENTRY = 28
"""How many bytes an object has in the index of its pack."""
_SHARED = -1
"""Stands for more than one claimant."""


def read_usage(opened: OpenStore, site: Site, top: RelPath, depth: int) -> Usage:
    """Say what all versions of a path take, and of the paths below it."""
    opened.refresh()
    sizes = PathSizes(opened.objects)
    sizes.add(reversed(list(opened.journal.live_trees())))
    usage = sizes.summarise(top, depth)
    if usage is None:
        raise UnknownName(to_text(top), f"nothing is recorded for {to_text(top)!r}")
    return usage


def make_no_usage(top: RelPath) -> Usage | None:
    """Return what the worktree takes of which nothing is recorded; None: no path below it can be known."""
    return Usage(".", 0, 0, []) if top == ROOT else None


def read_session_sizes(opened: OpenStore, site: Site) -> list[SessionFigure]:
    """Say what each session alone needs, the most first; what several need is in none of them."""
    opened.refresh()
    journal = opened.journal
    sessions, records = journal.retention.sessions_of_trees(), journal.live_trees()
    claimants = [sessions.get(record.number, {None}) for record in records]
    if claimants:
        # The last tree stays whatever is forgotten.
        claimants[-1] = set()
    sums = measure_claims(opened.objects, zip(records, claimants, strict=True))
    messages, names = journal.retention.count_messages(), journal.live_sessions()
    figures = [
        SessionFigure(name, sums.get(number, 0), messages.get(number, 0)) for number, name in names.items()
    ]
    if None in sums:
        figures.append(SessionFigure(None, sums[None], 0))
    return sorted(figures, key=lambda figure: (-figure.bytes, figure.session or ""))


class PathSizes:
    """The bytes and the number of the versions of each path."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._walker = Walker(objects)
        self._figures: dict[_Place, tuple[int, int]] = {}
        self.total = 0
        """All of it together, with what facts take."""

    @property
    def packed(self) -> int:
        """How many bytes packs of all of it have, with their indexes: much of that if objects are tiny."""
        return self.total + _INDEX_ENTRY * len(self._walker.reached)

    def add(self, records: Iterable[TreeRecord]) -> None:
        """Weigh all that recorded trees need; what several need counts where the first one has it."""
        for record in records:
            for path, tree, rows in self._walker.walk(record.tree):
                self._count(tree, (path, False))
                for mode, name, id in rows:
                    if mode != TREE_MODE and self._walker.is_new(id):
                        self._count(id, (join(path, name), True))
            for _, tree, rows in self._walker.walk(record.facts):
                self._count(tree)
                self.add_others(id for mode, _, id in rows if mode != TREE_MODE)
            self.add_others(record.blobs_beside)

    def add_others(self, ids: Iterable[bytes]) -> None:
        """Weigh objects that are needed though no tree has them."""
        for id in filter(self._walker.is_new, ids):
            self._count(id)

    def _count(self, id: bytes, place: _Place | None = None) -> None:
        """Count an object, and a version of its place if it has one."""
        size = _weigh(self._objects, id)
        self.total += size
        if place is not None:
            before, versions = self._figures.get(place, (0, 0))
            self._figures[place] = before + size, versions + 1

    def list_largest(self, count: int) -> list[PathFigure]:
        """List the files and listings that take most."""
        return _list_figures(self._figures)[:count]

    def summarise(self, path: RelPath, depth: int) -> Usage | None:
        """Sum up what is at a path and below it, down to so many levels; None: nothing is."""
        sums: dict[_Place, tuple[int, int]] = {}
        for (each, is_file), (size, versions) in self._figures.items():
            for place in _places(each, path, depth, is_file=is_file):
                sum_, count = sums.get(place, (0, 0))
                sums[place] = sum_ + size, count + versions
        itself = [sums.pop((path, is_file)) for is_file in (True, False) if (path, is_file) in sums]
        if not itself:
            return None
        bytes_, versions = map(sum, zip(*itself, strict=True))
        return Usage(to_text(path) or ".", bytes_, versions, _list_figures(sums))


def measure_claims(
    objects: Objects, owned: Iterable[tuple[TreeRecord, set[Claimant]]]
) -> dict[Claimant, int]:
    """Weigh for each claimant what it alone needs.

    Each object gets the claimant of the first tree that has it, and a second one makes it shared, together
    with all below it. So a tree is read twice at most, however many others have it.
    """
    claimant_of: dict[bytes, Claimant] = {}
    claimant: Claimant = None

    def claim(id: bytes) -> bool:
        known = claimant_of.get(id, claimant)
        if id in claimant_of and known in (claimant, _SHARED):
            return False
        claimant_of[id] = claimant if known == claimant else _SHARED
        return True

    walker = Walker(objects, claim)
    for record, claimants in owned:
        claimant = next(iter(claimants)) if len(claimants) == 1 else _SHARED
        for root in (record.tree, record.facts):
            for id in walker.list_blobs(root):
                claim(id)
        for id in record.blobs_beside:
            claim(id)
    sums: dict[Claimant, int] = {}
    for id, owner in claimant_of.items():
        if owner != _SHARED:
            sums[owner] = sums.get(owner, 0) + _weigh(objects, id)
    return sums


def _weigh(objects: Objects, wanted: bytes) -> int:
    # The empty tree need not be stored.
    return 0 if wanted == EMPTY_TREE and not objects.is_listed(wanted) else objects.stored_size(wanted)


def _places(path: RelPath, top: RelPath, depth: int, *, is_file: bool) -> Iterator[_Place]:
    """List what a path counts for: itself and the directories above it, from `top` down to `depth`."""
    if top and path != top and not path.startswith(top + b"/"):
        return
    levels = path[len(top) :].strip(b"/").count(b"/") + 1 if path != top else 0
    if levels <= depth:
        yield path, is_file
    while path != top:
        path = RelPath(path.rpartition(b"/")[0])
        levels -= 1
        if levels <= depth:
            yield path, False


def _list_figures(figures: Mapping[_Place, tuple[int, int]]) -> list[PathFigure]:
    """List figures, the largest first; the names of directories end with a slash."""
    found = []
    for (path, is_file), figure in figures.items():
        name = to_text(path) if is_file else to_text(path) + "/" if path else "."
        found.append(PathFigure(name, *figure))
    return sorted(found, key=lambda figure: (-figure.bytes, figure.path))
