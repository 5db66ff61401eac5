"""Turns as an agent's hooks report them, what was recorded, and the text that a model reads after an undo.

Every hook loads this module, so it imports little.
"""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BEGIN = "begin"
STEP = "step"
STEP_END = "step-end"
END = "end"
CLOSE = "close"
MISSED = "missed"

MOST_PATHS = 20
"""How many paths the model is shown."""
_MOST_TURNS = 20
_MOST_CHARACTERS = 300
"""How much of one path the model is shown."""
_ADVICE = "These files no longer have your earlier edits; read them again before you rely on them."


@frozen
class TurnEvent:
    """Something that happened in a turn of an agent."""

    kind: str
    """`begin`, `step`, `step-end`, `end`; `close`: the session ended; `missed`: the turn began unrecorded."""
    id: str | None = None
    """The id of the turn's message, the same in every event of the turn; None: the open message."""
    text: str = ""
    """The prompt."""
    meta: dict[str, Any] | None = None  # Any: JSON
    """The JSON object of the message, or of the step."""
    step: str = ""
    """The name of the step."""
    is_numbered: bool = False
    """Whether `step` is the tool's name: its calls are numbered, because the agent does not name them."""
    is_dated: bool = False
    """Whether `id` was made from the time, because the agent has no turn ids: each run makes another id."""
    is_report: bool = False
    """Whether no prompt began the turn: something that an earlier turn left running has ended."""


@frozen
class TurnRecord:
    """What was recorded for an event."""

    message: str | None = None
    """The id of the message that the event belongs to; None if there is none, and nothing was recorded."""
    is_new: bool = False
    """Whether the message began with this event."""
    is_first: bool = False
    """Whether it is the first record of this worktree."""
    undone: list[tuple[int, str]] = field(default_factory=list)
    """The turns that were undone since the previous message: their numbers in the log, and first lines."""
    paths: list[str] = field(default_factory=list)
    """The paths that differ because of that."""
    warnings: list[str] = field(default_factory=list)


def describe_undo(turns: Sequence[tuple[int, str]], paths: Sequence[str]) -> str:
    """Write what was undone since the model's last turn, by the numbers of the log; empty if nothing was.

    Names of files and prompts are quoted as JSON, so that the model reads them as data.
    """
    import json

    if not turns and not paths:
        return ""
    lines = ["Since your last turn, the user changed files back with shadowtree (an undo for coding agents)."]
    if turns:
        shown = [f"#{number} {json.dumps(text)}" if text else f"#{number}" for number, text in turns]
        lines.append(f"Undone turns: {', '.join(shown[:_MOST_TURNS])}{_count_more(shown, _MOST_TURNS)}.")
    if paths:
        shown = [json.dumps(path[:_MOST_CHARACTERS]) for path in paths]
        lines.append(f"Changed files: {', '.join(shown[:MOST_PATHS])}{_count_more(shown, MOST_PATHS)}.")
        lines.append(_ADVICE)
    return "\n".join(lines)


def _count_more(shown: Sequence[str], most: int) -> str:
    return f" and {len(shown) - most:,} more" if len(shown) > most else ""
