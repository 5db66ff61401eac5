"""The directory above a worktree, which tells a worktree that is gone from a volume that is missing.

An empty mount point is another directory than the top of the volume that was mounted there, and a container
has other directories under the same names. So it is written down when a store is made, in the store's git
configuration, where git passes over it:

    [shadowtree]
        anchor = INODE GENERATION FILE-SYSTEM IS-MOUNT
"""

from __future__ import annotations

import os

from shadowtree import disk
from shadowtree.frozen import frozen
from shadowtree.layout import StoreLayout
from shadowtree.mounts import is_mount_point
from shadowtree.system import directory_generation, file_system_id

_KEY = b"shadowtree.anchor"
_NONE = -1


@frozen
class Anchor:
    """What is above a worktree."""

    inode: int
    generation: int | None
    file_system: int | None
    is_mount: bool
    """The worktree is a mount point itself, so that nothing above it can tell."""

    def is_same_directory(self, other: Anchor) -> bool:
        """Tell whether both are the same directory on the same volume, as far as anybody knows."""
        return (self.inode, self.generation) == (other.inode, other.generation) and (
            self.file_system is not None and self.file_system == other.file_system
        )


def find_anchor(worktree: str) -> Anchor | None:
    """Look at what is above a path, where a worktree is or was; None: there is nothing to look at."""
    above = os.path.dirname(worktree)
    try:
        inode = os.stat(above).st_ino
    except OSError:
        return None
    return Anchor(inode, directory_generation(above), file_system_id(above), is_mount_point(worktree))


def read_anchor(store: str) -> Anchor | None:
    """Read what was above the worktree when the store was made; None: nobody wrote it down."""
    from shadowtree.gitconfig import parse_config

    variables = dict(parse_config(disk.read_file(StoreLayout(store).config)))
    try:
        inode, generation, file_system, is_mount = map(int, (variables.get(_KEY) or b"").split())
    except ValueError:
        return None
    return Anchor(inode, _or_none(generation), _or_none(file_system), bool(is_mount))


def encode_anchor(worktree: str) -> bytes:
    """Write down what is above a worktree now, as a line of the section."""
    anchor = find_anchor(worktree)
    if anchor is None:
        return b""
    others = [_NONE if number is None else number for number in (anchor.generation, anchor.file_system)]
    return b"\tanchor = %d %d %d %d\n" % (anchor.inode, *others, anchor.is_mount)


def _or_none(number: int) -> int | None:
    return None if number == _NONE else number
