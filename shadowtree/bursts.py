"""When a burst of changes is over: after some quiet, or when it has gone on for too long. Pure.

changes   x xx   x  xx             x
          |          |<-- quiet -->|
          began      last          over here, but for the change that came in time
"""

from __future__ import annotations

from shadowtree.errors import InvalidInput
from shadowtree.frozen import frozen, replace

_LONGEST = 12
"""A burst lasts at most so many times the quiet: what a program that never rests does is recorded too."""
_LONGEST_AT_LEAST_S = 60.0
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@frozen
class Burst:
    """Changes that follow each other, by any clock that does not go back."""

    began_s: float
    last_s: float

    def go_on(self, now_s: float) -> Burst:
        """Take in one more change."""
        return replace(self, last_s=now_s)

    def ends_at(self, quiet_s: float) -> float:
        """Tell when it is over if nothing more happens."""
        return min(self.last_s + quiet_s, self.began_s + longest_burst(quiet_s))


def longest_burst(quiet_s: float) -> float:
    """Tell after how long a burst is over even if it goes on."""
    return max(_LONGEST * quiet_s, _LONGEST_AT_LEAST_S)


def note_change(burst: Burst | None, now_s: float) -> Burst:
    """Take in a change: it begins a burst, or belongs to the one that is going on."""
    return Burst(now_s, now_s) if burst is None else burst.go_on(now_s)


def name_burst(time_s: float, number: int) -> str:
    """Make up an id for the message that a burst becomes: `auto-20261116T101500Z-1`."""
    from time import gmtime, strftime

    return f"auto-{strftime('%Y%m%dT%H%M%SZ', gmtime(time_s))}-{number}"


def parse_duration(text: str) -> float:
    """Read `5s`, `500ms`, `2m`, `1.5` as seconds; more than nothing and at most a day."""
    digits = text.strip().rstrip("hms")
    unit = text.strip()[len(digits) :] or "s"
    is_number = digits.replace(".", "", 1).isdecimal() and digits.isascii() and len(digits) < 16
    seconds = float(digits) * _UNITS_S[unit] if is_number and unit in _UNITS_S else 0.0
    if not 0 < seconds <= 86400:
        raise InvalidInput(f"a duration is such as 500ms, 5s or 2m, up to a day, not {text!r}")
    return seconds
