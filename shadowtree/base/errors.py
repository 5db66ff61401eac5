"""Every error that shadowtree raises on purpose.

    ShadowError
    ├── InvalidInput          the caller: an invalid argument
    │   ├── AmbiguousSession      several sessions could be meant
    │   ├── ArchivedMessage       it is on another branch
    │   └── DuplicateMessage
    ├── NotWrapped            the caller: no store belongs to this directory
    │   ├── WorktreeMoved         a store may belong to it, but that cannot be proved
    │   └── WorktreeReplaced      the store belongs to a directory that was here before
    │       └── ForeignStore          the caller named it
    ├── UnknownName           the caller: a name that does not exist
    │   ├── UnknownRemote
    │   ├── UnknownMessage
    │   │   ├── AmbiguousMessage  the name is ambiguous
    │   │   ├── ForgottenMessage  it was forgotten
    │   │   ├── UnknownBranch
    │   │   └── UnknownStep
    │   └── UnknownTree
    │       └── ForgottenTree     it was forgotten
    ├── Conflict              the user: somebody else changed what would be replaced
    │   ├── NotConfirmed          it has to be confirmed, and was not
    │   └── PlanOutdated          it would no longer do what was expected
    ├── Locked                time: another process holds the lock
    ├── BroadWorktree         the user: too much would be wrapped
    │   └── WorktreeTooBig
    ├── OutOfSpace            the machine: the disk is full, or would be
    ├── UnsafePath            the machine: a path that cannot be trusted
    ├── StoreFailed           the machine: reading or writing the store failed
    ├── WorktreeFailed        the machine: reading or writing the worktree failed
    ├── DaemonFailed          the machine: the daemon cannot be reached, or ended
    │   └── PerhapsDone           it ended while it was working
    ├── RemoteFailed          the machine: a remote cannot be reached, or stopped answering
    │   ├── RemoteRefused         it refused the request: credentials, rights, rules
    │   └── RemoteDamaged         its data is invalid
    ├── MissingExtra          the installation: an optional library is missing
    ├── StoreTooNew           the installation: a newer version wrote this store
    ├── StoreTooOld           the installation: a version before the first release wrote this store
    └── StoreDamaged          the store: its contents are not what was written

An error carries values and builds its text from them: what happened, and to what. Advice and exit codes
belong to the front ends.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LISTED = 10
"""How many candidates an error lists."""


def describe(error: OSError) -> str:
    """Return the operating system's reason, in lower case."""
    return (error.strerror or str(error)).lower()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count_changes(outcome: Any, ending: str = "") -> str:  # Any: an Outcome, from a package above
    """Count the files that an act would delete, replace and create; `ending` is that of the verbs."""
    created = len(outcome.created)
    replaced = len(outcome.restored) - created
    parts: list[str] = []
    for verb, number in (("delete", len(outcome.deleted)), ("replace", replaced), ("create", created)):
        if number:
            told = f"{number:,}"
            if not parts:
                files = _count(outcome.covered, "file")
                told = _count(number, "file") if verb == "create" else f"{told} of {files}"
            parts.append(f"{verb}{ending} {told}")
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or f"change{ending} no files"


def describe_size(size_bytes: int) -> str:
    """Write a size in its largest unit: `512 B`, `1.5 KiB`, `20 MiB`."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1023.5:
            break
        size, unit = size / 1024, larger
    number = f"{size:.0f}" if unit == "B" or size >= 99.95 else f"{size:.1f}"
    return f"{number.removesuffix('.0')} {unit}"


def _tell_forgetting(forgotten_ms: int) -> str:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(forgotten_ms / 1000, UTC)
    return f"was forgotten on {when:%Y-%m-%d}"


def is_full(error: OSError) -> bool:
    """Return whether the error means that the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ShadowError(Exception):
    """The base of all errors of shadowtree."""


class InvalidInput(ShadowError, ValueError):
    """An argument is invalid."""


class AmbiguousSession(InvalidInput):
    """No session was given, and a session other than the last one has an open message."""

    def __init__(self, session: str, others: Mapping[str, str]) -> None:
        self.session = str(session)
        """The session that recorded last."""
        self.others = dict(others)
        """The other sessions, each with its open message."""
        named = ", ".join(f"{name!r} has an open message, {id!r}" for name, id in self.others.items())
        super().__init__(f"which session? {self.session!r} recorded last, but {named}")


class ArchivedMessage(InvalidInput):
    """The message is on another branch, so there is nothing of it to undo."""

    def __init__(self, message_id: str, number: int) -> None:
        self.message_id = message_id
        self.number = number
        """Its number in its session."""
        super().__init__(f"message {message_id!r} is archived, so there is nothing to undo")


class DuplicateMessage(InvalidInput):
    """The session has a message with this id already."""

    def __init__(self, message_id: str, session: str) -> None:
        self.message_id = message_id
        self.session = session
        super().__init__(f"message {message_id!r} already exists in session {session!r}")


class NotWrapped(ShadowError):
    """No store belongs to this directory."""

    def __init__(self, worktree: str, why: str | None = None) -> None:
        self.worktree = worktree
        super().__init__(f"{worktree} is not wrapped" + (f": {why}" if why else ""))


class WorktreeMoved(NotWrapped):
    """The directory may have been moved here, but that cannot be proved."""

    def __init__(self, worktree: str, store: str, moved_from: str, why: str, *, is_likely: bool) -> None:
        self.store = store
        self.moved_from = moved_from
        self.is_likely = is_likely
        """Whether it is the same directory, and only part of the proof is missing."""
        super().__init__(worktree, f"it may have been moved from {moved_from}, but {why}")


class WorktreeReplaced(NotWrapped):
    """The store was made for another directory that used to be at this path."""

    def __init__(self, worktree: str, store: str) -> None:
        self.store = store
        super().__init__(worktree, f"the store {store} belongs to another directory")


class ForeignStore(WorktreeReplaced):
    """The given store belongs to another directory."""


class UnknownName(ShadowError):
    """Nothing in the store has this name."""

    kind = "name"

    def __init__(self, name: str, sentence: str | None = None) -> None:
        self.name = name
        super().__init__(sentence or f"no {self.kind} named {name!r}")


class UnknownRemote(UnknownName):
    """No remote has this name."""

    kind = "remote"


class UnknownMessage(UnknownName):
    """No message or branch has this name."""

    kind = "message"


class AmbiguousMessage(UnknownMessage):
    """The name could mean several messages, branches or trees."""

    def __init__(
        self, name: str, candidates: Sequence[str], sentence: str | None = None, *, what: str = "messages"
    ) -> None:
        self.candidates = list(candidates)
        """The ids or names that it could mean."""
        listed = ", ".join(repr(candidate) for candidate in self.candidates[:_LISTED])
        more = len(self.candidates) - _LISTED
        listed += f" and {more} more" if more > 0 else ""
        super().__init__(name, sentence or f"{name!r} matches {len(self.candidates)} {what}: {listed}")


class ForgottenMessage(UnknownMessage):
    """The message was forgotten."""

    def __init__(self, name: str, forgotten_ms: int, *, is_on_way: bool = False) -> None:
        self.forgotten_ms = forgotten_ms
        """When it was forgotten, in milliseconds since 1970."""
        sentence = f"message {name!r} {_tell_forgetting(forgotten_ms)}"
        super().__init__(name, f"cannot get there: on the way, {sentence}" if is_on_way else sentence)


class UnknownBranch(UnknownMessage):
    """No branch has this name."""

    kind = "branch"


class UnknownStep(UnknownMessage):
    """A message has no step with this name."""

    def __init__(self, name: str, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(name, f"message {message_id!r} has no step {name!r}")


class UnknownTree(UnknownName):
    """No tree in the store has this id."""

    kind = "message, branch or tree"


class ForgottenTree(UnknownTree):
    """The tree was forgotten."""

    def __init__(self, name: str, forgotten_ms: int) -> None:
        self.forgotten_ms = forgotten_ms
        """When it was forgotten, in milliseconds since 1970."""
        super().__init__(name, f"tree {name!r} {_tell_forgetting(forgotten_ms)}")


class Conflict(ShadowError):
    """Somebody else changed a path that the act would have replaced. Nothing was changed."""

    def __init__(
        self,
        conflicts: Sequence[Any],  # Any: a ConflictingPath, from a package that imports this one
        outcome: Any,  # Any: an Outcome, likewise
    ) -> None:
        self.conflicts = list(conflicts)
        """Each path in conflict, with the reason and what you can do."""
        self.outcome = outcome
        """The outcome: nothing was done, `complete` is False, and `conflicts` says why."""
        super().__init__(self._describe())

    def _describe(self) -> str:
        return f"{_count(len(self.conflicts), 'path')} in conflict; nothing was changed"


class NotConfirmed(Conflict):
    """The act has to be confirmed, and was not. Nothing was changed."""

    def __init__(
        self,
        outcome: Any,  # Any: an Outcome, from a package that imports this one
        what: str | None = None,
        *,
        plan: Any = None,  # Any: a Plan, likewise
    ) -> None:
        self.what = what
        """What would be done; None for an act on files."""
        self.plan = plan
        """The plan that was not confirmed."""
        super().__init__([], outcome)

    def _describe(self) -> str:
        what = self.what or count_changes(self.outcome if self.plan is None else self.plan.outcome)
        return f"this would {what}; nothing was changed"


class PlanOutdated(Conflict):
    """The act would no longer do what you expected. Nothing was changed."""

    def __init__(self, outcome: Any, plan: Any) -> None:  # Any: an Outcome and a Plan, as above
        self.plan = plan
        """The plan as it is now."""
        super().__init__([], outcome)

    def _describe(self) -> str:
        return "the plan is out of date; nothing was changed"


class Locked(ShadowError):
    """Another process holds the store's lock."""

    def __init__(self, store: str, pid: int | None, host: str | None, waited_s: float) -> None:
        self.store = store
        self.pid = pid
        self.host = host
        self.waited_s = waited_s
        owner = f"process {pid} on {host}" if pid else "another process"
        super().__init__(f"{store} is locked by {owner} (waited {waited_s:g} s)")


class BroadWorktree(ShadowError):
    """The directory is too broad to wrap without `allow_broad`."""

    def __init__(self, worktree: str, why: str) -> None:
        self.worktree = worktree
        super().__init__(f"{worktree} is too broad to wrap: {why}")


class WorktreeTooBig(BroadWorktree):
    """A first snapshot would record more files or bytes than the settings allow."""

    def __init__(self, worktree: str, *, setting: str, found: int, limit: int) -> None:
        self.setting = setting
        self.found = found
        self.limit = limit
        is_count = setting == "max_files"
        size, most = (f"{found:,} files", f"{limit:,}") if is_count else map(describe_size, (found, limit))
        super().__init__(worktree, f"it has {size}, and {setting} is {most}")


class OutOfSpace(ShadowError):
    """The disk is full, or less than `min_free` would stay free."""

    def __init__(
        self,
        path: str,
        *,
        free: int | None = None,
        needed: int | None = None,
        min_free: int | None = None,
        is_first: bool = False,
    ) -> None:
        self.path = path
        self.is_first = is_first
        """Whether there is no store yet, so that one on another disk would do."""
        self.free = free
        self.needed = needed
        self.min_free = min_free
        if free is None:
            text = f"no space left on the disk of {path}"
        else:
            has = f"{describe_size(free)} free, {describe_size(needed or 0)} needed"
            reserve = f", {describe_size(min_free)} must stay free" if min_free else ""
            text = f"not enough space on the disk of {path}: {has}{reserve}"
        super().__init__(text)


class UnsafePath(ShadowError):
    """A path is not safe to use: another user controls it, or it is not what it should be."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        super().__init__(f"{path} is not safe to use: {why}")


class _FileFailed(ShadowError):
    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class StoreFailed(_FileFailed):
    """Reading or writing a file of the store failed."""


class WorktreeFailed(_FileFailed):
    """Reading or writing a file of the worktree failed."""


class DaemonFailed(ShadowError):
    """The daemon cannot be started or reached, or has ended."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the daemon {why}")


class PerhapsDone(DaemonFailed):
    """The daemon ended or stopped answering while it worked; the work may or may not be done."""

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        super().__init__(f"{why} during {what!r}, which may or may not be done")


class RemoteFailed(ShadowError):
    """A remote cannot be reached, refused something, or sent something that cannot be trusted."""

    def __init__(self, remote: str, why: str) -> None:
        self.remote = remote
        """Its address, without credentials."""
        self.why = why
        super().__init__(f"{remote}: {why}")


class RemoteRefused(RemoteFailed):
    """A remote refused a request. Nothing was changed there."""


class RemoteDamaged(RemoteFailed):
    """The data of a remote or a bundle is invalid. Nothing of it was stored."""


class MissingExtra(ShadowError):
    """A feature needs a library that an extra of this package installs."""

    def __init__(self, extra: str) -> None:
        self.extra = extra
        super().__init__(f"this needs the extra {extra!r}, which is not installed")


class StoreTooNew(ShadowError):
    """A newer version of shadowtree wrote this store."""

    def __init__(self, store: str, found: int, known: int) -> None:
        self.store = store
        self.found = found
        self.known = known
        super().__init__(f"{store} has format {found}, but this version reads formats up to {known}")


class StoreTooOld(ShadowError):
    """A version of shadowtree from before the first release wrote this store."""

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(f"{store} was written by a pre-release version and cannot be read")


class StoreDamaged(ShadowError):
    """The store is damaged."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the store is damaged: {what}")
