"""Lost objects made again from what is known otherwise; each time the hash proves that it is the same.

before ──changes──▶ after        a lost tree is the one beside it, with the changes in between put in or out
path in a recorded tree ──▶ file in the worktree, be it covered today or not
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shadowtree.audit import Audit
from shadowtree.errors import StoreDamaged
from shadowtree.events import Event
from shadowtree.gitformat import (
    EMPTY_TREE,
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    MODE_TREE,
    TreeEntry,
    decode_tree,
    encode_tree,
    object_id,
    parse_keeper,
)
from shadowtree.objects import Objects
from shadowtree.paths import RelPath
from shadowtree.reach import make_keeper
from shadowtree.state import PathState
from shadowtree.worktree import Cursor, TooLong, Unreadable, Vanished, read_file, read_link

_LARGEST = 64 << 20
"""A file that has more bytes is not looked at: it is read whole."""
_DEEPEST = 200
"""A change that is deeper down is not put into a tree."""

Edits = dict[bytes, "PathState | Edits | None"]
"""What comes by each name of a directory: a file, a directory with changes of its own, or nothing."""


class TreeMaker:
    """Makes trees from others that are stored, or were made before."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.made: dict[bytes, bytes] = {}
        """The content of every tree that was made, by its id."""

    def edit(self, tree: bytes, edits: Edits) -> bytes:
        """Give the id of a tree with some changes in it; raise StoreDamaged if what is needed is lost too."""
        entries = {entry.name: entry for entry in self._read(tree)}
        for name, edit in edits.items():
            known = entries.pop(name, None)
            entry = self._edit_entry(name, known, edit)
            if entry is not None:
                entries[name] = entry
        content = encode_tree(entries.values())
        id = object_id(b"tree", content)
        self.made[id] = content
        return id

    def _edit_entry(
        self, name: bytes, known: TreeEntry | None, edit: PathState | Edits | None
    ) -> TreeEntry | None:
        if edit is None:
            return None
        if isinstance(edit, PathState):
            return TreeEntry(name, _tree_mode(edit), edit.blob)
        below = known.id if known is not None and known.mode == MODE_TREE else EMPTY_TREE
        tree = self.edit(below, edit)
        return None if tree == EMPTY_TREE else TreeEntry(name, MODE_TREE, tree)

    def _read(self, tree: bytes) -> list[TreeEntry]:
        if tree in self.made:
            return decode_tree(self.made[tree], tree.hex())
        return self._objects.read_tree(tree)


def remake_trees(
    audit: Audit, objects: Objects, hurt: Iterable[int], lost: Iterable[bytes]
) -> dict[bytes, bytes]:
    """Make the lost trees of hurt records again, as far as records beside them are whole; give them by id."""
    edits = _collect_edits(audit, frozenset(hurt))
    maker, wanted = TreeMaker(objects), set(lost)
    proved: dict[bytes, bytes] = {}
    is_news = True
    while is_news:
        is_news = False
        for base, target, changes in edits:
            try:
                root = maker.edit(base, changes)
            except StoreDamaged:
                continue
            # If the root is right, so is all below it; or else only what is known to be lost.
            found = (
                maker.made if root == target else {id: maker.made[id] for id in wanted & maker.made.keys()}
            )
            is_news = is_news or not found.keys() <= proved.keys()
            proved |= found
    return {id: content for id, content in proved.items() if not objects.prove(id)}


def _collect_edits(audit: Audit, hurt: frozenset[int]) -> list[tuple[bytes, bytes, Edits]]:
    """List from which tree, by which changes, another one comes, for each that is hurt."""
    pairs = {number: pair for number, event in audit.events.items() if (pair := _trees_of(audit, event))}
    wanted = {number for number, (old, new) in pairs.items() if old in hurt or new in hurt}
    forward: dict[int, Edits] = {number: {} for number in wanted}
    back: dict[int, Edits] = {number: {} for number in wanted}
    for number, change in audit.changes():
        if number in wanted and change.is_known and change.path.count(b"/") < _DEEPEST:
            _put(forward[number], change.path, change.new)
            _put(back[number], change.path, change.old)
    found: list[tuple[bytes, bytes, Edits]] = []
    for number in wanted:
        old, new = (audit.trees[record].tree for record in pairs[number])
        found += [(old, new, forward[number]), (new, old, back[number])]
    return found


def _trees_of(audit: Audit, event: Event) -> tuple[int, int] | None:
    if event.before in audit.trees and event.after in audit.trees:
        assert event.before is not None
        assert event.after is not None
        return event.before, event.after
    return None


def _put(edits: Edits, path: bytes, state: object) -> None:
    """Put the state of one path into what is to be changed; of directories trees say nothing."""
    if state is not None and (not isinstance(state, PathState) or state.is_directory):
        return
    *above, name = path.split(b"/")
    for part in above:
        below = edits.get(part)
        if not isinstance(below, dict):
            # What was a file here is a directory now.
            below = edits[part] = {}
        edits = below
    if not isinstance(edits.get(name), dict):
        edits[name] = state


def _tree_mode(state: PathState) -> int:
    if state.is_link:
        return MODE_LINK
    return MODE_EXEC if state.mode & 0o100 else MODE_FILE


Made = list[tuple[bytes, bytes]]
"""The kind and the content of objects."""


def remake_keepers(audit: Audit) -> dict[bytes, Made]:
    """Make each keeper, with the tree that it names, from what the timeline says; give them by its id."""
    made: dict[bytes, Made] = {}
    last: bytes | None = None
    last_live: bytes | None = None
    for record in audit.trees.values():
        # A sweep lets the chain go by what is live alone.
        for parent in {last, last_live}:
            found = make_keeper(record.tree, record.facts, parent, record.time_s, record.keeper)
            if found is not None:
                made[record.keeper] = list(zip((b"commit", b"tree"), found, strict=True))
        last = record.keeper
        last_live = record.keeper if record.is_live else last_live
    return made


def find_chain(objects: Objects, audit: Audit, made: Mapping[bytes, Made]) -> set[bytes]:
    """Name the keepers of live trees, and those that stand in the chain before them."""
    chain: set[bytes] = set()
    for record in audit.trees.values():
        keeper = record.keeper if record.is_live else None
        while keeper is not None and keeper not in chain:
            chain.add(keeper)
            keeper = _find_parent(objects, keeper, made)
    return chain


def _find_parent(objects: Objects, keeper: bytes, made: Mapping[bytes, Made]) -> bytes | None:
    try:
        content = made[keeper][0][1] if keeper in made else objects.read(b"commit", keeper)
        return parse_keeper(content).parent
    except StoreDamaged:
        return None


def find_in_worktree(worktree: str, paths: Mapping[RelPath, set[bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Read the files at some paths, and give those that have an id that is wanted there, by it."""
    with Cursor(worktree) as cursor:
        for path, wanted in sorted(paths.items()):
            content = _read_path(cursor, path)
            if content is not None and object_id(b"blob", content) in wanted:
                yield object_id(b"blob", content), content


def _read_path(cursor: Cursor, path: RelPath) -> bytes | None:
    above, _, name = path.rpartition(b"/")
    try:
        return read_file(cursor.enter(RelPath(above)), name, _LARGEST)[1]
    except (Vanished, Unreadable, TooLong):
        pass
    try:
        return read_link(cursor.enter(RelPath(above)), name)[1]
    except (Vanished, Unreadable):
        return None
