"""Take over from the user's repository what is clean there, instead of reading and deflating it again.

Git's index says which content a file had when git last looked, and with which times, size and inode. A file
that still has them all has that content, and if the repository holds it in a pack, its deflated bytes are
copied as they are. Nothing is borrowed: the copy is ours, whatever becomes of the repository
(docs/decisions/0004-seeding.md).

An index speaks of git's version of a file, which attributes may make another one than what lies in the
worktree. So nothing is taken over where there are attributes at all, and never a content of another size:
without attributes git can convert line endings only, and that changes the size.
"""

from __future__ import annotations

import os

from shadowtree.coverage import TrackedNames
from shadowtree.directory import STAMP_SIZE, Directory
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.packs import Pack
from shadowtree.packwriter import PackWriter
from shadowtree.paths import join
from shadowtree.repositories import has_attributes_outside
from shadowtree.scan import Scan
from shadowtree.worktree import is_racy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.gitindex import Index

_ATTRIBUTES = b".gitattributes"
_MOST_BYTES = 2 << 20
"""A larger file is streamed from the worktree instead, so that it is never held in memory."""
_MOST_INDEX_BYTES = 32 << 20
"""A pack with a larger index, of a million objects, is left alone: it would have to be held in memory."""
_LOW = 0xFFFF_FFFF
_NS = 1_000_000_000


def seed(scan: Scan, root: str, pack: PackWriter, *, home: str | None, config_home: str | None) -> None:
    """Copy what is clean in the repository around the worktree into the pack; the rest stays pending."""
    names = scan.rule_files.around
    if names is None or names.index is None or _has_attributes(scan, root, names, home, config_home):
        return
    seeder = _Seeder(names, names.index, scan.started_ns, pack)
    try:
        for directory in scan.directories:
            if directory.pending:
                directory.pending = [row for row in directory.pending if not seeder.take_over(directory, row)]
    finally:
        seeder.close()


class _Seeder:
    """The user's index and packs, while files are taken over from them."""

    def __init__(self, names: TrackedNames, index: Index, started_ns: int, pack: PackWriter) -> None:
        self._place_of = names.place_of
        self._index = index
        self._places = index.places_by_name()
        # What changed after the index was written, or too shortly before we looked, may hide a change.
        self._before_ns = names.stamp[0] if names.stamp else 0
        self._started_ns = started_ns
        self._pack = pack
        self._packs = _open_packs(names)
        self._sizes: dict[bytes, int] = {}
        """Of what was copied: another file of the same id may be a converted one, of another size."""

    def close(self) -> None:
        for user_pack in self._packs:
            user_pack.close()

    def take_over(self, directory: Directory, row: int) -> bool:
        """Copy the content of a file that is as git last saw it; tell whether that was possible."""
        place = self._places.get(self._place_of(join(directory.path, directory.names[row])))
        entry = None if place is None else self._index.stamp_at(place)
        if entry is None:
            return False
        stamp, object_id = entry
        if not self._is_clean(directory, row, stamp):
            return False
        size = directory.file_size(row)
        if self._sizes.get(object_id) != size:
            raw = self._find_raw(object_id, size) if size <= _MOST_BYTES else None
            if raw is None:
                return False
            self._pack.copy_entry(object_id, raw)
            self._sizes[object_id] = size
        directory.set_id(row, object_id)
        return True

    def _is_clean(self, directory: Directory, row: int, stamp: tuple[int, ...]) -> bool:
        mtime_ns, ctime_ns, size, inode, mode = directory.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE]
        ctime_s, mtime_s = ctime_ns // _NS, mtime_ns // _NS
        present = (
            ctime_s & _LOW,
            ctime_ns - ctime_s * _NS,
            mtime_s & _LOW,
            mtime_ns - mtime_s * _NS,
            inode & _LOW,
            mode >> 12,
            size,
        )
        youngest_ns = max(mtime_ns, ctime_ns)
        return (
            stamp == present
            and youngest_ns < self._before_ns
            and not is_racy(mtime_ns, ctime_ns, self._started_ns, size)
        )

    def _find_raw(self, object_id: bytes, size: int) -> bytes | None:
        for user_pack in self._packs:
            try:
                raw = user_pack.raw_blob(object_id, size)
            except (StoreDamaged, StoreFailed):
                continue
            if raw is not None:
                return raw
        return None


def _open_packs(names: TrackedNames) -> list[Pack]:
    directory = os.path.join(os.fsdecode(names.repository.common_dir), "objects", "pack")
    try:
        indexes = sorted(name for name in os.listdir(directory) if name.endswith(".idx"))
    except OSError:
        return []
    packs = []
    for name in indexes:
        path = os.path.join(directory, name)
        try:
            if os.stat(path).st_size <= _MOST_INDEX_BYTES:
                packs.append(Pack(path))
        except (StoreDamaged, StoreFailed, OSError):
            continue
    return packs


def _has_attributes(
    scan: Scan, root: str, names: TrackedNames, home: str | None, config_home: str | None
) -> bool:
    """Tell whether there are attributes anywhere that hold here: with them git may have converted a file."""
    in_index = names.index is not None and any(
        name == _ATTRIBUTES or name.endswith(b"/" + _ATTRIBUTES) for name in names.index.names
    )
    on_disk = any(
        _ATTRIBUTES in directory.names
        or _ATTRIBUTES in directory.excluded
        or any(name == _ATTRIBUTES for name, _ in directory.skipped)
        for directory in scan.directories
    )
    return (
        in_index
        or on_disk
        or has_attributes_outside(
            names.repository,
            os.fsencode(root),
            home=os.fsencode(home) if home else None,
            config_home=os.fsencode(config_home) if config_home else None,
        )
    )
