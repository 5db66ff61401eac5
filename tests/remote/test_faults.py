"""Faults between client and server: neither side loses anything, and the next push or fetch completes."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree.base.errors import RemoteFailed
from shadowtree.remote.path_remote import PathRemote
from shadowtree.store.repo import ShadowRepo
from tests.remote import servers
from tests.remote.commits import Line
from tests.remote.conftest import Remote
from tests.remote.fault_proxy import Fault, FaultProxy, find_boundaries
from tests.remote.kills import kill_at
from tests.remote.servers import assert_clean
from tests.support.turns import this_turn

SESSION = b"refs/heads/sessions/default"
KINDS = ("cut", "truncate", "corrupt", "delay")


class Scene:
    """A remote with one commit, and a store with two."""

    def __init__(self, remote: Remote, repo: ShadowRepo) -> None:
        self.remote, self.repo = remote, repo
        line = Line(repo)
        files = {f"d{number % 5}/f{number}": b"line\n" * 20 + b"%d" % number for number in range(40)}
        self.first = line.commit(files)
        self.second = line.commit({path: content + b"more" for path, content in list(files.items())[:8]})
        with remote.connect(repo) as transport:
            transport.push({SESSION: (None, self.first)})

    def again(self, make_remote: Callable[[str], Remote]) -> Scene:
        """Return the same scene with a new remote."""
        scene = object.__new__(Scene)
        scene.remote, scene.repo = make_remote(self.remote.server.name), self.repo
        scene.first, scene.second = self.first, self.second
        with scene.remote.connect(self.repo) as transport:
            transport.push({SESSION: (None, self.first)})
        return scene

    def push(self, port: int | None = None, timeout_s: float = 60) -> None:
        options = {"timeout_s": timeout_s, "look_again_s": (0, 0.1, 0.3)}
        with self.remote.connect(self.repo, port=port, **options) as transport:
            status = transport.push({SESSION: (self.first, self.second)})
        if status != {SESSION: None}:
            raise RemoteFailed("", str(status))

    @property
    def timeout_s(self) -> float:
        """How long to wait if a server stops answering; ssh needs some time to connect."""
        return 0.7 if self.remote.server.name in ("daemon", "http") else 2

    def assert_whole(self) -> None:
        """Fail unless the server has the old or the new commit completely; then push once more."""
        assert self.remote.refs()[SESSION] in (self.first, self.second)
        self.push()
        assert self.remote.refs()[SESSION] == self.second
        assert_clean(self.remote.path)


def sample(boundaries: list[tuple[str, int]], count: int) -> list[tuple[str, str, int]]:
    """Choose some of all faults, others with every commit; all if there is no limit."""
    every = [(kind, *boundary) for boundary in boundaries for kind in KINDS]
    if not count:
        return every
    step = max(1, len(every) // count)
    return every[this_turn() % step :: step]


def strike_pushes(scene: Scene, make_remote: Callable[[str], Remote], count: int) -> int:
    """Push with a fault at each boundary of a push; return how often it happened."""
    with FaultProxy(scene.remote.server.port) as proxy:
        scene.push(proxy.port)
    struck, said = 0, []
    for kind, direction, at in sample(find_boundaries(proxy.counts), count):
        fresh = scene.again(make_remote)
        with FaultProxy(fresh.remote.server.port, Fault(kind, direction, at), 5) as proxy:
            try:
                fresh.push(proxy.port, fresh.timeout_s)
            except RemoteFailed as error:
                said.append(str(error))
            else:
                assert fresh.remote.refs()[SESSION] == fresh.second
        struck += proxy.has_struck
        fresh.assert_whole()
    assert not [line for line in said if "\n" in line]
    return struck


def strike_fetches(scene: Scene, make_repo: Callable[[], ShadowRepo], count: int) -> int:
    """Fetch with a fault at each boundary."""
    scene.push()
    with (
        FaultProxy(scene.remote.server.port) as proxy,
        scene.remote.connect(make_repo(), port=proxy.port) as transport,
    ):
        transport.fetch([scene.second], [])
    struck = 0
    for kind, direction, at in sample(find_boundaries(proxy.counts), count):
        here = make_repo()
        packs = Path(here.object_store.path, "pack")
        before = sorted(packs.iterdir())
        with FaultProxy(scene.remote.server.port, Fault(kind, direction, at), 5) as proxy:
            with scene.remote.connect(here, port=proxy.port, timeout_s=scene.timeout_s) as transport:
                try:
                    transport.fetch([scene.second], [])
                except RemoteFailed:
                    assert sorted(packs.iterdir()) == before
                else:
                    assert here[scene.second.hex().encode()]
        struck += proxy.has_struck
        with scene.remote.connect(here) as transport:
            transport.fetch([scene.second], [])
        assert here[scene.second.hex().encode()]
    return struck


@pytest.mark.parametrize(("kind", "count"), [("daemon", 6), ("http", 5), ("ssh", 2)])
def test_pushes_are_struck(
    kind: str, count: int, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    assert strike_pushes(Scene(make_remote(kind), repo), make_remote, count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["daemon", "http", "ssh", "gitolite"])
def test_pushes_are_struck_everywhere(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    assert strike_pushes(Scene(make_remote(kind), repo), make_remote, 0) > 20


@pytest.mark.parametrize(("kind", "count"), [("daemon", 5), ("http", 4), ("ssh", 2)])
def test_fetches_are_struck(
    kind: str,
    count: int,
    make_remote: Callable[[str], Remote],
    repo: ShadowRepo,
    make_repo: Callable[[], ShadowRepo],
) -> None:
    assert strike_fetches(Scene(make_remote(kind), repo), make_repo, count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["daemon", "http", "ssh", "gitolite"])
def test_fetches_are_struck_everywhere(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    assert strike_fetches(Scene(make_remote(kind), repo), make_repo, 0) > 20


@pytest.mark.parametrize("kind", ["daemon", "http"])
def test_a_push_tries_again_if_one_before_it_still_holds_the_refs(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    """A push that was cut may continue on the server: git then reports "atomic transaction failed"."""
    scene = Scene(make_remote(kind), repo)
    lock = scene.remote.path / f"{SESSION.decode()}.lock"
    hook = scene.remote.path / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nif [ -e {lock} ]; then rm {lock}; else touch {lock}; fi\n")
    hook.chmod(0o755)

    scene.push()

    assert not lock.exists()
    assert scene.remote.refs()[SESSION] == scene.second


@pytest.mark.parametrize("kind", ["daemon", "http"])
def test_a_push_that_arrived_and_was_cut_counts_as_done(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    scene = Scene(make_remote(kind), repo)
    with FaultProxy(scene.remote.server.port) as proxy:
        scene.push(proxy.port)
    fresh = scene.again(make_remote)

    with FaultProxy(fresh.remote.server.port, Fault("cut", "down", proxy.counts.down - 1)) as proxy:
        fresh.push(proxy.port)

    assert proxy.has_struck
    assert fresh.remote.refs()[SESSION] == fresh.second


@pytest.mark.parametrize("kind", ["daemon", "http", "ssh"])
def test_a_server_that_says_nothing_is_not_waited_for(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    remote = make_remote(kind)
    with FaultProxy(remote.server.port, Fault("delay", "down", 0), 60) as proxy:
        with remote.connect(repo, port=proxy.port, timeout_s=0.5) as transport:
            began = time.monotonic()
            with pytest.raises(RemoteFailed):
                transport.list_refs([b"refs/"])

    assert time.monotonic() - began < 8


# Killed


def push_in_child(scene: Scene, port: int | None) -> int:
    """Push in a separate process; return its id."""
    child = os.fork()
    if child == 0:
        try:
            scene.push(port)
        finally:
            os._exit(0)
    return child


@pytest.mark.parametrize("kind", ["daemon", "http", "ssh"])
@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_client_that_is_killed(
    kind: str, part: float, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    scene = Scene(make_remote(kind), repo)
    with FaultProxy(scene.remote.server.port) as proxy:
        scene.push(proxy.port)
    at = int(proxy.counts.up * part)
    fresh = scene.again(make_remote)

    with FaultProxy(fresh.remote.server.port, Fault("delay", "up", at), 60) as proxy:
        child = push_in_child(fresh, proxy.port)
        deadline = time.monotonic() + 20
        while not proxy.has_struck and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert proxy.has_struck
    fresh.assert_whole()


@pytest.mark.parametrize("kind", ["daemon", "http", "ssh"])
def test_a_client_that_is_interrupted(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    """Ctrl-C ends a wait at once."""
    scene = Scene(make_remote(kind), repo)
    with FaultProxy(scene.remote.server.port, Fault("delay", "up", 40), 60) as proxy:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                scene.push(proxy.port)
            except KeyboardInterrupt:
                os._exit(7)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 20
        while not proxy.has_struck and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(child, signal.SIGINT)
        began = time.monotonic()
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert time.monotonic() - began < 10
    scene.assert_whole()


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_server_that_is_killed(part: float, repo: ShadowRepo, tmp_path: Path) -> None:
    with servers.start("daemon", tmp_path / "repositories") as server:
        remote = Remote(server, "one", server.make_repository("one"))
        scene = Scene(remote, repo)
        with FaultProxy(server.port) as proxy:
            scene.push(proxy.port)
        remote = Remote(server, "two", server.make_repository("two"))
        with remote.connect(repo) as transport:
            transport.push({SESSION: (None, scene.first)})
        scene.remote = remote
        with FaultProxy(server.port, Fault("delay", "up", int(proxy.counts.up * part)), 60) as stalled:
            child = push_in_child(scene, stalled.port)
            deadline = time.monotonic() + 20
            while not stalled.has_struck and time.monotonic() < deadline:
                time.sleep(0.005)
            assert stalled.has_struck
            os.killpg(server.pid, signal.SIGKILL)
        os.waitpid(child, 0)
        with servers.start("daemon", tmp_path / "repositories") as second:
            scene.remote = Remote(second, "two", remote.path)
            scene.assert_whole()


def test_a_push_to_a_path_is_killed_at_every_step(
    make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    scene = Scene(make_remote("path"), repo)
    for step in range(100):
        fresh = scene.again(make_remote)
        child = os.fork()
        if child == 0:
            kill_at(step)
            try:
                fresh.push()
            finally:
                os._exit(7)
        _, status = os.waitpid(child, 0)
        fresh.assert_whole()
        if os.WIFEXITED(status):
            break

    assert step > 8
    assert os.WEXITSTATUS(status) == 7


def test_a_push_to_a_path_needs_few_descriptors_and_leaves_nothing_behind(
    make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    scene = Scene(make_remote("path"), repo)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 40, hard))
    try:
        with scene.remote.connect(repo) as transport:
            refs = {b"refs/heads/sessions/x/%d" % number: (None, scene.first) for number in range(100)}
            assert set(transport.push(refs).values()) == {None}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert not [
        path for path in scene.remote.path.rglob("*") if path.name.endswith(".lock") or "tmp" in path.name
    ]


def test_a_ref_that_git_holds_locked_is_left_alone(
    make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    scene = Scene(make_remote("path"), repo)
    lock = scene.remote.path / (SESSION.decode() + ".lock")
    lock.write_bytes(b"")

    with pytest.raises(RemoteFailed, match="is locked"):
        scene.push()

    assert lock.exists()
    assert PathRemote("", str(scene.remote.path)).list_refs() == {SESSION: scene.first}
    lock.unlink()
    scene.assert_whole()
