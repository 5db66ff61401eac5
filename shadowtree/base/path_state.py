"""What is at a path: a file, a link, a directory, or nothing; and that nobody can say.

These are the three answers of the contract: present is a `PathState`, absent is None, and `Unknown` says why
nobody can tell.
"""

from __future__ import annotations

import stat

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath

MODE_LINK = stat.S_IFLNK


@frozen
class PathState:
    """A file, a link or a directory."""

    mode: int
    """Kind and exact permission bits, as in `st_mode`; of links and directories the kind alone."""
    blob: bytes = b""
    """The id of what a file holds, or of where a link points; a directory has none."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


@frozen
class Unknown:
    """Nobody can say what is at a path."""

    reason: str


DIRECTORY = PathState(stat.S_IFDIR)

TYPE_CHECKING = False
if TYPE_CHECKING:
    Answer = PathState | None | Unknown
    """None: nothing is there."""


@frozen
class Change:
    """What happened to one path. A side may be unknown; then the change is in no patch."""

    path: RelPath
    old: PathState | Unknown | None
    new: PathState | Unknown | None
    is_merged: bool = False
    """An act made it of several versions: what somebody had edited is still in it."""

    @property
    def is_known(self) -> bool:
        """Whether both sides are known."""
        return not isinstance(self.old, Unknown) and not isinstance(self.new, Unknown)


def is_file(state: PathState | Unknown | None) -> bool:
    """Tell whether a state is that of a file or a link."""
    return isinstance(state, PathState) and not state.is_directory
