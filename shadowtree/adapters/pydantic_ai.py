"""Pydantic AI: a capability for `Agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from shadowtree.adapters.turn_recorder import (
    Foreign,
    ShadowLike,
    TurnRecorder,
    as_recorder,
    insert_note,
    read_text,
)

_AGENT = "pydantic-ai"


def make_capability(shadow: ShadowLike) -> Foreign:
    """Make a capability that records each run of an agent as a turn in `shadow`, even if it fails.

    A message has the id of the run, `run_id`.
    """
    from pydantic_ai.capabilities import AbstractCapability

    class ShadowCapability(_Capability, AbstractCapability):  # type: ignore[misc]  # its type is not known here
        """The capability, as a class that Pydantic AI accepts."""

        def __init__(self) -> None:
            self.recorder = as_recorder(shadow)
            self.notes = {}

    return ShadowCapability()


class _Capability:
    """Records runs as turns, and tool calls as steps."""

    recorder: TurnRecorder
    notes: dict[str, str]
    """The notes for the model about what was undone, by run."""

    async def wrap_run(self, ctx: Foreign, *, handler: Callable[[], Awaitable[Foreign]]) -> Foreign:
        try:
            with self.recorder.keeping_failures("wrap_run"):
                note = await self.recorder.aside(_begin, _find(self.recorder, ctx), ctx)
                if note:
                    self.notes[ctx.run_id] = note
            return await handler()
        finally:
            self.notes.pop(ctx.run_id, None)
            with self.recorder.keeping_failures("wrap_run"):
                await self.recorder.aside(_find(self.recorder, ctx).end, ctx.run_id)

    async def before_model_request(self, ctx: Foreign, request_context: Foreign) -> Foreign:
        with self.recorder.keeping_failures("before_model_request"):
            note = self.notes.get(ctx.run_id)
            if note is not None:
                messages = insert_note(request_context.messages, _write_note(note), _is_prompt)
                request_context.messages = messages
        return request_context

    async def wrap_tool_execute(
        self,
        ctx: Foreign,
        *,
        call: Foreign,
        tool_def: Foreign,
        args: Foreign,
        handler: Callable[[Foreign], Awaitable[Foreign]],
    ) -> Foreign:
        try:
            with self.recorder.keeping_failures("wrap_tool_execute"):
                begin_step = _find(self.recorder, ctx).begin_step
                await self.recorder.aside(begin_step, ctx.run_id, call.tool_name, call.tool_call_id)
            return await handler(args)
        finally:
            with self.recorder.keeping_failures("wrap_tool_execute"):
                name = self.recorder.name_step(call.tool_name, call.tool_call_id)
                await self.recorder.aside(_find(self.recorder, ctx).end_step, name)


def _begin(recorder: TurnRecorder, ctx: Foreign) -> str:
    meta = {"agent": _AGENT, "conversation_id": ctx.conversation_id}
    return recorder.begin(ctx.run_id, text=read_text(ctx.prompt), meta=meta, nests=True)


def _find(recorder: TurnRecorder, ctx: Foreign) -> TurnRecorder:
    return recorder.for_conversation(_AGENT, ctx.conversation_id)


def _write_note(note: str) -> Foreign:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    return ModelRequest(parts=[UserPromptPart(note)])


def _is_prompt(message: Foreign) -> bool:
    return any(part.part_kind == "user-prompt" for part in message.parts)
