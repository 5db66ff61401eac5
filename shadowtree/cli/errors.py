"""What the command line says when something failed, and the exit code.

The library's errors tell what happened; advice is given here. The first class in an error's line of
descent that stands in `ANSWERS` answers for it.
"""

from __future__ import annotations

import os
import traceback

from shadowtree.base import errors
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.output import can_ask, say, talk, write_json

MERGE_WAS_TRIED = "a merge was tried"
"""A note on a conflict that merging did not solve: then the advice does not propose to merge."""


@frozen
class Answer:
    """How the command line answers to a class of errors."""

    exit_code: int
    advice: str = ""
    """What the user can try; `{error}` stands for the error, and `{quoted}` for its words in a shell."""


ANSWERS: dict[type[BaseException], Answer] = {
    errors.ShadowError: Answer(1),
    errors.InvalidInput: Answer(2),
    errors.AmbiguousSession: Answer(2, "choose one, such as --session {quoted.session}"),
    errors.ArchivedMessage: Answer(2, "run 'shadowtree switch {error.number}'"),
    errors.DuplicateMessage: Answer(2, "use another id"),
    errors.NotWrapped: Answer(10, "run 'shadowtree wrap' first"),
    errors.WorktreeMoved: Answer(
        10, "if it was, run 'shadowtree wrap {quoted.worktree} --adopt {quoted.store}'"
    ),
    errors.WorktreeReplaced: Answer(10, "run 'shadowtree wrap' to start a new history; that store is kept"),
    errors.ForeignStore: Answer(10, "use another --store"),
    errors.Locked: Answer(11, "try again later, or wait longer with --set lock_timeout=60"),
    errors.UnknownName: Answer(12),
    errors.UnknownRemote: Answer(12, "add it with 'shadowtree remote add {quoted.name} URL'"),
    errors.UnknownMessage: Answer(12, "run 'shadowtree log' to list messages"),
    errors.AmbiguousMessage: Answer(2, "use the full id or the number, such as 7"),
    errors.ForgottenMessage: Answer(12, "run 'shadowtree log' to list what is left"),
    errors.UnknownBranch: Answer(12, "run 'shadowtree branches' to list branches"),
    errors.UnknownStep: Answer(12, "run 'shadowtree show {quoted.message_id}' to list its steps"),
    errors.UnknownTree: Answer(12, "run 'shadowtree log' to list messages"),
    errors.ForgottenTree: Answer(12, "run 'shadowtree log' to list what is left"),
    errors.Conflict: Answer(13, "use --on-conflict merge, keep or overwrite"),
    errors.NotConfirmed: Answer(13, "add --yes to confirm"),
    errors.PlanOutdated: Answer(13, "use --dry-run to see the new one"),
    errors.BroadWorktree: Answer(1, "add --allow-broad to wrap it anyway"),
    errors.WorktreeTooBig: Answer(
        1, "exclude files in .shadowtreeignore, or add --set {error.setting}={error.found}"
    ),
    errors.OutOfSpace: Answer(1, "free some space, or use --store on another disk"),
    errors.UnsafePath: Answer(1, "use --store with a directory that only you can write to"),
    errors.StoreFailed: Answer(1),
    errors.WorktreeFailed: Answer(1),
    errors.DaemonFailed: Answer(1),
    errors.PerhapsDone: Answer(1, "run 'shadowtree log' and 'shadowtree status' to find out"),
    errors.RemoteFailed: Answer(1),
    errors.RemoteRefused: Answer(1),
    errors.RemoteDamaged: Answer(1),
    errors.MissingExtra: Answer(1, "run pip install 'shadowtree[{error.extra}]'"),
    errors.StoreTooNew: Answer(1, "upgrade shadowtree"),
    errors.StoreTooOld: Answer(1, "move it away and start again"),
    errors.StoreDamaged: Answer(15),
}


_WITHOUT_OPEN = "run 'shadowtree begin' first"
_AFTER_MERGING = "use --on-conflict keep or overwrite"
_IN_THE_WAY = "move them away, or use 'shadowtree resume' with --on-conflict overwrite"
_AFTER_COLLIDING = "use --markers, --on-conflict keep or overwrite"
"""What is left to try for a conflict if merging did not do."""


@frozen
class Failure:
    """What is reported of an error."""

    name: str
    message: str
    exit_code: int
    advice: str = ""


def report(error: BaseException, *, as_json: bool, has_advice: bool = True) -> int:
    """Report an error in one line, and in a JSON document if one was asked for; return the exit code."""
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
    """Decide what to report of an error that ended a command."""
    for known in type(error).__mro__:
        if known in ANSWERS:
            answer = ANSWERS[known]
            advice = _advise(error) or answer.advice.format(error=error, quoted=_Quoted(error))
            return Failure(known.__name__, str(error), answer.exit_code, advice)
    # Python 3.11 makes it a RuntimeError if it comes while a class is made, as an import does.
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        return Failure("Interrupted", "interrupted", 130)
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return Failure(type(error).__name__, where + error.strerror, 1)
    return Failure("InternalError", f"internal error: {type(error).__name__}: {error}", 1)


class _Quoted:
    """What an error carries, as words that can be typed."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> str:
        from shlex import quote

        return quote(str(getattr(self._error, name)))


def _advise(error: BaseException) -> str | None:
    """Say what to do where that depends on more than the class of the error; None: it does not."""
    if isinstance(error, errors.UnknownMessage) and error.__dict__.get("name") == "":
        return _WITHOUT_OPEN
    if not isinstance(error, errors.Conflict) or not error.conflicts:
        return None
    if any(conflict.hunks for conflict in error.conflicts):
        return _AFTER_COLLIDING
    if all("resume" in conflict.advice for conflict in error.conflicts):
        return _IN_THE_WAY
    can_merge = any("merge" in conflict.advice for conflict in error.conflicts)
    was_tried = MERGE_WAS_TRIED in getattr(error, "__notes__", ())
    return None if can_merge and not was_tried else _AFTER_MERGING


def to_document(error: BaseException) -> dict[str, object]:
    """Return the JSON document of an error; if nothing was done yet, with the outcome or the plan."""
    failure = explain(error)
    told: dict[str, object] = {"error": failure.name, "message": failure.message}
    if isinstance(error, errors.NotConfirmed | errors.PlanOutdated):
        done = error.outcome.to_dict()
        plan = done if error.plan is None else error.plan.to_dict()
        return {**told, **{key: _empty(value) for key, value in done.items()}, "plan": plan}
    if isinstance(error, errors.Conflict) and error.outcome is not None:
        document: dict[str, object] = error.outcome.to_dict()
        return document
    return told


def _empty(value: object) -> object:
    """Return what stands for a value of a plan of which nothing was done."""
    if isinstance(value, int) and not isinstance(value, bool):
        return 0
    return [] if isinstance(value, list) else value
