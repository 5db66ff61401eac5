"""LangChain and deepagents: middleware for `create_agent` and `create_deep_agent`."""

# No `from __future__ import annotations`: LangChain needs the types of the state when the class is made.

from collections.abc import Awaitable, Callable
from typing import Annotated, NotRequired
from uuid import uuid4

from shadowtree.adapters.turn_recorder import (
    Foreign,
    ShadowLike,
    TurnRecorder,
    as_recorder,
    insert_note,
    read_text,
)

_AGENT = "langchain"
_TURN = "shadowtree_turn"
_NOTE = "shadowtree_note"
"""The note for the model in this turn about what was undone."""


def make_middleware(shadow: ShadowLike) -> Foreign:
    """Make middleware that records each run of an agent as a turn in `shadow`.

    LangChain does not report a run that fails: its message is ended when the next one begins.
    """
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.agents.middleware.types import PrivateStateAttr

    class TurnState(AgentState):  # type: ignore[misc]  # its type is not known here
        """The state with the turn, so that a run can be resumed, even by another process."""

        shadowtree_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]  # likewise
        shadowtree_note: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]  # likewise

    class ShadowMiddleware(_Middleware, AgentMiddleware):  # type: ignore[misc]  # likewise
        """The middleware, as a class that LangChain accepts."""

        state_schema = TurnState

        def __init__(self) -> None:
            super().__init__()
            self.recorder = as_recorder(shadow)

    return ShadowMiddleware()


class _Middleware:
    """Records runs as turns, and tool calls as steps."""

    recorder: TurnRecorder

    def before_agent(self, state: Foreign, runtime: Foreign) -> dict[str, str]:
        turn, note = uuid4().hex, ""
        with self.recorder.keeping_failures("before_agent"):
            note = _begin(_find(self.recorder, runtime), turn, state, runtime)
        return {_TURN: turn, _NOTE: note}

    async def abefore_agent(self, state: Foreign, runtime: Foreign) -> dict[str, str]:
        turn, note = uuid4().hex, ""
        with self.recorder.keeping_failures("before_agent"):
            note = await self.recorder.aside(_begin, _find(self.recorder, runtime), turn, state, runtime)
        return {_TURN: turn, _NOTE: note}

    def after_agent(self, state: Foreign, runtime: Foreign) -> None:
        with self.recorder.keeping_failures("after_agent"):
            _find(self.recorder, runtime).end(state[_TURN])

    async def aafter_agent(self, state: Foreign, runtime: Foreign) -> None:
        with self.recorder.keeping_failures("after_agent"):
            await self.recorder.aside(_find(self.recorder, runtime).end, state[_TURN])

    def wrap_model_call(self, request: Foreign, handler: Callable[[Foreign], Foreign]) -> Foreign:
        return handler(self._add_note(request))

    async def awrap_model_call(
        self, request: Foreign, handler: Callable[[Foreign], Awaitable[Foreign]]
    ) -> Foreign:
        return await handler(self._add_note(request))

    def _add_note(self, request: Foreign) -> Foreign:
        """Add a note for the model about what was undone; the conversation itself stays as it is."""
        with self.recorder.keeping_failures("wrap_model_call"):
            note = request.state.get(_NOTE)
            if note:
                messages = insert_note(request.messages, _write_note(note), _is_prompt)
                return request.override(messages=messages)
        return request

    def wrap_tool_call(self, request: Foreign, handler: Callable[[Foreign], Foreign]) -> Foreign:
        with self.recorder.keeping_failures("wrap_tool_call"):
            _begin_step(self.recorder, request)
        try:
            return handler(request)
        finally:
            with self.recorder.keeping_failures("wrap_tool_call"):
                _end_step(self.recorder, request)

    async def awrap_tool_call(
        self, request: Foreign, handler: Callable[[Foreign], Awaitable[Foreign]]
    ) -> Foreign:
        try:
            with self.recorder.keeping_failures("wrap_tool_call"):
                await self.recorder.aside(_begin_step, self.recorder, request)
            return await handler(request)
        finally:
            with self.recorder.keeping_failures("wrap_tool_call"):
                await self.recorder.aside(_end_step, self.recorder, request)


def _begin(recorder: TurnRecorder, turn: str, state: Foreign, runtime: Foreign) -> str:
    written = [each for each in state["messages"] if _is_prompt(each)]
    found = getattr(runtime, "execution_info", None)
    # For rewinding the conversation to the same point.
    ids = {name: getattr(found, name, None) for name in ("thread_id", "run_id", "checkpoint_id")}
    meta = {"agent": _AGENT, **{name: id for name, id in ids.items() if id}}
    text = read_text(written[-1].content) if written else ""
    return recorder.begin(turn, text=text, meta=meta, nests=True)


def _write_note(note: str) -> Foreign:
    from langchain.messages import HumanMessage

    return HumanMessage(note)


def _is_prompt(message: Foreign) -> bool:
    return bool(message.type == "human")


def _begin_step(recorder: TurnRecorder, request: Foreign) -> None:
    call = request.tool_call
    turn = request.state.get(_TURN) or uuid4().hex
    _find(recorder, request.runtime).begin_step(turn, call["name"], call["id"])


def _end_step(recorder: TurnRecorder, request: Foreign) -> None:
    call = request.tool_call
    _find(recorder, request.runtime).end_step(recorder.name_step(call["name"], call["id"]))


def _find(recorder: TurnRecorder, runtime: Foreign) -> TurnRecorder:
    """Find the recorder of a thread. Without a checkpointer there is none."""
    info = getattr(runtime, "execution_info", None)
    return recorder.for_conversation(_AGENT, getattr(info, "thread_id", None))
