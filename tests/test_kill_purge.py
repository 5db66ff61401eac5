"""kill -9 at every write of a purge: nothing is purged yet, or the next command finishes it by itself."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Purged, Shadow, StoreFailed
from shadowtree.journal import Journal
from tests.faults import SETTINGS, assert_no_leftovers, assert_records_whole, put_back, store_of, sweep_kills
from tests.referee import assert_sound_store
from tests.searching import find_objects
from tests.test_purge import CONTENTS, SECRETS, assert_nowhere, tell


def purge(worktree: Path) -> Purged:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        return shadow.purge("conf/key.env")


def sweep(worktree: Path, saved: Path, *, at_calls: bool, first: int = 1, step: int = 1) -> int:
    """Kill a purge at its writes, and see that nothing else is lost and that it is finished or not begun."""
    store = store_of(worktree)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        states = tell(shadow, worktree, 6)
        shadow.undo()
        with shadow.message("m6"):
            (worktree / "conf" / "key.env").write_bytes(CONTENTS[3])
        shadow.pin("m1")
        shadow.forget(keep_last=3, gc=False)
    shutil.copytree(store, saved)
    begun = set()

    def check() -> None:
        assert_records_whole(store)
        with Shadow(worktree, settings=SETTINGS) as shadow:
            is_purged = not shadow.messages()[-1].patch.files
            begun.add(is_purged)
            assert [branch.name == "the-key-is-purged" for branch in shadow.branches()] == [is_purged]
            if is_purged:
                assert_nowhere(store)
            else:
                assert_sound_store(store)
                assert find_objects(store, SECRETS)
            again = shadow.purge("conf/key.env")
            assert again.paths == ([] if is_purged else ["conf/key.env"])
            assert_nowhere(store)
            for name in ("m1", "m5"):
                shadow.restore(name)
                assert (worktree / "a.txt").read_text() == states[name]
        assert_no_leftovers(store)

    kills = sweep_kills(
        lambda: put_back(saved, store),
        lambda: purge(worktree),
        check,
        at_calls=at_calls,
        first=first,
        step=step,
    )
    assert begun == {False, True} or step > 1
    return kills


def test_a_purge_can_be_killed_at_every_seventh_write(worktree: Path, tmp_path: Path) -> None:
    assert sweep(worktree, tmp_path / "saved", at_calls=False, first=2, step=7) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("at_calls", [False, True], ids=["writes", "calls"])
def test_a_purge_can_be_killed_at_every_write(worktree: Path, tmp_path: Path, at_calls: bool) -> None:
    assert sweep(worktree, tmp_path / "saved", at_calls=at_calls) >= 35


def test_what_could_not_be_finished_is_told_and_finished_later(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(shadow, worktree, 3)

    def fail(journal: Journal) -> None:
        raise StoreFailed("timeline.db", "it is in use")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "scrub", fail)
        with pytest.raises(StoreFailed):
            shadow.purge("conf/key.env")
        with Shadow(worktree, settings=SETTINGS) as other:
            other.undo()
            assert other.recovered == ["a purge is not finished yet: timeline.db: it is in use"]

    with Shadow(worktree, settings=SETTINGS) as other:
        other.status()
        assert other.recovered == ["a purge that was interrupted is finished"]
    assert_nowhere(shadow.store)


def test_somebody_who_still_reads_the_old_timeline_is_told_of(shadow: Shadow, worktree: Path) -> None:
    """What they see is in the log as long as they do."""
    tell(shadow, worktree, 3)
    with closing(sqlite3.connect(shadow.store / "timeline.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        with shadow._gate.locked() as opened:
            opened.journal._connection.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(StoreFailed, match="keeps reading"):
            shadow.purge("conf/key.env")

    shadow.track()

    assert_nowhere(shadow.store)
