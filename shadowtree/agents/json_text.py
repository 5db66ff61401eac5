"""Edit JSON as text: values are added, replaced or removed, and every other byte stays as it is.

Pure. Only strict JSON is read: we do not guess what an agent makes of comments or trailing commas.
"""

from __future__ import annotations

import json
import re

from shadowtree.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(\\(["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INDENT = re.compile(r"\n([ \t]+)\S")
_DEEPEST = 200
_USUAL_INDENT = "  "


class BadJson(Exception):
    """A text is not strict JSON."""

    def __init__(self, text: str, at: int, why: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.why = why
        super().__init__(f"line {self.line}: {why}")


@frozen
class Value:
    """A value and where it is in the text."""

    start: int
    end: int
    content: Any  # Any: a dict or list of values, or a plain JSON value
    begin: int
    """The start of its key in an object, else the start of the value."""

    def get(self, *keys: str) -> Value | None:
        """Find a value by the keys that lead to it."""
        found: Value | None = self
        for key in keys:
            content = found.content if found is not None else None
            found = content.get(key) if isinstance(content, dict) else None
        return found

    def items(self) -> list[Value]:
        """Return the values of a list; for anything else, an empty list."""
        return self.content if isinstance(self.content, list) else []

    def plain(self) -> Any:  # Any: JSON
        """Return the value without positions."""
        if isinstance(self.content, dict):
            return {key: value.plain() for key, value in self.content.items()}
        return [value.plain() for value in self.content] if isinstance(self.content, list) else self.content


def read(text: str) -> Value:
    """Parse a whole text; raise BadJson."""
    reader = _Reader(text)
    value = reader.read_value()
    if reader.skip() != "":
        raise reader.refuse()
    return value


def blank_comments(text: str) -> str:
    """Replace comments by blanks, for reading only; line breaks stay."""
    return _STRING_OR_COMMENT.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)


def add(text: str, keys: tuple[str, ...], content: object) -> str:
    """Append a value to the list that `keys` lead to; create missing objects, and the list.

    The caller has checked that existing values are objects, with a list at the end.
    """
    root = read(text)
    found, rest = root, list(keys)
    while rest and (next_one := found.get(rest[0])) is not None:
        found = next_one
        del rest[0]
    if not rest:
        return _insert(text, found, None, content)
    made: object = [content]
    for key in reversed(rest[1:]):
        made = {key: made}
    return _insert(text, found, rest[0], made)


def put(text: str, key: str, content: object) -> str:
    """Add a key to the outermost object, which must not have it."""
    return _insert(text, read(text), key, content)


def replace(text: str, value: Value, content: object) -> str:
    """Replace a value by another."""
    written = _render(text, content, _indent_at(text, value.begin), is_spread=_is_spread(text, value))
    return text[: value.start] + written + text[value.end :]


def remove(text: str, parent: Value, child: Value) -> str:
    """Remove a value from the object or list that contains it: exactly the text that adding it adds."""
    children = _children(parent)
    place = children.index(child)
    if len(children) == 1:
        return text[: parent.start + 1] + text[parent.end - 1 :]
    if place:
        return text[: children[place - 1].end] + text[child.end :]
    return text[: child.begin] + text[children[1].begin :]


def _children(value: Value) -> list[Value]:
    return list(value.content.values()) if isinstance(value.content, dict) else list(value.content)


def _insert(text: str, parent: Value, key: str | None, content: object) -> str:
    """Insert a value at the end of an object or a list, in the style of the text there."""
    children = _children(parent)
    is_spread = _is_spread(text, parent)
    outer = _indent_at(text, parent.begin)
    inner = outer + _find_indent(text)
    if children and is_spread:
        inner = _indent_at(text, children[-1].begin)
    written = _render(text, content, inner, is_spread=is_spread)
    if key is not None:
        written = f"{json.dumps(key)}:{'' if _is_dense(text) else ' '}{written}"
    newline = _find_newline(text)
    if children:
        gap = f",{newline}{inner}" if is_spread else "," if _is_dense(text) else ", "
        return text[: children[-1].end] + gap + written + text[children[-1].end :]
    body = f"{newline}{inner}{written}{newline}{outer}" if is_spread else written
    return text[: parent.start + 1] + body + text[parent.end - 1 :]


def _render(text: str, content: object, indent: str, *, is_spread: bool) -> str:
    if not is_spread:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":") if _is_dense(text) else None)
    written = json.dumps(content, ensure_ascii=False, indent=_find_indent(text))
    return written.replace("\n", _find_newline(text) + indent)


def _is_spread(text: str, value: Value) -> bool:
    """Return whether the contents of a value are written on lines of their own."""
    children = _children(value) if isinstance(value.content, dict | list) else []
    if children:
        return "\n" in text[value.start : children[0].begin]
    return "\n" in text.strip() or not text[: value.start].strip()


def _is_dense(text: str) -> bool:
    """Return whether a text is written without blanks."""
    return "\n" not in text.strip() and ": " not in text and '":' in text


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _find_indent(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else _USUAL_INDENT


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line at a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


class _Reader:
    """Parses a text; keeps the position in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def skip(self) -> str:
        """Skip blanks, and return the next character; empty at the end of the text."""
        found = _BLANKS.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def refuse(self) -> BadJson:
        """Return the error for the text at this position."""
        rest = self._text[self._at : self._at + 2]
        if rest in ("//", "/*"):
            why = "comments are not strict JSON"
        else:
            why = f"unexpected {rest[0]!r}" if rest else "it ends too early"
        return BadJson(self._text, self._at, why)

    def read_value(self) -> Value:
        """Read the value that begins at this position."""
        opening = self.skip()
        start = self._at
        if opening in ("{", "["):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise BadJson(self._text, start, "it is nested too deeply")
            content = self._read_object() if opening == "{" else self._read_list()
            self._depth -= 1
            return Value(start, self._at, content, start)
        written = self._match(_STRING if opening == '"' else _PLAIN)
        return Value(start, self._at, json.loads(written), start)

    def _read_object(self) -> dict[str, Value]:
        members: dict[str, Value] = {}
        while self._has_more("}", is_first=not members):
            begin = self._at
            key = json.loads(self._match(_STRING))
            if key in members:
                raise BadJson(self._text, begin, f"the key {key!r} is there twice")
            if self.skip() != ":":
                raise self.refuse()
            self._at += 1
            value = self.read_value()
            members[key] = Value(value.start, value.end, value.content, begin)
        return members

    def _read_list(self) -> list[Value]:
        values: list[Value] = []
        while self._has_more("]", is_first=not values):
            values.append(self.read_value())
        return values

    def _has_more(self, closing: str, *, is_first: bool) -> bool:
        """Move to the next value; return False at the closing bracket."""
        if is_first:
            self._at += 1
        found = self.skip()
        if found == closing:
            self._at += 1
            return False
        if not is_first:
            if found != ",":
                raise self.refuse()
            self._at += 1
            if self.skip() == closing:
                raise BadJson(self._text, self._at, "a trailing comma is not strict JSON")
        return True

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self.refuse()
        self._at = found.end()
        return found[0]
