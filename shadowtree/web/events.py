"""Server-sent events: what any process records or undoes, as it happens.

A stream waits for the next update and for the client at the same time, so it ends as soon as the client
leaves.
"""

from __future__ import annotations

import json
import select
import socket
from collections import deque
from collections.abc import Callable

from shadowtree.base.errors import ShadowError
from shadowtree.results.messages import Update
from shadowtree.shadow import Shadow

_ALIVE_S = 15.0
"""How often a comment is sent, so that nothing between us and the client drops an idle connection."""


def stream_updates(
    shadow: Shadow, after: int, connection: socket.socket, write: Callable[[bytes], object]
) -> None:
    """Write the updates after number `after`, until the client leaves or following the store fails."""
    waiting: deque[Update | BaseException] = deque()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)

        def put(update: Update | BaseException) -> None:
            waiting.append(update)
            try:
                theirs.send(b"\0")
            except BlockingIOError:
                pass  # It is full, so the reader wakes up anyway.

        try:
            subscription = shadow.subscribe(put, after=after, on_error=put)
        except ShadowError as error:
            write(_write_event("end", _describe_error(error)))
            return
        with subscription:
            write(_write_event("hello", {"number": after}))
            while True:
                ready, _, _ = select.select([ours, connection], [], [], _ALIVE_S)
                if connection in ready:
                    return  # A client sends nothing more: it has hung up, or breaks the protocol.
                if ours in ready:
                    ours.recv(4096)
                if not ready:
                    write(b": still here\n\n")
                while waiting:
                    update = waiting.popleft()
                    if isinstance(update, BaseException):
                        write(_write_event("end", _describe_error(update)))
                        return
                    write(_write_event("update", update.to_dict(), update.number))


def _write_event(kind: str, document: object, number: int | None = None) -> bytes:
    id = "" if number is None else f"id: {number}\n"
    return f"event: {kind}\n{id}data: {json.dumps(document)}\n\n".encode("ascii")


def _describe_error(error: BaseException) -> dict[str, str]:
    message = str(error) if isinstance(error, ShadowError) else "following the store failed"
    return {"error": type(error).__name__, "message": message}
