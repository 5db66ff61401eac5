"""The walker: finds everything in recorded trees, and reads each tree once, however many others share it.

Used by gc, check and repair, purge, stats and du.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from math import inf
from time import monotonic

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import ROOT, RelPath, join
from shadowtree.store.git_format import EMPTY_TREE, TREE_MODE, TreeRow, list_tree
from shadowtree.store.objects import Objects
from shadowtree.store.refs import is_own, read_refs, read_shallow

_SUBMODULE_MODE = b"160000"
_NAMED = re.compile(rb"(?:tree|parent|object) ([0-9a-f]{40})\n")


class Walker:
    """Walks trees, and collects the ids of what it reaches; raises StoreDamaged if a tree cannot be read.

    `walk` and `list_blobs` call `enters` to decide whether to walk a tree; by default, they do so once.
    """

    def __init__(self, objects: Objects, enters: Callable[[bytes], bool] | None = None) -> None:
        self._objects = objects
        self._enters = enters or self.is_new
        self.reached: set[bytes] = set()
        self._whole: set[bytes] = set()
        """Trees whose contents were all reached. Other trees in `reached`, found by refs, may lack some."""

    def is_new(self, id: bytes) -> bool:
        """Return whether an object is new; from then on it counts as reached."""
        if id in self.reached:
            return False
        self.reached.add(id)
        return True

    def walk(self, root: bytes, path: RelPath = ROOT) -> Iterator[tuple[RelPath, bytes, list[TreeRow]]]:
        """Read a tree and its subtrees, parents first; yield path, id and rows of each."""
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
        """Walk a tree and yield its blobs; one that is there twice may be yielded twice."""
        for _, _, rows in self.walk(root):
            yield from [id for mode, _, id in rows if mode != TREE_MODE]

    def walk_trees(self, trees: Iterable[bytes], blobs: Iterable[bytes] = (), deadline: float = inf) -> bool:
        """Reach everything in trees, and some blobs; return False if the deadline came first.

        Another call with the same arguments continues where this one stopped. Raise StoreDamaged if the store
        does not list a blob.
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

    def walk_refs(self, store: str) -> None:
        """Reach everything that the refs of a store lead to; what our own lead to may be missing."""
        self.walk_users_refs(store)
        self.walk_any(id for ref, id in read_refs(store).items() if is_own(ref) and id is not None)

    def walk_users_refs(self, store: str) -> None:
        """Reach everything that the refs of the user lead to.

        Raises StoreDamaged if a ref cannot be read, or an object is missing: what only that one leads to
        would not be reached (invariant 9). Commits of submodules may be missing, and what comes before the
        beginning of a shallow history.
        """
        refs, shallow = read_refs(store), read_shallow(store)
        for ref, id in refs.items():
            if not is_own(ref):
                if id is None:
                    raise StoreDamaged(f"{os.fsdecode(ref)} cannot be read")
                self._walk_any([id], shallow)

    def walk_any(self, ids: Iterable[bytes]) -> None:
        """Reach everything that objects of any kind lead to, such as those that nobody made a ref to yet.

        Missing objects are skipped: what git or a user of the repository wrote may be incomplete. Raises
        StoreDamaged for an object that is damaged, or may be in a pack whose index cannot be read.
        """
        self._walk_any(ids, None)

    def _walk_any(self, ids: Iterable[bytes], shallow: Collection[bytes] | None) -> None:
        """Reach what objects lead to; with `shallow`, raise StoreDamaged if an object is missing."""
        waiting = list(ids)
        while waiting:
            id = waiting.pop()
            if id in self.reached:
                continue
            try:
                kind, content = self._objects.read_any(id)
            except StoreDamaged:
                # Unknown is never absent (invariant 7).
                if shallow is not None or self._objects.is_listed(id) or self._objects.pack_set.hides_some():
                    raise
                continue
            self.reached.add(id)
            with suppress(StoreDamaged):  # Its content, if it is malformed, leads nowhere.
                needed, others = _list_links(kind, id, content)
                if shallow is not None and id in shallow:
                    needed, others = needed[:1], needed[1:]
                waiting += needed
                waiting += filter(self._objects.is_listed, others)


def _list_links(kind: bytes, id: bytes, content: bytes) -> tuple[list[bytes], list[bytes]]:
    """List the objects that a tree, a commit or a tag needs, and the commits of submodules."""
    if kind == b"tree":
        rows = list_tree(content, id.hex())
        needed = [each for mode, _, each in rows if mode != _SUBMODULE_MODE]
        return needed, [each for mode, _, each in rows if mode == _SUBMODULE_MODE]
    head = b"" if kind == b"blob" else content.partition(b"\n\n")[0] + b"\n"
    return [bytes.fromhex(found.decode()) for found in _NAMED.findall(head)], []
