"""The base of all results: how they become the documented JSON."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any


class Result:
    """A value with its documented JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON: every field, unless a class overrides this."""
        names: tuple[str, ...] = type(self).__match_args__  # type: ignore[attr-defined]  # all of ours have it
        return pick(self, *names)


def pick(result: Result, *names: str) -> dict[str, Any]:  # Any: JSON
    """Turn fields of a result into JSON: `is_pinned` becomes `pinned`, `time_ms` becomes `time` as text."""
    document: dict[str, Any] = {}  # Any: JSON
    for name in names:
        value = getattr(result, name)
        if name.endswith("_ms"):
            name = name.removesuffix("_ms")
            value = None if value is None else as_datetime(value).isoformat(timespec="milliseconds")
        document[name.removeprefix("is_")] = _to_json(value)
    return document


def if_any(result: Result, name: str) -> list[str]:
    """Return the name of a field if it is not empty, for JSON that leaves out empty fields."""
    return [name] if getattr(result, name) else []


def _to_json(value: object) -> Any:  # Any: JSON
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    return value.to_dict() if isinstance(value, Result) else value


def as_datetime(time_ms: int) -> datetime:
    """Turn milliseconds since 1970 into an aware datetime."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC)
