"""`shadowtree hook AGENT`: agents call it at every turn and tool call, with a payload on standard input.

Whatever happens, the agent is not disturbed: the command exits 0, prints nothing or exactly one JSON object,
and ends before the agent's time limit. Anything that it could not record is noted in the log. A store
survives a kill at any point, so the process simply exits at the deadline and on SIGTERM.

Nothing heavy is imported here: with the daemon, most of the time is Python's own startup.
"""

from __future__ import annotations

import os
import time

from shadowtree.agents.known_agents import (
    AGENTS,
    SESSION_END,
    SESSION_START,
    STEP_BEGIN,
    STEP_END,
    TURN_BEGIN,
    TURN_END,
)
from shadowtree.agents.payloads import Reported, interpret
from shadowtree.base.errors import BroadWorktree, ShadowError
from shadowtree.base.frozen import replace
from shadowtree.cli.hooks.log import note_call, note_end, note_start, write_line
from shadowtree.cli.hooks.payload import BadPayload, read_payload
from shadowtree.daemon.endpoint import Endpoint
from shadowtree.results import turns
from shadowtree.results.turns import TurnEvent, TurnRecord, describe_undo
from shadowtree.system.locations import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from typing import Any
else:
    # The built-in module: importing its wrapper `signal` takes milliseconds.
    import _signal as signal

_SHARE = 0.8
"""The share of the agent's time limit that is used."""
FIRST_SNAPSHOT_S = 5.0
"""The longest that a user waits for the first snapshot of a directory; then the daemon takes it."""
_KINDS = {
    TURN_BEGIN: turns.BEGIN,
    STEP_BEGIN: turns.STEP,
    STEP_END: turns.STEP_END,
    TURN_END: turns.END,
    SESSION_END: turns.CLOSE,
}


def run(words: Sequence[str]) -> int:
    """Run the hook for the words after `hook`; always return 0."""
    begun_s = time.monotonic()
    try:
        hook = Hook(words, begun_s)
        try:
            hook.run()
        except BaseException as error:  # noqa: BLE001  # no error of ours may reach the agent
            hook.log(_describe(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            hook.end()
    except BaseException:  # noqa: BLE001  # not even the log can be written
        pass
    return 0


class Hook:
    """One call of the command."""

    def __init__(self, words: Sequence[str], begun_s: float) -> None:
        self._name = words[0] if words else ""
        self._event = words[1] if len(words) > 1 else ""
        self._begun_s = begun_s
        self._places = Places(os.environ)
        self._reported: Reported | None = None
        self._on_deadline: Callable[[], None] | None = None
        """What to do when the deadline passes."""

    def end(self) -> None:
        """Note that the hook has ended: called however it ends, except by SIGKILL."""
        note_end(self._places.stores, self._name)

    def log(self, what: str) -> None:
        """Log what went wrong."""
        event = self._reported.event if self._reported is not None else self._event
        write_line(self._places.stores, self._name or "-", event, what)

    def run(self) -> None:
        """Read the payload, record what it means, and answer."""
        if self._name not in AGENTS:
            self.log(f"no agent is called {self._name!r}; hooks must run 'shadowtree hook AGENT'")
            return
        note_start(self._places.stores, self._name)
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, self._leave)
        signal.signal(signal.SIGALRM, self._give_up)
        self._allow(min(AGENTS[self._name].limit_s(kind) for kind in _KINDS))
        try:
            payload = read_payload(0)
        except BadPayload as error:
            self.log(str(error))
            return
        now_ms = time.time_ns() // 1_000_000
        reported = interpret(self._name, payload, os.environ, event=self._event, now_ms=now_ms)
        self._reported = reported
        note_call(self._places.stores, reported.agent.name)
        if reported.kind not in (*_KINDS, SESSION_START):
            return
        self._allow(reported.agent.limit_s(reported.kind))
        self._record(reported)

    def _allow(self, limit_s: float) -> None:
        """Set the deadline."""
        left_s = limit_s * _SHARE - (time.monotonic() - self._begun_s)
        signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.01))

    def _leave(self, number: int, frame: object) -> None:
        del number, frame
        self.log("the agent ended it before it was done")
        self.end()
        os._exit(0)

    def _give_up(self, number: int, frame: object) -> None:
        del number, frame
        waited_s = time.monotonic() - self._begun_s
        self.log(f"gave up after {waited_s:.1f} s")
        self.end()
        try:
            if self._on_deadline is not None:
                self._on_deadline()
        finally:
            os._exit(0)

    # Recording

    def _record(self, reported: Reported) -> None:
        project = os.path.realpath(reported.directory or os.getcwd())
        served = self._find_served(project, reported.session)
        if served is not None:
            with served:
                if reported.kind != SESSION_START:
                    self._answer(served.record_turn(make_event(reported, served.directory)), served.directory)
            return
        from shadowtree import find_worktree

        worktree = find_worktree(project)
        if reported.kind == SESSION_START:
            if worktree is not None:
                self._start_daemon(reported, worktree, hook_daemon=None)
        elif worktree is not None:
            self._record_in(reported, worktree, is_wrapped=True)
        elif reported.kind == TURN_BEGIN:
            self._wrap(reported, project)

    def _find_served(self, project: str, session: str) -> Any:  # Any: a RemoteShadow, loaded if there is one
        if not Endpoint.is_used(os.environ):
            return None
        from shadowtree.daemon.client import find_remote

        return find_remote(os.environ, project, store=None, session=session)

    def _wrap(self, reported: Reported, project: str) -> None:
        """Record the first turn, which wraps the best candidate for a worktree that is not too broad."""
        from shadowtree.agents.places import list_candidates

        *others, last = list_candidates(project)
        for candidate in others:
            try:
                self._record_in(reported, candidate, is_wrapped=False)
            except BroadWorktree as error:
                self.log(str(error))
            else:
                return
        self._record_in(reported, last, is_wrapped=False)

    def _record_in(self, reported: Reported, worktree: str, *, is_wrapped: bool) -> None:
        from shadowtree import Shadow

        wait_s = reported.agent.limit_s(reported.kind) * _SHARE / 2
        event = make_event(reported, worktree)
        with Shadow(worktree, session=reported.session, settings={"lock_timeout": wait_s}) as shadow:
            settings = shadow.settings
            if not is_wrapped:
                self._prepare_to_hand_over(reported, event, worktree, hook_daemon=settings.hook_daemon)
            record = shadow.record_turn(event)
        self._on_deadline = None
        self._answer(record, worktree)
        if reported.kind == TURN_BEGIN:
            self._start_daemon(reported, worktree, hook_daemon=settings.hook_daemon)

    def _prepare_to_hand_over(
        self, reported: Reported, event: TurnEvent, worktree: str, *, hook_daemon: bool
    ) -> None:
        """Arrange for the daemon to take the first snapshot if it takes too long here."""
        if not may_start_daemon(hook_daemon=hook_daemon):
            return

        def hand_over() -> None:
            missed = replace(event, kind=turns.MISSED)
            self._start_daemon(reported, worktree, hook_daemon=True, missed=missed)
            doing = f"shadowtree is taking the first snapshot of {worktree}"
            self._print(f"{doing}; this turn cannot be undone, later ones can")

        self._on_deadline = hand_over
        self._allow(min(reported.agent.limit_s(reported.kind), FIRST_SNAPSHOT_S / _SHARE))

    def _start_daemon(
        self,
        reported: Reported,
        worktree: str,
        *,
        hook_daemon: bool | None,
        missed: TurnEvent | None = None,
    ) -> None:
        """Have the daemon serve the worktree from now on, without waiting for it."""
        if hook_daemon is None:
            from shadowtree.config.settings import read_config

            hook_daemon = read_config(os.environ, worktree).read().hook_daemon
        if may_start_daemon(hook_daemon=hook_daemon):
            from shadowtree.cli.hooks.background import serve_in_background

            serve_in_background(os.environ, reported.agent.name, worktree, reported.session, missed)

    # Answering

    def _answer(self, record: TurnRecord, worktree: str) -> None:
        """Inform the model of what was undone, and the user that the directory is now protected."""
        message, context = "", ""
        if record.is_first:
            message = f"shadowtree protects {worktree} from now on: 'shadowtree undo' undoes a turn"
        if record.undone or record.paths:
            context = describe_undo(record.undone, record.paths)
        if message or context:
            self._print(message, context)

    def _print(self, message: str, context: str = "") -> None:
        import json

        reported = self._reported
        assert reported is not None
        answer = reported.agent.make_answer(reported.event, context=context, message=message)
        if answer is not None:
            os.write(1, json.dumps(answer).encode("ascii"))


def make_event(reported: Reported, worktree: str) -> TurnEvent:
    """Turn what a hook reports into the event to record in a worktree."""
    meta: dict[str, Any] = {"agent": reported.agent.name}  # Any: JSON
    if reported.tool:
        meta["tool"] = reported.tool
    if reported.paths:
        from shadowtree.agents.places import divide_paths

        inside, outside = divide_paths(reported.paths, reported.cwd, worktree)
        meta |= {"paths": inside} if inside else {}
        meta |= {"outside": outside} if outside else {}
    return TurnEvent(
        _KINDS[reported.kind],
        reported.turn,
        reported.text,
        meta,
        f"{reported.tool}-{reported.call}" if reported.call else reported.tool,
        is_numbered=not reported.call,
        is_dated=reported.is_dated,
        is_report=reported.is_report,
    )


def may_start_daemon(*, hook_daemon: bool) -> bool:
    """Return whether a hook may start the daemon: if the setting allows it, and never in CI."""
    return hook_daemon and not os.environ.get("CI")


def _describe(error: BaseException) -> str:
    """Describe an error in one line."""
    if isinstance(error, ShadowError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"
