"""What acts come to, as values: frozen, and each `to_dict()` is the documented JSON."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen
from shadowtree.results.result import Result, if_any, pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from shadowtree.results.messages import FileDiff, Skipped


@frozen
class Hunk(Result):
    """A place at which texts collide: what each side has there."""

    line: int
    """Where it is in the present file, from 1 on."""
    ours: str
    """What is there now."""
    base: str
    """What both come from."""
    theirs: str
    """What was to be there."""


@frozen
class ConflictingPath(Result):
    """A path that somebody else changed, or that something is in the way of."""

    path: str
    reason: str
    advice: str
    """What the user can do."""
    hunks: list[Hunk] = field(default_factory=list)
    """Where the texts collide, if they were to be merged."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        return pick(self, "path", "reason", "advice", *if_any(self, "hunks"))


@frozen
class Outcome(Result):
    """What a revert, unrevert, undo, redo, switch or restore did, or would do, and what it left alone."""

    act: str
    """Which of them it was."""
    messages: list[str]
    """The ids of the messages undone or redone, oldest first; those undone come before those redone."""
    restored: list[str]
    """The paths that have their earlier content, kind or permission bits again."""
    deleted: list[str]
    kept: list[str]
    """The paths in conflict that were left as they are because the caller asked for it."""
    conflicts: list[ConflictingPath]
    """Why nothing was done."""
    skipped: list[Skipped]
    """The paths that could not be taken back, because nobody knows what they were."""
    before: str
    """The tree before the act."""
    after: str
    """The tree after it."""
    complete: bool
    """Whether all was done that was asked for."""
    dry_run: bool
    mode: Literal["back", "only"]
    """`only`: one message was taken out from under the later ones."""
    notes: list[str]
    turns: int | None = None
    """How many turns were undone or redone; None for acts that do not count in turns."""
    covered: int = 0
    """How many files were covered before the act."""
    head: str | None = None
    """The last message in force after it."""
    redone: list[str] = field(default_factory=list)
    """Those of the messages that are in force after it."""
    undone: list[str] = field(default_factory=list)
    """The ids of the messages beyond the head after it, oldest first: redo can bring them back."""
    merged: list[str] = field(default_factory=list)
    """Those of the restored paths in which later changes are kept: they are as they never were before."""
    marked: list[str] = field(default_factory=list)
    """Those of the merged paths in which conflict markers stand."""
    created: list[str] = field(default_factory=list)
    """Those of the restored paths at which nothing was before the act."""
    unprotected: list[str] = field(default_factory=list)
    """The paths that changed during the messages, but are not protected: they were left alone."""
    reverses: str | None = None
    """The kind of act that an unrevert reverses."""
    id: str = ""
    """The id of the plan: a hash of all that it does."""
    back: str | None = None
    """The command that brings back exactly the state before, files and log; None: nothing was changed."""
    diff: list[FileDiff] = field(default_factory=list)
    """How each file would differ, if a dry run was asked for that."""
    uncertain: list[str] = field(default_factory=list)
    """Those of the changed paths that may hold your own edits: they were changed after the last finished
    step of a message that nobody ended."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON."""
        turns = [] if self.turns is None else ["turns"]
        return {
            **pick(self, "messages", "restored", "deleted", "kept", "conflicts", "skipped"),
            **pick(self, "before", "after", "complete", "dry_run", "mode", "notes"),
            **pick(self, "redone", "head", "undone", "merged", "marked", "created", "unprotected"),
            **pick(self, "uncertain", "id", "back", *turns, *if_any(self, "reverses"), *if_any(self, "diff")),
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
    """What a revert would do to each path, conflicts included, before anything is done."""

    outcome: Outcome
    """What it would come to."""
    changes: list[PlannedChange]
    """Directories too; sorted by path."""

    @property
    def id(self) -> str:
        """The hash of what it would do: an act takes it as `expect`, and does this or nothing."""
        return self.outcome.id

    @property
    def messages(self) -> list[str]:
        """The ids of the messages that would be undone or redone."""
        return self.outcome.messages

    @property
    def restored(self) -> list[str]:
        """The paths that would be put back."""
        return self.outcome.restored

    @property
    def deleted(self) -> list[str]:
        """The paths that would be unlinked."""
        return self.outcome.deleted

    @property
    def kept(self) -> list[str]:
        """The paths in conflict that would be left as they are."""
        return self.outcome.kept

    @property
    def conflicts(self) -> list[ConflictingPath]:
        """What stands in the way."""
        return self.outcome.conflicts

    @property
    def skipped(self) -> list[Skipped]:
        """The paths that nobody knows enough of."""
        return self.outcome.skipped

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON: the outcome, with `dry_run` true."""
        return self.outcome.to_dict()
