"""The command `run`: record everything that another command does as one message.

The command runs as if shadowtree were not there: see `child_process`. A run inside an open message becomes a
step of it, because a new message would cut that one in two.
"""

from __future__ import annotations

import os

import shadowtree
from shadowtree.base.errors import Conflict, DuplicateMessage, InvalidInput, ShadowError
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.child_process import CannotRun, Relay, die_of, find_program
from shadowtree.cli.errors import to_document
from shadowtree.cli.exit_codes import FAILED, SIGNALLED
from shadowtree.cli.fast_commands import (
    describe_patch,
    list_warnings,
    read_description,
    step_to_json,
    to_json,
)
from shadowtree.cli.find_shadow import Shared, find_to_record, open_shadow
from shadowtree.cli.output import ProgressBar, drop_output, is_quiet, say, talk, warn, write_json, writes_json
from shadowtree.results.messages import Message, Skipped, Step
from shadowtree.results.outcomes import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Record = Message | Step
    Recorded = Record | None
    """None: the command changed nothing, so nothing is recorded."""
    Undone = Outcome | ShadowError | None
    """The result of undoing it, or why that failed; None: it was not to be undone."""

_NOBODYS = "it changed during the run, outside any message of this session"
_LONGEST_NAME = 60
"""The most characters of the command line in the name of a step."""


@frozen
class _Begun:
    """A run whose beginning is recorded, as a message or as a step of the open message.

    The store is open only at the beginning and at the end; in between, the command may use it.
    """

    shared: Shared
    worktree: str
    record: Record

    @property
    def message(self) -> str:
        """The id of the message, or of the message that the step belongs to."""
        return self.record.id if isinstance(self.record, Message) else self.record.message


def run(
    shared: Shared,
    command: tuple[str, ...],
    text: str | None = None,
    role: str | None = None,
    meta: str | None = None,
    id: str | None = None,
    undo_on_fail: bool = False,
    best_effort: bool = False,
) -> int:
    """Run COMMAND, and record everything it changes as one message

    The command uses your terminal, input and output as usual, and receives signals. Its exit code, or the
    signal that ended it, becomes ours. The message ends when the command does, even if background processes
    keep running. Its text is the command line, unless you give -m. If nothing changes, nothing is recorded.

    If a message is already open, the run becomes a step of it; you cannot use --undo-on-fail then. If the
    command begins a message itself, that ends this one, and --undo-on-fail undoes both and everything after
    them.

    With --json, the command's standard output goes to standard error, so that standard output contains only
    the JSON document.

    Exit codes: 127 if the command is not found, 126 if it cannot be run, and 1 instead of 0 if its changes
    could not be recorded. With --best-effort, you only get a warning, and the exit code is always the
    command's.

    \b
    Examples:
      shadowtree run -- make format
      shadowtree run -m "upgrade everything" -- npm update
      shadowtree run --undo-on-fail -- ./migrate.sh --all
    """
    from shlex import join

    if not command[0]:
        raise InvalidInput("COMMAND must not be empty")
    words = read_description(join(command) if text is None else text, role, meta)
    try:
        path = find_program(command[0], os.environ.get("PATH", os.defpath))
    except CannotRun as error:
        say(str(error))
        if writes_json():
            write_json({"error": "CannotRun", "message": str(error)})
        return error.exit_code
    begun = _try_begin(shared, id, words, undoes=undo_on_fail, is_required=not best_effort)
    with Relay() as relay:
        failure = None
        try:
            output_fd = 2 if writes_json() else 1
            # If the command records something itself, it goes to the same session.
            environment = {**os.environ, "SHADOWTREE_SESSION": shared.recording_session}
            code = relay.run(path, command, environment, output_fd=output_fd)
        except CannotRun as error:
            code, failure = error.exit_code, error
        record, undo = _end(begun, undoes=undo_on_fail and code != 0)
    exit_code = _report(code, failure, record, undo, shared.recording_session, is_required=not best_effort)
    # The command may have succeeded although its changes could not be recorded.
    is_failed = isinstance(record, ShadowError) and not best_effort
    return FAILED if exit_code == 0 and is_failed else exit_code


def _make_id() -> str:
    from time import gmtime, strftime

    return f"run-{strftime('%Y%m%dT%H%M%SZ', gmtime())}-{os.urandom(3).hex()}"


def _try_begin(
    shared: Shared,
    id: str | None,
    words: Mapping[str, Any],  # Any: arguments of several types
    *,
    undoes: bool,
    is_required: bool,
) -> _Begun | ShadowError:
    """Record the beginning of the run; return the error if that fails and recording is not required."""
    try:
        return _begin(shared, id, words, undoes=undoes)
    except ShadowError as error:
        if isinstance(error, InvalidInput) or is_required:
            raise
        return error


def _begin(
    shared: Shared,
    id: str | None,
    words: Mapping[str, Any],  # Any: arguments of several types
    *,
    undoes: bool,
) -> _Begun:
    worktree = find_to_record(shared)
    with open_shadow(shared, worktree) as shadow, ProgressBar("Reading files") as bar:
        around = _find_open(shadow)
        if around is None:
            return _Begun(shared, worktree, shadow.begin(id or _make_id(), progress=bar, **words))
        if around.id == id:
            # Beginning it again would change nothing, and its end is not ours to report.
            raise DuplicateMessage(id, shadow.session)
        if undoes:
            # An act would end the open message, which goes on after this run.
            raise InvalidInput(f"--undo-on-fail cannot be used while message {around.id!r} is open")
        name = id or _name_step(words["text"], {step.name for step in around.steps})
        return _Begun(shared, worktree, shadow.begin_step(name, meta=words["meta"]))


def _name_step(text: str, taken: set[str]) -> str:
    """Name a step after its command, and number it if the name is taken."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    base = name = printable.strip()[:_LONGEST_NAME].rstrip() or "run"
    number = 1
    while name in taken:
        number += 1
        name = f"{base} ({number})"
    return name


def _find_open(shadow: shadowtree.Shadow) -> Message | None:
    """Return the open message of the session, if there is one."""
    last = shadow.messages(last=1) if shadow.is_wrapped else []
    return next((message for message in last if message.state == "open"), None)


def _end(begun: _Begun | ShadowError, *, undoes: bool) -> tuple[Recorded | ShadowError, Undone]:
    """Record the end of the run, and undo it if that is wanted."""
    if isinstance(begun, ShadowError):
        return begun, begun if undoes else None
    try:
        with open_shadow(begun.shared, begun.worktree) as shadow, ProgressBar("Reading files") as bar:
            open_message = _find_open(shadow)
            # The command may have recorded in the session itself, which ended the message before the run did.
            is_cut = open_message is None or open_message.id != begun.message
            if isinstance(begun.record, Step):
                return shadow.end_step(begun.record.name, message=begun.message), None
            message = shadow.end_or_drop(begun.message, progress=bar)
    except ShadowError as error:
        return error, error if undoes else None
    if message is None or not undoes:
        return message, None
    try:
        with open_shadow(begun.shared, begun.worktree) as shadow:
            return message, _undo_all(shadow, message) if is_cut else _undo(shadow, message.id)
    except ShadowError as error:
        return message, error


# Undoing


def _undo(shadow: shadowtree.Shadow, name: str) -> Outcome:
    """Undo a message and the later ones, without confirmation even if much is deleted."""
    return shadow.revert(name, confirm=lambda plan: True)


def _undo_all(shadow: shadowtree.Shadow, run: Message) -> Outcome:
    """Undo everything since the message `run` began, which the command itself ended.

    Changes after the last message are first recorded as one, unless a message is open, which has them anyway.
    """
    status = shadow.status()
    if status.open is None and status.changed:
        text = f"what {run.id} did after its last message"
        shadow.snapshot(_make_id(), text=text, inferred=True)
    outcome = _undo(shadow, _find_first(shadow, run))
    # Paths that are still not as they were before the run are listed as skipped.
    known = {skipped.path for skipped in outcome.skipped}
    paths = (changed.path for changed in shadow.patch(run.before).files)
    left = [Skipped(path, _NOBODYS) for path in paths if path not in known]
    return replace(outcome, complete=False, skipped=[*outcome.skipped, *left]) if left else outcome


def _find_first(shadow: shadowtree.Shadow, run: Message) -> str:
    """Return the id of the first message in force since the run began; the run's own if there is none."""
    (last,) = shadow.messages(last=1)
    for message in shadow.messages(last=last.number - run.number + 1):
        is_in_force = message.state in ("open", "active") and not message.is_out
        if message.number >= run.number and is_in_force:
            return message.id
    return run.id


# Reporting


def _report(
    code: int,
    failure: CannotRun | None,
    record: Recorded | ShadowError,
    undo: Undone,
    session: str,
    *,
    is_required: bool,
) -> int:
    """Report what was recorded, and end as the command did; return its exit code.

    `code` is the exit code of the command, or minus the number of the signal that killed it; `failure` is why
    it could not be started.
    """
    exit_code = code if code >= 0 else SIGNALLED - code
    if writes_json():
        undone = to_document(undo) if isinstance(undo, ShadowError) else undo
        write_json({**_to_json(record, session), "exit_code": exit_code, "undo": undone})
    try:
        if failure is not None:
            say(str(failure))
        is_brief = writes_json() or is_quiet()
        _report_to_people(record, undo, is_brief=is_brief, is_required=is_required)
    except OSError:
        # The report cannot be written; the exit code still says how the command ended.
        drop_output()
    if code < 0:
        die_of(-code)
    return exit_code


def _to_json(record: Recorded | ShadowError, session: str) -> dict[str, Any]:  # Any: JSON
    if record is None:
        return {"message": None, "session": session, "files": []}
    if isinstance(record, ShadowError):
        return to_document(record)
    return to_json(record) if isinstance(record, Message) else step_to_json(record)


def _report_to_people(
    record: Recorded | ShadowError, undo: Undone, *, is_brief: bool, is_required: bool
) -> None:
    """Report to the user what was recorded, what was undone, and which paths are in conflict."""
    if record is None:
        if not is_brief:
            say("the command changed nothing, so nothing was recorded")
        return
    if isinstance(record, ShadowError):
        consequence = "" if undo is None else " or undone"
        tell = say if is_required else warn
        tell(f"the changes of the command could not be recorded{consequence}: {record}")
        return
    if not is_brief:
        say(f"{_name(record)} {describe_patch(record.patch)}")
        for warning in list_warnings(record):
            warn(warning)
    if undo is not None:
        _report_undo(record, undo, is_brief=is_brief)


def _report_undo(record: Record, undo: Outcome | ShadowError, *, is_brief: bool) -> None:
    from shadowtree.cli.views.outcome import (
        describe_effect,
        describe_later,
        describe_shortfall,
        list_conflicts,
    )

    if isinstance(undo, ShadowError):
        if isinstance(undo, Conflict) and not is_brief:
            talk(list_conflicts(undo.conflicts))
        say(f"{_name(record)} was not undone: {undo}")
        return
    if is_brief and undo.complete:
        return
    later = undo.messages[1:]
    undone = f"message {undo.messages[0]} {describe_later(later)}" if later else _name(record)
    say(f"undid {undone}: {describe_effect(undo) if undo.complete else describe_shortfall(undo)}")


def _name(record: Record) -> str:
    if isinstance(record, Step):
        name = f"step {record.name} of message {record.message}"
    else:
        name = f"message {record.id}"
    return name + (" (ended before the command did)" if record.inferred else "")
