"""What looking after a store comes to, as values: frozen, and each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen
from shadowtree.results.result import Result, if_any, pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    WorktreeState = Literal["there", "gone", "replaced", "unknown"]
    """`gone`: nothing is at its path; `replaced`: another directory is; `unknown`: nobody can tell."""


@frozen
class Forgotten(Result):
    """What was forgotten, or would be, and what that freed."""

    messages: list[tuple[str, str]]
    """The session and the id of each message, oldest first."""
    trees: int
    """How many trees nothing needs any more."""
    removed: int
    """How many objects were removed."""
    freed: int
    """How many bytes that freed."""
    dry_run: bool
    warnings: list[str] = field(default_factory=list)
    """What of that was forgotten for a budget, or would be."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        forgotten = [{"id": id, "session": session} for session, id in self.messages]
        figures = pick(self, "trees", "removed", "freed", "dry_run", *if_any(self, "warnings"))
        return {"forgotten": forgotten, **figures}


@frozen
class Purged(Result):
    """What was removed for good, or would be."""

    paths: list[str]
    """The files and links that some tree held, sorted."""
    blobs: list[str]
    """What they held, by id."""
    trees: int
    """How many trees are others than they were."""
    messages: list[tuple[str, str]]
    """The session and the id of each message that no longer tells of it, oldest first."""
    also_at: list[str] = field(default_factory=list)
    """Other paths that hold the same bytes, and keep them."""
    left: list[str] = field(default_factory=list)
    """Which of the contents are still in the store for that."""
    unread: list[str] = field(default_factory=list)
    """Which of the contents nobody can read, so that messages may still say what was in them."""
    names: list[str] = field(default_factory=list)
    """Ids of messages and names of sessions that hold something of it, and stay: others call by them."""
    removed: int = 0
    """How many objects were removed."""
    freed: int = 0
    """How many bytes that freed."""
    notes: list[str] = field(default_factory=list)
    """What a user should know."""
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """Whether the bytes are nowhere in the store any more."""
        return not (self.also_at or self.unread or self.names)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "purged": self.paths,
            **pick(self, "blobs", "trees"),
            "messages": [{"id": id, "session": session} for session, id in self.messages],
            **pick(self, "also_at", "left", "unread", "names", "removed", "freed"),
            **pick(self, "complete", "notes", "dry_run"),
        }


@frozen
class HurtMessage(Result):
    """A message that cannot be relied on as a whole, because something that it needs is lost."""

    session: str
    id: str


@frozen
class Problem(Result):
    """Something in a store that is not as it should be."""

    kind: str
    """What sort of thing it is about: `identity`, `config`, `ref`, `timeline`, `object`, `pack` and so on."""
    what: str
    """Which one: a file of the store, a row of the timeline, the id of an object."""
    message: str
    """What is wrong with it, in one line for people."""
    messages: list[HurtMessage] = field(default_factory=list)
    """The messages that it hurts."""


@frozen
class CheckReport(Result):
    """What a check of a store found, and what a repair did."""

    problems: list[Problem]
    harmless: list[Problem] = field(default_factory=list)
    """What costs nobody anything: the next command that records, or a repair, removes it."""
    objects: int = 0
    """How many stored copies of objects were read and hashed."""
    trees: int = 0
    """How many recorded trees were walked."""
    repaired: list[str] = field(default_factory=list)
    """What a repair did, or would do, a sentence each."""
    quarantine: str | None = None
    """Where a repair put what it changed, as it was before."""
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems

    @property
    def hurt(self) -> list[HurtMessage]:
        """Every message that something lost hurts, once."""
        return list(dict.fromkeys(hurt for problem in self.problems for hurt in problem.messages))

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {"ok": self.ok, **Result.to_dict(self)}


# What stores take; sizes are as stored


@frozen
class PathFigure(Result):
    """What all versions of a file take, or of all files below a directory with its listings."""

    path: str
    """The root of the worktree is `.`, and a directory ends with a slash."""
    bytes: int
    versions: int
    """How many objects that is."""


@frozen
class Usage(Result):
    """What the versions of a path take, and of the paths below it."""

    path: str
    bytes: int
    versions: int
    entries: list[PathFigure]
    """The largest first."""


@frozen
class SessionFigure(Result):
    """What one session alone needs: so much would be free without it."""

    session: str | None
    """None: no session, but trees of `track` and `wrap`."""
    bytes: int
    messages: int


@frozen
class Stats(Result):
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
        document = Result.to_dict(self)
        times = {name: document.pop(name) for name in ("oldest", "newest")}
        return document | times


@frozen
class Swept(Result):
    """What was removed from a store."""

    removed: int | None
    """How many objects; None: nothing was, and nobody knows how many would be."""
    freed: int
    warnings: list[str] = field(default_factory=list)
    """What was forgotten for budgets, or would be."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON of `gc`."""
        return pick(self, "removed", "freed", *if_any(self, "warnings"))


@frozen
class SweptStore(Result):
    """What was removed from one of all stores."""

    store: str
    worktree: str | None
    swept: Swept | None
    """None: it was left as it is."""
    reason: str | None = None
    """Why it was left."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON, an entry of `gc --all`."""
        swept = self.swept or Swept(0, 0)
        return pick(self, "store", "worktree") | swept.to_dict() | pick(self, "reason")


@frozen
class KnownStore(Result):
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
            **pick(self, "store", "worktree", "state", "bytes", "messages", "used_ms"),
            **pick(self, "is_orphan", "doubt", "is_trusted"),
        }


@frozen
class Removal(Result):
    """What was removed of all stores, or would be."""

    removed: list[str]
    """The stores."""
    freed: int
    kept: list[KnownStore]
    """Those whose worktree is not there, and that were kept all the same."""
    dry_run: bool = False


@frozen
class Protected(Result):
    """A path that snapshots cover from the next one on, or did already."""

    path: str
    rule: str | None
    """The line that `.shadowtreeignore` got, or would get; None: it was covered already."""
    exists: bool = True
    """Whether something is there now."""
    dry_run: bool = False
