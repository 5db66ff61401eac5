"""The refs of a store: which objects they name, as real git may have written them."""

from __future__ import annotations

import os
import re

from shadowtree.system import disk

OWN_REFS = (b"refs/heads/sessions/", b"refs/heads/undone/", b"refs/heads/branches/", b"refs/shadowtree/")
"""The prefixes of the refs to sessions as commits; all other refs, except HEAD's, are the user's."""

_PACKED_REF = re.compile(rb"^([0-9a-f]{40}) (refs/.+)$", re.MULTILINE)
_ID = re.compile(rb"[0-9a-f]{40}")


def list_refs(store: str) -> dict[bytes, bytes]:
    """Return the id of each ref's object, by ref; symbolic and broken refs are left out."""
    found: dict[bytes, bytes] = {}
    with disk.store_errors(store):
        for directory, _, files in os.walk(os.path.join(store, "refs"), onerror=_raise_unless_gone):
            for name in files:
                path = os.path.join(directory, name)
                content = (disk.read_if_there(path) or b"").strip()
                if _ID.fullmatch(content):
                    found[os.fsencode(os.path.relpath(path, store))] = bytes.fromhex(content.decode())
    # After the files of single refs: git writes a ref there before it removes its file.
    packed = disk.read_if_there(os.path.join(store, "packed-refs")) or b""
    return {ref: bytes.fromhex(id.decode()) for id, ref in _PACKED_REF.findall(packed)} | found


def list_own_refs(store: str) -> dict[bytes, bytes]:
    """Return the id of each ref's object, by ref, for the refs to sessions as commits."""
    return {ref: id for ref, id in list_refs(store).items() if ref.startswith(OWN_REFS)}


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
