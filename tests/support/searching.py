"""Search for bytes in every file of a store, even in deflated content.

The search knows nothing about packs and databases: at each place in a file where deflated content may begin,
it inflates as much as possible. So it finds bytes in entries and deltas, in rows, in pages that SQLite has
freed, in logs and in anything left behind.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from shadowtree.store.git_format import deflate

_DEFLATED = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_WINDOW = 24
"""If this many bytes in a row equal part of the deflated content, that is no accident."""


def find_bytes(store: Path, secrets: Collection[bytes], contents: Collection[bytes] = ()) -> list[str]:
    """List the files that have any of the secrets, plain or deflated, or a piece of a deflated content."""
    pieces = [piece for content in contents for piece in _cut(deflate(content))]
    return sorted({str(path.relative_to(store)) for path in _files(store) if _has(path, secrets, pieces)})


def find_objects(store: Path, secrets: Collection[bytes]) -> bool:
    """Return whether real git finds an object that contains any of the secrets."""
    command = ["git", "--git-dir", str(store), "cat-file", "--batch-all-objects", "--batch", "--unordered"]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    return any(secret in found for secret in secrets)


def _files(store: Path) -> Iterator[Path]:
    return (path for path in store.rglob("*") if path.is_file())


def _has(path: Path, secrets: Collection[bytes], pieces: Collection[bytes]) -> bool:
    raw = path.read_bytes()
    if any(part in raw for part in (*secrets, *pieces)):
        return True
    return any(secret in content for content in _inflate_anything(raw) for secret in secrets)


def _inflate_anything(raw: bytes) -> Iterator[bytes]:
    for match in _DEFLATED.finditer(raw):
        inflater = zlib.decompressobj()
        content = b""
        try:
            # In small pieces, so that what comes before a break in the stream counts too.
            for at in range(match.start(), len(raw), 64):
                content += inflater.decompress(raw[at : at + 64])
                if inflater.eof:
                    break
        except zlib.error:
            pass
        if content:
            yield content


def _cut(deflated: bytes) -> Iterator[bytes]:
    body = deflated[2:-4]
    for start in range(0, len(body) - _WINDOW, _WINDOW // 2):
        yield body[start : start + _WINDOW]
