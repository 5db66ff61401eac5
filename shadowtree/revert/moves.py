"""Carry out a plan in the worktree: all of it, or nothing.

    stage ──▶ sync ──▶ swap, verify what came out ──▶ sync ──▶ (the journal says done) ──▶ clean up
      │                     │ not what was expected
      └───── roll back ◀────┘

A file that is replaced or removed is first moved aside to a temporary name in its own directory, and only
then verified: no program can save to it unnoticed any more, and no save is lost (invariant 6). It stays there
until the journal says that the act is done, so rolling back restores the very same file, including its times.
The same code rolls back after a failure and after a crash: it checks on disk how far each move got.

                          staged      swapped     cleaned up
    a.txt                 old         new         new
    .shadowtree-tmp-…-0   new         old
    .shadowtree-tmp-…-00  the mark: everything was staged
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Sequence

from shadowtree.base.errors import Conflict, ShadowError, StoreDamaged, WorktreeFailed
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    is_among,
    join,
    parent_of,
    to_text,
)
from shadowtree.results.outcomes import ConflictingPath
from shadowtree.revert.intents import Move
from shadowtree.revert.writer import BEING_WRITTEN, NO_FILE, THIRD_SUFFIX, FileId, Writer
from shadowtree.store.git_format import blob_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer

ReadBlob = Callable[[bytes], Iterable[bytes]]
"""Returns the content of a blob in pieces; each read is checked against its id."""

_MEANWHILE = "try again when nothing else is changing it"
_MARK = PathState(stat.S_IFREG | 0o600, blob_id(b""))
"""An empty file; see `_mark_of`."""


def identify_files(moves: Sequence[Move], writer: Writer) -> list[Move]:
    """Note of which files only the bits change: these are never rolled back on other files."""
    found = {move.path: writer.identify(move.path) for move in moves if move.is_mode_only}
    return [replace(m, file=file[:2]) if (file := found.get(m.path)) is not None else m for m in moves]


def carry_out(
    moves: Sequence[Move], writer: Writer, read_blob: ReadBlob, pause: Callable[[], None] = lambda: None
) -> list[Move]:
    """Bring every path to its new state, durably; return the moves that were made.

    A directory to remove stays if something foreign is in it. Every other move is made, or an error is raised
    (Conflict if another program changed a path), and the caller must roll back. `pause` is called before each
    step and may raise.
    """
    writer.tell_apart(move.path for move in moves)
    staged: dict[RelPath, FileId] = {}
    waiting = [move for move in moves if move.new is not None and not move.is_mode_only]
    for move in waiting:
        pause()
        assert move.new is not None
        pieces = read_blob(move.new.blob) if move.new.blob else ()
        staged[move.path] = writer.stage(move.temporary, move.new, pieces, instead_of=move.path)
    for mark in _list_marks(moves):
        pause()
        writer.stage(mark, _MARK, (), instead_of=mark)
    writer.sync_files([move.temporary for move in waiting])
    own = {move.temporary.rpartition(b"/")[2] for move in moves}
    done: list[Move] = []
    for move in moves:
        pause()
        if _do(move, writer, own):
            done.append(move)
    _check(done, staged, writer)
    # Sync the directories in which names changed, except those that are gone.
    touched = {parent_of(path) for move in done for path in (move.path, move.temporary)}
    gone = {move.path for move in done if move.old == DIRECTORY}
    writer.sync_directories({path for path in touched if not is_among(path, gone)})
    return done


def _mark_of(move: Move) -> RelPath:
    """Return the path of the mark in a directory of temporaries: it says that all of them were staged.

    A path that did not exist before the act and now holds the new state is ours only if the mark is there and
    the temporary is not. Otherwise somebody else may have put the same bytes there, as `git checkout` does
    after a kill.
    """
    # Temporaries are numbered without leading zeros.
    return RelPath(move.temporary.rpartition(b"-")[0] + b"-00")


def _list_marks(moves: Iterable[Move]) -> list[RelPath]:
    return sorted({_mark_of(move) for move in moves if move.old is None})


def _do(move: Move, writer: Writer, own: Collection[bytes]) -> bool:
    """Make one move and verify what it moved aside; return False for a directory that has to stay."""
    if move.is_mode_only:
        assert move.new is not None
        # Identified before it is read, so that a save after that shows.
        file, found = writer.identify(move.path), writer.state_of(move.path)
        # A hard link to a file whose bits were just changed has them already.
        if found != move.new:
            _expect(move.path, move.old, found)
            if file is None or not writer.change_mode(move.path, move.new.mode, file[:2]):
                raise _changed(move.path, "it was changed in the meantime")
    elif move.old is None:
        _move_in(move, writer)
    elif move.new is None:
        if move.is_leaving and not _holds_only(own, move.path, writer):
            return False
        writer.move(move.path, move.temporary)
        _verify(move, writer, own)
    else:
        writer.exchange(move.temporary, move.path)
        _verify(move, writer, own)
    return True


def _move_in(move: Move, writer: Writer) -> None:
    try:
        writer.move(move.temporary, move.path)
    except WorktreeFailed as error:
        if writer.state_of(move.path) is not None:
            raise _changed(move.path, "something was created there in the meantime") from error
        raise


def _verify(move: Move, writer: Writer, own: Collection[bytes]) -> None:
    """Raise Conflict unless what was moved aside is what the plan expected, and nobody can change it now."""
    if move.old != DIRECTORY:
        _expect(move.path, move.old, writer.state_of(move.temporary, is_settled=True))
    elif not _holds_only(own, move.temporary, writer):
        raise _changed(move.path, "something was added to it in the meantime")


def _expect(path: RelPath, expected: PathState | None, found: Answer) -> None:
    if found != expected:
        raise _changed(path, found.reason if isinstance(found, Unknown) else "it was changed in the meantime")


def _changed(path: RelPath, reason: str) -> Conflict:
    """Return the error for a path that changed after the plan was made."""
    return Conflict([ConflictingPath(to_text(path), reason, _MEANWHILE)], None)


def _holds_only(own: Collection[bytes], path: RelPath, writer: Writer) -> bool:
    """Return whether a directory holds nothing but temporaries of this act."""
    names = writer.list_names(path)
    return names is not None and all(name in own for name in names)


def _check(done: Sequence[Move], staged: dict[RelPath, FileId], writer: Writer) -> None:
    """Walk to every path again; raise Conflict unless it holds what was put there, or nothing if removed."""
    with writer.reopen() as fresh:
        for move in done:
            if not move.is_mode_only and fresh.identify(move.path) != staged.get(move.path):
                raise _changed(move.path, "it was changed in the meantime")


# After the act is recorded


def clean_up(moves: Sequence[Move], writer: Writer) -> list[RelPath]:
    """Remove what was moved aside; return what stays, as it holds something unexpected.

    These are temporaries, and directories that are back at their paths because something was added to them.
    """
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    left, filled = _remove_marks(moves, writer), []
    # Valid all the time, because each directory is removed after everything in it.
    places: dict[RelPath, RelPath] = {}
    for move in moves:
        if move.is_mode_only:
            continue
        place = _locate(move.temporary, aside, writer, places)
        found = writer.state_of(place, is_settled=True)
        if not _discard(place, found, [move.old], writer):
            if found == move.old == DIRECTORY:
                filled.append(move)
            else:
                left.append(place)
    # The deepest were first: now each comes after the one above it.
    left += [_bring_back(move, _locate(move.temporary, aside, writer), writer) for move in reversed(filled)]
    # Sync before the intent is removed: only the intent names temporaries that a power cut may bring back.
    _sync_homes(moves, writer)
    return left


def _bring_back(move: Move, place: RelPath, writer: Writer) -> RelPath:
    """Move a directory back to its path if nothing is there; return where it is then."""
    is_free = writer.identify(move.path) is None and _is_directory(parent_of(move.path), writer)
    if not is_free:
        return place
    writer.move(place, move.path)
    return move.path


def _remove_marks(moves: Iterable[Move], writer: Writer) -> list[RelPath]:
    """Remove the marks; return those that stay because somebody wrote into them."""
    left = []
    for mark in _list_marks(moves):
        found = writer.state_of(mark, is_settled=True)
        # Some file systems do not keep its permission bits.
        known = [found] if isinstance(found, PathState) and found.blob == _MARK.blob else []
        if not _discard(mark, found, known, writer):
            left.append(mark)
    return left


def list_away(moves: Sequence[Move], writer: Writer, *, is_done: bool = False) -> list[Move]:
    """List the moves that are out of reach: the directory of their temporaries is not there, and not aside.

    It may be back later: somebody moved it away, or replaced it by a link. If it is empty and should not be,
    it is taken for a mount point. `is_done`: the moves were cleaned up, so directories that they removed are
    gone for good, and changed bits are what they should be.
    """
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    moves = [move for move in moves if not (is_done and move.is_mode_only)]
    homes = {parent_of(move.temporary): move.temporary for move in moves}
    filled = {parent_of(move.path) for move in moves if (move.new if is_done else move.old) is not None}
    lost: set[RelPath] = set()
    places: dict[RelPath, RelPath] = {}
    for home, temporary in homes.items():
        place = parent_of(_locate(temporary, aside, writer, places))
        is_empty = home and home == place and home in filled and writer.is_empty(home)
        if is_empty or not (_is_directory(place, writer) or (is_done and is_among(home, aside))):
            lost.add(home)
    return [move for move in moves if parent_of(move.temporary) in lost or move.path in lost]


def _is_directory(path: RelPath, writer: Writer) -> bool:
    return not path or writer.is_directory(path)


def find_temporaries(moves: Sequence[Move], writer: Writer) -> dict[RelPath, RelPath]:
    """Return by its path where the temporary of each move is now."""
    aside, places = {move.path: move for move in moves if move.old == DIRECTORY}, dict[RelPath, RelPath]()
    return {move.path: _locate(move.temporary, aside, writer, places) for move in moves}


def _locate(
    path: RelPath, aside: dict[RelPath, Move], writer: Writer, places: dict[RelPath, RelPath] | None = None
) -> RelPath:
    """Return where a path is now, because directories above it may have been moved aside.

    `places` caches where directories are; it is valid until one of them is moved.
    """
    places = {} if places is None else places
    waiting, above = [], parent_of(path)
    # Not by recursion: a tree may be deeper than Python's stack.
    while above and above not in places:
        waiting.append(above)
        above = parent_of(above)
    place = places.get(above, ROOT)
    for above in reversed(waiting):
        home, place = place, join(place, above.rpartition(b"/")[2])
        if above in aside:
            temporary = join(home, aside[above].temporary.rpartition(b"/")[2])
            place = temporary if writer.is_directory(temporary) else place
        places[above] = place
    return join(place, path.rpartition(b"/")[2])


def _discard(place: RelPath, found: Answer, known: Sequence[PathState | None], writer: Writer) -> bool:
    """Remove a temporary if it is in a `known` state; False if it is not, and stays."""
    if found is None:
        return True
    if isinstance(found, Unknown) and found.reason != NO_FILE:
        # Its state cannot be determined now; the next command may succeed.
        raise WorktreeFailed(to_text(place), found.reason)
    if found == DIRECTORY:
        if writer.list_names(place):
            return False
        writer.remove_directory(place)
        return True
    if found not in known:
        return False
    writer.remove(place)
    return True


# Rolling back


@frozen
class RolledBack:
    """The paths that a rollback did not bring back."""

    left: list[RelPath]
    """Paths left alone, because they changed in the meantime."""
    away: list[Move]
    """Moves that are out of reach now; see `list_away`."""


def roll_back(moves: Sequence[Move], writer: Writer, read_blob: ReadBlob) -> RolledBack:
    """Bring every path back to its old state, however far its move got; return which ones are not.

    Nobody else's file is ever touched: a path that is in neither its old nor its new state is left alone.
    """
    writer.tell_apart(move.path for move in moves)
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    left: list[RelPath] = []
    failure: ShadowError | None = None
    stuck: list[RelPath] = []
    for move in reversed(moves):
        # If a path could not be put back, leave everything above and below it as it is: only the next try,
        # which may succeed, can distinguish our files there from those of somebody else.
        if is_among(move.path, stuck) or any(move.path in ancestors(path) for path in stuck):
            stuck.append(move.path)
            continue
        try:
            if not _roll_back(move, _locate(move.temporary, aside, writer), writer, read_blob):
                left.append(move.path)
        except ShadowError as error:
            failure = failure or error
            stuck.append(move.path)
    if failure is not None:
        raise failure
    away = list_away(moves, writer)
    for move in moves:
        # Directories that could not be moved back are empty by now, or hold something that has to stay.
        if DIRECTORY in (move.old, move.new):
            place = _locate(move.temporary, aside, writer)
            if writer.is_empty(place):
                writer.remove_directory(place)
    _remove_marks(moves, writer)
    _sync_homes(moves, writer)
    lost = {move.path for move in away}
    return RolledBack([path for path in left if path not in lost], away)


def _sync_homes(moves: Iterable[Move], writer: Writer) -> None:
    """Make names durable in those directories of the moves that still exist."""
    homes = {parent_of(path) for move in moves for path in (move.path, move.temporary)}
    writer.sync_directories({home for home in homes if _is_directory(home, writer)})


def list_left(moves: Sequence[Move], writer: Writer) -> list[RelPath]:
    """List the temporaries that are left after a rollback: they hold what another program wrote."""
    temporaries = find_temporaries(moves, writer)
    places = [temporaries[move.path] for move in moves if not move.is_mode_only]
    found = [name for place in places for name in (place, RelPath(place + THIRD_SUFFIX))]
    found += _list_marks(moves)
    return [place for place in found if writer.identify(place) is not None]


def _discard_unused(place: RelPath, found: Answer, move: Move, writer: Writer, read_blob: ReadBlob) -> bool:
    """Remove a temporary that is not needed, even one that was only partly staged; False if it stays."""
    if _discard(place, found, [move.old, move.new], writer):
        return True
    if move.new is None or not move.new.blob:
        return False
    try:
        if not writer.is_beginning(place, read_blob(move.new.blob)):
            return False
    except StoreDamaged:
        # The content was forgotten or purged since, so this cannot be told from a file of another program.
        return False
    writer.remove(place)
    return True


def _roll_back(move: Move, place: RelPath, writer: Writer, read_blob: ReadBlob) -> bool:
    """Roll one move back; False if another program's content is at the path, or stays in the temporary."""
    _mend_names(move, place, writer)
    # An editor may still have the file that was moved aside open, and be about to write to it.
    there, aside = writer.state_of(move.path), writer.state_of(place, is_settled=True)
    _require_read(move.path, there)
    if move.is_mode_only:
        if there == move.new and move.old is not None:
            return writer.change_mode(move.path, move.old.mode, move.file)
        return there == move.old
    if aside is None:
        if there == move.old:
            return True
        is_ours = move.old is None and there == move.new and writer.identify(_mark_of(move)) is not None
        return is_ours and _move_out(move, place, writer)
    if move.old is None or there == move.old:
        return _discard_unused(place, aside, move, writer, read_blob)
    if there is None:
        return _put_back(move, place, aside, writer, read_blob)
    # If both are directories, the one that is not empty is somebody else's.
    if move.new is not None and there == move.new and (aside != move.new or writer.list_names(place)):
        return _swap_back(move, place, aside, writer)
    if aside == DIRECTORY:
        # If somebody created the directory again, the contents of this one go back there.
        return there == DIRECTORY
    return _discard_unused(place, aside, move, writer, read_blob) and aside == move.new


def _require_read(path: RelPath, found: Answer) -> None:
    """Raise WorktreeFailed if a path cannot be read: it may not be another program's (invariant 7)."""
    if isinstance(found, Unknown) and found.reason not in (NO_FILE, BEING_WRITTEN):
        raise WorktreeFailed(to_text(path), found.reason)


def _put_back(move: Move, place: RelPath, aside: Answer, writer: Writer, read_blob: ReadBlob) -> bool:
    """Move the old state back to a path where nothing is now; False if it cannot go there."""
    is_staged = move.new is not None and aside != move.old
    if is_staged and _discard_unused(place, aside, move, writer, read_blob):
        return True
    if writer.list_names(parent_of(move.path)) is None:
        # Something else is now in place of its directory.
        _discard_unused(place, aside, move, writer, read_blob)
        return False
    writer.move(place, move.path)
    return True


def _mend_names(move: Move, place: RelPath, writer: Writer) -> None:
    """Restore names after a crash in a swap that takes three steps, or in a move that takes two."""
    third = RelPath(place + THIRD_SUFFIX)
    for second, first in ((third, place), (third, move.path), (place, move.path)):
        # A file with both names, as an interrupted `move` leaves it; a directory never has two.
        found = writer.identify(second)
        if found is not None and found == writer.identify(first):
            writer.remove(second)
    if writer.identify(third) is None:
        return
    if writer.identify(place) is not None and writer.identify(move.path) is None:
        writer.move(place, move.path)
    if writer.identify(place) is None:
        writer.move(third, place)
    else:
        _discard(third, writer.state_of(third, is_settled=True), [move.old, move.new], writer)


def _move_out(move: Move, place: RelPath, writer: Writer) -> bool:
    """Remove the new state, unless somebody else changed it; then return False."""
    if move.new == DIRECTORY:
        if writer.list_names(move.path):
            return False
        writer.remove_directory(move.path)
        return True
    writer.move(move.path, place)
    found = writer.state_of(place, is_settled=True)
    if found == move.new:
        writer.remove(place)
        return True
    writer.move(place, move.path)
    _require_read(move.path, found)
    return False


def _swap_back(move: Move, place: RelPath, aside: Answer, writer: Writer) -> bool:
    if move.new == DIRECTORY and writer.list_names(move.path):
        _discard(place, aside, [move.old], writer)
        return False
    writer.exchange(place, move.path)
    found = writer.state_of(place, is_settled=True)
    if found != move.new:
        # A program saved to the path at this very moment: its file goes back there.
        writer.exchange(place, move.path)
        _require_read(move.path, found)
        return False
    return _discard(place, move.new, [move.new], writer)
