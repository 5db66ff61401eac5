"""Times as people write and read them: in the local time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from shadowtree.base.errors import InvalidInput

_DAYS = {"today": 0, "yesterday": 1}
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_since(text: str, now: datetime) -> datetime:
    """Read a point in time: an age such as `2h`, a day such as `yesterday`, or a date, perhaps with a time.

    `now` is aware; what names no time zone is in its own.
    """
    if text in _DAYS:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=_DAYS[text])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return now - timedelta(seconds=_parse_age(text))
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)


def describe_time(time: datetime) -> str:
    """Write a time as a clock on the wall would have shown it."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def _parse_age(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?) ?([smhdw]|min)", text)
    if found is None:
        raise InvalidInput(f"--since must be like 2h, 3d, yesterday or 2026-01-31, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]
