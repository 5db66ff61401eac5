"""Tidying: the fresh packs of a store into its parts, a job at a time, for whoever has a moment.

Commands merge rows of the timeline and nothing else (`publish`). What is here is done by `gc`, by the daemon
in its idle time, by a host that calls `tidy`, and, as long as much waits, by some records for a few
milliseconds.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.objects import Objects
from shadowtree.store.repack import Job, Repacker, make_deltas, verify, weigh
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.pack_rows import JOURNALED
from shadowtree.timeline.publish import Publisher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs import Pack

_A_MOMENT_S = 0.5


def tidy(
    objects: Objects,
    journal: Journal,
    publisher: Publisher,
    limits: PackLimits,
    seconds: float,
    hold_s: float = inf,
) -> bool:
    """Repack for about so many seconds; True if there is more to do. Only for the holder of the lock.

    After `hold_s` no other job is begun: somebody else may want the lock.
    """
    start = monotonic()
    while (left := start + seconds - monotonic()) > 0:
        publisher.make_good()
        repacker = Repacker(objects, journal.packs.versions(), limits)
        settled = objects.pack_set.total_bytes() - repacker.fresh_bytes
        if repacker.fresh_bytes <= max(limits.idle_bytes, settled // limits.idle_part):
            return False
        # Who has only a moment does what fits into it; the largest part of all takes about half a second.
        job = repacker.choose(int(left * limits.bytes_a_second) if seconds < _A_MOMENT_S else None)
        if job is None:
            return repacker.choose() is not None
        try:
            run_job(repacker, job, publisher)
        except StoreDamaged:
            # What is damaged is left alone, and found by whoever needs it, or checks.
            return False
        if monotonic() - start >= hold_s:
            break
    return True


def drain_rows(
    objects: Objects, journal: Journal, publisher: Publisher, limits: PackLimits = DEFAULT_LIMITS.packs
) -> bool:
    """Put the oldest journaled packs into one that has files alone: what is in rows is there twice.

    False if there is none, or if their files have yet to be made.
    """
    publisher.make_good()
    by_name = {pack.name: pack for pack in objects.packs()}
    packs: list[Pack] = []
    weight = 0
    for row in journal.packs.rows(JOURNALED):
        if row.name in by_name and weight <= limits.drained_weight:
            packs.append(by_name[row.name])
            weight += weigh(packs[-1])
    versions = journal.packs.versions([pack.name for pack in packs])
    before = {new: old for pairs in versions.values() for new, old in pairs}
    return publisher.join(packs, make_deltas(objects, packs, before, limits.drain_s))


def run_job(repacker: Repacker, job: Job, publisher: Publisher) -> None:
    """Write the packs of a job, read them back, and let them take the place of the old ones."""
    writers = repacker.write(job)
    try:
        for writer in writers:
            publisher.publish(writer, is_settled=True)
        verify(publisher.unrecorded(), writers)
        written = {id for writer in writers for id in writer.ids}
        with publisher.recording(gone=[*job.parts, *repacker.find_empty(written)]):
            pass
    except BaseException:
        for writer in writers:
            writer.abandon()
        publisher.abandon()
        raise
