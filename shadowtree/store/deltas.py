"""Deltas: an older version of a file or a directory as what differs from a newer one.

dulwich makes them, in time that grows with the sizes times what differs: so it is asked only where two
versions are much alike.
"""

from __future__ import annotations

import re

from dulwich.pack import create_delta

from shadowtree.store.git_format import deflate

_LARGEST = 256 << 10
"""An object above this many bytes is never a delta, nor the base of one."""
_MOST_WORK = 1 << 29
"""How many bytes times how many that differ dulwich may look at: some 50 ms."""
_SHORTEST = 4
"""Real git takes a shorter delta for damage: what is empty is made of nothing."""
_WORTH = 0.8
"""A delta has to be smaller than this part of what it stands for."""
_TREE_ENTRY = re.compile(rb"[0-7]+ [^\0]+\0.{20}", re.DOTALL)


def make_delta(kind: bytes, base: bytes, wanted: bytes, deflated_size: int) -> tuple[int, bytes] | None:
    """Make a delta by which `wanted` comes of `base`; give its size, and what it is deflated.

    None if the two are not much alike, or if that is no smaller than `wanted` deflated by itself.
    """
    if not _are_alike(kind, base, wanted):
        return None
    delta = b"".join(create_delta(base, wanted))
    deflated = deflate(delta)
    if len(delta) < _SHORTEST or len(deflated) >= _WORTH * deflated_size:
        return None
    return len(delta), deflated


def _are_alike(kind: bytes, one: bytes, other: bytes) -> bool:
    """Tell whether at least half of the pieces, lines or entries, of one version are in the other.

    a b c d      a b x d       three of four: alike
    """
    if not one or not other or max(len(one), len(other)) > _LARGEST:
        return False
    of_one, of_other = _split(kind, one), _split(kind, other)
    known = set(of_one)
    shared = sum(len(piece) for piece in of_other if piece in known)
    differing = len(one) + len(other) - 2 * min(shared, len(one))
    return 2 * shared >= len(other) and differing * (len(one) + len(other)) <= _MOST_WORK


def _split(kind: bytes, content: bytes) -> list[bytes]:
    return _TREE_ENTRY.findall(content) if kind == b"tree" else content.splitlines(keepends=True)
