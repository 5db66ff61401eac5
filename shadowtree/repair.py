"""Makes good what a check found, as far as it can be proved: by hashes, by the timeline, by checksums.

Whatever is changed or taken away is in quarantine first, as it was. What is whole is never touched, so that
no message can be worse off. Only for the holder of the store's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from functools import partial

from shadowtree import disk
from shadowtree.chain import tell_beyond
from shadowtree.check import Check
from shadowtree.copies import PackFault, is_whole, rebuild_index
from shadowtree.deflate import deflate
from shadowtree.errors import ShadowError, StoreDamaged, StoreFailed
from shadowtree.gitformat import PackBytes, object_id
from shadowtree.inventory import QUARANTINE, find_lone_indexes
from shadowtree.journal import Journal
from shadowtree.layout import KEEPER_REF, StoreLayout
from shadowtree.packs import Pack
from shadowtree.packwriter import PackWriter, write_pack
from shadowtree.paths import RelPath
from shadowtree.remaking import find_chain, find_in_worktree, remake_keepers, remake_trees
from shadowtree.salvage import rewrite_timeline
from shadowtree.store import mend, proves_to_belong

_OF_A_PACK = (".pack", ".idx", ".rev", ".bitmap", ".mtimes", ".keep")
_ROWS = "journaled"
"""Where in quarantine packs are that the timeline held."""
_OF_SQLITE = ("", "-wal", "-shm", "-journal")


class Repair:
    """One repair of a store, after a check that read everything."""

    def __init__(self, check: Check, layout: StoreLayout, worktree: str, *, name: str, dry_run: bool) -> None:
        self._check = check
        self._layout = layout
        self._worktree = worktree
        self._dry_run = dry_run
        self._quarantine = os.path.join(layout.store, QUARANTINE, name)
        self.done: list[str] = []
        """What was done, or would be, a sentence each."""

    @property
    def quarantine(self) -> str | None:
        """Where what was changed is, as it was before; None: nothing had to be kept."""
        return self._quarantine if os.path.isdir(self._quarantine) else None

    @property
    def has_to_heal(self) -> bool:
        """Whether something is lost that may still be in the worktree."""
        return bool(self._check.reach.lost or self._check.pack_faults or self._check.bad_copies)

    def run(self) -> None:
        """Make good what can be, from the ground up."""
        self._mend_permissions()
        self._mend_small_files()
        self._mend_timeline()
        self._mend_packs()
        self._mend_rows()
        self._drop_loose()
        self._make_keepers()
        self._mend_refs()
        self._clear_away()

    def remake(self) -> None:
        """Make lost trees and blobs again from what else is known of them, after all else was done."""
        audit, reach = self._check.audit, self._check.reach
        if audit is None or not reach.lost:
            return
        hurt = sorted(self._check.hurt_trees)
        trees = remake_trees(audit, self._check.objects, hurt, reach.lost)
        paths: dict[RelPath, set[bytes]] = {}
        for number in hurt:
            for path, id in reach.paths_of(audit.trees[number].tree, reach.lost):
                paths.setdefault(path, set()).add(id)
        blobs = dict(find_in_worktree(self._worktree, paths))
        wanted = [(b"tree", content) for content in trees.values()]
        wanted += [(b"blob", content) for content in blobs.values()]
        if wanted:
            objects = "object was" if len(wanted) == 1 else "objects were"
            self._do(f"{len(wanted)} lost {objects} made anew", partial(self._store, wanted))

    # Files

    def _mend_permissions(self) -> None:
        for file in self._check.files:
            if file.is_plain and not file.is_private and not file.is_of_others:
                path = os.path.join(self._layout.store, file.name)
                said = f"{file.name or 'the store'} has mode {file.wanted_mode:o} again"
                self._do(said, partial(disk.set_mode, path, file.wanted_mode))

    def _mend_small_files(self) -> None:
        if not proves_to_belong(self._layout.store, self._worktree):
            return
        noted = ["config"] if self._check.has_other_notes else []
        for file in [*self._check.small_faults, *noted]:
            self._do(f"{file} was made anew", partial(self._mend_small, file))

    def _mend_small(self, file: str) -> None:
        self._keep(file)
        mend(self._layout.store, file, self._worktree)

    def _clear_away(self) -> None:
        """Remove what dead processes left, and what git can make again or nobody needs."""
        files = self._check.files
        unwanted = [file.name for file in files if file.is_temporary]
        unwanted += [file.name for file in find_lone_indexes(files)]
        for name in unwanted:
            path = os.path.join(self._layout.store, name)
            self._do(f"{name} was removed", partial(disk.remove_file, path))
        for problem in self._check.harmless:
            if problem.kind == "derived":
                self._do(f"{problem.what} is in quarantine", partial(self._take_away, problem.what))
        if self._check.is_cache_bad or self.has_to_heal:
            self._do("the cache was thrown away", self._drop_cache)

    def _drop_cache(self) -> None:
        for suffix in _OF_SQLITE:
            disk.remove_file(self._layout.cache + suffix)

    # Timeline

    def _mend_timeline(self) -> None:
        audit = self._check.audit
        if audit is not None and (audit.is_file_damaged or audit.has_damaged_rows):
            self._do("the timeline was written anew, with all its rows", self._rewrite_timeline)

    def _rewrite_timeline(self) -> None:
        audit = self._check.audit
        assert audit is not None
        # The log of the file belongs to it, and goes when nobody has it open any more.
        for suffix in _OF_SQLITE:
            self._keep("timeline.db" + suffix)
        audit.close()
        rewrite_timeline(self._layout.timeline)

    def _mend_rows(self) -> None:
        """Put journaled packs aside whose rows are damaged; their files were mended before."""
        number = len(self._check.bad_rows)
        if number:
            copies = "copy of a pack" if number == 1 else "copies of packs"
            said = f"{number} damaged {copies} went from the timeline into quarantine"
            self._do(said, self._replace_rows)

    def _replace_rows(self) -> None:
        """Let what is whole in damaged rows be durable elsewhere, and forget them then."""
        rows, objects = self._check.bad_rows, self._check.objects
        for row in rows:
            self._put_aside(row)
            self._sync_pack(row.name)
        disk.sync_names(self._layout.packs)
        objects.refresh()
        writer = objects.start_pack()
        try:
            for row in rows:
                self._copy_aside(row.name, writer)
            self._publish(writer, [row.name for row in rows if not self._has_files(row.name)])
        except BaseException:
            writer.abandon()
            raise
        with closing(Journal(self._layout.timeline)) as journal:
            journal.drop_pack_copies([row.name for row in rows])
        objects.refresh()

    def _put_aside(self, row: PackBytes) -> None:
        for suffix, content in ((".pack", row.pack), (".idx", row.index)):
            disk.write_file(self._place_for(f"{_ROWS}/{row.name}{suffix}"), content)

    def _copy_aside(self, name: str, writer: PackWriter) -> None:
        """Copy what is whole in a pack that was put aside, whatever its index says, and is nowhere else."""
        objects, directory = self._check.objects, os.path.join(self._quarantine, _ROWS)
        index, _ = rebuild_index(objects, directory, name)
        try:
            pack = Pack.with_index(os.path.join(directory, name + ".idx"), index)
        except StoreDamaged:
            # Not even its ends are there.
            return
        with closing(pack):
            self._copy_whole(pack, writer, objects.prove)

    def _has_files(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._layout.packs, name + ".pack"))

    def _sync_pack(self, name: str) -> None:
        for suffix in (".pack", ".idx"):
            path = os.path.join(self._layout.packs, name + suffix)
            if os.path.exists(path):
                disk.sync_file(path)

    # Packs

    def _mend_packs(self) -> None:
        whole = {content.name: content for content in self._check.journaled}
        damaged = dict.fromkeys([*self._check.pack_faults, *self._check.bad_copies])
        for name in [name for name in damaged if name in whole]:
            self._do(f"{name} was written anew from the timeline", partial(self._write, whole[name]))
        rest = [name for name in damaged if name not in whole]
        for name in [name for name in rest if self._has_bad_index(name)]:
            self._do(f"the index of {name} was made anew", partial(self._mend_index, name))
        unsound = [name for name in rest if self._is_unsound(name)]
        if unsound:
            said = f"what is whole in {', '.join(unsound)} is in a new pack, and the old one in quarantine"
            self._do(said, partial(self._rewrite, unsound))

    def _write(self, content: PackBytes) -> None:
        for suffix in (".pack", ".idx"):
            self._keep(f"objects/pack/{content.name}{suffix}")
        write_pack(self._layout.packs, content)

    def _has_bad_index(self, name: str) -> bool:
        fault = self._check.pack_faults.get(name)
        return fault is not None and fault.index is not None

    def _mend_index(self, name: str) -> None:
        index, is_complete = rebuild_index(self._check.objects, self._layout.packs, name)
        self._keep(f"objects/pack/{name}.idx")
        disk.write_file(os.path.join(self._layout.packs, name + ".idx"), index)
        fault = self._check.pack_faults[name]
        if not is_complete and fault.pack is None:
            self._check.pack_faults[name] = PackFault(name, None, "lacks objects")

    def _is_unsound(self, name: str) -> bool:
        fault = self._check.pack_faults.get(name)
        if fault is None or fault.pack is not None:
            return True
        # Read with a damaged index, objects look worse than they are.
        return not self._has_bad_index(name) and name in self._check.bad_copies

    def _rewrite(self, names: list[str]) -> None:
        objects = self._check.objects
        objects.refresh()
        writer = objects.start_pack()
        try:
            for name in names:
                self._copy_from(name, writer, set(names))
            self._publish(writer, names)
        except BaseException:
            writer.abandon()
            raise
        for name in names:
            for suffix in _OF_A_PACK:
                self._take_away(f"objects/pack/{name}{suffix}")
        disk.sync_names(self._layout.packs)
        objects.refresh()

    def _copy_from(self, name: str, writer: PackWriter, damaged: set[str]) -> None:
        """Copy what is whole in a damaged pack and in no sound one."""
        stock = self._check.objects.stock
        try:
            pack = Pack(os.path.join(self._layout.packs, name + ".idx"))
        except (StoreDamaged, StoreFailed):
            return
        with closing(pack):
            self._copy_whole(pack, writer, lambda id: stock.lists_beside(id, damaged))

    def _copy_whole(self, pack: Pack, writer: PackWriter, is_elsewhere: Callable[[bytes], bool]) -> None:
        objects = self._check.objects
        for offset, id in pack.places():
            if id in writer or not is_whole(objects, pack, offset, id) or is_elsewhere(id):
                continue
            kind, size, pieces = objects.read_at(pack, offset)
            if kind == b"blob":
                writer.add_stream(size, pieces, lambda _: False)
            else:
                writer.add(kind, id, size, deflate(b"".join(pieces)))

    def _drop_loose(self) -> None:
        for id in self._check.bad_loose:
            name = f"objects/{id.hex()[:2]}/{id.hex()[2:]}"
            self._do(f"the damaged {name} is in quarantine", partial(self._take_away, name))

    # Keepers and refs

    def _make_keepers(self) -> None:
        """Make lost keepers again: the timeline holds all that stands in them, and the hash proves it."""
        audit, objects = self._check.audit, self._check.objects
        if audit is None or not self._check.reach.lost:
            return
        objects.refresh()
        made = remake_keepers(audit)
        # One that kept a forgotten tree is needed only where others are reached through it.
        chain = find_chain(objects, audit, made)
        pairs = [pair for keeper, content in made.items() if keeper in chain for pair in content]
        wanted = [pair for pair in pairs if not objects.prove(object_id(*pair))]
        if wanted:
            said = f"{len(wanted)} objects that keep trees from 'git gc' were made anew from the timeline"
            self._do(said, partial(self._store, wanted))

    def _store(self, wanted: Iterable[tuple[bytes, bytes]]) -> None:
        objects = self._check.objects
        objects.refresh()
        writer = objects.start_pack()
        try:
            for kind, content in wanted:
                writer.add(kind, object_id(kind, content), len(content), deflate(content))
            self._publish(writer)
        except BaseException:
            writer.abandon()
            raise

    def _publish(self, writer: PackWriter, in_place_of: Collection[str] = ()) -> None:
        """Make a pack durable, and let it be put on the shelves as any fresh one; also in place of others."""
        made: list[str] = []
        self._check.objects.publish(writer, made.append)
        # Without a timeline there is nothing to be put anywhere.
        with suppress(ShadowError), closing(Journal(self._layout.timeline)) as journal:
            journal.upgrade()
            if in_place_of:
                journal.remove_packs(in_place_of, made[0] if made else None)
            elif made:
                journal.add_fresh(made[0], [])

    def _mend_refs(self) -> None:
        if any(problem.what == "packed-refs" for problem in self._check.problems):
            self._do("packed-refs is in quarantine", partial(self._take_away, "packed-refs"))
        audit = self._check.audit
        if audit is None or not any(problem.kind == "ref" for problem in self._check.problems):
            return
        keeper, beyond = audit.last_keeper, self._check.beyond
        given_up = f"; given up are {tell_beyond(beyond)}" if beyond else ""
        if keeper is not None:
            said = f"{KEEPER_REF} ends at the last keeper again{given_up}"
            self._do(said, partial(self._write_ref, keeper))
        elif beyond:
            self._do(f"{KEEPER_REF} is in quarantine{given_up}", self._take_ref_away)

    def _take_ref_away(self) -> None:
        """Let a ref go of which the timeline knows nothing at all."""
        for name in ("packed-refs", KEEPER_REF):
            self._take_away(name)
        disk.sync_names(os.path.dirname(self._layout.ref))

    def _write_ref(self, keeper: bytes) -> None:
        for name in ("packed-refs", KEEPER_REF):
            self._keep(name)
        disk.make_directories(os.path.dirname(self._layout.ref))
        disk.write_file(self._layout.ref, keeper.hex().encode() + b"\n", beside=self._layout.config)

    # Quarantine

    def _do(self, said: str, act: Callable[[], object]) -> None:
        """Do one thing, or only say that it would be done; what fails does not keep the rest from it."""
        if self._dry_run:
            self.done.append(said)
            return
        try:
            act()
        except ShadowError as error:
            self.done.append(f"this could not be done: {said}: {error}")
        else:
            self.done.append(said)

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
