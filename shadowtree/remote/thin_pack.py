"""Packs to send: only what the other side lacks, with changed files and directories as deltas.

dulwich finds the missing objects but makes no deltas. Here each new commit is compared with its parents, path
by path, which finds both at once: each new object, and the version before it.

    parent  ── src ── a.py (1)            sent: commit, root as a delta of the parent's root,
    commit  ── src ── a.py (2)                  src as a delta of src, a.py (2) as a delta of a.py (1)

A delta names its base by id, so the base may be in the pack or on the other side alone: a thin pack.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from heapq import heappop, heappush
from typing import Protocol

from dulwich.pack import create_delta

from shadowtree.base.errors import InvalidInput, describe_size
from shadowtree.base.frozen import frozen
from shadowtree.store.git_format import (
    EMPTY_TREE,
    KIND_NUMBERS,
    REF_DELTA,
    TREE_MODE,
    TreeRow,
    entry_header,
    list_tree,
    pack_header,
)
from shadowtree.store.packs.delta import make_delta
from shadowtree.store.repo import ShadowObjectStore

_LINK_TO_COMMIT = b"160000"
_LONGEST_CHAIN = 50
"""The length of the longest chain of deltas, as in git."""
_STREAMED_BYTES = 4 << 20
"""A blob of more bytes than this is sent piece by piece, and never as a delta."""
_SMALL_BYTES = 4 << 10
"""Up to this size, any two versions are compared; above it, only if they are much alike."""
_SHORT_COPY = 16
"""A copy of fewer bytes costs more than inserting the bytes, which are deflated with their neighbours."""
_HEAD = re.compile(rb"tree ([0-9a-f]{40})\n((?:parent [0-9a-f]{40}\n)*)")
_TIME = re.compile(rb"^committer .* (\d+) [+-]\d{4}$", re.MULTILINE)


class ObjectSource(Protocol):
    """Where the objects of a pack come from."""

    def read(self, id: bytes) -> tuple[bytes, bytes]:
        """Return the kind and the content of an object."""

    def has(self, id: bytes) -> bool:
        """Return whether an object is there."""

    def head_of(self, id: bytes) -> tuple[bytes, int]:
        """Return the kind of an object and its size."""

    def stream_blob(self, id: bytes) -> Iterator[bytes]:
        """Return the content of a blob piece by piece."""


class StoreSource:
    """The objects of a store, which are verified when read."""

    def __init__(self, store: ShadowObjectStore) -> None:
        self._objects = store.objects

    def read(self, id: bytes) -> tuple[bytes, bytes]:
        """Return the kind and the content of an object."""
        # The empty tree may be referred to without being stored.
        return (b"tree", b"") if id == EMPTY_TREE else self._objects.read_any(id)

    def has(self, id: bytes) -> bool:
        """Return whether an object is there."""
        if id == EMPTY_TREE or self._objects.is_listed(id):
            return True
        self._objects.refresh()
        return self._objects.is_listed(id) or self._objects.pack_set.recall(id)

    def head_of(self, id: bytes) -> tuple[bytes, int]:
        """Return the kind of an object and its size."""
        return (b"tree", 0) if id == EMPTY_TREE else self._objects.head_of(id)

    def stream_blob(self, id: bytes) -> Iterator[bytes]:
        """Return the content of a blob piece by piece."""
        return self._objects.stream_blob(id)


@frozen
class Commit:
    """The links and the time of a commit."""

    tree: bytes
    parents: tuple[bytes, ...]
    time_s: int


@frozen
class PackedObject:
    """One object of a pack that is to be sent."""

    id: bytes
    kind: bytes
    base: bytes | None
    """The previous version, if this object may be sent as a delta of it."""


def read_commit(source: ObjectSource, id: bytes) -> Commit | None:
    """Read a commit; None if the object is of another kind."""
    kind, content = source.read(id)
    return parse_commit(content) if kind == b"commit" else None


def parse_commit(content: bytes) -> Commit | None:
    """Parse a commit; return None if it is malformed."""
    head = _HEAD.match(content)
    time = _TIME.search(content)
    if head is None or time is None:
        return None
    parents = [bytes.fromhex(line[7:].decode()) for line in head[2].splitlines()]
    return Commit(bytes.fromhex(head[1].decode()), tuple(parents), int(time[1]))


def is_ancestor(source: ObjectSource, old: bytes, new: bytes) -> bool:
    """Return whether `old` is `new` or one of its ancestors, without relying on times."""
    seen, level = {new}, [new]
    while level and old not in seen:
        commits = [read_commit(source, id) for id in level if source.has(id)]
        level = list({parent for commit in commits if commit for parent in commit.parents} - seen)
        seen.update(level)
    return old in seen


def plan_pack(
    source: ObjectSource, wants: Iterable[bytes], haves: Iterable[bytes], *, most_bytes: int
) -> list[PackedObject]:
    """List the objects to send so that a receiver that has `haves` gets `wants`, bases before their deltas.

    Raises InvalidInput if a file has more than `most_bytes`.
    """
    wanted = list(dict.fromkeys(wants))
    known = [id for id in haves if source.has(id)]
    commits = find_new_commits(source, wanted, known)
    plan = _Plan(source, most_bytes, known)
    for id in reversed(commits):
        plan.add_commit(id, commits)
    for id in wanted:
        if id not in commits:
            plan.add_any(id)
    return plan.objects


def find_new_commits(
    source: ObjectSource, wants: Iterable[bytes], haves: Iterable[bytes]
) -> dict[bytes, Commit]:
    """Find the commits reachable from `wants` and not from `haves`, children before their parents.

    The newest commit is visited first, and the search ends when only known commits are left. If a clock ran
    backwards, it finds too many commits, never too few.
    """
    found: dict[bytes, Commit] = {}
    queue: list[tuple[int, int, bytes]] = []
    known: set[bytes] = set()
    seen: dict[bytes, Commit] = {}

    def put(id: bytes) -> None:
        commit = seen.get(id) or read_commit(source, id)
        if commit is not None:
            seen[id] = commit
            heappush(queue, (-commit.time_s, len(seen), id))

    for id in haves:
        known.add(id)
        put(id)
    for id in wants:
        put(id)
    waiting = {id for _, _, id in queue}
    while queue and not waiting <= known:
        _, _, id = heappop(queue)
        waiting.discard(id)
        if id in known:
            found.pop(id, None)
        elif id not in found:
            found[id] = seen[id]
        for parent in seen[id].parents:
            if id in known and parent not in known:
                known.add(parent)
                waiting.add(parent)
                put(parent)
            elif parent not in seen and source.has(parent):
                waiting.add(parent)
                put(parent)
    return _sort(found, known)


def _sort(found: dict[bytes, Commit], known: set[bytes]) -> dict[bytes, Commit]:
    """Sort children before their parents, whatever their times."""
    left = {id: commit for id, commit in found.items() if id not in known}
    children = dict.fromkeys(left, 0)
    for commit in left.values():
        for parent in commit.parents:
            if parent in children:
                children[parent] += 1
    ready = [id for id in left if not children[id]]
    ordered: dict[bytes, Commit] = {}
    while ready:
        id = ready.pop()
        ordered[id] = left[id]
        for parent in left[id].parents:
            if parent in children:
                children[parent] -= 1
                if not children[parent]:
                    ready.append(parent)
    return ordered


class _Plan:
    """Collects the objects of a pack."""

    def __init__(self, source: ObjectSource, most_bytes: int, known: Iterable[bytes]) -> None:
        self._source = source
        self._most_bytes = most_bytes
        self._seen = set(known)
        """What the other side has, or will get from this pack."""
        self._depths: dict[bytes, int] = {}
        self.objects: list[PackedObject] = []

    def add_commit(self, id: bytes, commits: dict[bytes, Commit]) -> None:
        commit = commits[id]
        bases = [
            parent
            for each in commit.parents
            if (
                parent := commits.get(each)
                or (read_commit(self._source, each) if self._source.has(each) else None)
            )
        ]
        self._seen.update(base.tree for base in bases)
        self.add_tree(commit.tree, [base.tree for base in bases])
        # A parent is a good base: it has the same author and trailers.
        self._add(id, b"commit", next(filter(self._source.has, commit.parents), None))

    def add_any(self, id: bytes) -> None:
        """Add an object that a ref names directly."""
        if id in self._seen:
            return
        kind, _ = self._source.read(id)
        if kind == b"tree":
            self.add_tree(id, [])
        else:
            self._add(id, kind, None)

    def add_tree(self, tree: bytes, bases: Sequence[bytes]) -> None:
        """Add a tree and what is new in it; `bases` are its earlier versions."""
        waiting = [(tree, tuple(bases))]
        while waiting:
            id, before = waiting.pop()
            if id in self._seen:
                continue
            self._add(id, b"tree", before[0] if before else None)
            old: dict[bytes, list[TreeRow]] = {}
            for base in before:
                for row in self._rows(base):
                    old.setdefault(row[1], []).append(row)
                    # The object is known, even if it was renamed or is in several parents.
                    self._seen.add(row[2])
            for mode, name, each in self._rows(id):
                if each in self._seen or mode == _LINK_TO_COMMIT:
                    continue
                is_tree = mode == TREE_MODE
                versions = [row[2] for row in old.get(name, ()) if (row[0] == TREE_MODE) == is_tree]
                if is_tree:
                    waiting.append((each, tuple(versions)))
                else:
                    self._add(each, b"blob", versions[0] if versions else None)

    def _rows(self, tree: bytes) -> list[TreeRow]:
        return [] if tree == EMPTY_TREE else list_tree(self._source.read(tree)[1], tree.hex())

    def _add(self, id: bytes, kind: bytes, base: bytes | None) -> None:
        if id in self._seen:
            return
        self._seen.add(id)
        if kind == b"blob":
            check_size(id, self._source.head_of(id)[1], self._most_bytes)
        depth = self._depths.get(base, 0) + 1 if base is not None and base != EMPTY_TREE else 0
        if depth > _LONGEST_CHAIN:
            depth = 0
        self._depths[id] = depth
        self.objects.append(PackedObject(id, kind, base if depth else None))


def check_size(id: bytes, size: int, most_bytes: int) -> None:
    """Raise InvalidInput if an object is too large for others to fetch."""
    if size > most_bytes:
        most = describe_size(most_bytes)
        raise InvalidInput(f"object {id.hex()} has {describe_size(size)}; at most {most} can be sent")


# The bytes


def encode_entry(source: ObjectSource, object: PackedObject) -> Iterator[bytes]:
    """Yield the bytes of one entry of a pack."""
    if object.kind == b"blob":
        size = source.head_of(object.id)[1]
        if size > _STREAMED_BYTES:
            yield from _stream_entry(source, object.id, size)
            return
    kind, content = source.read(object.id)
    whole = zlib.compress(content)
    if object.base is not None:
        base_kind, base = source.read(object.base)
        delta = _make_delta(kind, base, content, len(whole)) if base_kind == kind else None
        if delta is not None and len(delta[1]) + 20 < len(whole):
            yield entry_header(REF_DELTA, delta[0]) + object.base + delta[1]
            return
    yield entry_header(KIND_NUMBERS[kind], len(content)) + whole


def _make_delta(kind: bytes, base: bytes, content: bytes, whole_size: int) -> tuple[int, bytes] | None:
    """Make a delta, as short as possible; return its size and its deflated bytes, or None."""
    if not base or not content or max(len(base), len(content)) > _SMALL_BYTES:
        made = make_delta(kind, base, content, whole_size)
        delta = None if made is None else zlib.decompress(made[1])
    else:
        delta = b"".join(create_delta(base, content))
    if delta is None:
        return None
    delta = _join_short(delta, base)
    # git treats a shorter delta as damaged.
    return (len(delta), zlib.compress(delta, 9)) if len(delta) >= 4 else None


def _join_short(delta: bytes, base: bytes) -> bytes:
    """Replace short copies by inserts: dulwich copies even single equal bytes, which takes more space.

    copy 900, insert "x", copy 2, insert "yz", copy 500    becomes    copy 900, insert "xabyz", copy 500
    """
    position = 0
    for _ in range(2):
        # Skip the sizes of the base and of the result.
        while delta[position] & 0x80:
            position += 1
        position += 1
    joined, inserted = bytearray(delta[:position]), bytearray()
    while position < len(delta):
        start, command = position, delta[position]
        position += 1
        if not command & 0x80:
            inserted += delta[position : position + command]
            position += command
            continue
        numbers = [0] * 7
        for place in range(7):
            if command >> place & 1:
                numbers[place] = delta[position]
                position += 1
        offset, size = int.from_bytes(numbers[:4], "little"), int.from_bytes(numbers[4:], "little") or 0x10000
        if size < _SHORT_COPY:
            inserted += base[offset : offset + size]
        else:
            joined += _insert(inserted) + delta[start:position]
            inserted = bytearray()
    return bytes(joined + _insert(inserted))


def _insert(content: bytearray) -> bytes:
    pieces = [content[start : start + 127] for start in range(0, len(content), 127)]
    return b"".join([bytes([len(piece)]) + piece for piece in pieces])


def _stream_entry(source: ObjectSource, blob: bytes, size: int) -> Iterator[bytes]:
    yield entry_header(KIND_NUMBERS[b"blob"], size)
    deflater = zlib.compressobj()
    for piece in source.stream_blob(blob):
        yield deflater.compress(piece)
    yield deflater.flush()


def write_pack(source: ObjectSource, objects: Sequence[PackedObject]) -> Iterator[bytes]:
    """Yield the bytes of a whole pack."""
    digest = sha1(pack_header(len(objects)), usedforsecurity=False)
    yield pack_header(len(objects))
    for object in objects:
        for piece in encode_entry(source, object):
            digest.update(piece)
            yield piece
    yield digest.digest()
