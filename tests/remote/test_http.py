"""Answers of HTTP servers that git servers do not give: redirects, other content, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shadowtree.base.errors import RemoteFailed, RemoteRefused
from shadowtree.remote.transport import TransportOptions, open_transport
from shadowtree.store.repo import ShadowRepo
from tests.remote.commits import Line
from tests.remote.conftest import Remote
from tests.remote.servers import PASSWORD, USER

ENVIRON = {"SHADOWTREE_REMOTE_USER": USER, "SHADOWTREE_REMOTE_PASSWORD": PASSWORD}
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[int, list[str | None]]]:
    """Run a web server; yield its port, and a list that gets the credentials of each request."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            answer(self)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, seen
        finally:
            server.shutdown()
            thread.join()


def status(code: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def list_refs(repo: ShadowRepo, port: int) -> None:
    with open_transport(
        f"http://127.0.0.1:{port}/x.git", repo, TransportOptions(environ=ENVIRON)
    ) as transport:
        transport.list_refs([b"refs/"])


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (status(200, Content_Type="text/html"), RemoteFailed, "does not speak git's smart protocol"),
        (status(200, Content_Type="application/x-git-upload-pack-advertisement"), RemoteFailed, "cut"),
        (status(404), RemoteFailed, "no git repository there"),
        (status(500), RemoteFailed, "HTTP status 500"),
        (status(503), RemoteFailed, "HTTP status 503"),
        (status(401, WWW_Authenticate="Basic realm=x"), RemoteRefused, "wrong credentials"),
        (status(403), RemoteFailed, "HTTP status 403"),
        (status(302, Location="file:///etc/passwd"), RemoteFailed, "No host specified"),
        (status(302, Location="/x.git/info/refs?service=git-upload-pack"), RemoteFailed, "redirects"),
    ],
    ids=["page", "empty", "404", "500", "503", "401", "403", "file", "circle"],
)
def test_answers_that_are_not_git(
    repo: ShadowRepo, answer: Answer, error: type[RemoteFailed], words: str
) -> None:
    with answering(answer) as (port, _), pytest.raises(error, match=words) as caught:
        list_refs(repo, port)

    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_credentials_do_not_follow_a_redirect_to_another_server(repo: ShadowRepo) -> None:
    with answering(status(404)) as (other, seen_there):
        location = f"http://127.0.0.1:{other}/x.git/info/refs?service=git-upload-pack"
        with answering(status(302, Location=location)) as (port, seen_here), pytest.raises(RemoteFailed):
            list_refs(repo, port)

    assert seen_here[0] is not None
    assert seen_there == [None]


def test_a_push_that_a_hook_refuses(make_remote: Callable[[str], Remote], repo: ShadowRepo) -> None:
    remote = make_remote("http")
    hook = remote.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nprintf 'not \\033[31mtoday\\n' >&2\nexit 1\n")
    hook.chmod(0o755)
    tip = Line(repo).commit({"a": b"1"})
    with remote.connect(repo) as transport:
        assert transport.push({b"refs/heads/a": (None, tip)}) == {
            b"refs/heads/a": "pre-receive hook declined"
        }

    assert remote.refs() == {}


def test_progress_is_told_a_few_times(make_remote: Callable[[str], Remote], repo: ShadowRepo) -> None:
    told: list[tuple[str, int, int | None]] = []
    remote = make_remote("daemon")
    tip = Line(repo).commit({f"f{number}": b"x%d" % number for number in range(2_000)})
    with remote.connect(repo, progress=lambda *step: told.append(step), progress_s=0.02) as transport:
        transport.push({b"refs/heads/a": (None, tip)})

    assert 1 <= len(told) < 200
    assert {(what, total) for what, _, total in told} == {("send objects", 2_002)}
