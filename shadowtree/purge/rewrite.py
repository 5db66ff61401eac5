"""Rewrite recorded trees and their facts without what is purged, from its place up to the root.

              tree            facts                       tree          facts
    src/      key.pem 1f…     mode 600 key.pem    ──▶     a.py 77…      skipped key.pem/purged
              a.py    77…

A removed name is listed as skipped in the facts, so it is unknown, not absent (invariant 7). Facts also hold
the texts of rules. A purged text becomes a rule that leaves out everything, so whatever the tree does not
hold is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import PURGED, ROOT, RelPath, Tombstones, join
from shadowtree.capture.directories import GIT_IGNORE
from shadowtree.capture.facts import (
    ANYTHING,
    DIRECTORY_BLOB,
    EXCLUDE_BLOB,
    IGNORE_BLOB,
    RULES_BLOB,
    SUBTREE_PREFIX,
    decode_rules,
    encode_rules,
    leave_out,
)
from shadowtree.store.git_format import MODE_FILE, MODE_TREE, TREE_MODE, TreeEntry, encode_tree
from shadowtree.store.objects import Objects
from shadowtree.store.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.store.packs.pack_writer import ObjectSink

Hit = tuple[RelPath, bytes]
"""A removed path, with the id of its content; empty for a directory without files."""
_Key = tuple[RelPath | None, bytes | None, bytes | None]
"""What determines a rewritten directory: tree, facts, and its path if a path in it is purged."""


@frozen
class Erased:
    """A directory without what is purged."""

    tree: bytes | None
    """None if no file is left in it."""
    facts: bytes | None
    hits: frozenset[Hit]
    """What was removed, relative to the directory."""


class _Directory:
    """A directory of a recorded tree, and which parts of it are purged."""

    def __init__(
        self, path: RelPath, tree: bytes | None, facts: bytes | None, objects: Objects, purged: Tombstones
    ) -> None:
        self.path, self.tree, self.facts = path, tree, facts
        self.entries = {} if tree is None else {entry.name: entry for entry in objects.read_tree(tree)}
        self.fact_entries = {} if facts is None else {entry.name: entry for entry in objects.read_tree(facts)}
        trees = {name: entry.id for name, entry in self.entries.items() if entry.mode == MODE_TREE}
        facts_of = {
            name.removeprefix(SUBTREE_PREFIX): entry.id
            for name, entry in self.fact_entries.items()
            if name.startswith(SUBTREE_PREFIX)
        }
        whole = {name for name in self.entries.keys() | facts_of.keys() if join(path, name) in purged.paths}
        names = (trees.keys() | facts_of.keys()) - whole
        self.entered = {name: (trees.get(name), facts_of.get(name)) for name in names}
        """The directories in it that are not removed as a whole, with their trees and facts."""
        files = self.entries.keys() - trees.keys()
        self.gone = whole | {name for name in files if self.entries[name].id in purged.blobs}
        """The names that are removed."""


class Eraser:
    """Rewrites trees and facts into a pack. What several trees share is rewritten once."""

    def __init__(
        self, objects: Objects, pack: ObjectSink, tombstones: Tombstones, reason: str = PURGED
    ) -> None:
        self._reason = reason
        self._objects = objects
        self._pack = pack
        self._tombstones = tombstones
        self._done: dict[_Key, Erased] = {}

    def erase(self, tree: bytes, facts: bytes) -> Erased:
        """Return a recorded tree and its facts without what is purged."""
        order: list[_Directory] = []
        waiting: list[tuple[RelPath, bytes | None, bytes | None]] = [(ROOT, tree, facts)]
        while waiting:
            found = waiting.pop()
            if self._find_done(*found) is None:
                directory = _Directory(*found, self._objects, self._tombstones)
                order.append(directory)
                waiting += [(join(found[0], name), *ids) for name, ids in directory.entered.items()]
        # Whatever is below a directory comes after it in the list.
        for each in reversed(order):
            self._done[self._key(each.path, each.tree, each.facts)] = self._erase_in(each)
        erased = self._find_done(ROOT, tree, facts)
        assert erased is not None
        return erased

    def _key(self, path: RelPath, tree: bytes | None, facts: bytes | None) -> _Key:
        start = path + b"/" if path else b""
        is_placed = any(purged.startswith(start) for purged in self._tombstones.paths)
        return path if is_placed else None, tree, facts

    def _find_done(self, path: RelPath, tree: bytes | None, facts: bytes | None) -> Erased | None:
        if not self._tombstones.is_near(path):
            return Erased(tree, facts, frozenset())
        return self._done.get(self._key(path, tree, facts))

    def _erase_in(self, directory: _Directory) -> Erased:
        """Rewrite one directory, after those below it."""
        gone = directory.gone
        hits = {hit for name in gone for hit in self._list_hits(directory, name)}
        entries = [
            entry for name, entry in directory.entries.items() if name not in gone and entry.mode != MODE_TREE
        ]
        below: dict[bytes, Erased] = {}
        for name, ids in directory.entered.items():
            made = self._find_done(join(directory.path, name), *ids)
            assert made is not None, "what is below a directory is made before it"
            below[name] = made
            hits |= {(join(RelPath(name), path), blob) for path, blob in made.hits}
            if made.tree:
                entries.append(TreeEntry(name, MODE_TREE, made.tree))
        tree = self._put_tree(entries, directory.tree)
        if tree is None and directory.path == ROOT:
            tree = self._objects.put(self._pack, b"tree", b"")
        is_emptied = tree is None and directory.tree is not None
        facts = self._erase_facts(directory, below, is_emptied=is_emptied)
        return Erased(tree, facts, frozenset(hits))

    def _list_hits(self, directory: _Directory, name: bytes) -> Iterator[Hit]:
        """List the files and links at a name and below it, with their contents."""
        entry = directory.entries.get(name)
        if entry is None or entry.mode != MODE_TREE:
            yield RelPath(name), b"" if entry is None else entry.id
            return
        # The same directory may occur at two paths.
        for path, _, rows in Walker(self._objects, lambda _: True).walk(entry.id, RelPath(name)):
            yield from [(join(path, sub), id) for mode, sub, id in rows if mode != TREE_MODE]

    def _erase_facts(
        self, directory: _Directory, below: dict[bytes, Erased], *, is_emptied: bool
    ) -> bytes | None:
        """Rewrite the facts of one directory."""
        blobs = {
            name: entry.id
            for name, entry in directory.fact_entries.items()
            if not name.startswith(SUBTREE_PREFIX)
        }
        gone = directory.gone
        if gone or is_emptied:
            known = blobs.get(DIRECTORY_BLOB)
            content = b"" if known is None else self._objects.read(b"blob", known)
            blobs[DIRECTORY_BLOB] = self._put_blob(
                leave_out(content, gone, self._reason, has_entry=not is_emptied)
            )
        self._replace_rules(gone, blobs)
        entries = [TreeEntry(name, MODE_FILE, blob) for name, blob in blobs.items()]
        entries += [
            TreeEntry(SUBTREE_PREFIX + name, MODE_TREE, made.facts)
            for name, made in below.items()
            if made.facts is not None
        ]
        return self._put_tree(entries, directory.facts)

    def _replace_rules(self, gone: set[bytes], blobs: dict[bytes, bytes]) -> None:
        """Replace purged texts of rules with a rule that leaves out everything."""
        purged = self._tombstones.blobs
        for name in (IGNORE_BLOB, EXCLUDE_BLOB):
            if blobs.get(name) in purged:
                blobs[name] = self._put_blob(ANYTHING)
        if GIT_IGNORE in gone and IGNORE_BLOB not in blobs:
            blobs[IGNORE_BLOB] = self._put_blob(ANYTHING)
        if purged and RULES_BLOB in blobs:
            content = self._objects.read(b"blob", blobs[RULES_BLOB])
            rules = decode_rules(content, blobs[RULES_BLOB].hex()).veil(purged)
            blobs[RULES_BLOB] = self._put_blob(encode_rules(rules))
        for name in (DIRECTORY_BLOB, RULES_BLOB):
            if blobs.get(name) in purged:
                why = "is used by the store itself and is not the content of a file"
                raise InvalidInput(f"{blobs[name].hex()} {why}")

    def _put_blob(self, content: bytes) -> bytes:
        return self._objects.put(self._pack, b"blob", content)

    def _put_tree(self, entries: list[TreeEntry], before: bytes | None) -> bytes | None:
        return self._objects.put(self._pack, b"tree", encode_tree(entries), before) if entries else None
