"""The commands that show settings with their origins and change them, and the one that shows the help."""

from __future__ import annotations

import os

import click

from shadowtree.base.errors import InvalidInput
from shadowtree.cli.app import cli, command, group
from shadowtree.cli.completion import complete_command, complete_setting
from shadowtree.cli.find_shadow import Shared, find_to_record
from shadowtree.cli.format import escape, join_rows
from shadowtree.cli.output import emit, warn
from shadowtree.config import settings as config_settings

_SIZES = (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))
_TIMES = (("d", 86400), ("h", 3600), ("m", 60))


@group
def config(shared: Shared) -> None:
    """Show settings and where they come from, or change yours

    Settings come from, in this order: --set, the environment (such as SHADOWTREE_MAX_FILE_SIZE), the
    project's '.shadowtree.toml' or '[tool.shadowtree]' in its 'pyproject.toml', your settings file, and the
    defaults. A project can set only heavy_dirs and max_file_size.

    \b
    Examples:
      shadowtree config list
      shadowtree config get lock_timeout
      shadowtree config set lock_timeout 30s
      shadowtree config unset lock_timeout
    """
    _list(shared)


@command("list", of=config)
def list_settings(shared: Shared) -> None:
    """List every setting with its value and where it comes from

    \b
    Examples:
      shadowtree config list
    """
    _list(shared)


@command("get", of=config)
@click.argument("key", shell_complete=complete_setting)
def get_setting(shared: Shared, key: str) -> None:
    """Print the value of one setting

    \b
    Examples:
      shadowtree config get max_file_size
    """
    found = _read(shared)
    setting = found.get(key)
    emit(setting, [escape(show_value(setting.value))])
    for warning in found.warnings:
        warn(warning)


@command("set", of=config)
@click.argument("key", shell_complete=complete_setting)
@click.argument("value")
def set_setting(shared: Shared, key: str, value: str) -> None:
    """Set KEY to VALUE in your settings file

    Write sizes as 20M, times as 30d, and lists with commas. Other lines and comments in the file are kept.

    \b
    Examples:
      shadowtree config set max_file_size 50M
      shadowtree config set heavy_dirs target,build
    """
    file = config_settings.set_setting(os.environ, key, value)
    _report_changed(shared, key, f"Set {escape(key)} in {escape(file)}", "user")


@command("unset", of=config)
@click.argument("key", shell_complete=complete_setting)
def unset_setting(shared: Shared, key: str) -> None:
    """Remove KEY from your settings file

    \b
    Examples:
      shadowtree config unset max_file_size
    """
    file = config_settings.unset_setting(os.environ, key)
    _report_changed(shared, key, f"Removed {escape(key)} from {escape(file)}", None)


def _list(shared: Shared) -> None:
    found = _read(shared)
    settings = found.list_settings()
    rows = [(each.key, escape(show_value(each.value)) or "none", _name_origin(each)) for each in settings]
    emit(settings, join_rows(rows, "<<<"))
    for warning in found.warnings:
        warn(warning)
    for variable in found.unknown_variables:
        warn(f"{variable} does not name a setting; it is ignored")


def _report_changed(shared: Shared, key: str, sentence: str, wanted: str | None) -> None:
    """Report what was written, and the value in force now, which may come from elsewhere."""
    try:
        setting = _read(shared).get(key)
    except InvalidInput as error:
        # The file is written; the next command reports this error too.
        warn(str(error))
        setting = None
    emit(setting, [sentence])
    if setting is not None and wanted is not None and setting.origin != wanted:
        warn(f"{key} is still {show_value(setting.value)} here, from the {_name_origin(setting)}")


def _read(shared: Shared) -> config_settings.Config:
    return config_settings.read_config(os.environ, os.path.realpath(find_to_record(shared)), shared.settings)


def _name_origin(setting: config_settings.Setting) -> str:
    return setting.origin if setting.file is None else f"{setting.origin}: {escape(setting.file)}"


def show_value(value: object) -> str:
    """Format a value the way a user would set it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        unit, size = next((each for each in _TIMES if value and not value % each[1]), ("s", 1))
        return f"{value / size:g}{unit}"
    if isinstance(value, int):
        unit, size = next((each for each in _SIZES if value and not value % each[1]), ("", 1))
        return f"{value // size}{unit}"
    return str(value)


# Help


@command("help")
@click.argument("words", metavar="[COMMAND [ACTION]]", nargs=-1, shell_complete=complete_command)
def help(shared: Shared, words: tuple[str, ...]) -> None:
    """Show general help, or help for a command

    \b
    Examples:
      shadowtree help
      shadowtree help log
      shadowtree help branches drop
    """
    found: click.Command = cli
    context = click.get_current_context().find_root()
    for word in words:
        if not isinstance(found, click.Group):
            context.fail(f"{found.name} has no action {word!r}")
        _, inner, _ = found.resolve_command(context, [word])
        assert inner is not None, "it fails if there is none"
        found, context = inner, click.Context(inner, parent=context, info_name=word)
    text = found.get_help(context)
    emit({"help": text}, text.splitlines())
