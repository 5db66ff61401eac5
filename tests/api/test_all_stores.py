"""All stores of a user: the warning about their total size, and `gc --all`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.all_stores import gc_all
from tests.api.test_budget import ids, record
from tests.support.terminal import Terminal

pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline, so that sizes are easy to compare."""


@pytest.fixture
def projects(tmp_path: Path) -> list[Path]:
    """Two worktrees with ten messages each."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
        with Shadow(place, settings={"min_free": 0}) as shadow:
            record(shadow, *(f"m{number}" for number in range(10)))
    return places


def count_messages(projects: list[Path]) -> list[int]:
    return [len(ids(Shadow(project))) for project in projects]


def test_work_in_one_project_forgets_nothing_in_another(projects: list[Path]) -> None:
    settings = {"min_free": 0, "keep_turns": 2, "total_budget": 1000}
    with Shadow(projects[1], settings=settings) as shadow:
        record(shadow, *(f"n{number}" for number in range(60)), size=10)
        shadow.gc()

    assert count_messages(projects)[0] == 10


def test_status_warns_when_all_stores_together_are_over_their_budget(projects: list[Path]) -> None:
    def warnings(budget: int) -> list[str]:
        with Shadow(projects[0], settings={"total_budget": budget}) as shadow:
            return shadow.status().warnings

    (warning,) = warnings(1000 * 1024)
    assert warning.startswith("all stores together use 2.")
    assert warning.endswith(", over the 1000 KiB budget")
    assert warnings(100 << 20) == warnings(0) == []


def test_gc_all_applies_each_projects_own_settings(
    projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"KEEP_LAST": "4", "KEEP_WITHIN": "0", "KEEP_TURNS": "1"}.items():
        monkeypatch.setenv(f"SHADOWTREE_{key}", value)

    planned = gc_all({**os.environ}, dry_run=True)
    assert count_messages(projects) == [10, 10]
    done = gc_all({**os.environ})

    assert count_messages(projects) == [4, 4]
    assert {each.worktree for each in planned} == {each.worktree for each in done} == set(map(str, projects))
    assert all(each.swept is not None and each.swept.freed > 500 * 1024 for each in done)


def test_gc_all_leaves_what_it_cannot_sweep_and_sweeps_the_rest(
    projects: list[Path], terminal: Terminal
) -> None:
    one, two = (Shadow(project).store for project in projects)
    projects[1].rename(projects[1].with_name("moved"))

    found = terminal.run_json("gc", "--all", exit_code=1)

    by_store = {each["store"]: each for each in found}
    assert by_store[str(one)]["reason"] is None
    assert "renamed" in by_store[str(two)]["reason"]
    assert "skipped  " in terminal.run("gc", "--all", "--dry-run", exit_code=1)
    terminal.run("gc", "--all", "--orphans", exit_code=2)


def test_stats_all_warns_when_all_stores_together_are_over_their_budget(
    projects: list[Path], terminal: Terminal
) -> None:
    terminal.run("stats", "--all", "--set", "total_budget=1M")
    assert "all stores together use 2." in terminal.err

    terminal.run("stats", "--all")
    assert terminal.err == ""
