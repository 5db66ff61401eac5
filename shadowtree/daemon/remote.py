"""A shadow in another process: the same methods, done by the daemon that serves the worktree.

If the daemon leaves the work to the command, or dies at it, a shadow of our own does it, unless it may have
been done already. Nothing is done twice, and nothing is said that is not so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import shadowtree
from shadowtree.daemon.client import Client, Lost, OtherDaemon, Without, open_conversation
from shadowtree.daemon.protocol import METHODS, may_repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any


def find_remote(
    environ: Mapping[str, str], start: str, *, store: str | None, session: str
) -> tuple[str, shadowtree.Shadow] | None:
    """Find the worktree that a directory is in, if the daemon serves it and sees it as this process does.

    Gives its path and what can be used as its shadow; None: the command has to do without.
    """
    place = shadowtree.MeetingPlace(environ)
    client = open_conversation(place)
    if client is None:
        return None
    given = store or environ.get("SHADOWTREE_STORE") or None
    try:
        client.greet(place)
        welcome = client.find(os.path.realpath(start), given and os.path.realpath(given))
        if welcome is not None and welcome.is_seen_here():
            # Any: it answers like a Shadow.
            remote: Any = RemoteShadow(client, welcome.worktree, welcome.store, session)
            return welcome.worktree, remote
    except (OtherDaemon, OSError, ValueError, TypeError):
        # Whatever it is, it is nothing to talk to.
        pass
    except BaseException:
        client.close()
        raise
    client.close()
    return None


class RemoteShadow:
    """Answers like a `Shadow`. What the daemon does not do for commands is done by one of our own."""

    def __init__(self, client: Client, worktree: str, store: str, session: str) -> None:
        self._client: Client | None = client
        self._local: shadowtree.Shadow | None = None
        self._recovered: list[str] = []
        self._worktree = worktree
        self._store = store
        self._session = session

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or taken back on the way, a sentence each."""
        return [*self._recovered, *(self._local.recovered if self._local is not None else [])]

    def __enter__(self) -> RemoteShadow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation, and let go of every file."""
        self._leave()
        if self._local is not None:
            self._local.close()

    def __getattr__(self, name: str) -> Any:  # Any: whatever a Shadow has
        if name not in METHODS:
            return getattr(self._open_local(), name)

        def call(*arguments: object, **named: Any) -> Any:  # Any: what the method takes and gives
            return self._call(name, list(arguments), named)

        return call

    def _call(
        self,
        method: str,
        arguments: list[object],
        named: dict[str, Any],  # Any: what the method takes
    ) -> Any:  # Any: what the method gives
        """Let the daemon call a method; if it does not, call it here."""
        if self._client is not None:
            sent = {name: value for name, value in named.items() if name not in ("progress", "confirm")}
            try:
                return self._client.call(
                    method,
                    self._session,
                    arguments,
                    sent,
                    progress=named.get("progress"),
                    confirm=named.get("confirm"),
                    tell_recovered=self._recovered.extend,
                )
            except Without:
                self._leave()
            except Lost as lost:
                self._leave()
                self._require_undone(lost, method, may_repeat(method, arguments, named))
        act: Callable[..., Any] = getattr(self._open_local(), method)  # Any: what the method gives
        return act(*arguments, **named)

    def _require_undone(self, lost: Lost, method: str, is_repeatable: bool) -> None:
        """Raise unless the work may be done by this process now."""
        if not is_repeatable and lost.number is not None:
            # A daemon that is only silent may still go on with it.
            if lost.is_alive:
                raise shadowtree.PerhapsDone(method, "fell silent") from lost
            if self._open_local().last_number() != lost.number:
                raise shadowtree.PerhapsDone(method, "ended") from lost
        if lost.is_cancelled:
            raise KeyboardInterrupt from lost

    def _leave(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open_local(self) -> shadowtree.Shadow:
        if self._local is None:
            self._local = shadowtree.Shadow(self._worktree, store=self._store, session=self._session)
        return self._local
