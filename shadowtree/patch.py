"""Compare two recorded trees: which paths changed from one to the other.

Equal subtrees are passed over, so the cost is that of what differs. A path of which one of the two trees can
say nothing is never in a patch; it is listed as skipped instead.
"""

from __future__ import annotations

import stat

from shadowtree.gitformat import TreeEntry
from shadowtree.model import ChangedPath, Patch, Skipped
from shadowtree.paths import ROOT, RelPath, join, to_text
from shadowtree.recorded import RecordedDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.model import ChangeStatus


def compare(before: RecordedDirectory, after: RecordedDirectory) -> Patch:
    """List what changed from `before` to `after`, both roots, sorted by path."""
    changed: list[ChangedPath] = []
    skipped: list[Skipped] = []
    waiting: list[tuple[RelPath, RecordedDirectory, RecordedDirectory]] = [(ROOT, before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old.tree == new.tree and old.facts_id == new.facts_id:
            continue
        for name in old.files.keys() | new.files.keys():
            found = _compare_file(join(path, name), name, old, new)
            if isinstance(found, ChangedPath):
                changed.append(found)
            elif found is not None:
                skipped.append(found)
        for name in old.subdirectories | new.subdirectories:
            waiting.append((join(path, name), old.enter(name), new.enter(name)))
    changed.sort(key=lambda change: change.path)
    skipped.sort(key=lambda skip: skip.path)
    assert before.tree is not None, "a root always has a tree"
    return Patch(before.tree.hex(), changed, skipped)


def _compare_file(
    path: RelPath, name: bytes, old: RecordedDirectory, new: RecordedDirectory
) -> ChangedPath | Skipped | None:
    before, after = old.files.get(name), new.files.get(name)
    if before is None:
        reason = old.why_unknown(name)
        if reason is not None:
            return Skipped(to_text(path), f"unknown before: {reason}")
    if after is None:
        reason = new.why_unknown(name)
        if reason is not None:
            return Skipped(to_text(path), f"unknown after: {reason}")
    old_mode = None if before is None else old.file_mode(before)
    new_mode = None if after is None else new.file_mode(after)
    old_blob, new_blob = _blob(before), _blob(after)
    if (old_mode, old_blob) == (new_mode, new_blob):
        return None
    status = _status(old_mode, new_mode)
    return ChangedPath(to_text(path), status, old_blob, new_blob, old_mode, new_mode)


def _blob(entry: TreeEntry | None) -> str | None:
    return None if entry is None else entry.id.hex()


def _status(old_mode: int | None, new_mode: int | None) -> ChangeStatus:
    if old_mode is None:
        return "added"
    if new_mode is None:
        return "deleted"
    return "modified" if stat.S_IFMT(old_mode) == stat.S_IFMT(new_mode) else "type"
