"""Which shadow a command means: the one of the wrapped directory at or above the current one.

If the daemon serves that directory, it is the daemon's, and next to nothing of the library is loaded. Every
way in warns when the shadow had to finish or take back what an earlier process was interrupted in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import shadowtree
from shadowtree.base.errors import InvalidInput, NotWrapped, StoreDamaged, StoreFailed, WorktreeFailed
from shadowtree.base.frozen import frozen
from shadowtree.cli.output import choose_format, warn
from shadowtree.daemon.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@frozen
class Shared:
    """The values of the options that every command takes."""

    store: str | None
    session: str
    settings: Mapping[str, str]
    allow_broad: bool


def read_shared(given: Mapping[str, object]) -> Shared:
    """Read the shared options that were given, by name, and put them into force.

    `-C` changes the directory of the process, so that everything later, the library included, is as if
    started there; `--json` decides how the result is written.
    """
    choose_format(as_json=bool(given.get("as_json")))
    if given.get("start") is not None:
        _change_directory(str(given["start"]))
    store, settings = given.get("store"), given.get("settings", ())
    assert isinstance(settings, tuple)
    return Shared(
        store=None if store is None else str(store),
        session=str(given.get("session") or os.environ.get("SHADOWTREE_SESSION") or "default"),
        settings=dict(map(_read_setting, settings)),
        allow_broad=bool(given.get("allow_broad")),
    )


def open_to_read(shared: Shared) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; raise `NotWrapped` if there is none."""
    return warning_of_recovery(_find(shared)[1])


@contextmanager
def open_with_root(shared: Shared) -> Iterator[tuple[str, shadowtree.Shadow]]:
    """Do the same, and name the wrapped directory too."""
    root, shadow = _find(shared)
    with warning_of_recovery(shadow):
        yield root, shadow


def open_to_record(shared: Shared) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; recording wraps this one if there is none."""
    return warning_of_recovery(_find(shared, is_wrapping=True)[1])


def open_shadow(shared: Shared, worktree: str) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow of exactly this directory, in this process."""
    return warning_of_recovery(_open_here(shared, worktree))


def open_adopted(shared: Shared, worktree: str, store: str) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow of a directory that was moved, with the store that it had."""
    shadow = shadowtree.Shadow.adopt(
        worktree, store, session=shared.session, settings=shared.settings, allow_broad=shared.allow_broad
    )
    return warning_of_recovery(shadow)


@contextmanager
def warning_of_recovery(shadow: shadowtree.Shadow) -> Iterator[shadowtree.Shadow]:
    """Use a shadow, close it, and warn about what it recovered on the way, also if something else failed."""
    try:
        with shadow:
            yield shadow
    finally:
        for sentence in shadow.recovered:
            warn(sentence)


def find_to_record(shared: Shared) -> str:
    """Name the wrapped directory that the current one is in, or this one, which recording then wraps."""
    here = current_directory()
    return shadowtree.find_worktree(here, store=shared.store) or here


def find_wrapped(shared: Shared) -> str:
    """Name the wrapped directory that the current one is in, also if its store is too damaged to say so."""
    here = current_directory()
    try:
        worktree = shadowtree.find_worktree(here, store=shared.store)
    except (StoreDamaged, StoreFailed):
        return here
    if worktree is None:
        raise NotWrapped(here)
    return worktree


def current_directory() -> str:
    """Name the current directory, which may have been deleted under us."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise WorktreeFailed(".", "the current directory no longer exists") from error


def paths_in_worktree(worktree: str, paths: Sequence[str]) -> list[str] | None:
    """Make paths that are relative to the current directory relative to the worktree; none: None."""
    return [path_in_worktree(worktree, path) for path in paths] or None


def path_in_worktree(worktree: str, path: str) -> str:
    """Make a path relative to the worktree, as it is written if that leads into the worktree.

    What is recorded below a directory that has become a link since is meant by its name, so links inside
    the worktree are not followed; those on the way to it are.
    """
    written = os.path.normpath(os.path.join(current_directory(), path))
    real = os.path.join(os.path.realpath(os.path.dirname(written)), os.path.basename(written))
    for candidate in (written, real):
        if os.path.commonpath([worktree, candidate]) == worktree:
            return os.path.relpath(candidate, worktree)
    raise InvalidInput(f"{path} is outside of {worktree}")


def _find(shared: Shared, *, is_wrapping: bool = False) -> tuple[str, shadowtree.Shadow]:
    """Find the wrapped directory that the current one is in, and its shadow.

    If the daemon has that, it is one with the usual settings.
    """
    here = current_directory()
    if not shared.settings and not shared.allow_broad and Endpoint.is_used(os.environ):
        from shadowtree.daemon.client import find_remote

        served = find_remote(os.environ, here, store=shared.store, session=shared.session)
        if served is not None:
            return served
    worktree = shadowtree.find_worktree(here, store=shared.store)
    if worktree is None and not is_wrapping:
        raise NotWrapped(here)
    return worktree or here, _open_here(shared, worktree or here)


def _open_here(shared: Shared, worktree: str) -> shadowtree.Shadow:
    return shadowtree.Shadow(
        worktree,
        store=shared.store,
        session=shared.session,
        settings=shared.settings,
        allow_broad=shared.allow_broad,
    )


def _read_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip(), value


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot start in {path}: {why}") from error
