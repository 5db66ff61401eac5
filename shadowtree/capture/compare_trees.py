"""Compare two recorded trees: which paths changed from one to the other.

Equal subtrees are passed over, so the cost is that of what differs. A path of which one of the two trees can
say nothing is never in a patch; it is listed as skipped instead.
"""

from __future__ import annotations

from shadowtree.base.paths import ROOT, Change, RelPath, Unknown, join
from shadowtree.capture.recorded_tree import RecordedDirectory
from shadowtree.results.messages import ChangedPath, FileDiff, Patch, make_patch
from shadowtree.store.objects.read import Objects, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer


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


def diff_patch(patch: Patch, objects: Objects) -> list[FileDiff]:
    """Show how each path of a patch differs, as text."""
    return [_diff_path(changed, objects) for changed in patch.files]


def _diff_path(changed: ChangedPath, objects: Objects) -> FileDiff:
    from shadowtree.text.linediff import MAX_TEXT_BYTES
    from shadowtree.text.unified_diff import diff_text

    try:
        old, new = (
            None if blob is None else objects.read_small(bytes.fromhex(blob), MAX_TEXT_BYTES)
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
