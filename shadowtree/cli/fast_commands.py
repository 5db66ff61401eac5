"""The commands that record: `begin`, `end`, `snapshot`, `step` and `track`.

Hosts of agents call them around every message and every tool call, so nothing here imports click.
`commands/record` declares their parameters for click, which uses their docstrings as help.
"""

from __future__ import annotations

from shadowtree.base.display import count, escape
from shadowtree.base.errors import InvalidInput
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_record
from shadowtree.cli.output import ProgressBar, emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shadowtree.results.messages import Message, Patch, Snapshot, Step


def begin(
    shared: Shared,
    id: str | None = None,
    text: str | None = None,
    role: str | None = None,
    meta: str | None = None,
) -> None:
    """Begin the message ID

    Run it before the agent starts working. Without ID, a new one is made and printed. If another message is
    still open, it is ended first, with a warning. Beginning the open message again changes nothing. The first
    time, this wraps the current directory.

    \b
    Examples:
      shadowtree begin msg_01
      id=$(shadowtree begin)
      shadowtree begin msg_01 -m "add a login page" --role user
      shadowtree begin -- -an-id-with-a-dash
    """
    words = read_description(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.begin(id, progress=bar, **words)
    lines = [message.id if id is None else f"Began message {escape(message.id)}"]
    emit(to_json(message), lines, warnings=list_warnings(message))


def end(shared: Shared, id: str | None = None, paths: tuple[str, ...] = ()) -> None:
    """End the message ID, and record what it changed

    Without ID, ends the open message. With --path, only changes to these files or directories are recorded as
    its own; other changes belong to no message.

    \b
    Examples:
      shadowtree end
      shadowtree end msg_01
      shadowtree end msg_01 --path src/login.py --path tests
    """
    own = [absolute_path(path) for path in paths] or None
    with open_to_record(shared, wraps=False) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.end(id, paths=own, progress=bar)
    _tell_finished(message)


def snapshot(
    shared: Shared,
    id: str | None = None,
    text: str | None = None,
    role: str | None = None,
    meta: str | None = None,
) -> None:
    """Record the message ID after the fact

    For agents that can run a command only after their work: everything that changed since the session last
    recorded belongs to the message. Without ID, a new one is made and printed. The first time, this wraps
    the current directory.

    \b
    Examples:
      shadowtree snapshot msg_01
      shadowtree snapshot msg_01 -m "add a login page"
    """
    words = read_description(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.snapshot(id, progress=bar, **words)
    _tell_finished(message)


def step(shared: Shared, name: str, is_end: bool = False, meta: str | None = None) -> None:
    """Begin or end a step of the open message

    A step is one tool call. Steps may overlap. Ending the message ends the steps that are still open.

    \b
    Examples:
      shadowtree step edit-1 --meta '{"tool": "edit"}'
      shadowtree step edit-1 --end
    """
    if is_end and meta is not None:
        raise InvalidInput("--meta cannot be combined with --end")
    own = None if meta is None else _read_meta(meta)
    with open_to_record(shared, wraps=False) as shadow:
        found = shadow.end_step(name) if is_end else shadow.begin_step(name, meta=own)
    what = f"step {escape(found.name)} of message {escape(found.message)}"
    line = f"Began {what}" if found.after is None else f"S{what[1:]} {describe_patch(found.patch)}"
    emit(step_to_json(found), [line], warnings=list_warnings(found))


def track(shared: Shared) -> None:
    """Take a snapshot of the directory and print its tree id

    If nothing changed, the id is the same as before. The first time, this wraps the current directory.

    \b
    Examples:
      shadowtree track
      before=$(shadowtree track); ./agent; shadowtree patch "$before"
    """
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        found = shadow.take_snapshot(progress=bar)
    emit(found, [found.tree], warnings=list_warnings(found))


def read_description(
    text: str | None, role: str | None, meta: str | None
) -> dict[str, Any]:  # Any: arguments of several types
    """Turn the options that describe a message into arguments of the library."""
    # A broken character in a prompt must not keep it from being recorded.
    clean = (text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return {"text": clean, "role": role, "meta": None if meta is None else _read_meta(meta)}


def to_json(message: Message) -> dict[str, Any]:  # Any: JSON
    """Return the documented JSON of a recording command."""
    is_open = message.after is None
    return {
        "message": message.id,
        "session": message.session,
        "before": message.before,
        **({} if is_open else {"after": message.after, "files": message.patch.files}),
        "skipped": message.skipped,
        **({} if is_open else {"unprotected": message.unprotected}),
        **({"warnings": message.warnings} if message.warnings else {}),
    }


def step_to_json(step: Step) -> dict[str, Any]:  # Any: JSON
    """Return the documented JSON of `step`."""
    return {
        "message": step.message,
        "step": step.name,
        "before": step.before,
        **({} if step.after is None else {"after": step.after, "files": step.patch.files}),
        **({"warnings": step.warnings} if step.warnings else {}),
    }


def describe_patch(patch: Patch) -> str:
    """Return how many files changed, as a phrase to put after a name."""
    return f"changed {count(len(patch.files), 'file')}" if patch.files else "changed nothing"


def list_warnings(record: Message | Step | Snapshot) -> Iterator[str]:
    """List the warnings of a record, unprotected files last."""
    yield from record.warnings
    if record.skipped:
        from shadowtree.cli.views.status import summarise_skipped

        yield f"not protected: {summarise_skipped(record.skipped)}; run 'shadowtree status' for details"
    unprotected = getattr(record, "unprotected", None)
    if unprotected:
        from shadowtree.cli.views.status import summarise_unprotected

        yield summarise_unprotected(unprotected)


def _tell_finished(message: Message) -> None:
    lines = [f"Message {escape(message.id)} {describe_patch(message.patch)}"]
    emit(to_json(message), lines, warnings=list_warnings(message))


def _read_meta(text: str) -> dict[str, Any]:  # Any: the caller's JSON
    import json

    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--meta is not valid JSON: {error}") from error
    if not isinstance(meta, dict):
        raise InvalidInput(f"--meta must be a JSON object, not {text}")
    return meta
