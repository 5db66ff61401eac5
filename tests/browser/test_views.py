"""What the page shows: timeline, turns, diffs, the corner; light, dark and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.browser.chromium import expect
from tests.browser.conftest import Opener
from tests.browser.stories import begin, picture
from tests.browser.ui import Agent, Ui

pytestmark = pytest.mark.browser


def test_a_turn_shows_its_text_agent_time_and_files(ui: Ui) -> None:
    turn = ui.turn("Write tests, remove the notes")

    expect(turn).to_contain_text("#2")
    expect(turn).to_contain_text("claude")
    expect(turn.locator("time")).to_be_visible()
    expect(turn.locator(".letter.A")).to_be_visible()
    expect(turn.locator(".letter.D")).to_be_visible()
    expect(turn).to_contain_text("+2")
    expect(turn).to_contain_text("\N{MINUS SIGN}1")


def test_a_turn_folds_out(ui: Ui) -> None:
    fold = ui.turn("Add tax").get_by_role("button", name="Text, files and steps of #1")
    expect(fold).to_have_attribute("aria-expanded", "false")
    fold.click()

    expect(ui.turn("Add tax").locator(".turn-said")).to_have_text(
        "Add tax to the total\n\nand round it to cents"
    )
    expect(ui.turn("Add tax").locator("button.file-line")).to_contain_text("shop.py")
    ui.turn("Add tax").locator("button.file-line").click()
    expect(ui.file("shop.py")).to_be_visible()


def test_steps_fold_out_with_their_files(shadow: Shadow, open_ui: Opener, worktree: Path) -> None:
    begin(shadow)
    with shadow.message("steps", text="Work in steps"), shadow.step("bash: make"):
        (worktree / "built").write_text("x")
    ui = open_ui()
    ui.choose("Work in steps")
    ui.page.keyboard.press("s")

    expect(ui.turn("Work in steps").locator(".step-line")).to_contain_text("bash: make")
    expect(ui.turn("Work in steps").locator(".step-files")).to_contain_text("built")


def test_undone_turns_are_marked_in_words_and_lines(ui: Ui, shadow: Shadow) -> None:
    shadow.undo(2)

    expect(ui.turn("Open until eight").locator(".badge.undone")).to_have_text("undone")
    expect(ui.turn("Open until eight")).to_contain_class("off")
    expect(ui.lane("Open until eight").locator("circle")).to_have_class("undone")
    expect(ui.lane("Write tests").locator("circle")).to_have_class("head")
    assert ui.lane("Open until eight").locator("path.undone").count() > 0
    expect(ui.page.locator("#redo")).to_contain_text("2 turns undone")


def test_sessions_and_agents_can_be_chosen(agent: Agent, shadow: Shadow, open_ui: Opener) -> None:
    Agent(shadow.for_session("other")).work("o1", "In another session", {"other": "1"})
    ui = open_ui()
    expect(ui.turn("In another session")).to_be_visible()
    ui.page.get_by_role("combobox", name="Session").select_option("default")
    expect(ui.turn("Open until eight")).to_be_visible()
    ui.page.reload()
    expect(ui.turn("Open until eight")).to_be_visible()
    ui.page.get_by_role("combobox", name="Agent").select_option("codex")

    expect(ui.page.locator(".turn")).to_have_count(1)
    expect(ui.turn("Make the logo green")).to_be_visible()


def test_the_filter_finds_turns(ui: Ui) -> None:
    ui.page.keyboard.press("/")
    ui.page.keyboard.type("LOGO")
    expect(ui.page.locator(".turn")).to_have_count(1)
    ui.page.keyboard.press("Escape")

    expect(ui.page.locator(".turn")).to_have_count(5)


def test_the_diff_marks_words_and_colours_syntax(ui: Ui) -> None:
    ui.choose("Add tax")
    table = ui.file("shop.py").locator("table")

    expect(table.locator("tr.del")).to_contain_text("return result")
    expect(table.locator("tr.add")).to_contain_text("return round(result * (1 + TAX), 2)")
    assert "round(" in "".join(table.locator("tr.add mark").all_text_contents())
    expect(table.locator("tr.add .k").first).to_have_text("return")
    expect(table.locator("tr.add td.s")).to_have_text("+")
    expect(table.locator("tr.del td.s")).to_have_text("\N{MINUS SIGN}")


def test_the_diff_of_another_turn_cannot_be_used_while_one_is_read(ui: Ui) -> None:
    held = []
    expect(ui.file("shop.py")).to_be_visible()
    ui.page.route("**/api/diff*", lambda route: held.append(route))
    ui.turn("Make the logo").locator(".turn-text").click()
    expect(ui.page.locator("#diff-files")).to_have_attribute("aria-busy", "true")
    box = ui.file("shop.py").get_by_role("button", name="Restore file").bounding_box()
    ui.page.mouse.click(box["x"] + 5, box["y"] + 5)

    expect(ui.page.get_by_role("menu")).to_have_count(0)
    held[0].continue_()
    expect(ui.file("logo.png")).to_be_visible()
    expect(ui.page.locator("#diff-files")).to_have_attribute("aria-busy", "false")


def test_unchanged_parts_fold_out(ui: Ui) -> None:
    ui.choose("Add tax")
    table = ui.file("shop.py").locator("table")
    expect(table).not_to_contain_text("import json")
    table.get_by_role("button", name="unchanged lines").first.click()
    expect(table).to_contain_text("import json")
    table.get_by_role("button", name="Show the unchanged lines below").click()

    expect(table).to_contain_text("Greet a customer")
    numbers = [text for text in table.locator("td.n:nth-child(2)").all_text_contents() if text]
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def test_the_diff_side_by_side(ui: Ui) -> None:
    ui.choose("Add tax")
    ui.page.get_by_role("button", name="Side by side").click()
    row = ui.file("shop.py").locator("tr", has_text="return round")

    expect(row.locator("td.c.del")).to_have_text("    return result")
    expect(row.locator("td.c.add")).to_have_text("    return round(result * (1 + TAX), 2)")
    ui.page.reload()
    expect(ui.page.get_by_role("button", name="Side by side")).to_have_attribute("aria-pressed", "true")
    ui.page.keyboard.press("d")
    expect(ui.page.get_by_role("button", name="Unified")).to_have_attribute("aria-pressed", "true")


def test_pictures_are_shown_before_and_after(ui: Ui) -> None:
    ui.choose("Make the logo")
    pictures = ui.file("logo.png").locator("img")

    expect(pictures).to_have_count(2)
    sizes = pictures.evaluate_all(
        "images => Promise.all(images.map(async i => { await i.decode(); return i.naturalWidth }))"
    )
    assert sizes == [48, 48]


def test_where_a_picture_is_missing_the_page_says_why(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    agent.work("icon", "Draw an icon", {"icon.png": picture(1, 2, 3)})
    agent.work("none", "Remove the icon", {"icon.png": None})
    (worktree / "logo.png").write_bytes(picture(9, 9, 9))
    ui = open_ui()
    for turn, path, missing in (
        ("Draw an icon", "icon.png", "Not there"),
        ("Remove the icon", "icon.png", "Deleted"),
        ("Your own edits", "logo.png", "Not recorded yet"),
    ):
        ui.choose(turn)
        expect(ui.file(path).locator("img")).to_have_count(1)
        expect(ui.file(path).locator("p")).to_have_text(missing)


def test_binary_and_large_files_have_placeholders(agent: Agent, open_ui: Opener) -> None:
    large = "".join(f"line {number} of a large file\n" for number in range(200_000))
    agent.work("big", "Write large files", {"data.bin": b"\0\1\2" * 100, "large.txt": large})
    ui = open_ui()
    ui.choose("Write large files")

    expect(ui.file("data.bin")).to_contain_text("This is a binary file.")
    expect(ui.file("large.txt").locator(".file-note")).to_be_visible()


def test_a_renamed_file_is_one_entry(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    content = (worktree / "shop.py").read_text()
    agent.work("rename", "Rename the shop", {"shop.py": None, "store.py": content})
    ui = open_ui()
    ui.choose("Rename the shop")

    expect(ui.page.locator(".file")).to_have_count(1)
    expect(ui.file("store.py").locator(".letter.R")).to_be_visible()
    expect(ui.file("store.py")).to_contain_text("shop.py")


def test_the_corner_shows_size_and_health(ui: Ui) -> None:
    corner = ui.page.locator("#health")
    expect(corner).to_contain_text("healthy")
    expect(corner).to_contain_text("kB")
    corner.click()

    expect(ui.dialog).to_contain_text("The store is healthy")
    expect(ui.dialog).to_contain_text("Messages")


def test_what_is_not_protected_is_protected_by_a_click(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    (worktree / ".gitignore").write_text(".env\n")
    agent.work("env", "Write the settings", {".env": "KEY=1\n", "used.py": "x"})
    ui = open_ui()
    expect(ui.turn("Write the settings")).to_contain_text("1 not protected")
    ui.page.get_by_role("button", name="1 file not protected").click()
    ui.dialog.get_by_role("button", name="Protect .env").click()

    expect(ui.note).to_contain_text("Protected from now on")
    assert "!/.env" in (worktree / ".shadowtreeignore").read_text().splitlines()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_can_be_changed(agent: Agent, open_ui: Opener, scheme: str) -> None:
    ui = open_ui(color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    first = ui.page.evaluate(background)
    ui.page.keyboard.press("t")
    changed = ui.page.evaluate(background)
    ui.page.reload()

    assert {first, changed} == {"rgb(255, 255, 255)", "rgb(18, 19, 22)"}
    assert first == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 19, 22)")
    assert ui.page.evaluate(background) == changed


def test_nothing_moves_if_you_want_less_motion(ui: Ui) -> None:
    ui.page.keyboard.press("?")

    assert ui.page.evaluate("document.getAnimations().length") == 0
    expect(ui.dialog).to_contain_text("Keyboard shortcuts")


def test_letters_can_be_switched_off(ui: Ui) -> None:
    ui.page.keyboard.press("?")
    ui.dialog.get_by_role("checkbox").uncheck()
    ui.page.keyboard.press("Escape")
    ui.page.keyboard.press("u")

    expect(ui.dialog).to_have_count(0)


def test_a_phone_shows_one_pane_at_a_time(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    ui = open_ui(viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
    assert ui.page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(ui.page.locator("#diff")).to_be_hidden()
    ui.turn("Open until eight").get_by_role("button", name="Text, files and steps").tap()
    ui.turn("Open until eight").locator("button.file-line").tap()
    expect(ui.file("shop.py")).to_be_visible()
    assert ui.page.evaluate("document.documentElement.scrollWidth") <= 390
    ui.page.get_by_role("button", name="Timeline", exact=True).tap()
    ui.lane("Make the logo").locator(".lane-label").tap()
    ui.turn("Make the logo").get_by_role("button", name="Restore to here").tap()
    ui.apply()

    assert "hour < 18" in (worktree / "shop.py").read_text()


def test_a_tap_on_a_turn_presses_no_button_that_only_then_appears(agent: Agent, open_ui: Opener) -> None:
    ui = open_ui(viewport={"width": 390, "height": 844})
    ui.turn("Add tax").click()

    expect(ui.turn("Add tax")).to_contain_class("chosen")
    expect(ui.dialog).to_have_count(0)
    expect(ui.turn("Add tax").get_by_role("button", name="Restore to here")).to_be_visible()


def test_your_edits_are_in_view_when_the_page_opens(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    for number in range(12):
        agent.work(f"more{number}", f"More {number}", {"more": str(number)})
    (worktree / "own.txt").write_text("mine\n")
    ui = open_ui()

    expect(ui.turn("Your own edits since")).to_be_in_viewport(ratio=1)


def test_controls_that_would_choose_nothing_are_not_there(shadow: Shadow, open_ui: Opener) -> None:
    begin(shadow).work("only", "One turn", {"one": "1"}, agent="claude")
    shadow.undo()
    ui = open_ui()

    expect(ui.page.get_by_role("combobox", name="Agent")).to_have_count(0)
    expect(ui.page.get_by_role("button", name="Redo next")).to_be_visible()
    expect(ui.page.get_by_role("button", name="Redo all")).to_have_count(0)


def test_a_long_path_is_shown_whole_in_a_plan(agent: Agent, open_ui: Opener) -> None:
    path = "/".join(["a rather long folder name"] * 4) + "/what matters.txt"
    agent.work("long", "Write deep down", {path: "1"})
    ui = open_ui(viewport={"width": 390, "height": 844})
    ui.page.keyboard.press("u")
    shown = ui.dialog.locator(".path").first

    expect(shown).to_have_text(path)
    assert shown.evaluate("e => e.scrollWidth <= e.clientWidth && e.clientWidth > 100")


def test_read_only_shows_and_changes_nothing(agent: Agent, shadow: Shadow, open_ui: Opener) -> None:
    shadow.undo()
    with Server(shadow, port=0, read_only=True) as server:
        ui = open_ui(server.url)
        expect(ui.page.locator("#live")).to_contain_text("read only")
        ui.choose("Add tax")

        expect(ui.file("shop.py")).to_be_visible()
        assert ui.page.get_by_role("button", name="Undo", exact=True).count() == 0
        assert ui.page.get_by_role("button", name="Redo next").count() == 0
        assert ui.page.get_by_role("button", name="Restore").count() == 0


def test_nothing_recorded_yet(shadow: Shadow, open_ui: Opener) -> None:
    shadow.wrap()
    ui = open_ui()

    expect(ui.page.locator("#turns .blank")).to_contain_text("Nothing is recorded yet")
