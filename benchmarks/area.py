"""The work area: the worktrees of one size, made when first needed, and a new place for every store."""

from __future__ import annotations

import os
import shutil
import time
from functools import cached_property
from itertools import count
from pathlib import Path

from benchmarks import rivals, trees
from benchmarks.contestants import OURS


class Area:
    """One size's worktrees and stores below one directory.

    Stores are never removed here: thousands of deletions slow down the file system for the next measurement.
    """

    def __init__(self, root: Path, *, files: int, tree: Path | None, settle_s: float) -> None:
        self._root = root
        self._files = files
        self._tree = tree
        self._settle_s = settle_s
        self._store_numbers = count(1)
        self._worktree_numbers = count(1)
        self._seeds = count(1)
        self._rival_worktrees: dict[str, Path] = {}
        self._rival_stores: dict[str, Path] = {}

    @cached_property
    def folder(self) -> Path:
        """The worktree that is not a repository."""
        return self._build("folder")

    @cached_property
    def repository(self) -> Path:
        """The worktree that is a git repository, all of it committed and in one pack, as after a clone."""
        worktree = self._build("repository")
        rivals.commit_all(worktree)
        rivals.pack_all(worktree)
        return worktree

    @cached_property
    def _folder_paths(self) -> list[str]:
        return trees.list_files(self.folder)

    def worktree_of(self, name: str) -> Path:
        """Return a contestant's own worktree: the folder is ours, and a rival has an equal copy.

        Each finds its files just changed. If they shared one worktree, the second would find files that have
        rested.
        """
        if name == OURS:
            return self.folder
        if name not in self._rival_worktrees:
            self._rival_worktrees[name] = self._root / f"folder of {name}"
            trees.copy_tree(self.folder, self._rival_worktrees[name])
        else:
            self._copy_changes(self._rival_worktrees[name])
        time.sleep(self._settle_s)
        return self._rival_worktrees[name]

    def next_seed(self) -> int:
        """Return the seed of a change that was not made yet."""
        return next(self._seeds)

    def change(self, worktree: Path, changes: int, seed: int) -> None:
        """Rewrite `changes` files; the same seed makes the same changes in equal worktrees.

        Unwritten data of earlier work is flushed before, or a contestant that calls fsync would pay for the
        others. There is no pause afterwards: the next measurement finds the files just written.
        """
        os.sync()
        trees.change_files(worktree, self._folder_paths, changes=changes, seed=seed)

    def change_on(self, changes: int) -> None:
        """Rewrite `changes` files of the folder, different ones at each call, and flush nothing before."""
        trees.change_files(self.folder, self._folder_paths, changes=changes, seed=self.next_seed())

    def edit_on(self, edits: int) -> None:
        """Edit some lines in `edits` files of the folder, different ones at each call, and flush nothing."""
        trees.edit_files(self.folder, self._folder_paths, edits=edits, seed=self.next_seed())

    def new_worktree(self) -> Path:
        """Make an empty worktree."""
        worktree = self._root / f"new-{next(self._worktree_numbers)}"
        worktree.mkdir(parents=True)
        return worktree

    def digest(self, worktree: Path) -> str:
        """Return a digest of the folder, or of a copy of it."""
        return trees.digest_files(worktree, self._folder_paths)

    def new_store(self) -> Path:
        """Return the path of a store that does not exist yet."""
        stores = self._root / "stores"
        stores.mkdir(parents=True, exist_ok=True)
        return stores / str(next(self._store_numbers))

    def store_of(self, name: str) -> Path:
        """Return a store for a contestant's worktree; a rival keeps its own, which may be slow to fill."""
        if name == OURS:
            return self.new_store()
        if name not in self._rival_stores:
            self._rival_stores[name] = self.new_store()
        return self._rival_stores[name]

    def _copy_changes(self, worktree: Path) -> None:
        """Make a copy equal to the folder again, which works without rivals have changed."""
        for path in self._folder_paths:
            if (self.folder / path).read_bytes() != (worktree / path).read_bytes():
                shutil.copy2(self.folder / path, worktree / path)

    def _build(self, name: str) -> Path:
        """Make a worktree whose timestamps are old and whose pages are in memory."""
        worktree = self._root / name
        if self._tree is None:
            trees.build_tree(worktree, self._files)
        else:
            trees.copy_tree(self._tree, worktree)
        trees.read_files(worktree, trees.list_files(worktree))
        time.sleep(self._settle_s)
        return worktree
