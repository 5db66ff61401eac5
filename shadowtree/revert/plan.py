"""Make the plan of an act: decide from wanted and present states what to do to each path, before doing it.

A plan has an id (`identify_plan`), so a caller can insist on exactly this plan.

A path is in conflict if its present state is not what the timeline last recorded, unless it already is as
wanted, or somebody else's changes can be merged. Then the shape is checked: a directory that has to become a
file must hold nothing foreign, and whatever holds a file must be a directory.

A merge has a base that both sides come from: ours is the present state, theirs is the base with the edit. For
each edit on the way, these rules apply in order:

- If both sides are the same, take that. If only one side differs from the base, take that side.
- In two regular files, permission bits and contents are merged separately. Bits that both sides changed
  differently collide. Contents are merged by lines; binary and too large contents collide.
- Everything else collides: a deletion and an edit, two files created at the same path, a link and anything, a
  file and a directory. A link is never merged as text.

A path that collides is not touched, unless only texts collide and the user wants markers.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from hashlib import sha256

from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    Change,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    is_file,
    to_text,
)
from shadowtree.results.messages import Skipped
from shadowtree.results.outcomes import ConflictingPath, Hunk
from shadowtree.revert.wanted import Edit, Wanted, describe_edit
from shadowtree.text.merge import Merge, NotMerged, merge_text, write_markers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from shadowtree.base.arguments import OnConflict
    from shadowtree.base.paths import Answer
    from shadowtree.revert.contents import Contents, DiskState
    from shadowtree.revert.requests import Options
    from shadowtree.revert.targets import Target

    Value = TypeVar("Value", int, bytes)

_KEEP_OR = "keep to leave yours, or overwrite to discard it (unrevert restores it)"
KEEP_OR_OVERWRITE = f"use {_KEEP_OR}"
MERGE_OR_KEEP = f"use merge to combine, {_KEEP_OR}"
KEEP_OR_MOVE = "move it away, or use keep to leave it"
MARK_OR_KEEP = f"use markers to edit both, {_KEEP_OR}"
_CHOICES = {
    KEEP_OR_OVERWRITE: ["keep", "overwrite"],
    MERGE_OR_KEEP: ["merge", "keep", "overwrite"],
    KEEP_OR_MOVE: ["keep"],
    MARK_OR_KEEP: ["keep", "overwrite"],
}
"""The choices that each advice offers."""
_REASONS = {
    "binary": "it is not a text file",
    "too large": "it is too large to merge",
    "too different": "the versions are too different to merge",
}


@frozen
class Merged:
    """The result of merging several versions of a path."""

    state: PathState | None
    """The result. Where versions collide, it is ours, or both between markers."""
    collision: str | None = None
    """Why the versions cannot be merged."""
    hunks: list[Hunk] = field(default_factory=list)
    """Where texts collide."""
    has_markers: bool = False
    """The texts collide, and `state` holds both versions between markers."""


@frozen
class PathPlan:
    """What to do to each path, and what is in the way."""

    changes: list[Change]
    """Sorted by path. A directory is removed only if nothing foreign is left in it."""
    conflicts: list[ConflictingPath]
    kept: list[RelPath]
    skipped: list[Skipped]
    agreed: list[Change] = field(default_factory=list)
    """Paths that somebody else already changed as wanted. Both sides of the change are the present state."""
    marked: list[RelPath] = field(default_factory=list)
    """Paths into which conflict markers are written."""
    edited: list[RelPath] = field(default_factory=list)
    """Paths in `changes` that somebody else edited: the edits are merged or overwritten."""


def make_plan(wanted: Sequence[Wanted], present: DiskState, merger: Merger, options: Options) -> PathPlan:
    """Decide what to do to each path. If the plan has conflicts, nothing at all may be done.

    With `diff`, a conflict shows where a merge would fail, although the caller did not choose to merge.
    """
    plan = _Planner(present, merger, options).run(wanted)
    if not any("overwrite" in conflict.choices for conflict in plan.conflicts):
        return plan
    stuck = _find_stuck(wanted, present, merger, options)
    choices = list(_CHOICES[KEEP_OR_MOVE])
    conflicts = [
        replace(conflict, advice=KEEP_OR_MOVE, choices=choices) if conflict.path in stuck else conflict
        for conflict in plan.conflicts
    ]
    return replace(plan, conflicts=conflicts)


def _find_stuck(wanted: Iterable[Wanted], present: DiskState, merger: Merger, options: Options) -> set[str]:
    """Find the paths that cannot be overwritten either, such as a directory with something that must stay.

    This shows only once everything else is decided, so it takes a second plan, in which nothing is merged.
    """
    overwritten = [replace(want, is_merged=False) for want in wanted]
    chosen = {path: _keep_or_overwrite(how) for path, how in options.chosen.items()}
    options = replace(options, on_conflict=_keep_or_overwrite(options.on_conflict), chosen=chosen)
    plan = _Planner(present, merger, options).run(overwritten)
    return {conflict.path for conflict in plan.conflicts}


def _keep_or_overwrite(how: OnConflict) -> OnConflict:
    return "keep" if how == "keep" else "overwrite"


def identify_plan(plan: PathPlan, target: Target, session: str) -> str:
    """Return the id of a plan: the hash of what it would do to paths and to the session."""
    lists = plan.changes, plan.agreed, target.noted
    changes = [[(c.path, *_split(c.old), *_split(c.new)) for c in each] for each in lists]
    conflicts = [(conflict.path, conflict.reason) for conflict in plan.conflicts]
    numbers = [row.number for row in (*target.messages, *target.redone)]
    where = session, target.position, target.takes_back, target.part_of
    left = conflicts, plan.skipped, plan.kept, plan.marked
    content = target.kind, changes, left, numbers, where
    return sha256(ascii(content).encode()).hexdigest()[:40]


def _split(state: Answer) -> tuple[object, object]:
    """Return a state as a tuple with a fast `repr`: a plan may have many files."""
    return (state.mode, state.blob) if isinstance(state, PathState) else (None, state)


class _Planner:
    """One plan in the making."""

    def __init__(self, present: DiskState, merger: Merger, options: Options) -> None:
        self._present = present
        self._merger = merger
        self._options = options
        self._changes: dict[RelPath, Change] = {}
        self._conflicts: dict[RelPath, ConflictingPath] = {}
        self._kept: set[RelPath] = set()
        self._skipped: list[Skipped] = []
        self._agreed: dict[RelPath, Change] = {}
        self._marked: set[RelPath] = set()
        self._edited: set[RelPath] = set()
        self._foreign_directories: set[RelPath] = set()
        """Directories that no message created: they are removed only if empty, and otherwise refused."""

    def run(self, wanted: Iterable[Wanted]) -> PathPlan:
        for want in wanted:
            self._decide(want)
        # A path that is left alone may be in the way of another one.
        while self._mend_shape():
            pass
        return PathPlan(
            [self._changes[path] for path in sorted(self._changes)],
            [self._conflicts[path] for path in sorted(self._conflicts)],
            sorted(self._kept),
            self._skipped,
            [change for path, change in self._agreed.items() if path not in self._changes],
            sorted(self._marked & self._changes.keys()),
            sorted(self._edited & self._changes.keys()),
        )

    def _choose(self, path: RelPath) -> OnConflict:
        """Return how to handle a conflict at a path: the choice for it or the nearest directory above it."""
        chosen = self._options.chosen
        if chosen:
            for place in (path, *ancestors(path), ROOT):
                if place in chosen:
                    return chosen[place]
        return self._options.on_conflict

    def _decide(self, want: Wanted) -> None:
        if isinstance(want.target, Unknown):
            self._skipped.append(Skipped(to_text(want.path), want.target.reason))
            return
        as_directory = want.target == DIRECTORY or want.expected == DIRECTORY
        present = self._present.state_of(want.path, as_directory=as_directory)
        if present == want.target:
            if present != want.expected:
                self._agreed[want.path] = Change(want.path, want.target, want.target)
            return
        if want.doubt is not None:
            self._skipped.append(Skipped(to_text(want.path), want.doubt))
            return
        if isinstance(present, Unknown):
            self._refuse(want.path, f"something is in the way: {present.reason}", KEEP_OR_MOVE)
            return
        self._changes[want.path] = Change(want.path, present, want.target)
        if present == DIRECTORY and is_file(want.expected):
            self._foreign_directories.add(want.path)
        reason = None if _is_harmless(want, present) else want.trouble or _find_edit(want, present)
        choice = self._options.on_conflict if reason is None else self._choose(want.path)
        if reason is not None:
            self._edited.add(want.path)
        if reason is not None and choice in ("abort", "keep"):
            can_merge = is_file(want.target) and is_file(present) and want.edits and want.can_merge
            advice, hunks = MERGE_OR_KEEP if can_merge else KEEP_OR_OVERWRITE, list[Hunk]()
            if can_merge and choice == "abort" and self._options.diff:
                tried = self._merger.merge(want.path, present, want.edits)
                if tried.collision is not None:
                    advice, hunks = MARK_OR_KEEP if tried.hunks else KEEP_OR_OVERWRITE, tried.hunks
            self._refuse(want.path, reason, advice, hunks)
        elif reason is not None and choice == "merge":
            self._merge(want, present, reason, present)
        elif want.is_merged:
            # Overwriting the user's edit must not overwrite the changes of later messages.
            ours = present if reason is None or isinstance(want.expected, Unknown) else want.expected
            self._merge(want, present, reason, ours)

    def _merge(
        self, want: Wanted, present: PathState | None, reason: str | None, ours: PathState | None
    ) -> None:
        """Merge the wanted edits into `ours`; `reason` is why the path is not as expected."""
        is_overwriting = self._choose(want.path) == "overwrite"
        if not want.edits and (reason is None or want.target == want.expected):
            # The messages' changes cancel out.
            del self._changes[want.path]
            return
        if not want.edits or not want.can_merge:
            # There is nothing to merge, or it cannot be separated. An empty directory is removed.
            assert reason is not None or _is_harmless(want, present)
            if reason is not None and not is_overwriting:
                self._refuse(want.path, reason, KEEP_OR_OVERWRITE)
            return
        merged = self._merger.merge(want.path, ours, want.edits)
        if merged.collision is not None and not merged.has_markers:
            if not is_overwriting:
                told = f"{reason}, and {merged.collision}" if reason else merged.collision
                self._refuse(
                    want.path, told, MARK_OR_KEEP if merged.hunks else KEEP_OR_OVERWRITE, merged.hunks
                )
            return
        del self._changes[want.path]
        if merged.state != present:
            # It counts as merged even if it equals the target: somebody's edit was not overwritten.
            is_merged = merged.state != want.target or (reason is not None and not is_overwriting)
            self._changes[want.path] = Change(want.path, present, merged.state, is_merged=is_merged)
        else:
            self._agreed[want.path] = Change(want.path, present, present, is_merged=True)
        if merged.has_markers:
            self._marked.add(want.path)

    def _refuse(self, path: RelPath, reason: str, advice: str, hunks: Sequence[Hunk] = ()) -> None:
        """Leave a path alone: as a conflict that stops the act, or because the caller chose `keep`."""
        self._changes.pop(path, None)
        if self._choose(path) == "keep":
            self._kept.add(path)
        else:
            self._conflicts[path] = ConflictingPath(
                to_text(path), reason, advice, list(hunks), list(_CHOICES[advice])
            )

    # Shape

    def _mend_shape(self) -> bool:
        """Adjust or drop every change that does not fit the others; return whether there was one."""
        is_mended = False
        for path in list(self._changes):
            while path in self._changes and self._mend(self._changes[path]):
                is_mended = True
        return is_mended

    def _mend(self, change: Change) -> bool:
        if change.new is None:
            return change.path in self._foreign_directories and self._refuse_if_full(change.path)
        for directory in ancestors(change.path):
            if self._state_after(directory) != DIRECTORY:
                self._make_room(directory, change.path)
                return True
            if directory in self._changes and self._changes[directory].new is None:
                del self._changes[directory]
                return True
        if change.old == DIRECTORY and change.new != DIRECTORY:
            return self._refuse_if_full(change.path)
        return False

    def _refuse_if_full(self, path: RelPath) -> bool:
        """Refuse a directory if it holds anything that the plan does not remove; return whether it does."""
        for below in self._present.below(path):
            change = self._changes.get(below)
            if change is None or change.new is not None:
                self._refuse(path, f"it contains {to_text(below)}, which must stay", KEEP_OR_MOVE)
                return True
        return False

    def _state_after(self, path: RelPath) -> Answer:
        change = self._changes.get(path)
        if change is None or (change.old == DIRECTORY and change.new is None):
            # A directory is removed only if nothing is left in it.
            return self._present.state_of(path, as_directory=True)
        return change.new

    def _make_room(self, directory: RelPath, path: RelPath) -> None:
        """Plan to create a directory, or else refuse the path that should go into it."""
        present = self._present.state_of(directory, as_directory=True)
        is_free = self._state_after(directory) is None and directory not in self._kept
        is_overwriting = self._choose(directory) == "overwrite" and directory not in self._changes
        if is_free or (is_overwriting and is_file(present)):
            assert not isinstance(present, Unknown)
            self._changes[directory] = Change(directory, present, DIRECTORY)
        else:
            self._refuse(path, f"{to_text(directory)} is not a directory", KEEP_OR_MOVE)


def _is_harmless(want: Wanted, present: PathState | None) -> bool:
    """Return whether nothing can be lost, no matter who made the present state.

    An absent directory is created; a directory to remove is removed if it is empty, and otherwise stays.
    """
    if is_file(want.expected):
        return False
    return (want.target, present) in ((DIRECTORY, None), (None, DIRECTORY))


def _find_edit(want: Wanted, present: PathState | None) -> str | None:
    """Describe how a path differs from its last recorded state; None if it does not."""
    expected = want.expected
    if isinstance(expected, Unknown):
        return None if present is None else f"something unprotected is in the way: {expected.reason}"
    if present == expected:
        return None
    after = f" after {want.last}" if want.last else " in the meantime"
    return f"{describe_edit(expected, present)}{after}"


# Merging


class Merger:
    """Merges states of paths."""

    def __init__(self, contents: Contents, *, theirs_label: str | None = None) -> None:
        self._contents = contents
        self._label = theirs_label
        """The label of the wanted version in markers; None if no markers are written."""

    def merge(self, path: RelPath, present: PathState | None, edits: Sequence[Edit]) -> Merged:
        """Apply edits to the present state, one after the other."""
        merged = Merged(present)
        for edit in edits:
            if merged.has_markers:
                # No more edits can be applied to a text with markers.
                return replace(merged, has_markers=False)
            merged = self._merge(path, merged.state, self._leave_out(path, edit))
            if merged.collision is not None and not merged.has_markers:
                return merged
        return merged

    def _leave_out(self, path: RelPath, edit: Edit) -> Edit:
        """Remove from both sides of an edit what messages did that are out of the line.

            m1: v0→v1      a line is deleted      m2: v1→v2      it is added again      m1 is taken out

        Undoing m2 goes from v2 to v1, which would delete the line. Without m1's change both have it, so it
        stays. Where m2 wrote over m1's change, the two cannot be separated, and v2 stays as it is.
        """
        plain, old, new = Merger(self._contents), edit.old, edit.new
        for change in edit.without:
            if isinstance(old, Unknown) or isinstance(new, Unknown):
                break
            found = [plain._merge(path, side, Edit(change.old, change.new)) for side in (old, new)]
            if any(each.collision is not None and not each.hunks for each in found):
                return edit
            old, new = (each.state for each in found)
        return Edit(old, new)

    def _merge(self, path: RelPath, ours: PathState | None, edit: Edit) -> Merged:
        base, theirs = edit.old, edit.new
        if isinstance(base, Unknown) or isinstance(theirs, Unknown):
            return Merged(ours, "what it was in between is not recorded")
        if base == theirs or ours == theirs:
            return Merged(ours)
        if ours == base:
            return Merged(theirs)
        sides = [side for side in (base, ours, theirs) if side is not None and stat.S_ISREG(side.mode)]
        if base is None or ours is None or theirs is None or len(sides) < 3:
            return Merged(ours, _say_why_not(base, ours, theirs))
        mode = _choose(base.mode, ours.mode, theirs.mode)
        if mode is None:
            return Merged(ours, "both sides changed its permissions")
        blob = _choose(base.blob, ours.blob, theirs.blob)
        if blob is not None:
            return Merged(PathState(mode, blob))
        contents = [self._contents.read_to_merge(path, side.blob) for side in sides]
        known = [content for content in contents if content is not None]
        found = merge_text(*known) if len(known) == len(contents) else NotMerged("too large")
        if isinstance(found, NotMerged):
            return Merged(ours, _REASONS[found.reason])
        if found.content is not None:
            return Merged(PathState(mode, self._contents.add_merged(found.content)))
        return self._mark(found, ours, mode)

    def _mark(self, found: Merge, ours: PathState, mode: int) -> Merged:
        """Return where texts collide, and, if markers are wanted, both versions between markers."""
        hunks = [
            Hunk(hunk.ours_line, _as_text(hunk.ours), _as_text(hunk.base), _as_text(hunk.theirs))
            for hunk in found.collisions
        ]
        places = "1 place" if len(hunks) == 1 else f"{len(hunks):,} places"
        collision = f"the changes overlap in {places}"
        if self._label is None:
            content = b"".join(piece if isinstance(piece, bytes) else piece.ours for piece in found.pieces)
            return Merged(PathState(mode, self._contents.add_merged(content)), collision, hunks)
        blob = self._contents.add_merged(write_markers(found, ours_label="current", theirs_label=self._label))
        return Merged(PathState(mode, blob), collision, hunks, has_markers=True)


def _choose(base: Value, ours: Value, theirs: Value) -> Value | None:
    """Return the changed side, or either if both changed alike; None if they changed differently."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else None


def _say_why_not(base: PathState | None, ours: PathState | None, theirs: PathState | None) -> str:
    sides = [side for side in (base, ours, theirs) if side is not None]
    if any(side.is_directory for side in sides):
        return "a directory cannot be merged with a file"
    if ours is None:
        return "there is nothing to merge with"
    if theirs is None:
        return "it would have to be deleted"
    if any(side.is_link for side in sides):
        return "a link cannot be merged"
    return "the versions have nothing in common"


def _as_text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
