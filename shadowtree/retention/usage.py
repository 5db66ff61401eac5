"""Measure how much space recorded trees take in a store, by path and by session. Needs no lock.

Every object counts once, with its size in its pack, at the path where the newest tree has it. Subtrees that
several trees share are walked once, so the cost depends on how much is stored, not on trees times files.
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
from shadowtree.timeline.sqlite.schema import TreeRecord

Claimant = int | None
"""The number of a session that needs a tree; None if no session does."""
_Place = tuple[RelPath, bool]
"""A path, and whether it was a file or link; of a directory, only the listing counts."""
_INDEX_ENTRY = 28
"""How many bytes an object takes in the index of its pack."""
_SHARED = -1
"""Stands for more than one claimant."""


def read_usage(opened: OpenStore, site: Site, top: RelPath, depth: int) -> Usage:
    """Return how much space all versions of a path take, and of the paths below it."""
    opened.refresh()
    sizes = PathSizes(opened.objects)
    sizes.add(reversed(list(opened.journal.live_trees())))
    usage = sizes.summarise(top, depth)
    if usage is None:
        raise UnknownName(to_text(top), f"nothing is recorded for {to_text(top)!r}")
    return usage


def make_no_usage(top: RelPath) -> Usage | None:
    """Return the usage of a worktree without records; None for a path below it, which is not known."""
    return Usage(".", 0, 0, []) if top == ROOT else None


def read_session_sizes(opened: OpenStore, site: Site) -> list[SessionFigure]:
    """Return how much space each session alone needs, largest first. Shared objects count for none."""
    opened.refresh()
    journal = opened.journal
    sessions, records = journal.retention.sessions_of_trees(), journal.live_trees()
    claimants = [sessions.get(record.number, {None}) for record in records]
    if claimants:
        # The last tree stays, whatever is forgotten.
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
        """The bytes of everything together, including facts."""

    @property
    def packed(self) -> int:
        """How many bytes packs of all this take, including indexes, which matter if objects are tiny."""
        return self.total + _INDEX_ENTRY * len(self._walker.reached)

    def add(self, records: Iterable[TreeRecord]) -> None:
        """Count everything that recorded trees need; a shared object counts where the first tree has it."""
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
        """Count objects that are needed although no tree has them."""
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
        """List the files and directory listings that take the most space."""
        return _list_figures(self._figures)[:count]

    def summarise(self, path: RelPath, depth: int) -> Usage | None:
        """Sum up what is at a path and below it, down to `depth` levels; None if nothing is."""
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
    """Return how many bytes each claimant alone needs.

    Each object gets the claimant of the first tree that has it. A second claimant makes it shared, together
    with everything below it. So a tree is read at most twice, however many others have it.
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
    """List the places that a path counts for: itself and directories above it, from `top` to `depth`."""
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
