"""Compare two recorded trees: which paths changed from one to the other.

Equal subtrees are passed over, so the cost is that of what differs. A path of which one of the two trees can
say nothing is never in a patch; it is listed as skipped instead.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable

from shadowtree.model import ChangedPath, FileDiff, Patch, Skipped
from shadowtree.objects import Objects, TooLarge
from shadowtree.paths import ROOT, RelPath, join, to_text
from shadowtree.recorded import RecordedDirectory
from shadowtree.state import DIRECTORY, Change, PathState, Unknown, is_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.model import ChangeStatus
    from shadowtree.state import Answer


def compare(before: RecordedDirectory, after: RecordedDirectory) -> Patch:
    """Make the patch from `before` to `after`, both roots."""
    assert before.tree is not None, "a root always has a tree"
    return make_patch(before.tree.hex(), list_changes(before, after))


def list_changes(before: RecordedDirectory, after: RecordedDirectory) -> list[Change]:
    """List what changed from `before` to `after`, both roots, sorted by path: files, links and directories.

    A file of which one of the two can say nothing is listed with that side unknown; such a directory is not.
    """
    changes: list[Change] = []
    waiting: list[tuple[RelPath, RecordedDirectory, RecordedDirectory]] = [(ROOT, before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old.tree == new.tree and old.facts_id == new.facts_id:
            continue
        for name in _names_changed(old, new) | _names_skipped(old, new):
            _add(changes, join(path, name), old.state(name), new.state(name))
        for name in old.subdirectories | new.subdirectories:
            if old.ids_of(name) != new.ids_of(name):
                below = join(path, name)
                waiting.append((below, old.enter(name), new.enter(name)))
                if name not in old.files and name not in new.files:
                    _add_directory(changes, below, old, new, name)
    changes.sort(key=lambda change: change.path)
    return changes


def make_patch(tree: str, changes: Iterable[Change]) -> Patch:
    """Make the patch of which `changes` tell; of directories it says nothing."""
    files: list[ChangedPath] = []
    skipped: list[Skipped] = []
    for change in changes:
        if DIRECTORY in (change.old, change.new) and not change.is_known:
            continue
        if isinstance(change.old, Unknown):
            skipped.append(Skipped(to_text(change.path), f"unknown before: {change.old.reason}"))
        elif isinstance(change.new, Unknown):
            skipped.append(Skipped(to_text(change.path), f"unknown after: {change.new.reason}"))
        elif is_file(change.old) or is_file(change.new):
            files.append(_changed_path(change.path, change.old, change.new))
    return Patch(tree, files, skipped)


def diff_patch(patch: Patch, objects: Objects) -> list[FileDiff]:
    """Show how each path of a patch differs, as text."""
    return [_diff_path(changed, objects) for changed in patch.files]


def _diff_path(changed: ChangedPath, objects: Objects) -> FileDiff:
    from shadowtree.diff import MAX_DIFF_BYTES, diff_text

    try:
        old, new = (
            None if blob is None else objects.read_small(bytes.fromhex(blob), MAX_DIFF_BYTES)
            for blob in (changed.old_blob, changed.new_blob)
        )
    except TooLarge:
        return FileDiff(changed.path, changed.status, 0, 0, False, "")
    text = diff_text(changed.path, old, new, old_mode=changed.old_mode, new_mode=changed.new_mode)
    return FileDiff(changed.path, changed.status, text.additions, text.deletions, text.binary, text.patch)


def _names_changed(old: RecordedDirectory, new: RecordedDirectory) -> set[bytes]:
    """Name the files whose entries differ, or all if the permission bits beside them do."""
    if not old.has_same_permissions(new):
        return old.files.keys() | new.files.keys()
    before = {(entry.name, entry.mode, entry.id) for entry in old.files.values()}
    after = {(entry.name, entry.mode, entry.id) for entry in new.files.values()}
    return {name for name, _, _ in before ^ after}


def _names_skipped(old: RecordedDirectory, new: RecordedDirectory) -> set[bytes]:
    """Name what one of the two left out: the other one may know of it."""
    return {name for name in (*old.facts.skipped, *new.facts.skipped) if name}


def _add(changes: list[Change], path: RelPath, old: Answer, new: Answer) -> None:
    if old != new and not (isinstance(old, Unknown) and isinstance(new, Unknown)):
        changes.append(Change(path, old, new))


def _add_directory(
    changes: list[Change], path: RelPath, old: RecordedDirectory, new: RecordedDirectory, name: bytes
) -> None:
    before, after = old.state(name, as_directory=True), new.state(name, as_directory=True)
    if not isinstance(before, Unknown) and not isinstance(after, Unknown):
        _add(changes, path, before, after)


def _changed_path(path: bytes, old: PathState | None, new: PathState | None) -> ChangedPath:
    before, after = old if is_file(old) else None, new if is_file(new) else None
    return ChangedPath(
        to_text(path),
        _status(before, after),
        None if before is None else before.blob.hex(),
        None if after is None else after.blob.hex(),
        None if before is None else before.mode,
        None if after is None else after.mode,
    )


def _status(old: PathState | None, new: PathState | None) -> ChangeStatus:
    if old is None:
        return "added"
    if new is None:
        return "deleted"
    return "modified" if stat.S_IFMT(old.mode) == stat.S_IFMT(new.mode) else "type"
