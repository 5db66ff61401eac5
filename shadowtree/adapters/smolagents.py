"""smolagents: callbacks for `ToolCallingAgent`, `CodeAgent` and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from types import GeneratorType
from uuid import uuid4

from shadowtree.adapters.turn_recorder import Foreign, ShadowLike, TurnRecorder, as_recorder

_AGENT = "smolagents"
_STEP = "step"


def add_callbacks(agent: Foreign, shadow: ShadowLike) -> Foreign:
    """Make an agent record each of its runs as a turn in `shadow`, even if it fails; return the agent.

    smolagents calls back only after a step, when files have changed already, so its `run` is wrapped.
    """
    from smolagents import ActionStep

    turns = _Turns(as_recorder(shadow))
    agent.step_callbacks.register(ActionStep, turns.end_step)
    agent.run = turns.wrap(agent.run)
    return agent


class _Turns:
    """The turns of one agent, which has one run at a time, one step after the other."""

    def __init__(self, recorder: TurnRecorder) -> None:
        self.recorder = recorder
        self._turn = self._step = ""

    def wrap(self, run: Callable[..., Foreign]) -> Callable[..., Foreign]:
        """Record each call of `run` as a turn; a streamed run ends with its last step."""

        @wraps(run)
        def wrapped(task: str, *args: Foreign, **named: Foreign) -> Foreign:
            note = self._begin(task)
            try:
                result = run(f"{task}\n\n{note}" if note else task, *args, **named)
            except BaseException:
                self._end()
                raise
            if isinstance(result, GeneratorType):
                return self._follow(result)
            self._end()
            return result

        return wrapped

    def end_step(self, step: Foreign) -> None:
        """End the running step, and begin the next one unless this was the last."""
        self.recorder.end_step(self._step)
        if not getattr(step, "is_final_answer", False):
            self._step = self.recorder.begin_step(self._turn, _STEP)

    def _begin(self, task: str) -> str:
        """Begin a turn, and return the note for the model."""
        self._turn = uuid4().hex
        note = self.recorder.begin(self._turn, text=str(task), meta={"agent": _AGENT}, nests=True)
        self._step = self.recorder.begin_step(self._turn, _STEP)
        return note

    def _end(self) -> None:
        self.recorder.end_step(self._step)
        self.recorder.end(self._turn)

    def _follow(self, steps: Iterator[Foreign]) -> Iterator[Foreign]:
        try:
            yield from steps
        finally:
            self._end()
