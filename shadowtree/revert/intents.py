"""Intents: what an act is about to do, as the journal keeps it until the act is finished or rolled back.

["undo", moves]                   running, or interrupted
["undo", moves, "rolled back"]    rolled back but for these moves, which are out of reach
["undo", moves, "finished"]       recorded, but these moves could not be cleaned up yet
"""

from __future__ import annotations

from collections.abc import Sequence

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import PathState, RelPath
from shadowtree.revert.moves import Move

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FINISHED, ROLLED_BACK = "finished", "rolled back"


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

        rows = [[m.path.hex(), m.temporary.hex(), _encode(m.old), _encode(m.new)] for m in self.moves]
        return json.dumps([self.kind, rows, *([self.waits_to_be] if self.waits_to_be else [])]).encode()


def decode_intent(content: bytes) -> ActIntent:
    """Decode the content of an intent; raise StoreDamaged if it is none."""
    import json

    try:
        kind, rows, *waits = json.loads(content)
        moves = [
            Move(_path(path), _decode(old), _decode(new), _path(temporary))
            for path, temporary, old, new in rows
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
