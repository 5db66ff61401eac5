"""Read what is recorded, as results: messages, what they changed, how states differ, where a session stands.

Nothing is recorded, so none of it needs the lock.
"""

from __future__ import annotations

import os
from functools import partial

from shadowtree.base.arguments import StrPath, check_count, parse_path, parse_paths, refuse_unknown
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
from shadowtree.base.paths import DIRECTORY, ROOT, Change, RelPath, Unknown, from_text, is_file, to_text
from shadowtree.capture.capture import Site, list_skipped, look, refuse_full, scan_site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import (
    LEFT_OUT_THEN,
    RecordedDirectory,
    compare,
    diff_patch,
    list_changes,
    open_recorded,
)
from shadowtree.capture.scan import stamp_uncovered
from shadowtree.results.messages import (
    BlameLine,
    Branch,
    ChangedPath,
    FileDiff,
    Message,
    Patch,
    SessionEntry,
    Skipped,
    Status,
    Update,
    make_patch,
)
from shadowtree.store.objects import Objects
from shadowtree.system.syscalls import has_no_room
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.resolve import resolve_message, resolve_tree
from shadowtree.timeline.schema import BEGIN, HEAD_ONLY, REVERT, TreeRecord
from shadowtree.timeline.session import NOBODY, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from shadowtree.base.arguments import DiffOptions, MessageFilter
    from shadowtree.timeline.schema import Event

    Warn = Callable[[OpenStore, Site], list[str]]


def read_patch(opened: OpenStore, site: Site, session: str, name: str) -> Patch:
    """List what changed from a recorded tree to the present state."""
    before = resolve_tree(Session(opened.journal, session), name)
    with look(site, opened) as (objects, after):
        return compare(_open(objects, before), after)


def read_diff(
    opened: OpenStore, site: Site, session_name: str, a: str | None, b: str | None, how: DiffOptions
) -> list[FileDiff]:
    """Show how two states differ; of very large files only that they do."""
    refuse_unknown(how, "paths", "binary", "context")
    session = Session(opened.journal, session_name)
    before = last_tree(opened, session) if a is None else resolve_tree(session, a)
    if before is None:
        raise NotWrapped(site.worktree, "nothing is recorded for it")
    if b is not None:
        after = _open(opened.objects, resolve_tree(session, b))
        return _diff(compare(_open(opened.objects, before), after), opened.objects, site, how)
    with look(site, opened, file_bytes=site.limits.diff_bytes) as (objects, present):
        return _diff(compare(_open(objects, before), present), objects, site, how)


def _diff(patch: Patch, objects: Objects, site: Site, how: DiffOptions) -> list[FileDiff]:
    narrowed = narrow(patch, parse_paths(how.get("paths"), site.worktree))
    check_count(how.get("context"), "the number of context lines", at_least=0)
    return diff_patch(
        narrowed, objects, site.limits.diff_bytes if how.get("binary") else 0, how.get("context")
    )


def narrow(patch: Patch, paths: Collection[RelPath] | None) -> Patch:
    """Keep of a patch what is at some paths, or below them; None: all of it."""
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
    """Say where a session stands, what is not protected, and what else to `warn` of."""
    opened.refresh()
    session = Session(opened.journal, session_name)
    head = last_finished(session.position, session.find)
    last = last_tree(opened, session)
    scan = scan_site(site, opened)
    changed = scan.files
    outside: list[ChangedPath] = []
    unprotected: list[str] = []
    if last is not None:
        with look(site, opened, scan) as (objects, after):
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


def list_messages(opened: OpenStore, site: Site, session_name: str, which: MessageFilter) -> list[Message]:
    """List the messages of a session that are asked for, or those of all, oldest first."""
    refuse_unknown(which, "all_sessions", "last", "since", "paths")
    last, since, all_sessions = which.get("last"), which.get("since"), which.get("all_sessions", False)
    check_count(last, "the number of messages")
    session = Session(opened.journal, session_name)
    if not all_sessions and session.number is None:
        return []
    since_s = since if since is None or isinstance(since, int | float) else since.timestamp()
    rows = opened.journal.last_messages(
        None if all_sessions else session.number,
        last,
        since_ms=None if since_s is None else int(since_s * 1000),
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


def show_message(
    opened: OpenStore, site: Site, session_name: str, name: str, how: DiffOptions
) -> tuple[Message, list[FileDiff]]:
    """Return a message and how what it changed differs."""
    refuse_unknown(how, "paths", "binary", "context")
    session = Session(opened.journal, session_name)
    (message,) = session.mark_reverted([session.read_message(resolve_message(session, name))])
    return message, _diff(message.patch, opened.objects, site, how)


def diff_message(opened: OpenStore, site: Site, message: Message, how: DiffOptions) -> list[FileDiff]:
    """Show how what a message changed differs; raise ForgottenMessage if it was forgotten since."""
    refuse_unknown(how, "paths", "binary", "context")
    try:
        return _diff(message.patch, opened.objects, site, how)
    except StoreDamaged:
        resolve_message(Session(opened.journal, message.session), message.id)
        raise


def blame_lines(opened: OpenStore, site: Site, session_name: str, path: StrPath) -> list[BlameLine]:
    """List the lines of a file, each with whoever wrote it; what that needs is imported only now."""
    from shadowtree.messages.blame import blame_lines

    return blame_lines(opened, site, session_name, parse_path(path, site.worktree))


def read_file(opened: OpenStore, site: Site, session_name: str, ref: str, path: str) -> bytes:
    """Return the content of a file as of a message or a tree; of a link, its target."""
    pieces: list[bytes] = []
    copy_file(opened, site, session_name, ref, path, pieces.append)
    return b"".join(pieces)


def copy_file(
    opened: OpenStore,
    site: Site,
    session_name: str,
    ref: str | None,
    path: str,
    write: Callable[[bytes], object],
) -> None:
    """Write a file as of a message or a tree, piece by piece; of a link, its target.

    Without `ref` the path begins with one, as in `m1:src/a.py`: the longest that means something counts.
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
    """Split `REF:PATH`, where both may hold colons, after the longest REF that means something."""
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

    None: how the messages began that are open now. Beside it the number from which on to ask the next time.
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
    """Find the number of the last event that stays: if a message is dropped, its numbers are used again."""
    latest = journal.latest_event()
    if latest is None:
        return 0
    if latest.message is None or latest.position.open != latest.message:
        return latest.number
    begin = journal.events_of([latest.message])[0]
    return latest.number if len(journal.updates_after(begin.number - 1)) > 1 else begin.number - 1


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


def last_tree(opened: OpenStore, session: Session) -> TreeRecord | None:
    """Return what the session recorded last, or else what anybody did."""
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


def list_unprotected(session: Session, stamp: Callable[[], bytes], *trees: RecordedDirectory) -> list[str]:
    """List the files that changed since the session last looked at them, and that no tree covers."""
    changed = session.journal.left_out.list_changed(session.number, stamp)
    return [to_text(path) for path in changed if not any(is_file(tree.find(path)) for tree in trees)]


def list_all_unprotected(opened: OpenStore, site: Site, session_name: str) -> list[Skipped]:
    """List the files that changed during messages of a session, or since, and that no snapshot covers now.

    Files outside the worktree are among them, if an agent's tools wrote them.
    """
    session = Session(opened.journal, session_name)
    if session.number is None:
        return []
    lists = opened.journal.left_out.lists_of(session.number)
    found = {path for number in lists for path, _ in opened.journal.left_out.skips(number)}
    scan = scan_site(site, opened)
    with look(site, opened, scan) as (_, root):
        found.update(list_unprotected(session, partial(stamp_uncovered, scan, site.worktree), root))
        inside = {path: root.find(from_text(path)) for path in found if not path.startswith("/")}
    reasons = {path: _explain(state) for path, state in inside.items() if isinstance(state, Unknown)}
    reasons |= dict.fromkeys(found - inside.keys(), "it is outside the directory")
    return [Skipped(path, reasons[path]) for path in sorted(reasons)]


def why_unprotected(opened: OpenStore, site: Site, path: RelPath) -> str | None:
    """Return why no snapshot covers a path; None if one does, or would if there were something."""
    is_directory = os.path.isdir(os.path.join(os.fsencode(site.worktree), path))
    with look(site, opened) as (_, root):
        found = root.find(path, as_directory=is_directory)
    return _explain(found) if isinstance(found, Unknown) else None


def _explain(unknown: Unknown) -> str:
    return "an ignore rule excludes it" if unknown.reason == LEFT_OUT_THEN else unknown.reason


def _tree_of(journal: Journal, event: Event | None) -> int | None:
    """Return the record that an event left, if any, and if it was not forgotten."""
    number = None if event is None else event.after if event.after is not None else event.before
    return None if number is None or journal.is_forgotten_tree(number) else number


def _open(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)
