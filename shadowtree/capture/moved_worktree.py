"""Find the store of a worktree: at its place, or elsewhere if the directory was moved here (adoption).

What happens depends on where the store of this directory is:

    at its place     it is used
    elsewhere        the directory was moved: readers use the store where it is; the first process that
                     records binds it to the new path and moves it to its place
    nowhere          the first process that records makes it; a store of another directory at its place is
                     kept under another name
"""

from __future__ import annotations

import os

from shadowtree.base.errors import ForeignStore, NotWrapped, WorktreeMoved, WorktreeReplaced
from shadowtree.store import directory as stores
from shadowtree.store.directory import StoreLayout
from shadowtree.store.identity import find_moved
from shadowtree.store.lock import Lock
from shadowtree.system.locations import Places


class StorePlace:
    """Where the store of one worktree is, and where it should be."""

    def __init__(
        self, worktree: str, store: str | os.PathLike[str] | None, places: Places, told: list[str]
    ) -> None:
        self._worktree = worktree
        self._places = places
        self._own = places.store_of(worktree, store)
        self._is_given = places.given_store(store) is not None
        self._bound_to: str | None = None
        """The path to which the store is bound, if the store still has to be settled."""
        self.store = self._own
        self._told = told
        """The list to which warnings for the user are added, one sentence each."""

    def find(self) -> None:
        """Find the store of this directory, even if it was moved; raise NotWrapped if there is none."""
        self.store, self._bound_to = self._own, None
        try:
            self.check()
        except NotWrapped:
            listed = [self.store] if self._is_given else stores.list_all(os.path.dirname(self.store))
            moved = find_moved(self._worktree, listed)
            if moved is None:
                raise
            if moved.doubt is not None:
                where = self._worktree, moved.store, moved.worktree
                raise WorktreeMoved(*where, moved.doubt, is_likely=moved.is_likely) from None
            self.store, self._bound_to = moved.store, moved.worktree
            if moved.worktree != self._worktree:
                self._tell(f"this directory was moved here from {moved.worktree}; its history is kept")

    def check(self) -> StoreLayout:
        """Check that the store can be trusted and still belongs to this directory."""
        try:
            return stores.open_store(self.store, self._worktree, self._bound_to)
        except WorktreeReplaced as error:
            if self._is_given:
                raise ForeignStore(self._worktree, self.store) from error
            raise

    @property
    def is_settled(self) -> bool:
        """Whether the store is at its place and bound to this path."""
        return self._bound_to is None

    def settle(self, timeout_s: float) -> None:
        """Bind the store to this path and move it to its place. It must not be open."""
        with Lock(StoreLayout(self.store).lock, timeout_s):
            self.find()
            if self.is_settled:
                return
            stores.bind(self.store, self._worktree)
            if self.store != self._own:
                self.make_way(timeout_s)
                stores.move(self.store, self._own)
        self.store, self._bound_to = self._own, None

    def make_way(self, timeout_s: float) -> None:
        """Rename the store of another directory that used to be at this path."""
        if not stores.exists(self._own):
            return
        with Lock(StoreLayout(self._own).lock, timeout_s):
            if not stores.belongs_to(self._own, self._worktree):
                aside = stores.set_aside(self._own)
                self._tell(f"another directory used to be at this path; its history is kept in {aside}")

    def require_free(self, why: NotWrapped) -> None:
        """Raise `why` no store was found, unless a new one may be made; warn if the move is in doubt."""
        if isinstance(why, ForeignStore) or (isinstance(why, WorktreeMoved) and why.is_likely):
            raise why
        if isinstance(why, WorktreeMoved):
            self._tell(f"starting a new history; {why}")

    def adopt(self, timeout_s: float) -> None:
        """Bind the store to the worktree without proof; move it to its usual place if it is next to that."""
        usual = self._places.usual_store(self._worktree)
        self.store = self._own = stores.adopt(self.store, self._worktree, usual, timeout_s)
        self._is_given = self.store != usual

    def warn_of_around(self) -> list[str]:
        """Return a warning if a directory above is wrapped too, unless the caller named the store."""
        above = os.path.dirname(self._worktree)
        is_alone = self._is_given or above == self._worktree
        found = None if is_alone else stores.find_usual(above, self._places)
        if found is None:
            return []
        return [f"{found}, which contains it, is wrapped too; its store is {self._places.usual_store(found)}"]

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.append(sentence)
