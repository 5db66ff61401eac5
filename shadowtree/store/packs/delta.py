"""Deltas: older versions of objects as the difference from newer ones. dulwich makes them.

dulwich takes a time that grows with the sizes times the number of differing bytes, so a delta is only made of
contents that are alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from time import monotonic

from shadowtree.store.git_format import deflate
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack import Pack

LONGEST_CHAIN = 50
"""How many deltas in a row have to be read for one object at most."""
_LARGEST_DELTA = 256 << 10
"""An object with more bytes than this is never a delta, nor the base of one."""
_MOST_SECONDS = 0.05
"""How long making one delta may take, by estimate."""
_WORK_A_SECOND = 10 << 30
"""The speed of dulwich, for that estimate: the number of bytes times the number of differing bytes."""
_SHORTEST_DELTA = 4
"""Real git takes a shorter delta for damage."""
_WORTH = 0.8
"""A delta must be smaller than the deflated object times this."""
_TREE_ENTRY = re.compile(rb"[0-7]+ [^\0]+\0.{20}", re.DOTALL)

Delta = tuple[bytes, int, bytes]
"""A delta: the id of its base, its size, and its deflated bytes."""


def load_dulwich() -> None:
    """Import dulwich, so that a long-running host waits for that only once, at its start."""
    import shadowtree.store.packs.dulwich_packs  # noqa: F401  # it is loaded, not used


def make_deltas(
    objects: Objects, packs: Iterable[Pack], versions: Mapping[bytes, bytes], seconds: float
) -> dict[bytes, Delta]:
    """Make deltas that turn newer versions into older ones, both in these packs, until the time is up.

    The largest objects come first, because the same time saves more bytes there.
    """
    deadline, made = monotonic() + seconds, dict[bytes, Delta]()
    pack_of = {id: pack for pack in packs for id in pack.ids()}
    pairs = [(old, new) for new, old in versions.items() if old in pack_of and new in pack_of]
    sizes = {old: pack_of[old].stored_size(old) or 0 for old, _ in pairs}
    for old, new in sorted(pairs, key=lambda pair: sizes[pair[0]], reverse=True):
        if (left := deadline - monotonic()) <= 0:
            break
        if old not in made and not _is_made_of(new, old, made):
            (kind, content), (base_kind, base) = objects.read_any(old), objects.read_any(new)
            delta = make_delta(kind, base, content, sizes[old], left) if kind == base_kind else None
            if delta is not None:
                made[old] = (new, *delta)
    return made


def _is_made_of(id: bytes, other: bytes, made: Mapping[bytes, Delta]) -> bool:
    """Return whether one object is made of another through deltas, or its chain of deltas is too long."""
    steps = 0
    while id != other and id in made and steps < LONGEST_CHAIN:
        id, steps = made[id][0], steps + 1
    return id == other or steps == LONGEST_CHAIN


def make_delta(
    kind: bytes, base: bytes, wanted: bytes, deflated_size: int, seconds: float = _MOST_SECONDS
) -> tuple[int, bytes] | None:
    """Make a delta that turns `base` into `wanted`; return its size and its deflated bytes.

    Return None if the two are not alike, if it would take longer than `seconds`, or if the delta is hardly
    smaller than the `deflated_size` of `wanted`. dulwich makes it, in a time that grows with the sizes times
    the number of differing bytes, so it is only used for contents that are alike.
    """
    from dulwich.pack import create_delta

    if not _are_alike(kind, base, wanted, seconds):
        return None
    delta = b"".join(create_delta(base, wanted))
    deflated = deflate(delta)
    if len(delta) < _SHORTEST_DELTA or len(deflated) >= _WORTH * deflated_size:
        return None
    return len(delta), deflated


def _are_alike(kind: bytes, one: bytes, other: bytes, seconds: float) -> bool:
    """Return whether at least half of `other` is in `one` too, and a delta takes at most `seconds`.

    a b c d      a b x d       three of four: alike
    """
    if not one or not other or max(len(one), len(other)) > _LARGEST_DELTA:
        return False
    known = set(_split(kind, one))
    shared = sum(len(piece) for before, piece in _split(kind, other) if (before, piece) in known)
    differing = len(one) + len(other) - 2 * min(shared, len(one))
    return 2 * shared >= len(other) and differing * (len(one) + len(other)) <= seconds * _WORK_A_SECOND


def _split(kind: bytes, content: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Split a tree into its entries, or a text into lines, each with the line before it.

    So the same lines in another order are not alike: dulwich takes long for them, and saves nothing.
    """
    if kind == b"tree":
        return ((b"", entry) for entry in _TREE_ENTRY.findall(content))
    return pairwise([b"", *content.splitlines(keepends=True)])
