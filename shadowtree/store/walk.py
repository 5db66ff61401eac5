"""The walker: what recorded trees hold, each tree read once, however many share it.

Everything that needs to know what is in a store uses it: gc, check and repair, purge, stats and du.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import inf
from time import monotonic

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import ROOT, RelPath, join
from shadowtree.store.git_format import EMPTY_TREE, TREE_MODE, TreeRow, list_tree
from shadowtree.store.objects import Objects

_NAMED = re.compile(rb"(?:tree|parent|object) ([0-9a-f]{40})\n")


class Walker:
    """Walks trees, and collects what is reached; StoreDamaged if one is missing or damaged.

    `walk` and `list_blobs` ask `enters` whether to walk a tree; usually they do when they first meet it.
    """

    def __init__(self, objects: Objects, enters: Callable[[bytes], bool] | None = None) -> None:
        self._objects = objects
        self._enters = enters or self.is_new
        self.reached: set[bytes] = set()
        self._whole: set[bytes] = set()
        """The trees of which everything is reached; what refs name may lack something."""

    def is_new(self, id: bytes) -> bool:
        """Return whether an object is met for the first time; from then on it is reached."""
        if id in self.reached:
            return False
        self.reached.add(id)
        return True

    def walk(self, root: bytes, path: RelPath = ROOT) -> Iterator[tuple[RelPath, bytes, list[TreeRow]]]:
        """Read a tree and those below it, the upper ones first; yield path, id and rows of each."""
        waiting = [(path, root)] if self._enters(root) else []
        while waiting:
            path, tree = waiting.pop()
            rows = self.read(tree)
            yield path, tree, rows
            below = [(name, id) for mode, name, id in rows if mode == TREE_MODE and self._enters(id)]
            waiting += [(join(path, name), id) for name, id in below]

    def read(self, tree: bytes) -> list[TreeRow]:
        """Read the rows of a tree."""
        return [] if tree == EMPTY_TREE else list_tree(self._objects.read(b"tree", tree), tree.hex())

    def list_blobs(self, root: bytes) -> Iterator[bytes]:
        """Walk a tree, and yield the blobs in it, one that is there twice perhaps twice."""
        for _, _, rows in self.walk(root):
            yield from [id for mode, _, id in rows if mode != TREE_MODE]

    def walk_trees(self, trees: Iterable[bytes], blobs: Iterable[bytes] = (), deadline: float = inf) -> bool:
        """Reach all that trees hold, and some blobs; False if the deadline came first.

        A tree is whole after all that is in it was reached, so that the same call goes on where this one
        stopped. Blobs must be listed by the store.
        """
        self._reach_blobs(blobs)
        waiting = [(tree, False) for tree in trees]
        while waiting:
            tree, is_passed = waiting.pop()
            if is_passed:
                self.reached.add(tree)
                self._whole.add(tree)
                if monotonic() > deadline:
                    return False
            elif tree not in self._whole:
                rows = self.read(tree)
                self._reach_blobs(id for mode, _, id in rows if mode != TREE_MODE)
                waiting.append((tree, True))
                waiting += [(id, False) for mode, _, id in rows if mode == TREE_MODE]
        return True

    def _reach_blobs(self, blobs: Iterable[bytes]) -> None:
        new = set(blobs) - self.reached
        for id in new:
            if not self._objects.is_listed(id):
                raise StoreDamaged(f"object {id.hex()} is missing")
        self.reached |= new

    def walk_any(self, ids: Iterable[bytes]) -> None:
        """Reach all that leads on from objects of whatever kind, as refs name them.

        What is missing is passed over: what git or a user of the repository wrote need not be whole.
        """
        waiting = list(ids)
        while waiting:
            id = waiting.pop()
            if id in self.reached:
                continue
            try:
                kind, content = self._objects.read_any(id)
                if kind == b"tree":
                    waiting += [each for _, _, each in list_tree(content, id.hex())]
                elif kind != b"blob":
                    head = content.partition(b"\n\n")[0] + b"\n"
                    waiting += [bytes.fromhex(found.decode()) for found in _NAMED.findall(head)]
            except StoreDamaged:
                continue
            self.reached.add(id)
