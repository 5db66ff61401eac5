"""Carry out a plan in the worktree: all of it, or nothing.

    stage ──▶ sync ──▶ swap, look at what came out ──▶ sync ──▶ (the journal says done) ──▶ clean up
      │                     │ not what was expected
      └───── roll back ◀────┘

What is replaced or removed is moved aside under a temporary name in its own directory, and only then looked
at: nobody can save to it any more without being noticed, and no save is lost (invariant 6). It stays there
until the journal says that the act is done, so rolling back restores the very same files, times and all. The
same code rolls back after a failure and after a crash: it looks on the disk how far each move had come.

                        staged      swapped     cleaned up
    a.txt               old         new         new
    .shadowtree-tmp-…   new         old
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Sequence

from shadowtree.base.errors import Conflict, ShadowError, StoreDamaged, WorktreeFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import (
    DIRECTORY,
    TEMPORARY_PREFIX,
    Change,
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
from shadowtree.revert.writer import BEING_WRITTEN, NO_FILE, THIRD_SUFFIX, FileId, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.base.paths import Answer

ReadBlob = Callable[[bytes], Iterable[bytes]]
"""Returns the content of a blob in pieces, each run checked against its id."""

_MEANWHILE = "try again when nothing else is changing it"


@frozen
class Move:
    """One path and what becomes of it."""

    path: RelPath
    old: PathState | None
    new: PathState | None
    temporary: RelPath
    """Where the new state waits before the swap, and the old one after it."""

    @property
    def is_mode_only(self) -> bool:
        """Whether nothing but the permission bits differs."""
        if self.old is None or self.new is None or self.old.blob != self.new.blob:
            return False
        return stat.S_ISREG(self.old.mode) and stat.S_ISREG(self.new.mode)

    @property
    def is_leaving(self) -> bool:
        """Whether it is a directory that goes without anything coming in its place."""
        return self.old == DIRECTORY and self.new is None


def order_moves(changes: Sequence[Change], token: str) -> list[Move]:
    """Put changes into the order in which they can be done, each with its temporary.

    First what goes, then directories that make room, the deepest first, then all that comes, directories
    before what is in them. Rolling back goes through the same list from its end.
    """
    turning = {change.path for change in changes if DIRECTORY in (change.old, change.new)}
    moves = []
    for number, change in enumerate(changes):
        assert not isinstance(change.old, Unknown)
        assert not isinstance(change.new, Unknown)
        home = parent_of(change.path)
        # What comes is staged where there is a directory now that stays one.
        while change.new is not None and home in turning:
            home = parent_of(home)
        name = TEMPORARY_PREFIX + f"{token}-{number}".encode()
        moves.append(Move(change.path, change.old, change.new, join(home, name)))
    files_out = [move for move in moves if move.new is None and not move.is_leaving]
    directories_out = [move for move in moves if move.old == DIRECTORY]
    coming = [move for move in moves if move.new is not None and move.old != DIRECTORY]
    directories_out.sort(key=lambda move: move.path, reverse=True)
    coming.sort(key=lambda move: move.path)
    return [*files_out, *directories_out, *coming]


def carry_out(
    moves: Sequence[Move], writer: Writer, read_blob: ReadBlob, pause: Callable[[], None] = lambda: None
) -> list[Move]:
    """Bring every path to its new state, durably; return the moves that were made.

    A directory that goes stays if something foreign is in it; all else is done, or an error is raised:
    Conflict if another program changed a path. The caller rolls back then. `pause` is called between two
    moves and may raise.
    """
    writer.tell_apart(move.path for move in moves)
    staged: dict[RelPath, FileId] = {}
    waiting = [move for move in moves if move.new is not None and not move.is_mode_only]
    for move in waiting:
        pause()
        assert move.new is not None
        pieces = read_blob(move.new.blob) if move.new.blob else ()
        staged[move.path] = writer.stage(move.temporary, move.new, pieces, instead_of=move.path)
    writer.sync_files([move.temporary for move in waiting])
    own = {move.temporary.rpartition(b"/")[2] for move in moves}
    done: list[Move] = []
    for move in moves:
        pause()
        if _do(move, writer, own):
            done.append(move)
    _check(done, staged, writer)
    # Those in which names changed, without those that are gone by now.
    touched = {parent_of(path) for move in done for path in (move.path, move.temporary)}
    gone = {move.path for move in done if move.old == DIRECTORY}
    writer.sync_directories({path for path in touched if not is_among(path, gone)})
    return done


def _do(move: Move, writer: Writer, own: Collection[bytes]) -> bool:
    """Make one move and look at what it moved aside; False: a directory that has to stay."""
    if move.is_mode_only:
        assert move.new is not None
        found = writer.state_of(move.path)
        # Another name of a file whose bits were changed a moment ago has them already.
        if found != move.new:
            _expect(move.path, move.old, found)
            writer.change_mode(move.path, move.new.mode)
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
    """Make sure that what was moved aside is what the plan expected, and that nobody can change it now."""
    if move.old != DIRECTORY:
        _expect(move.path, move.old, writer.state_of(move.temporary, is_settled=True))
    elif not _holds_only(own, move.temporary, writer):
        raise _changed(move.path, "something was added to it in the meantime")


def _expect(path: RelPath, expected: PathState | None, found: Answer) -> None:
    if found != expected:
        raise _changed(path, found.reason if isinstance(found, Unknown) else "it was changed in the meantime")


def _changed(path: RelPath, reason: str) -> Conflict:
    """Say that a path is not what it was when the plan was made."""
    return Conflict([ConflictingPath(to_text(path), reason, _MEANWHILE)], None)


def _holds_only(own: Collection[bytes], path: RelPath, writer: Writer) -> bool:
    """Return whether a directory holds nothing but temporaries of this act."""
    names = writer.list_names(path)
    return names is not None and all(name in own for name in names)


def _check(done: Sequence[Move], staged: dict[RelPath, FileId], writer: Writer) -> None:
    """Walk to every path anew, and make sure that it is what was put there, or that nothing is there."""
    with writer.reopen() as fresh:
        for move in done:
            if not move.is_mode_only and fresh.identify(move.path) != staged.get(move.path):
                raise _changed(move.path, "it was changed in the meantime")


# After the journal says done


def clean_up(moves: Sequence[Move], writer: Writer) -> list[RelPath]:
    """Remove what was moved aside; return the temporaries that were left: they hold something unexpected."""
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    left = []
    for move in moves:
        if move.is_mode_only:
            continue
        place = _locate(move.temporary, aside, writer)
        if not _discard(place, writer.state_of(place, is_settled=True), [move.old], writer):
            left.append(place)
    # Before the intent goes: by that alone the next command knows of what a power cut brings back.
    _sync_homes(moves, writer)
    return left


def _locate(path: RelPath, aside: dict[RelPath, Move], writer: Writer) -> RelPath:
    """Return where a path is now that directories above it may have been moved aside."""
    parent, name = parent_of(path), path.rpartition(b"/")[2]
    if not parent:
        return path
    if parent in aside:
        place = _locate(aside[parent].temporary, aside, writer)
        if writer.is_directory(place):
            return join(place, name)
    return join(_locate(parent, aside, writer), name)


def _discard(place: RelPath, found: Answer, known: Sequence[PathState | None], writer: Writer) -> bool:
    """Remove a temporary if the store has what is in it; False: it is somebody's, and is left."""
    if found is None:
        return True
    if isinstance(found, Unknown) and found.reason != NO_FILE:
        # Nobody can say now what it is; the next command may.
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


# When it was not done


def roll_back(moves: Sequence[Move], writer: Writer, read_blob: ReadBlob) -> list[RelPath]:
    """Bring every path back to its old state, however far things had come; return those that were left.

    Somebody else's file is never touched: a path that is neither in its old nor in its new state is left.
    """
    writer.tell_apart(move.path for move in moves)
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    left: list[RelPath] = []
    failure: ShadowError | None = None
    stuck: list[RelPath] = []
    for move in reversed(moves):
        # What could not be put back is where it was, and so is all above and below it: only the next try,
        # which may succeed, can tell it from what somebody else put there.
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
    for move in moves:
        # Directories that could not go back to their place are empty by now, or hold what has to stay.
        if DIRECTORY in (move.old, move.new):
            place = _locate(move.temporary, aside, writer)
            if writer.list_names(place) == []:
                writer.remove_directory(place)
    _sync_homes(moves, writer)
    return left


def _sync_homes(moves: Iterable[Move], writer: Writer) -> None:
    """Make the names durable in those directories that are still there."""
    homes = {parent_of(path) for move in moves for path in (move.path, move.temporary)}
    writer.sync_directories({home for home in homes if writer.list_names(home) is not None})


def list_left(moves: Sequence[Move], writer: Writer) -> list[RelPath]:
    """List the temporaries that are left after the rollback: they hold what another program wrote."""
    aside = {move.path: move for move in moves if move.old == DIRECTORY}
    places = [_locate(move.temporary, aside, writer) for move in moves if not move.is_mode_only]
    found = [name for place in places for name in (place, RelPath(place + THIRD_SUFFIX))]
    return [place for place in found if writer.identify(place) is not None]


def _discard_unused(place: RelPath, found: Answer, move: Move, writer: Writer, read_blob: ReadBlob) -> bool:
    """Remove a temporary that is not needed, also one whose staging was not finished."""
    if _discard(place, found, [move.old, move.new], writer):
        return True
    if move.new is None or not move.new.blob or not writer.is_beginning(place, read_blob(move.new.blob)):
        return False
    writer.remove(place)
    return True


def _roll_back(move: Move, place: RelPath, writer: Writer, read_blob: ReadBlob) -> bool:
    """Roll one move back; False: another program's content is at the path, or stayed in the temporary."""
    _mend_names(move, place, writer)
    # An editor may have what was moved aside open still, and be about to write to it.
    there, aside = writer.state_of(move.path), writer.state_of(place, is_settled=True)
    _require_read(move.path, there)
    if move.is_mode_only:
        if there == move.new and move.old is not None:
            writer.change_mode(move.path, move.old.mode)
        return there in (move.old, move.new)
    if aside is None:
        # Either nothing was done, or what came has been moved in.
        return there != move.new or move.old is not None or _move_out(move, place, writer)
    if move.old is None or there == move.old:
        return _discard_unused(place, aside, move, writer, read_blob)
    if there is None:
        return _put_back(move, place, aside, writer, read_blob)
    # Of two directories, the one that is not empty is somebody's.
    if move.new is not None and there == move.new and (aside != move.new or writer.list_names(place)):
        return _swap_back(move, place, aside, writer)
    if aside == DIRECTORY:
        # If somebody made the directory again, what is in this one goes back there.
        return there == DIRECTORY
    return _discard_unused(place, aside, move, writer, read_blob) and aside == move.new


def _require_read(path: RelPath, found: Answer) -> None:
    """Raise WorktreeFailed if a path cannot be read: then it is not known to be another program's (I7)."""
    if isinstance(found, Unknown) and found.reason not in (NO_FILE, BEING_WRITTEN):
        raise WorktreeFailed(to_text(path), found.reason)


def _put_back(move: Move, place: RelPath, aside: Answer, writer: Writer, read_blob: ReadBlob) -> bool:
    """Bring back what was moved aside to where nothing is."""
    is_staged = move.new is not None and aside != move.old
    if is_staged and _discard_unused(place, aside, move, writer, read_blob):
        return True
    if writer.list_names(parent_of(move.path)) is None:
        # Somebody put something else where its directory was.
        _discard_unused(place, aside, move, writer, read_blob)
        return False
    writer.move(place, move.path)
    return True


def _mend_names(move: Move, place: RelPath, writer: Writer) -> None:
    """Put names back where swapping takes three steps, or moving two, and somebody died in between."""
    third = RelPath(place + THIRD_SUFFIX)
    for second, first in ((third, place), (third, move.path), (place, move.path)):
        # A file that has both names, as `move` leaves it; a directory never has.
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
    """Remove what came, unless somebody else has changed it."""
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
        # Saved over in this very moment: it is somebody's, and goes back to where they put it.
        writer.exchange(place, move.path)
        _require_read(move.path, found)
        return False
    return _discard(place, move.new, [move.new], writer)


# Intents


def encode_intent(kind: str, moves: Iterable[Move]) -> bytes:
    """Encode an act as it is recorded before it begins: which one, and every move in order."""
    import json

    rows = [[move.path.hex(), move.temporary.hex(), _encode(move.old), _encode(move.new)] for move in moves]
    return json.dumps([kind, rows]).encode()


def decode_intent(content: bytes) -> tuple[str, list[Move]]:
    """Read which act it was, and its moves."""
    import json

    try:
        kind, rows = json.loads(content)
        return str(kind), [
            Move(_path(path), _decode(old), _decode(new), _path(temporary))
            for path, temporary, old, new in rows
        ]
    except (ValueError, TypeError, LookupError) as error:
        raise StoreDamaged("the record of an interrupted operation cannot be read") from error


def _path(text: str) -> RelPath:
    path = RelPath(bytes.fromhex(text))
    if not path or any(name in (b"", b".", b"..", b".git") for name in path.split(b"/")):
        raise ValueError(text)
    return path


def _encode(state: PathState | None) -> list[Any] | None:  # Any: JSON
    return None if state is None else [state.mode, state.blob.hex()]


def _decode(row: Any) -> PathState | None:  # Any: JSON
    return None if row is None else PathState(int(row[0]), bytes.fromhex(row[1]))
