"""Which shadow a command means: the one of the wrapped directory at or above the current one.

If the daemon serves that directory, it is the daemon's, and next to nothing of the library is loaded.
Whatever a command does with it, it tells when the shadow had to finish or take back what an earlier process
was interrupted in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import shadowtree
from shadowtree.cli.command import Shared
from shadowtree.cli.output import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def open_to_read(shared: Shared) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; raise `NotWrapped` if there is none."""
    return telling(_open(shared)[1])


def open_with_root(shared: Shared) -> AbstractContextManager[tuple[str, shadowtree.Shadow]]:
    """Do the same, and name the wrapped directory too."""
    root, shadow = _open(shared)
    return _telling_with_root(root, shadow)


def open_to_record(shared: Shared) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; recording wraps this one if there is none."""
    here = current_directory()
    remote = _find_remote(shared, here)
    if remote is not None:
        return telling(remote[1])
    return open_shadow(shared, find_to_record(shared))


def open_shadow(shared: Shared, worktree: str) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow of exactly this directory, in this process."""
    return telling(_open_here(shared, worktree))


def _open(shared: Shared) -> tuple[str, shadowtree.Shadow]:
    here = current_directory()
    remote = _find_remote(shared, here)
    if remote is not None:
        return remote
    worktree = shadowtree.find_worktree(here, store=shared.store)
    if worktree is None:
        raise shadowtree.NotWrapped(here)
    return worktree, _open_here(shared, worktree)


def _open_here(shared: Shared, worktree: str) -> shadowtree.Shadow:
    return shadowtree.Shadow(
        worktree,
        store=shared.store,
        session=shared.session,
        settings=shared.settings,
        allow_broad=shared.allow_broad,
    )


def _find_remote(shared: Shared, here: str) -> tuple[str, shadowtree.Shadow] | None:
    """Find the shadow that the daemon has of this directory; it is one with the usual settings."""
    if shared.settings or shared.allow_broad or not shadowtree.MeetingPlace.is_used(os.environ):
        return None
    from shadowtree.daemon.remote import find_remote

    return find_remote(os.environ, here, store=shared.store, session=shared.session)


@contextmanager
def _telling_with_root(root: str, shadow: shadowtree.Shadow) -> Iterator[tuple[str, shadowtree.Shadow]]:
    with telling(shadow):
        yield root, shadow


@contextmanager
def telling(shadow: shadowtree.Shadow) -> Iterator[shadowtree.Shadow]:
    """Use a shadow, close it, and tell what it recovered on the way, also when something else failed."""
    try:
        with shadow:
            yield shadow
    finally:
        for sentence in shadow.recovered:
            warn(sentence)


def find_to_record(shared: Shared) -> str:
    """Name the wrapped directory that the current one is in, or this one, which recording wraps then."""
    here = current_directory()
    return shadowtree.find_worktree(here, store=shared.store) or here


def find_wrapped(shared: Shared) -> str:
    """Name the wrapped directory that the current one is in, also if its store is too damaged to say so."""
    here = current_directory()
    try:
        worktree = shadowtree.find_worktree(here, store=shared.store)
    except (shadowtree.StoreDamaged, shadowtree.StoreFailed):
        return here
    if worktree is None:
        raise shadowtree.NotWrapped(here)
    return worktree


def current_directory() -> str:
    """Name the current directory, which may have been deleted under us."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise shadowtree.WorktreeFailed(".", "the current directory no longer exists") from error


def paths_in_worktree(worktree: str, paths: Sequence[str]) -> list[str] | None:
    """Name paths relative to the worktree that were given relative to the current directory; none: None."""
    return [path_in_worktree(worktree, path) for path in paths] or None


def path_in_worktree(worktree: str, path: str) -> str:
    """Name a path relative to the worktree, as it is written if that leads into the worktree.

    What is recorded below a directory that has become a link since is meant by its name, so links inside
    the worktree are not followed; those on the way to it are.
    """
    written = os.path.normpath(os.path.join(current_directory(), path))
    real = os.path.join(os.path.realpath(os.path.dirname(written)), os.path.basename(written))
    for candidate in (written, real):
        if os.path.commonpath([worktree, candidate]) == worktree:
            return os.path.relpath(candidate, worktree)
    raise shadowtree.InvalidInput(f"{path} is outside of {worktree}")
