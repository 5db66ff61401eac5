"""The values that shadowtree hands out: frozen, and each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    ChangeStatus = Literal["added", "modified", "deleted", "type"]
    """What happened to a path; `type`: a file became a link, or a link a file."""


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
        }
