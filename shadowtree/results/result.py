"""What every result has in common: how it becomes the documented JSON."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


class Result:
    """A value that callers get, with its documented JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Give the documented JSON: every field, unless its class says otherwise."""
        names: tuple[str, ...] = type(self).__match_args__  # type: ignore[attr-defined]  # all of ours have it
        return pick(self, *names)


def pick(result: Result, *names: str) -> dict[str, Any]:  # Any: JSON
    """Turn some of a result into JSON: `is_pinned` is called `pinned`, and `time_ms` is `time`, as text."""
    document: dict[str, Any] = {}  # Any: JSON
    for name in names:
        value = getattr(result, name)
        if name.endswith("_ms"):
            name = name.removesuffix("_ms")
            value = None if value is None else as_datetime(value).isoformat(timespec="milliseconds")
        document[name.removeprefix("is_")] = _to_json(value)
    return document


def if_any(result: Result, name: str) -> list[str]:
    """Name a field that stands in the JSON only if there is something in it."""
    return [name] if getattr(result, name) else []


def _to_json(value: object) -> Any:  # Any: JSON
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    return value.to_dict() if isinstance(value, Result) else value


def as_datetime(time_ms: int) -> datetime:
    """Turn milliseconds since 1970 into an aware time."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC)
