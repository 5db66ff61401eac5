"""What changed since the last record when only contents and modes of files did, told without reading a tree.

Most messages edit files that are there. A scan on top of a census has the directories of those files before
its eyes twice, as they were recorded and as they are; where both have the same names, the rows tell all:

    known    a.py 1f…  b.py 77…  c.py 30…
    now      a.py 1f…  b.py e2…  c.py 30…      ──▶ b.py changed, from 77… to e2…

As soon as a name came or went anywhere, what that means depends on the rules, and the trees are compared.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

from shadowtree.base.paths import MODE_LINK, ROOT, Change, PathState, RelPath, join, parent_of
from shadowtree.capture.entries import ID_SIZE, STAMP_SIZE, Directory, join_ids
from shadowtree.capture.scan import Scan


def list_rewritten(scan: Scan, tree: bytes, facts: bytes) -> list[Change] | None:
    """List what changed since a tree was recorded, by path; None if only comparing the trees can tell.

    The trees of the scan must have been built.
    """
    root = scan.known(ROOT)
    if root is None or (root.tree, root.facts) != (tree, facts) or scan.gone:
        return None
    changed = [d for d, is_changed in zip(scan.directories, scan.changed, strict=True) if is_changed]
    if not all(_is_whole(path, scan) for path in {parent_of(directory.path) for directory in changed}):
        return None
    changes: list[Change] = []
    for directory in changed:
        known = scan.known(directory.path)
        if known is None or not _is_alike(known, directory):
            return None
        if directory.path not in scan.only_built:
            changes += _compare_files(known, directory)
    changes.sort(key=lambda change: change.path)
    return changes


def _is_alike(known: Directory, now: Directory) -> bool:
    """Tell whether two views of a directory differ in nothing but their files' contents and modes."""
    return (
        known.names == now.names
        and known.subdirectories == now.subdirectories
        and known.skipped == now.skipped
        and known.missing == now.missing
        and (known.tree is None) == (now.tree is None)
    )


def _is_whole(path: RelPath, scan: Scan) -> bool:
    """Tell whether a directory as it is known was built from those in it as they are known.

    A cache that lost its newest rows in a power cut, and a census that came from there, may mix old and new.
    """
    known = scan.known(path)
    if known is None:
        return False
    below = [scan.known(join(path, name)) for name, _ in reversed(known.subdirectories)]
    return known.below_ids == join_ids(child for child in below if child is not None)


def _compare_files(known: Directory, now: Directory) -> Iterator[Change]:
    """Give the files whose content or mode is another; both views have the same names."""
    old_ids, new_ids = bytes(known.ids), bytes(now.ids)
    old_modes, new_modes = known.stats[4::STAMP_SIZE], now.stats[4::STAMP_SIZE]
    if old_ids == new_ids and old_modes == new_modes:
        return
    for row, at in enumerate(range(0, len(new_ids), ID_SIZE)):
        if old_ids[at : at + ID_SIZE] != new_ids[at : at + ID_SIZE] or old_modes[row] != new_modes[row]:
            old, new = _state_of(known, row), _state_of(now, row)
            if old != new:
                yield Change(join(now.path, now.names[row]), old, new)


def _state_of(directory: Directory, row: int) -> PathState:
    mode = directory.file_mode(row)
    exact = MODE_LINK if stat.S_ISLNK(mode) else stat.S_IFREG | mode & 0o777
    return PathState(exact, directory.file_id(row))
