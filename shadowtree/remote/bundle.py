"""Bundles: refs and a pack in one file, as `git bundle` writes and reads them.

# v2 git bundle
-ID comment           a commit that the reader must have already
ID refs/...           a ref that the reader gets
                      (an empty line, then a thin pack)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from shadowtree.base.errors import RemoteDamaged
from shadowtree.remote.receive import ReceiveLimits, Receiver, is_ref
from shadowtree.remote.thin_pack import StoreSource, plan_pack, write_pack
from shadowtree.store.repo import ShadowObjectStore, ShadowRepo

_SIGNATURES = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_LINE = re.compile(rb"(-?)([0-9a-f]{40})(?: ([^\n]*))?\n")
_LONGEST_LINE = 1 << 12
_MOST_LINES = 1_000_000
_CHUNK = 1 << 16


def write_bundle(
    file: BinaryIO,
    repo: ShadowRepo,
    refs: Mapping[bytes, bytes],
    prerequisites: Sequence[bytes] = (),
    *,
    limits: ReceiveLimits = ReceiveLimits(),  # noqa: B008  # a frozen value
) -> int:
    """Write refs and the objects reachable from them but not from `prerequisites`; return their number."""
    assert isinstance(repo.object_store, ShadowObjectStore)
    source = StoreSource(repo.object_store)
    objects = plan_pack(source, refs.values(), prerequisites, most_bytes=limits.object_bytes)
    lines = [_SIGNATURES[0]]
    lines += [b"-%s \n" % id.hex().encode() for id in prerequisites]
    lines += [b"%s %s\n" % (id.hex().encode(), ref) for ref, id in sorted(refs.items())]
    file.write(b"".join([*lines, b"\n"]))
    for piece in write_pack(source, objects):
        file.write(piece)
    return len(objects)


def read_bundle(
    file: BinaryIO,
    repo: ShadowRepo,
    limits: ReceiveLimits = ReceiveLimits(),  # noqa: B008  # a frozen value
    *,
    name: str = "the bundle",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[bytes, bytes]:
    """Store the objects of a bundle durably, and return its refs; no ref is written.

    Raises RemoteDamaged, with nothing stored, if it is not a bundle, needs a commit that is not here, or
    cannot be accepted.
    """
    store = repo.object_store
    assert isinstance(store, ShadowObjectStore)
    refs, prerequisites = _read_head(file, name)
    source = StoreSource(store)
    for id in prerequisites:
        if not source.has(id):
            raise RemoteDamaged(name, f"it needs commit {id.hex()}, which is not here")
    with Receiver(store, name, limits) as receiver:
        while piece := file.read(_CHUNK):
            receiver.write(piece)
        receiver.publish(refs.values(), progress=progress)
    return refs


def _read_head(file: BinaryIO, name: str) -> tuple[dict[bytes, bytes], list[bytes]]:
    if file.readline(_LONGEST_LINE) not in _SIGNATURES:
        raise RemoteDamaged(name, "it is not a git bundle")
    refs: dict[bytes, bytes] = {}
    prerequisites: list[bytes] = []
    for _ in range(_MOST_LINES):
        line = file.readline(_LONGEST_LINE)
        if line == b"\n":
            return refs, prerequisites
        if line.startswith(b"@object-format=sha1\n"):
            continue
        found = _LINE.fullmatch(line)
        if found is None or not (found[1] or is_ref(found[3] or b"")):
            raise RemoteDamaged(name, "its header is malformed")
        id = bytes.fromhex(found[2].decode())
        if found[1]:
            prerequisites.append(id)
        else:
            refs[found[3]] = id
    raise RemoteDamaged(name, "its header has no end")
