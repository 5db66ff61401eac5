"""Acts in the worktree as they are written down before they begin, so that a crash can be made good."""

from __future__ import annotations

from collections.abc import Iterable

from shadowtree.apply import Move
from shadowtree.errors import StoreDamaged
from shadowtree.paths import RelPath
from shadowtree.state import PathState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def encode_intent(kind: str, moves: Iterable[Move]) -> bytes:
    """Write an act down: which one, and every move in order."""
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
        raise StoreDamaged("an interrupted act cannot be read") from error


def _path(text: str) -> RelPath:
    path = RelPath(bytes.fromhex(text))
    if not path or any(name in (b"", b".", b"..", b".git") for name in path.split(b"/")):
        raise ValueError(text)
    return path


def _encode(state: PathState | None) -> list[Any] | None:  # Any: JSON
    return None if state is None else [state.mode, state.blob.hex()]


def _decode(row: Any) -> PathState | None:  # Any: JSON
    return None if row is None else PathState(int(row[0]), bytes.fromhex(row[1]))
