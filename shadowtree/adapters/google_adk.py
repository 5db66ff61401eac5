"""Google's Agent Development Kit: a plugin for `App`."""

from __future__ import annotations

from shadowtree.adapters.turn_recorder import (
    Foreign,
    ShadowLike,
    TurnRecorder,
    as_recorder,
    insert_note,
    read_text,
)

_AGENT = "google-adk"


def make_plugin(shadow: ShadowLike) -> Foreign:
    """Make a plugin that records each invocation as a turn in `shadow`.

    A message has the id of the invocation, so `Runner.rewind_async` and `Shadow.revert` take the same id. The
    message of an invocation that is cancelled is ended when the next one begins.
    """
    from google.adk.plugins.base_plugin import BasePlugin

    class ShadowPlugin(_Plugin, BasePlugin):  # type: ignore[misc]  # its type is not known here
        """The plugin, as a class that the kit accepts."""

        def __init__(self) -> None:
            super().__init__(name="shadowtree")
            self.recorder = as_recorder(shadow)
            self.notes = {}

    return ShadowPlugin()


class _Plugin:
    """Records invocations as turns, and tool calls as steps."""

    recorder: TurnRecorder
    notes: dict[str, str]
    """The notes for the model about what was undone, by invocation."""

    async def before_run_callback(self, *, invocation_context: Foreign) -> None:
        with self.recorder.keeping_failures("before_run_callback"):
            recorder = _find(self.recorder, invocation_context)
            note = await self.recorder.aside(_begin, recorder, invocation_context)
            if note:
                self.notes[invocation_context.invocation_id] = note

    async def before_model_callback(self, *, callback_context: Foreign, llm_request: Foreign) -> None:
        with self.recorder.keeping_failures("before_model_callback"):
            note = self.notes.get(callback_context.invocation_id)
            if note is not None:
                llm_request.contents = insert_note(llm_request.contents, _write_note(note), _is_prompt)

    async def after_run_callback(self, *, invocation_context: Foreign) -> None:
        with self.recorder.keeping_failures("after_run_callback"):
            self.notes.pop(invocation_context.invocation_id, None)
            end = _find(self.recorder, invocation_context).end
            await self.recorder.aside(end, invocation_context.invocation_id)

    async def on_run_error_callback(self, *, invocation_context: Foreign, error: Foreign) -> None:
        await self.after_run_callback(invocation_context=invocation_context)

    async def before_tool_callback(self, *, tool: Foreign, tool_args: Foreign, tool_context: Foreign) -> None:
        with self.recorder.keeping_failures("before_tool_callback"):
            turn, call = tool_context.invocation_id, tool_context.function_call_id
            begin_step = _find(self.recorder, tool_context).begin_step
            await self.recorder.aside(begin_step, turn, tool.name, call)

    async def after_tool_callback(
        self, *, tool: Foreign, tool_args: Foreign, tool_context: Foreign, result: Foreign
    ) -> None:
        with self.recorder.keeping_failures("after_tool_callback"):
            name = self.recorder.name_step(tool.name, tool_context.function_call_id)
            await self.recorder.aside(_find(self.recorder, tool_context).end_step, name)

    async def on_tool_error_callback(
        self, *, tool: Foreign, tool_args: Foreign, tool_context: Foreign, error: Foreign
    ) -> None:
        await self.after_tool_callback(tool=tool, tool_args=tool_args, tool_context=tool_context, result=None)


def _begin(recorder: TurnRecorder, context: Foreign) -> str:
    text = read_text(getattr(context.user_content, "parts", None))
    meta = {"agent": _AGENT, "session_id": context.session.id}
    return recorder.begin(context.invocation_id, text=text, meta=meta, nests=True)


def _find(recorder: TurnRecorder, context: Foreign) -> TurnRecorder:
    return recorder.for_conversation(_AGENT, context.session.id)


def _write_note(note: str) -> Foreign:
    from google.genai import types

    return types.Content(role="user", parts=[types.Part(text=note)])


def _is_prompt(content: Foreign) -> bool:
    return content.role == "user" and any(part.text for part in content.parts or ())
