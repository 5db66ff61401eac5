"""Plans and outcomes of acts, as values: each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen
from shadowtree.results.result import Result, if_any, pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from shadowtree.results.messages import FileDiff, Skipped

    PathAction = Literal["create", "restore", "merge", "delete", "keep", "conflict", "skip"]


@frozen
class Hunk(Result):
    """A place where texts collide, with all three versions."""

    line: int
    """Its line in the present file, from 1."""
    ours: str
    """What is there now."""
    base: str
    """The version that both come from."""
    theirs: str
    """What the act would write."""


@frozen
class ConflictingPath(Result):
    """A path that somebody else changed, or something in its way."""

    path: str
    reason: str
    advice: str
    """What you can do."""
    hunks: list[Hunk] = field(default_factory=list)
    """Where the texts collide, after a merge was tried, and in a dry run with `diff`."""
    choices: list[str] = field(default_factory=list)
    """The values of `on_conflict` that it allows, besides `abort`: `merge`, `keep`, `overwrite`."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        return pick(self, "path", "reason", "advice", *if_any(self, "choices"), *if_any(self, "hunks"))


@frozen
class PathOutcome(Result):
    """What an act did to one path, or would do."""

    path: str
    action: PathAction
    is_own: bool
    """Whether somebody else, most likely you, changed it since, or may have."""
    reason: str = ""
    """Why it is in conflict or skipped."""
    choices: list[str] = field(default_factory=list)
    """For a conflict, the values that `on_conflict` can have."""
    hunks: list[Hunk] = field(default_factory=list)
    """For a conflict, where the texts collide."""


@frozen
class Outcome(Result):
    """What an undo, redo, revert, unrevert, switch or restore did, or would do."""

    act: str
    """The kind of act, such as `undo`."""
    messages: list[str]
    """The ids of the messages undone, then of those redone, each oldest first."""
    restored: list[str]
    """Paths whose content, kind or permission bits were restored."""
    deleted: list[str]
    kept: list[str]
    """Paths in conflict that were left as they are because you asked for it."""
    conflicts: list[ConflictingPath]
    """The paths in conflict that stopped the act, if any."""
    skipped: list[Skipped]
    """Paths that could not be restored, with the reasons."""
    before: str
    """The tree before the act."""
    after: str
    """The tree after it."""
    complete: bool
    """Whether everything that you asked for was done."""
    dry_run: bool
    mode: Literal["back", "only"]
    """`only`: one message was undone, and later ones were kept."""
    notes: list[str]
    turns: int | None = None
    """How many turns were undone or redone; None for other acts."""
    covered: int = 0
    """How many files were covered before the act."""
    head: str | None = None
    """The last message in force after the act."""
    redone: list[str] = field(default_factory=list)
    """The ids among `messages` that were redone."""
    undone: list[str] = field(default_factory=list)
    """The ids of the messages that redo can bring back after the act, oldest first."""
    merged: list[str] = field(default_factory=list)
    """Paths among `restored` that were merged with later changes."""
    marked: list[str] = field(default_factory=list)
    """Paths among `merged` with conflict markers."""
    created: list[str] = field(default_factory=list)
    """Paths among `restored` that did not exist before the act."""
    unprotected: list[str] = field(default_factory=list)
    """Ignored or too big files that changed during the messages; they were left alone."""
    reverses: str | None = None
    """The kind of act that an unrevert reverses."""
    id: str = ""
    """The id of the plan: a hash of everything it does."""
    back: str | None = None
    """The command that restores files and log exactly as they were before; None if nothing changed."""
    diff: list[FileDiff] = field(default_factory=list)
    """How each file would differ, for a dry run with `diff`."""
    uncertain: list[str] = field(default_factory=list)
    """Changed paths that may hold your own edits: they changed after the last finished step of a message that
    was never ended, or while a message of another session was open that still is."""
    edited: list[str] = field(default_factory=list)
    """Changed paths that somebody else changed since: their edits are merged or overwritten."""

    @property
    def files(self) -> list[PathOutcome]:
        """Every path with what happens to it: first those that hold edits of your own, then the others."""
        own, created, merged = {*self.edited, *self.uncertain}, set(self.created), set(self.merged)
        found = [
            PathOutcome(
                path, "create" if path in created else "merge" if path in merged else "restore", path in own
            )
            for path in self.restored
        ]
        found += [PathOutcome(path, "delete", path in own) for path in self.deleted]
        found += [PathOutcome(path, "keep", True) for path in self.kept]
        found += [
            PathOutcome(each.path, "conflict", True, each.reason, each.choices, each.hunks)
            for each in self.conflicts
        ]
        found += [PathOutcome(each.path, "skip", False, each.reason) for each in self.skipped]
        return sorted(found, key=lambda each: (not each.is_own, each.path))

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON."""
        turns = [] if self.turns is None else ["turns"]
        return {
            **pick(self, "messages", "restored", "deleted", "kept", "conflicts", "skipped"),
            **pick(self, "before", "after", "complete", "dry_run", "mode", "notes"),
            **pick(self, "redone", "head", "undone", "merged", "marked", "created", "unprotected"),
            **pick(
                self,
                "uncertain",
                "edited",
                "id",
                "back",
                *turns,
                *if_any(self, "reverses"),
                *if_any(self, "diff"),
            ),
        }


@frozen
class PlannedChange:
    """What a plan does to one path. A blob id or mode is None where the path is, or will be, absent."""

    path: str
    old_blob: str | None
    new_blob: str | None
    old_mode: int | None
    """Kind and exact permission bits, as in `st_mode`."""
    new_mode: int | None


@frozen
class Plan(Result):
    """What an act would do to each path, conflicts included."""

    outcome: Outcome
    """The outcome that it would have."""
    changes: list[PlannedChange]
    """Directories too; sorted by path."""

    @property
    def id(self) -> str:
        """The hash of what it would do; pass it as `expect` to do exactly this or nothing."""
        return self.outcome.id

    @property
    def messages(self) -> list[str]:
        """The ids of the messages that would be undone or redone."""
        return self.outcome.messages

    @property
    def restored(self) -> list[str]:
        """The paths that would be restored."""
        return self.outcome.restored

    @property
    def deleted(self) -> list[str]:
        """The paths that would be deleted."""
        return self.outcome.deleted

    @property
    def kept(self) -> list[str]:
        """The paths in conflict that would be left as they are."""
        return self.outcome.kept

    @property
    def conflicts(self) -> list[ConflictingPath]:
        """The paths in conflict, with the reasons."""
        return self.outcome.conflicts

    @property
    def files(self) -> list[PathOutcome]:
        """Every path with what would happen to it, edits of your own first."""
        return self.outcome.files

    @property
    def skipped(self) -> list[Skipped]:
        """The paths that cannot be restored, with the reasons."""
        return self.outcome.skipped

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON: the outcome with `dry_run` true."""
        return self.outcome.to_dict()
