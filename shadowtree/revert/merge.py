"""Make one version of a path of several: what the messages' changes come to under what somebody else did.

A merge has a base, that both sides come from: ours is what is there, theirs what the edit made of the base.
The rules, in this order, for each edit on the way:

- Both sides are the same: that. Only one side differs from the base: that one.
- Of two regular files the permission bits and the contents are merged each for itself. Bits that both changed
  collide. Contents are merged by lines; a binary content, and one that is too large, collides.
- All else collides: a deletion and an edit, two files made at the same path, a link with anything, a file
  and a directory. A link is never merged as text.

What collides is not touched, unless it is texts, and the user wants markers.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence

from shadowtree.base.frozen import replace
from shadowtree.base.paths import Change, PathState, RelPath, Unknown
from shadowtree.results.outcomes import Hunk
from shadowtree.revert.plan import Merged
from shadowtree.text.merge import Merge, NotMerged, merge_text, write_markers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    Value = TypeVar("Value", int, bytes)

    class MergeContents(Protocol):
        """The contents that are merged, and where the result is kept."""

        def read_to_merge(self, path: RelPath, blob: bytes) -> bytes | None:
            """Read a blob; None: it is too large."""

        def add_merged(self, content: bytes) -> bytes:
            """Keep what merging made, and return its id."""


_REASONS = {
    "binary": "it is no text",
    "too large": "it is too large to be merged",
    "too different": "the versions are too different to be merged",
}


class Merger:
    """Merges states of paths."""

    def __init__(self, contents: MergeContents, *, theirs_label: str | None = None) -> None:
        self._contents = contents
        self._label = theirs_label
        """What markers call the wanted version; None: no markers are written."""

    def merge(self, path: RelPath, present: PathState | None, edits: Sequence[Change]) -> Merged:
        """Do to the present state what some edits did elsewhere, one after the other."""
        merged = Merged(present)
        for edit in edits:
            if merged.has_markers:
                # What is between markers is no version that anything more could be done to.
                return replace(merged, has_markers=False)
            merged = self._merge(path, merged.state, edit)
            if merged.collision is not None and not merged.has_markers:
                return merged
        return merged

    def _merge(self, path: RelPath, ours: PathState | None, edit: Change) -> Merged:
        base, theirs = edit.old, edit.new
        if isinstance(base, Unknown) or isinstance(theirs, Unknown):
            return Merged(ours, "nobody knows what it was in between")
        if base == theirs or ours == theirs:
            return Merged(ours)
        if ours == base:
            return Merged(theirs)
        if base is None or ours is None or theirs is None or not _are_files(base, ours, theirs):
            return Merged(ours, _say_why_not(base, ours, theirs))
        mode = _choose(base.mode, ours.mode, theirs.mode)
        if mode is None:
            return Merged(ours, "both changed its permission bits")
        blob = _choose(base.blob, ours.blob, theirs.blob)
        if blob is not None:
            return Merged(PathState(mode, blob))
        contents = [self._contents.read_to_merge(path, state.blob) for state in (base, ours, theirs)]
        known = [content for content in contents if content is not None]
        found = merge_text(*known) if len(known) == len(contents) else NotMerged("too large")
        if isinstance(found, NotMerged):
            return Merged(ours, _REASONS[found.reason])
        if found.content is not None:
            return Merged(PathState(mode, self._contents.add_merged(found.content)))
        return self._mark(found, ours, mode)

    def _mark(self, found: Merge, ours: PathState, mode: int) -> Merged:
        """List where texts collide; with markers, if they are wanted, around both versions."""
        hunks = [
            Hunk(hunk.ours_line, _as_text(hunk.ours), _as_text(hunk.base), _as_text(hunk.theirs))
            for hunk in found.collisions
        ]
        places = "1 place" if len(hunks) == 1 else f"{len(hunks):,} places"
        collision = f"the texts collide in {places}"
        if self._label is None:
            return Merged(ours, collision, hunks)
        blob = self._contents.add_merged(write_markers(found, ours_label="now", theirs_label=self._label))
        return Merged(PathState(mode, blob), collision, hunks, has_markers=True)


def _choose(base: Value, ours: Value, theirs: Value) -> Value | None:
    """Take what one side changed, or both alike; None: they changed it to different things."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else None


def _are_files(*states: PathState) -> bool:
    return all(stat.S_ISREG(state.mode) for state in states)


def _say_why_not(base: PathState | None, ours: PathState | None, theirs: PathState | None) -> str:
    sides = [side for side in (base, ours, theirs) if side is not None]
    if any(side.is_directory for side in sides):
        return "a directory is not merged with a file"
    if ours is None:
        return "there is nothing left to merge with"
    if theirs is None:
        return "it would have to be deleted"
    if any(side.is_link for side in sides):
        return "a link is not merged"
    return "the versions have nothing in common"


def _as_text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
