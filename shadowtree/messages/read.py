"""Read what is recorded, as results: messages and their changes, diffs, where a session stands.

Nothing is recorded here, so nothing needs the lock.
"""

from __future__ import annotations

from functools import partial

from shadowtree.base.arguments import (
    StrPath,
    check_count,
    check_path,
    parse_path,
    parse_paths,
    refuse_unknown,
)
from shadowtree.base.errors import (
    AmbiguousMessage,
    ForgottenMessage,
    ForgottenTree,
    InvalidInput,
    NotWrapped,
    OutOfSpace,
    StoreDamaged,
    UnknownName,
)
from shadowtree.base.frozen import replace
from shadowtree.base.paths import DIRECTORY, ROOT, Change, RelPath, Unknown, from_text, is_among, to_text
from shadowtree.capture.capture import Site, capture_in_memory, list_skipped, list_warnings, scan_site
from shadowtree.capture.diff import diff_patch
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import (
    RecordedDirectory,
    compare,
    list_changes,
    open_recorded,
)
from shadowtree.capture.scan import stamp_uncovered
from shadowtree.capture.size_limits import require_free_space
from shadowtree.messages.unprotected import list_unprotected
from shadowtree.results.messages import (
    BlameLine,
    Branch,
    ChangedPath,
    FileDiff,
    Message,
    Patch,
    SessionEntry,
    Status,
    Update,
    make_patch,
)
from shadowtree.store.objects import Objects
from shadowtree.system.syscalls import has_no_room
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.resolve import resolve_message, resolve_tree
from shadowtree.timeline.session import NOBODY, Session
from shadowtree.timeline.sqlite.schema import BEGIN, HEAD_ONLY, REVERT, TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from shadowtree.base.arguments import DiffOptions, MessageFilter
    from shadowtree.timeline.sqlite.schema import Event

    Warn = Callable[[OpenStore, Site], list[str]]

_MOST_SECONDS = 1e12
"""More seconds since 1970 than any clock shows."""


def read_patch(opened: OpenStore, site: Site, session: str, name: str) -> Patch:
    """List what changed from a recorded tree to the present state."""
    before = resolve_tree(Session(opened.journal, session), name)
    with capture_in_memory(site, opened) as (objects, after):
        return compare(_open(objects, before), after)


def read_diff(
    opened: OpenStore, site: Site, session_name: str, a: str | None, b: str | None, how: DiffOptions
) -> list[FileDiff]:
    """Return how two states differ; for very large files, only that they do."""
    refuse_unknown(how, "paths", "binary", "context")
    session = Session(opened.journal, session_name)
    before = last_tree(opened, session) if a is None else resolve_tree(session, a)
    if before is None:
        raise NotWrapped(site.worktree, "nothing is recorded for it")
    if b is not None:
        after = _open(opened.objects, resolve_tree(session, b))
        return _diff(compare(_open(opened.objects, before), after), opened.objects, site, how)
    with capture_in_memory(site, opened, file_bytes=site.limits.diff_bytes) as (objects, present):
        return _diff(compare(_open(objects, before), present), objects, site, how)


def _diff(patch: Patch, objects: Objects, site: Site, how: DiffOptions) -> list[FileDiff]:
    narrowed = narrow(patch, parse_paths(how.get("paths"), site.worktree))
    check_count(how.get("context"), "the number of context lines", at_least=0)
    return diff_patch(
        narrowed, objects, site.limits.diff_bytes if how.get("binary") else 0, how.get("context")
    )


def narrow(patch: Patch, paths: Collection[RelPath] | None) -> Patch:
    """Keep only what a patch changes at some paths, or below them; None keeps everything."""
    if paths is None or ROOT in paths:
        return patch
    wanted = [(to_text(path), to_text(path) + "/") for path in paths]
    files = [
        changed
        for changed in patch.files
        if any(changed.path == path or changed.path.startswith(below) for path, below in wanted)
    ]
    return replace(patch, files=files)


def read_status(opened: OpenStore, site: Site, session_name: str, warn: Warn) -> Status:
    """Return where a session stands, what is not protected, and what `warn` returns."""
    opened.refresh()
    session = Session(opened.journal, session_name)
    head = last_finished(session.position, session.find)
    last = last_tree(opened, session)
    scan = scan_site(site, opened)
    changed = scan.files
    outside: list[ChangedPath] = []
    unprotected: list[str] = []
    if last is not None:
        with capture_in_memory(site, opened, scan) as (objects, after):
            changed = len(compare(_open(objects, last), after).files)
            outside = _list_outside(opened.journal, session, objects, after)
            stamp = partial(stamp_uncovered, scan, site.worktree)
            unprotected = list_unprotected(session, stamp, _open(objects, last), after)
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
        unprotected=unprotected,
        warnings=[
            *list_warnings(site, scan),
            *_warn_full(opened, site, scan.pending_bytes),
            *warn(opened, site),
        ],
    )


def _warn_full(opened: OpenStore, site: Site, needed: int) -> list[str]:
    """Warn if the store's disk has no room for a snapshot."""
    try:
        require_free_space(opened.layout.store, needed, min_free=site.settings.min_free)
        if has_no_room(opened.layout.store):
            raise OutOfSpace(opened.layout.store)
    except OutOfSpace as error:
        return [f"nothing can be recorded: {error}"]
    return []


def list_messages(opened: OpenStore, site: Site, session_name: str, which: MessageFilter) -> list[Message]:
    """List the messages that `which` selects, of a session or of all, oldest first."""
    refuse_unknown(which, "all_sessions", "last", "since", "paths")
    last, all_sessions = which.get("last"), which.get("all_sessions", False)
    check_count(last, "the number of messages")
    session = Session(opened.journal, session_name)
    if not all_sessions and session.number is None:
        return []
    rows = opened.journal.last_messages(
        None if all_sessions else session.number,
        last,
        since_ms=_read_since(which.get("since")),
        paths=parse_paths(which.get("paths"), site.worktree),
    )
    names = opened.journal.session_names() if all_sessions else {}
    found: dict[int, Message] = {}
    for number in dict.fromkeys(row.session for row in rows):
        own = [row for row in rows if row.session == number]
        of = session if number == session.number else Session(opened.journal, names[number])
        messages = of.mark_reverted(of.read_messages(own))
        found.update(zip((row.number for row in own), messages, strict=True))
    return [found[row.number] for row in rows]


def _read_since(since: object) -> int | None:
    """Return a time in milliseconds."""
    if since is None:
        return None
    from datetime import datetime

    seconds = since.timestamp() if isinstance(since, datetime) else since
    if not isinstance(seconds, int | float) or not abs(seconds) < _MOST_SECONDS:
        raise InvalidInput(f"since must be a datetime, or seconds since 1970, not {since!r}")
    return int(seconds * 1000)


def show_message(
    opened: OpenStore, site: Site, session_name: str, name: str, how: DiffOptions
) -> tuple[Message, list[FileDiff]]:
    """Return a message and the diffs of its changes; `paths` limits the diffs and the unprotected files."""
    refuse_unknown(how, "paths", "binary", "context")
    session = Session(opened.journal, session_name)
    (message,) = session.mark_reverted([session.read_message(resolve_message(session, name))])
    paths = parse_paths(how.get("paths"), site.worktree)
    if paths is not None:
        unprotected = [path for path in message.unprotected if is_among(from_text(path), paths)]
        message = replace(message, unprotected=unprotected)
    return message, _diff(message.patch, opened.objects, site, how)


def diff_message(opened: OpenStore, site: Site, message: Message, how: DiffOptions) -> list[FileDiff]:
    """Return the diffs of a message's changes; raise ForgottenMessage if it was forgotten since."""
    refuse_unknown(how, "paths", "binary", "context")
    try:
        return _diff(message.patch, opened.objects, site, how)
    except StoreDamaged:
        resolve_message(Session(opened.journal, message.session), message.id)
        raise


def blame_lines(opened: OpenStore, site: Site, session_name: str, path: StrPath) -> list[BlameLine]:
    """List the lines of a file, each with its author; `blame` is imported only when this is called."""
    from shadowtree.messages.blame import blame_lines

    return blame_lines(opened, site, session_name, parse_path(path, site.worktree))


def read_file(opened: OpenStore, site: Site, session_name: str, ref: str, path: StrPath) -> bytes:
    """Return the content of a file, or the target of a link, as of a message or a tree."""
    pieces: list[bytes] = []
    copy_file(opened, site, session_name, ref, check_path(path), pieces.append)
    return b"".join(pieces)


def copy_file(
    opened: OpenStore,
    site: Site,
    session_name: str,
    ref: str | None,
    path: str,
    write: Callable[[bytes], object],
) -> None:
    """Write a file, or the target of a link, as of a message or a tree, piece by piece.

    Without `ref`, the path begins with one, as in `m1:src/a.py`: the longest that can be resolved counts.
    """
    session = Session(opened.journal, session_name)
    record, name = _split_ref(session, path) if ref is None else (resolve_tree(session, ref), path)
    found = parse_path(name, site.worktree)
    state = _open(opened.objects, record).find(found) if found else DIRECTORY
    if isinstance(state, Unknown):
        raise UnknownName(name, f"{name} is not recorded there: {state.reason}")
    if state is None:
        raise UnknownName(name, f"{name} does not exist in tree {record.tree.hex()}")
    if state.is_directory:
        raise InvalidInput(f"{name or '.'} is a directory, not a file")
    for piece in opened.objects.stream_blob(state.blob):
        write(piece)


def _split_ref(session: Session, text: str) -> tuple[TreeRecord, str]:
    """Split `REF:PATH`, where both may contain colons, after the longest REF that can be resolved."""
    unknown: UnknownName | None = None
    at = text.rfind(":")
    while at > 0:
        try:
            return resolve_tree(session, text[:at]), text[at + 1 :]
        except (AmbiguousMessage, ForgottenMessage, ForgottenTree):
            raise
        except UnknownName as error:
            unknown = error
        at = text.rfind(":", 0, at)
    raise unknown or InvalidInput(f"expected REF:PATH, such as @:src/a.py, not {text!r}")


def list_updates(opened: OpenStore, site: Site, after: int | None) -> tuple[int, list[Update]]:
    """List which messages began or ended, and which acts were done, in all sessions, after a number.

    With None, list the begins of all open messages. Also return the number to pass the next time.
    """
    journal = opened.journal
    if after is None:
        open_ = list(journal.open_messages().values())
        events = [event for event in journal.events_of(open_) if event.kind == BEGIN]
    else:
        events = journal.updates_after(after)
    names = journal.session_names() if events else {}
    rows = journal.messages_by_number([event.message for event in events if event.message is not None])
    return _find_settled(journal), [
        Update(
            event.number,
            REVERT if event.kind == HEAD_ONLY else event.kind,
            names[event.session],
            None if event.message is None else rows[event.message].id,
            event.time_ms,
        )
        for event in events
    ]


def _find_settled(journal: Journal) -> int:
    """Find the number of the last event that stays: the numbers of a dropped message are used again."""
    latest = journal.latest_event()
    if latest is None:
        return 0
    if latest.message is None or latest.position.open != latest.message:
        return latest.number
    begin = journal.events_of([latest.message])[0]
    return latest.number if len(journal.updates_after(begin.number - 1)) > 1 else begin.number - 1


def list_sessions(opened: OpenStore, site: Site) -> list[SessionEntry]:
    """List the sessions that have any messages left; the one that recorded last comes last."""
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


def last_tree(opened: OpenStore, session: Session) -> TreeRecord | None:
    """Return the tree that the session recorded last, or else the last one of any session."""
    number = _tree_of(opened.journal, session.last_event)
    return opened.journal.last_tree() if number is None else opened.journal.tree(number)


def _list_outside(
    journal: Journal, session: Session, objects: Objects, present: RecordedDirectory
) -> list[ChangedPath]:
    """List the changes since the session's last message that belong to no message and no act.

    While a message is open, changes belong to it, so nothing is listed.
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
        # Only acts came after the last message.
        acts = journal.changes_of([event.number for event in journal.events_after(since, session.number)])
        known = [(event, change) for event, changes_of in acts.items() for change in changes_of]
    known += journal.changes_at(changes.keys(), since, NOBODY if session.number is None else session.number)
    for _, change in sorted(known, key=lambda pair: pair[0]):
        changes[change.path] = Change(change.path, change.new, present.find(change.path))
    found = [changes[path] for path in sorted(changes) if changes[path].old != changes[path].new]
    return make_patch("", found).files


def _tree_of(journal: Journal, event: Event | None) -> int | None:
    """Return the number of the tree that an event recorded; None if there is none or it was forgotten."""
    number = None if event is None else event.after if event.after is not None else event.before
    return None if number is None or journal.is_forgotten_tree(number) else number


def _open(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)
