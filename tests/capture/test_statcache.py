"""The stat cache after a power cut: rows may be old, torn or foreign, but snapshots are right."""

from __future__ import annotations

import itertools
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.base.paths import RelPath
from shadowtree.capture.stat_cache import StatCache
from tests.support.limits import change_limits
from tests.support.referee import assert_sound_store, git_tree
from tests.support.stores import store_of, track
from tests.support.trees import make_tree


@pytest.fixture(autouse=True)
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every scan an hour later, so that the cache trusts its stamps."""
    change_limits(monkeypatch, file_clock_ns=lambda: time.time_ns() + 3_600_000_000_000)


@pytest.fixture
def store(worktree: Path) -> Path:
    """The store of a worktree with a file at the top and one below it."""
    make_tree(worktree, {"top": "t", "sub": {"f": "1", "deep": {"g": "1"}}})
    track(worktree)
    return store_of(worktree)


@contextmanager
def cache_of(store: Path) -> Iterator[sqlite3.Connection]:
    """Open the cache of a store, and save the changes of the body."""
    with closing(sqlite3.connect(store / "cache.db")) as connection, connection:
        yield connection


def read_row(store: Path, path: bytes) -> bytes:
    with cache_of(store) as cache:
        row: bytes = cache.execute("SELECT row FROM directories WHERE path = ?", (path,)).fetchone()[0]
        return row


def write_row(store: Path, path: bytes, row: bytes) -> None:
    with cache_of(store) as cache:
        cache.execute("UPDATE directories SET row = ? WHERE path = ?", (row, path))


@pytest.mark.parametrize(
    "old", [(b"",), (b"sub",), (b"", b"sub"), (b"sub/deep",)], ids=["top", "middle", "both", "lowest"]
)
def test_an_old_row_of_a_directory_beside_a_new_one_below_it_is_noticed(
    worktree: Path, store: Path, tmp_path: Path, old: tuple[bytes, ...]
) -> None:
    rows = {path: read_row(store, path) for path in old}
    make_tree(worktree, {"sub": {"deep": {"g": "2"}}})
    after = track(worktree)
    for path, row in rows.items():
        write_row(store, path, row)

    assert track(worktree) == after == git_tree(worktree, tmp_path / "scratch")


def test_a_lost_row_between_two_that_were_kept_is_noticed(
    worktree: Path, store: Path, tmp_path: Path
) -> None:
    row = read_row(store, b"")
    make_tree(worktree, {"sub": {"deep": {"g": "2"}}})
    after = track(worktree)
    write_row(store, b"", row)
    with cache_of(store) as cache:
        cache.execute("DELETE FROM directories WHERE path = ?", (b"sub",))

    assert track(worktree) == after == git_tree(worktree, tmp_path / "scratch")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE directories SET row = x''",
        "UPDATE directories SET row = x'00'",
        "UPDATE directories SET row = zeroblob(4)",
        "UPDATE directories SET row = zeroblob(length(row))",
        "UPDATE directories SET row = substr(row, 1, length(row) / 2)",
        "UPDATE directories SET row = substr(row, 1, length(row) - 1) || x'55'",
        "UPDATE directories SET row = 5",
        "UPDATE directories SET row = 'text'",
        "UPDATE directories SET path = cast(path AS TEXT)",
        "UPDATE info SET value = x''",
        "UPDATE info SET value = x'00'",
        "UPDATE info SET value = x'e905000000'",
        "UPDATE info SET value = substr(value, 1, length(value) / 2)",
        "UPDATE info SET value = 5",
        "UPDATE info SET value = 'text'",
        "DELETE FROM info",
        "DROP TABLE info",
        "DROP TABLE directories",
    ],
)
def test_rows_of_wrong_bytes_or_types_only_cost_time(
    worktree: Path, store: Path, tmp_path: Path, damage: str
) -> None:
    expected = git_tree(worktree, tmp_path / "scratch")
    with cache_of(store) as cache:
        cache.execute(damage)

    assert track(worktree) == expected
    assert track(worktree) == expected
    assert_sound_store(store)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("is_watched", [False, True], ids=["scanned", "watched"])
@pytest.mark.parametrize("is_looked_at", [False, True], ids=["at once", "after a look"])
def test_who_watches_saves_the_trees_above_what_changed_and_the_next_process_finds_them(
    worktree: Path, tmp_path: Path, is_looked_at: bool, is_watched: bool
) -> None:
    """An old tree in a row might have been swept since, and would count as stored."""
    store = tmp_path / "store"
    make_tree(worktree, {"top": "t", "sub": {"f": "1", "deep": {"g": "1"}}})
    rows = []
    with Shadow(worktree, store=store, watch=True) as shadow:
        for content in ("2", "3", "4"):
            shadow.track()
            rows.append({path: read_row(store, path) for path in (b"", b"sub", b"sub/deep")})
            make_tree(worktree, {"sub": {"deep": {"g": content}}})
        after = shadow.track()
    changed = [{path for path in old if old[path] != new[path]} for old, new in itertools.pairwise(rows)]
    cache = StatCache(str(store / "cache.db"))
    cache.load()
    known = [cache.get(RelPath(path)) for path in (b"", b"sub")]
    cache.close()

    assert changed == [{b"", b"sub", b"sub/deep"}] * 2
    assert known[0] is not None
    assert known[0].tree == bytes.fromhex(after)
    assert all(row is not None and row.tree is not None and not row.is_stale for row in known)
    assert after == git_tree(worktree, tmp_path / "scratch")
    with Shadow(worktree, store=store, watch=is_watched) as other:
        if is_looked_at:
            assert other.status().changed == 0
        assert other.track() == other.track() == after
    assert_sound_store(store)


def test_the_log_of_the_cache_stays_small_while_it_is_open(worktree: Path) -> None:
    make_tree(worktree, {f"d{number}": {f"f{at}": "1" for at in range(100)} for number in range(40)})
    with Shadow(worktree) as shadow:
        for turn in range(8):
            for number in range(40):
                (worktree / f"d{number}" / "f0").write_text(f"turn {turn}")
            shadow.track()
        size = (store_of(worktree) / "cache.db-wal").stat().st_size
    assert size < 1 << 20
