"""What the hooks of an agent report of a turn, and what came of it. Light: every hook loads it."""

from __future__ import annotations

from shadowtree.base.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BEGIN = "begin"
STEP = "step"
STEP_END = "step-end"
END = "end"
CLOSE = "close"
MISSED = "missed"


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
