"""shadowtree: an undo that can be trusted, for coding agents, in any directory."""

from __future__ import annotations

from shadowtree.errors import (
    BroadWorktree,
    Conflict,
    DuplicateMessage,
    InvalidInput,
    Locked,
    NotWrapped,
    OutOfSpace,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    StoreTooNew,
    UnknownMessage,
    UnknownName,
    UnknownTree,
    UnsafePath,
    WorktreeFailed,
    WorktreeReplaced,
    WorktreeTooBig,
)
from shadowtree.model import ChangedPath, FileDiff, Patch, Skipped, Snapshot, Status
from shadowtree.settings import Settings
from shadowtree.shadow import Shadow, find_worktree

__all__ = [
    "BroadWorktree",
    "ChangedPath",
    "Conflict",
    "DuplicateMessage",
    "FileDiff",
    "InvalidInput",
    "Locked",
    "NotWrapped",
    "OutOfSpace",
    "Patch",
    "Settings",
    "Shadow",
    "ShadowError",
    "Skipped",
    "Snapshot",
    "Status",
    "StoreDamaged",
    "StoreFailed",
    "StoreTooNew",
    "UnknownMessage",
    "UnknownName",
    "UnknownTree",
    "UnsafePath",
    "WorktreeFailed",
    "WorktreeReplaced",
    "WorktreeTooBig",
    "find_worktree",
]

__version__ = "0.1.0"
