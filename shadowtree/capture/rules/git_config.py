"""Git's configuration files, as far as shadowtree has to understand them. Pure: bytes in, variables out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = re.compile(rb"(?:\s++|[#;][^\n]*+)*+")
_SECTION = re.compile(rb'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*+)")?\]')
_VARIABLE = re.compile(
    rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+"
    rb'(?:=((?:[^"\\\n#;]|\\[\\"ntb\n]|"(?:[^"\\\n]|\\[\\"ntb\n])*+")*+))?+'
    rb"(?=[\n#;]|\Z)"
)
_QUOTING = re.compile(rb'\\.|"')
_QUOTED = {rb"\\": b"\\", rb"\"": b'"', rb"\n": b"\n", rb"\t": b"\t", rb"\b": b"\b", b'"': b""}


def parse_config(content: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the variables in order, named as in `core.bare`; None is the value of one without `=`.

    Git refuses a file with a line that makes no sense; here what stands before that line counts.
    """
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    section = None
    at = _skip_blank(content, 0)
    while at < len(content):
        if found := _SECTION.match(content, at):
            section = found[1].lower() + (b"" if found[2] is None else b"." + found[2])
        elif section is not None and (found := _VARIABLE.match(content, at)):
            yield section + b"." + found[1].lower(), None if found[2] is None else _unquote(found[2])
        else:
            return
        at = _skip_blank(content, found.end())


def _skip_blank(content: bytes, at: int) -> int:
    blank = _BLANK.match(content, at)
    return blank.end() if blank else at


def _unquote(raw: bytes) -> bytes:
    # A line break in `raw` always belongs to the backslash before it, which protects the blanks that stand
    # before it. The other blanks at the ends are dropped before the quotes are, which protect theirs.
    lines, joint, last = raw.rpartition(b"\\\n")
    value = (lines + joint + last.rstrip()).replace(b"\\\n", b"").lstrip()
    return _QUOTING.sub(lambda found: _QUOTED[found[0]], value)
