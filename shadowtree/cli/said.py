"""What a caller says of a message, and what is told of one that was recorded."""

from __future__ import annotations

import shadowtree
from shadowtree.cli.command import Option, Shared
from shadowtree.cli.output import warn, write_json, write_lines
from shadowtree.cli.text import count, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DESCRIPTION = (
    Option("-m", "text", "What was asked for, or said", metavar="TEXT", may_be_empty=True),
    Option("--role", "role", "Who speaks; a turn starts at the role 'user' or at none", metavar="ROLE"),
    Option("--meta", "meta", "A JSON object of your own, kept with the message", metavar="JSON"),
)
"""The options by which a message is described."""


def describe_message(
    text: str | None, role: str | None, meta: str | None
) -> dict[str, Any]:  # Any: arguments of several types
    """Turn the values of these options into arguments of the library."""
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


def tell_finished(shared: Shared, message: shadowtree.Message) -> None:
    """Tell what a message that is over changed."""
    if shared.as_json:
        write_json(to_json(message, "before", "after", "files"))
        return
    if message.hole is None:
        write_lines([f"Message {escape(message.id)} {describe_patch(message.patch)}"])
    else:
        write_lines([f"Message {escape(message.id)} has ended"])
        warn(f"what it changed is not known: {message.hole}")
    tell_shortcomings(message)


def to_json(message: shadowtree.Message, *keys: str) -> dict[str, Any]:  # Any: JSON
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


def describe_patch(patch: shadowtree.Patch) -> str:
    """Say how much was changed, after a name."""
    return f"changed {count(len(patch.files), 'file')}" if patch.files else "changed nothing"


def tell_shortcomings(record: shadowtree.Message | shadowtree.Step) -> None:
    """Warn of what is not protected."""
    for warning in record.warnings:
        warn(warning)
    if record.skipped:
        from shadowtree.cli.render import summarise_skipped

        warn(f"not protected: {summarise_skipped(record.skipped)}; 'shadowtree status' tells all")
