"""The state of the picker, and how it changes: a value in, a value out. `keys` says which key does what."""

from __future__ import annotations

from collections.abc import Sequence

from shadowtree.base.frozen import frozen, replace
from shadowtree.picker import scrolling
from shadowtree.picker.pages import Page, PlanPage
from shadowtree.picker.rows import NOW, Row, filter_rows, make_rows
from shadowtree.results.messages import Message

FRAME_LINES = 3
"""The title, the note, and the keys; all other lines of the screen are for rows."""
_LEAST_LINES = 8
_LEAST_COLUMNS = 40
_LEAST_FILES = 3
"""How many lines a small screen leaves for the files of a plan."""


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
    """The rows that match the filter."""
    wants_end: bool = False
    """Whether the cursor goes to the last row as soon as all are read."""
    at: int = 0
    """The row under the cursor."""
    top: int = 0
    """The first visible row."""
    lines: int = 24
    columns: int = 80
    query: str = ""
    is_typing: bool = False
    """Whether keys go to the filter."""
    pages: tuple[Page, ...] = ()
    """The pages over the list; the last one is visible."""
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
        """How many rows are visible."""
        return max(1, self.lines - FRAME_LINES)

    @property
    def is_too_small(self) -> bool:
        """Whether the screen is too small to choose and confirm anything."""
        return self.lines < _LEAST_LINES or self.columns < _LEAST_COLUMNS

    @property
    def page(self) -> Page | None:
        """The visible page; None: the list."""
        return self.pages[-1] if self.pages else None


def start(session: str, worktree: str) -> State:
    """Return the first state, with the cursor on now."""
    return State(session, worktree)


def load(state: State, messages: Sequence[Message], *, has_all: bool) -> State:
    """Replace the messages by the current ones; the cursor stays on its message."""
    rows = make_rows(messages)
    state = replace(state, messages=tuple(messages), has_all=has_all, every_row=rows)
    state = choose_rows(state, state.query)
    if state.wants_end and has_all:
        return replace(go_to(state, len(state.rows) - 1), wants_end=False)
    return state


def resize(state: State, lines: int, columns: int) -> State:
    """Adapt to a new size of the terminal."""
    return go_to(replace(state, lines=lines, columns=columns), state.at)


def tell(state: State, note: str, *, command: str = "", is_error: bool = False) -> State:
    """Show a line, and a command below it."""
    return replace(state, note=note, command=command, is_error=is_error)


def open_page(state: State, page: Page) -> State:
    """Put a page on top; the preview of an act replaces another preview."""
    below = (
        state.pages[:-1] if isinstance(page, PlanPage) and isinstance(state.page, PlanPage) else state.pages
    )
    return tell(replace(state, pages=(*below, page)), "")


def close_pages(state: State) -> State:
    """Go back to the list."""
    return replace(state, pages=())


def go_to_now(state: State) -> State:
    """Put the cursor on now."""
    return go_to(state, next(place for place, row in enumerate(state.rows) if row.message is None))


def header_lines(page: PlanPage, state: State) -> int:
    """Count the lines above the files of a plan: at most half of the screen, but all of the summary."""
    header, summary = page.make_header(state.columns), page.make_summary(state.columns)
    return min(len(header) + 1, max(state.height // 2, min(len(summary), state.height - _LEAST_FILES)))


def choose_rows(state: State, query: str, among: Sequence[Row] | None = None) -> State:
    """Filter the rows; the cursor stays on its message, or moves to the next row below that is left."""
    every = state.every_row if among is None else among
    rows = filter_rows(every, query) if query.strip() else tuple(every)
    places = {row.id: place for place, row in enumerate(rows)}
    wanted = (row.id for row in state.rows[state.at :])
    at = next((places[id] for id in wanted if id in places), places[None])
    shift = at - state.at
    return go_to(replace(state, rows=rows, query=query, top=max(0, state.top + shift)), at)


def go_to(state: State, at: int) -> State:
    """Put the cursor on a row, and scroll so that it is visible."""
    top = scrolling.keep_in_sight(state.top, at, total=len(state.rows), height=state.height)
    return replace(state, at=at, top=top)
