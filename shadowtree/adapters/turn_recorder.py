"""Record the turns of an agent that runs in this process: begin, steps, end, as its SDK reports them.

An SDK may report something twice, late or not at all, so every call can be repeated. No call raises: an agent
must not fail because its undo does. Errors are kept in `failures`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from shadowtree.aio import AsyncShadow, finish_in_thread
from shadowtree.base.arguments import StrPath
from shadowtree.base.errors import NotWrapped, UnknownMessage
from shadowtree.results.turns import BEGIN, TurnEvent, describe_undo
from shadowtree.shadow import Shadow

P = ParamSpec("P")
Result = TypeVar("Result")

Foreign = Any
"""A value of an SDK. Its type is known only where the SDK is installed, and may differ between versions."""

_MOST_FAILURES = 100
_MOST_CHARACTERS = 8000
"""Of a prompt; the rest is left out."""
_MOST_NAME_CHARACTERS = 200
_CALL_CHARACTERS = 8


class TurnRecorder:
    """Records what an agent does as messages and steps of one shadow.

    Pass it to an adapter instead of the shadow if you want to read `failures` or set an option:

    - `per_conversation`: give each conversation of the SDK a session of its own, named `AGENT-ID`. Otherwise
      all turns are recorded in the session of the shadow.
    - `steps`: record tool calls too. Each costs two snapshots.
    - `store_prompts`: keep the prompt as the text of the message.
    """

    def __init__(
        self,
        shadow: Shadow | AsyncShadow | StrPath,
        *,
        per_conversation: bool = False,
        steps: bool = True,
        store_prompts: bool = True,
    ) -> None:
        if isinstance(shadow, AsyncShadow):
            shadow = shadow._shadow
        self.shadow = shadow if isinstance(shadow, Shadow) else Shadow(shadow)
        self._per_conversation = per_conversation
        self._records_steps = steps
        self._stores_prompts = store_prompts
        self._failures: deque[Exception] = deque(maxlen=_MOST_FAILURES)
        self._session = _find_session(self.shadow)

    @property
    def failures(self) -> list[Exception]:
        """The newest errors that kept something from being recorded, oldest first; a note names what."""
        return list(self._failures)

    def for_conversation(self, agent: str, id: object) -> TurnRecorder:
        """Return the recorder for a conversation: this one, unless each conversation has its own session."""
        name = "".join(each for each in f"{agent}-{id}" if each.isprintable())[:_MOST_NAME_CHARACTERS]
        if not self._per_conversation or not id or name == self.shadow.session:
            return self
        other = TurnRecorder(
            self.shadow.for_session(name), steps=self._records_steps, store_prompts=self._stores_prompts
        )
        other._failures = self._failures
        return other

    def name_step(self, tool: str, call: object) -> str:
        """Name the step of a call: the tool, and the last characters of the id of the call."""
        tail = "".join(each for each in str(call) if each.isalnum())[-_CALL_CHARACTERS:]
        return "".join(each for each in f"{str(tool)[:_MOST_NAME_CHARACTERS]}-{tail}" if each.isprintable())

    def begin(
        self, turn: str, *, text: str = "", meta: Mapping[str, object] | None = None, nests: bool = False
    ) -> str:
        """Begin a turn; its message gets the id `turn`. A turn that is open already continues.

        Return a note for the model: which turns and files were undone since its last turn. Empty: none were,
        or the setting `tell_model` is off.

        With `nests`, a turn that begins while a tool is running is a sub-agent's: it becomes part of the open
        turn, which ends with the last of them. Otherwise the open turn is ended, because its end was missed.
        """
        return self._keep(f"begin of turn {turn}", self._begin, turn, text, meta, nests) or ""

    def begin_step(self, turn: str, tool: str, call: object = None) -> str:
        """Begin a step: a tool call. Return its name, for `end_step`; a call without an id is numbered."""
        name = self.name_step(tool, call or next(self._session.numbers))
        self._keep(f"begin of step {name}", self._begin_step, turn, name, {"tool": tool})
        return name

    def end_step(self, name: str) -> None:
        """End a step. An unknown one is ignored."""
        self._keep(f"end of step {name}", self._end_step, name)

    def end(self, turn: str) -> None:
        """End a turn. An unknown one is ignored."""
        self._keep(f"end of turn {turn}", self._end, turn)

    async def aside(self, call: Callable[P, Result], *args: P.args, **named: P.kwargs) -> Result:
        """Make one of these calls in a thread, so the loop is not blocked; it completes even if cancelled."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # another kind of loop
            return call(*args, **named)
        return await finish_in_thread(call, *args, **named)

    @contextmanager
    def keeping_failures(self, what: str) -> Iterator[None]:
        """Run the body; if it fails, keep the error and continue after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever happened, the agent continues
            self._add_failure(what, error)

    def _keep(self, what: str, call: Callable[P, Result], *args: P.args, **named: P.kwargs) -> Result | None:
        """Make a call of this recorder; None if it fails."""
        try:
            with self._session.lock:
                return call(*args, **named)
        except Exception as error:  # noqa: BLE001  # likewise
            self._add_failure(what, error)
            return None

    def _add_failure(self, what: str, error: Exception) -> None:
        error.add_note(what)
        self._failures.append(error)

    def _begin(self, turn: str, text: str, meta: Mapping[str, object] | None, nests: bool) -> str:
        session = self._session
        if turn in session.turns:
            return ""
        if nests and session.turns and session.steps:
            session.turns.append(turn)
            return ""
        # There is no message until it is recorded; if that fails, the whole turn is left out.
        session.restart(turn)
        text = text[:_MOST_CHARACTERS] if self._stores_prompts else ""
        return self._begin_message(turn, text.encode("utf-8", "replace").decode(), meta)

    def _begin_message(self, turn: str, text: str, meta: Mapping[str, object] | None) -> str:
        """Begin the message of a turn; if that has already ended, begin another message of the same turn."""
        event = TurnEvent(BEGIN, turn, text, None if meta is None else dict(meta))
        record = self.shadow.record_turn(event)
        self._session.message = record.message
        return describe_undo(record.undone, record.paths)

    def _begin_step(self, turn: str, name: str, meta: Mapping[str, object]) -> None:
        session = self._session
        if not session.turns:
            # The turn continues after its end, or its begin was not reported; files are about to change.
            self._begin(turn, "", None, nests=False)
        if name in session.steps:
            return
        session.steps.add(name)
        # A call that is retried is the same step; the message has its changes anyway.
        if session.message is not None and self._records_steps and name not in session.recorded:
            try:
                self.shadow.begin_step(name, meta=meta)
            except UnknownMessage:
                # Something else ended the message, such as an undo; the turn continues in another one.
                self._begin_message(session.turns[0], "", None)
                self.shadow.begin_step(name, meta=meta)
            session.recorded.add(name)

    def _end_step(self, name: str) -> None:
        session = self._session
        if name not in session.steps:
            return
        session.steps.discard(name)
        if name in session.recorded:
            # The end of the message ends its steps.
            with suppress(UnknownMessage):
                self.shadow.end_step(name)

    def _end(self, turn: str) -> None:
        session = self._session
        if turn not in session.turns:
            # A process that has ended may have begun it.
            with suppress(UnknownMessage, NotWrapped):
                self.shadow.end(turn)
            return
        session.turns.remove(turn)
        if session.turns:
            return
        message = session.message
        session.restart()
        if message is not None:
            self.shadow.end(message)


class _Session:
    """What is open in one session of a store; all recorders in this process share it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.restart()

    def restart(self, *turns: str) -> None:
        self.turns = list(turns)
        """The open turn, and those of its sub-agents."""
        self.message: str | None = None
        """The id of their message; None: it could not be begun."""
        self.steps: set[str] = set()
        """The tool calls that are running."""
        self.recorded: set[str] = set()
        """The tool calls for which the message has a step, including ended ones."""
        self.numbers = count(1)
        (_busy.add if turns else _busy.discard)(self)


_busy: set[_Session] = set()
"""Keeps sessions with an open turn, even if no recorder refers to them."""
_sessions: WeakValueDictionary[tuple[str, str], _Session] = WeakValueDictionary()
_sessions_lock = Lock()


def _find_session(shadow: Shadow) -> _Session:
    """Return what all recorders of a session share: an agent and its sub-agents may each have one."""
    with _sessions_lock:
        return _sessions.setdefault((str(shadow.store), shadow.session), _Session())


ShadowLike = Shadow | AsyncShadow | StrPath | TurnRecorder
"""What an adapter takes: a shadow, the directory of one, or a recorder."""


def as_recorder(shadow: ShadowLike) -> TurnRecorder:
    """Return a recorder for a shadow; a recorder is returned as it is."""
    return shadow if isinstance(shadow, TurnRecorder) else TurnRecorder(shadow)


def insert_note(
    conversation: Sequence[Foreign], note: Foreign, is_prompt: Callable[[Foreign], bool]
) -> list[Foreign]:
    """Return a conversation with a note for the model before the user's last prompt."""
    at = max((place for place, each in enumerate(conversation) if is_prompt(each)), default=None)
    return list(conversation) if at is None else [*conversation[:at], note, *conversation[at:]]


def read_text(content: object) -> str:
    """Return the text of a prompt, which is text or a list of parts that may have text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Iterable) or isinstance(content, bytes | Mapping):
        return ""
    found = [_read_part(part) for part in content]
    return "\n".join(text for text in found if isinstance(text, str) and text)


def _read_part(part: object) -> object:
    if isinstance(part, str):
        return part
    return part.get("text") if isinstance(part, Mapping) else getattr(part, "text", None)
