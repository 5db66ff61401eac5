"""Add, replace and remove packs in a store, by one protocol with one recovery.

    small    held in memory           ──▶ row with all its bytes ──▶ files
    large    temporary files, synced  ──▶ row with their name    ──▶ renamed, synced  ──▶ row fresh or removed
    removed  all durable elsewhere    ──▶ row with its name      ──▶ no files, synced ──▶ row removed

The rows are written in the transaction that names the objects, so that both take effect together
(invariant 2). The work after the rows can be repeated at any time, and `recover` does so. The work before
them is invisible: temporary files that no row names belong to a process that died.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from shadowtree.base.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.directory import StoreLayout
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack_writer import (
    PackFile,
    PackWriter,
    is_written,
    name_pack,
    remove_pack,
    remove_temporary,
    write_pack,
)
from shadowtree.system import disk
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.pack_rows import FRESH, JOURNALED, PLACING, REMOVING, PackRow, Versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.git_format import PackBytes
    from shadowtree.store.packs.delta import Delta
    from shadowtree.store.packs.pack import Pack


class Publisher:
    """Adds packs to one store. Only for the holder of its lock."""

    def __init__(
        self,
        layout: StoreLayout,
        objects: Objects,
        journal: Journal,
        boot: str,
        limits: PackLimits = DEFAULT_LIMITS.packs,
    ) -> None:
        self._layout = layout
        self._objects = objects
        self._journal = journal
        self._boot = boot
        self._limits = limits
        self._small: list[tuple[PackBytes, Versions]] = []
        """Packs that are held in memory and not yet recorded."""
        self._large: list[tuple[PackFile, Versions]] = []
        """Packs that are held in files and not yet recorded."""
        self._known: set[int] = set()
        """Rows whose files this process wrote or compared, so no power cut can have damaged them since."""
        self._has_failed = False
        """Work is left for the next holder of the lock."""
        self._may_be_committed = False
        """A commit failed, and may still come back after a crash."""

    @property
    def is_settled(self) -> bool:
        """Whether everything published is recorded, and no work is left after a record."""
        return not (self._small or self._large or self._has_failed)

    def publish(self, pack: PackWriter, *, is_settled: bool = False) -> None:
        """Make the objects of a pack readable, at least for this process, so that a record may name them.

        With `is_settled` the pack gets files, however small it is.
        """
        held = self._objects.hold(pack, 0 if is_settled else self._limits.journaled_bytes)
        if not isinstance(held, list):
            self._small.append((held, pack.versions))
            return
        before = dict(pack.versions)
        for file in held:
            ids = self._objects.pack_set.held(file.name).ids() if before else ()
            self._large.append((file, [(id, before[id]) for id in ids if id in before]))

    def unrecorded(self) -> list[Pack]:
        """Return the packs that were published but are not recorded yet."""
        names = [*(content.name for content, _ in self._small), *(file.name for file, _ in self._large)]
        return [self._objects.pack_set.held(name) for name in names]

    @contextmanager
    def recording(self, gone: Sequence[Pack] = ()) -> Iterator[None]:
        """Commit what the body adds to the timeline together with everything published, durably.

        The packs `gone` are removed: everything needed of them is in the published packs.
        """
        new = {content.name for content, _ in self._small} | {file.name for file, _ in self._large}
        names = [pack.name for pack in gone if pack.name not in new]
        with self._journal.transaction():
            self._require_files()
            self._journal.packs.mark_removing(names, self._boot)
            for content, versions in self._small:
                self._known.add(self._journal.packs.add_journaled(content, self._boot, versions))
            for file, versions in self._large:
                self._journal.packs.add_placing(file, self._boot, versions)
            yield
            self._may_be_committed = True
        self._may_be_committed = False
        small, large = self._small, self._large
        self._small, self._large = [], []
        try:
            for content, _ in small:
                write_pack(self._layout.packs, content)
                self._objects.pack_set.take_up(content.name)
            if large or names:
                self._place(large, names)
        except ShadowError:
            # The record is committed. The next holder of the lock makes the files.
            self._has_failed = True

    def _require_files(self) -> None:
        """Raise if another process replaced our lock file, took us for dead and removed our files."""
        names = [name for file, _ in self._large for name in (file.temporary, file.index)]
        if not all(os.path.exists(os.path.join(self._layout.packs, name)) for name in names):
            raise StoreFailed(self._layout.store, "another process removed what was being recorded")

    def _place(self, large: Iterable[tuple[PackFile, Versions]], removed: Collection[str]) -> None:
        """Move packs to their final names, and remove the files of others, as the rows say."""
        for file, _ in large:
            name_pack(self._layout.packs, file)
            self._objects.pack_set.take_up(file.name)
        if removed:
            remove_lists(self._layout)
        for name in removed:
            remove_pack(self._layout.packs, name)
        self._objects.pack_set.drop(removed)
        # Not the rows of an earlier record whose files could not be written: their work is not done.
        done = {*removed, *(file.name for file, _ in large)}
        self._settle([row for row in self._journal.packs.rows(PLACING, REMOVING) if row.name in done])

    def _settle(self, rows: Iterable[PackRow]) -> None:
        """Make the names of packs durable, then mark the work of these rows as done."""
        disk.sync_names(self._layout.packs)
        placed = [row.number for row in rows if row.state == PLACING]
        self._journal.packs.settle(placed, [row.number for row in rows if row.state == REMOVING])

    def abandon(self) -> bool:
        """Discard what was published but not recorded; return whether there was anything."""
        if not self._small and not self._large:
            return False
        large, self._small, self._large = self._large, [], []
        self._objects.pack_set.drop_held()
        self._has_failed = True
        if not self._may_be_committed:
            with suppress(ShadowError):
                for file, _ in large:
                    remove_temporary(self._layout.packs, file)
        # Otherwise the files stay until `recover`: they may be all that a recorded message needs.
        self._may_be_committed = False
        return True

    # After a kill or a power cut

    def has_to_recover(self) -> bool:
        """Return whether work was interrupted, or the machine restarted since files were found whole."""
        rows = self._journal.packs.rows(JOURNALED, PLACING, REMOVING)
        return any(row.state != JOURNALED or row.boot not in ("", self._boot) for row in rows)

    def make_good(self) -> None:
        """Finish the work that failed earlier in this process, before another step relies on the files.

        A pack that should be removed but still exists must not be taken for one that keeps its objects.
        """
        if self._has_failed:
            self.recover()

    def recover(self) -> None:
        """Finish the work that rows describe, and remove files that no row names."""
        self._objects.pack_set.drop_held()
        self._objects.refresh()
        self._remove_unknown()
        rows = self._journal.packs.rows()
        changed = [row for row in rows if not self._is_as_it_was(row)]
        # Replacements come first, because git may read at any time.
        for row in sorted(changed, key=lambda row: row.state == REMOVING):
            self._redo(row)
        if changed:
            self._objects.refresh()
            self._settle([row for row in changed if row.state in (PLACING, REMOVING)])
        self._known.update(row.number for row in rows if row.state == JOURNALED)
        if self._boot and any(row.boot != self._boot for row in rows):
            self._journal.packs.note_boot(self._boot)
        self._has_failed = False

    def _redo(self, row: PackRow) -> None:
        packs = self._layout.packs
        if row.state == PLACING:
            name_pack(packs, row.file)
        elif row.state == REMOVING:
            remove_lists(self._layout)
            remove_pack(packs, row.name)
        else:
            content = self._journal.packs.read(row)
            if content is not None and not is_written(packs, content):
                write_pack(packs, content)

    def _is_as_it_was(self, row: PackRow) -> bool:
        """Return whether nothing is left to do for a row: it is fresh, or its files are known to be whole."""
        if row.state != JOURNALED:
            return row.state == FRESH
        has_files = self._objects.pack_set.has_files(
            row.name, pack_size=row.pack_size, index_size=row.index_size
        )
        return has_files and (row.number in self._known or row.boot == self._boot != "")

    def _remove_unknown(self) -> None:
        """Remove files of dead processes: temporary ones that no row names, and indexes without a pack."""
        if not self._list_unknown():
            return
        try:
            # One that failed may name these files.
            self._journal.database.void_failed_commits()
        except OutOfSpace:
            return
        # In a transaction, so that a live process that was taken for dead cannot record meanwhile.
        with self._journal.transaction():
            for file in self._list_unknown():
                disk.remove_file(os.path.join(self._layout.packs, file))

    def _list_unknown(self) -> list[str]:
        rows = self._journal.packs.rows()
        placing = [row.file for row in rows if row.state == PLACING]
        named = {name for file in placing for name in (file.temporary, file.index)}
        with disk.store_errors(self._layout.packs):
            files = os.listdir(self._layout.packs)
        packs = {file.removesuffix(".pack") for file in files if file.endswith(".pack")}
        packs |= {row.name for row in rows}
        return [
            file
            for file in files
            if (file.startswith(disk.TEMPORARY_PREFIX) and file not in named)
            or (
                file.startswith("pack-")
                and file.endswith((".idx", ".keep"))
                and file.rpartition(".")[0] not in packs
            )
        ]

    # Merging

    def has_much_waiting(self) -> bool:
        """Return whether journaled and fresh packs have too many bytes to wait for idle time."""
        names = {row.name for row in self._journal.packs.rows(JOURNALED, FRESH)}
        fresh = sum(pack.size for pack in self._objects.packs() if pack.name in names)
        return fresh > self._limits.much_bytes

    def merge(self) -> None:
        """Merge journaled packs if there are many; this is fast, because nothing is inflated.

        Errors are not raised: the record is already committed.
        """
        try:
            if not self._has_failed and self._journal.packs.count() >= self._limits.many:
                self._merge_rows()
        except ShadowError:
            self._has_failed = True
            self._objects.refresh()

    def _merge_rows(self) -> None:
        rows = sorted(self._journal.packs.rows(JOURNALED), key=lambda row: row.pack_size + row.index_size)
        names, total = set(), 0
        for row in rows:
            total += row.pack_size + row.index_size
            if total > self._limits.merged_bytes:
                break
            names.add(row.name)
        packs = [pack for pack in self._objects.packs() if pack.name in names]
        if len(packs) > 2:
            self.join(packs)

    def join(self, packs: Sequence[Pack], deltas: Mapping[bytes, Delta] | None = None) -> bool:
        """Join packs by copying their entries unchanged, and leave damaged packs alone.

        With `deltas` for some objects, the new pack has files only. Return False if nothing was joined.
        """
        entries, joined = _read_entries(packs)
        if not joined:
            return False
        known = self._journal.packs.versions([pack.name for pack in joined])
        into = self._objects.start_pack()
        into.versions += [pair for pack in joined for pair in known.get(pack.name, [])]
        try:
            for id, entry in entries.items():
                delta = deltas.get(id) if deltas else None
                # The base may be in a damaged pack.
                if delta is not None and delta[0] in entries:
                    into.add_delta(id, *delta)
                else:
                    into.copy_whole(id, *entry)
            self.publish(into, is_settled=deltas is not None)
            if deltas is not None:
                from shadowtree.store.packs.repack import verify

                verify(self.unrecorded(), [into])
            with self.recording(gone=joined):
                pass
        except BaseException:
            into.abandon()
            self.abandon()
            raise
        return True


def _read_entries(packs: Iterable[Pack]) -> tuple[dict[bytes, tuple[bytes, int]], list[Pack]]:
    """Return the entries of whole packs as they are stored, with their checksums, by id; and these packs."""
    entries: dict[bytes, tuple[bytes, int]] = {}
    whole = []
    for pack in packs:
        try:
            found = list(pack.read_all())
        except (StoreDamaged, StoreFailed):
            continue
        for id, raw, crc in found:
            entries.setdefault(id, (raw, crc))
        whole.append(pack)
    return entries, whole


def remove_lists(layout: StoreLayout) -> None:
    """Remove the lists of packs and commits by `git gc`, before a pack goes; git works without them."""
    for name in ("info/commit-graph", "info/packs", "pack/multi-pack-index"):
        disk.remove_file(os.path.join(layout.objects, name))
