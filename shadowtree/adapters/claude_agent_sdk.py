"""The Claude Agent SDK: hooks in the options of `query` and `ClaudeSDKClient`."""

from __future__ import annotations

import dataclasses

from shadowtree.adapters.turn_recorder import Foreign, ShadowLike, TurnRecorder, as_recorder

_AGENT = "claude-agent-sdk"
_EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop")
_REPORT = "<task-notification>"
"""The beginning of a prompt that nobody typed, but that reports the end of a background task."""


def add_hooks(options: Foreign, shadow: ShadowLike) -> Foreign:
    """Return options that record every turn in `shadow`; None stands for `ClaudeAgentOptions()`.

    Your own hooks stay. A message has the id of the prompt, `prompt_id`.
    """
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

    options = ClaudeAgentOptions() if options is None else options
    hooks = {event: list(matchers) for event, matchers in (options.hooks or {}).items()}
    recorder, prompts = as_recorder(shadow), dict[str, str]()

    async def hook(event: Foreign, call: str | None, context: Foreign) -> dict[str, object]:
        with recorder.keeping_failures("a hook of the Claude Agent SDK"):
            session = recorder.for_conversation(_AGENT, event["session_id"])
            note = await session.aside(_record, session, event, prompts)
            if note:
                told = {"hookEventName": event["hook_event_name"], "additionalContext": note}
                return {"hookSpecificOutput": told}
        return {}

    for name in _EVENTS:
        hooks.setdefault(name, []).append(HookMatcher(hooks=[hook]))
    return dataclasses.replace(options, hooks=hooks)


def _record(recorder: TurnRecorder, event: Foreign, prompts: dict[str, str]) -> str:
    """Record what a hook reports, and return the note for the model.

    `prompts` has the id of the last typed prompt of each session.
    """
    name, session = event["hook_event_name"], event["session_id"]
    turn = event.get("prompt_id") or session
    if name == "UserPromptSubmit":
        text = event["prompt"]
        if session not in prompts or not text.lstrip().startswith(_REPORT):
            prompts[session] = turn
            return recorder.begin(turn, text=text, meta={"agent": _AGENT, "session_id": session})
        return ""
    # What follows a report belongs to the turn that started the task.
    turn = prompts.get(session, turn)
    if name == "Stop":
        if not event.get("background_tasks"):
            recorder.end(turn)
    elif name == "PreToolUse":
        recorder.begin_step(turn, event["tool_name"], event["tool_use_id"])
    elif not _is_left_running(event):
        recorder.end_step(recorder.name_step(event["tool_name"], event["tool_use_id"]))
    return ""


def _is_left_running(event: Foreign) -> bool:
    """Return whether a tool has returned while its work continues in the background: its step stays open."""
    response, given = event.get("tool_response"), event.get("tool_input")
    status = response.get("status") if isinstance(response, dict) else None
    return status == "async_launched" or (isinstance(given, dict) and given.get("run_in_background") is True)
