"""What a push is to do, and what it has to send for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shadowtree.base.frozen import frozen


@frozen
class Missing:
    """An object that has to be sent."""

    id: bytes
    base: bytes | None = None
    """An object of its kind that the other side has by then, and that it is likely to be similar to."""


@frozen
class PushPlan:
    """What to do about the refs that a remote has."""

    updates: Mapping[bytes, bytes | None]
    """What each ref is to name, by its raw id; None: it is to go."""
    missing: Callable[[], Iterable[Missing]] | None = None
    """Lists what has to be sent first; None: find out what that is."""
