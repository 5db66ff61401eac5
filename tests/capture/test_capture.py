"""The tree id is the one that git computes, for artificial trees and for real ones."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shadowtree import Shadow
from shadowtree.base.paths import is_forbidden
from shadowtree.config.settings import HEAVY_DIRS
from tests.support.referee import NEUTRAL_ATTRIBUTES, assert_sound_store, git, git_tree
from tests.support.trees import File, Link, Tree, executable, file, link, make_tree

CHECKOUT = Path(os.environ.get("SHADOWTREE_TEST_CHECKOUT", Path(__file__).parents[2]))

AWKWARD_NAMES = [
    b"with space",
    b" leading space",
    b"trailing space ",
    b" ",
    b"...",
    b".leading dot",
    b"trailing dot.",
    b'double "quote"',
    b"single 'quote'",
    b"new\nline",
    b"\nleading newline",
    b"carriage\rreturn",
    b"ta\tb",
    b"escape\x1b[31m",
    b"bell\x07",
    b"delete\x7f",
    b"control\x01",
    b"-rf",
    b"--",
    b"-",
    b":colon",
    b":(glob)x",
    b":!not",
    b"drive:c",
    b"back\\slash",
    b"\\",
    b"back\\\\slash\\",
    b"[A]",
    b"[a-z]",
    b"src*",
    b"src?",
    b"*",
    b"?",
    b"**",
    b"!bang",
    b"#hash",
    b"$dollar",
    b"`tick`",
    b"%percent",
    b"=equals",
    b"=a",
    b"%directory",
    b"~tilde",
    b"{brace,d}",
    b"semi;colon|pipe&",
    b"<angle>",
    b"con",
    b"nul",
    b"aux.txt",
    b"CaSe",
    b"cAsE",
    b"\xff\xfe not utf-8",
    b"latin \xe9",
    b"half \xf0\x9f\x92",
    b"\x80",
    "composed \u00e9".encode(),
    "decomposed e\u0301".encode(),
    "\u4e2d\u6587".encode(),
    "\U0001f600".encode(),
    "rtl \u202egnp.exe".encode(),
    "zero\u200dwidth".encode(),
    b"n" * 255,
    "\u00e9".encode() * 127,
    b".gitattributes.bak",
    b"gitfile",
    b"a.git",
    b"HEAD",
    b"objects",
]
SORTING_NAMES = [b"a", b"a.b", b"a-", b"a-b", b"a0", b"a:", b"a\x01", b"a\xff", b"ab", b"A", b"a ", b"a/"]
"""Names around which git's order of a tree differs from that of bytes: a directory sorts as `a/`."""

CONTENTS = [
    b"",
    b"\n",
    b"text\n",
    b"crlf\r\nline\r\n",
    b"mixed\r\nendings\nhere\r",
    b"$Id$\n",
    b"$Id: 0123456789012345678901234567890123456789 $\n",
    b"\0binary\0\xff",
    "utf-16\n".encode("utf-16"),
    b"\xef\xbb\xbfbom",
    b"no newline at the end",
    b"long line " * 20_000,
    bytes(70_000),
]
ATTRIBUTES = [
    b"* text=auto\n",
    b"* text eol=crlf\n",
    b"* ident\n",
    b"* filter=upper diff=upper merge=upper\n",
    b"* working-tree-encoding=UTF-16 text\n",
    b"* -text\n*.x crlf=input\n[attr]mine text ident\n* mine\n",
    b"* export-ignore export-subst\n",
]
TARGETS = [b"a", b"missing", b".", b"..", b"../..", b"/", b"/nonexistent/x", b"a\nb", b"\xff", b"t" * 4000]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_tree_id_is_gits_on_a_hundred_generated_trees(
    shadow: Shadow, worktree: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    make_tree(worktree, {f"tree {number}": _generate_tree(chance, depth=3) for number in range(100)})

    tree = shadow.track()

    expected = git_tree(worktree, tmp_path / "scratch")
    assert tree == expected, _find_difference(shadow.store, tree, tmp_path / "scratch", expected)


NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: (
        b"/" not in name
        and b"\0" not in name
        and name not in (b".", b"..", b".git")
        and not is_forbidden(name, is_link=True)
    )
)
ENTRIES = st.one_of(
    st.binary(max_size=40).map(lambda content: File(content)),
    st.builds(
        File, st.binary(max_size=5), st.sampled_from([0o600, 0o640, 0o644, 0o666, 0o700, 0o755, 0o777])
    ),
    st.binary(min_size=1, max_size=20).filter(lambda target: b"\0" not in target).map(Link),
)
TREES = st.recursive(
    st.dictionaries(NAMES.map(os.fsdecode), ENTRIES, max_size=6),
    lambda below: st.dictionaries(NAMES.map(os.fsdecode), ENTRIES | below, max_size=6),
    max_leaves=4,
)


@settings(
    derandomize=True,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(tree=TREES)
@example(tree={})
@example(tree={"only empty directories": {"a": {}, "b": {"c": {}}}})
@example(tree={"a": {"b": "x"}, "a.b": "x", "a0": "x", "a-": "x"})
def test_the_tree_id_is_gits_whatever_bytes_the_names_are(tree: Tree, tmp_path: Path) -> None:
    place = tmp_path / f"example {next(EXAMPLES)}"
    worktree = make_tree(place / "worktree", tree)

    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        found = shadow.track()

    assert found == git_tree(worktree, place / "scratch")
    assert_sound_store(shadow.store)


EXAMPLES = count()


@pytest.mark.parametrize("names", [AWKWARD_NAMES, SORTING_NAMES], ids=["awkward", "sorting"])
@pytest.mark.parametrize("kind", ["file", "executable", "directory", "link"])
def test_every_awkward_name_gives_gits_tree_id(
    shadow: Shadow, worktree: Path, tmp_path: Path, names: list[bytes], kind: str
) -> None:
    values: dict[str, File | Link | Tree] = {
        "file": file("content", 0o644),
        "executable": executable("content"),
        "directory": {"below": "content"},
        "link": link("target"),
    }
    make_tree(worktree, {os.fsdecode(name.rstrip(b"/")): values[kind] for name in names})

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_files_and_directories_whose_names_sort_around_a_slash_give_gits_tree_id(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """A directory sorts as if its name ended with a slash: `a.b`, `a/`, `a0`."""
    names = [os.fsdecode(name) for name in SORTING_NAMES if name != b"a/"]
    for turn in range(len(names) + 1):
        group = worktree / str(turn)
        make_tree(group, {name: {"x": "1"} if i == turn else "2" for i, name in enumerate(names)})

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_attributes_do_not_change_a_byte(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    contents = {f"{number}.x": content for number, content in enumerate(CONTENTS)}
    for number, attributes in enumerate(ATTRIBUTES):
        make_tree(worktree / str(number), {".gitattributes": attributes, **contents, "below": {**contents}})

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")
    for name, content in contents.items():
        stored = git("--git-dir", shadow.store, "rev-parse", f"{tree}:0/{name}")
        assert stored == git("hash-object", "--no-filters", _write(tmp_path / "content", content))


def test_a_tree_two_hundred_deep_gives_gits_tree_id(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    nest: Tree = {"leaf": "x"}
    for level in range(200):
        nest = {"d": nest, f"f{level}": "y"}
    make_tree(worktree, nest)

    tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")


def test_a_worktree_without_files_gives_the_empty_tree(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"empty": {"below": {}}})

    tree = shadow.track()

    assert tree == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_the_tree_of_what_is_covered_is_gits_when_rules_are_in_force(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    make_tree(
        worktree,
        {
            ".gitignore": "*.log\n/build/\n!keep.log\n",
            "a.log": "1",
            "keep.log": "2",
            "build": {"out": "3"},
            "src": {".gitignore": "gen*\n", "gen.c": "4", "main.c": "5", "build": {"out": "6"}, "x.log": "7"},
            "node_modules": {"m": {"index.js": "8"}},
        },
    )

    tree = shadow.track()

    assert tree == _git_tree_by_rules(worktree, tmp_path / "scratch")


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_tree_id_stays_gits_through_random_changes(
    shadow: Shadow, worktree: Path, tmp_path: Path, seed: int
) -> None:
    """State that the last snapshot cached never affects the next one."""
    chance = random.Random(1000 + seed)
    make_tree(worktree, {name: _generate_tree(chance, depth=2) for name in "abcdef"})
    before = shadow.track()
    for turn in range(25):
        for _ in range(chance.randint(1, 4)):
            _change_something(chance, worktree)

        patch = shadow.patch(before)

        after = shadow.track()
        expected = git_tree(worktree, tmp_path / f"scratch {turn}")
        assert after == expected, _find_difference(
            shadow.store, after, tmp_path / f"scratch {turn}", expected
        )
        by_git = _list_changes(shadow.store, before, after)
        ours = {changed.path: changed.status for changed in patch.files}
        # A change of bits that git does not record counts as well; git does not list those paths.
        assert {path: ours.get(path) for path in by_git} == by_git
        assert {ours[path] for path in ours.keys() - by_git.keys()} <= {"modified"}
        before = after


def test_a_store_without_a_past_gives_the_same_tree_and_facts(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    chance = random.Random(7)
    make_tree(worktree, {name: _generate_tree(chance, depth=2) for name in "abcdef"})
    shadow.track()
    for turn in range(5):
        for _ in range(10):
            _change_something(chance, worktree)

        warm = shadow.take_snapshot()
        with Shadow(worktree, store=tmp_path / f"cold {turn}", settings={"min_free": 0}) as other:
            cold = other.take_snapshot()

        assert warm == cold
        assert_sound_store(other.store)


def test_the_tree_id_of_a_real_checkout_is_gits(tmp_path: Path) -> None:
    """Set SHADOWTREE_TEST_CHECKOUT to the path of any checkout; it is copied, without its `.git`."""
    worktree = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".git", *HEAVY_DIRS)
    shutil.copytree(CHECKOUT, worktree, symlinks=True, ignore=ignored)
    unbounded = {"min_free": 0, "max_file_size": "1T", "max_bytes": "1T"}

    with Shadow(worktree, settings=unbounded) as shadow:
        snapshot = shadow.take_snapshot()

    assert snapshot.tree == _git_tree_by_rules(worktree, tmp_path / "scratch")
    assert snapshot.files > 0
    assert snapshot.skipped == []
    assert_sound_store(shadow.store)


def test_nothing_changed_gives_the_same_tree_and_writes_no_object(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {f"tree {number}": _generate_tree(random.Random(number), 3) for number in range(5)})
    first = shadow.take_snapshot()
    objects = _list_files(shadow.store / "objects")

    again = [shadow.take_snapshot() for _ in range(3)]

    assert again == [first] * 3
    assert _list_files(shadow.store / "objects") == objects


def test_names_that_git_forbids_are_listed_as_skipped(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    forbidden = [".GIT", ".Git ", "git~1", "GIT~1", ".git.", ".git::$INDEX", ".g\u200cit", "x\\.git"]
    make_tree(worktree, {"plain": "1", **dict.fromkeys(forbidden, "2"), "sub": {"git~1": {"below": "3"}}})

    snapshot = shadow.take_snapshot()

    assert [skip.path for skip in snapshot.skipped] == sorted([*forbidden, "sub/git~1"])
    for name in forbidden:
        (worktree / name).unlink()
    shutil.rmtree(worktree / "sub")
    assert snapshot.tree == git_tree(worktree, tmp_path / "scratch")


def test_dot_git_entries_are_never_covered_at_any_depth(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    make_tree(
        worktree,
        {
            "a": {"f": "1", ".git": {"config": "not a repository"}},
            "b": {"f": "2", ".git": "gitdir: ../nowhere\n"},
            "c": {"f": "3", ".git": link("nowhere")},
            "d": {"f": "4", ".git": {}, "e": {"f": "5", ".git": "\0\xff" * 1000}},
        },
    )

    snapshot = shadow.take_snapshot()

    for path in worktree.rglob(".git"):
        shutil.move(path, tmp_path / f"moved {next(EXAMPLES)}")
    assert snapshot.tree == git_tree(worktree, tmp_path / "scratch")
    assert snapshot.skipped == []


# Random trees


def _generate_tree(chance: random.Random, depth: int) -> Tree:
    tree: Tree = {}
    if chance.random() < 0.2:
        tree[".gitattributes"] = chance.choice(ATTRIBUTES)
    for _ in range(chance.randint(0, 7)):
        tree[_generate_name(chance)] = _generate_value(chance, depth)
    return tree


def _generate_name(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.5:
        name = chance.choice(AWKWARD_NAMES)
    elif kind < 0.8:
        name = chance.choice(SORTING_NAMES).rstrip(b"/")
    else:
        letters = [n for n in range(1, 256) if n != ord("/")]
        name = bytes(chance.choices(letters, k=chance.choice([1, 3, 20, 100]))).strip(b".") + b"x"
    return os.fsdecode(name)


def _generate_value(chance: random.Random, depth: int) -> File | Link | Tree:
    kind = chance.random()
    if kind < 0.35 and depth:
        return _generate_tree(chance, depth - 1)
    if kind < 0.5:
        return Link(chance.choice(TARGETS))
    content = chance.choice(CONTENTS) if chance.random() < 0.7 else chance.randbytes(chance.randint(0, 300))
    return File(content, chance.choice([0o644, 0o644, 0o755, 0o600, 0o700, 0o666, 0o444, 0o640, 0o711]))


def _change_something(chance: random.Random, worktree: Path) -> None:
    """Make one change, or none if it is not possible."""
    # A directory named `.gitattributes` is an error for `git fsck`, although `git add` accepts it.
    paths = sorted(path for path in worktree.rglob("*") if path.name != ".gitattributes")
    if not paths:
        make_tree(worktree, _generate_tree(chance, 2))
        return
    path = chance.choice(paths)
    change = chance.choice([_rewrite, _rewrite, _replace, _replace, _toggle_exec, _rename, _remove, _add])
    change(chance, path)


def _rewrite(chance: random.Random, path: Path) -> None:
    """Change a file in place without changing its size; sometimes restore its mtime too."""
    if path.is_symlink() or not path.is_file():
        return
    status = path.stat()
    path.chmod(status.st_mode | 0o200)
    path.write_bytes(chance.randbytes(status.st_size))
    if chance.random() < 0.5:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(chance: random.Random, path: Path) -> None:
    """Put something of any kind in the place of a file or directory."""
    _remove(chance, path)
    make_tree(path.parent, {path.name: _generate_value(chance, 1)})


def _toggle_exec(chance: random.Random, path: Path) -> None:
    if not path.is_symlink() and path.is_file():
        path.chmod(path.stat().st_mode ^ 0o100)


def _rename(chance: random.Random, path: Path) -> None:
    target = path.parent / _generate_name(chance)
    if not os.path.lexists(target):
        path.rename(target)


def _remove(chance: random.Random, path: Path) -> None:
    if not path.is_symlink() and path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _add(chance: random.Random, path: Path) -> None:
    name = _generate_name(chance)
    if not os.path.lexists(path.parent / name):
        make_tree(path.parent, {name: _generate_value(chance, 1)})


# Results of git


def _git_tree_by_rules(worktree: Path, scratch: Path) -> str:
    """Return the tree id of `git add -A` with all ignore rules, including those for heavy directories."""
    git("init", "--quiet", "--bare", scratch)
    (scratch / "info").mkdir(exist_ok=True)
    (scratch / "info" / "attributes").write_text(NEUTRAL_ATTRIBUTES)
    (scratch / "info" / "exclude").write_text("".join(f"{name}/\n" for name in HEAVY_DIRS))
    environment = {"GIT_DIR": str(scratch), "GIT_WORK_TREE": str(worktree)}
    git("-c", "core.bare=false", "add", "--all", ".", cwd=worktree, **environment)
    return git("-c", "core.bare=false", "write-tree", cwd=worktree, **environment)


def _find_difference(store: Path, tree: str, scratch: Path, expected: str) -> str:
    ours = set(git("--git-dir", store, "ls-tree", "-r", "-t", "-z", tree).split("\0"))
    gits = set(git("--git-dir", scratch, "ls-tree", "-r", "-t", "-z", expected).split("\0"))
    return f"only ours: {sorted(ours - gits)[:5]}, only git's: {sorted(gits - ours)[:5]}"


def _list_changes(store: Path, before: str, after: str) -> dict[str, str]:
    words = {"A": "added", "D": "deleted", "M": "modified", "T": "type"}
    listed = git("--git-dir", store, "diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after)
    fields = listed.split("\0")[:-1]
    return {path: words[letter] for letter, path in _in_pairs(fields)}


def _in_pairs(fields: list[str]) -> Iterable[tuple[str, str]]:
    return zip(fields[::2], fields[1::2], strict=True)


def _list_files(directory: Path) -> list[tuple[str, int, int]]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in found)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
