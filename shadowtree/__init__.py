"""shadowtree: an undo that can be trusted, for coding agents, in any directory.

Names are imported when they are first used, so that a command pays only for what it needs, and an interrupt
during an import is the command's to answer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.aio import AsyncShadow
    from shadowtree.allstores import describe_store, destroy_store, list_stores, remove_orphans
    from shadowtree.auto import Auto
    from shadowtree.bursts import parse_duration
    from shadowtree.config import Config, Setting, read_config, set_setting, unset_setting
    from shadowtree.errors import (
        AmbiguousMessage,
        BroadWorktree,
        Conflict,
        DaemonFailed,
        DuplicateMessage,
        ForgottenMessage,
        ForgottenTree,
        InvalidInput,
        Locked,
        NotConfirmed,
        NotRecorded,
        NotWrapped,
        OutOfSpace,
        OverBudget,
        OverTotalBudget,
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
    from shadowtree.figures import KnownStore, PathFigure, Removal, SessionFigure, Stats, Swept, Usage
    from shadowtree.meeting import Listening, MeetingPlace
    from shadowtree.model import (
        BlameEntry,
        Branch,
        ChangedPath,
        FileDiff,
        Message,
        Patch,
        Skipped,
        Snapshot,
        Status,
        Step,
        Watching,
    )
    from shadowtree.outcome import ConflictingPath, Hunk, Outcome, Plan, PlannedChange
    from shadowtree.reports import CheckReport, Forgotten, HurtMessage, Problem, Purged
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
    "CheckReport",
    "Config",
    "Conflict",
    "ConflictingPath",
    "DaemonFailed",
    "DuplicateMessage",
    "FileDiff",
    "Forgotten",
    "ForgottenMessage",
    "ForgottenTree",
    "Hunk",
    "HurtMessage",
    "InvalidInput",
    "KnownStore",
    "Listening",
    "Locked",
    "MeetingPlace",
    "Message",
    "NotConfirmed",
    "NotRecorded",
    "NotWrapped",
    "OutOfSpace",
    "Outcome",
    "OverBudget",
    "OverTotalBudget",
    "Patch",
    "PathFigure",
    "PerhapsDone",
    "Plan",
    "PlannedChange",
    "Problem",
    "Purged",
    "Removal",
    "SessionFigure",
    "Setting",
    "Settings",
    "Shadow",
    "ShadowError",
    "Skipped",
    "Snapshot",
    "Stats",
    "Status",
    "Step",
    "StoreDamaged",
    "StoreFailed",
    "StoreTooNew",
    "Swept",
    "UnknownBranch",
    "UnknownMessage",
    "UnknownName",
    "UnknownTree",
    "UnsafePath",
    "Usage",
    "Watching",
    "WorktreeFailed",
    "WorktreeReplaced",
    "WorktreeTooBig",
    "describe_store",
    "destroy_store",
    "find_worktree",
    "list_stores",
    "parse_duration",
    "read_config",
    "remove_orphans",
    "set_setting",
    "unset_setting",
]

__version__ = "0.1.0"

_HOMES = {
    "aio": {"AsyncShadow"},
    "allstores": {"describe_store", "destroy_store", "list_stores", "remove_orphans"},
    "auto": {"Auto"},
    "bursts": {"parse_duration"},
    "config": {"Config", "Setting", "read_config", "set_setting", "unset_setting"},
    "figures": {"KnownStore", "PathFigure", "Removal", "SessionFigure", "Stats", "Swept", "Usage"},
    "meeting": {"Listening", "MeetingPlace"},
    "model": {
        "BlameEntry",
        "Branch",
        "ChangedPath",
        "FileDiff",
        "Message",
        "Patch",
        "Skipped",
        "Snapshot",
        "Status",
        "Step",
        "Watching",
    },
    "outcome": {"ConflictingPath", "Hunk", "Outcome", "Plan", "PlannedChange"},
    "reports": {"CheckReport", "Forgotten", "HurtMessage", "Problem", "Purged"},
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
