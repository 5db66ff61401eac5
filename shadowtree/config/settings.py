"""The settings of a shadow, their defaults, and how they are read from text."""

from __future__ import annotations

from collections.abc import Mapping

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

HEAVY_DIRS = (
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "venv",
)
"""Dependency and cache directories: left out wherever they are, unless a git index tracks them."""

PROJECT_SETTINGS = frozenset({"heavy_dirs", "max_file_size"})
"""What a project's files may set; all others are the user's alone, those too that are yet to come.

A project says what of it is worth covering, as its `.shadowtreeignore` does. It says nothing of how much of
the user's disk is taken, how long history is kept, or how long others are waited for.
"""

_MOST_DIGITS = 18
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_WATCHERS = ("auto", "inotify", "watchfiles")
_MOST_SECONDS = 1e11
"""Some thousands of years; more is a slip of the pen."""
_UNITS = {"": 1, "B": 1} | {
    letter + suffix: factor
    for letter, factor in {"K": KIB, "M": MIB, "G": GIB, "T": 1024 * GIB}.items()
    for suffix in ("", "B", "IB")
}


@frozen
class Settings:
    """What a user can turn; sizes are in bytes, times in seconds."""

    max_file_size: int = 10 * MIB
    """A file above this is left out, unless an earlier tree covers its path."""
    max_files: int = 1_000_000
    """A first snapshot of more files is refused."""
    max_bytes: int = 10 * GIB
    """A first snapshot of more bytes is refused."""
    min_free: int = 512 * MIB
    """What must stay free on the store's disk after every act."""
    heavy_dirs: tuple[str, ...] = ()
    """Directory names left out in addition to `HEAVY_DIRS`."""
    max_branches: int = 20
    """How many branches a session keeps."""
    warn_branches: int = 15
    """From how many branches on a session is told."""
    lock_timeout: float = 10.0
    """How long to wait for another process."""
    keep_within: float = 30 * 86400.0
    """Messages that are not older are kept."""
    keep_last: int = 1000
    """So many of the newest messages of each session are kept, however old they are."""
    keep_turns: int = 20
    """So many of the newest turns are kept, however much room they take."""
    store_budget: int = 2 * GIB
    """When a store takes more, its oldest messages are forgotten; 0: it may take anything."""
    total_budget: int = 10 * GIB
    """When all stores of a user take more together, `status` and `stats --all` warn; 0: they may."""
    watcher: str = "auto"
    """What watches: inotify, watchfiles, or auto for inotify on Linux and watchfiles elsewhere."""

    @classmethod
    def of(cls, given: Mapping[str, object] | Settings | None) -> Settings:
        """Make settings of a mapping; values may be text, as on a command line."""
        if given is None:
            return cls()
        if isinstance(given, Settings):
            return given
        read: Any = {
            key: read_setting(key, value) for key, value in given.items()
        }  # Any: of the fields' own types
        return cls(**read)


def read_setting(key: str, value: object) -> object:
    """Read the value of a setting, which may be text; raise InvalidInput, with its key."""
    if key not in Settings.__match_args__:
        raise InvalidInput(f"no setting is called {key!r}")
    default = getattr(Settings(), key)
    if isinstance(default, tuple):
        return _read_names(key, value)
    if isinstance(default, float):
        return read_seconds(key, value)
    if isinstance(default, str):
        if value not in _WATCHERS:
            raise InvalidInput(f"{key} must be one of {', '.join(_WATCHERS)}, not {value!r}")
        return value
    return _read_number(key, value)


def read_seconds(key: str, value: object) -> float:
    """Read a time: a number of seconds, or `500ms`, `90s`, `10m`, `12h`, `30d`, `2w`."""
    seconds = _parse_seconds(value)
    if not 0 <= seconds < _MOST_SECONDS:
        raise InvalidInput(f"{key} must be a number of seconds, or a time such as 12h or 30d, not {value!r}")
    return seconds


def parse_duration(text: str) -> float:
    """Read `500ms`, `5s`, `2m` or a number of seconds: more than nothing and at most a day."""
    seconds = _parse_seconds(text)
    if not 0 < seconds <= 86400:
        raise InvalidInput(f"a duration is such as 500ms, 5s or 2m, up to a day, not {text!r}")
    return seconds


def _parse_seconds(value: object) -> float:
    """Read a time in seconds; a negative number if it is none."""
    text, factor = value, 1.0
    if isinstance(value, str):
        text = value.strip()
        digits = text.rstrip("mshdw")
        if digits != text:
            text, factor = digits, _SECONDS.get(text[len(digits) :], float("nan"))
    try:
        return -1.0 if isinstance(value, bool) else float(text) * factor  # type: ignore[arg-type]  # refused below
    except (TypeError, ValueError, OverflowError):
        return -1.0


def _read_number(key: str, value: object) -> int:
    """Read `1000`, `10M` or `2 GiB`."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidInput(f"{key} must be a whole number, not {value!r}")
    text = str(value).strip()
    digits = text.rstrip("BKMGTIbkmgti ")
    unit = text[len(digits) :].strip().upper()
    if not digits.isdecimal() or len(digits) > _MOST_DIGITS or unit not in _UNITS:
        raise InvalidInput(f"{key} must be a whole number such as 1000 or 10M, not {value!r}")
    return int(digits) * _UNITS[unit]


def _read_names(key: str, value: object) -> tuple[str, ...]:
    """Read `target,build` or any iterable of names."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset) or not all(isinstance(p, str) for p in parts):
        raise InvalidInput(f"{key} must be names with commas between them, not {value!r}")
    names = tuple(part.strip() for part in parts if part.strip())
    if any("/" in name for name in names):
        raise InvalidInput(f"{key} takes names of directories, not paths: {value!r}")
    return names
