"""The command `run`: whatever another command does is one message.

To the command it is as if shadowtree were not there: see `child_process`. A run inside an open message is a
step of it: that message would otherwise be cut in two.
"""

from __future__ import annotations

import os

import shadowtree
from shadowtree.base.errors import Conflict, DuplicateMessage, InvalidInput, ShadowError, UnknownMessage
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.child_process import CannotRun, Relay, die_of, find_program
from shadowtree.cli.errors import to_document
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
    """None: the command changed nothing, so that there is nothing to record."""
    Undone = Outcome | ShadowError | None
    """The result of undoing it, or why it failed; None: it was not to be undone."""

_NOT_RECORDED = 1
"""The exit code if a command succeeded, and what it changed could not be recorded."""
_NOBODYS = "it changed during the run, outside any message of this session"
_SIGNALLED = 128
"""What a shell adds to the number of a signal to make an exit code of it."""
_LONGEST_NAME = 60
"""How many characters of the command line name a step."""


@frozen
class _Begun:
    """A run whose beginning is recorded: as a message, or as a step of the message that is open.

    The store is open at the beginning and at the end alone; in between it is the command's to use.
    """

    shared: Shared
    worktree: str
    record: Record

    @property
    def message(self) -> str:
        """The id of the message that it is, or is a step of."""
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
            # What the command records by itself goes to the same session.
            environment = {**os.environ, "SHADOWTREE_SESSION": shared.recording_session}
            code = relay.run(path, command, environment, output_fd=output_fd)
        except CannotRun as error:
            code, failure = error.exit_code, error
        record, undo = _end(begun, undoes=undo_on_fail and code != 0)
    exit_code = _report(code, failure, record, undo, shared.recording_session, is_required=not best_effort)
    is_failed = isinstance(record, ShadowError) and not best_effort
    return _NOT_RECORDED if exit_code == 0 and is_failed else exit_code


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
    """Record where it begins; return the error if that fails and recording is not required."""
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
            # To begin it again would change nothing, and its end is not ours to report.
            raise DuplicateMessage(id, shadow.session)
        if undoes:
            # An act would end the open message, which goes on after this run.
            raise InvalidInput(f"--undo-on-fail cannot be used while message {around.id!r} is open")
        name = id or _name_step(words["text"], {step.name for step in around.steps})
        return _Begun(shared, worktree, shadow.begin_step(name, meta=words["meta"]))


def _name_step(text: str, taken: set[str]) -> str:
    """Name a step after its command, and number it if there is one with that name."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    base = name = printable.strip()[:_LONGEST_NAME].rstrip() or "run"
    number = 1
    while name in taken:
        number += 1
        name = f"{base} ({number})"
    return name


def _find_open(shadow: shadowtree.Shadow) -> Message | None:
    """Return the open message of the session."""
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
                return _end_step(shadow, begun.record, is_cut=is_cut), None
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


def _end_step(shadow: shadowtree.Shadow, step: Step, *, is_cut: bool) -> Step:
    """End the step of a run; the end of its message has ended it too."""
    if not is_cut:
        return shadow.end_step(step.name)
    message, _ = shadow.show(step.message)
    for ended in message.steps:
        if ended.name == step.name:
            return ended
    raise UnknownMessage(step.name)


# Undoing


def _undo(shadow: shadowtree.Shadow, name: str) -> Outcome:
    """Undo a message and the later ones, without asking whether much may be deleted."""
    return shadow.revert(name, confirm=lambda plan: True)


def _undo_all(shadow: shadowtree.Shadow, run: Message) -> Outcome:
    """Undo all that changed since the message of a run began, which the command itself ended.

    What no message holds because it came last becomes one first; an open one holds it.
    """
    status = shadow.status()
    if status.open is None and status.changed:
        text = f"what {run.id} did after its last message"
        shadow.snapshot(_make_id(), text=text, inferred=True)
    outcome = _undo(shadow, _find_first(shadow, run))
    # What is still not as it was before the run is listed as skipped.
    known = {skipped.path for skipped in outcome.skipped}
    paths = (changed.path for changed in shadow.patch(run.before).files)
    left = [Skipped(path, _NOBODYS) for path in paths if path not in known]
    return replace(outcome, complete=False, skipped=[*outcome.skipped, *left]) if left else outcome


def _find_first(shadow: shadowtree.Shadow, run: Message) -> str:
    """Name the first message since the run began that is in force; the run's own if none is."""
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
    """Report what is recorded, and end as the command did; return its exit code.

    `code` is the exit code of the command, or minus the signal that it died of; `failure` says why it could
    not even be started.
    """
    exit_code = code if code >= 0 else _SIGNALLED - code
    if writes_json():
        undone = to_document(undo) if isinstance(undo, ShadowError) else undo
        write_json({**_to_json(record, session), "exit_code": exit_code, "undo": undone})
    try:
        if failure is not None:
            say(str(failure))
        is_brief = writes_json() or is_quiet()
        _report_to_people(record, undo, is_brief=is_brief, is_required=is_required)
    except OSError:
        # The reader of our output has gone; the exit code still says how the command ended.
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
    """Say what is recorded, what was undone, or which paths are in conflict."""
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
