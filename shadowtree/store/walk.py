"""The walker: every object that is reached from recorded trees, and from refs.

What was walked once is not walked again, so that a tree costs what it does not share with those before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.git_format import EMPTY_TREE, list_tree
from shadowtree.store.objects import Objects

_NAMED = re.compile(rb"(?:tree|parent|object) ([0-9a-f]{40})\n")


class Walker:
    """Collects what is reached; StoreDamaged if something on the way is missing or damaged."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.reached: set[bytes] = set()

    def walk_trees(self, trees: Iterable[bytes], blobs: Iterable[bytes] = ()) -> None:
        """Reach all that trees hold, and some blobs; of a blob it is asked whether the store lists it."""
        new = set(blobs) - self.reached
        waiting = list(trees)
        reached = self.reached
        while waiting:
            tree = waiting.pop()
            if tree in reached:
                continue
            reached.add(tree)
            if tree == EMPTY_TREE:
                continue
            for is_tree, id in list_tree(self._objects.read(b"tree", tree), tree.hex()):
                if id not in reached:
                    if is_tree:
                        waiting.append(id)
                    else:
                        new.add(id)
        reached |= new
        for id in new:
            if not self._objects.is_listed(id):
                raise StoreDamaged(f"object {id.hex()} is missing")

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
                    waiting += [each for _, each in list_tree(content, id.hex())]
                elif kind != b"blob":
                    head = content.partition(b"\n\n")[0] + b"\n"
                    waiting += [bytes.fromhex(found.decode()) for found in _NAMED.findall(head)]
            except StoreDamaged:
                continue
            self.reached.add(id)
