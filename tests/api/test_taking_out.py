"""Random histories: one message is reverted alone, and merges keep others' edits.

The expected result is computed separately: by replaying the messages without the reverted ones if their
changes do not overlap, and by `git merge-file` if they may. Every history has a seed, which a failure names.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Outcome, Shadow
from tests.api.test_revert import replace_tree
from tests.support.histories import Branching, History, Place, history
from tests.support.modelled import DIRECTORY, Disk, Entry, ancestors, is_below
from tests.support.trees import File, Link, Tree, assert_tree

MODES = [0o644, 0o600, 0o755]

# Worktrees whose texts have slots far apart, each of which is edited separately


SLOTS = 6


@dataclass(frozen=True)
class Text:
    """A text: lines that nobody touches, and slots for others between them."""

    name: str
    slots: tuple[tuple[str, ...], ...]
    mode: int = 0o644
    ending: str = "\n"
    is_ended: bool = True
    """The last line has a line break too."""

    def to_file(self) -> File:
        lines: list[str] = []
        for number, slot in enumerate(self.slots):
            lines += slot
            if number < len(self.slots) - 1:
                lines += [f"{self.name} {number}.{each} stays" for each in range(4)]
        content = self.ending.join(lines) + self.ending * self.is_ended
        return File(content.encode(), self.mode)


State = dict[str, "Text | Entry"]


@dataclass(frozen=True)
class Op:
    """A change of a message in one place: a slot of a text, the bits of a file, or a whole path."""

    path: str
    slot: int | None = None
    lines: tuple[str, ...] = ()
    mode: int | None = None
    whole: Text | Entry | None = None

    @property
    def is_whole(self) -> bool:
        return self.slot is None and self.mode is None

    def overlaps(self, other: Op) -> bool:
        if self.path == other.path:
            return self.is_whole or other.is_whole or self.slot == other.slot
        return is_below(self.path, other.path) or is_below(other.path, self.path)

    def apply(self, state: State) -> None:
        there = state.get(self.path)
        if self.slot is not None and isinstance(there, Text):
            slots = list(there.slots)
            slots[self.slot] = self.lines
            state[self.path] = replace(there, slots=tuple(slots))
        elif self.mode is not None and isinstance(there, Text | File):
            state[self.path] = replace(there, mode=self.mode)
        elif self.is_whole:
            for path in [path for path in state if is_below(path, self.path)]:
                del state[path]
            if self.whole is not None:
                state[self.path] = self.whole


def render(state: State) -> Disk:
    """Return the tree of a state; a directory exists only if it contains something."""
    disk: Disk = {}
    for path, entry in state.items():
        disk[path] = entry.to_file() if isinstance(entry, Text) else entry
        disk.update(dict.fromkeys(ancestors(path), DIRECTORY))
    return disk


def make_text(name: str, **look: object) -> Text:
    return Text(name, tuple((f"{name} slot {n}",) for n in range(SLOTS)), **look)  # type: ignore[arg-type]


FIRST: State = {
    "t": make_text("t"),
    "d/t": make_text("dt", ending="\r\n", mode=0o755),
    "d/e/t": make_text("det", is_ended=False),
    "u": make_text("u", mode=0o600),
    "bin": File(b"\0\1"),
    "gone": File(b"gone\n"),
    "d/gone": File(b"", 0o600),
    "link": Link(b"t"),
    "empty": DIRECTORY,
}
PATHS = [*FIRST, "new", "new2", "n/a", "n/b", "n/c/d", "d/new", "m/a"]


class Replaying(Branching):
    """A history that can be replayed without some of its messages."""

    def __init__(self, made: History) -> None:
        self.ops: dict[str, list[Op]] = {}
        self.random = made.random
        self.count = 0
        super().__init__(made)
        made.make(render(FIRST))
        made.shadow.wrap()
        self.copies[None] = made.disk

    # The replay

    def replay(self, place: Place) -> State:
        state = dict(FIRST)
        for id in reversed(self.walk(place.head)):
            if id not in place.out:
                for op in self.ops[id]:
                    op.apply(state)
        return state

    def is_clean(self, id: str, others: Iterable[str]) -> bool:
        """Return whether the changes of a message do not overlap those of some others."""
        return not any(
            one.overlaps(two)
            for other in others
            if other != id
            for one in self.ops[id]
            for two in self.ops[other]
        )

    # Steps

    def say(self) -> None:
        """Record a message that changes something somewhere, usually away from others' changes."""
        state = self.replay(self.place)
        taken = [op for id in self.walk(self.place.head) for op in self.ops[id]]
        ops: list[Op] = []
        for _ in range(self.random.randint(1, 5)):
            drawn = (self.draw_op(state) for _ in range(8))
            op = next((op for op in drawn if self.is_free(op, taken)), None)
            if op is not None and not any(op.overlaps(other) for other in ops):
                ops.append(op)
        self.do(ops, self.random.choice(["both", "both", "snapshot", "open"]))

    def is_free(self, op: Op, taken: list[Op]) -> bool:
        return not any(op.overlaps(other) for other in taken) or self.random.random() < 0.05

    def do(self, ops: list[Op], style: str) -> None:
        """Record a message."""
        state = self.replay(self.place)
        wanted = dict(state)
        for op in ops:
            op.apply(wanted)
        # A snapshot ends the open message first, so this still belongs to that message.
        is_late = style == "snapshot" and self.open is not None
        self.ops[f"id-{len(self.parents) + 1}"] = [] if is_late else ops
        if is_late:
            assert self.open is not None
            self.ops[self.open] = [*self.ops[self.open], *ops]
        self.made.tell(f"{ops}")
        old, new = render(state), render(wanted)
        gone = [path for path in old if path not in new]
        puts: list[tuple[str, Entry | None]] = [
            (path, None) for path in gone if not any(above in gone for above in ancestors(path))
        ]
        puts += [(path, new[path]) for path in sorted(new) if old.get(path) != new[path]]
        self.message(style, puts)
        assert self.made.disk == new, "the test itself is right"

    def draw_op(self, state: State) -> Op:
        rand = self.random
        self.count += 1
        texts = [path for path, entry in state.items() if isinstance(entry, Text)]
        files = [path for path, entry in state.items() if isinstance(entry, Text | File)]
        kind = rand.choice(["slot"] * 8 + ["mode"] * 2 + ["delete", "make", "make", "make"])
        if kind == "slot" and texts:
            lines = tuple(f"line {self.count}.{each}" for each in range(rand.choice([0, 1, 1, 2, 3])))
            return Op(rand.choice(texts), slot=rand.randrange(SLOTS), lines=lines)
        if kind == "mode" and files:
            path = rand.choice(files)
            present = state[path]
            assert isinstance(present, Text | File)
            return Op(path, mode=rand.choice([mode for mode in MODES if mode != present.mode]))
        if kind == "delete" and state:
            return Op(rand.choice(list(state)))
        path = rand.choice(PATHS)
        if any(above in state for above in ancestors(path)):
            # Not below a file, and an empty directory stays.
            path = f"made {self.count}"
        content = f"{self.count}\n".encode()
        whole: list[Text | Entry] = [
            make_text(f"made {self.count}"),
            File(content, rand.choice(MODES)),
            File(b"\0" + content),
            Link(b"to %d" % self.count),
            DIRECTORY,
        ]
        return Op(path, whole=rand.choice(whole))

    def take_one_out(self) -> None:
        """Revert a message alone that does not overlap any other of the line."""
        line = self.walk(self.place.tip)
        chosen = [id for id in self.in_force if self.is_clean(id, line)]
        if chosen:
            self.take_out(list(self.parents).index(self.random.choice(chosen)))

    def act(self, act: Callable[[], Outcome], place: Place, *, is_complete: bool = True) -> None:
        before, was = self.made.disk, self.place
        outcome = act()
        if place == was:
            assert outcome.notes
            assert self.made.disk == before
            return
        self.end_open()
        self.place = place
        self.acts.append((before, was))
        assert_disk(self.made.disk, render(self.replay(place)))
        assert outcome.complete == is_complete


def assert_disk(found: Disk, wanted: Disk) -> None:
    """Compare two worktrees, and show only the differences."""
    differing = {
        path: (found.get(path), wanted.get(path))
        for path in found.keys() | wanted.keys()
        if found.get(path) != wanted.get(path)
    }
    assert not differing


def run_replay(seed: int, count: int) -> None:
    with history(seed) as made:
        told = Replaying(made)
        rand = made.random
        for _ in range(rand.randint(3, 7)):
            told.say()
        told.check()
        for _ in range(count):
            step(
                told,
                rand.choice(["say"] * 3 + ["out"] * 5 + ["undo", "redo"] * 3 + ["switch", "unrevert"] * 2),
            )
            told.check()
        walk_the_line(told)
        told.check()


def step(told: Replaying, kind: str) -> None:
    rand = told.random
    if kind == "say":
        told.say()
    elif kind == "out":
        told.take_one_out()
    elif kind == "undo":
        told.undo(rand.choice([1, 1, 2, 3]))
    elif kind == "redo":
        told.redo(rand.choice([1, 2, None]))
    elif kind == "switch":
        told.switch(rand.randrange(50))
    else:
        told.unrevert()


def walk_the_line(told: Replaying) -> None:
    """Undo everything one by one, and redo it: every prefix equals its replay."""
    while told.in_force:
        told.undo(1)
    while told.undone:
        told.redo(1)
    told.undo(len(told.in_force) or 1)
    told.redo(None)


@pytest.mark.parametrize("seed", range(6))
def test_taking_out_messages_equals_replaying_the_history_without_them(seed: int) -> None:
    run_replay(seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_taking_out_messages_equals_replaying_many_histories_without_them(seed: int) -> None:
    run_replay(seed, 30)


def run_each(seed: int, count: int) -> None:
    """Revert each message of a history alone, and reverse that."""
    with history(seed) as made:
        told = Replaying(made)
        for _ in range(count):
            told.say()
        line = told.walk(told.place.head)
        for number, id in enumerate(told.parents):
            if told.is_clean(id, line):
                told.take_out(number)
                walk_the_line(told)
                while told.acts:
                    told.unrevert()


@pytest.mark.parametrize("seed", range(2))
def test_every_message_can_be_taken_out_for_itself_and_that_taken_back(seed: int) -> None:
    run_each(seed, 6)


# Overlapping changes: the result of `git merge-file`, or a conflict


COLLISION = "collision"


def merge(
    path: str, ours: Entry | None, base: Entry | None, theirs: Entry | None, place: Path, *options: str
) -> object:
    """Merge three versions of a path by the rules of a plan, texts with git."""
    if base == theirs or ours == theirs:
        return ours
    if ours == base:
        return theirs
    if not (isinstance(ours, File) and isinstance(base, File) and isinstance(theirs, File)):
        # A directory that contains something else stays, and one to restore may be missing already.
        is_plain = not {type(side) for side in (ours, base, theirs)} & {File, Link}
        return ours if is_plain else COLLISION
    content = merge_contents(ours.content, base.content, theirs.content, place, *options)
    if isinstance(content, str) or len({ours.mode, base.mode, theirs.mode}) == 3:
        return COLLISION
    return File(content, theirs.mode if ours.mode == base.mode else ours.mode)


def merge_contents(ours: bytes, base: bytes, theirs: bytes, place: Path, *options: str) -> bytes | str:
    if base == theirs or ours == theirs:
        return ours
    if ours == base:
        return theirs
    names = [place / name for name in ("ours", "base", "theirs")]
    for name, content in zip(names, (ours, base, theirs), strict=True):
        name.write_bytes(content)
    command = ["git", "merge-file", "-p", *options, *map(str, names)]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else COLLISION


@dataclass
class Overlapping:
    """A line of messages that edit the same few texts."""

    made: History
    befores: dict[str, Disk] = field(default_factory=dict)
    afters: dict[str, Disk] = field(default_factory=dict)
    head: int = 0
    out: set[str] = field(default_factory=set)
    collided: int = 0
    done: int = 0

    @property
    def line(self) -> list[str]:
        return list(self.befores)

    def say(self) -> None:
        made, id = self.made, f"m{len(self.befores) + 1}"
        made.tell(id)
        self.befores[id] = made.disk
        with made.shadow.message(id):
            for _ in range(made.random.randint(1, 3)):
                self.edit()
        self.afters[id] = made.disk
        self.head = len(self.befores)

    def edit(self) -> None:
        rand, path = self.made.random, self.made.random.choice(["a", "b", "c"])
        present = self.made.disk.get(path)
        if rand.random() < 0.1:
            others: list[Entry | None] = [None, Link(b"a"), File(b"\0"), File(b"new\n", 0o755), DIRECTORY]
            self.made.put(path, rand.choice(others))
        elif isinstance(present, File):
            mode = rand.choice([present.mode] * 8 + MODES)
            self.made.put(path, File(edit_lines(rand, present.content), mode))
        else:
            self.made.put(path, File(b"".join(b"%d\n" % n for n in range(rand.randint(0, 9)))))

    def foresee(self, id: str, *, is_forward: bool) -> Disk | None:
        """Return the expected result of redoing a message or reverting it alone; None if it collides."""
        base, theirs = self.afters[id], self.befores[id]
        if is_forward:
            base, theirs = theirs, base
        present = self.made.disk
        wanted = dict(present)
        for path in base.keys() | theirs.keys():
            if base.get(path) != theirs.get(path):
                sides = self.leave_out(id, path, base.get(path), theirs.get(path))
                found = merge(path, present.get(path), *sides, self.made.top)
                if found == COLLISION:
                    return None
                wanted.pop(path, None)
                if found is not None:
                    wanted[path] = found  # type: ignore[assignment]  # an entry, as it is no collision
        return wanted

    def leave_out(
        self, id: str, path: str, base: Entry | None, theirs: Entry | None
    ) -> tuple[Entry | None, Entry | None]:
        """Remove from both sides what earlier messages did that are out of the line."""
        sides: list[Any] = [base, theirs]  # Any: entries, or a collision
        for taken in reversed(self.line[: self.line.index(id)]):
            before, after = self.befores[taken].get(path), self.afters[taken].get(path)
            if taken in self.out and before != after:
                sides = [merge(path, side, after, before, self.made.top, "--ours") for side in sides]
                if COLLISION in sides:
                    return base, theirs
        return sides[0], sides[1]

    def act(self, act: Callable[[], Outcome], wanted: Disk | None, passed: Disk | None = None) -> bool:
        """Do an act, reverse it and do it again; return whether it was done.

        With `passed`, messages were taken out before it or on its way, and it goes to this recorded state.
        Then it may collide with these messages, or reach that state without a merge.
        """
        before = self.made.disk
        outcome = self.made.attempt(act)
        if passed is None:
            assert (outcome is None) == (wanted is None), (wanted, self.made.disk)
        if outcome is None:
            self.collided += 1
            return False
        self.done += 1
        found = self.made.disk
        if passed is None or found.items() - before.items() - passed.items():
            assert wanted is not None
            assert_disk(found, wanted)
        self.made.shadow.unrevert()
        assert_disk(self.made.disk, before)
        act()
        assert_disk(self.made.disk, found)
        return True

    def take_out(self) -> None:
        chosen = [id for id in self.line[: self.head] if id not in self.out]
        if chosen:
            id = self.made.random.choice(chosen)
            self.made.tell(f"only {id}")
            wanted = self.foresee(id, is_forward=False)
            if self.act(lambda: self.made.shadow.revert(id, only=True), wanted):
                self.out.add(id)

    def undo(self) -> None:
        chosen = [id for id in self.line[: self.head] if id not in self.out]
        if chosen:
            self.made.tell("undo")
            wanted = self.foresee(chosen[-1], is_forward=False)
            if self.act(self.made.shadow.undo, wanted, self.befores[chosen[-1]] if self.out else None):
                self.head = self.line.index(chosen[-1])

    def redo(self) -> None:
        chosen = [id for id in self.line[self.head :] if id not in self.out]
        if chosen:
            self.made.tell("redo")
            wanted = self.foresee(chosen[0], is_forward=True)
            if self.act(self.made.shadow.redo, wanted):
                self.head = self.line.index(chosen[0]) + 1


def edit_lines(rand: random.Random, content: bytes) -> bytes:
    """Change a few lines of a text."""
    lines = content.splitlines(keepends=True)
    for _ in range(rand.randint(1, 2)):
        start = rand.randint(0, len(lines))
        new = [b"%d\n" % rand.randrange(30) for _ in range(rand.choice([0, 1, 1, 2]))]
        lines[start : start + rand.choice([0, 1, 1, 2])] = new
    ended = b"".join(lines)
    return ended[:-1] if rand.random() < 0.05 else ended


def run_overlapping(seed: int, count: int) -> Overlapping:
    with history(seed) as made:
        made.put("a", File(b"".join(b"%d\n" % n for n in range(12))))
        made.put("b", File(b"".join(b"%d\n" % (n % 5) for n in range(20)), 0o600))
        made.shadow.wrap()
        told = Overlapping(made)
        for _ in range(made.random.randint(3, 7)):
            told.say()
        for _ in range(count):
            if not told.out and told.head == len(told.line) and made.random.random() < 0.1:
                told.say()
            made.random.choice([told.take_out, told.take_out, told.undo, told.redo])()
        return told


@pytest.mark.parametrize("seed", range(4))
def test_taking_out_what_may_overlap_gives_what_git_makes_of_it_or_is_refused(seed: int) -> None:
    run_overlapping(seed, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_taking_out_what_may_overlap_in_many_histories(seed: int) -> None:
    run_overlapping(seed, 30)


# Merging with others' edits: no act ever loses a line of somebody else


OWNERS = ["one", "two"]


@dataclass
class Done:
    """An act that can be reversed."""

    before: Disk
    after: Disk
    clock: int
    """How many steps there were before it."""


class Crowd:
    """Two sessions and a user, who write lines with the author's name into the same few texts.

    An agent removes or changes only its own lines and the original ones. So whatever a session does, the
    lines of the others must stay the same.
    """

    def __init__(self, made: History) -> None:
        self.made = made
        self.random = made.random
        made.put("a", File(b"".join(b"first %d\n" % n for n in range(30))))
        made.put("d/b", File(b"".join(b"first %d\n" % n for n in range(8)), 0o755))
        made.shadow.wrap()
        store = made.top / "store"
        self.shadows = {
            name: Shadow(made.root, store=store, session=name, settings={"min_free": 0}) for name in OWNERS
        }
        self.serial = 0
        self.clock = 0
        self.ids: dict[str, list[str]] = {name: [] for name in OWNERS}
        self.acts: dict[str, list[Done]] = {name: [] for name in OWNERS}
        self.count = {"done": 0, "conflicts": 0, "merged": 0}

    def close(self) -> None:
        for shadow in self.shadows.values():
            shadow.close()

    def lines_of_others(self, name: str) -> list[bytes]:
        """List all lines in the worktree that somebody else wrote."""
        others = [each.encode() + b" " for each in [*OWNERS, "user"] if each != name]
        lines = [
            line.strip()
            for entry in self.made.disk.values()
            if isinstance(entry, File)
            for line in entry.content.splitlines()
        ]
        return sorted(line for line in lines if line.startswith(tuple(others)))

    def write(self, name: str) -> None:
        """Make somebody add lines, and change or remove lines that they may change."""
        rand = self.random
        path = rand.choice(["a", "a", "d/b", "new", "d/new"])
        present = self.made.disk.get(path)
        lines = present.content.splitlines(keepends=True) if isinstance(present, File) else []
        own = (name.encode() + b" ", b"first ")
        for _ in range(rand.randint(1, 3)):
            self.serial += 1
            place = rand.randint(0, len(lines))
            if place < len(lines) and lines[place].startswith(own) and rand.random() < 0.4:
                del lines[place]
            if rand.random() < 0.9:
                lines.insert(place, b"%b %d\n" % (name.encode(), self.serial))
        is_free = all(line.startswith(own) for line in lines)
        mode = present.mode if isinstance(present, File) else 0o644
        if is_free and rand.random() < 0.15:
            self.made.put(path, None)
        else:
            self.made.put(path, File(b"".join(lines), rand.choice([mode] * 8 + MODES)))

    def edit(self) -> None:
        """Make the user edit outside any message."""
        self.made.tell("edit")
        self.clock += 1
        self.write("user")

    def say(self, name: str) -> None:
        id = f"{name}-{len(self.ids[name]) + 1}"
        self.made.tell(id)
        self.clock += 1
        self.ids[name].append(id)
        with self.shadows[name].message(id):
            for _ in range(self.random.randint(1, 2)):
                self.write(name)

    def act(self, name: str) -> None:
        rand, shadow = self.random, self.shadows[name]
        way = rand.choice(["abort", "merge"])
        markers = way == "merge" and rand.random() < 0.1
        kind = rand.choice(["undo", "undo", "redo", "revert", "only", "switch", "unrevert", "unrevert"])
        if kind == "unrevert":
            return self.unrevert(name, way)
        id = rand.choice(self.ids[name])
        if kind in ("revert", "only") and shadow.show(id)[0].state == "archived":
            return None
        options = {"on_conflict": way, "markers": markers}
        acts: dict[str, Callable[[], Outcome]] = {
            "undo": lambda: shadow.undo(rand.choice([1, 1, 2]), **options),  # type: ignore[arg-type]
            "redo": lambda: shadow.redo(rand.choice([1, None]), **options),  # type: ignore[arg-type]
            "revert": lambda: shadow.revert(id, **options),  # type: ignore[arg-type]
            "only": lambda: shadow.revert(id, only=True, **options),  # type: ignore[arg-type]
            "switch": lambda: shadow.switch(id, **options),  # type: ignore[arg-type]
        }
        self.made.tell(f"{name}: {kind} {id} {way}")
        before = self.made.disk
        outcome = self.attempt(name, acts[kind])
        if outcome is not None and outcome.messages:
            self.clock += 1
            self.acts[name].append(Done(before, self.made.disk, self.clock))
            self.count["merged"] += bool(outcome.merged)
            if outcome.marked:
                self.unrevert(name, "abort")
        return None

    def unrevert(self, name: str, way: str) -> None:
        """Reverse an act; if nothing happened since, the result is exact."""
        shadow = self.shadows[name]
        if not self.acts[name]:
            return
        done = self.acts[name][-1]
        self.made.tell(f"{name}: unrevert {way}")
        is_last = done.clock == self.clock
        if is_last:
            shadow.unrevert(on_conflict=way)  # type: ignore[arg-type]
            assert_disk(self.made.disk, done.before)
        elif self.attempt(name, lambda: shadow.unrevert(on_conflict=way)) is None:  # type: ignore[arg-type]
            return
        self.acts[name].pop()
        self.clock += 1
        if is_last and self.acts[name] and self.acts[name][-1].clock == done.clock - 1:
            # The act before it is the last one again.
            self.acts[name][-1].clock = self.clock

    def attempt(self, name: str, act: Callable[[], Outcome]) -> Outcome | None:
        others = self.lines_of_others(name)
        outcome = self.made.attempt(act)
        self.count["conflicts" if outcome is None else "done"] += 1
        if outcome is None:
            self.made.tell("(conflict)")
        found = self.lines_of_others(name)
        lost = [line for line in others if line not in found]
        assert not lost, (lost, outcome)
        came = [line for line in found if line not in others]
        # Between markers is an old version; and going forward restores what was recorded.
        assert not came or (outcome is not None and (outcome.marked or outcome.redone)), (came, outcome)
        return outcome


def run_crowd(seed: int, count: int) -> dict[str, int]:
    with history(seed) as made:
        crowd = Crowd(made)
        try:
            for name in OWNERS:
                crowd.say(name)
            for _ in range(count):
                name = made.random.choice(["one", "one", "two"])
                kind = made.random.choice(["say", "say", "edit", "act", "act", "act"])
                if kind == "say":
                    crowd.say(name)
                elif kind == "edit":
                    crowd.edit()
                else:
                    crowd.act(name)
            return crowd.count
        finally:
            crowd.close()


@pytest.mark.parametrize("seed", range(6))
def test_no_act_loses_a_line_that_somebody_else_wrote(seed: int) -> None:
    run_crowd(seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_no_act_loses_a_line_that_somebody_else_wrote_in_many_histories(seed: int) -> None:
    run_crowd(seed, 60)


# Messages that contain the change of a message that is out of the line


def of(*lines: str) -> Tree:
    return {"t": "".join(line + "\n" for line in lines)}


PLAIN = [f"line {number}" for number in range(9)]
WITHOUT_4 = [line for line in PLAIN if line != "line 4"]
ADDED = [*PLAIN[:4], "of m1", *PLAIN[4:]]
AGAIN: dict[str, tuple[Tree, Tree, Tree]] = {
    "a line is added again": (of(*PLAIN), of(*WITHOUT_4), of(*PLAIN, "of m2")),
    "a line is deleted again": (of(*PLAIN), of(*ADDED), of(*PLAIN, "of m2")),
    "a line of m1 stays": (of(*PLAIN), of(*ADDED), of(*ADDED, "of m2")),
    "a line is added again among others": (
        of(*PLAIN),
        of(*WITHOUT_4[:-1], "of m1"),
        of(*PLAIN[:-1], "of m2"),
    ),
    "a file is created again": (of(*PLAIN), {}, of(*PLAIN)),
    "a file is deleted again": ({}, of(*PLAIN), {}),
}
"""The trees before and after m1, and after m2."""
TAKE_AWAY: dict[str, Callable[[Shadow], Outcome]] = {
    "undo": lambda shadow: shadow.undo(),
    "only": lambda shadow: shadow.revert("m2", only=True),
    "both": lambda shadow: shadow.revert("m1"),
}


def play_again(shadow: Shadow, worktree: Path, trees: tuple[Tree, Tree, Tree]) -> None:
    """Record both messages, and take m1 out of the line; m1 keeps what m2 wrote over."""
    replace_tree(worktree, trees[0])
    for id, tree in zip(("m1", "m2"), trees[1:], strict=True):
        with shadow.message(id):
            replace_tree(worktree, tree)
    shadow.revert("m1", only=True, on_conflict="keep")


@pytest.mark.parametrize("take_away", TAKE_AWAY.values(), ids=TAKE_AWAY)
@pytest.mark.parametrize("trees", AGAIN.values(), ids=AGAIN)
def test_after_all_messages_are_reverted_the_files_are_as_before_them(
    shadow: Shadow,
    worktree: Path,
    trees: tuple[Tree, Tree, Tree],
    take_away: Callable[[Shadow], Outcome],
) -> None:
    play_again(shadow, worktree, trees)
    outcome = take_away(shadow)

    assert outcome.complete
    assert_tree(worktree, trees[0])


@pytest.mark.parametrize("take_away", TAKE_AWAY.values(), ids=TAKE_AWAY)
@pytest.mark.parametrize("trees", AGAIN.values(), ids=AGAIN)
def test_unrevert_brings_back_what_was_there_with_one_message_out(
    shadow: Shadow,
    worktree: Path,
    trees: tuple[Tree, Tree, Tree],
    take_away: Callable[[Shadow], Outcome],
) -> None:
    play_again(shadow, worktree, trees)
    before = shadow.track()
    take_away(shadow)
    shadow.unrevert()

    assert shadow.track() == before


@pytest.mark.parametrize("how", ["undo", "both"])
def test_an_edit_is_merged_with_what_was_there_before_both(shadow: Shadow, worktree: Path, how: str) -> None:
    play_again(shadow, worktree, AGAIN["a line is added again"])
    replace_tree(worktree, of("of the user", *PLAIN, "of m2"))
    shadow.undo(on_conflict="merge") if how == "undo" else shadow.revert("m1", on_conflict="merge")

    assert_tree(worktree, of("of the user", *PLAIN))


@pytest.mark.parametrize("act", [Shadow.undo, Shadow.redo])
def test_a_line_of_the_user_stays_though_a_message_out_of_the_line_had_the_same(
    shadow: Shadow, worktree: Path, act: Callable[..., Outcome]
) -> None:
    play_again(shadow, worktree, AGAIN["a line is deleted again"])
    if act == Shadow.redo:
        shadow.undo()
    there = read_lines(worktree)
    replace_tree(worktree, of(*there[:4], "of m1", *there[4:]))
    act(shadow, on_conflict="merge")

    assert "of m1" in read_lines(worktree)
    assert ("of m2" in read_lines(worktree)) == (act == Shadow.redo)


def read_lines(worktree: Path) -> list[str]:
    return (worktree / "t").read_text().splitlines()
