"""Commits that keep trees from `git gc` are made anew if they are lost, and no others."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.timeline.journal import Journal
from tests.support.damage import packs_of
from tests.support.referee import git
from tests.support.stores import read_timeline

pytestmark = pytest.mark.usefixtures("large_packs")


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """Five messages, all of whose objects are loose, so that single ones can be lost."""
    (worktree / "f").write_text("of nobody\n")
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.wrap()
        for number in range(5):
            with shadow.message(f"m{number}"):
                (worktree / "f").write_text(f"of message {number}\n")
        yield shadow


def unpack(shadow: Shadow) -> None:
    """Make all objects loose."""
    shadow.close()
    aside = shadow.store.parent / "aside"
    aside.mkdir()
    for pack in packs_of(shadow.store):
        pack.with_suffix(".idx").unlink()
        with pack.rename(aside / pack.name).open("rb") as file:
            subprocess.run(["git", "--git-dir", shadow.store, "unpack-objects", "-q"], stdin=file, check=True)


def keepers(shadow: Shadow, *, live: bool) -> list[str]:
    """Name the commits of trees that are live, or were forgotten."""

    def read(journal: Journal) -> list[str]:
        records = [record for record in journal.all_trees() if (record.forgotten_ms is None) is live]
        return [record.keeper.hex() for record in records]

    return read_timeline(shadow.store, read)


def lose(shadow: Shadow, id: str) -> None:
    """Remove a loose object."""
    (shadow.store / "objects" / id[:2] / id[2:]).unlink()


def made_of(report_lines: list[str]) -> list[str]:
    """Give what a repair says of keepers."""
    return [line for line in report_lines if "keep trees from 'git gc'" in line]


def test_what_keeps_forgotten_trees_is_not_made_again(recorded: Shadow) -> None:
    recorded.forget(keep_last=2)
    unpack(recorded)
    lose(recorded, keepers(recorded, live=True)[-1])

    report = recorded.repair()

    assert report.ok, report.problems
    assert made_of(report.repaired) == [
        "1 objects that keep trees from 'git gc' were made anew from the timeline"
    ]
    assert "dangling" not in git("--git-dir", recorded.store, "fsck", "--full", "--strict")


def test_what_leads_from_live_trees_to_older_ones_is_made_again(recorded: Shadow) -> None:
    """What is forgotten and not swept yet is still in between."""
    recorded.pin("m0")
    recorded.forget(keep_last=1, gc=False)
    unpack(recorded)
    forgotten = keepers(recorded, live=False)
    assert forgotten
    for id in forgotten:
        lose(recorded, id)

    report = recorded.repair()

    assert report.ok, report.problems
    assert len(made_of(report.repaired)) == 1
    git("--git-dir", recorded.store, "fsck", "--full", "--strict")
