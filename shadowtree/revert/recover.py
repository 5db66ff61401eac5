"""Finish or roll back an act that was interrupted: by a kill, a power cut, or an error on the way.

The intent in the journal lists every move. If the act is recorded, what was moved aside goes; if not, every
move is rolled back. What somebody saved meanwhile is never lost: the store keeps it, and its blob is named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import time

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.paths import PathState, RelPath, is_file, to_text
from shadowtree.capture.capture import Site, capture
from shadowtree.capture.open_store import OpenStore
from shadowtree.revert.contents import Contents
from shadowtree.revert.moves import Move, clean_up, decode_intent, list_left, take_back
from shadowtree.revert.writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.system.files import FileStamp


def recover(opened: OpenStore, site: Site) -> list[str]:
    """Finish or roll back what a process that died left undone; describe it. Only under the lock."""
    notes = []
    for intent in opened.journal.open_intents():
        kind, moves = decode_intent(intent.content)
        with Writer(site.worktree) as writer:
            if intent.is_committed:
                notes.append(f"an interrupted {kind} was finished")
                notes += finish_intent(opened, site, writer, intent.number, moves)
                continue
            notes.append(f"an interrupted {kind} was taken back")
            left = take_back(moves, writer, Contents(opened.objects, writer).read)
            notes += rescue(opened, site, writer, list_left(moves, writer))
            opened.journal.remove_intent(intent.number)
            if left:
                paths = ", ".join(to_text(path) for path in sorted(left))
                notes.append(f"changed meanwhile and left as they are: {paths}")
    return notes


def finish_intent(
    opened: OpenStore,
    site: Site,
    writer: Writer,
    intent: int,
    moves: list[Move],
    known: Mapping[RelPath, FileStamp] | None = None,
) -> list[str]:
    """Remove what a recorded act moved aside, and then the intent; describe what was rescued."""
    notes = rescue(opened, site, writer, clean_up(moves, writer, known))
    opened.journal.remove_intent(intent)
    return notes


def rescue(opened: OpenStore, site: Site, writer: Writer, places: Collection[RelPath]) -> list[str]:
    """Put what somebody wrote to files that had been moved aside into the store, and name the blobs.

    A program may save to a file in the very moment in which it is swapped, and once more right after. The
    later version is at the path then; the earlier one would only be in a temporary.
    """
    files = [place for place in places if is_file(writer.state_of(place))]
    if not files:
        return []
    blobs: dict[RelPath, bytes] = {}
    with capture(site, opened) as taken:
        for place in files:
            size, pieces = writer.open_content(place)
            blobs[place] = taken.put_stream(size, pieces)
        with taken.record(int(time()), also=list(blobs.values())):
            pass
    for place, blob in blobs.items():
        found = writer.state_of(place, is_settled=True)
        if not isinstance(found, PathState) or found.blob != blob:
            raise WorktreeFailed(to_text(place), "it is being written")
        writer.remove(place)
    return [f"a version saved meanwhile is in the store as blob {blob.hex()}" for blob in blobs.values()]
