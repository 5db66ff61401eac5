"""Fixtures of the browser tests: one browser for all, a page of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.browser import stories
from tests.browser.chromium import launched
from tests.browser.ui import Agent, Ui, new_ui

Opener = Callable[..., Ui]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:  # Any: a browser of Playwright
    """The browser."""
    with launched() as browser:
        yield browser


@pytest.fixture
def server(shadow: Shadow) -> Iterator[Server]:
    """The real server, for the shadow of the test."""
    with Server(shadow, port=0) as server:
        yield server


@pytest.fixture
def open_ui(browser: Any, server: Server) -> Iterator[Opener]:  # Any: a browser of Playwright
    """Open a tab with the page; options are those of a context. At the end none may have had a problem."""
    contexts, tabs = [], []

    def open_ui(address: str | None = None, **options: object) -> Ui:
        context = browser.new_context(
            **{"viewport": {"width": 1400, "height": 860}, "reduced_motion": "reduce", **options}
        )
        contexts.append(context)
        ui = new_ui(context)
        tabs.append(ui)
        return ui.open(address or server.url)

    yield open_ui
    for ui in tabs:
        ui.check()
    for context in contexts:
        context.close()


@pytest.fixture
def agent(shadow: Shadow) -> Agent:
    """An agent that did four turns in a small shop."""
    return stories.tell(shadow)


@pytest.fixture
def ui(agent: Agent, open_ui: Opener) -> Ui:
    """The page with these four turns."""
    return open_ui()
