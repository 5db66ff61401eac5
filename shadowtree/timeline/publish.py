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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shadowtree.base.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.delta_packs import NoShelf
from shadowtree.store.directory import KEEPER_REF, StoreLayout
from shadowtree.store.git_format import deflate
from shadowtree.store.objects import Objects
from shadowtree.store.pack_writer import (
    PackWriter,
    guard_pack,
    has_pack,
    is_written,
    release_pack,
    remove_pack,
    write_pack,
)
from shadowtree.store.repack import Shelving
from shadowtree.system import disk
from shadowtree.timeline.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.git_format import PackBytes
    from shadowtree.store.packs import Pack
    from shadowtree.timeline.live_objects import Marking
    from shadowtree.timeline.pack_rows import PackRow

_MUCH = 24
"""A fresh pack is large only if it has more than this part of what the shelves have, too."""
_LARGEST_AT_ONCE = 16 << 20
_WEIGHT_AT_ONCE = 6 << 20
"""What a command does: how large a shelf that it rewrites may be, and all of them together; with
`most_objects_at_once` some 50 ms of work."""


class Intake:
    """Takes new packs into one store. Only for the holder of its lock."""

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
        self._removed: list[str] = []
        """Packs whose files are gone, or about to go, and whose rows are not."""
        self._known: set[int] = set()
        """Rows whose files this process wrote or compared, so that no power cut came in between."""
        self._unrecorded: list[PackBytes] = []
        """Small packs that are held and not yet journaled."""
        self._has_large = False
        """Whether a large pack was published that is not yet recorded."""
        self._announced: set[str] = set()
        """Which of those were announced."""
        self._fresh: dict[str, list[tuple[bytes, bytes]]] = {}
        """The packs that are not on shelves, and which of their objects came in place of which."""
        self._has_news = False
        """Whether something was recorded since the store was last tidied."""
        self._has_large_news = False
        """Whether a large pack was."""
        self._foreign: set[str] = set()
        """Packs that real git made, and that do not look so."""
        self._guarded: set[str] = set()
        """Large packs that `git gc` must leave alone, because the ref does not lead to them yet."""
        self._has_failed = False
        """Something is left to do for the next holder of the lock."""

    @property
    def is_settled(self) -> bool:
        """Whether all that was published is recorded, and all that was recorded is as it should be."""
        return not (self._unrecorded or self._has_large or self._removed or self._has_failed)

    def publish(self, pack: PackWriter) -> None:
        """Make the objects of a pack readable, for this process at least, so that a record may name them."""
        content = pack.seal(self._limits.journaled_bytes)
        if content is not None:
            self._objects.hold(content, pack.proven_ids())
            self._unrecorded.append(content)
            self._fresh[content.name] = pack.versions
            return
        known = set(self._guarded)
        if self._objects.publish(pack, self._announce):
            self._has_large = True
            # Where hardly anything has an older version, there is nothing to gain on other shelves; and where
            # there is so much, it would take too long.
            if (
                self._limits.fresh_part * len(pack.versions) >= len(pack.ids)
                and pack.size <= self._limits.most_bytes_at_once
            ):
                self._fresh.update((name, pack.versions) for name in self._guarded - known)

    def _announce(self, name: str) -> None:
        self._guarded.add(name)
        guard_pack(self._layout.packs, name)
        # One that is there already, damaged perhaps, may hold what is recorded: it is never to be removed.
        if not has_pack(self._layout.packs, name):
            self._announced.add(name)
            self._journal.packs.announce(name)

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
            added = [self._journal.packs.add(content, self._boot) for content in self._unrecorded]
            self._record_announced()
            for name, versions in self._fresh.items():
                self._journal.packs.add_fresh(name, versions)
            yield
        self._has_news, self._has_large_news = bool(self._fresh), self._has_large
        self._forget_unrecorded()
        self._known.update(added)
        try:
            self._release_guarded()
            self._objects.pack_set.write_held()
            if keeper is not None:
                self._follow(keeper)
        except ShadowError:
            # The record counts. Whoever holds the lock next makes the files.
            self._has_failed = True

    def _release_guarded(self) -> None:
        guarded, self._guarded = self._guarded, set()
        for name in guarded:
            release_pack(self._layout.packs, name)

    def _record_announced(self) -> None:
        if not self._has_large:
            return
        if not self._announced <= set(self._journal.packs.announced()):
            # The lock file was removed, and whoever took the new one thinks that this process is dead.
            raise StoreFailed(self._layout.store, "another process removed what was being recorded")
        self._journal.packs.forget_announced()

    def _forget_unrecorded(self) -> None:
        self._unrecorded, self._has_large, self._announced, self._fresh = [], False, set(), {}

    def abandon(self) -> bool:
        """Throw away what was published and is not recorded; tell whether there was anything."""
        if not self._unrecorded and not self._has_large:
            return False
        self._forget_unrecorded()
        self._objects.pack_set.drop_held()
        try:
            self._mend_ref()
            self._remove_announced()
            self._release_guarded()
            self._objects.refresh()
        except ShadowError:
            # The journal says what is left to do.
            self._has_failed = True
        return True

    # After a kill or a power cut

    def has_to_recover(self) -> bool:
        """Tell whether the machine was started anew since the files of journaled packs were whole."""
        return any(row.boot not in ("", self._boot) for row in self._journal.packs.rows())

    def recover(self) -> None:
        """Remove what no record stands behind, and make the ref and the files of journaled packs whole.

        StoreDamaged is raised where the ref shows that the journal has lost records.
        """
        self._has_failed = False
        self._require_records()
        # Removed packs that still have rows come back, and these stay with them.
        self._removed = []
        self._mend_ref()
        self._remove_announced()
        self._objects.pack_set.drop_held()
        self._objects.refresh()
        rows = [row for row in self._journal.packs.rows() if not self._is_as_it_was(row)]
        made = [self._make_whole(row) for row in rows]
        self._known.update(row.number for row in rows)
        if any(made):
            self._objects.refresh()
        if self._boot and any(row.boot != self._boot for row in rows):
            self._journal.packs.note_boot(self._boot)

    def _remove_announced(self) -> None:
        names = self._journal.packs.announced()
        if not names:
            return
        # A commit that failed may still be found on the disk after a power cut, unless another one follows.
        self._journal.packs.confirm_announced()
        with self._journal.transaction():
            for name in self._journal.packs.announced():
                remove_pack(self._layout.packs, name)
            self._remove_lists()
            disk.sync_names(self._layout.packs)
            self._journal.packs.forget_announced()

    def _remove_lists(self) -> None:
        """Remove what `git gc` lists packs, commits and refs in, which are gone by now; it does without."""
        for name in ("info/commit-graph", "info/packs", "pack/multi-pack-index"):
            disk.remove_file(os.path.join(self._layout.objects, name))
        disk.remove_file(os.path.join(self._layout.store, "info", "refs"))
        packed = os.path.join(self._layout.store, "packed-refs")
        if KEEPER_REF.encode() in (disk.read_if_there(packed) or b"") and os.path.exists(self._layout.ref):
            disk.remove_file(packed)

    def _is_as_it_was(self, row: PackRow) -> bool:
        """Tell whether a pack has files of the right sizes, and no power cut can have spoilt them."""
        has_files = self._objects.pack_set.has_files(
            row.name, pack_size=row.pack_size, index_size=row.index_size
        )
        return has_files and (row.number in self._known or row.boot == self._boot != "")

    def _make_whole(self, row: PackRow) -> bool:
        """Write the files of a journaled pack if they are not just what its row holds; tell whether."""
        content = self._journal.packs.read(row)
        if content is None or is_written(self._layout.packs, content):
            return False
        write_pack(self._layout.packs, content)
        return True

    # Merging

    def tidy(self, *, has_idle_time: bool) -> None:
        """Put fresh packs together once there are some, and on shelves what is worth it: a moment's work.

        Shelves are left to idle time, if there is some. A failure is no failure of the snapshot, which is
        recorded by now.
        """
        if not self._has_news:
            return
        self._has_news = False
        try:
            self._tidy_if_due(has_idle_time=has_idle_time)
        except ShadowError:
            self._has_failed = True
            self._objects.refresh()

    def _tidy_if_due(self, *, has_idle_time: bool) -> None:
        waiting = self._journal.packs.count()
        if waiting < self._limits.many and not self._has_large_news:
            return
        fresh, shelved = self._weigh_packs()
        largest = max((pack.size for pack in fresh), default=0)
        has_large = largest > max(self._limits.large_bytes, shelved // _MUCH)
        # In a store that is too large for it, where everything is would take long to find out.
        has_to_shelve = shelved <= self._limits.most_bytes_at_once and (
            has_large or (waiting >= self._limits.many and not has_idle_time)
        )
        if has_to_shelve:
            shelving = self._make_shelving()
            shelving.shelve_due(
                largest=_LARGEST_AT_ONCE, most=self._limits.most_objects_at_once, at_once=_WEIGHT_AT_ONCE
            )
            self._finish_removal(shelving.merge())
        elif waiting >= self._limits.very_many:
            self._finish_removal(self._objects.pack_set.merge(fresh, self._release))

    def _weigh_packs(self) -> tuple[list[Pack], int]:
        """List the fresh packs, and tell how many bytes all others have."""
        names = set(self._journal.packs.fresh())
        fresh = [pack for pack in self._objects.packs() if pack.name in names]
        return fresh, sum(pack.size for pack in self._objects.packs() if pack.name not in names)

    def shelve_some(self) -> bool:
        """Put some of what is fresh on a shelf, if that is worth it in idle time; True if there is more."""
        limits = self._limits
        fresh, shelved = self._weigh_packs()
        if sum(pack.size for pack in fresh) <= max(limits.idle_bytes, shelved // limits.idle_part):
            return False
        shelving = self._make_shelving()
        has_more = shelving.step(limits.most_bytes_at_once, limits.most_objects_at_once)
        self._finish_removal(shelving.merged)
        return has_more

    def shelve(
        self, marking: Marking, *, is_thorough: bool, is_brief: bool, is_over: Callable[[], bool]
    ) -> bool:
        """Write a shelf anew with nothing but what is live, and more until it `is_over`; True: there is more.

        Unless it `is_thorough`, a shelf of which nearly all is live stays as it is. All packs become shelves,
        those of git too, and so do loose objects; but if it `is_brief`, what is too little for a shelf stays
        fresh.
        """
        self._remove_lists()
        if self._take_loose(marking.live):
            return True
        while True:
            try:
                shelving = self._make_shelving(marking, spares=not is_thorough, leaves=is_brief)
                has_more = shelving.step(is_over=is_over)
                break
            except NoShelf as error:
                if error.pack in self._foreign:
                    raise
                self._foreign.add(error.pack)
        self._finish_removal(shelving.merged)
        return has_more

    def require_shelvable(self, marking: Marking, *, is_brief: bool) -> int:
        """Raise StoreDamaged if `shelve` could not be done; give how many bytes it may take for a while."""
        loose = marking.live.intersection(self._objects.loose.ids())
        lost = next((id for id in loose if not self._objects.prove(id)), None)
        if lost is not None:
            raise StoreDamaged(f"object {lost.hex()} is damaged")
        shelving = self._make_shelving(marking, spares=True, leaves=is_brief)
        return shelving.require_whole() + sum(map(self._objects.stored_size, loose))

    def _make_shelving(
        self, marking: Marking | None = None, *, spares: bool = False, leaves: bool = False
    ) -> Shelving:
        before, foreign = {}, set()
        if marking is not None:
            before = marking.before
            # Those of git are told by their modes, which a copy of the store may have lost.
            foreign = self._foreign.union(pack.name for pack in self._objects.packs() if not pack.is_ours)
        return Shelving(
            self._objects,
            self._journal.packs.fresh(),
            {**before, **self._journal.packs.versions()},
            self._release,
            live=None if marking is None else marking.live,
            spares=spares,
            leaves=leaves,
            foreign=list(foreign),
            limits=self._limits,
        )

    def _take_loose(self, live: set[bytes]) -> bool:
        """Put loose objects that are live into a pack, and remove them all; tell whether there were any."""
        loose = self._objects.loose.ids()
        if not loose:
            return False
        pack = self._objects.start_pack()
        for id in loose:
            if id in live:
                kind, content = self._objects.read_any(id)
                pack.add(kind, id, len(content), deflate(content))
        self.publish(pack)
        with self.recording(None):
            pass
        self._objects.remove_loose(loose)
        return True

    def _finish_removal(self, merged: str | None = None) -> None:
        """Forget the rows of packs that were removed, or were `merged` into another one."""
        removed, self._removed = self._removed, []
        if removed:
            # Not before they are gone for good: torn files without a row would be damage to real git.
            disk.sync_names(self._layout.packs)
            held = {id for pack in self._objects.packs() if pack.name == merged for id in pack.ids()}
            self._journal.packs.remove(removed, merged, held)

    def _release(self, names: Sequence[str]) -> None:
        """Let the ref keep what journaled packs kept so far, now that it is durable elsewhere."""
        journaled = {row.name for row in self._journal.packs.rows()}
        last = self._journal.last_tree()
        if journaled.intersection(names) and last is not None:
            self._keep(last.keeper)
        # To real git a list of packs that names one that is gone is damage.
        self._remove_lists()
        self._removed += names

    # The ref

    def _mend_ref(self) -> None:
        """Let the ref end where the journal says: before what it may lead to is removed."""
        last = self._journal.last_tree()
        if last is not None and disk.read_if_there(self._layout.ref) != _ref_text(last.keeper):
            self._keep(last.keeper)

    def _require_records(self) -> None:
        """Raise StoreDamaged if the ref leads to recorded trees of which the journal knows nothing.

        It alone shows that: when it is put back, nobody can tell any more.
        """
        last = self._journal.last_tree()
        if last is not None and disk.read_if_there(self._layout.ref) == _ref_text(last.keeper):
            return
        # The ref moves before the record of a large pack, whose name is announced until then.
        if self._journal.packs.announced():
            return
        from shadowtree.store.keeper_ref import find_beyond, read_ref, tell_beyond

        self._objects.refresh()
        known = {record.keeper: record.time_s for record in self._journal.all_trees()}
        beyond = find_beyond(
            self._objects, read_ref(self._layout), known, None if last is None else last.keeper
        )
        if beyond:
            raise StoreDamaged(f"{KEEPER_REF} leads to {tell_beyond(beyond)}")

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
