"""Read what is recorded, as results: messages, what they changed, how states differ, where a session stands.

Nothing is recorded, so none of it needs the lock.
"""

from __future__ import annotations

from shadowtree.base.errors import NotWrapped, OutOfSpace, StoreDamaged
from shadowtree.base.paths import Change
from shadowtree.capture.capture import Site, list_skipped, look, refuse_full, scan_site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import (
    RecordedDirectory,
    compare,
    diff_patch,
    list_changes,
    open_recorded,
)
from shadowtree.results.messages import (
    Branch,
    ChangedPath,
    FileDiff,
    Message,
    Patch,
    SessionEntry,
    Status,
    make_patch,
)
from shadowtree.store.objects import Objects
from shadowtree.system.syscalls import has_no_room
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.resolve import resolve_message, resolve_tree
from shadowtree.timeline.schema import TreeRecord
from shadowtree.timeline.session import NOBODY, LastSession, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shadowtree.timeline.schema import Event

    Warn = Callable[[OpenStore, Site], list[str]]


def read_patch(opened: OpenStore, site: Site, session: str, name: str) -> Patch:
    """List what changed from a recorded tree to the present state."""
    before = resolve_tree(Session(opened.journal, session), name)
    with look(site, opened) as (objects, after):
        return compare(_open(objects, before), after)


def read_diff(
    opened: OpenStore, site: Site, session_name: str, a: str | None, b: str | None, most_bytes: int
) -> list[FileDiff]:
    """Show how two states differ; of files beyond `most_bytes` in all only that they do."""
    session = Session(opened.journal, session_name)
    before = _last_tree(opened, session) if a is None else resolve_tree(session, a)
    if before is None:
        raise NotWrapped(site.worktree, "nothing is recorded of it")
    if b is not None:
        after = _open(opened.objects, resolve_tree(session, b))
        return diff_patch(compare(_open(opened.objects, before), after), opened.objects)
    with look(site, opened, file_bytes=most_bytes) as (objects, present):
        return diff_patch(compare(_open(objects, before), present), objects)


def read_status(opened: OpenStore, site: Site, session_name: str, warn: Warn) -> Status:
    """Say where a session stands, what is not protected, and what else to `warn` of."""
    opened.refresh()
    session = Session(opened.journal, session_name)
    head = last_finished(session.position, session.find)
    last = _last_tree(opened, session)
    scan = scan_site(site, opened)
    changed = scan.files
    outside: list[ChangedPath] = []
    if last is not None:
        with look(site, opened, scan) as (objects, after):
            changed = len(compare(_open(objects, last), after).files)
            outside = _list_outside(opened.journal, session, objects, after)
    return Status(
        worktree=site.worktree,
        store=opened.layout.store,
        session=session.name,
        head=None if head is None else head.id,
        open=None if session.open is None else session.open.id,
        undone=[row.id for row in redoable_messages(session.position, session.find)],
        changed=changed,
        ignored=scan.ignored,
        watching=site.watch is not None and site.watch.report.is_active,
        skipped=list_skipped(scan),
        outside=outside,
        warnings=[*site.warnings, *_warn_full(opened, site, scan.pending_bytes), *warn(opened, site)],
    )


def _warn_full(opened: OpenStore, site: Site, needed: int) -> list[str]:
    """Warn if the store's disk has no room for a snapshot."""
    try:
        refuse_full(opened.layout.store, needed, site.settings)
        if has_no_room(opened.layout.store):
            raise OutOfSpace(opened.layout.store)
    except OutOfSpace as error:
        return [f"nothing can be recorded: {error}"]
    return []


def list_messages(
    opened: OpenStore, site: Site, session_name: str, last: int | None, *, all_sessions: bool
) -> list[Message]:
    """List the messages of a session, or of all, oldest first; with `last`, only the newest ones."""
    session = Session(opened.journal, session_name)
    if not all_sessions and session.number is None:
        return []
    rows = opened.journal.last_messages(None if all_sessions else session.number, last)
    names = opened.journal.session_names() if all_sessions else {}
    found: dict[int, Message] = {}
    for number in dict.fromkeys(row.session for row in rows):
        own = [row for row in rows if row.session == number]
        of = session if number == session.number else Session(opened.journal, names[number])
        messages = of.mark_reverted(of.read_messages(own))
        found.update(zip((row.number for row in own), messages, strict=True))
    return [found[row.number] for row in rows]


def show_message(
    opened: OpenStore, site: Site, session_name: str, name: str
) -> tuple[Message, list[FileDiff]]:
    """Give a message and how what it changed differs."""
    session = Session(opened.journal, session_name)
    (message,) = session.mark_reverted([session.read_message(resolve_message(session, name))])
    return message, diff_patch(message.patch, opened.objects)


def diff_message(opened: OpenStore, site: Site, message: Message) -> list[FileDiff]:
    """Show how what a message changed differs; raise ForgottenMessage if it was forgotten since."""
    try:
        return diff_patch(message.patch, opened.objects)
    except StoreDamaged:
        resolve_message(Session(opened.journal, message.session), message.id)
        raise


def find_last_session(opened: OpenStore, site: Site) -> LastSession:
    """Name the session that recorded last; `default` if none did."""
    last = opened.journal.last_recorded()
    return LastSession("default" if last is None else opened.journal.session_names()[last.session])


def list_sessions(opened: OpenStore, site: Site) -> list[SessionEntry]:
    """List the sessions of which a message is left, the one that recorded last at the end."""
    journal = opened.journal
    counts, names = journal.retention.count_messages(), journal.live_sessions()
    found = []
    for number in counts.keys() & names.keys():
        session, event = Session(journal, names[number]), journal.last_of_messages(number)
        (newest,) = session.read_messages(journal.last_messages(number, 1))
        head = last_finished(session.position, session.find)
        agent = (newest.meta or {}).get("agent")
        entry = SessionEntry(
            id=session.name,
            messages=counts[number],
            head=None if head is None else head.id,
            time_ms=newest.time_ms if event is None else event.time_ms,
            agent=agent if isinstance(agent, str) else None,
            open=None if session.open is None else session.open.id,
        )
        found.append((0 if event is None else event.number, entry))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def list_branches(opened: OpenStore, site: Site, session: str) -> list[Branch]:
    """List the branches of a session, oldest first."""
    return Session(opened.journal, session).read_branches()


def _last_tree(opened: OpenStore, session: Session) -> TreeRecord | None:
    """Give what the session recorded last, or else what anybody did."""
    number = _tree_of(opened.journal, session.last_event)
    return opened.journal.last_tree() if number is None else opened.journal.tree(number)


def _list_outside(
    journal: Journal, session: Session, objects: Objects, present: RecordedDirectory
) -> list[ChangedPath]:
    """List what changed since the session's last message, and is neither a message's nor an act's.

    What the session changes while a message is open is that message's.
    """
    if session.open is not None:
        return []
    last = None if session.number is None else journal.last_of_messages(session.number)
    number = _tree_of(journal, last)
    base = journal.last_tree() if number is None else journal.tree(number)
    assert base is not None
    since = 0 if last is None else last.number if number is not None else journal.last_number()
    changes = {change.path: change for change in list_changes(_open(objects, base), present)}
    known: list[tuple[int, Change]] = []
    if session.number is not None:
        # After the last message only acts came.
        acts = journal.changes_of([event.number for event in journal.events_after(since, session.number)])
        known = [(event, change) for event, changes_of in acts.items() for change in changes_of]
    known += journal.changes_at(changes.keys(), since, NOBODY if session.number is None else session.number)
    for _, change in sorted(known, key=lambda pair: pair[0]):
        changes[change.path] = Change(change.path, change.new, present.find(change.path))
    found = [changes[path] for path in sorted(changes) if changes[path].old != changes[path].new]
    return make_patch("", found).files


def _tree_of(journal: Journal, event: Event | None) -> int | None:
    """Give the record that an event left, if any, and if it was not forgotten."""
    number = None if event is None else event.after if event.after is not None else event.before
    return None if number is None or journal.is_forgotten_tree(number) else number


def _open(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)
