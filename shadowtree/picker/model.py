"""The state of the picker, and what each key makes of it: a value in, a value out, nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shadowtree.base.frozen import frozen, replace
from shadowtree.picker import scrolling
from shadowtree.picker.pages import Page, PlanPage, TextPage
from shadowtree.picker.requests import (
    Act,
    Preview,
    Quit,
    Request,
    ShowBranches,
    ShowDiff,
    ShowFiles,
)
from shadowtree.picker.rows import NOW, Row, filter_rows, make_rows
from shadowtree.picker.texts import HELP, describe_steps
from shadowtree.results.messages import Message

FRAME_LINES = 3
"""The title, what is told, and the keys; all other lines of the screen are for rows."""
_LEAST_LINES = 8
_LEAST_COLUMNS = 40
_LEAST_FILES = 3
"""How many lines are left to the files of a plan on a small screen."""


@frozen
class State:
    """What there is to show, and where the cursor is."""

    session: str
    worktree: str
    messages: tuple[Message, ...] = ()
    """Oldest first."""
    has_all: bool = True
    """Whether these are all messages of the session."""
    every_row: tuple[Row, ...] = (NOW,)
    rows: tuple[Row, ...] = (NOW,)
    """Those that the filter leaves."""
    wants_end: bool = False
    """Whether the cursor goes to the last row as soon as there are all of them."""
    at: int = 0
    """The row under the cursor."""
    top: int = 0
    """The first row in sight."""
    lines: int = 24
    columns: int = 80
    query: str = ""
    is_typing: bool = False
    """Whether keys go to the filter."""
    pages: tuple[Page, ...] = ()
    """What lies over the list; the last one is in sight."""
    note: str = ""
    """One line on what happened."""
    command: str = ""
    """What the note ends with: a command to copy."""
    is_error: bool = False
    outside: int | None = None
    """How many files changed since the last message; None: not known yet."""

    @property
    def row(self) -> Row:
        """The row under the cursor."""
        return self.rows[self.at]

    @property
    def height(self) -> int:
        """How many rows are in sight."""
        return max(1, self.lines - FRAME_LINES)

    @property
    def is_too_small(self) -> bool:
        """Whether nothing can be shown well enough to choose and confirm it."""
        return self.lines < _LEAST_LINES or self.columns < _LEAST_COLUMNS

    @property
    def page(self) -> Page | None:
        """The page in sight; None: the list."""
        return self.pages[-1] if self.pages else None


def start(session: str, worktree: str) -> State:
    """Begin with the cursor on now."""
    return State(session, worktree)


def load(state: State, messages: Sequence[Message], *, has_all: bool) -> State:
    """Take over messages as they are now; the cursor stays on its message."""
    rows = make_rows(messages)
    state = replace(state, messages=tuple(messages), has_all=has_all, every_row=rows)
    state = _choose_rows(state, state.query)
    if state.wants_end and has_all:
        return replace(_go(state, len(state.rows) - 1), wants_end=False)
    return state


def resize(state: State, lines: int, columns: int) -> State:
    """Take over another size of the terminal."""
    return _go(replace(state, lines=lines, columns=columns), state.at)


def tell(state: State, note: str, *, command: str = "", is_error: bool = False) -> State:
    """Show a line, and a command below it."""
    return replace(state, note=note, command=command, is_error=is_error)


def open_page(state: State, page: Page) -> State:
    """Put a page on top; the preview of an act takes the place of the last one."""
    below = (
        state.pages[:-1] if isinstance(page, PlanPage) and isinstance(state.page, PlanPage) else state.pages
    )
    return tell(replace(state, pages=(*below, page)), "")


def close_pages(state: State) -> State:
    """Go back to the list."""
    return replace(state, pages=())


def go_to_now(state: State) -> State:
    """Put the cursor on now."""
    return _go(state, next(place for place, row in enumerate(state.rows) if row.message is None))


def press(state: State, key: str) -> tuple[State, Request | None]:
    """Give what a key leads to, and what it asks for."""
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
            return _choose_rows(state, ""), None
        return state, Quit()
    move = scrolling.LETTERS.get(key, key)
    if move in scrolling.MOVES:
        to = scrolling.move(move, state.at, total=len(state.rows), height=state.height)
        return replace(_go(state, to), wants_end=move == "end" and not state.has_all), None
    return _KEYS[key](state) if key in _KEYS else (state, None)


def _press_page(state: State, page: Page, key: str) -> tuple[State, Request | None]:
    if key in ("q", "escape") or (key == "n" and isinstance(page, PlanPage)):
        return replace(state, pages=state.pages[:-1]), None
    if key == "?" and not (isinstance(page, TextPage) and page.title == HELP.title):
        return _show_help(state)
    changed, request = page.press(key, _page_height(state, page))
    return replace(state, pages=(*state.pages[:-1], changed)), request


def _page_height(state: State, page: Page) -> int:
    """Count the lines of a page that scroll."""
    if isinstance(page, PlanPage):
        return max(1, state.height - header_lines(page, state))
    return state.height


def header_lines(page: PlanPage, state: State) -> int:
    """Count the lines above the files of a plan: at most half of the screen, but all of the summary."""
    header, summary = page.make_header(state.columns), page.make_summary(state.columns)
    return min(len(header) + 1, max(state.height // 2, min(len(summary), state.height - _LEAST_FILES)))


# Keys of the list


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


# Filter and cursor


def _type(state: State, key: str) -> tuple[State, Request | None]:
    """Take a key into the filter."""
    if key == "enter":
        return replace(state, is_typing=False), None
    if key == "escape":
        return _choose_rows(replace(state, is_typing=False), ""), None
    if key == "backspace":
        return _find_match(_choose_rows(state, state.query[:-1])), None
    if key in ("up", "down", "page_up", "page_down"):
        return press(replace(state, is_typing=False), key)
    if len(key) == 1 and key.isprintable():
        # A longer filter finds nothing that the shorter one did not find.
        return _find_match(_choose_rows(state, state.query + key, state.rows)), None
    return state, None


def _find_match(state: State) -> State:
    """Put the cursor on the first message that the filter found, unless it is on another one."""
    if not state.query or state.row.message is not None:
        return state
    return _go(state, next((place for place, row in enumerate(state.rows) if row.message), state.at))


def _choose_rows(state: State, query: str, among: Sequence[Row] | None = None) -> State:
    """Filter the rows. The cursor stays on its message; if that is gone, on what was next below it."""
    every = state.every_row if among is None else among
    rows = filter_rows(every, query) if query.strip() else tuple(every)
    places = {row.id: place for place, row in enumerate(rows)}
    wanted = (row.id for row in state.rows[state.at :])
    at = next((places[id] for id in wanted if id in places), places[None])
    shift = at - state.at
    return _go(replace(state, rows=rows, query=query, top=max(0, state.top + shift)), at)


def _go(state: State, at: int) -> State:
    """Put the cursor on a row, and the row in sight."""
    top = scrolling.keep_in_sight(state.top, at, total=len(state.rows), height=state.height)
    return replace(state, at=at, top=top)
