"""What is read from a store besides messages: status, rows for lists, blame, sizes, and updates as they come.

Most functions need packages that recording and acts do not, so they import them only when called.
"""

from __future__ import annotations

from functools import partial

from shadowtree.access.access import Access
from shadowtree.base.arguments import check_count, parse_path
from shadowtree.base.frozen import replace
from shadowtree.timeline.sqlite.schema import REMOTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.base.arguments import StrPath
    from shadowtree.base.paths import RelPath
    from shadowtree.results.messages import BlameEntry, Status
    from shadowtree.results.overview import SessionState, Timeline
    from shadowtree.results.reports import SessionFigure, Stats, Usage
    from shadowtree.timeline.last_session import LastSession
    from shadowtree.watching.subscription import OnError, OnUpdate, Subscription


def read_status(access: Access, session: str) -> Status:
    """Return a session's position, unprotected files, and warnings about budgets and failed pushes."""
    from shadowtree.messages.read import read_status
    from shadowtree.results.messages import Status
    from shadowtree.retention.budget import warn_budgets

    warn = partial(warn_budgets, directory=access.stores)
    empty = Status.empty(access.worktree, access.store, str(session))
    status = access.read_or(empty, read_status, session, warn)
    failed = [
        f"the last push to {name} failed: {state['why']}"
        for name, state in read_remotes(access)
        if state.get("failures")
    ]
    return replace(status, warnings=[*status.warnings, *failed]) if failed else status


def read_timeline(access: Access, session: str, last: int | None, before: int | None) -> Timeline:
    """List the messages of a session as rows."""
    from shadowtree.messages.overview import read_timeline
    from shadowtree.results.overview import Timeline

    return access.read_or(Timeline.empty(str(session)), read_timeline, session, last, before)


def read_state(access: Access, session: str) -> SessionState:
    """Return a session's position and branches, counted in turns."""
    from shadowtree.messages.overview import read_state
    from shadowtree.results.overview import SessionState

    empty = SessionState.empty(access.worktree, access.store, str(session))
    return access.read_or(empty, read_state, session)


def blame(access: Access, session: str, path: StrPath) -> list[BlameEntry]:
    """List what changed a file, newest first."""
    from shadowtree.messages.blame import blame_path

    return access.read_or([], blame_path, session, parse_path(path, access.worktree))


def read_stats(access: Access) -> Stats:
    """Return what the store holds and how much space it takes."""
    from shadowtree.retention.stats import make_no_stats, read_stats

    empty = make_no_stats(access.worktree, access.store, access.settings)
    return access.read_or(empty, read_stats)


def measure(access: Access, path: RelPath, depth: int) -> Usage:
    """Measure the space taken by all versions of a path and everything below it."""
    from shadowtree.retention.usage import make_no_usage, read_usage

    check_count(depth, "a depth", at_least=0)
    return access.read_or(make_no_usage(path), read_usage, path, depth)


def measure_sessions(access: Access) -> list[SessionFigure]:
    """Return the space that each session alone needs."""
    from shadowtree.retention.usage import read_session_sizes

    return access.read_or([], read_session_sizes)


def read_remotes(access: Access) -> list[tuple[str, dict[str, Any]]]:  # Any: JSON
    """Return the name and the saved state of each remote."""
    rows: list[list[Any]] = access.read_or(  # Any: what columns hold
        [], lambda opened, site: opened.journal.database.read(REMOTES.decode, REMOTES.select)
    )
    if not rows:
        return []
    import json

    return [(name, json.loads(state)) for _, name, _, state in rows]


def find_last_session(access: Access, session: str) -> LastSession:
    """Return the name of the session that recorded last, or the given one if nothing is recorded."""
    from shadowtree.timeline.last_session import LastSession, find_last_session

    return access.read_without_recovery(
        LastSession(session), lambda opened, _: find_last_session(opened.journal)
    )


def last_number(access: Access) -> int:
    """Wait for the lock; return the number of the last event, or 0 if there is none."""
    if not access.is_wrapped:
        return 0
    with access.locked() as opened:
        return opened.journal.last_number()


def subscribe(
    access: Access, callback: OnUpdate, after: int | None, on_error: OnError | None
) -> Subscription:
    """Call a function for each update, which is read through a separate access that recovers nothing."""
    from shadowtree.messages.read import list_updates
    from shadowtree.watching.subscription import Subscription

    own = Access(access.worktree, access.store, access.settings, access.places, allow_broad=True)
    own.recovers = False
    return Subscription(
        access.store, lambda number: own.read(list_updates, number), callback, after, on_error, own.close
    )
