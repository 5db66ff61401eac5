"""The work area: the worktrees of one size, made when first needed, and a new place for every store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

from benchmarks import rivals, trees

PAUSE_S = 0.3
"""How long changed files rest before they are looked at, lest their fresh timestamps be in doubt."""


class Area:
    """One size's worktrees and stores below one directory.

    Stores are never removed here: thousands of deletions make the file system slow for whoever comes next.
    """

    def __init__(self, root: Path, *, files: int, tree: Path | None, settle_s: float) -> None:
        self._root = root
        self._files = files
        self._tree = tree
        self._settle_s = settle_s
        self._store_numbers = count(1)
        self._change_numbers = count(1)
        self._copy_numbers = count(1)
        self._rival_stores: dict[str, Path] = {}

    @cached_property
    def folder(self) -> Path:
        """The worktree that is no repository."""
        return self._build("folder")

    @cached_property
    def packed_repository(self) -> Path:
        """The worktree that is a git repository, all of it committed and in one pack."""
        worktree = self._build("packed")
        rivals.commit_all(worktree)
        rivals.pack_all(worktree)
        return worktree

    @cached_property
    def loose_repository(self) -> Path:
        """The worktree that is a git repository, all of it committed and nothing packed."""
        worktree = self._build("loose")
        rivals.commit_all(worktree)
        return worktree

    @cached_property
    def _folder_paths(self) -> list[str]:
        return trees.list_files(self.folder)

    def change_folder(self, changes: int) -> None:
        """Rewrite that many files of the folder, other ones at each call, and let them rest."""
        self.change_alike([self.folder], changes)

    def change_alike(self, worktrees: Sequence[Path], changes: int) -> None:
        """Rewrite the same files in worktrees that are copies of the folder as it is."""
        if changes:
            seed = next(self._change_numbers)
            for worktree in worktrees:
                trees.change_files(worktree, self._folder_paths, changes=changes, seed=seed)
            time.sleep(PAUSE_S)

    def edit_folder(self, edits: int) -> int:
        """Edit some lines in that many files of the folder, and return the bytes of the new contents."""
        seed = next(self._change_numbers)
        return trees.edit_files(self.folder, self._folder_paths, edits=edits, seed=seed)

    def new_worktree(self) -> Path:
        """Make a worktree with nothing in it."""
        worktree = self._root / f"copy-{next(self._copy_numbers)}"
        worktree.mkdir(parents=True)
        return worktree

    def copy_folder(self) -> Path:
        """Copy the folder as it is, for a contestant that needs a worktree of its own."""
        worktree = self._root / f"copy-{next(self._copy_numbers)}"
        trees.copy_tree(self.folder, worktree)
        time.sleep(self._settle_s)
        return worktree

    def digest(self, worktree: Path) -> str:
        """Sum up a copy of the folder, or the folder itself."""
        return trees.digest_files(worktree, trees.list_files(worktree))

    def new_store(self) -> Path:
        """Name a store that does not exist yet."""
        stores = self._root / "stores"
        stores.mkdir(parents=True, exist_ok=True)
        return stores / str(next(self._store_numbers))

    def store_of(self, rival: str) -> Path:
        """Name the store of the folder that a rival keeps from work to work: filling it may take minutes."""
        if rival not in self._rival_stores:
            self._rival_stores[rival] = self.new_store()
        return self._rival_stores[rival]

    def _build(self, name: str) -> Path:
        """Make a worktree; its timestamps are old, and its pages in memory, when it is handed out."""
        worktree = self._root / name
        if self._tree is None:
            trees.build_tree(worktree, self._files)
        else:
            trees.copy_tree(self._tree, worktree)
        trees.read_files(worktree, trees.list_files(worktree))
        time.sleep(self._settle_s)
        return worktree
