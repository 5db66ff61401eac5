"""A session at a glance, as values: short rows of its messages, and where it stands, counted in turns.

For front ends that show thousands of messages at once, or that keep a conversation of their own.
"""

from __future__ import annotations

from shadowtree.base.frozen import frozen
from shadowtree.results.result import Result, as_datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.results.messages import BranchState, MessageState


@frozen
class TimelineRow(Result):
    """One message, without what it changed."""

    id: str
    number: int
    """Its number in the session, from 1."""
    turn: int
    role: str | None
    agent: str | None
    """The value of `agent` in its `meta`."""
    text: str
    """The beginning of its text."""
    time_ms: int
    files: int
    """How many paths it changed."""
    steps: int
    unprotected: int
    """How many ignored or too big files changed during it."""
    state: MessageState
    branch: str | None
    """The branch that it is archived on."""
    parent: str | None
    """The id of the message before it; None if it was the first."""
    marks: list[str]
    """What is special about it: `inferred`, `burst`, `out`, `pinned`, `partly_reverted`, or `edited`: files
    changed outside messages before it began."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON. Written out, because ten thousand rows are made at once."""
        return {
            "id": self.id,
            "number": self.number,
            "turn": self.turn,
            "role": self.role,
            "agent": self.agent,
            "text": self.text,
            "time": as_datetime(self.time_ms).isoformat(timespec="milliseconds"),
            "files": self.files,
            "steps": self.steps,
            "unprotected": self.unprotected,
            "state": self.state,
            "branch": self.branch,
            "parent": self.parent,
            "marks": self.marks,
        }


@frozen
class Timeline(Result):
    """The messages of a session as rows, and where it stands."""

    session: str
    number: int
    """The number of the last update; it grows with each recorded message and act."""
    total: int
    """How many messages the session has."""
    head: str | None
    """The id of the last message in force."""
    open: str | None
    """The id of the open message."""
    undone: list[str]
    """The ids of the messages that redo can bring back, oldest first."""
    rows: list[TimelineRow]
    """Oldest first."""

    @classmethod
    def empty(cls, session: str) -> Timeline:
        """Return the timeline of a session while nothing is recorded."""
        return cls(session, number=0, total=0, head=None, open=None, undone=[], rows=[])


@frozen
class TurnEntry(Result):
    """One turn: a message of the user, and the messages of other roles that follow it."""

    turn: int
    """Its number, from 1; a branch continues counting from its fork."""
    messages: list[str]
    """The ids of its messages, oldest first."""
    text: str
    """The first line of its first message's text."""


@frozen
class BranchTurns(Result):
    """A branch, by turns."""

    name: str
    label: str
    """The first line of its first message's text."""
    state: BranchState
    time_ms: int
    """When it was archived."""
    fork: str | None
    """The id of the message it forks after; None if it forks at the start."""
    files: int
    """How many paths its messages changed."""
    turns: list[TurnEntry]


@frozen
class SessionState(Result):
    """Where a session stands, for a host that keeps the conversation itself."""

    worktree: str
    store: str
    session: str
    number: int
    """The number of the last update; it grows with each recorded message and act."""
    head: str | None
    """The id of the last message in force."""
    open: str | None
    """The id of the open message."""
    tree: str | None
    """The tree that the session recorded last, or any session if this one recorded none."""
    turn: int
    """The turn of the last message in force or open; 0 if there is none."""
    turns: int
    """How many turns the present line has, undone ones too."""
    undone: list[TurnEntry]
    """The turns that redo can bring back, oldest first."""
    branches: list[BranchTurns]

    @classmethod
    def empty(cls, worktree: str, store: str, session: str) -> SessionState:
        """Return the state of a session while nothing is recorded."""
        return cls(
            worktree,
            store,
            session,
            number=0,
            head=None,
            open=None,
            tree=None,
            turn=0,
            turns=0,
            undone=[],
            branches=[],
        )
