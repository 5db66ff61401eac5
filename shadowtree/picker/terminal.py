"""The picker on a real terminal, by curses: keys in, lines out. Nothing is decided here."""

from __future__ import annotations

import curses
import locale
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from shadowtree.base.display import measure
from shadowtree.base.frozen import replace
from shadowtree.picker import keys, model
from shadowtree.picker.actions import Actions
from shadowtree.picker.draw import draw
from shadowtree.picker.live import Live, News
from shadowtree.picker.model import State
from shadowtree.picker.requests import Carry, Preview, Quit
from shadowtree.picker.texts import replace_signs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.picker.actions import Complete
    from shadowtree.picker.pages import Line
    from shadowtree.shadow import Shadow

    Window = curses.window

_POLL_MS = 200
"""How long to wait for a key before checking for news."""
_ESCAPE_MS = 25
"""How long after Esc the rest of a key's sequence may come."""
_KEYS = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right",
    curses.KEY_PPAGE: "page_up",
    curses.KEY_NPAGE: "page_down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    curses.KEY_RESIZE: "resize",
    "\n": "enter",
    "\r": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x02": "page_up",
    "\x06": "page_down",
    "\x0c": "redraw",
    "\x0e": "down",
    "\x10": "up",
}
_COLOURS = {
    "red": curses.COLOR_RED,
    "green": curses.COLOR_GREEN,
    "yellow": curses.COLOR_YELLOW,
    "cyan": curses.COLOR_CYAN,
}


def is_usable() -> bool:
    """Check that there is a terminal on which the cursor can be placed."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        curses.setupterm()
        return bool(curses.tigetstr("cup"))
    except curses.error:
        return False


def run(shadow: Shadow, complete: Complete, *, has_colours: bool, now_ms: Callable[[], int]) -> Actions:
    """Show the picker until the user leaves it; return what was done. The terminal is left as it was."""
    with suppress(locale.Error):  # one that is not installed
        locale.setlocale(locale.LC_ALL, "")
    actions = Actions(shadow, complete)
    state = actions.read_first(model.start(shadow.session, os.fspath(shadow.worktree)))
    with _opened(has_colours=has_colours) as screen:
        _loop(screen, model.resize(state, *screen.size), actions, shadow, now_ms)
    return actions


def _loop(screen: Screen, state: State, actions: Actions, shadow: Shadow, now_ms: Callable[[], int]) -> None:
    """Show the state, wait for a key and handle it, until a key leaves the picker."""
    sign = screen.choose("⑂", "fork")

    def paint(shown: State) -> None:
        screen.paint(draw(shown, actions.counts, now_ms(), fork_sign=sign))

    paint(state)
    with Live(shadow) as live:
        while True:
            has_counted = actions.count_lines(state)
            key = screen.read_key(0 if has_counted else _POLL_MS)
            if key in ("resize", "redraw"):
                screen.clear()
                state = model.resize(state, *screen.size)
            elif key is not None:
                state, request = keys.press(state, key)
                if isinstance(request, Quit):
                    return
                if request is not None:
                    paint(model.tell(state, "Working..."))
                    state = actions.serve(state, request)
                    if isinstance(request, Preview):
                        # Keys that were typed before the preview appeared were not meant for it.
                        screen.drop_keys()
                    if isinstance(request, Carry):
                        live.ask()
            state = take_news(state, live.take_news())
            paint(state)


def take_news(state: State, news: News | None) -> State:
    """Show what other processes recorded."""
    if news is None:
        return state
    outside = state.outside if news.outside is None else news.outside
    return replace(model.load(state, news.messages, has_all=True), outside=outside)


@contextmanager
def _opened(*, has_colours: bool) -> Iterator[Screen]:
    """Take over the terminal, and restore it whatever happens; SIGTERM becomes SystemExit."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    if all(os.get_terminal_size(sys.stdout.fileno())):
        # curses would prefer an exported size to that of the window, even after a resize.
        for name in ("LINES", "COLUMNS"):
            os.environ.pop(name, None)
    window = curses.initscr()
    try:
        yield Screen(window, has_colours=has_colours)
    finally:
        window.keypad(False)
        curses.nocbreak()
        curses.echo()
        curses.endwin()
        signal.signal(signal.SIGTERM, before)


class Screen:
    """The terminal while the picker uses it."""

    def __init__(self, window: Window, *, has_colours: bool) -> None:
        self._window = window
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(_ESCAPE_MS)
        window.keypad(True)
        with suppress(curses.error):  # a terminal that cannot hide its cursor
            curses.curs_set(0)
        self._styles = _make_styles(has_colours=has_colours)
        self._encoding = window.encoding
        self._shown: Sequence[Line] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Lines and columns."""
        return self._window.getmaxyx()

    def choose(self, text: str, plain: str) -> str:
        """Return a text if the terminal's encoding has it, or else the plain one."""
        return text if self._can_show(text) else plain

    def clear(self) -> None:
        """Redraw everything the next time."""
        self._window.clear()
        self._shown = ()

    def drop_keys(self) -> None:
        """Discard keys that were typed but not read yet."""
        curses.flushinp()

    def paint(self, lines: Sequence[Line]) -> None:
        """Show lines from the top left corner on."""
        if lines == self._shown:
            return
        self._shown = lines
        self._window.erase()
        for place, line in enumerate(lines):
            column = 0
            for text, style in line:
                shown = self._encode(text, self.size[1] - column)
                # The last cell of the screen can be written, but the cursor cannot go on from there.
                with suppress(curses.error):
                    self._window.addstr(place, column, shown, self._styles.get(style, 0))
                column += measure(shown)
        self._window.refresh()

    def read_key(self, wait_ms: int) -> str | None:
        """Return the name of the next key; None if no key is pressed within `wait_ms`."""
        self._window.timeout(wait_ms)
        try:
            key = self._window.get_wch()
        except curses.error:
            # No key was pressed, the bytes are not a character, or the terminal is gone.
            return "hangup" if _has_hung_up() else None
        if key == "\x1b":
            return "unknown" if self._skip_sequence() else "escape"
        if isinstance(key, str) and key.isprintable():
            return key
        return _KEYS.get(key, "unknown")

    def _skip_sequence(self) -> bool:
        """Discard what immediately follows Esc, of a key that curses does not know; return whether it did."""
        self._window.timeout(0)
        is_longer = False
        with suppress(curses.error):
            while True:
                self._window.get_wch()
                is_longer = True
        return is_longer

    def _encode(self, text: str, columns: int) -> str:
        """Return a text as the terminal can show it; escapes may take more columns."""
        if self._can_show(text):
            return text
        text = replace_signs(text, self._can_show)
        shown = text.encode(self._encoding, "backslashreplace").decode(self._encoding)
        # To keep columns in place, trailing blanks make up for escapes; one of them always remains.
        least = max(measure(text), len(shown.rstrip()) + 1)
        shown = shown[:least]
        return shown if measure(shown) <= columns else shown[: max(0, columns - 3)] + "..."[:columns]

    def _can_show(self, text: str) -> bool:
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            return False
        return True


def _has_hung_up() -> bool:
    """Check whether the terminal is gone, which curses reports in the same way as no key."""
    poll = select.poll()
    poll.register(sys.stdin, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _make_styles(*, has_colours: bool) -> dict[str, int]:
    """Return the attributes of each style; without colours, only those of `bold`, `dim` and `reverse`."""
    styles = {"bold": curses.A_BOLD, "dim": curses.A_DIM, "reverse": curses.A_REVERSE}
    with suppress(curses.error):
        curses.start_color()
        curses.use_default_colors()
        if has_colours and curses.has_colors():
            for number, (name, colour) in enumerate(_COLOURS.items(), start=1):
                curses.init_pair(number, colour, -1)
                styles[name] = curses.color_pair(number)
    return styles
