"""A second opinion on worktrees and sessions: plain copies, and the contract read anew.

Nothing of shadowtree is used here. A worktree is read as a dict, from the path to what is there; what a
snapshot covers, what a message changed and where an undo leads is worked out from such dicts alone.
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
    """Nobody can say what was at a path."""

    is_sure: bool = True
    """False: the contract does not say so clearly, and either reading will do."""


DIRECTORY = Directory()
UNKNOWN = Unknown()
UNSURE = Unknown(is_sure=False)

Entry = File | Link | Directory
Answer = Entry | Unknown | None
Disk = dict[str, Entry]
Marks = dict[str, tuple[int, int]]
"""For each path inode and mtime."""
Changes = dict[str, tuple[Answer, Answer]]


def read_disk(root: Path) -> tuple[Disk, Marks]:
    """Copy all that is below a directory."""
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
    """Name the directories above a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def is_below(path: str, above: str) -> bool:
    """Tell whether a path is one, or below one."""
    return path == above or path.startswith(above + "/")


def blob_of(entry: object) -> str | None:
    """Give the id that git has for the content of a file or link."""
    if isinstance(entry, File | Link):
        content = entry.content if isinstance(entry, File) else entry.target
        return sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
    return None


def mode_of(entry: object) -> int | None:
    """Give the mode that a patch has for a file or link."""
    if isinstance(entry, File):
        return stat.S_IFREG | entry.mode
    return stat.S_IFLNK if isinstance(entry, Link) else None


def is_file(answer: object) -> bool:
    """Tell whether it is a file or a link."""
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
            # Segment by segment: a star does not reach over a slash.
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
    """The rules that the files of a worktree make, in the order of the contract's section 3."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._own = _read_patterns(disk.get(".shadowtreeignore"), "")
        self._places: dict[str, str] = {}
        self._patterns: dict[str, list[_Pattern]] = {}

    def place(self, directory: str) -> str:
        """Tell what a directory is: `normal`, `forced`, `left out by own rules` or `left out`."""
        if not directory:
            return "normal"
        if directory not in self._places:
            self._places[directory] = self._judge(directory, is_directory=True)
        return self._places[directory]

    def judge_file(self, path: str) -> str:
        """Tell the same of a file."""
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
    """A worktree at one moment, and what of it a snapshot covers."""

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
        """Tell what was at a path that had or has a file."""
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
        """Tell what was at a path that had or has a directory."""
        is_plain = self.rules.place(path) in ("normal", "forced")
        if path in self.directories:
            return DIRECTORY if is_plain or path in self.holding else UNKNOWN
        if path in self.covered:
            return self.disk[path]
        if not is_plain or any(above in self.skipped for above in ancestors(path)):
            return UNKNOWN
        return UNSURE if path in self.disk else None


def compare(old: Seen, new: Seen) -> Changes:
    """List what changed, as a patch does, and directories."""
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
    """Leave the changes at these paths and below, and directories that lead there."""
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
    """A message, as the model has it."""

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
    """The state when a step of it ended last."""
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
    """What a path shall be, and what the timeline says that it is."""

    target: Answer
    expected: Answer
    is_troubled: bool = False
    """It holds somebody's edit, or another session changed it: a conflict, whatever it is now."""
    edits: list[Answer] = field(default_factory=list)
    """States that hold somebody's edit: in the way as long as the path is in one of them."""
    plain: list[Answer] = field(default_factory=list)
    """States that hold none."""
    is_vague: bool = False
    """Nobody knows all of its story, so that a conflict would be right, and none too."""


class Session:
    """One session: its messages, where it stands, and what it did."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: dict[str, Message] = {}
        self.forgotten: set[str] = set()
        self.pinned: set[str] = set()
        self.story: list[Happening] = []
        self.acts: list[Act] = []
        """Those that can be taken back."""
        self.has_lost_acts = False
        """There may be more of them, from before something was forgotten."""
        self.taken_back: list[tuple[int, int]] = []
        """Acts and the unreverts that took them back: what lies between does not count any more."""
        self.place = Place()
        self.open: str | None = None
        self.open_steps: list[str] = []
        self.last: Seen | None = None
        """The state last known to it."""
        self.last_number = 0
        self.ever_out: frozenset[str] = frozenset()
        """What was ever taken out: undoing a later message may bring something of it back, which stays."""
        self.vague_until = 0
        """Acts over something older than this may be refused or not: nobody worked out what they find."""

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
        """Name the state of a message."""
        if id == self.open:
            return "open"
        if id in self.place.out:
            return "undone"
        if any(message.id == id for message in self.walk_back(self.place.head)):
            return "active"
        line = self.walk_back(self.place.tip, self.place.head)
        return "undone" if any(message.id == id for message in line) else "archived"

    def begin_at(self, id: str) -> None:
        """Let a new message be the head; what is undone is archived, with all that is out of that part."""
        line = {message.id for message in self.walk_back(self.place.head)}
        self.place = Place(id, id, self.place.out & line)
        # No unrevert passes over a message.
        self.acts.clear()
        self.has_lost_acts = False

    # Which messages an act goes over, the oldest first; none beyond one that is forgotten

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
        """Choose what is undone on the way to just before a message, or redone (True)."""
        back = [message.id for message in self.walk_back(self.place.head)]
        is_forward = id not in back
        if is_forward:
            way = [message.id for message in self.walk_back(self.place.tip, self.place.head)[::-1]]
            way = way[: way.index(id)]
        else:
            way = back[: back.index(id) + 1][::-1]
        return [self.messages[each] for each in way if each not in self.place.out], is_forward


Others = Callable[[str, int], str]
"""Tells whether another session changed a path after an event: `no`, `yes` or `perhaps`."""


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
    """Wish all that is covered to what it was; what is covered now is expected to be as it is."""
    return {
        path: Wish(new, old, is_vague=old == UNSURE or new == UNSURE)
        for path, (old, new) in compare(now, then).items()
        # What is not covered now and was not there is nobody's business.
        if not (old == UNKNOWN and new is None)
    }


def doubt(wishes: dict[str, Wish], then: Seen) -> dict[str, Wish]:
    """Let either reading do for what the tree that an act goes back to does not know, but a later does."""
    for path, wish in wishes.items():
        wish.is_vague |= isinstance(then.find_file(path), Unknown)
    return wishes


def _go_on(wish: Wish, happening: Happening, old: Answer, new: Answer) -> None:
    if happening.message is None and old == new:
        # An act found it as it was wished: that is agreed upon now.
        wish.edits = [edit for edit in wish.edits if edit != old]
    elif _is_vague(old, new):
        wish.is_vague = True
    elif old in wish.edits or (not isinstance(wish.expected, Unknown) and old != wish.expected):
        # A message that goes on from an edit holds it; an act that replaces it does not.
        holding = [old] if happening.message is None else [old, new]
        wish.edits += [state for state in holding if state not in wish.plain]
    else:
        wish.plain.append(new)
    wish.expected = new


def _is_vague(*answers: Answer) -> bool:
    return any(isinstance(answer, Unknown) for answer in answers)
