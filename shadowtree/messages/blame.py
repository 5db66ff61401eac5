"""Whose change is it: a message's, or nobody's. Reads what the journal has of paths, in all sessions.

A change that no message made is seen where the record of a path does not go on from what the one before left:

    m1: v0→v1      m2: v2→v3      from v1 to v2 it was changed outside any message
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from shadowtree.base.errors import InvalidInput, UnknownName
from shadowtree.base.paths import DIRECTORY, Change, RelPath, Unknown, to_text
from shadowtree.capture.capture import Site, look
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import LEFT_OUT_THEN, open_recorded
from shadowtree.results.messages import BlameEntry, Message, make_patch
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.schema import ACTS, Event
from shadowtree.timeline.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer


def blame_path(opened: OpenStore, site: Site, session_name: str, path: RelPath) -> list[BlameEntry]:
    """List who changed a file, newest first: messages of all sessions, or nobody."""
    opened.refresh()
    journal, session = opened.journal, Session(opened.journal, session_name)
    with look(site, opened) as (objects, root):
        present = root.find(path)
        trees = [
            (open_recorded(objects, record.tree, record.facts).find(path), record.time_s * 1000)
            for record in (journal.first_tree(), journal.last_tree())
            if record
        ]
    blame = _Blame()
    story = journal.story_of(path)
    answers = [present, *(answer for answer, _ in trees)]
    name = to_text(path) or "."
    if DIRECTORY in answers or not path:
        raise InvalidInput(f"{name} is a directory, not a file")
    if not story and answers == [None] * len(answers):
        raise UnknownName(name, f"nothing is recorded for {name}")
    unprotected = journal.events_unprotected_at(name)
    # If no message changed it, the trees tell what was recorded of it.
    for answer, time_ms in trees if not story else ():
        blame.add(Change(path, blame.last, answer), None, time_ms)
        blame.last = answer
    events = journal.events([number for number, _ in story])
    messages = read_messages(journal, [*events.values(), *unprotected])
    told: list[tuple[Event, Change | None]] = [(events[number], change) for number, change in story]
    told += [(event, None) for event in unprotected]
    for event, change in sorted(told, key=lambda pair: pair[0].number):
        message = messages.get(event.number)
        if change is None:
            blame.add_unprotected(event, message)
        else:
            blame.add_recorded(event, change, message)
    # What was changed since is the open message's, or nobody's.
    open_message = None if session.open is None else session.read_message(session.open)
    blame.add(Change(path, blame.last, present), open_message, None)
    return blame.entries[::-1]


def why_unprotected(opened: OpenStore, site: Site, path: RelPath) -> str | None:
    """Say why no snapshot covers a path; None if one does, or would if there were something."""
    is_directory = os.path.isdir(os.path.join(os.fsencode(site.worktree), path))
    with look(site, opened) as (_, root):
        found = root.find(path, as_directory=is_directory)
    if not isinstance(found, Unknown):
        return None
    return "an ignore rule excludes it" if found.reason == LEFT_OUT_THEN else found.reason


class _Blame:
    """The changes of one path so far, oldest first, and whose each is."""

    def __init__(self) -> None:
        self.entries: list[BlameEntry] = []
        self.last: Answer = Unknown("nothing was recorded")
        self._number = 0
        """Of the event that `last` is from."""

    def add_recorded(self, event: Event, change: Change, message: Message | None) -> None:
        """Add what an event did, and before that what nobody announced; None: its message was forgotten."""
        since = event.since if event.since is not None else event.number
        # Of messages that ran side by side each saw the other's changes.
        if self._number <= since or event.kind in ACTS:
            self.add(Change(change.path, self.last, change.old), None, event.time_ms)
        if event.kind not in ACTS:
            self.add(change, message, event.time_ms, is_forgotten=message is None)
        self.last, self._number = change.new, event.number

    def add_unprotected(self, event: Event, message: Message | None) -> None:
        """Add that a message changed the file while no snapshot covered it."""
        is_forgotten = message is None
        self.entries.append(
            BlameEntry("modified", message, event.time_ms, None, None, is_forgotten, is_unprotected=True)
        )

    def add(
        self, change: Change, message: Message | None, time_ms: int | None, *, is_forgotten: bool = False
    ) -> None:
        """Add a change, if both sides of it are known; without a time, it is not recorded yet."""
        for changed in make_patch("", [change]).files if change.old != change.new else ():
            blobs = changed.old_blob, changed.new_blob
            self.entries.append(BlameEntry(changed.status, message, time_ms, *blobs, is_forgotten))


def read_messages(journal: Journal, events: Iterable[Event]) -> dict[int, Message]:
    """Give the message that each event ended, if it was not forgotten."""
    names = journal.session_names()
    found: dict[int, Message] = {}
    ends = [event for event in events if event.kind not in ACTS and event.forgotten_ms is None]
    for number in {event.session for event in ends}:
        own = [event for event in ends if event.session == number]
        session = Session(journal, names[number])
        rows = [session.find(event.message) for event in own if event.message is not None]
        found.update(zip((event.number for event in own), session.read_messages(rows), strict=True))
    return found
