"""The setting `auto_push`: the daemon pushes new records in idle time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.daemon.test_daemon import require
from tests.remote.machines import list_refs, make_server
from tests.support.daemons import daemon, serve_kept, wait_until
from tests.support.referee import git

TIMING = "tick_s=0.05, push_after_s=0.05"


@pytest.fixture
def server(tmp_path: Path, worktree: Path) -> Path:
    """A server to which the user has pushed once."""
    server = make_server(tmp_path / "server.git")
    with Shadow(worktree) as shadow:
        shadow.snapshot("m0")
        shadow.remotes.add("origin", str(server))
        shadow.remotes.push()
    return server


def log(server: Path) -> list[str]:
    (line,) = list_refs(server, "refs/heads")
    return git("--git-dir", server, "log", "--format=%s", line).splitlines()


def test_a_turn_is_pushed_when_it_is_over(
    worktree: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWTREE_AUTO_PUSH", "origin")
    with daemon(timing=TIMING):
        serve_kept(worktree)
        with require(worktree) as shadow:
            shadow.begin("m1")
            (worktree / "a").write_text("1\n")
            shadow.end("m1")

        wait_until(lambda: log(server)[0] == "message m1")


def test_a_push_that_fails_is_noted_and_disturbs_nobody(
    worktree: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWTREE_AUTO_PUSH", "origin")
    os.rename(server, f"{server}.gone")
    with daemon(timing=TIMING):
        serve_kept(worktree)
        with require(worktree) as shadow:
            shadow.snapshot("m1")

        wait_until(lambda: any("failed" in line for line in Shadow(worktree).status().warnings))
        with require(worktree) as shadow:
            assert shadow.snapshot("m2").id == "m2"
