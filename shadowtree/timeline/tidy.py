"""Tidying: repack the fresh packs of a store into its parts, one job at a time.

Commands only merge journaled packs (`publish_packs`). The work here is done by `gc`, by the daemon in idle
time, by a host that calls `tidy`, and, while many bytes wait, by some records for a few milliseconds.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.objects import Objects
from shadowtree.store.packs.delta import make_deltas
from shadowtree.store.packs.repack import Job, Repacker, verify, weigh
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.publish_packs import Publisher
from shadowtree.timeline.sqlite.pack_rows import JOURNALED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs.pack import Pack

_A_MOMENT_S = 0.5


def tidy(
    objects: Objects,
    journal: Journal,
    publisher: Publisher,
    limits: PackLimits,
    seconds: float,
    hold_s: float = inf,
) -> bool:
    """Repack for about `seconds`; return True when all is done. Only for the holder of the lock.

    After `hold_s` no further job starts: another process may want the lock.
    """
    start = monotonic()
    while (left := start + seconds - monotonic()) > 0:
        publisher.make_good()
        repacker = Repacker(objects, journal.packs.versions(), limits)
        settled = objects.pack_set.total_bytes() - repacker.fresh_bytes
        if repacker.fresh_bytes <= max(limits.idle_bytes, settled // limits.idle_part):
            return True
        # With little time, choose a job that fits into it; the largest part takes about half a second.
        job = repacker.choose(int(left * limits.bytes_a_second) if seconds < _A_MOMENT_S else None)
        if job is None:
            return repacker.choose() is None
        try:
            run_job(repacker, job, publisher)
        except StoreDamaged:
            # A damaged pack is left alone; a later read or a check finds it.
            return True
        if monotonic() - start >= hold_s:
            break
    return False


def drain_rows(
    objects: Objects, journal: Journal, publisher: Publisher, limits: PackLimits = DEFAULT_LIMITS.packs
) -> bool:
    """Join the oldest journaled packs into one that has files only: a journaled pack is stored twice.

    Return False if there are none, or if their files are not written yet.
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
    """Write the packs of a job, read them back, and replace the old packs with them."""
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
