"""The OpenAI Agents SDK: hooks for `Runner.run`, `run_sync` and `run_streamed`."""

from __future__ import annotations

from uuid import uuid4

from shadowtree.adapters.turn_recorder import (
    Foreign,
    ShadowLike,
    TurnRecorder,
    as_recorder,
    insert_note,
    read_text,
)

_AGENT = "openai-agents"
_MOST_RUNS = 100
"""How many runs are remembered: the end of a run that fails is never reported."""


def make_hooks(shadow: ShadowLike) -> Foreign:
    """Make `RunHooks` that record each run as a turn in `shadow`.

    The SDK does not report a run that fails: its message is ended when the next one begins.
    """
    from agents import RunHooks

    class ShadowHooks(_Hooks, RunHooks):  # type: ignore[misc]  # its type is not known here
        """The hooks, as a class that the SDK accepts."""

    return ShadowHooks(as_recorder(shadow))


class _Hooks:
    """Records runs as turns, and tool calls as steps."""

    def __init__(self, recorder: TurnRecorder) -> None:
        self.recorder = recorder
        self._runs: dict[int, _Run] = {}
        """By the id of their usage."""

    async def on_agent_start(self, context: Foreign, agent: Foreign) -> None:
        with self.recorder.keeping_failures("on_agent_start"):
            run = self._find_run(context)
            if run.turns and not run.calls:
                return  # A handoff: the run continues with another agent.
            run.turns.append(uuid4().hex)
            begin, text, meta = self.recorder.begin, _read_prompt(context), {"agent": _AGENT}
            note = await self.recorder.aside(
                begin, run.turns[-1], text=text, meta=meta, nests=bool(run.calls)
            )
            run.note = run.note or note

    async def on_llm_start(
        self, context: Foreign, agent: Foreign, system_prompt: Foreign, input_items: Foreign
    ) -> None:
        with self.recorder.keeping_failures("on_llm_start"):
            run = self._find_run(context)
            if run.note and len(run.turns) == 1:
                # This very list goes to the model, and there is no other way to add to it.
                note = {"role": "user", "content": run.note}
                input_items[:] = insert_note(input_items, note, _is_prompt)

    async def on_agent_end(self, context: Foreign, agent: Foreign, output: Foreign) -> None:
        with self.recorder.keeping_failures("on_agent_end"):
            run = self._find_run(context)
            turn = run.turns.pop() if run.turns else None
            if not run.turns:
                del self._runs[id(context.usage)]
            if turn is not None:
                await self.recorder.aside(self.recorder.end, turn)

    async def on_tool_start(self, context: Foreign, agent: Foreign, tool: Foreign) -> None:
        with self.recorder.keeping_failures("on_tool_start"):
            run, call = self._find_run(context), _name_call(context, tool)
            if not run.turns:
                run.turns.append(uuid4().hex)  # A resumed run is not reported as started.
            run.calls.add(call)
            await self.recorder.aside(self.recorder.begin_step, run.turns[-1], tool.name, call)

    async def on_tool_end(self, context: Foreign, agent: Foreign, tool: Foreign, result: Foreign) -> None:
        with self.recorder.keeping_failures("on_tool_end"):
            call = _name_call(context, tool)
            self._find_run(context).calls.discard(call)
            await self.recorder.aside(self.recorder.end_step, self.recorder.name_step(tool.name, call))

    def _find_run(self, context: Foreign) -> _Run:
        run = self._runs.setdefault(id(context.usage), _Run(context.usage))
        if len(self._runs) > _MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        return run


class _Run:
    """A run and the runs that its tools start: all of their contexts share one usage."""

    def __init__(self, usage: object) -> None:
        self.usage = usage
        """Kept, so that no other object gets its id."""
        self.turns: list[str] = []
        """The open turns: more than one if an agent is a tool of another."""
        self.calls: set[str] = set()
        """The tool calls that are running."""
        self.note = ""
        """The note for the model about what was undone."""


def _name_call(context: Foreign, tool: Foreign) -> str:
    """Return the id of a tool call; built-in tools may have none."""
    return str(getattr(context, "tool_call_id", tool.name))


def _read_prompt(context: Foreign) -> str:
    """Read what the user wrote last."""
    written = [each for each in context.turn_input if _is_prompt(each)]
    return read_text(written[-1].get("content")) if written else ""


def _is_prompt(item: Foreign) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"
