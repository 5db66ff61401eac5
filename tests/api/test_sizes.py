"""The size limit: which files it leaves out, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow, Snapshot
from shadowtree.capture.recorded_tree import PathSearch
from shadowtree.store.packs.pack import Pack
from tests.support.referee import assert_sound_store, files_in, git
from tests.support.stores import recorded_trees
from tests.support.trees import Tree, link, make_tree

LIMIT = 1000
SMALL, BIG, BIGGER = "s" * LIMIT, "b" * (LIMIT + 1), "c" * (LIMIT + 2)


@pytest.fixture
def shadow(worktree: Path) -> Iterator[Shadow]:
    """A shadow with a low limit, whose store is checked at the end."""
    with limited(worktree) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def limited(worktree: Path, limit: int | str = LIMIT) -> Shadow:
    """Open a shadow of the worktree with this limit."""
    return Shadow(worktree, settings={"min_free": 0, "max_file_size": limit})


def covered(shadow: Shadow, snapshot: Snapshot) -> list[str]:
    """List the paths that a snapshot covers."""
    return files_in(shadow.store, snapshot.tree)


def skipped(snapshot: Snapshot) -> dict[str, str]:
    """Return what a snapshot skipped, with the reasons."""
    return {skip.path: skip.reason for skip in snapshot.skipped}


def forget_cache(shadow: Shadow) -> None:
    """Delete the cache, which must cost only time."""
    shadow.close()
    caches = list(shadow.store.glob("cache.db*"))
    assert caches
    for cache in caches:
        cache.unlink()


def test_a_file_above_the_limit_is_skipped_with_its_size(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"small": SMALL, "sub": {"big": BIG}})

    snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == ["small"]
    assert skipped(snapshot) == {"sub/big": f"{LIMIT + 1} B is over the {LIMIT} B limit"}
    assert [skip.path for skip in shadow.status().skipped] == ["sub/big"]


def test_it_is_listed_each_time_and_its_size_is_the_present_one(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"big": BIG})
    first = shadow.take_snapshot()

    assert shadow.take_snapshot() == first
    make_tree(worktree, {"big": BIGGER})
    assert skipped(shadow.take_snapshot()) == {"big": f"{LIMIT + 2} B is over the {LIMIT} B limit"}


def test_a_file_that_shrinks_to_the_limit_is_covered(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": BIG})
    before = shadow.take_snapshot()
    make_tree(worktree, {"f": SMALL})

    patch = shadow.patch(before.tree)

    assert patch.files == []
    assert [(skip.path, skip.reason) for skip in patch.skipped] == [
        ("f", f"not recorded before: {LIMIT + 1} B is over the {LIMIT} B limit")
    ]
    assert covered(shadow, shadow.take_snapshot()) == ["f"]


def test_a_big_file_that_goes_is_skipped_no_more(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"small": SMALL, "big": BIG})
    before = shadow.take_snapshot()
    (worktree / "big").unlink()

    after = shadow.take_snapshot()

    assert (after.tree, after.skipped) == (before.tree, [])
    assert shadow.patch(before.tree).files == []


@pytest.mark.parametrize("is_cached", [True, False], ids=["with the cache", "without the cache"])
def test_a_covered_file_that_grows_above_the_limit_stays_covered(
    shadow: Shadow, worktree: Path, is_cached: bool
) -> None:
    make_tree(worktree, {"sub": {"f": SMALL}})
    before = shadow.take_snapshot()
    make_tree(worktree, {"sub": {"f": BIG, "new": BIG}})
    if not is_cached:
        forget_cache(shadow)

    patch = shadow.patch(before.tree)

    assert [(changed.path, changed.status) for changed in patch.files] == [("sub/f", "modified")]
    after = shadow.take_snapshot()
    assert covered(shadow, after) == ["sub/f"]
    assert list(skipped(after)) == ["sub/new"]


@pytest.mark.parametrize("is_cached", [True, False], ids=["with the cache", "without the cache"])
def test_a_file_that_was_deleted_and_comes_back_big_is_covered(
    shadow: Shadow, worktree: Path, is_cached: bool
) -> None:
    """An earlier tree covers its path, even if the last one does not."""
    make_tree(worktree, {"sub": {"f": SMALL}, "other": "1"})
    shadow.take_snapshot()
    (worktree / "sub" / "f").unlink()
    for number in range(3):
        make_tree(worktree, {"other": str(number)})
        shadow.take_snapshot()
    if not is_cached:
        forget_cache(shadow)
    make_tree(worktree, {"sub": {"f": BIG, "never": BIG}})

    snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == ["other", "sub/f"]
    assert list(skipped(snapshot)) == ["sub/never"]


@pytest.mark.parametrize("is_reopened", [False, True], ids=["open", "opened again"])
def test_that_an_earlier_tree_covers_a_path_is_remembered(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, is_reopened: bool
) -> None:
    for number in range(5):
        make_tree(worktree, {"other": str(number)})
        shadow.track()
    make_tree(worktree, {"f": SMALL})
    shadow.track()
    make_tree(worktree, {"f": BIG})
    shadow.track()
    if is_reopened:
        shadow.close()
    searched: list[bytes] = []
    is_in = PathSearch.is_in

    def note(search: PathSearch, tree: bytes) -> bool:
        searched.append(tree)
        return is_in(search, tree)

    monkeypatch.setattr(PathSearch, "is_in", note)
    make_tree(worktree, {"new": "1"})
    snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == ["f", "new", "other"]
    assert len(searched) == 1


@pytest.mark.usefixtures("large_packs")
def test_a_damaged_earlier_tree_covers_what_it_may_have_covered(worktree: Path) -> None:
    """Nothing shows that it did not cover them, and the damage must not stop every later snapshot."""
    make_tree(worktree, {"other": "1"})
    with limited(worktree) as shadow:
        damaged = shadow.track()
        make_tree(worktree, {"other": "2"})
        shadow.track()
    damage_tree(shadow.store, damaged)
    make_tree(worktree, {"f": BIG})

    with limited(worktree) as shadow:
        snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == ["f", "other"]
    assert recorded_trees(shadow.store)[-1].tree.hex() == snapshot.tree


def damage_tree(store: Path, tree: str) -> None:
    """Overwrite some bytes of a tree in its pack."""
    for index in store.glob("objects/pack/*.idx"):
        pack = Pack.open(str(index.with_suffix(".pack")))
        offset = pack.find(bytes.fromhex(tree))
        pack.close()
        if offset is not None:
            with index.with_suffix(".pack").open("r+b") as file:
                file.seek(offset + 3)
                file.write(b"\xff\xff\xff\xff")


def test_a_path_that_was_skipped_then_covered_stays_covered(shadow: Shadow, worktree: Path) -> None:
    """That one search did not find it must not prevent searching newer trees."""
    make_tree(worktree, {"f": BIG})
    assert list(skipped(shadow.take_snapshot())) == ["f"]
    make_tree(worktree, {"f": SMALL})
    shadow.take_snapshot()
    (worktree / "f").unlink()
    shadow.take_snapshot()
    make_tree(worktree, {"f": BIGGER})

    assert covered(shadow, shadow.take_snapshot()) == ["f"]


def test_a_path_that_another_process_covered_is_covered_here(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": BIG})
    assert list(skipped(shadow.take_snapshot())) == ["f"]
    with limited(worktree, "1M") as other:
        other.take_snapshot()

    assert covered(shadow, shadow.take_snapshot()) == ["f"]


def test_a_directory_of_that_name_in_an_earlier_tree_covers_no_file(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": {"x": SMALL}})
    shadow.take_snapshot()
    (worktree / "f" / "x").unlink()
    (worktree / "f").rmdir()
    make_tree(worktree, {"f": BIG})

    assert list(skipped(shadow.take_snapshot())) == ["f"]


def test_a_link_of_that_name_in_an_earlier_tree_covers_the_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": link("elsewhere")})
    before = shadow.take_snapshot()
    (worktree / "f").unlink()
    make_tree(worktree, {"f": BIG})

    assert [(c.path, c.status) for c in shadow.patch(before.tree).files] == [("f", "type")]


def test_a_limit_that_is_lowered_does_not_drop_what_is_covered(worktree: Path) -> None:
    make_tree(worktree, {"f": BIG})
    with limited(worktree, "1M") as shadow:
        before = shadow.take_snapshot()
    make_tree(worktree, {"g": BIG})

    with limited(worktree) as shadow:
        after = shadow.take_snapshot()

    assert (after.tree, list(skipped(after))) == (before.tree, ["g"])
    assert_sound_store(shadow.store)


def test_a_limit_that_is_raised_covers_more(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": BIG})
    shadow.take_snapshot()

    with limited(worktree, "1M") as raised:
        snapshot = raised.take_snapshot()

    assert (covered(raised, snapshot), skipped(snapshot)) == (["f"], {})


TRACKED: list[tuple[str, Tree]] = [
    ("plain", {"big": BIG}),
    ("ignored", {".gitignore": "big\n", "big": BIG}),
    ("below a heavy directory", {"node_modules": {"big": BIG}}),
]


@pytest.mark.parametrize("tree", [tree for _, tree in TRACKED], ids=[name for name, _ in TRACKED])
def test_a_big_file_that_an_index_tracks_is_covered(shadow: Shadow, worktree: Path, tree: Tree) -> None:
    make_tree(worktree, tree)
    git("init", "--quiet", cwd=worktree)
    git("add", "--all", "--force", cwd=worktree)
    make_tree(worktree, {"untracked": BIG})

    snapshot = shadow.take_snapshot()

    tracked = git("ls-files", "-z", cwd=worktree).split("\0")[:-1]
    assert covered(shadow, snapshot) == sorted(tracked)
    assert list(skipped(snapshot)) == ["untracked"]


def test_a_big_file_becomes_covered_when_it_is_added_to_an_index(shadow: Shadow, worktree: Path) -> None:
    git("init", "--quiet", cwd=worktree)
    make_tree(worktree, {"nested": {"big": BIG}})
    git("init", "--quiet", cwd=worktree / "nested")
    assert list(skipped(shadow.take_snapshot())) == ["nested/big"]
    git("add", "big", cwd=worktree / "nested")

    snapshot = shadow.take_snapshot()

    assert (covered(shadow, snapshot), skipped(snapshot)) == (["nested/big"], {})


@pytest.mark.parametrize(
    ("rule", "path"),
    [("!big", "big"), ("!*.bin", "sub/x.bin"), ("!sub/", "sub/deep/big"), ("!big", "node_modules/m/big")],
)
def test_a_big_file_that_is_brought_back_is_covered(
    shadow: Shadow, worktree: Path, rule: str, path: str
) -> None:
    (worktree / path).parent.mkdir(parents=True, exist_ok=True)
    make_tree(worktree, {".shadowtreeignore": rule + "\n", path: BIG, "other": BIG})

    snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == sorted([".shadowtreeignore", path])
    assert list(skipped(snapshot)) == ["other"]


def test_what_is_ignored_is_not_listed_for_its_size(shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree,
        {
            ".gitignore": "*.iso\n",
            "x.iso": BIG,
            "node_modules": {"big": BIG},
            ".shadowtreeignore": "own\n",
            "own": BIG,
        },
    )

    snapshot = shadow.take_snapshot()

    assert skipped(snapshot) == {}
    assert covered(shadow, snapshot) == [".gitignore", ".shadowtreeignore"]


def test_links_have_no_size(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"long": link("t" * 2 * LIMIT)})

    assert covered(shadow, shadow.take_snapshot()) == ["long"]


def test_the_default_limit_is_ten_mebibytes(worktree: Path) -> None:
    for name, size in (("limit", 10 * 1024 * 1024), ("above", 10 * 1024 * 1024 + 1)):
        with (worktree / name).open("wb") as file:
            file.truncate(size)

    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        snapshot = shadow.take_snapshot()

    assert covered(shadow, snapshot) == ["limit"]
    assert list(skipped(snapshot)) == ["above"]
    assert_sound_store(shadow.store)
