"""A second opinion on worktrees and sessions: plain copies, and an independent reading of the contract.

Nothing of shadowtree is used here. A worktree is read as a dict from paths to entries; what a snapshot
covers, what a message changed and where an undo leads is computed from such dicts alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from tests.support.trees import File, Link


@dataclass(frozen=True)
class Directory:
    """A directory; its mode is not recorded."""


@dataclass(frozen=True)
class Unknown:
    """It is unknown what was at a path."""

    is_sure: bool = True
    """False: the contract is not clear about it, and either reading is right."""


DIRECTORY = Directory()
UNKNOWN = Unknown()
UNSURE = Unknown(is_sure=False)

Entry = File | Link | Directory
Answer = Entry | Unknown | None
Disk = dict[str, Entry]
Marks = dict[str, tuple[int, int]]
"""The inode and mtime of each path."""
Changes = dict[str, tuple[Answer, Answer]]


def read_disk(root: Path) -> tuple[Disk, Marks]:
    """Copy everything below a directory."""
    disk: Disk = {}
    marks: Marks = {}
    waiting = [(str(root), "")]
    while waiting:
        directory, prefix = waiting.pop()
        for entry in os.scandir(directory):
            path = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            marks[path] = status.st_ino, status.st_mtime_ns
            if stat.S_ISDIR(status.st_mode):
                disk[path] = DIRECTORY
                waiting.append((entry.path, path + "/"))
            elif stat.S_ISLNK(status.st_mode):
                disk[path] = Link(os.fsencode(os.readlink(entry.path)))
            else:
                with open(entry.path, "rb") as file:
                    disk[path] = File(file.read(), stat.S_IMODE(status.st_mode))
    return disk, marks


def ancestors(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def is_below(path: str, above: str) -> bool:
    """Return whether a path is `above`, or below it."""
    return path == above or path.startswith(above + "/")


def blob_of(entry: object) -> str | None:
    """Return git's id for the content of a file or link."""
    if isinstance(entry, File | Link):
        content = entry.content if isinstance(entry, File) else entry.target
        return sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
    return None


def mode_of(entry: object) -> int | None:
    """Return the mode that a patch has for a file or link."""
    if isinstance(entry, File):
        return stat.S_IFREG | entry.mode
    return stat.S_IFLNK if isinstance(entry, Link) else None


def is_file(answer: object) -> bool:
    """Return whether an answer is a file or a link."""
    return isinstance(answer, File | Link)


# What is covered


@dataclass(frozen=True)
class _Pattern:
    base: str
    text: str
    is_negative: bool
    is_for_directories: bool

    def matches(self, path: str, is_directory: bool) -> bool:
        if self.is_for_directories and not is_directory:
            return False
        relative = path[len(self.base) + 1 :] if self.base else path
        if "/" in self.text:
            # Segment by segment: a star does not match a slash.
            parts, wanted = relative.split("/"), self.text.lstrip("/").split("/")
            return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
        return fnmatchcase(relative.rpartition("/")[2], self.text)


def _read_patterns(entry: Entry | None, base: str) -> list[_Pattern]:
    if not isinstance(entry, File):
        return []
    lines = [line for line in entry.content.decode().split("\n") if line]
    return [
        _Pattern(base, line.lstrip("!").removesuffix("/"), line.startswith("!"), line.endswith("/"))
        for line in lines
    ]


def _verdict(patterns: list[_Pattern], path: str, is_directory: bool) -> bool | None:
    found = None
    for pattern in patterns:
        if pattern.matches(path, is_directory):
            found = not pattern.is_negative
    return found


HEAVY = {"node_modules"}


class Rules:
    """The rules of a worktree's files, in the order of the contract's section 3."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._own = _read_patterns(disk.get(".shadowtreeignore"), "")
        self._places: dict[str, str] = {}
        self._patterns: dict[str, list[_Pattern]] = {}

    def place(self, directory: str) -> str:
        """Return what a directory is: `normal`, `forced`, `left out by own rules` or `left out`."""
        if not directory:
            return "normal"
        if directory not in self._places:
            self._places[directory] = self._judge(directory, is_directory=True)
        return self._places[directory]

    def judge_file(self, path: str) -> str:
        """Return what a file is, in the words of `place`."""
        return self._judge(path, is_directory=False)

    def _judge(self, path: str, *, is_directory: bool) -> str:
        parent, _, name = path.rpartition("/")
        above = self.place(parent)
        own = _verdict(self._own, path, is_directory)
        if own is not None:
            return "left out by own rules" if own else "forced"
        if above in ("forced", "left out by own rules", "left out"):
            return above
        if is_directory and name in HEAVY:
            return "left out"
        return "left out" if _verdict(self._git(parent), path, is_directory) else "normal"

    def _git(self, directory: str) -> list[_Pattern]:
        if directory not in self._patterns:
            above = self._git(directory.rpartition("/")[0]) if directory else []
            file = f"{directory}/.gitignore" if directory else ".gitignore"
            self._patterns[directory] = above + _read_patterns(self._disk.get(file), directory)
        return self._patterns[directory]


class Seen:
    """A worktree at one moment, and which paths a snapshot covers."""

    def __init__(self, disk: Disk, largest: int, was_covered: set[str]) -> None:
        self.disk = disk
        self.rules = Rules(disk)
        self.covered: set[str] = set()
        self.skipped: set[str] = set()
        for path, entry in disk.items():
            if entry == DIRECTORY:
                continue
            verdict = self.rules.judge_file(path)
            if verdict in ("left out", "left out by own rules"):
                continue
            is_large = isinstance(entry, File) and len(entry.content) > largest
            if verdict == "normal" and is_large and path not in was_covered:
                self.skipped.add(path)
            else:
                self.covered.add(path)

    @cached_property
    def holding(self) -> set[str]:
        """The directories that hold something covered."""
        return {above for path in self.covered for above in ancestors(path)}

    @cached_property
    def directories(self) -> set[str]:
        """All directories."""
        return {path for path, entry in self.disk.items() if entry == DIRECTORY}

    def find_file(self, path: str) -> Answer:
        """Return what was at a path that had or has a file."""
        if path in self.covered:
            return self.disk[path]
        if path in self.directories:
            return DIRECTORY if self.find_directory(path) == DIRECTORY else UNSURE
        if self.rules.judge_file(path) in ("left out", "left out by own rules"):
            return UNKNOWN
        if path in self.skipped or any(above in self.skipped for above in ancestors(path)):
            return UNKNOWN
        return None

    def find_directory(self, path: str) -> Answer:
        """Return what was at a path that had or has a directory."""
        is_plain = self.rules.place(path) in ("normal", "forced")
        if path in self.directories:
            return DIRECTORY if is_plain or path in self.holding else UNKNOWN
        if path in self.covered:
            return self.disk[path]
        if not is_plain or any(above in self.skipped for above in ancestors(path)):
            return UNKNOWN
        return UNSURE if path in self.disk else None


def compare(old: Seen, new: Seen) -> Changes:
    """List what changed, as a patch does, plus directories."""
    changes: Changes = {}
    files = old.covered | new.covered | old.skipped | new.skipped
    for path in files:
        before, after = old.find_file(path), new.find_file(path)
        if before != after and not (isinstance(before, Unknown) and isinstance(after, Unknown)):
            changes[path] = before, after
    for path in (old.directories | new.directories) - files:
        before, after = old.find_directory(path), new.find_directory(path)
        if before != after and UNKNOWN not in (before, after):
            changes[path] = before, after
    return changes


def compare_disks(old: Disk, new: Disk) -> Changes:
    """List what differs between two copies, covered or not."""
    return {
        path: (old.get(path), new.get(path))
        for path in old.keys() | new.keys()
        if old.get(path) != new.get(path)
    }


def attribute(changes: Changes, paths: list[str]) -> Changes:
    """Keep only the changes at these paths and below, and those of directories that lead there."""
    own = {path for path in changes if any(is_below(path, each) for each in paths)}
    own |= {above for path in own for above in ancestors(path) if above in changes}
    return {
        path: change
        for path, change in changes.items()
        if any(is_below(path, each) for each in paths) or (path in own and not any(map(is_file, change)))
    }


# Sessions


@dataclass
class Happening:
    """Something that a session did to paths."""

    number: int
    since: int
    changes: Changes
    message: str | None = None


@dataclass
class Message:
    """A message in the model."""

    id: str
    text: str
    parent: str | None
    starts_turn: bool
    before: Seen
    began: int
    after: Seen | None = None
    changes: Changes = field(default_factory=dict)
    steps: dict[str, Seen] = field(default_factory=dict)
    last_step: Seen | None = None
    """The state when its last step ended."""
    last_step_number: int = 0
    ended: Happening | None = None


class Place(NamedTuple):
    """Where a session stands: the last message in force, the end of its line, what is out of the line."""

    head: str | None = None
    tip: str | None = None
    out: frozenset[str] = frozenset()


@dataclass
class Act:
    """An undo, redo, revert, switch or restore that was done."""

    number: int
    seen: Seen
    disk_before: Disk
    disk_after: Disk
    place: Place
    """Where the session stood before it."""
    branches: frozenset[str] = frozenset()
    """The names of the branches before it."""


@dataclass
class Wish:
    """What a path is to become, and what it is according to the timeline."""

    target: Answer
    expected: Answer
    is_troubled: bool = False
    """It has an edit by somebody else, or another session changed it: a conflict, whatever it is now."""
    edits: list[Answer] = field(default_factory=list)
    """States with somebody else's edit: a conflict while the path is in one of them."""
    plain: list[Answer] = field(default_factory=list)
    """States without such an edit."""
    is_vague: bool = False
    """Its whole story is unknown, so both a conflict and no conflict are right."""


class Session:
    """One session: its messages, where it stands, and what it did."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: dict[str, Message] = {}
        self.forgotten: set[str] = set()
        self.pinned: set[str] = set()
        self.story: list[Happening] = []
        self.acts: list[Act] = []
        """The acts that can be reversed."""
        self.has_lost_acts = False
        """There may be more acts to reverse, from before something was forgotten."""
        self.taken_back: list[tuple[int, int]] = []
        """Acts and the unreverts that reversed them: what lies between does not count any more."""
        self.place = Place()
        self.open: str | None = None
        self.open_steps: list[str] = []
        self.last: Seen | None = None
        """The state last known to it."""
        self.last_number = 0
        self.ever_out: frozenset[str] = frozenset()
        """All messages that were ever out: undoing a later one may bring back changes of them, which stay."""
        self.vague_until = 0
        """Acts over something older than this may be refused or not: the model cannot tell what they find."""

    # Where it stands

    def walk_back(self, id: str | None, until: str | None = None) -> list[Message]:
        """List messages from one back to the first, the newest first."""
        found = []
        while id is not None and id != until:
            found.append(self.messages[id])
            id = found[-1].parent
        return found

    @property
    def in_force(self) -> list[Message]:
        """The messages in force, the newest first."""
        return [each for each in self.walk_back(self.place.head) if each.id not in self.place.out]

    @property
    def undone(self) -> list[Message]:
        """The messages after the head that redo can reach, oldest first."""
        line = self.walk_back(self.place.tip, self.place.head)[::-1]
        return [each for each in line if each.id not in self.place.out]

    @property
    def finished_head(self) -> str | None:
        """The last finished message in force."""
        finished = [message.id for message in self.in_force if message.id != self.open]
        return finished[0] if finished else None

    @property
    def live(self) -> list[Message]:
        """The messages that were not forgotten, oldest first."""
        return [message for message in self.messages.values() if message.id not in self.forgotten]

    def state_of(self, id: str) -> str:
        """Return the state of a message."""
        if id == self.open:
            return "open"
        if id in self.place.out:
            return "undone"
        if any(message.id == id for message in self.walk_back(self.place.head)):
            return "active"
        line = self.walk_back(self.place.tip, self.place.head)
        return "undone" if any(message.id == id for message in line) else "archived"

    def begin_at(self, id: str) -> None:
        """Make a new message the head; the undone messages are archived, also those of them that are out."""
        line = {message.id for message in self.walk_back(self.place.head)}
        self.place = Place(id, id, self.place.out & line)
        # No unrevert goes back past a message.
        self.acts.clear()
        self.has_lost_acts = False

    # Which messages an act passes, the oldest first; none beyond a forgotten one

    def choose_undo(self, turns: int) -> list[Message]:
        """Choose the messages of the last turns."""
        chosen: list[Message] = []
        has_begun = False
        for message in self.walk_back(self.place.head):
            if message.id in self.forgotten:
                break
            if message.id not in self.place.out:
                chosen.insert(0, message)
                has_begun = True
            if has_begun and message.starts_turn:
                has_begun = False
                turns -= 1
                if not turns:
                    break
        return chosen

    def choose_redo(self, turns: int | None) -> list[Message]:
        """Choose the undone messages of the next turns."""
        chosen: list[Message] = []
        count = 0
        has_begun = False
        for message in self.walk_back(self.place.tip, self.place.head)[::-1]:
            has_begun = has_begun and not message.starts_turn
            if message.id in self.place.out:
                continue
            if (not has_begun and count == turns) or message.id in self.forgotten:
                break
            count += not has_begun
            has_begun = True
            chosen.append(message)
        return chosen

    def choose_revert(self, id: str) -> tuple[list[Message], bool]:
        """Choose the messages to undo, or to redo (True), on the way to just before a message."""
        back = [message.id for message in self.walk_back(self.place.head)]
        is_forward = id not in back
        if is_forward:
            way = [message.id for message in self.walk_back(self.place.tip, self.place.head)[::-1]]
            way = way[: way.index(id)]
        else:
            way = back[: back.index(id) + 1][::-1]
        return [self.messages[each] for each in way if each not in self.place.out], is_forward


Others = Callable[[str, int], str]
"""Returns whether another session changed a path after an event: `no`, `yes` or `perhaps`."""


def wish_back(
    over: set[int], story: list[Happening], others: Others, since: int | None = None
) -> dict[str, Wish]:
    """Wish every path that some happenings changed to what it was before the first of them."""
    wishes: dict[str, Wish] = {}
    for happening in story:
        for path, (old, new) in happening.changes.items():
            if path in wishes:
                _go_on(wishes[path], happening, old, new)
            elif happening.number in over and old != new:
                wish = wishes[path] = Wish(old, new, is_vague=_is_vague(old, new), plain=[old, new])
                other = others(path, happening.since if since is None else since)
                wish.is_troubled |= other == "yes"
                wish.is_vague |= other == "perhaps"
    for path, wish in wishes.items():
        wish.is_troubled |= wish.expected in wish.edits
        if not _is_in_patch(path, over, story):
            wish.target = UNKNOWN
    return wishes


def _is_in_patch(path: str, over: set[int], story: list[Happening]) -> bool:
    return any(h.number in over and UNKNOWN not in h.changes[path] for h in story if path in h.changes)


def wish_forward(over: set[int], story: list[Happening], others: Others) -> dict[str, Wish]:
    """Wish every path that some happenings changed to what it was after the last of them."""
    wishes: dict[str, Wish] = {}
    for happening in story:
        for path, (old, new) in happening.changes.items():
            if path in wishes:
                _go_on(wishes[path], happening, old, new)
            elif happening.number in over:
                wishes[path] = Wish(new, new, is_vague=_is_vague(old, new), plain=[old, new])
            if happening.number in over:
                wishes[path].target = new
    for path, wish in wishes.items():
        if not _is_in_patch(path, over, story):
            wish.target = UNKNOWN
        first = next(h for h in story if h.number in over and path in h.changes)
        other = others(path, first.since)
        wish.is_troubled |= other == "yes" or wish.expected in wish.edits
        wish.is_vague |= other == "perhaps"
    return wishes


def wish_tree(now: Seen, then: Seen) -> dict[str, Wish]:
    """Wish everything that was covered to what it was; what is covered now is expected to be as it is."""
    return {
        path: Wish(new, old, is_vague=old == UNSURE or new == UNSURE)
        for path, (old, new) in compare(now, then).items()
        # What is not covered now and was absent then does not matter.
        if not (old == UNKNOWN and new is None)
    }


def doubt(wishes: dict[str, Wish], then: Seen) -> dict[str, Wish]:
    """Accept either reading for paths that are unknown in the tree that an act goes back to."""
    for path, wish in wishes.items():
        wish.is_vague |= isinstance(then.find_file(path), Unknown)
    return wishes


def _go_on(wish: Wish, happening: Happening, old: Answer, new: Answer) -> None:
    if happening.message is None and old == new:
        # An act found the path as it was wished, so this state is accepted from now on.
        wish.edits = [edit for edit in wish.edits if edit != old]
    elif _is_vague(old, new):
        wish.is_vague = True
    elif old in wish.edits or (not isinstance(wish.expected, Unknown) and old != wish.expected):
        # A message that continues from an edit contains it; an act that replaces the edit does not.
        holding = [old] if happening.message is None else [old, new]
        wish.edits += [state for state in holding if state not in wish.plain]
    else:
        wish.plain.append(new)
    wish.expected = new


def _is_vague(*answers: Answer) -> bool:
    return any(isinstance(answer, Unknown) for answer in answers)
