"""The contestants: their names, what each must be able to do, and how to enter one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OURS = "shadowtree"
OPENCODE = "OpenCode"
GIT_ADD = "git add"
BARE_PYTHON = "python -c pass"


class Contestant(Protocol):
    """Something that turns one worktree into trees and keeps them in one store."""

    @property
    def worktree(self) -> Path:
        """The worktree of which it takes snapshots."""

    def prime(self) -> None:
        """Bring the store to the state after a snapshot, in any way if it is new; not to be timed."""

    def track(self) -> str:
        """Take a snapshot, making the store if there is none, and return the tree id."""

    def close(self) -> None:
        """Close the store."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A contestant's result of a finished message."""

    before: str
    after: str
    paths: list[str]
    """The changed paths, sorted."""


class MessageContestant(Contestant, Protocol):
    """A contestant that also records messages, one after the other, and reverts the last one."""

    def begin_message(self) -> None:
        """Record the state before a message."""

    def end_message(self) -> Ended:
        """Record the state after a message, and what it changed."""

    def revert_message(self) -> None:
        """Restore the worktree from before the last message, in a way that can be undone."""


def enter(name: str, worktree: Path, store: Path, *, watch: bool = False) -> Contestant:
    """Make the contestant called `name`; its first snapshot makes `store`.

    With `watch` shadowtree watches the worktree; rivals are as they are.

    The modules are imported here because the process that measures git's memory must stay small: on Linux
    the peak of a child is at least that of the process that started it.
    """
    if name == GIT_ADD:
        from benchmarks.rivals import GitAdd

        return GitAdd(worktree, store)
    return enter_for_messages(name, worktree, store, watch=watch)


def enter_for_messages(name: str, worktree: Path, store: Path, *, watch: bool = False) -> MessageContestant:
    """Make the contestant called `name`, which must be one that records messages."""
    if name == OURS:
        from benchmarks.ours import Ours

        return Ours(worktree, store, watch=watch)
    from benchmarks.rivals import OpenCode

    return OpenCode(worktree, store)
