"""Servers, repositories and clients for the tests of remotes."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.remote.transport import Transport, TransportOptions, open_transport
from shadowtree.store.repo import ShadowRepo
from tests.remote import servers
from tests.remote.servers import Server
from tests.support.memory import make_place
from tests.support.referee import assert_sound_store


@dataclass
class Remote:
    """An empty repository on a server."""

    server: Server
    name: str
    path: Path

    def connect(self, repo: ShadowRepo, *, port: int | None = None, **options: Any) -> Transport:
        """Prepare a connection, perhaps through a proxy."""
        environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self.server.environ}
        chosen = {"environ": environ, "ssh_command": self.server.ssh_command, "timeout_s": 30, **options}
        return open_transport(self.url(port), repo, TransportOptions(**chosen))

    def url(self, port: int | None = None) -> str:
        """Return the URL."""
        return self.server.url(self.name, port or self.server.port)

    def refs(self) -> dict[bytes, bytes]:
        """Return the refs, as real git lists them."""
        listed = servers.git(
            "-c", "safe.directory=*", "for-each-ref", "--format=%(objectname) %(refname)", cwd=self.path
        )
        lines = [line.split(" ", 1) for line in listed.splitlines()]
        return {ref.encode(): bytes.fromhex(id) for id, ref in lines}


@pytest.fixture(scope="session")
def running_servers() -> Iterator[Callable[[str], Server]]:
    """Start each server when it is first needed, and stop all of them at the end."""
    started: dict[str, Server] = {}
    place = make_place()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)

        def get(name: str) -> Server:
            if name not in started:
                root = place / name
                root.mkdir()
                started[name] = stack.enter_context(
                    _path(root) if name == "path" else servers.start(name, root)
                )
            return started[name]

        yield get


def _path(root: Path) -> Any:  # Any: a context manager
    from contextlib import nullcontext

    return nullcontext(Server("path", 0, root, lambda name, port: f"{root}/{name}.git"))


@pytest.fixture
def make_remote(running_servers: Callable[[str], Server]) -> Callable[[str], Remote]:
    """Return a function that makes an empty repository on a kind of server."""

    def make(kind: str) -> Remote:
        server, name = running_servers(kind), f"t{uuid.uuid4().hex[:12]}"
        return Remote(server, name, server.make_repository(name))

    return make


@pytest.fixture(params=[*servers.NAMES, "path"])
def remote(request: pytest.FixtureRequest, make_remote: Callable[[str], Remote]) -> Remote:
    """An empty repository, on each kind of server and at a path."""
    return make_remote(request.param)


@pytest.fixture
def make_repo(tmp_path: Path) -> Iterator[Callable[[], ShadowRepo]]:
    """Return a function that makes the repository of a new store; all are checked at the end."""
    with ExitStack() as stack:
        stores: list[str] = []

        def make() -> ShadowRepo:
            worktree = tmp_path / f"worktree-{len(stores)}"
            worktree.mkdir()
            shadow = stack.enter_context(Shadow(worktree, settings={"min_free": 0}))
            shadow.track()
            stores.append(str(shadow.store))
            repo = shadow.repo
            assert isinstance(repo, ShadowRepo)
            return stack.enter_context(repo)

        yield make
    for store in stores:
        assert_sound_store(Path(store), asks_git=False)


@pytest.fixture
def repo(make_repo: Callable[[], ShadowRepo]) -> ShadowRepo:
    """The repository of a store."""
    return make_repo()
