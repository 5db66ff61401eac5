"""Read the payload of a hook: JSON of limited size on standard input.

`json` imports `re`, which takes a seventh of the time of a hook that the daemon answers. So the C scanner
that `json` uses is called directly if it is there and works as expected.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 16 << 20
"""A longer payload is read to its end, because the agent is still writing it, and then refused."""
_CHUNK_BYTES = 1 << 20
_SPACE = " \t\n\r"


class BadPayload(Exception):
    """The input is not a valid payload."""


class _Usual:
    """The defaults of `json.loads`."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def read_payload(fd: int) -> dict[str, object]:
    """Read a JSON object to its end, or raise BadPayload."""
    chunks, size = [], 0
    while chunk := os.read(fd, _CHUNK_BYTES):
        size += len(chunk)
        if size <= MOST_BYTES:
            chunks.append(chunk)
    if size > MOST_BYTES:
        raise BadPayload(f"the payload has {size:,} bytes, more than {MOST_BYTES:,}")
    try:
        payload = parse_json(b"".join(chunks).decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the payload is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise BadPayload("the payload is not a JSON object")
    return payload


def parse_json(text: str) -> object:
    """Read JSON as `json.loads` does, or raise ValueError."""
    scan = _make_scanner()
    if scan is not None:
        begin = len(text) - len(text.lstrip(_SPACE))
        try:
            found, end = scan(text, begin)
            if not text[end:].strip(_SPACE):
                return found
        except (StopIteration, SystemError):
            # Only `json` can describe what is wrong.
            pass
    import json

    loaded: object = json.loads(text)
    return loaded


def _make_scanner() -> Callable[[str, int], tuple[object, int]] | None:
    try:
        from _json import make_scanner

        made: Callable[[str, int], tuple[object, int]] = make_scanner(_Usual)  # type: ignore[arg-type]  # stubs
    except (ImportError, AttributeError, TypeError):
        return None
    return made
