"""LangChain and deepagents: middleware for `create_agent` and `create_deep_agent`."""

# Without `from __future__ import annotations`: LangChain reads the types of the state when they are made.

from collections.abc import Awaitable, Callable
from typing import Annotated, NotRequired
from uuid import uuid4

from shadowtree.adapters.turn_recorder import Foreign, ShadowLike, TurnRecorder, as_recorder, read_text

_AGENT = "langchain"
_TURN = "shadowtree_turn"


def make_middleware(shadow: ShadowLike) -> Foreign:
    """Make middleware that records each run of an agent as a turn in `shadow`.

    LangChain does not report a run that fails: its message is ended when the next one begins.
    """
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.agents.middleware.types import PrivateStateAttr

    class TurnState(AgentState):  # type: ignore[misc]  # its type is not known here
        """The state with the turn, so that a run can be resumed, even by another process."""

        shadowtree_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]  # likewise

    class ShadowMiddleware(_Middleware, AgentMiddleware):  # type: ignore[misc]  # likewise
        """The middleware, as a class that LangChain takes."""

        state_schema = TurnState

        def __init__(self) -> None:
            super().__init__()
            self.recorder = as_recorder(shadow)

    return ShadowMiddleware()


class _Middleware:
    """Records runs as turns, and tool calls as steps."""

    recorder: TurnRecorder

    def before_agent(self, state: Foreign, runtime: Foreign) -> dict[str, str]:
        turn = uuid4().hex
        with self.recorder.keeping_failures("before_agent"):
            _begin(_find(self.recorder, runtime), turn, state, runtime)
        return {_TURN: turn}

    async def abefore_agent(self, state: Foreign, runtime: Foreign) -> dict[str, str]:
        turn = uuid4().hex
        with self.recorder.keeping_failures("before_agent"):
            await self.recorder.aside(_begin, _find(self.recorder, runtime), turn, state, runtime)
        return {_TURN: turn}

    def after_agent(self, state: Foreign, runtime: Foreign) -> None:
        with self.recorder.keeping_failures("after_agent"):
            _find(self.recorder, runtime).end(state[_TURN])

    async def aafter_agent(self, state: Foreign, runtime: Foreign) -> None:
        with self.recorder.keeping_failures("after_agent"):
            await self.recorder.aside(_find(self.recorder, runtime).end, state[_TURN])

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


def _begin(recorder: TurnRecorder, turn: str, state: Foreign, runtime: Foreign) -> None:
    written = [each for each in state["messages"] if each.type == "human"]
    found = getattr(runtime, "execution_info", None)
    # For rewinding the conversation to the same point.
    ids = {name: getattr(found, name, None) for name in ("thread_id", "run_id", "checkpoint_id")}
    meta = {"agent": _AGENT, **{name: id for name, id in ids.items() if id}}
    recorder.begin(turn, text=read_text(written[-1].content) if written else "", meta=meta, nests=True)


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
