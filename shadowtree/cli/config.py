"""The command that shows settings with their origins, and writes those of the user."""

from __future__ import annotations

import os

import shadowtree
from shadowtree.cli.columns import join_columns
from shadowtree.cli.command import Argument, Command, Shared
from shadowtree.cli.output import warn, write_json, write_lines
from shadowtree.cli.shadows import find_to_record
from shadowtree.cli.text import escape

_SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
_TIMES = (("d", 86400), ("h", 3600), ("m", 60))


def config(shared: Shared) -> int:
    found = _read(shared)
    settings = found.list_settings()
    if shared.as_json:
        write_json([setting.to_dict() for setting in settings])
    else:
        write_lines(join_columns([_describe(setting) for setting in settings]))
    for warning in found.warnings:
        warn(warning)
    for variable in found.unknown_variables:
        warn(f"{variable} is the name of no setting")
    return 0


def get(shared: Shared, key: str) -> int:
    found = _read(shared)
    setting = found.get(key)
    if shared.as_json:
        write_json(setting.to_dict())
    else:
        write_lines([escape(show_value(setting.value))])
    for warning in found.warnings:
        warn(warning)
    return 0


def set_(shared: Shared, key: str, value: str) -> int:
    file = shadowtree.set_setting(os.environ, key, value)
    return _tell_changed(shared, key, f"{key} is set in {escape(file)}", "user")


def unset(shared: Shared, key: str) -> int:
    file = shadowtree.unset_setting(os.environ, key)
    return _tell_changed(shared, key, f"{escape(key)} is not set in {escape(file)} any more", None)


def _tell_changed(shared: Shared, key: str, sentence: str, wanted: str | None) -> int:
    """Tell what was written, and what counts now, which may come from elsewhere."""
    try:
        setting = _read(shared).get(key)
    except shadowtree.InvalidInput as error:
        # What was asked for is done; the next command tells the same.
        warn(str(error))
        setting = None
    if shared.as_json:
        write_json(None if setting is None else setting.to_dict())
    else:
        write_lines([sentence])
    if setting is not None and wanted is not None and setting.origin != wanted:
        warn(f"here it is {show_value(setting.value)} all the same, by the {_name_origin(setting)}")
    return 0


def _read(shared: Shared) -> shadowtree.Config:
    return shadowtree.read_config(os.environ, os.path.realpath(find_to_record(shared)), shared.settings)


def _describe(setting: shadowtree.Setting) -> tuple[str, str, str]:
    return setting.key, escape(show_value(setting.value)) or "none", _name_origin(setting)


def _name_origin(setting: shadowtree.Setting) -> str:
    return setting.origin if setting.file is None else f"{setting.origin}: {escape(setting.file)}"


def show_value(value: object) -> str:
    """Write a value as it could be set."""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        unit, size = next((each for each in _TIMES if value and not value % each[1]), ("s", 1))
        return f"{value / size:g}{unit}"
    if isinstance(value, int):
        unit, size = next((each for each in _SIZES if value and not value % each[1]), ("", 1))
        return f"{value // size}{unit}"
    return str(value)


LIST = Command(config, help="List every setting, its value, and where that comes from")

GET = Command(
    get,
    arguments=(Argument("key"),),
    help="""\
Print the value of one setting

\b
Examples:
  shadowtree config get max_file_size
""",
)

SET = Command(
    set_,
    arguments=(Argument("key"), Argument("value")),
    help="""\
Set KEY to VALUE in your file of settings

Its other lines and its comments stay. Sizes may be written as 20M, times as 30d, lists with commas.

\b
Examples:
  shadowtree config set max_file_size 50M
  shadowtree config set heavy_dirs target,build
""",
)

UNSET = Command(
    unset,
    arguments=(Argument("key"),),
    help="""\
Remove KEY from your file of settings

\b
Examples:
  shadowtree config unset max_file_size
""",
)

CONFIG = Command(
    config,
    actions={"list": LIST, "get": GET, "set": SET, "unset": UNSET},
    help="""\
Show the settings and where each comes from, or write your own

In this order: --set, the environment (SHADOWTREE_MAX_FILE_SIZE), the project's '.shadowtree.toml' or
'[tool.shadowtree]' in its 'pyproject.toml', your file of settings, the default. A project may set only what
of it is covered: heavy_dirs and max_file_size.

\b
Examples:
  shadowtree config list
  shadowtree config get lock_timeout
  shadowtree config set lock_timeout 30s
  shadowtree config unset lock_timeout
""",
)
