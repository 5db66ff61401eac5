"""Damaged rows of journaled packs: sound objects are kept, and no only copy is removed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.store.git_format import PackBytes, blob_id
from tests.support.referee import git
from tests.support.stores import journaled_packs

FIRST, SECOND = os.urandom(400), os.urandom(400)
"""The contents of two files in the message: random, so that each is whole in its pack."""


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """A message that changed two files, both of which are different in the worktree now."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.wrap()
        with shadow.message("m1"):
            (worktree / "first").write_bytes(FIRST)
            (worktree / "second").write_bytes(SECOND)
        for name in ("first", "second"):
            (worktree / name).unlink()
        yield shadow


def newest_row(shadow: Shadow) -> PackBytes:
    """Return the journaled pack that was added last."""
    return journaled_packs(shadow.store)[0]


def change_row(shadow: Shadow, name: str, *, pack: bytes | None = None, index: bytes | None = None) -> None:
    """Change the bytes of a journaled pack directly."""
    shadow.close()
    with sqlite3.connect(shadow.store / "timeline.db") as connection:
        for column, content in (("pack", pack), ("pack_index", index)):
            if content is not None:
                connection.execute(f"UPDATE packs SET {column} = ? WHERE name = ?", (content, name))
    connection.close()


def flip(content: bytes, at: int) -> bytes:
    """Flip one bit."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def remove_files(shadow: Shadow, name: str) -> None:
    """Remove the files of a pack."""
    for suffix in (".pack", ".idx"):
        (shadow.store / "objects" / "pack" / (name + suffix)).unlink()


def lost_blobs(shadow: Shadow) -> set[str]:
    """Return what a check reports as lost."""
    return {problem.what for problem in shadow.check(read_data=True).problems}


def blob_of(content: bytes) -> str:
    """Return the id of a content."""
    return blob_id(content).hex()


def test_what_is_whole_in_a_damaged_row_is_kept_if_its_files_are_missing(recorded: Shadow) -> None:
    row = newest_row(recorded)
    damaged = flip(row.pack, row.pack.index(FIRST[100:200]))
    remove_files(recorded, row.name)
    change_row(recorded, row.name, pack=damaged)

    report = recorded.repair()

    assert {problem.what for problem in report.problems} == {blob_of(FIRST)}
    assert lost_blobs(recorded) == {blob_of(FIRST)}
    assert report.quarantine is not None
    aside = Path(report.quarantine) / "journaled"
    assert (aside / f"{row.name}.pack").read_bytes() == damaged
    assert (aside / f"{row.name}.idx").read_bytes() == row.index
    assert recorded.repair(forget_lost=True).ok
    recorded.gc()


def test_what_files_and_a_damaged_row_hold_together_is_kept(recorded: Shadow) -> None:
    row = newest_row(recorded)
    path = recorded.store / "objects" / "pack" / f"{row.name}.pack"
    path.write_bytes(flip(row.pack, row.pack.index(SECOND[100:200])))
    change_row(recorded, row.name, pack=flip(row.pack, row.pack.index(FIRST[100:200])))

    report = recorded.repair()

    assert report.ok, report.problems
    git("--git-dir", recorded.store, "fsck", "--full", "--strict")
    recorded.gc()


DAMAGE_TO_INDEX: dict[str, Callable[[bytes], bytes]] = {
    "a flipped id": lambda index: flip(index, 1100),
    "cut": lambda index: index[:100],
    "empty": lambda index: b"",
}


@pytest.mark.parametrize("damage", DAMAGE_TO_INDEX.values(), ids=DAMAGE_TO_INDEX)
def test_a_row_whose_index_is_damaged_loses_nothing(
    recorded: Shadow, damage: Callable[[bytes], bytes]
) -> None:
    row = newest_row(recorded)
    remove_files(recorded, row.name)
    change_row(recorded, row.name, index=damage(row.index))

    report = recorded.repair()

    assert report.ok, report.problems
    assert recorded.check(read_data=True).ok
    recorded.gc()


def test_a_row_of_which_nothing_is_left_goes_if_its_files_are_whole(recorded: Shadow) -> None:
    row = newest_row(recorded)
    change_row(recorded, row.name, pack=b"\0")

    report = recorded.repair()

    assert report.ok, report.problems
    assert report.repaired == ["1 damaged copy of a pack moved from the timeline to quarantine"]
    assert row.name not in [pack.name for pack in journaled_packs(recorded.store)]
    recorded.gc()


def test_a_row_of_which_nothing_is_left_is_put_aside_if_its_files_are_missing(recorded: Shadow) -> None:
    row = newest_row(recorded)
    remove_files(recorded, row.name)
    change_row(recorded, row.name, pack=b"\0", index=b"")

    report = recorded.repair()

    assert not report.ok
    assert recorded.repair(forget_lost=True).ok
    recorded.gc()
