"""What recorded trees need, and what of it is not stored: each tree is read once, however many share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import RelPath
from shadowtree.store.objects.git_format import (
    MODE_TREE,
    Keeper,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
    parse_keeper,
)
from shadowtree.store.objects.read import Objects

_NOTHING: frozenset[bytes] = frozenset()


class Reach:
    """Walks recorded trees and remembers what is lost: missing, or not what its name says.

    Trees are read and hashed, since they have to be walked. Of a blob it is asked whether an index names it,
    and whether it is one of those that are known to be damaged.
    """

    def __init__(self, objects: Objects, damaged: Iterable[bytes] = ()) -> None:
        self._objects = objects
        self._damaged = frozenset(damaged)
        self._whole: set[bytes] = set()
        """Trees and blobs of which nothing is lost."""
        self._hurt: dict[bytes, frozenset[bytes]] = {}
        """What is lost of a tree, for those of which something is."""
        self.lost: dict[bytes, str] = {}
        """Every object that is needed and not stored, and why it is not."""

    def lost_of_tree(self, tree: bytes) -> frozenset[bytes]:
        """Give what is lost of a tree: itself, or what is below it."""
        # Depth first without recursion: a tree may be as deep as a path is long.
        pending = [(tree, False)]
        while pending:
            current, is_done = pending.pop()
            if current in self._whole or current in self._hurt:
                continue
            entries = self._read(current)
            if entries is None:
                self._hurt[current] = frozenset([current])
                continue
            below = [entry.id for entry in entries if entry.mode == MODE_TREE]
            unknown = [id for id in below if id not in self._whole and id not in self._hurt]
            if unknown and not is_done:
                pending.append((current, True))
                pending += [(id, False) for id in unknown]
                continue
            self._settle(current, entries)
        return self._hurt.get(tree, _NOTHING)

    def _settle(self, tree: bytes, entries: list[TreeEntry]) -> None:
        lost: set[bytes] = set()
        for entry in entries:
            if entry.mode == MODE_TREE:
                lost |= self._hurt.get(entry.id, _NOTHING)
            elif self.is_lost(entry.id):
                lost.add(entry.id)
        if lost:
            self._hurt[tree] = frozenset(lost)
        else:
            self._whole.add(tree)

    def is_lost(self, blob: bytes) -> bool:
        """Tell whether a blob is not stored, as far as indexes tell."""
        if blob in self._whole:
            return False
        if blob in self.lost:
            return True
        if blob in self._damaged:
            # There may be another copy that is whole.
            if not self._objects.prove(blob):
                self.lost[blob] = f"blob {blob.hex()} is damaged"
                return True
        elif not self._objects.is_listed(blob) and not self._objects.prove(blob):
            self.lost[blob] = f"blob {blob.hex()} is missing"
            return True
        self._whole.add(blob)
        return False

    def _read(self, tree: bytes) -> list[TreeEntry] | None:
        try:
            return self._objects.read_tree(tree)
        except StoreDamaged as error:
            self.lost[tree] = error.what
            return None

    def lost_of_keeper(self, keeper: bytes, tree: bytes, facts: bytes) -> frozenset[bytes]:
        """Give what is lost of a keeper: the commit, its tree, and what it keeps beside tree and facts."""
        read = self.read_keeper(keeper)
        if read is None:
            return frozenset([keeper])
        entries = self._read(read.tree)
        if entries is None:
            return frozenset([read.tree])
        named = {entry.name: entry.id for entry in entries}
        if (named.get(b"files"), named.get(b"facts")) != (tree, facts):
            self.lost[keeper] = f"commit {keeper.hex()} keeps another tree"
            return frozenset([keeper])
        return self.lost_of_tree(named[b"also"]) if b"also" in named else _NOTHING

    def read_keeper(self, keeper: bytes) -> Keeper | None:
        """Read a keeper; None: it is lost."""
        try:
            content = self._objects.read(b"commit", keeper)
        except StoreDamaged as error:
            self.lost[keeper] = error.what
            return None
        try:
            return parse_keeper(content)
        except StoreDamaged:
            self.lost[keeper] = f"commit {keeper.hex()} keeps no tree"
            return None

    def paths_of(self, tree: bytes, wanted: Iterable[bytes]) -> Iterator[tuple[RelPath, bytes]]:
        """Give the paths at which a tree holds lost blobs, with their ids."""
        looked_for = frozenset(wanted)
        pending = [(b"", tree)]
        while pending:
            path, current = pending.pop()
            # Where nothing is lost, there is nothing to look for; a tree that is lost itself says nothing.
            if current not in self._hurt or current in self.lost:
                continue
            for entry in self._objects.read_tree(current):
                name = path + b"/" + entry.name if path else entry.name
                if entry.mode == MODE_TREE:
                    pending.append((name, entry.id))
                elif entry.id in looked_for:
                    yield RelPath(name), entry.id


def make_keeper(
    tree: bytes, facts: bytes, parent: bytes | None, time_s: int, wanted: bytes
) -> tuple[bytes, bytes] | None:
    """Make the commit of a keeper that is lost, and the tree of what it keeps; None: it was another one."""
    entries = [TreeEntry(b"facts", MODE_TREE, facts), TreeEntry(b"files", MODE_TREE, tree)]
    kept = encode_tree(entries)
    commit = encode_commit(object_id(b"tree", kept), parent, time_s, "tree " + tree.hex())
    return (commit, kept) if object_id(b"commit", commit) == wanted else None
