"""Paths in a worktree, and the state of a path: a file, a link, a directory, absent or unknown.

A path is bytes relative to the worktree, with `/` between the names; the root of the worktree is the empty
path. A name that is not UTF-8 becomes text with surrogate escapes, and comes back unchanged. This module also
knows which names git forbids in a tree.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Iterator

from shadowtree.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NewType, TypeAlias

    RelPath = NewType("RelPath", bytes)
    """A path relative to the worktree."""
    Answer: TypeAlias = "PathState | Unknown | None"
    """The state of a path in a tree: present, absent (None) or unknown."""
else:
    # Importing `typing` would cost every command more than the rest of this module.
    RelPath = bytes

ROOT = RelPath(b"")
MODE_LINK = stat.S_IFLNK


def join(parent: RelPath, name: bytes) -> RelPath:
    """Return the path of the entry `name` in the directory `parent`."""
    return RelPath(parent + b"/" + name if parent else name)


def parent_of(path: RelPath) -> RelPath:
    """Return the directory that holds `path`."""
    return RelPath(path.rpartition(b"/")[0])


def ancestors(path: RelPath) -> Iterator[RelPath]:
    """Yield the directories above a path, the nearest first, without the root."""
    directory = parent_of(path)
    while directory != ROOT:
        yield directory
        directory = parent_of(directory)


def find_twins(paths: Iterable[RelPath]) -> set[RelPath]:
    """Find paths that some file systems treat as equal: they differ only in case or Unicode normalisation."""
    first: dict[bytes, RelPath] = {}
    twins: set[RelPath] = set()
    for path in paths:
        other = first.setdefault(_fold(path), path)
        if other != path:
            twins |= {path, other}
    return twins


def _fold(path: RelPath) -> bytes:
    if path.isascii():
        return path.lower()
    from unicodedata import normalize

    return normalize("NFD", normalize("NFD", to_text(path)).casefold()).encode("utf-8", "surrogateescape")


def by_directory(paths: Iterable[RelPath]) -> dict[RelPath, set[bytes]]:
    """Group the names of paths by their directory."""
    names: dict[RelPath, set[bytes]] = {}
    for path in paths:
        names.setdefault(parent_of(path), set()).add(path.rpartition(b"/")[2])
    return names


def is_among(path: RelPath, paths: Collection[RelPath]) -> bool:
    """Return whether a path is one of `paths` or below one of them; every path is below the root."""
    return path in paths or ROOT in paths or any(above in paths for above in ancestors(path))


def to_text(path: bytes) -> str:
    """Turn a path into text that `from_text` turns back exactly."""
    return path.decode("utf-8", "surrogateescape")


def from_text(text: str) -> RelPath:
    """Turn text back into a path."""
    return RelPath(text.encode("utf-8", "surrogateescape"))


TEMPORARY_PREFIX = b".shadowtree-tmp-"
"""The prefix of the temporary files that an act creates in the worktree."""


def is_own_temporary(name: bytes) -> bool:
    """Return whether this is the name of a temporary file that an act created in the worktree."""
    if not name.startswith(TEMPORARY_PREFIX):
        return False
    token, _, rest = name[len(TEMPORARY_PREFIX) :].partition(b"-")
    return len(token) == 12 and not token.strip(b"0123456789abcdef") and rest.removesuffix(b"-x").isdigit()


def is_forbidden(name: bytes, *, is_link: bool = False, is_directory: bool = False) -> bool:
    r"""Return whether git forbids `name` in a tree: a spelling that some file system takes for `.git`.

    Git also checks each part between backslashes, as Windows would. It refuses a symbolic link that could
    be taken for `.gitmodules`, and a directory that has the name of one of git's own files.
    """
    # Nearly every name returns here: each forbidden spelling contains one of these.
    folded = name.lower()
    if b"git" not in folded and b"~" not in name and name.isascii():
        return False
    plain = _as_hfs(folded)
    if plain == b".git" or _matches(_NTFS_DOT_GIT, folded):
        return True
    if is_directory and plain in (b".gitmodules", b".gitattributes"):
        return True
    return (is_link or is_directory) and (plain == b".gitmodules" or _matches(_NTFS_GITMODULES, folded))


def _matches(pattern: str, folded: bytes) -> bool:
    import re

    return re.search(pattern.encode(), folded, re.DOTALL) is not None


_NTFS_DOT_GIT = r"(?:^|\\)(?:\.git|git~1)[ .]*(?:\Z|[\\:])"
_SHORT = "|".join(f"{'gi7eba'[:n]}~[1-9][0-9]{{{6 - n}}}" for n in range(7))
_NTFS_GITMODULES = rf"(?:^|\\)(?:\.gitmodules|gitmod~[1-4]|{_SHORT})[ .]*(?:\Z|:)"

_HFS_IGNORED = tuple(
    chr(point).encode()
    for point in (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
)


def _as_hfs(folded: bytes) -> bytes:
    """Return a name as git expects HFS to read it: without ignored characters, cut at invalid UTF-8."""
    try:
        folded.decode()
    except UnicodeDecodeError as error:
        folded = folded[: error.start]
    for ignored in _HFS_IGNORED:
        folded = folded.replace(ignored, b"")
    return folded


# What is at a path


@frozen
class PathState:
    """A file, a link or a directory."""

    mode: int
    """Kind and exact permission bits, as in `st_mode`; for links and directories, only the kind."""
    blob: bytes = b""
    """The id of a file's content or of a link's target; empty for a directory."""

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
    """The state of a path that was not recorded, with the reason."""

    reason: str


DIRECTORY = PathState(stat.S_IFDIR)


@frozen
class Change:
    """How one path changed. If a side is unknown, the change is in no patch."""

    path: RelPath
    old: PathState | Unknown | None
    new: PathState | Unknown | None
    is_merged: bool = False
    """Whether an act merged several versions, so that somebody's edits are still in it."""

    @property
    def is_known(self) -> bool:
        """Whether both sides are known."""
        return not isinstance(self.old, Unknown) and not isinstance(self.new, Unknown)


def is_file(state: PathState | Unknown | None) -> bool:
    """Return whether a state is that of a file or a link."""
    return isinstance(state, PathState) and not state.is_directory


# Purged paths and contents: no tree holds them any more, and no snapshot records them again

PURGED = "purged"
"""The reason why a purged path is unknown."""


@frozen
class Tombstones:
    """The paths and the contents that are left out because they were purged."""

    paths: frozenset[RelPath] = frozenset()
    """Files, or directories with everything below them."""
    blobs: frozenset[bytes] = frozenset()
    """The ids of contents, at whatever path."""

    def covers(self, path: RelPath) -> bool:
        """Return whether a path, or a directory above it, was purged."""
        return bool(self.paths) and is_among(path, self.paths)

    def is_near(self, directory: RelPath) -> bool:
        """Return whether something in or below a directory may have been purged."""
        start = directory + b"/" if directory else b""
        return bool(self.blobs) or any(path.startswith(start) for path in self.paths)

    def key(self) -> bytes:
        """Return a key that differs between different tombstones; empty if there are none."""
        parts = [*sorted(self.paths), b"", *sorted(self.blobs)]
        return b"\0".join(parts) if len(parts) > 1 else b""


NO_TOMBSTONES = Tombstones()
