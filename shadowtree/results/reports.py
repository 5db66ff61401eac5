"""Reports on stores, as values: each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen
from shadowtree.results.result import Result, if_any, pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    WorktreeState = Literal["there", "gone", "replaced", "unknown"]
    """`gone`: nothing is at its path; `replaced`: another directory is; `unknown`: it cannot be read."""


@frozen
class Forgotten(Result):
    """What was forgotten, or would be, and what that freed."""

    messages: list[tuple[str, str]]
    """The session and the id of each message, oldest first."""
    trees: int
    """How many trees are no longer needed."""
    removed: int
    """How many objects were removed."""
    freed: int
    """How many bytes that freed."""
    dry_run: bool
    warnings: list[str] = field(default_factory=list)
    """What was forgotten for a budget, or would be."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        forgotten = [{"id": id, "session": session} for session, id in self.messages]
        figures = pick(self, "trees", "removed", "freed", "dry_run", *if_any(self, "warnings"))
        return {"forgotten": forgotten, **figures}


@frozen
class Purged(Result):
    """What was removed for good, or would be."""

    paths: list[str]
    """The recorded files and links, sorted."""
    blobs: list[str]
    """The ids of their contents."""
    trees: int
    """How many trees were rewritten."""
    messages: list[tuple[str, str]]
    """The session and the id of each message that lost it, oldest first."""
    also_at: list[str] = field(default_factory=list)
    """Other paths that hold the same bytes and keep them."""
    left: list[str] = field(default_factory=list)
    """The ids of contents that are still in the store because of that."""
    unread: list[str] = field(default_factory=list)
    """The ids of contents that cannot be read, so that some of the secret may remain."""
    names: list[str] = field(default_factory=list)
    """Message ids and session names that contain the secret; they stay, because callers use them."""
    removed: int = 0
    """How many objects were removed."""
    freed: int = 0
    """How many bytes that freed."""
    notes: list[str] = field(default_factory=list)
    """What you should know."""
    dry_run: bool = False
    remotes: list[str] = field(default_factory=list)
    """The remotes to which something was pushed, and that may still have it."""

    @property
    def complete(self) -> bool:
        """Whether nothing of the secret is left in the store."""
        return not (self.also_at or self.unread or self.names)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        return {
            "purged": self.paths,
            **pick(self, "blobs", "trees"),
            "messages": [{"id": id, "session": session} for session, id in self.messages],
            **pick(self, "also_at", "left", "unread", "names", "removed", "freed"),
            **pick(self, "complete", "notes", "dry_run", *if_any(self, "remotes")),
        }


@frozen
class HurtMessage(Result):
    """A message that needs something that is lost."""

    session: str
    id: str


@frozen
class Problem(Result):
    """Something wrong in a store."""

    kind: str
    """What it is about: `identity`, `config`, `ref`, `timeline`, `object`, `pack` and so on."""
    what: str
    """Which one: a file of the store, a row of the timeline, an object id."""
    message: str
    """What is wrong, in one line for people."""
    messages: list[HurtMessage] = field(default_factory=list)
    """The messages that it hurts."""


@frozen
class CheckReport(Result):
    """What a check found, and what a repair did."""

    problems: list[Problem]
    harmless: list[Problem] = field(default_factory=list)
    """Leftovers that the next record or a repair removes."""
    objects: int = 0
    """How many stored copies of objects were read and hashed."""
    trees: int = 0
    """How many recorded trees were walked."""
    repaired: list[str] = field(default_factory=list)
    """What a repair did, or would do, one sentence each."""
    quarantine: str | None = None
    """The directory with what a repair changed, as it was before."""
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    @property
    def hurt(self) -> list[HurtMessage]:
        """All messages that need something lost."""
        return list(dict.fromkeys(hurt for problem in self.problems for hurt in problem.messages))

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        return {"ok": self.ok, **Result.to_dict(self)}


# How much space stores take; sizes are as stored


@frozen
class PathFigure(Result):
    """How much space all versions of a file take, or of everything below a directory."""

    path: str
    """`.` is the root of the worktree; a directory ends with a slash."""
    bytes: int
    versions: int
    """How many objects these are."""


@frozen
class Usage(Result):
    """How much space the versions of a path take, and of the paths below it."""

    path: str
    bytes: int
    versions: int
    entries: list[PathFigure]
    """Largest first."""


@frozen
class SessionFigure(Result):
    """How much space one session alone needs."""

    session: str | None
    """None for trees of `track` and `wrap`, which belong to no session."""
    bytes: int
    messages: int


@frozen
class Stats(Result):
    """What a store holds, and how much space it takes."""

    worktree: str
    store: str
    store_bytes: int
    """The size that counts for the budget: packs, timeline and cache."""
    budget_bytes: int | None
    """How much the store may take; None means no limit."""
    messages: int
    sessions: int
    trees: int
    pins: int
    oldest_ms: int | None
    """When the oldest message was recorded; None if there is none."""
    newest_ms: int | None
    """When the newest message was recorded; None if there is none."""
    packs: int
    object_bytes: int
    timeline_bytes: int
    cache_bytes: int
    free_bytes: int
    """What `gc` would free."""
    largest: list[PathFigure] = field(default_factory=list)
    """The files and directory listings that take the most space."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON of `stats`."""
        document = Result.to_dict(self)
        times = {name: document.pop(name) for name in ("oldest", "newest")}
        return document | times


@frozen
class Swept(Result):
    """What was removed from a store."""

    removed: int | None
    """How many objects; None for a dry run that did not count them."""
    freed: int
    warnings: list[str] = field(default_factory=list)
    """What was forgotten for budgets, or would be."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON of `gc`."""
        return pick(self, "removed", "freed", *if_any(self, "warnings"))


@frozen
class SweptStore(Result):
    """What was removed from one of several stores."""

    store: str
    worktree: str | None
    swept: Swept | None
    """None if the store was left as it is."""
    reason: str | None = None
    """Why it was left."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON, an entry of `gc --all`."""
        swept = self.swept or Swept(0, 0)
        return pick(self, "store", "worktree") | swept.to_dict() | pick(self, "reason")


@frozen
class KnownStore(Result):
    """One of your stores."""

    store: str
    worktree: str | None
    """None if it cannot be read."""
    state: WorktreeState
    bytes: int
    messages: int | None
    """None if they cannot be counted."""
    used_ms: int | None
    """When something was last recorded in it, if known."""
    doubt: str | None
    """Why it is not removed as an orphan; None if it is one."""
    is_trusted: bool = True
    """Whether only you can write to it; otherwise it is not opened, and has no figures."""

    @property
    def is_orphan(self) -> bool:
        """Whether its worktree is gone for good."""
        return self.doubt is None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON, an entry of `stats --all`."""
        return {
            **pick(self, "store", "worktree", "state", "bytes", "messages", "used_ms"),
            **pick(self, "is_orphan", "doubt", "is_trusted"),
        }


@frozen
class Removal(Result):
    """Which stores were removed, or would be."""

    removed: list[str]
    """Their paths."""
    freed: int
    kept: list[KnownStore]
    """Stores that were kept, though their worktree is missing."""
    dry_run: bool = False


@frozen
class Protected(Result):
    """A path that snapshots record from now on, or did already."""

    path: str
    rule: str | None
    """The line that was or would be added to `.shadowtreeignore`; None if the path was recorded already."""
    exists: bool = True
    """Whether the path exists now."""
    dry_run: bool = False
