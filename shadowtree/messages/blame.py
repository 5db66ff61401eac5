"""Find who changed a file, and who wrote each of its lines, from the records of all sessions.

The history of a path is a list of versions. If a message does not start from the version before, the path was
changed outside any message in between:

    m1: v0→v1      m2: v2→v3      from v1 to v2 it was changed outside any message

For lines, the versions are walked back from the newest. A line that the version before does not have was
written by the author of this version; the others are followed further back. A version that an act brought
back is as old as the version that it came from, so the walk continues there:

    v0 ── m1 ──▶ v1 ── m2 ──▶ v2 ── undo ──▶ v1 ── now
                  ▲                           │
                  └───────────────────────────┘

The whole walk has one budget of steps; lines that are left when it is used up have an unknown author.
"""

from __future__ import annotations

from collections.abc import Iterable

from shadowtree.base.errors import InvalidInput, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, Unknown, is_file, to_text
from shadowtree.capture.capture import Site, capture_in_memory
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import open_recorded
from shadowtree.results.messages import BlameEntry, BlameLine, Message, make_patch
from shadowtree.store.objects import Objects, TooLarge
from shadowtree.text.linediff import (
    MAX_STEPS,
    MAX_TEXT_BYTES,
    OutOfStepsError,
    Part,
    Steps,
    find_changes,
    is_binary,
    is_too_large,
    split_texts,
)
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.session import Session
from shadowtree.timeline.sqlite.database import BEYOND
from shadowtree.timeline.sqlite.schema import ACTS, Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer
    from shadowtree.results.messages import LineOrigin

_NOTHING = Unknown("nothing was recorded")
_TRIED = 8
"""How many earlier versions the result of a merge is compared with."""


@frozen
class _Version:
    """A version of the file, and its author."""

    before: Answer
    """The state before it. If messages ran at the same time, it may include each other's changes."""
    state: Answer
    origin: LineOrigin
    number: int = 0
    """The event that recorded it, or that recorded the next version."""
    message: Message | None = None
    time_ms: int | None = None
    is_act: bool = False
    """An act wrote it, so its lines may come from any earlier version."""


def blame_path(opened: OpenStore, site: Site, session_name: str, path: RelPath) -> list[BlameEntry]:
    """List who changed a file, newest first: messages of all sessions, or nobody."""
    opened.refresh()
    journal, name = opened.journal, to_text(path) or "."
    with capture_in_memory(site, opened) as (objects, root):
        present = root.find(path)
        in_trees = _list_in_trees(journal, objects, path)
    recorded = _list_recorded(journal, path)
    answers = [present, *(version.state for version in in_trees)]
    if DIRECTORY in answers or not path:
        raise InvalidInput(f"{name} is a directory, not a file")
    if not recorded and answers == [None] * len(answers):
        raise UnknownName(name, f"nothing is recorded for {name}")
    entries: list[tuple[int, BlameEntry]] = []
    for version in _add_present(recorded or in_trees, present, Session(journal, session_name)):
        change = Change(path, version.before, version.state)
        is_entry = not version.is_act and change.old != change.new
        for changed in make_patch("", [change]).files if is_entry else ():
            blobs, is_forgotten = (changed.old_blob, changed.new_blob), version.origin == "forgotten"
            entry = BlameEntry(changed.status, version.message, version.time_ms, *blobs, is_forgotten)
            entries.append((version.number, entry))
    entries += _list_unprotected(journal, name)
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])][::-1]


def _list_unprotected(journal: Journal, name: str) -> list[tuple[int, BlameEntry]]:
    """List the messages during which a file changed but no snapshot covered it, with their events."""
    ends = journal.events_unprotected_at(name)
    messages = _read_messages(journal, ends)
    found = []
    for end in ends:
        message = messages.get(end.number)
        entry = BlameEntry("modified", message, end.time_ms, None, None, message is None, is_unprotected=True)
        found.append((end.number, entry))
    return found


def blame_lines(opened: OpenStore, site: Site, session_name: str, path: RelPath) -> list[BlameLine]:
    """List the lines of a file as it is now, each with its author, in any session."""
    opened.refresh()
    journal, name = opened.journal, to_text(path) or "."
    with capture_in_memory(site, opened, file_bytes=site.limits.diff_bytes) as (objects, root):
        present = root.find(path)
        if isinstance(present, Unknown):
            raise UnknownName(name, f"{name} is not recorded: {present.reason}")
        if not is_file(present):
            raise UnknownName(name, f"there is no file {name}")
        recorded = _list_recorded(journal, path) or _list_in_trees(journal, objects, path)
        versions = _add_present(recorded, present, Session(journal, session_name))
        return _Walk(objects, versions, name).list_lines()


# Versions


def _list_recorded(journal: Journal, path: RelPath) -> list[_Version]:
    """List the versions of a file that messages and acts recorded, oldest first, and those in between."""
    story = journal.story_of(path)
    if not story:
        return []
    events = journal.events([number for number, _ in story])
    messages = _read_messages(journal, events.values())
    (first_number, first), last_number = story[0], 0
    first_ms = events[first_number].time_ms
    versions = [_Version(_NOTHING, first.old, "first", first_number, time_ms=first_ms)]
    for number, change in story:
        event, message, last = events[number], messages.get(number), versions[-1].state
        is_act = event.kind in ACTS
        # If messages ran at the same time, each one's states may include the other's changes.
        is_next = is_act or last_number <= (event.since if event.since is not None else number)
        if last != change.old and is_next:
            versions.append(_Version(last, change.old, "outside", number, time_ms=event.time_ms))
        origin: LineOrigin = "outside" if is_act else "message" if message is not None else "forgotten"
        versions.append(_Version(change.old, change.new, origin, number, message, event.time_ms, is_act))
        last_number = number
    return versions


def _list_in_trees(journal: Journal, objects: Objects, path: RelPath) -> list[_Version]:
    """List the versions in the first and the last tree, for a file that no message changed."""
    versions: list[_Version] = []
    for record in (journal.first_tree(), journal.last_tree()):
        if record is not None:
            state = open_recorded(objects, record.tree, record.facts).find(path)
            before = versions[-1].state if versions else _NOTHING
            origin: LineOrigin = "outside" if versions else "first"
            if state != before:
                versions.append(_Version(before, state, origin, time_ms=record.time_s * 1000))
    return versions


def _add_present(recorded: list[_Version], present: Answer, session: Session) -> list[_Version]:
    """Add the present state if it differs: its author is the open message, or nobody."""
    last = recorded[-1].state if recorded else _NOTHING
    if last == present:
        return recorded
    message = None if session.open is None else session.read_message(session.open)
    return [*recorded, _Version(last, present, "unrecorded", BEYOND, message)]


def _read_messages(journal: Journal, events: Iterable[Event]) -> dict[int, Message]:
    """Return the message that each event ended, if it was not forgotten."""
    names = journal.session_names()
    found: dict[int, Message] = {}
    ends = [event for event in events if event.kind not in ACTS and event.forgotten_ms is None]
    for number in {event.session for event in ends}:
        own = [event for event in ends if event.session == number]
        session = Session(journal, names[number])
        rows = [session.find(event.message) for event in own if event.message is not None]
        found.update(zip((event.number for event in own), session.read_messages(rows), strict=True))
    return found


# Lines


class _Walk:
    """Finds the version that each line of the last version comes from."""

    def __init__(self, objects: Objects, versions: list[_Version], name: str) -> None:
        self._objects = objects
        self._versions = versions
        self._contents: dict[int, bytes | None] = {}
        self._steps = Steps(MAX_STEPS)
        self._found: dict[int, _Version] = {}
        self._name = name

    def list_lines(self) -> list[BlameLine]:
        """Return each line of the last version with its author."""
        last = len(self._versions) - 1
        content = self._read(last)
        if content is None:
            raise InvalidInput(f"{self._name} is binary, or too large to compare line by line")
        (text,) = split_texts(content)
        unknown = _Version(None, None, "unknown")
        try:
            self._follow(last, {place: place for place in range(len(text.lines))})
        except OutOfStepsError:
            pass
        lines = []
        for place, line in enumerate(text.lines):
            version = self._found.get(place, unknown)
            shown = line.removesuffix(b"\n").decode("utf-8", "replace")
            lines.append(BlameLine(place + 1, shown, version.origin, version.message, version.time_ms))
        return lines

    def _follow(self, at: int, lines: dict[int, int]) -> None:
        """Find the authors of lines of a version; `lines` maps their places to those in the last version."""
        while lines:
            version = self._versions[at]
            if version.is_act:
                before = reversed(range(at))
                same = next((place for place in before if self._versions[place].state == version.state), None)
                if same is None:
                    self._follow_merged(at, lines)
                    return
                at = same
                continue
            if at == 0 or self._read(at - 1) is None:
                break
            lines, written = self._compare(at - 1, at, lines)
            self._found.update(dict.fromkeys(written.values(), version))
            at -= 1
        self._found.update(dict.fromkeys(lines.values(), self._versions[at]))

    def _follow_merged(self, at: int, lines: dict[int, int]) -> None:
        """Find the authors of lines that an act merged: any earlier version may have them."""
        for place in reversed(range(max(0, at - _TRIED), at)):
            if not lines or self._read(place) is None:
                break
            kept, lines = self._compare(place, at, lines)
            self._follow(place, kept)
        self._found.update(dict.fromkeys(lines.values(), self._versions[at]))

    def _compare(self, old: int, new: int, lines: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Divide lines into those that an older version has, by their places there, and the rest."""
        before, after = split_texts(self._read(old) or b"", self._read(new) or b"")
        kept: dict[int, int] = {}
        rest = dict(lines)
        here = there = 0
        whole = Part(range(len(before.lines), len(before.lines)), range(len(after.lines), len(after.lines)))
        for part in [*find_changes(before.numbers, after.numbers, self._steps), whole]:
            # Up to the next change, both have the same lines.
            for place in range(here, part.new.start):
                if place in rest:
                    kept[place - here + there] = rest.pop(place)
            here, there = part.new.stop, part.old.stop
        return kept, rest

    def _read(self, at: int) -> bytes | None:
        """Read a version; None if it is not text, not known, or no longer stored."""
        if at not in self._contents:
            self._contents[at] = self._read_state(self._versions[at].state)
        return self._contents[at]

    def _read_state(self, state: Answer) -> bytes | None:
        if state is None:
            return b""
        if not isinstance(state, PathState) or state.is_directory:
            return None
        try:
            content = self._objects.read_small(state.blob, MAX_TEXT_BYTES)
        except TooLarge:
            return None
        except StoreDamaged:
            if any(version.origin == "forgotten" for version in self._versions):
                return None
            raise
        return None if is_binary(content) or is_too_large(content) else content
