"""The packs of one store as a process knows them, which of them has an object, and merging the small ones.

Most have files. A small one is held in memory until its record counts, and one whose files are missing or not
whole is recalled from the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.git_format import INDEX_SUFFIX, KEEP_SUFFIX, PACK_SUFFIX, PackBytes
from shadowtree.store.pack_writer import PackWriter, remove_pack, write_pack
from shadowtree.store.packs import DeltaBases, Pack, PackStamp, stamp_of
from shadowtree.system import disk
from shadowtree.system.disk import TEMPORARY_PREFIX

_SUFFIXES = (PACK_SUFFIX, INDEX_SUFFIX)
_ALWAYS_MERGED = 1 << 20
LARGEST_MERGED = 16 << 20
"""Fresh packs of so many bytes are always merged, and larger ones never."""

Release = Callable[[Sequence[str]], None]
"""Called with the names of packs that are about to go, when all that is in them is durable elsewhere."""


class PackSet:
    """The packs of a store. Reading needs no lock; writing and removing needs the store's."""

    def __init__(
        self, directory: str, journaled: Callable[[], Iterable[PackBytes]], on_loss: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._journaled = journaled
        """Reads the packs that the journal holds, for when their files are not there or not whole."""
        self._on_loss = on_loss
        """Called when a pack is gone that something may have been read from."""
        self._packs: dict[str, Pack] = {}
        """Packs that have files, by the names of their indexes."""
        self._stamps: dict[str, PackStamp] = {}
        """Of packs and indexes, by name, as they were when somebody last looked."""
        self._held: dict[str, tuple[Pack, PackBytes]] = {}
        """Packs that have no files yet."""
        self._recalled: dict[str, Pack] = {}
        """Packs that were read from the journal, because an object was not whole anywhere else."""
        self._tables: list[Container[bytes]] | None = None
        """What is in each of the small packs; None: not collected yet."""
        self._large: list[Pack] = []
        """The packs that are not among those."""
        self._bases = DeltaBases()
        self._likely: Pack | None = None
        """The pack that had the last object that was asked for."""

    def close(self) -> None:
        """Let go of every file."""
        for pack in self._packs.values():
            pack.close()
        self._packs = {}
        self._held = {}
        self._recalled = {}
        self._tables = None

    def refresh(self) -> bool:
        """Look for packs that came or went; tell whether any came."""
        with disk.store_errors(self._directory):
            self._stamps = stamps = _stamp_files(self._directory)
        for name, pack in list(self._packs.items()):
            if stamps.get(name) != pack.stamp:
                self._packs.pop(name).close()
                self._lose()
        fresh = [name for name in stamps if name not in self._packs and _is_index(name)]
        opened = [self._open(name) for name in sorted(fresh, key=stamps.__getitem__)]
        return any(opened)

    def _lose(self) -> None:
        self._tables = None
        self._bases.clear()
        self._on_loss()

    def _open(self, name: str) -> bool:
        try:
            pack = Pack(os.path.join(self._directory, name), bases=self._bases)
        except (StoreDamaged, StoreFailed):
            # A damaged index hides its objects: whoever needs one of them is told that it is missing.
            return False
        self._note_table(pack)
        self._packs[name] = pack
        return True

    # Reading

    def packs(self) -> list[Pack]:
        """Give every pack that has files, the oldest first, as `refresh` found them."""
        return list(self._packs.values())

    def all_packs(self) -> Iterator[Pack]:
        """Give every pack, the newest first."""
        yield from self._recalled.values()
        for pack, _ in self._held.values():
            yield pack
        yield from reversed(self._packs.values())

    def find(self, wanted: bytes) -> Iterator[tuple[Pack, int]]:
        """Give every pack that has an object, and where it is in there.

        Who walks trees finds most of them in one pack: the one that had the last object is asked first.
        """
        packs = list(self.all_packs())
        if self._likely in packs:
            packs.remove(self._likely)
            packs.insert(0, self._likely)
        for pack in packs:
            offset = pack.find(wanted)
            if offset is not None:
                self._likely = pack
                yield pack, offset

    def recall(self, wanted: bytes) -> bool:
        """Let `find` give the packs of the journal that have an object; tell whether there are any."""
        is_found = False
        for content in self._journaled():
            pack = Pack(self._path_of(content.name), content, self._bases)
            if content.name not in self._recalled and pack.find(wanted) is not None:
                self._note_table(pack)
                self._recalled[content.name] = pack
                is_found = True
        return is_found

    def lists(self, wanted: bytes) -> bool:
        """Tell whether the index of a pack names an object, as the last look tells; False is certain.

        Nearly every object that a snapshot asks for is new, and there are always many small packs: their
        tables are asked one by one, which is quick. One table for all of them would have to be made anew
        whenever a pack goes.
        """
        if self._tables is None:
            packs = list(self.all_packs())
            self._large = [pack for pack in packs if not pack.is_small]
            self._tables = [pack.rows for pack in packs if pack.is_small]
        for table in self._tables:
            if wanted in table:
                return True
        for pack in self._large:  # noqa: SIM110 - `any` would make a generator for each of many misses
            if pack.find(wanted) is not None:
                return True
        return False

    def _note_table(self, pack: Pack) -> None:
        """Let a pack that comes be asked too, before it does: Ctrl-C in between does no harm then."""
        if self._tables is None:
            return
        if pack.is_small:
            self._tables.append(pack.rows)
        else:
            self._large.append(pack)

    def lists_beside(self, wanted: bytes, left_out: Collection[str]) -> bool:
        """Tell whether the index of a pack that has files names an object, some packs left out."""
        return any(
            name.removesuffix(INDEX_SUFFIX) not in left_out and pack.find(wanted) is not None
            for name, pack in self._packs.items()
        )

    def stamps(self) -> dict[str, PackStamp]:
        """Give the stamps of packs and indexes by name, as `refresh` found them or this process made them."""
        return dict(self._stamps)

    def total_bytes(self) -> int:
        """Tell how many bytes the files of packs and indexes have."""
        return sum(size for _, size, _ in self._stamps.values())

    def has_files(self, name: str, *, pack_size: int, index_size: int) -> bool:
        """Tell whether a pack has files of just these sizes, as far as the last look tells."""
        wanted = {name + PACK_SUFFIX: pack_size, name + INDEX_SUFFIX: index_size}
        return all(self._stamps.get(file, (0, -1, 0))[1] == size for file, size in wanted.items())

    # Writing

    def add(self, name: str) -> None:
        """Take up a pack that this process gave its files just now."""
        self._open(name + INDEX_SUFFIX)
        self._stamp(name)

    def hold(self, content: PackBytes) -> None:
        """Let this process read a pack that has no files."""
        pack = Pack(self._path_of(content.name), content, self._bases)
        self._note_table(pack)
        self._held[content.name] = pack, content

    def write_held(self) -> None:
        """Give every held pack its files, for others to see; it must be in the journal by now."""
        for name, (pack, content) in list(self._held.items()):
            write_pack(self._directory, content)
            self._stamp(name)
            pack.let_go(self._stamps[name + INDEX_SUFFIX])
            self._packs[name + INDEX_SUFFIX] = pack
            del self._held[name]

    def drop_held(self) -> None:
        """Forget the packs that have no files, and those that were recalled."""
        if self._held or self._recalled:
            self._held, self._recalled = {}, {}
            self._lose()

    def merge(self, fresh: Iterable[Pack], release: Release, shelved: Set[bytes] = frozenset()) -> str | None:
        """Put small fresh packs together, without what is `shelved`; give the name of what is left."""
        taken = choose_to_merge(fresh)
        if len(taken) < 2 and shelved.isdisjoint(id for pack in taken for id in pack.ids()):
            return None
        merged = merge_packs(taken, PackWriter(self._directory), release, shelved)
        self.refresh()
        return merged

    def remove_temporaries(self) -> None:
        """Remove what dead processes left behind. Only for the holder of the lock.

        An index without its pack is theirs too: they were about to add the pack, or had removed it. And so is
        what kept a pack from `git gc` until it was recorded.
        """
        with disk.store_errors(self._directory):
            names = set(os.listdir(self._directory))
        for name in names:
            is_alone = _is_index(name) and name.removesuffix(INDEX_SUFFIX) + PACK_SUFFIX not in names
            if is_alone or name.endswith(KEEP_SUFFIX) or name.startswith(TEMPORARY_PREFIX):
                disk.remove_file(os.path.join(self._directory, name))

    def _stamp(self, name: str) -> None:
        for file in (name + INDEX_SUFFIX, name + PACK_SUFFIX):
            path = os.path.join(self._directory, file)
            with disk.store_errors(path):
                self._stamps[file] = stamp_of(os.stat(path))

    def _path_of(self, pack: str) -> str:
        return os.path.join(self._directory, pack + INDEX_SUFFIX)


def _stamp_files(directory: str) -> dict[str, PackStamp]:
    """Give the stamps of packs and indexes; one that another process removes meanwhile is passed over."""
    stamps = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith("pack-") and name.endswith(_SUFFIXES):
                try:
                    stamps[name] = stamp_of(entry.stat())
                except FileNotFoundError:
                    continue
    return stamps


def _is_index(name: str) -> bool:
    return name.startswith("pack-") and name.endswith(INDEX_SUFFIX)


def choose_to_merge(fresh: Iterable[Pack]) -> list[Pack]:
    """Choose the fresh packs that are put together: small ones, and larger ones if those add up to as much.

    So an object is copied a number of times that grows with the logarithm of the store.
    """
    taken: list[Pack] = []
    total = 0
    for pack in sorted(fresh, key=lambda pack: pack.size):
        if pack.size > min(max(_ALWAYS_MERGED, total), LARGEST_MERGED):
            break
        taken.append(pack)
        total += pack.size
    return taken


def merge_packs(
    packs: Sequence[Pack],
    into: PackWriter,
    release: Release | None = None,
    shelved: Container[bytes] = frozenset(),
) -> str | None:
    """Copy packs into one and remove them once it is durable; give its name, if anything is in it.

    Entries are copied as they are: nothing is inflated. A pack with damage or deltas is left alone. What is
    `shelved` is durable elsewhere, and left out.
    """
    merged: list[Pack] = []
    try:
        for pack in packs:
            try:
                entries = list(pack.raw_entries())
            except (StoreDamaged, StoreFailed):
                continue
            for object_id, raw in entries:
                if object_id not in shelved:
                    into.copy_entry(object_id, raw)
            merged.append(pack)
        made = [os.path.basename(path) for path in into.finish()]
    except BaseException:
        into.abandon()
        raise
    remove_packs(merged, made, release)
    return made[0] if made else None


def remove_packs(packs: Sequence[Pack], made: Container[str], release: Release | None) -> None:
    """Remove packs, but those that were `made` just now."""
    # What was killed may have left all these objects in one pack already: the same one again.
    gone = [pack for pack in packs if pack.name not in made]
    if release is not None:
        release([pack.name for pack in gone])
    for pack in gone:
        remove_pack(os.path.dirname(pack.path), pack.name)
