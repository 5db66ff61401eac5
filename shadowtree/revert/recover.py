"""Recovery of an act that a kill or a power cut interrupted.

The intent lists every move: by it the next command rolls the act back, or finishes it if it is recorded. What
another program saved in the meantime is never lost: the store keeps it, and a note names its blob.
"""

from __future__ import annotations

from collections.abc import Collection

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.paths import PathState, RelPath, is_file, to_text
from shadowtree.capture.capture import Site, capture, without_reserve
from shadowtree.capture.open_store import OpenStore
from shadowtree.revert.contents import Contents
from shadowtree.revert.moves import clean_up, decode_intent, list_left, roll_back
from shadowtree.revert.writer import Writer


def recover(opened: OpenStore, site: Site) -> list[str]:
    """Finish or roll back what a process that died left undone; describe it. Only under the lock."""
    notes = []
    for intent in opened.journal.open_intents():
        kind, moves = decode_intent(intent.content)
        with Writer(site.worktree, site.limits.unwritten_bytes) as writer:
            if intent.is_committed:
                notes.append(f"an interrupted {kind} was finished")
                notes += rescue(opened, site, writer, clean_up(moves, writer))
            else:
                notes.append(f"an interrupted {kind} was rolled back")
                left = roll_back(moves, writer, Contents(opened.objects, writer).read)
                notes += rescue(opened, site, writer, list_left(moves, writer))
                if left:
                    paths = ", ".join(to_text(path) for path in sorted(left))
                    notes.append(f"left alone because they changed in the meantime: {paths}")
            opened.journal.remove_intent(intent.number)
    return notes


def rescue(opened: OpenStore, site: Site, writer: Writer, places: Collection[RelPath]) -> list[str]:
    """Store what another program wrote to files that had been moved aside, and name the blobs.

    A program may save to a file in the very moment in which it is swapped, and once more right after. The
    later version is at the path then; the earlier one would only be in a temporary.
    """
    files = [place for place in places if is_file(writer.state_of(place))]
    if not files:
        return []
    blobs: dict[RelPath, bytes] = {}
    with capture(without_reserve(site), opened) as taken:
        for place in files:
            size, pieces = writer.open_content(place)
            blobs[place] = taken.put_stream(size, pieces)
        with taken.record(site.limits.clock_ns() // 10**9, also=list(blobs.values())):
            pass
    for place, blob in blobs.items():
        found = writer.state_of(place, is_settled=True)
        if not isinstance(found, PathState) or found.blob != blob:
            raise WorktreeFailed(to_text(place), "another program is writing to it")
        writer.remove(place)
    return [f"a version saved in the meantime is stored as blob {blob.hex()}" for blob in blobs.values()]
