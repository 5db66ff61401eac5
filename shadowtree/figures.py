"""What a store takes, as values: frozen, and each `to_dict()` is the documented JSON. Sizes are as stored."""

from __future__ import annotations

from shadowtree.frozen import field, frozen
from shadowtree.model import as_datetime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    WorktreeState = Literal["there", "gone", "replaced", "unknown"]
    """`gone`: nothing is at its path; `replaced`: another directory is; `unknown`: nobody can tell."""


@frozen
class PathFigure:
    """What all versions of a file take, or of all files below a directory with its listings."""

    path: str
    """The root of the worktree is `.`, and a directory ends with a slash."""
    bytes: int
    versions: int
    """How many objects that is."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {"path": self.path, "bytes": self.bytes, "versions": self.versions}


@frozen
class Usage:
    """What the versions of a path take, and of the paths below it."""

    path: str
    bytes: int
    versions: int
    entries: list[PathFigure]
    """The largest first."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `du`."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "versions": self.versions,
            "entries": [entry.to_dict() for entry in self.entries],
        }


@frozen
class SessionFigure:
    """What one session alone needs: so much would be free without it."""

    session: str | None
    """None: no session, but trees of `track` and `wrap`."""
    bytes: int
    messages: int

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `du --by-session`."""
        return {"session": self.session, "bytes": self.bytes, "messages": self.messages}


@frozen
class Stats:
    """What a store holds, and what that takes."""

    worktree: str
    store: str
    store_bytes: int
    """What counts for its budget: packs, the rows of the timeline, and the cache."""
    budget_bytes: int | None
    """What the store may take; None: as much as there is."""
    messages: int
    sessions: int
    trees: int
    pins: int
    oldest_ms: int | None
    """When the first message that is left was recorded, and the last one; None: there is none."""
    newest_ms: int | None
    packs: int
    object_bytes: int
    timeline_bytes: int
    cache_bytes: int
    free_bytes: int
    """What `gc` would free: stored, and needed by nothing that is recorded."""
    largest: list[PathFigure] = field(default_factory=list)
    """The files, and listings of directories, that take most."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `stats`."""
        names: tuple[str, ...] = type(self).__match_args__
        document = {name: getattr(self, name) for name in names if not name.endswith("_ms")}
        return {
            **document,
            "oldest": _as_text(self.oldest_ms),
            "newest": _as_text(self.newest_ms),
            "largest": [path.to_dict() for path in self.largest],
        }


@frozen
class Swept:
    """What was removed from a store."""

    removed: int | None
    """How many objects; None: nothing was, and nobody knows how many would be."""
    freed: int
    warnings: list[str] = field(default_factory=list)
    """What was forgotten for budgets, or would be."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `gc`."""
        warnings = {"warnings": list(self.warnings)} if self.warnings else {}
        return {"removed": self.removed, "freed": self.freed, **warnings}


@frozen
class KnownStore:
    """One of all the stores of a user."""

    store: str
    worktree: str | None
    """None: it cannot be read."""
    state: WorktreeState
    bytes: int
    messages: int
    used_ms: int | None
    """When something was recorded in it last; None: nobody knows."""
    doubt: str | None
    """Why it is not removed as an orphan; None: it is one."""
    is_trusted: bool = True
    """Whether it is the user's alone; another one is not looked into, and has no figures."""

    @property
    def is_orphan(self) -> bool:
        """Whether its worktree is gone for good."""
        return self.doubt is None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON, an entry of `stats --all`."""
        return {
            "store": self.store,
            "worktree": self.worktree,
            "state": self.state,
            "bytes": self.bytes,
            "messages": self.messages,
            "used": _as_text(self.used_ms),
            "orphan": self.is_orphan,
            "doubt": self.doubt,
            "trusted": self.is_trusted,
        }


@frozen
class Removal:
    """What was removed of all stores, or would be."""

    removed: list[str]
    """The stores."""
    freed: int
    kept: list[KnownStore]
    """Those whose worktree is not there, and that were kept all the same."""
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `gc --orphans`."""
        return {
            "removed": list(self.removed),
            "freed": self.freed,
            "kept": [store.to_dict() for store in self.kept],
            "dry_run": self.dry_run,
        }


def _as_text(time_ms: int | None) -> str | None:
    return None if time_ms is None else as_datetime(time_ms).isoformat(timespec="milliseconds")
