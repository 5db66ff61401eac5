"""Decide what an act does to each path, before anything is done: wishes and the present state in, a plan out.

Pure: what is on the disk is asked of a `Sight`, and versions are merged by a `Merger`. A path whose present
state is not what the timeline last recorded for it is a conflict, unless it already is what is wanted, or
what somebody else made of it can be merged. Then the shape is looked at: what has to become a file must hold
nothing foreign, and what holds a file must be a directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shadowtree.frozen import field, frozen
from shadowtree.model import Skipped
from shadowtree.outcome import ConflictingPath, Hunk
from shadowtree.paths import RelPath, ancestors, to_text
from shadowtree.state import DIRECTORY, Change, PathState, Unknown, is_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from shadowtree.outcome import OnConflict
    from shadowtree.state import Answer

    class Sight(Protocol):
        """What is on the disk now."""

        def see(self, path: RelPath, *, as_directory: bool = False) -> Answer:
            """Tell what is at a path; Unknown: something that cannot be put into the store."""

        def below(self, path: RelPath) -> Iterable[RelPath]:
            """List all that is below a directory, covered or not, empty directories too."""

    class Merger(Protocol):
        """Makes one state of several versions."""

        def merge(self, path: RelPath, present: PathState | None, edits: Sequence[Change]) -> Merged:
            """Do to the present state what some edits did elsewhere."""


KEEP_OR_OVERWRITE = "leave it as it is with 'keep', or replace it with 'overwrite', which unrevert takes back"
MERGE_OR_KEEP = f"put both together with 'merge', {KEEP_OR_OVERWRITE}"
KEEP_OR_MOVE = "move it away, or leave it as it is with 'keep'"
MARK_OR_KEEP = (
    "write both versions into it with markers, leave it with 'keep', or replace it with 'overwrite'"
)


@frozen
class Wish:
    """What a path shall be, and what it should be now."""

    path: RelPath
    target: PathState | Unknown | None
    expected: PathState | Unknown | None
    """What the timeline last recorded for it; unknown: no rule covered it, so nothing should be there."""
    trouble: str | None = None
    """Why it is in conflict, whatever it is now."""
    last: str = ""
    """What recorded it last, in words."""
    doubt: str | None = None
    """Why nobody knows what it should be now: it is left alone then, unless it is as wished."""
    edits: list[Change] = field(default_factory=list)
    """What the messages' changes come to on the way there, to be merged where others changed it too."""
    is_merged: bool = False
    """Merge them in any case: what came later stays."""
    can_merge: bool = True
    """Otherwise somebody else's changes are among them."""


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
    """Paths that somebody else had brought to what is wished: both sides of the change are that."""
    marked: list[RelPath] = field(default_factory=list)
    """Paths into which conflict markers are written."""


def make_plan(wishes: Iterable[Wish], sight: Sight, merger: Merger, on_conflict: OnConflict) -> PathPlan:
    """Decide what is done to each path. With conflicts in the plan nothing may be done at all."""
    return _Planner(sight, merger, on_conflict).run(wishes)


class _Planner:
    """One plan in the making."""

    def __init__(self, sight: Sight, merger: Merger, on_conflict: OnConflict) -> None:
        self._sight = sight
        self._merger = merger
        self._on_conflict = on_conflict
        self._changes: dict[RelPath, Change] = {}
        self._conflicts: dict[RelPath, ConflictingPath] = {}
        self._kept: set[RelPath] = set()
        self._skipped: list[Skipped] = []
        self._agreed: dict[RelPath, Change] = {}
        self._marked: set[RelPath] = set()
        self._foreign_directories: set[RelPath] = set()
        """Directories that no message made: they go empty or not at all, and not silently."""

    def run(self, wishes: Iterable[Wish]) -> PathPlan:
        for wish in wishes:
            self._decide(wish)
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

    def _decide(self, wish: Wish) -> None:
        if isinstance(wish.target, Unknown):
            self._skipped.append(Skipped(to_text(wish.path), wish.target.reason))
            return
        as_directory = wish.target == DIRECTORY or wish.expected == DIRECTORY
        present = self._sight.see(wish.path, as_directory=as_directory)
        if present == wish.target:
            if present != wish.expected:
                self._agreed[wish.path] = Change(wish.path, wish.target, wish.target)
            return
        if wish.doubt is not None:
            self._skipped.append(Skipped(to_text(wish.path), wish.doubt))
            return
        if isinstance(present, Unknown):
            self._refuse(wish.path, f"something is in the way: {present.reason}", KEEP_OR_MOVE)
            return
        self._changes[wish.path] = Change(wish.path, present, wish.target)
        if present == DIRECTORY and is_file(wish.expected):
            self._foreign_directories.add(wish.path)
        reason = None if _is_harmless(wish, present) else wish.trouble or _find_edit(wish, present)
        if reason is not None and self._on_conflict in ("abort", "keep"):
            is_text = is_file(wish.target) and is_file(present)
            can_merge = is_text and bool(wish.edits) and wish.can_merge
            self._refuse(wish.path, reason, MERGE_OR_KEEP if can_merge else KEEP_OR_OVERWRITE)
        elif reason is not None and self._on_conflict == "merge":
            self._merge(wish, present, reason, present)
        elif wish.is_merged:
            # Whoever overwrites somebody's edit does not overwrite what later messages did.
            ours = present if reason is None or isinstance(wish.expected, Unknown) else wish.expected
            self._merge(wish, present, reason, ours)

    def _merge(
        self, wish: Wish, present: PathState | None, reason: str | None, ours: PathState | None
    ) -> None:
        """Do what is wished to a version of a path; `reason`: why it is not what it should be."""
        is_overwriting = self._on_conflict == "overwrite"
        if not wish.edits and (reason is None or wish.target == wish.expected):
            # What the messages did cancels out.
            del self._changes[wish.path]
            return
        if not wish.edits or not wish.can_merge:
            # No message changed it, or nobody can tell what one changed. A directory goes if it is empty.
            assert reason is not None or _is_harmless(wish, present)
            if reason is not None and not is_overwriting:
                self._refuse(wish.path, reason, KEEP_OR_OVERWRITE)
            return
        merged = self._merger.merge(wish.path, ours, wish.edits)
        if merged.collision is not None and not merged.has_markers:
            if not is_overwriting:
                told = f"{reason}, and {merged.collision}" if reason else merged.collision
                self._refuse(
                    wish.path, told, MARK_OR_KEEP if merged.hunks else KEEP_OR_OVERWRITE, merged.hunks
                )
            return
        del self._changes[wish.path]
        if merged.state != present:
            is_merged = merged.state != wish.target
            self._changes[wish.path] = Change(wish.path, present, merged.state, is_merged=is_merged)
        if merged.has_markers:
            self._marked.add(wish.path)

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
            return self._sight.see(path, as_directory=True)
        return change.new

    def _make_room(self, directory: RelPath, path: RelPath) -> None:
        """See to it that there is a directory, or give up what was to be put into it."""
        if self._state_after(directory) is None and directory not in self._kept:
            present = self._sight.see(directory, as_directory=True)
            assert not isinstance(present, Unknown)
            self._changes[directory] = Change(directory, present, DIRECTORY)
            return
        present = self._sight.see(directory, as_directory=True)
        is_free = self._on_conflict == "overwrite" and directory not in self._changes
        if is_free and is_file(present):
            self._changes[directory] = Change(directory, present, DIRECTORY)
            return
        self._refuse(path, f"{to_text(directory)} is no directory", KEEP_OR_MOVE)

    def _find_foreign(self, path: RelPath) -> RelPath | None:
        """Find something below a directory that the plan does not remove."""
        for below in self._sight.below(path):
            change = self._changes.get(below)
            if change is None or change.new is not None:
                return below
        return None


def _is_harmless(wish: Wish, present: PathState | None) -> bool:
    """Tell whether a wish loses nothing whoever made what is there.

    An absent directory is made, and one that shall go does so if it is empty, and stays if it is not.
    """
    if is_file(wish.expected):
        return False
    return (wish.target, present) in ((DIRECTORY, None), (None, DIRECTORY))


def _find_edit(wish: Wish, present: PathState | None) -> str | None:
    """Say in words how a path differs from what was last recorded for it; None if it does not."""
    expected = wish.expected
    if isinstance(expected, Unknown):
        return None if present is None else f"something is in the way that is not covered: {expected.reason}"
    if present == expected:
        return None
    after = f" since {wish.last}" if wish.last else " since"
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
