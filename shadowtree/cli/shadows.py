"""Which shadow a command means: the one of the wrapped directory at or above the current one."""

from __future__ import annotations

import os

import shadowtree
from shadowtree.cli.command import Shared


def open_to_read(shared: Shared) -> shadowtree.Shadow:
    """Open the shadow that the current directory is in; raise `NotWrapped` if there is none."""
    here = current_directory()
    worktree = shadowtree.find_worktree(here, store=shared.store)
    if worktree is None:
        raise shadowtree.NotWrapped(here)
    return open_shadow(shared, worktree)


def open_to_record(shared: Shared) -> shadowtree.Shadow:
    """Open the shadow that the current directory is in; recording wraps this one if there is none."""
    here = current_directory()
    return open_shadow(shared, shadowtree.find_worktree(here, store=shared.store) or here)


def open_shadow(shared: Shared, worktree: str) -> shadowtree.Shadow:
    """Open the shadow of exactly this directory."""
    return shadowtree.Shadow(
        worktree,
        store=shared.store,
        session=shared.session,
        settings=shared.settings,
        allow_broad=shared.allow_broad,
    )


def current_directory() -> str:
    """Name the current directory, which may have been deleted under us."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise shadowtree.WorktreeFailed(".", "the current directory no longer exists") from error
