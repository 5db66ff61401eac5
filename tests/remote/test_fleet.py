"""Many workers push their own sessions to one repository at the same time, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.remote.conftest import Remote
from tests.remote.machines import Machine
from tests.remote.servers import assert_clean

WORKERS = 20


def run_worker(machine: Machine, session: str, messages: int) -> list[str]:
    """Record messages and push after each; return the trees after them."""
    trees = []
    with machine.open(session) as shadow:
        shadow.remotes.add("origin", machine.url)
        for number in range(messages):
            with shadow.message(f"{session}-{number}", text=f"message {number}"):
                (machine.worktree / "same").write_text("the same everywhere\n" * 20)
                (machine.worktree / "own").write_text(f"{session} {number}\n" * 20)
            shadow.remotes.push(text=True)
            trees.append(shadow.messages()[-1].after or "")
    return trees


def run_fleet(remote: Remote, top: Path, messages: int) -> None:
    names = [f"worker-{number}" for number in range(WORKERS)]
    machines = [Machine(top / name, remote.url()) for name in names]
    with ThreadPoolExecutor(WORKERS) as pool:
        trees = list(pool.map(run_worker, machines, names, [messages] * WORKERS))
    assert_clean(remote.path)
    laptop = Machine(top / "laptop", remote.url())
    laptop.fetch()

    with laptop.open() as shadow:
        found = shadow.messages(all_sessions=True)
    by_session = {name: [each for each in found if each.session.partition("@")[0] == name] for name in names}
    for name, expected in zip(names, trees, strict=True):
        assert [each.id for each in by_session[name]] == [f"{name}-{number}" for number in range(messages)]
        assert [each.after for each in by_session[name]] == expected


def test_twenty_workers(make_remote: Callable[[str], Remote], tmp_path: Path) -> None:
    run_fleet(make_remote("daemon"), tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["daemon", "http", "path"])
def test_twenty_workers_with_fifty_messages_each(
    kind: str, make_remote: Callable[[str], Remote], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = make_remote(kind)
    for name, value in remote.server.environ.items():
        monkeypatch.setenv(name, value)
    run_fleet(remote, tmp_path, 50)
