"""The keys of the picker: a state and a key in, the new state and perhaps a request out. Pure.

A page has keys of its own, in `pages`; `terminal` reads them from the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable

from shadowtree.base.frozen import replace
from shadowtree.picker import scrolling
from shadowtree.picker.model import State, choose_rows, go_to, header_lines, open_page, tell
from shadowtree.picker.pages import Page, PlanPage, TextPage
from shadowtree.picker.requests import Act, Preview, Quit, Request, ShowBranches, ShowDiff, ShowFiles
from shadowtree.picker.texts import HELP, describe_steps


def press(state: State, key: str) -> tuple[State, Request | None]:
    """Return the state after a key, and the request that the key makes, if any."""
    if key == "hangup":
        return state, Quit()
    if state.is_too_small:
        return state, Quit() if key == "q" else None
    if state.is_typing:
        return _type(state, key)
    state = tell(state, "")
    if state.page is not None:
        return _press_page(state, state.page, key)
    if key in ("q", "escape"):
        if key == "escape" and state.query:
            return choose_rows(state, ""), None
        return state, Quit()
    move = scrolling.LETTERS.get(key, key)
    if move in scrolling.MOVES:
        to = scrolling.move(move, state.at, total=len(state.rows), height=state.height)
        return replace(go_to(state, to), wants_end=move == "end" and not state.has_all), None
    return _KEYS[key](state) if key in _KEYS else (state, None)


def _press_page(state: State, page: Page, key: str) -> tuple[State, Request | None]:
    if key in ("q", "escape") or (key == "n" and isinstance(page, PlanPage)):
        return replace(state, pages=state.pages[:-1]), None
    if key == "?" and not (isinstance(page, TextPage) and page.title == HELP.title):
        return _show_help(state)
    changed, request = page.press(key, _page_height(state, page))
    return replace(state, pages=(*state.pages[:-1], changed)), request


def _page_height(state: State, page: Page) -> int:
    """Return how many lines of a page scroll."""
    if isinstance(page, PlanPage):
        return max(1, state.height - header_lines(page, state))
    return state.height


# The list


def _confirm(state: State) -> tuple[State, Request | None]:
    message = state.row.message
    if message is None and len(state.rows) == 1:
        return tell(state, "There is no message to go back to."), None
    if message is None:
        return tell(state, "This is now. Choose a message to go back to before it."), None
    return state, Preview(Act("redo_to" if state.row.is_redoable else "back", message.id))


def _undo_only(state: State) -> tuple[State, Request | None]:
    message = state.row.message
    if message is None:
        return tell(state, "This is now. Choose the message to undo."), None
    if message.state == "undone":
        return tell(state, f"#{message.number} is undone already."), None
    return state, Preview(Act("only", message.id))


def _show_steps(state: State) -> tuple[State, Request | None]:
    message = state.row.message
    if message is None or not message.steps:
        return tell(state, "No steps were recorded here."), None
    return open_page(
        state, TextPage(f"Steps of #{message.number}", tuple(describe_steps(message.steps)))
    ), None


def _show_branches(state: State) -> tuple[State, Request | None]:
    return state, ShowBranches(state.row.message if state.row.lines_on > 1 else None)


def _show_help(state: State) -> tuple[State, Request | None]:
    return open_page(state, HELP), None


_KEYS: dict[str, Callable[[State], tuple[State, Request | None]]] = {
    "enter": _confirm,
    "d": lambda state: (state, ShowDiff(state.row.message)),
    "f": lambda state: (state, ShowFiles(state.row.message)),
    "s": _show_steps,
    "/": lambda state: (replace(state, is_typing=True), None),
    "b": _show_branches,
    "u": lambda state: (state, Preview(Act("undo"))),
    "r": lambda state: (state, Preview(Act("redo"))),
    "o": _undo_only,
    "z": lambda state: (state, Preview(Act("unrevert"))),
    "?": _show_help,
}


# The filter


def _type(state: State, key: str) -> tuple[State, Request | None]:
    """Handle a key while the filter is being typed."""
    if key == "enter":
        return replace(state, is_typing=False), None
    if key == "escape":
        return choose_rows(replace(state, is_typing=False), ""), None
    if key == "backspace":
        return _find_match(choose_rows(state, state.query[:-1])), None
    if key in ("up", "down", "page_up", "page_down"):
        return press(replace(state, is_typing=False), key)
    if len(key) == 1 and key.isprintable():
        # A longer filter finds only rows that the shorter one found.
        return _find_match(choose_rows(state, state.query + key, state.rows)), None
    return state, None


def _find_match(state: State) -> State:
    """Put the cursor on the first message that the filter found, unless it is already on one."""
    if not state.query or state.row.message is not None:
        return state
    return go_to(state, next((place for place, row in enumerate(state.rows) if row.message), state.at))
