"""Frames: what the daemon and a command say to each other, each with its length before it.

A frame is a tuple of plain values, written by `marshal` in the form that every Python of today reads: to
import `json` would cost a command half as much as Python's own start. Reading it is safe from one's own user
alone, and both sides have made sure of that by then.
"""

from __future__ import annotations

import marshal
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Connection(Protocol):
        """What a channel needs of a socket."""

        def sendall(self, data: bytes, /) -> None:
            """Send all of it."""

        def recv_into(self, buffer: memoryview, /) -> int:
            """Receive something, and say how much."""

        def close(self) -> None:
            """Let go of it."""


_FORM = 2
"""Of `marshal`: numbers, texts, lists, tuples and dictionaries have not changed since."""
_HEADER_BYTES = 4
_MOST_BYTES = 1 << 30
"""A frame that claims to be longer is none."""


class Channel:
    """One end of a conversation. Several threads may send, one receives."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = allocate_lock()

    def send(self, *frame: Any) -> None:  # Any: plain values
        """Send one frame: its kind, and what belongs to it."""
        body = marshal.dumps(frame, _FORM)
        with self._sending:
            self._connection.sendall(len(body).to_bytes(_HEADER_BYTES, "big") + body)

    def receive(self) -> tuple[Any, ...] | None:  # Any: plain values
        """Wait for a frame; None: the other side has closed the conversation.

        Raises TimeoutError if the socket's time is up, and ConnectionError for what is no frame.
        """
        header = self._read(_HEADER_BYTES)
        if header is None:
            return None
        size = int.from_bytes(header, "big")
        body = self._read(size) if size <= _MOST_BYTES else None
        if body is None:
            raise ConnectionError("the conversation broke off")
        try:
            frame = marshal.loads(body)
        except (EOFError, ValueError, TypeError) as error:
            raise ConnectionError("that is no frame") from error
        if not isinstance(frame, tuple) or not frame:
            raise ConnectionError("that is no frame")
        return frame

    def close(self) -> None:
        """End the conversation."""
        self._connection.close()

    def _read(self, size: int) -> bytearray | None:
        """Read so many bytes; None if there are none at all."""
        content = bytearray(size)
        view = memoryview(content)
        while view:
            received = self._connection.recv_into(view)
            if not received:
                if len(view) == size:
                    return None
                raise ConnectionError("the conversation broke off")
            view = view[received:]
        return content
