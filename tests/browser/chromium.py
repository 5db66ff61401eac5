"""A headless Chromium, driven by Playwright. Loaded by the tests that need it and by nothing else.

SHADOWTREE_CHROMIUM   the program to use; without it the first of `chromium` and its other names
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Page = Any  # Any: Playwright is not installed where the types are checked
Locator = Any  # Any: the same

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 20_000
"""How long to wait for what happens at once on a machine that has nothing else to do."""
WATCH_POLICY = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


def find_chromium() -> str:
    """Return the path of the browser; to have none is a failure."""
    named = os.environ.get("SHADOWTREE_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise FileNotFoundError("no Chromium: install it, as with 'apt-get install chromium'")
    return found


@contextmanager
def launched() -> Iterator[Any]:  # Any: a browser of Playwright
    """Run the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def expect(found: Any) -> Any:  # Any: assertions of Playwright
    """Wait until something is true of a page or an element."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    return expect(found)


def axe_violations(page: Page) -> list[str]:
    """Return what axe finds wrong: rule and element."""
    from importlib.resources import files

    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
