"""The server: only on loopback, one thread for each connection, with limits on what a client may cost.

It handles HTTP and nothing else: `guard` decides which requests are let in, `routes` what is called, and
`answers` what is written. Importing it is slow, because `http.server` is: the command imports it to serve.
"""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message as Headers
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from socketserver import TCPServer
from time import monotonic

import shadowtree
from shadowtree.base.errors import ShadowError
from shadowtree.shadow import Shadow
from shadowtree.web.answers import CAREFUL, Answer, Refused, make_error, make_json, make_refusal
from shadowtree.web.events import stream_updates
from shadowtree.web.guard import Guard, Refusal, Request, is_length
from shadowtree.web.page import page_hashes, read_page
from shadowtree.web.parameters import read_body, read_query
from shadowtree.web.routes import BY_PATH, EVENTS, Place, Route, call_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

_LOOPBACK = "127.0.0.1"
_POLL_S = 0.1
"""How soon the server notices that it is to stop."""
_REQUEST_S = 10.0
"""How long a client may take to send a request, from its first byte to its last."""
_IDLE_S = 60.0
"""How long a connection may wait for the next request."""
_CLOSE_S = 5.0
"""How long a server that stops waits for requests that only read."""
_LINGER_S, _LINGER_BYTES = 1.0, 8 << 20
"""How long, and how much, is still read of a request that was refused."""
_MOST_CONNECTIONS = 64
_PAGES = {"/": "GET", "/favicon.ico": "GET"}
"""The paths that need no token, because they hold no data."""


class Server:
    """Serves one worktree, in threads of its own, until `close`. Also a context manager."""

    def __init__(
        self,
        shadow: Shadow,
        *,
        port: int = 0,
        token: str | None = None,
        session: str | None = None,
        read_only: bool = False,
    ) -> None:
        self.token = token or token_urlsafe(24)
        self._beside = Shadow(shadow.worktree, store=shadow.store, settings=shadow.settings, allow_broad=True)
        place = Place(shadow, self._beside, session, read_only)
        self._http = _HttpServer((_LOOPBACK, port), place, self.token)
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_POLL_S,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address to open: the token is in its fragment, which browsers never send."""
        return f"http://{_LOOPBACK}:{self.port}/#{self.token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the act under way, hang up, and wait a few seconds for requests that only read."""
        self._http.shutdown()
        self._http.server_close()
        with self._http.acting:
            self._http.is_closed = True
        self._http.hang_up()
        self._thread.join()
        self._beside.close()


class _HttpServer(ThreadingHTTPServer):
    """Accepts connections, up to a limit at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], place: Place, token: str) -> None:
        self.place = place
        self.acting = threading.Lock()
        """Held by the request that changes something."""
        self.is_closed = False
        self._connections: set[Any] = set()  # Any: sockets
        self._left = threading.Condition()
        """Notified when a connection is gone; guards the set of connections."""
        super().__init__(address, _Handler)
        methods = {**_PAGES, **{path: route.method for path, route in BY_PATH.items()}}
        self.guard = Guard(self.server_address[1], token, methods)

    def server_bind(self) -> None:
        """Bind the address, without asking DNS for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:  # Any: as in the base class
        """Hang up if there are too many connections."""
        with self._left:
            if len(self._connections) >= _MOST_CONNECTIONS:
                return False
            self._connections.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:  # Any: a socket
        """Close a connection."""
        super().shutdown_request(request)
        with self._left:
            self._connections.discard(request)
            self._left.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # Any: as in the base class
        """Ignore a client that went away; all other errors were answered already."""

    def hang_up(self) -> None:
        """Shut down every connection, and wait a limited time until their threads are done."""
        with self._left:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._left.wait_for(lambda: not self._connections, _CLOSE_S)


class _Reader(io.RawIOBase):
    """Reads from a connection until a deadline, however slowly the client sends its bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline_s: float | None = None
        """None: no byte of the next request has arrived yet."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # Any: a writable buffer
        left_s = _IDLE_S if self.deadline_s is None else self.deadline_s - monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer)
        if self.deadline_s is None:
            self.deadline_s = monotonic() + _REQUEST_S
        self._connection.settimeout(_REQUEST_S)
        return count


class _Handler(BaseHTTPRequestHandler):
    """One connection, request by request."""

    server: _HttpServer
    protocol_version = "HTTP/1.1"
    headers: Headers

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = _Reader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.deadline_s = None
        with suppress(ConnectionError):
            super().handle_one_request()
            return
        self.close_connection = True

    def respond(self) -> None:
        """Answer a request, whatever happens."""
        with self._answering():
            path, _, query = self.path.partition("?")
            request = Request(self.command, path, _list_headers(self.headers))
            refusal = self.server.guard.refuse(request)
            if refusal is not None:
                self._turn_away(refusal)
                return
            content = self._read_content(request)
            if path in _PAGES:
                self._send(_make_page() if path == "/" else Answer(204, "image/x-icon", b"", {}))
                return
            route = BY_PATH[path]
            if self.command == "POST":
                self._change(route, read_body(content, route.parameters))
                return
            given = read_query(query, route.parameters)
            if route is EVENTS:
                self._stream(given, request.find("last-event-id"))
            else:
                self._send(call_route(route, given, self.server.place))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = respond

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn whatever the body raises into an answer, because no caller above can."""
        try:
            yield
        except ConnectionError:
            raise
        except Refused as refused:
            self._send(make_refusal(refused.refusal))
        except ShadowError as error:
            self._send(make_error(error))
        except Exception as error:  # noqa: BLE001  # the client learns of it, without details
            told = {"error": "InternalError", "message": f"internal error: {type(error).__name__}"}
            self._send(make_json(told, 500))

    def _turn_away(self, refusal: Refusal) -> None:
        """Refuse a request, then read on briefly: with bytes unread, the client could lose the answer."""
        self.close_connection = True
        self._send(make_refusal(refusal))
        self.connection.shutdown(socket.SHUT_WR)
        self._reader.deadline_s = monotonic() + _LINGER_S
        left = _LINGER_BYTES
        with suppress(OSError):
            while left > 0 and (piece := self.rfile.read1(1 << 16)):
                left -= len(piece)

    def _read_content(self, request: Request) -> bytes:
        wanted = int(request.find("content-length") or 0)
        try:
            content = self.rfile.read(wanted)
        except TimeoutError as error:
            self.close_connection = True
            raise Refused(Refusal(408, "TooSlow", "the body did not arrive in time")) from error
        if len(content) < wanted:
            self.close_connection = True
            raise Refused(Refusal(400, "BadRequest", "the body is shorter than Content-Length says"))
        return content

    def _change(self, route: Route, given: dict[str, Any]) -> None:  # Any: of the parameters' types
        """Carry out a change, unless the server is about to stop, which must not cut it off."""
        with self.server.acting:
            if self.server.is_closed:
                raise Refused(Refusal(503, "Stopping", "the server is about to stop"))
            self._send(call_route(route, given, self.server.place))

    def _stream(self, given: dict[str, Any], last_id: str | None) -> None:  # Any: of the parameters' types
        place = self.server.place
        after = given.get("after")
        if after is None:
            after = int(last_id) if last_id and is_length(last_id) else place.shadow.state().number
        self.close_connection = True
        self._send_head(HTTPStatus.OK, "text/event-stream", {})
        stream_updates(place.shadow, after, self.connection, self.wfile.write)

    def _send(self, answer: Answer) -> None:
        length = {} if answer.status == 204 else {"Content-Length": str(len(answer.body))}
        self._send_head(answer.status, answer.kind, {**answer.headers, **length})
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _send_head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **CAREFUL, **headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer invalid HTTP in JSON."""
        self.close_connection = True
        status = HTTPStatus(code)
        error = status.phrase.title().replace(" ", "").replace("-", "")
        self._send(make_refusal(Refusal(code, error, message or status.description)))

    def version_string(self) -> str:
        """Return the name of this server, without the Python that it runs on."""
        return f"shadowtree/{shadowtree.__version__}"

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the terminal is the user's."""


def _make_page() -> Answer:
    script, style = page_hashes()
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src blob: data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Answer(200, "text/html; charset=utf-8", read_page(), {"Content-Security-Policy": policy})


def _list_headers(headers: Headers) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        found.setdefault(name.lower(), []).append(str(value))
    return found
