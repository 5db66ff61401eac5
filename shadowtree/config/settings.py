"""The settings of a shadow, how they are read from text, and where they come from.

The sources are the caller, the environment, the project's files, the user's file and the defaults. The first
of these that sets a key wins. A project's files come with the project, so they may set only a few keys, and
a mistake in them is only a warning (docs/decisions/0021-settings-of-a-project.md). A mistake anywhere else is
an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns

from shadowtree.base.errors import InvalidInput, WorktreeFailed, describe
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import ROOT
from shadowtree.system import disk
from shadowtree.system.files import Cursor, Unreadable, is_racy, read_small_file, stamp_of
from shadowtree.system.locations import VARIABLE_PREFIX, Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.config.settings_file import Statement

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
"""The settings that a project's files may set. All others, including future ones, are for the user alone.

A project decides which of its files are covered, as with its `.shadowtreeignore`. It does not decide how much
disk space is used, how long history is kept, or how long to wait for other processes.
"""

_MOST_DIGITS = 18
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_WATCHERS = ("auto", "inotify", "watchfiles")
_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_MOST_SECONDS = 1e11
"""About three thousand years; more is surely a typing error."""
_UNITS = {"": 1, "B": 1} | {
    letter + suffix: factor
    for letter, factor in {"K": KIB, "M": MIB, "G": GIB, "T": 1024 * GIB}.items()
    for suffix in ("", "B", "IB")
}

OWN_FILE = ".shadowtree.toml"
PYPROJECT = "pyproject.toml"
_SECTION = ("tool", "shadowtree")
_MOST_BYTES = 8 << 10
"""A longer settings file is refused."""
_MOST_PYPROJECT_BYTES = 1 << 20
_LONGEST_WARNING = 300


@frozen
class Settings:
    """The values that you can change; sizes are in bytes, times in seconds."""

    max_file_size: int = 10 * MIB
    """Do not record files larger than this, unless an earlier snapshot has the path."""
    max_untracked_dir_files: int = 0
    """Leave out a directory that git does not track if it has more files than this; 0 means no limit."""
    max_files: int = 1_000_000
    """Refuse a first snapshot of more files than this."""
    max_bytes: int = 10 * GIB
    """Refuse a first snapshot of more bytes than this."""
    min_free: int = 512 * MIB
    """Space that recording leaves free on the store's disk; an act may use it."""
    heavy_dirs: tuple[str, ...] = ()
    """Names of directories to leave out, in addition to `HEAVY_DIRS`."""
    max_branches: int = 20
    """How many branches a session keeps."""
    warn_branches: int = 15
    """Warn when a session has this many branches."""
    lock_timeout: float = 10.0
    """How long to wait for another process."""
    keep_within: float = 30 * 86400.0
    """Keep messages that are younger than this."""
    keep_last: int = 1000
    """Keep this many of the newest messages of each session, however old they are."""
    keep_turns: int = 20
    """Keep this many of the newest turns, however much space they take."""
    max_sessions: int = 0
    """With more sessions than this, `gc` drops those that recorded longest ago; 0 means no limit."""
    store_budget: int = 2 * GIB
    """Forget the oldest messages when a store takes more space than this; 0 means no limit."""
    total_budget: int = 10 * GIB
    """Warn when all your stores together take more space than this; 0 means no limit."""
    watcher: str = "auto"
    """How to watch: inotify, watchfiles, or auto for inotify on Linux and watchfiles elsewhere."""
    hook_daemon: bool = True
    """Hooks of agents start the daemon, so that the next ones are fast."""
    tell_model: bool = True
    """After an undo, the next turn's context says what was undone."""
    store_prompts: bool = True
    """Hooks of agents keep the text of each prompt."""
    push_text: bool = False
    """Push the text and the JSON object of each message too."""
    push_exclude: tuple[str, ...] = ()
    """Patterns, as in a `.gitignore`, of paths that are never pushed."""
    auto_push: str = ""
    """The remote that the daemon pushes to after each turn; empty means none."""
    remote_timeout: float = 60.0
    """How long to wait for a remote to answer."""
    ssh_command: str = ""
    """The program that connects to a remote over SSH; empty means ssh."""
    credential_helper: bool = False
    """Ask git's credential helper for the password of a remote."""


def read_setting(key: str, value: object) -> object:
    """Check and convert the value of a setting, which may be text; raise InvalidInput that names the key."""
    require_known(key)
    default = getattr(Settings(), key)
    if isinstance(default, tuple):
        return _read_names(key, value, are_paths=key == "push_exclude")
    if isinstance(default, float):
        return read_seconds(key, value)
    if isinstance(default, bool):
        return _read_switch(key, value)
    if key == "watcher":
        if value not in _WATCHERS:
            raise InvalidInput(f"{key} must be one of {', '.join(_WATCHERS)}, not {value!r}")
        return value
    if isinstance(default, str):
        if not isinstance(value, str) or not value.isprintable():
            raise InvalidInput(f"{key} must be one line of text, not {value!r}")
        return value.strip()
    return _read_number(key, value)


def require_known(key: str) -> None:
    """Refuse the name of a setting that does not exist."""
    if key not in Settings.__match_args__:
        raise InvalidInput(f"no setting named {key!r}")


def read_seconds(key: str, value: object) -> float:
    """Read a time: a number of seconds, or `500ms`, `90s`, `10m`, `12h`, `30d`, `2w`."""
    seconds = _parse_seconds(value)
    if not 0 <= seconds < _MOST_SECONDS:
        raise InvalidInput(f"{key} must be a number of seconds, or a time such as 12h or 30d, not {value!r}")
    return seconds


def parse_duration(text: str) -> float:
    """Read `500ms`, `5s`, `2m` or a number of seconds: more than 0 and at most a day."""
    seconds = _parse_seconds(text)
    if not 0 < seconds <= 86400:
        raise InvalidInput(f"a duration must be like 500ms, 5s or 2m, up to a day, not {text!r}")
    return seconds


def _parse_seconds(value: object) -> float:
    """Read a time in seconds; return a negative number or NaN if it is invalid."""
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


def _read_switch(key: str, value: object) -> bool:
    """Read `true` or `false`."""
    word = str(value).strip().lower() if isinstance(value, bool | str) else ""
    if word not in _SWITCHES:
        raise InvalidInput(f"{key} must be true or false, not {value!r}")
    return _SWITCHES[word]


def _read_names(key: str, value: object, *, are_paths: bool = False) -> tuple[str, ...]:
    """Read names, or patterns of paths, from `target,build` or from a list, tuple or set."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset) or not all(isinstance(p, str) for p in parts):
        raise InvalidInput(f"{key} must be names separated by commas, not {value!r}")
    names = tuple(part.strip() for part in parts if part.strip())
    if not are_paths and any("/" in name for name in names):
        raise InvalidInput(f"{key} takes directory names, not paths: {value!r}")
    return names


# Where they come from

Given = Mapping[str, object] | Settings | None
"""The settings that a caller gives: some or all of them."""


@frozen
class Setting:
    """One setting in force, and where it comes from."""

    key: str
    value: object
    origin: str
    """`flag` (given by the caller), `environment`, `project`, `user` or `default`."""
    file: str | None = None
    """The file that sets it."""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """Return the documented JSON of `config list`."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {"key": self.key, "value": value, "origin": self.origin, "file": self.file}


@frozen
class _Reading:
    """The result of reading all sources once."""

    stamps: tuple[tuple[int, ...] | None, ...]
    is_settled: bool
    """Whether the files were old enough that any later change changes their stamps."""
    settings: Settings
    found: dict[str, Setting]
    """The settings that some source sets."""
    warnings: list[str]


class Config:
    """The settings of one worktree; files are read again when they changed. Several threads may use it."""

    def __init__(
        self,
        places: Places,
        worktree: str | None,
        given: Given = None,
        *,
        clock_ns: Callable[[], int] = time_ns,
    ) -> None:
        """Take the settings `given` by the caller; file times are compared with `clock_ns`."""
        self._clock_ns = clock_ns
        self._given = _read_given(given)
        self._variables = places.variables
        self._environment = dict(_read_environment(places.variables))
        self._user_file = places.user_config
        self._worktree = worktree
        project = [] if worktree is None else [os.path.join(worktree, name) for name in (OWN_FILE, PYPROJECT)]
        is_all_given = len(self._given) == len(Settings.__match_args__)
        self._files = [] if is_all_given else [*project, *filter(None, [self._user_file])]
        """The files that count; they need not exist."""
        self._last: _Reading | None = None

    def read(self) -> Settings:
        """Return the settings in force, reading the files again if they changed; raise InvalidInput."""
        return self._read().settings

    def list_settings(self) -> list[Setting]:
        """List every setting with its origin."""
        reading = self._read()
        return [
            reading.found.get(key) or Setting(key, getattr(reading.settings, key), "default")
            for key in Settings.__match_args__
        ]

    def get(self, key: str) -> Setting:
        """Return one setting with its origin."""
        require_known(key)
        return next(each for each in self.list_settings() if each.key == key)

    @property
    def unknown_variables(self) -> list[str]:
        """Environment variables that look like settings but are not."""
        known = {VARIABLE_PREFIX + key.upper() for key in Settings.__match_args__}
        return sorted(self._variables.keys() - known)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was ignored in the project's files when they were last read, and why."""
        return () if self._last is None else tuple(self._last.warnings)

    def _read(self) -> _Reading:
        """Compare the stamps of the files, and read the files unless their stamps prove them unchanged."""
        now_ns = self._clock_ns()
        stamps = tuple(map(_stamp, self._files))
        # Read the attribute once: another thread may replace it meanwhile.
        last = self._last
        if last is not None and last.is_settled and last.stamps == stamps:
            return last
        is_settled = not any(stamp is not None and is_racy(stamp[0], stamp[1], now_ns) for stamp in stamps)
        warnings: list[str] = []
        in_files = {**self._read_user(), **self._read_project(warnings)} if self._files else {}
        found = {**in_files, **self._environment, **self._given}
        values: Any = {key: each.value for key, each in found.items()}  # Any: of the fields' own types
        self._last = reading = _Reading(stamps, is_settled, Settings(**values), found, warnings)
        return reading

    def _read_user(self) -> dict[str, Setting]:
        file = self._user_file
        if file is None:
            return {}
        return {each.key: _read_statement(file, each, "user") for each in _parse(file, _read_user_file(file))}

    def _read_project(self, warnings: list[str]) -> dict[str, Setting]:
        """Read the settings that the project's files may set; warn of anything else in them."""
        if self._worktree is None:
            return {}
        found = {}
        for name, limit in ((PYPROJECT, _MOST_PYPROJECT_BYTES), (OWN_FILE, _MOST_BYTES)):
            file = os.path.join(self._worktree, name)
            with _warning(warnings):
                content = _read_project_file(self._worktree, name, limit)
                for statement in _parse(file, content, is_section=name == PYPROJECT):
                    with _warning(warnings):
                        found[statement.key] = _read_statement(file, statement, "project")
        return found


def read_config(environ: Mapping[str, str], worktree: str | None = None, given: Given = None) -> Config:
    """Return the settings of a worktree, or without one, those of the user."""
    return Config(Places(environ), worktree, given)


def set_setting(environ: Mapping[str, str], key: str, value: str) -> str:
    """Set a key in the user's file, whose other lines stay as they are; return the file's path."""
    from shadowtree.config.settings_file import put

    read = read_setting(key, value)
    text = value.strip()
    written = read if isinstance(read, tuple | bool | str) else int(text) if text.isdecimal() else text
    return _edit_user_file(environ, lambda before: put(before, key, written))


def unset_setting(environ: Mapping[str, str], key: str) -> str:
    """Remove a key from the user's file, even one that is not a setting; return the file's path."""
    from shadowtree.config.settings_file import drop

    def drop_key(before: str) -> str:
        after = drop(before, key)
        if after == before:
            require_known(key)
        return after

    return _edit_user_file(environ, drop_key)


def _edit_user_file(environ: Mapping[str, str], edit: Callable[[str], str]) -> str:
    """Edit the text of the user's file, and return the file's path."""
    file = Places(environ).user_config
    if file is None:
        raise InvalidInput("there is no home directory to keep settings in")
    before = _decode(file, _read_user_file(file) or b"")
    with _naming(file):
        after = edit(before)
    if after != before:
        # If the file is a symbolic link, write to its target.
        target = os.path.realpath(file)
        disk.make_directories(os.path.dirname(target))
        disk.write_file(target, after.encode())
    return file


@contextmanager
def _warning(warnings: list[str]) -> Iterator[None]:
    """Turn InvalidInput into a warning that the setting or file is ignored."""
    try:
        yield
    except InvalidInput as error:
        warnings.append(f"{str(error)[:_LONGEST_WARNING]}; this is ignored")


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Turn BadLine into InvalidInput that names the file."""
    from shadowtree.config.settings_file import BadLine

    try:
        yield
    except BadLine as error:
        raise InvalidInput(f"{file}, {error}") from error


def _read_given(given: Given) -> dict[str, Setting]:
    if isinstance(given, Settings):
        return {key: Setting(key, getattr(given, key), "flag") for key in Settings.__match_args__}
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"settings must be a mapping or Settings, not {given!r}")
    return {key: Setting(key, read_setting(key, value), "flag") for key, value in given.items()}


def _read_environment(variables: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    """Read the variables that are named like settings; ignore all others."""
    for key in Settings.__match_args__ if variables else ():
        variable = VARIABLE_PREFIX + key.upper()
        if variables.get(variable):
            try:
                yield key, Setting(key, read_setting(key, variables[variable]), "environment")
            except InvalidInput as error:
                raise InvalidInput(f"{variable}: {error}") from error


def _parse(file: str, content: bytes | None, *, is_section: bool = False) -> list[Statement]:
    """Read the statements of a file's content; None means that there is no file."""
    if content is None or (is_section and b"shadowtree" not in content):
        # The usual case, in which the parser need not be imported.
        return []
    from shadowtree.config.settings_file import read_section, read_statements

    text = _decode(file, content)
    with _naming(file):
        return read_section(text, _SECTION) if is_section else read_statements(text)


def _decode(file: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}: it is not UTF-8") from error


def _read_statement(file: str, statement: Statement, origin: str) -> Setting:
    try:
        value = read_setting(statement.key, statement.value)
        if origin == "project" and statement.key not in PROJECT_SETTINGS:
            raise InvalidInput(f"a project cannot set {statement.key}; only you can")
    except InvalidInput as error:
        raise InvalidInput(f"{file}, line {statement.first + 1}: {error}") from error
    return Setting(statement.key, value, origin, file)


def _read_project_file(worktree: str, name: str, limit: int) -> bytes | None:
    """Read a file of the project; return None if there is none."""
    try:
        with Cursor(worktree) as cursor:
            found = read_small_file(cursor.enter(ROOT), name.encode(), limit)
    except (Unreadable, WorktreeFailed) as error:
        raise InvalidInput(f"{os.path.join(worktree, name)}: {error}") from error
    return None if found is None else found[1]


def _stamp(path: str) -> tuple[int, ...] | None:
    """Return a value that changes when a file, or the target of a link, changes; None if there is no file."""
    try:
        return stamp_of(os.stat(path))
    except OSError:
        return None


def _read_user_file(file: str) -> bytes | None:
    """Read the user's file; return None if there is none."""
    try:
        try:
            mode = os.stat(file).st_mode
        except PermissionError:
            # If not even its directory can be searched, it is in another user's home.
            return None
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"{file}: it is not a file")
        with open(file, "rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"{file}: {describe(error)}") from error
    if len(content) > _MOST_BYTES:
        raise InvalidInput(f"{file}: it is larger than {_MOST_BYTES:,} bytes")
    return content
