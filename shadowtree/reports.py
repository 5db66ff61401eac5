"""What looking after a store comes to, as values: frozen, and each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@frozen
class Forgotten:
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
        warnings = {"warnings": list(self.warnings)} if self.warnings else {}
        return {
            "forgotten": [{"id": id, "session": session} for session, id in self.messages],
            "trees": self.trees,
            "removed": self.removed,
            "freed": self.freed,
            "dry_run": self.dry_run,
            **warnings,
        }


@frozen
class Purged:
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
            "blobs": self.blobs,
            "trees": self.trees,
            "messages": [{"id": id, "session": session} for session, id in self.messages],
            "also_at": self.also_at,
            "left": self.left,
            "unread": self.unread,
            "names": self.names,
            "removed": self.removed,
            "freed": self.freed,
            "complete": self.complete,
            "notes": self.notes,
            "dry_run": self.dry_run,
        }


@frozen
class HurtMessage:
    """A message that cannot be relied on as a whole, because something that it needs is lost."""

    session: str
    id: str

    def to_dict(self) -> dict[str, str]:
        """Give the documented JSON."""
        return {"session": self.session, "id": self.id}


@frozen
class Problem:
    """Something in a store that is not as it should be."""

    kind: str
    """What sort of thing it is about: `identity`, `config`, `ref`, `timeline`, `object`, `pack` and so on."""
    what: str
    """Which one: a file of the store, a row of the timeline, the id of an object."""
    message: str
    """What is wrong with it, in one line for people."""
    messages: list[HurtMessage] = field(default_factory=list)
    """The messages that it hurts."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return {
            "kind": self.kind,
            "what": self.what,
            "message": self.message,
            "messages": [hurt.to_dict() for hurt in self.messages],
        }


@frozen
class CheckReport:
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
        return {
            "ok": self.ok,
            "problems": [problem.to_dict() for problem in self.problems],
            "harmless": [problem.to_dict() for problem in self.harmless],
            "objects": self.objects,
            "trees": self.trees,
            "repaired": list(self.repaired),
            "quarantine": self.quarantine,
            "dry_run": self.dry_run,
        }
