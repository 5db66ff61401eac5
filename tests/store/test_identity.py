"""The identity of a store: damage to it never makes the store that of another worktree, or of none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreDamaged
from shadowtree.base.errors import StoreTooOld, WorktreeReplaced
from shadowtree.store import identity
from shadowtree.store.directory import open_store
from tests.support.terminal import Terminal


def spoil(content: bytes) -> Iterator[bytes]:
    """Return every content that one flipped bit, or a cut, can make of a file."""
    for place in range(len(content)):
        yield content[:place]
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            yield bytes(flipped)


@pytest.fixture
def store(shadow: Shadow) -> Path:
    shadow.wrap()
    shadow.close()
    return shadow.store


def test_every_flipped_bit_and_every_lost_end_is_damage_or_makes_no_difference(
    store: Path, worktree: Path
) -> None:
    path = store / "shadowtree.json"
    whole = path.read_bytes()
    known = identity.read_identity(str(store))
    harmless = []
    for content in spoil(whole):
        path.write_bytes(content)
        try:
            assert identity.read_identity(str(store)) == known
            open_store(str(store), str(worktree))
            harmless.append(content)
        except StoreDamaged:
            pass
    path.write_bytes(whole)

    assert harmless == [whole[:-1]]


@pytest.mark.parametrize("command", ["status", "track", "log", "check", "snapshot m", "undo"])
@pytest.mark.parametrize("key", ["format", "worktree", "inode", "generation", "check"])
def test_commands_say_that_it_is_damaged_wherever_they_are_run(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch, command: str, key: str
) -> None:
    """A flipped bit in the worktree's name does not make the store another's."""
    (project / "below").mkdir()
    terminal.run("track")
    path = next((project.parent / "stores").glob("*/shadowtree.json"))
    content = bytearray(path.read_bytes())
    content[content.index(key.encode()) + len(key) + 5] ^= 1
    path.write_bytes(content)
    if key == "worktree":
        monkeypatch.chdir(project / "below")

    terminal.run(*command.split(), exit_code=15)


def test_a_file_without_a_checksum_is_that_of_an_unreleased_version(store: Path, worktree: Path) -> None:
    path = store / "shadowtree.json"
    older = json.loads(path.read_bytes())
    del older["check"]
    path.write_text(json.dumps(older, indent=1) + "\n")

    with Shadow(worktree, settings={"min_free": 0}) as shadow, pytest.raises(StoreTooOld):
        shadow.snapshot("m1")


# Another project at the path


@pytest.fixture
def replaced(store: Path, worktree: Path, tmp_path: Path) -> Path:
    """Put another project in the place of the worktree, with the same file names."""
    shutil.move(worktree, tmp_path / "elsewhere")
    worktree.mkdir()
    (worktree / "main.py").write_text("other")
    return worktree


def read_small(store: Path) -> list[bytes]:
    """Read the small files that show which worktree a store belongs to."""
    return [(store / name).read_bytes() for name in ("shadowtree.json", "config")]


@pytest.mark.parametrize("command", ["status", "check", "check --repair", "check --repair --dry-run"])
def test_commands_refuse_another_project_at_the_path(
    terminal: Terminal, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    before = read_small(store)
    shutil.move(project, tmp_path / "elsewhere")
    project.mkdir()
    monkeypatch.chdir(project)

    terminal.run(*command.split(), exit_code=10)

    assert f"the store {store} belongs to another directory" in terminal.err
    assert read_small(store) == before


def test_a_store_of_another_directory_is_neither_checked_nor_repaired(replaced: Path, store: Path) -> None:
    before = read_small(store)

    with Shadow(replaced) as shadow:
        with pytest.raises(WorktreeReplaced):
            shadow.check()
        with pytest.raises(WorktreeReplaced):
            shadow.repair()

    assert read_small(store) == before


def test_a_lost_identity_does_not_make_the_store_that_of_another_project(replaced: Path, store: Path) -> None:
    """The path is the same, and git's configuration only names the same path."""
    (store / "shadowtree.json").unlink()

    with Shadow(replaced) as shadow:
        report = shadow.repair()
        with pytest.raises(StoreDamaged):
            shadow.status()

    assert [problem.kind for problem in report.problems] == ["identity"]
    assert not (store / "shadowtree.json").exists()


def test_a_lost_identity_is_not_made_up_where_nothing_noted_the_directory(
    store: Path, worktree: Path
) -> None:
    """As in a store of an earlier version. The user decides, by adopting it."""
    (store / "shadowtree.json").write_bytes(b"")
    config = store / "config"
    config.write_bytes(config.read_bytes().partition(b"[shadowtree]")[0])

    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        assert [problem.kind for problem in shadow.repair().problems] == ["identity"]
    with Shadow.adopt(worktree, store, settings={"min_free": 0}) as shadow:
        assert shadow.check().ok
