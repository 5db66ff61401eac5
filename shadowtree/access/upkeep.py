"""What one does with a store as a whole: check, repair, tidy and destroy it; protect paths, follow updates.

Each function comes by the way into the store that it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from shadowtree.access.access import Access
from shadowtree.base.arguments import parse_path
from shadowtree.base.errors import ShadowError
from shadowtree.capture.open_store import tidy_in_turns
from shadowtree.store import directory as stores
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.capture.read_files import Progress
    from shadowtree.results.messages import Snapshot
    from shadowtree.results.reports import CheckReport, Protected
    from shadowtree.watching.subscription import OnError, OnUpdate, Subscription


def last_number(access: Access) -> int:
    """Wait for whoever is at work; return the number of what happened last, 0 if nothing did."""
    if not access.is_wrapped:
        return 0
    with access.locked() as opened:
        return opened.journal.last_number()


def tidy(access: Access, seconds: float) -> bool:
    """Repack for about so many seconds, others having the lock between two jobs; True: all is done."""
    access.has_idle_time = True
    return not access.is_wrapped or tidy_in_turns(partial(access.locked, timeout_s=0), access.limits, seconds)


def protect(access: Access, paths: Collection[str | os.PathLike[str]], *, dry_run: bool) -> list[Protected]:
    """Add rules that bring back paths which no snapshot covers."""
    from shadowtree.revert.protect import protect

    wanted = [parse_path(path, access.worktree) for path in paths]
    if dry_run:
        return access.read(protect, wanted, dry_run=True)
    with access.writing() as (opened, site, _):
        return protect(opened, site, wanted, dry_run=False)


def subscribe(
    access: Access, callback: OnUpdate, after: int | None, on_error: OnError | None
) -> Subscription:
    """Call a function for each update, by a way of its own into the store, which only looks."""
    from shadowtree.messages.read import list_updates
    from shadowtree.watching.subscription import Subscription

    way = Access(access.worktree, access.store, access.settings, access.places, allow_broad=True)
    way.recovers = False
    return Subscription(
        access.store, lambda number: way.read(list_updates, number), callback, after, on_error, way.close
    )


def check(access: Access, progress: Progress | None, *, read_data: bool) -> CheckReport:
    """Verify the store; with `read_data`, every object in it."""
    from shadowtree.check.check import Subject, check_store

    access.require_store()
    with suppress(ShadowError):  # What is wrong with a store that cannot be opened is found below.
        access.open()
    return check_store(Subject(access.store, access.worktree, access.held, progress), read_data=read_data)


def repair(
    access: Access,
    track: Callable[[], Snapshot],
    progress: Progress | None,
    *,
    dry_run: bool,
    forget_lost: bool,
) -> CheckReport:
    """Repair what a full check finds; `track` records the worktree, which may hold what is lost."""
    from shadowtree.check.check import Subject
    from shadowtree.check.repair import repair_store
    from shadowtree.retention.forget import forget_lost as forget

    opened_up = _open_up(access, dry_run=dry_run)
    subject = Subject(access.store, access.worktree, access.held, progress)
    forget_hurt = partial(forget, access.locked) if forget_lost else None
    record = None if dry_run else track
    return repair_store(subject, access.limits.clock_ns(), record, forget_hurt, opened_up)


def _open_up(access: Access, *, dry_run: bool) -> list[str]:
    """Close the store, and mend the modes that keep us from everything else, the lock too; say which."""
    from shadowtree.store.files import open_up

    access.close_store()
    access.require_store()
    mended: list[str] = []
    if not dry_run:
        disk.require_own(access.store)
        mended = list(open_up(access.store))
        stores.refuse_another(access.store, access.worktree)
    return mended


def destroy(access: Access) -> int:
    """Remove the store whole, and tell how much that frees; what was interrupted is made good first."""
    from shadowtree.store.files import refuse_foreign

    with access.locked():
        refuse_foreign(access.store)
        size = disk.measure_tree(access.store)
        access.close()
        stores.remove(access.store)
    if access.places.stores is not None:
        stores.remove_all_unfinished(access.places.stores)
    return size
