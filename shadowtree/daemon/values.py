"""Results and errors on their way: as plain values, and back as what they were.

A frozen value is a pair: the name of its class, and its fields in order. An error is its class, its sentence
and the values that it carries, so that whoever catches it cannot tell where it was raised.
"""

from __future__ import annotations

import os

import shadowtree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TUPLE = ""
"""Stands for the class of what is a tuple itself."""


def encode(value: object) -> Any:  # Any: plain values
    """Turn a result, or an argument, into plain values."""
    if value is None or isinstance(value, str | int | float | dict):
        # A dictionary is plain already: JSON, from here or from a caller.
        return value
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, tuple):
        return _TUPLE, [encode(each) for each in value]
    fields: tuple[str, ...] = type(value).__match_args__  # type: ignore[attr-defined]  # all of ours have it
    return type(value).__name__, [encode(getattr(value, name)) for name in fields]


def decode(plain: Any) -> Any:  # Any: plain values, and what was sent
    """Turn plain values into what was sent."""
    if isinstance(plain, list):
        return [decode(each) for each in plain]
    if not isinstance(plain, tuple):
        return plain
    name, content = plain
    values = [decode(each) for each in content]
    return tuple(values) if name == _TUPLE else getattr(shadowtree, name)(*values)


def encode_error(error: BaseException) -> dict[str, Any]:  # Any: plain values
    """Turn an error into plain values; one that is not ours keeps its name and what it says."""
    if isinstance(error, OSError) and not isinstance(error, shadowtree.ShadowError):
        return {"class": "OSError", "values": [error.errno, error.strerror, _decode_name(error.filename)]}
    if not isinstance(error, shadowtree.ShadowError | KeyboardInterrupt):
        return {"class": "", "text": f"{type(error).__name__}: {error}"}
    carried = {name: encode(value) for name, value in vars(error).items()}
    return {"class": type(error).__name__, "text": str(error), "values": carried}


def decode_error(plain: dict[str, Any]) -> BaseException:  # Any: plain values
    """Turn plain values into the error that was raised."""
    name = plain["class"]
    if name == "OSError":
        return OSError(*plain["values"])
    if not name:
        return shadowtree.DaemonFailed(f"has met an internal error: {plain['text']}")
    kind: type[BaseException] = KeyboardInterrupt
    if name != kind.__name__:
        kind = getattr(shadowtree, name)
    error = kind.__new__(kind)
    error.args = (plain["text"],) if plain["text"] else ()
    # Notes are among them.
    vars(error).update({key: decode(value) for key, value in plain["values"].items()})
    return error


def _decode_name(name: object) -> str | None:
    return os.fsdecode(name) if isinstance(name, str | bytes) else None
