"""The branch view: the branches of one point, and the way back to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.browser.chromium import expect
from tests.browser.conftest import Opener
from tests.browser.stories import LATER, TAXED, picture
from tests.browser.ui import Agent, Ui

pytestmark = pytest.mark.browser


@pytest.fixture
def forked(agent: Agent, shadow: Shadow, open_ui: Opener) -> Ui:
    """The page with two branches after the first turn, of three turns and of one."""
    shadow.undo(3)
    agent.work("second", "Second attempt", {"second": "2"})
    shadow.undo(1)
    agent.work("third", "Third attempt", {"third": "3"})
    return open_ui()


def test_a_fork_is_marked_with_its_branches(forked: Ui) -> None:
    expect(forked.turn("Add tax").get_by_role("button", name="2 branches from here")).to_have_text("2")
    expect(forked.lane("Add tax").get_by_role("button", name="2 branches from here")).to_be_visible()
    expect(forked.turn("Second attempt")).to_have_count(0)
    x = "circle => circle.cx.baseVal.value"
    assert forked.lane("Third attempt").locator("circle").evaluate(x) == 12
    assert forked.lane("Second attempt").locator("circle").evaluate(x) > 12


def test_arrow_keys_go_through_the_branches(forked: Ui) -> None:
    forked.lane("Add tax").get_by_role("button", name="2 branches from here").click()
    expect(forked.dialog.locator("h2")).to_have_text("Branches from #1 Add tax to the total")
    expect(forked.dialog.locator(".branch-turn")).to_have_count(3)
    expect(forked.dialog).to_contain_text("Branch 1 of 2")
    forked.page.keyboard.press("ArrowRight")
    expect(forked.dialog.locator(".branch-turn")).to_have_count(1)
    expect(forked.dialog).to_contain_text("Second attempt")
    forked.page.keyboard.press("ArrowRight")

    expect(forked.dialog.locator(".branch-turn")).to_have_count(3)
    expect(forked.dialog.get_by_role("tab", selected=True)).to_be_focused()


def test_redo_to_a_turn_of_a_branch(forked: Ui, worktree: Path) -> None:
    forked.choose("Add tax")
    forked.page.keyboard.press("b")
    turn = forked.dialog.locator(".branch-turn", has_text="Write tests")
    turn.get_by_role("button", name="Redo to here").click()
    expect(forked.dialog.locator(".dialog-head p")).to_have_text(
        "This undoes 1 turn, redoes 1 turn and changes 3 files."
    )
    forked.apply()

    assert (worktree / "tests" / "test_shop.py").exists()
    assert not (worktree / "third").exists()
    assert (worktree / "shop.py").read_text() == TAXED
    expect(forked.turn("Write tests").locator(".badge.head")).to_be_visible()


def test_redo_an_entire_branch_and_come_back(forked: Ui, worktree: Path) -> None:
    forked.turn("Add tax").get_by_role("button", name="2 branches from here").click()
    forked.press("Redo entire branch")
    forked.apply()
    assert (worktree / "shop.py").read_text() == LATER
    assert (worktree / "logo.png").read_bytes() == picture(40, 160, 90)
    assert not (worktree / "third").exists()
    forked.note.get_by_role("button", name="Go back").click()
    forked.apply()

    assert (worktree / "third").exists()
    assert (worktree / "shop.py").read_text() == TAXED


def test_a_turn_of_a_branch_in_the_timeline_opens_its_branch(forked: Ui) -> None:
    forked.lane("Second attempt").locator(".lane-label").click()

    expect(forked.dialog.locator(".branch-turn.chosen")).to_contain_text("Second attempt")


def test_a_fork_at_the_start(agent: Agent, shadow: Shadow, open_ui: Opener) -> None:
    shadow.undo(4)
    agent.work("anew", "Begin anew", {"anew": "1"})
    ui = open_ui()
    ui.turn("Start").get_by_role("button", name="1 branch from here").click()

    expect(ui.dialog.locator("h2")).to_have_text("Branches from the start")
    expect(ui.dialog.locator(".branch-turn")).to_have_count(4)
