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
from shadowtree.cli.output import (
    ProgressBar,
    count,
    drop_output,
    say,
    talk,
    warn,
    write_json,
    writes_json,
)
from shadowtree.cli.record import describe_patch, list_warnings, read_description, to_json
from shadowtree.results.messages import Message, Skipped, Step
from shadowtree.results.outcomes import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Record = Message | Step

AROUND = "SHADOWTREE_RUN"
"""The variable by which a command knows in which run it is: worktree, session and message, as JSON."""
_NOT_RECORDED = 1
"""The exit code if a command succeeded, and what it changed could not be recorded."""
_NOBODYS = "it changed during the run, and no message of this session says so"
_SIGNALLED = 128
"""What a shell adds to the number of a signal to make an exit code of it."""


@frozen
class Ended:
    """How a run came to its end."""

    record: Record | ShadowError
    """What is recorded of it, or why nothing is."""
    code: int
    """The exit code of the command; minus the signal that it died of."""
    failure: CannotRun | None = None
    """Why the command could not even be started."""
    undo: Outcome | ShadowError | None = None
    """What came of taking it back; None: it was not to be taken back."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command, as a shell gives it."""
        return self.code if self.code >= 0 else _SIGNALLED - self.code


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
    except CannotRun as failure:
        return _refuse(failure)
    begun = _Run(shared, find_to_record(shared), undoes=undo_on_fail)
    begun.begin(_make_id() if id is None else id, words)
    with Relay() as relay:
        ended = begun.finish(*_run_program(relay, path, command, begun))
    return _report(ended)


class _Run:
    """What is recorded of one run: a message, or a step of the message of the run around it.

    The store is open at the beginning and at the end alone; in between it is the command's to use.
    """

    def __init__(self, shared: Shared, worktree: str, *, undoes: bool) -> None:
        self.shared = shared
        self.worktree = worktree
        self._undoes = undoes
        """It is to be taken back if the command fails."""
        self._name = ""
        self._is_step = False
        self._is_cut = False
        """The command recorded in the session itself, which ended the message before the run did."""

    def begin(self, name: str, words: Mapping[str, Any]) -> None:  # Any: arguments of several types
        """Record where it begins; if that fails, the command must not be run."""
        self._name = name
        with open_shadow(self.shared, self.worktree) as shadow, ProgressBar("Reading files") as bar:
            open_id = _find_open(shadow)
            if open_id == name:
                # To begin it again would change nothing, and its end is not ours to tell.
                raise DuplicateMessage(name, shadow.session)
            self._is_step = open_id is not None and open_id == self._find_around()
            if self._is_step and self._undoes:
                # An act would end the open message, and cut that of the run around this one in two.
                raise InvalidInput(
                    f"--undo-on-fail is not for a run inside the run of message {open_id!r}: "
                    "this one would be a step of it, which cannot be undone before it ends"
                )
            if self._is_step:
                shadow.begin_step(name)
            else:
                shadow.begin(name, progress=bar, **words)

    def surroundings(self) -> dict[str, str]:
        """Give the environment of the command: what it records by itself goes to the same session."""
        import json

        around = (
            {} if self._is_step else {AROUND: json.dumps([self.worktree, self.shared.session, self._name])}
        )
        return {**os.environ, "SHADOWTREE_SESSION": self.shared.session, **around}

    def finish(self, code: int, failure: CannotRun | None) -> Ended:
        """Record where it ends, and take it back if that is wanted and the command failed."""
        is_to_go = self._undoes and code != 0
        try:
            record = self._end()
        except ShadowError as error:
            return Ended(error, code, failure, error if is_to_go else None)
        return Ended(record, code, failure, self._undo(record) if is_to_go else None)

    def _find_around(self) -> str | None:
        """Name the message of the run that this one is inside of, if it is one of the same session."""
        import json

        try:
            worktree, session, message = json.loads(os.environ.get(AROUND, ""))
        except (ValueError, TypeError):
            return None
        return message if (worktree, session) == (self.worktree, self.shared.session) else None

    def _end(self) -> Record:
        with open_shadow(self.shared, self.worktree) as shadow, ProgressBar("Reading files") as bar:
            if self._is_step:
                return shadow.end_step(self._name)
            self._is_cut = _find_open(shadow) != self._name
            return shadow.end(self._name, progress=bar)

    def _undo(self, record: Record) -> Outcome | ShadowError:
        assert isinstance(record, Message)
        try:
            with open_shadow(self.shared, self.worktree) as shadow:
                if self._is_cut:
                    return undo_all(shadow, record, _make_id())
                return undo_message(shadow, record.id)
        except ShadowError as error:
            return error


def _find_open(shadow: shadowtree.Shadow) -> str | None:
    """Name the open message of the session."""
    last = shadow.messages(last=1) if shadow.is_wrapped else []
    return next((message.id for message in last if message.state == "open"), None)


def _run_program(
    relay: Relay, path: str, command: tuple[str, ...], begun: _Run
) -> tuple[int, CannotRun | None]:
    output_fd = 2 if writes_json() else 1
    try:
        return relay.run(path, command, begun.surroundings(), output_fd=output_fd), None
    except CannotRun as failure:
        return failure.exit_code, failure


def _refuse(failure: CannotRun) -> int:
    """Tell that a command cannot be run, of which nothing is recorded."""
    say(str(failure))
    if writes_json():
        write_json({"error": "CannotRun", "message": str(failure)})
    return failure.exit_code


def _make_id() -> str:
    from time import gmtime, strftime

    return f"run-{strftime('%Y%m%dT%H%M%SZ', gmtime())}-{os.urandom(3).hex()}"


# Undoing


def undo_message(shadow: shadowtree.Shadow, name: str) -> Outcome:
    """Take back a message and the later ones; nobody is asked whether much may be deleted."""
    return shadow.revert(name, confirm=lambda plan: True)


def undo_all(shadow: shadowtree.Shadow, run: Message, rest_id: str) -> Outcome:
    """Take back all that changed since the message of a run began, which the command itself ended.

    `rest_id` is for the message that what came last is recorded as, if there is any.
    """
    _record_rest(shadow, run, rest_id)
    outcome = undo_message(shadow, _find_first(shadow, run))
    return _name_left(outcome, shadow, run)


def _record_rest(shadow: shadowtree.Shadow, run: Message, rest_id: str) -> None:
    """Record what no message holds because it came last; an open one holds it."""
    status = shadow.status()
    if status.open is None and status.changed:
        shadow.snapshot(rest_id, text=f"what the run of {run.id} did after its last message", inferred=True)


def _find_first(shadow: shadowtree.Shadow, run: Message) -> str:
    """Name the first message since the run began that is in force; the run's own if none is."""
    (last,) = shadow.messages(last=1)
    since = shadow.messages(last=last.number - run.number + 1)
    in_force = (
        message.id
        for message in since
        if message.number >= run.number and message.state in ("open", "active") and not message.is_out
    )
    return next(in_force, run.id)


def _name_left(outcome: Outcome, shadow: shadowtree.Shadow, run: Message) -> Outcome:
    """List as skipped what is still not as it was before the run."""
    known = {skipped.path for skipped in outcome.skipped}
    paths = (changed.path for changed in shadow.patch(run.before).files)
    left = [Skipped(path, _NOBODYS) for path in paths if path not in known]
    if not left:
        return outcome
    return replace(outcome, complete=False, skipped=[*outcome.skipped, *left])


# Reporting


def _report(ended: Ended) -> int:
    """Tell what is recorded, and end as the command did; but what is not recorded is no success."""
    if writes_json():
        write_json(_to_json(ended))
    try:
        _report_to_people(ended, is_brief=writes_json())
    except OSError:
        # Who reads what the command says has gone; how it ended is told all the same.
        drop_output()
    if ended.code < 0:
        die_of(-ended.code)
    if ended.code == 0 and isinstance(ended.record, ShadowError):
        return _NOT_RECORDED
    return ended.exit_code


def _to_json(ended: Ended) -> dict[str, Any]:  # Any: JSON
    record, undo = ended.record, ended.undo
    if isinstance(record, Message):
        document = to_json(record, "before", "after", "files")
    else:
        document = to_document(record) if isinstance(record, ShadowError) else record.to_dict()
    outcome = to_document(undo) if isinstance(undo, ShadowError) else undo and undo.to_dict()
    return {**document, "exit_code": ended.exit_code, "undo": outcome}


def _report_to_people(ended: Ended, *, is_brief: bool) -> None:
    """Say why it was not run, what is recorded, what was taken back, or which paths are in conflict."""
    record, undo = ended.record, ended.undo
    if ended.failure is not None:
        say(str(ended.failure))
    if isinstance(record, ShadowError):
        consequence = "" if undo is None else ", and so not undone"
        say(f"what the command changed is not recorded{consequence}: {record}")
        return
    if not is_brief:
        say(f"{_name(record)} {describe_patch(record.patch)}")
        for warning in list_warnings(record):
            warn(warning)
    if isinstance(undo, Conflict) and not is_brief:
        from shadowtree.cli.views.outcome import list_conflicts

        talk(list_conflicts(undo.conflicts))
    if isinstance(undo, ShadowError):
        say(f"{_name(record)} is not undone: {undo}")
    elif undo is not None and not (is_brief and undo.complete):
        say(f"{_name_undone(record, undo)} undone: {_describe_undo(undo)}")


def _name(record: Record) -> str:
    if isinstance(record, Step):
        name = f"step {record.name} of message {record.message}"
    else:
        name = f"message {record.id}"
    return name + (", which a later one ended," if record.is_inferred else "")


def _name_undone(record: Record, outcome: Outcome) -> str:
    later = len(outcome.messages) - 1
    if later < 1:
        return f"{_name(record)} is"
    after = "message" if later == 1 else f"{later:,} messages"
    return f"message {outcome.messages[0]} and the {after} after it are"


def _describe_undo(outcome: Outcome) -> str:
    if not outcome.complete:
        from shadowtree.cli.views.outcome import describe_shortfall

        return describe_shortfall(outcome)
    deeds = ((outcome.restored, "restored"), (outcome.deleted, "deleted"))
    told = [f"{count(len(paths), 'file')} {deed}" for paths, deed in deeds if paths]
    return ", ".join(told) or "no file changed"
