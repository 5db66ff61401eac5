"""Fresh packs, as snapshots add them, put together into one, so that there are few.

Only for the holder of the store's lock. Nothing goes before it is durable elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence, Set

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.objects.pack_writer import PackWriter, remove_pack
from shadowtree.store.objects.packs import Pack
from shadowtree.store.objects.read import Objects

_ALWAYS_MERGED = 1 << 20
LARGEST_MERGED = 16 << 20
"""Fresh packs of so many bytes are always merged, and larger ones never."""

Release = Callable[[Sequence[str]], None]
"""Called with the names of packs that are about to go, when all that is in them is durable elsewhere."""


def choose_to_merge(fresh: Iterable[Pack]) -> list[Pack]:
    """Choose the fresh packs that are put together: small ones, and larger ones if those add up to as much.

    So an object is copied a number of times that grows with the logarithm of the store.
    """
    taken: list[Pack] = []
    total = 0
    for pack in sorted(fresh, key=lambda pack: pack.size):
        if pack.size > min(max(_ALWAYS_MERGED, total), LARGEST_MERGED):
            break
        taken.append(pack)
        total += pack.size
    return taken


def merge_fresh(
    objects: Objects, fresh: Iterable[Pack], release: Release, shelved: Set[bytes] = frozenset()
) -> str | None:
    """Put small fresh packs together, without what is `shelved`; give the name of what is left, if any is."""
    taken = choose_to_merge(fresh)
    if len(taken) < 2 and shelved.isdisjoint(id for pack in taken for id in pack.ids()):
        return None
    merged = merge_packs(taken, objects.start_pack(), release, shelved)
    objects.refresh()
    return merged


def merge_packs(
    packs: Sequence[Pack],
    into: PackWriter,
    release: Release | None = None,
    shelved: Container[bytes] = frozenset(),
) -> str | None:
    """Copy packs into one and remove them once it is durable; give its name, if anything is in it.

    Entries are copied as they are: nothing is inflated. A pack with damage or deltas is left alone. What is
    `shelved` is durable elsewhere, and left out.
    """
    merged: list[Pack] = []
    try:
        for pack in packs:
            try:
                entries = list(pack.raw_entries())
            except (StoreDamaged, StoreFailed):
                continue
            for object_id, raw in entries:
                if object_id not in shelved:
                    into.copy_entry(object_id, raw)
            merged.append(pack)
        made = [os.path.basename(path) for path in into.finish()]
    except BaseException:
        into.abandon()
        raise
    remove_packs(merged, made, release)
    return made[0] if made else None


def remove_packs(packs: Sequence[Pack], made: Container[str], release: Release | None) -> None:
    """Remove packs, but those that were `made` just now."""
    # What was killed may have left all these objects in one pack already: the same one again.
    gone = [pack for pack in packs if pack.name not in made]
    if release is not None:
        release([pack.name for pack in gone])
    for pack in gone:
        remove_pack(os.path.dirname(pack.path), pack.name)
