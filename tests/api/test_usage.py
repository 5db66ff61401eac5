"""Space in a store, by path, by session and in total, compared with the sizes that real git reports."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import AsyncShadow, InvalidInput, Shadow, StoreDamaged, UnknownName
from shadowtree.store.git_format import deflate
from tests.support.referee import assert_sound_store
from tests.support.terminal import Terminal
from tests.support.trees import make_tree


def _git_sizes(store: Path) -> dict[str, int]:
    """Get the size of each object on disk from git."""
    ask = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize:disk)"]
    listed = subprocess.run(
        ["git", "--git-dir", str(store), *ask], capture_output=True, text=True, check=True
    )
    pairs = (line.split() for line in listed.stdout.splitlines())
    # Git has the empty tree built in, and does not report where it is.
    return {name: int(size) or 1 + len(deflate(b"")) for name, size in pairs}


def _git_id(store: Path, tree: str, path: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", store, "rev-parse", f"{tree}:{path}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _noise(size: int) -> bytes:
    return os.urandom(size)


@pytest.fixture
def grown(shadow: Shadow, worktree: Path) -> list[str]:
    """A store in which `big` has three versions, and `src/a` two; the ids of its trees."""
    return _grow(shadow, worktree)


@pytest.fixture
def rough(worktree: Path, large_packs: None) -> Iterator[Shadow]:
    """The same store, to which git or somebody else writes."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        _grow(shadow, worktree)
        yield shadow


def _grow(shadow: Shadow, worktree: Path) -> list[str]:
    make_tree(worktree, {"big": _noise(5000), "src": {"a": "1", "deep": {"b": "2"}}, "same": "1"})
    trees = [shadow.track()]
    for version in range(2):
        (worktree / "big").write_bytes(_noise(5000))
        (worktree / "src" / "a").write_text(f"a {version // 2}")
        trees.append(shadow.track())
    return trees


def test_a_path_takes_what_git_says_of_its_versions(shadow: Shadow, grown: list[str]) -> None:
    sizes = _git_sizes(shadow.store)
    usage = shadow.du(depth=3)
    figures = {entry.path: entry for entry in usage.entries}

    for path in ("big", "src/deep/b"):
        ids = {_git_id(shadow.store, tree, path) for tree in grown}
        assert figures[path].bytes == sum(sizes[each] for each in ids)
        assert figures[path].versions == len(ids)
    assert figures["big"].versions == 3
    assert usage.entries[0].path == "big"


def test_a_directory_takes_what_is_below_it_and_its_listings(shadow: Shadow, grown: list[str]) -> None:
    sizes = _git_sizes(shadow.store)
    figures = {entry.path: entry.bytes for entry in shadow.du(depth=3).entries}
    listings = {_git_id(shadow.store, tree, "src") for tree in grown}

    below = figures["src/a"] + figures["src/deep/"]
    assert figures["src/"] == below + sum(sizes[each] for each in listings)


def test_what_is_stored_once_counts_once(shadow: Shadow, grown: list[str]) -> None:
    """`same` and the first `src/a` are one blob; the newest tree has it at `same`."""
    figures = {entry.path: entry for entry in shadow.du(depth=3).entries}

    assert figures["same"].versions == 1
    assert figures["src/a"].versions == 1


def test_levels_are_summed_up(shadow: Shadow, grown: list[str]) -> None:
    whole = shadow.du()

    assert sorted(entry.path for entry in whole.entries) == ["big", "same", "src/"]
    assert shadow.du(depth=0).entries == []
    assert shadow.du(depth=0).bytes == whole.bytes
    below = shadow.du("src")
    assert sorted(entry.path for entry in below.entries) == ["src/a", "src/deep/"]
    assert below.bytes == next(entry.bytes for entry in whole.entries if entry.path == "src/")
    assert shadow.du("src/a").versions == 1
    assert shadow.du("src/a").entries == []


def test_a_path_that_was_a_file_and_a_directory_is_both(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "file", "y": {"z": "below"}})
    shadow.track()
    (worktree / "x").unlink()
    make_tree(worktree, {"x": {"z": "other"}})
    shadow.track()

    figures = {entry.path: entry.bytes for entry in shadow.du().entries}
    assert shadow.du("x").bytes == figures["x"] + figures["x/"]


def test_what_was_deleted_still_counts(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"gone": _noise(3000), "stays": "1"})
    shadow.track()
    (worktree / "gone").unlink()
    shadow.track()

    assert shadow.du("gone").bytes >= 3000


def test_what_was_never_stored_is_unknown(shadow: Shadow, grown: list[str]) -> None:
    for path in ("nothing", "bi", "src/a/b"):
        with pytest.raises(UnknownName, match="nothing is recorded for"):
            shadow.du(path)
    with pytest.raises(InvalidInput):
        shadow.du("..")
    with pytest.raises(InvalidInput):
        shadow.du(depth=-1)


def test_all_that_is_stored_is_accounted_for(shadow: Shadow, grown: list[str]) -> None:
    stats = shadow.stats()
    sizes = _git_sizes(shadow.store)

    assert stats.object_bytes == sum(sizes.values())
    assert stats.free_bytes == 0
    assert stats.trees == 3
    packs = sum(path.stat().st_size for path in (shadow.store / "objects/pack").iterdir())
    assert stats.store_bytes == packs + stats.timeline_bytes + stats.cache_bytes
    assert stats.largest[0].path == "big"


@pytest.mark.parametrize("is_grown", [False, True])
def test_stats_and_status_agree_on_what_a_store_takes(
    terminal: Terminal, project: Path, is_grown: bool
) -> None:
    """The files that SQLite keeps while somebody reads are no part of a store."""
    for number in range(5 if is_grown else 1):
        (project / "big").write_bytes(_noise(100_000))
        terminal.run("snapshot", f"m{number}")
    budget = ["--set", "store_budget=100K"]

    found = terminal.run_json("stats", *budget)
    told = terminal.run("stats", *budget)
    (warning,) = terminal.run_json("status", *budget)["warnings"]

    share = found["store_bytes"] * 100 // found["budget_bytes"]
    assert f", {share}% of its " in warning
    assert f" budget ({share}%)\n" in told


def test_what_nothing_needs_would_be_freed(rough: Shadow, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(_noise(2000))
    subprocess.run(["git", "--git-dir", rough.store, "hash-object", "-w", garbage], check=True)

    assert rough.stats().free_bytes > 2000


def test_what_the_settings_do_not_keep_would_be_freed(worktree: Path) -> None:
    settings = {"min_free": 0, "keep_last": 1, "keep_within": 0, "keep_turns": 1}
    with Shadow(worktree, settings=settings) as shadow:
        for number in range(4):
            (worktree / "f").write_bytes(_noise(3000))
            shadow.snapshot(f"m{number}")
        promised = shadow.stats().free_bytes
        assert promised > 2 * 3000

        freed = shadow.gc().freed
        after = shadow.stats()
        assert after.messages == 1
        assert after.free_bytes < 1000
        assert freed > promised // 2
    assert_sound_store(shadow.store)


def test_after_a_repack_the_figures_are_those_of_git(rough: Shadow, worktree: Path) -> None:
    """Deltas count with their own size."""
    for number in range(5):
        (worktree / "text").write_text("".join(f"line {line} {line == number}\n" for line in range(200)))
        rough.track()
    whole = rough.stats().object_bytes
    rough.gc()
    stats = rough.stats()
    assert stats.object_bytes < whole

    assert stats.object_bytes == sum(_git_sizes(rough.store).values())
    assert stats.free_bytes == 0
    assert rough.du().bytes <= stats.object_bytes


def test_messages_sessions_and_pins_are_counted(shadow: Shadow, worktree: Path) -> None:
    for session, name in (("a", "m1"), ("a", "m2"), ("b", "m1")):
        (worktree / "f").write_text(f"{session} {name}")
        shadow.for_session(session).snapshot(name)
    stats = shadow.stats()

    assert (stats.messages, stats.sessions, stats.pins) == (3, 2, 0)
    assert stats.oldest_ms is not None
    assert stats.newest_ms is not None
    assert stats.oldest_ms <= stats.newest_ms


def test_a_session_takes_what_no_other_one_needs(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"shared": _noise(9000)})
    a, b = shadow.for_session("a"), shadow.for_session("b")
    for session, name, size in ((a, "1", 3000), (a, "2", 2000), (b, "1", 1000)):
        session.begin(name)
        (worktree / "f").write_bytes(_noise(size))
        session.end()
    (worktree / "f").unlink()
    shadow.track()

    figures = {figure.session: figure for figure in shadow.du_by_session()}
    # The second version of `a` is also the state before b's message.
    assert 3000 < figures["a"].bytes < 4000
    assert 1000 < figures["b"].bytes < 2000
    assert figures["a"].messages == 2
    assert [figure.session for figure in shadow.du_by_session()][:2] == ["a", "b"]


def test_the_last_tree_is_nobodys_alone(shadow: Shadow, worktree: Path) -> None:
    """The last tree is always kept, so no session alone needs its objects."""
    (worktree / "f").write_bytes(_noise(3000))
    shadow.snapshot("m1")

    assert all(figure.bytes == 0 for figure in shadow.du_by_session())


def test_what_is_missing_is_an_error(rough: Shadow) -> None:
    largest = max((rough.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    largest.unlink()
    largest.with_suffix(".idx").unlink()

    with pytest.raises(StoreDamaged):
        Shadow(rough.worktree).stats()


def test_asyncio_has_the_same(shadow: Shadow, grown: list[str]) -> None:
    async def ask() -> tuple[object, ...]:
        other = AsyncShadow(shadow.worktree)
        return await other.du("src"), await other.du_by_session(), (await other.stats()).largest

    assert asyncio.run(ask()) == (shadow.du("src"), shadow.du_by_session(), shadow.stats().largest)


# The commands


def test_stats_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "m1")
    found = terminal.run_json("stats")

    assert {"store_bytes", "messages", "sessions", "trees", "budget_bytes"} <= found.keys()
    assert (found["messages"], found["sessions"], found["trees"]) == (1, 1, 1)
    assert found["worktree"] == str(project)
    assert found["oldest"].endswith("+00:00")
    assert {"path", "bytes", "versions"} == found["largest"][0].keys()


def test_stats_tells_people(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "m1")
    lines = terminal.run("stats").splitlines()

    assert lines[0].startswith(f"The store of {project} is ")
    assert lines[1].startswith("It uses ")
    assert lines[2] == "1 message in 1 session, 1 tree, 0 pins"
    assert "Largest paths:" in lines


def test_du_lists_the_largest_first_and_the_sum_last(terminal: Terminal, project: Path) -> None:
    make_tree(project, {"src": {"big": _noise(5000)}})
    terminal.run("track")

    lines = terminal.run("du").splitlines()
    assert lines[0].split(maxsplit=2)[2] == "src/ (2 versions)"
    assert lines[-1].split(maxsplit=2)[2].startswith(". (")
    found = terminal.run_json("-C", str(project / "src"), "du", "big")
    assert (found["path"], found["entries"]) == ("src/big", [])
    terminal.run("du", "--depth", "x", exit_code=2)
    terminal.run("du", "nothing", exit_code=12)


def test_du_by_session_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "m1")

    assert terminal.run_json("du", "--by-session") == [{"session": "default", "bytes": 0, "messages": 1}]
    assert terminal.run("du", "--by-session") == "0 B  default (1 message)\n"
    terminal.run("du", "--by-session", "a.txt", exit_code=2)
