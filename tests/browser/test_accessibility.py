"""axe finds nothing wrong, light and dark, on the page and in dialogs; screen readers hear what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.browser.chromium import axe_violations, expect
from tests.browser.conftest import Opener
from tests.browser.stories import LATER, TAXED
from tests.browser.ui import Agent, Ui

pytestmark = pytest.mark.browser


@pytest.fixture(params=["light", "dark"])
def full(request: pytest.FixtureRequest, agent: Agent, shadow: Shadow, open_ui: Opener, worktree: Path) -> Ui:
    """A page with a branch, undone turns, edits of yours and what is not protected."""
    shadow.undo(1)
    (worktree / ".gitignore").write_text(".env\n")
    agent.work("env", "Write the settings", {".env": "1", "more.py": "x = 1\n"}, agent="claude")
    agent.work("more", "Go on", {"more.py": "x = 2  # more\n"}, agent="claude")
    shadow.undo(1)
    (worktree / "more.py").write_text("x = 3\n")
    (worktree / "shop.py").write_text(TAXED.replace(", 2)", ", 3)"))
    ui = open_ui(color_scheme=request.param)
    expect(ui.turn("Your own edits since")).to_be_visible()
    return ui


def test_the_page(full: Ui) -> None:
    full.choose("Add tax")
    full.page.keyboard.press("s")
    expect(full.file("shop.py")).to_be_visible()
    assert axe_violations(full.page) == []
    full.page.keyboard.press("d")
    expect(full.file("shop.py").locator(".del").first).to_be_visible()

    assert axe_violations(full.page) == []


def test_the_plan_with_conflicts(full: Ui, worktree: Path) -> None:
    full.turn("Start").hover()
    full.turn("Start").get_by_role("button", name="Restore to here").click()
    full.dialog.get_by_role("radio", name="Merge, with markers").check()
    expect(full.dialog.locator(".hunk")).to_be_visible()

    assert axe_violations(full.page) == []


@pytest.mark.parametrize("button", ["Keyboard shortcuts", "1 branch from here", "Store ·", "not protected"])
def test_the_other_dialogs(full: Ui, button: str) -> None:
    full.page.get_by_role("button", name=button).first.click()
    expect(full.dialog).to_be_visible()

    assert axe_violations(full.page) == []


def test_notes_menus_and_a_phone(full: Ui) -> None:
    full.choose("Add tax")
    full.page.keyboard.press("o")
    full.apply()
    expect(full.note).to_be_visible()
    assert axe_violations(full.page) == []
    full.page.keyboard.press("m")
    assert axe_violations(full.page) == []
    full.page.keyboard.press("Escape")
    full.page.set_viewport_size({"width": 390, "height": 760})

    assert axe_violations(full.page) == []


def test_readers_hear_what_happened(ui: Ui) -> None:
    ui.page.keyboard.press("u")
    ui.apply()

    expect(ui.page.get_by_role("status").first).to_contain_text("1 file restored")


def test_lists_have_names_sizes_and_a_current_item(ui: Ui, worktree: Path) -> None:
    rows = ui.page.get_by_role("list", name="Turns").get_by_role("listitem")
    expect(rows).to_have_count(5)
    assert rows.nth(4).get_attribute("aria-setsize") == "5"
    assert rows.nth(4).get_attribute("aria-posinset") == "5"

    expect(rows.nth(4).locator(".turn-text")).to_have_attribute("aria-current", "true")
    assert (worktree / "shop.py").read_text() == LATER


def test_everything_is_reached_by_tab(ui: Ui) -> None:
    seen = set()
    for _ in range(40):
        ui.page.keyboard.press("Tab")
        seen.add(ui.page.evaluate("(({id, dataset}) => id || dataset.part)(document.activeElement)"))

    assert {
        "sessions",
        "agents",
        "find",
        "undo",
        "theme",
        "help",
        "main",
        "fold",
        "diff-files",
        "health",
    } <= seen
