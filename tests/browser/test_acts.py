"""Acts through the page: the plan is shown first, and afterwards the files on disk are what it said."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.browser.chromium import expect
from tests.browser.conftest import Opener
from tests.browser.stories import LATER, SHOP, TAXED, begin, picture
from tests.browser.ui import Agent, Ui

pytestmark = pytest.mark.browser


def test_restore_to_here_by_its_button(ui: Ui, worktree: Path) -> None:
    ui.choose("Add tax")
    ui.turn("Add tax").get_by_role("button", name="Restore to here").click()

    expect(ui.dialog.locator("h2")).to_have_text("Restore to #1 Add tax to the total?")
    expect(ui.dialog.locator(".dialog-head p")).to_have_text("This undoes 3 turns and changes 4 files.")
    assert ui.planned() == {
        "logo.png": "restored",
        "notes.md": "created",
        "shop.py": "restored",
        "tests/test_shop.py": "deleted",
    }
    assert (worktree / "shop.py").read_text() == LATER, "nothing is done before it is confirmed"
    ui.apply()
    assert (worktree / "shop.py").read_text() == TAXED
    assert (worktree / "notes.md").read_text() == "ask Ana\n"
    assert (worktree / "logo.png").read_bytes() == picture(70, 80, 200)
    assert not (worktree / "tests").exists()


def test_restore_to_here_by_the_keyboard(ui: Ui, worktree: Path) -> None:
    ui.page.keyboard.press("k")
    ui.page.keyboard.press("ArrowUp")
    expect(ui.turn("Write tests").locator(".turn-text")).to_be_focused()
    ui.page.keyboard.press("Enter")
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    ui.page.keyboard.press("Enter")  # A stray one does nothing.
    assert (worktree / "shop.py").read_text() == LATER
    ui.page.keyboard.press("Control+Enter")

    expect(ui.note).to_contain_text("2 turns undone")
    assert (worktree / "shop.py").read_text() == TAXED
    assert not (worktree / "notes.md").exists()


def test_restore_to_the_start(ui: Ui, worktree: Path) -> None:
    ui.turn("Start").hover()
    ui.turn("Start").get_by_role("button", name="Restore to here").click()
    ui.apply()

    assert (worktree / "shop.py").read_text() == SHOP
    assert (worktree / "notes.md").exists()


def test_undo_only_this_by_right_click(ui: Ui, worktree: Path) -> None:
    ui.turn("Add tax").click(button="right")
    ui.page.get_by_role("menuitem", name="Undo only this").click()
    expect(ui.dialog.locator(".dialog-head p")).to_contain_text("Later turns stay as they are.")
    ui.apply()

    assert (worktree / "shop.py").read_text() == SHOP.replace("hour < 18", "hour < 20")
    expect(ui.turn("Add tax")).to_contain_text("undone alone")
    assert (worktree / "tests" / "test_shop.py").exists()


def test_undo_only_this_by_the_keyboard(ui: Ui, worktree: Path) -> None:
    ui.choose("Write tests")
    ui.page.keyboard.press("o")
    ui.apply()

    assert (worktree / "notes.md").exists()
    assert (worktree / "shop.py").read_text() == LATER


def test_menus_work_with_the_keyboard(ui: Ui, worktree: Path) -> None:
    ui.choose("Make the logo")
    ui.page.keyboard.press("m")
    expect(ui.page.get_by_role("menuitem", name="Restore to here")).to_be_focused()
    ui.page.keyboard.press("ArrowDown")
    ui.page.keyboard.press("ArrowDown")
    expect(ui.page.get_by_role("menuitem", name="Undo this and all later turns")).to_be_focused()
    ui.page.keyboard.press("Enter")
    ui.apply()

    assert (worktree / "logo.png").read_bytes() == picture(70, 80, 200)


def test_escape_leaves_everything_as_it_is(ui: Ui, worktree: Path) -> None:
    ui.page.keyboard.press("u")
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    ui.page.keyboard.press("Escape")

    expect(ui.dialog).to_have_count(0)
    assert (worktree / "shop.py").read_text() == LATER


def test_the_redo_bar_survives_a_reload(ui: Ui, worktree: Path) -> None:
    bar = ui.page.locator("#redo")
    expect(bar).to_be_hidden()
    ui.choose("Add tax")
    ui.page.keyboard.press("Enter")
    ui.apply()
    expect(bar).to_contain_text("3 turns undone")
    ui.page.reload()
    expect(bar).to_contain_text("3 turns undone")
    expect(bar).to_contain_text("Next: #2 Write tests")

    bar.get_by_role("button", name="Redo next").click()
    ui.apply()
    expect(bar).to_contain_text("2 turns undone")
    assert not (worktree / "notes.md").exists()
    bar.get_by_role("button", name="Redo all").click()
    ui.apply()
    expect(bar).to_be_hidden()
    assert (worktree / "shop.py").read_text() == LATER


def test_redo_to_an_undone_turn(ui: Ui, worktree: Path) -> None:
    ui.choose("Add tax")
    ui.page.keyboard.press("Enter")
    ui.apply()
    expect(ui.turn("Make the logo").locator(".badge.undone")).to_have_text("undone")
    ui.choose("Make the logo")
    ui.turn("Make the logo").get_by_role("button", name="Redo to here").click()
    ui.apply()

    assert (worktree / "logo.png").read_bytes() == picture(40, 160, 90)
    assert (worktree / "shop.py").read_text() == TAXED
    expect(ui.page.locator("#redo")).to_contain_text("1 turn undone")


def test_the_note_says_what_happened_and_leads_back(ui: Ui, worktree: Path) -> None:
    (worktree / "own.txt").write_text("mine")
    ui.page.get_by_role("button", name="Undo", exact=True).click()
    ui.apply()
    expect(ui.note).to_contain_text("1 turn undone")
    expect(ui.note).to_contain_text("1 file restored.")
    assert (worktree / "shop.py").read_text() == TAXED
    ui.note.get_by_role("button", name="Go back").click()
    ui.apply()

    assert (worktree / "shop.py").read_text() == LATER
    assert (worktree / "own.txt").read_text() == "mine"
    expect(ui.page.locator("#redo")).to_be_hidden()


def test_one_file_is_restored_alone(ui: Ui, worktree: Path) -> None:
    ui.choose("Write tests")
    ui.file("notes.md").get_by_role("button", name="Restore file").click()
    ui.page.get_by_role("menuitem", name="As it was before this turn").click()
    assert ui.planned() == {"notes.md": "created"}
    ui.apply()

    assert (worktree / "notes.md").read_text() == "ask Ana\n"
    assert (worktree / "tests" / "test_shop.py").exists()
    expect(ui.turn("Open until eight").locator(".badge.head")).to_have_text("current")


def test_one_step_is_undone_alone(shadow: Shadow, open_ui: Opener, worktree: Path) -> None:
    begin(shadow)
    with shadow.message("steps", text="Work in steps"):
        with shadow.step("edit a"):
            (worktree / "a").write_text("a")
        with shadow.step("edit b"):
            (worktree / "b").write_text("b")
    ui = open_ui()
    ui.turn("Work in steps").get_by_role("button", name="Text, files and steps").click()
    step = ui.turn("Work in steps").locator(".step-line", has_text="edit a")
    step.get_by_role("button", name="Undo only this step").click()
    ui.apply()

    assert not (worktree / "a").exists()
    assert (worktree / "b").exists()


def test_your_own_edits_come_first_unticked_and_are_kept(ui: Ui, worktree: Path) -> None:
    (worktree / "shop.py").write_text("# mine\n" + LATER)
    ui.turn("Start").hover()
    ui.turn("Start").get_by_role("button", name="Restore to here").click()

    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    assert next(iter(ui.planned().items())) == ("shop.py", "kept as yours")
    expect(ui.dialog.get_by_role("checkbox", name="Change shop.py")).not_to_be_checked()
    expect(ui.dialog.get_by_role("radio", name="Keep mine")).to_be_checked()
    ui.apply()
    assert (worktree / "shop.py").read_text() == "# mine\n" + LATER
    assert (worktree / "notes.md").exists()
    expect(ui.note).to_contain_text("1 kept as yours")


def test_your_own_edits_are_merged_if_you_tick_them(ui: Ui, worktree: Path) -> None:
    (worktree / "shop.py").write_text("# mine\n" + LATER)
    ui.page.keyboard.press("u")
    ui.dialog.get_by_role("checkbox", name="Change shop.py").check()
    expect(ui.dialog.locator(".own .what")).to_have_text("merged with your edits")
    ui.apply()

    assert (worktree / "shop.py").read_text() == "# mine\n" + TAXED


def test_your_own_edits_are_overwritten_if_you_say_so_and_come_back(ui: Ui, worktree: Path) -> None:
    (worktree / "shop.py").write_text("# mine\n" + LATER)
    ui.page.keyboard.press("u")
    ui.dialog.get_by_role("radio", name="Overwrite mine").check()
    expect(ui.dialog.locator(".own .what")).to_have_text("restored")
    ui.apply()
    assert (worktree / "shop.py").read_text() == TAXED
    ui.note.get_by_role("button", name="Go back").click()
    ui.apply()

    assert (worktree / "shop.py").read_text() == "# mine\n" + LATER


def test_strange_names_have_choices_of_their_own(shadow: Shadow, open_ui: Opener, worktree: Path) -> None:
    """`*` means all paths to the server, and the others are names that every object of JavaScript has."""
    names = ("*", "__proto__", "constructor", "toString")
    begin(shadow)
    Agent(shadow).work("strange", "Write strange names", dict.fromkeys(names, "theirs\n"))
    for name in names:
        (worktree / name).write_text("mine\n")
    ui = open_ui()
    ui.page.keyboard.press("u")
    expect(ui.dialog.locator(".own")).to_have_count(4)
    ui.dialog.get_by_role("checkbox", name="Change *").check()
    expect(ui.dialog.locator(".own .what").first).to_have_text("deleted")
    ui.apply()

    assert not (worktree / "*").exists()
    for name in names[1:]:
        assert (worktree / name).read_text() == "mine\n"


def test_lines_that_collide_are_shown_and_merged_only_with_markers(ui: Ui, worktree: Path) -> None:
    (worktree / "shop.py").write_text(LATER.replace("hour < 20", "hour < 22"))
    ui.page.keyboard.press("u")

    hunk = ui.dialog.locator(".hunk")
    expect(hunk).to_contain_text("return 9 <= hour < 22")
    expect(hunk).to_contain_text("return 9 <= hour < 18")
    expect(ui.dialog.get_by_role("radio", name="Merge", exact=True)).to_have_count(0)
    ui.dialog.get_by_role("radio", name="Merge, with markers where lines collide").check()
    expect(ui.dialog.locator(".own .what")).to_have_text("merged with your edits")
    ui.apply()
    text = (worktree / "shop.py").read_text()
    assert text.index("<<<<<<<") < text.index("hour < 22") < text.index("hour < 18") < text.index(">>>>>>>")


def test_edits_of_yours_are_a_row_with_their_diff(ui: Ui, worktree: Path) -> None:
    (worktree / "notes2.md").write_text("mine\n")
    ui.page.evaluate("window.dispatchEvent(new Event('focus'))")
    ui.turn("Your own edits since").locator(".turn-text").click()
    expect(ui.file("notes2.md")).to_contain_text("mine")
    ui.file("notes2.md").get_by_role("button", name="Restore file").click()
    ui.page.get_by_role("menuitem", name="Delete this new file").click()
    expect(ui.dialog.locator("h2")).to_have_text("Delete notes2.md?")
    ui.apply()

    assert not (worktree / "notes2.md").exists()


def test_edits_of_yours_that_an_undo_saved_are_still_shown(ui: Ui, shadow: Shadow, worktree: Path) -> None:
    (worktree / "prices.json").write_text("{}\n")
    shadow.undo()
    ui.page.evaluate("window.dispatchEvent(new Event('focus'))")
    ui.turn("Your own edits since").locator(".turn-text").click()

    expect(ui.page.locator("#diff-files")).to_contain_text("saved with your last undo or redo")
    expect(ui.file("prices.json").locator("tr.add")).to_contain_text("{}")
    expect(ui.page.get_by_role("button", name="Discard these edits")).to_have_count(0)
    (worktree / "own.txt").write_text("mine\n")
    ui.page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(ui.file("own.txt")).to_contain_text("mine")
    expect(ui.file("prices.json")).to_be_visible()
    ui.turn("Your own edits since").get_by_role("button", name="Discard these edits").click()
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    assert ui.planned() == {"own.txt": "deleted"}


def test_only_the_last_note_leads_back(ui: Ui, shadow: Shadow, worktree: Path) -> None:
    """The way back reverses the last act, so that of an older note would reverse another one."""
    back = ui.page.get_by_role("button", name="Go back")
    for expected in (TAXED, TAXED):
        ui.page.keyboard.press("u")
        ui.apply()
        expect(back).to_have_count(1)
        assert (worktree / "shop.py").read_text() == expected
    expect(ui.page.locator(".note")).to_have_count(2)
    expect(ui.note.get_by_role("button", name="Go back")).to_be_visible()
    shadow.redo()

    expect(back).to_have_count(0)


def test_a_question_ends_with_one_mark(agent: Agent, open_ui: Opener) -> None:
    agent.work("list", "Do this:\n- a\n- b", {"a": "1"})
    ui = open_ui()
    ui.page.keyboard.press("o")

    expect(ui.dialog.locator("h2")).to_have_text("Undo only #5 Do this?")


def test_reasons_name_turns_and_not_ids(ui: Ui, worktree: Path) -> None:
    (worktree / "shop.py").write_text("# mine\n" + LATER)
    ui.page.keyboard.press("u")

    expect(ui.dialog.locator(".own p").first).to_have_text("it was edited after turn #4")


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("tests/test_shop.py", "Delete it, as before this turn"),
        ("notes.md", "Delete it, as after this turn"),
    ],
    ids=["added", "deleted"],
)
def test_restoring_a_file_to_when_it_was_not_there_is_called_deleting(
    ui: Ui, worktree: Path, path: str, label: str
) -> None:
    (worktree / "notes.md").write_text("ask Ana\n")
    ui.choose("Write tests")
    ui.file(path).get_by_role("button", name="Restore file").click()
    ui.page.get_by_role("menuitem", name=label).click()
    expect(ui.dialog.locator("h2")).to_have_text(f"Delete {path}?")
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    assert ui.planned() == {path: "deleted"}
    ui.apply()

    assert not (worktree / path).exists()


def test_all_edits_of_yours_are_discarded_and_come_back(ui: Ui, shadow: Shadow, worktree: Path) -> None:
    shadow.revert("tax", only=True)
    without_tax = (worktree / "shop.py").read_text()
    (worktree / "shop.py").write_text("mine\n")
    ui.page.evaluate("window.dispatchEvent(new Event('focus'))")
    ui.turn("Your own edits since").hover()
    ui.turn("Your own edits since").get_by_role("button", name="Discard these edits").click()
    assert ui.planned() == {"shop.py": "restored"}
    ui.apply()
    assert (worktree / "shop.py").read_text() == without_tax
    ui.note.get_by_role("button", name="Go back").click()
    ui.apply()

    assert (worktree / "shop.py").read_text() == "mine\n"


def test_nothing_to_redo_says_so(ui: Ui) -> None:
    ui.page.keyboard.press("r")

    expect(ui.dialog).to_contain_text("nothing to")
    expect(ui.dialog.get_by_role("button", name="Nothing to do")).to_be_disabled()


def test_a_turn_of_several_messages_is_one_row(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    agent.work("ask", "Please add a licence", {}, role="user")
    agent.work("answer", "Adding it", {"LICENSE": "MIT\n"}, role="assistant")
    ui = open_ui()
    expect(ui.turn("Adding it")).to_have_count(0)
    ui.turn("Please add a licence").get_by_role("button", name="Text, files and steps").click()
    expect(ui.turn("Please add a licence")).to_contain_text("Adding it")
    ui.page.keyboard.press("u")
    expect(ui.dialog.locator(".dialog-head p")).to_contain_text("undoes 1 turn")
    ui.apply()

    assert not (worktree / "LICENSE").exists()
