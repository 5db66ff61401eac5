"""Find the shadow for a command: that of the wrapped directory at or above the current one.

If the daemon serves that directory, its shadow is used, and hardly anything of the library is loaded. Every
function that opens a shadow warns if it finished or rolled back an act that was interrupted earlier.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import shadowtree
from shadowtree.base.errors import InvalidInput, NotWrapped, StoreDamaged, StoreFailed, WorktreeFailed
from shadowtree.base.frozen import frozen
from shadowtree.cli.output import choose_format, is_quiet, say, warn
from shadowtree.daemon.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any


COLOUR_CHOICES = ("auto", "always", "never")


@frozen
class Shared:
    """The values of the options that every command takes."""

    store: str | None
    session: str | None
    """None: not given. Then recording uses `default`, and all other commands the one that recorded last."""
    settings: Mapping[str, str]
    allow_broad: bool
    start: str | None = None
    """The directory given with -C."""

    @property
    def recording_session(self) -> str:
        """The session to record in."""
        return self.session or "default"


def read_shared(
    given: Mapping[str, Any],  # Any: of the options' own types
    *,
    is_answer: bool = True,
) -> Shared:
    """Read the shared options that were given, by name, and apply them.

    `-C` changes the directory of the process, so that everything after it, including the library, runs as if
    started there. Others decide how the result is written; `is_answer`: the command is run for its output.
    """
    colour = given.get("colour", "auto")
    if colour not in COLOUR_CHOICES:
        raise InvalidInput(f"--color must be one of {', '.join(COLOUR_CHOICES)}, not {colour!r}")
    choose_format(
        as_json="as_json" in given,
        is_quiet="is_quiet" in given,
        is_answer=is_answer,
        colour=colour,
        has_pager="no_pager" not in given,
    )
    if "start" in given:
        _change_directory(given["start"])
    settings = {}
    for setting in given.get("settings", ()):
        key, equals, value = setting.partition("=")
        if not equals:
            raise InvalidInput(f"--set takes KEY=VALUE, not {setting!r}")
        settings[key.strip()] = value
    return Shared(
        store=given.get("store"),
        session=given.get("session") or os.environ.get("SHADOWTREE_SESSION") or None,
        settings=settings,
        allow_broad="allow_broad" in given,
        start=given.get("start"),
    )


def open_to_read(shared: Shared, *, names_session: bool = True) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; raise `NotWrapped` if there is none.

    Its session is the given one, or else the one that recorded last. With `names_session`, the latter is
    shown to the user, unless it is `default`.
    """
    return _open_around(shared, wraps=False, session=shared.session, names_session=names_session)


def open_to_record(shared: Shared, *, wraps: bool = True) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow that the current directory is in; with `wraps`, it may be wrapped only now."""
    return _open_around(shared, wraps=wraps, session=shared.recording_session)


def open_shadow(
    shared: Shared, worktree: str, *, adopt: str | None = None
) -> AbstractContextManager[shadowtree.Shadow]:
    """Open the shadow of exactly this directory, in this process; a moved directory can `adopt` its store."""
    return warning_of_recovery(_make_shadow(shared, worktree, adopt))


@contextmanager
def warning_of_recovery(shadow: shadowtree.Shadow) -> Iterator[shadowtree.Shadow]:
    """Use a shadow and close it; warn about what it recovered, even if something else failed."""
    try:
        with shadow:
            yield shadow
    finally:
        for sentence in shadow.recovered:
            warn(sentence)


@contextmanager
def _using_last_session(
    shadow: shadowtree.Shadow, opening: AbstractContextManager[shadowtree.Shadow], *, is_named: bool
) -> Iterator[shadowtree.Shadow]:
    """Use the shadow of the session that recorded last; then name that session unless it is `default`."""
    with opening:
        last = shadow.for_last_session()
        yield last
    if is_named and last.session != "default" and not is_quiet():
        say(f"using session {last.session}, which recorded last")


def find_to_record(shared: Shared) -> str:
    """Return the wrapped directory that the current one is in, else the current one, to be wrapped."""
    here = current_directory()
    return shadowtree.find_worktree(here, store=shared.store) or here


def find_wrapped(shared: Shared) -> str:
    """Return the wrapped directory that the current one is in; this one, if its damaged store hides that."""
    here = current_directory()
    try:
        worktree = shadowtree.find_worktree(here, store=shared.store)
    except (StoreDamaged, StoreFailed):
        return here
    if worktree is None:
        raise NotWrapped(here)
    return worktree


def current_directory() -> str:
    """Return the current directory; raise `WorktreeFailed` if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise WorktreeFailed(".", "the current directory no longer exists") from error


def absolute_path(path: str) -> str:
    """Make a path absolute, because the library takes relative paths as relative to the worktree."""
    return os.path.normpath(os.path.join(current_directory(), path))


def _open_around(
    shared: Shared, *, wraps: bool, session: str | None, names_session: bool = True
) -> AbstractContextManager[shadowtree.Shadow]:
    here = current_directory()
    shadow = None
    # The daemon's shadows do not know --set and --allow-broad.
    if not shared.settings and not shared.allow_broad and Endpoint.is_used(os.environ):
        from shadowtree.daemon.client import find_remote

        shadow = find_remote(os.environ, here, store=shared.store, session=session)
    if shadow is None:
        worktree = shadowtree.find_worktree(here, store=shared.store)
        if worktree is None and not wraps:
            raise NotWrapped(here)
        shadow = _make_shadow(shared, worktree or here)
        shadow = shadow if wraps else shadow.only_wrapped()
    opening = warning_of_recovery(shadow)
    if session is not None:
        return opening
    return _using_last_session(shadow, opening, is_named=names_session)


def _make_shadow(shared: Shared, worktree: str, adopt: str | None = None) -> shadowtree.Shadow:
    make: Callable[..., shadowtree.Shadow] = shadowtree.Shadow if adopt is None else shadowtree.Shadow.adopt
    return make(
        worktree,
        store=shared.store if adopt is None else adopt,
        session=shared.recording_session,
        settings=shared.settings,
        allow_broad=shared.allow_broad,
    )


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot change to {path}: {why}") from error
