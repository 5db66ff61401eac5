"""The page as a person uses it: what is there, what is clicked, and the files on disk afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowtree import Shadow
from tests.browser.chromium import PATIENCE_MS, WATCH_POLICY, Locator, Page, expect

Writes = dict[str, str | bytes | None]
"""The content of each file; None deletes it."""


@dataclass
class Ui:
    """One tab with the page."""

    page: Page
    problems: list[str] = field(default_factory=list)
    """Errors in the console."""

    @property
    def dialog(self) -> Locator:
        """The dialog that is open."""
        return self.page.locator("dialog[open]")

    @property
    def note(self) -> Locator:
        """The last note."""
        return self.page.locator(".note").last

    def open(self, address: str) -> Ui:
        """Go to the page, and wait until the turns are there."""
        self.page.goto(address)
        self.page.wait_for_selector(".turn")
        return self

    def turn(self, text: str) -> Locator:
        """A turn in the middle by its text."""
        return self.page.locator(".turn").filter(has=self.page.locator(".turn-text", has_text=text))

    def lane(self, text: str) -> Locator:
        """A turn on the left by its text."""
        return self.page.locator(".lane-row").filter(has_text=text)

    def choose(self, text: str) -> None:
        """Click on a turn, and wait for its diff."""
        self.turn(text).locator(".turn-text").click()
        expect(self.page.locator("#diff-title")).to_contain_text(text)
        expect(self.page.locator("#diff-files")).to_have_attribute("aria-busy", "false")

    def file(self, path: str) -> Locator:
        """A file of the diff."""
        return self.page.locator(f'.file[aria-label="{path}"]')

    def press(self, label: str) -> None:
        """Press a button of the dialog."""
        self.dialog.get_by_role("button", name=label, exact=True).click()

    def apply(self) -> None:
        """Confirm the plan, and wait until it is done."""
        self.press("Apply")
        expect(self.dialog).to_have_count(0)

    def planned(self) -> dict[str, str]:
        """What the dialog says of each file."""
        expect(self.dialog.get_by_role("button", name="Apply", exact=True)).to_be_visible()
        rows = self.dialog.locator(".plan-file:has(.what)").all()
        return {row.locator(".path").text_content(): row.locator(".what").text_content() for row in rows}

    def forgive(self, status: int) -> None:
        """Forget that the console lists answers with this status, one for each."""
        told = f"the server responded with a status of {status}"
        assert any(told in problem for problem in self.problems)
        self.problems = [problem for problem in self.problems if told not in problem]

    def check(self) -> None:
        """Fail if anything was written to the console, or the policy stopped anything."""
        assert self.problems == []
        assert self.page.evaluate("window.violations") == []


def new_ui(context: Any) -> Ui:  # Any: a context of Playwright
    """Open a tab that notes every problem."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(WATCH_POLICY)
    ui = Ui(page)
    page.on("console", lambda said: ui.problems.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: ui.problems.append(str(error)))
    return ui


class Agent:
    """Stands for an agent: each call is a turn that writes and deletes files."""

    def __init__(self, shadow: Shadow) -> None:
        self.shadow = shadow

    def work(
        self,
        id: str,
        text: str,
        writes: Writes,
        *,
        agent: str | None = None,
        **said: Any,
    ) -> None:  # Any: what else a message can carry
        """Record a turn. A content of None deletes the file."""
        meta = {"agent": agent} if agent else None
        with self.shadow.message(id, text=text, meta=meta, **said):
            write(self.shadow.worktree, writes)


def write(root: Path, writes: Writes) -> None:
    """Write files, or delete those with None."""
    for name, content in writes.items():
        path = root / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
