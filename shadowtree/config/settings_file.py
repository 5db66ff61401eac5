"""The text of a settings file: TOML with plain `key = value` lines, read and edited line by line.

    # how much is kept                 comments and all other lines stay
    heavy_dirs = ["target",            a value may take several lines
        "build"]
    max_file_size = "20M"  # videos    and be followed by a comment

Does no I/O. If any line cannot be read, nothing in the file counts. Callers limit the size of the text,
because Python's TOML parser takes very long for some malicious input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

_LONGEST_VALUE = 100
"""How many lines a value may take."""
_OPENERS = ("[", '"""', "'''")
"""How values begin that may take several lines."""


@frozen
class Statement:
    """One key with its value."""

    key: str
    value: object
    first: int
    """The index of its first line."""
    end: int
    """The index of the line after its last."""


class BadLine(Exception):
    """A line that cannot be read. Lines are counted from 1."""

    def __init__(self, line: int, why: str) -> None:
        self.line = line
        self.why = why
        super().__init__(f"line {line}: {why}")


def read_statements(text: str) -> list[Statement]:
    """Read all statements of a text, in order; raise BadLine."""
    return list(_read_all(text.split("\n"), 0))


def read_section(text: str, table: tuple[str, ...]) -> list[Statement]:
    """Read the statements of one table of a larger file; none if the table has no section of its own.

    The rest of the file is not parsed, so it may be broken or malicious.
    """
    lines = text.split("\n")
    begin = _find_header(lines, table)
    if begin is None:
        return []
    end = next((at for at in range(begin, len(lines)) if _is_header(lines[at])), len(lines))
    return list(_read_all(lines[:end], begin))


def put(text: str, key: str, value: int | str | Sequence[str]) -> str:
    """Set the value of a key, in its line or at the end of the text; raise BadLine."""
    lines = text.split("\n")
    line = f"{key} = {_render(value)}"
    for statement in read_statements(text):
        if statement.key == key:
            comment = _find_comment(lines[statement.end - 1], statement)
            return_mark = "\r" if lines[statement.end - 1].endswith("\r") else ""
            lines[statement.first : statement.end] = [line + comment + return_mark]
            return "\n".join(lines)
    if lines[-1]:
        lines.append("")
    lines[-1:] = [line, ""]
    return "\n".join(lines)


def drop(text: str, key: str) -> str:
    """Remove a key and its lines; raise BadLine."""
    lines = text.split("\n")
    for statement in read_statements(text):
        if statement.key == key:
            del lines[statement.first : statement.end]
            break
    return "\n".join(lines)


def _read_all(lines: list[str], begin: int) -> Iterator[Statement]:
    known: set[str] = set()
    at = begin
    while at < len(lines):
        stripped = lines[at].strip()
        if not stripped or stripped.startswith("#"):
            at += 1
            continue
        if _is_header(lines[at]):
            raise BadLine(at + 1, "this file cannot have sections")
        statement = _read_one(lines, at)
        if statement.key in known:
            raise BadLine(at + 1, f"{statement.key} is set twice")
        known.add(statement.key)
        yield statement
        at = statement.end


def _read_one(lines: list[str], first: int) -> Statement:
    """Read a statement: the fewest lines from `first` on that are valid TOML."""
    value = lines[first].partition("=")[2].strip()
    most = _LONGEST_VALUE if value.startswith(_OPENERS) else 1
    why = ""
    for end in range(first + 1, min(first + most, len(lines)) + 1):
        # A carriage return belongs to the line break that follows it.
        found = _parse("\n".join(lines[first:end]) + "\n")
        if isinstance(found, dict):
            if len(found) != 1:
                break
            ((key, read),) = found.items()
            return Statement(key, read, first, end)
        why = why or found
    raise BadLine(first + 1, why or "it cannot be read")


def _parse(text: str) -> dict[str, object] | str:
    """Parse TOML; return the error as text if it is invalid."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Without the position, which is relative to this piece of the file.
        return str(error).partition(" (at ")[0].lower()


def _is_header(line: str) -> bool:
    return line.lstrip().startswith("[") and "]" in line and "=" not in line.partition("]")[0]


def _find_header(lines: list[str], table: tuple[str, ...]) -> int | None:
    """Find the line after the header of a table, outside of multi-line strings."""
    inside: str | None = None
    for at, line in enumerate(lines):
        if inside is None and _is_header(line):
            parts = line.partition("]")[0].strip().removeprefix("[").split(".")
            if tuple(part.strip().strip("\"'") for part in parts) == table:
                return at + 1
        inside = _follow_text(line, inside)
    return None


def _follow_text(line: str, inside: str | None) -> str | None:
    """Return the mark that closes the multi-line string that is open after `line`; None if none is open."""
    while True:
        if inside is not None:
            _, mark, line = line.partition(inside)
            if not mark:
                return inside
            inside = None
        places = [(line.find(mark), mark) for mark in _OPENERS[1:] if mark in line]
        comment = line.find("#")
        if not places or 0 <= comment < min(places)[0]:
            return None
        place, inside = min(places)
        line = line[place + 3 :]


def _find_comment(line: str, statement: Statement) -> str:
    """Return the comment after a value on a single line, with the spaces before it."""
    if statement.end - statement.first != 1:
        return ""
    for at, char in enumerate(line):
        if char == "#" and _parse(line[:at]) == {statement.key: statement.value}:
            value = line[:at].rstrip()
            return line[len(value) :].rstrip("\r")
    return ""


def _render(value: int | str | Sequence[str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quote(value)
    return f"[{', '.join(_quote(part) for part in value)}]"


def _quote(text: str) -> str:
    if not text.isprintable():
        raise InvalidInput(f"a setting cannot be {text!r}: some characters cannot be written to a file")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
