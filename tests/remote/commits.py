"""Commits of the tests in the repository of a store, to be pushed and fetched."""

from __future__ import annotations

from collections.abc import Mapping

from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.repo import Repo

Files = Mapping[str, bytes]
"""The content of a tree, by path."""


class Line:
    """A line of commits, each with all of its files."""

    def __init__(self, repo: Repo, tip: bytes | None = None) -> None:
        self._repo = repo
        self.tip = tip
        self.files: dict[str, bytes] = {}
        self._count = 0

    def commit(self, changes: Mapping[str, bytes | None], text: str = "a message") -> bytes:
        """Change files and commit; return the raw id."""
        for path, content in changes.items():
            if content is None:
                del self.files[path]
            else:
                self.files[path] = content
        objects: dict[bytes, Blob | Tree | Commit] = {}
        commit = Commit()
        commit.tree = _make_tree(self.files, objects)
        commit.parents = [ObjectID(self.tip.hex().encode())] if self.tip else []
        commit.author = commit.committer = b"somebody <somebody@example.org>"
        self._count += 1
        commit.author_time = commit.commit_time = 1_700_000_000 + self._count
        commit.author_timezone = commit.commit_timezone = 0
        commit.message = text.encode()
        objects[commit.id] = commit
        self._repo.object_store.add_objects([(each, None) for each in objects.values()])
        self.tip = bytes.fromhex(commit.id.decode())
        return self.tip


def _make_tree(files: Files, objects: dict[bytes, Blob | Tree | Commit]) -> ObjectID:
    tree = Tree()
    below: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = content
        else:
            blob = Blob.from_string(content)
            objects[blob.id] = blob
            tree.add(name.encode(), 0o100644, blob.id)
    for name, inner in below.items():
        tree.add(name.encode(), 0o040000, _make_tree(inner, objects))
    objects[tree.id] = tree
    return tree.id
