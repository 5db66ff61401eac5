"""The values that shadowtree hands out: frozen, and each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any, Literal

    ChangeStatus = Literal["added", "modified", "deleted", "type"]
    """What happened to a path; `type`: a file became a link, or a link a file."""
    MessageState = Literal["open", "active", "undone", "archived"]
    BranchState = Literal["active", "archived"]


@frozen
class Skipped:
    """A path that the rules would have covered, and why it was left out."""

    path: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        """Give the documented JSON."""
        return {"path": self.path, "reason": self.reason}


@frozen
class Snapshot:
    """What one snapshot found: a tree, and all that stands beside it."""

    tree: str
    """The id of the git tree."""
    facts: str
    """The id of what stands beside the tree: permission bits, empty directories, skipped paths, rules."""
    files: int
    """How many files and links the tree covers."""
    skipped: list[Skipped]
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `track`."""
        result: dict[str, Any] = {  # Any: JSON
            "tree": self.tree,
            "files": self.files,
            "skipped": [skipped.to_dict() for skipped in self.skipped],
        }
        if self.warnings:
            result["warnings"] = list(self.warnings)
        return result


@frozen
class ChangedPath:
    """One path of a patch. A blob id or mode is None where the path was absent."""

    path: str
    status: ChangeStatus
    old_blob: str | None
    new_blob: str | None
    old_mode: int | None
    """Kind and exact permission bits, as in `st_mode`."""
    new_mode: int | None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {"path": self.path, "status": self.status}


@frozen
class Patch:
    """The paths that differ between a tree and a later one; never file contents."""

    tree: str
    """The tree that the later one was compared with."""
    files: list[ChangedPath]
    """Sorted by path."""
    skipped: list[Skipped] = field(default_factory=list)
    """Paths of which one of the two trees can say nothing."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {"tree": self.tree, "files": [changed.to_dict() for changed in self.files]}


@frozen
class FileDiff:
    """How one path differs, as text."""

    path: str
    status: ChangeStatus
    additions: int
    deletions: int
    binary: bool
    patch: str
    """A unified diff; empty for binary files and for files too large to compare line by line."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "path": self.path,
            "status": self.status,
            "additions": self.additions,
            "deletions": self.deletions,
            "binary": self.binary,
            "patch": self.patch,
        }


@frozen
class Watching:
    """How well a worktree is in sight of its watcher."""

    is_active: bool
    """Snapshots look only at what may have changed."""
    directories: int
    """How many are watched."""
    unwatched: int
    """How many are looked at each time instead."""
    rescans: int
    """How often everything was looked at."""
    reason: str | None
    """Why that was needed the last time."""
    missed: int
    """How many changes were found of which nobody had told."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "active": self.is_active,
            "directories": self.directories,
            "unwatched": self.unwatched,
            "rescans": self.rescans,
            "reason": self.reason,
            "missed": self.missed,
        }


@frozen
class Status:
    """Where a shadow stands, and what of the worktree is not protected."""

    worktree: str
    store: str
    session: str
    head: str | None
    open: str | None
    undone: list[str]
    changed: int
    """How many paths differ from the last recorded tree."""
    ignored: int
    """How many files and directories the rules leave out (a directory counts once)."""
    watching: bool
    skipped: list[Skipped]
    outside: list[ChangedPath] = field(default_factory=list)
    """What changed since the session recorded last, and is no message's."""
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "worktree": self.worktree,
            "store": self.store,
            "session": self.session,
            "head": self.head,
            "open": self.open,
            "undone": list(self.undone),
            "changed": self.changed,
            "ignored": self.ignored,
            "watching": self.watching,
            "skipped": [skipped.to_dict() for skipped in self.skipped],
            "outside": [changed.to_dict() for changed in self.outside],
            "warnings": list(self.warnings),
        }


@frozen
class Step:
    """One tool call inside a message."""

    name: str
    message: str
    """The id of the message that it is part of."""
    session: str
    before: str
    """The tree before it."""
    after: str | None
    """The tree after it; None while it is open."""
    patch: Patch
    """What it changed; empty while it is open."""
    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_inferred: bool = False
    """Nobody said that it was over: a later one ended it, or the end of the message."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `step`."""
        result: dict[str, Any] = {
            "message": self.message,
            "step": self.name,
            "before": self.before,
        }  # Any: JSON
        if self.after is not None:
            result["after"] = self.after
            result["files"] = [changed.to_dict() for changed in self.patch.files]
        if self.warnings:
            result["warnings"] = list(self.warnings)
        return result


@frozen
class Message:
    """One unit of an agent's work, as the timeline has it."""

    id: str
    session: str
    role: str | None
    text: str
    meta: dict[str, Any] | None  # Any: the caller's JSON object
    time_ms: int
    """When it began, in milliseconds since 1970."""
    before: str | None
    """The tree before it; None if the snapshot failed."""
    after: str | None
    """The tree after it; None while it is open, or if the snapshot failed."""
    state: MessageState
    branch: str | None
    """The branch that it is archived on."""
    skipped: list[Skipped]
    """What of it is not protected, with the reasons."""
    patch: Patch
    """What it changed; empty while it is open, and where there is a hole."""
    number: int
    """Its place among all messages of the session, from 1 on."""
    is_inferred: bool = False
    """Nobody said that it was over: something later ended it, or it is a burst."""
    is_burst: bool = False
    """Nobody announced it: files changed, and then came to rest, or the run ended that changed them."""
    hole: str | None = None
    """Why a snapshot of it failed, so that nobody knows what it changed."""
    git_head: str | None = None
    """The commit that the user's repository stood at before it."""
    parent: str | None = None
    """The id of the message that it came after; None: it was the first of its line."""
    is_out: bool = False
    """It was undone alone, and later ones stayed: redo passes it by."""
    is_pinned: bool = False
    """It is never forgotten."""
    warnings: list[str] = field(default_factory=list)

    @property
    def time(self) -> datetime:
        """When it began."""
        return as_datetime(self.time_ms)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON, an entry of `log`; `files` is null where there is a hole."""
        result: dict[str, Any] = {  # Any: JSON
            "id": self.id,
            "session": self.session,
            "role": self.role,
            "text": self.text,
            "time": self.time.isoformat(timespec="milliseconds"),
            "before": self.before,
            "after": self.after,
            "files": None if self.hole is not None else len(self.patch.files),
            "state": self.state,
            "branch": self.branch,
            "number": self.number,
            "meta": self.meta,
            "inferred": self.is_inferred,
            "burst": self.is_burst,
            "parent": self.parent,
            "out": self.is_out,
            "pinned": self.is_pinned,
        }
        if self.hole is not None:
            result["hole"] = self.hole
        return result


@frozen
class Branch:
    """Messages that were archived because a new one began, or because the session was switched."""

    name: str
    fork: str | None
    """The id of the message that it branches off after; None: it goes back to the start."""
    messages: list[str]
    """The ids of its own messages, oldest first."""
    time_ms: int
    """When it was archived, in milliseconds since 1970."""
    label: str
    """The first line of the text of its first message."""
    state: BranchState
    """`active`: it is the present line, or part of it."""
    files: int = 0
    """How many paths its messages changed."""

    @property
    def time(self) -> datetime:
        """When it was archived."""
        return as_datetime(self.time_ms)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "name": self.name,
            "fork": self.fork,
            "messages": list(self.messages),
            "time": self.time.isoformat(timespec="milliseconds"),
            "label": self.label,
            "state": self.state,
            "files": self.files,
        }


@frozen
class BlameEntry:
    """One change of a path, and whose it is."""

    status: ChangeStatus
    message: Message | None
    """The message that made it; None: it was made outside any message, or by one that is forgotten."""
    time_ms: int | None
    """When it was recorded, in milliseconds since 1970; None: it is not recorded yet."""
    old_blob: str | None
    new_blob: str | None
    is_forgotten: bool = False
    """A message made it that was forgotten since."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON; what belongs to a message is null where there is none."""
        message, time_ms = self.message, self.time_ms
        return {
            "id": None if message is None else message.id,
            "session": None if message is None else message.session,
            "state": None if message is None else message.state,
            "branch": None if message is None else message.branch,
            "text": None if message is None else message.text,
            "status": self.status,
            "time": None if time_ms is None else as_datetime(time_ms).isoformat(timespec="milliseconds"),
            "old_blob": self.old_blob,
            "new_blob": self.new_blob,
            "forgotten": self.is_forgotten,
        }


def as_datetime(time_ms: int) -> datetime:
    """Turn milliseconds since 1970 into an aware time."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC)
