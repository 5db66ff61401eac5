"""Where things are: the store of a worktree, the files of a store, and which worktrees are too broad.

Pure: it computes names and never looks at the disk.
"""

from __future__ import annotations

import os

FORMAT = 1
"""The store format that this version writes; it reads this one and every older one."""

KEEPER_REF = "refs/heads/shadowtree"
"""The one ref of a store: a chain of commits that keeps every recorded tree from `git gc`."""

PACK_SUFFIX = ".pack"
INDEX_SUFFIX = ".idx"
KEEP_SUFFIX = ".keep"
"""What the names of a pack's files end with: itself, its index, and what keeps it from `git gc`."""

OVER_NOTE = "budget.over"
"""What is in the directory of stores while these have no room for more, and nothing to forget."""

TEMPORARY_PREFIX = "shadowtree-tmp-"
"""Whatever bears it and is found by the holder of the lock belongs to a process that died."""


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


def store_of(worktree: str, stores: str) -> str:
    """Name the store of a worktree, given by its real path, in the directory of stores."""
    # Some milliseconds, which a command that the daemon answers does not pay.
    from hashlib import sha256

    digest = sha256(os.fsencode(worktree)).hexdigest()[:12]
    folder = os.path.basename(worktree) or "root"
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in folder)
    # Cut by bytes, which is how file systems count.
    short = safe.encode("utf-8", "replace")[:80].decode("utf-8", "ignore")
    return os.path.join(stores, f"{short}-{digest}")


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
