"""Leave paths out of the rows of a session that are pushed. Nothing recorded here is changed.

A path that is left out becomes unknown, like a purged one; it never counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shadowtree.base.paths import ROOT, RelPath, Tombstones, is_among, join
from shadowtree.capture.rules.gitignore import Stack, parse
from shadowtree.purge.rewrite import Eraser
from shadowtree.store.git_format import TREE_MODE
from shadowtree.store.objects import Objects
from shadowtree.store.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.store.packs.pack_writer import ObjectSink

    Rows = dict[str, list[dict[str, Any]]]  # Any: what columns hold

EXCLUDED = "not pushed"
"""Why nothing is known of a path."""
_UNKNOWN = -1


def exclude_paths(rows: Rows, patterns: Sequence[str], objects: Objects, pack: ObjectSink) -> Rows:
    """Return rows without the paths that some patterns match, as in a `.gitignore`."""
    live = [row for row in rows["trees"] if row["forgotten"] is None]
    changed = {RelPath(row["path"]) for row in rows["changes"]}
    paths = _Matcher(objects, patterns).find_all({row["tree"] for row in live}, changed)
    if not paths:
        return rows
    eraser = Eraser(objects, pack, Tombstones(frozenset(paths)), EXCLUDED)
    # Contents kept next to a tree are those of files that acts found uncovered, or merged.
    hidden = {
        row[column]
        for row in rows["changes"]
        if is_among(RelPath(row["path"]), paths)
        for column in ("old_blob", "new_blob")
    }
    trees = []
    for row in rows["trees"]:
        if row["forgotten"] is None:
            erased = eraser.erase(row["tree"], row["facts"])
            also = [row["also"][at : at + 20] for at in range(0, len(row["also"]), 20)]
            kept = b"".join(blob for blob in also if blob not in hidden)
            files = row["files"] - len(erased.hits)
            row = {**row, "tree": erased.tree, "facts": erased.facts, "also": kept, "files": max(0, files)}
        trees.append(row)
    veiled = [is_among(RelPath(row["path"]), paths) for row in rows["changes"]]
    changes = [
        _veil(row) if is_veiled else row for row, is_veiled in zip(rows["changes"], veiled, strict=True)
    ]
    touched = {row["event"] for row, is_veiled in zip(rows["changes"], veiled, strict=True) if is_veiled}
    events = [{**row, "whole": None} if row["number"] in touched else row for row in rows["events"]]
    return {**rows, "trees": trees, "changes": changes, "events": events}


def list_included(trees: Iterable[bytes], patterns: Sequence[str], objects: Objects) -> set[RelPath]:
    """List the files in some trees, except those that patterns match."""
    waiting = [(ROOT, tree) for tree in trees]
    matched = _Matcher(objects, patterns).find_all([tree for _, tree in waiting], ())
    walker, seen, found = Walker(objects), set(waiting), set()
    while waiting:
        path, tree = waiting.pop()
        for mode, name, id in walker.read(tree):
            below = join(path, name)
            if below in matched:
                continue
            if mode != TREE_MODE:
                found.add(below)
            elif (below, id) not in seen:
                seen.add((below, id))
                waiting.append((below, id))
    return found


def _veil(row: dict[str, Any]) -> dict[str, Any]:  # Any: what columns hold
    """Return the row of a change that only shows that there was one."""
    sides = [side for side in ("old", "new") if row[f"{side}_mode"] is not None]
    veiled = {f"{side}_mode": _UNKNOWN for side in sides} | {f"{side}_blob": None for side in sides}
    reason = "\0".join([EXCLUDED] * len(sides)).encode()
    return {**row, **veiled, "reason": reason}


class _Matcher:
    """Finds the paths that patterns match; what several trees share is read once."""

    def __init__(self, objects: Objects, patterns: Sequence[str]) -> None:
        self._walker = Walker(objects)
        self._rules = Stack.root(parse("\n".join(patterns).encode("utf-8", "surrogateescape")))
        self._seen: set[tuple[RelPath, bytes]] = set()

    def find_all(self, trees: Iterable[bytes], others: Iterable[RelPath]) -> set[RelPath]:
        """Return the matching files and directories in some trees, and the matching paths in `others`."""
        found: set[RelPath] = set()
        waiting = [(ROOT, tree, self._rules) for tree in trees]
        while waiting:
            path, tree, rules = waiting.pop()
            if (path, tree) in self._seen:
                continue
            self._seen.add((path, tree))
            for mode, name, id in self._walker.read(tree):
                is_directory = mode == TREE_MODE
                if rules.verdict(name, is_directory):
                    found.add(join(path, name))
                elif is_directory:
                    waiting.append((join(path, name), id, rules.enter(name)))
        return found | {path for path in others if self._matches(path)}

    def _matches(self, path: RelPath) -> bool:
        rules = self._rules
        *above, last = path.split(b"/")
        for name in above:
            if rules.verdict(name, True):
                return True
            rules = rules.enter(name)
        return bool(rules.verdict(last, False))
