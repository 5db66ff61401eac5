"""Histories on real directories, for random messages that are taken out or merged.

Every history has a seed, which a failure names: `History(seed)` repeats it. A copy of the directory is kept
after every message, so that nothing here has to know how a state is computed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from shadowtree import Conflict, InvalidInput, Outcome, Shadow
from tests.support.memory import make_place
from tests.support.modelled import DIRECTORY, Disk, Entry, ancestors, read_disk
from tests.support.referee import assert_sound_store
from tests.support.trees import File, Link


class History:
    """A worktree, its shadow, and what a test knows of both."""

    def __init__(self, seed: int, **settings: object) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.top = make_place()
        self.root = self.top / "worktree"
        self.root.mkdir()
        self.settings = settings
        self.shadow = Shadow(self.root, store=self.top / "store", settings={"min_free": 0, **settings})
        self.told: list[str] = []
        """What was done, to find out why a test failed."""

    @property
    def disk(self) -> Disk:
        return read_disk(self.root)[0]

    def tell(self, what: str) -> None:
        self.told.append(what)

    def put(self, path: str, entry: Entry | None) -> None:
        """Put an entry at a path, in place of whatever is there; None: only remove that."""
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
        """Turn the worktree into `wanted`, without touching what is right already."""
        present = self.disk
        for path in sorted(present, reverse=True):
            if path in self.disk and (path not in wanted or not _is_alike(present[path], wanted[path])):
                self.put(path, None)
        for path in sorted(wanted):
            if self.disk.get(path) != wanted[path]:
                self.put(path, wanted[path])

    def attempt(self, act: Callable[[], Outcome]) -> Outcome | None:
        """Do an act; None: there was a conflict, and nothing at all was touched."""
        before = read_disk(self.root)
        try:
            return act()
        except Conflict as error:
            assert error.conflicts  # noqa: PT017  # an act may be refused, or not
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


@dataclass
class Place:
    """Where the session stands."""

    head: str | None = None
    tip: str | None = None
    out: frozenset[str] = frozenset()


@dataclass
class Branching:
    """A history of whole messages, without work of others, and where it stands."""

    made: History
    place: Place = field(default_factory=Place)
    parents: dict[str, str | None] = field(default_factory=dict)
    copies: dict[str | None, Disk] = field(default_factory=dict)
    """The worktree after each message, and before the first."""
    trees: dict[str, str] = field(default_factory=dict)
    open: str | None = None
    acts: list[tuple[Disk, Place]] = field(default_factory=list)
    """The worktree and the place before each act that can be reversed."""

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
        """The messages that redo brings back, oldest first."""
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

    def message(self, style: str, puts: list[tuple[str, Entry | None]]) -> None:
        """Record a message, in one of the three styles; sometimes it stays open."""
        made, shadow = self.made, self.made.shadow
        id = f"id-{len(self.parents) + 1}"
        made.tell(f"{style} {id}")
        was_open, self.open = self.open, None
        if style == "snapshot":
            self.edit(puts)
            if was_open is not None:
                # The edits belong to the open message until that is ended.
                self.copies[was_open] = made.disk
            recorded = shadow.snapshot(id)
        else:
            shadow.begin(id)
            self.edit(puts)
            if style == "both":
                recorded = shadow.end(id)
        self.parents[id] = self.place.head
        # No unrevert goes back past a message.
        self.acts.clear()
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

    def switch(self, place_of: int) -> None:
        made, target = self.made, self.choose(place_of)
        made.tell(f"switch {target}")
        if target == self.place.head and not self.place.out:
            outcome = made.shadow.switch(target)
            assert outcome.notes
            assert made.disk == self.copies[target]
            return
        before, place = made.disk, self.place
        outcome = made.shadow.switch(target)
        if not outcome.messages:
            # The target is the last message in force already.
            assert made.disk == before
            assert target == self.in_force[0]
            return
        self.end_open()
        after = made.disk
        assert after == self.copies[target], "its tree is exact"
        assert outcome.after == self.trees.setdefault(target, outcome.after)
        assert outcome.complete
        assert outcome.head == target
        self.place = self.read_place(target, place)
        if (self.place.head, self.place.tip, self.place.out) != (place.head, place.tip, place.out):
            self.acts.append((before, place))

    def read_place(self, target: str, before: Place) -> Place:
        """Read how the line continues after a switch; it has to be a line."""
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
        assert self.made.disk == before, "unrevert brings back exactly what was there"
        assert outcome.complete
        self.place = place

    def act(self, act: Callable[[], Outcome], place: Place, *, is_complete: bool = True) -> None:
        """Do an act that leads to a place, and check the result."""
        raise NotImplementedError

    def choose(self, place_of: int) -> str:
        ids = list(self.parents)
        return ids[place_of % len(ids)]

    # What has to be true at all times

    def check(self) -> None:
        shadow = self.made.shadow
        messages = {message.id: message for message in shadow.messages()}
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
