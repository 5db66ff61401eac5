"""Refuse to wrap what is too broad, such as `/` or a home directory, and what is inside a git directory."""

from __future__ import annotations

import os

from shadowtree.base.errors import BroadWorktree, UnsafePath
from shadowtree.store.directory import is_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.system.locations import Places


def refuse_broad(worktree: str, store: str, places: Places, *, allow_broad: bool) -> None:
    """Raise UnsafePath in a git directory, and BroadWorktree if it is too broad; all paths are real."""
    _refuse_git_directory(worktree)
    why = _find_broadness(worktree, home=places.home, stores=places.stores, store=store)
    if why is not None and not allow_broad:
        raise BroadWorktree(worktree, why)


def _find_broadness(worktree: str, *, home: str | None, stores: str | None, store: str) -> str | None:
    """Return why a worktree is too broad to be wrapped unasked, or None if it is not."""
    if worktree == os.path.dirname(worktree):
        return "it is the root of the file system"
    if home is not None and worktree == home:
        return "it is your home directory"
    if home is not None and is_inside(home, worktree):
        return "it contains your home directory"
    if stores is not None and is_inside(stores, worktree):
        return "it contains the directory of stores"
    if is_inside(store, worktree):
        return "it contains its own store"
    return None


def _refuse_git_directory(worktree: str) -> None:
    """Raise UnsafePath inside the git directory of a repository, which is only ever read (invariant 1)."""
    place = worktree
    while not os.path.lexists(os.path.join(place, ".git")):
        parts = (os.path.isfile, "HEAD"), (os.path.isdir, "objects"), (os.path.isdir, "refs")
        if all(is_there(os.path.join(place, name)) for is_there, name in parts):
            raise UnsafePath(worktree, f"it is inside the git directory {place}")
        if place == os.path.dirname(place):
            return
        place = os.path.dirname(place)
