"""Snapshots, messages, steps, branches and patches as values: each `to_dict()` is the documented JSON."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence

from shadowtree.base.frozen import field, frozen
from shadowtree.base.paths import DIRECTORY, Change, PathState, Unknown, is_file, to_text
from shadowtree.results.result import Result, as_datetime, if_any, pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any, Literal

    ChangeStatus = Literal["added", "modified", "deleted", "type"]
    """`type`: a file became a link, or a link a file."""
    MessageState = Literal["open", "active", "undone", "archived"]
    BranchState = Literal["active", "archived"]
    LineOrigin = Literal["message", "outside", "forgotten", "first", "unrecorded", "unknown"]
    """Where a line comes from: a message, an edit outside messages, a forgotten message, the first record of
    the file, an edit that is not recorded yet, or unknown."""


@frozen
class Skipped(Result):
    """A path that the rules cover but that was left out, and why."""

    path: str
    reason: str


@frozen
class Snapshot(Result):
    """What one snapshot recorded."""

    tree: str
    """The id of the git tree."""
    facts: str
    """The id of the facts: permission bits, empty directories, skipped paths, rules."""
    files: int
    """How many files and links the tree holds."""
    skipped: list[Skipped]
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON of `track`."""
        return pick(self, "tree", "files", "skipped", *if_any(self, "warnings"))


@frozen
class ChangedPath(Result):
    """One path of a patch. A blob id or mode is None where the path was absent."""

    path: str
    status: ChangeStatus
    old_blob: str | None
    new_blob: str | None
    old_mode: int | None
    """Kind and exact permission bits, as in `st_mode`."""
    new_mode: int | None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        return pick(self, "path", "status")


@frozen
class Patch(Result):
    """The paths that differ between a tree and a later one; never file contents."""

    tree: str
    """The tree that the later one is compared with."""
    files: list[ChangedPath]
    """Sorted by path."""
    skipped: list[Skipped] = field(default_factory=list)
    """Paths that are unknown in one of the two trees."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        return pick(self, "tree", "files")


@frozen
class FileDiff(Result):
    """How one file differs, as text."""

    path: str
    status: ChangeStatus
    additions: int
    deletions: int
    binary: bool
    patch: str
    """A unified diff; empty if the file is too large to compare, or binary and `binary` was not given."""
    renamed_from: str | None = None
    """For an added path, the deleted path that it probably was before; for display only."""
    rename: FileDiff | None = None
    """How the file differs from the one it was renamed from, to show in place of the two entries."""
    exact: str = ""
    """A patch for `git apply`, if `patch` is not exact; bytes that are not UTF-8 are surrogate escapes."""

    @property
    def is_too_large(self) -> bool:
        """Whether the file is too large to compare line by line."""
        return not (self.patch or self.binary)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON, an entry of `diff`."""
        names = ("path", "status", "additions", "deletions", "binary", "patch")
        return pick(self, *names, *if_any(self, "renamed_from"))


@frozen
class Watching(Result):
    """How well a directory is watched."""

    is_active: bool
    """Whether snapshots scan only what changed."""
    directories: int
    """How many are watched."""
    unwatched: int
    """How many are scanned each time instead."""
    rescans: int
    """How often everything was scanned."""
    reason: str | None
    """Why everything was scanned the last time."""
    missed: int
    """How many changes were found that the watcher had not reported."""


@frozen
class Status(Result):
    """Where a session stands, what changed, and what is not protected."""

    worktree: str
    store: str
    session: str
    head: str | None
    open: str | None
    undone: list[str]
    changed: int
    """How many paths differ from the last recorded tree."""
    ignored: int
    """How many files and directories the rules leave out; a directory counts once."""
    watching: bool
    skipped: list[Skipped]
    outside: list[ChangedPath] = field(default_factory=list)
    """What changed since the session's last record, outside any message."""
    unprotected: list[str] = field(default_factory=list)
    """Ignored or too big files that changed since the session's last record."""
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, worktree: str, store: str, session: str) -> Status:
        """Return the status of a session while nothing is recorded."""
        return cls(
            worktree,
            store,
            session,
            head=None,
            open=None,
            undone=[],
            changed=0,
            ignored=0,
            watching=False,
            skipped=[],
        )


@frozen
class SessionEntry(Result):
    """One session, as `sessions` lists it."""

    id: str
    messages: int
    """How many messages it has, without forgotten ones."""
    head: str | None
    """The last message in force."""
    time_ms: int
    """When it recorded last."""
    agent: str | None
    """The value of `agent` in its newest message's `meta`."""
    open: str | None = None
    """The id of its open message."""


@frozen
class Step(Result):
    """One tool call inside a message."""

    name: str
    message: str
    """The id of its message."""
    session: str
    before: str
    """The tree before it."""
    after: str | None
    """The tree after it; None while it is open."""
    patch: Patch
    """What it changed; empty while it is open."""
    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    inferred: bool = False
    """It was never ended: the end of its message ended it."""
    meta: dict[str, Any] | None = None  # Any: the caller's JSON object
    time_ms: int = 0
    """When it began, in milliseconds since 1970."""
    end_time_ms: int | None = None
    """When it ended; None while it is open."""

    @property
    def time(self) -> datetime:
        """When it began."""
        return as_datetime(self.time_ms)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON of `step`, an entry of `steps` in `show`."""
        begun = {"message": self.message, "step": self.name, **pick(self, "before", "time_ms", "meta")}
        ended = pick(self, "after", "end_time_ms", "inferred") | pick(self.patch, "files")
        return begun | ({} if self.after is None else ended) | pick(self, *if_any(self, "warnings"))


@frozen
class Message(Result):
    """One unit of an agent's work, as recorded."""

    id: str
    session: str
    role: str | None
    text: str
    meta: dict[str, Any] | None  # Any: the caller's JSON object
    time_ms: int
    """When it began, in milliseconds since 1970."""
    before: str
    """The tree before it."""
    after: str | None
    """The tree after it; None while it is open."""
    state: MessageState
    branch: str | None
    """The branch that it is archived on."""
    skipped: list[Skipped]
    """Paths that could not be recorded, with the reasons."""
    patch: Patch
    """What it changed; empty while it is open."""
    number: int
    """Its number in the session, from 1."""
    turn: int = 1
    """The number of its turn, from 1; a branch continues counting from its fork."""
    unprotected: list[str] = field(default_factory=list)
    """Ignored or too big files that changed during it: no undo brings them back."""
    inferred: bool = False
    """It was never ended: something later ended it, or it is a burst."""
    steps: list[Step] = field(default_factory=list)
    """Its tool calls, in the order they began; they may overlap."""
    is_burst: bool = False
    """Nobody announced it: files changed, then nothing changed for a while."""
    git_head: str | None = None
    """The commit at HEAD of your repository when it began."""
    git_head_after: str | None = None
    """The commit at HEAD of your repository when it ended."""
    parent: str | None = None
    """The id of the message before it; None if it was the first."""
    is_out: bool = False
    """It was undone alone, and later ones were kept: redo skips it."""
    is_pinned: bool = False
    """It is never forgotten."""
    is_partly_reverted: bool = False
    """Some of its paths or steps were reverted, and it is still in force."""
    warnings: list[str] = field(default_factory=list)

    @property
    def time(self) -> datetime:
        """When it began."""
        return as_datetime(self.time_ms)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON, an entry of `log`."""
        return {
            **pick(self, "id", "number", "turn", "session", "role", "text", "time_ms", "before", "after"),
            "files": len(self.patch.files),
            **pick(self, "state", "branch", "inferred", "meta"),
            **pick(self, "is_burst", "parent", "is_out", "is_pinned", "is_partly_reverted", "unprotected"),
        }


@frozen
class Branch(Result):
    """Undone messages, archived because a new one began or the session switched away."""

    name: str
    fork: str | None
    """The id of the message it forks after; None if it forks at the start."""
    messages: list[str]
    """The ids of its own messages, oldest first."""
    time_ms: int
    """When it was archived, in milliseconds since 1970."""
    label: str
    """The first line of its first message's text."""
    state: BranchState
    """`active`: it is on the present line."""
    files: int = 0
    """How many paths its messages changed."""

    @property
    def time(self) -> datetime:
        """When it was archived."""
        return as_datetime(self.time_ms)


@frozen
class BlameEntry(Result):
    """One change of a file, and who made it."""

    status: ChangeStatus
    message: Message | None
    """The message that made it; None if it was made outside messages, or the message is forgotten."""
    time_ms: int | None
    """When it was recorded, in milliseconds since 1970; None if it is not recorded yet."""
    old_blob: str | None
    new_blob: str | None
    is_forgotten: bool = False
    """A message made it, and was forgotten since."""
    is_unprotected: bool = False
    """The file was not protected: it changed, and no undo brings it back."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON; the keys of a message are null if there is none."""
        message = {
            name: getattr(self.message, name, None) for name in ("id", "session", "state", "branch", "text")
        }
        names = ("status", "time_ms", "old_blob", "new_blob", "is_forgotten", "is_unprotected")
        return message | pick(self, *names)


@frozen
class Update(Result):
    """Something recorded: a message began or ended, or an act was done."""

    number: int
    """It grows with each update of a store, in any session. Numbers of a dropped message are used again."""
    kind: str
    """`begin`, `end` or `snapshot` of a message, or the name of the act: `undo`, `redo` and so on."""
    session: str
    message: str | None
    """The id of the message that began or ended; None for an act."""
    time_ms: int

    @property
    def time(self) -> datetime:
        """When it was recorded."""
        return as_datetime(self.time_ms)


@frozen
class BlameLine(Result):
    """One line of a file, and who wrote it."""

    number: int
    """From 1."""
    text: str
    """Without the line feed; bytes that are not UTF-8 are U+FFFD."""
    origin: LineOrigin
    message: Message | None
    """The message that wrote it; for a line that is not recorded yet, the open one, if any."""
    time_ms: int | None
    """When it was recorded, in milliseconds since 1970, if known."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON; the keys of a message are null if there is none."""
        message = {name: getattr(self.message, name, None) for name in ("id", "session")}
        return pick(self, "number", "text", "origin", "time_ms") | message


class _Handle:
    """A message or step in progress; it has the attributes of its value, first as begun, then as finished."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # Any: a Message or a Step
        self.value = value

    def finish(self, value: Any) -> None:  # Any: a Message or a Step
        """Replace the value by the one recorded at the end."""
        self.value = value

    if not TYPE_CHECKING:  # type checkers read the attributes that the subclasses declare

        def __getattr__(self, name: str) -> object:
            if name == "value":
                # A copy that is being made has no value yet.
                raise AttributeError(name)
            return getattr(self.value, name)


class MessageHandle(_Handle):
    """A message being recorded. After the body it has the values of the finished `Message`."""

    __slots__ = ()
    value: Message
    id: str
    number: int
    turn: int
    session: str
    role: str | None
    text: str
    meta: dict[str, Any] | None  # Any: the caller's JSON object
    time: datetime
    before: str
    after: str | None
    state: MessageState
    branch: str | None
    skipped: list[Skipped]
    unprotected: list[str]
    inferred: bool
    steps: list[Step]
    patch: Patch
    warnings: list[str]
    to_dict: Callable[[], dict[str, Any]]  # Any: JSON


class StepHandle(_Handle):
    """A step being recorded. After the body it has the values of the finished `Step`."""

    __slots__ = ()
    value: Step
    name: str
    message: str
    before: str
    after: str | None
    inferred: bool
    patch: Patch
    warnings: list[str]
    to_dict: Callable[[], dict[str, Any]]  # Any: JSON


def join_renames(diffs: Sequence[FileDiff]) -> list[FileDiff]:
    """Replace the two entries of each rename by one."""
    gone = {file_diff.renamed_from for file_diff in diffs}
    return [file_diff.rename or file_diff for file_diff in diffs if file_diff.path not in gone]


def make_patch(tree: str, changes: Iterable[Change]) -> Patch:
    """Make a patch from changes, without directories."""
    files: list[ChangedPath] = []
    skipped: list[Skipped] = []
    for change in changes:
        if DIRECTORY in (change.old, change.new) and not change.is_known:
            continue
        if isinstance(change.old, Unknown):
            skipped.append(Skipped(to_text(change.path), f"not recorded before: {change.old.reason}"))
        elif isinstance(change.new, Unknown):
            skipped.append(Skipped(to_text(change.path), f"not recorded after: {change.new.reason}"))
        elif is_file(change.old) or is_file(change.new):
            files.append(_changed_path(change.path, change.old, change.new))
    return Patch(tree, files, skipped)


def _changed_path(path: bytes, old: PathState | None, new: PathState | None) -> ChangedPath:
    before, after = old if is_file(old) else None, new if is_file(new) else None
    status: ChangeStatus = "added" if before is None else "deleted" if after is None else "modified"
    if before is not None and after is not None and stat.S_IFMT(before.mode) != stat.S_IFMT(after.mode):
        status = "type"
    old_blob, old_mode = (None, None) if before is None else (before.blob.hex(), before.mode)
    new_blob, new_mode = (None, None) if after is None else (after.blob.hex(), after.mode)
    return ChangedPath(to_text(path), status, old_blob, new_blob, old_mode, new_mode)
