"""Two pages and a terminal at once: each sees the others, and an outdated plan is never carried out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from shadowtree import Shadow
from tests.browser.chromium import expect
from tests.browser.conftest import Opener
from tests.browser.stories import LATER, TAXED
from tests.browser.ui import Agent, Ui, new_ui
from tests.support.processes import COMMAND, surroundings

pytestmark = pytest.mark.browser


def run(worktree: Path, *words: str) -> str:
    """Run a command line in a terminal."""
    command = [*COMMAND, "-C", str(worktree), *words]
    return subprocess.run(command, env=surroundings(), check=True, capture_output=True, text=True).stdout


def test_each_sees_what_the_others_do_within_a_second(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    tabs = open_ui(), open_ui()
    for ui in tabs:
        expect(ui.page.locator("#live")).to_have_text("Live")
    seconds = []
    for number in range(3):
        run(worktree, "begin", f"typed{number}", "-m", f"Typed {number}")
        (worktree / "typed").write_text(f"{number}")
        run(worktree, "end")
        began = monotonic()
        for ui in tabs:
            expect(ui.turn(f"Typed {number}").locator(".badge.head")).to_be_visible()
        seconds.append(monotonic() - began)

    # Of three, the best: other programs share the machine.
    assert min(seconds) < 1, seconds


def test_a_page_a_terminal_and_another_page_take_turns(agent: Agent, open_ui: Opener, worktree: Path) -> None:
    first, second = open_ui(), open_ui()
    first.page.keyboard.press("u")
    first.apply()
    expect(second.page.locator("#redo")).to_contain_text("1 turn undone")
    assert json.loads(run(worktree, "--json", "status"))["undone"] == ["hours"]
    run(worktree, "redo")
    for ui in (first, second):
        expect(ui.page.locator("#redo")).to_be_hidden()
    second.page.keyboard.press("u")
    second.apply()

    expect(first.page.locator("#redo")).to_contain_text("1 turn undone")
    assert (worktree / "shop.py").read_text() == TAXED


def test_a_turn_at_work_is_shown_until_it_ends(ui: Ui, shadow: Shadow, worktree: Path) -> None:
    shadow.begin("long", text="A long turn")
    expect(ui.turn("A long turn").locator(".badge.open")).to_have_text("at work")
    ui.choose("A long turn")
    (worktree / "made.py").write_text("x = 1\n")
    shadow.end("long")

    expect(ui.turn("A long turn").locator(".badge.head")).to_have_text("current")
    expect(ui.file("made.py")).to_contain_text("x = 1")
    expect(ui.page.locator("#spoken")).to_have_text("A turn was recorded")


def test_a_hidden_tab_hangs_up_and_catches_up(ui: Ui, worktree: Path) -> None:
    """Browsers allow six connections to one server, for all tabs together."""
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); " + (
        "document.dispatchEvent(new Event('visibilitychange')); }"
    )
    expect(ui.page.locator("#live")).to_have_text("Live")
    ui.page.evaluate(hide, True)
    expect(ui.page.locator("#live")).to_have_text("Reconnecting…")
    run(worktree, "undo")
    ui.page.evaluate(hide, False)

    expect(ui.page.locator("#redo")).to_contain_text("1 turn undone")
    expect(ui.page.locator("#live")).to_have_text("Live")


def test_an_outdated_plan_is_shown_anew_and_not_carried_out(ui: Ui, worktree: Path) -> None:
    ui.page.keyboard.press("u")
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    run(worktree, "undo")
    assert (worktree / "shop.py").read_text() == TAXED
    ui.press("Apply")

    expect(ui.dialog.get_by_role("alert")).to_contain_text("nothing was done")
    ui.forgive(409)
    expect(ui.dialog).to_contain_text("Make the logo green")
    assert ui.planned() == {"logo.png": "restored"}
    before = (worktree / "logo.png").read_bytes()
    ui.apply()
    assert (worktree / "logo.png").read_bytes() != before


def test_a_file_that_you_save_meanwhile_is_not_overwritten(ui: Ui, worktree: Path) -> None:
    ui.page.keyboard.press("u")
    expect(ui.dialog.get_by_role("button", name="Apply")).to_be_enabled()
    (worktree / "shop.py").write_text(LATER + "# saved meanwhile\n")
    ui.press("Apply")

    expect(ui.dialog.get_by_role("alert")).to_contain_text("nothing was done")
    ui.forgive(409)
    assert next(iter(ui.planned().items())) == ("shop.py", "kept as yours")
    assert (worktree / "shop.py").read_text() == LATER + "# saved meanwhile\n"


@pytest.fixture
def command(agent: Agent, shadow: Shadow) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command `shadowtree ui` as a process, and the address that it prints."""
    shadow.close()
    words = [*COMMAND, "-C", str(shadow.worktree), "--json", "ui", "--no-open"]
    with subprocess.Popen(words, env=surroundings(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
        process.terminate()


def test_the_command_serves_the_page(
    command: tuple[subprocess.Popen[str], str], open_ui: Opener, worktree: Path
) -> None:
    ui = open_ui(command[1])
    ui.page.keyboard.press("u")
    ui.apply()

    assert (worktree / "shop.py").read_text() == TAXED


def test_the_page_notices_that_the_server_ended(
    command: tuple[subprocess.Popen[str], str], browser: object, worktree: Path
) -> None:
    process, address = command
    context = browser.new_context()  # type: ignore[attr-defined]  # Playwright has no types here
    ui = new_ui(context).open(address)
    expect(ui.page.locator("#live")).to_have_text("Live")
    process.terminate()

    expect(ui.page.locator("#live")).to_have_text("Reconnecting…")
    context.close()


def wait_for_reading(ui: Ui) -> None:
    """Wait until the page has read the timeline again since `clearResourceTimings`."""
    ui.page.wait_for_function(
        "performance.getEntriesByType('resource').some((each) => each.name.includes('/api/timeline'))"
    )


def test_a_click_is_not_lost_when_the_page_reads_again_between_press_and_release(
    agent: Agent, open_ui: Opener, worktree: Path
) -> None:
    ui = open_ui()
    for undone in ("1 turn undone", "2 turns undone"):
        ui.page.keyboard.press("u")
        ui.apply()
        expect(ui.page.locator("#redo")).to_contain_text(undone)
    ui.page.locator("#redo").get_by_role("button", name="Redo next").hover()
    ui.page.mouse.down()
    ui.page.evaluate("performance.clearResourceTimings()")
    run(worktree, "redo")
    wait_for_reading(ui)
    ui.page.mouse.up()

    expect(ui.dialog).to_contain_text("Redo the next turn?")
    expect(ui.page.locator("#redo")).to_contain_text("1 turn undone")


def test_a_button_of_the_redo_bar_keeps_the_focus_when_the_page_reads_again(
    agent: Agent, open_ui: Opener, worktree: Path
) -> None:
    ui = open_ui()
    ui.page.keyboard.press("u")
    ui.apply()
    button = ui.page.locator("#redo").get_by_role("button", name="Redo next")
    button.focus()
    ui.page.evaluate("performance.clearResourceTimings()")
    run(worktree, "--session", "other", "snapshot", "elsewhere")
    wait_for_reading(ui)

    expect(ui.page.locator("#sessions")).to_contain_text("other")
    expect(button).to_be_focused()
