"""What is to be purged, and where it is: in trees, in changes, in what is kept beside trees.

A path may share its bytes with others. Those are named, and stay unless everything is to go.
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
"""Contents that are nobody's secret: that of an empty file, and the rule that stands for purged ones."""
_HEX = set("0123456789abcdef")
_SHORTEST_TEXT = 4
"""A shorter text is part of too many words."""


@frozen
class Target:
    """What the user wants to purge: a path, a content or a text; the other two are None."""

    name: str
    """What messages call it; a text is not repeated."""
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
    left_of: Sequence[tuple[RelPath, bytes]] = ()
    """Those contents with the path that was purged, to be found again when they are to go too."""
    unread: frozenset[bytes] = frozenset()
    """Contents that cannot be read, so that they may hold the text."""


def find(opened: OpenStore, target: Target, *, everywhere: bool) -> Find:
    """Find the target in all that is recorded; UnknownName if it is nowhere. Changes nothing.

    The texts of messages are not searched here, so a text may be found nowhere.
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
        # Rules are in force whether they are covered or not: they are left out by their content.
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
    """Find what a purge of a path left at other paths; None: nothing is."""
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
    """Find the contents that hold a text; they stay, and are named, unless it is `everywhere`."""
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
    """Searches the recorded trees, the changes, and what is kept beside trees."""

    def __init__(self, opened: OpenStore) -> None:
        self._journal = opened.journal
        self._objects = opened.objects
        self._live = list(opened.journal.live_trees())
        self._beside = {blob for record in self._live for blob in record.blobs_beside}
        """What acts kept beside trees."""

    def find(self, tombstones: Tombstones) -> set[Hit]:
        """List each path that is purged with each content that is known of it."""
        found = self.find_in_trees(tombstones)
        eraser = Eraser(self._objects, Scratch(), tombstones)
        for record in self._journal.all_trees():
            if record.forgotten_ms is None:
                continue
            try:
                found |= eraser.erase(record.tree, record.facts).hits
            except StoreDamaged:
                # Its objects may be gone by now, with all that it held.
                continue
        return found | set(self._find_in_changes(tombstones))

    def find_in_trees(self, tombstones: Tombstones) -> set[Hit]:
        """List them only in the trees that were not forgotten."""
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
        """Return the paths whose uncovered content an act kept beside a tree, if it is one of these."""
        return set(self._find_in_changes(Tombstones(blobs=blobs & self._beside)))

    def find_rule_texts(self, path: RelPath) -> set[bytes]:
        """Return the contents of rules that were in force, whether they were covered or not."""
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
