"""The OpenAI Agents SDK: hooks for `Runner.run`, `run_sync` and `run_streamed`."""

from __future__ import annotations

from uuid import uuid4

from shadowtree.adapters.turn_recorder import Foreign, ShadowLike, as_recorder, read_text

_AGENT = "openai-agents"
_MOST_RUNS = 100
"""How many runs are remembered whose end was never reported, as when they failed."""


def make_hooks(shadow: ShadowLike) -> Foreign:
    """Make `RunHooks` that record each run as a turn in `shadow`.

    The SDK does not report a run that fails: its message is ended when the next one begins.
    """
    from agents import RunHooks

    class ShadowHooks(RunHooks):  # type: ignore[misc]  # its type is not known here
        """Records runs as turns, and tool calls as steps."""

        def __init__(self) -> None:
            self.recorder = as_recorder(shadow)
            self._runs: dict[int, tuple[object, list[str]]] = {}
            """By the id of its usage, which all contexts of a run share: the usage, so that no other gets its
            id, and the turns under way: more than one if an agent is the tool of another."""

        async def on_agent_start(self, context: Foreign, agent: Foreign) -> None:
            with self.recorder.keeping_failures("on_agent_start"):
                turns = self._find_turns(context)
                if turns and not self.recorder.is_at_work:
                    return  # The run goes on with another agent.
                turns.append(uuid4().hex)
                begin, text, meta = self.recorder.begin, _read_prompt(context), {"agent": _AGENT}
                await self.recorder.aside(begin, turns[-1], text=text, meta=meta, nests=len(turns) > 1)

        async def on_agent_end(self, context: Foreign, agent: Foreign, output: Foreign) -> None:
            with self.recorder.keeping_failures("on_agent_end"):
                turns = self._find_turns(context)
                if len(turns) < 2:
                    del self._runs[id(context.usage)]
                if turns:
                    await self.recorder.aside(self.recorder.end, turns.pop())

        async def on_tool_start(self, context: Foreign, agent: Foreign, tool: Foreign) -> None:
            with self.recorder.keeping_failures("on_tool_start"):
                turns = self._find_turns(context)
                if not turns:
                    turns.append(uuid4().hex)  # A run that is resumed does not start again.
                await self.recorder.aside(self.recorder.begin_step, turns[-1], *_name_call(context, tool))

        async def on_tool_end(self, context: Foreign, agent: Foreign, tool: Foreign, result: Foreign) -> None:
            with self.recorder.keeping_failures("on_tool_end"):
                name = self.recorder.name_step(*_name_call(context, tool))
                await self.recorder.aside(self.recorder.end_step, name)

        def _find_turns(self, context: Foreign) -> list[str]:
            _, turns = self._runs.setdefault(id(context.usage), (context.usage, []))
            if len(self._runs) > _MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            return turns

    return ShadowHooks()


def _name_call(context: Foreign, tool: Foreign) -> tuple[str, object]:
    """Give the name of a tool and the id of the call; some tools of the SDK's own have none."""
    return tool.name, getattr(context, "tool_call_id", tool.name)


def _read_prompt(context: Foreign) -> str:
    """Read what the user wrote last."""
    written = [each for each in context.turn_input if isinstance(each, dict) and each.get("role") == "user"]
    return read_text(written[-1].get("content")) if written else ""
