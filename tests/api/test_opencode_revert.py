"""Behaviours of revert, restore and turns that OpenCode's tests require, and cases where its undo is wrong.

`2a` to `2d` are the numbered behaviours, `E` the experiments in the research on OpenCode. A test says so if
ours is stricter. Tests of recording alone are in `test_opencode_cases.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shadowtree import Conflict, Shadow, ShadowError, StoreDamaged, UnknownMessage, UnknownName, UnknownTree
from tests.api.test_revert import manifest, replace_tree
from tests.support.processes import in_child, surroundings
from tests.support.referee import assert_sound_store, git, init
from tests.support.stores import SETTINGS
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, read_tree

BASE: Tree = {"a.txt": "A\n", "b.txt": "B\n"}


def make_repository(top: Path, tree: Tree, *, commit: bool = True) -> Path:
    """Make a git repository, and commit everything in it."""
    init(make_tree(top, tree))
    if commit:
        git("add", "--all", "--force", cwd=top)
        git("commit", "--quiet", "--allow-empty", "-m", "first", cwd=top)
    return top


@pytest.fixture
def repository(worktree: Path) -> Path:
    """The worktree as a repository with two files that are not committed."""
    init(worktree)
    return make_tree(worktree, BASE)


# 2a: snapshot.test.ts

NEW_FILES: dict[str, Tree] = {
    "2a.2 a file": {"new.txt": "new"},
    "2a.3 a file in a directory": {"sub": {"file.txt": "sub"}},
    "2a.6 a binary file": {"image.png": b"\x89PNG"},
    "2a.7 a link": {"link.txt": link("a.txt")},
    "2a.8 a text file of a mebibyte": {"large.txt": "x" * 1024 * 1024},
    "2a.9 a file above two mebibytes": {"huge.bin": bytes(2 * 1024 * 1024 + 1)},
    "2a.10 a deep file": {"level1": {"level2": {"level3": {"deep.txt": "deep"}}}},
    "2a.11 names with spaces": {"with space": "1", "with-dash": "2", "with_underscore": "3"},
    "2a.15 names outside ASCII": {"\u4e2d\u6587": "1", "\U0001f600": "2", "caf\u00e9": "3", "\u0444": "4"},
    "2a.17 directories outside ASCII": {"\u76ee\u5f55": {"\u5b50\u76ee\u5f55": {"\u6587.txt": "1"}}},
    "2a.18 a name of 200 characters": {"n" * 200: "1"},
    "2a.19 dotfiles": {".hidden": "1", ".gitignore": "# nothing\n", ".config": "1"},
    "2a.20 links to a file and a directory": {"to file": link("a.txt"), "to dir": link("."), "d": {"f": ""}},
    "2a.22 a link to itself": {"self": link("self")},
    "2a.5 an empty directory": {"empty": {}},
}


@pytest.mark.parametrize("new", NEW_FILES.values(), ids=NEW_FILES)
def test_what_the_message_made_is_gone_after_a_revert_directories_included(
    shadow: Shadow, repository: Path, new: Tree
) -> None:
    """E12: OpenCode leaves the directories behind."""
    with shadow.message("m1"):
        make_tree(repository, new)

    shadow.revert("m1")
    assert_tree(repository, BASE)
    shadow.unrevert()
    assert_tree(repository, {**BASE, **new})


def test_several_kinds_of_changes_are_reverted_together(shadow: Shadow, repository: Path) -> None:
    """2a.4, 2a.1."""
    with shadow.message("m1"):
        (repository / "a.txt").unlink()
        make_tree(repository, {"c.txt": "C", "dir": {"d.txt": "D"}, "b.txt": "changed"})

    outcome = shadow.revert("m1")

    assert_tree(repository, BASE)
    assert (outcome.restored, outcome.deleted) == (["a.txt", "b.txt"], ["c.txt", "dir/d.txt"])


def test_a_message_without_changes_is_reverted_without_an_error(shadow: Shadow, repository: Path) -> None:
    """2a.12: an empty patch."""
    with shadow.message("m1"):
        pass

    assert shadow.revert("m1").complete
    assert_tree(repository, BASE)


@pytest.mark.parametrize("name", ["dummy", "invalid-hash-12345", "0" * 40])
def test_an_unknown_message_is_an_error(shadow: Shadow, repository: Path, name: str) -> None:
    """2a.12, 2a.13, 2d.75: OpenCode returns an empty patch, or the unchanged session."""
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "changed"})
    before = manifest(repository)

    for act in (shadow.revert, shadow.plan_revert):
        with pytest.raises(UnknownMessage):
            act(name)
    with pytest.raises(UnknownName):
        shadow.restore(name)
    assert manifest(repository) == before


def test_a_path_that_is_neither_on_the_disk_nor_in_the_tree_is_no_error(
    shadow: Shadow, repository: Path
) -> None:
    """2a.14: the message created it, and somebody removed it."""
    with shadow.message("m1"):
        make_tree(repository, {"new": "1"})
    (repository / "new").unlink()

    outcome = shadow.revert("m1")

    assert (outcome.restored, outcome.deleted, outcome.complete) == ([], [], True)
    assert_tree(repository, BASE)


NAMES_OUTSIDE_ASCII = ["\u4e2d\u6587.txt", "\u0444\u0430\u0439\u043b.txt", "\u00e9\U0001f600.txt"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_modified_files_with_names_outside_ascii_come_back(
    shadow: Shadow, repository: Path, count: int
) -> None:
    """2a.16, E1: OpenCode deletes them if there are two; its test of that is skipped."""
    names = NAMES_OUTSIDE_ASCII[:count]
    make_tree(repository, dict.fromkeys(names, "old"))
    with shadow.message("m1"):
        make_tree(repository, dict.fromkeys(names, "new"))

    outcome = shadow.revert("m1")

    assert_tree(repository, {**BASE, **dict.fromkeys(names, "old")})
    assert sorted(outcome.restored) == sorted(names)


def test_bits_that_were_changed_and_changed_back_are_nothing_to_revert(
    shadow: Shadow, repository: Path
) -> None:
    """2a.21."""
    with shadow.message("m1"):
        for mode in (0o600, 0o755, 0o644):
            (repository / "a.txt").chmod(mode)

    outcome = shadow.revert("m1")

    assert (outcome.restored, outcome.deleted) == ([], [])


def test_ignored_files_are_left_alone(shadow: Shadow, repository: Path) -> None:
    """2a.23, 2a.27, 2a.30."""
    make_tree(repository, {".gitignore": "*.ignored\nbuild/\n", "old.ignored": "0", "build": {"o": "0"}})
    (repository / ".git" / "info" / "exclude").write_text("*.private\n")
    with shadow.message("m1"):
        make_tree(
            repository,
            {
                "a.txt": "changed",
                "new.txt": "1",
                "old.ignored": "1",
                "new.ignored": "1",
                "x.private": "1",
                "build": {"o": "1", "n": "1"},
            },
        )

    shadow.revert("m1")

    assert_tree(
        repository,
        {
            **BASE,
            ".gitignore": "*.ignored\nbuild/\n",
            "old.ignored": "1",
            "new.ignored": "1",
            "x.private": "1",
            "build": {"o": "1", "n": "1"},
        },
    )


@pytest.mark.parametrize("name", ["frontend", "src*", ":src", "[src]", "-src"])
def test_a_session_in_a_folder_of_a_repository_touches_that_folder_alone(tmp_path: Path, name: str) -> None:
    """2a.24 to 2a.26, 2b.57 to 2b.59, E3."""
    outer = make_repository(
        tmp_path / "outer", {name: {"f": "0", "g": "0"}, "srca": {"f": "0"}, "src": {"f": "0"}}
    )
    with Shadow(outer / name, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(outer, {name: {"f": "1", "n": "1"}, "srca": {"f": "1"}, "src": {"f": "1"}})
            (outer / name / "g").unlink()
        make_tree(outer, {"src": {"f": "user"}})

        shadow.undo()
        assert_tree(outer, {name: {"f": "0", "g": "0"}, "srca": {"f": "1"}, "src": {"f": "user"}})
        shadow.redo()
        assert_tree(outer, {name: {"f": "1", "n": "1"}, "srca": {"f": "1"}, "src": {"f": "user"}})
    assert_sound_store(shadow.store)


def test_a_file_that_was_modified_and_made_ignored_is_left_alone_and_listed(
    shadow: Shadow, repository: Path
) -> None:
    """2a.28, 2a.29, E11b: it is untracked, so its state after the message is unknown."""
    make_tree(repository, {"secret.env": "0"})
    with shadow.message("m1"):
        make_tree(repository, {".gitignore": "*.env\n", "secret.env": "1", "b.txt": "changed"})

    outcome = shadow.revert("m1")

    assert_tree(repository, {**BASE, "secret.env": "1"})
    assert [skip.path for skip in outcome.skipped] == ["secret.env"]
    assert not outcome.complete


def test_a_tracked_file_that_was_modified_and_made_ignored_comes_back(shadow: Shadow, worktree: Path) -> None:
    """E11b, stricter: OpenCode reverts the rule and leaves the edit."""
    make_repository(worktree, BASE)
    with shadow.message("m1"):
        make_tree(worktree, {".gitignore": "a.txt\n", "a.txt": "edited"})

    shadow.revert("m1")

    assert_tree(worktree, BASE)


@pytest.mark.parametrize("path", ["a.log", "build/out"])
def test_a_file_that_is_tracked_though_ignored_comes_back(shadow: Shadow, worktree: Path, path: str) -> None:
    """E11: OpenCode drops it from the snapshot."""
    tree: Tree = {".gitignore": "*.log\nbuild/\n", "a.log": "0", "build": {"out": "0"}}
    make_repository(worktree, tree)
    with shadow.message("m1"):
        make_tree(worktree, {path: "1"})
    with shadow.message("m2"):
        (worktree / path).unlink()

    shadow.undo()
    assert (worktree / path).read_text() == "1"
    shadow.undo()

    assert_tree(worktree, tree)


def test_linked_worktrees_are_reverted_each_for_itself(tmp_path: Path) -> None:
    """2a.34 to 2a.36, 2b.61."""
    main_tree = make_repository(tmp_path / "main", {"shared": "0"})
    linked = tmp_path / "linked"
    git("worktree", "add", "--quiet", linked, cwd=main_tree)
    with Shadow(main_tree, settings=SETTINGS) as one, Shadow(linked, settings=SETTINGS) as other:
        with one.message("m1"), other.message("m1"):
            make_tree(main_tree, {"shared": "1", "new": "main"})
            make_tree(linked, {"shared": "2", "new": "linked"})

        other.revert("m1")

        assert_tree(linked, {"shared": "0"})
        assert_tree(main_tree, {"shared": "1", "new": "main"})
        assert (linked / ".git").is_file()
    for shadow in (one, other):
        assert_sound_store(shadow.store)


def test_two_projects_are_reverted_each_for_itself(tmp_path: Path) -> None:
    """2a.33."""
    places = [make_tree(tmp_path / name, {"a": "0"}) for name in ("one", "two")]
    shadows = [Shadow(place, settings=SETTINGS) for place in places]
    for shadow in shadows:
        shadow.begin("m1")
    for place in places:
        make_tree(place, {"a": "1"})
    for shadow in shadows:
        shadow.end("m1")

    shadows[0].undo()

    assert_tree(places[0], {"a": "0"})
    assert_tree(places[1], {"a": "1"})
    for shadow in shadows:
        shadow.close()


def test_restore_writes_old_files_and_deletes_new_ones(shadow: Shadow, repository: Path) -> None:
    """2a.39, stricter: OpenCode's restore never deletes."""
    tree = shadow.track()
    (repository / "a.txt").unlink()
    make_tree(repository, {"new.txt": "N", "b.txt": "changed"})

    outcome = shadow.restore(tree)

    assert_tree(repository, BASE)
    assert (outcome.restored, outcome.deleted) == (["a.txt", "b.txt"], ["new.txt"])


def test_a_file_that_the_message_made_again_is_removed(shadow: Shadow, repository: Path) -> None:
    """2a.40: absent before the second message, whatever was there earlier."""
    with shadow.message("m1"):
        (repository / "a.txt").unlink()
    with shadow.message("m2"):
        make_tree(repository, {"a.txt": "again"})

    shadow.revert("m2")

    assert_tree(repository, {"b.txt": "B\n"})


def test_a_file_that_was_deleted_and_made_anew_comes_back(shadow: Shadow, repository: Path) -> None:
    """2a.41."""
    with shadow.message("m1"):
        (repository / "a.txt").unlink()
        make_tree(repository, {"a.txt": "other", "newfile.txt": "1"})

    shadow.revert("m1")

    assert_tree(repository, BASE)


def test_the_first_patch_that_mentions_a_path_wins(shadow: Shadow, repository: Path) -> None:
    """2a.54."""
    make_tree(repository, {"shared.txt": "v1"})
    for number in (2, 3):
        with shadow.message(f"m{number}"):
            make_tree(repository, {"shared.txt": f"v{number}"})

    shadow.revert("m2")

    assert_tree(repository, {**BASE, "shared.txt": "v1"})


def test_a_directory_that_was_a_file_in_between_is_a_directory_again(
    shadow: Shadow, repository: Path
) -> None:
    """2a.55."""
    make_tree(repository, {"foo": {"bar": "v1"}})
    with shadow.message("m1"):
        replace_tree_beside_git(repository, {**BASE, "a.txt": "v2", "foo": "a file"})
    with shadow.message("m2"):
        (repository / "foo").unlink()

    shadow.revert("m1")

    assert_tree(repository, {**BASE, "foo": {"bar": "v1"}})


def replace_tree_beside_git(top: Path, tree: Tree) -> None:
    """Make a directory contain exactly this, apart from `.git`."""
    aside = top.parent / "aside.git"
    (top / ".git").rename(aside)
    replace_tree(top, tree)
    aside.rename(top / ".git")


def test_more_files_than_a_batch_come_back(shadow: Shadow, repository: Path) -> None:
    """2a.56: OpenCode works in batches of 100."""
    names = [f"f{number:03}" for number in range(101)]
    make_tree(repository, dict.fromkeys(names, "old"))
    with shadow.message("m1"):
        make_tree(repository, {**dict.fromkeys(names, "new"), "new": "1"})

    outcome = shadow.revert("m1")

    assert_tree(repository, {**BASE, **dict.fromkeys(names, "old")})
    assert (outcome.restored, outcome.deleted) == (names, ["new"])


# 2b: preview and restore by path


def test_a_plan_for_one_path_shows_that_path_and_changes_nothing(shadow: Shadow, repository: Path) -> None:
    """2b.58, 2b.63."""
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "two", "added.txt": "1"})
    before = manifest(repository)

    plan = shadow.plan_revert("m1", paths=["a.txt"])

    assert [change.path for change in plan.changes] == ["a.txt"]
    assert manifest(repository) == before


def test_a_revert_of_one_path_leaves_the_others(shadow: Shadow, repository: Path) -> None:
    """2b.59, 2b.62."""
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "two", "added.txt": "1", "b.txt": "two"})

    shadow.revert("m1", paths=["a.txt"])

    assert_tree(repository, {"a.txt": "A\n", "b.txt": "two", "added.txt": "1"})


def test_a_folder_that_is_no_repository_makes_the_round_trip(shadow: Shadow, worktree: Path) -> None:
    """2b.60, issue 38672: OpenCode records nothing, and claims that it reverted."""
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "1"})

    shadow.undo()
    assert_tree(worktree, {"a": "0"})
    shadow.redo()
    assert_tree(worktree, {"a": "1", "b": "1"})


# 2c: revert-compact.test.ts


@pytest.fixture
def dialogue(shadow: Shadow, repository: Path) -> Shadow:
    """Two turns, each a question and an answer; the answers change files."""
    for turn in (1, 2):
        with shadow.message(f"u{turn}", role="user"):
            pass
        with shadow.message(f"a{turn}", role="assistant"):
            make_tree(repository, {"a.txt": f"{turn}", f"f{turn}": "x"})
    return shadow


def states(shadow: Shadow) -> dict[str, str]:
    """Return the state of each message."""
    return {message.id: message.state for message in shadow.messages()}


def test_a_revert_keeps_the_messages_until_the_next_one_begins(dialogue: Shadow, repository: Path) -> None:
    """2c.65, 2c.68, stricter: they are archived then, not deleted."""
    dialogue.revert("u2")
    assert states(dialogue) == {"u1": "active", "a1": "active", "u2": "undone", "a2": "undone"}

    dialogue.snapshot("u3", role="user")

    assert states(dialogue) == {
        "u1": "active",
        "a1": "active",
        "u2": "archived",
        "a2": "archived",
        "u3": "active",
    }
    assert_tree(repository, {"a.txt": "1", "b.txt": "B\n", "f1": "x"})


def test_a_revert_of_the_first_message_leaves_none_in_force(dialogue: Shadow, repository: Path) -> None:
    """2c.66."""
    dialogue.revert("u1")

    assert set(states(dialogue).values()) == {"undone"}
    assert dialogue.status().head is None
    assert_tree(repository, BASE)


def test_a_revert_to_a_step_keeps_the_steps_before_it(shadow: Shadow, repository: Path) -> None:
    """2c.67: a boundary inside a message."""
    with shadow.message("m1"):
        for number in (1, 2, 3):
            with shadow.step(f"tool {number}"):
                make_tree(repository, {"a.txt": f"{number}", f"f{number}": "x"})

    shadow.revert("m1", step="tool 2")

    assert_tree(repository, {"a.txt": "1", "b.txt": "B\n", "f1": "x"})


def test_a_new_message_without_a_revert_archives_nothing(dialogue: Shadow) -> None:
    """2c.70."""
    dialogue.snapshot("u3", role="user")

    assert set(states(dialogue).values()) == {"active"}


def test_the_boundary_moves_through_turns_on_different_files(shadow: Shadow, repository: Path) -> None:
    """2c.71."""
    make_tree(repository, {"a": "a0", "b": "b0", "c": "c0"})
    for turn, name in enumerate("abc", 1):
        with shadow.message(f"turn{turn}"):
            make_tree(repository, {name: f"{name}{turn}"})

    for turn, expected in enumerate((("a0", "b0", "c0"), ("a1", "b0", "c0"), ("a1", "b2", "c0")), 1):
        shadow.revert(f"turn{turn}")
        assert tuple((repository / name).read_text() for name in "abc") == expected
    shadow.redo(None)

    assert tuple((repository / name).read_text() for name in "abc") == ("a1", "b2", "c3")


def test_the_boundary_moves_through_turns_on_the_same_file(shadow: Shadow, repository: Path) -> None:
    """2c.72."""
    make_tree(repository, {"a": "a0"})
    for turn in (1, 2, 3):
        with shadow.message(f"turn{turn}"):
            make_tree(repository, {"a": f"a{turn}"})

    for turn in (1, 2, 3):
        shadow.revert(f"turn{turn}")
        assert (repository / "a").read_text() == f"a{turn - 1}"
    shadow.redo(None)

    assert (repository / "a").read_text() == "a3"


def test_the_outcome_names_real_paths(shadow: Shadow, repository: Path) -> None:
    """2d.74: never /dev/null."""
    with shadow.message("m1"):
        make_tree(repository, {"added.txt": "1"})
        (repository / "a.txt").unlink()

    _, diffs = shadow.show("m1")
    outcome = shadow.revert("m1")

    assert [(diff.path, diff.additions, diff.deletions) for diff in diffs] == [
        ("a.txt", 0, 1),
        ("added.txt", 1, 0),
    ]
    assert (outcome.restored, outcome.deleted) == (["a.txt"], ["added.txt"])


# E cases: data loss


def test_e02_a_redo_of_a_deletion_deletes(shadow: Shadow, repository: Path) -> None:
    with shadow.message("m1"):
        (repository / "a.txt").unlink()
    shadow.undo()
    assert_tree(repository, BASE)

    shadow.redo()

    assert_tree(repository, {"b.txt": "B\n"})


def test_e04_edits_of_the_users_after_the_message_are_not_lost(shadow: Shadow, repository: Path) -> None:
    """OpenCode does not warn, and only a redo before the next prompt restores them."""
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "agent\n"})
    make_tree(repository, {"a.txt": "agent\nuser\n"})

    with pytest.raises(Conflict):
        shadow.undo()
    assert (repository / "a.txt").read_text() == "agent\nuser\n"
    shadow.undo(on_conflict="overwrite")
    shadow.unrevert()

    assert (repository / "a.txt").read_text() == "agent\nuser\n"


def test_e04_overwritten_edits_can_be_read_after_later_messages_too(shadow: Shadow, repository: Path) -> None:
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "agent\n"})
    make_tree(repository, {"a.txt": "agent\nuser\n"})
    outcome = shadow.undo(on_conflict="overwrite")
    with shadow.message("m2"):
        make_tree(repository, {"a.txt": "next\n"})

    shadow.restore(outcome.before)

    assert (repository / "a.txt").read_text() == "agent\nuser\n"


@pytest.mark.parametrize(
    "name",
    [b'qu"ote', b"back\\slash", b"ta\tb", b"new\nline", b" leading", b"trailing ", b"\\303\\251", b'"q"'],
    ids=repr,
)
def test_e05_names_that_git_quotes_are_reverted(shadow: Shadow, repository: Path, name: bytes) -> None:
    text = os.fsdecode(name)
    make_tree(repository, {text: "old", "d": {text: "old"}})
    with shadow.message("m1"):
        make_tree(repository, {text: "new", f"{text}2": "made"})
        (repository / "d" / text).unlink()

    outcome = shadow.revert("m1")

    assert_tree(repository, {**BASE, text: "old", "d": {text: "old"}})
    assert sorted(outcome.restored) == sorted([text, f"d/{text}"])


@pytest.mark.parametrize(
    ("changed", "sibling"),
    [("r/[A]/f", "r/A/f"), ("src[1]/f", "src1/f"), ("a*", "ab"), ("a?c", "abc"), (":(top)f", "f")],
)
def test_e06_a_name_with_glob_characters_reverts_itself_alone(
    shadow: Shadow, repository: Path, changed: str, sibling: str
) -> None:
    for path in (changed, sibling):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("old")
    with shadow.message("m1"):
        (repository / changed).write_text("new")
    (repository / sibling).write_text("user")

    shadow.revert("m1")

    assert ((repository / changed).read_text(), (repository / sibling).read_text()) == ("old", "user")


@pytest.mark.usefixtures("large_packs")
def test_e07_a_lost_tree_is_an_error_and_deletes_nothing(worktree: Path) -> None:
    make_repository(worktree, BASE)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a.txt": "1", "b.txt": "1", "c.txt": "1"})
        for path in (shadow.store / "objects" / "pack").iterdir():
            path.unlink()
        before = manifest(worktree)

        with pytest.raises(StoreDamaged):
            shadow.undo()
    assert manifest(worktree) == before


def test_e07d_a_new_remote_and_a_first_commit_do_not_orphan_the_messages(
    shadow: Shadow, repository: Path
) -> None:
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "1"})
    git("add", "--all", cwd=repository)
    git("commit", "--quiet", "-m", "first", cwd=repository)
    git("remote", "add", "origin", "https://example.org/x.git", cwd=repository)

    with Shadow(repository, settings=SETTINGS) as again:
        again.undo()

    assert_tree(repository, BASE)


def test_e07d_a_worktree_that_was_moved_is_reverted_where_it_is_now(tmp_path: Path) -> None:
    old, new = make_tree(tmp_path / "old", {"a": "0"}), tmp_path / "new"
    with Shadow(old, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(old, {"a": "1", "b": "1"})
    old.rename(new)

    with Shadow.adopt(new, shadow.store, settings=SETTINGS) as adopted:
        adopted.undo()

    assert_tree(new, {"a": "0"})


def test_e07d_another_project_at_the_old_path_is_not_reverted(worktree: Path, tmp_path: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": "1"})
    worktree.rename(tmp_path / "moved")
    make_tree(worktree, {"a": "1", "other project": "1"})

    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert shadow.undo().notes == ["nothing to undo"]
        with pytest.raises(ShadowError):
            shadow.revert("m1")
    assert_tree(worktree, {"a": "1", "other project": "1"})


@pytest.mark.parametrize("harm", ["gc", "remove", "move"])
def test_e07e_e21_what_happens_to_the_users_repository_does_not_matter(
    shadow: Shadow, worktree: Path, tmp_path: Path, harm: str
) -> None:
    make_repository(worktree, {**BASE, "packed": "x" * 5000})
    make_tree(worktree, {"only added": "a blob that only the index knows"})
    git("add", "--all", cwd=worktree)
    git("gc", "--quiet", cwd=worktree)
    before = read_tree(worktree)
    with shadow.message("m1"):
        replace_tree_beside_git(worktree, {"a.txt": "1"})
    if harm == "gc":
        git("rm", "--quiet", "-r", "--force", "--cached", ".", cwd=worktree)
        git("update-ref", "-d", "HEAD", cwd=worktree)
        git("reflog", "expire", "--expire=now", "--all", cwd=worktree)
        git("gc", "--quiet", "--prune=now", cwd=worktree)
    elif harm == "remove":
        shutil.rmtree(worktree / ".git")
    else:
        (worktree / ".git").rename(tmp_path / "moved.git")

    shadow.undo()

    assert read_tree(worktree) == before


def test_e07_git_gc_prune_now_in_the_store_takes_nothing(repository: Path) -> None:
    with Shadow(repository, settings=SETTINGS) as shadow:
        for number in range(10):
            with shadow.message(f"m{number}"):
                make_tree(repository, {"a.txt": f"{number}\n" * 100, f"f{number}": "x"})
        shadow.undo(3)
        git("--git-dir", shadow.store, "gc", "--quiet", "--aggressive", "--prune=now")

        shadow.undo(7)
        assert_tree(repository, BASE)
        shadow.redo(None)

    assert (repository / "a.txt").read_text() == "9\n" * 100
    git("--git-dir", shadow.store, "fsck", "--full", "--strict", "--no-dangling")


def test_e08_stale_lock_files_stop_nothing(shadow: Shadow, repository: Path) -> None:
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "1"})
    for stale in (repository / ".git" / "index.lock", shadow.store / "index.lock"):
        stale.touch(mode=0o600)

    shadow.undo()

    assert_tree(repository, BASE)


@pytest.mark.parametrize("size", [2 * 1024 * 1024 + 1, 3 * 1024 * 1024, 10 * 1024 * 1024])
@pytest.mark.parametrize("fate", ["deleted", "overwritten", "made"])
def test_e09_files_above_two_mebibytes_are_undone(
    shadow: Shadow, repository: Path, size: int, fate: str
) -> None:
    content = b"0123456789abcdef" * (size // 16) + b"x" * (size % 16)
    if fate != "made":
        make_tree(repository, {"big": content})
    before = read_tree(repository)
    with shadow.message("m1"):
        if fate == "deleted":
            (repository / "big").unlink()
        else:
            make_tree(repository, {"big": content[:-1] + b"!"})

    outcome = shadow.undo()

    assert read_tree(repository) == before
    assert outcome.complete


def test_e09_a_file_above_the_limit_is_named_and_never_deleted(shadow: Shadow, repository: Path) -> None:
    with open(repository / "huge", "wb") as huge:
        huge.truncate(10 * 1024 * 1024 + 1)
    with shadow.message("m1") as message:
        make_tree(repository, {"huge": "small", "a.txt": "1"})

    outcome = shadow.undo()

    assert_tree(repository, {**BASE, "huge": "small"})
    assert "huge" in [skip.path for skip in message.skipped]
    assert ([skip.path for skip in outcome.skipped], outcome.complete) == (["huge"], False)


def test_e12_directories_come_and_go_with_undo_and_redo(shadow: Shadow, repository: Path) -> None:
    make_tree(repository, {"empty": {"old": {}}})
    with shadow.message("m1"):
        shutil.rmtree(repository / "empty")
        make_tree(repository, {"made": {"deep": {"f": "1"}, "hollow": {}}})

    shadow.undo()
    assert_tree(repository, {**BASE, "empty": {"old": {}}})
    shadow.redo()

    assert_tree(repository, {**BASE, "made": {"deep": {"f": "1"}, "hollow": {}}})


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o700])
def test_e14_a_private_file_never_comes_back_wider(shadow: Shadow, repository: Path, mode: int) -> None:
    make_tree(repository, {"key": file("secret", mode)})
    with shadow.message("m1"):
        (repository / "key").chmod(0o644)
        (repository / "key").write_text("changed")

    shadow.undo()

    assert_tree(repository, {**BASE, "key": file("secret", mode)})


def test_e14b_an_exec_bit_is_undone(shadow: Shadow, repository: Path) -> None:
    with shadow.message("m1"):
        (repository / "a.txt").chmod(0o755)

    shadow.undo()
    assert_tree(repository, BASE)
    shadow.redo()

    assert_tree(repository, {**BASE, "a.txt": executable("A\n")})


@pytest.mark.parametrize("commit", [False, True], ids=["without a commit", "with a commit"])
def test_e15_a_nested_repository_that_the_message_made_or_changed_is_undone(
    shadow: Shadow, repository: Path, commit: bool
) -> None:
    """OpenCode's redo writes an old tree over the changes of both."""
    nested = make_repository(repository / "nested", {"x": "v1"}, commit=commit)
    make_tree(nested, {"x": "v2 of the user"})
    with shadow.message("m1"):
        make_tree(nested, {"x": "v3 of the agent", "new": "1"})
    before = manifest(nested / ".git")

    shadow.undo()
    assert_tree(nested, {"x": "v2 of the user"})
    shadow.redo()

    assert_tree(nested, {"x": "v3 of the agent", "new": "1"})
    assert manifest(nested / ".git") == before


def test_e15_a_repository_that_the_message_made_loses_its_files_and_keeps_its_git(
    shadow: Shadow, repository: Path
) -> None:
    """`.git` is never covered, so it is never removed."""
    with shadow.message("m1"):
        make_repository(repository / "cloned", {"x": "1", "sub": {"y": "1"}})
    before = manifest(repository / "cloned" / ".git")

    shadow.undo()

    assert_tree(repository, {**BASE, "cloned": {}})
    assert manifest(repository / "cloned" / ".git") == before


def test_e15b_files_of_a_submodule_are_undone(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library", {"lib.c": "0"})
    make_repository(worktree, BASE)
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib", cwd=worktree)
    with shadow.message("m1"):
        make_tree(worktree, {"lib": {"lib.c": "1", "new.c": "1"}})
    pointer = (worktree / "lib" / ".git").read_bytes()

    shadow.undo()

    assert_tree(worktree / "lib", {"lib.c": "0"})
    assert (worktree / "lib" / ".git").read_bytes() == pointer


def test_e15b_one_undo_over_several_repositories(shadow: Shadow, worktree: Path) -> None:
    """Issues 30065, 34398."""
    rules: Tree = {".gitignore": "*.log\n"}
    for name in ("one", "two"):
        make_repository(worktree / name, {"f": "0", **rules})
    with shadow.message("m1"):
        make_tree(worktree, {"one": {"f": "1", "x.log": "1"}, "two": {"f": "1", "new": "1"}, "loose": "1"})

    shadow.undo()

    assert_tree(
        worktree,
        {
            "one": {"f": "0", ".gitignore": "*.log\n", "x.log": "1"},
            "two": {"f": "0", ".gitignore": "*.log\n"},
        },
    )


@pytest.mark.parametrize("order", [1, -1], ids=["directory to link", "link to directory"])
def test_e16_directories_and_links_change_places_and_nothing_freezes(
    shadow: Shadow, repository: Path, tmp_path: Path, order: int
) -> None:
    elsewhere = make_tree(tmp_path / "elsewhere", {"x": "outside", "z": "outside"})
    kinds: list[Tree] = [{"d": {"x": "1", "y": {"z": "2"}}}, {"d": link(str(elsewhere))}]
    first, second = kinds[::order]
    make_tree(repository, first)
    git("add", "--all", cwd=repository)
    with shadow.message("m1"):
        replace_tree_beside_git(repository, {**BASE, **second})

    for _ in range(2):
        shadow.undo()
        assert_tree(repository, {**BASE, **first})
        shadow.redo()
        assert_tree(repository, {**BASE, **second})

    assert_tree(elsewhere, {"x": "outside", "z": "outside"})


@pytest.mark.parametrize(
    "attributes", ["* text\n", "* text=auto eol=lf\n", "* ident\n", "* working-tree-encoding=UTF-16\n"]
)
def test_e17_line_endings_and_keywords_come_back_to_the_byte(
    shadow: Shadow, repository: Path, attributes: str
) -> None:
    content = b"one\r\ntwo\nthree\r$Id: x $\r\n"
    make_tree(repository, {".gitattributes": attributes, "mixed": content, "dos": b"1\r\n2\r\n"})
    git("config", "core.autocrlf", "true", cwd=repository)
    with shadow.message("m1"):
        make_tree(repository, {"mixed": "changed\n", "dos": b"1\n2\n"})

    shadow.undo()
    assert_tree(repository, {**BASE, ".gitattributes": attributes, "mixed": content, "dos": b"1\r\n2\r\n"})
    shadow.redo()

    assert (repository / "dos").read_bytes() == b"1\n2\n"


@pytest.mark.parametrize("order", [1, -1], ids=["file to link", "link to file"])
def test_e18_files_and_links_change_places(shadow: Shadow, repository: Path, order: int) -> None:
    kinds: list[Tree] = [{"x": "a.txt"}, {"x": link("a.txt")}]
    first, second = kinds[::order]
    make_tree(repository, first)
    with shadow.message("m1"):
        (repository / "x").unlink()
        make_tree(repository, second)

    shadow.undo()
    assert_tree(repository, {**BASE, **first})
    shadow.redo()

    assert_tree(repository, {**BASE, **second})


def test_e20_a_repository_without_commits_is_undone(shadow: Shadow, repository: Path) -> None:
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "1", "new": "1"})

    shadow.undo()

    assert_tree(repository, BASE)
    assert subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True).returncode


def test_e22_e23_e27_edits_during_the_message_stay_when_paths_are_named(
    shadow: Shadow, repository: Path
) -> None:
    with Shadow(repository, session="other", settings=SETTINGS) as other:
        shadow.begin("mine")
        other.begin("theirs")
        make_tree(repository, {"a.txt": "mine", "b.txt": "user", "c.txt": "theirs", "d.txt": "user"})
        other.end(paths=["c.txt"])
        shadow.end(paths=["a.txt"])

    shadow.undo()

    assert_tree(repository, {"a.txt": "A\n", "b.txt": "user", "c.txt": "theirs", "d.txt": "user"})


def test_e24_a_fifo_beside_it_all_disturbs_nothing(shadow: Shadow, repository: Path) -> None:
    os.mkfifo(repository / "pipe")
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "1"})

    shadow.undo()

    assert (repository / "a.txt").read_text() == "A\n"
    assert stat.S_ISFIFO((repository / "pipe").lstat().st_mode)


def test_e25_the_users_repository_is_the_same_to_the_byte_after_every_act(
    shadow: Shadow, worktree: Path
) -> None:
    make_repository(worktree, {**BASE, "d": {"x": "0"}})
    make_tree(worktree, {"b.txt": "staged"})
    git("add", "b.txt", cwd=worktree)
    os.utime(worktree / "a.txt")
    before = manifest(worktree / ".git")

    with shadow.message("m1"):
        make_tree(worktree, {"a.txt": "1", "b.txt": "1", "new": "1"})
        (worktree / "d" / "x").unlink()
    shadow.undo()
    shadow.redo()
    shadow.revert("m1", paths=["a.txt"])
    shadow.unrevert()
    shadow.restore("m1^")
    shadow.unrevert()

    assert manifest(worktree / ".git") == before


def test_e28_undo_from_eight_processes_at_once_is_one_after_the_other(
    shadow: Shadow, repository: Path
) -> None:
    for number in range(8):
        with shadow.message(f"m{number}"):
            make_tree(repository, {"a.txt": f"{number}", f"f{number}": "x"})
    program = (
        "from shadowtree import Shadow\n"
        "with Shadow('.', settings={'min_free': 0, 'lock_timeout': 300}) as shadow:\n"
        "    print(*shadow.undo().messages)\n"
    )
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=repository,
            env=surroundings(),
            text=True,
            stdout=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    undone = [process.communicate()[0].strip() for process in crew]

    assert [process.returncode for process in crew] == [0] * 8
    assert sorted(undone) == [f"m{number}" for number in range(8)]
    assert_tree(repository, BASE)


def test_e29_e30_no_hook_runs_on_undo_and_no_filter_changes_a_byte(
    shadow: Shadow, worktree: Path, canary: Path
) -> None:
    make_repository(worktree, {"a.txt": "lower\r\n"})
    make_tree(worktree, {".gitattributes": "* text filter=upper ident\n"})
    git("config", "include.path", os.environ["GIT_CONFIG_GLOBAL"], cwd=worktree)
    before = read_tree(worktree)
    with shadow.message("m1"):
        make_tree(worktree, {"a.txt": "edited\r\n", "c.txt": "c\r\n"})
    after = read_tree(worktree)

    shadow.undo()
    assert read_tree(worktree) == before
    shadow.redo()
    assert read_tree(worktree) == after
    shadow.restore("m1^")

    assert read_tree(worktree) == before


def test_variables_of_git_have_no_effect_on_an_undo(
    shadow: Shadow, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoy = make_repository(tmp_path / "decoy", {"a.txt": "decoy"})
    before = manifest(decoy)
    with shadow.message("m1"):
        make_tree(repository, {"a.txt": "1"})
    with monkeypatch.context() as patch:
        for name, value in {
            "GIT_DIR": decoy / ".git",
            "GIT_WORK_TREE": decoy,
            "GIT_INDEX_FILE": decoy / ".git" / "index",
            "GIT_OBJECT_DIRECTORY": decoy / ".git" / "objects",
        }.items():
            patch.setenv(name, str(value))
        shadow.undo()

    assert_tree(repository, BASE)
    assert manifest(decoy) == before


def test_e31_a_hard_link_elsewhere_is_not_written_through(
    shadow: Shadow, repository: Path, tmp_path: Path
) -> None:
    os.link(repository / "a.txt", tmp_path / "elsewhere")
    with shadow.message("m1"):
        (repository / "a.txt").unlink()
        make_tree(repository, {"a.txt": "new"})
    os.link(repository / "a.txt", tmp_path / "new elsewhere")

    shadow.undo()

    assert (repository / "a.txt").read_text() == "A\n"
    assert (tmp_path / "elsewhere").read_text() == "A\n"
    assert (tmp_path / "new elsewhere").read_text() == "new"


def test_times_of_files_that_were_not_changed_stay(shadow: Shadow, repository: Path) -> None:
    """Issues 25400 and 15391: every file had a new mtime after undo and redo."""
    make_tree(repository, {"d": {"x": "0"}, "e": {"y": "0"}})
    with shadow.message("m1"):
        make_tree(repository, {"d": {"x": "1"}})
    before = manifest(repository)

    shadow.undo()
    shadow.redo()

    after = manifest(repository)
    assert {path for path in before if before[path] != after.get(path)} <= {"d", "d/x"}


def test_a_message_of_a_process_that_was_killed_can_be_undone(shadow: Shadow, repository: Path) -> None:
    """Section 1.4: OpenCode computes the patch when it aborts, but not when it crashes."""

    def work_and_die() -> None:
        with Shadow(repository, settings=SETTINGS) as dying:
            dying.begin("m1")
            make_tree(repository, {"a.txt": "1", "new": "1"})
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work_and_die).signal == signal.SIGKILL

    shadow.undo()

    assert_tree(repository, BASE)


def test_a_tree_of_another_worktree_is_unknown_here(shadow: Shadow, repository: Path, tmp_path: Path) -> None:
    """Issue 35255: it restored a snapshot of another worktree."""
    other_place = make_tree(tmp_path / "other", {"x": "1"})
    with Shadow(other_place, settings=SETTINGS) as other:
        foreign = other.track()
    shadow.track()

    with pytest.raises(UnknownTree):
        shadow.restore(foreign)
    assert_tree(repository, BASE)
