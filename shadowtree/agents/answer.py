"""What a hook answers: one JSON object in the form that the agent takes, or nothing."""

from __future__ import annotations

from shadowtree.agents.table import HOOK_OUTPUT, MODIFICATION, PLAIN_CONTEXT, Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def write_answer(agent: Agent, event: str, *, context: str = "", message: str = "") -> dict[str, Any] | None:
    """Give the JSON that a begin answers with: `context` for the model, a `message` for the user.

    None: there is nothing to say, or no way to say it.
    """
    answer: dict[str, Any] = {}  # Any: JSON
    if context and agent.context == HOOK_OUTPUT:
        answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
    elif context and agent.context == PLAIN_CONTEXT:
        answer["additionalContext"] = context
    elif context and agent.context == MODIFICATION:
        answer |= {"cancel": False, "contextModification": context}
    if message and agent.shows_message:
        answer["systemMessage"] = message
    return answer or None
