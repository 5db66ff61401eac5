"""Faults: run a scenario and kill it, or fail it, at each of its writes in turn, until it comes through.

No list of kill points is kept by hand: a sweep ends by itself when the scenario has fewer writes than the
number at which it was to be hit.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TypeVar

import pytest

from shadowtree import Conflict, DuplicateMessage, InvalidInput, Outcome, Shadow, faultpoint
from shadowtree.gitformat import MODE_TREE, PackBytes
from shadowtree.journal import Journal
from shadowtree.objects import Objects
from tests.referee import git_tree
from tests.trees import File, Tree, executable, file, link, make_tree

Read = TypeVar("Read")

SETTINGS = {"min_free": 0, "lock_timeout": 120}
"""The lock is not given in turn: where many want it, on a busy machine, some wait long."""

_CAME_THROUGH = 0
_RAISED = 99


# Scenarios


def track(worktree: Path, store: Path | None = None) -> str:
    """Take a snapshot as a new process would."""
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        return shadow.track()


def store_of(worktree: Path) -> Path:
    """Give where the store of a worktree is, or would be."""
    return Shadow(worktree).store


def put_back(saved: Path, place: Path) -> None:
    """Put a saved directory back in place of what is there."""
    shutil.rmtree(place)
    shutil.copytree(saved, place)


class Rounds:
    """A worktree that is written anew from round to round, and the tree that git makes of it."""

    def __init__(self, worktree: Path, scratch: Path, write: Callable[[int], object]) -> None:
        self._worktree = worktree
        self._scratch = scratch
        self._write = write
        self._numbers = count()
        self.expected = ""
        """The tree id of this round."""

    def begin(self) -> None:
        """Change the worktree."""
        number = next(self._numbers)
        self._write(number)
        self.expected = git_tree(self._worktree, self._scratch / f"{number}")


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

Mark = tuple[str, int, bytes, int, int]
"""What is at a path: kind, permission bits, content or target, inode, mtime in ns."""


def become(root: Path, old: Tree, new: Tree) -> None:
    """Turn one tree into another; what is the same is not touched."""
    for name in sorted({*old, *new}):
        path, a, b = root / name, old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            become(path, a, b)
        elif a != b:
            if isinstance(a, File) and isinstance(b, File) and a.content == b.content:
                path.chmod(b.mode)
                continue
            if isinstance(a, dict):
                shutil.rmtree(path)
            elif a is not None:
                path.unlink()
            if b is not None:
                make_tree(root, {name: b})


def read_marks(root: Path) -> dict[str, Mark]:
    """Read all that is below a directory, and which files they are."""
    found: dict[str, Mark] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(directory, name)
            status = path.lstat()
            identity = status.st_ino, status.st_mtime_ns
            if path.is_symlink():
                mark: Mark = ("link", 0, os.fsencode(path.readlink()), *identity)
            elif path.is_dir():
                mark = ("directory", status.st_mode & 0o7777, b"", 0, 0)
            else:
                mark = ("file", status.st_mode & 0o7777, path.read_bytes(), *identity)
            found[str(path.relative_to(root))] = mark
    return found


def plain(marks: dict[str, Mark]) -> dict[str, tuple[str, int, bytes]]:
    """Leave out which files they are."""
    return {path: mark[:3] for path, mark in marks.items()}


class Scene:
    """A worktree in which an act is about to be done, saved so that it can be done again and again.

    Two messages are recorded: the first one made what is `BEFORE`, the second one `AFTER`. Then the user
    wrote a rule by which one of its files is not covered any more. What else goes before is the act's.
    """

    def __init__(self, worktree: Path, saved: Path, act: str) -> None:
        self.worktree = worktree
        self._saved = saved
        prepare, self._act, *settings = {**ACTS, **ACTS_ON_BRANCHES}[act]
        self._settings = dict(SETTINGS, **(settings[0] if settings else {}))
        self.commands = {**COMMANDS, "again": self._act}
        with self.open() as shadow:
            with shadow.message("m1"):
                make_tree(worktree, BEFORE)
            with shadow.message("m2"):
                become(worktree, BEFORE, AFTER)
            make_tree(worktree, {".shadowtreeignore": "*.log\n"})
            prepare(shadow)
        self.store = store_of(worktree)
        shutil.copytree(worktree, saved / "worktree", symlinks=True)
        shutil.copytree(self.store, saved / "store")
        self._events = self.count_events()
        self._expected: dict[tuple[bool, str], object] = {}
        self.before: dict[str, Mark] = {}
        """What is there before the act."""
        self.put_back()
        self.act()
        self.after = plain(read_marks(worktree))
        assert self.is_done()
        self.put_back()

    def put_back(self) -> None:
        """Have everything as it was before the act, the worktree being the same directory."""
        for path in self.worktree.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(self._saved / "worktree", self.worktree, symlinks=True, dirs_exist_ok=True)
        put_back(self._saved / "store", self.store)
        self.before = read_marks(self.worktree)

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
        if self.is_done():
            self.assert_after()
        else:
            self.assert_before()

    def check_next(self, command: str) -> None:
        """The next command makes good what was interrupted, says so, and does what it does otherwise."""
        is_done, has_intent = self.is_done(), self.has_intent()
        assert_records_whole(self.store)

        with self.open() as shadow:
            came_to = self._run(command, shadow)
            recovered = shadow.recovered

        assert (plain(read_marks(self.worktree)), came_to) == self._expect(is_done, command)
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
            return plain(read_marks(elsewhere / "worktree")), came_to

    def _run(self, command: str, shadow: Shadow) -> object:
        """Run a command; give how it was refused, if it was, and where the session stands then."""
        try:
            self.commands[command](shadow)
            refusal = ""
        except (Conflict, DuplicateMessage, InvalidInput) as error:
            refusal = type(error).__name__
        return refusal, position_of(shadow)


def open_shadow(worktree: Path, store: Path | None = None) -> Shadow:
    """Open a worktree as a new process would."""
    return Shadow(worktree, store=store, settings=SETTINGS)


def position_of(shadow: Shadow) -> object:
    """Tell where a session stands, and all that its timeline says of messages and branches."""
    status = shadow.status()
    return (
        (status.head, status.open, status.undone),
        [(message.id, message.state, message.branch) for message in shadow.messages()],
        [(branch.name, branch.fork, branch.messages, branch.state) for branch in shadow.branches()],
    )


ACTS: dict[str, tuple[Callable[[Shadow], object], Callable[[Shadow], Outcome]]] = {
    "revert": (lambda shadow: None, lambda shadow: shadow.revert("m2")),
    "undo": (lambda shadow: None, lambda shadow: shadow.undo()),
    "redo": (lambda shadow: shadow.undo(), lambda shadow: shadow.redo()),
    "unrevert": (lambda shadow: shadow.undo(), lambda shadow: shadow.unrevert()),
    "restore": (lambda shadow: None, lambda shadow: shadow.restore("m2^")),
}
"""Every act: what goes before it, and itself."""


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


ACTS_ON_BRANCHES: dict[str, Any] = {  # Any: what goes before, the act, and settings if it needs any
    "switch": (fork, lambda shadow: shadow.switch("old")),
    "switch from a named line": (fork_and_go_on, lambda shadow: shadow.switch("m3")),
    "switch from an open message": (fork_and_begin, lambda shadow: shadow.switch("old")),
    "switch at the limit": (fork_twice, lambda shadow: shadow.switch("m2"), {"max_branches": 1}),
    "switch to what was taken out": (take_out, lambda shadow: shadow.switch("m3")),
    "unrevert of a switch": (fork_and_switch, lambda shadow: shadow.unrevert()),
    "merge": (
        lambda shadow: edit_text(shadow, 10, "line 10 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge"),
    ),
    "unrevert of a merge": (take_out_under_edits, lambda shadow: shadow.unrevert()),
    "only": (go_on_with_the_text, lambda shadow: shadow.revert("m2", only=True)),
    "markers": (
        lambda shadow: edit_text(shadow, 3, "line 3 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge", markers=True),
    ),
    "without files": (lambda shadow: None, lambda shadow: shadow.revert("m2", files=False)),
    "begin": (lambda shadow: shadow.undo(), lambda shadow: shadow.begin("m8")),
    "begin at the limit": (undo_twice, lambda shadow: shadow.begin("m8"), {"max_branches": 1}),
    "snapshot at the limit": (undo_twice, lambda shadow: shadow.snapshot("m8"), {"max_branches": 1}),
}
"""What has to do with branches and merging, with the settings that it needs."""
WRITING_ACTS_ON_BRANCHES = [
    name for name in ACTS_ON_BRANCHES if not name.startswith(("begin", "snapshot", "without"))
]
RECORDING_ON_BRANCHES = [name for name in ACTS_ON_BRANCHES if name not in WRITING_ACTS_ON_BRANCHES]

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


# Children


@dataclass(frozen=True)
class Raised:
    """An error that a child raised."""

    names: tuple[str, ...]
    """Its class and those that it derives from."""
    text: str


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    signal: int | None
    """The signal that killed it."""
    result: Any  # Any: what the scenario returned, or a Raised
    last_words: str = ""
    """What it was about to write when it was killed, or its traceback."""

    def value(self) -> Any:  # Any: what the scenario returned
        """Give what the scenario returned; fail if it was killed or raised."""
        assert self.signal is None, f"killed by {signal.Signals(self.signal).name}"
        assert not isinstance(self.result, Raised), self.last_words
        return self.result


class Child:
    """A scenario in a forked process."""

    def __init__(self, scenario: Callable[[], object], *, kill_at: int = 0, at_calls: bool = False) -> None:
        self._ended: Ended | None = None
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _run_in_child(scenario, kill_at, writer, at_calls=at_calls)
        os.close(writer)

    def kill(self) -> None:
        """Kill it, as `kill -9` does, unless it has ended."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait until it has ended."""
        if self._ended is None:
            self._ended = self._wait()
        return self._ended

    def _wait(self) -> Ended:
        with open(self._reader, "rb") as reader:
            told = reader.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return Ended(os.WTERMSIG(status), None, told.decode(errors="replace"))
        result, last_words = pickle.loads(told)
        assert os.WEXITSTATUS(status) in (_CAME_THROUGH, _RAISED)
        return Ended(None, result, last_words)


def in_child(scenario: Callable[[], object]) -> Ended:
    """Run a scenario in a process of its own."""
    return Child(scenario).wait()


def _run_in_child(scenario: Callable[[], object], kill_at: int, writer: int, *, at_calls: bool) -> None:
    """Run it and end the process, whatever happens: the child must never come back into pytest."""
    code = _RAISED
    faulthandler.disable()  # the parent tells of signals
    try:
        if kill_at and at_calls:
            Kills(kill_at, writer).__enter__()
        elif kill_at:
            faultpoint.before_write = _killer(kill_at, writer)
        try:
            told: tuple[object, str] = (scenario(), "")
            code = _CAME_THROUGH
        except BaseException as error:  # noqa: BLE001 - the parent judges
            told = (Raised(_names(error), str(error)), traceback.format_exc())
        os.write(writer, pickle.dumps(told))
    finally:
        os._exit(code)


def _killer(kill_at: int, writer: int) -> Callable[[str, str], None]:
    calls = count(1)

    def kill(act: str, path: str) -> None:
        if next(calls) == kill_at:
            os.write(writer, f"{act} {os.path.basename(path)}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _names(error: BaseException) -> tuple[str, ...]:
    return tuple(kind.__name__ for kind in type(error).__mro__)


# Sweeps


def sweep_kills(
    prepare: Callable[[], object],
    scenario: Callable[[], object],
    check: Callable[[], object],
    *,
    at_calls: bool = False,
    first: int = 1,
    step: int = 1,
) -> int:
    """Kill the scenario at its first write, at its second and so on; give how many kills there were.

    Before each run the state is prepared, after each kill it is checked. Writes are those that the fault
    point tells of, or with `at_calls` the calls to the operating system that they are made of.
    """
    for number in count(first, step):
        prepare()
        ended = Child(scenario, kill_at=number, at_calls=at_calls).wait()
        if ended.signal is None:
            ended.value()
            return (number - first) // step
        assert ended.signal == signal.SIGKILL
        with _noted(f"after kill {number}, before: {ended.last_words}"):
            check()
    raise AssertionError


def sweep_errors(
    prepare: Callable[[], object],
    scenario: Callable[[], object],
    check: Callable[[object], object],
    faults: Callable[[int], Faults],
    *,
    step: int = 1,
) -> int:
    """Fail the scenario at its first write, at its second and so on; give how many failures there were.

    `check` is called with what the scenario returned or raised.
    """
    for number in count(1, step):
        prepare()
        with faults(number) as fault:
            try:
                outcome = scenario()
            except Exception as error:  # noqa: BLE001 - the check judges
                outcome = error
        if not fault.hits:
            assert not isinstance(outcome, Exception), outcome
            return (number - 1) // step
        with _noted(f"after failure {number} of {fault.hits[0]}"):
            check(outcome)
    raise AssertionError


@contextmanager
def _noted(text: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(text)
        raise


WRITING_MODULES = ("disk", "lock", "staging", "system")
"""Those that change a disk; they see an `os` of their own, and of `system` what is listed below."""

CALLS_OF_OS = {
    *("open", "write", "pwrite", "mkdir", "symlink", "link"),
    *("rename", "replace", "unlink", "rmdir", "chmod", "fchmod", "ftruncate", "fsync"),
}
CALLS_OF_SYSTEM = {"_rename": "renameat2", "sync_file_system": "syncfs"}
"""The functions of `system` that call the C library, and what they are called in a hit."""
MAY_WORK_ON_A_FULL_DISK = {
    *("rename", "replace", "unlink", "rmdir", "rmtree", "chmod", "fchmod", "ftruncate", "fsync"),
    *CALLS_OF_SYSTEM.values(),
}


def writing_modules() -> list[ModuleType]:
    """Import the modules that change a disk."""
    names = [f"shadowtree.{name}" for name in WRITING_MODULES]
    return [import_module(name) for name in names if find_spec(name) is not None]


READING_MODULES = ("worktree", "staging")
READING_CALLS = {"open", "read", "stat", "fstat", "readlink", "listdir"}
"""How the worktree is read by descriptor."""


class Faults:
    """Let the N-th mutating call to the operating system fail, and with `forever` all that follow."""

    def __init__(self, number: int, code: int, *, forever: bool = False, reading: bool = False) -> None:
        self._number = number
        self._reading = reading
        self._code = code
        self._forever = forever
        self._calls = 0
        self._patch = pytest.MonkeyPatch()
        self.hits: list[str] = []
        """What was failed."""

    def __enter__(self) -> Faults:
        stand_in = _FailingOs(self, READING_CALLS if self._reading else CALLS_OF_OS)
        if self._reading:
            for name in READING_MODULES:
                self._patch.setattr(f"shadowtree.{name}.os", stand_in)
            return self
        for module in writing_modules():
            self._patch.setattr(module, "os", stand_in)
            for function, name in CALLS_OF_SYSTEM.items():
                if hasattr(module, function):
                    self._patch.setattr(module, function, self.wrap(name, getattr(module, function)))
        self._patch.setattr(shutil, "rmtree", self.wrap("rmtree", shutil.rmtree))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give a function that fails when its turn comes."""

        def call(*arguments: Any, **named: Any) -> Any:
            if name != "open" or self._reading or arguments[1] & os.O_CREAT:
                self._calls += 1
                if self._is_due(name):
                    what = _what(arguments)
                    self.hits.append(f"{name} {what}")
                    self.strike(what)
            return function(*arguments, **named)

        return call

    def strike(self, what: str) -> None:
        """Do what was to be done at the N-th call."""
        raise OSError(self._code, os.strerror(self._code), what)

    def _is_due(self, name: str) -> bool:
        if self._calls == self._number:
            return True
        is_full = self._code in (errno.ENOSPC, errno.EDQUOT)
        # A disk that is full still lets go of files.
        return (
            self._forever and self._calls > self._number and not (is_full and name in MAY_WORK_ON_A_FULL_DISK)
        )


class Kills(Faults):
    """Kill this process at the N-th mutating call to the operating system: inside a step too."""

    def __init__(self, number: int, writer: int) -> None:
        super().__init__(number, 0)
        self._writer = writer

    def strike(self, what: str) -> None:
        """Leave last words and die."""
        os.write(self._writer, f"{self.hits[-1]} (call)".encode(errors="replace"))
        os.kill(os.getpid(), signal.SIGKILL)


def _what(arguments: tuple[Any, ...]) -> str:
    """Name what a call is about: the last of its paths, or a descriptor."""
    names = [
        os.fsdecode(argument) for argument in arguments if isinstance(argument, str | bytes | os.PathLike)
    ]
    return names[-1] if names else str(arguments[0])


class _FailingOs:
    """The module `os`, with some calls wrapped."""

    def __init__(self, faults: Faults, calls: set[str]) -> None:
        for name in calls:
            setattr(self, name, faults.wrap(name, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:  # Any: whatever `os` has
        return getattr(os, name)


# What must be true afterwards


def assert_records_whole(store: Path) -> None:
    """Read every object that a record names, down to the last blob, with its hash checked.

    The timeline is read from a copy: the next command is to find it as the dead process left it.
    """
    packs = journaled_packs(store)
    objects = Objects(str(store / "objects"), journaled=lambda: packs)
    seen: set[bytes] = set()
    try:
        for record in recorded_trees(store):
            for tree in (record.tree, record.facts):
                read_below(objects, tree, seen)
            objects.read(b"commit", record.keeper)
    finally:
        objects.close()


def recorded_trees(store: Path) -> list[Any]:  # Any: records of the journal
    """Give every recorded tree of a store, without touching it."""
    if not (store / "timeline.db").exists():
        return []
    return read_timeline(store, lambda journal: list(journal.trees_after(0)))


def journaled_packs(store: Path) -> list[PackBytes]:
    """Give the packs that the journal of a store holds, without touching it."""
    if not (store / "timeline.db").exists():
        return []
    return read_timeline(store, lambda journal: list(journal.read_packs()))


def read_timeline(store: Path, read: Callable[[Journal], Read]) -> Read:
    """Read from the timeline of a store without touching it."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in store.glob("timeline.db*"):
            shutil.copy(path, scratch)
        journal = Journal(os.path.join(scratch, "timeline.db"))
        try:
            return read(journal)
        finally:
            journal.close()


def read_below(objects: Objects, tree: bytes, seen: set[bytes]) -> None:
    """Read a tree and all that it names."""
    if tree in seen:
        return
    seen.add(tree)
    for entry in objects.read_tree(tree):
        if entry.mode == MODE_TREE:
            read_below(objects, entry.id, seen)
        elif entry.id not in seen:
            seen.add(entry.id)
            objects.read(b"blob", entry.id)


def assert_no_leftovers(store: Path) -> None:
    """Look for what a dead process may leave: temporaries, unfinished stores, packs without an index."""
    assert leftovers(store) == []


def leftovers(store: Path) -> list[str]:
    """List what a dead process may leave."""
    found = [path.name for path in store.parent.glob("*.new")]
    found += [str(path.relative_to(store)) for path in store.rglob("*") if "tmp" in path.name]
    packs = {path.name for path in (store / "objects" / "pack").glob("*")}
    found += [name for name in packs if name.endswith(".pack") and name[:-5] + ".idx" not in packs]
    found += [name for name in packs if name.endswith(".idx") and name[:-4] + ".pack" not in packs]
    return sorted(found)


def count_packs(store: Path) -> int:
    """Count the packs of a store."""
    return len(list((store / "objects" / "pack").glob("*.idx")))


@contextmanager
def mounted_tmpfs(where: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory; skip the test where that is not allowed."""
    with _mounted(where, "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs"):
        yield where


@contextmanager
def mounted_ext4(where: Path, image: Path) -> Iterator[Path]:
    """Mount an ext4 that is in a file, and make it first if there is none; skip where that is not allowed."""
    if not image.exists():
        image.touch()
        os.truncate(image, 16 << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no ext4 can be made here")
    with _mounted(where, "-t", "ext4", "-o", "loop", image):
        yield where


@contextmanager
def _mounted(where: Path, *arguments: str | Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, where], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)
