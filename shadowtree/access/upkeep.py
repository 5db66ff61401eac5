"""The upkeep of a store as a whole: tidy, forget, gc, purge, protect, check, repair, destroy.

Most functions need packages that recording and acts do not, so they import them only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from shadowtree.access.access import Access
from shadowtree.access.queries import read_remotes, read_stats
from shadowtree.base.arguments import parse_path
from shadowtree.base.errors import NotWrapped, ShadowError, WorktreeReplaced
from shadowtree.base.frozen import replace
from shadowtree.capture.open_store import tidy_in_turns
from shadowtree.store import directory as stores
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.arguments import StrPath
    from shadowtree.capture.read_files import Progress
    from shadowtree.purge.purge import PurgeOptions
    from shadowtree.results.messages import Snapshot
    from shadowtree.results.reports import CheckReport, Forgotten, Protected, Purged, Swept
    from shadowtree.retention.forget import DropOptions, ForgetOptions


def tidy(access: Access, seconds: float) -> bool:
    """Repack for about `seconds`, freeing the lock between jobs; return True when all is done."""
    access.has_idle_time = True
    return not access.is_wrapped or tidy_in_turns(partial(access.locked, timeout_s=0), access.limits, seconds)


def protect(access: Access, paths: Collection[StrPath], *, dry_run: bool) -> list[Protected]:
    """Add rules that make snapshots cover paths that they leave out now."""
    from shadowtree.access.protect import protect

    wanted = [parse_path(path, access.worktree) for path in paths]
    if dry_run:
        return access.read(protect, wanted, dry_run=True)
    with access.writing() as (opened, site, _):
        return protect(opened, site, wanted, dry_run=False)


def check(access: Access, progress: Progress | None, *, read_data: bool) -> CheckReport:
    """Verify the store; with `read_data`, read and hash every object in it."""
    from shadowtree.check.check import Subject, check_store
    from shadowtree.results.reports import CheckReport

    try:
        access.require_store()
    except NotWrapped as error:
        if access.needs_store or isinstance(error, WorktreeReplaced):
            raise
        return CheckReport([])
    with suppress(ShadowError):  # If the store cannot be opened, the check below finds out why.
        access.open()
    # On a full disk, an open timeline is locked against every other connection, even that of the check.
    access.close_store()
    now_ns = access.limits.clock_ns()
    subject = Subject(access.store, access.worktree, access.locked_unopened, now_ns, progress)
    return check_store(subject, read_data=read_data)


def repair(
    access: Access,
    track: Callable[[], Snapshot],
    progress: Progress | None,
    *,
    dry_run: bool,
    forget_lost: bool,
) -> CheckReport:
    """Repair what a full check finds; `track` records the worktree, which may still hold lost content."""
    from shadowtree.check.check import Subject
    from shadowtree.check.repair import repair_store
    from shadowtree.retention.forget import forget_lost as forget

    opened_up = _open_up(access, dry_run=dry_run)
    with suppress(ShadowError):  # Finish interrupted work first, if the store can be opened at all.
        access.open()
    access.close_store()
    now_ns = access.limits.clock_ns()
    subject = Subject(access.store, access.worktree, access.locked_unopened, now_ns, progress)
    forget_hurt = partial(forget, access.locked) if forget_lost else None
    record = None if dry_run else track
    return repair_store(subject, now_ns, record, forget_hurt, opened_up)


def _open_up(access: Access, *, dry_run: bool) -> list[str]:
    """Close the store and repair file modes that block access to it, even to its lock; list the repairs."""
    from shadowtree.store.files import open_up

    access.close_store()
    access.require_store()
    repaired: list[str] = []
    if not dry_run:
        disk.require_own(access.store)
        repaired = list(open_up(access.store))
        stores.refuse_another(access.store, access.worktree)
    return repaired


def destroy(access: Access) -> int:
    """Recover what was interrupted, then remove the store; return the number of bytes freed."""
    from shadowtree.store.files import refuse_foreign

    with access.locked():
        refuse_foreign(access.store)
        size = disk.measure_tree(access.store)
        access.close()
        stores.remove(access.store)
    if access.places.stores is not None:
        stores.remove_all_unfinished(access.places.stores)
    return size


def forget(access: Access, session: str | None, how: ForgetOptions) -> Forgotten:
    """Forget old messages of a session, or of all sessions if it is None."""
    from shadowtree.retention.budget import apply_retention

    settings = access.config.read()
    return apply_retention(access.locked, settings, session, how, is_empty=access.lacks_store)


def drop_session(access: Access, id: str, how: DropOptions) -> Forgotten:
    """Forget a whole session."""
    from shadowtree.retention.forget import drop_session

    return drop_session(access.locked, id, how)


def gc(access: Access, *, dry_run: bool) -> Swept:
    """Forget what the settings do not keep, in all sessions, and free objects that nothing needs."""
    from shadowtree.results.reports import Swept

    done = forget(access, None, {"dry_run": dry_run})
    if dry_run:
        # How many objects would go is known only after packs are rewritten, because some parts are spared.
        return Swept(None, read_stats(access).free_bytes, done.warnings)
    return Swept(done.removed, done.freed, done.warnings)


def purge(access: Access, what: StrPath | None, text: str | None, how: PurgeOptions) -> Purged:
    """Remove a path, a blob or a text from everything recorded."""
    from shadowtree.purge.purge import purge, read_target
    from shadowtree.retention.gc import sweep_all

    purged = purge(access.locked, read_target(what, access.worktree, text=text), sweep_all, how)
    return replace(
        purged, remotes=[name for name, state in read_remotes(access) if state.get("pushed_ms") is not None]
    )


def allow(access: Access, what: StrPath) -> list[str]:
    """Allow snapshots to record a purged path or content again."""
    from shadowtree.purge.purge import allow, read_target

    return allow(access.locked, read_target(what, access.worktree))
