"""A store as a dulwich repository, for programs that read it or keep objects of their own in it.

By default, dulwich follows `core.worktree` into the user's files, reads the user's configuration, maps packs
into memory, checks few hashes, does not write durably, and fails on lock files that dead processes left. Here
`Objects` reads the objects: it checks them, and tries the next copy if one is damaged. Everything that is
written is durable before the call returns. Calls that could lose data are refused.

In addition to those in `dulwich_packs` and `dulwich_refs`, these private names of dulwich are used:
`_bound_read_callables`, `_put_named_file`, `_remove_pack`, `_update_pack_cache`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import BinaryIO, NoReturn

from dulwich.attrs import GitAttributes
from dulwich.config import ConfigFile, StackedConfig
from dulwich.errors import NoIndexPresent
from dulwich.object_format import SHA1
from dulwich.object_store import (
    BaseObjectStore,
    DiskObjectStore,
    GraphTraversalReachability,
    PackCapableObjectStore,
    _bound_read_callables,
)
from dulwich.objects import ObjectID, RawObjectID, ShaFile, hex_to_sha, sha_to_hex
from dulwich.pack import (
    Pack,
    PackStreamCopier,
    PackStreamReader,
    UnpackedObject,
    extend_pack,
    full_unpacked_object,
)
from dulwich.repo import Repo

from shadowtree.base.errors import InvalidInput, ShadowError, StoreDamaged, StoreFailed
from shadowtree.store.directory import StoreLayout
from shadowtree.store.dulwich_refs import Locked, ShadowRefs
from shadowtree.store.git_format import (
    EMPTY_TREE,
    KEEP_SUFFIX,
    KIND_NUMBERS,
    PACK_SUFFIX,
    PackBytes,
    deflate,
    list_tree,
    object_id,
)
from shadowtree.store.objects import Objects
from shadowtree.store.packs.dulwich_packs import Indexed, Indexer
from shadowtree.store.packs.pack import Pack as OurPack
from shadowtree.store.packs.pack_writer import (
    FROM_OUTSIDE,
    IncomingPack,
    PackFile,
    PackWriter,
    name_pack,
    remove_pack,
    remove_temporary,
)
from shadowtree.store.packs.repack import verify
from shadowtree.system import disk

_MANY = 16
"""This many small packs are joined into one: each object that is added alone makes a pack."""
_SMALL_BYTES = 1 << 20


class ShadowRepo(Repo):
    """A store as a bare repository: no working copy, index, hooks, filters or reflogs."""

    def __init__(self, store: str, locked: Locked, journaled: Callable[[], Iterable[PackBytes]]) -> None:
        self._locked = locked
        objects = ShadowObjectStore(StoreLayout(store), locked, journaled)
        super().__init__(store, objects, bare=True, controldir=store, commondir=store)
        # The configuration names the worktree for real git, and dulwich follows it.
        self.bare, self.path = True, store
        self.refs = ShadowRefs(store, locked)
        self.hooks.clear()

    def get_config(self) -> ConfigFile:
        """Read the configuration of the store, which only shadowtree writes."""
        path = StoreLayout(self.commondir()).config
        try:
            return _Config.from_path(path, expand_includes=False)
        except (OSError, ValueError) as error:
            raise StoreDamaged(f"{path} cannot be read") from error

    def get_config_stack(self) -> StackedConfig:
        """Return only the configuration of the store, without the user's and the environment's."""
        return StackedConfig([self.get_config()])

    def get_gitattributes(self, tree: bytes | None = None) -> GitAttributes:
        """Return no attributes, so that no filter ever runs."""
        del tree
        return GitAttributes()

    def index_path(self) -> str:
        """Raise NoIndexPresent: without an index dulwich checks out nothing."""
        raise NoIndexPresent

    def _put_named_file(self, path: str, contents: bytes) -> None:
        with self._locked():
            disk.write_file(os.path.join(self.controldir(), path), contents)


class _Config(ConfigFile):
    """The configuration of a store, read-only."""

    def write_to_path(self, path: str | os.PathLike[str] | None = None) -> None:
        raise InvalidInput(f"the configuration of a store cannot be changed: {path or self.path}")


# Objects


class ShadowObjectStore(DiskObjectStore):
    """The objects of a store, for dulwich. They are checked, except those that are read through `packs`."""

    def __init__(
        self, layout: StoreLayout, locked: Locked, journaled: Callable[[], Iterable[PackBytes]] = tuple
    ) -> None:
        super().__init__(layout.objects, object_format=SHA1)
        self._packs = layout.packs
        self._locked = locked
        self.objects = Objects(layout.objects, journaled=journaled)

    def close(self) -> None:
        """Close every file; later reads open them again."""
        self.objects.close()
        super().close()

    def __del__(self) -> None:
        if hasattr(self, "objects"):
            self.objects.close()

    # Reading

    def get_raw(self, name: RawObjectID | ObjectID) -> tuple[int, bytes]:
        """Read a whole object; raise KeyError if there is none, StoreDamaged if no copy of it is intact."""
        id = _as_raw(name)
        if id == EMPTY_TREE:
            return KIND_NUMBERS[b"tree"], b""
        try:
            kind, content = self.objects.read_any(id)
        except StoreDamaged:
            # An object in a pack without a readable index is unknown, not absent (invariant 7).
            if self.objects.is_listed(id) or self.objects.pack_set.hides_some():
                raise
            raise KeyError(name) from None
        return KIND_NUMBERS[kind], content

    def __contains__(self, sha: ObjectID) -> bool:
        """Return whether an intact copy of an object is here, so that a fetch replaces damaged objects."""
        id = _as_raw(sha)
        self.objects.refresh()
        return id == EMPTY_TREE or self.objects.has(id) or self.objects.can_read(id)

    def contains_packed(self, sha: ObjectID | RawObjectID) -> bool:
        """Return whether the index of a pack lists an object."""
        packs, id = self.objects.pack_set, _as_raw(sha)
        return packs.lists(id) or (self.objects.refresh() and packs.lists(id)) or packs.recall(id)

    def contains_loose(self, sha: ObjectID) -> bool:
        """Return whether an object has a file of its own."""
        self.objects.refresh()
        return self.objects.loose.has_file(_as_raw(sha))

    @property
    def packs(self) -> list[Pack]:
        """Every pack, including those that are only in rows of the timeline."""
        self.objects.refresh()
        self.objects.pack_set.recall_all()
        return [pack.reader for pack in self.objects.pack_set.all_packs()]

    def __iter__(self) -> Iterator[ObjectID]:
        ids = {id for pack in self.packs for id in pack}
        return iter(ids | {sha_to_hex(RawObjectID(id)) for id in self.objects.loose.ids()})

    iter_prefix = BaseObjectStore.iter_prefix
    iterobjects_subset = PackCapableObjectStore.iterobjects_subset

    def get_unpacked_object(self, sha1: bytes, *, include_comp: bool = False) -> UnpackedObject:
        """Return an object, neither as a delta nor deflated: dulwich writes corrupt packs from those."""
        del include_comp
        return full_unpacked_object(self[ObjectID(sha1)])

    def iter_unpacked_subset(
        self,
        shas: Iterable[ObjectID | RawObjectID],
        *,
        include_comp: bool = False,
        allow_missing: bool = False,
        convert_ofs_delta: bool = True,
    ) -> Iterator[UnpackedObject]:
        """Return objects as `get_unpacked_object` does."""
        del include_comp, convert_ofs_delta
        ids = (ObjectID(sha) for sha in shas)
        return map(full_unpacked_object, self.iterobjects_subset(ids, allow_missing=allow_missing))

    # Not used: files that git derives from packs may be outdated or damaged

    @property
    def alternates(self) -> list[BaseObjectStore]:
        """Empty: a store does not use other stores."""
        return []

    def get_midx(self) -> None:
        """Return None, for no multi-pack index."""

    def get_commit_graph(self) -> None:
        """Return None, for no commit graph."""

    def get_reachability_provider(self, prefer_bitmaps: bool = True) -> GraphTraversalReachability:
        """Return a provider that reads the objects themselves."""
        del prefer_bitmaps
        return GraphTraversalReachability(self)

    def _update_pack_cache(self) -> list[Pack]:
        """Return no packs, so that dulwich opens none itself."""
        return []

    # Writing

    def add_object(self, obj: ShaFile) -> None:
        """Write an object durably, even if it is here: that copy may be damaged, or about to be removed."""
        self.add_objects([(obj, None)])

    def add_objects(
        self, objects: Sequence[tuple[ShaFile, str | None]], progress: Callable[..., None] | None = None
    ) -> Pack | None:
        """Write objects into a pack of their own, durably."""
        del progress
        ready = [_deflate(obj) for obj, _ in objects]
        if not ready:
            return None
        with self._locked():
            writer = PackWriter(self._packs)
            try:
                for object in ready:
                    writer.add(*object)
                (file,) = writer.complete()
            except BaseException:
                writer.abandon()
                raise
            pack = self._publish(file)
            with suppress(ShadowError):  # It is written, so nothing after it may fail (invariant 11).
                self._join_small()
        return pack

    def add_pack(self) -> tuple[BinaryIO, Callable[[], None], Callable[[], None]]:
        """Return a file for a pack, a function that publishes it durably, and one that discards it."""
        file = IncomingPack(self._packs)

        def commit() -> Pack | None:
            if not file.tell():
                file.abandon()
                return None
            with file.abandoned_if_it_fails():
                file.seek(0)
                reader = PackStreamReader(SHA1.hash_func, file.read)
                indexer = Indexer(file, SHA1.hash_func, resolve_ext_ref=self.get_raw)
                for unpacked in reader.read_objects():
                    indexer.record(unpacked)
                return self.complete(file, indexer)

        return file, commit, file.abandon  # type: ignore[return-value]  # as in dulwich

    def add_thin_pack(
        self,
        read_all: Callable[[int], bytes],
        read_some: Callable[[int], bytes] | None,
        progress: Callable[..., None] | None = None,
        *,
        max_input_size: int | None = None,
    ) -> Pack:
        """Read a pack from a stream, add the delta bases that it lacks, and publish it durably."""
        if max_input_size:
            read_all, read_some = _bound_read_callables(read_all, read_some, max_input_size)
        file = IncomingPack(self._packs)
        with file.abandoned_if_it_fails():
            indexer = Indexer(file, SHA1.hash_func, resolve_ext_ref=self.get_raw)
            copier = PackStreamCopier(SHA1.hash_func, read_all, read_some, file, delta_iter=indexer)  # type: ignore[arg-type]  # as in dulwich
            copier.verify(progress)
            return self.complete(file, indexer)

    def complete(self, file: IncomingPack, indexer: Indexed) -> Pack:
        """Index the received objects by their real ids, read the pack back, and publish it durably."""
        file.flush()
        entries = [(id, offset, crc or 0) for id, offset, crc in indexer]
        checksum, bases = extend_pack(file, set(indexer.ext_refs()), self.get_raw, SHA1)
        pack = file.complete(sorted([*entries, *bases]), checksum)
        with self._locked():
            return self._publish(pack)

    def _publish(self, file: PackFile) -> Pack:
        """Move a pack to its final name, durably."""
        name_pack(self._packs, file, FROM_OUTSIDE, has_row=False)
        disk.sync_names(self._packs)
        self.objects.refresh()
        pack = next((pack for pack in self.objects.packs() if pack.name == file.name), None)
        if pack is None:
            raise StoreFailed(os.path.join(self._packs, file.name), "another process removed it")
        return pack.reader

    def _join_small(self) -> None:
        """Join the small packs that were written here into one, if they are many."""
        small = [pack for pack in self.objects.packs() if pack.size <= _SMALL_BYTES and _is_plain(pack)]
        if len(small) < _MANY:
            return
        writer = PackWriter(self._packs)
        try:
            for pack in small:
                for id, raw, crc in pack.read_all():
                    if id not in writer:
                        writer.copy_whole(id, raw, crc)
            (file,) = writer.complete()
        except BaseException:
            writer.abandon()
            raise
        self._verify(file, writer)
        self._publish(file)
        for pack in small:
            # One that has everything that the others have is the same as the joined pack.
            if pack.name != file.name:
                disk.remove_file(pack.path)
                remove_pack(self._packs, pack.name)
        self.objects.refresh()

    def _verify(self, file: PackFile, writer: PackWriter) -> None:
        """Read back a pack that replaces others; if it is not correct, remove it and raise StoreDamaged."""
        paths = (os.path.join(self._packs, name) for name in (file.temporary, file.index))
        try:
            with closing(OurPack.open(*paths)) as pack:
                verify([pack], [writer])
        except BaseException:
            remove_temporary(self._packs, file)
            raise

    # Refused

    def _refuse(self, *args: object, **named: object) -> NoReturn:
        raise InvalidInput("this could remove what messages need; use Shadow.gc instead")

    prune = repack = pack_loose_objects = delete_loose_object = _remove_pack = _refuse
    add_alternate_path = generate_pack_bitmaps = write_midx = write_commit_graph = _refuse


def _as_raw(name: bytes) -> bytes:
    return name if len(name) == 20 else hex_to_sha(ObjectID(name))


def _deflate(obj: ShaFile) -> tuple[bytes, bytes, int, bytes]:
    """Return the kind of an object, its id, its size, and its content deflated."""
    kind, content = obj.type_name, obj.as_raw_string()
    if kind == b"tree":
        list_tree(content, "to be written")
    return kind, object_id(kind, content), len(content), deflate(content)


def _is_plain(pack: OurPack) -> bool:
    """Return whether a pack was written through `Shadow.repo`, and has no deltas."""
    keep = disk.read_if_there(pack.path.removesuffix(PACK_SUFFIX) + KEEP_SUFFIX)
    return keep == FROM_OUTSIDE and not any(pack.read_head(at).base for _, at, _ in pack.entries())
