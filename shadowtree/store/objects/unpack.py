"""What is at a place in a pack: the object that stands there, or that a chain of deltas comes to."""

from __future__ import annotations

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.objects.deltas import BadDelta, apply_delta
from shadowtree.store.objects.git_format import KIND_NAMES, Source
from shadowtree.store.objects.packs import Entry, Pack

_MAX_DELTA_CHAIN = 5000
_REMEMBERED_BASES = 8 << 20
"""How many bytes are kept of what deltas are made of: who reads one version mostly reads the next."""


class Unpacking:
    """Reads places in packs. What it remembers of a pack holds as long as that one does."""

    def __init__(self) -> None:
        self._bases: dict[tuple[str, int], tuple[int, bytes]] = {}
        """By pack and place what was made of deltas a moment ago: its kind and its content."""
        self._room = _REMEMBERED_BASES

    def forget(self) -> None:
        """Forget what was read."""
        self._bases.clear()
        self._room = _REMEMBERED_BASES

    def read_at(self, pack: Pack, offset: int) -> Source:
        """Read what is at a place in a pack, whatever else holds the same object; its hash is not checked."""
        entry = pack.read_entry(offset)
        if entry.base is not None:
            kind, content = self._resolve_delta(pack, entry)
            return kind, len(content), iter([content])
        if entry.kind_number not in KIND_NAMES:
            raise StoreDamaged(f"{pack.path} has no entry at {offset}")
        return KIND_NAMES[entry.kind_number], entry.size, pack.inflate(entry)

    def _resolve_delta(self, pack: Pack, entry: Entry) -> tuple[bytes, bytes]:
        """Put a chain of deltas together."""
        chain = []
        known = None
        while entry.base is not None and known is None:
            chain.append(entry)
            offset = pack.find(entry.base) if isinstance(entry.base, bytes) else entry.base
            if offset is None or len(chain) > _MAX_DELTA_CHAIN:
                raise StoreDamaged(f"{pack.path} has a delta without its base")
            entry = pack.read_entry(offset)
            known = self._bases.get((pack.path, entry.start))
        kind_number, content = known or (entry.kind_number, b"".join(pack.inflate(entry)))
        if kind_number not in KIND_NAMES:
            raise StoreDamaged(f"{pack.path} holds something that is no object")
        for delta in reversed(chain):
            try:
                content = apply_delta(content, b"".join(pack.inflate(delta)))
            except BadDelta as error:
                raise StoreDamaged(f"{pack.path} has a delta that does not fit its base") from error
        self._remember_base(pack.path, chain[0].start, kind_number, content)
        return KIND_NAMES[kind_number], content

    def _remember_base(self, path: str, start: int, kind_number: int, content: bytes) -> None:
        self._room -= len(content)
        if self._room < 0:
            self._bases.clear()
            self._room = _REMEMBERED_BASES - len(content)
        if self._room >= 0:
            self._bases[path, start] = kind_number, content
