"""Follow what happens while the picker is open, in a thread of its own, so that no key has to wait.

The thread has a `Shadow` of its own. It reads all messages and what changed outside them: once at the start,
and again whenever any process records or undoes something.
"""

from __future__ import annotations

import threading
from collections import deque

from shadowtree.base.errors import ShadowError
from shadowtree.base.frozen import frozen
from shadowtree.results.messages import Message
from shadowtree.shadow import Shadow


@frozen
class News:
    """The timeline as it is now."""

    messages: list[Message]
    """All of them, oldest first."""
    outside: int | None
    """How many files changed since the last message; None: not known yet."""


class Live:
    """Reads the timeline in the background, until `close`."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = Shadow(
            shadow.worktree,
            store=shadow.store,
            session=shadow.session,
            settings=shadow.settings,
            allow_broad=True,
        ).only_look()
        self._wanted = threading.Event()
        self._is_closed = False
        self._news: deque[News] = deque(maxlen=1)
        self._subscription = shadow.subscribe(lambda update: self.ask(), on_error=lambda error: None)
        self._thread = threading.Thread(target=self._read_on, name="shadowtree-picker", daemon=True)
        self.ask()
        self._thread.start()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def ask(self) -> None:
        """Have the thread read again."""
        self._wanted.set()

    def take_news(self) -> News | None:
        """Return what was read since the last call, if anything."""
        return self._news.pop() if self._news else None

    def close(self) -> None:
        """Stop the thread, without waiting for a scan that is under way."""
        self._is_closed = True
        self._wanted.set()
        self._subscription.close()

    def _read_on(self) -> None:
        while self._wanted.wait() and not self._is_closed:
            self._wanted.clear()
            try:
                messages = self._shadow.messages()
                self._news.append(News(messages, None))
                self._news.append(News(messages, len(self._shadow.status().outside)))
            except ShadowError:
                # Locked, forgotten or gone meanwhile: the screen stays, and the next request reports it.
                continue
