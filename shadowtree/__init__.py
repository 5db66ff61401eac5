"""shadowtree: reliable undo for coding agents, in any directory.

Names are imported on first use, so a command loads only the modules it needs, and can handle an interrupt
during an import itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.aio import AsyncShadow
    from shadowtree.all_stores import list_stores
    from shadowtree.base.errors import (
        BroadWorktree,
        Conflict,
        DuplicateMessage,
        InvalidInput,
        Locked,
        NotConfirmed,
        NotWrapped,
        OutOfSpace,
        PlanOutdated,
        ShadowError,
        StoreDamaged,
        StoreFailed,
        UnknownMessage,
        UnknownName,
        UnknownTree,
        UnsafePath,
        WorktreeFailed,
    )
    from shadowtree.config.settings import Settings
    from shadowtree.results.messages import (
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
    from shadowtree.results.outcomes import ConflictingPath, Hunk, Outcome, Plan, PlannedChange
    from shadowtree.results.reports import CheckReport, Forgotten, Problem, Purged, Stats, Swept, Usage
    from shadowtree.shadow import Shadow, find_worktree

__all__ = [
    "AsyncShadow",
    "BlameEntry",
    "Branch",
    "BroadWorktree",
    "ChangedPath",
    "CheckReport",
    "Conflict",
    "ConflictingPath",
    "DuplicateMessage",
    "FileDiff",
    "Forgotten",
    "Hunk",
    "InvalidInput",
    "Locked",
    "Message",
    "NotConfirmed",
    "NotWrapped",
    "OutOfSpace",
    "Outcome",
    "Patch",
    "Plan",
    "PlanOutdated",
    "PlannedChange",
    "Problem",
    "Purged",
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
    "Swept",
    "UnknownMessage",
    "UnknownName",
    "UnknownTree",
    "UnsafePath",
    "Usage",
    "Watching",
    "WorktreeFailed",
    "find_worktree",
    "list_stores",
]

__version__ = "0.1.0"

_HOMES = {
    "aio": {"AsyncShadow"},
    "all_stores": {"list_stores"},
    "config.settings": {"Settings"},
    "results.messages": {
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
    "results.outcomes": {"ConflictingPath", "Hunk", "Outcome", "Plan", "PlannedChange"},
    "results.reports": {"CheckReport", "Forgotten", "Problem", "Purged", "Stats", "Swept", "Usage"},
    "shadow": {"Shadow", "find_worktree"},
}
"""The module that defines each public name; names not listed here are in `base.errors`."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'shadowtree' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "base.errors")
    return getattr(import_module(f"shadowtree.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
