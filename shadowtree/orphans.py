"""Whether a store is an orphan: its worktree is gone for good, and there is evidence of that. Pure.

That nothing is at a path proves little: a disk may be unplugged, a share not mounted, the path may mean
something else in a container. So the directory above must be there, on the same volume, and be the very
directory that was there when the store was made; then what is not in it any more was taken from it.
"""

from __future__ import annotations

from shadowtree.anchor import Anchor
from shadowtree.frozen import frozen


@frozen
class Evidence:
    """What is known of a store and of the place of its worktree."""

    is_gone: bool
    """Nothing has the name of the worktree."""
    anchor: Anchor | None
    """What was above the worktree; None: nobody wrote it down."""
    above: Anchor | None
    """What is above it now; None: nothing, or nothing that can be looked into."""
    moved_to: str | None = None
    """A directory beside it that is the worktree itself, under another name."""
    is_interrupted: bool = False
    """An act in it is not made good."""


def find_doubt(evidence: Evidence) -> str | None:
    """Say why a store is not to be removed, in a sentence about its worktree; None: it is an orphan."""
    if not evidence.is_gone:
        return "something is at its path"
    if evidence.is_interrupted:
        return "an act was interrupted there, and is not made good"
    if evidence.moved_to is not None:
        return f"it was renamed to {evidence.moved_to}"
    if evidence.above is None:
        return "the directory above it is not there, so that a volume may be missing"
    if evidence.anchor is None:
        return "an earlier version made its store, and did not write down where it was"
    if evidence.anchor.is_mount:
        return "it was a mount point, so that a volume may be missing"
    if not evidence.anchor.is_same_directory(evidence.above):
        return "the directory above it is not the one that was there, so that a volume may be missing"
    return None
