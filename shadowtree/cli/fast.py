"""A small parser for the commands that agents call all the time: it spares them the import of click.

It understands plain spellings only, such as `track --json --session=s1`. For anything else, including wrong
usage, `parse` returns None, and click takes over. A test compares the tables with click's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowtree.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAG, VALUE, VALUES = "flag", "value", "values"
"""What an option takes: nothing, a value, or a value each time it is repeated."""
REQUIRED, OPTIONAL, REST = "required", "optional", "rest"
"""The kinds of arguments: REST, always the last, takes all remaining words, whatever they look like."""

Options = Mapping[str, tuple[str, str]]
"""For each flag, the name of its value and what the option takes."""


@frozen
class Hot:
    """The arguments and options of a command that must start fast."""

    arguments: Mapping[str, str]
    options: Options


SHARED: Options = {
    "-C": ("start", VALUE),
    "--store": ("store", VALUE),
    "--session": ("session", VALUE),
    "--set": ("settings", VALUES),
    "--allow-broad": ("allow_broad", FLAG),
    "--json": ("as_json", FLAG),
    "-q": ("is_quiet", FLAG),
    "--quiet": ("is_quiet", FLAG),
    "--color": ("colour", VALUE),
    "--no-pager": ("no_pager", FLAG),
}
_DESCRIPTION: Options = {"-m": ("text", VALUE), "--role": ("role", VALUE), "--meta": ("meta", VALUE)}

HOT = {
    "begin": Hot({"id": OPTIONAL}, _DESCRIPTION),
    "end": Hot({"id": OPTIONAL}, {"--path": ("paths", VALUES)}),
    "run": Hot(
        {"command": REST},
        {
            **_DESCRIPTION,
            "--id": ("id", VALUE),
            "--undo-on-fail": ("undo_on_fail", FLAG),
            "--best-effort": ("best_effort", FLAG),
        },
    ),
    "snapshot": Hot({"id": OPTIONAL}, _DESCRIPTION),
    "step": Hot({"name": REQUIRED}, {"--end": ("is_end", FLAG), "--meta": ("meta", VALUE)}),
    "track": Hot({}, {}),
}
"""The commands that must start fast: hosts of agents call them at every message."""


@frozen
class Call:
    """A parsed command line: only the values that were given, by name."""

    command: str
    shared: Mapping[str, object]
    values: Mapping[str, object]


def run(call: Call) -> int:
    """Run a command and return its exit code."""
    from shadowtree.cli.find_shadow import read_shared

    makes_id = call.command in ("begin", "snapshot") and "id" not in call.values
    shared = read_shared(call.shared, is_answer=makes_id or call.command == "track")
    act: Callable[..., int | None]
    if call.command == "run":
        from shadowtree.cli.run import run as act
    else:
        from shadowtree.cli import fast_commands

        act = getattr(fast_commands, call.command)
    return act(shared, **call.values) or 0


def parse(words: Sequence[str]) -> Call | None:
    """Parse a command line; return None unless all of it is understood."""
    name = None
    options = dict(SHARED)
    values: dict[str, Any] = {}  # Any: of the options' own types
    waiting: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        if waiting and waiting[0][1] == REST and (word == "--" or not word.startswith("-")):
            values[waiting.pop()[0]] = tuple(rest) if word == "--" else (word, *rest)
            break
        flag, equals, joined = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag in options:
            value_name, kind = options[flag]
            value = _read_value(kind, joined if equals else None, rest)
            if value is None:
                return None
            values[value_name] = (*values.get(value_name, ()), value) if kind == VALUES else value
        elif name is None and word in HOT:
            name = word
            options |= HOT[word].options
            waiting = list(HOT[word].arguments.items())
        elif waiting and not word.startswith("-"):
            values[waiting.pop(0)[0]] = word
        else:
            return None
    if name is None or any(kind != OPTIONAL for _, kind in waiting) or _has_empty(values):
        return None
    names = {value_name for value_name, _ in SHARED.values()}
    shared = {key: value for key, value in values.items() if key in names}
    return Call(name, shared, {key: value for key, value in values.items() if key not in names})


def _read_value(kind: str, joined: str | None, rest: Iterator[str]) -> str | bool | None:
    """Return the option's value, or None if it is not obvious."""
    if kind == FLAG:
        return True if joined is None else None
    value = next(rest, None) if joined is None else joined
    return None if value is None or value.startswith("-") else value


def _has_empty(values: Mapping[str, object]) -> bool:
    """Check for an empty value, perhaps an unset variable of a script: click decides if it is allowed."""
    return any("" in value if isinstance(value, tuple) and value else not value for value in values.values())
