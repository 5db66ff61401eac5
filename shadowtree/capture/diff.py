"""How the files of a patch differ, as text, and which of them were probably renamed."""

from __future__ import annotations

from shadowtree.base.frozen import replace
from shadowtree.base.paths import from_text, to_text
from shadowtree.results.messages import ChangedPath, FileDiff, Patch
from shadowtree.store.objects import Objects, TooLarge


def diff_patch(
    patch: Patch, objects: Objects, binary_bytes: int = 0, context: int | None = None
) -> list[FileDiff]:
    """Return how each path of a patch differs, and which of them were probably renamed.

    Binary contents of up to `binary_bytes` are included; `context` lines are shown around each change.
    """
    diffs = [_diff(changed, changed, objects, binary_bytes, context) for changed in patch.files]
    renames = _find_renames(patch, objects)
    files = {changed.path: changed for changed in patch.files} if renames else {}
    for place, new in enumerate(patch.files):
        if new.path in renames:
            old = files[renames[new.path]]
            rename = _diff(old, new, objects, binary_bytes, context)
            diffs[place] = replace(diffs[place], renamed_from=old.path, rename=rename)
    return diffs


def _diff(
    old: ChangedPath, new: ChangedPath, objects: Objects, binary_bytes: int, context: int | None
) -> FileDiff:
    """Return how a changed path differs, or, if `old` is another one, how the renamed file does."""
    from shadowtree.text.linediff import MAX_TEXT_BYTES
    from shadowtree.text.unified_diff import CONTEXT_LINES, diff_text, diff_unread

    blobs, limit = (old.old_blob, new.new_blob), binary_bytes or MAX_TEXT_BYTES
    renamed_from = None if old is new else old.path
    try:
        # The equal contents of a renamed file may be too large to read.
        is_moved = renamed_from is not None and blobs[0] == blobs[1]
        before, after = (b"" if is_moved else _read(blob, objects, limit) for blob in blobs)
    except TooLarge:
        text = diff_unread(new.path, old_mode=old.old_mode, new_mode=new.new_mode, blobs=blobs)
    else:
        text = diff_text(
            new.path,
            before,
            after,
            old_mode=old.old_mode,
            new_mode=new.new_mode,
            renamed_from=renamed_from,
            blobs=blobs,
            binary=binary_bytes > 0,
            context=CONTEXT_LINES if context is None else context,
        )
    counts = text.additions, text.deletions, text.binary
    return FileDiff(new.path, new.status, *counts, text.patch, renamed_from=renamed_from, exact=text.exact)


def _read(blob: str | None, objects: Objects, limit: int) -> bytes | None:
    return None if blob is None else objects.read_small(bytes.fromhex(blob), limit)


def _find_renames(patch: Patch, objects: Objects) -> dict[str, str]:
    """Return the old path of each file that was probably renamed, by its new path."""
    statuses = {changed.status for changed in patch.files}
    if not statuses >= {"added", "deleted"}:
        return {}
    from shadowtree.store.renames import TreeFile, find_renames

    deleted, added = [], []
    for changed in patch.files:
        path = from_text(changed.path)
        if changed.new_blob is None and changed.old_blob is not None and changed.old_mode is not None:
            deleted.append(TreeFile(path, changed.old_mode, bytes.fromhex(changed.old_blob)))
        elif changed.old_blob is None and changed.new_blob is not None and changed.new_mode is not None:
            added.append(TreeFile(path, changed.new_mode, bytes.fromhex(changed.new_blob)))
    renames = find_renames(deleted, added, objects.read_small)
    return {to_text(new): to_text(old) for new, old in renames.items()}
