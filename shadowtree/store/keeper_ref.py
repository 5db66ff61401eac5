"""The chain of keepers as git sees it, from the store's ref on, beside what the journal says of it.

The ref follows the journal. It is ahead of it only while a large pack is announced. It may be behind, perhaps
at a keeper that a sweep or a purge has made anew since:

    journal    k1 ◀── k2 ◀── k3         the last one is k3
    ref        k1                       behind: nobody moved it yet
    ref        old k3, parent old k2    behind: of the time of k3, or of another record
    ref        k5 ──▶ k4 ──▶ k3         beyond: two records are not in the journal any more
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from shadowtree.base.errors import StoreDamaged
from shadowtree.results.result import as_datetime
from shadowtree.store.directory import KEEPER_REF, StoreLayout
from shadowtree.store.git_format import parse_keeper
from shadowtree.store.objects import Objects
from shadowtree.system import disk

_TIME = re.compile(rb"\ncommitter shadowtree <shadowtree@localhost> (\d{1,11}) \+0000\n\ntree ")


def read_ref(layout: StoreLayout) -> str | None:
    """Read where the ref ends, be it a file of its own or among those that `git gc` put together."""
    content = disk.read_if_there(layout.ref)
    if content is not None:
        return content.removesuffix(b"\n").decode("ascii", "backslashreplace")
    ending = b" " + KEEPER_REF.encode()
    packed = disk.read_if_there(os.path.join(layout.store, "packed-refs")) or b""
    for line in packed.splitlines():
        if line.endswith(ending):
            return line.removesuffix(ending).decode("ascii", "backslashreplace")
    return None


def find_beyond(
    objects: Objects, ref: str | None, known: Mapping[bytes, int], last: bytes | None
) -> list[int]:
    """Give the times of the keepers that the ref leads to beyond those of the journal, the newest first.

    `known` are all of the journal with their times, and `last` is the one that was recorded last. A keeper
    that was made anew has the time of the one before it, so that a time that no record has is news.
    """
    id = _parse_id(ref)
    times: list[int] = []
    while id is not None and id not in known:
        found = _read_keeper(objects, id)
        if found is None:
            break
        time_s, id = found
        times.append(time_s)
    if id == last:
        return times
    recorded = set(known.values())
    return [time_s for time_s in times if time_s not in recorded]


def tell_beyond(times: Sequence[int]) -> str:
    """Say which keepers these are, in words for people."""
    first, last = (as_datetime(time_s * 1000).isoformat() for time_s in (min(times), max(times)))
    trees = (
        f"a tree, recorded at {first},"
        if len(times) == 1
        else f"{len(times)} trees, recorded from {first} to {last},"
    )
    return f"{trees} that the timeline does not hold"


def _read_keeper(objects: Objects, id: bytes) -> tuple[int, bytes | None] | None:
    """Give the time and the parent of a keeper; None: it is lost, or somebody else's commit."""
    try:
        kind, content = objects.read_any(id)
        time = _TIME.search(content) if kind == b"commit" else None
        return None if time is None else (int(time[1]), parse_keeper(content).parent)
    except StoreDamaged:
        return None


def _parse_id(ref: str | None) -> bytes | None:
    try:
        id = bytes.fromhex(ref or "")
    except ValueError:
        return None
    return id if len(id) == 20 else None
