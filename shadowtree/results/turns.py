"""What the hooks of an agent report of a turn, what came of it, and what a model reads after an undo.

Light: every hook loads it.
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
"""How many paths the model gets to read."""
_MOST_TURNS = 20
_MOST_CHARACTERS = 300
"""Of one path."""
_ADVICE = "These files no longer have your earlier edits; read them again before you rely on them."


@frozen
class TurnEvent:
    """Something that happened in a turn of an agent."""

    kind: str
    """`begin`, `step`, `step-end`, `end`; `close`: the session is over; `missed`: it began unrecorded."""
    id: str | None = None
    """The id of the turn's message, the same in every event of the turn; None: of the one that is open."""
    text: str = ""
    """The prompt."""
    meta: dict[str, Any] | None = None  # Any: JSON
    """Of the message, or of the step."""
    step: str = ""
    """The name of the step."""
    is_numbered: bool = False
    """The name is that of the tool: calls of it are numbered, because the agent does not name them."""
    is_dated: bool = False
    """The agent has no ids for turns: this one was made from the time, and another run makes another."""
    is_report: bool = False
    """Nobody asked for anything: something that the turn before had left running has ended."""


@frozen
class TurnRecord:
    """What came of it."""

    message: str | None = None
    """The id of the message that it belongs to; None: it belongs to none, and nothing was recorded."""
    is_new: bool = False
    """The message began with it."""
    is_first: bool = False
    """It is the first record of this worktree."""
    undone: list[tuple[int, str]] = field(default_factory=list)
    """The turns that were undone since the one before: their numbers in the log, and first lines."""
    paths: list[str] = field(default_factory=list)
    """The paths that are different since, because of that."""
    warnings: list[str] = field(default_factory=list)


def describe_undo(turns: Sequence[tuple[int, str]], paths: Sequence[str]) -> str:
    """Write what was undone since the model's last turn, by the numbers of the log; empty: nothing was.

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
