"""Remotes, and the results of pushes and fetches, as values: each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen
from shadowtree.results.outcomes import Outcome
from shadowtree.results.result import Result


@frozen
class Remote(Result):
    """A git repository elsewhere to which sessions are pushed."""

    name: str
    url: str
    pushed_ms: int | None = None
    """When something was last pushed there."""
    failures: int = 0
    """How many pushes by the daemon have failed in a row."""
    why: str = ""
    """Why the last of them failed."""


@frozen
class PushPreview(Result):
    """What a first push to a remote makes readable there."""

    remote: str
    url: str
    sessions: list[str]
    files: int
    """How many files would be pushed, including those deleted since."""
    untracked: int
    """How many of them your own git does not track."""
    examples: list[str]
    """Some of the untracked files."""
    has_text: bool
    """Whether the texts of messages are pushed too."""


@frozen
class Pushed(Result):
    """What a push did."""

    remote: str
    url: str
    sessions: list[str]
    """The sessions that had something to send."""
    refs: list[str]
    """The refs that were changed there."""
    bytes: int = 0
    """How many bytes were sent."""
    notes: list[str] = field(default_factory=list)


@frozen
class FetchedSession(Result):
    """One session that was fetched."""

    session: str
    """Its name on this machine."""
    messages: list[str]
    """The ids of the messages that are new on this machine."""
    branch: str | None = None
    """The branch that they are on, if they are not on the line."""


@frozen
class Refused(Result):
    """A session of a remote that was not fetched, because it cannot be trusted."""

    session: str
    reason: str


@frozen
class Fetched(Result):
    """What a fetch brought."""

    remote: str
    url: str
    sessions: list[FetchedSession]
    refused: list[Refused] = field(default_factory=list)


@frozen
class Resumed(Result):
    """A session of another machine that continues on this one."""

    worktree: str
    store: str
    session: str
    head: str | None
    """The id of the last message in force."""
    files: int
    """How many files were written."""
    remote: str
    url: str
    outcome: Outcome
    """What happened to each file, or would happen, and the command that restores the files as they were."""
