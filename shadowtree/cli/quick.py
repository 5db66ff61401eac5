"""A small parser for the commands that agents call all the time: it spares them the import of click.

It understands plain spellings only, such as `track --json --session=s1`. For anything else, a wrong line
too, it returns None, and click decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shadowtree.cli.command import SHARED_OPTIONS, Argument, Command, Option, load_command

HOT_COMMANDS = frozenset({"begin", "end", "run", "snapshot", "step", "track"})
"""The commands that must start fast: hosts of agents call them at every message."""


def parse(words: Sequence[str]) -> tuple[Command, dict[str, object]] | None:
    """Understand a command line fully, or return None.

    Gives the command and the values of its arguments and options by name, as far as they were given.
    """
    command: Command | None = None
    values: dict[str, object] = {}
    options = {option.flag: option for option in SHARED_OPTIONS}
    waiting: list[Argument] = []
    rest = iter(words)
    for word in rest:
        if waiting and waiting[0].is_rest and (word == "--" or not word.startswith("-")):
            others = tuple(rest) if word == "--" else (word, *rest)
            return (command, {**values, waiting[0].name: others}) if command and others else None
        flag, joined = _split_flag(word)
        if flag in options:
            value = _read_value(options[flag], joined, rest)
            if value is None:
                return None
            _keep(values, options[flag], value)
        elif command is None and word in HOT_COMMANDS:
            command = load_command(word)
            options |= {option.flag: option for option in command.options}
            waiting = list(command.arguments)
        elif waiting and not word.startswith("-"):
            values[waiting.pop(0).name] = word
        else:
            return None
    if command is None or any(argument.is_required for argument in waiting):
        return None
    return command, values


def _split_flag(word: str) -> tuple[str, str | None]:
    """Split `--flag=value`; a value that is not there is None."""
    flag, equals, value = word.partition("=")
    return (flag, value) if equals and flag.startswith("--") else (word, None)


def _read_value(option: Option, joined: str | None, rest: Iterator[str]) -> str | bool | None:
    """Give the option's value, or None where it is not plain what it is."""
    if option.metavar is None:
        return True if joined is None else None
    value = next(rest, None) if joined is None else joined
    return None if value is None or value.startswith("-") else value


def _keep(values: dict[str, object], option: Option, value: str | bool) -> None:
    if option.is_repeatable:
        earlier = values.get(option.name, ())
        assert isinstance(earlier, tuple)
        values[option.name] = (*earlier, value)
    else:
        values[option.name] = value
