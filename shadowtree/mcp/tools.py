"""The tools of the MCP server, as plain functions: a model reads their signatures and docstrings.

Models call these, so none changes a file at once: `undo` and `revert` return a plan with an id, and only
`confirm` with that id carries it out, unless the plan has changed by then. A long file or diff is cut, and
says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Literal

from shadowtree.base.errors import InvalidInput
from shadowtree.results.messages import Message
from shadowtree.results.outcomes import Outcome
from shadowtree.shadow import Shadow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from shadowtree.results.outcomes import Plan

    class ActOptions(TypedDict, total=False):
        """Whether an act is only planned, or which plan is carried out."""

        dry_run: bool
        expect: str
        confirm: Callable[[Plan], bool]


Opener = Callable[[], AbstractContextManager[Shadow]]
OnConflict = Literal["abort", "keep", "merge"]
Act = Callable[[Shadow, "ActOptions"], Outcome]
"""An act with its arguments, to be planned or carried out."""
Json = dict[str, Any]  # Any: JSON

_MOST_MESSAGES = 200
_MOST_TEXT = 500
_MOST_PATHS = 50
"""Of one message."""
_MOST_CHARACTERS = 100_000
"""Of a file, or of all patches of a diff."""
_MOST_PLANS = 100
_TOLD = (
    "messages",
    "restored",
    "deleted",
    "kept",
    "conflicts",
    "skipped",
    "unprotected",
    "complete",
    "dry_run",
    "notes",
    "back",
)
"""The parts of an outcome that are returned."""


class Tools:
    """The tools of one server; `open_shadow` opens the shadow for one call."""

    def __init__(self, open_shadow: Opener) -> None:
        self._open = open_shadow
        self._plans: OrderedDict[str, tuple[str, Act]] = OrderedDict()
        """By id: the session, and the act to carry out. The oldest are dropped."""

    def history(self, last: int = 20, path: str | None = None, all_sessions: bool = False) -> Json:
        """List what was recorded, oldest first: each message with its id, prompt, state and changed files.

        `path`: only what changed this file or directory. State `undone` or `archived`: not in force.
        """
        with self._open() as shadow:
            paths = None if path is None else [path]
            most = max(1, min(last, _MOST_MESSAGES))
            found = shadow.messages(last=most, paths=paths, all_sessions=all_sessions)
        return {"messages": [_describe(message) for message in found]}

    def diff(self, a: str | None = None, b: str | None = None, path: str | None = None) -> Json:
        """Show how two recorded states differ, as unified diffs.

        A state is the id of a message (as it left the files), the id with a trailing ^ (before it), or a tree
        id. `b` left out is the files as they are now, `a` left out the last recorded state.
        """
        with self._open() as shadow:
            found = shadow.diff(a, b, paths=None if path is None else [path])
        files, room = [], _MOST_CHARACTERS
        for each in found:
            entry = each.to_dict()
            if len(each.patch) > room:
                entry |= {"patch": "", "cut": f"{len(each.patch):,} characters; ask for this path alone"}
            room -= len(entry["patch"])
            files.append(entry)
        return {"files": files}

    def read_file(self, message: str, path: str) -> Json:
        """Read a text file as a message left it, or with a trailing ^ as it was before the message."""
        with self._open() as shadow:
            content = shadow.read_file(message, path)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not text: {len(content):,} bytes") from None
        if len(text) <= _MOST_CHARACTERS:
            return {"text": text}
        return {
            "text": text[:_MOST_CHARACTERS],
            "cut": f"the first {_MOST_CHARACTERS:,} of {len(text):,} characters",
        }

    def save_point(self, label: str) -> Json:
        """Save the present state of all files, with a label, before you try something risky.

        While a turn is being recorded, the point is a step of it. Otherwise it is a message that also has
        whatever changed since the last one.
        """
        with self._open() as shadow:
            newest = shadow.messages(last=1)
            if not newest or newest[0].state != "open":
                message = shadow.snapshot(text=label)
                return {"message": message.id, "tree": message.after, "files": len(message.patch.files)}
            shown = _to_line(label)[:100] or "point"
            known = {step.name for step in newest[0].steps}
            names = (f"{shown} {number}" if number > 1 else shown for number in count(1))
            name = next(name for name in names if name not in known)
            open_id = shadow.begin_step(name).message
            step = shadow.end_step(name, message=open_id)
            return {"message": open_id, "step": name, "tree": step.after}

    def undo(self, turns: int = 1, on_conflict: OnConflict = "abort") -> Json:
        """Plan to undo the last turns: what would be restored and deleted. Nothing is changed yet.

        If your present turn is being recorded, it is the last one. Show the plan to the user, then call
        `confirm` with its id. Files that the user changed since are conflicts: `keep` leaves them as they
        are, `merge` combines both.
        """
        return self._plan(lambda shadow, how: shadow.undo(turns, on_conflict=on_conflict, **how))

    def revert(
        self,
        message: str,
        only: bool = False,
        paths: list[str] | None = None,
        on_conflict: OnConflict = "abort",
    ) -> Json:
        """Plan to restore the state before a message. Nothing is changed yet.

        That undoes later messages too; with `only`, just this one. `paths`: only these files or directories.
        Show the plan to the user, then call `confirm` with its id.
        """

        def act(shadow: Shadow, how: ActOptions) -> Outcome:
            return shadow.revert(message, only=only, paths=paths, on_conflict=on_conflict, **how)

        return self._plan(act)

    def confirm(self, plan: str) -> Json:
        """Carry out a plan, given its id. Only after the user agreed to it.

        If anything changed since, so that it would be another plan, nothing is done.
        """
        if plan not in self._plans:
            raise InvalidInput(f"no plan has the id {plan!r}; call undo or revert first")
        session, act = self._plans[plan]
        with self._open() as shadow:
            outcome = act(shadow.for_session(session), {"expect": plan, "confirm": lambda _: True})
        self._plans.pop(plan, None)
        return _describe_outcome(outcome)

    def _plan(self, act: Act) -> Json:
        with self._open() as shadow:
            outcome, session = act(shadow, {"dry_run": True}), shadow.session
        if outcome.messages or outcome.restored or outcome.deleted:
            self._plans[outcome.id] = session, act
            while len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
            return {"plan": outcome.id, **_describe_outcome(outcome)}
        return {"plan": None, **_describe_outcome(outcome)}


def _describe(message: Message) -> Json:
    paths = [each.path for each in message.patch.files]
    return {
        "id": message.id,
        "session": message.session,
        "turn": message.turn,
        "text": message.text[:_MOST_TEXT],
        "time": message.time.isoformat(),
        "state": message.state,
        "files": len(paths),
        "paths": paths[:_MOST_PATHS],
        "unprotected": message.unprotected[:_MOST_PATHS],
    }


def _describe_outcome(outcome: Outcome) -> Json:
    told = outcome.to_dict()
    return {name: told[name] for name in _TOLD}


def _to_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text).strip()
