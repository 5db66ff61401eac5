"""The command `run`: whatever another command does is one message.

To the command it is as if shadowtree were not there: see `child_process`. A run inside a run is a step of
that one's message, which would otherwise be cut in two.
"""

from __future__ import annotations

import os

import shadowtree
from shadowtree.base.errors import Conflict, DuplicateMessage, InvalidInput, ShadowError
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.child_process import CannotRun, Relay, die_of, find_program
from shadowtree.cli.errors import to_document
from shadowtree.cli.find_shadow import Shared, find_to_record, open_shadow
from shadowtree.cli.output import ProgressBar, drop_output, say, talk, warn, write_json, writes_json
from shadowtree.cli.record import describe_patch, list_warnings, read_description, to_json
from shadowtree.results.messages import Message, Skipped, Step
from shadowtree.results.outcomes import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Record = Message | Step
    Undone = Outcome | ShadowError | None
    """What came of taking it back, or why it could not be; None: it was not to be taken back."""

AROUND = "SHADOWTREE_RUN"
"""The variable by which a command knows in which run it is: worktree, session and message, as JSON."""
_NOT_RECORDED = 1
"""The exit code if a command succeeded, and what it changed could not be recorded."""
_NOBODYS = "it changed during the run, and no message of this session says so"
_SIGNALLED = 128
"""What a shell adds to the number of a signal to make an exit code of it."""


@frozen
class _Begun:
    """A run whose beginning is recorded: as a message, or as a step of the message of the run around it.

    The store is open at the beginning and at the end alone; in between it is the command's to use.
    """

    shared: Shared
    worktree: str
    name: str
    is_step: bool


def run(
    shared: Shared,
    command: tuple[str, ...],
    text: str | None = None,
    role: str | None = None,
    meta: str | None = None,
    id: str | None = None,
    undo_on_fail: bool = False,
) -> int:
    """Run COMMAND and record all that it changes as one message

    The command has the terminal, its input and its output as if it were started without shadowtree, and
    signals reach it. Its exit code is ours; if a signal ended it, the same one ends us. The message ends when
    the command does, not when what it left running in the background does. Its text is the command line,
    unless -m gives one.

    With --json the command's standard output goes to standard error, so that the document is alone on
    standard output. A 'shadowtree run' inside it is a step of the message, for which --undo-on-fail is
    refused. A message that it begins itself ends this one, and --undo-on-fail undoes both, and what came
    after them.

    Exit code 127: there is no such command; 126: it cannot be run; 1 in place of a 0: what it changed could
    not be recorded.

    \b
    Examples:
      shadowtree run -- make format
      shadowtree run -m "upgrade everything" -- npm update
      shadowtree run --undo-on-fail -- ./migrate.sh --all
    """
    if not command[0]:
        raise InvalidInput("COMMAND is empty")
    words = read_description(" ".join(command) if text is None else text, role, meta)
    try:
        path = find_program(command[0], os.environ.get("PATH", os.defpath))
    except CannotRun as error:
        say(str(error))
        if writes_json():
            write_json({"error": "CannotRun", "message": str(error)})
        return error.exit_code
    begun = _begin(shared, _make_id() if id is None else id, words, undoes=undo_on_fail)
    with Relay() as relay:
        failure = None
        try:
            output_fd = 2 if writes_json() else 1
            code = relay.run(path, command, _make_environment(begun), output_fd=output_fd)
        except CannotRun as error:
            code, failure = error.exit_code, error
        record, undo = _end(begun, undoes=undo_on_fail and code != 0)
    return _report(code, failure, record, undo)


def _make_id() -> str:
    from time import gmtime, strftime

    return f"run-{strftime('%Y%m%dT%H%M%SZ', gmtime())}-{os.urandom(3).hex()}"


def _begin(
    shared: Shared,
    name: str,
    words: Mapping[str, Any],  # Any: arguments of several types
    *,
    undoes: bool,
) -> _Begun:
    """Record where it begins; if that fails, the command must not be run."""
    worktree = find_to_record(shared)
    with open_shadow(shared, worktree) as shadow, ProgressBar("Reading files") as bar:
        open_id = _find_open(shadow)
        if open_id == name:
            # To begin it again would change nothing, and its end is not ours to tell.
            raise DuplicateMessage(name, shadow.session)
        if open_id is None or open_id != _find_around(shared, worktree):
            shadow.begin(name, progress=bar, **words)
            return _Begun(shared, worktree, name, is_step=False)
        if undoes:
            # An act would end the open message, and cut that of the run around this one in two.
            raise InvalidInput(
                f"--undo-on-fail is not for a run inside the run of message {open_id!r}: "
                "this one would be a step of it, which cannot be undone before it ends"
            )
        shadow.begin_step(name)
        return _Begun(shared, worktree, name, is_step=True)


def _find_open(shadow: shadowtree.Shadow) -> str | None:
    """Name the open message of the session."""
    last = shadow.messages(last=1) if shadow.is_wrapped else []
    return next((message.id for message in last if message.state == "open"), None)


def _find_around(shared: Shared, worktree: str) -> str | None:
    """Name the message of the run that this one is inside of, if it is one of the same session."""
    import json

    try:
        around, session, message = json.loads(os.environ.get(AROUND, ""))
    except (ValueError, TypeError):
        return None
    return message if (around, session) == (worktree, shared.recording_session) else None


def _make_environment(begun: _Begun) -> dict[str, str]:
    """Give the environment of the command: what it records by itself goes to the same session."""
    import json

    session = begun.shared.recording_session
    environment = {**os.environ, "SHADOWTREE_SESSION": session}
    if not begun.is_step:
        environment[AROUND] = json.dumps([begun.worktree, session, begun.name])
    return environment


def _end(begun: _Begun, *, undoes: bool) -> tuple[Record | ShadowError, Undone]:
    """Record where it ends, and take it back if that is wanted."""
    try:
        with open_shadow(begun.shared, begun.worktree) as shadow, ProgressBar("Reading files") as bar:
            if begun.is_step:
                return shadow.end_step(begun.name), None
            # The command may have recorded in the session itself, which ended the message before the run did.
            is_cut = _find_open(shadow) != begun.name
            message = shadow.end(begun.name, progress=bar)
    except ShadowError as error:
        return error, error if undoes else None
    if not undoes:
        return message, None
    try:
        with open_shadow(begun.shared, begun.worktree) as shadow:
            return message, _undo_all(shadow, message) if is_cut else _undo(shadow, message.id)
    except ShadowError as error:
        return message, error


# Undoing


def _undo(shadow: shadowtree.Shadow, name: str) -> Outcome:
    """Take back a message and the later ones; nobody is asked whether much may be deleted."""
    return shadow.revert(name, confirm=lambda plan: True)


def _undo_all(shadow: shadowtree.Shadow, run: Message) -> Outcome:
    """Take back all that changed since the message of a run began, which the command itself ended.

    What no message holds because it came last becomes one first; an open one holds it.
    """
    status = shadow.status()
    if status.open is None and status.changed:
        text = f"what the run of {run.id} did after its last message"
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


def _report(code: int, failure: CannotRun | None, record: Record | ShadowError, undo: Undone) -> int:
    """Tell what is recorded, and end as the command did; but what is not recorded is no success.

    `code` is the exit code of the command, or minus the signal that it died of; `failure` says why it could
    not even be started.
    """
    exit_code = code if code >= 0 else _SIGNALLED - code
    if writes_json():
        write_json(_to_json(exit_code, record, undo))
    try:
        if failure is not None:
            say(str(failure))
        _report_to_people(record, undo, is_brief=writes_json())
    except OSError:
        # Who reads what the command says has gone; how it ended is told all the same.
        drop_output()
    if code < 0:
        die_of(-code)
    return _NOT_RECORDED if code == 0 and isinstance(record, ShadowError) else exit_code


def _to_json(exit_code: int, record: Record | ShadowError, undo: Undone) -> dict[str, Any]:  # Any: JSON
    if isinstance(record, Message):
        document = to_json(record)
    else:
        document = to_document(record) if isinstance(record, ShadowError) else record.to_dict()
    outcome = to_document(undo) if isinstance(undo, ShadowError) else undo
    return {**document, "exit_code": exit_code, "undo": outcome}


def _report_to_people(record: Record | ShadowError, undo: Undone, *, is_brief: bool) -> None:
    """Say what is recorded, what was taken back, or which paths are in conflict."""
    if isinstance(record, ShadowError):
        consequence = "" if undo is None else ", and so not undone"
        say(f"what the command changed is not recorded{consequence}: {record}")
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
        say(f"{_name(record)} is not undone: {undo}")
        return
    if is_brief and undo.complete:
        return
    later = undo.messages[1:]
    undone = f"message {undo.messages[0]} {describe_later(later)} are" if later else f"{_name(record)} is"
    say(f"{undone} undone: {describe_effect(undo) if undo.complete else describe_shortfall(undo)}")


def _name(record: Record) -> str:
    if isinstance(record, Step):
        name = f"step {record.name} of message {record.message}"
    else:
        name = f"message {record.id}"
    return name + (", which a later one ended," if record.is_inferred else "")
