"""What recorded trees take in a store: by path, and by who needs them.

Every object counts once, with the bytes that it has in its pack, at the path where the newest tree has it.
What several trees share is walked once: the cost is that of what is stored, not of trees times files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shadowtree.events import TreeRecord
from shadowtree.figures import PathFigure, Usage
from shadowtree.gitformat import EMPTY_TREE, MODE_TREE, parse_keeper
from shadowtree.objects import Objects
from shadowtree.paths import ROOT, RelPath, join, to_text

Claimant = int | None
"""Who needs a tree: a session by its number; None: no session does."""
_INDEX_ENTRY = 28
"""How many bytes an object has in the index of its pack."""
_SHARED = -1
"""Stands for more than one claimant."""


class PathSizes:
    """The bytes and the number of the versions of each path."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._seen: set[bytes] = set()
        self._files: dict[RelPath, tuple[int, int]] = {}
        self._listings: dict[RelPath, tuple[int, int]] = {}
        """Of directories: the git trees themselves."""
        self.total = 0
        """All of it together, with what facts and keepers take."""

    @property
    def packed(self) -> int:
        """How many bytes packs of all of it have, with their indexes: much of that if objects are tiny."""
        return self.total + _INDEX_ENTRY * len(self._seen)

    def add(self, records: Iterable[TreeRecord]) -> None:
        """Weigh all that recorded trees need; what several need counts where the first one has it."""
        for record in records:
            kept = _read_kept(self._objects, record)
            for each in (record.keeper, kept):
                if self._is_new(each):
                    self.total += _weigh(self._objects, each)
            for entry in self._objects.read_tree(kept):
                if self._is_new(entry.id):
                    self._add_tree(entry.id, is_beside=entry.name != b"files")

    def _is_new(self, wanted: bytes) -> bool:
        if wanted in self._seen:
            return False
        self._seen.add(wanted)
        return True

    def _add_tree(self, root: bytes, *, is_beside: bool) -> None:
        waiting = [(ROOT, root)]
        while waiting:
            path, tree = waiting.pop()
            self._add(self._listings, path, tree, is_beside)
            for entry in self._objects.read_tree(tree):
                if not self._is_new(entry.id):
                    continue
                if entry.mode == MODE_TREE:
                    waiting.append((join(path, entry.name), entry.id))
                else:
                    self._add(self._files, join(path, entry.name), entry.id, is_beside)

    def _add(
        self, figures: dict[RelPath, tuple[int, int]], path: RelPath, wanted: bytes, is_beside: bool
    ) -> None:
        size = _weigh(self._objects, wanted)
        self.total += size
        if not is_beside:
            before, versions = figures.get(path, (0, 0))
            figures[path] = before + size, versions + 1

    def list_largest(self, count: int) -> list[PathFigure]:
        """Give the files and listings that take most."""
        figures = [PathFigure(to_text(path), *figure) for path, figure in self._files.items()]
        figures += [PathFigure(_name(path), *figure) for path, figure in self._listings.items()]
        return sorted(figures, key=_by_size)[:count]

    def summarise(self, path: RelPath, depth: int) -> Usage | None:
        """Sum up what is at a path and below it, down to so many levels; None: nothing is."""
        sums: dict[tuple[RelPath, bool], list[int]] = {}
        for is_file, figures in ((True, self._files), (False, self._listings)):
            for each, (size, versions) in figures.items():
                for above in _places(each, path, depth, is_file=is_file):
                    found = sums.setdefault(above, [0, 0])
                    found[0] += size
                    found[1] += versions
        itself = [sums.pop((path, is_file)) for is_file in (True, False) if (path, is_file) in sums]
        if not itself:
            return None
        entries = [
            PathFigure(to_text(each) if is_file else _name(each), *figure)
            for (each, is_file), figure in sums.items()
        ]
        bytes_, versions = map(sum, zip(*itself, strict=True))
        return Usage(to_text(path) or ".", bytes_, versions, sorted(entries, key=_by_size))


def measure_claims(
    objects: Objects, owned: Iterable[tuple[TreeRecord, frozenset[Claimant]]]
) -> dict[Claimant, int]:
    """Weigh for each claimant what it alone needs.

    Each object gets the claimant of the first tree that has it, and a second one makes it shared, together
    with all below it. So a tree is read twice at most, however many others have it.
    """
    claimant_of: dict[bytes, Claimant] = {}
    for record, claimants in owned:
        claimant = next(iter(claimants)) if len(claimants) == 1 else _SHARED
        waiting = [_read_kept(objects, record)]
        claimant_of[record.keeper] = claimant
        while waiting:
            tree = waiting.pop()
            if not _claim(claimant_of, tree, claimant):
                continue
            for entry in objects.read_tree(tree):
                if entry.mode == MODE_TREE:
                    waiting.append(entry.id)
                else:
                    _claim(claimant_of, entry.id, claimant)
    sums: dict[Claimant, int] = {}
    for each, claimant in claimant_of.items():
        if claimant != _SHARED:
            sums[claimant] = sums.get(claimant, 0) + _weigh(objects, each)
    return sums


def _claim(claimant_of: dict[bytes, Claimant], wanted: bytes, claimant: Claimant) -> bool:
    """Note who needs an object; tell whether that is news."""
    if wanted not in claimant_of:
        claimant_of[wanted] = claimant
        return True
    if claimant_of[wanted] in (claimant, _SHARED):
        return False
    claimant_of[wanted] = _SHARED
    return True


def _weigh(objects: Objects, wanted: bytes) -> int:
    return 0 if wanted == EMPTY_TREE else objects.stored_size(wanted)


def _read_kept(objects: Objects, record: TreeRecord) -> bytes:
    """Give the tree of a keeper: of files, facts, and what else is kept with them."""
    return parse_keeper(objects.read(b"commit", record.keeper)).tree


def _places(path: RelPath, top: RelPath, depth: int, *, is_file: bool) -> Iterator[tuple[RelPath, bool]]:
    """Name what a path counts for: itself and the directories above it, from `top` down to `depth`."""
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


def _name(directory: RelPath) -> str:
    return to_text(directory) + "/" if directory else "."


def _by_size(figure: PathFigure) -> tuple[int, str]:
    return -figure.bytes, figure.path
