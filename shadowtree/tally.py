"""Whether the changes of a message are what its trees say, path by path.

A flipped bit in a row of the timeline leaves a row that can be read. But what it says of a path, kind, bits
and content, stands in a tree and its facts too, which are hashed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import groupby

from shadowtree.audit import Audit
from shadowtree.errors import StoreDamaged
from shadowtree.events import END, SNAPSHOT
from shadowtree.objects import Objects
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.state import DIRECTORY, Change, PathState, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.state import Answer


def find_wrong_changes(
    audit: Audit, objects: Objects, left_out: Container[int]
) -> Iterator[tuple[int, bytes]]:
    """Give the events and paths of changes that the trees before and after do not agree with.

    Events that are `left_out` are passed over, and so are those whose trees cannot be read: these are told of
    otherwise.
    """
    for number, rows in groupby(audit.changes(), key=lambda row: row[0]):
        roots = None if number in left_out else _open(audit, objects, number)
        for _, change in rows:
            if roots is not None and not _agree(change, *roots):
                yield number, change.path


def _open(audit: Audit, objects: Objects, number: int) -> tuple[RecordedDirectory, RecordedDirectory] | None:
    event = audit.events.get(number)
    if event is None or event.kind not in (END, SNAPSHOT) or None in (event.before, event.after):
        return None
    records = [audit.trees.get(tree) for tree in (event.before, event.after) if tree is not None]
    try:
        opened = [open_recorded(objects, each.tree, each.facts) for each in records if each and each.is_live]
    except StoreDamaged:
        return None
    return (opened[0], opened[1]) if len(opened) == 2 else None


def _agree(change: Change, before: RecordedDirectory, after: RecordedDirectory) -> bool:
    try:
        return all(
            _is_same(side, root.find(change.path, as_directory=side == DIRECTORY))
            for side, root in ((change.old, before), (change.new, after))
        )
    except StoreDamaged:
        return True


def _is_same(recorded: Answer, found: Answer) -> bool:
    """Compare two answers; where one says that nobody knows, there is nothing to compare."""
    if isinstance(recorded, Unknown) or isinstance(found, Unknown):
        return True
    if isinstance(recorded, PathState) and isinstance(found, PathState):
        return recorded == found
    return recorded is found
