"""What you do with a store as a whole: measure, forget, purge, check, repair, tidy, destroy, follow it.

Most functions need packages that recording and acts do without, so they import them only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from shadowtree.access.access import Access
from shadowtree.base.arguments import check_count, parse_path
from shadowtree.base.errors import ShadowError
from shadowtree.base.frozen import replace
from shadowtree.capture.open_store import tidy_in_turns
from shadowtree.store import directory as stores
from shadowtree.system import disk
from shadowtree.timeline.schema import REMOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from shadowtree.base.arguments import StrPath
    from shadowtree.base.paths import RelPath
    from shadowtree.capture.read_files import Progress
    from shadowtree.messages.record import Recorder
    from shadowtree.purge.purge import PurgeOptions
    from shadowtree.results.messages import BlameEntry, Skipped, Snapshot, Status
    from shadowtree.results.overview import SessionState, Timeline
    from shadowtree.results.reports import (
        CheckReport,
        Forgotten,
        Protected,
        Purged,
        SessionFigure,
        Stats,
        Swept,
        Usage,
    )
    from shadowtree.results.turns import TurnEvent, TurnRecord
    from shadowtree.retention.forget import DropOptions, ForgetOptions
    from shadowtree.timeline.resolve import LastSession
    from shadowtree.watching.subscription import OnError, OnUpdate, Subscription


def last_number(access: Access) -> int:
    """Wait for the lock; return the number of what happened last, 0 if nothing did."""
    if not access.is_wrapped:
        return 0
    with access.locked() as opened:
        return opened.journal.last_number()


def find_last_session(access: Access, session: str) -> LastSession:
    """Name the session that recorded last; where nothing is recorded, the one given."""
    from shadowtree.timeline.resolve import LastSession, find_last_session

    return access.glance(LastSession(session), lambda opened, _: find_last_session(opened.journal))


def read_status(access: Access, session: str) -> Status:
    """Return where a session stands, what is not protected, and what the budgets have no room for."""
    from shadowtree.messages.read import read_status
    from shadowtree.results.messages import Status
    from shadowtree.retention.budget import warn_budgets

    warn = partial(warn_budgets, directory=access.stores)
    empty = Status(access.worktree, access.store, session, None, None, [], 0, 0, False, [])
    status = access.read_or(empty, read_status, session, warn)
    failed = [
        f"the last push to {name} failed: {state['why']}"
        for name, state in _read_remotes(access)
        if state.get("failures")
    ]
    return replace(status, warnings=[*status.warnings, *failed]) if failed else status


def _read_remotes(access: Access) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON
    """Return the name of each remote, and what is known of it."""
    rows: list[list[Any]] = access.read_or(  # Any: what columns hold
        [], lambda opened, site: opened.journal.database.read(REMOTES.decode, REMOTES.select)
    )
    if not rows:
        return []
    import json

    return [(name, json.loads(state)) for _, name, _, state in rows]


def read_timeline(access: Access, session: str, last: int | None, before: int | None) -> Timeline:
    """List the messages of a session as rows."""
    from shadowtree.messages.overview import read_timeline
    from shadowtree.results.overview import Timeline

    empty = Timeline(str(session), 0, 0, None, None, [], [])
    return access.read_or(empty, read_timeline, session, last, before)


def read_state(access: Access, session: str) -> SessionState:
    """Return where a session stands, counted in turns."""
    from shadowtree.messages.overview import read_state
    from shadowtree.results.overview import SessionState

    empty = SessionState(access.worktree, access.store, str(session), 0, None, None, None, 0, 0, [], [])
    return access.read_or(empty, read_state, session)


def list_unprotected(access: Access, session: str) -> list[Skipped]:
    """List the files that changed in a session and that snapshots leave out."""
    from shadowtree.messages.read import list_all_unprotected

    return access.read_or([], list_all_unprotected, session)


def blame(access: Access, session: str, path: StrPath) -> list[BlameEntry]:
    """List what changed a file, newest first."""
    from shadowtree.messages.blame import blame_path

    return access.read_or([], blame_path, session, parse_path(path, access.worktree))


def record_turn(recording: Callable[..., AbstractContextManager[Recorder]], event: TurnEvent) -> TurnRecord:
    """Record what a hook of an agent reports."""
    from shadowtree.messages.turns import record_turn

    return record_turn(recording, event)


def tidy(access: Access, seconds: float) -> bool:
    """Repack for about so many seconds, freeing the lock between two jobs; True: all is done."""
    access.has_idle_time = True
    return not access.is_wrapped or tidy_in_turns(partial(access.locked, timeout_s=0), access.limits, seconds)


def protect(access: Access, paths: Collection[StrPath], *, dry_run: bool) -> list[Protected]:
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
    """Call a function for each update, by an access of its own, which only looks."""
    from shadowtree.messages.read import list_updates
    from shadowtree.watching.subscription import Subscription

    own = Access(access.worktree, access.store, access.settings, access.places, allow_broad=True)
    own.recovers = False
    return Subscription(
        access.store, lambda number: own.read(list_updates, number), callback, after, on_error, own.close
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
    """Close the store, and repair the modes that keep us from everything else, the lock too; list which."""
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
    """Recover what was interrupted, then remove the store; return how many bytes that frees."""
    from shadowtree.store.files import refuse_foreign

    with access.locked():
        refuse_foreign(access.store)
        size = disk.measure_tree(access.store)
        access.close()
        stores.remove(access.store)
    if access.places.stores is not None:
        stores.remove_all_unfinished(access.places.stores)
    return size


# Keeping and measuring


def forget(access: Access, session: str | None, how: ForgetOptions) -> Forgotten:
    """Forget old messages of a session; None: of all of them."""
    from shadowtree.retention.budget import apply_retention

    settings = access.config.read()
    return apply_retention(access.locked, settings, session, how, is_empty=access.lacks_store)


def drop_session(access: Access, id: str, how: DropOptions) -> Forgotten:
    """Forget a session whole."""
    from shadowtree.retention.forget import drop_session

    return drop_session(access.locked, id, how)


def gc(access: Access, *, dry_run: bool) -> Swept:
    """Forget what the settings do not keep, in all sessions, and free what nothing needs."""
    from shadowtree.retention.budget import summarise_gc

    return summarise_gc(forget(access, None, {"dry_run": dry_run}), partial(read_stats, access))


def purge(access: Access, what: StrPath | None, text: str | None, how: PurgeOptions) -> Purged:
    """Remove a path, a content or a text from everything that is recorded."""
    from shadowtree.purge.purge import purge, read_target
    from shadowtree.retention.gc import sweep_all

    purged = purge(access.locked, read_target(what, access.worktree, text=text), sweep_all, how)
    return replace(
        purged, remotes=[name for name, state in _read_remotes(access) if state.get("pushed_ms") is not None]
    )


def allow(access: Access, what: StrPath) -> list[str]:
    """Cover again what was purged."""
    from shadowtree.purge.purge import allow, read_target

    return allow(access.locked, read_target(what, access.worktree))


def read_stats(access: Access) -> Stats:
    """Return what the store holds, and how much space that takes."""
    from shadowtree.retention.budget import make_no_stats, read_stats

    empty = make_no_stats(access.worktree, access.store, access.settings)
    return access.read_or(empty, read_stats)


def measure(access: Access, path: RelPath, depth: int) -> Usage:
    """Measure all versions of what is at a path and below it."""
    from shadowtree.retention.usage import make_no_usage, read_usage

    check_count(depth, "a depth", at_least=0)
    return access.read_or(make_no_usage(path), read_usage, path, depth)


def measure_sessions(access: Access) -> list[SessionFigure]:
    """Return how much space each session alone needs."""
    from shadowtree.retention.usage import read_session_sizes

    return access.read_or([], read_session_sizes)
