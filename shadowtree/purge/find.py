"""Find what is to be purged: in trees, in changes, and in the contents kept next to trees.

Other paths may hold the same bytes. These are reported, and stay unless the bytes are purged everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from shadowtree.base.arguments import parse_path
from shadowtree.base.errors import InvalidInput, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import ROOT, PathState, RelPath, Tombstones, from_text, to_text
from shadowtree.capture.directories import GIT_IGNORE
from shadowtree.capture.facts import ANYTHING, IGNORE_BLOB, RULES_BLOB, SUBTREE_PREFIX, decode_rules
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.rules.sources import OWN_IGNORE
from shadowtree.purge.rewrite import Eraser, Hit
from shadowtree.store.git_format import blob_id
from shadowtree.store.objects import Scratch
from shadowtree.store.walk import Walker

_COMMON = frozenset({blob_id(b""), blob_id(ANYTHING)})
"""Contents that are no secret: that of an empty file, and the rule that replaces purged rules."""
_HEX = set("0123456789abcdef")
_SHORTEST_TEXT = 4
"""A shorter text is part of too many words."""


@frozen
class Target:
    """What the user wants to purge: a path, a content or a text; the other two are None."""

    name: str
    """What to call it in notes and errors; a text is not repeated."""
    path: RelPath | None = None
    blob: bytes | None = None
    text: str | None = None


def read_target(what: str | os.PathLike[str] | None, worktree: str, *, text: str | None = None) -> Target:
    """Read a path, relative to the worktree, the id of a blob (40 hexadecimal digits), or a text."""
    if text is not None:
        if what is not None:
            raise InvalidInput("purge either a path or content, or a text, not both")
        if len(text) < _SHORTEST_TEXT:
            raise InvalidInput(f"a text to purge must have at least {_SHORTEST_TEXT} characters")
        return Target("the text", text=text)
    if what is None:
        raise InvalidInput("nothing to purge was given")
    name = os.fspath(what)
    if len(name) == 40 and not set(name) - _HEX:
        blob = bytes.fromhex(name)
        if blob in _COMMON:
            raise InvalidInput(f"{name} is the content of empty or very common files, not a secret")
        return Target(name, blob=blob)
    path = parse_path(name, worktree)
    if path == ROOT:
        raise InvalidInput("that is the whole worktree; 'shadowtree destroy' removes everything recorded")
    return Target(to_text(path), path=path)


@frozen
class Find:
    """Where the target is in a store."""

    tombstones: Tombstones
    """What is removed."""
    rows: Sequence[tuple[RelPath | None, bytes | None]]
    """The tombstones as recorded: a path, a content, a content purged for a path, or neither for a text."""
    paths: list[RelPath]
    """The files and links that are removed anywhere."""
    blobs: frozenset[bytes]
    """The contents that they held."""
    also_at: list[RelPath]
    """Other paths that hold the same bytes, and keep them."""
    left: frozenset[bytes] = frozenset()
    """The contents that are still in the store afterwards."""
    kept: frozenset[bytes] = frozenset()
    """Those of `left` that are kept next to trees."""
    left_of: Sequence[tuple[RelPath, bytes]] = ()
    """The contents in `left` with the purged path, so that a later purge can find them."""
    unread: frozenset[bytes] = frozenset()
    """Contents that cannot be read, so they may hold the text."""


def find(opened: OpenStore, target: Target, *, everywhere: bool) -> Find:
    """Find the target in everything recorded; raise UnknownName if it is nowhere. Changes nothing.

    The texts of messages are not searched here, so a text that is found nowhere is no error.
    """
    search = _Search(opened)
    if target.blob is not None:
        chosen = Tombstones(blobs=frozenset({target.blob}))
        hits = search.find(chosen)
        if not hits and not opened.objects.is_listed(target.blob):
            raise UnknownName(target.name, f"the store has no content with id {target.name}")
        if not hits and opened.objects.read_any(target.blob)[0] != b"blob":
            raise InvalidInput(f"{target.name} is not the content of a file")
        return Find(chosen, [(None, target.blob)], _paths_of(hits), chosen.blobs, [])
    if target.path is not None:
        return _find_path(search, target, target.path, everywhere)
    assert target.text is not None
    return _find_text(search, target.text, everywhere)


def _find_path(search: _Search, target: Target, path: RelPath, everywhere: bool) -> Find:
    placed = Tombstones(paths=frozenset({path}))
    is_rules = path.rpartition(b"/")[2] == GIT_IGNORE or path == OWN_IGNORE
    hits = search.find(placed)
    texts = search.find_rule_texts(path) if is_rules else set()
    if not hits and not texts:
        raise UnknownName(target.name, f"nothing is recorded for {to_text(path)}")
    blobs = frozenset({*texts, *(blob for _, blob in hits)} - {b"", *_COMMON})
    others = {hit for hit in search.find_in_trees(Tombstones(blobs=blobs)) if not placed.covers(hit[0])}
    if everywhere or is_rules:
        # Rules are in force whether their file is covered or not, so they are purged by content.
        chosen = Tombstones(frozenset() if is_rules else placed.paths, blobs)
        rows = [(path, None) for path in chosen.paths] + [(path, blob) for blob in sorted(blobs)]
        return Find(chosen, rows, _paths_of(hits | others), blobs, [])
    beside = {hit for hit in search.find_beside(blobs) if not placed.covers(hit[0])}
    left = frozenset(blob for _, blob in others | beside)
    kept = frozenset(blob for _, blob in beside)
    left_of = [(path, blob) for blob in sorted(left)]
    also_at = _paths_of(others | beside)
    return Find(placed, [(path, None)], _paths_of(hits), blobs, also_at, left, kept, left_of)


def find_left(opened: OpenStore, target: Target, *, everywhere: bool) -> Find | None:
    """Find what an earlier purge of a path left at other paths; None if nothing is left."""
    blobs = frozenset() if target.path is None else opened.journal.purges.left_of(target.path)
    search, chosen = _Search(opened), Tombstones(blobs=blobs)
    hits = search.find_in_trees(chosen)
    beside = search.find_beside(blobs)
    if not hits and not beside:
        return None
    if everywhere:
        rows = [(target.path, blob) for blob in sorted(blobs)]
        return Find(chosen, rows, _paths_of(search.find(chosen)), blobs, [])
    left = frozenset(blob for _, blob in hits | beside)
    return Find(Tombstones(), [], [], frozenset(), _paths_of(hits | beside), left)


def _find_text(search: _Search, text: str, everywhere: bool) -> Find:
    """Find the contents that hold a text; they stay and are reported, unless `everywhere`."""
    blobs, unread = search.find_holding(from_text(text))
    chosen = Tombstones(blobs=blobs)
    if everywhere and blobs:
        rows = [(None, blob) for blob in sorted(blobs)]
        return Find(chosen, rows, _paths_of(search.find(chosen)), blobs, [], unread=unread)
    hits = search.find_in_trees(chosen) | search.find_beside(blobs)
    return Find(Tombstones(), [(None, None)], [], frozenset(), _paths_of(hits), blobs, unread=unread)


def _paths_of(hits: Iterable[Hit]) -> list[RelPath]:
    return sorted({path for path, _ in hits})


class _Search:
    """Searches the recorded trees, the changes, and the contents kept next to trees."""

    def __init__(self, opened: OpenStore) -> None:
        self._journal = opened.journal
        self._objects = opened.objects
        self._live = list(opened.journal.live_trees())
        self._beside = {blob for record in self._live for blob in record.blobs_beside}
        """The contents that acts kept next to trees."""

    def find(self, tombstones: Tombstones) -> set[Hit]:
        """Return each purged path with each of its known contents."""
        found = self.find_in_trees(tombstones)
        eraser = Eraser(self._objects, Scratch(), tombstones)
        for record in self._journal.all_trees():
            if record.forgotten_ms is None:
                continue
            try:
                found |= eraser.erase(record.tree, record.facts).hits
            except StoreDamaged:
                # The objects of a forgotten tree may be gone by now.
                continue
        return found | set(self._find_in_changes(tombstones))

    def find_in_trees(self, tombstones: Tombstones) -> set[Hit]:
        """Return each purged path with its contents in the trees that are not forgotten."""
        eraser = Eraser(self._objects, Scratch(), tombstones)
        return {hit for record in self._live for hit in eraser.erase(record.tree, record.facts).hits}

    def _find_in_changes(self, tombstones: Tombstones) -> Iterator[Hit]:
        for _, change in self._journal.purges.changes_to(tombstones):
            for state in (change.old, change.new):
                is_meant = tombstones.covers(change.path)
                if isinstance(state, PathState) and (is_meant or state.blob in tombstones.blobs):
                    yield change.path, state.blob

    def find_holding(self, text: bytes) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """Return the contents that hold a text, and those that cannot be read."""
        walker = Walker(self._objects)
        blobs = self._beside.union(*(walker.list_blobs(record.tree) for record in self._live))
        holding, unread = set(), set()
        for blob in sorted(blobs):
            end = b""
            try:
                for piece in self._objects.stream_blob(blob):
                    if text in end + piece:
                        holding.add(blob)
                        break
                    end = (end + piece)[1 - len(text) :]
            except StoreDamaged:
                unread.add(blob)
        return frozenset(holding), frozenset(unread)

    def find_beside(self, blobs: frozenset[bytes]) -> set[Hit]:
        """Return the paths that had any of `blobs` that an act kept next to a tree."""
        return set(self._find_in_changes(Tombstones(blobs=blobs & self._beside)))

    def find_rule_texts(self, path: RelPath) -> set[bytes]:
        """Return the contents of a rule file that were in force, whether the file was covered or not."""
        found = set()
        for record in self._live:
            facts: bytes | None = record.facts
            for name in path.split(b"/")[:-1]:
                facts = self._find_fact(facts, SUBTREE_PREFIX + name)
            if path == OWN_IGNORE:
                rules = self._objects.read(b"blob", self._find_fact(facts, RULES_BLOB) or b"")
                found.add(blob_id(decode_rules(rules, record.facts.hex()).own_text))
            else:
                found.add(self._find_fact(facts, IGNORE_BLOB) or b"")
        return found - {b"", *_COMMON}

    def _find_fact(self, facts: bytes | None, name: bytes) -> bytes | None:
        entries = () if facts is None else self._objects.read_tree(facts)
        return next((entry.id for entry in entries if entry.name == name), None)
