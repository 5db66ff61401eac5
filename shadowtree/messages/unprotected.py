"""Unprotected files: those that changed, but that snapshots leave out because they are ignored or too big.

A record lists those that changed during it (`timeline/append`). Their stamps: `timeline/sqlite/unprotected`.
"""

from __future__ import annotations

import os
from functools import partial

from shadowtree.base.paths import RelPath, Unknown, from_text, is_file, to_text
from shadowtree.capture.capture import Site, capture_in_memory, scan_site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import LEFT_OUT_THEN, RecordedDirectory
from shadowtree.capture.scan import stamp_uncovered
from shadowtree.results.messages import Skipped
from shadowtree.timeline.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def list_unprotected(session: Session, stamp: Callable[[], bytes], *trees: RecordedDirectory) -> list[str]:
    """List the files that changed since the session last recorded their stamps, and that no tree covers."""
    changed = session.journal.left_out.list_changed(session.number, stamp)
    return [to_text(path) for path in changed if not any(is_file(tree.find(path)) for tree in trees)]


def list_all_unprotected(opened: OpenStore, site: Site, session_name: str) -> list[Skipped]:
    """List the files that changed during messages of a session, or since, and that no snapshot covers now.

    Files outside the worktree are among them, if an agent's tools wrote them.
    """
    session = Session(opened.journal, session_name)
    if session.number is None:
        return []
    lists = opened.journal.left_out.lists_of(session.number)
    found = {path for number in lists for path, _ in opened.journal.left_out.skips(number)}
    scan = scan_site(site, opened)
    with capture_in_memory(site, opened, scan) as (_, root):
        found.update(list_unprotected(session, partial(stamp_uncovered, scan, site.worktree), root))
        inside = {path: root.find(from_text(path)) for path in found if not path.startswith("/")}
    reasons = {path: _explain(state) for path, state in inside.items() if isinstance(state, Unknown)}
    reasons |= dict.fromkeys(found - inside.keys(), "it is outside the directory")
    return [Skipped(path, reasons[path]) for path in sorted(reasons)]


def why_unprotected(opened: OpenStore, site: Site, path: RelPath) -> str | None:
    """Return why no snapshot covers a path; None if one does, or would if the path existed."""
    is_directory = os.path.isdir(os.path.join(os.fsencode(site.worktree), path))
    with capture_in_memory(site, opened) as (_, root):
        found = root.find(path, as_directory=is_directory)
    return _explain(found) if isinstance(found, Unknown) else None


def _explain(unknown: Unknown) -> str:
    return "an ignore rule excludes it" if unknown.reason == LEFT_OUT_THEN else unknown.reason
