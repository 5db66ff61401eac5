"""Make the pictures of the page that docs/ui.md and README.md show.

python -m tests.browser.screenshots [DIRECTORY]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns
from typing import Any

from shadowtree import Shadow
from shadowtree.base.frozen import replace
from shadowtree.base.limits import DEFAULT_LIMITS
from shadowtree.web.server import Server
from tests.browser.chromium import expect, launched
from tests.browser.stories import LATER, TAXED, begin, picture
from tests.browser.ui import Ui, new_ui

PLACE = Path(__file__).parents[2] / "docs" / "screenshots"
WIDE = {"width": 1240, "height": 720}
PHONE = {"width": 390, "height": 760}
RATES = '''RATES = {"de": 0.19, "fr": 0.2}


def rate(country):
    """Look up the tax of a country."""
    return RATES[country]
'''
TESTS = "from rates import rate\n\n\ndef test_rate():\n    assert rate('de') == 0.19\n"
BY_COUNTRY = TAXED.replace("(1 + TAX)", "(1 + rate(country))").replace(
    "total(items, prices)", "total(items, prices, country)"
)
MINUTE_NS = 60_000_000_000


class Clock:
    """Goes when it is told to, so that the turns are not all of the same second."""

    def __init__(self, minutes_ago: int) -> None:
        self.now_ns = time_ns() - minutes_ago * MINUTE_NS

    def __call__(self) -> int:
        """Tell the time; it never stands still."""
        self.now_ns += 1_000_000
        return self.now_ns

    def wait(self, minutes: int) -> None:
        """Let minutes go by."""
        self.now_ns += minutes * MINUTE_NS


def tell(shadow: Shadow, clock: Clock) -> None:
    """An afternoon in the shop: two branches, undone turns, steps, and an edit of one's own."""
    agent = begin(shadow)
    agent.work("tax", "Add tax to the total\n\nRound it to cents.", {"shop.py": TAXED}, agent="claude")
    clock.wait(20)
    agent.work("hours", "Open until eight", {"shop.py": LATER}, agent="claude")
    clock.wait(5)
    agent.work("logo", "Make the logo green", {"logo.png": picture(40, 160, 90)}, agent="codex")
    shadow.undo(2)
    clock.wait(9)
    agent.work(
        "env",
        "Read the tax rate from the environment",
        {"shop.py": TAXED.replace("0.19", 'os.environ["TAX"]')},
        agent="codex",
    )
    shadow.undo(1)
    clock.wait(14)
    with shadow.message("rates", text="Look up the tax rate by country", meta={"agent": "claude"}):
        with shadow.step("Write rates.py"):
            (shadow.worktree / "rates.py").write_text(RATES)
        with shadow.step("Edit shop.py"):
            (shadow.worktree / "shop.py").write_text(BY_COUNTRY)
        with shadow.step("Bash rm notes.md"):
            (shadow.worktree / "notes.md").unlink()
    clock.wait(12)
    agent.work("tests", "Write tests for the rates", {"tests/test_rates.py": TESTS}, agent="claude")
    clock.wait(8)
    agent.work(
        "swiss", "Add Switzerland", {"rates.py": RATES.replace("0.2}", '0.2, "ch": 0.081}')}, agent="claude"
    )
    clock.wait(3)
    agent.work(
        "type",
        "Add types everywhere",
        {"rates.py": RATES.replace("country)", "country: str) -> float")},
        agent="claude",
    )
    shadow.undo(2)
    (shadow.worktree / "shop.py").write_text(BY_COUNTRY.replace("hour < 18", "hour < 19"))


def show_main(ui: Ui) -> None:
    """The three panes, with a turn chosen."""
    ui.choose("Look up the tax rate")
    ui.page.keyboard.press("s")
    expect(ui.turn("Look up the tax rate").locator(".step-line").first).to_be_visible()


def show_plan(ui: Ui) -> None:
    """The dialog before an act, with an edit of one's own."""
    ui.choose("Add tax")
    ui.page.keyboard.press("Enter")
    expect(ui.dialog.locator(".own")).to_be_visible()


def show_branches(ui: Ui) -> None:
    """The branches of one point."""
    ui.choose("Add tax")
    ui.page.keyboard.press("b")
    expect(ui.dialog.locator(".branch-turn").first).to_be_visible()


def show_phone(ui: Ui) -> None:
    """The turns at a phone's width."""
    ui.turn("Look up the tax rate").locator(".turn-text").click()


VIEWS = {
    "main": (show_main, WIDE),
    "plan": (show_plan, WIDE),
    "branches": (show_branches, WIDE),
    "phone": (show_phone, PHONE),
}


def take(browser: Any, address: str, place: Path) -> None:  # Any: a browser of Playwright
    """Take every view, light and dark."""
    for scheme in ("light", "dark"):
        for name, (show, size) in VIEWS.items():
            context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            ui = new_ui(context).open(address)
            expect(ui.turn("Your own edits since")).to_be_visible()
            expect(ui.page.locator("#health")).to_contain_text("healthy")
            show(ui)
            ui.page.screenshot(path=place / f"{name}-{scheme}.png", animations="disabled", caret="hide")
            ui.check()
            context.close()


def main(place: Path) -> None:
    """Make the pictures."""
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory()))
        (root / "shop").mkdir()
        clock = Clock(minutes_ago=75)
        limits = replace(DEFAULT_LIMITS, clock_ns=clock)
        shadow = stack.enter_context(
            Shadow(root / "shop", store=root / "store", settings={"min_free": 0}, limits=limits)
        )
        tell(shadow, clock)
        server = stack.enter_context(Server(shadow, port=0))
        take(stack.enter_context(launched()), server.url, place)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PLACE)
