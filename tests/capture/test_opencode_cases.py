"""Cases of recording in which OpenCode's snapshots go wrong, or that its tests require.

`E` numbers are those of the experiments, `2a` numbers those of the behaviours in the research on OpenCode.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shadowtree import Shadow, UnknownTree
from shadowtree.cli.main import main
from tests.support.processes import surroundings
from tests.support.referee import assert_sound_store, files_in, git, git_tree
from tests.support.trees import Tree, executable, file, link, make_tree

LIMIT = 10 * 1024 * 1024


def changes(shadow: Shadow, tree: str) -> dict[str, str]:
    """Return the status of each path that changed since a tree."""
    return {changed.path: changed.status for changed in shadow.patch(tree).files}


def unknown(shadow: Shadow, tree: str) -> list[str]:
    """Return the paths that are unknown in the patch since a tree."""
    return [skip.path for skip in shadow.patch(tree).skipped]


def stored(shadow: Shadow, tree: str, path: str) -> bytes:
    """Read a file from a tree with real git."""
    command = ["git", "--git-dir", str(shadow.store), "cat-file", "blob", f"{tree}:{path}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def make_repository(directory: Path, tree: Tree | None = None, *, commit: bool = True) -> Path:
    """Make a git repository, and commit everything in it."""
    make_tree(directory, tree or {})
    git("init", "--quiet", "--initial-branch=main", cwd=directory)
    if commit:
        git("add", "--all", "--force", cwd=directory)
        git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=directory)
    return directory


@pytest.fixture
def repository(worktree: Path) -> Path:
    """The worktree as a git repository with two committed files."""
    return make_repository(worktree, {"a.txt": "A\n", "b.txt": "B\n"})


# Names


def test_two_modified_files_with_names_outside_ascii_are_both_in_the_patch(
    shadow: Shadow, repository: Path
) -> None:
    """E1, 2a.16: OpenCode reads quoted names, matches none and deletes both files."""
    names = ["\u4e2d\u6587.txt", "\u0444\u0430\u0439\u043b.txt", "\u00e9\U0001f600.txt"]
    make_tree(repository, dict.fromkeys(names, "old"))
    before = shadow.track()
    make_tree(repository, dict.fromkeys(names, "new"))

    assert changes(shadow, before) == dict.fromkeys(sorted(names), "modified")


@pytest.mark.parametrize(
    "name",
    [
        b'qu"ote',
        b"back\\slash",
        b"ta\tb",
        b"new\nline",
        b" leading",
        b"trailing ",
        b"\xff\xfe",
        b"-rf",
        b"\\303\\251",
        b'"quoted"',
    ],
    ids=repr,
)
def test_names_that_git_quotes_come_back_exactly(shadow: Shadow, repository: Path, name: bytes) -> None:
    """E5: OpenCode's patch has a quoted or trimmed path, and its revert misses the file."""
    path = repository / os.fsdecode(name)
    path.write_text("old")
    before = shadow.track()
    path.write_text("new")

    (changed,) = shadow.patch(before).files

    assert (os.fsencode(changed.path), changed.status) == (name, "modified")
    assert (repository / changed.path).read_text() == "new"


@pytest.mark.parametrize(
    ("changed", "sibling"),
    [("r/[A]/f", "r/A/f"), ("src[1]/f", "src1/f"), ("a*", "ab"), ("a?c", "abc"), (":(top)f", "f")],
)
def test_a_name_with_glob_characters_means_itself_alone(
    shadow: Shadow, repository: Path, changed: str, sibling: str
) -> None:
    """E6: OpenCode's pathspecs also match the neighbouring file."""
    for path in (changed, sibling):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("old")
    before = shadow.track()
    (repository / changed).write_text("new")

    assert changes(shadow, before) == {changed: "modified"}


def test_new_files_with_unicode_names_and_directories_are_in_the_patch(
    shadow: Shadow, repository: Path
) -> None:
    """2a.15, 2a.17, 2a.18."""
    before = shadow.track()
    new = [
        "caf\u00e9.txt",
        "\U0001f600.txt",
        "\u6587\u4ef6/\u5b50/\u6587.txt",
        "n" * 200,
        "with space",
        "a-b_c",
    ]
    for path in new:
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("x")

    assert changes(shadow, before) == dict.fromkeys(sorted(new), "added")


@pytest.mark.parametrize("name", ["src*", ":src", "-src", "[src]"])
def test_a_worktree_with_an_awkward_name_inside_a_repository_covers_itself_alone(
    tmp_path: Path, name: str
) -> None:
    """2a.24 to 2a.26, E3: the session runs in a folder of a repository, and its name is a pattern."""
    outer = make_repository(
        tmp_path / "outer", {name: {"file": "1"}, "srca": {"file": "1"}, "src": {"f": "1"}}
    )
    with Shadow(outer / name, settings={"min_free": 0}) as shadow:
        before = shadow.track()
        make_tree(outer, {name: {"file": "2", ".gitignore": "new\n", "new": "x"}, "srca": {"file": "2"}})

        assert changes(shadow, before) == {".gitignore": "added", "file": "modified"}
        assert shadow.track() == git_tree_of(outer / name, ["file", ".gitignore"], tmp_path)
    assert_sound_store(shadow.store)


def git_tree_of(worktree: Path, names: list[str], tmp_path: Path) -> str:
    """Return git's tree id for some files of a worktree."""
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in names:
        shutil.copy2(worktree / name, alone / name)
    return git_tree(alone, tmp_path / "alone.git")


# Covered files


def test_a_file_above_the_limit_is_listed_as_skipped_and_never_silently_missing(
    shadow: Shadow, repository: Path
) -> None:
    """E9, 2a.9: OpenCode leaves out files over 2 MiB without a warning."""
    before = shadow.take_snapshot()
    with open(repository / "big.bin", "wb") as big:
        big.truncate(LIMIT + 1)

    after = shadow.take_snapshot()

    assert after.tree == before.tree
    assert [(skip.path, skip.reason) for skip in after.skipped] == [
        ("big.bin", f"{LIMIT + 1:,} bytes is over the {LIMIT:,} byte limit")
    ]
    assert changes(shadow, before.tree) == {}
    assert [skip.path for skip in shadow.status().skipped] == ["big.bin"]


def test_a_text_file_of_a_mebibyte_and_one_of_the_limit_are_covered(shadow: Shadow, repository: Path) -> None:
    """2a.8, and E9 for files between OpenCode's limit and ours."""
    before = shadow.track()
    make_tree(repository, {"large.txt": "x" * 1024 * 1024, "limit.bin": bytes(LIMIT)})

    assert changes(shadow, before) == {"large.txt": "added", "limit.bin": "added"}


def test_a_file_that_is_tracked_though_ignored_is_covered(shadow: Shadow, worktree: Path) -> None:
    """E11: OpenCode drops files that were added with --force."""
    make_repository(worktree, {".gitignore": "*.log\nbuild/\n", "a.log": "1", "build": {"out": "1"}})
    before = shadow.track()
    make_tree(worktree, {"a.log": "2", "build": {"out": "2"}, "b.log": "new", "build/other": "new"})

    assert changes(shadow, before) == {"a.log": "modified", "build/out": "modified"}


@pytest.mark.parametrize("path", ["a.log", "build/out"])
def test_deleting_a_file_that_is_tracked_though_ignored_is_a_change(
    shadow: Shadow, worktree: Path, path: str
) -> None:
    """E11: the index tracks it before and after, so its absence is certain."""
    make_repository(worktree, {".gitignore": "*.log\nbuild/\n", "a.log": "1", "build": {"out": "1"}})
    before = shadow.track()
    (worktree / path).unlink()

    assert changes(shadow, before) == {path: "deleted"}


@pytest.mark.parametrize("path", ["a.log", "build/out"])
def test_making_a_file_that_is_tracked_though_ignored_is_a_change(
    shadow: Shadow, worktree: Path, path: str
) -> None:
    """E11: the reverse; the user had deleted it before."""
    make_repository(worktree, {".gitignore": "*.log\nbuild/\n", "a.log": "1", "build": {"out": "1"}})
    (worktree / path).unlink()
    before = shadow.track()
    make_tree(worktree, {path: "again"})

    assert changes(shadow, before) == {path: "added"}


def test_a_tracked_file_that_becomes_ignored_and_changes_at_once_is_in_the_patch(
    shadow: Shadow, repository: Path
) -> None:
    """E11b: OpenCode reverts the rule and leaves the edit."""
    before = shadow.track()
    make_tree(repository, {".gitignore": "a.txt\n", "a.txt": "edited\n"})

    assert changes(shadow, before) == {".gitignore": "added", "a.txt": "modified"}


def test_an_untracked_file_that_becomes_ignored_is_unknown_and_not_deleted(
    shadow: Shadow, repository: Path
) -> None:
    """E11b, 2a.28, 2a.29: its later state is unknown, so it is listed as skipped."""
    make_tree(repository, {"secret.env": "1", "sub": {"x.env": "1"}})
    before = shadow.track()
    make_tree(repository, {".gitignore": "*.env\nsub/\n", "secret.env": "2", "other": "new"})

    assert changes(shadow, before) == {".gitignore": "added", "other": "added"}
    assert unknown(shadow, before) == ["secret.env", "sub/x.env"]


def test_a_file_that_is_no_longer_ignored_is_unknown_and_not_added(shadow: Shadow, repository: Path) -> None:
    """E11b in reverse: a revert must not remove it."""
    make_tree(repository, {".gitignore": "*.env\n", "secret.env": "1"})
    before = shadow.track()
    (repository / ".gitignore").write_text("")

    assert changes(shadow, before) == {".gitignore": "modified"}
    assert unknown(shadow, before) == ["secret.env"]


def test_ignored_files_stay_out_of_the_patch(shadow: Shadow, repository: Path) -> None:
    """2a.23, 2a.27, 2a.30, 2a.31: rules of the worktree, of info/exclude and of the user's configuration."""
    config = Path(os.environ["HOME"], ".config", "git")
    make_tree(config, {"ignore": "*.global\n"})
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("*.private\n")
    make_tree(repository, {".gitignore": "*.ignored\nbuild/\n", "old.ignored": "1", "build": {"old": "1"}})
    before = shadow.track()
    make_tree(
        repository,
        {
            "a.txt": "edited\n",
            "new.txt": "1",
            "new.ignored": "1",
            "old.ignored": "2",
            "x.private": "1",
            "x.global": "1",
            "build": {"old": "2", "new": "2"},
            "node_modules": {"m": "1"},
        },
    )

    assert changes(shadow, before) == {"a.txt": "modified", "new.txt": "added"}


def test_empty_directories_are_recorded_beside_the_tree(shadow: Shadow, repository: Path) -> None:
    """E12: OpenCode never records them. 2a.5: no patch lists them."""
    before = shadow.take_snapshot()
    make_tree(repository, {"empty": {"inner": {}}})

    after = shadow.take_snapshot()

    assert after.tree == before.tree
    assert after.facts != before.facts
    assert stored(shadow, after.facts, "=empty/=inner/%directory") == b"directory\0"
    assert changes(shadow, before.tree) == {}


def test_an_empty_directory_that_goes_is_recorded_too(shadow: Shadow, repository: Path) -> None:
    """E12: the facts are those of a worktree that never had it."""
    before = shadow.take_snapshot()
    (repository / "empty").mkdir()
    shadow.take_snapshot()
    (repository / "empty").rmdir()

    assert shadow.take_snapshot() == before


def test_a_change_of_permission_bits_alone_is_a_modification(shadow: Shadow, repository: Path) -> None:
    """E14: OpenCode widens 0600 to 0644, because git trees record only the exec bit."""
    make_tree(repository, {"key": file("secret", 0o600), "run": "x"})
    before = shadow.track()
    (repository / "key").chmod(0o640)
    (repository / "run").chmod(0o755)

    patch = shadow.patch(before)

    assert [(c.path, c.status, c.old_mode, c.new_mode) for c in patch.files] == [
        ("key", "modified", stat.S_IFREG | 0o600, stat.S_IFREG | 0o640),
        ("run", "modified", stat.S_IFREG | 0o644, stat.S_IFREG | 0o755),
    ]


@pytest.mark.parametrize(
    "mode", [0o600, 0o400, 0o664, 0o666, 0o700, 0o711, 0o775, 0o777, 0o444, 0o111, 0o000]
)
def test_the_exact_permission_bits_are_recorded(shadow: Shadow, repository: Path, mode: int) -> None:
    """E14."""
    before = shadow.track()
    make_tree(repository, {"key": file("secret", mode), "other": "x"})

    patch = shadow.patch(before)

    assert {c.path: c.new_mode for c in patch.files} == {
        "key": stat.S_IFREG | mode,
        "other": stat.S_IFREG | 0o644,
    }


def test_bits_above_the_permissions_are_not_recorded(shadow: Shadow, repository: Path) -> None:
    """E14, F33: a recorded setuid bit might be restored one day."""
    before = shadow.track()
    make_tree(repository, {"tool": executable("x")})
    (repository / "tool").chmod(0o6755)

    (changed,) = shadow.patch(before).files

    assert changed.new_mode == stat.S_IFREG | 0o755


def test_bits_changed_and_changed_back_are_no_change(shadow: Shadow, repository: Path) -> None:
    """2a.21."""
    before = shadow.take_snapshot()
    for mode in (0o600, 0o755, 0o644):
        (repository / "a.txt").chmod(mode)

    assert changes(shadow, before.tree) == {}
    assert shadow.take_snapshot() == before


@pytest.mark.parametrize("commit", [False, True], ids=["without a commit", "with a commit"])
def test_files_of_a_nested_repository_are_ordinary_files(
    shadow: Shadow, repository: Path, commit: bool
) -> None:
    """E15, E15b: OpenCode's whole add fails, or stores the commit's id instead of the files."""
    nested = make_repository(repository / "nested", {"x": "1", "sub": {"y": "1"}}, commit=commit)
    before = shadow.track()
    make_tree(nested, {"x": "2", "new": "3"})

    assert changes(shadow, before) == {"nested/new": "added", "nested/x": "modified"}
    assert files_in(shadow.store, before) == ["a.txt", "b.txt", "nested/sub/y", "nested/x"]


def test_files_of_a_submodule_are_ordinary_files(shadow: Shadow, repository: Path, tmp_path: Path) -> None:
    """E15b, issue 10658: the `.git` of a submodule is a file."""
    library = make_repository(tmp_path / "library", {"lib.c": "1"})
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib", cwd=repository)
    git("commit", "--quiet", "-m", "submodule", cwd=repository)
    before = shadow.track()
    make_tree(repository / "lib", {"lib.c": "2"})

    assert (repository / "lib" / ".git").is_file()
    assert changes(shadow, before) == {"lib/lib.c": "modified"}


def test_a_folder_of_several_repositories_is_covered_with_the_rules_of_each(
    shadow: Shadow, worktree: Path
) -> None:
    """E15b, issues 30065 and 34398: one session over a folder of independent repositories."""
    for name in ("one", "two"):
        make_repository(worktree / name, {".gitignore": f"{name}.log\n", "f": "1", f"{name}.log": "tracked"})
    make_tree(worktree, {"one": {"two.log": "1"}, "two": {"one.log": "1"}, "loose": "1"})
    make_repository(worktree / "three", {".gitignore": "*.log\n"})
    make_tree(worktree / "three", {"x.log": "ignored"})

    tree = shadow.track()

    assert files_in(shadow.store, tree) == [
        "loose",
        "one/.gitignore",
        "one/f",
        "one/one.log",
        "one/two.log",
        "three/.gitignore",
        "two/.gitignore",
        "two/f",
        "two/one.log",
        "two/two.log",
    ]


def test_a_directory_replaced_by_a_symlink_is_a_change_and_nothing_freezes(
    shadow: Shadow, repository: Path, tmp_path: Path
) -> None:
    """E16: in OpenCode every later add fails."""
    make_tree(repository, {"dir": {"x": "1", "y": "2"}})
    git("add", "--all", cwd=repository)
    elsewhere = make_tree(tmp_path / "elsewhere", {"x": "outside"})
    before = shadow.track()
    shutil.rmtree(repository / "dir")
    (repository / "dir").symlink_to(elsewhere)

    assert changes(shadow, before) == {"dir": "added", "dir/x": "deleted", "dir/y": "deleted"}
    middle = shadow.track()
    make_tree(repository, {"a.txt": "edited"})
    (elsewhere / "x").write_text("changed outside")
    assert changes(shadow, middle) == {"a.txt": "modified"}


@pytest.mark.parametrize(
    "attributes", ["* text\n", "* text=auto eol=lf\n", "* ident\n", "* working-tree-encoding=UTF-16\n"]
)
def test_line_endings_and_keywords_are_stored_as_they_are(
    shadow: Shadow, repository: Path, attributes: str
) -> None:
    """E17: OpenCode turns CRLF into LF, and does not notice a change of line endings alone."""
    content = b"one\r\ntwo\nthree\r$Id: x $\r\n"
    make_tree(repository, {".gitattributes": attributes, "mixed": content, "unix": "one\ntwo\n"})
    git("config", "core.autocrlf", "true", cwd=repository)
    before = shadow.track()
    make_tree(repository, {"unix": "one\r\ntwo\r\n"})

    assert stored(shadow, before, "mixed") == content
    assert changes(shadow, before) == {"unix": "modified"}


@pytest.mark.parametrize("order", [1, -1], ids=["file to link", "link to file"])
def test_a_file_that_becomes_a_link_has_the_status_type(shadow: Shadow, repository: Path, order: int) -> None:
    """E18."""
    kinds: list[Tree] = [{"x": "a.txt"}, {"x": link("a.txt")}]
    first, second = kinds[::order]
    make_tree(repository, first)
    before = shadow.track()
    (repository / "x").unlink()
    make_tree(repository, second)

    assert changes(shadow, before) == {"x": "type"}


def test_a_repository_without_commits_is_captured(shadow: Shadow, worktree: Path) -> None:
    """E20, issue 3073: OpenCode's hash is empty."""
    make_repository(worktree, {"a": "1", "sub": {"b": "2"}}, commit=False)
    before = shadow.track()
    make_tree(worktree, {"a": "2"})

    assert files_in(shadow.store, before) == ["a", "sub/b"]
    assert changes(shadow, before) == {"a": "modified"}


def test_a_directory_that_is_no_repository_is_captured(shadow: Shadow, worktree: Path) -> None:
    """Section 4.2, issue 38672: OpenCode records nothing, and claims that it reverted."""
    make_tree(worktree, {"a": "1", ".gitignore": "*.log\n", "x.log": "1"})
    before = shadow.track()
    make_tree(worktree, {"a": "2", "x.log": "2"})

    assert changes(shadow, before) == {"a": "modified"}


# The store does not depend on the user's repository


@pytest.mark.parametrize("harm", ["gc", "rewrite", "remove", "move"])
def test_the_store_survives_what_the_user_does_to_the_repository(
    shadow: Shadow, repository: Path, tmp_path: Path, harm: str
) -> None:
    """E21, E7e: OpenCode borrows objects from the user's repository, and loses files with them."""
    make_tree(repository, {"only added": "blob that only the index knows", "packed": "x" * 5000})
    git("add", "--all", cwd=repository)
    git("gc", "--quiet", cwd=repository)
    before = shadow.track()
    expected = {path: (repository / path).read_bytes() for path in files_in(shadow.store, before)}
    if harm in ("gc", "rewrite"):
        git("rm", "--quiet", "-r", "--force", "--cached", ".", cwd=repository)
    if harm == "rewrite":
        git("checkout", "--quiet", "--orphan", "fresh", cwd=repository)
        git("commit", "--quiet", "--allow-empty", "-m", "fresh", cwd=repository)
        git("branch", "--quiet", "-D", "main", cwd=repository)
    if harm in ("gc", "rewrite"):
        git("reflog", "expire", "--expire=now", "--all", cwd=repository)
        git("gc", "--quiet", "--prune=now", cwd=repository)
    elif harm == "remove":
        shutil.rmtree(repository / ".git")
    else:
        (repository / ".git").rename(tmp_path / "moved.git")

    assert shadow.track() == before
    assert {path: stored(shadow, before, path) for path in files_in(shadow.store, before)} == expected
    assert not (shadow.store / "objects" / "info" / "alternates").exists()


def test_trees_stay_known_when_the_repository_gains_a_remote_or_a_commit(
    shadow: Shadow, worktree: Path
) -> None:
    """E7d: OpenCode's store is named after the first commit, and every older tree is lost."""
    make_repository(worktree, {"a": "1"}, commit=False)
    before = shadow.track()
    store = shadow.store
    git("add", "a", cwd=worktree)
    git("commit", "--quiet", "-m", "first", cwd=worktree)
    git("remote", "add", "origin", "https://example.org/x.git", cwd=worktree)
    make_tree(worktree, {"a": "2"})

    with Shadow(worktree, settings={"min_free": 0}) as again:
        assert again.store == store
        assert changes(again, before) == {"a": "modified"}


def test_a_stale_lock_file_of_git_disables_nothing(shadow: Shadow, repository: Path) -> None:
    """E8, issue 48848: in OpenCode every later snapshot is empty."""
    before = shadow.track()
    (repository / ".git" / "index.lock").touch()
    (shadow.store / "index.lock").touch(mode=0o600)
    make_tree(repository, {"a.txt": "edited"})

    assert changes(shadow, before) == {"a.txt": "modified"}


def test_a_tree_that_the_store_does_not_know_is_an_error(shadow: Shadow, repository: Path) -> None:
    """2a.13, E7: OpenCode returns an empty patch, and then deletes files."""
    shadow.track()
    for name in ("invalid-hash-12345", "0" * 40, "", "HEAD"):
        with pytest.raises(UnknownTree):
            shadow.patch(name)


# Other kinds, and links


def test_a_fifo_is_skipped_and_the_rest_is_covered(shadow: Shadow, repository: Path) -> None:
    """E24."""
    os.mkfifo(repository / "pipe")

    snapshot = shadow.take_snapshot()

    assert files_in(shadow.store, snapshot.tree) == ["a.txt", "b.txt"]
    assert [(skip.path, skip.reason) for skip in snapshot.skipped] == [("pipe", "not a regular file or link")]


def test_links_to_files_and_directories_are_one_entry_each(shadow: Shadow, repository: Path) -> None:
    """2a.7, 2a.20, 2a.22: a link to a directory is not a directory, and one to itself is not a loop."""
    make_tree(repository, {"sub": {"dir": {"f": "1"}}})
    before = shadow.track()
    make_tree(
        repository,
        {"to file": link("sub/dir/f"), "to dir": link("sub"), "self": link("self"), "up": link("..")},
    )

    assert changes(shadow, before) == dict.fromkeys(["self", "to dir", "to file", "up"], "added")


def test_dotfiles_are_covered(shadow: Shadow, repository: Path) -> None:
    """2a.19."""
    before = shadow.track()
    make_tree(repository, {".hidden": "1", ".gitignore": "", ".config": {"x": "1"}})

    assert changes(shadow, before) == dict.fromkeys([".config/x", ".gitignore", ".hidden"], "added")


def test_no_change_gives_the_same_tree_every_time(shadow: Shadow, repository: Path) -> None:
    """2a.37."""
    assert len({shadow.track() for _ in range(4)}) == 1


def test_a_hundred_and_one_changes_are_all_in_the_patch_in_order(shadow: Shadow, repository: Path) -> None:
    """2a.45, 2a.56: OpenCode works in batches of 100."""
    names = [f"f{number:03}" for number in range(101)]
    make_tree(repository, dict.fromkeys(names, "old"))
    before = shadow.track()
    make_tree(repository, {**dict.fromkeys(names, "new"), "g": "added"})

    patch = shadow.patch(before)

    assert [changed.path for changed in patch.files] == [*names, "g"]


def test_hard_links_stay_linked(shadow: Shadow, repository: Path) -> None:
    """E31, for recording: no file is replaced."""
    os.link(repository / "a.txt", repository / "also a.txt")
    before = (repository / "a.txt").stat()

    tree = shadow.track()

    assert files_in(shadow.store, tree) == ["a.txt", "also a.txt", "b.txt"]
    after = (repository / "a.txt").stat()
    assert (after.st_ino, after.st_nlink, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        2,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


# Several worktrees


def test_two_projects_do_not_see_each_other(tmp_path: Path) -> None:
    """2a.33, 2a.36, 2a.61: a linked worktree is a project of its own too."""
    main_tree = make_repository(tmp_path / "main", {"shared": "1"})
    linked = tmp_path / "linked"
    git("worktree", "add", "--quiet", linked, cwd=main_tree)
    with (
        Shadow(main_tree, settings={"min_free": 0}) as one,
        Shadow(linked, settings={"min_free": 0}) as other,
    ):
        before_one, before_other = one.track(), other.track()
        make_tree(linked, {"shared": "2", "linked only": "1"})

        assert one.store != other.store
        assert changes(one, before_one) == {}
        assert changes(other, before_other) == {"linked only": "added", "shared": "modified"}
    for shadow in (one, other):
        assert_sound_store(shadow.store)


def test_eight_processes_tracking_one_worktree_at_once_agree(
    shadow: Shadow, repository: Path, tmp_path: Path
) -> None:
    """E28: in OpenCode 35 of 64 calls returned an empty hash."""
    make_tree(repository, {f"d{n}": {f"f{m}": f"{n} {m}" for m in range(20)} for n in range(10)})
    command = [
        sys.executable,
        "-c",
        "import sys; from shadowtree import Shadow\n"
        "with Shadow('.', settings={'min_free': 0, 'lock_timeout': 120}) as shadow:\n"
        "    for _ in range(4): print(shadow.track(), flush=True)\n",
    ]
    crew = [
        subprocess.Popen(command, cwd=repository, env=surroundings(), text=True, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    answers = [process.communicate()[0].split() for process in crew]

    assert [process.returncode for process in crew] == [0] * 8
    assert [tree for answer in answers for tree in answer] == [shadow.track()] * 32
    shutil.rmtree(repository / ".git")
    assert shadow.track() == git_tree(repository, tmp_path / "scratch")


# The user's git is not touched and not run


def test_no_hook_and_no_filter_of_the_user_ever_runs(
    shadow: Shadow, worktree: Path, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E29, E30: OpenCode runs post-checkout hooks, and restores the output of a clean filter."""
    make_repository(worktree, {"a.txt": "lower\r\n", "b.txt": "b\n"})
    make_tree(worktree, {".gitattributes": "* text filter=upper diff=upper ident\n"})
    git("config", "include.path", os.environ["GIT_CONFIG_GLOBAL"], cwd=worktree)
    before = shadow.track()
    make_tree(worktree, {"b.txt": "edited\r\n", "c.txt": "c\r\n"})
    _run_every_command(worktree, before, capsys)

    after = shadow.track()

    assert stored(shadow, after, "a.txt") == b"lower\r\n"
    assert stored(shadow, after, "b.txt") == b"edited\r\n"


def test_the_users_repository_is_the_same_to_the_byte_after_every_command(
    shadow: Shadow, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E25: index, refs, objects, configuration and hooks, including their times."""
    nested = make_repository(repository / "nested", {"x": "1"})
    # Git itself would refresh an index whose stamps are outdated.
    os.utime(repository / "a.txt")
    before_files = [_list_everything(top / ".git") for top in (repository, nested)]
    before = shadow.track()
    make_tree(repository, {"a.txt": "edited\n", "new": "1", "nested": {"x": "2"}})

    _run_every_command(repository, before, capsys)

    assert [_list_everything(top / ".git") for top in (repository, nested)] == before_files


def test_nothing_is_written_into_the_worktree(
    shadow: Shadow, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Section 2 of the contract, in addition to E25."""
    make_tree(repository, {"sub": {"x": "1"}, "empty": {}})
    before = _list_everything(repository)

    _run_every_command(repository, shadow.track(), capsys)

    assert _list_everything(repository) == before


def test_variables_of_git_have_no_effect(
    shadow: Shadow, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F51: GIT_DIR or GIT_INDEX_FILE from a hook that started the agent."""
    make_tree(repository, {".gitignore": "*.log\n", "x.log": "1"})
    plain = shadow.take_snapshot()
    decoy = make_repository(tmp_path / "decoy", {"x.log": "tracked here"})
    before = _list_everything(decoy)
    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", str(decoy / ".git"))
        patch.setenv("GIT_WORK_TREE", str(decoy))
        patch.setenv("GIT_INDEX_FILE", str(decoy / ".git" / "index"))
        patch.setenv("GIT_OBJECT_DIRECTORY", str(decoy / ".git" / "objects"))
        patch.setenv("GIT_ALTERNATE_OBJECT_DIRECTORIES", str(decoy / ".git" / "objects"))
        patch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
        patch.setenv("GIT_LITERAL_PATHSPECS", "1")
        with Shadow(repository, store=tmp_path / "other", settings={"min_free": 0}) as other:
            snapshot = other.take_snapshot()

    assert snapshot == plain
    assert _list_everything(decoy) == before
    assert_sound_store(tmp_path / "other")


def _run_every_command(worktree: Path, tree: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [["wrap", str(worktree)], ["track"], ["patch", tree], ["diff"], ["diff", tree], ["status"]]
    for command in words:
        place = [] if command[0] == "wrap" else ["-C", str(worktree)]
        assert main([*place, "--set", "min_free=0", *command]) == 0, capsys.readouterr()
    capsys.readouterr()


def _list_everything(top: Path) -> dict[str, tuple[object, ...]]:
    """List everything in a directory, itself included, with the content and times of each entry."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(top))] = (
            content,
            status.st_mode,
            status.st_ino,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
    return found
