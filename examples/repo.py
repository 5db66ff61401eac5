"""The store of a directory as a git repository, read with dulwich: what was said, and what it did to files.

    python examples/repo.py DIRECTORY [PATH]

Without a path it lists the messages of the session that recorded last, each with the files that it changed.
With one it prints that file as each message left it. `shadow.repo` is a `dulwich.repo.Repo`, so that whatever
works with dulwich works here; nothing done through it touches the directory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from dulwich import porcelain
from dulwich.diff_tree import tree_changes
from dulwich.object_store import tree_lookup_path
from dulwich.objects import Blob, Commit
from dulwich.repo import Repo

from shadowtree import Shadow, ShadowError


def list_commits(repo: Repo) -> Iterator[Commit]:
    """Give the commits of the session that recorded last, newest first; a message is one."""
    return (entry.commit for entry in repo.get_walker())


def list_changes(repo: Repo, commit: Commit) -> Iterator[str]:
    """Name what a message changed: the trees of two commits are compared."""
    before = repo[commit.parents[0]] if commit.parents else None
    for change in tree_changes(
        repo.object_store, before.tree if isinstance(before, Commit) else None, commit.tree
    ):
        entry = change.new or change.old
        assert entry is not None
        yield f"{change.type} {(entry.path or b'').decode(errors='replace')}"


def read_file(repo: Repo, commit: Commit, path: str) -> str | None:
    """Read a file as a message left it; None if there was none."""
    try:
        _, id = tree_lookup_path(repo.object_store.__getitem__, commit.tree, path.encode())
    except KeyError:
        return None
    found = repo[id]
    return found.data.decode(errors="replace") if isinstance(found, Blob) else None


def main() -> int:
    """Print what was recorded of a directory."""
    parser = argparse.ArgumentParser(description="Read the store of a directory with dulwich.")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="what was recorded")
    parser.add_argument("path", nargs="?", metavar="PATH", help="a file, to be shown after each message")
    parser.add_argument("--log", action="store_true", help="print what `git log` would")
    arguments = parser.parse_args()
    try:
        with Shadow(arguments.directory) as shadow, shadow.repo as repo:
            if arguments.log:
                porcelain.log(repo, outstream=sys.stdout)
                return 0
            for commit in list_commits(repo):
                print(f"{commit.id[:8].decode()} {commit.message.decode(errors='replace').splitlines()[0]}")
                if arguments.path is None:
                    print("".join(f"  {line}\n" for line in list_changes(repo, commit)), end="")
                else:
                    print(read_file(repo, commit, arguments.path) or "  (not there)\n", end="")
    except ShadowError as error:
        print(f"repo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
