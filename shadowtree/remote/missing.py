"""What a push has to send: the objects that the other side does not have, each with what it is like.

The trees of a session stand in the order in which they were recorded, and each is much like the one before:

    kept/…/04/tree      src ── a.py (1)      the other side has it
    kept/…/05/tree      src ── a.py (2)      root, src and a.py (2) are new, each like what was at its path
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from shadowtree.base.frozen import frozen
from shadowtree.conversation.encode import SessionCommits, list_needed
from shadowtree.store.git_format import MODE_FILE, MODE_TREE, TreeEntry
from shadowtree.store.objects import Objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row

_KEPT = b"kept"


@frozen
class Missing:
    """An object that has to be sent."""

    id: bytes
    base: bytes | None = None
    """An object of its kind that the other side has by then, and that it is likely to be similar to."""


@frozen
class PushPlan:
    """What to do about the refs that a remote has."""

    updates: Mapping[bytes, bytes | None]
    """What each ref is to name, by its raw id; None: it is to go."""
    missing: Callable[[], Iterable[Missing]] | None = None
    """Lists what has to be sent first; None: find out what that is."""


@frozen
class SentSession:
    """One session that is sent."""

    commits: SessionCommits
    trees: list[Row]
    """The trees that it recorded, in order."""
    known_rows: bytes | None
    """The tree with its rows that the other side has, if it is here too."""
    known_commits: Collection[bytes]
    """Commits that the other side has."""


def list_missing(objects: Objects, sessions: Iterable[SentSession]) -> Iterator[Missing]:
    """List what the other side lacks of some sessions, bases before what is like them."""
    lister = _Lister(objects)
    for session in sessions:
        yield from lister.list_session(session)


class _Lister:
    """Lists objects, each once."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._seen: set[bytes] = set()
        """What the other side has, or gets."""

    def list_session(self, session: SentSession) -> Iterator[Missing]:
        """List what is missing of one session."""
        commits = session.commits
        known = {} if session.known_rows is None else self._read(session.known_rows)
        rows = self._read(commits.tree)
        kept = {
            name: entries[_KEPT].id for name, entries in (("old", known), ("new", rows)) if _KEPT in entries
        }
        # The trees first: what was recorded last is like what was recorded before.
        if "new" in kept:
            places = self._list_new_places(kept["new"], kept.get("old"))
            yield from self._list_trees(session.trees, set(places))
        yield from self._list_pair(commits.tree, session.known_rows)
        for commit in commits.made:
            if commit in session.known_commits or not self._is_new(commit):
                break
            yield Missing(commit)
        if self._is_new(commits.rows):
            yield Missing(commits.rows)

    def _list_new_places(self, new: bytes, old: bytes | None) -> Iterator[int]:
        """Give the numbers of recorded trees that the other side does not have."""
        before = {} if old is None else self._read(old)
        for name, folder in self._read(new).items():
            if name in before and before[name].id == folder.id:
                continue
            inside = self._read(before[name].id) if name in before else {}
            for middle, group in self._read(folder.id).items():
                if middle in inside and inside[middle].id == group.id:
                    continue
                known = self._read(inside[middle].id) if middle in inside else {}
                for last, entry in self._read(group.id).items():
                    if last not in known or known[last].id != entry.id:
                        yield int(name, 16) << 12 | int(middle, 16) << 6 | int(last, 16)

    def _list_trees(self, trees: Iterable[Row], new: Collection[int]) -> Iterator[Missing]:
        before: dict[str, bytes] = {}
        for row in trees:
            needed = list_needed(row)
            if row["number"] in new:
                for name, mode, id in needed:
                    if mode == MODE_FILE:
                        yield from self._list_blob(id, None)
                    else:
                        yield from self._list_pair(id, before.get(name))
            before.update((name, id) for name, mode, id in needed if mode == MODE_TREE)

    def _list_pair(self, new: bytes, old: bytes | None) -> Iterator[Missing]:
        """List a tree and what is below it, unless the other side has it; `old` is a tree that it has."""
        waiting = [(new, old)]
        while waiting:
            tree, base = waiting.pop()
            if not self._is_new(tree) or tree == base:
                continue
            yield Missing(tree, base)
            known = {} if base is None else self._read(base)
            # What was renamed is there too.
            self._seen.update(entry.id for entry in known.values())
            for name, entry in self._read(tree).items():
                before = known.get(name)
                like = before.id if before is not None and before.mode == entry.mode else None
                if entry.mode == MODE_TREE:
                    waiting.append((entry.id, like))
                else:
                    yield from self._list_blob(entry.id, like)

    def _list_blob(self, id: bytes, base: bytes | None) -> Iterator[Missing]:
        if self._is_new(id) and id != base:
            yield Missing(id, base)

    def _is_new(self, id: bytes) -> bool:
        if id in self._seen:
            return False
        self._seen.add(id)
        return True

    def _read(self, tree: bytes) -> dict[bytes, TreeEntry]:
        return {entry.name: entry for entry in self._objects.read_tree(tree)}
