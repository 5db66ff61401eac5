"""Recorded trees without what is purged: made anew from where it was up to the root, with their facts.

              tree            facts                       tree          facts
    src/      key.pem 1f…     mode 600 key.pem    ──▶     a.py 77…      skipped key.pem/purged
              a.py    77…

A name that is taken out is listed as skipped beside the tree, so that nothing is known of it: whoever asks is
told that it is unknown, not that it was absent (invariant 7). The text of rules is recorded beside trees too.
One that is purged becomes a rule that leaves out everything: whatever the tree does not hold is unknown then.
"""

from __future__ import annotations

from collections.abc import Iterator

from shadowtree.errors import InvalidInput
from shadowtree.facts import (
    DIRECTORY_BLOB,
    EXCLUDE_BLOB,
    GIT_IGNORE,
    IGNORE_BLOB,
    RULES_BLOB,
    SUBTREE_PREFIX,
    RootRules,
    decode_rules,
    encode_rules,
    leave_out,
)
from shadowtree.frozen import frozen
from shadowtree.gitformat import MODE_FILE, MODE_TREE, TreeEntry, blob_id, encode_tree
from shadowtree.objects import Objects
from shadowtree.paths import ROOT, RelPath, from_text, join, to_text
from shadowtree.rulefiles import ANYTHING
from shadowtree.tombstones import PURGED, Tombstones

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.sink import ObjectSink

Hit = tuple[RelPath, bytes]
"""A path that is taken out, with the id of what it held; a directory without files held nothing."""


_Key = tuple[RelPath | None, bytes | None, bytes | None]
"""What decides what is made of a directory: tree, facts, and where it is, if a path in it is purged."""


@frozen
class Erased:
    """A directory without what is purged."""

    tree: bytes | None
    """None: no file is left in it."""
    facts: bytes | None
    hits: frozenset[Hit]
    """Relative to the directory."""


class _Place:
    """A directory of a recorded tree, on the way to being made anew."""

    def __init__(self, path: RelPath, tree: bytes | None, facts: bytes | None, objects: Objects) -> None:
        self.path = path
        self.tree = tree
        self.facts = facts
        self.entries = {} if tree is None else {entry.name: entry for entry in objects.read_tree(tree)}
        self.fact_entries = {} if facts is None else {entry.name: entry for entry in objects.read_tree(facts)}

    def subdirectories(self) -> set[bytes]:
        """Name the directories that the tree or the facts tell of."""
        prefix = len(SUBTREE_PREFIX)
        in_facts = {name[prefix:] for name in self.fact_entries if name.startswith(SUBTREE_PREFIX)}
        return in_facts | {name for name, entry in self.entries.items() if entry.mode == MODE_TREE}

    def ids_of(self, name: bytes) -> tuple[bytes | None, bytes | None]:
        """Give tree and facts of a directory in this one."""
        entry, facts = self.entries.get(name), self.fact_entries.get(SUBTREE_PREFIX + name)
        tree = entry.id if entry is not None and entry.mode == MODE_TREE else None
        return tree, None if facts is None else facts.id


class Eraser:
    """Makes trees and facts anew, and puts them into a pack. What several trees share is made once."""

    def __init__(self, objects: Objects, pack: ObjectSink, tombstones: Tombstones) -> None:
        self._objects = objects
        self._pack = pack
        self._tombstones = tombstones
        self._done: dict[_Key, Erased] = {}

    def erase(self, tree: bytes, facts: bytes) -> Erased:
        """Give a recorded tree and its facts without what is purged."""
        order: list[_Place] = []
        waiting: list[tuple[RelPath, bytes | None, bytes | None]] = [(ROOT, tree, facts)]
        while waiting:
            path, tree_id, facts_id = waiting.pop()
            if self._known(path, tree_id, facts_id) is None:
                place = _Place(path, tree_id, facts_id, self._objects)
                order.append(place)
                waiting += [(join(path, name), *place.ids_of(name)) for name in self._entered(place)]
        # Whatever is below a directory came after it.
        for place in reversed(order):
            self._done[self._key(place.path, place.tree, place.facts)] = self._erase_in(place)
        found = self._known(ROOT, tree, facts)
        assert found is not None
        return found

    def _key(self, path: RelPath, tree: bytes | None, facts: bytes | None) -> _Key:
        start = path + b"/" if path else b""
        is_placed = any(purged.startswith(start) for purged in self._tombstones.paths)
        return path if is_placed else None, tree, facts

    def _known(self, path: RelPath, tree: bytes | None, facts: bytes | None) -> Erased | None:
        if not self._tombstones.is_near(path):
            return Erased(tree, facts, frozenset())
        return self._done.get(self._key(path, tree, facts))

    def _entered(self, place: _Place) -> Iterator[bytes]:
        """Name the directories that are looked into: all but those that are taken out whole."""
        return (name for name in place.subdirectories() if not self._is_purged(place, name))

    def _is_purged(self, place: _Place, name: bytes) -> bool:
        return join(place.path, name) in self._tombstones.paths

    def _erase_in(self, place: _Place) -> Erased:
        """Make one directory anew, those below it being made."""
        below = {name: self._made(place, name) for name in self._entered(place)}
        gone = set(self._find_gone(place))
        hits = {hit for name in gone for hit in self._list_hits(place, name)}
        hits |= {
            (join(RelPath(name), path), blob) for name, made in below.items() for path, blob in made.hits
        }
        entries = [
            entry for name, entry in place.entries.items() if name not in gone and entry.mode != MODE_TREE
        ]
        entries += [TreeEntry(name, MODE_TREE, made.tree) for name, made in below.items() if made.tree]
        tree = self._put_tree(entries, place.tree)
        if tree is None and place.path == ROOT:
            tree = self._objects.put(self._pack, b"tree", b"")
        facts = self._erase_facts(place, gone, below, is_emptied=tree is None and place.tree is not None)
        return Erased(tree, facts, frozenset(hits))

    def _made(self, place: _Place, name: bytes) -> Erased:
        found = self._known(join(place.path, name), *place.ids_of(name))
        assert found is not None, "what is below a directory is made before it"
        return found

    def _find_gone(self, place: _Place) -> Iterator[bytes]:
        purged = self._tombstones.blobs
        for name in place.entries.keys() | place.subdirectories():
            entry = place.entries.get(name)
            is_told = entry is not None and entry.mode != MODE_TREE and entry.id in purged
            if is_told or self._is_purged(place, name):
                yield name

    def _list_hits(self, place: _Place, name: bytes) -> Iterator[Hit]:
        """List the files and links at a name and below it, with their contents."""
        entry = place.entries.get(name)
        if entry is None:
            yield RelPath(name), b""
            return
        waiting = [(RelPath(name), entry)]
        while waiting:
            path, entry = waiting.pop()
            if entry.mode != MODE_TREE:
                yield path, entry.id
            else:
                waiting += [(join(path, sub.name), sub) for sub in self._objects.read_tree(entry.id)]

    def _erase_facts(
        self, place: _Place, gone: set[bytes], below: dict[bytes, Erased], *, is_emptied: bool
    ) -> bytes | None:
        """Make the facts of one directory anew."""
        blobs = {
            name: entry.id
            for name, entry in place.fact_entries.items()
            if not name.startswith(SUBTREE_PREFIX)
        }
        if gone or is_emptied:
            known = blobs.get(DIRECTORY_BLOB)
            content = b"" if known is None else self._objects.read(b"blob", known)
            blobs[DIRECTORY_BLOB] = self._put_blob(leave_out(content, gone, PURGED, has_entry=not is_emptied))
        self._veil(place, gone, blobs)
        entries = [TreeEntry(name, MODE_FILE, blob) for name, blob in blobs.items()]
        entries += [
            TreeEntry(SUBTREE_PREFIX + name, MODE_TREE, made.facts)
            for name, made in below.items()
            if made.facts is not None
        ]
        return self._put_tree(entries, place.facts)

    def _veil(self, place: _Place, gone: set[bytes], blobs: dict[bytes, bytes]) -> None:
        """Replace the texts of rules that are purged."""
        purged = self._tombstones.blobs
        for name in (IGNORE_BLOB, EXCLUDE_BLOB):
            if blobs.get(name) in purged:
                blobs[name] = self._put_blob(ANYTHING)
        if GIT_IGNORE in gone and IGNORE_BLOB not in blobs:
            blobs[IGNORE_BLOB] = self._put_blob(ANYTHING)
        if purged and RULES_BLOB in blobs:
            content = self._objects.read(b"blob", blobs[RULES_BLOB])
            veiled = _veil_rules(decode_rules(content, blobs[RULES_BLOB].hex()), self._tombstones)
            blobs[RULES_BLOB] = self._put_blob(encode_rules(veiled))
        for name in (DIRECTORY_BLOB, RULES_BLOB):
            if blobs.get(name) in purged:
                raise InvalidInput(
                    f"{blobs[name].hex()} is part of how the store works, and no file's content"
                )

    def _put_blob(self, content: bytes) -> bytes:
        return self._objects.put(self._pack, b"blob", content)

    def _put_tree(self, entries: list[TreeEntry], before: bytes | None) -> bytes | None:
        return self._objects.put(self._pack, b"tree", encode_tree(entries), before) if entries else None


def _veil_rules(rules: RootRules, tombstones: Tombstones) -> RootRules:
    def veil(text: str) -> str:
        return to_text(ANYTHING) if blob_id(from_text(text)) in tombstones.blobs else text

    return RootRules(
        own_text=veil(rules.own_text),
        global_text=veil(rules.global_text),
        exclude_text=None if rules.exclude_text is None else veil(rules.exclude_text),
        around=[(name, veil(text)) for name, text in rules.around],
        heavy_dirs=rules.heavy_dirs,
        max_file_size=rules.max_file_size,
    )
