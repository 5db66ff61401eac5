"""The changes of a message derived from the census: the same as from comparing trees, or none."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest

from shadowtree import ChangedPath, Message
from shadowtree.base.paths import RelPath
from shadowtree.capture.directories import Directory
from shadowtree.capture.recorded_tree import list_rewritten
from shadowtree.capture.scan import Scan
from shadowtree.messages import record as recorder
from shadowtree.results.messages import make_patch
from tests.random.test_watch_random import SEED, editing
from tests.support.watching import Watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

Told = list[list[ChangedPath] | None]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Collect the changes derived from the census, and have the messages made by comparing trees."""
    found: Told = []

    def note(scan: Scan, tree: bytes, facts: bytes) -> None:
        changes = list_rewritten(scan, tree, facts)
        found.append(None if changes is None else make_patch("", changes).files)

    monkeypatch.setattr(recorder, "list_rewritten", note)
    return found


def record(watched: Watched, id: str) -> Message:
    """Record the changes since the last message."""
    return watched.shadow.snapshot(id)


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_random_edits_are_told_as_their_trees_tell_them(seed: int, watched: Watched, told: Told) -> None:
    record(watched, "first")
    answers = 0
    with editing(watched, 4000 + seed) as editor:
        for step in range(80):
            # Most edits here create or remove something; such changes are not derived from the census.
            for _ in range(editor.random.choice((1, 1, 2))):
                with suppress(OSError):
                    editor.random.choice((editor.write, editor.change_bits, editor.edit))()
            told.clear()
            message = record(watched, f"{step}")
            for files in told:
                assert files is None or files == message.patch.files, step
                answers += files is not None
    assert answers > 10


def test_edits_of_files_are_told_without_reading_a_tree(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(watched, "first")
    (watched.top / "a.txt").write_text("two\n")
    (watched.top / "src" / "deep" / "er" / "f").chmod(0o600)
    monkeypatch.setattr(recorder, "list_changes", None)

    message = record(watched, "second")

    assert [changed.path for changed in message.patch.files] == ["a.txt", "src/deep/er/f"]
    assert {changed.status for changed in message.patch.files} == {"modified"}


def test_a_name_that_came_or_went_is_left_to_the_trees(watched: Watched, told: Told) -> None:
    record(watched, "first")
    (watched.top / "src" / "new.py").write_text("new")
    record(watched, "came")
    (watched.top / "c" / "x").unlink()
    record(watched, "went")
    (watched.top / "empty").rmdir()
    record(watched, "directory")

    assert told == [None, None, None]


def test_what_is_known_is_not_relied_on_where_it_is_not_what_was_recorded(
    watched: Watched, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a census is made from a cache that lost its newest rows."""
    record(watched, "first")
    (watched.top / "src" / "m.py").write_text("other")
    real = Scan.known

    def know_an_older_one(scan: Scan, path: RelPath) -> Directory | None:
        known = real(scan, path)
        if path == b"src" and known is not None:
            known = known.copy()
            known.tree = bytes(20)
        return known

    monkeypatch.setattr(Scan, "known", know_an_older_one)
    record(watched, "second")

    assert told == [None]
