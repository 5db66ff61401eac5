"""Recover from an act that a kill or a power cut interrupted.

The intent lists every move, so the next command can roll the act back, or finish it if it is recorded.
What is out of reach waits in the intent until a later command finds it. Versions that another program saved
in the meantime are never lost: they are stored, and notes name the blobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shadowtree.base.errors import WorktreeFailed
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import (
    DIRECTORY,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    is_file,
    parent_of,
    to_text,
)
from shadowtree.capture.capture import Site, capture
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.size_limits import without_reserve
from shadowtree.revert.contents import Contents
from shadowtree.revert.intents import FINISHED, ROLLED_BACK, ActIntent, Move, decode_intent
from shadowtree.revert.moves import (
    ReadBlob,
    clean_up,
    find_temporaries,
    list_away,
    list_left,
    roll_back,
)
from shadowtree.revert.writer import NO_FILE, Writer


@frozen
class Recovery:
    """What ending an act came to, whether it was finished or rolled back."""

    left: list[RelPath]
    """Finished: what stays, which may be directories at their paths. Rolled back: the paths left alone."""
    notes: list[str]
    rest: str
    """What is out of reach, so that the intent stays, as the end of a sentence; empty if nothing is."""


def recover(opened: OpenStore, site: Site) -> list[str]:
    """Finish or roll back the acts of a process that died; return notes. The caller holds the lock."""
    notes = []
    for row in opened.journal.open_intents():
        intent = decode_intent(row.content)
        is_done = row.is_committed or intent.waits_to_be == FINISHED
        with Writer(site.worktree, site.limits.unwritten_bytes) as writer:
            _store_again(opened, site, writer, intent.moves, is_done=is_done)
            if is_done:
                done = finish_moves(opened, site, writer, row.number, intent)
            else:
                read = Contents(opened.objects, writer).read
                done = undo_moves(opened, site, writer, row.number, intent, read)
        # What waits is noted once, and again when something of it was found.
        if not (intent.waits_to_be and done.rest) or done.left or done.notes:
            verb = FINISHED if is_done else ROLLED_BACK
            notes.append(f"an interrupted {intent.kind} was {verb}{done.rest}")
        notes += done.notes
        if done.left and not is_done:
            paths = ", ".join(to_text(path) for path in sorted(done.left))
            notes.append(f"left alone because they changed in the meantime: {paths}")
    return notes


def finish_moves(opened: OpenStore, site: Site, writer: Writer, number: int, intent: ActIntent) -> Recovery:
    """Remove what a recorded act moved aside, and the intent unless something is out of reach."""
    left = clean_up(intent.moves, writer)
    notes = rescue(opened, site, writer, left)
    away = list_away(intent.moves, writer, is_done=True)
    rest = ActIntent(intent.kind, intent.moves, FINISHED) if away else None
    _replace_intent(opened, number, intent, rest)
    return Recovery(left, notes, _describe_rest(away, writer))


def undo_moves(
    opened: OpenStore,
    site: Site,
    writer: Writer,
    number: int,
    intent: ActIntent,
    read_blob: ReadBlob,
) -> Recovery:
    """Roll back an act; remove the intent, or reduce it to the moves that are out of reach."""
    done = roll_back(intent.moves, writer, read_blob)
    lost = {move.path for move in done.away}
    reached = [move for move in intent.moves if move.path not in lost]
    notes = rescue(opened, site, writer, list_left(reached, writer))
    # Later acts may change the other paths again, so those must not be rolled back twice.
    rest = ActIntent(intent.kind, done.away, ROLLED_BACK) if done.away else None
    _replace_intent(opened, number, intent, rest)
    return Recovery(done.left, notes, _describe_rest(done.away, writer))


def _replace_intent(opened: OpenStore, number: int, intent: ActIntent, rest: ActIntent | None) -> None:
    """Replace an intent by the rest of it, if there is any."""
    if rest == intent:
        return
    if rest is not None:
        opened.journal.add_intent(rest.encode())
    opened.journal.remove_intent(number)


def _describe_rest(away: Sequence[Move], writer: Writer) -> str:
    """Describe for which directories some moves wait, as the end of a sentence."""
    if not away:
        return ""
    homes = {parent_of(move.temporary) for move in away}
    homes = {home for home in homes if home and not writer.list_names(home)}
    tops = sorted(home for home in homes if not any(above in homes for above in ancestors(home)))
    names = ", ".join(to_text(path) for path in tops)
    return f" except in {names}: this waits until what was there is back"


def rescue(opened: OpenStore, site: Site, writer: Writer, places: Collection[RelPath]) -> list[str]:
    """Store the files at `places`, which another program wrote, and remove them; return notes with blob ids.

    A program may save a file at the very moment it is swapped, and again right after. The later version is
    then at the path, and the earlier one only in a temporary. Directories stay, and notes name them.
    """
    files, notes = [], []
    for place in places:
        found = writer.state_of(place)
        if is_file(found):
            files.append(place)
        elif isinstance(found, Unknown) and found.reason != NO_FILE:
            # The next command may be able to read it.
            raise WorktreeFailed(to_text(place), found.reason)
        elif found is not None:
            reason = "something was added to it in the meantime" if found == DIRECTORY else f"it is {NO_FILE}"
            notes.append(f"{to_text(place)} stays: {reason}")
    blobs = _store(opened, site, writer, files)
    for place, blob in blobs.items():
        found = writer.state_of(place, is_settled=True)
        if not isinstance(found, PathState) or found.blob != blob:
            raise WorktreeFailed(to_text(place), "another program is writing to it")
        writer.remove(place)
    return [f"a version saved in the meantime is stored as blob {b.hex()}" for b in blobs.values()] + notes


def _store(
    opened: OpenStore, site: Site, writer: Writer, places: Collection[RelPath]
) -> dict[RelPath, bytes]:
    """Store the contents of files, whatever the rules cover; return the id of each."""
    blobs: dict[RelPath, bytes] = {}
    if places:
        with capture(replace(site, settings=without_reserve(site.settings)), opened) as taken:
            for place in places:
                size, pieces = writer.open_content(place)
                blobs[place] = taken.put_stream(size, pieces)
            with taken.record(site.limits.clock_ns() // 10**9, also=list(blobs.values())):
                pass
    return blobs


def _store_again(
    opened: OpenStore, site: Site, writer: Writer, moves: Sequence[Move], *, is_done: bool
) -> None:
    """Store what will be unlinked and is not in the store any more, unless it was purged.

    The store may have been damaged since the kill. And while an intent waits, other commands go on, and
    messages may be forgotten.
    """
    temporaries, purged = find_temporaries(moves, writer), opened.journal.left_out.tombstones()
    places = []
    for move in moves:
        if move.is_mode_only or purged.covers(move.path):
            continue
        # After the act, only the old state is unlinked; while rolling back, whichever is not needed.
        for state in (move.old,) if is_done else (move.old, move.new):
            if state is None or not is_file(state) or state.blob in purged.blobs:
                continue
            found = [temporaries[move.path]] if is_done else [temporaries[move.path], move.path]
            found = [place for place in found if writer.state_of(place) == state]
            if found and not opened.objects.prove(state.blob):
                places += found
    _store(opened, site, writer, places)
