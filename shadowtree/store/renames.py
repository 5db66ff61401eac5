"""Renames: which deleted files the added ones probably were before. They are shown, never acted on.

Files with the same content are matched by its id, however many there are. Similar contents are compared by
dulwich, with git's measure: the lines that both have make up at least half of the larger one. This takes
longer the more files there are, so there are limits.
"""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import chain

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath
from shadowtree.store.git_format import MODE_FILE
from shadowtree.store.objects import TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dulwich.objects import ShaFile

    Read = Callable[[bytes, int], bytes]
    """Reads the blob with an id; raises TooLarge if it has more bytes than the second argument."""
    Renames = dict[RelPath, RelPath]
    """Maps the new path of a file to the old one."""

_ALIKE_PERCENT = 50
_NAMESAKE_PERCENT = 75
"""For two files with the same name, if no other file has it. Both numbers are git's."""


@frozen
class TreeFile:
    """A file or link of a tree."""

    path: RelPath
    mode: int
    """Its kind, as in `st_mode`; permission bits may differ."""
    blob: bytes


@frozen
class RenameLimits:
    """How much is compared at most; comparing more would keep people waiting."""

    files: int = 200
    """If there are more pairs of files than the square of this, only those with unique names are compared."""
    file_bytes: int = 256 << 10
    """Files with more bytes than this are left out."""
    read_bytes: int = 4 << 20
    """If the files to compare have more bytes than this together, none are compared."""
    compared_bytes: int = 32 << 20
    """The limit for all pairs of files: the bytes of the smaller one, plus `_PAIR_BYTES` for each pair."""


_PAIR_BYTES = 512
"""The cost of comparing any pair of files, in bytes."""


def find_renames(
    deleted: Sequence[TreeFile],
    added: Sequence[TreeFile],
    read: Read,
    limits: RenameLimits = RenameLimits(),  # noqa: B008  # frozen
) -> Renames:
    """Match deleted files with the added files that they became; no file is in two renames.

    Files with the same content and name are matched first, then those with the same content, then similar
    ones. A link never matches a file.
    """
    renames: Renames = {}
    for key in (_name_and_content, _content):
        renames |= _match_equal(*_leave_out(deleted, added, renames), key)
    return renames | _match_alike(*_leave_out(deleted, added, renames), read, limits)


def _leave_out(
    deleted: Sequence[TreeFile], added: Sequence[TreeFile], renames: Renames
) -> tuple[list[TreeFile], list[TreeFile]]:
    taken = set(renames.values())
    left = [file for file in deleted if file.path not in taken]
    return left, [file for file in added if file.path not in renames]


# The same content


def _content(file: TreeFile) -> Hashable:
    return stat.S_IFMT(file.mode), file.blob


def _name_and_content(file: TreeFile) -> Hashable:
    return _name(file), _content(file)


def _name(file: TreeFile) -> bytes:
    return file.path.rpartition(b"/")[2]


def _match_equal(
    deleted: Sequence[TreeFile], added: Sequence[TreeFile], key: Callable[[TreeFile], Hashable]
) -> Renames:
    waiting: defaultdict[Hashable, list[RelPath]] = defaultdict(list)
    for file in reversed(deleted):
        waiting[key(file)].append(file.path)
    return {file.path: waiting[key(file)].pop() for file in added if waiting[key(file)]}


# Contents that are alike


def _match_alike(
    deleted: Sequence[TreeFile], added: Sequence[TreeFile], read: Read, limits: RenameLimits
) -> Renames:
    """Match similar files: first those with a unique name, as when a directory was moved, then all others."""
    if not deleted or not added:
        return {}
    namesakes = _pair_names(deleted, added)
    are_few = len(deleted) * len(added) <= limits.files**2
    contents = _read_files([*deleted, *added] if are_few else [*chain(*namesakes)], read, limits)
    renames: Renames = {}
    for old, new in namesakes:
        renames |= _detect(*_keep_comparable([old], [new], contents), contents, _NAMESAKE_PERCENT)[0]
    return renames | _match_all(*_leave_out(deleted, added, renames), contents, limits)


def _pair_names(deleted: Sequence[TreeFile], added: Sequence[TreeFile]) -> list[tuple[TreeFile, TreeFile]]:
    named: defaultdict[bytes, tuple[list[TreeFile], list[TreeFile]]] = defaultdict(lambda: ([], []))
    for side, files in enumerate((deleted, added)):
        for file in files:
            named[_name(file)][side].append(file)
    return [(old[0], new[0]) for old, new in named.values() if len(old) == len(new) == 1]


def _match_all(
    deleted: list[TreeFile], added: list[TreeFile], contents: dict[bytes, bytes], limits: RenameLimits
) -> Renames:
    renames: Renames = {}
    left = limits.compared_bytes
    while len(deleted) * len(added) <= limits.files**2:
        deleted, added = _keep_comparable(deleted, added, contents)
        sizes = [len(contents[file.blob]) for file in added]
        left -= sum(_PAIR_BYTES + min(len(contents[file.blob]), size) for file in deleted for size in sizes)
        if not deleted or left < 0:
            break
        found, contested = _detect(deleted, added, contents, _ALIKE_PERCENT)
        renames |= found
        # The detector drops an added file whose best match went to another one; try the next best.
        deleted, added = _leave_out(deleted, contested, found)
    return renames


def _read_files(files: Sequence[TreeFile], read: Read, limits: RenameLimits) -> dict[bytes, bytes]:
    """Read the contents to compare, by id; return none if they are too large together."""
    contents: dict[bytes, bytes] = {}
    left = limits.read_bytes
    for blob in dict.fromkeys(file.blob for file in files if stat.S_ISREG(file.mode)):
        with suppress(TooLarge):
            contents[blob] = read(blob, limits.file_bytes)
            left -= len(contents[blob])
        if left < 0:
            return {}
    return contents


def _keep_comparable(
    deleted: list[TreeFile], added: list[TreeFile], contents: dict[bytes, bytes]
) -> tuple[list[TreeFile], list[TreeFile]]:
    """Keep the files that were read, and whose size is close enough to one on the other side."""
    # Links are excluded by their mode: a link's target may be the same blob as a file's content.
    old = [file for file in deleted if stat.S_ISREG(file.mode) and file.blob in contents]
    new = [file for file in added if stat.S_ISREG(file.mode) and file.blob in contents]
    old_sizes = {len(contents[file.blob]) for file in old}
    new_sizes = {len(contents[file.blob]) for file in new}
    return (
        [file for file in old if any(_may_be_alike(len(contents[file.blob]), size) for size in new_sizes)],
        [file for file in new if any(_may_be_alike(len(contents[file.blob]), size) for size in old_sizes)],
    )


def _may_be_alike(size: int, other: int) -> bool:
    return 0 < max(size, other) * _ALIKE_PERCENT <= min(size, other) * 100


def _detect(
    deleted: list[TreeFile], added: list[TreeFile], contents: dict[bytes, bytes], percent: int
) -> tuple[Renames, list[TreeFile]]:
    """Compare all deleted files with all added ones by dulwich; return renames, and what it calls copies.

    dulwich compares trees, so this makes two flat ones, with whole paths as names.
    """
    if not deleted or not added:
        return {}, []
    from dulwich.diff_tree import CHANGE_COPY, CHANGE_RENAME, RenameDetector
    from dulwich.objects import Blob, ObjectID, Tree

    before, after = Tree(), Tree()
    store: dict[ObjectID, ShaFile] = {}
    for tree, files in (before, deleted), (after, added):
        for file in files:
            blob = ObjectID(file.blob.hex().encode("ascii"))
            store[blob] = Blob.from_string(contents[file.blob])
            tree.add(file.path, MODE_FILE, blob)
        store[tree.id] = tree
    readable: Any = store  # Any: the detector uses only `store[id]` of an object store
    detector = RenameDetector(readable, rename_threshold=percent - 1, max_files=None)
    renames: Renames = {}
    copies: set[bytes] = set()
    for change in detector.changes_with_renames(before.id, after.id):
        if change.type == CHANGE_RENAME:
            assert change.old is not None
            assert change.new is not None
            renames[RelPath(change.new.path)] = RelPath(change.old.path)
        elif change.type == CHANGE_COPY:
            assert change.new is not None
            copies.add(change.new.path)
    return renames, [file for file in added if file.path in copies]
