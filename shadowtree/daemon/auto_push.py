"""Push to a remote after each turn, in idle time, as the setting `auto_push` says.

A push runs in parallel with everything else, with a shadow of its own, so no command and no hook waits for a
server. Failures are saved in the store, for `status` and `doctor`, and retried later.
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
        """Start a push if it is time for one."""
        now = time.monotonic()
        is_busy = self._task is not None and not self._task.done()
        if self._is_due and not is_busy and now >= max(self._not_before_s, idle_since_s + self._after_s):
            self._is_due = False
            self._task = asyncio.create_task(self._push())

    def stop(self) -> None:
        """Stop pushing; a push in progress ends at its next piece."""
        if self._shadow is not None:
            self._shadow.cancel()

    async def _push(self) -> None:
        wait_s = await asyncio.to_thread(self._push_once)
        if wait_s is not None:
            self._is_due, self._not_before_s = True, time.monotonic() + wait_s

    def _push_once(self) -> float | None:
        """Push; return the seconds until the next try, or None if there is nothing more to do. Blocks."""
        try:
            with (
                Shadow(self._worktree, store=self._store, allow_broad=True) as self._shadow,
                suppress(KeyboardInterrupt),
            ):
                # The modules that contact servers are loaded only if the setting is on.
                return self._shadow.remotes.push_if_due() if self._shadow.settings.auto_push else None
        except ShadowError as error:
            LOG.info("pushing %s failed: %s", self._worktree, error)
        return None
