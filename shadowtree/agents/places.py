"""Where a hook records: the nearest wrapped directory, else the git repository, else the project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator


def list_candidates(project: str) -> Iterator[str]:
    """Yield the directories to wrap, best first, for a project in which none is wrapped yet."""
    directory = project
    while not os.path.lexists(os.path.join(directory, ".git")):
        above = os.path.dirname(directory)
        if above == directory:
            break
        directory = above
    else:
        yield directory
        if directory == project:
            return
    yield project


def divide_paths(paths: Iterable[str], cwd: str, worktree: str) -> tuple[list[str], list[str]]:
    """Divide the paths that a tool writes: those inside the worktree, made relative, and those outside."""
    inside, outside = [], []
    for path in paths:
        whole = os.path.normpath(os.path.join(cwd or worktree, path))
        if not _is_inside(whole, worktree):
            # A link may lead into the worktree.
            whole = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        if _is_inside(whole, worktree):
            inside.append(os.path.relpath(whole, worktree))
        else:
            outside.append(whole)
    return inside, outside


def _is_inside(path: str, worktree: str) -> bool:
    return path.startswith(worktree.rstrip("/") + "/")
