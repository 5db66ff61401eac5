"""The command that shows the picker; without a terminal it lists what the picker would show."""

from __future__ import annotations

from functools import partial

import shadowtree
from shadowtree.cli.app import command
from shadowtree.cli.commands.act import complete_back
from shadowtree.cli.find_shadow import Shared, find_wrapped, open_shadow
from shadowtree.cli.output import can_show, emit, find_width, now_ms, uses_colours, write_lines, writes_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.picker.actions import Complete

_WIDTH = 100
"""The width of lines if the output is not a terminal."""


@command()
def rewind(shared: Shared) -> None:
    """Choose a message on a full screen and go back to before it

    Lists the messages, newest first. Choose one and press Enter: you see what going back would do to each
    file, and nothing changes until you confirm. '?' lists the other keys: undo and redo, undo only one
    message, diffs, files, steps, branches, filter.

    Without a terminal, or with --json, the list is printed.

    \b
    Examples:
      shadowtree rewind
      shadowtree rewind --session fix-login
      shadowtree rewind --json
    """
    with open_shadow(shared, find_wrapped(shared)) as opened:
        shadow = opened.only_wrapped()
        if shared.session is None:
            shadow = shadow.for_last_session()
        elif not shadow.messages(last=1):
            from shadowtree.cli.views.log import describe_nothing

            emit([], [describe_nothing(shared.session)])
            return
        if writes_json() or not _show(shadow, partial(complete_back, shared)):
            _list(shadow)


def _show(shadow: shadowtree.Shadow, complete: Complete) -> bool:
    """Show the picker, and print what was done in it; return False if there is no screen to show it on."""
    try:
        from shadowtree.picker import terminal
    except ImportError:  # a Python without curses
        return False
    if not terminal.is_usable():
        return False
    actions = terminal.run(shadow, complete, has_colours=uses_colours(), now_ms=now_ms)
    back = [] if actions.back is None else [f"To get back: {actions.back}"]
    write_lines([*actions.done, *back])
    return True


def _list(shadow: shadowtree.Shadow) -> None:
    from shadowtree.picker import plain
    from shadowtree.picker.texts import replace_signs

    if writes_json():
        emit(plain.list_entries(shadow), ())
        return
    sign = "⑂" if can_show("⑂") else "fork"
    lines = plain.list_lines(shadow, columns=find_width() or _WIDTH, now_ms=now_ms(), fork_sign=sign)
    emit(None, [replace_signs(line, can_show) for line in lines])
