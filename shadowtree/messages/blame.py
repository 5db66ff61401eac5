"""Whose change is it: a message's, or nobody's. Reads what the journal has of paths, in all sessions.

A change that no message made is seen where the record of a path does not go on from what the one before left:

    m1: v0→v1      m2: v2→v3      from v1 to v2 it was changed outside any message
"""

from __future__ import annotations

from collections.abc import Sequence

from shadowtree.base.errors import InvalidInput, UnknownName
from shadowtree.base.paths import DIRECTORY, Change, RelPath, Unknown, to_text
from shadowtree.capture.capture import Site, look
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import open_recorded
from shadowtree.results.messages import BlameEntry, Message, make_patch
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.schema import ACTS, Event
from shadowtree.timeline.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer


def blame_path(opened: OpenStore, site: Site, session: str, path: RelPath) -> list[BlameEntry]:
    """List who changed a file, newest first: messages of all sessions, or nobody."""
    opened.refresh()
    found = Blame(opened.journal, path)
    records = [opened.journal.first_tree(), opened.journal.last_tree()]
    with look(site, opened) as (objects, root):
        present = root.find(path)
        trees = [
            (open_recorded(objects, record.tree, record.facts).find(path), record.time_s * 1000)
            for record in records
            if record
        ]
    answers = [present, *(answer for answer, _ in trees)]
    name = to_text(path) or "."
    if DIRECTORY in answers or not path:
        raise InvalidInput(f"{name} is a directory, not a file")
    if not found.is_known and answers == [None] * len(answers):
        raise UnknownName(name, f"nothing is known of {name}")
    return found.read(trees, present, Session(opened.journal, session))


class Blame:
    """Tells of one path who changed it."""

    def __init__(self, journal: Journal, path: RelPath) -> None:
        self._journal = journal
        self._path = path
        self._changes = journal.story_of(path)
        self._events = journal.events([number for number, _ in self._changes])
        self._messages = self._read_messages()
        self._entries: list[BlameEntry] = []
        self._last: Answer = Unknown("nothing was recorded")
        self._number = 0
        """Of the event that `_last` is from."""

    @property
    def is_known(self) -> bool:
        """Whether anything was ever recorded of the path."""
        return bool(self._changes)

    def read(
        self, trees: Sequence[tuple[Answer, int]], present: Answer, session: Session
    ) -> list[BlameEntry]:
        """List who changed it, newest first, up to now.

        If no message changed it, `trees` tell what was recorded of it, and when in milliseconds since 1970.
        What was changed since is the open message's, or nobody's.
        """
        for answer, time_ms in trees if not self._changes else ():
            self._add(self._last, answer, None, time_ms)
            self._last = answer
        for number, change in self._changes:
            self._add_recorded(self._events[number], change)
        message = None if session.open is None else session.read_message(session.open)
        self._add(self._last, present, message, None)
        return self._entries[::-1]

    def _add_recorded(self, event: Event, change: Change) -> None:
        since = event.since if event.since is not None else event.number
        # Of messages that ran side by side each saw the other's changes.
        if self._number <= since or event.kind in ACTS:
            self._add(self._last, change.old, None, event.time_ms)
        if event.kind not in ACTS:
            message = self._messages.get(event.number)
            self._add(change.old, change.new, message, event.time_ms, is_forgotten=message is None)
        self._last, self._number = change.new, event.number

    def _add(
        self,
        old: Answer,
        new: Answer,
        message: Message | None,
        time_ms: int | None,
        *,
        is_forgotten: bool = False,
    ) -> None:
        if old == new or isinstance(old, Unknown) or isinstance(new, Unknown):
            return
        for changed in make_patch("", [Change(self._path, old, new)]).files:
            blobs = changed.old_blob, changed.new_blob
            self._entries.append(BlameEntry(changed.status, message, time_ms, *blobs, is_forgotten))

    def _read_messages(self) -> dict[int, Message]:
        """Give the message that each event ended, if it was not forgotten."""
        names = self._journal.session_names()
        found: dict[int, Message] = {}
        events = self._events.values()
        ends = [event for event in events if event.kind not in ACTS and event.forgotten_ms is None]
        for number in {event.session for event in ends}:
            own = [event for event in ends if event.session == number]
            session = Session(self._journal, names[number])
            rows = [session.find(event.message) for event in own if event.message is not None]
            messages = session.read_messages(rows)
            found.update(zip((event.number for event in own), messages, strict=True))
        return found
