"""Remove a secret from a store for good: from every tree, and then from every file of the store.

    find      search the recorded trees for it, and for other paths that hold the same bytes
    record    in one transaction: trees and facts without it, changes and texts that do not mention it, and a
              tombstone that keeps snapshots from storing it again
    finish    remove refs and logs of older commits, sweep what nothing needs any more, rewrite the timeline,
              wipe the cache

A kill before the transaction changes nothing. After it, the secret is in no tree any more, and the next
holder of the lock finishes the purge: until then, the tombstone is marked as not done. The sweep is passed
in, because purging and retention do not know each other.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress

from shadowtree.base.arguments import is_agreed, refuse_unknown
from shadowtree.base.errors import NotConfirmed, ShadowError, StoreDamaged, StoreFailed, UnknownName
from shadowtree.base.frozen import replace
from shadowtree.base.paths import to_text
from shadowtree.capture.open_store import OpenStore
from shadowtree.purge.find import Find, Target, find, find_left, read_target
from shadowtree.purge.redact import plan_redactions
from shadowtree.purge.rewrite import Eraser
from shadowtree.results.reports import Purged
from shadowtree.store.directory import begin_ref
from shadowtree.store.files import QUARANTINE, list_files
from shadowtree.store.walk import Walker
from shadowtree.system import disk
from shadowtree.timeline.sqlite.schema import TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from shadowtree.store.packs.pack_writer import PackWriter

    class PurgeOptions(TypedDict, total=False):
        """How something is purged."""

        everywhere: bool
        """Purge the same contents under any other name too."""
        dry_run: bool
        """Change nothing, and return what would be removed."""
        confirm: Callable[[Purged], bool | Awaitable[bool]] | None
        """Called before anything is removed; False stops it."""


__all__ = ["PurgeOptions", "allow", "finish", "finish_interrupted", "purge", "read_target"]

Locked = Callable[[], AbstractContextManager[OpenStore]]
"""Takes the lock."""
Sweep = Callable[[OpenStore], tuple[int, int]]
"""Removes everything that nothing needs; returns how many objects and bytes were removed."""


def purge(locked: Locked, target: Target, sweep: Sweep, how: PurgeOptions) -> Purged:
    """Remove a path, a content or a text from the store for good; nothing is locked during `confirm`."""
    refuse_unknown(how, "everywhere", "dry_run", "confirm")
    confirm = how.get("confirm")
    try:
        with locked() as opened:
            return _purge(opened, target, sweep, how)
    except NotConfirmed as error:
        if confirm is None or not is_agreed(confirm, error.outcome):
            raise
    with locked() as opened:
        return _purge(opened, target, sweep, {**how, "confirm": None})


def _purge(opened: OpenStore, target: Target, sweep: Sweep, how: PurgeOptions) -> Purged:
    everywhere, dry_run = how.get("everywhere"), bool(how.get("dry_run"))
    try:
        found = find(opened, target, everywhere=bool(everywhere))
    except UnknownName:
        tombstones = opened.journal.left_out.tombstones()
        is_purged = target.path is not None and tombstones.covers(target.path)
        if not is_purged and target.blob not in tombstones.blobs:
            raise
        again = find_left(opened, target, everywhere=bool(everywhere))
        if again is None:
            return Purged([], [], 0, [], notes=[f"{target.name} has already been purged"], dry_run=dry_run)
        found = again
    rewriting = _Rewriting(opened, found, target.text)
    try:
        if target.text is not None and rewriting.is_nothing:
            raise UnknownName(target.name, "nothing recorded contains this text")
        planned = rewriting.foresee()
        if dry_run:
            rewriting.abandon()
            return planned
        if how.get("confirm") is not None:
            raise NotConfirmed(planned, f"remove {target.name} from everything recorded")
        rewriting.record(opened.limits.clock_ns() // 1_000_000)
    except BaseException:
        rewriting.abandon()
        raise
    removed, freed = _finish_now(opened, sweep, target)
    foreign = [file.name for file in list_files(opened.layout.store) if not file.is_known]
    notes = [f"{name} in the store is not shadowtree's and was left alone" for name in foreign]
    return replace(planned, dry_run=False, removed=removed, freed=freed, notes=[*planned.notes, *notes])


class _Rewriting:
    """The records of a store without what is purged, before these are recorded."""

    def __init__(self, opened: OpenStore, found: Find, text: str | None) -> None:
        self._opened = opened
        self._found = found
        self._pack: PackWriter = opened.objects.start_pack()
        self._rows: list[tuple[int, bytes, bytes, bytes, int]] = []
        """The tree records that change."""
        eraser = Eraser(opened.objects, self._pack, found.tombstones)
        for record in opened.journal.live_trees():
            self._rewrite(record, eraser)
        self._changes = opened.journal.purges.changes_to(found.tombstones)
        # If a text is purged, only that is redacted, and nothing else from the files that hold it.
        self._redactions = plan_redactions(opened, found.blobs if text is None else (), text)

    @property
    def is_nothing(self) -> bool:
        """Whether it is in no tree and no text."""
        found = self._found
        return self._redactions.is_nothing and not (found.paths or found.also_at or found.unread)

    def _rewrite(self, record: TreeRecord, eraser: Eraser) -> None:
        erased = eraser.erase(record.tree, record.facts)
        tree, facts = erased.tree, erased.facts
        assert tree is not None
        assert facts is not None
        gone = self._found.blobs - self._found.kept
        also = b"".join(blob for blob in record.blobs_beside if blob not in gone)
        if (tree, facts, also) != (record.tree, record.facts, record.also):
            files = record.files - sum(1 for _, blob in erased.hits if blob)
            self._rows.append((record.number, tree, facts, also, files))

    def foresee(self) -> Purged:
        """Return what recording this would do."""
        journal, found = self._opened.journal, self._found
        numbers = journal.purges.messages_of_events([event for event, _ in self._changes])
        numbers |= {number for (table, _, number), _ in self._redactions.texts if table == "messages"}
        names = journal.session_names()
        rows = journal.messages_by_number(sorted(numbers)).values()
        return Purged(
            [to_text(path) for path in found.paths],
            sorted(blob.hex() for blob in found.blobs),
            len(self._rows),
            [(names[row.session], row.id) for row in rows if row.forgotten_ms is None],
            [to_text(path) for path in found.also_at],
            sorted(blob.hex() for blob in found.left),
            sorted(blob.hex() for blob in {*self._redactions.unread, *found.unread}),
            sorted({*self._redactions.ids, *self._redactions.sessions}),
            notes=list(self._redactions.describe()),
            dry_run=True,
        )

    def record(self, time_ms: int) -> None:
        """Record all of it in one transaction."""
        journal = self._opened.journal
        if self._pack.ids:
            self._opened.publisher.publish(self._pack)
        with self._opened.publisher.recording():
            journal.purges.rewrite_trees(self._rows)
            journal.purges.veil_changes(self._changes, self._found.tombstones)
            journal.purges.replace_texts(self._redactions.texts)
            for number, name in self._redactions.branches:
                journal.rename_branch(number, name)
            for path, blob in self._found.rows:
                journal.purges.add(path, blob, time_ms)
            for path, blob in self._found.left_of:
                journal.purges.note_left(path, blob, time_ms)

    def abandon(self) -> None:
        """Throw away what is not recorded."""
        self._pack.abandon()
        self._opened.abandon()


def allow(locked: Locked, target: Target) -> list[str]:
    """Allow snapshots to cover again what was purged; return the paths and the ids."""
    with locked() as opened:
        removed = opened.journal.purges.remove(target.path, target.blob)
    if not removed:
        raise UnknownName(target.name, f"{target.name} has not been purged")
    return [to_text(path or b"") if blob is None else blob.hex() for path, blob in removed]


# Finishing


def _finish_now(opened: OpenStore, sweep: Sweep, target: Target) -> tuple[int, int]:
    """Finish the recorded purge; errors mention it, or they would read as if nothing had been done."""
    where = "tree" if target.text is None else "message"
    came_to = f"{target.name} is gone from every {where}, and a later command removes its bytes"
    try:
        return finish(opened, sweep)
    except StoreDamaged as error:
        raise StoreDamaged(f"{error.what}; {came_to}") from error
    except StoreFailed as error:
        raise StoreFailed(error.path, f"{error.why}; {came_to}") from error


def finish(opened: OpenStore, sweep: Sweep) -> tuple[int, int]:
    """Remove what is purged from every file of the store, then record that the purge is done."""
    store = opened.layout.store
    # Otherwise a recorded pack whose renaming failed would be removed as a leftover.
    opened.publisher.make_good()
    # Leftovers of processes that died, files that git derived from packs, and its notes of older commits.
    for file in list(list_files(store)):
        if not file.is_directory and (file.is_temporary or file.is_derived or file.is_of_commits):
            disk.remove_file(os.path.join(store, file.name))
    begin_ref(opened.layout)
    # Names of sessions and branches are also names of directories.
    for directory, _, _ in os.walk(os.path.join(store, "refs"), topdown=False):
        with suppress(OSError):
            os.rmdir(directory)
    opened.objects.refresh()
    swept = sweep(opened)
    if os.path.lexists(os.path.join(store, QUARANTINE)):
        disk.remove_tree(os.path.join(store, QUARANTINE))
    _require_nothing_left(opened)
    opened.journal.scrub()
    opened.cache.wipe()
    opened.journal.purges.finish()
    return swept


def finish_interrupted(opened: OpenStore, sweep: Sweep) -> str:
    """Finish an interrupted purge; return a note on whether that succeeded."""
    try:
        finish(opened, sweep)
    except ShadowError as error:
        # What is purged is in no tree any more, so a command that does something else may go on.
        return f"an interrupted purge is not finished yet: {error}"
    return "an interrupted purge was finished"


def _require_nothing_left(opened: OpenStore) -> None:
    """Raise StoreDamaged if a file or a row holds an object that nothing needs, or cannot be read."""
    walker = Walker(opened.objects)
    for record in opened.journal.live_trees():
        walker.walk_trees((record.tree, record.facts), record.blobs_beside)
    walker.walk_refs(opened.layout.store)
    opened.objects.refresh()
    packs = opened.objects.packs()
    names = {pack.name for pack in packs}
    named = {file.pack for file in list_files(opened.layout.store) if file.pack is not None}
    named |= {row.name for row in opened.journal.packs.rows()}
    if not named <= names or opened.objects.loose.ids():
        raise StoreDamaged("a pack cannot be read, so it may still contain what was purged")
    for pack in packs:
        if not walker.reached.issuperset(pack.ids()):
            raise StoreDamaged(f"{pack.path} still contains what nothing needs")
