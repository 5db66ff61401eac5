"""Changes from a recorded tree to now: `patch` and `diff` through `Shadow`."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from shadowtree import NotWrapped, Shadow, UnknownTree
from shadowtree.base.limits import Limits
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, Unknown
from shadowtree.capture import capture
from shadowtree.results.messages import make_patch
from shadowtree.store.git_format import blob_id, object_id
from shadowtree.store.objects import Scratch
from tests.support.referee import assert_sound_store, git, init
from tests.support.trees import executable, file, link, make_tree


def changes(shadow: Shadow, tree: str) -> dict[str, str]:
    """Return the status of each path in a patch; nothing may be skipped."""
    patch = shadow.patch(tree)
    assert patch.skipped == []
    return {changed.path: changed.status for changed in patch.files}


def unknown(shadow: Shadow, tree: str) -> list[str]:
    """Return the paths that are unknown in a patch; no path may have changed."""
    patch = shadow.patch(tree)
    assert patch.files == []
    assert all(skip.reason for skip in patch.skipped)
    return [skip.path for skip in patch.skipped]


# Kinds of changes


def test_nothing_changed_is_an_empty_patch(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "s": {"b": "1"}})

    assert changes(shadow, shadow.track()) == {}


def test_a_patch_tells_what_happened_to_each_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree,
        {"same": "1", "edited": "1", "gone": "1", "to-link": "1", "to-file": link("x"), "link": link("x")},
    )
    tree = shadow.track()
    for name in ("gone", "to-link", "to-file", "link"):
        (worktree / name).unlink()
    make_tree(worktree, {"new": "1", "edited": "2", "to-link": link("x"), "to-file": "x", "link": link("y")})

    assert changes(shadow, tree) == {
        "edited": "modified",
        "gone": "deleted",
        "link": "modified",
        "new": "added",
        "to-file": "type",
        "to-link": "type",
    }


def test_a_patch_tells_blobs_and_modes(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "b": link("a")})
    tree = shadow.track()
    (worktree / "b").unlink()
    make_tree(worktree, {"a": file("2", 0o640), "c": executable("3")})

    found = {
        changed.path: (changed.old_blob, changed.old_mode, changed.new_blob, changed.new_mode)
        for changed in shadow.patch(tree).files
    }

    def blob(content: str) -> str:
        path = worktree.parent / "content"
        path.write_text(content)
        return git("hash-object", path)

    assert found == {
        "a": (blob("1"), stat.S_IFREG | 0o644, blob("2"), stat.S_IFREG | 0o640),
        "b": (blob("a"), stat.S_IFLNK, None, None),
        "c": (None, None, blob("3"), stat.S_IFREG | 0o755),
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0o644, 0o755),
        (0o755, 0o644),
        (0o600, 0o644),
        (0o644, 0o600),
        (0o755, 0o700),
        (0o444, 0o644),
        (0o664, 0o644),
    ],
    ids=oct,
)
def test_a_change_of_bits_alone_is_a_modification(
    before: int, after: int, shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"s": {"a": file("1", before), "b": "1"}})
    tree = shadow.track()
    (worktree / "s" / "a").chmod(after)

    patch = shadow.patch(tree)

    assert [(changed.path, changed.status) for changed in patch.files] == [("s/a", "modified")]
    assert patch.files[0].old_blob == patch.files[0].new_blob
    assert (patch.files[0].old_mode, patch.files[0].new_mode) == (stat.S_IFREG | before, stat.S_IFREG | after)


def test_the_bits_of_many_files_changed_are_many_modifications(shadow: Shadow, worktree: Path) -> None:
    """The facts record the bits of most files in a directory only once."""
    make_tree(worktree, dict.fromkeys("abc", "1"))
    tree = shadow.track()
    for name in "ab":
        (worktree / name).chmod(0o600)

    assert changes(shadow, tree) == {"a": "modified", "b": "modified"}


@pytest.mark.parametrize(
    "bit", [stat.S_ISUID, stat.S_ISGID, stat.S_ISVTX], ids=["setuid", "setgid", "sticky"]
)
def test_bits_above_the_permissions_and_modes_of_directories_are_no_change(
    bit: int, shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"s": {"a": executable("1")}})
    tree = shadow.track()
    (worktree / "s").chmod(0o700)
    (worktree / "s" / "a").chmod(0o755 | bit)

    assert changes(shadow, tree) == {}


def test_a_touched_file_has_not_changed(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    tree = shadow.track()
    os.utime(worktree / "a", (1, 1))
    (worktree / "b").write_text("1")
    (worktree / "b").rename(worktree / "a")

    assert changes(shadow, tree) == {}


def test_a_file_that_becomes_a_directory_and_back(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"d": "1", "e": link("d")})
    as_file = shadow.track()
    (worktree / "d").unlink()
    (worktree / "e").unlink()
    make_tree(worktree, {"d": {"a": "1", "s": {"b": "1"}}, "e": {"c": "1"}})
    forth = changes(shadow, as_file)
    as_directory = shadow.track()
    for path in ("d/s/b", "d/a", "e/c"):
        (worktree / path).unlink()
    for path in ("d/s", "d", "e"):
        (worktree / path).rmdir()
    make_tree(worktree, {"d": "1", "e": link("d")})
    back = changes(shadow, as_directory)

    assert forth == {"d": "deleted", "d/a": "added", "d/s/b": "added", "e": "deleted", "e/c": "added"}
    assert back == {"d": "added", "d/a": "deleted", "d/s/b": "deleted", "e": "added", "e/c": "deleted"}


def test_a_directory_renamed_is_deleted_and_added(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": {"b": {"c": "1"}, "d": "1"}})
    tree = shadow.track()
    (worktree / "a").rename(worktree / "z")

    assert changes(shadow, tree) == {"a/b/c": "deleted", "a/d": "deleted", "z/b/c": "added", "z/d": "added"}


def test_a_patch_is_sorted_by_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "1"})
    tree = shadow.track()
    make_tree(
        worktree,
        {"b": {"c": "1"}, "b.": "1", "b-": "1", "a": {"z": "1"}, "B": "1", "b0": "1", "caf\u00e9": "1"},
    )

    paths = [changed.path for changed in shadow.patch(tree).files]

    assert paths == sorted(paths)
    assert len(paths) == 7


def test_empty_directories_are_no_change_of_a_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "old": {"deep": {}}})
    tree = shadow.track()
    make_tree(worktree, {"new": {"deep": {}}})
    (worktree / "old" / "deep").rmdir()

    assert changes(shadow, tree) == {}


def test_a_patch_against_the_empty_tree(shadow: Shadow, worktree: Path) -> None:
    tree = shadow.track()
    make_tree(worktree, {"s": {"a": "1"}})

    assert changes(shadow, tree) == {"s/a": "added"}


def test_a_patch_is_what_git_finds(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {f"d{i}": {f"f{j}": f"{i} {j}" for j in range(5)} for i in range(5)})
    tree = shadow.track()
    (worktree / "d0" / "f0").unlink()
    (worktree / "d1" / "f1").chmod(0o755)
    make_tree(worktree, {"d2": {"f2": "changed", "f9": "new"}, "d9": {"f": "new"}})
    (worktree / "d3" / "f3").unlink()
    make_tree(worktree, {"d3": {"f3": link("f2")}})

    letters = {"added": "A", "deleted": "D", "modified": "M", "type": "T"}
    found = [f"{letters[changed.status]}\t{changed.path}" for changed in shadow.patch(tree).files]

    assert found == git("--git-dir", shadow.store, "diff", "--name-status", tree, shadow.track()).splitlines()


@pytest.fixture
def scratches(monkeypatch: pytest.MonkeyPatch) -> list[Scratch]:
    """The scratch of each snapshot in memory, in order."""
    made: list[Scratch] = []

    def make(file_bytes: int = 0) -> Scratch:
        made.append(Scratch(file_bytes))
        return made[-1]

    monkeypatch.setattr(capture, "Scratch", make)
    return made


def test_status_and_patch_keep_no_contents_in_memory(
    shadow: Shadow, worktree: Path, scratches: list[Scratch]
) -> None:
    make_tree(worktree, {"a": "1"})
    tree = shadow.track()
    make_tree(worktree, {"a": "changed", "s": {"new": "content"}})

    assert shadow.status().changed == 2
    assert changes(shadow, tree) == {"a": "modified", "s/new": "added"}

    assert len(scratches) == 2
    for scratch in scratches:
        for content in (b"changed", b"content"):
            assert scratch.has_dropped(object_id(b"blob", content))
            assert list(scratch.find(object_id(b"blob", content))) == []


def test_rules_are_kept_in_memory_although_a_file_of_the_same_content_is_not(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    make_tree(worktree, {"a": "*.log\n", "s": {".gitignore": "*.log\n", "b": "2"}})

    assert shadow.status().changed == 3


@pytest.mark.limits(Limits(diff_bytes=10))
def test_a_diff_keeps_no_more_in_memory_than_it_may(
    shadow: Shadow, worktree: Path, scratches: list[Scratch]
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    make_tree(worktree, {"a": "new\n", "b": "too much\n"})

    shown = {changed.path: changed.patch for changed in shadow.diff()}

    assert "+new" in shown["a"]
    assert "too much" not in shown["b"]
    (scratch,) = scratches
    assert list(scratch.find(object_id(b"blob", b"new\n"))) != []
    assert list(scratch.find(object_id(b"blob", b"too much\n"))) == []


# Unknown paths


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (".gitignore", "a.o"),
        (".gitignore", "s/t/a.o"),
        (".gitignore", "build/s/a"),
        ("s/.gitignore", "s/t/a.o"),
        (".shadowtreeignore", "a.o"),
        (".shadowtreeignore", "build/s/a"),
        (".git/info/exclude", "s/a.o"),
        ("s/.git/info/exclude", "s/t/a.o"),
        ("../home/.config/git/ignore", "s/a.o"),
    ],
)
def test_a_rule_removed_or_added_leaves_a_path_unknown(
    rules: str, path: str, shadow: Shadow, worktree: Path
) -> None:
    """The file existed all the time: it was neither added nor deleted."""
    if ".git/" in rules:
        init((worktree / rules).parent.parent.parent)
    for name in (path, rules):
        (worktree / name).parent.mkdir(parents=True, exist_ok=True)
    (worktree / path).write_text("1")
    (worktree / rules).write_text("*.o\nbuild/\n")
    with_rule = shadow.track()
    (worktree / rules).write_text("#.o\nbuild#\n")
    removed = shadow.patch(with_rule)
    without_rule = shadow.track()
    (worktree / rules).write_text("*.o\nbuild/\n")
    added = shadow.patch(without_rule)

    assert path not in {changed.path for changed in removed.files + added.files}
    assert path in {skip.path for skip in removed.skipped}
    assert path in {skip.path for skip in added.skipped}


def test_a_rule_removed_is_no_excuse_for_other_paths(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".shadowtreeignore": "*.o\n", "a.o": "1", "gone": "1"})
    tree = shadow.track()
    (worktree / "gone").unlink()
    make_tree(worktree, {".shadowtreeignore": "", "new": "1"})

    patch = shadow.patch(tree)

    assert [(changed.path, changed.status) for changed in patch.files] == [
        (".shadowtreeignore", "modified"),
        ("gone", "deleted"),
        ("new", "added"),
    ]
    assert [skip.path for skip in patch.skipped] == ["a.o"]


def test_a_path_made_after_its_rule_went_is_unknown_too(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".shadowtreeignore": "*.o\n", "s": {}})
    tree = shadow.track()
    make_tree(worktree, {".shadowtreeignore": "", "s": {"a.o": "1"}})

    patch = shadow.patch(tree)

    assert [changed.path for changed in patch.files] == [".shadowtreeignore"]
    assert [skip.path for skip in patch.skipped] == ["s/a.o"]


def test_heavy_directories_changed_leave_paths_unknown(worktree: Path) -> None:
    make_tree(worktree, {"out": {"s": {"a": "1"}}, "b": "1"})
    settings = {"min_free": 0}
    with Shadow(worktree, settings={**settings, "heavy_dirs": "out"}) as shadow:
        heavy = shadow.track()
    with Shadow(worktree, settings=settings) as shadow:
        removed, light = unknown(shadow, heavy), shadow.track()
    with Shadow(worktree, settings={**settings, "heavy_dirs": "out"}) as shadow:
        added = unknown(shadow, light)
    assert_sound_store(shadow.store)

    assert removed == added == ["out/s/a"]


def test_a_size_limit_raised_leaves_a_path_unknown(worktree: Path) -> None:
    make_tree(worktree, {"s": {"large": "1" * 50, "b": "1"}})
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 10}) as shadow:
        tree = shadow.track()
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        found = unknown(shadow, tree)
    assert_sound_store(shadow.store)

    assert found == ["s/large"]


def test_a_large_file_that_shrinks_was_unknown(worktree: Path) -> None:
    make_tree(worktree, {"s": {"large": "1" * 50}})
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 10}) as shadow:
        tree = shadow.track()
        (worktree / "s" / "large").write_text("1")
        found = unknown(shadow, tree)

    assert found == ["s/large"]


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_pipe_in_place_of_a_file_is_unknown(is_before: bool, shadow: Shadow, worktree: Path) -> None:
    path = worktree / "a"
    if is_before:
        os.mkfifo(path)
    else:
        path.write_text("1")
    tree = shadow.track()
    path.unlink()
    if is_before:
        path.write_text("1")
    else:
        os.mkfifo(path)

    assert unknown(shadow, tree) == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_cannot_be_read_is_unknown(kind: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"s": {"t": {"a": "1"}}})
    path = worktree / "s" / "t" if kind == "directory" else worktree / "s" / "t" / "a"
    readable = shadow.track()
    bits = path.stat().st_mode
    path.chmod(0)
    after = unknown(shadow, readable)
    unreadable = shadow.track()
    path.chmod(bits)
    before = unknown(shadow, unreadable)

    assert before == after == ["s/t/a"]


def test_a_gitignore_that_ignores_itself_still_counts(shadow: Shadow, worktree: Path) -> None:
    """Tools put such a file, containing `*`, into their caches."""
    make_tree(worktree, {"a": "1", ".hypothesis": {"x": "1", "s": {"y": "1"}}})
    before = shadow.track()
    make_tree(worktree, {".hypothesis": {".gitignore": "*\n"}})
    with_rule = unknown(shadow, before)
    ignored = shadow.track()
    make_tree(worktree, {".hypothesis": {"new": "1", "x": "2"}})
    inside = changes(shadow, ignored)
    (worktree / ".hypothesis" / ".gitignore").unlink()
    without_rule = unknown(shadow, ignored)

    assert with_rule == [".hypothesis/s/y", ".hypothesis/x"]
    assert inside == {}
    assert without_rule == [".hypothesis/new", ".hypothesis/s/y", ".hypothesis/x"]


def test_a_file_that_is_tracked_from_now_on_was_unknown(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1"})
    ignored = shadow.track()
    git("add", "--force", "a.o", cwd=worktree)
    forth = unknown(shadow, ignored)
    tracked = shadow.track()
    git("rm", "--quiet", "--cached", "a.o", cwd=worktree)
    back = unknown(shadow, tracked)

    assert forth == back == ["a.o"]


def test_a_tracked_file_that_is_ignored_changes_like_any_other(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1"})
    git("add", "--force", "a.o", cwd=worktree)
    tree = shadow.track()
    make_tree(worktree, {"a.o": "2"})

    assert changes(shadow, tree) == {"a.o": "modified"}


@pytest.mark.parametrize(
    "path", ["a.o", "build/s/a", "venv/a"], ids=["by its name", "by its directory", "in a heavy directory"]
)
def test_a_tracked_file_that_is_ignored_can_be_deleted_and_come_back(
    path: str, shadow: Shadow, worktree: Path
) -> None:
    """An index that tracks it covers it, so its absence is certain."""
    init(worktree)
    make_tree(
        worktree, {".gitignore": "*.o\nbuild/\n", "a.o": "1", "build": {"s": {"a": "1"}}, "venv": {"a": "1"}}
    )
    git("add", "--force", path, cwd=worktree)
    tree = shadow.track()
    (worktree / path).unlink()
    gone = changes(shadow, tree)
    without = shadow.track()
    (worktree / path).write_text("1")
    back = changes(shadow, without)

    assert (gone, back) == ({path: "deleted"}, {path: "added"})


# The directory is old enough for the cache to trust its stamp.
@pytest.mark.limits(Limits(file_clock_ns=lambda: time.time_ns() + 3_600_000_000_000))
def test_a_missing_file_that_an_index_tracks_from_now_on_is_known_to_be_absent(
    shadow: Shadow, worktree: Path
) -> None:
    """As after `git reset --mixed`, which leaves the directory as it is."""
    init(worktree)
    make_tree(worktree, {".gitignore": "*.log\n", "a": "1"})
    git("add", ".gitignore", "a", cwd=worktree)
    shadow.track()
    git("update-index", "--add", "--cacheinfo", f"100644,{blob_id(b'1').hex()},x.log", cwd=worktree)
    tree = shadow.track()
    make_tree(worktree, {"x.log": "1"})

    assert changes(shadow, tree) == {"x.log": "added"}


def test_rules_that_did_not_count_then_do_not_count_in_a_patch(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.o\n" + "#\n" * (1 << 19)})
    snapshot = shadow.take_snapshot()
    make_tree(worktree, {"a.o": "1"})

    assert snapshot.warnings
    assert changes(shadow, snapshot.tree) == {"a.o": "added"}


# Tree ids


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "HEAD",
        "0" * 39,
        "0" * 40,
        "g" * 40,
        "F" * 40,
        "../" * 14,
        "0" * 41,
        "\u0661" * 40,
        "-" * 40,
        "0" * 40 + "\n",
    ],
)
def test_a_tree_that_is_none_is_unknown(name: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()

    with pytest.raises(UnknownTree) as caught:
        shadow.patch(name)

    assert caught.value.name == name


@pytest.mark.parametrize("which", ["{tree}:s/a", "{tree}:s", "HEAD"])
def test_an_object_that_is_no_recorded_tree_is_unknown(which: str, shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"s": {"a": "1"}})
    tree = shadow.track()
    name = git("--git-dir", shadow.store, "rev-parse", which.format(tree=tree))

    with pytest.raises(UnknownTree):
        shadow.patch(name)
    with pytest.raises(UnknownTree):
        shadow.diff(name)
    with pytest.raises(UnknownTree):
        shadow.diff(None, name)


def test_a_tree_of_another_store_is_unknown(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "other", {"b": "1"})
    with Shadow(tmp_path / "other", settings={"min_free": 0}) as other:
        tree = other.track()
    shadow.track()

    with pytest.raises(UnknownTree):
        shadow.patch(tree)


def test_a_directory_that_is_not_wrapped_has_no_patch(shadow: Shadow) -> None:
    with pytest.raises(NotWrapped):
        shadow.patch("0" * 40)

    assert shadow.diff() == []
    assert not shadow.is_wrapped


def test_every_recorded_tree_can_be_compared_with(shadow: Shadow, worktree: Path) -> None:
    trees = []
    for number in range(5):
        make_tree(worktree, {f"f{number}": "1"})
        trees.append(shadow.track())

    assert [len(shadow.patch(tree).files) for tree in trees] == [4, 3, 2, 1, 0]


# diff


def test_a_diff_shows_each_changed_path(shadow: Shadow, worktree: Path) -> None:
    make_tree(
        worktree, {"edited": "1\n2\n3\n", "gone": "x\n", "bits": file("1", 0o600), "same": "1", "raw": b"\0"}
    )
    before = shadow.track()
    (worktree / "gone").unlink()
    (worktree / "bits").chmod(0o644)
    make_tree(worktree, {"edited": "1\nzwei\n3\n4\n", "new": "a\nb\n", "raw": b"\0\1"})

    found = shadow.diff(before)

    assert [(diff.path, diff.status, diff.additions, diff.deletions, diff.binary) for diff in found] == [
        ("bits", "modified", 0, 0, False),
        ("edited", "modified", 2, 1, False),
        ("gone", "deleted", 0, 1, False),
        ("new", "added", 2, 0, False),
        ("raw", "modified", 0, 0, True),
    ]
    edited = found[1].patch.splitlines()
    assert [line for line in edited if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-2",
        "+zwei",
        "+4",
    ]


def test_a_diff_without_names_starts_at_the_tree_recorded_last(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1\n"})
    shadow.track()
    make_tree(worktree, {"a": "2\n"})

    assert [diff.path for diff in shadow.diff()] == ["a"]


def test_a_diff_between_two_trees_does_not_look_at_the_worktree(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1\n"})
    first = shadow.track()
    make_tree(worktree, {"a": "2\n"})
    second = shadow.track()
    make_tree(worktree, {"a": "3\n", "b": "1"})

    assert [(diff.path, diff.additions) for diff in shadow.diff(first, second)] == [("a", 1)]
    assert [diff.path for diff in shadow.diff(second, first)] == ["a"]


def test_a_diff_applies_with_git(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    old = {
        "edited": "".join(f"{i}\n" for i in range(50)),
        "gone": "x\n",
        "no-newline": "a",
        "s": {"b": "1\n"},
    }
    make_tree(worktree, old)  # type: ignore[arg-type]  # plain text throughout
    copy = make_tree(tmp_path / "copy", old)  # type: ignore[arg-type]  # plain text throughout
    before = shadow.track()
    (worktree / "gone").unlink()
    text = (worktree / "edited").read_text().replace("7\n", "seven\n").replace("40\n", "")
    make_tree(worktree, {"edited": text, "no-newline": "b", "s": {"b": "1\n2"}, "new": executable("n\n")})
    (tmp_path / "patch").write_text("".join(diff.patch for diff in shadow.diff(before)))
    git("init", "--quiet", copy)
    git("apply", "--whitespace=nowarn", tmp_path / "patch", cwd=copy)

    for path in ("edited", "no-newline", "s/b", "new"):
        assert (copy / path).read_bytes() == (worktree / path).read_bytes()
        assert (copy / path).stat().st_mode == (worktree / path).stat().st_mode
    assert not (copy / "gone").exists()


# Changes as the timeline stores them

FILE, OTHER = PathState(stat.S_IFREG | 0o644, b"1" * 20), PathState(stat.S_IFREG | 0o600, b"2" * 20)
LINK = PathState(stat.S_IFLNK, b"3" * 20)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (None, FILE, "added"),
        (FILE, None, "deleted"),
        (FILE, OTHER, "modified"),
        (FILE, LINK, "type"),
        (LINK, FILE, "type"),
        (DIRECTORY, FILE, "added"),
        (FILE, DIRECTORY, "deleted"),
    ],
)
def test_a_patch_is_made_of_changes(old: PathState | None, new: PathState | None, status: str) -> None:
    patch = make_patch("t", [Change(RelPath(b"\xff"), old, new)])

    (changed,) = patch.files
    assert (changed.path, changed.status, patch.skipped) == ("\udcff", status, [])
    assert changed.old_blob == (None if old in (None, DIRECTORY) or old is None else old.blob.hex())
    assert changed.new_mode == (None if new in (None, DIRECTORY) or new is None else new.mode)


@pytest.mark.parametrize(
    ("old", "new"), [(None, DIRECTORY), (DIRECTORY, None)], ids=["directory made", "directory removed"]
)
def test_a_patch_says_nothing_of_directories(old: PathState | None, new: PathState | None) -> None:
    patch = make_patch("t", [Change(RelPath(b"d"), old, new)])

    assert (patch.files, patch.skipped) == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (Unknown("large"), FILE, "not recorded before: large"),
        (FILE, Unknown("large"), "not recorded after: large"),
        (Unknown("large"), None, "not recorded before: large"),
        (Unknown("large"), Unknown("small"), "not recorded before: large"),
    ],
)
def test_a_change_with_an_unknown_side_is_skipped(
    old: PathState | Unknown | None, new: PathState | Unknown | None, reason: str
) -> None:
    change = Change(RelPath(b"p"), old, new)
    patch = make_patch("t", [change])

    assert not change.is_known
    assert patch.files == []
    assert [(skip.path, skip.reason) for skip in patch.skipped] == [("p", reason)]
