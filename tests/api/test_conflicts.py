"""Conflicts: somebody else's changes are overwritten only on request, and can always be restored."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from shadowtree import Conflict, InvalidInput, Shadow
from tests.api.test_revert import manifest, replace_tree
from tests.support.stores import SETTINGS
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, read_tree

Answer = Literal["keep", "overwrite"]
"""How a user can resolve a conflict."""
Resolution = Literal["abort", "merge"]


@dataclass(frozen=True)
class Case:
    """A message, what somebody else did to its paths, and the path in conflict.

    `calm` is another file that the message changed: it shows whether the rest was done.
    """

    before: Tree
    message: Tree
    then: Tree
    """The worktree after somebody else's change, without `calm`."""
    path: str
    """The path in conflict."""


CASES = {
    "edited": Case({"x": "0"}, {"x": "1"}, {"x": "user"}, "x"),
    "edited, same length": Case({"x": "0"}, {"x": "1"}, {"x": "2"}, "x"),
    "edited, a new file": Case({}, {"x": "1"}, {"x": "user"}, "x"),
    "deleted": Case({"x": "0"}, {"x": "1"}, {}, "x"),
    "made again": Case({"x": "0"}, {}, {"x": "user"}, "x"),
    "bits alone": Case({"x": "0"}, {"x": "1"}, {"x": file("1", 0o600)}, "x"),
    "exec bit alone": Case({"x": "0"}, {"x": "1"}, {"x": executable("1")}, "x"),
    "link instead": Case({"x": "0"}, {"x": "1"}, {"x": link("elsewhere")}, "x"),
    "link turned": Case({"x": link("a")}, {"x": link("b")}, {"x": link("c")}, "x"),
    "file instead of link": Case({"x": link("a")}, {"x": link("b")}, {"x": "b"}, "x"),
    "deep": Case({"d": {"e": {"x": "0"}}}, {"d": {"e": {"x": "1"}}}, {"d": {"e": {"x": "user"}}}, "d/e/x"),
}


def play(shadow: Shadow, worktree: Path, case: Case) -> None:
    """Record the message of a case, then make somebody else's change."""
    make_tree(worktree, {**case.before, "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {**case.message, "calm": "1"})
    replace_tree(worktree, {**case.then, "calm": "1"})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_abort_touches_nothing_and_tells_each_path_why_and_what_to_do(
    shadow: Shadow, worktree: Path, case: Case
) -> None:
    play(shadow, worktree, case)
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")

    assert manifest(worktree) == before
    (conflict,) = error.value.conflicts
    assert conflict.path == case.path
    assert conflict.reason
    assert conflict.advice
    assert error.value.outcome.conflicts == error.value.conflicts
    assert (error.value.outcome.restored, error.value.outcome.deleted) == ([], [])
    assert not error.value.outcome.complete


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_abort_leaves_the_timeline_as_it_was(shadow: Shadow, worktree: Path, case: Case) -> None:
    play(shadow, worktree, case)

    with pytest.raises(Conflict):
        shadow.revert("m1")

    assert (shadow.status().head, shadow.status().undone) == ("m1", [])
    assert shadow.unrevert().messages == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_keep_leaves_those_paths_and_does_the_rest(shadow: Shadow, worktree: Path, case: Case) -> None:
    play(shadow, worktree, case)

    outcome = shadow.revert("m1", on_conflict="keep")

    assert_tree(worktree, {**case.then, "calm": "0"})
    assert (outcome.kept, outcome.restored, outcome.deleted) == ([case.path], ["calm"], [])
    assert outcome.complete
    assert (shadow.status().head, shadow.status().undone) == (None, ["m1"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_overwrite_takes_the_target_state_and_unrevert_brings_the_work_back(
    shadow: Shadow, worktree: Path, case: Case
) -> None:
    play(shadow, worktree, case)

    outcome = shadow.revert("m1", on_conflict="overwrite")
    assert_tree(worktree, {**case.before, "calm": "0"})
    assert case.path in [*outcome.restored, *outcome.deleted]
    assert (outcome.kept, outcome.complete) == ([], True)

    shadow.unrevert()
    assert_tree(worktree, {**case.then, "calm": "1"})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_unrevert_after_keep_brings_back_what_was_there(shadow: Shadow, worktree: Path, case: Case) -> None:
    play(shadow, worktree, case)
    shadow.revert("m1", on_conflict="keep")

    shadow.unrevert()

    assert_tree(worktree, {**case.then, "calm": "1"})
    assert shadow.status().head == "m1"


def test_every_conflict_is_listed(shadow: Shadow, worktree: Path) -> None:
    files = [f"f{number}" for number in range(5)]
    make_tree(worktree, dict.fromkeys(files, "0"))
    with shadow.message("m1"):
        make_tree(worktree, dict.fromkeys(files, "1"))
    make_tree(worktree, dict.fromkeys(files[1:4], "user"))

    with pytest.raises(Conflict) as error:
        shadow.undo()

    assert [conflict.path for conflict in error.value.conflicts] == ["f1", "f2", "f3"]


@pytest.mark.parametrize("on_conflict", ["", "merge!", "ABORT", None])
def test_an_answer_that_is_none_is_refused(shadow: Shadow, worktree: Path, on_conflict: str) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})

    with pytest.raises(InvalidInput):
        shadow.revert("m1", on_conflict=on_conflict)  # type: ignore[arg-type]  # what a caller may pass
    assert_tree(worktree, {"a": "1"})


# Not a conflict

CALM: dict[str, tuple[Tree, Tree, Tree]] = {
    "put back by hand": ({"x": "0"}, {"x": "1"}, {"x": "0"}),
    "deleted by hand": ({}, {"x": "1"}, {}),
    "written again by hand": ({"x": "0"}, {}, {"x": "0"}),
    "link put back by hand": ({"x": link("a")}, {"x": "1"}, {"x": link("a")}),
    "directory put back by hand": ({"x": {"y": "0"}}, {"x": "1"}, {"x": {"y": "0"}}),
    "bits put back by hand": ({"x": file("0", 0o600)}, {"x": "0"}, {"x": file("0", 0o600)}),
    "empty directory put back by hand": ({"x": {}}, {}, {"x": {}}),
    "empty directory removed by hand": ({}, {"x": {}}, {}),
}


@pytest.mark.parametrize(("before", "message", "then"), CALM.values(), ids=CALM)
def test_a_state_that_equals_the_target_is_no_conflict(
    shadow: Shadow, worktree: Path, before: Tree, message: Tree, then: Tree
) -> None:
    make_tree(worktree, {**before, "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {**message, "calm": "1"})
    replace_tree(worktree, {**then, "calm": "1"})

    outcome = shadow.revert("m1")

    assert_tree(worktree, {**before, "calm": "0"})
    assert (outcome.restored, outcome.deleted, outcome.complete) == (["calm"], [], True)


def test_a_state_that_equals_the_target_is_not_written(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1", "calm": "1"})
    make_tree(worktree, {"x": "0"})
    before = manifest(worktree)["x"]

    shadow.revert("m1")

    assert manifest(worktree)["x"] == before


def test_a_save_without_a_change_is_no_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    os.replace(shutil.copy(worktree / "x", worktree / "y"), worktree / "x")

    shadow.revert("m1")

    assert_tree(worktree, {"x": "0"})


def test_edits_of_other_files_are_no_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0", "mine": "0", "d": {"y": "0", "mine": "0"}})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1", "d": {"y": "1"}})
    make_tree(worktree, {"mine": "user", "d": {"mine": "user", "new": "user"}})

    shadow.revert("m1")

    assert_tree(worktree, {"x": "0", "mine": "user", "d": {"y": "0", "mine": "user", "new": "user"}})


# Edited between two messages


@pytest.fixture
def edited_between(shadow: Shadow, worktree: Path) -> Shadow:
    """Two messages that changed a file, and the user's edit between them."""
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1", "calm": "1"})
    make_tree(worktree, {"x": "user"})
    with shadow.message("m2"):
        make_tree(worktree, {"x": "2"})
    return shadow


def test_an_edit_between_two_messages_is_a_conflict(edited_between: Shadow, worktree: Path) -> None:
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        edited_between.revert("m1")

    assert [conflict.path for conflict in error.value.conflicts] == ["x"]
    assert manifest(worktree) == before


def test_an_edit_between_is_no_conflict_when_only_the_later_message_goes(
    edited_between: Shadow, worktree: Path
) -> None:
    edited_between.revert("m2")

    assert_tree(worktree, {"x": "user", "calm": "1"})


def test_an_edit_between_is_a_conflict_too_when_the_user_undid_the_later_message_by_hand(
    edited_between: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "user"})
    edited_between.revert("m2")

    with pytest.raises(Conflict) as error:
        edited_between.revert("m1")

    assert [conflict.path for conflict in error.value.conflicts] == ["x"]
    assert_tree(worktree, {"x": "user", "calm": "1"})


@pytest.mark.parametrize(("on_conflict", "x"), [("keep", "2"), ("overwrite", "0")])
def test_an_edit_between_can_be_kept_or_overwritten_and_comes_back(
    edited_between: Shadow, worktree: Path, on_conflict: Answer, x: str
) -> None:
    edited_between.revert("m1", on_conflict=on_conflict)
    assert_tree(worktree, {"x": x, "calm": "0"})

    edited_between.unrevert()
    assert_tree(worktree, {"x": "2", "calm": "1"})


def test_the_users_own_text_between_two_messages_is_not_lost_by_overwrite(
    edited_between: Shadow, worktree: Path
) -> None:
    edited_between.revert("m1", on_conflict="overwrite")

    edited_between.restore("m2^")

    assert (worktree / "x").read_text() == "user"


def test_a_deletion_between_two_messages_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    (worktree / "x").unlink()
    with shadow.message("m2"):
        make_tree(worktree, {"x": "2"})

    with pytest.raises(Conflict):
        shadow.revert("m1")
    shadow.revert("m2")
    assert_tree(worktree, {})


# Another session


@pytest.fixture
def other(worktree: Path) -> Iterator[Shadow]:
    """Another session on the same worktree."""
    with Shadow(worktree, session="other", settings=SETTINGS) as other:
        yield other


@pytest.fixture
def crossed(shadow: Shadow, other: Shadow, worktree: Path) -> Shadow:
    """A message of this session, and a later one of another session on one of the same paths."""
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("mine"):
        make_tree(worktree, {"x": "1", "calm": "1"})
    with other.message("theirs"):
        make_tree(worktree, {"x": "2"})
    return shadow


def test_a_later_message_of_another_session_is_a_conflict(crossed: Shadow, worktree: Path) -> None:
    """Issue 33940 of OpenCode: undo in one chat undoes the other."""
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        crossed.undo()

    assert [conflict.path for conflict in error.value.conflicts] == ["x"]
    assert "other" in error.value.conflicts[0].reason
    assert manifest(worktree) == before


@pytest.mark.parametrize(("on_conflict", "x"), [("keep", "2"), ("overwrite", "0")])
def test_the_work_of_another_session_can_be_kept_or_overwritten_and_comes_back(
    crossed: Shadow, worktree: Path, on_conflict: Answer, x: str
) -> None:
    crossed.undo(on_conflict=on_conflict)
    assert_tree(worktree, {"x": x, "calm": "0"})

    crossed.unrevert()
    assert_tree(worktree, {"x": "2", "calm": "1"})


def test_the_later_session_can_undo_without_a_conflict(
    crossed: Shadow, other: Shadow, worktree: Path
) -> None:
    other.undo()

    assert_tree(worktree, {"x": "1", "calm": "1"})


def test_a_message_of_another_session_that_is_undone_is_no_conflict(
    crossed: Shadow, other: Shadow, worktree: Path
) -> None:
    other.undo()

    crossed.undo()

    assert_tree(worktree, {"x": "0", "calm": "0"})


def test_a_directory_that_another_session_saw_too_is_no_conflict_when_its_message_is_taken_out(
    shadow: Shadow, worktree: Path
) -> None:
    other = shadow.for_session("other")
    shadow.wrap()
    other.snapshot("o1")
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"x": "x"}})
    make_tree(worktree, {"d": {"x": "x", "y": "y"}})
    other.snapshot("o2")

    with pytest.raises(Conflict) as caught:
        shadow.revert("m1", only=True)
    shadow.revert("m1", only=True, on_conflict="overwrite")

    assert [conflict.path for conflict in caught.value.conflicts] == ["d/x"]
    assert_tree(worktree, {"d": {"y": "y"}})


def test_an_earlier_message_of_another_session_is_no_conflict(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    with other.message("theirs"):
        make_tree(worktree, {"x": "1"})
    with shadow.message("mine"):
        make_tree(worktree, {"x": "2"})

    shadow.undo()

    assert_tree(worktree, {"x": "1"})


def test_a_message_of_another_session_between_two_of_ours_is_no_conflict_where_only_the_later_one_wrote(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "0", "y": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    with other.message("theirs"):
        make_tree(worktree, {"y": "theirs"})
    with shadow.message("m2"):
        make_tree(worktree, {"y": "2"})

    shadow.undo(2)

    assert_tree(worktree, {"x": "0", "y": "theirs"})


def test_a_later_message_of_another_session_on_other_paths_is_no_conflict(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    with shadow.message("mine"):
        make_tree(worktree, {"x": "1"})
    with other.message("theirs"):
        make_tree(worktree, {"y": "1"})

    shadow.undo()

    assert_tree(worktree, {"y": "1"})


def test_a_later_message_of_another_session_is_a_conflict_though_it_came_back_to_our_bytes(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    """The other session relies on what is there now, whoever wrote it first."""
    make_tree(worktree, {"x": "0"})
    with shadow.message("mine"):
        make_tree(worktree, {"x": "1"})
    with other.message("theirs"):
        make_tree(worktree, {"x": "2"})
    with other.message("theirs too"):
        make_tree(worktree, {"x": "1"})

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"x": "1"})


def test_a_revert_by_another_session_is_a_conflict_for_what_it_took_away(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    """Our file builds on theirs; then they reverted theirs with overwrite."""
    make_tree(worktree, {"x": "0"})
    with other.message("theirs"):
        make_tree(worktree, {"x": "1"})
    with shadow.message("mine"):
        make_tree(worktree, {"x": "2"})
    other.undo(on_conflict="overwrite")
    assert_tree(worktree, {"x": "0"})

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"x": "0"})


def test_what_two_open_messages_of_two_sessions_saw_change_is_a_conflict(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    """The change is among those of both messages, so nothing shows whose it is."""
    make_tree(worktree, {"x": "0"})
    shadow.begin("mine")
    other.begin("theirs")
    make_tree(worktree, {"x": "1"})
    other.end()
    shadow.end()

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"x": "1"})


def test_a_message_of_another_session_between_two_snapshots_is_a_conflict(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    """An agent that only calls `snapshot` records the changes of others too."""
    make_tree(worktree, {"y": "0"})
    shadow.snapshot("m1")
    with other.message("theirs"):
        make_tree(worktree, {"y": "1"})
    make_tree(worktree, {"z": "1"})
    shadow.snapshot("m2")

    with pytest.raises(Conflict) as error:
        shadow.undo()
    assert [conflict.path for conflict in error.value.conflicts] == ["y"]
    assert_tree(worktree, {"y": "1", "z": "1"})


def test_two_sessions_undo_and_redo_on_one_path_in_the_order_in_which_they_wrote(
    shadow: Shadow, other: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("mine"):
        make_tree(worktree, {"x": "1"})
    with other.message("theirs"):
        make_tree(worktree, {"x": "2"})
    other.undo()
    shadow.undo()

    with pytest.raises(Conflict):
        other.redo()
    shadow.redo()
    other.redo()
    assert_tree(worktree, {"x": "2"})
    with pytest.raises(Conflict):
        shadow.undo()


# Other files in the way


def assert_nothing_is_lost(shadow: Shadow, worktree: Path, act: Callable[[], object]) -> None:
    """Assert that the act stops before it touches anything, or that unrevert restores everything."""
    before, exact = read_tree(worktree), manifest(worktree)
    try:
        act()
    except Conflict:
        assert manifest(worktree) == exact
    else:
        shadow.unrevert()
        assert read_tree(worktree) == before


def test_a_directory_of_the_users_where_a_file_must_come_back_is_a_conflict(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"calm": "1"})
    make_tree(worktree, {"x": {"mine": "user", "deep": {"er": "user"}}})
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")
    assert error.value.conflicts[0].path.split("/")[0] == "x"
    assert manifest(worktree) == before

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1", on_conflict="overwrite"))
    shadow.revert("m1", on_conflict="keep")
    assert_tree(worktree, {"x": {"mine": "user", "deep": {"er": "user"}}, "calm": "0"})


def test_an_empty_directory_of_the_users_where_a_file_must_come_back_is_a_conflict_or_comes_back(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        (worktree / "x").unlink()
    make_tree(worktree, {"x": {}})

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1"))


@pytest.mark.parametrize("mine", ["mine", "deep/mine"])
def test_a_foreign_file_in_a_directory_that_must_become_a_file_is_a_conflict(
    shadow: Shadow, worktree: Path, mine: str
) -> None:
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"x": {"theirs": "1", "deep": {"t": "1"}}, "calm": "1"})
    make_tree(worktree / "x", {mine: "user"})
    exact = manifest(worktree)

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")
    assert {conflict.path.split("/")[0] for conflict in error.value.conflicts} == {"x"}
    assert manifest(worktree) == exact

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1", on_conflict="overwrite"))


def test_keep_leaves_a_foreign_file_in_a_directory_that_should_become_a_file(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"x": {"theirs": "1"}, "calm": "1"})
    make_tree(worktree / "x", {"mine": "user"})

    outcome = shadow.revert("m1", on_conflict="keep")

    assert (worktree / "x" / "mine").read_text() == "user"
    assert (worktree / "calm").read_text() == "0"
    assert outcome.kept


@pytest.mark.parametrize("target", ["file", "link"])
@pytest.mark.parametrize("mine", ["x.log", "node_modules/m", "deep/x.log"])
def test_something_uncovered_in_a_directory_that_must_go_is_never_removed(
    shadow: Shadow, worktree: Path, target: str, mine: str
) -> None:
    """P0: content that is not in the store is the only copy, so not even overwrite may remove it."""
    rest: Tree = {".gitignore": "*.log\n"}
    make_tree(worktree, {**rest, "x": "0" if target == "file" else link("0"), "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {**rest, "x": {"theirs": "1"}, "calm": "1"})
    (worktree / "x" / mine).parent.mkdir(exist_ok=True)
    make_tree(worktree / "x", {mine: "only copy"})
    before = manifest(worktree)

    for on_conflict in ("abort", "overwrite"):
        with pytest.raises(Conflict):
            shadow.revert("m1", on_conflict=on_conflict)
        assert manifest(worktree) == before
    shadow.revert("m1", on_conflict="keep")

    assert (worktree / "x" / mine).read_text() == "only copy"
    assert (worktree / "calm").read_text() == "0"


def test_an_ignored_file_where_a_file_must_come_back_is_a_conflict_and_never_lost(
    shadow: Shadow, worktree: Path
) -> None:
    """The user began to ignore the path that the message had deleted, and created it again."""
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"calm": "1"})
    make_tree(worktree, {".gitignore": "x\n", "x": "only copy"})
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")
    assert [conflict.path for conflict in error.value.conflicts] == ["x"]
    assert manifest(worktree) == before

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1", on_conflict="overwrite"))
    shadow.revert("m1", on_conflict="keep")
    assert_tree(worktree, {".gitignore": "x\n", "x": "only copy", "calm": "0"})


@pytest.mark.parametrize("act", ["revert", "restore"])
def test_what_an_overwrite_replaced_where_no_rule_covers_it_is_kept_in_the_store(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    """No tree holds it, so the act itself must make `gc` keep it."""
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        (worktree / "x").unlink()
    make_tree(worktree, {".gitignore": "x\n", "x": "only copy"})

    if act == "revert":
        shadow.revert("m1", on_conflict="overwrite")
    else:
        shadow.restore("m1^", on_conflict="overwrite")
    assert (worktree / "x").read_text() == "0"
    shadow.gc()
    assert shadow.check(read_data=True).problems == []
    shadow.unrevert()

    assert_tree(worktree, {".gitignore": "x\n", "x": "only copy"})


def test_a_file_that_the_user_ignores_now_is_a_conflict_and_never_lost(
    shadow: Shadow, worktree: Path
) -> None:
    """The message created it; since then no snapshot covers it."""
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1", "calm": "1"})
    make_tree(worktree, {".gitignore": "x\n", "x": "user, only copy"})
    before = manifest(worktree)

    with pytest.raises(Conflict):
        shadow.revert("m1")
    assert manifest(worktree) == before

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1", on_conflict="overwrite"))


def test_a_file_where_a_directory_must_come_back_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"d": {"x": "0", "y": {"z": "0"}}, "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"calm": "1"})
    make_tree(worktree, {"d": "user"})
    before = manifest(worktree)

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")
    assert {conflict.path.split("/")[0] for conflict in error.value.conflicts} == {"d"}
    assert manifest(worktree) == before

    assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1", on_conflict="overwrite"))
    shadow.revert("m1", on_conflict="keep")
    assert_tree(worktree, {"d": "user", "calm": "0"})


@pytest.mark.parametrize("kind", ["modified", "deleted", "added"])
@pytest.mark.parametrize("where", ["outside", "loop", "inside", ".git/hooks"])
def test_a_directory_that_the_user_replaced_by_a_link_is_a_conflict_and_nobody_writes_through_it(
    shadow: Shadow, worktree: Path, tmp_path: Path, kind: str, where: str
) -> None:
    """F41, E16."""
    outside = make_tree(tmp_path / "outside", {"x": "1" if kind == "added" else "outside"})
    make_tree(worktree, {".git": {"hooks": {"x": "hook"}}, "inside": {"x": "inside"}})
    targets = {"outside": str(outside), "loop": "d", "inside": "inside", ".git/hooks": ".git/hooks"}
    make_tree(worktree, {"d": {} if kind == "added" else {"x": "0"}, "calm": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"calm": "1"})
        if kind == "deleted":
            (worktree / "d" / "x").unlink()
        else:
            make_tree(worktree, {"d": {"x": "1"}})
    (worktree / "d").rename(tmp_path / "d")
    make_tree(worktree, {"d": link(targets[where])})
    before, outside_before = manifest(worktree), manifest(outside)

    if kind == "added":
        # The message's file was removed with the directory; the new link may be a conflict.
        assert_nothing_is_lost(shadow, worktree, lambda: shadow.revert("m1"))
    else:
        with pytest.raises(Conflict) as error:
            shadow.revert("m1")
        assert {conflict.path.split("/")[0] for conflict in error.value.conflicts} == {"d"}
        assert manifest(worktree) == before

    assert manifest(outside) == outside_before
    assert (worktree / ".git" / "hooks" / "x").read_text() == "hook"
    assert (worktree / "inside" / "x").read_text() == "inside"
    assert os.readlink(worktree / "d") == targets[where]


@pytest.mark.parametrize("on_conflict", ["keep", "overwrite"])
def test_no_answer_to_the_conflict_writes_through_a_link(
    shadow: Shadow, worktree: Path, tmp_path: Path, on_conflict: Answer
) -> None:
    outside = make_tree(tmp_path / "outside", {"x": "outside", "new": "outside"})
    make_tree(worktree, {"d": {"x": "0"}, "calm": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"d": {"x": "1", "new": "1"}, "calm": "1"})
    (worktree / "d").rename(tmp_path / "d")
    make_tree(worktree, {"d": link(str(outside))})
    before = manifest(outside)

    def act() -> None:
        shadow.revert("m1", on_conflict=on_conflict)

    assert_nothing_is_lost(shadow, worktree, act)
    assert manifest(outside) == before


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, stat.S_IFSOCK | 0o644)])
def test_what_is_neither_file_nor_link_is_never_removed(
    shadow: Shadow, worktree: Path, make: Callable[[Path], None]
) -> None:
    """F22, F64: a FIFO or a socket where a file must come back."""
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"calm": "1"})
    make(worktree / "x")
    kind = stat.S_IFMT((worktree / "x").lstat().st_mode)

    for on_conflict in ("abort", "overwrite"):
        with pytest.raises(Conflict) as error:
            shadow.revert("m1", on_conflict=on_conflict)
        assert [conflict.path for conflict in error.value.conflicts] == ["x"]
        assert (worktree / "calm").read_text() == "1"
    outcome = shadow.revert("m1", on_conflict="keep")

    assert stat.S_IFMT((worktree / "x").lstat().st_mode) == kind
    assert (worktree / "calm").read_text() == "0"
    assert outcome.kept == ["x"]


def test_a_fifo_in_place_of_what_the_message_made_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    (worktree / "x").unlink()
    os.mkfifo(worktree / "x")

    with pytest.raises(Conflict):
        shadow.revert("m1")
    assert stat.S_ISFIFO((worktree / "x").lstat().st_mode)


def test_a_fifo_in_a_directory_that_must_become_a_file_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"x": {"theirs": "1"}})
    os.mkfifo(worktree / "x" / "pipe")

    with pytest.raises(Conflict):
        shadow.revert("m1")
    assert stat.S_ISFIFO((worktree / "x" / "pipe").lstat().st_mode)
    assert (worktree / "x" / "theirs").read_text() == "1"


def test_a_repository_in_a_directory_that_must_become_a_file_is_never_removed(
    shadow: Shadow, worktree: Path
) -> None:
    """F46: `.git` is covered nowhere, so it is always the only copy."""
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"x": {"theirs": "1", ".git": {"HEAD": "ref: refs/heads/main\n"}}})
    before = manifest(worktree)

    for on_conflict in ("abort", "overwrite"):
        with pytest.raises(Conflict):
            shadow.revert("m1", on_conflict=on_conflict)
        assert manifest(worktree) == before


def test_a_file_that_the_user_ignores_now_and_left_as_it_was_is_no_conflict(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"x.log": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x.log": "1"})
    make_tree(worktree, {".gitignore": "*.log\n"})

    shadow.undo()
    assert_tree(worktree, {".gitignore": "*.log\n", "x.log": "0"})
    shadow.unrevert()

    assert_tree(worktree, {".gitignore": "*.log\n", "x.log": "1"})


def test_a_file_of_nobodys_where_a_directory_must_come_back_is_a_conflict(
    shadow: Shadow, worktree: Path
) -> None:
    """Only half of the change from a directory to a file belongs to the agent."""
    make_tree(worktree, {"x": {"a": "0", "b": "0"}})
    shadow.begin("m1")
    replace_tree(worktree, {"x": "file"})
    shadow.end(paths=["x/a"])

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"x": "file"})
    assert_nothing_is_lost(shadow, worktree, lambda: shadow.undo(on_conflict="overwrite"))


def test_advice_never_names_an_answer_that_does_not_help(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        replace_tree(worktree, {"x": {"theirs": "1"}})
    make_tree(worktree / "x", {"mine": "user"})

    with pytest.raises(Conflict) as error:
        shadow.revert("m1", on_conflict="overwrite")
    assert "overwrite" not in error.value.conflicts[0].advice


# Conflicts of unrevert, undo and redo


def test_an_edit_after_a_revert_is_a_conflict_for_unrevert(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    shadow.revert("m1")
    make_tree(worktree, {"x": "user"})

    for act in (shadow.unrevert, shadow.redo):
        with pytest.raises(Conflict) as error:
            act()
        assert [conflict.path for conflict in error.value.conflicts] == ["x"]

    assert_tree(worktree, {"x": "user"})


@pytest.mark.parametrize("act", ["unrevert", "redo"])
@pytest.mark.parametrize(("on_conflict", "x"), [("keep", "user"), ("overwrite", "1")])
def test_going_forward_over_an_edit_can_keep_or_overwrite(
    shadow: Shadow, worktree: Path, act: str, on_conflict: Answer, x: str
) -> None:
    make_tree(worktree, {"x": "0", "calm": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1", "calm": "1"})
    shadow.revert("m1")
    make_tree(worktree, {"x": "user"})

    getattr(shadow, act)(on_conflict=on_conflict)

    assert_tree(worktree, {"x": x, "calm": "1"})
    assert shadow.status().head == "m1"


def test_work_that_a_redo_overwrote_comes_back_with_unrevert(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    shadow.undo()
    make_tree(worktree, {"x": "user"})
    shadow.redo(on_conflict="overwrite")

    shadow.unrevert()

    assert_tree(worktree, {"x": "user"})
    assert shadow.status().undone == ["m1"]


def test_work_that_an_unrevert_overwrote_is_still_in_the_store(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    shadow.undo()
    make_tree(worktree, {"x": "user"})

    outcome = shadow.unrevert(on_conflict="overwrite")
    shadow.restore(outcome.before)

    assert_tree(worktree, {"x": "user"})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_reason_is_the_same_after_an_undo_that_was_reversed(
    shadow: Shadow, worktree: Path, case: Case
) -> None:
    play(shadow, worktree, case)
    with pytest.raises(Conflict) as first:
        shadow.undo()
    shadow.undo(on_conflict="overwrite")
    shadow.unrevert()

    with pytest.raises(Conflict) as second:
        shadow.undo()

    told, _, _ = first.value.conflicts[0].reason.partition(" after ")
    assert second.value.conflicts[0].reason == f"{told} between message 'm1' and the last undo"


def test_a_conflict_says_how_to_get_back_what_an_overwrite_takes(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    make_tree(worktree, {"x": "user"})

    with pytest.raises(Conflict) as error:
        shadow.revert("m1")

    advice = error.value.conflicts[0].advice
    assert "keep" in advice
    assert "overwrite" in advice


def test_a_conflict_is_found_though_time_and_size_are_the_same(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"x": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x": "1"})
    stamp = (worktree / "x").stat()
    (worktree / "x").write_text("2")
    os.utime(worktree / "x", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    with pytest.raises(Conflict):
        shadow.revert("m1")
    assert_tree(worktree, {"x": "2"})


def test_an_edit_made_while_no_rule_covered_it_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    with shadow.message("m2"):
        make_tree(worktree, {".gitignore": "a\n"})
    make_tree(worktree, {"a": "the user's"})
    with shadow.message("m3"):
        (worktree / ".gitignore").unlink()

    with pytest.raises(Conflict):
        shadow.undo(3)
    assert_tree(worktree, {"a": "the user's"})


def test_an_edit_that_an_act_replaced_is_not_in_the_way_for_ever(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "the user's"})
    shadow.undo(on_conflict="overwrite")
    shadow.redo()

    shadow.undo()

    assert_tree(worktree, {"a": "0"})


def test_an_edit_that_unrevert_brought_back_is_in_the_way_again(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"a": "the user's"})
    shadow.undo(on_conflict="overwrite")
    shadow.unrevert()

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"a": "the user's"})


# An edit that the user undid by hand


LINES = [f"line {number}" for number in range(12)]


def write_lines(worktree: Path, lines: list[str]) -> None:
    make_tree(worktree, {"t": "\n".join(lines) + "\n"})


@pytest.fixture
def brought_back(shadow: Shadow, worktree: Path) -> list[str]:
    """The user deleted a line between two messages, and added it again after them; return the text."""
    lines = list(LINES)
    write_lines(worktree, lines)
    with shadow.message("m1"):
        lines[1] = "of m1"
        write_lines(worktree, lines)
    without = [line for line in lines if line != "line 5"]
    write_lines(worktree, without)
    with shadow.message("m2"):
        without[-1] = lines[-1] = "of m2"
        write_lines(worktree, without)
    write_lines(worktree, lines)
    return lines


@pytest.mark.parametrize("is_undone_by_hand", [False, True], ids=["merged", "by hand"])
def test_redo_does_not_forget_a_line_that_the_user_added_again(
    shadow: Shadow, worktree: Path, brought_back: list[str], is_undone_by_hand: bool
) -> None:
    if is_undone_by_hand:
        write_lines(worktree, LINES)
    shadow.undo(2, on_conflict="merge")
    assert (worktree / "t").read_text().splitlines() == LINES

    with pytest.raises(Conflict):
        shadow.redo(2)
    outcome = shadow.redo(2, on_conflict="merge")

    assert outcome.merged == ["t"]
    assert (worktree / "t").read_text().splitlines() == brought_back


def test_redo_step_by_step_does_not_forget_it_either(
    shadow: Shadow, worktree: Path, brought_back: list[str]
) -> None:
    shadow.undo(2, on_conflict="merge")
    for _ in range(2):
        with pytest.raises(Conflict):
            shadow.redo()
        shadow.redo(on_conflict="merge")

    assert (worktree / "t").read_text().splitlines() == brought_back


def test_a_switch_does_not_forget_a_line_that_the_user_added_again(
    shadow: Shadow, worktree: Path, brought_back: list[str]
) -> None:
    shadow.undo(2, on_conflict="merge")
    with shadow.message("m3"):
        write_lines(worktree, [*LINES, "of m3"])

    with pytest.raises(Conflict):
        shadow.switch("m2")
    shadow.switch("m2", on_conflict="merge")

    assert (worktree / "t").read_text().splitlines() == brought_back


def test_going_further_back_loses_nothing_of_an_edit_that_was_taken_back(
    shadow: Shadow, worktree: Path, brought_back: list[str]
) -> None:
    """So it is no conflict."""
    assert "line 5" in brought_back
    shadow.undo(2, on_conflict="merge")
    shadow.redo(on_conflict="merge")

    assert shadow.undo().conflicts == []
    assert (worktree / "t").read_text().splitlines() == LINES


@pytest.mark.usefixtures("brought_back")
def test_whoever_overwrote_the_line_gets_the_messages_as_they_were(shadow: Shadow, worktree: Path) -> None:
    shadow.undo(2, on_conflict="overwrite")
    shadow.redo(2)

    assert "line 5" not in (worktree / "t").read_text().splitlines()


# Changes that another session undid since


@pytest.fixture
def theirs_undone(shadow: Shadow, worktree: Path) -> Callable[[Callable[[], object]], None]:
    """One of their messages between two of ours; an act removed its change, and then they undid it."""

    def play(act: Callable[[], object]) -> None:
        lines = list(LINES)
        write_lines(worktree, lines)
        other = shadow.for_session("other")
        for session, id, place in ((shadow, "m1", 1), (other, "theirs", 5), (shadow, "m2", 9)):
            with session.message(id):
                lines[place] = f"of {id}"
                write_lines(worktree, lines)
        act()
        other.undo(on_conflict="merge")

    return play


def revert_path(shadow: Shadow) -> None:
    shadow.revert("m1", paths=["t"], on_conflict="overwrite")


def undo_both(shadow: Shadow) -> None:
    shadow.undo(2, on_conflict="overwrite")


BRINGS_BACK: dict[str, tuple[Callable[[Shadow], None], Callable[[Shadow, Resolution], object], bool]] = {
    "a path, revert": (revert_path, lambda shadow, how: shadow.revert("m2", on_conflict=how), True),
    "a path, switch": (revert_path, lambda shadow, how: shadow.switch("m1", on_conflict=how), False),
    "a path, unrevert": (revert_path, lambda shadow, how: shadow.unrevert(on_conflict=how), False),
    "undo, redo": (undo_both, lambda shadow, how: shadow.redo(2, on_conflict=how), True),
    "undo, unrevert": (undo_both, lambda shadow, how: shadow.unrevert(on_conflict=how), False),
}
"""The act that removes it, the act that would restore it, and whether the rest can be merged."""


@pytest.mark.parametrize(("take_away", "act", "can_merge"), BRINGS_BACK.values(), ids=BRINGS_BACK)
def test_what_another_session_undid_does_not_come_back_unasked(
    shadow: Shadow,
    worktree: Path,
    theirs_undone: Callable[[Callable[[], object]], None],
    take_away: Callable[[Shadow], None],
    act: Callable[[Shadow, Resolution], object],
    can_merge: bool,
) -> None:
    theirs_undone(lambda: take_away(shadow))
    with pytest.raises(Conflict) as caught:
        act(shadow, "abort")
    with nullcontext() if can_merge else pytest.raises(Conflict):
        act(shadow, "merge")

    assert "'theirs' of session 'other'" in caught.value.conflicts[0].reason
    assert "of theirs" not in (worktree / "t").read_text()


def test_an_act_that_stays_away_from_what_they_undid_is_no_conflict(shadow: Shadow, worktree: Path) -> None:
    other = shadow.for_session("other")
    with other.message("theirs"):
        write_lines(worktree, ["theirs"])
    other.undo()
    with shadow.message("m1"):
        write_lines(worktree, LINES)
    shadow.undo()
    shadow.redo()

    assert (worktree / "t").read_text().splitlines() == LINES


WITHOUT_5 = [line for line in LINES if line != "line 5"]
HOW: list[Resolution] = ["abort", "merge"]


@pytest.mark.parametrize("added", [[], ["of ours"]], ids=["agreed", "merged"])
def test_undoing_does_not_delete_again_what_another_session_deleted_and_undid(
    shadow: Shadow, worktree: Path, added: list[str]
) -> None:
    """We wrote the line again before they undid its deletion, so undoing that changed nothing."""
    other = shadow.for_session("other")
    write_lines(worktree, LINES)
    with other.message("theirs"):
        write_lines(worktree, WITHOUT_5)
    with shadow.message("ours"):
        write_lines(worktree, LINES + added)
    assert other.undo(on_conflict="merge").restored == []

    for how in HOW:
        with pytest.raises(Conflict) as caught:
            shadow.undo(on_conflict=how)
        assert "'theirs' of session 'other'" in caught.value.conflicts[0].reason
        assert caught.value.conflicts[0].choices == ["keep", "overwrite"]
    shadow.undo(on_conflict="overwrite")
    assert (worktree / "t").read_text().splitlines() == WITHOUT_5


def test_undoing_does_not_delete_again_a_file_that_another_session_deleted_and_undid(
    shadow: Shadow, worktree: Path
) -> None:
    other = shadow.for_session("other")
    write_lines(worktree, LINES)
    with other.message("theirs"):
        (worktree / "t").unlink()
    with shadow.message("ours"):
        write_lines(worktree, LINES)
    other.undo()

    with pytest.raises(Conflict):
        shadow.undo()
    assert (worktree / "t").read_text().splitlines() == LINES


def test_an_edit_that_a_merge_left_as_it_was_is_still_in_the_way(shadow: Shadow, worktree: Path) -> None:
    """The user had removed the message's line already; redo must not overwrite the rest of the edit."""
    write_lines(worktree, LINES)
    with shadow.message("m1"):
        write_lines(worktree, [*LINES, "of m1"])
    write_lines(worktree, ["of the user", *LINES])
    shadow.undo(on_conflict="merge")

    with pytest.raises(Conflict):
        shadow.redo()
    shadow.redo(on_conflict="merge")
    assert (worktree / "t").read_text().splitlines() == ["of the user", *LINES, "of m1"]


# Messages of other sessions that are still open


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "open"])
def test_an_undo_names_the_open_message_whose_edits_it_may_undo(
    shadow: Shadow, worktree: Path, is_ended: bool
) -> None:
    """Until it ends, nobody can tell which of the two changed the path, so this is no conflict."""
    other = shadow.for_session("other")
    write_lines(worktree, LINES)
    shadow.begin("m1")
    other.begin("theirs")
    make_tree(worktree, {"t": "changed by both\n", "of m1": "1"})
    if is_ended:
        shadow.end()
    planned, outcome = shadow.undo(dry_run=True), shadow.undo()

    note = "message 'theirs' of session 'other' is open: this undo may undo its edits too"
    assert note in planned.notes
    assert note in outcome.notes
    assert outcome.uncertain == planned.uncertain == ["of m1", "t"]


def test_an_open_message_is_not_named_for_what_changed_before_it_began(
    shadow: Shadow, worktree: Path
) -> None:
    other = shadow.for_session("other")
    write_lines(worktree, LINES)
    with shadow.message("m1"):
        make_tree(worktree, {"a": "before it began"})
    shadow.begin("m2")
    make_tree(worktree, {"t": "before it began"})
    other.begin("theirs")
    shadow.end()
    outcome = shadow.undo(2)

    assert (outcome.notes, outcome.uncertain) == ([], [])
