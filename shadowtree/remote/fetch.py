"""Fetch sessions from a remote, and resume one of them here.

Everything received is treated as hostile until it has been checked: first the objects, then the rows. Only
then is anything added to the timeline. A fetch touches no file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.access.access import Access
from shadowtree.base.errors import (
    Conflict,
    RemoteDamaged,
    RemoteFailed,
    StoreDamaged,
    StoreTooNew,
    UnknownName,
)
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.conversation.join import Source, add_barrier, join_session, keys_of
from shadowtree.conversation.read_commits import read_session
from shadowtree.conversation.ref_names import Wire, read_rows_ref, rows_prefix
from shadowtree.conversation.session_rows import list_sessions
from shadowtree.messages.record import Recorder
from shadowtree.remote.push import track_refs
from shadowtree.remote.state import RemoteState, find_remote, note_refs, save_remote
from shadowtree.remote.transport import Transport
from shadowtree.results.outcomes import ConflictingPath, Outcome, Plan
from shadowtree.results.remotes import Fetched, FetchedSession, Refused
from shadowtree.revert.act import preview, run
from shadowtree.revert.requests import Options, Restore, Switch
from shadowtree.timeline.resolve import resolve_message
from shadowtree.timeline.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.join import Came, Key
    from shadowtree.conversation.session_rows import Rows

_ADVICE = "move it away, or use 'resume' with --on-conflict overwrite, which records it first"


@frozen
class View:
    """One machine's account of a session, read and checked."""

    wire: Wire
    commit: bytes
    rows: Rows

    @property
    def source(self) -> Source:
        """Where its rows come from."""
        return Source(self.wire.session, self.wire.origin, self.wire.writer)

    @property
    def time_ms(self) -> int:
        """The time of its latest event."""
        return max([0, *(int(row["time"]) for row in self.rows["events"])])


def wrap_first(access: Access) -> None:
    """Record the directory as it is, if nothing has been recorded yet."""
    with access.writing(wraps=True) as (opened, site, first_scan):
        if opened.journal.last_tree() is None:
            Recorder(opened, site, "default", access.now_ms, Cancellation(), first_scan).track(is_wrap=True)
            opened.mark_clean()


def fetch_sessions(
    access: Access,
    remote: RemoteState,
    transport: Transport,
    session: str | None = None,
    *,
    only_new: bool = True,
) -> Fetched:
    """Fetch all sessions of a remote, or those with one name, and join them.

    With `only_new`, a session that has not changed there is skipped, even if it is not here.
    """
    listed = transport.list_refs([rows_prefix(session)])
    wires = {ref: wire for ref in listed if (wire := read_rows_ref(ref)) is not None}
    changed = {wire.origin for ref, wire in wires.items() if not remote.knows(ref, listed[ref])}
    refs = {ref: listed[ref] for ref, wire in wires.items() if not only_new or wire.origin in changed}
    with access.locked() as opened:
        known = {bytes.fromhex(id) for id in remote.known.values()}
        haves = [id for id in known if opened.objects.is_listed(id)]
    unread = _bring(transport, refs, haves)
    here = {ref: id for ref, id in refs.items() if ref not in unread}
    return take_in(access, remote, here, [Refused(wires[ref].session, why) for ref, why in unread.items()])


def _bring(transport: Transport, refs: Mapping[bytes, bytes], haves: Sequence[bytes]) -> dict[bytes, str]:
    """Fetch what refs name; return those that cannot be accepted, with the reasons.

    If fetching all of them fails, each is fetched alone: a bad one must not keep the others away.
    """
    try:
        transport.fetch(list(refs.values()), haves)
    except RemoteDamaged as error:
        if len(refs) == 1:
            return dict.fromkeys(refs, error.why)
    else:
        return {}
    refused: dict[bytes, str] = {}
    for ref, id in refs.items():
        refused |= _bring(transport, {ref: id}, haves)
    return refused


def take_in(
    access: Access, remote: RemoteState, refs: Mapping[bytes, bytes], unread: Iterable[Refused] = ()
) -> Fetched:
    """Join the sessions that some refs of a remote name; their objects are already here."""
    joined: list[FetchedSession] = []
    refused: list[Refused] = [*unread]
    with access.writing() as (opened, site, _):
        opened.objects.refresh()
        by_origin: dict[str, list[View]] = {}
        for ref, commit in sorted(refs.items()):
            wire = read_rows_ref(ref)
            if wire is None:
                continue
            try:
                view = View(wire, commit, _read(wire, commit, opened))
            except StoreTooNew as error:
                refused.append(Refused(wire.session, str(error)))
            except StoreDamaged as error:
                refused.append(Refused(wire.session, error.what))
            else:
                by_origin.setdefault(wire.origin, []).append(view)
        done: dict[bytes, bytes | None] = {}
        for views in by_origin.values():
            try:
                joined += [_show(came) for came in _join_views(opened, site, remote, views, access.now_ms)]
            except StoreDamaged as error:
                refused.append(Refused(views[0].wire.session, error.what))
            else:
                done |= {view.wire.rows_ref: view.commit for view in views}
        _note(opened, remote, done)
        opened.mark_clean()
    return Fetched(remote.name, remote.url, joined, refused)


def _read(wire: Wire, commit: bytes, opened: OpenStore) -> Rows:
    rows = read_session(commit, opened.objects)
    name = rows["sessions"][0]["name"].decode("utf-8", "surrogatepass")
    if name != wire.session:
        raise StoreDamaged(f"session {commit.hex()} cannot be read: its name is {name!r}")
    return rows


def _show(came: Came) -> FetchedSession:
    return FetchedSession(came.session, came.messages, came.branch)


def _note(opened: OpenStore, remote: RemoteState, refs: Mapping[bytes, bytes | None]) -> None:
    """Save what the remote has."""
    if remote.number:
        database = opened.journal.database
        now = find_remote(database, remote.name)
        save_remote(database, now, known=note_refs(now.known, refs))
        track_refs(opened, remote.name, refs)


def _join_views(
    opened: OpenStore, site: Site, remote: RemoteState, views: list[View], time_ms: int
) -> list[Came]:
    """Join the accounts that several machines have of one session, except what this store pushed itself."""
    local = {each.wire.origin: each for each in list_sessions(opened.journal.database)}
    here = local.get(views[0].wire.origin)
    own_ref = None if here is None else here.wire.rows_ref
    views = [v for v in views if v.wire.rows_ref != own_ref or not remote.knows(v.wire.rows_ref, v.commit)]
    changed = [v for v in views if here is None or not remote.knows(v.wire.rows_ref, v.commit)]
    if not changed:
        return []
    first = choose_view(views)
    came = []
    for view in sorted(changed, key=lambda view: view is not first):
        local = {each.wire.origin: each for each in list_sessions(opened.journal.database)}
        here = local.get(view.wire.origin)
        follows = here is not None and not here.is_own and view is first
        number = None if here is None else here.number
        came.append(
            join_session(opened, number, view.rows, view.source, site.settings, time_ms, follows=follows)
        )
    return came


def choose_view(views: Collection[View]) -> View:
    """Choose the account of a session that determines its position.

    An account that continues another one from its head replaces it. Of those that diverged, the one that did
    so first is chosen; the others become branches.
    """
    keys = {id(view): keys_of(view.rows) for view in views}
    lines = {id(view): _line_of(view, keys[id(view)]) for view in views}
    left = [
        view
        for view in views
        if not any(other is not view and _goes_on(lines[id(other)], lines[id(view)]) for other in views)
    ] or list(views)
    shared = set.intersection(*(set(lines[id(view)]) for view in left))

    def parted_ms(view: View) -> int:
        own = [time_ms for id_, time_ms in lines[id(view)] if (id_, time_ms) not in shared]
        return min(own, default=0)

    return min(left, key=lambda view: (parted_ms(view), view.wire.writer))


def _goes_on(line: list[Key], other: list[Key]) -> bool:
    """Return whether a line, newest first, continues another one from its end."""
    return len(line) > len(other) and (not other or other[0] in line)


def _line_of(view: View, keys: Mapping[int, Key]) -> list[Key]:
    """List the keys of the messages in force, newest first."""
    parents = {row["number"]: row["parent"] for row in view.rows["messages"]}
    at = view.rows["events"][-1]["head"] if view.rows["events"] else None
    line = []
    while at is not None:
        line.append(keys[at])
        at = parents[at]
    return line


# Resuming here


def choose_session(access: Access, fetched: Fetched, wires: Iterable[Wire], name: str | None) -> str:
    """Return the local name of a fetched session; without `name`, of the one with the latest event."""
    origins = {wire.origin for wire in wires}
    with access.locked() as opened:
        journal = opened.journal
        found = [each for each in list_sessions(journal.database) if each.wire.origin in origins]
        if name is not None:
            found = [each for each in found if name in (each.wire.session, each.name)]
        times = {
            each.name: event.time_ms
            for each in found
            if (event := journal.last_event(each.number)) is not None
        }
    if not times:
        what = "it has no session" if name is None else f"it has no session named {name!r}"
        if fetched.refused:
            raise RemoteFailed(
                fetched.url, f"session {fetched.refused[0].session!r} is refused: {fetched.refused[0].reason}"
            )
        raise UnknownName(name or "", f"{fetched.url}: {what}")
    return max(times, key=lambda each: times[each])


def resume_session(
    access: Access,
    session: str,
    at: str | None,
    cancellation: Cancellation,
    *,
    overwrites: bool,
    dry_run: bool = False,
) -> tuple[Outcome, str | None]:
    """Restore the worktree to the head of a session, or to after a message; also return that head's id.

    Unless it `overwrites`, raises Conflict if something in the directory would be replaced or deleted.
    """
    with access.writing() as (opened, site, _):
        tree, target = _find_state(opened, Session(opened.journal, session), at)
        request, options = Restore(tree), Options(on_conflict="overwrite" if overwrites else "abort")
        time_ms = access.now_ms
        if dry_run or not overwrites:
            plan = preview(opened, site, session, request, replace(options, dry_run=True), time_ms)
            if not overwrites:
                _refuse_different(plan)
            if dry_run:
                return plan.outcome, target or _find_head(opened, session)
        done = run(opened, site, session, request, options, time_ms, cancellation)
        if target is not None:
            moved = replace(options, files=False)
            run(opened, site, session, Switch(target), moved, time_ms, cancellation)
        with opened.journal.transaction():
            add_barrier(opened.journal, session, site.settings, time_ms)
        opened.mark_clean()
        # An unrevert does not go back past this point.
        has_replaced = done.deleted or len(done.restored) > len(done.created)
        back = f"shadowtree restore {done.before}" if has_replaced else None
        return replace(done, back=back), _find_head(opened, session)


def _find_head(opened: OpenStore, session: str) -> str | None:
    now = Session(opened.journal, session)
    head = now.position.head
    return None if head is None else now.find(head).id


def _find_state(opened: OpenStore, session: Session, at: str | None) -> tuple[str, str | None]:
    """Return the tree to restore, and the message to switch to if it is not the head."""
    last = session.last_event
    assert last is not None
    if at is None:
        return opened.journal.tree(last.after if last.after is not None else last.before).tree.hex(), None
    message = session.read_message(resolve_message(session, at))
    if message.after is None:
        raise UnknownName(at, f"message {at!r} is open")
    is_head = session.position.head is not None and session.find(session.position.head).id == message.id
    return message.after, None if is_head else message.id


def _refuse_different(plan: Plan) -> None:
    """Raise Conflict if the plan replaces or deletes anything in the directory."""
    different = [change.path for change in plan.changes if change.old_blob is not None]
    if different:
        reason = "it differs from the session"
        conflicts = [ConflictingPath(path, reason, _ADVICE) for path in different]
        nothing = replace(
            plan.outcome, conflicts=conflicts, restored=[], deleted=[], complete=False, dry_run=False
        )
        raise Conflict(conflicts, nothing)
