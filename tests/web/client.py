"""A client of the server, which can also send what no honest one would."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from shadowtree.web.server import Server

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    """By names in small letters."""
    body: bytes

    @property
    def json(self) -> Any:  # Any: JSON
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class Client:
    """Sends requests as the page does, unless a test says otherwise."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token

    @classmethod
    def of(cls, server: Server) -> Client:
        return cls(server.port, server.token)

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Reply:
        """Send a request; a header that is None is left out."""
        usual = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token}"}
        if body is not None:
            usual |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in {**usual, **(headers or {})}.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, /, **query: object) -> Any:  # Any: JSON
        """Look at something, which must work."""
        encoded = urlencode(query, doseq=True, errors="surrogateescape")
        reply = self.send("GET", f"{path}?{encoded}" if query else path)
        assert reply.status == 200, reply.body
        return reply.json

    def post(self, path: str, /, **body: object) -> Reply:
        """Send a body."""
        return self.send("POST", path, json.dumps(body).encode())

    def plan(self, path: str, /, **body: object) -> Any:  # Any: JSON
        """Ask what an act would do."""
        reply = self.post(path, dry_run=True, **body)
        assert reply.status == 200, reply.body
        return reply.json

    def act(self, path: str, /, **body: object) -> Any:  # Any: JSON
        """Plan an act, and do exactly that."""
        reply = self.post(path, expect=self.plan(path, **body)["id"], **body)
        assert reply.status == 200, reply.body
        return reply.json

    @contextmanager
    def events(self, target: str = "/api/events") -> Iterator[Iterator[tuple[str, Any]]]:  # Any: JSON
        """Follow the events: pairs of kind and document."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            connection.sendall(f"{head}Authorization: Bearer {self.token}\r\n\r\n".encode())
            with connection.makefile("rb") as stream:
                assert b" 200 " in stream.readline()
                while stream.readline().strip():
                    pass
                yield _read_events(stream)


def _read_events(stream: Any) -> Iterator[tuple[str, Any]]:  # Any: a file, and JSON
    kind = ""
    for line in stream:
        name, _, value = line.decode().strip().partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)
