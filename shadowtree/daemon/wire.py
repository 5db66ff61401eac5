"""The protocol between commands and the daemon: frames of plain values, each preceded by its length.

    command                        daemon
    hello PROTOCOL VERSION HOW   ▶
                                 ◀ welcome            or: other PROTOCOL VERSION PID WHY
    find DIRECTORY STORE         ▶
                                 ◀ found WORKTREE ... or: without WHY
    call METHOD ...              ▶
                                 ◀ session, number, progress, working, recovered
    cancel                       ▶
                                 ◀ result, error      or: without WHY

A command of the same version whose circumstances differ may still send `status` and `stop`, which concern the
daemon itself. `hello`, `other` and `end` never change, so a command of any version can end any daemon.

A frame is a tuple, written by `marshal` in a format that every current Python reads: importing `json` would
cost a command half as much as starting Python. Reading it is safe only if it comes from the same user, which
both sides check first. A frozen value is a pair of its class and its fields in order. An error is its class,
its text and its attributes, so that it looks the same wherever it was raised.
"""

from __future__ import annotations

import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

PROTOCOL = 3
"""Incremented whenever a frame changes. Both sides need the same protocol and the same version."""

READING = frozenset(
    {
        "blame",
        "blame_lines",
        "branches",
        "diff",
        "diff_message",
        "messages",
        "patch",
        "sessions",
        "show",
        "status",
    }
)
"""Methods of a shadow that record nothing."""
AGAIN = frozenset({"begin", "begin_step", "end", "end_step", "record_turn", "take_snapshot"})
"""Methods that record, and may be called again with the same arguments if the answer was lost."""
ONCE = frozenset({"redo", "restore", "revert", "snapshot", "switch", "undo", "unrevert"})
"""Methods that would do something else if they were called again."""
METHODS = READING | AGAIN | ONCE
"""All methods that the daemon calls for commands."""

HEADER_BYTES = 4
_FORM = 2
"""The format of `marshal`: numbers, texts, lists, tuples and dictionaries have not changed since."""
_MOST_BYTES = 1 << 30
"""The longest frame that is accepted."""
_TUPLE = ""
"""Stands for the class of a plain tuple."""


def may_repeat(method: str, arguments: Sequence[object], named: Mapping[str, object]) -> bool:
    """Return whether a call may be made again if its answer was lost."""
    if method in ("begin", "end"):
        # Without an id, a second `begin` makes another message, and a second `end` may end another one.
        return bool(arguments) and arguments[0] is not None
    return method not in ONCE or bool(named.get("dry_run"))


# Frames


def pack_frame(frame: tuple[Any, ...]) -> bytes:  # Any: plain values
    """Return a frame as bytes, preceded by its length."""
    body = marshal.dumps(frame, _FORM)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def frame_size(header: bytes | bytearray) -> int:
    """Read the length before a frame; raise ConnectionError if it is too large."""
    size = int.from_bytes(header, "big")
    if size > _MOST_BYTES:
        raise ConnectionError("that is no frame")
    return size


def unpack_frame(body: bytes | bytearray) -> tuple[Any, ...]:  # Any: plain values
    """Read a frame; raise ConnectionError if it is malformed."""
    try:
        frame = marshal.loads(body)
    except (EOFError, ValueError, TypeError) as error:
        raise ConnectionError("that is no frame") from error
    if not isinstance(frame, tuple) or not frame:
        raise ConnectionError("that is no frame")
    return frame


# Values


def encode(value: object) -> Any:  # Any: plain values
    """Turn a result, or an argument, into plain values."""
    if value is None or isinstance(value, str | int | float | dict):
        # A dictionary is plain already: JSON, from here or from a caller.
        return value
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, tuple):
        return _TUPLE, [encode(each) for each in value]
    kind = type(value)
    fields: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]  # all of ours have it
    return f"{kind.__module__}:{kind.__name__}", [encode(getattr(value, name)) for name in fields]


def decode(plain: Any) -> Any:  # Any: plain values, and what was sent
    """Turn plain values back into the value that was sent."""
    if isinstance(plain, list):
        return [decode(each) for each in plain]
    if not isinstance(plain, tuple):
        return plain
    name, content = plain
    values = [decode(each) for each in content]
    return tuple(values) if name == _TUPLE else _find_class(name)(*values)


def encode_error(error: BaseException) -> dict[str, Any]:  # Any: plain values
    """Turn an error into plain values; one that is not ours keeps only its name and text."""
    from shadowtree.base.errors import ShadowError

    if isinstance(error, ShadowError | KeyboardInterrupt):
        name = f"{type(error).__module__}:{type(error).__name__}"
        carried = {key: encode(value) for key, value in vars(error).items()}
        return {"class": name, "text": str(error), "values": carried}
    if isinstance(error, OSError):
        # The file name may be a descriptor.
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        return {"class": "OSError", "values": [error.errno, error.strerror, path]}
    return {"class": "", "text": f"{type(error).__name__}: {error}"}


def decode_error(plain: dict[str, Any]) -> BaseException:  # Any: plain values
    """Turn plain values back into the error that was raised."""
    name = plain["class"]
    if name == "OSError":
        return OSError(*plain["values"])
    if not name:
        from shadowtree.base.errors import DaemonFailed

        return DaemonFailed(f"failed with an internal error: {plain['text']}")
    kind = _find_class(name)
    error: BaseException = kind.__new__(kind)
    error.args = (plain["text"],) if plain["text"] else ()
    # These include notes.
    vars(error).update({key: decode(value) for key, value in plain["values"].items()})
    return error


def _find_class(name: str) -> Any:  # Any: a class of ours
    from importlib import import_module

    module, _, kind = name.partition(":")
    return getattr(import_module(module), kind)
