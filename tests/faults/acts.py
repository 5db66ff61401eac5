"""Scenes of acts: undo, redo, switch and the others, on a worktree with something of everything."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from shadowtree import Conflict, DuplicateMessage, InvalidInput, Outcome, Shadow, ShadowError
from shadowtree.base.frozen import replace
from tests.faults.act_trees import AFTER, BEFORE, OTHER
from tests.faults.aftermath import check_damaged
from tests.faults.engine import Hit, Scene, count_writes
from tests.support.limits import usual_limits
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    put_back,
    read_timeline,
    store_of,
    track,
)
from tests.support.sweeps import kill_at
from tests.support.trees import Copy, Mark, Tree, become, copy_of, make_tree, plain, read_marks, refill
from tests.support.turns import choose

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
    """Return where a session stands, with all messages and branches of its timeline."""
    status = shadow.status()
    return (
        (status.head, status.open, status.undone),
        [(message.id, message.state, message.branch) for message in shadow.messages()],
        [(branch.name, branch.fork, branch.messages, branch.state) for branch in shadow.branches()],
    )


class Act(Scene):
    """A worktree in which an act is about to be done.

    Two messages are recorded: the first one made `BEFORE`, the second one `AFTER`. Then the user wrote a rule
    that excludes one of the files. `before` does whatever else the act needs.
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
        self._next_command = cycle(choose(self.commands, None))
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
        """The worktree before the act."""
        self.put_back()
        self.act()
        self.after = copy_of(worktree)
        assert self.is_done()
        with self.open() as shadow:
            self.position_after = position_of(shadow)
        self.put_back()

    def be_brief(self) -> None:
        """Use only four commands for the next one: the expected result of each has to be computed first."""
        self._next_command = cycle(choose(self.commands, 4))

    def put_back(self) -> None:
        """Restore everything as it was before the act; the worktree stays the same directory."""
        refill(self.worktree, self._saved / "worktree")
        put_back(self._saved / "store", self.store)
        self.before = read_marks(self.worktree)

    def prepare(self) -> None:
        """Restore everything as it was before the act."""
        self.put_back()

    def open(self, worktree: Path | None = None, store: Path | None = None) -> Shadow:
        """Open a worktree, by default its own, as a new process would."""
        # Whether files are synced one by one must not depend on what else this machine writes.
        limits = replace(usual_limits(), unwritten_bytes=0)
        return Shadow(worktree or self.worktree, store=store, settings=self._settings, limits=limits)

    def act(self) -> object:
        """Do the act, as a new process would."""
        with self.open() as shadow:
            return self._act(shadow)

    # The result

    def is_done(self) -> bool:
        """Return whether the act is in the timeline."""
        return self.count_events() > self._events

    def count_events(self) -> int:
        """Count the events of the session in the timeline, without touching it."""
        return read_timeline(self.store, lambda journal: len(journal.events_after(0, 1)))

    def has_intent(self) -> bool:
        """Return whether an act is unfinished, without touching anything."""
        return read_timeline(self.store, lambda journal: bool(journal.open_intents()))

    def assert_before(self) -> None:
        """Check that everything is as it was: the very same files."""
        found = read_marks(self.worktree)
        assert plain(found) == plain(self.before)
        assert found == self.before

    def assert_after(self) -> None:
        """Check that the whole act is done, and that unchanged files are the very same files."""
        found = read_marks(self.worktree)
        assert plain(found) == self.after
        kept = {path: mark for path, mark in self.before.items() if self.after.get(path) == mark[:3]}
        assert {path: found[path] for path in kept} == kept

    def assert_settled(self) -> None:
        """Check that the act is done completely or not at all, as the timeline says."""
        (self.assert_after if self.is_done() else self.assert_before)()

    def check(self, hit: Hit) -> None:
        """Check that after an error nothing is changed, and that the next command recovers the rest."""
        if hit.fault == "bit flip":
            self._check_damaged(hit)
            return
        if not hit.is_kill:
            self._check_outcome(hit)
        if unread_of(hit):
            self._check_unread()
        else:
            self.check_next(next(self._next_command))

    def _check_outcome(self, hit: Hit) -> None:
        if hit.error is None:
            assert self.is_done()
            # Files that could not be cleaned up are left for the next command.
            found = {path: mark for path, mark in copy_of(self.worktree).items() if not is_temporary(path)}
            assert found == self.after | self._left_alone(unread_of(hit))
            return
        assert isinstance(hit.error, ShadowError | KeyboardInterrupt), repr(hit.error)
        if isinstance(hit.error, ShadowError):
            assert not self.is_done()
        if not hit.stays and not self.is_done():
            self.assert_before()

    def _left_alone(self, unread: list[str]) -> Copy:
        """Return the entries at some paths, below them, and above them."""
        return {
            path: mark
            for path, mark in plain(self.before).items()
            if any(f"{path}/".startswith(f"{each}/") or each.startswith(f"{path}/") for each in unread)
        }

    def _check_unread(self) -> None:
        """Check that no record has unread files, and that unrevert brings back everything else."""
        assert_records_whole(self.store)
        with self.open() as shadow:
            shadow.unrevert()
        assert plain(read_marks(self.worktree)) == plain(self.before)
        assert_records_whole(self.store)
        track(self.worktree)
        assert_no_leftovers(self.store)

    def _check_damaged(self, hit: Hit) -> None:
        check_damaged(self, hit)
        if hit.error is not None:
            self.assert_before()
        else:
            self.assert_after()

    def check_next(self, command: str) -> None:
        """Check that the next command recovers the interrupted act, says so, and has its usual result."""
        is_done, has_intent = self.is_done(), self.has_intent()
        assert_records_whole(self.store)

        with self.open() as shadow:
            came_to = self._run(command, shadow)
            recovered = shadow.recovered

        assert (copy_of(self.worktree), came_to) == self._expect(is_done, command), command
        if command in READING:
            # `is_done` is not called again, because some of these commands also add events.
            (self.assert_after if is_done else self.assert_before)()
        assert self.has_intent() is False
        assert len(recovered) == has_intent, recovered
        assert all(("finished" if is_done else "rolled back") in told for told in recovered)
        assert_records_whole(self.store)
        track(self.worktree)
        assert_no_leftovers(self.store)

    def _expect(self, is_done: bool, command: str) -> object:
        """Return the result of a command if nothing was killed."""
        key = is_done, command
        if key not in self._expected:
            self._expected[key] = self._find_expected(is_done, command)
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
        found = copy_of(elsewhere / "worktree")
        shutil.rmtree(elsewhere)
        return found, came_to

    def _run(self, command: str, shadow: Shadow) -> object:
        """Run a command; return how it was refused, if it was, and where the session then stands."""
        try:
            self.commands[command](shadow)
            refusal = ""
        except (Conflict, DuplicateMessage, InvalidInput) as error:
            refusal = type(error).__name__
        return refusal, position_of(shadow)


def unread_of(hit: Hit) -> list[str]:
    """List the paths that an act left alone because they could not be read, as its outcome says."""
    if not hit.is_reading or not isinstance(hit.outcome, Outcome):
        return []
    unread = [each.path for each in hit.outcome.skipped if "cannot be read" in each.reason]
    assert not unread or not hit.outcome.complete
    return unread


def is_temporary(path: str) -> bool:
    """Return whether a path is a temporary file of an act."""
    return ".shadowtree-tmp-" in path


class Recording(Act):
    """An act that records and leaves the files as they are."""

    least = 4

    def check(self, hit: Hit) -> None:
        """Check that after an error everything or nothing is recorded, and that the act can be done now."""
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
    """An act that was killed half-way, and the command that recovers it."""

    least = 4
    spared = frozenset({"bit flip"})
    is_half_recovered = True
    _kill_at = 0

    def __init__(self, worktree: Path, place: Path, *acts: Any, at: float) -> None:  # Any: as for an act
        super().__init__(worktree, place, *acts)
        self._kill_at = int(count_writes(self) * at)
        self.prepare()
        self._is_done = self.is_done()

    def prepare(self) -> None:
        """Leave the act half-way."""
        self.put_back()
        assert kill_at(super().act, self._kill_at).signal
        assert self.has_intent()

    def act(self) -> object:
        """Recover it."""
        with self.open() as shadow:
            return shadow.status() if self._kill_at else self._act(shadow)

    def check(self, hit: Hit) -> None:
        """Check that some command recovers it in the end."""
        assert hit.error is None or isinstance(hit.error, ShadowError | KeyboardInterrupt), repr(hit.error)
        assert_records_whole(self.store)
        with self.open() as shadow:
            shadow.status()
        assert self.is_done() is self._is_done
        self.assert_settled()
        assert not self.has_intent()
        track(self.worktree)
        assert_no_leftovers(self.store)


# Preparations of acts


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
    """Move the second message to a branch called `old`, and record another one in its place."""
    shadow.undo()
    record(shadow, "m3", BEFORE, OTHER)
    shadow.rename_branch(shadow.branches()[0].name, "old")


def fork_and_switch(shadow: Shadow) -> None:
    """Fork, and switch to the branch."""
    fork(shadow)
    shadow.switch("old")


def fork_and_go_on(shadow: Shadow) -> None:
    """Switch to the branch and continue it, so that the line that an act leaves already has a name."""
    fork_and_switch(shadow)
    with shadow.message("m4"):
        edit_text(shadow, 10, "line 10 of the fourth")


def fork_and_begin(shadow: Shadow) -> None:
    """Leave a message open, which an act ends first."""
    fork(shadow)
    shadow.begin("m4")
    edit_text(shadow, 10, "line 10 of the fourth")
    make_tree(Path(shadow.worktree), {"made": {"by the fourth": "4"}})


def fork_twice(shadow: Shadow) -> None:
    """Make two branches, although a session may keep only one: the older one is dropped."""
    shadow.undo()
    record(shadow, "m3", BEFORE, AFTER)
    shadow.undo()
    record(shadow, "m4", BEFORE, OTHER)


def undo_twice(shadow: Shadow) -> None:
    """Leave one message on a branch, and another one undone."""
    shadow.undo()
    record(shadow, "m3", BEFORE, OTHER)
    shadow.undo()


def go_on_with_the_text(shadow: Shadow) -> None:
    """Record a later message that changes the same file elsewhere."""
    with shadow.message("m3"):
        edit_text(shadow, 10, "line 10 of the third")


def take_out(shadow: Shadow) -> None:
    """Revert only a message below a later one."""
    go_on_with_the_text(shadow)
    shadow.revert("m2", only=True)


def take_out_under_edits(shadow: Shadow) -> None:
    """Revert a message below an edit of the user."""
    edit_text(shadow, 10, "line 10 of the user")
    shadow.revert("m2", on_conflict="merge")


def do_nothing(shadow: Shadow) -> None:
    """Leave everything as the two messages left it."""


def undo(shadow: Shadow) -> object:
    """Undo the second message."""
    return shadow.undo()
