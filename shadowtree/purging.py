"""Removing a secret from a store for good: from every tree, and then from every file of the store.

    find      where it is in the recorded trees, and what else holds the same bytes
    record    in one transaction: trees, facts and commits without it, changes that do not know of it, texts
              without what it said, and a tombstone by which no snapshot takes it again
    finish    what nothing needs any more is swept away, the timeline written anew, the cache thrown away

A kill before the transaction leaves nothing done. After it, what is purged is in no tree any more, and who
holds the lock next finishes it: until then the tombstone says that it is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from shadowtree import disk
from shadowtree.doomed import Doomed, Find, Kept, find
from shadowtree.erasing import Eraser
from shadowtree.errors import NotConfirmed, StoreDamaged, StoreFailed, UnknownName
from shadowtree.events import TreeRecord
from shadowtree.frozen import replace
from shadowtree.inventory import QUARANTINE, list_files
from shadowtree.marking import Marking
from shadowtree.opened import OpenStore
from shadowtree.paths import to_text
from shadowtree.reports import Purged
from shadowtree.retelling import retell
from shadowtree.sweeping import Sweep, sweep
from shadowtree.tombstones import Tombstones

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.packwriter import PackWriter

Confirm = Callable[[Purged], bool]
"""Asks whether it shall be done."""


# Recording


def purge(
    opened: OpenStore,
    doomed: Doomed,
    *,
    everywhere: bool,
    dry_run: bool,
    confirm: Confirm | None,
    time_ms: int,
) -> Purged:
    """Remove a path or a content from the store for good. Only for the holder of the lock."""
    try:
        found = find(opened, doomed, everywhere=everywhere)
    except UnknownName:
        if not _is_buried(opened.journal.tombstones(), doomed):
            raise
        return Purged([], [], 0, [], notes=[f"{doomed.name} was purged already"], dry_run=dry_run)
    rewriting = _Rewriting(opened, found)
    try:
        planned = rewriting.foresee()
        if dry_run:
            rewriting.abandon()
            return planned
        if confirm is not None and not confirm(planned):
            raise NotConfirmed(planned, f"remove {doomed.name} from everything that is recorded")
        rewriting.record(time_ms)
    except BaseException:
        rewriting.abandon()
        raise
    swept = _finish_or_tell(opened, doomed)
    notes = [
        f"{name} in the store is not shadowtree's, and was left as it is" for name in _list_foreign(opened)
    ]
    return replace(
        planned, dry_run=False, removed=swept.removed, freed=swept.freed, notes=[*planned.notes, *notes]
    )


def _finish_or_tell(opened: OpenStore, doomed: Doomed) -> Sweep:
    """Finish, or say how far it came: who only hears of damage would think that nothing was done."""
    came_to = f"{doomed.name} is in no tree any more, and the next command that can removes its bytes"
    try:
        return finish(opened)
    except StoreDamaged as error:
        raise StoreDamaged(f"{error.what}; {came_to}") from error
    except StoreFailed as error:
        raise StoreFailed(error.path, f"{error.why}; {came_to}") from error


def _is_buried(tombstones: Tombstones, doomed: Doomed) -> bool:
    return tombstones.covers(doomed.path) if doomed.path is not None else doomed.blob in tombstones.blobs


class _Rewriting:
    """The records of a store without what is purged, on the way to being recorded."""

    def __init__(self, opened: OpenStore, found: Find) -> None:
        self._opened = opened
        self._found = found
        self._pack: PackWriter = opened.objects.start_pack()
        self._rows: list[tuple[int, bytes, bytes, bytes, int]] = []
        self._last: bytes | None = None
        self._trees = 0
        """How many records are others than they were."""
        eraser = Eraser(opened.objects, self._pack, found.tombstones)
        for record in opened.journal.live_trees():
            self._rewrite(record, eraser)
        self._changes = opened.journal.changes_to(found.tombstones)
        self._retold = retell(opened, found.blobs)

    def _rewrite(self, record: TreeRecord, eraser: Eraser) -> None:
        objects = self._opened.objects
        kept = Kept(objects, record)
        erased = eraser.erase(record.tree, record.facts)
        gone = self._found.blobs - self._found.kept
        also = [blob for blob in kept.also if blob not in gone]
        tree, facts = erased.tree, erased.facts
        assert tree is not None
        assert facts is not None
        keeper = record.keeper
        if (tree, facts, also) != (record.tree, record.facts, kept.also):
            self._trees += 1
        elif kept.commit.parent == self._last:
            self._last = keeper
            return
        keeper = self._opened.add_keeper(
            self._pack, tree, facts, time_s=record.time_s, also=also, after=self._last
        )
        files = record.files - sum(1 for _, blob in erased.hits if blob)
        self._rows.append((record.number, tree, facts, keeper, files))
        self._last = keeper

    def foresee(self) -> Purged:
        """Tell what it comes to."""
        journal, found = self._opened.journal, self._found
        numbers = journal.messages_of_events([event for event, _ in self._changes])
        numbers |= {number for (table, _, number), _ in self._retold.texts if table == "messages"}
        names = journal.session_names()
        rows = journal.messages_by_number(sorted(numbers)).values()
        return Purged(
            [to_text(path) for path in found.paths],
            sorted(blob.hex() for blob in found.blobs),
            self._trees,
            [(names[row.session], row.id) for row in rows if row.forgotten_ms is None],
            [to_text(path) for path in found.also_at],
            sorted(blob.hex() for blob in found.left),
            [blob.hex() for blob in self._retold.unread],
            sorted({*self._retold.ids, *self._retold.sessions}),
            notes=list(self._retold.describe()),
            dry_run=True,
        )

    def record(self, time_ms: int) -> None:
        """Let all of it count together."""
        journal = self._opened.journal
        assert self._last is not None
        with self._opened.rewriting(self._pack, self._last):
            journal.rewrite_trees(self._rows)
            journal.veil_changes(self._changes, self._found.tombstones)
            journal.replace_texts(self._retold.texts)
            for number, name in self._retold.branches:
                journal.rename_branch(number, name)
            for path, blob in self._found.rows:
                journal.add_purged(path, blob, time_ms)

    def abandon(self) -> None:
        """Throw away what is not recorded."""
        self._pack.abandon()
        self._opened.abandon()


def allow(opened: OpenStore, doomed: Doomed) -> list[str]:
    """Let what was purged be covered again; give the paths and the ids. Only for the holder of the lock."""
    removed = opened.journal.remove_purged(doomed.path, doomed.blob)
    if not removed:
        raise UnknownName(doomed.name, f"{doomed.name} was not purged")
    return [to_text(row.path or b"") if row.blob is None else row.blob.hex() for row in removed]


# Finishing


def finish(opened: OpenStore) -> Sweep:
    """Remove from every file of the store what is purged, and then note that nothing is left of it."""
    swept = sweep(opened, is_thorough=True)
    _remove_leftovers(opened)
    _require_nothing_left(opened)
    opened.journal.scrub()
    opened.cache.wipe()
    opened.journal.finish_purges()
    return swept


def _remove_leftovers(opened: OpenStore) -> None:
    """Remove what repair set aside, what processes that died left, and what git wrote of older commits."""
    store = opened.layout.store
    for file in list(list_files(store)):
        if not file.is_directory and (file.is_temporary or file.is_derived or file.is_of_commits):
            disk.remove_file(os.path.join(store, file.name))
    if os.path.lexists(os.path.join(store, QUARANTINE)):
        disk.remove_tree(os.path.join(store, QUARANTINE))


def _list_foreign(opened: OpenStore) -> list[str]:
    files = list_files(opened.layout.store)
    return [file.name for file in files if not file.is_known]


def _require_nothing_left(opened: OpenStore) -> None:
    """Raise StoreDamaged if a file or a row holds an object that nothing needs, or cannot be read."""
    marking = Marking(opened.objects)
    marking.add(reversed(list(opened.journal.live_trees())))
    opened.objects.refresh()
    packs = opened.objects.packs()
    names = {pack.name for pack in packs}
    unread = [
        file.name
        for file in list_files(opened.layout.store)
        if file.pack is not None and file.pack not in names
    ]
    if (
        unread
        or opened.objects.loose.ids()
        or any(row.name not in names for row in opened.journal.pack_rows())
    ):
        raise StoreDamaged("a pack cannot be read, so that nobody can say whether what was purged is in it")
    for pack in packs:
        if not marking.live.issuperset(pack.ids()):
            raise StoreDamaged(f"{pack.path} still holds what nothing needs")
