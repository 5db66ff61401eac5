"""One row per agent: names of its events and keys, time limits of its hooks, and the form of answers.

How agents differ in where they keep hooks and commands is in `targets`, `hook_settings` and `slash_commands`.
The versions that were tried are in docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from shadowtree.base.frozen import field, frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Keys = tuple[str, ...]
"""Where a value is in a payload: at the first of these keys that is there. `a.b` is `b` in the object `a`."""

SESSION_START = "session start"
TURN_BEGIN = "turn begin"
STEP_BEGIN = "step begin"
STEP_END = "step end"
TURN_END = "turn end"
SESSION_END = "session end"
INTERRUPT = "interrupt"
NOTHING = "nothing"

HOOK_OUTPUT = "hook output"
"""`{"hookSpecificOutput": {"hookEventName": ..., "additionalContext": TEXT}}`."""
PLAIN_CONTEXT = "plain context"
"""`{"additionalContext": TEXT}`."""
MODIFICATION = "modification"
"""`{"contextModification": TEXT}`."""

WRITING_TOOLS = frozenset(
    {
        "apply_patch",
        "create",
        "edit",
        "editor",
        "multiedit",
        "notebookedit",
        "patch",
        "replace",
        "str_replace",
        "write",
        "write_file",
    }
)
"""Tools of all agents whose input names the files that they write, in lower case."""

_PLENTY_S = 30.0
_TOOL_S = 10.0
_LAST_S = 5.0

_CLAUDE_EVENTS = {
    "SessionStart": SESSION_START,
    "UserPromptSubmit": TURN_BEGIN,
    "PreToolUse": STEP_BEGIN,
    "PostToolUse": STEP_END,
    "Stop": TURN_END,
    "SessionEnd": SESSION_END,
}
"""Claude Code's names, which several agents adopted."""
_PLUGIN_EVENTS = {
    "session.created": SESSION_START,
    "chat.message": TURN_BEGIN,
    "tool.execute.before": STEP_BEGIN,
    "tool.execute.after": STEP_END,
    "session.idle": TURN_END,
    "dispose": SESSION_END,
}


@frozen
class Agent:
    """The row of an agent."""

    name: str
    """As in `shadowtree hook NAME`."""
    title: str
    events: Mapping[str, str]
    """What each event means; all others are ignored."""
    event: Keys = ("hook_event_name",)
    """The name of the event; if it is missing, it is the second argument of the command."""
    session: Keys = ("session_id",)
    turn: Keys = ("prompt_id",)
    """The id of the turn; empty: the agent has none."""
    prompt: Keys = ("prompt",)
    """Text, or a list of parts that have text."""
    command: Keys = ()
    """The slash command that the prompt comes from."""
    sub_agent: Keys = ("agent_id",)
    """A key that only the events of a sub-agent have."""
    tool: Keys = ("tool_name",)
    tool_input: Keys = ("tool_input",)
    call: Keys = ("tool_use_id",)
    """The id of a tool call; empty: the agent has none."""
    time: Keys = ("timestamp",)
    directory: Keys = ("cwd",)
    """The project's directory, or a list that begins with it."""
    project_variable: str | None = None
    """The variable that names it, which counts first: an agent's own directory may change."""
    session_variable: str | None = None
    """The variable that names the session in commands that the agent runs."""
    reading_tools: frozenset[str] = frozenset()
    """Tools that change no file, so they are not recorded as steps."""
    limits_s: Mapping[str, float] = field(default_factory=dict)
    """Time limits of hooks that are not the usual ones."""
    limit_unit_s: float = 1.0
    """The unit of time limits in the agent's own settings."""
    context: str | None = HOOK_OUTPUT
    """The form in which the answer carries text for the model; None: it cannot."""
    shows_message: bool = True
    """Whether `systemMessage` is shown to the user."""
    last_line_is_command: bool = False
    """Whether the prompt of a slash command is its expanded text, with the typed command in the last line."""

    def limit_s(self, kind: str) -> float:
        """Return how long a hook for an event of this kind may take."""
        usual = _TOOL_S if kind in (STEP_BEGIN, STEP_END) else _LAST_S if kind == SESSION_END else _PLENTY_S
        return self.limits_s.get(kind, usual)

    def make_answer(self, event: str, *, context: str = "", message: str = "") -> dict[str, Any] | None:
        """Return the JSON answer of a hook: `context` for the model, a `message` for the user.

        None: both are empty, or the agent takes neither.
        """
        answer: dict[str, Any] = {}  # Any: JSON
        if context and self.context == HOOK_OUTPUT:
            answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
        elif context and self.context == PLAIN_CONTEXT:
            answer["additionalContext"] = context
        elif context and self.context == MODIFICATION:
            answer |= {"cancel": False, "contextModification": context}
        if message and self.shows_message:
            answer["systemMessage"] = message
        return answer or None


_OPENCODE = Agent(
    name="opencode",
    title="OpenCode",
    events=_PLUGIN_EVENTS,
    event=("hook",),
    session=("payload.input.sessionID", "payload.properties.sessionID"),
    turn=("payload.output.message.id",),
    prompt=("payload.output.parts",),
    command=("command",),
    sub_agent=("parent",),
    tool=("payload.input.tool",),
    tool_input=("payload.input.args", "payload.output.args"),
    call=("payload.input.callID",),
    time=(),
    directory=("directory",),
    reading_tools=frozenset({"glob", "grep", "list", "read", "todoread", "todowrite", "webfetch"}),
    context=PLAIN_CONTEXT,
)
"""Our plugin sends `{hook, directory, payload}`: the name of the hook or the event, and its own payload.

It adds `parent`, the id of the parent session of a sub-agent, and `command`, the name of the slash command
that a message comes from. For `dispose`, the payload is `{"input": {"sessionID": ID}}` for each session.
"""

AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            title="Claude Code",
            events={**_CLAUDE_EVENTS, "PostToolUseFailure": STEP_END, "StopFailure": TURN_END},
            project_variable="CLAUDE_PROJECT_DIR",
            session_variable="CLAUDE_CODE_SESSION_ID",
            reading_tools=frozenset(
                {
                    "AskUserQuestion",
                    "BashOutput",
                    "Glob",
                    "Grep",
                    "LS",
                    "NotebookRead",
                    "Read",
                    "TaskOutput",
                    "TodoWrite",
                    "ToolSearch",
                    "WebFetch",
                    "WebSearch",
                }
            ),
        ),
        Agent(
            name="codex",
            title="Codex CLI",
            events={**_CLAUDE_EVENTS, "Interrupt": INTERRUPT},
            turn=("turn_id",),
            reading_tools=frozenset({"update_plan", "view_image", "web_search"}),
            limits_s={SESSION_END: 3.0, INTERRUPT: 3.0},
        ),
        Agent(
            name="gemini",
            title="Gemini CLI",
            events={
                "SessionStart": SESSION_START,
                "BeforeAgent": TURN_BEGIN,
                "BeforeTool": STEP_BEGIN,
                "AfterTool": STEP_END,
                "AfterAgent": TURN_END,
                "SessionEnd": SESSION_END,
            },
            turn=(),
            call=(),
            project_variable="GEMINI_PROJECT_DIR",
            session_variable="GEMINI_SESSION_ID",
            reading_tools=frozenset(
                {
                    "glob",
                    "google_web_search",
                    "grep_search",
                    "list_directory",
                    "read_file",
                    "read_many_files",
                    "search_file_content",
                    "web_fetch",
                    "write_todos",
                }
            ),
            limit_unit_s=0.001,
            last_line_is_command=True,
        ),
        _OPENCODE,
        Agent(
            name="copilot",
            title="Copilot CLI",
            events={
                **_CLAUDE_EVENTS,
                "sessionStart": SESSION_START,
                "userPromptSubmitted": TURN_BEGIN,
                "preToolUse": STEP_BEGIN,
                "postToolUse": STEP_END,
                "agentStop": TURN_END,
                "sessionEnd": SESSION_END,
            },
            session=("session_id", "sessionId"),
            turn=(),
            tool=("tool_name", "toolName"),
            tool_input=("tool_input", "toolArgs"),
            call=(),
            project_variable="COPILOT_PROJECT_DIR",
            reading_tools=frozenset({"View", "Glob", "Grep", "glob", "grep", "view", "report_intent"}),
            context=PLAIN_CONTEXT,
            shows_message=False,
        ),
        Agent(
            name="qwen",
            title="Qwen Code",
            events=_CLAUDE_EVENTS,
            project_variable="QWEN_PROJECT_DIR",
            session_variable="QWEN_CODE_SESSION_ID",
            reading_tools=frozenset(
                {
                    "glob",
                    "grep_search",
                    "list_directory",
                    "read_file",
                    "read_many_files",
                    "todo_write",
                    "web_fetch",
                    "web_search",
                }
            ),
            limit_unit_s=0.001,
        ),
        Agent(
            name="cline",
            title="Cline CLI",
            events={
                "agent_start": TURN_BEGIN,
                "tool_call": STEP_BEGIN,
                "tool_result": STEP_END,
                "agent_end": TURN_END,
            },
            event=("hookName",),
            session=("sessionContext.rootSessionId",),
            turn=(),
            sub_agent=("parent_agent_id",),
            tool=("tool_call.name", "tool_result.name"),
            tool_input=("tool_call.input", "tool_result.input"),
            call=("tool_call.id", "tool_result.id"),
            directory=("workspaceRoots", "workspaceInfo.rootPath"),
            reading_tools=frozenset({"read_files", "search_codebase", "fetch_web_content", "ask_question"}),
            context=MODIFICATION,
            shows_message=False,
        ),
        Agent(
            name="cursor",
            title="Cursor",
            events={
                "sessionStart": SESSION_START,
                "beforeSubmitPrompt": TURN_BEGIN,
                "preToolUse": STEP_BEGIN,
                "postToolUse": STEP_END,
                "stop": TURN_END,
                "sessionEnd": SESSION_END,
            },
            session=("conversation_id",),
            turn=("generation_id",),
            directory=("workspace_roots", "cwd"),
            project_variable="CURSOR_PROJECT_DIR",
            reading_tools=frozenset({"Read", "Grep", "Glob", "List"}),
            context=None,
            shows_message=False,
        ),
    )
}
AGENTS["kilo"] = replace(_OPENCODE, name="kilo", title="Kilo CLI")
