"""Many machines, machines that die, and every kind of server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.remote.conftest import Remote
from tests.remote.kills import kill_at
from tests.remote.machines import Machine, fsck, list_refs, make_server
from tests.support.referee import git


def test_each_kind_of_server_takes_and_gives_a_session(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in remote.server.environ.items():
        monkeypatch.setenv(name, value)
    settings = {"ssh_command": remote.server.ssh_command or "", "remote_timeout": 30}
    here = Machine(tmp_path / "here", remote.url(), settings)
    there = Machine(tmp_path / "there", remote.url(), settings)
    here.tell("m1", {"a.txt": "one\n", "src/b.py": "b = 1\n"}, role="user")
    here.push()
    here.tell("m2", {"a.txt": "two\n"}, role="user")
    with here.open() as shadow:
        shadow.undo()
    here.tell("m3", {"a.txt": "three\n"}, role="user")
    here.push()

    there.resume()

    assert there.files() == here.files()
    assert there.log() == here.log()
    assert git("-c", "safe.directory=*", "fsck", "--full", "--strict", "--no-dangling", cwd=remote.path) == ""
    there.tell("n1", {"a.txt": "four\n"}, role="user")
    there.push()
    (fetched,) = here.fetch().sessions
    assert fetched.messages == ["n1"]


def test_a_server_that_protects_its_branches_takes_the_rows(
    make_remote: Callable[[str], Remote], tmp_path: Path
) -> None:
    remote = make_remote("daemon")
    hook = remote.path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) echo no; exit 1;; esac\n')
    hook.chmod(0o755)
    here, there = Machine(tmp_path / "here", remote.url()), Machine(tmp_path / "there", remote.url())
    here.tell("m1", {"a.txt": "one\n"})

    pushed = here.push()

    assert pushed.notes[0].startswith("the branches on the server were not updated")
    there.resume()
    assert there.files() == here.files()


def test_a_push_that_is_killed_is_finished_by_the_next_one(tmp_path: Path) -> None:
    server = make_server(tmp_path / "server.git")
    machine = Machine(tmp_path / "machine", str(server))
    for number in range(5):
        machine.tell(f"m{number}", {f"f{number}": "x\n" * 1000, "a": f"{number}\n"})
    with machine.open() as shadow:
        shadow.remotes.add("origin", str(server))
    ended_by = set()
    for step in range(0, 40, 5):
        machine.tell(f"at-{step}", {"a": f"{step}\n"})
        child = os.fork()
        if child == 0:
            kill_at(step)
            try:
                machine.push()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        ended_by.add(os.waitstatus_to_exitcode(status))

    machine.push()

    other = Machine(tmp_path / "other", str(server))
    other.fetch()
    assert other.log() == machine.log()
    assert -signal.SIGKILL in ended_by
    assert fsck(server) == ""
    machine.check()
    other.check()


def _work(top: str, url: str, messages: int) -> None:
    machine = Machine(Path(top), url)
    for number in range(messages):
        machine.tell(f"m{number}", {"a": f"{top} {number}\n", f"d/f{number % 5}": f"{number}\n"})
        machine.push()


@pytest.mark.parametrize(
    ("workers", "messages"), [(8, 3), pytest.param(20, 50, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_workers_that_push_at_once_lose_nothing(tmp_path: Path, workers: int, messages: int) -> None:
    server = make_server(tmp_path / "server.git")
    tops = [str(tmp_path / f"worker-{number}") for number in range(workers)]

    with get_context("spawn").Pool(min(workers, 2 * (os.cpu_count() or 1))) as pool:
        pool.starmap(_work, [(top, str(server), messages) for top in tops])

    everything = Machine(tmp_path / "everything", str(server))
    everything.fetch()
    assert len(list_refs(server, "refs/shadowtree")) == workers
    assert len(everything.log()) == workers * messages
    assert fsck(server) == ""
