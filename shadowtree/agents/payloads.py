"""Read a payload: turn what an agent's hook sends into one value, the same for every agent. Pure.

A payload is hostile input: anything may be missing, of another type, endless, or full of control characters.
A payload that makes no sense is of the kind `nothing`. Of a tool call, only the tool's name, the paths that
it writes, and whether it is left running are read, but no other input or output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowtree.agents.known_agents import (
    AGENTS,
    INTERRUPT,
    NOTHING,
    SESSION_END,
    SESSION_START,
    STEP_BEGIN,
    STEP_END,
    TURN_BEGIN,
    TURN_END,
    WRITING_TOOLS,
    Agent,
    Keys,
)
from shadowtree.base.frozen import frozen, replace

OWN_COMMAND = "/shadowtree-"
"""The prefix of our own slash commands: they act on turns, and are not turns themselves."""

_REPORT = "<task-notification>"
_REPORT_TEXT = "A background task finished"
_MOST_CHARACTERS = 8000
"""Of a prompt; the rest is left out."""
_MOST_ID_CHARACTERS = 200
_MOST_PATHS = 100
_MOST_PATH_CHARACTERS = 4096
_SHORT_ID = 8
_LONGEST_OWN_ID = 32
_ID_TAIL = 12
_TIME_DIGITS = 15
"""A date without its century, to the millisecond: short enough to be shown whole."""
_PATH_KEYS = ("file_path", "filePath", "path", "notebook_path", "absolute_path")
_PATCH_KEYS = ("command", "input", "patch", "patchText")
_PATCH_LINES = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_LEFT_RUNNING = "async_launched"


@frozen
class Reported:
    """What a hook reports."""

    kind: str
    """One of the kinds in `known_agents`."""
    agent: Agent
    event: str = ""
    """The agent's own name of the event."""
    session: str = ""
    """The name of the session."""
    turn: str | None = None
    """The id of the turn's message; None: the open one."""
    is_dated: bool = False
    """Whether that id was made from the time."""
    text: str = ""
    is_report: bool = False
    """Whether nobody typed the prompt: it reports that a task that was left running has ended."""
    tool: str = ""
    call: str = ""
    """The id of the tool call; empty: the agent has none."""
    paths: tuple[str, ...] = ()
    """The paths that the tool writes, as its input has them."""
    directory: str = ""
    """The project's directory; empty: unknown."""
    cwd: str = ""
    """The directory that relative paths start from."""


def interpret(
    name: str, payload: object, environ: Mapping[str, str], *, event: str = "", now_ms: int = 0
) -> Reported:
    """Interpret the payload of a hook of the agent `name`.

    `event` is the event's name from the command line, for payloads without one; `now_ms` makes the id of a
    turn if the agent has neither ids nor times.
    """
    content = payload if isinstance(payload, dict) else {}
    agent = AGENTS[_find_real(name, content, environ)]
    named = _text(content, agent.event) or event
    named = named.removeprefix("event ")
    kind = agent.events.get(named, NOTHING)
    raw_session = _text(content, agent.session)[:_MOST_ID_CHARACTERS]
    if kind == NOTHING or not raw_session:
        return Reported(NOTHING, agent, named)
    is_sub_agent = bool(_find(content, agent.sub_agent))
    turn = None if is_sub_agent else name_turn(raw_session, _text(content, agent.turn)) or None
    reported = Reported(
        kind,
        agent,
        named,
        session=name_session(agent.name, raw_session),
        turn=turn,
        directory=_absolute(environ.get(agent.project_variable or "", "")) or _directory(content, agent),
        cwd=_absolute(_text(content, ("cwd",))),
    )
    if kind in (STEP_BEGIN, STEP_END):
        return _read_step(reported, content)
    if kind == TURN_BEGIN:
        return _read_begin(reported, content, now_ms, is_sub_agent=is_sub_agent)
    if kind == TURN_END:
        return _read_end(reported, content, is_sub_agent=is_sub_agent)
    assert kind in (SESSION_START, SESSION_END, INTERRUPT)
    return reported


def name_session(agent: str, id: str) -> str:
    """Return our session for an agent's conversation, named after the end of its id, where ids differ."""
    return f"{agent}-{_tail(id, _SHORT_ID) or 'session'}"


def name_turn(session: str, key: str) -> str:
    """Return the id of a turn's message: the agent's own if it is short and plain, else the end of it."""
    own = clean_line(key)
    if not own:
        return ""
    if session and own.startswith(session):
        # Such as `SESSION########7`.
        return f"turn-{_tail(own[len(session) :], _ID_TAIL) or '0'}"
    is_plain = own.replace("_", "").isalnum() and own.isascii() and not own.isdigit()
    return own if is_plain and len(own) <= _LONGEST_OWN_ID else f"turn-{_tail(own, _ID_TAIL)}"


def clean_line(text: str) -> str:
    """Remove what is not text: control characters and lone surrogates."""
    return "".join(character for character in text if character.isprintable())


def _find_real(name: str, content: dict[str, object], environ: Mapping[str, str]) -> str:
    """Return the agent that ran the hook: some agents also run those that are meant for Claude Code."""
    if name != "claude-code" or "prompt_id" in content:
        return name
    if "conversation_id" in content:
        return "cursor"
    return "copilot" if environ.get("COPILOT_CLI") and "timestamp" in content else name


def _read_begin(
    reported: Reported, content: dict[str, object], now_ms: int, *, is_sub_agent: bool
) -> Reported:
    agent = reported.agent
    prompt = _prompt(content, agent)
    if is_sub_agent or _is_own_command(prompt, content, agent):
        return Reported(NOTHING, agent, reported.event)
    is_report = prompt.lstrip().startswith(_REPORT)
    is_dated = reported.turn is None
    return replace(
        reported,
        turn=f"turn-{_time_id(content, agent, now_ms)}" if is_dated else reported.turn,
        is_dated=is_dated,
        # The rest of a report is the output of a tool, which is not recorded.
        text=_REPORT_TEXT if is_report else _clean_text(prompt),
        is_report=is_report,
    )


def _read_end(reported: Reported, content: dict[str, object], *, is_sub_agent: bool) -> Reported:
    agent = reported.agent
    tasks = content.get("background_tasks")
    is_ours = _is_own_command(_prompt(content, agent), content, agent)
    if is_sub_agent or is_ours or (isinstance(tasks, list) and tasks):
        return Reported(NOTHING, agent, reported.event)
    return reported


def _read_step(reported: Reported, content: dict[str, object]) -> Reported:
    agent = reported.agent
    tool = clean_line(_text(content, agent.tool))[:_MOST_ID_CHARACTERS]
    given = _find(content, agent.tool_input)
    arguments = given if isinstance(given, dict) else {}
    if not tool or tool in agent.reading_tools:
        return Reported(NOTHING, agent, reported.event)
    if reported.kind == STEP_END and _is_left_running(content, arguments):
        return Reported(NOTHING, agent, reported.event)
    return replace(
        reported,
        tool=tool,
        call=_tail(_text(content, agent.call), _SHORT_ID),
        paths=tuple(_list_paths(arguments)) if tool.lower() in WRITING_TOOLS else (),
    )


def _is_left_running(content: dict[str, object], arguments: dict[str, object]) -> bool:
    """Return whether a tool call has returned while its work continues, so that its step stays open."""
    response = content.get("tool_response")
    status = response.get("status") if isinstance(response, dict) else None
    return status == _LEFT_RUNNING or arguments.get("run_in_background") is True


def _list_paths(arguments: dict[str, object]) -> Iterator[str]:
    """List the paths that a tool writes, from the arguments that agents use for them, or from a patch."""
    found = [arguments[key] for key in _PATH_KEYS if key in arguments]
    for key in _PATCH_KEYS:
        patch = arguments.get(key)
        if isinstance(patch, str) and patch.lstrip().startswith("*** Begin Patch"):
            lines = patch.splitlines()
            found += [
                line[len(start) :] for line in lines for start in _PATCH_LINES if line.startswith(start)
            ]
    for path in found[:_MOST_PATHS]:
        if isinstance(path, str) and 0 < len(path) <= _MOST_PATH_CHARACTERS and path.isprintable():
            yield path


def _is_own_command(prompt: str, content: dict[str, object], agent: Agent) -> bool:
    if prompt.lstrip().startswith(OWN_COMMAND):
        return True
    if f"/{_text(content, agent.command)}".startswith(OWN_COMMAND):
        return True
    return agent.last_line_is_command and prompt.rstrip().rpartition("\n")[2].startswith(OWN_COMMAND)


def _prompt(content: dict[str, object], agent: Agent) -> str:
    found = _find(content, agent.prompt)
    if isinstance(found, list):
        parts = [part for part in found if isinstance(part, dict) and not part.get("synthetic")]
        texts = [part.get("text") for part in parts]
        return "\n".join(text for text in texts if isinstance(text, str))
    return found if isinstance(found, str) else ""


def _clean_text(text: str) -> str:
    """Make a text fit to keep: of limited length, and without control characters but line breaks and tabs."""
    cut = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    whole = cut.encode("utf-8", "replace").decode("utf-8")
    return "".join(c for c in whole if c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))


def _time_id(content: dict[str, object], agent: Agent, now_ms: int) -> str:
    """Make an id from the time at which a turn began: the agent's if it sends one, else `now_ms`."""
    given = _find(content, agent.time)
    digits = "".join(c for c in str(given) if c in "0123456789") if isinstance(given, str | int) else ""
    return digits[-_TIME_DIGITS:] or str(now_ms)


def _directory(content: dict[str, object], agent: Agent) -> str:
    for key in agent.directory:
        found = _find(content, (key,))
        first = found[0] if isinstance(found, list) and found else found
        if isinstance(first, str) and _absolute(first):
            return first
    return ""


def _absolute(path: str) -> str:
    """Return a path if it is absolute and valid; else an empty text."""
    is_path = path.startswith("/") and "\0" not in path and len(path) <= _MOST_PATH_CHARACTERS
    return path if is_path else ""


def _find(content: dict[str, object], keys: Keys) -> object:
    """Return the value of the first of some keys that is there; None: none is."""
    for key in keys:
        found: object = content
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _text(content: dict[str, object], keys: Keys) -> str:
    found = _find(content, keys)
    return found if isinstance(found, str) else ""


def _tail(id: str, count: int) -> str:
    """Return the last letters and digits of an id."""
    plain = "".join(c for c in id[-_MOST_ID_CHARACTERS:] if c.isascii() and c.isalnum())
    return plain[-count:]
