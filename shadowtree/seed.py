"""Take over from the user's repository what is clean there, instead of reading and deflating it again.

Git's index says which content a file had when git last looked, and with which times, size and inode. A file
that still has them all has that content, and if the repository holds it in a pack, its deflated bytes are
copied as they are. Nothing is borrowed: the copy is ours, whatever becomes of the repository
(docs/decisions/0004-seeding.md).

An index speaks of git's version of a file. Where an attribute lets git convert files, that may be another
one than what lies in the worktree, so nothing is taken over then, and never a content of another size.
"""

from __future__ import annotations

import os

from shadowtree.coverage import TrackedNames
from shadowtree.directory import STAMP_SIZE, Directory
from shadowtree.errors import StoreDamaged, StoreFailed
from shadowtree.packs import Pack, PackWriter
from shadowtree.paths import join
from shadowtree.repositories import read_attributes
from shadowtree.scan import Scan
from shadowtree.worktree import Cursor, Unreadable, Vanished, is_racy, read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.gitindex import IndexStamp

_ATTRIBUTES = b".gitattributes"
_CONVERTING = (b"filter", b"ident", b"encoding")
"""What an attribute that changes bytes without changing their number has in its name."""
_LOW = 0xFFFF_FFFF
_NS = 1_000_000_000


def seed(scan: Scan, root: str, pack: PackWriter, *, home: str | None, config_home: str | None) -> None:
    """Copy what is clean in the repository around the worktree into the pack; the rest stays pending."""
    index = scan.around
    if index is None or _may_convert(scan, root, index, home, config_home):
        return
    stamps = index.clean_files()
    index_mtime_ns = index.stamp[0] if index.stamp else 0
    packs = _open_packs(index) if stamps else []
    try:
        for directory in scan.directories:
            if directory.pending:
                _seed_directory(directory, scan, index, stamps, index_mtime_ns, packs, pack)
    finally:
        for user_pack in packs:
            user_pack.close()


def _seed_directory(
    directory: Directory,
    scan: Scan,
    index: TrackedNames,
    stamps: dict[bytes, IndexStamp],
    index_mtime_ns: int,
    packs: list[Pack],
    pack: PackWriter,
) -> None:
    still_pending = []
    for row in directory.pending:
        place = index.place_of(join(directory.path, directory.names[row]))
        stamp = stamps.get(place)
        if stamp is not None and _is_clean(directory, row, stamp, index_mtime_ns, scan.started_ns):
            raw = None if stamp.id in pack else _find_raw(packs, stamp)
            if raw is not None:
                pack.copy_entry(stamp.id, raw)
            if stamp.id in pack:
                directory.set_id(row, stamp.id)
                continue
        still_pending.append(row)
    directory.pending = still_pending


def _is_clean(
    directory: Directory, row: int, stamp: IndexStamp, index_mtime_ns: int, started_ns: int
) -> bool:
    """Tell whether a file is as git last saw it, and neither git nor we looked too soon after a change."""
    mtime_ns, ctime_ns, size, inode, mode = directory.stats[row * STAMP_SIZE : (row + 1) * STAMP_SIZE]
    return (
        stamp.times == (mtime_ns // _NS & _LOW, mtime_ns % _NS, ctime_ns // _NS & _LOW, ctime_ns % _NS)
        and stamp.size == size
        and stamp.inode == inode & _LOW
        and stamp.mode >> 12 == mode >> 12
        and max(mtime_ns, ctime_ns) < index_mtime_ns
        and not is_racy(mtime_ns, ctime_ns, started_ns)
    )


def _find_raw(packs: list[Pack], stamp: IndexStamp) -> bytes | None:
    for user_pack in packs:
        try:
            raw = user_pack.raw_blob(stamp.id, stamp.size)
        except (StoreDamaged, StoreFailed):
            continue
        if raw is not None:
            return raw
    return None


def _open_packs(index: TrackedNames) -> list[Pack]:
    directory = os.path.join(os.fsdecode(index.repository.common_dir), "objects", "pack")
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".idx"))
    except OSError:
        return []
    packs = []
    for name in names:
        try:
            packs.append(Pack(os.path.join(directory, name)))
        except (StoreDamaged, StoreFailed):
            continue
    return packs


def _may_convert(
    scan: Scan, root: str, index: TrackedNames, home: str | None, config_home: str | None
) -> bool:
    """Tell whether any attribute in force could make git's version of a file another one."""
    texts = read_attributes(
        index.repository,
        home=os.fsencode(home) if home else None,
        config_home=os.fsencode(config_home) if config_home else None,
    )
    with Cursor(root) as cursor:
        for directory in scan.directories:
            if _ATTRIBUTES in directory.excluded:
                return True
            if _ATTRIBUTES in directory.names:
                try:
                    texts.append(read_file(cursor.enter(directory.path), _ATTRIBUTES)[1])
                except (Vanished, Unreadable):
                    return True
    return any(word in text for text in texts for word in _CONVERTING)
