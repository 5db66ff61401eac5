"""How the command line reports errors: the message, the advice, and which of the `exit_codes`.

The library's errors say what happened; the advice is here. It comes from the first class in an error's
method resolution order that is in `ANSWERS`.
"""

from __future__ import annotations

import os
import traceback

from shadowtree.base import errors
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.exit_codes import (
    FAILED,
    INTERRUPTED,
    LOCKED,
    NOT_WRAPPED,
    NOTHING_CHANGED,
    STORE_DAMAGED,
    UNKNOWN_NAME,
    WRONG_USAGE,
)
from shadowtree.cli.output import can_ask, say, talk, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from shadowtree.results.outcomes import ConflictingPath


@frozen
class Answer:
    """The exit code and the advice for a class of errors."""

    exit_code: int
    advice: str = ""
    """What the user can try; `{error}` is the error, and `{quoted}` has its attributes quoted for a shell."""


ANSWERS: dict[type[BaseException], Answer] = {
    errors.ShadowError: Answer(FAILED),
    errors.InvalidInput: Answer(WRONG_USAGE),
    errors.AmbiguousSession: Answer(WRONG_USAGE, "choose one, such as --session {quoted.session}"),
    errors.ArchivedMessage: Answer(WRONG_USAGE, "run 'shadowtree switch {error.number}'"),
    errors.DuplicateMessage: Answer(WRONG_USAGE, "use another id"),
    errors.NotWrapped: Answer(NOT_WRAPPED, "run 'shadowtree wrap' first"),
    errors.WorktreeMoved: Answer(NOT_WRAPPED),
    errors.WorktreeReplaced: Answer(
        NOT_WRAPPED, "run 'shadowtree wrap' to start a new history; that store is kept"
    ),
    errors.ForeignStore: Answer(NOT_WRAPPED, "use another --store"),
    errors.Locked: Answer(LOCKED, "try again later, or wait longer with --set lock_timeout=60"),
    errors.UnknownName: Answer(UNKNOWN_NAME),
    errors.UnknownRemote: Answer(UNKNOWN_NAME, "add it with 'shadowtree remote add {quoted.name} URL'"),
    errors.UnknownMessage: Answer(UNKNOWN_NAME, "run 'shadowtree log' to list messages"),
    errors.AmbiguousMessage: Answer(WRONG_USAGE, "use the full id or the number, such as '#7'"),
    errors.ForgottenMessage: Answer(UNKNOWN_NAME, "run 'shadowtree log' to list what is left"),
    errors.UnknownBranch: Answer(UNKNOWN_NAME, "run 'shadowtree branches' to list branches"),
    errors.UnknownStep: Answer(UNKNOWN_NAME, "run 'shadowtree show {quoted.message_id}' to list its steps"),
    errors.UnknownTree: Answer(UNKNOWN_NAME, "run 'shadowtree log' to list messages"),
    errors.ForgottenTree: Answer(UNKNOWN_NAME, "run 'shadowtree log' to list what is left"),
    errors.Conflict: Answer(NOTHING_CHANGED),
    errors.NotConfirmed: Answer(NOTHING_CHANGED, "add --yes to confirm"),
    errors.PlanOutdated: Answer(NOTHING_CHANGED, "use --dry-run to see the new one"),
    errors.BroadWorktree: Answer(FAILED, "add --allow-broad to wrap it anyway"),
    errors.WorktreeTooBig: Answer(
        FAILED, "exclude files in .shadowtreeignore, or add --set {error.setting}={error.found}"
    ),
    errors.OutOfSpace: Answer(FAILED, "free some space"),
    errors.UnsafePath: Answer(FAILED, "use --store with a directory that only you can write to"),
    errors.StoreFailed: Answer(FAILED),
    errors.WorktreeFailed: Answer(FAILED),
    errors.DaemonFailed: Answer(FAILED),
    errors.PerhapsDone: Answer(FAILED, "run 'shadowtree log' and 'shadowtree status' to find out"),
    errors.RemoteFailed: Answer(FAILED),
    errors.RemoteRefused: Answer(FAILED),
    errors.RemoteDamaged: Answer(FAILED),
    errors.MissingExtra: Answer(FAILED, "run pip install 'shadowtree[{error.extra}]'"),
    errors.StoreTooNew: Answer(FAILED, "upgrade shadowtree"),
    errors.StoreTooOld: Answer(FAILED, "move it away and start again"),
    errors.StoreDamaged: Answer(STORE_DAMAGED),
}


_WITHOUT_OPEN = "run 'shadowtree begin' first"
_WITHOUT_ROOM = "free some space, or use --store on another disk"
_IN_THE_WAY = "move them away, or use 'shadowtree resume' with --on-conflict overwrite"


@frozen
class Failure:
    """What is reported about an error."""

    name: str
    message: str
    exit_code: int
    advice: str = ""


def report(error: BaseException, *, as_json: bool, has_advice: bool = True) -> int:
    """Report an error in one line, with `as_json` also in a JSON document; return the exit code."""
    failure = explain(error)
    if os.environ.get("SHADOWTREE_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, errors.Conflict) and error.conflicts and not as_json:
        from shadowtree.cli.views.outcome import list_conflicts

        talk(list_conflicts(error.conflicts, error.outcome.act))
    if isinstance(error, errors.NotConfirmed) and can_ask():
        failure = replace(failure, message="cancelled; nothing was changed", advice="")
    say(f"{failure.message}; {failure.advice}" if failure.advice and has_advice else failure.message)
    if as_json:
        write_json(to_document(error))
    return failure.exit_code


def explain(error: BaseException) -> Failure:
    """Decide what to report about an error that ended a command."""
    for known in type(error).__mro__:
        if known in ANSWERS:
            answer = ANSWERS[known]
            advice = _advise(error) or answer.advice.format(error=error, quoted=_Quoted(error))
            return Failure(known.__name__, str(error), answer.exit_code, advice)
    # Python 3.11 turns Ctrl-C during the creation of a class, as in an import, into a RuntimeError.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        return Failure("Interrupted", "interrupted", INTERRUPTED)
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return Failure(type(error).__name__, where + error.strerror, FAILED)
    return Failure("InternalError", f"internal error: {type(error).__name__}: {error}", FAILED)


class _Quoted:
    """The attributes of an error, quoted for a shell."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> str:
        from shlex import quote

        return quote(str(getattr(self._error, name)))


def _advise(error: BaseException) -> str | None:
    """Return advice that depends on more than the class of the error; None: there is none."""
    if isinstance(error, errors.UnknownMessage) and error.__dict__.get("name") == "":
        return _WITHOUT_OPEN
    if isinstance(error, errors.WorktreeMoved):
        return _offer_to_adopt(error)
    if isinstance(error, errors.OutOfSpace) and error.__dict__.get("is_first"):
        return _WITHOUT_ROOM
    if not isinstance(error, errors.Conflict) or not error.conflicts:
        return None
    if all("resume" in conflict.advice for conflict in error.conflicts):
        return _IN_THE_WAY
    return _offer_choices(error.conflicts)


def _offer_to_adopt(error: errors.WorktreeMoved) -> str:
    """Return the command that binds the store; a shell does not take an escaped path."""
    worktree, store = _Quoted(error).worktree, _Quoted(error).store
    if error.worktree.isprintable():
        return f"if it was, run: shadowtree wrap {worktree} --adopt {store}"
    return f"if it was, change to that directory and run: shadowtree wrap . --adopt {store}"


def _offer_choices(conflicts: Sequence[ConflictingPath]) -> str:
    """Return the options that resolve all of these conflicts; empty if there are none."""
    first = conflicts[0].choices
    choices = [how for how in first if all(how in conflict.choices for conflict in conflicts)]
    if not choices:
        return ""
    told = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    has_markers = any(conflict.hunks for conflict in conflicts) and all(
        conflict.hunks or "merge" in conflict.choices for conflict in conflicts
    )
    return f"use {'--markers, ' if has_markers else ''}--on-conflict {told}"


def to_document(error: BaseException) -> dict[str, object]:
    """Return the JSON document of an error: with the plan if it was not done; for a conflict, the outcome."""
    failure = explain(error)
    told: dict[str, object] = {"error": failure.name, "message": failure.message}
    if isinstance(error, errors.NotConfirmed | errors.PlanOutdated):
        done = error.outcome.to_dict()
        plan = done if error.plan is None else error.plan.to_dict()
        return {**told, **{key: _empty(key, value) for key, value in done.items()}, "plan": plan}
    if isinstance(error, errors.Conflict) and error.outcome is not None:
        document: dict[str, object] = error.outcome.to_dict()
        return document
    return told


def _empty(key: str, value: object) -> object:
    """Return a value of an outcome as it is when nothing was done; keep what does not depend on that.

    The outcome may come from the dry run that was shown to the user, but this was none.
    """
    if key in ("complete", "dry_run"):
        return False
    if isinstance(value, int) and not isinstance(value, bool):
        return 0
    return [] if isinstance(value, list) else value
