"""The one list of scenes that faults strike in: what people do, on worktrees with something of everything."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from shadowtree import (
    CheckReport,
    Conflict,
    DuplicateMessage,
    InvalidInput,
    OutOfSpace,
    Shadow,
    ShadowError,
    StoreFailed,
)
from shadowtree.system import syscalls
from tests.api.test_purge import CONTENTS, SECRETS, assert_nowhere, tell
from tests.faults.engine import Hit, Scene, count_writes, this_turn
from tests.support.limits import TINY, UNTIDIED, change_limits, use_limits
from tests.support.processes import in_child
from tests.support.referee import assert_sound_store, git, git_tree
from tests.support.searching import find_objects
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    count_packs,
    leftovers,
    put_back,
    read_timeline,
    recorded_trees,
    store_of,
    track,
)
from tests.support.stories import Told, forget, let_git_pack, sweep, sweep_briefly, tidy
from tests.support.sweeps import kill_at
from tests.support.trees import (
    Mark,
    Tree,
    become,
    copy_of,
    executable,
    file,
    link,
    make_tree,
    plain,
    read_marks,
    refill,
)


def check_damaged(scene: Scene, hit: Hit) -> CheckReport | None:
    """After a flipped bit: an error is one of ours, and a check finds the reason. Give what it found."""
    assert hit.error is None or isinstance(hit.error, ShadowError), repr(hit.error)
    if not scene.store.exists():
        return None
    with Shadow(scene.worktree, store=scene.store, settings=SETTINGS) as shadow:
        report = shadow.check(read_data=True)
    assert hit.error is None or report.problems, report
    return report


def assert_ours(hit: Hit) -> None:
    """An error of the disk is told as what it is."""
    if hit.error is not None and not isinstance(hit.error, KeyboardInterrupt):
        assert type(hit.error) is (OutOfSpace if hit.is_full else StoreFailed), repr(hit.error)


def assert_sound(store: Path, hit: Hit) -> None:
    """Real git finds no fault; what it made itself has modes of its own."""
    if hit.fault == "git gc":
        git("--git-dir", store, "fsck", "--full", "--strict")
    else:
        assert_sound_store(store)


# Acts

TEXT = "".join(f"line {number}\n" for number in range(1, 13))

BEFORE: Tree = {
    "same.txt": "same",
    "text.txt": TEXT,
    "edited.txt": "old\n",
    "large.bin": bytes(range(256)) * 1500,
    "mode.txt": file("its mode alone", 0o644),
    "tool.sh": file("#!", 0o644),
    "both.txt": file("old", 0o600),
    "gone.txt": "gone",
    "link": link("same.txt"),
    "gone link": link("nowhere"),
    "file to dir": "a file",
    "dir to file": {"a": "a", "b": {"c": "c", "empty": {}}},
    "dir to link": {"a": "a"},
    "link to dir": link("same.txt"),
    "link to file": link("same.txt"),
    "file to link": "a file",
    "going": {"deep": {"er": {"f": "f"}}, "g": "g"},
    "empty, goes": {},
    "loses all": {"f": "f"},
    "stays": {"f": "old", "g": "same"},
}
AFTER: Tree = {
    "same.txt": "same",
    "text.txt": TEXT.replace("line 3\n", "line 3 of the message\n"),
    "edited.txt": "new\n",
    "large.bin": bytes(range(255, -1, -1)) * 2000,
    "mode.txt": file("its mode alone", 0o640),
    "tool.sh": executable("#!"),
    "both.txt": file("new", 0o444),
    "link": link("edited.txt"),
    "new link": link("new/deep"),
    "file to dir": {"a": "a", "deep": {"x": "x"}},
    "dir to file": "a file",
    "dir to link": link("stays"),
    "link to dir": {"a": "a", "b": {}},
    "link to file": "a file",
    "file to link": link("same.txt"),
    "new": {"deep": {"er": {"f": "f"}}, "g": file("g", 0o600)},
    "empty, comes": {},
    "loses all": {},
    "stays": {"f": "new", "g": "same"},
    "build.log": "no rule covers it any more",
}
"""What a message makes of it: every kind of change there is."""
OTHER: Tree = {
    "same.txt": "same",
    "text.txt": TEXT.replace("line 3\n", "line 3 of the other\n"),
    "edited.txt": link("same.txt"),
    "large.bin": bytes(range(256)) * 1500,
    "mode.txt": file("its mode alone", 0o600),
    "tool.sh": {"is": {"a": "directory"}},
    "gone.txt": file("not gone", 0o600),
    "link": "a file",
    "gone link": link("same.txt"),
    "file to dir": link("stays"),
    "dir to file": {"a": {}, "b": {"c": "other", "empty": {}}},
    "dir to link": "a file",
    "link to dir": link("same.txt"),
    "link to file": {},
    "file to link": executable("a file"),
    "going": {"deep": {}, "g": "g"},
    "new": link("stays"),
    "empty, goes": {"f": "f"},
    "empty, comes": "a file",
    "stays": {"f": "other", "g": "same", "h": {}},
}
"""What another message makes of what was before."""

READING: dict[str, Callable[[Shadow], object]] = {
    "status": lambda shadow: shadow.status(),
    "messages": lambda shadow: shadow.messages(),
    "diff": lambda shadow: shadow.diff(),
    "patch": lambda shadow: shadow.patch(shadow.show("m1")[0].after or ""),
    "show": lambda shadow: shadow.show("m2"),
    "plan": lambda shadow: shadow.plan_revert("m1"),
    "branches": lambda shadow: shadow.branches(),
    "blame": lambda shadow: shadow.blame("same.txt"),
    "track": lambda shadow: shadow.track(),
    "begin": lambda shadow: shadow.begin("m9"),
    "snapshot": lambda shadow: shadow.snapshot("m9"),
}
"""Commands that leave the worktree as it is."""
COMMANDS: dict[str, Callable[[Shadow], object]] = {
    **READING,
    "undo": lambda shadow: shadow.undo(),
    "redo": lambda shadow: shadow.redo(),
    "unrevert": lambda shadow: shadow.unrevert(),
    "switch": lambda shadow: shadow.switch("m1"),
    "without files": lambda shadow: shadow.revert("m1", files=False),
    "merge": lambda shadow: shadow.revert("m2", on_conflict="merge"),
}


def position_of(shadow: Shadow) -> object:
    """Tell where a session stands, and all that its timeline says of messages and branches."""
    status = shadow.status()
    return (
        (status.head, status.open, status.undone),
        [(message.id, message.state, message.branch) for message in shadow.messages()],
        [(branch.name, branch.fork, branch.messages, branch.state) for branch in shadow.branches()],
    )


class Act(Scene):
    """A worktree in which an act is about to be done.

    Two messages are recorded: the first one made what is `BEFORE`, the second one `AFTER`. Then the user
    wrote a rule by which one of its files is not covered any more. What else goes before is the act's.
    """

    least = 60

    def __init__(
        self,
        worktree: Path,
        place: Path,
        before: Callable[[Shadow], object],
        act: Callable[[Shadow], object],
        **settings: object,
    ) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._saved = place / "saved"
        self._act = act
        self._settings = {**SETTINGS, **settings}
        self.commands = {**COMMANDS, "again": act}
        names = list(self.commands)
        first = this_turn() % len(names)
        self._next_command = cycle(names[first:] + names[:first])
        with self.open() as shadow:
            with shadow.message("m1"):
                make_tree(worktree, BEFORE)
            with shadow.message("m2"):
                become(worktree, BEFORE, AFTER)
            make_tree(worktree, {".shadowtreeignore": "*.log\n"})
            before(shadow)
            self.position_before = position_of(shadow)
        shutil.copytree(worktree, self._saved / "worktree", symlinks=True)
        shutil.copytree(self.store, self._saved / "store")
        self._events = self.count_events()
        self._expected: dict[tuple[bool, str], object] = {}
        self.before: dict[str, Mark] = {}
        """What is there before the act."""
        self.put_back()
        self.act()
        self.after = copy_of(worktree)
        assert self.is_done()
        with self.open() as shadow:
            self.position_after = position_of(shadow)
        self.put_back()

    def put_back(self) -> None:
        """Have everything as it was before the act, the worktree being the same directory."""
        refill(self.worktree, self._saved / "worktree")
        put_back(self._saved / "store", self.store)
        self.before = read_marks(self.worktree)

    def prepare(self) -> None:
        """Be about to do it."""
        self.put_back()

    def open(self, worktree: Path | None = None, store: Path | None = None) -> Shadow:
        """Open a worktree, by default its own, as a new process would."""
        return Shadow(worktree or self.worktree, store=store, settings=self._settings)

    def act(self) -> object:
        """Do it, as a new process would."""
        with self.open() as shadow:
            return self._act(shadow)

    # What it came to

    def is_done(self) -> bool:
        """Tell whether the act is in the timeline."""
        return self.count_events() > self._events

    def count_events(self) -> int:
        """Count what the timeline has of the session, without touching it."""
        return read_timeline(self.store, lambda journal: len(journal.events_after(0, 1)))

    def has_intent(self) -> bool:
        """Tell whether an act is not finished, without touching anything."""
        return read_timeline(self.store, lambda journal: bool(journal.open_intents()))

    def assert_before(self) -> None:
        """Everything is as it was: the very same files."""
        found = read_marks(self.worktree)
        assert plain(found) == plain(self.before)
        assert found == self.before

    def assert_after(self) -> None:
        """All of it is done, and what is the same in both is the very same file."""
        found = read_marks(self.worktree)
        assert plain(found) == self.after
        kept = {path: mark for path, mark in self.before.items() if self.after.get(path) == mark[:3]}
        assert {path: found[path] for path in kept} == kept

    def assert_settled(self) -> None:
        """It is exactly as it was or exactly as it shall be, as the timeline says."""
        (self.assert_after if self.is_done() else self.assert_before)()

    def check(self, hit: Hit) -> None:
        """Whoever is told of an error finds nothing changed; the next command makes the rest good."""
        if hit.fault == "bit flip":
            self._check_damaged(hit)
            return
        if not hit.is_kill:
            self._check_outcome(hit)
        self.check_next(next(self._next_command))

    def _check_outcome(self, hit: Hit) -> None:
        if hit.error is None:
            assert self.is_done()
            # What could not be cleaned up is left for the next command.
            found = {path: mark for path, mark in copy_of(self.worktree).items() if not is_temporary(path)}
            assert found == self.after
            return
        assert isinstance(hit.error, ShadowError | KeyboardInterrupt), repr(hit.error)
        if isinstance(hit.error, ShadowError):
            assert not self.is_done()
        if not hit.stays and not self.is_done():
            self.assert_before()

    def _check_damaged(self, hit: Hit) -> None:
        check_damaged(self, hit)
        if hit.error is not None:
            self.assert_before()
        else:
            self.assert_after()

    def check_next(self, command: str) -> None:
        """The next command makes good what was interrupted, says so, and does what it does otherwise."""
        is_done, has_intent = self.is_done(), self.has_intent()
        assert_records_whole(self.store)

        with self.open() as shadow:
            came_to = self._run(command, shadow)
            recovered = shadow.recovered

        assert (copy_of(self.worktree), came_to) == self._expect(is_done, command), command
        if command in READING:
            # Not asked again: some of these are in the timeline too.
            (self.assert_after if is_done else self.assert_before)()
        assert self.has_intent() is False
        assert len(recovered) == has_intent, recovered
        assert all(("finished" if is_done else "taken back") in told for told in recovered)
        assert_records_whole(self.store)
        track(self.worktree)
        assert_no_leftovers(self.store)

    def _expect(self, is_done: bool, command: str) -> object:
        """Tell what a command comes to where nobody was killed."""
        key = is_done, command
        if key not in self._expected:
            self._expected[key] = in_child(lambda: self._find_expected(is_done, command)).value()
        return self._expected[key]

    def _find_expected(self, is_done: bool, command: str) -> object:
        elsewhere = self._saved.with_name(f"{self._saved.name}-{is_done}-{command}")
        shutil.copytree(self._saved / "worktree", elsewhere / "worktree", symlinks=True)
        shutil.copytree(self._saved / "store", elsewhere / "store")
        Shadow.adopt(elsewhere / "worktree", elsewhere / "store").close()
        with self.open(elsewhere / "worktree", elsewhere / "store") as shadow:
            if is_done:
                self._act(shadow)
            came_to = self._run(command, shadow)
            return copy_of(elsewhere / "worktree"), came_to

    def _run(self, command: str, shadow: Shadow) -> object:
        """Run a command; give how it was refused, if it was, and where the session stands then."""
        try:
            self.commands[command](shadow)
            refusal = ""
        except (Conflict, DuplicateMessage, InvalidInput) as error:
            refusal = type(error).__name__
        return refusal, position_of(shadow)


def is_temporary(path: str) -> bool:
    """Tell whether a path is what an act puts aside."""
    return ".shadowtree-tmp-" in path


class Recording(Act):
    """An act that records and leaves the files as they are."""

    least = 4

    def check(self, hit: Hit) -> None:
        """After an error nothing is recorded, or all of it; and it can be done now."""
        if hit.error is None or hit.fault == "bit flip":
            super().check(hit)
            return
        assert isinstance(hit.error, ShadowError | KeyboardInterrupt), repr(hit.error)
        self.assert_before()
        if self._find_position() == self.position_before:
            self.act()
        assert self._find_position() == self.position_after
        assert_records_whole(self.store)
        track(self.worktree)
        assert_no_leftovers(self.store)

    def _find_position(self) -> object:
        with self.open() as shadow:
            return position_of(shadow)


class Recovery(Act):
    """An act that was killed half-way, and the command that makes it good."""

    least = 4
    spared = frozenset({"bit flip"})
    _kill_at = 0

    def __init__(self, worktree: Path, place: Path, *acts: Any, at: float) -> None:  # Any: as for an act
        super().__init__(worktree, place, *acts)
        self._kill_at = int(count_writes(self) * at)
        self.prepare()
        self._is_done = self.is_done()

    def prepare(self) -> None:
        """Leave it half-way."""
        self.put_back()
        assert kill_at(super().act, self._kill_at).signal
        assert self.has_intent()

    def act(self) -> object:
        """Make it good."""
        with self.open() as shadow:
            return shadow.status() if self._kill_at else self._act(shadow)

    def check(self, hit: Hit) -> None:
        """Somebody makes it good in the end."""
        assert hit.error is None or isinstance(hit.error, ShadowError | KeyboardInterrupt), repr(hit.error)
        assert_records_whole(self.store)
        with self.open() as shadow:
            shadow.status()
        assert self.is_done() is self._is_done
        self.assert_settled()
        assert not self.has_intent()
        track(self.worktree)
        assert_no_leftovers(self.store)


# What goes before an act


def record(shadow: Shadow, message: str, old: Tree, new: Tree) -> None:
    """Record a message that turns one tree into another."""
    with shadow.message(message):
        become(Path(shadow.worktree), old, new)


def edit_text(shadow: Shadow, line: int, text: str) -> None:
    """Change a line of the text, as an editor does."""
    path = Path(shadow.worktree, "text.txt")
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = f"{text}\n"
    path.write_text("".join(lines))


def fork(shadow: Shadow) -> None:
    """Let the second message be on a branch called `old`, and another one be in force."""
    shadow.undo()
    record(shadow, "m3", BEFORE, OTHER)
    shadow.rename_branch(shadow.branches()[0].name, "old")


def fork_and_switch(shadow: Shadow) -> None:
    """Switch to the branch."""
    fork(shadow)
    shadow.switch("old")


def fork_and_go_on(shadow: Shadow) -> None:
    """Switch to the branch and go on with it, so that what is left has a name already."""
    fork_and_switch(shadow)
    with shadow.message("m4"):
        edit_text(shadow, 10, "line 10 of the fourth")


def fork_and_begin(shadow: Shadow) -> None:
    """Have a message open, which an act ends first."""
    fork(shadow)
    shadow.begin("m4")
    edit_text(shadow, 10, "line 10 of the fourth")
    make_tree(Path(shadow.worktree), {"made": {"by the fourth": "4"}})


def fork_twice(shadow: Shadow) -> None:
    """Let one branch be listed and one be dropped: a session keeps a single one."""
    shadow.undo()
    record(shadow, "m3", BEFORE, AFTER)
    shadow.undo()
    record(shadow, "m4", BEFORE, OTHER)


def undo_twice(shadow: Shadow) -> None:
    """Let one message be on a branch and another one be undone."""
    shadow.undo()
    record(shadow, "m3", BEFORE, OTHER)
    shadow.undo()


def go_on_with_the_text(shadow: Shadow) -> None:
    """Let a later message change the same file elsewhere."""
    with shadow.message("m3"):
        edit_text(shadow, 10, "line 10 of the third")


def take_out(shadow: Shadow) -> None:
    """Take a message out from under a later one."""
    go_on_with_the_text(shadow)
    shadow.revert("m2", only=True)


def take_out_under_edits(shadow: Shadow) -> None:
    """Take messages out from under what the user wrote."""
    edit_text(shadow, 10, "line 10 of the user")
    shadow.revert("m2", on_conflict="merge")


def do_nothing(shadow: Shadow) -> None:
    """Leave everything as the two messages left it."""


def undo(shadow: Shadow) -> object:
    """Undo the second message."""
    return shadow.undo()


# File systems that can do less


def without_exchange(patch: pytest.MonkeyPatch) -> None:
    """Let names not be swapped in one step."""
    rename = syscalls._rename

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        if way == syscalls._EXCHANGE:
            raise OSError(errno.EINVAL, "Invalid argument")
        rename(a_fd, a, b_fd, b, way)

    patch.setattr(syscalls, "_rename", refuse)


def without_renameat2(patch: pytest.MonkeyPatch) -> None:
    """Let there be no renaming but the old one, which replaces."""

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    patch.setattr(syscalls, "_rename", refuse)


def without_hard_links(patch: pytest.MonkeyPatch) -> None:
    """Let there be no second names either."""
    without_renameat2(patch)
    patch.setattr(syscalls, "_move_by_link", lambda *arguments: False)


def without_syncfs(patch: pytest.MonkeyPatch) -> None:
    """Let every file be synced by itself."""
    patch.setattr("shadowtree.revert.writer.sync_file_system", lambda fd: False)


LESS = {
    f"undo {lessen.__name__.replace('_', ' ')}": lessen
    for lessen in (without_exchange, without_renameat2, without_hard_links, without_syncfs)
}


# Snapshots


class Snapshot(Scene):
    """A worktree that is about to be recorded, in a store that was saved."""

    least = 10

    def __init__(self, worktree: Path, place: Path, *, size: int = 0) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._saved = place / "saved"
        self.go_before(size)
        if self.store.exists():
            shutil.copytree(self.store, self._saved)
        self._records = [tree.tree.hex() for tree in recorded_trees(self._saved)]
        self.expected = git_tree(self.worktree, place / "scratch")

    def go_before(self, size: int) -> None:
        """Have a store, and work that is not recorded; `size` is that of a file that does not deflate."""
        write_files(self.worktree, "old")
        track(self.worktree)
        write_files(self.worktree, "new")
        (self.worktree / "large.bin").write_bytes(os.urandom(size))

    def prepare(self) -> None:
        """Have the store as it was."""
        shutil.rmtree(self.store, ignore_errors=True)
        if self._saved.exists():
            shutil.copytree(self._saved, self.store)

    def act(self) -> object:
        """Take the snapshot, as a new process would."""
        return track(self.worktree)

    def check(self, hit: Hit) -> None:
        """The next snapshot is right and cleans up; no record names a missing object, before or after."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            assert hit.error is not None or hit.outcome == self.expected
            return
        assert_ours(hit)
        assert hit.error is not None or hit.is_kill or hit.outcome == self.expected
        assert_records_whole(self.store)
        if hit.is_full and hit.stays:
            # They would take the room that is missing.
            assert leftovers(self.store) == []

        assert track(self.worktree) == self.expected
        assert_records_whole(self.store)
        assert [tree.tree.hex() for tree in recorded_trees(self.store)] == [*self._records, self.expected]
        assert_no_leftovers(self.store)
        assert_sound(self.store, hit)


class FirstSnapshot(Snapshot):
    """A worktree without a store."""

    least = 30
    spared = frozenset({"bit flip"})

    def go_before(self, size: int) -> None:
        """Have only files."""
        write_files(self.worktree, "first")
        make_tree(self.worktree, {"run.sh": executable("#!"), "ln": link("top0.txt"), "empty": {}})


class MergingSnapshot(Snapshot):
    """A store with so many packs that the next snapshot merges them."""

    least = 15

    def go_before(self, size: int) -> None:
        """Take snapshots until one merges packs, and go back to before that."""
        make_tree(self.worktree, {"kept.txt": "kept", "sub": {"kept.txt": "kept too"}})
        track(self.worktree)
        aside = self._saved.with_name("aside")
        for number in range(50):
            packs = count_packs(self.store)
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(self.store, aside)
            (self.worktree / "changing.txt").write_text(f"{number}\n")
            track(self.worktree)
            if count_packs(self.store) <= packs:
                put_back(aside, self.store)
                return
        raise AssertionError("the snapshots never merged packs")


class OpenShadow(Snapshot):
    """A shadow that is open and has recorded already; it must not be ahead of the disk."""

    spared = frozenset({"kill", "git gc", "bit flip", "second process", "kill inside a write"})
    _shadow: Shadow | None = None

    def prepare(self) -> None:
        """Have a shadow that knows the store as it is."""
        if self._shadow is not None:
            self._shadow.close()
        super().prepare()
        self._shadow = Shadow(self.worktree, settings=SETTINGS)
        self._shadow.status()
        self._shadow.patch(self._records[-1])

    def act(self) -> object:
        """Take a snapshot with it."""
        assert self._shadow is not None
        return self._shadow.track()

    def check(self, hit: Hit) -> None:
        """It goes on, and so does everybody else."""
        assert hit.error is None or self.act() == self.expected
        super().check(hit)


def write_files(worktree: Path, text: str) -> None:
    """Write 30 files in three directories, each with other content for another text."""
    files: Tree = {f"file{number}.txt": f"{text} {number}\n" for number in range(10)}
    make_tree(worktree, {"a": files, "b": {"c": files}})
    make_tree(worktree, {f"top{number}.txt": f"top {text} {number}\n" for number in range(10)})


class Adoption(Snapshot):
    """A worktree that was moved, and is about to adopt its store."""

    spared = frozenset({"bit flip", "second process"})

    def go_before(self, size: int) -> None:
        """Move a worktree away from its store."""
        make_tree(self.worktree, {"a": "1"})
        track(self.worktree)
        self._left = self.store
        self.worktree = self.worktree.rename(self.worktree.with_name("moved"))
        self.store = store_of(self.worktree)
        make_tree(self.worktree, {"b": "2"})
        shutil.copytree(self._left, self._saved)

    def prepare(self) -> None:
        """Have the store in its old place alone."""
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.rmtree(self._left, ignore_errors=True)
        shutil.copytree(self._saved, self._left)

    def act(self) -> object:
        """Adopt it and take a snapshot, as `wrap --adopt` does."""
        with Shadow.adopt(self.worktree, self._left, settings=SETTINGS) as shadow:
            return shadow.track()

    def check(self, hit: Hit) -> None:
        """Whatever is left is one store; the same command finishes it, and no record is lost."""
        assert_ours(hit)
        (found,) = self.store.parent.iterdir()
        assert found in (self.store, self._left)
        assert self.act() == self.expected
        super().check(Hit("git gc" if hit.fault == "git gc" else "kill", hit.at))


# Stories


class Story(Scene):
    """Messages in packs of all sorts, about to be forgotten, swept or tidied."""

    least = 2

    def __init__(
        self,
        worktree: Path,
        place: Path,
        before: Callable[[Told], object],
        act: Callable[[Shadow], object],
    ) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved")
        self._act = act
        before(self.told)
        self.told.save()
        self._lists = [self._list_messages()]
        self.act()
        self._lists.append(self._list_messages())
        self.prepare()

    def _list_messages(self) -> list[str]:
        with self.told.open() as shadow:
            return [message.id for message in shadow.messages()]

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()

    def act(self) -> object:
        """Do something to the store, as a new process would."""
        with self.told.open() as shadow:
            return self._act(shadow)

    def check(self, hit: Hit) -> None:
        """All that is live comes back exactly, nothing lies about, and another sweep does the rest."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_ours(hit)
        if hit.is_full:
            # They would take the room that is missing.
            assert [name for name in leftovers(self.store) if "tmp" in name] == []
        assert self._list_messages() in self._lists
        with self.told.open() as shadow:
            if all(message.id != "last" for message in shadow.messages()):
                # What was edited and not recorded would be in the way of a revert.
                record_last(shadow)
        self.told.check(most=1, is_ours=hit.fault != "git gc")
        with self.told.open() as shadow:
            sweep(shadow)
        self.told.check_store(is_ours=hit.fault != "git gc")
        with self.told.open() as shadow:
            assert shadow.forget(keep_last=4).removed == 0


def record_last(shadow: Shadow) -> object:
    """Record a message with many versions, by which packs are merged, and then shelved."""
    return shadow.snapshot("last")


def leave_it(told: Told) -> None:
    """Leave a story as it was told."""


def forget_first(told: Told) -> None:
    """Have messages forgotten and nothing freed yet."""
    with told.open() as shadow:
        forget(shadow)


def kill_twice(told: Told) -> None:
    """Kill a sweep, and the next one as well."""

    def act() -> None:
        with told.open() as shadow:
            sweep(shadow)

    assert kill_at(act, 90).signal
    assert kill_at(act, 45).signal


def leave_fresh(told: Told) -> None:
    """Have so many fresh packs, not tidied yet, that the next snapshot puts them together."""
    with pytest.MonkeyPatch.context() as patch:
        change_limits(patch, packs=UNTIDIED)
        with told.open() as shadow:
            for number in range(12, 16):
                told.tell(shadow, number)


def leave_little_fresh(told: Told) -> None:
    """Have one fresh pack, whose objects belong to shelves that are there."""
    with told.open() as shadow:
        shadow.tidy(1000)
        told.tell(shadow, 12)


def be_about_to_shelve(told: Told) -> None:
    """Have fresh packs, and work for the next snapshot to record."""
    leave_fresh(told)
    told.edit(100)


# Others


class WholeMessage(Scene):
    """A message that is begun, worked on and ended."""

    least = 15

    def __init__(self, worktree: Path, place: Path, *, size: int) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved", messages=5)
        self._size = size

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()

    def act(self) -> object:
        """Record it, as a new process would."""
        with self.told.open() as shadow, shadow.message("m6"):
            make_tree(self.worktree, {"new6": "6", "noise": os.urandom(self._size)})
        return None

    def check(self, hit: Hit) -> None:
        """It is open, ended or not there; what is recorded then can be taken back, as can all before it."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_ours(hit)
        now = copy_of(self.worktree)
        with self.told.open() as shadow:
            if shadow.status().open:
                shadow.end()
            else:
                shadow.snapshot("m7")
            assert_records_whole(self.store)
            assert_no_leftovers(self.store)
            shadow.revert("m1")
            assert copy_of(self.worktree) == self.told.copies["m0"]
            shadow.redo(None)
            assert copy_of(self.worktree) == now
        assert_sound(self.store, hit)


class Purge(Scene):
    """A story with secrets in it, about to be purged."""

    least = 35

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._saved = place / "saved"
        with Shadow(worktree, settings=SETTINGS) as shadow:
            self._states = tell(shadow, worktree, 6)
            shadow.undo()
            with shadow.message("m6"):
                (worktree / "conf" / "key.env").write_bytes(CONTENTS[3])
            shadow.pin("m1")
            shadow.forget(keep_last=3, gc=False)
        shutil.copytree(self.store, self._saved / "store")
        shutil.copytree(worktree, self._saved / "worktree")

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        refill(self.worktree, self._saved / "worktree")
        put_back(self._saved / "store", self.store)

    def act(self) -> object:
        """Purge, as a new process would."""
        with Shadow(self.worktree, settings=SETTINGS) as shadow:
            return shadow.purge("conf/key.env")

    def check(self, hit: Hit) -> None:
        """Nothing is purged yet, or the next command finishes it by itself; nothing else is lost."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        assert_records_whole(self.store)
        with Shadow(self.worktree, settings=SETTINGS) as shadow:
            is_purged = not shadow.messages()[-1].patch.files
            assert is_purged or hit.is_kill or hit.error is not None
            assert [branch.name == "the-key-is-purged" for branch in shadow.branches()] == [is_purged]
            if is_purged:
                self._assert_nowhere(hit)
            else:
                assert_sound(self.store, hit)
                assert find_objects(self.store, SECRETS)
            again = shadow.purge("conf/key.env")
            assert again.paths == ([] if is_purged else ["conf/key.env"])
            self._assert_nowhere(hit)
            for name in ("m1", "m5"):
                shadow.restore(name)
                assert (self.worktree / "a.txt").read_text() == self._states[name]
        assert_no_leftovers(self.store)

    def _assert_nowhere(self, hit: Hit) -> None:
        make_ours(self.store)
        assert_nowhere(self.store)


def make_ours(store: Path) -> None:
    """Give what real git made the modes that ours have."""
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


class Destruction(Scene):
    """A store that is about to go."""

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = store_of(worktree)
        self._place = place
        make_tree(worktree, {"a": "1"})
        with Shadow(worktree, settings=SETTINGS) as shadow:
            shadow.snapshot("m1")
        shutil.copytree(self.store, place / "saved")

    def prepare(self) -> None:
        """Have the store, and nothing else."""
        shutil.rmtree(self.store.parent)
        shutil.copytree(self._place / "saved", self.store)

    def act(self) -> object:
        """Destroy it, as a new process would."""
        return Shadow(self.worktree, settings=SETTINGS).destroy()

    def check(self, hit: Hit) -> None:
        """All of it is left or nothing; what lies about goes with the next store."""
        if hit.fault == "bit flip":
            check_damaged(self, hit)
            return
        if self.store.exists():
            with Shadow(self.worktree, settings=SETTINGS) as shadow:
                if hit.fault != "second process":
                    assert [message.id for message in shadow.messages()] == ["m1"]
            assert_sound(self.store, hit)
        make_tree(self._place / "next", {"a": "1"})
        with Shadow(self._place / "next", settings=SETTINGS) as other:
            other.track()
            other.destroy()
        if hit.is_kill:
            # What belongs to a process that lives is left to it.
            assert os.listdir(self.store.parent) == [self.store.name] * self.store.exists()


class Repair(Scene):
    """A store that lost a pack of which the worktree still has the contents."""

    least = 5
    spared = frozenset({"bit flip", "git gc"})  # real git stops at damage

    def __init__(self, worktree: Path, place: Path) -> None:
        super().__init__()
        self.worktree = worktree
        self.store = place / "store"
        self.told = Told(worktree, self.store, place / "saved", messages=3)
        with self.told.open() as shadow, shadow.message("m3"):
            make_tree(worktree, {"one": {"new3": os.urandom(400_000)}})
        newest = max((self.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        self.told.save()

    def prepare(self) -> None:
        """Have worktree and store as they were saved."""
        self.told.put_back()

    def act(self) -> object:
        """Repair it, as a new process would."""
        with self.told.open() as shadow:
            return shadow.repair()

    def check(self, hit: Hit) -> None:
        """The next repair does the rest."""
        with self.told.open() as shadow:
            assert shadow.repair().ok
        self.told.check(most=1, is_ours=hit.fault != "git gc")


# The list

Make = Callable[[Path, Path], Scene]


def act(
    before: Callable[[Shadow], object],
    then: Callable[[Shadow], object],
    of: Callable[..., Scene] = Act,
    **settings: object,
) -> Make:
    """Describe an act."""
    return lambda worktree, place: of(worktree, place, before, then, **settings)


def story(before: Callable[[Told], object], then: Callable[[Shadow], object]) -> Make:
    """Describe something that is done to a story."""
    return lambda worktree, place: Story(worktree, place, before, then)


SCENES: dict[str, Make] = {
    "first snapshot": FirstSnapshot,
    "later snapshot": Snapshot,
    "later snapshot, large pack": lambda worktree, place: Snapshot(worktree, place, size=400_000),
    "snapshot of an open shadow": OpenShadow,
    "snapshot that merges packs": MergingSnapshot,
    "adoption": Adoption,
    "message": lambda worktree, place: WholeMessage(worktree, place, size=10),
    "message, large pack": lambda worktree, place: WholeMessage(worktree, place, size=300_000),
    "revert": act(do_nothing, lambda shadow: shadow.revert("m2")),
    "undo": act(do_nothing, undo),
    "redo": act(undo, lambda shadow: shadow.redo()),
    "unrevert": act(undo, lambda shadow: shadow.unrevert()),
    "restore": act(do_nothing, lambda shadow: shadow.restore("m2^")),
    **{name: act(do_nothing, undo) for name in LESS},
    **{
        f"recovery of {name}, killed at {at}": act(before, then, Recovery, at=at)
        for name, before, then in (
            ("an undo", do_nothing, undo),
            ("a redo", undo, lambda shadow: shadow.redo()),
        )
        for at in (0.5, 0.75, 0.9)
    },
    "switch": act(fork, lambda shadow: shadow.switch("old")),
    "switch from a named line": act(fork_and_go_on, lambda shadow: shadow.switch("m3")),
    "switch from an open message": act(fork_and_begin, lambda shadow: shadow.switch("old")),
    "switch at the limit": act(fork_twice, lambda shadow: shadow.switch("m2"), max_branches=1),
    "switch to what was taken out": act(take_out, lambda shadow: shadow.switch("m3")),
    "unrevert of a switch": act(fork_and_switch, lambda shadow: shadow.unrevert()),
    "merge": act(
        lambda shadow: edit_text(shadow, 10, "line 10 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge"),
    ),
    "unrevert of a merge": act(take_out_under_edits, lambda shadow: shadow.unrevert()),
    "only": act(go_on_with_the_text, lambda shadow: shadow.revert("m2", only=True)),
    "markers": act(
        lambda shadow: edit_text(shadow, 3, "line 3 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge", markers=True),
    ),
    "without files": act(do_nothing, lambda shadow: shadow.revert("m2", files=False), Recording),
    "begin": act(undo, lambda shadow: shadow.begin("m8"), Recording),
    "begin at the limit": act(undo_twice, lambda shadow: shadow.begin("m8"), Recording, max_branches=1),
    "snapshot at the limit": act(undo_twice, lambda shadow: shadow.snapshot("m8"), Recording, max_branches=1),
    "forget": story(leave_it, forget),
    "gc": story(leave_it, sweep),
    "gc of what was forgotten": story(forget_first, sweep),
    "gc of what git packed": story(let_git_pack, sweep),
    "gc that was killed twice": story(kill_twice, sweep),
    "gc, briefly": story(leave_little_fresh, sweep_briefly),
    "tidy": story(leave_fresh, tidy),
    "snapshot that shelves": story(be_about_to_shelve, record_last),
    "purge": Purge,
    "repair": Repair,
    "destroy": Destruction,
}


@contextmanager
def make_scene(name: str, worktree: Path, place: Path) -> Iterator[Scene]:
    """Have a scene; where packs are put together, few of them are many."""
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith(("gc", "tidy", "snapshot that")):
            use_limits(patch, TINY)
        if name in LESS:
            LESS[name](patch)
        yield SCENES[name](worktree, place)
