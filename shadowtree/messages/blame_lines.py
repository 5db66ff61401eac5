"""Which message each line of a file comes from.

The versions of the file are walked from the newest back. A line that the version before does not have was
written by whoever made this one; the others are looked for further back. What an act brought back is as old
as the version that it came from, so that the walk goes on there:

    v0 ── m1 ──▶ v1 ── m2 ──▶ v2 ── undo ──▶ v1 ── now
                  ▲                           │
                  └───────────────────────────┘

All of it has one budget of steps; of lines that are left when it ends nobody knows the author.
"""

from __future__ import annotations

from shadowtree.base.errors import InvalidInput, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import PathState, RelPath, Unknown, is_file, to_text
from shadowtree.capture.capture import Site, look
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory, open_recorded
from shadowtree.messages.blame import read_messages
from shadowtree.results.messages import BlameLine, Message
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
from shadowtree.timeline.schema import ACTS
from shadowtree.timeline.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer
    from shadowtree.results.messages import LineOrigin

_TRIED = 8
"""With so many versions before it what an act merged is compared."""


@frozen
class _Version:
    """A content of the file, and whose it is."""

    state: Answer
    origin: LineOrigin
    message: Message | None = None
    time_ms: int | None = None
    is_act: bool = False
    """An act put it there, so that its lines may come from any version before."""


def blame_lines(opened: OpenStore, site: Site, session_name: str, path: RelPath) -> list[BlameLine]:
    """List the lines of a file as it is now, each with whoever wrote it, in whatever session."""
    opened.refresh()
    name = to_text(path) or "."
    with look(site, opened, file_bytes=site.limits.diff_bytes) as (objects, root):
        present = root.find(path)
        if isinstance(present, Unknown):
            raise UnknownName(name, f"{name} is not recorded: {present.reason}")
        if not is_file(present):
            raise UnknownName(name, f"there is no file {name}")
        versions = [*_list_recorded(opened.journal, objects, path)]
        if not versions or versions[-1].state != present:
            session = Session(opened.journal, session_name)
            message = None if session.open is None else session.read_message(session.open)
            versions.append(_Version(present, "unrecorded", message))
        return _Walk(objects, versions, name).list_lines()


def _list_recorded(journal: Journal, objects: Objects, path: RelPath) -> list[_Version]:
    """List what was ever recorded of a file, oldest first; what nobody announced stands in between."""
    story = journal.story_of(path)
    if not story:
        return _list_in_trees(journal, objects, path)
    events = journal.events([number for number, _ in story])
    messages = read_messages(journal, events.values())
    versions = [_Version(story[0][1].old, "first", time_ms=events[story[0][0]].time_ms)]
    last_number = 0
    for number, change in story:
        event, message = events[number], messages.get(number)
        is_act = event.kind in ACTS
        # Of messages that ran side by side each saw the other's changes.
        is_next = is_act or last_number <= (event.since if event.since is not None else number)
        if versions[-1].state != change.old and is_next:
            versions.append(_Version(change.old, "outside", time_ms=event.time_ms))
        origin: LineOrigin = "outside" if is_act else "message" if message is not None else "forgotten"
        versions.append(_Version(change.new, origin, message, event.time_ms, is_act))
        last_number = number
    return versions


def _list_in_trees(journal: Journal, objects: Objects, path: RelPath) -> list[_Version]:
    """Find what the first and the last tree say of a file that no message changed."""
    versions: list[_Version] = []
    for record in (journal.first_tree(), journal.last_tree()):
        if record is not None:
            root: RecordedDirectory = open_recorded(objects, record.tree, record.facts)
            state = root.find(path)
            if not versions or versions[-1].state != state:
                origin: LineOrigin = "outside" if versions else "first"
                versions.append(_Version(state, origin, time_ms=record.time_s * 1000))
    return versions


class _Walk:
    """Finds the version that each line of the last one comes from."""

    def __init__(self, objects: Objects, versions: list[_Version], name: str) -> None:
        self._objects = objects
        self._versions = versions
        self._contents: dict[int, bytes | None] = {}
        self._steps = Steps(MAX_STEPS)
        self._found: dict[int, _Version] = {}
        self._name = name

    def list_lines(self) -> list[BlameLine]:
        """Give each line of the last version with its author."""
        last = len(self._versions) - 1
        content = self._read(last)
        if content is None:
            raise InvalidInput(f"{self._name} is binary, or too large to compare line by line")
        (text,) = split_texts(content)
        unknown = _Version(None, "unknown")
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
        """Find the authors of some lines of a version: by their places there, the places in the last one."""
        while lines:
            version = self._versions[at]
            if version.is_act:
                same = self._find_same(at)
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

    def _find_same(self, at: int) -> int | None:
        """Find the version that an act brought back."""
        state = self._versions[at].state
        return next((place for place in reversed(range(at)) if self._versions[place].state == state), None)

    def _follow_merged(self, at: int, lines: dict[int, int]) -> None:
        """Find where the lines come from that an act put together: any version before may have them."""
        for place in reversed(range(max(0, at - _TRIED), at)):
            if not lines or self._read(place) is None:
                break
            kept, lines = self._compare(place, at, lines)
            self._follow(place, kept)
        self._found.update(dict.fromkeys(lines.values(), self._versions[at]))

    def _compare(self, old: int, new: int, lines: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Divide lines of one version into those that another has, by their places there, and the rest."""
        before, after = split_texts(self._read(old) or b"", self._read(new) or b"")
        kept: dict[int, int] = {}
        rest = dict(lines)
        here = there = 0
        whole = Part(range(len(before.lines), len(before.lines)), range(len(after.lines), len(after.lines)))
        for part in [*find_changes(before.numbers, after.numbers, self._steps), whole]:
            # Up to the next change both have the same lines.
            for place in range(here, part.new.start):
                if place in rest:
                    kept[place - here + there] = rest.pop(place)
            here, there = part.new.stop, part.old.stop
        return kept, rest

    def _read(self, at: int) -> bytes | None:
        """Read a version; None: it is no text, not known, or not there any more."""
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
