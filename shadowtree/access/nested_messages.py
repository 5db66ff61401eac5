"""Messages that `with` blocks of this process record: a session records one at a time."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager

from shadowtree.base.errors import InvalidInput

_recording: set[tuple[str, str]] = set()
"""The stores and sessions in which a block is recording a message, whichever `Shadow` it belongs to."""
_mutex = allocate_lock()


@contextmanager
def refuse_nested(store: str, session: str) -> Iterator[None]:
    """Mark the body as recording a message of a session; raise InvalidInput if one already is."""
    place = store, session
    with _mutex:
        if place in _recording:
            raise InvalidInput(f"messages cannot be nested: session {session!r} already has one open")
        _recording.add(place)
    try:
        yield
    finally:
        _recording.discard(place)
