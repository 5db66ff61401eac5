"""The packs of one store as this process knows them, and which of them has an object.

Most packs have files. A pack that is not recorded yet is held, in memory or under a temporary name. A pack
whose files are missing or damaged is recalled from the timeline, which has the bytes of small packs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.git_format import INDEX_SUFFIX, KEEP_SUFFIX, PACK_SUFFIX, PackBytes
from shadowtree.store.packs.pack import Pack, PackStamp, stamp_of
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.system import disk

_SUFFIXES = (PACK_SUFFIX, INDEX_SUFFIX)


class PackSet:
    """The packs of a store. Reading needs no lock."""

    def __init__(
        self, directory: str, journaled: Callable[[], Iterable[PackBytes]], on_loss: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._journaled = journaled
        """Reads the packs that are in rows of the timeline."""
        self._on_loss = on_loss
        """Called when a pack is gone from which objects may have been read."""
        self._packs: dict[str, Pack] = {}
        """Packs that have files, by name."""
        self._kept: set[str] = set()
        """The names of packs that have a `.keep`, as of the last refresh."""
        self._stamps: dict[str, PackStamp] = {}
        """The stamps of packs and indexes, by file name, as of the last refresh."""
        self._held: dict[str, Pack] = {}
        """Packs that are not recorded yet."""
        self._recalled: dict[str, Pack] = {}
        """Packs that were read from the timeline, because an object had no intact copy elsewhere."""
        self._tables: list[Container[bytes]] | None = None
        """The ids in each small pack; None if they are not collected yet."""
        self._large: list[Pack] = []
        """The packs that are not small."""
        self._likely: Pack | None = None
        """The pack in which the last object was found."""

    def close(self) -> None:
        """Close every file."""
        for pack in self.all_packs():
            pack.close()
        self._packs, self._held, self._recalled, self._tables, self._likely = {}, {}, {}, None, None

    def refresh(self) -> bool:
        """Find packs that were added or removed; return whether any were added."""
        with disk.store_errors(self._directory):
            self._stamps, kept = _stamp_files(self._directory)
        stamps, lost = self._stamps, self._kept - kept
        self._kept = kept
        for name, pack in list(self._packs.items()):
            if (stamps.get(name + PACK_SUFFIX), stamps.get(name + INDEX_SUFFIX)) != pack.stamps:
                self._packs.pop(name).close()
                lost.add(name)
        if lost:
            self._lose()
        indexes = (file for file in stamps if file.endswith(INDEX_SUFFIX))
        fresh = [file for file in indexes if file.removesuffix(INDEX_SUFFIX) not in self._packs]
        opened = [self._open(file) for file in sorted(fresh, key=stamps.__getitem__)]
        return any(opened)

    def _lose(self) -> None:
        self._tables = self._likely = None
        self._on_loss()

    def _open(self, index: str) -> bool:
        name = index.removesuffix(INDEX_SUFFIX)
        try:
            pack = Pack.open(self.path_of(name))
        except (StoreDamaged, StoreFailed):
            # The objects in a pack with a damaged index count as missing.
            return False
        self._note_table(pack)
        self._packs[name] = pack
        return True

    # Reading

    def packs(self) -> list[Pack]:
        """Return every pack that has files, the oldest first, as `refresh` found them."""
        return list(self._packs.values())

    def all_packs(self) -> Iterator[Pack]:
        """Yield every pack, the newest first."""
        yield from self._recalled.values()
        yield from self._held.values()
        yield from reversed(self._packs.values())

    def find(self, wanted: bytes) -> Iterator[Pack]:
        """Yield every pack that has an object.

        The pack that had the last object is tried first, because a walk finds most objects in one pack.
        """
        likely = self._likely
        if likely is not None and likely.find(wanted) is not None:
            yield likely
        for pack in list(self.all_packs()):
            if pack is not likely and pack.find(wanted) is not None:
                self._likely = pack
                yield pack

    def recall(self, wanted: bytes) -> bool:
        """Add the packs of the timeline that have an object; return whether any were added."""
        is_found = False
        for content in self._journaled():
            pack = Pack.in_memory(self.path_of(content.name), content)
            if content.name not in self._recalled and pack.find(wanted) is not None:
                self._recall(content.name, pack)
                is_found = True
        return is_found

    def recall_all(self) -> None:
        """Add every pack of the timeline that has no files."""
        for content in self._journaled():
            if content.name not in self._packs.keys() | self._recalled.keys():
                self._recall(content.name, Pack.in_memory(self.path_of(content.name), content))

    def _recall(self, name: str, pack: Pack) -> None:
        self._note_table(pack)
        self._recalled[name] = pack

    def is_kept(self, pack: Pack) -> bool:
        """Return whether a pack stays: it has a `.keep`, or is in the timeline, or is about to be."""
        return pack.name in self._kept or self._packs.get(pack.name) is not pack

    def hides_some(self) -> bool:
        """Return whether the contents of some pack are unknown, because its index cannot be read."""
        names = (file.removesuffix(INDEX_SUFFIX) for file in self._stamps if file.endswith(INDEX_SUFFIX))
        return any(name not in self._packs and name + PACK_SUFFIX in self._stamps for name in names)

    def lists(self, wanted: bytes) -> bool:
        """Return whether the index of any pack lists an object, as of the last refresh.

        Nearly every object that a snapshot looks up is new, and there are always many small packs: their
        tables are checked one by one, which is fast. One table for all of them would have to be rebuilt
        whenever a pack is removed.
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
        """Add a pack to the tables, before it is added to the set, so that Ctrl-C in between does no harm."""
        if self._tables is None:
            return
        if pack.is_small:
            self._tables.append(pack.rows)
        else:
            self._large.append(pack)

    def stamps(self) -> dict[str, PackStamp]:
        """Return the stamps of packs and indexes by name, as `refresh` found or this process wrote them."""
        return dict(self._stamps)

    def total_bytes(self) -> int:
        """Return how many bytes the files of packs and indexes have."""
        return sum(size for _, size, _ in self._stamps.values())

    def has_files(self, name: str, *, pack_size: int, index_size: int) -> bool:
        """Return whether a pack has files of exactly these sizes, as of the last refresh."""
        wanted = {name + PACK_SUFFIX: pack_size, name + INDEX_SUFFIX: index_size}
        return all(self._stamps.get(file, (0, -1, 0))[1] == size for file, size in wanted.items())

    # Packs of this process

    def hold(self, content: PackBytes) -> None:
        """Add a pack that is not recorded yet and is in memory."""
        self._hold(content.name, Pack.in_memory(self.path_of(content.name), content))

    def hold_file(self, file: PackFile) -> None:
        """Add a pack that is not recorded yet and has a temporary name."""
        paths = (os.path.join(self._directory, name) for name in (file.temporary, file.index))
        self._hold(file.name, Pack.open(*paths))

    def _hold(self, name: str, pack: Pack) -> None:
        pack.name = name
        self._note_table(pack)
        self._held[name] = pack

    def held(self, name: str) -> Pack:
        """Return a pack that is not recorded yet."""
        return self._held[name]

    def take_up(self, name: str) -> None:
        """Read a held pack from its files from now on, which have their final names now."""
        for file in (name + INDEX_SUFFIX, name + PACK_SUFFIX):
            path = os.path.join(self._directory, file)
            with disk.store_errors(path):
                self._stamps[file] = stamp_of(os.stat(path))
        pack, self._likely = self._held.pop(name), None
        self._kept.add(name)
        pack.move(self.path_of(name), (self._stamps[name + PACK_SUFFIX], self._stamps[name + INDEX_SUFFIX]))
        if name in self._packs:
            # A refresh in between has found the files.
            self._packs[name].close()
        self._packs[name] = pack

    def drop(self, names: Iterable[str]) -> None:
        """Forget packs whose files are gone; every object in them that is needed is in another pack."""
        is_lost = False
        for name in names:
            for packs in (self._packs, self._recalled):
                if (pack := packs.pop(name, None)) is not None:
                    is_lost = True
                    pack.close()
            for suffix in _SUFFIXES:
                self._stamps.pop(name + suffix, None)
            self._kept.discard(name)
        if is_lost:
            # Another copy of what was in them, if there is one, may be damaged: it has to be proved anew.
            self._lose()

    def drop_held(self) -> None:
        """Forget the packs that are not recorded yet, and those that were recalled."""
        if self._held or self._recalled:
            for pack in self._held.values():
                pack.close()
            self._held, self._recalled = {}, {}
            self._lose()

    def path_of(self, name: str) -> str:
        """Return the path that a pack has, or will have."""
        return os.path.join(self._directory, name + PACK_SUFFIX)


def _stamp_files(directory: str) -> tuple[dict[str, PackStamp], set[str]]:
    """Return the stamps of packs and indexes, by file name, and which packs have a `.keep`.

    Files that another process removes meanwhile are left out.
    """
    stamps, kept = {}, set()
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if not name.startswith("pack-"):
                continue
            if name.endswith(KEEP_SUFFIX):
                kept.add(name.removesuffix(KEEP_SUFFIX))
            elif name.endswith(_SUFFIXES):
                with suppress(FileNotFoundError):
                    stamps[name] = stamp_of(entry.stat())
    return stamps, kept
