"""The way of new packs into the store, and the ref that keeps them from `git gc`.

    small   held in memory ──▶ journaled: a row with all its bytes, in the record's transaction ──▶ files, ref
    large   files, synced ──▶ announced: a row with its name alone ──▶ names, ref ──▶ record, no row any more

So a small pack is durable by the one flush that makes its record durable. Its files are there for readers and
for real git, and are made again from the row whenever they are not whole. A row goes when its objects have
been merged into a pack that is durable by itself.

Before its record counts nothing of a small pack is on the disk, and a large one can be told by its row: no
object that a dead process left is ever taken for a stored one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from shadowtree import disk
from shadowtree.errors import ShadowError, StoreFailed
from shadowtree.journal import Journal
from shadowtree.layout import StoreLayout
from shadowtree.objects import Objects
from shadowtree.packs import (
    PackWriter,
    guard_pack,
    has_pack,
    is_written,
    release_pack,
    remove_pack,
    write_pack,
)
from shadowtree.system import boot_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.events import PackRow
    from shadowtree.gitformat import PackBytes

_SMALL = 256 << 10
"""How many bytes a journaled pack has at most, with its index."""


class Intake:
    """Takes new packs into one store. Only for the holder of its lock."""

    def __init__(self, layout: StoreLayout, objects: Objects, journal: Journal) -> None:
        self._layout = layout
        self._objects = objects
        self._journal = journal
        self._boot = boot_id()
        self._known: set[int] = set()
        """Rows whose files this process wrote or compared, so that no power cut came in between."""
        self._unrecorded: list[PackBytes] = []
        """Small packs that are held and not yet journaled."""
        self._has_large = False
        """Whether a large pack was published that is not yet recorded."""
        self._announced: set[str] = set()
        """Which of those were announced."""
        self._guarded: set[str] = set()
        """Large packs that `git gc` must leave alone, because the ref does not lead to them yet."""

    def publish(self, pack: PackWriter) -> None:
        """Make the objects of a pack readable, for this process at least, so that a record may name them."""
        content = pack.seal(_SMALL)
        if content is not None:
            self._objects.hold(content, pack.proven_ids())
            self._unrecorded.append(content)
        elif self._objects.publish(pack, self._announce):
            self._has_large = True

    def _announce(self, name: str) -> None:
        self._guarded.add(name)
        guard_pack(self._layout.packs, name)
        # One that is there already, damaged perhaps, may hold what is recorded: it is never to be removed.
        if not has_pack(self._layout.packs, name):
            self._announced.add(name)
            self._journal.announce_pack(name)

    @contextmanager
    def recording(self, keeper: bytes | None) -> Iterator[None]:
        """Let what the body adds to the journal count, durably, together with all that was published.

        With a `keeper` the ref ends there afterwards.
        """
        if keeper is not None and self._has_large:
            # By the ref alone `git gc` decides what may go, also right after a power cut, and a large pack is
            # in no row. What is in a row comes back.
            self._keep(keeper)
        with self._journal.transaction():
            added = [self._journal.add_pack(content, self._boot) for content in self._unrecorded]
            self._record_announced()
            yield
        self._forget_unrecorded()
        self._known.update(added)
        try:
            self._release_guarded()
            self._objects.write_held()
            if keeper is not None:
                self._follow(keeper)
        except ShadowError:
            # The record counts. Whoever holds the lock next makes the files.
            return

    def _release_guarded(self) -> None:
        guarded, self._guarded = self._guarded, set()
        for name in guarded:
            release_pack(self._layout.packs, name)

    def _record_announced(self) -> None:
        if not self._has_large:
            return
        if not self._announced <= set(self._journal.announced_packs()):
            # The lock file was removed, and whoever took the new one thinks that this process is dead.
            raise StoreFailed(self._layout.store, "another process removed what was being recorded")
        self._journal.forget_announced()

    def _forget_unrecorded(self) -> None:
        self._unrecorded, self._has_large, self._announced = [], False, set()

    def abandon(self) -> bool:
        """Throw away what was published and is not recorded; tell whether there was anything."""
        if not self._unrecorded and not self._has_large:
            return False
        self._forget_unrecorded()
        self._objects.drop_held()
        try:
            self._mend_ref()
            self._remove_announced()
            self._release_guarded()
            self._objects.refresh()
        except ShadowError:
            # The journal says what is left to do.
            return True
        return True

    # After a kill or a power cut

    def has_to_recover(self) -> bool:
        """Tell whether the machine was started anew since the files of journaled packs were whole."""
        return any(row.boot not in ("", self._boot) for row in self._journal.pack_rows())

    def recover(self) -> None:
        """Remove what no record stands behind, and make the ref and the files of journaled packs whole."""
        self._mend_ref()
        self._remove_announced()
        self._objects.drop_held()
        self._objects.refresh()
        rows = [row for row in self._journal.pack_rows() if not self._is_as_it_was(row)]
        made = [self._make_whole(row) for row in rows]
        self._known.update(row.number for row in rows)
        if any(made):
            self._objects.refresh()
        if self._boot and any(row.boot != self._boot for row in rows):
            self._journal.note_boot(self._boot)

    def _remove_announced(self) -> None:
        names = self._journal.announced_packs()
        if not names:
            return
        # A commit that failed may still be found on the disk after a power cut, unless another one follows.
        self._journal.announce_pack(names[0])
        with self._journal.transaction():
            for name in self._journal.announced_packs():
                remove_pack(self._layout.packs, name)
            # If `git gc` ran meanwhile, it lists commits of theirs; git does without, and makes it anew.
            disk.remove_file(os.path.join(self._layout.objects, "info", "commit-graph"))
            disk.sync_names(self._layout.packs)
            self._journal.forget_announced()

    def _is_as_it_was(self, row: PackRow) -> bool:
        """Tell whether a pack has files of the right sizes, and no power cut can have spoilt them."""
        has_files = self._objects.has_files(row.name, pack_size=row.pack_size, index_size=row.index_size)
        return has_files and (row.number in self._known or row.boot == self._boot != "")

    def _make_whole(self, row: PackRow) -> bool:
        """Write the files of a journaled pack if they are not just what its row holds; tell whether."""
        content = self._journal.read_pack(row)
        if content is None or is_written(self._layout.packs, content):
            return False
        write_pack(self._layout.packs, content)
        return True

    # Merging

    def tidy(self) -> None:
        """Merge small packs. A failure is no failure of the snapshot, which is recorded by now."""
        merged: list[str] = []
        try:
            self._objects.merge_small_packs(lambda names: merged.extend(self._release(names)))
            if merged:
                # Not before they are gone for good: torn files without a row would be damage to real git.
                disk.sync_names(self._layout.packs)
                self._journal.forget_packs(merged)
        except ShadowError:
            self._objects.refresh()

    def _release(self, names: list[str]) -> list[str]:
        """Let the ref keep what journaled packs kept so far, now that it is durable elsewhere; name them."""
        journaled = {row.name for row in self._journal.pack_rows()}
        released = [name for name in names if name in journaled]
        last = self._journal.last_tree()
        if released and last is not None:
            self._keep(last.keeper)
        return released

    # The ref

    def _mend_ref(self) -> None:
        """Let the ref end where the journal says: before what it may lead to is removed."""
        last = self._journal.last_tree()
        if last is not None and disk.read_if_there(self._layout.ref) != _ref_text(last.keeper):
            self._keep(last.keeper)

    def _keep(self, keeper: bytes) -> None:
        """Let the store's ref end at a commit, durably."""
        # A temporary among the refs would be a broken one to git.
        disk.write_file(self._layout.ref, _ref_text(keeper), beside=self._layout.config)

    def _follow(self, keeper: bytes) -> None:
        """Let the store's ref end at a commit, and do not wait: the journal can tell where it should end."""
        if not disk.overwrite_file(self._layout.ref, _ref_text(keeper)):
            self._keep(keeper)


def _ref_text(commit: bytes) -> bytes:
    return commit.hex().encode() + b"\n"
