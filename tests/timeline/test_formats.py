"""A store from before the first release is refused in one line, and left as it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.base.errors import StoreTooOld
from tests.support.terminal import Terminal

UNRELEASED = Path(__file__).parents[2] / "fixtures" / "stores" / "unreleased"


@pytest.fixture
def store(worktree: Path, tmp_path: Path) -> Path:
    """A store that belongs to the worktree, with the timeline of an unreleased version."""
    store = tmp_path / "store"
    with Shadow(worktree, store=store, settings={"min_free": 0}) as shadow:
        shadow.track()
    for name in ("timeline.db-wal", "timeline.db-shm"):
        (store / name).unlink(missing_ok=True)
    shutil.copyfile(UNRELEASED / "timeline.db", store / "timeline.db")
    return store


ACTS: dict[str, Callable[[Shadow], object]] = {
    "track": Shadow.track,
    "begin": lambda shadow: shadow.begin("m5"),
    "messages": Shadow.messages,
    "status": Shadow.status,
    "undo": Shadow.undo,
    "gc": Shadow.gc,
    "check": Shadow.check,
    "repair": Shadow.repair,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_unreleased_timeline_is_refused(
    act: Callable[[Shadow], object], worktree: Path, store: Path
) -> None:
    before = (store / "timeline.db").read_bytes()

    with Shadow(worktree, store=store, settings={"min_free": 0}) as shadow, pytest.raises(StoreTooOld):
        act(shadow)

    assert (store / "timeline.db").read_bytes() == before


def test_a_whole_unreleased_store_is_refused(worktree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(UNRELEASED, store)
    for path in [store, *store.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)

    with pytest.raises(StoreTooOld):
        with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
            shadow.messages()


def test_the_command_says_so_in_one_line(project: Path, terminal: Terminal) -> None:
    terminal.run("track")
    (timeline,) = (project.parent / "stores").glob("*/timeline.db")
    shutil.copyfile(UNRELEASED / "timeline.db", timeline)

    terminal.run("track", exit_code=1)

    assert "was written by a pre-release version and cannot be read" in terminal.err
    assert len(terminal.err.splitlines()) <= 2
