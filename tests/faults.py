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
from typing import Any

import pytest

from shadowtree import Shadow, faultpoint
from shadowtree.gitformat import MODE_TREE
from shadowtree.journal import Journal
from shadowtree.objects import Objects
from tests.referee import git_tree

SETTINGS = {"min_free": 0}

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

    def __init__(self, scenario: Callable[[], object], *, kill_at: int = 0) -> None:
        self._ended: Ended | None = None
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _run_in_child(scenario, kill_at, writer)
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


def _run_in_child(scenario: Callable[[], object], kill_at: int, writer: int) -> None:
    """Run it and end the process, whatever happens: the child must never come back into pytest."""
    code = _RAISED
    faulthandler.disable()  # the parent tells of signals
    try:
        if kill_at:
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
    prepare: Callable[[], object], scenario: Callable[[], object], check: Callable[[], object]
) -> int:
    """Kill the scenario at its first write, at its second and so on; give how many kills there were.

    Before each run the state is prepared, after each kill it is checked.
    """
    for number in count(1):
        prepare()
        ended = Child(scenario, kill_at=number).wait()
        if ended.signal is None:
            ended.value()
            return number - 1
        assert ended.signal == signal.SIGKILL
        with _noted(f"after kill {number}, before: {ended.last_words}"):
            check()
    raise AssertionError


def sweep_errors(
    prepare: Callable[[], object],
    scenario: Callable[[], object],
    check: Callable[[object], object],
    faults: Callable[[int], Faults],
) -> int:
    """Fail the scenario at its first write, at its second and so on; give how many failures there were.

    `check` is called with what the scenario returned or raised.
    """
    for number in count(1):
        prepare()
        with faults(number) as fault:
            try:
                outcome = scenario()
            except Exception as error:  # noqa: BLE001 - the check judges
                outcome = error
        if not fault.hits:
            assert not isinstance(outcome, Exception), outcome
            return number - 1
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


WRITING_MODULES = ("disk", "lock", "staging")
"""Those that change a disk; they see an `os` of their own, and of `system` what is listed below."""

CALLS_OF_OS = {
    *("open", "write", "pwrite", "mkdir", "symlink", "link"),
    *("rename", "replace", "unlink", "rmdir", "chmod", "fchmod", "ftruncate", "fsync"),
}
CALLS_OF_SYSTEM = {
    "exchange": "exchange",
    "move": "move",
    "sync_directory": "fsync",
    "sync_file_system": "syncfs",
}
"""The functions of `system`, and what they are called in a hit."""
MAY_WORK_ON_A_FULL_DISK = {
    *("rename", "replace", "unlink", "rmdir", "rmtree", "chmod", "fchmod", "ftruncate", "fsync"),
    *CALLS_OF_SYSTEM.values(),
}


def writing_modules() -> list[ModuleType]:
    """Import the modules that change a disk."""
    names = [f"shadowtree.{name}" for name in WRITING_MODULES]
    return [import_module(name) for name in names if find_spec(name) is not None]


class Faults:
    """Let the N-th mutating call to the operating system fail, and with `forever` all that follow."""

    def __init__(self, number: int, code: int, *, forever: bool = False) -> None:
        self._number = number
        self._code = code
        self._forever = forever
        self._calls = 0
        self._patch = pytest.MonkeyPatch()
        self.hits: list[str] = []
        """What was failed."""

    def __enter__(self) -> Faults:
        stand_in = _FailingOs(self)
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
            if name != "open" or arguments[1] & os.O_CREAT:
                self._calls += 1
                if self._is_due(name):
                    what = _what(arguments)
                    self.hits.append(f"{name} {what}")
                    raise OSError(self._code, os.strerror(self._code), what)
            return function(*arguments, **named)

        return call

    def _is_due(self, name: str) -> bool:
        if self._calls == self._number:
            return True
        is_full = self._code in (errno.ENOSPC, errno.EDQUOT)
        # A disk that is full still lets go of files.
        return (
            self._forever and self._calls > self._number and not (is_full and name in MAY_WORK_ON_A_FULL_DISK)
        )


def _what(arguments: tuple[Any, ...]) -> str:
    """Name what a call is about: the last of its paths, or a descriptor."""
    names = [
        os.fsdecode(argument) for argument in arguments if isinstance(argument, str | bytes | os.PathLike)
    ]
    return names[-1] if names else str(arguments[0])


class _FailingOs:
    """The module `os`, with the calls that change a disk wrapped."""

    def __init__(self, faults: Faults) -> None:
        for name in CALLS_OF_OS:
            setattr(self, name, faults.wrap(name, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:  # Any: whatever `os` has
        return getattr(os, name)


# What must be true afterwards


def assert_records_whole(store: Path) -> None:
    """Read every object that a record names, down to the last blob, with its hash checked.

    The timeline is read from a copy: the next command is to find it as the dead process left it.
    """
    objects = Objects(str(store / "objects"))
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
    with tempfile.TemporaryDirectory() as scratch:
        for path in store.glob("timeline.db*"):
            shutil.copy(path, scratch)
        journal = Journal(os.path.join(scratch, "timeline.db"))
        try:
            return list(journal.trees_after(0))
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
