"""Who is measured: the names, what each must be able to do, and how one is entered."""

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
        """What it takes snapshots of."""

    def prime(self) -> None:
        """Bring the store to where a snapshot leaves it, by any way if it is new; not to be timed."""

    def track(self) -> str:
        """Take a snapshot, making the store if there is none, and return the tree id."""

    def close(self) -> None:
        """Let go of the store."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a contestant says of a message that is over."""

    before: str
    after: str
    paths: list[str]
    """What changed, sorted."""


class MessageContestant(Contestant, Protocol):
    """One that also records messages, one after the other, and reverts the last one."""

    def begin_message(self) -> None:
        """Record the state before a message."""

    def end_message(self) -> Ended:
        """Record the state after it, and what it changed."""

    def revert_message(self) -> None:
        """Take the worktree to where it was before the last message, so that this can be undone."""


def enter(name: str, worktree: Path, store: Path, *, watch: bool = False) -> Contestant:
    """Make the contestant of that name; `store` is made by its first snapshot.

    With `watch` shadowtree watches the worktree; rivals are as they are.

    The modules are imported here because the process that measures git's memory must stay small: on Linux
    the peak of a child is at least that of the process that started it.
    """
    if name == GIT_ADD:
        from benchmarks.rivals import GitAdd

        return GitAdd(worktree, store)
    return enter_for_messages(name, worktree, store, watch=watch)


def enter_for_messages(name: str, worktree: Path, store: Path, *, watch: bool = False) -> MessageContestant:
    """Make the contestant of that name, which must be one that records messages."""
    if name == OURS:
        from benchmarks.ours import Ours

        return Ours(worktree, store, watch=watch)
    from benchmarks.rivals import OpenCode

    return OpenCode(worktree, store)
