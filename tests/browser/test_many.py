"""Ten thousand messages: the page opens at once and scrolls."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.browser.chromium import expect
from tests.browser.ui import Ui, new_ui
from tests.support.memory import make_place

pytestmark = pytest.mark.browser

MESSAGES = 10_000
MOST_MS = 300
OPENED = "performance.getEntriesByName('shadowtree-drawn')[0].startTime"


@pytest.fixture(scope="module")
def worktree_of_many() -> Iterator[Path]:
    """A directory in memory, because much is written to it."""
    place = make_place()
    (place / "worktree").mkdir()
    yield place / "worktree"
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def many(worktree_of_many: Path) -> Iterator[Server]:
    """A server of a session with ten thousand messages."""
    worktree, store = worktree_of_many, worktree_of_many.parent / "store"
    with Shadow(worktree, store=store, settings={"min_free": 0}) as shadow:
        shadow.track()
        for number in range(1, MESSAGES + 1):
            Path(worktree, f"file{number % 20}").write_text(f"{number}\n")
            shadow.snapshot(f"m{number}", text=f"Turn number {number}", meta={"agent": "claude"})
        with Server(shadow, port=0) as server:
            yield server


@pytest.fixture
def page(browser: Any, many: Server) -> Iterator[Ui]:  # Any: a browser of Playwright
    """The page with ten thousand messages."""
    context = browser.new_context(viewport={"width": 1400, "height": 860}, reduced_motion="reduce")
    ui = new_ui(context).open(many.url)
    yield ui
    ui.check()
    context.close()


def test_it_opens_in_less_than_300_ms(page: Ui, record_property: Any) -> None:  # Any: pytest's
    times = []
    for _ in range(5):
        expect(page.page.locator("#health")).to_contain_text("MB")  # All that follows the turns is read, too.
        page.page.reload()
        expect(page.turn("Turn number 10000")).to_be_visible()
        times.append(page.page.evaluate(OPENED))
    record_property("opened_ms", times)

    # Of five, the best: other programs share the machine.
    assert min(times) < MOST_MS, times
    print(f"opened in {statistics.median(times):.0f} ms, {min(times):.0f} at best")  # noqa: T201  the figure


def test_it_scrolls_with_few_rows_in_the_document(page: Ui) -> None:
    rows = page.page.get_by_role("list", name="Turns").get_by_role("listitem")
    expect(rows.first).to_have_attribute("aria-setsize", str(MESSAGES + 1))
    expect(page.turn("Turn number 10000")).to_be_visible()
    for part, text in ((0, "Turn number 1"), (0.5, "Turn number 50"), (1, "Turn number 10000")):
        page.page.locator("#turns .scroll").evaluate("(e, part) => e.scrollTop = e.scrollHeight * part", part)
        expect(page.turn(text).first).to_be_visible()
        assert rows.count() < 50


def test_an_early_turn_is_found_and_restored(page: Ui, many: Server, worktree_of_many: Path) -> None:
    page.page.keyboard.press("/")
    page.page.keyboard.type("Turn number 9001")
    page.turn("Turn number 9001").locator(".turn-text").click()
    expect(page.file("file1")).to_contain_text("9001")
    page.page.keyboard.press("Enter")
    expect(page.dialog.locator(".dialog-head p")).to_have_text("This undoes 999 turns and changes 20 files.")
    page.apply()
    assert (worktree_of_many / "file1").read_text() == "9001\n"
    page.page.locator("#find").fill("Turn number 9100")  # It is not among the newest rows.
    expect(page.turn("Turn number 9100").locator(".badge.undone")).to_have_text("undone")
    page.page.locator("#redo").get_by_role("button", name="Redo all").click()
    page.apply()

    assert (worktree_of_many / "file1").read_text() == "9981\n"
