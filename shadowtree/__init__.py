"""shadowtree: an undo that can be trusted, for coding agents, in any directory.

Names are imported when they are first used, so that a command pays only for what it needs, and an interrupt
during an import is the command's to answer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.aio import AsyncShadow
    from shadowtree.auto import Auto
    from shadowtree.bursts import parse_duration
    from shadowtree.errors import (
        AmbiguousMessage,
        BroadWorktree,
        Conflict,
        DaemonFailed,
        DuplicateMessage,
        InvalidInput,
        Locked,
        NotConfirmed,
        NotRecorded,
        NotWrapped,
        OutOfSpace,
        PerhapsDone,
        ShadowError,
        StoreDamaged,
        StoreFailed,
        StoreTooNew,
        UnknownBranch,
        UnknownMessage,
        UnknownName,
        UnknownTree,
        UnsafePath,
        WorktreeFailed,
        WorktreeReplaced,
        WorktreeTooBig,
    )
    from shadowtree.meeting import Listening, MeetingPlace
    from shadowtree.model import (
        BlameEntry,
        Branch,
        ChangedPath,
        ConflictingPath,
        FileDiff,
        Hunk,
        Message,
        Outcome,
        Patch,
        Plan,
        PlannedChange,
        Skipped,
        Snapshot,
        Status,
        Step,
        Watching,
    )
    from shadowtree.settings import Settings
    from shadowtree.shadow import Shadow, find_worktree

__all__ = [
    "AmbiguousMessage",
    "AsyncShadow",
    "Auto",
    "BlameEntry",
    "Branch",
    "BroadWorktree",
    "ChangedPath",
    "Conflict",
    "ConflictingPath",
    "DaemonFailed",
    "DuplicateMessage",
    "FileDiff",
    "Hunk",
    "InvalidInput",
    "Listening",
    "Locked",
    "MeetingPlace",
    "Message",
    "NotConfirmed",
    "NotRecorded",
    "NotWrapped",
    "OutOfSpace",
    "Outcome",
    "Patch",
    "PerhapsDone",
    "Plan",
    "PlannedChange",
    "Settings",
    "Shadow",
    "ShadowError",
    "Skipped",
    "Snapshot",
    "Status",
    "Step",
    "StoreDamaged",
    "StoreFailed",
    "StoreTooNew",
    "UnknownBranch",
    "UnknownMessage",
    "UnknownName",
    "UnknownTree",
    "UnsafePath",
    "Watching",
    "WorktreeFailed",
    "WorktreeReplaced",
    "WorktreeTooBig",
    "find_worktree",
    "parse_duration",
]

__version__ = "0.1.0"

_HOMES = {
    "aio": {"AsyncShadow"},
    "auto": {"Auto"},
    "bursts": {"parse_duration"},
    "meeting": {"Listening", "MeetingPlace"},
    "model": {
        "BlameEntry",
        "Branch",
        "ChangedPath",
        "ConflictingPath",
        "FileDiff",
        "Hunk",
        "Message",
        "Outcome",
        "Patch",
        "Plan",
        "PlannedChange",
        "Skipped",
        "Snapshot",
        "Status",
        "Step",
        "Watching",
    },
    "settings": {"Settings"},
    "shadow": {"Shadow", "find_worktree"},
}
"""Which module defines which names; all others are errors."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'shadowtree' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"shadowtree.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
