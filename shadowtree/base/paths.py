"""Paths as shadowtree holds them, and what is at one: a file, a link, a directory, nothing, or unknown.

A path is bytes relative to the worktree, with `/` between the names; the root of the worktree is the empty
path. A name that is no UTF-8 becomes text with surrogate escapes and comes back unchanged. This module also
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
    """Present, absent (None), or nobody can say: the three answers of the contract."""
else:
    # Importing `typing` would cost every command more than the rest of this module.
    RelPath = bytes

ROOT = RelPath(b"")
MODE_LINK = stat.S_IFLNK


def join(parent: RelPath, name: bytes) -> RelPath:
    """Name the entry `name` of the directory `parent`."""
    return RelPath(parent + b"/" + name if parent else name)


def parent_of(path: RelPath) -> RelPath:
    """Name the directory that holds `path`."""
    return RelPath(path.rpartition(b"/")[0])


def ancestors(path: RelPath) -> Iterator[RelPath]:
    """Name the directories above a path, the nearest first, without the root."""
    directory = parent_of(path)
    while directory != ROOT:
        yield directory
        directory = parent_of(directory)


def find_twins(paths: Iterable[RelPath]) -> set[RelPath]:
    """Find paths that some file systems take for one: only case or Unicode normalisation differs."""
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
    """Sort paths by the directory that each is in."""
    names: dict[RelPath, set[bytes]] = {}
    for path in paths:
        names.setdefault(parent_of(path), set()).add(path.rpartition(b"/")[2])
    return names


def is_among(path: RelPath, paths: Collection[RelPath]) -> bool:
    """Return whether a path is one of these, or below one; the root has all below it."""
    return path in paths or ROOT in paths or any(above in paths for above in ancestors(path))


def to_text(path: bytes) -> str:
    """Turn a path into text that `from_text` turns back exactly."""
    return path.decode("utf-8", "surrogateescape")


def from_text(text: str) -> RelPath:
    """Turn text back into a path."""
    return RelPath(text.encode("utf-8", "surrogateescape"))


TEMPORARY_PREFIX = b".shadowtree-tmp-"
"""How the names begin that shadowtree gives to files in the worktree while it acts there."""


def is_own_temporary(name: bytes) -> bool:
    """Return whether this is the name of a file that shadowtree put into the worktree for a moment."""
    if not name.startswith(TEMPORARY_PREFIX):
        return False
    token, _, rest = name[len(TEMPORARY_PREFIX) :].partition(b"-")
    return len(token) == 12 and not token.strip(b"0123456789abcdef") and rest.removesuffix(b"-x").isdigit()


def is_forbidden(name: bytes, *, is_link: bool = False, is_directory: bool = False) -> bool:
    r"""Return whether git forbids `name` in a tree: a spelling that some file system takes for `.git`.

    Git looks at each part between backslashes too, as Windows would. It refuses a symbolic link that could
    be taken for `.gitmodules`, and a directory that bears the name of one of its own files.
    """
    # Nearly every name ends here: none of the spellings can do without one of these.
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
    """Read a name as HFS would: to git it ends where it is no UTF-8, and some characters do not count."""
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
    """Return whether a state is that of a file or a link."""
    return isinstance(state, PathState) and not state.is_directory


# What was purged: no tree holds it any more, and no snapshot takes it again

PURGED = "purged"
"""Why nothing is known of a path that was purged."""


@frozen
class Tombstones:
    """The paths and the contents that are left out because they were purged."""

    paths: frozenset[RelPath] = frozenset()
    """Files, or directories with all that is below them."""
    blobs: frozenset[bytes] = frozenset()
    """Contents, by their ids, wherever they are."""

    def covers(self, path: RelPath) -> bool:
        """Return whether a path, or a directory above it, was purged."""
        return bool(self.paths) and is_among(path, self.paths)

    def is_near(self, directory: RelPath) -> bool:
        """Return whether something in or below a directory may have been purged."""
        start = directory + b"/" if directory else b""
        return bool(self.blobs) or any(path.startswith(start) for path in self.paths)

    def key(self) -> bytes:
        """Return what distinguishes these tombstones from others; empty if there are none."""
        parts = [*sorted(self.paths), b"", *sorted(self.blobs)]
        return b"\0".join(parts) if len(parts) > 1 else b""


NO_TOMBSTONES = Tombstones()
