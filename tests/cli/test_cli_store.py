"""The contents and the size of a store, as people read them; the figures are tested through `Shadow`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.terminal import Terminal


def record(terminal: Terminal, project: Path, session: str = "default") -> None:
    """Record a message that changes a file."""
    terminal.run("--session", session, "begin", f"m-{session}")
    (project / f"{session}.bin").write_bytes(bytes(range(256)) * 400)
    terminal.run("--session", session, "end")


def test_stats_show_a_share_of_the_budget_only_if_there_is_one(terminal: Terminal, project: Path) -> None:
    record(terminal, project)

    assert "%" in terminal.run("stats")
    assert "%" not in terminal.run("stats", "--set", "store_budget=0")


def test_without_a_store_the_list_of_stores_is_empty(terminal: Terminal, project: Path) -> None:
    assert terminal.run_json("stats", "--all") == []
    assert "No stores" in terminal.run("stats", "--all")


def test_space_is_shown_for_each_session(terminal: Terminal, project: Path) -> None:
    terminal.run("wrap")
    record(terminal, project, "one")
    record(terminal, project, "two")

    told = terminal.run("du", "--by-session")

    assert "one (1 message)" in told
    assert "two (1 message)" in told


def test_the_store_of_a_deleted_directory_is_removed_when_you_say_so(
    terminal: Terminal, project: Path
) -> None:
    other = project.parent / "other"
    shutil.copytree(project, other)
    for directory in (other, project):  # this process stays in the last one
        terminal.run("-C", str(directory), "wrap")
    shutil.rmtree(other)

    planned = terminal.run("gc", "--orphans", "--dry-run")
    assert len(terminal.run_json("stats", "--all")) == 2
    removed = terminal.run("gc", "--orphans", "--yes")

    assert "1 store" in planned
    assert "1 store" in removed
    assert len(terminal.run_json("stats", "--all")) == 1
    assert str(project) in terminal.run("stats", "--all")
