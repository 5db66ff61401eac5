"""Prompts, names and branches are hostile: they are shown as text, and nothing of them runs."""

from __future__ import annotations

import os

import pytest

from shadowtree import Shadow
from shadowtree.web.server import Server
from tests.browser.chromium import expect
from tests.browser.conftest import Opener
from tests.browser.stories import begin
from tests.browser.ui import Agent, Ui

pytestmark = pytest.mark.browser

MARKUP = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
BIDI = "invoice\u202egpj.exe"
NAMES = (
    "<img src=x onerror=window.ran=1>",
    BIDI,
    "two\nlines",
    "a&amp;b",
    "'\"quoted`${window.ran=1}",
    "javascript:window.ran=1",
)


READ = """([address, token]) => fetch(address, {headers: {Authorization: `Bearer ${token}`}})
  .then(() => "read", () => "refused")"""
SEND = """address => fetch(address, {method: "POST", body: "{}", mode: "no-cors"}).catch(() => {})"""
FRAME = """address => new Promise((done) => {
  const frame = document.querySelector("iframe");
  frame.onload = done;
  frame.src = address;
})"""


@pytest.fixture
def hostile(shadow: Shadow, open_ui: Opener) -> Ui:
    """A page where every text wants to be markup."""
    agent = begin(shadow)
    agent.work("<b>id</b>", f"{MARKUP}\n{BIDI}\nlast line", dict.fromkeys(NAMES, f"{MARKUP}\n"), agent=MARKUP)
    with shadow.message("steps", text=MARKUP), shadow.step(MARKUP):
        (shadow.worktree / "x.py").write_text(f"'''{MARKUP}\n")
    raw = os.fsencode(shadow.worktree) + b"/not-utf-8-\xff"
    with shadow.message("raw", text="Write a name of bytes"), open(raw, "w") as file:
        file.write("bytes\n")
    shadow.undo(1)
    agent.work("new", "Go on", {"y": "1"})
    shadow.rename_branch(shadow.branches()[0].name, "<img src=x onerror=window.ran=1>")
    Agent(shadow.for_session("<i>s</i>")).work("s1", MARKUP, {"z": "1"})
    ui = open_ui()
    ui.page.get_by_role("combobox", name="Session").select_option("default")
    expect(ui.turn("Go on")).to_be_visible()
    return ui


def assert_nothing_ran(ui: Ui) -> None:
    """Fail if any text ran, or became markup."""
    assert ui.page.evaluate("window.ran === undefined")
    for markup in ("img:not([src^=blob])", "script:not([type=module])", "b", ".turn i", ".file i"):
        assert ui.page.locator(f"body {markup}").count() == 0, markup


def test_texts_are_shown_as_text(hostile: Ui) -> None:
    turn = hostile.page.locator(".turn").nth(1)
    expect(turn.locator(".turn-text")).to_have_text(MARKUP)
    turn.locator(".turn-text").click()
    turn.locator(".fold").click()
    expect(turn.locator(".turn-said")).to_have_text(f"{MARKUP}\ninvoice\\u202egpj.exe\nlast line")
    names = set(turn.locator("button.file-line .path").all_text_contents())

    assert names == {
        "<img src=x onerror=window.ran=1>",
        "invoice\\u202egpj.exe",
        "two\\nlines",
        "a&amp;b",
        "'\"quoted`${window.ran=1}",
        "javascript:window.ran=1",
    }
    expect(hostile.page.locator(".file").first).to_contain_text(MARKUP)
    assert_nothing_ran(hostile)


def test_dialogs_and_menus_show_text(hostile: Ui, shadow: Shadow) -> None:
    hostile.page.locator(".turn").nth(1).click(button="right")
    hostile.page.get_by_role("menuitem", name="Undo this and all later turns").click()
    hostile.planned()
    expect(hostile.dialog).to_contain_text("invoice\\u202egpj.exe")
    hostile.apply()
    hostile.page.get_by_role("button", name="1 branch from here").first.click()
    expect(hostile.dialog.get_by_role("tab")).to_contain_text("<img src=x")

    assert_nothing_ran(hostile)
    assert not any((shadow.worktree / name).exists() for name in NAMES)


def test_a_name_of_bytes_can_be_shown_and_restored(hostile: Ui, shadow: Shadow) -> None:
    raw = os.fsencode(shadow.worktree) + b"/not-utf-8-\xff"
    assert not os.path.exists(raw)
    hostile.page.get_by_role("button", name="1 branch from here").first.click()
    hostile.press("Redo entire branch")
    assert "not-utf-8-\\xff" in hostile.planned()
    hostile.apply()
    assert os.path.exists(raw)
    hostile.choose("Write a name of bytes")
    expect(hostile.page.locator(".file")).to_contain_text("bytes")
    hostile.page.locator(".file").get_by_role("button", name="Restore file").click()
    hostile.page.get_by_role("menuitem", name="Delete it, as before this turn").click()
    hostile.apply()

    assert not os.path.exists(raw)
    assert_nothing_ran(hostile)


def test_the_token_leaves_the_address_at_once(ui: Ui, server: Server) -> None:
    assert server.token not in ui.page.url
    assert server.token not in ui.page.content()
    ui.page.go_back()
    assert server.token not in ui.page.url


def test_a_page_without_the_token_shows_nothing(
    agent: Agent, server: Server, open_ui: Opener, browser: object
) -> None:
    context = browser.new_context()  # type: ignore[attr-defined]  # Playwright has no types here
    page = context.new_page()
    page.goto(server.url.partition("#")[0])
    expect(page.get_by_role("alert")).to_contain_text("This page has no valid key")
    page.goto(server.url.partition("#")[0] + "#wrong")
    expect(page.get_by_role("alert")).to_contain_text("This page has no valid key")

    assert page.locator(".turn").count() == 0
    context.close()


def test_another_page_cannot_frame_or_read_it(agent: Agent, server: Server, browser: object) -> None:
    context = browser.new_context()  # type: ignore[attr-defined]  # Playwright has no types here
    page = context.new_page()
    page.route(
        "http://evil.test/**", lambda route: route.fulfill(body="<iframe></iframe>", content_type="text/html")
    )
    page.goto("http://evil.test/")
    address = server.url.partition("#")[0]

    assert page.evaluate(READ, [f"{address}api/state", server.token]) == "refused"
    page.evaluate(SEND, f"{address}api/undo")
    page.evaluate(FRAME, address)
    assert all(frame.locator(".turn, .brand").count() == 0 for frame in page.frames[1:])
    assert agent.shadow.status().undone == []
    context.close()
