"""Who is let in: nobody without the token, no other web page, and no request that a form could send."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.web.routes import ROUTES
from shadowtree.web.server import Server
from tests.support.trees import read_tree
from tests.web.client import Client

UNDO = json.dumps({"turns": 1, "expect": "0" * 40}).encode()
LOOKS = [route.path for route in ROUTES if route.method == "GET"]
CHANGES = [route.path for route in ROUTES if route.method == "POST"]


@pytest.mark.parametrize("path", LOOKS + CHANGES)
@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Bearer ", "Basic dTpw", "", "Bearer \xe9"],
    ids=["none", "wrong", "empty", "basic", "blank", "latin"],
)
def test_every_route_needs_the_token(client: Client, path: str, authorization: str | None) -> None:
    is_change = path in CHANGES
    reply = client.send(
        "POST" if is_change else "GET",
        path,
        UNDO if is_change else None,
        {"Authorization": authorization},
    )

    assert (reply.status, reply.error) == (401, "BadToken")


def test_a_token_in_the_address_is_no_token(client: Client) -> None:
    reply = client.send("GET", f"/api/state?token={client.token}", None, {"Authorization": None})

    assert reply.status == 401


@pytest.mark.parametrize(
    "host", [None, "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
@pytest.mark.parametrize("path", ["/", "/api/state"])
def test_a_foreign_host_is_refused(client: Client, host: str | None, path: str) -> None:
    """A name of somebody else that points to this machine makes a page there look like ours."""
    named = None if host is None else host.format(port=client.port)
    reply = client.send("GET", path, None, {"Host": named})

    assert (reply.status, reply.error) == (421, "ForeignHost")


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "https://127.0.0.1:{port}",
    ],
)
@pytest.mark.parametrize("path", ["/api/undo", "/api/state"])
def test_a_foreign_origin_is_refused(client: Client, worktree: Path, origin: str, path: str) -> None:
    before = read_tree(worktree)
    method, body = ("POST", UNDO) if path == "/api/undo" else ("GET", None)
    reply = client.send(method, path, body, {"Origin": origin.format(port=client.port)})

    assert (reply.status, reply.error) == (403, "ForeignOrigin")
    assert read_tree(worktree) == before


def test_what_a_browser_says_of_another_site_is_believed(client: Client) -> None:
    assert client.send("GET", "/api/state", None, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert client.send("GET", "/api/state", None, {"Sec-Fetch-Site": "same-site"}).status == 403
    assert client.send("GET", "/api/state", None, {"Sec-Fetch-Site": "same-origin"}).status == 200
    assert client.send("GET", "/", None, {"Sec-Fetch-Site": "cross-site"}).status == 200


def test_our_own_page_is_let_in(client: Client) -> None:
    for host in ("127.0.0.1", "localhost"):
        own = f"{host}:{client.port}"
        reply = client.send("GET", "/api/state", None, {"Host": own, "Origin": f"http://{own}"})
        assert reply.status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain; application/json",
        None,
    ],
)
def test_a_form_is_refused(client: Client, worktree: Path, kind: str | None) -> None:
    """These are the types that a form, or a script without permission, can send to another site."""
    before = read_tree(worktree)
    reply = client.send("POST", "/api/undo", UNDO, {"Content-Type": kind})

    assert (reply.status, reply.error) == (415, "NotJson")
    assert read_tree(worktree) == before


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_only_post_changes_anything(client: Client, worktree: Path, path: str, method: str) -> None:
    before = read_tree(worktree)
    reply = client.send(method, path)

    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert read_tree(worktree) == before


def test_looking_takes_get_alone(client: Client) -> None:
    reply = client.send("POST", "/api/state", b"{}")

    assert (reply.status, reply.error, reply.headers["allow"]) == (405, "MethodNotAllowed", "GET")


def test_no_answer_allows_other_origins(client: Client) -> None:
    for method in ("GET", "OPTIONS"):
        reply = client.send(method, "/api/state", None, {"Origin": "https://evil.example"})
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: Client) -> None:
    reply = client.send("POST", "/api/undo", b" " * 1000, {"Content-Length": str(10 << 20)})
    assert reply.status == 413

    body = b'{"turns": 1}' + b" " * (2 << 20)
    assert client.send("POST", "/api/undo", body).status == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30, "0x10", "1, 1"])
def test_a_length_that_is_none_is_refused(client: Client, length: str) -> None:
    reply = client.send(
        "POST", "/api/undo", None, {"Content-Type": "application/json", "Content-Length": length}
    )

    assert reply.status == 400


def test_a_chunked_body_is_refused(client: Client) -> None:
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    reply = client.send("POST", "/api/undo", None, headers)

    assert (reply.status, reply.error) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "'expect'"),
        (b"[]", "object"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"turns": 1, "turns": 2}', "twice"),
        (b'{"turn": 1}', "no parameter"),
        (b'{"turns": "1"}', "whole number"),
        (b'{"turns": true}', "whole number"),
        (b'{"dry_run": 1}', "true or false"),
        (b'{"dry_run": true, "turns": 0}', "1 or more"),
        (b'{"dry_run": true, "on_conflict": "loudly"}', "on_conflict"),
        (b'{"dry_run": true, "on_conflict": 7}', "abort, merge, keep or overwrite"),
        (b'{"dry_run": true, "session": "\\n"}', "session"),
    ],
)
def test_a_body_that_is_wrong_is_refused_in_words(client: Client, body: bytes, says: str) -> None:
    reply = client.send("POST", "/api/undo", body)

    assert reply.status in (400, 428)
    assert says in reply.json["message"]


def test_an_unknown_route_is_refused(client: Client) -> None:
    for path in (
        "/api/",
        "/api/nothing",
        "/api/state/",
        "/page.html",
        "/../etc/passwd",
        "/API/state",
    ):
        assert (client.send("GET", path).status, client.send("GET", path).error) == (404, "UnknownRoute")


def test_huge_headers_and_addresses_are_refused(client: Client) -> None:
    assert client.send("GET", "/api/state?x=" + "x" * 70_000).status == 414
    assert client.send("GET", "/api/state", None, {"X-Long": "x" * 70_000}).status == 431
    many = {f"X-{number}": "x" for number in range(200)}
    assert client.send("GET", "/api/state", None, dict(many)).status == 431


def test_what_is_no_http_gets_an_answer_in_json(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
        answer = connection.makefile("rb").read()

    assert b'"error":"BadRequest"' in answer
    assert b"Traceback" not in answer


def test_a_slow_client_is_hung_up_on(history: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it spreads its bytes: the time counts from the first to the last."""
    monkeypatch.setattr("shadowtree.web.server._REQUEST_S", 0.3)
    with Server(history) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET /api/state HTTP/1.1\r\n")
        for _ in range(100):
            try:
                connection.sendall(b"X")
                if connection.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it is still waiting")


def test_too_many_connections_are_hung_up_on(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowtree.web.server._MOST_CONNECTIONS", 2)
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for connection in held:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert connection.recv(10) == b"HTTP/1.1 2"

    with pytest.raises((http.client.HTTPException, OSError)):
        client.send("GET", "/")
    for connection in held:
        connection.close()


def test_the_page_is_served_to_anybody_and_may_load_nothing_from_elsewhere(client: Client) -> None:
    reply = client.send("GET", "/", None, {"Authorization": None})

    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(each.strip().split(" ", 1) for each in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for what in ("script-src", "style-src"):
        assert policy[what].startswith("'sha256-")
        assert "unsafe" not in policy[what]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-store"
    assert client.token not in reply.body.decode()


def test_the_favicon_is_no_error(client: Client) -> None:
    assert client.send("GET", "/favicon.ico", None, {"Authorization": None}).status == 204


@pytest.mark.parametrize("path", CHANGES)
def test_a_read_only_server_changes_nothing(history: Shadow, worktree: Path, path: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/api/revert": {"message": "two"},
        "/api/protect": {"paths": [".env"]},
    }
    body = bodies.get(path, {"ref": "one"} if path in ("/api/switch", "/api/restore") else {})
    before = read_tree(worktree)
    with Server(history, read_only=True) as server:
        client = Client.of(server)
        assert client.get("/api/state")["read_only"] is True
        plan = client.post(path, dry_run=True, **body)
        refused = (
            client.post(path, expect=plan.json.get("id", ""), **body)
            if path != "/api/protect"
            else client.post(path, **body)
        )

    assert plan.status == 200
    assert (refused.status, refused.error) == (403, "ReadOnly")
    assert read_tree(worktree) == before
