"""The commands that hosts of agents call around every message and every tool call."""

from __future__ import annotations

import shadowtree
from shadowtree.cli.command import Argument, Command, Option, Shared
from shadowtree.cli.output import warn, write_json, write_lines
from shadowtree.cli.progress import ProgressBar
from shadowtree.cli.shadows import find_wrapped, open_shadow, open_to_read, open_to_record, paths_in_worktree
from shadowtree.cli.text import count, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def begin(
    shared: Shared, id: str, text: str | None = None, role: str | None = None, meta: str | None = None
) -> int:
    words = _describe_message(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.begin(id, progress=bar, **words)
    if shared.as_json:
        write_json(_to_json(message, "before"))
        return 0
    write_lines([f"Message {escape(message.id)} has begun"])
    _tell_shortcomings(message)
    return 0


def end(shared: Shared, id: str | None = None, paths: tuple[str, ...] = ()) -> int:
    worktree = find_wrapped(shared)
    written = paths_in_worktree(worktree, paths)
    with open_shadow(shared, worktree) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.end(id, paths=written, progress=bar)
    _tell_finished(shared, message)
    return 0


def snapshot(
    shared: Shared, id: str, text: str | None = None, role: str | None = None, meta: str | None = None
) -> int:
    words = _describe_message(text, role, meta)
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        message = shadow.snapshot(id, progress=bar, **words)
    _tell_finished(shared, message)
    return 0


def step(shared: Shared, name: str, is_end: bool = False) -> int:
    with open_to_read(shared) as shadow:
        found = shadow.end_step(name) if is_end else shadow.begin_step(name)
    if shared.as_json:
        write_json(found.to_dict())
        return 0
    what = f"Step {escape(found.name)} of message {escape(found.message)}"
    write_lines([f"{what} has begun" if found.after is None else f"{what} {_describe_patch(found.patch)}"])
    _tell_shortcomings(found)
    return 0


def _describe_message(
    text: str | None, role: str | None, meta: str | None
) -> dict[str, Any]:  # Any: arguments of several types
    return {"text": _to_text(text or ""), "role": role, "meta": None if meta is None else _read_meta(meta)}


def _to_text(words: str) -> str:
    """Replace bytes that are no UTF-8: a broken character in a prompt is no reason to record nothing."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_meta(text: str) -> dict[str, Any]:  # Any: the caller's JSON
    import json

    try:
        meta = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise shadowtree.InvalidInput(f"the value of --meta is no JSON: {error}") from error
    if not isinstance(meta, dict):
        raise shadowtree.InvalidInput(f"the value of --meta is no JSON object: {text}")
    return meta


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _tell_finished(shared: Shared, message: shadowtree.Message) -> None:
    if shared.as_json:
        write_json(_to_json(message, "before", "after", "files"))
        return
    if message.hole is None:
        write_lines([f"Message {escape(message.id)} {_describe_patch(message.patch)}"])
    else:
        write_lines([f"Message {escape(message.id)} has ended"])
        warn(f"what it changed is not known: {message.hole}")
    _tell_shortcomings(message)


def _to_json(message: shadowtree.Message, *keys: str) -> dict[str, Any]:  # Any: JSON
    """Give the documented JSON of a recording command."""
    values = {
        "before": message.before,
        "after": message.after,
        "files": [changed.to_dict() for changed in message.patch.files],
    }
    document: dict[str, Any] = {  # Any: JSON
        "message": message.id,
        "session": message.session,
        **{key: values[key] for key in keys},
        "skipped": [skipped.to_dict() for skipped in message.skipped],
    }
    if message.hole is not None:
        document["hole"] = message.hole
    if message.warnings:
        document["warnings"] = list(message.warnings)
    return document


def _describe_patch(patch: shadowtree.Patch) -> str:
    return f"changed {count(len(patch.files), 'file')}" if patch.files else "changed nothing"


def _tell_shortcomings(record: shadowtree.Message | shadowtree.Step) -> None:
    for warning in record.warnings:
        warn(warning)
    if record.skipped:
        from shadowtree.cli.render import summarise_skipped

        warn(f"not protected: {summarise_skipped(record.skipped)}; 'shadowtree status' tells all")


_DESCRIPTION = (
    Option("-m", "text", "What was asked for, or said", metavar="TEXT", may_be_empty=True),
    Option("--role", "role", "Who speaks; a turn starts at the role 'user' or at none", metavar="ROLE"),
    Option("--meta", "meta", "A JSON object of your own, kept with the message", metavar="JSON"),
)

BEGIN = Command(
    begin,
    arguments=(Argument("id"),),
    options=_DESCRIPTION,
    help="""\
Record where the message ID begins

To be called before the agent works on it. A message that is still open is ended first. Done again for the
open message, it changes nothing. The first time it wraps the current directory.

\b
Examples:
  shadowtree begin msg_01
  shadowtree begin msg_01 -m "add a login page" --role user
  shadowtree begin -- -an-id-with-a-dash
""",
)

END = Command(
    end,
    arguments=(Argument("id", is_required=False),),
    options=(
        Option(
            "--path",
            "paths",
            "Only PATH was changed by the message; may be repeated",
            metavar="PATH",
            is_repeatable=True,
        ),
    ),
    help="""\
Record what the message ID changed

Without ID it is the open message. With --path it changed these files or directories alone, and what else is
different is nobody's.

\b
Examples:
  shadowtree end
  shadowtree end msg_01
  shadowtree end msg_01 --path src/login.py --path tests
""",
)

SNAPSHOT = Command(
    snapshot,
    arguments=(Argument("id"),),
    options=_DESCRIPTION,
    help="""\
Record the message ID when it is over

For agents that can call only after their work: all that changed since the session's last record is counted
as the message's. The first time it wraps the current directory.

\b
Examples:
  shadowtree snapshot msg_01
  shadowtree snapshot msg_01 -m "add a login page"
""",
)

STEP = Command(
    step,
    arguments=(Argument("name"),),
    options=(Option("--end", "is_end", "The step is over"),),
    help="""\
Record where a step of the open message begins

A step is one tool call. With --end it is over; a new one ends the one before it, too.

\b
Examples:
  shadowtree step edit-1
  shadowtree step edit-1 --end
""",
)
