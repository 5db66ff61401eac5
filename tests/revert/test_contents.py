"""The present state for a plan: as just recorded, or read from the disk where no rule covers a path."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from shadowtree import Conflict, Shadow
from shadowtree.base.paths import DIRECTORY, MODE_LINK, PathState, RelPath, Unknown
from shadowtree.capture.capture import scan_site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import open_recorded
from shadowtree.revert.contents import Contents, DiskState
from shadowtree.revert.writer import NO_FILE, Writer
from shadowtree.store.directory import StoreLayout
from shadowtree.store.git_format import object_id
from tests.support.trees import assert_tree, file, link, make_tree

if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict
    from shadowtree.store.objects import Objects


def state(content: bytes, mode: int = 0o644) -> PathState:
    return PathState(stat.S_IFREG | mode, object_id(b"blob", content))


@pytest.fixture
def writer(worktree: Path) -> Iterator[Writer]:
    """The worktree, open for writing."""
    with Writer(str(worktree)) as writer:
        yield writer


@pytest.fixture
def present(shadow: Shadow, writer: Writer, worktree: Path) -> Iterator[DiskState]:
    """A worktree that was just recorded; no path has been read yet."""
    make_tree(
        worktree,
        {
            ".gitignore": "*.o\nout/\n",
            "a.txt": file("1", 0o600),
            "b.o": file("2", 0o640),
            "ln": link(b"to \xff"),
            "ln.o": link("b.o"),
            "empty": {},
            "s": {"t": {"deep": "3"}},
            "out": {"log": "4"},
        },
    )
    os.mkfifo(worktree / "pipe")
    os.mkfifo(worktree / "pipe.o")
    shadow.track()
    opened = OpenStore(StoreLayout(str(shadow.store)))
    record = opened.journal.last_tree()
    assert record is not None
    root = open_recorded(opened.objects, record.tree, record.facts)
    yield DiskState(root, scan_site(shadow._access.site, opened), writer)
    opened.close()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (b"a.txt", state(b"1", 0o600)),
        (b"ln", PathState(MODE_LINK, object_id(b"blob", b"to \xff"))),
        (b"s", DIRECTORY),
        (b"s/t/deep", state(b"3")),
        (b"empty", DIRECTORY),
        (b"nothing", None),
        (b"s/nothing", None),
        (b"nothing/at/all", None),
        (b"a.txt/below", None),
        (b"b.o", state(b"2", 0o640)),
        (b"ln.o", PathState(MODE_LINK, object_id(b"blob", b"b.o"))),
        (b"nothing.o", None),
        (b"out", DIRECTORY),
        (b"out/log", state(b"4")),
        (b"pipe", Unknown(NO_FILE)),
        (b"pipe.o", Unknown(NO_FILE)),
    ],
)
def test_a_path_is_seen_as_it_is_covered_or_not(
    present: DiskState, path: bytes, found: PathState | Unknown | None
) -> None:
    assert present.state_of(RelPath(path)) == found
    assert present.state_of(RelPath(path), as_directory=True) == found


def test_what_is_covered_is_seen_as_it_was_recorded(present: DiskState, worktree: Path) -> None:
    """A change after the snapshot is not in the store; the act notices it when it moves the file aside."""
    make_tree(worktree, {"a.txt": "changed"})

    assert present.state_of(RelPath(b"a.txt")) == state(b"1", 0o600)


def test_what_was_not_there_when_it_was_recorded_and_is_there_now_is_seen(
    present: DiskState, worktree: Path
) -> None:
    make_tree(worktree, {"new": "5"})

    assert present.state_of(RelPath(b"new")) == state(b"5")
    assert present.uncovered == {b"new": state(b"5")}


def test_what_no_rule_covers_and_was_seen_has_to_be_stored(present: DiskState) -> None:
    for path in (b"a.txt", b"b.o", b"ln.o", b"out", b"out/log", b"pipe", b"nothing.o", b"s"):
        present.state_of(RelPath(path))

    assert sorted(present.uncovered) == [b"b.o", b"ln.o", b"out/log"]


def test_a_path_is_looked_at_once(present: DiskState, worktree: Path) -> None:
    """A plan is based on one state."""
    first = present.state_of(RelPath(b"b.o"))
    (worktree / "b.o").write_bytes(b"changed")

    assert present.state_of(RelPath(b"b.o")) == first


def test_a_link_is_not_followed(present: DiskState, worktree: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "elsewhere", {"secret": "6"})
    make_tree(worktree, {"away": link(str(tmp_path / "elsewhere"))})

    assert present.state_of(RelPath(b"away/secret")) is None
    assert list(present.below(RelPath(b"away"))) == []


def test_all_that_is_below_a_directory_is_listed(present: DiskState, worktree: Path) -> None:
    make_tree(
        worktree,
        {
            "d": {
                "x": "1",
                "y.o": "1",
                "none": {},
                "u": {"ln": link("..")},
                ".git": {"config": ""},
                ".shadowtree-tmp-0123456789ab-1": "",
                ".shadowtree-tmp-0123456789ab-2": {"z": ""},
            }
        },
    )
    os.mkfifo(worktree / "d" / "pipe")

    assert sorted(present.below(RelPath(b"d"))) == [
        b"d/.git",
        b"d/.git/config",
        b"d/none",
        b"d/pipe",
        b"d/u",
        b"d/u/ln",
        b"d/x",
        b"d/y.o",
    ]


@pytest.mark.parametrize("path", [b"nothing", b"a.txt", b"ln", b"empty"])
def test_below_what_is_no_directory_or_empty_there_is_nothing(present: DiskState, path: bytes) -> None:
    assert list(present.below(RelPath(path))) == []


# The user's empty directory, in a directory that has to become a file again


@pytest.fixture
def with_empty_directory(shadow: Shadow, worktree: Path) -> Shadow:
    """A message replaced a file by a directory; then the user made an empty directory in it."""
    make_tree(worktree, {"p": "file"})
    with shadow.message("m1"):
        (worktree / "p").unlink()
        make_tree(worktree, {"p": {"x": "1"}})
    make_tree(worktree, {"p": {"mine": {}}})
    return shadow


@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_an_empty_directory_in_the_way_is_told_before_anything_is_done(
    with_empty_directory: Shadow, worktree: Path, on_conflict: OnConflict
) -> None:
    """The act used to find it too late, and each time claimed that it had just been created."""
    with pytest.raises(Conflict) as caught:
        with_empty_directory.revert("m1", on_conflict=on_conflict)

    assert [(each.path, each.reason) for each in caught.value.conflicts] == [
        ("p", "it contains p/mine, which must stay")
    ]
    assert_tree(worktree, {"p": {"x": "1", "mine": {}}})


def test_an_empty_directory_in_the_way_can_be_kept(with_empty_directory: Shadow, worktree: Path) -> None:
    outcome = with_empty_directory.revert("m1", on_conflict="keep")

    assert (outcome.kept, outcome.deleted, outcome.complete) == (["p"], ["p/x"], True)
    assert_tree(worktree, {"p": {"mine": {}}})


def test_a_text_to_merge_is_never_taken_from_the_worktree_for_another_one(
    shadow: Shadow, writer: Writer, worktree: Path
) -> None:
    """The store doubts a blob because of a damaged copy, but a second copy is sound; the file is newer."""
    make_tree(worktree, {"a.txt": "recorded"})
    shadow.track()
    make_tree(worktree, {"a.txt": "edited since"})
    opened = OpenStore(StoreLayout(str(shadow.store)))

    class Doubting:
        """Objects in which the first copy is damaged."""

        def has(self, blob: bytes) -> bool:
            return False

        def __getattr__(self, name: str) -> Any:  # Any: an attribute of the objects
            return getattr(opened.objects, name)

    contents = Contents(cast("Objects", Doubting()), writer)
    found = contents.read_to_merge(RelPath(b"a.txt"), object_id(b"blob", b"recorded"))
    opened.close()

    assert found == b"recorded"
