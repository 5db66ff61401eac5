"""The refs of a store, read without a repository: each is a root for `gc`."""

from __future__ import annotations

import os
import re

from shadowtree.system import disk

_PACKED = re.compile(rb"^([0-9a-f]{40}) (refs/.+)$", re.MULTILINE)
_ID = re.compile(rb"[0-9a-f]{40}")


def list_refs(store: str) -> dict[bytes, bytes]:
    """Give the object that each ref names, by the ref; those that name nothing are left out."""
    packed = disk.read_if_there(os.path.join(store, "packed-refs")) or b""
    found = {ref: bytes.fromhex(id.decode()) for id, ref in _PACKED.findall(packed)}
    for directory, _, files in os.walk(os.path.join(store, "refs")):
        for name in files:
            path = os.path.join(directory, name)
            content = (disk.read_if_there(path) or b"").strip()
            if _ID.fullmatch(content):
                found[os.fsencode(os.path.relpath(path, store))] = bytes.fromhex(content.decode())
    return found
