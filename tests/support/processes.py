"""Separate processes: the command line, in an environment in which it runs this very package, and forks."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shadowtree

PACKAGE_PLACE = str(Path(shadowtree.__file__).parents[1])
COMMAND = [sys.executable, "-m", "shadowtree"]

_CAME_THROUGH = 0
_RAISED = 99


def surroundings(**variables: str) -> dict[str, str]:
    """Return the environment of this process, with the package on the path and these variables set."""
    return {**os.environ, "PYTHONPATH": PACKAGE_PLACE, **variables}


@dataclass(frozen=True)
class Raised:
    """An error that a child raised."""

    names: tuple[str, ...]
    """Its class and the base classes."""
    text: str


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    signal: int | None
    """The signal that killed it."""
    result: Any  # Any: what the scenario returned, or a Raised
    last_words: str = ""
    """The write that it was about to make when it was killed, or its traceback."""

    def value(self) -> Any:  # Any: what the scenario returned
        """Return what the scenario returned; fail if it was killed or raised."""
        assert self.signal is None, f"killed by {signal.Signals(self.signal).name}"
        assert not isinstance(self.result, Raised), self.last_words
        return self.result


class Child:
    """A scenario in a forked process.

    `arm` is called first, in the child, with the descriptor for its last words.
    """

    def __init__(
        self, scenario: Callable[[], object], *, arm: Callable[[int], object] = lambda writer: None
    ) -> None:
        self._ended: Ended | None = None
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _run_in_child(scenario, arm, writer)
        os.close(writer)

    def kill(self) -> None:
        """Kill it, as `kill -9` does, unless it has ended."""
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for its end, and return how it ended."""
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
    """Run a scenario in a separate process."""
    return Child(scenario).wait()


def _run_in_child(scenario: Callable[[], object], arm: Callable[[int], object], writer: int) -> None:
    """Run it and end the process, whatever happens: the child must never come back into pytest."""
    code = _RAISED
    faulthandler.disable()  # the parent reports signals
    try:
        try:
            arm(writer)
            told: tuple[object, str] = (scenario(), "")
            code = _CAME_THROUGH
        except BaseException as error:  # noqa: BLE001 - the parent judges
            names = tuple(kind.__name__ for kind in type(error).__mro__)
            told = (Raised(names, str(error)), traceback.format_exc())
        os.write(writer, pickle.dumps(told))
    finally:
        os._exit(code)
