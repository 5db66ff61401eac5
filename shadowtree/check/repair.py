"""Repair what a check found, as far as hashes, checksums or the timeline prove what was there.

Whatever is changed or removed is kept in quarantine, except leftovers and the cache. Whatever is whole is
never touched, so no message can be worse off. `Repair` needs the store's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from time import gmtime, strftime

from shadowtree.base.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.frozen import replace
from shadowtree.base.paths import RelPath
from shadowtree.check.check import Check, Subject, check_once, find_hurt
from shadowtree.check.objects import PackFault, list_packs, open_pack, rebuild_index
from shadowtree.check.timeline import OF_SQLITE, TimelineRows, rewrite_timeline
from shadowtree.results.reports import CheckReport
from shadowtree.store.directory import HEAD_REF, begin_ref, mend, proves_to_belong
from shadowtree.store.files import QUARANTINE, find_lone_indexes
from shadowtree.store.git_format import (
    PackBytes,
    deflate,
    object_id,
)
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import PackWriter, keep_again, name_pack, write_pack
from shadowtree.store.refs import PACKED_REFS, read_packed_refs
from shadowtree.system import disk
from shadowtree.system.files import Cursor, TooLong, Unreadable, Vanished, read_file, read_link
from shadowtree.timeline.journal import Journal

_OF_A_PACK = (".pack", ".idx", ".rev", ".bitmap", ".mtimes", ".keep")
_ROWS = "journaled"
"""The directory in quarantine for packs that the timeline held."""
_LARGEST = 64 << 20
"""A larger file of the worktree is not compared with lost content: it would be read whole."""


def repair_store(
    subject: Subject,
    now_ns: int,
    record: Callable[[], object] | None,
    forget: Callable[[set[int], set[int], set[int]], list[str]] | None,
    done_before: Sequence[str] = (),
) -> CheckReport:
    """Repair what a full check finds, heal from the worktree by `record`, `forget` the rest, and check again.

    Both functions are passed in, because this package knows neither how to record nor how to forget. Without
    `record`, only report what a repair would do.
    """
    if record is None:
        return foresee_repair(subject, now_ns)
    with subject.held(), closing(Check(subject)) as found:
        found.run(read_data=True)
        repair = Repair(found, now_ns)
        repair.run()
    done = repair.done
    if repair.has_to_heal:
        done += _heal(subject, now_ns, record)
    if forget is not None:
        done += forget(*find_hurt(subject))
    with subject.held():
        report = check_once(subject, read_data=True)
    return replace(report, repaired=[*done_before, *done], quarantine=repair.quarantine)


def foresee_repair(subject: Subject, now_ns: int) -> CheckReport:
    """Report what a repair would do, and change nothing."""
    with ExitStack() as stack:
        # If file modes prevent taking the lock, the report is about that.
        with suppress(StoreFailed):
            stack.enter_context(subject.held())
        found = stack.enter_context(closing(Check(subject)))
        report = found.run(read_data=True)
        repair = Repair(found, now_ns, dry_run=True)
        repair.run()
    return replace(report, repaired=repair.done, dry_run=True)


def _heal(subject: Subject, now_ns: int, record: Callable[[], object]) -> list[str]:
    """Store again what the worktree still has: covered files, and lost content of other files."""
    try:
        record()
        done = ["content that is still in the worktree stored again"]
    except ShadowError as error:
        done = [f"not done: content stored again from the worktree: {error}"]
    with subject.held(), closing(Check(subject)) as found:
        found.run()
        repair = Repair(found, now_ns)
        repair.heal_from_worktree()
    return done + repair.done


class Repair:
    """One repair of a store, after a check that read everything."""

    def __init__(self, check: Check, now_ns: int, *, dry_run: bool = False) -> None:
        self._check = check
        self._layout = check.layout
        self._worktree = check.worktree
        self._dry_run = dry_run
        name = strftime("%Y%m%dT%H%M%S", gmtime(now_ns // 10**9)) + f".{now_ns // 10**6 % 1000:03}Z"
        self._quarantine = os.path.join(self._layout.store, QUARANTINE, name)
        self.done: list[str] = []
        """What was done, or would be, one sentence each."""

    @property
    def quarantine(self) -> str | None:
        """The directory with what was changed, as it was before; None if nothing had to be kept."""
        return self._quarantine if os.path.isdir(self._quarantine) else None

    @property
    def has_to_heal(self) -> bool:
        """Whether something is lost that may still be in the worktree."""
        return bool(self._check.reach.lost or self._check.pack_faults)

    def run(self) -> None:
        """Repair what can be repaired, from the ground up."""
        self._mend_permissions()
        self._mend_small_files()
        timeline = self._check.timeline
        if timeline is not None and timeline.is_file_damaged:
            said = "timeline rewritten with all its rows"
            self._do(said, self._rewrite_timeline, timeline)
        self._mend_packs()
        self._mend_rows()
        for id in self._check.named("loose"):
            name = f"objects/{id[:2]}/{id[2:]}"
            self._do(f"damaged {name} moved to quarantine", self._take_away, name)
        self._mend_refs()
        for name in self._check.named("keep"):
            if name in list_packs(self._layout.packs):
                self._do(f"{name}.keep restored", keep_again, self._layout.packs, [name])
        self._clear_away()

    def heal_from_worktree(self) -> None:
        """Store lost content again if a file still has it at the path where a hurt tree had it.

        A snapshot stores whatever is covered today; this is for files that no longer are.
        """
        timeline, reach = self._check.timeline, self._check.reach
        if timeline is None or not reach.lost:
            return
        paths: dict[RelPath, set[bytes]] = {}
        for record in timeline.live_trees:
            for path, id in reach.list_paths(record.tree):
                paths.setdefault(path, set()).add(id)
        found: dict[bytes, bytes] = {}
        with Cursor(self._worktree) as cursor:
            for path, wanted in sorted(paths.items()):
                content = _read_path(cursor, path)
                if content is not None and object_id(b"blob", content) in wanted:
                    found[object_id(b"blob", content)] = content
        if found:
            objects = "object" if len(found) == 1 else "objects"
            said = f"{len(found)} lost {objects} stored again from the worktree"
            self._do(said, self._store, [(b"blob", content) for content in found.values()])

    # Files

    def _mend_permissions(self) -> None:
        for file in self._check.files:
            if file.is_plain and not file.is_private and not file.is_of_others:
                path = os.path.join(self._layout.store, file.name)
                said = f"mode of {file.name or 'the store'} set to {file.wanted_mode:o}"
                self._do(said, disk.set_mode, path, file.wanted_mode)

    def _mend_small_files(self) -> None:
        if not proves_to_belong(self._layout.store, self._worktree):
            return
        for file in self._check.named("identity", "config", "head", "directory"):
            self._do(f"{file} rebuilt", self._mend_small, file)

    def _mend_small(self, file: str) -> None:
        self._keep(file)
        mend(self._layout.store, file, self._worktree)

    def _clear_away(self) -> None:
        """Clear away leftovers, damaged files that git can make again, and a cache that may be wrong."""
        timeline = self._check.timeline
        knows_rows = timeline is not None and not timeline.faults
        for name in self._check.leftovers:
            if knows_rows:
                self._do(f"{name} removed", disk.remove_file, os.path.join(self._layout.store, name))
            else:
                # A row that cannot be read may name it.
                self._do(f"{name} moved to quarantine", self._take_away, name)
        # Check again: a pack that was just written may have the name that a killed repair left an index for.
        for file in find_lone_indexes(self._layout.store, self._check.files):
            self._do(f"{file.name} removed", disk.remove_file, os.path.join(self._layout.store, file.name))
        for name in self._check.named("derived"):
            self._do(f"{name} moved to quarantine", self._take_away, name)
        if self._check.named("cache") or self.has_to_heal:
            self._do("cache removed", self._drop_cache)

    def _drop_cache(self) -> None:
        for suffix in OF_SQLITE:
            disk.remove_file(self._layout.cache + suffix)

    # Timeline

    def _rewrite_timeline(self, timeline: TimelineRows) -> None:
        # The log is part of the timeline, and is removed when no process has it open any more.
        for suffix in OF_SQLITE:
            self._keep("timeline.db" + suffix)
        timeline.close()
        rewrite_timeline(self._layout.timeline)

    def _mend_rows(self) -> None:
        """Move damaged rows of journaled packs to quarantine; the packs' files were repaired before."""
        rows = self._check.bad_rows
        if rows:
            copies = "copy of a pack" if len(rows) == 1 else "copies of packs"
            said = f"{len(rows)} damaged {copies} moved from the timeline to quarantine"
            self._do(said, self._replace_rows, rows)

    def _replace_rows(self, rows: list[PackBytes]) -> None:
        """Make whatever is whole in damaged rows durable elsewhere, and only then drop the rows."""
        objects, packs = self._check.objects, self._layout.packs
        missing = [row.name for row in rows if not os.path.exists(os.path.join(packs, row.name + ".pack"))]
        for row in rows:
            for suffix, content in ((".pack", row.pack), (".idx", row.index)):
                disk.write_file(self._place_for(f"{_ROWS}/{row.name}{suffix}"), content)
                if os.path.exists(path := os.path.join(packs, row.name + suffix)):
                    disk.sync_file(path)
        disk.sync_names(packs)
        with self._new_pack(in_place_of=missing) as (writer, _):
            for row in rows:
                self._copy_whole(self._open_aside(row.name), writer, objects.prove)
        with closing(Journal(self._layout.timeline)) as journal:
            journal.packs.drop([row.name for row in rows])
        objects.refresh()

    def _open_aside(self, name: str) -> Pack | None:
        """Open a pack in quarantine, with a rebuilt index; None if not even its ends are there."""
        directory = os.path.join(self._quarantine, _ROWS)
        index, _ = rebuild_index(directory, name)
        try:
            return Pack.with_index(os.path.join(directory, name + ".pack"), index)
        except StoreDamaged:
            return None

    # Packs

    def _mend_packs(self) -> None:
        faults = self._check.pack_faults
        whole = {content.name: content for content in self._check.journaled if content.name in faults}
        for name in [name for name in faults if name in whole]:
            self._do(f"{name} rewritten from the timeline", self._write, whole[name])
        rest = [name for name in faults if name not in whole]
        for name in [name for name in rest if faults[name].index is not None]:
            self._do(f"index of {name} rebuilt", self._mend_index, name)
        # With a damaged index, objects look worse than they are: only faults of the pack itself count.
        unsound = [name for name in rest if faults[name].pack is not None]
        if unsound:
            said = f"sound objects of {', '.join(unsound)} repacked, and the damaged pack moved to quarantine"
            self._do(said, self._rewrite, unsound)

    def _write(self, content: PackBytes) -> None:
        for suffix in (".pack", ".idx"):
            self._keep(f"objects/pack/{content.name}{suffix}")
        write_pack(self._layout.packs, content)

    def _mend_index(self, name: str) -> None:
        index, is_complete = rebuild_index(self._layout.packs, name)
        self._keep(f"objects/pack/{name}.idx")
        disk.write_file(os.path.join(self._layout.packs, name + ".idx"), index)
        if not is_complete and self._check.pack_faults[name].pack is None:
            self._check.pack_faults[name] = PackFault(None, "lacks objects")

    def _rewrite(self, names: list[str]) -> None:
        """Copy whatever is whole in damaged packs and in no sound one; only then move them to quarantine."""
        others = [pack for pack in self._check.objects.packs() if pack.name not in names]
        with self._new_pack(in_place_of=names) as (writer, written):
            for name in names:
                pack = open_pack(self._layout.packs, name)
                self._copy_whole(pack, writer, lambda id: any(each.find(id) is not None for each in others))
        for name in names:
            for suffix in _OF_A_PACK if name not in written else ():
                self._take_away(f"objects/pack/{name}{suffix}")
        disk.sync_names(self._layout.packs)
        self._check.objects.refresh()

    def _copy_whole(
        self, pack: Pack | None, writer: PackWriter, is_elsewhere: Callable[[bytes], bool]
    ) -> None:
        if pack is None:
            return
        with closing(pack):
            for id, offset, _ in pack.entries():
                if id in writer or pack.hash_at(offset) != id or is_elsewhere(id):
                    continue
                kind, size, pieces = pack.read_at(offset)
                if kind == b"blob":
                    writer.add_stream(size, pieces, lambda _: False)
                else:
                    writer.add(kind, id, size, deflate(b"".join(pieces)))

    def _store(self, wanted: Iterable[tuple[bytes, bytes]]) -> None:
        with self._new_pack() as (writer, _):
            for kind, content in wanted:
                writer.add(kind, object_id(kind, content), len(content), deflate(content))

    @contextmanager
    def _new_pack(self, in_place_of: Collection[str] = ()) -> Iterator[tuple[PackWriter, set[str]]]:
        """Yield a pack to write to, make it durable, and drop the rows of the packs that it replaces.

        Also yields a set, to which the names of what was written are added. A pack that is damaged only at
        its ends is replaced by one of its own name; quarantine then has a copy of it.
        """
        objects, packs = self._check.objects, self._layout.packs
        objects.refresh()
        writer, written = objects.start_pack(), set[str]()
        try:
            yield writer, written
            for file in writer.complete():
                for suffix in _OF_A_PACK if file.name in in_place_of else ():
                    self._keep(f"objects/pack/{file.name}{suffix}")
                name_pack(packs, file)
                written.add(file.name)
        except BaseException:
            writer.abandon()
            raise
        disk.sync_names(packs)
        if in_place_of:
            # Without a readable timeline, there are no rows to drop.
            with suppress(ShadowError), closing(Journal(self._layout.timeline)) as journal:
                journal.packs.drop(in_place_of)

    def _mend_refs(self) -> None:
        for name in self._check.named("ref"):
            if name == HEAD_REF:
                self._do(f"{name} reset", self._begin_ref)
            elif name == os.fsdecode(PACKED_REFS):
                self._do(f"{name} rewritten with the lines that can be read", self._rewrite_packed_refs)
            else:
                self._do(f"damaged {name} moved to quarantine", self._take_away, name)

    def _begin_ref(self) -> None:
        self._keep(HEAD_REF)
        disk.make_directories(os.path.dirname(self._layout.ref))
        begin_ref(self._layout)

    def _rewrite_packed_refs(self) -> None:
        name, (packed, _) = os.fsdecode(PACKED_REFS), read_packed_refs(self._layout.store)
        self._keep(name)
        lines = [b"%b %b\n" % (id.hex().encode(), ref) for ref, id in sorted(packed.items())]
        disk.write_file(os.path.join(self._layout.store, name), b"".join(lines))

    # Quarantine

    def _do(self, said: str, act: Callable[..., object], *args: object) -> None:
        """Do one thing, or in a dry run only report it; if it fails, the rest still runs."""
        try:
            if not self._dry_run:
                act(*args)
            self.done.append(said)
        except ShadowError as error:
            self.done.append(f"not done: {said}: {error}")

    def _keep(self, name: str) -> None:
        """Copy a file of the store into quarantine, durably, before it is changed."""
        path = os.path.join(self._layout.store, name)
        if os.path.lexists(path):
            disk.copy_file(path, self._place_for(name))

    def _take_away(self, name: str) -> None:
        """Move a file of the store into quarantine."""
        path = os.path.join(self._layout.store, name)
        if os.path.lexists(path):
            place = self._place_for(name)
            disk.rename(path, place)
            disk.sync_names(os.path.dirname(place))

    def _place_for(self, name: str) -> str:
        place = os.path.join(self._quarantine, name)
        disk.make_directories(os.path.dirname(place))
        return place


def _read_path(cursor: Cursor, path: RelPath) -> bytes | None:
    """Read a file, or the target of a link; None if neither is there."""
    above, _, name = path.rpartition(b"/")
    try:
        return read_file(cursor.enter(RelPath(above)), name, _LARGEST)[1]
    except (Vanished, Unreadable, TooLong):
        pass
    try:
        return read_link(cursor.enter(RelPath(above)), name)[1]
    except (Vanished, Unreadable):
        return None
