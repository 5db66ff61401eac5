"""A worktree with a history, and a server of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.support.trees import make_tree
from tests.web.client import Client


@pytest.fixture
def history(shadow: Shadow, worktree: Path) -> Shadow:
    """Three turns of an agent: the first with a step, the last of two messages."""
    make_tree(worktree, {"a": "0\n", "same": "same\n"})
    shadow.wrap()
    with shadow.message("one", text="write a and b\nand more", role="user", meta={"agent": "claude"}):
        with shadow.step("edit"):
            make_tree(worktree, {"a": "1\n", "b": "1\n"})
    with shadow.message("two", text="write a", role="user"):
        (worktree / "a").write_text("2\n")
    with shadow.message("three", text="write c", role="user"):
        (worktree / "c").write_text("3\n")
    with shadow.message("four", text="and d", role="assistant"):
        (worktree / "d").write_text("4\n")
    return shadow


@pytest.fixture
def server(history: Shadow) -> Iterator[Server]:
    """A server of that history."""
    with Server(history) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    """Somebody who has the token."""
    return Client.of(server)
