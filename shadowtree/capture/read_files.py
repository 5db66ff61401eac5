"""Turn the result of a scan into objects: read and store the files, then build the trees from the leaves up.

    scan ──▶ read_files (blobs into a pack) ──▶ build_trees (trees and facts into the same pack)

Nothing names the objects written here until their pack is published.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from hashlib import sha1
from time import sleep, time_ns

from shadowtree.base.paths import PURGED, ROOT
from shadowtree.capture.directories import GIT_IGNORE, STAMP_SIZE, Directory, git_mode, join_ids, leaves_out
from shadowtree.capture.facts import RULES_BLOB, SUBTREE_PREFIX, encode_blobs, encode_rules
from shadowtree.capture.scan import Scan, may_exist
from shadowtree.store.git_format import (
    MODE_FILE,
    MODE_TREE,
    TreeEntry,
    blob_id,
    encode_rows,
    encode_tree,
    object_header,
)
from shadowtree.store.objects import Objects
from shadowtree.system.files import (
    CHANGED_TYPE,
    KEPT_CHANGING,
    Cursor,
    FileStamp,
    TooLong,
    Unreadable,
    Vanished,
    is_racy,
    is_young,
    open_file,
    read_file,
    read_link,
    stamp_of,
    stream_file,
    why_unreadable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs.pack_writer import ObjectSink

_STREAM_SIZE = 2 << 20
"""A file above this size is never held in memory."""
_STREAM_TRIES = 10
_REST_S = 0.05
"""How long a large file must be unmodified before it is read: a single write call may still be running."""

Progress = Callable[[int, int], None]
"""Called with how many files were read, and how many must be read in all."""


def read_files(scan: Scan, root: str, objects: Objects, pack: ObjectSink, progress: Progress | None) -> None:
    """Read every pending file, put new contents into the pack, and note the ids.

    Files that are gone are dropped, and the scan notes that; those that cannot be read are listed as skipped.
    """
    total, done = sum(len(directory.pending) for directory in scan.directories.values()), 0
    with Cursor(root) as cursor:
        reader = _Reader(cursor, objects, pack, scan.rule_files.tombstones.blobs)
        for directory in scan.directories.values():
            if not directory.pending:
                continue
            lost = {row for row in directory.pending if not reader.read(directory, row)}
            done += len(directory.pending)
            if lost:
                directory.drop_files(lost)
            if progress is not None:
                progress(done, total)
        scan.has_lost |= reader.has_lost


class _Reader:
    """Reads contents into a pack.

    There is only one thread: with several, waiting for the interpreter's lock cost more than they saved
    (docs/decisions/0002-isal.md).
    """

    def __init__(self, cursor: Cursor, objects: Objects, pack: ObjectSink, purged: Collection[bytes]) -> None:
        self._cursor = cursor
        self._objects = objects
        self._pack = pack
        self._purged = purged
        """The ids of contents that must not be stored again."""
        self.has_lost = False
        """A file was gone before it was read."""

    def read(self, directory: Directory, row: int) -> bool:
        """Read one file and note its stamp and id; return whether that was possible.

        If not, the file is noted as skipped with the reason, unless it is gone.
        """
        name = directory.names[row]
        try:
            fd = self._cursor.enter(directory.path)
            if stat.S_ISLNK(directory.file_mode(row)):
                stamp, target = read_link(fd, name)
                self._refuse_purged(target)
                found = self._objects.put(self._pack, b"blob", target)
            else:
                stamp, found = self._read_regular(fd, name, directory.file_id(row))
        except Vanished:
            if may_exist(self._cursor, directory.path, name):
                directory.skip(name, CHANGED_TYPE)
            else:
                self.has_lost = True
            return False
        except Unreadable as error:
            directory.skip(name, error.reason)
            return False
        directory.set_stamp(row, stamp)
        directory.set_id(row, found)
        return True

    def _read_regular(self, directory_fd: int, name: bytes, known: bytes) -> tuple[FileStamp, bytes]:
        """Return a file's stamp and the id of its content; `known` is the id of its stored content."""
        try:
            stamp, content = read_file(directory_fd, name, _STREAM_SIZE)
        except TooLong:
            return self._read_stream(directory_fd, name)
        self._refuse_purged(content)
        if name == GIT_IGNORE:
            # Comparing trees needs the rules, so these are kept even in a scratch that keeps no files.
            return stamp, self._objects.put(self._pack, b"blob", content)
        return stamp, self._objects.put_file(self._pack, content, known)

    def _read_stream(self, directory_fd: int, name: bytes) -> tuple[FileStamp, bytes]:
        """Read a large file in pieces into the pack; raise Unreadable if it keeps changing."""
        for _ in range(_STREAM_TRIES):
            started_ns = time_ns()
            fd, status = open_file(directory_fd, name)
            try:
                if 0 <= started_ns - status.st_mtime_ns < _REST_S * 1e9:
                    sleep(_REST_S)
                    continue
                pieces = _stable_pieces(fd, status)
                found = self._pack.add_stream(status.st_size, pieces, self._is_not_wanted)
                if found in self._purged:
                    raise Unreadable(PURGED)
                if _has_id(fd, status, started_ns, found):
                    return stamp_of(status), found
            except _Changed:
                continue
            except OSError as error:
                raise Unreadable(why_unreadable(error)) from error
            finally:
                os.close(fd)
        raise Unreadable(KEPT_CHANGING)

    def _refuse_purged(self, content: bytes) -> None:
        if self._purged and blob_id(content) in self._purged:
            raise Unreadable(PURGED)

    def _is_not_wanted(self, blob: bytes) -> bool:
        """Return whether a blob is already stored, or must not be."""
        return blob in self._purged or self._objects.has(blob)


class _Changed(Exception):
    """A file changed while it was read."""


def _stable_pieces(fd: int, status: os.stat_result) -> Iterator[bytes]:
    seen = 0
    for piece in stream_file(fd, status.st_size):
        seen += len(piece)
        yield piece
    if seen != status.st_size or stamp_of(os.fstat(fd)) != stamp_of(status):
        raise _Changed


def _has_id(fd: int, status: os.stat_result, started_ns: int, expected: bytes) -> bool:
    """Return whether a file still has an id; read it again only if its times may not show a write."""
    if not is_racy(status.st_mtime_ns, status.st_ctime_ns, started_ns, status.st_size):
        return True
    os.lseek(fd, 0, os.SEEK_SET)
    digest = sha1(object_header(b"blob", status.st_size), usedforsecurity=False)
    for piece in _stable_pieces(fd, status):
        digest.update(piece)
    return digest.digest() == expected


# Trees


def build_trees(scan: Scan, objects: Objects, pack: ObjectSink) -> tuple[bytes, bytes]:
    """Build trees and facts of the directories that changed and of those above them; return the root's ids.

    A directory is built again if something in it changed, or if its subdirectories have other ids than those
    that it was built from; this also detects a cache that lost some of its newest rows.
    """
    for path, directory in reversed(scan.directories.items()):
        subdirectories = list(scan.children(directory))
        below_ids = join_ids(subdirectories)
        if directory.is_stale or below_ids != directory.below_ids:
            directory = scan.take(path)
            before, directory.tree = directory.tree, _build_tree(directory, subdirectories, objects, pack)
            is_there_still = (before is None) == (directory.tree is None)
            if not is_there_still or not _has_same_facts(directory, below_ids):
                directory.facts = _build_facts(directory, subdirectories, scan, objects, pack)
            directory.below_ids = below_ids
            directory.is_stale = False
    root = scan.directories[ROOT]
    assert root.facts is not None, "the root always has rules"
    return root.tree or objects.put(pack, b"tree", b""), root.facts


def _build_tree(
    directory: Directory, subdirectories: list[Directory], objects: Objects, pack: ObjectSink
) -> bytes | None:
    """Build the tree of a directory; None if it covers nothing, because git has no empty directories."""
    ids, modes = bytes(directory.ids), directory.stats[4::STAMP_SIZE]
    subtrees = [(child.name, child.tree) for child in subdirectories if child.tree is not None]
    if not directory.names and not subtrees:
        return None
    tree = encode_rows(directory.names, map(git_mode, modes), ids, subtrees)
    return objects.put(pack, b"tree", tree, directory.tree)


def _has_same_facts(directory: Directory, below_ids: bytes) -> bool:
    """Return whether neither a directory nor the facts of its subdirectories changed.

    This holds for most directories above an edited file. The rules at the root are unchanged too: with other
    rules it would have been listed again.
    """
    if directory.is_stale or len(directory.below_ids) != len(below_ids):
        return False
    half = len(below_ids) // 2
    return directory.below_ids[half:] == below_ids[half:]


def _build_facts(
    directory: Directory, subdirectories: list[Directory], scan: Scan, objects: Objects, pack: ObjectSink
) -> bytes | None:
    """Build the facts of a directory; return None if there are none."""
    is_root = not directory.path
    has_entry = is_root or directory.tree is not None or leaves_out(directory.mode)
    blobs = encode_blobs(directory, scan.rule_files.tombstones.blobs, has_entry=has_entry)
    if is_root:
        blobs[RULES_BLOB] = encode_rules(scan.rule_files.root_rules())
    entries = [
        TreeEntry(name, MODE_FILE, objects.put(pack, b"blob", content)) for name, content in blobs.items()
    ]
    for child in subdirectories:
        if child.facts is not None:
            entries.append(TreeEntry(SUBTREE_PREFIX + child.name, MODE_TREE, child.facts))
    return objects.put(pack, b"tree", encode_tree(entries), directory.facts) if entries else None


def settle(scan: Scan) -> None:
    """Prepare the directories for the cache: entries whose stamps could hide a change must be read again."""
    for directory in scan.changed_directories():
        for row in directory.pending:
            if is_young(directory.file_stamp(row), scan.started_ns):
                directory.smudge(row)
        directory.pending = ()
        if directory.ignore_stamp and is_young(directory.ignore_stamp, scan.started_ns):
            directory.ignore_stamp = ()
        if directory.stamp is not None and is_racy(*directory.stamp[:2], scan.started_ns):
            directory.stamp = None
