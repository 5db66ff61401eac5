"""Decide what an act does to each path, before anything is done: from what is wanted and present to a plan.

Pure: what is on the disk comes from a `PresentState`, and versions are merged by a function. A path whose
present state is not what the timeline last recorded for it is a conflict, unless it already is what is
wanted, or what somebody else made of it can be merged. Then the shape is checked: what has to become a file
must hold nothing foreign, and what holds a file must be a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shadowtree.base.frozen import field, frozen
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, Unknown, ancestors, is_file, to_text
from shadowtree.results.messages import Skipped
from shadowtree.results.outcomes import ConflictingPath, Hunk
from shadowtree.revert.wanted import Wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from shadowtree.base.arguments import OnConflict
    from shadowtree.base.paths import Answer

    class PresentState(Protocol):
        """What is on the disk now."""

        def state_of(self, path: RelPath, *, as_directory: bool = False) -> Answer:
            """Return what is at a path; Unknown: something that cannot be put into the store."""

        def below(self, path: RelPath) -> Iterable[RelPath]:
            """List all that is below a directory, covered or not, empty directories too."""

    MergePath = Callable[[RelPath, PathState | None, Sequence[Change]], "Merged"]
    """Does to the present state of a path what some edits did elsewhere."""


KEEP_OR_OVERWRITE = "leave it as it is with 'keep', or replace it with 'overwrite', which unrevert takes back"
MERGE_OR_KEEP = f"put both together with 'merge', {KEEP_OR_OVERWRITE}"
KEEP_OR_MOVE = "move it away, or leave it as it is with 'keep'"
MARK_OR_KEEP = (
    "write both versions into it with markers, leave it with 'keep', or replace it with 'overwrite'"
)


@frozen
class Merged:
    """What became of several versions of a path."""

    state: PathState | None
    """Only counts if nothing collides."""
    collision: str | None = None
    """Why they cannot be made one."""
    hunks: list[Hunk] = field(default_factory=list)
    """Where texts collide."""
    has_markers: bool = False
    """The texts collide, and both are in it, between markers."""


@frozen
class PathPlan:
    """What is to be done to each path, and what stands in the way."""

    changes: list[Change]
    """Sorted by path. A directory that shall go does so only if nothing foreign is left in it."""
    conflicts: list[ConflictingPath]
    kept: list[RelPath]
    skipped: list[Skipped]
    agreed: list[Change] = field(default_factory=list)
    """Paths that somebody else had brought to what is wanted: both sides of the change are that."""
    marked: list[RelPath] = field(default_factory=list)
    """Paths into which conflict markers are written."""


def make_plan(
    wanted: Iterable[Wanted], present: PresentState, merge: MergePath, on_conflict: OnConflict
) -> PathPlan:
    """Decide what is done to each path. With conflicts in the plan nothing may be done at all."""
    return _Planner(present, merge, on_conflict).run(wanted)


class _Planner:
    """One plan in the making."""

    def __init__(self, present: PresentState, merge: MergePath, on_conflict: OnConflict) -> None:
        self._present = present
        self._merge_path = merge
        self._on_conflict = on_conflict
        self._changes: dict[RelPath, Change] = {}
        self._conflicts: dict[RelPath, ConflictingPath] = {}
        self._kept: set[RelPath] = set()
        self._skipped: list[Skipped] = []
        self._agreed: dict[RelPath, Change] = {}
        self._marked: set[RelPath] = set()
        self._foreign_directories: set[RelPath] = set()
        """Directories that no message made: they go empty or not at all, and not silently."""

    def run(self, wanted: Iterable[Wanted]) -> PathPlan:
        for want in wanted:
            self._decide(want)
        # Leaving one path alone may put it into another one's way.
        while self._mend_shape():
            pass
        return PathPlan(
            [self._changes[path] for path in sorted(self._changes)],
            [self._conflicts[path] for path in sorted(self._conflicts)],
            sorted(self._kept),
            self._skipped,
            [change for path, change in self._agreed.items() if path not in self._changes],
            sorted(self._marked & self._changes.keys()),
        )

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
        if reason is not None and self._on_conflict in ("abort", "keep"):
            is_text = is_file(want.target) and is_file(present)
            can_merge = is_text and bool(want.edits) and want.can_merge
            self._refuse(want.path, reason, MERGE_OR_KEEP if can_merge else KEEP_OR_OVERWRITE)
        elif reason is not None and self._on_conflict == "merge":
            self._merge(want, present, reason, present)
        elif want.is_merged:
            # Whoever overwrites somebody's edit does not overwrite what later messages did.
            ours = present if reason is None or isinstance(want.expected, Unknown) else want.expected
            self._merge(want, present, reason, ours)

    def _merge(
        self, want: Wanted, present: PathState | None, reason: str | None, ours: PathState | None
    ) -> None:
        """Do what is wanted to a version of a path; `reason`: why it is not what it should be."""
        is_overwriting = self._on_conflict == "overwrite"
        if not want.edits and (reason is None or want.target == want.expected):
            # What the messages did cancels out.
            del self._changes[want.path]
            return
        if not want.edits or not want.can_merge:
            # No message changed it, or nobody can tell what one changed. A directory goes if it is empty.
            assert reason is not None or _is_harmless(want, present)
            if reason is not None and not is_overwriting:
                self._refuse(want.path, reason, KEEP_OR_OVERWRITE)
            return
        merged = self._merge_path(want.path, ours, want.edits)
        if merged.collision is not None and not merged.has_markers:
            if not is_overwriting:
                told = f"{reason}, and {merged.collision}" if reason else merged.collision
                self._refuse(
                    want.path, told, MARK_OR_KEEP if merged.hunks else KEEP_OR_OVERWRITE, merged.hunks
                )
            return
        del self._changes[want.path]
        if merged.state != present:
            is_merged = merged.state != want.target
            self._changes[want.path] = Change(want.path, present, merged.state, is_merged=is_merged)
        if merged.has_markers:
            self._marked.add(want.path)

    def _refuse(self, path: RelPath, reason: str, advice: str, hunks: Sequence[Hunk] = ()) -> None:
        """Leave a path alone: as a conflict that stops everything, or because that is what was asked for."""
        self._changes.pop(path, None)
        if self._on_conflict == "keep":
            self._kept.add(path)
        else:
            self._conflicts[path] = ConflictingPath(to_text(path), reason, advice, list(hunks))

    # Shape

    def _mend_shape(self) -> bool:
        """Mend every change until it fits the others, or give it up; tell whether there was any to mend."""
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
        """Leave a directory alone that holds something foreign."""
        foreign = self._find_foreign(path)
        if foreign is not None:
            self._refuse(path, f"it holds {to_text(foreign)}, which has to stay", KEEP_OR_MOVE)
        return foreign is not None

    def _state_after(self, path: RelPath) -> Answer:
        change = self._changes.get(path)
        if change is None or (change.old == DIRECTORY and change.new is None):
            # A directory goes only if nothing is left in it.
            return self._present.state_of(path, as_directory=True)
        return change.new

    def _make_room(self, directory: RelPath, path: RelPath) -> None:
        """See to it that there is a directory, or give up what was to be put into it."""
        if self._state_after(directory) is None and directory not in self._kept:
            present = self._present.state_of(directory, as_directory=True)
            assert not isinstance(present, Unknown)
            self._changes[directory] = Change(directory, present, DIRECTORY)
            return
        present = self._present.state_of(directory, as_directory=True)
        is_free = self._on_conflict == "overwrite" and directory not in self._changes
        if is_free and is_file(present):
            self._changes[directory] = Change(directory, present, DIRECTORY)
            return
        self._refuse(path, f"{to_text(directory)} is no directory", KEEP_OR_MOVE)

    def _find_foreign(self, path: RelPath) -> RelPath | None:
        """Find something below a directory that the plan does not remove."""
        for below in self._present.below(path):
            change = self._changes.get(below)
            if change is None or change.new is not None:
                return below
        return None


def _is_harmless(want: Wanted, present: PathState | None) -> bool:
    """Tell whether a want loses nothing whoever made what is there.

    An absent directory is made, and one that shall go does so if it is empty, and stays if it is not.
    """
    if is_file(want.expected):
        return False
    return (want.target, present) in ((DIRECTORY, None), (None, DIRECTORY))


def _find_edit(want: Wanted, present: PathState | None) -> str | None:
    """Say in words how a path differs from what was last recorded for it; None if it does not."""
    expected = want.expected
    if isinstance(expected, Unknown):
        return None if present is None else f"something is in the way that is not covered: {expected.reason}"
    if present == expected:
        return None
    after = f" since {want.last}" if want.last else " since"
    if expected is None:
        return f"it was made{after}"
    if present is None:
        return f"it was deleted{after}"
    if present.is_directory or expected.is_directory or present.is_link != expected.is_link:
        return f"it became {_name_kind(present)}{after}"
    if present.blob == expected.blob:
        return f"its permission bits were changed{after}"
    return f"it was edited{after}"


def _name_kind(state: PathState) -> str:
    if state.is_directory:
        return "a directory"
    return "a link" if state.is_link else "a file"
