"""The hooks in an agent's settings: add ours, find them, remove them. Pure; other hooks stay as they are.

There are two formats. With groups, as in Claude Code:

    {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": LINE, "timeout": 30}]}]}}

and without, as in Cursor: {"version": 1, "hooks": {"stop": [{"command": LINE, "timeout": 30}]}}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowtree.agents import json_text
from shadowtree.agents.executable import read_line
from shadowtree.agents.json_text import Value
from shadowtree.agents.known_agents import Agent
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLAT = frozenset({"copilot", "cursor"})
"""Agents whose format has no groups, but a version number."""
_KEEPS_PLACES = frozenset({"codex"})
"""Agents that trust a hook by its place, so the hooks after ours must not move up."""
_LIMIT_KEYS = {"copilot": "timeoutSec"}


@frozen
class OwnHook:
    """One of our hooks in an agent's settings."""

    event: str
    executable: str
    group: int
    """The index of its group; `place` is its index in that group."""
    place: int


@frozen
class _Found:
    hook: OwnHook
    parent: Value
    """The list that the entry is in."""
    entry: Value
    items: Value
    """The list of the event."""
    item: Value
    """The item of that list that contains the entry, or is the entry."""


def list_events(agent: Agent) -> Mapping[str, int]:
    """Return the events to subscribe to, with the time limit of each, in the agent's unit."""
    # Copilot sends payloads that name the event only for capitalised events.
    names = [name for name in agent.events if agent.name != "copilot" or name[0].isupper()]
    return {name: round(agent.limit_s(agent.events[name]) / agent.limit_unit_s) for name in names}


def make_settings(agent: Agent, line: str) -> dict[str, Any]:  # Any: JSON
    """Return complete settings that contain only our hooks."""
    hooks = {event: [_make_item(agent, line, limit)] for event, limit in list_events(agent).items()}
    return {"version": 1, "hooks": hooks} if agent.name in _FLAT else {"hooks": hooks}


def add_hooks(text: str, agent: Agent, line: str) -> str:
    """Add missing hooks, each as the last of its event; if a hook of ours runs another program, update it.

    Raise BadJson, or InvalidInput if the settings have an unexpected structure.
    """
    root = _read(text)
    if agent.name in _FLAT and root.get("version") is None:
        text = json_text.put(text, "version", 1)
    for event, limit in list_events(agent).items():
        found = [each for each in _find(_read(text), agent) if each.hook.event == event]
        if not found:
            text = json_text.add(text, ("hooks", event), _make_item(agent, line, limit))
        for each in found:
            command = each.entry.get("command")
            assert command is not None
            if command.content != line:
                text = json_text.replace(text, command, line)
                break
    return text


def remove_hooks(text: str, agent: Agent) -> str:
    """Remove our hooks, and the lists that are then empty. Raise as `add_hooks` does."""
    while found := next(_find(_read(text), agent), None):
        if found.parent.items() != [found.entry] or found.parent is found.items:
            text = json_text.remove(text, found.parent, found.entry)
        elif agent.name in _KEEPS_PLACES and found.items.items()[-1] != found.item:
            text = json_text.replace(text, found.item, {"hooks": []})
        else:
            text = json_text.remove(text, found.items, found.item)
        text = _remove_if_empty(text, ("hooks", found.hook.event))
    return text


def find_hooks(text: str, agent: Agent) -> list[OwnHook]:
    """List our hooks. Raise as `add_hooks` does."""
    return [found.hook for found in _find(_read(text), agent)]


def is_without_hooks(text: str) -> bool:
    """Return whether the settings are empty, apart from the version that we write."""
    return not json_text.read(text).plain().keys() - {"version"}


def _make_item(agent: Agent, line: str, limit: int) -> dict[str, Any]:  # Any: JSON
    entry = {"type": "command", "command": line, _LIMIT_KEYS.get(agent.name, "timeout"): limit}
    if agent.name == "cursor":
        del entry["type"]
    return entry if agent.name in _FLAT else {"hooks": [entry]}


def _read(text: str) -> Value:
    """Read settings, and check the parts that concern us."""
    root = json_text.read(text)
    hooks = root.get("hooks")
    if not isinstance(root.content, dict):
        raise InvalidInput("it is not a JSON object")
    if hooks is not None and not isinstance(hooks.content, dict):
        raise InvalidInput("its 'hooks' is not an object")
    for event, items in hooks.content.items() if hooks is not None else ():
        if not isinstance(items.content, list) and event not in ("disabled", "enabled"):
            raise InvalidInput(f"its 'hooks' has no list for {event!r}")
    return root


def _find(root: Value, agent: Agent) -> Iterator[_Found]:
    """Find our hooks, in the order of the text."""
    hooks = root.get("hooks")
    for event, items in hooks.content.items() if hooks is not None else ():
        for group, item in enumerate(items.items()):
            inner = item.get("hooks")
            parent = items if agent.name in _FLAT or inner is None else inner
            entries = [item] if parent is items else parent.items()
            for place, entry in enumerate(entries):
                command = entry.get("command")
                executable = read_line(command.content, agent.name) if command is not None else None
                if executable is not None:
                    yield _Found(OwnHook(event, executable, group, place), parent, entry, items, item)


def _remove_if_empty(text: str, keys: tuple[str, ...]) -> str:
    """Remove a list or object if it is empty, and the parents that are then empty."""
    root = json_text.read(text)
    value, parent = root.get(*keys), root.get(*keys[:-1])
    if value is None or parent is None or value.content:
        return text
    text = json_text.remove(text, parent, value)
    return _remove_if_empty(text, keys[:-1]) if len(keys) > 1 else text
