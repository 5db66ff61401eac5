"""What somebody wants to be purged, and where it is: in trees, in changes, in what is kept beside trees.

A path that is doomed may share its bytes with others. Those are named, and stay unless they are meant too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from shadowtree.arguments import parse_path
from shadowtree.erasing import Eraser, Hit
from shadowtree.errors import InvalidInput, StoreDamaged, UnknownName
from shadowtree.events import TreeRecord
from shadowtree.facts import GIT_IGNORE, IGNORE_BLOB, RULES_BLOB, SUBTREE_PREFIX, decode_rules
from shadowtree.frozen import frozen
from shadowtree.gitformat import blob_id, parse_keeper
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.paths import ROOT, RelPath, from_text, to_text
from shadowtree.rulefiles import ANYTHING, OWN_IGNORE
from shadowtree.sink import Scratch
from shadowtree.state import PathState
from shadowtree.tombstones import Tombstones

_COMMON = frozenset({blob_id(b""), blob_id(ANYTHING)})
"""Contents that are nobody's secret: that of an empty file, and the rule that stands for purged ones."""
_HEX = set("0123456789abcdef")


@frozen
class Doomed:
    """What somebody wants to be purged."""

    name: str
    """As it was given."""
    path: RelPath | None
    blob: bytes | None
    """One of the two is None."""


def read_doomed(what: str | os.PathLike[str], worktree: str) -> Doomed:
    """Read a path, relative to the worktree, or the id of a blob: 40 hexadecimal digits."""
    name = os.fspath(what)
    if len(name) == 40 and not set(name) - _HEX:
        blob = bytes.fromhex(name)
        if blob in _COMMON:
            raise InvalidInput(f"{name} is what many files hold, or none at all, and nobody's secret")
        return Doomed(name, None, blob)
    path = parse_path(name, worktree)
    if path == ROOT:
        raise InvalidInput("that is the whole worktree: 'destroy' removes the store with all that is in it")
    return Doomed(name, path, None)


@frozen
class Find:
    """Where it is in a store."""

    tombstones: Tombstones
    """What is taken out."""
    rows: Sequence[tuple[RelPath | None, bytes | None]]
    """The tombstones as they are kept: paths, and contents, for a path perhaps."""
    paths: list[RelPath]
    """The files and links that are taken out somewhere."""
    blobs: frozenset[bytes]
    """What they held."""
    also_at: list[RelPath]
    """Other paths that hold the same bytes, and keep them."""
    left: frozenset[bytes] = frozenset()
    """Which contents are still in the store then."""
    kept: frozenset[bytes] = frozenset()
    """Which of those are kept beside trees."""


def find(opened: OpenStore, doomed: Doomed, *, everywhere: bool) -> Find:
    """Look for what is doomed in all that is recorded; UnknownName if it is nowhere. Changes nothing."""
    search = _Search(opened)
    if doomed.path is None:
        return _find_blob(search, doomed)
    return _find_path(search, doomed, doomed.path, everywhere)


def _find_blob(search: _Search, doomed: Doomed) -> Find:
    assert doomed.blob is not None
    chosen = Tombstones(blobs=frozenset({doomed.blob}))
    hits = search.find(chosen)
    if not hits and not search.has_blob(doomed.blob):
        raise UnknownName(doomed.name, f"nothing in the store has the content {doomed.name}")
    return Find(chosen, [(None, doomed.blob)], _paths_of(hits), chosen.blobs, [])


def _find_path(search: _Search, doomed: Doomed, path: RelPath, everywhere: bool) -> Find:
    placed = Tombstones(paths=frozenset({path}))
    hits = search.find(placed)
    texts = search.find_rule_texts(path) if _is_rules(path) else set()
    if not hits and not texts:
        raise UnknownName(doomed.name, f"nothing is recorded of {to_text(path)}")
    blobs = frozenset({*texts, *(blob for _, blob in hits)} - {b"", *_COMMON})
    others = {hit for hit in search.find_in_trees(Tombstones(blobs=blobs)) if not placed.covers(hit[0])}
    if everywhere or _is_rules(path):
        # Rules are in force whether they are covered or not: they are left out by what they say.
        chosen = Tombstones(frozenset() if _is_rules(path) else placed.paths, blobs)
        rows = [(path, None) for path in chosen.paths] + [(path, blob) for blob in sorted(blobs)]
        return Find(chosen, rows, _paths_of(hits | others), blobs, [])
    beside = {hit for hit in search.find_beside(blobs) if not placed.covers(hit[0])}
    left = frozenset(blob for _, blob in others | beside)
    kept = frozenset(blob for _, blob in beside)
    return Find(placed, [(path, None)], _paths_of(hits), blobs, _paths_of(others | beside), left, kept)


def _paths_of(hits: Iterable[Hit]) -> list[RelPath]:
    return sorted({path for path, _ in hits})


def _is_rules(path: RelPath) -> bool:
    return path.rpartition(b"/")[2] == GIT_IGNORE or path == OWN_IGNORE


class _Search:
    """Looks through the recorded trees, the changes, and what is kept beside trees."""

    def __init__(self, opened: OpenStore) -> None:
        self._journal = opened.journal
        self._objects = opened.objects
        self._live = list(opened.journal.live_trees())

    def find(self, tombstones: Tombstones) -> set[Hit]:
        """Give each path that is purged with each content that is known of it."""
        found = self.find_in_trees(tombstones)
        eraser = Eraser(self._objects, Scratch(), tombstones)
        for record in self._journal.forgotten_trees():
            try:
                found |= eraser.erase(record.tree, record.facts).hits
            except StoreDamaged:
                # Its objects may be gone by now, with all that it held.
                continue
        return found | set(self._find_in_changes(tombstones))

    def find_in_trees(self, tombstones: Tombstones) -> set[Hit]:
        """Do so in the trees that were not forgotten alone."""
        eraser = Eraser(self._objects, Scratch(), tombstones)
        return {hit for record in self._live for hit in eraser.erase(record.tree, record.facts).hits}

    def _find_in_changes(self, tombstones: Tombstones) -> Iterator[Hit]:
        for _, change in self._journal.changes_to(tombstones):
            for state in (change.old, change.new):
                is_meant = tombstones.covers(change.path)
                if isinstance(state, PathState) and (is_meant or state.blob in tombstones.blobs):
                    yield change.path, state.blob

    def has_blob(self, blob: bytes) -> bool:
        """Tell whether the store holds a content, needed or not."""
        if not self._objects.is_listed(blob):
            return False
        kind, _ = self._objects.read_any(blob)
        if kind != b"blob":
            raise InvalidInput(f"{blob.hex()} is no content of a file")
        return True

    def find_beside(self, blobs: frozenset[bytes]) -> set[Hit]:
        """Give the paths whose uncovered content an act kept beside a tree, if it is one of these."""
        beside = {blob for record in self._live for blob in Kept(self._objects, record).also}
        return set(self._find_in_changes(Tombstones(blobs=blobs & beside)))

    def find_rule_texts(self, path: RelPath) -> set[bytes]:
        """Give the contents of rules that were in force, whether they were covered or not."""
        found = set()
        for record in self._live:
            facts: bytes | None = record.facts
            for name in path.split(b"/")[:-1]:
                facts = self._find_fact(facts, SUBTREE_PREFIX + name)
            if path == OWN_IGNORE:
                rules = self._objects.read(b"blob", self._find_fact(facts, RULES_BLOB) or b"")
                found.add(blob_id(from_text(decode_rules(rules, record.facts.hex()).own_text)))
            else:
                found.add(self._find_fact(facts, IGNORE_BLOB) or b"")
        return found - {b"", *_COMMON}

    def _find_fact(self, facts: bytes | None, name: bytes) -> bytes | None:
        entries = () if facts is None else self._objects.read_tree(facts)
        return next((entry.id for entry in entries if entry.name == name), None)


class Kept:
    """What a commit keeps: a tree, its facts, and contents beside them."""

    def __init__(self, objects: Objects, record: TreeRecord) -> None:
        self.commit = parse_keeper(objects.read(b"commit", record.keeper))
        beside = [entry.id for entry in objects.read_tree(self.commit.tree) if entry.name == b"also"]
        self.also = [entry.id for tree in beside for entry in objects.read_tree(tree)]
