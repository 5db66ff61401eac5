"""Plans: a plan has an id, and an act can do exactly that plan or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shadowtree import Conflict, InvalidInput, Outcome, OutOfSpace, PlanOutdated, Shadow
from shadowtree.capture import size_limits
from tests.support.trees import assert_tree, make_tree, read_tree

TEXT = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def line(shadow: Shadow, worktree: Path) -> Shadow:
    """Two messages that changed a text and each created a file."""
    make_tree(worktree, {"t": TEXT, "d": {"u": TEXT}})
    for number in (1, 2):
        with shadow.message(f"m{number}"):
            text = TEXT.replace(f"line {number}\n", f"by m{number}\n")
            make_tree(worktree, {"t": text, "d": {"u": text}, f"f{number}": "x"})
    return shadow


Act = Callable[..., Outcome]
ACTS: dict[str, Callable[[Shadow], Act]] = {
    "undo": lambda shadow: lambda **how: shadow.undo(**how),
    "redo": lambda shadow: lambda **how: shadow.redo(**how),
    "revert": lambda shadow: lambda **how: shadow.revert("m1", **how),
    "unrevert": lambda shadow: lambda **how: shadow.unrevert(**how),
    "switch": lambda shadow: lambda **how: shadow.switch("m2", **how),
    "restore": lambda shadow: lambda **how: shadow.restore("m1", **how),
}


@pytest.mark.parametrize("name", ACTS)
def test_an_act_does_the_expected_plan_or_nothing(line: Shadow, worktree: Path, name: str) -> None:
    line.undo()
    act = ACTS[name](line)
    plan = act(dry_run=True)
    (worktree / "f1").unlink()
    make_tree(worktree, {"f2": "mine", "other": "x"})
    tree, known = read_tree(worktree), line.messages()

    with pytest.raises(PlanOutdated) as error:
        act(expect=plan.id)
    assert (read_tree(worktree), line.messages()) == (tree, known)
    assert (error.value.outcome.restored, error.value.outcome.deleted) == ([], [])
    assert error.value.plan.id != plan.id

    again = act(dry_run=True, on_conflict="overwrite")
    assert act(expect=again.id, on_conflict="overwrite").id == again.id


def test_a_plan_keeps_its_id_as_long_as_it_would_do_the_same(line: Shadow, worktree: Path) -> None:
    plan = line.plan_revert("m1")
    make_tree(worktree, {"nobody's": "x"})

    assert plan.to_dict()["id"] == plan.id
    assert line.plan_revert("m1").id == plan.id
    assert line.plan_revert("m2").id != plan.id
    assert line.revert("m1", expect=plan.id).id == plan.id


def test_an_id_tells_modes_and_conflicts_apart(line: Shadow, worktree: Path) -> None:
    ids = {line.plan_revert("m2").id}
    (worktree / "t").chmod(0o600)
    ids.add(line.plan_revert("m2").id)
    ids.add(line.plan_revert("m2", on_conflict="keep").id)
    ids.add(line.plan_revert("m2", on_conflict="overwrite").id)
    ids.add(line.plan_revert("m2", paths=["f2"]).id)

    assert len(ids) == 5


# Conflicts by path


def edit(worktree: Path) -> str:
    """Edit both texts, away from the messages' changes."""
    text = (worktree / "t").read_text().replace("line 15\n", "mine\n")
    make_tree(worktree, {"t": text, "d": {"u": text}})
    return text


@pytest.mark.parametrize(
    ("choices", "t", "u"),
    [
        ({"t": "keep", "d": "overwrite"}, "keep", "overwrite"),
        ({"d/u": "merge", "*": "keep"}, "keep", "merge"),
        ({"d": "keep", "d/u": "merge", "t": "merge"}, "merge", "merge"),
        ({".": "overwrite"}, "overwrite", "overwrite"),
    ],
)
def test_conflicts_are_settled_by_path(
    line: Shadow, worktree: Path, choices: Mapping[str, str], t: str, u: str
) -> None:
    mine = edit(worktree)
    before = TEXT.replace("line 1\n", "by m1\n")
    states = {"keep": mine, "overwrite": before, "merge": before.replace("line 15\n", "mine\n")}

    line.undo(on_conflict=choices)  # type: ignore[arg-type]  # words, as a user types them
    assert_tree(worktree, {"t": states[t], "d": {"u": states[u]}, "f1": "x"})


def test_paths_for_which_nothing_is_chosen_stop_it(line: Shadow, worktree: Path) -> None:
    edit(worktree)
    tree = read_tree(worktree)

    with pytest.raises(Conflict) as error:
        line.undo(on_conflict={"t": "keep"})
    assert [conflict.path for conflict in error.value.conflicts] == ["d/u"]
    assert read_tree(worktree) == tree
    with pytest.raises(InvalidInput, match="not 'mend'"):
        line.undo(on_conflict={"t": "mend"})  # type: ignore[dict-item]  # a wrong word


# Diffs in dry runs


def test_a_dry_run_can_show_the_diff(line: Shadow, worktree: Path) -> None:
    edit(worktree)
    outcome = line.undo(dry_run=True, diff=True, on_conflict="merge")

    assert [(each.path, each.status) for each in outcome.diff] == [
        ("d/u", "modified"),
        ("f2", "deleted"),
        ("t", "modified"),
    ]
    assert "+by m1\n" in outcome.diff[2].patch
    assert "mine" not in outcome.diff[2].patch.replace(" mine", "")
    assert outcome.to_dict()["diff"][1]["path"] == "f2"
    assert line.undo(dry_run=True, on_conflict="merge").diff == []


# Parts


def test_restore_some_paths(line: Shadow, worktree: Path) -> None:
    outcome = line.restore("m1^", paths=["d", "f2"])

    assert (outcome.restored, outcome.deleted) == (["d/u"], ["f2"])
    assert (worktree / "t").read_text() != TEXT
    assert (worktree / "d/u").read_text() == TEXT
    assert (worktree / "f1").exists()
    nothing = line.restore("m1^", paths=["d/u"])
    assert (nothing.restored, nothing.notes, nothing.complete) == ([], ["nothing to restore at d/u"], True)
    assert not line.restore("m1^", paths=["nowhere"]).complete


def test_a_part_that_is_reverted_leaves_a_mark(line: Shadow) -> None:
    def marks() -> list[bool]:
        return [message.is_partly_reverted for message in line.messages()]

    line.revert("m1", paths=["f1"])
    assert marks() == [True, False]
    assert line.show("m1")[0].to_dict()["partly_reverted"]
    line.unrevert()
    assert marks() == [False, False]
    line.unrevert(undo=True)
    assert marks() == [True, False]
    line.undo(2)
    line.redo(2)
    assert marks() == [False, False]


# Disk space


@pytest.mark.parametrize("name", ["undo", "revert", "restore"])
def test_an_act_may_use_the_room_that_is_kept_free(
    line: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """First-hour row B18."""
    monkeypatch.setattr(size_limits, "free_bytes", lambda directory: 400 << 20)
    make_tree(worktree, {"mine": "not recorded yet"})
    with Shadow(worktree) as shadow:
        with pytest.raises(OutOfSpace):
            shadow.begin("m3")
        assert ACTS[name](shadow)().complete
    assert (worktree / "t").read_text() != TEXT.replace("line 2\n", "by m2\n")


def test_an_act_is_refused_if_what_it_stages_does_not_fit(
    line: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = read_tree(worktree)
    monkeypatch.setattr(size_limits, "free_bytes", lambda directory: 100)

    with pytest.raises(OutOfSpace):
        line.undo()
    assert read_tree(worktree) == tree


def test_a_choice_for_a_path_that_does_not_change_is_noted(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "2"})

    notes = shadow.undo(on_conflict={"nosuch": "keep", "a": "keep"}).notes

    assert notes == ["no change at 'nosuch', so the choice for it was not used"]


def test_nothing_to_undo_in_a_session_without_messages_names_it(shadow: Shadow, worktree: Path) -> None:
    shadow.snapshot("m1")

    assert shadow.for_session("typo").undo().notes == [
        "nothing to undo",
        "session 'typo' has no messages",
        "other sessions have messages: run 'shadowtree sessions', then --session ID",
    ]


def test_nothing_to_undo_points_to_sessions_with_messages(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    shadow.undo()
    assert shadow.undo().notes == ["nothing to undo"]
    with shadow.for_session("other").message("o1"):
        make_tree(worktree, {"b": "1"})

    note = "other sessions have messages: run 'shadowtree sessions', then --session ID"
    assert shadow.undo().notes == ["nothing to undo", note]
    shadow.drop_session("other", confirm=lambda planned: True)
    assert shadow.undo().notes == ["nothing to undo"]


def test_nothing_to_redo_names_the_branch_that_a_new_turn_made(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1", text="first"):
        make_tree(worktree, {"a": "1"})
    with shadow.message("m2", text="add tax\nand more"):
        make_tree(worktree, {"b": "1"})
    shadow.undo()
    with shadow.message("m3", text="continue"):
        pass
    with shadow.message("m4", role="assistant"):
        pass

    assert shadow.redo().notes == [
        "nothing to redo",
        "'add tax' is on branch add-tax: run 'shadowtree switch add-tax'",
    ]
    shadow.switch("add-tax")
    assert shadow.redo().notes[1].endswith("run 'shadowtree switch continue'")


def test_nothing_to_redo_names_no_branch_of_another_place(shadow: Shadow, worktree: Path) -> None:
    for id in ("m1", "m2"):
        with shadow.message(id):
            make_tree(worktree, {id: "1"})
    shadow.undo()
    for id in ("m3", "m4"):
        with shadow.message(id):
            make_tree(worktree, {id: "1"})

    assert shadow.redo().notes == ["nothing to redo"]


def test_nothing_to_redo_names_the_session_where_there_are_others(shadow: Shadow, worktree: Path) -> None:
    shadow.for_session("other").snapshot("o1")
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    shadow.undo()
    shadow.snapshot("m2")

    assert shadow.redo().notes == [
        "nothing to redo",
        "'m1' is on branch branch-m1: run 'shadowtree switch branch-m1 --session default'",
    ]


def test_a_restore_names_the_edits_of_your_own_that_it_would_replace(shadow: Shadow, worktree: Path) -> None:
    """They are not conflicts, because a restore expects the present state."""
    make_tree(worktree, {"a": "1", "b": "1"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "2", "b": "2", "c": "2"})
    make_tree(worktree, {"a": "mine", "n": "mine"})

    plan = shadow.restore("m1^", dry_run=True)
    assert plan.edited == ["a", "n"]
    assert [(each.path, each.action, each.is_own) for each in plan.files] == [
        ("a", "restore", True),
        ("n", "delete", True),
        ("b", "restore", False),
        ("c", "delete", False),
    ]
    shadow.restore("m1^", expect=plan.id)
    assert_tree(worktree, {"a": "1", "b": "1"})


def test_a_dry_run_with_a_diff_says_where_a_merge_would_fail(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1\n", "b": "1\n2\n3\n4\n"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "2\n", "b": "1\n2\n3\nfour\n"})
    make_tree(worktree, {"a": "mine\n", "b": "mine\n2\n3\nfour\n"})

    plain, tried = shadow.undo(dry_run=True), shadow.undo(dry_run=True, diff=True)
    assert [each.choices for each in plain.conflicts] == [["merge", "keep", "overwrite"]] * 2
    assert [each.choices for each in tried.conflicts] == [
        ["keep", "overwrite"],
        ["merge", "keep", "overwrite"],
    ]
    assert [[hunk.ours for hunk in each.hunks] for each in tried.conflicts] == [["mine\n"], []]
    assert plain.id == tried.id
