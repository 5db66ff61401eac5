"""Random histories on real directories: branches, one message taken out, and merging under a user's edits.

Every history has a seed, which a failure names: `History(seed)` is the same again. A copy of the directory is
kept after every message, so that nothing here has to know how a state is found.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Branch, Conflict, InvalidInput, Message, Outcome, Shadow
from tests.modelled import DIRECTORY, Disk, Entry, ancestors, read_disk
from tests.referee import assert_sound_store
from tests.trees import File, Link

FAST_PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

MODES = [0o644, 0o600, 0o755]
WORDS = ["fix login", "Fix: login!", "add tests", "", "rename all of it", "zwölf", "m 3"]


class History:
    """A worktree, its shadow, and what a test knows of both."""

    def __init__(self, seed: int, **settings: object) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.top = Path(tempfile.mkdtemp(prefix="shadowtree-history-", dir=FAST_PLACE))
        self.root = self.top / "worktree"
        self.root.mkdir()
        self.settings = settings
        self.shadow = Shadow(self.root, store=self.top / "store", settings={"min_free": 0, **settings})
        self.told: list[str] = []
        """What was done, for whoever has to find out why it failed."""

    @property
    def disk(self) -> Disk:
        return read_disk(self.root)[0]

    def tell(self, what: str) -> None:
        self.told.append(what)

    def put(self, path: str, entry: Entry | None) -> None:
        """Let this be at a path, and nothing else."""
        target = self.root / path
        for above in reversed(list(ancestors(path))):
            if not (self.root / above).is_dir() or (self.root / above).is_symlink():
                self.put(above, DIRECTORY)
        if isinstance(entry, File) and target.is_file() and not target.is_symlink():
            if target.read_bytes() != entry.content:
                target.write_bytes(entry.content)
            target.chmod(entry.mode)
            return
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        elif os.path.lexists(target):
            target.unlink()
        if isinstance(entry, File):
            target.write_bytes(entry.content)
            target.chmod(entry.mode)
        elif isinstance(entry, Link):
            os.symlink(entry.target, os.fsencode(target))
        elif entry == DIRECTORY:
            target.mkdir()

    def make(self, wanted: Disk) -> None:
        """Turn the worktree into what is wanted, and touch nothing that is so already."""
        present = self.disk
        for path in sorted(present, reverse=True):
            if path in self.disk and (path not in wanted or not _is_alike(present[path], wanted[path])):
                self.put(path, None)
        for path in sorted(wanted):
            if self.disk.get(path) != wanted[path]:
                self.put(path, wanted[path])

    def attempt(self, act: Callable[[], Outcome]) -> Outcome | None:
        """Do an act; None: there was a conflict, and nothing whatever was touched."""
        before = read_disk(self.root)
        try:
            return act()
        except Conflict as error:
            assert error.conflicts  # noqa: PT017  # an act may be refused, and need not
            assert read_disk(self.root) == before, "what is refused touches nothing"
            return None


def _is_alike(one: Entry, other: Entry) -> bool:
    return type(one) is type(other)


@contextmanager
def history(seed: int, **settings: object) -> Iterator[History]:
    """Make a history, name its seed if anything goes wrong, and check the store at the end."""
    made = History(seed, **settings)
    try:
        yield made
        made.shadow.close()
        assert_sound_store(made.top / "store")
    except BaseException as error:
        error.add_note(f"history {seed} {settings}: " + "; ".join(made.told))
        raise
    finally:
        made.shadow.close()
        shutil.rmtree(made.top)


# Any sequence of messages and acts: every message can be switched to


PATHS = ["a", "b", "c.txt", "d/a", "d/b", "d/e/a", "f/a", "f", "link"]
CONTENTS = [b"", b"1", b"2\n", b"one\ntwo\n", b"\0binary"]
ENTRIES: list[Entry | None] = [
    *(File(content, mode) for content in CONTENTS for mode in MODES[:2]),
    File(b"run", 0o755),
    Link(b"a"),
    Link(b"nowhere"),
    DIRECTORY,
    None,
    None,
    None,
]


FIRST: Disk = {
    "a": File(b"1"),
    "b": File(b"2\n", 0o755),
    "d": DIRECTORY,
    "d/a": File(b""),
    "link": Link(b"a"),
}


@dataclass
class Place:
    """Where the session stands."""

    head: str | None = None
    tip: str | None = None
    out: frozenset[str] = frozenset()


@dataclass
class Branching:
    """A history of whole messages, without anybody else's work, and where it stands."""

    made: History
    place: Place = field(default_factory=Place)
    parents: dict[str, str | None] = field(default_factory=dict)
    copies: dict[str | None, Disk] = field(default_factory=dict)
    """What there was after each message, and before the first."""
    texts: dict[str, str] = field(default_factory=dict)
    trees: dict[str, str] = field(default_factory=dict)
    open: str | None = None
    acts: list[tuple[Disk, Place]] = field(default_factory=list)
    """What there was before each act that can be taken back."""
    orphans: set[str] = field(default_factory=set)
    """Messages whose branch was dropped."""
    known: dict[str, Branch] = field(default_factory=dict)
    """The branches after the last step, by name."""
    seen: dict[str, set[str]] = field(default_factory=dict)
    """All messages that were ever on a branch of a name."""

    def __post_init__(self) -> None:
        made = self.made
        for path, entry in FIRST.items():
            made.put(path, entry)
        made.shadow.wrap()
        self.copies[None] = made.disk

    # Where it stands

    def walk(self, id: str | None) -> list[str]:
        """List messages from one back to the first."""
        found = []
        while id is not None:
            found.append(id)
            id = self.parents[id]
        return found

    @property
    def in_force(self) -> list[str]:
        return [id for id in self.walk(self.place.head) if id not in self.place.out]

    @property
    def undone(self) -> list[str]:
        """What redo brings back, oldest first."""
        line = self.walk(self.place.tip)
        above = set(self.walk(self.place.head)) | self.place.out
        return [id for id in reversed(line) if id not in above]

    def state_of(self, id: str) -> str:
        if id == self.open:
            return "open"
        if id in self.place.out:
            return "undone"
        if id in self.walk(self.place.head):
            return "active"
        return "undone" if id in self.walk(self.place.tip) else "archived"

    # Steps

    def message(self, text: str, style: str, puts: list[tuple[str, Entry | None]]) -> None:
        """Record a message, in one of the three styles; sometimes it stays open."""
        made, shadow = self.made, self.made.shadow
        id = f"id-{len(self.parents) + 1}"
        made.tell(f"{style} {id} {text!r}")
        was_open, self.open = self.open, None
        if style == "snapshot":
            self.edit(puts)
            if was_open is not None:
                # It is the open message's work until that is ended.
                self.copies[was_open] = made.disk
            recorded = shadow.snapshot(id, text=text)
            self.warned(recorded.warnings)
        else:
            began = shadow.begin(id, text=text)
            self.warned(began.warnings)
            self.edit(puts)
            if style == "both":
                recorded = shadow.end(id)
        self.texts[id] = text
        self.parents[id] = self.place.head
        line = set(self.walk(self.place.head))
        self.place = Place(id, id, frozenset(out for out in self.place.out if out in line))
        self.copies[id] = made.disk
        if style == "open":
            self.open = id
        else:
            assert recorded.after is not None
            self.trees[id] = recorded.after

    def edit(self, puts: list[tuple[str, Entry | None]]) -> None:
        for path, entry in puts:
            self.made.put(path, entry)

    def end_open(self) -> None:
        """Note that the next step ends the open message."""
        self.open = None

    def undo(self, turns: int) -> None:
        chosen = self.in_force[:turns]
        self.made.tell(f"undo {turns}")
        head = self.parents[chosen[-1]] if chosen else self.place.head
        place = Place(head, self.place.tip, self.place.out)
        self.act(lambda: self.made.shadow.undo(turns), place, is_complete=len(chosen) == turns)

    def redo(self, turns: int | None) -> None:
        chosen = self.undone[:turns]
        self.made.tell(f"redo {turns}")
        head = chosen[-1] if chosen else self.place.head
        place = Place(head, self.place.tip, self.place.out)
        self.act(
            lambda: self.made.shadow.redo(turns), place, is_complete=len(chosen) == (turns or len(chosen))
        )

    def revert(self, place_of: int) -> None:
        id = self.choose(place_of)
        self.made.tell(f"revert {id}")
        if self.state_of(id) == "archived":
            with pytest.raises(InvalidInput):
                self.made.shadow.revert(id)
            return
        place = Place(self.parents[id], self.place.tip, self.place.out)
        back = self.walk(self.place.head)
        line = [each for each in self.walk(self.place.tip) if each not in back]
        way = back[: back.index(id) + 1] if id in back else line[line.index(id) + 1 :]
        if not [each for each in way if each not in self.place.out]:
            place = self.place
        self.act(lambda: self.made.shadow.revert(id), place)

    def take_out(self, place_of: int) -> None:
        id = self.choose(place_of)
        self.made.tell(f"only {id}")
        if self.state_of(id) == "archived":
            with pytest.raises(InvalidInput):
                self.made.shadow.revert(id, only=True)
            return
        place = self.place
        if id in self.in_force:
            place = Place(place.head, place.tip, place.out | {id})
        self.act(lambda: self.made.shadow.revert(id, only=True), place)

    def switch_branch(self, place_of: int) -> None:
        names = list(self.known)
        if names:
            self.switch_to(names[place_of % len(names)])

    def switch(self, place_of: int) -> None:
        self.switch_to(self.choose(place_of))

    def switch_to(self, ref: str) -> None:
        made, names = self.made, self.known
        made.tell(f"switch {ref}")
        target = ref
        if ref in names and ref not in self.parents:
            target = self.known[ref].messages[-1]
        if target == self.place.head and not self.place.out:
            outcome = made.shadow.switch(ref)
            assert outcome.notes
            assert made.disk == self.copies[target]
            return
        before, place = made.disk, self.place
        outcome = made.shadow.switch(ref)
        if not outcome.messages:
            # It is the last one in force already.
            assert made.disk == before
            assert target == self.in_force[0]
            return
        self.end_open()
        self.warned(outcome.notes)
        after = made.disk
        assert after == self.copies[target], "its tree is exact"
        assert outcome.after == self.trees.setdefault(target, outcome.after)
        assert outcome.complete
        assert outcome.head == target
        self.place = self.read_place(target, place)
        if (self.place.head, self.place.tip, self.place.out) != (place.head, place.tip, place.out):
            self.acts.append((before, place))

    def read_place(self, target: str, before: Place) -> Place:
        """Read where the line goes on after a switch; it has to be a line."""
        undone = self.made.shadow.status().undone
        states = {message.id: message for message in self.made.shadow.messages()}
        out = frozenset(id for id in self.walk(target) if states[id].state == "undone")
        above = target
        for id in undone:
            between = self.walk(self.parents[id])
            assert above in between
            above = id
        line = [m.id for m in states.values() if m.state in ("active", "undone")]
        tips = [id for id in line if id not in {self.parents[each] for each in line}]
        assert len(tips) <= 1, ("the line is a line", tips)
        if target in self.walk(before.tip) and not out and not before.out:
            assert tips == [before.tip], "a message on the line leaves the line as it is"
        return Place(
            target,
            tips[0],
            out
            | frozenset(id for id in self.walk(tips[0]) if id not in undone and states[id].state == "undone"),
        )

    def unrevert(self) -> None:
        self.made.tell("unrevert")
        if not self.acts:
            assert self.made.shadow.unrevert().notes
            return
        before, place = self.acts.pop()
        outcome = self.made.shadow.unrevert()
        self.end_open()
        self.warned(outcome.notes)
        assert self.made.disk == before, "unrevert brings back exactly what was there"
        assert outcome.complete
        self.place = place

    def act(self, act: Callable[[], Outcome], place: Place, *, is_complete: bool = True) -> None:
        """Do an act that may only be refused where something was taken out."""
        before, was = self.made.disk, self.place
        if place == was:
            outcome = act()
            assert outcome.notes
            assert self.made.disk == before
            return
        found = self.made.attempt(act)
        if found is None:
            assert was.out or place.out, "nobody else changed anything"
            self.made.tell("(conflict)")
            return
        self.end_open()
        self.warned(found.notes)
        assert found.complete == is_complete
        self.place = place
        self.acts.append((before, was))
        if not was.out and not place.out:
            assert self.made.disk == self.copies[place.head]

    def choose(self, place_of: int) -> str:
        ids = list(self.parents)
        return ids[place_of % len(ids)]

    def warned(self, notes: list[str]) -> None:
        """Note which branches are said to be dropped."""
        for note in notes:
            if note.startswith("branch "):
                name = note.split("'")[1]
                assert name in self.known or name in self.seen, note
                self.orphans |= self.seen[name]
                self.made.tell(f"(dropped {name})")

    # What has to be true at all times

    def check(self) -> None:
        shadow = self.made.shadow
        messages = {message.id: message for message in shadow.messages()}
        branches = {branch.name: branch for branch in shadow.branches()}
        assert list(messages) == list(self.parents)
        for id, message in messages.items():
            assert message.parent == self.parents[id]
            if message.after is not None:
                assert self.trees.setdefault(id, message.after) == message.after
        status = shadow.status()
        assert {id: message.state for id, message in messages.items()} == {
            id: self.state_of(id) for id in messages
        }
        assert status.undone == self.undone
        finished = [id for id in self.in_force if id != self.open]
        assert status.head == (finished[0] if finished else None)
        self.check_branches(messages, branches)
        self.known = branches
        for name, branch in branches.items():
            self.seen.setdefault(name, set()).update(branch.messages)

    def check_branches(self, messages: dict[str, Message], branches: dict[str, Branch]) -> None:
        line = set(self.walk(self.place.tip))
        places: dict[str, list[str]] = {}
        for name, branch in branches.items():
            assert branch.messages
            assert [self.parents[id] for id in branch.messages] == [branch.fork, *branch.messages[:-1]]
            assert branch.label == self.texts[branch.messages[0]]
            for id in branch.messages:
                places.setdefault(id, []).append(name)
            is_on_line = set(branch.messages) <= line
            assert branch.state == ("active" if is_on_line else "archived"), branch
            if branch.state == "archived":
                assert not set(branch.messages) & line
            self.check_name(branch)
            assert name not in self.parents, "a message's id would come first"
        for id, message in messages.items():
            if message.state != "archived":
                assert message.branch is None
            else:
                assert places.get(id, []) == ([] if message.branch is None else [message.branch]), (
                    id,
                    message,
                )
                assert message.branch is not None or self.is_orphan(id), (id, "is on no branch")
            assert len(places.get(id, [])) <= 1, (id, places[id])
        most = self.made.settings.get("max_branches", 20)
        assert isinstance(most, int)
        archived = [branch for branch in branches.values() if branch.state == "archived"]
        assert len(archived) <= most, [branch.name for branch in archived]
        gone = {name for name in self.known if name not in branches}
        for name in gone:
            assert set(self.known[name].messages) <= self.orphans, (name, "went without a word")

    def is_orphan(self, id: str) -> bool:
        """Tell whether the branch of a message was dropped, perhaps in the moment in which it took it in."""
        return any(id in self.walk(orphan) for orphan in self.orphans)

    def check_name(self, branch: Branch) -> None:
        """A name stays with its messages: it was made of the text of one that is or was on the branch."""
        own = self.seen.get(branch.name, set()) | set(branch.messages)
        bases = {_slug(self.texts[id] or f"branch {id}") for id in own}
        base, _, number = branch.name.rpartition("-")
        assert branch.name in bases or (base in bases and number.isdigit()), (branch, bases)
        if branch.name in self.known:
            before = self.known[branch.name].messages
            related = any(
                id in self.walk(branch.messages[-1]) or branch.messages[-1] in self.walk(id) for id in before
            )
            assert related, (branch, before)


def _slug(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)[:40].strip("-") or "branch"


Step = tuple[str, list[Any]]


def draw_steps(rand: random.Random, count: int, *, takes_out: bool) -> Iterator[Step]:
    """Make up steps; numbers choose among what there is by then."""
    kinds = ["message"] * 5 + ["undo"] * 4 + ["redo"] * 2 + ["revert"] * 2 + ["switch"] * 3
    kinds += ["switch_branch"] * 3 + ["take_out"] * 2 * takes_out
    for kind in ["message"] * 3 + rand.choices(kinds, k=count):
        if kind == "message":
            puts = [(rand.choice(PATHS), rand.choice(ENTRIES)) for _ in range(rand.randint(1, 4))]
            style = rand.choice(["both", "both", "snapshot", "open"])
            yield kind, [rand.choice(WORDS), style, puts]
            continue
        numbers: dict[str, list[int | None]] = {"undo": [1, 1, 2, 3], "redo": [1, 1, 2, None]}
        yield kind, [rand.choice(numbers.get(kind, list(range(30))))]
        if rand.random() < (0.5 if "switch" in kind else 0.15):
            yield "unrevert", []


def run_branching(seed: int, count: int, *, takes_out: bool) -> None:
    rand = random.Random(seed)
    most = rand.choice([20, 20, 3, 1])
    steps = list(draw_steps(rand, count, takes_out=takes_out))
    run_steps(steps, rand.sample(range(len(steps)), len(steps)), most, seed)


def run_steps(steps: list[Step], order: list[int], most: int, seed: int = 0) -> None:
    """Do the steps, and then switch to every message there is, in this order."""
    with history(seed, max_branches=most) as made:
        branching = Branching(made)
        branching.check()
        for kind, arguments in steps:
            if kind == "message" or branching.parents:
                getattr(branching, kind)(*arguments)
                branching.check()
        for number in order:
            if number < len(branching.parents):
                branching.switch(number)
                branching.check()


@pytest.mark.parametrize("seed", range(5))
def test_every_message_can_be_switched_to_and_its_tree_is_then_exact(seed: int) -> None:
    run_branching(seed, 25, takes_out=False)


@pytest.mark.parametrize("seed", range(100, 105))
def test_every_message_can_be_switched_to_also_when_some_were_taken_out(seed: int) -> None:
    run_branching(seed, 25, takes_out=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_every_message_can_be_switched_to_in_many_histories(seed: int) -> None:
    run_branching(seed, 60, takes_out=seed % 2 == 1)
