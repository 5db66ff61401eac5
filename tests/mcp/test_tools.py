"""What the MCP server offers: the history, points, and an undo that only a plan's id sets off."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from shadowtree import Conflict, InvalidInput, PlanOutdated, Shadow, UnknownName
from shadowtree.mcp.tools import Tools
from tests.support.trees import Tree, assert_tree, make_tree


@pytest.fixture
def tools(shadow: Shadow, worktree: Path) -> Tools:
    """Tools for a worktree with two turns."""
    make_tree(worktree, {"a": "0\n"})
    with shadow.message("one", text="write a and b"):
        make_tree(worktree, {"a": "1\n", "b": "1\n"})
    with shadow.message("two", text="write a"):
        (worktree / "a").write_text("2\n")
    return Tools(lambda: nullcontext(shadow))


def test_history_lists_messages_with_their_paths(tools: Tools) -> None:
    one, two = tools.history()["messages"]

    assert (one["id"], one["text"], one["state"], one["turn"]) == ("one", "write a and b", "active", 1)
    assert (one["files"], one["paths"]) == (2, ["a", "b"])
    assert two["paths"] == ["a"]
    assert [each["id"] for each in tools.history(path="b")["messages"]] == ["one"]
    assert [each["id"] for each in tools.history(last=1)["messages"]] == ["two"]
    assert [each["id"] for each in tools.history(last=0, all_sessions=True)["messages"]] == ["two"]


def test_diff_shows_patches_and_cuts_what_is_too_long(tools: Tools, worktree: Path) -> None:
    (file,) = tools.diff("one", "two")["files"]
    assert "-1\n+2\n" in file["patch"]

    (worktree / "b").write_text("long line\n" * 20_000)
    (worktree / "a").write_text("3\n")
    a, b = tools.diff()["files"]
    assert "+3" in a["patch"]
    assert b["patch"] == ""
    assert b["cut"].endswith("characters; ask for this path alone")
    assert b["additions"] == 20_000
    assert [each["path"] for each in tools.diff("one^", "two", "b")["files"]] == ["b"]


def test_a_file_is_read_as_of_a_message(tools: Tools) -> None:
    assert tools.read_file("one", "a") == {"text": "1\n"}
    assert tools.read_file("one^", "a") == {"text": "0\n"}
    with pytest.raises(UnknownName):
        tools.read_file("never", "a")


def test_a_file_that_is_long_is_cut_and_one_that_is_no_text_is_refused(
    tools: Tools, shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"long": "x" * 100_001, "bytes": b"\xff\xfe"})
    shadow.snapshot("three")

    read = tools.read_file("three", "long")
    assert read["text"] == "x" * 100_000
    assert read["cut"] == "the first 100,000 of 100,001 characters"
    with pytest.raises(InvalidInput, match="bytes is not text: 2 bytes"):
        tools.read_file("three", "bytes")


def test_a_point_is_a_message_that_has_the_label(tools: Tools, shadow: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("3\n")
    saved = tools.save_point("before the risky part")

    last = shadow.messages()[-1]
    assert saved == {"message": last.id, "tree": last.after, "files": 1}
    assert last.text == "before the risky part"


def test_the_first_point_wraps_the_directory(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0"})
    tools = Tools(lambda: nullcontext(shadow))
    assert (tools.history(), tools.undo()["plan"]) == ({"messages": []}, None)
    saved = tools.save_point("start")

    assert tools.read_file(saved["message"], "a") == {"text": "0"}


def test_a_point_in_an_open_turn_is_a_step_of_it(tools: Tools, shadow: Shadow, worktree: Path) -> None:
    shadow.begin("three")
    (worktree / "a").write_text("3\n")
    first, second, unnamed = tools.save_point("safe\n"), tools.save_point("safe"), tools.save_point("\n")
    (worktree / "a").write_text("4\n")
    shadow.end()

    assert (first["message"], first["step"], second["step"]) == ("three", "safe", "safe 2")
    assert unnamed["step"] == "point"
    assert shadow.revert("three", step="safe").complete
    assert (worktree / "a").read_text() == "3\n"


def test_undo_is_a_plan_until_it_is_confirmed(tools: Tools, worktree: Path) -> None:
    plan = tools.undo()

    assert (plan["messages"], plan["restored"], plan["dry_run"]) == (["two"], ["a"], True)
    assert_tree(worktree, {"a": "2\n", "b": "1\n"})
    done = tools.confirm(plan["plan"])
    assert (done["restored"], done["dry_run"], done["complete"]) == (["a"], False, True)
    assert done["back"]
    assert_tree(worktree, {"a": "1\n", "b": "1\n"})
    with pytest.raises(InvalidInput, match="call undo or revert first"):
        tools.confirm(plan["plan"])


@pytest.mark.parametrize(
    ("how", "after"),
    [
        ({"message": "one"}, {"a": "0\n"}),
        ({"message": "one", "paths": ["b"]}, {"a": "2\n"}),
        ({"message": "two", "only": True}, {"a": "1\n", "b": "1\n"}),
    ],
    ids=["back", "paths", "only"],
)
def test_revert_is_a_plan_until_it_is_confirmed(
    tools: Tools, worktree: Path, how: dict[str, object], after: Tree
) -> None:
    plan = tools.revert(**how)  # type: ignore[arg-type]  # its keywords
    assert_tree(worktree, {"a": "2\n", "b": "1\n"})
    tools.confirm(plan["plan"])

    assert_tree(worktree, after)


def test_nothing_is_done_if_the_plan_would_be_another_by_now(
    tools: Tools, shadow: Shadow, worktree: Path
) -> None:
    plan = tools.undo()["plan"]
    with shadow.message("three"):
        (worktree / "c").write_text("3\n")

    with pytest.raises(PlanOutdated):
        tools.confirm(plan)
    assert_tree(worktree, {"a": "2\n", "b": "1\n", "c": "3\n"})


def test_a_plan_is_of_the_session_that_it_was_made_for(shadow: Shadow, worktree: Path, tools: Tools) -> None:
    following = Tools(lambda: nullcontext(shadow.for_last_session()))
    plan = following.undo()["plan"]
    with shadow.for_session("other").message("three"):
        (worktree / "c").write_text("3\n")
    done = following.confirm(plan)

    assert done["messages"] == ["two"]
    assert_tree(worktree, {"a": "1\n", "b": "1\n", "c": "3\n"})


def test_a_conflict_is_in_the_plan_and_stops_it(tools: Tools, worktree: Path) -> None:
    (worktree / "a").write_text("mine\n")
    plan = tools.undo()

    assert [each["path"] for each in plan["conflicts"]] == ["a"]
    with pytest.raises(Conflict):
        tools.confirm(plan["plan"])
    kept = tools.undo(on_conflict="keep")
    assert tools.confirm(kept["plan"])["kept"] == ["a"]
    assert (worktree / "a").read_text() == "mine\n"


def test_nothing_to_undo_is_no_plan(tools: Tools) -> None:
    tools.confirm(tools.undo(turns=2)["plan"])

    assert tools.undo()["plan"] is None


def test_the_oldest_plans_are_forgotten(
    tools: Tools, shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowtree.mcp.tools._MOST_PLANS", 1)
    first, second = tools.undo()["plan"], tools.undo(turns=2)["plan"]

    with pytest.raises(InvalidInput):
        tools.confirm(first)
    tools.confirm(second)
    assert_tree(worktree, {"a": "0\n"})
