"""The list of the picker without a screen: as lines, and as a document."""

from __future__ import annotations

import os

from shadowtree.base.frozen import replace
from shadowtree.picker import model
from shadowtree.picker.actions import Actions
from shadowtree.picker.draw import draw_rows, to_text
from shadowtree.picker.model import FRAME_LINES
from shadowtree.picker.rows import NOW, Row, make_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.shadow import Shadow

_LISTED = 20
"""How many messages are listed; `log` has all."""
_HINT = (
    "To go back to before a message: shadowtree revert NUMBER, such as 'shadowtree revert {}'",
    "To undo the last N turns: shadowtree undo N",
)


def list_lines(shadow: Shadow, *, columns: int, now_ms: int, fork_sign: str) -> list[str]:
    """List the newest messages for people, and how to go back to one."""
    rows, actions = _read_rows(shadow), Actions(shadow)
    shown = [row for row in rows if row.message is not None][:_LISTED]
    at = min(rows.index(NOW), len(shown))
    start = model.start(shadow.session, os.fspath(shadow.worktree))
    state = replace(start, rows=(*shown[:at], NOW, *shown[at:]), at=at)
    state = model.resize(state, len(state.rows) + FRAME_LINES, columns)
    while actions.count_lines(state):
        pass
    lines = to_text(
        draw_rows(state, actions.counts, now_ms, height=len(state.rows), fork_sign=fork_sign, has_agents=True)
    )
    if len(rows) > len(state.rows):
        lines.append("Earlier messages are not shown (run 'shadowtree log -n 0')")
    in_force = [row.message.number for row in shown if row.message and row.message.state != "undone"]
    return [*lines, "", *(hint.format(in_force[0]) for hint in _HINT)] if in_force else lines


def _read_rows(shadow: Shadow) -> tuple[Row, ...]:
    """Read the rows of the newest messages: more than are listed, if there are more."""
    asked = 2 * _LISTED
    while True:
        messages = shadow.messages(last=asked)
        rows = make_rows(messages)
        # Now is a row too, and archived messages have none.
        if len(rows) > _LISTED + 1 or len(messages) < asked:
            return rows
        asked *= 4


def list_entries(shadow: Shadow) -> list[dict[str, Any]]:  # Any: JSON
    """Return all messages of the present line, newest first: entries of `log` with the picker's additions."""
    return [
        row.message.to_dict()
        | {"agent": row.agent or None, "edited_before": row.is_edited, "branches": row.lines_on}
        for row in make_rows(shadow.messages())
        if row.message is not None
    ]
