"""The refs of a store: which objects they name, as real git may have written them."""

from __future__ import annotations

import os
import re

from shadowtree.store.directory import HEAD_REF
from shadowtree.system import disk

OWN_REFS = (b"refs/heads/sessions/", b"refs/heads/undone/", b"refs/heads/branches/", b"refs/shadowtree/")
"""The prefixes of the refs to sessions as commits; all other refs, except HEAD's, are the user's."""

PACKED_REFS = b"packed-refs"
"""The file in which git puts many refs."""

_ID = re.compile(rb"[0-9a-f]{40}")
_PACKED_REF = re.compile(rb"([0-9a-f]{40}) (refs/\S+)")
_PACKED_NOTE = re.compile(rb"# pack-refs with:.*|\^[0-9a-f]{40}")


def is_own(ref: bytes) -> bool:
    """Return whether a ref is derived from the timeline, and can be written again."""
    return ref.startswith(OWN_REFS) or ref == HEAD_REF.encode()


def read_refs(store: str) -> dict[bytes, bytes | None]:
    """Return the id of each ref's object, by ref; None if a ref cannot be read. Symbolic refs are left out.

    If `packed-refs` has lines that cannot be read, it is listed as if it were such a ref itself.
    """
    found: dict[bytes, bytes | None] = {}
    with disk.store_errors(store):
        for directory, _, files in os.walk(os.path.join(store, "refs"), onerror=_raise_unless_gone):
            # Git ignores other names too, and locks are refs that are being written.
            for name in files:
                path = os.path.join(directory, name)
                if name.startswith((".", disk.TEMPORARY_PREFIX)) or name.endswith(disk.LOCK_SUFFIX):
                    continue
                content = disk.read_if_there(path)
                if content is not None and not content.startswith(b"ref: "):
                    found[os.fsencode(os.path.relpath(path, store))] = _parse_id(content.strip())
    # After the files of single refs: git writes a ref there before it removes its file.
    packed, is_whole = read_packed_refs(store)
    return packed | found | ({} if is_whole else {PACKED_REFS: None})


def read_packed_refs(store: str) -> tuple[dict[bytes, bytes], bool]:
    """Return what can be read of `packed-refs`, and whether that is all of it."""
    content = disk.read_if_there(os.path.join(store, os.fsdecode(PACKED_REFS))) or b""
    *lines, rest = content.split(b"\n")
    found = [match for line in lines if (match := _PACKED_REF.fullmatch(line))]
    notes = sum(_PACKED_NOTE.fullmatch(line) is not None for line in lines)
    is_whole = len(found) + notes == len(lines) and not rest
    return {match[2]: bytes.fromhex(match[1].decode()) for match in found}, is_whole


def list_own_refs(store: str) -> dict[bytes, bytes | None]:
    """Return the refs to sessions as commits, as `read_refs` does."""
    return {ref: id for ref, id in read_refs(store).items() if ref.startswith(OWN_REFS)}


def read_shallow(store: str) -> set[bytes]:
    """Return the commits without parents at which a history begins that was not fetched as a whole."""
    content = disk.read_if_there(os.path.join(store, "shallow")) or b""
    return {bytes.fromhex(line.decode()) for line in content.split() if _ID.fullmatch(line)}


def _parse_id(content: bytes) -> bytes | None:
    return bytes.fromhex(content.decode()) if _ID.fullmatch(content) else None


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
