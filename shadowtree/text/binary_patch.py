"""Binary contents in a patch, as git writes them: deflated, in base 85, whole on both sides.

The new content comes first, then the old one, for `git apply --reverse`:

    GIT binary patch
    literal 12
    Tcmc~$...             up to 52 bytes a line, after a letter that says how many

    literal 9
    Qcmd...
"""

from __future__ import annotations

import zlib
from base64 import b85encode
from collections.abc import Iterator

_LINE_BYTES = 52


def format_binary(old: bytes, new: bytes) -> str:
    """Write what follows the index line of a binary file."""
    return "\n".join(["GIT binary patch", *_format_literal(new), *_format_literal(old)]) + "\n"


def _format_literal(content: bytes) -> Iterator[str]:
    yield f"literal {len(content)}"
    deflated = zlib.compress(content)
    for at in range(0, len(deflated), _LINE_BYTES):
        piece = deflated[at : at + _LINE_BYTES]
        yield _length_letter(len(piece)) + b85encode(piece, pad=True).decode("ascii")
    yield ""


def _length_letter(length: int) -> str:
    """Write 1 to 26 as A to Z, and 27 to 52 as a to z."""
    return chr(ord("A") + length - 1) if length <= 26 else chr(ord("a") + length - 27)
