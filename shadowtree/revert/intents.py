"""Intents: the moves of an act, as the journal keeps them until they are finished or rolled back.

["undo", moves]                   running, or interrupted
["undo", moves, "rolled back"]    rolled back but for these moves, which are out of reach
["undo", moves, "finished"]       recorded, but these moves could not be cleaned up yet
"""

from __future__ import annotations

import stat
from collections.abc import Sequence

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import (
    DIRECTORY,
    TEMPORARY_PREFIX,
    Change,
    PathState,
    RelPath,
    Unknown,
    join,
    parent_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FINISHED, ROLLED_BACK = "finished", "rolled back"


@frozen
class Move:
    """One path and what becomes of it."""

    path: RelPath
    old: PathState | None
    new: PathState | None
    temporary: RelPath
    """Where the new state waits before the swap, and the old one after it."""
    file: tuple[int, int] | None = None
    """Inode and mtime of a file of which only the bits change."""

    @property
    def is_mode_only(self) -> bool:
        """Whether only the permission bits differ."""
        if self.old is None or self.new is None or self.old.blob != self.new.blob:
            return False
        return stat.S_ISREG(self.old.mode) and stat.S_ISREG(self.new.mode)

    @property
    def is_leaving(self) -> bool:
        """Whether it is a directory that is removed and not replaced."""
        return self.old == DIRECTORY and self.new is None


def order_moves(changes: Sequence[Change], token: str) -> list[Move]:
    """Return moves in an order in which they can be made, each with its temporary.

    First come files to remove, then directories to remove or replace, the deepest first, then everything new
    or changed, directories before their contents. Rolling back goes through the same list from its end.
    """
    turning = {change.path for change in changes if DIRECTORY in (change.old, change.new)}
    moves = []
    for number, change in enumerate(changes):
        assert not isinstance(change.old, Unknown)
        assert not isinstance(change.new, Unknown)
        home = parent_of(change.path)
        # The new state is staged in the nearest directory above that exists now and stays a directory.
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


@frozen
class ActIntent:
    """The content of an intent."""

    kind: str
    """What act it is, such as `undo`."""
    moves: Sequence[Move]
    """In their order."""
    waits_to_be: str | None = None
    """The rest of an act that was FINISHED or ROLLED_BACK as far as possible; None: nothing was tried yet."""

    def encode(self) -> bytes:
        """Encode it for the journal."""
        import json

        rows = [[m.path.hex(), m.temporary.hex(), _encode(m.old), _encode(m.new), m.file] for m in self.moves]
        return json.dumps([self.kind, rows, *([self.waits_to_be] if self.waits_to_be else [])]).encode()


def decode_intent(content: bytes) -> ActIntent:
    """Decode the content of an intent; raise StoreDamaged if it is none."""
    import json

    try:
        kind, rows, *waits = json.loads(content)
        moves = [
            Move(_path(path), _decode(old), _decode(new), _path(temporary), file and (file[0], file[1]))
            for path, temporary, old, new, file in rows
        ]
        if waits not in ([], [FINISHED], [ROLLED_BACK]):
            raise ValueError(waits)
        return ActIntent(str(kind), moves, *waits)
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
