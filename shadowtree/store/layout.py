"""The files of a store, and which worktrees are too broad to have one.

Pure: it computes names and never looks at the disk.
"""

from __future__ import annotations

import os

FORMAT = 1
"""The store format that this version writes."""

KEEPER_REF = "refs/heads/shadowtree"
"""The one ref of a store: a chain of commits that keeps every recorded tree from `git gc`."""

PACK_SUFFIX = ".pack"
INDEX_SUFFIX = ".idx"
KEEP_SUFFIX = ".keep"
"""What the names of a pack's files end with: itself, its index, and what keeps it from `git gc`."""


class StoreLayout:
    """The files of one store."""

    def __init__(self, store: str) -> None:
        self.store = store
        # Plain text: it is made several times a command, and `os.path.join` takes ten times as long.
        self.objects = f"{store}/objects"
        self.packs = f"{store}/objects/pack"
        self.ref = f"{store}/{KEEPER_REF}"
        self.config = f"{store}/config"
        self.identity = f"{store}/shadowtree.json"
        self.timeline = f"{store}/timeline.db"
        self.cache = f"{store}/cache.db"
        self.lock = f"{store}/lock"


def is_inside(path: str, directory: str) -> bool:
    """Tell whether `path` is `directory` or lies below it; both are real paths."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def find_broadness(worktree: str, *, home: str | None, stores: str | None, store: str) -> str | None:
    """Say why a worktree is too broad to be wrapped unasked, or None if it is not; all are real paths."""
    if worktree == os.path.dirname(worktree):
        return "it is the root of the file system"
    if home is not None and worktree == home:
        return "it is the home directory"
    if home is not None and is_inside(home, worktree):
        return "it holds the home directory"
    if stores is not None and is_inside(stores, worktree):
        return "it holds the directory of stores"
    if is_inside(store, worktree):
        return "it holds its own store"
    return None
