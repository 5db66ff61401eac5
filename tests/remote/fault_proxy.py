"""A proxy between a client and a server that counts bytes, and causes a fault at an exact byte.

It counts what passes, and stores where each piece that it read ended. So a first run without faults shows
where messages begin and end, and later runs cause faults there.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

UP, DOWN = "up", "down"
"""From the client to the server, and from the server to the client."""


@dataclass(frozen=True)
class Fault:
    """A fault and its place: in the first connection, after this many bytes in a direction."""

    kind: str
    """`cut` ends both directions; `truncate` ends this one, as if it were complete; `corrupt` inverts the
    next byte; `delay` sends nothing more for some time.
    """
    direction: str
    at: int


@dataclass
class Counts:
    """What passed through."""

    up: int = 0
    down: int = 0
    connections: int = 0
    turns: int = 0
    """How often the client spoke after the server, plus one for the first time."""
    pieces: dict[str, list[int]] = field(default_factory=lambda: {UP: [], DOWN: []})
    """For the first connection: where each piece that was read ended."""
    content: dict[str, bytearray] = field(default_factory=lambda: {UP: bytearray(), DOWN: bytearray()})


class FaultProxy:
    """Listens on its own port and passes everything on. A context manager."""

    def __init__(self, port: int, fault: Fault | None = None, delay_s: float = 3) -> None:
        self._upstream = port
        self._fault = fault
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._last = ""
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self.port = int(self._listener.getsockname()[1])
        self.counts = Counts()
        self.has_struck = False

    def __enter__(self) -> FaultProxy:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._is_closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            _end(each)
        for thread in self._threads:
            thread.join(10)
        for each in self._open:
            each.close()

    def take_counts(self) -> Counts:
        """Return the counts since the last call."""
        with self._lock:
            taken, self.counts, self._last = self.counts, Counts(), ""
        return taken

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream), 10)
            except OSError:
                return
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            self.counts.connections += 1
            is_first = self.counts.connections == 1
            self._start(self._pass_on, client, server, UP, is_first)
            self._start(self._pass_on, server, client, DOWN, is_first)

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str, is_first: bool) -> None:
        fault = self._fault if is_first and self._fault and self._fault.direction == direction else None
        passed = 0
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                self._count(direction, piece, is_first)
                if fault is not None and passed + len(piece) > fault.at:
                    self.has_struck = True
                    before = fault.at - passed
                    if before > 0:
                        target.sendall(piece[:before])
                    piece = self._strike(fault, source, target, piece[max(before, 0) :])
                    fault = None
                    if not piece:
                        return
                target.sendall(piece)
                passed += len(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _strike(self, fault: Fault, source: socket.socket, target: socket.socket, rest: bytes) -> bytes:
        """Cause the fault; return what is still to be passed on."""
        if fault.kind == "cut":
            _end(source)
            _end(target)
            return b""
        if fault.kind == "truncate":
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                source.shutdown(socket.SHUT_RD)
            return b""
        if fault.kind == "corrupt":
            return bytes([rest[0] ^ 0x55]) + rest[1:]
        deadline = time.monotonic() + self._delay_s
        while time.monotonic() < deadline and not self._is_closed:
            time.sleep(0.02)
        return rest

    def _count(self, direction: str, piece: bytes, is_first: bool) -> None:
        with self._lock:
            counts = self.counts
            if direction == UP:
                counts.up += len(piece)
                counts.turns += self._last != UP
            else:
                counts.down += len(piece)
            self._last = direction
            if is_first:
                counts.content[direction] += piece
                counts.pieces[direction].append(len(counts.content[direction]))


def find_boundaries(counts: Counts) -> list[tuple[str, int]]:
    """Return where messages begin: each pkt-line, each piece as it was read, and the middle of the rest."""
    found = set()
    for direction in (UP, DOWN):
        content = bytes(counts.content[direction])
        ends = {0, *counts.pieces[direction][:-1]}
        position = 0
        while position < len(content):
            head = content[position : position + 4]
            try:
                size = int(head, 16)
            except ValueError:
                break
            ends.add(position)
            position += max(size, 4)
        if position < len(content):
            ends |= {position, position + (len(content) - position) // 2, len(content) - 1}
        found |= {(direction, each) for each in ends if each < len(content)}
    return sorted(found)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
