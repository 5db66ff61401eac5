"""Push to a remote after each turn, when nobody wants anything: the setting `auto_push`.

It is done beside everything else, through a shadow of its own, so no command and no hook waits for a server.
What goes wrong is noted in the store, for `status` and `doctor`, and tried again after a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from shadowtree.base.errors import ShadowError
from shadowtree.shadow import Shadow

LOG = logging.getLogger(__name__)


class AutoPush:
    """Pushes what one worktree recorded."""

    def __init__(self, worktree: str, store: str, after_s: float) -> None:
        self._worktree, self._store, self._after_s = worktree, store, after_s
        self._is_due = True
        """Something may have been recorded since the last push."""
        self._not_before_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._shadow: Shadow | None = None

    def note_use(self) -> None:
        """Note that something may have been recorded."""
        self._is_due = True

    def consider(self, idle_since_s: float) -> None:
        """Begin to push, if it is time to."""
        now = time.monotonic()
        is_busy = self._task is not None and not self._task.done()
        if self._is_due and not is_busy and now >= max(self._not_before_s, idle_since_s + self._after_s):
            self._is_due = False
            self._task = asyncio.create_task(self._push())

    def stop(self) -> None:
        """Push no more; what is under way ends at the next piece."""
        if self._shadow is not None:
            self._shadow.cancel()

    async def _push(self) -> None:
        wait_s = await asyncio.to_thread(self._push_once)
        if wait_s is not None:
            self._is_due, self._not_before_s = True, time.monotonic() + wait_s

    def _push_once(self) -> float | None:
        """Push, and give after how long to try again; None: there is nothing more to do. Blocks."""
        try:
            with (
                Shadow(self._worktree, store=self._store, allow_broad=True) as self._shadow,
                suppress(KeyboardInterrupt),
            ):
                # What talks to servers is loaded only if the setting is on.
                return self._shadow.remotes.push_if_due() if self._shadow.settings.auto_push else None
        except ShadowError as error:
            LOG.info("pushing %s failed: %s", self._worktree, error)
        return None
