"""Pushing to a git server on loopback: bytes and round trips compared with `git push`, and many workers.

Run as a module with a URL, a directory and a number of messages, it is one worker of a fleet: it records and
pushes one message after the other, and prints how long each push took as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.measure import PROJECT, Effort
from benchmarks.report import Row, Unit
from shadowtree import Shadow
from tests.remote.fault_proxy import FaultProxy
from tests.remote.servers import Server, environment, git, start

GIT_PUSH = "git push"
CHANGES = 10
MOST_BYTES = 1.2
"""A push may have this many times the bytes of git's."""
WORKERS, WORKER_FILES = 20, 100
REFS = (10, 1_000, 10_000)

_REPOSITORY, _RIVAL = "ours", "theirs"
_NO_SPACE_KEPT = {"min_free": 0}


def measure_push(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure the push of a message with ten changed files, and `git push` of the same change."""
    samples: dict[str, dict[str, list[float]]] = {
        what: {OURS: [], GIT_PUSH: []} for what in ("bytes", "round trips", "time")
    }
    with (
        _serving(area) as (server, proxy),
        Shadow(area.folder, store=area.new_store(), settings=_NO_SPACE_KEPT) as shadow,
    ):
        rival = _Git(area, server.url(_RIVAL, proxy.port))
        shadow.remotes.add("origin", server.url(_REPOSITORY, proxy.port))
        shadow.snapshot("first")
        shadow.remotes.push(text=True)
        for number in range(effort.runs):
            with shadow.message(f"message {number}", text=f"Change {number}"):
                area.edit_on(CHANGES)
            rival.commit(f"Change {number}")
            for name, push in ((OURS, lambda: shadow.remotes.push(text=True)), (GIT_PUSH, rival.push)):
                proxy.take_counts()
                began = time.perf_counter()
                push()
                samples["time"][name].append(time.perf_counter() - began)
                counts = proxy.take_counts()
                samples["bytes"][name].append(counts.up + counts.down)
                samples["round trips"][name].append(counts.turns)
    what = f"push of {CHANGES} changed files"
    return [
        Row(f"{what}: bytes", files, Unit.COUNT, samples["bytes"], targets={GIT_PUSH: 1 / MOST_BYTES}),
        Row(f"{what}: round trips", files, Unit.COUNT, samples["round trips"], targets={GIT_PUSH: 1}),
        Row(f"{what}: time", files, Unit.SECONDS, samples["time"]),
    ]


def measure_refs(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure the push to repositories with many refs: the server lists all of them at each push."""
    rows = []
    for refs in REFS:
        worktree = area.new_worktree() / "project"
        trees.build_tree(worktree, WORKER_FILES)
        with (
            _serving(area) as (server, proxy),
            Shadow(worktree, store=area.new_store(), settings=_NO_SPACE_KEPT) as shadow,
        ):
            shadow.remotes.add("origin", server.url(_REPOSITORY, proxy.port))
            shadow.snapshot("first")
            shadow.remotes.push()
            _add_refs(server.root / f"{_REPOSITORY}.git", refs)
            seconds, sizes = [], []
            for number in range(effort.long_runs):
                with shadow.message(f"message {number}"):
                    trees.edit_files(worktree, trees.list_files(worktree), edits=CHANGES, seed=number)
                proxy.take_counts()
                began = time.perf_counter()
                shadow.remotes.push()
                seconds.append(time.perf_counter() - began)
                counts = proxy.take_counts()
                sizes.append(float(counts.up + counts.down))
        rows += [
            Row(f"push, {refs:,} refs there: bytes", WORKER_FILES, Unit.COUNT, {OURS: sizes}),
            Row(f"push, {refs:,} refs there: time", WORKER_FILES, Unit.SECONDS, {OURS: seconds}),
        ]
    return rows


def measure_fleet(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure workers that each push a session of their own to one repository, all at the same time."""
    messages = max(1, effort.messages // WORKERS)
    root = area.new_worktree()
    with _serving(area) as (server, _):
        url = server.url(_REPOSITORY, server.port)
        before = _used_by_children(server.pid)
        began = time.perf_counter()
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.pushing", url, str(root / str(number)), str(messages)],
                cwd=PROJECT,
                env={**os.environ, "SHADOWTREE_HOME": str(root / "stores")},
                stdout=subprocess.PIPE,
            )
            for number in range(WORKERS)
        ]
        said = [worker.communicate()[0] for worker in workers]
        seconds = time.perf_counter() - began
        used_s = _used_by_children(server.pid) - before
        repository = server.root / f"{_REPOSITORY}.git"
        listed = git("for-each-ref", "--format=%(refname)", "refs/heads/sessions/", cwd=repository).split()
        assert len(listed) == WORKERS, listed
        stored = sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())
    count = WORKERS * messages
    pushes = [second for each in said for second in json.loads(each)]
    assert len(pushes) == count, "a worker failed"
    what = f"{WORKERS} workers, {messages} messages each"
    return [
        Row(f"{what}: a message", WORKER_FILES, Unit.SECONDS, {OURS: [seconds / count]}),
        Row(f"{what}: a push", WORKER_FILES, Unit.SECONDS, {OURS: pushes}),
        Row(
            f"{what}: processor time of the server for a message",
            WORKER_FILES,
            Unit.SECONDS,
            {OURS: [used_s / count]},
        ),
        Row(f"{what}: bytes on the server for a message", WORKER_FILES, Unit.COUNT, {OURS: [stored / count]}),
    ]


def work(url: str, top: Path, messages: int) -> list[float]:
    """Record and push messages as one worker; return how long each push took."""
    worktree, seconds = top / "project", []
    trees.build_tree(worktree, WORKER_FILES)
    paths = trees.list_files(worktree)
    with Shadow(worktree, store=top / "store", settings=_NO_SPACE_KEPT) as shadow:
        shadow.remotes.add("origin", url)
        for number in range(messages):
            with shadow.message(f"message {number}", text=f"Change {number}"):
                trees.edit_files(worktree, paths, edits=CHANGES, seed=number)
            began = time.perf_counter()
            shadow.remotes.push(text=True)
            seconds.append(time.perf_counter() - began)
    return seconds


class _Git:
    """Real git, with a repository of its own for the same files."""

    def __init__(self, area: Area, url: str) -> None:
        self._worktree, self._url = area.folder, url
        who = {
            f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        self._environ = environment(GIT_DIR=str(area.new_store()), GIT_WORK_TREE=str(area.folder), **who)
        self._run("init", "--quiet")
        self.commit("first")
        self.push()

    def commit(self, text: str) -> None:
        """Commit all changes."""
        self._run("add", "--all")
        self._run("commit", "--quiet", "--message", text)

    def push(self) -> None:
        """Push the branch."""
        self._run("push", "--quiet", self._url, "HEAD:refs/heads/main")

    def _run(self, *arguments: str) -> None:
        subprocess.run(
            ["git", *arguments], cwd=self._worktree, env=self._environ, check=True, capture_output=True
        )


@contextmanager
def _serving(area: Area) -> Iterator[tuple[Server, FaultProxy]]:
    """Run `git daemon` with two empty repositories, and a proxy that counts."""
    with start("daemon", area.new_worktree()) as server, FaultProxy(server.port) as proxy:
        for name in (_REPOSITORY, _RIVAL):
            server.make_repository(name)
        yield server, proxy


def _add_refs(repository: Path, count: int) -> None:
    """Add `count` refs to a repository, as from many workers."""
    (tip,) = islice(git("rev-list", "--all", "--max-count=1", cwd=repository).split(), 1)
    lines = [f"{tip} refs/heads/sessions/worker-{number:08}/0123456789abcdef\n" for number in range(count)]
    (repository / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted\n" + "".join(lines))


def _used_by_children(pid: int) -> float:
    """Return the processor time that the finished children of a process used; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
