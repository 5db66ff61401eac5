"""Faults at the N-th write: a kill, or an error of the operating system.

No list of kill points is kept by hand. A write is one that `shadowtree.system.disk` announces, or a mutating
call to the operating system; those calls fail for the whole process while a fault is armed.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from types import FrameType, TracebackType
from typing import Any

import pytest

from shadowtree.system import disk
from tests.support.processes import Child, Ended

CALLS_OF_OS = {
    *("open", "write", "pwrite", "mkdir", "symlink", "link"),
    *("rename", "replace", "unlink", "rmdir", "chmod", "fchmod", "ftruncate", "fsync"),
}
CALLS_OF_SYSTEM = {"_rename": "renameat2", "sync_file_system": "syncfs"}
"""The functions of `system.syscalls` that call the C library, and their names in a hit."""
MAY_WORK_ON_A_FULL_DISK = {
    *("rename", "replace", "unlink", "rmdir", "chmod", "fchmod", "ftruncate", "fsync"),
    *CALLS_OF_SYSTEM.values(),
}

READING_MODULES = ("shadowtree.system.files", "shadowtree.revert.writer")
READING_CALLS = {"open", "read", "stat", "fstat", "readlink", "listdir"}
"""How the worktree is read by descriptor."""


class Faults:
    """Make the N-th mutating call to the operating system fail, and with `forever` all that follow.

    With number 0, no call fails, and the calls are counted.
    """

    def __init__(self, number: int, code: int, *, forever: bool = False, reading: bool = False) -> None:
        self._number = number
        self._reading = reading
        self._code = code
        self._forever = forever
        self._patch = pytest.MonkeyPatch()
        self.calls = 0
        self.hits: list[str] = []
        """The calls that failed."""

    def __enter__(self) -> Faults:
        if self._reading:
            stand_in = _FailingOs(self)
            for name in READING_MODULES:
                self._patch.setattr(import_module(name), "os", stand_in)
            return self
        for name in CALLS_OF_OS:
            self._patch.setattr(os, name, self.wrap(name, getattr(os, name)))
        for module, function, name in _uses_of_system():
            self._patch.setattr(module, function, self.wrap(name, getattr(module, function)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that fails when its turn comes."""

        def call(*arguments: Any, **named: Any) -> Any:
            is_meant = name != "open" or self._reading or arguments[1] & os.O_CREAT
            if is_meant and _is_called_by_shadowtree():
                self.calls += 1
                if self._is_due(name):
                    what = _what(arguments)
                    self.hits.append(f"{name} {what}")
                    self.strike(what)
            return function(*arguments, **named)

        return call

    def strike(self, what: str) -> None:
        """Fail as planned for the N-th call."""
        raise OSError(self._code, os.strerror(self._code), what)

    def _is_due(self, name: str) -> bool:
        if not self._forever:
            return self.calls == self._number
        is_full = self._code in (errno.ENOSPC, errno.EDQUOT)
        # Files can still be removed on a full disk.
        return self.calls >= self._number and not (is_full and name in MAY_WORK_ON_A_FULL_DISK)


def _is_called_by_shadowtree() -> bool:
    """Return whether shadowtree writes, and not the scene itself in the role of a user or an agent."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("shadowtree"):
        frame = frame.f_back
    return frame is not None


def _uses_of_system() -> list[tuple[object, str, str]]:
    """List the modules that refer to one of the functions that call the C library."""
    system = import_module("shadowtree.system.syscalls")
    return [
        (module, function, name)
        for function, name in CALLS_OF_SYSTEM.items()
        for at, module in list(sys.modules.items())
        if at.startswith("shadowtree.") and vars(module).get(function) is getattr(system, function)
    ]


def _what(arguments: tuple[Any, ...]) -> str:
    """Return what a call is about: the last of its paths, or a descriptor."""
    names = [
        os.fsdecode(argument) for argument in arguments if isinstance(argument, str | bytes | os.PathLike)
    ]
    return names[-1] if names else str(arguments[0])


class _FailingOs:
    """The module `os`, with the calls that read wrapped."""

    def __init__(self, faults: Faults) -> None:
        for name in READING_CALLS:
            setattr(self, name, faults.wrap(name, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:  # Any: whatever `os` has
        return getattr(os, name)


def fail_calls(monkeypatch: pytest.MonkeyPatch, call: str, name: bytes, code: int) -> None:
    """Make a function of `os` fail for everything with this name."""
    real = getattr(os, call)

    def failing(target: Any, *rest: Any, **named: Any) -> Any:  # Any: whatever the call takes
        if target == name:
            raise OSError(code, os.strerror(code))
        return real(target, *rest, **named)

    monkeypatch.setattr(os, call, failing)


# Kills


class _Kills(Faults):
    """Kill this process at the N-th mutating call to the operating system, even between announced writes."""

    def __init__(self, number: int, writer: int) -> None:
        super().__init__(number, 0)
        self._leave_words = _words_for(writer)

    def strike(self, what: str) -> None:
        """Leave last words and die."""
        self._leave_words(f"{self.hits[-1]} (call)")
        os.kill(os.getpid(), signal.SIGKILL)


def _words_for(writer: int) -> Callable[[str], object]:
    write = os.write  # the current one: it may be wrapped when the words are left
    return lambda text: write(writer, text.encode(errors="replace"))


def kill_at(scenario: Callable[[], object], number: int, *, at_calls: bool = False) -> Ended:
    """Run a scenario in a separate process that is killed at its N-th write, or call."""

    def arm(writer: int) -> None:
        if at_calls:
            _Kills(number, writer).__enter__()
            return
        leave_words = _words_for(writer)

        def die(act: str, path: str) -> None:
            leave_words(f"{act} {os.path.basename(path)}")
            os.kill(os.getpid(), signal.SIGKILL)

        disk.before_write = at_write(number, die)

    return Child(scenario, arm=arm).wait()


def at_write(number: int, strike: Callable[[str, str], object]) -> Callable[[str, str], None]:
    """Return a fault point that strikes once, before the N-th write."""
    writes = count(1)

    def before_write(act: str, path: str) -> None:
        if next(writes) == number:
            strike(act, path)

    return before_write


@contextmanager
def armed(before_write: Callable[[str, str], None]) -> Iterator[None]:
    """Install a fault point for the body."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "before_write", before_write)
        yield


def sweep_kills(
    prepare: Callable[[], object], scenario: Callable[[], object], check: Callable[[], object]
) -> int:
    """Kill a small scenario at its first write, at its second and so on; return how many kills there were.

    Before each run the state is prepared, after each kill it is checked.
    """
    for number in count(1):
        prepare()
        ended = kill_at(scenario, number)
        if ended.signal is None:
            ended.value()
            return number - 1
        assert ended.signal == signal.SIGKILL
        with noting(f"after kill {number}, before: {ended.last_words}"):
            check()
    raise AssertionError


@contextmanager
def noting(text: str) -> Iterator[None]:
    """Add a note to a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(text)
        raise
