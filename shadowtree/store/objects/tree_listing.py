"""What stands in a git tree, for who walks a whole store and makes no file of what it finds.

Two versions of a directory mostly have the same names, and differ in an id or two. So the bytes of both are
compared, and where they differ in ids alone, the places of these are all that is looked at:

    known    40000 doc␀ 1f…   100644 a.py␀ 77…   100644 b.py␀ 30…
    next     40000 doc␀ 1f…   100644 a.py␀ e2…   100644 b.py␀ 30…      another id at place 1, and nothing else
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from shadowtree.base.errors import StoreDamaged

_ENTRY = re.compile(rb"[0-7]+ [^\0]+\0.{20}", re.DOTALL)
_ID_SIZE = 20


class TreeListing:
    """The entries of a tree, by their places in it. Nothing is checked but that it is a tree."""

    __slots__ = ("_content", "_ends")

    def __init__(self, content: bytes, alike: TreeListing | None = None) -> None:
        """List a tree; one that is `alike` has the same names."""
        self._content = content
        self._ends: list[int] = _find_ends(content) if alike is None else alike._ends
        """Where each entry ends, and its id."""

    @property
    def size(self) -> int:
        """How many bytes the tree has."""
        return len(self._content)

    def __len__(self) -> int:
        return len(self._ends)

    def id(self, place: int) -> bytes:
        """Give the id in an entry."""
        end = self._ends[place]
        return self._content[end - _ID_SIZE : end]

    def is_tree(self, place: int) -> bool:
        """Tell whether an entry is a subtree."""
        return self._content.startswith(b"40000 ", self._ends[place - 1] if place else 0)

    def name(self, place: int) -> bytes:
        """Give the name in an entry."""
        return self._head(place).partition(b" ")[2].removesuffix(b"\0")

    def _head(self, place: int) -> bytes:
        """Give what stands before an id."""
        return self._content[self._ends[place - 1] if place else 0 : self._ends[place] - _ID_SIZE]

    def find_changes(self, content: bytes) -> Sequence[int] | None:
        """Give the places at which a tree of the same names has other ids; None if names or modes differ."""
        known, ends = self._content, self._ends
        if len(content) != len(known):
            return None
        first = self._count_alike(content)
        if first == len(ends):
            return ()
        start, end = ends[first - 1] if first else 0, ends[first]
        id_start = end - _ID_SIZE
        if known[start:id_start] != content[start:id_start]:
            return None
        # Nearly always it is one.
        if known[end:] == content[end:]:
            return (first,)
        other = TreeListing(content, self)
        places = range(first, len(ends))
        if any(self._head(place) != other._head(place) for place in places):
            return None
        return [place for place in places if self.id(place) != other.id(place)]

    def _count_alike(self, content: bytes) -> int:
        """Tell how many entries are the same from the first on, by comparing ever fewer of them."""
        known, ends = self._content, self._ends
        low, high, start = 0, len(ends), 0
        while low < high:
            middle = (low + high) // 2
            end = ends[middle]
            if known[start:end] == content[start:end]:
                low, start = middle + 1, end
            else:
                high = middle
        return low


def _find_ends(content: bytes) -> list[int]:
    ends = list(accumulate(map(len, _ENTRY.findall(content))))
    if (ends[-1] if ends else 0) != len(content):
        raise StoreDamaged("what should be a tree is none")
    return ends
