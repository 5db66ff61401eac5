"""What a command is: a function, its help, its arguments and options, as plain values.

`app` builds click's commands from these values and `quick` reads the same ones without click, so that
each command is described once. `COMMANDS` says which module describes which command; a module is
imported only when its command is asked for.

"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module

from shadowtree import InvalidInput
from shadowtree.frozen import field, frozen

COMMANDS = {
    "wrap": "recording",
    "status": "reading",
    "begin": "messages",
    "end": "messages",
    "snapshot": "messages",
    "step": "messages",
    "run": "running",
    "log": "reading",
    "show": "reading",
    "undo": "reverting",
    "redo": "reverting",
    "revert": "reverting",
    "switch": "reverting",
    "unrevert": "reverting",
    "restore": "reverting",
    "branches": "branching",
    "diff": "reading",
    "blame": "reading",
    "track": "recording",
    "patch": "reading",
    "pin": "forgetting",
    "unpin": "forgetting",
    "forget": "forgetting",
    "purge": "purging",
    "watch": "watching",
    "stats": "seeing",
    "du": "seeing",
    "gc": "stores",
    "destroy": "stores",
    "config": "config",
    "check": "checking",
}
"""Each command and the module of this package that describes it, in the order of the help."""


MERGE_WAS_TRIED = "a merge was tried"
"""A note on a conflict that merging did not solve, for whoever tells of it."""


@frozen
class Argument:
    """A word that a command takes by its place."""

    name: str
    is_required: bool = True
    is_rest: bool = False
    """It takes all words from its place on, whatever they look like; as a tuple. Always the last one."""


@frozen
class Option:
    """Something that a command takes by a flag."""

    flag: str
    name: str
    help: str
    metavar: str | None = None
    """What stands for its value in the help; None: it takes no value."""
    is_repeatable: bool = False
    choices: tuple[str, ...] = ()
    """The values that it takes; none named: any."""
    may_be_empty: bool = False
    """An empty value means what it says, as a text may."""


@frozen
class Command:
    """One command, whoever parses its words."""

    run: Callable[..., int]
    """Takes a `Shared` and, by name, the values of the arguments and options; returns the exit code."""
    help: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    actions: Mapping[str, Command] = field(default_factory=dict)
    """What a word after its name makes of it; a command that has these takes no arguments."""


SHARED_OPTIONS = (
    Option("-C", "start", "Act as if started in DIR", metavar="DIR"),
    Option("--store", "store", "Use the store in DIR", metavar="DIR"),
    Option("--session", "session", "Act in this session, not in the one called 'default'", metavar="ID"),
    Option(
        "--set",
        "settings",
        "Give a setting for this command, such as max_file_size=20M; may be repeated",
        metavar="KEY=VALUE",
        is_repeatable=True,
    ),
    Option("--allow-broad", "allow_broad", "Wrap even a home directory or a parent of one"),
    Option("--json", "as_json", "Print one JSON document"),
)
"""What every command takes, before its name and after it."""


@frozen
class Shared:
    """The values of the shared options."""

    store: str | None
    session: str
    settings: Mapping[str, str]
    allow_broad: bool
    as_json: bool


def load_command(name: str) -> Command:
    """Import the module that describes the command `name`."""
    module = import_module(f"shadowtree.cli.{COMMANDS[name]}")
    command = getattr(module, name.upper())
    assert isinstance(command, Command)
    return command


def run_command(command: Command, values: Mapping[str, object]) -> int:
    """Run a command with the values of its arguments and options, shared ones included, by name.

    `-C` changes the directory of the process: everything later, the library included, is then as if
    started there.
    """
    _refuse_empty(command, values)
    if values.get("start") is not None:
        _change_directory(str(values["start"]))
    shared_names = {option.name for option in SHARED_OPTIONS}
    own = {name: value for name, value in values.items() if name not in shared_names}
    return command.run(_read_shared(values), **own)


def read_count(word: str, what: str, *, at_least: int = 1) -> int:
    """Read a number of things that the user typed."""
    if not (word.isascii() and word.isdigit() and len(word) <= 9) or int(word) < at_least:
        raise InvalidInput(f"{what} is a number from {at_least} on, not {word!r}")
    return int(word)


def _refuse_empty(command: Command, values: Mapping[str, object]) -> None:
    """Refuse an empty word: it is a script's unset variable, and must not mean the default."""
    for argument in command.arguments:
        if values.get(argument.name) == "":
            raise InvalidInput(f"{argument.name.upper()} is empty")
    for option in (*SHARED_OPTIONS, *command.options):
        value = values.get(option.name)
        is_empty = "" in value if isinstance(value, tuple) else value == ""
        if is_empty and not option.may_be_empty:
            raise InvalidInput(f"the value of {option.flag} is empty")


def _read_shared(values: Mapping[str, object]) -> Shared:
    store = values.get("store")
    settings = values.get("settings", ())
    assert isinstance(settings, tuple)
    return Shared(
        store=None if store is None else str(store),
        session=str(values.get("session") or os.environ.get("SHADOWTREE_SESSION") or "default"),
        settings=dict(_read_setting(text) for text in settings),
        allow_broad=bool(values.get("allow_broad")),
        as_json=bool(values.get("as_json")),
    )


def _read_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip(), value


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot start in {path}: {why}") from error
