"""What the journal holds of sessions: messages, and what happened to them, as plain rows.

Numbers count up over all sessions of a store; order is by number, because clocks go back. Rows are never
changed, but for those of branches, and to mark what was forgotten: where a session stands is a fold over its
events (`position`), and each event carries the position that the fold had come to, so that nobody has to
begin at the first one.
"""

from __future__ import annotations

from shadowtree.base.frozen import frozen

# The kinds of events.
WRAP = "wrap"
BEGIN = "begin"
END = "end"
SNAPSHOT = "snapshot"
"""Begin and end in one: the message was recorded when it was over."""
STEP = "step"
STEP_END = "step-end"
REVERT = "revert"
UNDO = "undo"
REDO = "redo"
UNREVERT = "unrevert"
RESTORE = "restore"
SWITCH = "switch"
HEAD_ONLY = "head-only"
"""A revert that moved the head and left the files alone: its changes tell what is expected of them now."""

ACTS = (REVERT, UNDO, REDO, UNREVERT, RESTORE, SWITCH, HEAD_ONLY)
"""What writes into the worktree, or could have."""


@frozen
class TakenOut:
    """A message that was taken out of the line, while later ones stayed."""

    message: int
    newest: int
    """The last message of the session when that was done: those after it were made without this one."""


@frozen
class Position:
    """Where a session stands. Messages are named by their numbers."""

    head: int | None = None
    """The last message in force; the open one, if there is one."""
    tip: int | None = None
    """The last message of the present line; after the head come the undone ones."""
    open: int | None = None
    """The message that has begun and not ended."""
    step: str | None = None
    """The step that has begun and not ended."""
    out: tuple[TakenOut, ...] = ()
    """Messages on the present line that are not in force, though later ones are."""

    def is_out(self, message: int) -> bool:
        """Tell whether a message was taken out of the line."""
        return any(taken.message == message for taken in self.out)


@frozen
class TreeRecord:
    """One recorded tree."""

    number: int
    """Counts up; order is by number, because clocks go back."""
    tree: bytes
    facts: bytes
    keeper: bytes
    """The commit that keeps tree and facts from `git gc`."""
    files: int
    time_s: int
    forgotten_ms: int | None = None
    """When retention took it away; its objects may be gone."""


@frozen
class MessageRow:
    """What was said of a message when it began."""

    number: int
    session: int
    ordinal: int
    """Its place among all messages of its session, from 1 on."""
    id: str
    role: str | None
    text: str
    meta: str | None
    """The caller's JSON object, as text."""
    parent: int | None
    """The message that was in force when it began."""
    forgotten_ms: int | None = None
    """When retention took it away: of its text, its JSON and its trees nothing is left."""


@frozen
class Event:
    """Something that happened in a session."""

    number: int
    session: int
    kind: str
    time_ms: int = 0
    position: Position = Position()
    """Where the session stood afterwards."""
    message: int | None = None
    """The message that began or ended, or whose step did."""
    step: str | None = None
    before: int | None = None
    """The number of the tree recorded before it; of an end the message's own before."""
    after: int | None = None
    """The number of the tree recorded after it."""
    since: int | None = None
    """The event at which `before` was recorded: what others did from there on may be among its changes."""
    is_inferred: bool = False
    """Nobody said that the message was over; of a snapshot, nobody said that there was one."""
    git_head: str | None = None
    """The commit that the user's repository stood at."""
    takes_back: int | None = None
    """The act that an unrevert takes back."""
    skips: int | None = None
    """Where the journal keeps what the snapshot left out."""
    forgotten_ms: int | None = None
    """When its trees were forgotten."""


@frozen
class BranchRow:
    """Messages that were archived: those from after the fork to the tip. No message is on two branches."""

    number: int
    session: int
    name: str
    fork: int | None
    """The message that it branches off after."""
    tip: int
    """Its last message."""
    event: int
    """The event that archived it, or that was the last one before."""


@frozen
class PackRow:
    """A journaled pack, without its bytes."""

    number: int
    name: str
    boot: str
    """In which time between two starts of the machine its files were known to be whole; may be empty."""
    pack_size: int
    index_size: int


@frozen
class Age:
    """A message that is not forgotten, as retention looks at it."""

    number: int
    session: int
    role: str | None
    event: int
    """The event that it began with; it tells what came before it, and what after."""
    time_ms: int
    is_pinned: bool


@frozen
class Act:
    """An act that is not forgotten, as retention looks at it."""

    number: int
    """Of its event."""
    session: int
    time_ms: int


@frozen
class Named:
    """The trees that one event of a message, or one act, names."""

    event: int
    message: int | None
    """None: it is an act."""
    trees: tuple[int, ...]


@frozen
class Tombstone:
    """Something that was removed from every tree of the store for good."""

    path: bytes | None
    blob: bytes | None
    time_ms: int


@frozen
class Intent:
    """An act that is about to be done in the worktree, or was not finished."""

    number: int
    content: bytes
    is_committed: bool
    """The act is in the timeline; what is left is to clean up. Otherwise it has to be taken back."""
